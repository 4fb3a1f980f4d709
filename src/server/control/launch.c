/*
 * launch.c - the intent is stored before the engine is asked, with a token of its own: a runner
 * that an earlier intent started can never claim, so a crash between the two starts nothing twice.
 */
#include "server/control/launch.h"
#include "server/api/auth.h"
#include "server/control/jobs.h"

static int write_start(const char *dir, const struct wire_start *start, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	AUTO_FD int fd = -1;
	int r;

	if (fs_mkdirs(AT_FDCWD, dir, 0700, err) < 0)
		return -1;
	fd = fs_open_dir(dir, err);
	if (fd < 0)
		return -1;
	wire_start_write(start, &json);
	r = fs_write_atomic(fd, "launch.json", buf_view(&json), 0600, err);
	seal_wipe_buf(&json);
	return r;
}

int launch_node(struct app *app, const struct model_attempt *t, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *dir = app_path(app, a, t->dir);
	char *hash = NULL, *ref = NULL;
	struct wire_start start = {
		.server = app->local_url,
		.ca_file = app->set.tls_cert,
		.socket = app_path(app, a, APP_SOCKET),
		.lock = app_path(app, a, APP_RUNNERS),
		.token = auth_new_token(
			a, app->set.node_url.n > 0 ? APP_RUN_TOKEN : APP_LOCAL_TOKEN, &hash),
		.others = app->set.node_url.item,
		.n_others = app->set.node_url.n,
		.attempt_id = t->id,
		.node_rank = t->node_rank,
	};
	struct engine_launch l = {
		.attempt_id = t->id,
		.node_rank = t->node_rank,
		.node = t->node,
		.dir = dir,
		.program = app->program,
	};

	if (meta_attempt_launching(app->meta, t->id, t->node_rank, hash, clock_wall_ms(), err) < 0)
		return -1;
	app_crash_at("launch:intent");
	if (joblogs_create(app->logs, t->job_id, t->node_rank, err) < 0 ||
	    write_start(dir, &start, err) < 0)
		return -1;
	app_crash_at("launch:before");
	if (engine_launch(app->engine, &l, a, &ref, err) < 0)
		return -1;
	app_crash_at("launch:after");
	log_info("launched: attempt=%s rank=%u node=%s", t->id, t->node_rank, t->node);
	return meta_attempt_launched(app->meta, t->id, t->node_rank, ref, err);
}

void launch_job(struct app *app, const struct model_job *job)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_attempt *t = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_attempt(app->meta, a, job->attempt_id, &t, &n, &err) < 0) {
		log_error("launch: job=%s %s", job->id, err.msg);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (t[i].launched_ms != 0 || t[i].claim != NULL || t[i].ended_ms != 0)
			continue;
		if (launch_node(app, &t[i], &err) == 0)
			continue;
		/* Parts that run already wait for it, or are stopped: their attempt is over. */
		if (jobs_may_pass(&err))
			jobs_held_up(app, job, "launch", &err);
		else
			jobs_deploy_failed(app, job, "launch", &err);
		return;
	}
}
