/* compile.c - see compile.h. */
#include "run/compile.h"

#include "core/compile_cache.h"
#include "run/mounts.h"
#include "run/tree_list.h"
#include "store/common/copy.h"

/* Made with the job's rights, in its folder; what it is filled from is opened with ours. A name
 * that is there is of a stage that was begun before, and may be half a file. */
static int make_file(int root, const struct ids *ids, const char *path, struct err *err)
{
	int fd;

	ids_begin(ids);
	fd = fs_open_beneath(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
	                     0644, err);
	ids_end(ids);
	return fd;
}

static int make_folder(int root, const struct ids *ids, const char *path, struct err *err)
{
	AUTO_FD int fd = -1;

	ids_begin(ids);
	fd = fs_make_beneath(root, path, 0755, err);
	ids_end(ids);
	return fd < 0 ? -1 : 0;
}

static int copy_one(int tree, int root, const struct ids *ids, const struct tree_entry *e,
                    const atomic_bool *cancel, struct err *err)
{
	AUTO_FD int from =
		fs_open_beneath(tree, e->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0, err);
	AUTO_FD int to = from < 0 ? -1 : make_file(root, ids, e->path, err);
	const struct copy_job job = {.from = from, .to = to, .size = e->size, .cancel = cancel};

	return to < 0 ? -1 : copy_run(&job, err);
}

/* Those beside a record of what was built get the times that it says. One that cannot be read
 * changes nothing: the extension is built again. */
static int set_times(int tree, int root, const struct ids *ids, const struct tree_list *all,
                     const char *record, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(COMPILE_TEXT_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_built built;
	struct err no = {0};
	int rc = 0;

	if (fs_read(tree, record, &text, &no) < 0 ||
	    !compile_cache_built(a, record, buf_view(&text), &built))
		return 0;
	ids_begin(ids);
	for (size_t i = 0; i < all->n && rc == 0; i++) {
		const struct tree_entry *e = &all->entry[i];
		int64_t ns;

		if (!e->is_folder && compile_cache_built_ns(&built, e->path, &ns))
			rc = fs_set_time(root, e->path, ns, err);
	}
	ids_end(ids);
	return rc;
}

int compile_fill(int root, const struct ids *ids, const char *tree, const atomic_bool *cancel,
                 uint64_t *files, uint64_t *bytes, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct tree_list all;
	AUTO_FD int dir = -1;
	int copy;

	*files = *bytes = 0;
	for (size_t i = 0; i < COMPILE_KIND_COUNT; i++)
		if (make_folder(root, ids, compile_cache_kinds[i].name, err) < 0)
			return -1;
	if (tree == NULL)
		return 0;
	dir = fs_open_dir(tree, err);
	copy = dir < 0 ? -1 : fcntl(dir, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return dir < 0 ? -1 : err_errno(err, errno, "%s", tree);
	if (tree_list(&all, a, copy, err) < 0)
		return -1;
	for (size_t i = 0; i < all.n; i++) {
		const struct tree_entry *e = &all.entry[i];

		if (cancel != NULL && *cancel)
			return err_set(err, ERR_CANCELED, "stopped");
		if ((e->is_folder ? make_folder(root, ids, e->path, err)
		                  : copy_one(dir, root, ids, e, cancel, err)) < 0)
			return err_wrap(err, "%s", e->path);
		*files += !e->is_folder;
		*bytes += e->is_folder ? 0 : e->size;
	}
	for (size_t i = 0; i < all.n; i++) {
		if (mounts_is_below(all.entry[i].path,
		                    compile_cache_kinds[COMPILE_TORCH_EXTENSIONS].name) &&
		    compile_cache_is_built(all.entry[i].path) &&
		    set_times(dir, root, ids, &all, all.entry[i].path, err) < 0)
			return -1;
	}
	return 0;
}
