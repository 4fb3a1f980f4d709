/* test_ignore.c - ignore files, as a table. What git says of each row was asked of git. */
#include "core/ignore.h"

#include "unit.h"

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
	{"a\\\\\n", "a\\", false, true},
	{"a\\\n", "a\\", false, false},
	{"a\t\n", "a", false, false},
	{"a\\  \n", "a ", false, true},
	{" #a\n", " #a", false, true},
	{"\xef\xbb\xbf*.o\n", "a.o", false, true},
	{"*.[!o]\n", "a.c", false, true},
	{"*.[^o]\n", "a.o", false, false},
	{"[]-]x\n", "]x", false, true},
	{"[a-]x\n", "-x", false, true},
	{"[a\\]b]x\n", "]x", false, true},
	{"[a-\\c]x\n", "bx", false, true},
	{"[[:digit:]_]x\n", "7x", false, true},
	{"[[:digit:]_]x\n", "_x", false, true},
	{"[[:nothing:]a]x\n", "ax", false, false},
	{"[[:a]x\n", ":x", false, true},
	{"a[b\n", "a[b", false, false},
	{"d/[!a]b\n", "d/b", false, false},
	{"d[!a]b\n", "d/b", false, false},
	{"a?b/c\n", "a/b/c", false, false},
	{"?.x\n", "\u00fc.x", false, true},
	{"a**b/c\n", "axyb/c", false, true},
	{"a**/c\n", "a/x/c", false, false},
	{"**\n", "a/b", false, true},
	{"a/**/b/**/c\n", "a/x/b/y/z/c", false, true},
	{"a/**/b*d/c\n", "a/bx/c/bxd/c", false, true},
	{"/*\n!/keep\n", "keep/a", false, false},
	{"/*\n!/keep\n", "other/a", false, true},
	{"*\n!*/\n!*.c\n", "a/b/x.c", false, false},
	{"*\n!*/\n!*.c\n", "a/b/x.o", false, true},
	{"foo//bar\n", "foo/bar", false, false},
};

static void ignore_files(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(ignores); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct ignore *ig = ignore_parse(a, str_of(ignores[i].text));

		if (ignore_match(ig, ignores[i].path, ignores[i].dir, NULL) != ignores[i].want)
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
	assert_true(
		ignore_match(ignore_parse(a, str_of(ignore_always)), ".git/config", false, NULL));
	assert_true(ignore_match(ig, "pkg/__pycache__/x.pyc", false, NULL));
	assert_false(ignore_match(ig, "lib/model.py", false, NULL));
	assert_false(ignore_match(ig, "build/x.py", false, NULL));
	assert_false(ignore_match(ig, "train.py", false, NULL));
}

/* Patterns that a matcher which tries everything never ends with. */
static void hostile_patterns_end(void **state UNUSED)
{
	static const char *const stars[] = {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
	                                    "**/a/**/a/**/a/**/a/**/b",
	                                    "a/**/*a*a*a*a*a*a/**/**/b"};
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf path = BUF_INIT(8000);

	for (size_t i = 0; i < 1000; i++)
		buf_puts(&path, "a/aaa");
	for (size_t i = 0; i < COUNT(stars); i++) {
		struct ignore *ig = ignore_parse(a, str_of(stars[i]));
		uint64_t work = 500000000;

		assert_false(ignore_match(ig, buf_cstr(&path), false, &work));
		assert_true(work > 0);
	}
}

static void work_is_bounded(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ignore *ig = ignore_parse(a, STR_LIT("*.a\n*.b\n*.c\n"));
	uint64_t work = 1000;

	assert_true(ignore_match(ig, "x/y.a", false, &work));
	assert_in_range(work, 900, 999);
	work = 5;
	(void)ignore_match(ig, "x/y.a", false, &work);
	assert_int_equal(work, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ignore_files),
	cmocka_unit_test(ignore_builtin_keeps_code),
	cmocka_unit_test(hostile_patterns_end),
	cmocka_unit_test(work_is_bounded),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
