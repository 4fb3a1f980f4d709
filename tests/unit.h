/* unit.h - cmocka and the few words of ours. */
#ifndef UNIT_H
#define UNIT_H

#include "base/err.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A failure prints the error's own words. */
#define assert_ok(call, e)                                                                         \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s", (e)->msg);                                                  \
	} while (0)

/* The call fails with this class or, better, this id. `words`: what the message names (a file, a
 * value), never its sentence; "" = nothing. Then the error is cleared. */
#define assert_err(call, e, want, words)                                                           \
	do {                                                                                       \
		if ((call) >= 0)                                                                   \
			fail_msg("%s succeeded", #call);                                           \
		if (((e)->code != (want) && (e)->id != (want)) ||                                  \
		    strstr((e)->msg, (words)) == NULL)                                             \
			fail_msg("%s: %s: %s", #call, err_id(e), (e)->msg);                        \
		err_clear(e);                                                                      \
	} while (0)

/* In a table test: say which row. */
#define assert_row(cond, name)                                                                     \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail_msg("row \"%s\": %s", name, #cond);                                   \
	} while (0)

/* Of a folder that is there; hidden ones are not counted. */
static inline size_t dir_names(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		n += e->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

/* Does an assertion end fn(arg)? In a child, which says nothing. */
static inline bool asserts(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL);
		(void)close(STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* One name on the command line runs that test only. */
#define UNIT_MAIN_IN(tests, set_up, tear_down)                                                     \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		if (argc > 1)                                                                      \
			cmocka_set_test_filter(argv[1]);                                           \
		return cmocka_run_group_tests(tests, set_up, tear_down);                           \
	}
#define UNIT_MAIN(tests) UNIT_MAIN_IN(tests, NULL, NULL)

#endif
