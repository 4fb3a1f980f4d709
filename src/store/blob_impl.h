/* blob_impl.h - what blob.c (keeps) and blob_gc.c (collects) share. */
#ifndef BLOB_IMPL_H
#define BLOB_IMPL_H

#include "store/blob.h"

#define BLOB_PATH_CAP 128       /* "blobs/sha256/ab/<64>" and kin */
#define BLOB_DAMAGED "corrupt-" /* + 64 hex: a temporary file that was a blob */

struct blobs {
	char *dir; /* absolute or as given; only for paths that are shown and handed out */
	int fd;
};

void blob_path(const struct digest *d, char out[BLOB_PATH_CAP]);
void blob_manifest_path(const struct digest *d, char out[BLOB_PATH_CAP]);
/* Exclusive, waited for: publishing takes milliseconds, collecting seconds. fd or -1. */
int blob_gc_lock(struct blobs *b, struct err *err) MUST_CHECK;

#endif
