/*
 * python_find.c - the interpreter and the program that build an environment. Interpreters of the
 * host are looked for where nobody but its administrator writes: the PATH that jobs get, and the
 * folders of --share. They are asked who they are here, isolated and without site packages. An
 * image's own is found by the build itself; its image names it.
 */
#include "run/python.h"

#include "io/proc.h"
#include "run/mounts.h"

#include <dirent.h>

#define ASK_MS 30000
#define ANSWER_MAX ((size_t)64 << 10)
#define SITES_MAX ((size_t)4 << 20)
#define DIRS_MAX 64
#define HIDDEN_WORDS ", hidden from jobs: share its folder by --share"
#define FOUND_MAX 20 /* interpreters that an error names */

/* Where a sandbox shows folders of its own. */
static const char *const hidden[] = {"/home", "/root", "/tmp", "/var/tmp", "/run", "/dev", "/proc"};

/* version, build and compiler, machine, C library, program, folders of its packages */
static const char question[] =
	"import sys, os, site\n"
	"try: libc = os.confstr('CS_GNU_LIBC_VERSION')\n"
	"except Exception: libc = ''\n"
	"print('%d.%d.%d' % sys.version_info[:3])\n"
	"print(repr(sys.version), os.uname().machine, libc, os.path.realpath(sys.executable))\n"
	"print(':'.join(site.getsitepackages()))\n";

struct looking {
	const struct python_job *j;
	const char *dir[DIRS_MAX];
	size_t n;
	struct buf found; /* "3.11.2 (/usr/bin/python3.11), ..." */
	size_t n_found;
};

static bool is_shown(const struct python_job *j, const char *real)
{
	for (size_t i = 0; i < j->launch->n_share; i++) {
		AUTO_FREE char *share = realpath(j->launch->share[i], NULL);

		if (share != NULL && mounts_is_below(real, share))
			return true;
	}
	if (strcmp(j->launch->sandbox, "plain") == 0 && !j->ids->on)
		return true;
	for (size_t i = 0; i < COUNT(hidden); i++) {
		if (mounts_is_below(real, hidden[i]))
			return false;
	}
	return true;
}

static void list_dirs(struct looking *l)
{
	struct str rest = STR_LIT(PYTHON_PATH), part;
	const struct wire_launch *launch = l->j->launch;

	while (str_cut(&rest, ':', &part) && l->n < DIRS_MAX)
		l->dir[l->n++] = arena_strz(l->j->a, part);
	for (size_t i = 0; i < launch->n_share && l->n + 2 <= DIRS_MAX; i++) {
		l->dir[l->n++] = arena_printf(l->j->a, "%s/bin", launch->share[i]);
		l->dir[l->n++] = launch->share[i];
	}
}

/* Asks an interpreter who it is; false: it is none, or does not work. */
static bool ask(struct looking *l, const char *path, struct python_tools *t)
{
	const char *argv[] = {path, "-I", "-S", "-B", "-c", question, NULL};
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	struct str rest, version, identity, sites = {0};
	struct err no = {0};
	int code = 0;

	if (proc_run(argv, (struct str){0}, ASK_MS, &out, &code, &no) < 0 || code != 0)
		return false;
	rest = buf_view(&out);
	if (!str_cut(&rest, '\n', &version) || !str_cut(&rest, '\n', &identity) ||
	    !pyreq_version_ok(version))
		return false;
	(void)str_cut(&rest, '\n', &sites);
	t->python = path;
	t->version = arena_strz(l->j->a, version);
	t->identity = arena_strz(l->j->a, identity);
	t->sites = arena_strz(l->j->a, sites);
	return true;
}

/* "3.11" is every 3.11.N, "3.11.4" that one. */
static bool is_version(const char *is, const char *wanted)
{
	size_t n;

	if (wanted == NULL)
		return true;
	n = strlen(wanted);
	return strncmp(is, wanted, n) == 0 && (is[n] == '.' || is[n] == '\0');
}

/* Each once: /bin is /usr/bin, and python3 is python3.11. */
static void note_found(struct looking *l, const char *version, const char *path, const char *but)
{
	const char *place = arena_printf(l->j->a, " (%s%s)", path, but);

	if (strstr(buf_cstr(&l->found), place) == NULL && l->n_found++ < FOUND_MAX)
		buf_printf(&l->found, "%s%s%s", l->n_found > 1 ? ", " : "", version, place);
}

/* The candidate dir/name, when it is there, is shown to jobs and has the version. */
static bool take(struct looking *l, const char *dir, const char *name, struct python_tools *t)
{
	const char *path = arena_printf(l->j->a, "%s/%s", dir, name);
	AUTO_FREE char *real = realpath(path, NULL);
	struct python_tools got = *t;
	struct stat st;

	if (real == NULL || stat(real, &st) < 0 || !S_ISREG(st.st_mode) || access(real, X_OK) < 0)
		return false;
	if (!is_shown(l->j, real)) {
		note_found(l, name, real, HIDDEN_WORDS);
		return false;
	}
	if (!ask(l, path, &got))
		return false;
	if (is_version(got.version, l->j->spec->python.version)) {
		*t = got;
		return true;
	}
	note_found(l, got.version, real, "");
	return false;
}

/* For an error: what else is there, "python3.9" by its name alone. */
static void list_others(struct looking *l)
{
	for (size_t i = 0; i < l->n; i++) {
		DIR *d = opendir(l->dir[i]);

		for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
			struct str name = str_of(e->d_name);
			AUTO_FREE char *path = xasprintf("%s/%s", l->dir[i], e->d_name);
			AUTO_FREE char *real = realpath(path, NULL);

			if (real != NULL && str_starts(name, "python3.") &&
			    pyreq_version_ok(str_skip(name, strlen("python"))))
				note_found(l, e->d_name + strlen("python"), real,
				           is_shown(l->j, real) ? "" : HIDDEN_WORDS);
		}
		if (d != NULL)
			(void)closedir(d);
	}
}

static bool find_interpreter(struct looking *l, struct python_tools *t)
{
	const char *version = l->j->spec->python.version;
	const char *names[3] = {"python3", "python", NULL};
	char *own, *dot;

	if (version != NULL) { /* python3.11, then a python3 that is one */
		own = arena_printf(l->j->a, "python%s", version);
		dot = strchr(own, '.');
		dot = dot != NULL ? strchr(dot + 1, '.') : NULL;
		if (dot != NULL)
			*dot = '\0';
		names[1] = "python3";
		names[0] = own;
	}
	for (size_t n = 0; names[n] != NULL; n++) {
		for (size_t i = 0; i < l->n; i++) {
			if (take(l, l->dir[i], names[n], t))
				return true;
		}
	}
	return false;
}

/* ---- uv ------------------------------------------------------------------------------------ */

/* A program by itself: what is a script leads to things that a sandbox may not show. */
static bool is_program(const char *path)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	char magic[4];

	return fd >= 0 && pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	       memcmp(magic, "\177ELF", sizeof(magic)) == 0;
}

/* In the PATH of whoever started the server, or where uv's own installer puts it. */
static const char *uv_path(struct arena *a)
{
	const char *home = getenv("HOME");
	AUTO_FREE char *real = NULL;
	char found[4096];

	if (proc_find("uv", found) != NULL)
		real = realpath(found, NULL);
	if ((real == NULL || !is_program(real)) && home != NULL && home[0] == '/') {
		AUTO_FREE char *own = xasprintf("%s/.local/bin/uv", home);

		free(real);
		real = realpath(own, NULL);
	}
	return real != NULL && is_program(real) ? arena_cstr(a, real) : NULL;
}

static void find_uv(const struct python_job *j, struct python_tools *t)
{
	const char *path = uv_path(j->a);
	const char *argv[] = {path, "--version", NULL};
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	struct err no = {0};
	int code = 0;

	if (path == NULL || proc_run(argv, (struct str){0}, ASK_MS, &out, &code, &no) < 0 ||
	    code != 0 || !str_starts(buf_view(&out), "uv "))
		return;
	t->uv = path;
	t->uv_version = arena_strz(j->a, str_trim(buf_view(&out)));
}

/* ---- the interpreter's own packages -------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct names {
	unsigned magic;
#define NAMES_MAGIC 0x524e414dU
	struct arena *a;
	const char **item;
	size_t n, cap;
};

/* "numpy-1.24.2.dist-info": name and version of what is installed. */
static int note_package(void *arg, int dirfd UNUSED, const char *name, struct err *err UNUSED)
{
	struct names *all = FROM_VOID(struct names, arg, NAMES_MAGIC);
	struct str s = str_of(name);

	if (!str_ends(s, ".dist-info") && !str_ends(s, ".egg-info") && !str_ends(s, ".pth"))
		return 0;
	if (all->n == all->cap) {
		const char **more =
			ARENA_ARRAY(all->a, const char *, MAX(all->cap * 2, (size_t)256));

		if (all->n > 0)
			memcpy(more, all->item, all->n * sizeof(*more));
		all->item = more;
		all->cap = MAX(all->cap * 2, (size_t)256);
	}
	all->item[all->n++] = arena_cstr(all->a, name);
	return 0;
}

static int list_sites(const struct python_job *j, struct python_tools *t, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(SITES_MAX);
	struct str rest = str_of(t->sites), dir;
	struct names all = {.magic = NAMES_MAGIC, .a = j->a};

	while (str_cut(&rest, ':', &dir)) {
		struct err no = {0};
		int fd = fs_open_dir(arena_strz(j->a, dir), &no);

		if (fd >= 0 && fs_each_name(fd, "packages", note_package, &all, err) < 0)
			return -1;
	}
	if (all.n > 1)
		qsort(all.item, all.n, sizeof(*all.item), compare);
	for (size_t i = 0; i < all.n; i++)
		buf_printf(&out, "%s\n", all.item[i]);
	t->sites = arena_strz(j->a, buf_view(&out));
	return buf_check(&out, "the interpreter's packages", err);
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int not_found(struct looking *l, const struct python_tools *t, struct err *err)
{
	const char *version = l->j->spec->python.version;

	if (version == NULL)
		return err_set(err, ERR_PYTHON_NOT_FOUND,
		               "this machine has no python3: install it (apt install python3 "
		               "python3-venv)");
	return err_set(err, ERR_PYTHON_NOT_FOUND,
	               "this machine has no Python %s; it has %s. Name one of these in "
	               "runtime.python.version, install python%s, or install uv for the server's "
	               "user, which brings it",
	               version, t->found, version);
}

int python_find(const struct python_job *j, struct python_tools *out, struct err *err)
{
	struct looking l = {.j = j, .found = BUF_INIT(ANSWER_MAX)};
	bool system_site = j->spec->python.system_site;
	int rc = 0;

	*out = (struct python_tools){0};
	find_uv(j, out);
	if (j->image != NULL)
		return 0;
	list_dirs(&l);
	if (!find_interpreter(&l, out)) {
		list_others(&l);
		out->found = l.found.n > 0 ? arena_cstr(j->a, buf_cstr(&l.found)) : "none";
		if (out->uv == NULL || j->spec->python.version == NULL)
			rc = not_found(&l, out, err);
	}
	buf_done(&l.found);
	/* uv does not see the interpreter's packages when it decides what is missing; pip does */
	if (system_site && out->python != NULL) {
		out->uv = NULL;
		out->uv_version = NULL;
	}
	return rc == 0 && system_site && out->sites != NULL ? list_sites(j, out, err) : rc;
}

/* Debian leaves ensurepip out. Importing both would take four times as long as finding them. */
static const char find_venv[] = "from importlib.machinery import PathFinder as f\n"
				"for m in 'venv', 'ensurepip': f.find_spec(m).loader";

static bool has_venv(const char *python)
{
	const char *argv[] = {python, "-I", "-S", "-B", "-c", find_venv, NULL};
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	struct err no = {0};
	int code = 0;

	return proc_run(argv, (struct str){0}, ASK_MS, &out, &code, &no) == 0 && code == 0;
}

const char *python_words(struct arena *a, const char *sandbox_kind)
{
	const struct wire_launch launch = {.sandbox = sandbox_kind};
	const struct job_spec spec = {0};
	const struct ids ids = {.on = geteuid() == 0}; /* all that is asked: may it see homes? */
	const struct python_job j = {.a = a, .ids = &ids, .launch = &launch, .spec = &spec};
	struct looking l = {.j = &j, .found = BUF_INIT(ANSWER_MAX)};
	struct python_tools t = {0};

	find_uv(&j, &t);
	list_dirs(&l);
	(void)find_interpreter(&l, &t);
	buf_done(&l.found);
	if (t.python == NULL)
		return t.uv_version;
	if (t.uv == NULL && !has_venv(t.python))
		return NULL;
	return arena_printf(a, "Python %s, %s", t.version,
	                    t.uv != NULL ? t.uv_version : "venv and pip");
}
