/* check.c - everything that a row promises is there. */
#include "server/maintenance/check.h"
#include "base/map.h"
#include "server/data/weights.h"
#include "store/blobs/blob_objects.h"
#include "store/logs/joblog_segment.h"

struct faults {
	struct app *app;
	struct map *whole; /* blobs that were read and are what they should be, by digest */
	uint64_t n, manifests, blobs, checkpoints, objects;
};

static void fault(struct faults *f, const char *fmt, ...) PRINTF(2, 3);

static void fault(struct faults *f, const char *fmt, ...)
{
	va_list ap;

	f->n++;
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)putchar('\n');
}

/* What the folder lacks is no fault when the object store has it. */
static void check_object(struct faults *f, const char *what, const char *key, const char *path,
                         uint64_t size)
{
	struct err err = {0};
	bool has = false;

	if (blob_objects_has(f->app->objects, key, size, &has, &err) < 0)
		fault(f, "%s: %s: %s", what, path, err.msg);
	else if (!has)
		fault(f, "%s: %s: its blob is not in the object store", what, path);
}

/* All that a ref's manifest names. */
static void check_manifest(struct faults *f, const char *what, const char *manifest)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m = {0};
	char key[BLOB_KEY_CAP];
	struct digest name;
	struct err err = {0};

	f->manifests++;
	if (digest_parse(str_of(manifest), &name, &err) < 0 ||
	    weights_manifest(f->app, a, &name, &m, &err) < 0) {
		fault(f, "%s: manifest: %s", what, err.msg);
		return;
	}
	for (size_t i = 0; i < m.n; i++) {
		const char *path = m.file[i].path;
		struct str digest = digest_key(&m.file[i].sha256);

		uint64_t before = f->n;

		if (map_get(f->whole, digest) != NULL)
			continue; /* commits of a repository have most of their files in common */
		f->blobs++;
		err_clear(&err);
		blob_object_key(&m.file[i].sha256, key);
		if (weights_in_objects(f->app))
			check_object(f, what, key, path, m.file[i].size);
		else if (!blobs_has(f->app->blobs, &m.file[i].sha256, m.file[i].size))
			fault(f, "%s: %s: its blob is missing", what, path);
		else if (blobs_verify(f->app->blobs, &m.file[i].sha256, NULL, NULL, &err) < 0)
			fault(f, "%s: %s: %s", what, path, err.msg);
		if (f->n == before)
			(void)map_set(f->whole, digest, f);
	}
}

static void check_mirror(struct faults *f, struct arena *a, const struct model_mirror *x)
{
	const char *what = arena_printf(a, "weights %s (%s)", x->id, x->source);

	if (x->state != MIRROR_READY)
		return;
	if (x->manifest == NULL)
		fault(f, "%s: nothing is kept of them", what);
	else
		check_manifest(f, what, x->manifest);
}

static int check_refs(struct faults *f, struct arena *a, const char *kind, struct err *err)
{
	struct model_ref *ref = NULL;
	size_t n = 0;

	if (meta_refs(f->app->meta, a, NULL, kind, &ref, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		check_manifest(f, arena_printf(a, "repository %s", ref[i].name), ref[i].manifest);
	return 0;
}

static void check_checkpoint(struct faults *f, struct arena *a, const struct model_checkpoint *c)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(a, c->project_id, c->job_id);
	struct ckpt parsed = {0};
	struct err err = {0};

	if (c->state != CKPT_COMPLETE)
		return;
	f->checkpoints++;
	if (c->manifest_key == NULL ||
	    objstore_get(f->app->objects, c->manifest_key, &body, &err) < 0 ||
	    ckpt_parse(&parsed, a, buf_view(&body), &err) < 0) {
		fault(f, "checkpoint %s of job %s, rank %u: manifest: %s", c->name, c->job_id,
		      c->rank, err.msg);
		return;
	}
	for (size_t i = 0; i < parsed.files.n; i++) {
		const struct manifest_file *file = &parsed.files.file[i];
		struct objstore_info info = {0};

		f->objects++;
		err_clear(&err);
		if (objstore_stat(f->app->objects, ckpt_file_key(a, prefix, &parsed, i), &info,
		                  &err) < 0)
			fault(f, "checkpoint %s of job %s: %s: %s", c->name, c->job_id, file->path,
			      err.msg);
		else if (info.size != file->size)
			fault(f, "checkpoint %s of job %s: %s has %llu bytes, %llu are expected",
			      c->name, c->job_id, file->path, (unsigned long long)info.size,
			      (unsigned long long)file->size);
	}
}

/* Those here are a copy; where there is no other, a log has no digest to check it by. */
static void check_log(struct faults *f, const struct model_job *job)
{
	struct err err = {0};
	size_t n = 0;

	if (f->app->set.objects == NULL)
		return;
	if (segment_check(f->app->objects, job->id, &n, &err) < 0)
		fault(f, "log of job %s: %s", job->id, err.msg);
	f->objects += n;
}

int check_all(struct app *app, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_MAP struct map *whole = map_new();
	struct faults f = {.app = app, .whole = whole};
	struct meta_query q = {.ascending = true};
	struct model_mirror *mirror = NULL;
	static const char *const kinds[] = {META_REF_HUB, META_REF_REPO, META_REF_LFS};
	struct model_job *job = NULL;
	size_t n = 0, n_jobs = 0;

	if (meta_check(app->meta, err) < 0 ||
	    meta_mirrors(app->meta, a, NULL, &mirror, &n, err) < 0 ||
	    meta_jobs(app->meta, a, &q, &job, &n_jobs, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		check_mirror(&f, a, &mirror[i]);
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (check_refs(&f, a, kinds[i], err) < 0)
			return -1;
	for (size_t i = 0; i < n_jobs; i++) {
		struct model_checkpoint *c = NULL;
		size_t n_c = 0;

		if (meta_checkpoints(app->meta, a, job[i].id, &c, &n_c, err) < 0)
			return -1;
		for (size_t k = 0; k < n_c; k++)
			check_checkpoint(&f, a, &c[k]);
		check_log(&f, &job[i]);
	}
	(void)printf("checked: %zu jobs, %llu manifests, %llu blobs, %llu checkpoints, %llu"
	             " objects: %llu faults\n",
	             n_jobs, (unsigned long long)f.manifests, (unsigned long long)f.blobs,
	             (unsigned long long)f.checkpoints, (unsigned long long)f.objects,
	             (unsigned long long)f.n);
	if (f.n > 0)
		return err_set(err, ERR_CORRUPT, "%llu faults in %s", (unsigned long long)f.n,
		               app->data);
	return 0;
}
