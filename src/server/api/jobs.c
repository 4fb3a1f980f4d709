/* jobs.c - operations on jobs that exist: look, stop, reorder, delete. */
#include "server/api/ctx.h"
#include "server/maintenance/janitor.h"
#include "server/control/jobs.h"
#include "server/api/limits.h"
#include "server/control/deployments.h"
#include "server/control/live.h"
#include "server/control/queue.h"
#include "server/control/specs.h"

#define SEARCH_DEFAULT 1000

static int search_jobs(const struct ask *ask, const struct job_query *q, struct model_job **out,
                       size_t *n, uint64_t *total, struct err *err)
{
	struct app *app = ask->app;
	struct meta_query m = {
		.team_id = ask->principal->team_id,
		.project_id = q->project_id,
		.job_id = q->job_id,
		.user = q->user,
		.states = q->states,
		.ascending = q->ascending,
		.after_ms = q->after_ms,
		.after_row = q->after_row,
		.limit = q->limit > 0 ? q->limit : SEARCH_DEFAULT,
	};

	if (meta_jobs(app->meta, ask->a, &m, out, n, err) < 0)
		return -1;
	live_show(app, ask->a, *out, *n);
	*total = *n;
	if (q->after_row == 0 && *n < m.limit) /* that is all there is */
		return 0;
	return meta_jobs_count(app->meta, &m, total, err);
}

static int get_job(const struct ask *ask, const char *project_id, const char *job_id,
                   struct model_job *out, struct err *err)
{
	if (ctx_job(ask, job_id, out, err) < 0)
		return -1;
	if (project_id != NULL && !app_same(project_id, out->project_id))
		return err_missing(err, ERR_JOB_NOT_FOUND);
	return 0;
}

static int stop_job(const struct ask *ask, const char *job_id, bool now, struct model_job *out,
                    struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};
	const char *why;
	bool again;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	if (job_state_is_final(job.core.state))
		return err_set(err, ERR_JOB_ENDED, "job %s is already %s", job.id,
		               job_state_name(job.core.state) + sizeof("TRAINING_JOB_") - 1);
	again = job_state_is_stopping(job.core.state);
	why = arena_printf(ask->a, "stop requested by %s%s%s", ask->principal->name,
	                   again ? " again" : "", now ? ", without grace" : "");
	if (jobs_stop(app, ask->a, &job, ask->principal->name, why, now, err) < 0)
		return -1;
	deployments_kick(app); /* another job may take its place */
	return ctx_job(ask, job.id, out, err);
}

static int change_job(const struct ask *ask, const char *job_id, const struct model_change *c,
                      struct model_job *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0 ||
	    (c->priority != NULL && limits_priority(ask, *c->priority, err) < 0) ||
	    meta_job_change(app->meta, job.id, c, clock_wall_ms(), ask->principal->name, err) < 0)
		return -1;
	specs_forget(app, job.id);
	queue_kick(app);
	return ctx_job(ask, job.id, out, err);
}

static int remove_job(const struct ask *ask, const char *job_id, struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0 ||
	    meta_job_del(app->meta, job.id, err) < 0)
		return -1;
	log_info("deleted: job=%s by=%s", job.id, ask->principal->name);
	loop_kick(app->janitor); /* its files */
	loop_kick(app->reconcile);
	return 0;
}

static int list_events(const struct ask *ask, const char *job_id, int64_t after_seq,
                       struct model_event **out, size_t *n, struct err *err)
{
	struct model_job job = {0};

	if (ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	return meta_events(ask->app->meta, ask->a, job.id, after_seq, out, n, err);
}

static int list_attempts(const struct ask *ask, const char *job_id, struct model_attempt **out,
                         size_t *n, struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};

	if (ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	if (meta_attempts(app->meta, ask->a, job.id, out, n, err) < 0)
		return -1;
	live_show_nodes(app, *out, *n);
	return 0;
}

const struct job_ops job_ops = {
	.search = search_jobs,
	.get = get_job,
	.stop = stop_job,
	.change = change_job,
	.remove = remove_job,
	.events = list_events,
	.attempts = list_attempts,
};
