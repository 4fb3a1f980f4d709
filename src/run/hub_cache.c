/* hub_cache.c - see hub_cache.h. */
#include "run/hub_cache.h"

#include "base/fs.h"
#include "store/sources/source.h"

#include <dirent.h>

#define DEPTH_MAX 100 /* folders in each other, as core/hub.c has it */

struct link_list { /* what is in a tree: folders before what they hold */
	struct arena *a;
	const char **path;
	bool *is_folder;
	size_t n, cap;
};

struct place {
	struct source_hf_name name;
	const char *repo; /* "models--OWNER--NAME" */
	const char *files;
};

const char *hub_cache_of(const struct wire_launch *l)
{
	for (size_t i = 0; i < l->n_weights; i++)
		if (l->weights[i].hub)
			return l->weights[i].mount_location;
	return NULL;
}

static int place_of(struct arena *a, const struct wire_launch *l, size_t i, struct place *out,
                    struct err *err)
{
	const struct wire_weights *w = &l->weights[i];
	const char *slash;

	if (source_hf_name(a, str_of(w->source), &out->name, err) < 0)
		return -1;
	slash = strchr(out->name.id, '/');
	if (slash == NULL || out->name.folder[0] != '\0' ||
	    !fs_path_is_plain(str_of(out->name.rev)) || !hub_commit_ok(str_of(w->revision)))
		return err_set(err, ERR_INVALID, "it is no whole repository at a commit");
	out->repo = arena_printf(a, "%s--%.*s--%s", hub_type_word(out->name.type),
	                         (int)(slash - out->name.id), out->name.id, slash + 1);
	out->files = arena_printf(a, "%s/weights/%zu", out->repo, i);
	return 0;
}

int hub_cache_place(struct arena *a, const struct wire_launch *l, size_t i, const char **out,
                    struct err *err)
{
	struct place p;

	if (place_of(a, l, i, &p, err) < 0)
		return err_wrap(err, "weights %s", l->weights[i].source);
	*out = p.files;
	return 0;
}

static void note(struct link_list *all, const char *path, bool is_folder)
{
	if (all->n == all->cap) {
		size_t cap = MAX(2 * all->cap, (size_t)64);
		const char **path_to = ARENA_ARRAY(all->a, const char *, cap);
		bool *folder_to = ARENA_ARRAY(all->a, bool, cap);

		if (all->n > 0) {
			memcpy(path_to, all->path, all->n * sizeof(*path_to));
			memcpy(folder_to, all->is_folder, all->n * sizeof(*folder_to));
		}
		all->path = path_to;
		all->is_folder = folder_to;
		all->cap = cap;
	}
	all->path[all->n] = path;
	all->is_folder[all->n++] = is_folder;
}

static int list(struct link_list *all, int dir, const char *at, unsigned depth, struct err *err);

static int list_one(struct link_list *all, int dir, const char *at, const char *name,
                    unsigned depth, struct err *err)
{
	const char *path = arena_printf(all->a, "%s%s", at, name);
	struct stat st;
	int sub;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", path);
	note(all, path, S_ISDIR(st.st_mode));
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (depth == DEPTH_MAX)
		return err_set(err, ERR_INVALID, "%s: too many folders in each other", path);
	sub = fs_open_beneath(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	return sub < 0 ? -1 : list(all, sub, arena_printf(all->a, "%s/", path), depth + 1, err);
}

/* `dir` is taken over; `at`: "" or ends with '/'. */
static int list(struct link_list *all, int dir, const char *at, unsigned depth, struct err *err)
{
	DIR *d = fdopendir(dir);
	int r = 0;

	if (d == NULL) {
		(void)close(dir);
		return err_errno(err, errno, "the folder \"%s\"", at);
	}
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = list_one(all, dirfd(d), at, e->d_name, depth, err);
	(void)closedir(d);
	return r;
}

/* "../" as often as leads from where `path` is to the folder that it begins in. */
static const char *up(struct arena *a, const char *path)
{
	const char *out = "";

	for (; *path != '\0'; path++)
		if (*path == '/')
			out = arena_printf(a, "../%s", out);
	return out;
}

/* One that lies there already is of a stage that was begun before, or of another revision's. */
static int add_links(const struct link_list *all, int snapshot, const char *files, struct err *err)
{
	for (size_t i = 0; i < all->n; i++) {
		const char *to = arena_printf(all->a, "../../%s%s/%s", up(all->a, all->path[i]),
		                              files, all->path[i]);
		AUTO_FD int folder = -1;

		if (all->is_folder[i]) {
			folder = fs_make_beneath(snapshot, all->path[i], 0755, err);
			if (folder < 0)
				return -1;
		} else if (symlinkat(to, snapshot, all->path[i]) < 0 && errno != EEXIST) {
			return err_errno(err, errno, "the link to %s", all->path[i]);
		}
	}
	return 0;
}

static int add_ref(int root, struct arena *a, const struct place *p, const char *commit,
                   struct err *err)
{
	char *path = arena_printf(a, "%s/refs/%s", p->repo, p->name.rev);
	char *slash = strrchr(path, '/');
	AUTO_FD int folder = -1, fd = -1;

	*slash = '\0';
	folder = fs_make_beneath(root, path, 0755, err);
	if (folder < 0)
		return -1;
	fd = openat(folder, slash + 1, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_errno(err, errno, "%s/%s", path, slash + 1);
	return fs_write_all(fd, commit, strlen(commit), err); /* a line's end would be part of it */
}

static int add(int root, struct arena *a, const struct wire_weights *w, const struct place *p,
               const struct link_list *all, struct err *err)
{
	const char *snapshot = arena_printf(a, "%s/snapshots/%s", p->repo, w->revision);
	AUTO_FD int fd = fs_make_beneath(root, snapshot, 0755, err);

	if (fd < 0 || add_links(all, fd, p->files + strlen(p->repo) + 1, err) < 0)
		return -1;
	return strcmp(p->name.rev, w->revision) == 0 ? 0 : add_ref(root, a, p, w->revision, err);
}

int hub_cache_add(int root, const struct ids *ids, const struct wire_launch *l, size_t i,
                  const char *tree, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct link_list all = {.a = a};
	AUTO_FD int dir = fs_open_dir(tree, err);
	struct place p;
	int r;

	if (dir < 0 || place_of(a, l, i, &p, err) < 0 || list(&all, TAKE_FD(dir), "", 0, err) < 0)
		return err_wrap(err, "weights %s", l->weights[i].source);
	ids_begin(ids);
	r = add(root, a, &l->weights[i], &p, &all, err);
	ids_end(ids);
	return r < 0 ? err_wrap(err, "weights %s", l->weights[i].source) : 0;
}
