/*
 * fake_ops.h - a small product behind the protocol faces: rows in arrays, real logs, a real object
 * store in memory, and the real listener on loopback with a client. Included by one test each.
 * FAKE_OPS are the nouns that every face asks for; a test adds those that it is about.
 */
#ifndef FAKE_OPS_H
#define FAKE_OPS_H

#include "base/clock.h"
#include "face/face.h"
#include "unit.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a fake looks at what a test asks for */

#define T0 ((int64_t)1790000000000) /* wall ms at which the fake world was made */

struct app {
	struct face_ctx ctx;
	struct httpd *httpd;
	struct http_client *client;
	struct arena *a;
	struct err err;
	char dir[64], base[64];
	const char *token; /* of the next calls; NULL = none */
	/* the rows */
	struct model_team team[4];
	size_t n_teams;
	struct model_project project[4];
	size_t n_projects;
	struct model_job job[8];
	size_t n_jobs;
	struct model_checkpoint ckpt[8];
	size_t n_ckpts;
	struct model_secret secret[4];
	size_t n_secrets;
	struct model_mirror mirror[2];
	size_t n_mirrors;
	struct model_cache_snapshot snapshot; /* scope NULL = none */
	struct node_row node[2];
	size_t n_nodes;
	/* what was asked for last */
	struct job_query query;
	char *said; /* one word or value that a test looks at */
	int64_t number;
	bool flag;
};

static struct principal admin_principal = {
	.magic = PRINCIPAL_MAGIC, .token_id = "tok1", .name = "ada", .role = ROLE_ADMIN};
static struct principal viewer_principal = {.magic = PRINCIPAL_MAGIC,
                                            .token_id = "tok2",
                                            .name = "vi",
                                            .role = ROLE_VIEWER,
                                            .team_id = "team001"};
static struct principal runner_principal_of = {.magic = PRINCIPAL_MAGIC,
                                               .token_id = "tok3",
                                               .name = "runner",
                                               .role = ROLE_MEMBER,
                                               .attempt_id = "at1"};

static int fake_authenticate(struct app *app, struct arena *a, struct str token, bool local,
                             struct principal **out, struct err *err)
{
	if (str_eq(token, "admin"))
		*out = &admin_principal;
	else if (str_eq(token, "viewer"))
		*out = &viewer_principal;
	else if (str_eq(token, "runner"))
		*out = &runner_principal_of;
	else
		return err_set(err, ERR_AUTH, "unknown token");
	return 0;
}

static int fake_authorize(struct request *rq, enum scope scope, struct err *err)
{
	struct str header = request_header(rq, "Authorization"), scheme;
	struct principal *principal;

	(void)str_cut(&header, ' ', &scheme);
	if (fake_authenticate(NULL, rq->arena, header, rq->local, &principal, err) < 0)
		return -1;
	if ((scope == SCOPE_ADMIN && principal->role < ROLE_ADMIN) ||
	    (scope == SCOPE_MEMBER && principal->role < ROLE_MEMBER))
		return err_set(err, ERR_DENIED, "not for this role");
	rq->principal = principal;
	return 0;
}

static int fake_teams(const struct ask *ask, struct model_team **out, size_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = f->team;
	*n = f->n_teams;
	return 0;
}

static int fake_team_create(const struct ask *ask, const char *name, struct model_team *out,
                            struct err *err)
{
	struct app *f = ask->app;

	if (f->n_teams == COUNT(f->team))
		return err_set(err, ERR_CONFLICT, "enough teams");
	f->team[f->n_teams] = (struct model_team){"team00x", arena_cstr(f->a, name), false, T0};
	*out = f->team[f->n_teams++];
	return 0;
}

static int fake_delete(const struct ask *ask, const char *id, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_cstr(f->a, id);
	return strcmp(id, "busy") == 0 ? err_set(err, ERR_CONFLICT, "it is in use") : 0;
}

static int fake_tokens(const struct ask *ask, struct model_token **out, size_t *n, struct err *err)
{
	*out = ARENA_NEW(ask->a, struct model_token);
	**out = (struct model_token){"tok1", "ada", NULL, NULL, "hash", ROLE_ADMIN, T0, 0, 0};
	*n = 1;
	return 0;
}

static int fake_token_create(const struct ask *ask, const char *name, const char *team_id,
                             enum model_role role, int64_t expires_ms, struct model_token *out,
                             char **plain, struct err *err)
{
	*plain = arena_cstr(ask->a, "stoker_plain");
	*out = (struct model_token){"tok9", name, team_id, team_id == NULL ? NULL : "research",
	                            "hash", role, T0,      expires_ms,
	                            0};
	return 0;
}

static int fake_projects(const struct ask *ask, struct model_project **out, size_t *n,
                         struct err *err)
{
	struct app *f = ask->app;

	*out = f->project;
	*n = f->n_projects;
	return 0;
}

static int fake_project_get(const struct ask *ask, const char *id, struct model_project *out,
                            struct err *err)
{
	struct app *f = ask->app;

	for (size_t i = 0; i < f->n_projects; i++) {
		if (strcmp(f->project[i].id, id) == 0) {
			*out = f->project[i];
			return 0;
		}
	}
	return err_set(err, ERR_NOT_FOUND, "no project %s", id);
}

static int fake_project_upsert(const struct ask *ask, const char *team_id, const char *name,
                               struct model_project *out, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_cstr(f->a, team_id);
	for (size_t i = 0; i < f->n_projects; i++) {
		if (strcmp(f->project[i].name, name) == 0) {
			*out = f->project[i];
			return 0;
		}
	}
	if (f->n_projects == COUNT(f->project))
		return err_set(err, ERR_CONFLICT, "enough projects");
	f->project[f->n_projects] = (struct model_project){.id = "proj00x",
	                                                   .name = arena_cstr(f->a, name),
	                                                   .team_id = "team001",
	                                                   .team_name = "Default",
	                                                   .created_ms = T0,
	                                                   .updated_ms = T0};
	*out = f->project[f->n_projects++];
	return 0;
}

static int fake_job_search(const struct ask *ask, const struct job_query *q, struct model_job **out,
                           size_t *n, uint64_t *total, struct err *err)
{
	struct app *f = ask->app;

	f->query = *q;
	f->query.user = arena_cstr(f->a, q->user);
	*out = ARENA_ARRAY(ask->a, struct model_job, f->n_jobs + 1);
	*n = 0;
	for (size_t i = 0; i < f->n_jobs; i++) {
		if ((q->states == 0 || (q->states & 1U << f->job[i].core.state) != 0) &&
		    (q->job_id == NULL || strcmp(q->job_id, f->job[i].id) == 0))
			(*out)[(*n)++] = f->job[i];
	}
	*total = *n;
	*n = MIN(*n, q->limit);
	return 0;
}

static int fake_job_get(const struct ask *ask, const char *project_id, const char *job_id,
                        struct model_job *out, struct err *err)
{
	struct app *f = ask->app;

	for (size_t i = 0; i < f->n_jobs; i++) {
		if (strcmp(f->job[i].id, job_id) == 0 &&
		    (project_id == NULL || strcmp(f->job[i].project_id, project_id) == 0)) {
			*out = f->job[i];
			return 0;
		}
	}
	return err_set(err, ERR_NOT_FOUND, "no job %s", job_id);
}

static int fake_job_stop(const struct ask *ask, const char *id, bool now, struct model_job *out,
                         struct err *err)
{
	struct app *f = ask->app;

	f->flag = now;
	return fake_job_get(ask, NULL, id, out, err);
}

static int fake_job_change(const struct ask *ask, const char *id, const struct model_change *c,
                           struct model_job *out, struct err *err)
{
	if (fake_job_get(ask, NULL, id, out, err) < 0)
		return -1;
	if (out->core.state != JOB_PENDING)
		return err_set(err, ERR_CONFLICT, "job %s is not pending", id);
	if (c->priority != NULL)
		out->priority = *c->priority;
	if (c->spot != NULL)
		out->spot = *c->spot;
	return 0;
}

static int fake_job_events(const struct ask *ask, const char *id, int64_t after,
                           struct model_event **out, size_t *n, struct err *err)
{
	struct app *f = ask->app;

	f->number = after;
	*out = ARENA_NEW(ask->a, struct model_event);
	**out = (struct model_event){3, T0, "state", "PENDING", "CREATED", "server", "placed"};
	*n = 1;
	return 0;
}

static int fake_job_attempts(const struct ask *ask, const char *id, struct model_attempt **out,
                             size_t *n, struct err *err)
{
	*out = ARENA_NEW(ask->a, struct model_attempt);
	**out = (struct model_attempt){.id = "at1",
	                               .job_id = id,
	                               .node = "here",
	                               .cluster = "local",
	                               .gpus = 5,
	                               .launched_ms = T0};
	*n = 1;
	return 0;
}

static int fake_checkpoints(const struct ask *ask, const char *id, bool all,
                            struct model_checkpoint **out, size_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = ARENA_ARRAY(ask->a, struct model_checkpoint, f->n_ckpts + 1);
	*n = 0;
	for (size_t i = 0; i < f->n_ckpts; i++)
		if (all || f->ckpt[i].state == CKPT_COMPLETE)
			(*out)[(*n)++] = f->ckpt[i];
	return 0;
}

static int fake_checkpoint_pin(const struct ask *ask, const char *id, const char *name, bool pinned,
                               struct err *err)
{
	return fake_delete(ask, name, err);
}

static int fake_checkpoint_complete(const struct ask *ask, const char *id, const char *name,
                                    struct err *err)
{
	return fake_delete(ask, name, err);
}

static int fake_checkpoint_delete(const struct ask *ask, const char *id, const char *name,
                                  struct err *err)
{
	return fake_delete(ask, name, err);
}

static bool fake_database_away(struct app *app)
{
	return false;
}

static int fake_status(const struct ask *ask, struct server_status *out, struct err *err)
{
	struct app *f = ask->app;

	*out = (struct server_status){.version = "1.2.3",
	                              .data_dir = f->dir,
	                              .base_url = f->base,
	                              .sandbox = "bwrap",
	                              .started_ms = T0,
	                              .disk_free = 10,
	                              .disk_total = 20,
	                              .jobs_active = 1,
	                              .jobs_pending = 2,
	                              .nodes = f->node,
	                              .n_nodes = f->n_nodes};
	return 0;
}

static const struct team_ops fake_team_ops = {
	.list = fake_teams,
	.create = fake_team_create,
	.remove = fake_delete,
};

static const struct token_ops fake_token_ops = {
	.list = fake_tokens,
	.create = fake_token_create,
	.remove = fake_delete,
	.authenticate = fake_authenticate,
	.authenticate_any = fake_authenticate,
};

static const struct server_ops fake_server_ops = {
	.status = fake_status,
	.is_database_away = fake_database_away,
};

static const struct project_ops fake_project_ops = {
	.list = fake_projects,
	.get = fake_project_get,
	.upsert = fake_project_upsert,
	.remove = fake_delete,
};

static const struct job_ops fake_job_ops = {
	.search = fake_job_search,
	.get = fake_job_get,
	.stop = fake_job_stop,
	.change = fake_job_change,
	.remove = fake_delete,
	.events = fake_job_events,
	.attempts = fake_job_attempts,
};

static const struct checkpoint_ops fake_checkpoint_ops = {
	.list = fake_checkpoints,
	.pin = fake_checkpoint_pin,
	.complete = fake_checkpoint_complete,
	.remove = fake_checkpoint_delete,
};

#define FAKE_OPS                                                                                   \
	.teams = &fake_team_ops, .tokens = &fake_token_ops, .projects = &fake_project_ops,         \
	.jobs = &fake_job_ops, .server = &fake_server_ops, .checkpoints = &fake_checkpoint_ops

/* One team, one project, one job of each state that matters. */
static void fake_rows(struct app *f)
{
	static const enum job_state states[] = {JOB_RUNNING, JOB_PENDING, JOB_COMPLETED,
	                                        JOB_DEPLOY_FAILED};
	static const char *const ids[] = {"job0001", "job0002", "job0003", "job0004"};

	f->team[0] = (struct model_team){"team001", "Default", true, T0};
	f->n_teams = 1;
	f->project[0] = (struct model_project){.id = "proj001",
	                                       .name = "demo",
	                                       .team_id = "team001",
	                                       .team_name = "Default",
	                                       .cache_quota_bytes = 1000,
	                                       .created_ms = T0,
	                                       .updated_ms = T0,
	                                       .latest_job_id = "job0001"};
	f->n_projects = 1;
	for (size_t i = 0; i < COUNT(states); i++)
		f->job[f->n_jobs++] = (struct model_job){
			.id = ids[i],
			.name = "job-1",
			.project_id = "proj001",
			.project_name = "demo",
			.team_id = "team001",
			.team_name = "Default",
			.core = {states[i], 1, 1, T0},
			.user = "ada",
			.created_ms = T0 + (int64_t)i,
			.updated_ms = T0,
			.node_count = 1,
			.cpu_milli = 4000,
			.memory_bytes = (uint64_t)16 << 30,
			.spot = i != 2,
			.spec_json =
				"{\"compute\":{\"availability_model\":\"spot\"},\"runtime\":{"
				"\"artifacts\":"
				"[{\"s3_bucket\":\"stoker\",\"s3_key\":\"uploads/a b.tgz\"}]}}",
			.stage = "running",
		};
	f->job[3].error_message = "weights: 404";
	f->job[3].end = JOB_END_DEPLOY_FAILED;
	f->job[2].spec_json = "{}";
	f->node[0] = (struct node_row){.name = "here",
	                               .cluster = "local",
	                               .gpu_type = "H100",
	                               .kinds = {{"H100", 8}},
	                               .n_kinds = 1,
	                               .cpu_milli = 64000,
	                               .gpus = 8,
	                               .memory_bytes = (uint64_t)512 << 30,
	                               .gpus_used = 5};
	f->n_nodes = 1;
}

static void fake_start(struct app *f, const struct face_ops *ops)
{
	static const struct face *const faces[] = {&face_training, &face_admin, &face_graphql,
	                                           &face_meta, &face_hub};
	struct httpd_options o = {.address = "127.0.0.1:0",
	                          .faces = faces,
	                          .n_faces = COUNT(faces),
	                          .ctx = &f->ctx,
	                          .authorize = fake_authorize,
	                          .workers = 4};
	struct http_policy policy = {0};

	memset(f, 0, sizeof(*f));
	FMT(f->dir, "/tmp/test-face-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->a = arena_new();
	f->token = "admin";
	f->ctx = (struct face_ctx){.magic = FACE_CTX_MAGIC,
	                           .ops = ops,
	                           .app = f,
	                           .url_access_key = "URLKEY",
	                           .url_secret_key = "urlsecret",
	                           .bucket = "stoker",
	                           .base_url = f->base};
	assert_ok(joblogs_open(&f->ctx.logs, arena_printf(f->a, "%s/logs", f->dir), &f->err),
	          &f->err);
	assert_ok(objstore_open(&f->ctx.objects, "mem:", NULL, &f->err), &f->err);
	fake_rows(f);
	assert_ok(httpd_start(&o, &f->httpd, &f->err), &f->err);
	FMT(f->base, "http://127.0.0.1:%u", httpd_port(f->httpd));
	f->client = http_client_new(&policy);
}

static void fake_stop(struct app *f)
{
	http_client_free(f->client);
	httpd_stop(f->httpd);
	joblogs_close(f->ctx.logs);
	objstore_close(f->ctx.objects);
	arena_free(f->a);
	assert_ok(fs_remove_tree(AT_FDCWD, f->dir, &f->err), &f->err);
}

struct got {
	int status;
	struct str text;         /* the body */
	const struct doc *d;     /* when it is JSON */
	struct http_reply reply; /* headers; lives in the fake's arena */
};

static struct got fake_send(struct app *f, const struct http_call *call)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct got g = {0};

	assert_ok(http_do(f->client, call, &reply, &f->err), &f->err);
	g.status = reply.status;
	g.reply.length = reply.length;
	g.text = arena_str(f->a, buf_view(&reply.body));
	if (g.text.n > 0 && js_parse(f->a, g.text, &g.d, &f->err) < 0)
		err_clear(&f->err);
	g.reply.headers = ARENA_ARRAY(f->a, struct http_header, reply.n_headers + 1);
	for (size_t i = 0; i < reply.n_headers; i++)
		g.reply.headers[g.reply.n_headers++] =
			(struct http_header){arena_cstr(f->a, reply.headers[i].name),
		                             arena_cstr(f->a, reply.headers[i].value)};
	return g;
}

static UNUSED struct got fake_call(struct app *f, enum http_method method, const char *path,
                                   const char *body)
{
	struct http_header headers[2] = {
		{"Authorization",
	         arena_printf(f->a, "Bearer %s", f->token != NULL ? f->token : "")},
		{"Content-Type", "application/json"}};
	struct http_call call = {.method = method,
	                         .url = arena_printf(f->a, "%s%s", f->base, path),
	                         .headers = headers,
	                         .n_headers = 2,
	                         .body = str_of(body)};

	return fake_send(f, &call);
}

/* A call that must succeed; its JSON. */
static UNUSED const struct doc *fake_ok(struct app *f, enum http_method method, const char *path,
                                        const char *body)
{
	struct got g = fake_call(f, method, path, body);

	if (g.status != 200 || g.d == NULL)
		fail_msg("%s %s: %d %.*s", http_method_name[method], path, g.status,
		         STR_ARG(g.text));
	return g.d;
}

/* A call that must fail with this status and a message that holds `words`. */
static UNUSED void fake_refused(struct app *f, enum http_method method, const char *path,
                                const char *body, int status, const char *words)
{
	struct got g = fake_call(f, method, path, body);

	if (g.status != status || strstr(doc_cstr(doc_get(g.d, "message"), ""), words) == NULL)
		fail_msg("%s %s: %d %.*s", http_method_name[method], path, g.status,
		         STR_ARG(g.text));
}

/* "a.b.2.c" of a tree. */
static UNUSED const struct doc *at(const struct doc *d, const char *path)
{
	struct str rest = str_of(path), part;

	while (d != NULL && str_cut(&rest, '.', &part)) {
		struct err bad = {0};
		uint64_t i;
		char key[64];

		if (d->kind == DOC_LIST && str_u64(part, 0, 1000000, &i, &bad) == 0) {
			d = d->first;
			while (d != NULL && i-- > 0)
				d = d->next;
			continue;
		}
		FMT(key, "%.*s", STR_ARG(part));
		d = doc_get(d, key);
	}
	return d;
}

#define assert_text(d, path, want) assert_string_equal(doc_cstr(at(d, path), "(none)"), want)

#endif
