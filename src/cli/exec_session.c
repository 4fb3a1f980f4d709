/* exec_session.c - the loop of `stoker exec`: the connection, the terminal, signals. */
#include "cli/exec_session.h"

#include "base/clock.h"
#include "cli/terminal.h"
#include "core/wire.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#define CHUNK ((size_t)32 << 10)
#define CONNECT_MS 5000
#define ANSWER_MS 10000
#define LAST_MS 5000 /* to tell the other end that we go */
#define PIECE 4096   /* a pipe that is ready takes so much without waiting */
#define LOOK_MS 500
#define EXIT_UNREAD (128 + SIGPIPE) /* as of any program in front of `| head` */

void session_leave(struct session *s, enum session_end how, int code)
{
	if (s->end != SESSION_RUNS)
		return;
	s->end = how;
	s->code = code;
	s->end_ms = clock_mono_ms();
}

static void say_size(struct session *s)
{
	struct terminal_size size = terminal_size();

	if (s->tty)
		resumable_say_size(&s->line.r, (uint16_t)size.rows, (uint16_t)size.columns);
}

static void on_signal(struct session *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGCONT:
		terminal_raw_again();
		say_size(s);
		break;
	case SIGWINCH:
		say_size(s);
		break;
	case SIGINT: /* what comes of half an input is not what was asked for */
		session_leave(s, s->input ? SESSION_HUNG : SESSION_LEFT, CLI_EXIT_DETACHED);
		break;
	default:
		session_leave(s, SESSION_HUNG, 128 + (int)info.ssi_signo);
		break;
	}
}

/* What it is given */

static void on_input(struct session *s)
{
	AUTO_BUF struct buf raw = BUF_INIT(CHUNK);
	char *room = buf_room(&raw, CHUNK);
	ssize_t n = read(0, room, CHUNK);
	struct str typed = str_n(room, n > 0 ? (size_t)n : 0);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	s->eof = n <= 0; /* an error of stdin is its end */
	if (!s->tty)
		buf_str(&s->typed, typed);
	while (s->tty && typed.n > 0) {
		switch (escape_feed(&s->escape, &typed, &s->typed)) {
		case ESCAPE_HANG_UP:
			session_leave(s, SESSION_HUNG, CLI_EXIT_DETACHED);
			return;
		case ESCAPE_HELP:
			(void)fputs("~?\r\n~.  hang up\r\n~~  type a ~\r\n", stderr);
			break;
		case ESCAPE_NOTHING:
			break;
		}
	}
}

static void put_input(struct session *s)
{
	struct resumable *r = &s->line.r;

	while (s->typed.n > 0 && resumable_room(r) > 0) {
		size_t n = MIN(s->typed.n, resumable_room(r));

		resumable_put(r, FRAME_IN, str_n(s->typed.p, n));
		buf_drop(&s->typed, n);
	}
	if (s->input && s->eof && s->typed.n == 0 && !s->eof_sent) {
		resumable_put(r, FRAME_END, (struct str){0});
		s->eof_sent = true;
	}
}

/* What it prints. In pieces: who reads it may have stopped, and Ctrl-C must work still. */

static int fd_of(enum frame_kind kind)
{
	return kind == FRAME_ERR ? 2 : kind == FRAME_OUT ? 1 : -1;
}

static int print(struct session *s, struct err *err)
{
	enum frame_kind kind;
	struct str bytes;

	while (s->end == SESSION_RUNS && resumable_next(&s->line.r, &kind, &bytes)) {
		struct pollfd p = {.fd = fd_of(kind), .events = POLLOUT};
		ssize_t n = 0;

		if (kind == FRAME_EXIT) {
			s->end = SESSION_OVER;
			s->code = bytes.n == 1 ? (uint8_t)bytes.p[0] : 1;
		} else if (p.fd >= 0) {
			if (poll(&p, 1, 0) <= 0)
				return 0;
			n = write(p.fd, bytes.p, MIN(bytes.n, PIECE));
		}
		if (n < 0 && errno == EPIPE) {
			s->unread = true;
			session_leave(s, SESSION_HUNG, EXIT_UNREAD);
		} else if (n < 0 && errno != EINTR && errno != EAGAIN) {
			session_leave(s, SESSION_HUNG, EXIT_UNREAD);
			return err_errno(err, errno, "writing what the command printed");
		} else if (n >= 0) {
			resumable_use(&s->line.r, p.fd >= 0 ? (size_t)n : bytes.n);
		}
	}
	return 0;
}

/* The connection */

/* While it is made: a signal ends that. */
static void look_for_signal(void *arg, uint64_t sent UNUSED, uint64_t received UNUSED)
{
	struct session *s = arg;
	struct pollfd p = {.fd = s->signal_fd, .events = POLLIN};

	if (poll(&p, 1, 0) > 0)
		atomic_store(&s->stop, true);
}

static int open_line(struct session *s, struct upgrade **u, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header headers[] = {
		{"Authorization", arena_printf(a, "Bearer %s", s->c->token)}};
	struct http_call call = {.url = arena_printf(a, "%s%s", s->c->url, s->path),
	                         .headers = headers,
	                         .n_headers = 1,
	                         .connect_ms = CONNECT_MS,
	                         .total_ms = s->end == SESSION_RUNS ? ANSWER_MS : LAST_MS,
	                         .progress = look_for_signal,
	                         .arg = s,
	                         .cancel = &s->stop};

	atomic_store(&s->stop, false);
	if (upgrade_open(s->c->http, &call, EXEC_PROTOCOL, u, &reply, err) < 0)
		return -1;
	return *u != NULL ? 0 : remote_expect(&call, &reply, err);
}

static void connect_if_due(struct session *s)
{
	struct upgrade *u = NULL;
	struct err err = {0};

	if (line_wait_ms(&s->line) > 0)
		return;
	if (open_line(s, &u, &err) == 0) {
		line_begin(&s->line, u);
		say_size(s);
		return;
	}
	line_failed(&s->line);
	if ((!err_info(&err)->retry && err.code != ERR_CANCELED) ||
	    clock_mono_ms() - s->reached_ms > LINE_AWAY_MS)
		s->refused = err;
}

/* The other end closes the connection once it knows that we go. */
static void say_end(struct session *s)
{
	if (s->end <= SESSION_OVER || s->line.u == NULL || s->told)
		return;
	resumable_say(&s->line.r, s->end == SESSION_LEFT ? FRAME_LEAVE : FRAME_HANG_UP,
	              (struct str){0});
	s->told = true;
}

static bool is_through(const struct session *s)
{
	if (s->refused.code != ERR_NONE || s->end == SESSION_OVER)
		return true;
	return s->end != SESSION_RUNS &&
	       ((s->told && s->line.u == NULL) || clock_mono_ms() - s->end_ms > LAST_MS);
}

static struct pollfd poll_output(const struct session *s)
{
	enum frame_kind kind;
	struct str bytes;

	if (s->end != SESSION_RUNS || !resumable_next(&s->line.r, &kind, &bytes))
		return (struct pollfd){.fd = -1};
	return (struct pollfd){.fd = fd_of(kind), .events = POLLOUT};
}

static int turn(struct session *s, struct err *err)
{
	bool wants = s->input && !s->eof && s->typed.n == 0 && s->end == SESSION_RUNS &&
	             resumable_room(&s->line.r) > 0;
	struct pollfd p[] = {{.fd = s->signal_fd, .events = POLLIN},
	                     {.fd = wants ? 0 : -1, .events = POLLIN},
	                     line_poll(&s->line),
	                     poll_output(s)};

	if (poll(p, COUNT(p), MIN(LOOK_MS, line_wait_ms(&s->line))) < 0 && errno != EINTR)
		return err_errno(err, errno, "poll");
	if (p[0].revents != 0)
		on_signal(s);
	if (p[1].revents != 0)
		on_input(s);
	connect_if_due(s);
	put_input(s);
	say_end(s);
	line_tend(&s->line);
	if (s->line.u != NULL)
		s->reached_ms = s->line.heard_ms;
	return print(s, err);
}

int session_follow(struct session *s, struct err *err)
{
	int r = 0;

	s->reached_ms = clock_mono_ms();
	s->typed = (struct buf)BUF_INIT(2 * CHUNK);
	while (r == 0 && !is_through(s))
		r = turn(s, err);
	line_tend(&s->line); /* that we have all, or that we go */
	if (r == 0 && s->refused.code != ERR_NONE && s->end == SESSION_RUNS) {
		*err = s->refused;
		r = -1;
	}
	return r;
}
