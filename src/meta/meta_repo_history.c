/*
 * meta_repo_history.c - histories of repositories that are written anew: commits that come and go,
 * branches that are others, in one transaction. What is gone is named by no ref any more, and so
 * its bytes are collected.
 */
#include "meta/meta_impl.h"

int meta_repo_commits(struct meta *m, struct arena *a, const char *repo_id, size_t limit,
                      struct model_repo_commit **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT repo_id, \"commit\", parent, '', '', '', ms"
	                 " FROM repo_commits WHERE repo_id = ? ORDER BY seq LIMIT ?",
	                 DB_ARGS(db_text(repo_id), db_u64(limit)), sizeof(**out),
	                 meta_repo_commit_row, out, n, err);
}

static void upload_row(struct db_rows *r, void *item)
{
	struct model_ref *x = item;

	*x = (struct model_ref){.kind = META_REF_LFS};
	x->name = db_get_text(r);
	x->bytes = db_get_u64(r);
	x->created_ms = db_get_int(r);
	x->used_ms = db_get_int(r);
}

/* "id/" is what names begin with; '0' is what follows '/'. */
int meta_repo_uploads(struct meta *m, struct arena *a, const struct model_repo *r, size_t skip,
                      size_t limit, struct model_ref **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT name, bytes, created_ms, used_ms FROM refs WHERE team_id = ?"
	                 " AND kind = '" META_REF_LFS "' AND name >= ? AND name < ?"
	                 " ORDER BY name LIMIT ? OFFSET ?",
	                 DB_ARGS(db_text(r->team_id), db_text(arena_printf(a, "%s/", r->id)),
	                         db_text(arena_printf(a, "%s0", r->id)), db_u64(limit),
	                         db_u64(skip)),
	                 sizeof(**out), upload_row, out, n, err);
}

int meta_repo_upload_sized(struct meta *m, const struct model_repo *r, uint64_t bytes, bool *is,
                           struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int64_t n = 0;

	if (meta_number(m,
	                "SELECT count(*) FROM refs WHERE team_id = ? AND kind = '" META_REF_LFS "'"
	                " AND name >= ? AND name < ? AND bytes = ?",
	                DB_ARGS(db_text(r->team_id), db_text(arena_printf(a, "%s/", r->id)),
	                        db_text(arena_printf(a, "%s0", r->id)), db_u64(bytes)),
	                &n, err) < 0)
		return -1;
	*is = n > 0;
	return 0;
}

static int add_like(struct db_tx *tx, const struct model_repo_commit *c, const char *text_of,
                    struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO repo_commits (repo_id, \"commit\", parent, title, message,"
	               " author, ms) SELECT repo_id, ?, ?, title, message, author, ms"
	               " FROM repo_commits WHERE repo_id = ? AND \"commit\" = ?"
	               " ON CONFLICT (repo_id, \"commit\") DO NOTHING",
	               DB_ARGS(db_text(c->commit), db_text(c->parent), db_text(c->repo_id),
	                       db_text(text_of)),
	               NULL, err);
}

static int add_in(struct db_tx *tx, const struct meta_repo_rewrite *w, struct err *err)
{
	for (size_t i = 0; i < w->n_commits; i++)
		if (meta_ref_put_in(tx, &w->files[i], err) < 0 ||
		    (w->text_of[i] != NULL ? add_like(tx, &w->commit[i], w->text_of[i], err)
		                           : meta_repo_commit_add_in(tx, &w->commit[i], err)) < 0)
			return -1;
	for (size_t i = 0; i < w->n_refs; i++)
		if (meta_repo_ref_move_in(tx, &w->ref[i], w->head[i], err) < 0)
			return -1;
	for (size_t i = 0; i < w->n_moved; i++)
		if (db_exec(tx, "UPDATE repo_pulls SET base = ? WHERE repo_id = ? AND base = ?",
		            DB_ARGS(db_text(w->moved[i].to), db_text(w->repo->id),
		                    db_text(w->moved[i].from)),
		            NULL, err) < 0 ||
		    db_exec(tx, "UPDATE repo_pulls SET merged = ? WHERE repo_id = ? AND merged = ?",
		            DB_ARGS(db_text(w->moved[i].to), db_text(w->repo->id),
		                    db_text(w->moved[i].from)),
		            NULL, err) < 0)
			return -1;
	return 0;
}

static int drop_in(struct db_tx *tx, struct arena *a, const struct meta_repo_rewrite *w,
                   struct err *err)
{
	const struct model_repo *r = w->repo;

	for (size_t i = 0; i < w->n_drop; i++)
		if (db_exec(tx, "DELETE FROM repo_commits WHERE repo_id = ? AND \"commit\" = ?",
		            DB_ARGS(db_text(r->id), db_text(w->drop[i])), NULL, err) < 0 ||
		    meta_ref_del_in(tx, r->team_id, META_REF_REPO,
		                    arena_printf(a, "%s@%s", r->id, w->drop[i]), err) < 0)
			return -1;
	for (size_t i = 0; i < w->n_uploads; i++)
		if (meta_ref_del_in(tx, r->team_id, META_REF_LFS, w->upload[i], err) < 0)
			return -1;
	return 0;
}

static int rewrite_once(struct meta *m, const struct meta_repo_rewrite *w, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct model_repo *r = w->repo;
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || add_in(&tx, w, err) < 0 ||
	    drop_in(&tx, a, w, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE repos SET bytes = ? + (SELECT coalesce(sum(f.bytes), 0) FROM refs f"
	            " WHERE f.team_id = repos.team_id AND f.kind = '" META_REF_LFS "'"
	            " AND f.name >= ? AND f.name < ?)"
	            " + (SELECT coalesce(sum(octet_length(c.title) + octet_length(c.message)), 0)"
	            " FROM repo_commits c WHERE c.repo_id = repos.id)"
	            " + (SELECT coalesce(sum(octet_length(e.body) + octet_length(e.earlier)), 0)"
	            " FROM repo_events e WHERE e.repo_id = repos.id AND e.kind <> 'status'),"
	            " updated_ms = greatest(updated_ms, ?)"
	            " WHERE id = ?",
	            DB_ARGS(db_u64(w->bytes), db_text(arena_printf(a, "%s/", r->id)),
	                    db_text(arena_printf(a, "%s0", r->id)), db_int(w->now_ms),
	                    db_text(r->id)),
	            &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_missing(err, ERR_HUB_REPO_NOT_FOUND);
	return db_commit(&tx, err);
}

int meta_repo_rewrite(struct meta *m, const struct meta_repo_rewrite *w, struct err *err)
{
	return DB_AGAIN(rewrite_once(m, w, err), err);
}
