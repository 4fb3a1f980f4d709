/* test_training.c - the training API over loopback: shapes that clients index, and refusals. */
#include "fake_ops.h"

static int fake_job_push(const struct ask *ask, const char *project_id, const struct doc *doc,
                         const char *key, struct model_job *out, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_cstr(f->a, key);
	f->flag = false;
	f->number = (int64_t)doc->count;
	*out = f->job[0];
	return 0;
}

static int fake_job_check(const struct ask *ask, const char *team_id, const char *project,
                          const struct doc *doc, bool forecast, struct model_job *out,
                          struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_cstr(f->a, project);
	f->flag = true;
	*out = f->job[0];
	out->id = out->project_id = NULL;
	return 0;
}

static int fake_job_recreate(const struct ask *ask, const char *id, bool resume,
                             struct model_job *out, struct err *err)
{
	if (fake_job_get(ask, NULL, id, out, err) < 0)
		return -1;
	out->recreated_from = out->id;
	out->id = "job000n";
	return 0;
}

/* "twin" could be all of them. */
static int fake_job_resolve(const struct ask *ask, const char *word, struct model_job **out,
                            size_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = f->job;
	*n = strcmp(word, "twin") == 0 ? f->n_jobs : 1;
	if (*n > 1 || strcmp(word, "@") == 0 || strcmp(word, f->job[0].id) == 0)
		return 0;
	return err_set(err, ERR_JOB_NOT_FOUND, "no job \"%s\"", word);
}

static int fake_job_pick(const struct ask *ask, const char *name, bool *newest,
                         struct model_job **out, uint64_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = *newest ? f->job : NULL;
	*n = f->n_jobs;
	return 0;
}

static int fake_project_resolve(const struct ask *ask, const char *word, struct model_project **out,
                                size_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = f->project;
	*n = 1;
	if (strcmp(word, f->project[0].name) == 0)
		return 0;
	return err_set(err, ERR_PROJECT_NOT_FOUND, "no project \"%s\"", word);
}

static int fake_team_resolve(const struct ask *ask, const char *word, struct model_team **out,
                             size_t *n, struct err *err)
{
	struct app *f = ask->app;

	*out = f->team;
	*n = 1;
	if (strcmp(word, f->team[0].name) == 0)
		return 0;
	return err_set(err, ERR_TEAM_NOT_FOUND, "no team \"%s\"", word);
}

static int fake_exec_start(const struct ask *ask, const char *id, uint32_t rank,
                           const struct wire_exec *what, char **exec_id, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_printf(f->a, "%s/%zu/%u/%d/%u/%s", what->n_argv > 0 ? what->argv[0] : "-",
	                       what->n_argv, rank, what->input, what->tty ? what->columns : 0,
	                       what->term == NULL ? "-" : what->term);
	*exec_id = arena_cstr(ask->a, "ex1");
	return 0;
}

static int fake_exec_may_join(const struct ask *ask, const char *id, const char *exec_id,
                              struct err *err)
{
	if (strcmp(exec_id, "ex2") == 0)
		return err_set(err, ERR_CONFLICT, "the command has ended");
	return strcmp(exec_id, "ex1") == 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no such command");
}

static int fake_cache_snapshot(const struct ask *ask, const char *scope, const char *id,
                               struct model_cache_snapshot *out, struct err *err)
{
	struct app *f = ask->app;

	if (f->snapshot.scope == NULL || strcmp(f->snapshot.scope, scope) != 0 ||
	    strcmp(f->snapshot.scope_id, id) != 0)
		return err_set(err, ERR_NOT_FOUND, "never summarized");
	*out = f->snapshot;
	return 0;
}

static int fake_cache_remove(const struct ask *ask, const char *scope, const char *id,
                             struct str path, uint64_t *bytes, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_printf(f->a, "%s %s %.*s", scope, id, STR_ARG(path));
	*bytes = 77;
	return 0;
}

static int fake_cache_quota(const struct ask *ask, const char *id, uint64_t bytes, struct err *err)
{
	struct app *f = ask->app;

	f->number = (int64_t)bytes;
	return 0;
}

static int fake_mirrors(const struct ask *ask, struct model_mirror **out, size_t *n,
                        struct err *err)
{
	struct app *f = ask->app;

	*out = f->mirror;
	*n = f->n_mirrors;
	return 0;
}

static int fake_mirror_prefetch(const struct ask *ask, const char *team_id,
                                const struct spec_weights *w, struct model_mirror *out,
                                struct err *err)
{
	struct app *f = ask->app;

	f->number = (int64_t)(w->n_allow * 10 + w->n_ignore);
	*out = f->mirror[0];
	out->source = w->source;
	return 0;
}

static int fake_mirror_delete(const struct ask *ask, const char *id, uint64_t *freed,
                              struct err *err)
{
	*freed = 5;
	return fake_delete(ask, id, err);
}

static const struct resolve_ops fake_resolve_ops = {
	.job = fake_job_resolve,
	.pick = fake_job_pick,
	.project = fake_project_resolve,
	.team = fake_team_resolve,
};

static const struct push_ops fake_push_ops = {
	.push = fake_job_push,
	.check = fake_job_check,
	.again = fake_job_recreate,
};

static const struct exec_ops fake_exec_ops = {
	.start = fake_exec_start,
	.may_join = fake_exec_may_join,
};

static const struct cache_ops fake_cache_ops = {
	.snapshot = fake_cache_snapshot,
	.summarize = fake_cache_snapshot,
	.remove = fake_cache_remove,
	.quota = fake_cache_quota,
};

static const struct mirror_ops fake_mirror_ops = {
	.list = fake_mirrors,
	.prefetch = fake_mirror_prefetch,
	.remove = fake_mirror_delete,
};

static const struct face_ops ops = {FAKE_OPS,
                                    .resolve = &fake_resolve_ops,
                                    .pushes = &fake_push_ops,
                                    .execs = &fake_exec_ops,
                                    .caches = &fake_cache_ops,
                                    .mirrors = &fake_mirror_ops};

#define P "/v1/training_projects/proj001"
#define J P "/jobs/job0001"

static void test_refuses(void **state)
{
	static const struct {
		enum http_method method;
		const char *path, *body;
		int status;
		const char *words;
	} rows[] = {
		{HTTP_GET, "/v1/training_projects/none", "", 404, "no project none"},
		{HTTP_GET, P "/jobs/none", "", 404, "no job none"},
		{HTTP_GET, "/v1/training_projects/other/jobs/job0001", "", 404, "no job"},
		{HTTP_GET, "/v1/nothing", "", 404, "nothing"},
		{HTTP_PUT, J, "{}", 405, "not allowed"},
		{HTTP_POST, "/v1/training_projects", "", 400, "empty"},
		{HTTP_POST, "/v1/training_projects", "[1]", 400, "expected an object, not a list"},
		{HTTP_POST, "/v1/training_projects", "{\"x\":1", 400, "not JSON"},
		{HTTP_POST, "/v1/training_projects", "{}", 400,
	         "training_project: expected an object"},
		{HTTP_POST, "/v1/training_projects", "{\"training_project\":{}}", 400,
	         "name: missing"},
		{HTTP_POST, "/v1/training_projects", "{\"training_project\":{\"name\":5}}", 400,
	         "name: expected text, not"},
		{HTTP_POST, "/v1/training_projects", "{\"training_project\":{\"name\":\" x\"}}",
	         400, "is not a name: one line of 1 to 200 bytes"},
		{HTTP_POST, "/v1/training_projects",
	         "{\"training_project\":{\"name\":\"x\",\"team_name\":\"No\"}}", 404, "no team"},
		{HTTP_POST, P "/jobs", "{\"training_job\":null}", 400,
	         "training_job: expected an object"},
		{HTTP_POST, P "/jobs?dry_run=maybe", "{}", 400, "parameter dry_run"},
		{HTTP_POST, "/v1/training_jobs/check", "{\"training_job\":{}}", 400,
	         "training_project: expected an object"},
		{HTTP_POST, "/v1/training_jobs/check", "{\"training_project\":{\"name\":\"\"}}",
	         400, "not a name"},
		{HTTP_POST, "/v1/training_projects/none/jobs", "{\"training_job\":{}}", 404,
	         "no project"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"statuses\":[\"SLEEPING\"]}", 400,
	         "unknown status \"SLEEPING\""},
		{HTTP_POST, "/v1/training_jobs/search", "{\"statuses\":\"x\"}", 400,
	         "a list of texts"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"order_by\":[{\"field\":\"name\"}]}",
	         400, "only created_at"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"order_by\":[{\"order\":\"up\"}]}", 400,
	         "neither asc nor desc"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"job_id\":7}", 400,
	         "job_id: expected text"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"limit\":1001}", 400, "limit"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"cursor\":\"1.\"}", 400, "cursor"},
		{HTTP_POST, "/v1/training_jobs/search", "{\"mine\":\"yes\"}", 400, "mine"},
		{HTTP_GET, P "/jobs?limit=0", "", 400, "limit"},
		{HTTP_GET, P "/jobs?cursor=x", "", 400, "cursor"},
		{HTTP_GET, "/v1/resolve?what=job", "", 400, "word"},
		{HTTP_GET, "/v1/resolve?what=shoe&word=x", "", 400, "what"},
		{HTTP_GET, "/v1/resolve?what=job&word=none", "", 404, "job"},
		{HTTP_GET, "/v1/resolve?what=project&word=none", "", 404, "project"},
		{HTTP_GET, "/v1/resolve?what=team&word=none", "", 404, "team"},
		{HTTP_GET, "/v1/resolve?what=checkpoint&word=none/x", "", 404, "job"},
		{HTTP_GET, "/v1/resolve?what=checkpoint&word=a/b/c", "", 404, "job"},
		{HTTP_PATCH, J, "{}", 400, "nothing to change"},
		{HTTP_PATCH, J, "{\"availability_model\":\"rented\"}", 400,
	         "neither dedicated nor spot"},
		{HTTP_PATCH, J, "{\"priority\":1.5}", 400, "a whole number"},
		{HTTP_PATCH, J, "{\"priority\":99999999999999999999}", 400, "integer"},
		{HTTP_PATCH, J, "{\"priority\":1}", 409, "not pending"},
		{HTTP_POST, J "/stop", "{\"now\":1}", 400, "true or false"},
		{HTTP_GET, J "/events?after=x", "", 400, "parameter after"},
		{HTTP_POST, J "/exec", "{\"command\":[]}", 400, "a program"},
		{HTTP_POST, J "/exec", "{\"command\":\"ls\"}", 400, "a list of texts"},
		{HTTP_GET, J "/exec/ex1", "", 426, "does a proxy on the way"},
		{HTTP_GET, J "/exec/ex2", "", 409, "has ended"},
		{HTTP_GET, J "/exec/ex3", "", 404, "no such command"},
		{HTTP_POST, J "/exec", "{}", 400, "a program"},
		{HTTP_POST, J "/exec", "{\"tty\":{\"rows\":1}}", 400, "must be given together"},
		{HTTP_POST, J "/exec", "{\"tty\":{}}", 400, "tty.rows"},
		{HTTP_POST, J "/exec", "{\"tty\":{\"rows\":1,\"columns\":1,\"term\":\"a;b\"}}", 400,
	         "tty.term"},
		{HTTP_GET, J "/checkpoint_files?page_size=0", "", 400, "page_size"},
		{HTTP_GET, J "/checkpoint_files?page_token=x", "", 400, "page_token"},
		{HTTP_GET, P "/jobs/job0003/download", "", 404, "without code"},
		{HTTP_DELETE, P "/cache/files", "", 400, "path: missing"},
		{HTTP_DELETE, P "/cache/files?path=../x", "", 400, "not a path below"},
		{HTTP_PATCH, P "/cache", "{}", 400, "quota_bytes: missing"},
		{HTTP_PATCH, P "/cache", "{\"quota_bytes\":0}", 400, "not between"},
		{HTTP_POST, "/v1/weights", "{}", 400, "source: missing"},
		{HTTP_POST, "/v1/weights", "{\"source\":\"ftp://x\"}", 400, "source"},
	};
	struct app f;

	(void)state;
	fake_start(&f, &ops);
	for (size_t i = 0; i < COUNT(rows); i++)
		fake_refused(&f, rows[i].method, rows[i].path, rows[i].body, rows[i].status,
		             rows[i].words);
	f.token = "wrong";
	fake_refused(&f, HTTP_GET, J, "", 401, "unknown token");
	f.token = "viewer";
	fake_refused(&f, HTTP_POST, J "/stop", "{}", 403, "not for this role");
	fake_stop(&f);
}

static void test_projects(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, "/v1/training_projects", "");
	assert_text(d, "training_projects.0.id", "proj001");
	assert_text(d, "training_projects.0.team_name", "Default");
	assert_text(d, "training_projects.0.latest_job.current_status", "TRAINING_JOB_RUNNING");
	d = fake_ok(
		&f, HTTP_POST, "/v1/training_projects",
		"{\"training_project\":{\"name\":\"new\",\"team_name\":\"Default\",\"more\":1}}");
	assert_text(d, "training_project.name", "new");
	assert_string_equal(f.said, "team001");
	d = fake_ok(&f, HTTP_POST, "/v1/teams/team007/training_projects",
	            "{\"training_project\":{\"name\":\"demo\"}}");
	assert_text(d, "training_project.id", "proj001");
	assert_string_equal(f.said, "team007");
	f.project[0].latest_job_id = "gone000"; /* deleted since */
	d = fake_ok(&f, HTTP_GET, P, "");
	assert_true(doc_is(at(d, "training_project.latest_job"), DOC_NULL));
	d = fake_ok(&f, HTTP_DELETE, P, "");
	assert_true(doc_bool(at(d, "deleted"), false));
	fake_stop(&f);
}

/* What the stock client indexes without asking. */
static void assert_job(const struct doc *job)
{
	static const char *const texts[] = {"id",
	                                    "created_at",
	                                    "updated_at",
	                                    "current_status",
	                                    "instance_type.name",
	                                    "training_project.id",
	                                    "training_project.name",
	                                    "training_project_id",
	                                    "user.email"};

	for (size_t i = 0; i < COUNT(texts); i++)
		assert_row(doc_text(at(job, texts[i])).n > 0, texts[i]);
	assert_non_null(at(job, "name"));
	assert_true(doc_is(at(job, "priority"), DOC_INT));
	assert_true(doc_is(at(job, "node_count"), DOC_INT));
}

static void test_resolve(void **state)
{
	struct app f;
	const struct doc *d;
	struct got g;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, "/v1/resolve?what=job&word=job0001", "");
	assert_job(at(d, "training_job"));
	d = fake_ok(&f, HTTP_GET, "/v1/resolve?what=project&word=demo", "");
	assert_text(d, "training_project.id", "proj001");
	d = fake_ok(&f, HTTP_GET, "/v1/resolve?what=team&word=Default", "");
	assert_text(d, "team.id", "team001");
	g = fake_call(&f, HTTP_GET, "/v1/resolve?what=job&word=twin", "");
	assert_int_equal(g.status, 409);
	assert_text(g.d, "error.id", "name_ambiguous");
	assert_int_equal(at(g.d, "candidates")->count, 4);
	assert_text(g.d, "candidates.1.id", "job0002");
	assert_text(g.d, "candidates.1.current_status", "TRAINING_JOB_PENDING");
	assert_text(g.d, "candidates.1.user", "ada");
	g = fake_call(&f, HTTP_GET, "/v1/resolve?what=checkpoint&word=x&job=twin", "");
	assert_int_equal(g.status, 409);
	/* The fake finds them by the start of an id, of which none is taken. */
	g = fake_call(&f, HTTP_GET, "/v1/resolve?what=job&word=twin&several=newest", "");
	assert_int_equal(g.status, 409);
	g = fake_call(&f, HTTP_GET, "/v1/resolve?what=job&word=twin&several=all", "");
	assert_int_equal(g.status, 400);
	f.ckpt[0] = (struct model_checkpoint){
		.job_id = "job0001", .name = "a/b", .state = CKPT_COMPLETE, .created_ms = T0};
	f.ckpt[1] = (struct model_checkpoint){
		.job_id = "job0001", .name = "c", .state = CKPT_INCOMPLETE, .created_ms = T0 + 1};
	f.n_ckpts = 2;
	for (size_t i = 0; i < 4; i++) {
		static const char *const words[] = {"job0001/a/b", "a/b&job=job0001", "@/a/b",
		                                    "latest"};

		d = fake_ok(&f, HTTP_GET,
		            arena_printf(f.a, "/v1/resolve?what=checkpoint&word=%s", words[i]), "");
		assert_text(d, "checkpoint.checkpoint_id", "a/b");
		assert_text(d, "training_job.id", "job0001");
	}
	g = fake_call(&f, HTTP_GET, "/v1/resolve?what=checkpoint&word=@/d", "");
	assert_int_equal(g.status, 404);
	assert_text(g.d, "error.id", "checkpoint_not_found");
	fake_stop(&f);
}

static void test_pages(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	f.job[1].row = 7;
	d = fake_ok(&f, HTTP_POST, "/v1/training_jobs/search", "{\"limit\":2,\"mine\":true}");
	assert_int_equal(at(d, "training_jobs")->count, 2);
	assert_int_equal(doc_int(at(d, "total"), 0), 4);
	assert_string_equal(f.query.user, "ada");
	assert_text(d, "next_cursor", arena_printf(f.a, "%" PRId64 ".7", T0 + 1));
	(void)fake_ok(&f, HTTP_POST, "/v1/training_jobs/search",
	              "{\"limit\":2,\"user\":\"bob\",\"cursor\":\"55.7\"}");
	assert_string_equal(f.query.user, "bob");
	assert_int_equal(f.query.after_ms, 55);
	assert_int_equal(f.query.after_row, 7);
	d = fake_ok(&f, HTTP_GET, P "/jobs?limit=4", "");
	assert_int_equal(at(d, "next_cursor")->kind, DOC_NULL);
	fake_stop(&f);
}

static void test_jobs(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, J, "");
	assert_job(at(d, "training_job"));
	assert_text(d, "training_job.instance_type.name", "CPU 4x16");
	assert_text(d, "training_job.availability_model", "spot");
	assert_non_null(at(d, "training_job.spec.runtime"));
	d = fake_ok(&f, HTTP_POST, "/v1/training_jobs/search",
	            "{\"statuses\":null,\"project_id\":null,\"job_id\":null,"
	            "\"order_by\":[{\"field\":\"created_at\",\"order\":\"asc\"}]}");
	assert_int_equal(at(d, "training_jobs")->count, 4);
	assert_true(f.query.ascending);
	for (size_t i = 0; i < 4; i++)
		assert_job(at(d, arena_printf(f.a, "training_jobs.%zu", i)));
	assert_null(at(d, "training_jobs.0.spec"));
	assert_text(d, "training_jobs.3.error_message", "weights: 404");
	assert_text(d, "training_jobs.3.end.kind", "deploy-failed");
	d = fake_ok(&f, HTTP_POST, "/v1/training_jobs/search", "{\"job_id\":\"none\"}");
	assert_int_equal(at(d, "training_jobs")->count, 0);
	d = fake_ok(&f, HTTP_POST, "/v1/training_jobs/search",
	            "{\"statuses\":[\"TRAINING_JOB_PREEMPTED\"]}");
	assert_int_equal(at(d, "training_jobs")->count, 0);
	d = fake_ok(&f, HTTP_POST, "/v1/training_jobs/search",
	            "{\"statuses\":[\"TRAINING_JOB_PENDING\"]}");
	assert_int_equal(at(d, "training_jobs")->count, 1);
	d = fake_ok(&f, HTTP_GET, P "/jobs", "");
	assert_int_equal(at(d, "training_jobs")->count, 4);
	d = fake_ok(&f, HTTP_POST, J "/stop", "");
	assert_false(f.flag);
	d = fake_ok(&f, HTTP_POST, J "/stop", "{\"now\":true}");
	assert_true(f.flag);
	assert_job(at(d, "training_job"));
	d = fake_ok(&f, HTTP_POST, J "/recreate", "{}");
	assert_text(d, "training_job.recreated_from", "job0001");
	d = fake_ok(&f, HTTP_PATCH, P "/jobs/job0002", "{\"priority\":-3.0}");
	assert_int_equal(doc_int(at(d, "training_job.priority"), 0), -3);
	d = fake_ok(&f, HTTP_GET, J "/events?after=2", "");
	assert_int_equal(f.number, 2);
	assert_text(d, "events.0.kind", "state");
	d = fake_ok(&f, HTTP_GET, J "/attempts", "");
	assert_int_equal(at(d, "attempts.0.gpus")->count, 2);
	assert_int_equal(doc_int(at(d, "attempts.0.gpus.1"), 0), 2);
	d = fake_ok(&f, HTTP_GET, J "/auth_codes", "");
	assert_int_equal(at(d, "auth_codes")->count, 0);
	d = fake_ok(&f, HTTP_DELETE, J, "");
	assert_string_equal(f.said, "job0001");
	fake_stop(&f);
}

static void test_push(void **state)
{
	struct app f;
	struct got g;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_POST, P "/jobs",
	            "{\"training_job\":{\"image\":{\"base_image\":\"python:3.12\"},\"compute\":{"
	            "\"node_count\":1},"
	            "\"runtime\":{\"start_commands\":[\"true\"]}}}");
	assert_job(at(d, "training_job"));
	assert_false(f.flag);
	d = fake_ok(&f, HTTP_POST, P "/jobs?dry_run=true",
	            "{\"training_job\":{\"image\":{\"base_image\":\"python:3.12\"},\"runtime\":{"
	            "\"start_commands\":[\"true\"]}}}");
	assert_true(f.flag);
	assert_true(doc_is(at(d, "training_job.id"), DOC_NULL));
	/* for a project that may not exist yet */
	d = fake_ok(
		&f, HTTP_POST, "/v1/training_jobs/check",
		"{\"training_project\":{\"name\":\"unborn\"},\"training_job\":{\"image\":{"
		"\"base_image\":\"python:3.12\"},\"runtime\":{\"start_commands\":[\"true\"]}}}");
	assert_string_equal(f.said, "unborn");
	assert_true(doc_is(at(d, "training_job.id"), DOC_NULL));
	assert_true(doc_is(at(d, "training_job.training_project.id"), DOC_NULL));
	/* every mistake at once */
	g = fake_call(&f, HTTP_POST, P "/jobs",
	              "{\"training_job\":{\"image\":{\"base_image\":5},\"compute\":{\"node_count\":"
	              "-1,\"memory\":\"much\"}}}");
	assert_int_equal(g.status, 400);
	assert_true(at(g.d, "problems")->count >= 3);
	assert_true(doc_text(at(g.d, "problems.0.path")).n > 0);
	assert_true(doc_text(at(g.d, "problems.0.message")).n > 0);
	assert_true(doc_text(at(g.d, "message")).n > 0);
	fake_stop(&f);
}

static void test_exec(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_POST, J "/exec", "{\"command\":[\"ls\",\"-l\"],\"node_rank\":3}");
	assert_text(d, "exec_id", "ex1");
	assert_string_equal(f.said, "ls/2/3/0/0/-");
	d = fake_ok(&f, HTTP_POST, J "/exec",
	            "{\"input\":true,\"tty\":{\"rows\":24,\"columns\":80,\"term\":\"xterm-"
	            "256color\"}}");
	assert_string_equal(f.said, "-/0/0/1/80/xterm-256color");
	fake_stop(&f);
}

static void test_cache_and_weights(void **state)
{
	struct app f;
	struct got g;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	g = fake_call(&f, HTTP_GET, P "/cache/summary", "");
	assert_true(g.status == 200 && str_eq(g.text, "{}"));
	f.snapshot = (struct model_cache_snapshot){"project", "proj001", T0, 12, 2, "list.jsonl"};
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f.a, "%s/list.jsonl", f.dir),
	                          STR_LIT("{\"path\":\"a\",\"size_bytes\":12,\"modified\":\"2026-"
	                                  "01-01T00:00:00Z\","
	                                  "\"file_type\":\"file\",\"permissions\":\"-rw-r--r--\"}\n"
	                                  "{\"path\":\"d\",\"size_bytes\":0,\"modified\":\"2026-01-"
	                                  "01T00:00:00Z\","
	                                  "\"file_type\":\"directory\",\"permissions\":\"drwxr-xr-"
	                                  "x\"}\n{\"omitted\":7}\n"),
	                          0600, &f.err),
	          &f.err);
	d = fake_ok(&f, HTTP_GET, P "/cache/summary", "");
	assert_text(d, "project_id", "proj001");
	assert_int_equal(at(d, "file_summaries")->count, 2);
	assert_text(d, "file_summaries.1.file_type", "directory");
	assert_true(doc_bool(at(d, "truncated"), false));
	assert_true(doc_text(at(d, "timestamp")).n > 0);
	d = fake_ok(&f, HTTP_POST, P "/cache/summarize", "");
	d = fake_ok(&f, HTTP_DELETE, "/v1/teams/team001/cache/files?path=a%2Fb", "");
	assert_string_equal(f.said, "team team001 a/b");
	assert_int_equal(doc_int(at(d, "bytes_freed"), 0), 77);
	d = fake_ok(&f, HTTP_PATCH, P "/cache", "{\"quota_bytes\":5000}");
	assert_int_equal(f.number, 5000);
	f.mirror[0] = (struct model_mirror){.id = "m1",
	                                    .team_id = "team001",
	                                    .source = "hf://a/b",
	                                    .revision = "sha",
	                                    .filter_json = "{\"allow\":[\"*.json\"],\"ignore\":[]}",
	                                    .state = MIRROR_READY,
	                                    .bytes_total = 10,
	                                    .created_ms = T0};
	f.n_mirrors = 1;
	d = fake_ok(&f, HTTP_GET, "/v1/weights", "");
	assert_text(d, "weights.0.state", "READY");
	assert_text(d, "weights.0.allow_patterns.0", "*.json");
	assert_true(doc_is(at(d, "weights.0.manifest"), DOC_NULL));
	d = fake_ok(&f, HTTP_POST, "/v1/weights",
	            "{\"source\":\"hf://x/"
	            "y\",\"allow_patterns\":[\"a\",\"b\"],\"ignore_patterns\":[\"c\"]}");
	assert_text(d, "weights.source", "hf://x/y");
	assert_int_equal(f.number, 21);
	d = fake_ok(&f, HTTP_DELETE, "/v1/weights/m1", "");
	assert_int_equal(doc_int(at(d, "bytes_freed"), 0), 5);
	fake_stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses), cmocka_unit_test(test_projects),
	cmocka_unit_test(test_resolve), cmocka_unit_test(test_pages),
	cmocka_unit_test(test_jobs),    cmocka_unit_test(test_push),
	cmocka_unit_test(test_exec),    cmocka_unit_test(test_cache_and_weights),
};

UNIT_MAIN(tests)
