/* exec.c - commands inside: started, given their input, their output sent, their end; see exec.h.
 */
#include "run/exec.h"

#include "base/clock.h"
#include "base/log.h"
#include "io/line.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define CHUNK ((size_t)32 << 10) /* of each side at a time */
#define REFUSALS 4               /* commands beyond EXECS_AT_ONCE that are told so */
#define LOOK_MS 500              /* how often what nobody announces is looked for */
#define DRAIN_MS 300             /* for a terminal's last bytes; a pipe has them at once */
/* After its end: something that it left behind may print for ever. */
#define DRAIN_MAX ((size_t)1 << 20)
#define KILL_MS 10000 /* from SIGKILL until it is given up */
#define LAST_MS 1000  /* for its last words to arrive, once the job is over */
#define REFUSED 126
#define VEOF_BYTE "\004"

struct command {
	unsigned magic;
#define COMMAND_MAGIC 0x52434f4dU
	const struct exec_options *o;
	struct arena *a; /* of what */
	struct wire_exec what;
	bool used, refused;
	pthread_t thread;
	struct sandbox_inside in;
	atomic_bool closing; /* the job is over */
	atomic_bool ended;   /* the thread has nothing more to do */
};

struct execs {
	struct exec_options o;
	struct command one[EXECS_AT_ONCE + REFUSALS];
};

/* One of the two things that a command prints to. */
struct side {
	int fd; /* -1 = closed */
	enum frame_kind kind;
	struct redact_stream stream;
	struct buf clean; /* for which there was no room yet */
};

enum person {
	PERSON_HERE, /* or comes back */
	PERSON_GONE, /* the command is hung up */
	PERSON_LEFT, /* it goes on alone */
};

struct pump {
	struct command *c;
	struct line line;
	enum person person;
	struct side side[2];
	struct buf chunk; /* room to read into */
	bool ended, told; /* told: its exit code is on the way */
	int status;
	int64_t ended_ms, hung_ms, closing_ms;
	int64_t lost_ms; /* since when the connection is being made again; 0: it is there */
	size_t drained;  /* bytes since it ended */
};

/* What is true of a place between two calls. */
static void command_check(const struct command *c)
{
	assert(!c->used || (c->magic == COMMAND_MAGIC && c->a != NULL && c->what.id != NULL));
}

/* The connection */

static void leave(struct pump *p, enum person how)
{
	if (p->person == PERSON_HERE)
		p->person = how;
	line_cut(&p->line);
}

static void connect_if_due(struct pump *p)
{
	struct command *c = p->c;
	struct upgrade *u = NULL;
	struct err err = {0};
	int status;

	if (p->person != PERSON_HERE || line_wait_ms(&p->line) > 0)
		return;
	p->lost_ms = p->lost_ms == 0 ? clock_mono_ms() : p->lost_ms;
	if (report_exec_open(c->o->report, c->what.id, &c->closing, &u, &status, &err) == 0) {
		line_begin(&p->line, u);
		p->lost_ms = 0;
	} else if (clock_mono_ms() - p->lost_ms > LINE_AWAY_MS) { /* its person hears nothing */
		leave(p, PERSON_GONE);
	} else if (status == 400 || status == 426 || report_status_refuses(status)) {
		log_info("command %s: %s", c->what.id, err.msg);
		leave(p, PERSON_GONE);
	} else {
		line_failed(&p->line);
	}
}

static void hear(struct pump *p)
{
	struct resumable *r = &p->line.r;

	line_tend(&p->line);
	if (r->sized)
		sandbox_inside_size(&p->c->in, r->rows, r->columns);
	r->sized = false;
	if (r->hang_up || r->leave)
		leave(p, r->hang_up ? PERSON_GONE : PERSON_LEFT);
}

/* What it prints */

/* As frames, as far as there is room; nobody wants it once its person is not here. */
static void put(struct pump *p, struct side *s)
{
	struct resumable *r = &p->line.r;

	while (s->clean.n > 0 && p->person == PERSON_HERE && resumable_room(r) > 0) {
		size_t n = MIN(s->clean.n, resumable_room(r));

		resumable_put(r, s->kind, str_n(s->clean.p, n));
		buf_drop(&s->clean, n);
	}
	if (p->person != PERSON_HERE)
		buf_clear(&s->clean);
}

static void read_side(struct pump *p, struct side *s)
{
	char *chunk = buf_room(&p->chunk, CHUNK);
	ssize_t n = read(s->fd, chunk, CHUNK);

	if (n > 0) {
		redact_feed(&s->stream, str_n(chunk, (size_t)n), &s->clean);
		p->drained += p->ended ? (size_t)n : 0;
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		s->fd = -1; /* EIO: the last one has left the terminal */
		redact_flush(&s->stream, &s->clean);
	}
	put(p, s);
}

static void flush(struct pump *p)
{
	for (size_t i = 0; i < COUNT(p->side); i++) {
		redact_flush(&p->side[i].stream, &p->side[i].clean);
		put(p, &p->side[i]);
	}
}

static bool is_held(const struct pump *p)
{
	return p->side[0].stream.held.n > 0 || p->side[1].stream.held.n > 0;
}

static bool is_put(const struct pump *p)
{
	return p->side[0].clean.n == 0 && p->side[1].clean.n == 0;
}

/* What it is given. It stays where it is while the command does not read it, and that holds up the
 * sender: a command that has closed its stdin reads no more of it, however long it still runs. */

static struct str next_input(const struct pump *p, enum frame_kind *kind)
{
	struct str bytes = {0};

	if (p->ended || !resumable_next(&p->line.r, kind, &bytes))
		*kind = FRAME_WAIT;
	else if (*kind == FRAME_END && p->c->in.tty)
		bytes = STR_LIT(VEOF_BYTE);
	return bytes;
}

static void write_input(struct pump *p)
{
	struct sandbox_inside *in = &p->c->in;
	enum frame_kind kind;
	struct str bytes;
	ssize_t n = 0;

	while (in->in_fd >= 0 && n >= 0) {
		bytes = next_input(p, &kind);
		if (kind != FRAME_IN && kind != FRAME_END)
			return;
		n = bytes.n == 0 ? 0 : write(in->in_fd, bytes.p, bytes.n);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			(void)close(TAKE_FD(in->in_fd));
		if (n >= 0)
			resumable_use(&p->line.r, kind == FRAME_END ? 0 : (size_t)n);
		if (n >= 0 && kind == FRAME_END && !in->tty)
			(void)close(TAKE_FD(in->in_fd));
	}
}

static struct pollfd poll_input(const struct pump *p)
{
	enum frame_kind kind;
	bool waits = next_input(p, &kind).n > 0;

	return (struct pollfd){.fd = waits ? p->c->in.in_fd : -1, .events = POLLOUT};
}

/* SIGHUP, then SIGKILL; at once when the job is over. */
static void end_if_told(struct pump *p)
{
	struct command *c = p->c;
	int64_t now = clock_mono_ms();

	assert(p->hung_ms >= 0 && (!p->ended || p->ended_ms > 0 || p->hung_ms > 0));
	if (p->ended || (p->person != PERSON_GONE && !c->closing))
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

/* Nobody is waited for any more: the job is over, and its runner wants to end. */
static bool is_late(const struct pump *p)
{
	return p->closing_ms != 0 && clock_mono_ms() - p->closing_ms > LAST_MS;
}

/* It has ended: is there nothing more to come? */
static bool is_drained(const struct pump *p, bool quiet)
{
	bool open = p->side[0].fd >= 0 || p->side[1].fd >= 0;

	if (!open || p->hung_ms != 0 || p->drained > DRAIN_MAX || is_late(p))
		return true;
	return quiet && (!p->c->in.tty || clock_mono_ms() - p->ended_ms >= DRAIN_MS);
}

/* Is there room for more of what it prints? */
static bool has_room(const struct pump *p)
{
	return p->person != PERSON_HERE || (is_put(p) && resumable_room(&p->line.r) > 0);
}

static int wait_ms(const struct pump *p)
{
	int ms = LOOK_MS;

	if (p->ended && has_room(p) && (p->side[0].fd >= 0 || p->side[1].fd >= 0))
		ms = p->c->in.tty ? DRAIN_MS / 10 : 0;
	else if (is_held(p))
		ms = p->c->in.tty ? EXEC_HOLD_TTY_MS : EXEC_HOLD_MS;
	return p->person == PERSON_HERE ? MIN(ms, line_wait_ms(&p->line)) : ms;
}

static void pump_init(struct pump *p, struct command *c)
{
	*p = (struct pump){.c = c,
	                   .line = LINE_INIT,
	                   .side = {{.fd = -1, .kind = FRAME_OUT}, {.fd = -1, .kind = FRAME_ERR}},
	                   .chunk = BUF_INIT(CHUNK)};
	for (size_t i = 0; i < COUNT(p->side); i++) {
		redact_stream_init(&p->side[i].stream, c->o->redact);
		p->side[i].clean = (struct buf)BUF_INIT((size_t)64 << 20);
	}
}

static void pump_done(struct pump *p)
{
	for (size_t i = 0; i < COUNT(p->side); i++) {
		redact_stream_done(&p->side[i].stream);
		buf_done(&p->side[i].clean);
	}
	buf_done(&p->chunk);
	line_done(&p->line);
}

/* One round: what has come, and what can go. *quiet: it prints nothing now. */
static void turn(struct pump *p, bool *quiet)
{
	struct command *c = p->c;
	bool room = has_room(p);
	struct pollfd f[] = {{.fd = room ? p->side[0].fd : -1, .events = POLLIN},
	                     {.fd = room ? p->side[1].fd : -1, .events = POLLIN},
	                     {.fd = p->ended ? -1 : c->in.proc.pidfd, .events = POLLIN},
	                     line_poll(&p->line),
	                     poll_input(p)};

	*quiet = poll(f, COUNT(f), wait_ms(p)) == 0;
	if (c->closing && p->closing_ms == 0)
		p->closing_ms = clock_mono_ms();
	for (size_t i = 0; i < COUNT(p->side); i++) {
		if (f[i].fd >= 0 && f[i].revents != 0)
			read_side(p, &p->side[i]);
		put(p, &p->side[i]);
	}
	if (*quiet && is_held(p))
		flush(p);
	*quiet = *quiet && room;
	connect_if_due(p);
	hear(p);
	write_input(p);
	look_for_end(p, f[2].revents != 0);
	end_if_told(p);
}

/* Until its person has read the last frame, is gone, or the job is over. */
static void see_off(struct pump *p, int code)
{
	char byte = (char)code;
	bool quiet;

	while (p->person == PERSON_HERE && (!p->told || !resumable_all_used(&p->line.r)) &&
	       !is_late(p)) {
		if (!p->told && is_put(p)) {
			resumable_put(&p->line.r, FRAME_EXIT, str_n(&byte, 1));
			p->told = true;
		}
		turn(p, &quiet);
	}
	report_exec_done(p->c->o->report, p->c->what.id);
}

static void pump(struct command *c)
{
	struct pump p;
	bool quiet = false;

	pump_init(&p, c);
	p.side[0].fd = c->in.out_fd;
	p.side[1].fd = c->in.err_fd;
	while (!p.ended || !is_drained(&p, quiet)) {
		turn(&p, &quiet);
		/* what is left to itself has come to the end of its input; a terminal is not
		 * closed: that would hang it up */
		if (p.person == PERSON_LEFT && !c->in.tty && c->in.in_fd >= 0)
			(void)close(TAKE_FD(c->in.in_fd));
	}
	p.side[0].fd = p.side[1].fd = -1;
	flush(&p);
	see_off(&p, WIFEXITED(p.status) ? WEXITSTATUS(p.status) : 128 + WTERMSIG(p.status));
	pump_done(&p);
}

/* Words instead of a command. */
static void refuse(struct command *c, const char *words)
{
	struct pump p;

	pump_init(&p, c);
	p.ended = true;
	p.ended_ms = clock_mono_ms();
	redact_text(c->o->redact, str_of(words), &p.side[1].clean);
	buf_putc(&p.side[1].clean, '\n');
	see_off(&p, REFUSED);
	pump_done(&p);
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
		pump(c);
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
	c->ended = c->closing = false;
	c->in = (struct sandbox_inside){.in_fd = -1, .out_fd = -1, .err_fd = -1, .kill_fd = -1};
	c->a = arena_new();
	wire_exec_copy(&c->what, c->a, command);
	if (pthread_create(&c->thread, NULL, run, c) != 0)
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
