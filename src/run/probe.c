/* probe.c - which sandbox this machine's jobs get: each kind is really started, with nothing to do.
 */
#include "base/fs.h"
#include "base/json.h"
#include "run/image_keeper.h"
#include "run/prjquota.h"
#include "run/python.h"
#include "run/sandbox.h"
#include "run/sandbox_exec_image.h"

#include <sys/utsname.h>
#include <sys/wait.h>

#define PROBE_NAME "stoker-probe"
#define MENDED " (docs/operating.md says what to do)"
#define ANSWER_MAX ((size_t)64 << 10)

static const char *version_of(struct arena *a, const char *program)
{
	const char *argv[] = {program, "--version", NULL};
	AUTO_BUF struct buf out = BUF_INIT(4096);
	struct str text, word = {0};
	char found[4096];
	struct err err = {0};
	int code = 0;

	if (proc_find(program, found) == NULL ||
	    proc_run(argv, (struct str){0}, 10000, &out, &code, &err) < 0 || code != 0)
		return NULL;
	text = str_trim(buf_view(&out));
	while (str_cut(&text, ' ', &word)) /* "bubblewrap 0.8.0", "podman version 4.3.1" */
		;
	return arena_strz(a, word);
}

/* The report to the server. */
struct found {
	struct arena *a;
	const char *program, *data;
	bool own_ids; /* jobs get ids of their own */
	struct ids_pool pool;
	const char *kind, *says, *notes, *ids, *taken;
	const char *root; /* why runners stay root; NULL: nothing was in the way */
};

static void add_words(struct found *f, const char *words)
{
	f->notes = arena_printf(f->a, "%s%s%s", f->notes, f->notes[0] != '\0' ? "; " : "", words);
}

static void add_note(struct found *f, const char *what, const char *why)
{
	add_words(f, arena_printf(f->a, "%s: %s", what, why));
}

static void stays_root(struct found *f, const char *why)
{
	add_note(f, "runners stay root", why);
	f->root = why;
}

/* As a job's attempt has them, all of the job's id. */
static int make_folders(struct found *f, const char *dir, const struct ids *ids, struct err *err)
{
	static const char *const below[] = {ATTEMPT_UPPER, ATTEMPT_VARTMP};

	for (size_t i = 0; i < COUNT(below); i++) {
		char *path = arena_printf(f->a, "%s/%s", dir, below[i]);
		AUTO_FD int fd = -1;

		if (fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
			return -1;
		fd = fs_open_dir(path, err);
		if (fd < 0 || ids_own(ids, fd, path, err) < 0)
			return -1;
	}
	return 0;
}

static int take_ids(struct found *f, const char *dir, struct ids *out, struct err *err)
{
	bool idmap = f->own_ids && strcmp(f->ids, WIRE_IDS_IDMAP) == 0;

	*out = (struct ids){0};
	return f->own_ids ? ids_take(out, &f->pool, idmap, dir,
	                             idmap ? NULL : arena_printf(f->a, "%s/team", dir), err)
	                  : 0;
}

/* As a runner does it before its job. */
static int confine(struct found *f, struct sandbox_spec *spec, struct err *err)
{
	static const struct wire_launch none;
	struct wire_start alone = {0};
	const struct confine c = {
		.a = f->a, .dir = spec->dir, .start = &alone, .launch = &none, .ids = spec->ids};
	struct confined *out = arena_alloc(f->a, sizeof(*out));

	spec->confined = out;
	if (confine_group(out, spec->name, spec->name,
	                  arena_printf(f->a, "%s/" SANDBOX_CGROUPS, spec->dir), &spec->limits,
	                  &spec->ids, err) < 0)
		return -1;
	return confine_enter(&c, out, &spec->ids, err);
}

static bool start_in(struct found *f, const char *dir, const struct sandbox_kind *kind, bool own,
                     struct err *err)
{
	struct mounts *m = arena_alloc(f->a, sizeof(*m));
	struct sandbox_spec spec = {
		.dir = dir,
		.kind = kind->name,
		.name = arena_printf(f->a, PROBE_NAME "-%d", (int)getpid()),
		.program = f->program,
		.mounts = m,
		.volume_limited = prjquota_works(dir),
		.limits = {.memory_bytes = (uint64_t)1 << 30, .cpu_milli = 1000}};
	struct sandbox *s = NULL;

	m->a = f->a;
	if (take_ids(f, dir, &spec.ids, err) < 0 || (own && confine(f, &spec, err) < 0) ||
	    make_folders(f, dir, &spec.ids, err) < 0 || sandbox_start(&s, &spec, err) < 0)
		return false;
	f->kind = kind->name;
	f->says = arena_cstr(f->a, s->says);
	if (s->notes[0] != '\0')
		add_note(f, kind->name, s->notes);
	sandbox_close(s);
	return true;
}

/* In the child, which is not root any more at the end of it. */
static void tell_apart(struct found *f, const char *dir, const struct sandbox_kind *kind, int to)
{
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	struct err err = {0};
	struct js js;

	f->notes = "";
	if (!start_in(f, dir, kind, true, &err))
		add_note(f, kind->name, err.msg);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "kind", f->kind);
	js_kv(&js, "words", f->says);
	js_kv(&js, "notes", f->notes);
	js_close(&js);
	err_clear(&err);
	_exit(fs_write_all(to, out.p, out.n, &err) < 0);
}

static void hear_apart(struct found *f, const struct sandbox_kind *kind, int from)
{
	AUTO_BUF struct buf text = BUF_INIT(ANSWER_MAX);
	const struct doc *d = NULL;
	struct err err = {0};
	const char *notes;

	if (fs_read(AT_FDCWD, arena_printf(f->a, "/proc/self/fd/%d", from), &text, &err) < 0 ||
	    js_parse(f->a, arena_str(f->a, buf_view(&text)), &d, &err) < 0) {
		stays_root(f, arena_cstr(f->a, err.msg));
		return;
	}
	notes = doc_cstr(doc_get(d, "notes"), "");
	if (doc_text(doc_get(d, "kind")).n > 0) {
		f->kind = kind->name;
		f->says = arena_printf(f->a, "%s; runners are unprivileged",
		                       doc_cstr(doc_get(d, "words"), ""));
		f->ids = WIRE_IDS_OWN;
		if (notes[0] != '\0')
			add_words(f, notes);
	} else {
		stays_root(f, notes);
	}
}

/* Giving up root is for good: a child does it. */
static void start_apart(struct found *f, const char *dir, const struct sandbox_kind *kind)
{
	int ends[2];
	struct cgroup left;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		stays_root(f, arena_cstr(f->a, strerror(errno)));
		return;
	}
	if (pid == 0) {
		(void)close(ends[0]);
		tell_apart(f, dir, kind, ends[1]);
	}
	(void)close(ends[1]);
	hear_apart(f, kind, ends[0]);
	(void)close(ends[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	cgroup_adopt(&left, arena_printf(f->a, PROBE_NAME "-%d", (int)pid),
	             arena_printf(f->a, "%s/" SANDBOX_CGROUPS, dir));
	cgroup_remove(&left);
}

static void start_one(struct found *f, const struct sandbox_kind *kind, bool own)
{
	char *dir = arena_printf(f->a, "%s/runs/" PROBE_NAME "-%s.XXXXXX", f->data, kind->name);
	struct err err = {0};

	if (mkdtemp(dir) == NULL) {
		add_note(f, dir, strerror(errno));
		return;
	}
	if (own)
		start_apart(f, dir, kind);
	else if (!start_in(f, dir, kind, false, &err))
		add_note(f, kind->name, err.msg);
	err_clear(&err);
	ids_release(dir);
	if (fs_remove_tree(AT_FDCWD, dir, &err) < 0)
		add_note(f, dir, err.msg);
}

/* Everything that jobs write to must be of a file system whose mounts translate. */
static void choose_ids(struct found *f, const char *setting)
{
	static const char *const written[] = {"runs", "cache/projects", "cache/teams"};
	struct err err = {0};

	f->ids = WIRE_IDS_IDMAP;
	for (size_t i = 0; i < COUNT(written); i++) {
		if (!ids_can_map(arena_printf(f->a, "%s/%s", f->data, written[i])))
			f->ids = WIRE_IDS_TEAM;
	}
	if (ids_pool_read(setting, &f->pool, &err) < 0)
		f->taken = arena_cstr(f->a, err.msg);
	else if (f->pool.span == 0) {
		f->own_ids = false;
		f->ids = WIRE_IDS_NONE;
		add_note(
			f, "ids of jobs",
			"this container has no ids to give them, so jobs run as the server's user");
	}
	if (strcmp(f->ids, WIRE_IDS_TEAM) == 0)
		add_note(f, "ids of jobs",
		         "the data folder's file system does not support idmapped mounts, so the "
		         "jobs of a team share one user id, and runners stay root");
}

/* What `stoker doctor` shows. */
static void say_who_stays_root(struct found *f)
{
	const char *why = f->root;
	struct utsname u;

	if (geteuid() != 0 || f->kind == NULL)
		return;
	if (strcmp(f->ids, WIRE_IDS_OWN) == 0) { /* of podman's storage, the job's log says it */
		why = uname(&u) < 0 ? NULL : image_keeper_kernel(u.release);
		if (why != NULL)
			f->says =
				arena_printf(f->a, "%s, but root for jobs with an image: %s" MENDED,
			                     f->says, why);
		return;
	}
	if (strcmp(f->ids, WIRE_IDS_TEAM) == 0)
		why = "the data folder's file system has no idmapped mounts";
	else if (strcmp(f->ids, WIRE_IDS_NONE) == 0)
		why = "there are no ids to give them";
	else if (f->pool.span < 2)
		why = "--job-ids is too small to give each job a range";
	else if (why == NULL)
		why = "--sandbox podman";
	f->says = arena_printf(f->a, "%s; runners stay root: %s" MENDED,
	                       f->says[0] != '\0' ? f->says : f->kind, why);
}

static void try_kinds(struct found *f, const char *want)
{
	for (size_t i = 0; i < SANDBOX_KINDS && f->kind == NULL; i++) {
		const struct sandbox_kind *k = &sandbox_kinds[i];

		if (strcmp(want, k->want) != 0 && (strcmp(want, "auto") != 0 || !k->ops->host))
			continue;
		if (k->ops->host && f->own_ids && f->pool.span > 1 &&
		    strcmp(f->ids, WIRE_IDS_IDMAP) == 0)
			start_one(f, k, true);
		if (f->kind != NULL)
			break;
		if (k->ops->host)
			start_one(f, k, false);
		else if (version_of(f->a, k->ops->name) != NULL)
			f->kind = k->name;
		else
			add_note(f, k->name, "it is not installed");
	}
}

void sandbox_probe(const char *program, const char *data, const char *want, const char *pool,
                   struct buf *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct found f = {.a = a,
	                  .program = program,
	                  .data = data,
	                  .own_ids = geteuid() == 0,
	                  .says = "",
	                  .notes = ""};
	const char *runs = arena_printf(a, "%s/runs", data);
	struct err err = {0};
	struct js js;

	if (fs_mkdirs(AT_FDCWD, runs, 0700, &err) < 0) /* no engine has made it yet */
		add_note(&f, runs, err.msg);
	if (f.own_ids)
		choose_ids(&f, pool);
	if (f.taken == NULL)
		try_kinds(&f, want);
	say_who_stays_root(&f);
	/* behind those that become somebody else: its copy in memory is for who made it */
	if (sandbox_exec_path() == NULL)
		add_note(&f, "commands that enter a job",
		         "this kernel runs no program from memory (vm.memfd_noexec), so a job can "
		         "run code inside the program that `stoker exec` starts");
	js_init(&js, out);
	js_open(&js);
	js_kv(&js, "kind", f.kind);
	js_kv(&js, "words", strncmp(f.says, "sandbox: ", 9) == 0 ? f.says + 9 : f.says);
	js_kv(&js, "ids", f.ids);
	js_kv(&js, "ids_taken", f.taken);
	js_kv_u64(&js, "ids_first", f.pool.first);
	js_kv_u64(&js, "ids_last", f.pool.last);
	js_kv_u64(&js, "ids_span", f.pool.span);
	js_kv(&js, "bwrap", version_of(a, "bwrap"));
	js_kv(&js, "podman", version_of(a, "podman"));
	js_kv(&js, "python", f.kind != NULL ? python_words(a, f.kind) : NULL);
	js_kv(&js, "notes", f.notes);
	js_close(&js);
}
