/* ctx.c - the table of operations that faces may ask for, and who may see what. */
#include "server/api/ctx.h"
#include "server/control/live.h"

static const char *const role_words[] = {
	[ROLE_VIEWER] = "viewer", [ROLE_MEMBER] = "member", [ROLE_ADMIN] = "admin"};

int ctx_need(const struct principal *principal, enum model_role role, struct err *err)
{
	if (principal->attempt_id == NULL && principal->role >= role)
		return 0;
	return err_set(err, ERR_ROLE_REQUIRED,
	               "token \"%s\" has the role %s; this requires the role %s", principal->name,
	               principal->attempt_id != NULL ? "runner" : role_words[principal->role],
	               role_words[role]);
}

int ctx_sees(const struct principal *principal, const char *team_id, enum err_code what,
             struct err *err)
{
	if (principal->team_id == NULL || strcmp(principal->team_id, team_id) == 0)
		return 0;
	return err_missing(err, what);
}

int ctx_team(struct app *app, const struct principal *principal, struct arena *a, const char *asked,
             const char **team_id, struct err *err)
{
	struct model_team t = {0};
	const char *id = asked != NULL ? asked : principal->team_id;

	if (asked != NULL && ctx_sees(principal, asked, ERR_TEAM_NOT_FOUND, err) < 0)
		return -1;
	if (meta_team(app->meta, a, id, &t, err) < 0)
		return -1;
	*team_id = t.id;
	return 0;
}

int ctx_project(struct app *app, const struct principal *principal, struct arena *a, const char *id,
                struct model_project *out, struct err *err)
{
	if (meta_project(app->meta, a, id, out, err) < 0)
		return -1;
	return ctx_sees(principal, out->team_id, ERR_PROJECT_NOT_FOUND, err);
}

int ctx_job(struct app *app, const struct principal *principal, struct arena *a, const char *id,
            struct model_job *out, struct err *err)
{
	if (meta_job(app->meta, a, id, out, err) < 0)
		return -1;
	live_show(app, a, out, 1);
	return ctx_sees(principal, out->team_id, ERR_JOB_NOT_FOUND, err);
}

const struct face_ops ctx_ops = {
	.teams = ctx_teams,
	.team_create = ctx_team_create,
	.team_delete = ctx_team_delete,
	.tokens = ctx_tokens,
	.token_create = ctx_token_create,
	.token_delete = ctx_token_delete,
	.secrets = ctx_secrets,
	.secret_set = ctx_secret_set,
	.secret_delete = ctx_secret_delete,
	.authenticate = ctx_authenticate,
	.token_prove = ctx_token_prove,
	.job_resolve = ctx_job_resolve,
	.job_pick = ctx_job_pick,
	.project_resolve = ctx_project_resolve,
	.team_resolve = ctx_team_resolve,
	.projects = ctx_projects,
	.project_get = ctx_project_get,
	.project_upsert = ctx_project_upsert,
	.project_delete = ctx_project_delete,
	.job_push = ctx_job_push,
	.job_check = ctx_job_check,
	.job_search = ctx_job_search,
	.job_get = ctx_job_get,
	.job_stop = ctx_job_stop,
	.job_recreate = ctx_job_recreate,
	.job_change = ctx_job_change,
	.job_delete = ctx_job_delete,
	.job_events = ctx_job_events,
	.job_attempts = ctx_job_attempts,
	.exec_start = ctx_exec_start,
	.exec_poll = ctx_exec_poll,
	.exec_input = ctx_exec_input,
	.exec_leave = ctx_exec_leave,
	.checkpoints = ctx_checkpoints,
	.checkpoint_pin = ctx_checkpoint_pin,
	.checkpoint_complete = ctx_checkpoint_complete,
	.checkpoint_delete = ctx_checkpoint_delete,
	.cache_snapshot = ctx_cache_snapshot,
	.cache_summarize = ctx_cache_summarize,
	.cache_remove = ctx_cache_remove,
	.cache_quota = ctx_cache_quota,
	.mirrors = ctx_mirrors,
	.mirror_prefetch = ctx_mirror_prefetch,
	.mirror_delete = ctx_mirror_delete,
	.upload_create = ctx_upload_create,
	.upload_stored = ctx_upload_stored,
	.upload_find = ctx_upload_find,
	.url_key = ctx_url_key,
	.capacity = ctx_capacity,
	.capacity_set = ctx_capacity_set,
	.status = ctx_status,
	.database_away = ctx_database_away,
	.maintenance_begin = ctx_maintenance_begin,
	.maintenance_show = ctx_maintenance_show,
	.maintenance_stop = ctx_maintenance_stop,
	.runner_speaks = ctx_runner_speaks,
	.runner_claim = ctx_runner_claim,
	.runner_heartbeat = ctx_runner_heartbeat,
	.runner_desired = ctx_runner_desired,
	.runner_image = ctx_runner_image,
	.runner_sign = ctx_runner_sign,
	.runner_ready = ctx_runner_ready,
	.runner_event = ctx_runner_event,
	.runner_checkpoint = ctx_runner_checkpoint,
	.runner_exit = ctx_runner_exit,
	.runner_exec_output = ctx_runner_exec_output,
	.runner_exec_input = ctx_runner_exec_input,
	.runner_job = ctx_runner_job,
};
