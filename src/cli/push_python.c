/* push_python.c - see push_python.h. */
#include "cli/push_python.h"

#include "base/fs.h"
#include "core/pyreq.h"

static int read_below(void *arg, const char *path, struct buf *out, struct err *err)
{
	struct stat st;

	if (fstatat(*(int *)arg, path, &st, 0) < 0)
		return errno != ENOENT
		               ? err_errno(err, errno, "%s", path)
		               : err_set(err, ERR_NOT_FOUND, "%s not found next to the job file%s",
		                         path,
		                         strchr(path, '.') == NULL ? "; packages stand in a list: "
		                                                     "[numpy, tqdm]"
		                                                   : "");
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is not a file", path);
	return fs_read(*(int *)arg, path, out, err);
}

static bool is_set(const struct job_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->n_env; i++) {
		if (strcmp(spec->env[i].name, name) == 0)
			return true;
	}
	return false;
}

int push_python_check(const struct job_spec *spec, const char *root, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct pyreq *q = arena_alloc(a, sizeof(*q));
	AUTO_FD int dir = -1;
	struct pyreq_from from = {.file = spec->python.file,
	                          .line = spec->python.line,
	                          .n = spec->python.n_lines,
	                          .read = read_below,
	                          .arg = &dir};

	if (!spec->python.wanted)
		return 0;
	dir = fs_open_dir(root, err);
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
