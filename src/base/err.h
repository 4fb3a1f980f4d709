/*
 * err.h - the one error type. Made once where the cause is known (err_set), given context on the
 * way up (err_wrap), and turned into an HTTP status, an exit code and a retry decision by one
 * table.
 *
 * A fallible function returns int 0/-1, is MUST_CHECK, and takes struct err * last. On success *err
 * is untouched; on failure every output is. The first cause wins: it is wrapped, never replaced.
 */
#ifndef ERR_H
#define ERR_H

#include "base/base.h"

/*    code         word           http exit retry */
#define ERR_TABLE(X)                                                                               \
	X(INVALID, "invalid", 400, 2, false)                                                       \
	X(AUTH, "unauthorized", 401, 4, false)                                                     \
	X(DENIED, "denied", 403, 4, false)                                                         \
	X(NOT_FOUND, "not-found", 404, 3, false)                                                   \
	X(CONFLICT, "conflict", 409, 5, false)                                                     \
	X(TOO_BIG, "too-big", 413, 5, false)                                                       \
	X(RANGE, "range", 416, 1, false)                                                           \
	X(QUOTA, "quota", 422, 5, false)                                                           \
	X(BUSY, "busy", 429, 1, true)                                                              \
	X(CORRUPT, "corrupt", 500, 1, false)                                                       \
	X(IO, "io", 500, 1, false)                                                                 \
	X(UNSUPPORTED, "unsupported", 501, 1, false)                                               \
	X(UNAVAILABLE, "unavailable", 503, 1, true)                                                \
	X(TIMEOUT, "timeout", 504, 124, true)                                                      \
	X(NO_SPACE, "no-space", 507, 1, false)                                                     \
	X(CANCELED, "canceled", 499, 130, false)

enum err_code {
	ERR_NONE,
#define X(code, word, http, exit, retry) ERR_##code,
	ERR_TABLE(X)
#undef X
		ERR_COUNT,
};

#define ERR_MSG_MAX 2000 /* a spec may have many mistakes, each a line */

struct err {
	enum err_code code;
	int retry_after_s; /* what a server asked for; 0 = nothing */
	char msg[ERR_MSG_MAX];
};

struct err_info {
	const char *word;
	int http, exit;
	bool retry;
};

/* Sets code and message; asserts that *err is still clear. Always returns -1. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) PRINTF(3, 4);

/* Same from errno: "<text>: <strerror>"; ENOENT, EACCES, ENOSPC, EEXIST... choose the code. */
int err_errno(struct err *err, int errnum, const char *fmt, ...) PRINTF(3, 4);

/* Puts "<text>: " in front of the message. Always returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) PRINTF(2, 3);

/* Back to ERR_NONE, for a failure that the caller has dealt with. */
void err_clear(struct err *err);

const struct err_info *err_info(const struct err *err);
enum err_code err_from_http(int status); /* the row whose http matches, else by class */

#endif
