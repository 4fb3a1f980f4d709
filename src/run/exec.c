/* exec.c - commands inside: started, their output sent, their end; see exec.h. */
#include "run/exec_inner.h"

#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#define CHUNK (RESUMABLE_CHUNK_MAX / 2) /* of each side at a time: two are one body */
#define REFUSALS 4                      /* commands beyond EXECS_AT_ONCE that are told so */
#define LOOK_MS 500                     /* how often what nobody announces is looked for */
#define DRAIN_MS 300                    /* for a terminal's last bytes; a pipe has them at once */
#define DRAIN_MAX                                                                                  \
	((size_t)1 << 20) /* after its end: something it left behind may print for ever            \
	                   */
#define KILL_MS 10000     /* from SIGKILL until it is given up */
#define REFUSED 126

struct execs {
	struct exec_options o;
	struct command one[EXECS_AT_ONCE + REFUSALS];
};

/* One of the two things that a command prints to. */
struct side {
	int fd; /* -1 = closed */
	enum frame_kind kind;
	struct redact_stream stream;
};

struct pump {
	struct command *c;
	struct side side[2];
	struct buf chunk;  /* room to read into */
	struct buf frames; /* to be sent */
	uint64_t sent;     /* bytes of frames that the server has */
	bool ended;
	int status;
	int64_t ended_ms, hung_ms;
	size_t drained; /* bytes since it ended */
};

/* What is true of a place between two calls. */
static void command_check(const struct command *c)
{
	assert(!c->used || (c->magic == COMMAND_MAGIC && c->a != NULL && c->wake_fd >= 0 &&
	                    c->what.id != NULL));
}

static void add_frame(struct pump *p, enum frame_kind kind, const struct buf *bytes)
{
	if (bytes->n > 0)
		frame_put(&p->frames, kind, buf_view(bytes));
}

/* Nobody wants what is printed once it is not live. */
static void send_frames(struct pump *p, int exit_code)
{
	struct command *c = p->c;
	enum wire_exec_state state = (enum wire_exec_state)c->state;

	if (state != EXEC_LIVE)
		buf_clear(&p->frames);
	if (p->frames.n == 0 && exit_code < 0)
		return;
	if (report_exec_output(c->o->report, c->what.id, p->sent, buf_view(&p->frames), exit_code,
	                       &c->closing, &state))
		command_heard(c, state);
	else
		command_heard(c, EXEC_HUNG);
	p->sent += p->frames.n;
	buf_clear(&p->frames);
}

static void read_side(struct pump *p, struct side *s)
{
	AUTO_BUF struct buf clean = BUF_INIT(FRAME_BYTES_MAX);
	char *chunk = buf_room(&p->chunk, CHUNK);
	ssize_t n = read(s->fd, chunk, CHUNK);

	if (n > 0) {
		redact_feed(&s->stream, str_n(chunk, (size_t)n), &clean);
		p->drained += p->ended ? (size_t)n : 0;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		s->fd = -1; /* EIO: the last one has left the terminal */
		redact_flush(&s->stream, &clean);
	}
	add_frame(p, s->kind, &clean);
}

static void flush(struct pump *p)
{
	for (size_t i = 0; i < COUNT(p->side); i++) {
		AUTO_BUF struct buf clean = BUF_INIT(FRAME_BYTES_MAX);

		redact_flush(&p->side[i].stream, &clean);
		add_frame(p, p->side[i].kind, &clean);
	}
}

static bool is_held(const struct pump *p)
{
	return p->side[0].stream.held.n > 0 || p->side[1].stream.held.n > 0;
}

/* SIGHUP, then SIGKILL; at once when the job is over. */
static void end_if_told(struct pump *p)
{
	struct command *c = p->c;
	int64_t now = clock_mono_ms();

	assert(p->hung_ms >= 0 && (!p->ended || p->ended_ms > 0 || p->hung_ms > 0));
	if (p->ended || (c->state != EXEC_HUNG && !c->closing))
		return;
	if (p->hung_ms == 0) {
		p->hung_ms = now;
		sandbox_inside_end(&c->in, false);
	}
	if (c->closing || now - p->hung_ms >= SANDBOX_HANGUP_MS)
		sandbox_inside_end(&c->in, true);
	if (now - p->hung_ms >= SANDBOX_HANGUP_MS + KILL_MS) {
		p->ended = true;
		p->status = SIGKILL;
	}
}

static void look_for_end(struct pump *p, bool readable)
{
	struct err err = {0};

	if (!readable || p->ended || proc_wait(&p->c->in.proc, 0, &p->status, &err) != 0)
		return;
	p->ended = true;
	p->ended_ms = clock_mono_ms();
}

/* It has ended: is there nothing more to come? */
static bool is_drained(const struct pump *p, bool quiet)
{
	bool open = p->side[0].fd >= 0 || p->side[1].fd >= 0;

	if (!open || p->hung_ms != 0 || p->drained > DRAIN_MAX)
		return true;
	return quiet && (!p->c->in.tty || clock_mono_ms() - p->ended_ms >= DRAIN_MS);
}

static int wait_ms(const struct pump *p)
{
	if (p->ended)
		return p->c->in.tty ? DRAIN_MS / 10 : 0;
	if (is_held(p))
		return p->c->in.tty ? EXEC_HOLD_TTY_MS : EXEC_HOLD_MS;
	return LOOK_MS;
}

static void pump(struct command *c)
{
	struct pump p = {.c = c,
	                 .side = {{.fd = c->in.out_fd, .kind = FRAME_OUT},
	                          {.fd = c->in.err_fd, .kind = FRAME_ERR}},
	                 .chunk = BUF_INIT(CHUNK),
	                 .frames = BUF_INIT(RESUMABLE_MAX)};
	bool quiet = false;

	for (size_t i = 0; i < COUNT(p.side); i++)
		redact_stream_init(&p.side[i].stream, c->o->redact);
	while (!p.ended || !is_drained(&p, quiet)) {
		struct pollfd f[] = {{.fd = p.side[0].fd, .events = POLLIN},
		                     {.fd = p.side[1].fd, .events = POLLIN},
		                     {.fd = p.ended ? -1 : c->in.proc.pidfd, .events = POLLIN}};

		quiet = poll(f, COUNT(f), wait_ms(&p)) == 0;
		for (size_t i = 0; i < COUNT(p.side); i++) {
			if (p.side[i].fd >= 0 && f[i].revents != 0)
				read_side(&p, &p.side[i]);
		}
		if (quiet && is_held(&p))
			flush(&p);
		send_frames(&p, -1);
		look_for_end(&p, f[2].revents != 0);
		end_if_told(&p);
	}
	flush(&p);
	send_frames(&p, WIFEXITED(p.status) ? WEXITSTATUS(p.status) : 128 + WTERMSIG(p.status));
	for (size_t i = 0; i < COUNT(p.side); i++)
		redact_stream_done(&p.side[i].stream);
	buf_done(&p.chunk);
	buf_done(&p.frames);
}

/* Words instead of a command. */
static void refuse(struct command *c, const char *words)
{
	AUTO_BUF struct buf clean = BUF_INIT(64 << 10), frame = BUF_INIT(64 << 10);
	enum wire_exec_state state = EXEC_LIVE;

	redact_text(c->o->redact, str_of(words), &clean);
	buf_putc(&clean, '\n');
	frame_put(&frame, FRAME_ERR, buf_view(&clean));
	(void)report_exec_output(c->o->report, c->what.id, 0, buf_view(&frame), REFUSED,
	                         &c->closing, &state); /* else there is nobody to tell */
}

static void *run(void *arg)
{
	struct command *c = FROM_VOID(struct command, arg, COMMAND_MAGIC);
	const struct exec_options *o = c->o;
	struct sandbox_entry e = {
		.env = o->env, .n_env = o->n_env, .workdir = o->workdir, .what = &c->what};
	struct err err = {0};

	if (c->refused)
		refuse(c, "stoker: this job already runs as many commands as allowed");
	else if (sandbox_enter(o->sandbox, &e, &c->in, &err) < 0)
		refuse(c, err.msg);
	else {
		command_feed_start(c);
		pump(c);
		command_feed_stop(c);
		sandbox_inside_done(&c->in);
	}
	c->ended = true;
	return NULL;
}

static void release(struct command *c)
{
	command_check(c);
	assert(c->used);
	(void)pthread_join(c->thread, NULL);
	assert(c->ended); /* its thread has nothing more to do */
	(void)close(c->wake_fd);
	c->wake_fd = -1;
	arena_free(c->a);
	c->a = NULL;
	c->used = false;
}

struct execs *execs_new(const struct exec_options *o)
{
	struct execs *x = xcalloc(1, sizeof(*x));

	x->o = *o;
	return x;
}

static void copy_command(struct command *c, const struct wire_exec *from)
{
	struct wire_exec *to = &c->what;

	c->a = arena_new();
	*to = *from;
	to->id = arena_cstr(c->a, from->id);
	to->term = arena_cstr(c->a, from->term);
	to->argv = ARENA_ARRAY(c->a, const char *, from->n_argv + 1);
	for (size_t i = 0; i < from->n_argv; i++)
		to->argv[i] = arena_cstr(c->a, from->argv[i]);
}

void execs_run(struct execs *x, const struct wire_exec *command)
{
	struct command *c = NULL;
	size_t running = 0;

	for (size_t i = 0; i < COUNT(x->one); i++) {
		command_check(&x->one[i]);
		if (x->one[i].used && x->one[i].ended)
			release(&x->one[i]);
		running += x->one[i].used ? 1 : 0;
		if (!x->one[i].used)
			c = &x->one[i];
	}
	if (c == NULL)
		return; /* the server says that nobody took it */
	c->magic = COMMAND_MAGIC;
	c->o = &x->o;
	c->refused = running >= EXECS_AT_ONCE;
	c->state = EXEC_LIVE;
	c->ended = c->over = c->closing = false;
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	copy_command(c, command);
	if (c->wake_fd < 0 || pthread_create(&c->thread, NULL, run, c) != 0)
		abort();
	c->used = true;
	command_check(c);
}

void execs_free(struct execs *x)
{
	if (x == NULL)
		return;
	for (size_t i = 0; i < COUNT(x->one); i++)
		x->one[i].closing = true;
	for (size_t i = 0; i < COUNT(x->one); i++) {
		if (x->one[i].used)
			release(&x->one[i]);
	}
	free(x);
}
