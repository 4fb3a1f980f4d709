/* test_escape.c - what is typed to the front, and what goes on behind it. */
#include "unit.h"

#include "cli/escape.h"

static const struct {
	const char *typed, *passed;
	enum escape_want want;
	const char *rest;
} rows[] = {
	{"", "", ESCAPE_NOTHING, ""},
	{"ls ~.\r", "ls ~.\r", ESCAPE_NOTHING, ""}, /* not at the beginning */
	{"~/x\r", "~/x\r", ESCAPE_NOTHING, ""},
	{"~", "", ESCAPE_NOTHING, ""}, /* may still become one */
	{"~.more", "", ESCAPE_HANG_UP, "more"},
	{"ls\r~.", "ls\r", ESCAPE_HANG_UP, ""},
	{"ls\n~?x", "ls\n", ESCAPE_HELP, "x"},
	{"~~.\r", "~.\r", ESCAPE_NOTHING, ""},
	{"~\r~.", "~\r", ESCAPE_HANG_UP, ""},
	{"a~\r", "a~\r", ESCAPE_NOTHING, ""},
};

/* At once and a byte at a time: the same. */
static void escape_at_the_beginning_of_a_line(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(100), slow = BUF_INIT(100);
		struct escape e = {0}, one = {0};
		enum escape_want want = ESCAPE_NOTHING;
		struct str typed = str_of(rows[i].typed);

		assert_row(escape_feed(&e, &typed, &out) == rows[i].want, rows[i].typed);
		assert_row(str_eq(typed, rows[i].rest), rows[i].typed);
		assert_row(str_eq(buf_view(&out), rows[i].passed), rows[i].typed);
		for (const char *c = rows[i].typed; *c != '\0' && want == ESCAPE_NOTHING; c++) {
			struct str byte = str_n(c, 1);

			want = escape_feed(&one, &byte, &slow);
		}
		assert_row(want == rows[i].want, rows[i].typed);
		assert_row(str_same(buf_view(&slow), buf_view(&out)), rows[i].typed);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(escape_at_the_beginning_of_a_line),
};

UNIT_MAIN(tests)
