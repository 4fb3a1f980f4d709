/*
 * maintenance_ckpt.c - checkpoints against their manifests. Only of jobs that have ended: one that
 * runs may write a file again, and its manifest a moment later.
 */
#include "server/data/ckpts.h"
#include "server/maintenance/maintenance.h"

/* Calls fn with every complete part of a checkpoint whose job has ended. */
static int each_part(struct app *app, struct maintenance_task *t,
                     int (*fn)(struct app *app, struct maintenance_task *t,
                               const struct model_checkpoint *c, struct err *err),
                     struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_query q = {0};
	struct model_job *job = NULL;
	size_t n_jobs = 0;

	if (meta_jobs(app->meta, a, &q, &job, &n_jobs, err) < 0)
		return -1;
	for (size_t i = 0; i < n_jobs; i++) {
		AUTO_ARENA struct arena *one = arena_new();
		struct model_checkpoint *c = NULL;
		size_t n = 0;

		if (!job_state_is_final(job[i].core.state))
			continue;
		if (meta_checkpoints(app->meta, one, job[i].id, &c, &n, err) < 0)
			return -1;
		for (size_t k = 0; k < n; k++)
			if (c[k].state == CKPT_COMPLETE && fn(app, t, &c[k], err) < 0)
				return -1;
	}
	return 0;
}

static int count(struct app *app UNUSED, struct maintenance_task *t,
                 const struct model_checkpoint *c, struct err *err UNUSED)
{
	maintenance_add_total(t, c->bytes);
	return 0;
}

int maintenance_count_checkpoints(struct app *app, struct maintenance_task *t, struct err *err)
{
	return each_part(app, t, count, err);
}

struct fault {
	const char *path, *words; /* words NULL: it is whole */
	uint64_t bytes;
	bool unread; /* the disk would not give it: that may be another matter tomorrow */
};

static int check_file(struct app *app, struct maintenance_task *t, const char *key,
                      const struct manifest_file *f, struct fault *out, struct err *err)
{
	const struct maintenance_read rd = {app, t, key, f->size, NULL};
	struct digest got;
	uint64_t n = 0;

	*out = (struct fault){.path = f->path, .bytes = f->size};
	if (maintenance_read_object(&rd, &got, &n, NULL, err) == 0) {
		if (n != f->size)
			out->words = "damaged: its length differs from its manifest";
		else if (!digest_same(&got, &f->sha256))
			out->words = "damaged: its content differs from its manifest";
		return 0;
	}
	if (err->code == ERR_NOT_FOUND) {
		out->words = "missing";
	} else if (err->code == ERR_IO) {
		log_error("maintenance: %s", err->msg);
		out->words = "it cannot be read";
		out->unread = true;
	} else {
		return -1;
	}
	err_clear(err);
	return 0;
}

static int tell(struct app *app, struct maintenance_task *t, struct arena *a,
                const struct model_checkpoint *c, const struct fault *f, struct err *err)
{
	bool there = true;

	if (!f->unread && ckpts_set_damaged(app, c, f->path, &there, err) < 0)
		return -1;
	if (!there)
		return 0; /* deleted meanwhile */
	maintenance_found(t,
	                  &(struct maintenance_item){
				  .kind = "checkpoint",
				  .name = arena_printf(a, "%s/%s", c->job_id, c->name),
				  .path = arena_printf(a, "rank-%" PRIu32 "/%s", c->rank, f->path),
				  .words = f->unread ? f->words
	                                             : arena_printf(a,
	                                                            "%s; the checkpoint counts as "
	                                                            "incomplete now",
	                                                            f->words),
				  .bytes = f->bytes,
			  });
	return 0;
}

/* Its list of files; without one, a fault. */
static int read_list(struct app *app, struct arena *a, const struct model_checkpoint *c,
                     struct buf *body, struct ckpt *out, struct fault *fault, struct err *err)
{
	*fault = (struct fault){.path = "its manifest"};
	if (c->manifest_key != NULL && objstore_get(app->objects, c->manifest_key, body, err) < 0) {
		if (err->code != ERR_NOT_FOUND && err->code != ERR_IO)
			return -1;
		fault->unread = err->code == ERR_IO;
		fault->words = fault->unread ? "it cannot be read" : "missing";
	} else if (c->manifest_key == NULL || ckpt_parse(out, a, buf_view(body), err) < 0) {
		fault->words = "damaged";
	}
	if (err->code != ERR_NONE)
		log_error("maintenance: %s", err->msg);
	err_clear(err);
	return 0;
}

/* The first file that is not whole is the finding: none of it is loaded any more. */
static int check_part(struct app *app, struct maintenance_task *t, const struct model_checkpoint *c,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(a, c->project_id, c->job_id);
	struct ckpt parsed = {0};
	struct fault fault;

	maintenance_doing(t, "checkpoint %s of job %s", c->name, c->job_id);
	if (maintenance_go_on(t, err) < 0 || read_list(app, a, c, &body, &parsed, &fault, err) < 0)
		return -1;
	for (size_t i = 0; fault.words == NULL && i < parsed.files.n; i++) {
		const struct manifest_file *f = &parsed.files.file[i];

		if (check_file(app, t, ckpt_file_key(a, prefix, &parsed, i), f, &fault, err) < 0)
			return -1;
	}
	return fault.words != NULL ? tell(app, t, a, c, &fault, err) : 0;
}

int maintenance_verify_checkpoints(struct app *app, struct maintenance_task *t, struct err *err)
{
	return each_part(app, t, check_part, err);
}
