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

static int me(struct request *rq, struct err *err)
{
	const struct principal *principal = face_principal(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_team *t;
	size_t n;

	if (all_teams(rq, &t, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(&an.js, "email", principal->name);
	js_kv(&an.js, "name", principal->name);
	js_kv(&an.js, "role", show_role(principal->role));
	js_key(&an.js, "team");
	if (principal->team_id != NULL) {
		js_open(&an.js);
		js_kv(&an.js, "id", principal->team_id);
		js_kv(&an.js, "name", name_of_team(t, n, principal->team_id));
		js_close(&an.js);
	} else {
		js_null(&an.js);
	}
	js_kv(&an.js, "workspace_name", "stoker");
	return answer_send(rq, &an, 200, err);
}

static int teams_list(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct model_team *t;
	size_t n;

	if (all_teams(rq, &t, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "teams");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_team(&an.js, &t[i]);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
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
	AUTO_ANSWER struct answer an = {0};
	struct model_team t = {0};
	const struct doc *body;
	const char *name;

	if (body_read(rq, false, &body, err) < 0 || checked_name(body, &name, err) < 0 ||
	    ctx->ops->teams->create(face_ask(rq), name, &t, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "team");
	show_team(&an.js, &t);
	return answer_send(rq, &an, 200, err);
}

static int team_remove(struct request *rq, struct err *err)
{
	return removed(rq, face_ctx(rq)->ops->teams->remove, err);
}

static int tokens_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_token *t;
	size_t n;

	if (ctx->ops->tokens->list(face_ask(rq), &t, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "api_keys");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_token(&an.js, &t[i]);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
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
	if (word != NULL && !show_role_parse(str_of(word), role))
		return err_set(err, ERR_INVALID, "role: \"%.50s\" is not viewer, member or admin",
		               word);
	if (word == NULL)
		*role = ROLE_MEMBER;
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

static int token_make(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const char *name = NULL, *team_id = NULL;
	struct model_token t = {0};
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
	                             days > 0 ? clock_wall_ms() + days * DAY_MS : 0, &t, &plain,
	                             err) < 0)
		return -1;
	reply_header(rq, "Cache-Control", "no-store");
	answer_open(&an);
	js_kv(&an.js, "api_key", plain);
	js_kv(&an.js, "id", t.id);
	js_kv(&an.js, "name", t.name);
	js_kv(&an.js, "role", show_role(t.role));
	js_kv(&an.js, "team_id", t.team_id);
	show_time(&an.js, "created_at", t.created_ms);
	show_time(&an.js, "expires_at", t.expires_ms);
	return answer_send(rq, &an, 200, err);
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
	AUTO_ANSWER struct answer an = {0};
	struct model_secret *s;
	struct model_team *t;
	size_t n, n_teams;

	if (all_teams(rq, &t, &n_teams, err) < 0 ||
	    ctx->ops->secrets->list(face_ask(rq), team_of_path(rq), &s, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "secrets");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++) {
		js_open(&an.js);
		show_secret(&an.js, &s[i], name_of_team(t, n_teams, s[i].team_id));
		js_close(&an.js);
	}
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

static int secret_put(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const char *name, *value = NULL;
	struct model_secret s = {0};
	struct model_team *t;
	const struct doc *body;
	size_t n_teams;

	if (body_read(rq, false, &body, err) < 0 || checked_name(body, &name, err) < 0 ||
	    body_text(body, "value", true, &value, err) < 0)
		return -1;
	if (value[0] == '\0' || strlen(value) > VALUE_MAX)
		return err_set(err, ERR_INVALID, "value: expected 1 to %zu bytes", VALUE_MAX);
	if (all_teams(rq, &t, &n_teams, err) < 0 ||
	    ctx->ops->secrets->set(face_ask(rq), team_of_path(rq), name, str_of(value), &s, err) <
	            0)
		return -1;
	answer_open(&an);
	show_secret(&an.js, &s, name_of_team(t, n_teams, s.team_id));
	return answer_send(rq, &an, 200, err);
}

static int secret_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *team_id = team_of_path(rq), *name = arg_text(rq, team_id != NULL ? 1 : 0);

	if (ctx->ops->secrets->remove(face_ask(rq), team_id, name, err) < 0)
		return -1;
	return answer_deleted(rq, "name", name, err);
}

/* A limit of -1 is none: then what is there is the limit. */
static void show_capacity(struct js *js, const struct capacity_row *r)
{
	js_open(js);
	js_kv(js, "gpu_type", r->gpu_type);
	js_kv_int(js, "baseline", r->baseline);
	js_kv_int(js, "limit", r->limit >= 0 ? r->limit : r->baseline);
	js_kv_int(js, "usage_count", r->used);
	js_kv_int(js, "dedicated_usage_count", r->used);
	js_kv_int(js, "spot_usage_count", 0);
	if (r->team_id != NULL) {
		js_kv(js, "team_id", r->team_id);
		js_kv(js, "team_name", r->team_name);
	}
	js_close(js);
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
		for (size_t i = 0; i < n; i++)
			if ((r[i].team_id != NULL) == (of_teams == 1))
				show_capacity(&an.js, &r[i]);
		js_end(&an.js);
	}
	return answer_send(rq, &an, 200, err);
}

static int capacity_change(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const char *team_id = NULL, *type = NULL;
	struct capacity_row row = {0};
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
	answer_open(&an);
	js_key(&an.js, "team_gpu_capacity");
	show_capacity(&an.js, &row);
	return answer_send(rq, &an, 200, err);
}

static void show_node(struct js *js, const struct node_row *n)
{
	js_open(js);
	js_kv(js, "name", n->name);
	js_kv(js, "cluster", n->cluster);
	js_kv(js, "gpu_type", n->gpu_type);
	js_kv_u64(js, "gpus", n->gpus);
	js_kv_int(js, "gpus_used", __builtin_popcountll(n->gpus_used));
	js_kv_u64(js, "millicpu", n->cpu_milli);
	js_kv_u64(js, "millicpu_used", n->cpu_milli_used);
	js_kv_u64(js, "memory_bytes", n->memory_bytes);
	js_kv_u64(js, "memory_used_bytes", n->memory_used);
	js_kv_bool(js, "declared", n->declared);
	js_close(js);
}

static void show_standbys(struct js *js, const struct server_status *s)
{
	js_key(js, "standbys");
	js_list(js);
	for (size_t i = 0; i < s->n_standbys; i++) {
		js_open(js);
		js_kv(js, "host", s->standbys[i].host);
		js_key(js, "seen_ms");
		if (s->standbys[i].seen_ms >= 0)
			js_int(js, s->standbys[i].seen_ms);
		else
			js_null(js);
		js_close(js);
	}
	js_end(js);
	js_key(js, "standby_gone");
	if (s->standby_gone == NULL) {
		js_null(js);
		return;
	}
	js_open(js);
	js_kv(js, "host", s->standby_gone);
	show_time(js, "seen_at", s->standby_gone_ms);
	js_close(js);
}

static int status_show(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct server_status s = {0};
	char why[OBJSTORE_WHY_MAX];
	struct outage objects;
	struct js *js = &an.js;

	if (ctx->ops->server->status(face_ask(rq), &s, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(js, "version", s.version);
	show_time(js, "now", clock_wall_ms()); /* `stoker doctor` compares clocks */
	show_time(js, "started_at", s.started_ms);
	js_kv(js, "base_url", s.base_url);
	js_kv(js, "sandbox", s.sandbox);
	js_kv(js, "python", s.python);
	js_key(js, "disk");
	js_open(js);
	js_kv_u64(js, "free", s.disk_free);
	js_kv_u64(js, "total", s.disk_total);
	js_close(js);
	js_key(js, "nodes");
	js_list(js);
	for (size_t i = 0; i < s.n_nodes; i++)
		show_node(js, &s.nodes[i]);
	js_end(js);
	js_kv_int(js, "database_away_ms", outage_away_ms(&s.database, clock_wall_ms()));
	objstore_outage(ctx->objects, &objects, why);
	js_kv_int(js, "objects_away_ms", outage_away_ms(&objects, clock_wall_ms()));
	js_kv(js, "objects_problem", objects.since_ms != 0 ? why : NULL);
	show_standbys(js, &s);
	js_key(js, "jobs");
	if (s.database.since_ms == 0) {
		js_open(js);
		js_kv_u64(js, "active", s.jobs_active);
		js_kv_u64(js, "pending", s.jobs_pending);
		js_close(js);
	} else {
		js_null(js);
	}
	js_kv_u64(js, "mirror_bytes", s.mirror_bytes);
	js_kv_u64(js, "mirror_budget", s.mirror_budget);
	js_kv_u64(js, "mirror_reserved", s.mirror_reserved);
	js_key(js, "node_cache");
	js_open(js);
	js_kv_u64(js, "bytes", s.node_cache_bytes);
	js_kv_u64(js, "budget", s.node_cache_budget);
	js_close(js);
	return answer_send(rq, &an, 200, err);
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
