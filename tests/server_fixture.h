/* server_fixture.h - a control plane without a listener, over a real folder: opened, closed and
 * opened again as a restart would; the test itself plays the runners. */
#ifndef SERVER_FIXTURE_H
#define SERVER_FIXTURE_H

#include "unit.h"

#include "meta/db.h"
#include "server/data/cache.h"
#include "server/api/ctx.h"
#include "server/api/exec.h"
#include "server/data/fetch.h"
#include "server/control/inputs.h"
#include "server/control/live.h"
#include "server/control/notify.h"
#include "server/control/prepare.h"
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/control/specs.h"
#include "server/start/parts.h"
#include "server/start/start.h"
#include "server/maintenance/maintenance.h"
#include "server/data/mirror_room.h"
#include "server/control/keyed_executor.h"

#define FIXTURE_FLAGS_MAX 16
#define FIXTURE_WAIT_MS 120000 /* for what other threads do; never waited out when all is well */

struct fixture {
	char dir[64];
	const char *flags[FIXTURE_FLAGS_MAX];
	int n_flags;
	struct arena *a; /* of the test */
	struct app *app; /* NULL while the server is down */
	struct err err;
	struct principal *admin;
	struct model_project project;
};

#define AS(f, who) (&(struct ask){(f)->app, who, (f)->a})
#define ADMIN(f) AS(f, (f)->admin)

static inline void fixture_up(struct fixture *f)
{
	struct arena *a = arena_new();
	struct app *app = app_new(a);
	char script[200];
	char *argv[FIXTURE_FLAGS_MAX + 2] = {arena_cstr(a, "--data"), f->dir};
	AUTO_BUF struct buf token = BUF_INIT(1000);
	int argc = 2;

	for (int i = 0; i < f->n_flags; i++)
		argv[argc++] = arena_cstr(a, f->flags[i]);
	assert_ok(settings_load(a, argc, argv, &app->set, &f->err), &f->err);
	assert_ok(start_open(app, &f->err), &f->err);
	start_urls(app, "127.0.0.1", 9);
	FMT(script, "%s/runner.sh", f->dir);
	app->program = arena_cstr(a, script);
	app->sandbox = app->sandbox_kind = "none";
	parts_start(app);
	f->app = app;
	assert_ok(fs_read(AT_FDCWD, app_path(app, a, "admin-token"), &token, &f->err), &f->err);
	assert_ok(token_ops.authenticate(app, f->a, str_trim(buf_view(&token)), false, &f->admin,
	                                 &f->err),
	          &f->err);
}

static inline void fixture_down(struct fixture *f)
{
	struct app *app = f->app;

	atomic_store(&app->stopping, true);
	parts_stop(app);
	parts_free(app);
	start_close(app);
	arena_free(app->arena);
	f->app = NULL;
}

/* A pass, and all that it had to leave to the sweep pool. */
static inline void fixture_reconcile(struct fixture *f)
{
	int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;

	reconcile_pass(f->app);
	while (keyed_executor_busy(f->app->sweeps, NULL) && clock_mono_ms() < until)
		clock_sleep_ms(5);
}

/* Changes the database as another program would. */
static inline void fixture_alter(struct fixture *f, const char *sql)
{
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};

	assert_ok(db_open(&db, arena_printf(f->a, "sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	assert_ok(db_begin(db, DB_WRITE, &tx, &f->err), &f->err);
	assert_ok(db_script(&tx, sql, &f->err), &f->err);
	assert_ok(db_commit(&tx, &f->err), &f->err);
}

static inline void fixture_restart(struct fixture *f)
{
	fixture_down(f);
	fixture_up(f);
	reconcile_start(f->app);
	fixture_reconcile(f);
}

static inline int fixture_setup(void **state)
{
	/* sweeps at once, or where a folder says so until `slow` is gone, or as `code` says */
	static const char script[] =
		"#!/bin/sh\n[ \"$2\" = --sweep ] || { echo its words; exec sleep 600; }\n"
		"[ ! -e \"$3/code\" ] || { printf '..\\nlog\\nits words\\n'; exit $(cat "
		"\"$3/code\"); }\n"
		"[ -e \"$3/slow\" ] || exit 0\n"
		"echo ${4:-all} > \"$3/how\"; echo $$ > \"$3/pid\"; mv \"$3/pid\" \"$3/sweeping\"\n"
		"while [ -e \"$3/slow\" ]; do sleep 0.05; done; rm \"$3/sweeping\"\n";
	struct fixture *f = xcalloc(1, sizeof(*f));
	char path[200];

	FMT(f->dir, "/tmp/test_server.XXXXXX");
	if (mkdtemp(f->dir) == NULL)
		return -1;
	(void)setenv("XDG_CONFIG_HOME", f->dir, 1);
	FMT(path, "%s/runner.sh", f->dir);
	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT(script), 0755, &f->err), &f->err);
	f->a = arena_new();
	f->flags[f->n_flags++] = "--cpus";
	f->flags[f->n_flags++] = "4";
	f->flags[f->n_flags++] = "--memory";
	f->flags[f->n_flags++] = "8GiB";
	f->flags[f->n_flags++] = "--gpus";
	f->flags[f->n_flags++] = "H100:2";
	f->flags[f->n_flags++] = "--allow-file-root";
	FMT(path, "%s/sources", f->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	f->flags[f->n_flags++] = arena_cstr(f->a, path);
	log_init(LOG_ERROR, false);
	fixture_up(f);
	assert_ok(project_ops.upsert(ADMIN(f), NULL, "demo", &f->project, &f->err), &f->err);
	*state = f;
	return 0;
}

static inline void fixture_kill_runners(struct fixture *f)
{
	struct model_attempt *t = NULL;
	size_t n = 0;

	if (meta_attempts(f->app->meta, f->a, NULL, &t, &n, &f->err) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		struct engine_end how = {.program = f->app->program, .cancel = &f->app->stopping};
		struct err ignored = {0};

		if (t[i].launched_ms != 0 && t[i].engine_ref != NULL &&
		    engine_kill(f->app->engine, t[i].engine_ref, t[i].dir, &how, &ignored) < 0)
			print_message("kill: %s\n", ignored.msg);
	}
}

static inline int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	struct err err = {0};

	if (f->app != NULL) {
		fixture_kill_runners(f);
		fixture_down(f);
	}
	assert_ok(fs_remove_tree(AT_FDCWD, f->dir, &err), &err);
	arena_free(f->a);
	free(f);
	return 0;
}

/* A push, and the pass of the queue that it wakes; *out is the job after it. */
static inline int fixture_push_doc(struct fixture *f, const struct doc *d, const char *key,
                                   struct model_job *out)
{
	if (push_ops.push(ADMIN(f), f->project.id, d, key, out, &f->err) < 0)
		return -1;
	queue_pass(f->app);
	return job_ops.get(ADMIN(f), NULL, out->id, out, &f->err);
}

/* `extra` is put into the training_job object: "\"weights\":[...]", or "". */
static inline int fixture_push(struct fixture *f, const char *runtime, const char *extra,
                               struct model_job *out)
{
	const struct doc *d = NULL;
	const char *json = arena_printf(f->a,
	                                "{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\"},"
	                                "\"runtime\":{\"start_commands\":[\"true\"]%s}%s%s}",
	                                runtime, extra[0] != '\0' ? "," : "", extra);

	assert_ok(js_parse(f->a, str_of(json), &d, &f->err), &f->err);
	return fixture_push_doc(f, d, NULL, out);
}

/* What a runner does before it says that a checkpoint is complete: one file of 5 bytes, then its
 * manifest. */
static inline void fixture_ship(struct fixture *f, const struct model_job *j, const char *name)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(f->a, j->project_id, j->id);
	const char *path = strcmp(name, ".") == 0 ? "w.bin" : arena_printf(f->a, "%s/w.bin", name);
	struct digest d = hash_sha256("12345", 5);
	struct ckpt c = {.name = name, .job_id = j->id, .state = CKPT_COMPLETE};

	manifest_init(&c.files, f->a);
	assert_ok(manifest_add(&c.files, str_of(path), 5, &d, &f->err), &f->err);
	assert_ok(manifest_finish(&c.files, &f->err), &f->err);
	ckpt_write(&c, &json);
	assert_ok(objstore_put(f->app->objects, ckpt_object_key(f->a, prefix, 0, path),
	                       STR_LIT("12345"), &f->err),
	          &f->err);
	assert_ok(objstore_put(f->app->objects, ckpt_manifest_key(f->a, prefix, 0, name),
	                       buf_view(&json), &f->err),
	          &f->err);
}

static inline struct model_job fixture_job(struct fixture *f, const char *id)
{
	struct model_job j = {0};

	assert_ok(meta_job(f->app->meta, f->a, id, &j, &f->err), &f->err);
	return j;
}

static inline void fixture_await(struct fixture *f, const char *id, enum job_state want)
{
	struct model_job j = {0};

	for (int waited = 0; waited < FIXTURE_WAIT_MS; waited += 20) {
		j = fixture_job(f, id);
		if (j.core.state == want && !keyed_executor_busy(f->app->prepare, id))
			return;
		if (job_state_is_final(j.core.state) && j.core.state != want)
			break;
		if (j.core.state == JOB_PENDING) { /* their loops do not run here */
			inputs_pass(f->app);
			queue_pass(f->app);
		}
		clock_sleep_ms(20);
	}
	fail_msg("job is %s, not %s: %s", job_state_word(j.core.state), job_state_word(want),
	         j.error_message ? j.error_message : "");
}

/* The identity that the runner of this node got in its launch.json. */
static inline struct principal *fixture_runner(struct fixture *f, const char *job_id, uint32_t rank)
{
	struct model_job j = fixture_job(f, job_id);
	AUTO_BUF struct buf text = BUF_INIT(10000);
	struct wire_start start = {0};
	struct principal *w = NULL;

	assert_ok(
		fs_read(AT_FDCWD,
	                app_path(f->app, f->a,
	                         arena_printf(f->a, "runs/%s-%u/launch.json", j.attempt_id, rank)),
	                &text, &f->err),
		&f->err);
	assert_ok(wire_start_parse(&start, f->a, buf_view(&text), &f->err), &f->err);
	/* good at the Unix socket alone, for every face */
	assert_err(token_ops.authenticate(f->app, f->a, str_of(start.token), false, &w, &f->err),
	           &f->err, ERR_TOKEN_INVALID, "");
	assert_ok(token_ops.authenticate(f->app, f->a, str_of(start.token), true, &w, &f->err),
	          &f->err);
	return w;
}

static inline struct wire_launch fixture_claim(struct fixture *f, const struct principal *w,
                                               const char *nonce)
{
	struct wire_launch l = {0};

	assert_ok(runner_ops.claim(AS(f, w), nonce, &l, &f->err), &f->err);
	return l;
}

static inline void fixture_exit(struct fixture *f, const struct principal *w, enum job_end end,
                                int code)
{
	struct wire_exit x = {.end = end,
	                      .code = code,
	                      .synced = true,
	                      .user_code_ran = true,
	                      .started_ms = 1000,
	                      .ended_ms = 3000};

	assert_ok(runner_ops.exit(AS(f, w), &x, &f->err), &f->err);
}

/* Pushed, launched, claimed, ready: running. */
static inline struct principal *fixture_running(struct fixture *f, const char *runtime,
                                                const char *extra, struct model_job *out)
{
	struct principal *w;

	assert_ok(fixture_push(f, runtime, extra, out), &f->err);
	fixture_await(f, out->id, JOB_DEPLOYING);
	w = fixture_runner(f, out->id, 0);
	(void)fixture_claim(f, w, "n1");
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
	fixture_await(f, out->id, JOB_RUNNING);
	return w;
}

/* A folder that may be mirrored: two files, 12 bytes. */
static inline void make_source(struct fixture *f)
{
	const char *dir = arena_printf(f->a, "%s/sources/model", f->dir);

	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &f->err), &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/config.json", dir),
	                          STR_LIT("{}"), 0644, &f->err),
	          &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/weights.bin", dir),
	                          STR_LIT("0123456789"), 0644, &f->err),
	          &f->err);
}

/* Of a job: what make_source made, at /models/m. */
static inline const char *source_weights(struct fixture *f)
{
	return arena_printf(f->a,
	                    "\"weights\":[{\"source\":\"file://%s/sources/model\","
	                    "\"mount_location\":\"/models/m\"}]",
	                    f->dir);
}

static inline uint64_t blobs_in_store(struct fixture *f)
{
	struct blobs_held held;

	assert_ok(blobs_held(f->app->blobs, BLOBS_HELD_NOW, &held, &f->err), &f->err);
	return held.files;
}

/* As if the server had died between the manifest and its row. */
static inline void forget_mirror(struct fixture *f, const char *id)
{
	fixture_alter(f, arena_printf(f->a,
	                              "DELETE FROM refs WHERE kind = 'weights' AND name = '%s';"
	                              "DELETE FROM mirrors WHERE id = '%s';",
	                              id, id));
}

#define FIXTURE_TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

#endif
