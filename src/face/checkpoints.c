/*
 * checkpoints.c - checkpoints and their files, the uploaded code, and credentials for uploads.
 *
 * Files come from the manifests in the object store. Their URLs are presigned for seven days, by
 * the store where it speaks HTTP and else on this server's own S3 face, so a plain GET, with
 * ranges, is all that a reader needs.
 */
#include "base/clock.h"
#include "face/handlers.h"
#include "face/show.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define MANIFEST_MAX ((size_t)64 << 20)
#define ARTIFACTS_MAX 64
#define REGION "us-east-1"

int checkpoints_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_checkpoint *c;
	struct model_job j = {0};
	bool all = false;
	size_t n;

	if (query_bool(rq, "all", &all, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->checkpoints->list(face_ask(rq), j.id, all, &c, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "checkpoints");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_checkpoint(&an.js, rq->arena, &c[i]);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

/* A URL that reads one object without any header: of the store where that speaks HTTP, else, or if
 * the client cannot go there, of this server. */
static int signed_url(struct request *rq, const char *key, bool by_server, const char **out,
                      struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const struct objstore_request get = {
		.method = HTTP_GET, .key = key, .expires_s = SIGV4_PRESIGN_MAX_S};
	struct objstore_signed signed_ = {0};
	char *own = NULL;
	AUTO_BUF struct buf path = BUF_INIT(4 * OBJSTORE_KEY_MAX);
	struct sigv4_key signer = {
		.access_key = ctx->url_access_key,
		.secret_key = ctx->url_secret_key,
		.region = REGION,
		.service = "s3",
	};

	if (!by_server) {
		if (objstore_presign(ctx->objects, rq->arena, &get, &signed_, err) == 0) {
			*out = signed_.url;
			return 0;
		}
		if (err->code != ERR_UNSUPPORTED)
			return -1;
		err_clear(err);
	}
	url_encode(str_of(key), true, &path);
	if (sigv4_presign(rq->arena, &signer, HTTP_GET,
	                  arena_printf(rq->arena, "%s/s3/%s/%s", face_url(rq), ctx->bucket,
	                               buf_cstr(&path)),
	                  NULL, 0, SIGV4_PRESIGN_MAX_S, clock_wall_ms(), &own, err) < 0)
		return -1;
	*out = own;
	return 0;
}

int handler_manifest(struct request *rq, const struct model_checkpoint *row, struct ckpt *out,
                     struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf json = BUF_INIT(MANIFEST_MAX);

	if (objstore_get(ctx->objects, row->manifest_key, &json, err) < 0)
		return -1;
	return ckpt_parse(out, rq->arena, buf_view(&json), err);
}

struct file_page {
	uint64_t offset, size, total; /* total: files of all checkpoints asked for */
	uint64_t shown;
	bool by_server;
};

struct shown_file {
	struct manifest_file f;
	struct ckpt_file about;
	const char *url;
	uint32_t rank;
	int64_t modified_ms;
	bool checked;
};
SHOWN(file, "CheckpointFile", shown_file, ROW(shown_file, R_TEXT, url),
      ROW_AS(shown_file, R_TEXT, "relative_file_name", f.path),
      ROW_AS(shown_file, R_U32, "node_rank", rank), ROW_AS(shown_file, R_U64, "size_bytes", f.size),
      ROW_AS(shown_file, R_TIME, "last_modified", modified_ms),
      ROW_AS(shown_file, R_DIGEST, "sha256", f.sha256),
      ROW_AS(shown_file, R_TEXT | R_NULL, "format", about.format),
      ROW_IF(shown_file, R_BOOL, "whole", about.whole, checked),
      ROW_AS(shown_file, R_TEXT | R_NULL, "note", about.note),
      ROW_AS(shown_file, R_TIME | R_NULL, "checked_at", about.checked_ms));

static int show_file(struct request *rq, struct js *js, const struct model_job *j,
                     const struct ckpt *c, size_t i, bool by_server, struct err *err)
{
	const char *prefix = ckpt_prefix(rq->arena, j->project_id, j->id);
	struct shown_file v = {.f = c->files.file[i],
	                       .about = c->about[i],
	                       .rank = c->rank,
	                       .modified_ms = c->created_ms,
	                       .checked = c->about[i].checked_ms != 0};

	if (signed_url(rq, ckpt_file_key(rq->arena, prefix, c, i), by_server, &v.url, err) < 0)
		return -1;
	record_write_js(&file_record, &v, js);
	return 0;
}

/* The part of one checkpoint that is on the page. Manifests that are off it are not read. */
static int show_files_of(struct request *rq, struct js *js, const struct model_job *j,
                         const struct model_checkpoint *row, struct file_page *p, struct err *err)
{
	uint64_t first = p->total; /* number of this checkpoint's first file */
	struct ckpt c = {0};

	p->total += row->files;
	if (p->total <= p->offset || p->shown == p->size || row->files == 0)
		return 0;
	if (handler_manifest(rq, row, &c, err) < 0)
		return err_wrap(err, "checkpoint %s", row->name);
	for (size_t i = 0; i < c.files.n && p->shown < p->size; i++) {
		if (first + i < p->offset)
			continue;
		if (show_file(rq, js, j, &c, i, p->by_server, err) < 0)
			return -1;
		p->shown++;
	}
	return 0;
}

int checkpoint_files(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *name = query_text(rq, "checkpoint");
	AUTO_ANSWER struct answer an = {0};
	int64_t size = PAGE_DEFAULT, offset = 0;
	struct file_page page = {0};
	struct model_checkpoint *c;
	struct model_job j = {0};
	size_t n;

	if (query_int(rq, "page_size", 1, PAGE_MAX, &size, err) < 0 ||
	    query_int(rq, "page_token", 0, INT64_MAX, &offset, err) < 0 ||
	    query_bool(rq, "by_server", &page.by_server, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->checkpoints->list(face_ask(rq), j.id, true, &c, &n, err) < 0)
		return -1;
	page.offset = (uint64_t)offset;
	page.size = (uint64_t)size;
	answer_open(&an);
	js_key(&an.js, "presigned_urls");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++) {
		if (c[i].manifest_key == NULL || (name != NULL && strcmp(name, c[i].name) != 0))
			continue;
		if (show_files_of(rq, &an.js, &j, &c[i], &page, err) < 0)
			return -1;
	}
	js_end(&an.js);
	js_key(&an.js, "next_page_token"); /* the client stops at a false one: 0 must not happen */
	if (page.shown > 0 && page.offset + page.shown < page.total)
		js_u64(&an.js, page.offset + page.shown);
	else
		js_null(&an.js);
	js_kv_u64(&an.js, "total_count", page.total);
	return answer_send(rq, &an, 200, err);
}

/* {"pinned": true or false}, {"complete": true}, or both. */
/* In the path, or in the query: "." cannot stand in a path. */
static int take_name(struct request *rq, const char **out, struct err *err)
{
	*out = rq->n_arg > 2 ? arg_text(rq, 2) : query_text(rq, "checkpoint");
	return *out != NULL ? 0
	                    : err_set(err, ERR_INVALID,
	                              "checkpoint: the query should name the checkpoint");
}

int checkpoint_change(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const struct doc *body, *pin, *mark;
	struct model_job j = {0};
	const char *name = NULL;

	if (take_name(rq, &name, err) < 0 || body_read(rq, false, &body, err) < 0)
		return -1;
	pin = doc_get(body, "pinned");
	mark = doc_get(body, "complete");
	if ((pin == NULL && mark == NULL) || (pin != NULL && !doc_is(pin, DOC_BOOL)))
		return err_set(err, ERR_INVALID, "pinned: expected true or false");
	if (mark != NULL && !doc_bool(mark, false))
		return err_set(err, ERR_INVALID,
		               "complete: expected true; a checkpoint is never marked incomplete");
	if (handler_job(rq, &j, err) < 0 ||
	    (mark != NULL && ctx->ops->checkpoints->complete(face_ask(rq), j.id, name, err) < 0) ||
	    (pin != NULL &&
	     ctx->ops->checkpoints->pin(face_ask(rq), j.id, name, doc_bool(pin, false), err) < 0))
		return -1;
	answer_open(&an);
	js_kv(&an.js, "checkpoint_id", name);
	if (pin != NULL)
		js_kv_bool(&an.js, "pinned", doc_bool(pin, false));
	if (mark != NULL)
		js_kv_bool(&an.js, "complete", true);
	return answer_send(rq, &an, 200, err);
}

int checkpoint_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};
	const char *name = NULL;

	if (take_name(rq, &name, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->checkpoints->remove(face_ask(rq), j.id, name, err) < 0)
		return -1;
	return answer_deleted(rq, "checkpoint_id", name, err);
}

/* The stock client takes the first URL without asking whether there is one. */
int job_download(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	const struct doc *spec, *list;
	struct model_job j = {0};
	size_t shown = 0;

	if (handler_job(rq, &j, err) < 0 ||
	    js_parse(rq->arena, str_of(j.spec_json), &spec, err) < 0)
		return -1;
	list = doc_path(spec, "runtime", "artifacts", NULL);
	if (doc_first(list) == NULL)
		return err_set(err, ERR_NOT_FOUND, "job %s was pushed without code", j.id);
	answer_open(&an);
	js_key(&an.js, "artifact_presigned_urls");
	js_list(&an.js);
	DOC_EACH (artifact, list) {
		const char *key = doc_cstr(doc_get(artifact, "s3_key"), NULL);
		const char *url = NULL;

		if (key == NULL || shown++ == ARTIFACTS_MAX)
			break;
		if (signed_url(rq, key, false, &url, err) < 0)
			return -1;
		js_cstr(&an.js, url);
	}
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

static int read_digest(struct request *rq, const char *name, const char **out, struct err *err)
{
	const char *text = query_text(rq, name);
	uint8_t raw[HASH_SHA256_LEN];

	*out = text;
	if (text == NULL)
		return 0;
	if (strlen(text) != 2 * sizeof(raw) ||
	    hex_decode(str_of(text), raw, sizeof(raw), err) < 0) {
		err_clear(err);
		return err_set(err, ERR_INVALID, "parameter %s: 64 hexadecimal digits are expected",
		               name);
	}
	return 0;
}

/* `direct` is the digest of what will be sent. put->url NULL: by credentials. */
static int begin_upload(struct request *rq, const char *sha256, struct model_upload *u,
                        struct objstore_put *put, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *team_id = query_text(rq, "team_id"), *direct = NULL;

	if (read_digest(rq, "direct", &direct, err) < 0)
		return -1;
	if (direct != NULL) {
		if (ctx->ops->uploads->sign(face_ask(rq), team_id, sha256, direct, u, put, err) ==
		    0)
			return 0;
		if (err->code != ERR_UNSUPPORTED)
			return -1;
		err_clear(err);
	}
	return ctx->ops->uploads->create(face_ask(rq), team_id, sha256, u, err);
}

static void show_put(struct js *js, const struct objstore_put *put)
{
	js_key(js, "put");
	js_open(js);
	js_kv(js, "url", put->url);
	js_key(js, "headers");
	js_list(js);
	for (size_t i = 0; i < put->n_header; i++) {
		js_open(js);
		js_kv(js, "name", put->header[i].name);
		js_kv(js, "value", put->header[i].value);
		js_close(js);
	}
	js_end(js);
	js_close(js);
}

/* The members of creds become keyword arguments of boto3.resource("s3", ...): no other keys. */
int upload_credentials(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const char *sha256 = NULL;
	struct model_upload u = {0};
	struct objstore_put put = {0};

	if (read_digest(rq, "sha256", &sha256, err) < 0 ||
	    begin_upload(rq, sha256, &u, &put, err) < 0)
		return -1;
	reply_header(rq, "Cache-Control", "no-store");
	answer_open(&an);
	js_kv(&an.js, "s3_bucket", ctx->bucket);
	js_kv(&an.js, "s3_key", u.key);
	if (sha256 != NULL)
		js_kv_bool(&an.js, "exists", u.there);
	if (put.url != NULL)
		show_put(&an.js, &put);
	if (u.there || put.url != NULL)
		return answer_send(rq, &an, 200, err);
	js_key(&an.js, "creds");
	js_open(&an.js);
	js_kv(&an.js, "aws_access_key_id", u.access_key);
	js_kv(&an.js, "aws_secret_access_key", u.secret_key);
	js_kv(&an.js, "aws_session_token", u.session_token);
	js_kv(&an.js, "endpoint_url", arena_printf(rq->arena, "%s/s3", face_url(rq)));
	js_kv(&an.js, "region_name", REGION);
	js_close(&an.js);
	return answer_send(rq, &an, 200, err);
}
