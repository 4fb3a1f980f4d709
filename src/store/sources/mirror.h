/*
 * mirror.h - a source at a revision becomes blobs and a manifest: what is missing is fetched
 * (several files at once, large ones in ranges), verified, and published; resumable after kill -9.
 * Two jobs that ask for the same blob share one fetch: the server runs one mirror_fetch per source,
 * and a blob being fetched is locked.
 */
#ifndef MIRROR_H
#define MIRROR_H

#include "store/blobs/blob_pins.h"
#include "store/objects/objstore.h"
#include "store/sources/source.h"

struct mirror_progress {
	uint64_t bytes_total, bytes_done, files_total, files_done;
	uint64_t fetched;    /* bytes that travelled in this call */
	double rate_bytes_s; /* over the last seconds */
	bool storing;        /* all is here, and is put into the object store */
};

struct mirror_want { /* of the files that are not here */
	uint64_t bytes;
	uint64_t held; /* of these, what earlier tries have on the disk already */
};

struct mirror_job {
	struct blobs *blobs;
	/* Gets all that is written and relied on: it stays until the caller frees the pins. */
	struct blob_pins *pins;
	struct source *source;
	const struct source_listing *listing;
	/* NULL: none. Blobs that it has, and that the source promises, need not travel: the
	 * manifest names them all the same. */
	struct objstore *objects;
	/* Both may be NULL. Is there room? Asked once, before anything travels, when something is
	 * missing. And so much of it is a blob now. */
	int (*room)(void *arg, const struct mirror_want *want, struct err *err);
	void (*stored)(void *arg, uint64_t bytes);
	void (*progress)(void *arg,
	                 const struct mirror_progress *p); /* about once a second, and at the end */
	void *arg;
	const atomic_bool *cancel;
};

/* Checks free space first: ERR_NO_SPACE with both sizes. On failure nothing is published; what was
 * fetched stays for the next try. */
int mirror_fetch(const struct mirror_job *job, struct digest *manifest,
                 struct mirror_progress *done, struct err *err) MUST_CHECK;

#endif
