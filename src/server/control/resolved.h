/*
 * resolved.h - what a job really gets, decided once and kept in its row: revisions and manifests of
 * its weights, which of them are repositories of ours, checkpoints that it loads, code archives,
 * its image. A retry and a recreated job start from it, so they run with the same bytes.
 */
#ifndef RESOLVED_H
#define RESOLVED_H

#include "server/app.h"

struct resolved_load {
	const char *name, *job_id, *project_id;
	uint32_t *ranks; /* the ranks that have a part of it */
	size_t n_ranks;
	bool latest; /* it was chosen, not named: a retry puts the job's own in its place */
};

/* What a source meant when the job was pushed: see data/fetch_own.h. */
struct resolved_own {
	const char *source, *repo_id;
	bool last;
};

struct resolved {
	struct wire_weights *weights;
	size_t n_weights;
	struct resolved_own *own;
	size_t n_own;
	struct resolved_load *load;
	size_t n_load;
	bool has_resume, has_image;
	/* Of a retry: the job's own newest. It is not part of what a recreated job starts from. */
	struct resolved_load resume;
	struct wire_code *code;
	size_t n_code;
	bool has_compile; /* the caches of compilers that this attempt begins with */
	struct wire_compile compile;
	struct wire_image image; /* by the first runner that staged it */
};

void resolved_write(const struct resolved *f, struct buf *out);
/* json NULL: an empty one. */
int resolved_read(struct arena *a, const char *json, struct resolved *out,
                  struct err *err) MUST_CHECK;
/* The manifests that it names. */
void resolved_manifests(struct arena *a, const struct resolved *f, const char ***out, size_t *n);
/* The checkpoint to go on from, then those of f->load: n_load + 1 of them; NULL: there is none. */
const struct resolved_load *resolved_load(const struct resolved *f, size_t i);
/* The repository of ours that a source means, or NULL. */
const struct resolved_own *resolved_own(const struct resolved *f, const char *source);
/* The weights frozen for this source and mount, or NULL. */
const struct wire_weights *resolved_find(const struct resolved *f, const struct spec_weights *w);

#endif
