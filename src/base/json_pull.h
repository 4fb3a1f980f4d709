/*
 * json_pull.h - JSON that comes in pieces, token by token: for what is too large to be held whole,
 * which json.h needs. The bytes may be cut anywhere, and nothing is kept of them but the state.
 *
 * A key, a text and a number come as their beginning, any number of pieces and their end. Pieces
 * are without escapes; how a text is divided into them depends on how the bytes were cut.
 *
 * As strict as js_parse(), except that a key may come twice, and numbers have any size.
 */
#ifndef JSON_PULL_H
#define JSON_PULL_H

#include "base/buf.h"

#define JS_PULL_DEPTH_MAX 16 /* maps and lists in each other */

enum js_token {
	JS_MORE, /* the bytes are used up */
	JS_MAP,
	JS_MAP_END,
	JS_LIST,
	JS_LIST_END,
	JS_KEY,    /* begins */
	JS_TEXT,   /* begins */
	JS_NUMBER, /* begins; its pieces are as it was written */
	JS_PIECE,  /* of the key, the text or the number that began last */
	JS_END,    /* of it */
	JS_TRUE,
	JS_FALSE,
	JS_NULL,
	JS_TOKEN_COUNT,
};

struct js_event {
	enum js_token token;
	struct str piece; /* of JS_PIECE; valid until the next call */
};

struct js_pull {
	uint8_t state;                 /* enum state of json_pull.c */
	uint8_t depth;                 /* maps and lists that are open */
	char stack[JS_PULL_DEPTH_MAX]; /* '{' or '[' */
	bool key;                      /* the text being read is a key */
	uint8_t number;                /* how far the number being read is */
	uint8_t word, at;              /* the word being read, and how much of it was */
	uint8_t n;                     /* bytes of a character, or digits of an escape, so far */
	uint16_t code, high;           /* of an escape; the first half of a pair */
	char ch[4];                    /* a character that was cut, or escaped */
};

void js_pull_init(struct js_pull *j); /* for one document */
/* The next token; what it took of *in is gone from it. ERR_INVALID: that is no JSON, or there is
 * something behind the document. ERR_TOO_BIG: nested too deep. Nothing may follow a failure. */
int js_pull_next(struct js_pull *j, struct str *in, struct js_event *out,
                 struct err *err) MUST_CHECK;
bool js_pull_is_new(const struct js_pull *j);  /* nothing but white space so far */
bool js_pull_is_done(const struct js_pull *j); /* a whole document */

#endif
