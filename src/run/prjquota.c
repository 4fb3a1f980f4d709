/* prjquota.c - see prjquota.h. */
#include "run/prjquota.h"

#include "base/fs.h"

#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#define UNIT 512 /* of sizes in struct fs_disk_quota */

/* By a folder of the file system (Linux 5.14): no block device has to be found for it, and none
 * has to be visible here. The same calls serve ext4 and xfs. */
static int call(int fd, int what, uint32_t id, void *arg)
{
	return (int)syscall(SYS_quotactl_fd, fd, QCMD((unsigned)what, PRJQUOTA), id, arg);
}

static int open_folder(const char *dir)
{
	return open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* An id that the file system knows nothing of (ENOENT on xfs) is used by nobody. */
static int get(int fd, uint32_t id, struct fs_disk_quota *out)
{
	*out = (struct fs_disk_quota){0};
	return call(fd, Q_XGETQUOTA, id, out) < 0 && errno != ENOENT ? -1 : 0;
}

static bool works(int fd)
{
	struct fs_quota_statv v = {.qs_version = FS_QSTATV_VERSION1};
	struct fs_disk_quota any;

	return call(fd, Q_XGETQSTATV, 0, &v) == 0 && (v.qs_flags & FS_QUOTA_PDQ_ENFD) != 0 &&
	       get(fd, PRJQUOTA_FIRST, &any) == 0;
}

bool prjquota_works(const char *dir)
{
	AUTO_FD int fd = open_folder(dir);

	return fd >= 0 && works(fd);
}

static int limit(int fd, uint32_t id, uint64_t bytes)
{
	struct fs_disk_quota d = {.d_version = FS_DQUOT_VERSION,
	                          .d_flags = FS_PROJ_QUOTA,
	                          .d_fieldmask =
	                                  FS_DQ_BHARD | FS_DQ_BSOFT | FS_DQ_IHARD | FS_DQ_ISOFT,
	                          .d_id = id,
	                          .d_blk_hardlimit = bytes / UNIT};

	return call(fd, Q_XSETQLIM, id, &d);
}

static int set_project(int fd, uint32_t id)
{
	struct fsxattr x;

	if (ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
		return -1;
	x.fsx_projid = id;
	if (id != 0)
		x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
	else
		x.fsx_xflags &= ~(uint32_t)FS_XFLAG_PROJINHERIT;
	return ioctl(fd, FS_IOC_FSSETXATTR, &x);
}

/* The folder has the id, and then looks whether it is the only one. Of two that take an id at once
 * at most one finds that, for the one that was later sees both. */
static int claim(int fd, uint32_t id, bool *ours)
{
	struct fs_disk_quota d;

	*ours = false;
	if (get(fd, id, &d) < 0)
		return -1;
	if (d.d_icount != 0)
		return 0;
	if (set_project(fd, id) < 0 || get(fd, id, &d) < 0)
		return -1;
	*ours = d.d_icount == 1;
	return *ours ? 0 : set_project(fd, 0);
}

int prjquota_take_of(const char *dir, uint64_t bytes, uint32_t first, uint32_t n, uint32_t *id,
                     struct err *err)
{
	AUTO_FD int fd = open_folder(dir);
	uint32_t at = 0;
	bool ours = false;
	int why;

	*id = 0;
	if (fd < 0)
		return err_errno(err, errno, "%s", dir);
	if (!works(fd))
		return 0;
	for (int i = 0; i < PRJQUOTA_TRIES && !ours; i++) {
		/* anywhere, not the next one: those who start together seldom meet */
		if (getrandom(&at, sizeof(at), 0) != (ssize_t)sizeof(at))
			return err_errno(err, errno, "random number");
		at = first + at % n;
		if (claim(fd, at, &ours) < 0) {
			why = errno;
			(void)set_project(fd, 0); /* it may have none */
			return err_errno(err, why, "%s: project id", dir);
		}
	}
	if (!ours)
		return err_set(err, ERR_BUSY, "%s: no free project id found", dir);
	if (limit(fd, at, bytes) < 0) {
		why = errno;
		(void)set_project(fd, 0);
		return err_errno(err, why, "%s: limit of its project", dir);
	}
	*id = at;
	return 0;
}

int prjquota_take(const char *dir, uint64_t bytes, uint32_t *id, struct err *err)
{
	return prjquota_take_of(dir, bytes, PRJQUOTA_FIRST, PRJQUOTA_IDS, id, err);
}

void prjquota_lift(const char *dir)
{
	AUTO_FD int fd = open_folder(dir);
	struct fsxattr x;

	if (fd < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0 ||
	    x.fsx_projid - PRJQUOTA_FIRST >= PRJQUOTA_IDS)
		return;
	(void)limit(fd, x.fsx_projid,
	            0); /* without it the limit is nobody's once the folder goes */
}

/* In the folder, what is left is said of its project, unless the disk has less. Of a limit that the
 * disk is too small for, nothing is said. */
bool prjquota_used(const char *dir, uint64_t limit, uint64_t *bytes)
{
	AUTO_FD int fd = open_folder(dir), out = fd < 0 ? -1 : openat(fd, "..", O_PATH | O_CLOEXEC);
	struct statvfs in, disk;

	if (out < 0 || fstatvfs(fd, &in) < 0 || fstatvfs(out, &disk) < 0)
		return false;
	/* in whole blocks, which xfs rounds up */
	if (in.f_blocks - limit / in.f_frsize > 1 || in.f_bavail >= disk.f_bavail)
		return false;
	*bytes = (uint64_t)(in.f_blocks - in.f_bavail) * in.f_frsize;
	return true;
}

bool prjquota_forget(int fd, uint32_t id)
{
	struct fsxattr x;

	return ioctl(fd, FS_IOC_FSGETXATTR, &x) == 0 && x.fsx_projid == id &&
	       set_project(fd, 0) == 0;
}
