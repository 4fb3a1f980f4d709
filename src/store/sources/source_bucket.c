/*
 * source_bucket.c - stores that speak S3: s3://bucket/prefix from any endpoint,
 * r2://account.bucket/prefix of Cloudflare, cw://bucket/prefix of CoreWeave, gs://bucket/prefix
 * when its secret has interoperability keys. Requests are signed with the keys in the secret;
 * without a secret they are not, which is how public buckets are read. What is listed
 * (ListObjectsV2) has sizes and ETags; every range of an object is pinned to its ETag.
 */
#include "store/sources/source_impl.h"

#include "base/clock.h"
#include "core/spec.h"
#include "store/common/s3_keys.h"
#include "store/objects/s3xml.h"
#include "store/sources/sts.h"

#include <arpa/inet.h>
#include <ctype.h>

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define AWS_AUDIENCE "sts.amazonaws.com"
#define ROLE_RIGHTS "the role must allow s3:ListBucket on the bucket and s3:GetObject on the path"

/* What tells these stores from each other. */
struct bucket_kind {
	const struct source_ops *ops;
	const char *endpoint; /* "%s": the account, or the region */
	const char *region;   /* unless the secret says another one */
	bool regional;        /* the endpoint follows from the region */
	bool account;         /* it stands before the bucket: account.bucket */
	/* The bucket is the first part of the host's name, not of the path. */
	bool by_host;
};

struct bucket {
	struct source base;
	const struct bucket_kind *kind;
	const char *endpoint; /* without '/' at its end */
	const char *bucket;
	struct source_keys keys;
	struct sigv4_key key; /* in key_arena; access_key NULL: requests are not signed */
	struct arena *key_arena;
	struct sts *sts;   /* NULL: `key` is what signs */
	bool own_endpoint; /* it was said, and does not follow from the region */
	bool by_host;
	bool learned; /* the region is the one that the store has named */
};

/* --- open ------------------------------------------------------------------------------------ */

/* They go into headers, and the region into the name of a host. */
static int check_key(const struct sigv4_key *k, struct err *err)
{
	const struct {
		const char *name, *value;
	} rows[] = {{"aws_access_key_id", k->access_key},
	            {"aws_secret_access_key", k->secret_key},
	            {"aws_session_token", k->session_token},
	            {"aws_region", k->region}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		bool region = rows[i].value == k->region;

		for (const char *p = rows[i].value; p != NULL && *p != '\0'; p++) {
			if (region ? isalnum((unsigned char)*p) || *p == '-' || *p == '_'
			           : *p > ' ' && *p < 127)
				continue;
			return err_set(err, ERR_SOURCE_SECRET_INVALID,
			               "%s in S3 credentials has a character that none has: "
			               "store it as it was given out",
			               rows[i].name);
		}
	}
	return 0;
}

/* The texts of the platform that jobs were written for; their first words are matched by scripts.
 */
static int read_secret(struct bucket *b, struct err *err)
{
	bool json;

	b->key = (struct sigv4_key){.region = b->kind->region, .service = "s3"};
	if (b->base.secret[0] == '\0') {
		b->base.auth_advice =
			"the bucket is not public: set auth_secret_name to a secret with its keys "
			"(secret_id is required)";
		return 0;
	}
	json = s3_keys_read(b->key_arena, str_of(b->base.secret), &b->key);
	if (b->key.region == NULL)
		b->key.region = b->kind->region;
	if (b->key.access_key == NULL || b->key.secret_key == NULL)
		return err_set(err, ERR_SOURCE_SECRET_INVALID,
		               "aws_access_key_id and aws_secret_access_key are required in S3 "
		               "credentials%s",
		               json ? "" : " (the secret is not JSON)");
	return check_key(&b->key, err);
}

/* China's regions are of a domain of their own. */
static const char *aws_host(struct bucket *b, const char *service, const char *region)
{
	return arena_printf(b->base.arena, "https://%s.%s.amazonaws.com%s", service, region,
	                    str_starts(str_of(region), "cn-") ? ".cn" : "");
}

static void set_regional_endpoint(struct bucket *b)
{
	b->endpoint = aws_host(b, "s3", b->key.region);
}

/* An address has no names below it, and neither has localhost. */
static bool can_have_names(const struct url *u)
{
	struct in6_addr any;

	return inet_pton(AF_INET, u->host, &any) != 1 && inet_pton(AF_INET6, u->host, &any) != 1 &&
	       strcmp(u->host, "localhost") != 0;
}

static int set_endpoint(struct bucket *b, const char *account, const struct source_options *o,
                        struct err *err)
{
	const char *said = o->endpoint;
	struct url u;

	if (said == NULL && b->kind->regional)
		said = o->s3_endpoint;
	b->own_endpoint = said != NULL;
	if (said == NULL && b->kind->regional)
		set_regional_endpoint(b);
	else if (said == NULL && b->kind->account)
		b->endpoint =
			arena_printf(b->base.arena, "https://%s.r2.cloudflarestorage.com", account);
	else
		b->endpoint =
			source_endpoint(b->base.arena, said != NULL ? said : b->kind->endpoint);
	if (url_parse(b->base.arena, str_of(b->endpoint), &u, err) < 0)
		return err_wrap(err, "its endpoint");
	b->by_host = b->kind->by_host && can_have_names(&u);
	return 0;
}

/* Also at an address within a network of one's own there. */
static bool is_aws(const char *endpoint)
{
	return str_ends(str_of(endpoint), ".amazonaws.com") ||
	       str_ends(str_of(endpoint), ".amazonaws.com.cn");
}

/* A store of one's own has the service at its root, and is an audience of its own: what it is shown
 * is worth nothing at AWS. */
static int set_role(struct bucket *b, const struct source_options *o, struct err *err)
{
	bool web = o->auth == SPEC_WEIGHTS_AWS_OIDC, aws = is_aws(b->endpoint);
	struct sts_role role = {.arn = o->role, .by = b->key, .endpoint = b->endpoint};

	if (web) {
		assert(o->identity != NULL && b->key.access_key == NULL);
		role.identity = o->identity;
		role.audience = aws ? AWS_AUDIENCE : strstr(b->endpoint, "://") + 3;
	} else if (b->key.access_key == NULL) {
		return err_set(err, ERR_SOURCE_SECRET_INVALID,
		               "aws_access_key_id and aws_secret_access_key are required in the "
		               "credentials that assume a role");
	}
	if (o->role_at != NULL)
		role.by.region = o->role_at;
	if (aws)
		role.endpoint = aws_host(b, "sts", role.by.region);
	b->sts = sts_new(b->base.client, &role);
	b->base.auth_advice = ROLE_RIGHTS;
	return 0;
}

static int parse(struct bucket *b, struct str rest, const struct source_options *o, struct err *err)
{
	struct str name = {0}, account = {0};

	if (b->kind->account && !str_cut(&rest, '.', &account))
		return err_set(err, ERR_INVALID, "not an account and a bucket: use %s",
		               b->kind->ops->form);
	if (!str_cut(&rest, '/', &name) || !spec_bucket_ok(name))
		return err_set(err, ERR_INVALID, "not a bucket name: use %s", b->kind->ops->form);
	if (source_keys_prefix(&b->keys, b->base.arena, rest, err) < 0)
		return -1;
	b->bucket = arena_strz(b->base.arena, name);
	if (read_secret(b, err) < 0)
		return -1;
	if (set_endpoint(b, arena_strz(b->base.arena, account), o, err) < 0)
		return -1;
	return o->role != NULL ? set_role(b, o, err) : 0;
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err);
static int find_object(struct source *s, struct arena *a, struct source_key *out, struct err *err);
static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err);

static int open_kind(struct source **out, const struct bucket_kind *kind, struct str rest,
                     const struct source_options *o, struct err *err)
{
	struct bucket *b = source_new(o, sizeof(*b));

	b->base.ops = kind->ops;
	b->kind = kind;
	b->keys = (struct source_keys){.page = list_page, .find = find_object, .sign = sign};
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
	sts_free(b->sts);
}

/* --- requests -------------------------------------------------------------------------------- */

static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err)
{
	const struct bucket *b = (const struct bucket *)s;
	struct http_header own[SOURCE_SIGN_HEADERS];
	struct sigv4_key key = b->key;
	size_t n_own = 0;

	if (key.access_key == NULL && b->sts == NULL)
		return 0;
	if (b->sts != NULL && sts_key(b->sts, a, call->cancel, &key, err) < 0)
		return -1;
	key.region = b->key.region;
	key.service = b->key.service;
	if (sigv4_sign(a, &key, call->method, call->url, NULL, 0, EMPTY_SHA256, clock_wall_ms(),
	               own, &n_own, err) < 0)
		return -1;
	memcpy(h + *n, own, n_own * sizeof(own[0]));
	*n += n_own;
	return 0;
}

/* The bucket's URL, without '/' at its end. */
static void put_bucket(const struct bucket *b, struct buf *url)
{
	const char *host = strstr(b->endpoint, "://") + 3;

	if (b->by_host)
		buf_printf(url, "%.*s%s.%s", (int)(host - b->endpoint), b->endpoint, b->bucket,
		           host);
	else
		buf_printf(url, "%s/%s", b->endpoint, b->bucket);
}

/* The store names the right region when the request went to, or was signed for, another one. True,
 * once: worth another try there. */
static bool learn_region(struct bucket *b, const struct http_reply *reply)
{
	struct str region = http_header_of(reply, "x-amz-bucket-region");

	if (b->learned || (reply->status != 301 && reply->status != 307 && reply->status != 400) ||
	    !spec_region_ok(region) || str_eq(region, b->key.region))
		return false;
	b->learned = true;
	b->key.region = arena_strz(b->key_arena, region);
	if (b->kind->regional && !b->own_endpoint)
		set_regional_endpoint(b);
	return true;
}

/* A small request for `path_and_query` of the bucket. */
static int ask(struct bucket *b, enum http_method method, struct str path_and_query,
               struct http_reply *reply, struct err *err)
{
	for (;;) {
		AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
		struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
		                       .method = method,
		                       .no_redirect = true,
		                       .sign = sign};

		put_bucket(b, &url);
		buf_str(&url, path_and_query);
		if (buf_check(&url, "the URL", err) < 0)
			return -1;
		rq.url = buf_cstr(&url);
		if (source_http_retry(&b->base, &rq, reply, err) == 0)
			return 0;
		if (!learn_region(b, reply))
			return -1;
		err_clear(err);
	}
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err)
{
	struct bucket *b = (struct bucket *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3xml_listing l;

	buf_puts(&url, b->by_host ? "/" : "");
	buf_puts(&url, "?list-type=2&max-keys=1000&prefix=");
	url_encode(str_of(prefix), false, &url);
	if (next != NULL) {
		buf_puts(&url, "&continuation-token=");
		url_encode(str_of(next), false, &url);
	}
	if (buf_check(&url, "the URL", err) < 0 ||
	    ask(b, HTTP_GET, buf_view(&url), &reply, err) < 0)
		return -1;
	if (s3xml_listing(a, buf_view(&reply.body), &l, err) < 0) {
		err_become(err, ERR_SOURCE_BROKEN);
		return err_wrap(err, "the reply of %s is not from S3; check the endpoint",
		                b->endpoint);
	}
	*out = (struct source_page){.key = ARENA_ARRAY(a, struct source_key, l.n + 1),
	                            .n = l.n,
	                            .next = l.truncated ? l.next : NULL};
	for (size_t i = 0; i < l.n; i++)
		out->key[i] = (struct source_key){.key = l.entry[i].key,
		                                  .size = l.entry[i].info.size,
		                                  .etag = l.entry[i].info.etag};
	return 0;
}

static int find_object(struct source *s, struct arena *a, struct source_key *out, struct err *err)
{
	struct bucket *b = (struct bucket *)s;
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};

	buf_putc(&path, '/');
	url_encode(str_of(b->keys.prefix), true, &path);
	if (buf_check(&path, "the URL", err) < 0 ||
	    ask(b, HTTP_HEAD, buf_view(&path), &reply, err) < 0)
		return -1;
	if (reply.length < 0)
		return err_set(err, ERR_SOURCE_UNSUPPORTED, "the store does not report its length");
	*out = (struct source_key){
		.key = b->keys.prefix,
		.size = (uint64_t)reply.length,
		.etag = arena_strz(a, source_etag(http_header_of(&reply, "ETag"), NULL))};
	return 0;
}

static int bucket_list(struct source *s, struct arena *a, const char *resolved UNUSED,
                       struct source_found *to, const char **revision UNUSED, struct err *err)
{
	struct bucket *b = (struct bucket *)s;

	return source_keys_list(s, a, &b->keys, to, err);
}

static int bucket_read(struct source *s, const struct source_file *f, uint64_t first,
                       uint64_t count, const struct http_sink *to, const atomic_bool *cancel,
                       struct err *err)
{
	struct bucket *b = (struct bucket *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);

	put_bucket(b, &url);
	buf_putc(&url, '/');
	source_keys_url(&b->keys, f, true, &url);
	return source_keys_read(s, &b->keys, &url, f, first, count, to, cancel, err);
}

/* --- the stores ------------------------------------------------------------------------------ */

#define RIGHTS                                                                                     \
	"the keys in auth_secret_name must allow s3:ListBucket on the bucket and s3:GetObject on " \
	"the path"

/* Regions: docs.aws.amazon.com/general/latest/gr/s3.html. An endpoint of one's own is path style.
 */
static const struct bucket_kind s3_kind = {
	.ops = &source_s3_ops,
	.region = S3_REGION_DEFAULT,
	.regional = true,
};

static int s3_open(struct source **out, struct str rest, const struct source_options *o,
                   struct err *err)
{
	return open_kind(out, &s3_kind, rest, o, err);
}

const struct source_ops source_s3_ops = {
	.scheme = "s3",
	.form = "s3://bucket/path",
	.auth_advice = RIGHTS,
	.open = s3_open,
	.list = bucket_list,
	.read = bucket_read,
	.done = bucket_done,
};

/* developers.cloudflare.com/r2/api/s3/api: one region, and a host for each account. */
static const struct bucket_kind r2_kind = {
	.ops = &source_r2_ops,
	.region = "auto",
	.account = true,
};

static int r2_open(struct source **out, struct str rest, const struct source_options *o,
                   struct err *err)
{
	return open_kind(out, &r2_kind, rest, o, err);
}

const struct source_ops source_r2_ops = {
	.scheme = "r2",
	.form = "r2://account_id.bucket/path",
	.auth_advice = "the keys in auth_secret_name must be of an R2 token that may read objects "
		       "of the bucket",
	.open = r2_open,
	.list = bucket_list,
	.read = bucket_read,
	.done = bucket_done,
};

/* docs.coreweave.com, AI Object Storage, "Set endpoints": virtual-hosted style only. */
static const struct bucket_kind cw_kind = {
	.ops = &source_cw_ops,
	.endpoint = "https://cwobject.com",
	.region = S3_REGION_DEFAULT,
	.by_host = true,
};

static int cw_open(struct source **out, struct str rest, const struct source_options *o,
                   struct err *err)
{
	return open_kind(out, &cw_kind, rest, o, err);
}

const struct source_ops source_cw_ops = {
	.scheme = "cw",
	.form = "cw://bucket/path",
	.auth_advice = RIGHTS,
	.open = cw_open,
	.list = bucket_list,
	.read = bucket_read,
	.done = bucket_done,
};

/* cloud.google.com/storage/docs/interoperability */
static const struct source_ops gs_keys_ops = {
	.scheme = "gs",
	.form = "gs://bucket/path",
	.auth_advice = "the service account of the interoperability keys in auth_secret_name needs "
		       "the role Storage Object Viewer on the bucket",
	.list = bucket_list,
	.read = bucket_read,
	.done = bucket_done,
};
static const struct bucket_kind gs_kind = {
	.ops = &gs_keys_ops,
	.endpoint = "https://storage.googleapis.com",
	.region = "auto",
};

int source_bucket_gs_open(struct source **out, struct str rest, const struct source_options *o,
                          struct err *err)
{
	return open_kind(out, &gs_kind, rest, o, err);
}
