/* xet_xorb.c - see xet_xorb.h; the only user of liblz4. */
#include "core/xet_xorb.h"

#include <lz4frame.h>

#define FOOTER "XETBLOB"
#define FOOTER_LEN (sizeof(FOOTER) - 1)
/* The smallest size of an LZ4 block that takes every chunk. Larger ones take more memory. */
#define BLOCK_MAX ((size_t)256 << 10)
#define BLOCK_ID_MAX LZ4F_max256KB

/* ---- reading ------------------------------------------------------------------------------- */

void xet_reader_done(struct xet_reader *r)
{
	buf_done(&r->held);
}

static uint32_t u24(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

int xet_head_read(const uint8_t head[XET_CHUNK_HEAD], struct xet_packed *out, uint32_t *packed,
                  struct err *err)
{
	const uint32_t n = u24(head + 1), unpacked = u24(head + 5);
	const unsigned version = head[0], scheme = head[4];

	if (version != 0)
		return err_set(err, ERR_INVALID, "it is of the unknown version %u", version);
	if (scheme > XET_BG4_LZ4)
		return err_set(err, ERR_INVALID, "it is packed by the unknown scheme %u", scheme);
	if (unpacked == 0 || n == 0)
		return err_set(err, ERR_INVALID, "it is empty");
	if (unpacked > XET_CHUNK_MAX || n > XET_PACKED_MAX)
		return err_set(err, ERR_TOO_BIG, "it has more than %zu bytes", XET_CHUNK_MAX);
	if (scheme == XET_RAW && n != unpacked)
		return err_set(err, ERR_INVALID, "it is not packed and has two sizes");
	*out = (struct xet_packed){.unpacked = unpacked, .scheme = (enum xet_scheme)scheme};
	*packed = n;
	return 0;
}

static int head_read(struct xet_reader *r, const uint8_t head[XET_CHUNK_HEAD], struct err *err)
{
	struct xet_packed c;
	uint32_t packed;

	if (xet_head_read(head, &c, &packed, err) < 0)
		return err_wrap(err, "chunk %zu", r->chunks);
	if (r->chunks == XET_XORB_CHUNKS_MAX)
		return err_set(err, ERR_TOO_BIG, "the xorb has more than %d chunks",
		               XET_XORB_CHUNKS_MAX);
	if (r->unpacked + c.unpacked > XET_XORB_UNPACKED_MAX ||
	    r->at + XET_CHUNK_HEAD + packed > XET_XORB_MAX)
		return err_set(err, ERR_TOO_BIG, "the xorb has more than %zu bytes",
		               XET_XORB_UNPACKED_MAX);
	c.at = r->at;
	r->now = c;
	r->unpacked += c.unpacked;
	r->need = packed;
	return 0;
}

/* The next n bytes, out of *in or, if they come in pieces, out of what is held. False: not all of
 * them are there, and *in is used up. */
static bool gather(struct xet_reader *r, struct str *in, size_t n, struct str *out)
{
	const size_t more = MIN(n - r->held.n, in->n);
	const struct str piece = str_n(in->p, more);

	*in = str_skip(*in, more);
	if (more == n) {
		*out = piece;
		return true;
	}
	buf_str(&r->held, piece);
	assert(!r->held.full);
	*out = buf_view(&r->held);
	return out->n == n;
}

static int footer_take(struct xet_reader *r, struct str *in, struct err *err)
{
	r->footer += in->n;
	*in = str_skip(*in, in->n);
	if (r->footer > XET_FOOTER_MAX)
		return err_set(err, ERR_TOO_BIG, "the footer of the xorb has more than %zu bytes",
		               XET_FOOTER_MAX);
	return 0;
}

int xet_reader_take(struct xet_reader *r, struct str *in, const struct xet_packed **out,
                    struct err *err)
{
	struct str head;

	if (r->lent)
		buf_clear(&r->held);
	r->lent = false;
	while (in->n > 0) {
		if (r->footer > 0) {
			if (footer_take(r, in, err) < 0)
				return -1;
		} else if (r->need == 0) {
			if (!gather(r, in, XET_CHUNK_HEAD, &head))
				break;
			if (memcmp(head.p, FOOTER, FOOTER_LEN) == 0)
				r->footer = XET_CHUNK_HEAD;
			else if (head_read(r, (const uint8_t *)head.p, err) < 0)
				return -1;
			buf_clear(&r->held);
		} else if (gather(r, in, r->need, &r->now.data)) {
			r->at += XET_CHUNK_HEAD + r->need;
			r->need = 0;
			r->chunks++;
			r->lent = true;
			*out = &r->now;
			return 0;
		}
	}
	*out = NULL;
	return 0;
}

int xet_reader_end(const struct xet_reader *r, struct err *err)
{
	if (r->need > 0 || (!r->lent && r->held.n > 0))
		return err_set(err, ERR_INVALID, "the xorb ends within chunk %zu", r->chunks);
	if (r->chunks == 0)
		return err_set(err, ERR_INVALID, "the xorb has no chunks");
	return 0;
}

/* ---- unpacking ----------------------------------------------------------------------------- */

struct xet_unpacker {
	LZ4F_dctx *lz4;
	/* With room for a block behind all that is expected, liblz4 unpacks to where it belongs. */
	uint8_t room[XET_CHUNK_MAX + BLOCK_MAX];
};

static LZ4F_dctx *context_new(void)
{
	LZ4F_dctx *lz4 = NULL;

	if (LZ4F_isError(LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION)))
		abort();
	return lz4;
}

struct xet_unpacker *xet_unpacker_new(void)
{
	struct xet_unpacker *u = xmalloc(sizeof(*u));

	u->lz4 = context_new();
	return u;
}

void xet_unpacker_free(struct xet_unpacker *u)
{
	if (u == NULL)
		return;
	(void)LZ4F_freeDecompressionContext(u->lz4);
	free(u);
}

/* Its header says what may be expected of a frame, before anything is allocated for it. */
static int frame_begin(struct xet_unpacker *u, const struct xet_packed *c, struct str *in,
                       struct err *err)
{
	LZ4F_frameInfo_t info;
	size_t took = in->n, r;

	r = LZ4F_getFrameInfo(u->lz4, &info, in->p, &took);
	if (LZ4F_isError(r))
		return err_set(err, ERR_INVALID, "no LZ4 frame: %s", LZ4F_getErrorName(r));
	if (info.frameType != LZ4F_frame || info.blockSizeID > BLOCK_ID_MAX || info.dictID != 0 ||
	    (info.contentSize != 0 && info.contentSize != c->unpacked))
		return err_set(err, ERR_INVALID, "an LZ4 frame that no chunk is packed as");
	*in = str_skip(*in, took);
	return 0;
}

/* One frame of exactly c->unpacked bytes, to u->room. */
static int lz4_unpack(struct xet_unpacker *u, const struct xet_packed *c, struct err *err)
{
	static const LZ4F_decompressOptions_t options = {.stableDst = 1};
	struct str in = c->data;
	size_t n = 0, took, got, left;

	if (frame_begin(u, c, &in, err) < 0)
		return -1;
	do {
		took = in.n;
		got = sizeof(u->room) - n;
		left = LZ4F_decompress(u->lz4, u->room + n, &got, in.p, &took, &options);
		if (LZ4F_isError(left))
			return err_set(err, ERR_INVALID, "LZ4: %s", LZ4F_getErrorName(left));
		in = str_skip(in, took);
		n += got;
	} while (left > 0 && n <= c->unpacked && took + got > 0);
	if (n != c->unpacked || left > 0 || in.n > 0)
		return err_set(err, ERR_INVALID, "other than its %u bytes are in it", c->unpacked);
	return 0;
}

/* Four bytes at a time, each from its group; the first groups have one more if n is no multiple. */
static void bg4_join(const uint8_t *in, size_t n, uint8_t *out)
{
	const size_t whole = n / 4, rest = n % 4;
	const uint8_t *group[4] = {in};

	for (size_t g = 1; g < 4; g++)
		group[g] = group[g - 1] + whole + (g - 1 < rest);
	for (size_t i = 0; i < whole; i++)
		for (size_t g = 0; g < 4; g++)
			out[4 * i + g] = group[g][i];
	for (size_t g = 0; g < rest; g++)
		out[4 * whole + g] = group[g][whole];
}

int xet_unpack(struct xet_unpacker *u, const struct xet_packed *c, uint8_t *out, struct err *err)
{
	assert(c->unpacked > 0 && c->unpacked <= XET_CHUNK_MAX);
	if (c->scheme == XET_RAW) {
		if (c->data.n != c->unpacked)
			return err_set(err, ERR_INVALID,
			               "the chunk at byte %" PRIu64 " has %zu bytes, not %u", c->at,
			               c->data.n, c->unpacked);
		memcpy(out, c->data.p, c->unpacked);
		return 0;
	}
	if (lz4_unpack(u, c, err) < 0) {
		/* A reset would not do: liblz4 1.9.4 still expects the size of the last frame. */
		(void)LZ4F_freeDecompressionContext(u->lz4);
		u->lz4 = context_new();
		return err_wrap(err, "the chunk at byte %" PRIu64, c->at);
	}
	if (c->scheme == XET_LZ4)
		memcpy(out, u->room, c->unpacked);
	else
		bg4_join(u->room, c->unpacked, out);
	return 0;
}
