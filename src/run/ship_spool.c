/*
 * ship_spool.c - the spool: files that the trainer cannot take away. A link keeps a file from
 * vanishing, not from being written over; a copy (shared extents where the file system has them)
 * keeps its content too.
 */
#include "run/ship_table.h"
#include "store/common/copy.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

static void name_of(uint64_t id, char out[32])
{
	fmt_fixed(out, 32, "%" PRIu64, id);
}

/* Is it the plain file that was seen? */
static bool is_plain(const struct stat *st)
{
	return S_ISREG(st->st_mode);
}

bool ship_spool_link(struct ship *s, int dirfd, const char *name, uint64_t id,
                     const struct ship_fact *seen, struct stat *after, int *why)
{
	char spool[32];

	*why = 0;
	name_of(id, spool);
	if (linkat(dirfd, name, s->spool_fd, spool, 0) < 0) {
		*why = errno == ENOENT ? 0 : errno;
		return false; /* another file system, or not ours: sent from its place */
	}
	if (fstatat(s->spool_fd, spool, after, AT_SYMLINK_NOFOLLOW) == 0 && is_plain(after) &&
	    after->st_ino == seen->ino)
		return true;
	(void)unlinkat(s->spool_fd, spool, 0); /* exchanged for something else: the next look */
	return false;
}

void ship_spool_doom(struct ship *s, uint64_t id)
{
	if (id == 0)
		return;
	if (s->n_doomed == s->cap_doomed) {
		s->cap_doomed = MAX(2 * s->cap_doomed, (size_t)64);
		s->doomed = xrealloc(s->doomed, s->cap_doomed * sizeof(s->doomed[0]));
	}
	s->doomed[s->n_doomed++] = id; /* no more than there are entries, and replaced links */
}

void ship_spool_sweep(struct ship *s)
{
	uint64_t *id;
	size_t n;

	lock_take(&s->lock);
	id = TAKE(s->doomed);
	n = s->n_doomed;
	s->n_doomed = s->cap_doomed = 0;
	lock_give(&s->lock);
	for (size_t i = 0; i < n; i++) {
		char name[32];

		name_of(id[i], name);
		(void)unlinkat(s->spool_fd, name, 0);
	}
	free(id);
}

int ship_open(struct ship *s, uint64_t id, const char *path)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	struct err err = {0};
	struct stat st;
	char name[32];
	AUTO_FD int fd = -1;

	if (id == 0) {
		errno = 0;
		fd = fs_open_beneath(s->dir_fd, path, flags, 0, &err);
	} else {
		name_of(id, name);
		fd = openat(s->spool_fd, name, flags);
	}
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !is_plain(&st)) {
		errno = ELOOP;
		return -1;
	}
	return TAKE_FD(fd);
}

bool ship_spool_forget(struct ship *s, uint64_t id)
{
	AUTO_FD int fd = ship_open(s, id, "");
	struct stat st;

	/* Without a name there, it can get none again: the folder takes no link to a file of
	 * another project. Who holds it may open it again by its descriptor: quota.h sees that. */
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 1 &&
	       ship_probe_fd(s, fd) == SHIP_WRITER_NONE && s->o.forget(s->o.arg, fd);
}

/* Only the file's own blocks, and never what the disk needs. */
static bool has_room(int fd, const struct stat *st)
{
	struct statvfs fs;
	uint64_t need = (uint64_t)st->st_blocks * 512;

	return fstatvfs(fd, &fs) == 0 && need + SHIP_RESERVE <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

bool ship_spool_own(struct ship *s, uint64_t id, bool copy, int *fd)
{
	AUTO_FD int to = -1;
	char name[32], temp[40];
	struct stat before, after;
	struct err err = {0};
	bool done = false;

	if (fstat(*fd, &before) < 0)
		return false;
	name_of(id, name);
	FMT(temp, "%" PRIu64 ".copy", id);
	to = openat(s->spool_fd, temp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return false;
	if (!s->no_clone)
		done = ioctl(to, FICLONE, *fd) == 0;
	if (!done && errno != ENOSPC && errno != EDQUOT)
		s->no_clone = true;
	if (!done && copy && has_room(to, &before)) {
		struct copy_job job = {.from = *fd,
		                       .to = to,
		                       .size = (uint64_t)before.st_size,
		                       .holes = true,
		                       .cancel = &s->halt};

		done = copy_run(&job, &err) == 0;
	}
	/* A file that changed while it was copied is a mix. */
	done = done && fstat(*fd, &after) == 0 && before.st_size == after.st_size &&
	       before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
	       before.st_mtim.tv_nsec == after.st_mtim.tv_nsec &&
	       before.st_ctim.tv_sec == after.st_ctim.tv_sec &&
	       before.st_ctim.tv_nsec == after.st_ctim.tv_nsec &&
	       renameat(s->spool_fd, temp, s->spool_fd, name) == 0;
	if (!done) {
		(void)unlinkat(s->spool_fd, temp, 0);
		return false;
	}
	(void)close(*fd);
	*fd = TAKE_FD(to);
	return true;
}
