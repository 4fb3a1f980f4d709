/*
 * pack.h - the folder of a job file as archives: which files go in, which are left out and why.
 *
 * In this order, the first that names a path decides: .stokerignore (or .truss_ignore); .gitignore
 * files as git reads them, from the folder's own up to the root of its work tree, and
 * .git/info/exclude, though never against what git tracks; what is left out by default.
 *
 * Large files are in archives apart from the rest, so that what did not change has the digest that
 * it had at the last push, and is not sent again.
 */
#ifndef PACK_H
#define PACK_H

#include "base/hash.h"
#include "cli/cli.h"
#include "cli/git.h"
#include "io/tar.h"

#define PACK_ARCHIVES_MAX 16 /* as many as a job may name */
#define PACK_LINKS_SHOWN 5
#define PACK_SPECIALS_SHOWN 5

struct pack_left {
	const char *path, *by; /* by: the file whose line names it, or "default" */
	bool is_dir, more;     /* more: at least so large */
	uint64_t bytes;
};

struct pack_archive {
	int fd;
	uint64_t bytes; /* packed */
	char sha256[HASH_HEX_CAP];
};

struct pack {
	struct tar_report report;
	struct tar_large *largest; /* TAR_LARGEST of them */
	struct pack_left *left;    /* the largest first */
	size_t n_left;
	const char *link[PACK_LINKS_SHOWN],
		*target[PACK_LINKS_SHOWN];        /* the first of report.links */
	const char *special[PACK_SPECIALS_SHOWN]; /* the first of report.specials */
	const char *dotenv;                       /* a .env that is sent; NULL: none */
	struct pack_archive archive[PACK_ARCHIVES_MAX];
	size_t n_archives;
	uint64_t packed; /* bytes of all archives */
};

/* use_gitignore false: .gitignore files do not count. ERR_INVALID for a server's data folder. */
int pack_folder(struct cli *c, const char *root, const struct git *git, bool use_gitignore,
                struct pack *out, struct err *err) MUST_CHECK;
void pack_done(struct pack *p);
/* Prints to stderr what was packed, what was left out, and what probably does not belong in it. */
void pack_say(struct cli *c, const struct pack *p);

#endif
