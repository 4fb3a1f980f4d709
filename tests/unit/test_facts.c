/* test_facts.c - what a harvest says of the variables that compilers look at. */
#include "run/facts.h"
#include "unit.h"

static void no_secrets(void **state UNUSED)
{
	static const struct wire_env env[] = {
		{.name = "VLLM_ATTENTION_BACKEND", .value = "FLASHINFER"},
		{.name = "VLLM_API_KEY", .value = "sk-123"},
		{.name = "VLLM_HOST_IP", .value = "10.0.0.1", .secret = true},
		{.name = "TRITON_REMOTE", .value = "redis://user:password@host/"},
		{.name = "TRITON_MIRROR", .value = "https://host/a"},
		{.name = "TRITON_CACHE_DIR", .value = "/opt/stoker/compile/triton"},
		{.name = "HOME", .value = "/root"},
	};
	static const struct wire_launch launch = {.compile = {.cpu = "x86-64-v3"}};
	static const struct job_spec spec;
	const struct facts_of of = {.launch = &launch,
	                            .spec = &spec,
	                            .env = env,
	                            .n_env = COUNT(env),
	                            .place = "/opt/stoker/compile",
	                            .image = "sha256:abc"};
	static const char *const want[] = {
		"cpu=x86-64-v3", "image=sha256:abc", "place=/opt/stoker/compile",
		"env.VLLM_ATTENTION_BACKEND=FLASHINFER", "env.TRITON_MIRROR=https://host/a"};
	AUTO_ARENA struct arena *a = arena_new();
	struct harvest_fact *fact = NULL;
	size_t n = 0;

	facts_read(a, &of, &fact, &n);
	assert_int_equal(n, COUNT(want));
	for (size_t i = 0; i < n; i++)
		assert_string_equal(arena_printf(a, "%s=%s", fact[i].name, fact[i].value), want[i]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(no_secrets),
};
UNIT_MAIN(tests)
