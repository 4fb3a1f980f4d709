/*
 * sandbox_exec_view.c - a writable view of the host's root.
 *
 * A plain folder `root` in the scratch folder stands for "/". Each folder of the host's root is an
 * overlay in it: lower the host's, upper in scratch, so that writes vanish with it. Whole "/" as
 * one lower layer would be simpler, but the kernel refuses to clone a mount that has locked mounts
 * on it, which is what a user namespace always sees below "/". A folder with mounts inside is made
 * anew and its entries are treated one by one.
 */
#include "run/sandbox_exec_inner.h"

#include "base/fs.h"
#include "run/mountinfo.h"

#include <dirent.h>
#include <sys/mount.h>

/* Top folders of a host that bwrap makes fresh, or that belong to people. */
static const char *const never[] = {"/proc", "/sys",  "/dev",        "/run",    "/tmp",
                                    "/home", "/root", "/lost+found", "/var/tmp"};

/* Is `path` strictly below `top`? */
static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && path[n] == '/' && path[n + 1] != '\0';
}

bool sandbox_exec_has_mounts_below(const struct sandbox_exec *b, const char *path)
{
	for (size_t i = 0; i < b->host.n; i++) {
		if (is_below(b->host.item[i], path))
			return true;
	}
	return false;
}

bool sandbox_exec_is_skipped(const char *path)
{
	for (size_t i = 0; i < COUNT(never); i++) {
		if (strcmp(never[i], path) == 0)
			return true;
	}
	return false;
}

int sandbox_exec_read_mounts(struct sandbox_exec *b, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MOUNTINFO_MAX);
	struct mountinfo one;
	struct str rest;

	if (fs_read(AT_FDCWD, "/proc/self/mountinfo", &body, err) < 0)
		return -1;
	rest = buf_view(&body);
	while (mountinfo_next(b->a, &rest, &one)) {
		if (!sandbox_exec_is_skipped(one.at) && b->host.n < SANDBOX_EXEC_LIST_MAX)
			b->host.item[b->host.n++] = one.at;
	}
	return 0;
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_errno(err, errno, "%s", path);
	if (chmod(path, mode) < 0)
		return err_errno(err, errno, "%s", path);
	return 0;
}

/* Is it mounted at a path of its own, which must have a folder or a file? */
static bool needs_point(const struct sandbox_exec_mount *m)
{
	return m->kind == MOUNT_RO || m->kind == MOUNT_RW;
}

/* Is a place of the job's strictly below this folder of the host, and not there? */
static bool lacks_point(const struct sandbox_exec *b, const char *host)
{
	for (size_t i = 0; i < b->n_mounts; i++) {
		if (needs_point(&b->mount[i]) && is_below(b->mount[i].at, host) &&
		    access(b->mount[i].at, F_OK) < 0)
			return true;
	}
	return false;
}

/* The mount points inside this overlay are made in its upper layer, before it is mounted: an
 * ordinary user could not make them in the host's folders. */
static int make_points(const struct sandbox_exec *b, const char *host, const char *upper,
                       struct err *err)
{
	AUTO_FD int fd = fs_open_dir(upper, err);

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < b->n_mounts; i++) {
		const struct sandbox_exec_mount *m = &b->mount[i];
		char *below = NULL, *slash = NULL;
		int point;

		if (!needs_point(m) || !is_below(m->at, host) || access(m->at, F_OK) == 0)
			continue;
		below = arena_cstr(b->a, m->at + strlen(host) + 1);
		slash = m->is_file ? strrchr(below, '/') : NULL;
		if (m->is_file && slash == NULL)
			continue; /* its folder is this one */
		if (slash != NULL)
			*slash = '\0';
		point = fs_make_beneath(fd, below, 0755, err);
		if (point < 0)
			return err_wrap(err, "mount point %s", m->at);
		(void)close(point);
	}
	return 0;
}

int sandbox_exec_overlay(struct sandbox_exec *b, const char *host, const char *at, int lower_fd,
                         struct err *err)
{
	char options[256];

	/* by handle and relative: no path has to be quoted for the mount options */
	FMT(options, "lowerdir=/proc/self/fd/%d,upperdir=u%u,workdir=w%u,userxattr,volatile",
	    lower_fd, b->overlays, b->overlays);
	if (mount("overlay", at, "overlay", MS_NODEV | MS_NOSUID, options) == 0)
		return 0;
	FMT(options, "lowerdir=/proc/self/fd/%d,upperdir=u%u,workdir=w%u,userxattr", lower_fd,
	    b->overlays, b->overlays); /* volatile is of 5.10 */
	if (mount("overlay", at, "overlay", MS_NODEV | MS_NOSUID, options) == 0)
		return 0;
	return err_errno(err, errno, "overlay on %s", host);
}

/* As it is, and read-only, with what is mounted in it. */
static int carry_read_only(const struct sandbox_exec *b, const char *host, const char *at,
                           struct err *err)
{
	struct mount_attr attr = {.attr_set =
	                                  MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
	AUTO_FD int tree =
		open_tree(AT_FDCWD, host, AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (tree < 0)
		return err_errno(err, errno, "%s", host);
	if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) == 0)
		return move_mount(tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0
		               ? err_errno(err, errno, "%s", host)
		               : 0;
	if (errno != ENOSYS)
		return err_errno(err, errno, "%s", host);
	if (sandbox_exec_has_mounts_below(b, host))
		return 0; /* before Linux 5.12 they would stay writable: the job sees it empty */
	if (mount(host, at, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
	            0)
		return err_errno(err, errno, "%s", host);
	return 0;
}

static int carry_dir(struct sandbox_exec *b, const char *host, const char *at,
                     const struct stat *st, struct err *err)
{
	char *upper = arena_printf(b->a, "u%u", b->overlays);
	char *work = arena_printf(b->a, "w%u", b->overlays);
	AUTO_FD int lower = open(host, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct err one = {0};

	if (lower < 0)
		return err_errno(err, errno, "%s", host);
	if (make_dir(at, st->st_mode & 07777, err) < 0)
		return -1;
	if (b->ro_root || b->overlays >= SANDBOX_EXEC_OVERLAYS_MAX)
		return carry_read_only(b, host, at, err);
	if (make_dir(upper, st->st_mode & 07777, err) < 0 || make_dir(work, 0755, err) < 0 ||
	    make_points(b, host, upper, err) < 0)
		return -1;
	if (sandbox_exec_overlay(b, host, at, lower, &one) == 0) {
		b->overlays++;
		return 0;
	}
	if (b->first.code == ERR_NONE)
		b->first = one;
	/* not every file system can be a lower layer */
	return carry_read_only(b, host, at, err);
}

static int carry(struct sandbox_exec *b, const char *host, const char *at, int depth,
                 struct err *err);

static int carry_entries(struct sandbox_exec *b, const char *host, const char *at, int depth,
                         struct err *err)
{
	DIR *d = opendir(host);
	int r = 0;

	if (d == NULL) {
		if (errno == EACCES)
			return 0; /* not ours to read: the job sees it empty */
		return err_errno(err, errno, "%s", host);
	}
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
		const char *sep = strcmp(host, "/") == 0 ? "" : "/";

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = carry(b, arena_printf(b->a, "%s%s%s", host, sep, e->d_name),
		          arena_printf(b->a, "%s/%s", at, e->d_name), depth + 1, err);
	}
	(void)closedir(d);
	return r;
}

static int carry_link(struct sandbox_exec *b, const char *host, const char *at, struct err *err)
{
	char *target = arena_alloc(b->a, FS_PATH_MAX);
	ssize_t n = readlink(host, target, FS_PATH_MAX - 1);

	if (n < 0 || symlink(target, at) < 0)
		return err_errno(err, errno, "link %s", host);
	return 0;
}

static int carry_file(const char *host, const char *at, struct err *err)
{
	AUTO_FD int fd = open(at, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_errno(err, errno, "%s", at);
	if (mount(host, at, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
	            0)
		return 0; /* an empty file in its place */
	return 0;
}

static int carry(struct sandbox_exec *b, const char *host, const char *at, int depth,
                 struct err *err)
{
	struct stat st;

	if (sandbox_exec_is_skipped(host) || lstat(host, &st) < 0)
		return 0; /* made elsewhere, or gone meanwhile */
	if (S_ISLNK(st.st_mode))
		return carry_link(b, host, at, err);
	if (S_ISREG(st.st_mode) && depth > 1) /* in "/" itself: swap files and the like */
		return carry_file(host, at, err);
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (!sandbox_exec_has_mounts_below(b, host) && !(b->ro_root && lacks_point(b, host)))
		return carry_dir(b, host, at, &st, err);
	if (make_dir(at, 0755, err) < 0)
		return -1;
	return depth < SANDBOX_EXEC_DEPTH_MAX ? carry_entries(b, host, at, depth, err)
	                                      : carry_read_only(b, host, at, err);
}

/* Where the scratch folder's file system cannot be an upper layer (it is an overlay itself, or a
 * network's), writes go to memory, still counted by the job's limit. */
static int scratch_on_tmpfs(struct sandbox_exec *b, const char *scratch, struct err *err)
{
	if (mount("tmpfs", ".", "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, "create the job's tmpfs");
	if (chdir(scratch) < 0)
		return err_errno(err, errno, "%s", scratch);
	b->on_tmpfs = true;
	return 0;
}

static int build(struct sandbox_exec *b, struct err *err)
{
	static const struct {
		const char *path;
		mode_t mode;
	} fresh[] = {{"root/root", 0700}, {"root/home", 0755}, {"root/proc", 0755},
	             {"root/sys", 0755},  {"root/dev", 0755},  {"root/run", 0755},
	             {"root/tmp", 01777}};

	b->overlays = 0;
	b->first = (struct err){0};
	if (make_dir("root", 0755, err) < 0)
		return -1;
	if (b->image)
		return sandbox_exec_build_container(b, err);
	for (size_t i = 0; i < COUNT(fresh); i++) {
		if (make_dir(fresh[i].path, fresh[i].mode, err) < 0)
			return -1;
	}
	if (carry_entries(b, "/", "root", 0, err) < 0)
		return -1;
	if (b->overlays == 0 && !b->ro_root) /* then it is not for the host's folders, but ours */
		return err_set(err, ERR_UNSUPPORTED, "%s", b->first.msg);
	if (mount("tmpfs", "root/run", "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, "/run");
	return 0;
}

/* With job ids, the scratch folder lies where the job's id cannot go: it is mounted at
 * SANDBOX_EXEC_SCRATCH then, over the host's /tmp, which no view shows. */
static int enter_scratch(const struct sandbox_exec *b, const char **scratch, struct err *err)
{
	*scratch = b->scratch_tree >= 0 ? SANDBOX_EXEC_SCRATCH : b->scratch;
	if (b->scratch_tree >= 0 && move_mount(b->scratch_tree, "", AT_FDCWD, SANDBOX_EXEC_SCRATCH,
	                                       MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(err, errno, "populate the job's tmpfs");
	return chdir(*scratch) < 0 ? err_errno(err, errno, "%s", *scratch) : 0;
}

int sandbox_exec_build_view(struct sandbox_exec *b, struct err *err)
{
	const char *scratch = NULL;
	struct err first = {0};
	AUTO_FD int root = -1;

	(void)umask(022);
	if (enter_scratch(b, &scratch, err) < 0)
		return -1;
	if (build(b, &first) < 0) {
		if (b->image) /* podman's files are there, too, and are read from outside */
			return err_set(err, first.code, "%s", first.msg);
		if (scratch_on_tmpfs(b, scratch, err) < 0)
			return -1;
		if (build(b, err) < 0)
			return err_wrap(err, "%s; in memory", first.msg);
		b->first = first;
	}
	root = fs_open_dir("root", err);
	return root < 0 ? -1 : sandbox_exec_attach(b, root, err);
}
