/* probe.c - which sandboxes work on this machine: each rung is really started, with nothing to do.
 */
#include "base/json.h"
#include "base/units.h"
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

/* The words of "sandbox: ...; not enforced: ..." */
static void start_one(struct arena *a, const char *program, const char *dir, const char **says,
                      const char **notes)
{
	struct mounts *m = arena_alloc(a, sizeof(*m));
	struct sandbox_spec spec = {
		.dir = dir,
		.want = "auto",
		.program = program,
		.mounts = m,
		.limits = {.memory_bytes = (uint64_t)1 << 30, .cpu_milli = 1000}};
	struct sandbox *s = NULL;
	struct err err = {0};

	m->a = a;
	spec.name = arena_printf(a, PROBE_NAME "-%d", (int)getpid());
	*says = *notes = "";
	if (sandbox_start(&s, &spec, &err) < 0) {
		*notes = arena_cstr(a, err.msg);
		return;
	}
	*says = arena_cstr(a, s->says);
	*notes = arena_cstr(a, s->notes);
	sandbox_close(s);
}

static const char *make_place(struct arena *a, struct err *err)
{
	static const char *const below[] = {ATTEMPT_BOX, ATTEMPT_VARTMP};
	const char *tmp = getenv("TMPDIR");
	char *dir = arena_printf(a, "%s/" PROBE_NAME ".XXXXXX", tmp != NULL ? tmp : "/tmp");

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

void sandbox_probe(const char *program, struct buf *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *bwrap = version_of(a, "bwrap"), *podman = version_of(a, "podman");
	const char *says = "", *notes = "", *dir = NULL, *cut = NULL;
	struct err err = {0};
	struct js js;

	dir = make_place(a, &err);
	if (dir != NULL) {
		start_one(a, program, dir, &says, &notes);
		err_clear(&err);
		if (fs_remove_tree(AT_FDCWD, dir, &err) < 0)
			notes = arena_printf(a, "%s%s%s", notes, notes[0] != '\0' ? "; " : "",
			                     err.msg);
	}
	cut = strncmp(says, "sandbox: ", 9) == 0 ? says + 9 : says;
	js_init(&js, out);
	js_open(&js);
	js_kv(&js, "words", says[0] != '\0' ? cut : notes);
	js_kv(&js, "bwrap", bwrap);
	js_kv(&js, "podman", podman);
	js_kv_bool(&js, "overlay", strstr(says, "bwrap overlay") != NULL);
	js_kv(&js, "notes", notes);
	js_close(&js);
}
