/* sandbox_exec_mount.c - the job's mounts: sources as detached mounts, places beneath a root; see
 * sandbox_exec.h. */
#include "run/sandbox_exec_inner.h"

#include "base/fs.h"
#include "run/userns.h"

#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>

static int open_plain(int dirfd, const char *path, uint64_t resolve)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
	                       .resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd;

	do
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR)); /* a rename raced with it */
	return (int)fd;
}

int sandbox_exec_map_of(struct sandbox_exec *b, uint32_t uid, uint32_t gid, struct err *err)
{
	bool root = uid == 0 && gid == 0;
	/* owners of ours are whole ranges on disk, as the host's are; others a single one */
	bool range = root || (uid == gid && uid + 1 == b->nobody);
	struct userns_map map = {.uid = uid, .gid = gid, .host = b->job, .n = range ? b->span : 1};
	int fd;

	for (size_t i = 0; i < b->n_maps; i++) {
		if (b->map[i].uid == uid && b->map[i].gid == gid)
			return b->map[i].fd;
	}
	if (b->n_maps == COUNT(b->map))
		return err_set(err, ERR_TOO_BIG, "the job's folders have more than %zu owners",
		               COUNT(b->map));
	fd = userns_make(&map, err);
	if (fd < 0)
		return -1;
	b->map[b->n_maps].uid = uid;
	b->map[b->n_maps].gid = gid;
	b->map[b->n_maps].fd = fd;
	b->n_maps++;
	return fd;
}

/* Inside, the job owns it, whoever owns it on disk. A folder that an administrator shares may be on
 * a file system without id-mapped mounts: then the rights of others apply. */
static int translate(struct sandbox_exec *b, const struct sandbox_exec_mount *m,
                     const struct stat *st, struct err *err)
{
	int ns;

	if (!b->idmap)
		return 0;
	ns = sandbox_exec_map_of(b, st->st_uid, st->st_gid, err);
	if (ns < 0)
		return -1;
	if (userns_map_mount(m->tree, ns, true) == 0 || m->share)
		return 0;
	return err_errno(err, errno, "%s: map its owner", m->from);
}

static uint64_t flags_of(const struct sandbox_exec_mount *m)
{
	return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
	       (m->kind == MOUNT_RW ? 0U : MOUNT_ATTR_RDONLY);
}

int sandbox_exec_open_source(struct sandbox_exec *b, struct sandbox_exec_mount *m, struct err *err)
{
	struct mount_attr attr = {.attr_set = flags_of(m)};
	AUTO_FD int fd = open_plain(AT_FDCWD, m->kind == MOUNT_NULL ? "/dev/null" : m->from, 0);
	struct stat st;

	if (fd < 0 && (errno == ELOOP || errno == EXDEV))
		return err_set(err, ERR_MOUNT_REFUSED, "%s: its path goes through a symbolic link",
		               m->from);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", m->from);
	m->is_file = !S_ISDIR(st.st_mode);
	m->tree = open_tree(fd, "",
	                    AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (m->tree < 0)
		return err_errno(err, errno, "mounting %s", m->from);
	if (m->kind != MOUNT_NULL && translate(b, m, &st, err) < 0)
		return -1;
	if (mount_setattr(m->tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0) {
		if (errno != ENOSYS)
			return err_errno(err, errno, "mounting %s", m->from);
		m->late = true;
	}
	return 0;
}

int sandbox_exec_open_sources(struct sandbox_exec *b, struct err *err)
{
	for (size_t i = 0; i < b->n_mounts; i++) {
		if (b->mount[i].kind != MOUNT_EMPTY &&
		    sandbox_exec_open_source(b, &b->mount[i], err) < 0)
			return err_wrap(err, "the job's %s", b->mount[i].at);
	}
	return 0;
}

/* Its folder is made where it is missing, a file too. fd or -1. */
static int open_place(int root, const struct sandbox_exec_mount *m, struct err *err)
{
	const char *rest = m->at + 1, *slash = strrchr(rest, '/');
	AUTO_FD int made = -1, parent = -1;
	int place;

	if (!m->is_file)
		return fs_make_beneath(root, rest, 0755, err);
	if (slash != NULL) {
		AUTO_FREE char *folder = xasprintf("%.*s", (int)(slash - rest), rest);

		parent = fs_make_beneath(root, folder, 0755, err);
		if (parent < 0)
			return -1;
	}
	rest = slash != NULL ? slash + 1 : rest;
	made = openat(parent >= 0 ? parent : root, rest,
	              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	place = open_plain(parent >= 0 ? parent : root, rest, RESOLVE_BENEATH);
	if (place < 0 && errno == ELOOP)
		return err_set(err, ERR_MOUNT_REFUSED, "a symbolic link is in its place");
	return place >= 0 ? place : err_errno(err, errno, "create the file to mount it on");
}

/* Opens a path to mask; if the view lacks it, there is nothing to mask. */
static int open_hidden(int root, const struct sandbox_exec_mount *m)
{
	return open_plain(root, m->at + 1, RESOLVE_BENEATH);
}

static int remount(const struct sandbox_exec_mount *m, int root, struct err *err)
{
	AUTO_FD int fd = open_plain(root, m->at + 1, RESOLVE_BENEATH);
	char self[40];

	if (fd < 0)
		return err_errno(err, errno, "its mount");
	FMT(self, "/proc/self/fd/%d", fd);
	if (mount(NULL, self, NULL,
	          MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV |
	                  (m->kind == MOUNT_RW ? 0 : MS_RDONLY),
	          NULL) < 0)
		return err_errno(err, errno, "its flags");
	return 0;
}

static int attach_one(struct sandbox_exec_mount *m, int root, struct err *err)
{
	bool hides = m->kind == MOUNT_EMPTY || m->kind == MOUNT_NULL;
	AUTO_FD int place = hides ? open_hidden(root, m) : open_place(root, m, err);
	char self[40];

	if (place < 0)
		return hides && (errno == ENOENT || errno == EACCES) ? 0
		       : hides ? err_errno(err, errno, "hiding it")
		               : -1;
	if (m->kind == MOUNT_EMPTY) {
		FMT(self, "/proc/self/fd/%d", place);
		return mount("tmpfs", self, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0
		               ? err_errno(err, errno, "hiding it")
		               : 0;
	}
	if (move_mount(m->tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
	    0)
		return err_errno(err, errno, "mounting it");
	return m->late ? remount(m, root, err) : 0;
}

int sandbox_exec_attach(struct sandbox_exec *b, int root, struct err *err)
{
	for (size_t i = 0; i < b->n_mounts; i++) {
		if (attach_one(&b->mount[i], root, err) < 0)
			return err_wrap(err, "the job's %s", b->mount[i].at);
	}
	return 0;
}
