/* test_spec.c - specifications: what a file, a client and what is stored mean, the way back, single
 * values and how they are set. */
#include "spec_fixture.h"

#include "base/fs.h"
#include "core/notify.h"

static void read_corpus(const char *name, struct buf *out)
{
	const char *root = getenv("SOURCE_DIR");
	AUTO_FREE char *path =
		xasprintf("%s/tests/fuzz/corpus/%s", root != NULL ? root : ".", name);
	struct err err = {0};

	assert_ok(fs_read(AT_FDCWD, path, out, &err), &err);
}

static void no_problem(int rc, const struct spec_problems *p)
{
	if (rc < 0)
		fail_msg("%zu problems, first %u:%u: %s: %s", p->n, p->item[0].line, p->item[0].col,
		         p->item[0].path, p->item[0].text);
	assert_int_equal(p->n, 0);
}

static void spec_reads_a_file(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	AUTO_BUF struct buf text = BUF_INIT(100000);
	struct job_spec s;

	read_corpus("spec_yaml/full.yaml", &text);
	no_problem(spec_read(a, yaml(a, buf_cstr(&text)), SPEC_FILE, &s, p), p);
	assert_string_equal(s.project, "qwen3-finetune");
	assert_string_equal(s.team, "research");
	assert_string_equal(s.name, "lr-2e-5");
	assert_string_equal(s.gpu_type, "H200");
	assert_int_equal(s.gpu_count, 1);
	assert_true(s.cpu_count == 8.0);
	assert_true(s.memory_bytes == UINT64_C(64) << 30);
	assert_int_equal(s.n_commands, 1);
	assert_int_equal(s.n_env, 3);
	assert_string_equal(s.env[0].secret, "hf_access_token");
	assert_null(s.env[0].value);
	assert_string_equal(s.env[1].value, "2e-5");
	assert_string_equal(s.env[2].value, "");
	assert_true(s.cache.enabled && s.cache.require_affinity && !s.cache.legacy_hf_mount);
	assert_string_equal(s.cache.base_path, "/root/.cache");
	assert_true(s.ckpt.enabled);
	assert_string_equal(s.ckpt.path, "/mnt/ckpts");
	assert_int_equal(s.ckpt.keep_last, 3);
	assert_int_equal(s.ckpt.settle_s, 5);
	assert_true(s.ckpt.volume_bytes == UINT64_C(500) << 30);
	assert_int_equal(s.load.n_refs, 2);
	assert_true(s.load.refs[0].latest && !s.load.refs[1].latest);
	assert_string_equal(s.load.refs[0].project, "qwen3-finetune");
	assert_string_equal(s.load.refs[1].name, "checkpoint-24");
	assert_string_equal(s.load.folder, "/tmp/loaded_checkpoints");
	assert_int_equal(s.n_weights, 5);
	assert_int_equal(s.weights[0].n_allow, 3);
	assert_string_equal(s.weights[1].secret, "aws");
	assert_string_equal(s.weights[2].mount_location, "/app/set");
	assert_true(s.workdir);
	assert_int_equal(s.max_duration_s, 86400);
	assert_int_equal(s.grace_s, 60);
	assert_int_equal(s.idle_gpu_s, 1800);
	assert_true(s.retry.on_lost);
	assert_int_equal(s.retry.n_exit_codes, 1);
	assert_int_equal(s.retry.exit_codes[0], 75);
	assert_int_equal(s.retry.max_attempts, 3);
	assert_int_equal(s.n_notify, 2);
	assert_string_equal(s.notify[0].webhook, "ops");
	assert_int_equal(s.notify[0].on, 1U << NOTIFY_FAILED | 1U << NOTIFY_COMPLETED);
	assert_int_equal(s.notify[1].on, NOTIFY_DEFAULT);
}

/* The short forms say what the long one says. */
static void spec_reads_python(void **state UNUSED)
{
	static const struct {
		const char *yaml, *json;
	} rows[] = {
		{"python: r.txt", "{\"requirements\":\"r.txt\",\"version\":null,"
	                          "\"system_site_packages\":false}"},
		{"python: { requirements: ./a/r.txt, version: \"3.11\" }",
	         "{\"requirements\":\"a/"
	         "r.txt\",\"version\":\"3.11\",\"system_site_packages\":false}"},
		{"python: [numpy, \"torch>=2 # the GPU's\"]",
	         "{\"requirements\":[\"numpy\",\"torch>=2 # the GPU's\"],\"version\":null,"
	         "\"system_site_packages\":false}"},
		{"python: { version: \"3.12.4\", system_site_packages: true }",
	         "{\"requirements\":[],\"version\":\"3.12.4\",\"system_site_packages\":true}"},
		{"python: {}",
	         "{\"requirements\":[],\"version\":null,\"system_site_packages\":false}"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		AUTO_FREE char *text = xasprintf(RUN("    %s\n"), rows[i].yaml);
		AUTO_BUF struct buf json = BUF_INIT(100000);
		struct job_spec s;
		struct js js;

		no_problem(spec_read(a, yaml(a, text), SPEC_FILE, &s, p), p);
		assert_row(s.python.wanted, rows[i].yaml);
		js_init(&js, &json);
		spec_write(&s, &js);
		assert_row(strstr(buf_cstr(&json), rows[i].json) != NULL, buf_cstr(&json));
	}
}

static void spec_reads_what_truss_sends(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	AUTO_BUF struct buf text = BUF_INIT(100000);
	struct job_spec s;

	read_corpus("spec_json/truss.json", &text);
	no_problem(read_json(a, buf_cstr(&text), &s, p), p);
	assert_int_equal(s.registry_auth, SPEC_AUTH_REGISTRY_SECRET);
	assert_string_equal(s.registry_secret, "s");
	assert_int_equal(s.gpu_count, 8);
	assert_int_equal(s.node_count, 2);
	assert_int_equal(s.priority, 3);
	assert_int_equal(s.n_artifacts, 1);
	assert_string_equal(s.artifacts[0].key, "training/k.tgz");
	assert_string_equal(s.weights[1].secret, "x");
	assert_string_equal(s.ckpt.path, "/mnt/ckpts");
	assert_true(s.load.refs[0].latest);
	assert_null(s.load.refs[0].job);
	assert_true(s.workdir);
}

/* An old client leaves most keys out. */
static void spec_defaults_of_the_api(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	struct job_spec s;

	no_problem(read_json(a,
	                     "{\"image\":{\"base_image\":\"x\"},\"runtime\":{\"enable_cache\":true,"
	                     "\"load_checkpoint_config\":{\"enabled\":true}}}",
	                     &s, p),
	           p);
	assert_false(s.workdir);
	assert_int_equal(s.node_count, 1);
	assert_true(s.cpu_count == 1.0);
	assert_true(s.memory_bytes == UINT64_C(2) << 30);
	assert_null(s.gpu_type);
	assert_int_equal(s.gpu_count, 0);
	assert_true(s.cache.enabled && s.cache.legacy_hf_mount && s.cache.require_affinity);
	assert_int_equal(s.load.n_refs, 1);
	assert_true(s.load.refs[0].latest);
	assert_int_equal(s.retry.max_attempts, 1);
	assert_int_equal(s.grace_s, 30);
}

#define POOL "projects/1/locations/global/workloadIdentityPools/p/providers/q"
/* How a source is read, and how that is stored: and again as what was read. */
static void spec_reads_identities(void **state UNUSED)
{
	static const struct {
		const char *source, *auth, *json;
		enum spec_weights_auth want;
	} rows[] = {
		{"s3://abc/b",
	         "{auth_method: aws_oidc, aws_oidc_role_arn: 'arn:minio:iam:us-east-1::role/r', "
	         "aws_oidc_region: a}",
	         "\"auth\":{\"auth_method\":\"AWS_OIDC\",\"aws_oidc_role_arn\":\"arn:minio:iam:us-"
	         "east-1::"
	         "role/r\",\"aws_oidc_region\":\"a\"}",
	         SPEC_WEIGHTS_AWS_OIDC},
		{"gs://abc/b",
	         "{auth_method: GCP_OIDC, gcp_oidc_service_account: 'a@b.c', "
	         "gcp_oidc_workload_id_provider: 'https://iam.googleapis.com/" POOL "'}",
	         "\"auth\":{\"auth_method\":\"GCP_OIDC\",\"gcp_oidc_service_account\":\"a@b.c\","
	         "\"gcp_oidc_workload_id_provider\":\"" POOL "\"}",
	         SPEC_WEIGHTS_GCP_OIDC},
		{"s3://abc/b",
	         "{auth_method: AWS_ASSUME_ROLE, aws_assume_role_arn: 'arn:aws:iam::1:role/r', "
	         "auth_secret_name: s}",
	         "\"auth_secret_name\":\"s\",\"auth\":{\"auth_method\":\"AWS_ASSUME_ROLE\",\"aws_"
	         "assume_"
	         "role_arn\":\"arn:aws:iam::1:role/r\"}",
	         SPEC_WEIGHTS_ASSUME_ROLE},
		{"s3://abc/b", "{auth_secret_name: s}", "\"auth_secret_name\":\"s\",\"allow",
	         SPEC_WEIGHTS_SECRET},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		AUTO_FREE char *text = xasprintf(
			JOB("  weights: [{source: '%s', mount_location: /m, auth: %s}]\n"),
			rows[i].source, rows[i].auth);
		AUTO_BUF struct buf json = BUF_INIT(100000);
		struct job_spec s, back;
		struct js js;

		no_problem(spec_read(a, yaml(a, text), SPEC_FILE, &s, p), p);
		assert_int_equal(s.weights[0].auth, rows[i].want);
		js_init(&js, &json);
		spec_write(&s, &js);
		assert_row(strstr(buf_cstr(&json), rows[i].json) != NULL, buf_cstr(&json));
		no_problem(read_json(a, buf_cstr(&json), &back, p), p);
		assert_int_equal(back.weights[0].auth, rows[i].want);
		assert_int_equal(spec_weights_by_identity(&back.weights[0]),
		                 s.weights[0].secret == NULL);
	}
}

/* spec_read(spec_write(x)) == x, shown by writing it once more. */
static void spec_comes_back(void **state UNUSED)
{
	static const char *const files[] = {"spec_yaml/full.yaml", "spec_json/truss.json"};

	for (size_t i = 0; i < COUNT(files); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		AUTO_BUF struct buf text = BUF_INIT(100000);
		AUTO_BUF struct buf once = BUF_INIT(100000);
		AUTO_BUF struct buf again = BUF_INIT(100000);
		struct job_spec s, back;
		struct js js;

		read_corpus(files[i], &text);
		if (str_ends(str_of(files[i]), ".yaml"))
			no_problem(spec_read(a, yaml(a, buf_cstr(&text)), SPEC_FILE, &s, p), p);
		else
			no_problem(read_json(a, buf_cstr(&text), &s, p), p);
		js_init(&js, &once);
		spec_write(&s, &js);
		no_problem(read_json(a, buf_cstr(&once), &back, p), p);
		js_init(&js, &again);
		spec_write(&back, &js);
		assert_string_equal(buf_cstr(&once), buf_cstr(&again));
		assert_int_equal(back.n_weights, s.n_weights);
		for (size_t k = 0; k < s.n_weights; k++) {
			assert_int_equal(back.weights[k].hub, s.weights[k].hub);
			assert_string_equal(back.weights[k].mount_location,
			                    s.weights[k].mount_location);
		}
		assert_int_equal(back.n_hub_push, s.n_hub_push);
		assert_int_equal(back.n_notify, s.n_notify);
		assert_int_equal(back.retry.max_attempts, s.retry.max_attempts);
		assert_true(back.memory_bytes == s.memory_bytes);
		assert_true(back.ckpt.volume_bytes == s.ckpt.volume_bytes);
		assert_int_equal(back.grace_s, s.grace_s);
		assert_int_equal(back.idle_gpu_s, s.idle_gpu_s);
	}
}

static const struct {
	const char *path, *value, *err;
	const char *where; /* NULL: see value */
} sets[] = {
	{"job.compute.node_count", "2", NULL, NULL},
	{"job.runtime.start_commands[0]", "python x.py", NULL, NULL},
	{"job.runtime.start_commands[1]", "y", NULL, NULL},
	{"job.weights", "[{source: \"hf://a/b\", mount_location: /m}]", NULL, NULL},
	{"", "2", "is empty", NULL},
	{"job..x", "2", "an empty part", NULL},
	{"job.", "2", "ends with a dot", NULL},
	{"job.runtime.start_commands[7]", "y", "past the end", NULL},
	{"job.runtime.start_commands.x", "y", "leads through a list", NULL},
	{"job.runtime.start_commands[x]", "y", "like [0]", NULL},
	{"job.name", "[", "the value of job.name", NULL},
};

static void spec_set_changes_one_value(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(sets); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		const struct doc *old = yaml(a, JOB("")), *d = old;
		struct err err = {0};

		if (sets[i].err != NULL) {
			assert_err(
				spec_set(a, &d, str_of(sets[i].path), str_of(sets[i].value), &err),
				&err, ERR_INVALID, sets[i].err);
			assert_ptr_equal(d, old);
			continue;
		}
		assert_ok(spec_set(a, &d, str_of(sets[i].path), str_of(sets[i].value), &err), &err);
		assert_ptr_not_equal(d, old);
	}
}

static void spec_set_is_typed_and_read(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	const struct doc *d = yaml(a, JOB(""));
	struct err err = {0};
	struct job_spec s;

	assert_ok(spec_set(a, &d, STR_LIT("job.compute.node_count"), STR_LIT("3"), &err), &err);
	assert_ok(
		spec_set(a, &d, STR_LIT("job.runtime.start_commands[1]"), STR_LIT("echo b"), &err),
		&err);
	assert_ok(spec_set(a, &d, STR_LIT("project"), STR_LIT("other"), &err), &err);
	no_problem(spec_read(a, d, SPEC_FILE, &s, p), p);
	assert_int_equal(s.node_count, 3);
	assert_string_equal(s.project, "other");
	assert_int_equal(s.n_commands, 2);
	assert_string_equal(s.commands[1], "echo b");
}

static const struct {
	const char *text, *type;
	uint32_t count;
	const char *err;
} accelerators[] = {
	{"", NULL, 0, "there is no GPU type"}, {"H300", NULL, 0, "did you mean"},
	{"H200:", NULL, 0, "from 1 to 64"},    {"H200:65", NULL, 0, "from 1 to 64"},
	{"H200:-1", NULL, 0, "from 1 to 64"},  {"H200", "H200", 1, NULL},
	{"h200:8", "H200", 8, NULL},           {"A100_40GB:2", "A100_40GB", 2, NULL},
};

static void spec_accelerators(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; spec_gpu_types[i + 1] != NULL; i++)
		assert_row(strcmp(spec_gpu_types[i], spec_gpu_types[i + 1]) < 0, spec_gpu_types[i]);
	for (size_t i = 0; i < COUNT(accelerators); i++) {
		const char *type = NULL;
		struct err err = {0};
		uint32_t count = 0;

		if (accelerators[i].err != NULL) {
			assert_err(spec_accelerator(a, str_of(accelerators[i].text), &type, &count,
			                            &err),
			           &err, ERR_INVALID, accelerators[i].err);
			continue;
		}
		assert_ok(spec_accelerator(a, str_of(accelerators[i].text), &type, &count, &err),
		          &err);
		assert_string_equal(type, accelerators[i].type);
		assert_int_equal(count, accelerators[i].count);
	}
}

static const struct {
	const char *source, *err; /* NULL: fine */
} sources[] = {
	{"", "does not start with"},
	{"hf:/a/b", "does not start with"},
	{"hf://", "hf://owner/repo"},
	{"hf://gpt2", "hf://owner/repo"},
	{"hf:///a", "hf://owner/repo"},
	{"hf://a/b@", "hf://owner/repo"},
	{"hf://a/b@x@y", "hf://owner/repo"},
	{"hf://a/b/c", "hf://owner/repo"},
	{"hf://a/..", "hf://owner/repo"},
	{"s3://", "s3://bucket/path"},
	{"s3:///x", "s3://bucket/path"},
	{"s3://bucket//x", "s3://bucket/path"},
	{"s3://bucket/x@1", "revision"},
	{"s3://bucket/a b", "blank"},
	{"s3://b/m", "3 to 63"},
	{"s3://a..b/m", "s3://bucket/path"},
	{"s3://-ab/m", "s3://bucket/path"},
	{"https://", "https://host/path"},
	{"https://host", "https://host/path"},
	{"https://u@host/x", "https://host/path"},
	{"file://x", "file:///"},
	{"file:///", "file:///"},
	{"file:///a/../b", "file:///"},
	{"http://h/x", "use https"},
	{"r2://acc.bucket/x", NULL},
	{"r2://acc/bucket/x", "r2://account_id.bucket/path"},
	{"r2://.bucket/x", "r2://account_id.bucket/path"},
	{"r2://acc.b/x", "r2://account_id.bucket/path"},
	{"r2://acc.bucket/x@1", "revision"},
	{"azure://account/data/c", NULL},
	{"azure://account/data", NULL},
	{"azure://account/$web/c", NULL},
	{"azure://account", "azure://account/container/path"},
	{"azure://account/", "azure://account/container/path"},
	{"azure://ab/data/c", "azure://account/container/path"},
	{"azure://acc-ount/data/c", "azure://account/container/path"},
	{"azure://account/-data/c", "azure://account/container/path"},
	{"azure://account/data//c", "azure://account/container/path"},
	{"gs://bucket/path", NULL},
	{"gs://models.example.com/path", NULL},
	{"gs://", "gs://bucket/path"},
	{"gs:///path", "gs://bucket/path"},
	{"gs://bucket//path", "gs://bucket/path"},
	{"gs://bucket/path@main", "revision"},
	{"cw://bucket/b", NULL},
	{"cw://a/b", "cw://bucket/path"},
	{"bt://p", NULL},
	{"bt://p@job12345/checkpoint-1", NULL},
	{"bt://p@latest/a/b", NULL},
	{"bt://", "bt://project[@job][/checkpoint]"},
	{"bt://p@", "bt://project[@job][/checkpoint]"},
	{"bt://@job", "bt://project[@job][/checkpoint]"},
	{"bt://p/", "bt://project[@job][/checkpoint]"},
	{"bt://p/../x", "bt://project[@job][/checkpoint]"},
	{"bt://loops:run/weights/a", "bt://project[@job][/checkpoint]"},
	{"bt://sha256:0123456789ab", NULL},
	{"bt://sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL},
	{"bt://sha256:0123456789a", "12 to 64 digits"},
	{"bt://sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0",
         "12 to 64 digits"},
	{"bt://sha256:0123456789AB", "12 to 64 digits"},
	{"bt://sha256:0123456789ab/x", "12 to 64 digits"},
	{"hf://Qwen/Qwen3-0.6B", NULL},
	{"hf://Qwen/Qwen3-0.6B@refs/pr/3", NULL},
	{"hf://datasets/a/b@main", NULL},
	{"hf://spaces/a/b", NULL},
	{"hf://spaces/datasets/a/b", "hf://owner/repo"},
	{"s3://abc", NULL},
	{"s3://a.B_1/p/q/", NULL},
	{"https://host:8443/a/b.tar?x=1", NULL},
	{"file:///srv/data", NULL},
	{"file:///srv/data/", NULL},
};

static void spec_sources(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(sources); i++) {
		struct err err = {0};

		if (sources[i].err == NULL)
			assert_ok(spec_source_check(str_of(sources[i].source), &err), &err);
		else if (spec_source_check(str_of(sources[i].source), &err) == 0 ||
		         strstr(err.msg, sources[i].err) == NULL)
			fail_msg("\"%s\": %s", sources[i].source, err.msg);
	}
}

static void spec_names(void **state UNUSED)
{
	char longest[SPEC_NAME_MAX + 2];

	memset(longest, 'x', sizeof(longest));
	assert_false(spec_name_ok(STR_LIT("")));
	assert_false(spec_name_ok(STR_LIT(" a")));
	assert_false(spec_name_ok(STR_LIT("a\n")));
	assert_false(spec_name_ok(STR_LIT("a\x1b[1m")));
	assert_false(spec_name_ok(STR_LIT("a\xc3")));
	assert_false(spec_name_ok(STR_LIT("\xc0\xaf")));
	assert_false(spec_name_ok(str_n(longest, SPEC_NAME_MAX + 1)));
	assert_true(spec_name_ok(str_n(longest, SPEC_NAME_MAX)));
	assert_true(spec_name_ok(STR_LIT("demo/qwen3-0.6b")));
	assert_true(spec_name_ok(STR_LIT("Versuch 3 \xc3\xbc")));
}

/* What is stored was judged when it was pushed: a limit that has moved since changes nothing. */
static void spec_stored_is_not_judged(void **state UNUSED)
{
	static const char old[] =
		"{\"name\":\" x\",\"gone\":{\"a\":1},\"compute\":{\"cpu_count\":99999,"
		"\"memory\":\"1\",\"accelerator\":{\"accelerator\":\"Z9\",\"count\":3}},"
		"\"runtime\":{\"start_commands\":[\"\"],\"compile_cache\":{\"a\":1},"
		"\"environment_variables\":{\"1\":\"y\"},"
		"\"checkpointing_config\":{\"enabled\":true,\"checkpoint_path\":\"/usr\"}},"
		"\"weights\":[{\"source\":\"ftp://x\",\"mount_location\":\"/proc\"}],"
		"\"limits\":{\"stop_grace\":999999999}}";
	static const char *const unreadable[] = {
		"",
		"{",
		"[]",
		"{\"runtime\":7}",
		"{\"compute\":{\"memory\":\"lots\"}}",
		"{\"weights\":[{\"source\":\"hf://a/b\"}]}",
		"{\"weights\":[null]}",
		"{\"runtime\":{\"load_checkpoint_config\":{\"checkpoints\":[{}]}}}",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct job_spec s;
	struct err err = {0};

	assert_ok(spec_read_stored(a, old, &s, &err), &err);
	assert_string_equal(s.name, " x");
	assert_string_equal(s.gpu_type, "Z9");
	assert_int_equal(s.gpu_count, 3);
	assert_int_equal(s.memory_bytes, 1);
	assert_int_equal(s.grace_s, 999999999);
	assert_string_equal(s.ckpt.path, "/usr");
	assert_string_equal(s.weights[0].source, "ftp://x");
	assert_string_equal(s.env[0].name, "1");
	assert_int_equal(s.n_commands, 1);
	for (size_t i = 0; i < COUNT(unreadable); i++)
		assert_err(spec_read_stored(a, unreadable[i], &s, &err), &err, ERR_STORED_SPEC, "");
}

static void spec_reference_names_every_block(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(100000);
	struct err err = {0};

	spec_reference(&out);
	assert_ok(buf_check(&out, "reference", &err), &err);
	assert_non_null(strstr(buf_cstr(&out), "### `job.runtime.checkpointing_config`"));
	assert_non_null(strstr(buf_cstr(&out), "| `source` | text | required |"));
	assert_non_null(strstr(buf_cstr(&out), "| `memory` | size | `2Gi` |"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(spec_reads_a_file),
	cmocka_unit_test(spec_reads_python),
	cmocka_unit_test(spec_reads_what_truss_sends),
	cmocka_unit_test(spec_defaults_of_the_api),
	cmocka_unit_test(spec_reads_identities),
	cmocka_unit_test(spec_comes_back),
	cmocka_unit_test(spec_set_changes_one_value),
	cmocka_unit_test(spec_set_is_typed_and_read),
	cmocka_unit_test(spec_accelerators),
	cmocka_unit_test(spec_sources),
	cmocka_unit_test(spec_names),
	cmocka_unit_test(spec_stored_is_not_judged),
	cmocka_unit_test(spec_reference_names_every_block),
};
UNIT_MAIN(tests)
