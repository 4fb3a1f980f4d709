/*
 * sandbox_enter.c - a command inside a running sandbox, beside the job's own: started with its
 * script by descriptor 3 (secrets are in no argument list), on pipes or on a terminal, ended with
 * all of its session.
 */
#include "run/sandbox.h"

#include "base/fs.h"
#include "run/sandbox_exec.h"
#include "run/env.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <termios.h>

#define READY_MS 20000 /* for a terminal from inside */
#define WHY_MS 2000    /* for the words of what could not start */
#define STAT_MAX 1024
#define PIPE_BYTES (1 << 18)

#define ENTER_BODY "read -r n <&3 && s=$(head -c \"$n\" <&3) && eval \"$s\""

/* Both ends of all that a command may have. */
struct ends {
	int in[2], out[2], err[2], script[2], tty[2];
};
#define ENDS                                                                                       \
	{                                                                                          \
		{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1},                                            \
		{                                                                                  \
			-1, -1                                                                     \
		}                                                                                  \
	}

static void ends_done(struct ends *e)
{
	int *all[] = {e->in, e->out, e->err, e->script, e->tty};

	for (size_t i = 0; i < COUNT(all); i++) {
		close_fd_p(&all[i][0]);
		close_fd_p(&all[i][1]);
	}
}

static int make_pipe(int ends[2], struct err *err)
{
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(err, errno, "pipe");
	(void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* over the user's quota: stays small */
	return 0;
}

/* Ours, in front of a client that makes the one inside: it must not echo what that one echoes. */
static int make_terminal(int ends[2], const struct wire_exec *x, struct err *err)
{
	struct winsize w = {.ws_row = (unsigned short)x->rows,
	                    .ws_col = (unsigned short)x->columns};
	struct termios t;
	int unlock = 0;

	ends[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (ends[0] < 0)
		return err_errno(err, errno, "/dev/ptmx");
	if (ioctl(ends[0], TIOCSPTLCK, &unlock) < 0 || ioctl(ends[0], TIOCSWINSZ, &w) < 0)
		return err_errno(err, errno, "a terminal");
	ends[1] = ioctl(ends[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (ends[1] < 0 || tcgetattr(ends[1], &t) < 0)
		return err_errno(err, errno, "open the terminal");
	cfmakeraw(&t);
	return tcsetattr(ends[1], TCSANOW, &t) < 0 ? err_errno(err, errno, "a raw terminal") : 0;
}

static int make_ends(struct ends *e, const struct sandbox *s, const struct wire_exec *x,
                     struct err *err)
{
	if (make_pipe(e->script, err) < 0)
		return -1;
	if (x->tty && s->ops->remote)
		return make_terminal(e->tty, x, err);
	if (x->tty && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->tty) < 0)
		return err_errno(err, errno, "socket");
	if ((x->input && !x->tty && make_pipe(e->in, err) < 0) || make_pipe(e->err, err) < 0)
		return -1;
	return x->tty ? 0 : make_pipe(e->out, err);
}

static int own_ends(const struct ends *e, const struct sandbox *s, struct err *err)
{
	int all[] = {e->in[0], e->out[0], e->err[0], e->script[0]};

	for (size_t i = 0; i < COUNT(all); i++) {
		if (all[i] >= 0 && sandbox_own(s, all[i], err) < 0)
			return -1;
	}
	return 0;
}

static bool has_variable(const struct sandbox_entry *e, const char *name)
{
	for (size_t i = 0; i < e->n_env; i++) {
		if (strcmp(e->env[i].name, name) == 0)
			return true;
	}
	return false;
}

/* The shell that the job's environment names, when it is there, else bash, else sh. */
static void put_shell(const struct sandbox_entry *e, struct buf *out)
{
	if (!has_variable(e, "SHELL"))
		buf_puts(out, "SHELL=\n");
	buf_puts(out, "command -v \"$SHELL\" >/dev/null 2>&1 || "
	              "SHELL=$(command -v bash || command -v sh)\n"
	              "export SHELL\nexec \"$SHELL\"");
}

static void make_script(const struct sandbox *s, const struct sandbox_entry *e, struct buf *out)
{
	if (!s->ops->images)
		env_forget(out);
	env_script(e->env, e->n_env, out);
	if (e->what->term != NULL) {
		buf_puts(out, "export TERM=");
		buf_shell(out, e->what->term);
		buf_putc(out, '\n');
	}
	if (e->workdir != NULL) {
		buf_puts(out, "cd ");
		buf_shell(out, e->workdir);
		buf_puts(out, " || exit 1\n");
	}
	/* Ending the client does not end the command: something beside it waits for a word, or for
	 * the end of the runner. */
	if (s->ops->remote)
		buf_printf(out,
		           "( (read -r w <&3 || for n in HUP KILL; do kill -$n -$$ || kill -$n $$; "
		           "sleep %d; done) </dev/null >/dev/null 2>&1 & )\n",
		           SANDBOX_HANGUP_MS / 1000);
	buf_puts(out, "unset n s\n");
	if (e->what->n_argv > 0)
		buf_puts(out, "exec");
	else
		put_shell(e, out);
	for (size_t i = 0; i < e->what->n_argv; i++) {
		buf_putc(out, ' ');
		buf_shell(out, e->what->argv[i]);
	}
	buf_puts(out, " 3<&-\n");
}

static int spawn(struct sandbox *s, const struct wire_exec *x, const struct ends *e,
                 struct proc *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const char *size = x->tty ? arena_printf(a, "%ux%u", x->rows, x->columns) : NULL;
	const char **front = s->ops->enter(s, a, size);
	bool outer = x->tty && s->ops->remote;
	int in = outer ? e->tty[1] : e->in[0] >= 0 ? e->in[0] : null_fd;
	int err_fd = outer ? e->tty[1] : e->err[1];
	struct proc_fd fds[] = {{in, 0},
	                        {outer            ? e->tty[1]
	                         : e->out[1] >= 0 ? e->out[1]
	                                          : err_fd,
	                         1},
	                        {err_fd, 2},
	                        {e->script[0], 3},
	                        {s->shell_fd, SANDBOX_EXEC_ENTER_FD},
	                        {e->tty[1], SANDBOX_EXEC_TTY_FD}};
	struct proc_fd all[PROC_FDS_MAX];
	struct proc_spec spec = {.cwd = "/",
	                         .envp = env_of_sandbox(a),
	                         .fds = all,
	                         .n_fds =
	                                 sandbox_fds(s, fds, COUNT(fds) - !(x->tty && !outer), all),
	                         .new_session = true,
	                         .die_with_parent = true, /* this thread waits for its end */
	                         .umask_bits = 022};
	size_t n = 0;

	while (front[n] != NULL)
		n++;
	spec.argv = sandbox_shell_argv(a, front, n, ENTER_BODY);
	return proc_spawn(&spec, out, err);
}

/* Reads its message from before it became the command. */
static int why(int fd, struct err *err)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[200];
	ssize_t n = poll(&p, 1, WHY_MS) > 0 ? read(fd, text, sizeof(text) - 1) : 0;

	if (n <= 0)
		return -1;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	err_clear(err);
	return err_set(err, ERR_UNAVAILABLE, "%s", text);
}

/* The ends that are ours, when the other ones are the command's. */
static int take_ends(struct ends *e, const struct wire_exec *x, bool outer,
                     struct sandbox_inside *out, struct err *err)
{
	int master = -1;

	out->tty = x->tty;
	if (!x->tty) {
		out->in_fd = TAKE_FD(e->in[1]);
		out->out_fd = TAKE_FD(e->out[0]);
		out->err_fd = TAKE_FD(e->err[0]);
	} else {
		if (outer)
			master = TAKE_FD(e->tty[0]);
		else if (sandbox_exec_tty_receive(e->tty[0], READY_MS, &master, err) < 0)
			return why(e->err[0], err);
		out->out_fd = master;
		out->in_fd = fcntl(master, F_DUPFD_CLOEXEC, 3);
		if (out->in_fd < 0)
			return err_errno(err, errno, "the terminal's input");
	}
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? out->in_fd : i == 1 ? out->out_fd : out->err_fd;

		if (fd >= 0)
			(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	}
	return 0;
}

static int send_script(struct sandbox *s, const struct sandbox_entry *entry, struct ends *e,
                       struct sandbox_inside *out, struct err *err)
{
	AUTO_BUF struct buf script = BUF_INIT(SANDBOX_SCRIPT_MAX),
			    body = BUF_INIT(SANDBOX_SCRIPT_MAX);

	make_script(s, entry, &script);
	buf_printf(&body, "%zu\n", script.n);
	buf_str(&body, buf_view(&script));
	if (buf_check(&body, "command and environment", err) < 0 ||
	    fs_write_all(e->script[1], body.p, body.n, err) < 0)
		return -1;
	if (s->ops->remote)
		out->kill_fd = TAKE_FD(e->script[1]);
	return 0;
}

int sandbox_enter(struct sandbox *s, const struct sandbox_entry *entry, struct sandbox_inside *out,
                  struct err *err)
{
	struct ends e CLEANUP(ends_done) = ENDS;
	bool outer = entry->what->tty && s->ops->remote;
	int *theirs[] = {&e.in[0], &e.out[1], &e.err[1], &e.script[0], &e.tty[1]};

	*out = (struct sandbox_inside){.proc = {.pid = -1, .pidfd = -1},
	                               .in_fd = -1,
	                               .out_fd = -1,
	                               .err_fd = -1,
	                               .kill_fd = -1};
	if (make_ends(&e, s, entry->what, err) < 0 || own_ends(&e, s, err) < 0 ||
	    spawn(s, entry->what, &e, &out->proc, err) < 0)
		return err_wrap(err, "entering the sandbox");
	for (size_t i = 0; i < COUNT(theirs); i++) {
		close_fd_p(theirs[i]);
		*theirs[i] = -1;
	}
	if (take_ends(&e, entry->what, outer, out, err) < 0 ||
	    send_script(s, entry, &e, out, err) < 0) {
		int status = 0;
		struct err ignored = {0};

		(void)pidfd_send_signal(out->proc.pidfd, SIGKILL, NULL, 0);
		(void)!proc_wait(&out->proc, WHY_MS, &status, &ignored);
		sandbox_inside_done(out);
		return err_wrap(err, "entering the sandbox");
	}
	return 0;
}

void sandbox_inside_size(struct sandbox_inside *in, uint32_t rows, uint32_t columns)
{
	struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};

	if (!in->tty || in->in_fd < 0)
		return;
	(void)ioctl(in->in_fd, TIOCSWINSZ, &w); /* its end may be closed */
	if (in->kill_fd >= 0)                   /* the client leads no session on that terminal */
		(void)pidfd_send_signal(in->proc.pidfd, SIGWINCH, NULL, 0);
}

/* Parent and session of a process, 0 when it is gone. */
static void look(pid_t pid, pid_t *parent, pid_t *session)
{
	AUTO_BUF struct buf text = BUF_INIT(STAT_MAX);
	char path[40];
	struct str rest, word;
	const char *after;
	struct err err = {0};

	*parent = *session = 0;
	FMT(path, "/proc/%d/stat", (int)pid);
	if (fs_read(AT_FDCWD, path, &text, &err) < 0)
		return;
	after = memrchr(text.p, ')', text.n); /* its name may hold anything */
	if (after == NULL)
		return;
	rest = str_trim(str_skip(buf_view(&text), (size_t)(after - text.p) + 1));
	for (int i = 0; i < 4 && str_cut(&rest, ' ', &word); i++) {
		struct err no = {0}; /* one that is about to vanish has -1 as group and session */
		uint64_t n = 0;

		if (i == 0 || str_u64(word, 0, INT_MAX, &n, &no) < 0)
			continue; /* its state */
		if (i == 1)
			*parent = (pid_t)n;
		if (i == 3)
			*session = (pid_t)n;
	}
}

/* sandbox-exec stays outside of a pid namespace and waits for its child, which leads the session
 * when there is a terminal. */
static void signal_session(pid_t outer, int sig)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t child = 0;

	if (d == NULL)
		return;
	for (int round = 0; round < 2; round++) {
		rewinddir(d);
		while ((e = readdir(d)) != NULL) {
			pid_t pid = (pid_t)strtol(e->d_name, NULL, 10), parent, session;

			if (pid <= 0)
				continue;
			look(pid, &parent, &session);
			if (round == 0) {
				child = parent == outer ? pid : child;
				continue;
			}
			if (session == 0 || (session != outer && session != child))
				continue;
			if (pid != outer || child == 0 || sig == SIGKILL)
				(void)kill(pid, sig);
		}
	}
	(void)closedir(d);
}

void sandbox_inside_end(struct sandbox_inside *in, bool now)
{
	if (in->kill_fd >= 0) {
		(void)close(TAKE_FD(in->kill_fd)); /* what holds it there does the rest, */
		return;                            /* in the same time */
	}
	if (in->proc.pid <= 0)
		return;
	signal_session(in->proc.pid, now ? SIGKILL : SIGHUP);
	if (!now)
		signal_session(in->proc.pid, SIGCONT); /* a stopped one hears nothing */
}

void sandbox_inside_done(struct sandbox_inside *in)
{
	int *all[] = {&in->in_fd, &in->out_fd, &in->err_fd, &in->kill_fd, &in->proc.pidfd};

	if (in->kill_fd >= 0)
		(void)!write(in->kill_fd, "end\n", 4); /* what it started may stay */
	for (size_t i = 0; i < COUNT(all); i++) {
		close_fd_p(all[i]);
		*all[i] = -1;
	}
}
