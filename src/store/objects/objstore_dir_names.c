/*
 * objstore_dir_names.c - for the directory driver: files that have several names, for objects are
 * never written in place, and files that somebody else writes before they are objects.
 */
#include "store/objects/objstore_dir.h"

#include "store/common/copy.h"

/* ---- one more name --- */

int dir_link_at(int from, const char *path, int dirfd, const char *name, struct err *err)
{
	struct stat st;

	if (fstatat(from, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_NOT_FOUND, "no such object");
	if (linkat(from, path, dirfd, name, 0) == 0)
		return 0;
	if (errno == EXDEV || errno == EMLINK || errno == EPERM || errno == EOPNOTSUPP)
		return err_set(err, ERR_UNSUPPORTED, "it cannot have a name there: %s",
		               strerror(errno));
	return err_errno(err, errno, "%s", path);
}

int dir_link(struct objstore *os, const char *key, int dirfd, const char *name, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	const char *leaf = NULL;
	AUTO_FD int parent = -1;

	if (dir_check_key(key, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_NOT_FOUND, "no such object");
	}
	parent = dir_open_parent(d, key, false, &leaf, err);
	if (parent < 0)
		return -1;
	return dir_link_at(parent, leaf, dirfd, name, err);
}

/* Its new name is in .tmp before it is where it belongs, as for every object. */
int dir_adopt(struct objstore *os, const char *key, int dirfd, const char *path, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	char name[DIR_TMP_CAP];
	AUTO_FD int folder = -1;
	int rc;

	dir_tmp_name(DIR_OBJECT, name);
	if (dir_check_key(key, err) < 0 || dir_link_at(dirfd, path, d->tmp, name, err) < 0)
		return -1;
	rc = dir_move_in(d, name, key, &folder, err);
	(void)unlinkat(d->tmp, name, 0); /* still there when both were one file already */
	return rc < 0 ? -1 : dir_sync_folder(folder, err);
}

/* ---- written by others --- */

/* Its name says that it is written by another process: see dir_discard. */
int dir_blank(struct objstore *os, char name[OBJSTORE_BLANK_CAP], int *fd, struct err *err)
{
	*fd = dir_tmp((struct dirstore *)os, DIR_BLANK, name, err);
	return *fd < 0 ? -1 : 0;
}

int dir_publish_blank(struct objstore *os, const char *name, int fd, const char *key,
                      const char *etag, struct objstore_info *info, struct err *err)
{
	return dir_publish((struct dirstore *)os, fd, name, key, etag, info, err);
}

static int discard_blank(void *arg UNUSED, int dirfd, const char *name, struct err *err UNUSED)
{
	if (str_starts(str_of(name), DIR_BLANK))
		(void)unlinkat(dirfd, name, 0); /* else swept by age */
	return 0;
}

void dir_discard(struct objstore *os, const char *name)
{
	struct dirstore *d = (struct dirstore *)os;
	struct err err = {0};
	int fd;

	if (name != NULL) {
		(void)unlinkat(d->tmp, name, 0); /* else swept by age */
		return;
	}
	fd = openat(d->tmp, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && fs_each_name(fd, DIR_TMP, discard_blank, NULL, &err) < 0)
		err_clear(&err);
}

/* ---- copies --- */

static int copy_bytes(struct dirstore *d, const char *from, const char *to, struct err *err)
{
	char name[DIR_TMP_CAP];
	struct objstore_info info;
	AUTO_FD int in = -1, fd = -1;
	struct copy_job job = {0};

	if (dir_fd(&d->base, from, &in, &info, err) < 0)
		return -1;
	fd = dir_tmp(d, DIR_OBJECT, name, err);
	if (fd < 0)
		return -1;
	job.from = in;
	job.to = fd;
	job.size = info.size;
	job.holes = true;
	return dir_end_tmp(d, fd, name, to, info.etag, copy_run(&job, err), NULL, err);
}

/* *folder: must be synced; -1: it was. */
static int copy_unsynced(struct dirstore *d, const char *from, const char *to, int *folder,
                         struct err *err)
{
	char name[DIR_TMP_CAP];
	struct objstore_info info;
	AUTO_FD int in = -1, parent = -1;
	const char *leaf = NULL;
	int rc;

	*folder = -1;
	if (dir_check_key(to, err) < 0 || dir_fd(&d->base, from, &in, &info, err) < 0)
		return -1;
	parent = dir_open_parent(d, from, false, &leaf, err);
	if (parent < 0)
		return -1;
	dir_tmp_name(DIR_OBJECT, name);
	/* objects are never written in place, so one file may have two keys */
	if (linkat(parent, leaf, d->tmp, name, 0) < 0)
		return copy_bytes(d, from, to, err);
	rc = dir_move_in(d, name, to, folder, err);
	(void)unlinkat(d->tmp, name, 0); /* still there when both were one file already */
	return rc;
}

/* One sync for all that follow each other in one folder. */
int dir_copy_all(struct objstore *os, const struct objstore_pair *pair, size_t n, size_t *at,
                 struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	AUTO_FD int last = -1;

	for (*at = 0; *at < n; (*at)++) {
		AUTO_FD int folder = -1;

		if (copy_unsynced(d, pair[*at].from, pair[*at].to, &folder, err) < 0)
			return -1;
		if (folder < 0 || dir_is_one(folder, last))
			continue;
		if (last >= 0 && dir_sync_folder(last, err) < 0)
			return -1;
		close_fd_p(&last);
		last = TAKE_FD(folder);
	}
	return last < 0 ? 0 : dir_sync_folder(last, err);
}

int dir_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	const struct objstore_pair pair = {from, to};
	size_t at;

	return dir_copy_all(os, &pair, 1, &at, err);
}
