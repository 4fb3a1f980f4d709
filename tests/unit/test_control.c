/* test_control.c - settings, the data folder, callers and their rights, secrets, limits, caches. */
#include "server_fixture.h"

#include "server/api/auth.h"
#include "server/api/secrets.h"

static void settings_that_are_refused(void **state UNUSED)
{
	static const struct {
		const char *name, *flag[4], *words;
	} rows[] = {
		{"an address of other machines", {"--listen", "0.0.0.0:8000"}, "--insecure"},
		{"no port", {"--listen", "localhost"}, "ADDRESS:PORT"},
		{"a port that is none", {"--listen", "127.0.0.1:70000"}, "port"},
		{"no address", {"--listen", ":8000"}, "missing"},
		{"half of TLS", {"--tls-cert", "/x"}, "--tls-key"},
		{"a word that is near", {"--lisen", "127.0.0.1:1"}, "\"listen\""},
		{"a choice", {"--images", "docker"}, "podman"},
		{"a config that is not there", {"--config", "/nowhere/x.yaml"}, "/nowhere/x.yaml"},
		{"no workers", {"--workers", "0"}, "--workers"},
		{"no web", {"--hf-endpoint", "ftp://hub"}, "--hf-endpoint"},
		{"a bare word", {"--s3-endpoint", "minio"}, "--s3-endpoint"},
		{"no address to come back to", {"--base-url", "here"}, "--base-url"},
		{"an issuer that is none", {"--oidc-issuer", "us"}, "--oidc-issuer"},
		{"an issuer with a query", {"--oidc-issuer", "https://a.example/?b=c"}, "a query"},
		{"a relative root", {"--allow-file-root", "models"}, "absolute"},
		{"a root that is not there",
	         {"--allow-file-root", "/nowhere/x"},
	         "root /nowhere/x"},
		{"a root that is a file", {"--allow-file-root", "/etc/passwd"}, "not a folder"},
		{"a relative share", {"--share", "venv"}, "absolute"},
		{"a share that is not there", {"--share", "/nowhere/x"}, "/nowhere/x"},
		{"a share of a file", {"--share", "/etc/passwd"}, "not a folder"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		char *argv[4] = {0};
		struct settings s;
		struct err err = {0};
		int n = 0;

		while (n < 4 && rows[i].flag[n] != NULL) {
			argv[n] = arena_cstr(a, rows[i].flag[n]);
			n++;
		}
		assert_row(settings_load(a, n, argv, &s, &err) < 0, rows[i].name);
		if (strstr(err.msg, rows[i].words) == NULL)
			fail_msg("row \"%s\": %s", rows[i].name, err.msg);
	}
}

static void settings_of_addresses(void **state UNUSED)
{
	static const struct {
		const char *listen, *host;
		uint16_t port;
		bool loopback;
	} rows[] = {
		{"127.0.0.1:8000", "127.0.0.1", 8000, true},
		{"[::1]:0", "::1", 0, true},
		{"localhost:1", "localhost", 1, true},
		{"10.0.0.1:80", "10.0.0.1", 80, false},
		{"[::]:80", "::", 80, false},
		{"127.9.9.9:80", "127.9.9.9", 80, true},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		const char *host = NULL;
		bool loopback = false;
		uint16_t port = 0;

		assert_ok(settings_address(a, rows[i].listen, &host, &port, &loopback, &err), &err);
		assert_string_equal(host, rows[i].host);
		assert_row(port == rows[i].port && loopback == rows[i].loopback, rows[i].listen);
	}
}

static void the_data_folder(void **state)
{
	struct fixture *f = *state;
	struct app *second = app_new(f->a);
	struct stat st;
	struct err err = {0};

	assert_int_equal(stat(f->dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(app_path(f->app, f->a, "master.key"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(app_path(f->app, f->a, "admin-token"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* the lock is of one server */
	assert_ok(start_announce(f->app, "127.0.0.1", 4711, &f->err), &f->err);
	second->arena = f->a;
	second->set = f->app->set;
	assert_err(start_open(second, &err), &err, ERR_CONFLICT, "127.0.0.1:4711");
	start_close(second);
	/* the login of this user points here, and follows the address */
	assert_int_equal(access(arena_printf(f->a, "%s/stoker/login.json", f->dir), R_OK), 0);
	/* a database without its key is not opened with a new one */
	fixture_down(f);
	assert_int_equal(unlink(arena_printf(f->a, "%s/master.key", f->dir)), 0);
	second = app_new(f->a);
	second->arena = f->a;
	second->set.data = f->dir;
	assert_true(start_open(second, &err) < 0);
	assert_non_null(strstr(err.msg, "master key"));
	start_close(second);
}

static void callers(void **state)
{
	struct fixture *f = *state;
	struct model_token t = {0}, *list = NULL;
	struct model_project p = {0};
	struct model_secret s = {0};
	struct principal *w = NULL;
	char *plain = NULL;
	size_t n = 0;

	assert_err(token_ops.authenticate(f->app, f->a, STR_LIT("stoker_no"), false, &w, &f->err),
	           &f->err, ERR_TOKEN_INVALID, "");
	assert_err(token_ops.authenticate(f->app, f->a, STR_LIT(""), false, &w, &f->err), &f->err,
	           ERR_AUTH, "");
	assert_err(
		token_ops.authenticate(f->app, f->a, STR_LIT("stokerrun_no"), false, &w, &f->err),
		&f->err, ERR_AUTH, "");
	assert_ok(token_ops.create(ADMIN(f), "old", NULL, ROLE_MEMBER, 1, &t, &plain, &f->err),
	          &f->err);
	assert_err(token_ops.authenticate(f->app, f->a, str_of(plain), false, &w, &f->err), &f->err,
	           ERR_AUTH, "expired");
	assert_ok(token_ops.create(ADMIN(f), "look", NULL, ROLE_VIEWER, 0, &t, &plain, &f->err),
	          &f->err);
	assert_ok(token_ops.authenticate(f->app, f->a, str_of(plain), false, &w, &f->err), &f->err);
	assert_ok(project_ops.get(AS(f, w), f->project.id, &p, &f->err), &f->err);
	assert_err(project_ops.upsert(AS(f, w), NULL, "x", &p, &f->err), &f->err, ERR_DENIED,
	           "member");
	assert_err(secret_ops.set(AS(f, w), NULL, "x", STR_LIT("v"), &s, &f->err), &f->err,
	           ERR_DENIED, "member");
	assert_err(token_ops.list(AS(f, w), &list, &n, &f->err), &f->err, ERR_DENIED, "admin");
	assert_ok(token_ops.remove(ADMIN(f), t.id, &f->err), &f->err);
	assert_err(token_ops.authenticate(f->app, f->a, str_of(plain), false, &w, &f->err), &f->err,
	           ERR_AUTH, "");
	assert_err(token_ops.remove(ADMIN(f), f->admin->token_id, &f->err), &f->err, ERR_CONFLICT,
	           "");
}

static void teams_do_not_see_each_other(void **state)
{
	struct fixture *f = *state;
	struct model_team team = {0}, *teams = NULL;
	struct model_token t = {0};
	struct model_project p = {0}, *ps = NULL;
	struct model_job j = {0}, *js = NULL;
	struct job_query q = {0};
	struct principal *w = NULL;
	char *plain = NULL;
	size_t n = 0;
	uint64_t total = 0;

	assert_err(team_ops.create(ADMIN(f), "", &team, &f->err), &f->err, ERR_INVALID,
	           "not a valid team name");
	assert_ok(team_ops.create(ADMIN(f), "vision", &team, &f->err), &f->err);
	assert_ok(token_ops.create(ADMIN(f), "v", team.id, ROLE_ADMIN, 0, &t, &plain, &f->err),
	          &f->err);
	assert_ok(token_ops.authenticate(f->app, f->a, str_of(plain), false, &w, &f->err), &f->err);
	assert_ok(fixture_push(f, "", "", &j), &f->err);
	assert_err(job_ops.get(AS(f, w), NULL, j.id, &j, &f->err), &f->err, ERR_NOT_FOUND, "job");
	assert_err(job_ops.stop(AS(f, w), j.id, true, &j, &f->err), &f->err, ERR_NOT_FOUND, "job");
	assert_err(project_ops.get(AS(f, w), f->project.id, &p, &f->err), &f->err, ERR_NOT_FOUND,
	           "project");
	assert_ok(job_ops.search(AS(f, w), &q, &js, &n, &total, &f->err), &f->err);
	assert_int_equal(n, 0);
	assert_ok(project_ops.list(AS(f, w), &ps, &n, &f->err), &f->err);
	assert_int_equal(n, 0);
	assert_ok(team_ops.list(AS(f, w), &teams, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_err(team_ops.create(AS(f, w), "more", &team, &f->err), &f->err, ERR_DENIED,
	           "one team");
	/* the same name, another project */
	assert_ok(project_ops.upsert(AS(f, w), NULL, "demo", &p, &f->err), &f->err);
	assert_string_not_equal(p.id, f->project.id);
	assert_err(team_ops.remove(ADMIN(f), p.team_id, &f->err), &f->err, ERR_CONFLICT,
	           "projects");
	assert_ok(project_ops.remove(AS(f, w), p.id, &f->err), &f->err);
	assert_ok(team_ops.remove(ADMIN(f), p.team_id, &f->err), &f->err);
}

static void secrets_reach_the_runner_only(void **state)
{
	struct fixture *f = *state;
	AUTO_BUF struct buf value = BUF_INIT(1000);
	struct model_secret s = {0};
	struct model_job j = {0};
	struct wire_launch l;

	assert_err(fixture_push(f,
	                        ",\"environment_variables\":{\"A\":{\"name\":\"hf_token\"},"
	                        "\"B\":{\"name\":\"other\"}}",
	                        "", &j),
	           &f->err, ERR_INVALID, "hf_token, other");
	assert_ok(secret_ops.set(ADMIN(f), NULL, "hf-token", STR_LIT("s3cr3t"), &s, &f->err),
	          &f->err);
	assert_err(secret_ops.set(ADMIN(f), NULL, "x", STR_LIT(""), &s, &f->err), &f->err,
	           ERR_INVALID, "empty");
	assert_ok(fixture_push(f, ",\"environment_variables\":{\"A\":{\"name\":\"hf_token\"}}", "",
	                       &j),
	          &f->err);
	assert_null(strstr(fixture_job(f, j.id).spec_json, "s3cr3t"));
	fixture_await(f, j.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, j.id, 0), "n");
	assert_int_equal(l.n_env, 1);
	assert_string_equal(l.env[0].value, "s3cr3t");
	assert_true(l.env[0].secret);
	/* sealed with the key of this folder, and there after a restart */
	fixture_restart(f);
	assert_ok(secret_open(f->app, f->project.team_id, "hf.token", &value, &f->err), &f->err);
	assert_true(str_eq(buf_view(&value), "s3cr3t"));
	assert_ok(secret_ops.remove(ADMIN(f), NULL, "hf_token", &f->err), &f->err);
	assert_err(secret_open(f->app, f->project.team_id, "hf_token", &value, &f->err), &f->err,
	           ERR_NOT_FOUND, "secrets set hf_token");
}

static int push_doc(struct fixture *f, const char *json, const char *key, struct model_job *out)
{
	const struct doc *d = NULL;

	assert_ok(js_parse(f->a, str_of(json), &d, &f->err), &f->err);
	return fixture_push_doc(f, d, key, out);
}

#define SMALL                                                                                      \
	"{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\"},"                                       \
	"\"runtime\":{\"start_commands\":[\"true\"]}}"

static void pushes(void **state)
{
	static const struct {
		const char *name, *json;
		enum err_code code;
		const char *words;
	} rows[] = {
		{"more CPUs than there are",
	         "{\"compute\":{\"cpu_count\":99},\"runtime\":{\"start_commands\":[\"true\"]}}",
	         ERR_QUOTA, "never"},
		{"another GPU",
	         "{\"compute\":{\"accelerator\":\"L4:1\"},\"runtime\":{\"start_commands\":["
	         "\"true\"]}}",
	         ERR_QUOTA, "L4"},
		{"two mistakes at once",
	         "{\"compute\":{\"cpu_cuont\":1,\"memory\":\"much\"},"
	         "\"runtime\":{\"start_commands\":[\"true\"]}}",
	         ERR_INVALID, "memory"},
		{"code that was not uploaded",
	         "{\"runtime\":{\"start_commands\":[\"true\"],\"artifacts\":[{\"s3_bucket\":"
	         "\"stoker\","
	         "\"s3_key\":\"uploads/none.tgz\"}]}}",
	         ERR_UPLOAD_NOT_FOUND, ""},
	};
	struct fixture *f = *state;
	struct model_job a = {0}, b = {0};
	const struct doc *d = NULL;
	struct job_query q = {0};
	struct model_job *list = NULL;
	size_t n = 0;
	uint64_t total = 0;

	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_err(push_doc(f, rows[i].json, NULL, &a), &f->err, rows[i].code,
		           rows[i].words);
	}
	assert_ok(js_parse(f->a, STR_LIT(SMALL), &d, &f->err), &f->err);
	assert_ok(push_ops.check(ADMIN(f), NULL, f->project.name, d, false, &a, &f->err), &f->err);
	assert_string_equal(a.project_id, f->project.id);
	assert_ok(push_ops.check(ADMIN(f), NULL, "nobody-s", d, false, &a, &f->err), &f->err);
	assert_null(a.project_id);
	assert_null(a.id);
	assert_ok(push_doc(f, SMALL, "key-1", &a), &f->err);
	assert_ok(push_doc(f, SMALL, "key-1", &b), &f->err);
	assert_string_equal(a.id, b.id);
	fixture_restart(f);
	assert_ok(push_doc(f, SMALL, "key-1", &b), &f->err);
	assert_string_equal(a.id, b.id);
	assert_ok(job_ops.search(ADMIN(f), &q, &list, &n, &total, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_err(project_ops.remove(ADMIN(f), f->project.id, &f->err), &f->err, ERR_CONFLICT,
	           "active");
}

static void teams_have_limits(void **state)
{
	static const char gpu[] = "{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\","
				  "\"accelerator\":\"H100:1\"},"
				  "\"runtime\":{\"start_commands\":[\"true\"]}}";
	struct fixture *f = *state;
	struct capacity_row row = {0}, *rows = NULL;
	struct model_job a = {0}, b = {0};
	struct server_status status = {0};
	size_t n = 0;

	assert_err(capacity_ops.set(ADMIN(f), NULL, "X9", 1, &row, &f->err), &f->err, ERR_INVALID,
	           "GPU type");
	assert_ok(capacity_ops.set(ADMIN(f), NULL, "H100", 1, &row, &f->err), &f->err);
	assert_ok(push_doc(f, gpu, NULL, &a), &f->err);
	assert_int_equal(a.core.state, JOB_CREATED);
	assert_ok(push_doc(f, gpu, NULL, &b), &f->err);
	assert_int_equal(b.core.state, JOB_PENDING);
	assert_non_null(strstr(b.reason, "limit of team Default: 1 of 1 H100"));
	assert_ok(capacity_ops.list(ADMIN(f), &rows, &n, &f->err), &f->err);
	assert_int_equal(n, 2);
	assert_true(rows[0].limit == 2 && rows[0].used == 1 && rows[1].limit == 1);
	assert_ok(capacity_ops.set(ADMIN(f), NULL, "H100", -1, &row, &f->err), &f->err);
	queue_pass(f->app);
	fixture_await(f, b.id, JOB_DEPLOYING);
	assert_ok(server_ops.status(ADMIN(f), &status, &f->err), &f->err);
	assert_int_equal(status.jobs_active, 2);
	assert_int_equal(status.nodes[0].gpus_used, 3);
	assert_int_equal(status.nodes[0].cpu_milli_used, 2000);
}

static size_t cache_events(struct fixture *f, const char *job_id, const char *words)
{
	struct model_event *ev = NULL;
	size_t n = 0, found = 0;

	assert_ok(job_ops.events(ADMIN(f), job_id, 0, &ev, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++)
		found += strcmp(ev[i].kind, "cache") == 0 && strstr(ev[i].message, words) != NULL;
	return found;
}

/* No sample saw it: the walk after the end does, and says no more than the samples left unsaid. */
static void caches_that_fill_at_the_end(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w;
	const char *file;

	assert_ok(cache_ops.quota(ADMIN(f), f->project.id, 1000, &f->err), &f->err);
	w = fixture_running(f, ",\"cache_config\":{\"enabled\":true}", "", &j);
	file = arena_printf(f->a, "%s/data", cache_dir(f->app, f->a, "project", f->project.id));
	assert_ok(fs_write_atomic(AT_FDCWD, file, STR_LIT(""), 0644, &f->err), &f->err);
	assert_int_equal(truncate(file, 1000), 0);
	cache_watch(f->app, j.id, 850, 1000);
	assert_int_equal(cache_events(f, j.id, "80 % full"), 1);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	j = fixture_job(f, j.id);
	cache_job_over(f->app, &j);
	for (int waited = 0; waited < FIXTURE_WAIT_MS && cache_events(f, j.id, "quota") == 0;
	     waited += 20)
		clock_sleep_ms(20);
	assert_int_equal(
		cache_events(f, j.id, "full: it has reached its quota (1.00 kB of 1.00 kB)"), 1);
	assert_int_equal(cache_events(f, j.id, ""), 2);
}

static void caches(void **state)
{
	static const char cached[] = "{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\"},"
				     "\"runtime\":{\"start_commands\":[\"true\"],"
				     "\"cache_config\":{\"enabled\":true}}}";
	struct fixture *f = *state;
	struct model_cache_snapshot s = {0};
	struct model_job j = {0};
	struct model_project p = {0};
	struct model_event *ev = NULL;
	struct wire_launch l;
	struct principal *w;
	uint64_t freed = 0;
	size_t n = 0, warnings = 0;
	AUTO_BUF struct buf list = BUF_INIT(100000);

	assert_err(cache_ops.snapshot(ADMIN(f), "project", f->project.id, &s, &f->err), &f->err,
	           ERR_NOT_FOUND, "never");
	assert_ok(push_doc(f, cached, NULL, &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	assert_ok(meta_project(f->app->meta, f->a, f->project.id, &p, &f->err), &f->err);
	assert_string_equal(p.pinned_cluster, "local");
	w = fixture_runner(f, j.id, 0);
	l = fixture_claim(f, w, "n");
	assert_non_null(l.cache_project_dir);
	assert_ok(fs_mkdirs(AT_FDCWD, arena_printf(f->a, "%s/d/e", l.cache_project_dir), 0755,
	                    &f->err),
	          &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/d/e/f", l.cache_project_dir),
	                          STR_LIT("12345"), 0644, &f->err),
	          &f->err);
	cache_watch(f->app, j.id, 50, 1000);
	cache_watch(f->app, j.id, 850, 1000);
	cache_watch(f->app, j.id, 860, 1000);
	cache_watch(f->app, j.id, 1000, 1000);
	assert_ok(job_ops.events(ADMIN(f), j.id, 0, &ev, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++)
		warnings += strcmp(ev[i].kind, "cache") == 0;
	assert_int_equal(warnings, 2); /* at 80 %, and at 100 % */
	assert_ok(cache_ops.summarize(ADMIN(f), "project", f->project.id, &s, &f->err), &f->err);
	assert_true(s.bytes == 5 && s.files == 1);
	assert_ok(fs_read(AT_FDCWD, app_path(f->app, f->a, s.summary_file), &list, &f->err),
	          &f->err);
	assert_non_null(strstr(buf_cstr(&list), "\"path\":\"d/e/f\""));
	assert_err(
		cache_ops.remove(ADMIN(f), "project", f->project.id, STR_LIT("d"), &freed, &f->err),
		&f->err, ERR_CONFLICT, "");
	fixture_exit(f, w, JOB_END_DEPLOY_FAILED, 0);
	assert_err(cache_ops.remove(ADMIN(f), "project", f->project.id, STR_LIT("../x"), &freed,
	                            &f->err),
	           &f->err, ERR_INVALID, "not a path");
	assert_err(cache_ops.remove(ADMIN(f), "project", f->project.id, STR_LIT("d/none"), &freed,
	                            &f->err),
	           &f->err, ERR_NOT_FOUND, "none");
	/* full: the next job is told before it starts */
	assert_ok(cache_ops.quota(ADMIN(f), f->project.id, 5, &f->err), &f->err);
	assert_ok(push_doc(f, cached, NULL, &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOY_FAILED);
	assert_non_null(strstr(fixture_job(f, j.id).error_message, "quota"));
	assert_ok(cache_ops.remove(ADMIN(f), "project", f->project.id, STR_LIT("d/"), &freed,
	                           &f->err),
	          &f->err);
	assert_int_equal(freed, 5);
	assert_ok(push_doc(f, cached, NULL, &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
}

static void uploads(void **state)
{
	struct fixture *f = *state;
	struct model_upload u = {0}, v = {0};
	struct model_job j = {0};
	const char *json;

	assert_ok(upload_ops.create(ADMIN(f), NULL, NULL, &u, &f->err), &f->err);
	assert_ok(upload_ops.find(f->app, f->a, str_of(u.access_key), &v, &f->err), &f->err);
	assert_string_equal(u.secret_key, v.secret_key);
	assert_string_equal(u.session_token, v.session_token);
	assert_err(upload_ops.find(f->app, f->a, STR_LIT("STKUnone"), &v, &f->err), &f->err,
	           ERR_NOT_FOUND, "upload");
	assert_ok(objstore_put(f->app->objects, u.key, STR_LIT("tar"), &f->err), &f->err);
	json = arena_printf(f->a,
	                    "{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\"},"
	                    "\"runtime\":{\"start_commands\":[\"true\"],\"artifacts\":[{"
	                    "\"s3_bucket\":\"stoker\",\"s3_key\":\"%s\"}]}}",
	                    u.key);
	assert_ok(push_doc(f, json, NULL, &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	assert_int_equal(fixture_claim(f, fixture_runner(f, j.id, 0), "n").code[0].bytes, 3);
	/* what a job was pushed with can no longer be written to */
	assert_ok(upload_ops.find(f->app, f->a, str_of(u.access_key), &v, &f->err), &f->err);
	assert_true(v.expires_ms <= clock_wall_ms());
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(settings_that_are_refused),
	cmocka_unit_test(settings_of_addresses),
	FIXTURE_TEST(the_data_folder),
	FIXTURE_TEST(callers),
	FIXTURE_TEST(teams_do_not_see_each_other),
	FIXTURE_TEST(secrets_reach_the_runner_only),
	FIXTURE_TEST(pushes),
	FIXTURE_TEST(teams_have_limits),
	FIXTURE_TEST(caches_that_fill_at_the_end),
	FIXTURE_TEST(caches),
	FIXTURE_TEST(uploads),
};
UNIT_MAIN(tests)
