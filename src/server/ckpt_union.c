/* ckpt_union.c - the parts of a checkpoint, gathered, judged, and made one; see ckpt_union.h. */
#include "server/ckpt_union.h"

#include "base/log.h"
#include "format/set.h"
#include "server/ckpt_keep.h"
#include "server/jobs.h"
#include "server/specs.h"

#define WINDOW ((size_t)4 << 20) /* of an object that is read for its structure */
/* Bounds of one checkpoint, because the job chooses the names: the server reads at most so many
 * lists, of so many bytes in all. Any further list is a plain file, and proves nothing. */
#define LISTS_MAX 64
#define LISTS_BYTES_MAX ((uint64_t)512 << 20)
#define TRIES 5 /* when nodes store new parts while these are judged */

struct node {
	const struct model_checkpoint *row; /* NULL: it has none of it */
	struct ckpt list;                   /* its manifest, ... */
	struct str bytes;                   /* ... as it is stored */
	bool read;
};

struct work {
	struct app *app;
	struct arena *a;
	const struct model_job *job;
	const char *name, *prefix;
	struct model_checkpoint *row; /* of the whole job */
	size_t n_rows;
	const struct model_checkpoint *any; /* a row of this checkpoint */
	struct node *node;                  /* by rank */
	struct ckpt_part *part;
	struct ckpt_union u;
	struct set_result set;
	struct ckpt_verdict verdict;
	struct ckpt_whole was; /* what it was complete with before */
	size_t n_lists;        /* read, and ... */
	uint64_t list_bytes;   /* ... of so many bytes */
	const char *updating;  /* what its next one waits for or lacks; NULL = nothing */
	bool has_was, kept;    /* kept: it stays as it was */
	bool over, moved;      /* over: saved over; moved: a part has changed meanwhile */
	bool gone;             /* the store lacks files of a part */
};

/* ---- by the rows -------------------------------------------------------------------------------
 */

static bool is_doubt(const struct model_checkpoint *row)
{
	return row->part_state == CKPT_INCOMPLETE &&
	       (row->part_rule == 6 || row->part_rule == 9 || row->part_rule == 10);
}

static void add_row(struct work *w, const struct model_checkpoint *row)
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
static void add_siblings(struct work *w)
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

static int add_ends(struct work *w, struct err *err)
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

static int gather(struct work *w, struct err *err)
{
	size_t n = w->job->node_count;

	w->node = ARENA_ARRAY(w->a, struct node, n + 1);
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
static bool is_logs(const struct work *w)
{
	for (size_t i = 0; i < w->u.n_parts; i++) {
		const struct model_checkpoint *row = w->node[i].row;

		if (row != NULL &&
		    (row->kind == NULL || strcmp(row->kind, ckpt_kind_word(CKPT_LOGS)) != 0))
			return false;
	}
	return true;
}

/* ---- by the files ------------------------------------------------------------------------------
 */

/* An object as format_check() reads it: in small pieces, of a window that is fetched at once. */
struct window {
	struct app *app;
	const char *key;
	uint64_t size, at;
	struct buf *bytes;
};

static int take_bytes(void *arg, const void *p, size_t n, struct err *err)
{
	struct buf *b = arg;

	buf_add(b, p, n);
	return buf_check(b, "object", err);
}

static int read_window(void *arg, uint64_t at, void *p, size_t n, struct err *err)
{
	struct window *v = arg;

	if (at < v->at || at + n > v->at + v->bytes->n) {
		buf_clear(v->bytes);
		v->at = at;
		if (objstore_read(v->app->objects, v->key, at, MIN((uint64_t)WINDOW, v->size - at),
		                  take_bytes, v->bytes, NULL, err) < 0)
			return -1;
		if (v->bytes->n < n)
			return err_set(err, ERR_CORRUPT, "%s is shorter than its manifest says",
			               v->key);
	}
	memcpy(p, v->bytes->p + (at - v->at), n);
	return 0;
}

static bool may_read(struct work *w, uint64_t size)
{
	if (w->n_lists >= LISTS_MAX || size > LISTS_BYTES_MAX - w->list_bytes)
		return false;
	w->n_lists++;
	w->list_bytes += size;
	return true;
}

static int read_list(struct work *w, const struct ckpt *c, size_t i, struct format_result *out,
                     struct err *err)
{
	AUTO_BUF struct buf bytes = BUF_INIT(WINDOW);
	struct window v = {.app = w->app,
	                   .key = ckpt_file_key(w->a, w->prefix, c, i),
	                   .size = c->files.file[i].size,
	                   .bytes = &bytes};
	struct format_source src = {.name = ckpt_inner(w->name, c->files.file[i].path),
	                            .size = v.size,
	                            .read = read_window,
	                            .arg = &v};

	return format_check(&src, out, err);
}

/* The node's runner has checked its files; it has also compared its own lists with them. */
static int fill_check(struct work *w, const struct ckpt *c, size_t i, struct format_result *out,
                      struct err *err)
{
	const struct ckpt_file *about = &c->about[i];
	bool told = c->files.n <= CKPT_DETAILS_MAX;

	if (format_is_list(str_of(c->files.file[i].path)) && may_read(w, c->files.file[i].size)) {
		if (read_list(w, c, i, out, err) == 0)
			return 0;
		if (err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
			return -1;
		err_clear(err);
		*out = (struct format_result){.verdict = FORMAT_TORN, .format = ""};
		FMT(out->reason, "is not in the store as its manifest says");
		return 0;
	}
	*out = (struct format_result){
		.verdict = about->whole || (!told && c->state == CKPT_COMPLETE) ? FORMAT_WHOLE
	                                                                        : FORMAT_UNKNOWN,
		.format = about->format != NULL ? about->format : "",
		.tensors = UINT64_MAX,
	};
	return 0;
}

/* One file that is whole says nothing of others in its folder. */
static bool is_proven(const struct work *w, const struct set_query *q)
{
	return w->set.state == SET_PROVEN &&
	       (!w->set.layout->one_file || strcmp(q->name, q->file[0].path) == 0);
}

static void take_problems(struct work *w, const struct set_query *q)
{
	const struct set_result *r = &w->set;

	for (size_t i = 0; i < MIN(r->n_problems, (size_t)SET_SHOWN_MAX); i++) {
		const struct set_problem *p = &r->problem[i];

		if (p->fault != SET_FAULT_MISSING && w->u.torn == NULL) {
			w->u.torn = p->path;
			w->u.torn_why = p->why;
		} else if (p->fault == SET_FAULT_MISSING && w->u.missing == NULL) {
			w->u.missing = p->path;
		}
	}
	w->u.n_missing = w->u.missing != NULL ? r->n_problems : 0;
	w->u.proven = is_proven(w, q);
	w->u.proof = r->proof[0] != '\0' ? r->proof : NULL;
	w->u.last_name = r->last;
	w->u.last_there = r->last_there;
}

/* The file that comes last, where the job names it. */
static void take_marker(struct work *w, const struct set_file *file, size_t n)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err err = {0};

	if (specs_get(w->app, w->job->id, &hold, &err) < 0 || hold.spec->ckpt.marker == NULL)
		return;
	w->u.last_name = arena_cstr(w->a, hold.spec->ckpt.marker);
	w->u.last_there = false;
	for (size_t i = 0; i < n && !w->u.last_there; i++)
		w->u.last_there = ckpt_is_marker(file[i].path, w->u.last_name);
}

/* A model's settings without anything that could be its weights, on any node. */
static bool lacks_weights(const struct set_file *file, size_t n)
{
	bool config = false;

	for (size_t i = 0; i < n; i++) {
		if (format_name(str_of(file[i].path)) == FORMAT_NAME_PLAIN &&
		    !format_is_settings(file[i].check->format))
			return false;
		config = config || format_is_config(str_of(file[i].path));
	}
	return config;
}

static int check_files(struct work *w, struct set_file *file, struct format_result *check,
                       struct err *err)
{
	struct set_query q = {.name = strcmp(w->name, ".") == 0 ? "" : ckpt_base_name(w->name),
	                      .file = file};

	for (size_t k = 0; k < w->u.n_parts; k++) {
		const struct ckpt *c = &w->node[k].list;

		if (!w->node[k].read)
			continue;
		q.world = MAX(q.world, c->world);
		for (size_t i = 0; i < c->files.n; i++) {
			if (fill_check(w, c, i, &check[q.n], err) < 0)
				return -1;
			file[q.n] = (struct set_file){
				.path = ckpt_inner(w->name, c->files.file[i].path),
				.size = c->files.file[i].size,
				.check = &check[q.n],
				.sha256 = &c->files.file[i].sha256,
				.node = (uint32_t)k};
			q.n++;
		}
	}
	set_check(w->a, &q, &w->set);
	take_problems(w, &q);
	if (w->u.missing == NULL && lacks_weights(file, q.n)) {
		w->u.missing = "model.safetensors";
		w->u.n_missing = 1;
	}
	take_marker(w, file, q.n);
	return 0;
}

static int look_at_files(struct work *w, struct err *err)
{
	struct format_result *check;
	struct set_file *file;
	size_t n = 0;
	int r;

	for (size_t k = 0; k < w->u.n_parts; k++)
		n += w->node[k].list.files.n;
	check = ARENA_ARRAY(w->a, struct format_result, n + 1);
	file = ARENA_ARRAY(w->a, struct set_file, n + 1);
	r = check_files(w, file, check, err);
	for (size_t i = 0; i < n; i++)
		format_result_done(&check[i]);
	return r;
}

/* When a part was saved, by the store's clock, which is one for all nodes: by how long before its
 * manifest was stored. One that is gone meanwhile counts as without times. */
static int read_times(struct work *w, size_t k, const char *key, struct err *err)
{
	const struct ckpt_times *t = &w->node[k].list.saved;
	struct ckpt_part *p = &w->part[k];
	struct objstore_info info = {0};
	int64_t shift_ms;

	if (t->ended_ms == 0 || t->written_ms == 0)
		return 0;
	if (objstore_stat(w->app->objects, key, &info, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	if (info.modified_ms == 0)
		return 0;
	shift_ms = info.modified_ms - t->written_ms;
	p->began_ms = t->began_ms + shift_ms;
	p->ended_ms = t->ended_ms + shift_ms;
	p->before_ms = t->before_ms != 0 ? t->before_ms + shift_ms : 0;
	return 0;
}

/* Reads the manifest of each part. A node whose manifest cannot be read must store it again. */
static int read_parts(struct work *w, struct err *err)
{
	w->u.n_files = 0;
	for (size_t k = 0; k < w->u.n_parts; k++) {
		AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
		struct node *n = &w->node[k];
		struct ckpt_part *p = &w->part[k];
		const char *key = ckpt_manifest_key(w->a, w->prefix, (uint32_t)k, w->name);

		if (n->row == NULL)
			continue;
		n->read = objstore_get(w->app->objects, key, &body, err) == 0;
		n->bytes = arena_str(w->a, buf_view(&body));
		n->read = n->read && ckpt_parse(&n->list, w->a, n->bytes, err) == 0;
		if (!n->read && err->code != ERR_NOT_FOUND && err->code != ERR_INVALID &&
		    err->code != ERR_UNSUPPORTED && err->code != ERR_TOO_BIG)
			return -1;
		err_clear(err);
		if (!n->read) {
			n->list = (struct ckpt){0};
			p->state = CKPT_SYNCING;
			p->reason = "syncing: its list of files is not in the store";
			continue;
		}
		p->doubt = n->list.doubt;
		w->u.n_files += n->list.files.n;
		if (read_times(w, k, key, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- one that was complete before --------------------------------------------------------------
 */

static uint32_t since_of(const struct ckpt *c)
{
	return c->since != 0 ? c->since : c->revision;
}

/* Written anew, if only with the same content. */
static bool is_saved_anew(const struct node *n, const struct ckpt_whole_part *was)
{
	int64_t ended_ms = n->list.saved.ended_ms;

	return since_of(&n->list) != was->since ||
	       (ended_ms != 0 && was->ended_ms != 0 && ended_ms != was->ended_ms);
}

/* Saved over: by all of them, or it is not one checkpoint but parts of two. What only added files
 * has not been. False: it is as it was, or has more files now. */
static bool is_saved_over(const struct work *w, bool *by_all, size_t *waits)
{
	bool any = false;

	*by_all = true;
	for (size_t i = 0; i < w->was.n_parts; i++) {
		const struct ckpt_whole_part *was = &w->was.part[i];
		const struct node *n = was->rank < w->u.n_parts ? &w->node[was->rank] : NULL;

		if (n != NULL && n->read && is_saved_anew(n, was)) {
			any = true;
		} else if (*by_all) {
			*by_all = false;
			*waits = was->rank;
		}
	}
	return any;
}

static bool is_part_as_before(const struct work *w, size_t k)
{
	const struct ckpt_whole_part *was = ckpt_whole_part(&w->was, (uint32_t)k);
	struct digest is;

	if (was == NULL || !w->node[k].read)
		return false;
	is = ckpt_digest(&w->node[k].list);
	return digest_same(&was->sha256, &is);
}

/* Its parts are those of before, and the rows know where they are kept. */
static bool is_as_before(const struct work *w)
{
	size_t n = 0;

	for (size_t k = 0; k < w->u.n_parts; k++) {
		if (!w->node[k].read)
			continue;
		if (!is_part_as_before(w, k) ||
		    !app_same(w->node[k].row->manifest_key,
		              ckpt_whole_part(&w->was, (uint32_t)k)->manifest))
			return false;
		n++;
	}
	return n == w->was.n_parts;
}

/* One of a server that did not keep parts has lost them when it is saved over. */
static bool is_kept(const struct work *w)
{
	for (size_t i = 0; i < w->was.n_parts; i++) {
		const struct ckpt_whole_part *p = &w->was.part[i];

		if (strcmp(p->manifest, ckpt_manifest_key(w->a, w->prefix, p->rank, w->name)) == 0)
			return false;
	}
	return true;
}

/* Parts of two saves are no checkpoint, whatever their files look like. */
static void judge_saved_over(struct work *w, size_t waits)
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
static bool keeps(struct work *w)
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

static int keep_parts(struct work *w, struct err *err)
{
	for (size_t k = 0; k < w->u.n_parts && !w->moved && !w->gone; k++) {
		const struct ckpt *c = &w->node[k].list;
		const struct ckpt_whole_part *was = ckpt_whole_part(&w->was, (uint32_t)k);
		enum ckpt_keep got = KEEP_DONE;
		bool have;

		if (!w->node[k].read)
			continue;
		have = w->has_was && is_part_as_before(w, k) &&
		       strcmp(was->manifest, ckpt_keep_key(w->a, w->prefix, c)) == 0;
		if (ckpt_keep(w->app, w->a, w->prefix, c, w->node[k].bytes, have, &got, err) < 0)
			return -1;
		w->moved = got == KEEP_MOVED;
		w->gone = got == KEEP_GONE;
		if (w->gone) {
			w->verdict = (struct ckpt_verdict){.state = CKPT_INCOMPLETE, .row = 2};
			FMT(w->verdict.reason,
			    "incomplete: not all files of node %zu are in the store", k);
		}
	}
	return 0;
}

static int put_whole(struct work *w, const char *marked_by, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	struct ckpt_whole whole = {.name = w->name,
	                           .job_id = w->job->id,
	                           .rule = w->verdict.row,
	                           .reason = w->verdict.reason,
	                           .marked_by = marked_by};

	whole.part = ARENA_ARRAY(w->a, struct ckpt_whole_part, w->u.n_parts + 1);
	for (size_t k = 0; k < w->u.n_parts; k++) {
		const struct ckpt *c = &w->node[k].list;

		if (!w->node[k].read)
			continue;
		whole.created_ms = MAX(whole.created_ms, c->created_ms);
		whole.part[whole.n_parts++] = (struct ckpt_whole_part){
			.rank = (uint32_t)k,
			.manifest = ckpt_keep_key(w->a, w->prefix, c),
			.sha256 = ckpt_digest(c),
			.revision = c->revision,
			.since = since_of(c),
			.ended_ms = c->saved.ended_ms,
			.files = c->files.n,
			.bytes = c->files.bytes,
		};
	}
	ckpt_whole_write(&whole, &body);
	if (buf_check(&body, "manifest of all nodes", err) < 0)
		return -1;
	return objstore_put(w->app->objects, ckpt_whole_key(w->a, w->prefix, w->name),
	                    buf_view(&body), err);
}

/* The rows of all nodes at once: what they were read with is what is kept now. */
static int put_rows(struct work *w, const char *marked_by, struct err *err)
{
	struct model_checkpoint *rows =
		ARENA_ARRAY(w->a, struct model_checkpoint, w->u.n_parts + 1);
	size_t n = 0;

	for (size_t k = 0; k < w->u.n_parts; k++) {
		const struct ckpt *c = &w->node[k].list;
		struct model_checkpoint *r = &rows[n];

		if (w->node[k].row == NULL)
			continue;
		*r = *w->node[k].row;
		r->state = w->verdict.state;
		r->rule = w->verdict.row;
		r->reason = w->verdict.reason;
		r->marked_by = marked_by;
		r->synced_ms = clock_wall_ms();
		r->updating = NULL;
		n++;
		if (!w->node[k].read)
			continue;
		r->manifest_key = ckpt_keep_key(w->a, w->prefix, c);
		r->kind = ckpt_kind_word(c->kind);
		r->base_model = c->base_model;
		r->lora_r = c->lora_r;
		r->trainer = c->trainer;
		r->created_ms = c->created_ms;
		r->revision = c->revision;
		r->files = c->files.n;
		r->bytes = r->bytes_sent = c->files.bytes;
	}
	return meta_checkpoints_put(w->app->meta, rows, n, err);
}

/* What no manifest of all nodes names any more. It costs room only, and goes with the next one. */
static void drop_was(struct work *w)
{
	struct err err = {0};

	for (size_t i = 0; w->has_was && i < w->was.n_parts; i++) {
		uint32_t rank = w->was.part[i].rank;
		bool is = rank < w->u.n_parts && w->node[rank].read;
		struct digest set = is ? ckpt_digest(&w->node[rank].list) : (struct digest){0};

		if (ckpt_keep_drop(w->app, w->a, w->prefix, rank, w->name, is ? &set : NULL, &err) <
		    0) {
			log_warn("checkpoint %s of job %s: %s", w->name, w->job->id, err.msg);
			err_clear(&err);
		}
	}
}

/* The parts are kept, then the manifest of all is stored: whoever sees the rows finds both. */
static int store_complete(struct work *w, const char *marked_by, struct err *err)
{
	if (keep_parts(w, err) < 0)
		return -1;
	if (w->moved || w->gone)
		return 0;
	app_crash_at("union:kept");
	if (put_whole(w, marked_by, err) < 0)
		return -1;
	app_crash_at("union:stored");
	if (put_rows(w, marked_by, err) < 0)
		return -1;
	app_crash_at("union:switched");
	drop_was(w);
	return 0;
}

/* Says at the parts that are not those of before what their checkpoint waits for. */
static int put_updating(struct work *w, struct err *err)
{
	struct model_checkpoint *rows =
		ARENA_ARRAY(w->a, struct model_checkpoint, w->u.n_parts + 1);
	size_t n = 0;

	for (size_t k = 0; w->updating != NULL && k < w->u.n_parts; k++) {
		if (w->node[k].row == NULL || is_part_as_before(w, k))
			continue;
		rows[n] = *w->node[k].row;
		rows[n++].updating = w->updating;
	}
	return n > 0 ? meta_checkpoints_put(w->app->meta, rows, n, err) : 0;
}

static int store(struct work *w, struct err *err)
{
	struct model_checkpoint row = {.job_id = w->job->id, .name = w->name};

	if (w->verdict.state == CKPT_COMPLETE) {
		if (store_complete(w, NULL, err) < 0)
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
static int read_was(struct work *w, struct err *err)
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

static int judge(struct work *w, struct err *err)
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
	if (read_parts(w, err) < 0 || (!logs && look_at_files(w, err) < 0))
		return -1;
	ckpt_judge_union(&w->u, &w->verdict);
	if (read_was(w, err) < 0)
		return -1;
	w->kept = keeps(w);
	if (w->kept && w->updating == NULL)
		drop_was(w); /* a server that died had no time to */
	return w->kept ? put_updating(w, err) : store(w, err);
}

/* *done is false: a part changed meanwhile, and nothing was stored. */
static int judge_once(struct app *app, const struct model_job *job, const char *name,
                      enum ckpt_state *state, bool *news, bool *done, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct work w = {.app = app, .a = a, .job = job, .name = name};

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
	struct work w = {.app = app, .a = a, .job = job, .name = name, .verdict = *verdict};

	w.prefix = ckpt_prefix(a, job->project_id, job->id);
	if (gather(&w, err) < 0 || read_parts(&w, err) < 0 || read_was(&w, err) < 0 ||
	    store_complete(&w, marked_by, err) < 0)
		return -1;
	return !w.moved && !w.gone
	               ? 0
	               : err_set(err, ERR_CHECKPOINT_NOT_STORED,
	                         "checkpoint %s of job %s: not all its files are in the store",
	                         name, job->id);
}
