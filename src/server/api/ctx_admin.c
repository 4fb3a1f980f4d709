/* ctx_admin.c - operations of administrators: teams, tokens, capacity, status. */
#include "server/api/auth.h"
#include "server/api/ctx.h"
#include "server/data/mirror_room.h"
#include "server/control/queue.h"
#include "server/start/standbys.h"

#define TEAMS_MAX 1000
#define TOKENS_MAX 10000

int ctx_teams(void *of, const struct principal *principal, struct arena *a, struct model_team **out,
              size_t *n, struct err *err)
{
	struct app *app = of;

	if (principal->team_id == NULL)
		return meta_teams(app->meta, a, out, n, err);
	*out = ARENA_NEW(a, struct model_team);
	*n = 1;
	return meta_team(app->meta, a, principal->team_id, *out, err);
}

int ctx_need_all(const struct principal *principal, struct err *err)
{
	if (ctx_need(principal, ROLE_ADMIN, err) < 0)
		return -1;
	if (principal->team_id != NULL)
		return err_set(
			err, ERR_ROLE_REQUIRED,
			"token \"%s\" belongs to one team; this requires a token for all teams",
			principal->name);
	return 0;
}

int ctx_team_create(void *of, const struct principal *principal, struct arena *a, const char *name,
                    struct model_team *out, struct err *err)
{
	struct app *app = of;
	struct model_team *all = NULL;
	size_t n = 0;

	if (ctx_need_all(principal, err) < 0 || meta_teams(app->meta, a, &all, &n, err) < 0)
		return -1;
	if (name == NULL || !spec_name_ok(str_of(name)))
		return err_set(err, ERR_INVALID,
		               "\"%.60s\" is not a valid team name: " SPEC_NAME_RULE,
		               name ? name : "");
	if (strchr(name, '/') != NULL)
		return err_set(err, ERR_INVALID,
		               "\"%.60s\": a team's name has no /, which stands between a team and "
		               "its project",
		               name);
	if (n >= TEAMS_MAX)
		return err_set(err, ERR_QUOTA, "there are %d teams already, which is the limit",
		               TEAMS_MAX);
	*out = (struct model_team){
		.id = app_id(a, MODEL_ID_LEN), .name = name, .created_ms = clock_wall_ms()};
	return meta_team_add(app->meta, out, err);
}

int ctx_team_delete(void *of, const struct principal *principal, const char *id, struct err *err)
{
	struct app *app = of;

	if (ctx_need_all(principal, err) < 0 || meta_team_del(app->meta, id, err) < 0)
		return -1;
	auth_forget(app);
	log_info("deleted: team=%s by=%s", id, principal->name);
	loop_kick(app->janitor);
	return 0;
}

int ctx_tokens(void *of, const struct principal *principal, struct arena *a,
               struct model_token **out, size_t *n, struct err *err)
{
	struct app *app = of;

	if (ctx_need(principal, ROLE_ADMIN, err) < 0)
		return -1;
	return meta_tokens(app->meta, a, principal->team_id, out, n, err);
}

int ctx_token_create(void *of, const struct principal *principal, struct arena *a, const char *name,
                     const char *team_id, enum model_role role, int64_t expires_ms,
                     struct model_token *out, char **plain, struct err *err)
{
	struct app *app = of;
	const char *team = team_id != NULL ? team_id : principal->team_id;
	struct model_token *all = NULL;
	char *hash = NULL;
	size_t n = 0;

	if (ctx_need(principal, ROLE_ADMIN, err) < 0 ||
	    (team != NULL && ctx_team(app, principal, a, team, &team, err) < 0) ||
	    meta_tokens(app->meta, a, NULL, &all, &n, err) < 0)
		return -1;
	if (name == NULL || name[0] == '\0' || strlen(name) > SPEC_NAME_MAX)
		return err_set(err, ERR_INVALID, "a token's name must have 1 to %d characters",
		               SPEC_NAME_MAX);
	if (n >= TOKENS_MAX)
		return err_set(err, ERR_QUOTA, "there are %d tokens already, which is the limit",
		               TOKENS_MAX);
	if (role < ROLE_VIEWER || role > ROLE_ADMIN)
		return err_set(err, ERR_INVALID, "role: viewer, member or admin");
	*plain = auth_new_token(a, APP_TOKEN, &hash);
	*out = (struct model_token){
		.id = app_id(a, MODEL_ID_LEN),
		.name = name,
		.team_id = team,
		.hash = hash,
		.role = role,
		.created_ms = clock_wall_ms(),
		.expires_ms = expires_ms,
	};
	if (meta_token_add(app->meta, out, err) < 0)
		return -1;
	log_info("token created: id=%s name=%s by=%s", out->id, name, principal->name);
	return 0;
}

int ctx_token_delete(void *of, const struct principal *principal, const char *id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct app *app = of;
	struct model_token t = {0};

	if (ctx_need(principal, ROLE_ADMIN, err) < 0 || meta_token(app->meta, a, id, &t, err) < 0)
		return -1;
	if (principal->team_id != NULL && !app_same(t.team_id, principal->team_id))
		return err_missing(err, ERR_TOKEN_NOT_FOUND);
	if (strcmp(t.id, principal->token_id) == 0)
		return err_set(err, ERR_CONFLICT,
		               "you are using this token; use another one to delete it");
	if (meta_token_del(app->meta, id, err) < 0)
		return -1;
	auth_forget(app);
	log_info("token deleted: id=%s name=%s by=%s", id, t.name, principal->name);
	return 0;
}

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

int ctx_capacity(void *of, const struct principal *principal, struct arena *a,
                 struct capacity_row **out, size_t *n, struct err *err)
{
	struct app *app = of;
	struct meta_query q = {.states = job_states_placed()};
	struct meta_capacity *limit = NULL;
	struct model_job *job = NULL;
	size_t n_limits = 0, n_jobs = 0;
	struct sched_gpus kind[SCHED_KINDS_MAX];
	struct sched_node node;
	size_t kinds;

	queue_node_empty(app, &node);
	kinds = sched_gpu_kinds(&node, kind);
	if (meta_capacity(app->meta, a, &limit, &n_limits, err) < 0 ||
	    meta_jobs(app->meta, a, &q, &job, &n_jobs, err) < 0)
		return -1;
	*out = ARENA_ARRAY(a, struct capacity_row, n_limits + kinds);
	*n = 0;
	for (size_t i = 0; i < kinds; i++)
		(*out)[(*n)++] = (struct capacity_row){
			.gpu_type = kind[i].type,
			.baseline = kind[i].count,
			.limit = kind[i].count,
			.used = used_by(job, n_jobs, NULL, kind[i].type),
		};
	for (size_t i = 0; i < n_limits; i++) {
		if (principal->team_id != NULL && !app_same(principal->team_id, limit[i].team_id))
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

int ctx_capacity_set(void *of, const struct principal *principal, struct arena *a,
                     const char *team_id, const char *gpu_type, int64_t max_gpus,
                     struct capacity_row *out, struct err *err)
{
	struct app *app = of;
	struct model_team t = {0};
	const char *team = NULL;

	if (ctx_need_all(principal, err) < 0 ||
	    ctx_team(app, principal, a, team_id, &team, err) < 0 ||
	    meta_team(app->meta, a, team, &t, err) < 0)
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

static int node_row(struct app *app, struct arena *a, struct server_status *out, struct err *err)
{
	struct sched_node node;

	if (queue_node(app, a, &node, err) < 0)
		return -1;
	out->nodes = ARENA_NEW(a, struct node_row);
	out->n_nodes = 1;
	*out->nodes = (struct node_row){
		.name = node.name,
		.cluster = node.cluster,
		.gpu_type = node.gpu_types == NULL ? node.gpu_type : NULL,
		.cpu_milli = node.cpu_milli,
		.cpu_milli_used = node.cpu_milli_used,
		.gpus = node.gpus,
		.memory_bytes = node.memory_bytes,
		.memory_used = node.memory_used,
		.gpus_used = node.gpus_used,
		.declared = app->inv.declared,
	};
	out->nodes->n_kinds = sched_gpu_kinds(&node, out->nodes->kinds);
	for (size_t i = 0; node.gpu_types != NULL && i < out->nodes->n_kinds; i++)
		out->nodes->gpu_type = i == 0 ? out->nodes->kinds[0].type
		                              : arena_printf(a, "%s, %s", out->nodes->gpu_type,
		                                             out->nodes->kinds[i].type);
	return 0;
}

bool ctx_database_away(void *of)
{
	const struct app *app = of;
	struct outage outage;

	meta_outage(app->meta, false, &outage);
	return outage.since_ms != 0 || meta_unheard(app->meta);
}

static int status_standbys(struct app *app, struct arena *a, struct server_status *out,
                           struct err *err)
{
	struct standbys s;

	if (standbys_look(app, a, &s, err) < 0)
		return -1;
	out->standbys = ARENA_ARRAY(a, struct standby_row, s.n + 1);
	for (size_t i = 0; i < s.n; i++)
		out->standbys[i] = (struct standby_row){arena_cstr(a, s.waiting[i].host),
		                                        s.waiting[i].seen_ms};
	out->n_standbys = s.n;
	out->standby_gone = s.last;
	out->standby_gone_ms = s.last_ms;
	return 0;
}

/* What the database knows: jobs, and what they hold of the node; and who waits to lead. */
static int status_rows(struct app *app, struct arena *a, struct server_status *out, struct err *err)
{
	struct meta_counts counts = {0};

	if (meta_counts(app->meta, &counts, err) < 0 || status_standbys(app, a, out, err) < 0)
		return -1;
	out->jobs_pending = counts.by_state[JOB_PENDING];
	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if (job_state_is_placed((enum job_state)s))
			out->jobs_active += counts.by_state[s];
	}
	return node_row(app, a, out, err);
}

int ctx_status(void *of, const struct principal *principal, struct arena *a,
               struct server_status *out, struct err *err)
{
	struct app *app = of;
	struct mirror_room_view room;
	struct outage outage;

	if (ctx_need(principal, ROLE_VIEWER, err) < 0 || mirror_room_view(app, &room, err) < 0)
		return -1;
	*out = (struct server_status){
		.version = STOKER_VERSION,
		.data_dir = app->data,
		.base_url = app->base_url,
		.sandbox = app->sandbox,
		.python = app->python,
		.started_ms = app->started_ms,
		.mirror_bytes = atomic_load(&app->mirror_bytes),
		.mirror_budget = room.limit,
		.mirror_reserved = room.reserved,
		.mirror_evicted = room.evicted,
		.mirror_evicted_bytes = room.evicted_bytes,
		.node_cache_bytes = atomic_load(&app->node_bytes),
		.node_cache_budget = app->set.node_cache_bytes,
	};
	if (fs_free_bytes(app->data, &out->disk_free, &out->disk_total, err) < 0)
		return -1;
	/* while the database is away, the rest is still said */
	meta_outage(app->meta, false, &outage);
	if (outage.since_ms == 0 && status_rows(app, a, out, err) < 0) {
		if (err->id != ERR_DATABASE_UNAVAILABLE)
			return -1;
		err_clear(err);
		meta_outage(app->meta, false, &outage);
	}
	out->database = outage;
	return 0;
}
