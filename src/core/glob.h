/*
 * glob.h - file patterns. Two dialects share one matcher: the platform's own, where `*` stops at
 * `/` and `**` crosses it (weights, ignore files), and the Hub's, where `*` crosses `/` as
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

/* Ignore files in gitignore syntax (.stokerignore, .truss_ignore): last matching line wins, `!`
 * takes back, trailing `/` = folders only, a slash inside anchors to the root. */
struct ignore;
struct ignore *ignore_parse(struct arena *a, struct str text);
bool ignore_match(const struct ignore *ig, const char *path, bool is_dir);
/* The verdict of the last line that matches this path, for several files that override each other.
 * The caller must not ask about paths inside an ignored folder. */
enum ignore_word { IGNORE_SILENT, IGNORE_OUT, IGNORE_IN };
enum ignore_word ignore_says(const struct ignore *ig, const char *path, bool is_dir);
extern const char ignore_builtin[]; /* what is left out when there is no such file */
extern const char ignore_always[];  /* and what is unless such a file takes it back */

#endif
