/* fuzz_pyreq.c - a requirements file that names itself and others. What comes out of it says the
 * same when it is read again. */
#include "core/pyreq.h"

#include "base/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int read_it(void *arg, const char *path, struct buf *out, struct err *err)
{
	assert(fs_path_is_plain(str_of(path)));
	buf_str(out, *(struct str *)arg);
	return buf_check(out, path, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = str_n((const char *)data, n);
	struct pyreq_from from = {.file = "r.txt", .read = read_it, .arg = &text};
	struct pyreq out, again;
	struct err err = {0};

	if (pyreq_resolve(a, &from, &out, &err) < 0) {
		assert(err.id == ERR_PYTHON_REQUIREMENTS_INVALID);
		return 0;
	}
	assert(out.n_vars <= PYREQ_VARS_MAX);
	text = out.packages;
	assert(pyreq_resolve(a, &from, &again, &err) == 0);
	assert(str_same(out.packages, again.packages) && out.n_packages == again.n_packages);
	text = out.options;
	assert(pyreq_resolve(a, &from, &again, &err) == 0);
	assert(str_same(out.options, again.options) && again.n_packages == 0);
	return 0;
}
