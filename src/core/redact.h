/*
 * redact.h - secrets out of a stream of bytes, by value, across chunk borders: also their base64
 * (all three alignments), percent-encoded and JSON-escaped forms. Values under 8 characters are
 * left alone: they would blot out ordinary text.
 */
#ifndef REDACT_H
#define REDACT_H

#include "base/buf.h"

#define REDACT_MIN 8
#define REDACT_VALUES_MAX 1000
#define REDACT_TOTAL_MAX ((size_t)256 << 10) /* bytes of all values */
#define REDACT_REPLACEMENT "[redacted]"

struct redact; /* the patterns: immutable once built, shared by threads */

struct redact *redact_new(void) MUST_CHECK;
void redact_free(struct redact *r);
DEFINE_CLEANUP(struct redact, redact_free)
#define AUTO_REDACT CLEANUP(redact_free_p)
/* Multi-line values are also taken line by line. */
int redact_add(struct redact *r, struct str value, struct err *err) MUST_CHECK;
void redact_build(struct redact *r);
size_t redact_longest(const struct redact *r); /* bytes that must be held back at a border */

/* A whole text. */
void redact_text(const struct redact *r, struct str text, struct buf *out);

/* A stream: what may still become a secret is held back until the next bytes or the flush. */
struct redact_stream {
	const struct redact *r;
	struct buf held;   /* bytes that are not out yet */
	struct buf marks;  /* one a byte of held: is it part of a secret, and the first of it? */
	uint32_t at;       /* node of the automaton */
	size_t start, end; /* last secret seen, in held */
	bool covered;      /* the last byte that left held was part of a secret */
};
void redact_stream_init(struct redact_stream *s, const struct redact *r);
void redact_stream_done(struct redact_stream *s);
void redact_feed(struct redact_stream *s, struct str bytes, struct buf *out);
void redact_flush(struct redact_stream *s, struct buf *out);

#endif
