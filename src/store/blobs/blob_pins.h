/*
 * blob_pins.h - what a fetch writes or relies on stays, while collectors go about their work.
 *
 * An owner pins a digest *before* it looks whether the blob or manifest is there; a collector takes
 * a name away only while it is not pinned. So what was seen after pinning stays seen. A pin that is
 * given back still counts for each collection that had begun by then: its list of what manifests
 * name may be older than the manifest that was published under the pin. Neither side waits for the
 * other: the one lock is held for a look at a table and one rename.
 *
 * Pins are in memory. The mirror has one process that writes (runners only read what a row names
 * for them), so the pins of an owner that died are gone with it.
 */
#ifndef BLOB_PINS_H
#define BLOB_PINS_H

#include "store/blobs/blob.h"

struct blob_pins; /* of one owner; thread-safe */

struct blob_pins *blob_pins_new(struct blobs *b) MUST_CHECK;
void blob_pins_free(struct blob_pins *p); /* gives all of them back; NULL is fine */
DEFINE_CLEANUP(struct blob_pins, blob_pins_free)
#define AUTO_BLOB_PINS CLEANUP(blob_pins_free_p)

void blob_pins_add(struct blob_pins *p, const struct digest *d); /* of a blob or a manifest */
/* Behind blob_pins_add, before an object store is asked: a collector that was about to remove the
 * object when it was pinned has ended that, so what is seen now stays seen. */
void blob_pins_settle(struct blobs *b, const struct digest *d);
/* Around the removal of an object, which takes longer than a lock is held: false, it is pinned, or
 * somebody else removes it. Who pins it until the end of that waits in blob_pins_settle. */
bool blob_going_begin(struct blobs *b, const struct digest *d);
void blob_going_end(struct blobs *b, const struct digest *d);
/* A temporary file, by its name below tmp/, and its journal. */
void blob_pins_add_tmp(struct blob_pins *p, const char *name);
/* The same of one that room is reserved for until it is a blob: it does not count as held. */
void blob_pins_add_reserved(struct blob_pins *p, const char *name);

#endif
