/*
 * source_bucket.c - s3://bucket/prefix from any endpoint, path style. Requests are signed with the
 * keys in the secret; without a secret they are not, which is how public buckets are read. What is
 * listed (ListObjectsV2) has sizes and ETags; every range of an object is pinned to its ETag.
 */
#include "store/sources/source_impl.h"

#include "base/clock.h"
#include "core/spec.h"
#include "store/common/s3_keys.h"
#include "store/objects/s3xml.h"

#define REGION_MAX 40
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct bucket {
	struct source base;
	const char *endpoint; /* without '/' at its end */
	const char *bucket;
	const char *prefix;   /* without '/' at its end; "" = all */
	struct sigv4_key key; /* in key_arena; access_key NULL: requests are not signed */
	struct arena *key_arena;
	bool aws;     /* the endpoint follows from the region */
	bool learned; /* the region is the one that the store has named */
	bool single;  /* prefix is the key of one object, known after listing */
};

/* --- open ------------------------------------------------------------------------------------ */

/* The texts of the platform that jobs were written for; their first words are matched by scripts.
 */
static int read_secret(struct bucket *b, struct err *err)
{
	bool json;

	b->key = (struct sigv4_key){.region = S3_REGION_DEFAULT, .service = "s3"};
	if (b->base.secret[0] == '\0') {
		b->base.auth_advice =
			"the bucket is not public: set auth_secret_name to a secret with its keys "
			"(secret_id is required)";
		return 0;
	}
	json = s3_keys_read(b->key_arena, str_of(b->base.secret), &b->key);
	if (b->key.region == NULL)
		b->key.region = S3_REGION_DEFAULT;
	if (b->key.access_key == NULL || b->key.secret_key == NULL)
		return err_set(err, ERR_SOURCE_SECRET_INVALID,
		               "aws_access_key_id and aws_secret_access_key are required in S3 "
		               "credentials%s",
		               json ? "" : " (the secret is not JSON)");
	return 0;
}

static void set_endpoint(struct bucket *b, const char *url)
{
	struct str ep = str_of(url);

	while (ep.n > 0 && ep.p[ep.n - 1] == '/')
		ep.n--;
	b->endpoint = arena_strz(b->base.arena, ep);
}

static void set_aws_endpoint(struct bucket *b)
{
	set_endpoint(b, arena_printf(b->base.arena, "https://s3.%s.amazonaws.com", b->key.region));
}

static int parse(struct bucket *b, struct str rest, const struct source_options *o, struct err *err)
{
	struct str name = {0};

	if (!str_cut(&rest, '/', &name) || !spec_bucket_ok(name))
		return err_set(err, ERR_INVALID, "not a bucket name: use s3://bucket/path");
	while (rest.n > 0 && rest.p[rest.n - 1] == '/')
		rest.n--;
	if (rest.n > OBJSTORE_KEY_MAX)
		return err_set(err, ERR_INVALID, "its path has %zu bytes: at most %d", rest.n,
		               OBJSTORE_KEY_MAX);
	b->bucket = arena_strz(b->base.arena, name);
	b->prefix = arena_strz(b->base.arena, rest);
	if (read_secret(b, err) < 0)
		return -1;
	b->aws = o->s3_endpoint == NULL;
	if (b->aws)
		set_aws_endpoint(b);
	else
		set_endpoint(b, o->s3_endpoint);
	return 0;
}

static int bucket_open(struct source **out, struct str rest, const struct source_options *o,
                       struct err *err)
{
	struct bucket *b = source_new(o, sizeof(*b));

	b->base.ops = &source_s3_ops;
	b->key_arena = arena_new();
	if (parse(b, rest, o, err) < 0) {
		source_close(&b->base);
		return -1;
	}
	*out = &b->base;
	return 0;
}

static void bucket_done(struct source *s)
{
	struct bucket *b = (struct bucket *)s;

	if (b->key.secret_key != NULL)
		explicit_bzero((void *)(uintptr_t)b->key.secret_key, strlen(b->key.secret_key));
	arena_free(b->key_arena);
}

/* --- requests -------------------------------------------------------------------------------- */

static int sign(struct bucket *b, struct arena *a, struct source_rq *rq, struct err *err)
{
	struct http_header h[4];
	size_t n = 0;

	rq->no_redirect = true; /* another region, which its answer names */
	rq->n_headers = 0;
	if (b->key.access_key == NULL)
		return 0;
	if (sigv4_sign(a, &b->key, rq->method, rq->url, NULL, 0, EMPTY_SHA256, clock_wall_ms(), h,
	               &n, err) < 0)
		return -1;
	memcpy(rq->header, h, n * sizeof(h[0]));
	rq->n_headers = n;
	return 0;
}

/* The store names the right region when the request went to, or was signed for, another one. True,
 * once: worth another try there. */
static bool learn_region(struct bucket *b, const struct http_reply *reply)
{
	struct str region = http_header_of(reply, "x-amz-bucket-region");

	if (b->learned || (reply->status != 301 && reply->status != 307 && reply->status != 400) ||
	    region.n == 0 || region.n > REGION_MAX || str_eq(region, b->key.region))
		return false;
	for (size_t i = 0; i < region.n; i++) { /* it becomes part of a host's name */
		char c = region.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
			return false;
	}
	b->learned = true;
	b->key.region = arena_strz(b->key_arena, region);
	if (b->aws)
		set_aws_endpoint(b);
	return true;
}

/* A small request for `path_and_query` of the endpoint. */
static int ask(struct bucket *b, struct arena *a, enum http_method method, struct str path,
               struct http_reply *reply, struct err *err)
{
	for (;;) {
		AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
		struct source_rq rq = {.method = method};

		buf_printf(&url, "%s/%s%.*s", b->endpoint, b->bucket, STR_ARG(path));
		if (buf_check(&url, "the URL", err) < 0)
			return -1;
		rq.url = buf_cstr(&url);
		if (sign(b, a, &rq, err) < 0)
			return -1;
		if (source_http_retry(&b->base, &rq, reply, err) == 0)
			return 0;
		if (!learn_region(b, reply))
			return -1;
		err_clear(err);
	}
}

static int list_page(struct bucket *b, struct arena *a, const char *prefix, const char *next,
                     int max, struct s3xml_listing *out, struct err *err)
{
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};

	buf_printf(&url, "?list-type=2&max-keys=%d&prefix=", max);
	url_encode(str_of(prefix), false, &url);
	if (next != NULL) {
		buf_puts(&url, "&continuation-token=");
		url_encode(str_of(next), false, &url);
	}
	if (buf_check(&url, "the URL", err) < 0 ||
	    ask(b, a, HTTP_GET, buf_view(&url), &reply, err) < 0)
		return -1;
	if (s3xml_listing(a, buf_view(&reply.body), out, err) == 0)
		return 0;
	err_become(err, ERR_SOURCE_BROKEN);
	return err_wrap(err, "the reply of %s is not from S3; check the endpoint", b->endpoint);
}

static int found(const struct s3xml_entry *e, size_t skip, struct source_found *to, struct err *err)
{
	return source_found(to, str_skip(str_of(e->key), skip), e->info.size, HASH_SHA256, NULL,
	                    str_of(e->info.etag), err);
}

/* All pages below `prefix` ("" or ending with '/'). */
static int list_below(struct bucket *b, const char *prefix, struct source_found *to, size_t *n,
                      struct err *err)
{
	AUTO_FREE char *next = NULL;
	size_t skip = strlen(prefix);

	for (int page = 0; page < SOURCE_PAGES_MAX; page++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct s3xml_listing l;

		if (list_page(b, a, prefix, next, 1000, &l, err) < 0)
			return -1;
		for (size_t i = 0; i < l.n; i++) {
			struct str key = str_of(l.entry[i].key);

			if (!str_starts(key, prefix))
				return err_set(err, ERR_CORRUPT,
				               "%s lists keys that were not requested",
				               b->endpoint);
			if (key.n == skip || str_ends(key, "/"))
				continue; /* a folder's marker */
			if (found(&l.entry[i], skip, to, err) < 0)
				return -1;
			(*n)++;
		}
		if (!l.truncated || l.next == NULL)
			return 0;
		free(next);
		next = xstrdup(l.next);
	}
	return err_set(err, ERR_CORRUPT, "its list of objects does not end");
}

/* One object, by its key: who may read it may not be allowed to list. */
static int find_object(struct bucket *b, struct arena *a, struct s3xml_entry *out, struct err *err)
{
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct str etag;

	buf_putc(&path, '/');
	url_encode(str_of(b->prefix), true, &path);
	if (buf_check(&path, "the URL", err) < 0 ||
	    ask(b, a, HTTP_HEAD, buf_view(&path), &reply, err) < 0)
		return -1;
	if (reply.length < 0)
		return err_set(err, ERR_SOURCE_UNSUPPORTED, "the store does not report its length");
	*out = (struct s3xml_entry){.key = b->prefix, .info.size = (uint64_t)reply.length};
	etag = source_etag(http_header_of(&reply, "ETag"), NULL);
	FMT(out->info.etag, "%.*s", (int)MIN(etag.n, sizeof(out->info.etag) - 1),
	    etag.n > 0 ? etag.p : "");
	return 0;
}

static int bucket_list(struct source *s, struct arena *a, const char *resolved UNUSED,
                       struct source_found *to, const char **revision UNUSED, struct err *err)
{
	struct bucket *b = (struct bucket *)s;
	const char *below = b->prefix[0] != '\0' ? arena_printf(a, "%s/", b->prefix) : "";
	const char *slash = strrchr(b->prefix, '/');
	size_t base = slash != NULL ? (size_t)(slash + 1 - b->prefix) : 0;
	struct s3xml_entry object;
	struct s3xml_listing l;
	struct err ignored = {0};
	size_t n = 0;

	b->single = false;
	if (list_below(b, below, to, &n, err) < 0) {
		if (err->code != ERR_DENIED || n > 0 || b->prefix[0] == '\0' ||
		    find_object(b, a, &object, &ignored) < 0)
			return -1;
		err_clear(err);
		b->single = true;
		return found(&object, base, to, err);
	}
	if (n > 0 || b->prefix[0] == '\0')
		return 0;
	/* Perhaps the path is one object: it comes first among the keys that begin with it. */
	if (list_page(b, a, b->prefix, NULL, 1, &l, err) < 0)
		return -1;
	if (l.n == 0 || strcmp(l.entry[0].key, b->prefix) != 0)
		return 0;
	b->single = true;
	return found(&l.entry[0], base, to, err);
}

static int bucket_read(struct source *s, const struct source_file *f, uint64_t first,
                       uint64_t count, const struct http_sink *to, const atomic_bool *cancel,
                       struct err *err)
{
	struct bucket *b = (struct bucket *)s;
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {.method = HTTP_GET,
	                       .file = f,
	                       .first = first,
	                       .count = count,
	                       .pin_etag = true,
	                       .to = to,
	                       .cancel = cancel};

	buf_printf(&url, "%s/%s/", b->endpoint, b->bucket);
	url_encode(str_of(b->prefix), true, &url);
	if (!b->single) {
		if (b->prefix[0] != '\0')
			buf_putc(&url, '/');
		url_encode(str_of(f->path), true, &url);
	}
	if (buf_check(&url, "the URL", err) < 0)
		return -1;
	rq.url = buf_cstr(&url);
	if (sign(b, a, &rq, err) < 0)
		return -1;
	return source_http(s, &rq, &reply, err);
}

const struct source_ops source_s3_ops = {
	.scheme = "s3",
	.form = "s3://bucket/path",
	.auth_advice = "the keys in auth_secret_name must allow s3:ListBucket on the bucket and "
		       "s3:GetObject on the path",
	.open = bucket_open,
	.list = bucket_list,
	.read = bucket_read,
	.done = bucket_done,
};
