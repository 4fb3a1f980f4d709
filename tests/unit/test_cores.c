/* test_cores.c - which cores jobs get, one beside the other. */
#include "run/cores.h"

#include "base/fs.h"
#include "unit.h"

#include <sched.h>

struct place {
	char dir[64];
	int n; /* cores of this process */
};

static int setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	cpu_set_t may;

	FMT(p->dir, "/tmp/test_cores.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	p->n = CPU_COUNT(&may);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	free(p);
	return 0;
}

static void take(struct place *p, const char *attempt, uint32_t milli, struct cores *out)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", p->dir, attempt);
	struct err err = {0};

	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0700, &err), &err);
	cores_take(out, dir, milli, NULL, 0);
}

static void others_get_others(void **state)
{
	struct place *p = *state;
	AUTO_FREE struct cores *a = xcalloc(1, sizeof(*a)), *b = xcalloc(1, sizeof(*b));
	AUTO_FREE char *dir = xasprintf("%s/a", p->dir);

	if (p->n < 2)
		skip();
	take(p, "a", 1000, a);
	take(p, "b", 1000, b);
	assert_int_equal(a->n, 1);
	assert_int_equal(b->n, 1);
	assert_string_not_equal(a->list, b->list);
	cores_release(dir);
	take(p, "c", 500, b); /* a part of one is one, and that of the ended job is free */
	assert_int_equal(b->n, 1);
	assert_string_equal(a->list, b->list);
	take(p, "c", 500, b); /* its own are not somebody else's */
	assert_string_equal(a->list, b->list);
}

static void no_limit_is_all(void **state)
{
	struct place *p = *state;
	AUTO_FREE struct cores *a = xcalloc(1, sizeof(*a));

	take(p, "a", 0, a);
	assert_int_equal(a->n, 0);
	take(p, "b", (uint32_t)p->n * 1000, a);
	assert_int_equal(a->n, 0);
	take(p, "c", UINT32_MAX, a);
	assert_int_equal(a->n, 0);
	assert_string_equal(a->list, "");
}

static void what_is_no_list_is_ignored(void **state)
{
	struct place *p = *state;
	AUTO_FREE struct cores *a = xcalloc(1, sizeof(*a));
	AUTO_FREE char *dir = xasprintf("%s/bad", p->dir),
		       *file = xasprintf("%s/bad/" CORES_FILE, p->dir);
	struct err err = {0};

	if (p->n < 2)
		skip();
	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0700, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, file, STR_LIT("-1,x,,99999999999"), 0600, &err), &err);
	take(p, "a", 1000, a);
	assert_int_equal(a->n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(others_get_others, setup, teardown),
		cmocka_unit_test_setup_teardown(no_limit_is_all, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_list_is_ignored, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
