/* json_pull.c - see json_pull.h. */
#include "base/json_pull.h"

#include "base/hash.h"

enum state {
	AT_START,      /* of the document */
	AT_VALUE,      /* a value has to come */
	AT_FIRST_ITEM, /* or the end of the list */
	AT_FIRST_KEY,  /* or the end of the map */
	AT_KEY,        /* behind a comma */
	AT_COLON,
	AT_COMMA, /* or the end of the map or list */
	AT_DONE,
	IN_TEXT,
	IN_CHAR,   /* inside of a character of several bytes */
	IN_ESCAPE, /* behind its backslash */
	IN_HEX,    /* behind \u */
	IN_PAIR,   /* behind the first half of a pair: a backslash has to come */
	IN_PAIR_U, /* and a u */
	IN_NUMBER,
	IN_WORD,
	STATE_COUNT,
};

static const struct {
	const char *text;
	enum js_token token;
} words[] = {{"true", JS_TRUE}, {"false", JS_FALSE}, {"null", JS_NULL}};

static bool in_string(const struct js_pull *j)
{
	return j->state >= IN_TEXT && j->state <= IN_PAIR_U;
}

static void check(const struct js_pull *j)
{
	assert(j->state < STATE_COUNT && j->depth <= JS_PULL_DEPTH_MAX);
	assert(!j->key || in_string(j));
	assert((j->high != 0) <=
	       (j->state == IN_HEX || j->state == IN_PAIR || j->state == IN_PAIR_U));
	assert(j->n < 4);
	if (j->state == AT_START || j->state == AT_DONE)
		assert(j->depth == 0);
	if (j->state >= AT_FIRST_ITEM && j->state <= AT_COMMA) {
		char open = j->depth > 0 ? j->stack[j->depth - 1] : '\0';

		assert(j->state == AT_COMMA ? open != '\0'
		                            : open == (j->state == AT_FIRST_ITEM ? '[' : '{'));
	}
}

void js_pull_init(struct js_pull *j)
{
	*j = (struct js_pull){.state = AT_START};
	check(j);
}

bool js_pull_is_new(const struct js_pull *j)
{
	return j->state == AT_START;
}

static int bad(struct err *err, const char *expected, char c)
{
	if (c > ' ' && c < 0x7f)
		return err_set(err, ERR_INVALID, "not JSON: %s is expected, not '%c'", expected, c);
	return err_set(err, ERR_INVALID, "not JSON: %s is expected, not byte 0x%02x", expected,
	               (uint8_t)c);
}

/* A value is complete. */
static void after(struct js_pull *j)
{
	j->state = j->depth == 0 ? AT_DONE : AT_COMMA;
}

static char next_byte(struct str *in)
{
	char c = in->p[0];

	*in = str_skip(*in, 1);
	return c;
}

static void piece(struct js_event *out, const char *p, size_t n)
{
	assert(n > 0);
	*out = (struct js_event){JS_PIECE, {p, n}};
}

/* ---- numbers ------------------------------------------------------------------------------- */

enum number {
	N_START = 1,
	N_MINUS,
	N_ZERO,
	N_WHOLE,
	N_POINT,
	N_PART,
	N_E,
	N_SIGN,
	N_POWER,
	N_COUNT
};
enum number_char { C_ZERO, C_DIGIT, C_POINT, C_E, C_PLUS, C_MINUS, C_COUNT };

/* 0: it cannot go on so. */
static const uint8_t number_next[N_COUNT][C_COUNT] = {
	[N_START] = {[C_ZERO] = N_ZERO, [C_DIGIT] = N_WHOLE, [C_MINUS] = N_MINUS},
	[N_MINUS] = {[C_ZERO] = N_ZERO, [C_DIGIT] = N_WHOLE},
	[N_ZERO] = {[C_POINT] = N_POINT, [C_E] = N_E},
	[N_WHOLE] = {[C_ZERO] = N_WHOLE, [C_DIGIT] = N_WHOLE, [C_POINT] = N_POINT, [C_E] = N_E},
	[N_POINT] = {[C_ZERO] = N_PART, [C_DIGIT] = N_PART},
	[N_PART] = {[C_ZERO] = N_PART, [C_DIGIT] = N_PART, [C_E] = N_E},
	[N_E] = {[C_ZERO] = N_POWER, [C_DIGIT] = N_POWER, [C_PLUS] = N_SIGN, [C_MINUS] = N_SIGN},
	[N_SIGN] = {[C_ZERO] = N_POWER, [C_DIGIT] = N_POWER},
	[N_POWER] = {[C_ZERO] = N_POWER, [C_DIGIT] = N_POWER},
};

static uint8_t number_step(uint8_t at, char c)
{
	static const char chars[] = "01.e+-"; /* in the order of number_char */
	const char *found = memchr(chars, c == 'E' ? 'e' : c >= '1' && c <= '9' ? '1' : c, C_COUNT);

	assert(at > 0 && at < N_COUNT);
	return found == NULL ? 0 : number_next[at][found - chars];
}

static bool number_may_end(uint8_t at)
{
	return at == N_ZERO || at == N_WHOLE || at == N_PART || at == N_POWER;
}

static int number(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	size_t n = 0;

	while (n < in->n) {
		uint8_t to = number_step(j->number, in->p[n]);

		if (to == 0)
			break;
		j->number = to;
		n++;
	}
	if (n > 0) {
		piece(out, in->p, n);
		*in = str_skip(*in, n);
		return 0;
	}
	if (!number_may_end(j->number))
		return bad(err, "a digit", in->p[0]);
	out->token = JS_END;
	after(j);
	return 0;
}

bool js_pull_is_done(const struct js_pull *j)
{
	check(j);
	return j->state == AT_DONE ||
	       (j->state == IN_NUMBER && j->depth == 0 && number_may_end(j->number));
}

/* ---- texts --------------------------------------------------------------------------------- */

#define EACH_BYTE(b) (UINT64_C(0x0101010101010101) * (b))

/* Is one of eight bytes more than a character of a text: a quote, a backslash, a control character
 * or a part of a longer character? */
static bool any_odd(uint64_t w)
{
	uint64_t quote = w ^ EACH_BYTE('"'), slash = w ^ EACH_BYTE('\\');

	return (((quote - EACH_BYTE(1)) | (slash - EACH_BYTE(1)) | (w - EACH_BYTE(' ')) | w) &
	        EACH_BYTE(0x80)) != 0;
}

static bool is_plain(char c)
{
	return (signed char)c >= ' ' && c != '"' && c != '\\';
}

/* How many bytes stand for themselves. */
static size_t plain_run(struct str s)
{
	size_t n = 0;

	for (uint64_t w; n + sizeof(w) <= s.n; n += sizeof(w)) {
		memcpy(&w, s.p + n, sizeof(w));
		if (any_odd(w))
			break;
	}
	while (n < s.n && is_plain(s.p[n]))
		n++;
	return n;
}

static void text_begins(struct js_pull *j, bool key, struct js_event *out)
{
	j->state = IN_TEXT;
	j->key = key;
	out->token = key ? JS_KEY : JS_TEXT;
}

static void text_ends(struct js_pull *j, struct js_event *out)
{
	out->token = JS_END;
	if (j->key)
		j->state = AT_COLON;
	else
		after(j);
	j->key = false;
}

static int in_text(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	size_t n = plain_run(*in);
	char c;

	if (n > 0) {
		piece(out, in->p, n);
		*in = str_skip(*in, n);
		return 0;
	}
	c = in->p[0];
	if ((uint8_t)c >= 0x80) {
		j->n = 0;
		j->state = IN_CHAR;
		return 0;
	}
	(void)next_byte(in);
	if ((uint8_t)c < ' ')
		return err_set(err, ERR_INVALID,
		               "not JSON: control character 0x%02x in a text: it has to be escaped",
		               (uint8_t)c);
	if (c == '"')
		text_ends(j, out);
	else
		j->state = IN_ESCAPE;
	return 0;
}

/* Bytes that a character takes which begins with this one; 1: none does. */
static size_t char_len(char lead)
{
	uint8_t c = (uint8_t)lead;

	return c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
}

static int in_char(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	size_t len;

	j->ch[j->n++] = next_byte(in);
	len = char_len(j->ch[0]);
	if (j->n < len && (j->n == 1 || (j->ch[j->n - 1] & 0xc0) == 0x80))
		return 0;
	if (str_utf8_len(str_n(j->ch, j->n)) != len)
		return err_set(err, ERR_INVALID, "not JSON: a text is not UTF-8");
	j->n = 0;
	j->state = IN_TEXT;
	piece(out, j->ch, len);
	return 0;
}

static int in_escape(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	char c = next_byte(in);
	const char *found = memchr(names, c, sizeof(names) - 1);

	if (c == 'u') {
		j->n = 0;
		j->code = 0;
		j->state = IN_HEX;
		return 0;
	}
	if (found == NULL)
		return bad(err, "an escape", c);
	j->state = IN_TEXT;
	piece(out, &means[found - names], 1);
	return 0;
}

static size_t utf8_put(uint32_t code, char out[4])
{
	static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i > 0; i--) {
		out[i] = (char)(uint8_t)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	out[0] = n == 1 ? (char)code : (char)(uint8_t)(lead[n] | code);
	return n;
}

/* The four digits are there. */
static int escaped(struct js_pull *j, struct js_event *out, struct err *err)
{
	uint32_t code = j->code;
	bool low = code >= 0xdc00 && code <= 0xdfff;

	if (low != (j->high != 0))
		return err_set(err, ERR_INVALID, "not JSON: \\u%04x is %s", code,
		               low ? "the second half of a pair without the first"
		                   : "no second half of a pair");
	if (code >= 0xd800 && code <= 0xdbff) {
		j->high = j->code;
		j->state = IN_PAIR;
		return 0;
	}
	if (code == 0)
		return err_set(err, ERR_INVALID, "not JSON: \\u0000 is not taken");
	if (low)
		code = 0x10000 + ((uint32_t)(j->high - 0xd800) << 10) + (code - 0xdc00);
	j->high = 0;
	j->state = IN_TEXT;
	piece(out, j->ch, utf8_put(code, j->ch));
	return 0;
}

static int in_hex(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	char c = next_byte(in);
	int digit = hex_digit(c);

	if (digit < 0)
		return bad(err, "a hex digit", c);
	j->code = (uint16_t)(j->code << 4 | digit);
	if (++j->n < 4)
		return 0;
	j->n = 0;
	return escaped(j, out, err);
}

static int in_pair(struct js_pull *j, struct str *in, struct err *err)
{
	bool u = j->state == IN_PAIR_U;
	char c = next_byte(in);

	if (c != (u ? 'u' : '\\'))
		return bad(err, "the second half of a pair", c);
	j->n = 0;
	j->code = 0;
	j->state = u ? IN_HEX : IN_PAIR_U;
	return 0;
}

/* ---- values -------------------------------------------------------------------------------- */

static int opens(struct js_pull *j, char c, struct js_event *out, struct err *err)
{
	if (j->depth == JS_PULL_DEPTH_MAX)
		return err_set(err, ERR_TOO_BIG, "JSON is nested deeper than %d",
		               JS_PULL_DEPTH_MAX);
	j->stack[j->depth++] = c;
	j->state = c == '{' ? AT_FIRST_KEY : AT_FIRST_ITEM;
	out->token = c == '{' ? JS_MAP : JS_LIST;
	return 0;
}

static void closes(struct js_pull *j, struct js_event *out)
{
	assert(j->depth > 0);
	out->token = j->stack[--j->depth] == '{' ? JS_MAP_END : JS_LIST_END;
	after(j);
}

/* Its first byte stays: it is read again with the rest. */
static int number_or_word(struct js_pull *j, char c, struct js_event *out, struct err *err)
{
	if (c == '-' || (c >= '0' && c <= '9')) {
		j->state = IN_NUMBER;
		j->number = N_START;
		out->token = JS_NUMBER;
		return 0;
	}
	for (size_t i = 0; i < COUNT(words); i++) {
		if (words[i].text[0] != c)
			continue;
		j->state = IN_WORD;
		j->word = (uint8_t)i;
		j->at = 0;
		return 0;
	}
	return bad(err, "a value", c);
}

static int value(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	char c = in->p[0];

	if (c == '{' || c == '[') {
		(void)next_byte(in);
		return opens(j, c, out, err);
	}
	if (c == '"') {
		(void)next_byte(in);
		text_begins(j, false, out);
		return 0;
	}
	return number_or_word(j, c, out, err);
}

static int in_word(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	const char *text = words[j->word].text;
	char c = next_byte(in);

	assert(text[j->at] != '\0');
	if (c != text[j->at])
		return bad(err, text, c);
	if (text[++j->at] != '\0')
		return 0;
	out->token = words[j->word].token;
	after(j);
	return 0;
}

static int key(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	bool may_end = j->state == AT_FIRST_KEY;
	char c = next_byte(in);

	if (c == '}' && may_end) {
		closes(j, out);
		return 0;
	}
	if (c != '"')
		return bad(err, may_end ? "a key or '}'" : "a key", c);
	text_begins(j, true, out);
	return 0;
}

static int comma(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	bool map = j->stack[j->depth - 1] == '{';
	char c = next_byte(in);

	if (c == (map ? '}' : ']'))
		closes(j, out);
	else if (c == ',')
		j->state = map ? AT_KEY : AT_VALUE;
	else
		return bad(err, map ? "',' or '}'" : "',' or ']'", c);
	return 0;
}

static int colon(struct js_pull *j, struct str *in, struct err *err)
{
	char c = next_byte(in);

	if (c != ':')
		return bad(err, "':'", c);
	j->state = AT_VALUE;
	return 0;
}

static int first_item(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	if (in->p[0] != ']')
		return value(j, in, out, err);
	(void)next_byte(in);
	closes(j, out);
	return 0;
}

/* One step of the machine: takes bytes, changes the state, or both; a token may come of it. */
static int step(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	switch ((enum state)j->state) {
	case AT_START:
	case AT_VALUE:
		return value(j, in, out, err);
	case AT_FIRST_ITEM:
		return first_item(j, in, out, err);
	case AT_FIRST_KEY:
	case AT_KEY:
		return key(j, in, out, err);
	case AT_COLON:
		return colon(j, in, err);
	case AT_COMMA:
		return comma(j, in, out, err);
	case AT_DONE:
		return bad(err, "nothing more", in->p[0]);
	case IN_TEXT:
		return in_text(j, in, out, err);
	case IN_CHAR:
		return in_char(j, in, out, err);
	case IN_ESCAPE:
		return in_escape(j, in, out, err);
	case IN_HEX:
		return in_hex(j, in, out, err);
	case IN_PAIR:
	case IN_PAIR_U:
		return in_pair(j, in, err);
	case IN_NUMBER:
		return number(j, in, out, err);
	case IN_WORD:
		return in_word(j, in, out, err);
	case STATE_COUNT:
		break;
	}
	abort(); /* check() */
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int js_pull_next(struct js_pull *j, struct str *in, struct js_event *out, struct err *err)
{
	struct js_event e = {.token = JS_MORE};

	check(j);
	while (in->n > 0 && e.token == JS_MORE) {
		if (j->state < IN_TEXT && is_space(in->p[0]))
			(void)next_byte(in);
		else if (step(j, in, &e, err) < 0)
			return -1;
	}
	check(j);
	*out = e;
	return 0;
}
