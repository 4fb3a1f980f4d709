/* resolve.c - what people type for a job, a project, a team: an id, the start of one, a name.
 */
#include "server/api/ctx.h"

#define SPLITS_MAX 8 /* slashes of a word that may divide a team from its project */

static int own_newest(const struct ask *ask, struct model_job **out, size_t *n, struct err *err)
{
	struct meta_query q = {
		.team_id = ask->principal->team_id, .user = ask->principal->name, .limit = 1};

	return meta_jobs(ask->app->meta, ask->a, &q, out, n, err);
}

static int resolve_job(const struct ask *ask, const char *word, struct model_job **out, size_t *n,
                       struct err *err)
{
	struct meta_query by_id = {.job_id = word}, by_name = {.name = word},
			  by_prefix = {.prefix = word};
	struct meta_query *const steps[] = {&by_id, &by_name, &by_prefix};

	if (strcmp(word, "@") == 0) {
		if (own_newest(ask, out, n, err) < 0)
			return -1;
		return *n > 0 ? 0
		              : err_set(err, ERR_JOB_NOT_FOUND,
		                        "%s has not pushed a job yet, so @ has no meaning; `stoker "
		                        "ps -a --everyone` lists the jobs of other users",
		                        ask->principal->name);
	}
	for (size_t i = 0; i < COUNT(steps); i++) {
		steps[i]->team_id = ask->principal->team_id;
		steps[i]->limit = RESOLVE_MAX;
		if (meta_jobs(ask->app->meta, ask->a, steps[i], out, n, err) < 0)
			return -1;
		if (*n > 0)
			return 0;
	}
	return err_set(err, ERR_JOB_NOT_FOUND, "no job \"%.100s\"", word);
}

static int pick_job(const struct ask *ask, const char *name, bool *newest, struct model_job **out,
                    uint64_t *n, struct err *err)
{
	struct app *app = ask->app;
	struct meta_query q = {.team_id = ask->principal->team_id, .name = name, .limit = 2};
	struct model_job *j = NULL;
	size_t found = 0;

	*out = NULL;
	if (meta_jobs_count(app->meta, &q, n, err) < 0)
		return -1;
	q.states = job_states_active();
	if (meta_jobs(app->meta, ask->a, &q, &j, &found, err) < 0)
		return -1;
	*newest = *newest && found != 1;
	if (*newest) {
		q.states = 0;
		q.limit = 1;
		if (meta_jobs(app->meta, ask->a, &q, &j, &found, err) < 0)
			return -1;
	}
	if (found == 1)
		*out = j;
	return 0;
}

/* The project of the caller's newest job: a project itself is nobody's. */
static int own_project(const struct ask *ask, struct model_project **out, size_t *n,
                       struct err *err)
{
	struct meta_project_query q = {.team_id = ask->principal->team_id, .limit = 1};
	struct model_job *job = NULL;

	if (own_newest(ask, &job, n, err) < 0)
		return -1;
	if (*n == 0)
		return err_set(err, ERR_PROJECT_NOT_FOUND,
		               "%s has not pushed a job yet: name the project, "
		               "`stoker projects ls` lists them",
		               ask->principal->name);
	q.id = job->project_id;
	return meta_projects_find(ask->app->meta, ask->a, &q, out, n, err);
}

struct found {
	struct model_project *item; /* RESOLVE_MAX */
	size_t n;
};

static int add_found(struct app *app, struct arena *a, const struct meta_project_query *q,
                     struct found *all, struct err *err)
{
	struct model_project *p = NULL;
	size_t n = 0;

	if (meta_projects_find(app->meta, a, q, &p, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && all->n < RESOLVE_MAX; i++) {
		bool seen = false;

		for (size_t k = 0; k < all->n; k++)
			seen = seen || strcmp(all->item[k].id, p[i].id) == 0;
		if (!seen)
			all->item[all->n++] = p[i];
	}
	return 0;
}

/* An old name may hold slashes, so "a/b/c" is a project a/b/c, b/c of team a, or c of team a/b. */
static int find_named(const struct ask *ask, const char *word, struct found *all, struct err *err)
{
	struct app *app = ask->app;
	struct meta_project_query q = {
		.team_id = ask->principal->team_id, .name = word, .limit = RESOLVE_MAX};
	const char *slash = strchr(word, '/');

	if (add_found(app, ask->a, &q, all, err) < 0)
		return -1;
	for (int i = 0; slash != NULL && i < SPLITS_MAX; i++, slash = strchr(slash + 1, '/')) {
		q.team = arena_strz(ask->a, str_n(word, (size_t)(slash - word)));
		q.name = slash + 1;
		if (add_found(app, ask->a, &q, all, err) < 0)
			return -1;
	}
	return 0;
}

static int resolve_project(const struct ask *ask, const char *word, struct model_project **out,
                           size_t *n, struct err *err)
{
	struct app *app = ask->app;
	struct meta_project_query by_id = {
		.team_id = ask->principal->team_id, .id = word, .limit = 1};
	struct meta_project_query by_prefix = {
		.team_id = ask->principal->team_id, .prefix = word, .limit = RESOLVE_MAX};
	struct found all = {.item = ARENA_ARRAY(ask->a, struct model_project, RESOLVE_MAX)};

	if (strcmp(word, "@") == 0)
		return own_project(ask, out, n, err);
	if (add_found(app, ask->a, &by_id, &all, err) < 0 ||
	    (all.n == 0 && find_named(ask, word, &all, err) < 0) ||
	    (all.n == 0 && add_found(app, ask->a, &by_prefix, &all, err) < 0))
		return -1;
	*out = all.item;
	*n = all.n;
	return all.n > 0 ? 0 : err_set(err, ERR_PROJECT_NOT_FOUND, "no project \"%.200s\"", word);
}

enum { BY_ID, BY_NAME, BY_PREFIX };

static bool team_is(const struct model_team *t, const char *word, int how)
{
	if (how == BY_PREFIX)
		return str_starts(str_of(t->id), word);
	return strcmp(how == BY_ID ? t->id : t->name, word) == 0;
}

static int resolve_team(const struct ask *ask, const char *word, struct model_team **out, size_t *n,
                        struct err *err)
{
	struct model_team *all = NULL;
	size_t n_all = 0;

	if (team_ops.list(ask, &all, &n_all, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct model_team, RESOLVE_MAX);
	*n = 0;
	for (int how = BY_ID; how <= BY_PREFIX && *n == 0; how++) {
		for (size_t i = 0; i < n_all && *n < RESOLVE_MAX; i++) {
			if (team_is(&all[i], word, how))
				(*out)[(*n)++] = all[i];
		}
	}
	return *n > 0 ? 0 : err_set(err, ERR_TEAM_NOT_FOUND, "no team \"%.200s\"", word);
}

const struct resolve_ops resolve_ops = {
	.job = resolve_job,
	.pick = pick_job,
	.project = resolve_project,
	.team = resolve_team,
};
