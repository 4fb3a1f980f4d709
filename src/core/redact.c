/*
 * redact.c - Aho-Corasick over the values and the forms in which they show up. Every byte that is
 * part of any match is taken out, and each run of such bytes becomes one replacement: what overlaps
 * leaves no rest behind.
 *
 * The stream holds back as many bytes as the automaton has recognised: a match that is still to
 * come starts with them at the earliest, so whatever lies before is decided, however the text was
 * split.
 */
#include "core/redact.h"

#include "base/hash.h"

#define PIECE_MAX ((size_t)4 << 10) /* longer values are taken piece by piece */
#define FORM_MAX (8 * PIECE_MAX)    /* no form is larger: six bytes for one, and padding */
#define FEED_MAX ((size_t)64 << 10) /* bytes that are taken in before some are let out */
#define HELD_MAX (FEED_MAX + FORM_MAX)

enum mark { MARK_PLAIN, MARK_INSIDE, MARK_FIRST };

struct node {
	uint32_t child, sibling, fail; /* 0: none; the root is 0 and nobody's child */
	uint32_t depth;
	uint32_t match; /* length of the longest pattern that ends here */
	uint8_t byte;
};

struct redact {
	struct node *node;
	size_t n, cap;
	uint32_t root[256]; /* children of the root */
	size_t values, total, longest;
	bool built;
};

struct redact *redact_new(void)
{
	struct redact *r = xcalloc(1, sizeof(*r));

	r->cap = 64;
	r->node = xcalloc(r->cap, sizeof(*r->node));
	r->n = 1;
	return r;
}

void redact_free(struct redact *r)
{
	if (r == NULL)
		return;
	/* The nodes spell the secrets. */
	explicit_bzero(r->node, r->cap * sizeof(*r->node));
	free(r->node);
	free(r);
}

static uint32_t child_of(const struct redact *r, uint32_t at, uint8_t c)
{
	uint32_t i;

	if (at == 0)
		return r->root[c];
	for (i = r->node[at].child; i != 0 && r->node[i].byte != c; i = r->node[i].sibling)
		;
	return i;
}

static uint32_t new_child(struct redact *r, uint32_t at, uint8_t c)
{
	uint32_t i = (uint32_t)r->n;

	if (r->n == r->cap) {
		struct node *more = xcalloc(2 * r->cap, sizeof(*more));

		memcpy(more, r->node, r->n * sizeof(*more));
		explicit_bzero(r->node, r->n * sizeof(*more));
		free(r->node);
		r->node = more;
		r->cap *= 2;
	}
	r->n++;
	r->node[i] = (struct node){.byte = c, .depth = r->node[at].depth + 1};
	if (at == 0) {
		r->root[c] = i;
	} else {
		r->node[i].sibling = r->node[at].child;
		r->node[at].child = i;
	}
	return i;
}

static void add_pattern(struct redact *r, struct str text)
{
	uint32_t at = 0;

	if (text.n < REDACT_MIN)
		return;
	for (size_t i = 0; i < text.n; i++) {
		uint8_t c = (uint8_t)text.p[i];
		uint32_t next = child_of(r, at, c);

		at = next != 0 ? next : new_child(r, at, c);
	}
	r->node[at].match = r->node[at].depth;
	r->longest = MAX(r->longest, text.n);
}

/* In base64 a text looks different by its place in a group of three. The characters at either end
 * that also hold bits of the neighbours are left out, except where the text is the whole. */
static void add_base64(struct redact *r, struct str text, bool url)
{
	static const size_t lead[] = {0, 2, 3};

	for (size_t shift = 0; shift < COUNT(lead); shift++) {
		AUTO_BUF struct buf plain = BUF_INIT(PIECE_MAX + 2);
		AUTO_BUF struct buf coded = BUF_INIT(FORM_MAX);
		size_t whole = (shift + text.n) * 8 / 6;

		buf_add(&plain, "\0\0", shift);
		buf_str(&plain, text);
		base64_encode(plain.p, plain.n, url, &coded);
		if (shift == 0)
			add_pattern(r, buf_view(&coded));
		add_pattern(r, str_n(coded.p + lead[shift], MIN(whole, coded.n) - lead[shift]));
		explicit_bzero(plain.p, plain.n);
		explicit_bzero(coded.p, coded.n);
	}
}

static bool is_unreserved(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

/* As paths and queries have it: '/' plain or not, blanks as %20 or '+', digits in either case. */
static void add_percent(struct redact *r, struct str text, bool lower, bool form, bool slash)
{
	AUTO_BUF struct buf out = BUF_INIT(FORM_MAX);

	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if (is_unreserved(c) || (slash && c == '/'))
			buf_putc(&out, (char)c);
		else if (form && c == ' ')
			buf_putc(&out, '+');
		else
			buf_printf(&out, lower ? "%%%02x" : "%%%02X", c);
	}
	add_pattern(r, buf_view(&out));
	if (out.p != NULL)
		explicit_bzero(out.p, out.n);
}

/* One character of UTF-8 from *s; an invalid byte stands for itself. */
static uint32_t next_point(struct str *s)
{
	unsigned char c = (unsigned char)s->p[0];
	size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
	uint32_t point = more == 3 ? c & 7U : more == 2 ? c & 15U : more == 1 ? c & 31U : c;

	if (s->n <= more) {
		more = 0;
		point = c;
	}
	for (size_t i = 1; i <= more; i++)
		point = point << 6 | ((unsigned char)s->p[i] & 63U);
	*s = str_skip(*s, 1 + more);
	return point;
}

static void json_unit(struct buf *out, uint32_t unit, bool lower)
{
	buf_printf(out, lower ? "\\u%04x" : "\\u%04X", unit);
}

/* As JSON writers have it: with and without ASCII only, '/' quoted or not. */
static void add_json(struct redact *r, struct str text, bool ascii, bool slash, bool lower)
{
	static const char quoted[] = "\"\\\b\f\n\r\t", outbox[] = "\"\\bfnrt";
	AUTO_BUF struct buf out = BUF_INIT(FORM_MAX);

	while (text.n > 0) {
		const char *start = text.p;
		uint32_t c = next_point(&text);
		const char *q = c < 128 && c != 0 ? strchr(quoted, (int)c) : NULL;

		if (q != NULL)
			buf_printf(&out, "\\%c", outbox[q - quoted]);
		else if (c == '/' && slash)
			buf_puts(&out, "\\/");
		else if (c < ' ' || (ascii && c >= 127 && c < 0x10000))
			json_unit(&out, c, lower);
		else if (ascii && c >= 0x10000) {
			json_unit(&out, 0xd800 + ((c - 0x10000) >> 10 & 0x3ff), lower);
			json_unit(&out, 0xdc00 + ((c - 0x10000) & 0x3ff), lower);
		} else {
			buf_add(&out, start, (size_t)(text.p - start));
		}
	}
	add_pattern(r, buf_view(&out));
	if (out.p != NULL)
		explicit_bzero(out.p, out.n);
}

static void add_forms(struct redact *r, struct str text)
{
	add_pattern(r, text);
	if (text.n < REDACT_MIN)
		return;
	for (unsigned i = 0; i < 2; i++)
		add_base64(r, text, i == 1);
	for (unsigned i = 0; i < 8; i++) {
		add_percent(r, text, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
		add_json(r, text, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
	}
}

/* A rest that is too short to stand alone goes with the piece before it. */
static void add_pieces(struct redact *r, struct str text)
{
	while (text.n > PIECE_MAX) {
		size_t n = text.n - PIECE_MAX < REDACT_MIN ? PIECE_MAX - REDACT_MIN : PIECE_MAX;

		add_forms(r, str_n(text.p, n));
		text = str_skip(text, n);
	}
	add_forms(r, text);
}

int redact_add(struct redact *r, struct str value, struct err *err)
{
	struct str rest = value, line;

	assert(!r->built);
	if (r->values == REDACT_VALUES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d secrets to redact from the logs",
		               REDACT_VALUES_MAX);
	if (value.n > REDACT_TOTAL_MAX - r->total)
		return err_set(err, ERR_TOO_BIG,
		               "the secrets to redact from the logs are larger than %zu KiB",
		               REDACT_TOTAL_MAX >> 10);
	r->values++;
	r->total += value.n;
	add_pieces(r, value);
	if (str_trim(value).n != value.n) /* as $(cat FILE) or a form would have it */
		add_pieces(r, str_trim(value));
	if (value.n == 0 || memchr(value.p, '\n', value.n) == NULL)
		return 0;
	while (str_cut(&rest, '\n', &line))
		add_pieces(r, str_trim(line));
	return 0;
}

static uint32_t step(const struct redact *r, uint32_t at, uint8_t c)
{
	for (;;) {
		uint32_t next = child_of(r, at, c);

		if (next != 0 || at == 0)
			return next;
		at = r->node[at].fail;
	}
}

static void link_child(struct redact *r, uint32_t parent, uint32_t i)
{
	struct node *n = &r->node[i];

	n->fail = parent == 0 ? 0 : step(r, r->node[parent].fail, n->byte);
	if (n->match == 0)
		n->match = r->node[n->fail].match;
}

/* Level by level: where a node falls back to is nearer to the root. */
void redact_build(struct redact *r)
{
	uint32_t *queue = xcalloc(r->n, sizeof(*queue));
	size_t head = 0, tail = 0;

	assert(!r->built);
	for (size_t c = 0; c < COUNT(r->root); c++) {
		if (r->root[c] != 0) {
			link_child(r, 0, r->root[c]);
			queue[tail++] = r->root[c];
		}
	}
	while (head < tail) {
		uint32_t at = queue[head++];

		for (uint32_t i = r->node[at].child; i != 0; i = r->node[i].sibling) {
			link_child(r, at, i);
			queue[tail++] = i;
		}
	}
	assert(tail == r->n - 1);
	free(queue);
	r->built = true;
}

size_t redact_longest(const struct redact *r)
{
	return r->longest;
}

void redact_stream_init(struct redact_stream *s, const struct redact *r)
{
	assert(r->built);
	*s = (struct redact_stream){
		.r = r,
		.held = BUF_INIT(HELD_MAX),
		.marks = BUF_INIT(HELD_MAX),
	};
}

void redact_stream_done(struct redact_stream *s)
{
	if (s->held.p != NULL)
		explicit_bzero(s->held.p, s->held.n);
	buf_done(&s->held);
	buf_done(&s->marks);
}

/* held[from..] up to its end is a secret. A run that it overlaps or touches becomes one with it. */
static void mark(struct redact_stream *s, size_t from)
{
	char *m = s->marks.p;
	size_t end = s->held.n, fill = from;

	if (from >= s->start && from < s->end)
		fill = s->end; /* the last secret goes on */
	else
		s->start = from;
	if (fill == from && m[from] == MARK_PLAIN)
		m[fill++] = (from > 0 ? m[from - 1] != MARK_PLAIN : s->covered) ? MARK_INSIDE
		                                                                : MARK_FIRST;
	else if (fill == from)
		fill++; /* inside of an earlier one, or its first byte: stays what it is */
	if (fill < end)
		memset(m + fill, MARK_INSIDE, end - fill);
	s->end = end;
}

/* The first n bytes of held are decided. */
static void let_out(struct redact_stream *s, size_t n, struct buf *out)
{
	const char *m = s->marks.p;

	for (size_t i = 0, run; i < n; i += run) {
		run = 1;
		if (m[i] == MARK_FIRST)
			buf_puts(out, REDACT_REPLACEMENT);
		if (m[i] != MARK_PLAIN)
			continue;
		while (i + run < n && m[i + run] == MARK_PLAIN)
			run++;
		buf_add(out, s->held.p + i, run);
	}
	if (n == 0)
		return;
	s->covered = m[n - 1] != MARK_PLAIN;
	s->start -= MIN(s->start, n);
	s->end -= MIN(s->end, n);
	buf_drop(&s->held, n);
	buf_drop(&s->marks, n);
}

static void feed_some(struct redact_stream *s, struct str bytes, struct buf *out)
{
	size_t at = s->held.n;
	char *room = buf_room(&s->marks, bytes.n);

	assert(room != NULL);
	memset(room, MARK_PLAIN, bytes.n);
	s->marks.n += bytes.n;
	buf_str(&s->held, bytes);
	assert(!s->held.full);
	for (size_t i = 0, all = s->held.n; i < bytes.n; i++) {
		uint32_t match;

		s->at = step(s->r, s->at, (uint8_t)bytes.p[i]);
		match = s->r->node[s->at].match; /* at most the depth, and so much is held */
		if (match == 0)
			continue;
		s->held.n = at + i + 1; /* as if the rest were still to come */
		mark(s, s->held.n - match);
		s->held.n = all;
	}
	let_out(s, s->held.n - s->r->node[s->at].depth, out);
}

void redact_feed(struct redact_stream *s, struct str bytes, struct buf *out)
{
	while (bytes.n > 0) {
		struct str some = str_n(bytes.p, MIN(bytes.n, FEED_MAX));

		feed_some(s, some, out);
		bytes = str_skip(bytes, some.n);
	}
}

void redact_flush(struct redact_stream *s, struct buf *out)
{
	let_out(s, s->held.n, out);
	s->at = 0;
	s->start = s->end = 0;
	s->covered = false;
}

void redact_text(const struct redact *r, struct str text, struct buf *out)
{
	struct redact_stream s;

	redact_stream_init(&s, r);
	redact_feed(&s, text, out);
	redact_flush(&s, out);
	redact_stream_done(&s);
}
