/*
 * format_npy.c - NumPy's .npy: a header in Python's words, {'descr': '<f4', 'fortran_order': False,
 * 'shape': (3, 4), }, and the items. (numpy/lib/format.py)
 */
#include "format/parsers.h"
#include "format/pickle.h"

#define MAGIC_N 6

/* The text after "'key':" in the header; empty if the key is missing. */
static struct str member(struct str head, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; i + n + 2 < head.n; i++)
		if (head.p[i] == '\'' && memcmp(head.p + i + 1, key, n) == 0 &&
		    head.p[i + 1 + n] == '\'' && head.p[i + 2 + n] == ':')
			return str_trim(str_skip(head, i + 3 + n));
	return str_n(NULL, 0);
}

/* Bytes of an item by its type, as in '<f4', '|O', '<U12', '<M8[ns]'; 0 = not known. */
static uint64_t item_bytes(struct str descr, bool *object)
{
	uint64_t n = 0;
	char kind;

	if (descr.n < 4 || descr.p[0] != '\'' || memchr("<>|=", descr.p[1], 4) == NULL)
		return 0;
	kind = descr.p[2];
	*object = kind == 'O';
	for (size_t i = 3; i < descr.n && i < 18 && descr.p[i] >= '0' && descr.p[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(descr.p[i] - '0');
	if (kind == 'U')
		return n * 4;
	return memchr("biufcSaVmM", kind, 10) == NULL ? 0 : n;
}

/* "(3, 4)", "(5,)", "()" */
static bool count_items(struct str shape, uint64_t *items)
{
	*items = 1;
	if (shape.n == 0 || shape.p[0] != '(')
		return false;
	for (size_t i = 1; i < shape.n; i++) {
		uint64_t v = 0;
		bool any = false;

		while (i < shape.n && shape.p[i] >= '0' && shape.p[i] <= '9') {
			if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
			    __builtin_add_overflow(v, (uint64_t)(shape.p[i] - '0'), &v))
				return false;
			any = true;
			i++;
		}
		if (any && __builtin_mul_overflow(*items, v, items))
			return false;
		if (i < shape.n && shape.p[i] == ')')
			return true;
		if (i >= shape.n || (shape.p[i] != ',' && shape.p[i] != ' ' && shape.p[i] != 'L'))
			return false;
	}
	return false;
}

static void check_object(struct look *l, uint64_t at)
{
	struct pickle_sink sink = {0};
	enum pickle_end end = pickle_walk(l, &at, &sink);

	if (end != PICKLE_STOP)
		pickle_verdict(l, end);
	else if (at != l->size)
		look_unknown(l, "goes on behind its end");
	else
		look_whole(l);
}

void check_npy(struct look *l)
{
	const uint8_t *p = look_has(l, 0, 12) ? look_at(l, 0, 12) : NULL;
	uint64_t at, n, each, items, want;
	bool object = false;
	struct str head;

	l->out->tensors = 1;
	if (p == NULL) {
		if (l->size < 12)
			look_torn(l, "ends in its header");
		return;
	}
	if (p[MAGIC_N] < 1 || p[MAGIC_N] > 3) {
		look_unknown(l, "has a version that is not known");
		return;
	}
	at = p[MAGIC_N] == 1 ? 10 : 12;
	n = p[MAGIC_N] == 1 ? le16(p + 8) : le32(p + 8);
	if (n > LOOK_WINDOW) {
		look_unknown(l, "has a very long header");
		return;
	}
	if (!look_has(l, at, n)) {
		look_torn(l, "ends in its header");
		return;
	}
	p = look_at(l, at, (size_t)n);
	if (p == NULL)
		return;
	head = str_n((const char *)p, (size_t)n);
	each = item_bytes(member(head, "descr"), &object);
	if (object) {
		check_object(l, at + n);
		return;
	}
	if (each == 0 || !count_items(member(head, "shape"), &items) ||
	    __builtin_mul_overflow(items, each, &want) ||
	    __builtin_add_overflow(want, at + n, &want)) {
		look_unknown(l, "has a header that is not known");
		return;
	}
	if (l->size < want)
		look_short(l, l->size, want);
	else if (l->size > want)
		look_unknown(l, "goes on behind its end");
	else
		look_whole(l);
}
