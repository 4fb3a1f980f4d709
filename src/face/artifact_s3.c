/*
 * artifact_s3.c - artifacts by S3, for tools that know no other protocol: a namespace is a bucket
 * of the endpoint /artifact/s3. What a tool stores here another one reads by WebDAV, under the same
 * path. Requests are signed with a token, see s3_authenticate(); a Bearer token does as well.
 */
#include "face/artifact_impl.h"
#include "face/s3_impl.h"

#include "base/hash.h"

static int may(struct request *rq, bool write, struct err *err)
{
	if (s3_authenticate(rq, err) < 0)
		return -1;
	return face_ctx(rq)->ops->artifacts->may(face_ask(rq), artifact_namespace(rq), write, err);
}

static int file_of(struct request *rq, bool write, struct artifact_name *out, struct err *err)
{
	if (may(rq, write, err) < 0)
		return -1;
	return artifact_file_name(rq->arg[1], out, err) < 0 ? err_wrap(err, "InvalidArgument") : 0;
}

static int get_bucket(struct request *rq, struct err *err)
{
	if (may(rq, false, err) < 0)
		return -1;
	if (rq->method != HTTP_HEAD)
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: artifacts are not listed by S3");
	return artifact_done(rq, 200);
}

static int get_object(struct request *rq, struct err *err)
{
	struct artifact_name name;

	if (file_of(rq, false, &name, err) < 0)
		return -1;
	if (artifact_send(rq, &name, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(err, ERR_NOT_FOUND, "NoSuchKey: there is no artifact %.*s",
	               STR_ARG(rq->arg[1]));
}

static int put_object(struct request *rq, struct err *err)
{
	CLEANUP(s3_body_free_p) struct s3_body *body = NULL;
	struct repo_bytes from = {.read = s3_body_read};
	struct artifact_name name;
	struct str ignored;
	uint64_t size;
	bool fresh;

	if (file_of(rq, true, &name, err) < 0)
		return -1;
	if (request_query(rq, "uploadId", &ignored) ||
	    request_header(rq, "x-amz-copy-source").n > 0)
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: artifacts come whole, by one PutObject");
	if (!request_place(rq))
		return 0;
	if (s3_body_new(rq, &body, &size, err) < 0)
		return -1;
	from.arg = body;
	if (artifact_store(rq, &name, size, &from, &fresh, err) < 0)
		return -1;
	return artifact_done(rq, 200);
}

/* What is not there is deleted already: so it is with S3. */
static int delete_object(struct request *rq, struct err *err)
{
	struct artifact_name name;

	if (file_of(rq, true, &name, err) < 0)
		return -1;
	if (artifact_delete(rq, &name, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return artifact_done(rq, 204);
}

#define BUCKET "/artifact/s3/{namespace}"
#define OBJECT BUCKET "/{key...}"

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_OPEN, 0,                 BUCKET, get_bucket,    "S3: HeadBucket" },
	{ HTTP_GET,    SCOPE_OPEN, 0,                 OBJECT, get_object,    "S3: GetObject, HeadObject" },
	{ HTTP_PUT,    SCOPE_OPEN, ROUTE_BODY_STREAM, OBJECT, put_object,    "S3: PutObject" },
	{ HTTP_DELETE, SCOPE_OPEN, 0,                 OBJECT, delete_object, "S3: DeleteObject" },
};
/* clang-format on */

const struct face face_artifact_s3 = {"artifact_s3", routes, COUNT(routes), s3_error_reply};
