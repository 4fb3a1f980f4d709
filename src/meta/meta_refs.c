/*
 * meta_refs.c - refs: by team, kind and name, the manifest of what is kept. They are the only roots
 * of what is kept by content: a collector takes each manifest that no ref and no active job names.
 */
#include "meta/meta_impl.h"

#define REF "SELECT team_id, kind, name, manifest, bytes, files, created_ms, used_ms FROM refs "

#define DELETE_REF "DELETE FROM refs WHERE team_id = ? AND kind = ? AND name = ?"

static void ref_row(struct db_rows *r, void *item)
{
	struct model_ref *x = item;

	x->team_id = db_get_text(r);
	x->kind = db_get_text(r);
	x->name = db_get_text(r);
	x->manifest = db_get_text(r);
	x->bytes = db_get_u64(r);
	x->files = db_get_u64(r);
	x->created_ms = db_get_int(r);
	x->used_ms = db_get_int(r);
}

int meta_ref_put_in(struct db_tx *tx, const struct model_ref *x, struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO refs (team_id, kind, name, manifest, bytes, files, created_ms,"
	               " used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	               " ON CONFLICT (team_id, kind, name) DO UPDATE SET"
	               " manifest = excluded.manifest, bytes = excluded.bytes,"
	               " files = excluded.files, used_ms = greatest(refs.used_ms, "
	               "excluded.used_ms)",
	               DB_ARGS(db_text(x->team_id), db_text(x->kind), db_text(x->name),
	                       db_text(x->manifest), db_u64(x->bytes), db_u64(x->files),
	                       db_int(x->created_ms), db_int(x->used_ms)),
	               NULL, err);
}

static int ref_put_once(struct meta *m, const struct model_ref *x, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || meta_ref_put_in(&tx, x, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_ref_put(struct meta *m, const struct model_ref *x, struct err *err)
{
	return DB_AGAIN(ref_put_once(m, x, err), err);
}

int meta_ref_del_in(struct db_tx *tx, const char *team_id, const char *kind, const char *name,
                    struct err *err)
{
	return db_exec(tx, DELETE_REF, DB_ARGS(db_text(team_id), db_text(kind), db_text(name)),
	               NULL, err);
}

int meta_ref_del(struct meta *m, const char *team_id, const char *kind, const char *name,
                 struct err *err)
{
	return meta_exec(m, DELETE_REF, DB_ARGS(db_text(team_id), db_text(kind), db_text(name)),
	                 ERR_NOT_FOUND, err);
}

int meta_ref(struct meta *m, struct arena *a, const char *team_id, const char *kind,
             const char *name, struct model_ref *out, struct err *err)
{
	return meta_one(m, a, REF "WHERE team_id = ? AND kind = ? AND name = ?",
	                DB_ARGS(db_text(team_id), db_text(kind), db_text(name)), ref_row, out,
	                ERR_NOT_FOUND, err);
}

int meta_refs(struct meta *m, struct arena *a, const char *team_id, const char *kind,
              struct model_ref **out, size_t *n, struct err *err)
{
	if (team_id == NULL)
		return meta_list(m, a, REF "WHERE kind = ? ORDER BY team_id, name",
		                 DB_ARGS(db_text(kind)), sizeof(**out), ref_row, out, n, err);
	return meta_list(m, a, REF "WHERE kind = ? AND team_id = ? ORDER BY name",
	                 DB_ARGS(db_text(kind), db_text(team_id)), sizeof(**out), ref_row, out, n,
	                 err);
}

int meta_manifest_touch(struct meta *m, const char *manifest, int64_t now_ms, struct err *err)
{
	return meta_exec(m, "UPDATE refs SET used_ms = greatest(used_ms, ?) WHERE manifest = ?",
	                 DB_ARGS(db_int(now_ms), db_text(manifest)), ERR_NONE, err);
}

int meta_manifest_used(struct meta *m, const char *manifest, bool *used, struct err *err)
{
	int64_t n = 0;

	if (meta_number(m,
	                "SELECT (SELECT count(*) FROM refs WHERE manifest = ?1)"
	                " + (SELECT count(*) FROM job_weights WHERE manifest = ?1)",
	                DB_ARGS(db_text(manifest)), &n, err) < 0)
		return -1;
	*used = n > 0;
	return 0;
}

/* ---- what a branch of another Hub was -------------------------------------------------------- */

static void rev_row(struct db_rows *r, void *item)
{
	struct model_hub_rev *x = item;

	x->team_id = db_get_text(r);
	x->repo = db_get_text(r);
	x->rev = db_get_text(r);
	x->commit = db_get_text(r);
	x->checked_ms = db_get_int(r);
}

#define REV "SELECT team_id, repo, rev, \"commit\", checked_ms FROM hub_revs "

int meta_hub_rev_put(struct meta *m, const struct model_hub_rev *x, struct err *err)
{
	return meta_exec(m,
	                 "INSERT INTO hub_revs (team_id, repo, rev, \"commit\", checked_ms)"
	                 " VALUES (?, ?, ?, ?, ?) ON CONFLICT (team_id, repo, rev) DO UPDATE SET"
	                 " \"commit\" = excluded.\"commit\", checked_ms = excluded.checked_ms",
	                 DB_ARGS(db_text(x->team_id), db_text(x->repo), db_text(x->rev),
	                         db_text(x->commit), db_int(x->checked_ms)),
	                 ERR_NONE, err);
}

int meta_hub_rev(struct meta *m, struct arena *a, const char *team_id, const char *repo,
                 const char *rev, struct model_hub_rev *out, struct err *err)
{
	return meta_one(m, a, REV "WHERE team_id = ? AND repo = ? AND rev = ?",
	                DB_ARGS(db_text(team_id), db_text(repo), db_text(rev)), rev_row, out,
	                ERR_NOT_FOUND, err);
}

int meta_hub_revs(struct meta *m, struct arena *a, const char *team_id, const char *repo,
                  struct model_hub_rev **out, size_t *n, struct err *err)
{
	return meta_list(m, a, REV "WHERE team_id = ? AND repo = ? ORDER BY rev",
	                 DB_ARGS(db_text(team_id), db_text(repo)), sizeof(**out), rev_row, out, n,
	                 err);
}

int meta_hub_rev_del(struct meta *m, const char *team_id, const char *repo, const char *rev,
                     struct err *err)
{
	return meta_exec(m, "DELETE FROM hub_revs WHERE team_id = ? AND repo = ? AND rev = ?",
	                 DB_ARGS(db_text(team_id), db_text(repo), db_text(rev)), ERR_NONE, err);
}

int meta_hub_revs_collect(struct meta *m, int64_t before_ms, struct err *err)
{
	return meta_exec(m,
	                 "DELETE FROM hub_revs WHERE checked_ms < ? AND NOT EXISTS ("
	                 "SELECT 1 FROM refs WHERE refs.kind = '" META_REF_HUB "'"
	                 " AND refs.team_id = hub_revs.team_id"
	                 " AND refs.name = hub_revs.repo || '@' || hub_revs.\"commit\")",
	                 DB_ARGS(db_int(before_ms)), ERR_NONE, err);
}

/* ---- what may go --------------------------------------------------------------------------- */

/* Of a mirror's row, and its ref. */
#define WEIGHTS_OF "kind = '" META_REF_WEIGHTS "' AND mirrors.id = refs.name"
/* What people wrote is not there again: it is never evicted. */
#define IDLE                                                                                       \
	" manifest NOT IN (SELECT manifest FROM refs WHERE kind IN ('" META_REF_XORB               \
	"', '" META_REF_REPO "', '" META_REF_LFS "')) AND"                                         \
	" manifest NOT IN (SELECT manifest FROM job_weights)"                                      \
	" AND manifest NOT IN (SELECT manifest FROM refs JOIN mirrors ON " WEIGHTS_OF              \
	"  WHERE state = 'fetching')"

static void idle_row(struct db_rows *r, void *item)
{
	struct meta_idle *x = item;

	x->manifest = db_get_text(r);
	x->source = db_get_text(r);
	x->bytes = db_get_u64(r);
	x->used_ms = db_get_int(r);
}

#define HELD                                                                                       \
	"SELECT manifest, max(coalesce(source, name)), max(bytes), max(used_ms)"                   \
	" FROM refs LEFT JOIN mirrors ON " WEIGHTS_OF
#define LEAST_USED " GROUP BY manifest ORDER BY max(used_ms), manifest"

int meta_refs_held(struct meta *m, struct arena *a, struct meta_idle **out, size_t *n,
                   struct err *err)
{
	return meta_list(m, a, HELD LEAST_USED, DB_NONE, sizeof(**out), idle_row, out, n, err);
}

int meta_refs_idle(struct meta *m, struct arena *a, struct meta_idle **out, size_t *n,
                   struct err *err)
{
	return meta_list(m, a, HELD " WHERE" IDLE LEAST_USED, DB_NONE, sizeof(**out), idle_row, out,
	                 n, err);
}

static int evict_once(struct meta *m, const char *manifest, bool *evicted, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	*evicted = false;
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "DELETE FROM mirrors WHERE id IN (SELECT name FROM refs"
	            " WHERE kind = '" META_REF_WEIGHTS "' AND manifest = ? AND" IDLE ")",
	            DB_ARGS(db_text(manifest)), NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM refs WHERE manifest = ? AND" IDLE, DB_ARGS(db_text(manifest)),
	            &changed, err) < 0 ||
	    db_commit(&tx, err) < 0)
		return -1;
	*evicted = changed > 0;
	return 0;
}

int meta_manifest_evict(struct meta *m, const char *manifest, bool *evicted, struct err *err)
{
	return DB_AGAIN(evict_once(m, manifest, evicted, err), err);
}
