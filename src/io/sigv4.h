/*
 * sigv4.h - AWS Signature Version 4: sign, presign and verify, by hand, against the examples in
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html and
 * .../sigv4-query-string-auth.html. Query parameters are sorted after encoding; the path is signed
 * as it is sent (S3 rule: no double encoding, no normalising of dots or slashes).
 */
#ifndef SIGV4_H
#define SIGV4_H

#include "io/client.h"

#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"
#define SIGV4_STREAM "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
#define SIGV4_STREAM_TRAILER "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
#define SIGV4_SKEW_S (15 * 60)
#define SIGV4_PRESIGN_MAX_S (7 * 24 * 3600)

struct sigv4_key {
	const char *access_key, *secret_key, *session_token; /* token may be NULL */
	const char *region, *service; /* "us-east-1", "s3"; verify: NULL = as the client says */
};

/* The headers to add to a request (Authorization, x-amz-date, x-amz-content-sha256, token), in `a`.
 * `headers` are the caller's own that shall be signed too (at most HTTP_HEADERS_MAX); payload_hash
 * is hex or SIGV4_UNSIGNED. */
int sigv4_sign(struct arena *a, const struct sigv4_key *key, enum http_method method,
               const char *url, const struct http_header *headers, size_t n_headers,
               const char *payload_hash, int64_t now_ms, struct http_header out[4], size_t *n_out,
               struct err *err) MUST_CHECK;

/* A URL that works for expires_s seconds with these headers and no others of x-amz- (at most
 * HTTP_HEADERS_MAX, mostly none). */
int sigv4_presign(struct arena *a, const struct sigv4_key *key, enum http_method method,
                  const char *url, const struct http_header *headers, size_t n_headers,
                  int64_t expires_s, int64_t now_ms, char **out, struct err *err) MUST_CHECK;

/* A request as the server received it. In absolute form (through a proxy) it gives path and query
 * only: the Host header is what is signed. */
struct sigv4_request {
	enum http_method method;
	struct str path, query; /* undecoded */
	const struct http_header *headers;
	size_t n_headers;
};

/* The access key that a request names (Authorization header or X-Amz-Credential); empty = none. */
struct str sigv4_access_key(struct arena *a, const struct sigv4_request *rq);
/* ERR_DENIED: signature does not match, expired, clock too far off; the message starts with the S3
 * error code ("SignatureDoesNotMatch: ...", "RequestTimeTooSkewed: ...", "AccessDenied: ..."). The
 * body is not seen here: the caller compares it with x-amz-content-sha256. Host and all x-amz-
 * headers must be signed, and each may be there once. */
int sigv4_verify(struct arena *a, const struct sigv4_key *key, const struct sigv4_request *rq,
                 int64_t now_ms, struct err *err) MUST_CHECK;

/* A body whose chunks are signed one by one, each signature covering the one before it. */
struct sigv4_chunks {
	uint8_t key[32]; /* of day, region and service */
	const char *time, *scope;
	char last[65]; /* hex: of the request, then of the chunk before */
};
/* From the request's signature, which has been verified. ERR_DENIED when that was in the query. */
int sigv4_chunks_begin(struct arena *a, const struct sigv4_key *key, const struct sigv4_request *rq,
                       struct sigv4_chunks *out, struct err *err) MUST_CHECK;
struct digest;
/* Is this the signature of a next chunk (of the trailers) with that digest? Then it is `last`. */
bool sigv4_chunk_ok(struct sigv4_chunks *c, const struct digest *d,
                    struct str signature) MUST_CHECK;
bool sigv4_trailer_ok(struct sigv4_chunks *c, const struct digest *d,
                      struct str signature) MUST_CHECK;

#endif
