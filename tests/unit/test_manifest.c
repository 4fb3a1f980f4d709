/* test_manifest.c - sets of files: what is refused, and that equal sets have equal names. */
#include "unit.h"

#include "core/manifest.h"

#define HEAD "stoker-manifest 1\n"
#define HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const struct {
	const char *name, *text, *words;
} bad[] = {
	{"nothing", "", "does not start with"},
	{"other version", "stoker-manifest 2\n", "does not start with"},
	{"cut off", HEAD HEX " 0 a", "truncated"},
	{"no size", HEAD HEX " a\n", "size"},
	{"signed size", HEAD HEX " +1 a\n", "size"},
	{"leading zero", HEAD HEX " 01 a\n", "size"},
	{"huge size", HEAD HEX " 99999999999999999999 a\n", "line 2"},
	{"short digest", HEAD "e3b0 0 a\n", "line 2"},
	{"capital digest",
         HEAD "E3B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 a\n",
         "lowercase"},
	{"no path", HEAD HEX " 0 \n", "plain relative path"},
	{"climbs out", HEAD HEX " 0 ../a\n", "plain relative path"},
	{"absolute", HEAD HEX " 0 /a\n", "plain relative path"},
	{"control character", HEAD HEX " 0 a\x01\n", "plain relative path"},
	{"out of order", HEAD HEX " 0 b\n" HEX " 0 a\n", "line 3"},
	{"twice", HEAD HEX " 0 a\n" HEX " 0 a\n", "out of order"},
	{"file as folder", HEAD HEX " 0 a\n" HEX " 0 a-b\n" HEX " 0 a/b/c\n",
         "is a file, and the folder"},
	{"sum overflows", HEAD HEX " 9223372036854775807 a\n" HEX " 1 b\n", "overflow"},
};

static void manifest_refuses(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(bad); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct manifest m = {0};
		struct err err = {0};

		assert_row(manifest_parse(&m, a, str_of(bad[i].text), &err) == -1, bad[i].name);
		if (strstr(err.msg, bad[i].words) == NULL)
			fail_msg("row \"%s\": %s", bad[i].name, err.msg);
		assert_int_equal(m.n, 0);
	}
}

static void add(struct manifest *m, const char *path, uint64_t size)
{
	struct digest d = hash_sha256(path, strlen(path));
	struct err err = {0};

	assert_ok(manifest_add(m, str_of(path), size, &d, &err), &err);
}

static void manifest_same_set_same_name(void **state UNUSED)
{
	static const char *const paths[] = {"z/y/x", "a",    "a-b/c", "model.safetensors",
	                                    "a.b",   "z/y-1"};
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf one = BUF_INIT(10000), two = BUF_INIT(10000);
	struct manifest m, back, again;
	struct digest d1, d2;
	struct err err = {0};

	manifest_init(&m, a);
	manifest_init(&again, a);
	for (size_t i = 0; i < COUNT(paths); i++) {
		add(&m, paths[i], i);
		add(&again, paths[COUNT(paths) - 1 - i], COUNT(paths) - 1 - i);
	}
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(manifest_finish(&again, &err), &err);
	buf_puts(&two, "already here");
	manifest_write(&m, &one, &d1);
	manifest_write(&again, &two, &d2);
	assert_true(digest_same(&d1, &d2));
	assert_string_equal(buf_cstr(&one), buf_cstr(&two) + sizeof("already here") - 1);
	assert_int_equal(m.bytes, 15);
	assert_ok(manifest_parse(&back, a, buf_view(&one), &err), &err);
	assert_int_equal(back.n, COUNT(paths));
	assert_int_equal(back.bytes, 15);
	for (size_t i = 0; i < COUNT(paths); i++) {
		assert_int_equal(manifest_find(&back, str_of(paths[i]))->size, i);
		assert_string_equal(manifest_find(&back, str_of(paths[i]))->path, paths[i]);
	}
	assert_null(manifest_find(&back, STR_LIT("a-")));
	assert_null(manifest_find(&back, STR_LIT("")));
	assert_null(manifest_find(&back, STR_LIT("zz")));
}

static void manifest_finish_finds_clashes(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	struct err err = {0};

	manifest_init(&m, a);
	assert_ok(manifest_finish(&m, &err), &err);
	add(&m, "x/y", 1);
	add(&m, "x/y", 1);
	assert_err(manifest_finish(&m, &err), &err, ERR_INVALID, "\"x/y\" is listed twice");
	manifest_init(&m, a);
	add(&m, "x/y/z", 1);
	add(&m, "x/y.txt", 1);
	add(&m, "x/y", 1);
	assert_err(manifest_finish(&m, &err), &err, ERR_INVALID, "\"x/y\" is a file");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(manifest_refuses),
	cmocka_unit_test(manifest_same_set_same_name),
	cmocka_unit_test(manifest_finish_finds_clashes),
};
UNIT_MAIN(tests)
