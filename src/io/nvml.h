/*
 * nvml.h - NVIDIA GPUs through their management library, found at run time by dlopen: no header of
 * theirs is needed to build, and a machine without a GPU has none of it. The prototypes are those
 * of https://docs.nvidia.com/deploy/nvml-api/ (stable since driver 418).
 */
#ifndef NVML_H
#define NVML_H

#include "base/err.h"

#define NVML_GPUS_MAX 64

struct nvml;

struct nvml_gpu {
	char uuid[64], name[96];
	uint64_t memory_bytes;
};
struct nvml_usage {
	double utilization;   /* 0..1 */
	bool has_utilization; /* a GPU that is cut into parts has none of its own */
	uint64_t memory_bytes;
};

/* ERR_NOT_FOUND: there is no library: a machine without such GPUs. ERR_UNSUPPORTED: there is, but
 * it is too old, or its driver does not work. */
int nvml_open(struct nvml **out, struct err *err) MUST_CHECK;
void nvml_close(struct nvml *n); /* NULL is fine */
DEFINE_CLEANUP(struct nvml, nvml_close)
#define AUTO_NVML CLEANUP(nvml_close_p)

/* Where the loader found the library: its path, to be freed. The driver's others lie beside it. */
int nvml_path(const struct nvml *n, char **out, struct err *err) MUST_CHECK;

/* A GPU that does not answer fails it: leaving it out would move the others' numbers. */
int nvml_list(struct nvml *n, struct nvml_gpu *gpu, size_t cap, size_t *count,
              struct err *err) MUST_CHECK;
int nvml_read(struct nvml *n, const char *uuid, struct nvml_usage *out, struct err *err) MUST_CHECK;

#endif
