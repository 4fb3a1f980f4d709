/* meta_project.c - projects, and what is left on disk when one is deleted. */
#include "meta/meta_impl.h"

#define PROJECT                                                                                    \
	"SELECT p.id, p.name, p.team_id, t.name, p.pinned_cluster, p.cache_quota, p.created_ms,"   \
	" p.updated_ms, (SELECT j.id FROM jobs j WHERE j.project_id = p.id"                        \
	"  ORDER BY j.created_ms DESC, j.rowid DESC LIMIT 1)"                                      \
	" FROM projects p JOIN teams t ON t.id = p.team_id "

static void project_row(struct db_rows *r, void *item)
{
	struct model_project *p = item;

	p->id = db_get_text(r);
	p->name = db_get_text(r);
	p->team_id = db_get_text(r);
	p->team_name = db_get_text(r);
	p->pinned_cluster = db_get_text(r);
	p->cache_quota_bytes = db_get_u64(r);
	p->created_ms = db_get_int(r);
	p->updated_ms = db_get_int(r);
	p->latest_job_id = db_get_text(r);
}

int meta_projects(struct meta *m, struct arena *a, const char *team_id, struct model_project **out,
                  size_t *n, struct err *err)
{
	if (team_id == NULL)
		return meta_list(m, a, PROJECT "ORDER BY p.updated_ms DESC, p.rowid DESC", DB_NONE,
		                 sizeof(**out), project_row, out, n, err);
	return meta_list(m, a,
	                 PROJECT "WHERE p.team_id = ? ORDER BY p.updated_ms DESC, p.rowid DESC",
	                 DB_ARGS(db_text(team_id)), sizeof(**out), project_row, out, n, err);
}

int meta_project(struct meta *m, struct arena *a, const char *id, struct model_project *out,
                 struct err *err)
{
	return meta_one(m, a, PROJECT "WHERE p.id = ?", DB_ARGS(db_text(id)), project_row, out,
	                ERR_PROJECT_NOT_FOUND, err);
}

int meta_project_by_name(struct meta *m, struct arena *a, const char *team_id, const char *name,
                         struct model_project *out, struct err *err)
{
	return meta_one(m, a, PROJECT "WHERE p.team_id = ? AND p.name = ?",
	                DB_ARGS(db_text(team_id), db_text(name)), project_row, out,
	                ERR_PROJECT_NOT_FOUND, err);
}

int meta_projects_find(struct meta *m, struct arena *a, const struct meta_project_query *q,
                       struct model_project **out, size_t *n, struct err *err)
{
	char end[META_PREFIX_CAP] = "";

	if (q->prefix != NULL && !meta_prefix_end(q->prefix, end)) {
		*n = 0;
		return 0;
	}
	return meta_list(
		m, a,
		PROJECT "WHERE (?1 IS NULL OR p.team_id = ?1) AND (?2 IS NULL OR p.id = ?2)"
			" AND (?3 IS NULL OR p.name = ?3)"
			" AND (?4 IS NULL OR t.name = ?4 OR t.id = ?4)"
			" AND (?5 IS NULL OR (p.id >= ?5 AND p.id < ?6))"
			" ORDER BY p.updated_ms DESC, p.rowid DESC LIMIT ?7",
		DB_ARGS(db_text(q->team_id), db_text(q->id), db_text(q->name), db_text(q->team),
	                db_text(q->prefix), db_text(end), db_u64(q->limit)),
		sizeof(**out), project_row, out, n, err);
}

static int project_upsert_once(struct meta *m, struct arena *a, const struct model_project *p,
                               struct model_project *out, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "INSERT INTO projects (id, name, team_id, cache_quota, created_ms, updated_ms)"
	            " VALUES (?, ?, ?, ?, ?, ?)"
	            " ON CONFLICT (team_id, name) DO UPDATE SET updated_ms = excluded.updated_ms",
	            DB_ARGS(db_text(p->id), db_text(p->name), db_text(p->team_id),
	                    db_u64(p->cache_quota_bytes), db_int(p->created_ms),
	                    db_int(p->updated_ms)),
	            NULL, err) < 0 ||
	    meta_one_in(&tx, a, PROJECT "WHERE p.team_id = ? AND p.name = ?",
	                DB_ARGS(db_text(p->team_id), db_text(p->name)), project_row, out,
	                ERR_PROJECT_NOT_FOUND, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_project_upsert(struct meta *m, struct arena *a, const struct model_project *p,
                        struct model_project *out, struct err *err)
{
	return DB_AGAIN(project_upsert_once(m, a, p, out, err), err);
}

int meta_project_quota(struct meta *m, const char *id, uint64_t bytes, struct err *err)
{
	return meta_exec(m, "UPDATE projects SET cache_quota = ? WHERE id = ?",
	                 DB_ARGS(db_u64(bytes), db_text(id)), ERR_PROJECT_NOT_FOUND, err);
}

static void id_row(struct db_rows *r, void *item)
{
	*(const char **)item = db_get_text(r);
}

static int project_del_once(struct meta *m, const char *id, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	char states[META_STATES_CAP];
	struct model_project p = {0};
	const char **job = NULL;
	const char **deployment = NULL;
	int64_t active = 0;
	size_t n = 0, n_deployments = 0;

	meta_states(meta_active_states(), states);
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a, PROJECT "WHERE p.id = ?", DB_ARGS(db_text(id)), project_row, &p,
	                ERR_PROJECT_NOT_FOUND, err) < 0 ||
	    meta_list_in(&tx, a, "SELECT name FROM deployments WHERE project_id = ? ORDER BY name",
	                 DB_ARGS(db_text(id)), sizeof(*deployment), id_row, &deployment,
	                 &n_deployments, err) < 0 ||
	    db_number(&tx,
	              arena_printf(
			      a, "SELECT count(*) FROM jobs WHERE project_id = ? AND state IN (%s)",
			      states),
	              DB_ARGS(db_text(id)), 0, &active, err) < 0 ||
	    meta_list_in(&tx, a, "SELECT id FROM jobs WHERE project_id = ?", DB_ARGS(db_text(id)),
	                 sizeof(*job), id_row, &job, &n, err) < 0)
		return -1;
	if (n_deployments > 0)
		return err_set(err, ERR_CONFLICT,
		               "project %s has deployment %s: `stoker deployments rm %s` first",
		               p.name, deployment[0], deployment[0]);
	if (active > 0)
		return err_set(err, ERR_CONFLICT,
		               "project %s has %lld active jobs: stop them first", p.name,
		               (long long)active);
	for (size_t i = 0; i < n; i++) {
		if (meta_job_trash(&tx, id, job[i], err) < 0)
			return -1;
	}
	if (meta_trash_add(&tx, "cache", arena_printf(a, "projects/%s", id), err) < 0 ||
	    meta_trash_add(&tx, "summary", arena_printf(a, "project-%s.jsonl", id), err) < 0 ||
	    db_exec(&tx, "DELETE FROM snapshots WHERE scope = 'project' AND scope_id = ?",
	            DB_ARGS(db_text(id)), NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM projects WHERE id = ?", DB_ARGS(db_text(id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_project_del(struct meta *m, const char *id, struct err *err)
{
	return DB_AGAIN(project_del_once(m, id, err), err);
}
