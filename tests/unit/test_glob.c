/* test_glob.c - patterns of both dialects, as tables. */
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(glob_checks),
	cmocka_unit_test(glob_matches),
	cmocka_unit_test(glob_is_bounded),
	cmocka_unit_test(glob_ignore_wins),
};
UNIT_MAIN(tests)
