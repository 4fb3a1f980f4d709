/*
 * pickle.h - pickles walked as data: opcode by opcode, over a stack of "text, number, name, dict or
 * nothing". Nothing is imported, called or built. Internal to the layer.
 *
 * All opcodes of protocols 0 to 5 have a row with their shape (Python, Lib/pickletools.py). The
 * bytes of texts and blobs are passed over, so a pickle of gigabytes costs its opcodes.
 */
#ifndef PICKLE_H
#define PICKLE_H

#include "format/look.h"

#define PICKLE_OPS_MAX ((uint64_t)256 << 20)
#define PICKLE_STACK_MAX ((size_t)4 << 20)
#define PICKLE_MEMO_MAX ((size_t)64 << 20) /* values that it counts, 4 bytes each */
#define PICKLE_KEPT_MAX ((size_t)8 << 20)  /* ... and of them such that mean something, 16 */
#define PICKLE_MEMO_GAP 4096               /* numbers of the memo that may be left out */
#define PICKLE_LINE_MAX 4096               /* of the opcodes of protocol 0 that end in a newline */
#define PICKLE_ITEMS 6 /* of a tuple that is kept: torch's persistent ids have five or six */

enum pickle_kind {
	PICKLE_NOTHING, /* a value that means nothing to us */
	PICKLE_TEXT,    /* at, n: where its bytes are; word */
	PICKLE_NUMBER,  /* at: the value, as int64_t */
	PICKLE_NAME,    /* of a class: word */
	PICKLE_TUPLE,   /* at: number of the kept one; only short ones that begin with a text */
	PICKLE_DICT,    /* at: number of the kept one + 1, 0 = nothing of interest in it */
};

/* Texts and names that are told apart; 0 = any other. */
enum pickle_word {
	PICKLE_OTHER,
	PICKLE_STORAGE, /* "storage" */
	PICKLE_RELATIVE_PATH,
	PICKLE_OFFSET,
	PICKLE_LENGTH,
	PICKLE_BYTES_1, /* names of storage classes, by the size of their items */
	PICKLE_BYTES_2,
	PICKLE_BYTES_4,
	PICKLE_BYTES_8,
	PICKLE_BYTES_16,
};

struct pickle_value {
	uint8_t kind, word;
	uint32_t n;
	uint64_t at;
};

/* Callbacks of the walk. Returning false ends it (PICKLE_ENDED). */
struct pickle_sink {
	/* A persistent id that is a tuple; items beyond n are PICKLE_NOTHING. */
	bool (*persistent)(void *arg, const struct pickle_value item[PICKLE_ITEMS], size_t n);
	/* An object built from a dict that has relative_path, offset and length. */
	bool (*stored)(void *arg, const struct pickle_value *path, uint64_t offset,
	               uint64_t length);
	/* A text, where it is made. */
	bool (*text)(void *arg, const struct pickle_value *text);
	void *arg;
};

enum pickle_end {
	PICKLE_STOP,  /* the whole pickle was walked */
	PICKLE_CUT,   /* the bytes end before it does */
	PICKLE_ZERO,  /* a byte 0 where an opcode must be: bytes that were never written */
	PICKLE_BAD,   /* not a pickle */
	PICKLE_LIMIT, /* too large a one */
	PICKLE_ENDED, /* by the sink */
	PICKLE_GONE,  /* the reader failed, or a limit of it */
};

/* Walks the pickle at *at; moves *at behind its STOP. */
enum pickle_end pickle_walk(struct look *l, uint64_t *at, const struct pickle_sink *sink);
/* Bytes of an item of a storage class; 0 = not known. */
unsigned pickle_item_bytes(const struct pickle_value *class);
/* The bytes of a text, at most LOOK_WINDOW; empty when they cannot be had. */
struct str pickle_text(struct look *l, const struct pickle_value *v);
/* Torn, not known or nothing, as it ended. */
void pickle_verdict(struct look *l, enum pickle_end e);

#endif
