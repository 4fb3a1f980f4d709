/*
 * glob.h - file patterns. Two dialects share one matcher: the platform's own, where `*` stops at
 * `/` and `**` crosses it (weights), and the Hub's, where `*` crosses `/` as
 * fnmatchcase.
 */
#ifndef GLOB_H
#define GLOB_H

#include "base/arena.h"

#define GLOB_MAX 512
#define GLOB_STEPS_MAX 100000 /* a pattern that needs more work than this does not match */

/* ERR_INVALID for an empty or over-long pattern, a NUL, an unclosed '['. */
int glob_check(struct str pattern, struct err *err) MUST_CHECK;
/* `*` and `?` stop at '/', `**` crosses; [a-z], [!a-z]; no escapes; leading dots are ordinary. */
bool glob_match(struct str pattern, struct str path);
bool glob_match_hub(struct str pattern,
                    struct str path); /* `*` crosses '/'; trailing '/' adds `*` */

/* Wanted = matches any of allow (none = all) and none of ignore: ignore wins. */
struct glob_filter {
	const char *const *allow, *const *ignore;
	size_t n_allow, n_ignore;
};
bool glob_wanted(const struct glob_filter *f, struct str path);

/* The next character: one UTF-8 sequence, or one byte of what is none; p < end. */
size_t glob_char_len(const char *p, const char *end);
/* Orders characters as their code points: UTF-8 was made so. */
uint32_t glob_char_at(const char *p, const char *end);

#endif
