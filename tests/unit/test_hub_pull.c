/* test_hub_pull.c - what a pull request changes, and what merging it makes. */
#include "core/hub_pull.h"

#include "unit.h"

/* "a=1 b/c=2": files, and what is in them; "a=!1" is a large one. */
static struct hub_listing listing(struct arena *a, const char *text)
{
	struct hub_listing l = {.id = "a/b", .commit = "", .about = "{}"};
	struct str rest = str_of(text), word;
	struct err err = {0};

	l.file = ARENA_ARRAY(a, struct hub_file, strlen(text) + 1);
	while (str_cut(&rest, ' ', &word)) {
		const char *eq = memchr(word.p, '=', word.n);
		struct hub_file *f = &l.file[l.n++];
		struct str content = str_skip(word, (size_t)(eq - word.p) + 1);

		f->path = arena_strz(a, str_n(word.p, (size_t)(eq - word.p)));
		f->lfs = str_starts(content, "!");
		f->size = content.n;
		if (f->lfs)
			f->sha256 = hash_sha256(content.p, content.n);
		else
			hub_blob_id(content, f->oid);
	}
	assert_ok(hub_listing_finish(&l, a, &err), &err);
	return l;
}

static const struct {
	const char *base, *ours, *theirs;
	const char *want;      /* path and side, or */
	const char *conflicts; /* paths */
} merges[] = {
	{"", "", "", "", ""},
	{"", "a=1", "", "a<", ""},
	{"", "", "a=1", "a>", ""},
	{"a=1", "a=1", "a=1", "a<", ""},
	{"a=1", "a=1", "a=2", "a>", ""},
	{"a=1", "a=2", "a=1", "a<", ""},
	{"a=1", "a=2", "a=2", "a<", ""},
	{"a=1", "a=2", "a=3", "", "a"},
	{"a=1", "", "a=1", "", ""},
	{"a=1", "a=1", "", "", ""},
	{"a=1", "", "", "", ""},
	{"a=1", "", "a=2", "", "a"},
	{"a=1", "a=2", "", "", "a"},
	{"", "a=1", "a=2", "", "a"},
	{"", "a=1", "a=1", "a<", ""},
	{"w=!1", "w=!1", "w=!2", "w>", ""},
	{"w=!1", "w=!3", "w=!2", "", "w"},
	{"", "w=x", "w=!x", "", "w"},
	{"a=1 b=1", "a=2 b=1", "a=1 b=2 c=1", "a< b> c>", ""},
	{"", "d=1", "d/x=1", "d< d/x>", "d/x"},
	{"", "d-=1 d/e/x=1", "d/e=1 z=1", "d-< d/e> d/e/x< z>", "d/e/x"},
	{"d=1", "d=1", "d/x=1", "d/x>", ""},
	{"a=1 m=1 z=1", "a=2 m=2 z=1", "a=3 m=3 z=2", "z>", "a m"},
};

static void merges_by_path(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(merges); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_BUF struct buf got = BUF_INIT(1000), lost = BUF_INIT(1000);
		struct hub_listing base = listing(a, merges[i].base);
		struct hub_listing ours = listing(a, merges[i].ours);
		struct hub_listing theirs = listing(a, merges[i].theirs);
		struct hub_merge m;

		hub_merge(a, &base, &ours, &theirs, &m);
		for (size_t k = 0; k < m.n; k++)
			buf_printf(&got, "%s%s%c", k > 0 ? " " : "", m.file[k].f->path,
			           m.file[k].theirs ? '>' : '<');
		for (size_t k = 0; k < m.n_conflicts; k++)
			buf_printf(&lost, "%s%s", k > 0 ? " " : "", m.conflict[k]);
		if (strcmp(buf_cstr(&got), merges[i].want) != 0 ||
		    strcmp(buf_cstr(&lost), merges[i].conflicts) != 0)
			fail_msg("row %zu: \"%s\", conflicts \"%s\"", i, buf_cstr(&got),
			         buf_cstr(&lost));
	}
}

static void changes_by_path(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_listing before = listing(a, "a=1 b=1 c=1"), after = listing(a, "a=1 b=2 d=1");
	struct hub_change *c = NULL;
	size_t n = 0;

	hub_changes(a, &before, &after, 9, &c, &n);
	assert_int_equal(n, 3);
	assert_string_equal(c[0].after->path, "b");
	assert_string_equal(c[1].before->path, "c");
	assert_null(c[1].after);
	assert_null(c[2].before);
	hub_changes(a, &before, &after, 2, &c, &n);
	assert_int_equal(n, 2);
}

static void statuses_have_words(void **state UNUSED)
{
	enum model_pull_status s = PULL_DRAFT;

	assert_string_equal(hub_pull_word(PULL_MERGED), "merged");
	assert_true(hub_pull_status("closed", &s) && s == PULL_CLOSED);
	assert_false(hub_pull_status("", &s));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(merges_by_path),
	cmocka_unit_test(changes_by_path),
	cmocka_unit_test(statuses_have_words),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
