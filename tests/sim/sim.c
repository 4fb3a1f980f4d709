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
	int64_t placed_ms, over_ms; /* over: its declared end; 0: none */
	enum job_state end;         /* the first final state; JOB_STATE_COUNT before */
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
	unsigned placed, ended, lost, overtook;
	/* The promise to the first in line: it holds until something happens that may break it. */
	const struct job *head;
	int64_t head_start; /* 0: unknown */
	bool disturbed;
};

static const char *const gpu_types[] = {"H100", "H200", "L4"};
static const char *const teams[] = {"a", "b", "c"};
static const char *const users[] = {"x", "y"};
#define WAIT_MS 600000 /* of undeclared jobs: so long they may overtake */

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
	w->disturbed = true;
	*j = (struct job){.core = {.attempt_max = 1 + below(w, 3)}, .end = JOB_STATE_COUNT};
	FMT(j->id, "j%zu", w->n_jobs++);
	j->ask = (struct sched_job){
		.id = j->id,
		.team = teams[below(w, COUNT(teams))],
		.user = users[below(w, COUNT(users))],
		.since_ms = w->now_ms,
		.duration_ms = one_in(w, 2) ? 0 : 1000 * (int64_t)(1 + below(w, 3600)),
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
	if (j->core.state == JOB_PENDING) { /* tried again: it has a turn by its age */
		j->ask.since_ms = w->now_ms;
		w->disturbed = true;
	}
	if (job_state_is_final(j->core.state)) {
		j->end = j->core.state;
		w->ended++;
	}
}

static void toggle_node(struct world *w)
{
	size_t at = below(w, (uint32_t)w->n_nodes);

	w->node[at].down = !w->node[at].down;
	w->disturbed = true;
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

/* --- a run of the scheduler --- */

struct queue {
	struct sched_job ask[JOBS_MAX];
	struct sched_answer got[JOBS_MAX], again[JOBS_MAX];
	size_t job[JOBS_MAX], line[JOBS_MAX], turn[JOBS_MAX],
		n; /* turn: the place of each in line */
	struct sched_held held[2 * JOBS_MAX * 8];
	struct sched_facts facts;
};

static void hold(struct queue *q, const struct sched_job *ask, const struct sched_share *share,
                 uint32_t n, int64_t placed_ms, int64_t end_ms)
{
	for (uint32_t k = 0; k < n; k++) {
		assert(q->facts.n_held < COUNT(q->held));
		q->held[q->facts.n_held++] = (struct sched_held){
			.node = share[k].node,
			.cpu_milli = ask->cpu_milli,
			.memory_bytes = ask->memory_bytes,
			.gpus = share[k].gpus,
			.placed_ms = placed_ms,
			.end_ms = end_ms,
			.team = ask->team,
			.user = ask->user,
		};
	}
}

/* What is held has entries of its own: nothing is in use beside them. */
static void clear_use(struct world *w)
{
	for (size_t i = 0; i < w->n_nodes; i++) {
		w->node[i].cpu_milli_used = 0;
		w->node[i].memory_used = 0;
		w->node[i].gpus_used = 0;
	}
}

static void set_facts(struct world *w, struct queue *q)
{
	q->facts = (struct sched_facts){
		.nodes = w->node,
		.n_nodes = w->n_nodes,
		.held = q->held,
		.now_ms = w->now_ms,
		.backfill = w->backfill,
		.backfill_wait_ms = WAIT_MS,
	};
	clear_use(w);
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct job *j = &w->job[i];

		hold(q, &j->ask, j->share, j->n_shares, j->placed_ms, j->over_ms);
	}
}

/* A second opinion on the order: nobody has a turn while one that used less waits. */
static void check_turns(struct world *w, const struct queue *q)
{
	double team[COUNT(teams)] = {0}, user[COUNT(teams)][COUNT(users)] = {0};
	const struct sched_facts *f = &q->facts;

	for (size_t i = 0; i < f->n_held + q->n; i++) {
		const struct sched_held *h = i < f->n_held ? &f->held[i] : NULL;
		const struct sched_job *j = h == NULL ? &q->ask[q->line[i - f->n_held]] : NULL;
		const char *in = h != NULL ? h->team : j->team, *by = h != NULL ? h->user : j->user;
		int64_t ms = SCHED_COST_MS;
		size_t t = 0, u = 0;

		while (strcmp(teams[t], in) != 0)
			t++;
		while (strcmp(users[u], by) != 0)
			u++;
		for (size_t k = i; h == NULL && k < f->n_held + q->n; k++) {
			const struct sched_job *other = &q->ask[q->line[k - f->n_held]];

			CHECK(other->priority <= j->priority);
			if (other->priority < j->priority)
				continue;
			for (size_t x = 0; x < COUNT(teams); x++)
				CHECK(strcmp(teams[x], other->team) != 0 || team[t] <= team[x]);
			for (size_t x = 0; x < COUNT(users); x++)
				CHECK(strcmp(other->team, j->team) != 0 ||
				      strcmp(users[x], other->user) != 0 ||
				      user[t][u] <= user[t][x]);
			CHECK(strcmp(other->team, j->team) != 0 ||
			      strcmp(other->user, j->user) != 0 ||
			      other->created_ms >= j->created_ms);
		}
		if (h != NULL && h->end_ms != 0)
			ms = MAX(h->end_ms - w->now_ms, (int64_t)0);
		else if (j != NULL && j->duration_ms > 0)
			ms = j->duration_ms;
		{
			double cost = (double)ms *
			              sched_share_of(f, h ? h->cpu_milli : j->cpu_milli,
			                             h ? h->memory_bytes : j->memory_bytes,
			                             h ? (uint32_t)__builtin_popcountll(h->gpus)
			                               : j->gpus) *
			              (h ? 1 : j->nodes);

			team[t] += cost;
			user[t][u] += cost;
		}
	}
}

/* When the first in line could start, by what runs alone; 0: nobody knows. */
static int64_t start_of_first(struct world *w, struct queue *q, const struct sched_job *j)
{
	int64_t at = w->now_ms;

	for (;;) {
		int64_t next = INT64_MAX;
		bool there;

		clear_use(w);
		for (size_t i = 0; i < q->facts.n_held; i++) {
			const struct sched_held *h = &q->held[i];
			struct sched_node *n = &w->node[h->node];
			int64_t end = h->end_ms == 0           ? INT64_MAX
			              : h->end_ms <= w->now_ms ? w->now_ms + SCHED_OVERDUE_MS
			                                       : h->end_ms;

			if (end <= at)
				continue;
			n->cpu_milli_used += h->cpu_milli;
			n->memory_used += h->memory_bytes;
			n->gpus_used |= h->gpus;
			next = MIN(next, end);
		}
		there = fits(w, j, false);
		clear_use(w);
		if (there || next == INT64_MAX)
			return there ? at : 0;
		at = next;
	}
}

static int64_t or_never(int64_t start)
{
	return start != 0 ? start : INT64_MAX;
}

/* Who starts now delays nobody that waits before it: with them running, the line up to that job
 * alone starts no later. */
static void check_promises(struct world *w, struct arena *a, struct queue *q)
{
	size_t up_to = q->n > 0 ? below(w, (uint32_t)q->n) : 0, n = 0;
	size_t held = q->facts.n_held, *line = ARENA_ARRAY(a, size_t, q->n + 1);

	for (size_t i = 0; i < q->n; i++) {
		size_t at = q->line[i];
		const struct sched_job *ask = &q->ask[at];

		if (q->got[at].verdict == SCHED_PLACED)
			hold(q, ask, q->got[at].shares, ask->nodes, w->now_ms,
			     ask->duration_ms > 0 ? w->now_ms + ask->duration_ms : 0);
		else if (i <= up_to)
			line[n++] = at;
		w->overtook += i > up_to && q->got[at].verdict == SCHED_PLACED;
	}
	sched_run(a, &q->facts, q->ask, line, n, q->again);
	for (size_t i = 0; i < n; i++) {
		const struct sched_answer *x = &q->got[line[i]], *y = &q->again[line[i]];

		CHECK(x->verdict == y->verdict);
		if (x->verdict == SCHED_WAITS)
			CHECK(or_never(y->start_ms) <= or_never(x->start_ms));
	}
	q->facts.n_held = held;
}

/* The first that waits: its start is what is there to be known, and stays, come what may behind. */
static void check_head(struct world *w, struct queue *q)
{
	const struct job *head = NULL;
	size_t held = q->facts.n_held;

	for (size_t i = 0; i < q->n && head == NULL; i++) {
		const struct sched_answer *x = &q->got[q->line[i]];
		const struct sched_job *ask = &q->ask[q->line[i]];

		if (x->verdict == SCHED_PLACED) {
			hold(q, ask, x->shares, ask->nodes, w->now_ms,
			     ask->duration_ms > 0 ? w->now_ms + ask->duration_ms : 0);
			w->disturbed = true; /* what others used since has put it ahead */
			continue;
		}
		if (x->verdict != SCHED_WAITS)
			continue;
		head = &w->job[q->job[q->line[i]]];
		CHECK(x->start_ms == start_of_first(w, q, ask));
		if (head == w->head && !w->disturbed && w->head_start != 0)
			CHECK(x->start_ms != 0 &&
			      (x->start_ms <= w->head_start || x->start_ms <= w->now_ms));
		w->head_start = x->start_ms;
	}
	w->head = head;
	w->disturbed = false;
	q->facts.n_held = held;
}

static void check_line(struct world *w, struct queue *q)
{
	size_t waiting = 0, first = SIZE_MAX;

	for (size_t i = 0; i < q->n; i++) {
		CHECK((q->got[i].verdict == SCHED_NEVER) == !fits(w, &q->ask[i], true));
		CHECK((q->got[i].verdict == SCHED_PLACED) == (q->got[i].shares != NULL));
		CHECK(q->got[i].verdict == SCHED_PLACED || q->got[i].reason[0] != '\0');
		CHECK(q->got[i].start_ms == 0 || q->got[i].verdict == SCHED_WAITS);
		waiting += q->got[i].verdict == SCHED_WAITS;
		if (q->got[i].verdict != SCHED_NEVER &&
		    (first == SIZE_MAX || q->turn[i] < q->turn[first]))
			first = i;
	}
	/* The first in line waits only for what is not there. */
	if (first != SIZE_MAX)
		CHECK((q->got[first].verdict == SCHED_PLACED) ==
		      (start_of_first(w, q, &q->ask[first]) == w->now_ms));
	for (size_t i = 0; i < q->n; i++) {
		if (q->got[i].verdict != SCHED_WAITS)
			continue;
		CHECK(q->got[i].place >= 1 && q->got[i].place <= waiting);
		for (size_t k = 0; k < q->n; k++) {
			if (k != i && q->got[k].verdict == SCHED_WAITS)
				CHECK((q->got[k].place < q->got[i].place) ==
				      (q->turn[k] < q->turn[i]));
			if (w->backfill || q->got[k].verdict != SCHED_PLACED ||
			    q->turn[k] < q->turn[i])
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
	size_t *line = ARENA_ARRAY(a, size_t, q->n);

	for (size_t i = 0; i < q->n; i++)
		turned[i] = q->ask[q->n - 1 - i];
	sched_line(a, &q->facts, turned, q->n, line);
	sched_run(a, &q->facts, turned, line, q->n, q->again);
	for (size_t i = 0; i < q->n; i++) {
		const struct sched_answer *x = &q->got[i], *y = &q->again[q->n - 1 - i];

		CHECK(x->verdict == y->verdict && x->place == y->place);
		CHECK(x->start_ms == y->start_ms);
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
	set_facts(w, q);
	sched_line(a, &q->facts, q->ask, q->n, q->line);
	for (size_t i = 0; i < q->n; i++)
		q->turn[q->line[i]] = i;
	check_turns(w, q);
	sched_run(a, &q->facts, q->ask, q->line, q->n, q->got);
	check_line(w, q);
	if (w->backfill) {
		check_head(w, q);
		check_promises(w, a, q);
	}
	if (one_in(w, 20)) {
		set_facts(w, q);
		check_restart(w, a, q);
	}
	for (size_t i = 0; i < q->n; i++) {
		struct job *j = &w->job[q->job[i]];

		if (q->got[i].verdict == SCHED_NEVER) {
			event(w, j, JOB_EV_EXIT_BAD);
			CHECK(j->core.state == JOB_DEPLOY_FAILED);
		} else if (q->got[i].verdict == SCHED_PLACED) {
			event(w, j, JOB_EV_PLACE);
			CHECK(j->core.state == JOB_CREATED);
			j->n_shares = j->ask.nodes;
			j->placed_ms = w->now_ms;
			j->over_ms = j->ask.duration_ms > 0 ? w->now_ms + j->ask.duration_ms : 0;
			memcpy(j->share, q->got[i].shares, j->n_shares * sizeof(j->share[0]));
			for (uint32_t k = 0; k < j->n_shares; k++)
				CHECK(!w->node[j->share[k].node].down);
			w->placed++;
		}
	}
	arena_reset(a);
}

/* Nothing runs longer than it declared. */
static void end_overdue(struct world *w)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		struct job *j = &w->job[i];

		if (job_state_is_placed(j->core.state) && j->over_ms != 0 &&
		    j->over_ms <= w->now_ms)
			event(w, j, JOB_EV_EXIT_BAD);
	}
}

/* What the engine, the runners and people do. */
static void act(struct world *w)
{
	/* Ends and stops are rarer than progress. */
	static const enum job_event often[] = {
		JOB_EV_RESOLVE,  JOB_EV_RESOLVE, JOB_EV_RESOLVE, JOB_EV_READY,
		JOB_EV_READY,    JOB_EV_READY,   JOB_EV_EXIT_OK, JOB_EV_EXIT_OK,
		JOB_EV_EXIT_BAD, JOB_EV_RETRY,   JOB_EV_STOP,    JOB_EV_LOST,
	};
	struct job *j = w->n_jobs > 0 ? &w->job[below(w, (uint32_t)w->n_jobs)] : NULL;

	if (one_in(w, 12))
		arrive(w);
	if (one_in(w, 150))
		toggle_node(w);
	if (one_in(w, 200)) {
		w->now_ms += (int64_t)below(w, 7200000) - 3600000; /* also back */
		w->disturbed = true;
	}
	w->now_ms += below(w, 1000);
	end_overdue(w);
	if (j == NULL)
		return;
	if (one_in(w, 30) && j->core.state == JOB_PENDING)
		j->ask.priority = (int64_t)below(w, 7) - 3, w->disturbed = true;
	/* A pending job is failed by the scheduler alone. */
	if (j->core.state == JOB_PENDING)
		event(w, j, one_in(w, 10) ? JOB_EV_STOP : JOB_EV_READY);
	else
		event(w, j, often[below(w, (uint32_t)COUNT(often))]);
}

/* No more arrivals, all nodes up, everything ends: then nobody may be left waiting. */
static void drain(struct world *w)
{
	static const enum job_event on[] = {JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_EXIT_OK};

	for (size_t i = 0; i < w->n_nodes; i++)
		w->node[i].down = false;
	for (size_t i = 0; i < w->n_jobs; i++) {
		if (job_state_is_placed(w->job[i].core.state))
			event(w, &w->job[i], on[below(w, COUNT(on))]);
	}
	w->disturbed = true;
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
	w->backfill = !one_in(w, 4);
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
	             ": %zu nodes, %zu jobs, %u placed, %u overtook, %u ended, %u lost, %u steps\n",
	             w->seed, w->n_nodes, w->n_jobs, w->placed, w->overtook, w->ended, w->lost,
	             w->step);
	return 0;
}
