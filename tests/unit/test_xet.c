/* test_xet.c - hashes: as text, of the tree, of terms; against what real clients say. */
#include "core/xet.h"

#include "base/blake3.h"

#include "xet_recorded.h"

#define UP_TO_31 "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918"

static struct xet_hash counted(void)
{
	struct xet_hash h;

	for (size_t i = 0; i < XET_HASH_LEN; i++)
		h.b[i] = (uint8_t)i;
	return h;
}

static void text_and_back(void **state UNUSED)
{
	static const char *const bad[] = {
		"",
		"07",
		UP_TO_31 "00",
		"g7060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918",
		"07060504030201000F0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918",
		" 7060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918",
	};
	const struct xet_hash h = counted();
	struct xet_hash back;
	struct err err = {0};
	struct digest d = xet_hash_sha256(&h);
	char hex[HASH_HEX_CAP];

	hash_is(h, UP_TO_31);
	assert_ok(xet_hash_parse(STR_LIT(UP_TO_31), &back, &err), &err);
	assert_true(xet_hash_same(&h, &back));
	back.b[31] ^= 1;
	assert_false(xet_hash_same(&h, &back));
	digest_hex(&d, hex);
	assert_string_equal(hex, UP_TO_31);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_err(xet_hash_parse(str_of(bad[i]), &back, &err), &err, ERR_INVALID, "");
	assert_err(xet_hash_parse(str_n(UP_TO_31, 63), &back, &err), &err, ERR_INVALID, "63");
}

static void names_are_the_clients(void **state UNUSED)
{
	static const char line[] = "hello world, hello world, hello world, hello xet\n";
	AUTO_FREE char *zeros = xcalloc(1, XET_CHUNK_MAX);
	char text[40 * (sizeof(line) - 1)];
	AUTO_XET_TREE struct xet_tree *t = xet_tree_new();
	struct xet_hash h = xet_chunk_hash("x", 1);

	hash_is(xet_tree_end(t),
	        "0000000000000000000000000000000000000000000000000000000000000000");
	hash_is(xet_tree_end_file(t),
	        "0000000000000000000000000000000000000000000000000000000000000000");

	xet_tree_add(t, &h, 1); /* a chunk alone is the tree */
	hash_is(xet_tree_end(t), XORB_ONE);
	xet_tree_add(t, &h, 1);
	hash_is(xet_tree_end_file(t), FILE_ONE);

	for (size_t i = 0; i < 40; i++)
		memcpy(text + i * (sizeof(line) - 1), line, sizeof(line) - 1);
	h = xet_chunk_hash(text, sizeof(text));
	xet_tree_add(t, &h, sizeof(text));
	hash_is(xet_tree_end_file(t), FILE_TEXT);

	h = xet_chunk_hash(zeros, XET_CHUNK_MAX);
	for (size_t i = 0; i < 22; i++)
		xet_tree_add(t, &h, XET_CHUNK_MAX);
	h = xet_chunk_hash(zeros, 3000000 - 22 * XET_CHUNK_MAX);
	xet_tree_add(t, &h, 3000000 - 22 * XET_CHUNK_MAX);
	hash_is(xet_tree_end_file(t), FILE_ZEROS);
}

/* The rule as the documentation has it: level by level, over a list. */
static struct xet_hash tree_by_list(struct xet_hash *h, uint64_t *bytes, size_t n)
{
	/* clang-format off */
	static const uint8_t key[BLAKE3_KEY_LEN] = {
		1, 126, 197, 199, 165, 71, 41, 150, 253, 148, 102, 102, 180, 138, 2, 230,
		93, 221, 83, 111, 55, 199, 109, 210, 248, 99, 82, 230, 74, 83, 113, 63,
	};
	/* clang-format on */

	while (n > 1) {
		size_t out = 0;

		for (size_t at = 0, end; at < n; at = end) {
			AUTO_BUF struct buf text = BUF_INIT(4096);
			uint64_t sum = 0;

			end = MIN(n, at + 9);
			for (size_t i = at + 2; i < end; i++)
				if (h[i].b[24] % 4 == 0)
					end = i + 1;
			for (size_t i = at; i < end; i++) {
				char hex[XET_HASH_CAP];

				xet_hash_text(&h[i], hex);
				buf_printf(&text, "%s : %" PRIu64 "\n", hex, bytes[i]);
				sum += bytes[i];
			}
			blake3_hash(key, text.p, text.n, h[out].b);
			bytes[out++] = sum;
		}
		n = out;
	}
	return h[0];
}

static void tree_of_any_size(void **state UNUSED)
{
	enum { MOST = 1000 };
	AUTO_FREE struct xet_hash *h = xcalloc(MOST, sizeof(*h));
	AUTO_FREE uint64_t *bytes = xcalloc(MOST, sizeof(*bytes));

	for (size_t n = 1; n <= MOST; n += n < 100 ? 1 : 37) {
		AUTO_XET_TREE struct xet_tree *t = xet_tree_new();
		struct xet_hash got, want;

		for (size_t i = 0; i < n; i++) {
			h[i] = xet_chunk_hash(&i, sizeof(i));
			if (n % 3 == 0)
				h[i].b[24] |= 1; /* groups as long as may be */
			bytes[i] = i * i;
			xet_tree_add(t, &h[i], bytes[i]);
		}
		got = xet_tree_end(t);
		want = tree_by_list(h, bytes, n);
		if (!xet_hash_same(&got, &want))
			fail_msg("the tree of %zu chunks differs", n);
		got = xet_tree_end(t); /* it is empty now */
		assert_true(xet_hash_same(&got, &(struct xet_hash){{0}}));
	}
}

static void terms_are_checked(void **state UNUSED)
{
	static const struct {
		uint32_t start, end, bytes;
		int proof; /* 0: none; 1: right; 2: of something else */
		const char *words;
	} rows[] = {
		{0, 3, 60, 1, NULL},       {1, 2, 20, 1, NULL},    {2, 3, 30, 0, NULL},
		{0, 4, 60, 0, "3 chunks"}, {1, 1, 0, 0, "1 to 1"}, {2, 1, 0, 0, "2 to 1"},
		{3, 4, 0, 0, "3 to 4"},    {0, 3, 61, 1, "61"},    {0, 1, 9, 0, "10 bytes, not 9"},
		{0, 2, 30, 2, "hash"},
	};
	struct xet_hash hash[3];
	const uint32_t bytes[3] = {10, 20, 30};
	const struct xet_chunks of = {.hash = hash, .bytes = bytes, .n = 3};
	AUTO_XET_TREE struct xet_tree *whole = xet_tree_new(), *parts = xet_tree_new();
	struct err err = {0};
	struct xet_hash a, b;

	for (size_t i = 0; i < 3; i++)
		hash[i] = xet_chunk_hash(&i, sizeof(i));
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct xet_term t = {
			.bytes = rows[i].bytes, .start = rows[i].start, .end = rows[i].end};
		struct xet_hash proof = {{0}};

		if (rows[i].proof == 1)
			proof = xet_term_hash(hash + t.start, t.end - t.start);
		if (rows[i].words == NULL)
			assert_ok(xet_term_check(&t, rows[i].proof > 0 ? &proof : NULL, &of, &err),
			          &err);
		else
			assert_err(xet_term_check(&t, rows[i].proof > 0 ? &proof : NULL, &of, &err),
			           &err, ERR_INVALID, rows[i].words);
	}
	xet_term_add(&(struct xet_term){.start = 0, .end = 1}, &of, parts);
	xet_term_add(&(struct xet_term){.start = 1, .end = 3}, &of, parts);
	for (size_t i = 0; i < 3; i++)
		xet_tree_add(whole, &hash[i], bytes[i]);
	a = xet_tree_end(parts);
	b = xet_tree_end(whole);
	assert_true(xet_hash_same(&a, &b));
	b = xet_xorb_hash(&of);
	assert_true(xet_hash_same(&a, &b));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(text_and_back),
	cmocka_unit_test(names_are_the_clients),
	cmocka_unit_test(tree_of_any_size),
	cmocka_unit_test(terms_are_checked),
};
UNIT_MAIN(tests)
