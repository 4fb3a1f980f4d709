/*
 * test_joblog_store.c - logs in a store, for servers that come and go: every line once, in order
 * and in few objects, whatever an earlier server stores late.
 */
#include "joblog_store_fixture.h"

#include <pthread.h>

#define LINES_MAX 400

/* ---- names --------------------------------------------------------------------------- */

#define S(epoch_, era_, from_, to_)                                                                \
	{                                                                                          \
		.epoch = (epoch_), .era = (era_), .from = (from_), .to = (to_)                     \
	}

static void test_pieces(void **state)
{
	/* clang-format off */
	static const struct {
		const char *name;
		struct segment s[6];
		size_t n;
		const char *want;
	} rows[] = {
		{"nothing", {S(0, 0, 0, 0)}, 0, ""},
		{"one after the other", {S(1, 0, 0, 10), S(1, 0, 10, 30)}, 2, "0:0-10 1:10-30 "},
		{"not from the start", {S(1, 0, 5, 10)}, 1, ""},
		{"a gap ends it", {S(1, 0, 0, 10), S(1, 0, 11, 30)}, 2, "0:0-10 "},
		{"put twice, longer", {S(1, 0, 0, 10), S(1, 0, 0, 20), S(1, 0, 20, 30)}, 3, "1:0-20 2:20-30 "},
		{"merged, not yet deleted", {S(1, 0, 0, 10), S(1, 0, 0, 30), S(1, 0, 10, 20), S(1, 0, 20, 30)}, 4, "1:0-30 "},
		{"a later server", {S(1, 0, 0, 10), S(1, 0, 10, 20), S(2, 0, 10, 15)}, 3, "0:0-10 2:10-15 "},
		{"late, of an earlier one", {S(1, 0, 0, 10), S(1, 0, 10, 90), S(2, 0, 10, 15), S(2, 0, 15, 18)}, 4, "0:0-10 2:10-15 3:15-18 "},
		{"longer than the next allows", {S(1, 0, 0, 20), S(2, 0, 10, 15)}, 2, "0:0-10 1:10-15 "},
		{"written anew", {S(1, 0, 0, 20), S(1, 1, 0, 5)}, 2, "1:0-5 "},
		{"anew, by the next server", {S(1, 3, 0, 20), S(2, 0, 20, 25), S(2, 1, 0, 5)}, 3, "2:0-5 "},
		{"merged by the next server", {S(1, 0, 0, 10), S(1, 0, 10, 20), S(2, 0, 0, 30)}, 3, "2:0-30 "},
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf got = BUF_INIT(1000);
		struct segment_piece p[6];
		size_t n = segment_pieces(rows[i].s, rows[i].n, p);

		for (size_t k = 0; k < n; k++)
			buf_printf(&got, "%zu:%" PRIu64 "-%" PRIu64 " ", p[k].i, p[k].from,
			           p[k].to);
		assert_row(strcmp(buf_cstr(&got), rows[i].want) == 0, rows[i].name);
	}
}

static void test_reach(void **state)
{
	static const struct segment_piece p[] = {
		{0, 0, 100 << 20}, {1, 100 << 20, 101 << 20}, {2, 101 << 20, (101 << 20) + 10}};
	const uint64_t end = (101 << 20) + 10;

	(void)state;
	assert_int_equal(segment_reach(p, 0, 0, 10, false), 0);
	assert_int_equal(segment_reach(p, 3, end, end + 10, false), 101 << 20);
	assert_int_equal(segment_reach(p, 3, end, end + (1 << 20), false), 100 << 20);
	assert_int_equal(segment_reach(p, 3, end, end + 10, true), 100 << 20);
	/* what was stored behind `from` by another server is no part */
	assert_int_equal(segment_reach(p, 3, 101 << 20, end, false), 101 << 20);
}

/* ---- servers ------------------------------------------------------------------------- */

static void test_takeover(void **state)
{
	struct world w;
	struct server next;
	uint32_t ranks;

	(void)state;
	setup(&w, "mem:");
	assert_true(say(&w, &w.now, "pushed"));
	print(&w, 20);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	print(&w, 20);
	assert_true(deliver(&w, &w.now)); /* taken, and never stored */
	burn(&w, &w.now);
	start(&w, &next, true);
	assert_ok(joblogs_ranks(next.logs, JOB, &ranks, &w.err), &w.err);
	assert_int_equal(ranks, 1);
	print(&w, 20);
	assert_true(deliver(&w, &next));
	assert_int_equal(check_lines(&w, &next), 1);
	assert_true(say(&w, &next, "over"));
	store(&w, &next);
	burn(&w, &next);
	start(&w, &w.now, true);
	assert_int_equal(check_lines(&w, &w.now), 2);
	done(&w);
}

/* kill -9 with the folder intact: what was taken is there, stored or not, and will be stored. */
static void test_restart(void **state)
{
	struct world w;
	struct server next;

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now) && say(&w, &w.now, "not stored"));
	die(&w.now);
	start(&w, &w.now, false);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	assert_int_equal(joblogs_waiting(w.now.logs), 0);
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 1);
	burn(&w, &next);
	done(&w);
}

/* A folder from the time when there was no store: all of it goes there. */
static void test_moves_there(void **state)
{
	struct world w;
	struct server next;

	(void)state;
	setup(&w, "mem:");
	die(&w.now);
	assert_ok(joblogs_open(&w.now.logs, w.now.dir, &w.err), &w.err);
	print(&w, 10);
	assert_true(deliver(&w, &w.now) && say(&w, &w.now, "alone"));
	die(&w.now);
	start(&w, &w.now, false);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 1);
	burn(&w, &next);
	done(&w);
}

/* A frozen server stores what it took before the other one came: that is nobody's. */
static void test_late(void **state)
{
	struct world w;
	struct server next, third;

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now) && say(&w, &w.now, "a word of the frozen one"));
	start(&w, &next, true);
	assert_true(say(&w, &next, "another leads"));
	print(&w, 3);
	assert_true(deliver(&w, &next));
	store(&w, &next);
	joblogs_ended(w.now.logs, JOB);
	store(&w, &w.now); /* it merges too, and deletes nothing of the other's */
	start(&w, &third, true);
	assert_int_equal(check_lines(&w, &third), 1);
	/* and its folder is worth nothing to its next start */
	die(&w.now);
	start(&w, &w.now, false);
	assert_int_equal(check_lines(&w, &w.now), 1);
	burn(&w, &next);
	burn(&w, &third);
	done(&w);
}

/* Many small segments are few at any time, one at the end, and none when the job is deleted. */
static void test_merges(void **state)
{
	struct world w;
	struct server next;

	(void)state;
	setup(&w, "mem:");
	for (int i = 0; i < LINES_MAX; i++) {
		print(&w, 1);
		assert_true(deliver(&w, &w.now));
		store(&w, &w.now);
		assert_true(count_objects(&w) < 32);
	}
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 0);
	burn(&w, &next);
	joblogs_ended(w.now.logs, JOB);
	store(&w, &w.now);
	assert_int_equal(count_objects(&w), 1);
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 0);
	store(&w, &next); /* it stores nothing again */
	assert_int_equal(count_objects(&w), 1);
	assert_ok(joblogs_delete(next.logs, JOB, &w.err), &w.err);
	assert_int_equal(count_objects(&w), 0);
	burn(&w, &next);
	store(&w, &w.now);
	done(&w);
}

static void add_sample(struct world *w, struct server *s, unsigned n)
{
	AUTO_BUF struct buf line = BUF_INIT(8192);

	buf_printf(&line, "{\"wall_ms\":%u,\"pad\":\"%07000u\"}", n, n);
	assert_ok(joblogs_add_sample(s->logs, JOB, 0, buf_view(&line), &w->err), &w->err);
}

static void check_samples(struct world *w, struct server *s, unsigned last)
{
	char want[40];
	struct str *line;
	size_t n;

	assert_ok(joblogs_samples(s->logs, w->a, JOB, 0, 0, 0, 5000, &line, &n, &w->err), &w->err);
	assert_true(n > 1);
	FMT(want, "{\"wall_ms\":%u,", 1);
	assert_true(str_starts(line[0], want));
	FMT(want, "{\"wall_ms\":%u,", last);
	assert_true(str_starts(line[n - 1], want));
}

/* Samples are thinned, so their file is not only appended to. */
static void test_samples(void **state)
{
	struct world w;
	struct server next;
	unsigned n = 0;

	(void)state;
	setup(&w, "mem:");
	for (int i = 0; i < 7; i++) { /* it is thinned at 32 MiB, and again after 16 more */
		for (int k = 0; k < 1000; k++)
			add_sample(&w, &w.now, ++n);
		store(&w, &w.now);
		start(&w, &next, true);
		check_samples(&w, &next, n);
		burn(&w, &next);
	}
	assert_true(count_objects(&w) <= 16);
	joblogs_ended(w.now.logs, JOB);
	store(&w, &w.now);
	assert_int_equal(count_objects(&w), 1);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	check_samples(&w, &w.now, n);
	add_sample(&w, &w.now, ++n);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	check_samples(&w, &w.now, n);
	done(&w);
}

/* Killed when the samples were thinned and nothing of that was stored yet: what lies here is
 * shorter than what is stored, and has more. */
static void test_thinned_not_stored(void **state)
{
	struct world w;
	unsigned n = 0;

	(void)state;
	setup(&w, "mem:");
	while (n < 4000)
		add_sample(&w, &w.now, ++n);
	store(&w, &w.now);
	while (n < 5000) /* it is thinned at 32 MiB */
		add_sample(&w, &w.now, ++n);
	die(&w.now);
	start(&w, &w.now, false);
	check_samples(&w, &w.now, n);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	check_samples(&w, &w.now, n);
	done(&w);
}

/* A line of the platform waits for a log that cannot be fetched just now. */
static void test_held(void **state)
{
	struct world w;

	(void)state;
	setup(&w, "fault:1:mem:");
	assert_true(say(&w, &w.now, "first") && say(&w, &w.now, "second"));
	assert_int_equal(joblogs_waiting(w.now.logs), 2);
	store(&w, &w.now);
	assert_int_equal(check_lines(&w, &w.now), 2);
	assert_int_equal(joblogs_waiting(w.now.logs), 0);
	/* of a new job it does not: its log is nowhere else */
	done(&w);
	setup(&w, "fault:1:mem:");
	assert_ok(joblogs_new_job(w.now.logs, JOB, &w.err), &w.err);
	assert_true(say(&w, &w.now, "first"));
	assert_int_equal(check_lines(&w, &w.now), 1);
	done(&w);
}

/* What a runner that ends and a final state wait for. */
static void test_flush(void **state)
{
	struct world w;

	(void)state;
	setup(&w, "fault:3:mem:");
	assert_true(joblogs_flush(w.now.logs, JOB, 1000));
	print(&w, 3);
	assert_true(deliver(&w, &w.now));
	assert_false(joblogs_flush(w.now.logs, JOB, 20));      /* nobody stores it */
	assert_false(joblogs_flush(w.now.logs, JOB, 3600000)); /* so this one does not wait */
	assert_true(joblogs_flush(w.now.logs, "another", 1000));
	assert_true(store_once(&w, &w.now));
	assert_true(joblogs_flush(w.now.logs, JOB, 1000));
	assert_true(say(&w, &w.now, "over"));
	assert_false(store_once(&w, &w.now));
	assert_false(joblogs_flush(w.now.logs, JOB, 0));
	store(&w, &w.now);
	assert_true(joblogs_flush(w.now.logs, JOB, 1000));
	done(&w);
}

#define STORERS 3
#define WRITERS 4
#define WRITES 200

struct crowd {
	struct joblogs *logs;
	atomic_bool over;
	atomic_uint next;
};

static void *storer(void *arg)
{
	struct crowd *c = arg;

	while (!atomic_load(&c->over)) {
		struct err err = {0};
		bool did;

		if (joblogs_store_next(c->logs, 5, &did, &err) < 0)
			abort(); /* no assertion of cmocka's outside of its thread */
	}
	return NULL;
}

static void *writer(void *arg)
{
	struct crowd *c = arg;
	AUTO_ARENA struct arena *a = arena_new();
	char job[20];
	uint64_t seq = 0;
	int64_t last_ns = 0;

	FMT(job, "job%u", atomic_fetch_add(&c->next, 1) / 2); /* two write to each */
	for (unsigned i = 0; i < WRITES; i++) {
		AUTO_BUF struct buf b = BUF_INIT(1000);
		struct joblog_line *line;
		struct err err = {0};
		size_t n;

		logline_write(&b, i + 1, &last_ns, 'o', STR_LIT("a line"), false);
		if (joblogs_message(c->logs, job, i + 1, "of the platform", &err) < 0 ||
		    joblogs_append(c->logs, job, arena_printf(a, "%p", (void *)&seq), 0, seq,
		                   buf_view(&b), false, &seq, &err) < 0 ||
		    joblogs_add_sample(c->logs, job, 0, STR_LIT("{\"wall_ms\":1}"), &err) < 0 ||
		    (i % 50 == 0 &&
		     (joblogs_range(c->logs, a, job, -1, 0, 0, 0, false, &line, &n, &err) < 0 ||
		      !joblogs_flush(c->logs, job, 60000))))
			abort();
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t storers[STORERS], writers[WRITERS];
	struct crowd c = {0};
	struct server next;
	struct world w;

	(void)state;
	setup(&w, "mem:");
	c.logs = w.now.logs;
	for (size_t i = 0; i < STORERS; i++)
		assert_int_equal(pthread_create(&storers[i], NULL, storer, &c), 0);
	for (size_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, writer, &c), 0);
	for (size_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_join(writers[i], NULL), 0);
	atomic_store(&c.over, true);
	for (size_t i = 0; i < STORERS; i++)
		assert_int_equal(pthread_join(storers[i], NULL), 0);
	store(&w, &w.now);
	start(&w, &next, true);
	for (unsigned i = 0; i < WRITERS / 2; i++) {
		struct joblog_line *line;
		size_t n;

		assert_ok(joblogs_range(next.logs, w.a, arena_printf(w.a, "job%u", i), -1, 0, 0, 0,
		                        false, &line, &n, &w.err),
		          &w.err);
		assert_int_equal(n, 2 * 2 * WRITES);
	}
	burn(&w, &next);
	done(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pieces),
	cmocka_unit_test(test_reach),
	cmocka_unit_test(test_takeover),
	cmocka_unit_test(test_restart),
	cmocka_unit_test(test_moves_there),
	cmocka_unit_test(test_late),
	cmocka_unit_test(test_merges),
	cmocka_unit_test(test_samples),
	cmocka_unit_test(test_thinned_not_stored),
	cmocka_unit_test(test_held),
	cmocka_unit_test(test_flush),
	cmocka_unit_test(test_threads),
};

UNIT_MAIN(tests)
