/* json.c - JSON over jansson: text to doc tree, and a writer. */
#include "base/json.h"

#include "base/shown.h"

#include <jansson.h>
#include <math.h>

/* jansson bounds its own recursion at 2048; ours is bounded while the tree is copied. */
static int convert(struct arena *a, const json_t *j, unsigned depth, struct doc *out,
                   struct err *err);

static struct doc *child(struct arena *a, struct doc *parent, struct doc **last)
{
	struct doc *d = ARENA_NEW(a, struct doc);

	if (*last == NULL)
		parent->first = d;
	else
		(*last)->next = d;
	*last = d;
	parent->count++;
	return d;
}

static int convert_map(struct arena *a, const json_t *j, unsigned depth, struct doc *out,
                       struct err *err)
{
	struct doc *last = NULL;
	const char *key;
	json_t *value;

	out->kind = DOC_MAP;
	json_object_foreach((json_t *)(uintptr_t)j, key, value)
	{
		struct doc *d = child(a, out, &last);

		d->key = arena_str(a, str_of(key));
		if (convert(a, value, depth + 1, d, err) < 0)
			return -1;
	}
	return 0;
}

static int convert_list(struct arena *a, const json_t *j, unsigned depth, struct doc *out,
                        struct err *err)
{
	struct doc *last = NULL;
	size_t i;
	json_t *value;

	out->kind = DOC_LIST;
	json_array_foreach(j, i, value)
	{
		if (convert(a, value, depth + 1, child(a, out, &last), err) < 0)
			return -1;
	}
	return 0;
}

static int convert(struct arena *a, const json_t *j, unsigned depth, struct doc *out,
                   struct err *err)
{
	if (depth > JS_DEPTH_MAX)
		return err_set(err, ERR_INVALID, "JSON is nested deeper than %d", JS_DEPTH_MAX);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return convert_map(a, j, depth, out, err);
	case JSON_ARRAY:
		return convert_list(a, j, depth, out, err);
	case JSON_STRING:
		out->kind = DOC_TEXT;
		out->text = arena_str(a, str_n(json_string_value(j), json_string_length(j)));
		return 0;
	case JSON_INTEGER:
		out->kind = DOC_INT;
		out->num = json_integer_value(j);
		out->real = (double)out->num;
		return 0;
	case JSON_REAL:
		out->kind = DOC_REAL;
		out->real = json_real_value(j);
		return 0;
	case JSON_TRUE:
	case JSON_FALSE:
		out->kind = DOC_BOOL;
		out->flag = json_is_true(j);
		return 0;
	case JSON_NULL:
		out->kind = DOC_NULL;
		return 0;
	}
	abort(); /* jansson has seven types */
	return -1;
}

int js_parse(struct arena *a, struct str text, const struct doc **out, struct err *err)
{
	json_error_t je;
	json_t *j;
	struct doc *d;
	int r;

	if (text.n > JS_TEXT_MAX)
		return err_set(err, ERR_TOO_BIG, "JSON text of %zu bytes: the limit is %zu", text.n,
		               JS_TEXT_MAX);
	if (str_trim(text).n == 0)
		return err_set(err, ERR_INVALID, "JSON is expected, but the text is empty");
	if (memchr(text.p, '\0', text.n) != NULL) /* jansson takes one for the end */
		return err_set(err, ERR_INVALID, "not JSON: it contains a NUL byte");
	j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (j == NULL)
		return err_set(err, ERR_INVALID, "not JSON: line %d, column %d: %s", je.line,
		               je.column, je.text);
	d = ARENA_NEW(a, struct doc);
	r = convert(a, j, 0, d, err);
	json_decref(j);
	if (r == 0)
		*out = d;
	return r;
}

void js_init(struct js *js, struct buf *out)
{
	memset(js, 0, sizeof(*js));
	js->out = out;
}

static void newline(struct js *js)
{
	if (!js->indent)
		return;
	buf_putc(js->out, '\n');
	for (unsigned i = 0; i < js->depth; i++)
		buf_puts(js->out, "  ");
}

/* Writes the separator before a value. */
static void before(struct js *js)
{
	if (js->comma)
		buf_putc(js->out, ',');
	if (js->depth > 0 && js->stack[js->depth - 1] == '[')
		newline(js);
	js->comma = true;
}

static void enter(struct js *js, char c)
{
	before(js);
	assert(js->depth < JS_DEPTH_MAX);
	js->stack[js->depth++] = c;
	buf_putc(js->out, c);
	js->comma = false;
}

static void leave(struct js *js, char opened, char c)
{
	bool any = js->comma;

	assert(js->depth > 0 && js->stack[js->depth - 1] == opened);
	js->depth--;
	if (any)
		newline(js);
	buf_putc(js->out, c);
	js->comma = true;
}

void js_open(struct js *js)
{
	enter(js, '{');
}

void js_close(struct js *js)
{
	leave(js, '{', '}');
}

void js_list(struct js *js)
{
	enter(js, '[');
}

void js_end(struct js *js)
{
	leave(js, '[', ']');
}

/* As JSON has it: a code beyond 16 bits is two of them. */
static void escape_code(struct buf *out, struct str s)
{
	uint32_t code;

	if (str_utf8(s, &code) == 0)
		return;
	if (code > 0xffff)
		buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
		           0xdc00 + ((code - 0x10000) & 0x3ff));
	else
		buf_printf(out, "\\u%04x", code);
}

static void quote(const struct js *js, struct str s)
{
	struct buf *out = js->out;
	const uint8_t *p = (const uint8_t *)s.p;
	size_t plain = 0;

	buf_putc(out, '"');
	for (size_t i = 0; i < s.n;) {
		struct str text = str_n(s.p + i, 1);
		size_t len = p[i] >= 0x20 && p[i] < 0x7f ? 1 : str_utf8_mend(str_skip(s, i), &text);
		bool hidden = js->shown && len > 1 && shown_len(str_skip(s, i)) == 0;

		if (text.p == s.p + i && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' &&
		    p[i] != 0x7f && !hidden) {
			i += len;
			continue;
		}
		buf_add(out, s.p + plain, i - plain);
		if (p[i] == '"' || p[i] == '\\')
			buf_printf(out, "\\%c", p[i]);
		else if (p[i] == '\n')
			buf_puts(out, "\\n");
		else if (p[i] == '\r')
			buf_puts(out, "\\r");
		else if (p[i] == '\t')
			buf_puts(out, "\\t");
		else if (p[i] < 0x20 || p[i] == 0x7f)
			buf_printf(out, "\\u%04x", p[i]);
		else if (hidden)
			escape_code(out, str_skip(s, i));
		else
			buf_str(out, text);
		i += len;
		plain = i;
	}
	buf_add(out, s.p + plain, s.n - plain);
	buf_putc(out, '"');
}

void js_key_str(struct js *js, struct str key)
{
	assert(js->depth > 0 && js->stack[js->depth - 1] == '{');
	if (js->comma)
		buf_putc(js->out, ',');
	newline(js);
	quote(js, key);
	buf_puts(js->out, js->indent ? ": " : ":");
	js->comma = false;
}

void js_key(struct js *js, const char *key)
{
	js_key_str(js, str_of(key));
}

void js_text(struct js *js, struct str s)
{
	before(js);
	quote(js, s);
}

void js_cstr(struct js *js, const char *s)
{
	if (s == NULL)
		js_null(js);
	else
		js_text(js, str_of(s));
}

void js_int(struct js *js, int64_t n)
{
	before(js);
	buf_printf(js->out, "%" PRId64, n);
}

void js_u64(struct js *js, uint64_t n)
{
	before(js);
	buf_printf(js->out, "%" PRIu64, n);
}

void js_real(struct js *js, double n)
{
	char text[40];

	before(js);
	if (!isfinite(n)) {
		buf_puts(js->out, "null");
		return;
	}
	/* the shortest form that reads back as the same number */
	for (int digits = 6; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, n);
		if (strtod(text, NULL) >= n && strtod(text, NULL) <= n)
			break;
	}
	buf_puts(js->out, text);
	if (strpbrk(text, ".e") == NULL)
		buf_puts(js->out, ".0");
}

void js_bool(struct js *js, bool b)
{
	before(js);
	buf_puts(js->out, b ? "true" : "false");
}

void js_null(struct js *js)
{
	before(js);
	buf_puts(js->out, "null");
}

void js_raw(struct js *js, struct str json)
{
	before(js);
	buf_str(js->out, json);
}

void js_fmt(struct js *js, const char *fmt, ...)
{
	AUTO_BUF struct buf text = BUF_INIT(JS_TEXT_MAX);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	js_text(js, buf_view(&text));
}

void js_doc(struct js *js, const struct doc *d)
{
	if (d == NULL) {
		js_null(js);
		return;
	}
	switch (d->kind) {
	case DOC_NULL:
		js_null(js);
		return;
	case DOC_BOOL:
		js_bool(js, d->flag);
		return;
	case DOC_INT:
		js_int(js, d->num);
		return;
	case DOC_REAL:
		js_real(js, d->real);
		return;
	case DOC_TEXT:
		js_text(js, d->text);
		return;
	case DOC_LIST:
		js_list(js);
		DOC_EACH (item, d) {
			js_doc(js, item);
		}
		js_end(js);
		return;
	case DOC_MAP:
		js_open(js);
		DOC_EACH (item, d) {
			js_key_str(js, item->key);
			js_doc(js, item);
		}
		js_close(js);
		return;
	}
}

void js_kv(struct js *js, const char *key, const char *s)
{
	js_key(js, key);
	js_cstr(js, s);
}

void js_kv_str(struct js *js, const char *key, struct str s)
{
	js_key(js, key);
	js_text(js, s);
}

void js_kv_int(struct js *js, const char *key, int64_t n)
{
	js_key(js, key);
	js_int(js, n);
}

void js_kv_u64(struct js *js, const char *key, uint64_t n)
{
	js_key(js, key);
	js_u64(js, n);
}

void js_kv_real(struct js *js, const char *key, double n)
{
	js_key(js, key);
	js_real(js, n);
}

void js_kv_bool(struct js *js, const char *key, bool b)
{
	js_key(js, key);
	js_bool(js, b);
}

void js_kv_null(struct js *js, const char *key)
{
	js_key(js, key);
	js_null(js);
}

void js_kv_err(struct js *js, const char *key, const struct err *err)
{
	js_key(js, key);
	js_open(js);
	js_kv(js, "id", err_id(err));
	js_kv(js, "message", err->msg);
	js_close(js);
}
