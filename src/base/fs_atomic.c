/* fs_atomic.c - a file that is there whole or not at all. Apart from the rest of fs.h, because a
 * name that nobody guesses takes a library. */
#include "base/fs.h"
#include "base/seal.h"

int fs_write_atomic(int dirfd, const char *path, struct str body, mode_t mode, struct err *err)
{
	char temp[FS_PATH_MAX], id[13];
	AUTO_FD int fd = -1;

	if (strlen(path) + 20 >= sizeof(temp))
		return err_set(err, ERR_INVALID, "file name of %zu bytes", strlen(path));
	seal_id(id, sizeof(id) - 1);
	FMT(temp, "%s.%s.tmp", path, id);
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0)
		return err_errno(err, errno, "writing %s", path);
	if (fchmod(fd, mode) < 0 || fs_write_all(fd, body.p, body.n, err) < 0 || fsync(fd) < 0) {
		if (err->code == ERR_NONE)
			(void)err_errno(err, errno, "writing");
		(void)unlinkat(dirfd, temp, 0); /* what is there is not whole */
		return err_wrap(err, "%s", path);
	}
	if (fs_rename(dirfd, temp, dirfd, path, err) < 0) {
		(void)unlinkat(dirfd, temp, 0); /* it may be the rename that failed */
		return -1;
	}
	return 0;
}
