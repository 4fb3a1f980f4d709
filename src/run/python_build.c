/*
 * python_build.c - builds an environment in a sandbox of its own: like the job's, with the job's
 * limits and network, and of the job's variables only those that matter to an index or a compiler.
 * The script reads its lines from files in the sandbox's scratch folder; secrets come as variables,
 * by the pipe that sandbox_script goes through.
 */
#include "run/python.h"

#include "base/clock.h"
#include "base/units.h"
#include "run/env.h"
#include "run/mounts.h"
#include "run/quota.h"
#include "run/sandbox.h"

#include <poll.h>

#define BUILD_MS ((int64_t)6 * 3600 * 1000) /* some packages are compiled for hours */
#define LOOK_MS 500
#define GROW_MS 1000
#define DRAIN_MS 2000
#define LINE_MAX_BYTES ((size_t)4096)
#define SAID_LINES_MAX 4000 /* in the job's log; the rest is counted */
#define SHOWN_MAX 400       /* bytes of one of them */
#define LAST_LINES 40       /* an error is looked for in these */
#define WHY_MAX 700

#define UV_PLACE "/opt/stoker/uv"
#define REQUIREMENTS "requirements" /* folder of what the user wrote, under its own names */
#define EXIT_NO_PYTHON 90
#define EXIT_NO_BUILDER 91

/* ---- the script ---------------------------------------------------------------------------- */

/* Given: python ('' = the image's own, or uv's), version, uv, env, build, site, pip_flags,
 * uv_flags; as arguments the files of the requirements. An image is asked for its interpreter here.
 */
static const char script[] =
	"( set -eu\n"
	"cd \"$build/" REQUIREMENTS "\"\n"
	"is_it() { \"$1\" -c 'import sys; v = \"%d.%d.%d\" % sys.version_info[:3]; w = "
	"sys.argv[1]; sys.exit(sys.version_info[0] < 3 or not (v + \".\").startswith(w + \".\" if "
	"w "
	"else \"\"))' \"$version\" >/dev/null 2>&1; }\n"
	"[ -z \"$uv\" ] || \"$uv\" --version >/dev/null 2>&1 || uv=$(command -v uv || true)\n"
	"if [ -z \"$python\" ]; then\n"
	"  for p in \"python${version%.*.*}\" \"python$version\" python3 python; do\n"
	"    if p=$(command -v \"$p\") && is_it \"$p\"; then python=$p; break; fi\n"
	"  done\n"
	"fi\n"
	"if [ -z \"$python\" ] && [ -n \"$uv\" ] && [ -n \"$version\" ]; then\n"
	"  UV_PYTHON_DOWNLOADS=automatic \"$uv\" python install --no-bin --install-dir "
	"\"$env/.python\" \"$version\" || exit 90\n"
	"  for p in \"$env\"/.python/*/bin/python3; do python=$p; done\n"
	"fi\n"
	"if [ -z \"$python\" ]; then\n"
	"  for p in python3 python; do command -v $p >/dev/null && { echo \"found: $(command -v "
	"$p), "
	"$($p --version 2>&1)\" >&2; exit 90; }; done\n"
	"  exit 90\n"
	"fi\n"
	"for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do\n"
	"  [ -n \"${SSL_CERT_FILE:-}\" ] || [ ! -r $f ] || export SSL_CERT_FILE=$f\n"
	"done\n"
	"if [ -n \"$uv\" ]; then\n"
	"  \"$uv\" venv --quiet --allow-existing --python \"$python\" $site \"$env\"\n"
	"  [ $# -eq 0 ] || \"$uv\" pip install --python \"$env/bin/python\" "
	"--compile-bytecode $uv_flags \"$@\"\n"
	"elif \"$python\" -c 'import venv, ensurepip' 2>/dev/null; then\n"
	"  \"$python\" -m venv $site \"$env\"\n"
	"  [ $# -eq 0 ] || \"$env/bin/python\" -m pip install $pip_flags \"$@\"\n"
	"elif \"$python\" -c 'import venv, pip; v = pip.__version__.split(\".\"); assert "
	"(int(v[0]), "
	"int(v[1])) >= (22, 3)' 2>/dev/null; then\n"
	"  \"$python\" -m venv --without-pip $site \"$env\"\n"
	"  [ $# -eq 0 ] || \"$python\" -m pip --python \"$env/bin/python\" install "
	"$pip_flags \"$@\"\n"
	"else\n"
	"  exit 91\n"
	"fi\n"
	"\"$env/bin/python\" -I - \"$env/installed.txt\" <<'END'\n"
	"import sys, sysconfig, importlib.metadata as m\n"
	"where = [sysconfig.get_path(p) for p in ('purelib', 'platlib')]\n"
	"names = {d.metadata['Name'] + '==' + d.version for d in m.distributions(path=where)}\n"
	"with open(sys.argv[1], 'w') as f:\n"
	"    f.write('# Python %d.%d.%d\\n' % sys.version_info[:3])\n"
	"    f.writelines(n + '\\n' for n in sorted(names, key=str.lower))\n"
	"END\n"
	")";

static void set(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "%s=", name);
	buf_shell(out, value != NULL ? value : "");
	buf_putc(out, '\n');
}

struct paths {
	const char *env, *build, *uv, *cache; /* as the build sees them; cache NULL: none */
};

static void write_script(const struct python_job *j, const struct python_want *w,
                         const struct paths *at, struct buf *out)
{
	const struct pyreq *q = &w->req;

	for (size_t i = 0; i < w->n_unset; i++)
		buf_printf(out, "unset %s 2>/dev/null\n", w->unset[i]);
	set(out, "python", w->tools.python);
	set(out, "version", j->spec->python.version);
	set(out, "uv", at->uv);
	set(out, "env", at->env);
	set(out, "build", at->build);
	set(out, "site", j->spec->python.system_site ? "--system-site-packages" : "");
	buf_printf(out, "pip_flags='%s%s%s'\n", q->pre ? "--pre " : "",
	           q->hashes ? "--require-hashes " : "", q->binary ? "--prefer-binary" : "");
	buf_printf(out, "uv_flags='%s%s'\n", q->pre ? "--prerelease allow " : "",
	           q->hashes ? "--require-hashes" : "");
	buf_puts(out, "set --");
	for (size_t i = 0; q->n_packages > 0 && i < q->n_parts; i++) {
		buf_puts(out, q->part[i].constraint ? " --constraint=" : " --requirement=");
		buf_shell(out, q->part[i].name);
	}
	buf_putc(out, '\n');
	buf_puts(out, script);
}

/* The environment of a build; the job's variables come last and win. */
static struct wire_env *build_env(const struct python_job *j, const struct python_want *w,
                                  const struct paths *at, size_t *n)
{
	const char *cache =
		at->cache != NULL ? at->cache : arena_printf(j->a, "%s/cache", at->build);
	const struct wire_env rows[] = {
		{"PATH", j->image == NULL ? PYTHON_PATH : NULL, false},
		{"LANG", "C.UTF-8", false},
		{"HOME", at->build, false},
		{"TMPDIR", arena_printf(j->a, "%s/tmp", at->build), false},
		{"NO_COLOR", "1", false},
		{"PIP_NO_INPUT", "1", false},
		{"PIP_DISABLE_PIP_VERSION_CHECK", "1", false},
		{"PIP_NO_WARN_SCRIPT_LOCATION", "1", false},
		{"PIP_ROOT_USER_ACTION", "ignore", false},
		{"PIP_PROGRESS_BAR", "off", false},
		{"PIP_CACHE_DIR", arena_printf(j->a, "%s/pip", cache), false},
		{"UV_CACHE_DIR", arena_printf(j->a, "%s/uv", cache), false},
		{"UV_LINK_MODE", "copy", false},
		{"UV_NO_PROGRESS", "1", false},
		{"UV_PYTHON_DOWNLOADS", "never", false},
	};
	struct wire_env *env = ARENA_ARRAY(j->a, struct wire_env, COUNT(rows) + w->n_env);

	for (size_t i = 0; i < COUNT(rows); i++) {
		if (rows[i].value != NULL)
			env[(*n)++] = rows[i];
	}
	for (size_t i = 0; i < w->n_env; i++)
		env[(*n)++] = w->env[i];
	return env;
}

/* ---- what it says -------------------------------------------------------------------------- */

struct lines {
	struct buf part[2]; /* of an unfinished line: stdout, stderr */
	char *last[LAST_LINES];
	size_t n;
};

struct build {
	const struct python_job *j;
	struct node_making *making;
	struct sandbox *s;
	struct quota *quota;
	struct lines lines;
	char doing[BUILT_SAID_MAX];
	int64_t begun_ms, line_ms, look_ms, grow_ms;
};

static void take_line(struct build *x, struct str line)
{
	struct lines *l = &x->lines;
	char **slot = &l->last[l->n % LAST_LINES];

	line = str_trim(line);
	if (line.n == 0)
		return;
	free(*slot);
	*slot = str_dup(str_n(line.p, MIN(line.n, (size_t)SHOWN_MAX)));
	for (char *p = *slot; *p != '\0'; p++) {
		if ((unsigned char)*p < ' ' || *p == 127)
			*p = ' ';
	}
	if (l->n < SAID_LINES_MAX)
		logs_message(x->j->logs, "python: %s", *slot);
	fmt_fixed(x->doing, sizeof(x->doing), "%.*s", (int)sizeof(x->doing) - 1, *slot);
	x->line_ms = clock_mono_ms();
	l->n++;
}

/* false: its end. */
static bool read_some(struct build *x, int i, int fd)
{
	struct buf *b = &x->lines.part[i];
	char chunk[4096];
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n <= 0)
		return n < 0 && (errno == EINTR || errno == EAGAIN);
	for (ssize_t k = 0; k < n; k++) {
		if (chunk[k] != '\n' && chunk[k] != '\r' && b->n < LINE_MAX_BYTES) {
			buf_putc(b, chunk[k]);
			continue;
		}
		take_line(x, buf_view(b));
		buf_clear(b);
	}
	return true;
}

static bool is_error(const char *line)
{
	return strncmp(line, "ERROR:", 6) == 0 || strncmp(line, "error:", 6) == 0 ||
	       strncmp(line, "fatal:", 6) == 0 || /* git's, which pip leaves out of its own */
	       strncmp(line, "\xc3\x97", 2) == 0; /* uv's cross */
}

static const char *line_at(const struct lines *l, size_t i)
{
	return l->last[i % LAST_LINES];
}

/* pip says an error of a subprocess twice, and that it is not its own. */
static bool adds_nothing(const char *const *said, size_t n, const char *line)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(said[i], line) == 0)
			return true;
	}
	return strncmp(line, "note: This error originates", 27) == 0 ||
	       strstr(line, "See above for output.") != NULL;
}

/* From the first line that tells of an error, else the last few; of what is long, that line and as
 * much of the end as fits. */
static void last_words(const struct lines *l, struct buf *out)
{
	size_t oldest = l->n > LAST_LINES ? l->n - LAST_LINES : 0, first = oldest, n = 0, from;
	size_t room = WHY_MAX;
	const char *said[LAST_LINES];

	while (first < l->n && !is_error(line_at(l, first)))
		first++;
	if (first == l->n)
		first = l->n - oldest > 5 ? l->n - 5 : oldest;
	for (; first < l->n; first++) {
		if (!adds_nothing(said, n, line_at(l, first)))
			said[n++] = line_at(l, first);
	}
	if (n == 0)
		return;
	from = n;
	room -= MIN(room, strlen(said[0]) + 6);
	while (from > 1 && strlen(said[from - 1]) + 1 < room)
		room -= strlen(said[--from]) + 1;
	buf_printf(out, "%s%s", said[0], from > 1 ? "\n..." : "");
	for (; from < n; from++)
		buf_printf(out, "\n%s", said[from]);
}

static void lines_done(struct lines *l)
{
	buf_done(&l->part[0]);
	buf_done(&l->part[1]);
	for (size_t i = 0; i < LAST_LINES; i++)
		free(l->last[i]);
}

/* ---- running it ---------------------------------------------------------------------------- */

static int tell(struct build *x, struct err *err)
{
	int64_t now = clock_mono_ms();
	char note[BUILT_SAID_MAX + 60];

	if (*report_cancel(x->j->report))
		return err_set(err, ERR_CANCELED, "stopped while building the Python environment");
	if (now - x->begun_ms > BUILD_MS)
		return err_set(err, ERR_TIMEOUT, "the environment was not built within %d h",
		               (int)(BUILD_MS / 3600000));
	if (now >= x->look_ms) {
		x->look_ms = now + LOOK_MS;
		(void)snprintf(note, sizeof(note), "%s%s%" PRId64 " s", x->doing,
		               x->doing[0] != '\0' ? ", " : "",
		               (now - (x->line_ms > 0 ? x->line_ms : x->begun_ms)) / 1000);
		report_progress(x->j->report, note, 0, 0);
		node_say(x->making, x->doing);
	}
	if (now < x->grow_ms)
		return 0;
	x->grow_ms = now + GROW_MS;
	return node_grow(x->making, err);
}

static int watch(struct build *x, int *code, struct err *err)
{
	struct sandbox *s = x->s;

	while (!sandbox_ended(s, code)) {
		struct pollfd p[] = {{.fd = s->out_fd, .events = POLLIN},
		                     {.fd = s->err_fd, .events = POLLIN},
		                     {.fd = s->status_fd, .events = POLLIN},
		                     {.fd = s->proc.pidfd, .events = POLLIN},
		                     {.fd = quota_fd(x->quota), .events = POLLIN}};

		if (tell(x, err) < 0)
			return -1;
		(void)poll(p, COUNT(p), LOOK_MS);
		if (p[0].revents != 0 && !read_some(x, 0, s->out_fd))
			close_fd_p(&s->out_fd), s->out_fd = -1;
		if (p[1].revents != 0 && !read_some(x, 1, s->err_fd))
			close_fd_p(&s->err_fd), s->err_fd = -1;
		sandbox_poll(s);
		sandbox_let_go(s);
		if (quota_crossed(x->quota, err))
			return err_wrap(err, "building the environment");
	}
	return 0;
}

/* Packages run code when they are built: it may take no more of the disk than the job's own. */
static int start_quota(struct build *x, const char *dir, const char *tree, struct err *err)
{
	const struct wire_launch *l = x->j->launch;
	struct arena *a = x->j->a;
	struct quota_options o = {
		.dir = dir,
		.scratch = {arena_printf(a, "%s/" ATTEMPT_SCRATCH, dir),
	                    arena_printf(a, "%s/" ATTEMPT_UPPER, dir),
	                    arena_printf(a, "%s/" ATTEMPT_VARTMP, dir), x->s->upper},
		.root = x->s->upper,
		.cache = {l->cache_project_dir, tree},
		.scratch_bytes = l->scratch_bytes,
		.scratch_files = l->scratch_files,
		.group = cgroup_tracks(&x->s->cgroup) ? &x->s->cgroup : NULL,
		.init = x->s->init,
	};

	return quota_start(&x->quota, &o, err);
}

/* Reads the rest of the pipes once all writers are gone. */
static void drain(struct build *x)
{
	int64_t until = clock_mono_ms() + DRAIN_MS;
	int *fd[] = {&x->s->out_fd, &x->s->err_fd};

	for (int i = 0; i < 2; i++) {
		struct pollfd p = {.fd = *fd[i], .events = POLLIN};

		while (*fd[i] >= 0 && clock_mono_ms() < until && poll(&p, 1, 0) > 0 &&
		       read_some(x, i, *fd[i]))
			;
		take_line(x, buf_view(&x->lines.part[i]));
	}
}

static int ended_badly(struct build *x, const struct python_want *w, int code, struct err *err)
{
	AUTO_BUF struct buf why = BUF_INIT(2 * WHY_MAX);
	const char *where = x->j->image != NULL ? "the image" : "this machine";
	const char *version = x->j->spec->python.version, *found = w->tools.found;
	char memory[UNITS_CAP];

	last_words(&x->lines, &why);
	if (code == EXIT_NO_PYTHON)
		return err_set(err, ERR_PYTHON_NOT_FOUND, "%s has no Python %s%s%s%s%s", where,
		               version != NULL ? version : "3", found != NULL ? "; it has " : "",
		               found != NULL ? found : "", why.n > 0 ? ". " : "", buf_cstr(&why));
	if (code == EXIT_NO_BUILDER)
		return err_set(err, ERR_PYTHON_BUILDER_MISSING,
		               "%s has neither uv nor Python's venv and ensurepip: install one "
		               "(apt install python3-venv)",
		               where);
	if (x->s->oom_kills > 0 || x->s->oom)
		return err_set(err, ERR_PYTHON_REQUIREMENTS_FAILED,
		               "building the environment took more than the job's memory of %s: "
		               "raise compute.memory",
		               units_show_memory(x->j->spec->memory_bytes, memory));
	return err_set(err, ERR_PYTHON_REQUIREMENTS_FAILED, "the environment cannot be built: %s",
	               why.n > 0 ? buf_cstr(&why) : "its builder exited without a message");
}

static int run(struct build *x, const struct python_want *w, const struct paths *at,
               struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SANDBOX_SCRIPT_MAX),
			    whole = BUF_INIT(SANDBOX_SCRIPT_MAX);
	const char *command;
	struct wire_env *env;
	size_t n_env = 0;
	bool empty;
	int code = 0, rc;

	write_script(x->j, w, at, &text);
	command = buf_cstr(&text);
	env = build_env(x->j, w, at, &n_env);
	sandbox_script(x->s,
	               &(struct sandbox_script){
			       .env = env, .n_env = n_env, .commands = &command, .n_commands = 1},
	               &whole);
	rc = buf_check(&whole, "the build's script", err);
	if (rc == 0)
		rc = sandbox_go(x->s, buf_view(&whole), err);
	if (rc == 0)
		rc = watch(x, &code, err);
	empty = sandbox_kill(x->s);
	drain(x);
	if (x->lines.n > SAID_LINES_MAX)
		logs_message(x->j->logs, "python: ... and %zu more lines",
		             x->lines.n - SAID_LINES_MAX);
	if (rc == 0 && code != 0)
		rc = ended_badly(x, w, code, err);
	if (rc == 0 && !empty) /* somebody could still write to it */
		rc = err_set(err, ERR_TIMEOUT, "the build's processes cannot be killed");
	return rc;
}

/* ---- its sandbox --------------------------------------------------------------------------- */

static int make_folder(const struct python_job *j, const char *path, struct err *err)
{
	AUTO_FD int fd = -1;

	if (fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
		return -1;
	fd = fs_open_dir(path, err);
	return fd < 0 ? -1 : ids_own(j->ids, fd, path, err);
}

/* The user's files, so far as they count: what is said of one names it. */
static int put_requirements(const struct python_job *j, const char *dir, const struct pyreq *q,
                            struct err *err)
{
	if (make_folder(j, dir, err) < 0)
		return -1;
	for (size_t i = 0; i < q->n_parts; i++) {
		char *path = arena_printf(j->a, "%s/%s", dir, q->part[i].name);

		for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')) != NULL; p++) {
			*p = '\0';
			if (make_folder(j, path, err) < 0)
				return -1;
			*p = '/';
		}
		if (fs_write_atomic(AT_FDCWD, path, q->part[i].text, 0644, err) < 0)
			return -1;
	}
	return 0;
}

static int make_folders(const struct python_job *j, const char *dir, const char *tree,
                        const struct pyreq *q, struct err *err)
{
	static const char *const names[] = {ATTEMPT_SCRATCH, ATTEMPT_SCRATCH "/tmp", ATTEMPT_UPPER,
	                                    ATTEMPT_VARTMP};

	for (size_t i = 0; i < COUNT(names); i++) {
		if (make_folder(j, arena_printf(j->a, "%s/%s", dir, names[i]), err) < 0)
			return -1;
	}
	if (make_folder(j, tree, err) < 0)
		return -1;
	if (chmod(arena_printf(j->a, "%s/" ATTEMPT_VARTMP, dir), 01777) < 0)
		return err_errno(err, errno, "%s/" ATTEMPT_VARTMP, dir);
	return put_requirements(j, arena_printf(j->a, "%s/" ATTEMPT_SCRATCH "/" REQUIREMENTS, dir),
	                        q, err);
}

static int make_mounts(const struct python_job *j, const struct python_want *w, const char *dir,
                       const char *tree, struct mounts *m, struct paths *at, struct err *err)
{
	struct mounts_machine machine;
	const struct wire_launch *l = j->launch;
	const char *scratch = arena_printf(j->a, "%s/" ATTEMPT_SCRATCH, dir);
	bool host = j->image == NULL,
	     cache = j->spec->cache.enabled && l->cache_project_dir != NULL;

	if (!w->place) {
		*at = (struct paths){tree, scratch, w->tools.uv,
		                     cache ? l->cache_project_dir : NULL};
		return 0;
	}
	*at = (struct paths){w->at, arena_printf(j->a, "%s" MOUNT_BT_SCRATCH, w->below),
	                     w->tools.uv != NULL ? arena_printf(j->a, "%s" UV_PLACE, w->below)
	                                         : NULL,
	                     cache ? arena_printf(j->a, "%s%s/user_artifacts", w->below,
	                                          j->spec->cache.base_path)
	                           : NULL};
	mounts_machine(j->a, &machine);
	if (host && w->below[0] == '\0' && mounts_host(m, l, &machine, err) < 0)
		return -1;
	if (mounts_add(m, MOUNT_RW, scratch, at->build, err) < 0 ||
	    mounts_add(m, MOUNT_RW, tree, at->env, err) < 0)
		return -1;
	if (at->uv != NULL && mounts_add(m, MOUNT_RO, w->tools.uv, at->uv, err) < 0)
		return -1;
	return cache ? mounts_add(m, MOUNT_RW, l->cache_project_dir, at->cache, err) : 0;
}

static int in_sandbox(const struct python_job *j, const struct python_want *w,
                      struct node_making *making, const char *dir, const char *tree,
                      struct err *err)
{
	struct mounts *m = arena_alloc(j->a, sizeof(*m));
	const struct sandbox_spec spec = {
		.dir = dir,
		.name = arena_printf(j->a, "%s" PYTHON_GROUP, j->name),
		.kind = j->launch->sandbox,
		.image = j->image,
		.image_path = j->image_path,
		.image_root = j->image_root,
		.program = j->program,
		.mounts = m,
		.gpus = j->launch->gpus,
		.n_gpus = j->launch->n_gpus,
		.limits = {.memory_bytes = j->spec->memory_bytes,
	                   .cpu_milli = (uint32_t)(j->spec->cpu_count * 1000)},
		.ids = *j->ids,
		.confined = j->confined,
		.need_mount_points = w->place && w->below[0] == '\0',
	};
	struct build x = {.j = j,
	                  .making = making,
	                  .begun_ms = clock_mono_ms(),
	                  .lines = {.part = {BUF_INIT(LINE_MAX_BYTES), BUF_INIT(LINE_MAX_BYTES)}}};
	struct paths at;
	int rc;

	m->a = j->a;
	m->confined = j->confined;
	if (make_folders(j, dir, tree, &w->req, err) < 0 ||
	    make_mounts(j, w, dir, tree, m, &at, err) < 0 || sandbox_start(&x.s, &spec, err) < 0)
		return -1;
	rc = start_quota(&x, dir, tree, err);
	if (rc == 0)
		rc = run(&x, w, &at, err);
	quota_stop(x.quota);
	sandbox_close(x.s);
	lines_done(&x.lines);
	return rc;
}

int python_build(const struct python_job *j, const struct python_want *w, struct node_making *m,
                 const char *tree, struct err *err)
{
	const char *dir = arena_printf(j->a, "%s/" PYTHON_DIR, j->dir);
	const char *by = w->tools.uv != NULL ? w->tools.uv_version : "pip";
	struct err later = {0};
	int rc;

	logs_message(j->logs, "python: building the environment of %zu requirement%s with %s%s%s",
	             w->req.n_packages, w->req.n_packages == 1 ? "" : "s", by,
	             w->tools.version != NULL ? " and Python " : "",
	             w->tools.version != NULL ? w->tools.version : "");
	rc = in_sandbox(j, w, m, dir, tree, err);
	if (fs_remove_tree(AT_FDCWD, dir, &later) < 0)
		err_clear(&later); /* it goes with the attempt's folder */
	return rc;
}
