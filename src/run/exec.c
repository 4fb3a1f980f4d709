/* exec.c - one thread a command: start it inside, send what it prints, its exit code last. */
#include "run/exec.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define CHUNK ((size_t)64 << 10)
#define BATCH_MS 50
#define END_MS 2000
#define REFUSED 126

struct one {
	struct execs *all;
	char *id;
	char **argv;
	size_t n_argv;
	pthread_t thread;
	bool used;
	atomic_bool ended;
};

struct execs {
	struct exec_options o;
	struct one one[EXECS_AT_ONCE];
};

static void send_text(struct one *c, struct str raw, bool done, int code)
{
	AUTO_BUF struct buf clean = BUF_INIT(8 * CHUNK);

	redact_text(c->all->o.redact, raw, &clean);
	report_exec_output(c->all->o.report, c->id, buf_view(&clean), done, code);
}

/* Sends in batches; a secret that is split over two of them is held back by the stream. */
static void pump(struct one *c, int fd, struct proc *p)
{
	struct redact_stream stream;
	AUTO_BUF struct buf out = BUF_INIT(EXEC_OUTPUT_MAX);
	uint64_t total = 0;
	bool more = true;

	redact_stream_init(&stream, c->all->o.redact);
	while (more) {
		struct pollfd f = {.fd = fd, .events = POLLIN};
		int got = poll(&f, 1, out.n > 0 ? BATCH_MS : 1000);
		char chunk[8192];
		ssize_t n = got > 0 ? read(fd, chunk, sizeof(chunk)) : -1;

		if (got > 0 && n == 0)
			more = false;
		if (n > 0) {
			total += (uint64_t)n;
			redact_feed(&stream, str_n(chunk, (size_t)n), &out);
		}
		if (total > EXEC_OUTPUT_MAX) {
			(void)pidfd_send_signal(p->pidfd, SIGKILL, NULL, 0);
			buf_puts(&out, "\n[too much output: ended]\n");
			more = false;
		}
		if (!more)
			redact_flush(&stream, &out);
		if (out.n >= CHUNK || (out.n > 0 && (got == 0 || !more))) {
			report_exec_output(c->all->o.report, c->id, buf_view(&out), false, 0);
			buf_clear(&out);
		}
	}
	redact_stream_done(&stream);
}

static void *run(void *arg)
{
	struct one *c = arg;
	const struct exec_options *o = &c->all->o;
	const char *const *argv = (const char *const *)(uintptr_t)c->argv;
	struct proc p = {.pid = -1, .pidfd = -1};
	int fd[2] = {-1, -1}, status = 0;
	struct err err = {0};
	bool failed = false;

	if (pipe2(fd, O_CLOEXEC) < 0)
		failed = err_errno(&err, errno, "pipe") < 0;
	else
		failed = sandbox_enter(o->sandbox, o->env, o->n_env, o->workdir, argv, c->n_argv,
		                       fd[1], &p, &err) < 0;
	close_fd_p(&fd[1]);
	if (failed) {
		AUTO_BUF struct buf text = BUF_INIT(4096);

		buf_printf(&text, "%s\n", err.msg);
		send_text(c, buf_view(&text), true, REFUSED);
	} else {
		pump(c, fd[0], &p);
		/* it may have closed its output and gone on */
		if (proc_wait(&p, END_MS, &status, &err) != 0) {
			(void)pidfd_send_signal(p.pidfd, SIGKILL, NULL, 0);
			err_clear(&err);
			if (proc_wait(&p, END_MS, &status, &err) != 0)
				status = SIGKILL;
		}
		(void)close(p.pidfd);
		report_exec_output(o->report, c->id, (struct str){0}, true,
		                   WIFEXITED(status) ? WEXITSTATUS(status)
		                                     : 128 + WTERMSIG(status));
	}
	close_fd_p(&fd[0]);
	c->ended = true;
	return NULL;
}

static void release(struct one *c)
{
	(void)pthread_join(c->thread, NULL);
	for (size_t i = 0; i < c->n_argv; i++)
		free(c->argv[i]);
	free(c->argv);
	free(c->id);
	c->used = false;
}

struct execs *execs_new(const struct exec_options *o)
{
	struct execs *x = xcalloc(1, sizeof(*x));

	x->o = *o;
	return x;
}

void execs_run(struct execs *x, const struct wire_exec *command)
{
	struct one *c = NULL;

	for (size_t i = 0; i < EXECS_AT_ONCE; i++) {
		if (x->one[i].used && x->one[i].ended)
			release(&x->one[i]);
		if (!x->one[i].used)
			c = &x->one[i];
	}
	if (c == NULL) {
		report_exec_output(x->o.report, command->id,
		                   STR_LIT("too many commands run in this job already\n"), true,
		                   REFUSED);
		return;
	}
	c->all = x;
	c->ended = false;
	c->id = xstrdup(command->id);
	c->n_argv = command->n_argv;
	c->argv = xcalloc(command->n_argv, sizeof(*c->argv));
	for (size_t i = 0; i < command->n_argv; i++)
		c->argv[i] = xstrdup(command->argv[i]);
	if (pthread_create(&c->thread, NULL, run, c) != 0)
		abort();
	c->used = true;
}

void execs_free(struct execs *x)
{
	if (x == NULL)
		return;
	for (size_t i = 0; i < EXECS_AT_ONCE; i++) {
		if (x->one[i].used)
			release(&x->one[i]);
	}
	free(x);
}
