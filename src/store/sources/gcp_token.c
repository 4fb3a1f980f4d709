/* gcp_token.c - see gcp_token.h. */
#include "store/sources/gcp_token.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/jwt.h"
#include "base/seal.h"
#include "base/sync.h"

#define SCOPE "https://www.googleapis.com/auth/devstorage.read_only"
#define GRANT "urn:ietf:params:oauth:grant-type:jwt-bearer"
#define LIFE_S 3600              /* of what is signed; Google takes no longer one */
#define EARLY_MS (5 * 60 * 1000) /* a token is renewed so long before its end */
#define TRIES 4
#define CALL_MS 30000
#define REPLY_MAX ((size_t)64 << 10)
#define TOKEN_MAX ((size_t)16 << 10)

struct gcp_token {
	struct http_client *client;
	char *email, *key, *key_id, *uri;
	struct lock lock;      /* what follows */
	struct buf bearer;     /* empty: none yet */
	int64_t renew_mono_ms; /* from then on it is old */
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
	AUTO_BUF struct buf ignored = BUF_INIT(TOKEN_MAX);
	struct err cause = {0};

	if (jwt_sign_rs256(str_of(t->key), NULL, STR_LIT("{}"), &ignored, &cause) == 0)
		return 0;
	return err_set(err, ERR_SOURCE_SECRET_INVALID,
	               "private_key in the service account's JSON is %s", cause.msg);
}

int gcp_token_new(struct http_client *client, const struct doc *account, bool plain,
                  struct gcp_token **out, struct err *err)
{
	struct gcp_token *t = xcalloc(1, sizeof(*t));
	struct str id = str_trim(doc_text(doc_get(account, "private_key_id")));

	t->client = client;
	t->bearer = (struct buf)BUF_INIT(TOKEN_MAX);
	lock_init(&t->lock, LOCK_GCP_TOKEN);
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

void gcp_token_free(struct gcp_token *t)
{
	if (t == NULL)
		return;
	if (t->key != NULL)
		seal_wipe(t->key, strlen(t->key));
	seal_wipe_buf(&t->bearer);
	lock_done(&t->lock);
	free(t->email);
	free(t->key);
	free(t->key_id);
	free(t->uri);
	free(t);
}

/* --- the exchange ---------------------------------------------------------------------------- */

static int write_request(const struct gcp_token *t, struct buf *out, struct err *err)
{
	AUTO_BUF struct buf claims = BUF_INIT(TOKEN_MAX);
	int64_t now_s = clock_wall_ms() / 1000;
	struct js js;

	js_init(&js, &claims);
	js_open(&js);
	js_kv(&js, "iss", t->email);
	js_kv(&js, "scope", SCOPE);
	js_kv(&js, "aud", t->uri);
	js_kv_int(&js, "iat", now_s);
	js_kv_int(&js, "exp", now_s + LIFE_S);
	js_close(&js);
	buf_puts(out, "grant_type=");
	url_encode(STR_LIT(GRANT), false, out);
	buf_puts(out, "&assertion=");
	if (buf_check(&claims, "the token's claims", err) < 0 ||
	    jwt_sign_rs256(str_of(t->key), t->key_id, buf_view(&claims), out, err) < 0)
		return -1;
	return buf_check(out, "the request for a token", err);
}

/* RFC 6749 section 5.2: {"error": "invalid_grant", "error_description": "..."} */
static int refused(const struct gcp_token *t, const struct http_call *call,
                   const struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err ignored = {0};
	struct str error = {0}, words = {0};

	if (reply->status != 400 && reply->status != 401 && reply->status != 403)
		return http_expect(call, reply, err);
	if (js_parse(a, buf_view(&reply->body), &d, &ignored) == 0) {
		error = doc_text(doc_get(d, "error"));
		words = doc_text(doc_get(d, "error_description"));
	}
	return err_set(err, ERR_SOURCE_DENIED,
	               "Google gives the service account %s no token: %.*s%s%.*s. Check that its "
	               "key still exists, and this server's clock",
	               t->email, (int)MIN(error.n, (size_t)80), error.n > 0 ? error.p : "",
	               words.n > 0 ? ": " : "", (int)MIN(words.n, (size_t)300),
	               words.n > 0 ? words.p : "");
}

static int take_reply(struct gcp_token *t, const struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err ignored = {0};
	struct str token;
	int64_t life_s;

	if (js_parse(a, buf_view(&reply->body), &d, &ignored) < 0 ||
	    (token = doc_text(doc_get(d, "access_token"))).n == 0)
		return err_set(err, ERR_SOURCE_BROKEN,
		               "the reply of %s has no access_token: check token_uri in the "
		               "service account's JSON",
		               t->uri);
	for (size_t i = 0; i < token.n; i++) { /* it becomes a header */
		if ((unsigned char)token.p[i] <= ' ' || (unsigned char)token.p[i] >= 127)
			return err_set(err, ERR_SOURCE_BROKEN,
			               "the reply of %s has no usable token", t->uri);
	}
	life_s = MAX(0, MIN(doc_int(doc_get(d, "expires_in"), LIFE_S), LIFE_S));
	buf_clear(&t->bearer);
	buf_printf(&t->bearer, "Bearer %.*s", STR_ARG(token));
	t->renew_mono_ms = clock_mono_ms() + MAX(life_s * 1000 - EARLY_MS, life_s * 500);
	return buf_check(&t->bearer, "the token", err);
}

static int exchange(struct gcp_token *t, const atomic_bool *cancel, struct err *err)
{
	static const struct http_header form[] = {
		{"Content-Type", "application/x-www-form-urlencoded"}};
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct buf body = BUF_INIT(TOKEN_MAX * 2);
	struct http_call call = {.method = HTTP_POST,
	                         .url = t->uri,
	                         .headers = form,
	                         .n_headers = COUNT(form),
	                         .total_ms = CALL_MS,
	                         .body_max = REPLY_MAX,
	                         .cancel = cancel};
	int r = write_request(t, &body, err);

	if (r == 0) {
		call.body = buf_view(&body);
		r = http_do(t->client, &call, &reply, err);
	}
	seal_wipe_buf(&body);
	if (r < 0)
		return -1;
	if (reply.status < 200 || reply.status > 299)
		return refused(t, &call, &reply, err);
	r = take_reply(t, &reply, err);
	seal_wipe_buf(&reply.body);
	return r;
}

static int renew(struct gcp_token *t, const atomic_bool *cancel, struct err *err)
{
	struct retry r = RETRY_INIT(TRIES);

	assert(lock_is_mine(&t->lock));
	r.cancel = cancel;
	for (;;) {
		if (exchange(t, cancel, err) == 0)
			return 0;
		buf_clear(&t->bearer);
		if (!retry_again(&r, err))
			return -1;
	}
}

int gcp_token_bearer(struct gcp_token *t, struct arena *a, const atomic_bool *cancel,
                     const char **out, struct err *err)
{
	int r = 0;

	lock_take(&t->lock);
	if (t->bearer.n == 0 || clock_mono_ms() >= t->renew_mono_ms)
		r = renew(t, cancel, err);
	if (r == 0)
		*out = arena_strz(a, buf_view(&t->bearer));
	lock_give(&t->lock);
	return r;
}
