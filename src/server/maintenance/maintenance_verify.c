/*
 * maintenance_verify.c - `stoker cache verify`: what is stored is read from its disk and compared
 * with what its name or its manifest says. What differs is set aside before it is told of, so that
 * no job is given it: weights are fetched again by the next job that asks, a checkpoint is passed
 * over as an incomplete one is.
 */
#include "server/maintenance/maintenance.h"
#include "server/data/hub_impl.h"
#include "server/data/weights.h"

#define USERS_MAX 5 /* running jobs that a finding names */

struct blob_size {
	struct digest d;
	uint64_t size;
};

struct verify {
	unsigned magic;
#define VERIFY_MAGIC 0x56564552U
	struct app *app;
	struct maintenance_task *t;
	struct blob_size *blob; /* all there were when it began; ours */
	struct copy {
		struct digest d;
		bool built;
	} * copy; /* trees with files of their own; ours */
	size_t n, cap, n_copies, cap_copies;
	struct maintenance_objects *objects; /* NULL: weights are in the folder */
};

static struct maintenance_item damaged(const char *kind, const char *name, const char *path,
                                       uint64_t bytes, const char *words)
{
	return (struct maintenance_item){
		.kind = kind, .name = name, .path = path, .bytes = bytes, .words = words};
}

/* ---- who is affected ----------------------------------------------------------------------- */

/* Running jobs that have this manifest mounted, in words. */
static const char *users_of(struct verify *v, struct arena *a, const char *hex)
{
	const char **id = NULL, *words = NULL;
	struct err ignored = {0};
	size_t n = 0;

	if (meta_manifest_jobs(v->app->meta, a, hex, USERS_MAX, &id, &n, &ignored) < 0)
		return "a running job";
	for (size_t i = 0; i < n; i++)
		words = i == 0 ? arena_printf(a, "job %s", id[i])
		               : arena_printf(a, "%s, %s", words, id[i]);
	return n > 0 ? words : "a running job";
}

int maintenance_fail_mirrors(struct app *app, struct arena *a, const char *hex, const char *why,
                             const char **source, struct err *err)
{
	struct model_mirror *x = NULL, out;
	size_t n = 0;

	*source = NULL;
	if (meta_mirrors(app->meta, a, NULL, &x, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (!app_same(x[i].manifest, hex))
			continue;
		*source = x[i].source;
		if (x[i].state != MIRROR_READY || why == NULL)
			continue;
		x[i].state = MIRROR_FAILED;
		x[i].error = why;
		x[i].updated_ms = clock_wall_ms();
		if (meta_mirror_put(app->meta, a, &x[i], &out, err) < 0)
			return -1;
	}
	return 0;
}

/* Nobody is given the tree again; who runs with it is told of. */
static int drop_tree(struct verify *v, struct arena *a, const struct digest *manifest,
                     const char **words, struct err *err)
{
	char hex[HASH_HEX_CAP];
	bool held;

	digest_hex(manifest, hex);
	if (node_cache_quarantine(v->app->node, manifest, &held, err) < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		/* made for so long it is copied, and a copy is verified where it is made */
		log_warn("maintenance: %s", err->msg);
		err_clear(err);
	}
	if (held)
		*words = arena_printf(a, "%s; %s is using it", *words, users_of(v, a, hex));
	return 0;
}

struct affected { /* by one blob */
	unsigned magic;
#define AFFECTED_MAGIC 0x56414645U
	struct verify *v;
	struct arena *a;
	const struct digest *blob;
	uint64_t size;
	const char *words; /* what is wrong with it */
	struct map *held;  /* manifests whose tree was in use: what is said of them */
	struct map *repos; /* what was told of: each of their commits has it */
	size_t found;
};

/* The file that this blob is in the manifest; NULL: none. */
static const struct manifest_file *file_of(struct affected *f, const struct digest *name,
                                           struct arena *a, struct err *err)
{
	struct manifest m;

	if (blobs_get_manifest(f->v->app->blobs, a, name, &m, err) < 0) {
		err_clear(err); /* gone, or damaged itself: that is found by itself */
		return NULL;
	}
	for (size_t i = 0; i < m.n; i++)
		if (digest_same(&m.file[i].sha256, f->blob))
			return &m.file[i];
	return NULL;
}

static int drop_one(void *arg, const struct blob_entry *x, struct err *err)
{
	const struct digest *name = &x->d;
	AUTO_ARENA struct arena *a = arena_new();
	struct affected *f = FROM_VOID(struct affected, arg, AFFECTED_MAGIC);
	const char *words = f->words;
	char hex[HASH_HEX_CAP];

	if (file_of(f, name, a, err) == NULL)
		return 0;
	if (drop_tree(f->v, a, name, &words, err) < 0)
		return -1;
	digest_hex(name, hex);
	if (words != f->words)
		(void)map_set(f->held, str_of(hex), arena_cstr(f->a, words));
	return 0;
}

static int tell_one(void *arg, const struct blob_entry *entry, struct err *err)
{
	const struct digest *name = &entry->d;
	AUTO_ARENA struct arena *a = arena_new();
	struct affected *f = FROM_VOID(struct affected, arg, AFFECTED_MAGIC);
	const struct manifest_file *file = file_of(f, name, a, err);
	bool in_objects = weights_in_objects(f->v->app), is_repo;
	const char *source = NULL, *words, *why;
	struct maintenance_item x;
	char hex[HASH_HEX_CAP];

	if (file == NULL)
		return 0;
	digest_hex(name, hex);
	if (maintenance_tell_repo(f->v->app, f->v->t, f->repos, hex, file,
	                          in_objects ? LOSS_IN_FOLDER : LOSS_DAMAGED, &is_repo, err) < 0)
		return -1;
	if (is_repo)
		return 0;
	words = map_get(f->held, str_of(hex));
	why = arena_printf(a, "%s was %s", file->path, f->words);
	if (maintenance_fail_mirrors(f->v->app, a, hex, in_objects ? NULL : why, &source, err) < 0)
		return -1;
	x = damaged("weights", source != NULL ? source : arena_printf(a, "manifest %s", hex),
	            file->path, f->size, words != NULL ? words : f->words);
	maintenance_found(f->v->t, &x);
	f->found++;
	return 0;
}

/* ---- blobs --------------------------------------------------------------------------------- */

/* Trees first, so that killed in between none is left that holds what the store does not; and again
 * behind the blob, for those that were made of it meanwhile. */
static int quarantine_blob(struct verify *v, const struct blob_size *b, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_MAP struct map *held = map_new(), *repos = map_new();
	struct affected f = {
		.magic = AFFECTED_MAGIC,
		.v = v,
		.a = a,
		.blob = &b->d,
		.size = b->size,
		.words = weights_in_objects(v->app)
	                         ? "damaged: quarantined; the object store has it"
	                         : "damaged: quarantined; the next job that needs it fetches it "
	                           "again",
		.held = held,
		.repos = repos,
	};
	struct maintenance_item x;
	char hex[HASH_HEX_CAP];

	if (blobs_each(v->app->blobs, BLOBS_MANIFEST, drop_one, &f, err) < 0)
		return -1;
	app_crash_at("verify:before");
	if (blobs_quarantine(v->app->blobs, &b->d, err) < 0)
		return -1;
	app_crash_at("verify:after");
	if (blobs_each(v->app->blobs, BLOBS_MANIFEST, drop_one, &f, err) < 0 ||
	    blobs_each(v->app->blobs, BLOBS_MANIFEST, tell_one, &f, err) < 0)
		return -1;
	digest_hex(&b->d, hex);
	x = damaged("weights blob", hex, NULL, b->size,
	            "damaged: quarantined; no weights refer to it");
	if (f.found == 0 && map_count(repos) == 0)
		maintenance_found(v->t, &x);
	return 0;
}

static int read_blob(struct verify *v, const struct blob_size *b, struct err *err)
{
	if (blobs_verify(v->app->blobs, &b->d, maintenance_step, v->t, err) == 0)
		return 0;
	if (err->code == ERR_NOT_FOUND) {
		err_clear(err); /* collected meanwhile */
		return 0;
	}
	/* Bytes that cannot be read are as bad as wrong ones. */
	if (err->code != ERR_CORRUPT && err->code != ERR_IO)
		return -1;
	log_error("maintenance: %s", err->msg);
	err_clear(err);
	return quarantine_blob(v, b, err);
}

static int note_blob(void *arg, const struct blob_entry *x, struct err *err UNUSED)
{
	struct verify *v = FROM_VOID(struct verify, arg, VERIFY_MAGIC);

	if (v->n == v->cap) {
		v->cap = MAX(v->cap * 2, (size_t)256);
		v->blob = xrealloc(v->blob, v->cap * sizeof(*v->blob));
	}
	v->blob[v->n++] = (struct blob_size){x->d, x->size};
	maintenance_add_total(v->t, x->size);
	return 0;
}

static int read_blobs(struct verify *v, struct err *err)
{
	for (size_t i = 0; i < v->n; i++) {
		maintenance_doing(v->t, "weights: file %zu of %zu", i + 1, v->n);
		if (maintenance_go_on(v->t, err) < 0 || read_blob(v, &v->blob[i], err) < 0)
			return -1;
	}
	return 0;
}

/* ---- manifests and what they need ---------------------------------------------------------- */

static int quarantine_manifest(struct verify *v, struct arena *a, const struct digest *name,
                               struct err *err)
{
	static const char *const words = "its file list is damaged: quarantined; the next job that "
					 "needs it fetches what is missing";
	const char *source = NULL;
	struct maintenance_item x;
	struct model_repo repo;
	char hex[HASH_HEX_CAP];
	bool is_repo;

	digest_hex(name, hex);
	if (blobs_quarantine_manifest(v->app->blobs, name, err) < 0 ||
	    maintenance_repo_of(v->app, a, hex, &repo, &is_repo, err) < 0)
		return -1;
	if (is_repo)
		return 0; /* its repository is told of */
	if (maintenance_fail_mirrors(v->app, a, hex, weights_in_objects(v->app) ? NULL : words,
	                             &source, err) < 0)
		return -1;
	x = damaged("weights", source != NULL ? source : arena_printf(a, "manifest %s", hex), NULL,
	            0, words);
	maintenance_found(v->t, &x);
	return 0;
}

static int read_manifest(void *arg, const struct blob_entry *x, struct err *err)
{
	const struct digest *name = &x->d;
	AUTO_ARENA struct arena *a = arena_new();
	struct verify *v = FROM_VOID(struct verify, arg, VERIFY_MAGIC);
	struct manifest m;

	if (maintenance_go_on(v->t, err) < 0)
		return -1;
	if (blobs_get_manifest(v->app->blobs, a, name, &m, err) == 0)
		return 0;
	if (err->code == ERR_NOT_FOUND) {
		err_clear(err);
		return 0;
	}
	if (err->code != ERR_CORRUPT && err->code != ERR_IO)
		return -1;
	log_error("maintenance: %s", err->msg);
	err_clear(err);
	return quarantine_manifest(v, a, name, err);
}

/* Ready weights whose files are not all there: set aside by a verification that was killed, or
 * removed by hand. */
static int check_mirror(struct verify *v, const struct model_mirror *x, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *source, *missing = NULL,
			    *words = "missing: the next job that needs it fetches it";
	struct maintenance_item item;
	uint64_t size = 0;
	struct manifest m;
	struct digest name;

	if (x->state != MIRROR_READY || x->manifest == NULL)
		return 0;
	if (digest_parse(str_of(x->manifest), &name, err) < 0)
		return -1;
	if (blobs_get_manifest(v->app->blobs, a, &name, &m, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		missing = "its list of files";
	}
	for (size_t i = 0; missing == NULL && i < m.n; i++) {
		if (blobs_has(v->app->blobs, &m.file[i].sha256, m.file[i].size))
			continue;
		missing = m.file[i].path;
		size = m.file[i].size;
	}
	if (missing == NULL)
		return 0;
	if (drop_tree(v, a, &name, &words, err) < 0 ||
	    maintenance_fail_mirrors(v->app, a, x->manifest,
	                             arena_printf(a, "%s was %s", missing, words), &source,
	                             err) < 0)
		return -1;
	item = damaged("weights", x->source, missing, size, words);
	maintenance_found(v->t, &item);
	return 0;
}

static int check_mirrors(struct verify *v, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_mirror *x = NULL;
	size_t n = 0;

	maintenance_doing(v->t, "weights: lists of files");
	if (blobs_each(v->app->blobs, BLOBS_MANIFEST, read_manifest, v, err) < 0 ||
	    meta_mirrors(v->app->meta, a, NULL, &x, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (maintenance_go_on(v->t, err) < 0 ||
		    (v->objects != NULL ? maintenance_check_kept(v->objects, &x[i], err)
		                        : check_mirror(v, &x[i], err)) < 0)
			return -1;
	return maintenance_check_repos(v->app, v->t, v->objects, err);
}

/* ---- copies on the node -------------------------------------------------------------------- */

static int note_copy(void *arg, const struct node_tree *t, struct err *err UNUSED)
{
	struct verify *v = FROM_VOID(struct verify, arg, VERIFY_MAGIC);

	if (t->copied == 0)
		return 0; /* its files are the blobs */
	if (v->n_copies == v->cap_copies) {
		v->cap_copies = MAX(v->cap_copies * 2, (size_t)16);
		v->copy = xrealloc(v->copy, v->cap_copies * sizeof(*v->copy));
	}
	v->copy[v->n_copies++] = (struct copy){t->manifest, t->built};
	maintenance_add_total(v->t, t->copied);
	return 0;
}

static const char *source_of(struct verify *v, struct arena *a, const char *hex)
{
	struct model_mirror *x = NULL;
	struct err ignored = {0};
	size_t n = 0;

	if (meta_mirrors(v->app->meta, a, NULL, &x, &n, &ignored) < 0)
		n = 0;
	for (size_t i = 0; i < n; i++)
		if (app_same(x[i].manifest, hex))
			return x[i].source;
	return arena_printf(a, "manifest %s", hex);
}

static int read_copy(struct verify *v, const struct copy *c, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *words;
	struct maintenance_item x;
	const struct tree_from from = weights_from(v->app);
	char hex[HASH_HEX_CAP];

	if (node_cache_verify(v->app->node, &from, &c->d, maintenance_step, v->t, err) == 0)
		return 0;
	if (err->code != ERR_CORRUPT && err->code != ERR_IO)
		return -1;
	log_error("maintenance: %s", err->msg);
	words = arena_printf(a, "damaged (%s): the next job that needs it %s", err->msg,
	                     c->built ? "builds it again" : "gets it from the mirror");
	err_clear(err);
	digest_hex(&c->d, hex);
	if (drop_tree(v, a, &c->d, &words, err) < 0)
		return -1;
	if (c->built)
		x = damaged("Python environment", hex, NULL, 0, words);
	else
		x = damaged("node copy", source_of(v, a, hex), NULL, 0, words);
	maintenance_found(v->t, &x);
	return 0;
}

static int read_copies(struct verify *v, struct err *err)
{
	for (size_t i = 0; i < v->n_copies; i++) {
		maintenance_doing(v->t, "weights and environments on the node: %zu of %zu", i + 1,
		                  v->n_copies);
		if (maintenance_go_on(v->t, err) < 0 || read_copy(v, &v->copy[i], err) < 0)
			return -1;
	}
	return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int read_all(struct verify *v, struct err *err)
{
	const struct tree_from from = weights_from(v->app);

	maintenance_doing(v->t, "counting");
	if (blobs_each(v->app->blobs, BLOBS_BLOB, note_blob, v, err) < 0 ||
	    node_cache_each(v->app->node, &from, note_copy, v, err) < 0 ||
	    maintenance_count_checkpoints(v->app, v->t, err) < 0 ||
	    maintenance_list_objects(v->app, v->t, &v->objects, err) < 0)
		return -1;
	if (check_mirrors(v, err) < 0 || read_blobs(v, err) < 0 || read_copies(v, err) < 0 ||
	    (v->objects != NULL && maintenance_verify_objects(v->objects, err) < 0))
		return -1;
	return maintenance_verify_checkpoints(v->app, v->t, err);
}

int maintenance_verify(struct app *app, struct maintenance_task *t, struct err *err)
{
	struct verify v = {.magic = VERIFY_MAGIC, .app = app, .t = t};
	int r = read_all(&v, err);

	free(v.blob);
	free(v.copy);
	maintenance_objects_free(v.objects);
	return r;
}
