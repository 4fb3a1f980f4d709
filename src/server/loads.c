/* loads.c - references to checkpoints become names, jobs and ranks. */
#include "server/loads.h"

/* One checkpoint over all its ranks. */
struct whole {
	const char *name;
	bool complete;
	int64_t created_ms;
	uint32_t *rank;
	size_t n_ranks;
};

/* Rows come by creation; ranks of one checkpoint are gathered. */
static size_t gather(struct arena *a, const struct model_checkpoint *c, size_t n, struct whole *out)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		struct whole *w = NULL;

		for (size_t k = 0; k < used && w == NULL; k++) {
			if (strcmp(out[k].name, c[i].name) == 0)
				w = &out[k];
		}
		if (w == NULL) {
			w = &out[used++];
			*w = (struct whole){.name = c[i].name, .complete = true};
			w->rank = ARENA_ARRAY(a, uint32_t, n);
		}
		w->complete = w->complete && c[i].state == CKPT_COMPLETE;
		w->created_ms = MAX(w->created_ms, c[i].created_ms);
		w->rank[w->n_ranks++] = c[i].rank;
	}
	return used;
}

static int of_job(struct app *app, struct arena *a, const char *job_id, struct whole **out,
                  size_t *n, struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n_rows = 0;

	if (meta_checkpoints(app->meta, a, job_id, &rows, &n_rows, err) < 0)
		return -1;
	*out = ARENA_ARRAY(a, struct whole, n_rows + 1);
	*n = gather(a, rows, n_rows, *out);
	return 0;
}

struct choice {
	struct app *app;
	struct arena *a;
	const struct model_job *job; /* that loads */
	const struct spec_load *ref;
};

/* The newest complete one of a job; NULL when there is none. What is passed over is said. */
static int newest(const struct choice *c, const char *job_id, const struct whole **out,
                  struct err *err)
{
	struct whole *w = NULL;
	const struct whole *best = NULL;
	size_t n = 0;

	if (of_job(c->app, c->a, job_id, &w, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (w[i].complete && (best == NULL || w[i].created_ms >= best->created_ms))
			best = &w[i];
	}
	for (size_t i = 0; i < n; i++) {
		if (!w[i].complete && (best == NULL || w[i].created_ms >= best->created_ms))
			app_say(c->app, c->job->id,
			        "checkpoint %s of job %s is newer but incomplete: passed over",
			        w[i].name, job_id);
	}
	*out = best;
	return 0;
}

static int source_project(const struct choice *c, const char **id, struct err *err)
{
	struct model_project p = {0};

	if (c->ref->project == NULL) {
		*id = c->job->project_id;
		return 0;
	}
	/* By name in the job's own team: other teams' are not there for it. */
	if (meta_project_by_name(c->app->meta, c->a, c->job->team_id, c->ref->project, &p, err) < 0)
		return err_wrap(err, "project \"%s\"", c->ref->project);
	*id = p.id;
	return 0;
}

static int source_job(const struct choice *c, struct model_job *out, struct err *err)
{
	if (meta_job(c->app->meta, c->a, c->ref->job, out, err) < 0)
		return err_wrap(err, "job %s", c->ref->job);
	if (!app_same(out->team_id, c->job->team_id) ||
	    (c->ref->project != NULL && !app_same(out->project_name, c->ref->project)))
		return err_set(err, ERR_NOT_FOUND, "job %s: no such job%s%s", c->ref->job,
		               c->ref->project ? " in project " : " in this team",
		               c->ref->project ? c->ref->project : "");
	return 0;
}

static void keep(const struct choice *c, const struct whole *w, const struct model_job *from,
                 struct frozen *now)
{
	now->load[now->n_load++] = (struct frozen_load){
		.name = w->name,
		.job_id = from->id,
		.project_id = from->project_id,
		.rank = w->rank,
		.n_ranks = w->n_ranks,
	};
	app_say(c->app, c->job->id, "loads checkpoint %s of job %s (%s)", w->name, from->id,
	        from->name);
}

/* Newest job first, until one has a complete checkpoint; the job itself is none of them. */
static int latest_of_project(const struct choice *c, struct frozen *now, struct err *err)
{
	struct meta_query q = {0};
	struct model_job *jobs = NULL;
	size_t n = 0;

	if (source_project(c, &q.project_id, err) < 0 ||
	    meta_jobs(c->app->meta, c->a, &q, &jobs, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const struct whole *w = NULL;

		if (newest(c, jobs[i].id, &w, err) < 0)
			return -1;
		if (w != NULL) {
			keep(c, w, &jobs[i], now);
			return 0;
		}
	}
	return err_set(err, ERR_NOT_FOUND, "project %s has no complete checkpoint to load",
	               c->ref->project != NULL ? c->ref->project : c->job->project_name);
}

static int choose(const struct choice *c, struct frozen *now, struct err *err)
{
	struct model_job from = {0};
	const struct whole *w = NULL;
	struct whole *all = NULL;
	size_t n = 0;

	if (c->ref->job == NULL && c->ref->latest)
		return latest_of_project(c, now, err);
	if (c->ref->job == NULL) {
		struct meta_query q = {0};
		struct model_job *jobs = NULL;
		size_t n_jobs = 0;

		/* A name without a job: the project's newest job that has it. */
		if (source_project(c, &q.project_id, err) < 0 ||
		    meta_jobs(c->app->meta, c->a, &q, &jobs, &n_jobs, err) < 0)
			return -1;
		for (size_t j = 0; j < n_jobs; j++) {
			if (of_job(c->app, c->a, jobs[j].id, &all, &n, err) < 0)
				return -1;
			for (size_t i = 0; i < n; i++) {
				if (strcmp(all[i].name, c->ref->name) == 0 && all[i].complete) {
					keep(c, &all[i], &jobs[j], now);
					return 0;
				}
			}
		}
		return err_set(err, ERR_NOT_FOUND,
		               "no job of project %s has a complete checkpoint"
		               " \"%s\"",
		               c->ref->project ? c->ref->project : c->job->project_name,
		               c->ref->name);
	}
	if (source_job(c, &from, err) < 0)
		return -1;
	if (c->ref->latest) {
		if (newest(c, from.id, &w, err) < 0)
			return -1;
		if (w == NULL)
			return err_set(err, ERR_NOT_FOUND,
			               "job %s has no complete checkpoint to load", from.id);
		keep(c, w, &from, now);
		return 0;
	}
	if (of_job(c->app, c->a, from.id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(all[i].name, c->ref->name) != 0)
			continue;
		if (!all[i].complete)
			return err_set(
				err, ERR_NOT_FOUND,
				"checkpoint \"%s\" of job %s is incomplete: choose another one",
				c->ref->name, from.id);
		keep(c, &all[i], &from, now);
		return 0;
	}
	return err_set(err, ERR_NOT_FOUND, "job %s has no checkpoint \"%s\"", from.id,
	               c->ref->name);
}

int loads_choose(struct app *app, struct arena *a, const struct model_job *job,
                 const struct job_spec *spec, const struct frozen *before, struct frozen *now,
                 struct err *err)
{
	if (!spec->load.enabled)
		return 0;
	if (before->n_load > 0) {
		now->load = before->load;
		now->n_load = before->n_load;
		return 0;
	}
	now->load = ARENA_ARRAY(a, struct frozen_load, spec->load.n_refs + 1);
	for (size_t i = 0; i < spec->load.n_refs; i++) {
		struct choice c = {app, a, job, &spec->load.refs[i]};

		if (choose(&c, now, err) < 0)
			return -1;
	}
	return 0;
}
