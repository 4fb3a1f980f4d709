/*
 * tree.h - the node cache: a manifest as a directory of hard links, published by one rename, held
 * by a shared flock on its lease file while it is mounted (a crash releases it), evicted in LRU
 * order.
 *
 *   <dir>/trees/<manifest>/...      complete, or not there; files 0444, folders 0555
 *   <dir>/leases/<manifest>.lease   flock: shared = mounted, exclusive = being made or evicted
 *   <dir>/tmp/                      being made; swept at open
 *   <dir>/blobs/ab/<64 hex>         what came from an object store: one more name of a tree's file,
 *                                   so that the next tree links it; it goes when no tree has it
 *   <dir>/built/, <dir>/failed/     trees that programs made: built.h
 *   <dir>/making/<name>/            where a process may fill them that may write nowhere else
 *   <dir>/damaged/<manifest>-<id>   set aside while it was held, with its lease file beside it;
 *                                   swept at open once nobody holds it
 *
 * Where blobs and trees are on one file system a blob is linked, not copied: one machine keeps one
 * copy. Otherwise it is copied, or fetched from the object store, and verified. The budget counts
 * trees' bytes, those being made too.
 */
#ifndef TREE_H
#define TREE_H

#include "store/blobs/blob.h"
#include "store/objects/objstore.h"

#include <stdatomic.h>

struct node_cache;
#define NODE_CACHE_TREES "trees"
#define NODE_CACHE_BUILT "built"
#define NODE_CACHE_MAKING "making"

int node_cache_open(struct node_cache **out, const char *dir, uint64_t budget_bytes,
                    struct err *err) MUST_CHECK;
/* The same for who keeps house in a cache that others write whom it does not trust: no path of it
 * goes through a link (for root, from Linux 5.14 on), what is no folder makes way for one, and what
 * cannot be swept is said. The kernel links nothing into it from outside
 * then: no tree is made here. */
int node_cache_open_strange(struct node_cache **out, const char *dir, uint64_t budget_bytes,
                            struct err *err) MUST_CHECK;
void node_cache_close(struct node_cache *c);
/* Makes making/<name> in the cache at `dir`, and opens it: -1 on error. */
int node_cache_making(const char *dir, const char *name, struct err *err) MUST_CHECK;
/* Removes what is in making/ of processes that have ended, as is_over() knows. */
int node_cache_sweep_making(struct node_cache *c, bool (*is_over)(void *arg, const char *name),
                            void *arg, struct err *err) MUST_CHECK;
DEFINE_CLEANUP(struct node_cache, node_cache_close)
#define AUTO_NODE_CACHE CLEANUP(node_cache_close_p)

/* Where a tree's files come from, in this order, behind what the cache itself has. */
struct tree_from {
	struct blobs *blobs;      /* on this machine; NULL: none */
	struct objstore *objects; /* blob_objects.h; NULL: none */
	/* The same of a process of this machine that has them in a folder, and links them for us;
	 * NULL: none. Before `objects`, which may be the same store, or have what this one lacks.
	 */
	struct objstore *mirror;
};

/* The list of files that a tree has. */
int tree_manifest(const struct tree_from *from, struct arena *a, const struct digest *name,
                  struct manifest *list, struct err *err) MUST_CHECK;

struct node_lease {
	int fd;                 /* close it to give the lease back */
	char path[FS_PATH_MAX]; /* of the tree */
	bool hit;               /* it was already there */
	uint64_t bytes, files;
	uint64_t fetched; /* of these bytes, what came from the object store for this call */
};

/* The tree of this manifest, leased. Made from `from` when missing: space is found by eviction
 * first (ERR_NO_SPACE with sizes when it is larger than the budget, ERR_NODE_CACHE_FULL when too
 * much is leased: it may be tried again). Processes that ask at the same time wait for the one that
 * makes it. */
int node_cache_tree(struct node_cache *c, const struct tree_from *from,
                    const struct digest *manifest,
                    void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                    const atomic_bool *cancel, struct node_lease *out, struct err *err) MUST_CHECK;
/* ERR_BUSY while somebody holds it. */
int node_cache_drop(struct node_cache *c, const struct digest *manifest,
                    struct err *err) MUST_CHECK;
/* A file of the tree is damaged: nobody is given this tree again. Unused, it is removed; in use, it
 * moves to damaged/ and those who have it mounted keep it. *held says which. */
int node_cache_quarantine(struct node_cache *c, const struct digest *manifest, bool *held,
                          struct err *err) MUST_CHECK;
/* The same for a tree that was made before `before_ms` of the wall clock. */
int node_cache_renew(struct node_cache *c, const struct digest *manifest, int64_t before_ms,
                     bool *held, struct err *err) MUST_CHECK;
struct node_tree {
	struct digest manifest;
	uint64_t alone;  /* bytes of files that have no other name: what removing it frees */
	uint64_t copied; /* bytes of files that are no links to blobs of `from` */
	int64_t used_ms;
	bool held;
	bool built; /* by a program (built.h): no manifest names it */
};
/* Calls fn with each tree; what is being made or evicted is passed over. -1 of fn ends it. */
int node_cache_each(struct node_cache *c, const struct tree_from *from,
                    int (*fn)(void *arg, const struct node_tree *t, struct err *err), void *arg,
                    struct err *err) MUST_CHECK;
/* Re-reads those files of a tree that are no links to blobs: ERR_CORRUPT with the first that is not
 * what the manifest says. `step` as for blobs_verify. A tree that is gone is fine. */
int node_cache_verify(struct node_cache *c, const struct tree_from *from,
                      const struct digest *manifest,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err) MUST_CHECK;
int node_cache_usage(struct node_cache *c, uint64_t *trees, uint64_t *bytes, uint64_t *leased,
                     struct err *err) MUST_CHECK;
/* Bytes of the trees that a program made, or is making, and that somebody holds. */
int node_cache_built_held(struct node_cache *c, uint64_t *bytes, struct err *err) MUST_CHECK;
/* Trees against their manifests in `from`: sizes, and digests when `deep`. First fault is the
 * error. */
int node_cache_check(struct node_cache *c, const struct tree_from *from, bool deep,
                     struct err *err) MUST_CHECK;

#endif
