/*
 * compile_why.h - why a job had to compile what it compiled, without I/O: its entries beside what
 * was stored when it began, and the facts that harvests have left.
 *
 * A compiler's name of an entry is a hash, which says that something differs and not what. What
 * does is found beside it: flags and versions in small files of the entry, and in the facts of the
 * harvest that stored the nearest other one.
 */
#ifndef COMPILE_WHY_H
#define COMPILE_WHY_H

#include "base/doc.h"
#include "core/compile_cache.h"

enum compile_reason {
	COMPILE_FIRST,    /* nothing of this kind was stored */
	COMPILE_DEVICE,   /* something was, for others */
	COMPILE_COMPILER, /* another version */
	COMPILE_FLAGS,
	COMPILE_PATH, /* the compiler looked elsewhere */
	COMPILE_CODE, /* other shapes or code */
	COMPILE_REASON_COUNT
};
extern const char *const compile_reason_word[COMPILE_REASON_COUNT]; /* for people */

struct compile_why {
	struct arena *arena;
	const char *const *made; /* paths in the repository that the job has added */
	size_t n_made;
	const char *const *stored; /* those that were there before */
	size_t n_stored;
	const struct doc *facts; /* of the job's harvest: a map of texts; or NULL */
	/* Harvests before it, as they are in the repository: "device", "facts", "entries". */
	const struct doc *const *earlier;
	size_t n_earlier;
	/* A small file of either; empty: it cannot be read. */
	struct str (*read)(void *arg, const char *path, bool stored);
	void *arg;
};

struct compile_miss {
	enum compile_kind kind;
	const char *device; /* "" where the kind knows none */
	const char *entry;
	size_t files;
	enum compile_reason reason;
	const char *detail; /* a clause: what differs, or what is there */
};

/* One for each entry, in the order in which they come. Returns how many; they lie in the arena. */
size_t compile_cache_why(const struct compile_why *w, struct compile_miss **out);

#endif
