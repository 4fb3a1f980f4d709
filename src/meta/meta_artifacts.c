/*
 * meta_artifacts.c - artifacts: by namespace and name, small content itself, or the digest of a
 * blob. A namespace is a team, or in it a user. Rows that name a blob are roots of collection.
 */
#include "meta/meta_impl.h"

#define COLUMNS "seq, name, digest, bytes, created_ms, used_ms, in_row, stored_by, job_id"
#define AT "team_id = ? AND owner = ? AND name = ?"
#define AT_ARGS(at) db_text((at)->team_id), db_text((at)->owner), db_text((at)->name)

static void brief_row(struct db_rows *r, void *item)
{
	struct model_artifact *x = item;

	x->seq = db_get_int(r);
	x->name = db_get_text(r);
	x->digest = db_get_text(r);
	x->bytes = db_get_u64(r);
	x->created_ms = db_get_int(r);
	x->used_ms = db_get_int(r);
	x->has_body = db_get_bool(r);
	x->stored_by = db_get_text(r);
	x->job_id = db_get_text(r);
	x->body = (struct str){0};
}

static void whole_row(struct db_rows *r, void *item)
{
	brief_row(r, item);
	((struct model_artifact *)item)->body = db_get_blob(r);
}

int meta_artifact(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                  struct model_artifact *out, struct err *err)
{
	return meta_one(m, a, "SELECT " COLUMNS ", body FROM artifacts WHERE " AT,
	                DB_ARGS(AT_ARGS(at)), whole_row, out, ERR_ARTIFACT_NOT_FOUND, err);
}

int meta_artifacts_of(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                      const char *const *name, size_t n_names, struct model_artifact **out,
                      size_t *n, struct err *err)
{
	struct db_val v[META_ARTIFACTS_MAX + 2] = {db_text(at->team_id), db_text(at->owner)};
	char sql[DB_SQL_MAX];
	size_t len;

	assert(n_names > 0 && n_names <= META_ARTIFACTS_MAX);
	FMT(sql, "SELECT " COLUMNS " FROM artifacts WHERE team_id = ? AND owner = ? AND name IN (");
	len = strlen(sql);
	/* one statement for any number: a name may be there twice */
	for (size_t i = 0; i < META_ARTIFACTS_MAX; i++) {
		v[i + 2] = db_text(name[MIN(i, n_names - 1)]);
		len += (size_t)snprintf(sql + len, sizeof(sql) - len, i > 0 ? ", ?" : "?");
	}
	(void)snprintf(sql + len, sizeof(sql) - len, ")");
	return meta_list(m, a, sql, v, COUNT(v), sizeof(**out), brief_row, out, n, err);
}

static int put_once(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                    const struct model_artifact *x, struct model_artifact *was, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	assert(x->has_body == (x->body.n == x->bytes && x->bytes <= META_ARTIFACT_BODY_MAX));
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	if (meta_one_in(&tx, a, "SELECT " COLUMNS " FROM artifacts WHERE " AT, DB_ARGS(AT_ARGS(at)),
	                brief_row, was, ERR_ARTIFACT_NOT_FOUND, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		*was = (struct model_artifact){0};
	}
	if (db_exec(&tx,
	            "INSERT INTO artifacts (team_id, owner, name, digest, bytes, created_ms,"
	            " used_ms, in_row, body, stored_by, job_id)"
	            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	            " ON CONFLICT (team_id, owner, name) DO UPDATE SET digest = excluded.digest,"
	            " bytes = excluded.bytes, created_ms = excluded.created_ms,"
	            " used_ms = excluded.used_ms, in_row = excluded.in_row, body = excluded.body,"
	            " stored_by = excluded.stored_by, job_id = excluded.job_id",
	            DB_ARGS(AT_ARGS(at), db_text(x->digest), db_u64(x->bytes),
	                    db_int(x->created_ms), db_int(x->used_ms), db_int(x->has_body),
	                    db_blob(x->body), db_text(x->stored_by), db_text(x->job_id)),
	            NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_artifact_put(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                      const struct model_artifact *x, struct model_artifact *was, struct err *err)
{
	return DB_AGAIN(put_once(m, a, at, x, was, err), err);
}

static int del_once(struct meta *m, const struct model_artifact *x, bool *gone, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx, "DELETE FROM artifacts WHERE seq = ? AND digest = ?",
	            DB_ARGS(db_int(x->seq), db_text(x->digest)), &changed, err) < 0 ||
	    db_commit(&tx, err) < 0)
		return -1;
	*gone = changed > 0;
	return 0;
}

int meta_artifact_del(struct meta *m, const struct model_artifact *x, bool *gone, struct err *err)
{
	return DB_AGAIN(del_once(m, x, gone, err), err);
}

static int del_all_once(struct meta *m, const struct model_artifact *x, size_t n, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (db_exec(&tx, "DELETE FROM artifacts WHERE seq = ? AND digest = ?",
		            DB_ARGS(db_int(x[i].seq), db_text(x[i].digest)), NULL, err) < 0)
			return -1;
	return db_commit(&tx, err);
}

int meta_artifacts_del(struct meta *m, const struct model_artifact *x, size_t n, struct err *err)
{
	return DB_AGAIN(del_all_once(m, x, n, err), err);
}

static int used_once(struct meta *m, const struct meta_artifact_used *u, size_t n, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (db_exec(&tx, "UPDATE artifacts SET used_ms = ? WHERE seq = ? AND used_ms < ?",
		            DB_ARGS(db_int(u[i].ms), db_int(u[i].seq), db_int(u[i].ms)), NULL,
		            err) < 0)
			return -1;
	return db_commit(&tx, err);
}

int meta_artifacts_used(struct meta *m, const struct meta_artifact_used *u, size_t n,
                        struct err *err)
{
	return DB_AGAIN(used_once(m, u, n, err), err);
}

static void space_row(struct db_rows *r, void *item)
{
	struct meta_artifact_space *x = item;

	x->team_id = db_get_text(r);
	x->owner = db_get_text(r);
	x->files = db_get_u64(r);
	x->bytes = db_get_u64(r);
}

int meta_artifact_spaces(struct meta *m, struct arena *a, struct meta_artifact_space **out,
                         size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT team_id, owner, count(*), sum(bytes) FROM artifacts"
	                 " GROUP BY team_id, owner ORDER BY team_id, owner",
	                 DB_NONE, sizeof(**out), space_row, out, n, err);
}

int meta_artifacts_oldest(struct meta *m, struct arena *a, const char *team_id, const char *owner,
                          size_t limit, struct model_artifact **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT " COLUMNS " FROM artifacts WHERE team_id = ? AND owner = ?"
	                 " ORDER BY used_ms, bytes, seq LIMIT ?",
	                 DB_ARGS(db_text(team_id), db_text(owner), db_u64(limit)), sizeof(**out),
	                 brief_row, out, n, err);
}

int meta_artifacts_stored(struct meta *m, struct arena *a, const struct meta_artifact_query *q,
                          struct model_artifact **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT " COLUMNS " FROM artifacts WHERE team_id = ?1 AND owner = ?2"
	                 " AND (?3 IS NULL OR stored_by = ?3) AND (?4 IS NULL OR job_id = ?4)"
	                 " AND (?6 = 0 OR created_ms < ?7 OR (created_ms = ?7 AND seq < ?6))"
	                 " ORDER BY created_ms DESC, seq DESC LIMIT ?5",
	                 DB_ARGS(db_text(q->team_id), db_text(q->owner), db_text(q->stored_by),
	                         db_text(q->job_id), db_u64(q->limit), db_int(q->after_seq),
	                         db_int(q->after_ms)),
	                 sizeof(**out), brief_row, out, n, err);
}

static void digest_row(struct db_rows *r, void *item)
{
	*(const char **)item = db_get_text(r);
}

int meta_artifact_blobs(struct meta *m, struct arena *a, const char *after, size_t limit,
                        const char ***out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT DISTINCT digest FROM artifacts WHERE in_row = 0 AND digest > ?"
	                 " ORDER BY digest LIMIT ?",
	                 DB_ARGS(db_text(after), db_u64(limit)), sizeof(**out), digest_row, out, n,
	                 err);
}
