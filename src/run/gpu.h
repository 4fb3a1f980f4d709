/*
 * gpu.h - what a job gets of the NVIDIA driver. Device nodes: those of its own GPUs, and those that
 * all share. In an image, which has no driver, the machine's libraries too, at a place of their own
 * that LD_LIBRARY_PATH names (env.c). So a machine needs the driver and podman, and no container
 * toolkit. Which nodes and libraries computing needs: NVIDIA's libnvidia-container, "compute",
 * "utility" and "video" of its driver capabilities.
 */
#ifndef GPU_H
#define GPU_H

#include "run/mounts.h"

/* Images made for NVIDIA's tools look there, whatever LD_LIBRARY_PATH says. */
#define GPU_LIBRARIES "/usr/local/nvidia/lib64"
#define GPU_NODES_MAX 72

/* CUDA's memory has a device of its own, which is there once somebody has asked for it: the first
 * job after a boot would be that one, and may not. For a job with GPUs, before the runner gives up
 * what it may do. */
void gpu_wake(void);

/* What the driver's /proc/driver/nvidia says of one GPU. */
struct gpu_place {
	char bus[32]; /* "0000:17:00.0" */
	int minor;    /* of /dev/nvidia<n>: index order and device order may differ; -1: not said */
};
/* False: the driver does not know it, or says nothing. */
bool gpu_find(const char *root, const char *uuid, struct gpu_place *out);

/* The paths of those that are there, in `a`; how many. root: "" for this machine, or a folder that
 * holds dev/ and proc/; the paths are without it. */
size_t gpu_nodes(struct arena *a, const char *root, const struct wire_gpu *gpus, size_t n,
                 const char *out[GPU_NODES_MAX]);

/* Which of them the job's processes may not open, as the driver can be told to make them for a
 * group alone (NVreg_DeviceFileMode); NULL: none. own_ids: the job has ids that no group knows. */
const char *gpu_closed(struct arena *a, const char *root, const struct wire_gpu *gpus, size_t n,
                       bool own_ids);

/* Mounts this machine's driver: its libraries, read-only, below GPU_LIBRARIES, and nvidia-smi.
 * ERR_NOT_FOUND: there is none. */
int gpu_driver(struct mounts *m, struct err *err) MUST_CHECK;
/* The same of a driver whose libnvidia-ml.so.1 has this path: what lies beside it and, where it is
 * a link, beside what it leads to. tool: the path of nvidia-smi, or NULL. */
int gpu_driver_mounts(struct mounts *m, const char *library, const char *tool,
                      struct err *err) MUST_CHECK;

#endif
