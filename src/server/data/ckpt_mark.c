/* ckpt_mark.c - a person overrules core/ckpt_rule.h: this checkpoint is complete. */
#include "server/data/ckpt_union.h"
#include "server/data/ckpts.h"
#include "server/api/ctx.h"

/* A checkpoint cannot be marked while its runner still decides, or if it has no files. Any other
 * can be, even a torn one: it is loaded as it is stored. */
static int check(struct app *app, struct arena *a, const struct model_job *job,
                 const struct model_checkpoint *row, struct err *err)
{
	bool stored = false;

	if (job_state_is_placed(job->core.state))
		return err_set(err, ERR_CONFLICT,
		               "job %s is still running, and its runner decides about checkpoint "
		               "%s: mark it when the job has ended",
		               job->id, row->name);
	if (row->manifest_key != NULL && ckpts_is_stored(app, a, row, &stored, err) < 0)
		return err_wrap(err, "checkpoint %s", row->name);
	if (!stored)
		return err_set(err, ERR_CHECKPOINT_NOT_STORED,
		               "checkpoint %s of job %s: not all files of node %" PRIu32
		               " are in the store",
		               row->name, job->id, row->rank);
	return 0;
}

/* Marks the part of one node: its manifest says so too, for those that load it. */
static int mark_one(struct app *app, struct arena *a, const struct model_checkpoint *row,
                    const struct ckpt_verdict *v, const char *by, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX), out = BUF_INIT(APP_JSON_MAX);
	struct model_checkpoint marked = *row;
	struct ckpt c = {0};

	if (objstore_get(app->objects, row->manifest_key, &body, err) < 0 ||
	    ckpt_parse(&c, a, arena_str(a, buf_view(&body)), err) < 0)
		return -1;
	c.state = marked.state = v->state;
	c.rule = marked.rule = v->row;
	c.reason = marked.reason = v->reason;
	c.marked_by = marked.marked_by = by;
	c.doubt = false;
	marked.synced_ms = clock_wall_ms();
	ckpt_write(&c, &out);
	if (buf_check(&out, "its list of files", err) < 0 ||
	    objstore_put(app->objects, row->manifest_key, buf_view(&out), err) < 0)
		return -1;
	return meta_checkpoint_judge(app->meta, &marked, err);
}

/* *done: it was not complete before. */
static int mark(struct app *app, struct arena *a, const struct model_job *job, const char *name,
                const char *by, bool *done, struct err *err)
{
	struct model_checkpoint *rows = NULL;
	const struct model_checkpoint *row = NULL;
	struct ckpt_verdict v;
	size_t n = 0;

	if (meta_checkpoints(app->meta, a, job->id, &rows, &n, err) < 0)
		return -1;
	ckpt_overrule(by, &v);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		row = &rows[i];
		*done = *done || row->state != CKPT_COMPLETE;
		if (*done && check(app, a, job, row, err) < 0)
			return -1;
	}
	if (row == NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND, "job %s has no checkpoint \"%.200s\"",
		               job->id, name);
	if (!*done)
		return 0;
	return row->is_part ? ckpt_union_mark(app, job, name, &v, by, err)
	                    : mark_one(app, a, row, &v, by, err);
}

int ckpt_complete(const struct ask *ask, const char *job_id, const char *name, struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};
	bool done = false;
	int r;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	lock_take(app_stripe(app->ckpts, job.id));
	r = mark(app, ask->a, &job, name, ask->principal->name, &done, err);
	lock_give(app_stripe(app->ckpts, job.id));
	if (r == 0 && done) {
		app_event(app, job.id, "checkpoint", ask->principal->name,
		          "checkpoint %s marked as complete", name);
		app_notify(app, CHANNEL_JOB, job.id);
	}
	return r;
}
