/* webhook.c - a secret as URL and key, and one signed POST; see webhook.h. */
#include "server/control/webhook.h"
#include "io/client.h"
#include "server/api/secrets.h"

#define BASE64_PREFIX "whsec_"

static int parse_key(struct str line, struct webhook *out, struct err *err)
{
	AUTO_BUF struct buf raw = BUF_INIT(WEBHOOK_KEY_MAX);
	int r = 0;

	if (line.n == 0)
		return 0;
	if (!str_starts(line, BASE64_PREFIX))
		buf_str(&raw, line);
	else if (base64_decode(str_skip(line, sizeof(BASE64_PREFIX) - 1), false, &raw, err) < 0) {
		err_clear(err); /* it may show a piece of the key */
		r = err_set(err, ERR_INVALID,
		            "its second line starts with " BASE64_PREFIX
		            " and is not base64 after it");
	}
	if (r == 0 && (raw.full || raw.n < WEBHOOK_KEY_MIN))
		r = err_set(err, ERR_INVALID,
		            "the key in its second line should have from %d to %d bytes",
		            WEBHOOK_KEY_MIN, WEBHOOK_KEY_MAX);
	if (r == 0) {
		memcpy(out->key, raw.p, raw.n);
		out->key_n = raw.n;
	}
	seal_wipe_buf(&raw);
	return r;
}

int webhook_parse(struct arena *a, struct str value, bool plain_http, struct webhook *out,
                  struct err *err)
{
	struct str rest = str_trim(value), line = {0}, key = {0};
	struct url u;

	*out = (struct webhook){0};
	(void)str_cut(&rest, '\n', &line);
	(void)str_cut(&rest, '\n', &key);
	if (str_trim(rest).n > 0)
		return err_set(err, ERR_INVALID,
		               "it has more than two lines: a URL, and the key that signs");
	line = str_trim(line);
	if (url_parse(a, line, &u, err) < 0) {
		err_clear(err); /* it may show a piece of the URL */
		return err_set(err, ERR_INVALID,
		               "its first line should be a URL that starts with https://");
	}
	if (strcmp(u.scheme, "https") != 0 && !plain_http)
		return err_set(err, ERR_INVALID,
		               "its URL should start with https://; http:// is allowed only for "
		               "networks in the server's --allow-source-network");
	out->url = arena_strz(a, line);
	return parse_key(str_trim(key), out, err);
}

int webhook_open(struct app *app, struct arena *a, const char *team_id, const char *name,
                 struct webhook *out, struct err *err)
{
	struct buf value = BUF_INIT(SEAL_VALUE_MAX);
	int r = secret_open(app, team_id, name, &value, err);

	*out = (struct webhook){0};
	if (r == 0 &&
	    webhook_parse(a, buf_view(&value), app->set.allow_source_network.n > 0, out, err) < 0)
		r = err_wrap(err, "secret \"%s\" is not a webhook", name);
	seal_wipe_buf(&value);
	return r;
}

void webhook_done(struct webhook *w)
{
	seal_wipe(w->key, sizeof(w->key));
	*w = (struct webhook){0};
}

void webhook_sign(const struct webhook *w, const char *id, int64_t seconds, struct str body,
                  struct buf *out)
{
	AUTO_BUF struct buf text = BUF_INIT(APP_JSON_MAX);
	uint8_t mac[HASH_SHA256_LEN];

	if (w->key_n == 0)
		return;
	buf_printf(&text, "%s.%" PRId64 ".", id, seconds);
	buf_str(&text, body);
	hash_hmac_sha256(w->key, w->key_n, text.p, text.n, mac);
	buf_puts(out, "v1,");
	base64_encode(mac, sizeof(mac), false, out);
}

/* Removes the URL from an error: a webhook's path contains its token. */
static void without_url(const struct http_call *call, struct err *err)
{
	AUTO_REDACT struct redact *r = redact_new();
	AUTO_BUF struct buf clean = BUF_INIT(APP_LINE_MAX * 4);
	char name[HTTP_NAME_CAP];
	const char *words = err->msg;
	enum err_code code = err->code;
	struct err ignored = {0};

	http_call_name(call, name);
	if (strncmp(words, name, strlen(name)) == 0 && strncmp(words + strlen(name), ": ", 2) == 0)
		words += strlen(name) + 2;
	if (redact_add(r, str_of(call->url), &ignored) < 0 ||
	    redact_add(r, str_of(strchr(name, ' ') + 1), &ignored) < 0)
		words = "the request failed"; /* a URL beyond all limits */
	redact_build(r);
	redact_text(r, str_of(words), &clean);
	err_clear(err);
	(void)err_set(err, code, "%s", buf_cstr(&clean));
}

/* The answer's body is nothing to us. */
static int drop(void *arg UNUSED, const void *p UNUSED, size_t n UNUSED, struct err *err UNUSED)
{
	return 0;
}

int webhook_post(struct app *app, const struct webhook *w, const struct model_delivery *t,
                 int *status, int *pause_s, struct err *err)
{
	AUTO_BUF struct buf signature = BUF_INIT(200);
	AUTO_HTTP_REPLY struct http_reply reply = {.length = -1};
	int64_t seconds = clock_wall_ms() / 1000;
	char at[32];
	struct http_header headers[4] = {
		{"Content-Type", "application/json"},
		{"webhook-id", t->id},
		{"webhook-timestamp", at},
	};
	struct http_call call = {
		.method = HTTP_POST,
		.url = w->url,
		.headers = headers,
		.n_headers = 3,
		.body = str_of(t->body),
		.sink = drop,
		.connect_ms = WEBHOOK_CALL_MS,
		.total_ms = WEBHOOK_CALL_MS,
		.cancel = &app->stopping,
	};
	bool plain = str_starts(str_of(w->url), "http:");

	*status = *pause_s = 0;
	FMT(at, "%" PRId64, seconds);
	webhook_sign(w, t->id, seconds, call.body, &signature);
	if (signature.n > 0)
		headers[call.n_headers++] =
			(struct http_header){"webhook-signature", buf_cstr(&signature)};
	if (http_do(plain ? app->inside : app->upstream, &call, &reply, err) < 0) {
		without_url(&call, err);
		return -1;
	}
	*status = reply.status;
	*pause_s = reply.retry_after_s;
	if (reply.status / 100 == 2)
		return 0;
	return err_set(err, ERR_UNAVAILABLE, "it answered %d%s", reply.status,
	               reply.status / 100 == 3 ? ", and redirects are not followed" : "");
}
