/*
 * sandbox_exec_container.c - the root of a container: an overlay of an image's files, with what the
 * job writes in the scratch folder, and the job's mounts in it. podman runs it as it finds it.
 */
#include "run/sandbox_exec_inner.h"

#include "base/fs.h"

#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>

/* Attached anywhere, for an overlay's layers have to be. Once: its descriptor is good for a second
 * try in memory. */
static int lower_of(const struct sandbox_exec *b UNUSED, struct err *err)
{
	static int lower = -1;

	if (lower >= 0)
		return lower;
	if (mkdir("image", 0755) < 0 && errno != EEXIST)
		return err_errno(err, errno, "the image's place");
	if (move_mount(SANDBOX_EXEC_IMAGE_FD, "", AT_FDCWD, "image", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(err, errno, "attach the image");
	(void)close(SANDBOX_EXEC_IMAGE_FD);
	lower = open("image", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return lower >= 0 ? lower : err_errno(err, errno, "the image");
}

/* Where a path of the job's is, links of the image followed within it, as far as it is there. */
static const char *resolve(const struct sandbox_exec *b, int root, const char *top, const char *at)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
	                       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	char *cut = arena_cstr(b->a, at), *real = arena_alloc(b->a, FS_PATH_MAX);

	for (;;) {
		AUTO_FD int fd = (int)syscall(SYS_openat2, root, cut, &how, sizeof(how));
		char *slash = strrchr(cut, '/'), self[40];
		ssize_t n = -1;

		FMT(self, "/proc/self/fd/%d", fd);
		if (fd >= 0)
			n = readlink(self, real, FS_PATH_MAX - 1);
		if (fd < 0 && (errno == EAGAIN || errno == EINTR))
			continue; /* a rename raced with it */
		if (n > 0) {
			real[n] = '\0';
			if (strcmp(real, top) == 0)
				return at; /* a link to "/" is no place */
			return arena_printf(
				b->a, "%s%s",
				strncmp(real, top, strlen(top)) == 0 ? real + strlen(top) : cut,
				at + strlen(cut));
		}
		if (slash == NULL || slash == cut)
			return at;
		*slash = '\0';
	}
}

/* Before anything is mounted in it, so that only links of the image are followed. */
static int resolve_all(struct sandbox_exec *b, struct err *err)
{
	AUTO_FD int root = fs_open_dir("root", err);
	char *top = arena_alloc(b->a, FS_PATH_MAX), self[40];
	ssize_t n;

	if (root < 0)
		return -1;
	FMT(self, "/proc/self/fd/%d", root);
	n = readlink(self, top, FS_PATH_MAX - 1);
	if (n < 0)
		return err_errno(err, errno, "the container's root");
	top[n] = '\0';
	for (size_t i = 0; i < b->n_mounts; i++)
		b->mount[i].at = resolve(b, root, top, b->mount[i].at);
	return 0;
}

int sandbox_exec_build_container(struct sandbox_exec *b, struct err *err)
{
	static const char *const folders[] = {"u0", "w0", SANDBOX_EXEC_PODMAN,
	                                      SANDBOX_EXEC_PODMAN "/run"};
	int lower = lower_of(b, err);
	struct stat st;

	if (lower < 0)
		return -1;
	for (size_t i = 0; i < COUNT(folders); i++) {
		if (mkdir(folders[i], 0755) < 0 && errno != EEXIST)
			return err_errno(err, errno, "%s", folders[i]);
	}
	if (fstat(lower, &st) < 0 || chmod("u0", st.st_mode & 07777) < 0)
		return err_errno(err, errno, "the container's root");
	if (sandbox_exec_overlay(b, "the image", "root", lower, err) < 0)
		return -1;
	/* podman's locks have one name for all of a machine */
	if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC, "mode=1777") < 0)
		return err_errno(err, errno, "/dev/shm");
	return resolve_all(b, err);
}
