/*
 * awschunked.h - Content-Encoding: aws-chunked, as SDKs send bodies whose checksum they know only
 * at the end: chunks with their size in hex, then trailers. A decoder that is fed what comes; pure.
 *
 *   400;chunk-signature=...\r\n <0x400 bytes> \r\n ... 0\r\n x-amz-checksum-crc32:AAAAAA==\r\n \r\n
 */
#ifndef AWSCHUNKED_H
#define AWSCHUNKED_H

#include "base/buf.h"

#define AWSCHUNKED_LINE_MAX 512 /* a signature has 64 digits, a checksum 88 */
#define AWSCHUNKED_TRAILERS_MAX 8
#define AWSCHUNKED_CHUNK_MAX ((uint64_t)5 << 30)

enum awschunked_state {
	AWSCHUNKED_SIZE,    /* in the line with the size of a chunk */
	AWSCHUNKED_DATA,    /* in its bytes */
	AWSCHUNKED_DATA_CR, /* behind them */
	AWSCHUNKED_DATA_LF,
	AWSCHUNKED_TRAILER, /* in a line after the last chunk */
	AWSCHUNKED_END,     /* the empty line was seen */
};

struct awschunked {
	enum awschunked_state state;
	uint64_t left; /* of the chunk */
	char line[AWSCHUNKED_LINE_MAX];
	size_t line_n, n_trailers;
	/* The line before a chunk: its size and what is behind that, ";chunk-signature=...". May be
	 * NULL; so may those below. */
	int (*chunk)(void *arg, uint64_t size, struct str extension, struct err *err);
	void (*data)(void *arg, const void *p, size_t n); /* some of a chunk's bytes */
	/* A trailer; name and value are valid during the call. */
	int (*trailer)(void *arg, struct str name, struct str value, struct err *err);
	void *arg;
};

/* Takes bytes off *in and puts the payload into out, at most cap; *n is how many. Comes back when
 * *in is empty or out is full. ERR_INVALID "IncompleteBody: ..." for what is no such body, also for
 * bytes behind its end. */
int awschunked_feed(struct awschunked *c, struct str *in, char *out, size_t cap, size_t *n,
                    struct err *err) MUST_CHECK;
bool awschunked_done(const struct awschunked *c); /* the end was seen */

#endif
