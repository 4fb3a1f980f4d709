/*
 * nameless.h - files without a name that processes hold, open or mapped: O_TMPFILE, or unlinked
 * meanwhile. They take room and inodes, and no walk of folders finds them. A file is without a name
 * too when the spool alone (ship.h) has one: the job removed it, and goes on writing.
 *
 * Not found: files that are on their way through a socket, those of processes that this user may
 * not look into, and, without being root, those that are only mapped.
 */
#ifndef NAMELESS_H
#define NAMELESS_H

#include "base/buf.h"

#include <stdatomic.h>

#define NAMELESS_KINDS 8

struct nameless {
	const char *path; /* where its last name was, as the process sees it */
	dev_t dev;
	bool overlay; /* whose files may have a `dev` of their own */
	bool spooled; /* the spool has a name of it, and nobody else has */
};

struct nameless_total {
	uint64_t files, disk_bytes;
};

struct nameless_search {
	const pid_t *pids;
	size_t n;
	const char *spool; /* folder; NULL: there is none */
	/* Where to add it up; -1 leaves it out. */
	int (*kind_of)(void *arg, const struct nameless *f);
	void *arg;
	const atomic_bool *cancel;
};

/* Adds up the nameless files of these processes, each once, by kind. False: there are more
 * descriptors than are looked at, or canceled. */
bool nameless_count(const struct nameless_search *what, struct nameless_total sum[NAMELESS_KINDS]);

#endif
