/*
 * loglines.h - the form in which a job's output is kept and moved: one record a line,
 *
 *   <19 digits: epoch ns> <stream> <text>\n
 *
 * stream: o stdout, e stderr, s a line of the platform itself; upper case when the line goes on in
 * the next record (it was longer than LOGLINE_TEXT_MAX, or had no newline yet when it was due).
 * Times rise strictly within a file, so a record is found by bisection and two equal lines differ.
 * Carriage returns are kept: they are folded when shown.
 */
#ifndef LOGLINES_H
#define LOGLINES_H

#include "base/json.h"

#define LOGLINE_TEXT_MAX ((size_t)16 << 10)
#define LOGLINE_HEAD 22 /* 19 digits, space, stream, space */
#define LOGLINE_MAX (LOGLINE_HEAD + LOGLINE_TEXT_MAX + 1)
/* 2200-01-01. A later time, which a wrong clock or whoever sends a log may say, is taken for this
 * one: others rise after it as long as anybody writes. */
#define LOGLINE_NS_MAX INT64_C(7258118400000000000)

struct logline {
	int64_t ns;
	char stream;    /* 'o', 'e', 's' */
	bool continues; /* the text goes on in the next record */
	struct str text;
};

/* Cuts complete records into out from raw bytes of one stream. `last_ns` is read and moved on. Text
 * longer than the maximum is cut into continuing records. What a job wrote stays as it is; in the
 * platform's own lines, what people cannot see is escaped (base/shown.h). */
void logline_write(struct buf *out, int64_t now_ns, int64_t *last_ns, char stream, struct str text,
                   bool continues);
/* The first record of *bytes; false when none is complete (or, when `final`, none left). */
bool logline_next(struct str *bytes, struct logline *out);
/* The text as a terminal would show it: overwritten text (carriage returns) is dropped, a trailing
 * CR cut, ANSI colours kept, other control characters dropped. */
void logline_fold(struct str text, struct buf *out);
/* Columns that a text without carriage returns takes on a terminal: every character one. */
size_t logline_width(struct str text);

#endif
