/* hub_pull.h - pull requests, without I/O: their words, and what a merge makes of three listings.
 */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "core/hub.h"
#include "core/model.h"

const char *hub_pull_word(enum model_pull_status s); /* "open" */
/* False: of none. */
bool hub_pull_status(const char *word, enum model_pull_status *out);

/* Is it the same content, stored the same way? NULL is a file that is not there. */
bool hub_file_same(const struct hub_file *x, const struct hub_file *y);

struct hub_merged {
	const struct hub_file *f; /* of ours or theirs */
	bool theirs;
};

struct hub_merge {
	struct hub_merged *file; /* sorted by path */
	size_t n;
	const char **conflict; /* paths that both have changed differently; sorted */
	size_t n_conflicts;
};

/* What one side has left as it was in `base` is as the other side has it. A file where the other
 * side has made a folder is a conflict, too. Listings are finished; the result points into them. */
void hub_merge(struct arena *a, const struct hub_listing *base, const struct hub_listing *ours,
               const struct hub_listing *theirs, struct hub_merge *out);

struct hub_change {
	const struct hub_file *before, *after; /* NULL: it was not there, or is not */
};
/* The files that differ, by path; at most `max` of them. */
void hub_changes(struct arena *a, const struct hub_listing *before, const struct hub_listing *after,
                 size_t max, struct hub_change **out, size_t *n);

#endif
