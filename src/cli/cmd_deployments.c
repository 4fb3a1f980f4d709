/* cmd_deployments.c - a checkpoint becomes a job that serves it, and the jobs that serve. */
#include "cli/cli.h"

#define BODY_MAX ((size_t)1 << 20)
#define ENV_MAX 200

static int write_env(struct cli *c, struct js *js, struct err *err)
{
	const char *list[ENV_MAX];
	size_t n = opt_list(c, "env", list, COUNT(list));

	if (n == 0)
		return 0;
	js_key(js, "environment_variables");
	js_open(js);
	for (size_t i = 0; i < n; i++) {
		const char *equals = strchr(list[i], '=');

		if (equals == NULL || equals == list[i])
			return err_set(err, ERR_INVALID, "--env %s: write it as NAME=VALUE",
			               list[i]);
		js_kv(js, arena_strz(c->arena, str_n(list[i], (size_t)(equals - list[i]))),
		      equals + 1);
	}
	js_close(js);
	return 0;
}

/* "JOB" or "JOB/CHECKPOINT"; checkpoint NULL: the newest complete one, which the server finds. */
static int find(struct cli *c, const struct doc **job, const struct doc **checkpoint,
                struct err *err)
{
	*checkpoint = NULL;
	if (strchr(c->arg[0], '/') == NULL)
		return resolve_job(c, c->arg[0], SEVERAL_NEWEST, job, err);
	return resolve_checkpoint(c, c->arg[0], NULL, SEVERAL_NEWEST, job, checkpoint, err);
}

int cmd_deploy(struct cli *c, struct err *err)
{
	static const struct {
		const char *option, *member;
	} texts[] = {
		{"name", "name"},    {"engine", "engine"},         {"command", "command"},
		{"image", "image"},  {"base-model", "base_model"}, {"accelerator", "accelerator"},
		{"memory", "memory"}};
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	const struct doc *job, *checkpoint, *reply, *made;
	enum out_form form;
	const char *id;
	struct js js;

	if (out_form_one(c, &form, err) < 0 || find(c, &job, &checkpoint, err) < 0)
		return -1;
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "training_job_id", doc_cstr(doc_get(job, "id"), "?"));
	if (checkpoint != NULL)
		js_kv_str(&js, "checkpoint", doc_text(doc_get(checkpoint, "checkpoint_id")));
	for (size_t i = 0; i < COUNT(texts); i++) {
		const char *value = opt_text(c, texts[i].option, NULL);

		if (value != NULL)
			js_kv(&js, texts[i].member, value);
	}
	if (opt_int(c, "cpus", 0) > 0)
		js_kv_int(&js, "cpu_count", opt_int(c, "cpus", 0));
	if (write_env(c, &js, err) < 0)
		return -1;
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/deployments", &body, &reply, err) < 0)
		return -1;
	made = doc_get(reply, "deployment");
	id = doc_cstr(doc_get(made, "training_job_id"), "?");
	out_message(c, "job %s will serve checkpoint %s as %s", id,
	            doc_cstr(doc_get(made, "checkpoint"), "?"),
	            doc_cstr(doc_get(made, "name"), "?"));
	out_next(c,
	         (const char *const[]){
			 arena_printf(c->arena, "stoker logs %s -f      # until it serves", id),
			 "stoker deployments ls      # is it ready?",
			 arena_printf(c->arena, "stoker stop %s         # end it", id)},
	         3);
	if (form != OUT_TABLE)
		out_one(form, made);
	else
		(void)printf("%s\n", doc_cstr(doc_get(made, "url"), ""));
	return 0;
}

static void de_requests(const struct doc *d, struct buf *out)
{
	buf_printf(out, "%" PRId64, doc_int(d, 0));
}

int cmd_deployments_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"NAME", false, cell_name, "name"},
		{"STATE", false, cell_name, "state"},
		{"JOB", false, cell_name, "training_job_id"},
		{"TEAM", false, cell_name, "team_name"},
		{"IN FLIGHT", true, de_requests, "requests_in_flight"},
		{"REQUESTS", true, de_requests, "requests"},
		{"FAILURES", true, de_requests, "failures"},
		{"URL", false, cell_name, "url"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/deployments") < 0)
		return -1;
	return out_list(c, doc_get(reply, "deployments"), cols, COUNT(cols),
	                "no job serves; docs/serving.md shows how one does", err);
}
