/* db_fault.c - fault:<n>:<url>: another driver whose n-th statement fails, counted over all
 * connections of the process since the last open of a writer. fault:<n>-<last>:<url> is an outage
 * that is not waited out: all of these fail, and their callers are told at once. With
 * fault:<n>~<last>:<url> they fail as those of a PostgreSQL that is away: each call is tried again
 * until DB_OUTAGE_MS have passed. For tests. */
#include "meta/db.h"

#include <stdatomic.h>

static atomic_long left;  /* statements until the failing one */
static atomic_long lasts; /* how many fail then */
static atomic_int fails;  /* with this error */

struct fault {
	struct db_conn base;
	struct db_conn *under;
};

static struct db_conn *under(struct db_conn *c)
{
	return ((struct fault *)c)->under;
}

static int trip(struct err *err)
{
	long at = atomic_fetch_sub(&left, 1), n = atomic_load(&lasts);

	if (at > 1 || at <= 1 - n)
		return 0;
	return err_set(err, (enum err_code)atomic_load(&fails), "injected fault");
}

static int fault_open(struct db_conn **out, const char *where, bool writer, struct err *err)
{
	const struct db_ops *ops;
	struct str rest = str_of(where), last, first = {0};
	enum err_code with = ERR_IO;
	uint64_t n = 0, end = 0;
	struct fault *f;

	if (!str_cut(&rest, ':', &last))
		return err_set(err, ERR_INVALID, "fault:<n>[-<last>|~<last>]:<url>");
	if (memchr(last.p, '~', last.n) != NULL)
		with = ERR_DATABASE_UNAVAILABLE;
	else if (memchr(last.p, '-', last.n) != NULL)
		with = ERR_UNAVAILABLE;
	if (!str_cut(&last, with == ERR_DATABASE_UNAVAILABLE ? '~' : '-', &first) || last.n == 0)
		last = first;
	if (str_u64(first, 0, INT32_MAX, &n, err) < 0 || str_u64(last, n, INT32_MAX, &end, err) < 0)
		return -1;
	where = rest.p;
	ops = db_driver(rest.p, &where);
	if (ops == NULL)
		return err_set(err, ERR_INVALID, "no database driver for \"%s\"", rest.p);
	f = xcalloc(1, sizeof(*f));
	f->base.ops = &db_fault;
	if (ops->open(&f->under, where, writer, err) < 0) {
		free(f);
		return -1;
	}
	f->base.sqlite = f->under->sqlite;
	if (writer) {
		atomic_store(&left, (long)n);
		atomic_store(&lasts, (long)(end - n + 1));
		atomic_store(&fails, (int)with);
	}
	*out = &f->base;
	return 0;
}

static void fault_close(struct db_conn *c)
{
	under(c)->ops->close(under(c));
	free(c);
}

static int fault_begin(struct db_conn *c, enum db_mode mode, struct err *err)
{
	return trip(err) < 0 ? -1 : under(c)->ops->begin(under(c), mode, err);
}

/* Undoing is not made to fail: the tests look at what is left afterwards. */
static void fault_rollback(struct db_conn *c)
{
	under(c)->ops->rollback(under(c));
}

static int fault_commit(struct db_conn *c, struct err *err)
{
	if (trip(err) == 0)
		return under(c)->ops->commit(under(c), err);
	fault_rollback(c);
	return -1;
}

static int fault_version(struct db_conn *c, int64_t *out, struct err *err)
{
	return trip(err) < 0 ? -1 : under(c)->ops->version(under(c), out, err);
}

static int fault_set_version(struct db_conn *c, int64_t version, struct err *err)
{
	return trip(err) < 0 ? -1 : under(c)->ops->set_version(under(c), version, err);
}

static int fault_check(struct db_conn *c, struct err *err)
{
	return trip(err) < 0 ? -1 : under(c)->ops->check(under(c), err);
}

static int fault_script(struct db_conn *c, const char *sql, struct err *err)
{
	return trip(err) < 0 ? -1 : under(c)->ops->script(under(c), sql, err);
}

static int fault_start(struct db_conn *c, const char *sql, const struct db_val *v, size_t n,
                       struct db_stmt **out, struct err *err)
{
	if (trip(err) < 0)
		return -1;
	return under(c)->ops->start(under(c), sql, v, n, out, err);
}

static int fault_step(struct db_conn *c, struct db_stmt *s, bool *row, struct err *err)
{
	return under(c)->ops->step(under(c), s, row, err);
}

static void fault_column(struct db_conn *c, struct db_stmt *s, int i, struct db_val *out)
{
	under(c)->ops->column(under(c), s, i, out);
}

static void fault_finish(struct db_conn *c, struct db_stmt *s)
{
	under(c)->ops->finish(under(c), s);
}

static uint64_t fault_changes(struct db_conn *c)
{
	return under(c)->ops->changes(under(c));
}

const struct db_ops db_fault = {
	.open = fault_open,
	.close = fault_close,
	.begin = fault_begin,
	.commit = fault_commit,
	.rollback = fault_rollback,
	.version = fault_version,
	.set_version = fault_set_version,
	.check = fault_check,
	.script = fault_script,
	.start = fault_start,
	.step = fault_step,
	.column = fault_column,
	.finish = fault_finish,
	.changes = fault_changes,
};
