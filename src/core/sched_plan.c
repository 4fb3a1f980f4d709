/*
 * sched_plan.c - what is in use of each node from now on, as steps in time: what runs until it
 * ends, and what waiting jobs were promised. Finds the first time at which a gang fits.
 */
#include "core/sched_impl.h"

/* The free resources of a node over a span of time. */
struct plan_left {
	uint32_t ranks;
	uint64_t gpus; /* of the job's type */
	uint32_t cpu_milli;
};

/* Where the step that holds `at` is; a step begins there afterwards when `split`. */
static size_t find_step(const struct plan_node *n, int64_t at)
{
	size_t low = 0, high = n->n; /* step[low].from <= at < step[high].from */

	assert(n->n > 0 && n->step[0].from <= at);
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;

		if (n->step[mid].from <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static size_t split(struct plan *p, struct plan_node *n, int64_t at)
{
	size_t i = find_step(n, at);

	if (n->step[i].from == at)
		return i;
	if (n->n == n->cap) {
		struct plan_step *larger = ARENA_ARRAY(p->a, struct plan_step, n->cap * 2);

		memcpy(larger, n->step, n->n * sizeof(*larger));
		n->step = larger;
		n->cap *= 2;
	}
	memmove(&n->step[i + 2], &n->step[i + 1], (n->n - i - 1) * sizeof(n->step[0]));
	n->step[i + 1] = n->step[i];
	n->step[i + 1].from = at;
	n->n++;
	return i + 1;
}

static void sum(struct plan_use *to, const struct plan_use *use)
{
	/* More than there is, only where reality is not as planned; then nothing is free. */
	if (__builtin_add_overflow(to->cpu_milli, use->cpu_milli, &to->cpu_milli))
		to->cpu_milli = UINT32_MAX;
	if (__builtin_add_overflow(to->memory_bytes, use->memory_bytes, &to->memory_bytes))
		to->memory_bytes = UINT64_MAX;
	to->gpus |= use->gpus;
}

void plan_add(struct plan *p, size_t node, int64_t from, int64_t end, const struct plan_use *use,
              bool late)
{
	struct plan_node *n = &p->node[node];
	size_t first, last;

	from = MAX(from, p->now_ms);
	if (end <= from)
		return;
	first = split(p, n, from);
	last = end < PLAN_FOREVER ? split(p, n, end) : n->n;
	for (size_t i = first; i < last; i++)
		sum(late ? &n->step[i].late : &n->step[i].use, use);
	p->work += last - first;
}

const struct plan_use *plan_now(const struct plan_node *n)
{
	return &n->step[0].use;
}

/* Nobody knows when a node that is down comes back, as with what runs without a declared end. */
static void init_node(struct plan *p, size_t i, const struct sched_node *is)
{
	struct plan_node *n = &p->node[i];
	struct plan_use all = {UINT32_MAX, UINT64_MAX, UINT64_MAX};
	struct plan_use used = {is->cpu_milli_used, is->memory_used, is->gpus_used};

	*n = (struct plan_node){.is = is, .cap = 8, .n = 1};
	n->step = ARENA_ARRAY(p->a, struct plan_step, n->cap);
	n->step[0].from = p->now_ms;
	plan_add(p, i, p->now_ms, p->now_ms + SCHED_UNKNOWN_MS, is->down ? &all : &used, false);
}

void plan_init(struct plan *p, struct arena *a, const struct sched_facts *f)
{
	*p = (struct plan){.a = a, .now_ms = f->now_ms, .n = f->n_nodes};
	assert(f->n_nodes <= SCHED_NODES_MAX);
	p->node = ARENA_ARRAY(a, struct plan_node, p->n);
	p->left = ARENA_ARRAY(a, struct plan_left, p->n);
	for (size_t i = 0; i < p->n; i++) {
		struct plan_node *n = &p->node[i];

		assert(f->nodes[i].gpus <= SCHED_GPUS_MAX);
		init_node(p, i, &f->nodes[i]);
		while (strcmp(f->nodes[n->cluster].cluster, f->nodes[i].cluster) != 0)
			n->cluster++;
	}
	for (size_t i = 0; i < f->n_held; i++) {
		const struct sched_held *h = &f->held[i];
		struct plan_use use = {h->cpu_milli, h->memory_bytes, h->gpus};
		int64_t end = h->end_ms;

		if (end == 0)
			end = p->now_ms + SCHED_UNKNOWN_MS;
		else if (end <= p->now_ms)
			end = p->now_ms + SCHED_OVERDUE_MS;

		assert(h->node < p->n);
		plan_add(p, h->node, p->now_ms, end, &use, false);
	}
}

/* --- what fits --- */

/* all: the GPUs of the node that the job could use. */
static uint32_t ranks_beside(const struct plan_node *n, const struct sched_job *j, uint64_t all,
                             const struct plan_use *use, uint32_t most)
{
	uint64_t cpu = n->is->cpu_milli - MIN(n->is->cpu_milli, use->cpu_milli);
	uint64_t memory = n->is->memory_bytes - MIN(n->is->memory_bytes, use->memory_bytes);
	uint64_t ranks = most;

	if (j->cpu_milli > 0)
		ranks = MIN(ranks, cpu / j->cpu_milli);
	if (j->memory_bytes > 0)
		ranks = MIN(ranks, memory / j->memory_bytes);
	if (j->gpus > 0)
		ranks = MIN(ranks, sched_bits(all & ~use->gpus) / j->gpus);
	return (uint32_t)ranks;
}

uint32_t plan_ranks(const struct plan_node *n, const struct sched_job *j,
                    const struct plan_use *use, uint32_t most)
{
	return ranks_beside(n, j, j->gpus > 0 ? sched_gpus_of(n->is, j) : 0, use, most);
}

static struct plan_use use_of(const struct plan_step *s, bool late)
{
	struct plan_use use = s->use;

	if (late)
		sum(&use, &s->late);
	return use;
}

/* As many ranks as fit from `at` for the whole duration, at most `most`; `*next`: no earlier time
 * has room for more. */
static struct plan_left look(struct plan *p, const struct plan_node *n, const struct plan_want *w,
                             int64_t at, uint32_t most, int64_t *next)
{
	const struct sched_job *j = w->job;
	int64_t end = w->duration_ms >= PLAN_FOREVER - at ? PLAN_FOREVER : at + w->duration_ms;
	size_t first = find_step(n, at), i;
	const uint64_t all = sched_gpus_of(n->is, j);
	struct plan_left left = {.ranks = most, .gpus = all};

	for (i = first; i < n->n && n->step[i].from < end; i++) {
		struct plan_use use = use_of(&n->step[i], w->late);
		uint32_t cpu = n->is->cpu_milli - MIN(n->is->cpu_milli, use.cpu_milli);

		left.gpus &= ~use.gpus;
		left.cpu_milli = i == first ? cpu : MIN(left.cpu_milli, cpu);
		left.ranks = MIN(left.ranks, ranks_beside(n, j, all, &use, most));
		if (j->gpus > 0)
			left.ranks = MIN(left.ranks, sched_bits(left.gpus) / j->gpus);
	}
	p->work += i - first;
	/* The last step that alone allows no more has to be over. Together several may allow less
	 * than each of them: then the first. */
	*next = INT64_MAX;
	while (left.ranks < most && i-- > first) {
		struct plan_use use = use_of(&n->step[i], w->late);

		if (i > first && ranks_beside(n, j, all, &use, most) > left.ranks)
			continue;
		if (i + 1 < n->n)
			*next = n->step[i + 1].from;
		break;
	}
	return left;
}

/* Jobs without GPUs keep off the nodes that have some; GPUs are taken where fewest are left. */
static bool is_better(const struct plan *p, const struct plan_left *left, size_t a, size_t b,
                      const struct sched_job *j)
{
	uint32_t ga = sched_bits(left[a].gpus), gb = sched_bits(left[b].gpus);

	if (j->gpus == 0 && (p->node[a].is->gpus == 0) != (p->node[b].is->gpus == 0))
		return p->node[a].is->gpus == 0;
	if (ga != gb)
		return ga < gb;
	return left[a].cpu_milli < left[b].cpu_milli;
}

static uint64_t lowest_bits(uint64_t set, uint32_t n)
{
	uint64_t got = 0;

	for (; n > 0; n--) {
		uint64_t bit = set & -set;

		assert(bit != 0);
		got |= bit;
		set &= ~bit;
	}
	return got;
}

/* Ranks are alike, so giving them one by one is exact. A start that is promised takes the first
 * nodes and GPUs that fit: who starts meanwhile leaves those, and takes of what is before them only
 * what did not fit anyway, so the next run promises the same again. */
static void deal(const struct plan *p, const struct plan_want *w, struct plan_left *left,
                 struct sched_share *share)
{
	const struct sched_job *j = w->job;

	for (uint32_t rank = 0; rank < j->nodes; rank++) {
		size_t best = SIZE_MAX;

		for (size_t i = 0; i < p->n; i++) {
			if (left[i].ranks > 0 &&
			    (best == SIZE_MAX || (!w->promised && is_better(p, left, i, best, j))))
				best = i;
		}
		assert(best != SIZE_MAX);
		share[rank] = (struct sched_share){best, lowest_bits(left[best].gpus, j->gpus)};
		left[best].gpus &= ~share[rank].gpus;
		left[best].cpu_milli -= MIN(left[best].cpu_milli, j->cpu_milli);
		left[best].ranks = j->many_per_node ? left[best].ranks - 1 : 0;
	}
}

bool plan_earliest(struct plan *p, const struct plan_want *w, struct sched_share *share,
                   int64_t *start)
{
	const struct sched_job *j = w->job;
	struct plan_left *left = p->left;
	int64_t at = MAX(w->from, p->now_ms);

	while (at <= w->until && at < PLAN_FOREVER && p->work < SCHED_WORK_MAX) {
		uint64_t ranks = 0;
		int64_t soonest = INT64_MAX;

		for (size_t i = 0; i < p->n; i++) {
			const struct plan_node *n = &p->node[i];
			int64_t next;

			left[i] = (struct plan_left){0};
			if (n->cluster != w->cluster || n->kept || !sched_fits_idle(n->is, j))
				continue;
			left[i] = look(p, n, w, at, j->many_per_node ? j->nodes : 1, &next);
			ranks += left[i].ranks;
			soonest = MIN(soonest, next);
		}
		if (ranks >= j->nodes) {
			deal(p, w, left, share);
			*start = at;
			return true;
		}
		at = soonest;
	}
	return false;
}
