/* test_yaml.c - YAML read strictly: what is refused, where, and how plain scalars are typed. */
#include "base/yaml.h"

#include "unit.h"

static void test_refuses(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
		{"a: &x 1", "line 1, column 4: anchors"},
		{"a: 1\nb: *x", "line 2"},
		{"&x [1]", "anchors"},
		{"a: !!str 1", "tags"},
		{"!x {a: 1}", "tags"},
		{"a: 1\nb: 2\na: 3", "line 3, column 1: key \"a\" was already given in line 1"},
		{"? [1]\n: 2", "a key must be plain text"},
		{"\"\": 1", "must not be empty"},
		{"a: 1\n---\nb: 2", "only one document"},
		{"a: [1", "line"},
		{"a: b: c", "line 1"},
		{"a: \"x\\0y\"", "NUL"},
		{"\ta: 1", "line 1, column 1: a tab"},
		{"a:\n\tb: 1", "line 2, column 1: a tab"},
		{"a: @b", "column 4: text cannot begin"},
		{"a b\nc: 1", "line 2, column 2: unexpected colon"},
		{"a: \xff", "byte"},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct doc *d = NULL;

		if (yml_parse(a, str_of(rows[i].text), &d, &err) == 0 || err.code != ERR_INVALID ||
		    strstr(err.msg, rows[i].words) == NULL)
			fail_msg("row \"%s\": %s", rows[i].text, err.msg);
		assert_null(d);
		err_clear(&err);
	}
}

static void test_limits(void **state)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf b = BUF_INIT(YML_TEXT_MAX + 2);
	const struct doc *d = NULL;
	struct err err = {0};

	(void)state;
	for (int i = 0; i <= YML_DEPTH_MAX; i++)
		buf_putc(&b, '[');
	assert_err(yml_parse(a, buf_view(&b), &d, &err), &err, ERR_INVALID, "nested too deeply");
	buf_clear(&b);
	buf_putc(&b, '[');
	for (int i = 0; i < YML_NODES_MAX; i++)
		buf_puts(&b, "1,");
	buf_putc(&b, ']');
	assert_err(yml_parse(a, buf_view(&b), &d, &err), &err, ERR_INVALID, "too many values");
	buf_clear(&b);
	while (b.n <= YML_TEXT_MAX)
		buf_putc(&b, ' ');
	assert_err(yml_parse(a, buf_view(&b), &d, &err), &err, ERR_TOO_BIG, "limit");
}

static void test_types(void **state)
{
	static const struct {
		const char *text;
		enum doc_kind kind;
	} rows[] = {
		{"5", DOC_INT},
		{"-5", DOC_INT},
		{"+5", DOC_INT},
		{"007", DOC_INT},
		{"1.5", DOC_REAL},
		{"1e3", DOC_REAL},
		{".5", DOC_REAL},
		{"1.2.3", DOC_TEXT},
		{"-", DOC_LIST},
		{"++5", DOC_TEXT},
		{"2Gi", DOC_TEXT},
		{"0x10", DOC_TEXT},
		{"true", DOC_BOOL},
		{"False", DOC_BOOL},
		{"yes", DOC_TEXT},
		{"no", DOC_TEXT},
		{"on", DOC_TEXT},
		{"null", DOC_NULL},
		{"~", DOC_NULL},
		{"", DOC_NULL},
		{"\"5\"", DOC_TEXT},
		{"'true'", DOC_TEXT},
		{"1e999", DOC_TEXT},
		{"[]", DOC_LIST},
		{"{a: 1}", DOC_MAP},
		{"1:30", DOC_TEXT},
		{"nan", DOC_TEXT},
		{".", DOC_TEXT},
		{"9223372036854775808", DOC_REAL},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct doc *d = NULL;

		assert_ok(yml_parse(a, str_of(rows[i].text), &d, &err), &err);
		assert_row(d->kind == rows[i].kind, rows[i].text);
	}
}

static void test_places(void **state)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err err = {0};

	(void)state;
	assert_ok(
		yml_parse(a,
	                  STR_LIT("# comment\njob:\n  commands:\n    - one\n    - |\n      two\n"),
	                  &d, &err),
		&err);
	d = doc_path(d, "job", "commands", NULL);
	assert_int_equal(d->key_line, 3);
	assert_int_equal(d->key_col, 3);
	assert_int_equal(d->count, 2);
	assert_int_equal(d->first->line, 4);
	assert_int_equal(d->first->col, 7);
	assert_string_equal(doc_cstr(d->first->next, ""), "two\n");
}

/* As programs write it that keep to ASCII. */
static void test_json_with_surrogates(void **state)
{
	static const struct {
		const char *text, *value; /* NULL: refused */
		unsigned line, col;       /* of key "b" */
	} rows[] = {
		{"{\"a\": \"\\ud83e\\udd8a\", \"b\": 1}", "\xf0\x9f\xa6\x8a", 1, 23},
		{"{\"a\": \"\\uD83E\\uDD8A \\ud83e\\udd8a\",\n \"b\": 1}",
	         "\xf0\x9f\xa6\x8a \xf0\x9f\xa6\x8a", 2, 2},
		{"{\n\t\"a\": \"\xc3\xa9\\/\\u00e9\\ud83e\\udd8a\", \"b\": 1}",
	         "\xc3\xa9/\xc3\xa9\xf0\x9f\xa6\x8a", 2, 32},
		{"{\"a\": \"\\\\ud83e\\\\udd8a\", \"b\": 1}", "\\ud83e\\udd8a", 1, 25},
		{"{\"a\": \"\\ud83e\", \"b\": 1}", NULL, 0, 0},
		{"{\"a\": \"\\udd8a\\ud83e\", \"b\": 1}", NULL, 0, 0},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct doc *d = NULL, *b;
		int r = yml_parse(a, str_of(rows[i].text), &d, &err);

		if ((r == 0) != (rows[i].value != NULL))
			fail_msg("row %s: %s", rows[i].text, err.msg);
		if (r == 0) {
			assert_string_equal(doc_cstr(doc_get(d, "a"), ""), rows[i].value);
			b = doc_get(d, "b");
			assert_int_equal(b->key_line, rows[i].line);
			assert_int_equal(b->key_col, rows[i].col);
		}
		err_clear(&err);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_json_with_surrogates),
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_limits),
	cmocka_unit_test(test_types),
	cmocka_unit_test(test_places),
};

UNIT_MAIN(tests)
