/*
 * cores.h - on which of the machine's cores a job runs: as many as its cpu_count says, rounded up,
 * and those that the fewest other jobs have, near its GPUs (topology.h). So programs that ask for
 * the number of cores (nproc, os.process_cpu_count) find the job's own, and two jobs share a core
 * only when there are too few.
 *
 * It is an affinity: a job may change it, and is held to its time by the cgroup all the same. Which
 * cores a job has is in a file of its attempt's folder, for other runners of the same server.
 */
#ifndef CORES_H
#define CORES_H

#include "base/err.h"

#define CORES_FILE "cores"
#define CORES_TEXT_MAX 8192 /* "0,1,4": of 1024 cores */

struct cores {
	unsigned n;                /* 0: all that this process has */
	char list[CORES_TEXT_MAX]; /* "0,1,4", "" = all */
};

/* For the attempt in `dir`, beside the others of its folder's folder. What fails leaves the job all
 * cores: out->n is 0. */
void cores_take(struct cores *out, const char *dir, uint32_t cpu_milli, const char *const *gpu_uuid,
                size_t n_gpus);
void cores_release(const char *dir); /* its processes are gone */

#endif
