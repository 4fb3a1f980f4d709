/* projects.c - operations on projects. */
#include "server/api/ctx.h"
#include "server/control/queue.h"

static int list_projects(const struct ask *ask, struct model_project **out, size_t *n,
                         struct err *err)
{
	return meta_projects(ask->app->meta, ask->a, ask->principal->team_id, out, n, err);
}

int ctx_project_name(struct app *app, struct arena *a, const char *team_id, const char *name,
                     struct err *err)
{
	const char *slash = name != NULL ? strchr(name, '/') : NULL;
	struct model_project old = {0};

	if (name == NULL || !spec_name_ok(str_of(name)))
		return err_set(err, ERR_INVALID,
		               "\"%.60s\" is not a valid project name: " SPEC_NAME_RULE,
		               name != NULL ? name : "");
	if (slash == NULL || meta_project_by_name(app->meta, a, team_id, name, &old, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(
		err, ERR_INVALID,
		"\"%.60s\": a project's name has no /, which stands between a team and its "
		"project. To name the team, set `team` in the job file or `team_name` in the "
		"API",
		name);
}

static int upsert_project(const struct ask *ask, const char *team_id, const char *name,
                          struct model_project *out, struct err *err)
{
	struct app *app = ask->app;
	int64_t now = clock_wall_ms();
	struct model_project p = {.name = name,
	                          .created_ms = now,
	                          .updated_ms = now,
	                          .cache_quota_bytes = app->set.cache_quota};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_team(ask, team_id, &p.team_id, err) < 0 ||
	    ctx_project_name(app, ask->a, p.team_id, name, err) < 0)
		return -1;
	p.id = app_id(ask->a, MODEL_ID_LEN);
	return meta_project_upsert(app->meta, ask->a, &p, out, err);
}

static int remove_project(const struct ask *ask, const char *id, struct err *err)
{
	struct app *app = ask->app;
	struct model_project p = {0};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_project(ask, id, &p, err) < 0 ||
	    meta_project_del(app->meta, id, err) < 0)
		return -1;
	log_info("deleted: project=%s name=%s by=%s", id, p.name, ask->principal->name);
	loop_kick(app->janitor);
	loop_kick(app->reconcile);
	return 0;
}

const struct project_ops project_ops = {
	.list = list_projects,
	.get = ctx_project,
	.upsert = upsert_project,
	.remove = remove_project,
};
