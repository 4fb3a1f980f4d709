/* meta_data.c - rows about bytes: checkpoints, uploads, snapshots of caches. */
#include "core/ckpt.h"
#include "meta/meta_impl.h"

static enum ckpt_state state_of(const char *word)
{
	return strcmp(word, ckpt_state_word(CKPT_COMPLETE)) == 0  ? CKPT_COMPLETE
	       : strcmp(word, ckpt_state_word(CKPT_SYNCING)) == 0 ? CKPT_SYNCING
	                                                          : CKPT_INCOMPLETE;
}

static void ckpt_row(struct db_rows *r, void *item)
{
	struct model_checkpoint *c = item;
	const char *part;

	c->job_id = db_get_text(r);
	c->project_id = db_get_text(r);
	c->name = db_get_text(r);
	c->rank = db_get_u32(r);
	c->state = state_of(db_get_text(r));
	c->kind = db_get_text(r);
	c->base_model = db_get_text(r);
	c->lora_r = db_get_int(r);
	c->created_ms = db_get_int(r);
	c->synced_ms = db_get_int(r);
	c->bytes = db_get_u64(r);
	c->bytes_sent = db_get_u64(r);
	c->files = db_get_u64(r);
	c->manifest_key = db_get_text(r);
	c->pinned = db_get_int(r) != 0;
	c->rule = (int)db_get_int(r);
	c->reason = db_get_text(r);
	c->trainer = db_get_text(r);
	c->updating = db_get_text(r);
	c->marked_by = db_get_text(r);
	c->revision = db_get_u32(r);
	part = db_get_text(r);
	c->is_part = part != NULL;
	c->part_state = c->is_part ? state_of(part) : c->state;
	c->part_rule = (int)db_get_int(r);
	c->part_reason = db_get_text(r);
}

static int by_order(const void *a, const void *b)
{
	const struct model_checkpoint *x = a, *y = b;
	int c = ckpt_order(x->created_ms, x->name, y->created_ms, y->name);

	return c != 0 ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

/* In the one order of checkpoints: what the database sorts by name has checkpoint-10 before
 * checkpoint-9. */
int meta_checkpoints(struct meta *m, struct arena *a, const char *job_id,
                     struct model_checkpoint **out, size_t *n, struct err *err)
{
	int r = meta_list(
		m, a,
		"SELECT c.job_id, j.project_id, c.name, c.rank, c.state, c.kind,"
		" c.base_model, c.lora_r, c.created_ms, c.synced_ms, c.bytes, c.bytes_sent,"
		" c.files, c.manifest_key, c.pinned, c.rule, c.reason, c.trainer, c.updating,"
		" c.marked_by, c.revision, c.part_state, c.part_rule, c.part_reason FROM "
		"checkpoints c JOIN jobs j ON j.id = c.job_id"
		" WHERE c.job_id = ?",
		DB_ARGS(db_text(job_id)), sizeof(**out), ckpt_row, out, n, err);

	if (r == 0 && *n > 1)
		qsort(*out, *n, sizeof(**out), by_order);
	return r;
}

static int put_checkpoint(struct db_tx *tx, const struct model_checkpoint *c, struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO checkpoints (job_id, name, rank, state, kind, base_model,"
	               " lora_r, created_ms, synced_ms, bytes, bytes_sent, files, manifest_key,"
	               " rule, reason, trainer, updating, marked_by, revision, part_state,"
	               " part_rule, part_reason)"
	               " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	               " ON CONFLICT (job_id, name, rank) DO UPDATE SET state = excluded.state,"
	               " kind = excluded.kind, base_model = excluded.base_model,"
	               " lora_r = excluded.lora_r, created_ms = excluded.created_ms,"
	               " synced_ms = greatest(checkpoints.synced_ms, excluded.synced_ms), bytes = "
	               "excluded.bytes,"
	               " bytes_sent = excluded.bytes_sent, files = excluded.files,"
	               " manifest_key = coalesce(excluded.manifest_key, checkpoints.manifest_key),"
	               " rule = excluded.rule, reason = excluded.reason,"
	               " trainer = excluded.trainer, updating = excluded.updating,"
	               " marked_by = excluded.marked_by,"
	               " revision = greatest(checkpoints.revision, excluded.revision),"
	               " part_state = excluded.part_state, part_rule = excluded.part_rule,"
	               " part_reason = excluded.part_reason",
	               DB_ARGS(db_text(c->job_id), db_text(c->name), db_int(c->rank),
	                       db_text(ckpt_state_word(c->state)), db_text(c->kind),
	                       db_text(c->base_model), db_int(c->lora_r), db_int(c->created_ms),
	                       db_int(c->synced_ms), db_u64(c->bytes), db_u64(c->bytes_sent),
	                       db_u64(c->files), db_text(c->manifest_key), db_int(c->rule),
	                       db_text(c->reason), db_text(c->trainer), db_text(c->updating),
	                       db_text(c->marked_by), db_int(c->revision),
	                       db_text(c->is_part ? ckpt_state_word(c->part_state) : NULL),
	                       db_int(c->part_rule), db_text(c->part_reason)),
	               NULL, err);
}

static int checkpoints_put_once(struct meta *m, const struct model_checkpoint *c, size_t n,
                                struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (put_checkpoint(&tx, &c[i], err) < 0)
			return -1;
	return db_commit(&tx, err);
}

int meta_checkpoints_put(struct meta *m, const struct model_checkpoint *c, size_t n,
                         struct err *err)
{
	return DB_AGAIN(checkpoints_put_once(m, c, n, err), err);
}

int meta_checkpoint_put(struct meta *m, const struct model_checkpoint *c, struct err *err)
{
	return meta_checkpoints_put(m, c, 1, err);
}

int meta_checkpoint_judge(struct meta *m, const struct model_checkpoint *c, struct err *err)
{
	return meta_exec(m,
	                 "UPDATE checkpoints SET state = ?, rule = ?, reason = ?, marked_by = ?,"
	                 " synced_ms = ? WHERE job_id = ? AND name = ?",
	                 DB_ARGS(db_text(ckpt_state_word(c->state)), db_int(c->rule),
	                         db_text(c->reason), db_text(c->marked_by), db_int(c->synced_ms),
	                         db_text(c->job_id), db_text(c->name)),
	                 ERR_CHECKPOINT_NOT_FOUND, err);
}

static int checkpoints_abandon_once(struct meta *m, const char *job_id, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE checkpoints SET state = ?, reason = CASE"
	            " WHEN reason LIKE 'syncing: %' THEN 'incomplete: ' || substr(reason, 10)"
	            " ELSE reason END WHERE job_id = ? AND state = ?",
	            DB_ARGS(db_text(ckpt_state_word(CKPT_INCOMPLETE)), db_text(job_id),
	                    db_text(ckpt_state_word(CKPT_SYNCING))),
	            NULL, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE checkpoints SET updating = 'incomplete: ' || substr(updating, 10)"
	            " WHERE job_id = ? AND updating LIKE 'syncing: %'",
	            DB_ARGS(db_text(job_id)), NULL, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE jobs SET sync_status = 'COMPLETED' WHERE id = ?"
	            " AND sync_status IS NOT NULL",
	            DB_ARGS(db_text(job_id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_checkpoints_beside(struct meta *m, const struct model_checkpoint *c, uint64_t *n,
                            struct err *err)
{
	int64_t count = 0;

	if (meta_number(m,
	                "SELECT count(*) FROM checkpoints WHERE job_id = ?1 AND rank = ?2"
	                " AND NOT EXISTS (SELECT 1 FROM checkpoints"
	                "  WHERE job_id = ?1 AND rank = ?2 AND name = ?3)",
	                DB_ARGS(db_text(c->job_id), db_int(c->rank), db_text(c->name)), &count,
	                err) < 0)
		return -1;
	*n = (uint64_t)count;
	return 0;
}

int meta_checkpoints_abandon(struct meta *m, const char *job_id, struct err *err)
{
	return DB_AGAIN(checkpoints_abandon_once(m, job_id, err), err);
}

int meta_checkpoint_pin(struct meta *m, const char *job_id, const char *name, bool pinned,
                        struct err *err)
{
	return meta_exec(m, "UPDATE checkpoints SET pinned = ? WHERE job_id = ? AND name = ?",
	                 DB_ARGS(db_int(pinned), db_text(job_id), db_text(name)),
	                 ERR_CHECKPOINT_NOT_FOUND, err);
}

int meta_checkpoint_del(struct meta *m, const char *job_id, const char *name, struct err *err)
{
	return meta_exec(m, "DELETE FROM checkpoints WHERE job_id = ? AND name = ?",
	                 DB_ARGS(db_text(job_id), db_text(name)), ERR_CHECKPOINT_NOT_FOUND, err);
}

#define UPLOAD                                                                                     \
	"SELECT access_key, sealed, key, team_id, created_ms, expires_ms, sha256 FROM uploads "

struct upload_item {
	struct model_upload row;
	struct str sealed;
};

static void upload_row(struct db_rows *r, void *item)
{
	struct upload_item *u = item;

	u->row = (struct model_upload){0};
	u->row.access_key = db_get_text(r);
	u->sealed = db_get_blob(r);
	u->row.key = db_get_text(r);
	u->row.team_id = db_get_text(r);
	u->row.created_ms = db_get_int(r);
	u->row.expires_ms = db_get_int(r);
	u->row.sha256 = db_get_text(r);
}

int meta_upload_add(struct meta *m, const struct model_upload *u, struct str sealed,
                    struct err *err)
{
	return meta_exec(m,
	                 "INSERT INTO uploads (access_key, sealed, key, team_id, created_ms,"
	                 " expires_ms) VALUES (?, ?, ?, ?, ?, ?)",
	                 DB_ARGS(db_text(u->access_key), db_blob(sealed), db_text(u->key),
	                         db_text(u->team_id), db_int(u->created_ms), db_int(u->expires_ms)),
	                 ERR_NONE, err);
}

int meta_upload(struct meta *m, struct arena *a, const char *access_key, struct model_upload *out,
                struct str *sealed, struct err *err)
{
	struct upload_item u = {0};

	if (meta_one(m, a, UPLOAD "WHERE access_key = ?", DB_ARGS(db_text(access_key)), upload_row,
	             &u, ERR_UPLOAD_NOT_FOUND, err) < 0)
		return -1;
	*out = u.row;
	*sealed = u.sealed;
	return 0;
}

int meta_upload_by_key(struct meta *m, struct arena *a, const char *key, struct model_upload *out,
                       struct err *err)
{
	struct upload_item u = {0};

	if (meta_one(m, a, UPLOAD "WHERE key = ?", DB_ARGS(db_text(key)), upload_row, &u,
	             ERR_UPLOAD_NOT_FOUND, err) < 0)
		return -1;
	*out = u.row;
	return 0;
}

int meta_upload_stored(struct meta *m, const char *key, const char *sha256, struct err *err)
{
	return meta_exec(m, "UPDATE uploads SET sha256 = ? WHERE key = ?",
	                 DB_ARGS(db_text(sha256), db_text(key)), ERR_NONE, err);
}

int meta_upload_same(struct meta *m, struct arena *a, const char *team_id, const char *sha256,
                     int64_t now_ms, struct model_upload *out, struct err *err)
{
	struct upload_item u = {0};

	if (meta_one(m, a,
	             UPLOAD "WHERE team_id = ? AND sha256 = ? AND expires_ms <= ?"
	                    " AND EXISTS (SELECT 1 FROM job_code c JOIN jobs j ON j.id = c.job_id"
	                    "  WHERE c.key = uploads.key AND j.team_id = uploads.team_id)"
	                    " LIMIT 1",
	             DB_ARGS(db_text(team_id), db_text(sha256), db_int(now_ms)), upload_row, &u,
	             ERR_UPLOAD_NOT_FOUND, err) < 0)
		return -1;
	*out = u.row;
	return 0;
}

int meta_upload_reused(struct meta *m, const char *key, int64_t now_ms, struct err *err)
{
	return meta_exec(m, "UPDATE uploads SET created_ms = greatest(created_ms, ?) WHERE key = ?",
	                 DB_ARGS(db_int(now_ms), db_text(key)), ERR_UPLOAD_NOT_FOUND, err);
}

/* Made before ?1, and no longer to be written to. */
#define UNUSED_UPLOADS                                                                             \
	" WHERE created_ms < ?1 AND expires_ms < ?1"                                               \
	" AND NOT EXISTS (SELECT 1 FROM job_code c WHERE c.key = uploads.key)"

static void upload_only(struct db_rows *r, void *item)
{
	struct upload_item u = {0};

	upload_row(r, &u);
	*(struct model_upload *)item = u.row;
}

int meta_uploads_unused(struct meta *m, struct arena *a, int64_t created_ms,
                        struct model_upload **out, size_t *n, struct err *err)
{
	return meta_list(m, a, UPLOAD UNUSED_UPLOADS " ORDER BY created_ms, key",
	                 DB_ARGS(db_int(created_ms)), sizeof(**out), upload_only, out, n, err);
}

static int uploads_sweep_once(struct meta *m, int64_t created_ms, uint64_t *n, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO trash (kind, what) SELECT 'object', key FROM "
	            "uploads" UNUSED_UPLOADS,
	            DB_ARGS(db_int(created_ms)), n, err) < 0 ||
	    db_exec(&tx, "DELETE FROM uploads" UNUSED_UPLOADS, DB_ARGS(db_int(created_ms)), NULL,
	            err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_uploads_sweep(struct meta *m, int64_t created_ms, uint64_t *n, struct err *err)
{
	return DB_AGAIN(uploads_sweep_once(m, created_ms, n, err), err);
}

static void snapshot_row(struct db_rows *r, void *item)
{
	struct model_cache_snapshot *s = item;

	s->scope = db_get_text(r);
	s->scope_id = db_get_text(r);
	s->ms = db_get_int(r);
	s->bytes = db_get_u64(r);
	s->files = db_get_u64(r);
	s->summary_file = db_get_text(r);
}

int meta_snapshot(struct meta *m, struct arena *a, const char *scope, const char *id,
                  struct model_cache_snapshot *out, struct err *err)
{
	return meta_one(m, a,
	                "SELECT scope, scope_id, ms, bytes, files, summary_file FROM snapshots"
	                " WHERE scope = ? AND scope_id = ?",
	                DB_ARGS(db_text(scope), db_text(id)), snapshot_row, out,
	                ERR_SUMMARY_NOT_FOUND, err);
}

int meta_snapshot_put(struct meta *m, const struct model_cache_snapshot *s, struct err *err)
{
	return meta_exec(m,
	                 "INSERT INTO snapshots (scope, scope_id, ms, bytes, files, summary_file)"
	                 " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope, scope_id) DO UPDATE SET"
	                 " ms = excluded.ms, bytes = excluded.bytes, files = excluded.files,"
	                 " summary_file = excluded.summary_file",
	                 DB_ARGS(db_text(s->scope), db_text(s->scope_id), db_int(s->ms),
	                         db_u64(s->bytes), db_u64(s->files), db_text(s->summary_file)),
	                 ERR_NONE, err);
}
