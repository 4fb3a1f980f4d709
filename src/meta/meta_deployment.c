/* meta_deployment.c - deployments: made and changed with the job that begins a revision. */
#include "meta/meta_impl.h"

#define DEPLOYMENT                                                                                 \
	"SELECT d.id, d.name, d.team_id, t.name, d.project_id, p.name, d.wanted, d.revision,"      \
	" d.replicas, d.idle_s, d.replaces, d.checkpoint, d.\"user\","                             \
	" d.created_ms, d.updated_ms, d.started_ms FROM deployments d"                             \
	" JOIN teams t ON t.id = d.team_id JOIN projects p ON p.id = d.project_id "

static void deployment_row(struct db_rows *r, void *item)
{
	struct model_deployment *d = item;

	d->id = db_get_text(r);
	d->name = db_get_text(r);
	d->team_id = db_get_text(r);
	d->team_name = db_get_text(r);
	d->project_id = db_get_text(r);
	d->project_name = db_get_text(r);
	if (!deployment_wanted_parse(str_of(db_get_text(r)), &d->wanted))
		abort(); /* only deployment_wanted_word[] was ever written */
	d->revision = db_get_u32(r);
	d->replicas = db_get_u32(r);
	d->idle_s = db_get_u32(r);
	d->replaces = db_get_int(r) != 0;
	d->checkpoint = db_get_text(r);
	d->document_json = NULL;
	d->user = db_get_text(r);
	d->created_ms = db_get_int(r);
	d->updated_ms = db_get_int(r);
	d->started_ms = db_get_int(r);
}

int meta_deployments(struct meta *m, struct arena *a, const char *team_id, const char *name,
                     struct model_deployment **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 DEPLOYMENT "WHERE (?1 IS NULL OR d.team_id = ?1)"
	                            " AND (?2 IS NULL OR d.name = ?2) ORDER BY d.name, t.name",
	                 DB_ARGS(db_text(team_id), db_text(name)), sizeof(**out), deployment_row,
	                 out, n, err);
}

static void text_row(struct db_rows *r, void *item)
{
	*(const char **)item = db_get_text(r);
}

int meta_deployment_document(struct meta *m, struct arena *a, const char *id, const char **out,
                             struct err *err)
{
	return meta_one(m, a, "SELECT document_json FROM deployments WHERE id = ?",
	                DB_ARGS(db_text(id)), text_row, out, ERR_DEPLOYMENT_NOT_FOUND, err);
}

int meta_deployments_count(struct meta *m, const char *team_id, int64_t *n, struct err *err)
{
	return meta_number(m, "SELECT count(*) FROM deployments WHERE team_id = ?",
	                   DB_ARGS(db_text(team_id)), n, err);
}

static void replica_row(struct db_rows *r, void *item)
{
	struct model_replica *x = item;
	struct err err = {0};

	*x = (struct model_replica){0};
	x->job_id = db_get_text(r);
	x->deployment_id = db_get_text(r);
	x->revision = db_get_u32(r);
	if (job_state_parse(str_of(db_get_text(r)), &x->state, &err) < 0)
		abort(); /* a job's stored state is a state */
	x->created_ms = db_get_int(r);
	x->node_id = db_get_text(r);
	x->node = db_get_text(r);
}

int meta_replicas(struct meta *m, struct arena *a, const char *deployment_id,
                  struct model_replica **out, size_t *n, struct err *err)
{
	char states[META_STATES_CAP], sql[800];

	meta_states(meta_active_states(), states);
	FMT(sql,
	    "SELECT j.id, j.deployment_id, j.deployment_revision, j.state, j.created_ms,"
	    " t.node_id, t.node FROM jobs j"
	    " LEFT JOIN attempts t ON t.id = j.attempt_id AND t.node_rank = 0"
	    " WHERE j.deployment_id IS NOT NULL AND (?1 IS NULL OR j.deployment_id = ?1)"
	    " AND j.state IN (%s) ORDER BY j.deployment_id, j.deployment_revision DESC,"
	    " j.created_ms DESC, j.rowid DESC",
	    states);
	return meta_list(m, a, sql, DB_ARGS(db_text(deployment_id)), sizeof(**out), replica_row,
	                 out, n, err);
}

int meta_deployment_failed(struct meta *m, struct arena *a, const struct model_deployment *d,
                           int64_t *n, const char **job_id, struct err *err)
{
	char states[META_STATES_CAP], sql[600];
	const char **id = NULL;
	size_t n_ids = 0;

	meta_states(1U << JOB_COMPLETED | 1U << JOB_FAILED | 1U << JOB_DEPLOY_FAILED, states);
	FMT(sql,
	    "SELECT j.id FROM jobs j WHERE j.deployment_id = ? AND j.deployment_revision = ?"
	    " AND j.created_ms >= ? AND j.state IN (%s)"
	    " ORDER BY j.created_ms DESC, j.rowid DESC LIMIT ?",
	    states);
	*job_id = NULL;
	if (meta_list(m, a, sql,
	              DB_ARGS(db_text(d->id), db_int(d->revision), db_int(d->started_ms),
	                      db_int(DEPLOYMENT_REPLICAS_MAX)),
	              sizeof(*id), text_row, &id, &n_ids, err) < 0)
		return -1;
	if (n_ids > 0)
		*job_id = id[0];
	*n = (int64_t)n_ids;
	return 0;
}

int meta_deployment_job(struct meta *m, struct arena *a, const struct model_deployment *d,
                        const char **job_id, struct err *err)
{
	const char **id = NULL;
	size_t n = 0;

	if (meta_list(m, a,
	              "SELECT j.id FROM jobs j WHERE j.deployment_id = ? AND"
	              " j.deployment_revision = ? ORDER BY j.created_ms DESC, j.rowid DESC LIMIT 1",
	              DB_ARGS(db_text(d->id), db_int(d->revision)), sizeof(*id), text_row, &id, &n,
	              err) < 0)
		return -1;
	*job_id = n > 0 ? id[0] : NULL;
	return 0;
}

int meta_deployment_want(struct meta *m, const struct model_deployment *from,
                         enum deployment_wanted to, int64_t now_ms, struct err *err)
{
	bool starts = to == DEPLOYMENT_RUN;

	if (meta_exec(m,
	              "UPDATE deployments SET wanted = ?, updated_ms = ?,"
	              " started_ms = CASE WHEN ? = 0 THEN started_ms ELSE coalesce("
	              "(SELECT max(j.created_ms) + 1 FROM jobs j WHERE"
	              " j.deployment_id = deployments.id AND j.created_ms >= ?), ?) END"
	              " WHERE id = ? AND wanted = ? AND revision = ?",
	              DB_ARGS(db_text(deployment_wanted_word[to]), db_int(now_ms), db_int(starts),
	                      db_int(now_ms), db_int(now_ms), db_text(from->id),
	                      db_text(deployment_wanted_word[from->wanted]),
	                      db_int(from->revision)),
	              ERR_CONFLICT, err) == 0)
		return 0;
	if (err->code != ERR_CONFLICT)
		return -1;
	err_clear(err);
	return err_set(err, ERR_CONFLICT, "deployment %s was changed at the same moment: try again",
	               from->name);
}

int meta_deployment_scale(struct meta *m, const char *id, uint32_t replicas, uint32_t idle_s,
                          int64_t now_ms, struct err *err)
{
	return meta_exec(
		m, "UPDATE deployments SET replicas = ?, idle_s = ?, updated_ms = ? WHERE id = ?",
		DB_ARGS(db_int(replicas), db_int(idle_s), db_int(now_ms), db_text(id)),
		ERR_DEPLOYMENT_NOT_FOUND, err);
}

int meta_deployment_del(struct meta *m, const char *id, struct err *err)
{
	return meta_exec(m, "DELETE FROM deployments WHERE id = ?", DB_ARGS(db_text(id)),
	                 ERR_DEPLOYMENT_NOT_FOUND, err);
}

static int put(struct db_tx *tx, const struct model_deployment *d, uint64_t *changed,
               struct err *err)
{
	return db_exec(
		tx,
		"INSERT INTO deployments (id, team_id, project_id, name, wanted, revision,"
		" replicas, idle_s, replaces, checkpoint, document_json, \"user\", created_ms,"
		" updated_ms, started_ms)"
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
		" ON CONFLICT (team_id, name) DO UPDATE SET project_id = excluded.project_id,"
		" wanted = excluded.wanted, revision = excluded.revision,"
		" replicas = excluded.replicas, idle_s = excluded.idle_s,"
		" replaces = excluded.replaces, checkpoint = excluded.checkpoint,"
		" document_json = excluded.document_json, \"user\" = excluded.\"user\","
		" updated_ms = excluded.updated_ms, started_ms = excluded.started_ms"
		" WHERE deployments.id = excluded.id"
		" AND deployments.revision = excluded.revision - 1",
		DB_ARGS(db_text(d->id), db_text(d->team_id), db_text(d->project_id),
	                db_text(d->name), db_text(deployment_wanted_word[d->wanted]),
	                db_int(d->revision), db_int(d->replicas), db_int(d->idle_s),
	                db_int(d->replaces), db_text(d->checkpoint), db_text(d->document_json),
	                db_text(d->user), db_int(d->created_ms), db_int(d->updated_ms),
	                db_int(d->started_ms)),
		changed, err);
}

int meta_deployment_join(struct db_tx *tx, const struct meta_new_job *n, struct err *err)
{
	const struct model_deployment *d = n->deploys;
	uint64_t changed = 0;
	int64_t found = 0;

	if (n->deployment_id == NULL)
		return 0;
	if (d != NULL) {
		assert(strcmp(d->id, n->deployment_id) == 0 && d->revision >= 1 &&
		       d->revision == n->deployment_revision && d->wanted == DEPLOYMENT_RUN);
		if (put(tx, d, &changed, err) < 0)
			return -1;
		if (changed == 0)
			return err_set(err, ERR_CONFLICT,
			               "%s was deployed by another call at the same moment: try "
			               "again",
			               d->name);
	} else {
		if (db_number(tx,
		              "SELECT count(*) FROM deployments WHERE id = ? AND revision = ? AND "
		              "wanted = ?",
		              DB_ARGS(db_text(n->deployment_id), db_int(n->deployment_revision),
		                      db_text(deployment_wanted_word[DEPLOYMENT_RUN])),
		              0, &found, err) < 0)
			return -1;
		if (found == 0)
			return err_set(err, ERR_CONFLICT, "its deployment has changed meanwhile");
	}
	return db_exec(tx,
	               "UPDATE jobs SET deployment_id = ?, deployment_revision = ? WHERE id = ?",
	               DB_ARGS(db_text(n->deployment_id), db_int(n->deployment_revision),
	                       db_text(n->row->id)),
	               NULL, err);
}
