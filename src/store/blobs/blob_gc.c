/*
 * blob_gc.c - what nobody names any more, in the folder of a blob store or in an object store.
 * In an object store a removal takes a request, so it is marked before and settled behind
 * (blob_pins.h); what was pinned in time stays with all that it names.
 */
#include "store/blobs/blob_impl.h"
#include "store/blobs/blob_git.h"
#include "store/blobs/blob_objects.h"

#include "base/clock.h"
#include "store/common/crew.h"

#include <sys/file.h>

#define REMOVERS 16      /* requests at once; a folder has one */
#define REMOVE_BATCH 100 /* objects of one request: who relies on one of them waits for all */

/* ---- what goes ----------------------------------------------------------------------------- */

struct named { /* a blob that a manifest names */
	struct digest d;
	uint64_t size;
	uint32_t by; /* of the manifests that go */
	bool gone;
};

struct set {
	struct named *x;
	size_t n, cap;
};

struct going { /* a manifest that is not kept */
	struct digest name;
	char *largest; /* the path of its largest file; its own */
	int64_t ms;
	size_t first, end; /* of its blobs in go, until that is sorted */
	uint64_t files, bytes;
	bool gone;
};

struct leaving { /* one that is about to be removed */
	const struct digest *d;
	bool *gone; /* it was there, and not pinned */
};

struct collect {
	unsigned magic;
#define COLLECT_MAGIC 0x53434f4cU
	struct blobs *b;
	const struct blobs_collect *job;
	struct blobs_collected *out;
	int64_t now_ms;
	struct set stay, go;
	struct going *going;
	size_t n_going, cap;
	struct blob_entry loose[REMOVE_BATCH]; /* objects that no manifest names */
	size_t n_loose;
	struct leaving *leaving; /* of go */
	size_t n_leaving;
};

static int by_digest(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int c = memcmp(x->d.b, y->d.b, sizeof(x->d.b));

	return c != 0 ? c : (x->by > y->by) - (x->by < y->by);
}

static int same_digest(const void *a, const void *b)
{
	return memcmp(((const struct named *)a)->d.b, ((const struct named *)b)->d.b,
	              HASH_SHA256_LEN);
}

static void sort(struct set *s)
{
	if (s->n > 0)
		qsort(s->x, s->n, sizeof(*s->x), by_digest);
}

static bool has(const struct set *s, const struct digest *d)
{
	const struct named key = {.d = *d};

	return s->n > 0 && bsearch(&key, s->x, s->n, sizeof(key), same_digest) != NULL;
}

static void add_named(struct set *s, const struct digest *d, uint64_t size, size_t by)
{
	if (s->n == s->cap) {
		s->cap = MAX(s->cap * 2, (size_t)256);
		s->x = xrealloc(s->x, s->cap * sizeof(*s->x));
	}
	s->x[s->n++] = (struct named){.d = *d, .size = size, .by = (uint32_t)by};
}

/* The copy in the folder, else the object's. */
static int read_manifest(const struct collect *c, struct arena *a, const struct digest *name,
                         struct manifest *m, struct err *err)
{
	if (blobs_get_manifest(c->b, a, name, m, err) == 0)
		return 0;
	if (c->job->os == NULL)
		return -1;
	err_clear(err);
	return blob_objects_manifest(c->job->os, a, name, m, err);
}

/* One that cannot be read ends the collection: what it names is not known. One that is gone names
 * nothing any more: another collector was here. */
static int note(struct collect *c, struct set *to, const struct digest *name, size_t by,
                char **largest, struct err *err)
{
	const struct manifest_file *most = NULL;
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;

	if (read_manifest(c, a, name, &m, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	for (size_t i = 0; i < m.n; i++) {
		add_named(to, &m.file[i].sha256, m.file[i].size, by);
		if (most == NULL || m.file[i].size > most->size)
			most = &m.file[i];
	}
	if (largest != NULL)
		*largest = most != NULL ? xstrdup(most->path) : NULL;
	return 0;
}

static void add_root(void *arg, const struct digest *d)
{
	struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);

	add_named(&c->stay, d, 0, 0);
}

/* Before any manifest is read, and with the collection begun: a root of later is pinned. */
static int note_roots(struct collect *c, struct err *err)
{
	const struct blobs_choice *by = c->job->by;

	return by != NULL && by->roots != NULL ? by->roots(by->arg, add_root, c, err) : 0;
}

static int go_on(const struct collect *c, struct err *err)
{
	if (c->job->cancel != NULL && atomic_load(c->job->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	return 0;
}

static bool is_young(const struct collect *c, int64_t ms, int64_t age_s)
{
	return c->now_ms - ms < age_s * 1000;
}

static int choose(void *arg, const struct blob_entry *x, struct err *err)
{
	struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	const struct blobs_choice *by = c->job->by;
	struct going *g;
	bool keep = true;

	if (go_on(c, err) < 0)
		return -1;
	if (by != NULL && !is_young(c, x->ms, c->job->min_age_s) && !blobs_pinned(c->b, &x->d) &&
	    by->keep(by->arg, &x->d, &keep, err) < 0)
		return -1;
	if (keep)
		return note(c, &c->stay, &x->d, 0, NULL, err);
	if (c->n_going == c->cap) {
		c->cap = MAX(c->cap * 2, (size_t)16);
		c->going = xrealloc(c->going, c->cap * sizeof(*c->going));
	}
	g = &c->going[c->n_going++];
	*g = (struct going){.name = x->d, .ms = x->ms, .first = c->go.n, .end = c->go.n};
	if (note(c, &c->go, &x->d, c->n_going - 1, &g->largest, err) < 0)
		return -1;
	g->end = c->go.n;
	return 0;
}

/* ---- removing ------------------------------------------------------------------------------ */

static void path_of(enum blobs_kind kind, const struct digest *d, char path[BLOB_KEY_CAP])
{
	if (kind == BLOBS_MANIFEST)
		blob_manifest_path(d, path);
	else
		blob_path(d, path);
}

/* From a folder, or only seen there. */
static int take_one(const struct collect *c, enum blobs_kind kind, const struct leaving *x,
                    struct err *err)
{
	char path[BLOB_KEY_CAP];
	struct stat st;

	path_of(kind, x->d, path);
	if (!c->job->way->dry_run)
		return blob_take_away(c->b, x->d, path, x->gone, err);
	*x->gone = !blobs_pinned(c->b, x->d) &&
	           (c->job->os != NULL || fstatat(c->b->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0);
	return 0;
}

/* Objects go with one request, those that are not pinned just before it. */
static int take_objects(const struct collect *c, enum blobs_kind kind, const struct leaving *x,
                        size_t n, struct err *err)
{
	const struct blobs_choice *by = c->job->by;
	AUTO_ARENA struct arena *a = arena_new();
	const char **key = ARENA_ARRAY(a, const char *, n + 1);
	char path[BLOB_KEY_CAP];
	size_t n_key = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		*x[i].gone = blob_going_begin(c->b, x[i].d);
		path_of(kind, x[i].d, path);
		if (*x[i].gone)
			key[n_key++] = arena_cstr(a, path);
	}
	if (n_key > 0 && by != NULL && by->may != NULL)
		r = by->may(by->arg, err);
	if (r == 0)
		r = objstore_del_all(c->job->os, key, n_key, NULL, err);
	for (size_t i = 0; i < n; i++)
		if (*x[i].gone)
			blob_going_end(c->b, x[i].d);
	return r;
}

static int take_away(const struct collect *c, enum blobs_kind kind, const struct leaving *x,
                     size_t n, struct err *err)
{
	if (c->job->os != NULL && !c->job->way->dry_run)
		return take_objects(c, kind, x, n, err);
	for (size_t i = 0; i < n; i++)
		if (take_one(c, kind, &x[i], err) < 0)
			return -1;
	return 0;
}

/* So many go together: in a folder each by itself. */
static size_t at_once(const struct collect *c, size_t left)
{
	return MIN(left, c->job->os != NULL ? (size_t)REMOVE_BATCH : (size_t)1);
}

static int remove_some(struct collect *c, struct going *g, size_t n, struct err *err)
{
	const struct blobs_choice *by = c->job->by;
	struct leaving x[REMOVE_BATCH];

	assert(n <= COUNT(x));
	for (size_t i = 0; i < n; i++) {
		x[i] = (struct leaving){&g[i].name, &g[i].gone};
		if (!c->job->way->dry_run && by->drop != NULL &&
		    by->drop(by->arg, &g[i].name, err) < 0)
			return -1;
	}
	return take_away(c, BLOBS_MANIFEST, x, n, err);
}

/* Before their blobs. One that was pinned meanwhile stays, and so do the blobs that it names. */
static int remove_manifests(struct collect *c, struct err *err)
{
	for (size_t i = 0, n; i < c->n_going; i += n) {
		n = at_once(c, c->n_going - i);
		if (go_on(c, err) < 0 || remove_some(c, &c->going[i], n, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < c->n_going; i++) {
		const struct going *g = &c->going[i];

		for (size_t k = g->first; !g->gone && k < g->end; k++)
			add_named(&c->stay, &c->go.x[k].d, c->go.x[k].size, 0);
	}
	if (c->job->way->dry_run || c->job->os != NULL || c->n_going == 0)
		return 0;
	return fs_sync_dir(c->b->fd, "manifests", err);
}

static int remove_batch(void *arg, size_t i, const atomic_bool *stop UNUSED, struct err *err)
{
	const struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	size_t step = at_once(c, SIZE_MAX), at = i * step;

	return take_away(c, BLOBS_BLOB, &c->leaving[at], at_once(c, c->n_leaving - at), err);
}

static int remove_blobs(struct collect *c, struct err *err)
{
	size_t step = at_once(c, SIZE_MAX);
	struct crew_job crew = {.threads = c->job->os != NULL ? REMOVERS : 1,
	                        .run = remove_batch,
	                        .arg = c,
	                        .cancel = c->job->cancel};

	sort(&c->stay);
	sort(&c->go);
	c->leaving = xcalloc(c->go.n + 1, sizeof(*c->leaving));
	for (size_t i = 0; i < c->go.n; i++) {
		struct named *x = &c->go.x[i];

		/* each once, with the first manifest that goes */
		if ((i == 0 || !digest_same(&c->go.x[i - 1].d, &x->d)) && !has(&c->stay, &x->d))
			c->leaving[c->n_leaving++] = (struct leaving){&x->d, &x->gone};
	}
	crew.n = (c->n_leaving + step - 1) / step;
	if (crew_run(&crew, err) < 0)
		return -1;
	for (size_t i = 0; i < c->go.n; i++) {
		struct going *g = &c->going[c->go.x[i].by];

		g->files += c->go.x[i].gone;
		g->bytes += c->go.x[i].gone ? c->go.x[i].size : 0;
	}
	return 0;
}

/* One that was removed, or would be. */
static void count(struct collect *c, const struct blobs_item *x)
{
	const struct blobs_way *way = c->job->way;

	c->out->manifests += x->kind == BLOBS_MANIFEST;
	c->out->files += x->files;
	c->out->bytes += x->bytes;
	if (way->each != NULL)
		way->each(way->arg, x);
}

static void count_manifests(struct collect *c)
{
	char hex[HASH_HEX_CAP];

	for (size_t i = 0; i < c->n_going; i++) {
		const struct going *g = &c->going[i];

		digest_hex(&g->name, hex);
		if (g->gone)
			count(c, &(struct blobs_item){BLOBS_MANIFEST, hex, g->largest, g->files,
			                              g->bytes, g->ms});
	}
}

/* ---- what no manifest names ---------------------------------------------------------------- */

static int remove_loose(struct collect *c, struct err *err)
{
	struct leaving x[REMOVE_BATCH];
	bool gone[REMOVE_BATCH] = {0};
	char hex[HASH_HEX_CAP];
	size_t n = c->n_loose;

	c->n_loose = 0;
	for (size_t i = 0; i < n; i++)
		x[i] = (struct leaving){&c->loose[i].d, &gone[i]};
	if (n > 0 && take_away(c, BLOBS_BLOB, x, n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const struct blob_entry *e = &c->loose[i];

		digest_hex(&e->d, hex);
		if (gone[i])
			count(c, &(struct blobs_item){BLOBS_BLOB, hex, NULL, 1, e->size, e->ms});
	}
	return 0;
}

/* Those that were roots, and are told by name: the folder need not be walked for them. */
static int remove_dropped(struct collect *c, struct err *err)
{
	const struct blobs_collect *job = c->job;

	for (size_t i = 0; i < job->n_drop; i++) {
		struct blob_entry x = {.d = job->drop[i], .ms = c->now_ms};
		char path[BLOB_PATH_CAP];
		struct stat st;

		if (go_on(c, err) < 0)
			return -1;
		if (has(&c->stay, &x.d) || has(&c->go, &x.d))
			continue;
		blob_path(&x.d, path);
		if (fstatat(c->b->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
			x.size = (uint64_t)st.st_size;
		c->loose[c->n_loose++] = x;
		if (c->n_loose == at_once(c, SIZE_MAX) && remove_loose(c, err) < 0)
			return -1;
	}
	return remove_loose(c, err);
}

/* Left by a fetch, a put or a collection that was interrupted. */
static int sweep_blob(void *arg, const struct blob_entry *x, struct err *err)
{
	struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);

	if (go_on(c, err) < 0)
		return -1;
	if (is_young(c, x->ms, c->job->loose_age_s) || has(&c->stay, &x->d) || has(&c->go, &x->d))
		return 0;
	c->loose[c->n_loose++] = *x;
	return c->n_loose == at_once(c, SIZE_MAX) ? remove_loose(c, err) : 0;
}

/* Temporary files: a fetch that is going on pins their names, and has its file locked while it is
 * written. ctime: one that was just set aside is young whatever its content's time. What a killed
 * collector left has no age. */
static int sweep_tmp(void *arg, int dirfd, const char *name, struct err *err)
{
	struct blobs_item x = {.kind = BLOBS_PARTIAL, .name = name, .files = 1};
	AUTO_FREE char *held = xstrdup(name);
	struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	AUTO_FD int fd = -1;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	x.ms = st.st_ctim.tv_sec * 1000;
	x.bytes = (uint64_t)st.st_size;
	if (is_young(c, x.ms, c->job->loose_age_s) && !str_starts(str_of(name), BLOB_GONE))
		return 0;
	if (str_ends(str_of(name), ".journal"))
		held[strlen(held) - strlen(".journal")] = '\0';
	fd = openat(dirfd, held, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	if (blob_tmp_pinned(c->b, held))
		return 0;
	if (str_starts(str_of(name), BLOB_DAMAGED))
		x.kind = BLOBS_DAMAGED;
	if (!c->job->way->dry_run && unlinkat(dirfd, name, 0) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "remove %s", name);
	count(c, &x);
	return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int each(struct collect *c, enum blobs_kind kind,
                int (*fn)(void *arg, const struct blob_entry *x, struct err *err), struct err *err)
{
	if (c->job->os != NULL)
		return blob_objects_each(c->job->os, kind, fn, c, err);
	return blobs_each(c->b, kind, fn, c, err);
}

static int collect(struct collect *c, struct err *err)
{
	if (note_roots(c, err) < 0 || each(c, BLOBS_MANIFEST, choose, err) < 0 ||
	    remove_manifests(c, err) < 0 || remove_blobs(c, err) < 0)
		return -1;
	count_manifests(c);
	if (remove_dropped(c, err) < 0)
		return -1;
	if (c->job->loose_age_s < 0)
		return 0;
	if (each(c, BLOBS_BLOB, sweep_blob, err) < 0 || remove_loose(c, err) < 0)
		return -1;
	if (c->job->os != NULL)
		return 0;
	if (blob_each_name(c->b, "tmp", sweep_tmp, c, err) < 0)
		return -1;
	return c->job->way->dry_run ? 0 : blob_git_sweep(c->b, c->job->loose_age_s, err);
}

int blobs_collect(struct blobs *b, const struct blobs_collect *job, struct blobs_collected *out,
                  struct err *err)
{
	struct collect c = {
		.magic = COLLECT_MAGIC, .b = b, .job = job, .out = out, .now_ms = clock_wall_ms()};
	struct blob_scan scan;
	int r;

	*out = (struct blobs_collected){0};
	blob_scan_begin(b, &scan);
	r = collect(&c, err);
	blob_scan_end(b, &scan);
	for (size_t i = 0; i < c.n_going; i++)
		free(c.going[i].largest);
	free(c.going);
	free(c.stay.x);
	free(c.go.x);
	free(c.leaving);
	if (r == 0)
		return 0;
	return err_wrap(err, "collect %s",
	                job->os != NULL ? "weights in the object store" : b->dir);
}
