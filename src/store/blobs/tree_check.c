/* tree_check.c - a node cache's trees against their manifests; see tree.h. */
#include "store/blobs/tree_inner.h"

#include "store/common/copy.h"
#include "store/blobs/lease.h"
#include "store/common/usage.h"

#include <sys/file.h>

struct checking {
	unsigned magic;
#define CHECKING_MAGIC 0x53434845U
	struct node_cache *c;
	const struct tree_from *from;
	bool deep;
};

struct names {
	unsigned magic;
#define NAMES_MAGIC 0x534e414dU
	uint64_t files[USAGE_THREADS_MAX];
};

static void count_name(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct names *n = FROM_VOID(struct names, arg, NAMES_MAGIC);

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
		return err_set(err, ERR_CORRUPT, "the content of %s does not match the manifest",
		               f->path);
	return 0;
}

/* Is trees/<hex> one that a program made? */
static bool is_built(struct node_cache *c, const char *hex)
{
	char path[128];

	FMT(path, "trees/%s", hex);
	return tree_is_built(c, path);
}

static int open_tree_folder(struct node_cache *c, const char *hex, struct err *err)
{
	char path[128];

	FMT(path, "trees/%s", hex);
	return fs_open_beneath(c->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
}

static int check_tree(struct checking *k, struct arena *a, const char *hex, struct err *err)
{
	AUTO_FD int root = -1;
	struct names names = {.magic = NAMES_MAGIC};
	struct usage_total total;
	struct manifest list;
	struct digest d;
	uint64_t files = 0;

	if (is_built(k->c, hex))
		return tree_verify_built(k->c, hex, k->deep, NULL, NULL, err);
	if (digest_parse(str_of(hex), &d, err) < 0)
		return -1;
	if (tree_manifest(k->from, a, &d, &list, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* its source was deleted: the tree goes when room is needed */
		return 0;
	}
	root = open_tree_folder(k->c, hex, err);
	if (root < 0)
		return -1;
	for (size_t i = 0; i < list.n; i++)
		if (check_file(root, &list.file[i], k->deep, err) < 0)
			return -1;
	if (usage_walk_at(root, hex, 0, count_name, &names, NULL, &total, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(names.files); i++)
		files += names.files[i];
	if (files != list.n)
		return err_set(err, ERR_CORRUPT, "%" PRIu64 " files; the manifest lists %zu", files,
		               list.n);
	return 0;
}

static int check_one(void *arg, const char *hex, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct checking *k = FROM_VOID(struct checking, arg, CHECKING_MAGIC);
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

/* Is this file another name of the blob? Then it holds what the blob holds. */
static bool is_blob(int dirfd, const struct tree_from *from, const struct stat *st,
                    const struct digest *d)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct stat blob;

	return from->blobs != NULL &&
	       fstatat(dirfd, blobs_path(from->blobs, d, a), &blob, AT_SYMLINK_NOFOLLOW) == 0 &&
	       blob.st_ino == st->st_ino && blob.st_dev == st->st_dev;
}

struct looking {
	unsigned magic;
#define LOOKING_MAGIC 0x534c4f49U
	struct node_cache *c;
	const struct tree_from *from;
	int (*fn)(void *arg, const struct node_tree *t, struct err *err);
	void *arg;
};

/* Sizes of what the manifest lists; of a tree whose manifest is gone, of what is there. */
static int measure(struct looking *l, const char *hex, struct node_tree *t, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int root = open_tree_folder(l->c, hex, err);
	struct usage_total total = {0};
	struct manifest list;

	if (root < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* evicted meanwhile */
		return 0;
	}
	t->built = is_built(l->c, hex);
	if (t->built) {
		if (tree_built_sum(l->c, hex, &t->alone, err) < 0)
			err_clear(err); /* evicted, or damaged: who wants it finds that out */
		t->copied = t->alone;
		return 0;
	}
	if (tree_manifest(l->from, a, &t->manifest, &list, err) < 0) {
		err_clear(err);
		if (usage_walk_at(root, hex, 1, NULL, NULL, NULL, &total, err) < 0) {
			if (err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err);
		}
		t->alone = t->copied = total.bytes;
		return 0;
	}
	for (size_t i = 0; i < list.n; i++) {
		struct stat st;

		if (fstatat(root, list.file[i].path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		t->alone += st.st_nlink == 1 ? (uint64_t)st.st_size : 0;
		if (!is_blob(root, l->from, &st, &list.file[i].sha256))
			t->copied += (uint64_t)st.st_size;
	}
	return 0;
}

/* The lease is only tried: whoever wants the tree, or its room, need not wait for the measuring. */
static int look_at(void *arg, const char *hex, struct err *err)
{
	struct looking *l = FROM_VOID(struct looking, arg, LOOKING_MAGIC);
	struct node_tree t = {0};
	struct stat st;
	char path[128];
	AUTO_FD int lease = lease_try(l->c->fd, hex, LOCK_EX, err);

	if (lease < 0 && err->code != ERR_BUSY)
		return -1;
	t.held = lease < 0;
	err_clear(err);
	if (!tree_exists(l->c, "trees", hex)) /* evicted: nor stays its lease */
		return t.held ? 0 : tree_remove(l->c, hex, err);
	if (lease >= 0)
		(void)close(TAKE_FD(lease));
	FMT(path, "leases/%s.lease", hex);
	if (fstatat(l->c->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		t.used_ms = st.st_mtim.tv_sec * 1000;
	if (digest_parse(str_of(hex), &t.manifest, err) < 0 || measure(l, hex, &t, err) < 0)
		return err_wrap(err, "tree %s", hex);
	return l->fn(l->arg, &t, err);
}

int node_cache_each(struct node_cache *c, const struct tree_from *from,
                    int (*fn)(void *arg, const struct node_tree *t, struct err *err), void *arg,
                    struct err *err)
{
	struct looking l = {LOOKING_MAGIC, c, from, fn, arg};

	return tree_each(c, "trees", "", look_at, &l, err);
}

static int verify_file(int root, const struct tree_from *from, const struct manifest_file *f,
                       int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                       struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(root, f->path, O_RDONLY | O_NOFOLLOW, 0, err);
	struct digest got;
	struct stat st;

	if (fd < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		return err_set(err, ERR_CORRUPT, "%s is missing", f->path);
	}
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", f->path);
	if (is_blob(root, from, &st, &f->sha256))
		return 0;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size)
		return err_set(err, ERR_CORRUPT, "%s is not the file that the manifest names",
		               f->path);
	copy_drop(fd); /* what the disk holds is asked */
	if (hash_fd_steps(fd, step, arg, &got, NULL, err) < 0)
		return err_wrap(err, "%s", f->path);
	copy_drop(fd);
	if (!digest_same(&got, &f->sha256))
		return err_set(err, ERR_CORRUPT, "the content of %s does not match the manifest",
		               f->path);
	return 0;
}

/* Is the tree of this name still the folder that was opened? An evictor takes its name first. */
static bool is_there(struct node_cache *c, const char *hex, int root)
{
	struct stat opened, named;
	char path[128];

	FMT(path, "trees/%s", hex);
	return fstat(root, &opened) == 0 &&
	       fstatat(c->fd, path, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* Without the lease, which would keep the tree from being evicted for as long as that takes: what a
 * tree holds never changes. */
int node_cache_verify(struct node_cache *c, const struct tree_from *from,
                      const struct digest *manifest,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int root = -1;
	struct manifest list;
	char hex[HASH_HEX_CAP];

	digest_hex(manifest, hex);
	if (!tree_exists(c, "trees", hex))
		return 0;
	if (is_built(c, hex)) {
		if (tree_verify_built(c, hex, true, step, arg, err) == 0)
			return 0;
		if (err->code == ERR_CANCELED || tree_exists(c, "trees", hex))
			return err_wrap(err, "tree %s", hex);
		err_clear(err);
		return 0; /* evicted meanwhile */
	}
	if (tree_manifest(from, a, manifest, &list, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* nothing says what it should hold; no job is given it */
		return 0;
	}
	root = open_tree_folder(c, hex, err);
	for (size_t i = 0; root >= 0 && i < list.n; i++) {
		if (verify_file(root, from, &list.file[i], step, arg, err) == 0)
			continue;
		if (err->code == ERR_CANCELED || is_there(c, hex, root))
			return err_wrap(err, "tree %s", hex);
		err_clear(err);
		return 0; /* evicted meanwhile */
	}
	if (root >= 0 || err->code != ERR_NOT_FOUND)
		return root >= 0 ? 0 : -1;
	err_clear(err);
	return 0;
}

int node_cache_check(struct node_cache *c, const struct tree_from *from, bool deep, struct err *err)
{
	struct checking k = {.magic = CHECKING_MAGIC, .c = c, .from = from, .deep = deep};

	return tree_each(c, "trees", "", check_one, &k, err);
}
