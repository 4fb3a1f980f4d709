/*
 * built.h - trees of the node cache that a program makes in place, such as Python environments:
 * named by what they are made from, not by what they hold. Budget, leases, eviction and single
 * flight are those of tree.h.
 *
 *   <dir>/built/<key>-<id>/     the tree itself, at the path where it was made and stays
 *   <dir>/trees/<key>/list      what it holds (built_list.h); renamed into place when it is whole
 *   <dir>/trees/<key>/tree      a link to ../../built/<key>-<id>
 *   <dir>/tmp/<key>/            the same while it is being made, and `said`: its maker's last words
 *   <dir>/failed/<key>          why the last try failed, for those who waited for it
 *   <dir>/sizes/<key>           bytes that it had, or at least needs when there was no room for it
 *
 * A tree is read-only and looked at, entry by entry, before each lease: one that was changed is set
 * aside and made again.
 */
#ifndef BUILT_H
#define BUILT_H

#include "store/blobs/tree.h"

#define BUILT_SAID_MAX 200 /* bytes of a maker's words */

struct built; /* one that is being made */

struct built_maker {
	/* Fills the empty folder `dir`, an absolute path that stays the tree's. Calls built_grow as
	 * it grows. Nothing may write to `dir` any more when it returns. */
	int (*make)(void *arg, struct built *b, const char *dir, struct err *err);
	/* Somebody else makes it; words: his last, "" = none yet. Called several times a second. */
	void (*wait)(void *arg, const char *words);
	/* The one that was there is damaged: it is set aside, and made again. May be NULL. */
	void (*damaged)(void *arg, const char *why);
	void *arg;
};

/* The tree of this key, leased: out->path is the tree. Made when it is missing; processes that ask
 * at the same time wait for the one that makes it, get its error when it fails, and when it dies
 * one of them makes it. ERR_NO_SPACE, ERR_NODE_CACHE_FULL: as tree.h says, and before it is made if
 * it was made here before, or found no room. */
int node_cache_built(struct node_cache *c, const struct digest *key, const struct built_maker *m,
                     const atomic_bool *cancel, struct node_lease *out, struct err *err) MUST_CHECK;
/* Measures what has been made and counts it, evicting others: ERR_NO_SPACE when it does not fit. */
int built_grow(struct built *b, struct err *err) MUST_CHECK;
/* For a maker: it fills this folder below dirfd and leaves `dir` empty. That one is measured,
 * through no link, and moved to `dir` when make has returned. Neither is copied. */
void built_fill_at(struct built *b, int dirfd, const char *name);
/* For those who wait. */
void built_say(struct built *b, const char *words);

#endif
