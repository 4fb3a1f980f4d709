/*
 * source_keys.c - what a URL of a store names: all that is below a prefix, or one object. A store
 * has keys, not folders, so only a listing can tell which of the two it is.
 */
#include "store/sources/source_impl.h"

#include "store/objects/objstore.h"

static int found(const struct source_key *k, size_t skip, struct source_found *to, struct err *err)
{
	struct str path = str_skip(str_of(k->key), skip);

	if (k->encoded && source_wanted(to, path))
		return err_set(err, ERR_SOURCE_UNSUPPORTED,
		               "\"%.*s\" is stored with Content-Encoding %s, so what is sent is "
		               "not what was listed: store it without, or exclude it with "
		               "ignore_patterns",
		               (int)MIN(path.n, (size_t)200), path.p, k->encoded);
	return source_found(to, path, k->size, k->has_md5 ? HASH_MD5 : HASH_SHA256,
	                    k->has_md5 ? k->md5 : NULL, str_of(k->etag), err);
}

/* All pages below `prefix` ("" or ending with '/'). */
static int list_below(struct source *s, const struct source_keys *k, const char *prefix,
                      struct source_found *to, size_t *n, struct err *err)
{
	AUTO_FREE char *next = NULL;
	size_t skip = strlen(prefix);

	for (int page = 0; page < SOURCE_PAGES_MAX; page++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct source_page p = {0};

		if (k->page(s, a, prefix, next, &p, err) < 0)
			return -1;
		for (size_t i = 0; i < p.n; i++) {
			struct str key = str_of(p.key[i].key);

			if (!str_starts(key, prefix))
				return err_set(err, ERR_CORRUPT,
				               "it lists keys that were not requested");
			if (key.n == skip || str_ends(key, "/") || p.key[i].folder)
				continue;
			if (found(&p.key[i], skip, to, err) < 0)
				return -1;
			(*n)++;
		}
		if (p.next == NULL)
			return 0;
		free(next);
		next = xstrdup(p.next);
	}
	return err_set(err, ERR_CORRUPT, "its list of objects does not end");
}

static bool is_refusal(const struct err *err)
{
	return err->code == ERR_NOT_FOUND || err->code == ERR_DENIED || err->code == ERR_AUTH;
}

int source_keys_prefix(struct source_keys *k, struct arena *a, struct str rest, struct err *err)
{
	while (rest.n > 0 && rest.p[rest.n - 1] == '/')
		rest.n--;
	if (rest.n > OBJSTORE_KEY_MAX)
		return err_set(err, ERR_INVALID, "its path has %zu bytes: at most %d", rest.n,
		               OBJSTORE_KEY_MAX);
	k->prefix = arena_strz(a, rest);
	return 0;
}

void source_key_md5(struct source_key *k, struct str base64)
{
	AUTO_BUF struct buf md5 = BUF_INIT(64);
	struct err ignored = {0};

	k->has_md5 = base64_decode(base64, false, &md5, &ignored) == 0 && md5.n == sizeof(k->md5);
	if (k->has_md5)
		memcpy(k->md5, md5.p, md5.n);
}

int source_keys_list(struct source *s, struct arena *a, struct source_keys *k,
                     struct source_found *to, struct err *err)
{
	const char *below = k->prefix[0] != '\0' ? arena_printf(a, "%s/", k->prefix) : "";
	const char *slash = strrchr(k->prefix, '/');
	size_t base = slash != NULL ? (size_t)(slash + 1 - k->prefix) : 0;
	struct source_key object = {0};
	struct err cause = {0};
	size_t n = 0;
	int r;

	k->single = false;
	r = list_below(s, k, below, to, &n, err);
	if (n > 0 || k->prefix[0] == '\0' || (r < 0 && !is_refusal(err)))
		return r;
	/* Perhaps it is one object, which may be read by who may not list. */
	if (k->find(s, a, &object, &cause) < 0) {
		if (r < 0 || is_refusal(&cause))
			return r;
		*err = cause;
		return -1;
	}
	err_clear(err);
	k->single = true;
	return found(&object, base, to, err);
}

void source_keys_url(const struct source_keys *k, const struct source_file *f, bool keep_slash,
                     struct buf *url)
{
	url_encode(str_of(k->prefix), keep_slash, url);
	if (k->single)
		return;
	if (k->prefix[0] != '\0')
		url_encode(STR_LIT("/"), keep_slash, url);
	url_encode(str_of(f->path), keep_slash, url);
}

int source_keys_read(struct source *s, const struct source_keys *k, const struct buf *url,
                     const struct source_file *f, uint64_t first, uint64_t count,
                     const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
	                       .method = HTTP_GET,
	                       .url = buf_cstr(url),
	                       .no_redirect = true,
	                       .sign = k->sign,
	                       .file = f,
	                       .first = first,
	                       .count = count,
	                       .pin_etag = true,
	                       .pin_header = k->pin_header,
	                       .to = to,
	                       .cancel = cancel};

	if (buf_check(url, "the URL", err) < 0)
		return -1;
	return source_http(s, &rq, &reply, err);
}
