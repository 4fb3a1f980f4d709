/* set_work.h - what set.c (the verdict), set_layout.c (trainers) and set_rules.c (what must be
 * there) share. */
#ifndef SET_WORK_H
#define SET_WORK_H

#include "base/map.h"
#include "format/name.h"
#include "format/set.h"

/* A file that takes part: no temporary one, no log, no pointer. */
struct member {
	struct str path, folder, name;
	const struct set_file *file;
	const struct format_result *check; /* never NULL */
	bool named;                        /* an index or .metadata names it */
	bool leftover; /* ... of its folder does not, though it names such files */
};

struct work {
	unsigned magic;
#define WORK_MAGIC 0x54574f52U
	struct arena *a;
	const struct set_query *q;
	struct set_result *out;
	struct member *m; /* sorted by path */
	size_t n;
	struct map *by_path; /* -> struct member */
	struct map *folders; /* every folder and its parents -> itself */
	/* what proofs were found */
	size_t shards, hashes, hashes_right, indexes, splits;
	bool dcp, open_end; /* open_end: some part of the set has no proof of its number */
};

struct member *work_find(const struct work *w, struct str folder, const char *name);
bool work_has_folder(const struct work *w, struct str path);
/* Any member whose path matches the pattern? */
bool work_any(const struct work *w, const char *pattern);
char *work_join(struct work *w, struct str folder, const char *name);
void work_problem(struct work *w, enum set_fault fault, const char *path, const char *fmt, ...)
	PRINTF(4, 5);
/* Unless only a part of the nodes is here. */
void work_missing(struct work *w, const char *path);

/* set_layout.c */
const struct set_layout *layout_find(const struct work *w);
/* The layout's last file and signs of being unfinished. */
void layout_last(struct work *w);
/* set_rules.c: all of them, in their order. */
void rules_run(struct work *w);

#endif
