/*
 * tar.h - job archives over libarchive; its only user. Packs a folder, and unpacks into one that
 * nothing can escape.
 */
#ifndef TAR_H
#define TAR_H

#include "base/arena.h"

#define TAR_ENTRIES_MAX 1000000
#define TAR_BYTES_MAX ((uint64_t)5 << 30) /* the truss client's own cap on an archive */
#define TAR_UNPACK_MAX ((uint64_t)50 << 30)
#define TAR_RATIO_MAX 1000 /* unpacked / packed, once above 64 MiB: a bomb */

#define TAR_LARGEST 5
#define TAR_PATH_CAP 4097

struct tar_report {
	uint64_t entries, bytes; /* packed or unpacked content */
	uint64_t files;          /* entries that are no folders; of packing only */
	uint64_t skipped;        /* files and folders that were not wanted */
	uint64_t links;          /* left out because they lead out of the folder */
	uint64_t specials;       /* pipes, sockets and devices that `special` was told of */
	uint64_t lowered;        /* unpacked files without their setuid, setgid or sticky bit */
};

/* Selects the files of a folder that go into an archive. Paths are relative to the root. */
struct tar_pick {
	/* Decides for each path, but for pipes, sockets and devices only whether `special` is told;
	 * a skipped folder is not entered. NULL: everything goes. */
	bool (*skip)(const char *path, bool is_dir, void *arg);
	/* Told of each symbolic link that tar_unpack would refuse, which is left out. May be NULL.
	 */
	void (*link)(const char *path, const char *target, void *arg);
	/* Told of each pipe, socket and device, which is left out. May be NULL. */
	void (*special)(const char *path, void *arg);
	void *arg;
	bool looked; /* the caller has used tar_look: tar_pack does not look again */
};

struct tar_large {
	char path[TAR_PATH_CAP];
	uint64_t bytes;
};

/* How much tar_pack would pack. `largest` (may be NULL): the largest files, the largest first; what
 * there is none of has no path. ERR_TOO_BIG above bytes_max (0 = TAR_BYTES_MAX) or TAR_ENTRIES_MAX,
 * naming the largest files. */
int tar_look(int root_dirfd, const struct tar_pick *pick, uint64_t bytes_max,
             struct tar_report *report, struct tar_large largest[TAR_LARGEST],
             struct err *err) MUST_CHECK;

/* Packs what is below root_dirfd as zstd-compressed pax tar into fd: sorted names, mtime and mode
 * kept, owner 0:0, symbolic links kept as they are, holes kept, sockets and devices left out; each
 * name of a file with several gets its own copy. The same content makes the same bytes. Looks
 * first: nothing is written when that fails. pick and report may be NULL. */
int tar_pack(int root_dirfd, const struct tar_pick *pick, int fd, uint64_t bytes_max,
             struct tar_report *report, struct err *err) MUST_CHECK;

struct tar_limits {
	uint64_t entries_max, bytes_max; /* 0 = the constants above */
};

/* Unpacks a tar (plain, gzip, zstd, xz, bzip2; pax, gnu, ustar) below root_dirfd. Refused with
 * ERR_INVALID "archive entry <name>: <reason>": absolute paths, "..", devices, fifos, sockets,
 * symbolic links whose target leads out of the root (absolute ones too, and those with ".." after a
 * name, see beneath.h), hard links to what is not an earlier entry, writing through a link, names
 * over 4096 bytes (a NUL ends a name, as the formats have it); ERR_TOO_BIG for bombs. setuid,
 * setgid and sticky bits and owners are dropped (those of files are counted); folders are always
 * open to their owner, and their times are not kept. Hard links may come in any order of names. A
 * later entry replaces an earlier one of the same name. On failure what was unpacked stays; the
 * caller removes the root. report may be NULL. */
int tar_unpack(int fd, int root_dirfd, const struct tar_limits *limits, struct tar_report *report,
               struct err *err) MUST_CHECK;

#endif
