/*
 * resumable.h - bytes between two who may lose each other for a while: a bounded piece of a stream
 * and the offset of its first byte. Who puts says where its bytes begin, so what is sent twice is
 * taken once; who reads says how far it has come, and so much is let go. Nothing is ever dropped:
 * without room nothing is taken, and the sender waits.
 *
 * And frames, of which such streams consist: a kind, 24 bits of length with the most significant
 * byte first, bytes. They carry what a command in a sandbox is given and what it prints.
 */
#ifndef RESUMABLE_H
#define RESUMABLE_H

#include "base/buf.h"

#define RESUMABLE_MAX ((size_t)256 << 10)      /* bytes that wait in one direction */
#define RESUMABLE_CHUNK_MAX ((size_t)64 << 10) /* of one put: much less, so that it fits soon */

struct resumable {
	struct buf b;
	uint64_t at; /* offset of its first byte */
};
/* clang-format off */
#define RESUMABLE_INIT {.b = BUF_INIT(RESUMABLE_MAX)}
/* clang-format on */

void resumable_done(struct resumable *f);
uint64_t resumable_end(const struct resumable *f);
/* The bytes that begin at `offset`, all of them or none. *next is where to go on: their end, or
 * less when there is no room yet. ERR_CONFLICT when bytes before `offset` are missing. */
int resumable_put(struct resumable *f, uint64_t offset, struct str bytes, uint64_t *next,
                  struct err *err) MUST_CHECK;
/* The bytes from `offset` on, valid until the next call; those before it have been received and are
 * dropped. ERR_CONFLICT if it is dropped already, or not there yet. */
int resumable_read(struct resumable *f, uint64_t offset, struct str *out,
                   struct err *err) MUST_CHECK;
void resumable_skip(struct resumable *f,
                    uint64_t to); /* nobody reads any more: all up to there goes */

enum frame_kind {
	FRAME_STATE = 1, /* a word of wire_exec_state: before the others, of no stream */
	FRAME_OUT,       /* printed to stdout, or to the terminal */
	FRAME_ERR,       /* to stderr */
	FRAME_IN,        /* for stdin, or typed */
	FRAME_END,       /* the end of stdin; empty */
	FRAME_SIZE,      /* of the terminal */
};
#define FRAME_HEAD 4
#define FRAME_BYTES_MAX (((size_t)1 << 24) - 1)

void frame_put(struct buf *out, enum frame_kind kind, struct str bytes);
void frame_put_size(struct buf *out, uint32_t rows, uint32_t columns);
/* False at the end, or where no whole frame follows: *rest is not empty then. */
bool frame_next(struct str *rest, enum frame_kind *kind, struct str *bytes);
bool frame_size(struct str bytes, uint16_t *rows, uint16_t *columns); /* false: it is none */

#endif
