/*
 * tree_make.c - a tree in tmp/, from what the cache has, what a folder on this machine has (ours,
 * or one whose owner links for us), and the object store, in this order; then it gets its name.
 */
#include "store/blobs/tree_inner.h"

#include "store/blobs/blob_objects.h"
#include "store/common/copy.h"

#define TREE_STEP ((uint64_t)64 << 20) /* bytes between two words of progress, when linking */
#define TREE_NAME_CAP 80

struct making {
	unsigned magic;
#define MAKING_MAGIC 0x534d414eU
	struct node_cache *c;
	struct tree_want *want;
	int root; /* tmp/<manifest> */
	uint64_t done, total, told;
	/* Files that nothing on this machine has; the making's. */
	const struct manifest_file **missing;
	size_t n_missing;
};

static void on_copy(void *arg, uint64_t bytes)
{
	struct making *m = FROM_VOID(struct making, arg, MAKING_MAGIC);

	if (m->want->progress != NULL)
		m->want->progress(m->want->arg, m->done + bytes, m->total);
}

/* A range that begins anew takes back what it had told: that is not shown. */
static void on_fetch(void *arg, uint64_t bytes)
{
	struct making *m = FROM_VOID(struct making, arg, MAKING_MAGIC);
	uint64_t done = MIN(m->done + bytes, m->total);

	if (m->want->progress == NULL || done <= m->told)
		return;
	m->told = done;
	m->want->progress(m->want->arg, done, m->total);
}

/* Another file system, or no more links to be had: bytes, and what they hash to. */
static int copy_from(struct making *m, const struct manifest_file *f, int from, uint64_t size,
                     struct err *err)
{
	AUTO_FD int to = -1;
	struct digest got;
	struct copy_job job = {
		.from = from,
		.size = f->size,
		.sha256 = &got,
		.drop_from = true, /* what will be read again is the copy */
		.progress = on_copy,
		.arg = m,
		.cancel = m->want->cancel,
	};

	to = openat(m->root, f->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (to < 0)
		return err_errno(err, errno, "%s", f->path);
	job.to = to;
	if (copy_run(&job, err) < 0)
		return err_wrap(err, "%s", f->path);
	if (size != f->size || !digest_same(&got, &f->sha256))
		return err_set(err, ERR_CORRUPT,
		               "the content of the blob of %s does not match its digest", f->path);
	if (fsync(to) < 0)
		return err_errno(err, errno, "%s", f->path);
	return 0;
}

static int copy_blob(struct making *m, const struct manifest_file *f, struct err *err)
{
	AUTO_FD int from = -1;
	uint64_t size;

	if (blobs_fd(m->want->from->blobs, &f->sha256, &from, &size, err) < 0)
		return -1;
	return copy_from(m, f, from, size, err);
}

static int copy_mirrored(struct making *m, const struct manifest_file *f, const char *key,
                         struct err *err)
{
	AUTO_FD int from = -1;
	struct objstore_info info;

	if (objstore_fd(m->want->from->mirror, key, &from, &info, err) < 0)
		return -1;
	return copy_from(m, f, from, info.size, err);
}

static int no_blob(const struct manifest_file *f, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND,
	               "the blob of %s is no longer in the store: it was quarantined as damaged, "
	               "or deleted. Push the job again to fetch it again",
	               f->path);
}

static void add_done(struct making *m, uint64_t bytes)
{
	m->done += bytes;
	if (m->want->progress != NULL && (m->done - m->told >= TREE_STEP || m->done == m->total)) {
		m->told = m->done;
		m->want->progress(m->want->arg, m->done, m->total);
	}
}

/* *missing: the folder has no such blob. */
static int place_blob(struct making *m, struct arena *a, const struct manifest_file *f,
                      bool *missing, struct err *err)
{
	char *blob = blobs_path(m->want->from->blobs, &f->sha256, a);

	*missing = false;
	if (linkat(AT_FDCWD, blob, m->root, f->path, 0) == 0)
		return 0;
	if (errno != ENOENT && errno != EXDEV && errno != EMLINK && errno != EPERM)
		return err_errno(err, errno, "link %s to %s", f->path, blob);
	if (errno != ENOENT) {
		if (copy_blob(m, f, err) == 0)
			return 0;
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	*missing = true;
	return 0;
}

/* One that was asked for before its server was restarted may have been linked without an answer:
 * the name is in a tree that is ours alone. */
static int link_mirrored(struct making *m, const struct manifest_file *f, const char *key,
                         struct err *err)
{
	const char *slash = strrchr(f->path, '/'), *name = slash == NULL ? f->path : slash + 1;
	AUTO_FREE char *folder =
		slash == NULL ? xstrdup(".") : xstrndup(f->path, (size_t)(slash - f->path));
	AUTO_FD int fd = openat(m->root, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "%s", folder);
	if (objstore_link(m->want->from->mirror, key, fd, name, err) == 0)
		return 0;
	if (err->code != ERR_CONFLICT || unlinkat(fd, name, 0) < 0)
		return -1;
	err_clear(err);
	return objstore_link(m->want->from->mirror, key, fd, name, err);
}

/* One that is away is no reason to fail where another one has the same. */
static int place_mirrored(struct making *m, const struct manifest_file *f, bool *missing,
                          struct err *err)
{
	const struct tree_from *from = m->want->from;
	char key[BLOB_KEY_CAP];

	*missing = false;
	blob_object_key(&f->sha256, key);
	if (link_mirrored(m, f, key, err) == 0)
		return 0;
	if (err->code == ERR_UNSUPPORTED) {
		err_clear(err);
		if (copy_mirrored(m, f, key, err) == 0)
			return 0;
	}
	if (err->code != ERR_NOT_FOUND &&
	    (!err_is_away(err) || from->objects == NULL || from->objects == from->mirror))
		return -1;
	err_clear(err);
	*missing = true;
	return 0;
}

static int place(struct making *m, struct arena *a, const struct manifest_file *f, bool *missing,
                 struct err *err)
{
	*missing = true;
	if (m->want->from->blobs != NULL && place_blob(m, a, f, missing, err) < 0)
		return -1;
	if (*missing && m->want->from->mirror != NULL)
		return place_mirrored(m, f, missing, err);
	return 0;
}

/* Read-only and on disk. Files come in order, so a folder's files stand together. */
static int seal_folder(struct making *m, const char *path, struct err *err)
{
	AUTO_FD int fd = openat(m->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fchmod(fd, 0555) < 0 || fsync(fd) < 0)
		return err_errno(err, errno, "%s", path);
	return 0;
}

/* The folders above `path`, made or (when `seal`) sealed; `last` is the path before it. */
static int folders(struct making *m, const char *last, const char *path, bool seal, struct err *err)
{
	for (const char *s = strchr(path, '/'); s != NULL; s = strchr(s + 1, '/')) {
		size_t n = (size_t)(s - path) + 1;
		AUTO_FREE char *folder = NULL;

		if (last != NULL && strncmp(last, path, n) == 0)
			continue; /* seen with the file before */
		folder = xstrndup(path, n - 1);
		if (seal) {
			if (seal_folder(m, folder, err) < 0)
				return -1;
		} else if (mkdirat(m->root, folder, 0755) < 0 && errno != EEXIST) {
			return err_errno(err, errno, "%s", folder);
		}
	}
	return 0;
}

/* The tree's folders, and those of its files that the cache has already: they take no room.
 * have: which. */
static int begin(struct making *m, const struct manifest *list, bool *have, struct err *err)
{
	const char *last = NULL;

	for (size_t i = 0; i < list->n; i++) {
		const struct manifest_file *f = &list->file[i];

		if (folders(m, last, f->path, false, err) < 0)
			return -1;
		have[i] = tree_link_own(m->c, &f->sha256, m->root, f->path);
		last = f->path;
	}
	return 0;
}

static int place_all(struct making *m, const struct manifest *list, const bool *have,
                     struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; i < list->n; i++) {
		const struct manifest_file *f = &list->file[i];
		bool missing = false;

		if (m->want->cancel != NULL && atomic_load(m->want->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (!have[i] && place(m, a, f, &missing, err) < 0)
			return -1;
		if (missing && m->want->from->objects == NULL)
			return no_blob(f, err);
		if (missing)
			m->missing[m->n_missing++] = f;
		else
			add_done(m, f->size);
		arena_reset(a);
	}
	return 0;
}

static int check_disk(struct making *m, uint64_t need, struct err *err)
{
	uint64_t left, all;

	if (need == 0)
		return 0;
	if (fs_free_bytes(m->c->dir, &left, &all, err) < 0)
		return -1;
	if (left >= need)
		return 0;
	return err_set(
		err, ERR_NO_SPACE,
		"the tree needs %" PRIu64 " bytes, the disk of the node cache %s has %" PRIu64
		" left. Free some space, or give the node cache a smaller budget so that it evicts",
		need, m->c->dir, left);
}

static int fetch_missing(struct making *m, struct err *err)
{
	struct tree_fetch f = {.c = m->c,
	                       .objects = m->want->from->objects,
	                       .root = m->root,
	                       .file = m->missing,
	                       .n = m->n_missing,
	                       .progress = on_fetch,
	                       .arg = m,
	                       .cancel = m->want->cancel};

	for (size_t i = 0; i < m->n_missing; i++)
		m->want->fetched += m->missing[i]->size;
	if (check_disk(m, m->want->fetched, err) < 0 || tree_fetch(&f, err) < 0)
		return -1;
	add_done(m, m->want->fetched);
	return 0;
}

static int seal(struct making *m, const struct manifest *list, struct err *err)
{
	const char *last = NULL;

	for (size_t i = 0; i < list->n; i++) {
		if (folders(m, last, list->file[i].path, true, err) < 0)
			return -1;
		last = list->file[i].path;
	}
	return fsync(m->root) < 0 ? err_errno(err, errno, "fsync") : 0;
}

/* Of the file system that the folder is on; false: nobody can say. */
static bool folder_device(struct making *m, const struct manifest *list, dev_t *out)
{
	const struct tree_from *from = m->want->from;
	char key[BLOB_KEY_CAP];
	struct objstore_info info;
	struct err ignored = {0};
	AUTO_FD int fd = -1;
	struct stat st;

	if (from->blobs != NULL) {
		fd = fcntl(blobs_dirfd(from->blobs), F_DUPFD_CLOEXEC, 0);
	} else if (from->mirror != NULL && list->n > 0) {
		blob_object_key(&list->file[0].sha256, key);
		if (objstore_fd(from->mirror, key, &fd, &info, &ignored) < 0)
			return false;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	*out = st.st_dev;
	return true;
}

/* Where blobs are linked a tree takes no space; where they are copied it must be there. */
static int check_copies(struct making *m, const struct manifest *list, struct err *err)
{
	struct stat here;
	dev_t there;

	if (!folder_device(m, list, &there))
		return 0;
	if (fstat(m->c->fd, &here) < 0)
		return err_errno(err, errno, "%s", m->c->dir);
	return check_disk(m, here.st_dev == there ? 0 : m->total, err);
}

static int fill(struct making *m, const char *hex, int lease, const struct manifest *list,
                struct err *err)
{
	const struct lease_text text = {.bytes = list->bytes, .files = list->n, .uses = 1};
	AUTO_FREE bool *have = xcalloc(list->n + 1, sizeof(*have));
	AUTO_FREE const struct manifest_file **missing =
		xcalloc(list->n + 1, sizeof(const struct manifest_file *));
	int rc;

	m->missing = missing;
	rc = begin(m, list, have, err);
	if (rc == 0)
		rc = tree_reserve(m->c, hex, lease, &text, err);
	if (rc == 0)
		rc = check_copies(m, list, err);
	if (rc == 0)
		rc = place_all(m, list, have, err);
	if (rc == 0)
		rc = fetch_missing(m, err);
	m->missing = NULL;
	return rc == 0 ? seal(m, list, err) : -1;
}

int tree_make(struct node_cache *c, const char *hex, int lease, const struct manifest *list,
              struct tree_want *want, struct err *err)
{
	struct making making = {
		.magic = MAKING_MAGIC, .c = c, .want = want, .root = -1, .total = list->bytes};
	struct making *m = &making;
	char tmp[TREE_NAME_CAP], tree[TREE_NAME_CAP];
	AUTO_FD int root = -1;

	FMT(tmp, "tmp/%s", hex);
	FMT(tree, "trees/%s", hex);
	if (fs_remove_tree(m->c->fd, tmp, err) < 0) /* what a killed maker left */
		return -1;
	if (mkdirat(m->c->fd, tmp, 0755) < 0)
		return err_errno(err, errno, "%s/%s", m->c->dir, tmp);
	root = openat(m->c->fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0)
		return err_errno(err, errno, "%s/%s", m->c->dir, tmp);
	m->root = root;
	if (fill(m, hex, lease, list, err) < 0 || fs_rename(m->c->fd, tmp, m->c->fd, tree, err) < 0)
		return -1;
	if (fchmod(root, 0555) < 0) /* only now: moving a folder needs it writable */
		return err_errno(err, errno, "%s/%s", m->c->dir, tree);
	return 0;
}
