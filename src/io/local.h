/*
 * local.h - sockets of this machine alone: by a path of any length, with the other end's user, and
 * with descriptors that travel through them (unix(7)).
 */
#ifndef LOCAL_H
#define LOCAL_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Listens at `path`, whose folder must be there; what was left of an earlier socket is replaced.
 * Mode 0600. `type`: SOCK_STREAM or SOCK_SEQPACKET. The descriptor does not block and is closed on
 * exec. */
int local_listen(const char *path, int type, int *fd, struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND: no socket; ERR_UNAVAILABLE: nobody listens, or takes us within
 * a few seconds. */
int local_connect(const char *path, int type, int *fd, struct err *err) MUST_CHECK;
/* A path that names the same socket and fits into an address; *dir is to stay open as long as it is
 * used. */
#define LOCAL_NAME_CAP 108
int local_name(const char *path, int *dir, char name[LOCAL_NAME_CAP], struct err *err) MUST_CHECK;
bool local_is(int fd); /* is it such a socket? */
/* The user at the other end: of the process that connected or, seen from there, of the one that
 * listens. */
int local_peer(int fd, uid_t *uid, struct err *err) MUST_CHECK;
/* Of who connected: is it our own user or root that listens? Else ERR_SERVER_UNPROVEN: nobody else
 * is sent a token. */
int local_check_listener(int fd, struct err *err) MUST_CHECK;
/* This process has entered a user namespace that does not know root of the machine: it is seen as
 * nobody there, and whoever is nobody is taken for it. To be called where no path leads to a socket
 * of somebody else. */
void local_root_is_unmapped(void);

/* Messages of SOCK_SEQPACKET: at most so many bytes, and at most one descriptor. */
#define LOCAL_MESSAGE_MAX ((size_t)64 << 10)
/* With fd when it is >= 0. Never waits: ERR_BUSY when the other end does not read. ERR_UNAVAILABLE:
 * it is gone. */
int local_send_message(int sock, struct str body, int fd, struct err *err) MUST_CHECK;
/* ... but while the other end does not read: for that long. */
int local_send_within(int sock, int64_t ms, struct str body, int fd, struct err *err) MUST_CHECK;
/* Appends the next one to out; *fd -1 = none came with it. ERR_TIMEOUT after wait_ms (-1 = never),
 * ERR_UNAVAILABLE: the other end is gone. ERR_INVALID: it was larger, or had several descriptors
 * with it, which are closed. */
int local_receive_message(int sock, int64_t wait_ms, struct buf *out, int *fd,
                          struct err *err) MUST_CHECK;

/* The same of one byte. */
int local_send(int sock, char word, int fd, struct err *err) MUST_CHECK;
int local_receive(int sock, int64_t wait_ms, char *word, int *fd, struct err *err) MUST_CHECK;

#endif
