/* beneath.c - files, folders and links made beneath a folder that nothing may leave. */
#include "io/beneath.h"

#include "base/fs.h"
#include "base/shown.h"

/* Inode numbers of the files that were made: what a hard link may name. 0 = a free slot. */
struct inodes {
	uint64_t *slot;
	size_t cap, n;
};

struct beneath {
	int root;
	int dir_fd; /* of `dir`, kept from one call to the next; -1 = none */
	char dir[BENEATH_PATH_MAX + 1];
	struct inodes made;
};

static size_t inode_slot(const struct inodes *set, uint64_t ino)
{
	size_t i = (size_t)(ino * 0x9e3779b97f4a7c15U >> 20) & (set->cap - 1);

	while (set->slot[i] != 0 && set->slot[i] != ino)
		i = (i + 1) & (set->cap - 1);
	return i;
}

static bool inode_known(const struct inodes *set, uint64_t ino)
{
	return set->cap > 0 && set->slot[inode_slot(set, ino)] == ino;
}

static void inode_put(struct inodes *set, uint64_t ino)
{
	size_t i = inode_slot(set, ino);

	set->n += set->slot[i] == 0;
	set->slot[i] = ino;
}

static void inode_add(struct inodes *set, uint64_t ino)
{
	if (2 * (set->n + 1) > set->cap) {
		struct inodes wider = {.cap = MAX(2 * set->cap, 1024)};

		wider.slot = xcalloc(wider.cap, sizeof(*wider.slot));
		for (size_t i = 0; i < set->cap; i++) {
			if (set->slot[i] != 0)
				inode_put(&wider, set->slot[i]);
		}
		free(set->slot);
		*set = wider;
	}
	inode_put(set, ino);
}

const char *beneath_shown(const char *name, char out[BENEATH_SHOWN_CAP])
{
	return shown_cut(str_of(name), out, BENEATH_SHOWN_CAP);
}

int beneath_clean(const char *raw, char out[BENEATH_PATH_MAX + 1], struct err *err)
{
	struct str rest = str_of(raw), part;
	size_t n = 0;

	if (raw == NULL)
		return err_set(err, ERR_INVALID, "a name that cannot be read");
	if (rest.n > BENEATH_PATH_MAX)
		return err_set(err, ERR_INVALID, "a name over %d bytes", BENEATH_PATH_MAX);
	if (raw[0] == '/')
		return err_set(err, ERR_INVALID, "an absolute path");
	while (rest.n > 0 && str_cut(&rest, '/', &part)) {
		if (part.n == 0 || str_eq(part, "."))
			continue;
		if (str_eq(part, ".."))
			return err_set(err, ERR_INVALID, "\"..\" in the path");
		if (part.n > BENEATH_PART_MAX)
			return err_set(err, ERR_INVALID, "a part of the path over %d bytes",
			               BENEATH_PART_MAX);
		if (n > 0)
			out[n++] = '/';
		memcpy(out + n, part.p, part.n);
		n += part.n;
	}
	out[n] = '\0';
	return 0;
}

static void forget_dir(struct beneath *b)
{
	close_fd_p(&b->dir_fd);
	b->dir_fd = -1;
}

struct beneath *beneath_new(int root_dirfd)
{
	struct beneath *b = xcalloc(1, sizeof(*b));

	b->root = root_dirfd;
	b->dir_fd = -1;
	return b;
}

void beneath_free(struct beneath *b)
{
	if (b == NULL)
		return;
	forget_dir(b);
	free(b->made.slot);
	free(b);
}

/* One part down from fd, never through a link; made when missing and `make`. */
static int step_into(int fd, const char *part, bool make, struct err *err)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int next = openat(fd, part, flags);
	struct stat st;

	if (next < 0 && errno == ENOENT && make) {
		if (mkdirat(fd, part, 0755) < 0 && errno != EEXIST)
			return err_errno(err, errno, "create its folder");
		next = openat(fd, part, flags);
	}
	if (next >= 0)
		return next;
	if (errno != ENOTDIR && errno != ELOOP)
		return err_errno(err, errno, "open its folder");
	if (fstatat(fd, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return err_set(err, ERR_INVALID, "its path goes through a symbolic link");
	return err_set(err, ERR_INVALID, "its path goes through something that is not a folder");
}

/* The folder `dir` ("" = the root) as a new descriptor. */
static int open_folder(struct beneath *b, const char *dir, bool make, struct err *err)
{
	AUTO_FD int fd = openat(b->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct str rest = str_of(dir), part;
	char name[BENEATH_PART_MAX + 1];

	if (fd < 0)
		return err_errno(err, errno, "open the folder to unpack into");
	while (rest.n > 0 && str_cut(&rest, '/', &part)) {
		int next;

		memcpy(name, part.p, part.n);
		name[part.n] = '\0';
		next = step_into(fd, name, make, err);
		if (next < 0)
			return -1;
		close_fd_p(&fd);
		fd = next;
	}
	return TAKE_FD(fd);
}

/* The folder of `path` in b->dir_fd; *leaf is the last part. */
static int enter_parent(struct beneath *b, const char *path, const char **leaf, struct err *err)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash == NULL ? 0 : (size_t)(slash - path);

	assert(fs_path_is_plain(str_of(path)) && strlen(path) <= BENEATH_PATH_MAX);
	*leaf = slash == NULL ? path : slash + 1;
	if (b->dir_fd >= 0 && strlen(b->dir) == n && memcmp(b->dir, path, n) == 0)
		return 0;
	forget_dir(b);
	memcpy(b->dir, path, n);
	b->dir[n] = '\0';
	b->dir_fd = open_folder(b, b->dir, true, err);
	return b->dir_fd < 0 ? -1 : 0;
}

/* The way to `path` is free; with keep_dir a folder of that name stays. The kept handle cannot
 * become stale by this: the folder it is open on has a file in it, or is the parent here. */
static int prepare(struct beneath *b, const char *path, bool keep_dir, const char **leaf,
                   struct err *err)
{
	struct stat st;

	if (enter_parent(b, path, leaf, err) < 0)
		return -1;
	if (fstatat(b->dir_fd, *leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "check what is at its path");
	if (S_ISDIR(st.st_mode) && keep_dir)
		return 0;
	if (unlinkat(b->dir_fd, *leaf, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0)
		return 0;
	if (errno == ENOTEMPTY || errno == EEXIST)
		return err_set(err, ERR_INVALID, "it would replace a folder that is not empty");
	return err_errno(err, errno, "remove the old entry");
}

int beneath_file(struct beneath *b, const char *path, struct err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	AUTO_FD int fd = -1;
	const char *leaf;
	struct stat st;

	if (prepare(b, path, false, &leaf, err) < 0)
		return -1;
	fd = openat(b->dir_fd, leaf, flags, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "create the file");
	inode_add(&b->made, st.st_ino);
	return TAKE_FD(fd);
}

int beneath_dir(struct beneath *b, const char *path, mode_t mode, struct err *err)
{
	AUTO_FD int fd = -1;
	const char *leaf;

	if (prepare(b, path, true, &leaf, err) < 0)
		return -1;
	if (mkdirat(b->dir_fd, leaf, 0700) < 0 && errno != EEXIST)
		return err_errno(err, errno, "create the folder");
	fd = openat(b->dir_fd, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, (mode & 0777) | 0700) < 0)
		return err_errno(err, errno, "set the folder's mode");
	return 0;
}

/*
 * Leading ".."s climb from the link's own folder, which is real: no path here goes through a link.
 * They stop at the root. Each part after them is a file, a real folder, or a link that obeys the
 * same rule: nothing ever leaves. A ".." after a name would break that, for the name may be a link
 * to somewhere higher.
 */
int beneath_check_link(const char *path, const char *target, struct err *err)
{
	struct str rest = str_of(target), part;
	size_t depth = 0;
	bool down = false;

	if (rest.n == 0 || rest.n >= BENEATH_PATH_MAX)
		return err_set(err, ERR_INVALID, "a symbolic link with an unusable target");
	if (target[0] == '/')
		return err_set(err, ERR_INVALID, "a symbolic link to an absolute path");
	for (const char *p = path; *p != '\0'; p++)
		depth += *p == '/';
	while (rest.n > 0 && str_cut(&rest, '/', &part)) {
		if (part.n == 0 || str_eq(part, "."))
			continue;
		if (!str_eq(part, "..")) {
			down = true;
			continue;
		}
		if (down)
			return err_set(err, ERR_INVALID,
			               "a symbolic link whose target has \"..\" after a name");
		if (depth == 0)
			return err_set(err, ERR_INVALID,
			               "a symbolic link that leads out of the folder");
		depth--;
	}
	return 0;
}

int beneath_symlink(struct beneath *b, const char *path, const char *target,
                    struct timespec changed, struct err *err)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, changed};
	const char *leaf;

	if (beneath_check_link(path, target, err) < 0 || prepare(b, path, false, &leaf, err) < 0)
		return -1;
	if (symlinkat(target, b->dir_fd, leaf) < 0)
		return err_errno(err, errno, "create the symbolic link");
	(void)utimensat(b->dir_fd, leaf, times, AT_SYMLINK_NOFOLLOW); /* not on every file system */
	return 0;
}

/* The folder of a hard link's target, and its last part. -1 without an error: not there. */
static int open_target(struct beneath *b, char *to, const char **leaf, struct err *err)
{
	char *slash = strrchr(to, '/');
	int fd;

	*leaf = slash == NULL ? to : slash + 1;
	if (slash != NULL)
		*slash = '\0';
	fd = open_folder(b, slash == NULL ? "" : to, false, err);
	if (fd < 0 && err->code == ERR_NOT_FOUND)
		err_clear(err);
	return fd;
}

int beneath_hard_link(struct beneath *b, const char *path, const char *target, struct err *err)
{
	char to[BENEATH_PATH_MAX + 1], shown[BENEATH_SHOWN_CAP];
	const char *leaf, *to_leaf;
	AUTO_FD int to_dir = -1;
	struct stat st;
	bool itself;

	beneath_shown(target, shown);
	if (beneath_clean(target, to, err) < 0)
		return err_wrap(err, "a hard link to %s", shown);
	itself = strcmp(to, path) == 0;
	to_dir = open_target(b, to, &to_leaf, err);
	if (to_dir < 0 && err->code != ERR_NONE)
		return err_wrap(err, "a hard link to %s", shown);
	/* Only to files: a symbolic link was checked for the place where it stands. */
	if (to_dir < 0 || fstatat(to_dir, to_leaf, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode) || !inode_known(&b->made, st.st_ino))
		return err_set(err, ERR_INVALID, "a hard link to %s, which is not an earlier file",
		               shown);
	if (itself)
		return 0;
	if (prepare(b, path, false, &leaf, err) < 0)
		return -1;
	if (linkat(to_dir, to_leaf, b->dir_fd, leaf, 0) < 0)
		return err_errno(err, errno, "link to %s", shown);
	return 0;
}
