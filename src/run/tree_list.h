/* tree_list.h - what is in a folder and below: plain files and folders, whoever made them. */
#ifndef TREE_LIST_H
#define TREE_LIST_H

#include "base/arena.h"

#include <sys/stat.h>

#define TREE_LIST_MAX 500000                    /* files and folders */
#define TREE_LIST_NAMES_MAX ((size_t)128 << 20) /* bytes of all their paths */

struct tree_entry {
	const char *path; /* below the folder */
	bool is_folder;
	const char *closed; /* why a folder was not looked into; NULL: it was */
	uint64_t size, inode;
	int64_t changed_ms; /* its content, or whose it is, was changed last */
};

struct tree_list {
	struct arena *a;
	struct tree_entry *entry; /* folders before what they hold */
	size_t n, cap, names;
	bool some; /* of tree_list_some() */
};

/* `dir` is taken over. Links, sockets and so on are passed over; what goes away meanwhile is not
 * there. ERR_TOO_BIG: more than TREE_LIST_MAX, too many folders in each other, or too long names.
 */
int64_t tree_changed_ms(const struct stat *st);
int tree_list(struct tree_list *out, struct arena *a, int dir, struct err *err) MUST_CHECK;
/* The same, but a folder that is too deep, or that may not be opened, is listed as closed. */
int tree_list_some(struct tree_list *out, struct arena *a, int dir, struct err *err) MUST_CHECK;

#endif
