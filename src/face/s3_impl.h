/*
 * s3_impl.h - what the files of the S3 face share: s3.c (routes and objects), s3_list.c (listings),
 * s3_auth.c (who may), s3_body.c (bodies in; s3_chunks.c: signed chunks), s3_error.c (errors in
 * S3's words).
 *
 * An error whose text starts with one of S3's codes and a colon ("NoSuchUpload: ...") goes out
 * under that code and its status; others go out under the code that fits err->code.
 */
#ifndef S3_IMPL_H
#define S3_IMPL_H

#include "face/face.h"

#define S3_OBJECT_MAX ((uint64_t)5 << 30) /* of one PUT: S3's own limit */

enum s3_need { S3_READ, S3_LIST, S3_WRITE, S3_BUCKET };

/* May the caller do this to this key (prefix, when listing; S3_BUCKET, that the bucket is there, is
 * for everyone who is known)? Signed requests and URLs are verified,
 * tokens are looked up; ERR_DENIED, ERR_AUTH. */
int s3_authorize(struct request *rq, enum s3_need need, const char *key,
                 struct err *err) MUST_CHECK;

/* Whose token has signed the request, or came with it, perhaps a job's: rq->principal. */
int s3_authenticate(struct request *rq, struct err *err) MUST_CHECK;

/* The signatures of a body's chunks continue from that of the request, which is authorized. */
struct sigv4_chunks;
int s3_chunk_seed(struct request *rq, struct sigv4_chunks *out, struct err *err) MUST_CHECK;

/* A request's body on its way to the store: decoded, counted, and compared at its end with whatever
 * the client said of it. Refusing the last read is what keeps a bad body from being stored. */
struct s3_body;
/* *size: of the object; ERR_INVALID "MissingContentLength: ..." when it is not told. */
int s3_body_new(struct request *rq, struct s3_body **out, uint64_t *size,
                struct err *err) MUST_CHECK;
int s3_body_read(void *body, void *p, size_t cap, size_t *n, struct err *err) MUST_CHECK;
/* The SHA-256 that the client had signed, once the body was read to its end. */
bool s3_body_sha256(const struct s3_body *b, char hex[65]);
void s3_body_free(struct s3_body *b);
DEFINE_CLEANUP(struct s3_body, s3_body_free)

void s3_error_reply(struct request *rq, const struct err *err);
int s3_reply_xml(struct request *rq, int status, const struct buf *xml, struct err *err) MUST_CHECK;
void s3_xml_element(struct buf *out, const char *name, struct str text);

int s3_list(struct request *rq, struct err *err) MUST_CHECK;

#endif
