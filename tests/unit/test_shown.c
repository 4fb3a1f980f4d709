/* test_shown.c - what people cannot see is escaped; what they can stays as it is. */
#include "base/json.h"
#include "base/shown.h"

#include "unit.h"

static const struct {
	const char *text, *shown, *json; /* json: NULL: the text itself */
} rows[] = {
	{"", "", NULL},
	{"model-00001.safetensors", "model-00001.safetensors", NULL},
	{"\xd7\x90\xd7\x91 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x9a\x80 e\xcc\x81",
         "\xd7\x90\xd7\x91 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x9a\x80 e\xcc\x81", NULL},
	{"C:\\u202e", "C:\\u202e", "C:\\\\u202e"},
	{"a\nb\tc\rd", "a\\nb\\tc\\rd", "a\\nb\\tc\\rd"},
	{"\x1b[2J\x01\x7f", "\\u001b[2J\\u0001\\u007f", "\\u001b[2J\\u0001\\u007f"},
	{"\xc2\x9b"
         "2J",
         "\\u009b2J", "\\u009b2J"}, /* CSI in one character */
	{"\xc2\x80\xc2\x9f\xc2\xa0", "\\u0080\\u009f\xc2\xa0", "\\u0080\\u009f\xc2\xa0"},
	{"a\xe2\x80\xaetxt.exe", "a\\u202etxt.exe", "a\\u202etxt.exe"},
	{"\xe2\x80\xaa\xe2\x80\xad\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c",
         "\\u202a\\u202d\\u2066\\u2069\\u061c", "\\u202a\\u202d\\u2066\\u2069\\u061c"},
	{"\xe2\x80\x8b\xe2\x80\x8d\xe2\x80\x8f\xef\xbb\xbf\xc2\xad",
         "\\u200b\\u200d\\u200f\\ufeff\\u00ad", "\\u200b\\u200d\\u200f\\ufeff\\u00ad"},
	{"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029", "\\u2028\\u2029"},
	{"\xf3\xa0\x81\x81", "\\U000e0041", "\\udb40\\udc41"},
	{"\xff-\xc3", "\\xff-\\xc3", "\xef\xbf\xbd-\xef\xbf\xbd"},
};

static void shown_rows(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1000);
		struct str text = str_of(rows[i].text);

		shown_add(&out, text);
		assert_string_equal(buf_cstr(&out), rows[i].shown);
		assert_true(out.n <= SHOWN_GROWTH * text.n);
		buf_clear(&out);
		shown_add(&out, str_of(rows[i].shown)); /* once is as good as twice */
		assert_string_equal(buf_cstr(&out), rows[i].shown);
	}
}

/* JSON with escapes is the same text to who reads it. */
static void shown_json_is_exact(void **state UNUSED)
{
	struct arena *a = arena_new();

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1000);
		AUTO_BUF struct buf want = BUF_INIT(1000);
		struct err err = {0};
		const struct doc *d;
		struct js js;

		js_init(&js, &out);
		js.shown = true;
		js_cstr(&js, rows[i].text);
		buf_printf(&want, "\"%s\"", rows[i].json != NULL ? rows[i].json : rows[i].text);
		assert_string_equal(buf_cstr(&out), buf_cstr(&want));
		assert_ok(js_parse(a, buf_view(&out), &d, &err), &err);
		assert_row(!str_is_utf8(str_of(rows[i].text)) || str_eq(doc_text(d), rows[i].text),
		           rows[i].shown);
	}
	arena_free(a);
}

static void shown_tells_what_deceives(void **state UNUSED)
{
	static const char *const bad[] = {"\n",           "a\x1b[m",      "\xc2\x9b",
	                                  "\xe2\x80\xae", "\xe2\x81\xa9", "\xd8\x9c",
	                                  "\xe2\x80\x8e", "\xe2\x80\xa9", "\xff"};
	static const char *const good[] = {"", "a b", "\xd7\x90", "\xe2\x80\x8c",
	                                   "\xf0\x9f\x9a\x80"};

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_row(shown_deceives(str_of(bad[i])), bad[i]);
	for (size_t i = 0; i < COUNT(good); i++)
		assert_row(!shown_deceives(str_of(good[i])), good[i]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(shown_rows),
	cmocka_unit_test(shown_json_is_exact),
	cmocka_unit_test(shown_tells_what_deceives),
};

UNIT_MAIN(tests)
