/*
 * base64.h - standard base64 that comes in pieces, decoded as fast as a disk writes. What is whole
 * and small is for base64_decode() of hash.h.
 *
 * Padding has to be there, and the bits that it leaves over have to be 0: one content has one text.
 * \r and \n are skipped wherever they are, for some encoders write lines.
 */
#ifndef BASE64_H
#define BASE64_H

#include "base/buf.h"

struct base64 {
	uint32_t bits; /* of the characters below */
	unsigned n;    /* characters of a group of four so far, padding counts */
	unsigned pads;
	bool ended; /* by padding */
};

#define BASE64_GROUP 3 /* bytes that a group stands for */

/* Decodes what fits of *text into out, in whole groups, so cap has to be BASE64_GROUP or more: when
 * something is left of *text, less than that is free in out. *n: the bytes that were written.
 * ERR_INVALID: that is no base64, or something follows the padding. */
int base64_feed(struct base64 *b, struct str *text, uint8_t *out, size_t cap, size_t *n,
                struct err *err) MUST_CHECK;
/* ERR_INVALID: it ends inside of a group. */
int base64_end(const struct base64 *b, struct err *err) MUST_CHECK;

#endif
