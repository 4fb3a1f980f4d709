/*
 * sched.h - who starts where: nodes, queue and cache affinity in, placements and reasons out. Pure:
 * the same facts give the same answer.
 *
 * Order (sched_line): priority, then fair share between teams and between the users of a team, then
 * age. Whole gang or nothing.
 *
 * Backfill is conservative: each waiting job gets the earliest start that the jobs before it leave,
 * judged by declared durations, and a job behind it starts early only if that start stays. A job
 * that declares no duration is taken to run for ever, so the start of a job that waits for it is
 * unknown. Such a job may be overtaken until it has waited for backfill_wait_ms; from then on what
 * declares no duration either starts only beside it, where it could start all the same.
 */
#ifndef SCHED_H
#define SCHED_H

#include "base/arena.h"

#define SCHED_NODES_MAX 1024
#define SCHED_GPUS_MAX 64 /* per node */
#define SCHED_REASON 200
#define SCHED_UNKNOWN_MS (INT64_C(10) * 365 * 86400 * 1000) /* of what declares no duration */
#define SCHED_OVERDUE_MS 60000       /* what should have ended is expected to end this soon */
#define SCHED_WORK_MAX 50000000      /* steps of a plan that one run looks at */
#define SCHED_COST_MS (3600 * 1000L) /* what an unknown duration counts for in fair share */

struct sched_node {
	const char *name, *cluster;
	/* `used`: in use and nobody says until when. What has an end is a struct sched_held. */
	uint32_t cpu_milli, cpu_milli_used;
	uint64_t memory_bytes, memory_used;
	const char *gpu_type;         /* NULL: none */
	const char *const *gpu_types; /* of each, where they are not alike; else NULL */
	uint32_t gpus;
	uint64_t gpus_used; /* bit set */
	bool down;
};

/* The resources of a node that one rank of a placed job holds. */
struct sched_held {
	size_t node;
	uint32_t cpu_milli;
	uint64_t memory_bytes, gpus; /* bit set */
	int64_t placed_ms;
	int64_t end_ms; /* by its declared duration; 0: it declared none */
	const char *team, *user;
};

struct sched_job {
	const char *id;
	const char *team, *user;
	int64_t priority, created_ms;
	int64_t since_ms;                /* it waits since then */
	int64_t duration_ms;             /* declared; 0: none */
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
	int64_t start_ms;          /* of a waiting job: not later than this; 0: unknown */
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

/* A user's recent use in share-milliseconds, a share being the largest fraction of the CPUs, memory
 * or GPUs of all nodes. */
struct sched_used {
	const char *team, *user;
	double share_ms;
};

struct sched_facts {
	const struct sched_node *nodes;
	size_t n_nodes;
	const struct sched_held *held;
	size_t n_held;
	const struct sched_used *used;
	size_t n_used;
	int64_t now_ms;
	bool backfill; /* false: a waiting job keeps the nodes that it could use from all behind it
	                */
	int64_t backfill_wait_ms;
};

/* The part of all nodes that this much is. */
double sched_share_of(const struct sched_facts *f, uint32_t cpu_milli, uint64_t memory_bytes,
                      uint32_t gpus);
/* The order in which jobs[] have their turn: line[0] is the index of the first. */
void sched_line(struct arena *a, const struct sched_facts *f, const struct sched_job *jobs,
                size_t n_jobs, size_t *line);
/* Decides for all of jobs[] at once, in that order; answers[i] belongs to jobs[i]. */
void sched_run(struct arena *a, const struct sched_facts *f, const struct sched_job *jobs,
               const size_t *line, size_t n_jobs, struct sched_answer *answers);
/* Could the job ever run here, all else idle? For push: SCHED_NEVER names the limit. */
enum sched_verdict sched_fits(const struct sched_node *nodes, size_t n_nodes,
                              const struct sched_job *job, char reason[SCHED_REASON]);

#endif
