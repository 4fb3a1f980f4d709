/* reserve.c - a file of the size that is kept back; pieces are cut off its end. */
#include "base/reserve.h"
#include "base/fs.h"
#include "base/log.h"

#include "base/sync.h"

static struct lock lock = LOCK_INIT(LOCK_RESERVE); /* of both below */
static int reserve_fd = -1;
static uint64_t left;

/* Under the lock. */
static void fill(void)
{
	uint64_t avail = 0, total = 0;
	struct err ignored = {0};
	char path[40];

	if (reserve_fd < 0 || left == RESERVE_BYTES)
		return;
	FMT(path, "/proc/self/fd/%d", reserve_fd);
	if (fs_free_bytes(path, &avail, &total, &ignored) < 0 ||
	    avail < RESERVE_BYTES - left + RESERVE_MARGIN)
		return;
	if (posix_fallocate(reserve_fd, 0, (off_t)RESERVE_BYTES) == 0)
		left = RESERVE_BYTES;
	else if (ftruncate(reserve_fd, (off_t)left) < 0) /* somebody was faster */
		log_warn("the disk reserve cannot be shrunk: %s", strerror(errno));
}

int reserve_open(const char *path, struct err *err)
{
	AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;

	if (fd < 0 && errno == ENOSPC) {
		log_warn("%s: the disk is full, and there is no reserve", path);
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", path);
	lock_take(&lock);
	assert(reserve_fd < 0);
	reserve_fd = TAKE_FD(fd);
	/* A file that was copied without its holes filled keeps nothing back. */
	left = (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size
	               ? MIN((uint64_t)st.st_size, RESERVE_BYTES)
	               : 0;
	fill();
	lock_give(&lock);
	return 0;
}

void reserve_close(void)
{
	lock_take(&lock);
	if (reserve_fd >= 0)
		(void)close(reserve_fd);
	reserve_fd = -1;
	left = 0;
	lock_give(&lock);
}

bool reserve_take(uint64_t keep)
{
	bool given = false;

	lock_take(&lock);
	if (left > keep) {
		uint64_t rest = left - MIN(left, RESERVE_PIECE);

		given = ftruncate(reserve_fd, (off_t)rest) == 0;
		left = given ? rest : left;
		log_warn("the disk of the data folder is full: %" PRIu64 " MiB of the reserve are "
		         "left",
		         left >> 20);
	}
	lock_give(&lock);
	return given;
}

bool reserve_whole(void)
{
	bool whole;

	lock_take(&lock);
	fill();
	whole = reserve_fd < 0 || left == RESERVE_BYTES;
	lock_give(&lock);
	return whole;
}
