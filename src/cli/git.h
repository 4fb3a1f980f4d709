/* git.h - what git knows about a folder: its commit, and which files it tracks. */
#ifndef GIT_H
#define GIT_H

#include "base/arena.h"
#include "base/map.h"

struct git {
	const char *top;    /* root of the work tree, absolute; NULL: there is none */
	const char *prefix; /* the folder below it: "jobs/a/", "" for the root */
	const char *commit, *branch, *remote; /* NULL: none, or git is not installed */
	bool dirty; /* there are changes, or files, that the commit does not have */
	/* Paths below the folder that git tracks although an ignore file names them, and the
	 * folders above these. Never NULL. */
	struct map *tracked;
};

/* Never fails: what cannot be told is left empty. */
void git_look(struct arena *a, const char *folder, struct git *out);
void git_done(struct git *g);
/* The URL of a remote without user, password and query. For tests as well. */
const char *git_plain_url(struct arena *a, const char *url);

#endif
