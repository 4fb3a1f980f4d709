/*
 * push.c - a new job: validated whole, checked against this machine, its secrets and its code, and
 * stored before the reply, which waits a moment for the queue to look at it.
 */
#include "server/api/push.h"

#include "server/api/ctx.h"
#include "server/data/fetch.h"
#include "server/data/repos.h"
#include "server/api/limits.h"
#include "server/control/compile.h"
#include "server/control/live.h"
#include "server/control/loads.h"
#include "server/control/queue.h"
#include "server/control/resolved.h"
#include "server/control/specs.h"
#include "server/api/secrets.h"
#include "store/sources/source.h"

#define ID_DRAWS 8
#define KEY_MAX 200 /* of an idempotency key */

static int read_spec(struct arena *a, const struct doc *doc, struct job_spec *spec, struct err *err)
{
	struct spec_problems *problems = ARENA_NEW(a, struct spec_problems);

	if (spec_read(a, doc, SPEC_API, spec, problems) == 0)
		return 0;
	spec_problems_text(problems, NULL, err);
	assert(err->code != ERR_NONE);
	return -1;
}

static uint32_t to_milli(double cpus)
{
	return cpus >= UINT32_MAX / 1000 ? UINT32_MAX : (uint32_t)(cpus * 1000 + 0.5);
}

static void fill_row(const struct ask *ask, const struct model_project *p,
                     const struct job_spec *spec, struct model_job *out)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	struct js js;

	js_init(&js, &json);
	spec_write(spec, &js);
	*out = (struct model_job){
		.name = spec->name,
		.project_id = p->id,
		.project_name = p->name,
		.team_id = p->team_id,
		.team_name = p->team_name,
		.core = {.state = JOB_PENDING, .attempt_max = MAX(spec->retry.max_attempts, 1U)},
		.priority = spec->priority,
		.spec_json = arena_strz(ask->a, buf_view(&json)),
		.user = ask->principal->name,
		.created_ms = clock_wall_ms(),
		.node_count = spec->node_count,
		.cpu_milli = to_milli(spec->cpu_count),
		.gpu_count = spec->gpu_count,
		.memory_bytes = spec->memory_bytes,
		.gpu_type = spec->gpu_count > 0 ? spec->gpu_type : NULL,
		.spot = spec->spot,
		.cache = spec->cache.enabled,
		.cache_affinity = spec->cache.require_affinity,
		.max_duration_s = spec->max_duration_s,
		.inputs_missing = spec->n_weights > 0,
	};
	out->core.changed_ms = out->updated_ms = out->created_ms;
}

static int check_fits(struct app *app, const struct model_job *row, const char *pinned,
                      struct err *err)
{
	char reason[SCHED_REASON] = "";
	struct sched_node node;
	struct sched_job ask;

	queue_node_empty(app, &node);
	queue_ask(row, pinned, &ask);
	if (sched_fits(&node, 1, &ask, reason) == SCHED_NEVER)
		return err_set(err, ERR_JOB_NEVER_FITS, "this job can never run here: %s", reason);
	return 0;
}

static int check_image(struct app *app, const struct job_spec *spec, struct err *err)
{
	if (spec->base_image == NULL || strcmp(app->set.images, "host") == 0 || app->podman)
		return 0;
	return err_set(err, ERR_QUOTA,
	               "image %s needs podman, which is not installed on this machine. Install it, "
	               "or start the server with --images host to run every job on the machine's "
	               "root file system",
	               spec->base_image);
}

/* A declared GPU is known to nobody but who declared it: what it does cannot be asked. */
static int check_idle(struct app *app, const struct job_spec *spec, struct err *err)
{
	if (spec->idle_gpu_s == 0 || !app->inv.declared)
		return 0;
	return err_set(err, ERR_QUOTA,
	               "limits.idle_gpu needs GPUs that NVML can measure; this server's GPUs are "
	               "declared with --gpus. Use limits.max_duration");
}

/* Which repository of ours the source is. That of a job that is made again stays what it was, and
 * so does what came from elsewhere; whoever makes it must be able to read it. */
static int find_own(const struct ask *ask, const struct model_project *p,
                    const struct spec_weights *w, const struct resolved *frozen,
                    struct fetch_own *out, struct err *err)
{
	const struct resolved_own *was = resolved_own(frozen, w->source);

	*out = (struct fetch_own){0};
	if (was == NULL || w->endpoint != NULL)
		return resolved_find(frozen, w) != NULL
		               ? 0
		               : fetch_own_find(ask, p->team_id, w, out, err);
	if (fetch_own_may(ask, p->team_id, w->source, was->repo_id, err) == 0) {
		*out = (struct fetch_own){was->repo_id, was->last};
		return 0;
	}
	if (!was->last || err->id != ERR_HUB_REPO_NOT_FOUND)
		return -1;
	err_clear(err); /* the other Hub is asked as before */
	return 0;
}

/* What the sources mean is written into the row. */
static int keep_own(const struct ask *ask, const struct resolved *frozen, struct resolved_own *own,
                    size_t n, struct model_job *row, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	struct resolved f = *frozen;

	if (n == 0 && frozen->n_own == 0)
		return 0;
	f.own = own;
	f.n_own = n;
	resolved_write(&f, &json);
	if (buf_check(&json, "frozen record", err) < 0)
		return -1;
	row->resolved_json = arena_strz(ask->a, buf_view(&json));
	return 0;
}

/* frozen: of the job that is made again; what it had is not fetched as long as it is here. */
static int check_sources(const struct ask *ask, const struct model_project *p,
                         const struct job_spec *spec, const struct resolved *frozen,
                         struct model_job *row, struct err *err)
{
	struct resolved_own *own = ARENA_ARRAY(ask->a, struct resolved_own, spec->n_weights + 1);
	struct app *app = ask->app;
	size_t n = 0;

	for (size_t i = 0; i < spec->n_weights; i++) {
		const struct spec_weights *w = &spec->weights[i];
		const struct wire_weights *had = resolved_find(frozen, w);
		bool may = fetch_may(app, w, err) == 0;
		struct fetch_own is;

		if (!may || fetch_check(app, p->team_id, w, err) < 0) {
			if (had == NULL || !fetch_has(app, had->manifest))
				return err_wrap(err, "job.weights[%zu]%s", i,
				                may ? "" : ".endpoint");
			err_clear(err);
		}
		if (find_own(ask, p, w, frozen, &is, err) < 0)
			return err_wrap(err, "job.weights[%zu]", i);
		if (is.repo_id == NULL && fetch_may_ask(app, w->source, w->endpoint, err) < 0) {
			if (had == NULL || !fetch_has(app, had->manifest))
				return err_wrap(err, "job.weights[%zu]", i);
			err_clear(err);
		}
		if (is.repo_id != NULL)
			own[n++] = (struct resolved_own){w->source, is.repo_id, is.last};
	}
	return keep_own(ask, frozen, own, n, row, err);
}

/* Each archive was uploaded with credentials of the caller's team, by who sees all teams, or by the
 * job that is made again (principal is NULL), and has arrived. Credentials are asked for before a
 * team is named, so those of somebody who sees all teams say nothing about the project's. */
static int check_code(struct app *app, struct arena *a, const struct principal *principal,
                      const struct job_spec *spec, const char ***keys, struct err *err)
{
	*keys = ARENA_ARRAY(a, const char *, spec->n_artifacts + 1);
	for (size_t i = 0; i < spec->n_artifacts; i++) {
		const struct spec_artifact *code = &spec->artifacts[i];
		struct model_upload u = {0};
		struct objstore_info info = {0};

		if (strcmp(code->bucket, APP_BUCKET) != 0)
			return err_set(
				err, ERR_INVALID,
				"runtime.artifacts[%zu]: bucket \"%.60s\": code is uploaded to"
				" bucket \"" APP_BUCKET "\"",
				i, code->bucket);
		if (meta_upload_by_key(app->meta, a, code->key, &u, err) < 0 ||
		    (principal != NULL && principal->team_id != NULL &&
		     !app_same(u.team_id, principal->team_id)) ||
		    objstore_stat(app->objects, code->key, &info, err) < 0) {
			if (err->code != ERR_NONE && err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err);
			return err_set(err, ERR_UPLOAD_NOT_FOUND,
			               "runtime.artifacts[%zu]: nothing was uploaded as \"%.200s\"",
			               i, code->key);
		}
		(*keys)[i] = code->key;
	}
	return 0;
}

/* So no store is asked for the log of a job that is new. */
static void begin_log(struct app *app, const char *job_id)
{
	struct err err = {0};

	if (joblogs_new_job(app->logs, job_id, &err) < 0)
		log_warn("job log: job=%s %s", job_id, err.msg);
}

/* Ids are short: among 100,000 jobs that were pushed, two have drawn the same with one chance in
 * seven. */
static int fresh_id(struct app *app, struct arena *a, const char **out, struct err *err)
{
	bool has = true;

	for (int i = 0; i < ID_DRAWS && has; i++) {
		*out = app_id(a, MODEL_ID_LEN);
		if (meta_job_has(app->meta, *out, &has, err) < 0)
			return -1;
	}
	return has ? err_set(err, ERR_BUSY, "no id is free for the job: push it again") : 0;
}

/* n: has the row, its key, message and deployment. */
static int add(struct app *app, struct arena *a, struct model_job *row, struct meta_new_job n,
               const struct job_spec *spec, const char *const *code, struct model_job *out,
               struct err *err)
{
	struct resolved f = {0};
	const char **manifests = NULL;
	bool existing = false;

	if (app_has_room(app, err) < 0 || resolved_read(a, row->resolved_json, &f, err) < 0)
		return -1;
	resolved_manifests(a, &f, &manifests, &n.n_manifests);
	n.manifests = manifests;
	n.row = row;
	n.code_keys = code;
	n.n_code_keys = spec->n_artifacts;
	if (fresh_id(app, a, &row->id, err) < 0)
		return -1;
	app_crash_at("push:before");
	if (meta_job_add(app->meta, a, &n, out, &existing, err) < 0)
		return -1;
	app_crash_at("push:after");
	if (existing) {
		live_show(app, a, out, 1);
		return 0;
	}
	begin_log(app, out->id);
	app_log(app, out->id, "job %s (%s) of project %s: %s", out->name, out->id,
	        out->project_name, n.message);
	if (spec->session_on_demand)
		app_log(app, out->id,
		        "interactive session on demand: `stoker exec %s` opens a shell while the "
		        "job runs; ssh and editors are not supported",
		        out->id);
	if (spec_own_hub(spec) != NULL)
		app_log(app, out->id,
		        "%s is set by the job, so HF_ENDPOINT is not set to this server's Hub",
		        spec_own_hub(spec));
	if (spec->node_count > 1)
		app_log(app, out->id,
		        "node_count %u: all %u nodes run on this machine and share it",
		        spec->node_count, spec->node_count);
	if (spec->spot)
		app_log(app, out->id,
		        "availability_model spot: jobs are never preempted here, so it runs as "
		        "dedicated");
	log_info("pushed: job=%s name=%s project=%s by=%s", out->id, out->name, out->project_name,
	         out->user);
	queue_kick_wait(app);
	if (meta_job(app->meta, a, out->id, out, err) < 0)
		return -1;
	live_show(app, a, out, 1);
	return 0;
}

static int check_key(const char *key, struct err *err)
{
	if (key == NULL)
		return 0;
	if (key[0] == '\0' || strlen(key) > KEY_MAX)
		return err_set(err, ERR_INVALID, "Idempotency-Key: 1 to %d characters", KEY_MAX);
	return 0;
}

/* 0 and *found when this key has made a job. */
static int by_key(struct app *app, struct arena *a, const char *project, const char *key,
                  struct model_job *out, bool *found, struct err *err)
{
	*found = false;
	if (key == NULL)
		return 0;
	*found = meta_job_by_key(app->meta, a, project, key, out, err) == 0;
	if (!*found && err->code != ERR_NOT_FOUND)
		return -1;
	if (*found)
		live_show(app, a, out, 1);
	else
		err_clear(err);
	return 0;
}

static int check_pushes(const struct ask *ask, const struct model_project *p,
                        const struct job_spec *spec, struct err *err)
{
	const char *own = spec_own_hub(spec);

	if (spec->n_hub_push > 0 && own != NULL)
		return err_set(err, ERR_INVALID,
		               "runtime.hub.push: the job sets %s itself, so it does not talk to "
		               "this server's Hub: leave one of them out",
		               own);
	for (size_t i = 0; i < spec->n_hub_push; i++)
		if (repo_may_give(ask, p->team_id, spec->hub_push[i], err) < 0)
			return err_wrap(err, "runtime.hub.push[%zu]", i);
	return 0;
}

/* May this row join the line, by what the server is now? Of a push and of a recreate. */
static int check_row(const struct ask *ask, const struct model_project *p,
                     const struct job_spec *spec, const struct model_job *row, struct err *err)
{
	struct app *app = ask->app;

	if (limits_priority(ask, spec->priority, err) < 0 ||
	    limits_waiting(ask, p->team_id, err) < 0 ||
	    secrets_check(app, p->team_id, spec, err) < 0 || check_pushes(ask, p, spec, err) < 0 ||
	    compile_check(ask, p, spec, err) < 0 ||
	    check_fits(app, row, p->pinned_cluster, err) < 0 || check_image(app, spec, err) < 0)
		return -1;
	return check_idle(app, spec, err);
}

/* The checks of both a push and a dry run: the row that would be stored. */
static int check(const struct ask *ask, const struct model_project *p, const struct doc *doc,
                 struct job_spec *spec, struct model_job *row, const char ***keys, struct err *err)
{
	struct app *app = ask->app;
	AUTO_BUF struct buf document = BUF_INIT(APP_JSON_MAX);
	const struct resolved nothing = {0};
	struct js js;

	if (read_spec(ask->a, doc, spec, err) < 0)
		return -1;
	fill_row(ask, p, spec, row);
	if (check_row(ask, p, spec, row, err) < 0 ||
	    check_sources(ask, p, spec, &nothing, row, err) < 0 ||
	    loads_check(app, ask->a, row, spec, &nothing, err) < 0 ||
	    check_code(app, ask->a, ask->principal, spec, keys, err) < 0)
		return -1;
	js_init(&js, &document);
	js_doc(&js, doc);
	if (buf_check(&document, "job", err) < 0)
		return -1;
	row->document_json = arena_strz(ask->a, buf_view(&document));
	return 0;
}

static int push_job(const struct ask *ask, const char *project_id, const struct doc *doc,
                    const char *idempotency_key, struct model_job *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_project p = {0};
	struct job_spec spec = {0};
	struct model_job row;
	const char **keys = NULL;
	bool found = false;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_project(ask, project_id, &p, err) < 0 ||
	    check_key(idempotency_key, err) < 0 ||
	    by_key(app, ask->a, p.id, idempotency_key, out, &found, err) < 0)
		return -1;
	if (found)
		return 0;
	if (check(ask, &p, doc, &spec, &row, &keys, err) < 0)
		return -1;
	return add(app, ask->a, &row,
	           (struct meta_new_job){
			   .idempotency_key = idempotency_key,
			   .message = arena_printf(ask->a, "pushed by %s", ask->principal->name)},
	           &spec, keys, out, err);
}

static int check_job(const struct ask *ask, const char *team_id, const char *project,
                     const struct doc *doc, bool forecast, struct model_job *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_team team = {0};
	struct model_project p = {0};
	struct job_spec spec = {0};
	const char **keys = NULL;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_team(ask, team_id, &team_id, err) < 0 ||
	    meta_team(app->meta, ask->a, team_id, &team, err) < 0 ||
	    ctx_project_name(app, ask->a, team_id, project, err) < 0)
		return -1;
	if (meta_project_by_name(app->meta, ask->a, team_id, project, &p, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		p = (struct model_project){
			.name = project, .team_id = team.id, .team_name = team.name};
	}
	if (check(ask, &p, doc, &spec, out, &keys, err) < 0)
		return -1;
	return forecast ? queue_forecast(app, ask->a, out, p.pinned_cluster, &out->reason, err) : 0;
}

static struct meta_new_job of_deployment(const struct ask *ask, const struct model_deployment *d,
                                         bool begins)
{
	return (struct meta_new_job){
		.deployment_id = d->id,
		.deployment_revision = d->revision,
		.deploys = begins ? d : NULL,
		.message = begins ? arena_printf(ask->a, "deployed by %s as %s, revision %u",
	                                         ask->principal->name, d->name, d->revision)
	                          : arena_printf(ask->a, "started for deployment %s, revision %u",
	                                         d->name, d->revision)};
}

/* Of its jobs those count that were made since it was started, and a server's clock may be behind
 * the one before it. */
static void begin_with(const struct model_deployment *d, struct model_job *row)
{
	row->created_ms = MAX(row->created_ms, d->started_ms);
	row->core.changed_ms = row->updated_ms = row->created_ms;
}

/* The inputs of the new job: those of the old one or, to resume, its newest complete checkpoint. */
static int refreeze(struct app *app, struct arena *a, const struct model_job *old, bool resume,
                    const char **out, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	struct resolved f = {0};

	*out = NULL;
	if (resolved_read(a, old->resolved_json, &f, err) < 0)
		return -1;
	f.has_resume = f.has_compile = false; /* of the old job's last attempt */
	if (resume) {
		f.load = ARENA_NEW(a, struct resolved_load);
		f.n_load = 1;
		if (loads_newest(app, a, old, f.load, err) < 0)
			return -1;
	} else if (old->resolved_json == NULL) {
		return 0;
	}
	resolved_write(&f, &json);
	if (buf_check(&json, "frozen record", err) < 0)
		return -1;
	*out = arena_strz(a, buf_view(&json));
	return 0;
}

/* Resuming loads, whatever the old job's file says; one that named nothing names the old job. */
static void load_from(struct arena *a, const struct model_job *old, struct job_spec *spec)
{
	spec->load.enabled = spec->load.required = true;
	if (spec->load.n_refs > 0)
		return;
	spec->load.refs = ARENA_NEW(a, struct spec_load);
	spec->load.refs[0] = (struct spec_load){.latest = true, .job = old->id};
	spec->load.n_refs = 1;
}

static int repeat(const struct ask *ask, const char *job_id, bool resume,
                  const struct model_deployment *d, struct model_job *out, struct err *err)
{
	struct meta_new_job n = {0};
	struct app *app = ask->app;
	struct model_project p = {0};
	struct model_job old = {0}, row;
	struct job_spec spec = {0};
	struct resolved frozen = {0};
	const char **keys = NULL;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &old, err) < 0 ||
	    spec_read_stored(ask->a, old.spec_json, &spec, err) < 0 ||
	    meta_project(app->meta, ask->a, old.project_id, &p, err) < 0)
		return -1;
	if (resume)
		load_from(ask->a, &old, &spec);
	fill_row(ask, &p, &spec, &row);
	row.document_json = old.document_json;
	if (refreeze(app, ask->a, &old, resume, &row.resolved_json, err) < 0 ||
	    resolved_read(ask->a, row.resolved_json, &frozen, err) < 0)
		return -1;
	row.recreated_from = old.id;
	if (check_row(ask, &p, &spec, &row, err) < 0 ||
	    check_sources(ask, &p, &spec, &frozen, &row, err) < 0 ||
	    loads_check(app, ask->a, &row, &spec, &frozen, err) < 0 ||
	    check_code(app, ask->a, NULL, &spec, &keys, err) < 0)
		return -1;
	if (d != NULL) {
		n = of_deployment(ask, d, false);
		begin_with(d, &row);
	} else {
		n.message =
			arena_printf(ask->a, "%s from %s by %s", resume ? "resumed" : "recreated",
		                     old.id, ask->principal->name);
	}
	return add(app, ask->a, &row, n, &spec, keys, out, err);
}

/* Is it one of a deployment that is still there? */
static int check_alone(const struct ask *ask, const char *job_id, struct err *err)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct model_job old = {0};
	struct model_deployment *d;
	const char *name;
	size_t n = 0;

	if (ctx_job(ask, job_id, &old, err) < 0)
		return -1;
	if (old.deployment_id == NULL)
		return 0;
	if (specs_get(ask->app, old.id, &hold, err) < 0)
		return -1;
	name = hold.spec->serve.name; /* that of the deployment */
	if (name == NULL)
		return 0;
	if (meta_deployments(ask->app->meta, ask->a, old.team_id, name, &d, &n, err) < 0)
		return -1;
	if (n == 0)
		return 0;
	return err_set(err, ERR_JOB_OF_DEPLOYMENT,
	               "job %s is one of deployment %s, and another one beside it would serve "
	               "under the same name: %s; `stoker deploy JOB/CHECKPOINT --name %s` rolls a "
	               "checkpoint in",
	               old.id, name,
	               old.kept_by != NULL && !job_state_is_final(old.core.state)
	                       ? arena_printf(ask->a,
	                                      "`stoker stop %s` has it replaced by a new one",
	                                      old.id)
	                       : arena_printf(ask->a,
	                                      "`stoker deployments start %s` starts anew what has "
	                                      "failed",
	                                      name),
	               name);
}

static int push_again(const struct ask *ask, const char *job_id, bool resume, struct model_job *out,
                      struct err *err)
{
	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || check_alone(ask, job_id, err) < 0)
		return -1;
	return repeat(ask, job_id, resume, NULL, out, err);
}

int push_replica(const struct ask *ask, const struct model_deployment *d, const char *like,
                 bool begins, struct model_job *out, struct err *err)
{
	struct model_project p = {0};
	struct job_spec spec = {0};
	const char **keys = NULL;
	const struct doc *doc;
	struct model_job row;

	assert(like == NULL || !begins);
	if (like != NULL)
		return repeat(ask, like, false, d, out, err);
	if (js_parse(ask->a, str_of(d->document_json), &doc, err) < 0 ||
	    ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_project(ask, d->project_id, &p, err) < 0 ||
	    check(ask, &p, doc, &spec, &row, &keys, err) < 0)
		return -1;
	begin_with(d, &row);
	return add(ask->app, ask->a, &row, of_deployment(ask, d, begins), &spec, keys, out, err);
}

const struct push_ops push_ops = {
	.push = push_job,
	.check = check_job,
	.again = push_again,
};
