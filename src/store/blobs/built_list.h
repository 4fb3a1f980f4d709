/*
 * built_list.h - what a built tree holds, as a text that is written when it is whole and compared
 * with what is there before anybody is given it.
 *
 *   stoker-built 1 <entries> <bytes>\n
 *   <d|f|l> <mode> <size> <mtime> <ctime> <64 hex|-> <path>\n   times in ns; the hash of a file's
 *                                                              bytes, of a link's target
 *   end <64 hex>\n                                             the hash of all that is above
 *
 * ctime is the kernel's own: nobody but root with another clock can set it back. So a look at each
 * entry without reading it tells whether anything was changed, added or removed since.
 */
#ifndef BUILT_LIST_H
#define BUILT_LIST_H

#include "base/fs.h"

#include <stdatomic.h>

#define BUILT_ENTRIES_MAX 2000000
#define BUILT_LIST_MAX ((size_t)512 << 20)
#define BUILT_DEPTH_MAX 200

struct built_sum {
	uint64_t files, bytes;
};

/* Makes all below `root` read-only and ours, hashes it and lists it into `out`. A name with a line
 * break, a device, a FIFO or a socket is ERR_INVALID. */
int built_list_make(int root, const atomic_bool *cancel, struct buf *out, struct built_sum *sum,
                    struct err *err) MUST_CHECK;
/* Is the list itself whole? What it says of the sizes. */
int built_list_read(struct str list, struct built_sum *sum, struct err *err) MUST_CHECK;
/* Each entry against what is there: kind, mode, size, times. ERR_CORRUPT names the first that
 * differs. */
int built_list_look(int root, struct str list, struct err *err) MUST_CHECK;
/* And the bytes of each file. `step` as for blobs_verify. */
int built_list_verify(int root, struct str list,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err) MUST_CHECK;

#endif
