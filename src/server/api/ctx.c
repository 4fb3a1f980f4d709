/* ctx.c - the table of operations that faces may ask for, and who may see what. */
#include "server/api/ctx.h"
#include "server/control/live.h"

static const char *const role_words[] = {
	[ROLE_VIEWER] = "viewer", [ROLE_MEMBER] = "member", [ROLE_ADMIN] = "admin"};

int ctx_need(const struct ask *ask, enum model_role role, struct err *err)
{
	if (ask->principal->attempt_id == NULL && ask->principal->role >= role)
		return 0;
	return err_set(
		err, ERR_ROLE_REQUIRED, "token \"%s\" has the role %s; this requires the role %s",
		ask->principal->name,
		ask->principal->attempt_id != NULL ? "runner" : role_words[ask->principal->role],
		role_words[role]);
}

int ctx_need_all(const struct ask *ask, struct err *err)
{
	if (ctx_need(ask, ROLE_ADMIN, err) < 0)
		return -1;
	if (ask->principal->team_id != NULL)
		return err_set(
			err, ERR_ROLE_REQUIRED,
			"token \"%s\" belongs to one team; this requires a token for all teams",
			ask->principal->name);
	return 0;
}

int ctx_sees(const struct ask *ask, const char *team_id, enum err_code what, struct err *err)
{
	if (ask->principal->team_id == NULL || strcmp(ask->principal->team_id, team_id) == 0)
		return 0;
	return err_missing(err, what);
}

int ctx_team(const struct ask *ask, const char *asked, const char **team_id, struct err *err)
{
	struct model_team t = {0};
	const char *id = asked != NULL ? asked : ask->principal->team_id;

	if (asked != NULL && ctx_sees(ask, asked, ERR_TEAM_NOT_FOUND, err) < 0)
		return -1;
	if (meta_team(ask->app->meta, ask->a, id, &t, err) < 0)
		return -1;
	*team_id = t.id;
	return 0;
}

int ctx_project(const struct ask *ask, const char *id, struct model_project *out, struct err *err)
{
	if (meta_project(ask->app->meta, ask->a, id, out, err) < 0)
		return -1;
	return ctx_sees(ask, out->team_id, ERR_PROJECT_NOT_FOUND, err);
}

int ctx_job(const struct ask *ask, const char *id, struct model_job *out, struct err *err)
{
	struct app *app = ask->app;

	if (meta_job(app->meta, ask->a, id, out, err) < 0)
		return -1;
	live_show(app, ask->a, out, 1);
	return ctx_sees(ask, out->team_id, ERR_JOB_NOT_FOUND, err);
}

const struct face_ops ctx_ops = {
	.objects = &object_ops,
	.hub = &hub_ops,
	.repos = &repo_ops,
	.identity = &identity_ops,
	.artifacts = &artifact_ops,
	.serving = &serving_ops,
	.deployments = &deployment_ops,
	.runners = &runner_ops,
	.uploads = &upload_ops,
	.mirrors = &mirror_ops,
	.caches = &cache_ops,
	.checkpoints = &checkpoint_ops,
	.execs = &exec_ops,
	.jobs = &job_ops,
	.pushes = &push_ops,
	.resolve = &resolve_ops,
	.projects = &project_ops,
	.maintenance = &maintenance_ops,
	.server = &server_ops,
	.capacity = &capacity_ops,
	.secrets = &secret_ops,
	.tokens = &token_ops,
	.teams = &team_ops,
};
