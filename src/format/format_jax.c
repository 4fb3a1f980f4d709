/*
 * format_jax.c - what JAX's savers write: manifests and nodes of tensorstore's OCDBT, in which
 * Orbax keeps its arrays, and the msgpack of Flax.
 *
 * A record of OCDBT is: u32 magic (big endian), u64 its whole length, version, ..., u32 CRC-32C of
 * all before it. (tensorstore, kvstore/ocdbt/index.rst; msgpack spec.md)
 */
#include "format/parsers.h"

#define RECORD_MAX ((uint64_t)256 << 20)
#define RECORD_LEAST 18 /* magic, length, version, compression, checksum */
#define VALUES_MAX ((uint64_t)64 << 20)

/* The record at `at`; its length, or 0 when a verdict was given or the reader failed. */
static uint64_t check_record(struct look *l, uint64_t at)
{
	uint64_t length, upto = 0;
	uint32_t crc = 0;
	const uint8_t *p = NULL;

	if (!look_has(l, at, RECORD_LEAST)) {
		look_torn(l, "ends in its header");
		return 0;
	}
	if (!look_u64(l, at + 4, &length))
		return 0;
	if (length < RECORD_LEAST || length > RECORD_MAX) {
		look_unknown(l, "has an impossible length in its header");
		return 0;
	}
	if (!look_has(l, at, length)) {
		look_short(l, l->size, at + length);
		return 0;
	}
	while (upto < length - 4) {
		size_t n = (size_t)MIN(length - 4 - upto, (uint64_t)LOOK_WINDOW);

		p = look_at(l, at + upto, n);
		if (p == NULL)
			return 0;
		crc = hash_crc32c(crc, p, n);
		upto += n;
	}
	p = look_at(l, at + upto, 4);
	if (p == NULL)
		return 0;
	if (le32(p) == crc)
		return length;
	look_torn(l, "its checksum does not match");
	return 0;
}

/* A manifest is one record; a file of nodes may have several, and values behind them. */
void check_ocdbt(struct look *l)
{
	uint64_t at = 0, n = 0;

	while (at < l->size) {
		const uint8_t *p = look_has(l, at, 4) ? look_at(l, at, 4) : NULL;
		uint32_t magic;

		if (p == NULL && look_has(l, at, 4))
			return;
		magic = p == NULL ? 0 : be32(p);
		if (n > 0 &&
		    (magic == OCDBT_MANIFEST || (magic != OCDBT_NODE && magic != OCDBT_VERSIONS))) {
			look_unknown(l, "goes on behind its records");
			return;
		}
		n = check_record(l, at);
		if (n == 0)
			return;
		at += n;
	}
	look_whole(l);
}

/* How a value of msgpack is laid out, by its first byte: how many bytes of length or number
 * follow, whether that is a length in bytes, and how many values one of it holds. */
struct layout {
	uint8_t head;  /* bytes of the number */
	uint8_t extra; /* bytes besides */
	bool bytes;    /* the number is a length in bytes */
	uint8_t holds; /* ... or of values: 1 an array, 2 a map */
	bool known;
};

static struct layout layout_of(uint8_t c)
{
	/* clang-format off */
	static const struct layout rows[32] = { /* from 0xc0 */
		{.known = true}, /* nil */
		{.known = false}, /* never used */
		{.known = true}, /* false */
		{.known = true}, /* true */
		{1, 0, true, 0, true}, /* bin 8 */
		{2, 0, true, 0, true}, /* bin 16 */
		{4, 0, true, 0, true}, /* bin 32 */
		{1, 1, true, 0, true}, /* ext 8 */
		{2, 1, true, 0, true}, /* ext 16 */
		{4, 1, true, 0, true}, /* ext 32 */
		{0, 4, false, 0, true}, /* float 32 */
		{0, 8, false, 0, true}, /* float 64 */
		{0, 1, false, 0, true}, /* uint 8 */
		{0, 2, false, 0, true}, /* uint 16 */
		{0, 4, false, 0, true}, /* uint 32 */
		{0, 8, false, 0, true}, /* uint 64 */
		{0, 1, false, 0, true}, /* int 8 */
		{0, 2, false, 0, true}, /* int 16 */
		{0, 4, false, 0, true}, /* int 32 */
		{0, 8, false, 0, true}, /* int 64 */
		{0, 2, false, 0, true}, /* fixext 1 */
		{0, 3, false, 0, true}, /* fixext 2 */
		{0, 5, false, 0, true}, /* fixext 4 */
		{0, 9, false, 0, true}, /* fixext 8 */
		{0, 17, false, 0, true}, /* fixext 16 */
		{1, 0, true, 0, true}, /* str 8 */
		{2, 0, true, 0, true}, /* str 16 */
		{4, 0, true, 0, true}, /* str 32 */
		{2, 0, false, 1, true}, /* array 16 */
		{4, 0, false, 1, true}, /* array 32 */
		{2, 0, false, 2, true}, /* map 16 */
		{4, 0, false, 2, true}, /* map 32 */
	};
	/* clang-format on */

	if (c >= 0xc0 && c <= 0xdf)
		return rows[c - 0xc0];
	return (struct layout){.known = true}; /* fixint, fixmap, fixarray, fixstr */
}

static uint64_t big(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

/* One value at *at; how many more values it holds. False: a verdict was given, or the reader
 * failed. */
static bool one_value(struct look *l, uint64_t *at, uint64_t *holds)
{
	const uint8_t *p = look_at(l, *at, 1);
	struct layout as;
	uint64_t n, bytes;
	uint8_t c;

	if (p == NULL)
		return false;
	c = *p;
	as = layout_of(c);
	if (!as.known) {
		look_unknown(l, "is not msgpack");
		return false;
	}
	*holds = 0;
	bytes = as.extra;
	if (look_has(l, *at + 1, as.head) && as.head > 0) {
		p = look_at(l, *at + 1, as.head);
		if (p == NULL)
			return false;
		n = big(p, as.head);
		bytes += as.bytes ? n : 0;
		*holds = as.holds * n;
	} else if (c >= 0x80 && c <= 0x8f) {
		*holds = 2 * (uint64_t)(c & 0x0f);
	} else if (c >= 0x90 && c <= 0x9f) {
		*holds = c & 0x0f;
	} else if (c >= 0xa0 && c <= 0xbf) {
		bytes = c & 0x1f;
	}
	if (!look_has(l, *at + 1, as.head + bytes)) {
		look_torn(l, "ends in the middle");
		return false;
	}
	*at += 1 + as.head + bytes;
	return true;
}

void check_msgpack(struct look *l)
{
	uint64_t left = 1, at = 0, holds = 0;

	for (uint64_t n = 0; left > 0; n++) {
		if (n >= VALUES_MAX || left > VALUES_MAX) {
			look_unknown(l, "has too many values to be checked");
			return;
		}
		if (!look_has(l, at, 1)) {
			look_torn(l, "ends in the middle");
			return;
		}
		if (!one_value(l, &at, &holds))
			return;
		left += holds - 1;
	}
	if (at == l->size)
		look_whole(l);
	else
		look_unknown(l, "goes on behind its end");
}
