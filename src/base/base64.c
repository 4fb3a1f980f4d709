/* base64.c - see base64.h. */
#include "base/base64.h"

#define NO 0x80 /* no character of the alphabet */
#define GROUP_CHARS 4

/* clang-format off */
static const uint8_t value_of[256] = {
	[0 ... '+' - 1] = NO, ['+'] = 62, ['+' + 1 ... '/' - 1] = NO, ['/'] = 63,
	['0'] = 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, ['9' + 1 ... 'A' - 1] = NO,
	['A'] = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
	['N'] = 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
	['Z' + 1 ... 'a' - 1] = NO,
	['a'] = 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
	['n'] = 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
	['z' + 1 ... 255] = NO,
};
/* clang-format on */

static void check(const struct base64 *b)
{
	assert(b->n < GROUP_CHARS && b->pads <= 2);
	assert(b->pads == 0 || b->n > b->pads);
	assert(!b->ended || b->n == 0);
}

/* The whole groups that text begins with, as many as fit: returns how many. */
static size_t groups(const uint8_t *p, size_t chars, uint8_t *out, size_t cap)
{
	size_t most = MIN(chars / GROUP_CHARS, cap / BASE64_GROUP), n = 0;

	for (; n < most; n++, p += GROUP_CHARS, out += BASE64_GROUP) {
		unsigned a = value_of[p[0]], b = value_of[p[1]], c = value_of[p[2]],
			 d = value_of[p[3]];
		uint32_t v = a << 18 | b << 12 | c << 6 | d;

		if (((a | b | c | d) & NO) != 0)
			break;
		out[0] = (uint8_t)(v >> 16);
		out[1] = (uint8_t)(v >> 8);
		out[2] = (uint8_t)v;
	}
	return n;
}

/* The group is complete. */
static int group_ends(struct base64 *b, uint8_t *out, size_t *n, struct err *err)
{
	size_t bytes = BASE64_GROUP - b->pads;
	uint32_t v = b->bits;

	if ((v & ((1U << 8 * b->pads) - 1)) != 0)
		return err_set(err, ERR_INVALID, "not base64: bits are left over at its end");
	for (size_t i = 0; i < bytes; i++)
		out[*n + i] = (uint8_t)(v >> (16 - 8 * i));
	*n += bytes;
	*b = (struct base64){.ended = b->pads > 0};
	return 0;
}

static int bad(char c, struct err *err)
{
	if (c > ' ' && c < 0x7f)
		return err_set(err, ERR_INVALID, "not base64: '%c'", c);
	return err_set(err, ERR_INVALID, "not base64: byte 0x%02x", (uint8_t)c);
}

/* One character; *n grows when it completes a group. */
static int one(struct base64 *b, char c, uint8_t *out, size_t *n, struct err *err)
{
	uint8_t v = value_of[(uint8_t)c];

	if (c == '\n' || c == '\r')
		return 0;
	if (b->ended)
		return err_set(err, ERR_INVALID, "not base64: something follows the padding");
	if (c == '=' && b->n >= 2)
		b->pads++;
	else if (v == NO || b->pads > 0)
		return bad(c, err);
	b->bits = b->bits << 6 | (v == NO ? 0 : v);
	return ++b->n < GROUP_CHARS ? 0 : group_ends(b, out, n, err);
}

int base64_feed(struct base64 *b, struct str *text, uint8_t *out, size_t cap, size_t *n,
                struct err *err)
{
	struct str rest = *text;
	size_t done = 0;

	check(b);
	assert(cap >= BASE64_GROUP);
	while (rest.n > 0 && cap - done >= BASE64_GROUP) {
		if (b->n == 0 && !b->ended) {
			size_t k = groups((const uint8_t *)rest.p, rest.n, out + done, cap - done);

			done += k * BASE64_GROUP;
			rest = str_skip(rest, k * GROUP_CHARS);
			if (rest.n == 0 || cap - done < BASE64_GROUP)
				break;
		}
		if (one(b, rest.p[0], out, &done, err) < 0)
			return -1;
		rest = str_skip(rest, 1);
	}
	check(b);
	*text = rest;
	*n = done;
	return 0;
}

int base64_end(const struct base64 *b, struct err *err)
{
	check(b);
	if (b->n > 0)
		return err_set(err, ERR_INVALID, "not base64: it ends inside of a group of four");
	return 0;
}
