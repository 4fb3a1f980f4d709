/* test_pyreq.c - requirements: the lines that are refused first, then what files mean together. */
#include "unit.h"

#include "core/pyreq.h"

/* A folder: "path\0content" pairs. */
struct folder {
	const char *const *item;
	size_t n;
};

static int read_folder(void *arg, const char *path, struct buf *out, struct err *err)
{
	const struct folder *f = arg;

	for (size_t i = 0; i + 1 < f->n; i += 2) {
		if (strcmp(f->item[i], path) == 0) {
			buf_puts(out, f->item[i + 1]);
			return buf_check(out, path, err);
		}
	}
	return err_set(err, ERR_NOT_FOUND, "%s: no such file", path);
}

static int resolve(struct arena *a, const char *const *files, size_t n, struct pyreq *out,
                   struct err *err)
{
	struct folder f = {files, n};
	struct pyreq_from from = {.file = files[0], .read = read_folder, .arg = &f};

	return pyreq_resolve(a, &from, out, err);
}

static const struct {
	const char *line, *words;
} bad[] = {
	{"-e .", "--editable"},
	{"--editable=git+https://h/x", "--editable"},
	{"-e", "--editable"},
	{".", "local path"},
	{"./pkg", "./pkg"},
	{"../pkg", "../pkg"},
	{"/srv/pkg", "/srv/pkg"},
	{"~/pkg", "~/pkg"},
	{"pkg/sub", "pkg/sub"},
	{"file:///srv/x.whl", "file:///srv/x.whl"},
	{"git+file:///srv/x", "git+file"},
	{"x @ file:///srv/x.whl", "file:///srv/x.whl"},
	{"x[a,b] @ /srv/x.whl", "/srv/x.whl"},
	{"x-1.0-py3-none-any.whl", "x-1.0"},
	{"x-1.0.tar.gz", "x-1.0"},
	{"x @ ftp://h/x.whl", "ftp"},
	{"numpy torch", "numpy torch"},
	{"=1.0", "=1.0"},
	{"tqdm=4.66.4", "tqdm=="},
	{"tqdm=>4", "tqdm=="},
	{"tqdm[notebook] = 4", "tqdm=="},
	{"num\x01py", "control"},
	{"numpy>=1\xc2\x85-e .", "control"},
	{"numpy>=1\xe2\x80\xa8-e .", "control"},
	{"numpy>=1\xe2\x80\xa9-e .", "control"},
	{"numpy>=1 \\", "backslash"},
	{"numpy>=1 \\ # why", "backslash"},
	{"--index-url https://h/\\", "backslash"},
	{"-numpy-", "not supported"},
	{"numpy-", "numpy-"},
	{"--index-url", "needs a value"},
	{"--index-url /srv/simple", "/srv/simple"},
	{"-f ./wheels", "./wheels"},
	{"--find-links=wheels", "wheels"},
	{"--index-url https://me:word@h/simple", "${NAME}"},
	{"-i https://token@h/simple", "${NAME}"},
	{"x @ git+https://token@h/x.git", "${NAME}"},
	{"--trusted-host h", "PIP_TRUSTED_HOST"},
	{"--pre yes", "takes no value"},
	{"--no-index=1", "takes no value"},
	{"--global-option=x", "--global-option"},
	{"numpy --global-option=x", "--global-option"},
	{"numpy --hash=sha256:00 --config-settings a=b", "--config-settings"},
	{"--root /", "--root"},
	{"-r", "needs a value"},
	{"-r /etc/passwd", "/etc/passwd"},
	{"-r ../r.txt", "../r.txt"},
	{"-r https://h/r.txt", "https://h/r.txt"},
};

static const char *const good[] = {
	"",
	"# all comment",
	"numpy",
	"numpy==1.26.4",
	"numpy>=1.26,<2 # why",
	"Numpy~=1.26",
	"zope.interface!=1",
	"x (>=1)",
	"torch[opt_einsum,x]>=2",
	"uvloop; sys_platform != 'win32'",
	"pkg ; python_version < \"3.12\"",
	"a===1.0+local",
	"a<2",
	"idna==3.4 --hash=sha256:00 --hash=sha256:11",
	"x @ https://h/x-1.0-py3-none-any.whl",
	"x@https://h/x.whl",
	"x[extra] @ https://h/x.whl ; python_version > '3'",
	"https://h/x-1.0-py3-none-any.whl",
	"https://h/x.tar.gz#sha256=00",
	"git+https://h/x.git@v1#egg=x",
	"x @ git+ssh://git@h/x.git",
	"git+https://${TOKEN}@h/x.git",
	"--index-url https://h/simple",
	"--index-url=https://${USER}:${PASSWORD}@h/simple",
	"-i http://127.0.0.1:1/simple",
	"--extra-index-url ${INDEX}",
	"-f https://h/wheels.html",
	"--no-index",
	"--pre",
	"--prefer-binary",
	"--require-hashes",
	"--no-binary :all:",
	"--only-binary=numpy",
	"-r other.txt",
	"-cother.txt",
	"--constraint other.txt",
};

static void pyreq_lines(void **state UNUSED)
{
	struct err err = {0};

	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_row(pyreq_check(str_of(bad[i].line), &err) < 0, bad[i].line);
		assert_row(err.id == ERR_PYTHON_REQUIREMENTS_INVALID, bad[i].line);
		assert_row(strstr(err.msg, bad[i].words) != NULL, err.msg);
		err_clear(&err);
	}
	for (size_t i = 0; i < COUNT(good); i++) {
		if (pyreq_check(str_of(good[i]), &err) < 0)
			fail_msg("row \"%s\": %s", good[i], err.msg);
	}
}

static void pyreq_files_together(void **state UNUSED)
{
	static const char *const files[] = {
		"r.txt",
		"\xef\xbb\xbf# what the job needs\r\n"
		"--index-url https://${USER}:${TOKEN}@h/simple\r\n"
		"numpy>=1.26, \\\r\n"
		"   <2\r\n"
		"-r sub/more.txt\n"
		"-c ./limits.txt\n"
		"--pre\n"
		"last",
		"sub/more.txt",
		"torch # a comment\n-r ../base.txt\n-r deep/../leaf.txt\n",
		"base.txt",
		"base @ https://${TOKEN}@h/base.whl\n",
		"sub/leaf.txt",
		"leaf\n\\\n",
		"limits.txt",
		"numpy==1.26.4\n-r sub/leaf.txt\n",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct pyreq q;

	assert_ok(resolve(a, files, COUNT(files), &q, &err), &err);
	assert_true(str_eq(q.packages,
	                   "numpy>=1.26,    <2\ntorch\nbase @ https://${TOKEN}@h/base.whl\n"
	                   "leaf\nlast\n"));
	assert_true(str_eq(q.constraints, "numpy==1.26.4\nleaf\n"));
	assert_true(str_eq(q.options, "--index-url https://${USER}:${TOKEN}@h/simple\n"));
	assert_int_equal(q.n_packages, 5);
	assert_true(q.pre && !q.hashes && !q.binary);
	assert_int_equal(q.n_vars, 2);
	assert_string_equal(q.var[0], "USER");
	assert_string_equal(q.var[1], "TOKEN");
}

static void assert_part(const struct pyreq *q, size_t i, bool constraint, const char *name,
                        const char *text)
{
	assert_true(i < q->n_parts);
	assert_string_equal(q->part[i].name, name);
	assert_true(q->part[i].constraint == constraint);
	if (!str_eq(q->part[i].text, text))
		fail_msg("%s: %.*s", name, STR_ARG(q->part[i].text));
}

/* What pip and uv say of a file must be true of the user's. */
static void pyreq_keeps_lines_where_they_are(void **state UNUSED)
{
	static const char *const files[] = {
		"r.txt",
		"# x\r\n\na>=1, \\\r\n<2\r\n-r no/lines.txt\n-r sub/r.py\n-c limits.txt\n"
		"--pre\n-i https://h/s\nb # y\n-r limits.txt",
		"no/lines.txt",
		"-r ../sub/r.py.txt\n\n",
		"sub/r.py",
		"\nc\n",
		"sub/r.py.txt",
		"d\n",
		"limits.txt",
		"\ne==1\n-r sub/r.py\n",
		PYREQ_LIST_NAME,
		"g",
	};
	static const char *const list[] = {"a", "-r limits.txt", "b", "-r " PYREQ_LIST_NAME};
	struct folder f = {files, COUNT(files)};
	struct pyreq_from from = {.line = list, .n = COUNT(list), .read = read_folder, .arg = &f};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct pyreq q;

	assert_ok(resolve(a, files, COUNT(files), &q, &err), &err);
	assert_part(&q, 0, false, "r.txt", "\n\na>=1, <2\n\n\n\n\n\n--index-url https://h/s\nb\n");
	assert_part(&q, 1, false, "sub/r.py.txt", "d\n");
	assert_part(&q, 2, false, "sub/r.py.txt_", "\nc\n"); /* Python would import it */
	assert_part(&q, 3, true, "limits.txt", "\ne==1\n");
	assert_part(&q, 4, true, "sub/r.py.txt_", "\nc\n");
	assert_part(&q, 5, false, "limits.txt", "\ne==1\n");
	assert_int_equal(q.n_parts, 6);
	assert_ok(pyreq_resolve(a, &from, &q, &err), &err);
	assert_part(&q, 0, false, PYREQ_LIST_NAME "_", "a\n\nb\n");
	assert_part(&q, 1, false, "limits.txt", "\ne==1\n");
	assert_part(&q, 2, false, "sub/r.py.txt", "\nc\n");
	assert_part(&q, 3, false, PYREQ_LIST_NAME, "g\n");
	assert_int_equal(q.n_parts, 4);
}

static void pyreq_names_the_place(void **state UNUSED)
{
	static const char *const files[] = {"a/r.txt", "x\n\n-r b.txt\n", "a/b.txt",
	                                    "y\\\n\n-e .\n"};
	static const char *const missing[] = {"r.txt", "x\n-r gone.txt\n"};
	static const char *const out[] = {"r.txt", "x\n-r ../b.txt\n"};
	static const char *const loop[] = {"r.txt", "x\n-r r.txt\n"};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct pyreq q;

	assert_err(resolve(a, files, COUNT(files), &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "a/b.txt:3:");
	assert_err(resolve(a, missing, COUNT(missing), &q, &err), &err,
	           ERR_PYTHON_REQUIREMENTS_INVALID, "r.txt:2:");
	assert_err(resolve(a, missing, 0, &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "r.txt");
	assert_err(resolve(a, out, COUNT(out), &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "r.txt:2:");
	assert_err(resolve(a, loop, COUNT(loop), &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "each other");
}

static void pyreq_has_bounds(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf lines = BUF_INIT(PYREQ_FILE_MAX), line = BUF_INIT(PYREQ_FILE_MAX);
	AUTO_BUF struct buf vars = BUF_INIT(PYREQ_FILE_MAX);
	const char *many[] = {"r.txt", NULL}, *list[1];
	struct pyreq_from from = {.line = list, .n = 1};
	struct err err = {0};
	struct pyreq q;

	for (int i = 0; i <= PYREQ_LINES_MAX; i++)
		buf_puts(&lines, "numpy\n");
	many[1] = buf_cstr(&lines);
	assert_err(resolve(a, many, 2, &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID, "lines");
	for (size_t i = 0; i <= PYREQ_LINE_MAX; i++)
		buf_putc(&line, 'x');
	many[1] = buf_cstr(&line);
	assert_err(resolve(a, many, 2, &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID, "longer");
	for (int i = 0; i <= PYREQ_VARS_MAX; i++)
		buf_printf(&vars, "${V%d}", i);
	list[0] = arena_printf(a, "x @ https://h/%s", buf_cstr(&vars));
	assert_err(pyreq_resolve(a, &from, &q, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "requirements[0]");
}

static void pyreq_small_words(void **state UNUSED)
{
	static const struct {
		const char *version;
		bool ok;
	} versions[] = {{"3.11", true},   {"3.9.18", true},    {"3.0", true}, {"3", false},
	                {"2.7", false},   {"3.x", false},      {"3.", false}, {".11", false},
	                {"3.011", false}, {"3.11.1.2", false}, {"", false},   {"3.11rc1", false},
	                {" 3.11", false}, {"3.100", false}};
	static const struct {
		const char *name;
		bool wanted;
	} env[] = {{"PIP_INDEX_URL", true}, {"UV_INDEX_CORP_PASSWORD", true},
	           {"HTTPS_PROXY", true},   {"PIP_TARGET", false},
	           {"UV_CACHE_DIR", false}, {"STEPS", false},
	           {"LD_PRELOAD", false},   {"PYTHONPATH", false}};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	for (size_t i = 0; i < COUNT(versions); i++)
		assert_row(pyreq_version_ok(str_of(versions[i].version)) == versions[i].ok,
		           versions[i].version);
	for (size_t i = 0; i < COUNT(env); i++)
		assert_row(pyreq_env_wanted(env[i].name) == env[i].wanted, env[i].name);
	assert_string_equal(pyreq_file(a, STR_LIT("././a/r.txt"), &err), "a/r.txt");
	assert_null(pyreq_file(a, STR_LIT("a/../r.txt"), &err));
	err_clear(&err);
	assert_null(pyreq_file(a, STR_LIT("3.11"), &err));
	err_clear(&err);
	assert_null(pyreq_file(a, STR_LIT("uv.lock"), &err));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(pyreq_lines),
	cmocka_unit_test(pyreq_files_together),
	cmocka_unit_test(pyreq_keeps_lines_where_they_are),
	cmocka_unit_test(pyreq_names_the_place),
	cmocka_unit_test(pyreq_has_bounds),
	cmocka_unit_test(pyreq_small_words),
};
UNIT_MAIN(tests)
