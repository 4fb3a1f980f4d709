/*
 * s3.c - the S3 subset: uploads of code by the stock client, downloads by signed URL, checkpoints
 * for any S3 tool. One bucket, path style, below /s3. What is not here is refused by name.
 */
#include "face/s3_impl.h"

#include "base/clock.h"
#include "io/url.h"
#include "store/objects/s3xml.h"

#define COMPLETE_MAX ((size_t)4 << 20) /* 10000 parts with checksums */
#define REPLY_MAX ((size_t)64 << 10)

/* Parts of S3 that a query asks for, and that are not here. */
static const char *const absent[] = {
	"accelerate",     "acl",        "analytics",         "attributes",
	"cors",           "encryption", "inventory",         "legal-hold",
	"lifecycle",      "logging",    "metrics",           "notification",
	"object-lock",    "policy",     "publicAccessBlock", "replication",
	"requestPayment", "restore",    "retention",         "select",
	"tagging",        "torrent",    "versioning",        "versions",
	"website",
};

static int check_bucket(struct request *rq, struct err *err)
{
	struct str ignored;

	if (!str_eq(rq->arg[0], face_ctx(rq)->bucket)) {
		if (s3_authorize(rq, S3_BUCKET, "", err) < 0) /* what is here is for no stranger */
			return -1;
		return err_set(err, ERR_NOT_FOUND,
		               "NoSuchBucket: this server's only bucket is \"%s\"",
		               face_ctx(rq)->bucket);
	}
	for (size_t i = 0; i < COUNT(absent); i++)
		if (request_query(rq, absent[i], &ignored))
			return err_set(err, ERR_UNSUPPORTED,
			               "NotImplemented: ?%s is not part of this S3 subset",
			               absent[i]);
	return 0;
}

/* The key in the path, as text; refused when it cannot be one. */
static int key_of(struct request *rq, const char **key, struct err *err)
{
	if (check_bucket(rq, err) < 0)
		return -1;
	if (memchr(rq->arg[1].p, '\0', rq->arg[1].n) != NULL)
		return err_set(err, ERR_INVALID, "InvalidArgument: a key must not contain NUL");
	if (rq->arg[1].n > OBJSTORE_KEY_MAX)
		return err_set(err, ERR_INVALID, "KeyTooLongError: a key can have at most %d bytes",
		               OBJSTORE_KEY_MAX);
	if (objstore_check_key(rq->arg[1], err) < 0)
		return err_wrap(err, "InvalidArgument");
	*key = arena_strz(rq->arena, rq->arg[1]);
	return 0;
}

/* ?uploadId=...; NULL when it is not asked for. */
static const char *upload_of(struct request *rq)
{
	struct str id;

	if (!request_query(rq, "uploadId", &id))
		return NULL;
	return arena_strz(rq->arena, id);
}

static void etag_header(struct request *rq, const char *etag)
{
	reply_header(rq, "ETag", arena_printf(rq->arena, "\"%s\"", etag));
}

/* ---- reading ------------------------------------------------------------------------- */

static int get_bucket(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf xml = BUF_INIT(REPLY_MAX);
	struct str ignored;

	if (check_bucket(rq, err) < 0)
		return -1;
	if (rq->method == HTTP_HEAD || request_query(rq, "location", &ignored)) {
		if (s3_authorize(rq, S3_BUCKET, "", err) < 0)
			return -1;
	}
	if (request_query(rq, "uploads", &ignored))
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: ?uploads is not part of this S3 subset");
	if (rq->method == HTTP_HEAD)
		return reply_bytes(rq, 200, "application/xml", (struct str){0});
	if (!request_query(rq, "location", &ignored))
		return s3_list(rq, err);
	buf_puts(&xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint "
	               "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>");
	return s3_reply_xml(rq, 200, &xml, err);
}

static void overrides(struct request *rq, const char **type)
{
	struct str text;

	if (request_query(rq, "response-content-type", &text) && text.n > 0)
		*type = arena_strz(rq->arena, text);
	if (request_query(rq, "response-content-disposition", &text) && text.n > 0)
		reply_header(rq, "Content-Disposition", arena_strz(rq->arena, text));
}

static void modified_header(struct request *rq, int64_t ms)
{
	char text[CLOCK_HTTP_CAP];

	clock_http(ms, text);
	reply_header(rq, "Last-Modified", text);
}

/* An object in a remote store, in the version that the head of the reply describes. */
struct elsewhere {
	unsigned magic;
#define ELSEWHERE_MAGIC 0x46454c53U
	struct objstore *objects;
	const char *key, *etag;
};

struct piece {
	unsigned magic;
#define PIECE_MAGIC 0x46504945U
	char *to;
	size_t n;
};

static int into_piece(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	struct piece *piece = FROM_VOID(struct piece, arg, PIECE_MAGIC);

	assert(n <= piece->n); /* objstore_read gives no more than was asked for */
	memcpy(piece->to, p, n);
	piece->to += n;
	piece->n -= n;
	return 0;
}

static int read_elsewhere(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
                          struct err *err)
{
	const struct elsewhere *e = FROM_VOID(struct elsewhere, arg, ELSEWHERE_MAGIC);
	struct piece piece = {PIECE_MAGIC, to, n};

	return objstore_read_same(e->objects, e->key, e->etag, at, n, into_piece, &piece, left,
	                          err);
}

static int send_elsewhere(struct request *rq, const char *key, const char *type, struct err *err)
{
	struct elsewhere *e = ARENA_NEW(rq->arena, struct elsewhere);
	const struct reply_source from = {.read = read_elsewhere, .arg = e};
	struct objstore_info info;

	if (objstore_stat(face_ctx(rq)->objects, key, &info, err) < 0)
		return -1;
	*e = (struct elsewhere){ELSEWHERE_MAGIC, face_ctx(rq)->objects, key,
	                        arena_cstr(rq->arena, info.etag)};
	modified_header(rq, info.modified_ms);
	return reply_file_from(rq, type, &from, info.size, e->etag, err);
}

static int send_object(struct request *rq, const char *key, const char *type, struct err *err)
{
	struct objstore_info info;
	int fd = -1;

	if (objstore_fd(face_ctx(rq)->objects, key, &fd, &info, err) == 0) {
		modified_header(rq, info.modified_ms);
		return reply_file(rq, type, fd, info.size, info.etag);
	}
	if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	return send_elsewhere(rq, key, type, err);
}

static int get_object(struct request *rq, struct err *err)
{
	const char *key = NULL, *type = "application/octet-stream";

	if (key_of(rq, &key, err) < 0 || s3_authorize(rq, S3_READ, key, err) < 0)
		return -1;
	if (upload_of(rq) != NULL)
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: listing parts is not part of this S3 subset");
	overrides(rq, &type);
	if (send_object(rq, key, type, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(err, ERR_NOT_FOUND, "NoSuchKey: there is no object %s", key);
}

/* ---- writing ------------------------------------------------------------------------- */

static int put_part(struct request *rq, const char *key, const char *id, struct err *err)
{
	CLEANUP(s3_body_free_p) struct s3_body *body = NULL;
	int64_t number = request_query_int(rq, "partNumber", 0, err);
	char etag[80];
	uint64_t size;

	if (err->code != ERR_NONE)
		return err_wrap(err, "InvalidArgument");
	if (number < 1 || number > OBJSTORE_PARTS_MAX)
		return err_set(err, ERR_INVALID, "InvalidArgument: partNumber must be from 1 to %d",
		               OBJSTORE_PARTS_MAX);
	if (s3_body_new(rq, &body, &size, err) < 0 ||
	    objstore_parts_put(face_ctx(rq)->objects, key, id, (uint32_t)number, size, s3_body_read,
	                       body, etag, err) < 0)
		return -1;
	etag_header(rq, etag);
	return reply_bytes(rq, 200, NULL, (struct str){0});
}

struct putting {
	unsigned magic;
#define PUTTING_MAGIC 0x46505554U
	struct request *rq;
	struct s3_body *body;
	const char *key;
};

/* At its end the right to write is asked for again: a job may have been pushed with the key since,
 * and what a job names does not change any more. */
static int read_putting(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	struct putting *put = FROM_VOID(struct putting, arg, PUTTING_MAGIC);

	if (s3_body_read(put->body, p, cap, n, err) < 0)
		return -1;
	return *n > 0 ? 0 : s3_authorize(put->rq, S3_WRITE, put->key, err);
}

static int put_object(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	CLEANUP(s3_body_free_p) struct s3_body *body = NULL;
	struct putting put = {.magic = PUTTING_MAGIC, .rq = rq};
	char sha256[HASH_HEX_CAP];
	struct objstore_info info;
	const char *key = NULL, *id = upload_of(rq);
	uint64_t size;

	if (key_of(rq, &key, err) < 0 || s3_authorize(rq, S3_WRITE, key, err) < 0)
		return -1;
	if (request_header(rq, "x-amz-copy-source").n > 0)
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: copying is not part of this S3 subset");
	if (!request_place(rq))
		return 0;
	if (id != NULL)
		return put_part(rq, key, id, err);
	if (s3_body_new(rq, &body, &size, err) < 0)
		return -1;
	put.body = body;
	put.key = key;
	if (objstore_put_stream(ctx->objects, key, size, read_putting, &put, &info, err) < 0 ||
	    ctx->ops->uploads->stored(ctx->app, key, s3_body_sha256(body, sha256) ? sha256 : NULL,
	                              err) < 0)
		return -1;
	etag_header(rq, info.etag);
	return reply_bytes(rq, 200, NULL, (struct str){0});
}

static int begin_upload(struct request *rq, const char *key, struct err *err)
{
	AUTO_BUF struct buf xml = BUF_INIT(REPLY_MAX);
	char id[OBJSTORE_UPLOAD_CAP];

	if (objstore_parts_begin(face_ctx(rq)->objects, key, id, err) < 0)
		return -1;
	buf_puts(&xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<InitiateMultipartUploadResult "
	               "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
	s3_xml_element(&xml, "Bucket", rq->arg[0]);
	s3_xml_element(&xml, "Key", str_of(key));
	s3_xml_element(&xml, "UploadId", str_of(id));
	buf_puts(&xml, "</InitiateMultipartUploadResult>");
	return s3_reply_xml(rq, 200, &xml, err);
}

static int complete_upload(struct request *rq, const char *key, const char *id, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf xml = BUF_INIT(REPLY_MAX);
	struct objstore_part *parts = NULL;
	struct objstore_info info;
	struct str body;
	size_t n = 0;

	if (request_body(rq, &body, err) < 0 || s3xml_parts(rq->arena, body, &parts, &n, err) < 0 ||
	    objstore_parts_end(ctx->objects, key, id, parts, n, &info, err) < 0 ||
	    ctx->ops->uploads->stored(ctx->app, key, NULL, err) < 0)
		return -1;
	buf_puts(&xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult "
	               "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
	s3_xml_element(&xml, "Location", str_n(rq->path.p, MIN(rq->path.n, (size_t)4000)));
	s3_xml_element(&xml, "Bucket", rq->arg[0]);
	s3_xml_element(&xml, "Key", str_of(key));
	buf_printf(&xml, "<ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>", info.etag);
	return s3_reply_xml(rq, 200, &xml, err);
}

static int post_object(struct request *rq, struct err *err)
{
	const char *key = NULL, *id = upload_of(rq);
	struct str ignored;

	if (key_of(rq, &key, err) < 0 || s3_authorize(rq, S3_WRITE, key, err) < 0)
		return -1;
	if (id != NULL)
		return complete_upload(rq, key, id, err);
	if (request_query(rq, "uploads", &ignored))
		return begin_upload(rq, key, err);
	return err_set(err, ERR_INVALID, "MethodNotAllowed: POST is only for multipart uploads");
}

/* Objects go with the job or project that they belong to; here only an upload is given up. */
static int delete_object(struct request *rq, struct err *err)
{
	const char *key = NULL, *id = upload_of(rq);

	if (key_of(rq, &key, err) < 0 || s3_authorize(rq, S3_WRITE, key, err) < 0)
		return -1;
	if (id == NULL)
		return err_set(
			err, ERR_DENIED,
			"AccessDenied: delete the job or project that the object belongs to");
	if (objstore_parts_abort(face_ctx(rq)->objects, key, id, err) < 0)
		return -1;
	return reply_bytes(rq, 204, NULL, (struct str){0});
}

#define BUCKET "/s3/{bucket}"
#define OBJECT BUCKET "/{key...}"

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_OPEN, 0,                 BUCKET, get_bucket,    "S3: ListObjectsV2, ListObjects, HeadBucket" },
	{ HTTP_GET,    SCOPE_OPEN, 0,                 OBJECT, get_object,    "S3: GetObject, HeadObject; ranges, signed URLs" },
	{ HTTP_PUT,    SCOPE_OPEN, ROUTE_BODY_STREAM, OBJECT, put_object,    "S3: PutObject, UploadPart" },
	{ HTTP_POST,   SCOPE_OPEN, COMPLETE_MAX,      OBJECT, post_object,   "S3: CreateMultipartUpload, CompleteMultipartUpload" },
	{ HTTP_DELETE, SCOPE_OPEN, 0,                 OBJECT, delete_object, "S3: AbortMultipartUpload" },
};
/* clang-format on */

const struct face face_s3 = {"s3", routes, COUNT(routes), s3_error_reply};
