/* test_clock.c - dates as text, and the clock that tests set. */
#include "base/clock.h"

#include "unit.h"

#define BAD INT64_MIN

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		int64_t want;
	} rows[] = {
		{"", BAD},
		{"yesterday", BAD},
		{"2026-02-31T10:00:00Z", BAD},
		{"2026-02-31T00:00:00Z", BAD},
		{"2026-13-01T00:00:00Z", BAD},
		{"2026-11-21T10:11:12Zx", BAD},
		{"2026-11-21T10:11:12+25:00", BAD},
		{"2026-11-21T10:11:12+", BAD},
		{"2026-11-21T10:11:12 and a very long tail that goes on and on and on and on", BAD},
		{"1970-01-01T00:00:00Z", 0},
		{"1970-01-01T00:00:00", 0},
		{"1970-01-01 00:00:01.5Z", 1500},
		{"1970-01-01T00:00:00.123456789Z", 123},
		{"1970-01-01T02:00:00+02:00", 0},
		{"1970-01-01T00:00:00-0130", 5400000},
		{"2024-02-29T00:00:00Z", 1709164800000},
		{"2016-12-31T23:59:60Z", 1483228800000},
		{"Thu, 01 Jan 1970 00:00:10 GMT", 10000},
		{"1969-12-31T23:59:59Z", -1000},
	};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		int64_t v = BAD;

		assert_row((clock_parse(str_of(rows[i].text), &v, &err) < 0) ==
		                   (rows[i].want == BAD),
		           rows[i].text);
		assert_row(v == rows[i].want, rows[i].text);
		assert_row((err.code == ERR_INVALID) == (v == BAD), rows[i].text);
		err_clear(&err);
	}
	{
		int64_t v;

		assert_err(clock_parse(STR_LIT("1970-01-01T00:00:00Z\0x"), &v, &err), &err,
		           ERR_INVALID, "not a date");
	}
}

static void test_iso(void **state)
{
	static const int64_t times[] = {0, 1, -1, -1000, 1795255872345, 253402300799999};
	char text[CLOCK_ISO_CAP];
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(times); i++) {
		int64_t back = 7;

		clock_iso(times[i], text);
		assert_ok(clock_parse(str_of(text), &back, &err), &err);
		assert_true(back == times[i]);
	}
	clock_iso(-1, text);
	assert_string_equal(text, "1969-12-31T23:59:59.999Z");
	clock_iso(INT64_MAX, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
	clock_iso(INT64_MIN, text); /* whatever it says, it fits */
}

static void test_times_of_files(void **state UNUSED)
{
	assert_true(clock_ns_of(1, 2) == 1000000002);
	assert_true(clock_ns_of(-1, 5) == -999999995);
	assert_true(clock_ns_of(INT64_MAX, 999999999) > clock_ns_of(1795255872, 0));
	assert_true(clock_ns_of(INT64_MIN, 0) < clock_ns_of(0, 0));
	assert_true(clock_ns_of(INT64_MAX, 0) - clock_ns_of(INT64_MIN, 0) > 0);
}

static void test_fake(void **state)
{
	int64_t real = clock_wall_ms();

	(void)state;
	clock_fake(5000, 70);
	assert_true(clock_wall_ms() == 5000);
	assert_true(clock_wall_ns() == 5000000000);
	assert_true(clock_mono_ms() == 70);
	clock_fake(-1, -1);
	assert_true(clock_wall_ms() >= real);
}

/* What a reply's header says is read back as the same second. */
static void test_http(void **state UNUSED)
{
	static const int64_t times[] = {0, 10000, 951782400000, 1709164800000, 4102444799000};
	char text[CLOCK_HTTP_CAP];
	struct err err = {0};

	for (size_t i = 0; i < COUNT(times); i++) {
		int64_t back = BAD;

		clock_http(times[i] + 999, text);
		assert_ok(clock_parse(str_of(text), &back, &err), &err);
		assert_true(back == times[i]);
	}
	clock_http(1709164800000, text);
	assert_string_equal(text, "Thu, 29 Feb 2024 00:00:00 GMT");
	clock_http(-1, text);
	assert_string_equal(text, "Thu, 01 Jan 1970 00:00:00 GMT");
	clock_http(INT64_MAX, text); /* whatever it says, it fits */
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_http), cmocka_unit_test(test_parse),
	cmocka_unit_test(test_iso),  cmocka_unit_test(test_times_of_files),
	cmocka_unit_test(test_fake),
};

UNIT_MAIN(tests)
