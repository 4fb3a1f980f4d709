/*
 * resumable.h - one end of a connection that carries frames both ways, and that may be cut and made
 * again: what a command of `stoker exec` is given, and what it prints. It does no I/O.
 *
 * A frame is a kind, 24 bits of length with the most significant byte first, and bytes. From
 * FRAME_OUT on frames are kept until the other end has used them, and sent again over the next
 * connection; those before are about the moment, and overtake them. Both ends begin with
 * FRAME_RECEIVED, which says how far they have come, and send nothing kept before they have seen
 * the other's. Who does not use what came stops the other after RESUMABLE_MAX.
 */
#ifndef RESUMABLE_H
#define RESUMABLE_H

#include "base/buf.h"

#define RESUMABLE_MAX ((size_t)256 << 10)      /* bytes of kept frames, in each direction */
#define RESUMABLE_FRAME_MAX ((size_t)64 << 10) /* bytes of one frame */

enum frame_kind {
	FRAME_RECEIVED = 1, /* u64: bytes of kept frames, heads and all, that were used */
	FRAME_WAIT,         /* from who is between the ends: the other one is not here; empty */
	FRAME_SIZE,         /* of the terminal: rows and columns, 16 bits each */
	FRAME_HANG_UP,      /* end the command; empty */
	FRAME_LEAVE,        /* it goes on alone; empty */
	FRAME_OUT,          /* printed to stdout, or to the terminal */
	FRAME_ERR,          /* to stderr */
	FRAME_IN,           /* for stdin, or typed */
	FRAME_END,          /* the end of stdin; empty */
	FRAME_EXIT,         /* the exit code, 8 bits: the last frame */
};
#define FRAME_HEAD 4

struct resumable {
	struct buf kept;  /* frames that the other end has not used */
	uint64_t kept_at; /* offset of their first byte in all kept frames */
	size_t sent;      /* bytes of them that went into `wire` on this connection */
	struct buf wire;  /* whole frames, but for what of the first is written already */
	bool met;         /* the other end has said on this connection how far it has come */
	struct buf raw;   /* a frame that has not come whole */
	struct buf got;   /* kept frames that came and were not used */
	uint64_t got_at;  /* offset of their first byte */
	uint64_t told;    /* the offset that the other end knows */
	size_t used;      /* bytes of the first frame in `got` */
	uint64_t seen;    /* and how far this connection has come: behind `got` while it repeats */
	/* What the other end has said. */
	bool hang_up, leave, sized;
	uint16_t rows, columns;
};
/* clang-format off */
#define RESUMABLE_INIT {.kept = BUF_INIT(2 * RESUMABLE_MAX), .wire = BUF_INIT(2 * RESUMABLE_MAX), \
	                .raw = BUF_INIT(2 * RESUMABLE_FRAME_MAX), .got = BUF_INIT(2 * RESUMABLE_MAX)}
/* clang-format on */

void resumable_done(struct resumable *r);
void resumable_begin(struct resumable *r); /* on a new connection */

/* Bytes that one frame may have now; 0: wait. */
size_t resumable_room(const struct resumable *r);
void resumable_put(struct resumable *r, enum frame_kind kind, struct str bytes); /* to be kept */
void resumable_say(struct resumable *r, enum frame_kind kind, struct str bytes); /* of the moment */
void resumable_say_size(struct resumable *r, uint16_t rows, uint16_t columns);
void resumable_say_received(struct resumable *r);   /* also a sign of life */
bool resumable_all_used(const struct resumable *r); /* has the other end used all that was put? */

/* What is to be written now, valid until the next call; then, how much of it was. */
struct str resumable_wire(struct resumable *r);
void resumable_wrote(struct resumable *r, size_t n);
/* Takes what was read. ERR_INVALID: it is not from such an end, or out of step with this one. */
int resumable_feed(struct resumable *r, struct str bytes, struct err *err) MUST_CHECK;

/* The first kept frame that came, but for the bytes of it that were used; false: none. */
bool resumable_next(const struct resumable *r, enum frame_kind *kind, struct str *bytes);
/* n bytes of it were used; with the last of them, or 0 of none, the frame is. */
void resumable_use(struct resumable *r, size_t n);

/* Frames by themselves. False: no whole frame follows, or *bad: what follows is none. */
void frame_put(struct buf *out, enum frame_kind kind, struct str bytes);
bool frame_next(struct str *rest, enum frame_kind *kind, struct str *bytes, bool *bad);

#endif
