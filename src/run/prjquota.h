/*
 * prjquota.h - project quotas: the kernel itself limits what the files of a folder take of the
 * disk (ext4 and xfs, mounted with prjquota). A write that would cross the limit fails in the job,
 * with EDQUOT on ext4 and ENOSPC on xfs.
 *
 * A folder gets a project id that no other file of its file system has, and hands it on to all that
 * is made in it. An id is in use as long as one file has it, which the file system counts: so there
 * is no list of ids to keep, and none to mend after a crash. A limit that was left on an id which
 * nobody uses holds nobody up: whoever takes the id next sets its own.
 *
 * ext4 holds nobody to a limit who has CAP_SYS_RESOURCE in the machine's own user namespace, as its
 * root has; no job has it.
 *
 * Only a process with CAP_SYS_ADMIN in the machine's own user namespace may set limits. Nobody in
 * another user namespace can change the id of a file: no job there, nor a runner that gave up root,
 * for which a keeper does it (prjquota_keeper.h). A job without one (sandbox_plain.c) can.
 */
#ifndef PRJQUOTA_H
#define PRJQUOTA_H

#include "base/err.h"

/* The ids that are taken: far from those that administrators, docker and kubelet give out. */
#define PRJQUOTA_FIRST 0x53540000U
#define PRJQUOTA_IDS 65536U
#define PRJQUOTA_TRIES 256 /* ids that somebody has, or takes at the same moment */

/* Does the file system of this folder hold its projects to their limits, and may we set some? */
bool prjquota_works(const char *dir);
/* What is made in this empty folder from now on takes at most so many bytes. *id = 0: its file
 * system cannot, or we may not. */
int prjquota_take(const char *dir, uint64_t bytes, uint32_t *id, struct err *err) MUST_CHECK;
/* The same with ids of another range, for tests. */
int prjquota_take_of(const char *dir, uint64_t bytes, uint32_t first, uint32_t n, uint32_t *id,
                     struct err *err) MUST_CHECK;
/* No limit any more for the folder, if it has one by prjquota_take(). */
void prjquota_lift(const char *dir);
/* What the files of the folder take of its limit, by what the file system says to everybody who
 * asks how much of it is left there. False: not known, as when the disk has less left than the
 * folder may take. */
bool prjquota_used(const char *dir, uint64_t limit, uint64_t *bytes);
/* This file of that id, which has no name in the folder any more, counts for no project. False: it
 * has another one, or we may not: it wants CAP_FOWNER in the machine's own user namespace. */
bool prjquota_forget(int fd, uint32_t id);

#endif
