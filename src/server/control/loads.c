/* loads.c - references to checkpoints become names, jobs and ranks. */
#include "server/control/loads.h"

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

#define JOBS_MAX 1000 /* jobs with a complete checkpoint that are looked through */

struct choice {
	struct app *app;
	struct arena *a;
	const struct model_job *job; /* that loads */
	const struct spec_load *ref; /* NULL: the job's own */
	bool quiet;                  /* nothing is said in its log */
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
	for (size_t i = 0; !c->quiet && i < n; i++) {
		if (!w[i].complete && (best == NULL || w[i].created_ms >= best->created_ms))
			app_log(c->app, c->job->id,
			        "skipping checkpoint %s of job %s: newer, but incomplete",
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
	if (meta_project_by_name(c->app->meta, c->a, c->job->team_id, c->ref->project, &p, err) <
	    0) {
		err_refine(err, ERR_PROJECT_NOT_FOUND);
		return err_wrap(err, "project \"%s\"", c->ref->project);
	}
	*id = p.id;
	return 0;
}

static int source_job(const struct choice *c, struct model_job *out, struct err *err)
{
	if (meta_job(c->app->meta, c->a, c->ref->job, out, err) < 0) {
		err_refine(err, ERR_JOB_NOT_FOUND);
		return err_wrap(err, "job %s", c->ref->job);
	}
	if (!app_same(out->team_id, c->job->team_id) ||
	    (c->ref->project != NULL && !app_same(out->project_name, c->ref->project)))
		return err_set(err, ERR_JOB_NOT_FOUND, "job %s: no such job%s%s", c->ref->job,
		               c->ref->project ? " in project " : " in this team",
		               c->ref->project ? c->ref->project : "");
	return 0;
}

static void keep(const struct choice *c, const struct whole *w, const struct model_job *from,
                 struct resolved_load *out)
{
	*out = (struct resolved_load){
		.name = w->name,
		.job_id = from->id,
		.project_id = from->project_id,
		.ranks = w->rank,
		.n_ranks = w->n_ranks,
		.latest = c->ref == NULL || c->ref->latest,
	};
	if (c->quiet)
		return;
	app_log(c->app, c->job->id, "loading checkpoint %s of job %s (%s)", w->name, from->id,
	        from->name);
}

/* The newest job that has a complete checkpoint; the job itself has none yet. */
static int newest_of_jobs(const struct choice *c, const struct meta_query *q,
                          struct resolved_load *out, bool *found, struct err *err)
{
	struct model_job *jobs = NULL;
	size_t n = 0;

	*found = false;
	if (meta_jobs(c->app->meta, c->a, q, &jobs, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && !*found; i++) {
		const struct whole *w = NULL;

		if (newest(c, jobs[i].id, &w, err) < 0)
			return -1;
		*found = w != NULL; /* not a part of it only, on one of its nodes */
		if (*found)
			keep(c, w, &jobs[i], out);
	}
	return 0;
}

/* A job that names no other is pushed again to go on: those of its name come first. */
static int latest_of_project(const struct choice *c, struct resolved_load *out, struct err *err)
{
	struct meta_query q = {.has_checkpoint = true, .limit = JOBS_MAX};
	bool found = false;

	if (source_project(c, &q.project_id, err) < 0)
		return -1;
	if (c->ref->project == NULL) {
		q.name = c->job->name;
		if (newest_of_jobs(c, &q, out, &found, err) < 0 || found)
			return found ? 0 : -1;
		q.name = NULL;
	}
	if (newest_of_jobs(c, &q, out, &found, err) < 0)
		return -1;
	return found ? 0
	             : err_set(err, ERR_CHECKPOINT_NOT_FOUND,
	                       "project %s has no complete checkpoint yet",
	                       c->ref->project != NULL ? c->ref->project : c->job->project_name);
}

/* A name without a job: the project's newest job that has it. */
static int named_of_project(const struct choice *c, struct resolved_load *out, struct err *err)
{
	struct meta_query q = {.has_checkpoint = true, .limit = JOBS_MAX};
	struct model_job *jobs = NULL;
	struct whole *all = NULL;
	size_t n_jobs = 0, n = 0;

	if (source_project(c, &q.project_id, err) < 0 ||
	    meta_jobs(c->app->meta, c->a, &q, &jobs, &n_jobs, err) < 0)
		return -1;
	for (size_t j = 0; j < n_jobs; j++) {
		if (of_job(c->app, c->a, jobs[j].id, &all, &n, err) < 0)
			return -1;
		for (size_t i = 0; i < n; i++) {
			if (strcmp(all[i].name, c->ref->name) == 0 && all[i].complete) {
				keep(c, &all[i], &jobs[j], out);
				return 0;
			}
		}
	}
	return err_set(err, ERR_CHECKPOINT_NOT_FOUND,
	               "no job of project %s has a complete checkpoint \"%s\"",
	               c->ref->project ? c->ref->project : c->job->project_name, c->ref->name);
}

static int latest_of_job(const struct choice *c, const struct model_job *from,
                         struct resolved_load *out, struct err *err)
{
	const struct whole *w = NULL;

	if (newest(c, from->id, &w, err) < 0)
		return -1;
	if (w == NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND,
		               "job %s has no complete checkpoint yet", from->id);
	keep(c, w, from, out);
	return 0;
}

static int named_of_job(const struct choice *c, const struct model_job *from,
                        struct resolved_load *out, struct err *err)
{
	struct whole *all = NULL;
	size_t n = 0;

	if (of_job(c->app, c->a, from->id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(all[i].name, c->ref->name) != 0)
			continue;
		if (!all[i].complete)
			return err_set(
				err, ERR_CHECKPOINT_INCOMPLETE,
				"checkpoint \"%s\" of job %s is incomplete; choose another one",
				c->ref->name, from->id);
		keep(c, &all[i], from, out);
		return 0;
	}
	return err_set(err, ERR_CHECKPOINT_NOT_FOUND, "job %s has no checkpoint \"%s\"", from->id,
	               c->ref->name);
}

static int choose(const struct choice *c, struct resolved_load *out, struct err *err)
{
	struct model_job from = {0};

	if (c->ref->job == NULL)
		return c->ref->latest ? latest_of_project(c, out, err)
		                      : named_of_project(c, out, err);
	if (source_job(c, &from, err) < 0)
		return -1;
	return c->ref->latest ? latest_of_job(c, &from, out, err)
	                      : named_of_job(c, &from, out, err);
}

/* Resolves the specification's references to checkpoints. */
static int choose_all(struct app *app, struct arena *a, const struct model_job *job,
                      const struct job_spec *spec, struct resolved *now, struct err *err)
{
	now->load = ARENA_ARRAY(a, struct resolved_load, spec->load.n_refs + 1);
	for (size_t i = 0; i < spec->load.n_refs; i++) {
		struct choice c = {.app = app, .a = a, .job = job, .ref = &spec->load.refs[i]};

		if (choose(&c, &now->load[now->n_load], err) == 0) {
			now->n_load++;
			continue;
		}
		if (spec->load.required || err->code != ERR_NOT_FOUND)
			return -1;
		app_log(app, job->id, "not loaded: %s", err->msg);
		err_clear(err);
	}
	if (now->n_load == 0)
		app_log(app, job->id, "no checkpoint to load: starting fresh");
	return 0;
}

/* A retry goes on where the job itself had come to. */
static int choose_own(struct app *app, struct arena *a, const struct model_job *job,
                      struct resolved *now, struct err *err)
{
	struct choice c = {.app = app, .a = a, .job = job};
	const struct whole *w = NULL;

	if (newest(&c, job->id, &w, err) < 0)
		return -1;
	if (w == NULL) {
		app_log(app, job->id, "attempt %u: the job has no complete checkpoint yet%s",
		        job->core.attempt, now->n_load > 0 ? "" : ": starting fresh");
		return 0;
	}
	now->has_resume = true;
	keep(&c, w, job, &now->resume);
	return 0;
}

int loads_choose(struct app *app, struct arena *a, const struct model_job *job,
                 const struct job_spec *spec, const struct resolved *before, struct resolved *now,
                 struct err *err)
{
	bool again = job->core.attempt > 1;

	if (!spec->load.enabled) {
		if (again && spec->ckpt.enabled)
			app_log(app, job->id,
			        "attempt %u starts fresh: load_checkpoint_config is not enabled",
			        job->core.attempt);
		return 0;
	}
	/* A recreated job, too, starts from what was chosen then. */
	now->load = before->load;
	now->n_load = before->n_load;
	if (before->n_load == 0 && !again && choose_all(app, a, job, spec, now, err) < 0)
		return -1;
	return again ? choose_own(app, a, job, now, err) : 0;
}

/* A job that is still active may yet write the checkpoint: only a job that has ended is held to it.
 */
static int check_one(const struct choice *c, struct err *err)
{
	struct resolved_load ignored;
	struct model_job from = {0};
	const char *project;

	if (c->ref->job == NULL)
		return source_project(c, &project, err);
	if (source_job(c, &from, err) < 0)
		return -1;
	return job_state_is_final(from.core.state) ? choose(c, &ignored, err) : 0;
}

static int check_frozen(struct app *app, struct arena *a, const struct model_job *job,
                        const struct resolved *frozen, struct err *err)
{
	for (size_t i = 0; i < frozen->n_load; i++) {
		struct spec_load ref = {.job = frozen->load[i].job_id,
		                        .name = frozen->load[i].name};
		struct choice c = {.app = app, .a = a, .job = job, .ref = &ref, .quiet = true};
		struct resolved_load ignored;

		if (choose(&c, &ignored, err) < 0)
			return err_wrap(err, "load_checkpoint_config");
	}
	return 0;
}

int loads_check(struct app *app, struct arena *a, const struct model_job *job,
                const struct job_spec *spec, const struct resolved *frozen, struct err *err)
{
	if (!spec->load.enabled || !spec->load.required)
		return 0;
	if (frozen->n_load > 0)
		return check_frozen(app, a, job, frozen, err);
	for (size_t i = 0; i < spec->load.n_refs; i++) {
		struct choice c = {
			.app = app, .a = a, .job = job, .ref = &spec->load.refs[i], .quiet = true};

		if (check_one(&c, err) < 0)
			return err_wrap(err, "load_checkpoint_config.checkpoints[%zu]", i);
	}
	return 0;
}

int loads_find(struct app *app, struct arena *a, const char *team_id, const struct spec_load *ref,
               struct resolved_load *out, struct err *err)
{
	const struct model_job nobody = {.team_id = team_id};
	struct choice c = {.app = app, .a = a, .job = &nobody, .ref = ref, .quiet = true};

	assert(ref->project != NULL || ref->job != NULL);
	return choose(&c, out, err);
}

int loads_may_find(struct app *app, struct arena *a, const char *team_id,
                   const struct spec_load *ref, struct err *err)
{
	const struct model_job nobody = {.team_id = team_id};
	struct choice c = {.app = app, .a = a, .job = &nobody, .ref = ref, .quiet = true};

	assert(ref->project != NULL || ref->job != NULL);
	return check_one(&c, err);
}

int loads_newest(struct app *app, struct arena *a, const struct model_job *job,
                 struct resolved_load *out, struct err *err)
{
	struct choice c = {.app = app, .a = a, .job = job, .quiet = true};
	const struct whole *w = NULL;

	if (newest(&c, job->id, &w, err) < 0)
		return -1;
	if (w == NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND,
		               "job %s has no complete checkpoint to resume from; `stoker recreate "
		               "%s` without --resume starts it fresh",
		               job->id, job->id);
	*out = (struct resolved_load){.name = w->name,
	                              .job_id = job->id,
	                              .project_id = job->project_id,
	                              .ranks = w->rank,
	                              .n_ranks = w->n_ranks,
	                              .latest = true};
	return 0;
}
