/* test_admin.c - people, keys, secrets, capacity, status; health, metrics, pages and OpenAPI. */
#include "fake_ops.h"

static int fake_secrets(const struct ask *ask, const char *team_id, struct model_secret **out,
                        size_t *n, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_cstr(f->a, team_id);
	*out = f->secret;
	*n = f->n_secrets;
	return 0;
}

static int fake_secret_set(const struct ask *ask, const char *team_id, const char *name,
                           struct str value, struct model_secret *out, struct err *err)
{
	struct app *f = ask->app;

	f->said = arena_strz(f->a, value);
	f->secret[0] = (struct model_secret){"sec1", arena_cstr(f->a, name), "team001", T0, T0, 0};
	f->n_secrets = 1;
	*out = f->secret[0];
	return 0;
}

static int fake_secret_delete(const struct ask *ask, const char *team_id, const char *name,
                              struct err *err)
{
	struct app *f = ask->app;

	if (f->n_secrets == 0 || strcmp(f->secret[0].name, name) != 0)
		return err_set(err, ERR_NOT_FOUND, "no secret \"%s\"", name);
	f->n_secrets = 0;
	return 0;
}

static int fake_capacity(const struct ask *ask, struct capacity_row **out, size_t *n,
                         struct err *err)
{
	*out = ARENA_ARRAY(ask->a, struct capacity_row, 2);
	(*out)[0] = (struct capacity_row){"H100", NULL, NULL, 8, -1, 3};
	(*out)[1] = (struct capacity_row){"H100", "team001", "Default", 8, 4, 2};
	*n = 2;
	return 0;
}

static int fake_capacity_set(const struct ask *ask, const char *team_id, const char *gpu_type,
                             int64_t max_gpus, struct capacity_row *out, struct err *err)
{
	*out = (struct capacity_row){gpu_type, team_id, "Default", 8, max_gpus, 0};
	return 0;
}

static const struct secret_ops fake_secret_ops = {
	.list = fake_secrets,
	.set = fake_secret_set,
	.remove = fake_secret_delete,
};

static const struct capacity_ops fake_capacity_ops = {
	.list = fake_capacity,
	.set = fake_capacity_set,
};

static int fake_deployments(const struct ask *ask, struct deployment_view **out, size_t *n,
                            struct err *err)
{
	*out = ARENA_ARRAY(ask->a, struct deployment_view, 2);
	(*out)[0] = (struct deployment_view){
		.d = {.id = "dep0001", .name = "mine", .team_name = "Default", .replicas = 2},
		.ready = 1,
		.requests = 7};
	(*out)[1] = (struct deployment_view){.d = {.name = "byhand", .team_name = "Default"}};
	*n = 2;
	return 0;
}
static const struct deployment_ops fake_deployment_ops = {.list = fake_deployments};

static const struct face_ops ops = {FAKE_OPS, .deployments = &fake_deployment_ops,
                                    .secrets = &fake_secret_ops, .capacity = &fake_capacity_ops};

static void test_refuses(void **state)
{
	static const struct {
		enum http_method method;
		const char *path, *body;
		int status;
		const char *words;
	} rows[] = {
		{HTTP_POST, "/v1/teams", "{\"name\":\"\"}", 400, "is not a name: one line"},
		{HTTP_POST, "/v1/api_keys", "{}", 400, "name: missing"},
		{HTTP_POST, "/v1/api_keys", "{\"name\":\"\"}", 400, "is not a name: one line"},
		{HTTP_POST, "/v1/api_keys", "{\"name\":\"x\",\"role\":\"king\"}", 400,
	         "not viewer, member or admin"},
		{HTTP_POST, "/v1/api_keys", "{\"name\":\"x\",\"type\":\"ODD\"}", 400, "type: "},
		{HTTP_POST, "/v1/api_keys", "{\"name\":\"x\",\"expires_in_days\":0}", 400,
	         "not between"},
		{HTTP_POST, "/v1/secrets", "{\"name\":\"x\"}", 400, "value: missing"},
		{HTTP_POST, "/v1/secrets", "{\"name\":\"x\",\"value\":\"\"}", 400, "1 to"},
		{HTTP_DELETE, "/v1/secrets/none", "", 404, "no secret"},
		{HTTP_DELETE, "/v1/teams/busy", "", 409, "in use"},
		{HTTP_PATCH, "/v1/training/capacity", "{\"team_id\":\"t\",\"gpu_type\":\"H100\"}",
	         400, "max_gpus: missing"},
		{HTTP_PATCH, "/v1/training/capacity",
	         "{\"team_id\":\"t\",\"gpu_type\":8,\"max_gpus\":1}", 400,
	         "gpu_type: expected text"},
	};
	struct app f;

	(void)state;
	fake_start(&f, &ops);
	for (size_t i = 0; i < COUNT(rows); i++)
		fake_refused(&f, rows[i].method, rows[i].path, rows[i].body, rows[i].status,
		             rows[i].words);
	f.token = "viewer";
	fake_refused(&f, HTTP_POST, "/v1/teams", "{\"name\":\"x\"}", 403, "role");
	f.token = NULL;
	fake_refused(&f, HTTP_GET, "/v1/users/me", "", 401, "");
	fake_stop(&f);
}

static void test_admin(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, "/v1/users/me", "");
	assert_text(d, "email", "ada");
	assert_text(d, "role", "admin");
	assert_true(doc_is(at(d, "team"), DOC_NULL));
	f.token = "viewer";
	d = fake_ok(&f, HTTP_GET, "/v1/users/me", "");
	assert_text(d, "team.name", "Default");
	f.token = "admin";
	d = fake_ok(&f, HTTP_POST, "/v1/teams", "{\"name\":\"Second\"}");
	assert_text(d, "team.name", "Second");
	d = fake_ok(&f, HTTP_GET, "/v1/teams", "");
	assert_true(doc_bool(at(d, "teams.0.default"), false));
	d = fake_ok(&f, HTTP_DELETE, "/v1/teams/team00x", "");
	assert_text(d, "id", "team00x");
	d = fake_ok(
		&f, HTTP_POST, "/v1/api_keys",
		"{\"type\":\"WORKSPACE_MANAGE_ALL\",\"name\":\"exec\",\"team_id\":\"team001\"}");
	assert_text(d, "api_key", "stoker_plain");
	assert_text(d, "role", "member"); /* a job's key is no administrator's */
	assert_true(doc_is(at(d, "expires_at"), DOC_NULL));
	d = fake_ok(&f, HTTP_POST, "/v1/api_keys",
	            "{\"name\":\"x\",\"role\":\"admin\",\"expires_in_days\":2}");
	assert_text(d, "role", "admin");
	assert_true(doc_text(at(d, "expires_at")).n > 0);
	d = fake_ok(&f, HTTP_GET, "/v1/api_keys", "");
	assert_null(at(d, "api_keys.0.hash"));
	d = fake_ok(&f, HTTP_DELETE, "/v1/api_keys/tok1", "");
	d = fake_ok(&f, HTTP_POST, "/v1/teams/team001/secrets",
	            "{\"name\":\"hf\",\"value\":\"geheim\"}");
	assert_string_equal(f.said, "geheim");
	assert_text(d, "name", "hf");
	assert_null(at(d, "value"));
	d = fake_ok(&f, HTTP_GET, "/v1/teams/team001/secrets", "");
	assert_string_equal(f.said, "team001");
	assert_text(d, "secrets.0.team_name", "Default");
	d = fake_ok(&f, HTTP_GET, "/v1/secrets", "");
	assert_null(f.said);
	d = fake_ok(&f, HTTP_DELETE, "/v1/teams/team001/secrets/hf", "");
	assert_text(d, "name", "hf");
	d = fake_ok(&f, HTTP_GET, "/v1/training/capacity", "");
	assert_int_equal(doc_int(at(d, "gpu_capacities.0.limit"), 0), 8);
	assert_text(d, "team_gpu_capacities.0.team_name", "Default");
	d = fake_ok(&f, HTTP_PATCH, "/v1/training/capacity",
	            "{\"team_id\":\"team001\",\"gpu_type\":\"H100\",\"max_gpus\":2}");
	assert_int_equal(doc_int(at(d, "team_gpu_capacity.limit"), 0), 2);
	d = fake_ok(&f, HTTP_GET, "/v1/status", "");
	assert_text(d, "nodes.0.gpu_type", "H100");
	assert_int_equal(doc_int(at(d, "nodes.0.gpus_used"), 0), 2);
	assert_int_equal(doc_int(at(d, "jobs.pending"), 0), 2);
	fake_stop(&f);
}

static void test_meta(void **state)
{
	struct app f;
	struct got g;

	(void)state;
	fake_start(&f, &ops);
	f.node[0].name = "a\"b\\c\nd";
	g = fake_call(&f, HTTP_GET, "/metrics", "");
	assert_int_equal(g.status, 200);
	assert_non_null(memmem(g.text.p, g.text.n, "\nstoker_jobs{state=\"pending\"} 2\n", 32));
	assert_non_null(memmem(g.text.p, g.text.n, "node=\"a\\\"b\\\\c\\nd\"", 17));
	assert_non_null(
		strstr(arena_strz(f.a, g.text),
	               "\nstoker_deployment_replicas_ready{team=\"Default\",name=\"mine\"} 1\n"));
	assert_non_null(
		strstr(arena_strz(f.a, g.text),
	               "\nstoker_deployment_requests_total{team=\"Default\",name=\"mine\"} 7\n"));
	assert_null(strstr(arena_strz(f.a, g.text), "byhand"));
	f.token = NULL;
	g = fake_call(&f, HTTP_GET, "/metrics", "");
	assert_int_equal(g.status, 401);
	g = fake_call(&f, HTTP_GET, "/healthz", "");
	assert_int_equal(g.status, 200);
	g = fake_call(&f, HTTP_GET, "/", "");
	assert_int_equal(g.status, 200);
	g = fake_call(&f, HTTP_GET, "/training/p%3Cscript%3E/logs/%22j%26", "");
	assert_int_equal(g.status, 200);
	assert_null(memmem(g.text.p, g.text.n, "<script>", 8));
	assert_non_null(memmem(g.text.p, g.text.n, "p&#60;script&#62;", 17));
	fake_stop(&f);
}

static struct app *counting;
static const struct doc *paths;
static size_t operations;

static void is_described(const struct face *face, const struct route *r, void *arg)
{
	static const char *const methods[] = {"get", "head", "put", "post", "patch", "delete"};
	const char *dots = strstr(r->pattern, "...}");
	const struct doc *op;

	(void)arg;
	(void)face;
	op = doc_path(paths,
	              dots != NULL ? arena_printf(counting->a, "%.*s}", (int)(dots - r->pattern),
	                                          r->pattern)
	                           : r->pattern,
	              methods[r->method], NULL);
	assert_row(op != NULL, r->pattern);
	assert_row(doc_text(doc_get(op, "summary")).n > 0, r->pattern);
	assert_row(doc_get(op, "responses") != NULL, r->pattern);
	DOC_EACH (p, doc_get(op, "parameters")) {
		assert_row(doc_text(doc_get(p, "name")).n > 0, r->pattern);
	}
	operations++;
}

static size_t dangling(const struct doc *root, const struct doc *d)
{
	size_t n = 0;

	DOC_EACH (c, d) {
		struct str ref = str_eq(c->key, "$ref") ? doc_text(c) : STR_LIT("");

		if (ref.n > 0 &&
		    doc_path(root, "components", "schemas", strrchr(ref.p, '/') + 1, NULL) == NULL)
			n++;
		n += dangling(root, c);
	}
	return n;
}

static void test_openapi(void **state)
{
	static const struct face *const faces[] = {&face_training, &face_admin, &face_graphql,
	                                           &face_meta, &face_identity};
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	f.token = NULL; /* open to all */
	d = fake_ok(&f, HTTP_GET, "/openapi.json", "");
	assert_text(d, "openapi", "3.1.0");
	counting = &f;
	paths = doc_get(d, "paths");
	httpd_each_route(faces, COUNT(faces), is_described, NULL);
	assert_true(operations > 50);
	assert_int_equal(dangling(d, d), 0);
	d = doc_path(paths, "/v1/training_projects/{project_id}/jobs/{job_id}/logs", "post",
	             "requestBody", "content", "application/json", "schema", "properties", NULL);
	assert_int_equal(doc_int(doc_path(d, "limit", "maximum", NULL), 0), 20000);
	assert_int_equal(doc_get(doc_get(d, "direction"), "enum")->count, 3); /* asc, desc, null */
	fake_stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_admin),
	cmocka_unit_test(test_meta),
	cmocka_unit_test(test_openapi),
};

UNIT_MAIN(tests)
