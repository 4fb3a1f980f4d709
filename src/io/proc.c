/*
 * proc.c - child processes by fork and exec. Between the two only async-signal-safe calls are made,
 * on data prepared before the fork, so any thread may spawn while others hold locks.
 */
#include "io/proc.h"

#include "base/clock.h"
#include "base/fs.h"

#include <dirent.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PROC_STAT_MAX 4096
#define PROC_CHUNK 8192
#define PROC_FD_HIGHEST 1024 /* of proc_fd.theirs */
#define PROC_DRAIN_MAX 1024  /* chunks read after the end, should a grandchild still write */
#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"

extern char **environ;

/* The steps of a child before exec, named in error messages. */
enum stage { STAGE_FDS, STAGE_SESSION, STAGE_CWD, STAGE_FORK, STAGE_EXEC };

struct failure {
	int stage, errnum;
};

/* All that the child reads; complete before the fork. */
struct plan {
	const struct proc_spec *spec;
	const char *path;
	char *const *argv;
	char *const *envp;
	int null_fd;
	int fail_fd;  /* CLOEXEC: its silent end is the proof that exec worked */
	int pid_fd;   /* detach: the grandchild's pid goes here */
	int go_fd;    /* detach: the grandchild waits until it is known by pidfd */
	int go_write; /* its other end, the parent's: see child_exec */
	int base;     /* descriptors from here up are free for our own use */
	pid_t parent;
	sigset_t mask; /* of the child: empty */
};

static NORETURN void child_fail(const struct plan *p, enum stage stage)
{
	struct failure f = {.stage = (int)stage, .errnum = errno};

	(void)!write(p->fail_fd, &f, sizeof(f)); /* nobody else to tell */
	_exit(127);
}

/* Ours are first moved out of the way of all `theirs`, then everything is marked close-on-exec, and
 * the copies that dup2 makes at their final numbers are not. */
static void child_fds(struct plan *p)
{
	const struct proc_spec *s = p->spec;
	bool named[3] = {false, false, false};
	int high[PROC_FDS_MAX];
	int *own[] = {&p->null_fd, &p->fail_fd, &p->go_fd};

	for (size_t i = 0; i < COUNT(own); i++) {
		int fd = *own[i] < 0 ? -1 : fcntl(*own[i], F_DUPFD_CLOEXEC, p->base);

		if (fd < 0 && *own[i] >= 0)
			child_fail(p, STAGE_FDS);
		*own[i] = fd;
	}
	for (size_t i = 0; i < s->n_fds; i++) {
		high[i] = fcntl(s->fds[i].ours, F_DUPFD_CLOEXEC, p->base);
		if (high[i] < 0)
			child_fail(p, STAGE_FDS);
	}
	if (close_range(0, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		child_fail(p, STAGE_FDS);
	for (size_t i = 0; i < s->n_fds; i++) {
		if (dup2(high[i], s->fds[i].theirs) < 0)
			child_fail(p, STAGE_FDS);
		if (s->fds[i].theirs < 3)
			named[s->fds[i].theirs] = true;
	}
	for (int fd = 0; fd < 3; fd++) {
		if (!named[fd] && dup2(p->null_fd, fd) < 0)
			child_fail(p, STAGE_FDS);
	}
}

/* exec keeps ignored signals ignored: a server that ignores SIGPIPE would teach it to its jobs. */
static void child_signals(const struct plan *p)
{
	/* the kernel's own form: libc keeps its two signals from sigaction, yet they may be ignored
	 */
	const struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} dfl = {.handler = SIG_DFL};

	for (int sig = 1; sig < NSIG; sig++)
		(void)syscall(SYS_rt_sigaction, sig, &dfl, NULL,
		              sizeof(dfl.mask)); /* not KILL, STOP */
	(void)sigprocmask(SIG_SETMASK, &p->mask, NULL);
}

/* The detached one may start only when its parent holds a pidfd of it: no pid is reused meanwhile.
 */
static void child_wait_for_go(const struct plan *p)
{
	char c;
	ssize_t n;

	do
		n = read(p->go_fd, &c, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(127); /* the parent is gone or gave up: nobody knows about us */
}

static NORETURN void child_exec(struct plan *p)
{
	const struct proc_spec *s = p->spec;

	if (p->go_write >= 0)
		(void)close(p->go_write); /* or the parent's death would go unnoticed */
	child_fds(p);
	if (s->new_session && setsid() < 0)
		child_fail(p, STAGE_SESSION);
	if (s->die_with_parent) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			child_fail(p, STAGE_SESSION);
		if (getppid() != p->parent)
			_exit(127); /* it died before the signal was asked for */
	}
	if (s->cwd != NULL && chdir(s->cwd) < 0)
		child_fail(p, STAGE_CWD);
	if (s->umask_bits >= 0)
		(void)umask((mode_t)s->umask_bits);
	if (p->go_fd >= 0)
		child_wait_for_go(p);
	child_signals(p);
	(void)execve(p->path, p->argv, p->envp);
	child_fail(p, STAGE_EXEC);
}

/* The middle process of a detached start: it makes the real one, says its pid and leaves. */
static NORETURN void child_detach(struct plan *p)
{
	pid_t pid = fork();

	if (pid < 0)
		child_fail(p, STAGE_FORK);
	if (pid == 0)
		child_exec(p);
	_exit(write(p->pid_fd, &pid, sizeof(pid)) == (ssize_t)sizeof(pid) ? 0 : 127);
}

/* Up to n bytes until the end of the pipe; how many came. */
static size_t read_pipe(int fd, void *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = read(fd, (char *)p + got, n - got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		got += (size_t)r;
	}
	return got;
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int say_failure(const struct proc_spec *s, const char *path, const struct failure *f,
                       struct err *err)
{
	switch ((enum stage)f->stage) {
	case STAGE_FDS:
		return err_errno(err, f->errnum, "%s: pass it file descriptors", s->argv[0]);
	case STAGE_SESSION:
		return err_errno(err, f->errnum, "%s: start a session", s->argv[0]);
	case STAGE_CWD:
		return err_errno(err, f->errnum, "%s: working directory %s", s->argv[0], s->cwd);
	case STAGE_FORK:
		return err_errno(err, f->errnum, "%s: fork", s->argv[0]);
	case STAGE_EXEC:
		break;
	}
	if (f->errnum == ENOENT && s->cwd == NULL && access(path, F_OK) == 0)
		return err_set(err, ERR_NOT_FOUND,
		               "%s: the interpreter in its #! line does not exist", path);
	return err_errno(err, f->errnum, "%s", path);
}

/* The ends of the pipes of one start. */
struct pipes {
	int fail[2], pid[2], go[2];
};

static void pipes_done(struct pipes *ps)
{
	int *all[] = {ps->fail, ps->pid, ps->go};

	for (size_t i = 0; i < COUNT(all); i++) {
		close_fd_p(&all[i][0]);
		close_fd_p(&all[i][1]);
		all[i][0] = all[i][1] = -1;
	}
}

static void close_end(int *fd)
{
	close_fd_p(fd);
	*fd = -1;
}

static int pipes_open(struct pipes *ps, bool detach, struct err *err)
{
	if (pipe2(ps->fail, O_CLOEXEC) < 0)
		return err_errno(err, errno, "pipe for a child process");
	if (detach && (pipe2(ps->pid, O_CLOEXEC) < 0 || pipe2(ps->go, O_CLOEXEC) < 0))
		return err_errno(err, errno, "pipe for a child process");
	return 0;
}

static pid_t fork_child(struct plan *p)
{
	sigset_t all, old;
	pid_t pid;
	int errnum;

	/* No handler of ours may run in the child, and none before it has its own dispositions. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (pid == 0) {
		if (p->spec->detach)
			child_detach(p);
		child_exec(p);
	}
	errnum = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = errnum;
	return pid;
}

/* The parent's side of a detached start: out->pid becomes the grandchild's. */
static int meet_detached(struct pipes *ps, pid_t middle, struct proc *out)
{
	pid_t pid = -1;
	size_t n;

	close_end(&ps->pid[1]);
	n = read_pipe(ps->pid[0], &pid, sizeof(pid));
	reap(middle);
	if (n != sizeof(pid))
		return -1; /* why is in the failure pipe */
	out->pid = pid;
	out->pidfd = pidfd_open(pid, 0);
	if (out->pidfd < 0)
		return -1;
	/* our own copy of the reading end keeps this from being a SIGPIPE */
	while (write(ps->go[1], "g", 1) < 0 && errno == EINTR)
		;
	return 0;
}

static int start(struct plan *p, struct pipes *ps, struct proc *out, struct err *err)
{
	const struct proc_spec *s = p->spec;
	struct proc proc = {.pid = -1, .pidfd = -1};
	struct failure f = {0};
	pid_t pid = fork_child(p);
	int met = 0, errnum;

	if (pid < 0)
		return err_errno(err, errno, "%s: fork", s->argv[0]);
	close_end(&ps->fail[1]);
	if (s->detach) {
		met = meet_detached(ps, pid, &proc);
	} else {
		proc.pid = pid;
		proc.pidfd =
			pidfd_open(pid, 0); /* ours and not waited for: the pid is not reused */
		met = proc.pidfd < 0 ? -1 : 0;
	}
	errnum = errno;
	close_end(&ps->go[1]); /* a grandchild that was not met ends here */
	if (met < 0 && !s->detach)
		(void)kill(pid, SIGKILL);
	if (read_pipe(ps->fail[0], &f, sizeof(f)) == sizeof(f) || met < 0) {
		if (!s->detach)
			reap(pid);
		close_fd_p(&proc.pidfd);
		if (f.errnum == 0)
			return err_errno(err, errnum, "%s: open a pidfd", s->argv[0]);
		return say_failure(s, p->path, &f, err);
	}
	*out = proc;
	return 0;
}

int proc_spawn(const struct proc_spec *spec, struct proc *out, struct err *err)
{
	struct pipes ps CLEANUP(pipes_done) = {{-1, -1}, {-1, -1}, {-1, -1}};
	AUTO_FD int null_fd = -1;
	char found[4096];
	struct plan p = {.spec = spec, .base = 3, .pid_fd = -1, .go_fd = -1};

	assert(spec->argv != NULL && spec->argv[0] != NULL && spec->n_fds <= PROC_FDS_MAX);
	assert(!(spec->detach && spec->die_with_parent));
	for (size_t i = 0; i < spec->n_fds; i++) {
		assert(spec->fds[i].theirs >= 0 && spec->fds[i].theirs <= PROC_FD_HIGHEST);
		p.base = MAX(p.base, spec->fds[i].theirs + 1);
	}
	p.path = spec->argv[0];
	if (strchr(p.path, '/') == NULL) {
		p.path = proc_find(spec->argv[0], found);
		if (p.path == NULL)
			return err_set(err, ERR_NOT_FOUND, "%s: not found in PATH; install it",
			               spec->argv[0]);
	}
	if (pipes_open(&ps, spec->detach, err) < 0)
		return err_wrap(err, "%s", spec->argv[0]);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return err_errno(err, errno, "/dev/null");
	/* execve() takes char *const *, for history's sake; it writes to nothing */
	p.argv = (char *const *)(uintptr_t)spec->argv;
	p.envp = spec->envp != NULL ? (char *const *)(uintptr_t)spec->envp : environ;
	p.null_fd = null_fd;
	p.fail_fd = ps.fail[1];
	p.pid_fd = ps.pid[1];
	p.go_fd = ps.go[0];
	p.go_write = ps.go[1];
	p.parent = getpid();
	(void)sigemptyset(&p.mask);
	return start(&p, &ps, out, err);
}

/* Milliseconds for poll() until a time on the monotonic clock; -1 stays for ever. */
static int poll_ms(int64_t until)
{
	int64_t left;

	if (until < 0)
		return -1;
	left = until - clock_mono_ms();
	return left <= 0 ? 0 : (int)MIN(left, 3600 * 1000);
}

static int64_t until_of(int64_t deadline_ms)
{
	int64_t now = clock_mono_ms();

	return deadline_ms < 0 || deadline_ms > INT64_MAX - now ? -1 : now + deadline_ms;
}

/* waitpid()'s form of what waitid() says. */
static int status_of(const siginfo_t *si)
{
	if (si->si_code == CLD_EXITED)
		return (si->si_status & 0xff) << 8;
	return (si->si_status & 0x7f) | (si->si_code == CLD_DUMPED ? 0x80 : 0);
}

static int collect(struct proc *p, int *status, struct err *err)
{
	siginfo_t si = {0};
	int r;

	do
		r = waitid(P_PIDFD, (id_t)p->pidfd, &si, WEXITED);
	while (r < 0 && errno == EINTR);
	if (r < 0 && errno != ECHILD)
		return err_errno(err, errno, "wait for process %d", (int)p->pid);
	*status = r < 0 ? -1 : status_of(&si);
	return 0;
}

int proc_wait(struct proc *p, int64_t deadline_ms, int *status, struct err *err)
{
	int64_t until = until_of(deadline_ms);
	struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};

	assert(p->pidfd >= 0);
	for (;;) {
		int ms = poll_ms(until);
		int r = poll(&pfd, 1, ms);

		if (r < 0 && errno != EINTR)
			return err_errno(err, errno, "wait for process %d", (int)p->pid);
		if (r > 0)
			return collect(p, status, err);
		if (r == 0 && ms == 0)
			return 1;
	}
}

/* Takes what is there; false at the end of the pipe. A full buffer is drained into nothing, so that
 * the helper ends instead of blocking. */
static bool take_output(int fd, struct buf *out)
{
	char chunk[PROC_CHUNK];
	size_t room;
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0)
		return false;
	room = out->max - out->n;
	buf_add(out, chunk, MIN((size_t)n, room));
	if ((size_t)n > room)
		out->full = true;
	return true;
}

static bool is_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* Until the process has ended (0) or the time has come (1). */
static int pump(struct proc *p, int fd, int64_t until, const struct proc_look *look,
                struct buf *out, struct err *err)
{
	bool open = true;

	for (;;) {
		struct pollfd fds[2] = {{.fd = p->pidfd, .events = POLLIN},
		                        {.fd = open ? fd : -1, .events = POLLIN}};
		int left = poll_ms(until);
		int ms = look == NULL || (left >= 0 && left < PROC_LOOK_MS) ? left : PROC_LOOK_MS;
		int r = poll(fds, 2, ms);

		if (r < 0 && errno != EINTR)
			return err_errno(err, errno, "wait for process %d", (int)p->pid);
		if (look != NULL && !look->more(look->arg, out))
			return err_set(err, ERR_CANCELED, "given up");
		if (r <= 0) {
			if (r == 0 && left == 0)
				return 1;
			continue;
		}
		if (open && fds[1].revents != 0)
			open = take_output(fd, out);
		if (fds[0].revents != 0)
			break;
	}
	for (int i = 0; open && i < PROC_DRAIN_MAX && is_ready(fd); i++)
		open = take_output(fd, out);
	return 0;
}

/* Input as a file in memory: no second pipe to feed, no SIGPIPE when it is not read. */
static int input_fd(struct str in, struct err *err)
{
	AUTO_FD int fd = memfd_create("stdin", MFD_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "create the input of a helper");
	if (fs_write_all(fd, in.p, in.n, err) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "write the input of a helper");
	return TAKE_FD(fd);
}

static int run(const char *const *argv, struct str in, int64_t deadline_ms,
               const struct proc_look *look, struct buf *out, int *exit_code, struct err *err)
{
	int64_t until = until_of(deadline_ms);
	AUTO_FD int in_fd = -1, out_r = -1, out_w = -1, pidfd = -1;
	struct proc_fd fds[3];
	struct proc_spec spec = {.argv = argv,
	                         .fds = fds,
	                         .umask_bits = -1,
	                         .new_session = true,
	                         .die_with_parent = true};
	struct proc p;
	int ends[2], status = 0, r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(err, errno, "%s: pipe for its output", argv[0]);
	out_r = ends[0];
	out_w = ends[1];
	fds[spec.n_fds++] = (struct proc_fd){out_w, 1};
	fds[spec.n_fds++] = (struct proc_fd){out_w, 2};
	if (in.n > 0) {
		in_fd = input_fd(in, err);
		if (in_fd < 0)
			return err_wrap(err, "%s", argv[0]);
		fds[spec.n_fds++] = (struct proc_fd){in_fd, 0};
	}
	if (fcntl(out_r, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(err, errno, "%s: pipe for its output", argv[0]);
	if (proc_spawn(&spec, &p, err) < 0)
		return -1;
	pidfd = p.pidfd;
	close_end(&out_w);
	r = pump(&p, out_r, until, look, out, err);
	/* Before it is waited for, so its number cannot be another group's: what it left behind
	 * goes too. */
	(void)kill(-p.pid, SIGKILL);
	if (r < 0) {
		reap(p.pid);
		return err_wrap(err, "%s", argv[0]);
	}
	if (collect(&p, &status, err) < 0)
		return err_wrap(err, "%s", argv[0]);
	if (r == 1)
		return err_set(err, ERR_TIMEOUT,
		               "%s: still running after %" PRId64 " ms and was killed", argv[0],
		               deadline_ms);
	*exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return 0;
}

int proc_run(const char *const *argv, struct str in, int64_t deadline_ms, struct buf *out,
             int *exit_code, struct err *err)
{
	return run(argv, in, deadline_ms, NULL, out, exit_code, err);
}

int proc_run_look(const char *const *argv, int64_t deadline_ms, const struct proc_look *look,
                  struct buf *out, int *exit_code, struct err *err)
{
	return run(argv, (struct str){0}, deadline_ms, look, out, exit_code, err);
}

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

void proc_guard(void)
{
	struct rlimit none;

	(void)prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_CORE, &none) == 0) {
		none.rlim_cur = 0;
		(void)setrlimit(RLIMIT_CORE, &none);
	}
}

const char *proc_find(const char *name, char out[4096])
{
	const char *env = getenv("PATH");
	struct str path = str_of(env != NULL && env[0] != '\0' ? env : PATH_DEFAULT);
	struct str dir;

	if (strchr(name, '/') != NULL) {
		int n = snprintf(out, 4096, "%s", name);

		return n > 0 && n < 4096 && is_program(out) ? out : NULL;
	}
	if (name[0] == '\0')
		return NULL;
	while (str_cut(&path, ':', &dir)) {
		int n;

		if (dir.n == 0 || dir.p[0] != '/')
			continue; /* "here" is no place to take programs from */
		n = snprintf(out, 4096, "%.*s/%s", STR_ARG(dir), name);
		if (n > 0 && n < 4096 && is_program(out))
			return out;
	}
	return NULL;
}

/* State and start time out of /proc/PID/stat. The name in it may hold anything, also ')'. */
static int read_stat(pid_t pid, char *state, uint64_t *start_ticks, struct err *err)
{
	AUTO_BUF struct buf b = BUF_INIT(PROC_STAT_MAX);
	struct str rest, field = {0};
	char path[40];
	const char *close;

	FMT(path, "/proc/%d/stat", (int)pid);
	if (fs_read(AT_FDCWD, path, &b, err) < 0)
		return -1;
	close = b.n > 0 ? memrchr(b.p, ')', b.n) : NULL;
	if (close == NULL)
		return err_set(err, ERR_CORRUPT, "%s: unexpected content", path);
	rest = str_trim(str_skip(buf_view(&b), (size_t)(close - b.p) + 1));
	*state = rest.n > 0 ? rest.p[0] : '?';
	for (int i = 3; i <= 22; i++) { /* fields count from 1; 3 is the state */
		if (!str_cut(&rest, ' ', &field))
			return err_set(err, ERR_CORRUPT, "%s: field %d is missing", path, i);
	}
	return str_u64(field, 0, UINT64_MAX, start_ticks, err);
}

static int read_boot(char out[PROC_BOOT_CAP], struct err *err)
{
	AUTO_BUF struct buf b = BUF_INIT(256);

	if (fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &b, err) < 0)
		return -1;
	return str_copy(str_trim(buf_view(&b)), out, PROC_BOOT_CAP, "boot id", err);
}

int proc_identify(pid_t pid, struct proc_id *out, struct err *err)
{
	struct proc_id id = {.pid = pid};
	char state;

	assert(pid > 0);
	if (read_stat(pid, &state, &id.start_ticks, err) < 0)
		return err_wrap(err, "process %d", (int)pid);
	if (read_boot(id.boot, err) < 0)
		return -1;
	*out = id;
	return 0;
}

bool proc_alive(const struct proc_id *id)
{
	struct err ignored = {0};
	char boot[PROC_BOOT_CAP], state;
	uint64_t start;

	if (id->pid <= 0 || read_stat(id->pid, &state, &start, &ignored) < 0)
		return false;
	if (state == 'Z' || state == 'X' || state == 'x' || start != id->start_ticks)
		return false;
	return read_boot(boot, &ignored) == 0 && strcmp(boot, id->boot) == 0;
}
