/*
 * blob_objects_gc.c - what is in an object store that nobody names any more; see blob_objects.h.
 * blob_gc.c does the same in a folder. Here a removal takes a request, so it is marked before and
 * settled behind (blob_pins.h), and what was pinned in time stays with all that it names.
 */
#include "store/blobs/blob_objects.h"

#include "base/clock.h"
#include "store/blobs/blob_impl.h"
#include "store/common/crew.h"

#define PAGE 1000
#define REMOVERS 16 /* requests at once */

/* ---- listing ------------------------------------------------------------------------------- */

struct page {
	struct blob_object x[PAGE];
	size_t n;
	char last[OBJSTORE_KEY_MAX + 1];
};

/* Other keys are not ours. */
static void add(void *arg, const char *key, const struct objstore_info *info)
{
	struct page *p = arg;
	const char *name = strrchr(key, '/');
	struct err no = {0};

	copy_cut(p->last, sizeof(p->last), key);
	assert(p->n < PAGE);
	if (name != NULL && digest_parse(str_of(name + 1), &p->x[p->n].d, &no) == 0) {
		p->x[p->n].size = info->size;
		p->x[p->n++].modified_ms = info->modified_ms;
	}
}

int blob_objects_each(struct objstore *os, enum blobs_kind kind,
                      int (*fn)(void *arg, const struct blob_object *x, struct err *err), void *arg,
                      struct err *err)
{
	const char *prefix = kind == BLOBS_MANIFEST ? "manifests/" : "blobs/sha256/";
	AUTO_FREE struct page *p = xcalloc(1, sizeof(*p));
	bool more = true;

	while (more) {
		p->n = 0;
		if (objstore_list(os, prefix, p->last[0] != '\0' ? p->last : NULL, PAGE, add, p,
		                  &more, err) < 0)
			return -1;
		for (size_t i = 0; i < p->n; i++)
			if (fn(arg, &p->x[i], err) < 0)
				return -1;
	}
	return 0;
}

/* ---- what goes ----------------------------------------------------------------------------- */

struct named { /* a blob that a manifest names */
	struct digest d;
	uint64_t size;
	size_t by; /* of the manifests that go */
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

struct collect {
	const struct blob_objects_collect *job;
	struct blobs_collected *out;
	int64_t now_ms;
	struct set stay, go;
	struct going *going;
	size_t n_going, cap;
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

static void add_named(struct set *s, const struct manifest_file *f, size_t by)
{
	if (s->n == s->cap) {
		s->cap = MAX(s->cap * 2, (size_t)256);
		s->x = xrealloc(s->x, s->cap * sizeof(*s->x));
	}
	s->x[s->n++] = (struct named){.d = f->sha256, .size = f->size, .by = by};
}

/* The copy in the folder, else the object's. */
static int read_list(const struct collect *c, struct arena *a, const struct digest *name,
                     struct manifest *m, struct err *err)
{
	if (blobs_get_manifest(c->job->here, a, name, m, err) == 0)
		return 0;
	err_clear(err);
	return blob_objects_manifest(c->job->os, a, name, m, err);
}

/* One that cannot be read ends the collection: what it names is not known. One that is gone names
 * nothing any more. */
static int note(struct collect *c, struct set *to, const struct digest *name, size_t by,
                char **largest, struct err *err)
{
	const struct manifest_file *most = NULL;
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;

	if (read_list(c, a, name, &m, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	for (size_t i = 0; i < m.n; i++) {
		add_named(to, &m.file[i], by);
		if (most == NULL || m.file[i].size > most->size)
			most = &m.file[i];
	}
	if (largest != NULL)
		*largest = most != NULL ? xstrdup(most->path) : NULL;
	return 0;
}

static int go_on(const struct collect *c, struct err *err)
{
	if (c->job->cancel != NULL && atomic_load(c->job->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	return 0;
}

static int choose(void *arg, const struct blob_object *x, struct err *err)
{
	struct collect *c = arg;
	const struct blobs_choice *by = c->job->by;
	struct going *g;
	bool keep = true;

	if (go_on(c, err) < 0)
		return -1;
	if (c->now_ms - x->modified_ms >= c->job->min_age_s * 1000 &&
	    !blobs_pinned(c->job->here, &x->d) && by->keep(by->arg, &x->d, &keep, err) < 0)
		return -1;
	if (keep)
		return note(c, &c->stay, &x->d, 0, NULL, err);
	if (c->n_going == c->cap) {
		c->cap = MAX(c->cap * 2, (size_t)16);
		c->going = xrealloc(c->going, c->cap * sizeof(*c->going));
	}
	g = &c->going[c->n_going++];
	*g = (struct going){.name = x->d, .ms = x->modified_ms, .first = c->go.n};
	if (note(c, &c->go, &x->d, c->n_going - 1, &g->largest, err) < 0)
		return -1;
	g->end = c->go.n;
	return 0;
}

/* ---- removing ------------------------------------------------------------------------------ */

/* *gone: it was not pinned. */
static int remove_object(const struct collect *c, const struct digest *d, const char *key,
                         bool *gone, struct err *err)
{
	int r;

	if (c->job->way->dry_run) {
		*gone = !blobs_pinned(c->job->here, d);
		return 0;
	}
	*gone = blob_going_begin(c->job->here, d);
	if (!*gone)
		return 0;
	r = objstore_del(c->job->os, key, err);
	blob_going_end(c->job->here, d);
	return r;
}

/* Before their blobs. One that was pinned meanwhile stays, and so do the blobs that it names. */
static int remove_manifests(struct collect *c, struct err *err)
{
	const struct blobs_choice *by = c->job->by;
	char key[BLOB_KEY_CAP];

	for (size_t i = 0; i < c->n_going; i++) {
		struct going *g = &c->going[i];

		if (go_on(c, err) < 0 || (!c->job->way->dry_run && by->drop != NULL &&
		                          by->drop(by->arg, &g->name, err) < 0))
			return -1;
		blob_objects_manifest_key(&g->name, key);
		if (remove_object(c, &g->name, key, &g->gone, err) < 0)
			return -1;
		for (size_t k = g->first; !g->gone && k < g->end; k++)
			add_named(&c->stay,
			          &(struct manifest_file){.size = c->go.x[k].size,
			                                  .sha256 = c->go.x[k].d},
			          0);
	}
	return 0;
}

static int remove_one(void *arg, size_t i, const atomic_bool *stop UNUSED, struct err *err)
{
	struct collect *c = arg;
	struct named *x = &c->go.x[i];
	char key[BLOB_KEY_CAP];

	/* each once, with the first manifest that goes */
	if ((i > 0 && digest_same(&c->go.x[i - 1].d, &x->d)) || has(&c->stay, &x->d))
		return 0;
	blob_object_key(&x->d, key);
	return remove_object(c, &x->d, key, &x->gone, err);
}

static int remove_blobs(struct collect *c, struct err *err)
{
	const struct crew_job crew = {.n = c->go.n,
	                              .threads = REMOVERS,
	                              .run = remove_one,
	                              .arg = c,
	                              .cancel = c->job->cancel};

	sort(&c->stay);
	sort(&c->go);
	if (crew_run(&crew, err) < 0)
		return -1;
	for (size_t i = 0; i < c->go.n; i++) {
		struct going *g = &c->going[c->go.x[i].by];

		g->files += c->go.x[i].gone;
		g->bytes += c->go.x[i].gone ? c->go.x[i].size : 0;
	}
	return 0;
}

static void tell(const struct collect *c, const struct blobs_item *x)
{
	if (c->job->way->each != NULL)
		c->job->way->each(c->job->way->arg, x);
}

static void tell_manifests(struct collect *c)
{
	char hex[HASH_HEX_CAP];

	for (size_t i = 0; i < c->n_going; i++) {
		const struct going *g = &c->going[i];

		if (!g->gone)
			continue;
		digest_hex(&g->name, hex);
		c->out->manifests++;
		c->out->files += g->files;
		c->out->bytes += g->bytes;
		tell(c, &(struct blobs_item){BLOBS_MANIFEST, hex, g->largest, g->files, g->bytes,
		                             g->ms});
	}
}

/* Left by a put, or a collection, that was interrupted. */
static int sweep(void *arg, const struct blob_object *x, struct err *err)
{
	struct collect *c = arg;
	char key[BLOB_KEY_CAP], hex[HASH_HEX_CAP];
	bool gone = false;

	if (go_on(c, err) < 0)
		return -1;
	if (c->now_ms - x->modified_ms < c->job->loose_age_s * 1000 || has(&c->stay, &x->d) ||
	    has(&c->go, &x->d))
		return 0;
	blob_object_key(&x->d, key);
	if (remove_object(c, &x->d, key, &gone, err) < 0)
		return -1;
	if (!gone)
		return 0;
	digest_hex(&x->d, hex);
	c->out->files++;
	c->out->bytes += x->size;
	tell(c, &(struct blobs_item){BLOBS_BLOB, hex, NULL, 1, x->size, x->modified_ms});
	return 0;
}

static int collect(struct collect *c, struct err *err)
{
	if (blob_objects_each(c->job->os, BLOBS_MANIFEST, choose, c, err) < 0 ||
	    remove_manifests(c, err) < 0 || remove_blobs(c, err) < 0)
		return -1;
	tell_manifests(c);
	return c->job->loose_age_s < 0 ? 0
	                               : blob_objects_each(c->job->os, BLOBS_BLOB, sweep, c, err);
}

int blob_objects_collect(const struct blob_objects_collect *job, struct blobs_collected *out,
                         struct err *err)
{
	struct collect c = {.job = job, .out = out, .now_ms = clock_wall_ms()};
	struct blob_scan scan;
	int rc;

	*out = (struct blobs_collected){0};
	blob_scan_begin(job->here, &scan);
	rc = collect(&c, err);
	blob_scan_end(job->here, &scan);
	for (size_t i = 0; i < c.n_going; i++)
		free(c.going[i].largest);
	free(c.going);
	free(c.stay.x);
	free(c.go.x);
	return rc < 0 ? err_wrap(err, "collect weights in the object store") : 0;
}
