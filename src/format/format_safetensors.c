/*
 * format_safetensors.c - safetensors: u64 length of the header, a map of tensors, their bytes.
 * The ranges of the tensors must follow each other without a gap from 0 to the end of the file, and
 * each must be as long as its shape and type ask. (github.com/huggingface/safetensors, README)
 */
#include "format/jscan.h"
#include "format/parsers.h"

#define HEADER_MAX ((uint64_t)100000000) /* the library's own limit */
#define TENSORS_MAX ((size_t)2 << 20)

static const struct dtype {
	const char *name;
	unsigned bits;
} dtypes[] = {
	{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
	{"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
	{"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
	{"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
	{"I64", 64},        {"U64", 64},    {"C128", 128},
};

struct range {
	uint64_t from, to;
};

struct table {
	struct range *at;
	size_t n, cap;
	bool odd; /* a tensor whose range does not fit its shape, or that lacks one */
};

/* One tensor as it is read; what is not known stays as it is here. */
struct tensor {
	struct range range;
	uint64_t items;
	unsigned bits; /* 0 = a type that we do not know */
	bool shape, ranged, over;
};

static enum jscan_token read_list(struct jscan *s, struct tensor *x, bool shape)
{
	enum jscan_token t = jscan_next(s);
	uint64_t v[2] = {0};
	size_t n = 0;

	if (t != JSCAN_LIST)
		return jscan_skip(s, t);
	for (t = jscan_next(s); !jscan_failed(t) && t != JSCAN_LIST_END; t = jscan_next(s), n++) {
		uint64_t one;

		t = jscan_skip(s, t);
		if (jscan_failed(t))
			return t;
		if (t != JSCAN_NUMBER || !jscan_u64(s, &one))
			x->over = true;
		else if (shape)
			x->over = __builtin_mul_overflow(x->items, one, &x->items) || x->over;
		else if (n < 2)
			v[n] = one;
	}
	if (shape)
		x->shape = true;
	else if (n == 2)
		x->range = (struct range){v[0], v[1]}, x->ranged = true;
	return t;
}

static enum jscan_token read_tensor(struct jscan *s, struct tensor *x)
{
	enum jscan_token t = jscan_next(s);

	if (t != JSCAN_MAP)
		return jscan_skip(s, t);
	for (t = jscan_next(s); t == JSCAN_KEY; t = jscan_next(s)) {
		if (strcmp(s->text, "shape") == 0) {
			t = read_list(s, x, true);
		} else if (strcmp(s->text, "data_offsets") == 0) {
			t = read_list(s, x, false);
		} else if (strcmp(s->text, "dtype") == 0) {
			t = jscan_skip(s, jscan_next(s));
			for (size_t i = 0; i < COUNT(dtypes) && t == JSCAN_TEXT; i++)
				if (strcmp(s->text, dtypes[i].name) == 0)
					x->bits = dtypes[i].bits;
		} else {
			t = jscan_skip(s, jscan_next(s));
		}
		if (jscan_failed(t))
			return t;
	}
	return t;
}

/* As long as its shape says? Types that are not known are taken at their word. */
static bool fits(const struct tensor *x)
{
	uint64_t bits;

	if (!x->ranged || !x->shape || x->over || x->range.to < x->range.from)
		return false;
	if (x->bits == 0)
		return true;
	if (__builtin_mul_overflow(x->items, (uint64_t)x->bits, &bits))
		return false;
	return bits % 8 == 0 && x->range.to - x->range.from == bits / 8;
}

static bool add(struct table *all, const struct tensor *x)
{
	if (all->n == all->cap) {
		if (all->n >= TENSORS_MAX)
			return false;
		all->cap = MAX(all->cap * 2, 64);
		all->at = xrealloc(all->at, all->cap * sizeof(*all->at));
	}
	all->odd = all->odd || !fits(x);
	all->at[all->n++] = x->range;
	return true;
}

static enum jscan_token read_header(struct jscan *s, struct table *all)
{
	enum jscan_token t = jscan_next(s);

	if (t != JSCAN_MAP)
		return jscan_failed(t) ? t : JSCAN_BAD;
	for (t = jscan_next(s); t == JSCAN_KEY; t = jscan_next(s)) {
		struct tensor x = {.items = 1};

		if (strcmp(s->text, "__metadata__") == 0) {
			t = jscan_skip(s, jscan_next(s));
		} else {
			t = read_tensor(s, &x);
			if (!jscan_failed(t) && !add(all, &x))
				return JSCAN_BAD;
		}
		if (jscan_failed(t))
			return t;
	}
	return t;
}

static int by_from(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->to < y->to ? -1 : x->to > y->to;
}

static void judge(struct look *l, struct table *all, uint64_t data)
{
	uint64_t end = 0;

	if (all->n > 0)
		qsort(all->at, all->n, sizeof(all->at[0]), by_from);
	for (size_t i = 0; i < all->n && !all->odd; i++) {
		all->odd = all->at[i].from != end;
		end = all->at[i].to;
	}
	l->out->tensors = all->n;
	if (all->odd)
		look_unknown(l, "its header does not add up");
	else if (end > UINT64_MAX - data)
		look_unknown(l, "its header names impossible offsets");
	else if (l->size < data + end)
		look_short(l, l->size, data + end);
	else if (l->size > data + end)
		look_torn(l, "has %" PRIu64 " bytes more than its header says",
		          l->size - data - end);
	else
		look_whole(l);
}

void check_safetensors(struct look *l)
{
	AUTO_FREE struct jscan *s = xcalloc(1, sizeof(*s));
	struct table all = {0};
	struct look_place was;
	enum jscan_token t;
	uint64_t n;

	if (l->size < 8) {
		look_torn(l, "ends in its header");
		return;
	}
	if (!look_u64(l, 0, &n))
		return;
	if (n < 2 || n > HEADER_MAX) {
		look_unknown(l, "its header has an impossible length");
		return;
	}
	if (!look_has(l, 8, n)) {
		look_torn(l, "ends in its header");
		return;
	}
	was = look_part(l, 8, n, l->name);
	jscan_start(s, l, 0);
	t = read_header(s, &all);
	if (t == JSCAN_MAP_END && jscan_rest(s))
		t = JSCAN_BAD;
	look_back(l, was);
	if (t == JSCAN_BAD && s->zero)
		look_torn(l, "has zeros in its header");
	else if (jscan_failed(t))
		look_unknown(l, "its header is not what it should be");
	else
		judge(l, &all, 8 + n);
	free(all.at);
}
