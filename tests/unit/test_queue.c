/* test_queue.c - the line of waiting jobs over the real control plane: however long it is, whatever
 * is in it. */
#include "server_fixture.h"

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

/* n more rows that are like this job's, but for their ids: w000001... */
static void copies(struct fixture *f, const char *id, int n)
{
	alter(f, arena_printf(f->a,
	                      "CREATE TEMP TABLE many AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL"
	                      " SELECT i + 1 FROM c WHERE i < %d)"
	                      " SELECT j.* FROM jobs j, c WHERE j.id = '%s';"
	                      "UPDATE many SET id = printf('w%%06d', rowid);"
	                      "INSERT INTO jobs SELECT * FROM many; DROP TABLE many;",
	                      n, id));
}

static void push(struct fixture *f, int cpus, int priority, struct model_job *out)
{
	const struct doc *d = NULL;

	assert_ok(js_parse(f->a,
	                   str_of(arena_printf(
				   f->a,
				   "{\"compute\":{\"cpu_count\":%d,\"memory\":\"1Gi\"},"
				   "\"priority\":%d,\"runtime\":{\"start_commands\":[\"true\"]}}",
				   cpus, priority)),
	                   &d, &f->err),
	          &f->err);
	assert_ok(ctx_job_push(f->app, f->admin, f->a, f->project.id, d, NULL, out, &f->err),
	          &f->err);
	queue_pass(f->app);
}

static void end_job(struct fixture *f, const struct model_job *j)
{
	struct who *w;

	fixture_await(f, j->id, JOB_DEPLOYING);
	w = fixture_runner(f, j->id, 0);
	(void)fixture_claim(f, w, "n");
	assert_ok(ctx_runner_ready(f->app, w, &f->err), &f->err);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	queue_pass(f->app);
}

static void any_number_of_jobs_waits(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, second = {0}, urgent = {0};

	push(f, 4, 0, &first);
	push(f, 4, 0, &second);
	copies(f, second.id, 1100);
	push(f, 4, 50, &urgent);
	end_job(f, &first);
	fixture_await(f, urgent.id, JOB_DEPLOYING);
	end_job(f, &urgent);
	fixture_await(f, second.id, JOB_DEPLOYING); /* the oldest of the others */
}

/* A specification that this version would refuse, or cannot even read, is its own job's matter. */
static void a_bad_row_holds_nobody(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, strict = {0}, broken = {0}, torn = {0}, last = {0};

	push(f, 4, 0, &first);
	push(f, 1, 9, &strict);
	push(f, 1, 9, &broken);
	push(f, 1, 9, &torn);
	push(f, 1, 0, &last);
	alter(f, arena_printf(f->a,
	                      "UPDATE jobs SET spec_json = json_set(spec_json, '$.no_more', 1,"
	                      " '$.limits.stop_grace', 999999999) WHERE id = '%s';"
	                      "UPDATE jobs SET spec_json = json_set(spec_json, '$.runtime', 7)"
	                      " WHERE id = '%s';"
	                      "UPDATE jobs SET spec_json = '{\"name' WHERE id = '%s';",
	                      strict.id, broken.id, torn.id));
	fixture_restart(f);
	end_job(f, &first);
	fixture_await(f, strict.id, JOB_DEPLOYING);
	fixture_await(f, last.id, JOB_DEPLOYING);
	fixture_await(f, broken.id, JOB_DEPLOY_FAILED);
	fixture_await(f, torn.id, JOB_DEPLOY_FAILED);
	assert_string_equal(fixture_job(f, broken.id).error_id, "stored_spec_unreadable");
	assert_string_equal(fixture_job(f, torn.id).error_id, "stored_spec_unreadable");
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(any_number_of_jobs_waits),
	FIXTURE_TEST(a_bad_row_holds_nobody),
};
UNIT_MAIN(tests)
