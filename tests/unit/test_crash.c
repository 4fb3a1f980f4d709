/* test_crash.c - steps at which a process ends. */
#include "base/crash.h"

#include "unit.h"

/* What a process ends with that comes to steps a, b and c. `set`: NULL, or the step as it is told
 * between a and b. */
static int end_of(const char *environment, const char *set)
{
	int status = -1;
	pid_t pid;

	assert_int_equal(setenv("STOKER_CRASH_AT", environment, 1), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		crash_at("a", 1);
		(void)setenv("STOKER_CRASH_AT", "c", 1); /* too late to be read */
		if (set != NULL)
			crash_set(set);
		crash_at("b", 2);
		crash_at("c", 3);
		_exit(4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)unsetenv("STOKER_CRASH_AT");
	return WEXITSTATUS(status);
}

static void test_steps(void **state)
{
	(void)state;
	assert_int_equal(end_of("a", NULL), 1);
	assert_int_equal(end_of("b", NULL), 2);
	assert_int_equal(end_of("none", NULL), 4);
	assert_int_equal(end_of("b", "c"), 3);
	assert_int_equal(end_of("none", "b"), 2);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_steps),
};

UNIT_MAIN(tests)
