/* test_buf.c - borrowed text and limited buffers. */
#include "base/buf.h"

#include "unit.h"

static void test_numbers(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		uint64_t want;
	} rows[] = {
		{"", false, 0},     {"-1", false, 0}, {"+1", false, 0},
		{" 1", false, 0},   {"1x", false, 0}, {"18446744073709551616", false, 0},
		{"101", false, 0},  {"4", false, 0},  {"5", true, 5},
		{"100", true, 100}, {"007", true, 7},
	};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t v = 9999;
		bool ok = str_u64(str_of(rows[i].text), 5, 100, &v, &err) == 0;

		assert_row(ok == rows[i].ok, rows[i].text);
		assert_row(v == (ok ? rows[i].want : 9999), rows[i].text);
		err_clear(&err);
	}
	{
		uint64_t u = 0;
		int64_t n = 0;

		assert_ok(str_u64(str_of("18446744073709551615"), 0, UINT64_MAX, &u, &err), &err);
		assert_true(u == UINT64_MAX);
		assert_ok(str_i64(str_of("-9223372036854775807"), INT64_MIN, INT64_MAX, &n, &err),
		          &err);
		assert_true(n == -INT64_MAX);
		assert_err(str_i64(str_of("9223372036854775808"), INT64_MIN, INT64_MAX, &n, &err),
		           &err, ERR_INVALID, "too large");
		assert_err(str_i64(str_of("-"), INT64_MIN, INT64_MAX, &n, &err), &err, ERR_INVALID,
		           "not a whole number");
	}
}

static void test_str(void **state)
{
	struct str s = STR_LIT("a,,b"), head, none = {NULL, 0};
	char out[4];
	struct err err = {0};

	(void)state;
	assert_true(str_cut(&s, ',', &head) && str_eq(head, "a"));
	assert_true(str_cut(&s, ',', &head) && str_eq(head, ""));
	assert_true(str_cut(&s, ',', &head) && str_eq(head, "b"));
	assert_false(str_cut(&s, ',', &head));
	assert_true(str_eq(str_trim(STR_LIT(" \t x y\r\n")), "x y"));
	assert_int_equal(str_trim(STR_LIT(" \t")).n, 0);
	assert_true(str_starts(none, "") && str_ends(none, "") && str_ieq(none, ""));
	assert_false(str_starts(none, "x") || str_ends(none, "x"));
	assert_true(str_ieq(STR_LIT("HeLLo"), "hEllO"));
	assert_true(str_same(none, STR_LIT("")));
	assert_int_equal(str_skip(STR_LIT("abc"), 10).n, 0);
	assert_int_equal(str_of(NULL).n, 0);
	assert_ok(str_copy(STR_LIT("abc"), out, sizeof(out), "it", &err), &err);
	assert_string_equal(out, "abc");
	assert_err(str_copy(STR_LIT("abcd"), out, sizeof(out), "it", &err), &err, ERR_TOO_BIG,
	           "it is 4 bytes long");
}

/* What Unicode calls ill-formed (3.9, D92), and next to it the last and first that are not. */
static void test_utf8_mend(void **state)
{
#define M "\xef\xbf\xbd"
	static const struct {
		const char *what, *text, *want;
	} rows[] = {
		{"ASCII", "a~", "a~"},
		{"the least of 2, 3, 4 bytes", "\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80",
	         "\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80"},
		{"the greatest of 2, 3, 4 bytes", "\xdf\xbf\xef\xbf\xbf\xf4\x8f\xbf\xbf",
	         "\xdf\xbf\xef\xbf\xbf\xf4\x8f\xbf\xbf"},
		{"the mark itself", M, M},
		{"a byte that continues", "a\x80z\xbf", "a" M "z" M},
		{"overlong, 2 bytes", "\xc0\xaf\xc1\xbf", M M M M},
		{"overlong, 3 bytes", "\xe0\x9f\xbf", M M M},
		{"overlong, 4 bytes", "\xf0\x8f\xbf\xbf", M M M M},
		{"next to surrogates", "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
		{"surrogates", "\xed\xa0\x80\xed\xbf\xbf", M M M M M M},
		{"beyond U+10FFFF", "\xf4\x90\x80\x80", M M M M},
		{"leads of no character", "\xf5\x80\x80\x80\xfe\xff", M M M M M M},
		{"truncated at the end", "a\xe2\x82", "a" M M},
		{"truncated, 4 bytes", "\xf0\x9f\x98", M M M},
		{"truncated in the middle", "\xe2\x82z\xf0\x9f\xc3\xa9", M M "z" M M "\xc3\xa9"},
	};
#undef M
	struct str text;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(100);
		struct str s = str_of(rows[i].text);

		while (s.n > 0) {
			s = str_skip(s, str_utf8_mend(s, &text));
			buf_str(&out, text);
		}
		assert_row(strcmp(buf_cstr(&out), rows[i].want) == 0, rows[i].what);
		assert_row(str_is_utf8(buf_view(&out)), rows[i].what);
	}
	assert_int_equal(str_utf8_mend(str_n("\0z", 2), &text), 1);
	assert_true(text.n == 1 && text.p[0] == '\0');
}

static void test_limit_sticks(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT(10);
	struct err err = {0};

	(void)state;
	assert_string_equal(buf_cstr(&b), "");
	buf_puts(&b, "12345");
	buf_printf(&b, "%d", 67890);
	assert_ok(buf_check(&b, "it", &err), &err);
	assert_int_equal(b.n, 10);
	buf_putc(&b, 'x');
	assert_err(buf_check(&b, "it", &err), &err, ERR_TOO_BIG, "larger than 10");
	buf_drop(&b, 8);
	buf_putc(&b, 'x'); /* full sticks */
	assert_string_equal(buf_cstr(&b), "90");
	buf_clear(&b);
	buf_printf(&b, "%s", "0123456789a");
	assert_true(b.full);
	assert_int_equal(b.n, 0);
	buf_clear(&b);
	assert_non_null(buf_room(&b, 10));
	assert_null(buf_room(&b, 11));
}

static void test_grows(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);

	(void)state;
	for (unsigned i = 0; i < 100000; i++)
		buf_putc(&b, (char)('a' + i % 26));
	assert_int_equal(b.n, 100000);
	assert_int_equal(strlen(buf_cstr(&b)), 100000);
	assert_int_equal(b.p[99999], 'a' + 99999 % 26);
	buf_drop(&b, 0);
	buf_drop(&b, 99999);
	assert_int_equal(b.n, 1);
	buf_done(&b);
	assert_null(b.p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_numbers),   cmocka_unit_test(test_str),
	cmocka_unit_test(test_utf8_mend), cmocka_unit_test(test_limit_sticks),
	cmocka_unit_test(test_grows),
};

UNIT_MAIN(tests)
