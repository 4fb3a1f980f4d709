/*
 * frozen.h - what a job really gets, decided once in CREATED and kept in its row: revisions and
 * manifests of its weights, checkpoints that it loads, code archives. A retry and a recreated job
 * start from it, so they run with the same bytes.
 */
#ifndef FROZEN_H
#define FROZEN_H

#include "server/app.h"

struct frozen_weights {
	const char *source, *revision, *mount_location, *manifest; /* manifest: 64 hex */
	uint64_t bytes, files;
};

struct frozen_load {
	const char *name, *job_id, *project_id;
	uint32_t *rank; /* the ranks that have a part of it */
	size_t n_ranks;
	bool latest; /* it was chosen, not named: a retry puts the job's own in its place */
};

struct frozen_code {
	const char *key;
	uint64_t bytes;
};

struct frozen {
	struct frozen_weights *weights;
	size_t n_weights;
	struct frozen_load *load;
	size_t n_load;
	struct frozen_load *resume; /* of a retry: the job's own newest; NULL = none. It is not
	                             * part of what a recreated job starts from. */
	struct frozen_code *code;
	size_t n_code;
};

void frozen_write(const struct frozen *f, struct buf *out);
/* json NULL: an empty one. */
int frozen_read(struct arena *a, const char *json, struct frozen *out, struct err *err) MUST_CHECK;
/* The manifests that it names. */
void frozen_manifests(struct arena *a, const struct frozen *f, const char ***out, size_t *n);
/* The weights frozen for this source and mount, or NULL. */
const struct frozen_weights *frozen_find(const struct frozen *f, const struct spec_weights *w);

#endif
