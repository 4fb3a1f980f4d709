/*
 * tree_quarantine.c - trees with a damaged file: nobody is given one again, and whoever has it
 * mounted keeps it until he gives his lease back. The lease file moves with the tree: its lock says
 * when.
 */
#include "store/blobs/tree_inner.h"

#include "base/clock.h"
#include "base/seal.h"
#include "store/blobs/lease.h"

#include <sys/file.h>

#define QUARANTINE_PATH_CAP 128
#define QUARANTINE_ID 8
#define QUARANTINE_STEP_MS 20
#define QUARANTINE_WAIT_MS                                                                         \
	(60 * 1000) /* for one who makes it: linking takes less; a copy is verified                \
	             */

/* In this order a kill in between leaves what tree_sweep_quarantine ends. */
static int move_to_quarantine(struct node_cache *c, const char *hex, struct err *err)
{
	char tree[QUARANTINE_PATH_CAP], lease[QUARANTINE_PATH_CAP], quarantine[QUARANTINE_PATH_CAP],
		lock[QUARANTINE_PATH_CAP + 8];
	char id[QUARANTINE_ID + 1];

	seal_id(id, QUARANTINE_ID);
	FMT(tree, "trees/%s", hex);
	FMT(lease, "leases/%s.lease", hex);
	FMT(quarantine, TREE_DAMAGED "/%s-%s", hex, id);
	FMT(lock, "%s.lease", quarantine);
	if (linkat(c->fd, lease, c->fd, lock, 0) < 0)
		return err_errno(err, errno, "%s/%s", c->dir, lock);
	/* moving a folder rewrites its "..": it has to be writable */
	if (fchmodat(c->fd, tree, 0755, 0) < 0 || renameat(c->fd, tree, c->fd, quarantine) < 0)
		return err_errno(err, errno, "%s/%s", c->dir, tree);
	if (unlinkat(c->fd, lease, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "%s/%s", c->dir, lease);
	return fs_sync_dir(c->fd, "trees", err);
}

int node_cache_quarantine(struct node_cache *c, const struct digest *manifest, bool *held,
                          struct err *err)
{
	int64_t until = clock_mono_ms() + QUARANTINE_WAIT_MS;
	char hex[HASH_HEX_CAP];

	*held = false;
	digest_hex(manifest, hex);
	/* No tree that is made from now on is given the damaged file. */
	if (tree_sweep_blobs(c, true, err) < 0)
		return -1;
	while (tree_exists(c, "trees", hex) || tree_exists(c, "tmp", hex)) {
		AUTO_FD int lease = lease_try(c->fd, hex, LOCK_EX, err);

		if (lease >= 0)
			return tree_remove(c, hex, err);
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err);
		*held = tree_exists(c, "trees", hex);
		if (*held)
			return move_to_quarantine(c, hex, err);
		if (clock_mono_ms() > until) /* it may have linked the damaged file already */
			return err_set(err, ERR_BUSY, "tree %s is being built from damaged files",
			               hex);
		clock_sleep_ms(QUARANTINE_STEP_MS);
	}
	return 0;
}

/* The last file got its name in the folder then: nothing is added to a tree, nor taken from it. */
static bool is_older(struct node_cache *c, const char *hex, int64_t before_ms)
{
	char path[QUARANTINE_PATH_CAP];
	struct stat st;

	FMT(path, "trees/%s", hex);
	return fstatat(c->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       clock_ns_of(st.st_mtim.tv_sec, st.st_mtim.tv_nsec) / 1000000 < before_ms;
}

int node_cache_renew(struct node_cache *c, const struct digest *manifest, int64_t before_ms,
                     bool *held, struct err *err)
{
	char hex[HASH_HEX_CAP];

	*held = false;
	digest_hex(manifest, hex);
	return is_older(c, hex, before_ms) ? node_cache_quarantine(c, manifest, held, err) : 0;
}

static bool same_file(int a, int dirfd, const char *path)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstatat(dirfd, path, &y, AT_SYMLINK_NOFOLLOW) == 0 &&
	       x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* name: "<hex>-<id>.lease" */
static int sweep(void *of, int dirfd UNUSED, const char *name, struct err *err)
{
	struct node_cache *c = FROM_VOID(struct node_cache, of, NODE_CACHE_MAGIC);
	char lock[QUARANTINE_PATH_CAP], tree[QUARANTINE_PATH_CAP], lease[QUARANTINE_PATH_CAP],
		hex[HASH_HEX_CAP];
	AUTO_FD int fd = -1;

	if (strlen(name) != 64 + 1 + QUARANTINE_ID + strlen(".lease") ||
	    !str_ends(str_of(name), ".lease"))
		return 0; /* a tree: it goes with its lease */
	FMT(lock, TREE_DAMAGED "/%s", name);
	FMT(tree, "%.*s", (int)(strlen(lock) - strlen(".lease")), lock);
	FMT(hex, "%.64s", name);
	FMT(lease, "leases/%s.lease", hex);
	fd = openat(c->fd, lock, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s/%s", c->dir, lock);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		/* killed between the two steps: the name of the lease stands in the way of a new
		 * tree */
		if (!tree_exists(c, "trees", hex) && same_file(fd, c->fd, lease))
			(void)unlinkat(c->fd, lease, 0);
		return 0;
	}
	if (tree_remove_folder(c, tree, err) < 0)
		return -1;
	if (unlinkat(c->fd, lock, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "%s/%s", c->dir, lock);
	return 0;
}

int tree_sweep_quarantine(struct node_cache *c, struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(c->fd, TREE_DAMAGED, O_RDONLY | O_DIRECTORY, 0, err);

	return fd < 0 ? -1 : fs_each_name(TAKE_FD(fd), TREE_DAMAGED, sweep, c, err);
}
