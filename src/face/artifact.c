/*
 * artifact.c - what compilers and build tools keep by their own protocols, below /artifact: plain
 * GET, HEAD, PUT and DELETE of a key, for ccache and Bazel; and what all of these protocols share.
 * A tool takes every status but 2xx for a miss and goes on, so each refusal says in words what is
 * wrong, for whoever reads its log.
 */
#include "face/artifact_impl.h"

#include "base/clock.h"
#include "base/json.h"
#include "face/handlers.h"
#include "face/show.h"

#define TYPE "application/octet-stream"
#define PROPFIND_MAX ((size_t)64 << 10) /* of a body that nobody reads */
#define ERROR_MAX (ERR_MSG_MAX * 16)
#define LIST_DEFAULT 100
#define LIST_MAX 1000

/* ---- shared -------------------------------------------------------------------------------- */

const char *artifact_namespace(const struct request *rq)
{
	return arena_strz(rq->arena, rq->arg[0]);
}

/* Content that is in memory, for a request of a part of it, or of its head. */
static int read_memory(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left UNUSED,
                       struct err *err UNUSED)
{
	const struct str *all = arg;

	assert(at <= all->n && n <= all->n - at);
	memcpy(to, all->p + at, n);
	return 0;
}

static int send_found(struct request *rq, const struct artifact_found *f, struct err *err)
{
	struct str *body = ARENA_NEW(rq->arena, struct str);
	const struct reply_source from = {.read = read_memory, .arg = body};

	*body = f->body;
	if (f->fd >= 0)
		return reply_file(rq, TYPE, f->fd, f->bytes, f->sha256);
	if (rq->method == HTTP_HEAD || request_header(rq, "range").n > 0 ||
	    request_header(rq, "if-none-match").n > 0)
		return reply_file_from(rq, TYPE, &from, f->bytes, f->sha256, err);
	reply_header(rq, "ETag", arena_printf(rq->arena, "\"%s\"", f->sha256));
	return reply_bytes(rq, 200, TYPE, f->body);
}

int artifact_send(struct request *rq, const struct artifact_name *name, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	char modified[CLOCK_HTTP_CAP];
	struct artifact_found f;

	if (ctx->ops->artifacts->get(face_ask(rq), artifact_namespace(rq), name,
	                             rq->method != HTTP_HEAD, &f, err) < 0)
		return -1;
	clock_http(f.created_ms, modified);
	reply_header(rq, "Last-Modified", modified);
	return send_found(rq, &f, err);
}

int artifact_store(struct request *rq, const struct artifact_name *name, uint64_t size,
                   const struct repo_bytes *from, bool *fresh, struct err *err)
{
	return face_ctx(rq)->ops->artifacts->put(face_ask(rq), artifact_namespace(rq), name, size,
	                                         from, fresh, err);
}

static int read_body(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	return request_read(arg, p, cap, n, err);
}

int artifact_store_body(struct request *rq, const struct artifact_name *name, bool *fresh,
                        struct err *err)
{
	const struct repo_bytes from = {read_body, rq};

	if (rq->body_len < 0)
		return err_set(err, ERR_LENGTH_REQUIRED,
		               "the body came in chunks: send it with its Content-Length");
	return artifact_store(rq, name, (uint64_t)rq->body_len, &from, fresh, err);
}

int artifact_delete(struct request *rq, const struct artifact_name *name, struct err *err)
{
	if (face_ctx(rq)->ops->artifacts->remove(face_ask(rq), artifact_namespace(rq), name, err) <
	    0)
		return -1;
	return artifact_done(rq, 204);
}

int artifact_done(struct request *rq, int status)
{
	return reply_bytes(rq, status, NULL, (struct str){0});
}

/* ---- ccache -------------------------------------------------------------------------------- */

static int ccache_get(struct request *rq, struct err *err)
{
	struct artifact_name name;

	return artifact_ccache_name(rq->arg[1], &name, err) < 0 ? -1
	                                                        : artifact_send(rq, &name, err);
}

static int ccache_put(struct request *rq, struct err *err)
{
	struct artifact_name name;
	bool fresh;

	if (artifact_ccache_name(rq->arg[1], &name, err) < 0 ||
	    artifact_store_body(rq, &name, &fresh, err) < 0)
		return -1;
	return artifact_done(rq, 200);
}

static int ccache_delete(struct request *rq, struct err *err)
{
	struct artifact_name name;

	return artifact_ccache_name(rq->arg[1], &name, err) < 0 ? -1
	                                                        : artifact_delete(rq, &name, err);
}

/* ---- Bazel --------------------------------------------------------------------------------- */

static int bazel_get(struct request *rq, struct err *err)
{
	struct artifact_name name;

	return artifact_bazel_name(rq->arg[1], &name, err) < 0 ? -1 : artifact_send(rq, &name, err);
}

static int bazel_put(struct request *rq, struct err *err)
{
	struct artifact_name name;
	bool fresh;

	if (artifact_bazel_name(rq->arg[1], &name, err) < 0 ||
	    artifact_store_body(rq, &name, &fresh, err) < 0)
		return -1;
	return artifact_done(rq, 200);
}

/* ---- for people ---------------------------------------------------------------------------- */

/* "<stored, in ms>.<seq>" of the last one of the page before. */
static int read_cursor(const char *text, struct artifact_query *q, struct err *err)
{
	struct str rest, ms;
	struct err bad = {0};

	if (text == NULL)
		return 0;
	rest = str_of(text);
	if (!str_cut(&rest, '.', &ms) || str_i64(ms, 0, INT64_MAX, &q->after_ms, &bad) < 0 ||
	    str_i64(rest, 1, INT64_MAX, &q->after_seq, &bad) < 0)
		return err_set(err, ERR_INVALID,
		               "cursor: \"%.60s\" is not the next_cursor of a reply", text);
	return 0;
}

int artifacts_list(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct artifact_query q = {.namespace_ = query_text(rq, "namespace"),
	                           .by = query_text(rq, "by"),
	                           .job_id = query_text(rq, "job")};
	struct model_artifact *x = NULL;
	int64_t limit = LIST_DEFAULT;
	size_t n = 0;

	if (query_int(rq, "limit", 1, LIST_MAX, &limit, err) < 0 ||
	    read_cursor(query_text(rq, "cursor"), &q, err) < 0)
		return -1;
	q.limit = (size_t)limit + 1; /* is there another page? */
	if (face_ctx(rq)->ops->artifacts->list(face_ask(rq), &q, &x, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "artifacts");
	js_list(&an.js);
	for (size_t i = 0; i < MIN(n, (size_t)limit); i++)
		record_write_js(&artifact_record, &x[i], &an.js);
	js_end(&an.js);
	js_key(&an.js, "next_cursor");
	if (n > (size_t)limit)
		js_fmt(&an.js, "%" PRId64 ".%" PRId64, x[limit - 1].created_ms, x[limit - 1].seq);
	else
		js_null(&an.js);
	return answer_send(rq, &an, 200, err);
}

/* ---- errors -------------------------------------------------------------------------------- */

static int status_of(const struct err *err)
{
	if (err->id == ERR_LENGTH_REQUIRED)
		return 411;
	return err->code == ERR_BUSY ? 503 : err_info(err)->http; /* 429 ends some tools' writing */
}

static void error_reply(struct request *rq, const struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(ERROR_MAX);
	struct js js;

	if (err->code == ERR_AUTH) /* beside Bearer: what tools of builds know */
		reply_header(rq, "WWW-Authenticate", "Basic realm=\"stoker\"");
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "message", err->msg);
	js_kv_err(&js, "error", err);
	js_close(&js);
	(void)reply_json(rq, status_of(err), &body);
}

#define CCACHE "/artifact/ccache/{namespace}/{key...}"
#define BAZEL "/artifact/bazel/{namespace}/{key...}"
#define DAV_ROOT "/artifact/webdav/{namespace}"
#define DAV DAV_ROOT "/{path...}"

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,      SCOPE_READ,   0,                 CCACHE,   ccache_get,      "ccache: an entry; layouts subdirs, flat and bazel" },
	{ HTTP_PUT,      SCOPE_PUSH,   ROUTE_BODY_STREAM, CCACHE,   ccache_put,      "ccache: stores an entry" },
	{ HTTP_DELETE,   SCOPE_PUSH,   0,                 CCACHE,   ccache_delete,   "ccache: removes an entry" },
	{ HTTP_GET,      SCOPE_READ,   0,                 BAZEL,    bazel_get,       "Bazel: [INSTANCE/]ac/SHA256, an action whose content is all there; [INSTANCE/]cas/SHA256" },
	{ HTTP_PUT,      SCOPE_PUSH,   ROUTE_BODY_STREAM, BAZEL,    bazel_put,       "Bazel: stores an action, or content that has this digest" },
	{ HTTP_GET,      SCOPE_READ,   0,                 DAV,      webdav_get,      "WebDAV: a file" },
	{ HTTP_PUT,      SCOPE_PUSH,   ROUTE_BODY_STREAM, DAV,      webdav_put,      "WebDAV: stores a file" },
	{ HTTP_DELETE,   SCOPE_PUSH,   0,                 DAV,      webdav_delete,   "WebDAV: removes a file" },
	{ HTTP_PROPFIND, SCOPE_READ,   PROPFIND_MAX,      DAV_ROOT, webdav_propfind, "WebDAV: the root folder" },
	{ HTTP_PROPFIND, SCOPE_READ,   PROPFIND_MAX,      DAV,      webdav_propfind, "WebDAV: a file, or a folder, which is always there; Depth 0" },
	{ HTTP_MKCOL,    SCOPE_PUSH,   PROPFIND_MAX,      DAV_ROOT, webdav_mkcol,    "WebDAV: 405, it is there" },
	{ HTTP_MKCOL,    SCOPE_PUSH,   PROPFIND_MAX,      DAV,      webdav_mkcol,    "WebDAV: nothing to do, folders are always there" },
	{ HTTP_OPTIONS,  SCOPE_READ,   PROPFIND_MAX,      DAV_ROOT, webdav_options,  "WebDAV: what is understood" },
	{ HTTP_OPTIONS,  SCOPE_READ,   PROPFIND_MAX,      DAV,      webdav_options,  "The same" },
};
/* clang-format on */

const struct face face_artifact = {"artifact", routes, COUNT(routes), error_reply};
