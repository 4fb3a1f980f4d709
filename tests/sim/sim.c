/*
 * sim.c - job.c and sched.c driven from a seed: arrivals, events, lost nodes, stops, changes of
 * priority, jumps of the clock, and restarts of the server, which keeps only what is stored. After
 * each step all that must hold is checked; a failure prints the seed and the step, which repeat it.
 *
 *   sim SEED [STEPS]
 */
#include "core/job.h"
#include "core/sched.h"

#define NODES_MAX 12
#define JOBS_MAX 400
#define STEPS 3000
#define DRAIN 20000 /* steps in which all that is left must end */
#define GIB (UINT64_C(1) << 30)
#define CHECK(c) ((c) ? (void)0 : fail(w, #c, __LINE__))

struct job {
	struct job_core core;
	struct sched_job ask;
	struct sched_share share[8];
	uint32_t n_shares;
	enum job_state end; /* the first final state; JOB_STATE_COUNT before */
	char id[16];
};

struct world {
	uint64_t seed, random;
	unsigned step;
	int64_t now_ms;
	bool backfill;
	struct sched_node node[NODES_MAX];
	char name[NODES_MAX][8], cluster[3][8];
	size_t n_nodes, n_clusters;
	struct job job[JOBS_MAX];
	size_t n_jobs;
	unsigned placed, ended, lost;
};

static const char *const gpu_types[] = {"H100", "H200", "L4"};

static NORETURN void fail(const struct world *w, const char *what, int line)
{
	(void)fprintf(stderr, "sim: seed %" PRIu64 ", step %u: line %d: %s\n", w->seed, w->step,
	              line, what);
	abort();
}

/* splitmix64 */
static uint64_t any(struct world *w)
{
	uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t below(struct world *w, uint32_t n)
{
	return (uint32_t)(any(w) % n);
}

static bool one_in(struct world *w, uint32_t n)
{
	return below(w, n) == 0;
}

static void make_nodes(struct world *w)
{
	w->n_clusters = 1 + below(w, 3);
	w->n_nodes = w->n_clusters + below(w, (uint32_t)(NODES_MAX - w->n_clusters));
	for (size_t c = 0; c < w->n_clusters; c++)
		FMT(w->cluster[c], "c%zu", c);
	for (size_t i = 0; i < w->n_nodes; i++) {
		struct sched_node *n = &w->node[i];
		size_t c = i < w->n_clusters ? i : below(w, (uint32_t)w->n_clusters);

		FMT(w->name[i], "n%zu", i);
		*n = (struct sched_node){
			.name = w->name[i],
			.cluster = w->cluster[c],
			.cpu_milli = 1000 * (1 + below(w, 64)),
			.memory_bytes = GIB * (1 + below(w, 256)),
		};
		if (!one_in(w, 3)) {
			n->gpu_type = gpu_types[below(w, (uint32_t)COUNT(gpu_types))];
			n->gpus = one_in(w, 10) ? SCHED_GPUS_MAX : 1 + below(w, 8);
		}
	}
}

static void arrive(struct world *w)
{
	struct job *j = &w->job[w->n_jobs];

	if (w->n_jobs == JOBS_MAX)
		return;
	*j = (struct job){.core = {.attempt_max = 1 + below(w, 3)}, .end = JOB_STATE_COUNT};
	FMT(j->id, "j%zu", w->n_jobs++);
	j->ask = (struct sched_job){
		.id = j->id,
		.project = "p",
		.priority = (int64_t)below(w, 5) - 2,
		.created_ms = w->now_ms,
		.nodes = one_in(w, 3) ? 1 + below(w, COUNT(j->share)) : 1,
		.cpu_milli = 100 * (1 + below(w, 160)),
		.memory_bytes = GIB / 2 * (1 + below(w, 128)),
		.many_per_node = one_in(w, 2),
		.cache = one_in(w, 2),
		.require_affinity = one_in(w, 2),
	};
	if (one_in(w, 2)) {
		j->ask.gpus = 1 + below(w, 8);
		j->ask.gpu_type = gpu_types[below(w, (uint32_t)COUNT(gpu_types))];
	}
	if (one_in(w, 3))
		j->ask.pinned_cluster = w->cluster[below(w, (uint32_t)w->n_clusters)];
}

/* Legal or not as the table says; what it refuses may change nothing. */
static void event(struct world *w, struct job *j, enum job_event ev)
{
	struct job_core old = j->core;
	struct err err = {0};

	if (job_step(&j->core, ev, w->now_ms, &err) < 0) {
		CHECK(memcmp(&old, &j->core, sizeof(old)) == 0);
		return;
	}
	CHECK(!job_state_is_final(old.state));
	if (!job_state_is_placed(j->core.state))
		j->n_shares = 0;
	if (job_state_is_final(j->core.state)) {
		j->end = j->core.state;
		w->ended++;
	}
}

static void toggle_node(struct world *w)
{
	size_t at = below(w, (uint32_t)w->n_nodes);

	w->node[at].down = !w->node[at].down;
	for (size_t i = 0; i < w->n_jobs && w->node[at].down; i++) {
		struct job *j = &w->job[i];
		bool here = false;

		for (uint32_t k = 0; k < j->n_shares; k++)
			here = here || j->share[k].node == at;
		if (here) {
			event(w, j, JOB_EV_LOST);
			w->lost++;
		}
	}
}

/* What is in use, from the jobs alone. */
static void count_use(struct world *w)
{
	for (size_t i = 0; i < w->n_nodes; i++) {
		w->node[i].cpu_milli_used = 0;
		w->node[i].memory_used = 0;
		w->node[i].gpus_used = 0;
	}
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct job *j = &w->job[i];

		for (uint32_t k = 0; k < j->n_shares; k++) {
			struct sched_node *n = &w->node[j->share[k].node];
			uint64_t gpus = j->share[k].gpus;

			CHECK((n->gpus_used & gpus) == 0); /* never shared */
			CHECK(n->gpus == SCHED_GPUS_MAX || gpus >> n->gpus == 0);
			CHECK((uint32_t)__builtin_popcountll(gpus) == j->ask.gpus);
			CHECK(gpus == 0 || strcmp(n->gpu_type, j->ask.gpu_type) == 0);
			n->gpus_used |= gpus;
			n->cpu_milli_used += j->ask.cpu_milli;
			n->memory_used += j->ask.memory_bytes;
		}
	}
	for (size_t i = 0; i < w->n_nodes; i++) {
		CHECK(w->node[i].cpu_milli_used <= w->node[i].cpu_milli);
		CHECK(w->node[i].memory_used <= w->node[i].memory_bytes);
	}
}

static void check_job(const struct world *w, const struct job *j)
{
	job_check(&j->core);
	CHECK(j->end == JOB_STATE_COUNT || j->end == j->core.state);
	CHECK(job_state_is_final(j->core.state) == (j->end != JOB_STATE_COUNT));
	CHECK(j->n_shares == (job_state_is_placed(j->core.state) ? j->ask.nodes : 0));
	for (uint32_t k = 0; k < j->n_shares; k++) {
		const struct sched_node *n = &w->node[j->share[k].node];

		CHECK(strcmp(n->cluster, w->node[j->share[0].node].cluster) == 0);
		for (uint32_t i = 0; i < k && !j->ask.many_per_node; i++)
			CHECK(j->share[i].node != j->share[k].node);
		if (j->ask.cache && j->ask.require_affinity && j->ask.pinned_cluster != NULL)
			CHECK(strcmp(n->cluster, j->ask.pinned_cluster) == 0);
	}
}

/* --- a second opinion on what fits --- */

static bool may_use(const struct sched_job *j, const struct sched_node *n)
{
	return !(j->cache && j->require_affinity && j->pinned_cluster != NULL) ||
	       strcmp(j->pinned_cluster, n->cluster) == 0;
}

static uint32_t room_on(const struct sched_node *n, const struct sched_job *j, bool idle)
{
	uint32_t cpu = n->cpu_milli - (idle ? 0 : n->cpu_milli_used), ranks = 0;
	uint64_t memory = n->memory_bytes - (idle ? 0 : n->memory_used);
	uint32_t gpus = n->gpus - (idle ? 0 : (uint32_t)__builtin_popcountll(n->gpus_used));

	if (!may_use(j, n) || (n->down && !idle))
		return 0;
	if (j->gpus > 0 && (n->gpu_type == NULL || strcmp(n->gpu_type, j->gpu_type) != 0))
		return 0;
	while (cpu >= j->cpu_milli && memory >= j->memory_bytes && gpus >= j->gpus) {
		cpu -= j->cpu_milli;
		memory -= j->memory_bytes;
		gpus -= j->gpus;
		if (++ranks == (j->many_per_node ? j->nodes : 1))
			break;
	}
	return ranks;
}

static bool fits(const struct world *w, const struct sched_job *j, bool idle)
{
	for (size_t c = 0; c < w->n_clusters; c++) {
		uint32_t ranks = 0;

		for (size_t i = 0; i < w->n_nodes; i++) {
			if (strcmp(w->node[i].cluster, w->cluster[c]) == 0)
				ranks += room_on(&w->node[i], j, idle);
		}
		if (ranks >= j->nodes)
			return true;
	}
	return false;
}

static bool goes_before(const struct sched_job *a, const struct sched_job *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->created_ms != b->created_ms)
		return a->created_ms < b->created_ms;
	return strcmp(a->id, b->id) < 0;
}

/* --- a run of the scheduler --- */

struct queue {
	struct sched_job ask[JOBS_MAX];
	struct sched_answer got[JOBS_MAX], again[JOBS_MAX];
	size_t job[JOBS_MAX], n;
};

static void check_line(struct world *w, const struct queue *q)
{
	size_t waiting = 0, first = SIZE_MAX;

	for (size_t i = 0; i < q->n; i++) {
		CHECK((q->got[i].verdict == SCHED_NEVER) == !fits(w, &q->ask[i], true));
		CHECK((q->got[i].verdict == SCHED_PLACED) == (q->got[i].shares != NULL));
		CHECK(q->got[i].verdict == SCHED_PLACED || q->got[i].reason[0] != '\0');
		waiting += q->got[i].verdict == SCHED_WAITS;
		if (q->got[i].verdict != SCHED_NEVER &&
		    (first == SIZE_MAX || goes_before(&q->ask[i], &q->ask[first])))
			first = i;
	}
	/* The first in line waits only for what is not there. */
	if (first != SIZE_MAX)
		CHECK((q->got[first].verdict == SCHED_PLACED) == fits(w, &q->ask[first], false));
	for (size_t i = 0; i < q->n; i++) {
		if (q->got[i].verdict != SCHED_WAITS)
			continue;
		CHECK(q->got[i].place >= 1 && q->got[i].place <= waiting);
		for (size_t k = 0; k < q->n; k++) {
			if (k != i && q->got[k].verdict == SCHED_WAITS)
				CHECK((q->got[k].place < q->got[i].place) ==
				      goes_before(&q->ask[k], &q->ask[i]));
			if (w->backfill || q->got[k].verdict != SCHED_PLACED ||
			    goes_before(&q->ask[k], &q->ask[i]))
				continue;
			/* What came behind took no node that this one could have used. */
			for (uint32_t s = 0; s < q->ask[k].nodes; s++)
				CHECK(room_on(&w->node[q->got[k].shares[s].node], &q->ask[i],
				              true) == 0);
		}
	}
}

/* The same facts in another order: a server that was started again. */
static void check_restart(struct world *w, struct arena *a, struct queue *q)
{
	struct sched_job *turned = ARENA_ARRAY(a, struct sched_job, q->n);

	for (size_t i = 0; i < q->n; i++)
		turned[i] = q->ask[q->n - 1 - i];
	sched_run(a, w->node, w->n_nodes, turned, q->n, w->backfill, q->again);
	for (size_t i = 0; i < q->n; i++) {
		const struct sched_answer *x = &q->got[i], *y = &q->again[q->n - 1 - i];

		CHECK(x->verdict == y->verdict && x->place == y->place);
		CHECK(strcmp(x->reason, y->reason) == 0);
		if (x->verdict == SCHED_PLACED)
			CHECK(memcmp(x->shares, y->shares, q->ask[i].nodes * sizeof(*x->shares)) ==
			      0);
	}
}

static void schedule(struct world *w, struct arena *a, struct queue *q)
{
	q->n = 0;
	for (size_t i = 0; i < w->n_jobs; i++) {
		if (w->job[i].core.state != JOB_PENDING)
			continue;
		q->job[q->n] = i;
		q->ask[q->n++] = w->job[i].ask;
	}
	sched_run(a, w->node, w->n_nodes, q->ask, q->n, w->backfill, q->got);
	check_line(w, q);
	if (one_in(w, 20))
		check_restart(w, a, q);
	for (size_t i = 0; i < q->n; i++) {
		struct job *j = &w->job[q->job[i]];

		if (q->got[i].verdict == SCHED_NEVER) {
			event(w, j, JOB_EV_EXIT_BAD);
			CHECK(j->core.state == JOB_DEPLOY_FAILED);
		} else if (q->got[i].verdict == SCHED_PLACED) {
			event(w, j, JOB_EV_PLACE);
			CHECK(j->core.state == JOB_CREATED);
			j->n_shares = j->ask.nodes;
			memcpy(j->share, q->got[i].shares, j->n_shares * sizeof(j->share[0]));
			for (uint32_t k = 0; k < j->n_shares; k++)
				CHECK(!w->node[j->share[k].node].down);
			w->placed++;
		}
	}
	arena_reset(a);
}

/* What the engine, the runners and people do. */
static void act(struct world *w)
{
	/* Ends and stops are rarer than progress. */
	static const enum job_event often[] = {
		JOB_EV_FREEZE,   JOB_EV_FREEZE, JOB_EV_FREEZE,  JOB_EV_READY,
		JOB_EV_READY,    JOB_EV_READY,  JOB_EV_EXIT_OK, JOB_EV_EXIT_OK,
		JOB_EV_EXIT_BAD, JOB_EV_RETRY,  JOB_EV_STOP,    JOB_EV_LOST,
	};
	struct job *j = w->n_jobs > 0 ? &w->job[below(w, (uint32_t)w->n_jobs)] : NULL;

	if (one_in(w, 12))
		arrive(w);
	if (one_in(w, 150))
		toggle_node(w);
	if (one_in(w, 200))
		w->now_ms += (int64_t)below(w, 7200000) - 3600000; /* also back */
	w->now_ms += below(w, 1000);
	if (j == NULL)
		return;
	if (one_in(w, 30) && j->core.state == JOB_PENDING)
		j->ask.priority = (int64_t)below(w, 7) - 3;
	/* A pending job is failed by the scheduler alone. */
	if (j->core.state == JOB_PENDING)
		event(w, j, one_in(w, 10) ? JOB_EV_STOP : JOB_EV_READY);
	else
		event(w, j, often[below(w, (uint32_t)COUNT(often))]);
}

/* No more arrivals, all nodes up, everything ends: then nobody may be left waiting. */
static void drain(struct world *w)
{
	static const enum job_event on[] = {JOB_EV_FREEZE, JOB_EV_READY, JOB_EV_EXIT_OK};

	for (size_t i = 0; i < w->n_nodes; i++)
		w->node[i].down = false;
	for (size_t i = 0; i < w->n_jobs; i++) {
		if (job_state_is_placed(w->job[i].core.state))
			event(w, &w->job[i], on[below(w, COUNT(on))]);
	}
}

static bool all_ended(const struct world *w)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		if (!job_state_is_final(w->job[i].core.state))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	AUTO_FREE struct world *w = xcalloc(1, sizeof(*w));
	AUTO_FREE struct queue *q = xcalloc(1, sizeof(*q));
	AUTO_ARENA struct arena *a = arena_new();
	uint64_t steps = STEPS;
	struct err err = {0};

	if (argc < 2 || argc > 3 || str_u64(str_of(argv[1]), 0, INT64_MAX, &w->seed, &err) < 0 ||
	    (argc == 3 && str_u64(str_of(argv[2]), 1, UINT32_MAX / 2, &steps, &err) < 0)) {
		(void)fprintf(stderr, "usage: sim SEED [STEPS]\n");
		return 2;
	}
	w->random = w->seed;
	w->now_ms = 1700000000000;
	w->backfill = one_in(w, 2);
	make_nodes(w);
	for (; w->step < steps + DRAIN && (w->step < steps || !all_ended(w)); w->step++) {
		if (w->step < steps)
			act(w);
		else
			drain(w);
		count_use(w);
		schedule(w, a, q);
		count_use(w);
		for (size_t i = 0; i < w->n_jobs; i++)
			check_job(w, &w->job[i]);
	}
	CHECK(all_ended(w));
	(void)printf("seed %" PRIu64
	             ": %zu nodes, %zu jobs, %u placed, %u ended, %u lost, %u steps\n",
	             w->seed, w->n_nodes, w->n_jobs, w->placed, w->ended, w->lost, w->step);
	return 0;
}
