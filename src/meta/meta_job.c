/* meta_job.c - jobs: added with their first event, stepped by compare-and-set, listed, deleted. */
#include "base/json.h"
#include "meta/meta_impl.h"

#define COLUMNS                                                                                    \
	"j.id, j.name, j.project_id, p.name, j.team_id, t.name, j.state, j.attempt, "              \
	"j.attempt_max,"                                                                           \
	" j.changed_ms, j.priority, j.reason, j.error_message, j.error_id, j.end, "                \
	"j.end_code,"                                                                              \
	" j.attempt_id, j.user, j.recreated_from, j.sync_status, j.created_ms, j.updated_ms,"      \
	" j.started_ms, j.ended_ms, j.node_count, j.cpu_milli, j.gpu_count, j.memory_bytes,"       \
	" j.gpu_type, j.spot, j.cache, j.max_duration_s, j.stage, j.progress, j.progress_done, "   \
	"j.progress_total, "                                                                       \
	"j.progress_rate,"                                                                         \
	" j.heartbeat_ms, j.rowid, j.deployment_id,"                                               \
	" (SELECT d.name FROM deployments d WHERE d.id = j.deployment_id AND d.wanted = 'run'"     \
	" AND d.revision = j.deployment_revision)"
#define FROM " FROM jobs j JOIN projects p ON p.id = j.project_id JOIN teams t ON t.id = j.team_id "
#define JOB "SELECT " COLUMNS ", j.frozen_json, j.spec_json, j.document_json" FROM
#define LIST "SELECT " COLUMNS FROM

static enum job_state state_of(const char *word)
{
	enum job_state s = JOB_FAILED;
	struct err err = {0};

	/* Only job_state_word() ever wrote it. */
	if (job_state_parse(str_of(word), &s, &err) < 0)
		abort(); /* a job's stored state is a state */
	return s;
}

static void core_row(struct db_rows *r, struct job_core *c)
{
	c->state = state_of(db_get_text(r));
	c->attempt = db_get_u32(r);
	c->attempt_max = db_get_u32(r);
	c->changed_ms = db_get_int(r);
}

static void list_row(struct db_rows *r, void *item)
{
	struct model_job *j = item;
	struct err err = {0};
	const char *end;

	j->id = db_get_text(r);
	j->name = db_get_text(r);
	j->project_id = db_get_text(r);
	j->project_name = db_get_text(r);
	j->team_id = db_get_text(r);
	j->team_name = db_get_text(r);
	core_row(r, &j->core);
	j->priority = db_get_int(r);
	j->reason = db_get_text(r);
	j->error_message = db_get_text(r);
	j->error_id = db_get_text(r);
	end = db_get_text(r);
	if (job_end_parse(str_of(end), &j->end, &err) < 0)
		j->end = JOB_END_RUNNER;
	j->end_code = (int)db_get_int(r);
	j->attempt_id = db_get_text(r);
	j->user = db_get_text(r);
	j->recreated_from = db_get_text(r);
	j->sync_status = db_get_text(r);
	j->created_ms = db_get_int(r);
	j->updated_ms = db_get_int(r);
	j->started_ms = db_get_int(r);
	j->ended_ms = db_get_int(r);
	j->node_count = db_get_u32(r);
	j->cpu_milli = db_get_u32(r);
	j->gpu_count = db_get_u32(r);
	j->memory_bytes = db_get_u64(r);
	j->gpu_type = db_get_text(r);
	j->spot = db_get_int(r) != 0;
	meta_cache_flags(db_get_int(r), j);
	j->max_duration_s = db_get_u64(r);
	j->stage = db_get_text(r);
	j->progress = db_get_text(r);
	j->progress_done = db_get_u64(r);
	j->progress_total = db_get_u64(r);
	j->progress_rate = db_get_real(r);
	j->heartbeat_ms = db_get_int(r);
	j->row = db_get_int(r);
	j->deployment_id = db_get_text(r);
	j->kept_by = db_get_text(r);
	j->resolved_json = NULL;
	j->spec_json = NULL;
	j->document_json = NULL;
	j->inputs_missing = false;
	j->place = 0;
	j->start_by_ms = 0;
}

static void job_row(struct db_rows *r, void *item)
{
	struct model_job *j = item;

	list_row(r, j);
	j->resolved_json = db_get_text(r);
	j->spec_json = db_get_text(r);
	j->document_json = db_get_text(r);
}

int meta_job(struct meta *m, struct arena *a, const char *id, struct model_job *out,
             struct err *err)
{
	return meta_one(m, a, JOB "WHERE j.id = ?", DB_ARGS(db_text(id)), job_row, out,
	                ERR_JOB_NOT_FOUND, err);
}

int meta_job_brief(struct meta *m, struct arena *a, const char *id, struct model_job *out,
                   struct err *err)
{
	return meta_one(m, a, LIST "WHERE j.id = ?", DB_ARGS(db_text(id)), list_row, out,
	                ERR_JOB_NOT_FOUND, err);
}

static void spec_row(struct db_rows *r, void *item)
{
	*(const char **)item = db_get_text(r);
}

int meta_job_spec(struct meta *m, struct arena *a, const char *id, const char **spec_json,
                  struct err *err)
{
	return meta_one(m, a, "SELECT spec_json FROM jobs WHERE id = ?", DB_ARGS(db_text(id)),
	                spec_row, spec_json, ERR_JOB_NOT_FOUND, err);
}

/* The WHERE clause of a query. There are only a handful of forms, so that prepared statements are
 * reused. */
struct where {
	struct buf sql;
	struct db_val v[12];
	size_t n;
	char prefix_end[META_PREFIX_CAP]; /* one of the values */
	char says[META_SAYS_MAX + 8];     /* another one */
};

static void ask(struct where *w, const char *sql, struct db_val value)
{
	assert(w->n < COUNT(w->v));
	buf_printf(&w->sql, "%s%s", w->sql.n > 0 ? " AND " : "WHERE ", sql);
	w->v[w->n++] = value;
}

static void ask_text(struct where *w, const char *sql, const char *text)
{
	if (text != NULL)
		ask(w, sql, db_text(text));
}

/* False when nothing can match. */
static bool where_of(const struct meta_query *q, struct where *w)
{
	char states[META_STATES_CAP];

	*w = (struct where){.sql = BUF_INIT(2000)};
	ask_text(w, "j.team_id = ?", q->team_id);
	ask_text(w, "j.project_id = ?", q->project_id);
	ask_text(w, "j.id = ?", q->job_id);
	ask_text(w, "j.user = ?", q->user);
	ask_text(w, "j.name = ?", q->name);
	if (q->prefix != NULL && !meta_prefix_end(q->prefix, w->prefix_end))
		return false;
	if (q->prefix != NULL) {
		ask(w, "j.id >= ?", db_text(q->prefix));
		ask(w, "j.id < ?", db_text(w->prefix_end));
	}
	if (q->says != NULL && strlen(q->says) > META_SAYS_MAX)
		return false;
	if (q->says != NULL) {
		FMT(w->says, "%%\"%s\"%%", q->says);
		ask(w, "j.spec_json LIKE ?", db_text(w->says));
	}
	if (q->has_checkpoint)
		buf_printf(&w->sql,
		           "%s EXISTS (SELECT 1 FROM checkpoints c WHERE c.job_id = j.id"
		           " AND c.state = 'COMPLETE')",
		           w->sql.n > 0 ? " AND" : "WHERE");
	if (q->states != 0) {
		meta_states(q->states, states);
		buf_printf(&w->sql, "%s j.state IN (%s)", w->sql.n > 0 ? " AND" : "WHERE", states);
	}
	return true;
}

static void where_done(struct where *w)
{
	buf_done(&w->sql);
}

/* SQLite knows nothing of how many rows an index finds, and would rather go through all jobs of a
 * team in order than sort the three of a name. So it is told: the index of what names the fewest
 * jobs, and of those that are not over, or are in one state, the one that finds them alone. */
static const char *index_of(struct meta *m, const struct meta_query *q)
{
	bool by_state = q->states != 0 && ((q->states & ~meta_active_states()) == 0 ||
	                                   (q->states & (q->states - 1)) == 0);

	if (q->job_id != NULL || !db_is_sqlite(m->db))
		return "";
	if (q->name != NULL)
		return "INDEXED BY jobs_name ";
	if (q->prefix != NULL)
		return "INDEXED BY sqlite_autoindex_jobs_1 "; /* of the primary key */
	if (q->user != NULL)
		return by_state ? "INDEXED BY jobs_user_state " : "INDEXED BY jobs_user ";
	if (q->project_id != NULL)
		return by_state ? "INDEXED BY jobs_project_state " : "INDEXED BY jobs_project ";
	if (q->team_id != NULL)
		return by_state ? "INDEXED BY jobs_team_state " : "INDEXED BY jobs_team ";
	return "";
}

int meta_jobs(struct meta *m, struct arena *a, const struct meta_query *q, struct model_job **out,
              size_t *n, struct err *err)
{
	struct where w CLEANUP(where_done);
	const char *order = q->ascending ? "ASC" : "DESC";
	/* what each of them finds a row by: others than SQLite have no index of the rowid */
	const char *key = db_is_sqlite(m->db) ? "rowid" : "id";
	char sql[4000];

	*n = 0;
	if (!where_of(q, &w))
		return 0;
	if (q->after_row != 0) {
		ask(&w,
		    q->ascending ? "(j.created_ms, j.rowid) > (?" : "(j.created_ms, j.rowid) < (?",
		    db_int(q->after_ms));
		buf_puts(&w.sql, ", ?)");
		w.v[w.n++] = db_int(q->after_row);
	}
	w.v[w.n++] = db_u64(q->limit > 0 ? q->limit : META_LIST_MAX);
	FMT(sql,
	    LIST "WHERE j.%s IN (SELECT j.%s FROM jobs j %s%s"
	         " ORDER BY j.created_ms %s, j.rowid %s LIMIT ?)"
	         " ORDER BY j.created_ms %s, j.rowid %s",
	    key, key, index_of(m, q), buf_cstr(&w.sql), order, order, order, order);
	return meta_list(m, a, sql, w.v, w.n, sizeof(**out), list_row, out, n, err);
}

/* Whether job_counts knows how many: a name, a prefix or a checkpoint it does not. */
static bool is_counted(const struct meta_query *q)
{
	return q->job_id == NULL && q->name == NULL && q->prefix == NULL && !q->has_checkpoint;
}

int meta_jobs_count(struct meta *m, const struct meta_query *q, uint64_t *n, struct err *err)
{
	struct where w CLEANUP(where_done);
	char sql[4000];
	int64_t count = 0;

	*n = 0;
	if (!where_of(q, &w))
		return 0;
	if (is_counted(q))
		FMT(sql, "SELECT coalesce(sum(j.n), 0) FROM job_counts j %s", buf_cstr(&w.sql));
	else
		FMT(sql, "SELECT count(*) FROM jobs j %s%s", index_of(m, q), buf_cstr(&w.sql));
	if (meta_number(m, sql, w.v, w.n, &count, err) < 0)
		return -1;
	*n = (uint64_t)count;
	return 0;
}

/* In the transaction that makes (from: NULL), moves or deletes (to: NULL) the job: its row is there
 * when this is called. One server writes, so nobody else waits for these rows. */
static int count_job(struct db_tx *tx, const char *id, const char *from, const char *to,
                     struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO job_counts (team_id, project_id, \"user\", state, n)"
	               " SELECT j.team_id, j.project_id, j.user, c.state, c.n FROM jobs j"
	               " CROSS JOIN (SELECT ?2 AS state, -1 AS n UNION ALL SELECT ?3, 1) c"
	               " WHERE j.id = ?1 AND c.state IS NOT NULL"
	               " ON CONFLICT (project_id, team_id, \"user\", state)"
	               " DO UPDATE SET n = job_counts.n + excluded.n",
	               DB_ARGS(db_text(id), db_text(from), db_text(to)), NULL, err);
}

static int event_in(struct db_tx *tx, const char *job_id, const struct model_event *e,
                    struct err *err)
{
	return db_exec(tx,
	               "INSERT INTO events (job_id, ms, kind, from_state, to_state, actor, message)"
	               " VALUES (?, ?, ?, ?, ?, ?, ?)",
	               DB_ARGS(db_text(job_id), db_int(e->ms), db_text(e->kind), db_text(e->from),
	                       db_text(e->to), db_text(e->actor),
	                       db_text(e->message != NULL ? e->message : "")),
	               NULL, err);
}

#define BY_KEY JOB "JOIN idempotency i ON i.job_id = j.id WHERE i.project_id = ? AND i.key = ?"

int meta_job_has(struct meta *m, const char *id, bool *has, struct err *err)
{
	int64_t n = 0;

	if (meta_number(m, "SELECT count(*) FROM jobs WHERE id = ?", DB_ARGS(db_text(id)), &n,
	                err) < 0)
		return -1;
	*has = n > 0;
	return 0;
}

int meta_job_by_key(struct meta *m, struct arena *a, const char *project_id, const char *key,
                    struct model_job *out, struct err *err)
{
	return meta_one(m, a, BY_KEY, DB_ARGS(db_text(project_id), db_text(key)), job_row, out,
	                ERR_JOB_NOT_FOUND, err);
}

static int insert_job(struct db_tx *tx, const struct model_job *j, const char *name,
                      struct err *err)
{
	return db_exec(
		tx,
		"INSERT INTO jobs (id, name, project_id, team_id, state, attempt,"
		" attempt_max, changed_ms, priority, spec_json, document_json, frozen_json,"
		" \"user\", recreated_from, created_ms, updated_ms, node_count, cpu_milli,"
		" gpu_count, memory_bytes, gpu_type, spot, cache, max_duration_s, inputs_missing)"
		" VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
		"?)",
		DB_ARGS(db_text(j->id), db_text(name), db_text(j->project_id), db_text(j->team_id),
	                db_text(job_state_word(j->core.state)), db_int(j->core.attempt_max),
	                db_int(j->created_ms), db_int(j->priority), db_text(j->spec_json),
	                db_text(j->document_json), db_text(j->resolved_json), db_text(j->user),
	                db_text(j->recreated_from), db_int(j->created_ms), db_int(j->created_ms),
	                db_int(j->node_count), db_int(j->cpu_milli), db_int(j->gpu_count),
	                db_u64(j->memory_bytes), db_text(j->gpu_type), db_int(j->spot),
	                db_int(j->cache ? 1 + j->cache_affinity : 0), db_u64(j->max_duration_s),
	                db_int(j->inputs_missing)),
		NULL, err);
}

static int put_weights(struct db_tx *tx, const char *job_id, const char *const *manifest, size_t n,
                       struct err *err)
{
	if (db_exec(tx, "DELETE FROM job_weights WHERE job_id = ?", DB_ARGS(db_text(job_id)), NULL,
	            err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (db_exec(tx,
		            "INSERT INTO job_weights (job_id, manifest) VALUES (?, ?) ON CONFLICT "
		            "DO NOTHING",
		            DB_ARGS(db_text(job_id), db_text(manifest[i])), NULL, err) < 0)
			return -1;
	}
	return 0;
}

static int job_inputs_once(struct meta *m, const char *id, const char *resolved_json,
                           const char *const *manifests, size_t n, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE jobs SET frozen_json = ?, inputs_missing = 0"
	            " WHERE id = ? AND state = 'pending' AND inputs_missing = 1",
	            DB_ARGS(db_text(resolved_json), db_text(id)), &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_CONFLICT, "job %s does not wait for its weights", id);
	if (put_weights(&tx, id, manifests, n, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_job_inputs(struct meta *m, const char *id, const char *resolved_json,
                    const char *const *manifests, size_t n, struct err *err)
{
	return DB_AGAIN(job_inputs_once(m, id, resolved_json, manifests, n, err), err);
}

static int job_resolved_once(struct meta *m, const char *id, const char *attempt_id,
                             const char *resolved_json, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx, "UPDATE jobs SET frozen_json = ? WHERE id = ? AND attempt_id = ?",
	            DB_ARGS(db_text(resolved_json), db_text(id), db_text(attempt_id)), &changed,
	            err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_CONFLICT, "attempt %s of job %s is over", attempt_id, id);
	return db_commit(&tx, err);
}

int meta_job_resolved(struct meta *m, const char *id, const char *attempt_id,
                      const char *resolved_json, struct err *err)
{
	return DB_AGAIN(job_resolved_once(m, id, attempt_id, resolved_json, err), err);
}

static int add_names(struct db_tx *tx, const struct meta_new_job *n, struct err *err)
{
	const struct model_job *j = n->row;

	if (n->idempotency_key != NULL &&
	    db_exec(tx,
	            "INSERT INTO idempotency (project_id, key, job_id, created_ms)"
	            " VALUES (?, ?, ?, ?)",
	            DB_ARGS(db_text(j->project_id), db_text(n->idempotency_key), db_text(j->id),
	                    db_int(j->created_ms)),
	            NULL, err) < 0)
		return -1;
	for (size_t i = 0; i < n->n_code_keys; i++) {
		if (db_exec(tx,
		            "INSERT INTO job_code (job_id, key) VALUES (?, ?) ON CONFLICT DO "
		            "NOTHING",
		            DB_ARGS(db_text(j->id), db_text(n->code_keys[i])), NULL, err) < 0 ||
		    db_exec(tx,
		            "UPDATE uploads SET expires_ms = least(expires_ms, ?) WHERE key = ?",
		            DB_ARGS(db_int(j->created_ms), db_text(n->code_keys[i])), NULL,
		            err) < 0)
			return -1;
	}
	return 0;
}

static int job_add_once(struct meta *m, struct arena *a, const struct meta_new_job *n,
                        struct model_job *out, bool *existing, struct err *err)
{
	const struct model_job *j = n->row;
	struct model_event first = {
		.ms = j->created_ms,
		.kind = "state",
		.to = job_state_word(j->core.state),
		.actor = j->user,
		.message = n->message,
	};
	AUTO_DB_TX struct db_tx tx = {0};
	const char *name = j->name;
	int64_t count = 0;

	assert(j->core.state == JOB_PENDING && j->core.attempt == 0);
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	if (n->idempotency_key != NULL) {
		int r = meta_one_in(&tx, a, BY_KEY,
		                    DB_ARGS(db_text(j->project_id), db_text(n->idempotency_key)),
		                    job_row, out, ERR_JOB_NOT_FOUND, err);

		if (r == 0)
			*existing = true;
		if (r == 0 || err->code != ERR_NOT_FOUND)
			return r;
		err_clear(err);
	}
	if (db_number(&tx,
	              "UPDATE projects SET job_count = job_count + 1, updated_ms = ? WHERE id = ?"
	              " RETURNING job_count",
	              DB_ARGS(db_int(j->created_ms), db_text(j->project_id)), 0, &count, err) < 0)
		return -1;
	if (count == 0)
		return err_missing(err, ERR_PROJECT_NOT_FOUND);
	if (name == NULL)
		name = arena_printf(a, "job-%lld", (long long)count);
	if (insert_job(&tx, j, name, err) < 0 ||
	    count_job(&tx, j->id, NULL, job_state_word(JOB_PENDING), err) < 0 ||
	    add_names(&tx, n, err) < 0 || meta_deployment_join(&tx, n, err) < 0 ||
	    put_weights(&tx, j->id, n->manifests, n->n_manifests, err) < 0 ||
	    event_in(&tx, j->id, &first, err) < 0 ||
	    meta_one_in(&tx, a, JOB "WHERE j.id = ?", DB_ARGS(db_text(j->id)), job_row, out,
	                ERR_JOB_NOT_FOUND, err) < 0)
		return -1;
	*existing = false;
	return db_commit(&tx, err);
}

int meta_job_add(struct meta *m, struct arena *a, const struct meta_new_job *n,
                 struct model_job *out, bool *existing, struct err *err)
{
	return DB_AGAIN(job_add_once(m, a, n, out, existing, err), err);
}

/* The row that a step reads before it decides. */
struct now {
	struct job_core core;
	const char *attempt_id, *project_id;
	int64_t started_ms;
};

static void now_row(struct db_rows *r, void *item)
{
	struct now *n = item;

	core_row(r, &n->core);
	n->attempt_id = db_get_text(r);
	n->project_id = db_get_text(r);
}

static int add_attempts(struct db_tx *tx, const struct meta_step *s, uint32_t number,
                        struct err *err)
{
	for (size_t i = 0; i < s->n_attempts; i++) {
		const struct model_attempt *t = &s->attempts[i];

		if (db_exec(tx,
		            "INSERT INTO attempts (id, job_id, number, node_rank, node, cluster,"
		            " gpus, dir, node_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		            DB_ARGS(db_text(t->id), db_text(s->job_id), db_int(number),
		                    db_int(t->node_rank), db_text(t->node), db_text(t->cluster),
		                    db_bits(t->gpus), db_text(t->dir), db_text(t->node_id)),
		            NULL, err) < 0)
			return -1;
	}
	return 0;
}

/* Everything but the decision: the row, guarded by the state that was read. */
static int store_step(struct db_tx *tx, const struct meta_step *s, enum job_state from,
                      const struct job_core *c, struct err *err)
{
	bool waits = c->state == JOB_PENDING, over = job_state_is_final(c->state);
	bool clear = waits || over; /* progress belongs to the attempt that is over */
	const char *attempt = s->n_attempts > 0 ? s->attempts[0].id : NULL;
	uint64_t changed = 0;

	if (db_exec(tx,
	            "UPDATE jobs SET state = ?1, attempt = ?2, changed_ms = ?3, updated_ms = ?4,"
	            " reason = CASE WHEN ?5 IS NOT NULL OR ?1 <> ?6 THEN ?5 ELSE reason END,"
	            " error_message = coalesce(?7, error_message),"
	            " error_id = CASE WHEN ?7 IS NULL THEN error_id ELSE ?19 END,"
	            " frozen_json = coalesce(?8, frozen_json),"
	            " \"end\" = CASE WHEN ?9 = 'none' THEN \"end\" ELSE ?9 END,"
	            " end_code = CASE WHEN ?9 = 'none' THEN end_code ELSE ?10 END,"
	            " started_ms = CASE WHEN ?17 <> 0 THEN 0 WHEN ?11 = 0 THEN started_ms ELSE ?11 "
	            "END,"
	            " ended_ms = CASE WHEN ?18 = 0 THEN 0 WHEN ?12 = 0 THEN ?4 ELSE ?12 END,"
	            " stop_now = greatest(stop_now, ?13), attempt_id = coalesce(?14, attempt_id),"
	            " stage = CASE WHEN ?15 <> 0 THEN NULL ELSE stage END,"
	            " progress = CASE WHEN ?15 <> 0 THEN NULL ELSE progress END,"
	            " progress_done = CASE WHEN ?15 <> 0 THEN 0 ELSE progress_done END,"
	            " progress_total = CASE WHEN ?15 <> 0 THEN 0 ELSE progress_total END,"
	            " progress_rate = CASE WHEN ?15 <> 0 THEN 0.0 ELSE progress_rate END"
	            " WHERE id = ?16 AND state = ?6",
	            DB_ARGS(db_text(job_state_word(c->state)), db_int(c->attempt),
	                    db_int(c->changed_ms), db_int(s->now_ms), db_text(s->reason),
	                    db_text(job_state_word(from)), db_text(s->error_message),
	                    db_text(s->resolved_json), db_text(job_end_word(s->end)),
	                    db_int(s->end_code), db_int(s->started_ms), db_int(s->ended_ms),
	                    db_int(s->stop_now), db_text(attempt), db_int(clear),
	                    db_text(s->job_id), db_int(waits), db_int(over), db_text(s->error_id)),
	            &changed, err) < 0)
		return -1;
	assert(changed == 1); /* the writer is ours alone since BEGIN IMMEDIATE */
	if (from == c->state)
		return 0;
	return count_job(tx, s->job_id, job_state_word(from), job_state_word(c->state), err);
}

static int job_step_once(struct meta *m, const struct meta_step *s, enum job_state *from,
                         enum job_state *to, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	struct now now = {0};
	struct job_core next;
	struct model_event e;

	assert((s->event == JOB_EV_PLACE) == (s->n_attempts > 0));
	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a,
	                "SELECT state, attempt, attempt_max, changed_ms, attempt_id, project_id"
	                " FROM jobs WHERE id = ?",
	                DB_ARGS(db_text(s->job_id)), now_row, &now, ERR_JOB_NOT_FOUND, err) < 0)
		return -1;
	if (s->attempt_id != NULL &&
	    (now.attempt_id == NULL || strcmp(now.attempt_id, s->attempt_id) != 0))
		return err_set(err, ERR_CONFLICT, "attempt %s is not the current one",
		               s->attempt_id);
	next = now.core;
	if (job_step(&next, s->event, s->now_ms, err) < 0)
		return -1;
	if (store_step(&tx, s, now.core.state, &next, err) < 0)
		return -1;
	if (s->n_attempts > 0 && add_attempts(&tx, s, next.attempt - 1, err) < 0)
		return -1;
	if (s->pin_cluster != NULL &&
	    db_exec(&tx,
	            "UPDATE projects SET pinned_cluster = ? WHERE id = ? AND pinned_cluster IS "
	            "NULL",
	            DB_ARGS(db_text(s->pin_cluster), db_text(now.project_id)), NULL, err) < 0)
		return -1;
	/* A finished job has used its weights until now, and needs nothing any more. */
	if (job_state_is_final(next.state) &&
	    db_exec(&tx,
	            "UPDATE refs SET used_ms = greatest(used_ms, ?) WHERE manifest IN"
	            " (SELECT manifest FROM job_weights WHERE job_id = ?)",
	            DB_ARGS(db_int(s->now_ms), db_text(s->job_id)), NULL, err) < 0)
		return -1;
	if ((s->resolved_json != NULL || job_state_is_final(next.state)) &&
	    put_weights(&tx, s->job_id, s->manifests,
	                job_state_is_final(next.state) ? 0 : s->n_manifests, err) < 0)
		return -1;
	if (meta_deliveries_add(&tx, s->deliveries, s->n_deliveries, err) < 0)
		return -1;
	e = (struct model_event){
		.ms = s->now_ms,
		.kind = s->event == JOB_EV_STOP ? "stop" : "state",
		.from = job_state_word(now.core.state),
		.to = job_state_word(next.state),
		.actor = s->actor,
		.message = s->message,
	};
	if (event_in(&tx, s->job_id, &e, err) < 0 || db_commit(&tx, err) < 0)
		return -1;
	*from = now.core.state;
	*to = next.state;
	return 0;
}

int meta_job_step(struct meta *m, const struct meta_step *s, enum job_state *from,
                  enum job_state *to, struct err *err)
{
	return DB_AGAIN(job_step_once(m, s, from, to, err), err);
}

/* One changed column of a job that waits, with its event. */
static int change_in(struct db_tx *tx, const char *id, const char *set, struct db_val value,
                     struct model_event *e, struct err *err)
{
	uint64_t changed = 0;
	char sql[300];

	FMT(sql, "UPDATE jobs SET updated_ms = ?, %s WHERE id = ? AND state = 'pending'", set);
	if (db_exec(tx, sql, DB_ARGS(db_int(e->ms), value, db_text(id)), &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_JOB_NOT_PENDING,
		               "only the %s of a pending job can be changed", e->kind);
	return event_in(tx, id, e, err);
}

/* compute.availability_model of its specification; the rest stays as it is. */
static int change_model(struct db_tx *tx, const char *id, const char *model, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(DB_VALUE_MAX);
	const char *spec_json = NULL;
	const struct doc *spec = NULL, *compute;
	struct js js;

	if (meta_one_in(tx, a, "SELECT spec_json FROM jobs WHERE id = ?", DB_ARGS(db_text(id)),
	                spec_row, &spec_json, ERR_JOB_NOT_FOUND, err) < 0 ||
	    js_parse(a, str_of(spec_json), &spec, err) < 0)
		return -1;
	compute = doc_get(spec, "compute");
	js_init(&js, &out);
	js_open(&js);
	DOC_EACH (member, spec) {
		if (member == compute)
			continue;
		js_key_str(&js, member->key);
		js_doc(&js, member);
	}
	js_key(&js, "compute");
	js_open(&js);
	DOC_EACH (member, compute) {
		if (str_eq(member->key, "availability_model"))
			continue;
		js_key_str(&js, member->key);
		js_doc(&js, member);
	}
	js_kv(&js, "availability_model", model);
	js_close(&js);
	js_close(&js);
	if (buf_check(&out, "specification", err) < 0)
		return -1;
	return db_exec(tx, "UPDATE jobs SET spec_json = ? WHERE id = ?",
	               DB_ARGS(db_text(buf_cstr(&out)), db_text(id)), NULL, err);
}

static int job_change_once(struct meta *m, const char *id, const struct model_change *c,
                           int64_t now_ms, const char *actor, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	struct model_event e = {.ms = now_ms, .actor = actor};
	char text[60];

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	e.message = text;
	if (c->priority != NULL) {
		e.kind = "priority";
		FMT(text, "priority is %lld now", (long long)*c->priority);
		if (change_in(&tx, id, "priority = ?", db_int(*c->priority), &e, err) < 0)
			return -1;
	}
	if (c->spot != NULL) {
		e.kind = "availability_model";
		FMT(text, "availability_model is %s now", *c->spot ? "spot" : "dedicated");
		/* the specification, too: it is what a job is recreated from */
		if (change_in(&tx, id, "spot = ?", db_int(*c->spot), &e, err) < 0 ||
		    change_model(&tx, id, *c->spot ? "spot" : "dedicated", err) < 0)
			return -1;
	}
	return db_commit(&tx, err);
}

int meta_job_change(struct meta *m, const char *id, const struct model_change *c, int64_t now_ms,
                    const char *actor, struct err *err)
{
	return DB_AGAIN(job_change_once(m, id, c, now_ms, actor, err), err);
}

int meta_job_sync(struct meta *m, const char *id, const char *status, struct err *err)
{
	return meta_exec(
		m,
		"UPDATE jobs SET sync_status = ? WHERE id = ? AND sync_status IS DISTINCT FROM ?",
		DB_ARGS(db_text(status), db_text(id), db_text(status)), ERR_NONE, err);
}

int meta_job_stop_now(struct meta *m, const char *id, bool *now, struct err *err)
{
	int64_t flag = 0;

	if (meta_number(m, "SELECT stop_now FROM jobs WHERE id = ?", DB_ARGS(db_text(id)), &flag,
	                err) < 0)
		return -1;
	*now = flag != 0;
	return 0;
}

int meta_job_trash(struct db_tx *tx, const char *project_id, const char *job_id, struct err *err)
{
	char prefix[200];

	FMT(prefix, "training_projects/%s/jobs/%s/", project_id, job_id);
	if (meta_trash_add(tx, "objects", prefix, err) < 0 ||
	    meta_trash_add(tx, "log", job_id, err) < 0)
		return -1;
	/* Rows of attempts whose folder is still there stay until reconcile has removed it. */
	return db_exec(tx, "DELETE FROM attempts WHERE job_id = ? AND done_ms <> 0",
	               DB_ARGS(db_text(job_id)), NULL, err);
}

static void del_row(struct db_rows *r, void *item)
{
	struct now *n = item;

	core_row(r, &n->core);
	n->project_id = db_get_text(r);
}

static int job_del_once(struct meta *m, const char *id, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_ARENA struct arena *a = arena_new();
	struct now now = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_one_in(&tx, a,
	                "SELECT state, attempt, attempt_max, changed_ms, project_id FROM jobs"
	                " WHERE id = ?",
	                DB_ARGS(db_text(id)), del_row, &now, ERR_JOB_NOT_FOUND, err) < 0)
		return -1;
	if (!job_state_is_final(now.core.state))
		return err_set(err, ERR_CONFLICT, "job %s is active: stop it first", id);
	if (meta_job_trash(&tx, now.project_id, id, err) < 0 ||
	    count_job(&tx, id, job_state_word(now.core.state), NULL, err) < 0 ||
	    db_exec(&tx, "DELETE FROM jobs WHERE id = ?", DB_ARGS(db_text(id)), NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_job_del(struct meta *m, const char *id, struct err *err)
{
	return DB_AGAIN(job_del_once(m, id, err), err);
}

static int event_add_once(struct meta *m, const char *job_id, const struct model_event *e,
                          struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 || event_in(&tx, job_id, e, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_event_add(struct meta *m, const char *job_id, const struct model_event *e, struct err *err)
{
	return DB_AGAIN(event_add_once(m, job_id, e, err), err);
}

int meta_events_count(struct meta *m, const char *job_id, const char *actor, uint64_t *n,
                      struct err *err)
{
	int64_t count = 0;

	if (meta_number(m, "SELECT count(*) FROM events WHERE job_id = ? AND actor = ?",
	                DB_ARGS(db_text(job_id), db_text(actor)), &count, err) < 0)
		return -1;
	*n = (uint64_t)count;
	return 0;
}

static void event_row(struct db_rows *r, void *item)
{
	struct model_event *e = item;

	e->seq = db_get_int(r);
	e->ms = db_get_int(r);
	e->kind = db_get_text(r);
	e->from = db_get_text(r);
	e->to = db_get_text(r);
	e->actor = db_get_text(r);
	e->message = db_get_text(r);
}

int meta_events(struct meta *m, struct arena *a, const char *job_id, int64_t after_seq,
                struct model_event **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT seq, ms, kind, from_state, to_state, actor, message FROM events"
	                 " WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?",
	                 DB_ARGS(db_text(job_id), db_int(after_seq), db_int(META_EVENTS_MAX)),
	                 sizeof(**out), event_row, out, n, err);
}

struct counted {
	enum job_state s;
	uint64_t n;
};

static void count_row(struct db_rows *r, void *item)
{
	struct counted *c = item;

	c->s = state_of(db_get_text(r));
	c->n = db_get_u64(r);
}

int meta_counts(struct meta *m, struct meta_counts *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct counted *c = NULL;
	size_t n = 0;

	if (meta_list(m, a, "SELECT state, sum(n) FROM job_counts GROUP BY state", DB_NONE,
	              sizeof(*c), count_row, &c, &n, err) < 0)
		return -1;
	*out = (struct meta_counts){0};
	for (size_t i = 0; i < n; i++)
		out->by_state[c[i].s] = c[i].n;
	return 0;
}

int meta_idempotency_sweep(struct meta *m, int64_t created_ms, struct err *err)
{
	return meta_exec(m, "DELETE FROM idempotency WHERE created_ms < ?",
	                 DB_ARGS(db_int(created_ms)), ERR_NONE, err);
}
