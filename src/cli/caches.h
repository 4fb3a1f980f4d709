/* caches.h - what the verbs of `stoker compile-cache` share: which repository, kind and device. */
#ifndef CACHES_H
#define CACHES_H

#include "cli/hubrepo.h"
#include "core/compile_cache.h"

#define CACHES_NAME "compile-cache"        /* a team's, where nobody names another one */
#define CACHES_RECORDS ".stoker/harvests/" /* what harvests leave beside the caches */

/* The repository that a person names, or that `set` has noted, or TEAM/compile-cache. */
int caches_repo(struct cli *c, const char *word, const char **id, struct err *err) MUST_CHECK;
/* Says that it is not there, if that is the error. Returns -1. */
int caches_missing(struct cli *c, const char *id, struct err *err);
int caches_note(struct cli *c, const char *id, struct err *err) MUST_CHECK; /* for caches_repo() */
int caches_kind(const char *word, enum compile_kind *kind, struct err *err) MUST_CHECK;
/* --device, else what this machine has: its GPUs' name, and what its CPU can do. */
int caches_device(struct cli *c, const char **device, struct err *err) MUST_CHECK;

/* Where the cache of a kind is on this machine: --kind KIND=DIR, DIR/KIND of `option`, else by the
 * compiler's own variable or default. dir NULL: nowhere. */
struct caches_place {
	enum compile_kind kind;
	const char *dir;
	bool named; /* on the command line */
};
int caches_places(struct cli *c, const char *option, struct caches_place out[COMPILE_KIND_COUNT],
                  size_t *n, struct err *err) MUST_CHECK;

/* A part of a repository: a device of a kind, or a compiler's version of Neuron. */
struct caches_group {
	enum compile_kind kind;
	const char *folder; /* in the repository: "inductor/cpu", "ccache", "neuronxcc-..." */
	const char *device; /* the last part of it, "" for ccache */
};
bool caches_group_of(struct arena *a, const char *path, struct caches_group *out);
/* Do --kind and --device, where they are given, mean this file? */
int caches_wanted(struct cli *c, const struct caches_group *g, bool *is,
                  struct err *err) MUST_CHECK;

#endif
