/* test_loglines.c - records of a log: torn ones, long ones, and what a terminal would show. */
#include "unit.h"

#include "core/loglines.h"

#define T1 "1700000000000000001"

static const struct {
	const char *text; /* no record at all */
} torn[] = {
	{""},
	{"\n"},
	{T1 " o hello"},
	{T1 " x hello\n"},
	{T1 "  o hello\n"},
	{"170000000000000000a o hello\n"},
	{"9999999999999999999 o hello\n"},
	{T1 " o\n"},
};

static void loglines_pass_over_what_is_torn(void **state UNUSED)
{
	AUTO_BUF struct buf all = BUF_INIT(10000);
	struct logline line;
	struct str rest;

	for (size_t i = 0; i < COUNT(torn); i++) {
		rest = str_of(torn[i].text);
		assert_row(!logline_next(&rest, &line), torn[i].text);
	}
	buf_puts(&all, "17000\n" T1 " E two\n" T1 " o cut");
	rest = buf_view(&all);
	assert_true(logline_next(&rest, &line));
	assert_true(line.ns == 1700000000000000001 && line.stream == 'e' && line.continues);
	assert_true(str_eq(line.text, "two"));
	assert_false(logline_next(&rest, &line));
	assert_true(str_eq(rest, T1 " o cut"));
}

static void loglines_times_rise(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(10000);
	int64_t last = 0;

	logline_write(&out, 1700000000000000001, &last, 'o', STR_LIT("a"), false);
	logline_write(&out, 1600000000000000000, &last, 'e', STR_LIT(""), false);
	logline_write(&out, 1600000000000000000, &last, 's', STR_LIT("c\nd\n"), false);
	logline_write(&out, 1600000000000000000, &last, 'o', STR_LIT("e\nf"), true);
	logline_write(&out, 1600000000000000000, &last, 'o', STR_LIT(""), true);
	assert_string_equal(buf_cstr(&out), "1700000000000000001 o a\n"
	                                    "1700000000000000002 e \n"
	                                    "1700000000000000003 s c\n"
	                                    "1700000000000000004 s d\n"
	                                    "1700000000000000005 o e\n"
	                                    "1700000000000000006 O f\n");
}

/* A name in a line of the platform's own hides nothing; what the job writes is the job's. */
static void loglines_escape_our_own(void **state UNUSED)
{
	static const char text[] = "a\xe2\x80\xae"
				   "b\x1b[2J\nc\xc2\x9bK\n";
	AUTO_BUF struct buf out = BUF_INIT(10000);
	int64_t last = 0;

	logline_write(&out, 1700000000000000001, &last, 's', str_of(text), false);
	logline_write(&out, 1700000000000000003, &last, 'o', str_of(text), false);
	assert_string_equal(buf_cstr(&out), "1700000000000000001 s a\\u202eb\\u001b[2J\n"
	                                    "1700000000000000002 s c\\u009bK\n"
	                                    "1700000000000000003 o a\xe2\x80\xae"
	                                    "b\x1b[2J\n"
	                                    "1700000000000000004 o c\xc2\x9bK\n");
}

/* 40000 bytes come back, in records of the maximum, cut between characters. */
static void loglines_cut_long_text(void **state UNUSED)
{
	AUTO_BUF struct buf text = BUF_INIT(100000), out = BUF_INIT(100000),
			    back = BUF_INIT(100000);
	struct logline line;
	int64_t last = 0;
	struct str rest;
	size_t n = 0;

	buf_putc(&text, 'x');
	while (text.n < 40000)
		buf_puts(&text, "\xe2\x82\xac");
	logline_write(&out, 1700000000000000000, &last, 'e', buf_view(&text), false);
	rest = buf_view(&out);
	while (logline_next(&rest, &line)) {
		assert_true(line.text.n <= LOGLINE_TEXT_MAX);
		assert_true(((unsigned char)line.text.p[0] & 0xc0) != 0x80);
		buf_str(&back, line.text);
		n++;
		assert_true(line.continues == (back.n < text.n));
	}
	assert_int_equal(n, 3);
	assert_true(str_same(buf_view(&back), buf_view(&text)));
	assert_int_equal(rest.n, 0);
}

static const struct {
	const char *text, *want;
} folds[] = {
	{"", ""},
	{"plain", "plain"},
	{"plain\r", "plain"},
	{"\r\r\r", ""},
	{" 10%\r 20%\r 30%\r", " 30%"},
	{"long line\rab", "abng line"},
	{"long line\rab\x1b[K", "ab"},
	{"long line\r\x1b[2Kab", "ab"},
	{"abc\rx\ry", "ybc"},
	{"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"},
	{"\x1b[31mred\x1b[0m\rab", "ab\x1b[31md\x1b[0m"},
	{"\x1b[31mred\x1b[0m\rabc", "abc"},
	{"a\x1b]0;title\x07"
         "b",
         "ab"},
	{"a\x1b]8;;http://x\x1b\\b", "ab"},
	{"a\x1b[2Jb\x1b[1;1Hc", "abc"},
	{"a\x1b", "a"},
	{"a\x1b[3", "a"},
	{"a\bb\x07"
         "c\x7f",
         "abc"},
	{"a\tb", "a\tb"},
	{"a\xc2\x9b"
         "1mb",
         "a1mb"},
	{"\xe2\x82\xac\xe2\x82\xac\rx", "x\xe2\x82\xac"},
	{"\xff\xfe", "\xff\xfe"},
};

static void loglines_fold(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(folds); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1000);

		logline_fold(str_of(folds[i].text), &out);
		if (strcmp(buf_cstr(&out), folds[i].want) != 0)
			fail_msg("row %zu: \"%s\"", i, buf_cstr(&out));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(loglines_pass_over_what_is_torn),
	cmocka_unit_test(loglines_times_rise),
	cmocka_unit_test(loglines_escape_our_own),
	cmocka_unit_test(loglines_cut_long_text),
	cmocka_unit_test(loglines_fold),
};
UNIT_MAIN(tests)
