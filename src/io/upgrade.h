/*
 * upgrade.h - a connection that leaves HTTP (RFC 9110, 7.8): one request, whose answer is 101, and
 * from then on bytes both ways, under the policy of its client: guard, proof, TLS. Not blocking,
 * and for one thread at a time.
 */
#ifndef UPGRADE_H
#define UPGRADE_H

#include "io/client.h"

struct upgrade;

/* A GET of call->url with call->headers, within connect_ms and total_ms; `progress` is told of no
 * bytes, and may set `cancel`.
 * *out NULL: the server said something else, *reply has it, for http_expect(); the body cut at 64
 * KiB. Errors as of http_do(); ERR_INVALID when something on the way does not know the protocol. */
int upgrade_open(struct http_client *c, const struct http_call *call, const char *protocol,
                 struct upgrade **out, struct http_reply *reply, struct err *err) MUST_CHECK;
int upgrade_fd(const struct upgrade *u);
/* 1: *n bytes went, 0: none can now, -1: it is over. Reads until 0: TLS may hold bytes that poll()
 * does not see. */
int upgrade_read(struct upgrade *u, void *p, size_t cap, size_t *n, struct err *err) MUST_CHECK;
int upgrade_write(struct upgrade *u, struct str bytes, size_t *n, struct err *err) MUST_CHECK;
void upgrade_close(struct upgrade *u); /* NULL is fine */

#endif
