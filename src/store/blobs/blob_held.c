/*
 * blob_held.c - see blob.h: what is there, and how much. To measure is to look at every file, so
 * what was measured is counted forward: whatever gives a blob its name or takes it does so in the
 * turn of the blob's folder, and a folder is measured in its turn, too.
 */
#include "store/blobs/blob_impl.h"

#include "base/clock.h"

#define FOLDERS 256       /* by the first byte of a digest */
#define NEVER (-1)        /* measured */
#define MEASURE_SHARE 100 /* it is measured anew at most 1/n of the time */

struct blob_folder {
	struct lock lock;
	int64_t files, bytes; /* before it is first measured: what came and went */
};

struct blob_counts {
	struct blob_folder folder[FOLDERS];
	atomic_int_least64_t files, bytes; /* of all folders */
	atomic_int_least64_t measured_ms;  /* when that ended, monotonic */
	atomic_int_least64_t took_ms;
};

/* ---- what is there ------------------------------------------------------------------------- */

int blob_each_name(struct blobs *b, const char *path,
                   int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                   struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(b->fd, path, O_RDONLY | O_DIRECTORY, 0, err);

	if (fd < 0)
		return -1;
	return fs_each_name(TAKE_FD(fd), path, fn, arg, err);
}

uint64_t blob_taken(const struct stat *st)
{
	return MIN((uint64_t)st->st_size, (uint64_t)st->st_blocks * 512);
}

struct listing {
	unsigned magic;
#define LISTING_MAGIC 0x534c494eU
	struct blobs *b;
	enum blobs_kind kind;
	int (*fn)(void *arg, const struct blob_entry *x, struct err *err);
	void *arg;
};

/* A blob is as old as its last byte: a tree that links to it, or did, is no sign of use. */
static int list_one(void *arg, int dirfd, const char *name, struct err *err)
{
	const struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	struct blob_entry x;
	struct stat st;

	if (digest_parse(str_of(name), &x.d, err) < 0) {
		err_clear(err); /* not ours */
		return 0;
	}
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s", name);
	if (!S_ISREG(st.st_mode))
		return 0;
	x.size = (uint64_t)st.st_size;
	x.taken = blob_taken(&st);
	x.ms = (l->kind == BLOBS_MANIFEST ? st.st_ctim : st.st_mtim).tv_sec * 1000;
	return l->fn(l->arg, &x, err);
}

/* Of blobs/sha256: two digits each. */
static int list_folder(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	char path[BLOB_PATH_CAP];

	if (strlen(name) != 2)
		return 0;
	FMT(path, "blobs/sha256/%s", name);
	return blob_each_name(l->b, path, list_one, l, err);
}

int blobs_each(struct blobs *b, enum blobs_kind kind,
               int (*fn)(void *arg, const struct blob_entry *x, struct err *err), void *arg,
               struct err *err)
{
	struct listing l = {LISTING_MAGIC, b, kind, fn, arg};

	if (kind == BLOBS_MANIFEST)
		return blob_each_name(b, "manifests", list_one, &l, err);
	return blob_each_name(b, "blobs/sha256", list_folder, &l, err);
}

/* ---- how much ------------------------------------------------------------------------------ */

struct blob_counts *blob_counts_new(void)
{
	struct blob_counts *c = xcalloc(1, sizeof(*c));

	for (size_t i = 0; i < FOLDERS; i++)
		lock_init(&c->folder[i].lock, LOCK_BLOB_FOLDER);
	atomic_store(&c->measured_ms, NEVER);
	return c;
}

void blob_counts_free(struct blob_counts *c)
{
	for (size_t i = 0; i < FOLDERS; i++)
		lock_done(&c->folder[i].lock);
	free(c);
}

/* With its lock. */
static void count(struct blob_counts *c, struct blob_folder *f, int64_t files, int64_t bytes)
{
	assert(lock_is_mine(&f->lock));
	f->files += files;
	f->bytes += bytes;
	atomic_fetch_add(&c->files, files);
	atomic_fetch_add(&c->bytes, bytes);
}

void blob_turn_take(struct blobs *b, const struct digest *d)
{
	lock_take(&b->counts->folder[d->b[0]].lock);
}

void blob_turn_give(struct blobs *b, const struct digest *d, int64_t files, int64_t bytes)
{
	struct blob_folder *f = &b->counts->folder[d->b[0]];

	count(b->counts, f, files, bytes);
	lock_give(&f->lock);
}

int blob_name(struct blobs *b, const char *from, const struct digest *d, unsigned flags)
{
	struct stat is, was = {0};
	char to[BLOB_PATH_CAP];
	bool replaces;
	int e = 0;

	blob_path(d, to);
	if (fstatat(b->fd, from, &is, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	blob_turn_take(b, d);
	replaces = (flags & RENAME_NOREPLACE) == 0 &&
	           fstatat(b->fd, to, &was, AT_SYMLINK_NOFOLLOW) == 0;
	if (renameat2(b->fd, from, b->fd, to, flags) < 0)
		e = errno;
	if (e != 0)
		blob_turn_give(b, d, 0, 0);
	else
		blob_turn_give(b, d, replaces ? 0 : 1,
		               (int64_t)blob_taken(&is) -
		                       (replaces ? (int64_t)blob_taken(&was) : 0));
	errno = e;
	return e == 0 ? 0 : -1;
}

struct holding {
	unsigned magic;
#define HOLDING_MAGIC 0x53484f4cU
	struct blobs *b;
	int64_t files, bytes; /* of a folder */
	uint64_t partial;
};

static int add_blob(void *arg, const struct blob_entry *x, struct err *err UNUSED)
{
	struct holding *h = FROM_VOID(struct holding, arg, HOLDING_MAGIC);

	h->files++;
	h->bytes += (int64_t)x->taken;
	return 0;
}

static int add_partial(void *arg, int dirfd, const char *name, struct err *err UNUSED)
{
	struct holding *h = FROM_VOID(struct holding, arg, HOLDING_MAGIC);
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    !blob_tmp_reserved(h->b, name))
		h->partial += blob_taken(&st);
	return 0;
}

/* One that is not there yet is empty. */
static int measure_folder(struct blobs *b, unsigned i, struct err *err)
{
	struct blob_folder *f = &b->counts->folder[i];
	struct holding h = {.magic = HOLDING_MAGIC, .b = b};
	struct listing l = {LISTING_MAGIC, b, BLOBS_BLOB, add_blob, &h};
	char path[BLOB_PATH_CAP];
	int rc;

	FMT(path, "blobs/sha256/%02x", i);
	lock_take(&f->lock);
	rc = blob_each_name(b, path, list_one, &l, err);
	if (rc < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		rc = 0;
	}
	if (rc == 0)
		count(b->counts, f, h.files - f->files, h.bytes - f->bytes);
	lock_give(&f->lock);
	return rc;
}

static int measure(struct blobs *b, struct err *err)
{
	int64_t begun_ms = clock_mono_ms(), now_ms;

	for (unsigned i = 0; i < FOLDERS; i++)
		if (measure_folder(b, i, err) < 0)
			return -1;
	now_ms = clock_mono_ms();
	atomic_store(&b->counts->took_ms, now_ms - begun_ms);
	atomic_store(&b->counts->measured_ms, now_ms);
	return 0;
}

static bool is_measured(const struct blob_counts *c, int64_t age_ms)
{
	int64_t at_ms = atomic_load(&c->measured_ms);

	if (at_ms == NEVER || age_ms == BLOBS_HELD_NOW)
		return false;
	return clock_mono_ms() - at_ms < MAX(age_ms, MEASURE_SHARE * atomic_load(&c->took_ms));
}

/* Temporary files first: one that becomes a blob meanwhile counts twice rather than never. */
int blobs_held(struct blobs *b, int64_t age_ms, struct blobs_held *out, struct err *err)
{
	struct holding h = {.magic = HOLDING_MAGIC, .b = b};

	if (blob_each_name(b, "tmp", add_partial, &h, err) < 0 ||
	    (!is_measured(b->counts, age_ms) && measure(b, err) < 0))
		return -1;
	*out = (struct blobs_held){
		.files = (uint64_t)MAX(atomic_load(&b->counts->files), (int64_t)0),
		.bytes = (uint64_t)MAX(atomic_load(&b->counts->bytes), (int64_t)0),
		.partial = h.partial,
	};
	return 0;
}
