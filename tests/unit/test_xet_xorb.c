/* test_xet_xorb.c - xorbs that real clients sent, in pieces of any size; chunks packed in each way,
 * and such as none packs. */
#include "core/xet_xorb.h"

#include "xet_recorded.h"

#include <lz4frame.h>

struct all { /* of a xorb that was read */
	struct xet_hash name;
	size_t n, by[3];
	struct xet_hash hash[4];
	uint64_t bytes, end;
	size_t footer;
};

/* In pieces of `step` bytes. */
static int read_all(struct str in, size_t step, struct all *out, struct err *err)
{
	AUTO_XET_READER struct xet_reader r = XET_READER_INIT;
	AUTO_XET_UNPACKER struct xet_unpacker *u = xet_unpacker_new();
	AUTO_XET_TREE struct xet_tree *tree = xet_tree_new();
	uint64_t at = 0;

	*out = (struct all){0};
	while (in.n > 0) {
		/* at its exact size, so that a read behind it is seen */
		const size_t n = MIN(step, in.n);
		AUTO_FREE char *copy = xmalloc(n);
		struct str piece = str_n(copy, n);

		memcpy(copy, in.p, n);
		in = str_skip(in, n);
		for (;;) {
			const struct xet_packed *c;
			AUTO_FREE uint8_t *raw = NULL;
			struct xet_hash h;

			if (xet_reader_take(&r, &piece, &c, err) < 0)
				return -1;
			if (c == NULL)
				break;
			assert_int_equal(c->at, at);
			at += XET_CHUNK_HEAD + c->data.n;
			raw = xmalloc(c->unpacked);
			if (xet_unpack(u, c, raw, err) < 0)
				return -1;
			h = xet_chunk_hash(raw, c->unpacked);
			xet_tree_add(tree, &h, c->unpacked);
			if (out->n < COUNT(out->hash))
				out->hash[out->n] = h;
			out->n++;
			out->by[c->scheme]++;
			out->bytes += c->unpacked;
		}
		assert_int_equal(piece.n, 0);
	}
	out->name = xet_tree_end(tree);
	out->end = r.at;
	out->footer = r.footer;
	assert_int_equal(r.chunks, out->n);
	if (xet_reader_end(&r, err) < 0)
		return -1;
	assert_int_equal(r.unpacked, out->bytes);
	return 0;
}

static void reads_what_clients_sent(void **state UNUSED)
{
	static const struct {
		const char *name, *hash;
		size_t raw, lz4, bg4, footer;
		uint64_t bytes, end;
	} rows[] = {
		{"one", XORB_ONE, 1, 0, 0, 0, 1, 9},
		{"four", XORB_FOUR, 2, 1, 1, 0, 5263, 2375},
		{"zeros", XORB_ZEROS, 0, 2, 0, 0, 247488, 1039},
		{"footer", XORB_FOOTER, 2, 1, 1, 256, 5263, 2375},
	};
	static const size_t steps[] = {1, 2, 7, 8, 9, 64, 1000, 4096};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf b = BUF_INIT(0);

		recorded("xorb", rows[i].name, &b);
		for (size_t k = 0; k < COUNT(steps); k++) {
			struct err err = {0};
			struct all x;

			assert_ok(read_all(buf_view(&b), steps[k], &x, &err), &err);
			hash_is(x.name, rows[i].hash);
			assert_row(x.by[XET_RAW] == rows[i].raw && x.by[XET_LZ4] == rows[i].lz4,
			           rows[i].name);
			assert_row(x.by[XET_BG4_LZ4] == rows[i].bg4, rows[i].name);
			assert_row(x.bytes == rows[i].bytes && x.end == rows[i].end, rows[i].name);
			assert_row(x.footer == rows[i].footer, rows[i].name);
		}
	}
}

/* Each chunk of four.xorb is a file of its own. */
static void chunks_are_the_files(void **state UNUSED)
{
	static const char *const names[] = {FILE_ONE, FILE_RANDOM, FILE_TEXT, FILE_WEIGHTS};
	AUTO_BUF struct buf b = BUF_INIT(0);
	static const uint64_t bytes[] = {1, 500, 1960, 2802};
	struct err err = {0};
	struct all x;
	size_t found = 0;

	recorded("xorb", "four", &b);
	assert_ok(read_all(buf_view(&b), 100, &x, &err), &err);
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 4; k++) {
			AUTO_XET_TREE struct xet_tree *t = xet_tree_new();
			struct xet_hash h;
			char text[XET_HASH_CAP];

			xet_tree_add(t, &x.hash[i], bytes[k]);
			h = xet_tree_end_file(t);
			xet_hash_text(&h, text);
			found += strcmp(text, names[k]) == 0;
		}
	assert_int_equal(found, 4);
}

static void refuses_every_cut(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT(0);
	size_t whole = 0;

	recorded("xorb", "four", &b);
	for (size_t n = 0; n <= b.n; n++) {
		struct err err = {0};
		struct all x;

		if (read_all(str_n(b.p, n), 333, &x, &err) == 0)
			whole++;
		else
			assert_true(err.code == ERR_INVALID);
	}
	assert_int_equal(whole, 4); /* behind each chunk */
}

/* Is the header refused? With `data` bytes behind it, all zero. */
static void refused(const uint8_t head[XET_CHUNK_HEAD], size_t data, enum err_code code,
                    const char *words)
{
	AUTO_XET_READER struct xet_reader r = XET_READER_INIT;
	AUTO_FREE char *all = xcalloc(1, XET_CHUNK_HEAD + data);
	struct str in = str_n(all, XET_CHUNK_HEAD + data);
	const struct xet_packed *c;
	struct err err = {0};

	memcpy(all, head, XET_CHUNK_HEAD);
	assert_err(xet_reader_take(&r, &in, &c, &err), &err, code, words);
}

static void refuses_heads(void **state UNUSED)
{
	static const struct {
		uint8_t head[XET_CHUNK_HEAD];
		enum err_code code;
		const char *words;
	} rows[] = {
		{{1, 1, 0, 0, 0, 1, 0, 0}, ERR_INVALID, "version 1"},
		{{0, 1, 0, 0, 3, 1, 0, 0}, ERR_INVALID, "scheme 3"},
		{{0, 1, 0, 0, 99, 1, 0, 0}, ERR_INVALID, "scheme 99"},
		{{0, 0, 0, 0, 0, 0, 0, 0}, ERR_INVALID, "empty"},
		{{0, 0, 0, 0, 1, 1, 0, 0}, ERR_INVALID, "empty"},
		{{0, 9, 0, 0, 1, 0, 0, 0}, ERR_INVALID, "empty"},
		{{0, 2, 0, 0, 0, 1, 0, 0}, ERR_INVALID, "two sizes"},
		{{0, 1, 0, 2, 0, 1, 0, 2}, ERR_TOO_BIG, "131072"}, /* one byte more than may be */
		{{0, 1, 0, 0, 1, 1, 0, 2}, ERR_TOO_BIG, "131072"},
		{{0, 1, 0, 4, 1, 1, 0, 0}, ERR_TOO_BIG, "131072"},
		{{'X', 'E', 'T', 'B', 'L', 'O', 'X', 0}, ERR_INVALID, "version 88"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		refused(rows[i].head, 64, rows[i].code, rows[i].words);
}

/* `chunks` chunks of the same raw bytes go through, and one more of `more` bytes does not. */
static void too_many(size_t chunks, size_t each, size_t more, const char *words)
{
	AUTO_XET_READER struct xet_reader r = XET_READER_INIT;
	AUTO_FREE char *chunk = xcalloc(1, XET_CHUNK_HEAD + XET_CHUNK_MAX);
	const struct xet_packed *c = NULL;
	struct err err = {0};
	struct str in;

	for (size_t i = 0; i <= chunks; i++) {
		const size_t n = i < chunks ? each : more;

		for (size_t k = 0; k < 3; k++)
			chunk[1 + k] = chunk[5 + k] = (char)(uint8_t)(n >> 8 * k);
		in = str_n(chunk, XET_CHUNK_HEAD + n);
		if (i < chunks)
			assert_ok(xet_reader_take(&r, &in, &c, &err), &err);
		else
			assert_err(xet_reader_take(&r, &in, &c, &err), &err, ERR_TOO_BIG, words);
		assert_int_equal(r.chunks, MIN(i + 1, chunks));
	}
}

static void is_bounded(void **state UNUSED)
{
	AUTO_XET_READER struct xet_reader r = XET_READER_INIT;
	AUTO_FREE char *rest = xcalloc(1, XET_FOOTER_MAX);
	const struct xet_packed *c;
	struct err err = {0};
	struct str in;

	too_many(XET_XORB_CHUNKS_MAX, 1, 1, "8192 chunks");
	too_many(XET_XORB_UNPACKED_MAX / XET_CHUNK_MAX, XET_CHUNK_MAX, 1, "67108864 bytes");
	memcpy(rest, "XETBLOB", 7);
	in = str_n(rest, XET_FOOTER_MAX);
	assert_ok(xet_reader_take(&r, &in, &c, &err), &err);
	assert_null(c);
	in = str_n(rest, 1);
	assert_err(xet_reader_take(&r, &in, &c, &err), &err, ERR_TOO_BIG, "footer");
}

/* ---- packing, to unpack it again ----------------------------------------------------------- */

/* The groups of bytes, as the documentation shows them. */
static void bg4_split(const uint8_t *in, size_t n, uint8_t *out)
{
	for (size_t g = 0; g < 4; g++)
		for (size_t i = g; i < n; i += 4)
			*out++ = in[i];
}

static size_t lz4_pack(const uint8_t *in, size_t n, const LZ4F_preferences_t *how, uint8_t *out,
                       size_t cap)
{
	size_t r = LZ4F_compressFrame(out, cap, in, n, how);

	if (LZ4F_isError(r))
		fail_msg("%s", LZ4F_getErrorName(r));
	return r;
}

static void pattern(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i % 4 == 3 ? 7 : i * i >> 5);
}

static void unpacks_every_size_and_frame(void **state UNUSED)
{
	static const size_t sizes[] = {1, 2, 3,    4,     5,     6,      7,
	                               8, 9, 1000, 65536, 65537, 131071, 131072};
	static const LZ4F_preferences_t frames[] = {
		{.frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockLinked}},
		{.frameInfo = {.blockSizeID = LZ4F_max256KB,
	                       .blockMode = LZ4F_blockIndependent,
	                       .contentChecksumFlag = LZ4F_contentChecksumEnabled,
	                       .blockChecksumFlag = LZ4F_blockChecksumEnabled}},
		{.frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent}},
	};
	const size_t cap = 2 * XET_CHUNK_MAX;
	AUTO_XET_UNPACKER struct xet_unpacker *u = xet_unpacker_new();
	AUTO_FREE uint8_t *in = xmalloc(XET_CHUNK_MAX), *split = xmalloc(XET_CHUNK_MAX);
	AUTO_FREE uint8_t *packed = xmalloc(cap);
	struct err err = {0};

	pattern(in, XET_CHUNK_MAX);
	for (size_t i = 0; i < COUNT(sizes); i++)
		for (size_t k = 0; k < COUNT(frames); k++)
			for (int bg4 = 0; bg4 < 2; bg4++) {
				const size_t n = sizes[i];
				AUTO_FREE uint8_t *out = xmalloc(n);
				struct xet_packed c = {.unpacked = (uint32_t)n,
				                       .scheme = bg4 ? XET_BG4_LZ4 : XET_LZ4};

				bg4_split(in, n, split);
				c.data = str_n(
					(const char *)packed,
					lz4_pack(bg4 ? split : in, n, &frames[k], packed, cap));
				assert_ok(xet_unpack(u, &c, out, &err), &err);
				assert_memory_equal(out, in, n);
			}
}

static void refuses_other_frames(void **state UNUSED)
{
	enum { N = 5000, CAP = 1 << 19 };
	static const LZ4F_preferences_t plain = {
		.frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled}};
	static const LZ4F_preferences_t large = {.frameInfo = {.blockSizeID = LZ4F_max4MB}};
	static const LZ4F_preferences_t sized = {.frameInfo = {.contentSize = N}};
	AUTO_XET_UNPACKER struct xet_unpacker *u = xet_unpacker_new();
	AUTO_FREE uint8_t *in = xmalloc(1 << 18), *packed = xmalloc(CAP), *out = xmalloc(N + 1);
	struct xet_packed c = {.at = 77, .unpacked = N, .scheme = XET_LZ4};
	struct err err = {0};
	size_t n;

	pattern(in, 1 << 18);
	n = lz4_pack(in, N, &plain, packed, CAP - 1);
	c.data = str_n((const char *)packed, n);
	assert_ok(xet_unpack(u, &c, out, &err), &err);
	c.unpacked = N - 1; /* one byte too many comes out */
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "4999");
	c.unpacked = N + 1;
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "5001");
	c.unpacked = N;
	packed[n] = 0; /* something behind it */
	c.data.n = n + 1;
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "");
	for (size_t cut = 0; cut < n; cut++) {
		AUTO_FREE char *copy = xmalloc(cut + 1);

		memcpy(copy + 1, packed, cut);
		c.data = str_n(copy + 1, cut);
		assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "byte 77");
	}
	c.data = str_n((const char *)packed, n);
	packed[n - 1] ^= 1; /* its checksum */
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "");
	packed[n - 1] ^= 1;
	packed[0] ^= 1; /* its magic */
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "no LZ4 frame");
	memcpy(packed, "\x50\x2a\x4d\x18\x01\x00\x00\x00x", 9); /* one that is to be skipped */
	c.data.n = 9;
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "");

	c.data = str_n((const char *)packed, lz4_pack(in, N, &sized, packed, CAP));
	assert_ok(xet_unpack(u, &c, out, &err), &err);
	c.unpacked = N - 1;
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "");
	c.unpacked = N;

	/* blocks that take more memory than a chunk; liblz4 makes them as small as the content */
	c.data = str_n((const char *)packed, lz4_pack(in, 1 << 18, &large, packed, CAP));
	assert_int_equal(packed[5] >> 4, LZ4F_max256KB);
	packed[5] = LZ4F_max4MB << 4;
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "");
	/* and after all of it, one that is right */
	c.data = str_n((const char *)packed, lz4_pack(in, N, &plain, packed, CAP));
	assert_ok(xet_unpack(u, &c, out, &err), &err);
	assert_memory_equal(out, in, N);
}

/* A small frame that holds a lot: no more comes out than fits, and then it ends. */
static void a_bomb_is_refused(void **state UNUSED)
{
	enum { N = 1 << 24, CAP = N + (1 << 20) };
	static const LZ4F_preferences_t small = {.frameInfo = {.blockSizeID = LZ4F_max64KB}};
	AUTO_XET_UNPACKER struct xet_unpacker *u = xet_unpacker_new();
	AUTO_FREE uint8_t *in = xcalloc(1, N), *packed = xmalloc(CAP),
			  *out = xmalloc(XET_CHUNK_MAX);
	struct xet_packed c = {.unpacked = XET_CHUNK_MAX, .scheme = XET_BG4_LZ4};
	struct err err = {0};

	c.data = str_n((const char *)packed, lz4_pack(in, N, &small, packed, CAP));
	assert_true(c.data.n < XET_PACKED_MAX);
	assert_err(xet_unpack(u, &c, out, &err), &err, ERR_INVALID, "131072");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_what_clients_sent),
	cmocka_unit_test(chunks_are_the_files),
	cmocka_unit_test(refuses_every_cut),
	cmocka_unit_test(refuses_heads),
	cmocka_unit_test(is_bounded),
	cmocka_unit_test(unpacks_every_size_and_frame),
	cmocka_unit_test(refuses_other_frames),
	cmocka_unit_test(a_bomb_is_refused),
};
UNIT_MAIN(tests)
