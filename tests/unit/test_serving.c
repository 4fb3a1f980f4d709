/* test_serving.c - which jobs take requests, as their runners say; the test is the runners. */
#include "server_fixture.h"
#include "server/control/serving.h"

#define PORT 40000
#define SERVE ",\"serve\":{\"name\":\"mine\",\"health\":\"/up\"}"

/* Changes the database as another program would. */
static void alter(struct fixture *f, const char *sql)
{
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};

	assert_ok(db_open(&db, arena_printf(f->a, "sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	assert_ok(db_begin(db, DB_WRITE, &tx, &f->err), &f->err);
	assert_ok(db_script(&tx, sql, &f->err), &f->err);
	assert_ok(db_commit(&tx, &f->err), &f->err);
}

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
	alter(f, "UPDATE attempts SET node = 'elsewhere', node_id = 'elsewhere'");
	fixture_restart(f);
	assert_refused(f, &to, ERR_UNAVAILABLE, j.id);
	beat(f, w, true);
	assert_refused(f, &to, ERR_UNAVAILABLE, j.id);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(who_asks_after_a_start_waits),
	FIXTURE_TEST(a_job_of_another_machine_is_not_waited_for),
};
UNIT_MAIN(tests)
