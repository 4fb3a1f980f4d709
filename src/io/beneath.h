/*
 * beneath.h - makes files, folders and links out of names and targets that a stranger chose,
 * beneath a folder that nothing may leave. For unpacking; no handle of it is shared between
 * threads.
 *
 * Paths are walked part by part from the root's handle and never through a link. A symbolic link
 * may climb to the root at most and then only go down, so following it later stays beneath the root
 * too. What is made replaces what had the name before (a folder only when it is empty): nothing is
 * ever written through an old name.
 *
 * Refusals are ERR_INVALID with the bare reason ("an absolute path"); the caller puts the name in
 * front.
 */
#ifndef BENEATH_H
#define BENEATH_H

#include "base/buf.h"

#define BENEATH_PATH_MAX 4096
#define BENEATH_PART_MAX 255
#define BENEATH_SHOWN_CAP 256

/* A name from outside, fit for a message (base/shown.h), cut. */
const char *beneath_shown(const char *name, char out[BENEATH_SHOWN_CAP]);

/* A name as written -> plain parts ("./a//b/" -> "a/b"); "" is the root itself. */
int beneath_clean(const char *raw, char out[BENEATH_PATH_MAX + 1], struct err *err) MUST_CHECK;

/* Would a symbolic link at the clean `path` be made? For whoever packs, before it is sent. */
int beneath_check_link(const char *path, const char *target, struct err *err) MUST_CHECK;

struct beneath;
struct beneath *beneath_new(int root_dirfd) MUST_CHECK; /* borrowed until free */
void beneath_free(struct beneath *b);
DEFINE_CLEANUP(struct beneath, beneath_free)
#define AUTO_BENEATH CLEANUP(beneath_free_p)

/* `path` is clean and not "". Parents are made with mode 0755. A time is that of the last change,
 * as utimensat() takes it; permissions are cut to 0777. */

/* A new empty file, open for writing; fd or -1. */
int beneath_file(struct beneath *b, const char *path, struct err *err) MUST_CHECK;
/* The folder stays when there is one. Its owner may always read, write and enter it, or what
 * follows could neither be put into it nor removed. */
int beneath_dir(struct beneath *b, const char *path, mode_t mode, struct err *err) MUST_CHECK;
int beneath_symlink(struct beneath *b, const char *path, const char *target,
                    struct timespec changed, struct err *err) MUST_CHECK;
/* `target` is as written; it must be a file that beneath_file made. */
int beneath_hard_link(struct beneath *b, const char *path, const char *target,
                      struct err *err) MUST_CHECK;

#endif
