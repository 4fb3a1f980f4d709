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
#include "base/err_ids.h"

/* The classes: what a program does about an error. The word is the id of an error without a row of
 * its own in err_ids.h.
 *    code         word           http exit retry */
#define ERR_TABLE(X)                                                                               \
	X(INVALID, "invalid", 400, 2, false)                                                       \
	X(AUTH, "unauthorized", 401, 4, false)                                                     \
	X(DENIED, "denied", 403, 4, false)                                                         \
	X(NOT_FOUND, "not_found", 404, 3, false)                                                   \
	X(CONFLICT, "conflict", 409, 5, false)                                                     \
	X(TOO_BIG, "too_big", 413, 5, false)                                                       \
	X(RANGE, "range", 416, 1, false)                                                           \
	X(QUOTA, "quota", 422, 5, false)                                                           \
	X(BUSY, "busy", 429, 1, true)                                                              \
	X(CORRUPT, "corrupt", 500, 1, false)                                                       \
	X(IO, "io", 500, 1, false)                                                                 \
	X(UNSUPPORTED, "unsupported", 501, 1, false)                                               \
	X(UPSTREAM, "upstream", 502, 1, true)                                                      \
	X(UNAVAILABLE, "unavailable", 503, 1, true)                                                \
	X(TIMEOUT, "timeout", 504, 124, true)                                                      \
	X(NO_SPACE, "no_space", 507, 1, false)                                                     \
	X(CANCELED, "canceled", 499, 130, false)

enum err_code {
	ERR_NONE,
#define X(code, word, http, exit, retry) ERR_##code,
	ERR_TABLE(X)
#undef X
		ERR_COUNT, /* of the classes; what follows are ids within them */
#define X(code, class, id, help) ERR_##code,
	ERR_IDS(X)
#undef X
		ERR_END,
};

#define ERR_MSG_MAX 2000 /* a spec may have many mistakes, each a line */

struct err {
	enum err_code code; /* the class, below ERR_COUNT */
	enum err_code id;   /* a row of err_ids.h, or the class again */
	int retry_after_s;  /* what a server asked for; 0 = nothing */
	char msg[ERR_MSG_MAX];
};

struct err_info {
	const char *word;
	int http, exit;
	bool retry;
};

/* Sets code and message; asserts that *err is still clear. `code` is a class or, better where
 * somebody may want to tell this error apart, an id: its class follows from it. Always returns -1.
 */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) PRINTF(3, 4);

/* "no such job" for ERR_JOB_NOT_FOUND, and so on: of an id that ends in _not_found; of a class
 * "nothing is there". */
int err_missing(struct err *err, enum err_code id);

/* Same from errno: "<text>: <strerror>"; ENOENT, EACCES, ENOSPC, EEXIST... choose the code. */
int err_errno(struct err *err, int errnum, const char *fmt, ...) PRINTF(3, 4);

/* Puts "<text>: " in front of the message. Always returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) PRINTF(2, 3);

/* What was asked does not answer now: nothing was wrong with the request. */
static inline bool err_is_away(const struct err *err)
{
	return err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT;
}

/* Another class or id, because more is known about the cause now. The message stays. */
void err_become(struct err *err, enum err_code code);
/* The same, but only if the error has nothing but the class that this id belongs to. */
void err_refine(struct err *err, enum err_code id);

/* Back to ERR_NONE, for a failure that the caller has dealt with. */
void err_clear(struct err *err);

const struct err_info *err_info(const struct err *err);
/* The stable word of an error: "cache_quota_exceeded", or its class's: "not_found". */
const char *err_id(const struct err *err);
/* Gives an error that came from a peer the id that the peer named. An unknown id (a newer peer's)
 * and one of another class leave it as it is. */
void err_id_from(struct err *err, const char *id);
/* The error that err_id() gave this word for; ERR_NONE: none does. */
enum err_code err_of_id(const char *id);
/* The rows of both tables, the ids first, for docs/errors.md; false behind the last one. */
struct err_row {
	const char *id, *help; /* help NULL: a class */
	const struct err_info *info;
};
bool err_row(size_t i, struct err_row *out);

enum err_code err_from_http(int status); /* the row whose http matches, else by class */

#endif
