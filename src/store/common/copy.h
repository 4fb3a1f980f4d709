/*
 * copy.h - bytes from one file to another: in the kernel (shared extents where the file system has
 * them) when nobody asks what they are, else read once and hashed by a thread of its own while they
 * are written, so that a copy costs what SHA-256 costs and no more.
 */
#ifndef COPY_H
#define COPY_H

#include "base/fs.h"
#include "base/hash.h"

#include <stdatomic.h>

struct copy_job {
	int from, to;
	uint64_t from_at, to_at,
		size;          /* a source that ends early is ERR_CONFLICT: it has changed */
	struct digest *sha256; /* where the digest goes; NULL: not wanted */
	bool drop_from;        /* the source's pages are not needed again */
	bool holes; /* `to` is empty: what the source has no blocks for gets none there either */
	void (*progress)(void *arg, uint64_t bytes); /* bytes so far, every few MiB; may be NULL */
	void *arg;
	const atomic_bool *cancel; /* may be NULL */
};

int copy_run(const struct copy_job *job, struct err *err) MUST_CHECK;
/* The pages of a file that was synced go: training's page cache is left alone. */
void copy_drop(int fd);

#endif
