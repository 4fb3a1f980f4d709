/* jscan.c - JSON as a stream of tokens; see jscan.h. */
#include "format/jscan.h"

#define CHUNK ((size_t)8192)

void jscan_start(struct jscan *s, struct look *l, uint64_t at)
{
	s->l = l;
	s->at = at;
	s->p = NULL;
	s->n = s->len = 0;
	s->depth = 0;
	s->comma = s->begun = s->over = s->zero = false;
	s->value = true;
	s->text[0] = '\0';
}

/* The next byte without taking it; -1 = end, -2 = gone. */
static int peek(struct jscan *s)
{
	if (s->n == 0) {
		if (s->at >= s->l->size)
			return -1;
		s->n = (size_t)MIN(s->l->size - s->at, (uint64_t)CHUNK);
		s->p = look_at(s->l, s->at, s->n);
		if (s->p == NULL) {
			s->n = 0;
			return -2;
		}
	}
	s->zero = s->zero || *s->p == 0;
	return *s->p;
}

static void take(struct jscan *s)
{
	s->p++;
	s->n--;
	s->at++;
}

static enum jscan_token ended(int c)
{
	assert(c < 0);
	return c == -1 ? JSCAN_CUT : JSCAN_GONE;
}

static int skip_blanks(struct jscan *s)
{
	int c = peek(s);

	while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
		take(s);
		c = peek(s);
	}
	return c;
}

static void keep(struct jscan *s, unsigned c)
{
	if (s->len >= JSCAN_TEXT_MAX)
		s->over = true;
	else
		s->text[s->len++] = (char)c;
}

static void keep_point(struct jscan *s, unsigned u)
{
	if (u < 0x80) {
		keep(s, u);
	} else if (u < 0x800) {
		keep(s, 0xc0 | u >> 6);
		keep(s, 0x80 | (u & 0x3f));
	} else { /* halves of a pair each by itself: such a name matches nothing */
		keep(s, 0xe0 | u >> 12);
		keep(s, 0x80 | (u >> 6 & 0x3f));
		keep(s, 0x80 | (u & 0x3f));
	}
}

/* After a backslash. */
static enum jscan_token escape(struct jscan *s)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int c = peek(s);
	const char *at = NULL;
	unsigned u = 0;

	if (c < 0)
		return ended(c);
	take(s);
	if (c != 'u') {
		at = c == 0 ? NULL : strchr(from, c);
		if (at == NULL)
			return JSCAN_BAD;
		keep(s, (unsigned)to[at - from]);
		return JSCAN_TEXT;
	}
	for (int i = 0; i < 4; i++) {
		int d;

		c = peek(s);
		if (c < 0)
			return ended(c);
		d = hex_digit((char)c);
		if (d < 0)
			return JSCAN_BAD;
		u = u << 4 | (unsigned)d;
		take(s);
	}
	keep_point(s, u);
	return JSCAN_TEXT;
}

/* After the opening quote. */
static enum jscan_token string(struct jscan *s)
{
	s->len = 0;
	s->over = false;
	for (;;) {
		int c = peek(s);

		if (c < 0)
			return ended(c);
		take(s);
		if (c == '"')
			break;
		if (c == '\\') {
			enum jscan_token t = escape(s);

			if (t != JSCAN_TEXT)
				return t;
		} else if (c < 0x20) {
			return JSCAN_BAD;
		} else {
			keep(s, (unsigned)c);
		}
	}
	s->text[s->len] = '\0';
	return JSCAN_TEXT;
}

/* Digits, signs, NaN, Infinity, true, false, null. */
static enum jscan_token bare(struct jscan *s)
{
	static const char *const words[] = {"true", "false", "null"};
	static const char *const numbers[] = {"NaN", "Infinity", "-Infinity"};
	size_t digits = 0;
	int c;

	s->len = 0;
	s->over = false;
	for (c = peek(s); c > 0 && (hex_digit((char)c) >= 0 || strchr("+-.xX", c) != NULL ||
	                            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
	     c = peek(s)) {
		keep(s, (unsigned)c);
		take(s);
	}
	s->text[s->len] = '\0';
	if (c == -2)
		return JSCAN_GONE;
	for (size_t i = 0; i < COUNT(words); i++) {
		if (strcmp(s->text, words[i]) == 0)
			return JSCAN_WORD;
		if (c == -1 && s->len > 0 && strncmp(s->text, words[i], s->len) == 0)
			return JSCAN_CUT;
	}
	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (strcmp(s->text, numbers[i]) == 0)
			return JSCAN_NUMBER;
		if (c == -1 && s->len > 0 && strncmp(s->text, numbers[i], s->len) == 0)
			return JSCAN_CUT;
	}
	for (size_t i = 0; i < s->len; i++) {
		digits += s->text[i] >= '0' && s->text[i] <= '9';
		if (strchr("0123456789+-.eE", s->text[i]) == NULL)
			return JSCAN_BAD;
	}
	if (c == -1 && s->len > 0) /* inside or not, nobody can tell: 12 of 123 */
		return s->depth > 0 ? JSCAN_CUT : JSCAN_NUMBER;
	return digits > 0 ? JSCAN_NUMBER : JSCAN_BAD;
}

static enum jscan_token open_one(struct jscan *s, bool map)
{
	if (s->depth >= JSCAN_DEPTH_MAX)
		return JSCAN_BAD;
	s->map[s->depth++] = map;
	s->comma = false;
	s->value = false;
	return map ? JSCAN_MAP : JSCAN_LIST;
}

static enum jscan_token close_one(struct jscan *s, bool map)
{
	if (s->depth == 0 || s->map[s->depth - 1] != map)
		return JSCAN_BAD;
	s->depth--;
	s->comma = true;
	return map ? JSCAN_MAP_END : JSCAN_LIST_END;
}

static enum jscan_token value(struct jscan *s, int c)
{
	enum jscan_token t;

	s->value = false;
	if (c == '{' || c == '[') {
		take(s);
		return open_one(s, c == '{');
	}
	if (c == '"') {
		take(s);
		t = string(s);
	} else {
		t = bare(s);
	}
	s->comma = true;
	return t;
}

static enum jscan_token key(struct jscan *s)
{
	enum jscan_token t = string(s);
	int c;

	if (t != JSCAN_TEXT)
		return t;
	c = skip_blanks(s);
	if (c < 0)
		return ended(c);
	if (c != ':')
		return JSCAN_BAD;
	take(s);
	s->value = true;
	s->comma = false;
	return JSCAN_KEY;
}

enum jscan_token jscan_next(struct jscan *s)
{
	bool map = s->depth > 0 && s->map[s->depth - 1];
	bool after_comma = false;
	int c;

	if (s->begun && s->depth == 0)
		return JSCAN_DONE;
	s->begun = true;
	c = skip_blanks(s);
	if (c < 0)
		return ended(c);
	if (s->value)
		return value(s, c);
	if (c == (map ? '}' : ']')) {
		take(s);
		return close_one(s, map);
	}
	if (s->comma) {
		if (c != ',')
			return JSCAN_BAD;
		take(s);
		s->comma = false;
		after_comma = true;
		c = skip_blanks(s);
		if (c < 0)
			return ended(c);
	}
	if (!map)
		return after_comma && c == ']' ? JSCAN_BAD : value(s, c);
	if (c != '"')
		return JSCAN_BAD;
	take(s);
	return key(s);
}

bool jscan_rest(struct jscan *s)
{
	return skip_blanks(s) >= 0;
}

enum jscan_token jscan_skip(struct jscan *s, enum jscan_token t)
{
	unsigned depth = s->depth;

	if (t != JSCAN_MAP && t != JSCAN_LIST)
		return t;
	assert(depth > 0);
	while (s->depth >= depth) {
		t = jscan_next(s);
		if (jscan_failed(t))
			return t;
	}
	return t;
}

struct str jscan_text(const struct jscan *s)
{
	return str_n(s->text, s->over ? 0 : s->len);
}

bool jscan_u64(const struct jscan *s, uint64_t *v)
{
	struct err err = {0};

	return str_u64(jscan_text(s), 0, INT64_MAX, v, &err) == 0;
}

void jscan_verdict(struct jscan *s, enum jscan_token t)
{
	if (t == JSCAN_CUT)
		look_torn(s->l, "ends in the middle");
	else if (t == JSCAN_BAD && s->zero)
		look_torn(s->l, "has zeros where text should be");
	else if (t == JSCAN_BAD)
		look_unknown(s->l, "is not JSON");
}
