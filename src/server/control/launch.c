/*
 * launch.c - the intent is stored before the engine is asked, with a token of its own: a runner
 * that an earlier intent started can never claim, so a crash between the two starts nothing twice.
 */
#include "server/control/launch.h"
#include "server/api/auth.h"
#include "server/control/jobs.h"
#include "server/start/listener.h"

int launch_node(struct app *app, const struct model_attempt *t, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	AUTO_FD int lock = -1;
	char *hash = NULL, *ref = NULL;
	struct wire_start start = {
		.server = app->local_url,
		.ca_file = app->set.tls_cert,
		.socket = app_path(app, a, APP_SOCKETS "/" APP_SOCKET),
		.inherits_lock = true,
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
		.dir = t->dir,
		.program = app->program,
	};
	int r;

	if (app_runners_give_up_root(app))
		start.ids_pool = app->set.job_ids != NULL ? app->set.job_ids : "";
	if (meta_attempt_launching(app->meta, t->id, t->node_rank, hash, clock_wall_ms(), err) < 0)
		return -1;
	app_crash_at("launch:intent");
	if (joblogs_create(app->logs, t->job_id, t->node_rank, err) < 0)
		return -1;
	if (listener_runner_lock(app, &lock, err) < 0)
		return -1;
	wire_start_write(&start, &json);
	l.start = buf_view(&json);
	l.lock_fd = lock;
	app_crash_at("launch:before");
	r = engine_launch(app->engine, &l, a, &ref, err);
	seal_wipe_buf(&json);
	if (r < 0)
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
