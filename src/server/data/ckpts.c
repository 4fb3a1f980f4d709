/* ckpts.c - checkpoints as rows and objects: listed, deleted, and kept in number. */
#include "server/data/ckpts.h"
#include "server/data/ckpt_keep.h"
#include "server/data/ckpt_union.h"
#include "server/api/ctx.h"

#include "base/units.h"

/* A checkpoint is complete when every rank's part of it is. */
static bool is_complete(const struct model_checkpoint *c, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(c[i].name, name) == 0 && c[i].state != CKPT_COMPLETE)
			return false;
	}
	return true;
}

void ckpts_show(struct model_checkpoint *row, const struct ckpt *c, const char *key)
{
	row->manifest_key = key;
	row->kind = ckpt_kind_word(c->kind);
	row->base_model = c->base_model;
	row->lora_r = c->lora_r;
	row->trainer = c->trainer;
	row->created_ms = c->created_ms;
	row->revision = c->revision;
	row->files = c->files.n;
	row->bytes = row->bytes_sent = c->files.bytes;
}

static int list_checkpoints(const struct ask *ask, const char *job_id, bool all,
                            struct model_checkpoint **out, size_t *n, struct err *err)
{
	struct model_job job = {0};
	struct model_checkpoint *rows = NULL;
	size_t n_rows = 0;

	if (ctx_job(ask, job_id, &job, err) < 0 ||
	    meta_checkpoints(ask->app->meta, ask->a, job.id, &rows, &n_rows, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct model_checkpoint, n_rows + 1);
	*n = 0;
	for (size_t i = 0; i < n_rows; i++) {
		/* Uploads in progress are shown while the job is alive. */
		bool coming =
			rows[i].state != CKPT_INCOMPLETE && job_state_is_placed(job.core.state);

		if (all || coming || is_complete(rows, n_rows, rows[i].name))
			(*out)[(*n)++] = rows[i];
	}
	return 0;
}

/* The manifest first: then the checkpoint is gone for everybody; its files after. */
static int delete_part(struct app *app, struct arena *a, const struct model_checkpoint *c,
                       struct err *err)
{
	const char *prefix = ckpt_prefix(a, c->project_id, c->job_id), *manifest;
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	struct ckpt parsed = {0};
	const char **key;

	if (c->is_part && ckpt_keep_drop(app, a, prefix, c->rank, c->name, NULL, err) < 0)
		return -1;
	manifest = c->manifest_key != NULL && !c->is_part
	                   ? c->manifest_key
	                   : ckpt_manifest_key(a, prefix, c->rank, c->name);
	if (objstore_get(app->objects, manifest, &body, err) == 0) {
		if (ckpt_parse(&parsed, a, buf_view(&body), err) < 0 ||
		    objstore_del(app->objects, manifest, err) < 0)
			return -1;
		key = ARENA_ARRAY(a, const char *, parsed.files.n + 1);
		for (size_t i = 0; i < parsed.files.n; i++)
			key[i] = ckpt_file_key(a, prefix, &parsed, i);
		return objstore_del_all(app->objects, key, parsed.files.n, NULL, err);
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	/* Never completed: whatever lies below its name. "." without a manifest names no folder. */
	if (strcmp(c->name, ".") == 0)
		return 0;
	return objstore_del_below(
		app->objects, arena_printf(a, "%s/", ckpt_object_key(a, prefix, c->rank, c->name)),
		NULL, NULL, err);
}

/* All ranks of one checkpoint: objects, then rows. */
static int delete_whole(struct app *app, struct arena *a, const struct model_checkpoint *rows,
                        size_t n, const char *job_id, const char *name, size_t *parts,
                        struct err *err)
{
	const char *whole = NULL;

	*parts = 0;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		if (rows[i].is_part && whole == NULL) {
			whole = ckpt_whole_key(
				a, ckpt_prefix(a, rows[i].project_id, rows[i].job_id), name);
			if (objstore_del(app->objects, whole, err) < 0)
				return -1;
		}
		(*parts)++;
		if (delete_part(app, a, &rows[i], err) < 0)
			return -1;
	}
	return *parts > 0 ? meta_checkpoint_del(app->meta, job_id, name, err) : 0;
}

/* While the job runs, only what its runners have nothing to do with any more: complete on every
 * node, and a folder of its own; "." is whatever lies loose, and grows. */
static int check_settled(const struct model_job *job, const struct model_checkpoint *rows, size_t n,
                         const char *name, struct err *err)
{
	uint32_t parts = 0;

	for (size_t i = 0; i < n; i++)
		parts += strcmp(rows[i].name, name) == 0;
	if (!job_state_is_placed(job->core.state) || parts == 0)
		return 0;
	if (strcmp(name, ".") != 0 && is_complete(rows, n, name) && parts == job->node_count)
		return 0;
	return err_set(err, ERR_CONFLICT,
	               "job %s is still writing checkpoint %s: while a job runs, only checkpoints "
	               "that are complete on every node can be deleted",
	               job->id, name);
}

static bool is_pinned(const struct model_checkpoint *rows, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (rows[i].pinned && strcmp(rows[i].name, name) == 0)
			return true;
	}
	return false;
}

static int delete_named(struct app *app, struct arena *a, const struct model_job *job,
                        const char *name, struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n = 0, parts = 0;

	if (meta_checkpoints(app->meta, a, job->id, &rows, &n, err) < 0 ||
	    check_settled(job, rows, n, name, err) < 0)
		return -1;
	if (is_pinned(rows, n, name))
		return err_set(err, ERR_CHECKPOINT_PINNED,
		               "checkpoint %s of job %s is pinned; unpin it first with `stoker "
		               "checkpoints unpin`",
		               name, job->id);
	if (delete_whole(app, a, rows, n, job->id, name, &parts, err) < 0)
		return -1;
	if (parts == 0)
		return err_set(err, ERR_NOT_FOUND, "job %s has no checkpoint \"%.200s\"", job->id,
		               name);
	return 0;
}

static int pin_named(struct app *app, struct arena *a UNUSED, const struct model_job *job,
                     const char *name, struct err *err)
{
	return meta_checkpoint_pin(app->meta, job->id, name, true, err);
}

static int unpin_named(struct app *app, struct arena *a UNUSED, const struct model_job *job,
                       const char *name, struct err *err)
{
	return meta_checkpoint_pin(app->meta, job->id, name, false, err);
}

/* A user's change to one checkpoint; `done` is the event's verb for it. */
static int change(const struct ask *ask, const char *job_id, const char *name,
                  int (*fn)(struct app *app, struct arena *a, const struct model_job *job,
                            const char *name, struct err *err),
                  const char *done, struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};
	int r;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	lock_take(app_stripe(app->ckpts, job.id));
	r = fn(app, ask->a, &job, name, err);
	lock_give(app_stripe(app->ckpts, job.id));
	if (r == 0)
		app_event(app, job.id, "checkpoint", ask->principal->name, "checkpoint %s %s", name,
		          done);
	return r;
}

static int pin_checkpoint(const struct ask *ask, const char *job_id, const char *name, bool pinned,
                          struct err *err)
{
	return change(ask, job_id, name, pinned ? pin_named : unpin_named,
	              pinned ? "pinned" : "unpinned", err);
}

static int remove_checkpoint(const struct ask *ask, const char *job_id, const char *name,
                             struct err *err)
{
	return change(ask, job_id, name, delete_named, "deleted", err);
}

/* Stores a node's part of a checkpoint of several nodes; the checkpoint's own state stays until all
 * parts are judged together, and so does what it is complete with. */
static void make_part(struct model_checkpoint *c, const struct model_checkpoint *whole)
{
	const struct model_checkpoint told = *c;

	if (whole->state == CKPT_COMPLETE && whole->name != NULL && whole->rank == c->rank)
		*c = *whole;
	c->state = whole->state;
	c->rule = whole->rule;
	c->reason = whole->reason;
	c->marked_by = whole->marked_by;
	c->synced_ms = whole->synced_ms;
	c->is_part = true;
	c->part_state = told.state;
	c->part_rule = told.rule;
	c->part_reason = told.reason;
	c->updating = told.updating;
	c->shown = told.shown;
}

/* A row of the same checkpoint, of this node if there is one. */
static int find_old(struct app *app, struct arena *a, const struct model_checkpoint *c,
                    struct model_checkpoint *old, struct err *err)
{
	struct model_checkpoint *rows = NULL;
	bool own = false;
	size_t n = 0;

	*old = (struct model_checkpoint){.state = CKPT_SYNCING};
	if (meta_checkpoints(app->meta, a, c->job_id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, c->name) != 0 || own)
			continue;
		own = rows[i].rank == c->rank;
		*old = rows[i];
	}
	return 0;
}

/* A mark by a user stays until the runner finds a newer revision complete. */
static bool is_marked(const struct model_checkpoint *old, const struct model_checkpoint *c)
{
	return old->marked_by != NULL && old->state == CKPT_COMPLETE &&
	       (c->state != CKPT_COMPLETE || c->revision <= old->revision);
}

static int put(struct app *app, struct arena *a, const struct model_job *job,
               struct model_checkpoint *c, bool *news, struct err *err)
{
	struct model_checkpoint old;
	bool stored = true;

	*news = false;
	if (find_old(app, a, c, &old, err) < 0)
		return -1;
	if (c->state == CKPT_COMPLETE && ckpts_is_stored(app, a, c, &stored, err) < 0)
		return err_wrap(err, "checkpoint %s", c->name);
	if (!stored) {
		c->state = CKPT_INCOMPLETE;
		c->rule = 2;
		c->reason = "incomplete: files of it were deleted from the store";
	}
	c->synced_ms = c->state == CKPT_COMPLETE ? clock_wall_ms() : 0;
	if (job->node_count <= 1) {
		if (stored && is_marked(&old, c)) {
			c->state = CKPT_COMPLETE;
			return 0;
		}
		*news = c->state == CKPT_COMPLETE;
		return meta_checkpoint_put(app->meta, c, err);
	}
	make_part(c, &old);
	if (meta_checkpoint_put(app->meta, c, err) < 0)
		return -1;
	app_crash_at("union:reported");
	/* being saved over: as long as it is not done, nothing of what is complete changes */
	if (c->state == CKPT_COMPLETE && c->updating != NULL)
		return 0;
	return ckpt_union_judge(app, job, c->name, &c->state, news, err);
}

int ckpts_put(struct app *app, struct arena *a, const struct model_job *job,
              struct model_checkpoint *c, bool *news, struct err *err)
{
	bool complete = c->state == CKPT_COMPLETE, lost;
	int r;

	lock_take(app_stripe(app->ckpts, c->job_id));
	r = put(app, a, job, c, news, err);
	lock_give(app_stripe(app->ckpts, c->job_id));
	lost = complete && (c->is_part ? c->part_state : c->state) != CKPT_COMPLETE;
	if (r == 0 && lost)
		app_event(app, c->job_id, "checkpoint", "server",
		          "checkpoint %s is incomplete: files of it were deleted from the store",
		          c->name);
	*news = *news && r == 0;
	return r;
}

/* The checkpoint waits for a node: to be complete, or to be complete with what is new. */
static bool is_waiting(const struct model_checkpoint *rows, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, name) == 0 && rows[i].is_part &&
		    (rows[i].state == CKPT_SYNCING ||
		     (rows[i].state == CKPT_COMPLETE && rows[i].updating != NULL)))
			return true;
	return false;
}

static int settle_parts(struct app *app, struct arena *a, const struct model_job *job,
                        struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	if (meta_checkpoints(app->meta, a, job->id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		enum ckpt_state state = rows[i].state;
		bool again = false, news = false;

		for (size_t k = 0; k < i && !again; k++)
			again = strcmp(rows[k].name, rows[i].name) == 0;
		if (again || !is_waiting(rows, n, rows[i].name))
			continue;
		if (ckpt_union_judge(app, job, rows[i].name, &state, &news, err) < 0)
			return -1;
		if (news)
			app_event(app, job->id, "checkpoint", "server",
			          "checkpoint %s is complete: all nodes have ended", rows[i].name);
	}
	return 0;
}

int ckpts_settle(struct app *app, const struct model_job *job, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int r;

	if (job->node_count <= 1)
		return 0;
	lock_take(app_stripe(app->ckpts, job->id));
	r = settle_parts(app, a, job, err);
	lock_give(app_stripe(app->ckpts, job->id));
	return r;
}

static int set_damaged(struct app *app, const struct model_checkpoint *c, const char *path,
                       bool *done, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	if (meta_checkpoints(app->meta, a, c->job_id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, c->name) != 0 || rows[i].state != CKPT_COMPLETE)
			continue;
		/* on all nodes: without one part it is none */
		rows[i].state = CKPT_INCOMPLETE;
		rows[i].rule = 2;
		rows[i].reason = arena_printf(
			a, "incomplete: %.200s of node %" PRIu32 " is damaged in the store", path,
			c->rank);
		if (rows[i].rank == c->rank) {
			rows[i].part_state = CKPT_INCOMPLETE;
			*done = true;
		}
		if (meta_checkpoint_put(app->meta, &rows[i], err) < 0)
			return -1;
	}
	return 0;
}

int ckpts_set_damaged(struct app *app, const struct model_checkpoint *c, const char *path,
                      bool *done, struct err *err)
{
	int r;

	*done = false;
	lock_take(app_stripe(app->ckpts, c->job_id));
	r = set_damaged(app, c, path, done, err);
	lock_give(app_stripe(app->ckpts, c->job_id));
	if (r == 0 && *done)
		app_event(app, c->job_id, "checkpoint", "server",
		          "checkpoint %s is damaged (rank %" PRIu32
		          ", %s): it counts as incomplete",
		          c->name, c->rank, path);
	return r;
}

static int keep_last(struct app *app, struct arena *a, const struct model_job *job, uint32_t keep,
                     struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n = 0, parts = 0;
	uint32_t kept = 0;

	if (meta_checkpoints(app->meta, a, job->id, &rows, &n, err) < 0)
		return -1;
	/* Rows come by creation; a checkpoint counts by its newest part. */
	for (size_t i = n; i-- > 0;) {
		bool again = false;

		for (size_t k = i + 1; k < n && !again; k++)
			again = strcmp(rows[k].name, rows[i].name) == 0;
		if (again || !is_complete(rows, n, rows[i].name) ||
		    is_pinned(rows, n, rows[i].name) || kept++ < keep)
			continue;
		if (delete_whole(app, a, rows, n, job->id, rows[i].name, &parts, err) < 0)
			return -1;
		app_event(app, job->id, "checkpoint", "server",
		          "checkpoint %s deleted: keep_last keeps the newest %u", rows[i].name,
		          keep);
	}
	return 0;
}

int ckpts_keep_last(struct app *app, struct arena *a, const struct model_job *job, uint32_t keep,
                    struct err *err)
{
	int r;

	if (keep == 0)
		return 0;
	lock_take(app_stripe(app->ckpts, job->id));
	r = keep_last(app, a, job, keep, err);
	lock_give(app_stripe(app->ckpts, job->id));
	return r;
}

/* The manifest's row is there, and says how it ended. */
static bool is_known(struct arena *a, const struct model_checkpoint *rows, size_t n,
                     const char *prefix, const char *key)
{
	for (size_t i = 0; i < n; i++) {
		enum ckpt_state state = rows[i].is_part ? rows[i].part_state : rows[i].state;

		if (state != CKPT_SYNCING &&
		    strcmp(ckpt_manifest_key(a, prefix, rows[i].rank, rows[i].name), key) == 0)
			return true;
	}
	return false;
}

static int adopt(struct app *app, struct arena *a, const struct model_job *job, const char *key,
                 struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	struct ckpt found = {0};
	struct model_checkpoint c;
	char bytes[UNITS_CAP];
	bool news = false;

	if (objstore_get(app->objects, key, &body, err) < 0 ||
	    ckpt_parse(&found, a, arena_str(a, buf_view(&body)), err) < 0)
		return err_wrap(err, "%s", key);
	c = (struct model_checkpoint){.job_id = job->id,
	                              .project_id = job->project_id,
	                              .name = found.name,
	                              .rank = found.rank,
	                              .state = found.state,
	                              .rule = found.rule,
	                              .reason = found.reason};
	ckpts_show(&c, &found, key);
	if (ckpts_put(app, a, job, &c, &news, err) < 0)
		return -1;
	/* Without its name: only the runner knew which part of it may be a secret. */
	app_event(app, job->id, "checkpoint", "server",
	          "recovered checkpoint uploaded before the runner died (%s)",
	          units_show_bytes(c.bytes, bytes));
	return 0;
}

struct keys {
	unsigned magic;
#define KEYS_MAGIC 0x564b4559U
	struct arena *a;
	const char *key[1000];
	size_t n;
};

static void take_key(void *arg, const char *key, const struct objstore_info *info UNUSED)
{
	struct keys *k = FROM_VOID(struct keys, arg, KEYS_MAGIC);

	if (k->n < COUNT(k->key))
		k->key[k->n++] = arena_cstr(k->a, key);
}

int ckpts_adopt(struct app *app, struct arena *a, const struct model_job *job, uint32_t rank,
                struct err *err)
{
	const char *prefix = ckpt_prefix(a, job->project_id, job->id), *after = NULL;
	const char *folder = ckpt_object_key(a, prefix, rank, ".stoker/");
	struct keys *k = ARENA_NEW(a, struct keys);
	struct model_checkpoint *rows = NULL;
	size_t n = 0, found = 0;

	k->magic = KEYS_MAGIC;
	k->a = a;
	if (meta_checkpoints(app->meta, a, job->id, &rows, &n, err) < 0)
		return -1;
	for (bool more = true; more;) {
		k->n = 0;
		if (objstore_list(app->objects, folder, after, COUNT(k->key), take_key, k, &more,
		                  err) < 0)
			return -1;
		for (size_t i = 0; i < k->n; i++) {
			after = k->key[i];
			/* manifests; in folders of their own are files of revisions */
			if (strchr(after + strlen(folder), '/') != NULL ||
			    is_known(a, rows, n, prefix, after))
				continue;
			if (adopt(app, a, job, after, err) < 0)
				return -1;
			found++;
		}
		more = more && k->n > 0;
	}
	return found > 0 ? meta_job_sync(app->meta, job->id, "COMPLETED", err) : 0;
}

const struct checkpoint_ops checkpoint_ops = {
	.list = list_checkpoints,
	.pin = pin_checkpoint,
	.complete = ckpt_complete,
	.remove = remove_checkpoint,
};
