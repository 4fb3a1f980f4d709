/* test_base64.c - base64 in pieces: RFC 4648's vectors, every cut of the text, any room for the
 * bytes, what is refused. */
#include "unit.h"

#include "base/base64.h"
#include "base/hash.h"

/* The text in steps of `step` bytes, decoded into room for `cap`. */
static int decode(struct str text, size_t step, size_t cap, struct buf *out, struct err *err)
{
	struct base64 b = {0};
	uint8_t room[64];

	assert(cap <= sizeof(room));
	buf_clear(out);
	while (text.n > 0) {
		struct str in = str_n(text.p, MIN(step, text.n));

		text = str_skip(text, in.n);
		while (in.n > 0) {
			size_t n = 1000, before = in.n;

			if (base64_feed(&b, &in, room, cap, &n, err) < 0)
				return -1;
			assert(n <= cap && (n > 0 || in.n < before));
			assert(in.n == 0 || cap - n < BASE64_GROUP);
			buf_add(out, room, n);
		}
	}
	return base64_end(&b, err);
}

static void decodes_however_it_is_cut(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"", ""},
		{"Zg==", "f"},
		{"Zm8=", "fo"},
		{"Zm9v", "foo"},
		{"Zm9vYg==", "foob"},
		{"Zm9vYmE=", "fooba"},
		{"Zm9vYmFy", "foobar"},
		{"\nZm9v\r\nYm\nE\r=\n\n", "fooba"},
		{"+/+/", "\xfb\xff\xbf"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		for (size_t step = 1; step < 20; step++) {
			AUTO_BUF struct buf out = BUF_INIT(1000);
			struct err err = {0};

			assert_ok(decode(str_of(rows[i].text), step, 3 + step % 5, &out, &err),
			          &err);
			assert_row(str_eq(buf_view(&out), rows[i].want), rows[i].text);
		}
	}
}

static void agrees_with_the_encoder(void **state UNUSED)
{
	uint8_t bytes[600];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * i * 31 + i / 7);
	for (size_t n = 0; n < sizeof(bytes); n++) {
		AUTO_BUF struct buf text = BUF_INIT(1000), out = BUF_INIT(1000);
		struct err err = {0};

		base64_encode(bytes, n, false, &text);
		assert_ok(decode(buf_view(&text), 1 + n % 97, 3 + n % 60, &out, &err), &err);
		assert_true(str_same(buf_view(&out), str_n((const char *)bytes, n)));
	}
}

static void every_byte_is_judged(void **state UNUSED)
{
	for (int c = 0; c < 256; c++) {
		AUTO_BUF struct buf out = BUF_INIT(1000), whole = BUF_INIT(1000);
		char text[] = "AAAAAAA?AAAA";
		struct err err = {0}, other = {0};
		bool skipped = c == '\r' || c == '\n';

		text[7] = (char)c;
		if (skipped || decode(str_of(text), 100, 60, &out, &err) < 0) {
			assert_int_equal(decode(str_n(text, 12), 1, 3, &whole, &other), -1);
			continue;
		}
		assert_ok(base64_decode(str_of(text), false, &whole, &other), &other);
		assert_true(str_same(buf_view(&out), buf_view(&whole)));
	}
}

static void refuses_what_is_no_base64(void **state UNUSED)
{
	static const struct {
		const char *text, *message;
	} rows[] = {
		{"Z", "not base64: it ends inside of a group of four"},
		{"Zm9vZg", "not base64: it ends inside of a group of four"},
		{"Zm8", "not base64: it ends inside of a group of four"},
		{"Zg=", "not base64: it ends inside of a group of four"},
		{"=", "not base64: '='"},
		{"Z===", "not base64: '='"},
		{"Zm9v=", "not base64: '='"},
		{"Zg=v", "not base64: 'v'"},
		{"Zh==", "not base64: bits are left over at its end"},
		{"Zm9=", "not base64: bits are left over at its end"},
		{"Zg==Zg==", "not base64: something follows the padding"},
		{"Zm8==", "not base64: something follows the padding"},
		{"Zm-v", "not base64: '-'"},
		{"Zm_v", "not base64: '_'"},
		{"Zm9vZm v", "not base64: byte 0x20"},
		{"\xc3\xa9zz", "not base64: byte 0xc3"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		for (size_t step = 1; step < 10; step++) {
			AUTO_BUF struct buf out = BUF_INIT(1000);
			struct err err = {0};

			assert_int_equal(decode(str_of(rows[i].text), step, 6, &out, &err), -1);
			assert_int_equal(err.code, ERR_INVALID);
			assert_string_equal(err.msg, rows[i].message);
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(decodes_however_it_is_cut),
	cmocka_unit_test(agrees_with_the_encoder),
	cmocka_unit_test(every_byte_is_judged),
	cmocka_unit_test(refuses_what_is_no_base64),
};
UNIT_MAIN(tests)
