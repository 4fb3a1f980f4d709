/* cmd_deployments.c - a checkpoint is deployed, and what becomes of deployments. */
#include "cli/cli.h"

#include "base/units.h"

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

/* Members of the open object: "JOB/CHECKPOINT", or "JOB" and its newest complete one, which the
 * server finds. */
static int write_checkpoint(struct cli *c, const char *arg, struct js *js, struct err *err)
{
	const struct doc *job, *checkpoint = NULL;

	if ((strchr(arg, '/') == NULL ? resolve_job(c, arg, SEVERAL_NEWEST, &job, err)
	                              : resolve_checkpoint(c, arg, NULL, SEVERAL_NEWEST, &job,
	                                                   &checkpoint, err)) < 0)
		return -1;
	js_kv(js, "training_job_id", doc_cstr(doc_get(job, "id"), "?"));
	if (checkpoint != NULL)
		js_kv_str(js, "checkpoint", doc_text(doc_get(checkpoint, "checkpoint_id")));
	return 0;
}

/* The first one, and the adapters beside it. */
static int write_checkpoints(struct cli *c, struct js *js, struct err *err)
{
	if (write_checkpoint(c, c->arg[0], js, err) < 0)
		return -1;
	if (c->n_arg == 1)
		return 0;
	js_key(js, "adapters");
	js_list(js);
	for (size_t i = 1; i < c->n_arg; i++) {
		js_open(js);
		if (write_checkpoint(c, c->arg[i], js, err) < 0)
			return -1;
		js_close(js);
	}
	js_end(js);
	return 0;
}

/* --replicas and --scale-to-zero. */
static int write_sizes(struct cli *c, struct js *js, struct err *err)
{
	const char *idle = opt_text(c, "scale-to-zero", NULL);
	uint64_t seconds = 0;

	if (opt_flag(c, "replicas"))
		js_kv_int(js, "replicas", opt_int(c, "replicas", 1));
	if (idle == NULL)
		return 0;
	if (strcmp(idle, "never") != 0 && units_seconds(str_of(idle), &seconds, err) < 0)
		return err_wrap(err, "--scale-to-zero");
	js_kv_u64(js, "scale_to_zero_s", seconds);
	return 0;
}

int cmd_deploy(struct cli *c, struct err *err)
{
	static const struct {
		const char *option, *member;
	} texts[] = {
		{"name", "name"},     {"engine", "engine"},          {"command", "command"},
		{"image", "image"},   {"base-model", "base_model"},  {"accelerator", "accelerator"},
		{"memory", "memory"}, {"secret", "auth_secret_name"}};
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	const struct doc *reply, *made;
	enum out_form form;
	const char *name;
	struct js js;

	if (out_form_one(c, &form, err) < 0)
		return -1;
	js_init(&js, &body);
	js_open(&js);
	if (write_checkpoints(c, &js, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(texts); i++) {
		const char *value = opt_text(c, texts[i].option, NULL);

		if (value != NULL)
			js_kv(&js, texts[i].member, value);
	}
	if (opt_int(c, "cpus", 0) > 0)
		js_kv_int(&js, "cpu_count", opt_int(c, "cpus", 0));
	if (opt_flag(c, "replace"))
		js_kv_bool(&js, "replace", true);
	if (write_sizes(c, &js, err) < 0 || write_env(c, &js, err) < 0)
		return -1;
	if (c->n_rest > 0) {
		js_key(&js, "engine_options");
		js_list(&js);
		for (size_t i = 0; i < c->n_rest; i++)
			js_cstr(&js, c->rest[i]);
		js_end(&js);
	}
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/deployments", &body, &reply, err) < 0)
		return -1;
	made = doc_get(reply, "deployment");
	name = out_name(c->arena, doc_text(doc_get(made, "name")));
	out_message(c, "job %s will serve checkpoint %s as %s, revision %" PRId64,
	            doc_cstr(doc_get(made, "training_job_id"), "?"),
	            doc_cstr(doc_get(made, "checkpoint"), "?"), name,
	            doc_int(doc_get(made, "revision"), 1));
	out_next(c,
	         (const char *const[]){
			 arena_printf(c->arena, "stoker deployments logs %s -f   # until it serves",
	                              name),
			 arena_printf(c->arena, "stoker deployments view %s      # is it ready?",
	                              name),
			 arena_printf(c->arena, "stoker deployments stop %s      # end it", name)},
	         3);
	if (form != OUT_TABLE)
		out_one(form, made);
	else
		(void)printf("%s\n", doc_cstr(doc_get(made, "url"), ""));
	return 0;
}

static void cell_number(const struct doc *d, struct buf *out)
{
	buf_printf(out, "%" PRId64, doc_int(d, 0));
}

static void cell_ready(const struct doc *row, struct buf *out)
{
	buf_printf(out, "%" PRId64 "/%" PRId64, doc_int(doc_get(row, "replicas_ready"), 0),
	           doc_int(doc_get(row, "replicas"), 0));
}

static void cell_revision(const struct doc *d, struct buf *out)
{
	if (doc_int(d, 0) > 0)
		buf_printf(out, "%" PRId64, doc_int(d, 0));
	else
		buf_puts(out, "-");
}

int cmd_deployments_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"NAME", false, cell_name, "name"},
		{"STATE", false, cell_name, "state"},
		{"READY", true, cell_ready, NULL},
		{"REVISION", true, cell_revision, "revision"},
		{"CHECKPOINT", false, cell_name, "checkpoint"},
		{"JOB", false, cell_name, "training_job_id"},
		{"TEAM", false, cell_name, "team_name"},
		{"IN FLIGHT", true, cell_number, "requests_in_flight"},
		{"REQUESTS", true, cell_number, "requests"},
		{"FAILURES", true, cell_number, "failures"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/deployments") < 0)
		return -1;
	return out_list(c, doc_get(reply, "deployments"), cols, COUNT(cols),
	                "nothing is deployed; `stoker deploy JOB` deploys a checkpoint of a job",
	                err);
}

static const char *path_of(struct cli *c, const char *verb)
{
	return arena_printf(c->arena, "/v1/deployments/%s%s", remote_part(c, c->arg[0]), verb);
}

static void view_states(struct cli *c, const struct doc *d)
{
	const struct doc *reason = doc_get(d, "reason");
	char idle[UNITS_CAP];

	out_line("state", "%s", doc_cstr(doc_get(d, "state"), "?"));
	if (doc_is(reason, DOC_TEXT))
		out_line("", "%s", out_plain(c->arena, doc_text(reason)));
	out_line("url", "%s", doc_cstr(doc_get(d, "url"), "?"));
	out_line("team", "%s", out_name(c->arena, doc_text(doc_get(d, "team_name"))));
	out_line("project", "%s", out_name(c->arena, doc_text(doc_get(d, "project_name"))));
	out_line("checkpoint", "%s", out_name(c->arena, doc_text(doc_get(d, "checkpoint"))));
	out_line("revision", "%" PRId64 ", deployed by %s", doc_int(doc_get(d, "revision"), 0),
	         out_name(c->arena, doc_text(doc_get(d, "deployed_by"))));
	out_line("replicas", "%" PRId64 ", %" PRId64 " ready", doc_int(doc_get(d, "replicas"), 0),
	         doc_int(doc_get(d, "replicas_ready"), 0));
	if (doc_int(doc_get(d, "scale_to_zero_s"), 0) > 0)
		out_line("sleeps", "after %s without a request",
		         units_show_seconds((uint64_t)doc_int(doc_get(d, "scale_to_zero_s"), 0),
		                            idle));
	out_line("requests",
	         "%" PRId64 " since the server started, %" PRId64 " failed, %" PRId64
	         " on their way",
	         doc_int(doc_get(d, "requests"), 0), doc_int(doc_get(d, "failures"), 0),
	         doc_int(doc_get(d, "requests_in_flight"), 0));
}

static int shown(struct cli *c, const struct doc *reply, struct err *err)
{
	const struct doc *d = doc_get(reply, "deployment");
	enum out_form form;
	bool first = true;

	if (out_form_one(c, &form, err) < 0)
		return -1;
	if (form != OUT_TABLE) {
		out_one(form, reply);
		return 0;
	}
	out_line("deployment", "%s", out_name(c->arena, doc_text(doc_get(d, "name"))));
	view_states(c, d);
	DOC_EACH (r, doc_get(reply, "replicas")) {
		out_line(first ? "jobs" : "", "%s  revision %" PRId64 "  %s%s",
		         doc_cstr(doc_get(r, "training_job_id"), "?"),
		         doc_int(doc_get(r, "revision"), 0),
		         out_status(c, doc_cstr(doc_get(r, "status"), "?")),
		         doc_bool(doc_get(r, "ready"), false) ? ", ready" : "");
		first = false;
	}
	return 0;
}

int cmd_deployments_view(struct cli *c, struct err *err)
{
	const struct doc *reply;
	const char *url;

	if (remote_get(c, &reply, err, "%s", path_of(c, "")) < 0 || shown(c, reply, err) < 0)
		return -1;
	url = doc_cstr(doc_path(reply, "deployment", "url", NULL), "?");
	out_next(c,
	         (const char *const[]){
			 arena_printf(c->arena,
	                              "curl -H \"Authorization: Bearer $STOKER_TOKEN\" "
	                              "%s/v1/models",
	                              url),
			 arena_printf(c->arena, "stoker deployments logs %s", c->arg[0])},
	         2);
	return 0;
}

/* Those of its newest job. */
int cmd_deployments_logs(struct cli *c, struct err *err)
{
	const struct doc *reply, *job;

	if (remote_get(c, &reply, err, "%s", path_of(c, "")) < 0)
		return -1;
	job = doc_path(reply, "deployment", "training_job_id", NULL);
	if (!doc_is(job, DOC_TEXT))
		return err_set(err, ERR_NOT_FOUND,
		               "deployment %s has no job now: `stoker ps -a` lists those that have "
		               "ended",
		               c->arg[0]);
	c->arg[0] = arena_strz(c->arena, doc_text(job));
	return cmd_logs(c, err);
}

static int change(struct cli *c, enum http_method method, const char *verb, const struct buf *body,
                  const char *what, struct err *err)
{
	const struct doc *reply;
	const char *name;

	if (remote_call(c, method, path_of(c, verb), body, &reply, err) < 0)
		return -1;
	name = out_name(c->arena, doc_text(doc_path(reply, "deployment", "name", NULL)));
	out_message(c, "deployment %s %s", name, what);
	out_next(c,
	         (const char *const[]){arena_printf(c->arena, "stoker deployments view %s", name)},
	         1);
	return 0;
}

int cmd_deployments_stop(struct cli *c, struct err *err)
{
	return change(c, HTTP_POST, "/stop", NULL,
	              "is stopped; its jobs answer what they have begun", err);
}

int cmd_deployments_start(struct cli *c, struct err *err)
{
	return change(c, HTTP_POST, "/start", NULL, "is being started", err);
}

int cmd_deployments_scale(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(1000);
	struct js js;

	if (!opt_flag(c, "replicas") && !opt_flag(c, "scale-to-zero"))
		return err_set(err, ERR_INVALID, "--replicas or --scale-to-zero: one is needed");
	js_init(&js, &body);
	js_open(&js);
	if (write_sizes(c, &js, err) < 0)
		return -1;
	js_close(&js);
	return change(c, HTTP_PATCH, "", &body, "is changed", err);
}

int cmd_deployments_rm(struct cli *c, struct err *err)
{
	const struct doc *reply;

	if (out_confirm(
		    c, arena_printf(c->arena, "Delete deployment %s and stop its jobs?", c->arg[0]),
		    NULL, err) < 0 ||
	    remote_call(c, HTTP_DELETE, path_of(c, ""), NULL, &reply, err) < 0)
		return -1;
	out_message(c, "deployment %s is deleted; its jobs end", c->arg[0]);
	return 0;
}
