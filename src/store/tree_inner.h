/* tree_inner.h - what the files of the node cache share. */
#ifndef TREE_INNER_H
#define TREE_INNER_H

#include "store/tree.h"

#define TREE_DAMAGED "damaged"

struct node_cache {
	char *dir;
	int fd;
	uint64_t budget;
};

/* Is there a tree (folder "trees"), or one that is being made ("tmp")? */
bool tree_exists(struct node_cache *c, const char *folder, const char *hex);
/* With the tree's lease held exclusively: the tree, what its maker left, and the lease file. */
int tree_remove(struct node_cache *c, const char *hex, struct err *err) MUST_CHECK;
/* Removes trees that were set aside and that nobody holds any more. */
int tree_sweep_aside(struct node_cache *c, struct err *err) MUST_CHECK;
/* Calls fn with each name (64 hex) in a folder whose entries end in `end`. */
int tree_each(struct node_cache *c, const char *folder, const char *end,
              int (*fn)(void *arg, const char *hex, struct err *err), void *arg,
              struct err *err) MUST_CHECK;

#endif
