/*
 * maintenance_objects.c - `stoker cache verify` of weights in an object store: all that ready
 * weights need is there, and what is there is what its name says. Objects are read, a few at once;
 * while the store is away that waits. What differs is removed, with the manifests that name it,
 * unless somebody relies on it just now: the next job that asks puts it there again, from the
 * folder or the source.
 */
#include "server/data/weights.h"
#include "server/maintenance/maintenance.h"
#include "server/start/objects.h"
#include "store/blobs/blob_objects.h"
#include "store/common/crew.h"

#define STREAMS 4 /* objects that are read at once, but from a folder */
#define RELIED "; a fetch relies on it just now: nothing was removed, verify again later"

enum verdict { FINE, DAMAGED, UNREAD, TOLD };

struct maintenance_objects {
	unsigned magic;
#define MAINTENANCE_OBJECTS_MAGIC 0x564d4149U
	struct app *app;
	struct maintenance_task *t;
	struct blob_entry *x; /* as listed: in the order of their digests; ours */
	size_t n, cap;
	_Atomic(enum verdict) *verdict;  /* of each; ours */
	struct objstore_info *seen;      /* which version was read, of the damaged ones; ours */
	atomic_size_t begun, bad, waits; /* waits: readers for the store */
	size_t told;
	atomic_bool over;
	struct err err; /* what ended it, with over */
};

/* ---- what ready weights need --------------------------------------------------------------- */

static int note_object(void *arg, const struct blob_entry *x, struct err *err)
{
	struct maintenance_objects *o =
		FROM_VOID(struct maintenance_objects, arg, MAINTENANCE_OBJECTS_MAGIC);

	if (maintenance_go_on(o->t, err) < 0)
		return -1;
	if (o->n == o->cap) {
		o->cap = MAX(o->cap * 2, (size_t)256);
		o->x = xrealloc(o->x, o->cap * sizeof(*o->x));
	}
	o->x[o->n++] = *x;
	return 0;
}

int maintenance_list_objects(struct app *app, struct maintenance_task *t,
                             struct maintenance_objects **out, struct err *err)
{
	struct maintenance_objects *o;

	*out = NULL;
	if (!weights_in_objects(app))
		return 0;
	o = xcalloc(1, sizeof(*o));
	o->magic = MAINTENANCE_OBJECTS_MAGIC;
	o->app = app;
	o->t = t;
	*out = o;
	while (blob_objects_each(app->objects, BLOBS_BLOB, note_object, o, err) < 0) {
		if (maintenance_wait(t, NULL, err) < 0)
			return -1;
		o->n = 0;
	}
	for (size_t i = 0; i < o->n; i++)
		maintenance_add_total(t, o->x[i].size);
	return 0;
}

void maintenance_objects_free(struct maintenance_objects *o)
{
	if (o == NULL)
		return;
	free(o->x);
	free(o->seen);
	free(o->verdict);
	free(o);
}

static int by_digest(const void *a, const void *b)
{
	const struct blob_entry *x = a, *y = b;

	return memcmp(x->d.b, y->d.b, sizeof(x->d.b));
}

/* Was it listed? One that was put since then is asked for by itself. */
static int has_object(struct maintenance_objects *o, const struct manifest_file *f, bool *has,
                      struct err *err)
{
	const struct blob_entry key = {.d = f->sha256}, *x = NULL;
	char name[BLOB_KEY_CAP];

	if (o->n > 0)
		x = bsearch(&key, o->x, o->n, sizeof(key), by_digest);
	*has = x != NULL && x->size == f->size;
	if (*has)
		return 0;
	blob_object_key(&f->sha256, name);
	return blob_objects_has(o->app->objects, name, f->size, has, err);
}

int maintenance_has_object(struct maintenance_objects *o, const struct manifest_file *f, bool *has,
                           bool *mended, struct err *err)
{
	char key[BLOB_KEY_CAP];

	*mended = false;
	if (has_object(o, f, has, err) < 0)
		return -1;
	if (*has)
		return 0;
	blob_object_key(&f->sha256, key);
	if (blob_objects_mend(o->app->objects, o->app->blobs, key, &f->sha256, NULL, mended, err) <
	    0)
		return -1;
	*has = *mended;
	return 0;
}

/* Without its manifest nobody takes the rest for all of it. The caller has marked it: who relies on
 * it meanwhile waits until its rows say so, too. */
static int drop_marked(struct maintenance_objects *o, struct arena *a, const struct digest *name,
                       const char *why, const char **source, struct err *err)
{
	char key[BLOB_KEY_CAP], hex[HASH_HEX_CAP];

	blob_objects_manifest_key(name, key);
	digest_hex(name, hex);
	if (app_may_remove(o->app, err) < 0 || objstore_del(o->app->objects, key, err) < 0)
		return -1;
	return maintenance_fail_mirrors(o->app, a, hex, why, source, err);
}

/* A file of weights, or their list. why: their manifest is dropped, and the caller has marked it;
 * NULL: it stays. */
static int tell_weights(struct maintenance_objects *o, struct arena *a, const struct digest *name,
                        struct maintenance_item item, const char *why, struct err *err)
{
	const char *source = NULL;
	char hex[HASH_HEX_CAP];
	int r;

	digest_hex(name, hex);
	if (why != NULL)
		r = drop_marked(o, a, name, why, &source, err);
	else
		r = maintenance_fail_mirrors(o->app, a, hex, NULL, &source, err);
	if (r < 0)
		return -1;
	item.kind = "weights";
	item.name = source != NULL ? source : arena_printf(a, "manifest %s", hex);
	maintenance_found(o->t, &item);
	return 0;
}

/* The next job that asks has what is missing put there, from the folder or the source; somebody who
 * relies on the manifest just now is about to. */
static int tell(struct maintenance_objects *o, struct arena *a, const struct digest *name,
                const char *path, const char *words, uint64_t size, struct err *err)
{
	const char *what = arena_printf(a, "%s in the object store", words);
	struct maintenance_item item = {.path = path, .bytes = size};
	int r;

	if (!blob_going_begin(o->app->blobs, name)) {
		item.words = arena_printf(a, "%s%s", what, RELIED);
		return tell_weights(o, a, name, item, NULL, err);
	}
	item.words = arena_printf(a, "%s: the next job that needs it puts it there", what);
	r = tell_weights(o, a, name, item, arena_printf(a, "%s is %s", path, item.words), err);
	blob_going_end(o->app->blobs, name);
	return r;
}

static int check_kept(struct maintenance_objects *o, const struct digest *name, struct err *err)
{
	static const char list[] = "its list of files", missing[] = "missing";
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	bool kept, has;

	if (weights_are_kept(o->app, name, &kept, err) < 0)
		return -1;
	if (!kept)
		return tell(o, a, name, list, missing, 0, err);
	if (weights_manifest(o->app, a, name, &m, err) < 0) {
		if (err->code != ERR_CORRUPT && err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return tell(o, a, name, list, missing, 0, err);
	}
	for (size_t i = 0; i < m.n; i++) {
		if (has_object(o, &m.file[i], &has, err) < 0)
			return -1;
		if (!has)
			return tell(o, a, name, m.file[i].path, missing, m.file[i].size, err);
	}
	return 0;
}

int maintenance_check_kept(struct maintenance_objects *o, const struct model_mirror *x,
                           struct err *err)
{
	struct digest name;

	if (x->state != MIRROR_READY || x->manifest == NULL)
		return 0;
	if (digest_parse(str_of(x->manifest), &name, err) < 0)
		return -1;
	while (check_kept(o, &name, err) < 0)
		if (maintenance_wait(o->t, NULL, err) < 0)
			return -1;
	return 0;
}

/* ---- what differs -------------------------------------------------------------------------- */

struct affected { /* by one blob */
	unsigned magic;
#define AFFECTED_MAGIC 0x56414646U
	struct maintenance_objects *o;
	struct arena *a;
	const struct blob_entry *blob;
	struct naming { /* a manifest that names it */
		struct digest name;
		const char *path; /* that it is there */
		bool own;         /* of a repository, which keeps it */
		bool marked;
	} * by;
	size_t n, cap;
};

/* How it ends, for weights and for repositories. */
struct end {
	const char *words, *why; /* why NULL: no manifest is dropped */
	enum maintenance_loss loss;
};

static int note_naming(struct affected *f, const struct digest *name, const char *path,
                       struct err *err)
{
	char hex[HASH_HEX_CAP];
	struct model_repo repo;
	bool own;

	digest_hex(name, hex);
	if (maintenance_repo_of(f->o->app, f->a, hex, &repo, &own, err) < 0)
		return -1;
	if (f->n == f->cap) {
		size_t cap = MAX(f->cap * 2, (size_t)16);
		struct naming *more = ARENA_ARRAY(f->a, struct naming, cap);

		if (f->n > 0)
			memcpy(more, f->by, f->n * sizeof(*more));
		f->by = more;
		f->cap = cap;
	}
	f->by[f->n++] = (struct naming){.name = *name, .path = arena_cstr(f->a, path), .own = own};
	return 0;
}

static int note_affected(void *arg, const struct blob_entry *x, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct affected *f = FROM_VOID(struct affected, arg, AFFECTED_MAGIC);
	struct manifest m;

	if (maintenance_go_on(f->o->t, err) < 0)
		return -1;
	if (weights_manifest(f->o->app, a, &x->d, &m, err) < 0) {
		if (err->code != ERR_CORRUPT && err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* gone, or damaged itself: that is found by itself */
		return 0;
	}
	for (size_t i = 0; i < m.n; i++) {
		if (!digest_same(&m.file[i].sha256, &f->blob->d))
			continue;
		return note_naming(f, &x->d, m.file[i].path, err);
	}
	return 0;
}

static int tell_affected(struct affected *f, const struct end *end, struct err *err)
{
	AUTO_MAP struct map *told = map_new();
	struct maintenance_item x = {
		.kind = "weights blob", .bytes = f->blob->size, .words = end->words};
	char hex[HASH_HEX_CAP];
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct naming *by = &f->by[i];
		const struct manifest_file file = {
			.path = by->path, .size = f->blob->size, .sha256 = f->blob->d};
		const struct maintenance_item item = {
			.path = by->path, .bytes = f->blob->size, .words = end->words};
		bool is_repo = false;
		const char *why;

		digest_hex(&by->name, hex);
		if (by->own && maintenance_tell_repo(f->o->app, f->o->t, told, hex, &file,
		                                     end->loss, &is_repo, err) < 0)
			return -1;
		if (by->own)
			continue;
		why = end->why != NULL ? arena_printf(f->a, "%s %s", by->path, end->why) : NULL;
		if (tell_weights(f->o, f->a, &by->name, item, why, err) < 0)
			return -1;
		n++;
	}
	if (n + map_count(told) > 0)
		return 0;
	digest_hex(&f->blob->d, hex);
	x.name = hex;
	maintenance_found(f->o->t, &x);
	return 0;
}

static const struct end relied = {"damaged in the object store" RELIED, NULL, LOSS_LEFT};

/* All of them, or none. */
static bool mark(struct affected *f)
{
	bool all = true;

	for (size_t i = 0; i < f->n && all; i++)
		if (!f->by[i].own)
			all = f->by[i].marked = blob_going_begin(f->o->app->blobs, &f->by[i].name);
	return all;
}

static void unmark(struct affected *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->by[i].marked)
			blob_going_end(f->o->app->blobs, &f->by[i].name);
}

/* Somebody may have put it anew since it was read, or taken it away. */
static int is_as_read(struct maintenance_objects *o, const char *key,
                      const struct objstore_info *seen, bool *same, struct err *err)
{
	struct objstore_info now;

	*same = false;
	if (objstore_stat(o->app->objects, key, &now, err) == 0) {
		*same = now.size == seen->size && now.modified_ms == seen->modified_ms &&
		        strcmp(now.etag, seen->etag) == 0;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

/* Asked once more as late as can be: no store removes one version of an object only. */
static int remove_read(struct maintenance_objects *o, const char *key,
                       const struct objstore_info *seen, struct err *err)
{
	bool same;

	if (is_as_read(o, key, seen, &same, err) < 0)
		return -1;
	if (!same)
		log_info("maintenance: %s was put anew: it stays", key);
	return same ? objstore_del(o->app->objects, key, err) : 0;
}

static int remove_damaged(struct affected *f, const struct objstore_info *seen, struct err *err)
{
	static const struct end removed = {
		"damaged in the object store: removed; the next job that "
		"needs it puts it there again",
		"was damaged in the object store", LOSS_REMOVED};
	struct maintenance_objects *o = f->o;
	char key[BLOB_KEY_CAP];
	int r = -1;

	blob_object_key(&f->blob->d, key);
	if (!mark(f))
		r = tell_affected(f, &relied, err);
	else if (tell_affected(f, &removed, err) == 0 && app_may_remove(o->app, err) == 0)
		r = remove_read(o, key, seen, err);
	unmark(f);
	return r;
}

/* The blob is marked before its manifests are looked for, so that no put takes it for whole that
 * begins now. */
static int set_aside(struct affected *f, size_t i, bool unread, struct err *err)
{
	static const struct end cannot = {MAINTENANCE_UNREADABLE, NULL, LOSS_UNREAD};
	struct maintenance_objects *o = f->o;
	bool marked = !unread && blob_going_begin(o->app->blobs, &f->blob->d);
	int r = blob_objects_each(o->app->objects, BLOBS_MANIFEST, note_affected, f, err);

	if (r == 0 && marked)
		r = remove_damaged(f, &o->seen[i], err);
	else if (r == 0)
		r = tell_affected(f, unread ? &cannot : &relied, err);
	if (marked)
		blob_going_end(o->app->blobs, &f->blob->d);
	return r;
}

/* By what the folder has: nobody notices. */
static int mend(struct affected *f, size_t i, bool *mended, struct err *err)
{
	static const struct end again = {MAINTENANCE_MENDED, NULL, LOSS_MENDED};
	struct maintenance_objects *o = f->o;
	char key[BLOB_KEY_CAP];
	bool same;

	*mended = true;
	blob_object_key(&f->blob->d, key);
	if (is_as_read(o, key, &o->seen[i], &same, err) < 0)
		return -1;
	if (!same)
		return 0; /* it is another one by now, which nobody has read */
	if (blob_objects_mend(o->app->objects, o->app->blobs, key, &f->blob->d, &o->over, mended,
	                      err) < 0)
		return -1;
	if (!*mended)
		return 0;
	if (blob_objects_each(o->app->objects, BLOBS_MANIFEST, note_affected, f, err) < 0)
		return -1;
	return tell_affected(f, &again, err);
}

static int deal_with(struct maintenance_objects *o, size_t i, bool unread, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct affected *f = ARENA_NEW(a, struct affected);
	bool mended = false;

	f->magic = AFFECTED_MAGIC;
	f->o = o;
	f->a = a;
	f->blob = &o->x[i];
	if (!unread && mend(f, i, &mended, err) < 0)
		return -1;
	return mended ? 0 : set_aside(f, i, unread, err);
}

/* One that cannot be dealt with, for the store is away, stays for the next time. */
static int settle(struct maintenance_objects *o, struct err *err)
{
	for (size_t i = 0; i < o->n && o->told < atomic_load(&o->bad); i++) {
		enum verdict v = atomic_load(&o->verdict[i]);

		if (v != DAMAGED && v != UNREAD)
			continue;
		if (deal_with(o, i, v == UNREAD, err) < 0)
			return -1;
		atomic_store(&o->verdict[i], TOLD);
		o->told++;
	}
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_one(void *arg, size_t i, const atomic_bool *stop, struct err *err)
{
	struct maintenance_objects *o =
		FROM_VOID(struct maintenance_objects, arg, MAINTENANCE_OBJECTS_MAGIC);
	const struct blob_entry *x = &o->x[i];
	char key[BLOB_KEY_CAP];
	const struct maintenance_read rd = {o->app, o->t, key, x->size, stop};
	enum verdict v = FINE;
	struct objstore_info seen;
	struct digest got;
	uint64_t n = 0;

	blob_object_key(&x->d, key);
	atomic_fetch_add(&o->begun, 1);
	if (maintenance_read_object(&rd, &got, &n, &seen, err) == 0) {
		if (n == x->size && !digest_same(&got, &x->d)) { /* else it was put just now */
			v = DAMAGED;
			o->seen[i] = seen;
		}
	} else if (err->code == ERR_IO) {
		v = UNREAD;
		log_error("maintenance: %s", err->msg);
	} else if (err->code != ERR_NOT_FOUND) { /* collected meanwhile */
		return -1;
	}
	err_clear(err);
	if (v == FINE)
		return 0;
	atomic_store(&o->verdict[i], v);
	atomic_fetch_add(&o->bad, 1);
	return 0;
}

static void tick(void *arg)
{
	struct maintenance_objects *o =
		FROM_VOID(struct maintenance_objects, arg, MAINTENANCE_OBJECTS_MAGIC);
	struct outage outage;
	char why[OBJSTORE_WHY_MAX];
	struct err err = {0};

	objstore_outage(o->app->objects, &outage, why);
	maintenance_doing(o->t, "weights in the object store: file %zu of %zu%s",
	                  MIN(atomic_load(&o->begun), o->n), o->n,
	                  outage.since_ms != 0 ? "; it is away: waiting" : "");
	if (maintenance_is_over(o->t))
		atomic_store(&o->over, true);
	if (atomic_load(&o->over) || settle(o, &err) == 0)
		return;
	if (err_info(&err)->retry)
		return;
	o->err = err;
	atomic_store(&o->over, true);
}

/* One of a repository stays, though nobody can read it. */
static int list_damaged(struct maintenance_objects *o, struct arena *a, const struct blob_entry *x,
                        const char *key, struct err *err)
{
	AUTO_MAP struct map *told = map_new();
	const struct manifest_file list = {.path = "its list of files", .size = x->size};
	const struct maintenance_item item = {
		.path = list.path, .bytes = x->size, .words = MAINTENANCE_MENDED};
	char hex[HASH_HEX_CAP];
	bool mended, is_repo;

	digest_hex(&x->d, hex);
	if (blob_objects_mend(o->app->objects, o->app->blobs, key, &x->d, &o->over, &mended, err) <
	            0 ||
	    maintenance_tell_repo(o->app, o->t, told, hex, &list, mended ? LOSS_MENDED : LOSS_LIST,
	                          &is_repo, err) < 0)
		return -1;
	if (is_repo)
		return 0;
	return mended ? tell_weights(o, a, &x->d, item, NULL, err)
	              : tell(o, a, &x->d, list.path, "damaged", x->size, err);
}

static int read_manifest(void *arg, const struct blob_entry *x, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct maintenance_objects *o =
		FROM_VOID(struct maintenance_objects, arg, MAINTENANCE_OBJECTS_MAGIC);
	char key[BLOB_KEY_CAP];
	const struct maintenance_read rd = {o->app, o->t, key, x->size, NULL};
	char hex[HASH_HEX_CAP];
	struct digest got;
	uint64_t n = 0;

	blob_objects_manifest_key(&x->d, key);
	maintenance_add_total(o->t, x->size);
	if (maintenance_read_object(&rd, &got, &n, NULL, err) < 0) {
		if (err->code != ERR_NOT_FOUND && err->code != ERR_IO)
			return -1;
		digest_hex(&x->d, hex);
		if (err->code == ERR_IO)
			maintenance_found(o->t, &(struct maintenance_item){
							.kind = "weights",
							.name = arena_printf(a, "manifest %s", hex),
							.path = "its list of files",
							.words = MAINTENANCE_UNREADABLE,
						});
		err_clear(err);
		return 0;
	}
	if (n != x->size || digest_same(&got, &x->d))
		return 0;
	return list_damaged(o, a, x, key, err);
}

int maintenance_verify_objects(struct maintenance_objects *o, struct err *err)
{
	const struct crew_job crew = {.n = o->n,
	                              .threads = objects_elsewhere(o->app) ? STREAMS : 1,
	                              .run = read_one,
	                              .tick = tick,
	                              .arg = o,
	                              .cancel = &o->over};

	o->verdict = xcalloc(o->n + 1, sizeof(*o->verdict));
	o->seen = xcalloc(o->n + 1, sizeof(*o->seen));
	maintenance_doing(o->t, "weights in the object store: lists of files");
	while (blob_objects_each(o->app->objects, BLOBS_MANIFEST, read_manifest, o, err) < 0)
		if (maintenance_wait(o->t, NULL, err) < 0)
			return -1;
	if (crew_run(&crew, err) < 0) {
		if (o->err.code != ERR_NONE)
			*err = o->err;
		return -1;
	}
	while (settle(o, err) < 0)
		if (maintenance_wait(o->t, NULL, err) < 0)
			return -1;
	return 0;
}
