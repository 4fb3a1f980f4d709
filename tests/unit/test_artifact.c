/* test_artifact.c - what tools ask for, and what is no key of theirs. */
#include "core/artifact.h"

#include "unit.h"

#define HEX40 "0123456789abcdef0123456789abcdef01234567"
#define HEX64 HEX40 "0123456789abcdef01234567"
#define SHA "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef int name_fn(struct str path, struct artifact_name *out, struct err *err);

struct row {
	const char *path, *name; /* name NULL: refused */
};

static void check(name_fn *fn, const struct row *row, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct artifact_name name;
		struct err err = {0};
		int rc = fn(str_of(row[i].path), &name, &err);

		assert_row((rc == 0) == (row[i].name != NULL), row[i].path);
		if (rc == 0)
			assert_row(strcmp(name.text, row[i].name) == 0 &&
			                   artifact_kind_of(name.text) == name.kind,
			           row[i].path);
		else
			assert_row(err.id == ERR_ARTIFACT_KEY, row[i].path);
	}
}

/* The three layouts and the two ways to write a key lead to one name. */
static void ccache_keys(void **state UNUSED)
{
	static const struct row rows[] = {
		{HEX40, "ccache/" HEX40},
		{"01/23456789abcdef0123456789abcdef01234567", "ccache/" HEX40},
		{"ac/" HEX64, "ccache/" HEX40},
		/* two bytes in hex, eighteen in base 32 */
		{"1011289h858m2sc1i6gr3gehs7p044h26",
	         "ccache/101112131415161718191a1b1c1d1e1f20212223"},
		{"10/11289h858m2sc1i6gr3gehs7p044h26",
	         "ccache/101112131415161718191a1b1c1d1e1f20212223"},
		{"1011289h858m2sc1i6gr3gehs7p044h27", NULL}, /* a bit is left over */
		{"1011289h858m2sc1i6gr3gehs7p044h2", NULL},
		{"1011289h858m2sc1i6gr3gehs7p044h260", NULL},
		{"1011289h858m2sc1i6gr3gehs7p044hw6", NULL},
		{"10g1289h858m2sc1i6gr3gehs7p044h26", NULL},
		{"", NULL},
		{"ac", NULL},
		{"ac/" HEX40, NULL},
		{"ac/" SHA, NULL}, /* not the key once more */
		{"012/3456789abcdef0123456789abcdef01234567", NULL},
		{"01/" HEX40, NULL},
		{"01/23/456789abcdef0123456789abcdef01234567", NULL},
		{"0123456789ABCDEF0123456789abcdef01234567", NULL},
		{"..", NULL},
		{HEX40 "/", NULL},
		{HEX40 "x", NULL},
	};

	check(artifact_ccache_name, rows, COUNT(rows));
}

static void bazel_keys(void **state UNUSED)
{
	static const struct row rows[] = {
		{"ac/" SHA, "ac/" SHA},
		{"cas/" SHA, "cas/" SHA},
		{"main/ac/" SHA, "ac/main/" SHA},
		{"a/b c/ac/" SHA, "ac/a/b c/" SHA},
		{"main/cas/" SHA, "cas/" SHA},
		{"ac/" HEX40, NULL},
		{"ac/" SHA "/", NULL},
		{"/ac/" SHA, NULL},
		{"a//ac/" SHA, NULL},
		{"../ac/" SHA, NULL},
		{"blobs/" SHA, NULL},
		{SHA, NULL},
		{"", NULL},
		{"cas/E3B0C44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", NULL},
	};
	struct digest none = hash_sha256("", 0);
	struct artifact_name name;
	struct err err = {0};

	check(artifact_bazel_name, rows, COUNT(rows));
	assert_ok(artifact_bazel_name(str_of("x/cas/" SHA), &name, &err), &err);
	assert_true(name.kind == ARTIFACT_CONTENT && digest_same(&name.sha256, &none));
}

static void file_paths(void **state UNUSED)
{
	static const struct row rows[] = {
		{".sccache_check", "file/.sccache_check"},
		{"a/b/c/abc", "file/a/b/c/abc"},
		{"\xc3\xa9", "file/\xc3\xa9"},
		{"...", "file/..."},
		{"", NULL},
		{"a/", NULL},
		{"/a", NULL},
		{"a//b", NULL},
		{"a/../b", NULL},
		{"a/.", NULL},
		{"a\nb", NULL},
		{"a\x7f", NULL},
		{"\xc3", NULL},
	};
	char path[ARTIFACT_PATH_MAX + 2];
	struct artifact_name name;
	struct err err = {0};

	check(artifact_file_name, rows, COUNT(rows));
	memset(path, 'x', sizeof(path));
	assert_ok(artifact_file_name(str_n(path, ARTIFACT_PATH_MAX), &name, &err), &err);
	assert_err(artifact_file_name(str_n(path, ARTIFACT_PATH_MAX + 1), &name, &err), &err,
	           ERR_ARTIFACT_KEY, "");
	assert_err(artifact_file_name(str_n("a\0b", 3), &name, &err), &err, ERR_ARTIFACT_KEY, "");
}

/* Who has less than the level loses nothing, and with the others cut to it all fit. */
static void one_level_for_all(void **state UNUSED)
{
	static const struct {
		const char *name;
		uint64_t takes[4];
		size_t n;
		uint64_t fit, level;
	} rows[] = {
		{"nobody", {0}, 0, 0, UINT64_MAX},
		{"they fit", {40, 30, 30}, 3, 100, UINT64_MAX},
		{"one", {101}, 1, 100, 100},
		{"one has most", {10, 200, 20}, 3, 100, 70},
		{"two have most", {90, 10, 80}, 3, 100, 45},
		{"all alike", {50, 50, 50, 50}, 4, 100, 25},
		{"nothing fits", {1, 2}, 2, 0, 0},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t takes[4], sum = 0;

		memcpy(takes, rows[i].takes, sizeof(takes));
		assert_row(artifact_level(takes, rows[i].n, rows[i].fit) == rows[i].level,
		           rows[i].name);
		for (size_t k = 0; k < rows[i].n; k++)
			sum += MIN(takes[k], rows[i].level);
		assert_row(sum <= rows[i].fit, rows[i].name);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(one_level_for_all),
	cmocka_unit_test(ccache_keys),
	cmocka_unit_test(bazel_keys),
	cmocka_unit_test(file_paths),
};
UNIT_MAIN(tests)
