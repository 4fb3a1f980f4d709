/*
 * fs.h - files without surprises: write-fsync-rename, names from outside resolved beneath a
 * directory handle (openat2 RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS), trees removed without
 * following a link, free space.
 */
#ifndef FS_H
#define FS_H

#include "base/buf.h"

#define FS_PATH_MAX 4096

int fs_open_dir(const char *path, struct err *err) MUST_CHECK; /* fd or -1 */
/* mkdir -p of `path` below dirfd (AT_FDCWD for absolute ones), new parts get `mode`. */
int fs_mkdirs(int dirfd, const char *path, mode_t mode, struct err *err) MUST_CHECK;
/* Opens `path` strictly beneath dirfd; symbolic links may not lead out. fd or -1. */
int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode,
                    struct err *err) MUST_CHECK;
/* mkdir -p of the plain `path` strictly beneath dirfd, through no link: fd of the last folder
 * (O_PATH), or -1. ERR_MOUNT_REFUSED when a link or a file is in the way: nothing outside was
 * touched. */
int fs_make_beneath(int dirfd, const char *path, mode_t mode, struct err *err) MUST_CHECK;
/* Calls fn for each name in the folder `fd` (taken over) but those that begin with a dot, in any
 * order; -1 of fn ends it. dirfd: the folder; what: its name, for errors. */
int fs_each_name(int fd, const char *what,
                 int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                 struct err *err) MUST_CHECK;
/* A relative path of plain parts: no empty, ".", ".." part, no NUL, bounded. */
bool fs_path_is_plain(struct str path);

/* When a file beneath the folder was changed and read last, in nanoseconds since 1970. */
int fs_set_time(int dirfd, const char *path, int64_t ns, struct err *err) MUST_CHECK;

/* Whole file, up to out's limit (ERR_TOO_BIG). */
int fs_read(int dirfd, const char *path, struct buf *out, struct err *err) MUST_CHECK;
/* The same of a file that somebody may have made whom we do not trust: a plain file, through no
 * link in its place, and nobody is waited for. ERR_INVALID: it is something else. */
int fs_read_strange(int dirfd, const char *path, struct buf *out, struct err *err) MUST_CHECK;
/* All or nothing: temporary name, write, fsync, rename, fsync of the directory. */
int fs_write_atomic(int dirfd, const char *path, struct str body, mode_t mode,
                    struct err *err) MUST_CHECK;
int fs_write_all(int fd, const void *p, size_t n, struct err *err) MUST_CHECK;
int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t at, struct err *err) MUST_CHECK;
int fs_pread_all(int fd, void *p, size_t n, uint64_t at,
                 struct err *err) MUST_CHECK;                             /* short = error */
int fs_sync_dir(int dirfd, const char *path, struct err *err) MUST_CHECK; /* fsync of a directory */
/* rename + fsync of the target's directory. */
int fs_rename(int from_dirfd, const char *from, int to_dirfd, const char *to,
              struct err *err) MUST_CHECK;
/* rm -rf below dirfd; links are removed, not followed; makes what it may not enter writable first.
 * Not there is success. Of any depth. Stays on one file system. */
int fs_remove_tree(int dirfd, const char *path, struct err *err) MUST_CHECK;
/* Exclusive, non-blocking flock on a file that is made when missing. fd or -1; ERR_BUSY if held. */
int fs_lock(const char *path, struct err *err) MUST_CHECK;
int fs_free_bytes(const char *path, uint64_t *free_bytes, uint64_t *total_bytes,
                  struct err *err) MUST_CHECK;
/* Files that the file system of a folder has room for, and how many more. False: it does not count
 * them, as btrfs, or says that there are none left and makes another one all the same. */
bool fs_inodes(const char *dir, uint64_t *total, uint64_t *left);
/* True for NFS, Lustre, CIFS, FUSE...: where locks and SQLite are not to be trusted. */
bool fs_is_network(const char *path);

#endif
