/* hub_cache.c - see hub_cache.h. */
#include "run/hub_cache.h"

#include "base/fs.h"
#include "run/tree_list.h"
#include "store/sources/source.h"

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
static int add_links(const struct tree_list *all, int snapshot, const char *files, struct err *err)
{
	for (size_t i = 0; i < all->n; i++) {
		const char *path = all->entry[i].path;
		const char *to =
			arena_printf(all->a, "../../%s%s/%s", up(all->a, path), files, path);
		AUTO_FD int folder = -1;

		if (all->entry[i].is_folder) {
			folder = fs_make_beneath(snapshot, path, 0755, err);
			if (folder < 0)
				return -1;
		} else if (symlinkat(to, snapshot, path) < 0 && errno != EEXIST) {
			return err_errno(err, errno, "the link to %s", path);
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
               const struct tree_list *all, struct err *err)
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
	struct tree_list all;
	AUTO_FD int dir = fs_open_dir(tree, err);
	struct place p;
	int r;

	if (dir < 0 || place_of(a, l, i, &p, err) < 0 || tree_list(&all, a, TAKE_FD(dir), err) < 0)
		return err_wrap(err, "weights %s", l->weights[i].source);
	ids_begin(ids);
	r = add(root, a, &l->weights[i], &p, &all, err);
	ids_end(ids);
	return r < 0 ? err_wrap(err, "weights %s", l->weights[i].source) : 0;
}
