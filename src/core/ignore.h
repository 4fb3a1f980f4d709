/*
 * ignore.h - ignore files: .gitignore by git's rules, and .stokerignore and .truss_ignore, which
 * are written the same way. The last line that matches wins, `!` takes back, a trailing `/` is for
 * folders only, a slash inside anchors to where the file is; `*` and `?` stop at '/', `**` between
 * slashes crosses folders, [a-z], [!a-z], [^a-z], [[:alpha:]], a backslash quotes. Unlike git's,
 * `?` is one character of UTF-8.
 */
#ifndef IGNORE_H
#define IGNORE_H

#include "base/arena.h"

struct ignore;
struct ignore *ignore_parse(struct arena *a, struct str text);
/* By any folder above it, or by itself. *work: how many characters may be compared, and how many
 * are left afterwards; at 0 it was given up, and the answer is worth nothing. NULL: any. */
bool ignore_match(const struct ignore *ig, const char *path, bool is_dir, uint64_t *work);
/* The verdict of the last line that matches this path, for several files that override each other.
 * The caller must not ask about paths inside an ignored folder. */
enum ignore_word { IGNORE_SILENT, IGNORE_OUT, IGNORE_IN };
enum ignore_word ignore_says(const struct ignore *ig, const char *path, bool is_dir);
extern const char ignore_builtin[]; /* what is left out when there is no such file */
extern const char ignore_always[];  /* and what is unless such a file takes it back */

#endif
