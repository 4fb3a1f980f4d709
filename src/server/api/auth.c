/* auth.c - who is asking; and the operations on tokens. */
#include "server/api/auth.h"
#include "io/proof.h"
#include "server/api/ctx.h"
#include "server/api/exec.h"
#include "server/control/compile.h"
#include "server/control/specs.h"
#include "server/data/repos.h"

#define TOKEN_MAX 200
#define HF_PREFIX "hf_" /* without it some clients of a Hub send no token: @huggingface/hub */
#define TOKENS_MAX 10000
#define JOB_USE "job-token\n"
#define USE_CAP 32
#define ATTEMPT_CAP 64      /* of an id */
#define BASIC_MAX 1000      /* bytes of user and token */
#define USED_EVERY_MS 60000 /* "last used" is written at most this often */

static char *hash_of(struct arena *a, struct str token)
{
	struct digest d = hash_sha256(token.p, token.n);
	char *hex = arena_alloc(a, HASH_HEX_CAP);

	digest_hex(&d, hex);
	return hex;
}

char *auth_new_token(struct arena *a, const char *prefix, char **hash)
{
	AUTO_BUF struct buf b = BUF_INIT(TOKEN_MAX);

	seal_token(prefix, &b);
	*hash = hash_of(a, buf_view(&b));
	return arena_strz(a, buf_view(&b));
}

static int refuse(struct err *err)
{
	return err_set(err, ERR_TOKEN_INVALID, "the token is unknown or was revoked");
}

static int runner_principal(struct app *app, struct arena *a, const char *hash, struct principal *w,
                            struct err *err)
{
	struct model_attempt t = {0};

	if (meta_attempt_by_token(app->meta, a, hash, &t, err) < 0)
		return -1;
	w->name = "runner";
	w->token_id = t.id;
	w->attempt_id = t.id;
	w->node_rank = t.node_rank;
	w->role = ROLE_VIEWER;
	return 0;
}

static void remember(struct app *app, const char *hash, const struct model_token *t)
{
	struct known_tokens *k = app->known;
	struct known_token *at = NULL;

	lock_take(&k->lock);
	for (size_t i = 0; i < AUTH_KNOWN_MAX && at == NULL; i++)
		at = strcmp(k->token[i].hash, hash) == 0 ? &k->token[i] : NULL;
	if (at == NULL)
		at = &k->token[k->next++ % AUTH_KNOWN_MAX];
	FMT(at->hash, "%s", hash);
	FMT(at->id, "%s", t->id);
	FMT(at->team_id, "%s", t->team_id != NULL ? t->team_id : "");
	FMT(at->name, "%s", t->name);
	at->role = t->role;
	at->expires_ms = t->expires_ms;
	lock_give(&k->lock);
}

static bool recall(struct app *app, struct arena *a, const char *hash, struct model_token *out)
{
	struct known_tokens *k = app->known;
	bool found = false;

	lock_take(&k->lock);
	for (size_t i = 0; i < AUTH_KNOWN_MAX && !found; i++) {
		const struct known_token *t = &k->token[i];

		found = strcmp(t->hash, hash) == 0;
		if (found)
			*out = (struct model_token){
				.id = arena_cstr(a, t->id),
				.name = arena_cstr(a, t->name),
				.team_id = t->team_id[0] != '\0' ? arena_cstr(a, t->team_id) : NULL,
				.role = t->role,
				.used_ms = INT64_MAX, /* nobody can be told */
				.expires_ms = t->expires_ms,
			};
	}
	lock_give(&k->lock);
	return found;
}

void auth_forget(struct app *app)
{
	lock_take(&app->known->lock);
	memset(app->known->token, 0, sizeof(app->known->token));
	lock_give(&app->known->lock);
}

static int token_of(struct app *app, struct arena *a, const char *hash, struct model_token *out,
                    struct err *err)
{
	struct outage outage;

	meta_outage(app->meta, false, &outage);
	if (outage.since_ms != 0 && recall(app, a, hash, out))
		return 0;
	if (meta_token_by_hash(app->meta, a, hash, out, err) < 0) {
		if (err->id != ERR_DATABASE_UNAVAILABLE || !recall(app, a, hash, out))
			return -1;
		err_clear(err);
		return 0;
	}
	remember(app, hash, out);
	return 0;
}

static int person_principal(struct app *app, struct arena *a, const char *hash, struct principal *w,
                            struct err *err)
{
	int64_t now = clock_wall_ms();
	struct err ignored = {0};
	struct model_token t = {0};

	if (token_of(app, a, hash, &t, err) < 0)
		return -1;
	if (t.expires_ms != 0 && t.expires_ms <= now)
		return err_set(err, ERR_TOKEN_INVALID, "token \"%s\" has expired", t.name);
	if (now - t.used_ms >= USED_EVERY_MS && meta_token_used(app->meta, t.id, now, &ignored) < 0)
		log_warn("token: %s", ignored.msg); /* only shown to people */
	w->name = t.name;
	w->token_id = t.id;
	w->team_id = t.team_id;
	w->role = t.role;
	w->expires_ms = t.expires_ms;
	return 0;
}

/* ---- of a job's commands ------------------------------------------------------------------- */

void auth_attempt_mac(const struct app *app, const char *use, struct str attempt_id,
                      char out[HASH_HEX_CAP])
{
	char text[USE_CAP + ATTEMPT_CAP];
	uint8_t mac[HASH_SHA256_LEN];

	FMT(text, "%s%.*s", use, STR_ARG(attempt_id));
	hash_hmac_sha256(app->url_secret_key, strlen(app->url_secret_key), text, strlen(text), mac);
	hex_encode(mac, sizeof(mac), out);
}

const char *auth_job_token(struct app *app, struct arena *a, const char *attempt_id)
{
	char mac[HASH_HEX_CAP];

	auth_attempt_mac(app, JOB_USE, str_of(attempt_id), mac);
	return arena_printf(a, APP_JOB_TOKEN "_%s_%s", attempt_id, mac);
}

/* The id of the attempt that it was made for; NULL: it was not made here. */
static const char *job_token_of(struct app *app, struct arena *a, struct str token)
{
	struct str mac = str_skip(token, strlen(APP_JOB_TOKEN "_")), id = {0};
	char want[HASH_HEX_CAP];

	if (!str_cut(&mac, '_', &id) || id.n == 0 || id.n >= ATTEMPT_CAP ||
	    mac.n != HASH_HEX_CAP - 1)
		return NULL;
	auth_attempt_mac(app, JOB_USE, id, want);
	return seal_same(mac.p, want, mac.n) ? arena_strz(a, id) : NULL;
}

int auth_job_rights(struct app *app, struct arena *a, const struct model_job *job,
                    const struct job_rights **out, struct err *err)
{
	struct job_rights *rights = ARENA_NEW(a, struct job_rights);
	AUTO_SPEC struct specs_hold hold = {0};
	const char **key, *cache;

	if (specs_get(app, job->id, &hold, err) < 0)
		return -1;
	key = ARENA_ARRAY(a, const char *, hold.spec->n_hub_push + 1);
	for (size_t i = 0; i < hold.spec->n_hub_push; i++)
		key[rights->n_push++] = repo_push_key(a, hold.spec->hub_push[i], job->user);
	if (hold.spec->compile.enabled) {
		cache = compile_repo(a, hold.spec, job->user, job->team_name);
		rights->keeps = compile_is_own(cache, job->user, job->team_name);
		if (rights->keeps)
			key[rights->n_push++] = repo_push_key(a, cache, job->user);
	}
	rights->job_id = job->id;
	rights->push = key;
	*out = rights;
	return 0;
}

/* While the database is away, what it said last; nothing can be pushed then. */
static int job_recall(struct app *app, struct arena *a, const char *hash, struct principal *w,
                      struct err *err)
{
	struct job_rights *rights = ARENA_NEW(a, struct job_rights);
	struct model_token t = {0};

	if (err->id != ERR_DATABASE_UNAVAILABLE || !recall(app, a, hash, &t))
		return -1;
	err_clear(err);
	rights->job_id = w->token_id = t.id;
	w->job = rights;
	w->name = t.name;
	w->team_id = t.team_id;
	return 0;
}

static int job_principal(struct app *app, struct arena *a, struct str token, struct principal *w,
                         struct err *err)
{
	const char *id = job_token_of(app, a, token), *hash = hash_of(a, token);
	struct model_attempt *t = NULL;
	struct model_job job = {0};
	size_t n = 0, ended = 0;

	w->role = ROLE_VIEWER;
	if (id == NULL)
		return refuse(err);
	if (meta_attempt(app->meta, a, id, &t, &n, err) < 0 ||
	    meta_job_brief(app->meta, a, t[0].job_id, &job, err) < 0)
		return job_recall(app, a, hash, w, err);
	for (size_t i = 0; i < n; i++)
		ended += t[i].ended_ms != 0;
	if (!job_state_is_placed(job.core.state) || !app_same(job.attempt_id, id) || ended == n)
		return err_set(err, ERR_TOKEN_INVALID, "this token was good as long as job %s ran",
		               job.id);
	if (auth_job_rights(app, a, &job, &w->job, err) < 0)
		return -1;
	w->token_id = job.id;
	w->name = job.user;
	w->team_id = job.team_id;
	remember(app, hash,
	         &(struct model_token){.id = job.id,
	                               .team_id = job.team_id,
	                               .name = job.user,
	                               .role = ROLE_VIEWER});
	return 0;
}

static int authenticate_any(struct app *app, struct arena *a, struct str token, bool local,
                            struct principal **out, struct err *err)
{
	struct principal *w = ARENA_NEW(a, struct principal);
	const char *hash;
	int r;

	if (token.n == 0 || token.n > TOKEN_MAX)
		return refuse(err);
	if (str_starts(token, APP_LOCAL_TOKEN "_") && !local)
		return refuse(err); /* it was stolen: its runner has the socket */
	hash = hash_of(a, token);
	w->magic = PRINCIPAL_MAGIC;
	if (str_starts(token, APP_JOB_TOKEN "_"))
		r = job_principal(app, a, token, w, err);
	else
		r = str_starts(token, APP_RUN_TOKEN "_") || str_starts(token, APP_LOCAL_TOKEN "_")
		            ? runner_principal(app, a, hash, w, err)
		            : person_principal(app, a, hash, w, err);
	if (r < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		return refuse(err);
	}
	if (r == 0)
		*out = w;
	return r;
}

/* Of anybody but a job. */
static int authenticate(struct app *app, struct arena *a, struct str token, bool local,
                        struct principal **out, struct err *err)
{
	if (str_starts(token, APP_JOB_TOKEN "_"))
		return err_set(err, ERR_DENIED,
		               "the token of a job's commands is good for the Hub and for "
		               "artifacts alone");
	return authenticate_any(app, a, token, local, out, err);
}

/* Of a person, or of a runner. */
static int hash_by_prefix(struct app *app, struct arena *a, const char *prefix, const char **out,
                          struct err *err)
{
	struct model_attempt attempt = {0};
	struct model_token t = {0};

	if (meta_token_by_prefix(app->meta, a, prefix, &t, err) == 0) {
		*out = t.hash;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	if (meta_attempt_by_token_prefix(app->meta, a, prefix, &attempt, err) < 0)
		return -1;
	*out = attempt.token_hash;
	return 0;
}

static int prove_token(struct app *app, const char *id, struct str challenge, struct str address,
                       char proof[HASH_HEX_CAP], struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *hash = NULL;
	struct digest key;

	if (hash_by_prefix(app, a, id, &hash, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return refuse(err);
	}
	if (digest_parse(str_of(hash), &key, err) < 0)
		return -1;
	proof_make(&key, challenge, address, proof);
	seal_wipe(&key, sizeof(key));
	return 0;
}

static enum model_role role_of(enum scope scope)
{
	switch (scope) {
	case SCOPE_ADMIN:
		return ROLE_ADMIN;
	case SCOPE_MEMBER:
	case SCOPE_PUSH:
		return ROLE_MEMBER;
	case SCOPE_VIEWER:
	case SCOPE_READ:
	case SCOPE_RUNNER:
	case SCOPE_OPEN:
		break;
	}
	return ROLE_VIEWER;
}

/* Tools of builds know users and passwords alone: the password is the token. Only there: a browser
 * sends them again by itself, wherever a page of a stranger makes it. */
static int token_of_basic(struct request *rq, struct str *token, struct err *err)
{
	AUTO_BUF struct buf pair = BUF_INIT(BASIC_MAX);
	struct str rest, user;

	if (base64_decode(*token, false, &pair, err) < 0 || buf_check(&pair, "", err) < 0) {
		err_clear(err);
		return err_set(err, ERR_AUTH,
		               "Authorization: Basic has no user and token in base64");
	}
	rest = arena_str(rq->arena, buf_view(&pair));
	seal_wipe(pair.p, pair.n);
	if (!str_cut(&rest, ':', &user) || rest.n == 0)
		return err_set(err, ERR_AUTH, "Authorization: Basic: the password is the token");
	*token = rest;
	return 0;
}

int auth_request(struct request *rq, enum scope scope, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str header = str_trim(request_header(rq, "Authorization")), scheme;
	bool basic, may_be_basic = rq->face == &face_artifact;
	struct principal *w = NULL;
	int (*may)(struct app *, struct arena *, struct str, bool, struct principal **,
	           struct err *);

	if (header.n == 0)
		return err_set(err, ERR_AUTH,
		               "a token is required: Authorization: Bearer <token>%s",
		               may_be_basic ? ", or Basic with the token as password" : "");
	if (!str_cut(&header, ' ', &scheme))
		scheme = (struct str){0};
	basic = may_be_basic && str_ieq(scheme, "Basic");
	if (!basic && !str_ieq(scheme, "Bearer") && !str_ieq(scheme, "Api-Key"))
		return err_set(err, ERR_AUTH, "Authorization: Bearer <token> is expected");
	may = scope == SCOPE_READ || scope == SCOPE_PUSH ? authenticate_any : authenticate;
	header = str_trim(header);
	if (basic && token_of_basic(rq, &header, err) < 0)
		return -1;
	if (str_starts(header, HF_PREFIX APP_TOKEN))
		header = str_skip(header, strlen(HF_PREFIX));
	if (may(ctx->app, rq->arena, header, rq->local, &w, err) < 0)
		return -1;
	if (scope == SCOPE_RUNNER && w->attempt_id == NULL)
		return err_set(err, ERR_DENIED, "only runners may call this route");
	if (scope != SCOPE_RUNNER && w->job == NULL &&
	    ctx_need(&(struct ask){ctx->app, w, rq->arena}, role_of(scope), err) < 0)
		return -1;
	face_caller(rq, w);
	return 0;
}

static int list_tokens(const struct ask *ask, struct model_token **out, size_t *n, struct err *err)
{
	if (ctx_need(ask, ROLE_ADMIN, err) < 0)
		return -1;
	return meta_tokens(ask->app->meta, ask->a, ask->principal->team_id, out, n, err);
}

static int create_token(const struct ask *ask, const char *name, const char *team_id,
                        enum model_role role, int64_t expires_ms, struct model_token *out,
                        char **plain, struct err *err)
{
	struct app *app = ask->app;
	const char *team = team_id != NULL ? team_id : ask->principal->team_id;
	struct model_token *all = NULL;
	char *hash = NULL;
	size_t n = 0;

	if (ctx_need(ask, ROLE_ADMIN, err) < 0 ||
	    (team != NULL && ctx_team(ask, team, &team, err) < 0) ||
	    meta_tokens(app->meta, ask->a, NULL, &all, &n, err) < 0)
		return -1;
	if (name == NULL || name[0] == '\0' || strlen(name) > SPEC_NAME_MAX)
		return err_set(err, ERR_INVALID, "a token's name must have 1 to %d characters",
		               SPEC_NAME_MAX);
	if (n >= TOKENS_MAX)
		return err_set(err, ERR_QUOTA, "there are %d tokens already, which is the limit",
		               TOKENS_MAX);
	if (role < ROLE_VIEWER || role > ROLE_ADMIN)
		return err_set(err, ERR_INVALID, "role: viewer, member or admin");
	*plain = auth_new_token(ask->a, APP_TOKEN, &hash);
	*out = (struct model_token){
		.id = app_id(ask->a, MODEL_ID_LEN),
		.name = name,
		.team_id = team,
		.hash = hash,
		.role = role,
		.created_ms = clock_wall_ms(),
		.expires_ms = expires_ms,
	};
	if (meta_token_add(app->meta, out, err) < 0)
		return -1;
	log_info("token created: id=%s name=%s by=%s", out->id, name, ask->principal->name);
	return 0;
}

static int remove_token(const struct ask *ask, const char *id, struct err *err)
{
	struct app *app = ask->app;
	struct model_token t = {0};

	if (ctx_need(ask, ROLE_ADMIN, err) < 0 || meta_token(app->meta, ask->a, id, &t, err) < 0)
		return -1;
	if (ask->principal->team_id != NULL && !app_same(t.team_id, ask->principal->team_id))
		return err_missing(err, ERR_TOKEN_NOT_FOUND);
	if (strcmp(t.id, ask->principal->token_id) == 0)
		return err_set(err, ERR_CONFLICT,
		               "you are using this token; use another one to delete it");
	if (meta_token_del(app->meta, id, err) < 0)
		return -1;
	auth_forget(app);
	exec_token_gone(app, id);
	log_info("token deleted: id=%s name=%s by=%s", id, t.name, ask->principal->name);
	return 0;
}

const struct token_ops token_ops = {
	.list = list_tokens,
	.create = create_token,
	.remove = remove_token,
	.authenticate = authenticate,
	.authenticate_any = authenticate_any,
	.prove = prove_token,
};
