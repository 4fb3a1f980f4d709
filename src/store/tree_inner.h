/* tree_inner.h - what the files of the node cache share. */
#ifndef TREE_INNER_H
#define TREE_INNER_H

#include "store/tree.h"

#include "store/lease.h"

#define TREE_DAMAGED "damaged"
#define TREE_BUILT "built"
#define TREE_FAILED "failed"
#define TREE_SIZES "sizes"

struct node_cache {
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
