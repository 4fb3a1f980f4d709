/*
 * lines.h - a job's records as lines on the screen, in a file or in a pipe.
 *
 * A line may come in pieces (its record "continues", see core/loglines.h), and the pieces of
 * several streams and nodes come mixed. The pieces of one stream are joined before carriage returns
 * are folded, so a progress bar is one line in its last state. On a terminal the newest open line
 * is drawn below all others and redrawn as it grows; elsewhere a line is written when it has ended.
 */
#ifndef LINES_H
#define LINES_H

#include "cli/cli.h"
#include "core/loglines.h"

struct lines_form {
	bool raw;   /* as it was written: nothing folded */
	bool times; /* each line begins with when its first piece was written */
	bool nodes; /* ... and with its node */
};

struct lines;
struct lines *lines_new(struct cli *c, const struct lines_form *form);
void lines_put(struct lines *l, uint32_t rank, const struct logline *rec);
bool lines_are_open(const struct lines *l);
/* Takes the open line off the screen; the next record draws it again. */
void lines_hide(struct lines *l);
/* No more comes: what is still open is written as it stands. Frees. */
void lines_end(struct lines *l);

#endif
