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

/* A URL that works for expires_s seconds without headers. */
int sigv4_presign(struct arena *a, const struct sigv4_key *key, enum http_method method,
                  const char *url, int64_t expires_s, int64_t now_ms, char **out,
                  struct err *err) MUST_CHECK;

/* What arrived at a server, as sent. A request in absolute form (through a proxy) gives path and
 * query only: what is signed is the Host header. */
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

#endif
