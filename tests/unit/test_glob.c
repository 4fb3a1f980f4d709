/* test_glob.c - patterns of both dialects and ignore files, as tables. */
#include "unit.h"

#include "core/glob.h"

static const struct {
	const char *pattern, *words; /* NULL: fine */
} checks[] = {
	{"", "empty"},  {"[", "never closed"}, {"a[]", "never closed"},    {"a[!]", "never closed"},
	{"a[]]", NULL}, {"[[]", NULL},         {"**/*.safetensors", NULL},
};

static void glob_checks(void **state UNUSED)
{
	char longest[GLOB_MAX + 1];
	struct err err = {0};

	memset(longest, 'a', sizeof(longest));
	assert_err(glob_check(str_n(longest, sizeof(longest)), &err), &err, ERR_INVALID, "limit");
	assert_err(glob_check(str_n("a\0b", 3), &err), &err, ERR_INVALID, "NUL");
	for (size_t i = 0; i < COUNT(checks); i++) {
		if (checks[i].words == NULL)
			assert_ok(glob_check(str_of(checks[i].pattern), &err), &err);
		else
			assert_err(glob_check(str_of(checks[i].pattern), &err), &err, ERR_INVALID,
			           checks[i].words);
	}
}

static const struct {
	const char *pattern, *path;
	bool own, hub;
} matches[] = {
	{"", "", false, false},
	{"a", "", false, false},
	{"a", "b", false, false},
	{"a", "ab", false, false},
	{"*.json", "config.json", true, true},
	{"*.json", "sub/config.json", false, true},
	{"*", "a/b", false, true},
	{"*/*", "a/b", true, true},
	{"*/*", "a/b/c", false, true},
	{"**", "a/b/c", true, true},
	{"**/*.json", "config.json", true, false},
	{"**/*.json", "a/b/config.json", true, true},
	{"**/*.json", "a/b/config.jsonl", false, false},
	{"a/**", "a/b/c", true, true},
	{"a/**", "ab", false, false},
	{"a/**/c", "a/c", true, false},
	{"a/**/c", "a/x/y/c", true, true},
	{"a/**/c", "a/xc", false, false},
	{"a**c", "a/b/c", true, true},
	{"**/b/**/d", "a/b/c/b/d", true, true},
	{"**/b/*/d", "b/x/y/b/z/d", true, true},
	{"x*y*z", "xayyz", true, true},
	{"x*y*z", "xa/yz", false, true},
	{"?.bin", "1.bin", true, true},
	{"?.bin", "/.bin", false, true},
	{"?", "\xc3\xbc", true, true},
	{"[a-c]x", "bx", true, true},
	{"[a-c]x", "dx", false, false},
	{"[!a-c]x", "dx", true, true},
	{"[!a-c]x", "/x", false, true},
	{"[]]", "]", true, true},
	{"[a-]", "-", true, true},
	{"[\xc3\xa4-\xc3\xbc]", "\xc3\xb6", true, true},
	{"a[b", "a[b", true, true},
	{".*", ".git", true, true},
	{"*", ".git", true, true},
	{"data/", "data/x/y", true, true},
	{"data/", "data", false, false},
	{"data/", "database", false, false},
	{"\\*", "*", false, false},
};

static void glob_matches(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(matches); i++) {
		if (glob_match(str_of(matches[i].pattern), str_of(matches[i].path)) !=
		            matches[i].own ||
		    glob_match_hub(str_of(matches[i].pattern), str_of(matches[i].path)) !=
		            matches[i].hub)
			fail_msg("\"%s\" on \"%s\"", matches[i].pattern, matches[i].path);
	}
}

/* What needs too much work ends, and does not match. */
static void glob_is_bounded(void **state UNUSED)
{
	AUTO_BUF struct buf pattern = BUF_INIT(GLOB_MAX), path = BUF_INIT(4096);

	while (pattern.n + 4 < GLOB_MAX)
		buf_puts(&pattern, "**a");
	while (path.n + 1 < 4096)
		buf_putc(&path, 'a');
	buf_putc(&path, 'b');
	assert_false(glob_match(buf_view(&pattern), buf_view(&path)));
	buf_clear(&pattern);
	while (pattern.n + 3 < GLOB_MAX)
		buf_puts(&pattern, "*a");
	assert_false(glob_match_hub(buf_view(&pattern), buf_view(&path)));
}

static void glob_ignore_wins(void **state UNUSED)
{
	static const char *const allow[] = {"*.json", "sub/**"}, *const ignore[] = {"**/secret*"};
	struct glob_filter f = {.allow = allow, .n_allow = 2, .ignore = ignore, .n_ignore = 1};
	struct glob_filter none = {0};

	assert_true(glob_wanted(&none, STR_LIT("anything")));
	assert_true(glob_wanted(&f, STR_LIT("a.json")));
	assert_true(glob_wanted(&f, STR_LIT("sub/a/b")));
	assert_false(glob_wanted(&f, STR_LIT("a.bin")));
	assert_false(glob_wanted(&f, STR_LIT("secret.json")));
	assert_false(glob_wanted(&f, STR_LIT("sub/secrets")));
	f.n_allow = 0;
	assert_true(glob_wanted(&f, STR_LIT("a.bin")));
}

static const struct {
	const char *text, *path;
	bool dir, want;
} ignores[] = {
	{"", "a", false, false},
	{"# a\n\n  \n", "a", false, false},
	{"*.pyc\n", "a/b/c.pyc", false, true},
	{"*.pyc\r\n", "c.pyc", false, true},
	{"*.pyc", "c.py", false, false},
	{"build/\n", "build", true, true},
	{"build/\n", "build", false, false},
	{"build/\n", "src/build/x.o", false, true},
	{"/build\n", "src/build", true, false},
	{"/build\n", "build", false, true},
	{"src/*.o\n", "src/a.o", false, true},
	{"src/*.o\n", "src/x/a.o", false, false},
	{"src/*.o\n", "lib/src/a.o", false, false},
	{"**/tmp\n", "a/b/tmp", false, true},
	{"a/**/b\n", "a/b", false, true},
	{"logs/**\n", "logs/x/y", false, true},
	{"logs/**\n", "logs", true, false},
	{"*.log\n!keep.log\n", "keep.log", false, false},
	{"*.log\n!keep.log\n", "other.log", false, true},
	{"!keep.log\n*.log\n", "keep.log", false, true},
	{"out/\n!out/keep\n", "out/keep", false, true},
	{"\\#a\n", "#a", false, true},
	{"\\!a\n", "!a", false, true},
	{"a\\*b\n", "a*b", false, true},
	{"a\\*b\n", "axb", false, false},
	{"a\\ \n", "a ", false, true},
	{"a \n", "a", false, true},
	{"!\n/\n!/\n", "a", false, false},
};

static void ignore_files(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(ignores); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct ignore *ig = ignore_parse(a, str_of(ignores[i].text));

		if (ignore_match(ig, ignores[i].path, ignores[i].dir) != ignores[i].want)
			fail_msg("row %zu: \"%s\" on \"%s\"", i, ignores[i].text, ignores[i].path);
	}
}

static void ignore_builtin_keeps_code(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ignore *ig = ignore_parse(a, str_of(ignore_builtin));

	assert_int_equal(ignore_says(ig, "lib/model.py", false), IGNORE_SILENT);
	assert_int_equal(ignore_says(ig, "", true), IGNORE_SILENT);
	assert_int_equal(ignore_says(ig, "__pycache__", true), IGNORE_OUT);
	assert_int_equal(ignore_says(ignore_parse(a, STR_LIT("*.py\n!a.py\n")), "d/a.py", false),
	                 IGNORE_IN);
	assert_true(ignore_match(ignore_parse(a, str_of(ignore_always)), ".git/config", false));
	assert_true(ignore_match(ig, "pkg/__pycache__/x.pyc", false));
	assert_false(ignore_match(ig, "lib/model.py", false));
	assert_false(ignore_match(ig, "build/x.py", false));
	assert_false(ignore_match(ig, "train.py", false));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(glob_checks),     cmocka_unit_test(glob_matches),
	cmocka_unit_test(glob_is_bounded), cmocka_unit_test(glob_ignore_wins),
	cmocka_unit_test(ignore_files),    cmocka_unit_test(ignore_builtin_keeps_code),
};
UNIT_MAIN(tests)
