/*
 * escape.h - what a person types to the program in front, and not to the one behind it: `~.` at the
 * beginning of a line, as in ssh. `~~` is one `~`, `~?` shows these; anything else is passed on as
 * it was typed.
 */
#ifndef ESCAPE_H
#define ESCAPE_H

#include "base/buf.h"

enum escape_want { ESCAPE_NOTHING, ESCAPE_HANG_UP, ESCAPE_HELP };

struct escape {
	bool within; /* of a line: no escape begins here */
	bool tilde;  /* one was typed, and is not passed on yet */
};

/* Takes `typed` up to its end or the first wish, which it cuts it behind; *out is what to pass on.
 */
enum escape_want escape_feed(struct escape *e, struct str *typed, struct buf *out);

#endif
