/* units.c - sizes, durations and rates as people write and read them. */
#include "base/units.h"

#include <math.h>

static const struct {
	const char *name;
	uint64_t factor;
} sizes[] = {
	{"", 1},
	{"b", 1},
	{"k", 1000},
	{"kb", 1000},
	{"ki", 1ULL << 10},
	{"kib", 1ULL << 10},
	{"m", 1000000},
	{"mb", 1000000},
	{"mi", 1ULL << 20},
	{"mib", 1ULL << 20},
	{"g", 1000000000},
	{"gb", 1000000000},
	{"gi", 1ULL << 30},
	{"gib", 1ULL << 30},
	{"t", 1000000000000ULL},
	{"tb", 1000000000000ULL},
	{"ti", 1ULL << 40},
	{"tib", 1ULL << 40},
	{"p", 1000000000000000ULL},
	{"pb", 1000000000000000ULL},
	{"pi", 1ULL << 50},
	{"pib", 1ULL << 50},
};

int units_bytes(struct str text, uint64_t *bytes, struct err *err)
{
	struct str s = str_trim(text);
	size_t i = 0;
	char number[40];
	double value;

	while (i < s.n && ((s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '.'))
		i++;
	if (i == 0 || i >= sizeof(number) || s.p[0] == '.')
		goto bad;
	memcpy(number, s.p, i);
	number[i] = '\0';
	if (strchr(number, '.') != strrchr(number, '.'))
		goto bad;
	value = strtod(number, NULL);
	for (size_t k = 0; k < COUNT(sizes); k++) {
		if (!str_ieq(str_trim(str_skip(s, i)), sizes[k].name))
			continue;
		if (value * (double)sizes[k].factor >= 9.0e18)
			return err_set(err, ERR_INVALID, "size \"%.*s\" is too large",
			               STR_ARG(text));
		if (strchr(number, '.') == NULL) {
			uint64_t whole = strtoull(number, NULL, 10);

			*bytes = whole * sizes[k].factor;
		} else {
			*bytes = (uint64_t)(value * (double)sizes[k].factor);
		}
		return 0;
	}
bad:
	return err_set(
		err, ERR_INVALID,
		"\"%.*s\" is not a size: write a number and Ki, Mi, Gi, Ti (by 1024) or k, M, G, T "
		"(by 1000), as in 64Gi",
		STR_ARG(text));
}

int units_seconds(struct str text, uint64_t *seconds, struct err *err)
{
	struct str s = str_trim(text);
	uint64_t sum = 0;

	if (s.n == 0)
		goto bad;
	while (s.n > 0) {
		uint64_t n = 0, factor = 1;
		size_t i = 0;

		for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
			if (__builtin_mul_overflow(n, 10U, &n) ||
			    __builtin_add_overflow(n, (uint64_t)(s.p[i] - '0'), &n))
				goto bad;
		if (i == 0)
			goto bad;
		s = str_skip(s, i);
		if (s.n > 0) {
			switch (s.p[0]) {
			case 's':
				factor = 1;
				break;
			case 'm':
				factor = 60;
				break;
			case 'h':
				factor = 3600;
				break;
			case 'd':
				factor = 86400;
				break;
			case 'w':
				factor = 604800;
				break;
			default:
				goto bad;
			}
			s = str_skip(s, 1);
		}
		if (__builtin_mul_overflow(n, factor, &n) || __builtin_add_overflow(sum, n, &sum) ||
		    sum > (uint64_t)INT64_MAX / 1000)
			goto bad;
	}
	*seconds = sum;
	return 0;
bad:
	return err_set(err, ERR_INVALID,
	               "\"%.*s\" is not a duration: write numbers with s, m, h or d, as in 1h30m",
	               STR_ARG(text));
}

char *units_show_bytes(uint64_t bytes, char out[UNITS_CAP])
{
	static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	double v = (double)bytes;
	size_t i = 0;

	while (v >= 999.995 && i + 1 < COUNT(names)) {
		v /= 1000;
		i++;
	}
	if (i == 0)
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 " B", bytes);
	else
		fmt_fixed(out, UNITS_CAP, "%.2f %s", v, names[i]);
	return out;
}

char *units_show_memory(uint64_t bytes, char out[UNITS_CAP])
{
	uint64_t mib = bytes >> 20;

	if (mib >= 1024 && mib % 1024 == 0)
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "Gi", mib / 1024);
	else if (mib >= 10240)
		fmt_fixed(out, UNITS_CAP, "%.1fGi", (double)mib / 1024);
	else
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "Mi", mib);
	return out;
}

char *units_show_seconds(uint64_t s, char out[UNITS_CAP])
{
	if (s < 60)
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "s", s);
	else if (s < 3600)
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "m %" PRIu64 "s", s / 60, s % 60);
	else if (s < 86400)
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "h %" PRIu64 "m", s / 3600, s % 3600 / 60);
	else
		fmt_fixed(out, UNITS_CAP, "%" PRIu64 "d %" PRIu64 "h", s / 86400, s % 86400 / 3600);
	return out;
}

char *units_show_rate(double bytes_per_s, char out[UNITS_CAP])
{
	static const char *const names[] = {"B/s", "kB/s", "MB/s", "GB/s"};
	double v = isfinite(bytes_per_s) && bytes_per_s > 0 ? MIN(bytes_per_s, 1e15) : 0;
	size_t i = 0;

	while (v >= 999.5 && i + 1 < COUNT(names)) {
		v /= 1000;
		i++;
	}
	fmt_fixed(out, UNITS_CAP, v < 10 && i > 0 ? "%.1f %s" : "%.0f %s", v, names[i]);
	return out;
}

char *units_show_count(uint64_t n, char out[UNITS_CAP])
{
	char digits[UNITS_CAP];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	size_t at = 0;

	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}
