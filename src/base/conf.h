/*
 * conf.h - settings from a table: default < --config FILE (YAML map) < STOKER_<NAME> < --flag.
 * Every row is a flag `--some-name`, a variable STOKER_SOME_NAME and a key some_name. Lists repeat
 * the flag; in the environment they are separated by commas; in the file they are YAML lists. A
 * pair is a list of two, whose flag takes both: --some-name A B.
 */
#ifndef CONF_H
#define CONF_H

#include "base/arena.h"

enum conf_kind {
	CONF_TEXT,
	CONF_BOOL,
	CONF_INT,
	CONF_BYTES,
	CONF_SECONDS,
	CONF_LIST,
	CONF_CHOICE,
	CONF_PAIR
};

struct conf_list {
	const char **item;
	size_t n;
};

struct conf_row {
	const char *name; /* with dashes, as the flag */
	enum conf_kind kind;
	size_t at;        /* offsetof: const char *, bool, int64_t, uint64_t (bytes, seconds),
	                   * struct conf_list (pair, too), const char * (choice) */
	const char *dflt; /* as text; NULL = unset */
	const char *arg;  /* what stands after the flag in help: "DIR", "a|b|c" for a choice */
	const char *group;
	const char *help;
};

/* Fills *out (a struct described by the rows). argv holds only flags: anything else is
 * ERR_INVALID with a "did you mean". Every mistake names its flag, variable, or file:line:column.
 */
int conf_load(struct arena *a, const struct conf_row *rows, size_t n, int argc, char **argv,
              void *out, struct err *err) MUST_CHECK;
void conf_help(const struct conf_row *rows, size_t n, struct buf *out);      /* for --help */
void conf_reference(const struct conf_row *rows, size_t n, struct buf *out); /* Markdown table */

/* The word of `words` (n of them) nearest to `word`, or NULL when none is near. */
const char *conf_nearest(struct str word, const char *const *words, size_t n);

#endif
