/* tree_check.c - a node cache's trees against their manifests; see tree.h. */
#include "store/tree_inner.h"

#include "store/lease.h"
#include "store/usage.h"

#include <sys/file.h>

struct checking {
	struct node_cache *c;
	struct blobs *from;
	bool deep;
};

struct names {
	uint64_t files[USAGE_THREADS_MAX];
};

static void count_name(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct names *n = arg;

	n->files[slot] += S_ISREG(e->mode);
}

static int check_file(int root, const struct manifest_file *f, bool deep, struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(root, f->path, O_RDONLY | O_NOFOLLOW, 0, err);
	struct digest got;
	uint64_t bytes;
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", f->path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size)
		return err_set(err, ERR_CORRUPT, "%s is not a file of %" PRIu64 " bytes", f->path,
		               f->size);
	if (!deep)
		return 0;
	if (hash_fd(fd, &got, &bytes, err) < 0)
		return err_wrap(err, "%s", f->path);
	if (!digest_same(&got, &f->sha256))
		return err_set(err, ERR_CORRUPT, "%s does not hold what the manifest says",
		               f->path);
	return 0;
}

static int check_tree(struct checking *k, struct arena *a, const char *hex, struct err *err)
{
	AUTO_FREE char *dir = xasprintf("%s/trees/%s", k->c->dir, hex);
	AUTO_FD int root = -1;
	struct names names = {0};
	struct usage_total total;
	struct manifest list;
	struct digest d;
	uint64_t files = 0;

	if (digest_parse(str_of(hex), &d, err) < 0)
		return -1;
	if (blobs_get_manifest(k->from, a, &d, &list, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* its source was deleted: the tree goes when room is needed */
		return 0;
	}
	root = fs_open_dir(dir, err);
	if (root < 0)
		return -1;
	for (size_t i = 0; i < list.n; i++)
		if (check_file(root, &list.file[i], k->deep, err) < 0)
			return -1;
	if (usage_walk(dir, 0, count_name, &names, NULL, &total, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(names.files); i++)
		files += names.files[i];
	if (files != list.n)
		return err_set(err, ERR_CORRUPT, "%" PRIu64 " files where the manifest has %zu",
		               files, list.n);
	return 0;
}

static int check_one(void *arg, const char *hex, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct checking *k = arg;
	AUTO_FD int lease = lease_try(k->c->fd, hex, LOCK_SH, err);

	if (lease < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err); /* it is being evicted */
		return 0;
	}
	if (!tree_exists(k->c, "trees", hex))
		return 0;
	if (check_tree(k, a, hex, err) < 0)
		return err_wrap(err, "tree %s", hex);
	return 0;
}

int node_cache_check(struct node_cache *c, struct blobs *from, bool deep, struct err *err)
{
	struct checking k = {.c = c, .from = from, .deep = deep};

	return tree_each(c, "trees", "", check_one, &k, err);
}
