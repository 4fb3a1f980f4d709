/*
 * move.h - all rows of one database copied into another, of any driver, while no server uses either
 * of the two: what is copied is compared, and from then on only the second one is used.
 *
 * The copy goes in batches, each a transaction, in the order of the tables' keys. A move that was
 * interrupted goes on behind the last row that has arrived. All rows are compared at the end, those
 * of earlier calls, too, while nobody can write to the first one. A note in each (table moves) says
 * what they are to each other:
 *
 *   from      to      what a server makes of it              what the next move does
 *   -         -       opens it                               begins, where `to` is empty
 *   to N      from N  opens `from`, which ends the move;     goes on
 *                     refuses `to`: database_incomplete
 *   -         from N                                         empties `to`, begins again
 *   moved N   from N  refuses both                           compares again, takes the last step
 *   moved N   -       refuses `from`: database_moved;        refuses
 *                     opens `to`
 */
#ifndef MOVE_H
#define MOVE_H

#include "meta/db.h"

enum move_phase { MOVE_COPY, MOVE_COMPARE };

struct move_options {
	const char *from, *to; /* URLs, see db.h */
	/* After each batch; rows of all tables. */
	void (*progress)(void *arg, enum move_phase phase, uint64_t rows, uint64_t total);
	void *arg;
};

/* Rows, those that an earlier call has brought among them: ERR_DATABASE_MOVED,
 * ERR_DATABASE_NOT_EMPTY, ERR_DATABASE_DIFFERS, and what a database says. Whatever happens, `from`
 * is whole. */
int move_database(const struct move_options *o, uint64_t *rows, struct err *err) MUST_CHECK;

/* May a server use this database? Ends a move out of it that was begun. ERR_DATABASE_MOVED,
 * ERR_DATABASE_INCOMPLETE. */
int move_check(struct db *db, struct err *err) MUST_CHECK;

/* Is it a table whose rows are moved? For a test: a migration that adds one adds it here, too. */
bool move_knows(const char *table);

#endif
