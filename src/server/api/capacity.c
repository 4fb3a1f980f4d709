/* capacity.c - GPUs of this server, and how many of them a team may have. */
#include "server/api/ctx.h"
#include "server/control/queue.h"

static int64_t used_by(const struct model_job *job, size_t n, const char *team_id, const char *type)
{
	int64_t used = 0;

	for (size_t i = 0; i < n; i++) {
		if (app_same(job[i].gpu_type, type) &&
		    (team_id == NULL || app_same(job[i].team_id, team_id)))
			used += (int64_t)job[i].gpu_count * job[i].node_count;
	}
	return used;
}

static int list_capacity(const struct ask *ask, struct capacity_row **out, size_t *n,
                         struct err *err)
{
	struct app *app = ask->app;
	struct meta_query q = {.states = job_states_placed()};
	struct meta_capacity *limit = NULL;
	struct model_job *job = NULL;
	size_t n_limits = 0, n_jobs = 0;
	struct sched_gpus kind[SCHED_KINDS_MAX];
	struct sched_node node;
	size_t kinds;

	queue_node_empty(app, &node);
	kinds = sched_gpu_kinds(&node, kind);
	if (meta_capacity(app->meta, ask->a, &limit, &n_limits, err) < 0 ||
	    meta_jobs(app->meta, ask->a, &q, &job, &n_jobs, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct capacity_row, n_limits + kinds);
	*n = 0;
	for (size_t i = 0; i < kinds; i++)
		(*out)[(*n)++] = (struct capacity_row){
			.gpu_type = kind[i].type,
			.baseline = kind[i].count,
			.limit = kind[i].count,
			.used = used_by(job, n_jobs, NULL, kind[i].type),
		};
	for (size_t i = 0; i < n_limits; i++) {
		if (ask->principal->team_id != NULL &&
		    !app_same(ask->principal->team_id, limit[i].team_id))
			continue;
		(*out)[(*n)++] = (struct capacity_row){
			.gpu_type = limit[i].gpu_type,
			.team_id = limit[i].team_id,
			.team_name = limit[i].team_name,
			.limit = limit[i].max_gpus,
			.used = used_by(job, n_jobs, limit[i].team_id, limit[i].gpu_type),
		};
	}
	return 0;
}

static bool known_gpu(const char *type)
{
	for (size_t i = 0; spec_gpu_types[i] != NULL; i++) {
		if (strcmp(spec_gpu_types[i], type) == 0)
			return true;
	}
	return false;
}

static int set_capacity(const struct ask *ask, const char *team_id, const char *gpu_type,
                        int64_t max_gpus, struct capacity_row *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_team t = {0};
	const char *team = NULL;

	if (ctx_need_all(ask, err) < 0 || ctx_team(ask, team_id, &team, err) < 0 ||
	    meta_team(app->meta, ask->a, team, &t, err) < 0)
		return -1;
	if (gpu_type == NULL || !known_gpu(gpu_type))
		return err_set(err, ERR_INVALID, "\"%.40s\" is not a GPU type",
		               gpu_type != NULL ? gpu_type : "");
	if (meta_capacity_put(app->meta, team, gpu_type, max_gpus, err) < 0)
		return -1;
	*out = (struct capacity_row){.gpu_type = gpu_type,
	                             .team_id = team,
	                             .team_name = t.name,
	                             .limit = max_gpus < 0 ? -1 : max_gpus};
	queue_kick(app);
	return 0;
}

const struct capacity_ops capacity_ops = {
	.list = list_capacity,
	.set = set_capacity,
};
