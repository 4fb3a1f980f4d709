/*
 * line.h - one end of a resumable connection (resumable.h) over what leaves HTTP (upgrade.h): it
 * moves the bytes, gives signs of life, and sees when there are none from the other end. Its owner
 * makes the connection, and makes it again once it was cut.
 */
#ifndef LINE_H
#define LINE_H

#include "io/resumable.h"
#include "io/upgrade.h"

#include <poll.h>

#define LINE_WORD_MS 5000      /* how often the other end hears of us at least */
#define LINE_AWAY_MS 20000     /* without a word: the connection is cut */
#define LINE_AGAIN_MS 300      /* until it is made again, and twice that after each try in vain, */
#define LINE_AGAIN_MAX_MS 5000 /* up to here */

struct line {
	struct resumable r;
	struct upgrade *u; /* NULL: there is none */
	int64_t heard_ms, said_ms;
	int64_t again_ms; /* when it is to be made again */
	int64_t pause_ms;
};
/* clang-format off */
#define LINE_INIT {.r = RESUMABLE_INIT}
/* clang-format on */

int line_wait_ms(const struct line *l); /* until it is to be made (again); INT_MAX: it is there */
void line_begin(struct line *l, struct upgrade *u); /* takes u */
void line_failed(struct line *l);                   /* it could not be made */
/* What to poll for; .fd = -1 without a connection. */
struct pollfd line_poll(struct line *l);
/* Moves what can be moved, and cuts the connection where it has to be. */
void line_tend(struct line *l);
void line_cut(struct line *l);
void line_done(struct line *l);

#endif
