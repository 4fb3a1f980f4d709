/*
 * xet_xorb.h - a xorb, without I/O: chunks back to back, each behind a header of eight bytes that
 * says how long it is, packed and unpacked, and how it is packed. Older clients send a footer
 * behind the chunks; all that it says follows from them.
 */
#ifndef XET_XORB_H
#define XET_XORB_H

#include "core/xet.h"

#define XET_CHUNK_HEAD 8
/* LZ4 adds a few bytes at most; this is what other servers allow. */
#define XET_PACKED_MAX (2 * XET_CHUNK_MAX)
#define XET_FOOTER_MAX ((size_t)1 << 20) /* 40 bytes a chunk, and some */
/* Bytes of a xorb as it is sent: a chunk that does not become smaller is sent as it is. */
#define XET_XORB_MAX (XET_XORB_UNPACKED_MAX + (size_t)XET_CHUNK_HEAD * XET_XORB_CHUNKS_MAX)
#define XET_XORB_BODY_MAX (XET_XORB_MAX + XET_FOOTER_MAX)

enum xet_scheme {
	XET_RAW,
	XET_LZ4,     /* one LZ4 frame */
	XET_BG4_LZ4, /* the same, of the first bytes of each four, the second ones, and so on */
};

struct xet_packed {  /* a chunk as it lies in a xorb */
	uint64_t at; /* of its header, from the start of the xorb */
	uint32_t unpacked;
	enum xet_scheme scheme;
	struct str data; /* packed, behind the header; of XET_RAW, what it is unpacked to */
};

/* Reads a xorb in pieces of any size, as they arrive. Holds one packed chunk at most. */
struct xet_reader {
	uint64_t at;       /* bytes taken, of chunks and their headers: what is worth keeping */
	uint64_t unpacked; /* of the chunks so far, with the one that is being read */
	size_t chunks;     /* whole ones */
	size_t footer;     /* bytes of it so far */
	uint32_t need;     /* packed bytes of the chunk whose header was read; 0: none was */
	struct buf held;   /* what is there of a header or a chunk that comes in pieces */
	bool lent;         /* what is held was handed out */
	struct xet_packed now;
};

#define XET_READER_INIT                                                                            \
	{                                                                                          \
		.held = BUF_INIT(XET_PACKED_MAX)                                                   \
	}
void xet_reader_done(struct xet_reader *r);
#define AUTO_XET_READER CLEANUP(xet_reader_done)

/*
 * Takes bytes from the front of *in up to the end of the next chunk, and says which it is: its data
 * is valid until the next call, or until what *in borrows goes away. *out NULL: all is taken, and
 * more is needed. What follows the chunks is taken and dropped.
 * ERR_INVALID: this is no xorb; ERR_TOO_BIG: it is over a limit above.
 */
int xet_reader_take(struct xet_reader *r, struct str *in, const struct xet_packed **out,
                    struct err *err) MUST_CHECK;
/* There are no more bytes. ERR_INVALID: a chunk is cut off, or there was none. */
int xet_reader_end(const struct xet_reader *r, struct err *err) MUST_CHECK;

/* The header of a chunk of a xorb that lies somewhere: `packed` bytes follow. out->at and out->data
 * are left to the caller. */
int xet_head_read(const uint8_t head[XET_CHUNK_HEAD], struct xet_packed *out, uint32_t *packed,
                  struct err *err) MUST_CHECK;

/* Unpacks chunks, one after the other, with 1 MiB of memory at most. Not thread-safe. */
struct xet_unpacker;
struct xet_unpacker *xet_unpacker_new(void) MUST_CHECK;
void xet_unpacker_free(struct xet_unpacker *u);
DEFINE_CLEANUP(struct xet_unpacker, xet_unpacker_free)
#define AUTO_XET_UNPACKER CLEANUP(xet_unpacker_free_p)

/* out: of c->unpacked bytes, which are all written. ERR_INVALID: the chunk is not packed so, or
 * other than so many bytes come out of it. */
int xet_unpack(struct xet_unpacker *u, const struct xet_packed *c, uint8_t *out,
               struct err *err) MUST_CHECK;

#endif
