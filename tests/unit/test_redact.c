/* test_redact.c - secrets in each of their forms, overlapping, and across every border of chunks.
 */
#include "unit.h"

#include "base/hash.h"
#include "core/redact.h"

#define SECRET "hf_QwErTy/123+\"x\xc3\xbc"
#define R REDACT_REPLACEMENT

static const struct {
	const char *secret[4], *text, *want;
} rows[] = {
	{{"short"}, "short is left alone", "short is left alone"},
	{{"12345678"}, "", ""},
	{{"12345678"}, "1234567", "1234567"},
	{{"12345678"}, "12345678", R},
	{{"12345678"}, "a12345678b", "a" R "b"},
	{{"12345678"}, "a1234567 12345678", "a1234567 " R},
	{{"12345678"}, "1212345678", "12" R},
	{{"12345678"}, "1234567812345678", R},
	{{"12345678"}, "12345678 12345678", R " " R},
	{{"aaaaaaaa"}, "aaaaaaaaaaaaaaaaaaab", R "b"},
	{{"abcdefgh", "efghijkl"}, "xabcdefghijkly", "x" R "y"},
	{{"bcdefghi", "abcdefghij"}, "xabcdefghijy", "x" R "y"},
	{{"bcdefghi", "abcdefghij"}, "xabcdefghiy", "xa" R "y"},
	{{"00000000-11111111-22222222", "11111111"},
         "00000000-11111111-2222222x",
         "00000000-" R "-2222222x"},
	{{"line one is\r\nline two is\nx"}, "only line two is here", "only " R " here"},
	{{"line one is\nline two is\n"}, "line one is\nline two is\n", R},
	{{"trailing newline\n"}, "trailing newline", R},
	{{"p@ss word/1"}, "GET /?k=p%40ss%20word%2F1&k=p%40ss+word%2f1", "GET /?k=" R "&k=" R},
	{{SECRET}, "{\"k\":\"hf_QwErTy/123+\\\"x\\u00fc\"}", "{\"k\":\"" R "\"}"},
	{{SECRET}, "{\"k\":\"hf_QwErTy\\/123+\\\"x\xc3\xbc\"}", "{\"k\":\"" R "\"}"},
	{{"smile \xf0\x9f\x98\x80 key"}, "smile \\ud83d\\ude00 key", R},
};

static struct redact *make(const char *const *secret, size_t n)
{
	struct redact *r = redact_new();
	struct err err = {0};

	for (size_t i = 0; i < n && secret[i] != NULL; i++)
		assert_ok(redact_add(r, str_of(secret[i]), &err), &err);
	redact_build(r);
	return r;
}

static void redact_texts(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_REDACT struct redact *r = make(rows[i].secret, 4);
		AUTO_BUF struct buf out = BUF_INIT(10000);

		redact_text(r, str_of(rows[i].text), &out);
		if (strcmp(buf_cstr(&out), rows[i].want) != 0)
			fail_msg("row %zu: \"%s\"", i, buf_cstr(&out));
	}
}

/* However a text is split in three, what comes out is the same. */
static void redact_streams(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_REDACT struct redact *r = make(rows[i].secret, 4);
		struct str text = str_of(rows[i].text);

		for (size_t cut = 0; cut <= text.n; cut++) {
			for (size_t cut2 = cut; cut2 <= text.n; cut2++) {
				AUTO_BUF struct buf out = BUF_INIT(10000);
				struct redact_stream s;

				redact_stream_init(&s, r);
				redact_feed(&s, str_n(text.p, cut), &out);
				redact_feed(&s, str_n(text.p + cut, cut2 - cut), &out);
				redact_feed(&s, str_skip(text, cut2), &out);
				assert_true(s.held.n <= redact_longest(r));
				redact_flush(&s, &out);
				redact_stream_done(&s);
				assert_row(strcmp(buf_cstr(&out), rows[i].want) == 0, rows[i].text);
			}
		}
	}
}

/* At whatever place of a text it stands, nothing of the secret can be read from its base64. */
static void redact_base64(void **state UNUSED)
{
	static const char *const secret[] = {SECRET, NULL};
	AUTO_REDACT struct redact *r = make(secret, 1);

	for (unsigned url = 0; url < 2; url++) {
		for (size_t before = 0; before < 7; before++) {
			for (size_t after = 0; after < 4; after++) {
				AUTO_BUF struct buf plain = BUF_INIT(1000), coded = BUF_INIT(1000);
				AUTO_BUF struct buf out = BUF_INIT(1000);

				buf_add(&plain, "xxxxxxx", before);
				buf_puts(&plain, SECRET);
				buf_add(&plain, "yyy", after);
				base64_encode(plain.p, plain.n, url == 1, &coded);
				redact_text(r, buf_view(&coded), &out);
				assert_non_null(strstr(buf_cstr(&out), R));
				/* the neighbours, and at most one shared character at each end */
				assert_true(out.n <= sizeof(R) - 1 + (before + 2) * 4 / 3 + 1 +
				                             (after + 2) * 4 / 3 + 4);
			}
		}
	}
}

static void redact_limits(void **state UNUSED)
{
	AUTO_REDACT struct redact *r = redact_new();
	AUTO_FREE char *large = xcalloc(1, REDACT_TOTAL_MAX + 1);
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct err err = {0};

	memset(large, 'k', REDACT_TOTAL_MAX + 1);
	assert_err(redact_add(r, str_n(large, REDACT_TOTAL_MAX + 1), &err), &err, ERR_TOO_BIG,
	           "256 KiB");
	for (size_t i = 0; i < 9001; i++)
		large[i] = (char)('a' + i * i % 26);
	assert_ok(redact_add(r, str_n(large, 9001), &err), &err); /* taken in pieces */
	for (int i = 1; i < REDACT_VALUES_MAX; i++)
		assert_ok(redact_add(r, STR_LIT(""), &err), &err);
	assert_err(redact_add(r, STR_LIT(""), &err), &err, ERR_TOO_BIG, "more than 1000");
	redact_build(r);
	redact_text(r, str_n(large, 9001), &out);
	assert_string_equal(buf_cstr(&out), R);
}

static void redact_nothing_to_hide(void **state UNUSED)
{
	AUTO_REDACT struct redact *r = make(NULL, 0);
	AUTO_BUF struct buf out = BUF_INIT(10000);

	assert_int_equal(redact_longest(r), 0);
	redact_text(r, str_n("a\0b", 3), &out);
	assert_true(str_same(buf_view(&out), str_n("a\0b", 3)));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(redact_texts),           cmocka_unit_test(redact_streams),
	cmocka_unit_test(redact_base64),          cmocka_unit_test(redact_limits),
	cmocka_unit_test(redact_nothing_to_hide),
};
UNIT_MAIN(tests)
