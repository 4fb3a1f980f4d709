/* test_life.c - lives of jobs over the real control plane: restarts between all steps, ends, stops
 * in every state, gangs. */
#include "server_fixture.h"

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
	/* there is room: placed in the reply, if not on its way already */
	assert_true(j.core.state == JOB_CREATED || j.core.state == JOB_DEPLOYING);
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

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(every_step_survives_a_restart),
	FIXTURE_TEST(a_crash_between_intent_and_launch),
	FIXTURE_TEST(exits_decide),
	FIXTURE_TEST(stops_in_every_state),
	FIXTURE_TEST(a_gang_starts_and_ends_together),
	FIXTURE_TEST(a_claim_that_fails_for_good_ends_the_job),
	FIXTURE_TEST(the_first_node_says_the_image),
	FIXTURE_TEST(a_gang_is_idle_when_all_of_it_is),
	FIXTURE_TEST(idle_gpu_wants_gpus_that_are_measured),
};
UNIT_MAIN(tests)
