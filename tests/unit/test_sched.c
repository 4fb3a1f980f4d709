/* test_sched.c - who starts, who waits and for what, who never will. */
#include "unit.h"

#include "core/sched.h"

#define GIB (UINT64_C(1) << 30)

/* clang-format off */
static const struct sched_node local[] = {
	{.name = "n0", .cluster = "local", .cpu_milli = 16000, .memory_bytes = 64 * GIB,
	 .gpu_type = "H200", .gpus = 8, .gpus_used = 0xf},
};
static const char *const workshop_types[] = {"H100", "L4", "H100", "", "L4"};
static const struct sched_node workshop[] = {
	{.name = "w0", .cluster = "local", .cpu_milli = 16000, .memory_bytes = 64 * GIB,
	 .gpu_type = "H100", .gpu_types = workshop_types, .gpus = 5, .gpus_used = 0x1},
};
static const struct sched_node rack[] = {
	{.name = "a0", .cluster = "a", .cpu_milli = 8000, .memory_bytes = 32 * GIB, .gpu_type = "H100", .gpus = 4},
	{.name = "a1", .cluster = "a", .cpu_milli = 8000, .memory_bytes = 32 * GIB, .gpu_type = "H100", .gpus = 4},
	{.name = "a2", .cluster = "a", .cpu_milli = 8000, .memory_bytes = 32 * GIB},
	{.name = "b0", .cluster = "b", .cpu_milli = 4000, .memory_bytes = 16 * GIB, .gpu_type = "L4", .gpus = 2},
	{.name = "b1", .cluster = "b", .cpu_milli = 4000, .memory_bytes = 16 * GIB, .gpu_type = "L4", .gpus = 2, .down = true},
};

#define JOB(i, n, cpu, mem) .id = (i), .nodes = (n), .cpu_milli = (cpu), .memory_bytes = (mem), .project = "p"

/* One job alone. */
static const struct {
	const char *name;
	const struct sched_node *nodes;
	size_t n;
	struct sched_job job;
	enum sched_verdict want;
	const char *reason;
} rows[] = {
	{"no node at all", NULL, 0, {JOB("j", 1, 1000, GIB)}, SCHED_WAITS, "no node is up"},
	{"memory", local, 1, {JOB("j", 1, 1000, 100 * GIB)}, SCHED_NEVER,
	 "asks for 100 GiB of memory per node; the largest node has 64 GiB"},
	{"fraction", local, 1, {JOB("j", 1, 1000, 64 * GIB + GIB / 2)}, SCHED_NEVER,
	 "asks for 64.5 GiB of memory per node; the largest node has 64 GiB"},
	{"cores", local, 1, {JOB("j", 1, 16500, GIB)}, SCHED_NEVER,
	 "asks for 16.5 CPUs per node; the largest node has 16"},
	{"GPU type", rack, 5, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H200"}, SCHED_NEVER,
	 "asks for 1 x H200 per node; there are H100, L4"},
	{"no GPUs", rack + 2, 1, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H200"}, SCHED_NEVER,
	 "this machine has no GPUs"},
	{"no GPUs, and a cache", rack + 2, 1, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H100", .cache = true,
	 .require_affinity = true, .pinned_cluster = "a"}, SCHED_NEVER, "asks for 1 x H100; this machine has no GPUs"},
	{"GPU count", rack, 5, {JOB("j", 1, 1000, GIB), .gpus = 8, .gpu_type = "H100"}, SCHED_NEVER,
	 "asks for 8 x H100 per node; the largest node has 4"},
	{"nodes", rack, 5, {JOB("j", 3, 1000, GIB), .gpus = 1, .gpu_type = "H100"}, SCHED_NEVER,
	 "asks for 3 nodes; the largest cluster is large enough for 2"},
	{"clusters do not mix", rack, 5, {JOB("j", 4, 1000, GIB)}, SCHED_NEVER, "asks for 4 nodes"},
	{"ranks on one node", local, 1, {JOB("j", 9, 1000, GIB), .gpus = 1, .gpu_type = "H200", .many_per_node = true},
	 SCHED_NEVER, "asks for 9 nodes; there is room for 8"},
	{"affinity", rack, 5, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H100", .cache = true, .require_affinity = true,
	 .pinned_cluster = "b"}, SCHED_NEVER,
	 "the cache of project \"p\" is on cluster \"b\" (L4), which cannot hold this job (1 x H100)"},
	{"affinity to what is gone", rack, 5, {JOB("j", 1, 1000, GIB), .cache = true, .require_affinity = true, .pinned_cluster = "c"},
	 SCHED_NEVER, "cluster \"c\" (no GPUs)"},
	{"GPUs in use", local, 1, {JOB("j", 1, 1000, GIB), .gpus = 6, .gpu_type = "H200"}, SCHED_WAITS,
	 "waits for 6 x H200 (4 free of 8), 1st in line"},
	{"node down", rack, 5, {JOB("j", 2, 1000, GIB), .gpus = 1, .gpu_type = "L4"}, SCHED_WAITS,
	 "waits for node \"b1\", which is down, 1st in line"},
	{"no affinity, elsewhere", rack, 5, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H100", .cache = true,
	 .pinned_cluster = "b"}, SCHED_PLACED, ""},
	{"gang on one node", local, 1, {JOB("j", 4, 1000, GIB), .gpus = 1, .gpu_type = "H200", .many_per_node = true},
	 SCHED_PLACED, ""},
	{"GPUs of two types", workshop, 1, {JOB("j", 1, 1000, GIB), .gpus = 3, .gpu_type = "L4"}, SCHED_NEVER,
	 "asks for 3 x L4 per node; the largest node has 2"},
	{"neither of them", workshop, 1, {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "A100"}, SCHED_NEVER,
	 "asks for 1 x A100; this machine has H100, L4"},
	{"one of them in use", workshop, 1, {JOB("j", 1, 1000, GIB), .gpus = 2, .gpu_type = "H100"}, SCHED_WAITS,
	 "waits for 2 x H100 (1 free of 2), 1st in line"},
	{"the other free", workshop, 1, {JOB("j", 1, 1000, GIB), .gpus = 2, .gpu_type = "L4"}, SCHED_PLACED, ""},
	{"gang on two", rack, 5, {JOB("j", 2, 1000, GIB), .gpus = 4, .gpu_type = "H100"}, SCHED_PLACED, ""},
};
/* clang-format on */

#define NOW 1000000

/* Line and answers of a run over these facts. */
static void run_facts(struct arena *a, const struct sched_facts *f, const struct sched_job *jobs,
                      size_t n, struct sched_answer *got)
{
	size_t *line = ARENA_ARRAY(a, size_t, n);

	sched_line(a, f, jobs, n, line);
	sched_run(a, f, jobs, line, n, got);
}

static void run(struct arena *a, const struct sched_node *nodes, size_t n_nodes,
                const struct sched_job *jobs, size_t n, bool backfill, struct sched_answer *got)
{
	struct sched_facts f = {.nodes = nodes,
	                        .n_nodes = n_nodes,
	                        .now_ms = NOW,
	                        .backfill = backfill,
	                        .backfill_wait_ms = 1000};

	run_facts(a, &f, jobs, n, got);
}

static void sched_one_job(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct sched_answer got = {0};
		char reason[SCHED_REASON];
		enum sched_verdict fits =
			sched_fits(rows[i].nodes, rows[i].n, &rows[i].job, reason);

		run(a, rows[i].nodes, rows[i].n, &rows[i].job, 1, false, &got);
		if (got.verdict != rows[i].want || strstr(got.reason, rows[i].reason) == NULL)
			fail_msg("row \"%s\": %d: %s", rows[i].name, (int)got.verdict, got.reason);
		assert_row((fits == SCHED_NEVER) == (got.verdict == SCHED_NEVER), rows[i].name);
	}
}

static void sched_gives_gpus(void **state UNUSED)
{
	struct sched_job job = {JOB("j", 1, 1000, GIB), .gpus = 1, .gpu_type = "H200",
	                        .many_per_node = true};
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_answer got;

	job.nodes = 3;
	run(a, local, 1, &job, 1, false, &got);
	assert_int_equal(got.verdict, SCHED_PLACED);
	assert_int_equal(got.shares[0].gpus, 0x10);
	assert_int_equal(got.shares[1].gpus, 0x20);
	assert_int_equal(got.shares[2].gpus, 0x40);
	job.nodes = 1;
	job.gpus = 2;
	job.gpu_type = "L4";
	run(a, workshop, 1, &job, 1, false, &got);
	assert_int_equal(got.verdict, SCHED_PLACED);
	assert_int_equal(got.shares[0].gpus, 0x12); /* those of the type alone */
}

static void sched_counts_gpus(void **state UNUSED)
{
	struct sched_gpus kind[SCHED_KINDS_MAX];

	assert_int_equal(sched_gpu_kinds(&workshop[0], kind), 2);
	assert_string_equal(kind[0].type, "H100");
	assert_int_equal(kind[0].count, 2);
	assert_string_equal(kind[1].type, "L4");
	assert_int_equal(kind[1].count, 2);
	assert_int_equal(sched_gpu_kinds(&rack[0], kind), 1);
	assert_int_equal(kind[0].count, 4);
	assert_int_equal(sched_gpu_kinds(&rack[2], kind), 0);
}

/* Jobs without GPUs keep off the nodes with some; a cold cache is said. */
static void sched_chooses(void **state UNUSED)
{
	struct sched_job job = {JOB("j", 1, 1000, GIB)};
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_answer got;

	run(a, rack, 5, &job, 1, false, &got);
	assert_int_equal(got.shares[0].node, 2);
	assert_false(got.cold_cache);
	job.cache = true;
	job.pinned_cluster = "b";
	run(a, rack, 5, &job, 1, false, &got);
	assert_int_equal(got.shares[0].node, 3);
	assert_false(got.cold_cache);
	job.gpus = 1;
	job.gpu_type = "H100";
	run(a, rack, 5, &job, 1, false, &got);
	assert_int_equal(got.shares[0].node, 0);
	assert_true(got.cold_cache);
	job.pinned_cluster = "a";
	job.gpu_type = "L4";
	job.require_affinity = true;
	run(a, rack, 5, &job, 1, false, &got);
	assert_int_equal(got.verdict, SCHED_NEVER);
}

/* clang-format off */
static const struct sched_job line[] = {
	{JOB("young", 1, 1000, GIB), .created_ms = 3, .gpus = 1, .gpu_type = "H200"},
	{JOB("big", 1, 1000, GIB), .created_ms = 2, .gpus = 8, .gpu_type = "H200"},
	{JOB("old", 1, 1000, GIB), .created_ms = 1, .gpus = 3, .gpu_type = "H200"},
	{JOB("urgent", 1, 1000, GIB), .created_ms = 9, .priority = 5, .gpus = 1, .gpu_type = "H200"},
	{JOB("never", 1, 1000, GIB), .created_ms = 0, .gpus = 9, .gpu_type = "H200"},
};
/* clang-format on */

static void sched_order(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_answer got[COUNT(line)];

	run(a, local, 1, line, COUNT(line), false, got);
	assert_int_equal(got[3].verdict, SCHED_PLACED); /* urgent: 1 of 4 */
	assert_int_equal(got[2].verdict, SCHED_PLACED); /* old: the other 3 */
	assert_int_equal(got[1].verdict, SCHED_WAITS);
	assert_int_equal(got[1].place, 1);
	assert_int_equal(got[0].place, 2);
	assert_string_equal(got[0].reason, "waits for 1 x H200 (0 free of 8), 2nd in line");
	assert_int_equal(got[4].verdict, SCHED_NEVER);
	assert_int_equal(got[4].place, 0);
}

/* Without backfill nothing overtakes on the nodes that the one ahead could use; others are free. */
static void sched_without_backfill(void **state UNUSED)
{
	/* clang-format off */
	static const struct sched_job queue[] = {
		{JOB("1", 2, 1000, GIB), .created_ms = 1, .gpus = 2, .gpu_type = "L4"},
		{JOB("2", 1, 1000, GIB), .created_ms = 2, .gpus = 1, .gpu_type = "L4", .duration_ms = 1000},
		{JOB("3", 1, 1000, GIB), .created_ms = 3, .gpus = 1, .gpu_type = "H100"},
	};
	/* clang-format on */
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_answer got[COUNT(queue)];

	run(a, rack, 5, queue, COUNT(queue), false, got);
	assert_int_equal(got[0].verdict, SCHED_WAITS);
	assert_int_equal(got[1].verdict, SCHED_WAITS);
	assert_string_equal(got[1].reason, "waits for the jobs ahead of it, 2nd in line");
	assert_int_equal(got[2].verdict, SCHED_PLACED);
	run(a, rack, 5, queue, COUNT(queue), true, got);
	assert_int_equal(got[1].verdict, SCHED_PLACED);
}

/* On a machine of 4 CPUs `held` runs; "wide" waits for `wide` CPUs; is "behind" let past it? */
static const struct {
	const char *name;
	struct sched_held held[2]; /* of no CPUs: none */
	uint32_t wide;
	int64_t wide_since; /* how long it waits */
	struct sched_job behind;
	bool passes;
	int64_t start; /* of "wide", from now; 0: unknown */
} overtaking[] = {
	{"ends in time",
         {{.cpu_milli = 3000, .end_ms = NOW + 500000}},
         2000,
         0,
         {JOB("b", 1, 1000, GIB), .duration_ms = 500000},
         true,
         500000},
	{"ends too late",
         {{.cpu_milli = 3000, .end_ms = NOW + 500000}},
         4000,
         0,
         {JOB("b", 1, 1000, GIB), .duration_ms = 500001},
         false,
         500000},
	{"declares nothing",
         {{.cpu_milli = 3000, .end_ms = NOW + 500000}},
         4000,
         0,
         {JOB("b", 1, 1000, GIB)},
         false,
         500000},
	{"has room beside it",
         {{.cpu_milli = 3000, .end_ms = NOW + 500000}},
         3000,
         0,
         {JOB("b", 1, 1000, GIB)},
         true,
         500000},
	{"after the longer of two",
         {{.cpu_milli = 2000, .end_ms = NOW + 500000}, {.cpu_milli = 1000, .end_ms = NOW + 900000}},
         4000,
         0,
         {JOB("b", 1, 1000, GIB), .duration_ms = 900000},
         true,
         900000},
	{"what is overdue ends soon",
         {{.cpu_milli = 3000, .end_ms = NOW - 1}},
         4000,
         0,
         {JOB("b", 1, 1000, GIB), .duration_ms = 900000},
         false,
         SCHED_OVERDUE_MS},
	{"nobody knows, and it has not waited long",
         {{.cpu_milli = 3000, .placed_ms = 1}},
         4000,
         999,
         {JOB("b", 1, 1000, GIB)},
         true,
         0},
	{"nobody knows, and it has waited",
         {{.cpu_milli = 3000, .placed_ms = 1}},
         4000,
         1000,
         {JOB("b", 1, 1000, GIB)},
         false,
         0},
	{"a declared end passes all the same",
         {{.cpu_milli = 3000, .placed_ms = 1}},
         4000,
         1000,
         {JOB("b", 1, 1000, GIB), .duration_ms = 900000},
         true,
         0},
	{"beside it",
         {{.cpu_milli = 3000, .placed_ms = 1}},
         3000,
         1000,
         {JOB("b", 1, 1000, GIB)},
         true,
         0},
	{"beside it and another that overtook",
         {{.cpu_milli = 2000, .placed_ms = 1}, {.cpu_milli = 1000, .placed_ms = NOW - 1}},
         3000,
         1000,
         {JOB("b", 1, 1000, GIB)},
         false,
         0},
};

static void sched_overtaking(void **state UNUSED)
{
	static const struct sched_node four = {
		.name = "n", .cluster = "local", .cpu_milli = 4000, .memory_bytes = 64 * GIB};

	for (size_t i = 0; i < COUNT(overtaking); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct sched_facts f = {.nodes = &four,
		                        .n_nodes = 1,
		                        .held = overtaking[i].held,
		                        .n_held = 1 + (overtaking[i].held[1].cpu_milli > 0),
		                        .now_ms = NOW,
		                        .backfill = true,
		                        .backfill_wait_ms = 1000};
		struct sched_job jobs[] = {{JOB("wide", 1, overtaking[i].wide, GIB),
		                            .since_ms = NOW - overtaking[i].wide_since},
		                           overtaking[i].behind};
		struct sched_answer got[2];
		int64_t start;

		jobs[1].created_ms = 1;
		run_facts(a, &f, jobs, 2, got);
		assert_row(got[0].verdict == SCHED_WAITS, overtaking[i].name);
		start = got[0].start_ms != 0 ? got[0].start_ms - NOW : 0;
		assert_row(start == overtaking[i].start, overtaking[i].name);
		assert_row((got[1].verdict == SCHED_PLACED) == overtaking[i].passes,
		           overtaking[i].name);
	}
}

/* A promise is kept by GPU and by node, not by number alone. */
static void sched_promises_gpus(void **state UNUSED)
{
	/* clang-format off */
	static const struct sched_held held[] = {
		{.node = 0, .gpus = 0x3, .end_ms = NOW + 1000},
		{.node = 1, .gpus = 0xf, .end_ms = NOW + 5000},
	};
	static const struct sched_job queue[] = {
		{JOB("gang", 2, 1000, GIB), .created_ms = 1, .gpus = 4, .gpu_type = "H100", .duration_ms = 9000},
		{JOB("short", 1, 1000, GIB), .created_ms = 2, .gpus = 2, .gpu_type = "H100", .duration_ms = 5000},
		{JOB("long", 1, 1000, GIB), .created_ms = 3, .gpus = 2, .gpu_type = "H100", .duration_ms = 5001},
	};
	/* clang-format on */
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_facts f = {.nodes = rack,
	                        .n_nodes = 5,
	                        .held = held,
	                        .n_held = COUNT(held),
	                        .now_ms = NOW,
	                        .backfill = true};
	struct sched_answer got[COUNT(queue)];

	run_facts(a, &f, queue, COUNT(queue), got);
	assert_int_equal(got[0].start_ms, NOW + 5000);
	assert_int_equal(got[1].verdict, SCHED_PLACED);
	assert_int_equal(got[1].shares[0].node, 0);
	assert_int_equal(got[1].shares[0].gpus, 0xc);
	assert_int_equal(got[2].verdict, SCHED_WAITS);
	assert_int_equal(got[2].start_ms,
	                 NOW + 5000 + 9000); /* not in the gap, which it does not fit */
}

/* The order of ids that comes out of a line. */
static void assert_line(const struct sched_facts *f, const struct sched_job *jobs, size_t n,
                        const char *want)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf got = BUF_INIT(1000);
	size_t *turn = ARENA_ARRAY(a, size_t, n);

	sched_line(a, f, jobs, n, turn);
	for (size_t i = 0; i < n; i++)
		buf_printf(&got, "%s%s", i > 0 ? " " : "", jobs[turn[i]].id);
	assert_string_equal(buf_cstr(&got), want);
}

#define OF(t, u, i, when) JOB(i, 1, 4000, GIB), .team = (t), .user = (u), .created_ms = (when)

static void sched_shares_fairly(void **state UNUSED)
{
	/* clang-format off */
	static const struct sched_job jobs[] = {
		{OF("a", "ann", "a1", 1)}, {OF("a", "ann", "a2", 2)}, {OF("a", "ann", "a3", 3)},
		{OF("a", "bob", "b1", 4)}, {OF("a", "bob", "b2", 5)},
		{OF("z", "zoe", "z1", 6)}, {OF("z", "zoe", "z2", 7)},
		{OF("a", "ann", "first", 8), .priority = 1},
		{OF("z", "zoe", "last", 0), .priority = -1},
	};
	/* clang-format on */
	static const struct sched_used used[] = {{"z", "zoe", 1e12}, {"a", "ann", 1}};
	static const struct sched_held held[] = {
		{.gpus = 0x1, .team = "a", .user = "bob", .placed_ms = 1}};
	struct sched_facts f = {.nodes = local, .n_nodes = 1, .now_ms = NOW};

	/* ann's "first" counts: then z, then bob, who has had nothing yet */
	assert_line(&f, jobs, COUNT(jobs), "first z1 b1 z2 a1 b2 a2 a3 last");
	f.used = used;
	f.n_used = COUNT(used);
	assert_line(&f, jobs, COUNT(jobs), "first b1 b2 a1 a2 a3 z1 z2 last");
	f.n_used = 0;
	f.held = held;
	f.n_held = 1; /* bob's: an eighth of the GPUs, half of what each job asks for */
	assert_line(&f, jobs, COUNT(jobs), "first z1 z2 b1 a1 b2 a2 a3 last");
	f.n_nodes = 0; /* no machine, no shares: by age */
	assert_line(&f, jobs, COUNT(jobs), "first a1 a2 a3 b1 b2 z1 z2 last");
}

/* One who pushes a thousand jobs holds nobody else up. */
static void sched_is_not_flooded(void **state UNUSED)
{
	static struct sched_job jobs[1001];
	static char id[1001][8];
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_facts f = {.nodes = local, .n_nodes = 1, .now_ms = NOW};
	size_t turn[COUNT(jobs)];

	for (size_t i = 0; i < COUNT(jobs); i++) {
		FMT(id[i], "j%zu", i);
		jobs[i] = (struct sched_job){OF("flood", "mallory", id[i], (int64_t)i)};
	}
	jobs[1000].team = "other";
	jobs[1000].user = "ann";
	sched_line(a, &f, jobs, COUNT(jobs), turn);
	assert_int_equal(turn[1], 1000);
}

/* The same facts in another order give the same answers. */
static void sched_is_stable(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_answer one[COUNT(line)], two[COUNT(line)];
	struct sched_job turned[COUNT(line)];

	for (size_t i = 0; i < COUNT(line); i++)
		turned[i] = line[COUNT(line) - 1 - i];
	run(a, local, 1, line, COUNT(line), true, one);
	run(a, local, 1, turned, COUNT(line), true, two);
	for (size_t i = 0; i < COUNT(line); i++) {
		assert_int_equal(one[i].verdict, two[COUNT(line) - 1 - i].verdict);
		assert_string_equal(one[i].reason, two[COUNT(line) - 1 - i].reason);
	}
}

/* Of a long line each job is told its start, the last one too: looking for it does not cost the
 * length squared. Other kinds of jobs in between fill what is left. */
static void sched_tells_a_long_line(void **state UNUSED)
{
	enum { N = 20000, MINUTE = 60000 };
	AUTO_ARENA struct arena *a = arena_new();
	struct sched_job *jobs = ARENA_ARRAY(a, struct sched_job, N);
	struct sched_answer *got = ARENA_ARRAY(a, struct sched_answer, N);

	for (size_t i = 0; i < N; i++) {
		uint32_t cpus = i % 2 == 0 ? 6000 : 2000;

		jobs[i] = (struct sched_job){JOB(arena_printf(a, "j%05zu", i), 1, cpus, GIB),
		                             .created_ms = (int64_t)i, .duration_ms = MINUTE};
	}
	run(a, rack + 2, 1, jobs, N, true, got);
	for (size_t i = 0; i < N; i++) {
		int64_t start = NOW + (int64_t)(i / 2) * MINUTE;

		if (i < 2)
			assert_int_equal(got[i].verdict, SCHED_PLACED);
		else
			assert_int_equal(got[i].start_ms, start);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sched_one_job),       cmocka_unit_test(sched_gives_gpus),
	cmocka_unit_test(sched_counts_gpus),   cmocka_unit_test(sched_chooses),
	cmocka_unit_test(sched_order),         cmocka_unit_test(sched_without_backfill),
	cmocka_unit_test(sched_overtaking),    cmocka_unit_test(sched_promises_gpus),
	cmocka_unit_test(sched_shares_fairly), cmocka_unit_test(sched_is_not_flooded),
	cmocka_unit_test(sched_is_stable),     cmocka_unit_test(sched_tells_a_long_line),
};
UNIT_MAIN(tests)
