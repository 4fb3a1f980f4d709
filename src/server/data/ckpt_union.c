/* ckpt_union.c - the parts of a checkpoint, by their rows, and the verdict; see ckpt_union.h. */
#include "server/data/ckpt_union_work.h"
#include "server/control/jobs.h"

#define TRIES 5 /* when nodes store new parts while these are judged */

/* ---- by the rows -------------------------------------------------------------------------------
 */

static bool is_doubt(const struct model_checkpoint *row)
{
	return row->part_state == CKPT_INCOMPLETE &&
	       (row->part_rule == 6 || row->part_rule == 9 || row->part_rule == 10);
}

static void add_row(struct union_work *w, const struct model_checkpoint *row)
{
	struct ckpt_part *p = &w->part[row->rank];

	w->node[row->rank].row = w->any = row;
	p->there = true;
	p->state = row->is_part ? row->part_state : row->state;
	p->row = row->is_part ? row->part_rule : row->rule;
	p->reason = row->is_part ? row->part_reason : row->reason;
	p->doubt = is_doubt(row);
	w->u.n_files += row->files;
}

/* The checkpoints before and after this one. */
static void add_siblings(struct union_work *w)
{
	char own[CKPT_NAME_MAX], other[CKPT_NAME_MAX];
	const char *last = NULL;

	ckpt_lineage(w->name, own);
	for (size_t i = 0; i < w->n_rows; i++) {
		const struct model_checkpoint *r = &w->row[i];
		int c = ckpt_name_cmp(r->name, w->name);

		ckpt_lineage(r->name, other);
		if (c == 0 || strcmp(own, other) != 0)
			continue;
		w->u.newer_begun = w->u.newer_begun || c > 0;
		w->u.newer_complete = w->u.newer_complete || (c > 0 && r->state == CKPT_COMPLETE);
		if (c < 0 && r->state == CKPT_COMPLETE &&
		    (last == NULL || ckpt_name_cmp(r->name, last) > 0))
			last = r->name;
	}
	w->u.sibling = last != NULL;
	for (size_t i = 0; last != NULL && i < w->n_rows; i++)
		if (strcmp(w->row[i].name, last) == 0 && w->row[i].rank < w->u.n_parts)
			w->part[w->row[i].rank].was = true;
}

static int add_ends(struct union_work *w, struct err *err)
{
	struct model_attempt *t = NULL;
	size_t n = 0;

	if (w->job->attempt_id != NULL &&
	    meta_attempt(w->app->meta, w->a, w->job->attempt_id, &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (t[i].node_rank >= w->u.n_parts || t[i].ended_ms == 0)
			continue;
		w->part[t[i].node_rank].end =
			jobs_bad_end(t[i].exit_json) ? CKPT_ENDED_BADLY : CKPT_ENDED_OK;
	}
	return 0;
}

static int gather(struct union_work *w, struct err *err)
{
	size_t n = w->job->node_count;

	w->node = ARENA_ARRAY(w->a, struct union_node, n + 1);
	w->part = ARENA_ARRAY(w->a, struct ckpt_part, n + 1);
	w->u.part = w->part;
	w->u.n_parts = n;
	if (meta_checkpoints(w->app->meta, w->a, w->job->id, &w->row, &w->n_rows, err) < 0)
		return -1;
	for (size_t i = 0; i < w->n_rows; i++)
		if (strcmp(w->row[i].name, w->name) == 0 && w->row[i].rank < n)
			add_row(w, &w->row[i]);
	if (w->any == NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND, "job %s has no checkpoint \"%.200s\"",
		               w->job->id, w->name);
	add_siblings(w);
	return add_ends(w, err);
}

/* Logs and pointers: nobody owes any. */
static bool is_logs(const struct union_work *w)
{
	for (size_t i = 0; i < w->u.n_parts; i++) {
		const struct model_checkpoint *row = w->node[i].row;

		if (row != NULL &&
		    (row->kind == NULL || strcmp(row->kind, ckpt_kind_word(CKPT_LOGS)) != 0))
			return false;
	}
	return true;
}

/* ---- one that was complete before --------------------------------------------------------------
 */

uint32_t union_since(const struct ckpt *c)
{
	return c->since != 0 ? c->since : c->revision;
}

/* Written anew, if only with the same content. */
static bool is_saved_anew(const struct union_node *n, const struct ckpt_whole_part *was)
{
	int64_t ended_ms = n->list.saved.ended_ms;

	return union_since(&n->list) != was->since ||
	       (ended_ms != 0 && was->ended_ms != 0 && ended_ms != was->ended_ms);
}

/* Saved over: by all of them, or it is not one checkpoint but parts of two. What only added files
 * has not been. False: it is as it was, or has more files now. */
static bool is_saved_over(const struct union_work *w, bool *by_all, size_t *waits)
{
	bool any = false;

	*by_all = true;
	for (size_t i = 0; i < w->was.n_parts; i++) {
		const struct ckpt_whole_part *was = &w->was.part[i];
		const struct union_node *n = was->rank < w->u.n_parts ? &w->node[was->rank] : NULL;

		if (n != NULL && n->read && is_saved_anew(n, was)) {
			any = true;
		} else if (*by_all) {
			*by_all = false;
			*waits = was->rank;
		}
	}
	return any;
}

bool union_is_part_as_before(const struct union_work *w, size_t k)
{
	const struct ckpt_whole_part *was = ckpt_whole_part(&w->was, (uint32_t)k);
	struct digest is;

	if (was == NULL || !w->node[k].read)
		return false;
	is = ckpt_digest(&w->node[k].list);
	return digest_same(&was->sha256, &is);
}

/* Its parts are those of before, and the rows know where they are kept. */
static bool is_as_before(const struct union_work *w)
{
	size_t n = 0;

	for (size_t k = 0; k < w->u.n_parts; k++) {
		if (!w->node[k].read)
			continue;
		if (!union_is_part_as_before(w, k) ||
		    !app_same(w->node[k].row->manifest_key,
		              ckpt_whole_part(&w->was, (uint32_t)k)->manifest))
			return false;
		n++;
	}
	return n == w->was.n_parts;
}

/* One of a server that did not keep parts has lost them when it is saved over. */
static bool is_kept(const struct union_work *w)
{
	for (size_t i = 0; i < w->was.n_parts; i++) {
		const struct ckpt_whole_part *p = &w->was.part[i];

		if (strcmp(p->manifest, ckpt_manifest_key(w->a, w->prefix, p->rank, w->name)) == 0)
			return false;
	}
	return true;
}

/* Parts of two saves are no checkpoint, whatever their files look like. */
static void judge_saved_over(struct union_work *w, size_t waits)
{
	w->verdict = (struct ckpt_verdict){.row = 7};
	if (w->part[waits].end == CKPT_RUNNING) {
		w->verdict.state = CKPT_SYNCING;
		FMT(w->verdict.reason, "syncing: being saved over, waiting for node %zu", waits);
	} else {
		w->verdict.state = CKPT_INCOMPLETE;
		FMT(w->verdict.reason,
		    "incomplete: it was being saved over: node %zu ended with the one of before",
		    waits);
	}
}

/* True: it stays as it is. COMPLETE is not taken back: what it was complete with is kept until the
 * new parts of all nodes are complete together. */
static bool keeps(struct union_work *w)
{
	bool complete = w->any->state == CKPT_COMPLETE, by_all = false;
	size_t waits = 0;

	if (!w->has_was)
		return complete && w->verdict.state != CKPT_COMPLETE;
	w->over = is_saved_over(w, &by_all, &waits);
	if (w->over && !by_all && w->part[waits].end != CKPT_ENDED_OK)
		judge_saved_over(w, waits);
	if (w->over && !is_kept(w))
		return false;
	if (complete && w->verdict.state != CKPT_COMPLETE) {
		w->updating = w->verdict.reason;
		return true;
	}
	return complete && !w->over && is_as_before(w);
}

/* ---- the verdict
 * ---------------------------------------------------------------------------------
 */

int ckpt_union_read(struct app *app, struct arena *a, const char *prefix, const char *name,
                    struct ckpt_whole *out, bool *found, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);

	*found = objstore_get(app->objects, ckpt_whole_key(a, prefix, name), &body, err) == 0;
	if (*found)
		return ckpt_whole_parse(out, a, arena_str(a, buf_view(&body)), err);
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

/* Says at the parts that are not those of before what their checkpoint waits for. */
static int put_updating(struct union_work *w, struct err *err)
{
	struct model_checkpoint *rows =
		ARENA_ARRAY(w->a, struct model_checkpoint, w->u.n_parts + 1);
	size_t n = 0;

	for (size_t k = 0; w->updating != NULL && k < w->u.n_parts; k++) {
		if (w->node[k].row == NULL || union_is_part_as_before(w, k))
			continue;
		rows[n] = *w->node[k].row;
		rows[n++].updating = w->updating;
	}
	return n > 0 ? meta_checkpoints_put(w->app->meta, rows, n, err) : 0;
}

static int store(struct union_work *w, struct err *err)
{
	struct model_checkpoint row = {.job_id = w->job->id, .name = w->name};

	if (w->verdict.state == CKPT_COMPLETE) {
		if (union_accept(w, NULL, err) < 0)
			return -1;
		if (!w->gone)
			return 0;
		if (w->has_was && w->any->state == CKPT_COMPLETE) {
			w->kept = true;
			w->updating = w->verdict.reason;
			return put_updating(w, err);
		}
	}
	row.state = w->verdict.state;
	row.rule = w->verdict.row;
	row.reason = w->verdict.reason;
	return meta_checkpoint_judge(w->app->meta, &row, err);
}

/* One that is damaged counts as none: it is written again. */
static int read_was(struct union_work *w, struct err *err)
{
	if (ckpt_union_read(w->app, w->a, w->prefix, w->name, &w->was, &w->has_was, err) == 0)
		return 0;
	if (err->code != ERR_INVALID && err->code != ERR_UNSUPPORTED && err->code != ERR_CORRUPT)
		return -1;
	err_clear(err);
	w->has_was = false;
	w->was = (struct ckpt_whole){0};
	return 0;
}

static int judge(struct union_work *w, struct err *err)
{
	bool logs, complete;

	if (gather(w, err) < 0)
		return -1;
	complete = w->any->state == CKPT_COMPLETE;
	logs = is_logs(w);
	/* at best: with all that other nodes' files can prove */
	w->u.proven = true;
	ckpt_judge_union(&w->u, &w->verdict);
	if (w->verdict.state != CKPT_COMPLETE && !complete)
		return store(w, err);
	w->u.proven = logs;
	if (union_read_parts(w, err) < 0 || (!logs && union_look_at_files(w, err) < 0))
		return -1;
	ckpt_judge_union(&w->u, &w->verdict);
	if (read_was(w, err) < 0)
		return -1;
	w->kept = keeps(w);
	if (w->kept && w->updating == NULL)
		union_drop_was(w); /* a server that died had no time to */
	return w->kept ? put_updating(w, err) : store(w, err);
}

/* *done is false: a part changed meanwhile, and nothing was stored. */
static int judge_once(struct app *app, const struct model_job *job, const char *name,
                      enum ckpt_state *state, bool *news, bool *done, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct union_work w = {.app = app, .a = a, .job = job, .name = name};

	w.prefix = ckpt_prefix(a, job->project_id, job->id);
	if (judge(&w, err) < 0)
		return -1;
	*done = !w.moved;
	*news = !w.kept && w.verdict.state == CKPT_COMPLETE &&
	        (w.over || w.any->state != CKPT_COMPLETE);
	*state = w.kept ? w.any->state : w.verdict.state;
	return 0;
}

int ckpt_union_judge(struct app *app, const struct model_job *job, const char *name,
                     enum ckpt_state *state, bool *news, struct err *err)
{
	bool done = false;

	for (int i = 0; i < TRIES && !done; i++)
		if (judge_once(app, job, name, state, news, &done, err) < 0)
			return err_wrap(err, "checkpoint %s", name);
	return done ? 0
	            : err_set(err, ERR_UNAVAILABLE, "checkpoint %s: its parts change all the time",
	                      name);
}

int ckpt_union_mark(struct app *app, const struct model_job *job, const char *name,
                    const struct ckpt_verdict *verdict, const char *marked_by, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct union_work w = {.app = app, .a = a, .job = job, .name = name, .verdict = *verdict};

	w.prefix = ckpt_prefix(a, job->project_id, job->id);
	if (gather(&w, err) < 0 || union_read_parts(&w, err) < 0 || read_was(&w, err) < 0 ||
	    union_accept(&w, marked_by, err) < 0)
		return -1;
	return !w.moved && !w.gone
	               ? 0
	               : err_set(err, ERR_CHECKPOINT_NOT_STORED,
	                         "checkpoint %s of job %s: not all its files are in the store",
	                         name, job->id);
}
