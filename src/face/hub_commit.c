/* hub_commit.c - what a client of a Hub sends to change a repository's files: it asks which of them
 * are known, and commits. */
#include "core/ignore.h"
#include "face/answer.h"
#include "face/hub_impl.h"

#define PIECE ((size_t)64 << 10)
#define REPLY_MAX ((size_t)64 << 20)
#define FILES_MAX 20000
#define IGNORE_MAX ((size_t)1 << 20)      /* of a .gitignore */
#define IGNORE_WORK ((uint64_t)150000000) /* characters compared: some tenths of a second */

/* ---- before: which files are known --------------------------------------------------------- */

/* datasets deletes a shard as soon as it was uploaded, and so it cannot be part of a commit. */
static bool is_large(const struct request *rq, const char *path, int64_t size)
{
	return size > 0 && (str_ends(str_of(path), ".parquet") ||
	                    (uint64_t)size > face_ctx(rq)->hub_regular_bytes);
}

/* A compile cache of optimum-neuron is pushed as it is on disk. The log of a compilation that
 * failed would make it fail for everybody who has it from here, and a lock would make them wait. */
static bool is_left_out(const char *path)
{
	struct str rest = str_of(path), part;
	bool entry = false;

	while (str_cut(&rest, '/', &part)) {
		if (rest.n == 0)
			return entry && (str_eq(part, "model.log") || str_ends(part, ".lock"));
		entry = entry || str_starts(part, "MODULE_");
	}
	return false;
}

/* In the form that the client compares with: it leaves out what is there already. */
static void js_known(const struct request *rq, struct js *js, const struct hub_listing *l,
                     const char *path, bool large)
{
	const struct hub_file *f = hub_listing_file(l, str_of(path));
	char etag[HUB_ETAG_CAP];

	if (f == NULL || f->lfs != large || !face_ctx(rq)->ops->repos->has(face_ctx(rq)->app, l, f))
		return;
	hub_etag(f, etag);
	js_kv(js, "oid", etag);
}

/* What the client says, or else the .gitignore of the repository. A client asks whether a file is
 * to be left out, and leaves it out itself. */
static int read_ignore(struct request *rq, const struct hub_listing *l, const struct doc *body,
                       const struct ignore **out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(IGNORE_MAX);
	const struct hub_file *f = hub_listing_file(l, STR_LIT(".gitignore"));
	const struct face_ctx *ctx = face_ctx(rq);
	const char *said = NULL;

	*out = NULL;
	if (body_text(body, "gitIgnore", false, &said, err) < 0)
		return -1;
	if (said != NULL) {
		*out = ignore_parse(rq->arena, str_of(said));
		return 0;
	}
	if (f == NULL || f->lfs || f->size > IGNORE_MAX)
		return 0;
	if (ctx->ops->repos->read_file(ctx->app, l, f, &text, err) < 0)
		return -1;
	*out = ignore_parse(rq->arena, buf_view(&text));
	return 0;
}

struct large { /* files that are asked about */
	uint64_t size[FILES_MAX];
	size_t n;
};

static int answer_files(struct request *rq, const struct hub_listing *l, const struct doc *body,
                        struct js *js, struct large *bring, struct err *err)
{
	const struct doc *files = doc_get(body, "files");
	const struct ignore *ignore = NULL;
	uint64_t work = IGNORE_WORK;
	size_t n = 0;

	if (read_ignore(rq, l, body, &ignore, err) < 0)
		return -1;
	DOC_EACH (item, files) {
		const char *path = NULL;
		int64_t size = 0;
		bool large, out;

		if (++n > FILES_MAX)
			return err_set(err, ERR_TOO_BIG, "files: at most %d at once", FILES_MAX);
		if (body_text(item, "path", true, &path, err) < 0 ||
		    body_int(item, "size", 0, INT64_MAX, &size, err) < 0)
			return err_wrap(err, "files");
		large = is_large(rq, path, size);
		out = ignore != NULL && ignore_match(ignore, path, false, &work);
		if (work == 0)
			return err_set(err, ERR_TOO_BIG,
			               "the .gitignore takes too long to apply to so many files");
		out = out || is_left_out(path);
		if (large && !out)
			bring->size[bring->n++] = (uint64_t)size;
		js_open(js);
		js_kv(js, "path", path);
		js_kv(js, "uploadMode", large ? "lfs" : "regular");
		js_kv_bool(js, "shouldIgnore", out);
		js_known(rq, js, l, path, large);
		js_close(js);
	}
	return 0;
}

int hub_post_preupload(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	const struct face_ctx *ctx = face_ctx(rq);
	const struct hub_listing *l = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct hub_name name = {0};
	struct large *bring = ARENA_NEW(rq->arena, struct large);
	struct js js;
	int rc;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    body_read(rq, false, &body, err) < 0)
		return -1;
	if (!doc_is(doc_get(body, "files"), DOC_LIST))
		return err_set(err, ERR_INVALID, "files: expected a list");
	if (ops->open_to_write(face_ask(rq), &name, hub_flag(rq, "create_pr"), &l, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_key(&js, "files");
	js_list(&js);
	rc = answer_files(rq, l, body, &js, bring, err);
	ctx->ops->hub->close(ctx->app, l);
	js_end(&js);
	js_close(&js);
	/* Here the client shows what is said; when it sends by Xet, only the number of an error. */
	if (rc < 0 || ops->upload_fits(face_ask(rq), &name, bring->size, bring->n, err) < 0)
		return -1;
	return hub_send_json(rq, &out, err);
}

/* ---- the commit ---------------------------------------------------------------------------- */

static int feed(struct request *rq, struct repo_change *c, struct err *err)
{
	const struct hub_commit_sink sink = face_ctx(rq)->ops->repos->commit_sink(c);
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *r = hub_commit_reader_new(&sink);
	AUTO_FREE char *piece = xmalloc(PIECE);
	size_t n;

	for (;;) {
		if (request_read(rq, piece, PIECE, &n, err) < 0)
			return -1;
		if (n == 0)
			return hub_commit_end(r, err);
		if (hub_commit_feed(r, piece, n, err) < 0)
			return -1;
	}
}

static int send_commit(struct request *rq, const struct hub_name *name,
                       const struct repo_committed *done, struct err *err)
{
	const char *url = hub_repo_url(rq, name->type, name->id);
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv_bool(&js, "success", true);
	js_key(&js, "commitUrl");
	js_fmt(&js, "%s/commit/%s", url, done->commit);
	js_kv(&js, "commitOid", done->commit);
	js_kv(&js, "hookOutput", "");
	if (done->files_there > 0) {
		js_kv_u64(&js, "filesThere", done->files_there);
		js_kv_u64(&js, "bytesThere", done->bytes_there);
	}
	if (done->pull > 0) {
		js_key(&js, "pullRequestUrl");
		js_fmt(&js, "%s/discussions/%" PRId64, url, done->pull);
	}
	js_close(&js);
	return hub_send_json(rq, &out, err);
}

int hub_post_commit(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	struct repo_change *c = NULL;
	struct hub_name name = {0};
	struct repo_committed done;
	int rc;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    ops->commit_begin(face_ask(rq), &name, hub_flag(rq, "create_pr"), rq->body_len, &c,
	                      err) < 0)
		return -1;
	rc = feed(rq, c, err);
	if (rc == 0)
		rc = ops->commit_end(c, &done, err);
	ops->commit_free(c);
	return rc < 0 ? -1 : send_commit(rq, &name, &done, err);
}
