/* sched.c - the queue against the nodes: who starts where, who waits until when, who never will. */
#include "core/sched_impl.h"

uint32_t sched_bits(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

const char *sched_gpu_type(const struct sched_node *n, uint32_t gpu)
{
	return n->gpu_types != NULL ? n->gpu_types[gpu] : n->gpu_type;
}

size_t sched_gpu_kinds(const struct sched_node *n, struct sched_gpus out[SCHED_KINDS_MAX])
{
	size_t kinds = 0;

	for (uint32_t i = 0; i < n->gpus; i++) {
		const char *type = sched_gpu_type(n, i);
		size_t k = 0;

		if (type == NULL || type[0] == '\0')
			continue;
		while (k < kinds && strcmp(out[k].type, type) != 0)
			k++;
		if (k == SCHED_KINDS_MAX)
			continue;
		if (k == kinds)
			out[kinds++] = (struct sched_gpus){type, 0};
		out[k].count++;
	}
	return kinds;
}

uint64_t sched_gpus_of(const struct sched_node *n, const struct sched_job *j)
{
	uint64_t all = n->gpus == SCHED_GPUS_MAX ? UINT64_MAX : (UINT64_C(1) << n->gpus) - 1;
	uint64_t set = 0;

	if (j->gpus == 0 || j->gpu_type == NULL)
		return all;
	if (n->gpu_types == NULL)
		return n->gpu_type != NULL && strcmp(n->gpu_type, j->gpu_type) == 0 ? all : 0;
	for (uint32_t i = 0; i < n->gpus; i++) {
		if (n->gpu_types[i] != NULL && strcmp(n->gpu_types[i], j->gpu_type) == 0)
			set |= UINT64_C(1) << i;
	}
	return set;
}

bool sched_fits_idle(const struct sched_node *n, const struct sched_job *j)
{
	return sched_bits(sched_gpus_of(n, j)) >= j->gpus && n->cpu_milli >= j->cpu_milli &&
	       n->memory_bytes >= j->memory_bytes;
}

bool sched_may_use(const struct sched_job *j, const char *cluster)
{
	return !j->cache || j->pinned_cluster == NULL || !j->require_affinity ||
	       strcmp(j->pinned_cluster, cluster) == 0;
}

/* --- capacity --- */

/* How many ranks of an idle cluster: as many as would fit, at most j->nodes. */
static uint32_t ranks_idle(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                           const char *cluster)
{
	uint64_t ranks = 0;

	for (size_t i = 0; i < n && ranks < j->nodes; i++) {
		uint64_t room = 1;

		if (strcmp(nodes[i].cluster, cluster) != 0 || !sched_fits_idle(&nodes[i], j))
			continue;
		if (j->many_per_node) {
			room = j->nodes;
			if (j->gpus > 0)
				room = MIN(room, sched_bits(sched_gpus_of(&nodes[i], j)) / j->gpus);
			if (j->cpu_milli > 0)
				room = MIN(room, nodes[i].cpu_milli / j->cpu_milli);
			if (j->memory_bytes > 0)
				room = MIN(room, nodes[i].memory_bytes / j->memory_bytes);
		}
		ranks += room;
	}
	return (uint32_t)MIN(ranks, j->nodes);
}

uint32_t sched_ranks_ever(const struct sched_node *nodes, size_t n, const struct sched_job *j)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n; i++) {
		if (most < j->nodes && sched_may_use(j, nodes[i].cluster))
			most = MAX(most, ranks_idle(nodes, n, j, nodes[i].cluster));
	}
	return most;
}

enum sched_verdict sched_fits(const struct sched_node *nodes, size_t n_nodes,
                              const struct sched_job *job, char reason[SCHED_REASON])
{
	assert(job->nodes > 0);
	reason[0] = '\0';
	if (n_nodes == 0) { /* they may come: nothing is known yet that forbids it */
		(void)snprintf(reason, SCHED_REASON, "waits for a node: no node is up");
		return SCHED_WAITS;
	}
	if (sched_ranks_ever(nodes, n_nodes, job) >= job->nodes)
		return SCHED_PLACED;
	sched_say_never(nodes, n_nodes, job, reason);
	return SCHED_NEVER;
}

/* --- the run --- */

#define ALIKE_MAX 16

/* Waiting jobs that ask for the same: a run only ever takes room away, so the next one of them
 * starts no earlier than the last one did. Without this, a long line costs its length squared. */
struct alike {
	const struct sched_job *job;
	int64_t start; /* PLAN_FOREVER: none was found */
};

struct run {
	struct plan plan;
	const struct sched_facts *f;
	/* A job ahead has waited long for a start that nobody can tell. */
	bool strict;
	struct alike alike[ALIKE_MAX];
	size_t n_alike;
};

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool is_alike(const struct sched_job *a, const struct sched_job *b)
{
	return a->nodes == b->nodes && a->cpu_milli == b->cpu_milli && a->gpus == b->gpus &&
	       a->memory_bytes == b->memory_bytes && a->duration_ms == b->duration_ms &&
	       a->cache == b->cache && a->require_affinity == b->require_affinity &&
	       a->many_per_node == b->many_per_node && same_text(a->gpu_type, b->gpu_type) &&
	       same_text(a->pinned_cluster, b->pinned_cluster);
}

/* Room is kept for the first kinds of jobs: those of the rest are searched from the beginning. */
static struct alike *alike_of(struct run *r, const struct sched_job *j)
{
	for (size_t i = 0; i < r->n_alike; i++) {
		if (is_alike(r->alike[i].job, j))
			return &r->alike[i];
	}
	return NULL;
}

static void remember(struct run *r, struct alike *last, const struct sched_job *j, int64_t start)
{
	if (last == NULL && r->n_alike < ALIKE_MAX)
		last = &r->alike[r->n_alike++];
	if (last != NULL)
		*last = (struct alike){j, start};
}

/* The earliest start, at `from` or later, on the pinned cluster first, then on the others in the
 * order of their nodes. False: none that could be told. */
static bool find_start(struct run *r, const struct sched_job *j, int64_t from, int64_t until,
                       struct sched_share *share, int64_t *start, bool *home)
{
	const char *pinned = j->cache ? j->pinned_cluster : NULL;
	struct sched_share *other = ARENA_ARRAY(r->plan.a, struct sched_share, j->nodes);
	bool late = r->strict && j->duration_ms == 0;
	struct plan_want w = {
		.job = j,
		.until = until,
		.promised = until > r->f->now_ms,
		.duration_ms = j->duration_ms > 0 ? j->duration_ms : SCHED_UNKNOWN_MS,
	};
	bool found = false;

	if (late && until == r->f->now_ms) {
		w.late = true;
		w.duration_ms = PLAN_FOREVER;
	}
	/* Held back by the one ahead, it starts behind it. */
	w.from = late && !w.late ? r->f->now_ms + SCHED_UNKNOWN_MS : r->f->now_ms;
	w.from = MAX(w.from, from);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < r->plan.n; i++) {
			const char *name = r->plan.node[i].is->cluster;
			bool is_home;
			int64_t at = 0;

			if (r->plan.node[i].cluster != i) /* another node stands for it */
				continue;
			w.cluster = i;
			is_home = pinned != NULL && strcmp(pinned, name) == 0;
			if (is_home != (pass == 0) || !sched_may_use(j, name) ||
			    !plan_earliest(&r->plan, &w, other, &at))
				continue;
			memcpy(share, other, j->nodes * sizeof(*share));
			*start = at;
			*home = pinned == NULL || is_home;
			found = true;
			if (at == w.from)
				return true;
			w.until = at - 1; /* another one only if it is earlier */
		}
	}
	return found;
}

static void add(struct run *r, const struct sched_job *j, const struct sched_share *share,
                int64_t from, int64_t end, bool late)
{
	for (uint32_t i = 0; i < j->nodes; i++) {
		struct plan_use use = {j->cpu_milli, j->memory_bytes, share[i].gpus};

		plan_add(&r->plan, share[i].node, from, end, &use, late);
	}
}

static void place(struct run *r, const struct sched_job *j, struct sched_answer *out, bool home)
{
	int64_t now = r->f->now_ms;
	int64_t lasts = j->duration_ms > 0 ? j->duration_ms : SCHED_UNKNOWN_MS;

	out->verdict = SCHED_PLACED;
	out->cold_cache = !home;
	add(r, j, out->shares, now, now + lasts, false);
	if (r->strict && j->duration_ms == 0)
		add(r, j, out->shares, now + SCHED_UNKNOWN_MS, PLAN_FOREVER, true);
}

/* From here on, and for all behind j: those that overtook it and may run for ever leave it less. */
static void be_strict(struct run *r, const struct sched_job *j)
{
	const struct sched_facts *f = r->f;

	if (r->strict)
		return;
	r->strict = true;
	for (size_t i = 0; i < f->n_held; i++) {
		const struct sched_held *h = &f->held[i];
		struct plan_use use = {h->cpu_milli, h->memory_bytes, h->gpus};

		if (h->end_ms == 0 && h->placed_ms > j->since_ms)
			plan_add(&r->plan, h->node, f->now_ms + SCHED_UNKNOWN_MS, PLAN_FOREVER,
			         &use, true);
	}
}

/* Reserves what the job was promised, for all jobs behind it. */
static void promise(struct run *r, const struct sched_job *j, const struct sched_share *share,
                    int64_t start, struct sched_answer *out)
{
	const struct sched_facts *f = r->f;
	int64_t lasts = j->duration_ms > 0 ? j->duration_ms : SCHED_UNKNOWN_MS;

	add(r, j, share, start, start + lasts, false);
	if (start < f->now_ms + SCHED_UNKNOWN_MS)
		out->start_ms = start;
	else if (f->now_ms - j->since_ms >= f->backfill_wait_ms)
		be_strict(r, j);
}

/* Without backfill: all the nodes that it could use, from all behind it. */
static void keep_nodes(struct run *r, const struct sched_job *j)
{
	for (size_t i = 0; i < r->plan.n; i++) {
		struct plan_node *n = &r->plan.node[i];

		if (sched_fits_idle(n->is, j) && sched_may_use(j, n->is->cluster))
			n->kept = true;
	}
}

static void decide(struct run *r, const struct sched_job *j, size_t *waiting,
                   struct sched_answer *out)
{
	const struct sched_facts *f = r->f;
	struct sched_share *share = ARENA_ARRAY(r->plan.a, struct sched_share, j->nodes);
	struct alike *last = alike_of(r, j);
	int64_t start = 0;
	bool home = true;

	*out = (struct sched_answer){.verdict = SCHED_WAITS};
	if (sched_fits(f->nodes, f->n_nodes, j, out->reason) == SCHED_NEVER) {
		out->verdict = SCHED_NEVER;
		return;
	}
	if (last == NULL && find_start(r, j, f->now_ms, f->now_ms, share, &start, &home)) {
		out->shares = share;
		place(r, j, out, home);
		return;
	}
	out->place = ++*waiting;
	if (f->n_nodes > 0)
		sched_say_waits(&r->plan, j, out->place, out->reason);
	if (!f->backfill)
		keep_nodes(r, j);
	else if (find_start(r, j, last != NULL ? last->start : f->now_ms, PLAN_FOREVER, share,
	                    &start, &home))
		promise(r, j, share, start, out);
	else
		start = PLAN_FOREVER;
	remember(r, last, j, start);
}

void sched_run(struct arena *a, const struct sched_facts *f, const struct sched_job *jobs,
               const size_t *line, size_t n_jobs, struct sched_answer *answers)
{
	struct run r = {.f = f};
	size_t waiting = 0;

	plan_init(&r.plan, a, f);
	for (size_t i = 0; i < n_jobs; i++)
		decide(&r, &jobs[line[i]], &waiting, &answers[line[i]]);
}
