/* lease.c - see lease.h. */
#include "store/blobs/lease.h"

#include "base/clock.h"

#include <sys/file.h>

#define LEASE_PATH_CAP 128
#define LEASE_TEXT_CAP 128
#define LEASE_RACES_MAX 1000 /* lost to one who removes the file between open and lock */
#define LEASE_STEP_MS 20

static void path_of(const char *hex, char out[LEASE_PATH_CAP])
{
	fmt_fixed(out, LEASE_PATH_CAP, "leases/%s.lease", hex);
}

bool lease_is_named(int dirfd, int fd, const char *hex)
{
	char path[LEASE_PATH_CAP];
	struct stat held, named;

	path_of(hex, path);
	return fstat(fd, &held) == 0 && fstatat(dirfd, path, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

int lease_try(int dirfd, const char *hex, int how, struct err *err)
{
	char path[LEASE_PATH_CAP];

	assert(how == LOCK_SH || how == LOCK_EX);
	path_of(hex, path);
	for (int i = 0; i < LEASE_RACES_MAX; i++) {
		AUTO_FD int fd =
			openat(dirfd, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

		if (fd < 0)
			return err_errno(err, errno, "%s", path);
		if (flock(fd, how | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK)
				break;
			if (errno != EINTR)
				return err_errno(err, errno, "lock %s", path);
			continue;
		}
		if (lease_is_named(dirfd, fd, hex))
			return TAKE_FD(fd);
	}
	return err_set(err, ERR_BUSY, "tree %s is in use", hex);
}

int lease_wait(int dirfd, const char *hex, const atomic_bool *cancel, struct err *err)
{
	int64_t until = clock_mono_ms() + LEASE_WAIT_MS;

	for (;;) {
		int fd = lease_try(dirfd, hex, LOCK_SH, err);

		if (fd >= 0 || err->code != ERR_BUSY || clock_mono_ms() > until)
			return fd;
		err_clear(err);
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		clock_sleep_ms(LEASE_STEP_MS);
	}
}

struct lease_text lease_read(int fd)
{
	char text[LEASE_TEXT_CAP] = {0};
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	struct lease_text t = {0};

	if (n <= 0 ||
	    sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &t.bytes, &t.files, &t.uses) != 3)
		return (struct lease_text){0};
	return t;
}

int lease_to_hold(int fd, struct err *err)
{
	char self[40];
	AUTO_FD int own = -1;

	FMT(self, "/proc/self/fd/%d", fd);
	own = open(self, O_RDONLY | O_CLOEXEC);
	if (own < 0 || flock(own, LOCK_SH | LOCK_NB) < 0)
		return err_errno(err, errno, "hold a lease");
	return TAKE_FD(own);
}

/* No fsync: after a crash the worst is a poor order. */
int lease_write(int fd, const struct lease_text *t, struct err *err)
{
	char text[LEASE_TEXT_CAP];

	/* one write of fixed width: a reader without the lock sees the old text or the new one */
	FMT(text, "%020" PRIu64 " %020" PRIu64 " %020" PRIu64 "\n", t->bytes, t->files, t->uses);
	if (fs_pwrite_all(fd, text, strlen(text), 0, err) < 0)
		return err_wrap(err, "lease");
	return 0;
}
