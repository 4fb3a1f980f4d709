/*
 * format_tar.c - tar archives (webdataset, .nemo): the headers are walked; the end is two blocks of
 * zeros. (POSIX.1-1988 ustar, GNU tar's base-256 sizes)
 */
#include "format/parsers.h"

#define BLOCK ((uint64_t)512)
#define ENTRIES_MAX ((uint64_t)4 << 20)

/* Octal, or base 256 when the first bit is set. */
static bool read_size(const uint8_t *p, size_t n, uint64_t *v)
{
	size_t i = 0;

	*v = 0;
	if (p[0] & 0x80) {
		*v = p[0] & 0x3f;
		for (i = 1; i < n; i++) {
			if (*v >> 55 != 0)
				return false;
			*v = *v << 8 | p[i];
		}
		return true;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		*v = *v << 3 | (uint64_t)(p[i] - '0');
	return i == n || p[i] == 0 || p[i] == ' ';
}

static bool sum_is_right(const uint8_t *p)
{
	uint64_t want, sum = 0;

	for (size_t i = 0; i < BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : p[i];
	return read_size(p + 148, 8, &want) && want == sum;
}

void check_tar(struct look *l)
{
	uint64_t at = 0;

	for (uint64_t n = 0; n < ENTRIES_MAX; n++) {
		const uint8_t *p = NULL;
		uint64_t size;

		if (!look_has(l, at, BLOCK)) {
			look_torn(l, "has no end: two blocks of zeros");
			return;
		}
		p = look_at(l, at, (size_t)BLOCK);
		if (p == NULL)
			return;
		if (look_zeros(p, (size_t)BLOCK)) {
			if (!look_has(l, at, 2 * BLOCK)) {
				look_torn(l, "has one block of zeros at its end, not two");
				return;
			}
			p = look_at(l, at, (size_t)(2 * BLOCK));
			if (p == NULL)
				return;
			if (look_zeros(p, (size_t)(2 * BLOCK)) && l->size % BLOCK == 0)
				look_whole(l);
			else
				look_unknown(l, "has blocks of zeros in its middle");
			return;
		}
		if (!sum_is_right(p) || !read_size(p + 124, 12, &size) || size > INT64_MAX) {
			look_unknown(l, "has a header that is not tar's");
			return;
		}
		/* links, folders and devices have no content, whatever their size says */
		if (p[156] >= '1' && p[156] <= '6')
			size = 0;
		at += BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
	}
	look_unknown(l, "has too many entries to be checked");
}
