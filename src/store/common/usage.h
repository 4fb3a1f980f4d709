/*
 * usage.h - how much a tree holds: a parallel walk with getdents64 and statx, hard links counted
 * once, one file system, links not followed.
 */
#ifndef USAGE_H
#define USAGE_H

#include "base/fs.h"

#include <stdatomic.h>

struct usage_total {
	uint64_t files, folders, links, others;
	uint64_t bytes;      /* apparent size of regular files */
	uint64_t disk_bytes; /* allocated */
	uint64_t unreadable; /* folders that could not be entered */
};

struct usage_entry {
	const char *path; /* relative to the root */
	uint64_t size;
	int64_t mtime_ns;
	mode_t mode;
	bool again; /* one more name of a file that is counted already */
};

/* Sums what is below `dir`. each (may be NULL) is called from several threads, one at a time for
 * one `slot` in [0, threads): gather per slot, no lock needed. threads 0 = two a core, at most 16.
 */
int usage_walk(const char *dir, unsigned threads,
               void (*each)(void *arg, unsigned slot, const struct usage_entry *e), void *arg,
               const atomic_bool *cancel, struct usage_total *out, struct err *err) MUST_CHECK;
/* The same of a folder that is open, which `dir` is for people. */
int usage_walk_at(int root, const char *dir, unsigned threads,
                  void (*each)(void *arg, unsigned slot, const struct usage_entry *e), void *arg,
                  const atomic_bool *cancel, struct usage_total *out, struct err *err) MUST_CHECK;
#define USAGE_THREADS_MAX 16

#endif
