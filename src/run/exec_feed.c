/* exec_feed.c - the thread that fetches what a command is given: input, its end, sizes of the
 * terminal, and word that its person has gone. */
#include "run/exec_inner.h"

#include "base/thread.h"

#include <poll.h>

#define BLOCKED_MS 1000 /* how often the server is asked while the command does not read */
#define VEOF_BYTE "\004"

void command_heard(struct command *c, enum wire_exec_state state)
{
	if (c->state != EXEC_HUNG)
		c->state = (int)state;
}

/* True when the command goes on and wants input. */
static bool is_live(struct command *c)
{
	return c->state == EXEC_LIVE && !c->over && !c->closing;
}

/* Waits, then asks how things stand. */
static void wait_blocked(struct command *c, int fd, uint64_t offset)
{
	struct pollfd f[] = {{.fd = fd, .events = POLLOUT}, {.fd = c->wake_fd, .events = POLLIN}};
	AUTO_BUF struct buf none = BUF_INIT(1);
	enum wire_exec_state state = EXEC_HUNG;

	if (poll(f, COUNT(f), BLOCKED_MS) > 0 || !is_live(c))
		return;
	if (!report_exec_input(c->o->report, c->what.id, offset, true, &c->over, &none, &state) &&
	    c->over)
		return;
	command_heard(c, state);
}

/* Input that is not acknowledged is what holds up the sender: a command that has closed its stdin
 * reads no more of it, however long it still runs. */
static void write_input(struct command *c, struct str bytes, uint64_t offset)
{
	while (bytes.n > 0 && is_live(c)) {
		ssize_t n = c->in.in_fd < 0 ? -1 : write(c->in.in_fd, bytes.p, bytes.n);

		if (n > 0)
			bytes = str_skip(bytes, (size_t)n);
		else if (c->in.in_fd < 0 || errno == EAGAIN)
			wait_blocked(c, c->in.in_fd, offset);
		else if (errno != EINTR)
			close_fd_p(&c->in.in_fd), c->in.in_fd = -1;
	}
}

static void end_input(struct command *c, uint64_t offset)
{
	if (c->in.tty)
		write_input(c, STR_LIT(VEOF_BYTE), offset);
	else if (c->in.in_fd >= 0)
		(void)close(TAKE_FD(c->in.in_fd));
}

static void apply(struct command *c, struct str frames, uint64_t offset)
{
	enum frame_kind kind;
	struct str bytes;
	uint16_t rows, columns;

	while (is_live(c) && frame_next(&frames, &kind, &bytes)) {
		if (kind == FRAME_IN)
			write_input(c, bytes, offset);
		else if (kind == FRAME_END)
			end_input(c, offset);
		else if (kind == FRAME_SIZE && frame_size(bytes, &rows, &columns))
			sandbox_inside_size(&c->in, rows, columns);
	}
}

static void *feed(void *arg)
{
	struct command *c = FROM_VOID(struct command, arg, COMMAND_MAGIC);
	uint64_t offset = 0;

	while (is_live(c)) {
		AUTO_BUF struct buf frames = BUF_INIT(4 * RESUMABLE_MAX);
		enum wire_exec_state state = EXEC_HUNG;

		if (!report_exec_input(c->o->report, c->what.id, offset, false, &c->over, &frames,
		                       &state) &&
		    c->over)
			break;
		command_heard(c, state);
		apply(c, buf_view(&frames), offset);
		offset += frames.n;
	}
	/* what was left to itself has come to the end of its input; a terminal is not closed: that
	 * would hang it up */
	if (c->state == EXEC_LEFT && !c->in.tty && c->in.in_fd >= 0)
		(void)close(TAKE_FD(c->in.in_fd));
	return NULL;
}

void command_feed_start(struct command *c)
{
	if (pthread_create(&c->feed, NULL, feed, c) != 0)
		abort();
}

void command_feed_stop(struct command *c)
{

	c->over = true;
	event_set(c->wake_fd);
	(void)pthread_join(c->feed, NULL);
}
