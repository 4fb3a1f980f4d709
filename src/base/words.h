/*
 * words.h - the words of an enum, in whatever table holds them: an array of texts, or one text of
 * each row.
 */
#ifndef WORDS_H
#define WORDS_H

#include "base/buf.h"

struct words {
	const char *what; /* for messages: "a state of a job" */
	const char *const *first;
	size_t each, n; /* bytes from one to the next; how many */
};

/* first: the word of rows[0]. */
#define WORDS(what, first, rows)                                                                   \
	{                                                                                          \
		what, &(first), sizeof((rows)[0]), COUNT(rows)                                     \
	}

const char *words_at(const struct words *w, unsigned i);
/* Its index; -1 and `code` when it is none. */
int words_parse(const struct words *w, struct str word, enum err_code code,
                struct err *err) MUST_CHECK;

#endif
