/* meta_admin.c - clusters, teams, tokens, secrets, limits of capacity. */
#include "meta/meta_impl.h"

#include "core/hub.h"

int meta_cluster_put(struct meta *m, const char *name, const char *engine, int64_t now_ms,
                     struct err *err)
{
	return meta_exec(m,
	                 "INSERT INTO clusters (name, engine, created_ms) VALUES (?, ?, ?)"
	                 " ON CONFLICT (name) DO NOTHING",
	                 DB_ARGS(db_text(name), db_text(engine), db_int(now_ms)), ERR_NONE, err);
}

#define TEAM "SELECT id, name, is_default, created_ms FROM teams "

static void team_row(struct db_rows *r, void *item)
{
	struct model_team *t = item;

	t->id = db_get_text(r);
	t->name = db_get_text(r);
	t->is_default = db_get_bool(r);
	t->created_ms = db_get_int(r);
}

int meta_teams(struct meta *m, struct arena *a, struct model_team **out, size_t *n, struct err *err)
{
	return meta_list(m, a, TEAM "ORDER BY is_default DESC, name", DB_NONE, sizeof(**out),
	                 team_row, out, n, err);
}

int meta_team(struct meta *m, struct arena *a, const char *id, struct model_team *out,
              struct err *err)
{
	if (id == NULL)
		return meta_one(m, a, TEAM "WHERE is_default = 1", DB_NONE, team_row, out,
		                ERR_TEAM_NOT_FOUND, err);
	return meta_one(m, a, TEAM "WHERE id = ?", DB_ARGS(db_text(id)), team_row, out,
	                ERR_TEAM_NOT_FOUND, err);
}

static int team_add_once(struct meta *m, const struct model_team *t, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_DB_TX struct db_tx tx = {0};
	int64_t there = 0, repos = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM teams WHERE name = ?", DB_ARGS(db_text(t->name)),
	              0, &there, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM repos WHERE owner_key = ?",
	              DB_ARGS(db_text(hub_lower(a, t->name))), 0, &repos, err) < 0)
		return -1;
	if (there > 0)
		return err_set(err, ERR_CONFLICT, "there is a team \"%s\" already", t->name);
	if (repos > 0)
		return err_set(err, ERR_CONFLICT,
		               "\"%s\" is the name of a user who has %lld repositories: delete or "
		               "move them first, or choose another name",
		               t->name, (long long)repos);
	if (db_exec(&tx, "INSERT INTO teams (id, name, is_default, created_ms) VALUES (?, ?, ?, ?)",
	            DB_ARGS(db_text(t->id), db_text(t->name), db_int(t->is_default),
	                    db_int(t->created_ms)),
	            NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_team_add(struct meta *m, const struct model_team *t, struct err *err)
{
	return DB_AGAIN(team_add_once(m, t, err), err);
}

static int team_del_once(struct meta *m, const char *id, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	struct model_team t = {0};
	int64_t projects = 0, repos = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a, TEAM "WHERE id = ?", DB_ARGS(db_text(id)), team_row, &t,
	                ERR_TEAM_NOT_FOUND, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM repos WHERE team_id = ?", DB_ARGS(db_text(id)), 0,
	              &repos, err) < 0 ||
	    db_number(&tx, "SELECT count(*) FROM projects WHERE team_id = ?", DB_ARGS(db_text(id)),
	              0, &projects, err) < 0)
		return -1;
	if (t.is_default)
		return err_set(err, ERR_CONFLICT, "%s is the default team, which cannot be deleted",
		               t.name);
	if (projects > 0)
		return err_set(err, ERR_CONFLICT, "team %s has %lld projects: delete them first",
		               t.name, (long long)projects);
	if (repos > 0)
		return err_set(err, ERR_CONFLICT,
		               "team %s has %lld repositories: delete them first", t.name,
		               (long long)repos);
	if (meta_trash_add(&tx, "cache", arena_printf(a, "teams/%s", id), err) < 0 ||
	    meta_trash_add(&tx, "summary", arena_printf(a, "team-%s.jsonl", id), err) < 0 ||
	    db_exec(&tx, "DELETE FROM snapshots WHERE scope = 'team' AND scope_id = ?",
	            DB_ARGS(db_text(id)), NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM refs WHERE team_id = ?", DB_ARGS(db_text(id)), NULL, err) <
	            0 ||
	    db_exec(&tx, "DELETE FROM hub_revs WHERE team_id = ?", DB_ARGS(db_text(id)), NULL,
	            err) < 0 ||
	    db_exec(&tx, "DELETE FROM teams WHERE id = ?", DB_ARGS(db_text(id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_team_del(struct meta *m, const char *id, struct err *err)
{
	return DB_AGAIN(team_del_once(m, id, err), err);
}

#define TOKEN                                                                                      \
	"SELECT id, name, team_id, (SELECT teams.name FROM teams WHERE teams.id = "                \
	"tokens.team_id), hash, role, created_ms, expires_ms, used_ms FROM tokens "

static void token_row(struct db_rows *r, void *item)
{
	struct model_token *t = item;
	int64_t role;

	t->id = db_get_text(r);
	t->name = db_get_text(r);
	t->team_id = db_get_text(r);
	t->team_name = db_get_text(r);
	t->hash = db_get_text(r);
	role = db_get_int(r);
	t->role = role >= ROLE_ADMIN ? ROLE_ADMIN : role == ROLE_MEMBER ? ROLE_MEMBER : ROLE_VIEWER;
	t->created_ms = db_get_int(r);
	t->expires_ms = db_get_int(r);
	t->used_ms = db_get_int(r);
}

int meta_tokens(struct meta *m, struct arena *a, const char *team_id, struct model_token **out,
                size_t *n, struct err *err)
{
	if (team_id == NULL)
		return meta_list(m, a, TOKEN "ORDER BY created_ms, id", DB_NONE, sizeof(**out),
		                 token_row, out, n, err);
	return meta_list(m, a, TOKEN "WHERE team_id = ? ORDER BY created_ms, id",
	                 DB_ARGS(db_text(team_id)), sizeof(**out), token_row, out, n, err);
}

int meta_token(struct meta *m, struct arena *a, const char *id, struct model_token *out,
               struct err *err)
{
	return meta_one(m, a, TOKEN "WHERE id = ?", DB_ARGS(db_text(id)), token_row, out,
	                ERR_TOKEN_NOT_FOUND, err);
}

int meta_token_by_hash(struct meta *m, struct arena *a, const char *hash, struct model_token *out,
                       struct err *err)
{
	return meta_one(m, a, TOKEN "WHERE hash = ?", DB_ARGS(db_text(hash)), token_row, out,
	                ERR_TOKEN_NOT_FOUND, err);
}

int meta_token_by_prefix(struct meta *m, struct arena *a, const char *prefix,
                         struct model_token *out, struct err *err)
{
	return meta_one(m, a, TOKEN "WHERE hash >= ?1 AND hash < ?1 || 'g' LIMIT 1",
	                DB_ARGS(db_text(prefix)), token_row, out, ERR_TOKEN_NOT_FOUND, err);
}

int meta_token_add(struct meta *m, const struct model_token *t, struct err *err)
{
	return meta_exec(m,
	                 "INSERT INTO tokens (id, name, team_id, hash, role, created_ms,"
	                 " expires_ms, used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
	                 DB_ARGS(db_text(t->id), db_text(t->name), db_text(t->team_id),
	                         db_text(t->hash), db_int(t->role), db_int(t->created_ms),
	                         db_int(t->expires_ms), db_int(t->used_ms)),
	                 ERR_NONE, err);
}

int meta_token_del(struct meta *m, const char *id, struct err *err)
{
	return meta_exec(m, "DELETE FROM tokens WHERE id = ?", DB_ARGS(db_text(id)),
	                 ERR_TOKEN_NOT_FOUND, err);
}

int meta_token_used(struct meta *m, const char *id, int64_t now_ms, struct err *err)
{
	return meta_exec(m, "UPDATE tokens SET used_ms = ? WHERE id = ?",
	                 DB_ARGS(db_int(now_ms), db_text(id)), ERR_NONE, err);
}

#define SECRET                                                                                     \
	"SELECT id, name, team_id, created_ms, updated_ms, used_ms, name_key, version, sealed"     \
	" FROM secrets "

static void secret_row(struct db_rows *r, void *item)
{
	struct model_secret *s = item;

	s->id = db_get_text(r);
	s->name = db_get_text(r);
	s->team_id = db_get_text(r);
	s->created_ms = db_get_int(r);
	s->updated_ms = db_get_int(r);
	s->used_ms = db_get_int(r);
}

static void secret_full(struct db_rows *r, void *item)
{
	struct meta_secret *s = item;

	secret_row(r, &s->row);
	s->key = db_get_text(r);
	s->version = db_get_text(r);
	s->sealed = db_get_blob(r);
}

int meta_secrets(struct meta *m, struct arena *a, const char *team_id, struct model_secret **out,
                 size_t *n, struct err *err)
{
	return meta_list(m, a, SECRET "WHERE team_id = ? ORDER BY name", DB_ARGS(db_text(team_id)),
	                 sizeof(**out), secret_row, out, n, err);
}

int meta_secret(struct meta *m, struct arena *a, const char *team_id, const char *key,
                struct meta_secret *out, struct err *err)
{
	return meta_one(m, a, SECRET "WHERE team_id = ? AND name_key = ?",
	                DB_ARGS(db_text(team_id), db_text(key)), secret_full, out,
	                ERR_SECRET_NOT_FOUND, err);
}

static int secret_put_once(struct meta *m, struct arena *a, const struct meta_secret *s,
                           struct model_secret *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO secrets (id, team_id, name, name_key, version, sealed, created_ms,"
	            " updated_ms, used_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
	            " ON CONFLICT (team_id, name_key) DO UPDATE SET name = excluded.name,"
	            " version = excluded.version, sealed = excluded.sealed,"
	            " updated_ms = excluded.updated_ms",
	            DB_ARGS(db_text(s->row.id), db_text(s->row.team_id), db_text(s->row.name),
	                    db_text(s->key), db_text(s->version), db_blob(s->sealed),
	                    db_int(s->row.created_ms), db_int(s->row.updated_ms)),
	            NULL, err) < 0 ||
	    meta_one_in(&tx, a, SECRET "WHERE team_id = ? AND name_key = ?",
	                DB_ARGS(db_text(s->row.team_id), db_text(s->key)), secret_row, out,
	                ERR_SECRET_NOT_FOUND, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_secret_put(struct meta *m, struct arena *a, const struct meta_secret *s,
                    struct model_secret *out, struct err *err)
{
	return DB_AGAIN(secret_put_once(m, a, s, out, err), err);
}

int meta_secret_del(struct meta *m, const char *team_id, const char *key, struct err *err)
{
	return meta_exec(m, "DELETE FROM secrets WHERE team_id = ? AND name_key = ?",
	                 DB_ARGS(db_text(team_id), db_text(key)), ERR_SECRET_NOT_FOUND, err);
}

int meta_secret_used(struct meta *m, const char *id, int64_t now_ms, struct err *err)
{
	return meta_exec(m, "UPDATE secrets SET used_ms = ? WHERE id = ?",
	                 DB_ARGS(db_int(now_ms), db_text(id)), ERR_NONE, err);
}

static void capacity_row(struct db_rows *r, void *item)
{
	struct meta_capacity *c = item;

	c->team_id = db_get_text(r);
	c->team_name = db_get_text(r);
	c->gpu_type = db_get_text(r);
	c->max_gpus = db_get_int(r);
}

int meta_capacity(struct meta *m, struct arena *a, struct meta_capacity **out, size_t *n,
                  struct err *err)
{
	return meta_list(m, a,
	                 "SELECT c.team_id, t.name, c.gpu_type, c.max_gpus FROM capacity c"
	                 " JOIN teams t ON t.id = c.team_id ORDER BY t.name, c.gpu_type",
	                 DB_NONE, sizeof(**out), capacity_row, out, n, err);
}

int meta_capacity_put(struct meta *m, const char *team_id, const char *gpu_type, int64_t max_gpus,
                      struct err *err)
{
	if (max_gpus < 0)
		return meta_exec(m, "DELETE FROM capacity WHERE team_id = ? AND gpu_type = ?",
		                 DB_ARGS(db_text(team_id), db_text(gpu_type)), ERR_NONE, err);
	return meta_exec(m,
	                 "INSERT INTO capacity (team_id, gpu_type, max_gpus) VALUES (?, ?, ?)"
	                 " ON CONFLICT (team_id, gpu_type) DO UPDATE SET max_gpus ="
	                 " excluded.max_gpus",
	                 DB_ARGS(db_text(team_id), db_text(gpu_type), db_int(max_gpus)), ERR_NONE,
	                 err);
}
