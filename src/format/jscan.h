/*
 * jscan.h - JSON as a stream of tokens, of any size, without a tree. Internal to the layer.
 *
 * base/json.h is strict and builds a tree; this one takes what Python's json writes (NaN, Infinity,
 * lone surrogates, NUL escapes, equal keys), reads in windows, and tells a text that ends in the
 * middle from one that is not JSON.
 */
#ifndef JSCAN_H
#define JSCAN_H

#include "format/look.h"

#define JSCAN_DEPTH_MAX 1024 /* Python's json gives up at about as much */
#define JSCAN_TEXT_MAX                                                                             \
	1024 /* of a key or text that is kept; what is longer is only passed over                  \
	      */

enum jscan_token {
	JSCAN_MAP,
	JSCAN_MAP_END,
	JSCAN_LIST,
	JSCAN_LIST_END,
	JSCAN_KEY,
	JSCAN_TEXT,
	JSCAN_NUMBER,
	JSCAN_WORD, /* true, false, null */
	JSCAN_DONE, /* one value was read; what follows it was not looked at (jscan_rest) */
	JSCAN_CUT,  /* the text ends in the middle */
	JSCAN_BAD,  /* not JSON, or too deep */
	JSCAN_GONE, /* the reader failed, or a limit */
};

struct jscan {
	struct look *l;
	uint64_t at; /* of the next byte */
	const uint8_t *p;
	size_t n;
	unsigned depth;
	bool comma, value,
		begun; /* a comma may come; a value must come; the first token was read */
	bool over;     /* the text is longer than what is kept of it */
	bool zero;     /* a byte 0 was met: no JSON has one */
	size_t len;
	char text[JSCAN_TEXT_MAX + 1]; /* of the last key, text, number or word */
	uint8_t map[JSCAN_DEPTH_MAX];
};

void jscan_start(struct jscan *s, struct look *l, uint64_t at);
enum jscan_token jscan_next(struct jscan *s);
/* After JSCAN_DONE: is there anything but blanks? Moves to it. */
bool jscan_rest(struct jscan *s);
/* Passes over the value that `t` began; its last token. */
enum jscan_token jscan_skip(struct jscan *s, enum jscan_token t);
struct str jscan_text(const struct jscan *s);
/* The last number as a whole one >= 0; false when it is not, or over 2^63. */
bool jscan_u64(const struct jscan *s, uint64_t *v);
static inline bool jscan_failed(enum jscan_token t)
{
	return t == JSCAN_CUT || t == JSCAN_BAD || t == JSCAN_GONE;
}
/* Torn, not known or nothing, as the token says. */
void jscan_verdict(struct jscan *s, enum jscan_token t);

#endif
