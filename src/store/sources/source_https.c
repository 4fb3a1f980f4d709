/*
 * source_https.c - one file from https://host/path, with its digest where the server tells it.
 * http:// is the same for networks where TLS ends elsewhere; job specs do not take it.
 */
#include "store/sources/source_impl.h"

#include "base/fs.h"

struct https {
	struct source base;
	const char *url, *host;
	const char *file; /* its name: the last part of the path */
	char *auth;       /* "Bearer ...", NULL = none; wiped at the end */
};

static int open_url(struct source **out, const struct source_ops *ops, struct str rest,
                    const struct source_options *o, struct err *err)
{
	struct https *h = source_new(o, sizeof(*h));
	struct arena *a = h->base.arena;
	struct str name;
	struct url u;

	h->base.ops = ops;
	h->url = arena_printf(a, "%s://%.*s", ops->scheme, STR_ARG(rest));
	if (url_parse(a, str_of(h->url), &u, err) < 0)
		goto fail;
	h->host = u.host;
	name = str_of(strrchr(u.path, '/') + 1);
	if (url_decode(a, name, &name, err) < 0)
		goto fail;
	if (name.n == 0 || !fs_path_is_plain(name) || memchr(name.p, '/', name.n) != NULL) {
		(void)err_set(err, ERR_INVALID, "its path must end with a file name: %s",
		              ops->form);
		goto fail;
	}
	h->file = arena_strz(a, name);
	if (source_bearer(&h->base, &h->auth, err) < 0)
		goto fail;
	*out = &h->base;
	return 0;
fail:
	source_close(&h->base);
	return -1;
}

static int https_open(struct source **out, struct str rest, const struct source_options *o,
                      struct err *err)
{
	return open_url(out, &source_https_ops, rest, o, err);
}

static int http_open(struct source **out, struct str rest, const struct source_options *o,
                     struct err *err)
{
	return open_url(out, &source_http_ops, rest, o, err);
}

static int https_check(struct source *s, struct err *err)
{
	const struct https *h = (const struct https *)s;

	if (!http_host_denied(s->client, h->host))
		return 0;
	return err_set(err, ERR_ADDRESS_DENIED,
	               "a source on an internal address requires the server's setting "
	               "--allow-source-network");
}

static void https_done(struct source *s)
{
	struct https *h = (struct https *)s;

	if (h->auth != NULL)
		explicit_bzero(h->auth, strlen(h->auth));
	free(h->auth);
}

/* --- what the server tells about the file ---------------------------------------------------- */

struct facts {
	unsigned magic;
#define FACTS_MAGIC 0x53464143U
	uint64_t size;
	bool has_size, has_sha256, peeked;
	uint8_t sha256[HASH_SHA256_LEN];
	char etag[200];
};

static bool sha256_of_base64(struct str text, uint8_t out[HASH_SHA256_LEN])
{
	AUTO_BUF struct buf raw = BUF_INIT(64);
	struct err ignored = {0};

	if (text.n > 48 || base64_decode(text, false, &raw, &ignored) < 0 ||
	    raw.n != HASH_SHA256_LEN)
		return false;
	memcpy(out, raw.p, HASH_SHA256_LEN);
	return true;
}

/* The SHA-256 of the whole file: S3's checksum, RFC 9530 Repr-Digest or RFC 3230 Digest. */
static bool promised_sha256(const struct http_reply *reply, uint8_t out[HASH_SHA256_LEN])
{
	static const char *const lists[] = {"Repr-Digest", "Digest"};
	struct str value = str_trim(http_header_of(reply, "x-amz-checksum-sha256"));

	if (sha256_of_base64(value,
	                     out)) /* one of a multipart object has "-N" behind it: refused */
		return true;
	for (size_t i = 0; i < COUNT(lists); i++) {
		struct str list = http_header_of(reply, lists[i]), item, name;

		while (str_cut(&list, ',', &item)) {
			item = str_trim(item);
			if (!str_cut(&item, '=', &name) || !str_ieq(name, "sha-256"))
				continue;
			if (item.n > 2 && item.p[0] == ':' && item.p[item.n - 1] == ':')
				item = str_n(item.p + 1, item.n - 2);
			if (sha256_of_base64(item, out))
				return true;
		}
	}
	return false;
}

static void learn_etag(struct facts *f, const struct http_reply *reply)
{
	bool weak = false;
	struct str etag = source_etag(http_header_of(reply, "ETag"), &weak);
	struct str date = http_header_of(reply, "Last-Modified");

	if (etag.n > 0)
		(void)snprintf(f->etag, sizeof(f->etag), "%s%.*s", weak ? "W/" : "",
		               (int)MIN(etag.n, (size_t)160), etag.p);
	else if (date.n > 0)
		(void)snprintf(f->etag, sizeof(f->etag), "W/%.*s", (int)MIN(date.n, (size_t)80),
		               date.p);
}

/* Looks at the head of an answer to HEAD, or to GET with bytes=0-0 (206, or 200 of all). */
static int learn(void *arg, const struct http_reply *reply, struct err *err)
{
	struct facts *f = FROM_VOID(struct facts, arg, FACTS_MAGIC);
	struct str coding = str_trim(http_header_of(reply, "Content-Encoding"));
	struct str total = http_header_of(reply, "Content-Range"), head;
	struct err ignored = {0};

	if (coding.n > 0 && !str_ieq(coding, "identity"))
		return err_set(err, ERR_CORRUPT,
		               "it is sent with Content-Encoding %.*s although identity was "
		               "requested for: "
		               "the server, or a proxy before it, must not compress files",
		               (int)MIN(coding.n, (size_t)40), coding.p);
	learn_etag(f, reply);
	f->has_sha256 = promised_sha256(reply, f->sha256);
	if (reply->status == 206 || total.n > 0) {
		f->has_size = str_cut(&total, '/', &head) &&
		              str_u64(total, 0, INT64_MAX, &f->size, &ignored) == 0;
		return 0;
	}
	f->has_size = reply->length >= 0;
	f->size = f->has_size ? (uint64_t)reply->length : 0;
	return 0;
}

/* The same, for a GET: a server that ignores bytes=0-0 shall not send the whole file. */
static int peek(void *arg, const struct http_reply *reply, struct err *err)
{
	struct facts *f = FROM_VOID(struct facts, arg, FACTS_MAGIC);

	if (learn(f, reply, err) < 0)
		return -1;
	f->peeked = true;
	return reply->status == 206 || http_header_of(reply, "Content-Range").n > 0
	               ? 0
	               : err_set(err, ERR_CANCELED, "seen enough");
}

static int ask(struct https *h, struct facts *f, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {
		.magic = SOURCE_RQ_MAGIC, .method = HTTP_HEAD, .url = h->url, .auth = h->auth};
	struct source_rq get = {.magic = SOURCE_RQ_MAGIC,
	                        .method = HTTP_GET,
	                        .url = h->url,
	                        .auth = h->auth,
	                        .head = peek,
	                        .arg = f,
	                        .header = {{"Range", "bytes=0-0"}},
	                        .n_headers = 1};
	int r = source_http_retry(&h->base, &rq, &reply, err);
	struct str linked = source_etag(str_of(rq.linked_etag), NULL);
	struct err ignored = {0};

	if (r == 0 && learn(f, &reply, err) < 0)
		return -1;
	if (r == 0 && !f->has_sha256 && linked.n == 2 * HASH_SHA256_LEN)
		f->has_sha256 = hex_decode(linked, f->sha256, HASH_SHA256_LEN, &ignored) == 0;
	if (r == 0 && f->has_size)
		return 0;
	/* URLs signed for GET refuse HEAD, and some servers know no HEAD at all. */
	if (r < 0 && reply.status != 400 && reply.status != 403 && reply.status != 405 &&
	    reply.status != 501)
		return -1;
	if (r < 0)
		err_clear(err);
	if (source_http_retry(&h->base, &get, &reply, err) < 0) {
		if (!f->peeked)
			return -1;
		err_clear(err);
	}
	if (!f->has_size)
		return err_set(err, ERR_UNSUPPORTED,
		               "the server does not report the file's length (no Content-Length). "
		               "Use a server that does");
	return 0;
}

static int https_list(struct source *s, struct arena *a UNUSED, const char *resolved UNUSED,
                      struct source_found *to, const char **revision UNUSED, struct err *err)
{
	struct https *h = (struct https *)s;
	struct facts f = {.magic = FACTS_MAGIC};

	if (ask(h, &f, err) < 0)
		return -1;
	return source_found(to, str_of(h->file), f.size, HASH_SHA256,
	                    f.has_sha256 ? f.sha256 : NULL, str_of(f.etag), err);
}

static int https_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                      const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	struct https *h = (struct https *)s;
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
	                       .method = HTTP_GET,
	                       .url = h->url,
	                       .auth = h->auth,
	                       .file = f,
	                       .first = first,
	                       .count = count,
	                       .pin_etag = true,
	                       .to = to,
	                       .cancel = cancel};

	return source_http(s, &rq, &reply, err);
}

const struct source_ops source_https_ops = {
	.scheme = "https",
	.form = "https://host/folder/file",
	.auth_advice = "set auth_secret_name to a secret with a token that may read it",
	.open = https_open,
	.check = https_check,
	.list = https_list,
	.read = https_read,
	.done = https_done,
};

const struct source_ops source_http_ops = {
	.scheme = "http",
	.form = "http://host/folder/file",
	.auth_advice = "set auth_secret_name to a secret with a token that may read it",
	.open = http_open,
	.check = https_check,
	.list = https_list,
	.read = https_read,
	.done = https_done,
};
