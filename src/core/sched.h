/*
 * sched.h - who starts where: nodes, queue and cache affinity in, placements and reasons out. Pure:
 * the same facts give the same answer. Order: priority, then age. Whole gang or nothing. A job that
 * does not fit leaves its place to smaller ones behind it only when `backfill` is set.
 */
#ifndef SCHED_H
#define SCHED_H

#include "base/arena.h"

#define SCHED_NODES_MAX 1024
#define SCHED_GPUS_MAX 64 /* per node */
#define SCHED_REASON 200

struct sched_node {
	const char *name, *cluster;
	uint32_t cpu_milli, cpu_milli_used;
	uint64_t memory_bytes, memory_used;
	const char *gpu_type;         /* NULL: none */
	const char *const *gpu_types; /* of each, where they are not alike; else NULL */
	uint32_t gpus;
	uint64_t gpus_used; /* bit set */
	bool down;
};

struct sched_job {
	const char *id;
	int64_t priority, created_ms;
	uint32_t nodes, cpu_milli, gpus; /* per node */
	uint64_t memory_bytes;           /* per node */
	const char *gpu_type;
	const char *project;
	const char *pinned_cluster; /* of its project's cache; NULL: none, or not cache-enabled */
	bool cache, require_affinity;
	bool many_per_node; /* the gang may share a node (the local cluster has only one) */
};

struct sched_share {
	size_t node;
	uint64_t gpus; /* bit set of the GPUs given */
};

enum sched_verdict {
	SCHED_PLACED,
	SCHED_WAITS, /* reason says for what; place is its place in line, from 1 */
	SCHED_NEVER, /* larger than everything there is, or affinity forbids: DEPLOY_FAILED */
};

struct sched_answer {
	enum sched_verdict verdict;
	struct sched_share *shares; /* one per rank */
	bool cold_cache; /* placed away from its pinned cluster (require_affinity is off) */
	size_t place;
	char reason[SCHED_REASON]; /* "waits for 2 x H200 (1 free of 8), 3rd in line" */
};

struct sched_gpus { /* of a node: so many of this type */
	const char *type;
	uint32_t count;
};
#define SCHED_KINDS_MAX 8
/* In the order of the first of each type; returns how many types. What is of no type that a job
 * could ask for is left out. */
size_t sched_gpu_kinds(const struct sched_node *n, struct sched_gpus out[SCHED_KINDS_MAX]);

/* Decides for all of jobs[] at once; answers[i] belongs to jobs[i] (any order of input). */
void sched_run(struct arena *a, const struct sched_node *nodes, size_t n_nodes,
               const struct sched_job *jobs, size_t n_jobs, bool backfill,
               struct sched_answer *answers);
/* Could the job ever run here, all else idle? For push: SCHED_NEVER names the limit. */
enum sched_verdict sched_fits(const struct sched_node *nodes, size_t n_nodes,
                              const struct sched_job *job, char reason[SCHED_REASON]);

#endif
