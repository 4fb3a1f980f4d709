/* probe.c - `stoker runner --probe`, run once at start: the server itself starts nothing else. */
#include "server/probe.h"

#include "engine/scope.h"

#define PROBE_MS 10000

void probe_sandbox(struct app *app)
{
	const char *const argv[] = {app->program, "runner", "--probe", NULL};
	const char *const *wrapped = scope_wrap(app->arena, argv); /* as jobs are run */
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 10);
	const struct doc *d = NULL;
	struct err err = {0};
	char where[4096];
	int code = 0;

	app->podman = proc_find("podman", where) != NULL;
	app->sandbox = "unknown";
	if (strcmp(app->set.sandbox, "plain") == 0) {
		app->sandbox = "plain, as --sandbox plain asks: jobs see the host's files";
		log_info("sandbox: %s", app->sandbox);
		return;
	}
	if (proc_run(wrapped, (struct str){0}, PROBE_MS, &out, &code, &err) < 0 || code != 0) {
		log_warn("probing the sandbox: exit code %d %s", code, err.msg);
		return;
	}
	if (js_parse(app->arena, buf_view(&out), &d, &err) == 0 &&
	    doc_text(doc_get(d, "words")).n > 0)
		app->sandbox = doc_cstr(doc_get(d, "words"), "unknown");
	else
		app->sandbox = arena_strz(app->arena, str_trim(buf_view(&out)));
	log_info("sandbox: %s", app->sandbox);
}
