/* fuzz_units.c - any bytes as a size, a duration, a date and a number. */
#include "base/clock.h"
#include "base/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str text = str_n((const char *)data, n);
	char out[UNITS_CAP], iso[CLOCK_ISO_CAP];
	struct err err = {0};
	uint64_t u = 0;
	int64_t ms = 0;

	if (units_bytes(text, &u, &err) == 0)
		(void)units_show_bytes(u, out);
	err_clear(&err);
	if (units_seconds(text, &u, &err) == 0) {
		if (u > (uint64_t)INT64_MAX / 1000)
			abort();
		(void)units_show_seconds(u, out);
	}
	err_clear(&err);
	if (clock_parse(text, &ms, &err) == 0)
		clock_iso(ms, iso);
	err_clear(&err);
	if (str_i64(text, -100, 100, &ms, &err) == 0 && (ms < -100 || ms > 100))
		abort();
	return 0;
}
