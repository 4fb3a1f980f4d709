/* db.c - connections, transactions, rows; the drivers do the rest. */
#include "meta/db.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

#define PAUSE_MS 50 /* the first one; each is twice as long */
#define PAUSE_MAX_MS 500

static const struct {
	const char *scheme;
	const struct db_ops *ops;
} drivers[] = {
	{"sqlite", &db_sqlite},
	{"postgresql", &db_pg},
	{"postgres", &db_pg}, /* libpq takes both */
	{"fault", &db_fault},
};

struct db {
	unsigned magic;
#define DB_MAGIC 0x4d44425fU
	const struct db_ops *ops;
	struct lock write_lock; /* held by the open write transaction */
	struct db_conn *writer;
	struct lock read_lock; /* of idle[] */
	struct cond read_free;
	struct db_conn *readers[DB_READERS], *idle[DB_READERS];
	size_t n_idle;
	/* Of readers and of the writer: the last begin was not answered. Of room: a write was
	 * refused for the lack of it, and since then none has shown that it is back. Written under
	 * read_lock. */
	atomic_bool away[3];
	struct outage outage; /* of any of them; under read_lock */

	struct lock beat_lock; /* of all below */
	struct cond beat_now;
	struct db_conn *beat; /* the thread's own; NULL: there is no thread */
	pthread_t beat_thread;
	char url[LEAD_URL_CAP];
	_Atomic int64_t heard_ms; /* monotonic: the last beat that was acknowledged */
	bool closing, deposed;
	void (*on_deposed)(void *arg); /* NULL: not set, or called */
	void *on_deposed_arg;
};

/* What is true of the readers whenever their lock is free. */
static void pool_check(const struct db *db)
{
	assert(db->magic == DB_MAGIC && lock_is_mine(&db->read_lock));
	assert(db->n_idle <= DB_READERS);
	for (size_t i = 0; i < db->n_idle; i++)
		assert(db->idle[i] != NULL);
}

/* And of a transaction that is open: one that writes has the writer, and it alone. */
static void tx_check(const struct db_tx *tx)
{
	assert(tx->conn != NULL && tx->db->magic == DB_MAGIC);
	if (tx->mode == DB_WRITE)
		assert(tx->conn == tx->db->writer && lock_is_mine(&tx->db->write_lock));
	else
		assert(tx->mode == DB_READ && tx->conn != tx->db->writer);
}

struct db_val db_int(int64_t n)
{
	return (struct db_val){.kind = DB_INT, .num = n};
}

struct db_val db_u64(uint64_t n)
{
	assert(n <= INT64_MAX);
	return db_int((int64_t)n);
}

struct db_val db_bits(uint64_t n)
{
	int64_t as;

	memcpy(&as, &n, sizeof(as));
	return db_int(as);
}

struct db_val db_real(double d)
{
	return (struct db_val){.kind = DB_REAL, .real = d};
}

struct db_val db_text(const char *s)
{
	if (s == NULL)
		return (struct db_val){.kind = DB_NULL};
	return (struct db_val){.kind = DB_TEXT, .text = str_of(s)};
}

struct db_val db_blob(struct str s)
{
	return (struct db_val){.kind = DB_BLOB, .text = s};
}

const struct db_ops *db_driver(const char *url, const char **where)
{
	for (size_t i = 0; i < COUNT(drivers); i++) {
		size_t n = strlen(drivers[i].scheme);

		if (strncmp(url, drivers[i].scheme, n) == 0 && url[n] == ':') {
			*where = url + n + 1;
			return drivers[i].ops;
		}
	}
	return NULL;
}

/* --- who leads --- */

static void note_deposed(struct db *db)
{
	lock_take(&db->beat_lock);
	db->deposed = true;
	cond_signal(&db->beat_now);
	lock_give(&db->beat_lock);
}

static void beat(struct db *db)
{
	struct err err = {0};
	int64_t begun_ms = clock_mono_ms();
	char url[LEAD_URL_CAP];
	bool held = true;

	lock_take(&db->beat_lock);
	FMT(url, "%s", db->url);
	lock_give(&db->beat_lock);
	if (db->ops->beat(db->beat, db->writer, url, &held, &err) < 0) {
		if (err.id == ERR_DATABASE_IN_USE)
			note_deposed(db);
		return; /* else it is away: whoever needs it says so */
	}
	atomic_store(&db->heard_ms, begun_ms); /* a standby counts from when it was written */
	if (!held) { /* the session that writes was lost: no other server is to find a free lock */
		AUTO_DB_TX struct db_tx tx = {0};

		(void)(db_begin(db, DB_WRITE, &tx, &err) < 0);
	}
}

static void *beat_main(void *arg)
{
	struct db *db = FROM_VOID(struct db, arg, DB_MAGIC);
	void (*fn)(void *arg);

	lock_take(&db->beat_lock);
	while (!db->closing) {
		int64_t until = sync_deadline(DB_BEAT_MS);

		lock_give(&db->beat_lock);
		beat(db);
		lock_take(&db->beat_lock);
		fn = db->deposed ? db->on_deposed : NULL;
		if (fn != NULL) {
			db->on_deposed = NULL;
			lock_give(&db->beat_lock);
			fn(db->on_deposed_arg);
			lock_take(&db->beat_lock);
		}
		while (!db->closing && !(db->deposed && db->on_deposed != NULL)) {
			if (!cond_wait_until(&db->beat_now, &db->beat_lock, until))
				break;
		}
	}
	lock_give(&db->beat_lock);
	return NULL;
}

static int start_beat(struct db *db, const char *where, struct err *err)
{
	int rc;

	if (db->ops->open(&db->beat, where, false, err) < 0)
		return -1;
	atomic_store(&db->heard_ms, clock_mono_ms());
	rc = pthread_create(&db->beat_thread, NULL, beat_main, db);
	if (rc == 0)
		return 0;
	db->ops->close(db->beat);
	db->beat = NULL;
	return err_errno(err, rc, "start a thread");
}

static void stop_beat(struct db *db)
{
	if (db->beat == NULL)
		return;
	lock_take(&db->beat_lock);
	db->closing = true;
	cond_signal(&db->beat_now);
	lock_give(&db->beat_lock);
	(void)pthread_join(db->beat_thread, NULL);
	db->ops->close(db->beat);
}

void db_lead_url(struct db *db, const char *url)
{
	lock_take(&db->beat_lock);
	copy_cut(db->url, sizeof(db->url), url);
	lock_give(&db->beat_lock);
}

void db_on_deposed(struct db *db, void (*fn)(void *arg), void *arg)
{
	lock_take(&db->beat_lock);
	db->on_deposed_arg = arg;
	db->on_deposed = fn;
	cond_signal(&db->beat_now);
	lock_give(&db->beat_lock);
}

/* --- open and close --- */

static struct db *new_db(void)
{
	struct db *db = xcalloc(1, sizeof(*db));

	db->magic = DB_MAGIC;
	lock_init(&db->write_lock, LOCK_DB_WRITE);
	lock_init(&db->read_lock, LOCK_DB_READ);
	lock_init(&db->beat_lock, LOCK_DB_BEAT);
	cond_init(&db->read_free);
	cond_init(&db->beat_now);
	return db;
}

static int open_reader(struct db *db, const char *where, struct err *err)
{
	struct db_conn **c = &db->readers[db->n_idle];

	assert(db->n_idle < DB_READERS && *c == NULL);
	if (db->ops->open(c, where, false, err) < 0)
		return err_wrap(err, "open database");
	db->idle[db->n_idle++] = *c;
	return 0;
}

int db_open(struct db **out, const char *url, struct err *err)
{
	AUTO_DB struct db *db = new_db();
	const char *where = NULL;

	db->ops = db_driver(url, &where);
	if (db->ops == NULL)
		return err_set(err, ERR_INVALID, "no database driver for \"%s\"", url);
	/* The writer first: it makes the file and sets its journal mode. */
	if (db->ops->open(&db->writer, where, true, err) < 0)
		return err_wrap(err, "open database");
	if (db->ops->beat != NULL && start_beat(db, where, err) < 0)
		return err_wrap(err, "open database");
	for (size_t i = 0; i < DB_READERS; i++) {
		if (open_reader(db, where, err) < 0)
			return -1;
	}
	*out = TAKE(db);
	return 0;
}

int db_open_to_watch(struct db **out, const char *url, struct err *err)
{
	AUTO_DB struct db *db = new_db();
	const char *where = NULL;

	db->ops = db_driver(url, &where);
	if (db->ops == NULL || db->ops->lead == NULL)
		return err_set(err, ERR_INVALID, "one server has this kind of database to itself");
	if (open_reader(db, where, err) < 0)
		return -1;
	*out = TAKE(db);
	return 0;
}

void db_close(struct db *db)
{
	if (db == NULL)
		return;
	stop_beat(db);
	for (size_t i = 0; i < DB_READERS; i++) {
		if (db->readers[i] != NULL)
			db->ops->close(db->readers[i]);
	}
	if (db->writer != NULL) /* last: it folds the log into the file */
		db->ops->close(db->writer);
	lock_done(&db->write_lock);
	lock_done(&db->read_lock);
	lock_done(&db->beat_lock);
	cond_done(&db->read_free);
	cond_done(&db->beat_now);
	free(db);
}

static struct db_conn *take(struct db *db, enum db_mode mode)
{
	struct db_conn *c;

	if (mode == DB_WRITE) {
		lock_take(&db->write_lock);
		assert(db->writer != NULL); /* not one that only watches */
		return db->writer;
	}
	lock_take(&db->read_lock);
	pool_check(db);
	while (db->n_idle == 0)
		cond_wait(&db->read_free, &db->read_lock);
	c = db->idle[--db->n_idle];
	pool_check(db);
	lock_give(&db->read_lock);
	return c;
}

static void give_back(struct db_tx *tx)
{
	struct db *db = tx->db;

	tx_check(tx);
	if (tx->mode == DB_WRITE) {
		tx->conn = NULL;
		lock_give(&db->write_lock);
		return;
	}
	lock_take(&db->read_lock);
	pool_check(db);
	assert(db->n_idle < DB_READERS);
	db->idle[db->n_idle++] = tx->conn;
	tx->conn = NULL;
	pool_check(db);
	cond_signal(&db->read_free);
	lock_give(&db->read_lock);
}

#define ROOM 2 /* behind the two modes */
_Static_assert(DB_READ < ROOM && DB_WRITE < ROOM, "an index of its own");

/* which: a mode, or ROOM. why: NULL while it answers. */
static void note_answer(struct db *db, unsigned which, const char *why)
{
	bool away = why != NULL;

	if (away == atomic_load(&db->away[which]))
		return;
	assert(which < COUNT(db->away));
	lock_take(&db->read_lock);
	pool_check(db);
	atomic_store(&db->away[which], away);
	away = false;
	for (size_t i = 0; i < COUNT(db->away); i++)
		away = away || atomic_load(&db->away[i]);
	if (outage_note(&db->outage, away, clock_wall_ms())) {
		if (away)
			log_warn("the database %s; jobs go on running: %s",
			         which == ROOM ? "takes no writes" : "does not answer", why);
		else
			log_info("the database answers again: away_ms=%" PRId64,
			         db->outage.last_ms);
	}
	lock_give(&db->read_lock);
}

void db_outage(struct db *db, struct outage *out)
{
	lock_take(&db->read_lock);
	*out = db->outage;
	lock_give(&db->read_lock);
}

/* The room of one that only this machine uses is what base/reserve.h keeps. */
static int note_room(struct db *db, int rc, const struct err *err)
{
	if (rc < 0 && err->code == ERR_NO_SPACE && db_is_shared(db))
		note_answer(db, ROOM, err->msg);
	return rc;
}

bool db_is_full(const struct db *db)
{
	return atomic_load(&db->away[ROOM]);
}

void db_has_room(struct db *db)
{
	note_answer(db, ROOM, NULL);
}

bool db_unheard(const struct db *db)
{
	return db->beat != NULL && clock_mono_ms() - atomic_load(&db->heard_ms) > LEAD_UNHEARD_MS;
}

int db_begin(struct db *db, enum db_mode mode, struct db_tx *tx, struct err *err)
{
	assert(tx->conn == NULL);
	tx->db = db;
	tx->mode = mode;
	tx->conn = take(db, mode);
	if (db->ops->begin(tx->conn, mode, err) < 0) {
		note_answer(db, mode, err->id == ERR_DATABASE_UNAVAILABLE ? err->msg : NULL);
		if (err->id == ERR_DATABASE_IN_USE)
			note_deposed(db);
		give_back(tx);
		return -1;
	}
	note_answer(db, mode, NULL);
	return 0;
}

bool db_is_shared(const struct db *db)
{
	return db->ops->waiting != NULL;
}

int db_lead(struct db *db, struct lead *out, struct err *err)
{
	struct db_tx tx = {.db = db, .mode = DB_READ, .conn = take(db, DB_READ)};
	int r = db->ops->lead(tx.conn, out, err);

	give_back(&tx);
	return r;
}

int db_waiting(struct db *db, struct lead_waiting *out, size_t *n, struct err *err)
{
	struct db_tx tx = {.db = db, .mode = DB_READ};
	int r;

	*n = 0;
	if (!db_is_shared(db))
		return 0;
	tx.conn = take(db, DB_READ);
	r = db->ops->waiting(tx.conn, out, n, err);
	give_back(&tx);
	return r;
}

int db_end_lead(struct db *db, const struct lead *seen, struct err *err)
{
	struct db_tx tx = {.db = db, .mode = DB_READ, .conn = take(db, DB_READ)};
	int r = db->ops->end_lead(tx.conn, seen, err);

	give_back(&tx);
	return r;
}

bool db_is_sqlite(const struct db *db)
{
	return db->writer->sqlite;
}

struct db_retry db_retry(void)
{
	return (struct db_retry){.until_ms = clock_mono_ms() + DB_OUTAGE_MS, .pause_ms = PAUSE_MS};
}

bool db_again(struct db_retry *t, struct err *err)
{
	if (err->id != ERR_DATABASE_UNAVAILABLE && err->id != ERR_DATABASE_CONFLICT)
		return false;
	if (clock_mono_ms() >= t->until_ms)
		return false;
	err_clear(err);
	clock_sleep_ms(t->pause_ms);
	t->pause_ms = MIN(t->pause_ms * 2, (int64_t)PAUSE_MAX_MS);
	return true;
}

int db_commit(struct db_tx *tx, struct err *err)
{
	int r;

	tx_check(tx);
	r = note_room(tx->db, tx->db->ops->commit(tx->conn, err), err);
	give_back(tx);
	return r;
}

void db_end(struct db_tx *tx)
{
	if (tx->conn == NULL)
		return;
	tx_check(tx);
	tx->db->ops->rollback(tx->conn);
	give_back(tx);
}

int db_exec(struct db_tx *tx, const char *sql, const struct db_val *v, size_t n, uint64_t *changed,
            struct err *err)
{
	const struct db_ops *ops = tx->db->ops;
	struct db_stmt *s = NULL;
	bool row = true;
	int r = 0;

	tx_check(tx);
	assert(tx->mode == DB_WRITE);
	if (ops->start(tx->conn, sql, v, n, &s, err) < 0)
		return note_room(tx->db, -1, err);
	while (r == 0 && row)
		r = ops->step(tx->conn, s, &row, err);
	if (r == 0 && changed != NULL)
		*changed = ops->changes(tx->conn);
	ops->finish(tx->conn, s);
	return r;
}

int db_script(struct db_tx *tx, const char *sql, struct err *err)
{
	tx_check(tx);
	return tx->db->ops->script(tx->conn, sql, err);
}

int db_version(struct db_tx *tx, int64_t *out, struct err *err)
{
	tx_check(tx);
	return tx->db->ops->version(tx->conn, out, err);
}

int db_set_version(struct db_tx *tx, int64_t version, struct err *err)
{
	tx_check(tx);
	assert(tx->mode == DB_WRITE);
	return tx->db->ops->set_version(tx->conn, version, err);
}

int db_check(struct db_tx *tx, struct err *err)
{
	tx_check(tx);
	return tx->db->ops->check(tx->conn, err);
}

int db_query(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v, size_t n,
             struct db_rows *out, struct err *err)
{
	struct db_stmt *s = NULL;

	tx_check(tx);
	if (tx->db->ops->start(tx->conn, sql, v, n, &s, err) < 0)
		return -1;
	*out = (struct db_rows){.conn = tx->conn, .stmt = s, .arena = a};
	return 0;
}

int db_next(struct db_rows *r, bool *row, struct err *err)
{
	assert(r->stmt != NULL && r->conn != NULL);
	r->at = 0;
	return r->conn->ops->step(r->conn, r->stmt, row, err);
}

void db_rows_done(struct db_rows *r)
{
	if (r->stmt != NULL)
		r->conn->ops->finish(r->conn, r->stmt);
	r->stmt = NULL;
}

static struct db_val column(struct db_rows *r)
{
	struct db_val v = {0};

	assert(r->stmt != NULL && r->conn != NULL);
	r->conn->ops->column(r->conn, r->stmt, r->at++, &v);
	return v;
}

struct db_val db_get(struct db_rows *r)
{
	struct db_val v = column(r);

	if (v.text.p != NULL)
		v.text = arena_str(r->arena, v.text);
	return v;
}

int64_t db_get_int(struct db_rows *r)
{
	struct db_val v = column(r);

	return v.kind == DB_INT ? v.num : 0;
}

uint64_t db_get_u64(struct db_rows *r)
{
	int64_t n = db_get_int(r);
	uint64_t as;

	memcpy(&as, &n, sizeof(as));
	return as;
}

uint32_t db_get_u32(struct db_rows *r)
{
	uint64_t n = db_get_u64(r);

	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

bool db_get_bool(struct db_rows *r)
{
	return db_get_int(r) != 0;
}

double db_get_real(struct db_rows *r)
{
	struct db_val v = column(r);

	return v.kind == DB_REAL ? v.real : (double)v.num;
}

const char *db_get_text(struct db_rows *r)
{
	struct db_val v = column(r);

	return v.kind == DB_TEXT ? arena_strz(r->arena, v.text) : NULL;
}

struct str db_get_blob(struct db_rows *r)
{
	struct db_val v = column(r);

	return v.kind == DB_BLOB ? arena_str(r->arena, v.text) : (struct str){0};
}

int db_number(struct db_tx *tx, const char *sql, const struct db_val *v, size_t n, int64_t dflt,
              int64_t *out, struct err *err)
{
	AUTO_DB_ROWS struct db_rows r = {0};
	bool row = false;

	if (db_query(tx, NULL, sql, v, n, &r, err) < 0 || db_next(&r, &row, err) < 0)
		return -1;
	*out = row ? db_get_int(&r) : dflt;
	return 0;
}
