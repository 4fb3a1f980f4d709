/*
 * hub_repo.c - what is in a repository: its description with the list of files, its tree in pages,
 * single paths, branches and tags, commits.
 */
#include "base/hash.h"
#include "core/manifest.h"
#include "face/hub_impl.h"

#define PAGE 1000
#define PAGE_EXPANDED 50
#define PATHS_MAX 10000
#define CURSOR_MAX ((size_t)64 << 10) /* a path, and it came in a head */
#define LINK_MAX ((size_t)256 << 10)
#define SKIP_MAX 1000000000 /* entries before a page */

int hub_send_json(struct request *rq, const struct buf *out, struct err *err)
{
	if (buf_check(out, "the answer", err) < 0)
		return -1;
	return reply_json(rq, 200, out);
}

/* The date that expanded entries have; NULL when it is not asked for. */
static int date_of(struct request *rq, const struct hub_listing *l, bool expand, const char **out,
                   struct err *err)
{
	const struct doc *about = NULL;

	*out = NULL;
	if (expand && hub_about(rq, l, &about, err) < 0)
		return -1;
	*out = hub_date(about);
	return 0;
}

/* ---- description --------------------------------------------------------------------------- */

static int send_info(struct request *rq, const struct hub_listing *l, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	const struct doc *about = NULL;
	struct js js;

	if (hub_about(rq, l, &about, err) < 0)
		return -1;
	js_init(&js, &out);
	hub_js_info(&js, l, about, hub_flag(rq, "blobs"));
	return hub_send_json(rq, &out, err);
}

int hub_get_info(struct request *rq, struct err *err)
{
	return hub_with(rq, send_info, err);
}

static int send_commits(struct request *rq, const struct hub_listing *l, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	const struct doc *about = NULL;
	struct js js;

	if (hub_about(rq, l, &about, err) < 0)
		return -1;
	js_init(&js, &out);
	js_list(&js);
	hub_js_commit(&js, l, about);
	js_end(&js);
	return hub_send_json(rq, &out, err);
}

int hub_skip(struct request *rq, size_t *out, struct err *err)
{
	int64_t skip = request_query_int(rq, "p", 0, err);

	if (err->code != ERR_NONE)
		return -1;
	if (skip > SKIP_MAX)
		return err_set(err, ERR_INVALID, "p: there is no such page");
	*out = (size_t)MAX(skip, (int64_t)0);
	return 0;
}

int hub_link_more(struct request *rq, size_t skip, size_t limit, struct err *err)
{
	AUTO_BUF struct buf link = BUF_INIT(LINK_MAX);

	buf_printf(&link, "<%s%.*s?p=%zu", face_url(rq), STR_ARG(rq->path), skip);
	if (limit > 0)
		buf_printf(&link, "&limit=%zu", limit);
	buf_puts(&link, ">; rel=\"next\"");
	if (buf_check(&link, "the address of the next page", err) < 0)
		return -1;
	reply_header(rq, "Link", buf_cstr(&link));
	return 0;
}

/* Of our own all commits are known, of another Hub's the one that is asked for. */
int hub_get_commits(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	const struct repo_ops *ops = face_ctx(rq)->ops->repos;
	struct model_repo_commit *c = NULL;
	int64_t limit = request_query_int(rq, "limit", 0, err);
	struct hub_name name = {0};
	bool more = false;
	uint64_t total = 0;
	struct js js;
	size_t n = 0, skip = 0, most = limit > 0 ? (size_t)MIN(limit, PAGE) : PAGE;

	if (err->code != ERR_NONE || hub_skip(rq, &skip, err) < 0 ||
	    hub_name_of(rq, &name, err) < 0)
		return -1;
	if (ops == NULL || ops->commits(face_ask(rq), &name, skip, most, &c, &n, &more,
	                                skip == 0 ? &total : NULL, err) < 0) {
		if (ops != NULL && err->id != ERR_HUB_REPO_NOT_FOUND)
			return -1;
		err_clear(err);
		return hub_with(rq, send_commits, err);
	}
	js_init(&js, &out);
	js_list(&js);
	for (size_t i = 0; i < n; i++)
		hub_js_own_commit(&js, &c[i]);
	js_end(&js);
	if (more && hub_link_more(rq, skip + n, limit > 0 ? most : 0, err) < 0)
		return -1;
	if (skip == 0)
		reply_header(rq, "X-Total-Count", arena_printf(rq->arena, "%" PRIu64, total));
	return hub_send_json(rq, &out, err);
}

/* ---- tree ---------------------------------------------------------------------------------- */

/* Files and folders are two sorted lists: a page is a merge of them. */
struct side {
	const struct hub_listing *l;
	bool folders;
	size_t i, n; /* what comes next, of how many */
};

struct walk {
	struct side file, folder;
	struct str under; /* "" or with a slash at its end */
	bool recursive;
	size_t limit;
	struct arena *a;
};

static const char *side_path(const struct side *s, size_t i)
{
	return s->folders ? s->l->folder[i].path : s->l->file[i].path;
}

/* The first from `i` on that is not before `key`. */
static size_t side_find(const struct side *s, size_t i, const char *key)
{
	size_t end = s->n;

	while (i < end) {
		size_t middle = i + (end - i) / 2;

		if (strcmp(side_path(s, middle), key) < 0)
			i = middle + 1;
		else
			end = middle;
	}
	return i;
}

static void side_start(struct side *s, const char *under, const char *cursor)
{
	s->n = s->folders ? s->l->n_folders : s->l->n;
	s->i = side_find(s, 0, under);
	if (cursor == NULL)
		return;
	s->i = side_find(s, s->i, cursor);
	if (s->i < s->n && strcmp(side_path(s, s->i), cursor) == 0)
		s->i++;
}

/* The next one that belongs to the page, NULL: none. All of a deeper folder is skipped at once, so
 * that listing one folder costs what is in it. */
static const char *side_next(const struct walk *w, struct side *s)
{
	while (s->i < s->n) {
		const char *path = side_path(s, s->i), *slash;

		if (strncmp(path, w->under.p, w->under.n) != 0)
			return NULL;
		slash = strchr(path + w->under.n, '/');
		if (w->recursive || slash == NULL)
			return path;
		/* '0' is what follows '/' */
		s->i = side_find(s, s->i, arena_printf(w->a, "%.*s0", (int)(slash - path), path));
	}
	return NULL;
}

/* A page; *last is its last path when there is more. */
static void write_page(struct walk *w, struct js *js, const char *date, const char **last)
{
	const char *at = NULL;

	*last = NULL;
	js_list(js);
	for (size_t n = 0;; n++) {
		const char *file = side_next(w, &w->file), *folder = side_next(w, &w->folder);
		bool is_file = folder == NULL || (file != NULL && strcmp(file, folder) < 0);

		if (file == NULL && folder == NULL)
			break;
		if (n == w->limit) {
			*last = at;
			break;
		}
		at = is_file ? file : folder;
		if (is_file)
			hub_js_file(js, w->file.l, &w->file.l->file[w->file.i++], date);
		else
			hub_js_folder(js, w->folder.l, &w->folder.l->folder[w->folder.i++], date);
	}
	js_end(js);
}

static int read_cursor(struct request *rq, struct str under, const char **out, struct err *err)
{
	AUTO_BUF struct buf path = BUF_INIT(CURSOR_MAX);
	struct err ignored = {0};
	struct str text;

	if (!request_query(rq, "cursor", &text) || text.n == 0)
		return 0;
	if (base64_decode(text, true, &path, &ignored) < 0 || path.full ||
	    memchr(buf_cstr(&path), '\0', path.n) != NULL || !manifest_path_ok(buf_view(&path)) ||
	    !str_starts(buf_view(&path), under.p))
		return err_set(err, ERR_INVALID, "the cursor is not one of this listing");
	*out = arena_cstr(rq->arena, buf_cstr(&path));
	return 0;
}

/* The same request with another cursor, at the address that the client used. */
static int link_next(struct request *rq, const char *last, struct err *err)
{
	AUTO_BUF struct buf link = BUF_INIT(LINK_MAX);
	struct str query = rq->query, name, value;

	buf_printf(&link, "<%s%.*s?", face_url(rq), STR_ARG(rq->path));
	while (url_query_next(&query, &name, &value)) {
		if (!str_eq(name, "cursor"))
			buf_printf(&link, "%.*s=%.*s&", STR_ARG(name), STR_ARG(value));
	}
	buf_puts(&link, "cursor=");
	base64_encode(last, strlen(last), true, &link);
	buf_puts(&link, ">; rel=\"next\"");
	if (buf_check(&link, "the address of the next page", err) < 0)
		return -1;
	reply_header(rq, "Link", buf_cstr(&link));
	return 0;
}

/* Slashes around a path mean nothing: clients send "folder%2F". */
static struct str plain(struct str path)
{
	while (path.n > 0 && path.p[0] == '/')
		path = str_skip(path, 1);
	while (path.n > 0 && path.p[path.n - 1] == '/')
		path.n--;
	return path;
}

static int send_tree(struct request *rq, const struct hub_listing *l, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	bool expand = hub_flag(rq, "expand");
	int64_t most = expand ? PAGE_EXPANDED : PAGE;
	struct str path = plain(hub_arg(rq, "path"));
	struct walk w = {.file.l = l, .folder = {.l = l, .folders = true}, .a = rq->arena};
	const char *cursor = NULL, *date = NULL, *last = NULL;
	int64_t limit = request_query_int(rq, "limit", most, err);
	struct js js;

	if (err->code != ERR_NONE)
		return -1;
	if (limit < 1)
		return err_set(err, ERR_INVALID, "parameter limit: %" PRId64 " is not positive",
		               limit);
	if (path.n > 0 && hub_listing_folder(l, path) == NULL)
		return hub_no_entry(l, path, err);
	w.under = path.n > 0 ? str_of(arena_printf(rq->arena, "%.*s/", STR_ARG(path))) : str_of("");
	w.recursive = hub_flag(rq, "recursive");
	w.limit = (size_t)MIN(limit, most);
	if (read_cursor(rq, w.under, &cursor, err) < 0 || date_of(rq, l, expand, &date, err) < 0)
		return -1;
	side_start(&w.file, w.under.p, cursor);
	side_start(&w.folder, w.under.p, cursor);
	js_init(&js, &out);
	write_page(&w, &js, date, &last);
	if (last != NULL && link_next(rq, last, err) < 0)
		return -1;
	return hub_send_json(rq, &out, err);
}

int hub_get_tree(struct request *rq, struct err *err)
{
	return hub_with(rq, send_tree, err);
}

/* ---- single paths -------------------------------------------------------------------------- */

struct asked {
	struct str *path;
	size_t n;
	bool expand;
};

static int ask_path(struct asked *q, struct str path, struct err *err)
{
	if (q->n == PATHS_MAX)
		return err_set(err, ERR_TOO_BIG, "paths: at most %d at once", PATHS_MAX);
	q->path[q->n++] = path;
	return 0;
}

/* A '+' of a form is a space, and only there. */
static int form_value(struct request *rq, struct str raw, struct str *out, struct err *err)
{
	char *text = arena_strz(rq->arena, raw);

	for (char *c = text; *c != '\0'; c++)
		*c = *c == '+' ? ' ' : *c;
	return url_decode(rq->arena, str_n(text, raw.n), out, err);
}

static int read_form(struct request *rq, struct str body, struct asked *q, struct err *err)
{
	struct str name, value, text;

	while (url_query_next(&body, &name, &value)) {
		if (form_value(rq, name, &name, err) < 0 || form_value(rq, value, &text, err) < 0)
			return err_wrap(err, "body");
		if (str_eq(name, "paths") && ask_path(q, text, err) < 0)
			return -1;
		if (str_eq(name, "expand"))
			q->expand = hub_is_true(text);
	}
	return 0;
}

static int read_object(struct request *rq, struct asked *q, struct err *err)
{
	const struct doc *d = NULL, *paths;

	if (request_json(rq, &d, err) < 0)
		return -1;
	paths = doc_get(d, "paths");
	if (!doc_is(paths, DOC_LIST))
		return err_set(err, ERR_INVALID, "paths: expected a list of texts");
	DOC_EACH (item, paths) {
		if (!doc_is(item, DOC_TEXT))
			return err_set(err, ERR_INVALID, "paths: expected a list of texts, not %s",
			               doc_kind_name(item->kind));
		if (ask_path(q, item->text, err) < 0)
			return -1;
	}
	q->expand = doc_bool(doc_get(d, "expand"), false);
	return 0;
}

static int read_asked(struct request *rq, struct asked *q, struct err *err)
{
	struct str type = request_header(rq, "Content-Type"), body;

	q->path = ARENA_ARRAY(rq->arena, struct str, PATHS_MAX);
	if (request_body(rq, &body, err) < 0)
		return -1;
	return str_starts(type, "application/json") ? read_object(rq, q, err)
	                                            : read_form(rq, body, q, err);
}

static int send_paths(struct request *rq, const struct hub_listing *l, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	const char *date = NULL;
	struct asked q = {0};
	struct js js;

	if (read_asked(rq, &q, err) < 0 || date_of(rq, l, q.expand, &date, err) < 0)
		return -1;
	js_init(&js, &out);
	js_list(&js);
	for (size_t i = 0; i < q.n; i++) {
		struct str path = plain(q.path[i]);
		const struct hub_file *f = path.n > 0 ? hub_listing_file(l, path) : NULL;
		const struct hub_folder *d = path.n > 0 ? hub_listing_folder(l, path) : NULL;

		if (f != NULL)
			hub_js_file(&js, l, f, date);
		else if (d != NULL)
			hub_js_folder(&js, l, d, date);
	}
	js_end(&js);
	return hub_send_json(rq, &out, err);
}

int hub_post_paths(struct request *rq, struct err *err)
{
	return hub_with(rq, send_paths, err);
}

/* ---- branches and tags --------------------------------------------------------------------- */

static void write_refs(struct js *js, const char *key, const char *folder,
                       const struct hub_branch *ref, size_t n)
{
	js_key(js, key);
	js_list(js);
	for (size_t i = 0; i < n; i++) {
		js_open(js);
		js_kv(js, "name", ref[i].name);
		js_key(js, "ref");
		js_fmt(js, "refs/%s/%s", folder, ref[i].name);
		js_kv(js, "targetCommit", ref[i].commit);
		js_close(js);
	}
	js_end(js);
}

int hub_get_refs(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(HUB_LISTING_MAX);
	const struct hub_refs *refs = NULL;
	const struct hub_ops *ops = NULL;
	struct hub_name name = {0};
	uint64_t channel, seq;
	struct js js;

	if (hub_name_of(rq, &name, err) < 0 || hub_ops_of(rq, &ops, err) < 0)
		return -1;
	name.rev = NULL;
	channel = hub_channel(&name);
	seq = httpd_channel_seq(request_httpd(rq), channel); /* before the look */
	if (ops->refs(face_ask(rq), &name, rq->wakes > 0, &refs, err) < 0)
		return hub_failed(err);
	if (refs == NULL)
		return hub_wait(rq, channel, seq, err);
	js_init(&js, &out);
	js_open(&js);
	write_refs(&js, "branches", "heads", refs->branch, refs->n_branches);
	write_refs(&js, "converts", "convert", NULL, 0);
	write_refs(&js, "tags", "tags", refs->tag, refs->n_tags);
	if (hub_flag(rq, "include_prs"))
		write_refs(&js, "pullRequests", "pr", refs->pull, refs->n_pulls);
	js_close(&js);
	return hub_send_json(rq, &out, err);
}
