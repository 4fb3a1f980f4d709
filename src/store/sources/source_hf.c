/*
 * source_hf.c - hf://[datasets/|spaces/]owner/repo[@revision][/folder] from any Hub endpoint.
 *
 * The protocol (Hub API, huggingface_hub 2.x as reference): `revision/` gives the commit, `tree/`
 * its files in pages named by Link, `resolve/` the bytes, mostly by a redirect to a signed URL of
 * another host that lives an hour. That URL is kept for the ranges of one file and asked for anew
 * when it is refused. Git-LFS files carry their SHA-256, others git's blob id.
 */
#include "store/sources/source_impl.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/map.h"
#include "core/hub.h"

#include "base/sync.h"

#define ABOUT_MAX ((size_t)4 << 20)
#define ENDPOINT_DEFAULT "https://huggingface.co"

struct hf {
	struct source base;
	const char *endpoint; /* without '/' at its end */
	const char *kind;     /* "models", "datasets", "spaces" */
	const char *prefix;   /* of resolve URLs: "", "datasets/", "spaces/" */
	const char *id;       /* owner/repo */
	const char *rev;      /* decoded */
	const char *folder;   /* "" = all */
	char *auth;           /* "Bearer ...", NULL = anonymous; wiped at the end */
	char sha[HUB_COMMIT_HEX + 1];

	struct lock lock;       /* guards signed_url */
	struct map *signed_url; /* path -> where it was redirected to; char *, owned */
};

/* --- the URL --------------------------------------------------------------------------------- */

static int not_a_repository(struct err *err)
{
	return err_set(err, ERR_INVALID,
	               "not a Hub repository: use hf://owner/repo, optionally followed by "
	               "@revision and /folder");
}

/* Cuts the revision off `rest`: refs/pr/N and refs/convert/NAME whole, others end at '/'. */
static struct str cut_revision(struct str *rest)
{
	static const char *const deep[] = {"refs/pr/", "refs/convert/"};
	struct str r = *rest;
	size_t at = 0;

	for (size_t i = 0; i < COUNT(deep); i++) {
		if (str_starts(r, deep[i]))
			at = strlen(deep[i]);
	}
	while (at < r.n && r.p[at] != '/')
		at++;
	*rest = str_skip(r, at);
	return str_n(r.p, at);
}

static bool parse_id(struct arena *a, struct str *rest, struct source_hf_name *out)
{
	struct str all = *rest, kind, id = {0};
	size_t slashes = 0;

	out->type = HUB_MODELS;
	if (str_cut(&all, '/', &kind) && all.n > 0 && hub_type_parse(kind, &out->type))
		*rest = all;
	id.p = rest->p;
	while (id.n < rest->n && rest->p[id.n] != '@') {
		if (rest->p[id.n] == '/' && ++slashes == 2)
			break;
		id.n++;
	}
	*rest = str_skip(*rest, id.n);
	out->id = arena_strz(a, id);
	return hub_id_ok(id);
}

int source_hf_name(struct arena *a, struct str url, struct source_hf_name *out, struct err *err)
{
	struct str rest = url, rev = STR_LIT("main");

	if (str_starts(rest, "hf://"))
		rest = str_skip(rest, strlen("hf://"));
	if (!parse_id(a, &rest, out))
		return not_a_repository(err);
	if (str_starts(rest, "@")) {
		rest = str_skip(rest, 1);
		rev = cut_revision(&rest);
		if (url_decode(a, rev, &rev, err) < 0)
			return err_wrap(err, "its revision");
		if (rev.n == 0 || rev.n > HUB_REV_MAX)
			return err_set(err, ERR_INVALID,
			               "after @ comes a branch, a tag or a commit of at most %d "
			               "characters",
			               HUB_REV_MAX);
	}
	out->rev = arena_strz(a, rev);
	if (str_starts(rest, "/"))
		rest = str_skip(rest, 1);
	while (rest.n > 0 && rest.p[rest.n - 1] == '/')
		rest.n--;
	if (rest.n > 0 && !fs_path_is_plain(rest))
		return err_set(err, ERR_INVALID, "\"%.*s\" is not a folder's path", STR_ARG(rest));
	out->folder = arena_strz(a, rest);
	return 0;
}

static int parse(struct hf *h, struct str rest, struct err *err)
{
	struct source_hf_name n = {0};

	if (source_hf_name(h->base.arena, rest, &n, err) < 0)
		return -1;
	/* Those of old have no owner: for who serves them, not for jobs. */
	if (strchr(n.id, '/') == NULL && !h->base.wants_about)
		return not_a_repository(err);
	h->kind = hub_type_word(n.type);
	h->prefix = hub_type_prefix(n.type);
	h->id = n.id;
	h->rev = n.rev;
	h->folder = n.folder;
	if (hub_commit_ok(str_of(n.rev))) /* it can be read without a listing */
		FMT(h->sha, "%s", n.rev);
	return 0;
}

static int hf_open(struct source **out, struct str rest, const struct source_options *o,
                   struct err *err)
{
	struct hf *h = source_new(o, sizeof(*h));
	const char *ep = o->endpoint != NULL ? o->endpoint : o->hf_endpoint;

	h->base.ops = &source_hf_ops;
	h->endpoint = source_endpoint(h->base.arena, ep != NULL ? ep : ENDPOINT_DEFAULT);
	h->signed_url = map_new();
	lock_init(&h->lock, LOCK_SOURCE_HF);
	if (source_bearer(&h->base, &h->auth, err) < 0 || parse(h, rest, err) < 0) {
		source_close(&h->base);
		return -1;
	}
	*out = &h->base;
	return 0;
}

static void free_url(struct str key UNUSED, void *value, void *arg UNUSED)
{
	free(value);
}

static void hf_done(struct source *s)
{
	struct hf *h = (struct hf *)s;

	if (h->auth != NULL)
		explicit_bzero(h->auth, strlen(h->auth));
	free(h->auth);
	map_each(h->signed_url, free_url, NULL);
	map_free(h->signed_url);
	lock_done(&h->lock);
}

/* --- what the Hub's refusals mean ------------------------------------------------------------ */

#define NO_REVISION                                                                                \
	"the repository has no such revision; check the part after @; a / in a branch's name "     \
	"is written %2F"

/* The Hub says what is wrong in X-Error-Code; the status alone is ambiguous. */
static int explain(struct hf *h, const struct http_reply *reply, struct err *err)
{
	static const struct {
		const char *word;
		enum source_refusal why;
		enum err_code code, anonymous; /* with a token, and without */
		const char *with_token, *without;
	} known[] = {
		{"RepoNotFound", SOURCE_NO_REPOSITORY, ERR_SOURCE_NOT_FOUND,
	         ERR_SOURCE_UNAUTHORIZED,
	         "there is no such repository, or the token of auth_secret_name may not read it",
	         "there is no such repository, or it is private. If it is private, set "
	         "auth_secret_name to a secret with a token that may read it"},
		{"GatedRepo", SOURCE_GATED, ERR_SOURCE_DENIED, ERR_SOURCE_UNAUTHORIZED,
	         "the repository is gated: its terms must be accepted on the Hub by the owner of "
	         "the token in auth_secret_name",
	         "the repository is gated: accept its terms on the Hub, then set auth_secret_name "
	         "to a secret with your token"},
		{"RevisionNotFound", SOURCE_NO_REVISION, ERR_SOURCE_NOT_FOUND, ERR_SOURCE_NOT_FOUND,
	         NO_REVISION, NO_REVISION},
		{"EntryNotFound", SOURCE_NO_ENTRY, ERR_SOURCE_NOT_FOUND, ERR_SOURCE_NOT_FOUND,
	         "the repository has no such folder or file at this revision",
	         "the repository has no such folder or file at this revision"},
	};
	struct str word = str_trim(http_header_of(reply, "X-Error-Code"));

	if (reply->status < 400)
		return -1;
	for (size_t i = 0; i < COUNT(known); i++) {
		if (!str_eq(word, known[i].word))
			continue;
		atomic_store(&h->base.refusal, known[i].why);
		err_become(err, h->auth != NULL ? known[i].code : known[i].anonymous);
		return err_wrap(err, "%s",
		                h->auth != NULL ? known[i].with_token : known[i].without);
	}
	return -1;
}

/* --- listing --------------------------------------------------------------------------------- */

/* The target of `<url>; rel="next"` in a Link header; empty when there is none. */
static struct str next_link(struct str h)
{
	struct str target, params;

	while (h.n > 0) {
		while (h.n > 0 && h.p[0] != '<')
			h = str_skip(h, 1);
		h = str_skip(h, 1);
		if (!str_cut(&h, '>', &target))
			break;
		params = h;
		params.n = 0;
		while (params.n < h.n && h.p[params.n] != '<')
			params.n++;
		if (memmem(params.p, params.n, "\"next\"", 6) != NULL ||
		    memmem(params.p, params.n, "rel=next", 8) != NULL)
			return target;
		h = str_skip(h, params.n);
	}
	return (struct str){0};
}

static int not_the_hub(const struct hf *h, struct err *err)
{
	err_become(err, ERR_SOURCE_BROKEN);
	return err_wrap(err, "the reply of %s is not from a Hub; check the endpoint", h->endpoint);
}

/* GET of JSON. *next is the following page's URL in `a`, or NULL. */
static int get_json(struct hf *h, struct arena *a, const char *url, const struct doc **doc,
                    char **next, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct source_rq rq = {
		.magic = SOURCE_RQ_MAGIC, .method = HTTP_GET, .url = url, .auth = h->auth};
	struct url home, there;
	struct str target;

	*next = NULL;
	/* A page may be named on another host: the token stays here. */
	if (url_parse(a, str_of(h->endpoint), &home, err) < 0 ||
	    url_parse(a, str_of(url), &there, err) < 0)
		return -1;
	if (!url_same_origin(&home, &there))
		rq.auth = NULL;
	if (source_http_retry(&h->base, &rq, &reply, err) < 0)
		return explain(h, &reply, err);
	if (js_parse(a, buf_view(&reply.body), doc, err) < 0)
		return not_the_hub(h, err);
	target = next_link(http_header_of(&reply, "Link"));
	return target.n > 0 ? source_url_join(a, url, target, next, err) : 0;
}

/* What the Hub says of the revision, but for the files: they are listed. */
static int keep_about(struct hf *h, struct arena *a, const struct doc *doc, struct err *err)
{
	AUTO_BUF struct buf b = BUF_INIT(ABOUT_MAX);
	struct js js;

	js_init(&js, &b);
	js_open(&js);
	DOC_EACH (x, doc) {
		if (str_eq(x->key, "siblings"))
			continue;
		js_key_str(&js, x->key);
		js_doc(&js, x);
	}
	js_close(&js);
	if (buf_check(&b, "what the Hub says of it", err) < 0)
		return -1;
	h->base.about = arena_cstr(a, buf_cstr(&b));
	return 0;
}

static int resolve(struct hf *h, struct arena *a, const char *resolved, struct err *err)
{
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	const struct doc *doc;
	struct str sha = str_of(resolved);
	char *next;

	if (resolved == NULL) {
		buf_printf(&url, "%s/api/%s/%s/revision/", h->endpoint, h->kind, h->id);
		url_encode(str_of(h->rev), false, &url);
		if (buf_check(&url, "the URL", err) < 0 ||
		    get_json(h, a, buf_cstr(&url), &doc, &next, err) < 0)
			return err_wrap(err, "revision %s", h->rev);
		sha = doc_text(doc_get(doc, "sha"));
		if (h->base.wants_about && keep_about(h, a, doc, err) < 0)
			return -1;
		if (!hub_commit_ok(sha))
			return err_set(err, ERR_CORRUPT,
			               "%s answered without a commit (\"sha\"): is it a Hub? check "
			               "the endpoint",
			               h->endpoint);
	} else if (!hub_commit_ok(sha)) {
		return err_set(err, ERR_INVALID, "\"%s\" is not a commit of 40 hex digits",
		               resolved);
	}
	FMT(h->sha, "%.*s", STR_ARG(sha));
	return 0;
}

static int found_item(struct hf *h, const struct doc *item, struct source_found *to,
                      struct err *err)
{
	const struct doc *lfs = doc_get(item, "lfs");
	struct str path = doc_text(doc_get(item, "path"));
	struct str oid = doc_text(doc_get(doc_is(lfs, DOC_MAP) ? lfs : item, "oid"));
	int64_t size = doc_int(doc_get(item, "size"), -1);
	enum hash_kind kind = doc_is(lfs, DOC_MAP) ? HASH_SHA256 : HASH_SHA1;
	uint8_t id[HASH_SHA256_LEN];

	if (!str_eq(doc_text(doc_get(item, "type")), "file"))
		return 0;
	if (kind == HASH_SHA256)
		size = doc_int(doc_get(lfs, "size"), size);
	if (str_starts(oid, "sha256:"))
		oid = str_skip(oid, 7);
	if (path.n == 0 || size < 0 ||
	    hex_decode(oid, id, kind == HASH_SHA256 ? 32 : 20, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_CORRUPT, "%s lists \"%.*s\" without a size or a usable oid",
		               h->endpoint, (int)MIN(path.n, (size_t)300), path.p);
	}
	if (h->folder[0] != '\0') {
		size_t n = strlen(h->folder);

		if (!str_starts(path, h->folder) || path.n <= n + 1 || path.p[n] != '/')
			return 0;
		path = str_skip(path, n + 1);
	}
	return source_found(to, path, (uint64_t)size, kind, id, (struct str){0}, err);
}

static int hf_list(struct source *s, struct arena *a, const char *resolved, struct source_found *to,
                   const char **revision, struct err *err)
{
	struct hf *h = (struct hf *)s;
	AUTO_BUF struct buf first = BUF_INIT(URL_MAX);
	char *url;

	if (resolve(h, a, resolved, err) < 0)
		return -1;
	buf_printf(&first, "%s/api/%s/%s/tree/%s", h->endpoint, h->kind, h->id, h->sha);
	if (h->folder[0] != '\0')
		buf_putc(&first, '/');
	url_encode(str_of(h->folder), true, &first);
	buf_puts(&first, "?recursive=true&expand=false");
	if (buf_check(&first, "the URL", err) < 0)
		return -1;
	url = arena_cstr(a, buf_cstr(&first));
	for (int page = 0; url != NULL; page++) {
		AUTO_ARENA struct arena *page_arena = arena_new();
		const struct doc *list;
		char *next;

		if (page == SOURCE_PAGES_MAX)
			return err_set(err, ERR_CORRUPT, "its list of files does not end");
		if (get_json(h, page_arena, url, &list, &next, err) < 0)
			return -1;
		if (!doc_is(list, DOC_LIST))
			return err_set(err, ERR_CORRUPT,
			               "%s answered without a list of files: check the endpoint",
			               h->endpoint);
		DOC_EACH (item, list) {
			if (found_item(h, item, to, err) < 0)
				return -1;
		}
		if (next != NULL && strcmp(next, url) == 0)
			return err_set(err, ERR_CORRUPT, "its list of files does not end");
		url = arena_cstr(a, next);
	}
	*revision = arena_cstr(a, h->sha);
	return 0;
}

static int hf_resolve(struct source *s, struct arena *a, const char **revision, struct err *err)
{
	struct hf *h = (struct hf *)s;

	if (resolve(h, a, NULL, err) < 0)
		return -1;
	*revision = arena_cstr(a, h->sha);
	return 0;
}

static int hf_refs(struct source *s, struct arena *a, const struct doc **out, struct err *err)
{
	struct hf *h = (struct hf *)s;
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	char *next;

	buf_printf(&url, "%s/api/%s/%s/refs", h->endpoint, h->kind, h->id);
	if (buf_check(&url, "the URL", err) < 0)
		return -1;
	return get_json(h, a, buf_cstr(&url), out, &next, err);
}

/* --- reading --------------------------------------------------------------------------------- */

static char *signed_url_get(struct hf *h, const char *path)
{
	char *url;

	lock_take(&h->lock);
	url = map_get(h->signed_url, str_of(path));
	url = url != NULL ? xstrdup(url) : NULL;
	lock_give(&h->lock);
	return url;
}

/* url NULL forgets. */
static void signed_url_set(struct hf *h, const char *path, const char *url)
{
	lock_take(&h->lock);
	if (url != NULL)
		free(map_set(h->signed_url, str_of(path), xstrdup(url)));
	else
		free(map_del(h->signed_url, str_of(path)));
	lock_give(&h->lock);
}

static int resolve_url(const struct hf *h, const char *path, struct buf *url, struct err *err)
{
	assert(h->sha[0] != '\0'); /* listed before, or opened at a commit */
	buf_printf(url, "%s/%s%s/resolve/%s/%s%s", h->endpoint, h->prefix, h->id, h->sha, h->folder,
	           h->folder[0] != '\0' ? "/" : "");
	url_encode(str_of(path), true, url);
	return buf_check(url, "the URL", err);
}

/* At a Hub that has no auth-check. Another host, to which it redirects, need not be asked; but at
 * home a redirect may be that of a new name, which says nothing yet. */
static int admits_file(struct hf *h, const char *path, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf first = BUF_INIT(URL_MAX);
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
	                       .method = HTTP_HEAD,
	                       .auth = h->auth,
	                       .no_redirect = true};
	struct url home, there;
	const char *url;
	char *next;

	if (resolve_url(h, path, &first, err) < 0 ||
	    url_parse(a, str_of(h->endpoint), &home, err) < 0)
		return -1;
	url = buf_cstr(&first);
	for (int hop = 0; hop <= HTTP_REDIRECTS_MAX; hop++) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct str to;

		rq.url = url;
		if (source_http_retry(&h->base, &rq, &reply, err) == 0)
			return 0;
		to = http_header_of(&reply, "Location");
		if (reply.status / 100 != 3 || to.n == 0)
			return explain(h, &reply, err);
		err_clear(err);
		if (source_url_join(a, url, to, &next, err) < 0 ||
		    url_parse(a, str_of(next), &there, err) < 0)
			return -1;
		url = next;
		if (!url_same_origin(&home, &there))
			return 0;
	}
	return err_set(err, ERR_SOURCE_REDIRECT_DENIED, "redirect loop at %s", h->endpoint);
}

/* A file is no answer: a Hub shows some of a gated repository, its README.md, to everybody. */
static int hf_admits(struct source *s, const char *path, struct err *err)
{
	struct hf *h = (struct hf *)s;
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC, .method = HTTP_GET, .auth = h->auth};

	buf_printf(&url, "%s/api/%s/%s/auth-check", h->endpoint, h->kind, h->id);
	if (buf_check(&url, "the URL", err) < 0)
		return -1;
	rq.url = buf_cstr(&url);
	if (source_http_retry(s, &rq, &reply, err) == 0)
		return 0;
	if (reply.status != 404 || http_header_of(&reply, "X-Error-Code").n > 0)
		return explain(h, &reply, err);
	err_clear(err);
	return admits_file(h, path, err);
}

static int hf_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                   const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	struct hf *h = (struct hf *)s;
	bool whole = first == 0 && count == f->size;
	AUTO_FREE char *known = whole ? NULL : signed_url_get(h, f->path);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_BUF struct buf url = BUF_INIT(URL_MAX);
	struct source_rq rq = {.magic = SOURCE_RQ_MAGIC,
	                       .method = HTTP_GET,
	                       .file = f,
	                       .first = first,
	                       .count = count,
	                       .to = to,
	                       .cancel = cancel};

	if (known != NULL) {
		rq.url = known;
		if (source_http(s, &rq, &reply, err) == 0)
			return 0;
		/* Signed URLs live about an hour: refused means that it is time for a new one. */
		if (reply.status != 401 && reply.status != 403 && reply.status != 404 &&
		    reply.status != 410)
			return -1;
		err_clear(err);
		signed_url_set(h, f->path, NULL);
	}
	if (resolve_url(h, f->path, &url, err) < 0)
		return -1;
	rq.url = buf_cstr(&url);
	rq.auth = h->auth;
	if (source_http(s, &rq, &reply, err) < 0) {
		/* A storage host that refuses what was signed a moment ago: the next one is good.
		 */
		if ((reply.status != 401 && reply.status != 403) || reply.url == NULL ||
		    strcmp(reply.url, rq.url) == 0)
			return explain(h, &reply, err);
		err_clear(err);
		http_reply_done(&reply);
		reply = (struct http_reply){0};
		if (source_http(s, &rq, &reply, err) < 0)
			return explain(h, &reply, err);
	}
	if (whole || first + count == f->size)
		signed_url_set(h, f->path, NULL);
	else if (reply.url != NULL && strcmp(reply.url, rq.url) != 0)
		signed_url_set(h, f->path, reply.url);
	return 0;
}

const struct source_ops source_hf_ops = {
	.scheme = "hf",
	.form = "hf://owner/repo[@revision][/folder]",
	.auth_advice = "set auth_secret_name to a secret with a Hub token that may read it",
	.open = hf_open,
	.list = hf_list,
	.resolve = hf_resolve,
	.admits = hf_admits,
	.refs = hf_refs,
	.read = hf_read,
	.done = hf_done,
};
