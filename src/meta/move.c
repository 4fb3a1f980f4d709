/* move.c - see move.h. */
#include "meta/move.h"

#include "base/fs.h"
#include "base/seal.h"
#include "meta/db_pg_words.h"
#include "meta/db_url.h"
#include "meta/schema.h"

#define KEYS_MAX 4
#define COLUMNS_MAX 96
#define BATCH_ROWS 500
#define BATCH_BYTES ((size_t)16 << 20)

/* In an order that foreign keys allow. `sequence`: the column that counts by itself, and goes on
 * where it was. Rows of some tables are listed by the order in which they were made. */
static const struct table {
	const char *name, *key[KEYS_MAX];
	const char *sequence;
} tables[] = {
	{"clusters", {"name"}, NULL},
	{"teams", {"id"}, NULL},
	{"tokens", {"id"}, NULL},
	{"secrets", {"id"}, NULL},
	{"projects", {"id"}, "rowid"},
	{"jobs", {"id"}, "rowid"},
	{"job_counts", {"project_id", "team_id", "user", "state"}, NULL},
	{"deployments", {"id"}, NULL},
	{"idempotency", {"project_id", "key"}, NULL},
	{"events", {"seq"}, "seq"},
	{"attempts", {"id", "node_rank"}, NULL},
	{"checkpoints", {"job_id", "name", "rank"}, NULL},
	{"mirrors", {"id"}, NULL},
	{"refs", {"team_id", "kind", "name"}, NULL},
	{"hub_revs", {"team_id", "repo", "rev"}, NULL},
	{"repos", {"id"}, NULL},
	{"repo_refs", {"repo_id", "kind", "name"}, NULL},
	{"repo_commits", {"seq"}, "seq"},
	{"repo_pulls", {"repo_id", "num"}, NULL},
	{"repo_events", {"seq"}, "seq"},
	{"repo_moves", {"key"}, NULL},
	{"artifacts", {"seq"}, "seq"},
	{"uploads", {"access_key"}, NULL},
	{"job_code", {"job_id", "key"}, NULL},
	{"job_weights", {"job_id", "manifest"}, NULL},
	{"snapshots", {"scope", "scope_id"}, NULL},
	{"capacity", {"team_id", "gpu_type"}, NULL},
	{"trash", {"id"}, "id"},
	{"notices", {"seq"}, "seq"},
	{"kv", {"key"}, NULL},
};

/* A table's columns, and the statement that reads the batch behind a key. */
struct shape {
	const struct table *table;
	const char *column[COLUMNS_MAX];
	size_t n, n_keys, key[KEYS_MAX]; /* key: which of the columns */
	const char *first, *next, *last; /* SQL: from the beginning, behind a key, the last row */
};

struct batch {
	struct db_val *value; /* rows x columns */
	size_t rows;
};

struct mover {
	const struct move_options *o;
	struct arena *a;
	struct db *from, *to;
	uint64_t done, total;
	enum move_phase phase;
};

/* --- notes ------------------------------------------------------------------------------------ */

enum role { NO_ROLE, IS_SOURCE, IS_TARGET, IS_LEFT };
static const char *const role_words[] = {
	[NO_ROLE] = "", [IS_SOURCE] = "to", [IS_TARGET] = "from", [IS_LEFT] = "moved"};

struct note {
	enum role role;
	const char *id, *place; /* of the move; where the other one is, for messages */
};

static int read_note_once(struct db *db, struct arena *a, struct note *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_DB_ROWS struct db_rows r = {0};
	bool row = false;
	const char *word;

	*out = (struct note){.id = ""};
	if (db_begin(db, DB_READ, &tx, err) < 0 ||
	    db_query(&tx, a, "SELECT role, id, place FROM moves", DB_NONE, &r, err) < 0 ||
	    db_next(&r, &row, err) < 0)
		return -1;
	if (!row)
		return 0;
	word = db_get_text(&r);
	for (enum role role = IS_SOURCE; role <= IS_LEFT; role++)
		if (strcmp(word, role_words[role]) == 0)
			out->role = role;
	out->id = db_get_text(&r);
	out->place = db_get_text(&r);
	if (out->role == NO_ROLE)
		return err_set(err, ERR_CORRUPT, "the note about a move of this database: %s",
		               word);
	return 0;
}

static int read_note(struct db *db, struct arena *a, struct note *out, struct err *err)
{
	return DB_AGAIN(read_note_once(db, a, out, err), err);
}

static int write_note_in(struct db_tx *tx, const struct note *n, struct err *err)
{
	if (db_exec(tx, "DELETE FROM moves", DB_NONE, NULL, err) < 0)
		return -1;
	if (n->role == NO_ROLE)
		return 0;
	return db_exec(tx, "INSERT INTO moves (role, id, place) VALUES (?, ?, ?)",
	               DB_ARGS(db_text(role_words[n->role]), db_text(n->id), db_text(n->place)),
	               NULL, err);
}

static int write_note_once(struct db *db, const struct note *n, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(db, DB_WRITE, &tx, err) < 0 || write_note_in(&tx, n, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

static int write_note(struct db *db, const struct note *n, struct err *err)
{
	return DB_AGAIN(write_note_once(db, n, err), err);
}

int move_check(struct db *db, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct note note;

	if (read_note(db, a, &note, err) < 0)
		return -1;
	switch (note.role) {
	case NO_ROLE:
		return 0;
	case IS_SOURCE: /* who starts a server on it has thought better of it */
		note = (struct note){.role = NO_ROLE};
		return write_note(db, &note, err);
	case IS_TARGET:
		return err_set(err, ERR_DATABASE_INCOMPLETE,
		               "a move from %s into this database was interrupted: run `stoker "
		               "server --move-database FROM TO` again",
		               note.place);
	case IS_LEFT:
		break;
	}
	return err_set(
		err, ERR_DATABASE_MOVED,
		"this database was moved to %s: start the server with that one as --database",
		note.place);
}

bool move_knows(const char *table)
{
	for (size_t i = 0; i < COUNT(tables); i++)
		if (strcmp(tables[i].name, table) == 0)
			return true;
	return false;
}

/* --- shapes ----------------------------------------------------------------------------------- */

static int add_columns(struct db *db, struct arena *a, struct shape *s, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_DB_ROWS struct db_rows r = {0};
	bool row = true;

	if (db_begin(db, DB_READ, &tx, err) < 0 ||
	    db_query(&tx, a,
	             db_is_sqlite(db)
	                     ? "SELECT name FROM pragma_table_info(?) ORDER BY cid"
	                     : "SELECT column_name::text FROM information_schema.columns WHERE"
	                       " table_schema = current_schema() AND table_name = ? AND"
	                       " column_name <> 'rowid' ORDER BY ordinal_position",
	             DB_ARGS(db_text(s->table->name)), &r, err) < 0)
		return -1;
	while (db_next(&r, &row, err) == 0 && row) {
		assert(s->n < COLUMNS_MAX);
		s->column[s->n++] = db_get_text(&r);
	}
	return err->code == ERR_NONE ? 0 : -1;
}

static void add_names(struct buf *sql, const struct shape *s)
{
	for (size_t i = 0; i < s->n; i++)
		buf_printf(sql, "%s\"%s\"", i > 0 ? ", " : "", s->column[i]);
}

static void add_keys(struct buf *sql, const struct shape *s, const char *order)
{
	for (size_t i = 0; i < s->n_keys; i++)
		buf_printf(sql, "%s\"%s\"%s", i > 0 ? ", " : "", s->table->key[i], order);
}

static const char *select_sql(struct arena *a, const struct shape *s, bool behind, bool last)
{
	AUTO_BUF struct buf sql = BUF_INIT(DB_SQL_MAX);

	buf_puts(&sql, "SELECT ");
	add_names(&sql, s);
	buf_printf(&sql, " FROM %s", s->table->name);
	if (behind) {
		buf_puts(&sql, " WHERE (");
		add_keys(&sql, s, "");
		buf_puts(&sql, ") > (");
		for (size_t i = 0; i < s->n_keys; i++)
			buf_puts(&sql, i > 0 ? ", ?" : "?");
		buf_puts(&sql, ")");
	}
	buf_puts(&sql, " ORDER BY ");
	add_keys(&sql, s, last ? " DESC" : "");
	buf_printf(&sql, " LIMIT %d", last ? 1 : BATCH_ROWS);
	return arena_cstr(a, buf_cstr(&sql));
}

static int learn_shape(struct db *db, struct arena *a, const struct table *t, struct shape *out,
                       struct err *err)
{
	*out = (struct shape){.table = t};
	if (add_columns(db, a, out, err) < 0)
		return -1;
	if (t->sequence != NULL && strcmp(t->sequence, "rowid") == 0)
		out->column[out->n++] = "rowid";
	for (; out->n_keys < KEYS_MAX && t->key[out->n_keys] != NULL; out->n_keys++) {
		size_t i = 0;

		while (i < out->n && strcmp(out->column[i], t->key[out->n_keys]) != 0)
			i++;
		assert(i < out->n);
		out->key[out->n_keys] = i;
	}
	out->first = select_sql(a, out, false, false);
	out->next = select_sql(a, out, true, false);
	out->last = select_sql(a, out, false, true);
	return 0;
}

/* --- batches ---------------------------------------------------------------------------------- */

/* One of the statements of the shape. `after`: the values of the row that it begins behind; NULL:
 * it begins nowhere. */
static int read_batch_in(struct db_tx *tx, struct arena *a, const struct shape *s, const char *sql,
                         const struct db_val *after, size_t rows_max, struct batch *out,
                         struct err *err)
{
	AUTO_DB_ROWS struct db_rows r = {0};
	struct db_val key[KEYS_MAX];
	size_t bytes = 0;
	bool row = true;

	for (size_t i = 0; after != NULL && i < s->n_keys; i++)
		key[i] = after[s->key[i]];
	out->value = ARENA_ARRAY(a, struct db_val, s->n * rows_max);
	out->rows = 0;
	if (db_query(tx, a, sql, key, after != NULL ? s->n_keys : 0, &r, err) < 0)
		return -1;
	while (out->rows < rows_max && bytes < BATCH_BYTES) {
		struct db_val *v = &out->value[out->rows * s->n];

		if (db_next(&r, &row, err) < 0)
			return -1;
		if (!row)
			break;
		for (size_t i = 0; i < s->n; i++) {
			v[i] = db_get(&r);
			bytes += v[i].text.n;
		}
		out->rows++;
	}
	return 0;
}

static int read_batch_once(struct db *db, struct arena *a, const struct shape *s, const char *sql,
                           const struct db_val *after, size_t rows_max, struct batch *out,
                           struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(db, DB_READ, &tx, err) < 0)
		return -1;
	return read_batch_in(&tx, a, s, sql, after, rows_max, out, err);
}

static int read_batch(struct db *db, struct arena *a, const struct shape *s, const char *sql,
                      const struct db_val *after, size_t rows_max, struct batch *out,
                      struct err *err)
{
	return DB_AGAIN(read_batch_once(db, a, s, sql, after, rows_max, out, err), err);
}

static int insert(struct db_tx *tx, const struct shape *s, const struct db_val *v, size_t rows,
                  struct err *err)
{
	AUTO_BUF struct buf sql = BUF_INIT(DB_SQL_MAX);

	buf_printf(&sql, "INSERT INTO %s (", s->table->name);
	add_names(&sql, s);
	buf_puts(&sql, ") VALUES ");
	for (size_t i = 0; i < rows; i++) {
		buf_puts(&sql, i > 0 ? ", (" : "(");
		for (size_t k = 0; k < s->n; k++)
			buf_puts(&sql, k > 0 ? ", ?" : "?");
		buf_putc(&sql, ')');
	}
	return db_exec(tx, buf_cstr(&sql), v, rows * s->n, NULL, err);
}

static int write_batch_once(struct db *db, const struct shape *s, const struct batch *b,
                            struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	size_t each = MAX(DB_PARAMS_MAX / s->n, (size_t)1);

	if (db_begin(db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = 0; i < b->rows; i += each)
		if (insert(&tx, s, &b->value[i * s->n], MIN(each, b->rows - i), err) < 0)
			return -1;
	return db_commit(&tx, err);
}

/* --- a table ---------------------------------------------------------------------------------- */

static int count_rows_once(struct db *db, const struct table *t, uint64_t *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	char sql[80];
	int64_t n = 0;

	FMT(sql, "SELECT count(*) FROM %s", t->name);
	if (db_begin(db, DB_READ, &tx, err) < 0 || db_number(&tx, sql, DB_NONE, 0, &n, err) < 0)
		return -1;
	*out = (uint64_t)n;
	return 0;
}

static int count_rows(struct db *db, const struct table *t, uint64_t *out, struct err *err)
{
	return DB_AGAIN(count_rows_once(db, t, out, err), err);
}

/* The rows as the other database stores them: PostgreSQL has no text that is not UTF-8. */
static struct batch storable(const struct mover *m, struct arena *a, const struct shape *s,
                             const struct batch *b)
{
	struct batch out = {ARENA_ARRAY(a, struct db_val, b->rows * s->n), b->rows};

	for (size_t i = 0; i < b->rows * s->n; i++) {
		AUTO_BUF struct buf text = BUF_INIT(3 * DB_VALUE_MAX);

		out.value[i] = b->value[i];
		if (out.value[i].kind != DB_TEXT || db_is_sqlite(m->to))
			continue;
		out.value[i].text = pg_text(out.value[i].text, &text);
		if (text.n > 0)
			out.value[i].text = arena_str(a, out.value[i].text);
	}
	return out;
}

static void report(struct mover *m, uint64_t rows)
{
	m->done += rows;
	if (rows > 0 && m->o->progress != NULL)
		m->o->progress(m->o->arg, m->phase, m->done, m->total);
}

static int copy_table(struct mover *m, const struct shape *s, struct err *err)
{
	AUTO_ARENA struct arena *kept = arena_new();
	const struct db_val *after = NULL;
	struct batch b = {0};
	uint64_t before = 0;

	/* what an earlier run has brought */
	if (read_batch(m->to, kept, s, s->last, NULL, 1, &b, err) < 0)
		return -1;
	if (b.rows > 0) {
		after = b.value;
		if (count_rows(m->to, s->table, &before, err) < 0)
			return -1;
		report(m, before);
	}
	for (;;) {
		struct arena *a = arena_new();

		if (read_batch(m->from, a, s, after != NULL ? s->next : s->first, after, BATCH_ROWS,
		               &b, err) < 0) {
			arena_free(a);
			return -1;
		}
		arena_free(kept); /* it had the key of the batch before */
		kept = a;
		if (b.rows == 0)
			return 0;
		after = &b.value[(b.rows - 1) * s->n];
		b = storable(m, a, s, &b);
		if (DB_AGAIN(write_batch_once(m->to, s, &b, err), err) < 0)
			return -1;
		report(m, b.rows);
	}
}

static bool is_same(const struct db_val *a, const struct db_val *b)
{
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case DB_NULL:
		return true;
	case DB_INT:
		return a->num == b->num;
	case DB_REAL: /* the bits of it: -0.0 is another number then, and one that is none is itself
	               */
		/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
		return memcmp(&a->real, &b->real, sizeof(a->real)) == 0;
	case DB_TEXT:
	case DB_BLOB:
		break;
	}
	return str_same(a->text, b->text);
}

/* What a row is called in a message: the first column of its key. */
static const char *row_name(struct arena *a, const struct shape *s, const struct db_val *row)
{
	const struct db_val *v = &row[s->key[0]];

	return v->kind == DB_INT ? arena_printf(a, "%" PRId64, v->num) : arena_strz(a, v->text);
}

/* One of the two was changed since it was copied, and which of them is right nobody can say. */
#define DIFFERS_MEND "; move again, into a database, a schema or a file that is new"

static int compare_batch(struct arena *a, const struct shape *s, const struct batch *x,
                         const struct batch *y, struct err *err)
{
	for (size_t i = 0; i < MAX(x->rows, y->rows); i++) {
		const struct db_val *vx = &x->value[i * s->n], *vy = &y->value[i * s->n];

		if (i >= x->rows || i >= y->rows)
			return err_set(err, ERR_DATABASE_DIFFERS,
			               "table %s: row %s is in one of the two databases "
			               "only" DIFFERS_MEND,
			               s->table->name, row_name(a, s, i < x->rows ? vx : vy));
		for (size_t k = 0; k < s->n; k++)
			if (!is_same(&vx[k], &vy[k]))
				return err_set(err, ERR_DATABASE_DIFFERS,
				               "table %s, row %s: column %s differs" DIFFERS_MEND,
				               s->table->name, row_name(a, s, vx), s->column[k]);
	}
	return 0;
}

static int compare_table(struct mover *m, struct db_tx *from, struct db_tx *to,
                         const struct shape *s, struct err *err)
{
	AUTO_ARENA struct arena *kept = arena_new();
	const struct db_val *after_x = NULL, *after_y = NULL;
	struct batch x = {0}, y = {0};

	do {
		struct arena *a = arena_new();
		const char *sql = after_x != NULL ? s->next : s->first;

		if (read_batch_in(from, a, s, sql, after_x, BATCH_ROWS, &x, err) < 0 ||
		    read_batch_in(to, a, s, sql, after_y, MAX(x.rows, (size_t)1), &y, err) < 0) {
			arena_free(a);
			return -1;
		}
		after_x = x.rows > 0 ? &x.value[(x.rows - 1) * s->n] : NULL;
		after_y = y.rows > 0 ? &y.value[(y.rows - 1) * s->n] : NULL;
		x = storable(m, a, s, &x);
		arena_free(kept); /* it had the keys of the batch before */
		kept = a;
		if (compare_batch(a, s, &x, &y, err) < 0)
			return -1;
		report(m, x.rows);
	} while (x.rows > 0);
	return 0;
}

/* --- numbers that count by themselves --------------------------------------------------------- */

/* The last one that was given out: rows that were deleted since had numbers, too. */
static int last_number_once(struct db *db, const struct table *t, int64_t *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	char sql[200];

	if (strcmp(t->sequence, "rowid") == 0)
		FMT(sql, "SELECT max(rowid) FROM %s", t->name);
	else if (db_is_sqlite(db))
		FMT(sql, "SELECT seq FROM sqlite_sequence WHERE name = '%s'", t->name);
	else
		FMT(sql,
		    "SELECT pg_sequence_last_value(pg_get_serial_sequence('%s', '%s')::regclass)",
		    t->name, t->sequence);
	return db_begin(db, DB_READ, &tx, err) < 0 || db_number(&tx, sql, DB_NONE, 0, out, err) < 0
	               ? -1
	               : 0;
}

static int go_on_from_once(struct db *db, const struct table *t, int64_t last, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	char sql[200];
	int64_t set;

	if (db_begin(db, DB_WRITE, &tx, err) < 0)
		return -1;
	if (!db_is_sqlite(db)) {
		FMT(sql, "SELECT setval(pg_get_serial_sequence('%s', '%s'), %" PRId64 ")", t->name,
		    t->sequence, last);
		if (db_number(&tx, sql, DB_NONE, 0, &set, err) < 0)
			return -1;
	} else if (strcmp(t->sequence, "rowid") != 0) { /* that one counts from the rows */
		if (db_exec(&tx, "DELETE FROM sqlite_sequence WHERE name = ?",
		            DB_ARGS(db_text(t->name)), NULL, err) < 0 ||
		    db_exec(&tx, "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)",
		            DB_ARGS(db_text(t->name), db_int(last)), NULL, err) < 0)
			return -1;
	}
	return db_commit(&tx, err);
}

static int copy_number(struct mover *m, const struct table *t, struct err *err)
{
	int64_t last = 0;

	if (DB_AGAIN(last_number_once(m->from, t, &last, err), err) < 0)
		return -1;
	return last == 0 ? 0 : DB_AGAIN(go_on_from_once(m->to, t, last, err), err);
}

/* --- the move --------------------------------------------------------------------------------- */

static int clear_once(struct db *db, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	char sql[80];

	if (db_begin(db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = COUNT(tables); i-- > 0;) {
		FMT(sql, "DELETE FROM %s", tables[i].name);
		if (db_exec(&tx, sql, DB_NONE, NULL, err) < 0)
			return -1;
	}
	return db_commit(&tx, err);
}

static int check_empty(struct db *db, const char *place, struct err *err)
{
	for (size_t i = 0; i < COUNT(tables); i++) {
		uint64_t rows = 0;

		if (count_rows(db, &tables[i], &rows, err) < 0)
			return -1;
		if (rows > 0)
			return err_set(err, ERR_DATABASE_NOT_EMPTY,
			               "%s has rows of its own (%" PRIu64
			               " in table %s): move into "
			               "a database, a schema or a file that is new",
			               place, rows, tables[i].name);
	}
	return 0;
}

/* What lies there is of a move that was given up, or must not be there. */
static int make_ready(struct mover *m, const struct note *to, struct err *err)
{
	const char *place = db_url_place(m->a, m->o->to);

	if (to->role == IS_TARGET)
		return DB_AGAIN(clear_once(m->to, err), err);
	if (to->role != NO_ROLE)
		return err_set(err, ERR_DATABASE_NOT_EMPTY,
		               "%s was itself moved to %s: move into a database that is new", place,
		               to->place);
	return check_empty(m->to, place, err);
}

/* The notes say what to do. */
static int begin_move(struct mover *m, struct err *err)
{
	struct note from, to;
	const char *from_place = db_url_place(m->a, m->o->from);
	uint8_t raw[8];
	char id[2 * sizeof(raw) + 1];

	if (read_note(m->from, m->a, &from, err) < 0 || read_note(m->to, m->a, &to, err) < 0)
		return -1;
	if (to.role == IS_TARGET && strcmp(to.id, from.id) == 0 && from.role != IS_TARGET) {
		/* After the last step but one, who knows what was done to either of them since? */
		from.role = IS_SOURCE;
		return write_note(m->from, &from, err);
	}
	if (from.role == IS_LEFT)
		return err_set(err, ERR_DATABASE_MOVED, "%s was moved to %s before", from_place,
		               from.place);
	if (from.role == IS_TARGET)
		return err_set(err, ERR_DATABASE_INCOMPLETE,
		               "%s is itself the target of a move from %s that was interrupted",
		               from_place, from.place);
	if (make_ready(m, &to, err) < 0)
		return -1;
	seal_random(raw, sizeof(raw));
	hex_encode(raw, sizeof(raw), id);
	to = (struct note){IS_TARGET, id, from_place};
	from = (struct note){IS_SOURCE, id, db_url_place(m->a, m->o->to)};
	return write_note(m->to, &to, err) < 0 ? -1 : write_note(m->from, &from, err);
}

static int copy_rows(struct mover *m, struct shape *shapes, struct err *err)
{
	for (size_t i = 0; i < COUNT(tables); i++) {
		uint64_t rows = 0;

		if (DB_AGAIN(learn_shape(m->from, m->a, &tables[i], &shapes[i], err), err) < 0 ||
		    count_rows(m->from, &tables[i], &rows, err) < 0)
			return -1;
		m->total += rows;
	}
	for (size_t i = 0; i < COUNT(tables); i++)
		if (copy_table(m, &shapes[i], err) < 0 ||
		    (tables[i].sequence != NULL && copy_number(m, &tables[i], err) < 0))
			return err_wrap(err, "copy table %s", tables[i].name);
	return 0;
}

/* Nobody else changes a row of this database until the transaction ends. SQLite has one writer. */
static int lock_rows(struct db_tx *tx, bool sqlite, struct err *err)
{
	AUTO_BUF struct buf sql = BUF_INIT(DB_SQL_MAX);

	if (sqlite)
		return 0;
	for (size_t i = 0; i < COUNT(tables); i++)
		buf_printf(&sql, "%s%s", i == 0 ? "LOCK TABLE " : ", ", tables[i].name);
	buf_puts(&sql, " IN SHARE MODE");
	return db_script(tx, buf_cstr(&sql), err);
}

/* Both are the same, and from here on `from` is nobody's: one transaction, or a row that is written
 * in between would be lost. `to` is read as it is at one moment. */
static int leave_once(struct mover *m, const struct shape *shapes, struct err *err)
{
	AUTO_DB_TX struct db_tx from = {0};
	AUTO_DB_TX struct db_tx to = {0};
	struct note note;

	if (read_note(m->from, m->a, &note, err) < 0)
		return -1;
	m->phase = MOVE_COMPARE;
	m->done = 0;
	if (db_begin(m->from, DB_WRITE, &from, err) < 0 ||
	    lock_rows(&from, db_is_sqlite(m->from), err) < 0 ||
	    db_begin(m->to, DB_READ, &to, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(tables); i++)
		if (compare_table(m, &from, &to, &shapes[i], err) < 0)
			return -1;
	note.role = IS_LEFT;
	return write_note_in(&from, &note, err) < 0 ? -1 : db_commit(&from, err);
}

static int move_rows(struct mover *m, struct err *err)
{
	struct shape *shapes = ARENA_ARRAY(m->a, struct shape, COUNT(tables));
	const struct note nothing = {.role = NO_ROLE};

	if (begin_move(m, err) < 0 || copy_rows(m, shapes, err) < 0 ||
	    DB_AGAIN(leave_once(m, shapes, err), err) < 0)
		return -1;
	return write_note(m->to, &nothing, err); /* it is the server's now */
}

static int open_both(struct mover *m, struct err *err)
{
	if (db_open(&m->from, m->o->from, err) < 0 || schema_migrate(m->from, err) < 0)
		return err_wrap(err, "%s", db_url_place(m->a, m->o->from));
	if (db_open(&m->to, m->o->to, err) < 0 || schema_migrate(m->to, err) < 0)
		return err_wrap(err, "%s", db_url_place(m->a, m->o->to));
	return 0;
}

int move_database(const struct move_options *o, uint64_t *rows, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct mover m = {.o = o, .a = a};
	int r = open_both(&m, err) < 0 || move_rows(&m, err) < 0 ? -1 : 0;

	db_close(m.to);
	db_close(m.from);
	*rows = m.done;
	return r;
}
