/* test_hub.c - repositories: git's ids of what they list, names, and what is refused. */
#include "unit.h"

#include "core/hub.h"

/* The ids are git's own: of `git mktree`, with the pointer of big.bin as a blob. */
#define EMPTY "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
#define HELLO "ce013625030ba8dba906f756967f9e9ca394464a" /* "hello\n" */
#define POINTER_OID "fa61e1ef71c9908c0926776a4aa3504b3a27f159"
#define DEEP_TREE "115fd50c43d0333359b032f66e83b5bb522887d0"
#define A_TREE "c61d7f73a9af43215ba957df71f6bbb70389bcf6"

static struct hub_file regular(const char *path, uint64_t size, const char *oid)
{
	struct hub_file f = {.path = path, .size = size};
	struct err err = {0};

	assert_ok(hex_decode(str_of(oid), f.oid, sizeof(f.oid), &err), &err);
	return f;
}

static struct hub_file large(const char *path, const char *content)
{
	return (struct hub_file){.path = path,
	                         .size = strlen(content),
	                         .lfs = true,
	                         .sha256 = hash_sha256(content, strlen(content))};
}

static void assert_oid(const uint8_t oid[HUB_OID_LEN], const char *want)
{
	char hex[2 * HUB_OID_LEN + 1];

	hex_encode(oid, HUB_OID_LEN, hex);
	assert_string_equal(hex, want);
}

static struct hub_listing listing_of(struct hub_file *f, size_t n)
{
	return (struct hub_listing){.type = HUB_DATASETS,
	                            .id = "me/data",
	                            .commit = "0123456789012345678901234567890123456789",
	                            .about = "{\"tags\":[\"a\"]}",
	                            .file = f,
	                            .n = n};
}

static void ids_are_gits(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_file f[] = {regular("a/c", 6, HELLO), regular("a.b", 0, EMPTY),
	                       large("a/deep/big.bin", "hello\n"), regular("a0", 6, HELLO)};
	struct hub_listing l = listing_of(f, COUNT(f));
	struct err err = {0};

	assert_ok(hub_listing_finish(&l, a, &err), &err);
	assert_int_equal(l.bytes, 18);
	assert_string_equal(l.file[0].path, "a.b");
	assert_int_equal(l.n_folders, 2);
	assert_string_equal(l.folder[0].path, "a");
	assert_oid(hub_listing_file(&l, STR_LIT("a/deep/big.bin"))->oid, POINTER_OID);
	assert_oid(hub_listing_folder(&l, STR_LIT("a/deep"))->oid, DEEP_TREE);
	assert_oid(hub_listing_folder(&l, STR_LIT("a"))->oid, A_TREE);
	assert_null(hub_listing_file(&l, STR_LIT("a")));
	assert_null(hub_listing_file(&l, STR_LIT("a/deep/big.bi")));
	assert_null(hub_listing_folder(&l, STR_LIT("a/dee")));
}

static void written_is_read_again(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf one = BUF_INIT(HUB_LISTING_MAX), two = BUF_INIT(HUB_LISTING_MAX);
	struct hub_file f[] = {regular("z", 6, HELLO), large("big \xc3\xa9+\"x", "abc")};
	struct hub_listing l = listing_of(f, COUNT(f)), back;
	struct err err = {0};

	assert_ok(hub_listing_finish(&l, a, &err), &err);
	hub_listing_write(&l, &one);
	assert_ok(hub_listing_read(a, buf_view(&one), &back, &err), &err);
	hub_listing_write(&back, &two);
	assert_string_equal(buf_cstr(&one), buf_cstr(&two));
	assert_string_equal(back.about, l.about);
	assert_int_equal(back.type, HUB_DATASETS);
	assert_true(hub_listing_file(&back, STR_LIT("big \xc3\xa9+\"x"))->lfs);
}

/* A listing in memory takes no more than what it says: one of many commits of a large repository.
 */
static void takes_little_memory(void **state UNUSED)
{
	enum { N = 5000 };
	AUTO_ARENA struct arena *a = arena_new(), *back = arena_new();
	AUTO_BUF struct buf json = BUF_INIT(HUB_LISTING_MAX);
	struct hub_file *f = ARENA_ARRAY(a, struct hub_file, N);
	struct hub_listing l, read;
	struct err err = {0};

	for (size_t i = 0; i < N; i++)
		f[i] = regular(arena_printf(a, "folder-%zu/file-%zu", i / 100, i), i, HELLO);
	l = listing_of(f, N);
	assert_ok(hub_listing_finish(&l, a, &err), &err);
	hub_listing_write(&l, &json);
	assert_ok(hub_listing_read(back, buf_view(&json), &read, &err), &err);
	assert_in_range(arena_bytes(back), N * sizeof(*f), 3 * json.n);
}

static void refuses_what_is_no_tree(void **state UNUSED)
{
	static const struct {
		const char *one, *two, *words;
	} bad[] = {
		{"a", "a", "listed twice"},
		{"a", "a/b", "a file and a folder"},
		{"a/b", "a/b/c/d", "a file and a folder"},
		{"../a", "b", "no plain path"},
		{"/a", "b", "no plain path"},
		{"a\nb", "b", "no plain path"},
		{"", "b", "no plain path"},
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct hub_file f[] = {regular(bad[i].one, 0, EMPTY),
		                       regular(bad[i].two, 0, EMPTY)};
		struct hub_listing l = listing_of(f, COUNT(f));
		struct err err = {0};

		assert_int_equal(hub_listing_finish(&l, a, &err), -1);
		if (strstr(err.msg, bad[i].words) == NULL)
			fail_msg("row \"%s\": %s", bad[i].one, err.msg);
	}
}

static void knows_names(void **state UNUSED)
{
	static const struct {
		const char *id;
		bool ok;
	} ids[] = {
		{"gpt2", true},    {"Qwen/Qwen3-0.6B", true},
		{"a_/b.c", true},  {"", false},
		{"/a", false},     {"a/", false},
		{"a/b/c", false},  {"a/b.git", false},
		{"a--b/c", false}, {"a/..", false},
		{".a/b", false},   {"a/b-", false},
		{"a/b c", false},  {"a/\xc3\xa9", false},
	};

	for (size_t i = 0; i < COUNT(ids); i++)
		assert_row(hub_id_ok(str_of(ids[i].id)) == ids[i].ok, ids[i].id);
	assert_true(hub_rev_ok(STR_LIT("refs/pr/1")) && !hub_rev_ok(STR_LIT("a\nb")));
	assert_true(hub_commit_ok(str_of(HELLO)) && !hub_commit_ok(STR_LIT("ce0136250")));
}

static void knows_typed_names(void **state UNUSED)
{
	static const struct {
		const char *text;
		enum hub_type type;
		const char *id; /* NULL: it is none */
	} rows[] = {
		{"a/b", HUB_MODELS, "a/b"},
		{"b", HUB_MODELS, "b"},
		{"datasets/a/b", HUB_DATASETS, "a/b"},
		{"datasets/b", HUB_DATASETS, "b"},
		{"spaces/a/b", HUB_SPACES, "a/b"},
		{"models/a/b", HUB_MODELS, "a/b"},
		{"datasets", HUB_MODELS, "datasets"},
		{"", HUB_MODELS, NULL},
		{"datasets/", HUB_MODELS, NULL},
		{"kernels/a/b", HUB_MODELS, NULL},
		{"a/b/c", HUB_MODELS, NULL},
		{"datasets/a/b/c", HUB_MODELS, NULL},
		{"a/..", HUB_MODELS, NULL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		enum hub_type type = HUB_SPACES;
		struct str id = {0};
		bool ok = hub_typed_id(str_of(rows[i].text), &type, &id);

		assert_row(ok == (rows[i].id != NULL), rows[i].text);
		assert_row(!ok || (type == rows[i].type && str_eq(id, rows[i].id)), rows[i].text);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ids_are_gits),        cmocka_unit_test(written_is_read_again),
	cmocka_unit_test(takes_little_memory), cmocka_unit_test(refuses_what_is_no_tree),
	cmocka_unit_test(knows_names),         cmocka_unit_test(knows_typed_names),
};
UNIT_MAIN(tests)
