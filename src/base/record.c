/* record.c - see record.h. */
#include "base/record.h"

#include "base/clock.h"

#define LIST_MAX 100000 /* entries of one list: more is not a message but an attack */

/* Typed reads and writes at an offset, by memcpy: no aliasing, no alignment to think of. */
#define GET(type, base, off)                                                                       \
	(__extension__({                                                                           \
		type v_;                                                                           \
		memcpy(&v_, (const char *)(base) + (off), sizeof(type));                           \
		v_;                                                                                \
	}))
#define PUT(type, base, off, value)                                                                \
	do {                                                                                       \
		type v_ = (value);                                                                 \
		memcpy((char *)(base) + (off), &v_, sizeof(v_));                                   \
	} while (0)

/* JSON readers hold 63 bits: what is larger is said as the largest. */
static uint64_t clamp(uint64_t n)
{
	return MIN(n, (uint64_t)INT64_MAX);
}

static size_t entry_size(const struct record_field *f)
{
	switch (f->kind & R_KIND) {
	case R_TEXTS:
		return sizeof(const char *);
	case R_NUMBERS:
		return sizeof(uint32_t);
	default:
		return f->of->size;
	}
}

bool record_is_nothing(const struct record_field *f, const void *m)
{
	unsigned kind = f->kind & R_KIND;
	bool list = kind >= R_TEXTS && kind <= R_FIXED;
	const char *at = (const char *)m + (list ? f->count : f->at);
	size_t size = kind == R_BOOL                                     ? 1
	              : kind == R_WORD || kind == R_U32 || kind == R_INT ? sizeof(uint32_t)
	                                                                 : sizeof(uint64_t);

	if (f->count > 0 && !list)
		return !GET(bool, m, f->count);
	if (kind == R_PART)
		return record_is_nothing(&f->of->field[0], m);
	if ((f->kind & R_NEGATIVE) != 0)
		return GET(int64_t, m, f->at) < 0;
	for (size_t i = 0; i < size; i++) {
		if (at[i] != 0)
			return false;
	}
	return true;
}

static void write_list(const struct record_field *f, const void *m, struct js *js)
{
	unsigned kind = f->kind & R_KIND;
	size_t n = GET(size_t, m, f->count), each = entry_size(f);
	const char *at = (const char *)m + f->at;

	if (kind != R_FIXED)
		at = GET(const char *, m, f->at);
	js_list(js);
	for (size_t i = 0; i < n; i++, at += each) {
		if (kind == R_TEXTS)
			js_cstr(js, GET(const char *, at, 0));
		else if (kind == R_NUMBERS)
			js_u64(js, GET(uint32_t, at, 0));
		else
			record_write_js(f->of, at, js);
	}
	js_end(js);
}

void record_write_list(const struct record *r, const void *items, size_t n, struct js *js)
{
	js_list(js);
	for (size_t i = 0; i < n; i++)
		record_write_js(r, (const char *)items + i * r->size, js);
	js_end(js);
}

static void write_bits(uint64_t bits, struct js *js)
{
	js_list(js);
	for (; bits != 0; bits &= bits - 1)
		js_int(js, __builtin_ctzll(bits));
	js_end(js);
}

static void write_time(int64_t ms, struct js *js)
{
	char text[CLOCK_ISO_CAP];

	clock_iso(ms, text);
	js_cstr(js, text);
}

static void write_digest(const void *at, struct js *js)
{
	char hex[HASH_HEX_CAP];

	digest_hex(at, hex);
	js_cstr(js, hex);
}

void record_write_value(const struct record_field *f, const void *m, struct js *js)
{
	switch ((enum record_kind)(f->kind & R_KIND)) {
	case R_TEXT:
		js_cstr(js, GET(const char *, m, f->at));
		break;
	case R_WORD:
		js_cstr(js, words_at(f->words, GET(unsigned, m, f->at)));
		break;
	case R_U32:
		js_u64(js, GET(uint32_t, m, f->at));
		break;
	case R_U64:
		js_u64(js, clamp(GET(uint64_t, m, f->at)));
		break;
	case R_INT:
		js_int(js, GET(int, m, f->at));
		break;
	case R_I64:
		js_int(js, GET(int64_t, m, f->at));
		break;
	case R_REAL:
		js_real(js, GET(double, m, f->at));
		break;
	case R_BOOL:
		js_bool(js, GET(bool, m, f->at));
		break;
	case R_DIGEST:
		write_digest((const char *)m + f->at, js);
		break;
	case R_TEXTS:
	case R_NUMBERS:
	case R_LIST:
	case R_FIXED:
		write_list(f, m, js);
		break;
	case R_ONE:
		if (GET(bool, m, f->count))
			record_write_js(f->of, (const char *)m + f->at, js);
		else
			js_null(js);
		break;
	case R_TIME:
		write_time(GET(int64_t, m, f->at), js);
		break;
	case R_BITS:
		write_bits(GET(uint64_t, m, f->at), js);
		break;
	case R_SUM:
		js_int(js, __builtin_popcountll(GET(uint64_t, m, f->at)));
		break;
	case R_DOC:
		js_doc(js, GET(const struct doc *, m, f->at));
		break;
	case R_PART:
		record_write_js(f->of, m, js);
		break;
	}
}

void record_write_members(const struct record *r, const void *m, struct js *js)
{
	for (const struct record_field *f = r->field; f < r->field + r->n; f++) {
		bool nothing = (f->kind & (R_NULL | R_SPARSE | R_NEGATIVE)) != 0 &&
		               record_is_nothing(f, m);

		if (nothing && (f->kind & R_SPARSE) != 0)
			continue;
		js_key(js, f->name);
		if (nothing)
			js_null(js);
		else
			record_write_value(f, m, js);
	}
}

void record_write_js(const struct record *r, const void *m, struct js *js)
{
	js_open(js);
	record_write_members(r, m, js);
	js_close(js);
}

void record_write(const struct record *r, const void *m, struct buf *out)
{
	struct js js;

	js_init(&js, out);
	record_write_js(r, m, &js);
}

static int read_fields(const struct record *r, struct arena *a, const struct doc *d, void *m,
                       struct err *err);

static int wrong(const struct record_field *f, const struct doc *d, const char *want,
                 struct err *err)
{
	if (d == NULL)
		return err_set(err, ERR_INVALID, "%s: missing, %s is expected", f->name, want);
	return err_set(err, ERR_INVALID, "%s: %s, not %s", f->name, want, doc_kind_name(d->kind));
}

static int read_text(const struct record_field *f, struct arena *a, const struct doc *d, void *at,
                     struct err *err)
{
	if (!doc_is(d, DOC_TEXT))
		return wrong(f, d, "a text", err);
	if (d->text.n > 0 && memchr(d->text.p, 0, d->text.n) != NULL)
		return err_set(err, ERR_INVALID, "%s: holds a NUL", f->name);
	PUT(const char *, at, 0, arena_strz(a, d->text));
	return 0;
}

static int read_word(const struct record_field *f, const struct doc *d, void *at, struct err *err)
{
	int i;

	if (!doc_is(d, DOC_TEXT))
		return wrong(f, d, "a word", err);
	i = words_parse(f->words, d->text, ERR_INVALID, err);
	if (i < 0)
		return err_wrap(err, "%s", f->name);
	PUT(unsigned, at, 0, (unsigned)i);
	return 0;
}

static int read_int(const struct record_field *f, const struct doc *d, int64_t min, int64_t max,
                    struct err *err)
{
	if (!doc_is(d, DOC_INT))
		return wrong(f, d, "a whole number", err);
	if (d->num < min || d->num > max)
		return err_set(err, ERR_INVALID, "%s: %" PRId64 " is out of range", f->name,
		               d->num);
	return 0;
}

static int read_u32(const struct record_field *f, const struct doc *d, void *at, struct err *err)
{
	if (read_int(f, d, 0, UINT32_MAX, err) < 0)
		return -1;
	PUT(uint32_t, at, 0, (uint32_t)d->num);
	return 0;
}

static int read_list(const struct record_field *f, struct arena *a, const struct doc *d, void *m,
                     struct err *err)
{
	unsigned kind = f->kind & R_KIND;
	size_t each = entry_size(f);
	size_t max = kind == R_FIXED ? f->room / each : LIST_MAX, i = 0;
	char *base = (char *)m + f->at;

	if (!doc_is(d, DOC_LIST))
		return wrong(f, d, "a list", err);
	if (d->count > max)
		return err_set(err, ERR_TOO_BIG, "%s: %zu entries, at most %zu", f->name, d->count,
		               max);
	if (kind != R_FIXED) {
		base = d->count > 0 ? arena_array(a, d->count, each) : NULL;
		PUT(char *, m, f->at, base);
	}
	DOC_EACH (child, d) {
		void *at = base + i * each;
		int r;

		if (kind == R_TEXTS)
			r = read_text(f, a, child, at, err);
		else if (kind == R_NUMBERS)
			r = read_u32(f, child, at, err);
		else
			r = read_fields(f->of, a, child, at, err);
		if (r < 0)
			return err_wrap(err, "%s[%zu]", f->name, i);
		i++;
	}
	PUT(size_t, m, f->count, i);
	return 0;
}

static int read_field(const struct record_field *f, struct arena *a, const struct doc *d, void *m,
                      struct err *err)
{
	void *at = (char *)m + f->at;

	if ((f->kind & R_MAY) != 0 && (d == NULL || d->kind == DOC_NULL))
		return 0;
	switch ((enum record_kind)(f->kind & R_KIND)) {
	case R_TEXT:
		return read_text(f, a, d, at, err);
	case R_WORD:
		return read_word(f, d, at, err);
	case R_U32:
		return read_u32(f, d, at, err);
	case R_U64:
		if (read_int(f, d, 0, INT64_MAX, err) < 0)
			return -1;
		PUT(uint64_t, at, 0, (uint64_t)d->num);
		return 0;
	case R_INT:
		if (read_int(f, d, INT_MIN, INT_MAX, err) < 0)
			return -1;
		PUT(int, at, 0, (int)d->num);
		return 0;
	case R_I64:
		if (read_int(f, d, INT64_MIN, INT64_MAX, err) < 0)
			return -1;
		PUT(int64_t, at, 0, d->num);
		return 0;
	case R_REAL:
		if (!doc_is(d, DOC_REAL) && !doc_is(d, DOC_INT))
			return wrong(f, d, "a number", err);
		PUT(double, at, 0, doc_real(d, 0));
		return 0;
	case R_BOOL:
		if (!doc_is(d, DOC_BOOL))
			return wrong(f, d, "true or false", err);
		PUT(bool, at, 0, d->flag);
		return 0;
	case R_DIGEST:
		return digest_parse(doc_text(d), at, err) < 0 ? err_wrap(err, "%s", f->name) : 0;
	case R_TEXTS:
	case R_NUMBERS:
	case R_LIST:
	case R_FIXED:
		return read_list(f, a, d, m, err);
	case R_ONE:
		PUT(bool, m, f->count, doc_is(d, DOC_MAP));
		return doc_is(d, DOC_MAP) ? read_fields(f->of, a, d, at, err) : 0;
	case R_PART:
		return read_fields(f->of, a, d, m, err);
	case R_TIME:
	case R_BITS:
	case R_SUM:
	case R_DOC:
		break;
	}
	abort(); /* a kind without a reader */
}

static int read_fields(const struct record *r, struct arena *a, const struct doc *d, void *m,
                       struct err *err)
{
	if (!doc_is(d, DOC_MAP))
		return err_set(err, ERR_INVALID, "%s: a JSON object is expected", r->what);
	for (size_t i = 0; i < r->n; i++) {
		const struct record_field *f = &r->field[i];

		if (read_field(f, a, doc_get(d, f->name), m, err) < 0)
			return err_wrap(err, "%s", r->what);
	}
	return 0;
}

int record_read_doc(const struct record *r, struct arena *a, const struct doc *d, void *m,
                    struct err *err)
{
	memset(m, 0, r->size);
	return read_fields(r, a, d, m, err);
}

int record_read(const struct record *r, struct arena *a, struct str json, void *m, struct err *err)
{
	const struct doc *d = NULL;

	memset(m, 0, r->size);
	if (js_parse(a, json, &d, err) < 0)
		return err_wrap(err, "%s", r->what);
	if (read_fields(r, a, d, m, err) < 0)
		return -1;
	return r->check == NULL ? 0 : r->check(m, err);
}
