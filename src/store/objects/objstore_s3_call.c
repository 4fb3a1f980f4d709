/* objstore_s3_call.c - one signed request of the S3 driver, and what its reply means. */
#include "store/objects/objstore_s3.h"

#include "base/clock.h"
#include "store/objects/s3xml.h"

#define S3_URL_MAX 8000
#define FAST_BYTES ((size_t)1 << 20) /* within FAST_MS: what the buffers hold is soon gone */
#define FAST_MS 5000
#define COPY_SOURCE "x-amz-copy-source"
#define NO_ETAG "none" /* of no object */

void s3_query(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "%s%s=", out->n > 0 ? "&" : "", name);
	url_encode(str_of(value), false, out);
}

void s3_etag(const struct http_reply *reply, char out[80])
{
	struct str etag = http_header_of(reply, "etag");

	while (etag.n > 0 && etag.p[0] == '"')
		etag = str_skip(etag, 1);
	while (etag.n > 0 && etag.p[etag.n - 1] == '"')
		etag.n--;
	fmt_fixed(out, 80, "%.*s", (int)MIN(etag.n, (size_t)79), etag.n == 0 ? "" : etag.p);
}

/* Is it our clock that the store does not like? Its answer has its own time, also the one to HEAD,
 * which has no words. Minutes; 0: it is not. */
static int64_t skew_of(const struct s3store *s, const struct http_reply *reply)
{
	struct err ignored = {0};
	int64_t there_ms, skew_ms;

	if (s->key.access_key == NULL || reply->status != 403 ||
	    clock_parse(http_header_of(reply, "date"), &there_ms, &ignored) < 0)
		return 0;
	skew_ms = clock_wall_ms() - there_ms;
	return skew_ms > -S3_SKEW_MS && skew_ms < S3_SKEW_MS ? 0 : skew_ms / 60000;
}

static int blame_clock(const struct s3store *s, int64_t minutes, struct err *err)
{
	return err_set(err, ERR_CLOCK_DIFFERS,
	               "the clock of this machine is %" PRId64
	               " minutes %s that of the object store at %s, which refuses what is signed "
	               "then: set both by NTP (`timedatectl set-ntp true`)",
	               minutes < 0 ? -minutes : minutes, minutes < 0 ? "behind" : "ahead of",
	               s->endpoint);
}

/* S3's own word and sentence, and the kind of error they are. */
static int refused(const struct s3store *s, const struct http_reply *reply, struct err *err)
{
	const char *code = "", *message = "";
	enum err_code kind = err_from_http(reply->status);
	int64_t minutes = skew_of(s, reply);
	bool expired;

	if (minutes != 0)
		return blame_clock(s, minutes, err);
	s3xml_error(reply->arena, buf_view(&reply->body), &code, &message);
	/* a signature of somebody else's: the next try asks for another one */
	expired = s->signer != NULL && kind == ERR_DENIED;
	/* a 200 that turned into an error while it was sent; a bucket that is away says nothing
	 * of what was in it */
	if (reply->status < 300 || strcmp(code, S3_NO_BUCKET) == 0)
		kind = ERR_UNAVAILABLE;
	if (strcmp(code, "NoSuchUpload") == 0)
		kind = ERR_NOT_FOUND;
	else if (strncmp(code, "InvalidPart", 11) == 0 || strcmp(code, "EntityTooSmall") == 0)
		kind = ERR_INVALID;
	else if (strcmp(code, "RequestTimeout") == 0 || strcmp(code, "InternalError") == 0 ||
	         expired)
		kind = ERR_UNAVAILABLE;
	err->retry_after_s = reply->retry_after_s;
	if (code[0] != '\0')
		return err_set(err, kind, "%s: %s (HTTP %d)", code, message, reply->status);
	if (reply->status >= 300 && reply->status < 400)
		return err_set(err, ERR_INVALID,
		               "HTTP %d: the bucket is at another endpoint: put that one into the "
		               "URL",
		               reply->status);
	return err_set(err, kind, "HTTP %d", reply->status);
}

static bool holds_error(const struct s3_call *c, const struct http_reply *reply)
{
	const char *code, *message;

	if (c->sink != NULL || c->method == HTTP_GET || reply->body.n == 0)
		return false;
	s3xml_error(reply->arena, buf_view(&reply->body), &code, &message);
	return code[0] != '\0';
}

/* NULL key: the bucket itself. */
static int url_of(const struct s3store *s, struct arena *a, const char *key, const char *query,
                  const char **out, struct err *err)
{
	AUTO_BUF struct buf url = BUF_INIT(S3_URL_MAX);

	buf_printf(&url, "%s/%s", s->endpoint, s->bucket);
	if (key != NULL) {
		buf_putc(&url, '/');
		url_encode(str_of(s->prefix), true, &url);
		url_encode(str_of(key), true, &url);
	}
	if (query != NULL)
		buf_printf(&url, "?%s", query);
	if (buf_check(&url, "the URL", err) < 0)
		return -1;
	*out = arena_strz(a, buf_view(&url));
	return 0;
}

static const char *copy_source(const struct s3store *s, struct arena *a, const char *from)
{
	AUTO_BUF struct buf source = BUF_INIT(S3_URL_MAX);

	if (from == NULL)
		return NULL;
	buf_printf(&source, "/%s/", s->bucket);
	url_encode(str_of(s->prefix), true, &source);
	url_encode(str_of(from), true, &source);
	return arena_strz(a, buf_view(&source)); /* two keys: it fits */
}

int s3_presign(struct objstore *os, struct arena *a, const struct objstore_request *rq,
               struct objstore_signed *out, struct err *err)
{
	struct s3store *s = (struct s3store *)os;
	struct http_header header = {COPY_SOURCE, copy_source(s, a, rq->copy_from)};
	bool no_copy = rq->method == HTTP_PUT && rq->copy_from == NULL && !s->aws;
	const char *url = NULL;
	char *got = NULL;

	if (no_copy)
		header = (struct http_header){OBJSTORE_NO_COPY, NO_ETAG};

	if (s->key.access_key == NULL)
		return err_set(err, ERR_UNSUPPORTED, "there are no keys to sign with");
	if (url_of(s, a, rq->key, rq->query, &url, err) < 0 ||
	    sigv4_presign(a, &s->key, rq->method, url, &header, header.value != NULL, rq->expires_s,
	                  clock_wall_ms(), &got, err) < 0)
		return -1;
	*out = (struct objstore_signed){.url = got,
	                                .copy_source = no_copy ? NULL : header.value,
	                                .no_copy = no_copy ? header.value : NULL};
	return 0;
}

/* In headers, for the digest of a body is not part of a signature that stands in a URL. */
int s3_sign_put(struct objstore *os, struct arena *a, const char *key, const char *sha256,
                struct objstore_put *out, struct err *err)
{
	struct s3store *s = (struct s3store *)os;
	const struct http_header own[] = {{OBJSTORE_NO_COPY, NO_ETAG}, {OBJSTORE_UNPACK, "false"}};
	size_t n = s->aws ? 0 : COUNT(own); /* AWS takes no such header that was not signed */

	if (s->key.access_key == NULL)
		return err_set(err, ERR_UNSUPPORTED, "there are no keys to sign with");
	if (url_of(s, a, key, NULL, &out->url, err) < 0 ||
	    sigv4_sign(a, &s->key, HTTP_PUT, out->url, own, n, sha256, clock_wall_ms(), out->header,
	               &out->n_header, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		out->header[out->n_header++] = own[i];
	return 0;
}

/* Somebody else's signature, which is good for a while. */
static int ask_signer(struct s3store *s, struct arena *a, const struct s3_call *c,
                      struct http_call *call, struct http_header *all, struct err *err)
{
	const struct objstore_request rq = {.method = c->method,
	                                    .key = c->key,
	                                    .query = c->query,
	                                    .copy_from = c->copy_from,
	                                    .expires_s = S3_SIGNED_S};
	struct objstore_signed signed_ = {0};

	assert(c->key != NULL);
	if (s->signer(s->signer_arg, a, &rq, &signed_, err) < 0)
		return -1;
	call->url = signed_.url;
	if (signed_.copy_source != NULL)
		all[call->n_headers++] = (struct http_header){COPY_SOURCE, signed_.copy_source};
	if (signed_.no_copy != NULL)
		all[call->n_headers++] = (struct http_header){OBJSTORE_NO_COPY, signed_.no_copy};
	for (size_t i = 0; i < c->n_header; i++)
		all[call->n_headers++] = c->header[i];
	call->headers = all;
	return 0;
}

static int sign(struct s3store *s, struct arena *a, const struct s3_call *c, struct http_call *call,
                struct http_header *all, struct err *err)
{
	struct http_header own[COUNT(c->header) + 1];
	const char *hash = SIGV4_UNSIGNED;
	char hex[HASH_HEX_CAP];
	size_t n_own = 0;

	if (url_of(s, a, c->key, c->query, &call->url, err) < 0)
		return -1;
	for (size_t i = 0; i < c->n_header; i++)
		own[n_own++] = c->header[i];
	if (c->copy_from != NULL)
		own[n_own++] = (struct http_header){COPY_SOURCE, copy_source(s, a, c->copy_from)};
	if (s->key.access_key != NULL) {
		if (c->body_len == 0 && !c->unsigned_body) {
			struct digest d = hash_sha256(c->body.p, c->body.n);

			digest_hex(&d, hex);
			hash = hex;
		}
		if (sigv4_sign(a, &s->key, c->method, call->url, own, n_own, hash, clock_wall_ms(),
		               all, &call->n_headers, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < n_own; i++)
		all[call->n_headers++] = own[i];
	call->headers = all;
	return 0;
}

/* A body that nobody waits for at the other end of the line, and that is not sent in no time. */
static bool is_large(const struct s3_call *c)
{
	return c->read == NULL && c->body.n >= S3_LARGE && c->stall_ms == 0;
}

/* What a large body has shown of the store. */
static void note_patience(struct s3store *s, const struct s3_call *c, int64_t had_ms,
                          int64_t took_ms, int r, const struct err *err)
{
	long long had = had_ms;

	if (r < 0 && err->code == ERR_TIMEOUT)
		(void)atomic_compare_exchange_strong(&s->patience_ms, &had,
		                                     MIN(2 * had_ms, (int64_t)S3_FINISH_MS));
	else if (r == 0 && c->body.n >= FAST_BYTES && took_ms < FAST_MS)
		atomic_store(&s->patience_ms, S3_PATIENCE_MS);
}

int s3_call_once(struct s3store *s, const struct s3_call *c, struct http_reply *reply,
                 struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply got = {0};
	struct http_header all[COUNT(c->header) + 5];
	struct http_call call = {
		.method = c->method,
		.body = c->body,
		.read = c->read,
		.body_len = c->body_len,
		.sink = c->sink,
		.head = c->head,
		.arg = c->arg,
		.total_ms = c->total_ms,
		.stall_ms = c->stall_ms,
		.body_max = c->reply_max == 0 ? S3_REPLY_MAX : c->reply_max,
		.cancel = c->cancel != NULL ? c->cancel : s->cancel,
	};
	int64_t began_ms;
	int r;

	if (atomic_load(&s->base.away)) {
		call.connect_ms = S3_AWAY_MS;
		call.stall_ms = S3_AWAY_MS;
	}
	if (is_large(c))
		call.stall_ms = atomic_load(&s->patience_ms);
	if ((s->signer != NULL ? ask_signer(s, a, c, &call, all, err)
	                       : sign(s, a, c, &call, all, err)) < 0)
		return -1;
	began_ms = clock_mono_ms();
	r = http_do(s->client, &call, &got, err);
	if (is_large(c))
		note_patience(s, c, call.stall_ms, clock_mono_ms() - began_ms, r, err);
	if (r < 0)
		return -1;
	if (got.status < 200 || got.status > 299 || holds_error(c, &got))
		return refused(s, &got, err);
	*reply = got;
	got = (struct http_reply){0};
	return 0;
}

int s3_call(struct s3store *s, const struct s3_call *c, struct http_reply *reply, struct err *err)
{
	struct retry r = RETRY_INIT(S3_TRIES);

	assert(c->sink == NULL);
	r.cancel = c->cancel != NULL ? c->cancel : s->cancel;
	for (;;) {
		if (s3_call_once(s, c, reply, err) == 0)
			return 0;
		/* Nobody is held up by more than one try of a store that is away, or hangs, or has
		 * lost its bucket: those who wait for it wait elsewhere. And a reader gives its
		 * bytes once. */
		if (c->read != NULL || err->code == ERR_TIMEOUT || atomic_load(&s->base.away) ||
		    strncmp(err->msg, S3_NO_BUCKET, strlen(S3_NO_BUCKET)) == 0 ||
		    !retry_again(&r, err))
			return -1;
		if (c->again != NULL)
			*c->again = true;
	}
}
