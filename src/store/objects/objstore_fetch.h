/*
 * objstore_fetch.h - an object into a file, verified, as fast as its store gives it: read once,
 * hashed beside the writing; in parallel ranges from a store that is elsewhere.
 */
#ifndef OBJSTORE_FETCH_H
#define OBJSTORE_FETCH_H

#include "store/objects/objstore.h"

struct objstore_fetch {
	const char *key;
	uint64_t size;
	const struct digest *sha256; /* what it must be */
	int fd;               /* an empty file, read-write; synced by the caller, if at all */
	unsigned streams_max; /* connections to a store that is elsewhere; 0 = 16 */
	/* Bytes of this object so far; may be NULL. From one thread at a time. */
	void (*progress)(void *arg, uint64_t done);
	void *arg;
	const atomic_bool *cancel; /* may be NULL */
};

/* ERR_CORRUPT when length or digest differ: what the file holds then is of no use. */
int objstore_fetch(struct objstore *os, const struct objstore_fetch *f, struct err *err) MUST_CHECK;

#endif
