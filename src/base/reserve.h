/*
 * reserve.h - bytes kept back on the disk of the data folder. When the disk is full to the last
 * byte, what must be written all the same (rows, the last words of a job) takes a piece of them and
 * tries again: so a full disk can be stopped on, looked at and cleared. A piece is given back to
 * the file system only when somebody needs it, so that others, who fill the disk, do not get it
 * all.
 *
 * One for the process, from any thread. Without reserve_open there is none, and nothing is given.
 */
#ifndef RESERVE_H
#define RESERVE_H

#include "base/err.h"

#define RESERVE_BYTES ((uint64_t)32 << 20) /* twice the database's log before it is folded */
#define RESERVE_PIECE ((uint64_t)1 << 20)
#define RESERVE_ROWS 0                    /* what reserve_take leaves: the database may take all */
#define RESERVE_WORDS (RESERVE_BYTES / 2) /* logs leave half of it to the database */
#define RESERVE_MARGIN ((uint64_t)64 << 20) /* made whole when this much is free beside it */

/* The file is made when there is room for it; a disk that is full already is no error. */
int reserve_open(const char *path, struct err *err) MUST_CHECK;
void reserve_close(void); /* the file stays, with what is left in it */
/* After a write found no space: gives a piece to the file system. False: no more than `keep` bytes
 * are left. */
bool reserve_take(uint64_t keep);
/* Makes it whole when there is room. False: there is not; then nothing new should be begun. */
bool reserve_whole(void);

#endif
