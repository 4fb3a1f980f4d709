/* ckpt_union_accept.c - the parts of a checkpoint that are complete together, made one; see
 * ckpt_union_work.h. */
#include "base/log.h"
#include "server/data/ckpt_keep.h"
#include "server/data/ckpt_union_work.h"
#include "server/data/ckpts.h"

static int keep_parts(struct union_work *w, struct err *err)
{
	for (size_t k = 0; k < w->u.n_parts && !w->moved && !w->gone; k++) {
		const struct ckpt *c = &w->node[k].list;
		const struct ckpt_whole_part *was = ckpt_whole_part(&w->was, (uint32_t)k);
		enum ckpt_keep got = KEEP_DONE;
		bool have;

		if (!w->node[k].read)
			continue;
		have = w->has_was && union_is_part_as_before(w, k) &&
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

static int put_whole(struct union_work *w, const char *marked_by, struct err *err)
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
			.since = union_since(c),
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
static int put_rows(struct union_work *w, const char *marked_by, struct err *err)
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
		if (w->node[k].read)
			ckpts_show(r, c, ckpt_keep_key(w->a, w->prefix, c));
	}
	return meta_checkpoints_put(w->app->meta, rows, n, err);
}

/* What no manifest of all nodes names any more. It costs room only, and goes with the next one. */
void union_drop_was(struct union_work *w)
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
int union_accept(struct union_work *w, const char *marked_by, struct err *err)
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
	union_drop_was(w);
	return 0;
}
