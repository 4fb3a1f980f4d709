/* test_json.c - JSON read strictly into trees, and written. */
#include "base/json.h"

#include "unit.h"

static void test_refuses(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
		{"", "empty"},
		{"  \n", "empty"},
		{"{", "line 1"},
		{"{\"a\":1,\"a\":2}", "duplicate"},
		{"[1,]", "line 1"},
		{"[1] x", "end of file"},
		{"{\"a\":01}", "line 1"},
		{"[NaN]", "line 1"},
		{"\"\xff\"", "unable to decode"},
		{"[99999999999999999999]", "big integer"},
		{"{'a':1}", "line 1"},
		{"\n\n  nul", "line 3"},
	};
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf deep = BUF_INIT(10000);
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct doc *d = NULL;

		assert_err(js_parse(a, str_of(rows[i].text), &d, &err), &err, ERR_INVALID,
		           rows[i].words);
		assert_null(d);
	}
	{
		const struct doc *d = NULL;

		assert_err(js_parse(a, str_n("[1]\0x", 5), &d, &err), &err, ERR_INVALID, "NUL");
	}
	for (int i = 0; i < JS_DEPTH_MAX + 2; i++)
		buf_putc(&deep, '[');
	for (int i = 0; i < JS_DEPTH_MAX + 2; i++)
		buf_putc(&deep, ']');
	{
		const struct doc *d = NULL;

		assert_err(js_parse(a, buf_view(&deep), &d, &err), &err, ERR_INVALID, "deeper");
	}
}

static void test_tree(void **state)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err err = {0};

	(void)state;
	assert_ok(
		js_parse(a,
	                 STR_LIT("{\"i\":-5,\"r\":1.5,\"t\":\"h\\u00e9\\n\",\"b\":true,\"n\":null,"
	                         "\"l\":[1,[2]],\"m\":{\"x\":{\"y\":7}}}"),
	                 &d, &err),
		&err);
	assert_int_equal(d->count, 7);
	assert_int_equal(doc_int(doc_get(d, "i"), 0), -5);
	assert_true(doc_real(doc_get(d, "i"), 0) < -4.9);
	assert_true(doc_real(doc_get(d, "r"), 0) > 1.4);
	assert_int_equal(doc_int(doc_get(d, "r"), 42), 42);
	assert_string_equal(doc_cstr(doc_get(d, "t"), ""), "h\xc3\xa9\n");
	assert_true(doc_bool(doc_get(d, "b"), false));
	assert_true(doc_is(doc_get(d, "n"), DOC_NULL));
	assert_int_equal(doc_get(d, "l")->count, 2);
	assert_int_equal(doc_int(doc_path(d, "m", "x", "y", NULL), 0), 7);
	assert_null(doc_path(d, "m", "z", "y", NULL));
	assert_null(doc_get(NULL, "x"));
	assert_int_equal(doc_text(NULL).n, 0);
}

/* Whatever is written reads back as the same bytes. */
static void test_round_trip(void **state)
{
	static const char *const texts[] = {
		"{}",
		"[]",
		"null",
		"true",
		"-1",
		"1.5",
		"\"\"",
		"[[],{},\"a\\\"b\\\\c\\u0001\"]",
		"{\"a\":[1,2,3],\"b\":{\"c\":null}}",
		"\"\xe2\x82\xac \xf0\x9f\x98\x80\"",
		"1e+300",
		"0.1",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++) {
		AUTO_BUF struct buf b = BUF_INIT(1000);
		const struct doc *d = NULL;
		struct js js;

		assert_ok(js_parse(a, str_of(texts[i]), &d, &err), &err);
		js_init(&js, &b);
		js_doc(&js, d);
		assert_row(strcmp(buf_cstr(&b), texts[i]) == 0, texts[i]);
	}
}

static void test_writer(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT(1000);
	struct js js;

	(void)state;
	js_init(&js, &b);
	js_open(&js);
	js_kv(&js, "s", NULL);
	js_kv_str(&js, "bad", STR_LIT("a\xff\xc0\x80\xed\xa0\x80z\x7f\t"));
	js_kv_real(&js, "nan", 0.0 / 1.0);
	js_key(&js, "l");
	js_list(&js);
	js_u64(&js, UINT64_MAX);
	js_fmt(&js, "%d-%s", 1, "x");
	js_raw(&js, STR_LIT("{\"r\":1}"));
	js_bool(&js, false);
	js_end(&js);
	js_kv_null(&js, "z");
	js_close(&js);
	assert_string_equal(buf_cstr(&b),
	                    "{\"s\":null,\"bad\":"
	                    "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
	                    "\xef\xbf\xbdz\\u007f\\t\",\"nan\":0.0,\"l\":[18446744073709551615,\"1-"
	                    "x\",{\"r\":1},"
	                    "false],\"z\":null}");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_tree),
	cmocka_unit_test(test_round_trip),
	cmocka_unit_test(test_writer),
};

UNIT_MAIN(tests)
