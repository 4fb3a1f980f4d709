/*
 * meta_repo.c - repositories that people write to: their branches, tags and commits. A commit's
 * files are named by a ref in the same transaction that moves its branch.
 */
#include "meta/meta_impl.h"

#include "base/units.h"
#include "core/hub.h"

#define REPO                                                                                       \
	"SELECT r.id, r.team_id, r.type, r.owner, r.name, r.of_user, r.is_private, r.bytes,"       \
	" r.created_ms, r.updated_ms FROM repos r "

static void repo_row(struct db_rows *r, void *item)
{
	struct model_repo *x = item;

	x->id = db_get_text(r);
	x->team_id = db_get_text(r);
	x->type = db_get_text(r);
	x->owner = db_get_text(r);
	x->name = db_get_text(r);
	x->of_user = db_get_bool(r);
	x->is_private = db_get_bool(r);
	x->bytes = db_get_u64(r);
	x->created_ms = db_get_int(r);
	x->updated_ms = db_get_int(r);
}

int meta_repo(struct meta *m, struct arena *a, const char *id, struct model_repo *out,
              struct err *err)
{
	return meta_one(m, a, REPO "WHERE r.id = ?", DB_ARGS(db_text(id)), repo_row, out,
	                ERR_HUB_REPO_NOT_FOUND, err);
}

int meta_repo_by_key(struct meta *m, struct arena *a, const char *key, struct model_repo *out,
                     bool *moved, struct err *err)
{
	*moved = false;
	if (meta_one(m, a, REPO "WHERE r.key = ?", DB_ARGS(db_text(key)), repo_row, out,
	             ERR_HUB_REPO_NOT_FOUND, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	*moved = true;
	return meta_one(m, a, REPO "JOIN repo_moves v ON v.repo_id = r.id WHERE v.key = ?",
	                DB_ARGS(db_text(key)), repo_row, out, ERR_HUB_REPO_NOT_FOUND, err);
}

int meta_repo_of_manifest(struct meta *m, struct arena *a, const char *manifest,
                          struct model_repo *out, struct err *err)
{
	return meta_one(m, a,
	                REPO "JOIN refs f ON substr(f.name, 1, length(r.id)) = r.id"
	                     " WHERE f.manifest = ? AND f.kind IN ('" META_REF_REPO
	                     "', '" META_REF_LFS "') ORDER BY r.id",
	                DB_ARGS(db_text(manifest)), repo_row, out, ERR_HUB_REPO_NOT_FOUND, err);
}

int meta_repos(struct meta *m, struct arena *a, const struct meta_repo_query *q,
               struct model_repo **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 REPO
	                 "WHERE (?1 IS NULL OR r.team_id = ?1 OR r.is_private = 0)"
	                 " AND (?2 IS NULL OR r.type = ?2) AND (?3 IS NULL OR r.owner_key = ?3)"
	                 " AND (?4 IS NULL OR replace(r.key, ?4, '') <> r.key)"
	                 " ORDER BY r.updated_ms DESC, r.id LIMIT ?5",
	                 DB_ARGS(db_text(q->team_id), db_text(q->type), db_text(q->owner_key),
	                         db_text(q->search), db_u64(q->limit)),
	                 sizeof(**out), repo_row, out, n, err);
}

int meta_repos_bytes(struct meta *m, const char *team_id, uint64_t *bytes, struct err *err)
{
	int64_t sum = 0;

	if (meta_number(m, "SELECT coalesce(sum(bytes), 0) FROM repos WHERE team_id = ?",
	                DB_ARGS(db_text(team_id)), &sum, err) < 0)
		return -1;
	*bytes = (uint64_t)sum;
	return 0;
}

/* ---- made, moved, deleted ------------------------------------------------------------------ */

/* Whoever has the first repository of an owner has the name. One that still leads to a repository
 * of another team does so. */
static int may_have(struct db_tx *tx, const char *owner, const char *owner_key_,
                    const char *team_id, const char *key, const char *but_id, struct err *err)
{
	int64_t theirs = 0, same = 0, leads = 0;

	if (db_number(tx, "SELECT count(*) FROM repos WHERE owner_key = ? AND team_id <> ?",
	              DB_ARGS(db_text(owner_key_), db_text(team_id)), 0, &theirs, err) < 0 ||
	    db_number(tx, "SELECT count(*) FROM repos WHERE key = ? AND id <> ?",
	              DB_ARGS(db_text(key), db_text(but_id)), 0, &same, err) < 0 ||
	    db_number(tx,
	              "SELECT count(*) FROM repo_moves v JOIN repos r ON r.id = v.repo_id"
	              " WHERE v.key = ? AND r.team_id <> ?",
	              DB_ARGS(db_text(key), db_text(team_id)), 0, &leads, err) < 0)
		return -1;
	if (theirs > 0)
		return err_set(err, ERR_HUB_NAMESPACE_TAKEN,
		               "the namespace %s belongs to another team", owner);
	if (leads > 0)
		return err_set(err, ERR_HUB_NAMESPACE_TAKEN,
		               "%s leads to a repository of another team, which had this name",
		               strchr(key, '/') + 1);
	if (same > 0)
		return err_set(err, ERR_HUB_REPO_EXISTS, "there is a repository %s already",
		               strchr(key, '/') + 1);
	return 0;
}

int meta_repo_commit_add_in(struct db_tx *tx, const struct model_repo_commit *c, struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO repo_commits (repo_id, \"commit\", parent, title, message,"
	               " author, ms) VALUES (?, ?, ?, ?, ?, ?, ?)"
	               " ON CONFLICT (repo_id, \"commit\") DO NOTHING",
	               DB_ARGS(db_text(c->repo_id), db_text(c->commit), db_text(c->parent),
	                       db_text(c->title), db_text(c->message), db_text(c->author),
	                       db_int(c->ms)),
	               NULL, err);
}

static const char *const kind_words[] = {
	[REPO_BRANCH] = "branch", [REPO_TAG] = "tag", [REPO_PULL] = "pr"};

int meta_repo_ref_add_in(struct db_tx *tx, const struct model_repo_ref *r, struct err *err)
{
	int64_t n = 0;

	if (db_number(tx, "SELECT count(*) FROM repo_refs WHERE repo_id = ?",
	              DB_ARGS(db_text(r->repo_id)), 0, &n, err) < 0)
		return -1;
	if (n >= META_REPO_REFS_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "a repository has at most %d branches, tags and pull requests",
		               META_REPO_REFS_MAX);
	return db_exec(tx,
	               "INSERT INTO repo_refs (repo_id, kind, name, \"commit\")"
	               " VALUES (?, ?, ?, ?)",
	               DB_ARGS(db_text(r->repo_id), db_text(kind_words[r->kind]), db_text(r->name),
	                       db_text(r->commit)),
	               NULL, err);
}

static int repo_row_in(struct db_tx *tx, const struct model_repo *r, const char *key,
                       struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *owner = hub_lower(a, r->owner);

	if (may_have(tx, r->owner, owner, r->team_id, key, r->id, err) < 0 ||
	    db_exec(tx, "DELETE FROM repo_moves WHERE key = ?", DB_ARGS(db_text(key)), NULL, err) <
	            0)
		return -1;
	return db_exec(tx,
	               "INSERT INTO repos (id, team_id, key, owner_key, type, owner, name, of_user,"
	               " is_private, bytes, created_ms, updated_ms)"
	               " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
	               DB_ARGS(db_text(r->id), db_text(r->team_id), db_text(key), db_text(owner),
	                       db_text(r->type), db_text(r->owner), db_text(r->name),
	                       db_int(r->of_user), db_int(r->is_private), db_u64(r->bytes),
	                       db_int(r->created_ms), db_int(r->updated_ms)),
	               NULL, err);
}

static int repo_add_once(struct meta *m, const struct model_repo *r, const char *key,
                         const struct model_repo_commit *first, const struct model_ref *files,
                         struct err *err)
{
	const struct model_repo_ref head = {r->id, REPO_BRANCH, "main", first->commit};
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || repo_row_in(&tx, r, key, err) < 0 ||
	    meta_ref_put_in(&tx, files, err) < 0 || meta_repo_commit_add_in(&tx, first, err) < 0 ||
	    meta_repo_ref_add_in(&tx, &head, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_add(struct meta *m, const struct model_repo *r, const char *key,
                  const struct model_repo_commit *first, const struct model_ref *files,
                  struct err *err)
{
	return DB_AGAIN(repo_add_once(m, r, key, first, files, err), err);
}

/* So many bytes more in all repositories of the team. quota 0: none. */
static int fits_in(struct db_tx *tx, const char *team_id, uint64_t more, uint64_t quota,
                   struct err *err)
{
	int64_t sum = 0;

	if (more == 0 || quota == 0)
		return 0;
	if (db_number(tx, "SELECT coalesce(sum(bytes), 0) FROM repos WHERE team_id = ?",
	              DB_ARGS(db_text(team_id)), 0, &sum, err) < 0)
		return -1;
	return meta_repos_fit((uint64_t)sum, more, quota, err);
}

/* What the other one holds, but for uploads that no commit has named: they are not copied. */
static int copied_bytes(struct db_tx *tx, struct arena *a, const struct model_repo *from,
                        uint64_t *out, struct err *err)
{
	int64_t all = 0, uploads = 0, said = 0;

	if (db_number(tx, "SELECT bytes FROM repos WHERE id = ?", DB_ARGS(db_text(from->id)), 0,
	              &all, err) < 0 ||
	    db_number(tx,
	              "SELECT coalesce(sum(bytes), 0) FROM refs WHERE team_id = ?"
	              " AND kind = '" META_REF_LFS "' AND name >= ? AND name < ?"
	              " AND used_ms = created_ms",
	              DB_ARGS(db_text(from->team_id), db_text(arena_printf(a, "%s/", from->id)),
	                      db_text(arena_printf(a, "%s0", from->id))),
	              0, &uploads, err) < 0 ||
	    db_number(tx,
	              "SELECT coalesce(sum(octet_length(body) + octet_length(earlier)), 0) FROM "
	              "repo_events"
	              " WHERE repo_id = ? AND kind <> 'status'",
	              DB_ARGS(db_text(from->id)), 0, &said, err) < 0)
		return -1;
	*out = (uint64_t)(all - MIN(uploads + said, all));
	return 0;
}

static int repo_copy_once(struct meta *m, const struct model_repo *from, struct model_repo *to,
                          const char *key, uint64_t quota, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_DB_TX struct db_tx tx = {0};
	int64_t there = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM repos WHERE id = ?", DB_ARGS(db_text(from->id)), 0,
	              &there, err) < 0)
		return -1;
	if (there == 0)
		return err_missing(err, ERR_HUB_REPO_NOT_FOUND);
	if (copied_bytes(&tx, a, from, &to->bytes, err) < 0 ||
	    fits_in(&tx, to->team_id, to->bytes, quota, err) < 0 ||
	    repo_row_in(&tx, to, key, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO repo_commits (repo_id, \"commit\", parent, title, message,"
	            " author, ms) SELECT ?, \"commit\", parent, title, message, author, ms"
	            " FROM repo_commits WHERE repo_id = ? ORDER BY seq",
	            DB_ARGS(db_text(to->id), db_text(from->id)), NULL, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO repo_refs (repo_id, kind, name, \"commit\")"
	            " SELECT ?, kind, name, \"commit\" FROM repo_refs"
	            " WHERE repo_id = ? AND kind IN ('branch', 'tag')",
	            DB_ARGS(db_text(to->id), db_text(from->id)), NULL, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO refs (team_id, kind, name, manifest, bytes, files, created_ms,"
	            " used_ms) SELECT ?1, kind, ?2 || substr(name, length(?3) + 1), manifest, "
	            "bytes,"
	            " files, created_ms, used_ms FROM refs WHERE team_id = ?4"
	            " AND ((kind = '" META_REF_REPO "' AND name >= ?5 AND name < ?6)"
	            " OR (kind = '" META_REF_LFS "' AND name >= ?7 AND name < ?8"
	            " AND used_ms > created_ms))",
	            DB_ARGS(db_text(to->team_id), db_text(to->id), db_text(from->id),
	                    db_text(from->team_id), db_text(arena_printf(a, "%s@", from->id)),
	                    db_text(arena_printf(a, "%sA", from->id)),
	                    db_text(arena_printf(a, "%s/", from->id)),
	                    db_text(arena_printf(a, "%s0", from->id))),
	            NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_copy(struct meta *m, const struct model_repo *from, struct model_repo *to,
                   const char *key, uint64_t quota, struct err *err)
{
	return DB_AGAIN(repo_copy_once(m, from, to, key, quota, err), err);
}

static int repo_del_once(struct meta *m, const char *id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_DB_TX struct db_tx tx = {0};
	struct model_repo r = {0};

	/* "id@" and "id/" are what names begin with; 'A' and '0' are what follows these two */
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a, REPO "WHERE r.id = ?", DB_ARGS(db_text(id)), repo_row, &r,
	                ERR_HUB_REPO_NOT_FOUND, err) < 0 ||
	    db_exec(&tx,
	            "DELETE FROM refs WHERE team_id = ? AND kind = '" META_REF_REPO
	            "' AND name >= ? AND name < ?",
	            DB_ARGS(db_text(r.team_id), db_text(arena_printf(a, "%s@", id)),
	                    db_text(arena_printf(a, "%sA", id))),
	            NULL, err) < 0 ||
	    db_exec(&tx,
	            "DELETE FROM refs WHERE team_id = ? AND kind IN ('" META_REF_LFS
	            "', '" META_REF_XORB "') AND name >= ? AND name < ?",
	            DB_ARGS(db_text(r.team_id), db_text(arena_printf(a, "%s/", id)),
	                    db_text(arena_printf(a, "%s0", id))),
	            NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM repos WHERE id = ?", DB_ARGS(db_text(id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_del(struct meta *m, const char *id, struct err *err)
{
	return DB_AGAIN(repo_del_once(m, id, err), err);
}

int meta_repo_set_private(struct meta *m, const char *id, bool is_private, int64_t now_ms,
                          struct err *err)
{
	return meta_exec(m, "UPDATE repos SET is_private = ?, updated_ms = ? WHERE id = ?",
	                 DB_ARGS(db_int(is_private), db_int(now_ms), db_text(id)),
	                 ERR_HUB_REPO_NOT_FOUND, err);
}

static int repo_move_once(struct meta *m, const struct model_repo *r, const char *old_key,
                          const char *key, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *owner = hub_lower(a, r->owner);
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    may_have(&tx, r->owner, owner, r->team_id, key, r->id, err) < 0 ||
	    db_exec(&tx, "DELETE FROM repo_moves WHERE key = ?", DB_ARGS(db_text(key)), NULL, err) <
	            0 ||
	    db_exec(&tx,
	            "UPDATE repos SET key = ?, owner_key = ?, owner = ?, name = ?, of_user = ?,"
	            " updated_ms = ? WHERE id = ? AND key = ?",
	            DB_ARGS(db_text(key), db_text(owner), db_text(r->owner), db_text(r->name),
	                    db_int(r->of_user), db_int(r->updated_ms), db_text(r->id),
	                    db_text(old_key)),
	            &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_missing(err, ERR_HUB_REPO_NOT_FOUND);
	if (strcmp(old_key, key) != 0 &&
	    db_exec(&tx,
	            "INSERT INTO repo_moves (key, repo_id) VALUES (?, ?)"
	            " ON CONFLICT (key) DO UPDATE SET repo_id = excluded.repo_id",
	            DB_ARGS(db_text(old_key), db_text(r->id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_move(struct meta *m, const struct model_repo *r, const char *old_key, const char *key,
                   struct err *err)
{
	return DB_AGAIN(repo_move_once(m, r, old_key, key, err), err);
}

/* ---- branches and tags --------------------------------------------------------------------- */

#define REF "SELECT repo_id, kind, name, \"commit\" FROM repo_refs "

static void ref_row(struct db_rows *r, void *item)
{
	struct model_repo_ref *x = item;
	const char *kind;

	x->repo_id = db_get_text(r);
	kind = db_get_text(r);
	x->kind = REPO_BRANCH;
	for (unsigned k = 0; k < COUNT(kind_words); k++)
		if (strcmp(kind, kind_words[k]) == 0)
			x->kind = (enum model_repo_ref_kind)k;
	x->name = db_get_text(r);
	x->commit = db_get_text(r);
}

int meta_repo_ref(struct meta *m, struct arena *a, const char *repo_id,
                  enum model_repo_ref_kind kind, const char *name, struct model_repo_ref *out,
                  struct err *err)
{
	return meta_one(m, a, REF "WHERE repo_id = ? AND kind = ? AND name = ?",
	                DB_ARGS(db_text(repo_id), db_text(kind_words[kind]), db_text(name)),
	                ref_row, out, ERR_HUB_REVISION_NOT_FOUND, err);
}

int meta_repo_refs(struct meta *m, struct arena *a, const char *repo_id,
                   struct model_repo_ref **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 REF "WHERE repo_id = ? ORDER BY kind,"
	                     " CASE WHEN kind = 'pr' THEN length(name) ELSE 0 END, name",
	                 DB_ARGS(db_text(repo_id)), sizeof(**out), ref_row, out, n, err);
}

static int ref_add_once(struct meta *m, const struct model_repo_ref *r, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	int64_t commits = 0, same = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM repo_commits WHERE repo_id = ? AND \"commit\" = ?",
	              DB_ARGS(db_text(r->repo_id), db_text(r->commit)), 0, &commits, err) < 0 ||
	    db_number(&tx,
	              "SELECT count(*) FROM repo_refs WHERE repo_id = ? AND kind = ? AND name = ?",
	              DB_ARGS(db_text(r->repo_id), db_text(kind_words[r->kind]), db_text(r->name)),
	              0, &same, err) < 0)
		return -1;
	if (same > 0)
		return err_set(err, ERR_HUB_REF_EXISTS, "Reference refs/%s/%s already exists",
		               r->kind == REPO_TAG ? "tags" : "heads", r->name);
	if (commits == 0)
		return err_missing(err, ERR_HUB_REVISION_NOT_FOUND);
	if (meta_repo_ref_add_in(&tx, r, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_ref_add(struct meta *m, const struct model_repo_ref *r, struct err *err)
{
	return DB_AGAIN(ref_add_once(m, r, err), err);
}

int meta_repo_ref_del(struct meta *m, const struct model_repo_ref *r, struct err *err)
{
	return meta_exec(
		m, "DELETE FROM repo_refs WHERE repo_id = ? AND kind = ? AND name = ?",
		DB_ARGS(db_text(r->repo_id), db_text(kind_words[r->kind]), db_text(r->name)),
		ERR_HUB_REVISION_NOT_FOUND, err);
}

/* ---- commits ------------------------------------------------------------------------------- */

void meta_repo_commit_row(struct db_rows *r, void *item)
{
	struct model_repo_commit *x = item;

	x->repo_id = db_get_text(r);
	x->commit = db_get_text(r);
	x->parent = db_get_text(r);
	x->title = db_get_text(r);
	x->message = db_get_text(r);
	x->author = db_get_text(r);
	x->ms = db_get_int(r);
}

int meta_repo_commit_find(struct meta *m, struct arena *a, const char *repo_id, const char *commit,
                          struct model_repo_commit *out, struct err *err)
{
	return meta_one(m, a,
	                "SELECT repo_id, \"commit\", parent, title, message, author, ms"
	                " FROM repo_commits WHERE repo_id = ? AND \"commit\" = ?",
	                DB_ARGS(db_text(repo_id), db_text(commit)), meta_repo_commit_row, out,
	                ERR_HUB_REVISION_NOT_FOUND, err);
}

int meta_repo_commit_begins(struct meta *m, struct arena *a, const char *repo_id,
                            const char *prefix, struct model_repo_commit *out, struct err *err)
{
	struct model_repo_commit *c = NULL;
	size_t n = 0;

	/* 'g' is what follows the digits */
	if (meta_list(m, a,
	              "SELECT repo_id, \"commit\", parent, title, message, author, ms"
	              " FROM repo_commits WHERE repo_id = ? AND \"commit\" >= ?"
	              " AND \"commit\" < ? LIMIT 2",
	              DB_ARGS(db_text(repo_id), db_text(prefix),
	                      db_text(arena_printf(a, "%sg", prefix))),
	              sizeof(*c), meta_repo_commit_row, &c, &n, err) < 0)
		return -1;
	if (n != 1)
		return err_missing(err, ERR_HUB_REVISION_NOT_FOUND);
	*out = c[0];
	return 0;
}

int meta_repo_log(struct meta *m, struct arena *a, const char *repo_id, const char *commit,
                  size_t skip, size_t limit, struct model_repo_commit **out, size_t *n,
                  struct err *err)
{
	return meta_list(m, a,
	                 "WITH RECURSIVE line(c, n) AS (SELECT \"commit\", 0 FROM repo_commits"
	                 " WHERE repo_id = ?1 AND \"commit\" = ?2 UNION ALL"
	                 " SELECT p.parent, line.n + 1 FROM line JOIN repo_commits p"
	                 " ON p.repo_id = ?1 AND p.\"commit\" = line.c"
	                 " WHERE p.parent IS NOT NULL AND line.n < ?5)"
	                 " SELECT repo_id, \"commit\", parent, title, message, author, ms FROM"
	                 " (SELECT x.repo_id, x.\"commit\", x.parent, x.title, x.message,"
	                 " x.author, x.ms, line.n, length(x.title) + length(x.message) AS own,"
	                 " sum(length(x.title) + length(x.message)) OVER (ORDER BY line.n) AS text"
	                 " FROM line JOIN repo_commits x"
	                 " ON x.repo_id = ?1 AND x.\"commit\" = line.c WHERE line.n >= ?4) told"
	                 " WHERE text - own < ?6 ORDER BY n LIMIT ?3",
	                 DB_ARGS(db_text(repo_id), db_text(commit), db_u64(limit), db_u64(skip),
	                         db_u64(skip + limit), db_int(META_REPO_TEXT_MAX)),
	                 sizeof(**out), meta_repo_commit_row, out, n, err);
}

int meta_repo_log_length(struct meta *m, const char *repo_id, const char *commit, uint64_t *n,
                         struct err *err)
{
	int64_t found = 0;

	if (meta_number(m,
	                "WITH RECURSIVE line(c) AS (SELECT \"commit\" FROM repo_commits"
	                " WHERE repo_id = ?1 AND \"commit\" = ?2 UNION ALL"
	                " SELECT p.parent FROM line JOIN repo_commits p"
	                " ON p.repo_id = ?1 AND p.\"commit\" = line.c WHERE p.parent IS NOT NULL)"
	                " SELECT count(*) FROM line",
	                DB_ARGS(db_text(repo_id), db_text(commit)), &found, err) < 0)
		return -1;
	*n = (uint64_t)found;
	return 0;
}

int meta_repos_fit(uint64_t held, uint64_t more, uint64_t quota, struct err *err)
{
	char have[UNITS_CAP], want[UNITS_CAP], most[UNITS_CAP];

	if (more <= quota && held <= quota - more)
		return 0;
	return err_set(err, ERR_REPO_QUOTA_EXCEEDED,
	               "the repositories of the team hold %s, with %s more they would be over its "
	               "quota of %s",
	               units_show_bytes(held, have), units_show_bytes(more, want),
	               units_show_bytes(quota, most));
}

int meta_repo_grow_in(struct db_tx *tx, const char *repo_id, uint64_t bytes, uint64_t quota,
                      int64_t now_ms, struct err *err)
{
	uint64_t changed = 0;
	int64_t held = 0;

	if (bytes > 0 && quota > 0 &&
	    (db_number(tx,
	               "SELECT coalesce(sum(bytes), 0) FROM repos"
	               " WHERE team_id = (SELECT team_id FROM repos WHERE id = ?)",
	               DB_ARGS(db_text(repo_id)), 0, &held, err) < 0 ||
	     meta_repos_fit((uint64_t)held, bytes, quota, err) < 0))
		return -1;
	if (db_exec(tx,
	            "UPDATE repos SET bytes = bytes + ?, updated_ms = greatest(updated_ms, ?)"
	            " WHERE id = ?",
	            DB_ARGS(db_u64(bytes), db_int(now_ms), db_text(repo_id)), &changed, err) < 0)
		return -1;
	return changed > 0 ? 0 : err_missing(err, ERR_HUB_REPO_NOT_FOUND);
}

/* What was uploaded and is part of a commit now is never swept. */
static int keep_uploads(struct db_tx *tx, const struct meta_repo_change *c, struct err *err)
{
	for (size_t i = 0; i < c->n_uploads; i++)
		if (db_exec(tx,
		            "UPDATE refs SET used_ms = greatest(created_ms + 1, ?)"
		            " WHERE team_id = ? AND kind = '" META_REF_LFS "' AND name = ?",
		            DB_ARGS(db_int(c->commit->ms), db_text(c->team_id),
		                    db_text(c->uploads[i])),
		            NULL, err) < 0)
			return -1;
	return 0;
}

int meta_repo_ref_move_in(struct db_tx *tx, const struct model_repo_ref *r, const char *head,
                          struct err *err)
{
	uint64_t moved = 0;

	if (db_exec(tx,
	            "UPDATE repo_refs SET \"commit\" = ? WHERE repo_id = ? AND kind = ?"
	            " AND name = ? AND \"commit\" = ?",
	            DB_ARGS(db_text(r->commit), db_text(r->repo_id), db_text(kind_words[r->kind]),
	                    db_text(r->name), db_text(head)),
	            &moved, err) < 0)
		return -1;
	if (moved > 0)
		return 0;
	return err_set(err, ERR_HUB_STALE, "the branch %s%s was updated while the commit was made",
	               r->kind == REPO_PULL ? "refs/pr/" : "", r->name);
}

static int repo_commit_once(struct meta *m, const struct meta_repo_change *c, struct err *err)
{
	const struct model_repo_commit *x = c->commit;
	const struct model_repo_ref ref = {x->repo_id, c->kind, c->branch, x->commit};
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_repo_grow_in(&tx, x->repo_id, c->bytes, c->quota, x->ms, err) < 0 ||
	    meta_ref_put_in(&tx, c->files, err) < 0 || meta_repo_commit_add_in(&tx, x, err) < 0 ||
	    keep_uploads(&tx, c, err) < 0 ||
	    (c->pull != NULL
	             ? meta_repo_pull_add_in(&tx, c->pull, x->commit, x->message, c->quota, err)
	             : meta_repo_ref_move_in(&tx, &ref, c->head, err)) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_commit(struct meta *m, const struct meta_repo_change *c, struct err *err)
{
	return DB_AGAIN(repo_commit_once(m, c, err), err);
}

/* One that no commit has named yet is new again: used_ms stays created_ms, which is what the sweep
 * looks for. */
static int upload_again(struct db_tx *tx, const struct model_ref *file, uint64_t *known,
                        struct err *err)
{
	return db_exec(tx,
	               "UPDATE refs SET used_ms = greatest(used_ms, ?1), created_ms ="
	               " CASE WHEN used_ms = created_ms THEN greatest(used_ms, ?1)"
	               " ELSE created_ms END WHERE team_id = ?2 AND kind = ?3 AND name = ?4",
	               DB_ARGS(db_int(file->created_ms), db_text(file->team_id),
	                       db_text(file->kind), db_text(file->name)),
	               known, err);
}

static int upload_once(struct meta *m, const char *repo_id, const struct model_ref *file,
                       uint64_t quota, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t known = 0;

	assert(file->used_ms == file->created_ms);
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || upload_again(&tx, file, &known, err) < 0)
		return -1;
	if (known == 0 &&
	    (meta_repo_grow_in(&tx, repo_id, file->bytes, quota, file->created_ms, err) < 0 ||
	     meta_ref_put_in(&tx, file, err) < 0))
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_upload(struct meta *m, const char *repo_id, const struct model_ref *file,
                     uint64_t quota, struct err *err)
{
	return DB_AGAIN(upload_once(m, repo_id, file, quota, err), err);
}

#define FORGOTTEN " kind = '" META_REF_LFS "' AND used_ms = created_ms AND created_ms < ?1"

static int sweep_once(struct meta *m, int64_t before_ms, uint64_t *swept, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE repos SET bytes = bytes - (SELECT coalesce(sum(f.bytes), 0)"
	            " FROM refs f WHERE f.team_id = repos.team_id AND" FORGOTTEN
	            " AND f.name >= repos.id || '/' AND f.name < repos.id || '0')"
	            " WHERE EXISTS (SELECT 1 FROM refs WHERE" FORGOTTEN ")",
	            DB_ARGS(db_int(before_ms)), NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM refs WHERE" FORGOTTEN, DB_ARGS(db_int(before_ms)), swept,
	            err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_uploads_sweep(struct meta *m, int64_t before_ms, uint64_t *swept, struct err *err)
{
	return DB_AGAIN(sweep_once(m, before_ms, swept, err), err);
}

static int xorb_once(struct meta *m, const char *repo_id, const struct model_ref *x, uint64_t quota,
                     struct err *err)
{
	char held[UNITS_CAP], most[UNITS_CAP];
	AUTO_DB_TX struct db_tx tx = {0};
	int64_t repos = 0, sum = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM repos WHERE id = ?", DB_ARGS(db_text(repo_id)), 0,
	              &repos, err) < 0 ||
	    db_number(&tx,
	              "SELECT coalesce(sum(bytes), 0) FROM refs WHERE team_id = ?"
	              " AND kind = '" META_REF_XORB "'",
	              DB_ARGS(db_text(x->team_id)), 0, &sum, err) < 0)
		return -1;
	if (repos == 0)
		return err_missing(err, ERR_HUB_REPO_NOT_FOUND);
	if (x->bytes > quota || (uint64_t)sum > quota - x->bytes)
		return err_set(
			err, ERR_REPO_QUOTA_EXCEEDED,
			"uploads of the team that are under way take %s, more than its quota "
			"of %s allows",
			units_show_bytes((uint64_t)sum + x->bytes, held),
			units_show_bytes(quota, most));
	if (meta_ref_put_in(&tx, x, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_xorb(struct meta *m, const char *repo_id, const struct model_ref *xorb,
                   uint64_t quota, struct err *err)
{
	return DB_AGAIN(xorb_once(m, repo_id, xorb, quota, err), err);
}

static int xorbs_sweep_once(struct meta *m, int64_t before_ms, uint64_t *swept, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx, "DELETE FROM refs WHERE kind = '" META_REF_XORB "' AND created_ms < ?",
	            DB_ARGS(db_int(before_ms)), swept, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_xorbs_sweep(struct meta *m, int64_t before_ms, uint64_t *swept, struct err *err)
{
	return DB_AGAIN(xorbs_sweep_once(m, before_ms, swept, err), err);
}
