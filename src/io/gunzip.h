/*
 * gunzip.h - gzip (RFC 1952), checked: the CRC-32 and the length that each member ends with are
 * those of what came out. libarchive 3.6 reads both and looks at neither.
 */
#ifndef GUNZIP_H
#define GUNZIP_H

#include "base/buf.h"

struct gunzip;

bool gunzip_begins(struct str head); /* is it gzip? two bytes tell */
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *g); /* NULL is fine */
/* Takes from *in, which moves on, and puts at most `cap` bytes into `out`; *got 0 = more input is
 * wanted. Members may follow each other, and zeros the last one. ERR_INVALID: damaged, or something
 * else follows. */
int gunzip_step(struct gunzip *g, struct str *in, void *out, size_t cap, size_t *got,
                struct err *err) MUST_CHECK;
/* There is no more input: ERR_INVALID when it ends in the middle. */
int gunzip_end(const struct gunzip *g, struct err *err) MUST_CHECK;

#endif
