/*
 * shown.h - text that somebody else chose, as people are to see it: names of files, of checkpoints,
 * of jobs.
 *
 * What a terminal obeys (control characters), what turns the order of the text around
 * (bidirectional controls, U+202E) and what shows nothing (zero-width characters) is written as an
 * escape, so that two names that differ look different and no name looks like another text.
 * Everything else stays as it is. Programs are given the text itself: JSON with js.shown writes the
 * same characters as JSON's own escapes.
 */
#ifndef SHOWN_H
#define SHOWN_H

#include "base/buf.h"

#define SHOWN_GROWTH 6 /* one byte becomes six at most */

/* Bytes of the character that s begins with, if it can be shown as it is; else 0. */
size_t shown_len(struct str s);
/* Is there something in it that is no text, commands a terminal, breaks a line or turns the text
 * around? What only takes no room, such as a joiner, is part of words in some scripts. */
bool shown_deceives(struct str s);
/* \n \t \r, \u202e, \U000e0041; \xff for a byte that is not UTF-8. A backslash stays one. */
void shown_add(struct buf *out, struct str s);
/* The same to a fixed array with NUL; what does not fit is left out, at a character's border. */
const char *shown_cut(struct str s, char *out, size_t cap);

#endif
