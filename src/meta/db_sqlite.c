/*
 * db_sqlite.c - the embedded database: WAL, so readers never wait for the writer; synchronous=FULL,
 * so a commit that returned survives the loss of power. On a full disk its files take of the
 * reserve. The only user of sqlite3.h.
 */
#include "meta/db.h"
#include "base/map.h"
#include "base/reserve.h"

#include "base/sync.h"
#include <sqlite3.h>

#define LOG_PAGES 4000 /* 16 MB of write-ahead log before it is folded into the file */
#define SHOWN_MAX 1000 /* of what SQLite found wrong */
#define METHODS_MAX 8  /* kinds of files that SQLite's own layer knows; it has four */

/* --- files that take of the reserve ----------------------------------------------------------- */

/* SQLite's own layer below, and its files' methods with two of them replaced: a transaction whose
 * write was refused is rolled back, so the write itself must be tried again. */
struct methods {
	sqlite3_io_methods ours; /* first: a file's pMethods points here */
	const sqlite3_io_methods *real;
};

static struct {
	struct lock lock; /* of methods[] */
	sqlite3_vfs vfs, *under;
	struct methods methods[METHODS_MAX];
	size_t n;
} roomy = {.lock = LOCK_INIT(LOCK_DB_VFS)};

static const sqlite3_io_methods *real_of(const sqlite3_file *f)
{
	return ((const struct methods *)f->pMethods)->real;
}

static int roomy_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	int rc;

	do
		rc = real_of(f)->xWrite(f, p, n, at);
	while (rc == SQLITE_FULL && reserve_take(RESERVE_ROWS));
	return rc;
}

/* The index of the log: growing it says only that it failed. */
static int roomy_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
	int rc;

	do
		rc = real_of(f)->xShmMap(f, page, size, extend, out);
	while (rc == SQLITE_IOERR_SHMSIZE && reserve_take(RESERVE_ROWS));
	return rc;
}

static int roomy_open(sqlite3_vfs *v UNUSED, const char *name, sqlite3_file *f, int flags, int *got)
{
	int rc = roomy.under->xOpen(roomy.under, name, f, flags, got);
	size_t i = 0;

	if (rc != SQLITE_OK || f->pMethods == NULL)
		return rc;
	lock_take(&roomy.lock);
	while (i < roomy.n && roomy.methods[i].real != f->pMethods)
		i++;
	assert(i < METHODS_MAX);
	if (i == roomy.n) {
		roomy.methods[i] = (struct methods){*f->pMethods, f->pMethods};
		roomy.methods[i].ours.xWrite = roomy_write;
		roomy.methods[i].ours.xShmMap = roomy_map;
		roomy.n++;
	}
	f->pMethods = &roomy.methods[i].ours;
	lock_give(&roomy.lock);
	return SQLITE_OK;
}

static void roomy_register(void)
{
	roomy.under = sqlite3_vfs_find(NULL);
	assert(roomy.under != NULL);
	roomy.vfs = *roomy.under;
	roomy.vfs.zName = "roomy";
	roomy.vfs.pNext = NULL;
	roomy.vfs.xOpen = roomy_open;
	(void)sqlite3_vfs_register(&roomy.vfs,
	                           0); /* fails when SQLite does: then opening does too */
}

/* --- connections ------------------------------------------------------------------------------ */

struct conn {
	struct db_conn base;
	sqlite3 *db;
	struct map *cached; /* SQL text -> sqlite3_stmt */
};

static int fail(struct conn *c, int rc, const char *sql, struct err *err)
{
	enum err_code code = ERR_IO;

	switch (rc & 0xff) {
	case SQLITE_CONSTRAINT:
		code = ERR_CONFLICT;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		code = ERR_BUSY;
		break;
	case SQLITE_FULL:
		return err_set(err, ERR_NO_SPACE,
		               "the disk of the data folder is full: nothing was changed; make room"
		               " there and try again (%.60s)",
		               sql);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		code = ERR_CORRUPT;
		break;
	case SQLITE_READONLY:
		code = ERR_DENIED;
		break;
	case SQLITE_TOOBIG:
		code = ERR_TOO_BIG;
		break;
	default:
		break;
	}
	if (c->db != NULL && sqlite3_system_errno(c->db) == EROFS)
		return err_set(err, ERR_DENIED,
		               "the disk of the database %.300s has become read-only: nothing was "
		               "changed. Look with `dmesg` why, mount it to be written, and start "
		               "the server again",
		               sqlite3_db_filename(c->db, "main"));
	return err_set(err, code, "database: %s (%.60s)", sqlite3_errmsg(c->db), sql);
}

static int sq_script(struct db_conn *dc, const char *sql, struct err *err)
{
	struct conn *c = (struct conn *)dc;
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(c, rc, sql, err);
}

static int sq_begin(struct db_conn *dc, enum db_mode mode, struct err *err)
{
	return sq_script(dc, mode == DB_WRITE ? "BEGIN IMMEDIATE" : "BEGIN", err) < 0
	               ? err_wrap(err, "begin")
	               : 0;
}

/* SQLite may have rolled back by itself (disk full): then there is nothing left to undo. */
static void sq_rollback(struct db_conn *dc)
{
	struct err ignored = {0};

	(void)sq_script(dc, "ROLLBACK", &ignored);
}

static int sq_commit(struct db_conn *dc, struct err *err)
{
	if (sq_script(dc, "COMMIT", err) == 0)
		return 0;
	sq_rollback(dc);
	return err_wrap(err, "commit");
}

static void drop(struct str key UNUSED, void *value, void *arg UNUSED)
{
	(void)sqlite3_finalize(value);
}

static void sq_close(struct db_conn *dc)
{
	struct conn *c = (struct conn *)dc;

	map_each(c->cached, drop, NULL);
	map_free(c->cached);
	(void)sqlite3_close(c->db);
	free(c);
}

/* greatest(a, b), least(a, b): as other databases call them. No column of ours that they are used
 * for is NULL. */
static void choose(sqlite3_context *x, int n UNUSED, sqlite3_value **v)
{
	bool greatest = sqlite3_user_data(x) != NULL;
	bool first = sqlite3_value_int64(v[0]) > sqlite3_value_int64(v[1]);

	sqlite3_result_value(x, first == greatest ? v[0] : v[1]);
}

/* octet_length(text): newer ones have it. length() counts characters. */
static void octets(sqlite3_context *x, int n UNUSED, sqlite3_value **v)
{
	if (sqlite3_value_type(v[0]) == SQLITE_NULL)
		sqlite3_result_null(x);
	else
		sqlite3_result_int(x, sqlite3_value_bytes(v[0]));
}

static int add_functions(struct conn *c)
{
	int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
	int rc = sqlite3_create_function(c->db, "greatest", 2, flags, c, choose, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(c->db, "least", 2, flags, NULL, choose, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(c->db, "octet_length", 1, flags, NULL, octets, NULL,
		                             NULL);
	return rc;
}

static int sq_open(struct db_conn **out, const char *where, bool writer, struct err *err)
{
	static const char setup[] = "PRAGMA journal_mode=WAL;"
				    "PRAGMA synchronous=FULL;"
				    "PRAGMA foreign_keys=ON;"
				    "PRAGMA trusted_schema=OFF;"
				    "PRAGMA temp_store=MEMORY;";
	int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | (writer ? SQLITE_OPEN_CREATE : 0);
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct conn *c = xcalloc(1, sizeof(*c));
	int rc;

	(void)pthread_once(&once, roomy_register);
	rc = sqlite3_open_v2(where, &c->db, flags, roomy.vfs.zName);
	if (rc == SQLITE_OK)
		rc = add_functions(c);
	c->base = (struct db_conn){.ops = &db_sqlite, .sqlite = true};
	c->cached = map_new();
	if (rc != SQLITE_OK) {
		fail(c, rc, where, err);
		sq_close(&c->base);
		return -1;
	}
	(void)sqlite3_busy_timeout(c->db, DB_BUSY_MS);
	(void)sqlite3_limit(c->db, SQLITE_LIMIT_LENGTH, (int)DB_VALUE_MAX);
	(void)sqlite3_wal_autocheckpoint(c->db, LOG_PAGES);
	if (sq_script(&c->base, setup, err) < 0 ||
	    (!writer && sq_script(&c->base, "PRAGMA query_only=ON", err) < 0)) {
		sq_close(&c->base);
		return -1;
	}
	*out = &c->base;
	return 0;
}

static int bind(struct conn *c, sqlite3_stmt *s, int i, const struct db_val *v)
{
	assert(c != NULL);
	switch (v->kind) {
	case DB_NULL:
		return sqlite3_bind_null(s, i);
	case DB_INT:
		return sqlite3_bind_int64(s, i, v->num);
	case DB_REAL:
		return sqlite3_bind_double(s, i, v->real);
	case DB_TEXT:
		return sqlite3_bind_text64(s, i, v->text.p, v->text.n, SQLITE_STATIC, SQLITE_UTF8);
	case DB_BLOB:
		return sqlite3_bind_blob64(s, i, v->text.n > 0 ? v->text.p : "", v->text.n,
		                           SQLITE_STATIC);
	}
	return SQLITE_MISUSE;
}

static int sq_start(struct db_conn *dc, const char *sql, const struct db_val *v, size_t n,
                    struct db_stmt **out, struct err *err)
{
	struct conn *c = (struct conn *)dc;
	struct str key = str_of(sql);
	sqlite3_stmt *s = map_del(c->cached, key); /* out of the cache while it is in use */
	int rc;

	assert(key.n < DB_SQL_MAX);
	if (s == NULL) {
		rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);
		if (rc != SQLITE_OK)
			return fail(c, rc, sql, err);
	}
	assert((size_t)sqlite3_bind_parameter_count(s) == n);
	for (size_t i = 0; i < n; i++) {
		rc = bind(c, s, (int)i + 1, &v[i]);
		if (rc != SQLITE_OK) {
			fail(c, rc, sql, err);
			(void)sqlite3_finalize(s);
			return -1;
		}
	}
	*out = (struct db_stmt *)s;
	return 0;
}

static int sq_step(struct db_conn *dc, struct db_stmt *ds, bool *row, struct err *err)
{
	struct conn *c = (struct conn *)dc;
	sqlite3_stmt *s = (sqlite3_stmt *)ds;
	int rc = sqlite3_step(s);

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return fail(c, rc, sqlite3_sql(s), err);
	*row = rc == SQLITE_ROW;
	return 0;
}

static void sq_column(struct db_conn *dc UNUSED, struct db_stmt *ds, int i, struct db_val *out)
{
	sqlite3_stmt *s = (sqlite3_stmt *)ds;

	assert(i < sqlite3_column_count(s));
	switch (sqlite3_column_type(s, i)) {
	case SQLITE_INTEGER:
		*out = db_int(sqlite3_column_int64(s, i));
		break;
	case SQLITE_FLOAT:
		*out = db_real(sqlite3_column_double(s, i));
		break;
	case SQLITE_TEXT:
		*out = (struct db_val){.kind = DB_TEXT};
		out->text.p = (const char *)sqlite3_column_text(s, i);
		out->text.n = (size_t)sqlite3_column_bytes(s, i);
		break;
	case SQLITE_BLOB:
		*out = (struct db_val){.kind = DB_BLOB};
		out->text.p = sqlite3_column_blob(s, i);
		out->text.n = (size_t)sqlite3_column_bytes(s, i);
		break;
	default:
		*out = (struct db_val){.kind = DB_NULL};
		break;
	}
}

static void sq_finish(struct db_conn *dc, struct db_stmt *ds)
{
	struct conn *c = (struct conn *)dc;
	sqlite3_stmt *s = (sqlite3_stmt *)ds;

	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	if (map_count(c->cached) < DB_CACHED_MAX)
		s = map_set(c->cached, str_of(sqlite3_sql(s)),
		            s); /* its twin, if one ran beside it */
	(void)sqlite3_finalize(s);
}

static uint64_t sq_changes(struct db_conn *dc)
{
	return (uint64_t)sqlite3_changes64(((struct conn *)dc)->db);
}

/* The first column of the first row. */
static int first_value(struct db_conn *dc, const char *sql, struct db_val *out, struct buf *text,
                       struct err *err)
{
	struct db_stmt *s = NULL;
	bool row = false;
	int r;

	*out = (struct db_val){.kind = DB_NULL};
	if (sq_start(dc, sql, NULL, 0, &s, err) < 0)
		return -1;
	r = sq_step(dc, s, &row, err);
	if (r == 0 && row) {
		sq_column(dc, s, 0, out);
		buf_add(text, out->text.p, out->text.n);
	}
	sq_finish(dc, s);
	return r;
}

static int sq_version(struct db_conn *dc, int64_t *out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SHOWN_MAX);
	struct db_val v;

	if (first_value(dc, "PRAGMA user_version", &v, &text, err) < 0)
		return -1;
	*out = v.num;
	return 0;
}

static int sq_set_version(struct db_conn *dc, int64_t version, struct err *err)
{
	char sql[60];

	FMT(sql, "PRAGMA user_version = %lld", (long long)version);
	return sq_script(dc, sql, err);
}

static int sq_check(struct db_conn *dc, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SHOWN_MAX), table = BUF_INIT(SHOWN_MAX);
	struct db_val v;

	if (first_value(dc, "PRAGMA integrity_check(1)", &v, &text, err) < 0)
		return -1;
	if (strcmp(buf_cstr(&text), "ok") != 0)
		return err_set(err, ERR_CORRUPT, "database: %s", buf_cstr(&text));
	if (first_value(dc, "PRAGMA foreign_key_check", &v, &table, err) < 0)
		return -1;
	if (v.kind != DB_NULL)
		return err_set(err, ERR_CORRUPT,
		               "database: a row of %s names one that is not there",
		               buf_cstr(&table));
	return 0;
}

const struct db_ops db_sqlite = {
	.open = sq_open,
	.close = sq_close,
	.begin = sq_begin,
	.commit = sq_commit,
	.rollback = sq_rollback,
	.version = sq_version,
	.set_version = sq_set_version,
	.check = sq_check,
	.script = sq_script,
	.start = sq_start,
	.step = sq_step,
	.column = sq_column,
	.finish = sq_finish,
	.changes = sq_changes,
};
