/* ids_tree.c - a folder of jobs becomes another id's, whatever jobs left in it; see ids.h.
 *
 * Its files were made by jobs: names may be links, and a name may be one of several of a file that
 * lies elsewhere. So nothing is reached but beneath the folder's handle and through no link, and a
 * file with several names changes its owner only when all of them are in here.
 */
#include "run/ids.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/map.h"
#include "store/common/usage.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

struct owning {
	unsigned magic;
#define OWNING_MAGIC 0x524f574eU
	const struct ids *ids;
	int root;
	struct map *names; /* inode -> how many of its names were met; those with several */
	uint64_t left;     /* entries that were not changed */
};

static int open_entry(const struct owning *o, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
	                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};

	return (int)syscall(SYS_openat2, o->root, path, &how, sizeof(how));
}

static struct str key_of(const struct stat *st)
{
	return str_n((const char *)&st->st_ino, sizeof(st->st_ino));
}

static bool has_names(const struct stat *st)
{
	return !S_ISDIR(st->st_mode) && st->st_nlink > 1;
}

static void count_names(void *arg, unsigned slot UNUSED, const struct usage_entry *e)
{
	struct owning *o = FROM_VOID(struct owning, arg, OWNING_MAGIC);
	AUTO_FD int fd = S_ISDIR(e->mode) ? -1 : open_entry(o, e->path);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && has_names(&st)) {
		uintptr_t n = (uintptr_t)map_get(o->names, key_of(&st));

		(void)map_set(o->names, key_of(&st), (void *)(n + 1));
	}
}

static void own_entry(void *arg, unsigned slot UNUSED, const struct usage_entry *e)
{
	struct owning *o = FROM_VOID(struct owning, arg, OWNING_MAGIC);
	AUTO_FD int fd = open_entry(o, e->path);
	struct err err = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		o->left += errno != ENOENT;
		return;
	}
	if (st.st_uid == o->ids->disk && st.st_gid == o->ids->disk)
		return;
	if ((has_names(&st) && (uintptr_t)map_get(o->names, key_of(&st)) < st.st_nlink) ||
	    ids_own(o->ids, fd, e->path, &err) < 0)
		o->left++;
}

static bool is_empty(int fd)
{
	int dup_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	bool empty = d != NULL;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d))
		empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
	if (d != NULL)
		(void)closedir(d);
	else if (dup_fd >= 0)
		(void)close(dup_fd);
	return empty;
}

int ids_own_tree(const struct ids *ids, const char *dir, const atomic_bool *cancel, struct err *err)
{
	AUTO_FD int root = ids->on ? fs_open_dir(dir, err) : -1;
	AUTO_MAP struct map *names = map_new();
	struct owning o = {.magic = OWNING_MAGIC, .ids = ids, .root = root, .names = names};
	struct usage_total total;
	struct stat st;

	if (!ids->on)
		return 0;
	if (root < 0)
		return -1;
	if (fstat(root, &st) < 0)
		return err_errno(err, errno, "%s", dir);
	if (st.st_uid == ids->disk && st.st_gid == ids->disk)
		return 0;
	if (is_empty(root))
		return ids_own(ids, root, dir, err);
	if (ids->idmap)
		return 0; /* its mount translates the owner that it has */
	if (usage_walk(dir, 1, count_names, &o, cancel, &total, err) < 0 ||
	    usage_walk(dir, 1, own_entry, &o, cancel, &total, err) < 0)
		return err_wrap(err, "change the owner of %s to its team's job user", dir);
	if (o.left > 0)
		log_warn("%s: %" PRIu64 " files stay as they are: they have names elsewhere, or "
		         "lie too deep",
		         dir, o.left);
	return ids_own(ids, root, dir, err);
}
