/*
 * mountinfo.h - /proc/self/mountinfo, and by it the other names of a file: a folder that is hidden
 * must be hidden everywhere that its file system is mounted too.
 */
#ifndef MOUNTINFO_H
#define MOUNTINFO_H

#include "base/arena.h"

#define MOUNTINFO_MAX ((size_t)4 << 20) /* of its text */
#define MOUNTINFO_NAMES_MAX 64          /* that one file may have */

struct mountinfo {
	struct str device; /* "major:minor" */
	const char *root;  /* which folder of the file system */
	const char *at;    /* is shown here */
};

/* The next line of the text; false at its end. */
bool mountinfo_next(struct arena *a, struct str *text, struct mountinfo *out);
/* Where else the file or folder `path` (resolved) is to be seen, or a part of it: at most
 * MOUNTINFO_NAMES_MAX, in `a`; their number. File systems inside of others (an overlay's layers, a
 * snapshot) are not known by this. */
size_t mountinfo_names(struct arena *a, struct str text, const char *path,
                       const char *out[MOUNTINFO_NAMES_MAX]);

#endif
