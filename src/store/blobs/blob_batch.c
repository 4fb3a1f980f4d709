/* blob_batch.c - see blob_batch.h. One lock, for the group that is being filled; no I/O under it.
 */
#include "store/blobs/blob_batch.h"
#include "store/blobs/blob_impl.h"

#include "base/seal.h"

#include "base/sync.h"
#include <stdatomic.h>

#define GROUP_FILES 2048
#define GROUP_BYTES ((uint64_t)64 << 20)
/* So few are synced one by one: syncfs() would wait for everything else that is dirty there. */
#define SYNC_EACH_MAX 32
#define SHARDS 256

struct group {
	struct {
		struct digest d;
		uint64_t number; /* of its temporary name */
	} file[GROUP_FILES];
	size_t n;
	uint64_t bytes;
};

struct blob_batch {
	struct blobs *blobs;
	struct blob_pins *pins; /* of the temporary files */
	struct lock lock;
	struct group *group;
	_Atomic uint64_t number; /* of the next file; begins at random, others write there, too */
	bool dirty[SHARDS];      /* folders with names that may not be on the disk yet */
	_Atomic uint64_t files;
};

/* What is true whenever the lock is free: a full group leaves at once. */
static void batch_check(const struct blob_batch *bb)
{
	const struct group *g = bb->group;

	assert(g != NULL && lock_is_mine(&bb->lock));
	assert(g->n < GROUP_FILES && g->bytes < GROUP_BYTES && (g->n > 0 || g->bytes == 0));
}

static void tmp_name(uint64_t number, char out[64])
{
	fmt_fixed(out, 64, "tmp/" BLOB_BATCH "%016" PRIx64, number);
}

struct blob_batch *blob_batch_new(struct blobs *b)
{
	struct blob_batch *bb = xcalloc(1, sizeof(*bb));
	uint64_t start;

	bb->blobs = b;
	bb->pins = blob_pins_new(b);
	seal_random(&start, sizeof(start));
	atomic_init(&bb->number, start);
	bb->group = xcalloc(1, sizeof(*bb->group));
	lock_init(&bb->lock, LOCK_BLOB_BATCH);
	return bb;
}

static void drop_group(struct blob_batch *bb, struct group *g, size_t from)
{
	char name[64];

	assert(from <= g->n && g->n <= GROUP_FILES);
	for (size_t i = from; i < g->n; i++) {
		tmp_name(g->file[i].number, name);
		(void)unlinkat(blobs_dirfd(bb->blobs), name, 0);
	}
	free(g);
}

void blob_batch_free(struct blob_batch *bb)
{
	if (bb == NULL)
		return;
	drop_group(bb, bb->group, 0);
	blob_pins_free(bb->pins);
	lock_done(&bb->lock);
	free(bb);
}

/* --- one group to the disk ------------------------------------------------------------------- */

static int sync_each(struct blob_batch *bb, const struct group *g, struct err *err)
{
	char name[64];

	for (size_t i = 0; i < g->n; i++) {
		AUTO_FD int fd = -1;

		tmp_name(g->file[i].number, name);
		fd = openat(blobs_dirfd(bb->blobs), name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || fsync(fd) < 0)
			return err_errno(err, errno, "%s", name);
	}
	return 0;
}

/* Leaves errno. */
static bool same_size(int dirfd, const char *a, const char *b)
{
	struct stat x, y;
	int e = errno;
	bool same = fstatat(dirfd, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	            fstatat(dirfd, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_size == y.st_size;

	errno = e;
	return same;
}

static int rename_one(struct blob_batch *bb, const char *name, const struct digest *d,
                      struct err *err)
{
	int dirfd = blobs_dirfd(bb->blobs);
	char to[BLOB_PATH_CAP], shard[32];

	blob_path(d, to);
	FMT(shard, "blobs/sha256/%02x", d->b[0]);
	for (int i = 0; i < 2; i++) {
		if (blob_name(bb->blobs, name, d, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno == EEXIST && same_size(dirfd, name, to)) {
			(void)unlinkat(dirfd, name, 0); /* trees may link to it: it stays */
			return 0;
		}
		/* it was cut; or here that flag does not work, and the contents are the same */
		if (errno == EEXIST || errno == EINVAL)
			return blob_name(bb->blobs, name, d, 0) == 0
			               ? 0
			               : err_errno(err, errno, "%s", to);
		if (errno != ENOENT || (mkdirat(dirfd, shard, 0755) < 0 && errno != EEXIST))
			break;
	}
	return err_errno(err, errno, "%s", to);
}

/* Takes g over. */
static int publish_group(struct blob_batch *bb, struct group *g, struct err *err)
{
	char name[64];

	if (g->n > SYNC_EACH_MAX ? syncfs(blobs_dirfd(bb->blobs)) < 0 : sync_each(bb, g, err) < 0) {
		drop_group(bb, g, 0);
		return err->code != ERR_NONE ? -1 : err_errno(err, errno, "sync small blobs");
	}
	for (size_t i = 0; i < g->n; i++) {
		tmp_name(g->file[i].number, name);
		if (rename_one(bb, name, &g->file[i].d, err) < 0) {
			drop_group(bb, g, i);
			return -1;
		}
	}
	lock_take(&bb->lock);
	for (size_t i = 0; i < g->n; i++)
		bb->dirty[g->file[i].d.b[0]] = true;
	lock_give(&bb->lock);
	free(g);
	return 0;
}

static int sync_names(struct blob_batch *bb, struct err *err)
{
	int dirfd = blobs_dirfd(bb->blobs);
	char shard[32];

	if (atomic_load(&bb->files) > SYNC_EACH_MAX)
		return syncfs(dirfd) < 0 ? err_errno(err, errno, "sync small blobs") : 0;
	for (unsigned i = 0; i < SHARDS; i++) {
		FMT(shard, "blobs/sha256/%02x", i);
		if (bb->dirty[i] && fs_sync_dir(dirfd, shard, err) < 0)
			return -1;
	}
	return fs_sync_dir(dirfd, "blobs/sha256", err);
}

/* --- for callers ----------------------------------------------------------------------------- */

static int write_tmp(struct blob_batch *bb, uint64_t number, const void *p, size_t n,
                     struct err *err)
{
	AUTO_FD int fd = -1;
	char name[64];

	tmp_name(number, name);
	blob_pins_add_tmp(bb->pins, strrchr(name, '/') + 1);
	fd = openat(blobs_dirfd(bb->blobs), name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return err_errno(err, errno, "%s", name);
	if (fs_write_all(fd, p, n, err) == 0) {
		if (fchmod(fd, 0444) == 0) /* whatever the umask is */
			return 0;
		(void)err_errno(err, errno, "%s", name);
	}
	(void)unlinkat(blobs_dirfd(bb->blobs), name, 0);
	return -1;
}

int blob_batch_add(struct blob_batch *bb, const void *p, size_t n, const struct digest *d,
                   struct err *err)
{
	uint64_t number = atomic_fetch_add(&bb->number, 1);
	struct group *full = NULL, *g;

	if (write_tmp(bb, number, p, n, err) < 0)
		return -1;
	atomic_fetch_add(&bb->files, 1);
	lock_take(&bb->lock);
	batch_check(bb);
	g = bb->group;
	g->file[g->n].d = *d;
	g->file[g->n++].number = number;
	g->bytes += n;
	if (g->n == GROUP_FILES || g->bytes >= GROUP_BYTES) {
		full = g;
		bb->group = xcalloc(1, sizeof(*bb->group));
	}
	batch_check(bb);
	lock_give(&bb->lock);
	return full != NULL ? publish_group(bb, full, err) : 0;
}

int blob_batch_publish(struct blob_batch *bb, struct err *err)
{
	struct group *last = bb->group;

	if (atomic_load(&bb->files) == 0)
		return 0;
	bb->group = xcalloc(1, sizeof(*bb->group));
	if (publish_group(bb, last, err) < 0 || sync_names(bb, err) < 0)
		return -1;
	memset(bb->dirty, 0, sizeof(bb->dirty));
	atomic_store(&bb->files, 0);
	return 0;
}
