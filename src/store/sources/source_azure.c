/*
 * source_azure.c - azure://account/container/prefix by the REST API of Azure Blob Storage
 * (learn.microsoft.com/rest/api/storageservices): with the account's key (Shared Key), with a
 * shared access signature, or without a secret, for public containers. Ranges are pinned to the
 * ETags of the listing.
 */
#include "store/sources/source_impl.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/seal.h"
#include "core/spec.h"
#include "store/objects/objstore.h"
#include "store/objects/s3xml.h"

#define SUFFIX_DEFAULT "core.windows.net"
#define API_VERSION "2020-10-02"
#define KEY_MAX 512 /* bytes; they have 64 */
#define TEXT_MAX ((size_t)16 << 10)
#define PARAMS_MAX 16
#define FORMS                                                                                      \
	"store the account's key, a SAS token or a connection string, alone or as account_key, "   \
	"sas_token or connection_string in JSON"

struct azure {
	struct source base;
	const char *account, *container;
	const char *endpoint; /* what stands before the container; without '/' at its end */
	char *suffix;         /* of the host, as the connection string says; NULL: the usual one */
	char *sas;            /* query text; NULL = none */
	struct buf key;       /* of Shared Key; empty = none */
	struct source_keys keys;
};

/* --- the secret ------------------------------------------------------------------------------ */

static int bad_secret(struct err *err, const char *what)
{
	return err_set(err, ERR_SOURCE_SECRET_INVALID, "%s: " FORMS, what);
}

static int take_key(struct azure *z, struct str text, struct err *err)
{
	struct err ignored = {0};

	if (base64_decode(text, false, &z->key, &ignored) < 0 || z->key.n < 16)
		return bad_secret(err, "the account key is not base64");
	return 0;
}

/* It becomes part of a URL: no blanks, nothing that begins another part. */
static int take_sas(struct azure *z, struct str text, struct err *err)
{
	struct str ignored;
	AUTO_ARENA struct arena *a = arena_new();

	if (str_starts(text, "?"))
		text = str_skip(text, 1);
	for (size_t i = 0; i < text.n; i++) {
		if ((unsigned char)text.p[i] <= ' ' || (unsigned char)text.p[i] >= 127 ||
		    strchr("#?\"<>", text.p[i]) != NULL)
			return bad_secret(err, "the SAS token is not a query of a URL");
	}
	if (!url_query(a, text, "sig", &ignored) || !url_query(a, text, "sv", &ignored))
		return bad_secret(err, "the SAS token has no sv and sig");
	z->sas = str_dup(text);
	return 0;
}

static bool is_host(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'))
			return false;
	}
	return s.n > 0 && s.p[0] != '.' && s.p[0] != '-';
}

/* "DefaultEndpointsProtocol=https;AccountName=...;AccountKey=...;EndpointSuffix=..." */
static int take_connection(struct azure *z, struct str text, struct err *err)
{
	struct str item, name;

	while (str_cut(&text, ';', &item)) {
		item = str_trim(item);
		if (!str_cut(&item, '=', &name))
			continue;
		if (str_ieq(name, "AccountName") && !str_eq(item, z->account))
			return err_set(err, ERR_SOURCE_SECRET_INVALID,
			               "the connection string is of the account %.*s, the source "
			               "names %s",
			               (int)MIN(item.n, (size_t)40), item.p, z->account);
		if (str_ieq(name, "AccountKey") && take_key(z, item, err) < 0)
			return -1;
		if (str_ieq(name, "SharedAccessSignature") && z->sas == NULL &&
		    take_sas(z, item, err) < 0)
			return -1;
		if (str_ieq(name, "EndpointSuffix") && z->suffix == NULL) {
			if (!is_host(item))
				return bad_secret(err, "EndpointSuffix is not a host");
			z->suffix = str_dup(item);
		}
	}
	if (z->key.n == 0 && z->sas == NULL)
		return bad_secret(err, "the connection string has neither AccountKey nor "
		                       "SharedAccessSignature");
	return 0;
}

static bool has(struct str text, const char *word)
{
	return memmem(text.p, text.n, word, strlen(word)) != NULL;
}

static int read_secret(struct azure *z, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = str_of(z->base.secret), v;
	const struct doc *d = NULL;
	struct err ignored = {0};

	if (text.n == 0) {
		z->base.auth_advice = "the container is not public: set auth_secret_name to a "
				      "secret with the account's key, a SAS token or a connection "
				      "string (secret_id is required)";
		return 0;
	}
	if (text.p[0] == '{') {
		if (js_parse(a, text, &d, &ignored) < 0)
			return bad_secret(err, "the secret is not JSON");
		if ((v = str_trim(doc_text(doc_get(d, "connection_string")))).n > 0)
			return take_connection(z, v, err);
		if ((v = str_trim(doc_text(doc_get(d, "account_key")))).n > 0)
			return take_key(z, v, err);
		if ((v = str_trim(doc_text(doc_get(d, "sas_token")))).n > 0)
			return take_sas(z, v, err);
		return bad_secret(err, "account_key is missing in Azure credentials");
	}
	if (has(text, "AccountKey=") || has(text, "SharedAccessSignature="))
		return take_connection(z, text, err);
	if (has(text, "sig="))
		return take_sas(z, text, err);
	return take_key(z, text, err);
}

/* --- open ------------------------------------------------------------------------------------ */

/* An account has its own host; where a store says otherwise, its name begins the path. */
static int set_endpoint(struct azure *z, const struct source_options *o, struct err *err)
{
	struct arena *a = z->base.arena;
	const char *said, *own = arena_printf(a, "%s.", z->account);
	struct url u;

	if (o->endpoint == NULL) {
		z->endpoint = arena_printf(a, "https://%s.blob.%s", z->account,
		                           z->suffix != NULL ? z->suffix : SUFFIX_DEFAULT);
		return 0;
	}
	said = source_endpoint(a, o->endpoint);
	if (url_parse(a, str_of(said), &u, err) < 0)
		return err_wrap(err, "its endpoint");
	z->endpoint =
		str_starts(str_of(u.host), own) ? said : arena_printf(a, "%s/%s", said, z->account);
	return 0;
}

static int parse(struct azure *z, struct str rest, const struct source_options *o, struct err *err)
{
	struct str account = {0}, container = {0};

	if (!str_cut(&rest, '/', &account) || !str_cut(&rest, '/', &container) ||
	    !spec_azure_ok(account, container))
		return err_set(err, ERR_INVALID, "not an account and a container: use %s",
		               source_azure_ops.form);
	if (source_keys_prefix(&z->keys, z->base.arena, rest, err) < 0)
		return -1;
	z->account = arena_strz(z->base.arena, account);
	z->container = arena_strz(z->base.arena, container);
	return read_secret(z, err) < 0 ? -1 : set_endpoint(z, o, err);
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err);
static int find_blob(struct source *s, struct arena *a, struct source_key *out, struct err *err);
static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err);

static int azure_open(struct source **out, struct str rest, const struct source_options *o,
                      struct err *err)
{
	struct azure *z = source_new(o, sizeof(*z));

	z->base.ops = &source_azure_ops;
	z->key = (struct buf)BUF_INIT(KEY_MAX);
	z->keys = (struct source_keys){.page = list_page, .find = find_blob, .sign = sign};
	if (parse(z, rest, o, err) < 0) {
		source_close(&z->base);
		return -1;
	}
	*out = &z->base;
	return 0;
}

static void azure_done(struct source *s)
{
	struct azure *z = (struct azure *)s;

	if (z->sas != NULL)
		seal_wipe(z->sas, strlen(z->sas));
	free(z->sas);
	free(z->suffix);
	seal_wipe_buf(&z->key);
}

/* --- signatures ------------------------------------------------------------------------------ */

struct param {
	struct str name, value;
};

static int by_name(const void *x, const void *y)
{
	const struct param *p = x, *q = y;
	int r = memcmp(p->name.p, q->name.p, MIN(p->name.n, q->name.n));

	return r != 0 ? r : (p->name.n > q->name.n) - (p->name.n < q->name.n);
}

/* "/account/path", then each parameter of the query, decoded, by its name. The names are ours: of
 * lower case, and none twice. */
static int put_resource(const struct azure *z, struct arena *a, const char *url, struct buf *out,
                        struct err *err)
{
	struct param p[PARAMS_MAX];
	struct str query, name, value;
	struct url u;
	size_t n = 0;

	if (url_parse(a, str_of(url), &u, err) < 0)
		return -1;
	buf_printf(out, "/%s%s", z->account, u.path);
	query = str_of(u.query);
	while (url_query_next(&query, &name, &value)) {
		assert(n < PARAMS_MAX);
		p[n].name = name;
		if (url_decode(a, value, &p[n++].value, err) < 0)
			return -1;
	}
	qsort(p, n, sizeof(p[0]), by_name);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "\n%.*s:%.*s", STR_ARG(p[i].name), STR_ARG(p[i].value));
	return 0;
}

static const char *header_of(const struct http_call *call, const char *name)
{
	for (size_t i = 0; i < call->n_headers; i++) {
		if (strcasecmp(call->headers[i].name, name) == 0)
			return call->headers[i].value;
	}
	return "";
}

/* learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
static int sign(struct source *s, struct arena *a, const struct http_call *call,
                struct http_header *h, size_t *n, struct err *err)
{
	const struct azure *z = (const struct azure *)s;
	AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX), signature = BUF_INIT(128);
	char date[CLOCK_HTTP_CAP];
	uint8_t mac[HASH_SHA256_LEN];

	clock_http(clock_wall_ms(), date);
	if (z->key.n > 0) {
		/* verb, encoding, language, length, MD5, type, date, if-modified-since, if-match,
		 * if-none-match, if-unmodified-since, range: what is not sent is empty */
		buf_printf(&text, "%s\n\n\n\n\n\n\n\n%s\n\n\n%s\n", http_method_name[call->method],
		           header_of(call, "If-Match"), header_of(call, "Range"));
		buf_printf(&text, "x-ms-date:%s\nx-ms-version:" API_VERSION "\n", date);
		if (put_resource(z, a, call->url, &text, err) < 0 ||
		    buf_check(&text, "the text to sign", err) < 0)
			return -1;
		hash_hmac_sha256(z->key.p, z->key.n, text.p, text.n, mac);
		base64_encode(mac, sizeof(mac), false, &signature);
		h[(*n)++] = (struct http_header){
			"Authorization",
			arena_printf(a, "SharedKey %s:%s", z->account, buf_cstr(&signature))};
	}
	h[(*n)++] = (struct http_header){"x-ms-date", arena_cstr(a, date)};
	h[(*n)++] = (struct http_header){"x-ms-version", API_VERSION};
	return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

/* Ends a URL: with a SAS token the query says who asks. */
static int end_url(const struct azure *z, struct buf *url, bool query, struct err *err)
{
	if (z->sas != NULL)
		buf_printf(url, "%c%s", query ? '&' : '?', z->sas);
	return buf_check(url, "the URL", err);
}

static int ask(struct azure *z, enum http_method method, const struct buf *url,
               struct http_reply *reply, struct err *err)
{
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
	                       .method = method,
	                       .url = buf_cstr(url),
	                       .no_redirect = true,
	                       .sign = sign};

	if (source_http_retry(&z->base, &rq, reply, err) == 0)
		return 0;
	/* A stranger is told that nothing is there. */
	if (err->code == ERR_NOT_FOUND && z->base.secret[0] == '\0')
		return err_wrap(err, "a container that is not public needs auth_secret_name");
	return -1;
}

static int list_page(struct source *s, struct arena *a, const char *prefix, const char *next,
                     struct source_page *out, struct err *err)
{
	struct azure *z = (struct azure *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3xml_blobs l;

	/* A page of the 5,000 that it would send may be more than is read of a document. */
	buf_printf(&url, "%s/%s?restype=container&comp=list&include=metadata&maxresults=1000",
	           z->endpoint, z->container);
	if (prefix[0] != '\0') {
		buf_puts(&url, "&prefix=");
		url_encode(str_of(prefix), false, &url);
	}
	if (next != NULL) {
		buf_puts(&url, "&marker=");
		url_encode(str_of(next), false, &url);
	}
	if (end_url(z, &url, true, err) < 0 || ask(z, HTTP_GET, &url, &reply, err) < 0)
		return -1;
	if (s3xml_blobs(a, buf_view(&reply.body), &l, err) < 0) {
		err_become(err, ERR_SOURCE_BROKEN);
		return err_wrap(err, "the reply of %s is not from Azure; check the endpoint",
		                z->endpoint);
	}
	*out = (struct source_page){
		.key = ARENA_ARRAY(a, struct source_key, l.n + 1), .n = l.n, .next = l.next};
	for (size_t i = 0; i < l.n; i++) {
		const struct s3xml_blob *b = &l.blob[i];
		struct source_key *k = &out->key[i];

		*k = (struct source_key){.key = b->name,
		                         .size = b->size,
		                         .etag = b->etag,
		                         .encoded = b->coding[0] != '\0' ? b->coding : NULL,
		                         .folder = b->folder};
		source_key_md5(k, str_of(b->md5));
	}
	return 0;
}

static void put_blob(const struct azure *z, struct buf *url)
{
	buf_printf(url, "%s/%s/", z->endpoint, z->container);
}

static int find_blob(struct source *s, struct arena *a, struct source_key *out, struct err *err)
{
	struct azure *z = (struct azure *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};

	put_blob(z, &url);
	url_encode(str_of(z->keys.prefix), true, &url);
	if (end_url(z, &url, false, err) < 0 || ask(z, HTTP_HEAD, &url, &reply, err) < 0)
		return -1;
	if (reply.length < 0)
		return err_set(err, ERR_SOURCE_UNSUPPORTED, "the store does not report its length");
	*out = (struct source_key){
		.key = z->keys.prefix,
		.size = (uint64_t)reply.length,
		.etag = arena_strz(a, source_etag(http_header_of(&reply, "ETag"), NULL)),
		.folder = str_ieq(http_header_of(&reply, "x-ms-meta-hdi_isfolder"), "true")};
	if (out->folder)
		return err_set(err, ERR_NOT_FOUND, "it is a folder");
	return 0;
}

static int azure_list(struct source *s, struct arena *a, const char *resolved UNUSED,
                      struct source_found *to, const char **revision UNUSED, struct err *err)
{
	struct azure *z = (struct azure *)s;

	return source_keys_list(s, a, &z->keys, to, err);
}

static int azure_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                      const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	struct azure *z = (struct azure *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);

	put_blob(z, &url);
	source_keys_url(&z->keys, f, true, &url);
	if (end_url(z, &url, false, err) < 0)
		return -1;
	return source_keys_read(s, &z->keys, &url, f, first, count, to, cancel, err);
}

const struct source_ops source_azure_ops = {
	.scheme = "azure",
	.form = "azure://account/container/path",
	.auth_advice = "the key or SAS token in auth_secret_name must allow to list the container "
		       "and to read its blobs",
	.open = azure_open,
	.list = azure_list,
	.read = azure_read,
	.done = azure_done,
};
