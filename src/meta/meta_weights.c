/*
 * meta_weights.c - mirrored weights, a row for each source, revision and filter. What is kept of
 * them is named by refs (meta_refs.c) of the kind "weights", under the id of the row.
 */
#include "meta/meta_impl.h"

#define OF_WEIGHTS "kind = '" META_REF_WEIGHTS "'"
#define MIRROR                                                                                     \
	"SELECT id, m.team_id, source, revision, filter_json, r.manifest, state, error,"           \
	" bytes_total, bytes_done, files_total, files_done, rate, m.created_ms, updated_ms,"       \
	" coalesce(r.used_ms, m.created_ms) FROM mirrors m"                                        \
	" LEFT JOIN refs r ON " OF_WEIGHTS " AND r.team_id = m.team_id AND r.name = m.id "

static const char *const mirror_words[] = {
	[MIRROR_FETCHING] = "fetching",
	[MIRROR_READY] = "ready",
	[MIRROR_FAILED] = "failed",
};

static void mirror_row(struct db_rows *r, void *item)
{
	struct model_mirror *x = item;
	const char *state;

	x->id = db_get_text(r);
	x->team_id = db_get_text(r);
	x->source = db_get_text(r);
	x->revision = db_get_text(r);
	x->filter_json = db_get_text(r);
	x->manifest = db_get_text(r);
	state = db_get_text(r);
	x->state = MIRROR_FAILED;
	for (unsigned i = 0; i < COUNT(mirror_words); i++) {
		if (strcmp(state, mirror_words[i]) == 0)
			x->state = (enum mirror_state)i;
	}
	x->error = db_get_text(r);
	x->bytes_total = db_get_u64(r);
	x->bytes_done = db_get_u64(r);
	x->files_total = db_get_u64(r);
	x->files_done = db_get_u64(r);
	x->rate_bytes_s = db_get_real(r);
	x->created_ms = db_get_int(r);
	x->updated_ms = db_get_int(r);
	x->used_ms = db_get_int(r);
}

int meta_mirrors(struct meta *m, struct arena *a, const char *team_id, struct model_mirror **out,
                 size_t *n, struct err *err)
{
	if (team_id == NULL)
		return meta_list(m, a, MIRROR "ORDER BY m.created_ms, id", DB_NONE, sizeof(**out),
		                 mirror_row, out, n, err);
	return meta_list(m, a, MIRROR "WHERE m.team_id = ? ORDER BY m.created_ms, id",
	                 DB_ARGS(db_text(team_id)), sizeof(**out), mirror_row, out, n, err);
}

int meta_mirror(struct meta *m, struct arena *a, const char *id, struct model_mirror *out,
                struct err *err)
{
	return meta_one(m, a, MIRROR "WHERE id = ?", DB_ARGS(db_text(id)), mirror_row, out,
	                ERR_WEIGHTS_NOT_FOUND, err);
}

static int mirror_find(struct db_tx *tx, struct arena *a, const struct model_mirror *x,
                       struct model_mirror *out, struct err *err)
{
	return meta_one_in(tx, a,
	                   MIRROR "WHERE m.team_id = ? AND source = ? AND revision = ?"
	                          " AND filter_json = ?",
	                   DB_ARGS(db_text(x->team_id), db_text(x->source), db_text(x->revision),
	                           db_text(x->filter_json)),
	                   mirror_row, out, ERR_WEIGHTS_NOT_FOUND, err);
}

static int mirror_put_once(struct meta *m, struct arena *a, const struct model_mirror *x,
                           struct model_mirror *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	struct model_ref ref = {.team_id = x->team_id,
	                        .kind = META_REF_WEIGHTS,
	                        .manifest = x->manifest,
	                        .bytes = x->bytes_total,
	                        .files = x->files_total,
	                        .created_ms = x->created_ms,
	                        .used_ms = x->used_ms};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO mirrors (id, team_id, source, revision, filter_json, state,"
	            " error, bytes_total, bytes_done, files_total, files_done, rate, created_ms,"
	            " updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	            " ON CONFLICT (team_id, source, revision, filter_json) DO UPDATE SET"
	            " state = excluded.state,"
	            " error = excluded.error, bytes_total = excluded.bytes_total,"
	            " bytes_done = excluded.bytes_done, files_total = excluded.files_total,"
	            " files_done = excluded.files_done, rate = excluded.rate,"
	            " updated_ms = excluded.updated_ms",
	            DB_ARGS(db_text(x->id), db_text(x->team_id), db_text(x->source),
	                    db_text(x->revision), db_text(x->filter_json),
	                    db_text(mirror_words[x->state]), db_text(x->error),
	                    db_u64(x->bytes_total), db_u64(x->bytes_done), db_u64(x->files_total),
	                    db_u64(x->files_done), db_real(x->rate_bytes_s), db_int(x->created_ms),
	                    db_int(x->updated_ms)),
	            NULL, err) < 0 ||
	    mirror_find(&tx, a, x, out, err) < 0)
		return -1;
	ref.name = out->id; /* that of the row that was there */
	if (x->manifest != NULL &&
	    (meta_ref_put_in(&tx, &ref, err) < 0 || mirror_find(&tx, a, x, out, err) < 0))
		return -1;
	return db_commit(&tx, err);
}

int meta_mirror_put(struct meta *m, struct arena *a, const struct model_mirror *x,
                    struct model_mirror *out, struct err *err)
{
	return DB_AGAIN(mirror_put_once(m, a, x, out, err), err);
}

static int active_users(struct db_tx *tx, const char *manifest, int64_t *n, struct err *err)
{
	return db_number(tx, "SELECT count(*) FROM job_weights WHERE manifest = ?",
	                 DB_ARGS(db_text(manifest)), 0, n, err);
}

static void id_row(struct db_rows *r, void *item)
{
	*(const char **)item = db_get_text(r);
}

int meta_manifest_jobs(struct meta *m, struct arena *a, const char *manifest, size_t limit,
                       const char ***ids, size_t *n, struct err *err)
{
	char states[META_STATES_CAP], sql[400];

	meta_states(job_states_placed(), states);
	FMT(sql,
	    "SELECT w.job_id FROM job_weights w JOIN jobs j ON j.id = w.job_id"
	    " WHERE w.manifest = ? AND j.state IN (%s) ORDER BY w.job_id LIMIT ?",
	    states);
	return meta_list(m, a, sql, DB_ARGS(db_text(manifest), db_u64(limit)), sizeof(**ids),
	                 id_row, ids, n, err);
}

static int mirror_del_once(struct meta *m, const char *id, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	struct model_mirror x = {0};
	int64_t users = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a, MIRROR "WHERE id = ?", DB_ARGS(db_text(id)), mirror_row, &x,
	                ERR_WEIGHTS_NOT_FOUND, err) < 0)
		return -1;
	if (x.state == MIRROR_FETCHING)
		return err_set(err, ERR_CONFLICT, "%s is being fetched", x.source);
	if (x.manifest != NULL && active_users(&tx, x.manifest, &users, err) < 0)
		return -1;
	if (users > 0)
		return err_set(err, ERR_CONFLICT, "%s is in use by %lld active jobs", x.source,
		               (long long)users);
	if (meta_ref_del_in(&tx, x.team_id, META_REF_WEIGHTS, id, err) < 0 ||
	    db_exec(&tx, "DELETE FROM mirrors WHERE id = ?", DB_ARGS(db_text(id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_mirror_del(struct meta *m, const char *id, struct err *err)
{
	return DB_AGAIN(mirror_del_once(m, id, err), err);
}

int meta_mirrors_interrupted(struct meta *m, int64_t now_ms, struct err *err)
{
	return meta_exec(m,
	                 "UPDATE mirrors SET state = 'failed', rate = 0.0, updated_ms = ?,"
	                 " error = 'the server was stopped: what was fetched is kept'"
	                 " WHERE state = 'fetching'",
	                 DB_ARGS(db_int(now_ms)), ERR_NONE, err);
}
