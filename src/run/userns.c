/* userns.c - a child is born in the namespace and held while its maps are written; see userns.h. */
#include "run/userns.h"

#include "base/buf.h"
#include "base/fs.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAP_LINE_MAX 64

/* The kernel takes a map whole, by one write. */
static int write_map(pid_t pid, bool group, const struct userns_map *map, size_t n, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(USERNS_MAPS_MAX * MAP_LINE_MAX);
	const char *which = group ? "gid_map" : "uid_map";
	AUTO_FD int fd = -1;
	char path[64];

	FMT(path, "/proc/%d/%s", (int)pid, which);
	for (size_t i = 0; i < n; i++)
		buf_printf(&text, "%" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
		           group ? map[i].gid : map[i].uid, map[i].host, map[i].n);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
		return err_errno(err, errno, "user namespace: its %s \"%s\"", which,
		                 buf_cstr(&text));
	return 0;
}

static int open_namespace(pid_t pid, struct err *err)
{
	char path[64];
	int fd;

	FMT(path, "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 ? fd : err_errno(err, errno, "%s", path);
}

int userns_make_of(const struct userns_map *map, size_t n, struct err *err)
{
	/* a fork into the namespace: whoever looks at the child finds it there */
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	AUTO_FD int fd = -1;
	int r = 0;

	assert(n > 0 && n <= USERNS_MAPS_MAX);
	if (pid < 0)
		return err_errno(err, errno, "user namespace");
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	if (write_map(pid, true, map, n, err) < 0 || write_map(pid, false, map, n, err) < 0)
		r = -1;
	if (r == 0)
		r = fd = open_namespace(pid, err);
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r < 0 ? -1 : TAKE_FD(fd);
}

int userns_make(const struct userns_map *map, struct err *err)
{
	return userns_make_of(map, 1, err);
}

int userns_map_mount(int tree, int userns_fd, bool recursive)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns_fd};

	return mount_setattr(tree, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &attr,
	                     sizeof(attr));
}
