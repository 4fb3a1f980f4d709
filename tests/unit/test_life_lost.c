/* test_life_lost.c - runners that are lost, late, deaf or dead: what is tried again, what the sweep
 * of one tells, and how long it is waited for. */
#include "server_fixture.h"

#include <signal.h>

/* A file of a runner's folder, once it is there. */
static const char *await_file(struct fixture *f, const char *attempt_id, const char *name)
{
	const char *path =
		app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0/%s", attempt_id, name));
	AUTO_BUF struct buf text = BUF_INIT(10000);

	for (int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;
	     text.n == 0 && clock_mono_ms() < until; clock_sleep_ms(5)) {
		struct err ignored = {0};

		(void)!fs_read(AT_FDCWD, path, &text, &ignored);
	}
	assert_true(text.n > 0);
	return arena_strz(f->a, str_trim(buf_view(&text)));
}

static void make_slow(struct fixture *f, const char *attempt_id)
{
	assert_ok(fs_write_atomic(
			  AT_FDCWD,
			  app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0/slow", attempt_id)),
			  STR_LIT(""), 0600, &f->err),
	          &f->err);
}

static void begin_again(struct fixture *f)
{
	fixture_down(f);
	fixture_up(f);
	reconcile_start(f->app);
	reconcile_pass(f->app);
}

static void a_lost_runner_is_tried_again(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(
				 f, "", "\"retry\":{\"max_attempts\":2,\"on\":[\"node_fail\"]}",
				 &j),
			 *second;
	struct wire_desired o = {0};
	struct wire_launch l;

	fixture_kill_runners(f);
	fixture_restart(f); /* looks at everybody */
	queue_pass(f->app);
	fixture_await(f, j.id, JOB_DEPLOYING);
	second = fixture_runner(f, j.id, 0);
	assert_string_not_equal(second->attempt_id, w->attempt_id);
	l = fixture_claim(f, second, "n2");
	assert_int_equal(l.retry_count, 1);
	/* the first one speaks up after all: it is told to end, and its exit changes nothing */
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(o.stop && !o.go);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_DEPLOYING);
	(void)await_file(f, second->attempt_id, "runner.log");
	fixture_kill_runners(f);
	fixture_restart(f);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_DEPLOY_FAILED); /* no attempt is left */
	assert_int_equal(j.end, JOB_END_LOST);
	assert_non_null(strstr(j.error_message, "exited without a record of its job: last output: "
	                                        "its words"));
}

static void a_slow_sweep_holds_nobody(void **state)
{
	struct fixture *f = *state;
	struct model_job slow = {0}, j = {0};
	struct principal *w = fixture_running(f, "", "", &slow);
	const char *dir = app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0", w->attempt_id));
	uint64_t n = 0;

	(void)fixture_running(f, "", "", &j);
	fixture_kill_runners(f);
	make_slow(f, w->attempt_id);
	begin_again(f);
	assert_ok(str_u64(str_of(await_file(f, w->attempt_id, "sweeping")), 2, INT32_MAX, &n,
	                  &f->err),
	          &f->err);
	/* the other one's end is known, while this one is still being swept */
	fixture_await(f, j.id, JOB_FAILED);
	assert_int_equal(kill((pid_t)n, 0), 0);
	assert_int_equal(fixture_job(f, slow.id).core.state, JOB_RUNNING);
	/* which does not hold up the end of the server either: it is given up, and done anew */
	fixture_down(f);
	assert_int_equal(kill((pid_t)n, 0), -1);
	assert_int_equal(unlink(arena_printf(f->a, "%s/slow", dir)), 0);
	fixture_up(f);
	reconcile_start(f->app);
	fixture_reconcile(f);
	assert_int_equal(fixture_job(f, slow.id).core.state, JOB_FAILED);
}

/* The runner of the fixture hears nothing, as one that hangs. */
static void a_runner_that_does_not_stop_is_ended(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};

	(void)fixture_running(f, "", "\"limits\":{\"stop_grace\":\"5s\"}", &j);
	assert_ok(job_ops.stop(ADMIN(f), j.id, true, &j, &f->err), &f->err);
	clock_fake(clock_wall_ms() + RECONCILE_DEAF_MS, -1);
	fixture_reconcile(f);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_STOPPING); /* the grace time runs */
	clock_fake(clock_wall_ms() + 6000, -1);
	fixture_reconcile(f); /* ended */
	fixture_reconcile(f); /* and found gone */
	clock_fake(-1, -1);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_STOPPED);
}

/* The sweep of a dead runner tells what that had not told: played by the test, as runners are. */
static void what_a_sweep_tells_is_the_end(void **state)
{
	struct model_checkpoint *c = NULL;
	size_t n = 0;
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	struct wire_exit x = {.end = JOB_END_EXIT,
	                      .code = 3,
	                      .synced = true,
	                      .detail = "start_commands[0] \"false\"",
	                      .user_code_ran = true};
	const char *dir = app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0", w->attempt_id));

	fixture_ship(f, &j, "checkpoint-1"); /* and died before it could tell of it */
	fixture_kill_runners(f);
	make_slow(f, w->attempt_id);
	begin_again(f);
	(void)await_file(f, w->attempt_id, "sweeping");
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_RUNNING);
	assert_ok(runner_ops.exit(AS(f, w), &x, &f->err), &f->err);
	assert_int_equal(unlink(arena_printf(f->a, "%s/slow", dir)), 0);
	for (int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;
	     keyed_executor_busy(f->app->sweeps, NULL) && clock_mono_ms() < until;)
		clock_sleep_ms(5);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_FAILED);
	assert_int_equal(j.end_code, 3);
	assert_non_null(j.sync_status);
	assert_string_equal(j.sync_status, "COMPLETED");
	assert_ok(meta_checkpoints(f->app->meta, f->a, j.id, &c, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_string_equal(c[0].name, "checkpoint-1");
	assert_true(c[0].state == CKPT_COMPLETE && c[0].files == 1 && c[0].bytes == 5);
	assert_non_null(strstr(j.error_message, "exit code 3"));
	fixture_reconcile(f);
	assert_int_equal(access(dir, F_OK), -1);
}

/* Nothing that cannot be brought holds the end of a job up for ever. */
static void a_sweep_is_told_when_it_is_the_last(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	const char *dir = app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0", w->attempt_id));
	const char *how;

	fixture_kill_runners(f);
	make_slow(f, w->attempt_id);
	begin_again(f);
	assert_string_equal(await_file(f, w->attempt_id, "how"), "all");
	(void)await_file(f, w->attempt_id, "sweeping");
	fixture_down(f);
	assert_int_equal(unlink(arena_printf(f->a, "%s/how", dir)), 0);
	clock_fake(clock_wall_ms() + RECONCILE_SWEEP_MS, -1);
	fixture_up(f);
	reconcile_start(f->app);
	reconcile_pass(f->app); /* while there was no server nothing could be told */
	assert_string_equal(await_file(f, w->attempt_id, "how"), "all");
	fixture_down(f);
	assert_int_equal(unlink(arena_printf(f->a, "%s/how", dir)), 0);
	fixture_up(f);
	clock_fake(clock_wall_ms() + RECONCILE_SWEEP_MS, -1);
	reconcile_start(f->app);
	reconcile_pass(f->app);
	how = await_file(f, w->attempt_id, "how");
	clock_fake(-1, -1);
	assert_string_equal(how, "last");
	assert_int_equal(unlink(arena_printf(f->a, "%s/slow", dir)), 0);
}

static void sweeps_end_with(struct fixture *f, const char *attempt_id, int code)
{
	const char *path = app_path(f->app, f->a, arena_printf(f->a, "runs/%s-0/code", attempt_id));

	assert_ok(fs_write_atomic(AT_FDCWD, path, str_of(arena_printf(f->a, "%d", code)), 0600,
	                          &f->err),
	          &f->err);
}

/* A record that is refused is asked for again for a while; then its end says why there is none. */
static void a_refused_record_is_said(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);

	fixture_kill_runners(f);
	sweeps_end_with(f, w->attempt_id, WIRE_SWEEP_REFUSED);
	fixture_restart(f);
	fixture_reconcile(f);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_RUNNING);
	clock_fake(clock_wall_ms() + RECONCILE_SWEEP_MS, -1);
	fixture_reconcile(f);
	clock_fake(-1, -1);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_FAILED);
	assert_int_equal(j.end, JOB_END_LOST);
	assert_non_null(strstr(j.error_message, "was refused: its words"));
	assert_null(strstr(j.error_message, "without a record"));
}

/* What is still on its way is waited for, but not for ever: and what was given up is said. */
static void a_sweep_is_given_up_after_a_day(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	AUTO_BUF struct buf log = BUF_INIT(1 << 16);
	uint64_t next = 0, size = 0;

	fixture_kill_runners(f);
	sweeps_end_with(f, w->attempt_id, WIRE_SWEEP_AGAIN);
	fixture_restart(f);
	clock_fake(clock_wall_ms() + RECONCILE_GIVE_UP_MS - 60000, -1);
	fixture_reconcile(f);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_RUNNING);
	clock_fake(clock_wall_ms() + 60000, -1);
	fixture_reconcile(f);
	clock_fake(-1, -1);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_FAILED);
	assert_non_null(strstr(j.error_message, "what it had to tell was given up after 1d"));
	assert_non_null(strstr(j.error_message, "its words"));
	assert_ok(joblogs_read(f->app->logs, j.id, 0, 0, 1 << 15, &log, &next, &size, &f->err),
	          &f->err);
	assert_non_null(memmem(log.p, log.n, "given up after 1d", 17));
}

/* Nobody knows them: no row does. */
static void folders_of_nobody_go(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	const char *dir = app_path(f->app, f->a, "runs/gone-0");

	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0700, &f->err), &f->err);
	fixture_restart(f);
	assert_int_equal(access(dir, F_OK), -1);
	(void)await_file(f, w->attempt_id, "launch.json");
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_RUNNING);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(a_lost_runner_is_tried_again),
	FIXTURE_TEST(a_slow_sweep_holds_nobody),
	FIXTURE_TEST(a_runner_that_does_not_stop_is_ended),
	FIXTURE_TEST(what_a_sweep_tells_is_the_end),
	FIXTURE_TEST(a_sweep_is_told_when_it_is_the_last),
	FIXTURE_TEST(a_refused_record_is_said),
	FIXTURE_TEST(a_sweep_is_given_up_after_a_day),
	FIXTURE_TEST(folders_of_nobody_go),
};
UNIT_MAIN(tests)
