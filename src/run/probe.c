/* probe.c - which sandbox this machine's jobs get: each kind is really started, with nothing to do.
 */
#include "base/json.h"
#include "run/python.h"
#include "run/sandbox.h"

#define PROBE_NAME "stoker-probe"

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

/* What the server is told. */
struct found {
	struct arena *a;
	const char *kind, *says, *notes;
};

static void add_note(struct found *f, const char *what, const char *why)
{
	f->notes = arena_printf(f->a, "%s%s%s: %s", f->notes, f->notes[0] != '\0' ? "; " : "", what,
	                        why);
}

static const char *make_place(struct arena *a, const char *base, const char *kind, struct err *err)
{
	static const char *const below[] = {ATTEMPT_BOX, ATTEMPT_VARTMP};
	char *dir = arena_printf(a, "%s/" PROBE_NAME "-%s.XXXXXX", base, kind);

	if (mkdtemp(dir) == NULL) {
		(void)err_errno(err, errno, "%s", dir);
		return NULL;
	}
	for (size_t i = 0; i < COUNT(below); i++) {
		if (fs_mkdirs(AT_FDCWD, arena_printf(a, "%s/%s", dir, below[i]), 0755, err) < 0)
			return NULL;
	}
	return dir;
}

static bool start_one(struct found *f, const char *program, const char *base,
                      const struct sandbox_kind *kind)
{
	struct mounts *m = arena_alloc(f->a, sizeof(*m));
	struct err err = {0};
	const char *dir = make_place(f->a, base, kind->name, &err);
	struct sandbox_spec spec = {
		.dir = dir,
		.kind = kind->name,
		.name = arena_printf(f->a, PROBE_NAME "-%d", (int)getpid()),
		.program = program,
		.mounts = m,
		.limits = {.memory_bytes = (uint64_t)1 << 30, .cpu_milli = 1000}};
	struct sandbox *s = NULL;
	bool works = false;

	m->a = f->a;
	works = dir != NULL && sandbox_start(&s, &spec, &err) == 0;
	if (works) {
		f->kind = kind->name;
		f->says = arena_cstr(f->a, s->says);
		if (s->notes[0] != '\0')
			add_note(f, kind->name, s->notes);
		sandbox_close(s);
	} else {
		add_note(f, kind->name, err.msg);
	}
	err_clear(&err);
	if (dir != NULL && fs_remove_tree(AT_FDCWD, dir, &err) < 0)
		add_note(f, dir, err.msg);
	return works;
}

void sandbox_probe(const char *program, const char *dir, const char *want, struct buf *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct found f = {.a = a, .says = "", .notes = ""};
	struct js js;

	for (size_t i = 0; i < SANDBOX_KINDS && f.kind == NULL; i++) {
		const struct sandbox_kind *k = &sandbox_kinds[i];

		if (strcmp(want, k->want) != 0 && (strcmp(want, "auto") != 0 || !k->ops->host))
			continue;
		if (k->ops->host)
			(void)start_one(&f, program, dir, k);
		else if (version_of(a, k->ops->name) != NULL)
			f.kind = k->name;
		else
			add_note(&f, k->name, "it is not installed");
	}
	js_init(&js, out);
	js_open(&js);
	js_kv(&js, "kind", f.kind);
	js_kv(&js, "words", strncmp(f.says, "sandbox: ", 9) == 0 ? f.says + 9 : f.says);
	js_kv(&js, "bwrap", version_of(a, "bwrap"));
	js_kv(&js, "podman", version_of(a, "podman"));
	js_kv(&js, "python", f.kind != NULL ? python_words(a, f.kind) : NULL);
	js_kv(&js, "notes", f.notes);
	js_close(&js);
}
