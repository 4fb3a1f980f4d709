/*
 * format_gguf.c - GGUF, versions 2 and 3: header, key-values, tensor infos, data. The data must
 * reach as far as the tensor that ends last. (ggml, docs/gguf.md)
 *
 * llama-quantize and llama-gguf-split write zeros first and the header last: a file of zeros is one
 * that was not finished, which format.c sees by its name.
 */
#include "format/parsers.h"

#define KEYS_MAX ((uint64_t)65536)
#define TENSORS_MAX ((uint64_t)4 << 20)
#define DIMS_MAX 8
#define KEY_MAX 64 /* the keys that are read are shorter */
#define ALIGNMENT 32
#define NESTED_MAX 4 /* arrays in arrays */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, VALUE_TYPES };

static const uint8_t value_bytes[VALUE_TYPES] = {
	[U8] = 1,  [I8] = 1,   [U16] = 2, [I16] = 2, [U32] = 4, [I32] = 4,
	[F32] = 4, [BOOL] = 1, [U64] = 8, [I64] = 8, [F64] = 8,
};

/* ggml's tensor types: items and bytes of a block. Numbers that are not here are not known. */
static const struct {
	uint16_t items, bytes;
} blocks[] = {
	[0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},    [3] = {32, 20},
	[4] = {32, 20},    [5] = {32, 24},    [6] = {32, 22},    [7] = {32, 24},
	[8] = {32, 34},    [9] = {32, 40},    [10] = {256, 84},  [11] = {256, 110},
	[12] = {256, 144}, [13] = {256, 176}, [14] = {256, 210}, [15] = {256, 292},
	[16] = {256, 66},  [17] = {256, 74},  [18] = {256, 98},  [19] = {256, 50},
	[20] = {32, 18},   [21] = {256, 110}, [22] = {256, 82},  [23] = {256, 136},
	[24] = {1, 1},     [25] = {1, 2},     [26] = {1, 4},     [27] = {1, 8},
	[28] = {1, 8},     [29] = {256, 56},  [30] = {1, 2},     [34] = {256, 54},
	[35] = {256, 66},  [39] = {32, 17},   [40] = {64, 36},   [41] = {128, 18},
};

struct gguf {
	struct look *l;
	uint64_t at, alignment;
	bool cut, odd; /* ends in the middle; not as it should be */
	bool gone;
};

static bool going(const struct gguf *g)
{
	return !g->cut && !g->odd && !g->gone;
}

/* n <= 8 bytes as a number. */
static uint64_t number(struct gguf *g, size_t n)
{
	const uint8_t *p = NULL;
	uint64_t v = 0;

	if (!going(g))
		return 0;
	if (!look_has(g->l, g->at, n)) {
		g->cut = true;
		return 0;
	}
	p = look_at(g->l, g->at, n);
	if (p == NULL) {
		g->gone = true;
		return 0;
	}
	for (size_t i = n; i-- > 0;)
		v = v << 8 | p[i];
	g->at += n;
	return v;
}

static void pass(struct gguf *g, uint64_t n)
{
	if (going(g) && !look_has(g->l, g->at, n))
		g->cut = true;
	if (going(g))
		g->at += n;
}

/* A text; into `out` when it fits there, else out is empty. */
static void text(struct gguf *g, char out[KEY_MAX])
{
	uint64_t n = number(g, 8);

	out[0] = '\0';
	if (going(g) && n < KEY_MAX && look_has(g->l, g->at, n)) {
		const uint8_t *p = look_at(g->l, g->at, (size_t)n);

		if (p == NULL) {
			g->gone = true;
			return;
		}
		memcpy(out, p, (size_t)n);
		out[n] = '\0';
	}
	pass(g, n);
}

/* The value of a key; what it is when it is a whole number. */
static uint64_t value(struct gguf *g, uint64_t type)
{
	uint64_t count = 1, bytes;
	char none[KEY_MAX];

	for (int depth = 0; going(g) && type == ARRAY; depth++) {
		type = number(g, 4);
		count = number(g, 8);
		if (type == ARRAY && (depth == NESTED_MAX || count != 1))
			g->odd = true; /* nobody writes arrays in arrays */
	}
	if (going(g) && type >= VALUE_TYPES)
		g->odd = true;
	if (!going(g))
		return 0;
	if (type == TEXT) {
		for (uint64_t i = 0; i < count && going(g); i++)
			text(g, none);
		return 0;
	}
	if (count == 1)
		return number(g, value_bytes[type]);
	if (__builtin_mul_overflow(count, (uint64_t)value_bytes[type], &bytes))
		g->odd = true;
	pass(g, bytes);
	return 0;
}

static void read_keys(struct gguf *g, uint64_t n)
{
	for (uint64_t i = 0; i < n && going(g); i++) {
		char key[KEY_MAX];
		uint64_t type, v;

		text(g, key);
		type = number(g, 4);
		v = value(g, type);
		if (!going(g))
			return;
		if (strcmp(key, "general.alignment") == 0)
			g->alignment = v;
		else if (strcmp(key, "split.no") == 0)
			g->l->out->split_no = (uint32_t)MIN(v, UINT16_MAX);
		else if (strcmp(key, "split.count") == 0)
			g->l->out->splits = (uint32_t)MIN(v, UINT16_MAX);
	}
}

/* Where a tensor ends, from the start of the data. */
static uint64_t read_tensor(struct gguf *g)
{
	uint64_t dims, items = 1, type, offset, bytes, end = 0;
	char name[KEY_MAX];

	text(g, name);
	dims = number(g, 4);
	if (dims > DIMS_MAX)
		g->odd = true;
	for (uint64_t i = 0; i < dims && going(g); i++)
		if (__builtin_mul_overflow(items, number(g, 8), &items))
			g->odd = true;
	type = number(g, 4);
	offset = number(g, 8);
	if (!going(g))
		return 0;
	if (type >= COUNT(blocks) || blocks[type].items == 0 || items % blocks[type].items != 0 ||
	    __builtin_mul_overflow(items / blocks[type].items, (uint64_t)blocks[type].bytes,
	                           &bytes) ||
	    __builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX)
		g->odd = true;
	return end;
}

void check_gguf(struct look *l)
{
	struct gguf g = {.l = l, .at = 4, .alignment = ALIGNMENT};
	uint64_t version = number(&g, 4), tensors = number(&g, 8), keys = number(&g, 8), end = 0;

	if (going(&g) &&
	    ((version != 2 && version != 3) || keys > KEYS_MAX || tensors > TENSORS_MAX))
		g.odd = true;
	read_keys(&g, keys);
	for (uint64_t i = 0; i < tensors && going(&g); i++) {
		uint64_t to = read_tensor(&g);

		end = MAX(end, to);
	}
	if (g.gone)
		return;
	l->out->tensors = tensors;
	if (going(&g) && (g.alignment == 0 || g.alignment > UINT32_MAX))
		g.odd = true;
	if (g.odd) {
		look_unknown(l, "has a header that is not known");
	} else if (g.cut) {
		look_torn(l, "ends in its header");
	} else {
		if (tensors > 0)
			end += (g.at + g.alignment - 1) / g.alignment * g.alignment;
		if (l->size < end)
			look_short(l, l->size, end);
		else
			look_whole(l);
	}
}
