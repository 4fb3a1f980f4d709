/* test_sandbox_exec.c - the program that the runner carries: it runs, and nobody can change it. */
#include "base/fs.h"
#include "io/proc.h"
#include "run/sandbox_exec.h"
#include "run/sandbox_exec_image.h"
#include "unit.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DEADLINE_MS 60000

static int run(const char *const *argv)
{
	struct proc_spec spec = {.argv = argv, .cwd = "/"};
	struct proc p = {0};
	struct err err = {0};
	int status = 0;

	assert_ok(proc_spawn(&spec, &p, &err), &err);
	assert_int_equal(proc_wait(&p, DEADLINE_MS, &status, &err), 0);
	close_fd_p(&p.pidfd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void sandbox_exec_becomes_a_program(void **state UNUSED)
{
	const char *path = sandbox_exec_path();
	const char *becomes[] = {path, "--clear-env", "--", "/bin/sh", "-c", "exit 7", NULL};
	const char *refuses[] = {path, "--no-such-flag", "x", "--", "/bin/true", NULL};

	if (path == NULL)
		skip(); /* vm.memfd_noexec=2 */
	assert_string_equal(path, sandbox_exec_path());
	assert_int_equal(run(becomes), 7);
	assert_int_equal(run(refuses), SANDBOX_EXEC_EXIT);
}

static void sandbox_exec_is_sealed(void **state UNUSED)
{
	const char *path = sandbox_exec_path();
	AUTO_FD int fd = -1;
	int all = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

	if (path == NULL)
		skip();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & all, all);
	close_fd_p(&fd);
	fd = open(path, O_RDWR | O_CLOEXEC); /* root may open it, and no more */
	if (fd >= 0) {
		assert_int_equal(write(fd, "x", 1), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(ftruncate(fd, 0), -1);
		assert_int_equal(errno, EPERM);
		assert_ptr_equal(mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
		                 MAP_FAILED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sandbox_exec_becomes_a_program),
		cmocka_unit_test(sandbox_exec_is_sealed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
