/* test_scope.c - who gets a scope of systemd, and that a wrapped command is still that command. */
#include "engine/scope.h"

#include "base/buf.h"
#include "io/proc.h"
#include "unit.h"

static const struct {
	const char *name;
	struct scope_facts facts;
	enum scope_kind kind;
} choices[] = {
	{"no systemd", {.root = true, .lingers = true, .inside = true}, SCOPE_NONE},
	{"a login that ends takes its manager along", {.systemd = true}, SCOPE_NONE},
	{"root", {.systemd = true, .root = true}, SCOPE_SYSTEM},
	{"a user who lingers", {.systemd = true, .lingers = true}, SCOPE_USER},
	{"below the user's manager", {.systemd = true, .inside = true}, SCOPE_USER},
};

static void chooses(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(choices); i++)
		assert_row(scope_choose(&choices[i].facts) == choices[i].kind, choices[i].name);
}

/* Whatever this machine has: the words arrive as they were, and the pid is the one we started. */
static void becomes_the_command(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *const argv[] = {"sh", "-c", "printf '%s|' \"$0\" \"$@\"", "a b", "",
	                            "$c", NULL};
	AUTO_BUF struct buf out = BUF_INIT(4096);
	const char *const *wrapped = scope_wrap(a, argv);
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(wrapped, (struct str){0}, 60000, &out, &code, &err), &err);
	assert_int_equal(code, 0);
	assert_string_equal(buf_cstr(&out), "a b||$c|");
	if (wrapped != argv)
		assert_string_equal(wrapped[0], geteuid() == 0 ? "systemd-run" : "env");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(chooses),
	cmocka_unit_test(becomes_the_command),
};
UNIT_MAIN(tests)
