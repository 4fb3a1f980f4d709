/*
 * blob_batch.h - small blobs by the thousand: each is written under tmp/ at once, but they are made
 * durable and visible in groups, so that a group shares one sync instead of one a file.
 *
 * Order for a group: all contents on the disk, then each renamed to its digest. The names are on
 * the disk when blob_batch_publish() has returned: a manifest may name them from then on, not
 * before.
 */
#ifndef BLOB_BATCH_H
#define BLOB_BATCH_H

#include "store/blobs/blob.h"

struct blob_batch;

struct blob_batch *blob_batch_new(struct blobs *b) MUST_CHECK;
void blob_batch_free(struct blob_batch *bb); /* what is not published is removed; NULL is fine */
DEFINE_CLEANUP(struct blob_batch, blob_batch_free)
#define AUTO_BLOB_BATCH CLEANUP(blob_batch_free_p)

/* n bytes that hash to d: the caller has seen to that, and has pinned d. Thread-safe. */
int blob_batch_add(struct blob_batch *bb, const void *p, size_t n, const struct digest *d,
                   struct err *err) MUST_CHECK;
/* All that was added, names too, is on the disk. No adder may be running. */
int blob_batch_publish(struct blob_batch *bb, struct err *err) MUST_CHECK;

#endif
