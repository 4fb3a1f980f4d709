/* buf.c - borrowed text and owned, limited bytes. */
#include "base/buf.h"

struct str str_of(const char *s)
{
	return (struct str){s != NULL ? s : "", s != NULL ? strlen(s) : 0};
}

struct str str_n(const char *p, size_t n)
{
	return (struct str){n > 0 ? p : "", n};
}

bool str_same(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_eq(struct str a, const char *b)
{
	return str_same(a, str_of(b));
}

bool str_starts(struct str s, const char *prefix)
{
	size_t n = strlen(prefix);

	return n == 0 || (s.n >= n && memcmp(s.p, prefix, n) == 0);
}

bool str_ends(struct str s, const char *suffix)
{
	size_t n = strlen(suffix);

	return n == 0 || (s.n >= n && memcmp(s.p + s.n - n, suffix, n) == 0);
}

void str_lower(char *s)
{
	for (; *s != '\0'; s++)
		if (*s >= 'A' && *s <= 'Z')
			*s = (char)(*s - 'A' + 'a');
}

bool str_ieq(struct str a, const char *b)
{
	return a.n == strlen(b) && (a.n == 0 || strncasecmp(a.p, b, a.n) == 0);
}

struct str str_skip(struct str s, size_t n)
{
	n = MIN(n, s.n);
	return (struct str){s.p + n, s.n - n};
}

size_t str_utf8_len(struct str s)
{
	uint32_t code;

	return str_utf8(s, &code);
}

size_t str_utf8(struct str s, uint32_t *code)
{
	static const struct {
		uint8_t mask, lead;
		size_t len;
		uint32_t least;
	} rows[] = {{0x80, 0x00, 1, 0},
	            {0xe0, 0xc0, 2, 0x80},
	            {0xf0, 0xe0, 3, 0x800},
	            {0xf8, 0xf0, 4, 0x10000}};
	const uint8_t *p = (const uint8_t *)s.p;
	size_t n = s.n;

	for (size_t i = 0; i < COUNT(rows) && n > 0; i++) {
		uint32_t v;

		if ((p[0] & rows[i].mask) != rows[i].lead)
			continue;
		if (n < rows[i].len)
			return 0;
		v = p[0] & (uint8_t)~rows[i].mask;
		for (size_t k = 1; k < rows[i].len; k++) {
			if ((p[k] & 0xc0) != 0x80)
				return 0;
			v = v << 6 | (p[k] & 0x3f);
		}
		if (v < rows[i].least || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
			return 0;
		*code = v;
		return rows[i].len;
	}
	return 0;
}

size_t str_utf8_mend(struct str s, struct str *text)
{
	size_t len = str_utf8_len(s);

	*text = len > 0 ? str_n(s.p, len) : UTF8_MARK;
	return MAX(len, (size_t)1);
}

bool str_is_utf8(struct str s)
{
	while (s.n > 0) {
		size_t len = str_utf8_len(s);

		if (len == 0)
			return false;
		s = str_skip(s, len);
	}
	return true;
}

struct str str_trim(struct str s)
{
	static const char blank[] = " \t\r\n";

	while (s.n > 0 && memchr(blank, s.p[0], 4) != NULL)
		s = str_skip(s, 1);
	while (s.n > 0 && memchr(blank, s.p[s.n - 1], 4) != NULL)
		s.n--;
	return s;
}

bool str_cut(struct str *s, char sep, struct str *head)
{
	const char *at;

	if (s->n == 0)
		return false;
	at = memchr(s->p, sep, s->n);
	if (at == NULL) {
		*head = *s;
		*s = (struct str){s->p + s->n, 0};
		return true;
	}
	*head = (struct str){s->p, (size_t)(at - s->p)};
	*s = str_skip(*s, head->n + 1);
	return true;
}

char *str_dup(struct str s)
{
	char *out = xmalloc(s.n + 1);

	if (s.n > 0)
		memcpy(out, s.p, s.n);
	out[s.n] = '\0';
	return out;
}

/* Digits only; -1 = not a number, 1 = too large for 64 bits. */
static int digits(struct str s, uint64_t *out)
{
	uint64_t v = 0;

	if (s.n == 0)
		return -1;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return -1;
		if (__builtin_mul_overflow(v, 10U, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
			return 1;
	}
	*out = v;
	return 0;
}

int str_u64(struct str s, uint64_t min, uint64_t max, uint64_t *out, struct err *err)
{
	uint64_t v = 0;
	int r = digits(s, &v);

	if (r < 0)
		return err_set(err, ERR_INVALID, "\"%.*s\" is not a whole number", STR_ARG(s));
	if (r > 0 || v < min || v > max)
		return err_set(err, ERR_INVALID, "%.*s is not between %" PRIu64 " and %" PRIu64,
		               STR_ARG(s), min, max);
	*out = v;
	return 0;
}

int str_i64(struct str s, int64_t min, int64_t max, int64_t *out, struct err *err)
{
	bool minus = s.n > 0 && s.p[0] == '-';
	uint64_t v = 0;
	int r = digits(minus ? str_skip(s, 1) : s, &v);
	int64_t n;

	if (r < 0)
		return err_set(err, ERR_INVALID, "\"%.*s\" is not a whole number", STR_ARG(s));
	if (r > 0 || v > (uint64_t)INT64_MAX)
		return err_set(err, ERR_INVALID, "%.*s is too large", STR_ARG(s));
	n = minus ? -(int64_t)v : (int64_t)v;
	if (n < min || n > max)
		return err_set(err, ERR_INVALID, "%.*s is not between %" PRId64 " and %" PRId64,
		               STR_ARG(s), min, max);
	*out = n;
	return 0;
}

int str_copy(struct str s, char *out, size_t cap, const char *what, struct err *err)
{
	assert(cap > 0);
	if (s.n >= cap)
		return err_set(err, ERR_TOO_BIG, "%s is %zu bytes long, the limit is %zu", what,
		               s.n, cap - 1);
	if (s.n > 0)
		memcpy(out, s.p, s.n);
	out[s.n] = '\0';
	return 0;
}

void buf_done(struct buf *b)
{
	free(b->p);
	b->p = NULL;
	b->n = b->cap = 0;
	b->full = false;
}

void buf_clear(struct buf *b)
{
	b->n = 0;
	b->full = false;
	if (b->p != NULL)
		b->p[0] = '\0';
}

char *buf_room(struct buf *b, size_t n)
{
	size_t need;
	size_t cap = b->cap;

	assert(b->max > 0 || n == 0); /* a buf is made with BUF_INIT(limit) */
	if (b->full || n > b->max || b->n > b->max - n) {
		b->full = true;
		return NULL;
	}
	need = b->n + n + 1;
	if (need > cap) {
		cap = MAX(cap * 2, (size_t)64);
		cap = MAX(cap, need);
		cap = MIN(cap, b->max + 1);
		b->p = xrealloc(b->p, cap);
		b->cap = cap;
	}
	return b->p + b->n;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_room(b, n);

	if (to == NULL)
		return;
	if (n > 0)
		memcpy(to, p, n);
	b->n += n;
	b->p[b->n] = '\0';
}

void buf_str(struct buf *b, struct str s)
{
	buf_add(b, s.p, s.n);
}

void buf_puts(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_shell(struct buf *b, const char *text)
{
	buf_putc(b, '\'');
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			buf_puts(b, "'\\''");
		else
			buf_putc(b, *text);
	}
	buf_putc(b, '\'');
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	char *to;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	assert(n >= 0);
	to = buf_room(b, (size_t)n);
	if (to == NULL)
		return;
	(void)vsnprintf(to, (size_t)n + 1, fmt, ap);
	b->n += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
	assert(n <= b->n);
	if (n == 0)
		return;
	b->n -= n;
	memmove(b->p, b->p + n, b->n);
	b->p[b->n] = '\0';
}

struct str buf_view(const struct buf *b)
{
	return str_n(b->p, b->n);
}

const char *buf_cstr(const struct buf *b)
{
	if (b->p == NULL)
		return "";
	b->p[b->n] = '\0'; /* room was filled by hand: the NUL is ours to put */
	return b->p;
}

int buf_check(const struct buf *b, const char *what, struct err *err)
{
	if (b->full)
		return err_set(err, ERR_TOO_BIG, "%s is larger than %zu bytes", what, b->max);
	return 0;
}
