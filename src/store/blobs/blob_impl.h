/* blob_impl.h - what blob.c (keeps), blob_pins.c (holds), blob_held.c (counts) and blob_gc.c
 * (collects) share. */
#ifndef BLOB_IMPL_H
#define BLOB_IMPL_H

#include "base/sync.h"
#include "store/blobs/blob_pins.h"

#include <sys/queue.h>

#define BLOB_PATH_CAP 128       /* "blobs/sha256/ab/<64>" and kin */
#define BLOB_DAMAGED "corrupt-" /* + 64 hex: a temporary file that was a blob */
#define BLOB_GONE "gone-"       /* + 64 hex: its name is taken away, its bytes are about to go */
#define BLOB_BATCH "batch-"     /* a small file that waits to be published with others */

struct blob_pin_table; /* blob_pins.c */
struct blob_counts;    /* blob_held.c */

struct blobs {
	char *dir; /* absolute or as given; only for paths that are shown and handed out */
	int fd;
	struct blob_pin_table *pins;
	struct blob_counts *counts;
};

void blob_path(const struct digest *d, char out[BLOB_PATH_CAP]);
void blob_manifest_path(const struct digest *d, char out[BLOB_PATH_CAP]);

struct blob_pin_table *blob_pin_table_new(void) MUST_CHECK;
void blob_pin_table_free(struct blob_pin_table *t);
/* From before a collector reads the first manifest until it has removed the last name. */
struct blob_scan {
	uint64_t number;
	LIST_ENTRY(blob_scan) in;
};
void blob_scan_begin(struct blobs *b, struct blob_scan *s);
void blob_scan_end(struct blobs *b, struct blob_scan *s);
/* Removes a blob or manifest unless it is pinned; *gone: it was there and is no more. */
int blob_take_away(struct blobs *b, const struct digest *d, const char *path, bool *gone,
                   struct err *err) MUST_CHECK;
bool blob_tmp_pinned(struct blobs *b, const char *name);
bool blob_tmp_reserved(struct blobs *b, const char *name);

struct blob_counts *blob_counts_new(void) MUST_CHECK;
void blob_counts_free(struct blob_counts *c);
/* Around what takes the name of a blob away: by so much there is more, or less. */
void blob_turn_take(struct blobs *b, const struct digest *d);
void blob_turn_give(struct blobs *b, const struct digest *d, int64_t files, int64_t bytes);
/* Renames a file, the bytes of which are on the disk, to the blob that it is, as renameat2 does: -1
 * with errno. The folder is not synced. */
int blob_name(struct blobs *b, const char *from, const struct digest *d, unsigned flags) MUST_CHECK;
/* Holes, and what a file system compresses, take no space. */
uint64_t blob_taken(const struct stat *st);
/* Calls fn for each name in a folder of the store; -1 of fn ends it. */
int blob_each_name(struct blobs *b, const char *path,
                   int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                   struct err *err) MUST_CHECK;

#endif
