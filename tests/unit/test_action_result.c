/* test_action_result.c - results of actions, and what is none. */
#include "core/action_result.h"

#include "unit.h"

#define MESSAGE_MAX ((size_t)1 << 16)

/* ---- written, as protocol buffers are ------------------------------------------------------- */

static void varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_putc(b, (char)(v | 0x80));
	buf_putc(b, (char)v);
}

static void number(struct buf *b, uint64_t field, uint64_t v)
{
	varint(b, field << 3);
	varint(b, v);
}

static void bytes(struct buf *b, uint64_t field, struct str s)
{
	varint(b, field << 3 | 2);
	varint(b, s.n);
	buf_str(b, s);
}

/* Of a content that is its own name. */
static void digest(struct buf *b, uint64_t field, const char *content, uint64_t size)
{
	AUTO_BUF struct buf m = BUF_INIT(MESSAGE_MAX);
	struct digest d = hash_sha256(content, strlen(content));
	char hex[HASH_HEX_CAP];

	digest_hex(&d, hex);
	bytes(&m, 1, str_of(hex));
	number(&m, 2, size);
	bytes(b, field, buf_view(&m));
}

static void output_file(struct buf *b, const char *path, const char *content, uint64_t size)
{
	AUTO_BUF struct buf m = BUF_INIT(MESSAGE_MAX);

	bytes(&m, 1, str_of(path));
	digest(&m, 2, content, size);
	number(&m, 4, 1);
	bytes(b, 2, buf_view(&m));
}

static void output_folder(struct buf *b, const char *path, const char *tree)
{
	AUTO_BUF struct buf m = BUF_INIT(MESSAGE_MAX);

	bytes(&m, 1, str_of(path));
	digest(&m, 3, tree, 5);
	bytes(b, 3, buf_view(&m));
}

/* ---- read ------------------------------------------------------------------------------------ */

static bool names(const struct action_content *c, size_t n, const char *content)
{
	struct digest d = hash_sha256(content, strlen(content));

	for (size_t i = 0; i < n; i++)
		if (digest_same(&c[i].sha256, &d))
			return true;
	return false;
}

static void results_name_content(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT(MESSAGE_MAX);
	AUTO_BUF struct buf inlined = BUF_INIT(MESSAGE_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct action_result r;
	struct err err = {0};

	output_file(&b, "bin/x", "one", 7);
	output_file(&b, "bin/empty", "", 0);
	output_file(&b, "bin/lies", "four", 0); /* content is empty by its hash, not by a size */
	output_folder(&b, "gen", "tree");
	bytes(&inlined, 1, str_of("bin/y"));
	bytes(&inlined, 5, str_of("its content"));
	bytes(&b, 2, buf_view(&inlined));
	number(&b, 4, 3);
	bytes(&b, 5, str_of("stdout_raw"));
	digest(&b, 6, "out", 4);
	digest(&b, 8, "errors", 2);
	bytes(&b, 9, STR_LIT("\x0a\x01w")); /* who has run it */
	number(&b, 77, 1);                  /* of a newer API */
	assert_ok(action_result_read(a, buf_view(&b), &r, &err), &err);
	assert_int_equal(r.n, 5);
	assert_int_equal(r.n_trees, 1);
	assert_true(names(r.content, r.n, "one") && names(r.content, r.n, "tree") &&
	            names(r.content, r.n, "out") && names(r.content, r.n, "errors") &&
	            names(r.content, r.n, "four"));
	assert_true(names(r.tree, 1, "tree"));
	assert_int_equal(r.content[0].bytes, 7);

	/* cut short anywhere it is none, or a shorter one, and nothing is read beyond its end */
	for (size_t n = 0; n < b.n; n++) {
		AUTO_FREE char *copy = xmalloc(n + 1);

		memcpy(copy, b.p, n);
		if (action_result_read(a, str_n(copy, n), &r, &err) < 0)
			err_clear(&err);
	}
}

static void many_outputs(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)4 << 20);
	AUTO_ARENA struct arena *a = arena_new();
	struct action_result r;
	struct err err = {0};

	for (int i = 0; i < 5000; i++) {
		char name[32];

		FMT(name, "file %d", i);
		output_file(&b, name, name, 1);
	}
	assert_ok(action_result_read(a, buf_view(&b), &r, &err), &err);
	assert_int_equal(r.n, 5000);
	assert_true(names(r.content, r.n, "file 4999") && names(r.content, 1, "file 0"));
}

static void trees_name_files(void **state UNUSED)
{
	AUTO_BUF struct buf file = BUF_INIT(MESSAGE_MAX);
	AUTO_BUF struct buf folder = BUF_INIT(MESSAGE_MAX);
	AUTO_BUF struct buf b = BUF_INIT(MESSAGE_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct action_result r;
	struct err err = {0};

	assert_ok(action_tree_read(a, (struct str){0}, &r, &err), &err);
	assert_int_equal(r.n, 0);
	bytes(&file, 1, str_of("a"));
	digest(&file, 2, "one", 3);
	bytes(&folder, 1, buf_view(&file));
	bytes(&b, 1, buf_view(&folder));
	buf_clear(&file);
	bytes(&file, 1, str_of("b"));
	digest(&file, 2, "two", 3);
	buf_clear(&folder);
	bytes(&folder, 1, buf_view(&file));
	bytes(&folder, 2, str_of("")); /* a folder in it */
	bytes(&b, 2, buf_view(&folder));
	assert_ok(action_tree_read(a, buf_view(&b), &r, &err), &err);
	assert_int_equal(r.n, 2);
	assert_true(names(r.content, r.n, "one") && names(r.content, r.n, "two"));
	number(&b, 2, 1);
	assert_err(action_tree_read(a, buf_view(&b), &r, &err), &err, ERR_INVALID, "Tree");
}

static void what_is_no_result(void **state UNUSED)
{
	static const struct {
		const char *name;
		struct str bytes;
	} rows[] = {
		{"empty", {"", 0}},
		{"text", STR_LIT("hello, world")},
		{"an entry of ccache", STR_LIT("\xcc\xac\x01\x00\x00\x00\x00\x00")},
		{"a field 0", STR_LIT("\x00\x01")},
		{"a group", STR_LIT("\x0b\x0c")},
		{"a varint without end",
	         STR_LIT("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		{"a length beyond the end", STR_LIT("\x12\x7f\x0a")},
		{"a huge length", STR_LIT("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		{"output_files that is a number", STR_LIT("\x10\x01")},
		{"exit_code that is text", STR_LIT("\x22\x01x")},
		{"a file without a digest", STR_LIT("\x12\x03\x0a\x01x")},
		{"a digest without a hash", STR_LIT("\x32\x02\x10\x01")},
		{"a hash that is none", STR_LIT("\x32\x03\x0a\x01x")},
		{"a digest that is a number", STR_LIT("\x30\x01")},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct action_result r;
		struct err err = {0};

		assert_row(action_result_read(a, rows[i].bytes, &r, &err) < 0, rows[i].name);
		assert_row(err.code == ERR_INVALID, rows[i].name);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(results_name_content),
	cmocka_unit_test(many_outputs),
	cmocka_unit_test(trees_name_files),
	cmocka_unit_test(what_is_no_result),
};
UNIT_MAIN(tests)
