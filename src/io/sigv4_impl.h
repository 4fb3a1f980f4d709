/*
 * sigv4_impl.h - the text that a signature is made of, shared by signing (sigv4.c) and verifying
 * (sigv4_verify.c).
 */
#ifndef SIGV4_IMPL_H
#define SIGV4_IMPL_H

#include "io/sigv4.h"

#define SIGV4_ALGORITHM "AWS4-HMAC-SHA256"
#define SIGV4_TERMINATOR "aws4_request"
#define SIGV4_TIME_CAP 17 /* "20130524T000000Z" */
#define SIGV4_HEX_LEN 64
#define SIGV4_SCOPE_MAX 200 /* region and service, where chunks are signed */
#define SIGV4_SIGNED_MAX 64 /* headers in one signature */
#define SIGV4_PARAMS_MAX 512
#define SIGV4_TEXT_MAX ((size_t)256 << 10) /* of a canonical request */

/* Date, region and service that a signature is for. */
struct sigv4_scope {
	struct str date, region, service;
};

/* The string to sign, still in parts. */
struct sigv4_parts {
	const char *method;
	struct str path, query; /* canonical already */
	const struct http_header *headers;
	size_t n_headers;
	struct str signed_headers; /* "host;x-amz-date" */
	struct str payload;
	const char *time;
	struct sigv4_scope scope;
};

/* The signature in hex. ERR_DENIED when a signed header is not there, ERR_TOO_BIG. */
int sigv4_signature(const char *secret, const struct sigv4_parts *p, char out[SIGV4_HEX_LEN + 1],
                    struct err *err) MUST_CHECK;

/* The key of a day, region and service. */
void sigv4_signing_key(const char *secret, const struct sigv4_scope *s, uint8_t out[32]);

/* A part of a query, '+' being a space; false when it is badly encoded. */
bool sigv4_decode(struct arena *a, struct str s, struct str *out);
/* Sorted by name, then value; without the signature itself. With `recode` each part is decoded and
 * encoded in the one way that AWS does; without, it stays as sent. False when it cannot be. */
bool sigv4_query(struct arena *a, struct str query, bool recode, struct str *out);
/* The path with each part decoded and encoded in AWS's way, an encoded slash staying one; false
 * when it cannot be. */
bool sigv4_path(struct arena *a, struct str path, struct str *out);

void sigv4_time(int64_t ms, char out[SIGV4_TIME_CAP]); /* "" beyond the year 9999 */

#endif
