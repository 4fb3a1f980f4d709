/*
 * blob.c - see blob.h. A manifest is written only while all its blobs are seen to be there and are
 * pinned (blob_pins.h), so collecting can never leave one that names a missing blob.
 */
#include "store/blobs/blob_impl.h"

#include "base/clock.h"
#include "base/seal.h"
#include "store/common/copy.h"

#include <sys/file.h>

#define BLOB_NAME_MAX 128                 /* of a temporary file */
#define BLOB_SMALL_MAX ((size_t)64 << 20) /* what blobs_put takes */
#define BLOB_TMP_TRIES 16                 /* the name moved away between open and lock */

int blobs_open(struct blobs **out, const char *dir, struct err *err)
{
	static const char *const folders[] = {"blobs/sha256", "manifests", "tmp"};
	AUTO_FD int fd = -1;
	struct blobs *b = NULL;

	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0)
		return err_wrap(err, "blob store %s", dir);
	fd = fs_open_dir(dir, err);
	if (fd < 0)
		return err_wrap(err, "blob store %s", dir);
	for (size_t i = 0; i < COUNT(folders); i++)
		if (fs_mkdirs(fd, folders[i], 0755, err) < 0)
			return err_wrap(err, "blob store %s", dir);
	b = xcalloc(1, sizeof(*b));
	b->dir = xstrdup(dir);
	b->fd = TAKE_FD(fd);
	b->pins = blob_pin_table_new();
	b->counts = blob_counts_new();
	*out = b;
	return 0;
}

void blobs_close(struct blobs *b)
{
	if (b == NULL)
		return;
	blob_pin_table_free(b->pins);
	blob_counts_free(b->counts);
	(void)close(b->fd);
	free(b->dir);
	free(b);
}

void blob_path(const struct digest *d, char out[BLOB_PATH_CAP])
{
	char hex[HASH_HEX_CAP];

	digest_hex(d, hex);
	fmt_fixed(out, BLOB_PATH_CAP, "blobs/sha256/%.2s/%s", hex, hex);
}

void blob_manifest_path(const struct digest *d, char out[BLOB_PATH_CAP])
{
	char hex[HASH_HEX_CAP];

	digest_hex(d, hex);
	fmt_fixed(out, BLOB_PATH_CAP, "manifests/%s", hex);
}

bool blobs_has(struct blobs *b, const struct digest *d, uint64_t size)
{
	char path[BLOB_PATH_CAP];
	struct stat st;

	blob_path(d, path);
	return fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == size;
}

int blobs_fd(struct blobs *b, const struct digest *d, int *fd, uint64_t *size, struct err *err)
{
	AUTO_FD int got = -1;
	char path[BLOB_PATH_CAP];
	struct stat st;

	blob_path(d, path);
	got = openat(b->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (got < 0 || fstat(got, &st) < 0)
		return err_errno(err, errno, "blob %s/%s", b->dir, path);
	*size = (uint64_t)st.st_size;
	*fd = TAKE_FD(got);
	return 0;
}

char *blobs_path(struct blobs *b, const struct digest *d, struct arena *a)
{
	char path[BLOB_PATH_CAP];

	blob_path(d, path);
	return arena_printf(a, "%s/%s", b->dir, path);
}

int blobs_dirfd(const struct blobs *b)
{
	return b->fd;
}

static int check_name(const char *name, struct err *err)
{
	size_t n = strlen(name);

	if (n == 0 || n > BLOB_NAME_MAX ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
		return err_set(err, ERR_INVALID,
		               "\"%.*s\" is not a valid name for a temporary file", BLOB_NAME_MAX,
		               name);
	return 0;
}

/* Opened and locked, and still under its name: a fetch that ended meanwhile has renamed its file.
 */
static int lock_tmp(struct blobs *b, const char *path, struct err *err)
{
	for (int i = 0; i < BLOB_TMP_TRIES; i++) {
		AUTO_FD int fd =
			openat(b->fd, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		struct stat held, named;

		if (fd < 0)
			return err_errno(err, errno, "%s/%s", b->dir, path);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK)
				return err_set(err, ERR_BUSY,
				               "%s/%s is being fetched by another process", b->dir,
				               path);
			return err_errno(err, errno, "lock %s/%s", b->dir, path);
		}
		if (fstat(fd, &held) == 0 &&
		    fstatat(b->fd, path, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		    held.st_ino == named.st_ino)
			return TAKE_FD(fd);
	}
	return err_set(err, ERR_BUSY, "%s/%s is being fetched by another process", b->dir, path);
}

int blobs_tmp(struct blobs *b, const char *name, int *fd, char journal[FS_PATH_MAX],
              struct err *err)
{
	char path[BLOB_PATH_CAP + BLOB_NAME_MAX];
	int got;

	if (check_name(name, err) < 0)
		return -1;
	if (strlen(b->dir) + sizeof(path) + 16 > FS_PATH_MAX)
		return err_set(err, ERR_INVALID, "the path %s is too long", b->dir);
	FMT(path, "tmp/%s", name);
	got = lock_tmp(b, path, err);
	if (got < 0)
		return -1;
	*fd = got;
	fmt_fixed(journal, FS_PATH_MAX, "%s/tmp/%s.journal", b->dir, name);
	return 0;
}

static int drop(struct blobs *b, const char *path, struct err *err)
{
	if (unlinkat(b->fd, path, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "remove %s/%s", b->dir, path);
	return 0;
}

/* From a temporary name to the final one, durable. What is there already stays: trees link to it.
 * d: of a blob; NULL: a manifest. */
static int publish(struct blobs *b, const char *from, int fd, const char *to,
                   const struct digest *d, struct err *err)
{
	AUTO_FREE char *folder = xstrdup(to);
	struct stat have, want;
	char shard[BLOB_PATH_CAP];

	if (fstat(fd, &want) < 0)
		return err_errno(err, errno, "%s/%s", b->dir, from);
	if (fstatat(b->fd, to, &have, AT_SYMLINK_NOFOLLOW) == 0 && have.st_size == want.st_size &&
	    S_ISREG(have.st_mode))
		return drop(b, from, err);
	if (fchmod(fd, 0444) < 0 || fsync(fd) < 0)
		return err_errno(err, errno, "%s/%s", b->dir, from);
	*strrchr(folder, '/') = '\0';
	if (mkdirat(b->fd, folder, 0755) == 0) {
		*strrchr(folder, '/') = '\0';
		if (fs_sync_dir(b->fd, folder, err) < 0)
			return -1;
	} else if (errno != EEXIST) {
		return err_errno(err, errno, "%s/%s", b->dir, folder);
	}
	if (d == NULL)
		return fs_rename(b->fd, from, b->fd, to, err);
	if (blob_name(b, from, d, 0) < 0)
		return err_errno(err, errno, "renaming %s to %s", from, to);
	FMT(shard, "blobs/sha256/%02x", d->b[0]);
	return fs_sync_dir(b->fd, shard, err);
}

int blobs_commit(struct blobs *b, const char *name, int fd, const struct digest *d, struct err *err)
{
	char from[BLOB_PATH_CAP + BLOB_NAME_MAX], to[BLOB_PATH_CAP];

	if (check_name(name, err) < 0)
		return -1;
	FMT(from, "tmp/%s", name);
	blob_path(d, to);
	if (publish(b, from, fd, to, d, err) < 0)
		return err_wrap(err, "blob %s", strrchr(to, '/') + 1);
	FMT(from, "tmp/%s.journal", name);
	return drop(b, from, err);
}

static int adopt(struct blobs *b, const struct blob_adopt *x, const char *tmp, struct err *err)
{
	char to[BLOB_PATH_CAP];
	struct digest got;
	uint64_t size = 0;
	AUTO_FD int fd = openat(b->fd, tmp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "%s/%s", b->dir, tmp);
	if (hash_fd_steps(fd, x->step, x->arg, &got, &size, err) < 0)
		return -1;
	if (size != x->size || !digest_same(&got, &x->d))
		return err_set(err, ERR_CORRUPT, "its content is not what it should be");
	blob_path(&x->d, to);
	return publish(b, tmp, fd, to, &x->d, err);
}

/* Under a name that nobody else asks for: a temporary file of a fetch is written to. */
int blobs_adopt(struct blobs *b, struct blob_pins *pins, const struct blob_adopt *x,
                struct err *err)
{
	AUTO_FD int dir = openat(b->fd, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char id[25], tmp[64];
	int rc;

	if (dir < 0)
		return err_errno(err, errno, "%s/tmp", b->dir);
	seal_id(id, 24);
	FMT(tmp, "tmp/link-%s", id);
	blob_pins_add_tmp(pins, tmp + strlen("tmp/"));
	blob_pins_add(pins, &x->d);
	if (x->link(x->arg, dir, tmp + strlen("tmp/"), err) < 0)
		return -1;
	rc = adopt(b, x, tmp, err);
	if (rc < 0)
		(void)unlinkat(b->fd, tmp, 0); /* else it is swept by age */
	return rc;
}

int blobs_drop_tmp(struct blobs *b, const char *name, struct err *err)
{
	char path[BLOB_PATH_CAP + BLOB_NAME_MAX];

	if (check_name(name, err) < 0)
		return -1;
	/* the journal first: one without its file would tell a later try of bytes that are gone */
	FMT(path, "tmp/%s.journal", name);
	if (drop(b, path, err) < 0)
		return -1;
	FMT(path, "tmp/%s", name);
	return drop(b, path, err);
}

static int put_small(struct blobs *b, struct str body, const char *to, const struct digest *d,
                     struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	AUTO_FD int fd = -1;
	char id[25], tmp[64];
	int rc;

	seal_id(id, 24);
	FMT(tmp, "tmp/put-%s", id);
	blob_pins_add_tmp(pins, tmp + strlen("tmp/"));
	fd = openat(b->fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(err, errno, "%s/%s", b->dir, tmp);
	rc = fs_write_all(fd, body.p, body.n, err);
	if (rc == 0)
		rc = publish(b, tmp, fd, to, d, err);
	if (rc < 0)
		(void)unlinkat(b->fd, tmp, 0); /* else it is swept by age */
	return rc;
}

int blobs_put(struct blobs *b, struct str body, struct digest *out, struct err *err)
{
	struct digest d = hash_sha256(body.p, body.n);
	char to[BLOB_PATH_CAP];

	if (body.n > BLOB_SMALL_MAX)
		return err_set(err, ERR_TOO_BIG, "a blob of %zu bytes is too large for one write",
		               body.n);
	blob_path(&d, to);
	if (!blobs_has(b, &d, body.n) && put_small(b, body, to, &d, err) < 0)
		return err_wrap(err, "blob %s", strrchr(to, '/') + 1);
	*out = d;
	return 0;
}

int blobs_verify(struct blobs *b, const struct digest *d,
                 int (*step)(void *arg, size_t bytes, struct err *err), void *arg, struct err *err)
{
	AUTO_FD int fd = -1;
	char path[BLOB_PATH_CAP];
	struct digest got;
	uint64_t size;

	if (blobs_fd(b, d, &fd, &size, err) < 0)
		return -1;
	blob_path(d, path);
	copy_drop(fd); /* what the disk holds is asked, not what memory remembers */
	if (hash_fd_steps(fd, step, arg, &got, &size, err) < 0)
		return err_wrap(err, "blob %s", strrchr(path, '/') + 1);
	copy_drop(fd);
	if (digest_same(d, &got))
		return 0;
	return err_set(err, ERR_CORRUPT,
	               "blob %s/%s is damaged: `stoker cache verify` quarantines it, then it is "
	               "fetched again",
	               b->dir, path);
}

static int move_to_quarantine(struct blobs *b, const char *path, const char *mark, struct err *err)
{
	char quarantine[BLOB_PATH_CAP];

	FMT(quarantine, "tmp/" BLOB_DAMAGED "%s%s", mark, strrchr(path, '/') + 1);
	if (renameat(b->fd, path, b->fd, quarantine) == 0)
		return fs_sync_dir(b->fd, "tmp", err);
	if (errno == ENOENT)
		return 0;
	return err_errno(err, errno, "%s/%s is damaged and cannot be quarantined", b->dir, path);
}

int blobs_quarantine(struct blobs *b, const struct digest *d, struct err *err)
{
	char path[BLOB_PATH_CAP];
	struct stat st = {0};
	bool was;
	int rc;

	blob_path(d, path);
	blob_turn_take(b, d);
	was = fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
	rc = move_to_quarantine(b, path, "", err);
	was = was && fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0;
	blob_turn_give(b, d, was ? -1 : 0, was ? -(int64_t)blob_taken(&st) : 0);
	return rc;
}

int blobs_quarantine_manifest(struct blobs *b, const struct digest *name, struct err *err)
{
	char path[BLOB_PATH_CAP];

	blob_manifest_path(name, path);
	return move_to_quarantine(b, path, "m-", err);
}

static int all_here(struct blobs *b, const struct manifest *m, struct err *err)
{
	for (size_t i = 0; i < m->n; i++)
		if (!blobs_has(b, &m->file[i].sha256, m->file[i].size))
			return err_set(err, ERR_CONFLICT, "the bytes of %s are not in the store",
			               m->file[i].path);
	return 0;
}

/* `uses`: the blobs that are to be there, or with `elsewhere` only to stay. */
static int put_manifest(struct blobs *b, struct blob_pins *pins, const struct manifest *uses,
                        bool elsewhere, const struct manifest *m, struct digest *name,
                        struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
	AUTO_BLOB_PINS struct blob_pins *own = pins == NULL ? blob_pins_new(b) : NULL;
	char to[BLOB_PATH_CAP];
	struct digest d;

	manifest_write(m, &text, &d);
	if (buf_check(&text, "the manifest", err) < 0)
		return -1;
	for (size_t i = 0; i < uses->n; i++)
		blob_pins_add(own != NULL ? own : pins, &uses->file[i].sha256);
	blob_pins_add(own != NULL ? own : pins, &d);
	if (!elsewhere && all_here(b, uses, err) < 0)
		return -1;
	blob_manifest_path(&d, to);
	if (put_small(b, buf_view(&text), to, NULL, err) < 0)
		return err_wrap(err, "%s", to);
	/* One that was there is as young as a new one: its row is still to be written. */
	if (utimensat(b->fd, to, NULL, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s/%s", b->dir, to);
	*name = d;
	return 0;
}

int blobs_put_manifest(struct blobs *b, struct blob_pins *pins, const struct manifest *m,
                       struct digest *name, struct err *err)
{
	return put_manifest(b, pins, m, false, m, name, err);
}

int blobs_put_manifest_on(struct blobs *b, struct blob_pins *pins, const struct digest *base,
                          const struct manifest *fresh, const struct manifest *m,
                          struct digest *name, struct err *err)
{
	char path[BLOB_PATH_CAP];

	/* Before it is looked for: a collector takes a manifest away before any blob of it, and
	 * keeps what one names that was pinned in time. */
	blob_pins_add(pins, base);
	blob_manifest_path(base, path);
	if (faccessat(b->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return blobs_put_manifest(b, pins, m, name, err);
	return put_manifest(b, pins, fresh, false, m, name, err);
}

int blobs_put_list(struct blobs *b, struct blob_pins *pins, const struct manifest *m,
                   struct digest *name, struct err *err)
{
	return put_manifest(b, pins, m, true, m, name, err);
}

int blobs_get_manifest(struct blobs *b, struct arena *a, const struct digest *name,
                       struct manifest *m, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
	char path[BLOB_PATH_CAP];
	struct digest d;

	blob_manifest_path(name, path);
	if (fs_read(b->fd, path, &text, err) < 0)
		return err_wrap(err, "%s/%s", b->dir, path);
	d = hash_sha256(text.p, text.n);
	if (!digest_same(&d, name))
		return err_set(err, ERR_CORRUPT, "the content of %s/%s does not match its digest",
		               b->dir, path);
	if (manifest_parse(m, a, buf_view(&text), err) < 0)
		return err_wrap(err, "%s/%s", b->dir, path);
	return 0;
}
