/* objstore_dir.c - objects as files below a folder; see objstore_dir.h. */
#include "store/objects/objstore_dir.h"

#include "base/clock.h"
#include "base/seal.h"
#include "store/common/copy.h"
#include "store/common/dirlist.h"
#include "store/common/usage.h"

#include <dirent.h>
#include <sys/xattr.h>

#define DIR_XATTR "user.stoker.etag"
#define DIR_XATTR_CAP 160
#define DIR_CHUNK ((size_t)1 << 20)
#define DIR_RACES_MAX 32 /* a folder that is pruned while an object moves into it */
#define DIR_WRITEBACK ((uint64_t)8 << 20)

/* ---- names ------------------------------------------------------------------------------- */

int dir_check_key(const char *key, struct err *err)
{
	if (strncmp(key, DIR_TMP, strlen(DIR_TMP)) == 0 &&
	    (key[strlen(DIR_TMP)] == '/' || key[strlen(DIR_TMP)] == '\0'))
		return err_set(err, ERR_INVALID, "keys below \"%s\" are reserved", DIR_TMP);
	return 0;
}

/* The folder that holds `key`, part by part and through no link; made when `make`. *leaf is the
 * key's last part. fd or -1: ERR_NOT_FOUND, ERR_CONFLICT when a part of it is an object. */
int dir_open_parent(struct dirstore *d, const char *key, bool make, const char **leaf,
                    struct err *err)
{
	AUTO_FD int fd = openat(d->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char part[NAME_MAX + 1];

	if (fd < 0)
		return err_errno(err, errno, "open the store's folder");
	for (const char *slash = strchr(key, '/'); slash != NULL; slash = strchr(key, '/')) {
		int next;

		FMT(part, "%.*s", (int)(slash - key), key);
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && errno == ENOENT && make) {
			if (mkdirat(fd, part, 0755) < 0 && errno != EEXIST)
				return err_errno(err, errno, "making folder %s", part);
			if (fsync(fd) < 0)
				return err_errno(err, errno, "sync the folder of %s", part);
			next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		}
		if (next < 0 && (errno == ENOTDIR || errno == ELOOP) && make)
			return err_set(err, ERR_CONFLICT,
			               "\"%s\" in its path is an object: a directory store cannot "
			               "hold a file and a folder of one name",
			               part);
		if (next < 0)
			return err_errno(err, errno, "%s", part);
		(void)close(fd);
		fd = next;
		key = slash + 1;
	}
	*leaf = key;
	return TAKE_FD(fd);
}

void dir_tmp_name(const char *prefix, char name[DIR_TMP_CAP])
{
	char id[DIR_ID_LEN + 1];

	seal_id(id, DIR_ID_LEN);
	fmt_fixed(name, DIR_TMP_CAP, "%s%s", prefix, id);
}

int dir_tmp(struct dirstore *d, const char *prefix, char name[DIR_TMP_CAP], struct err *err)
{
	int fd;

	dir_tmp_name(prefix, name);
	fd = openat(d->tmp, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return fd >= 0 ? fd : err_errno(err, errno, "%s/%s", DIR_TMP, name);
}

/* ---- facts ------------------------------------------------------------------------------- */

static int64_t mtime_ns(const struct stat *st)
{
	return clock_ns_of(st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

/* The ETag that was kept counts while size and time are those that it was kept for; `value` may be
 * what any hand wrote. Else one is made of them. */
static void info_of(const struct stat *st, const char *value, struct objstore_info *out)
{
	char etag[80], end;
	uint64_t size;
	int64_t ns;

	*out = (struct objstore_info){
		.size = (uint64_t)st->st_size,
		.modified_ms = mtime_ns(st) / 1000000,
	};
	if (sscanf(value, "%79[0-9a-f-] %" SCNu64 " %" SCNd64 "%c", etag, &size, &ns, &end) == 3 &&
	    size == out->size && ns == mtime_ns(st))
		FMT(out->etag, "%s", etag);
	else
		FMT(out->etag, "%" PRIx64 "-%" PRIx64, (uint64_t)mtime_ns(st), out->size);
}

static void info_fd(int fd, const struct stat *st, struct objstore_info *out)
{
	char value[DIR_XATTR_CAP];
	ssize_t n = fgetxattr(fd, DIR_XATTR, value, sizeof(value) - 1);

	value[n < 0 ? 0 : n] = '\0';
	info_of(st, value, out);
}

static void keep_etag(int fd, const char *etag)
{
	char value[DIR_XATTR_CAP];
	struct stat st;

	if (etag[0] == '\0' || fstat(fd, &st) < 0)
		return;
	FMT(value, "%s %" PRIu64 " %" PRId64, etag, (uint64_t)st.st_size, mtime_ns(&st));
	/* where there are no xattrs the ETag is made of size and time */
	(void)fsetxattr(fd, DIR_XATTR, value, strlen(value), 0);
}

/* ---- writing ----------------------------------------------------------------------------- */

/* Not durable before *folder, its folder, is synced. */
int dir_move_in(struct dirstore *d, const char *name, const char *key, int *folder, struct err *err)
{
	for (int i = 0; i < DIR_RACES_MAX; i++) {
		const char *leaf = NULL;
		AUTO_FD int parent = dir_open_parent(d, key, true, &leaf, err);

		if (parent < 0) {
			if (err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err); /* a delete pruned the folder behind us: make it again */
			continue;
		}
		if (renameat(d->tmp, name, parent, leaf) == 0) {
			*folder = TAKE_FD(parent);
			return 0;
		}
		if (errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
			return err_errno(err, errno, "%s", leaf);
		if (unlinkat(parent, leaf, AT_REMOVEDIR) < 0) /* an empty folder is no object */
			return err_set(
				err, ERR_CONFLICT,
				"there are objects below \"%s/\": a directory store cannot hold a "
				"file and a folder of one name",
				leaf);
	}
	return err_set(err, ERR_BUSY, "its folder keeps being removed");
}

int dir_sync_folder(int fd, struct err *err)
{
	return fsync(fd) < 0 ? err_errno(err, errno, "sync its folder") : 0;
}

static int move_in(struct dirstore *d, const char *name, const char *key, struct err *err)
{
	AUTO_FD int folder = -1;

	return dir_move_in(d, name, key, &folder, err) < 0 ? -1 : dir_sync_folder(folder, err);
}

int dir_publish(struct dirstore *d, int fd, const char *name, const char *key, const char *etag,
                struct objstore_info *info, struct err *err)
{
	struct stat st;

	if (dir_check_key(key, err) < 0)
		return -1;
	keep_etag(fd, etag);
	if (fsync(fd) < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "sync the object");
	if (move_in(d, name, key, err) < 0)
		return -1;
	if (info != NULL)
		info_fd(fd, &st, info);
	return 0;
}

/* Publishes what rc says was written well; takes the temporary file away when it was not. */
int dir_end_tmp(struct dirstore *d, int fd, const char *name, const char *key, const char *etag,
                int rc, struct objstore_info *info, struct err *err)
{
	if (rc == 0)
		rc = dir_publish(d, fd, name, key, etag, info, err);
	if (rc < 0)
		(void)unlinkat(d->tmp, name, 0); /* it may have been renamed; else swept by age */
	return rc;
}

static int dir_put(struct objstore *os, const char *key, struct str body, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	char name[DIR_TMP_CAP], etag[33];
	AUTO_FD int fd = -1;
	uint8_t md5[16];
	int rc;

	if (dir_check_key(key, err) < 0)
		return -1;
	fd = dir_tmp(d, DIR_OBJECT, name, err);
	if (fd < 0)
		return -1;
	hash_md5(body.p, body.n, md5);
	hex_encode(md5, sizeof(md5), etag);
	rc = fs_write_all(fd, body.p, body.n, err);
	return dir_end_tmp(d, fd, name, key, etag, rc, NULL, err);
}

/* Fewer blocks than its size needs: what is allocated ahead would be lost to everybody. */
static bool is_sparse(const struct objstore_file *f)
{
	struct stat st;

	return fstat(f->fd, &st) < 0 || (uint64_t)st.st_blocks * 512 < f->size || f->size == 0;
}

int dir_write_file(const struct objstore_file *f, int to, struct digest *sha256, char etag[80],
                   struct err *err)
{
	const struct copy_job job = {
		.from = f->fd,
		.to = to,
		.size = f->size,
		.sha256 = f->want_sha256 ? sha256 : NULL,
		.drop_from = true,
		.holes = true,
		.progress = f->progress,
		.arg = f->arg,
		.cancel = f->cancel,
	};
	char hex[HASH_HEX_CAP];

	etag[0] = '\0';
	if (!is_sparse(f)) /* a hint to the allocator; full disks say so at the first write */
		(void)fallocate(to, FALLOC_FL_KEEP_SIZE, 0, (off_t)f->size);
	if (copy_run(&job, err) < 0)
		return -1;
	if (!f->want_sha256)
		return 0;
	digest_hex(sha256, hex);
	if (f->expect != NULL && !digest_same(f->expect, sha256))
		return err_set(err, ERR_CORRUPT, "the file has changed: its SHA-256 is now %s",
		               hex);
	/* not an MD5, and marked as S3 marks those that are none */
	fmt_fixed(etag, 80, "%.32s-1", hex);
	return 0;
}

static int dir_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                        struct digest *sha256, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	char name[DIR_TMP_CAP], etag[80] = "";
	AUTO_FD int fd = -1;
	int rc;

	if (dir_check_key(key, err) < 0)
		return -1;
	fd = dir_tmp(d, DIR_OBJECT, name, err);
	if (fd < 0)
		return -1;
	rc = dir_write_file(f, fd, sha256, etag, err);
	rc = dir_end_tmp(d, fd, name, key, etag, rc, NULL, err);
	if (rc == 0)
		copy_drop(fd);
	return rc;
}

int dir_receive(int fd, uint64_t at, uint64_t expect, objstore_read_fn *read, void *arg,
                uint64_t *size, char etag[80], struct err *err)
{
	struct objstore_counted in = {.read = read, .arg = arg, .size = expect};
	AUTO_FREE char *chunk = xmalloc(DIR_CHUNK);
	AUTO_HASH struct hash *md5 = hash_new(HASH_MD5);
	uint8_t sum[HASH_SHA256_LEN];
	uint64_t synced = 0;

	for (size_t have = 0, n = 1; n > 0;) {
		if (objstore_counted_read(&in, chunk + have, DIR_CHUNK - have, &n, err) < 0)
			return -1;
		have += n;
		if (have < DIR_CHUNK && n > 0)
			continue;
		hash_add(md5, chunk, have);
		if (fs_pwrite_all(fd, chunk, have, at + in.seen - have, err) < 0)
			return -1;
		have = 0;
		if (in.seen - synced >= DIR_WRITEBACK) { /* so that the fsync at the end is short */
			(void)sync_file_range(fd, (off_t)(at + synced), (off_t)(in.seen - synced),
			                      SYNC_FILE_RANGE_WRITE);
			synced = in.seen;
		}
	}
	(void)hash_end(md5, sum);
	hex_encode(sum, 16, etag);
	*size = in.seen;
	return 0;
}

static int dir_put_stream(struct objstore *os, const char *key, uint64_t size,
                          objstore_read_fn *read, void *arg, struct objstore_info *info,
                          struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	char name[DIR_TMP_CAP], etag[80];
	AUTO_FD int fd = -1;
	uint64_t got;
	int rc;

	if (dir_check_key(key, err) < 0)
		return -1;
	fd = dir_tmp(d, DIR_OBJECT, name, err);
	if (fd < 0)
		return -1;
	rc = dir_receive(fd, 0, size, read, arg, &got, etag, err);
	return dir_end_tmp(d, fd, name, key, etag, rc, info, err);
}

/* ---- reading ----------------------------------------------------------------------------- */

int dir_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
           struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	AUTO_FD int got = -1;
	struct stat st;

	if (dir_check_key(key, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_NOT_FOUND, "no such object");
	}
	got = fs_open_beneath(d->root, key, O_RDONLY | O_NOFOLLOW, 0, err);
	if (got < 0)
		return -1;
	if (fstat(got, &st) < 0)
		return err_errno(err, errno, "stat");
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_NOT_FOUND, "no such object");
	info_fd(got, &st, info);
	*fd = TAKE_FD(got);
	return 0;
}

int dir_get_fd(int fd, const struct objstore_info *info, struct buf *out, struct err *err)
{
	char *to;

	if (info->size > out->max - out->n)
		return err_set(err, ERR_TOO_BIG, "%" PRIu64 " bytes are more than the %zu expected",
		               info->size, out->max - out->n);
	to = buf_room(out, (size_t)info->size);
	/* objects are replaced, never written in place: it is as long as it was */
	if (fs_pread_all(fd, to, (size_t)info->size, 0, err) < 0)
		return -1;
	out->n += (size_t)info->size;
	return 0;
}

static int dir_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	AUTO_FD int fd = -1;
	struct objstore_info info;

	return dir_fd(os, key, &fd, &info, err) < 0 ? -1 : dir_get_fd(fd, &info, out, err);
}

static int dir_stat(struct objstore *os, const char *key, struct objstore_info *out,
                    struct err *err)
{
	AUTO_FD int fd = -1;

	return dir_fd(os, key, &fd, out, err);
}

int dir_read_fd(int fd, const struct objstore_info *info, uint64_t first, uint64_t count,
                objstore_sink_fn *sink, void *arg, const atomic_bool *cancel, struct err *err)
{
	AUTO_FREE char *chunk = NULL;

	if (first > info->size || count > info->size - first)
		return err_set(err, ERR_RANGE,
		               "bytes %" PRIu64 "+%" PRIu64 " of an object of %" PRIu64, first,
		               count, info->size);
	chunk = xmalloc(DIR_CHUNK);
	for (uint64_t done = 0; done < count;) {
		size_t n = (size_t)MIN((uint64_t)DIR_CHUNK, count - done);

		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (fs_pread_all(fd, chunk, n, first + done, err) < 0 ||
		    sink(arg, chunk, n, err) < 0)
			return -1;
		done += n;
	}
	return 0;
}

static int dir_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                    uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                    struct err *err)
{
	AUTO_FD int fd = -1;
	struct objstore_info info;

	if (dir_fd(os, key, &fd, &info, err) < 0 || objstore_check_etag(etag, info.etag, err) < 0)
		return -1;
	return dir_read_fd(fd, &info, first, count, sink, arg, cancel, err);
}

struct listing {
	unsigned magic;
#define LISTING_MAGIC 0x534c4953U
	struct dirstore *d;
	objstore_each_fn *each;
	void *arg;
};

static void list_one(void *arg, const char *path)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	char value[DIR_XATTR_CAP], proc[FS_PATH_MAX + 64];
	struct objstore_info info;
	struct stat st;
	ssize_t n;

	if (fstatat(l->d->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    objstore_check_key(str_of(path), &(struct err){0}) < 0)
		return; /* removed meanwhile, or put there by another hand under a name that is no
		           key */
	FMT(proc, "/proc/self/fd/%d/%s", l->d->root, path); /* saves an open a file */
	n = lgetxattr(proc, DIR_XATTR, value, sizeof(value) - 1);
	value[n < 0 ? 0 : n] = '\0';
	info_of(&st, value, &info);
	l->each(l->arg, path, &info);
}

static int dir_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                    objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	struct listing l = {.magic = LISTING_MAGIC, .d = d, .each = each, .arg = arg};

	return dirlist(d->root, prefix, after, max, DIR_TMP, list_one, &l, more, err);
}

/* ---- delete ------------------------------------------------------------------------------ */

bool dir_is_one(int a, int b)
{
	struct stat x, y;

	return a >= 0 && b >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

/* Folders that are empty now go too. */
static void prune(struct dirstore *d, const char *key)
{
	AUTO_FREE char *path = xstrdup(key);

	for (char *slash = strrchr(path, '/'); slash != NULL; slash = strrchr(path, '/')) {
		*slash = '\0';
		if (unlinkat(d->root, path, AT_REMOVEDIR) < 0)
			return;
	}
}

/* *folder: must be synced; -1: nothing was there. */
static int del_unsynced(struct dirstore *d, const char *key, int *folder, struct err *err)
{
	const char *leaf = NULL;
	AUTO_FD int parent = -1;

	if (dir_check_key(key, err) < 0) {
		err_clear(err);
		return 0;
	}
	parent = dir_open_parent(d, key, false, &leaf, err);
	if (parent < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	if (unlinkat(parent, leaf, 0) < 0) {
		if (errno == ENOENT || errno == EISDIR)
			return 0;
		return err_errno(err, errno, "%s", leaf);
	}
	*folder = TAKE_FD(parent);
	return 0;
}

/* What went from a folder is durable; if not, none of it counts. */
static int leave(struct dirstore *d, int folder, const char *key, size_t *at, struct err *err)
{
	if (dir_sync_folder(folder, err) < 0) {
		*at = 0;
		return -1;
	}
	prune(d, key);
	return 0;
}

static int dir_del_all(struct objstore *os, const char *const *key, size_t n, size_t *at,
                       struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	const char *in_last = NULL;
	struct err late = {0};
	AUTO_FD int last = -1;
	int rc = 0;

	for (*at = 0; *at < n && rc == 0; *at += rc == 0) {
		AUTO_FD int folder = -1;

		rc = del_unsynced(d, key[*at], &folder, err);
		if (folder < 0)
			continue;
		if (last >= 0 && !dir_is_one(folder, last) && leave(d, last, in_last, at, err) < 0)
			return -1;
		close_fd_p(&last);
		last = TAKE_FD(folder);
		in_last = key[*at];
	}
	if (last >= 0 && leave(d, last, in_last, at, rc == 0 ? err : &late) < 0)
		return -1;
	return rc;
}

static int dir_del(struct objstore *os, const char *key, struct err *err)
{
	size_t at;

	return dir_del_all(os, &key, 1, &at, err);
}

/* ---- life -------------------------------------------------------------------------------- */

/* Temporary files and uploads that nobody has touched for so long. */
/* The size of a file, or the sum of the parts in a folder. */
static int size_of(int dirfd, const char *name, const struct stat *st, uint64_t *bytes,
                   struct err *err)
{
	AUTO_FREE char *path = xasprintf("/proc/self/fd/%d/%s", dirfd, name);
	struct usage_total total = {0};

	*bytes = (uint64_t)st->st_size;
	if (!S_ISDIR(st->st_mode))
		return 0;
	if (usage_walk(path, 1, NULL, NULL, NULL, &total, err) < 0)
		return -1;
	*bytes = total.bytes;
	return 0;
}

static int dir_sweep(struct objstore *os, int64_t max_age_s, bool dry_run,
                     struct objstore_swept *out, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	int64_t before_s = clock_wall_ms() / 1000 - max_age_s;
	int fd = openat(d->tmp, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (dir == NULL) {
		(void)err_errno(err, errno, DIR_TMP);
		close_fd_p(&fd);
		return -1;
	}
	for (struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
		uint64_t bytes = 0;
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    st.st_mtim.tv_sec > before_s)
			continue;
		rc = size_of(fd, e->d_name, &st, &bytes, err);
		if (rc == 0 && !dry_run)
			rc = fs_remove_tree(fd, e->d_name, err);
		out->uploads += rc == 0;
		out->bytes += rc == 0 ? bytes : 0;
	}
	(void)closedir(dir);
	return rc;
}

static void dir_close(struct objstore *os)
{
	struct dirstore *d = (struct dirstore *)os;

	(void)close(d->tmp);
	(void)close(d->root);
	free(d);
}

static int dir_open(struct objstore **out, const char *rest, const struct objstore_env *env UNUSED,
                    struct err *err)
{
	AUTO_FD int root = -1, tmp = -1;
	struct dirstore *d = NULL;

	if (rest[0] != '/')
		return err_set(err, ERR_INVALID,
		               "the path of a directory store must start with '/'");
	if (fs_mkdirs(AT_FDCWD, rest, 0755, err) < 0)
		return -1;
	root = fs_open_dir(rest, err);
	if (root < 0 || fs_mkdirs(root, DIR_TMP, 0700, err) < 0)
		return -1;
	tmp = fs_open_beneath(root, DIR_TMP, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
	if (tmp < 0)
		return -1;
	d = xcalloc(1, sizeof(*d));
	d->root = TAKE_FD(root);
	d->tmp = TAKE_FD(tmp);
	*out = &d->base;
	return 0;
}

const struct objstore_ops objstore_dir = {
	.scheme = "dir",
	.open = dir_open,
	.close = dir_close,
	.get = dir_get,
	.put = dir_put,
	.put_file = dir_put_file,
	.put_stream = dir_put_stream,
	.copy = dir_copy,
	.copy_all = dir_copy_all,
	.stat = dir_stat,
	.read = dir_read,
	.fd = dir_fd,
	.link = dir_link,
	.adopt = dir_adopt,
	.blank = dir_blank,
	.publish = dir_publish_blank,
	.discard = dir_discard,
	.list = dir_list,
	.del = dir_del,
	.del_all = dir_del_all,
	.parts_begin = dir_parts_begin,
	.parts_put = dir_parts_put,
	.parts_end = dir_parts_end,
	.parts_abort = dir_parts_abort,
	.sweep = dir_sweep,
};
