/* hubrepo.c - see hubrepo.h. */
#include "cli/hubrepo.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"

#define PAGES_MAX 10000
#define PAGE_MAX ((size_t)256 << 20)
#define TRIES 4
#define STALL_MS 120000 /* the server reads a commit to its end before it answers */
#define PIECE ((size_t)192 << 10)

/* ---- requests ------------------------------------------------------------------------------- */

static const char *api(struct cli *c, const char *id, const char *what)
{
	const char *slash = strchr(id, '/');

	assert(slash != NULL);
	return arena_printf(c->arena, "%s/api/models/%s/%s%s", c->url,
	                    remote_part(c, arena_strz(c->arena, str_n(id, (size_t)(slash - id)))),
	                    remote_part(c, slash + 1), what);
}

static int once(struct cli *c, struct http_call *call, struct http_reply *reply, struct err *err)
{
	const char *auth = arena_printf(c->arena, "Bearer %s", c->token);
	struct http_header headers[3] = {{"Authorization", auth}};

	assert(call->n_headers <= 2);
	for (size_t i = 0; i < call->n_headers; i++)
		headers[i + 1] = call->headers[i];
	call->headers = headers;
	call->n_headers++;
	call->cancel = &interrupted;
	if (http_do(c->http, call, reply, err) < 0)
		return -1;
	return remote_expect(call, reply, err);
}

/* `again` begins anew what was half done; NULL: there is nothing to do. */
static int exchange(struct cli *c, const struct http_call *call, struct http_reply *reply,
                    int (*again)(void *arg, struct err *err), struct err *err)
{
	struct retry r = RETRY_INIT(TRIES);

	r.cancel = &interrupted;
	for (;;) {
		struct http_call copy = *call;

		if (once(c, &copy, reply, err) == 0)
			return 0;
		if (!remote_again(c, &r, TRIES, err))
			return remote_explain(c, err);
		http_reply_done(reply);
		memset(reply, 0, sizeof(*reply));
		if (again != NULL && again(call->arg, err) < 0)
			return -1;
	}
}

/* The address of `rel="next"`; NULL: there is no more. Only this server's is followed. */
static int next_page(struct cli *c, const struct http_reply *reply, const char **url,
                     struct err *err)
{
	struct str link = http_header_of(reply, "Link"), head;

	*url = NULL;
	if (link.n == 0 || strstr(arena_strz(c->arena, link), "rel=\"next\"") == NULL)
		return 0;
	link = str_skip(link, 1);
	if (!str_cut(&link, '>', &head) || !str_starts(head, arena_printf(c->arena, "%s/", c->url)))
		return err_set(err, ERR_CORRUPT, "the next page is at %.*s, which is not %s",
		               STR_ARG(head), c->url);
	*url = arena_strz(c->arena, head);
	return 0;
}

/* All pages of a list. */
static int each_item(struct cli *c, const char *url,
                     int (*fn)(void *arg, const struct doc *item, struct err *err), void *arg,
                     struct err *err)
{
	for (int page = 0; page < PAGES_MAX; page++) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		const struct http_call call = {
			.method = HTTP_GET, .url = url, .body_max = PAGE_MAX};
		const struct doc *list;

		if (exchange(c, &call, &reply, NULL, err) < 0)
			return -1;
		if (js_parse(c->arena, buf_view(&reply.body), &list, err) < 0)
			return err_wrap(err, "the reply of %s", c->url);
		DOC_EACH (item, list)
			if (fn(arg, item, err) < 0)
				return -1;
		if (next_page(c, &reply, &url, err) < 0)
			return -1;
		if (url == NULL)
			return 0;
	}
	return err_set(err, ERR_TOO_BIG, "the list has more than %d pages", PAGES_MAX);
}

int hubrepo_id(const char *word, const char **out, struct err *err)
{
	enum hub_type type;
	struct str id;

	if (strncmp(word, "models/", strlen("models/")) == 0)
		word += strlen("models/");
	if (!hub_typed_id(str_of(word), &type, &id) || type != HUB_MODELS ||
	    memchr(id.p, '/', id.n) == NULL)
		return err_set(err, ERR_USAGE,
		               "\"%.200s\" is not the name of a repository of caches: "
		               "OWNER/NAME",
		               word);
	*out = id.p;
	return 0;
}

bool hubrepo_is_missing(const struct err *err)
{
	return err->code == ERR_NOT_FOUND;
}

/* ---- what there is -------------------------------------------------------------------------- */

struct gathered {
	unsigned magic;
#define GATHERED_MAGIC 0x4c474154U
	struct cli *c;
	void *list;
	size_t n, cap;
};

static void *grow(struct gathered *g, size_t each)
{
	if (g->n == g->cap) {
		void *more;

		g->cap = MAX((size_t)256, g->cap * 2);
		more = arena_array(g->c->arena, g->cap, each);
		if (g->n > 0)
			memcpy(more, g->list, g->n * each);
		g->list = more;
	}
	return (char *)g->list + g->n++ * each;
}

static int take_item(void *arg, const struct doc *d, struct err *err)
{
	struct gathered *g = FROM_VOID(struct gathered, arg, GATHERED_MAGIC);
	const struct doc *lfs = doc_get(d, "lfs");
	struct hubrepo_item item = {
		.path = doc_cstr(doc_get(d, "path"), ""),
		.folder = strcmp(doc_cstr(doc_get(d, "type"), ""), "directory") == 0,
		.lfs = doc_is(lfs, DOC_MAP),
		.size = (uint64_t)MAX(doc_int(doc_get(d, "size"), 0), (int64_t)0),
	};

	if (hex_decode(doc_text(doc_get(d, "oid")), item.oid, sizeof(item.oid), err) < 0 ||
	    (item.lfs && digest_parse(doc_text(doc_get(lfs, "oid")), &item.sha256, err) < 0))
		return err_wrap(err, "%s", item.path);
	*(struct hubrepo_item *)grow(g, sizeof(item)) = item;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct hubrepo_item *)a)->path,
	              ((const struct hubrepo_item *)b)->path);
}

int hubrepo_tree(struct cli *c, const char *id, const char *rev, bool recursive,
                 struct hubrepo_tree *out, struct err *err)
{
	struct gathered g = {.magic = GATHERED_MAGIC, .c = c};
	const char *url;

	if (remote_login(c, err) < 0)
		return -1;
	url = api(c, id,
	          arena_printf(c->arena, "/tree/%s%s", remote_part(c, rev),
	                       recursive ? "?recursive=true" : ""));
	if (each_item(c, url, take_item, &g, err) < 0)
		return -1;
	*out = (struct hubrepo_tree){.item = g.list, .n = g.n};
	if (g.n > 0)
		qsort(out->item, out->n, sizeof(*out->item), by_path);
	return 0;
}

const struct hubrepo_item *hubrepo_find(const struct hubrepo_tree *t, const char *path)
{
	const struct hubrepo_item key = {.path = path};

	return t->n == 0 ? NULL : bsearch(&key, t->item, t->n, sizeof(*t->item), by_path);
}

static int take_commit(void *arg, const struct doc *d, struct err *err)
{
	struct gathered *g = FROM_VOID(struct gathered, arg, GATHERED_MAGIC);
	struct hubrepo_commit_info k = {.id = doc_cstr(doc_get(d, "id"), ""),
	                                .title = doc_cstr(doc_get(d, "title"), ""),
	                                .date = doc_cstr(doc_get(d, "date"), "")};

	if (clock_parse(str_of(k.date), &k.ms, err) < 0)
		return err_wrap(err, "commit %s", k.id);
	*(struct hubrepo_commit_info *)grow(g, sizeof(k)) = k;
	return 0;
}

int hubrepo_commits(struct cli *c, const char *id, struct hubrepo_commit_info **out, size_t *n,
                    struct err *err)
{
	struct gathered g = {.magic = GATHERED_MAGIC, .c = c};

	if (remote_login(c, err) < 0 ||
	    each_item(c, api(c, id, "/commits/main"), take_commit, &g, err) < 0)
		return -1;
	*out = g.list;
	*n = g.n;
	return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char *resolve_url(struct cli *c, const char *id, const char *rev, const char *path)
{
	AUTO_BUF struct buf b = BUF_INIT(URL_MAX);

	buf_printf(&b, "%s/", c->url);
	url_encode(str_of(id), true, &b);
	buf_printf(&b, "/resolve/%s/", remote_part(c, rev));
	url_encode(str_of(path), true, &b);
	return arena_cstr(c->arena, buf_cstr(&b));
}

int hubrepo_text(struct cli *c, const char *id, const char *rev, const char *path, struct str *out,
                 struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_call call = {.method = HTTP_GET,
	                         .body_max = HUBREPO_TEXT_MAX,
	                         .redirects_max = HTTP_REDIRECTS_MAX};

	if (remote_login(c, err) < 0)
		return -1;
	call.url = resolve_url(c, id, rev, path);
	if (exchange(c, &call, &reply, NULL, err) < 0)
		return -1;
	*out = arena_str(c->arena, buf_view(&reply.body));
	return 0;
}

struct fetch {
	unsigned magic;
#define FETCH_MAGIC 0x4c464554U
	int fd;
	struct hash *hash;
	const struct hubrepo_item *f;
	uint64_t got;
	void (*moved)(void *arg, size_t bytes);
	void *arg;
};

static int fetch_begin(void *arg, struct err *err)
{
	struct fetch *x = FROM_VOID(struct fetch, arg, FETCH_MAGIC);

	hash_free(x->hash);
	x->hash = x->f->lfs ? hash_new(HASH_SHA256) : hub_blob_begin(x->f->size);
	x->got = 0;
	if (ftruncate(x->fd, 0) < 0 || lseek(x->fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "writing %s", x->f->path);
	return 0;
}

static int fetch_piece(void *arg, const void *p, size_t n, struct err *err)
{
	struct fetch *x = FROM_VOID(struct fetch, arg, FETCH_MAGIC);

	hash_add(x->hash, p, n);
	x->got += n;
	if (x->got > x->f->size)
		return err_set(err, ERR_CORRUPT, "%s is longer than %" PRIu64 " bytes", x->f->path,
		               x->f->size);
	if (x->moved != NULL)
		x->moved(x->arg, n);
	return fs_write_all(x->fd, p, n, err);
}

static int fetch_check(struct fetch *x, struct err *err)
{
	struct digest d;
	uint8_t oid[HUB_OID_LEN];
	bool same;

	if (x->f->lfs) {
		(void)hash_end(x->hash, d.b);
		same = digest_same(&d, &x->f->sha256);
	} else {
		hub_blob_end(x->hash, oid);
		same = memcmp(oid, x->f->oid, sizeof(oid)) == 0;
	}
	if (x->got != x->f->size || !same)
		return err_set(err, ERR_CORRUPT,
		               "what came of %s is not what the repository lists: its digest "
		               "differs",
		               x->f->path);
	return 0;
}

int hubrepo_fetch(struct cli *c, const char *id, const char *rev, const struct hubrepo_item *f,
                  int fd, void (*moved)(void *arg, size_t bytes), void *arg, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct fetch x = {.magic = FETCH_MAGIC, .fd = fd, .f = f, .moved = moved, .arg = arg};
	struct http_call call = {.method = HTTP_GET,
	                         .sink = fetch_piece,
	                         .arg = &x,
	                         .redirects_max = HTTP_REDIRECTS_MAX};
	int rc;

	if (remote_login(c, err) < 0 || fetch_begin(&x, err) < 0)
		return -1;
	call.url = resolve_url(c, id, rev, f->path);
	rc = exchange(c, &call, &reply, fetch_begin, err);
	if (rc == 0)
		rc = fetch_check(&x, err);
	hash_free(x.hash);
	return rc;
}

/* ---- changes -------------------------------------------------------------------------------- */

int hubrepo_create(struct cli *c, const char *id, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)4096);
	const char *slash = strchr(id, '/');
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "name", slash + 1);
	js_kv_str(&js, "organization", str_n(id, (size_t)(slash - id)));
	js_kv(&js, "type", "model");
	js_kv_bool(&js, "private", true);
	js_close(&js);
	return remote_call(c, HTTP_POST, "/api/repos/create", &body, &reply, err);
}

static int flush(struct hubrepo_commit *k, struct err *err)
{
	if (buf_check(&k->out, "the commit", err) < 0 ||
	    fs_write_all(k->fd, k->out.p, k->out.n, err) < 0)
		return err_wrap(err, "keeping the commit");
	buf_clear(&k->out);
	return 0;
}

int hubrepo_commit_begin(struct hubrepo_commit *k, struct cli *c, const char *title,
                         const char *message, bool add_only, struct err *err)
{
	const char *dir = getenv("TMPDIR");
	char *name = arena_printf(c->arena, "%s/stoker-commit-XXXXXX",
	                          dir != NULL && dir[0] == '/' ? dir : "/tmp");

	k->c = c;
	k->bytes = 0;
	k->files = 0;
	if (k->fd < 0)
		k->fd = mkostemp(name, O_CLOEXEC);
	if (k->fd < 0)
		return err_errno(err, errno, "making %s", name);
	(void)unlink(name); /* of a second commit it is not there */
	if (ftruncate(k->fd, 0) < 0 || lseek(k->fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "keeping the commit");
	buf_clear(&k->out);
	k->w = (struct hub_commit_writer){.out = &k->out};
	hub_commit_write_header(&k->w, title, message, add_only);
	return 0;
}

int hubrepo_commit_add(struct hubrepo_commit *k, const char *path, struct str content,
                       struct err *err)
{
	k->bytes += content.n;
	k->files++;
	hub_commit_write_file(&k->w, path);
	while (content.n > 0) {
		struct str piece = str_n(content.p, MIN(content.n, PIECE));

		hub_commit_write_content(&k->w, piece.p, piece.n);
		if (flush(k, err) < 0)
			return -1;
		content = str_skip(content, piece.n);
	}
	hub_commit_write_end(&k->w);
	return flush(k, err);
}

int hubrepo_commit_delete(struct hubrepo_commit *k, const char *path, bool folder, struct err *err)
{
	k->files++;
	hub_commit_write_deleted(&k->w, path, folder);
	return flush(k, err);
}

static void show_sent(void *arg, uint64_t sent, uint64_t received UNUSED)
{
	const struct hubrepo_commit *k =
		FROM_VOID(struct hubrepo_commit, arg, HUBREPO_COMMIT_MAGIC);
	off_t all = lseek(k->fd, 0, SEEK_END);

	out_progress(k->c, "committing %s, %d%%", out_count(k->c, k->files, "file"),
	             all > 0 ? (int)(sent * 100 / (uint64_t)all) : 0);
}

int hubrepo_commit_send(struct hubrepo_commit *k, const char *id, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	const struct http_header type = {"Content-Type", "application/x-ndjson"};
	struct http_call call = {.method = HTTP_POST,
	                         .headers = &type,
	                         .n_headers = 1,
	                         .has_body_fd = true,
	                         .stall_ms = STALL_MS,
	                         .progress = show_sent,
	                         .arg = k};
	off_t all;
	int rc;

	if (flush(k, err) < 0)
		return -1;
	all = lseek(k->fd, 0, SEEK_END);
	if (all < 0)
		return err_errno(err, errno, "keeping the commit");
	call.body_fd = k->fd;
	call.body_len = (uint64_t)all;
	call.url = api(k->c, id, "/commit/main");
	rc = exchange(k->c, &call, &reply, NULL, err);
	out_progress_end(k->c);
	return rc;
}

void hubrepo_commit_done(struct hubrepo_commit *k)
{
	if (k->fd >= 0)
		(void)close(k->fd);
	buf_done(&k->out);
}
