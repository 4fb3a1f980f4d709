/* clock.c - wall and monotonic time, and dates as text. */
#include "base/clock.h"

#include <stdatomic.h>

static _Atomic int64_t fake_wall_ms = -1, fake_mono_ms = -1;

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) < 0)
		abort();
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Not to the ends of the range: who subtracts two of them need not fear an overflow. */
int64_t clock_ns_of(int64_t s, int64_t ns)
{
	const int64_t past_s = -(INT64_C(1) << 31), future_s = INT64_C(7000000000);

	return MIN(MAX(s, past_s), future_s) * 1000000000 + ns;
}

int64_t clock_wall_ns(void)
{
	int64_t fake = atomic_load(&fake_wall_ms);

	return fake >= 0 ? fake * 1000000 : now_ns(CLOCK_REALTIME);
}

int64_t clock_wall_ms(void)
{
	return clock_wall_ns() / 1000000;
}

int64_t clock_mono_ms(void)
{
	int64_t fake = atomic_load(&fake_mono_ms);

	return fake >= 0 ? fake : now_ns(CLOCK_BOOTTIME) / 1000000;
}

void clock_sleep_ms(int64_t ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

	if (ms <= 0)
		return;
	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		continue;
}

void clock_fake(int64_t wall_ms, int64_t mono_ms)
{
	atomic_store(&fake_wall_ms, wall_ms);
	atomic_store(&fake_mono_ms, mono_ms);
}

void clock_iso(int64_t wall_ms, char out[CLOCK_ISO_CAP])
{
	time_t s = (time_t)(wall_ms / 1000);
	int ms = (int)(wall_ms % 1000);
	struct tm tm;

	if (ms < 0) {
		ms += 1000;
		s--;
	}
	if (gmtime_r(&s, &tm) == NULL || tm.tm_year > 8099) {
		fmt_fixed(out, CLOCK_ISO_CAP, "9999-12-31T23:59:59.999Z");
		return;
	}
	fmt_fixed(out, CLOCK_ISO_CAP, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
	          tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ms);
}

void clock_http(int64_t wall_ms, char out[CLOCK_HTTP_CAP])
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t s = (time_t)(wall_ms / 1000);
	struct tm tm;

	if (wall_ms < 0 || gmtime_r(&s, &tm) == NULL || tm.tm_year > 8099) {
		fmt_fixed(out, CLOCK_HTTP_CAP, "Thu, 01 Jan 1970 00:00:00 GMT");
		return;
	}
	/* not strftime(), whose words are those of a locale */
	fmt_fixed(out, CLOCK_HTTP_CAP, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
	          days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
	          tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* ".123456" -> milliseconds; moves *p behind the digits. */
static int fraction_ms(const char **p)
{
	int ms = 0;
	int scale = 100;

	if (**p != '.')
		return 0;
	for ((*p)++; **p >= '0' && **p <= '9'; (*p)++) {
		ms += (**p - '0') * scale;
		scale /= 10;
	}
	return ms;
}

/* "Z", "", "+02:00", "-0730" -> seconds east; false = junk. */
static bool zone_s(const char *p, int *out)
{
	int h = 0, m = 0, used = 0;

	*out = 0;
	if (strcmp(p, "Z") == 0 || strcmp(p, "z") == 0 || *p == '\0')
		return true;
	if (*p != '+' && *p != '-')
		return false;
	if (sscanf(p + 1, "%2d:%2d%n", &h, &m, &used) != 2 &&
	    sscanf(p + 1, "%2d%2d%n", &h, &m, &used) != 2)
		return false;
	if (p[1 + used] != '\0' || h > 23 || m > 59 || h < 0 || m < 0)
		return false;
	*out = (h * 60 + m) * 60 * (*p == '-' ? -1 : 1);
	return true;
}

int clock_parse(struct str text, int64_t *wall_ms, struct err *err)
{
	char copy[64];
	struct tm tm = {0};
	const char *p;
	int ms = 0, zone = 0, day;
	bool leap;
	int64_t s;

	if (text.n >= sizeof(copy))
		return err_set(err, ERR_INVALID, "\"%.40s...\" is not a date", text.p);
	if (text.n > 0)
		memcpy(copy, text.p, text.n);
	copy[text.n] = '\0';
	p = strptime(copy, "%Y-%m-%dT%H:%M:%S", &tm);
	if (p == NULL)
		p = strptime(copy, "%Y-%m-%d %H:%M:%S", &tm);
	if (p != NULL) {
		ms = fraction_ms(&p);
		if (!zone_s(p, &zone))
			p = NULL;
	} else {
		p = strptime(copy, "%a, %d %b %Y %H:%M:%S GMT", &tm);
		if (p != NULL && *p != '\0')
			p = NULL;
	}
	day = tm.tm_mday;
	leap = tm.tm_sec >= 60;
	s = p != NULL ? timegm(&tm) : 0;
	/* a 31st of February would have become another day */
	if (p == NULL || strlen(copy) != text.n || (tm.tm_mday != day && !leap))
		return err_set(err, ERR_INVALID,
		               "\"%s\" is not a date: write it as 2026-11-21T10:11:12Z", copy);
	*wall_ms = (s - zone) * 1000 + ms;
	return 0;
}
