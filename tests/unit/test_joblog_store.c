/*
 * test_joblog_store.c - logs in a store, for servers that come and go: every line once and in order
 * whatever fails, whoever dies, whatever an earlier server stores late.
 */
#include "store/logs/joblog.h"
#include "store/logs/joblog_segment.h"

#include "unit.h"

#include <pthread.h>
#include <sys/wait.h>

#define MS ((int64_t)1000000)
#define JOB "abc1234"
#define LINES_MAX 400
#define KILLS 150

/* The runner has all its lines, and sends from where the server says. */
struct runner {
	struct buf log;
	uint64_t sent;
	int64_t last_ns;
	unsigned lines;
};

struct server {
	char dir[64];
	struct joblogs *logs;
};

struct world {
	struct objstore *os;
	struct arena *a;
	struct err err;
	struct runner runner;
	uint32_t epoch;
	struct server now;
};

static void start(struct world *w, struct server *s, bool new_machine)
{
	if (new_machine) {
		FMT(s->dir, "/tmp/test-joblog-XXXXXX");
		assert_non_null(mkdtemp(s->dir));
	}
	assert_ok(joblogs_open(&s->logs, s->dir, &w->err), &w->err);
	joblogs_keep(s->logs, w->os, ++w->epoch, 0);
}

static void die(struct server *s)
{
	joblogs_close(s->logs);
	s->logs = NULL;
}

static void burn(struct world *w, struct server *s)
{
	if (s->logs != NULL)
		die(s);
	assert_ok(fs_remove_tree(AT_FDCWD, s->dir, &w->err), &w->err);
}

static void setup(struct world *w, const char *url)
{
	struct objstore_env env = {0};

	memset(w, 0, sizeof(*w));
	assert_ok(objstore_open(&w->os, url, &env, &w->err), &w->err);
	w->a = arena_new();
	w->runner.log = (struct buf)BUF_INIT((size_t)64 << 20);
	start(w, &w->now, true);
}

static void done(struct world *w)
{
	burn(w, &w->now);
	objstore_close(w->os);
	buf_done(&w->runner.log);
	arena_free(w->a);
}

static void print(struct world *w, unsigned n)
{
	struct runner *r = &w->runner;
	char text[40];

	for (unsigned i = 0; i < n; i++) {
		FMT(text, "line %u", r->lines);
		logline_write(&r->log, (int64_t)++r->lines * MS, &r->last_ns, 'o', str_of(text),
		              false);
	}
}

/* As run/report.c does it. False: the server could not. */
static bool deliver(struct world *w, struct server *s)
{
	struct runner *r = &w->runner;

	for (int tries = 0; tries < 5; tries++) {
		struct str rest = str_skip(buf_view(&r->log), (size_t)r->sent);

		if (joblogs_append(s->logs, JOB, "at0", 0, r->sent, rest, false, &r->sent,
		                   &w->err) == 0)
			return true;
		if (w->err.code != ERR_CONFLICT)
			break;
		err_clear(&w->err);
	}
	assert_true(err_info(&w->err)->retry);
	err_clear(&w->err);
	return false;
}

static bool say(struct world *w, struct server *s, const char *text)
{
	return joblogs_message(s->logs, JOB, (int64_t)w->runner.lines * MS, text, &w->err) == 0;
}

/* Stores what there is. False when the store failed. */
static bool store_once(struct world *w, struct server *s)
{
	bool did = true;

	assert_ok(joblogs_store_all(s->logs, false, &w->err), &w->err);
	while (did) {
		if (joblogs_store_next(s->logs, 0, &did, &w->err) < 0) {
			err_clear(&w->err);
			return false;
		}
	}
	return true;
}

static void store(struct world *w, struct server *s)
{
	do {
		(void)store_once(w, s);
	} while (joblogs_waiting(s->logs) > 0);
}

/* Lines of the job itself: each once, in order. Those of the platform are counted. */
static unsigned check_lines(struct world *w, struct server *s)
{
	struct joblog_line *line = NULL;
	unsigned seen = 0, others = 0;
	size_t n = 0;

	for (int tries = 0;; tries++) {
		if (joblogs_range(s->logs, w->a, JOB, -1, 0, 0, 0, false, &line, &n, &w->err) == 0)
			break;
		assert_true(tries < 3 && err_info(&w->err)->retry);
		err_clear(&w->err);
	}
	for (size_t i = 0; i < n; i++) {
		char want[40];

		assert_true(i == 0 || line[i - 1].ns < line[i].ns);
		if (line[i].stream == 's') {
			others++;
			continue;
		}
		FMT(want, "line %u", seen++);
		assert_string_equal(line[i].text, want);
	}
	assert_int_equal(seen, w->runner.lines);
	return others;
}

static size_t count_objects(struct world *w)
{
	struct segment *s;
	size_t n;

	assert_ok(segment_list(w->os, w->a, JOB, NULL, &s, &n, &w->err), &w->err);
	return n;
}

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

/* A power cut took more of the folder than of the store. */
static void test_power_cut(void **state)
{
	struct world w;
	char path[100];

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	die(&w.now);
	FMT(path, "%s/" JOB "/node-0.log", w.now.dir);
	assert_int_equal(truncate(path, 100), 0);
	start(&w, &w.now, false);
	assert_int_equal(check_lines(&w, &w.now), 0);
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

/* Damage costs lines, and is said in the log; the job goes on. */
static void test_damage(void **state)
{
	struct world w;
	struct segment *s;
	struct joblog_line *line;
	size_t n;

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	assert_ok(segment_list(w.os, w.a, JOB, NULL, &s, &n, &w.err), &w.err);
	assert_int_equal(n, 1);
	assert_ok(segment_check(w.os, JOB, &n, &w.err), &w.err);
	assert_int_equal(n, 1);
	assert_ok(objstore_put(w.os, segment_key(w.a, JOB, &s[0]), STR_LIT("stoker-log-segment 1 "),
	                       &w.err),
	          &w.err);
	assert_err(segment_check(w.os, JOB, &n, &w.err), &w.err, ERR_CORRUPT, "node-0.log");
	burn(&w, &w.now);
	start(&w, &w.now, true);
	print(&w, 1);
	assert_true(deliver(&w, &w.now)); /* the runner has them all */
	assert_int_equal(check_lines(&w, &w.now), 0);
	store(&w, &w.now);
	assert_ok(joblogs_range(w.now.logs, w.a, JOB, -1, 0, 0, 1, true, &line, &n, &w.err),
	          &w.err);
	assert_int_equal(n, 1);
	assert_non_null(strstr(line[0].text, "log lines lost"));
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

/* ---- fetching loses nothing ---------------------------------------------------------- */

/* A second node's log: one line, which is no line of the job's in check_lines. */
static void second_node(struct world *w)
{
	AUTO_BUF struct buf b = BUF_INIT(1000);
	int64_t last_ns = 0;
	uint64_t next = 0;

	logline_write(&b, MS / 2, &last_ns, 's', STR_LIT("of the second node"), false);
	assert_ok(
		joblogs_append(w->now.logs, JOB, "at0", 1, 0, buf_view(&b), false, &next, &w->err),
		&w->err);
}

/* The same objects through another driver. */
static void reopen(struct world *w, const char *url)
{
	struct objstore_env env = {0};

	objstore_close(w->os);
	assert_ok(objstore_open(&w->os, url, &env, &w->err), &w->err);
}

/* One node's log is to be fetched, and the store goes away meanwhile, or the server does: the
 * other's tail, which was never stored, stays and is stored in the end. */
static void fetch_beside_tail(int fault, bool dies)
{
	char dir[] = "/tmp/test-joblog-os-XXXXXX", url[80], path[100];
	struct world w;
	uint32_t ranks;

	assert_non_null(mkdtemp(dir));
	FMT(url, "dir:%s", dir);
	setup(&w, url);
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	second_node(&w);
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now)); /* and the runner is gone */
	die(&w.now);
	FMT(path, "%s/" JOB "/node-1.log", w.now.dir);
	assert_int_equal(truncate(path, 10), 0);
	FMT(url, "fault:%d:dir:%s", fault, dir);
	reopen(&w, url);
	start(&w, &w.now, false);
	assert_ok(joblogs_ranks(w.now.logs, JOB, &ranks, &w.err), &w.err); /* as it was left */
	if (dies) {
		die(&w.now);
		start(&w, &w.now, false);
	}
	assert_int_equal(check_lines(&w, &w.now), 1);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	assert_int_equal(check_lines(&w, &w.now), 1);
	done(&w);
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &w.err), &w.err);
}

static void test_tail_stays(void **state)
{
	(void)state;
	for (int fault = 1; fault <= 3; fault++) { /* of the listing, of the log, of none */
		fetch_beside_tail(fault, false);
		fetch_beside_tail(fault, true);
	}
}

/* Fetches and stores until it is killed, or has done it. */
static void fetch_and_store(struct world *w)
{
	uint32_t ranks;

	start(w, &w->now, false);
	if (joblogs_ranks(w->now.logs, JOB, &ranks, &w->err) < 0 ||
	    joblogs_store_all(w->now.logs, true, &w->err) < 0)
		_exit(1);
	store(w, &w->now);
	_exit(0);
}

/* kill -9 wherever it happens to be, again and again: the tail of the first node, which nobody else
 * has, is there, once; and its runner, should it come back, is asked for none of it. */
static void test_killed_anywhere(void **state)
{
	char dir[] = "/tmp/test-joblog-os-XXXXXX", url[80], path[100];
	struct world w;

	(void)state;
	assert_non_null(mkdtemp(dir));
	FMT(url, "dir:%s", dir);
	setup(&w, url);
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	second_node(&w);
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	die(&w.now);
	FMT(path, "%s/" JOB "/node-1.log", w.now.dir);
	for (unsigned i = 0; i < KILLS; i++) {
		int status;
		pid_t pid;

		assert_int_equal(truncate(path, i % 40), 0);
		w.epoch++; /* the child's */
		pid = fork();
		if (pid == 0)
			fetch_and_store(&w);
		assert_true(pid > 0);
		(void)usleep(i % 50 * 200);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	}
	start(&w, &w.now, false);
	assert_int_equal(check_lines(&w, &w.now), 1);
	w.runner.sent = 0;
	assert_true(deliver(&w, &w.now));
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	assert_int_equal(check_lines(&w, &w.now), 1);
	done(&w);
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &w.err), &w.err);
}

/* Fetched half when the server was killed: the state is the fetched one, and its log is not there
 * yet, or everything is but "epoch". Each line is there once, and is asked for once. */
static void killed_in_fetch(const char *keep)
{
	char old[100], new[100], name[40];
	struct world w;
	struct server next;

	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	die(&w.now);
	start(&w, &next, true);
	print(&w, 10);
	assert_true(deliver(&w, &next));
	store(&w, &next);
	die(&next);
	for (const char *p = keep; *p != '\0'; p++) { /* installed so far */
		FMT(name, "%s",
		    *p == 's'   ? "node-0.state"
		    : *p == 'l' ? "node-0.log"
		                : "node-0.log.sent");
		FMT(old, "%s/" JOB "/%s", next.dir, name);
		FMT(new, "%s/" JOB "/%s", w.now.dir, name);
		assert_int_equal(rename(old, new), 0);
	}
	FMT(new, "%s/" JOB "/node-0.log.new", w.now.dir);
	assert_ok(fs_write_atomic(AT_FDCWD, new, STR_LIT("half a line"), 0600, &w.err), &w.err);
	start(&w, &w.now, false);
	print(&w, 5);
	assert_true(deliver(&w, &w.now));
	assert_int_equal(check_lines(&w, &w.now), 0);
	assert_int_equal(access(new, F_OK), -1);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	assert_int_equal(check_lines(&w, &w.now), 0);
	burn(&w, &next);
	done(&w);
}

static void test_killed_in_fetch(void **state)
{
	(void)state;
	killed_in_fetch("");
	killed_in_fetch("s");
	killed_in_fetch("sl");
	killed_in_fetch("slb");
}

/* The store's copy is damaged, and what lies here is longer than what can be read there. */
static void test_damage_keeps(void **state)
{
	struct world w;
	struct segment *s;
	char path[100];
	size_t n;

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	second_node(&w);
	store(&w, &w.now);
	die(&w.now);
	FMT(path, "%s/" JOB "/node-0.log", w.now.dir);
	assert_int_equal(truncate(path, (off_t)w.runner.sent / 2), 0);
	assert_ok(segment_list(w.os, w.a, JOB, "node-0.log", &s, &n, &w.err), &w.err);
	assert_ok(objstore_put(w.os, segment_key(w.a, JOB, &s[0]), STR_LIT("stoker-log-segment 1 "),
	                       &w.err),
	          &w.err);
	w.runner.lines = 5; /* of which the runner, that is gone, cannot send any again */
	start(&w, &w.now, false);
	assert_int_equal(check_lines(&w, &w.now), 1);
	store(&w, &w.now);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	burn(&w, &w.now);
	start(&w, &w.now, true);
	assert_int_equal(check_lines(&w, &w.now), 2); /* one of them says what was lost */
	done(&w);
}

/* "epoch" cannot be read: that says nothing about whose the files are. */
static void test_unreadable_epoch(void **state)
{
	struct world w;
	struct server next;
	char epoch[100], aside[100];

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	FMT(epoch, "%s/" JOB "/epoch", w.now.dir);
	FMT(aside, "%s/" JOB "/aside", w.now.dir);
	assert_int_equal(rename(epoch, aside), 0);
	assert_int_equal(symlink("epoch", epoch), 0);
	assert_false(store_once(&w, &w.now)); /* of a log that is open */
	print(&w, 1);
	assert_true(deliver(&w, &w.now));
	die(&w.now);
	start(&w, &w.now, false);
	assert_int_equal(joblogs_add_sample(w.now.logs, JOB, 0, STR_LIT("{}"), &w.err), -1);
	assert_non_null(strstr(w.err.msg, JOB));
	err_clear(&w.err);
	assert_int_equal(rename(aside, epoch), 0);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	assert_int_equal(check_lines(&w, &w.now), 0);
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 0);
	burn(&w, &next);
	done(&w);
}

struct flipping {
	char a[100], b[100];
	atomic_bool over;
};

static void *flip(void *arg)
{
	struct flipping *f = arg;

	while (!atomic_load(&f->over))
		if (renameat2(AT_FDCWD, f->a, AT_FDCWD, f->b, RENAME_EXCHANGE) < 0)
			abort(); /* no assertion of cmocka's outside of its thread */
	return NULL;
}

/* "epoch" can be read now and then. Who stores has the job's stripe, and never takes it again. */
static void test_epoch_comes_and_goes(void **state)
{
	struct flipping f = {0};
	struct world w;
	struct server next;
	pthread_t flipper;
	unsigned failed = 0;

	(void)state;
	setup(&w, "mem:");
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	store(&w, &w.now);
	print(&w, 10);
	assert_true(deliver(&w, &w.now));
	FMT(f.a, "%s/" JOB "/epoch", w.now.dir);
	FMT(f.b, "%s/" JOB "/aside", w.now.dir);
	assert_int_equal(symlink("epoch", f.b), 0);
	assert_int_equal(pthread_create(&flipper, NULL, flip, &f), 0);
	while (failed < 100) {
		die(&w.now);
		w.epoch--; /* the same server, whose log is not open */
		start(&w, &w.now, false);
		joblogs_ended(w.now.logs, JOB);
		failed += !store_once(&w, &w.now);
	}
	atomic_store(&f.over, true);
	assert_int_equal(pthread_join(flipper, NULL), 0);
	if (faccessat(AT_FDCWD, f.a, F_OK, 0) < 0)
		assert_int_equal(rename(f.b, f.a), 0);
	joblogs_ended(w.now.logs, JOB);
	assert_ok(joblogs_store_all(w.now.logs, true, &w.err), &w.err);
	store(&w, &w.now);
	assert_int_equal(check_lines(&w, &w.now), 0);
	start(&w, &next, true);
	assert_int_equal(check_lines(&w, &next), 0);
	burn(&w, &next);
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

/* A whole life over two servers. `dies`: the first one does when its store fails first. False: the
 * store did not fail. */
static bool live(struct world *w, bool dies, unsigned *said)
{
	bool failed = false;

	*said = 0;
	for (int i = 0; i < 20 && !(dies && failed); i++) {
		print(w, 3);
		failed = !deliver(w, &w->now) || failed;
		if (i % 5 == 0) {
			assert_true(say(w, &w->now, "a word"));
			(*said)++;
		}
		failed = !store_once(w, &w->now) || failed;
	}
	if (!dies) {
		joblogs_ended(w->now.logs, JOB);
		store(w, &w->now);
		assert_int_equal(check_lines(w, &w->now), *said);
	}
	burn(w, &w->now);
	start(w, &w->now, true);
	print(w, 2);
	while (!deliver(w, &w->now)) {
		failed = true;
		if (dies) { /* in the middle of fetching */
			die(&w->now);
			start(w, &w->now, false);
		}
	}
	return failed;
}

static void each_fault(bool dies)
{
	bool failed = true;
	int n = 0;

	for (n = 1; failed; n++) {
		struct world w;
		unsigned said, found;
		char url[40];

		FMT(url, "fault:%d:mem:", n);
		setup(&w, url);
		failed = live(&w, dies, &said);
		found = check_lines(&w, &w.now);
		assert_true(found <= said && (dies || found == said));
		store(&w, &w.now);
		burn(&w, &w.now);
		start(&w, &w.now, true);
		assert_int_equal(check_lines(&w, &w.now), found);
		store(&w, &w.now);
		if (!dies)
			assert_true(count_objects(&w) <= 2);
		done(&w);
	}
	assert_true(n > 20);
}

static void test_each_fault(void **state)
{
	(void)state;
	each_fault(false);
}

static void test_each_fault_kills(void **state)
{
	(void)state;
	each_fault(true);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pieces),
	cmocka_unit_test(test_reach),
	cmocka_unit_test(test_takeover),
	cmocka_unit_test(test_restart),
	cmocka_unit_test(test_moves_there),
	cmocka_unit_test(test_late),
	cmocka_unit_test(test_power_cut),
	cmocka_unit_test(test_merges),
	cmocka_unit_test(test_samples),
	cmocka_unit_test(test_thinned_not_stored),
	cmocka_unit_test(test_damage),
	cmocka_unit_test(test_held),
	cmocka_unit_test(test_flush),
	cmocka_unit_test(test_tail_stays),
	cmocka_unit_test(test_killed_in_fetch),
	cmocka_unit_test(test_killed_anywhere),
	cmocka_unit_test(test_damage_keeps),
	cmocka_unit_test(test_unreadable_epoch),
	cmocka_unit_test(test_epoch_comes_and_goes),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_each_fault),
	cmocka_unit_test(test_each_fault_kills),
};

UNIT_MAIN(tests)
