/* test_awschunked.c - the decoder: cut anywhere it gives the same, and what is no such body is
 * refused. */
#include "unit.h"

#include "face/awschunked.h"

struct seen {
	char text[200];
};

static int note(void *arg, struct str name, struct str value, struct err *err UNUSED)
{
	struct seen *s = arg;
	size_t n = strlen(s->text);

	fmt_fixed(s->text + n, sizeof(s->text) - n, "%.*s=%.*s;", STR_ARG(name), STR_ARG(value));
	return 0;
}

/* Fed `step` bytes at a time, read `cap` at a time. 0 = whole, 1 = the end is missing. */
static int decode(struct str in, size_t step, size_t cap, char out[200], struct seen *seen,
                  struct err *err)
{
	struct awschunked c = {.trailer = note, .arg = seen};
	size_t done = 0;

	while (in.n > 0) {
		struct str part = str_n(in.p, MIN(step, in.n));
		size_t before = part.n;

		while (part.n > 0) {
			size_t n;

			if (awschunked_feed(&c, &part, out + done, MIN(cap, 199 - done), &n, err) <
			    0)
				return -1;
			done += n;
		}
		in = str_skip(in, before);
	}
	out[done] = '\0';
	return awschunked_done(&c) ? 0 : 1;
}

static void awschunked_decodes_however_it_is_cut(void **state UNUSED)
{
	static const struct {
		const char *in, *out, *trailers;
	} rows[] = {
		{"5\r\nhello\r\n0\r\n\r\n", "hello", ""},
		{"0\r\n\r\n", "", ""},
		{"3\r\nhel\r\n2\r\nlo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", "hello",
	         "x-amz-checksum-crc32=NhCmhg==;"},
		{"5;chunk-signature=abc\r\nhello\r\n0;chunk-signature=def\r\nA: b\nC:d\r\n\r\n",
	         "hello", "A=b;C=d;"},
		{"00000a\r\n0123456789\r\n000\r\n\r\n", "0123456789", ""},
		{"A\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n", ""},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t step = 1; step < 60; step++)
			for (size_t cap = 1; cap < 8; cap++) {
				struct seen seen = {0};
				struct err err = {0};
				char out[200];

				assert_int_equal(
					decode(str_of(rows[i].in), step, cap, out, &seen, &err), 0);
				assert_string_equal(out, rows[i].out);
				assert_string_equal(seen.text, rows[i].trailers);
			}
}

static void awschunked_refuses(void **state UNUSED)
{
	static const struct {
		const char *in, *words;
	} rows[] = {
		{"hello", NULL},
		{"\r\n", "without a size"},
		{";x\r\n", "without a size"},
		{"g\r\n", "not hexadecimal"},
		{"-1\r\n", "not hexadecimal"},
		{"0x5\r\nhello\r\n", "not hexadecimal"},
		{"11111111111111111\r\n", "without a size"},
		{"ffffffffffffffff\r\n", "too large"},
		{"4\r\nhello\r\n0\r\n\r\n", "longer than its size"},
		{"5\r\nhello\rx", "longer than its size"},
		{"0\r\n\r\nmore", "after its end"},
		{"0\r\nnocolon\r\n\r\n", "without a name"},
		{"0\r\n:value\r\n\r\n", "without a name"},
		{"0\r\na:1\r\na:2\r\na:3\r\na:4\r\na:5\r\na:6\r\na:7\r\na:8\r\na:9\r\n\r\n",
	         "too many"},
		{"", NULL},
		{"5\r\nhel", NULL},
		{"5\r\nhello\r\n", NULL},
		{"0\r\n", NULL},
		{"0\r\na:b\r\n", NULL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct seen seen = {0};
		struct err err = {0};
		char out[200];
		int rc = decode(str_of(rows[i].in), 7, 7, out, &seen, &err);

		assert_row(rc == (rows[i].words == NULL ? 1 : -1), rows[i].in);
		assert_row(rows[i].words == NULL || strstr(err.msg, rows[i].words) != NULL,
		           rows[i].in);
		assert_row(rows[i].words == NULL || err.code == ERR_INVALID, rows[i].in);
	}
}

static void awschunked_line_is_bounded(void **state UNUSED)
{
	struct awschunked c = {0};
	struct err err = {0};
	char line[AWSCHUNKED_LINE_MAX + 10] = "", out[8];
	struct str in = str_n(line, sizeof(line));
	size_t n;

	memset(line, '1', sizeof(line));
	assert_err(awschunked_feed(&c, &in, out, sizeof(out), &n, &err), &err, ERR_INVALID,
	           "unterminated");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(awschunked_decodes_however_it_is_cut),
	cmocka_unit_test(awschunked_refuses),
	cmocka_unit_test(awschunked_line_is_bounded),
};
UNIT_MAIN(tests)
