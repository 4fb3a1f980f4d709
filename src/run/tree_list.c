/* tree_list.c - see tree_list.h. */
#include "run/tree_list.h"

#include "base/fs.h"

#include <dirent.h>

/* Folders in each other: each is a call. A repository's, and those that a job puts it below. */
#define DEPTH_MAX 110

int64_t tree_changed_ms(const struct stat *st)
{
	return MAX(st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
	           st->st_ctim.tv_sec * 1000 + st->st_ctim.tv_nsec / 1000000);
}

static int note(struct tree_list *all, const char *path, const struct stat *st, struct err *err)
{
	if (all->n == TREE_LIST_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d files and folders", TREE_LIST_MAX);
	all->names += strlen(path) + 1;
	if (all->names > TREE_LIST_NAMES_MAX)
		return err_set(err, ERR_TOO_BIG, "the names of its files are too long");
	if (all->n == all->cap) {
		struct tree_entry *more;

		all->cap = MAX(2 * all->cap, (size_t)64);
		more = ARENA_ARRAY(all->a, struct tree_entry, all->cap);
		if (all->n > 0)
			memcpy(more, all->entry, all->n * sizeof(*more));
		all->entry = more;
	}
	all->entry[all->n++] = (struct tree_entry){.path = path,
	                                           .is_folder = S_ISDIR(st->st_mode),
	                                           .size = (uint64_t)st->st_size,
	                                           .inode = st->st_ino,
	                                           .changed_ms = tree_changed_ms(st)};
	return 0;
}

/* False: all have to be looked into. */
static bool close_last(struct tree_list *all, const char *why)
{
	if (all->some)
		all->entry[all->n - 1].closed = why;
	return all->some;
}

static int walk(struct tree_list *all, int dir, const char *at, unsigned depth, struct err *err);

static int look(struct tree_list *all, int dir, const char *at, const char *name, unsigned depth,
                struct err *err)
{
	const char *path;
	struct stat st;
	int sub;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s%s", at, name);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return 0;
	path = arena_printf(all->a, "%s%s", at, name);
	if (note(all, path, &st, err) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (depth == DEPTH_MAX && close_last(all, "too many folders in each other"))
		return 0;
	if (depth == DEPTH_MAX)
		return err_set(err, ERR_TOO_BIG, "%s: too many folders in each other", path);
	sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0 && errno == EACCES && close_last(all, "its permissions forbid to read it"))
		return 0;
	if (sub < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, errno, "%s", path);
	return walk(all, sub, arena_printf(all->a, "%s/", path), depth + 1, err);
}

/* `at`: "" or ends with '/'. */
static int walk(struct tree_list *all, int dir, const char *at, unsigned depth, struct err *err)
{
	DIR *d = fdopendir(dir);
	int r = 0;

	if (d == NULL) {
		(void)close(dir);
		return err_errno(err, errno, "the folder \"%s\"", at);
	}
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = look(all, dirfd(d), at, e->d_name, depth, err);
	(void)closedir(d);
	return r;
}

int tree_list(struct tree_list *out, struct arena *a, int dir, struct err *err)
{
	*out = (struct tree_list){.a = a};
	return walk(out, dir, "", 0, err);
}

int tree_list_some(struct tree_list *out, struct arena *a, int dir, struct err *err)
{
	*out = (struct tree_list){.a = a, .some = true};
	return walk(out, dir, "", 0, err);
}
