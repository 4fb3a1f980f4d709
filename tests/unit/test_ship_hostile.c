/* test_ship_hostile.c - folders that mean no good: a pipe in a file's place, a hole of terabytes,
 * what cannot be read. */
#include "ship_fixture.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define NOBODY 65534

struct exchange {
	struct place *p;
	atomic_bool over;
};

static void *exchange(void *arg)
{
	struct exchange *x = arg;
	char *a = in(x->p, "checkpoint-1/a"), *b = in(x->p, "checkpoint-1/fifo");

	while (!x->over)
		(void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
	return NULL;
}

/* A pipe in a file's place at any moment: nobody waits for its other end. */
static void exchanged_with_a_pipe(void **state)
{
	struct place *p = *state;
	struct exchange x = {.p = p};
	pthread_t t;

	p->o.settle_ms = 1;
	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/b", "x");
	assert_int_equal(mkfifo(in(p, "checkpoint-1/fifo"), 0600), 0);
	assert_int_equal(pthread_create(&t, NULL, exchange, &x), 0);
	start(p);
	wait_walks(p, 20);
	(void)ship_finish(p->ship, true); /* it ends, whatever it found */
	x.over = true;
	(void)pthread_join(t, NULL);
	assert_true(said(p, "[checkpoint-1 "));
}

/* It says that it has 10 TB, and has none: nobody's disk is taken for it. */
static void a_hole_takes_no_disk(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	struct stat st;

	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/huge", "x");
	assert_int_equal(truncate(in(p, "checkpoint-1/huge"), (off_t)10 << 40), 0);
	put(p, "checkpoint-2/sparse", "x");
	assert_int_equal(truncate(in(p, "checkpoint-2/sparse"), (off_t)48 << 20), 0);
	start(p);
	assert_false(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.files.n, 1);
	assert_non_null(strstr(c.reason, "huge"));
	assert_non_null(strstr(c.reason, "TB"));
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.file[0].size, (uint64_t)48 << 20);
	assert_int_equal(stat(arena_printf(p->a, "%s/objects/%s", p->dir,
	                                   ckpt_object_key(p->a, PREFIX, 0, "checkpoint-2/sparse")),
	                      &st),
	                 0);
	assert_true(st.st_blocks < 2048);
}

/* What cannot be read is not left out without a word. As an ordinary user, whom modes hold off. */
static void unreadable(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	int status = 0;
	pid_t pid;

	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/deep/b", "x");
	put(p, "checkpoint-2/a", "x");
	put(p, "checkpoint-3/a", "x");
	put(p, "checkpoint-4/a", "x");
	assert_int_equal(chmod(in(p, "checkpoint-1/deep"), 0), 0);
	assert_int_equal(chmod(in(p, "checkpoint-2/a"), 0), 0);
	assert_int_equal(chmod(in(p, "checkpoint-3"), 0), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool all = false;

		if (geteuid() == 0 &&
		    (chown(p->o.spool, NOBODY, NOBODY) < 0 || chmod(p->dir, 0755) < 0 ||
		     chown(arena_printf(p->a, "%s/objects", p->dir), NOBODY, NOBODY) < 0 ||
		     chown(arena_printf(p->a, "%s/objects/.tmp", p->dir), NOBODY, NOBODY) < 0 ||
		     setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
			_exit(9);
		start(p);
		all = ship_finish(p->ship, true);
		stop(p);
		_exit(all ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chmod(in(p, "checkpoint-1/deep"), 0755), 0);
	assert_int_equal(chmod(in(p, "checkpoint-3"), 0755), 0);
	assert_int_equal(status, 0);
	for (int i = 1; i <= 3; i++) {
		assert_true(manifest(p, arena_printf(p->a, "checkpoint-%d", i), &c));
		assert_int_equal(c.state, CKPT_INCOMPLETE);
		assert_non_null(strstr(c.reason, "mode 0000"));
	}
	assert_true(manifest(p, "checkpoint-4", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

static const struct CMUnitTest tests[] = {
	T(exchanged_with_a_pipe),
	T(a_hole_takes_no_disk),
	T(unreadable),
};
UNIT_MAIN(tests)
