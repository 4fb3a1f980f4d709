/* gcp_token.c - see gcp_token.h. */
#include "store/sources/gcp_token.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/jwt.h"
#include "base/seal.h"

#define SCOPE "https://www.googleapis.com/auth/devstorage.read_only"
#define GRANT "urn:ietf:params:oauth:grant-type:jwt-bearer"
#define EXCHANGE "urn:ietf:params:oauth:grant-type:token-exchange"
#define TYPE_JWT "urn:ietf:params:oauth:token-type:jwt"
#define TYPE_ACCESS "urn:ietf:params:oauth:token-type:access_token"
#define EXCHANGE_SCOPE "https://www.googleapis.com/auth/cloud-platform"
#define IAM "https://iam.googleapis.com"
#define STS "https://sts.googleapis.com"
#define IAM_CREDENTIALS "https://iamcredentials.googleapis.com"
#define BEARER "Bearer "

struct gcp_token {
	unsigned magic;
#define GCP_TOKEN_MAGIC 0x54504347U
	struct http_client *client;
	char *email;
	char *key, *key_id; /* of the service account; NULL: by web identity */
	char *uri;          /* where what was signed is exchanged */
	const struct identity_token *identity;
	char *provider, *audience; /* of the exchange, and of what it is shown */
	char *act_uri;             /* where a token of the account is had for one of the pool */
	struct credential bearer;
};

/* --- the account ----------------------------------------------------------------------------- */

static int need(const struct doc *account, const char *name, char **out, struct err *err)
{
	struct str v = str_trim(doc_text(doc_get(account, name)));

	if (v.n == 0)
		return err_set(err, ERR_SOURCE_SECRET_INVALID,
		               "%s is missing in the service account's JSON: store the whole file "
		               "that Google Cloud gave out for its key",
		               name);
	*out = str_dup(v);
	return 0;
}

static int check_uri(const char *uri, bool plain, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err ignored = {0};
	struct url u;

	if (url_parse(a, str_of(uri), &u, &ignored) == 0 && u.user == NULL && u.query == NULL &&
	    (plain || strcmp(u.scheme, "https") == 0))
		return 0;
	return err_set(err, ERR_SOURCE_SECRET_INVALID,
	               "token_uri in the service account's JSON is not an https URL");
}

/* Signs once, so that a key that cannot is refused before anything is asked. */
static int check_key(const struct gcp_token *t, struct err *err)
{
	AUTO_BUF struct buf ignored = BUF_INIT(CREDENTIAL_MAX);
	struct err cause = {0};

	if (jwt_sign_rs256(str_of(t->key), NULL, STR_LIT("{}"), &ignored, &cause) == 0)
		return 0;
	return err_set(err, ERR_SOURCE_SECRET_INVALID,
	               "private_key in the service account's JSON is %s", cause.msg);
}

static struct gcp_token *token_new(struct http_client *client)
{
	struct gcp_token *t = xcalloc(1, sizeof(*t));

	t->magic = GCP_TOKEN_MAGIC;
	t->client = client;
	credential_init(&t->bearer);
	return t;
}

int gcp_token_new(struct http_client *client, const struct doc *account, bool plain,
                  struct gcp_token **out, struct err *err)
{
	struct str id = str_trim(doc_text(doc_get(account, "private_key_id")));
	struct gcp_token *t = token_new(client);

	if (need(account, "client_email", &t->email, err) < 0 ||
	    need(account, "private_key", &t->key, err) < 0 ||
	    need(account, "token_uri", &t->uri, err) < 0 || check_uri(t->uri, plain, err) < 0 ||
	    check_key(t, err) < 0) {
		gcp_token_free(t);
		return -1;
	}
	if (id.n > 0)
		t->key_id = str_dup(id);
	*out = t;
	return 0;
}

/* A server of one's own has all services at its root. It is an audience of its own, too: what it is
 * shown is worth nothing at Google. */
struct gcp_token *gcp_token_new_web(struct http_client *client, const struct gcp_web *web)
{
	AUTO_BUF struct buf email = BUF_INIT(URL_MAX);
	struct gcp_token *t = token_new(client);
	const char *at = web->endpoint;

	url_encode(str_of(web->account), false, &email);
	t->email = xstrdup(web->account);
	t->provider = xasprintf("//iam.googleapis.com/%s", web->provider);
	t->audience = xasprintf("%s/%s", at != NULL ? at : IAM, web->provider);
	t->uri = xasprintf("%s/v1/token", at != NULL ? at : STS);
	t->act_uri = xasprintf("%s/v1/projects/-/serviceAccounts/%s:generateAccessToken",
	                       at != NULL ? at : IAM_CREDENTIALS, buf_cstr(&email));
	t->identity = web->identity;
	return t;
}

void gcp_token_free(struct gcp_token *t)
{
	if (t == NULL)
		return;
	if (t->key != NULL)
		seal_wipe(t->key, strlen(t->key));
	credential_done(&t->bearer);
	free(t->email);
	free(t->key);
	free(t->key_id);
	free(t->uri);
	free(t->provider);
	free(t->audience);
	free(t->act_uri);
	free(t);
}

/* --- calls ----------------------------------------------------------------------------------- */

/* A POST whose 2xx reply is JSON, in `a`. Another status is not an error here: *d stays NULL. */
static int post(const struct gcp_token *t, struct arena *a, struct http_call *call,
                struct http_reply *reply, const struct doc **d, struct err *err)
{
	struct err ignored = {0};
	int r = 0;

	call->method = HTTP_POST;
	call->total_ms = CREDENTIAL_CALL_MS;
	call->body_max = CREDENTIAL_REPLY_MAX;
	if (http_do(t->client, call, reply, err) < 0)
		return -1;
	if (reply->status < 200 || reply->status > 299)
		return 0;
	if (js_parse(a, buf_view(&reply->body), d, &ignored) < 0)
		r = err_set(err, ERR_SOURCE_BROKEN, "the reply of %s is not JSON", call->url);
	seal_wipe_buf(&reply->body);
	return r;
}

static int post_form(const struct gcp_token *t, struct arena *a, const struct buf *form,
                     const atomic_bool *cancel, struct http_call *call, struct http_reply *reply,
                     const struct doc **d, struct err *err)
{
	static const struct http_header is_form[] = {
		{"Content-Type", "application/x-www-form-urlencoded"}};

	*call = (struct http_call){.url = t->uri,
	                           .headers = is_form,
	                           .n_headers = COUNT(is_form),
	                           .body = buf_view(form),
	                           .cancel = cancel};
	return post(t, a, call, reply, d, err);
}

/* RFC 6749 section 5.2: {"error": "invalid_grant", "error_description": "..."}; Google's APIs:
 * {"error": {"status": "PERMISSION_DENIED", "message": "..."}}. False: no such reply, but an
 * outage, or something else that is worth another try. */
static bool is_refusal(const struct http_reply *reply, struct arena *a, const char **words)
{
	const struct doc *d = NULL;
	struct err ignored = {0};
	struct str error = {0}, text = {0};

	if (reply->status != 400 && reply->status != 401 && reply->status != 403 &&
	    reply->status != 404)
		return false;
	if (js_parse(a, buf_view(&reply->body), &d, &ignored) == 0) {
		error = doc_text(doc_get(d, "error"));
		text = doc_text(doc_get(d, "error_description"));
		if (error.n == 0)
			error = doc_text(doc_path(d, "error", "status", NULL));
		if (text.n == 0)
			text = doc_text(doc_path(d, "error", "message", NULL));
	}
	if (error.n == 0 && text.n == 0)
		error = str_of(arena_printf(a, "status %d", reply->status));
	*words = arena_printf(a, "%.*s%s%.*s", (int)MIN(error.n, (size_t)80),
	                      error.n > 0 ? error.p : "", text.n > 0 ? ": " : "",
	                      (int)MIN(text.n, (size_t)300), text.n > 0 ? text.p : "");
	return true;
}

/* --- by the account's key -------------------------------------------------------------------- */

static int write_request(const struct gcp_token *t, struct buf *out, struct err *err)
{
	AUTO_BUF struct buf claims = BUF_INIT(CREDENTIAL_MAX);
	int64_t now_s = clock_wall_ms() / 1000;
	struct js js;

	js_init(&js, &claims);
	js_open(&js);
	js_kv(&js, "iss", t->email);
	js_kv(&js, "scope", SCOPE);
	js_kv(&js, "aud", t->uri);
	js_kv_int(&js, "iat", now_s);
	js_kv_int(&js, "exp", now_s + CREDENTIAL_LIFE_S);
	js_close(&js);
	buf_puts(out, "grant_type=");
	url_encode(STR_LIT(GRANT), false, out);
	buf_puts(out, "&assertion=");
	if (buf_check(&claims, "the token's claims", err) < 0 ||
	    jwt_sign_rs256(str_of(t->key), t->key_id, buf_view(&claims), out, err) < 0)
		return -1;
	return buf_check(out, "the request for a token", err);
}

static int take_token(struct str token, const char *whose, struct buf *text, struct err *err)
{
	if (!credential_is_word(token))
		return err_set(err, ERR_SOURCE_BROKEN, "the reply of %s has no usable token",
		               whose);
	buf_printf(text, BEARER "%.*s", STR_ARG(token));
	return 0;
}

static int by_key(const struct gcp_token *t, const atomic_bool *cancel, struct buf *text,
                  int64_t *life_ms, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct buf form = BUF_INIT(CREDENTIAL_MAX * 2);
	const struct doc *d = NULL;
	struct http_call call;
	const char *words = "";
	int r = write_request(t, &form, err);

	if (r == 0)
		r = post_form(t, a, &form, cancel, &call, &reply, &d, err);
	seal_wipe_buf(&form);
	if (r < 0)
		return -1;
	if (d == NULL && (reply.status == 404 || !is_refusal(&reply, a, &words)))
		return http_expect(&call, &reply, err);
	if (d == NULL)
		return err_set(err, ERR_SOURCE_DENIED,
		               "Google gives the service account %s no token: %s. Check that its "
		               "key still exists, and this server's clock",
		               t->email, words);
	if (doc_text(doc_get(d, "access_token")).n == 0)
		return err_set(err, ERR_SOURCE_BROKEN,
		               "the reply of %s has no access_token: check token_uri in the "
		               "service account's JSON",
		               t->uri);
	*life_ms = doc_int(doc_get(d, "expires_in"), CREDENTIAL_LIFE_S) * 1000;
	return take_token(doc_text(doc_get(d, "access_token")), t->uri, text, err);
}

/* --- by web identity ------------------------------------------------------------------------- */

static void write_exchange(const struct gcp_token *t, struct str token, struct buf *out)
{
	const struct {
		const char *name;
		struct str value;
	} fields[] = {
		{"grant_type", STR_LIT(EXCHANGE)},
		{"audience", str_of(t->provider)},
		{"scope", STR_LIT(EXCHANGE_SCOPE)},
		{"requested_token_type", STR_LIT(TYPE_ACCESS)},
		{"subject_token_type", STR_LIT(TYPE_JWT)},
		{"subject_token", token},
	};

	for (size_t i = 0; i < COUNT(fields); i++) {
		buf_printf(out, "%s%s=", i > 0 ? "&" : "", fields[i].name);
		url_encode(fields[i].value, false, out);
	}
}

/* What came is no token: a refusal of ours by `who`, or a failure of the service. */
static int refused(const struct gcp_token *t, struct arena *a, const struct http_call *call,
                   const struct http_reply *reply, const char *who, struct err *err)
{
	const char *words = "";

	return is_refusal(reply, a, &words)
	               ? identity_refused(t->identity, t->audience, who, str_of(words), err)
	               : http_expect(call, reply, err);
}

/* The token of the pool, as a header. */
static int exchange(const struct gcp_token *t, struct arena *a, struct str token,
                    const atomic_bool *cancel, struct buf *pool, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct buf form = BUF_INIT(CREDENTIAL_MAX * 2);
	const struct doc *d = NULL;
	struct http_call call;
	int r;

	write_exchange(t, token, &form);
	r = buf_check(&form, "the request for a token", err);
	if (r == 0)
		r = post_form(t, a, &form, cancel, &call, &reply, &d, err);
	seal_wipe_buf(&form);
	if (r < 0)
		return -1;
	if (d == NULL)
		return refused(t, a, &call, &reply,
		               arena_printf(a, "the workload identity provider %s gives no token",
		                            t->provider),
		               err);
	return take_token(doc_text(doc_get(d, "access_token")), t->uri, pool, err);
}

static int act(const struct gcp_token *t, struct arena *a, const struct buf *pool,
               const atomic_bool *cancel, struct buf *text, int64_t *life_ms, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	const struct http_header h[] = {{"Content-Type", "application/json"},
	                                {"Authorization", buf_cstr(pool)}};
	struct http_call call = {
		.url = t->act_uri,
		.headers = h,
		.n_headers = COUNT(h),
		.body = str_of(arena_printf(a, "{\"scope\":[\"" SCOPE "\"],\"lifetime\":\"%ds\"}",
	                                    CREDENTIAL_LIFE_S)),
		.cancel = cancel};
	const struct doc *d = NULL;
	int64_t ends_ms;

	if (post(t, a, &call, &reply, &d, err) < 0)
		return -1;
	if (d == NULL)
		return refused(
			t, a, &call, &reply,
			arena_printf(a,
		                     "the service account %s may not be used (it must grant that "
		                     "subject the role Workload Identity User)",
		                     t->email),
			err);
	if (clock_parse(doc_text(doc_get(d, "expireTime")), &ends_ms, err) < 0) {
		err_become(err, ERR_SOURCE_BROKEN);
		return err_wrap(err, "expireTime in the reply of %s", t->act_uri);
	}
	*life_ms = ends_ms - clock_wall_ms();
	return take_token(doc_text(doc_get(d, "accessToken")), t->act_uri, text, err);
}

static int by_web(const struct gcp_token *t, const atomic_bool *cancel, struct buf *text,
                  int64_t *life_ms, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct buf token = BUF_INIT(CREDENTIAL_MAX), pool = BUF_INIT(CREDENTIAL_MAX);
	int r = t->identity->mint(t->identity, t->audience, &token, err);

	if (r == 0)
		r = exchange(t, a, buf_view(&token), cancel, &pool, err);
	if (r == 0)
		r = act(t, a, &pool, cancel, text, life_ms, err);
	if (r < 0 && token.n > 0)
		identity_scrub(buf_view(&token), err);
	seal_wipe_buf(&token);
	seal_wipe_buf(&pool);
	return r;
}

static int ask(void *of, const atomic_bool *cancel, struct buf *text, int64_t *life_ms,
               struct err *err)
{
	const struct gcp_token *t = FROM_VOID(const struct gcp_token, of, GCP_TOKEN_MAGIC);

	return (t->identity != NULL ? by_web : by_key)(t, cancel, text, life_ms, err);
}

int gcp_token_bearer(struct gcp_token *t, struct arena *a, const atomic_bool *cancel,
                     const char **out, struct err *err)
{
	return credential_text(&t->bearer, ask, t, a, cancel, out, err);
}
