/*
 * dirlist.h - the files below a folder in the byte order of their full paths, a page at a time, in
 * bounded memory: as S3 lists keys, where "a-b" comes before "a/b" and that before "a0".
 */
#ifndef DIRLIST_H
#define DIRLIST_H

#include "base/fs.h"

/* Regular files below `root` (a descriptor) whose path starts with prefix and comes after `after`
 * (may be NULL); at most max. `skip`: a name at the top that is left out, or NULL. Links are
 * neither followed nor listed. each is called with the path relative to root. */
int dirlist(int root, const char *prefix, const char *after, size_t max, const char *skip,
            void (*each)(void *arg, const char *path), void *arg, bool *more,
            struct err *err) MUST_CHECK;

#endif
