/* db_pg_words.h - SQL as meta_*.c and schema.c have it, for PostgreSQL. */
#ifndef DB_PG_WORDS_H
#define DB_PG_WORDS_H

#include "base/buf.h"

/* The statements of a migration: types, row ids, tables that are STRICT. */
void pg_words(const char *sql, struct buf *out);
/* ? and ?2 are $1 and $2; a ? takes the number after the largest one, as in SQLite. */
void pg_params(const char *sql, struct buf *out);
/* The text as PostgreSQL stores it: neither NUL nor bytes that are no UTF-8. Itself, or in `out`,
 * which is empty and large enough. */
struct str pg_text(struct str s, struct buf *out);

#endif
