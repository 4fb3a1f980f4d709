/* test_units.c - sizes, durations and rates. */
#include "base/units.h"

#include "unit.h"

static void test_bytes(void **state)
{
	static const struct {
		const char *text;
		uint64_t want; /* UINT64_MAX: refused */
	} rows[] = {
		{"", UINT64_MAX},
		{"Gi", UINT64_MAX},
		{"-1", UINT64_MAX},
		{".5G", UINT64_MAX},
		{"1.2.3G", UINT64_MAX},
		{"1X", UINT64_MAX},
		{"1 G i", UINT64_MAX},
		{"1e3", UINT64_MAX},
		{"99999999999999999999", UINT64_MAX},
		{"9000P", UINT64_MAX},
		{"1Gix", UINT64_MAX},
		{"0", 0},
		{"4096", 4096},
		{"2Gi", 2ULL << 30},
		{"64GiB", 64ULL << 30},
		{"500M", 500000000},
		{"1.5TB", 1500000000000ULL},
		{" 1 k ", 1000},
		{"1ki", 1024},
		{"8000P", 8000000000000000000ULL},
		{"1.5", 1},
	};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t v = UINT64_MAX;
		int r = units_bytes(str_of(rows[i].text), &v, &err);

		assert_row((r == 0) == (rows[i].want != UINT64_MAX), rows[i].text);
		assert_row(v == rows[i].want, rows[i].text);
		assert_row(r == 0 || err.code == ERR_INVALID, rows[i].text);
		err_clear(&err);
	}
}

static void test_seconds(void **state)
{
	static const struct {
		const char *text;
		uint64_t want;
	} rows[] = {
		{"", UINT64_MAX},
		{"s", UINT64_MAX},
		{"-1s", UINT64_MAX},
		{"1y", UINT64_MAX},
		{"1h-1m", UINT64_MAX},
		{"99999999999999999999s", UINT64_MAX},
		{"9223372036854775807d", UINT64_MAX},
		{"45", 45},
		{"90s", 90},
		{"15m", 900},
		{"24h", 86400},
		{"7d", 604800},
		{"1h30m", 5400},
		{"1h30", 3630},
	};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t v = UINT64_MAX;
		int r = units_seconds(str_of(rows[i].text), &v, &err);

		assert_row((r == 0) == (rows[i].want != UINT64_MAX), rows[i].text);
		assert_row(v == rows[i].want, rows[i].text);
		err_clear(&err);
	}
}

static void test_show(void **state)
{
	char out[UNITS_CAP];

	(void)state;
	assert_string_equal(units_show_count(0, out), "0");
	assert_string_equal(units_show_count(999, out), "999");
	assert_string_equal(units_show_count(1011, out), "1,011");
	assert_string_equal(units_show_count(UINT64_MAX, out), "18,446,744,073,709,551,615");
	assert_string_equal(units_show_bytes(0, out), "0 B");
	assert_string_equal(units_show_bytes(999, out), "999 B");
	assert_string_equal(units_show_bytes(1000, out), "1.00 kB");
	assert_string_equal(units_show_bytes(999999, out), "1.00 MB");
	assert_string_equal(units_show_memory((uint64_t)64 << 30, out), "64Gi");
	assert_string_equal(units_show_memory((uint64_t)200 << 20, out), "200Mi");
	assert_string_equal(units_show_memory((uint64_t)1536 << 20, out), "1536Mi");
	assert_string_equal(units_show_memory((uint64_t)24064 << 20, out), "23.5Gi");
	assert_string_equal(units_show_bytes(1500000000, out), "1.50 GB");
	assert_string_equal(units_show_bytes(UINT64_MAX, out), "18.45 EB");
	assert_string_equal(units_show_seconds(12, out), "12s");
	assert_string_equal(units_show_seconds(61, out), "1m 1s");
	assert_string_equal(units_show_seconds(6660, out), "1h 51m");
	assert_string_equal(units_show_seconds(90000, out), "1d 1h");
	(void)units_show_seconds(UINT64_MAX, out);
	assert_string_equal(units_show_rate(412e6, out), "412 MB/s");
	assert_string_equal(units_show_rate(1.25e6, out), "1.2 MB/s");
	assert_string_equal(units_show_rate(-1, out), "0 B/s");
	assert_string_equal(units_show_rate(1.0 / 0.0, out), "0 B/s");
	(void)units_show_rate(1e300, out);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_bytes),
	cmocka_unit_test(test_seconds),
	cmocka_unit_test(test_show),
};

UNIT_MAIN(tests)
