/* exec_feed.c - the side of a session that sends: stdin, the terminal's size, signals, and a word
 * now and then. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "cli/escape.h"
#include "cli/exec_session.h"
#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#define CHUNK ((size_t)32 << 10)
#define ROOM_MS 1000 /* how long the server holds what it has no room for */
#define AGAIN_MS 300 /* after an exchange that failed */
#define BODY_MAX ((size_t)128 << 10)

struct feed {
	struct session *s;
	struct escape escape;
	struct buf pending; /* read, and not taken by the server */
	uint64_t offset;    /* of its first byte */
	bool eof, eof_sent, resized;
	bool deaf;      /* the server wants no more of it */
	int64_t due_ms; /* when it is to hear of us again */
	int64_t not_before_ms;
};

/* False: it is the end. */
static bool on_signal(struct feed *f)
{
	struct session *s = f->s;
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return true;
	switch (info.ssi_signo) {
	case SIGCONT:
		terminal_raw_again();
		f->resized = s->tty;
		return true;
	case SIGWINCH:
		f->resized = s->tty;
		return true;
	case SIGINT:
		if (s->input) /* what comes of half an input is not what was asked for */
			session_leave(s, SESSION_HUNG, CLI_EXIT_DETACHED);
		else
			session_leave(s, SESSION_LEFT, CLI_EXIT_DETACHED);
		return false;
	default:
		session_leave(s, SESSION_HUNG, 128 + (int)info.ssi_signo);
		return false;
	}
}

/* False: it is the end. */
static bool on_input(struct feed *f)
{
	AUTO_BUF struct buf raw = BUF_INIT(CHUNK);
	char *room = buf_room(&raw, CHUNK);
	ssize_t n = read(0, room, CHUNK);
	struct str typed = str_n(room, n > 0 ? (size_t)n : 0);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	f->eof = n <= 0; /* an error of stdin is its end */
	if (!f->s->tty) {
		buf_str(&f->pending, typed);
		return true;
	}
	while (typed.n > 0) {
		switch (escape_feed(&f->escape, &typed, &f->pending)) {
		case ESCAPE_HANG_UP:
			session_leave(f->s, SESSION_HUNG, CLI_EXIT_DETACHED);
			return false;
		case ESCAPE_HELP:
			(void)fputs("~?\r\n~.  hang up\r\n~~  type a ~\r\n", stderr);
			break;
		case ESCAPE_NOTHING:
			break;
		}
	}
	return true;
}

static bool has_news(const struct feed *f)
{
	return f->pending.n > 0 || (f->eof && !f->eof_sent) || f->resized;
}

static void write_body(const struct feed *f, struct buf *out)
{
	AUTO_BUF struct buf coded = BUF_INIT(BODY_MAX);
	struct terminal_size size = terminal_size();
	struct js js;

	base64_encode(f->pending.p, f->pending.n, false, &coded);
	js_init(&js, out);
	js_open(&js);
	js_kv_u64(&js, "offset", f->offset);
	if (f->pending.n > 0)
		js_kv_str(&js, "input_base64", buf_view(&coded));
	if (f->eof)
		js_kv_bool(&js, "end", true);
	if (f->resized) {
		js_kv_int(&js, "rows", size.rows);
		js_kv_int(&js, "columns", size.columns);
	}
	js_close(&js);
}

/* Drop the bytes that the server accepted; the others are sent again. */
static void post(struct feed *f)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	const struct doc *reply = NULL;
	struct err err = {0};
	char tail[40];
	uint64_t taken;

	write_body(f, &body);
	FMT(tail, "?wait_ms=%d", ROOM_MS);
	if (session_call(f->s, HTTP_POST, tail, &body, a, &reply, &err) < 0) {
		f->deaf = !session_may_try(&err); /* the other side of the session says why */
		f->not_before_ms = clock_mono_ms() + AGAIN_MS;
		return;
	}
	taken = (uint64_t)MAX(doc_int(doc_get(reply, "next_offset"), 0), 0);
	taken = MIN(taken - MIN(taken, f->offset), f->pending.n);
	buf_drop(&f->pending, (size_t)taken);
	f->offset += taken;
	f->eof_sent = f->eof && f->pending.n == 0;
	f->resized = false;
	f->due_ms = clock_mono_ms() + SESSION_WORD_MS;
}

static int64_t wait_ms(const struct feed *f, int64_t now)
{
	int64_t at = has_news(f) ? now : f->due_ms;

	if (f->deaf)
		return SESSION_WORD_MS;
	return MAX(MAX(at, f->not_before_ms) - now, 0);
}

static void *feed(void *arg)
{
	struct session *s = FROM_VOID(struct session, arg, SESSION_MAGIC);
	struct feed f = {.s = s, .pending = BUF_INIT(2 * CHUNK)};
	bool on = true;

	f.due_ms = clock_mono_ms() + SESSION_WORD_MS;
	while (on) {
		bool wants = s->input && !f.eof && !f.deaf && f.pending.n == 0;
		struct pollfd p[] = {{.fd = s->wake_fd, .events = POLLIN},
		                     {.fd = s->signal_fd, .events = POLLIN},
		                     {.fd = wants ? 0 : -1, .events = POLLIN}};
		int64_t now = clock_mono_ms();

		if (poll(p, COUNT(p), (int)wait_ms(&f, now)) < 0 && errno != EINTR)
			break;
		if (p[0].revents != 0)
			break;
		if (p[1].revents != 0)
			on = on_signal(&f);
		if (on && p[2].revents != 0)
			on = on_input(&f);
		now = clock_mono_ms();
		if (on && !f.deaf && now >= f.not_before_ms && (has_news(&f) || now >= f.due_ms))
			post(&f);
	}
	buf_done(&f.pending);
	return NULL;
}

void session_feed_start(struct session *s)
{
	if (pthread_create(&s->feed, NULL, feed, s) != 0)
		abort();
}

void session_feed_stop(struct session *s)
{

	event_set(s->wake_fd);
	(void)pthread_join(s->feed, NULL);
}
