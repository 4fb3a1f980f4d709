/*
 * userns.h - user namespaces with maps that root chooses, as descriptors: what idmapped mounts are
 * made of, and what a job of a root server is put into.
 */
#ifndef USERNS_H
#define USERNS_H

#include "base/err.h"

struct userns_map {
	uint32_t uid, gid; /* first ids inside; of a mount: on disk */
	uint32_t host;     /* first id outside */
	uint32_t n;
};

#define USERNS_MAPS_MAX 4
/* Descriptor of a new user namespace, or -1. The caller has CAP_SETUID and CAP_SETGID over the ids
 * outside, and is dumpable unless it is root of the machine. */
int userns_make(const struct userns_map *map, struct err *err) MUST_CHECK;
/* The same with several ranges, at most USERNS_MAPS_MAX. */
int userns_make_of(const struct userns_map *map, size_t n, struct err *err) MUST_CHECK;
/* The mount below the descriptor `tree` (of open_tree) translates by that namespace. -1 with errno:
 * EINVAL when its file system cannot. */
int userns_map_mount(int tree, int userns_fd, bool recursive) MUST_CHECK;

#endif
