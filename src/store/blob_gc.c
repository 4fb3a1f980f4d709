/* blob_gc.c - what is in the blob store that nobody names any more, and how much is in it. */
#include "store/blob_impl.h"

#include "base/clock.h"

#include <dirent.h>
#include <sys/file.h>

/* Calls fn for each name in a folder of the store; -1 of fn ends it. */
static int each_name(struct blobs *b, const char *path,
                     int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                     struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(b->fd, path, O_RDONLY | O_DIRECTORY, 0, err);
	DIR *d = NULL;
	int rc = 0;

	if (fd < 0)
		return -1;
	d = fdopendir(fd);
	if (d == NULL)
		return err_errno(err, errno, "%s/%s", b->dir, path);
	fd = -1; /* it is d's now */
	for (struct dirent *e = readdir(d); e != NULL && rc == 0; e = readdir(d))
		if (e->d_name[0] != '.')
			rc = fn(arg, dirfd(d), e->d_name, err);
	(void)closedir(d);
	return rc;
}

struct named { /* the digests that manifests name */
	struct blobs *b;
	struct digest *d;
	size_t n, cap;
};

/* One that cannot be read ends the collection: what it names is not known. */
static int note(struct named *set, const struct digest *manifest, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;

	if (blobs_get_manifest(set->b, a, manifest, &m, err) < 0)
		return -1;
	if (set->n + m.n > set->cap) {
		set->cap = MAX(set->cap * 2, set->n + m.n);
		set->d = xrealloc(set->d, set->cap * sizeof(*set->d));
	}
	for (size_t i = 0; i < m.n; i++)
		set->d[set->n++] = m.file[i].sha256;
	return 0;
}

static int note_manifest(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct digest d;

	if (digest_parse(str_of(name), &d, err) < 0) {
		err_clear(err); /* not one of ours; it names nothing */
		return 0;
	}
	return note(arg, &d, err);
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
	struct named *named; /* NULL: everything old goes (temporary files) */
	int64_t before_s;
	bool dry_run;
	uint64_t files, bytes;
};

static int sweep_file(void *arg, int dirfd, const char *name, struct err *err)
{
	struct sweep *s = arg;
	struct digest d;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0; /* gone, or not ours */
	/* ctime: a blob that was just renamed into place is young whatever its content's time */
	if (st.st_ctim.tv_sec > s->before_s)
		return 0;
	if (s->named != NULL) {
		if (digest_parse(str_of(name), &d, err) < 0) {
			err_clear(err);
			return 0;
		}
		if (names(s->named, &d))
			return 0;
	}
	if (!s->dry_run && unlinkat(dirfd, name, 0) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "remove %s", name);
	s->files++;
	s->bytes += (uint64_t)st.st_size;
	return 0;
}

/* Temporary files: a fetch that is going on holds its file locked, and that covers its journal. */
static int sweep_tmp(void *arg, int dirfd, const char *name, struct err *err)
{
	AUTO_FREE char *held = xstrdup(name);
	AUTO_FD int fd = -1;

	if (str_ends(str_of(name), ".journal"))
		held[strlen(held) - strlen(".journal")] = '\0';
	fd = openat(dirfd, held, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	return sweep_file(arg, dirfd, name, err);
}

struct fan { /* of blobs/sha256: two digits each */
	struct blobs *b;
	struct sweep *sweep;
};

static int sweep_fan(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct fan *f = arg;
	char path[BLOB_PATH_CAP];

	if (strlen(name) != 2)
		return 0;
	FMT(path, "blobs/sha256/%s", name);
	return each_name(f->b, path, sweep_file, f->sweep, err);
}

int blobs_gc(struct blobs *b, int64_t max_age_s, bool dry_run, uint64_t *files, uint64_t *bytes,
             struct err *err)
{
	AUTO_FD int lock = blob_gc_lock(b, err);
	struct named named = {.b = b};
	struct sweep s = {.before_s = clock_wall_ms() / 1000 - max_age_s, .dry_run = dry_run};
	struct fan fan = {.b = b, .sweep = &s};
	int rc;

	if (lock < 0)
		return -1;
	rc = each_name(b, "manifests", note_manifest, &named, err);
	if (rc == 0) {
		sort(&named);
		s.named = &named;
		rc = each_name(b, "blobs/sha256", sweep_fan, &fan, err);
	}
	if (rc == 0) {
		s.named = NULL;
		rc = each_name(b, "tmp", sweep_tmp, &s, err);
	}
	free(named.d);
	if (rc < 0)
		return err_wrap(err, "collect %s", b->dir);
	*files = s.files;
	*bytes = s.bytes;
	return 0;
}

struct choice { /* between manifests that stay and manifests that go */
	const struct blobs_choice *by;
	int64_t before_s;
	struct named stay, go; /* the blobs of either */
	struct digest *gone;   /* the manifests that go */
	size_t n_gone, cap;
};

static int choose(void *arg, int dirfd, const char *name, struct err *err)
{
	struct choice *c = arg;
	bool keep = true;
	struct digest d;
	struct stat st;

	if (digest_parse(str_of(name), &d, err) < 0) {
		err_clear(err);
		return 0;
	}
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "manifests/%s", name);
	if (st.st_ctim.tv_sec <= c->before_s && c->by->keep(c->by->arg, &d, &keep, err) < 0)
		return -1;
	if (keep)
		return note(&c->stay, &d, err);
	if (c->n_gone == c->cap) {
		c->cap = MAX(c->cap * 2, (size_t)16);
		c->gone = xrealloc(c->gone, c->cap * sizeof(*c->gone));
	}
	c->gone[c->n_gone++] = d;
	return note(&c->go, &d, err);
}

/* Manifests before blobs: no name is left of what goes. */
static int remove_chosen(struct blobs *b, struct choice *c, struct blobs_collected *out,
                         struct err *err)
{
	char path[BLOB_PATH_CAP];
	struct stat st;

	for (size_t i = 0; i < c->n_gone; i++) {
		blob_manifest_path(&c->gone[i], path);
		if (unlinkat(b->fd, path, 0) < 0 && errno != ENOENT)
			return err_errno(err, errno, "remove %s", path);
		out->manifests++;
	}
	if (c->n_gone == 0)
		return 0;
	if (fs_sync_dir(b->fd, "manifests", err) < 0)
		return -1;
	sort(&c->stay);
	for (size_t i = 0; i < c->go.n; i++) {
		blob_path(&c->go.d[i], path);
		if (names(&c->stay, &c->go.d[i]) ||
		    fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* somebody else's too, or removed already */
		if (unlinkat(b->fd, path, 0) < 0)
			return err_errno(err, errno, "remove %s", path);
		out->files++;
		out->bytes += (uint64_t)st.st_size;
	}
	return 0;
}

int blobs_collect(struct blobs *b, int64_t min_age_s, const struct blobs_choice *by,
                  struct blobs_collected *out, struct err *err)
{
	AUTO_FD int lock = blob_gc_lock(b, err);
	struct choice c = {.by = by,
	                   .before_s = clock_wall_ms() / 1000 - min_age_s,
	                   .stay = {.b = b},
	                   .go = {.b = b}};
	int rc;

	*out = (struct blobs_collected){0};
	if (lock < 0)
		return -1;
	rc = each_name(b, "manifests", choose, &c, err);
	if (rc == 0)
		rc = remove_chosen(b, &c, out, err);
	free(c.stay.d);
	free(c.go.d);
	free(c.gone);
	return rc < 0 ? err_wrap(err, "collect %s", b->dir) : 0;
}

static int add_usage(void *arg, int dirfd, const char *name, struct err *err UNUSED)
{
	struct sweep *s = arg;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
		s->files++;
		s->bytes += (uint64_t)st.st_size;
	}
	return 0;
}

static int usage_fan(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct fan *f = arg;
	char path[BLOB_PATH_CAP];

	if (strlen(name) != 2)
		return 0;
	FMT(path, "blobs/sha256/%s", name);
	return each_name(f->b, path, add_usage, f->sweep, err);
}

int blobs_usage(struct blobs *b, uint64_t *files, uint64_t *bytes, struct err *err)
{
	struct sweep s = {0};
	struct fan fan = {.b = b, .sweep = &s};

	if (each_name(b, "blobs/sha256", usage_fan, &fan, err) < 0)
		return err_wrap(err, "usage of %s", b->dir);
	*files = s.files;
	*bytes = s.bytes;
	return 0;
}
