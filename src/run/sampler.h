/* sampler.h - one moment of a node: cgroup, /proc, disks and GPUs, for the heartbeats. */
#ifndef SAMPLER_H
#define SAMPLER_H

#include "core/wire.h"
#include "run/cgroup.h"
#include "run/ship.h"

#define SAMPLER_EVERY_MS 5000
#define SAMPLER_FIRST_MS 1000  /* before it a share of the CPUs says little */
#define SAMPLER_CACHE_MS 60000 /* between two sums of the cache, and 20 times what one takes */

struct sampler;

struct sampler_options {
	/* Folders that the job writes to, besides checkpoints and caches, on the scratch file
	 * system; NULL ends a shorter list. The free space reported is that of the first one's file
	 * system. */
	const char *written[3];
	const char *cache_dir; /* NULL = none */
	uint64_t cache_quota;
	uint64_t memory_limit;
	const struct wire_gpu *gpus;
	size_t n_gpus;
};

int sampler_start(struct sampler **out, const struct sampler_options *o,
                  struct err *err) MUST_CHECK;
/* From now on (NULL: no more) these are measured: the job's group, its first process where there is
 * no group, its checkpoints. They must live until the next call. */
void sampler_watch(struct sampler *s, const struct cgroup *g, pid_t init, struct ship *ship);
/* Fills *out when a sample is due; for report_samples. */
bool sampler_read(void *sampler, struct wire_sample *out);
/* The sample since the last one, due or not, after the job has ended and before its cgroup is
 * removed: false = nothing is watched. It gives even a very short job a sample: its CPU use over
 * its life and its peak memory or, without a cgroup, those of this process's ended children. */
bool sampler_last(struct sampler *s, struct wire_sample *out);
/* The most that any of the GPUs is used right now, 0..1. False: that is not known of all of them.
 * Any thread. */
bool sampler_gpu_use(const struct sampler *s, double *most);
void sampler_stop(struct sampler *s); /* NULL is fine */

#endif
