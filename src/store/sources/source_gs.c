/*
 * source_gs.c - gs://bucket/prefix by the JSON API of Google Cloud Storage
 * (cloud.google.com/storage/docs/json_api/v1): with the key of a service account, by web
 * identity, or without a secret, for public buckets. A secret with interoperability keys is read by
 * source_bucket.c. Objects are listed with their generation, to which every range is pinned, and
 * with their MD5, but for composite ones.
 */
#include "store/sources/source_impl.h"

#include "base/json.h"
#include "core/spec.h"
#include "store/objects/objstore.h"
#include "store/sources/gcp_token.h"

#define ENDPOINT_DEFAULT "https://storage.googleapis.com"
#define FIELDS "name,size,generation,md5Hash,contentEncoding"

struct gs {
	struct source base;
	const char *endpoint;    /* without '/' at its end */
	const char *bucket;      /* encoded */
	struct gcp_token *token; /* NULL: requests are anonymous */
	struct source_keys keys;
};

/* --- open ------------------------------------------------------------------------------------ */

/* `account`: what a secret holds. */
static int read_secret(struct gs *g, const struct source_options *o, const struct doc *account,
                       struct err *err)
{
	bool plain = str_starts(str_of(g->endpoint), "http://"); /* of a store of one's own */
	bool google = str_ends(str_of(g->endpoint), ".googleapis.com");

	if (o->auth == SPEC_WEIGHTS_GCP_OIDC && o->role != NULL && o->role_at != NULL) {
		const struct gcp_web web = {.account = o->role,
		                            .provider = o->role_at,
		                            .endpoint = google ? NULL : g->endpoint,
		                            .identity = o->identity};

		assert(o->identity != NULL);
		g->token = gcp_token_new_web(g->base.client, &web);
		g->base.auth_advice = "the service account needs the role Storage Object Viewer on "
				      "the bucket";
		return 0;
	}
	if (g->base.secret[0] == '\0') {
		g->base.auth_advice = "the bucket is not public: set auth_secret_name to a secret "
				      "with the JSON of a service account's key (no credentials "
				      "configured: need either OIDC config or secret_id)";
		return 0;
	}
	if (account == NULL)
		return err_set(err, ERR_SOURCE_SECRET_INVALID,
		               "the secret is not JSON: store the JSON of a service account's key, "
		               "or interoperability keys as aws_access_key_id and "
		               "aws_secret_access_key");
	return gcp_token_new(g->base.client, account, plain, &g->token, err);
}

static int parse(struct gs *g, struct str rest, struct err *err)
{
	AUTO_BUF struct buf bucket = BUF_INIT(URL_MAX);
	struct str name = {0};

	if (!str_cut(&rest, '/', &name) || !spec_gs_bucket_ok(name))
		return err_set(err, ERR_INVALID, "not a bucket name: use %s", source_gs_ops.form);
	if (source_keys_prefix(&g->keys, g->base.arena, rest, err) < 0)
		return -1;
	url_encode(name, false, &bucket);
	g->bucket = arena_strz(g->base.arena, buf_view(&bucket));
	return 0;
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err);
static int find_object(struct source *s, struct arena *a, struct source_key *out, struct err *err);
static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err);

static int gs_open(struct source **out, struct str rest, const struct source_options *o,
                   struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *account = NULL;
	struct err ignored = {0};
	struct gs *g;

	if (js_parse(a, str_trim(o->secret), &account, &ignored) == 0 &&
	    doc_get(account, "aws_access_key_id") != NULL)
		return source_bucket_gs_open(out, rest, o, err);
	g = source_new(o, sizeof(*g));
	g->base.ops = &source_gs_ops;
	g->endpoint = source_endpoint(g->base.arena,
	                              o->endpoint != NULL ? o->endpoint : ENDPOINT_DEFAULT);
	g->keys = (struct source_keys){.page = list_page,
	                               .find = find_object,
	                               .sign = sign,
	                               .pin_header = "x-goog-generation"};
	if (parse(g, rest, err) < 0 || read_secret(g, o, account, err) < 0) {
		source_close(&g->base);
		return -1;
	}
	*out = &g->base;
	return 0;
}

static void gs_done(struct source *s)
{
	gcp_token_free(((struct gs *)s)->token);
}

/* --- requests -------------------------------------------------------------------------------- */

static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err)
{
	struct gs *g = (struct gs *)s;
	const char *bearer;

	if (g->token == NULL)
		return 0;
	if (gcp_token_bearer(g->token, a, call->cancel, &bearer, err) < 0)
		return -1;
	h[(*n)++] = (struct http_header){"Authorization", bearer};
	return 0;
}

static void put_objects(const struct gs *g, struct buf *url)
{
	buf_printf(url, "%s/storage/v1/b/%s/o", g->endpoint, g->bucket);
}

static int ask(struct gs *g, struct arena *a, const struct buf *url, const struct doc **out,
               struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {
		.magic = SOURCE_RQ_MAGIC, .method = HTTP_GET, .no_redirect = true, .sign = sign};

	if (buf_check(url, "the URL", err) < 0)
		return -1;
	rq.url = buf_cstr(url);
	if (source_http_retry(&g->base, &rq, &reply, err) < 0)
		return -1;
	if (js_parse(a, buf_view(&reply.body), out, err) == 0)
		return 0;
	err_become(err, ERR_SOURCE_BROKEN);
	return err_wrap(err, "the reply of %s is not from Google Cloud Storage; check the endpoint",
	                g->endpoint);
}

/* What the API calls an object resource: numbers are texts there. */
static int read_object(struct arena *a, const struct doc *d, struct source_key *out,
                       struct err *err)
{
	struct str name = doc_text(doc_get(d, "name"));
	struct str coding = doc_text(doc_get(d, "contentEncoding"));
	struct err ignored = {0};

	*out = (struct source_key){.key = arena_strz(a, name)};
	if (name.n == 0 ||
	    str_u64(doc_text(doc_get(d, "size")), 0, INT64_MAX, &out->size, &ignored) < 0)
		return err_set(err, ERR_SOURCE_BROKEN,
		               "it lists an object without a name or a size");
	out->etag = arena_strz(a, doc_text(doc_get(d, "generation")));
	if (coding.n > 0 && !str_ieq(coding, "identity"))
		out->encoded = arena_strz(a, coding);
	source_key_md5(out, doc_text(doc_get(d, "md5Hash")));
	return 0;
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err)
{
	struct gs *g = (struct gs *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	const struct doc *d, *items;
	struct str token;

	put_objects(g, &url);
	buf_puts(&url, "?maxResults=1000&fields=nextPageToken,items(" FIELDS ")&prefix=");
	url_encode(str_of(prefix), false, &url);
	if (next != NULL) {
		buf_puts(&url, "&pageToken=");
		url_encode(str_of(next), false, &url);
	}
	if (ask(g, a, &url, &d, err) < 0)
		return -1;
	items = doc_get(d, "items");
	token = doc_text(doc_get(d, "nextPageToken"));
	*out = (struct source_page){
		.key = ARENA_ARRAY(a, struct source_key, (items != NULL ? items->count : 0) + 1),
		.next = token.n > 0 ? arena_strz(a, token) : NULL};
	DOC_EACH (item, items) {
		if (read_object(a, item, &out->key[out->n++], err) < 0)
			return -1;
	}
	return 0;
}

static int find_object(struct source *s, struct arena *a, struct source_key *out, struct err *err)
{
	struct gs *g = (struct gs *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	const struct doc *d;

	put_objects(g, &url);
	buf_putc(&url, '/');
	url_encode(str_of(g->keys.prefix), false, &url);
	buf_puts(&url, "?fields=" FIELDS);
	if (ask(g, a, &url, &d, err) < 0 || read_object(a, d, out, err) < 0)
		return -1;
	out->key = g->keys.prefix; /* whatever it was called there */
	return 0;
}

static int gs_list(struct source *s, struct arena *a, const char *resolved UNUSED,
                   struct source_found *to, const char **revision UNUSED, struct err *err)
{
	struct gs *g = (struct gs *)s;

	return source_keys_list(s, a, &g->keys, to, err);
}

static int gs_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                   const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	struct gs *g = (struct gs *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);

	put_objects(g, &url);
	buf_putc(&url, '/');
	source_keys_url(&g->keys, f, false, &url);
	buf_puts(&url, "?alt=media");
	if (f->etag != NULL) {
		buf_puts(&url, "&ifGenerationMatch=");
		url_encode(str_of(f->etag), false, &url);
	}
	return source_keys_read(s, &g->keys, &url, f, first, count, to, cancel, err);
}

const struct source_ops source_gs_ops = {
	.scheme = "gs",
	.form = "gs://bucket/path",
	.auth_advice = "the service account in auth_secret_name needs the role Storage Object "
		       "Viewer on the bucket",
	.open = gs_open,
	.list = gs_list,
	.read = gs_read,
	.done = gs_done,
};
