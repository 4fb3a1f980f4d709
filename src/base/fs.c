/* fs.c - files without surprises. */
#include "base/fs.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define FS_RACES_MAX 1000
#define FS_DEPTH_MAX 200 /* folders open at once while a tree is removed */

int fs_open_dir(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 ? fd : err_errno(err, errno, "folder %s", path);
}

int fs_each_name(int fd, const char *what,
                 int (*fn)(void *arg, int dirfd, const char *name, struct err *err), void *arg,
                 struct err *err)
{
	DIR *d = fdopendir(fd);
	int rc = 0;

	if (d == NULL) {
		(void)close(fd);
		return err_errno(err, errno, "listing %s", what);
	}
	while (rc == 0) {
		struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (e == NULL) {
			if (errno != 0)
				rc = err_errno(err, errno, "listing %s", what);
			break;
		}
		if (e->d_name[0] != '.')
			rc = fn(arg, fd, e->d_name, err);
	}
	(void)closedir(d);
	return rc;
}

bool fs_path_is_plain(struct str path)
{
	struct str rest = path, part;

	if (path.n == 0 || path.n >= FS_PATH_MAX || path.p[0] == '/' || path.p[path.n - 1] == '/' ||
	    memchr(path.p, '\0', path.n) != NULL)
		return false;
	while (str_cut(&rest, '/', &part))
		if (part.n == 0 || part.n > NAME_MAX || str_eq(part, ".") || str_eq(part, ".."))
			return false;
	return true;
}

int fs_mkdirs(int dirfd, const char *path, mode_t mode, struct err *err)
{
	char copy[FS_PATH_MAX];
	size_t n = strlen(path);

	if (n == 0 || n >= sizeof(copy))
		return err_set(err, ERR_INVALID, "folder name of %zu bytes", n);
	memcpy(copy, path, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (copy[i] != '/' && copy[i] != '\0')
			continue;
		copy[i] = '\0';
		if (mkdirat(dirfd, copy, mode) < 0) {
			struct stat st;
			int e = errno;

			/* a read-only or foreign parent may say EROFS or EACCES for what is there,
			 * and EEXIST is also said of a file */
			if (fstatat(dirfd, copy, &st, 0) < 0 || !S_ISDIR(st.st_mode))
				return err_errno(err, e, "making folder %s", copy);
		}
		if (i < n)
			copy[i] = '/';
	}
	return 0;
}

int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode, struct err *err)
{
	/* O_TMPFILE has the bits of O_DIRECTORY in it */
	bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
	struct open_how how = {
		/* neither a pipe that somebody left there nor a lease makes anybody wait */
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC |
	                                      ((flags & O_PATH) != 0 ? 0 : O_NONBLOCK)),
		.mode = creates ? mode & 07777 : 0, /* openat2 refuses one that is not used */
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int again = 0;
	long fd;

	do
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	/* a rename raced with the look-up, or somebody has a lease of the file */
	while (fd < 0 && (errno == EINTR || (errno == EAGAIN && again++ < FS_RACES_MAX)));
	if (fd < 0 && errno == ENOSYS)
		return err_set(err, ERR_UNSUPPORTED,
		               "this kernel has no openat2: Linux 5.6 or newer is needed");
	if (fd < 0 && (errno == EXDEV || errno == ELOOP))
		return err_set(err, ERR_DENIED, "%s leads outside its folder", path);
	return fd >= 0 ? (int)fd : err_errno(err, errno, "%s", path);
}

/* One part: made when it is missing, entered only when it is a folder. fd or -1. */
static int enter_beneath(int dirfd, const char *part, mode_t mode)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
	                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	if (mkdirat(dirfd, part, mode) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
		return -1;
	return (int)syscall(SYS_openat2, dirfd, part, &how, sizeof(how));
}

int fs_make_beneath(int dirfd, const char *path, mode_t mode, struct err *err)
{
	struct str rest = str_of(path), part;
	AUTO_FD int at = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	char name[NAME_MAX + 1];

	if (at < 0)
		return err_errno(err, errno, "making folder %s", path);
	if (!fs_path_is_plain(rest))
		return err_set(err, ERR_INVALID, "\"%.200s\" is not a plain path", path);
	while (str_cut(&rest, '/', &part)) {
		int next;

		FMT(name, "%.*s", STR_ARG(part));
		next = enter_beneath(at, name, mode);
		if (next < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EXDEV))
			return err_set(err, ERR_MOUNT_REFUSED,
			               "%s: \"%s\" is a link or a file, a folder is needed there",
			               path, name);
		if (next < 0)
			return err_errno(err, errno, "making folder %s", path);
		(void)close(at);
		at = next;
	}
	return TAKE_FD(at);
}

static int read_all(int fd, const char *path, struct buf *out, struct err *err)
{
	for (;;) {
		size_t left = out->max - out->n;
		char *to = buf_room(out, MIN(MAX(left, (size_t)1), (size_t)65536));
		ssize_t n;

		if (to == NULL)
			return err_set(err, ERR_TOO_BIG, "%s is larger than %zu bytes", path,
			               out->max);
		n = read(fd, to, MIN(MAX(left, (size_t)1), (size_t)65536));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, errno, "reading %s", path);
		if (n == 0)
			return 0;
		out->n += (size_t)n;
		if (out->n == out->max) { /* full to the brim: is there more? */
			char more;

			if (read(fd, &more, 1) != 0)
				return err_set(err, ERR_TOO_BIG, "%s is larger than %zu bytes",
				               path, out->max);
			return 0;
		}
	}
}

int fs_set_time(int dirfd, const char *path, int64_t ns, struct err *err)
{
	const struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	const struct timespec times[2] = {at, at};
	AUTO_FD int fd = fs_open_beneath(dirfd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0, err);

	if (fd < 0)
		return -1;
	return futimens(fd, times) < 0 ? err_errno(err, errno, "the time of %s", path) : 0;
}

int fs_read(int dirfd, const char *path, struct buf *out, struct err *err)
{
	AUTO_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return err_errno(err, errno, "reading %s", path);
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is a folder", path);
	return read_all(fd, path, out, err);
}

int fs_read_strange(int dirfd, const char *path, struct buf *out, struct err *err)
{
	AUTO_FD int fd =
		openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 && (errno == ELOOP || errno == ENXIO))
		return err_set(err, ERR_INVALID, "%s is no plain file", path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "reading %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is no plain file", path);
	return read_all(fd, path, out, err);
}

int fs_write_all(int fd, const void *p, size_t n, struct err *err)
{
	const char *at = p;

	while (n > 0) {
		ssize_t w = write(fd, at, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return err_errno(err, errno, "writing");
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t at, struct err *err)
{
	const char *from = p;

	while (n > 0) {
		ssize_t w = pwrite(fd, from, n, (off_t)at);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return err_errno(err, errno, "writing");
		from += w;
		n -= (size_t)w;
		at += (uint64_t)w;
	}
	return 0;
}

int fs_pread_all(int fd, void *p, size_t n, uint64_t at, struct err *err)
{
	char *to = p;

	while (n > 0) {
		ssize_t r = pread(fd, to, n, (off_t)at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_errno(err, errno, "reading");
		if (r == 0)
			return err_set(err, ERR_IO,
			               "the file ends at byte %" PRIu64 ", %zu more expected", at,
			               n);
		to += r;
		n -= (size_t)r;
		at += (uint64_t)r;
	}
	return 0;
}

int fs_sync_dir(int dirfd, const char *path, struct err *err)
{
	AUTO_FD int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_errno(err, errno, "syncing folder %s", path);
	return 0;
}

/* The folder part of a path, "." when it has none. */
static void parent_of(const char *path, char out[FS_PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		fmt_fixed(out, FS_PATH_MAX, ".");
	else if (slash == path)
		fmt_fixed(out, FS_PATH_MAX, "/");
	else
		fmt_fixed(out, FS_PATH_MAX, "%.*s", (int)(slash - path), path);
}

int fs_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, struct err *err)
{
	char parent[FS_PATH_MAX];

	if (strlen(to) >= FS_PATH_MAX)
		return err_set(err, ERR_INVALID, "file name of %zu bytes", strlen(to));
	if (renameat(from_dirfd, from, to_dirfd, to) < 0)
		return err_errno(err, errno, "renaming %s to %s", from, to);
	parent_of(to, parent);
	return fs_sync_dir(to_dirfd, parent, err);
}

/* A folder that is to be emptied: made enterable first, never through a link. fd or -1 with errno.
 */
static int open_to_empty(int dirfd, const char *name, mode_t mode)
{
	if ((mode & 0700) != 0700) {
		AUTO_FD int path_fd =
			openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		char self[40];

		if (path_fd < 0)
			return -1;
		FMT(self, "/proc/self/fd/%d", path_fd);
		(void)chmod(self, (mode & 07777) | 0700); /* else the open says why */
	}
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A tree that is being removed. What lies deeper than descriptors and the stack should follow is
 * lifted to its top, and found there by the next round. */
struct removal {
	int top;
	dev_t dev;
	unsigned lifted;
};

static int lift(struct removal *rm, int fd, const char *name, struct err *err)
{
	char to[40];

	do {
		FMT(to, ".lifted-%u", rm->lifted++);
		if (renameat2(fd, name, rm->top, to, RENAME_NOREPLACE) == 0)
			return 0;
	} while (errno == EEXIST && rm->lifted < UINT_MAX);
	return err_errno(err, errno, "removing %s", name);
}

static int empty_folder(struct removal *rm, int fd, unsigned depth, struct err *err);

/* A folder in `fd` and all that is in it, or out of the way. */
static int remove_folder(struct removal *rm, int fd, const char *name, const struct stat *st,
                         unsigned depth, struct err *err)
{
	int sub;

	if (st->st_dev != rm->dev)
		return err_set(err, ERR_BUSY, "removing %s: another file system is mounted there",
		               name);
	sub = open_to_empty(fd, name, st->st_mode);
	if (sub < 0)
		return err_errno(err, errno, "removing %s", name);
	if (depth >= FS_DEPTH_MAX) {
		(void)close(sub);
		return lift(rm, fd, name, err);
	}
	if (empty_folder(rm, sub, depth + 1, err) < 0)
		return -1;
	if (unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_errno(err, errno, "removing %s", name);
	return 0;
}

/* Everything in the folder `fd` (taken over), on its own device only. */
static int empty_folder(struct removal *rm, int fd, unsigned depth, struct err *err)
{
	DIR *d = fdopendir(fd);
	int r = 0;

	if (d == NULL) {
		(void)close(fd);
		return err_errno(err, errno, "listing a folder");
	}
	while (r == 0) {
		struct dirent *e;
		struct stat st;

		errno = 0;
		e = readdir(d);
		if (e == NULL) {
			if (errno != 0)
				r = err_errno(err, errno, "listing a folder");
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
			r = err_errno(err, errno, "removing %s", e->d_name);
		else
			r = remove_folder(rm, fd, e->d_name, &st, depth, err);
	}
	(void)closedir(d);
	return r;
}

int fs_remove_tree(int dirfd, const char *path, struct err *err)
{
	struct removal rm = {.top = -1};
	struct stat st;
	unsigned before;
	int r;

	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "removing %s", path);
	if (!S_ISDIR(st.st_mode)) {
		if (unlinkat(dirfd, path, 0) < 0 && errno != ENOENT)
			return err_errno(err, errno, "removing %s", path);
		return 0;
	}
	rm.dev = st.st_dev;
	do { /* each round is FS_DEPTH_MAX folders shallower */
		before = rm.lifted;
		rm.top = open_to_empty(dirfd, path, st.st_mode);
		if (rm.top < 0)
			return err_errno(err, errno, "removing %s", path);
		r = empty_folder(&rm, rm.top, 0, err);
	} while (r == 0 && rm.lifted != before);
	if (r < 0)
		return err_wrap(err, "removing %s", path);
	if (unlinkat(dirfd, path, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_errno(err, errno, "removing %s", path);
	return 0;
}

int fs_lock(const char *path, struct err *err)
{
	AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "lock file %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK)
			return err_set(err, ERR_BUSY, "%s is locked by another process", path);
		return err_errno(err, errno, "locking %s", path);
	}
	return TAKE_FD(fd);
}

int fs_free_bytes(const char *path, uint64_t *free_bytes, uint64_t *total_bytes, struct err *err)
{
	struct statvfs v;

	if (statvfs(path, &v) < 0)
		return err_errno(err, errno, "free space of %s", path);
	if (free_bytes != NULL)
		*free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	if (total_bytes != NULL)
		*total_bytes = (uint64_t)v.f_blocks * v.f_frsize;
	return 0;
}

bool fs_inodes(const char *dir, uint64_t *total, uint64_t *left)
{
	struct statvfs v;
	AUTO_FD int fd = -1;

	*total = *left = 0;
	if (statvfs(dir, &v) < 0 || v.f_files == 0)
		return false;
	if (v.f_favail == 0)
		fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	*total = v.f_files;
	*left = v.f_favail;
	return fd < 0;
}

bool fs_is_network(const char *path)
{
	static const uint32_t magics[] = {
		0x6969,     /* NFS */
		0x0bd00bd0, /* Lustre */
		0xff534d42, /* CIFS */
		0xfe534d42, /* SMB2 */
		0x517b,     /* SMB */
		0x65735546, /* FUSE */
		0x47504653, /* GPFS */
		0x01021997, /* 9p */
		0x00c36400, /* Ceph */
		0x19830326, /* BeeGFS */
		0x5346414f, /* AFS */
	};
	struct statfs s;

	if (statfs(path, &s) < 0)
		return false;
	for (size_t i = 0; i < COUNT(magics); i++)
		if ((uint32_t)s.f_type == magics[i])
			return true;
	return false;
}
