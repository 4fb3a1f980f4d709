/* test_env.c - every variable of the platform, and quoting that no value gets out of. */
#include "run/env.h"
#include "run/gpu.h"

#include "io/proc.h"
#include "unit.h"

static const struct env_paths at = {.workspace = "/b10/workspace",
                                    .scratch = "/mnt/bt-scratch",
                                    .ckpt = "/mnt/ckpts",
                                    .load = "/tmp/loaded_checkpoints",
                                    .project_cache = "/root/.cache/user_artifacts",
                                    .team_cache = "/root/.cache/team_artifacts",
                                    .home = "/root"};

static const char *get(const struct wire_env *env, size_t n, const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		if (strcmp(env[i].name, name) != 0)
			continue;
		assert_null(found); /* each once */
		found = env[i].value;
	}
	return found;
}

static const struct {
	const char *name, *value;
} always[] = {
	{"BT_TRAINING_JOB_ID", "gvpql31"},
	{"BT_TRAINING_JOB_NAME", "lora"},
	{"BT_TRAINING_PROJECT_ID", "aghi527"},
	{"BT_TRAINING_PROJECT_NAME", "finetunes"},
	{"BT_NUM_GPUS", "2"},
	{"BT_RETRY_COUNT", "1"},
	{"BT_SCRATCH_DIR", "/mnt/bt-scratch"},
	{"BT_GROUP_SIZE", "4"},
	{"BT_LEADER_ADDR", "10.0.0.1"},
	{"BT_NODE_RANK", "3"},
	{"PYTHONUNBUFFERED", "1"},
	{"OMP_NUM_THREADS", "3"}, /* 7 cores for 2 GPUs */
	{"HOME", "/root"},
	{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"},
};

static const struct {
	const char *name, *value;
} optional[] = {
	{"BT_WORKING_DIR", "/b10/workspace"},
	{"STOKER_SERVE_PORT", "38211"},
	{"STOKER_SERVE_KEY", "5e7e"},
	{"BT_CHECKPOINT_DIR", "/mnt/ckpts"},
	{"BT_LOAD_CHECKPOINT_DIR", "/tmp/loaded_checkpoints"},
	{"BT_PROJECT_CACHE_DIR", "/root/.cache/user_artifacts"},
	{"BT_TEAM_CACHE_DIR", "/root/.cache/team_artifacts"},
	{"BT_RW_CACHE_DIR", "/root/.cache/user_artifacts"},
	{"HF_HOME", "/root/.cache/user_artifacts/huggingface"},
	{"HF_ENDPOINT", "http://127.0.0.1:8000"},
	{"HF_TOKEN", "stokerjob_a_b"},
	{"HF_HUB_CACHE", SPEC_HUB_PLACE},
	{"SSL_CERT_FILE", "/opt/stoker/ca.pem"},
	{"REQUESTS_CA_BUNDLE", "/opt/stoker/ca.pem"},
	{"CUSTOM_CACHE_REPO", "red/compile-cache"},
	{"NEURON_COMPILE_CACHE_URL", SPEC_COMPILE_PLACE "/neuron"},
	{"TORCHINDUCTOR_CACHE_DIR", SPEC_COMPILE_PLACE "/inductor"},
	{"TRITON_CACHE_DIR", SPEC_COMPILE_PLACE "/triton"},
	{"JAX_COMPILATION_CACHE_DIR", SPEC_COMPILE_PLACE "/jax"},
	{"VLLM_CACHE_ROOT", SPEC_COMPILE_PLACE "/vllm"},
	{"TORCH_EXTENSIONS_DIR", SPEC_COMPILE_PLACE "/torch_extensions"},
	{"CUDA_CACHE_PATH", SPEC_COMPILE_PLACE "/cuda"},
	{"CCACHE_DIR", SPEC_COMPILE_PLACE "/ccache"},
	{"XDG_CACHE_HOME", "/root/.cache/user_artifacts/xdg"},
};

static void has_every_variable(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_gpu gpus[] = {{0, "GPU-a"}, {1, "GPU-b"}};
	struct wire_launch l = {.job_id = "gvpql31",
	                        .job_name = "lora",
	                        .project_id = "aghi527",
	                        .project_name = "finetunes",
	                        .node_rank = 3,
	                        .node_count = 4,
	                        .retry_count = 1,
	                        .leader_addr = "10.0.0.1",
	                        .gpus = gpus,
	                        .n_gpus = 2};
	struct job_spec s = {.cpu_count = 7};
	struct env_paths all = at;
	struct wire_env *env = NULL;
	size_t n = 0;

	env_make(a, &l, &s, &at, &env, &n);
	for (size_t i = 0; i < COUNT(always); i++) {
		const char *value = get(env, n, always[i].name);

		assert_row(value != NULL && strcmp(value, always[i].value) == 0, always[i].name);
	}
	for (size_t i = 0; i < COUNT(optional); i++)
		assert_row(get(env, n, optional[i].name) == NULL, optional[i].name);
	s.workdir = s.ckpt.enabled = s.load.enabled = s.cache.enabled = true;
	all.hub = SPEC_HUB_PLACE;
	all.ca = "/opt/stoker/ca.pem";
	all.compile = SPEC_COMPILE_PLACE;
	all.serve_port = "38211";
	l.has_compile = true;
	l.compile.repo = "red/compile-cache";
	l.hub_url = "http://127.0.0.1:8000";
	l.hub_token = "stokerjob_a_b";
	l.serve_key = "5e7e";
	env_make(a, &l, &s, &all, &env, &n);
	for (size_t i = 0; i < COUNT(optional); i++) {
		const char *value = get(env, n, optional[i].name);

		assert_row(value != NULL && strcmp(value, optional[i].value) == 0,
		           optional[i].name);
	}
}

/* What env_make sets is in the page, and no name comes twice. */
static void the_page_names_every_variable(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf page = BUF_INIT((size_t)1 << 20);
	struct wire_load from = {.name = "checkpoint-1",
	                         .job_id = "j",
	                         .prefix = "p",
	                         .dir = "rank-0",
	                         .resume = true};
	struct wire_launch l = {.job_id = "j",
	                        .job_name = "n",
	                        .project_id = "p",
	                        .project_name = "q",
	                        .leader_addr = "h",
	                        .load = &from,
	                        .n_load = 1};
	struct env_paths full = at;
	struct job_spec s = {.workdir = true};
	struct wire_env *env = NULL;
	size_t n = 0, rows = 0;

	s.ckpt.enabled = s.load.enabled = s.cache.enabled = true;
	full.python = "/opt/stoker/python";
	full.hub = SPEC_HUB_PLACE;
	full.ca = "/opt/stoker/ca.pem";
	full.compile = SPEC_COMPILE_PLACE;
	full.serve_port = "38211";
	full.driver = GPU_LIBRARIES;
	l.has_compile = true;
	l.compile.repo = "red/compile-cache";
	l.hub_url = "http://127.0.0.1:8000";
	l.hub_token = "stokerjob_a_b";
	l.serve_key = "5e7e";
	env_make(a, &l, &s, &full, &env, &n);
	env_reference(&page);
	for (size_t i = 0; i < n; i++) {
		AUTO_FREE char *cell = xasprintf("\n| `%s` |", env[i].name);

		assert_row(strstr(buf_cstr(&page), cell) != NULL, env[i].name);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(env[i].name, env[k].name);
	}
	for (const char *p = buf_cstr(&page); (p = strstr(p, "\n| `")) != NULL; p++)
		rows++;
	assert_int_equal(rows, n + 11); /* 7 are handed on by the server, 4 are the shell's */
}

static void the_driver_comes_before_the_image(void **state UNUSED)
{
	static const struct {
		const char *image, *mine, *want;
	} rows[] = {
		{NULL, NULL, "/driver"},
		{"PATH=/bin\nMARK=x", NULL, "/driver"},
		{"PATH=/bin\nLD_LIBRARY_PATH=/image/lib\nMARK=x", NULL, "/driver:/image/lib"},
		{"LD_LIBRARY_PATH=/image/lib", "/mine", "/driver:/mine"},
		{"LD_LIBRARY_PATH=", "", "/driver"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct wire_env mine = {"LD_LIBRARY_PATH", rows[i].mine, false};
		struct wire_launch l = {.job_id = "j",
		                        .job_name = "n",
		                        .project_id = "p",
		                        .project_name = "q",
		                        .leader_addr = "h",
		                        .env = &mine,
		                        .n_env = rows[i].mine != NULL};
		struct env_paths in_image = at;
		struct job_spec s = {.cpu_count = 1};
		struct wire_env *env = NULL;
		size_t n = 0;

		in_image.image = true;
		in_image.podman_sets = true;
		in_image.image_env = rows[i].image;
		in_image.driver = "/driver";
		env_make(a, &l, &s, &in_image, &env, &n);
		assert_string_equal(get(env, n, "LD_LIBRARY_PATH"), rows[i].want);
		assert_null(get(env, n, "MARK")); /* podman has set it */
	}
}

static void the_user_has_the_last_word(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_env mine[] = {
		{"PYTHONUNBUFFERED", "0", false}, {"KEY", "v1", true}, {"KEY", "v2", true}};
	struct wire_gpu gpus[] = {{0, "declared-0"}};
	struct wire_launch l = {.job_id = "j",
	                        .job_name = "n",
	                        .project_id = "p",
	                        .project_name = "q",
	                        .leader_addr = "h",
	                        .env = mine,
	                        .n_env = 3,
	                        .gpus = gpus,
	                        .n_gpus = 1};
	struct job_spec s = {.cpu_count = 7};
	struct wire_env *env = NULL;
	size_t n = 0;

	env_make(a, &l, &s, &at, &env, &n);
	assert_string_equal(get(env, n, "PYTHONUNBUFFERED"), "0");
	assert_string_equal(get(env, n, "KEY"), "v2");
	assert_string_equal(get(env, n, "CUDA_VISIBLE_DEVICES"), "0");
	assert_string_equal(get(env, n, "BT_NUM_GPUS"), "1");
}

static void proxies_lose_their_login(void **state UNUSED)
{
	static const struct {
		const char *name, *value, *want;
	} rows[] = {
		{"HTTP_PROXY", "http://ann:pw@proxy:3128", "http://proxy:3128"},
		{"https_proxy", "http://ann:p@w@proxy:3128/", "http://proxy:3128/"},
		{"http_proxy", "http://ann:p/w?x#y@proxy", "http://proxy"},
		{"HTTPS_PROXY", "ann:pw@proxy:3128", "proxy:3128"},
		{"ALL_PROXY", "socks5h://token@proxy", "socks5h://proxy"},
		{"all_proxy", "ann:p://w@proxy", "proxy"},
		{"ftp_proxy", "http://proxy:3128", "http://proxy:3128"},
		{"no_proxy", "a@b,127.0.0.1", "a@b,127.0.0.1"},
		{"MAIL", "ann@example.org", "ann@example.org"},
	};
	AUTO_ARENA struct arena *a = arena_new();
	const char *const *env;

	for (size_t i = 0; i < COUNT(rows); i++)
		assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
	env = env_of_sandbox(a);
	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *want = arena_printf(a, "%s=%s", rows[i].name, rows[i].want);
		bool found = false;

		for (size_t k = 0; env[k] != NULL; k++)
			found = found || strcmp(env[k], want) == 0;
		assert_row(found, rows[i].name);
		assert_int_equal(unsetenv(rows[i].name), 0);
	}
}

static const char *const values[] = {
	"",          "plain",        "it's", "''", "'; echo out; '", "$HOME `id` \\ \"x\"",
	"a\nb\n\nc", "\x01\x7f\xff", "-n",   "!",
};

static void no_value_gets_out(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(values); i++) {
		AUTO_BUF struct buf script = BUF_INIT(10000), out = BUF_INIT(10000);
		struct wire_env env[] = {{"VALUE", values[i], false},
		                         {"bad-name", "x", false},
		                         {"1X", "x", false},
		                         {"A=B", "x", false}};
		const char *argv[] = {"sh", "-s", NULL};
		struct err err = {0};
		int code = 0;

		env_script(env, COUNT(env), &script);
		buf_puts(&script, "printf %s \"$VALUE\"\n");
		assert_ok(proc_run(argv, buf_view(&script), 10000, &out, &code, &err), &err);
		assert_int_equal(code, 0);
		assert_string_equal(buf_cstr(&out), values[i]);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(has_every_variable),
	cmocka_unit_test(the_page_names_every_variable),
	cmocka_unit_test(the_driver_comes_before_the_image),
	cmocka_unit_test(the_user_has_the_last_word),
	cmocka_unit_test(proxies_lose_their_login),
	cmocka_unit_test(no_value_gets_out),
};
UNIT_MAIN(tests)
