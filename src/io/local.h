/*
 * local.h - sockets of this machine alone: by a path of any length, with the other end's user, and
 * with descriptors that travel through them (unix(7)).
 */
#ifndef LOCAL_H
#define LOCAL_H

#include "base/err.h"

#include <sys/types.h>

/* Listens at `path`, whose folder must be there; what was left of an earlier socket is replaced.
 * Mode 0600. `type`: SOCK_STREAM or SOCK_SEQPACKET. The descriptor does not block and is closed on
 * exec. */
int local_listen(const char *path, int type, int *fd, struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND: no socket; ERR_UNAVAILABLE: nobody listens. Blocks. */
int local_connect(const char *path, int type, int *fd, struct err *err) MUST_CHECK;
/* A path that names the same socket and fits into an address; *dir is to stay open as long as it is
 * used. */
#define LOCAL_NAME_CAP 108
int local_name(const char *path, int *dir, char name[LOCAL_NAME_CAP], struct err *err) MUST_CHECK;
bool local_is(int fd); /* is it such a socket? */
/* The user at the other end: of the process that connected or, seen from there, of the one that
 * listens. */
int local_peer(int fd, uid_t *uid, struct err *err) MUST_CHECK;

/* One byte, and a descriptor with it when fd >= 0. */
int local_send(int sock, char word, int fd, struct err *err) MUST_CHECK;
/* The next one; *fd -1 = none came with it. ERR_TIMEOUT after wait_ms (-1 = never),
 * ERR_UNAVAILABLE: the other end is gone. */
int local_receive(int sock, int64_t wait_ms, char *word, int *fd, struct err *err) MUST_CHECK;

#endif
