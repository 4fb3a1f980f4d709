/* test_hash.c - digests, HMAC, CRC32, hex and base64 against published vectors. */
#include "base/hash.h"

#include "unit.h"

static void hex_is(const uint8_t *p, size_t n, const char *want)
{
	char text[HASH_HEX_CAP];

	hex_encode(p, n, text);
	assert_string_equal(text, want);
}

static void test_digests(void **state)
{
	struct digest d = hash_sha256("abc", 3);
	AUTO_HASH struct hash *h = hash_new(HASH_SHA1);
	uint8_t out[HASH_SHA256_LEN];

	(void)state;
	hex_is(d.b, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	d = hash_sha256(NULL, 0);
	hex_is(d.b, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hash_md5("abc", 3, out);
	hex_is(out, 16, "900150983cd24fb0d6963f7d28e17f72");
	hash_add(h, "a", 1);
	hash_add(h, NULL, 0);
	hash_add(h, "bc", 2);
	assert_int_equal(hash_end(h, out), 20);
	hex_is(out, 20, "a9993e364706816aba3e25717850c26c9cd0d89d");
	hash_add(h, "abc", 3); /* ready for a new text */
	assert_int_equal(hash_end(h, out), 20);
	hex_is(out, 20, "a9993e364706816aba3e25717850c26c9cd0d89d");
	/* RFC 4231, case 2 */
	hash_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
	hex_is(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	hash_hmac_sha256(NULL, 0, NULL, 0, out);
	hex_is(out, 32, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_crc(void **state)
{
	static const char text[] = "The quick brown fox jumps over the lazy dog";

	(void)state;
	assert_int_equal(hash_crc32(0, "", 0), 0);
	assert_int_equal(hash_crc32(0, "123456789", 9), 0xcbf43926U);
	assert_int_equal(hash_crc32c(0, "123456789", 9), 0xe3069283U);
	assert_int_equal(hash_crc32c(hash_crc32c(0, "1234", 4), "56789", 5), 0xe3069283U);
	for (size_t cut = 0; cut < sizeof(text); cut++)
		assert_int_equal(hash_crc32(hash_crc32(0, text, cut), text + cut,
		                            sizeof(text) - 1 - MIN(cut, sizeof(text) - 1)),
		                 cut == sizeof(text) - 1 || cut < sizeof(text) ? 0x414fa339U : 0);
}

static void test_hex(void **state)
{
	uint8_t out[2] = {9, 9};
	struct digest d;
	struct err err = {0};

	(void)state;
	assert_err(hex_decode(STR_LIT("abc"), out, 2, &err), &err, ERR_INVALID, "4 hex digits");
	assert_err(hex_decode(STR_LIT("00gg"), out, 2, &err), &err, ERR_INVALID, "position 3");
	assert_int_equal(out[0], 9);
	assert_ok(hex_decode(STR_LIT("0aFf"), out, 2, &err), &err);
	assert_int_equal(out[0], 10);
	assert_int_equal(out[1], 255);
	assert_err(digest_parse(STR_LIT(""), &d, &err), &err, ERR_INVALID, "64 hex");
}

static void test_base64(void **state)
{
	static const struct {
		const char *plain, *coded, *url;
	} rows[] = {
		{"", "", ""},
		{"f", "Zg==", "Zg"},
		{"fo", "Zm8=", "Zm8"},
		{"foo", "Zm9v", "Zm9v"},
		{"foobar", "Zm9vYmFy", "Zm9vYmFy"},
		{"\xfb\xff\xfe", "+//+", "-__-"},
	};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		for (int url = 0; url < 2; url++) {
			AUTO_BUF struct buf b = BUF_INIT(100), back = BUF_INIT(100);

			base64_encode(rows[i].plain, strlen(rows[i].plain), url, &b);
			assert_string_equal(buf_cstr(&b), url ? rows[i].url : rows[i].coded);
			assert_ok(base64_decode(buf_view(&b), url, &back, &err), &err);
			assert_string_equal(buf_cstr(&back), rows[i].plain);
		}
	}
	{
		AUTO_BUF struct buf b = BUF_INIT(3);

		assert_err(base64_decode(STR_LIT("Z"), false, &b, &err), &err, ERR_INVALID,
		           "truncated");
		assert_err(base64_decode(STR_LIT("Zm 9v"), false, &b, &err), &err, ERR_INVALID, "");
		buf_clear(&b);
		assert_err(base64_decode(STR_LIT("Zm9vYmFy"), false, &b, &err), &err, ERR_TOO_BIG,
		           "");
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_digests),
	cmocka_unit_test(test_crc),
	cmocka_unit_test(test_hex),
	cmocka_unit_test(test_base64),
};

UNIT_MAIN(tests)
