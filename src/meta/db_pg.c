/*
 * db_pg.c - PostgreSQL over libpq: one session that writes, a few that read. The only user of
 * libpq-fe.h.
 *
 * A write transaction is SERIALIZABLE and has its number from the beginning: a commit whose answer
 * is lost is looked up by it (pg_xact_status). A read transaction is one snapshot. What SQLite says
 * by its files the session says here: the writer holds an advisory lock for as long as it lives, so
 * a second server does not get in, and leaves its name in stoker_schema, so one that lost its
 * session learns that another server has written since and never writes again.
 *
 * The lock is the fence: only the session that holds it writes, and no other gets it before that
 * session is over and what it had open is committed or undone. A session outlives a server whose
 * machine is frozen or without power, so a leader also counts in stoker_beat, by a session of its
 * own, for the one that writes may be long in a migration. A standby that sees the number stand
 * still has the session ended, and takes the lock. It compares no clocks.
 *
 * Every wait has a deadline; a session that does not answer is given up, and the next transaction
 * opens another one. What is in a URL besides the address (user, password, certificates) is
 * libpq's; its own files and variables are better places for a password. Source: PostgreSQL 15
 * manual, 34.
 */
#include "meta/db.h"
#include "meta/db_pg_words.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/seal.h"

#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdatomic.h>

#define CONNECT_S "5"  /* for one address */
#define ANSWER_MS 8000 /* for one statement, which are all short; a frozen database is given up */
#define ANSWER_LIMIT "7s" /* ... by the session itself */
#define MIGRATION_MS 3600000
#define CONNECT_PAUSE_MS 1000  /* from an attempt that failed to the next, of all sessions */
#define ASIDE_LIMIT "60s"      /* a session that hangs inside a transaction lets it go */
#define SETTLE_MS DB_OUTAGE_MS /* how long a lost commit is asked for */
#define SETTLE_PAUSE_MS 100
#define LEAD_WAIT_MS 5000 /* for the lock, when a server starts */
#define KEY_MAX (DB_SQL_MAX + DB_PARAMS_MAX + 1)
#define XID_CAP 24
#define KEPT_MAX DB_VALUE_MAX
#define WHY_MAX ((size_t)1 << 10)
#define SCRIPT_MAX ((size_t)64 << 10)
#define SERVER_MIN 130000
#define LOCK_CLASS_TEXT "1400138610" /* "Stkr"; the second half is the schema's */

/* Of pg_type: what we send, and what counts and sums come as. */
enum { OID_BOOL = 16, OID_BYTEA = 17, OID_INT8 = 20, OID_INT2 = 21, OID_INT4 = 23, OID_TEXT = 25 };
enum { OID_FLOAT4 = 700, OID_FLOAT8 = 701, OID_NUMERIC = 1700 };

struct conn {
	struct db_conn base;
	PGconn *pg; /* NULL: there was never one */
	char *url;
	bool writer, opened;
	bool named;         /* of one that watches: its session says whose it is */
	bool made;          /* of one that watches: the tables of a leader are there */
	struct map *cached; /* parameter types, SQL -> name of a prepared statement */
	unsigned n_prepared;
	char leader[LEAD_NAME_CAP]; /* of the writer: what it has left in stoker_schema */
	char xid[XID_CAP];          /* of the write transaction that is open */
	uint64_t changes;
};

struct db_stmt {
	PGresult *res;
	int row;          /* the current one */
	struct buf bytes; /* of the column that was read last */
};

/* --- errors ----------------------------------------------------------------------------------- */

static struct str first_line(const char *text)
{
	struct str rest = str_of(text), line = {0};

	(void)str_cut(&rest, '\n', &line);
	return str_trim(line);
}

static enum err_code class_of(const char *state)
{
	static const struct {
		const char *prefix;
		enum err_code code;
	} codes[] = {
		{"08", ERR_DATABASE_UNAVAILABLE},    /* connection exception */
		{"57P0", ERR_DATABASE_UNAVAILABLE},  /* shut down, crashed, starting */
		{"57014", ERR_DATABASE_UNAVAILABLE}, /* canceled: it took too long */
		{"25P03", ERR_DATABASE_UNAVAILABLE}, /* idle in a transaction for too long */
		{"55P03", ERR_DATABASE_UNAVAILABLE}, /* a lock was not to be had in time */
		{"40001", ERR_DATABASE_CONFLICT},    /* serialization failure */
		{"40P01", ERR_DATABASE_CONFLICT},    /* deadlock */
		{"23", ERR_CONFLICT},                /* constraints */
		{"42P07", ERR_CONFLICT},             /* a table of that name is there already */
		{"53100", ERR_NO_SPACE},
		{"53", ERR_DATABASE_UNAVAILABLE}, /* too many sessions, no memory */
		{"28", ERR_DENIED},
		{"42501", ERR_DENIED},
		{"3D000", ERR_NOT_FOUND},
		{"XX001", ERR_CORRUPT},
		{"XX002", ERR_CORRUPT},
	};

	for (size_t i = 0; i < COUNT(codes); i++)
		if (strncmp(state, codes[i].prefix, strlen(codes[i].prefix)) == 0)
			return codes[i].code;
	return ERR_IO;
}

static void drop_session(struct conn *c)
{
	PQfinish(c->pg); /* NULL is fine */
	c->pg = NULL;
	c->xid[0] = '\0';
	c->named = false;
	map_free(c->cached);
	c->cached = map_new();
	c->n_prepared = 0;
}

/* The session is of no use any more. The next transaction opens another one. */
static int lost(struct conn *c, const char *why, struct err *err)
{
	struct str line = first_line(why);

	err_set(err, ERR_DATABASE_UNAVAILABLE, "the database cannot be reached: %.*s",
	        STR_ARG(line));
	drop_session(c);
	return -1;
}

/* What helps, by words of libpq's or of the database's; NULL: its own words have to do. */
static const char *advice_for(const char *why)
{
	static const struct {
		const char *words, *advice;
	} rows[] = {
		{"password", "PGPASSFILE or PGPASSWORD of the server needs that role's password"},
		{"no pg_hba.conf entry", "pg_hba.conf there has to let this machine in"},
		{"\" does not exist", "createuser and createdb make what is missing, or let "
	                              "--database name another"},
		{"Connection refused", "start PostgreSQL there, or let --database name another"},
		{"translate host name", "let --database name another"},
		{"timeout expired", "a PostgreSQL has to listen there, with no firewall between"},
		{"certificate", "sslrootcert in --database has to name what it is verified with"},
		{"SSL", "sslmode in --database has to fit what is offered there"},
		{"too many clients", "raise max_connections there"},
		{"connection slots", "raise max_connections there"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		if (strstr(why, rows[i].words) != NULL)
			return rows[i].advice;
	return NULL;
}

/* libpq says a line or more of each host that it has tried: what is wrong may be the last one. */
static int no_session(struct conn *c, struct err *err)
{
	AUTO_BUF struct buf all = BUF_INIT(WHY_MAX);
	struct str rest = str_of(PQerrorMessage(c->pg)), line = {0}, last = {0};
	const char *advice;

	while (str_cut(&rest, '\n', &line)) {
		line = str_trim(line);
		if (!str_starts(line, "connection to ") || str_same(line, last))
			continue;
		buf_printf(&all, "%s%.*s", last.n > 0 ? "; " : "", STR_ARG(line));
		last = line;
	}
	if (last.n == 0)
		buf_str(&all, first_line(PQerrorMessage(c->pg)));
	advice = advice_for(buf_cstr(&all));
	if (advice != NULL)
		buf_printf(&all, ": %s", advice);
	return lost(c, buf_cstr(&all), err);
}

/* It takes no writes: a replica, which may be the leader soon, or one that was told so. */
static bool is_read_only(const struct conn *c, const char *state)
{
	const char *replica = PQparameterStatus(c->pg, "in_hot_standby"); /* NULL: before 14 */

	if (state != NULL && strcmp(state, "0A000") == 0) /* to write, asked of a replica */
		return replica == NULL || strcmp(replica, "on") == 0;
	return state != NULL && strcmp(state, "25006") == 0;
}

/* Whether it may write by default a session was told when it began: the next one asks again. */
static int read_only(struct conn *c, struct err *err)
{
	err_set(err, ERR_DATABASE_UNAVAILABLE,
	        "the database %.100s at %.100s:%.10s is read-only: it is a replica, "
	        "or default_transaction_read_only is on there. Promote it or turn "
	        "that off, or let --database name the one that takes writes",
	        PQdb(c->pg), PQhost(c->pg), PQport(c->pg));
	drop_session(c);
	return -1;
}

static int fail(struct conn *c, const PGresult *res, const char *sql, struct err *err)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
	enum err_code code = state != NULL ? class_of(state) : ERR_IO;

	if (PQstatus(c->pg) != CONNECTION_OK && code != ERR_DATABASE_CONFLICT)
		return lost(c, text != NULL ? text : PQerrorMessage(c->pg), err);
	if (is_read_only(c, state))
		return read_only(c, err);
	if (code == ERR_NO_SPACE)
		return err_set(err, code,
		               "the disk of the database is full: nothing was changed; make room"
		               " there and try again (%.60s)",
		               sql);
	return err_set(err, code, "database: %s (%.60s)",
	               text != NULL ? text : PQresStatus(PQresultStatus(res)), sql);
}

/* --- one statement ---------------------------------------------------------------------------- */

static int wait_for(struct conn *c, short events, int64_t deadline_ms, struct err *err)
{
	struct pollfd p = {.fd = PQsocket(c->pg), .events = events};
	int64_t left = deadline_ms - clock_mono_ms();

	if (p.fd < 0)
		return lost(c, PQerrorMessage(c->pg), err);
	if (left > 0 && poll(&p, 1, (int)left) != 0)
		return 0; /* an interrupted wait is looked at again */
	/* what it might still answer is nobody's: a session that is closed cannot be mistaken */
	return lost(c, "it does not answer", err);
}

static int flush(struct conn *c, int64_t deadline_ms, struct err *err)
{
	int left;

	while ((left = PQflush(c->pg)) > 0) {
		if (wait_for(c, POLLIN | POLLOUT, deadline_ms, err) < 0)
			return -1;
		if (PQconsumeInput(c->pg) == 0)
			return lost(c, PQerrorMessage(c->pg), err);
	}
	return left < 0 ? lost(c, PQerrorMessage(c->pg), err) : 0;
}

/* The last result, or the first that says an error. */
static int collect(struct conn *c, int64_t deadline_ms, PGresult **out, struct err *err)
{
	PGresult *res = NULL, *kept = NULL;

	for (;;) {
		while (PQisBusy(c->pg)) {
			if (wait_for(c, POLLIN, deadline_ms, err) < 0) {
				PQclear(kept);
				return -1;
			}
			if (PQconsumeInput(c->pg) == 0)
				break; /* the result says so, too */
		}
		res = PQgetResult(c->pg);
		if (res == NULL)
			break;
		if (kept != NULL && PQresultStatus(kept) == PGRES_FATAL_ERROR) {
			PQclear(res);
			continue;
		}
		PQclear(kept);
		kept = res;
	}
	if (kept == NULL)
		return lost(c, PQerrorMessage(c->pg), err);
	*out = kept;
	return 0;
}

/* `sent` is what a PQsend... function returned. */
static int answer_within(struct conn *c, int sent, const char *sql, int64_t limit_ms,
                         PGresult **out, struct err *err)
{
	int64_t deadline_ms = clock_mono_ms() + limit_ms;
	PGresult *res = NULL;

	if (sent == 0)
		return lost(c, PQerrorMessage(c->pg), err);
	if (flush(c, deadline_ms, err) < 0 || collect(c, deadline_ms, &res, err) < 0)
		return -1;
	if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK) {
		fail(c, res, sql, err);
		PQclear(res);
		return -1;
	}
	*out = res;
	return 0;
}

static int answer(struct conn *c, int sent, const char *sql, PGresult **out, struct err *err)
{
	return answer_within(c, sent, sql, ANSWER_MS, out, err);
}

static bool is_open(const struct conn *c)
{
	return c->pg != NULL && PQstatus(c->pg) == CONNECTION_OK;
}

static int simple(struct conn *c, const char *sql, struct err *err)
{
	PGresult *res = NULL;

	if (!is_open(c))
		return lost(c, "the session is over", err);
	if (answer(c, PQsendQuery(c->pg, sql), sql, &res, err) < 0)
		return -1;
	PQclear(res);
	return 0;
}

/* One statement with texts as its parameters. */
static int ask_rows(struct conn *c, const char *sql, const char *const *params, int n,
                    PGresult **out, struct err *err)
{
	if (!is_open(c))
		return lost(c, "the session is over", err);
	return answer(c, PQsendQueryParams(c->pg, sql, n, NULL, params, NULL, NULL, 0), sql, out,
	              err);
}

/* NULL and a column of no row are "". */
static void take_text(const PGresult *res, int column, char *out, size_t cap)
{
	out[0] = '\0';
	if (PQntuples(res) > 0 && !PQgetisnull(res, 0, column))
		(void)snprintf(out, cap, "%s", PQgetvalue(res, 0, column));
}

static int64_t take_int(const PGresult *res, int column)
{
	char word[24];

	take_text(res, column, word, sizeof(word));
	return strtoll(word, NULL, 10);
}

/* The first column of the first row as text, "" when there is none. Without a parameter it may be
 * several statements: the last one's. */
static int ask(struct conn *c, const char *sql, const char *param, char *out, size_t cap,
               struct err *err)
{
	const char *params[] = {param};
	PGresult *res = NULL;

	if (!is_open(c))
		return lost(c, "the session is over", err);
	if (answer(c,
	           param != NULL ? PQsendQueryParams(c->pg, sql, 1, NULL, params, NULL, NULL, 0)
	                         : PQsendQuery(c->pg, sql),
	           sql, &res, err) < 0)
		return -1;
	take_text(res, 0, out, cap);
	PQclear(res);
	return 0;
}

/* --- sessions --------------------------------------------------------------------------------- */

/* The session of a server that has just died may hold it a little longer. */
static int take_lead(struct conn *c, struct err *err)
{
	int64_t until_ms = clock_mono_ms() + (c->opened ? 0 : LEAD_WAIT_MS);
	static const char sql[] =
		"SELECT pg_try_advisory_lock(" LOCK_CLASS_TEXT ", hashtext(current_schema()))::int";
	char word[8];

	for (;;) {
		if (ask(c, sql, NULL, word, sizeof(word), err) < 0)
			return -1;
		if (strcmp(word, "1") == 0)
			return 0;
		if (clock_mono_ms() >= until_ms)
			break;
		clock_sleep_ms(SETTLE_PAUSE_MS);
	}
	return c->opened ? err_set(err, ERR_DATABASE_UNAVAILABLE,
	                           "another session holds the lock of this database")
	                 : err_set(err, ERR_DATABASE_IN_USE,
	                           "another Stoker server uses this database: stop it, or give "
	                           "this one a database of its own");
}

static int deposed(struct err *err)
{
	return err_set(err, ERR_DATABASE_IN_USE,
	               "another Stoker server has taken over this database: this one writes "
	               "nothing any more");
}

/* A server that has led since has put its own name there. */
static int still_leads(struct conn *c, struct err *err)
{
	char word[LEAD_NAME_CAP + 8];

	if (ask(c, "SELECT leader FROM stoker_schema", NULL, word, sizeof(word), err) < 0)
		return -1;
	return strcmp(word, c->leader) == 0 ? 0 : deposed(err);
}

static int lead(struct conn *c, struct err *err)
{
	static const char setup[] =
		"CREATE TABLE IF NOT EXISTS stoker_schema (one INTEGER PRIMARY KEY CHECK (one = 1),"
		" version BIGINT NOT NULL, leader TEXT);"
		"INSERT INTO stoker_schema (one, version) VALUES (1, 0) ON CONFLICT DO NOTHING;"
		"CREATE TABLE IF NOT EXISTS stoker_beat (one INTEGER PRIMARY KEY CHECK (one = 1),"
		" beat BIGINT NOT NULL, url TEXT);"
		"INSERT INTO stoker_beat (one, beat) VALUES (1, 0) ON CONFLICT DO NOTHING";
	uint8_t raw[(LEAD_NAME_CAP - 1) / 2];
	char word[LEAD_NAME_CAP + 8];

	if (c->opened) /* by its name first: that it is over is no outage */
		return still_leads(c, err) < 0 || take_lead(c, err) < 0 ? -1 : still_leads(c, err);
	seal_random(raw, sizeof(raw));
	hex_encode(raw, sizeof(raw), c->leader);
	if (take_lead(c, err) < 0)
		return -1;
	if (simple(c, setup, err) < 0)
		return err->code != ERR_DENIED
		               ? -1
		               : err_wrap(err,
		                          "the role %.100s has to own the database, or a schema "
		                          "that its search_path names",
		                          PQuser(c->pg));
	return ask(c, "UPDATE stoker_schema SET leader = $1 RETURNING leader", c->leader, word,
	           sizeof(word), err);
}

/* The session that holds the lock, as a condition on a row of pg_locks. */
#define HOLDS_LOCK                                                                                 \
	"l.locktype = 'advisory' AND l.granted AND l.objsubid = 2"                                 \
	" AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"       \
	" AND l.classid = " LOCK_CLASS_TEXT                                                        \
	" AND l.objid::bigint = (hashtext(current_schema())::bigint & 4294967295)"

static void quiet(void *arg UNUSED, const PGresult *res UNUSED)
{
	/* notices say nothing that an error does not */
}

/* What is the same at each start: can a server live there at all? */
static int suits(struct conn *c, struct err *err)
{
	const char *encoding = PQparameterStatus(c->pg, "server_encoding");
	char schema[8];

	if (PQserverVersion(c->pg) < SERVER_MIN)
		return err_set(err, ERR_UNSUPPORTED, "PostgreSQL %d is too old: 13 or later",
		               PQserverVersion(c->pg) / 10000);
	/* SQL_ASCII stores bytes as they are */
	if (encoding != NULL && strcmp(encoding, "UTF8") != 0 && strcmp(encoding, "SQL_ASCII") != 0)
		return err_set(
			err, ERR_UNSUPPORTED,
			"the database %.100s has the encoding %.30s, which cannot store every "
			"name and message: `createdb --encoding UTF8 --template template0`",
			PQdb(c->pg), encoding);
	if (ask(c, "SELECT (current_schema() IS NOT NULL)::int", NULL, schema, sizeof(schema),
	        err) < 0)
		return -1;
	return strcmp(schema, "1") == 0
	               ? 0
	               : err_set(err, ERR_NOT_FOUND,
	                         "no schema of search_path is in the database %.100s, or this "
	                         "role may use none: CREATE SCHEMA NAME AUTHORIZATION %.100s",
	                         PQdb(c->pg), PQuser(c->pg));
}

/* A database that is away is asked for by one session at a time, not by all that wait for it. */
static _Atomic int64_t away_until_ms;

/* What the URL says wins over ours. */
static int connect_to(struct conn *c, struct err *err)
{
	static const char setup[] = "SET statement_timeout = '" ANSWER_LIMIT "';"
				    "SET idle_in_transaction_session_timeout = '" ASIDE_LIMIT "';"
				    "SET tcp_keepalives_idle = 10;"
				    "SET tcp_keepalives_interval = 5;"
				    "SET tcp_keepalives_count = 3;"
				    "SET synchronous_commit = on;"
				    "SET standard_conforming_strings = on;"
				    "SET bytea_output = 'hex';"
				    "SET DateStyle = 'ISO'";
	const char *const keys[] = {"connect_timeout",
	                            "keepalives_idle",
	                            "tcp_user_timeout",
	                            "dbname",
	                            "client_encoding",
	                            "fallback_application_name",
	                            NULL};
	const char *const values[] = {CONNECT_S, "10", "30000", c->url, "UTF8", "stoker", NULL};

	drop_session(c);
	if (c->opened && clock_mono_ms() < atomic_load(&away_until_ms))
		return err_set(err, ERR_DATABASE_UNAVAILABLE, "the database cannot be reached");
	c->pg = PQconnectdbParams(keys, values, 1);
	if (c->pg == NULL || PQstatus(c->pg) != CONNECTION_OK) {
		atomic_store(&away_until_ms, clock_mono_ms() + CONNECT_PAUSE_MS);
		return no_session(c, err);
	}
	(void)PQsetNoticeReceiver(c->pg, quiet, NULL);
	if (PQsetnonblocking(c->pg, 1) < 0)
		return lost(c, PQerrorMessage(c->pg), err);
	if (simple(c, setup, err) < 0 || (!c->opened && suits(c, err) < 0) ||
	    (c->writer && lead(c, err) < 0)) {
		drop_session(c);
		return -1;
	}
	c->opened = true;
	return 0;
}

/* --- who leads -------------------------------------------------------------------------------- */

static int pg_beat(struct db_conn *dc, const struct db_conn *writer, const char *url, bool *held,
                   struct err *err)
{
	static const char sql[] =
		"UPDATE stoker_beat SET beat = beat + 1, url = $2"
		" WHERE EXISTS (SELECT 1 FROM stoker_schema WHERE leader = $1)"
		" RETURNING (SELECT count(*) FROM pg_locks l WHERE " HOLDS_LOCK ")";
	const char *params[] = {((const struct conn *)writer)->leader, url};
	struct conn *c = (struct conn *)dc;
	PGresult *res = NULL;
	bool leads;

	if ((!is_open(c) && connect_to(c, err) < 0) ||
	    ask_rows(c, sql, params, COUNT(params), &res, err) < 0)
		return -1;
	leads = PQntuples(res) > 0;
	*held = take_int(res, 0) > 0;
	PQclear(res);
	return leads ? 0 : deposed(err);
}

/* A standby writes nothing: the leader finds it among the sessions. One that has died is there
 * until its connection is found dead, and the time of its last question says so before. */
#define WAITS "'stoker standby ' || hashtext(current_schema()) || ' '"

static int name_session(struct conn *c, struct err *err)
{
	static const char sql[] =
		"SELECT set_config('application_name', left(" WAITS " || $1, 63), false)";
	char host[LEAD_HOST_CAP] = "", word[LEAD_HOST_CAP];

	if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0')
		FMT(host, "localhost");
	if (ask(c, sql, host, word, sizeof(word), err) < 0)
		return -1;
	c->named = true;
	return 0;
}

/* state_change is NULL for the sessions of another role. */
static int pg_waiting(struct db_conn *dc, struct lead_waiting *out, size_t *n, struct err *err)
{
	static const char sql[] =
		"SELECT substr(application_name, length(" WAITS ") + 1), coalesce((1000 *"
		" extract(epoch FROM clock_timestamp() - state_change))::bigint, -1)"
		" FROM pg_stat_activity WHERE datname = current_database()"
		" AND starts_with(application_name, " WAITS ") ORDER BY backend_start LIMIT 8";
	struct conn *c = (struct conn *)dc;
	PGresult *res = NULL;

	_Static_assert(LEAD_WAITING_MAX == 8, "the LIMIT");
	*n = 0;
	if ((!is_open(c) && connect_to(c, err) < 0) || ask_rows(c, sql, NULL, 0, &res, err) < 0)
		return -1;
	for (; *n < LEAD_WAITING_MAX && (int)*n < PQntuples(res); ++*n) {
		copy_cut(out[*n].host, sizeof(out[*n].host), PQgetvalue(res, (int)*n, 0));
		out[*n].seen_ms = strtoll(PQgetvalue(res, (int)*n, 1), NULL, 10);
	}
	PQclear(res);
	return 0;
}

static int pg_lead(struct db_conn *dc, struct lead *out, struct err *err)
{
	static const char there[] = "SELECT (to_regclass('stoker_schema') IS NOT NULL AND"
				    " to_regclass('stoker_beat') IS NOT NULL)::int";
	static const char sql[] = "SELECT s.leader, b.url, b.beat, s.version,"
				  " (SELECT l.pid FROM pg_locks l WHERE " HOLDS_LOCK " LIMIT 1)"
				  " FROM stoker_schema s, stoker_beat b";
	struct conn *c = (struct conn *)dc;
	PGresult *res = NULL;
	char word[8] = "";

	*out = (struct lead){0};
	if (!is_open(c) && connect_to(c, err) < 0)
		return -1;
	if (!c->named && name_session(c, err) < 0)
		return -1;
	if (!c->made && ask(c, there, NULL, word, sizeof(word), err) < 0)
		return -1;
	c->made = c->made || strcmp(word, "1") == 0;
	if (!c->made)
		return 0;
	if (ask_rows(c, sql, NULL, 0, &res, err) < 0)
		return -1;
	out->made = PQntuples(res) > 0;
	take_text(res, 0, out->name, sizeof(out->name));
	take_text(res, 1, out->url, sizeof(out->url));
	out->beat = take_int(res, 2);
	out->version = take_int(res, 3);
	out->session = take_int(res, 4);
	PQclear(res);
	return 0;
}

static int pg_end_lead(struct db_conn *dc, const struct lead *seen, struct err *err)
{
	static const char sql[] =
		"SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l, stoker_schema s"
		" WHERE " HOLDS_LOCK " AND l.pid = $1::int AND coalesce(s.leader, '') = $2";
	char session[24];
	const char *params[] = {session, seen->name};
	struct conn *c = (struct conn *)dc;
	PGresult *res = NULL;

	FMT(session, "%" PRId64, seen->session);
	if ((!is_open(c) && connect_to(c, err) < 0) ||
	    ask_rows(c, sql, params, COUNT(params), &res, err) < 0)
		return -1;
	PQclear(res);
	return 0;
}

/* A leader that ends in order says so: a standby need not wait. */
static void abdicate(struct conn *c)
{
	struct err ignored = {0};
	char sql[120];

	if (!c->writer || !c->opened || !is_open(c))
		return;
	FMT(sql, "UPDATE stoker_schema SET leader = NULL WHERE leader = '%s'", c->leader);
	(void)(simple(c, sql, &ignored) < 0);
}

static void pg_close(struct db_conn *dc)
{
	struct conn *c = (struct conn *)dc;

	abdicate(c);
	drop_session(c);
	map_free(c->cached);
	free(c->url);
	free(c);
}

static int pg_open(struct db_conn **out, const char *where, bool writer, struct err *err)
{
	struct conn *c = xcalloc(1, sizeof(*c));
	size_t cap = strlen(where) + sizeof("postgresql:");

	c->base.ops = &db_pg;
	c->writer = writer;
	c->cached = map_new();
	c->url = xcalloc(1, cap);
	fmt_fixed(c->url, cap, "postgresql:%s", where);
	if (connect_to(c, err) < 0) {
		pg_close(&c->base);
		return -1;
	}
	*out = &c->base;
	return 0;
}

/* --- transactions ----------------------------------------------------------------------------- */

static int pg_begin(struct db_conn *dc, enum db_mode mode, struct err *err)
{
	struct conn *c = (struct conn *)dc;

	if (!is_open(c) && connect_to(c, err) < 0)
		return -1;
	c->xid[0] = '\0';
	if (mode == DB_READ)
		return simple(c, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", err);
	/* In one round trip. An administrator's default_transaction_read_only is heeded: some set
	 * it when the disk is nearly full. */
	if (ask(c,
	        "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT CASE"
	        " current_setting('transaction_read_only') WHEN 'on' THEN ''"
	        " ELSE pg_current_xact_id()::text END",
	        NULL, c->xid, sizeof(c->xid), err) < 0)
		return -1;
	return c->xid[0] != '\0' ? 0 : read_only(c, err);
}

static void pg_rollback(struct db_conn *dc)
{
	struct conn *c = (struct conn *)dc;
	struct err ignored = {0};

	if (!is_open(c) || simple(c, "ROLLBACK", &ignored) < 0)
		drop_session(c);
	c->xid[0] = '\0';
}

/* Became of the transaction what COMMIT was to make of it? Its session is gone. */
static int settle(struct conn *c, const char *xid, struct err *err)
{
	int64_t until_ms = clock_mono_ms() + SETTLE_MS;
	struct err asked = {0};
	char word[24] = "";

	do {
		err_clear(&asked);
		if ((is_open(c) || connect_to(c, &asked) == 0) &&
		    ask(c, "SELECT pg_xact_status($1::xid8)", xid, word, sizeof(word), &asked) ==
		            0) {
			if (strcmp(word, "committed") == 0)
				return 0;
			if (strcmp(word, "aborted") == 0)
				return err_set(err, ERR_DATABASE_UNAVAILABLE,
				               "the database went away before the commit: "
				               "nothing was changed");
		}
		clock_sleep_ms(SETTLE_PAUSE_MS);
	} while (clock_mono_ms() < until_ms);
	return err_set(err, ERR_DATABASE_UNCERTAIN,
	               "the database went away during a commit: whether the change was made is "
	               "not known");
}

static int pg_commit(struct db_conn *dc, struct err *err)
{
	struct conn *c = (struct conn *)dc;
	struct err why = {0};
	char xid[XID_CAP];

	FMT(xid, "%s", c->xid);
	if (PQtransactionStatus(c->pg) == PQTRANS_INERROR) {
		pg_rollback(dc);
		return err_set(err, ERR_IO, "database: a statement had failed before the commit");
	}
	if (simple(c, "COMMIT", &why) == 0) {
		c->xid[0] = '\0';
		return 0;
	}
	if (xid[0] != '\0' && why.id == ERR_DATABASE_UNAVAILABLE)
		return settle(c, xid, err);
	*err = why;
	pg_rollback(dc);
	return -1;
}

static int pg_version(struct db_conn *dc, int64_t *out, struct err *err)
{
	char word[24];

	if (ask((struct conn *)dc, "SELECT version FROM stoker_schema", NULL, word, sizeof(word),
	        err) < 0)
		return -1;
	return str_i64(str_of(word), 0, INT64_MAX, out, err);
}

static int pg_set_version(struct db_conn *dc, int64_t version, struct err *err)
{
	char sql[80];

	FMT(sql, "UPDATE stoker_schema SET version = %lld", (long long)version);
	return simple((struct conn *)dc, sql, err);
}

/* The server checks keys as rows are written; pages are its administrator's (pg_amcheck). */
static int pg_check(struct db_conn *dc, struct err *err)
{
	return simple((struct conn *)dc, "SELECT 1", err);
}

/* --- statements ------------------------------------------------------------------------------- */

static int pg_script(struct db_conn *dc, const char *sql, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(SCRIPT_MAX);
	struct conn *c = (struct conn *)dc;
	PGresult *res = NULL;

	pg_words(sql, &out);
	if (buf_check(&out, "migration", err) < 0 ||
	    simple(c, "SET LOCAL statement_timeout = 0", err) < 0)
		return -1;
	if (answer_within(c, PQsendQuery(c->pg, buf_cstr(&out)), sql, MIGRATION_MS, &res, err) < 0)
		return -1;
	PQclear(res);
	return 0;
}

struct params {
	Oid type[DB_PARAMS_MAX];
	const char *value[DB_PARAMS_MAX];
	int length[DB_PARAMS_MAX], format[DB_PARAMS_MAX];
	uint64_t number[DB_PARAMS_MAX]; /* in network order */
	struct buf text[DB_PARAMS_MAX]; /* of those that cannot go as they are */
	size_t n;
};

static void params_done(struct params *p)
{
	for (size_t i = 0; i < p->n; i++)
		buf_done(&p->text[i]);
}

static void bind(struct params *p, const struct db_val *v)
{
	size_t i = p->n++;
	struct str s;

	p->format[i] = 1;
	p->type[i] = OID_TEXT;
	switch (v->kind) {
	case DB_NULL:
		return;
	case DB_INT:
		p->type[i] = OID_INT8;
		memcpy(&p->number[i], &v->num, sizeof(v->num));
		break;
	case DB_REAL:
		p->type[i] = OID_FLOAT8;
		memcpy(&p->number[i], &v->real, sizeof(v->real));
		break;
	case DB_TEXT:
	case DB_BLOB:
		p->type[i] = v->kind == DB_TEXT ? OID_TEXT : OID_BYTEA;
		p->text[i] = (struct buf)BUF_INIT(KEPT_MAX);
		s = v->kind == DB_TEXT ? pg_text(v->text, &p->text[i]) : v->text;
		p->value[i] = s.n > 0 ? s.p : "";
		p->length[i] = (int)s.n;
		return;
	}
	p->number[i] = htobe64(p->number[i]);
	p->value[i] = (const char *)&p->number[i];
	p->length[i] = sizeof(p->number[i]);
}

static const char *type_letter(Oid type)
{
	return type == OID_INT8 ? "i" : type == OID_FLOAT8 ? "r" : type == OID_BYTEA ? "b" : "t";
}

/* The name of the statement, prepared once a session for each list of types; "" when there are
 * enough. */
static int prepare(struct conn *c, const char *sql, const struct params *p, char name[16],
                   struct err *err)
{
	AUTO_BUF struct buf key = BUF_INIT(KEY_MAX), own = BUF_INIT(KEY_MAX);
	PGresult *res = NULL;
	uintptr_t number;

	for (size_t i = 0; i < p->n; i++)
		buf_puts(&key, type_letter(p->type[i]));
	buf_printf(&key, " %s", sql);
	number = (uintptr_t)map_get(c->cached, buf_view(&key));
	if (number == 0 && c->n_prepared < DB_CACHED_MAX)
		number = ++c->n_prepared;
	else if (number == 0)
		number = UINT32_MAX;
	name[0] = '\0';
	if (number <= DB_CACHED_MAX)
		fmt_fixed(name, 16, "s%u", (unsigned)number);
	if (map_get(c->cached, buf_view(&key)) != NULL)
		return 0;
	pg_params(sql, &own);
	if (answer(c, PQsendPrepare(c->pg, name, buf_cstr(&own), (int)p->n, p->type), sql, &res,
	           err) < 0)
		return -1;
	PQclear(res);
	if (name[0] != '\0')
		(void)map_set(c->cached, buf_view(&key), (void *)number);
	return 0;
}

static int pg_start(struct db_conn *dc, const char *sql, const struct db_val *v, size_t n,
                    struct db_stmt **out, struct err *err)
{
	struct conn *c = (struct conn *)dc;
	struct params p CLEANUP(params_done) = {0};
	PGresult *res = NULL;
	struct db_stmt *s;
	uint64_t changes = 0;
	struct err no = {0};
	char name[16];

	assert(n <= DB_PARAMS_MAX && strlen(sql) < DB_SQL_MAX);
	if (!is_open(c))
		return lost(c, "the session is over", err);
	for (size_t i = 0; i < n; i++)
		bind(&p, &v[i]);
	if (prepare(c, sql, &p, name, err) < 0 ||
	    answer(c, PQsendQueryPrepared(c->pg, name, (int)n, p.value, p.length, p.format, 0), sql,
	           &res, err) < 0)
		return -1;
	if (str_u64(str_of(PQcmdTuples(res)), 0, UINT64_MAX, &changes, &no) == 0)
		c->changes = changes;
	s = xcalloc(1, sizeof(*s));
	s->res = res;
	s->row = -1;
	s->bytes = (struct buf)BUF_INIT(KEPT_MAX);
	*out = s;
	return 0;
}

static int pg_step(struct db_conn *c UNUSED, struct db_stmt *s, bool *row, struct err *err UNUSED)
{
	*row = ++s->row < PQntuples(s->res);
	return 0;
}

/* "\x6869" */
static void take_bytes(struct db_stmt *s, struct str hex, struct db_val *out)
{
	struct err err = {0};
	char *to;

	hex = str_skip(hex, 2);
	buf_clear(&s->bytes);
	to = buf_room(&s->bytes, hex.n / 2);
	if (to == NULL || hex_decode(hex, (uint8_t *)to, hex.n / 2, &err) < 0)
		return;
	s->bytes.n = hex.n / 2;
	*out = (struct db_val){.kind = DB_BLOB, .text = buf_view(&s->bytes)};
}

static void pg_column(struct db_conn *c UNUSED, struct db_stmt *s, int i, struct db_val *out)
{
	struct str text;

	assert(i < PQnfields(s->res));
	*out = (struct db_val){.kind = DB_NULL};
	if (PQgetisnull(s->res, s->row, i))
		return;
	text = str_n(PQgetvalue(s->res, s->row, i), (size_t)PQgetlength(s->res, s->row, i));
	switch ((int)PQftype(s->res, i)) {
	case OID_INT2:
	case OID_INT4:
	case OID_INT8:
		*out = db_int(strtoll(text.p, NULL, 10));
		break;
	case OID_NUMERIC: /* of whole numbers: what sum() makes of them */
		*out = memchr(text.p, '.', text.n) == NULL ? db_int(strtoll(text.p, NULL, 10))
		                                           : db_real(strtod(text.p, NULL));
		break;
	case OID_FLOAT4:
	case OID_FLOAT8:
		*out = db_real(strtod(text.p, NULL));
		break;
	case OID_BOOL:
		*out = db_int(str_eq(text, "t"));
		break;
	case OID_BYTEA:
		take_bytes(s, text, out);
		break;
	default:
		*out = (struct db_val){.kind = DB_TEXT, .text = text};
		break;
	}
}

static void pg_finish(struct db_conn *c UNUSED, struct db_stmt *s)
{
	PQclear(s->res);
	buf_done(&s->bytes);
	free(s);
}

static uint64_t pg_changes(struct db_conn *dc)
{
	return ((struct conn *)dc)->changes;
}

const struct db_ops db_pg = {
	.open = pg_open,
	.close = pg_close,
	.begin = pg_begin,
	.commit = pg_commit,
	.rollback = pg_rollback,
	.version = pg_version,
	.set_version = pg_set_version,
	.check = pg_check,
	.script = pg_script,
	.start = pg_start,
	.step = pg_step,
	.column = pg_column,
	.finish = pg_finish,
	.changes = pg_changes,
	.beat = pg_beat,
	.lead = pg_lead,
	.waiting = pg_waiting,
	.end_lead = pg_end_lead,
};
