/* tree_inner.h - what the files of the node cache share. */
#ifndef TREE_INNER_H
#define TREE_INNER_H

#include "store/blobs/tree.h"

#include "store/blobs/lease.h"

#define TREE_DAMAGED "damaged"
#define TREE_BUILT NODE_CACHE_BUILT
#define TREE_FAILED "failed"
#define TREE_SIZES "sizes"
#define TREE_BLOBS "blobs"

struct node_cache {
	unsigned magic;
#define NODE_CACHE_MAGIC 0x534e4f44U
	char *dir;
	int fd;
	uint64_t budget;
};

/* Is there a tree (folder "trees"), or one that is being made ("tmp")? */
bool tree_exists(struct node_cache *c, const char *folder, const char *hex);
/* With the tree's lease held exclusively: the tree, what its maker left, and the lease file. */
int tree_remove(struct node_cache *c, const char *hex, struct err *err) MUST_CHECK;
/* Makes room for this tree, whose lease is held exclusively, and counts it, in one step for all
 * processes. Again with other numbers: those count. */
int tree_reserve(struct node_cache *c, const char *hex, int lease, const struct lease_text *text,
                 struct err *err) MUST_CHECK;
/* Removes trees that were set aside and that nobody holds any more. */
int tree_sweep_quarantine(struct node_cache *c, struct err *err) MUST_CHECK;
/* Calls fn with each name (64 hex) in a folder whose entries end in `end`. */
int tree_each(struct node_cache *c, const char *folder, const char *end,
              int (*fn)(void *arg, const char *hex, struct err *err), void *arg,
              struct err *err) MUST_CHECK;

/* tree_make.c: with the tree's lease held exclusively. A failure leaves what is in tmp/. */
struct tree_want {
	const struct tree_from *from;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	const atomic_bool *cancel;
	uint64_t fetched; /* out: bytes that came from the object store */
};
int tree_make(struct node_cache *c, const char *hex, int lease, const struct manifest *list,
              struct tree_want *want, struct err *err) MUST_CHECK;

/* tree_fetch.c: files of a tree that is being made. */
/* Linked from what the cache has of it: true. The folder of the path is there. */
bool tree_link_own(struct node_cache *c, const struct digest *d, int root, const char *path);
struct tree_fetch {
	struct node_cache *c;
	struct objstore *objects;
	int root; /* of the tree; its folders are there */
	const struct manifest_file *const *file;
	size_t n;
	void (*progress)(void *arg, uint64_t bytes); /* so far; from the caller's thread */
	void *arg;
	const atomic_bool *cancel;
};
/* Each is verified, synced and one more name in the cache's blobs. */
int tree_fetch(const struct tree_fetch *f, struct err *err) MUST_CHECK;
/* Removes the names of blobs that no tree has any more. all: every name, for one of the files is
 * damaged; trees keep theirs. */
int tree_sweep_blobs(struct node_cache *c, bool all, struct err *err) MUST_CHECK;

/* built.c: trees that a program made. */
/* Does this folder (trees/<key>, tmp/<key>) stand for one? */
bool tree_is_built(struct node_cache *c, const char *folder);
/* The folder, and the built tree that it stands for. */
int tree_remove_folder(struct node_cache *c, const char *folder, struct err *err) MUST_CHECK;
/* Removes what killed makers left, and old failures. */
int tree_sweep_built(struct node_cache *c, struct err *err) MUST_CHECK;
int tree_built_sum(struct node_cache *c, const char *hex, uint64_t *bytes,
                   struct err *err) MUST_CHECK;
/* Against its list; deep: the bytes of its files too. */
int tree_verify_built(struct node_cache *c, const char *hex, bool deep,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err) MUST_CHECK;

#endif
