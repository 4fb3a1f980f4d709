/*
 * test_joblog_faults.c - logs in a store, whatever fails and whoever dies: damage here and there,
 * fetches that are cut, a server killed anywhere, each call of the store. No line is lost that is
 * still somewhere, and what is lost is said.
 */
#include "joblog_store_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

#define KILLS 150

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

/* The second node's log is in the store, and in the file `path`. A tail of the first one's is not,
 * its runner is gone, and the server has died. */
static void leave_tail(struct world *w, const char *url, char path[100])
{
	setup(w, url);
	print(w, 10);
	assert_true(deliver(w, &w->now));
	second_node(w);
	store(w, &w->now);
	print(w, 10);
	assert_true(deliver(w, &w->now));
	die(&w->now);
	fmt_fixed(path, 100, "%s/" JOB "/node-1.log", w->now.dir);
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
	leave_tail(&w, url, path);
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
	leave_tail(&w, url, path);
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

/* ---- each call of the store ---------------------------------------------------------- */

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
	cmocka_unit_test(test_power_cut),        cmocka_unit_test(test_damage),
	cmocka_unit_test(test_tail_stays),       cmocka_unit_test(test_killed_in_fetch),
	cmocka_unit_test(test_killed_anywhere),  cmocka_unit_test(test_damage_keeps),
	cmocka_unit_test(test_unreadable_epoch), cmocka_unit_test(test_epoch_comes_and_goes),
	cmocka_unit_test(test_each_fault),       cmocka_unit_test(test_each_fault_kills),
};

UNIT_MAIN(tests)
