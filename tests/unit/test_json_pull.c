/* test_json_pull.c - JSON in pieces: the same tokens for every way of cutting the bytes, exact
 * words for what is refused. */
#include "unit.h"

#include "base/json_pull.h"

/* What a token adds to the trace; a key, text or number is followed by its pieces and a ';'. */
static const char *const marks[JS_TOKEN_COUNT] = {
	[JS_MAP] = "{",    [JS_MAP_END] = "}", [JS_LIST] = "[",    [JS_LIST_END] = "]",
	[JS_KEY] = "k:",   [JS_TEXT] = "t:",   [JS_NUMBER] = "n:", [JS_END] = ";",
	[JS_TRUE] = "yes", [JS_FALSE] = "no",  [JS_NULL] = "null", [JS_PIECE] = "",
};

static int feed(struct js_pull *j, struct str in, struct buf *trace, struct err *err)
{
	for (;;) {
		struct js_event e;

		if (js_pull_next(j, &in, &e, err) < 0)
			return -1;
		if (e.token == JS_MORE) {
			assert_int_equal(in.n, 0);
			return 0;
		}
		buf_puts(trace, marks[e.token]);
		if (e.token == JS_PIECE)
			buf_str(trace, e.piece);
	}
}

static unsigned dice = 1;

static size_t roll(size_t sides)
{
	dice = dice * 1103515245 + 12345;
	return (dice >> 16) % sides;
}

/* In steps of up to `most` bytes. The trace, and behind it what went wrong. */
static void trace_of(struct str text, size_t most, bool random, struct buf *trace)
{
	struct js_pull j;
	struct err err = {0};

	js_pull_init(&j);
	while (text.n > 0) {
		size_t step = random ? 1 + roll(most) : most;

		if (feed(&j, str_n(text.p, MIN(step, text.n)), trace, &err) < 0) {
			buf_printf(trace, "!%s", err.msg);
			return;
		}
		text = str_skip(text, step);
	}
	if (js_pull_is_new(&j))
		buf_puts(trace, "!empty");
	else if (!js_pull_is_done(&j))
		buf_puts(trace, "!cut");
}

static void same_trace(struct str text, const char *want)
{
	for (size_t most = 1; most <= 40; most++) {
		AUTO_BUF struct buf trace = BUF_INIT(100000);
		size_t step = most == 40 ? text.n : most / 2 + 1;

		trace_of(text, MAX(step, (size_t)1), most % 2 == 0 && most < 40, &trace);
		if (!str_eq(buf_view(&trace), want))
			fail_msg("%.*s by %zu: %s", STR_ARG(text), step, buf_cstr(&trace));
	}
}

static void reads_tokens(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{" {} ", "{}"},
		{"\t[ ]\r\n", "[]"},
		{"{\"a\" : 1 , \"b\":[true,false,null]}", "{k:a;n:1;k:b;[yesnonull]}"},
		{"[[],{},\"\",{\"\":\"\"}]", "[[]{}t:;{k:;t:;}]"},
		{"[0,-0,-1.5e+10,10E-2,1e5,0.00]", "[n:0;n:-0;n:-1.5e+10;n:10E-2;n:1e5;n:0.00;]"},
		{"123", "n:123"}, /* the number may go on: it has no end yet */
		{"12 ", "n:12;"},
		{"true", "yes"},
		{"\"a long text of plain characters \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 in it\"",
	         "t:a long text of plain characters \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 in it;"},
		{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "t:\"\\/\b\f\n\r\t;"},
		{"\"\\u0041\\u00e9\\u20AC\\uD83d\\uDe00\\udbff\\udfff\\ud800\\udc00\"",
	         "t:A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xf0\x90\x80\x80;"},
		{"\"\\u0001\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
	         "t:\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf;"},
		{"\"\x7f\"", "t:\x7f;"},
		{"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		same_trace(str_of(rows[i].text), rows[i].want);
}

static void refuses_what_is_no_json(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"", "!empty"},
		{" \n", "!empty"},
		{"{", "{!cut"},
		{"\"abc", "t:abc!cut"},
		{"tru", "!cut"},
		{"-", "n:-!cut"},
		{"1.", "n:1.!cut"},
		{"{\"a\":1", "{k:a;n:1!cut"},
		{"{} {}", "{}!not JSON: nothing more is expected, not '{'"},
		{"{}]", "{}!not JSON: nothing more is expected, not ']'"},
		{"{\"a\":1,}", "{k:a;n:1;!not JSON: a key is expected, not '}'"},
		{"{a:1}", "{!not JSON: a key or '}' is expected, not 'a'"},
		{"{\"a\" 1}", "{k:a;!not JSON: ':' is expected, not '1'"},
		{"{\"a\":}", "{k:a;!not JSON: a value is expected, not '}'"},
		{"{\"a\":1 \"b\"}", "{k:a;n:1;!not JSON: ',' or '}' is expected, not '\"'"},
		{"{\"a\":1]", "{k:a;n:1;!not JSON: ',' or '}' is expected, not ']'"},
		{"[1}", "[n:1;!not JSON: ',' or ']' is expected, not '}'"},
		{"[1,]", "[n:1;!not JSON: a value is expected, not ']'"},
		{"[,]", "[!not JSON: a value is expected, not ','"},
		{"'a'", "!not JSON: a value is expected, not '''"},
		{"\xef\xbb\xbf{}", "!not JSON: a value is expected, not byte 0xef"},
		{"[nul]", "[!not JSON: null is expected, not ']'"},
		{"[nullx]", "[null!not JSON: ',' or ']' is expected, not 'x'"},
		{"[NaN]", "[!not JSON: a value is expected, not 'N'"},
		{"[+1]", "[!not JSON: a value is expected, not '+'"},
		{"[.5]", "[!not JSON: a value is expected, not '.'"},
		{"[01]", "[n:0;!not JSON: ',' or ']' is expected, not '1'"},
		{"[-]", "[n:-!not JSON: a digit is expected, not ']'"},
		{"[-a]", "[n:-!not JSON: a digit is expected, not 'a'"},
		{"[1.]", "[n:1.!not JSON: a digit is expected, not ']'"},
		{"[1.e1]", "[n:1.!not JSON: a digit is expected, not 'e'"},
		{"[1e]", "[n:1e!not JSON: a digit is expected, not ']'"},
		{"[1e+]", "[n:1e+!not JSON: a digit is expected, not ']'"},
		{"[1e1.5]", "[n:1e1;!not JSON: ',' or ']' is expected, not '.'"},
		{"[0x1]", "[n:0;!not JSON: ',' or ']' is expected, not 'x'"},
		{"\"a\nb\"",
	         "t:a!not JSON: control character 0x0a in a text: it has to be escaped"},
		{"\"a234567\x1f\"",
	         "t:a234567!not JSON: control character 0x1f in a text: it has to be escaped"},
		{"\"\\x\"", "t:!not JSON: an escape is expected, not 'x'"},
		{"\"\\u12g4\"", "t:!not JSON: a hex digit is expected, not 'g'"},
		{"\"\\u0000\"", "t:!not JSON: \\u0000 is not taken"},
		{"\"\\udc00\"",
	         "t:!not JSON: \\udc00 is the second half of a pair without the first"},
		{"\"\\ud800x\"", "t:!not JSON: the second half of a pair is expected, not 'x'"},
		{"\"\\ud800\"", "t:!not JSON: the second half of a pair is expected, not '\"'"},
		{"\"\\ud800\\n\"", "t:!not JSON: the second half of a pair is expected, not 'n'"},
		{"\"\\ud800\\u0041\"", "t:!not JSON: \\u0041 is no second half of a pair"},
		{"\"\\ud800\\ud800\"", "t:!not JSON: \\ud800 is no second half of a pair"},
		{"\"a\x80\"", "t:a!not JSON: a text is not UTF-8"},
		{"\"a\xff\xff\xff\xff\"", "t:a!not JSON: a text is not UTF-8"},
		{"\"\xc3\"", "t:!not JSON: a text is not UTF-8"},
		{"\"\xe2\x82\"", "t:!not JSON: a text is not UTF-8"},
		{"\"\xf0\x9f\x98x\"", "t:!not JSON: a text is not UTF-8"},
		{"\"\xc0\x80\"", "t:!not JSON: a text is not UTF-8"},         /* overlong */
		{"\"\xe0\x80\xaf\"", "t:!not JSON: a text is not UTF-8"},     /* overlong */
		{"\"\xed\xa0\x80\"", "t:!not JSON: a text is not UTF-8"},     /* a surrogate */
		{"\"\xf4\x90\x80\x80\"", "t:!not JSON: a text is not UTF-8"}, /* too large */
		{"[[[[[[[[[[[[[[[[[", "[[[[[[[[[[[[[[[[!JSON is nested deeper than 16"},
		{"{\"a\":[[[[[[[[[[[[[[[{", "{k:a;[[[[[[[[[[[[[[[!JSON is nested deeper than 16"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		same_trace(str_of(rows[i].text), rows[i].want);
}

/* Any byte at any place of eight, which are looked at together. */
static void every_byte_of_a_text_is_judged(void **state UNUSED)
{
	for (unsigned c = 0; c < 256; c++) {
		for (size_t at = 1; at < 18; at++) {
			AUTO_BUF struct buf trace = BUF_INIT(1000);
			char text[] = "\"ABCDEFGHIJKLMNOPQR\"";
			bool plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';

			text[at] = (char)c;
			trace_of(STR_LIT(text), sizeof(text), false, &trace);
			assert_int_equal(memchr(trace.p, '!', trace.n) == NULL || c == '!', plain);
		}
	}
}

static void a_nul_is_no_json(void **state UNUSED)
{
	same_trace(STR_LIT("[\0]"), "[!not JSON: a value is expected, not byte 0x00");
	same_trace(STR_LIT("\"a\0b\""),
	           "t:a!not JSON: control character 0x00 in a text: it has to be escaped");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_tokens),
	cmocka_unit_test(refuses_what_is_no_json),
	cmocka_unit_test(every_byte_of_a_text_is_judged),
	cmocka_unit_test(a_nul_is_no_json),
};
UNIT_MAIN(tests)
