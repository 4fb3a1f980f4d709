/*
 * sched_impl.h - what the files of the scheduler share: what a job could use of a node, what nodes
 * have free from now on (a plan), and the words about it. Private to core/sched*.c.
 */
#ifndef SCHED_IMPL_H
#define SCHED_IMPL_H

#include "core/sched.h"

#define PLAN_FOREVER (INT64_MAX / 2)

uint32_t sched_bits(uint64_t set); /* how many */
/* Bit set of the node's GPUs that are what the job asks for. */
uint64_t sched_gpus_of(const struct sched_node *n, const struct sched_job *j);
const char *sched_gpu_type(const struct sched_node *n, uint32_t gpu);
/* One rank, on the node when nothing else runs there. */
bool sched_fits_idle(const struct sched_node *n, const struct sched_job *j);
/* May the job use this cluster at all? */
bool sched_may_use(const struct sched_job *j, const char *cluster);
/* The most ranks that any one cluster that the job may use could hold, at most j->nodes. */
uint32_t sched_ranks_ever(const struct sched_node *nodes, size_t n, const struct sched_job *j);

/* --- sched_plan.c: use of nodes over time --- */

struct plan_use {
	uint32_t cpu_milli;
	uint64_t memory_bytes, gpus; /* bit set */
};

/* From here to the next step. `late` is used by jobs that overtook one that waits and declared no
 * duration: it counts for further ones of their kind alone. */
struct plan_step {
	int64_t from;
	struct plan_use use, late;
};

struct plan_node {
	const struct sched_node *is;
	size_t cluster; /* index of the first node of the same cluster: its number */
	struct plan_step *step;
	size_t n, cap;
	bool kept; /* for a job ahead in the line, without backfill */
};

struct plan {
	struct arena *a;
	int64_t now_ms;
	struct plan_node *node;
	size_t n;
	uint64_t work;          /* steps looked at */
	struct plan_left *left; /* of a search: what it found free of each node */
};

void plan_init(struct plan *p, struct arena *a, const struct sched_facts *f);
/* One rank's use of a node from..end. */
void plan_add(struct plan *p, size_t node, int64_t from, int64_t end, const struct plan_use *use,
              bool late);

struct plan_want {
	const struct sched_job *job;
	size_t cluster;      /* number */
	int64_t from, until; /* it starts at `from` at the earliest, at `until` at the latest */
	int64_t duration_ms; /* PLAN_FOREVER: without end */
	bool late;           /* beside what overtook, too */
	bool promised;       /* on the first nodes that fit, not the best: see deal() */
};
/* The first time at which the whole gang fits for all its duration, and where. False: none. */
bool plan_earliest(struct plan *p, const struct plan_want *w, struct sched_share *share,
                   int64_t *start);
/* The resources in use now. */
const struct plan_use *plan_now(const struct plan_node *n);
/* How many ranks fit beside this use, at most `most`. */
uint32_t plan_ranks(const struct plan_node *n, const struct sched_job *j,
                    const struct plan_use *use, uint32_t most);

/* --- sched_words.c --- */

void sched_say_never(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                     char reason[SCHED_REASON]);
void sched_say_waits(const struct plan *p, const struct sched_job *j, size_t at,
                     char reason[SCHED_REASON]);

#endif
