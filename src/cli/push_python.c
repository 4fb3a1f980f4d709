/* push_python.c - see push_python.h. */
#include "cli/push_python.h"

#include "base/fs.h"
#include "core/pyreq.h"

struct folder {
	unsigned magic;
#define FOLDER_MAGIC 0x4c464f4cU
	int fd;
	const struct pack *code; /* NULL: not packed yet */
};

/* The file whose line leaves a path, or a folder that it is in, out of the code. NULL: it is sent.
 */
static const char *left_by(const struct pack *code, const char *path)
{
	for (size_t i = 0; code != NULL && i < code->n_left; i++) {
		const struct pack_left *l = &code->left[i];
		size_t n = strlen(l->path);

		if (strncmp(path, l->path, n) == 0 &&
		    (path[n] == '\0' || (l->is_dir && path[n] == '/')))
			return l->by;
	}
	return NULL;
}

static int read_below(void *arg, const char *path, struct buf *out, struct err *err)
{
	const struct folder *f = FROM_VOID(struct folder, arg, FOLDER_MAGIC);
	const char *by = left_by(f->code, path);
	struct stat st;

	if (by != NULL)
		return err_set(err, ERR_INVALID,
		               "%s is not sent with the code: it is left out by %s. To send it, "
		               "add the line !%s to .stokerignore",
		               path, by, path);
	if (fstatat(f->fd, path, &st, 0) < 0)
		return errno != ENOENT
		               ? err_errno(err, errno, "%s", path)
		               : err_set(err, ERR_NOT_FOUND, "%s not found next to the job file%s",
		                         path,
		                         strchr(path, '.') == NULL ? "; packages stand in a list: "
		                                                     "[numpy, tqdm]"
		                                                   : "");
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is not a file", path);
	return fs_read(f->fd, path, out, err);
}

static bool is_set(const struct job_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->n_env; i++) {
		if (strcmp(spec->env[i].name, name) == 0)
			return true;
	}
	return false;
}

int push_python_check(const struct job_spec *spec, const char *root, const struct pack *code,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct pyreq *q = arena_alloc(a, sizeof(*q));
	AUTO_FD int dir = -1;
	struct folder folder = {.magic = FOLDER_MAGIC, .code = code};
	struct pyreq_from from = {.file = spec->python.file,
	                          .line = spec->python.line,
	                          .n = spec->python.n_lines,
	                          .read = read_below,
	                          .arg = &folder};

	if (!spec->python.wanted)
		return 0;
	dir = folder.fd = fs_open_dir(root, err);
	if (dir < 0 || pyreq_resolve(a, &from, q, err) < 0)
		return -1;
	for (size_t i = 0; i < q->n_vars; i++) {
		if (!is_set(spec, q->var[i]))
			return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID,
			               "the requirements use ${%s}: set %s in "
			               "environment_variables",
			               q->var[i], q->var[i]);
	}
	return 0;
}
