/* test_serving.c - which jobs take requests, as their runners say; the test is the runners. */
#include "server_fixture.h"
#include "server/control/deployments.h"
#include "server/control/serving.h"
#include "server/control/unserved.h"

#define PORT 40000
#define SERVE ",\"serve\":{\"name\":\"mine\",\"health\":\"/up\"}"

static void beat(struct fixture *f, const struct principal *w, bool serves)
{
	struct wire_heartbeat hb = {.stage = STAGE_RUNNING, .serve_port = PORT, .serves = serves};

	assert_ok(runner_ops.heartbeat(AS(f, w), &hb, &f->err), &f->err);
}

/* Of a request that goes to a job, which is answered. */
static bool taken(struct fixture *f, struct serving_target *to)
{
	*to = (struct serving_target){0};
	assert_ok(serving_ops.take(ADMIN(f), "mine", to, &f->err), &f->err);
	if (to->attempt_id != NULL)
		serving_ops.give(f->app, to->attempt_id, false);
	return to->attempt_id != NULL;
}

#define assert_taken(f, t)                                                                         \
	do {                                                                                       \
		assert_true(taken(f, t));                                                          \
		assert_int_equal((t)->port, PORT);                                                 \
	} while (0)
#define assert_waits(f, t)                                                                         \
	do {                                                                                       \
		assert_false(taken(f, t));                                                         \
		assert_true((t)->waits);                                                           \
	} while (0)
#define assert_refused(f, t, code, words)                                                          \
	assert_err(serving_ops.take(ADMIN(f), "mine", t, &(f)->err), &(f)->err, code, words)

/* A server that starts knows nothing of a job until its runner is heard: requests wait so long. */
static void who_asks_after_a_start_waits(void **state)
{
	struct fixture *f = *state;
	struct serving_target to;
	struct principal *w;
	struct model_job j;

	assert_refused(f, &to, ERR_NOT_FOUND, "mine");
	w = fixture_running(f, SERVE, "", &j);
	beat(f, w, false);
	assert_refused(f, &to, ERR_UNAVAILABLE, "/up");
	beat(f, w, true);
	assert_taken(f, &to);
	fixture_restart(f);
	assert_waits(f, &to);
	beat(f, w, true);
	assert_taken(f, &to);
	fixture_restart(f);
	beat(f, w, false);
	assert_refused(f, &to, ERR_UNAVAILABLE, "/up");
	/* it has been stopped, or has ended, and was not heard before */
	fixture_restart(f);
	assert_ok(job_ops.stop(ADMIN(f), j.id, false, &j, &f->err), &f->err);
	assert_refused(f, &to, ERR_UNAVAILABLE, "stopping");
	fixture_exit(f, w, JOB_END_STOPPED, 0);
	assert_refused(f, &to, ERR_NOT_FOUND, "mine");
}

/* Whatever has been pushed since, and names it elsewhere. */
static void who_asks_waits_for_an_old_job_too(void **state)
{
	struct fixture *f = *state;
	const struct doc *d = NULL;
	struct serving_target to;
	struct principal *w;
	struct model_job j;

	w = fixture_running(f, SERVE, "", &j);
	beat(f, w, true);
	assert_ok(js_parse(f->a,
	                   STR_LIT("{\"name\":\"mine\",\"compute\":{\"cpu_count\":1},"
	                           "\"runtime\":{\"start_commands\":[\"true\"]}}"),
	                   &d, &f->err),
	          &f->err);
	for (int i = 0; i < 201; i++)
		assert_ok(push_ops.push(ADMIN(f), f->project.id, d, NULL, &j, &f->err), &f->err);
	fixture_restart(f);
	assert_waits(f, &to);
}

/* After a takeover: its port is one of that machine, whatever its runner says here. */
static void a_job_of_another_machine_is_not_waited_for(void **state)
{
	struct fixture *f = *state;
	struct serving_target to;
	struct principal *w;
	struct model_job j;

	w = fixture_running(f, SERVE, "", &j);
	beat(f, w, true);
	assert_taken(f, &to);
	fixture_alter(f, "UPDATE attempts SET node = 'elsewhere', node_id = 'elsewhere'");
	fixture_restart(f);
	assert_refused(f, &to, ERR_UNAVAILABLE, j.id);
	beat(f, w, true);
	assert_refused(f, &to, ERR_UNAVAILABLE, j.id);
}

/* The next revision of the deployment that serves as mine, and its first job; env: of that. */
static struct deployment_view deployed_with(struct fixture *f, const char *env, int64_t replicas,
                                            int64_t idle_s)
{
	const struct deployment_want want = {
		.name = "mine",
		.checkpoint = "job/last",
		.project_id = f->project.id,
		.document_json = arena_printf(
			f->a,
			"{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\"},\"runtime\":{"
			"\"start_commands\":[\"true\"],\"environment_variables\":{%s}" SERVE
			"},\"retry\":{\"on\":[\"failure\"],\"max_attempts\":100}}",
			env),
		.replicas = replicas,
		.idle_s = idle_s};
	struct deployment_view v;

	assert_ok(deployment_ops.deploy(ADMIN(f), &want, &v, &f->err), &f->err);
	return v;
}

static struct deployment_view deployed(struct fixture *f, int64_t replicas, int64_t idle_s)
{
	return deployed_with(f, "", replicas, idle_s);
}

/* What it made would serve beside the deployment, under its name, and be nobody's. */
static void a_job_of_a_deployment_is_not_recreated(void **state)
{
	struct fixture *f = *state;
	struct model_job again = {0}, old = {0};
	struct deployment_view v = deployed(f, 1, 0);

#define assert_of(words)                                                                           \
	assert_err(push_ops.again(ADMIN(f), v.job_id, false, &again, &f->err), &f->err,            \
	           ERR_JOB_OF_DEPLOYMENT, words)
	assert_of(arena_printf(f->a, "stoker stop %s", v.job_id));
	(void)deployed(f, 1, 0);
	assert_of("stoker deploy JOB/CHECKPOINT --name mine");
	assert_ok(job_ops.stop(ADMIN(f), v.job_id, false, &old, &f->err), &f->err);
	assert_of("stoker deployments start mine");
	assert_ok(deployment_ops.remove(ADMIN(f), "mine", &f->err), &f->err);
	assert_ok(push_ops.again(ADMIN(f), v.job_id, false, &again, &f->err), &f->err);
	(void)deployed(f, 1, 0); /* another one, of the same name */
	assert_of("mine");
	assert_ok(push_ops.again(ADMIN(f), again.id, false, &again, &f->err), &f->err);
#undef assert_of
}

/* From the queue to its first command. */
static struct principal *run(struct fixture *f, const char *job_id)
{
	struct principal *w;

	fixture_await(f, job_id, JOB_DEPLOYING);
	w = fixture_runner(f, job_id, 0);
	(void)fixture_claim(f, w, "n1");
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
	fixture_await(f, job_id, JOB_RUNNING);
	return w;
}

static void end_with(struct fixture *f, const struct principal *w, int code, bool served)
{
	struct wire_exit x = {.end = JOB_END_EXIT,
	                      .code = code,
	                      .synced = true,
	                      .served = served,
	                      .user_code_ran = true,
	                      .started_ms = 1000,
	                      .ended_ms = 3000};

	assert_ok(runner_ops.exit(AS(f, w), &x, &f->err), &f->err);
}

static void print_line(struct fixture *f, const char *job_id, const char *text)
{
	AUTO_BUF struct buf records = BUF_INIT(4096);
	int64_t last_ns = 0;
	uint64_t next;

	logline_write(&records, clock_wall_ns(), &last_ns, 'o', str_of(text), false);
	assert_ok(joblogs_append(f->app->logs, job_id, fixture_job(f, job_id).attempt_id, 0, 0,
	                         buf_view(&records), false, &next, &f->err),
	          &f->err);
}

/* One that ends each time in the same way before it takes a request; not one that has taken some,
 * or that ends in another way. */
static void an_engine_that_never_comes_up(void **state)
{
	static const struct {
		int code[UNSERVED_MAX]; /* of all but the last attempt, and its */
		int served;             /* this attempt took requests; -1: none did */
		bool fails;
	} rows[] = {{{3, 3, 3, 3, 3}, -1, true},
	            {{0, 0, 0, 0, 0}, -1, true},
	            {{3, 3, 4, 3, 3}, -1, false},
	            {{3, 3, 3, 3, 3}, 0, false},
	            {{3, 3, 3, 3, 3}, 4, false}};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct deployment_view v = deployed(f, 1, 0);
		struct model_job j;

		for (int k = 0; k < UNSERVED_MAX; k++) {
			struct principal *w;

			fixture_alter(f, "UPDATE jobs SET changed_ms = 1"); /* without a pause */
			queue_pass(f->app);
			w = run(f, v.job_id);
			if (k == UNSERVED_MAX - 1)
				print_line(f, v.job_id, "ValueError: no such layer");
			end_with(f, w, rows[i].code[k], rows[i].served == k);
		}
		j = fixture_job(f, v.job_id);
		assert_int_equal(j.core.state, rows[i].fails ? JOB_FAILED : JOB_PENDING);
		if (!rows[i].fails)
			continue;
		assert_non_null(strstr(j.error_message, "so 5 times"));
		assert_non_null(strstr(j.error_message, "ValueError: no such layer"));
		deployments_pass(f->app);
		assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
		assert_int_equal(v.state, DEPLOYMENT_FAILED);
		assert_non_null(strstr(v.reason, "ValueError: no such layer"));
	}
}

/* Who asks after that hears of it, whether its jobs have ended or not. */
static void a_deployment_that_was_removed(void **state)
{
	struct fixture *f = *state;
	struct serving_target to;
	struct principal *w = run(f, deployed(f, 1, 0).job_id);

	beat(f, w, true);
	assert_taken(f, &to);
	assert_ok(deployment_ops.remove(ADMIN(f), "mine", &f->err), &f->err);
	assert_refused(f, &to, ERR_NOT_FOUND, "was removed");
	beat(f, w, true);
	assert_refused(f, &to, ERR_NOT_FOUND, "was removed");
	deployments_pass(f->app);
	assert_refused(f, &to, ERR_NOT_FOUND, "was removed");
}

static void assert_counts(struct fixture *f, uint64_t requests, uint64_t failures)
{
	struct deployment_view v, *all;
	size_t n = 0;

	assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
	assert_int_equal(v.requests, requests);
	assert_int_equal(v.failures, failures);
	assert_ok(deployment_ops.list(ADMIN(f), &all, &n, &f->err), &f->err);
	assert_int_equal(all[0].requests, requests);
	assert_int_equal(all[0].failures, failures);
}

/* Whatever becomes of the jobs that answered, what the deployment counts does not fall. */
static void counts_outlive_jobs(void **state)
{
	struct fixture *f = *state;
	struct deployment_view v = deployed(f, 1, 0);
	struct principal *w = run(f, v.job_id);
	struct serving_target to;

	assert_counts(f, 0, 0);
	beat(f, w, true);
	assert_taken(f, &to);
	assert_ok(serving_ops.take(ADMIN(f), "mine", &to, &f->err), &f->err);
	serving_ops.give(f->app, to.attempt_id, true);
	assert_counts(f, 2, 1);
	fixture_exit(f, w, JOB_END_EXIT, 3); /* its engine dies, and is started again */
	assert_counts(f, 2, 1);
	w = run(f, v.job_id);
	beat(f, w, true);
	assert_taken(f, &to);
	assert_counts(f, 3, 1);
	v = deployed(f, 1, 0);
	assert_ok(serving_ops.take(ADMIN(f), "mine", &to, &f->err), &f->err);
	fixture_exit(f, w, JOB_END_EXIT, 0); /* with one on its way, which fails */
	serving_ops.give(f->app, to.attempt_id, true);
	assert_counts(f, 4, 2);
	w = run(f, v.job_id);
	beat(f, w, true);
	assert_taken(f, &to);
	assert_counts(f, 5, 2);
	assert_ok(serving_ops.take(ADMIN(f), "mine", &to, &f->err), &f->err);
	assert_ok(deployment_ops.remove(ADMIN(f), "mine", &f->err), &f->err);
	serving_ops.give(f->app, to.attempt_id, true); /* of one that is no more */
	v = deployed(f, 1, 0);
	assert_counts(f, 0, 0);
}

/* A push that is refused for what it lacks, not because the deployment has changed, is tried again
 * after a while, and people are told why. */
static void what_a_push_lacks_is_said(void **state)
{
	struct fixture *f = *state;
	struct model_secret made;
	struct deployment_view v;
	struct model_job j = {0};

	assert_ok(secret_ops.set(ADMIN(f), NULL, "mellon", STR_LIT("x"), &made, &f->err), &f->err);
	v = deployed_with(f, "\"T\":{\"name\":\"mellon\"}", 1, 0);
	assert_ok(job_ops.stop(ADMIN(f), v.job_id, true, &j, &f->err), &f->err);
	assert_ok(secret_ops.remove(ADMIN(f), NULL, "mellon", &f->err), &f->err);
	deployments_pass(f->app);
	assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
	assert_non_null(v.reason);
	assert_non_null(strstr(v.reason, "mellon"));
	/* a person who starts it anew does not wait for the next try */
	assert_ok(secret_ops.set(ADMIN(f), NULL, "mellon", STR_LIT("y"), &made, &f->err), &f->err);
	deployments_pass(f->app);
	assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
	assert_non_null(v.reason);
	assert_ok(deployment_ops.want(ADMIN(f), "mine", DEPLOYMENT_RUN, &v, &f->err), &f->err);
	deployments_pass(f->app);
	assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
	assert_null(v.reason);
}

/* One that has never served is no exception: the second time it waits, and the deployment starts no
 * other in its place. */
static void an_engine_that_dies_at_once_is_started_again_more_slowly(void **state)
{
	struct fixture *f = *state;
	struct deployment_view v = deployed(f, 1, 0);
	struct model_job j = {0};

	for (int i = 0; i < 2; i++) {
		fixture_exit(f, run(f, v.job_id), JOB_END_EXIT, 3);
		deployments_pass(f->app);
	}
	queue_pass(f->app);
	assert_ok(job_ops.get(ADMIN(f), NULL, v.job_id, &j, &f->err), &f->err);
	assert_int_equal(j.core.state, JOB_PENDING);
	assert_non_null(strstr(j.reason, "is started again in 15 s"));
	assert_ok(deployment_ops.get(ADMIN(f), "mine", &v, &f->err), &f->err);
	assert_int_equal(v.n_jobs, 1);
	assert_int_equal(v.state, DEPLOYMENT_CREATED);
}

static bool ends(struct fixture *f, const char *job_id)
{
	enum job_state s = fixture_job(f, job_id).core.state;

	return job_state_is_stopping(s) || job_state_is_final(s);
}

/* A roll that another one overtakes, then is carried on by the next server, and in the middle of
 * which the deployment is removed. */
static void rolls(void **state)
{
	struct fixture *f = *state;
	struct deployment_view first, second, third;
	struct principal *w1, *w3;
	struct serving_target to;

	first = deployed(f, 1, 0);
	w1 = run(f, first.job_id);
	beat(f, w1, true);
	second = deployed(f, 1, 0);
	(void)run(f, second.job_id);
	third = deployed(f, 1, 0);
	assert_int_equal(third.d.revision, 3);
	deployments_pass(f->app);
	assert_false(ends(f, first.job_id));
	assert_false(ends(f, second.job_id)); /* it runs, and has not been heard: it may serve */
	assert_taken(f, &to);
	w3 = run(f, third.job_id);
	fixture_restart(f);
	deployments_pass(f->app);
	assert_false(ends(f, first.job_id));
	assert_waits(f, &to);
	beat(f, w1, true);
	assert_taken(f, &to);
	assert_string_equal(to.attempt_id, fixture_job(f, first.job_id).attempt_id);
	beat(f, w3, true);
	deployments_pass(f->app);
	assert_true(ends(f, first.job_id));
	assert_true(ends(f, second.job_id));
	assert_taken(f, &to);
	assert_string_equal(to.attempt_id, fixture_job(f, third.job_id).attempt_id);
	first = deployed(f, 1, 0);
	assert_ok(deployment_ops.remove(ADMIN(f), "mine", &f->err), &f->err);
	deployments_pass(f->app);
	assert_true(ends(f, first.job_id));
	assert_true(ends(f, third.job_id));
	assert_refused(f, &to, ERR_NOT_FOUND, "was removed");
}

/* The n-th statement from now on fails; 0: none does. */
static void arm(struct fixture *f, int n)
{
	AUTO_DB struct db *db = NULL;

	assert_ok(db_open(&db, arena_printf(f->a, "fault:%d:sqlite:%s/stoker.db", n, f->dir),
	                  &f->err),
	          &f->err);
}

/* A job that is first heard may have ended since its row was read. While that cannot be seen it
 * gets no requests: nobody would take it out of the list again. */
static void who_cannot_be_looked_up_is_not_heard(void **state)
{
	struct fixture *f = *state;
	struct wire_heartbeat hb = {.stage = STAGE_RUNNING, .serve_port = PORT, .serves = true};
	struct serving_target to;
	struct principal *w;
	struct model_job j;
	struct meta *real;
	int failed = 0;

	w = fixture_running(f, SERVE, "", &j);
	real = f->app->meta;
	assert_ok(meta_open(&f->app->meta,
	                    arena_printf(f->a, "fault:0:sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	for (int n = 1; arm(f, n), runner_ops.heartbeat(AS(f, w), &hb, &f->err) < 0; n++) {
		arm(f, 0);
		err_clear(&f->err);
		assert_waits(f, &to);
		failed++;
	}
	arm(f, 0);
	assert_taken(f, &to);
	assert_true(failed >= 3); /* the last of them at the second look */
	meta_close(f->app->meta);
	f->app->meta = real;
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(who_asks_after_a_start_waits),
	FIXTURE_TEST(who_asks_waits_for_an_old_job_too),
	FIXTURE_TEST(a_deployment_that_was_removed),
	FIXTURE_TEST(an_engine_that_never_comes_up),
	FIXTURE_TEST(a_job_of_another_machine_is_not_waited_for),
	FIXTURE_TEST(a_job_of_a_deployment_is_not_recreated),
	FIXTURE_TEST(counts_outlive_jobs),
	FIXTURE_TEST(who_cannot_be_looked_up_is_not_heard),
	FIXTURE_TEST(what_a_push_lacks_is_said),
	FIXTURE_TEST(rolls),
	FIXTURE_TEST(an_engine_that_dies_at_once_is_started_again_more_slowly),
};
UNIT_MAIN(tests)
