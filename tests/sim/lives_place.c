/* lives_place.c - placement alone, over as many nodes as there may be: a long line of jobs that is
 * drained in passes. What runs is checked after each of them. */
#include "lives.h"

#include "core/sched.h"

#define CLUSTERS 4
#define NODE_GPUS 8
#define PASSES 5

struct site {
	struct world *w; /* for CHECK and chance */
	struct sched_node node[SCHED_NODES_MAX];
	char name[SCHED_NODES_MAX][12], cluster[CLUSTERS][8];
	size_t n_nodes;
	struct sched_job *job; /* that wait; a job's id is in `ids` */
	struct sched_held *held;
	size_t n_jobs, n_held, held_cap;
	unsigned placed, never;
	int64_t now_ms;
};

static void site_nodes(struct site *s)
{
	for (size_t c = 0; c < CLUSTERS; c++)
		FMT(s->cluster[c], "c%zu", c);
	for (size_t i = 0; i < s->n_nodes; i++) {
		FMT(s->name[i], "n%zu", i);
		s->node[i] = (struct sched_node){
			.name = s->name[i],
			.cluster = s->cluster[i * CLUSTERS / s->n_nodes],
			.cpu_milli = NODE_CPUS * 1000,
			.memory_bytes = NODE_GIB * GIB,
			.gpu_type = i % 2 == 0 ? "H100" : NULL,
			.gpus = i % 2 == 0 ? NODE_GPUS : 0,
		};
	}
}

static void site_jobs(struct site *s, struct arena *a, uint32_t n)
{
	static const char *const teams[] = {"a", "b", "c"}, *const users[] = {"x", "y", "z"};

	s->job = ARENA_ARRAY(a, struct sched_job, n);
	s->n_jobs = n;
	for (uint32_t i = 0; i < n; i++) {
		bool gpus = one_in(s->w, 2);

		s->job[i] = (struct sched_job){
			.id = arena_printf(a, "j%06u", i),
			.team = teams[below(s->w, COUNT(teams))],
			.user = users[below(s->w, COUNT(users))],
			.priority = below(s->w, 3),
			.created_ms = s->now_ms + i,
			.since_ms = s->now_ms,
			.duration_ms = one_in(s->w, 4) ? 0 : 600000 * (1 + below(s->w, 3)),
			.nodes = one_in(s->w, 8) ? 1U << below(s->w, 5) : 1,
			.cpu_milli = 1000U << below(s->w, 5),
			.memory_bytes = GIB << below(s->w, 6),
			.gpus = gpus ? 1U << below(s->w, 4) : 0,
			.gpu_type = gpus ? "H100" : NULL,
			.project = "p",
		};
	}
}

static void site_check(const struct site *s)
{
	static uint64_t gpus[SCHED_NODES_MAX], memory[SCHED_NODES_MAX];
	static uint32_t cpu[SCHED_NODES_MAX];
	const struct world *w = s->w;

	memset(gpus, 0, sizeof(gpus));
	memset(memory, 0, sizeof(memory));
	memset(cpu, 0, sizeof(cpu));
	for (size_t i = 0; i < s->n_held; i++) {
		const struct sched_held *h = &s->held[i];

		CHECK((gpus[h->node] & h->gpus) == 0, "a GPU of node %zu is given twice", h->node);
		CHECK(h->gpus >> s->node[h->node].gpus == 0, "no such GPU of node %zu", h->node);
		gpus[h->node] |= h->gpus;
		cpu[h->node] += h->cpu_milli;
		memory[h->node] += h->memory_bytes;
	}
	for (size_t i = 0; i < s->n_nodes; i++)
		CHECK(cpu[i] <= s->node[i].cpu_milli && memory[i] <= s->node[i].memory_bytes,
		      "node %zu is given more than it has", i);
}

static void take(struct site *s, const struct sched_job *j, const struct sched_answer *x)
{
	const struct world *w = s->w;

	for (uint32_t k = 0; k < j->nodes; k++) {
		CHECK(strcmp(s->node[x->shares[k].node].cluster,
		             s->node[x->shares[0].node].cluster) == 0,
		      "%s is on two clusters", j->id);
		for (uint32_t i = 0; i < k; i++)
			CHECK(x->shares[i].node != x->shares[k].node, "%s twice on a node", j->id);
		CHECK(s->n_held < s->held_cap, "more runs than fits");
		s->held[s->n_held++] = (struct sched_held){
			.node = x->shares[k].node,
			.cpu_milli = j->cpu_milli,
			.memory_bytes = j->memory_bytes,
			.gpus = x->shares[k].gpus,
			.placed_ms = s->now_ms,
			.end_ms = j->duration_ms > 0 ? s->now_ms + j->duration_ms : 0,
			.team = j->team,
			.user = j->user,
		};
	}
	s->placed++;
}

/* What runs ends when it said, or at some time. */
static void site_end(struct site *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n_held; i++) {
		const struct sched_held *h = &s->held[i];

		if (h->end_ms != 0 ? h->end_ms > s->now_ms : !one_in(s->w, 3))
			s->held[kept++] = *h;
	}
	s->n_held = kept;
}

static void site_pass(struct site *s, struct arena *a)
{
	struct sched_facts f = {
		.nodes = s->node,
		.n_nodes = s->n_nodes,
		.held = s->held,
		.n_held = s->n_held,
		.now_ms = s->now_ms,
		.backfill = true,
		.backfill_wait_ms = 3600 * 1000,
	};
	struct sched_answer *x = ARENA_ARRAY(a, struct sched_answer, s->n_jobs);
	size_t *line = ARENA_ARRAY(a, size_t, s->n_jobs), kept = 0;
	int64_t since = real_us();

	sched_line(a, &f, s->job, s->n_jobs, line);
	sched_run(a, &f, s->job, line, s->n_jobs, x);
	world_sample(s->w, COST_PASS, since);
	for (size_t i = 0; i < s->n_jobs; i++) {
		if (x[i].verdict == SCHED_PLACED)
			take(s, &s->job[i], &x[i]);
		else if (x[i].verdict == SCHED_NEVER)
			s->never++;
		else
			s->job[kept++] = s->job[i];
	}
	s->n_jobs = kept;
}

void place_nodes(uint64_t seed, uint32_t nodes, uint32_t jobs)
{
	AUTO_FREE struct world *w = xcalloc(1, sizeof(*w));
	AUTO_FREE struct site *s = xcalloc(1, sizeof(*s));
	AUTO_ARENA struct arena *all = arena_new(), *a = arena_new();
	float first = 0, most = 0;
	unsigned passes = 0;

	w->seed = w->random = seed;
	*s = (struct site){.w = w, .n_nodes = MIN(nodes, (uint32_t)SCHED_NODES_MAX)};
	s->now_ms = 1700000000000;
	s->held_cap = s->n_nodes * NODE_CPUS;
	s->held = ARENA_ARRAY(all, struct sched_held, s->held_cap);
	site_nodes(s);
	site_jobs(s, all, jobs);
	for (; passes < PASSES && s->n_jobs > 0; passes++) {
		site_pass(s, a);
		site_check(s);
		s->now_ms += 60000 + below(w, 600000);
		site_end(s);
		arena_reset(a);
	}
	for (unsigned i = 0; i < passes; i++)
		most = MAX(most, w->sample[COST_PASS][i].us);
	first = passes > 0 ? w->sample[COST_PASS][0].us : 0;
	(void)printf("placement alone: seed %" PRIu64
	             ", %zu nodes, %u jobs: first pass %.1f ms, most "
	             "%.1f ms; in %u passes %u placed, %u never fit, %zu wait\n",
	             seed, s->n_nodes, jobs, (double)first / 1000, (double)most / 1000, passes,
	             s->placed, s->never, s->n_jobs);
}
