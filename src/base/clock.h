/* clock.h - wall and monotonic time; tests can set both. */
#ifndef CLOCK_H
#define CLOCK_H

#include "base/buf.h"

int64_t clock_wall_ms(void);
int64_t clock_wall_ns(void);
int64_t clock_mono_ms(void); /* CLOCK_BOOTTIME: goes on while the machine sleeps */
/* A file's time may be any second, which whoever owns the file sets: as near as nanoseconds get. */
int64_t clock_ns_of(int64_t s, int64_t ns);
void clock_sleep_ms(int64_t ms);
/* From now on both clocks stand at these values; -1, -1 gives back the real ones. */
void clock_fake(int64_t wall_ms, int64_t mono_ms);

#define CLOCK_ISO_CAP 32
/* "2026-11-21T10:11:12.345Z" */
void clock_iso(int64_t wall_ms, char out[CLOCK_ISO_CAP]);
/* As in a header of HTTP: Wed, 25 Nov 2026 10:11:12 GMT */
#define CLOCK_HTTP_CAP 64
void clock_http(int64_t wall_ms, char out[CLOCK_HTTP_CAP]);
/* ISO 8601 with Z or an offset, optional fraction; also RFC 1123 dates. */
int clock_parse(struct str text, int64_t *wall_ms, struct err *err) MUST_CHECK;

#endif
