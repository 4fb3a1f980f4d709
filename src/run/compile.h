/*
 * compile.h - the caches of compilers in an attempt: a folder for each kind, filled before the
 * commands run from what the jobs before have left (core/compile_cache.h). The files are copies, on
 * local disk, and the job's own: compilers write into them as they like. What is new is sent by
 * harvest.h.
 */
#ifndef RUN_COMPILE_H
#define RUN_COMPILE_H

#include "run/ids.h"

/* A folder for each kind in the folder `root` (an open one), and in them the files of `tree`, which
 * is KIND/PATH; tree NULL: nothing. May be called again: what is there stays. *files, *bytes: what
 * was copied. */
int compile_fill(int root, const struct ids *ids, const char *tree, const atomic_bool *cancel,
                 uint64_t *files, uint64_t *bytes, struct err *err) MUST_CHECK;

#endif
