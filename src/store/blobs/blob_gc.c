/* blob_gc.c - what is in the blob store that nobody names any more, and how much is in it. */
#include "store/blobs/blob_impl.h"

#include "base/clock.h"
#include "base/map.h"

#include <sys/file.h>

/* Calls fn for each name in a folder of the store; -1 of fn ends it. */
static int each_name(struct blobs *b, const char *path,
                     int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                     struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(b->fd, path, O_RDONLY | O_DIRECTORY, 0, err);

	if (fd < 0)
		return -1;
	return fs_each_name(TAKE_FD(fd), path, fn, arg, err);
}

struct named { /* the digests that manifests name */
	struct blobs *b;
	struct digest *d;
	size_t n, cap;
};

/* One that cannot be read ends the collection: what it names is not known. One that is gone names
 * nothing any more: another collector was here. *largest (may be NULL) gets the path of its largest
 * file, the caller's, or NULL. */
static int note(struct named *set, const struct digest *manifest, char **largest, struct err *err)
{
	const struct manifest_file *most = NULL;
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;

	if (blobs_get_manifest(set->b, a, manifest, &m, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	if (set->n + m.n > set->cap) {
		set->cap = MAX(set->cap * 2, set->n + m.n);
		set->d = xrealloc(set->d, set->cap * sizeof(*set->d));
	}
	for (size_t i = 0; i < m.n; i++) {
		set->d[set->n++] = m.file[i].sha256;
		if (most == NULL || m.file[i].size > most->size)
			most = &m.file[i];
	}
	if (largest != NULL)
		*largest = most != NULL ? xstrdup(most->path) : NULL;
	return 0;
}

static int note_manifest(void *arg, const struct digest *name, struct err *err)
{
	return note(arg, name, NULL, err);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

static void sort(struct named *set)
{
	if (set->n > 0)
		qsort(set->d, set->n, sizeof(*set->d), compare);
}

static bool names(const struct named *set, const struct digest *d)
{
	return set->n > 0 && bsearch(d, set->d, set->n, sizeof(*d), compare) != NULL;
}

struct sweep {
	struct blobs *b;
	const struct named *named; /* by manifests */
	int64_t before_s;
	const struct blobs_way *way;
	struct blobs_collected *out;
};

static void tell(const struct blobs_way *way, const struct blobs_item *x)
{
	if (way->each != NULL)
		way->each(way->arg, x);
}

/* One that was removed, or would be. */
static void count(struct sweep *s, struct blobs_item *x, const struct stat *st)
{
	x->files = 1;
	x->bytes = (uint64_t)st->st_size;
	s->out->files++;
	s->out->bytes += x->bytes;
	tell(s->way, x);
}

/* A blob is as old as its last byte: a tree that links to it, or did, is no sign of use. */
static int sweep_blob(void *arg, int dirfd, const char *name, struct err *err)
{
	struct blobs_item x = {.kind = BLOBS_BLOB, .name = name};
	struct sweep *s = arg;
	char path[BLOB_PATH_CAP];
	struct digest d;
	struct stat st;
	bool gone;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_mtim.tv_sec > s->before_s)
		return 0; /* gone, not ours, or young */
	if (digest_parse(str_of(name), &d, err) < 0) {
		err_clear(err);
		return 0;
	}
	x.ms = st.st_mtim.tv_sec * 1000;
	if (names(s->named, &d))
		return 0;
	blob_path(&d, path);
	gone = s->way->dry_run && !blobs_pinned(s->b, &d);
	if (!s->way->dry_run && blob_take_away(s->b, &d, path, &gone, err) < 0)
		return -1;
	if (gone)
		count(s, &x, &st);
	return 0;
}

/* Temporary files: a fetch that is going on pins their names, and has its file locked while it is
 * written. ctime: one that was just set aside is young whatever its content's time. What a killed
 * collector left has no age. */
static int sweep_tmp(void *arg, int dirfd, const char *name, struct err *err)
{
	struct blobs_item x = {.kind = BLOBS_PARTIAL, .name = name};
	AUTO_FREE char *held = xstrdup(name);
	struct sweep *s = arg;
	AUTO_FD int fd = -1;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    (st.st_ctim.tv_sec > s->before_s && !str_starts(str_of(name), BLOB_GONE)))
		return 0;
	if (str_ends(str_of(name), ".journal"))
		held[strlen(held) - strlen(".journal")] = '\0';
	fd = openat(dirfd, held, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	if (blob_tmp_pinned(s->b, held))
		return 0;
	if (str_starts(str_of(name), BLOB_DAMAGED))
		x.kind = BLOBS_DAMAGED;
	x.ms = st.st_ctim.tv_sec * 1000;
	if (!s->way->dry_run && unlinkat(dirfd, name, 0) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "remove %s", name);
	count(s, &x, &st);
	return 0;
}

struct fan { /* of blobs/sha256: two digits each */
	struct blobs *b;
	int (*fn)(void *arg, int dirfd, const char *name, struct err *err);
	void *arg;
};

static int fan_folder(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct fan *f = arg;
	char path[BLOB_PATH_CAP];

	if (strlen(name) != 2)
		return 0;
	FMT(path, "blobs/sha256/%s", name);
	return each_name(f->b, path, f->fn, f->arg, err);
}

static int fan_out(struct blobs *b,
                   int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                   struct err *err)
{
	struct fan fan = {b, fn, arg};

	return each_name(b, "blobs/sha256", fan_folder, &fan, err);
}

int blobs_gc(struct blobs *b, int64_t max_age_s, const struct blobs_way *way,
             struct blobs_collected *out, struct err *err)
{
	struct named named = {.b = b};
	struct sweep s = {
		.b = b, .before_s = clock_wall_ms() / 1000 - max_age_s, .way = way, .out = out};
	struct blob_scan scan;
	int rc;

	*out = (struct blobs_collected){0};
	blob_scan_begin(b, &scan);
	rc = blobs_each_manifest(b, note_manifest, &named, err);
	if (rc == 0) {
		sort(&named);
		s.named = &named;
		rc = fan_out(b, sweep_blob, &s, err);
	}
	if (rc == 0)
		rc = each_name(b, "tmp", sweep_tmp, &s, err);
	blob_scan_end(b, &scan);
	free(named.d);
	return rc < 0 ? err_wrap(err, "collect %s", b->dir) : 0;
}

struct going { /* a manifest that is not kept */
	struct digest name;
	char *largest; /* its own; see blobs_item */
	int64_t ms;
	size_t end; /* of its blobs in go; they begin where those of the one before end */
	uint64_t files, bytes;
	bool gone;
};

struct choice { /* between manifests that stay and manifests that go */
	struct blobs *b;
	const struct blobs_choice *by;
	int64_t before_s;
	struct named stay, go; /* the blobs of either */
	struct going *gone;    /* the manifests that go */
	size_t n_gone, cap;
};

static int choose(void *arg, int dirfd, const char *name, struct err *err)
{
	struct choice *c = arg;
	char *largest = NULL;
	bool keep = true;
	struct digest d;
	struct stat st;

	if (digest_parse(str_of(name), &d, err) < 0) {
		err_clear(err);
		return 0;
	}
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "manifests/%s", name);
	if (st.st_ctim.tv_sec <= c->before_s && !blobs_pinned(c->b, &d) &&
	    c->by->keep(c->by->arg, &d, &keep, err) < 0)
		return -1;
	if (keep)
		return note(&c->stay, &d, NULL, err);
	if (note(&c->go, &d, &largest, err) < 0)
		return -1;
	if (c->n_gone == c->cap) {
		c->cap = MAX(c->cap * 2, (size_t)16);
		c->gone = xrealloc(c->gone, c->cap * sizeof(*c->gone));
	}
	c->gone[c->n_gone++] = (struct going){
		.name = d, .largest = largest, .ms = st.st_ctim.tv_sec * 1000, .end = c->go.n};
	return 0;
}

static int remove_manifests(struct blobs *b, struct choice *c, struct err *err)
{
	char path[BLOB_PATH_CAP];

	for (size_t i = 0; i < c->n_gone; i++) {
		if (c->by->drop != NULL && c->by->drop(c->by->arg, &c->gone[i].name, err) < 0)
			return -1;
		blob_manifest_path(&c->gone[i].name, path);
		if (blob_take_away(b, &c->gone[i].name, path, &c->gone[i].gone, err) < 0)
			return -1;
	}
	return c->n_gone > 0 ? fs_sync_dir(b->fd, "manifests", err) : 0;
}

/* Each blob goes, and counts, with the first of the manifests that go. Of one that was published
 * again meanwhile the blobs are pinned. */
static int remove_blobs(struct blobs *b, struct choice *c, bool dry_run, struct err *err)
{
	AUTO_MAP struct map *seen = map_new();
	char path[BLOB_PATH_CAP];
	struct stat st;
	size_t k = 0;

	for (size_t i = 0; i < c->n_gone; i++) {
		for (; k < c->gone[i].end; k++) {
			const struct digest *d = &c->go.d[k];
			bool gone = dry_run && !blobs_pinned(b, d);

			blob_path(d, path);
			if (names(&c->stay, d) || map_set(seen, str_of(path), c) != NULL ||
			    fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
				continue; /* somebody else's too, or removed already */
			if (!dry_run && blob_take_away(b, d, path, &gone, err) < 0)
				return -1;
			if (!gone)
				continue;
			c->gone[i].files++;
			c->gone[i].bytes += (uint64_t)st.st_size;
		}
	}
	return 0;
}

/* Manifests before blobs: no name is left of what goes. */
static int remove_chosen(struct blobs *b, struct choice *c, const struct blobs_way *way,
                         struct blobs_collected *out, struct err *err)
{
	char hex[HASH_HEX_CAP];

	sort(&c->stay);
	if (!way->dry_run && remove_manifests(b, c, err) < 0)
		return -1;
	if (remove_blobs(b, c, way->dry_run, err) < 0)
		return -1;
	for (size_t i = 0; i < c->n_gone; i++) {
		struct going *g = &c->gone[i];

		if (!way->dry_run && !g->gone)
			continue; /* pinned meanwhile */
		digest_hex(&g->name, hex);
		out->manifests++;
		out->files += g->files;
		out->bytes += g->bytes;
		tell(way, &(struct blobs_item){BLOBS_MANIFEST, hex, g->largest, g->files, g->bytes,
		                               g->ms});
	}
	return 0;
}

int blobs_collect(struct blobs *b, int64_t min_age_s, const struct blobs_choice *by,
                  const struct blobs_way *way, struct blobs_collected *out, struct err *err)
{
	struct choice c = {.b = b,
	                   .by = by,
	                   .before_s = clock_wall_ms() / 1000 - min_age_s,
	                   .stay = {.b = b},
	                   .go = {.b = b}};
	struct blob_scan scan;
	int rc;

	*out = (struct blobs_collected){0};
	blob_scan_begin(b, &scan);
	rc = each_name(b, "manifests", choose, &c, err);
	if (rc == 0)
		rc = remove_chosen(b, &c, way, out, err);
	blob_scan_end(b, &scan);
	free(c.stay.d);
	free(c.go.d);
	for (size_t i = 0; i < c.n_gone; i++)
		free(c.gone[i].largest);
	free(c.gone);
	return rc < 0 ? err_wrap(err, "collect %s", b->dir) : 0;
}

struct each_blob {
	int (*fn)(void *arg, const struct digest *d, uint64_t size, struct err *err);
	void *arg;
};

static int one_blob(void *arg, int dirfd, const char *name, struct err *err)
{
	struct each_blob *e = arg;
	struct digest d;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (digest_parse(str_of(name), &d, err) < 0) {
		err_clear(err);
		return 0;
	}
	return e->fn(e->arg, &d, (uint64_t)st.st_size, err);
}

int blobs_each(struct blobs *b,
               int (*fn)(void *arg, const struct digest *d, uint64_t size, struct err *err),
               void *arg, struct err *err)
{
	struct each_blob e = {fn, arg};

	return fan_out(b, one_blob, &e, err) < 0 ? err_wrap(err, "blobs of %s", b->dir) : 0;
}

struct each_manifest {
	int (*fn)(void *arg, const struct digest *name, struct err *err);
	void *arg;
};

static int one_manifest(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct each_manifest *e = arg;
	struct digest d;

	if (digest_parse(str_of(name), &d, err) == 0)
		return e->fn(e->arg, &d, err);
	err_clear(err);
	return 0;
}

int blobs_each_manifest(struct blobs *b,
                        int (*fn)(void *arg, const struct digest *name, struct err *err), void *arg,
                        struct err *err)
{
	struct each_manifest e = {fn, arg};

	return each_name(b, "manifests", one_manifest, &e, err);
}

struct usage {
	uint64_t files, bytes;
};

static int add_usage(void *arg, const struct digest *d UNUSED, uint64_t size,
                     struct err *err UNUSED)
{
	struct usage *u = arg;

	u->files++;
	u->bytes += size;
	return 0;
}

int blobs_usage(struct blobs *b, uint64_t *files, uint64_t *bytes, struct err *err)
{
	struct usage u = {0};

	if (blobs_each(b, add_usage, &u, err) < 0)
		return -1;
	*files = u.files;
	*bytes = u.bytes;
	return 0;
}

struct holding {
	struct blobs *b;
	struct blobs_held *out;
};

/* Holes, and what a file system compresses, take no space. */
static uint64_t taken(const struct stat *st)
{
	return MIN((uint64_t)st->st_size, (uint64_t)st->st_blocks * 512);
}

static int add_partial(void *arg, int dirfd, const char *name, struct err *err UNUSED)
{
	struct holding *h = arg;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    (str_starts(str_of(name), BLOB_BATCH) || !blob_tmp_pinned(h->b, name)))
		h->out->partial += taken(&st);
	return 0;
}

static int add_blob(void *arg, int dirfd, const char *name, struct err *err UNUSED)
{
	struct holding *h = arg;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	h->out->files++;
	h->out->bytes += taken(&st);
	return 0;
}

int blobs_held(struct blobs *b, struct blobs_held *out, struct err *err)
{
	struct holding h = {b, out};

	*out = (struct blobs_held){0};
	return each_name(b, "tmp", add_partial, &h, err) < 0 || fan_out(b, add_blob, &h, err) < 0
	               ? -1
	               : 0;
}
