/* test_life.c - lives of jobs over the real control plane: restarts between all steps, lost and
 * late runners, stops in every state, gangs, retries, weights, checkpoints that are loaded. */
#include "server_fixture.h"

#include "core/resumable.h"
#include "server/api/exec.h"

#include <signal.h>

static void every_step_survives_a_restart(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct wire_desired o = {0};
	struct wire_launch l, again;
	struct principal *w;
	int64_t started_ms;

	assert_ok(fixture_push(f, "", "", &j), &f->err);
	assert_string_equal(j.name, "job-1");
	assert_int_equal(j.core.state, JOB_CREATED); /* there is room: placed in the reply */
	fixture_restart(f);
	fixture_await(f, j.id, JOB_DEPLOYING);
	fixture_restart(f);
	w = fixture_runner(f, j.id, 0);
	l = fixture_claim(f, w, "nonce-1");
	assert_string_equal(l.job_id, j.id);
	assert_int_equal(l.retry_count, 0);
	fixture_restart(f);
	again = fixture_claim(f, w, "nonce-1"); /* the answer was lost: the same one */
	assert_string_equal(again.spec_json, l.spec_json);
	assert_err(runner_ops.claim(AS(f, w), "nonce-2", &again, &f->err), &f->err, ERR_CONFLICT,
	           "another");
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(!o.go && !o.stop);
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
	fixture_restart(f);
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err); /* said again: nothing happens */
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(o.go && !o.stop);
	j = fixture_job(f, j.id);
	assert_true(j.started_ms > 0 && j.ended_ms == 0); /* `ps` shows how long it runs */
	started_ms = j.started_ms;
	fixture_exit(f, w, JOB_END_EXIT, 0);
	fixture_restart(f);
	fixture_exit(f, w, JOB_END_EXIT, 7); /* late, and another story: the first one holds */
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_COMPLETED);
	/* the runner's clock is of 1970: what it says is moved to ours, not stretched */
	assert_int_equal(j.started_ms, started_ms);
	assert_int_equal(j.ended_ms - j.started_ms, 2000);
	assert_err(job_ops.stop(ADMIN(f), j.id, false, &j, &f->err), &f->err, ERR_CONFLICT,
	           "COMPLETED");
}

static void a_crash_between_intent_and_launch(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct model_attempt *t = NULL;
	struct timespec past[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct principal *early = NULL, *w;
	size_t n = 0;

	assert_ok(fixture_push(f, "", "", &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	/* as if the engine had been asked, and nothing stored */
	early = fixture_runner(f, j.id, 0);
	fixture_kill_runners(f);
	assert_ok(meta_attempt(f->app->meta, f->a, early->attempt_id, &t, &n, &f->err), &f->err);
	assert_ok(meta_attempt_launching(f->app->meta, t[0].id, 0, "x", 1, &f->err), &f->err);
	/* ten seconds later: a runner could have been on its way until then */
	assert_int_equal(
		utimensat(AT_FDCWD,
	                  app_path(f->app, f->a, arena_printf(f->a, "%s/launch.json", t[0].dir)),
	                  past, 0),
		0);
	fixture_restart(f);
	w = fixture_runner(f, j.id, 0);
	(void)fixture_claim(f, w, "n");
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_DEPLOYING);
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_COMPLETED);
}

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

#define FAILURE "\"retry\":{\"max_attempts\":3,\"on\":[\"failure\"]}"

static void exits_decide(void **state)
{
	static const struct {
		const char *name, *retry;
		enum job_end end;
		int code;
		enum job_state want;
	} rows[] = {
		{"a signal", "", JOB_END_SIGNAL, 11, JOB_FAILED},
		{"out of memory", "", JOB_END_OOM, 0, JOB_FAILED},
		{"a code that is not named", "\"retry\":{\"max_attempts\":3,\"on\":[\"exit:75\"]}",
	         JOB_END_EXIT, 1, JOB_FAILED},
		{"a code that is named", "\"retry\":{\"max_attempts\":3,\"on\":[\"exit:75\"]}",
	         JOB_END_EXIT, 75, JOB_PENDING},
		{"any failure: a code", FAILURE, JOB_END_EXIT, 1, JOB_PENDING},
		{"any failure: a signal", FAILURE, JOB_END_SIGNAL, 9, JOB_PENDING},
		{"any failure: out of memory", FAILURE, JOB_END_OOM, 0, JOB_PENDING},
		{"any failure: success is none", FAILURE, JOB_END_EXIT, 0, JOB_COMPLETED},
		{"any failure: its own time limit", FAILURE, JOB_END_TIMEOUT, 0, JOB_FAILED},
		{"any failure: idle GPUs", FAILURE, JOB_END_IDLE, 60, JOB_FAILED},
		{"any failure: a lost node is another matter", FAILURE, JOB_END_LOST, 0,
	         JOB_FAILED},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct model_job j = {0};
		struct principal *w = fixture_running(f, "", rows[i].retry, &j);

		fixture_exit(f, w, rows[i].end, rows[i].code);
		assert_row(fixture_job(f, j.id).core.state == rows[i].want, rows[i].name);
		if (rows[i].want == JOB_PENDING)
			assert_ok(job_ops.stop(ADMIN(f), j.id, false, &j, &f->err), &f->err);
	}
}

static void stops_in_every_state(void **state)
{
	struct fixture *f = *state;
	struct model_job a = {0}, b = {0}, c = {0};
	struct wire_desired o = {0};
	struct wire_launch l = {0};
	struct principal *w;
	int64_t five = 5;
	bool spot = true;
	struct model_change change = {&five, &spot};

	/* RUNNING: the runner is told, its end is STOPPED whatever it is */
	w = fixture_running(f, "", "", &a);
	assert_ok(job_ops.stop(ADMIN(f), a.id, false, &a, &f->err), &f->err);
	assert_int_equal(a.core.state, JOB_STOPPING);
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(o.stop && !o.now);
	assert_ok(job_ops.stop(ADMIN(f), a.id, true, &a, &f->err), &f->err);
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(o.stop && o.now);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	assert_int_equal(fixture_job(f, a.id).core.state, JOB_STOPPED);

	/* DEPLOYING and unclaimed: the claim is refused, and the end needs no runner's word */
	assert_ok(fixture_push(f, "", "", &b), &f->err);
	fixture_await(f, b.id, JOB_DEPLOYING);
	w = fixture_runner(f, b.id, 0);
	assert_ok(job_ops.stop(ADMIN(f), b.id, false, &b, &f->err), &f->err);
	assert_err(runner_ops.claim(AS(f, w), "n", &l, &f->err), &f->err, ERR_CONFLICT, "over");
	fixture_kill_runners(f);
	fixture_reconcile(f);
	assert_int_equal(fixture_job(f, b.id).core.state, JOB_STOPPED);

	/* PENDING: at once. The machine is full: 4 CPUs */
	assert_ok(fixture_push(f, "", "\"name\":\"big\"", &b), &f->err);
	assert_ok(fixture_push(f, "", "", &b), &f->err);
	assert_ok(fixture_push(f, "", "", &b), &f->err);
	assert_ok(fixture_push(f, "", "", &b), &f->err);
	assert_ok(fixture_push(f, "", "", &c), &f->err);
	assert_int_equal(c.core.state, JOB_PENDING);
	assert_non_null(strstr(c.reason, "waits"));
	assert_ok(job_ops.change(ADMIN(f), c.id, &change, &c, &f->err), &f->err);
	assert_int_equal(c.priority, 5);
	assert_true(c.spot);
	assert_non_null(strstr(c.spec_json, "\"spot\""));
	assert_ok(job_ops.stop(ADMIN(f), c.id, false, &c, &f->err), &f->err);
	assert_int_equal(c.core.state, JOB_STOPPED);
	assert_err(job_ops.change(ADMIN(f), c.id, &change, &c, &f->err), &f->err,
	           ERR_JOB_NOT_PENDING, "");
	assert_ok(job_ops.remove(ADMIN(f), c.id, &f->err), &f->err);
	assert_err(job_ops.get(ADMIN(f), NULL, c.id, &c, &f->err), &f->err, ERR_NOT_FOUND, "job");
}

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"
#define TWOS "2222222222222222222222222222222222222222222222222222222222222222"

/* Two nodes of a GPU each. */
static int push_gang(struct fixture *f, const char *limits, const char *runtime,
                     struct model_job *out)
{
	const struct doc *d = NULL;

	assert_ok(js_parse(f->a,
	                   str_of(arena_printf(f->a,
	                                       "{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\","
	                                       "\"node_count\":2,\"accelerator\":\"H100:1\"},"
	                                       "\"limits\":{%s},"
	                                       "\"runtime\":{\"start_commands\":[\"true\"]%s}}",
	                                       limits, runtime)),
	                   &d, &f->err),
	          &f->err);
	return fixture_push_doc(f, d, NULL, out);
}

/* Two nodes find the tag moved between them: one image stays with the job, and with what is made of
 * it. One whose attempt is over says nothing. */
static void the_first_node_says_the_image(void **state)
{
	struct fixture *f = *state;
	const struct wire_image one = {ONES, "r.example/a@sha256:" TWOS}, two = {TWOS, NULL};
	struct wire_image out = {0};
	struct model_job j = {0}, k = {0};
	struct wire_launch l;
	struct principal *r0, *r1;

	assert_ok(push_gang(f, "", "", &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	r0 = fixture_runner(f, j.id, 0);
	r1 = fixture_runner(f, j.id, 1);
	assert_false(fixture_claim(f, r0, "a").has_image);
	assert_false(fixture_claim(f, r1, "b").has_image);
	assert_ok(runner_ops.image(AS(f, r1), &one, &out, &f->err), &f->err);
	assert_string_equal(out.id, one.id);
	assert_ok(runner_ops.image(AS(f, r0), &two, &out, &f->err), &f->err);
	assert_string_equal(out.id, one.id);
	assert_string_equal(out.reference, one.reference);
	fixture_exit(f, r0, JOB_END_DEPLOY_FAILED, 0);
	fixture_exit(f, r1, JOB_END_DEPLOY_FAILED, 0);
	assert_err(runner_ops.image(AS(f, r0), &two, &out, &f->err), &f->err, ERR_CONFLICT, "");

	assert_ok(push_ops.again(ADMIN(f), j.id, false, &k, &f->err), &f->err);
	fixture_await(f, k.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_true(l.has_image);
	assert_string_equal(l.image.id, one.id);
	assert_string_equal(l.image.reference, one.reference);
}

static void a_gang_starts_and_ends_together(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *r0, *r1;
	struct wire_desired o = {0};

	assert_ok(push_gang(f, "", "", &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	r0 = fixture_runner(f, j.id, 0);
	r1 = fixture_runner(f, j.id, 1);
	assert_int_equal(fixture_claim(f, r0, "a").n_gpus, 1);
	assert_int_equal(fixture_claim(f, r1, "b").node_rank, 1);
	assert_ok(runner_ops.ready(AS(f, r0), &f->err), &f->err);
	assert_ok(runner_ops.desired(AS(f, r0), &o, &f->err), &f->err);
	assert_false(o.go);
	assert_ok(runner_ops.ready(AS(f, r1), &f->err), &f->err);
	assert_ok(runner_ops.desired(AS(f, r0), &o, &f->err), &f->err);
	assert_true(o.go);
	fixture_exit(f, r1, JOB_END_EXIT, 9);
	assert_int_equal(fixture_job(f, j.id).core.state, JOB_RUNNING);
	assert_ok(runner_ops.desired(AS(f, r0), &o, &f->err), &f->err);
	assert_true(o.stop);
	fixture_exit(f, r0, JOB_END_STOPPED, 0);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_FAILED);
	assert_int_equal(j.end_code, 9); /* the cause, not the consequence */
}

/* As if the database had been damaged, or somebody else had changed it. */
static void change_row(struct fixture *f, const char *sql, const char *id)
{
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	assert_ok(db_open(&db, arena_printf(f->a, "sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	assert_ok(db_begin(db, DB_WRITE, &tx, &f->err), &f->err);
	assert_ok(db_exec(&tx, sql, DB_ARGS(db_text(id)), &changed, &f->err), &f->err);
	assert_int_equal(changed, 1);
	assert_ok(db_commit(&tx, &f->err), &f->err);
}

/* What a claim cannot read now it will never read: the job ends with the cause, on all nodes. */
static void a_claim_that_fails_for_good_ends_the_job(void **state)
{
	static const struct {
		const char *sql, *id;
	} cases[] = {
		{"DELETE FROM secrets WHERE team_id IN (SELECT team_id FROM jobs WHERE id = ?)",
	         "secret_not_found"},
		{"UPDATE secrets SET sealed = x'00' WHERE team_id IN"
	         " (SELECT team_id FROM jobs WHERE id = ?)",
	         "corrupt"},
		{"UPDATE jobs SET spec_json = '{' WHERE id = ?", "stored_spec_unreadable"},
		{"UPDATE jobs SET frozen_json = '{' WHERE id = ?", "invalid"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct principal *r0, *r1;
		struct model_secret s = {0};
		struct wire_desired o = {0};
		struct wire_launch l = {0};
		struct model_job j = {0};

		assert_ok(secret_ops.set(ADMIN(f), NULL, "key", STR_LIT("s3cr3t"), &s, &f->err),
		          &f->err);
		assert_ok(push_gang(f, "", ",\"environment_variables\":{\"A\":{\"name\":\"key\"}}",
		                    &j),
		          &f->err);
		fixture_await(f, j.id, JOB_DEPLOYING);
		r0 = fixture_runner(f, j.id, 0);
		r1 = fixture_runner(f, j.id, 1);
		(void)fixture_claim(f, r1, "b");
		change_row(f, cases[i].sql, j.id);
		assert_true(runner_ops.claim(AS(f, r0), "a", &l, &f->err) < 0);
		err_clear(&f->err);
		j = fixture_job(f, j.id);
		assert_int_equal(j.core.state, JOB_DEPLOY_FAILED);
		assert_string_equal(j.error_id, cases[i].id);
		/* its runner asks again and goes; so does the other node's */
		assert_err(runner_ops.claim(AS(f, r0), "a", &l, &f->err), &f->err, ERR_CONFLICT,
		           "over");
		assert_ok(runner_ops.desired(AS(f, r1), &o, &f->err), &f->err);
		assert_true(o.stop && o.now && !o.go);
		fixture_kill_runners(f);
		fixture_reconcile(f);
	}
}

static bool told_to_end_idle(struct fixture *f, struct principal *w, bool idle)
{
	struct wire_heartbeat hb = {.stage = STAGE_RUNNING, .idle = idle};
	struct wire_desired o = {0};

	assert_ok(runner_ops.heartbeat(AS(f, w), &hb, &f->err), &f->err);
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_false(o.stop);
	return o.idle;
}

/* limits.idle_gpu: a node that waits for another one that works is no hang. */
static void a_gang_is_idle_when_all_of_it_is(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct wire_desired before = {0}, o = {0};
	struct principal *a, *b;

	assert_ok(push_gang(f, "", "", &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	a = fixture_runner(f, j.id, 0);
	b = fixture_runner(f, j.id, 1);
	(void)fixture_claim(f, a, "na");
	(void)fixture_claim(f, b, "nb");
	assert_ok(runner_ops.ready(AS(f, a), &f->err), &f->err);
	assert_ok(runner_ops.ready(AS(f, b), &f->err), &f->err);
	assert_false(told_to_end_idle(f, a, true));
	assert_false(told_to_end_idle(f, b, false));
	assert_ok(runner_ops.desired(AS(f, a), &before, &f->err), &f->err);
	fixture_restart(f);
	assert_true(told_to_end_idle(f, b, true));
	assert_ok(runner_ops.desired(AS(f, a), &o, &f->err), &f->err);
	assert_true(o.idle && o.seq != before.seq);
	assert_false(told_to_end_idle(f, a, false)); /* at work again */
	fixture_exit(f, b, JOB_END_IDLE, 1800);
	assert_ok(runner_ops.desired(AS(f, a), &o, &f->err), &f->err);
	assert_true(o.stop); /* as after any bad end */
	fixture_exit(f, a, JOB_END_STOPPED, 0);
	j = fixture_job(f, j.id);
	assert_int_equal(j.core.state, JOB_FAILED);
	assert_int_equal(j.end, JOB_END_IDLE);
	assert_non_null(strstr(j.error_message, "idle GPUs for 30m"));
}

/* What declared GPUs do cannot be asked. */
static void idle_gpu_wants_gpus_that_are_measured(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};

	assert_err(push_gang(f, "\"idle_gpu\":\"30m\"", "", &j), &f->err, ERR_QUOTA,
	           "limits.max_duration");
}

static void weights_are_frozen_and_shared(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0}, k = {0};
	struct model_mirror *x = NULL;
	struct wire_launch l, m;
	const char *weights;
	uint64_t freed = 0, all = 0;
	size_t n = 0;

	make_source(f);
	weights = source_weights(f);
	assert_ok(fixture_push(f, "", weights, &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, j.id, 0), "a");
	assert_int_equal(l.n_weights, 1);
	assert_int_equal(l.weights[0].files, 2);
	assert_int_equal(l.weights[0].bytes, 12);
	assert_ok(mirror_ops.list(ADMIN(f), &x, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_int_equal(x[0].state, MIRROR_READY);
	assert_err(mirror_ops.remove(ADMIN(f), x[0].id, &freed, &f->err), &f->err, ERR_CONFLICT,
	           "in use");
	fixture_exit(f, fixture_runner(f, j.id, 0), JOB_END_DEPLOY_FAILED, 0);

	/* the source changes; a recreated job has the bytes of the first */
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/sources/model/new.txt", f->dir),
	                          STR_LIT("x"), 0644, &f->err),
	          &f->err);
	assert_ok(push_ops.again(ADMIN(f), j.id, false, &k, &f->err), &f->err);
	assert_string_equal(k.recreated_from, j.id);
	fixture_await(f, k.id, JOB_DEPLOYING);
	m = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_string_equal(m.weights[0].manifest, l.weights[0].manifest);
	fixture_exit(f, fixture_runner(f, k.id, 0), JOB_END_DEPLOY_FAILED, 0);
	/* a new one has the new bytes */
	assert_ok(fixture_push(f, "", weights, &k), &f->err);
	fixture_await(f, k.id, JOB_DEPLOYING);
	m = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_string_not_equal(m.weights[0].manifest, l.weights[0].manifest);
	fixture_exit(f, fixture_runner(f, k.id, 0), JOB_END_DEPLOY_FAILED, 0);
	/* both mirrors share the first files: they go with the second */
	assert_ok(mirror_ops.list(ADMIN(f), &x, &n, &f->err), &f->err);
	assert_int_equal(n, 2);
	for (size_t i = 0; i < n; i++) {
		assert_ok(mirror_ops.remove(ADMIN(f), x[i].id, &freed, &f->err), &f->err);
		all += freed;
	}
	assert_int_equal(all, 12 + 1);
	assert_int_equal(blobs_in_store(f), 0);
}

static void manifests_that_nothing_names_are_collected(void **state)
{
	struct fixture *f = *state;
	const struct mirror_ages none = {0, MIRROR_NOT_LOOSE}, hour = {3600, MIRROR_NOT_LOOSE};
	struct blobs_collected gone;
	struct blobs_way way = {0};
	struct model_mirror *x = NULL;
	struct model_job j = {0};
	struct blob_pins *pins;
	struct wire_launch l;
	struct digest name;
	size_t n = 0;

	make_source(f);
	assert_ok(fixture_push(f, "", source_weights(f), &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, j.id, 0), "a");
	assert_int_equal(l.n_weights, 1);
	assert_ok(mirror_ops.list(ADMIN(f), &x, &n, &f->err), &f->err);
	assert_ok(mirror_collect(f->app, NULL, &none, &way, &gone, &f->err), &f->err);
	assert_int_equal(gone.manifests, 0); /* a mirror names it */
	forget_mirror(f, x[0].id);
	assert_ok(mirror_collect(f->app, NULL, &none, &way, &gone, &f->err), &f->err);
	assert_int_equal(gone.manifests, 0); /* a job that runs does */
	fixture_exit(f, fixture_runner(f, j.id, 0), JOB_END_DEPLOY_FAILED, 0);
	assert_ok(mirror_collect(f->app, NULL, &hour, &way, &gone, &f->err), &f->err);
	assert_int_equal(gone.manifests, 0);
	/* a fetch that runs relies on it */
	assert_ok(digest_parse(str_of(l.weights[0].manifest), &name, &f->err), &f->err);
	pins = blob_pins_new(f->app->blobs);
	blob_pins_add(pins, &name);
	assert_ok(mirror_collect(f->app, NULL, &none, &way, &gone, &f->err), &f->err);
	assert_int_equal(gone.manifests, 0);
	blob_pins_free(pins);
	assert_ok(mirror_collect(f->app, NULL, &none, &way, &gone, &f->err), &f->err);
	assert_int_equal(gone.manifests, 1);
	assert_int_equal(gone.bytes, 12);
	assert_int_equal(blobs_in_store(f), 0);
}

/* What can be known at the push is refused there, and leaves nothing; the rest fails later. */
static void bad_inputs_are_refused(void **state)
{
	static const struct {
		const char *runtime, *extra;
		enum err_code id;
	} rows[] = {
		{"", "\"weights\":[{\"source\":\"file:///etc\",\"mount_location\":\"/m\"}]",
	         ERR_SOURCE_ROOT_DENIED},
		{",\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":["
	         "{\"typ\":\"baseten_named_checkpoint\",\"checkpoint_name\":\"c\",\"job_id\":\"x\"}"
	         "]}",
	         "", ERR_JOB_NOT_FOUND},
		{",\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":["
	         "{\"typ\":\"baseten_latest_checkpoint\",\"project_name\":\"x\"}]}",
	         "", ERR_PROJECT_NOT_FOUND},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct model_job j = {0};

		assert_err(fixture_push(f, rows[i].runtime, rows[i].extra, &j), &f->err, rows[i].id,
		           "");
		err_clear(&f->err);
	}
}

static void bad_inputs_fail_by_name(void **state)
{
	static const struct {
		const char *runtime, *extra, *id;
	} rows[] = {
		{"",
	         "\"weights\":[{\"source\":\"https://localhost:1/x\",\"mount_location\":\"/m\"}]",
	         "address_denied"},
		{",\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":["
	         "{\"typ\":\"baseten_latest_checkpoint\"}]}",
	         "", "checkpoint_not_found"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct model_job j = {0};

		assert_ok(fixture_push(f, rows[i].runtime, rows[i].extra, &j), &f->err);
		fixture_await(f, j.id, JOB_DEPLOY_FAILED);
		j = fixture_job(f, j.id);
		assert_string_equal(j.error_id, rows[i].id);
	}
}

static void checkpoints_are_chosen(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0}, k = {0};
	struct principal *w =
		fixture_running(f, ",\"checkpointing_config\":{\"enabled\":true}", "", &j);
	struct model_checkpoint c = {.name = "checkpoint-1",
	                             .state = CKPT_COMPLETE,
	                             .kind = "full",
	                             .created_ms = 10,
	                             .bytes = 5,
	                             .files = 1},
				*rows = NULL;
	struct wire_launch l;
	size_t n = 0;

	fixture_ship(f, &j, c.name);
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	c.name = "checkpoint-2";
	c.state = CKPT_SYNCING;
	c.created_ms = 20;
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_string_equal(fixture_job(f, j.id).sync_status, "SYNCING");
	fixture_exit(f, w, JOB_END_EXIT, 1);
	assert_string_equal(fixture_job(f, j.id).sync_status, "COMPLETED");
	assert_ok(checkpoint_ops.list(ADMIN(f), j.id, false, &rows, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_ok(checkpoint_ops.list(ADMIN(f), j.id, true, &rows, &n, &f->err), &f->err);
	assert_int_equal(n, 2);
	assert_int_equal(rows[1].state, CKPT_INCOMPLETE);
	assert_ok(
		fixture_push(f,
	                     ",\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":["
	                     "{\"typ\":\"baseten_latest_checkpoint\",\"project_name\":\"demo\"}]}",
	                     "", &k),
		&f->err);
	fixture_await(f, k.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_int_equal(l.n_load, 1);
	assert_string_equal(l.load[0].name, "checkpoint-1"); /* the newer one is incomplete */
	assert_string_equal(l.load[0].dir, "rank-0");
	assert_ok(checkpoint_ops.remove(ADMIN(f), j.id, "checkpoint-1", &f->err), &f->err);
	assert_err(checkpoint_ops.remove(ADMIN(f), j.id, "checkpoint-1", &f->err), &f->err,
	           ERR_NOT_FOUND, "no checkpoint");
}

static void only_the_newest_checkpoints_are_kept(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(
		f, ",\"checkpointing_config\":{\"enabled\":true,\"keep_last\":2}", "", &j);
	struct model_checkpoint c = {.state = CKPT_COMPLETE, .kind = "full", .bytes = 5},
				*rows = NULL;
	size_t n = 0;

	for (int i = 1; i <= 4; i++) {
		c.name = arena_printf(f->a, "checkpoint-%d", i);
		c.created_ms = i;
		fixture_ship(f, &j, c.name);
		assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	}
	assert_ok(checkpoint_ops.list(ADMIN(f), j.id, true, &rows, &n, &f->err), &f->err);
	assert_int_equal(n, 2);
	assert_string_equal(rows[0].name, "checkpoint-3");
}

static void checkpoints_are_deleted_while_the_job_runs(void **state)
{
	static const char conflict[] = "checkpoint";
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w =
		fixture_running(f, ",\"checkpointing_config\":{\"enabled\":true}", "", &j);
	struct model_checkpoint c = {.name = "checkpoint-1",
	                             .state = CKPT_SYNCING,
	                             .kind = "full",
	                             .created_ms = 10,
	                             .bytes = 5},
				*rows = NULL;
	size_t n = 0;

	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_err(checkpoint_ops.remove(ADMIN(f), j.id, c.name, &f->err), &f->err, ERR_CONFLICT,
	           conflict);
	fixture_ship(f, &j, c.name);
	c.state = CKPT_COMPLETE;
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_ok(checkpoint_ops.remove(ADMIN(f), j.id, c.name, &f->err), &f->err);
	/* a runner that says so again does not make it one */
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_ok(checkpoint_ops.list(ADMIN(f), j.id, true, &rows, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_int_equal(rows[0].state, CKPT_INCOMPLETE);
	/* what lies loose in the folder grows until the end */
	c.name = ".";
	fixture_ship(f, &j, c.name);
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_err(checkpoint_ops.remove(ADMIN(f), j.id, c.name, &f->err), &f->err, ERR_CONFLICT,
	           conflict);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	assert_ok(checkpoint_ops.remove(ADMIN(f), j.id, ".", &f->err), &f->err);
	assert_ok(checkpoint_ops.remove(ADMIN(f), j.id, "checkpoint-1", &f->err), &f->err);
}

static void print(struct fixture *f, const struct principal *w, const char *id, uint64_t offset,
                  const char *text, int exit_code, uint64_t next, enum wire_exec_state state)
{
	AUTO_BUF struct buf frames = BUF_INIT((size_t)1 << 20);
	enum wire_exec_state is = EXEC_STATE_COUNT;
	uint64_t n = 0;

	if (text != NULL)
		frame_put(&frames, FRAME_OUT, str_of(text));
	assert_ok(exec_ops.runner_output(AS(f, w), id, offset, buf_view(&frames), exit_code, &n,
	                                 &is, &f->err),
	          &f->err);
	assert_int_equal(n, next);
	assert_int_equal(is, state);
}

static void commands_inside_a_job(void **state)
{
	static const char *argv[] = {"ls", "-l"};
	const struct wire_exec ls = {.argv = argv, .n_argv = 2};
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	struct wire_desired before = {0}, o = {0};
	enum wire_exec_state is;
	struct exec_state s = {0};
	char *id = NULL;
	uint64_t n = 0;

	assert_ok(runner_ops.desired(AS(f, w), &before, &f->err), &f->err);
	assert_err(exec_ops.start(ADMIN(f), j.id, 3, &ls, &id, &f->err), &f->err, ERR_INVALID,
	           "no node");
	assert_ok(exec_ops.start(ADMIN(f), j.id, 0, &ls, &id, &f->err), &f->err);
	assert_ok(runner_ops.desired(AS(f, w), &o, &f->err), &f->err);
	assert_true(o.seq != before.seq && o.n_exec == 1);
	assert_string_equal(o.exec[0].argv[1], "-l");
	assert_err(
		exec_ops.runner_output(AS(f, w), id, 0, STR_LIT("\4\0\0\0"), -1, &n, &is, &f->err),
		&f->err, ERR_INVALID, "invalid output frames");
	assert_err(exec_ops.runner_output(AS(f, w), id, 7, (struct str){0}, -1, &n, &is, &f->err),
	           &f->err, ERR_CONFLICT, "from 0");
	print(f, w, id, 0, "total 0\n", -1, 12, EXEC_LIVE);
	print(f, w, id, 0, "total 0\n", -1, 12, EXEC_LIVE); /* sent again */
	print(f, w, id, 12, "end\n", 4, 20, EXEC_OVER);
	assert_ok(exec_ops.poll(ADMIN(f), j.id, id, 12, &s, &f->err), &f->err);
	assert_true(s.done && s.exit_code == 4 && s.next_offset == 20);
	assert_true(str_same(s.frames, STR_LIT("\2\0\0\4end\n")));
	assert_err(exec_ops.poll(ADMIN(f), j.id, id, 0, &s, &f->err), &f->err, ERR_CONFLICT,
	           "12 to 20");
	assert_ok(exec_ops.start(ADMIN(f), j.id, 0, &ls, &id, &f->err), &f->err);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	assert_ok(exec_ops.poll(ADMIN(f), j.id, id, 0, &s, &f->err), &f->err);
	assert_true(s.done && s.exit_code == 255);
	assert_err(exec_ops.start(ADMIN(f), j.id, 0, &ls, &id, &f->err), &f->err,
	           ERR_JOB_NOT_RUNNING, "");
}

static void give(struct fixture *f, const char *job, const char *id, const struct exec_input *in,
                 uint64_t next)
{
	uint64_t n = 0;

	assert_ok(exec_ops.input(ADMIN(f), job, id, in, &n, &f->err), &f->err);
	assert_int_equal(n, next);
}

static void input_of_a_command(void **state)
{
	static const char *argv[] = {"cat"};
	const struct wire_exec deaf = {.argv = argv, .n_argv = 1},
			       shell = {.tty = true, .input = true};
	struct exec_input hi = {.bytes = STR_LIT("hi"), .rows = 2, .columns = 3};
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w = fixture_running(f, "", "", &j);
	enum wire_exec_state is = EXEC_STATE_COUNT;
	struct str frames;
	char *id = NULL;
	uint64_t n = 0;

	assert_ok(exec_ops.start(ADMIN(f), j.id, 0, &deaf, &id, &f->err), &f->err);
	assert_err(exec_ops.input(ADMIN(f), j.id, id, &hi, &n, &f->err), &f->err, ERR_CONFLICT,
	           "without input");
	assert_ok(exec_ops.start(ADMIN(f), j.id, 0, &shell, &id, &f->err), &f->err);
	give(f, j.id, id, &hi, 2);
	hi.rows = 0;
	give(f, j.id, id, &hi, 2); /* sent again */
	give(f, j.id, id, &(struct exec_input){.offset = 2, .end = true}, 2);
	assert_err(
		exec_ops.input(ADMIN(f), j.id, id, &(struct exec_input){.offset = 9}, &n, &f->err),
		&f->err, ERR_CONFLICT, "go on from 2");
	assert_ok(exec_ops.runner_input(AS(f, w), id, 0, &frames, &is, &f->err), &f->err);
	assert_true(str_same(frames, STR_LIT("\6\0\0\4\0\2\0\3\4\0\0\2hi\5\0\0\0")));
	assert_int_equal(is, EXEC_LIVE);
	print(f, w, id, 0, "x", -1, 5, EXEC_LIVE);

	/* who started it is not heard of any more */
	clock_fake(clock_wall_ms(), clock_mono_ms() + EXEC_AWAY_MS + 1);
	assert_ok(exec_ops.runner_input(AS(f, w), id, 0, &frames, &is, &f->err), &f->err);
	assert_int_equal(is, EXEC_HUNG);
	print(f, w, id, 5, "bye", -1, 12, EXEC_HUNG); /* for nobody */
	assert_err(exec_ops.input(ADMIN(f), j.id, id, &hi, &n, &f->err), &f->err, ERR_CONFLICT,
	           "was ended");
	print(f, w, id, 12, NULL, 129, 12, EXEC_OVER);

	assert_ok(exec_ops.start(ADMIN(f), j.id, 0, &shell, &id, &f->err), &f->err);
	assert_ok(exec_ops.leave(ADMIN(f), j.id, id, EXEC_LEFT, &f->err), &f->err);
	clock_fake(clock_wall_ms(), clock_mono_ms() + EXEC_AWAY_MS + 1);
	assert_ok(exec_ops.runner_input(AS(f, w), id, 0, &frames, &is, &f->err), &f->err);
	assert_int_equal(is, EXEC_LEFT);
	clock_fake(-1, -1);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(every_step_survives_a_restart),
	FIXTURE_TEST(a_crash_between_intent_and_launch),
	FIXTURE_TEST(a_lost_runner_is_tried_again),
	FIXTURE_TEST(a_slow_sweep_holds_nobody),
	FIXTURE_TEST(a_runner_that_does_not_stop_is_ended),
	FIXTURE_TEST(what_a_sweep_tells_is_the_end),
	FIXTURE_TEST(a_sweep_is_told_when_it_is_the_last),
	FIXTURE_TEST(a_refused_record_is_said),
	FIXTURE_TEST(a_sweep_is_given_up_after_a_day),
	FIXTURE_TEST(folders_of_nobody_go),
	FIXTURE_TEST(exits_decide),
	FIXTURE_TEST(stops_in_every_state),
	FIXTURE_TEST(a_gang_starts_and_ends_together),
	FIXTURE_TEST(a_claim_that_fails_for_good_ends_the_job),
	FIXTURE_TEST(the_first_node_says_the_image),
	FIXTURE_TEST(a_gang_is_idle_when_all_of_it_is),
	FIXTURE_TEST(idle_gpu_wants_gpus_that_are_measured),
	FIXTURE_TEST(weights_are_frozen_and_shared),
	FIXTURE_TEST(manifests_that_nothing_names_are_collected),
	FIXTURE_TEST(bad_inputs_are_refused),
	FIXTURE_TEST(bad_inputs_fail_by_name),
	FIXTURE_TEST(checkpoints_are_chosen),
	FIXTURE_TEST(only_the_newest_checkpoints_are_kept),
	FIXTURE_TEST(checkpoints_are_deleted_while_the_job_runs),
	FIXTURE_TEST(commands_inside_a_job),
	FIXTURE_TEST(input_of_a_command),
};
UNIT_MAIN(tests)
