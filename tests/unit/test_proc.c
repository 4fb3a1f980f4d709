/* test_proc.c - child processes: what they inherit, how they end, who they are. */
#include "unit.h"

#include "base/clock.h"
#include "base/fs.h"
#include "io/proc.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LONG_MS ((int64_t)60000) /* far more than anything here takes */

static char tmp[] = "/tmp/test_proc.XXXXXX";

static int make_tmp(void **state UNUSED)
{
	return mkdtemp(tmp) == NULL ? -1 : 0;
}

static int drop_tmp(void **state UNUSED)
{
	struct err err = {0};

	return fs_remove_tree(AT_FDCWD, tmp, &err);
}

static void wait_until_gone(const struct proc_id *id)
{
	for (int i = 0; i < 20000 && proc_alive(id); i++)
		clock_sleep_ms(5);
	assert_false(proc_alive(id));
}

/* Runs a shell script with fd 1 on a pipe; its output. */
static void shell(struct proc_spec spec, const char *script, struct buf *out)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct proc_fd fds[PROC_FDS_MAX];
	struct err err = {0};
	struct proc p;
	int ends[2], status = -1;
	char *room;
	ssize_t n;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	for (size_t i = 0; i < spec.n_fds; i++)
		fds[i] = spec.fds[i];
	fds[spec.n_fds++] = (struct proc_fd){ends[1], 1};
	spec.fds = fds;
	spec.argv = argv;
	assert_ok(proc_spawn(&spec, &p, &err), &err);
	(void)close(ends[1]);
	while ((room = buf_room(out, 4096)) != NULL && (n = read(ends[0], room, 4096)) > 0)
		out->n += (size_t)n;
	(void)close(ends[0]);
	assert_int_equal(proc_wait(&p, LONG_MS, &status, &err), 0);
	assert_int_equal(status, 0);
	(void)close(p.pidfd);
	buf_putc(out, '\0');
	out->n--;
}

static void proc_exec_failures_are_told(void **state UNUSED)
{
	static const struct {
		const char *name, *argv0, *cwd;
		enum err_code code;
		const char *words;
	} rows[] = {
		{"no such path", "/no/such/program", NULL, ERR_NOT_FOUND,
	         "/no/such/program: No such file"},
		{"not in PATH", "no-such-program-here", NULL, ERR_NOT_FOUND, "not found in PATH"},
		{"not executable", "/etc/passwd", NULL, ERR_DENIED,
	         "/etc/passwd: Permission denied"},
		{"a folder", "/etc", NULL, ERR_DENIED, "/etc: Permission denied"},
		{"no such folder", "/bin/true", "/no/such/dir", ERR_NOT_FOUND,
	         "working directory /no/such/dir"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		for (int detach = 0; detach < 2; detach++) {
			const char *argv[] = {rows[i].argv0, NULL};
			struct proc_spec spec = {.argv = argv,
			                         .cwd = rows[i].cwd,
			                         .umask_bits = -1,
			                         .detach = detach == 1};
			struct proc p = {.pid = 7, .pidfd = 7};
			struct err err = {0};

			assert_row(proc_spawn(&spec, &p, &err) < 0, rows[i].name);
			if (err.code != rows[i].code || strstr(err.msg, rows[i].words) == NULL)
				fail_msg("%s: code %d: %s", rows[i].name, (int)err.code, err.msg);
			assert_row(p.pid == 7 && p.pidfd == 7, rows[i].name);
		}
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie is left */
	assert_int_equal(errno, ECHILD);
}

static void proc_missing_interpreter_is_named(void **state UNUSED)
{
	AUTO_FREE char *path = xasprintf("%s/script", tmp);
	const char *argv[] = {path, NULL};
	struct proc_spec spec = {.argv = argv, .umask_bits = -1};
	struct err err = {0};
	struct proc p;

	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT("#!/no/such/shell\n"), 0755, &err), &err);
	assert_err(proc_spawn(&spec, &p, &err), &err, ERR_NOT_FOUND, "interpreter");
}

/* Failures leave no descriptor behind, in any of the ways to start. */
static void proc_failures_leak_no_fds(void **state UNUSED)
{
	int before = dup(0), after;

	(void)close(before);
	for (int i = 0; i < 40; i++) {
		const char *argv[] = {"/no/such/program", NULL};
		struct proc_spec spec = {.argv = argv, .umask_bits = -1, .detach = i % 2 == 0};
		struct err err = {0};
		struct proc p;

		assert_err(proc_spawn(&spec, &p, &err), &err, ERR_NOT_FOUND, "/no/such");
	}
	after = dup(0);
	(void)close(after);
	assert_int_equal(before, after);
}

static void proc_child_has_exactly_the_fds_given(void **state UNUSED)
{
	AUTO_FD int leak =
		open("/dev/null", O_RDONLY); /* no CLOEXEC: must not arrive all the same */
	AUTO_FD int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct proc_fd fds[] = {{file, 7}, {file, 99}};
	struct proc_spec spec = {.fds = fds, .n_fds = 2, .umask_bits = -1};

	assert_true(leak > 2 && file > 2);
	/* the one more is ls's own, of the folder it reads */
	shell(spec,
	      "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> \\([^:[]*\\).*/\\1 \\2/p'"
	      " | grep -v ' /proc/' | sort -n",
	      &out);
	assert_string_equal(out.p, "0 /dev/null\n1 pipe\n2 /dev/null\n7 /dev/zero\n99 /dev/zero\n");
}

static void proc_fds_may_cross(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	AUTO_FD int a = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	AUTO_FD int b = open("/dev/full", O_RDONLY | O_CLOEXEC);
	struct proc_fd fds[] = {{a, b}, {b, a}, {a, 2}}; /* swapped, and one twice */
	struct proc_spec spec = {.fds = fds, .n_fds = 3, .umask_bits = -1};
	AUTO_FREE char *script = xasprintf("readlink /proc/self/fd/%d /proc/self/fd/%d "
	                                   "/proc/self/fd/2",
	                                   a, b);

	shell(spec, script, &out);
	assert_string_equal(out.p, "/dev/full\n/dev/zero\n/dev/zero\n");
}

/* A number that our own pipes have in the middle of a detached start. */
static void proc_detached_takes_any_fd_number(void **state UNUSED)
{
	AUTO_FREE char *path = xasprintf("%s/fds", tmp);

	for (int theirs = 3; theirs < 20; theirs++) {
		AUTO_FREE char *script = xasprintf("echo %d >&%d", theirs, theirs);
		AUTO_FD int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		const char *argv[] = {"/bin/bash", "-c", script, NULL};
		struct proc_fd fds[] = {{file, theirs}};
		struct proc_spec spec = {
			.argv = argv, .fds = fds, .n_fds = 1, .umask_bits = -1, .detach = true};
		AUTO_BUF struct buf text = BUF_INIT(100), want = BUF_INIT(100);
		struct err err = {0};
		struct proc p;
		int status;

		assert_ok(proc_spawn(&spec, &p, &err), &err);
		assert_int_equal(proc_wait(&p, LONG_MS, &status, &err), 0);
		(void)close(p.pidfd);
		assert_ok(fs_read(AT_FDCWD, path, &text, &err), &err);
		buf_printf(&want, "%d\n", theirs);
		assert_string_equal(buf_cstr(&text), buf_cstr(&want));
	}
}

static void proc_environment_cwd_umask(void **state UNUSED)
{
	static const char *const envp[] = {"ONLY=this", "B=two words", NULL};
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct proc_spec spec = {.envp = envp, .cwd = "/usr", .umask_bits = 027};

	shell(spec, "echo $ONLY/$B/${HOME-none} $(pwd) $(umask)", &out);
	assert_string_equal(out.p, "this/two words/none /usr 0027\n");
}

static void proc_environment_is_inherited_by_default(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct proc_spec spec = {.umask_bits = -1};

	assert_int_equal(setenv("TEST_PROC_VALUE", "seen", 1), 0);
	shell(spec, "echo $TEST_PROC_VALUE", &out);
	assert_string_equal(out.p, "seen\n");
}

/* A server ignores SIGPIPE and blocks signals for its signalfd; its children must know neither. */
static void proc_signals_start_fresh(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct proc_spec spec = {.umask_bits = -1};
	sigset_t set, old;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)pthread_sigmask(SIG_BLOCK, &set, &old);
	shell(spec, "grep -E '^Sig(Blk|Ign)' /proc/self/status", &out);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	assert_string_equal(out.p, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void proc_wait_says_how_it_ended(void **state UNUSED)
{
	static const struct {
		const char *script;
		int status;
	} rows[] = {
		{"exit 0", 0},
		{"exit 3", 3 << 8},
		{"exit 255", 255 << 8},
		{"kill -TERM $$", SIGTERM},
		{"kill -KILL $$", SIGKILL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *argv[] = {"sh", "-c", rows[i].script, NULL};
		struct proc_spec spec = {.argv = argv, .umask_bits = -1};
		struct err err = {0};
		struct proc p;
		int status = -1;

		assert_ok(proc_spawn(&spec, &p, &err), &err);
		assert_int_equal(proc_wait(&p, -1, &status, &err), 0);
		assert_row(status == rows[i].status, rows[i].script);
		assert_int_equal(proc_wait(&p, -1, &status, &err), 0); /* again: no longer known */
		assert_row(status == -1, rows[i].script);
		(void)close(p.pidfd);
	}
}

static void proc_wait_ends_at_its_deadline(void **state UNUSED)
{
	const char *argv[] = {"sleep", "1000", NULL};
	struct proc_spec spec = {.argv = argv, .umask_bits = -1, .die_with_parent = true};
	struct err err = {0};
	struct proc p;
	int status = 77;

	assert_ok(proc_spawn(&spec, &p, &err), &err);
	assert_int_equal(proc_wait(&p, 0, &status, &err), 1);
	assert_int_equal(proc_wait(&p, 20, &status, &err), 1);
	assert_int_equal(status, 77);
	assert_int_equal(kill(p.pid, SIGKILL), 0);
	assert_int_equal(proc_wait(&p, INT64_MAX, &status, &err), 0);
	assert_int_equal(status, SIGKILL);
	(void)close(p.pidfd);
}

static void proc_new_session_leads_its_group(void **state UNUSED)
{
	for (int detach = 0; detach < 2; detach++) {
		const char *argv[] = {"sleep", "1000", NULL};
		struct proc_spec spec = {
			.argv = argv, .umask_bits = -1, .new_session = true, .detach = detach == 1};
		struct err err = {0};
		struct proc p;
		int status;

		assert_ok(proc_spawn(&spec, &p, &err), &err);
		assert_int_equal(getsid(p.pid), p.pid);
		assert_int_equal(getpgid(p.pid), p.pid);
		assert_int_equal(kill(-p.pid, SIGKILL), 0);
		assert_int_equal(proc_wait(&p, LONG_MS, &status, &err), 0);
		assert_int_equal(status, detach == 1 ? -1 : SIGKILL);
		(void)close(p.pidfd);
	}
}

static void proc_run_feeds_and_collects(void **state UNUSED)
{
	const char *argv[] = {"sh", "-c", "cat; echo err >&2; exit 5", NULL};
	AUTO_BUF struct buf out = BUF_INIT(1 << 20);
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(argv, STR_LIT("hello "), LONG_MS, &out, &code, &err), &err);
	assert_int_equal(code, 5);
	assert_string_equal(buf_cstr(&out), "hello err\n");
	assert_ok(buf_check(&out, "output", &err), &err);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void proc_run_reports_signals(void **state UNUSED)
{
	const char *argv[] = {"sh", "-c", "kill -USR1 $$", NULL};
	AUTO_BUF struct buf out = BUF_INIT(1024);
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(argv, str_of(NULL), LONG_MS, &out, &code, &err), &err);
	assert_int_equal(code, 128 + SIGUSR1);
}

/* More output than fits neither blocks the helper nor grows the buffer. */
static void proc_run_cuts_output(void **state UNUSED)
{
	const char *argv[] = {"sh", "-c", "yes 0123456789 | head -c 3000000", NULL};
	AUTO_BUF struct buf out = BUF_INIT(100000);
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(argv, str_of(NULL), LONG_MS, &out, &code, &err), &err);
	assert_int_equal(code, 0);
	assert_int_equal(out.n, 100000);
	assert_true(out.full);
	assert_err(buf_check(&out, "output", &err), &err, ERR_TOO_BIG, "output");
}

static bool until_word(void *arg, const struct buf *out)
{
	int *looks = arg;

	(*looks)++;
	return out->n == 0;
}

static void proc_run_is_given_up(void **state UNUSED)
{
	const char *argv[] = {"sh", "-c", "echo word; sleep 1000", NULL};
	AUTO_BUF struct buf out = BUF_INIT(1000);
	struct err err = {0};
	int code = -1, looks = 0;

	assert_err(proc_run_look(argv, LONG_MS, &(struct proc_look){until_word, &looks}, &out,
	                         &code, &err),
	           &err, ERR_CANCELED, "sh: given up");
	assert_true(looks > 0);
	assert_string_equal(buf_cstr(&out), "word\n");
}

/* Input that nobody reads is no SIGPIPE for us. */
static void proc_run_input_may_be_ignored(void **state UNUSED)
{
	static char big[300000];
	const char *argv[] = {"true", NULL};
	AUTO_BUF struct buf out = BUF_INIT(1024);
	struct err err = {0};
	int code = -1;

	memset(big, 'x', sizeof(big));
	assert_ok(proc_run(argv, str_n(big, sizeof(big)), LONG_MS, &out, &code, &err), &err);
	assert_int_equal(code, 0);
}

/* At the deadline the whole group goes, and with it what holds the pipe open. */
static void proc_run_kills_at_the_deadline(void **state UNUSED)
{
	AUTO_FREE char *path = xasprintf("%s/pid", tmp);
	AUTO_FREE char *script = xasprintf("sleep 1000 & echo $! > %s; wait", path);
	const char *argv[] = {"sh", "-c", script, NULL};
	AUTO_BUF struct buf out = BUF_INIT(1024), text = BUF_INIT(64);
	struct err err = {0};
	struct proc_id id;
	int code = -1;
	uint64_t pid;

	assert_err(proc_run(argv, str_of(NULL), 500, &out, &code, &err), &err, ERR_TIMEOUT,
	           "was killed");
	assert_int_equal(code, -1);
	if (fs_read(AT_FDCWD, path, &text, &err) < 0 || text.n == 0)
		return; /* a machine so slow that the shell never got there */
	assert_ok(str_u64(str_trim(buf_view(&text)), 1, INT32_MAX, &pid, &err), &err);
	if (proc_identify((pid_t)pid, &id, &err) == 0)
		wait_until_gone(&id);
}

/* What stays in the background with the pipe in its hands does not keep us. */
static void proc_run_does_not_wait_for_the_background(void **state UNUSED)
{
	const char *argv[] = {"sh", "-c", "sleep 1000 & echo done", NULL};
	AUTO_BUF struct buf out = BUF_INIT(1024);
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(argv, str_of(NULL), LONG_MS, &out, &code, &err), &err);
	assert_int_equal(code, 0);
	assert_string_equal(buf_cstr(&out), "done\n");
}

static void proc_find_looks_in_path(void **state UNUSED)
{
	static const struct {
		const char *path, *name;
		bool found;
	} rows[] = {
		{"/usr/bin:/bin", "sh", true},
		{"/no/such", "sh", false},
		{":.:bin:/no/such", "sh", false}, /* relative places are no places */
		{"", "sh", true},                 /* an empty PATH is none: the default */
		{"/usr/bin:/bin", "", false},
		{"/usr/bin:/bin", "/bin/sh", true},
		{"/usr/bin:/bin", "/etc/passwd", false}, /* not executable */
		{"/usr:/", "bin", false},                /* a folder */
	};
	AUTO_FREE char *before = xstrdup(getenv("PATH"));
	char out[4096];

	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_int_equal(setenv("PATH", rows[i].path, 1), 0);
		assert_row((proc_find(rows[i].name, out) != NULL) == rows[i].found, rows[i].path);
	}
	assert_int_equal(setenv("PATH", before, 1), 0);
}

static void proc_alive_knows_the_same_process(void **state UNUSED)
{
	const char *argv[] = {"sleep", "1000", NULL};
	struct proc_spec spec = {.argv = argv, .umask_bits = -1};
	struct proc_id id, other;
	struct pollfd pfd = {.events = POLLIN};
	struct err err = {0};
	struct proc p;
	int status;

	assert_ok(proc_identify(getpid(), &id, &err), &err);
	assert_true(proc_alive(&id));
	assert_ok(proc_spawn(&spec, &p, &err), &err);
	assert_ok(proc_identify(p.pid, &id, &err), &err);
	assert_true(proc_alive(&id));
	other = id;
	other.start_ticks--; /* an earlier process of the same number */
	assert_false(proc_alive(&other));
	other = id;
	other.boot[0] = other.boot[0] == 'a' ? 'b' : 'a'; /* before a reboot */
	assert_false(proc_alive(&other));
	other = (struct proc_id){0};
	assert_false(proc_alive(&other));
	assert_int_equal(kill(p.pid, SIGKILL), 0);
	pfd.fd = p.pidfd;
	assert_int_equal(poll(&pfd, 1, (int)LONG_MS), 1);
	assert_false(proc_alive(&id)); /* a zombie, not waited for yet */
	assert_int_equal(proc_wait(&p, LONG_MS, &status, &err), 0);
	assert_false(proc_alive(&id));
	assert_err(proc_identify(p.pid, &id, &err), &err, ERR_NOT_FOUND, "process");
	(void)close(p.pidfd);
}

/* The name in /proc/PID/stat is the process's own choice. */
static void proc_identify_survives_odd_names(void **state UNUSED)
{
	struct proc_id before, after;
	struct err err = {0};

	assert_ok(proc_identify(getpid(), &before, &err), &err);
	assert_int_equal(prctl(PR_SET_NAME, ") R 1 (x) Z"), 0);
	assert_ok(proc_identify(getpid(), &after, &err), &err);
	assert_int_equal(before.start_ticks, after.start_ticks);
	assert_true(proc_alive(&after));
}

/* Starts a sleeper in a process that then ends; who the sleeper is. */
static struct proc_id start_in_another(bool detach)
{
	const char *argv[] = {"sleep", "1000", NULL};
	struct proc_spec spec = {.argv = argv,
	                         .umask_bits = -1,
	                         .detach = detach,
	                         .new_session = detach,
	                         .die_with_parent = !detach};
	struct proc_id id = {0};
	struct err err = {0};
	int ends[2], status;
	struct proc p;
	pid_t maker;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	maker = fork();
	assert_true(maker >= 0);
	if (maker == 0) {
		if (proc_spawn(&spec, &p, &err) < 0 || proc_identify(p.pid, &id, &err) < 0 ||
		    write(ends[1], &id, sizeof(id)) != (ssize_t)sizeof(id))
			_exit(1);
		/* what is detached is not our child */
		_exit((waitpid(-1, NULL, WNOHANG) == -1) == detach ? 0 : 2);
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &id, sizeof(id)), sizeof(id));
	assert_int_equal(waitpid(maker, &status, 0), maker);
	assert_int_equal(status, 0);
	(void)close(ends[0]);
	return id;
}

static void proc_detached_outlives_its_maker(void **state UNUSED)
{
	struct proc_id id = start_in_another(true);

	assert_true(proc_alive(&id));
	assert_int_equal(kill(id.pid, SIGKILL), 0);
	wait_until_gone(&id);
}

static void proc_dies_with_its_parent(void **state UNUSED)
{
	struct proc_id id = start_in_another(false);

	wait_until_gone(&id);
}

static void *spawn_many(void *arg)
{
	unsigned long *bad = arg;

	for (int i = 0; i < 20; i++) {
		const char *argv[] = {i % 2 == 0 ? "/bin/true" : "/no/such", NULL};
		struct proc_spec spec = {.argv = argv, .umask_bits = -1, .detach = i % 3 == 0};
		struct err err = {0};
		struct proc p;
		int status;

		if (proc_spawn(&spec, &p, &err) < 0) {
			*bad += i % 2 == 0;
			continue;
		}
		*bad += i % 2 != 0;
		*bad += proc_wait(&p, LONG_MS, &status, &err) != 0;
		*bad += !spec.detach && status != 0;
		(void)close(p.pidfd);
	}
	return NULL;
}

/* Threads spawn side by side while another keeps malloc's locks busy. */
static void proc_spawns_from_many_threads(void **state UNUSED)
{
	pthread_t threads[4];
	unsigned long bad[4] = {0};

	for (size_t i = 0; i < COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, spawn_many, &bad[i]), 0);
	for (int i = 0; i < 20000; i++) {
		AUTO_FREE char *p = xasprintf("%d", i);

		assert_true(p[0] != '\0');
	}
	for (size_t i = 0; i < COUNT(threads); i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(bad[i], 0);
	}
}

/* In a child, for what it gives up does not come back. */
static void proc_guarded_is_not_dumped(void **state UNUSED)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct rlimit core;

		proc_guard();
		_exit(prctl(PR_GET_DUMPABLE) != 0 || getrlimit(RLIMIT_CORE, &core) < 0 ||
		      core.rlim_cur != 0);
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(proc_exec_failures_are_told),
	cmocka_unit_test(proc_missing_interpreter_is_named),
	cmocka_unit_test(proc_failures_leak_no_fds),
	cmocka_unit_test(proc_child_has_exactly_the_fds_given),
	cmocka_unit_test(proc_fds_may_cross),
	cmocka_unit_test(proc_detached_takes_any_fd_number),
	cmocka_unit_test(proc_environment_cwd_umask),
	cmocka_unit_test(proc_environment_is_inherited_by_default),
	cmocka_unit_test(proc_signals_start_fresh),
	cmocka_unit_test(proc_wait_says_how_it_ended),
	cmocka_unit_test(proc_wait_ends_at_its_deadline),
	cmocka_unit_test(proc_new_session_leads_its_group),
	cmocka_unit_test(proc_run_feeds_and_collects),
	cmocka_unit_test(proc_run_reports_signals),
	cmocka_unit_test(proc_run_cuts_output),
	cmocka_unit_test(proc_run_is_given_up),
	cmocka_unit_test(proc_run_input_may_be_ignored),
	cmocka_unit_test(proc_run_kills_at_the_deadline),
	cmocka_unit_test(proc_run_does_not_wait_for_the_background),
	cmocka_unit_test(proc_find_looks_in_path),
	cmocka_unit_test(proc_alive_knows_the_same_process),
	cmocka_unit_test(proc_identify_survives_odd_names),
	cmocka_unit_test(proc_detached_outlives_its_maker),
	cmocka_unit_test(proc_dies_with_its_parent),
	cmocka_unit_test(proc_guarded_is_not_dumped),
	cmocka_unit_test(proc_spawns_from_many_threads),
};

UNIT_MAIN_IN(tests, make_tmp, drop_tmp)
