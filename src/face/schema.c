/* schema.c - the notation of schema.h to JSON Schema, by recursive descent. */
#include "face/schema.h"

#define NAME_PATTERN                                                                               \
	"^[^\\\\x00-\\\\x20\\\\x7f]([^\\\\x00-\\\\x1f\\\\x7f]*[^\\\\x00-\\\\x20\\\\x7f])?$"

static char peek(const struct str *s)
{
	return s->n > 0 ? s->p[0] : '\0';
}

static bool eat(struct str *s, char c)
{
	if (peek(s) != c)
		return false;
	*s = str_skip(*s, 1);
	return true;
}

/* For our own texts: an opened bracket must be closed. */
static void must_eat(struct str *s, char c)
{
	bool there = eat(s, c);

	assert(there);
}

static struct str word(struct str *s)
{
	size_t n = 0;

	while (n < s->n && strchr(" :!?+[]{}(),", s->p[n]) == NULL)
		n++;
	s->n -= n;
	s->p += n;
	return str_n(s->p - n, n);
}

static void blanks(struct str *s)
{
	while (eat(s, ' '))
		continue;
}

/* Where a value in s ends, to look at the flags behind it before it is printed. */
static struct str behind(struct str s)
{
	int depth = 0;

	for (; s.n > 0; s = str_skip(s, 1)) {
		char c = s.p[0];

		if (depth == 0 && strchr(" !?+]}", c) != NULL)
			break;
		depth += strchr("({[", c) != NULL;
		depth -= strchr(")}]", c) != NULL;
		if (depth == 0 && strchr("}]", c) != NULL) {
			s = str_skip(s, 1);
			break;
		}
	}
	return s;
}

static void members(struct js *js, struct str *s);

static void kind(struct js *js, const char *type, bool null)
{
	js_key(js, "type");
	if (!null) {
		js_cstr(js, type);
		return;
	}
	js_list(js);
	js_cstr(js, type);
	js_cstr(js, "null");
	js_end(js);
}

static void choices(struct js *js, struct str *s, bool null)
{
	kind(js, "string", null);
	js_key(js, "enum");
	js_list(js);
	do
		js_text(js, word(s));
	while (eat(s, ','));
	if (null)
		js_null(js);
	js_end(js);
}

static void bounds(struct js *js, struct str *s)
{
	struct str least = word(s), most;

	js_key(js, "minimum");
	js_raw(js, least);
	if (!eat(s, ','))
		return;
	most = word(s);
	js_key(js, "maximum");
	js_raw(js, most);
}

/* A component; the wrapping says that it may be null. */
static void reference(struct js *js, struct str name, bool null)
{
	if (null) {
		js_key(js, "anyOf");
		js_list(js);
		js_open(js);
	}
	js_key(js, "$ref");
	js_fmt(js, "#/components/schemas/%.*s", STR_ARG(name));
	if (null) {
		js_close(js);
		js_open(js);
		kind(js, "null", false);
		js_close(js);
		js_end(js);
	}
}

/* The members of a scalar's schema. */
static void scalar(struct js *js, struct str *s, bool null)
{
	/* clang-format off */
	static const struct { const char *name, *type, *extra, *value; } words[] = {
		{ "text", "string",  NULL,      NULL },
		{ "filled", "string", "minLength", "1" },
		{ "time", "string",  "format",  "\"date-time\"" },
		{ "name", "string",  "pattern", "\"" NAME_PATTERN "\",\"minLength\":1,\"maxLength\":200" },
		{ "bool", "boolean", NULL,      NULL },
		{ "num",  "number",  NULL,      NULL },
		{ "int",  "integer", NULL,      NULL },
	};
	/* clang-format on */
	struct str name = word(s);
	bool round = eat(s, '(');

	if (peek(&name) == '@') {
		reference(js, str_skip(name, 1), null);
	} else if (str_eq(name, "enum")) {
		choices(js, s, null);
	} else if (!str_eq(name, "any")) {
		size_t i = 0;

		while (i < COUNT(words) && !str_eq(name, words[i].name))
			i++;
		assert(i < COUNT(words));
		kind(js, words[i].type, null);
		if (words[i].extra != NULL) {
			js_key(js, words[i].extra);
			js_raw(js, str_of(words[i].value));
		}
		if (str_eq(name, "int") && round)
			bounds(js, s);
		else if (str_eq(name, "int"))
			js_kv_int(js, "minimum", 0);
	}
	if (round)
		must_eat(s, ')');
}

struct flags {
	bool required, null, filled;
};

static void value(struct js *js, struct str *s, struct flags flag)
{
	js_open(js);
	if (eat(s, '{')) {
		kind(js, "object", flag.null);
		members(js, s);
		must_eat(s, '}');
	} else if (eat(s, '[')) {
		kind(js, "array", flag.null);
		if (flag.filled)
			js_kv_int(js, "minItems", 1);
		js_key(js, "items");
		value(js, s, (struct flags){0});
		must_eat(s, ']');
	} else {
		scalar(js, s, flag.null);
	}
	js_close(js);
}

/* One member's schema. The flags stand behind it, and are needed before it is printed. */
static void member(struct js *js, struct str *s, bool *required)
{
	struct flags flag = {0};
	struct str after;

	(void)eat(s, ':');
	for (after = behind(*s); after.n > 0 && strchr("!?+", peek(&after)) != NULL;
	     after = str_skip(after, 1)) {
		flag.required = flag.required || peek(&after) == '!';
		flag.null = flag.null || peek(&after) == '?';
		flag.filled = flag.filled || peek(&after) == '+';
	}
	value(js, s, flag);
	while (s->n > 0 && strchr("!?+", peek(s)) != NULL)
		*s = str_skip(*s, 1);
	*required = flag.required;
	assert(s->p == after.p);
}

static void members(struct js *js, struct str *s)
{
	struct str required[SCHEMA_REQUIRED_MAX];
	size_t n = 0;

	js_key(js, "properties");
	js_open(js);
	for (blanks(s); s->n > 0 && peek(s) != '}'; blanks(s)) {
		struct str key = word(s);
		bool must;

		assert(key.n > 0);
		js_key_str(js, key);
		member(js, s, &must);
		if (must) {
			assert(n < COUNT(required));
			required[n++] = key;
		}
	}
	js_close(js);
	if (n == 0)
		return;
	js_key(js, "required");
	js_list(js);
	for (size_t i = 0; i < n; i++)
		js_text(js, required[i]);
	js_end(js);
}

void schema_object(struct js *js, const char *text)
{
	struct str s = str_of(text);

	if (peek(&s) == '@') {
		value(js, &s, (struct flags){0});
		return;
	}
	js_open(js);
	kind(js, "object", false);
	members(js, &s);
	assert(s.n == 0);
	js_close(js);
}

/* Each word once: two states may be one to clients. */
static void words_of(const struct words *w, struct buf *out)
{
	char before = '(';

	buf_puts(out, ":enum");
	for (unsigned i = 0; i < w->n; i++) {
		const char *word = words_at(w, i);
		struct err none = {0};

		if (word == NULL || words_parse(w, str_of(word), ERR_INVALID, &none) != (int)i)
			continue;
		buf_printf(out, "%c%s", before, word);
		before = ',';
	}
	buf_putc(out, ')');
}

static void type_of(const struct record_field *f, struct buf *out)
{
	static const char *const types[R_DOC + 1] = {
		[R_TEXT] = ":text",    [R_U32] = ":int",     [R_U64] = ":int",
		[R_INT] = ":int",      [R_I64] = ":int",     [R_REAL] = ":num",
		[R_BOOL] = ":bool",    [R_DIGEST] = ":text", [R_TEXTS] = "[text]",
		[R_NUMBERS] = "[int]", [R_TIME] = ":time",   [R_BITS] = "[int]",
		[R_SUM] = ":int",      [R_DOC] = ":any",
	};
	unsigned kind = f->kind & R_KIND;
	bool list = kind == R_LIST || kind == R_FIXED;

	if (kind == R_WORD) {
		words_of(f->words, out);
	} else if (f->of == NULL) {
		buf_puts(out, types[kind]);
		if ((f->kind & R_SIGNED) != 0)
			buf_printf(out, "(%" PRId64 ",%" PRId64 ")",
			           kind == R_INT ? INT32_MIN : INT64_MIN,
			           kind == R_INT ? INT32_MAX : INT64_MAX);
	} else if (f->of->what != NULL) {
		buf_printf(out, list ? "[@%s]" : ":@%s", f->of->what);
	} else {
		buf_puts(out, list ? "[{" : "{");
		schema_of_record(f->of, true, out);
		buf_puts(out, list ? "}]" : "}");
	}
}

void schema_of_record(const struct record *r, bool must, struct buf *out)
{
	for (const struct record_field *f = r->field; f < r->field + r->n; f++) {
		buf_puts(out, f->name);
		type_of(f, out);
		buf_puts(out, must && (f->kind & R_SPARSE) == 0 ? "!" : "");
		buf_puts(out, (f->kind & (R_NULL | R_NEGATIVE)) != 0 ? "? " : " ");
	}
}

void schema_query(struct js *js, const char *text)
{
	struct str s = str_of(text);

	for (blanks(&s); s.n > 0; blanks(&s)) {
		struct str key = word(&s);
		bool must;

		js_open(js);
		js_kv_str(js, "name", key);
		js_kv(js, "in", "query");
		js_key(js, "schema");
		member(js, &s, &must);
		js_kv_bool(js, "required", must);
		js_close(js);
	}
}
