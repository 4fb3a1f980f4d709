/* meta_queue.c - what the queue reads on each pass: the jobs that wait, and what placed ones hold.
 * Columns only: no specification, no document, no frozen record. And what is stored of the liveness
 * of all of them, together. */
#include "meta/meta_impl.h"

void meta_cache_flags(int64_t column, struct model_job *out)
{
	out->cache = column > 0;
	out->cache_affinity = column > 1;
}

static void waiting_row(struct db_rows *r, void *item)
{
	struct meta_waiting *w = item;
	struct model_job *j = &w->job;

	*w = (struct meta_waiting){.job.core = {.state = JOB_PENDING}};
	j->id = db_get_text(r);
	j->project_id = db_get_text(r);
	j->project_name = db_get_text(r);
	j->team_id = db_get_text(r);
	j->user = db_get_text(r);
	j->core.attempt = db_get_u32(r);
	j->core.attempt_max = db_get_u32(r);
	j->core.changed_ms = db_get_int(r);
	j->priority = db_get_int(r);
	j->created_ms = db_get_int(r);
	j->reason = db_get_text(r);
	j->attempt_id = db_get_text(r);
	j->node_count = db_get_u32(r);
	j->cpu_milli = db_get_u32(r);
	j->gpu_count = db_get_u32(r);
	j->memory_bytes = db_get_u64(r);
	j->gpu_type = db_get_text(r);
	meta_cache_flags(db_get_int(r), j);
	j->max_duration_s = db_get_u64(r);
	j->inputs_missing = db_get_int(r) != 0;
	w->pinned_cluster = db_get_text(r);
}

int meta_waiting(struct meta *m, struct arena *a, struct meta_waiting **out, size_t *n,
                 struct err *err)
{
	return meta_list(
		m, a,
		"SELECT j.id, j.project_id, p.name, j.team_id, j.user, j.attempt, j.attempt_max,"
		" j.changed_ms, j.priority, j.created_ms, j.reason, j.attempt_id, j.node_count, "
		"j.cpu_milli,"
		" j.gpu_count, j.memory_bytes, j.gpu_type, j.cache, j.max_duration_s,"
		" j.inputs_missing, p.pinned_cluster"
		" FROM jobs j JOIN projects p ON p.id = j.project_id"
		" WHERE j.state = 'pending' ORDER BY j.priority DESC, j.created_ms, j.id",
		DB_NONE, sizeof(**out), waiting_row, out, n, err);
}

int meta_waiting_of_team(struct meta *m, const char *team_id, int64_t *n, struct err *err)
{
	return meta_number(m,
	                   "SELECT coalesce(sum(n), 0) FROM job_counts"
	                   " WHERE state = 'pending' AND team_id = ?",
	                   DB_ARGS(db_text(team_id)), n, err);
}

static void held_row(struct db_rows *r, void *item)
{
	struct meta_held *h = item;

	h->job_id = db_get_text(r);
	h->team_id = db_get_text(r);
	h->user = db_get_text(r);
	h->gpu_type = db_get_text(r);
	h->node = db_get_text(r);
	h->cpu_milli = db_get_u32(r);
	h->gpu_count = db_get_u32(r);
	h->memory_bytes = db_get_u64(r);
	h->gpus = db_get_u64(r);
	h->placed_ms = db_get_int(r);
	h->started_ms = db_get_int(r);
	h->max_duration_s = db_get_u64(r);
	h->node_id = db_get_text(r);
}

int meta_held(struct meta *m, struct arena *a, struct meta_held **out, size_t *n, struct err *err)
{
	char states[META_STATES_CAP], sql[600];

	meta_states(job_states_placed(), states);
	FMT(sql,
	    "SELECT j.id, j.team_id, j.user, j.gpu_type, t.node, j.cpu_milli, j.gpu_count,"
	    " j.memory_bytes, t.gpus, t.launched_ms, j.started_ms, j.max_duration_s, t.node_id"
	    " FROM jobs j JOIN attempts t ON t.id = j.attempt_id"
	    " WHERE j.state IN (%s) ORDER BY j.id, t.node_rank",
	    states);
	return meta_list(m, a, sql, DB_NONE, sizeof(**out), held_row, out, n, err);
}

static void tree_row(struct db_rows *r, void *item)
{
	struct meta_tree *t = item;

	t->job_id = db_get_text(r);
	t->manifest = db_get_text(r);
	t->bytes = db_get_u64(r);
	t->placed = db_get_int(r) != 0;
}

/* job_weights has rows of jobs that are not over only. */
int meta_trees(struct meta *m, struct arena *a, struct meta_tree **out, size_t *n, struct err *err)
{
	char states[META_STATES_CAP], sql[600];

	meta_states(job_states_placed(), states);
	FMT(sql,
	    "SELECT w.job_id, w.manifest,"
	    " coalesce((SELECT max(x.bytes) FROM refs x WHERE x.manifest = w.manifest), 0),"
	    " CASE WHEN j.state IN (%s) THEN 1 ELSE 0 END"
	    " FROM job_weights w JOIN jobs j ON j.id = w.job_id ORDER BY w.job_id",
	    states);
	return meta_list(m, a, sql, DB_NONE, sizeof(**out), tree_row, out, n, err);
}

static int put_job(struct db_tx *tx, const char *states, const struct meta_live_job *j,
                   struct err *err)
{
	char sql[700];

	FMT(sql,
	    "UPDATE jobs SET reason = coalesce(?1, reason), updated_ms = greatest(updated_ms, ?2),"
	    " heartbeat_ms = greatest(heartbeat_ms, ?3),"
	    " stage = CASE WHEN ?4 IS NULL THEN stage ELSE ?4 END,"
	    " progress = CASE WHEN ?4 IS NULL THEN progress ELSE ?5 END,"
	    " progress_done = CASE WHEN ?4 IS NULL THEN progress_done ELSE ?6 END,"
	    " progress_total = CASE WHEN ?4 IS NULL THEN progress_total ELSE ?7 END,"
	    " progress_rate = CASE WHEN ?4 IS NULL THEN progress_rate ELSE ?8 END"
	    " WHERE id = ?9 AND state IN (%s)",
	    states);
	return db_exec(tx, sql,
	               DB_ARGS(db_text(j->reason), db_int(j->updated_ms), db_int(j->heartbeat_ms),
	                       db_text(j->stage), db_text(j->words), db_u64(j->done),
	                       db_u64(j->total), db_real(j->rate), db_text(j->id)),
	               NULL, err);
}

static int live_put_once(struct meta *m, const struct meta_live_job *jobs, size_t n_jobs,
                         const struct meta_live_node *nodes, size_t n_nodes, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	char states[META_STATES_CAP];

	meta_states(meta_active_states(), states);
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	for (size_t i = 0; i < n_jobs; i++) {
		if (put_job(&tx, states, &jobs[i], err) < 0)
			return -1;
	}
	for (size_t i = 0; i < n_nodes; i++) {
		const struct meta_live_node *t = &nodes[i];

		if (db_exec(&tx,
		            "UPDATE attempts SET heartbeat_ms = greatest(heartbeat_ms, ?), idle = ?"
		            " WHERE id = ? AND node_rank = ?",
		            DB_ARGS(db_int(t->heartbeat_ms), db_int(t->idle),
		                    db_text(t->attempt_id), db_int(t->rank)),
		            NULL, err) < 0)
			return -1;
	}
	return db_commit(&tx, err);
}

int meta_live_put(struct meta *m, const struct meta_live_job *jobs, size_t n_jobs,
                  const struct meta_live_node *nodes, size_t n_nodes, struct err *err)
{
	return DB_AGAIN(live_put_once(m, jobs, n_jobs, nodes, n_nodes, err), err);
}
