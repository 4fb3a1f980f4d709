/*
 * s3_chunks.h - bodies whose chunks are signed one by one: STREAMING-AWS4-HMAC-SHA256-PAYLOAD and
 * ...-TRAILER. Each signature covers the one before it, the first that of the request:
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html and -trailers.html.
 */
#ifndef S3_CHUNKS_H
#define S3_CHUNKS_H

#include "io/sigv4.h"

#define S3_CHUNK_TRAILERS_MAX ((size_t)4 << 10)

struct s3_chunks;

/* From the request's own signature, which has been verified; `trailer`: trailers are signed too. */
struct s3_chunks *s3_chunks_new(const struct sigv4_chunks *seed, bool trailer) MUST_CHECK;
void s3_chunks_free(struct s3_chunks *c);

/* In the order of the body: the line that begins a chunk (what is behind its size), its bytes, the
 * trailers, the end. ERR_DENIED "SignatureDoesNotMatch: ..." from the call at which it is known. */
int s3_chunks_line(struct s3_chunks *c, uint64_t size, struct str extension,
                   struct err *err) MUST_CHECK;
void s3_chunks_data(struct s3_chunks *c, const void *p, size_t n);
int s3_chunks_trailer(struct s3_chunks *c, struct str name, struct str value,
                      struct err *err) MUST_CHECK;
int s3_chunks_end(struct s3_chunks *c, struct err *err) MUST_CHECK;

#endif
