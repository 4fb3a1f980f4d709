/*
 * bring.h - one file of a source becomes a blob: small ones in memory, others into a temporary file
 * that survives a kill, large ones over several streams. Who follows may read the temporary file up
 * to the front, before it is verified; it is a blob when it is.
 */
#ifndef BRING_H
#define BRING_H

#include "store/blobs/blob_batch.h"
#include "store/blobs/blob_pins.h"
#include "store/sources/source.h"

#define BRING_SMALL_MAX ((uint64_t)1 << 20) /* kept in memory while it is fetched */
#define BRING_NAME_CAP 96

struct bring_job {
	struct blobs *blobs;
	struct blob_pins *pins; /* gets the blob */
	struct source *source;
	const struct source_file *file;
	/* Where small ones wait for their sync, or NULL: each is on the disk at the end. */
	struct blob_batch *batch;
	unsigned streams_max; /* 0: as many as help */
	/* All may be NULL. Bytes that travelled, from any thread; what is done, and the front, as
	 * of xfer.h; the descriptor of a file that is not small, which is open until the end. */
	void (*travelled)(void *arg, size_t n);
	void (*progress)(void *arg, uint64_t done);
	void (*opened)(void *arg, int fd);
	void (*front)(void *arg, uint64_t bytes);
	void *arg;
	const atomic_bool *cancel;
};

/* While another fetch of the same content is under way, it is followed: opened, front and progress
 * are called as for a fetch of one's own, and again when that one has failed. ERR_CORRUPT when it
 * is not what was promised: nothing is left of it then. */
int bring_file(const struct bring_job *job, struct digest *sha256, struct err *err) MUST_CHECK;

/* The name of a file below tmp/ while it is fetched: the same for all who want these bytes. */
void bring_tmp_name(const struct source *s, const struct source_file *f, char out[BRING_NAME_CAP]);

#endif
