/* pairs.h - numbers to numbers: a hash table of 16 bytes a row, for structures with a million of
 * them. Internal to the layer. */
#ifndef PAIRS_H
#define PAIRS_H

#include "base/buf.h"

#define PAIRS_MAX ((size_t)4 << 20)

struct pair {
	uint64_t key, value; /* value PAIRS_NONE: the place is free */
};
#define PAIRS_NONE UINT64_MAX

struct pairs {
	struct pair *at;
	size_t n, cap; /* cap: a power of two */
};

void pairs_done(struct pairs *t);
#define AUTO_PAIRS CLEANUP(pairs_done)
/* PAIRS_NONE when it is not there. */
uint64_t pairs_get(const struct pairs *t, uint64_t key);
/* Sets it, whatever it was (value is not PAIRS_NONE); false: PAIRS_MAX rows are there,
 * or the keys were made to collide. */
bool pairs_set(struct pairs *t, uint64_t key, uint64_t value) MUST_CHECK;
uint64_t pairs_key(struct str text); /* 64 bits of a text */

#endif
