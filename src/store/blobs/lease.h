/*
 * lease.h - the lease file of one tree in a node cache: leases/<manifest>.lease. Its lock says who
 * uses (shared) or makes and removes (exclusive) the tree, its text how large the tree is and how
 * often it was asked for, its mtime when last. flock: local disks only, given back by the kernel
 * when a holder dies. It is removed with its tree, so a lock counts only while the file has its
 * name.
 */
#ifndef LEASE_H
#define LEASE_H

#include "base/fs.h"

#include <stdatomic.h>

struct lease_text {
	uint64_t bytes, files, uses;
};

/* `how` is LOCK_SH or LOCK_EX; dirfd is the cache's folder, hex the manifest. fd or -1: ERR_BUSY
 * when somebody holds it otherwise. The file is made when missing. */
int lease_try(int dirfd, const char *hex, int how, struct err *err) MUST_CHECK;
/* Shared, and waited for: as long as making a tree may take. Nobody waits so for one who uses it.
 */
#define LEASE_WAIT_MS ((int64_t)24 * 3600 * 1000) /* a model may be large */
int lease_wait(int dirfd, const char *hex, const atomic_bool *cancel, struct err *err) MUST_CHECK;
/* Another descriptor of a lease that is held shared, which holds it shared too and cannot be
 * written: for a process that may only hold it. */
int lease_to_hold(int fd, struct err *err) MUST_CHECK;
/* Is this descriptor still the file of that name? Asked once it is locked. */
bool lease_is_named(int dirfd, int fd, const char *hex);
/* All zero when there is nothing to be read: a lease that was made and not filled. */
struct lease_text lease_read(int fd);
int lease_write(int fd, const struct lease_text *t, struct err *err) MUST_CHECK;

#endif
