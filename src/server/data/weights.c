/*
 * weights.c - see weights.h. A manifest object is put behind all its blobs and deleted before them,
 * so that it is there says that they are: nobody asks a blob at a time.
 *
 * A runner has each of its requests signed. What a manifest names never changes, so its digests are
 * kept, sorted, for the next question; the least recently used go when there are too many. The lock
 * guards them; nothing is read under it.
 */
#include "server/data/weights.h"
#include "server/start/objects.h"
#include "store/blobs/blob_objects.h"

#include <sys/queue.h>

#define DIGESTS_MAX ((size_t)2 << 20) /* of all lists that are kept: 64 MiB; one may be larger */

struct names {
	struct digest manifest;
	struct digest *d; /* sorted */
	size_t n;
	TAILQ_ENTRY(names) in;
};

struct weights {
	struct lock lock;
	TAILQ_HEAD(names_list, names) all; /* the last used first */
	size_t n;                          /* digests of all */
};

static void free_names(struct names *x)
{
	free(x->d);
	free(x);
}

void weights_open(struct app *app)
{
	struct weights *w = xcalloc(1, sizeof(*w));

	lock_init(&w->lock, LOCK_WEIGHTS);
	TAILQ_INIT(&w->all);
	app->weights = w;
}

void weights_close(struct app *app)
{
	struct weights *w = app->weights;
	struct names *x;

	if (w == NULL)
		return;
	while ((x = TAILQ_FIRST(&w->all)) != NULL) {
		TAILQ_REMOVE(&w->all, x, in);
		free_names(x);
	}
	lock_done(&w->lock);
	free(w);
	app->weights = NULL;
}

bool weights_in_objects(const struct app *app)
{
	return app->set.objects != NULL;
}

struct tree_from weights_from(const struct app *app)
{
	return (struct tree_from){.blobs = app->blobs,
	                          .objects = weights_in_objects(app) ? app->objects : NULL};
}

/* ---- where they are ------------------------------------------------------------------------ */

int weights_manifest(struct app *app, struct arena *a, const struct digest *name,
                     struct manifest *m, struct err *err)
{
	struct tree_from from = weights_from(app);

	return tree_manifest(&from, a, name, m, err);
}

/* Its object, once nobody is about to remove it. */
int weights_are_kept(struct app *app, const struct digest *name, bool *kept, struct err *err)
{
	char key[BLOB_KEY_CAP];
	struct objstore_info info;

	*kept = false;
	if (!weights_in_objects(app))
		return 0;
	blob_pins_settle(app->blobs, name);
	blob_objects_manifest_key(name, key);
	if (objstore_stat(app->objects, key, &info, err) == 0)
		*kept = true;
	else if (err->code != ERR_NOT_FOUND)
		return -1;
	else
		err_clear(err);
	return 0;
}

/* All of them, and pinned before they are looked for. */
static bool in_folder(struct app *app, struct blob_pins *pins, const struct manifest *m)
{
	bool all = true;

	for (size_t i = 0; i < m->n; i++) {
		if (pins != NULL)
			blob_pins_add(pins, &m->file[i].sha256);
		all = all && blobs_has(app->blobs, &m->file[i].sha256, m->file[i].size);
	}
	return all;
}

int weights_find(struct app *app, struct blob_pins *pins, const char *manifest,
                 struct mirror_progress *total, enum weights_at *at, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct digest name;
	struct manifest m;
	bool kept, folder;

	*at = WEIGHTS_NOWHERE;
	if (manifest == NULL)
		return 0;
	if (digest_parse(str_of(manifest), &name, err) < 0) {
		err_clear(err);
		return 0;
	}
	if (pins != NULL)
		blob_pins_add(pins, &name);
	if (weights_are_kept(app, &name, &kept, err) < 0)
		return -1;
	if (weights_manifest(app, a, &name, &m, err) < 0) {
		if (err_info(err)->retry)
			return -1;
		err_clear(err); /* gone, or damaged: it is fetched again */
		return 0;
	}
	*total = (struct mirror_progress){.bytes_total = m.bytes,
	                                  .bytes_done = m.bytes,
	                                  .files_total = m.n,
	                                  .files_done = m.n};
	folder = in_folder(app, pins, &m);
	if (kept || (folder && !weights_in_objects(app)))
		*at = WEIGHTS_KEPT;
	else if (folder)
		*at = WEIGHTS_FOLDER;
	return 0;
}

/* ---- who may read them --------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

/* With the lock. */
static const struct names *look_up(struct weights *w, const struct digest *manifest)
{
	struct names *x;

	TAILQ_FOREACH(x, &w->all, in)
	{
		if (!digest_same(&x->manifest, manifest))
			continue;
		TAILQ_REMOVE(&w->all, x, in);
		TAILQ_INSERT_HEAD(&w->all, x, in);
		return x;
	}
	return NULL;
}

static bool names_it(const struct names *x, const struct digest *d)
{
	return x->n > 0 && bsearch(d, x->d, x->n, sizeof(*d), by_bytes) != NULL;
}

/* With the lock. */
static void remember(struct weights *w, struct names *x)
{
	struct names *last;

	if (look_up(w, &x->manifest) != NULL) { /* another request was faster */
		free_names(x);
		return;
	}
	TAILQ_INSERT_HEAD(&w->all, x, in);
	w->n += x->n;
	while (w->n > DIGESTS_MAX && (last = TAILQ_LAST(&w->all, names_list)) != x) {
		TAILQ_REMOVE(&w->all, last, in);
		w->n -= last->n;
		free_names(last);
	}
}

static int read_names(struct app *app, const struct digest *manifest, struct names **out,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	struct names *x;

	if (weights_manifest(app, a, manifest, &m, err) < 0)
		return -1;
	x = xcalloc(1, sizeof(*x));
	x->manifest = *manifest;
	x->n = m.n;
	x->d = xcalloc(m.n + 1, sizeof(*x->d));
	for (size_t i = 0; i < m.n; i++)
		x->d[i] = m.file[i].sha256;
	if (m.n > 0)
		qsort(x->d, x->n, sizeof(*x->d), by_bytes);
	*out = x;
	return 0;
}

static int is_named(struct app *app, const struct digest *manifest, const struct digest *blob,
                    bool *yes, struct err *err)
{
	struct weights *w = app->weights;
	const struct names *known;
	struct names *x = NULL;

	lock_take(&w->lock);
	known = look_up(w, manifest);
	*yes = known != NULL && names_it(known, blob);
	lock_give(&w->lock);
	if (known != NULL)
		return 0;
	if (read_names(app, manifest, &x, err) < 0)
		return -1;
	*yes = names_it(x, blob);
	lock_take(&w->lock);
	remember(w, x);
	lock_give(&w->lock);
	return 0;
}

/* Exactly the key of a blob. */
static bool blob_of(const char *key, struct digest *out)
{
	const char *name = strrchr(key, '/');
	char is[BLOB_KEY_CAP];
	struct err no = {0};

	if (name == NULL || digest_parse(str_of(name + 1), out, &no) < 0)
		return false;
	blob_object_key(out, is);
	return strcmp(is, key) == 0;
}

int weights_may_read(struct app *app, const struct resolved *f, const char *key, bool *yes,
                     struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct digest blob, manifest;
	bool is_blob = blob_of(key, &blob);
	char is[BLOB_KEY_CAP];
	const char **names;
	size_t n = 0;

	*yes = false;
	resolved_manifests(a, f, &names, &n);
	for (size_t i = 0; i < n && !*yes; i++) {
		if (digest_parse(str_of(names[i]), &manifest, err) < 0)
			return -1;
		blob_objects_manifest_key(&manifest, is);
		*yes = strcmp(is, key) == 0;
		if (!*yes && is_blob && is_named(app, &manifest, &blob, yes, err) < 0)
			return -1;
	}
	return 0;
}
