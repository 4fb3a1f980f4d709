/* test_hub_cache.c - weights as programs of huggingface_hub look for them. */
#include "run/hub_cache.h"

#include "base/fs.h"
#include "core/spec.h"
#include "unit.h"

#define COMMIT "1234567890123456789012345678901234567890"
#define LATER "abcdefabcdefabcdefabcdefabcdefabcdefabcd"

struct place {
	char dir[64];
	struct arena *a;
	int root;
	const char *tree;
};

static const struct ids off; /* jobs run as this user */

static void put_file(struct place *p, const char *path, const char *text)
{
	struct err err = {0};
	char *full = arena_printf(p->a, "%s/%s", p->tree, path), *slash = strrchr(full, '/');

	*slash = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, full, 0755, &err), &err);
	*slash = '/';
	assert_ok(fs_write_atomic(AT_FDCWD, full, str_of(text), 0644, &err), &err);
}

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};

	FMT(p->dir, "/tmp/test_hub_cache.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->a = arena_new();
	p->tree = arena_printf(p->a, "%s/tree", p->dir);
	assert_ok(fs_mkdirs(AT_FDCWD, arena_printf(p->a, "%s/hub", p->dir), 0755, &err), &err);
	p->root = fs_open_dir(arena_printf(p->a, "%s/hub", p->dir), &err);
	assert_true(p->root >= 0);
	put_file(p, "config.json", "{}");
	put_file(p, ".gitattributes", "hidden");
	put_file(p, "a/b/deep.bin", "deep");
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	(void)close(p->root);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	arena_free(p->a);
	free(p);
	return 0;
}

static const char *link_at(struct place *p, const char *path)
{
	char to[FS_PATH_MAX] = "";
	ssize_t n = readlinkat(p->root, path, to, sizeof(to) - 1);

	assert_true(n > 0);
	return arena_cstr(p->a, to);
}

static const char *text_at(struct place *p, const char *path)
{
	AUTO_BUF struct buf out = BUF_INIT(1000);
	struct err err = {0};

	assert_ok(fs_read(p->root, path, &out, &err), &err);
	return arena_cstr(p->a, buf_cstr(&out));
}

static struct wire_launch launch_of(struct place *p, const char *source, const char *revision)
{
	struct wire_weights *w = ARENA_ARRAY(p->a, struct wire_weights, 2);

	w[0] = (struct wire_weights){.source = "file:///x", .mount_location = "/x"};
	w[1] = (struct wire_weights){.source = source,
	                             .revision = revision,
	                             .mount_location = SPEC_HUB_PLACE,
	                             .hub = true};
	return (struct wire_launch){.weights = w, .n_weights = 2};
}

static void is_as_clients_look(void **state)
{
	struct place *p = *state;
	struct wire_launch l = launch_of(p, "hf://org/tiny", COMMIT);
	const char *at = NULL;
	struct err err = {0};

	assert_string_equal(hub_cache_of(&l), SPEC_HUB_PLACE);
	l.n_weights = 1;
	assert_null(hub_cache_of(&l));
	l.n_weights = 2;
	assert_ok(hub_cache_place(p->a, &l, 1, &at, &err), &err);
	assert_string_equal(at, "models--org--tiny/weights/1");
	for (unsigned i = 0; i < 2; i++) { /* a stage that is gone on with */
		assert_ok(hub_cache_add(p->root, &off, &l, 1, p->tree, &err), &err);
		assert_string_equal(text_at(p, "models--org--tiny/refs/main"), COMMIT);
		assert_string_equal(
			link_at(p, "models--org--tiny/snapshots/" COMMIT "/config.json"),
			"../../weights/1/config.json");
		assert_string_equal(
			link_at(p, "models--org--tiny/snapshots/" COMMIT "/.gitattributes"),
			"../../weights/1/.gitattributes");
		assert_string_equal(
			link_at(p, "models--org--tiny/snapshots/" COMMIT "/a/b/deep.bin"),
			"../../../../weights/1/a/b/deep.bin");
	}
}

static void names_every_kind(void **state)
{
	static const struct {
		const char *source, *repo, *ref; /* ref NULL: none is there */
	} rows[] = {
		{"hf://datasets/org/texts@refs/pr/1", "datasets--org--texts", "refs/refs/pr/1"},
		{"hf://spaces/org/app@v1.0", "spaces--org--app", "refs/v1.0"},
		{"hf://org/model@feature%2Fx", "models--org--model", "refs/feature/x"},
		{"hf://org/pinned@" COMMIT, "models--org--pinned", NULL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct place *p = *state;
		struct wire_launch l = launch_of(p, rows[i].source, COMMIT);
		struct err err = {0};

		assert_ok(hub_cache_add(p->root, &off, &l, 1, p->tree, &err), &err);
		assert_int_equal(
			faccessat(p->root,
		                  arena_printf(p->a, "%s/snapshots/" COMMIT "/a/b/deep.bin",
		                               rows[i].repo),
		                  F_OK, AT_SYMLINK_NOFOLLOW),
			0);
		if (rows[i].ref != NULL)
			assert_string_equal(
				text_at(p, arena_printf(p->a, "%s/%s", rows[i].repo, rows[i].ref)),
				COMMIT);
		else
			assert_int_not_equal(faccessat(p->root,
			                               arena_printf(p->a, "%s/refs", rows[i].repo),
			                               F_OK, 0),
			                     0);
	}
}

/* A branch that moved between two attempts, or is there twice: the last one counts. */
static void a_ref_moves(void **state)
{
	struct place *p = *state;
	struct wire_launch l = launch_of(p, "hf://org/tiny", COMMIT);
	struct err err = {0};

	assert_ok(hub_cache_add(p->root, &off, &l, 1, p->tree, &err), &err);
	l = launch_of(p, "hf://org/tiny", LATER);
	assert_ok(hub_cache_add(p->root, &off, &l, 1, p->tree, &err), &err);
	assert_string_equal(text_at(p, "models--org--tiny/refs/main"), LATER);
	assert_string_equal(link_at(p, "models--org--tiny/snapshots/" COMMIT "/config.json"),
	                    "../../weights/1/config.json");
}

static void refuses_what_leads_out(void **state)
{
	static const struct {
		const char *source, *revision;
	} bad[] = {
		{"hf://org/tiny@..%2F..%2Fx", COMMIT},
		{"hf://org/tiny@a%2F%2Fb", COMMIT},
		{"hf://org/tiny@%2Fetc", COMMIT},
		{"hf://org/tiny", "main"},
		{"hf://org/tiny", "../../x"},
		{"hf://org/tiny/folder", COMMIT},
		{"hf://gpt2", COMMIT},
		{"s3://bucket/x", COMMIT},
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct place *p = *state;
		struct wire_launch l = launch_of(p, bad[i].source, bad[i].revision);
		const char *at = NULL;
		struct err err = {0};

		assert_row(hub_cache_place(p->a, &l, 1, &at, &err) < 0, bad[i].source);
		assert_int_equal(err.code, ERR_INVALID);
		err_clear(&err);
		assert_row(hub_cache_add(p->root, &off, &l, 1, p->tree, &err) < 0, bad[i].source);
	}
}

/* What a job of an attempt before may have put there leads nowhere. */
static void follows_no_link(void **state)
{
	struct place *p = *state;
	struct wire_launch l = launch_of(p, "hf://org/tiny", COMMIT);
	struct err err = {0};

	assert_int_equal(symlinkat(p->dir, p->root, "models--org--tiny"), 0);
	assert_int_equal(hub_cache_add(p->root, &off, &l, 1, p->tree, &err), -1);
	assert_int_equal(err.id, ERR_MOUNT_REFUSED);
	assert_int_not_equal(access(arena_printf(p->a, "%s/snapshots", p->dir), F_OK), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(is_as_clients_look, set_up, tear_down),
	cmocka_unit_test_setup_teardown(names_every_kind, set_up, tear_down),
	cmocka_unit_test_setup_teardown(a_ref_moves, set_up, tear_down),
	cmocka_unit_test_setup_teardown(refuses_what_leads_out, set_up, tear_down),
	cmocka_unit_test_setup_teardown(follows_no_link, set_up, tear_down),
};
UNIT_MAIN(tests)
