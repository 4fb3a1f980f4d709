/*
 * look.h - how a parser sees a file: a window over the caller's reader, counted and bounded, and
 * the verdict it comes to. Internal to the layer.
 *
 * look_at() gives NULL when the reader failed or a limit is reached; the parser then returns at
 * once, whatever it has said: look_end() makes the verdict of it.
 */
#ifndef LOOK_H
#define LOOK_H

#include "format/format.h"

#define LOOK_WINDOW ((size_t)65536) /* the most that one call gives */
#define LOOK_PROBE ((size_t)64)     /* read at a new place; twice as much at each step from there */

/* A stretch of the file that was read. */
struct look_window {
	uint64_t at; /* absolute */
	size_t n, step;
	uint64_t used; /* number of the call that used it last */
	uint8_t *p;
};

/* Two: a directory is read while one jumps to what it names. */
#define LOOK_WINDOWS 2

struct look {
	const struct format_source *src;
	struct format_result *out;
	struct err *err;
	struct str name;     /* the file's own, without folders */
	uint64_t base, size; /* the part of the file that the parser sees */
	struct look_window window[LOOK_WINDOWS];
	uint64_t reads, calls;
	bool failed, over;
};

void look_start(struct look *l, const struct format_source *src, struct format_result *out,
                struct err *err);
/* -1 when the reader failed. */
int look_end(struct look *l) MUST_CHECK;

bool look_has(const struct look *l, uint64_t at, uint64_t n); /* inside the part? */
/* n bytes from `at`, which must be there (look_has), n <= LOOK_WINDOW; valid until the next call.
 */
const uint8_t *look_at(struct look *l, uint64_t at, size_t n);
bool look_u64(struct look *l, uint64_t at, uint64_t *v); /* little endian; false as NULL above */
bool look_zeros(const uint8_t *p, size_t n);

/* The part [at, at + n) of what is seen now, until look_back(). */
struct look_place {
	uint64_t base, size;
	struct str name;
};
struct look_place look_part(struct look *l, uint64_t at, uint64_t n, struct str name);
void look_back(struct look *l, struct look_place to);

/* The verdict, with the reason in words; the last one counts. */
void look_whole(struct look *l);
void look_torn(struct look *l, const char *fmt, ...) PRINTF(2, 3);
void look_unknown(struct look *l, const char *fmt, ...) PRINTF(2, 3);
void look_short(struct look *l, uint64_t has, uint64_t of); /* torn: "has 1.2 of 3.1 GB" */
bool look_is(const struct look *l, enum format_verdict v);
/* Puts "<what>: " in front of the reason. */
void look_wrap(struct look *l, struct str what);
/* The facts of the result, made when new. */
struct format_facts *look_facts(struct look *l, enum format_role role);

static inline uint16_t le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t le64(const uint8_t *p)
{
	return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static inline uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[3] | (uint32_t)p[2] << 8 | (uint32_t)p[1] << 16 | (uint32_t)p[0] << 24;
}

#endif
