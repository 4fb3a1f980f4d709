/* meta.c - opening, checking, and the shapes that all the queries share. */
#include "meta/meta_impl.h"
#include "meta/move.h"
#include "meta/schema.h"

#include "base/seal.h"

#define ROOM_MIN ((size_t)256 << 10) /* that a full database has to have again */

int meta_open(struct meta **out, const char *url, struct err *err)
{
	AUTO_META struct meta *m = xcalloc(1, sizeof(*m));

	if (db_open(&m->db, url, err) < 0 || schema_migrate(m->db, err) < 0 ||
	    move_check(m->db, err) < 0)
		return -1;
	*out = TAKE(m);
	return 0;
}

int meta_open_to_watch(struct meta **out, const char *url, struct err *err)
{
	AUTO_META struct meta *m = xcalloc(1, sizeof(*m));

	if (db_open_to_watch(&m->db, url, err) < 0)
		return -1;
	*out = TAKE(m);
	return 0;
}

int meta_lead(struct meta *m, struct lead *out, struct err *err)
{
	return db_lead(m->db, out, err) < 0 ? -1 : schema_known(out->version, err);
}

int meta_end_lead(struct meta *m, const struct lead *seen, struct err *err)
{
	return db_end_lead(m->db, seen, err);
}

bool meta_is_shared(const struct meta *m)
{
	return db_is_shared(m->db);
}

int meta_standbys(struct meta *m, struct lead_waiting *out, size_t *n, struct err *err)
{
	return DB_AGAIN(db_waiting(m->db, out, n, err), err);
}

void meta_lead_url(struct meta *m, const char *url)
{
	db_lead_url(m->db, url);
}

void meta_on_deposed(struct meta *m, void (*fn)(void *arg), void *arg)
{
	db_on_deposed(m->db, fn, arg);
}

static int leads(struct meta *m, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	return db_begin(m->db, DB_WRITE, &tx, err);
}

int meta_leads(struct meta *m, struct err *err)
{
	return DB_AGAIN(leads(m, err), err);
}

void meta_close(struct meta *m)
{
	if (m == NULL)
		return;
	db_close(m->db);
	free(m);
}

int meta_list_in(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v,
                 size_t n, size_t each, void (*row)(struct db_rows *r, void *item), void *out,
                 size_t *count, struct err *err)
{
	AUTO_DB_ROWS struct db_rows r = {0};
	char *items = NULL;
	size_t used = 0, cap = 0;
	bool more = true;

	if (db_query(tx, a, sql, v, n, &r, err) < 0)
		return -1;
	while (used < META_LIST_MAX) {
		if (db_next(&r, &more, err) < 0)
			return -1;
		if (!more)
			break;
		if (used == cap) {
			char *larger = arena_array(a, MAX(cap * 2, (size_t)16), each);

			if (used > 0)
				memcpy(larger, items, used * each);
			items = larger;
			cap = MAX(cap * 2, (size_t)16);
		}
		row(&r, items + used * each);
		used++;
	}
	*(void **)out = items;
	*count = used;
	return 0;
}

static int list(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
                size_t each, void (*row)(struct db_rows *r, void *item), void *out, size_t *count,
                struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_READ, &tx, err) < 0)
		return -1;
	return meta_list_in(&tx, a, sql, v, n, each, row, out, count, err);
}

int meta_list(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
              size_t each, void (*row)(struct db_rows *r, void *item), void *out, size_t *count,
              struct err *err)
{
	return DB_AGAIN(list(m, a, sql, v, n, each, row, out, count, err), err);
}

int meta_one_in(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v,
                size_t n, void (*row)(struct db_rows *r, void *item), void *item,
                enum err_code none, struct err *err)
{
	AUTO_DB_ROWS struct db_rows r = {0};
	bool there = false;

	if (db_query(tx, a, sql, v, n, &r, err) < 0 || db_next(&r, &there, err) < 0)
		return -1;
	if (!there)
		return err_missing(err, none);
	row(&r, item);
	return 0;
}

static int one(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
               void (*row)(struct db_rows *r, void *item), void *item, enum err_code none,
               struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_READ, &tx, err) < 0)
		return -1;
	return meta_one_in(&tx, a, sql, v, n, row, item, none, err);
}

int meta_one(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
             void (*row)(struct db_rows *r, void *item), void *item, enum err_code none,
             struct err *err)
{
	return DB_AGAIN(one(m, a, sql, v, n, row, item, none, err), err);
}

static int number(struct meta *m, const char *sql, const struct db_val *v, size_t n, int64_t *out,
                  struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_READ, &tx, err) < 0)
		return -1;
	return db_number(&tx, sql, v, n, 0, out, err);
}

int meta_number(struct meta *m, const char *sql, const struct db_val *v, size_t n, int64_t *out,
                struct err *err)
{
	return DB_AGAIN(number(m, sql, v, n, out, err), err);
}

static int exec(struct meta *m, const char *sql, const struct db_val *v, size_t n,
                enum err_code none, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || db_exec(&tx, sql, v, n, &changed, err) < 0)
		return -1;
	if (none != ERR_NONE && changed == 0)
		return err_missing(err, none);
	return db_commit(&tx, err);
}

int meta_exec(struct meta *m, const char *sql, const struct db_val *v, size_t n, enum err_code none,
              struct err *err)
{
	return DB_AGAIN(exec(m, sql, v, n, none, err), err);
}

int meta_trash_add(struct db_tx *tx, const char *kind, const char *what, struct err *err)
{
	return db_exec(tx, "INSERT INTO trash (kind, what) VALUES (?, ?)",
	               DB_ARGS(db_text(kind), db_text(what)), NULL, err);
}

bool meta_prefix_end(const char *prefix, char out[META_PREFIX_CAP])
{
	/* ids are of [a-z0-9], and '~' is behind all of these */
	return snprintf(out, META_PREFIX_CAP, "%s~", prefix) < META_PREFIX_CAP;
}

static void trash_row(struct db_rows *r, void *item)
{
	struct meta_trash *t = item;

	t->id = db_get_int(r);
	t->kind = db_get_text(r);
	t->what = db_get_text(r);
}

int meta_trash(struct meta *m, struct arena *a, struct meta_trash **out, size_t *n, struct err *err)
{
	return meta_list(m, a, "SELECT id, kind, what FROM trash ORDER BY id LIMIT 1000", DB_NONE,
	                 sizeof(**out), trash_row, out, n, err);
}

int meta_trash_done(struct meta *m, int64_t id, struct err *err)
{
	return meta_exec(m, "DELETE FROM trash WHERE id = ?", DB_ARGS(db_int(id)), ERR_NONE, err);
}

void meta_states(uint32_t set, char out[META_STATES_CAP])
{
	size_t n = 0;

	assert(set != 0);
	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if ((set & (UINT32_C(1) << s)) == 0)
			continue;
		fmt_fixed(out + n, META_STATES_CAP - n, "%s'%s'", n > 0 ? "," : "",
		          job_state_word((enum job_state)s));
		n += strlen(out + n);
	}
}

uint32_t meta_active_states(void)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if (!job_state_is_final((enum job_state)s))
			set |= UINT32_C(1) << s;
	}
	return set;
}

static int check(struct meta *m, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_READ, &tx, err) < 0)
		return -1;
	return db_check(&tx, err);
}

#define JOBS_COUNTED                                                                               \
	"SELECT project_id, team_id, \"user\", state, count(*) FROM jobs"                          \
	" GROUP BY project_id, team_id, \"user\", state"
#define JOB_COUNTS "SELECT project_id, team_id, \"user\", state, n FROM job_counts WHERE n <> 0"

/* job_counts is changed in the transactions that change jobs, and so it says the same. */
static int check_counts(struct meta *m, struct err *err)
{
	int64_t wrong = 0;

	if (meta_number(m,
	                "SELECT (SELECT count(*) FROM (" JOBS_COUNTED " EXCEPT " JOB_COUNTS ") x)"
	                " + (SELECT count(*) FROM (" JOB_COUNTS " EXCEPT " JOBS_COUNTED ") y)",
	                DB_NONE, &wrong, err) < 0)
		return -1;
	if (wrong != 0)
		return err_set(err, ERR_CORRUPT,
		               "database: job_counts has other numbers than there are jobs"
		               " (%lld groups differ)",
		               (long long)wrong);
	return 0;
}

int meta_check(struct meta *m, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_query all = {0};
	struct model_job *jobs = NULL;
	size_t n = 0;

	if (DB_AGAIN(check(m, err), err) < 0 || check_counts(m, err) < 0)
		return -1;
	if (meta_jobs(m, a, &all, &jobs, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		job_check(&jobs[i].core);
	return 0;
}

/* What is undone has needed its room all the same. It is random: not to be compressed. */
static int try_room(struct meta *m, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_BUF struct buf room = BUF_INIT(ROOM_MIN);
	char *p = buf_room(&room, ROOM_MIN);

	seal_random((uint8_t *)p, ROOM_MIN);
	room.n = ROOM_MIN;
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	return db_exec(&tx, "INSERT INTO kv (key, value) VALUES ('room', ?)",
	               DB_ARGS(db_blob(buf_view(&room))), NULL, err);
}

void meta_outage(struct meta *m, bool ask, struct outage *out)
{
	struct err ignored = {0};

	if (ask && db_is_full(m->db)) {
		if (try_room(m, &ignored) == 0)
			db_has_room(m->db);
		err_clear(&ignored);
	}

	db_outage(m->db, out);
	for (enum db_mode mode = DB_READ; ask && out->since_ms != 0 && mode <= DB_WRITE; mode++) {
		AUTO_DB_TX struct db_tx tx = {0};

		(void)(db_begin(m->db, mode, &tx, &ignored) < 0); /* that it answers is noted */
		err_clear(&ignored);
	}
	db_outage(m->db, out);
}

bool meta_unheard(const struct meta *m)
{
	return db_unheard(m->db);
}

#define EPOCH "epoch" /* of the last server */

static void kv_row(struct db_rows *r, void *item)
{
	*(struct str *)item = db_get_blob(r);
}

int meta_kv_get(struct meta *m, struct arena *a, const char *key, struct str *out, struct err *err)
{
	return meta_one(m, a, "SELECT value FROM kv WHERE key = ?", DB_ARGS(db_text(key)), kv_row,
	                out, ERR_NOT_FOUND, err);
}

#define KV_PUT                                                                                     \
	"INSERT INTO kv (key, value) VALUES (?, ?)"                                                \
	" ON CONFLICT (key) DO UPDATE SET value = excluded.value"

int meta_kv_put(struct meta *m, const char *key, struct str value, struct err *err)
{
	return meta_exec(m, KV_PUT, DB_ARGS(db_text(key), db_blob(value)), ERR_NONE, err);
}

static int epoch_once(struct meta *m, int64_t least, uint32_t *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	struct str last = {0};
	uint64_t n = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	if (meta_one_in(&tx, a, "SELECT value FROM kv WHERE key = ?", DB_ARGS(db_text(EPOCH)),
	                kv_row, &last, ERR_NOT_FOUND, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	} else if (str_u64(last, 0, UINT32_MAX - 1, &n, err) < 0) {
		return err_wrap(err, "the epoch in the database");
	}
	n = (uint64_t)MAX((int64_t)n + 1, least);
	if (db_exec(&tx, KV_PUT,
	            DB_ARGS(db_text(EPOCH), db_blob(str_of(arena_printf(a, "%" PRIu64, n)))), NULL,
	            err) < 0 ||
	    db_commit(&tx, err) < 0)
		return -1;
	*out = (uint32_t)n;
	return 0;
}

int meta_epoch_next(struct meta *m, int64_t least, uint32_t *out, struct err *err)
{
	assert(least >= 0 && least < UINT32_MAX);
	return DB_AGAIN(epoch_once(m, least, out, err), err);
}
