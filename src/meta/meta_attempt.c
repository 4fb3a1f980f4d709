/*
 * meta_attempt.c - attempts: one row a (attempt, node). Every change is one guarded UPDATE, so what
 * arrives late, twice or from a runner of the past changes nothing.
 */
#include "meta/meta_impl.h"

#define ATTEMPT                                                                                    \
	"SELECT t.id, t.job_id, t.number, t.node_rank, t.node, t.cluster, t.gpus, t.token_hash,"   \
	" t.claim, t.dir, t.engine_ref, t.ready, t.exit_json, t.launched_ms, t.claimed_ms,"        \
	" t.ended_ms, t.heartbeat_ms, t.idle, t.node_id FROM attempts t "

static void attempt_row(struct db_rows *r, void *item)
{
	struct model_attempt *t = item;

	t->id = db_get_text(r);
	t->job_id = db_get_text(r);
	t->number = db_get_u32(r);
	t->node_rank = db_get_u32(r);
	t->node = db_get_text(r);
	t->cluster = db_get_text(r);
	t->gpus = db_get_u64(r);
	t->token_hash = db_get_text(r);
	t->claim = db_get_text(r);
	t->dir = db_get_text(r);
	t->engine_ref = db_get_text(r);
	t->ready = db_get_bool(r);
	t->exit_json = db_get_text(r);
	t->launched_ms = db_get_int(r);
	t->claimed_ms = db_get_int(r);
	t->ended_ms = db_get_int(r);
	t->heartbeat_ms = db_get_int(r);
	t->idle = db_get_bool(r);
	t->node_id = db_get_text(r);
}

int meta_attempts(struct meta *m, struct arena *a, const char *job_id, struct model_attempt **out,
                  size_t *n, struct err *err)
{
	if (job_id == NULL)
		return meta_list(m, a, ATTEMPT "WHERE t.done_ms = 0 ORDER BY t.id, t.node_rank",
		                 DB_NONE, sizeof(**out), attempt_row, out, n, err);
	return meta_list(m, a, ATTEMPT "WHERE t.job_id = ? ORDER BY t.number, t.node_rank",
	                 DB_ARGS(db_text(job_id)), sizeof(**out), attempt_row, out, n, err);
}

int meta_attempt_left(struct meta *m, struct arena *a, const char *id, struct model_attempt **out,
                      size_t *n, struct err *err)
{
	return meta_list(m, a, ATTEMPT "WHERE t.id = ? AND t.done_ms = 0 ORDER BY t.node_rank",
	                 DB_ARGS(db_text(id)), sizeof(**out), attempt_row, out, n, err);
}

int meta_attempt(struct meta *m, struct arena *a, const char *id, struct model_attempt **out,
                 size_t *n, struct err *err)
{
	return meta_list(m, a, ATTEMPT "WHERE t.id = ? ORDER BY t.node_rank", DB_ARGS(db_text(id)),
	                 sizeof(**out), attempt_row, out, n, err);
}

int meta_attempt_by_token(struct meta *m, struct arena *a, const char *hash,
                          struct model_attempt *out, struct err *err)
{
	return meta_one(m, a, ATTEMPT "WHERE t.token_hash = ?", DB_ARGS(db_text(hash)), attempt_row,
	                out, ERR_TOKEN_NOT_FOUND, err);
}

int meta_attempt_by_token_prefix(struct meta *m, struct arena *a, const char *prefix,
                                 struct model_attempt *out, struct err *err)
{
	return meta_one(m, a,
	                ATTEMPT "WHERE t.token_hash >= ?1 AND t.token_hash < ?1 || 'g' LIMIT 1",
	                DB_ARGS(db_text(prefix)), attempt_row, out, ERR_TOKEN_NOT_FOUND, err);
}

/* An update that must hit exactly its row; `refused` says why it did not. */
static int guarded_once(struct meta *m, const char *sql, const struct db_val *v, size_t n,
                        const char *refused, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || db_exec(&tx, sql, v, n, &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_CONFLICT, "%s", refused);
	return db_commit(&tx, err);
}

static int guarded(struct meta *m, const char *sql, const struct db_val *v, size_t n,
                   const char *refused, struct err *err)
{
	return DB_AGAIN(guarded_once(m, sql, v, n, refused, err), err);
}

int meta_attempt_launching(struct meta *m, const char *id, uint32_t rank, const char *token_hash,
                           int64_t now_ms, struct err *err)
{
	return guarded(m,
	               "UPDATE attempts SET token_hash = ?, launched_ms = ?, engine_ref = NULL"
	               " WHERE id = ? AND node_rank = ? AND claim IS NULL AND ended_ms = 0",
	               DB_ARGS(db_text(token_hash), db_int(now_ms), db_text(id), db_int(rank)),
	               "the attempt is claimed or over", err);
}

int meta_attempt_launched(struct meta *m, const char *id, uint32_t rank, const char *engine_ref,
                          struct err *err)
{
	return meta_exec(m, "UPDATE attempts SET engine_ref = ? WHERE id = ? AND node_rank = ?",
	                 DB_ARGS(db_text(engine_ref), db_text(id), db_int(rank)),
	                 ERR_ATTEMPT_NOT_FOUND, err);
}

int meta_attempt_claim(struct meta *m, const char *id, uint32_t rank, const char *nonce,
                       int64_t now_ms, struct err *err)
{
	/* All of the guard is here: user code starts at most once per attempt because of it. */
	return guarded(m,
	               "UPDATE attempts SET claim = ?1,"
	               " claimed_ms = CASE WHEN claimed_ms = 0 THEN ?2 ELSE claimed_ms END"
	               " WHERE id = ?3 AND node_rank = ?4 AND ended_ms = 0 AND exit_json IS NULL"
	               " AND (claim IS NULL OR claim = ?1)"
	               " AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = attempts.job_id"
	               "  AND j.attempt_id = attempts.id AND (j.state = 'deploying'"
	               "  OR (j.state = 'running' AND attempts.claim = ?1)))",
	               DB_ARGS(db_text(nonce), db_int(now_ms), db_text(id), db_int(rank)),
	               "the attempt is another runner's, or it is over", err);
}

static int attempt_ready_once(struct meta *m, const char *id, uint32_t rank, bool *all,
                              struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;
	int64_t missing = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE attempts SET ready = 1 WHERE id = ? AND node_rank = ?"
	            " AND claim IS NOT NULL AND ended_ms = 0",
	            DB_ARGS(db_text(id), db_int(rank)), &changed, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM attempts WHERE id = ? AND ready = 0",
	              DB_ARGS(db_text(id)), 0, &missing, err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_CONFLICT, "the attempt is not claimed, or it is over");
	*all = missing == 0;
	return db_commit(&tx, err);
}

int meta_attempt_ready(struct meta *m, const char *id, uint32_t rank, bool *all, struct err *err)
{
	return DB_AGAIN(attempt_ready_once(m, id, rank, all, err), err);
}

static int attempt_exit_once(struct meta *m, const char *id, uint32_t rank, const char *exit_json,
                             int64_t now_ms, bool *first, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE attempts SET exit_json = ?, ended_ms = ?"
	            " WHERE id = ? AND node_rank = ? AND ended_ms = 0",
	            DB_ARGS(db_text(exit_json), db_int(now_ms), db_text(id), db_int(rank)),
	            &changed, err) < 0)
		return -1;
	*first = changed == 1;
	return db_commit(&tx, err);
}

int meta_attempt_exit(struct meta *m, const char *id, uint32_t rank, const char *exit_json,
                      int64_t now_ms, bool *first, struct err *err)
{
	return DB_AGAIN(attempt_exit_once(m, id, rank, exit_json, now_ms, first, err), err);
}

static int attempt_done_once(struct meta *m, const char *id, uint32_t rank, int64_t now_ms,
                             struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE attempts SET done_ms = ?, token_hash = NULL"
	            " WHERE id = ? AND node_rank = ?",
	            DB_ARGS(db_int(now_ms), db_text(id), db_int(rank)), NULL, err) < 0 ||
	    db_exec(&tx,
	            "DELETE FROM attempts WHERE id = ? AND node_rank = ?"
	            " AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = attempts.job_id)",
	            DB_ARGS(db_text(id), db_int(rank)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_attempt_done(struct meta *m, const char *id, uint32_t rank, int64_t now_ms,
                      struct err *err)
{
	return DB_AGAIN(attempt_done_once(m, id, rank, now_ms, err), err);
}
