/*
 * db.h - SQL behind one small interface: values in, rows out, transactions that roll back unless
 * they were committed. A driver is one .c file with one const struct db_ops in the table of db.c.
 *
 *   sqlite:/path             WAL, synchronous=FULL; one writer connection, a few readers
 *   postgresql://...         the same over libpq, see db_pg.c; postgres: is the same
 *   fault:<n>[-<last>]:<url> fails the n-th statement, or all from it to another; for tests
 *
 * A write transaction holds the one writer from its begin (BEGIN IMMEDIATE), so what it reads
 * cannot change under it. A read transaction sees one snapshot. Both are short: no I/O but the
 * database's own happens inside. Statements are prepared once a connection and kept.
 *
 *   AUTO_DB_TX struct db_tx tx = {0};
 *
 *   if (db_begin(db, DB_WRITE, &tx, err) < 0 ||
 *       db_exec(&tx, "UPDATE jobs SET name = ? WHERE id = ?", DB_ARGS(db_text(name), db_text(id)),
 *               &changed, err) < 0)
 *           return -1;
 *   return db_commit(&tx, err);
 *
 * A database that is elsewhere restarts, or asks for a transaction to be tried again. A function
 * that is one transaction and changes nothing else is therefore called by DB_AGAIN, which calls it
 * again as long as that may help.
 *
 * The SQL is what all drivers understand: "user" and "end" in quotes; in ON CONFLICT ... DO UPDATE
 * the old value has its table's name in front; greatest() and least() for two numbers; no number
 * where a truth value stands; an order by a column that may be NULL says where these come.
 */
#ifndef DB_H
#define DB_H

#include "base/arena.h"
#include "base/outage.h"
#include "meta/lead.h"

#define DB_READERS 4      /* snapshots at once; more readers wait for one */
#define DB_BUSY_MS 10000  /* another process (a backup) may hold the lock this long */
#define DB_OUTAGE_MS 3000 /* an answer is put off so long, no longer */
#define DB_BEAT_MS 1000   /* a leader says that it lives */
#define DB_SQL_MAX 8192
#define DB_VALUE_MAX ((size_t)64 << 20) /* one column; the largest is a job's document */
#define DB_PARAMS_MAX 128               /* of one statement */
#define DB_CACHED_MAX 256               /* prepared statements kept a connection */

enum db_kind { DB_NULL, DB_INT, DB_REAL, DB_TEXT, DB_BLOB };

struct db_val {
	enum db_kind kind;
	int64_t num;
	double real;
	struct str text; /* DB_TEXT, DB_BLOB */
};

struct db_val db_int(int64_t n);
struct db_val db_u64(uint64_t n);  /* asserts that it fits 63 bits */
struct db_val db_bits(uint64_t n); /* any 64 bits, stored as they are */
struct db_val db_real(double d);
struct db_val db_text(const char *s); /* NULL is SQL's NULL */
struct db_val db_blob(struct str s);
#define DB_ARGS(...)                                                                               \
	(const struct db_val[]){__VA_ARGS__},                                                      \
		sizeof((const struct db_val[]){__VA_ARGS__}) / sizeof(struct db_val)
#define DB_NONE NULL, 0

enum db_mode { DB_READ, DB_WRITE };

struct db_conn;
struct db_stmt; /* a driver's own */

struct db_ops {
	int (*open)(struct db_conn **out, const char *where, bool writer, struct err *err);
	void (*close)(struct db_conn *c);
	/* A transaction, and its end. ERR_DATABASE_UNAVAILABLE, ERR_DATABASE_CONFLICT: nothing was
	 * changed, and the whole of it may be tried again. A commit that failed has rolled back. */
	int (*begin)(struct db_conn *c, enum db_mode mode, struct err *err);
	int (*commit)(struct db_conn *c, struct err *err);
	void (*rollback)(struct db_conn *c);
	/* The number of the last migration, read and written inside a transaction. */
	int (*version)(struct db_conn *c, int64_t *out, struct err *err);
	int (*set_version)(struct db_conn *c, int64_t version, struct err *err);
	/* Looks at all that is stored, in a transaction: ERR_CORRUPT. */
	int (*check)(struct db_conn *c, struct err *err);
	/* Statements without parameters and rows, as a migration has them: in SQLite's words, which
	 * the driver translates. */
	int (*script)(struct db_conn *c, const char *sql, struct err *err);
	/* Prepared (or taken from the cache) and bound; `finish` follows always. */
	int (*start)(struct db_conn *c, const char *sql, const struct db_val *v, size_t n,
	             struct db_stmt **out, struct err *err);
	/* *row: there is one to read. */
	int (*step)(struct db_conn *c, struct db_stmt *s, bool *row, struct err *err);
	/* Bytes stay valid until the next step or finish. */
	void (*column)(struct db_conn *c, struct db_stmt *s, int i, struct db_val *out);
	void (*finish)(struct db_conn *c, struct db_stmt *s);
	uint64_t (*changes)(struct db_conn *c); /* rows of the last INSERT, UPDATE, DELETE */

	/* For databases that servers on several machines reach; NULL: a lock of the file is enough.
	 * `c` is a session that reads, and none of these begins a transaction. */
	/* Says that the server of `writer` lives. ERR_DATABASE_IN_USE: another one has taken over.
	 * *held: a session holds the lock of the one that writes. */
	int (*beat)(struct db_conn *c, const struct db_conn *writer, const char *url, bool *held,
	            struct err *err);
	int (*lead)(struct db_conn *c, struct lead *out, struct err *err);
	/* Who calls `lead`, at most LEAD_WAITING_MAX of them. */
	int (*waiting)(struct db_conn *c, struct lead_waiting *out, size_t *n, struct err *err);
	/* Ends the session that holds the lock, if it is still the one that was seen. */
	int (*end_lead)(struct db_conn *c, const struct lead *seen, struct err *err);
};

/* First member of every driver's connection. */
struct db_conn {
	const struct db_ops *ops;
	bool sqlite; /* it speaks SQLite's own words, too */
};

extern const struct db_ops db_sqlite, db_pg;
/* Of tests/drivers, which tests link and the product does not: it has none at this address. */
extern const struct db_ops db_fault __attribute__((weak));

struct db;
int db_open(struct db **out, const char *url, struct err *err) MUST_CHECK;
/* One that only reads, beside the server that leads: db_begin(DB_READ) and the next two.
 * ERR_INVALID for a database that one machine has to itself. */
int db_open_to_watch(struct db **out, const char *url, struct err *err) MUST_CHECK;
int db_lead(struct db *db, struct lead *out, struct err *err) MUST_CHECK;
/* Servers that wait beside this one; none where one machine has the database to itself. */
int db_waiting(struct db *db, struct lead_waiting *out, size_t *n, struct err *err) MUST_CHECK;
/* Ends the session of a leader that is dead or frozen, so that db_open can lead. */
int db_end_lead(struct db *db, const struct lead *seen, struct err *err) MUST_CHECK;
/* A database that several machines reach is told every DB_BEAT_MS that this server lives, and where
 * it answers. */
void db_lead_url(struct db *db, const char *url);
/* Called once, by a thread of the database's own, when another server has taken over: nothing can
 * be written any more. */
void db_on_deposed(struct db *db, void (*fn)(void *arg), void *arg);
void db_close(struct db *db); /* NULL is fine; no transaction may be open */
DEFINE_CLEANUP(struct db, db_close)
#define AUTO_DB CLEANUP(db_close_p)
/* For wrappers: the driver that a URL names, and what follows its scheme. */
const struct db_ops *db_driver(const char *url, const char **where);

struct db_tx {
	struct db *db;
	struct db_conn *conn; /* NULL: not begun, or over */
	enum db_mode mode;
};

/* Servers on several machines reach it. */
bool db_is_shared(const struct db *db);
/* It speaks SQLite's own words, too: INDEXED BY, json_extract(). */
bool db_is_sqlite(const struct db *db);

/* Calls again a function that is one transaction, while the database asks for it and the time that
 * an outage may last is not over. */
struct db_retry {
	int64_t until_ms, pause_ms;
};
struct db_retry db_retry(void);
bool db_again(struct db_retry *retry, struct err *err); /* false: err is the answer */
#define DB_AGAIN(call, err)                                                                        \
	({                                                                                         \
		struct db_retry retry_ = db_retry();                                               \
		int r_;                                                                            \
                                                                                                   \
		do                                                                                 \
			r_ = (call);                                                               \
		while (r_ < 0 && db_again(&retry_, err));                                          \
		r_;                                                                                \
	})

/* Full counts as away, from a write that was refused until db_has_room(). */
void db_outage(struct db *db, struct outage *out);
bool db_is_full(const struct db *db);
void db_has_room(struct db *db);
/* The database has not acknowledged for LEAD_UNHEARD_MS that this server lives: it may be cut off,
 * and another one about to lead. */
bool db_unheard(const struct db *db);

int db_begin(struct db *db, enum db_mode mode, struct db_tx *tx, struct err *err) MUST_CHECK;
int db_commit(struct db_tx *tx, struct err *err) MUST_CHECK; /* of a reader: just its end */
void db_end(struct db_tx *tx);                               /* rolls back what was not committed */
#define AUTO_DB_TX CLEANUP(db_end)

/* `changed` may be NULL. A constraint (unique, foreign key) that refuses is ERR_CONFLICT. */
int db_exec(struct db_tx *tx, const char *sql, const struct db_val *v, size_t n, uint64_t *changed,
            struct err *err) MUST_CHECK;
int db_script(struct db_tx *tx, const char *sql, struct err *err) MUST_CHECK;
int db_version(struct db_tx *tx, int64_t *out, struct err *err) MUST_CHECK;
int db_set_version(struct db_tx *tx, int64_t version, struct err *err) MUST_CHECK;
int db_check(struct db_tx *tx, struct err *err) MUST_CHECK;

/* Rows: start, then db_next until it says no; db_rows_done any time. One at a time per statement.
 */
struct db_rows {
	struct db_conn *conn;
	struct db_stmt *stmt;
	struct arena *arena; /* of the texts */
	int at;              /* next column */
};
int db_query(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v, size_t n,
             struct db_rows *out, struct err *err) MUST_CHECK;
int db_next(struct db_rows *r, bool *row, struct err *err) MUST_CHECK;
void db_rows_done(struct db_rows *r);
#define AUTO_DB_ROWS CLEANUP(db_rows_done)

/* The next column of the current row; a NULL gives 0, NULL or empty. */
int64_t db_get_int(struct db_rows *r);
uint64_t db_get_u64(struct db_rows *r);
uint32_t db_get_u32(struct db_rows *r);
bool db_get_bool(struct db_rows *r);
double db_get_real(struct db_rows *r);
const char *db_get_text(struct db_rows *r); /* copied into the arena */
struct str db_get_blob(struct db_rows *r);  /* same */

/* As it is; its bytes are copied into the arena. */
struct db_val db_get(struct db_rows *r);

/* One number: the first column of the first row, `dflt` when there is none. */
int db_number(struct db_tx *tx, const char *sql, const struct db_val *v, size_t n, int64_t dflt,
              int64_t *out, struct err *err) MUST_CHECK;

#endif
