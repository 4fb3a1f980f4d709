/* yaml.c - libyaml's events to a doc tree, strictly. */
#include "base/yaml.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"

#include <math.h>
#include <yaml.h>

struct reader {
	yaml_parser_t parser;
	struct arena *a;
	unsigned depth;
	size_t nodes;
	const size_t *pair; /* where join_pairs() shortened the text: in characters of the result */
	size_t n_pairs;
	struct err *err;
};

#define PAIR_LEN 12   /* "\\ud83e\\udd8a", as JSON writes what is beyond 16 bits */
#define JOINED_LEN 10 /* "\\U0001f98a", the same in YAML */

static size_t pairs_before(const struct reader *r, size_t index)
{
	size_t low = 0, high = r->n_pairs;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (r->pair[mid] < index)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* From 1, and in the text that was given. */
static size_t column(const struct reader *r, const yaml_mark_t *at)
{
	size_t pairs = pairs_before(r, at->index) -
	               pairs_before(r, at->index - MIN(at->index, at->column));

	return at->column + 1 + pairs * (PAIR_LEN - JOINED_LEN);
}

static int fail(struct reader *r, const yaml_mark_t *at, const char *what)
{
	return err_set(r->err, ERR_INVALID, "line %zu, column %zu: %s", at->line + 1, column(r, at),
	               what);
}

/* What the parser stumbled over in the words of somebody who writes a file; NULL: in its own. */
static const char *plain_problem(const yaml_parser_t *p)
{
	const char *said = p->problem != NULL ? p->problem : "";

	if (strcmp(said, "found character that cannot start any token") == 0)
		return *p->buffer.pointer == '\t'
		               ? "a tab: indent with spaces"
		               : "text cannot begin with this character: put it in quotes";
	if (strcmp(said, "mapping values are not allowed in this context") == 0)
		return "unexpected colon: the line above lacks its own, or text with \": \" lacks "
		       "its quotes";
	return NULL;
}

static int next_event(struct reader *r, yaml_event_t *ev)
{
	const yaml_parser_t *p = &r->parser;
	const char *plain;

	if (yaml_parser_parse(&r->parser, ev) == 1)
		return 0;
	if (p->error == YAML_MEMORY_ERROR)
		abort();
	if (p->error == YAML_READER_ERROR)
		return err_set(r->err, ERR_INVALID, "byte %zu: %s", p->problem_offset,
		               p->problem != NULL ? p->problem : "cannot be read");
	plain = plain_problem(p);
	if (plain != NULL)
		return fail(r, &p->problem_mark, plain);
	return err_set(r->err, ERR_INVALID, "line %zu, column %zu: %s%s%s",
	               p->problem_mark.line + 1, column(r, &p->problem_mark),
	               p->problem != NULL ? p->problem : "bad YAML", p->context != NULL ? ", " : "",
	               p->context != NULL ? p->context : "");
}

static bool any_of(struct str s, const char *const *words)
{
	for (; *words != NULL; words++)
		if (str_eq(s, *words))
			return true;
	return false;
}

static bool looks_real(struct str s)
{
	size_t digits = 0;

	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] >= '0' && s.p[i] <= '9')
			digits++;
		else if (strchr("+-.eE", s.p[i]) == NULL)
			return false;
	}
	return digits > 0;
}

/* A plain scalar's type: the core schema, without its many spellings of booleans. */
static void type_plain(struct doc *d)
{
	static const char *const nulls[] = {"", "~", "null", NULL};
	static const char *const trues[] = {"true", "True", "TRUE", NULL};
	static const char *const falses[] = {"false", "False", "FALSE", NULL};
	struct err ignored = {0};
	bool plus = str_starts(d->text, "+") && !str_starts(d->text, "+-");
	int64_t n;

	if (any_of(d->text, nulls)) {
		d->kind = DOC_NULL;
	} else if (any_of(d->text, trues) || any_of(d->text, falses)) {
		d->kind = DOC_BOOL;
		d->flag = any_of(d->text, trues);
	} else if (str_i64(str_skip(d->text, plus), INT64_MIN + 1, INT64_MAX, &n, &ignored) == 0) {
		d->kind = DOC_INT;
		d->num = n;
		d->real = (double)n;
	} else if (looks_real(d->text)) {
		char *end = NULL;
		double v = strtod(d->text.p, &end);

		if (end == d->text.p + d->text.n && isfinite(v)) {
			d->kind = DOC_REAL;
			d->real = v;
		}
	}
}

static int scalar(struct reader *r, const yaml_event_t *ev, struct doc *d)
{
	const char *tag = (const char *)ev->data.scalar.tag;

	if (ev->data.scalar.anchor != NULL)
		return fail(r, &ev->start_mark, "anchors and aliases are not supported");
	if (tag != NULL)
		return fail(r, &ev->start_mark, "tags (!...) are not supported");
	if (memchr(ev->data.scalar.value, '\0', ev->data.scalar.length) != NULL)
		return fail(r, &ev->start_mark, "a NUL character is not allowed");
	d->kind = DOC_TEXT;
	d->text =
		arena_str(r->a, str_n((const char *)ev->data.scalar.value, ev->data.scalar.length));
	if (ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
		type_plain(d);
	return 0;
}

static int node(struct reader *r, const yaml_event_t *ev, struct doc *d);

static struct doc *append(struct reader *r, struct doc *parent, struct doc **last)
{
	struct doc *d = ARENA_NEW(r->a, struct doc);

	if (*last == NULL)
		parent->first = d;
	else
		(*last)->next = d;
	*last = d;
	parent->count++;
	return d;
}

static int key_of(struct reader *r, const yaml_event_t *ev, const struct doc *parent, struct doc *d)
{
	const struct doc *duplicate;
	struct doc key = {0};

	if (ev->type != YAML_SCALAR_EVENT)
		return fail(r, &ev->start_mark, "a key must be plain text");
	if (scalar(r, ev, &key) < 0)
		return -1;
	if (key.text.n == 0)
		return fail(r, &ev->start_mark, "a key must not be empty");
	duplicate = doc_get(parent, key.text.p);
	if (duplicate != NULL)
		return err_set(r->err, ERR_INVALID,
		               "line %zu, column %zu: key \"%.100s\" was already given in line %u",
		               ev->start_mark.line + 1, column(r, &ev->start_mark), key.text.p,
		               duplicate->key_line);
	d->key = key.text;
	d->key_line = (unsigned)ev->start_mark.line + 1;
	d->key_col = (unsigned)column(r, &ev->start_mark);
	return 0;
}

/* The children of a mapping or sequence, up to its end event. */
static int children(struct reader *r, struct doc *d, yaml_event_type_t end)
{
	struct doc *last = NULL;

	for (;;) {
		yaml_event_t ev;
		struct doc *c;
		int rc = 0;

		if (next_event(r, &ev) < 0)
			return -1;
		if (ev.type == end) {
			yaml_event_delete(&ev);
			return 0;
		}
		c = ARENA_NEW(r->a, struct doc);
		if (d->kind == DOC_MAP) {
			rc = key_of(r, &ev, d, c);
			yaml_event_delete(&ev);
			if (rc < 0 || next_event(r, &ev) < 0)
				return -1;
		}
		rc = node(r, &ev, c);
		yaml_event_delete(&ev);
		if (rc < 0)
			return -1;
		*append(r, d, &last) = *c;
	}
}

static int node(struct reader *r, const yaml_event_t *ev, struct doc *d)
{
	bool map = ev->type == YAML_MAPPING_START_EVENT;
	const yaml_char_t *anchor, *tag;
	int rc;

	d->line = (unsigned)ev->start_mark.line + 1;
	d->col = (unsigned)column(r, &ev->start_mark);
	if (++r->nodes > YML_NODES_MAX)
		return fail(r, &ev->start_mark, "the document has too many values");
	if (ev->type == YAML_SCALAR_EVENT)
		return scalar(r, ev, d);
	if (ev->type == YAML_ALIAS_EVENT)
		return fail(r, &ev->start_mark, "anchors and aliases are not supported");
	assert(map || ev->type == YAML_SEQUENCE_START_EVENT);
	anchor = map ? ev->data.mapping_start.anchor : ev->data.sequence_start.anchor;
	tag = map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag;
	if (anchor != NULL)
		return fail(r, &ev->start_mark, "anchors and aliases are not supported");
	if (tag != NULL)
		return fail(r, &ev->start_mark, "tags (!...) are not supported");
	if (r->depth >= YML_DEPTH_MAX)
		return fail(r, &ev->start_mark, "the document is nested too deeply");
	d->kind = map ? DOC_MAP : DOC_LIST;
	r->depth++;
	rc = children(r, d, map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT);
	r->depth--;
	return rc;
}

static int document(struct reader *r, struct doc *root)
{
	bool seen = false;

	for (;;) {
		yaml_event_t ev;
		yaml_event_type_t type;
		int rc = 0;

		if (next_event(r, &ev) < 0)
			return -1;
		type = ev.type;
		if (type == YAML_DOCUMENT_START_EVENT && seen)
			rc = fail(r, &ev.start_mark, "only one document is allowed in a file");
		else if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
		         type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT)
			rc = node(r, &ev, root);
		seen = seen || type == YAML_DOCUMENT_END_EVENT;
		yaml_event_delete(&ev);
		if (rc < 0)
			return -1;
		if (type == YAML_STREAM_END_EVENT)
			return 0;
	}
}

/* The code unit of an escape \\uXXXX that `text` begins with; 0: it does not begin with one. */
static unsigned escaped_unit(struct str text)
{
	unsigned unit = 0;

	if (text.n < PAIR_LEN / 2 || text.p[0] != '\\' || text.p[1] != 'u')
		return 0;
	for (size_t i = 2; i < PAIR_LEN / 2; i++) {
		int digit = hex_digit(text.p[i]);

		if (digit < 0)
			return 0;
		unit = unit * 16 + (unsigned)digit;
	}
	return unit;
}

/* The tree comes from libyaml, which knows where everything stands, and takes all of JSON but this:
 * programs that write ASCII only, as Python's json does, escape an emoji as two halves. */
static void join_pairs(struct reader *r, struct str text, struct buf *out)
{
	size_t *pair = ARENA_ARRAY(r->a, size_t, text.n / PAIR_LEN + 1);
	size_t at = 0; /* in characters */

	r->pair = pair;
	for (size_t i = 0; i < text.n;) {
		unsigned high = escaped_unit(str_skip(text, i)), low = 0;
		size_t n = 1;

		if (high >= 0xd800 && high < 0xdc00)
			low = escaped_unit(str_skip(text, i + PAIR_LEN / 2));
		if (low >= 0xdc00 && low < 0xe000) {
			pair[r->n_pairs++] = at;
			buf_printf(out, "\\U%08x",
			           0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
			i += PAIR_LEN;
			at += JOINED_LEN;
			continue;
		}
		if (text.p[i] == '\\' && i + 1 < text.n)
			n = 2; /* what an escape escapes begins none */
		for (size_t k = 0; k < n; k++) {
			buf_putc(out, text.p[i + k]);
			at += ((uint8_t)text.p[i + k] & 0xc0) != 0x80;
		}
		i += n;
	}
}

static bool is_json_object(struct arena *a, struct str text)
{
	const struct doc *ignored;
	struct err err = {0};

	return str_starts(str_trim(text), "{") && js_parse(a, text, &ignored, &err) == 0;
}

int yml_parse(struct arena *a, struct str text, const struct doc **out, struct err *err)
{
	struct reader r = {.a = a, .err = err};
	AUTO_BUF struct buf joined = BUF_INIT(YML_TEXT_MAX);
	struct doc *root = ARENA_NEW(a, struct doc);
	int rc;

	if (text.n > YML_TEXT_MAX)
		return err_set(err, ERR_TOO_BIG, "YAML text of %zu bytes: the limit is %zu", text.n,
		               YML_TEXT_MAX);
	if (memmem(text.p, text.n, "\\u", 2) != NULL && is_json_object(a, text)) {
		join_pairs(&r, text, &joined);
		text = buf_view(&joined);
	}
	if (yaml_parser_initialize(&r.parser) != 1)
		abort();
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.p, text.n);
	rc = document(&r, root);
	yaml_parser_delete(&r.parser);
	if (rc == 0)
		*out = root;
	return rc;
}
