/*
 * tree_fetch.c - the files of a tree that no folder on this machine has, from the object store.
 *
 * A file is written in the tree that is being made, and gets its name among the cache's blobs when
 * it is complete, verified and synced: from then on it has two names at least, until the last tree
 * that has it goes. So a blob with one name is nobody's, whoever is looking, and no lock is needed:
 * a sweep that meets a maker takes the name of a file that the maker's tree has, which costs a
 * fetch at another time and no more.
 */
#include "store/blobs/tree_inner.h"

#include "store/blobs/blob_objects.h"
#include "store/common/copy.h"
#include "store/common/crew.h"
#include "store/objects/objstore_fetch.h"

#define STREAMS 16
#define SYNC_EACH_MAX 32                    /* more small files are synced at once */
#define SYNC_EACH_BYTES ((uint64_t)1 << 20) /* larger ones each by the thread that wrote it */
#define NAME_CAP 80                         /* "blobs/ab/<64>" */

static void name_of(const struct digest *d, char out[NAME_CAP])
{
	char hex[HASH_HEX_CAP];

	digest_hex(d, hex);
	fmt_fixed(out, NAME_CAP, TREE_BLOBS "/%.2s/%s", hex, hex);
}

bool tree_link_own(struct node_cache *c, const struct digest *d, int root, const char *path)
{
	char name[NAME_CAP];

	name_of(d, name);
	return linkat(c->fd, name, root, path, 0) == 0;
}

/* One more name, if it may have one: without it the next tree fetches again, and that is all. */
static void share(struct node_cache *c, const struct digest *d, int root, const char *path)
{
	char name[NAME_CAP];

	name_of(d, name);
	if (linkat(root, path, c->fd, name, 0) == 0 || errno != ENOENT)
		return;
	*strrchr(name, '/') = '\0';
	if (mkdirat(c->fd, name, 0755) == 0 || errno == EEXIST) {
		name_of(d, name);
		(void)(linkat(root, path, c->fd, name, 0) == 0);
	}
}

struct fetching {
	unsigned magic;
#define FETCHING_MAGIC 0x53464543U
	const struct tree_fetch *f;
	const struct manifest_file **file; /* by content */
	size_t *first;                     /* those that differ, the largest first */
	size_t n_first;
	unsigned streams; /* of each */
	bool sync_at_end; /* small files */
	_Atomic uint64_t done;
};

static bool synced_at_end(const struct fetching *g, const struct manifest_file *file)
{
	return g->sync_at_end && file->size <= SYNC_EACH_BYTES;
}

static int fetch_into(struct fetching *g, const struct manifest_file *file, int fd,
                      const atomic_bool *stop, struct err *err)
{
	const struct tree_fetch *f = g->f;
	struct crew_share share = {.magic = CREW_SHARE_MAGIC, .all = &g->done};
	char key[BLOB_KEY_CAP];
	const struct objstore_fetch one = {
		.key = key,
		.size = file->size,
		.sha256 = &file->sha256,
		.fd = fd,
		.streams_max = g->streams,
		.progress = crew_share_at,
		.arg = &share,
		.cancel = stop,
	};

	blob_object_key(&file->sha256, key);
	if (objstore_fetch(f->objects, &one, err) < 0)
		return -1;
	crew_share_at(&share, file->size);
	if (fchmod(fd, 0444) < 0 || (!synced_at_end(g, file) && fsync(fd) < 0))
		return err_errno(err, errno, "%s", file->path);
	return 0;
}

static int fetch_one(void *arg, size_t k, const atomic_bool *stop, struct err *err)
{
	struct fetching *g = FROM_VOID(struct fetching, arg, FETCHING_MAGIC);
	const struct manifest_file *file = g->file[g->first[k]];
	AUTO_FD int fd = openat(g->f->root, file->path,
	                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "%s", file->path);
	if (fetch_into(g, file, fd, stop, err) < 0) {
		if (err->code == ERR_NOT_FOUND)
			return err_wrap(err,
			                "the blob of %s is not in the object store: it was deleted "
			                "there. `stoker cache verify` finds what else is missing, "
			                "and a new push fetches it again",
			                file->path);
		return err_wrap(err, "%s, from the object store", file->path);
	}
	if (!synced_at_end(g, file))
		share(g->f->c, &file->sha256, g->f->root, file->path);
	return 0;
}

static int by_content(const void *a, const void *b)
{
	const struct manifest_file *x = *(const struct manifest_file *const *)a,
				   *y = *(const struct manifest_file *const *)b;
	int c = memcmp(x->sha256.b, y->sha256.b, sizeof(x->sha256.b));

	return c != 0 ? c : strcmp(x->path, y->path);
}

static int larger(const void *a, const void *b, void *arg)
{
	const struct fetching *g = FROM_VOID(struct fetching, arg, FETCHING_MAGIC);
	size_t i = *(const size_t *)a, k = *(const size_t *)b;
	uint64_t x = g->file[i]->size, y = g->file[k]->size;

	return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

/* Files of the same content are fetched once. */
static void plan(struct fetching *g)
{
	const struct tree_fetch *f = g->f;
	size_t large = 0;

	memcpy(g->file, f->file, f->n * sizeof(const struct manifest_file *));
	qsort(g->file, f->n, sizeof(const struct manifest_file *), by_content);
	for (size_t i = 0; i < f->n; i++) {
		if (i > 0 && digest_same(&g->file[i - 1]->sha256, &g->file[i]->sha256))
			continue;
		g->first[g->n_first++] = i;
		large += g->file[i]->size > SYNC_EACH_BYTES;
	}
	qsort_r(g->first, g->n_first, sizeof(*g->first), larger, g);
	g->sync_at_end = g->n_first - large > SYNC_EACH_MAX;
	g->streams = (unsigned)MAX(1U, STREAMS / MIN(MAX(large, (size_t)1), (size_t)STREAMS));
}

static int copy_same(struct fetching *g, const char *from, const struct manifest_file *to,
                     struct err *err)
{
	AUTO_FD int in = openat(g->f->root, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD int out = openat(g->f->root, to->path,
	                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	const struct copy_job job = {
		.from = in, .to = out, .size = to->size, .cancel = g->f->cancel};

	if (in < 0 || out < 0)
		return err_errno(err, errno, "%s", to->path);
	if (copy_run(&job, err) < 0)
		return err_wrap(err, "%s", to->path);
	return fsync(out) < 0 ? err_errno(err, errno, "%s", to->path) : 0;
}

/* The others of the same content. A file has so many names and no more: then bytes. */
static int link_same(struct fetching *g, struct err *err)
{
	const char *from = NULL;

	for (size_t i = 0; i < g->f->n; i++) {
		const struct manifest_file *to = g->file[i];

		if (i == 0 || !digest_same(&g->file[i - 1]->sha256, &to->sha256)) {
			from = to->path;
			continue;
		}
		if (linkat(g->f->root, from, g->f->root, to->path, 0) < 0) {
			if (errno != EMLINK && errno != EPERM)
				return err_errno(err, errno, "link %s to %s", to->path, from);
			if (copy_same(g, from, to, err) < 0)
				return -1;
		}
		atomic_fetch_add(&g->done, to->size);
	}
	return 0;
}

static int sync_small(struct fetching *g, struct err *err)
{
	if (!g->sync_at_end)
		return 0;
	if (syncfs(g->f->c->fd) < 0)
		return err_errno(err, errno, "sync %s", g->f->c->dir);
	for (size_t k = 0; k < g->n_first; k++) {
		const struct manifest_file *file = g->file[g->first[k]];

		if (synced_at_end(g, file))
			share(g->f->c, &file->sha256, g->f->root, file->path);
	}
	return 0;
}

static void tell(void *arg)
{
	struct fetching *g = FROM_VOID(struct fetching, arg, FETCHING_MAGIC);

	if (g->f->progress != NULL)
		g->f->progress(g->f->arg, atomic_load(&g->done));
}

int tree_fetch(const struct tree_fetch *f, struct err *err)
{
	AUTO_FREE const struct manifest_file **file =
		xcalloc(f->n + 1, sizeof(const struct manifest_file *));
	AUTO_FREE size_t *first = xcalloc(f->n + 1, sizeof(*first));
	struct fetching g = {.magic = FETCHING_MAGIC, .f = f, .file = file, .first = first};
	struct crew_job crew = {
		.threads = STREAMS, .run = fetch_one, .tick = tell, .arg = &g, .cancel = f->cancel};

	if (f->n == 0)
		return 0;
	plan(&g);
	crew.n = g.n_first;
	if (crew_run(&crew, err) < 0 || sync_small(&g, err) < 0 || link_same(&g, err) < 0)
		return -1;
	tell(&g);
	return 0;
}

/* --- sweeping -------------------------------------------------------------------------------- */

struct sweep {
	unsigned magic;
#define SWEEP_MAGIC 0x53535750U
	struct node_cache *c;
	bool all;
};

static int sweep_blob(void *arg, int dirfd, const char *name, struct err *err)
{
	const struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    (!s->all && st.st_nlink > 1))
		return 0;
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "%s/" TREE_BLOBS "/%s", s->c->dir, name);
	return 0;
}

static int sweep_folder(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	const struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);
	char folder[NAME_CAP];
	AUTO_FD int fd = -1;

	if (strlen(name) != 2)
		return 0;
	FMT(folder, TREE_BLOBS "/%s", name);
	fd = fs_open_beneath(s->c->fd, folder, O_RDONLY | O_DIRECTORY, 0, err);
	return fd < 0 ? -1 : fs_each_name(TAKE_FD(fd), folder, sweep_blob, arg, err);
}

int tree_sweep_blobs(struct node_cache *c, bool all, struct err *err)
{
	struct sweep s = {SWEEP_MAGIC, c, all};
	AUTO_FD int fd = fs_open_beneath(c->fd, TREE_BLOBS, O_RDONLY | O_DIRECTORY, 0, err);

	if (fd < 0)
		return -1;
	return fs_each_name(TAKE_FD(fd), TREE_BLOBS, sweep_folder, &s, err);
}
