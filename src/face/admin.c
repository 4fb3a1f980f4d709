/* admin.c - who asks, teams, tokens, secrets, capacity, and how the server is. */
#include "face/answer.h"
#include "face/face.h"
#include "face/show.h"

#define SMALL ((size_t)64 << 10)
#define SECRET_MAX ((size_t)2 << 20) /* a body around the largest value, escaped */
#define VALUE_MAX ((size_t)1 << 20)
#define DAYS_MAX 3650
#define DAY_MS ((int64_t)86400 * 1000)
#define GPUS_MAX 1000000

/* Teams and tokens go by their id alone. */
static int removed(struct request *rq,
                   int (*del)(const struct ask *ask, const char *id, struct err *err),
                   struct err *err)
{
	if (del(face_ask(rq), arg_text(rq, 0), err) < 0)
		return -1;
	return answer_deleted(rq, "id", arg_text(rq, 0), err);
}

static int all_teams(struct request *rq, struct model_team **t, size_t *n, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	return ctx->ops->teams->list(face_ask(rq), t, n, err);
}

static const char *name_of_team(const struct model_team *t, size_t n, const char *id)
{
	for (size_t i = 0; id != NULL && i < n; i++)
		if (strcmp(t[i].id, id) == 0)
			return t[i].name;
	return NULL;
}

struct shown_user {
	const char *name, *team_id, *team_name, *workspace;
	enum model_role role;
};
static SHOWN(user_team, NULL, shown_user, ROW_AS(shown_user, R_TEXT, "id", team_id),
             ROW_AS(shown_user, R_TEXT | R_NULL, "name", team_name));
SHOWN(user, "User", shown_user, ROW_AS(shown_user, R_TEXT, "email", name),
      ROW(shown_user, R_TEXT, name), ROW_WORD(shown_user, R_WORD, role, show_roles),
      ROW_PART(R_NULL, "team", user_team), ROW_AS(shown_user, R_TEXT, "workspace_name", workspace));

static int me(struct request *rq, struct err *err)
{
	const struct principal *principal = face_principal(rq);
	struct shown_user v = {principal->name, principal->team_id, NULL, "stoker",
	                       principal->role};
	struct model_team *t;
	size_t n;

	if (all_teams(rq, &t, &n, err) < 0)
		return -1;
	v.team_name = name_of_team(t, n, v.team_id);
	return answer_members(rq, &user_record, &v, err);
}

static int teams_list(struct request *rq, struct err *err)
{
	struct model_team *t;
	size_t n;

	if (all_teams(rq, &t, &n, err) < 0)
		return -1;
	return answer_list(rq, "teams", &team_record, t, n, err);
}

static int checked_name(const struct doc *body, const char **name, struct err *err)
{
	if (body_text(body, "name", true, name, err) < 0)
		return -1;
	if (!spec_name_ok(str_of(*name)))
		return err_set(err, ERR_INVALID, "name: \"%.60s\" is not a name: " SPEC_NAME_RULE,
		               *name);
	return 0;
}

static int team_make(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_team t = {0};
	const struct doc *body;
	const char *name;

	if (body_read(rq, false, &body, err) < 0 || checked_name(body, &name, err) < 0 ||
	    ctx->ops->teams->create(face_ask(rq), name, &t, err) < 0)
		return -1;
	return answer_one(rq, "team", &team_record, &t, err);
}

static int team_remove(struct request *rq, struct err *err)
{
	return removed(rq, face_ctx(rq)->ops->teams->remove, err);
}

static int tokens_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_token *t;
	size_t n;

	if (ctx->ops->tokens->list(face_ask(rq), &t, &n, err) < 0)
		return -1;
	return answer_list(rq, "api_keys", &token_record, t, n, err);
}

/* The stock client says a type, ours a role. A key to export metrics reads, others do jobs; none
 * becomes an administrator's but by its own word. */
static int role_of(const struct doc *body, enum model_role *role, struct err *err)
{
	/* clang-format off */
	static const struct { const char *type; enum model_role role; } types[] = {
		{ "PERSONAL",                 ROLE_MEMBER },
		{ "WORKSPACE_MANAGE_ALL",     ROLE_MEMBER },
		{ "WORKSPACE_INVOKE",         ROLE_VIEWER },
		{ "WORKSPACE_EXPORT_METRICS", ROLE_VIEWER },
	};
	/* clang-format on */
	const char *word = NULL, *type = NULL;

	if (body_text(body, "role", false, &word, err) < 0 ||
	    body_text(body, "type", false, &type, err) < 0)
		return -1;
	*role = ROLE_MEMBER;
	if (word != NULL) {
		int known = words_parse(&show_roles, str_of(word), ERR_INVALID, err);

		if (known < 0)
			return err_wrap(err, "role");
		*role = (enum model_role)known;
	}
	for (size_t i = 0; type != NULL && i < COUNT(types); i++) {
		if (strcmp(type, types[i].type) != 0)
			continue;
		if (word == NULL)
			*role = types[i].role;
		return 0;
	}
	if (type != NULL)
		return err_set(err, ERR_INVALID, "type: \"%.50s\" is not a type of API key", type);
	return 0;
}

struct shown_new_token {
	struct model_token t;
	const char *api_key;
};
SHOWN(new_token, "NewApiKey", shown_new_token, ROW(shown_new_token, R_TEXT, api_key),
      ROW_AS(shown_new_token, R_TEXT, "id", t.id), ROW_AS(shown_new_token, R_TEXT, "name", t.name),
      ROW_WORD_AS(shown_new_token, 0, "role", t.role, show_roles),
      ROW_AS(shown_new_token, R_TEXT | R_NULL, "team_id", t.team_id),
      ROW_AS(shown_new_token, R_TIME | R_NULL, "created_at", t.created_ms),
      ROW_AS(shown_new_token, R_TIME | R_NULL, "expires_at", t.expires_ms));

static int token_make(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *name = NULL, *team_id = NULL;
	struct shown_new_token v = {0};
	const struct doc *body;
	enum model_role role;
	int64_t days = 0;
	char *plain = NULL;

	if (body_read(rq, false, &body, err) < 0 || checked_name(body, &name, err) < 0 ||
	    body_text(body, "team_id", false, &team_id, err) < 0 || role_of(body, &role, err) < 0 ||
	    body_int(body, "expires_in_days", 1, DAYS_MAX, &days, err) < 0)
		return -1;
	if (team_id == NULL)
		team_id = face_principal(rq)->team_id;
	if (ctx->ops->tokens->create(face_ask(rq), name, team_id, role,
	                             days > 0 ? clock_wall_ms() + days * DAY_MS : 0, &v.t, &plain,
	                             err) < 0)
		return -1;
	v.api_key = plain;
	reply_header(rq, "Cache-Control", "no-store");
	return answer_members(rq, &new_token_record, &v, err);
}

static int token_remove(struct request *rq, struct err *err)
{
	return removed(rq, face_ctx(rq)->ops->tokens->remove, err);
}

/* The team of the path, or NULL where the route has none: the caller's, else the default one. */
static const char *team_of_path(struct request *rq)
{
	return strstr(rq->route->pattern, "{team_id}") != NULL ? arg_text(rq, 0) : NULL;
}

static int secrets_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct shown_secret *v;
	struct model_secret *s;
	struct model_team *t;
	size_t n, n_teams;

	if (all_teams(rq, &t, &n_teams, err) < 0 ||
	    ctx->ops->secrets->list(face_ask(rq), team_of_path(rq), &s, &n, err) < 0)
		return -1;
	v = ARENA_ARRAY(rq->arena, struct shown_secret, n);
	for (size_t i = 0; i < n; i++)
		v[i] = (struct shown_secret){s[i], name_of_team(t, n_teams, s[i].team_id)};
	return answer_list(rq, "secrets", &secret_record, v, n, err);
}

static int secret_put(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *name, *value = NULL;
	struct shown_secret v = {0};
	struct model_team *t;
	const struct doc *body;
	size_t n_teams;

	if (body_read(rq, false, &body, err) < 0 || checked_name(body, &name, err) < 0 ||
	    body_text(body, "value", true, &value, err) < 0)
		return -1;
	if (value[0] == '\0' || strlen(value) > VALUE_MAX)
		return err_set(err, ERR_INVALID, "value: expected 1 to %zu bytes", VALUE_MAX);
	if (all_teams(rq, &t, &n_teams, err) < 0 ||
	    ctx->ops->secrets->set(face_ask(rq), team_of_path(rq), name, str_of(value), &v.s, err) <
	            0)
		return -1;
	v.team_name = name_of_team(t, n_teams, v.s.team_id);
	return answer_members(rq, &secret_record, &v, err);
}

static int secret_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *team_id = team_of_path(rq), *name = arg_text(rq, team_id != NULL ? 1 : 0);

	if (ctx->ops->secrets->remove(face_ask(rq), team_id, name, err) < 0)
		return -1;
	return answer_deleted(rq, "name", name, err);
}

struct shown_capacity {
	struct capacity_row r;
	int64_t limit, spot;
};
#define CAPACITY(k, n, f) ROW_AS(shown_capacity, k, n, r.f)
SHOWN(capacity, "Capacity", shown_capacity, CAPACITY(R_TEXT, "gpu_type", gpu_type),
      CAPACITY(R_I64, "baseline", baseline), ROW(shown_capacity, R_I64, limit),
      CAPACITY(R_I64, "usage_count", used), CAPACITY(R_I64, "dedicated_usage_count", used),
      ROW_AS(shown_capacity, R_I64, "spot_usage_count", spot),
      CAPACITY(R_TEXT | R_SPARSE, "team_id", team_id),
      CAPACITY(R_TEXT | R_SPARSE, "team_name", team_name));

/* A limit of -1 is none: then what is there is the limit. */
static struct shown_capacity limited(const struct capacity_row *r)
{
	return (struct shown_capacity){*r, r->limit >= 0 ? r->limit : r->baseline, 0};
}

static int capacity_show(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct capacity_row *r;
	size_t n;

	if (ctx->ops->capacity->list(face_ask(rq), &r, &n, err) < 0)
		return -1;
	answer_open(&an);
	for (int of_teams = 0; of_teams < 2; of_teams++) {
		js_key(&an.js, of_teams ? "team_gpu_capacities" : "gpu_capacities");
		js_list(&an.js);
		for (size_t i = 0; i < n; i++) {
			struct shown_capacity v = limited(&r[i]);

			if ((r[i].team_id != NULL) == (of_teams == 1))
				record_write_js(&capacity_record, &v, &an.js);
		}
		js_end(&an.js);
	}
	return answer_send(rq, &an, 200, err);
}

static int capacity_change(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *team_id = NULL, *type = NULL;
	struct capacity_row row = {0};
	struct shown_capacity v;
	const struct doc *body;
	int64_t most = -1;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "team_id", true, &team_id, err) < 0 ||
	    body_text(body, "gpu_type", true, &type, err) < 0 ||
	    body_int(body, "max_gpus", 0, GPUS_MAX, &most, err) < 0)
		return -1;
	if (most < 0)
		return err_set(err, ERR_INVALID, "max_gpus: missing");
	if (ctx->ops->capacity->set(face_ask(rq), team_id, type, most, &row, err) < 0)
		return -1;
	v = limited(&row);
	return answer_one(rq, "team_gpu_capacity", &capacity_record, &v, err);
}

SHOWN(node, "Node", node_row, ROW(node_row, R_TEXT, name), ROW(node_row, R_TEXT | R_NULL, cluster),
      ROW(node_row, R_TEXT | R_NULL, gpu_type), ROW(node_row, R_U32, gpus),
      ROW(node_row, R_SUM, gpus_used), ROW_AS(node_row, R_U32, "millicpu", cpu_milli),
      ROW_AS(node_row, R_U32, "millicpu_used", cpu_milli_used), ROW(node_row, R_U64, memory_bytes),
      ROW_AS(node_row, R_U64, "memory_used_bytes", memory_used), ROW(node_row, R_BOOL, declared));

struct shown_status {
	struct server_status s;
	int64_t now_ms, database_away_ms, objects_away_ms;
	const char *objects_problem;
	bool has_jobs;
};
#define STATUS(k, n, f) ROW_AS(shown_status, k, n, s.f)
static SHOWN(disk, NULL, shown_status, STATUS(R_U64, "free", disk_free),
             STATUS(R_U64, "total", disk_total));
static SHOWN(standby, NULL, standby_row, ROW(standby_row, R_TEXT, host),
             ROW(standby_row, R_I64 | R_NEGATIVE, seen_ms));
static SHOWN(standby_gone, NULL, shown_status, STATUS(R_TEXT, "host", standby_gone),
             STATUS(R_TIME, "seen_at", standby_gone_ms));
static SHOWN(job_counts, NULL, shown_status, STATUS(R_U64, "active", jobs_active),
             STATUS(R_U64, "pending", jobs_pending));
static SHOWN(node_cache, NULL, shown_status, STATUS(R_U64, "bytes", node_cache_bytes),
             STATUS(R_U64, "budget", node_cache_budget));
static SHOWN(artifacts, NULL, shown_status, STATUS(R_U64, "bytes", artifacts.bytes),
             STATUS(R_U64, "budget", artifacts.budget));
/* now: `stoker doctor` compares clocks. */
SHOWN(status, "Status", shown_status, STATUS(R_TEXT, "version", version),
      ROW_AS(shown_status, R_TIME, "now", now_ms),
      STATUS(R_TIME | R_NULL, "started_at", started_ms),
      STATUS(R_TEXT | R_NULL, "base_url", base_url), STATUS(R_TEXT | R_NULL, "sandbox", sandbox),
      STATUS(R_TEXT | R_NULL, "python", python), ROW_PART(0, "disk", disk),
      ROW_OF_AS(shown_status, R_LIST, "nodes", s.nodes, s.n_nodes, node),
      ROW(shown_status, R_I64, database_away_ms), ROW(shown_status, R_I64, objects_away_ms),
      ROW(shown_status, R_TEXT | R_NULL, objects_problem),
      ROW_OF_AS(shown_status, R_LIST, "standbys", s.standbys, s.n_standbys, standby),
      ROW_PART(R_NULL, "standby_gone", standby_gone),
      ROW_PART_IF(shown_status, "jobs", has_jobs, job_counts),
      STATUS(R_U64, "mirror_bytes", mirror_bytes), STATUS(R_U64, "mirror_budget", mirror_budget),
      STATUS(R_U64, "mirror_reserved", mirror_reserved), ROW_PART(0, "node_cache", node_cache),
      ROW_PART(0, "artifacts", artifacts));

static int status_show(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct shown_status v = {.now_ms = clock_wall_ms()};
	char why[OBJSTORE_WHY_MAX];
	struct outage objects;

	if (ctx->ops->server->status(face_ask(rq), &v.s, err) < 0)
		return -1;
	objstore_outage(ctx->objects, &objects, why);
	v.database_away_ms = outage_away_ms(&v.s.database, v.now_ms);
	v.objects_away_ms = outage_away_ms(&objects, v.now_ms);
	v.objects_problem = objects.since_ms != 0 ? why : NULL;
	v.has_jobs = v.s.database.since_ms == 0;
	return answer_members(rq, &status_record, &v, err);
}

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/users/me",                        me,              "Get the owner of the token" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/teams",                           teams_list,      "List teams" },
	{ HTTP_POST,   SCOPE_ADMIN,  SMALL,      "/v1/teams",                           team_make,       "Create a team" },
	{ HTTP_DELETE, SCOPE_ADMIN,  SMALL,      "/v1/teams/{team_id}",                 team_remove,     "Delete a team that has no projects" },
	{ HTTP_GET,    SCOPE_ADMIN,  0,          "/v1/api_keys",                        tokens_list,     "List API keys, without their values" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL,      "/v1/api_keys",                        token_make,      "Create an API key; it is shown once" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL,      "/v1/api_keys/{api_key_id}",           token_remove,    "Revoke an API key" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/secrets",                         secrets_list,    "List names of secrets" },
	{ HTTP_POST,   SCOPE_MEMBER, SECRET_MAX, "/v1/secrets",                         secret_put,      "Set a secret" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL,      "/v1/secrets/{name}",                  secret_remove,   "Delete a secret" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/teams/{team_id}/secrets",         secrets_list,    "List names of a team's secrets" },
	{ HTTP_POST,   SCOPE_MEMBER, SECRET_MAX, "/v1/teams/{team_id}/secrets",         secret_put,      "Set a team's secret" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL,      "/v1/teams/{team_id}/secrets/{name}",  secret_remove,   "Delete a team's secret" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/training/capacity",               capacity_show,   "Get GPU capacity, use and limits" },
	{ HTTP_PATCH,  SCOPE_ADMIN,  SMALL,      "/v1/training/capacity",               capacity_change, "Limit the GPUs of a team" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,          "/v1/status",                          status_show,     "Get the server's status" },
};
/* clang-format on */

const struct face face_admin = {"admin", routes, COUNT(routes), NULL};
