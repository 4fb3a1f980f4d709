/* objstore_s3.c - objects in any S3-compatible store, path style; see objstore_s3.h. */
#include "store/objects/objstore_s3.h"

#include "base/clock.h"
#include "base/seal.h"
#include "store/objects/s3xml.h"

#define S3_COPY_MAX ((uint64_t)5 << 30) /* S3's own limit of one CopyObject */

static void read_info(const struct http_reply *reply, struct objstore_info *out)
{
	struct err ignored = {0};

	*out = (struct objstore_info){.size = reply->length < 0 ? 0 : (uint64_t)reply->length};
	s3_etag(reply, out->etag);
	if (clock_parse(http_header_of(reply, "last-modified"), &out->modified_ms, &ignored) < 0)
		out->modified_ms = 0;
}

static int head_object(struct s3store *s, const char *key, struct objstore_info *out,
                       struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.method = HTTP_HEAD, .key = key, .total_ms = S3_SHORT_MS};

	if (s3_call(s, &c, &reply, err) < 0)
		return -1;
	read_info(&reply, out);
	return 0;
}

/* The answer to HEAD has no words: whether there is no such object, or no bucket any more, only
 * that to GET says. Its first byte is asked for; none is sent of an object that is not there. */
static int ask_in_words(struct s3store *s, const char *key, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.key = key,
	                    .header = {{"Range", "bytes=0-0"}},
	                    .n_header = 1,
	                    .total_ms = S3_SHORT_MS};

	return s3_call(s, &c, &reply, err);
}

int s3_stat(struct objstore *os, const char *key, struct objstore_info *out, struct err *err)
{
	struct s3store *s = (struct s3store *)os;

	if (head_object(s, key, out, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	if (ask_in_words(s, key, err) < 0 && err->code != ERR_RANGE)
		return -1;
	err_clear(err); /* it has just come, perhaps empty */
	return head_object(s, key, out, err);
}

static int s3_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.key = key, .reply_max = MAX(out->max - out->n, (size_t)1)};

	if (s3_call((struct s3store *)os, &c, &reply, err) < 0)
		return -1;
	if (reply.body.n > out->max - out->n)
		return err_set(err, ERR_TOO_BIG, "%zu bytes are more than the %zu expected",
		               reply.body.n, out->max - out->n);
	buf_str(out, buf_view(&reply.body));
	return 0;
}

int s3_put_body(struct s3store *s, const char *key, struct str body, char etag[80],
                const atomic_bool *cancel, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.method = HTTP_PUT, .key = key, .body = body, .cancel = cancel};

	if (s3_call(s, &c, &reply, err) < 0)
		return -1;
	s3_etag(&reply, etag);
	return 0;
}

static int s3_put(struct objstore *os, const char *key, struct str body, struct err *err)
{
	char etag[80];

	return s3_put_body((struct s3store *)os, key, body, etag, NULL, err);
}

static int s3_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {
		.method = HTTP_PUT, .key = to, .copy_from = from, .stall_ms = S3_FINISH_MS};
	struct objstore_info info;

	if (s3_stat(os, from, &info, err) < 0)
		return -1;
	if (info.size > S3_COPY_MAX)
		return err_set(err, ERR_UNSUPPORTED,
		               "S3 copies objects of up to 5 GiB in one step, not %" PRIu64
		               " bytes",
		               info.size);
	return s3_call((struct s3store *)os, &c, &reply, err);
}

/* ---- ranges -------------------------------------------------------------------------- */

struct reading { /* a range that goes on where it was cut, in the same version of the object */
	unsigned magic;
#define READING_MAGIC 0x53524541U
	objstore_sink_fn *sink;
	void *arg;
	uint64_t first, count, done;
	char etag[80];
};

static int range_head(void *arg, const struct http_reply *reply, struct err *err)
{
	struct reading *r = FROM_VOID(struct reading, arg, READING_MAGIC);
	uint64_t left = r->count - r->done;
	struct str range = str_trim(http_header_of(reply, "Content-Range"));
	char wanted[80], etag[80] = "";

	/* Some stores send a part with status 200: their Content-Range says that it is one. */
	FMT(wanted, "bytes %" PRIu64 "-%" PRIu64 "/", r->first + r->done, r->first + r->count - 1);
	if (reply->status != 206 && !str_starts(range, wanted) &&
	    (r->first + r->done != 0 || reply->length != (int64_t)left))
		return err_set(err, ERR_UNSUPPORTED, "the store answered a range with HTTP %d",
		               reply->status);
	if (reply->length >= 0 && (uint64_t)reply->length != left)
		return err_set(err, ERR_RANGE,
		               "bytes %" PRIu64 "+%" PRIu64 ": only %" PRId64 " of them are there",
		               r->first + r->done, left, reply->length);
	if (r->etag[0] == '\0') {
		s3_etag(reply, r->etag);
		return 0;
	}
	s3_etag(reply, etag); /* of a store that ignores If-Match */
	return etag[0] == '\0' ? 0 : objstore_check_etag(r->etag, etag, err);
}

static int range_sink(void *arg, const void *p, size_t n, struct err *err)
{
	struct reading *r = FROM_VOID(struct reading, arg, READING_MAGIC);

	if (n > r->count - r->done)
		return err_set(err, ERR_IO, "the store sent more than was requested");
	if (r->sink(r->arg, p, n, err) < 0)
		return -1;
	r->done += n;
	return 0;
}

static int s3_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                   uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                   struct err *err)
{
	struct reading r = {
		.magic = READING_MAGIC, .sink = sink, .arg = arg, .first = first, .count = count};
	struct retry retry = RETRY_INIT(S3_TRIES);
	struct objstore_info info;

	copy_cut(r.etag, sizeof(r.etag), etag != NULL ? etag : "");

	if (count == 0) {
		if (s3_stat(os, key, &info, err) < 0 ||
		    objstore_check_etag(etag, info.etag, err) < 0)
			return -1;
		return first <= info.size ? 0 : err_set(err, ERR_RANGE, "the object is shorter");
	}
	retry.cancel = cancel != NULL ? cancel : ((struct s3store *)os)->cancel;
	while (r.done < count) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct s3_call c = {.key = key,
		                    .n_header = 1,
		                    .sink = range_sink,
		                    .head = range_head,
		                    .arg = &r,
		                    .cancel = cancel};
		uint64_t before = r.done;
		char range[64], match[84];

		FMT(range, "bytes=%" PRIu64 "-%" PRIu64, first + r.done, first + count - 1);
		c.header[0] = (struct http_header){"Range", range};
		if (r.etag[0] != '\0') {
			FMT(match, "\"%s\"", r.etag);
			c.header[c.n_header++] = (struct http_header){"If-Match", match};
		}
		if (s3_call_once((struct s3store *)os, &c, &reply, err) < 0) {
			if (r.done > before) /* it moves: not the same failure again */
				retry.left = S3_TRIES;
			if (!retry_again(&retry, err))
				return -1;
		} else if (r.done == before) {
			return err_set(err, ERR_IO, "the store sent nothing");
		}
	}
	return 0;
}

/* ---- list ---------------------------------------------------------------------------- */

/* A key of the bucket as ours, NULL when it is somebody else's. */
const char *s3_own_key(const struct s3store *s, const char *key)
{
	return str_starts(str_of(key), s->prefix) ? key + strlen(s->prefix) : NULL;
}

static int check_listing(struct s3store *s, struct s3xml_listing *l, const char *prefix,
                         const char *after, size_t max, struct err *err)
{
	const char *last = after;

	if (l->n > max)
		return err_set(err, ERR_IO, "the store listed %zu keys; %zu were requested", l->n,
		               max);
	for (size_t i = 0; i < l->n; i++) {
		const char *key = s3_own_key(s, l->entry[i].key);

		if (key == NULL || !str_starts(str_of(key), prefix) ||
		    (last != NULL && strcmp(last, key) >= 0))
			return err_set(err, ERR_IO, "the store lists keys out of order");
		l->entry[i].key = last = key;
	}
	return 0;
}

static int s3_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                   objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_BUF struct buf query = BUF_INIT(8 * (OBJSTORE_KEY_MAX + S3_PREFIX_MAX));
	AUTO_ARENA struct arena *a = arena_new();
	struct s3store *s = (struct s3store *)os;
	struct s3_call c = {.total_ms = S3_SHORT_MS};
	struct s3xml_listing l;
	char text[16];

	FMT(text, "%zu", max);
	buf_puts(&query, "list-type=2");
	s3_query(&query, "max-keys", text);
	s3_query(&query, "prefix", arena_printf(a, "%s%s", s->prefix, prefix));
	if (after != NULL)
		s3_query(&query, "start-after", arena_printf(a, "%s%s", s->prefix, after));
	c.query = buf_cstr(&query);
	if (s3_call(s, &c, &reply, err) < 0 ||
	    s3xml_listing(a, buf_view(&reply.body), &l, err) < 0 ||
	    check_listing(s, &l, prefix, after, max, err) < 0)
		return -1;
	for (size_t i = 0; i < l.n; i++)
		each(arg, l.entry[i].key, &l.entry[i].info);
	*more = l.truncated;
	return 0;
}

/* ---- life ---------------------------------------------------------------------------- */

static void wipe(const char *secret)
{
	char *p = (char *)(uintptr_t)secret; /* ours: xstrdup'ed below */

	if (p == NULL)
		return;
	seal_wipe(p, strlen(p));
	free(p);
}

static void s3_close(struct objstore *os)
{
	struct s3store *s = (struct s3store *)os;

	wipe(s->key.access_key);
	wipe(s->key.secret_key);
	wipe(s->key.session_token);
	wipe(s->key.region);
	wipe(s->key.service);
	free(s->endpoint);
	free(s->bucket);
	free(s->prefix);
	free(s);
}

static const char *copy_of(const char *text, const char *dflt)
{
	return text != NULL ? xstrdup(text) : dflt != NULL ? xstrdup(dflt) : NULL;
}

/* "/bucket" or "/bucket/some/prefix", as it stands in a URL. */
static int parse_place(struct s3store *s, struct arena *a, const char *path, struct err *err)
{
	struct str rest = {0}, bucket = {0};

	if (url_decode(a, str_of(path + 1), &rest, err) < 0)
		return -1;
	while (rest.n > 0 && rest.p[rest.n - 1] == '/')
		rest.n--;
	if (rest.n == 0 || !str_cut(&rest, '/', &bucket) || bucket.n == 0)
		return err_set(err, ERR_INVALID, "it names no bucket");
	if (rest.n > S3_PREFIX_MAX || (rest.n > 0 && objstore_check_key(rest, err) < 0)) {
		err_clear(err);
		return err_set(err, ERR_INVALID,
		               "the prefix in the bucket should be plain names of at most %d bytes "
		               "in all, with '/' between them",
		               S3_PREFIX_MAX);
	}
	s->bucket = xasprintf("%.*s", STR_ARG(bucket));
	s->prefix = rest.n > 0 ? xasprintf("%.*s/", STR_ARG(rest)) : xstrdup("");
	return 0;
}

static int s3_open(struct objstore **out, const char *rest, const struct objstore_env *env,
                   struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct s3store *s;
	struct url u;

	if (env->client == NULL)
		return err_set(err, ERR_INVALID, "S3 needs an HTTP client");
	if (url_parse(a, str_of(rest), &u, err) < 0)
		return -1;
	if (u.user != NULL || u.query != NULL)
		return err_set(err, ERR_INVALID,
		               "write s3:https://host/bucket; credentials come from settings");
	s = xcalloc(1, sizeof(*s));
	s->client = env->client;
	atomic_init(&s->patience_ms, S3_PATIENCE_MS);
	s->cancel = env->cancel;
	s->aws = str_ends(str_of(u.host), ".amazonaws.com");
	s->endpoint = xstrdup(url_origin(a, u.scheme, u.host, u.port));
	s->key.access_key = copy_of(env->key.access_key, NULL);
	s->key.secret_key = copy_of(env->key.secret_key, NULL);
	s->key.session_token = copy_of(env->key.session_token, NULL);
	s->key.region = copy_of(env->key.region, "us-east-1");
	s->key.service = copy_of(env->key.service, "s3");
	if (parse_place(s, a, u.path, err) < 0) {
		s3_close(&s->base);
		return -1;
	}
	*out = &s->base;
	return 0;
}

static int signed_open(struct objstore **out, const char *rest, const struct objstore_env *env,
                       struct err *err)
{
	struct s3store *s;

	if (env->client == NULL || env->signer == NULL || rest[0] != '\0')
		return err_set(err, ERR_INVALID, "it needs an HTTP client and a signer");
	s = xcalloc(1, sizeof(*s));
	s->client = env->client;
	atomic_init(&s->patience_ms, S3_PATIENCE_MS);
	s->signer = env->signer;
	s->signer_arg = env->signer_arg;
	s->cancel = env->cancel;
	*out = &s->base;
	return 0;
}

#define SAME_FOR_BOTH                                                                              \
	.close = s3_close, .get = s3_get, .put = s3_put, .put_file = s3_put_file,                  \
	.put_stream = s3_put_stream, .copy = s3_copy, .stat = s3_stat, .read = s3_read,            \
	.del = s3_del, .parts_begin = s3_parts_begin, .parts_put = s3_parts_put,                   \
	.parts_end = s3_parts_end, .parts_abort = s3_parts_abort

const struct objstore_ops objstore_s3 = {
	.scheme = "s3",
	.open = s3_open,
	SAME_FOR_BOTH,
	.presign = s3_presign,
	.sign_put = s3_sign_put,
	.list = s3_list,
	.del_all = s3_del_all,
	.sweep = s3_sweep,
};

const struct objstore_ops objstore_signed = {
	.scheme = "signed",
	.open = signed_open,
	SAME_FOR_BOTH,
};
