/* pickle_ops.h - the opcodes of pickles as rows: what follows each, and what it does to the stack.
 * Internal to the layer. */
#ifndef PICKLE_OPS_H
#define PICKLE_OPS_H

#include "format/pickle.h"

enum pickle_arg {
	ARG_NONE,
	ARG_1,
	ARG_2,
	ARG_4,
	ARG_8,
	ARG_LINE,
	ARG_LINES, /* two of them */
	ARG_N1,    /* a length of one byte, and as many bytes */
	ARG_N4,
	ARG_N8,
};

enum pickle_effect {
	DO_NOTHING_KNOWN, /* no such opcode */
	DO_PUSH,          /* pops `pop`, pushes a value that means nothing to us */
	DO_DROP,          /* pops `pop` */
	DO_MARKED, /* pops down to the mark, the mark, and `pop` below it; pushes such a value */
	DO_DROP_MARKED, /* the same without a value */
	DO_STOP,
	DO_MARK,
	DO_DUP,
	DO_POP,
	DO_NOTE, /* nothing: PROTO, FRAME, READONLY_BUFFER */
	DO_TEXT,
	DO_NUMBER,
	DO_NAME,
	DO_STACK_NAME,
	DO_PUT,
	DO_GET,
	DO_MEMOIZE,
	DO_TUPLE,
	DO_EMPTY_DICT,
	DO_SET_ITEM,
	DO_SET_ITEMS,
	DO_BUILD,
	DO_PERSISTENT,
	PICKLE_EFFECTS,
};

struct pickle_op {
	uint8_t arg, effect, pop;
};

extern const struct pickle_op pickle_ops[256];

#define PICKLE_WORD_MAX 20 /* the longest text that is told apart */
enum pickle_word pickle_word(struct str text);

#endif
