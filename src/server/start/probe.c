/* probe.c - `stoker runner --probe`, run once at start: the server itself starts nothing else. */
#include "server/start/probe.h"

#include "engine/scope.h"

#define PROBE_MS 60000 /* each kind is started, and ended when it hangs */

static int run_probe(struct app *app, const struct doc **out, struct err *err)
{
	const char *const argv[] = {
		app->program, "runner",         "--probe",
		app->data,    app->set.sandbox, app->set.job_ids != NULL ? app->set.job_ids : "",
		NULL,
	};
	const char *const *wrapped = scope_wrap(app->arena, argv); /* as jobs are run */
	AUTO_BUF struct buf text = BUF_INIT((size_t)64 << 10);
	int code = 0;

	if (proc_run(wrapped, (struct str){0}, PROBE_MS, &text, &code, err) < 0)
		return -1;
	if (code != 0)
		return err_set(err, ERR_IO, "exit code %d: %.*s", code, (int)MIN(text.n, 400U),
		               buf_cstr(&text));
	return js_parse(app->arena, arena_str(app->arena, buf_view(&text)), out, err);
}

int probe_sandbox(struct app *app, struct err *err)
{
	const struct doc *d = NULL;
	const char *notes = NULL;
	struct err why = {0};
	char where[4096];

	app->podman = proc_find("podman", where) != NULL;
	if (run_probe(app, &d, &why) < 0)
		return err_set(err, ERR_SANDBOX_UNAVAILABLE, "probing the sandbox: %s", why.msg);
	notes = doc_cstr(doc_get(d, "notes"), "");
	app->sandbox_kind = doc_cstr(doc_get(d, "kind"), NULL);
	app->ids_mode = doc_cstr(doc_get(d, "ids"), NULL);
	app->ids_first = (uint32_t)doc_int(doc_get(d, "ids_first"), 0);
	app->ids_last = (uint32_t)doc_int(doc_get(d, "ids_last"), 0);
	app->ids_span = (uint32_t)doc_int(doc_get(d, "ids_span"), 0);
	if (doc_text(doc_get(d, "ids_taken")).n > 0)
		return err_set(err, ERR_JOB_IDS_TAKEN, "%s", doc_cstr(doc_get(d, "ids_taken"), ""));
	if (app->sandbox_kind == NULL)
		return err_set(err, ERR_SANDBOX_UNAVAILABLE,
		               "--sandbox %s does not work on this machine: %s", app->set.sandbox,
		               notes);
	app->sandbox = doc_cstr(doc_get(d, "words"), app->sandbox_kind);
	if (app->sandbox[0] == '\0')
		app->sandbox = app->sandbox_kind;
	app->python = doc_cstr(doc_get(d, "python"), NULL);
	if (notes[0] != '\0')
		log_warn("sandbox: %s", notes);
	if (strcmp(app->sandbox_kind, "plain") == 0)
		log_warn("sandbox: plain: jobs see the files of this machine%s",
		         strcmp(app->set.sandbox, "plain") == 0 ? ", as --sandbox plain asks" : "");
	log_info("sandbox: %s", app->sandbox);
	return 0;
}
