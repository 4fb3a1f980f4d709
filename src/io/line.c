/* line.c - a resumable connection, while it is there; see line.h. */
#include "io/line.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/seal.h"

#define PIECE ((size_t)64 << 10)

int line_wait_ms(const struct line *l)
{
	int64_t now = clock_mono_ms();

	return l->u != NULL ? INT_MAX : (int)MAX(l->again_ms - MIN(now, l->again_ms), 0);
}

void line_begin(struct line *l, struct upgrade *u)
{
	assert(l->u == NULL);
	l->u = u;
	l->heard_ms = l->said_ms = clock_mono_ms();
	resumable_begin(&l->r);
}

/* Jittered, so that those whose server went do not return as one. */
static void put_off(struct line *l)
{
	uint16_t dice = 0;

	seal_random(&dice, sizeof(dice));
	l->again_ms = clock_mono_ms() + l->pause_ms / 2 + dice % (l->pause_ms / 2 + 1);
}

void line_failed(struct line *l)
{
	l->pause_ms = MIN(MAX(2 * l->pause_ms, LINE_AGAIN_MS), LINE_AGAIN_MAX_MS);
	put_off(l);
}

void line_cut(struct line *l)
{
	upgrade_close(l->u);
	l->u = NULL;
	put_off(l);
}

struct pollfd line_poll(struct line *l)
{
	if (l->u == NULL)
		return (struct pollfd){.fd = -1};
	return (struct pollfd){
		.fd = upgrade_fd(l->u),
		.events = (short)(POLLIN | (resumable_wire(&l->r).n > 0 ? POLLOUT : 0))};
}

static int read_all(struct line *l, struct err *err)
{
	AUTO_BUF struct buf piece = BUF_INIT(PIECE);
	char *room = buf_room(&piece, PIECE);
	int more = 1;

	while (more > 0) {
		size_t n;

		more = upgrade_read(l->u, room, PIECE, &n, err);
		if (more <= 0)
			break;
		l->heard_ms = clock_mono_ms();
		l->pause_ms = LINE_AGAIN_MS;
		if (resumable_feed(&l->r, str_n(room, n), err) < 0)
			return -1;
	}
	return more;
}

static int write_all(struct line *l, struct err *err)
{
	int more = 1;

	while (more > 0) {
		struct str wire = resumable_wire(&l->r);
		size_t n;

		more = wire.n == 0 ? 0 : upgrade_write(l->u, wire, &n, err);
		if (more > 0)
			resumable_wrote(&l->r, n);
	}
	return more;
}

void line_tend(struct line *l)
{
	int64_t now = clock_mono_ms();
	struct err err = {0};

	if (l->u == NULL)
		return;
	if (now - l->said_ms >= LINE_WORD_MS) {
		resumable_say_received(&l->r);
		l->said_ms = now;
	}
	if (read_all(l, &err) == 0 && write_all(l, &err) == 0 && now - l->heard_ms <= LINE_AWAY_MS)
		return;
	if (err.code == ERR_INVALID)
		log_warn("%s", err.msg);
	line_cut(l);
}

void line_done(struct line *l)
{
	upgrade_close(l->u);
	resumable_done(&l->r);
}
