/* python.c - from a job's words to the environment that it gets; see python.h. */
#include "run/python.h"

#include "base/clock.h"
#include "base/units.h"
#include "run/mounts.h"
#include "run/sandbox.h"

#define SAID_MAX 300
#define KEY_MAX ((size_t)32 << 20)
#define INSTALLED_MAX ((size_t)4 << 20)
#define CONFIG_MAX ((size_t)1 << 20)

extern char **environ;

/* ---- requirements -------------------------------------------------------------------------- */

static int read_code(void *arg, const char *path, struct buf *out, struct err *err)
{
	int *root = arg;
	AUTO_FD int fd = fs_open_beneath(*root, path, O_RDONLY, 0, err);
	struct stat st;

	if (fd < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_NOT_FOUND, "the job's folder has no file %s", path);
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is not a file", path);
	for (;;) {
		char *room = buf_room(out, 65536);
		ssize_t n = room == NULL ? 0 : read(fd, room, 65536);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, errno, "%s", path);
		if (n == 0)
			return buf_check(out, path, err);
		out->n += (size_t)n;
	}
}

static int resolve(const struct python_job *j, struct pyreq *out, struct err *err)
{
	AUTO_FD int root = fs_open_dir(arena_printf(j->a, "%s/" ATTEMPT_CODE, j->dir), err);
	struct pyreq_from from = {
		.file = j->spec->python.file,
		.line = j->spec->python.line,
		.n = j->spec->python.n_lines,
		.read = read_code,
		.arg = &root,
	};

	return root < 0 ? -1 : pyreq_resolve(j->a, &from, out, err);
}

/* ---- variables ----------------------------------------------------------------------------- */

static bool is_used(const struct pyreq *q, const char *name)
{
	for (size_t i = 0; i < q->n_vars; i++) {
		if (strcmp(q->var[i], name) == 0)
			return true;
	}
	return false;
}

static bool has(const struct wire_env *env, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(env[i].name, name) == 0)
			return true;
	}
	return false;
}

/* Chooses the job's variables that an index, a proxy, a compiler or a line of the requirements
 * needs. */
static int choose_env(const struct python_job *j, struct python_want *w, struct err *err)
{
	const struct wire_launch *l = j->launch;

	w->env = ARENA_ARRAY(j->a, struct wire_env, l->n_env + 1);
	for (size_t i = 0; i < l->n_env; i++) {
		if (pyreq_env_wanted(l->env[i].name) || is_used(&w->req, l->env[i].name))
			w->env[w->n_env++] = l->env[i];
	}
	for (size_t i = 0; i < w->req.n_vars; i++) {
		if (!has(w->env, w->n_env, w->req.var[i]))
			return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID,
			               "the requirements use ${%s}, and the job sets no such "
			               "variable: add it to environment_variables",
			               w->req.var[i]);
	}
	return 0;
}

static bool is_pythons(const char *name)
{
	return strncmp(name, "PIP_", 4) == 0 || strncmp(name, "UV_", 3) == 0 ||
	       strncmp(name, "PYTHON", 6) == 0 || strcmp(name, "VIRTUAL_ENV") == 0 ||
	       strncmp(name, "CONDA_", 6) == 0;
}

/* The server's environment is passed on to its sandboxes; some variables must not be. */
static void choose_unset(const struct python_job *j, struct python_want *w)
{
	const char **unset;
	size_t n = 0;

	while (environ[n] != NULL)
		n++;
	unset = ARENA_ARRAY(j->a, const char *, n + 1);
	for (size_t i = 0; environ[i] != NULL; i++) {
		const char *eq = strchr(environ[i], '=');
		const char *name =
			eq == NULL ? environ[i]
				   : arena_strz(j->a, str_n(environ[i], (size_t)(eq - environ[i])));

		if (is_pythons(name) && !pyreq_env_wanted(name))
			unset[w->n_unset++] = name;
	}
	w->unset = unset;
}

/* ---- the key ------------------------------------------------------------------------------- */

static void put(struct buf *key, const char *what, struct str value)
{
	buf_printf(key, "%s %zu:", what, value.n);
	buf_str(key, value);
	buf_putc(key, '\n');
}

static void put_text(struct buf *key, const char *what, const char *value)
{
	if (value != NULL)
		put(key, what, str_of(value));
}

/* The part of a secret that counts for the key: its name, and its URL without the login. So a
 * replaced token rebuilds nothing, but another index does. */
static struct str of_secret(struct arena *a, const struct job_spec *s, const struct wire_env *e)
{
	const char *at = strstr(e->value, "://"), *name = "", *end, *host;

	for (size_t i = 0; i < s->n_env; i++) {
		if (strcmp(s->env[i].name, e->name) == 0 && s->env[i].secret != NULL)
			name = s->env[i].secret;
	}
	if (at == NULL)
		return str_of(arena_printf(a, "secret %s", name));
	at += 3;
	end = at + strcspn(at, "/?# ");
	host = at;
	for (const char *p = at; p < end; p++) {
		if (*p == '@')
			host = p + 1;
	}
	return str_of(
		arena_printf(a, "secret %s %.*s%s", name, (int)(at - e->value), e->value, host));
}

static void put_env(const struct python_job *j, const struct python_want *w, struct buf *key)
{
	for (size_t i = 0; environ[i] != NULL && j->image == NULL; i++) {
		const char *eq = strchr(environ[i], '=');
		char *name =
			arena_strz(j->a, str_n(environ[i], eq == NULL ? strlen(environ[i])
		                                                      : (size_t)(eq - environ[i])));

		if (pyreq_env_wanted(name) && !has(w->env, w->n_env, name))
			put_text(key, "server", environ[i]);
	}
	for (size_t i = 0; i < w->n_env; i++) {
		const struct wire_env *e = &w->env[i];

		put_text(key, "variable", e->name);
		put(key, "value", e->secret ? of_secret(j->a, j->spec, e) : str_of(e->value));
	}
}

/* Adds the machine-wide configuration of pip and uv to the key. */
static void put_config(struct buf *key)
{
	static const char *const files[] = {"/etc/pip.conf", "/etc/xdg/pip/pip.conf",
	                                    "/etc/uv/uv.toml", "/etc/xdg/uv/uv.toml"};

	for (size_t i = 0; i < COUNT(files); i++) {
		AUTO_BUF struct buf body = BUF_INIT(CONFIG_MAX);
		struct err no = {0};

		if (fs_read(AT_FDCWD, files[i], &body, &no) == 0)
			put(key, files[i], buf_view(&body));
	}
}

static int make_key(const struct python_job *j, const struct python_want *w, struct digest *out,
                    struct err *err)
{
	AUTO_BUF struct buf key = BUF_INIT(KEY_MAX);
	const struct job_spec *s = j->spec;
	const struct python_tools *t = &w->tools;

	buf_puts(&key, "stoker python environment 1\n");
	put_text(&key, "at", w->at != NULL ? w->at : "");
	put_text(&key, "version", s->python.version);
	put_text(&key, "python", t->identity);
	put_text(&key, "image", j->image);
	put_text(&key, "uv", t->uv_version);
	if (s->python.system_site)
		put_text(&key, "sites", t->sites != NULL ? t->sites : "");
	put_env(j, w, &key);
	put_config(&key);
	buf_printf(&key, "pre %d hashes %d binary %d\n", w->req.pre, w->req.hashes, w->req.binary);
	put(&key, "options", w->req.options);
	put(&key, "packages", w->req.packages);
	put(&key, "constraints", w->req.constraints);
	*out = hash_sha256(key.p, key.n);
	return buf_check(&key, "the requirements", err);
}

/* ---- asking the node cache ----------------------------------------------------------------- */

struct asking {
	unsigned magic;
#define ASKING_MAGIC 0x5241534bU
	const struct python_job *j;
	const struct python_want *w;
	int64_t begun_ms;
	bool waited;
};

static int make(void *arg, struct node_making *m, const char *dir, struct err *err)
{
	struct asking *x = FROM_VOID(struct asking, arg, ASKING_MAGIC);

	return python_build(x->j, x->w, m, dir, err);
}

static void on_wait(void *arg, const char *words)
{
	struct asking *x = FROM_VOID(struct asking, arg, ASKING_MAGIC);
	char note[SAID_MAX];

	if (!x->waited)
		logs_message(x->j->logs,
		             "python: another job is building this environment; waiting");
	x->waited = true;
	(void)snprintf(note, sizeof(note), "waiting for another job to build it%s%s",
	               words[0] != '\0' ? ": " : "", words);
	report_progress(x->j->report, note, 0, 0);
}

static void on_damaged(void *arg, const char *why)
{
	struct asking *x = FROM_VOID(struct asking, arg, ASKING_MAGIC);

	logs_message(x->j->logs,
	             "python: the environment on this node is damaged (%s); rebuilding it", why);
	report_event(x->j->report, "warning", "the Python environment on the node was damaged: %s",
	             why);
}

/* "# Python 3.11.2", then a package a line: what the build wrote of itself. */
static void read_installed(const char *dir, char version[40], size_t *packages)
{
	AUTO_BUF struct buf body = BUF_INIT(INSTALLED_MAX);
	AUTO_FREE char *path = xasprintf("%s/installed.txt", dir);
	struct str rest, line;
	struct err no = {0};

	version[0] = '\0';
	*packages = 0;
	if (fs_read(AT_FDCWD, path, &body, &no) < 0)
		return;
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, "# Python "))
			fmt_fixed(version, 40, "%.*s", (int)MIN(line.n - 9, (size_t)39),
			          line.p + 9);
		else if (line.n > 0)
			(*packages)++;
	}
}

static void say(const struct asking *x, const struct node_lease *lease)
{
	char size[UNITS_CAP], version[40], took[60] = "";
	size_t packages = 0;

	read_installed(confined_path(x->j->confined, x->j->a, lease->path), version, &packages);
	if (!lease->hit)
		FMT(took, "built in %.1f s", (double)(clock_mono_ms() - x->begun_ms) / 1000);
	logs_message(x->j->logs, "python %s: %zu package%s, %s, %s", version, packages,
	             packages == 1 ? "" : "s", units_show_bytes(lease->bytes, size),
	             lease->hit ? "already on this node" : took);
}

int python_bring(const struct python_job *j, struct python *out, struct err *err)
{
	struct python_want *w = arena_alloc(j->a, sizeof(*w));
	struct asking x = {.magic = ASKING_MAGIC, .j = j, .w = w, .begun_ms = clock_mono_ms()};
	struct node_maker by = {make, on_wait, on_damaged, &x};
	bool plain = j->image == NULL && strcmp(j->launch->sandbox, sandbox_plain.name) == 0;
	struct digest key;

	w->place = !plain || j->ids->on;
	w->below = plain && j->ids->on ? IDS_STAGE : "";
	w->at = w->place ? arena_printf(j->a, "%s" SPEC_PYTHON_PLACE, w->below) : NULL;
	if (resolve(j, &w->req, err) < 0 || choose_env(j, w, err) < 0 ||
	    python_find(j, &w->tools, err) < 0)
		return -1;
	choose_unset(j, w);
	if (make_key(j, w, &key, err) < 0)
		return -1;
	while (node_built(j->node, j->launch->team_id, &key, &by, report_cancel(j->report),
	                  &out->lease, err) < 0) {
		if (err->id != ERR_NODE_CACHE_FULL || !j->wait_for_room(j->arg, err))
			return -1;
		err_clear(err);
	}
	out->place = w->place;
	out->at = w->place ? w->at : out->lease.path;
	say(&x, &out->lease);
	return 0;
}

int python_sweep(const char *name, const char *dir, struct err *err)
{
	AUTO_FREE char *sub = xasprintf("%s/" PYTHON_DIR, dir),
		       *sub_name = xasprintf("%s" PYTHON_GROUP, name),
		       *groups = xasprintf("%s/" PYTHON_CGROUPS, dir);

	return sandbox_sweep(sub_name, sub, err) < 0 ? -1
	                                             : sandbox_sweep_groups(sub_name, groups, err);
}
