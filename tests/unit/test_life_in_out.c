/* test_life_in_out.c - what goes into a job and comes out of it: weights, checkpoints to load and
 * to keep. */
#include "server_fixture.h"

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

/* What fails then is the fetch: its first statements follow those that find the job. */
static void an_outage_ends_no_job_that_waits_for_weights(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct meta *real = f->app->meta;
	AUTO_DB struct db *armed = NULL, *whole = NULL;

	make_source(f);
	assert_ok(meta_open(&f->app->meta,
	                    arena_printf(f->a, "fault:0:sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	assert_ok(fixture_push(f, "", source_weights(f), &j), &f->err);
	assert_int_equal(j.core.state, JOB_PENDING);
	assert_ok(db_open(&armed, arena_printf(f->a, "fault:3~12:sqlite:%s/stoker.db", f->dir),
	                  &f->err),
	          &f->err);
	inputs_pass(f->app);
	assert_ok(
		db_open(&whole, arena_printf(f->a, "fault:0:sqlite:%s/stoker.db", f->dir), &f->err),
		&f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	meta_close(f->app->meta);
	f->app->meta = real;
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

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(weights_are_frozen_and_shared),
	FIXTURE_TEST(an_outage_ends_no_job_that_waits_for_weights),
	FIXTURE_TEST(manifests_that_nothing_names_are_collected),
	FIXTURE_TEST(bad_inputs_are_refused),
	FIXTURE_TEST(bad_inputs_fail_by_name),
	FIXTURE_TEST(checkpoints_are_chosen),
	FIXTURE_TEST(only_the_newest_checkpoints_are_kept),
	FIXTURE_TEST(checkpoints_are_deleted_while_the_job_runs),
};
UNIT_MAIN(tests)
