/* test_compile_why.c - why something was compiled: from what was stored before, small files of
 * either side, and the facts of harvests. */
#include "unit.h"

#include "base/json.h"
#include "core/compile_why.h"

#define PATHS_MAX 16
#define V1 "neuronxcc-2.21.1+82/"
#define V2 "neuronxcc-2.22.0+90/"

/* Paths, one a line; what can be read of one follows it after a blank. `earlier`: harvests, a JSON
 * list. */
struct scene {
	const char *name, *made, *stored, *facts, *earlier;
	enum compile_reason reason;
	const char *words; /* of the detail, between '|' */
};

static const struct scene scenes[] = {
	{"nothing at all is stored", "jax/cpu/jit_f-00-cache", "", NULL, NULL, COMPILE_FIRST,
         "nothing"},
	{"something of another kind is", "jax/cpu/jit_f-00-cache", "cuda/cpu/index\nREADME.md",
         NULL, NULL, COMPILE_FIRST, ""},
	{"only for other devices", "jax/h100/jit_f-00-cache",
         "jax/a100/jit_f-11-cache\njax/a100/jit_g-12-cache\njax/l40s/jit_f-13-cache", NULL, NULL,
         COMPILE_DEVICE, "is h100|a100, l40s"},
	{"the same one was there", "inductor/cpu/fxgraph/ab/fabc/new",
         "inductor/cpu/fxgraph/ab/fabc/old", NULL, NULL, COMPILE_PATH, "TORCHINDUCTOR_CACHE_DIR"},
	/* Neuron */
	{"other flags",
         V1 "MODULE_16+aa/model.done\n" V1 "MODULE_16+aa/compile_flags.json [\"-O2\",\"--x\"]",
         V1 "MODULE_16+bb/model.done\n" V1 "MODULE_16+bb/compile_flags.json [\"--x\",\"-O1\"]",
         NULL, NULL, COMPILE_FLAGS, "only now: -O2|only then: -O1"},
	{"other flags, which nobody can read", V1 "MODULE_16+aa/model.done",
         V1 "MODULE_16+bb/model.done", NULL, NULL, COMPILE_FLAGS, "MODULE_16+bb"},
	{"another compiler", V2 "MODULE_16+aa/model.done",
         V1 "MODULE_16+bb/model.done\n" V1 "MODULE_16+aa/model.done", NULL, NULL, COMPILE_COMPILER,
         "2.22.0+90|2.21.1+82"},
	{"another graph", V1 "MODULE_17+aa/model.done", V1 "MODULE_16+aa/model.done", NULL, NULL,
         COMPILE_CODE, "no graph with this hash"},
	{"flags go before versions", V2 "MODULE_16+aa/model.done",
         V1 "MODULE_16+aa/model.done\n" V2 "MODULE_16+bb/model.done", NULL, NULL, COMPILE_FLAGS,
         ""},
	/* Triton */
	{"num_warps", "triton/h100/K/add.json {\"num_warps\":8,\"num_stages\":3,\"shared\":1}",
         "triton/h100/L/add.json {\"num_warps\":4,\"num_stages\":2,\"shared\":7}\n"
         "triton/h100/M/add.json {\"num_warps\":4,\"num_stages\":3,\"shared\":7}\n"
         "triton/h100/N/mul.json {\"num_warps\":8,\"num_stages\":3}",
         NULL, NULL, COMPILE_FLAGS, "num_warps is 8, was 4"},
	{"the compiler's version", "triton/h100/K/add.json {\"triton_version\":\"3.5.0\"}",
         "triton/h100/L/add.json {\"triton_version\":\"3.4.0\"}", NULL, NULL, COMPILE_COMPILER,
         "3.5.0|3.4.0"},
	{"the architecture",
         "triton/gpu/K/add.json {\"target\":{\"backend\":\"cuda\",\"arch\":90}}",
         "triton/gpu/L/add.json {\"target\":{\"backend\":\"cuda\",\"arch\":80}}", NULL, NULL,
         COMPILE_DEVICE, "target is|90|80"},
	{"other code", "triton/h100/K/add.json {\"num_warps\":4,\"hash\":\"1\"}",
         "triton/h100/L/add.json {\"num_warps\":4,\"hash\":\"2\"}", NULL, NULL, COMPILE_CODE,
         "add with other code"},
	{"a name that is not there", "triton/h100/K/add.json {\"num_warps\":4}",
         "triton/h100/L/mul.json {\"num_warps\":8}", NULL, NULL, COMPILE_CODE, "no kernel"},
	{"kernels that cannot be read", "triton/h100/K/add.json", "triton/h100/L/add.json {", NULL,
         NULL, COMPILE_CODE, ""},
	{"an entry without a kernel", "triton/h100/K/launcher.so", "triton/h100/L/add.json {}",
         NULL, NULL, COMPILE_CODE, ""},
	{"a kernel of Inductor", "inductor/h100/triton/0/K/add.json {\"num_warps\":8}",
         "inductor/h100/triton/0/L/add.json {\"num_warps\":4}", NULL, NULL, COMPILE_FLAGS,
         "num_warps"},
	/* JAX */
	{"jaxlib", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache",
         "{\"jaxlib\":\"0.10.2\",\"gpu\":\"H100\"}",
         "[{\"facts\":{\"jaxlib\":\"0.9.1\",\"gpu\":\"H100\"},\"entries\":[\"jax/cpu/"
         "jit_f-11-cache\"]}]",
         COMPILE_COMPILER, "jaxlib is 0.10.2, was 0.9.1"},
	{"XLA_FLAGS that were not set", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache",
         "{\"env.XLA_FLAGS\":\"--a\"}",
         "[{\"facts\":{\"jaxlib\":\"1\"},\"entries\":[\"jax/cpu/jit_f-11-cache\"]}]", COMPILE_FLAGS,
         "XLA_FLAGS is --a, was not set"},
	{"XLA_FLAGS that were", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache", "{}",
         "[{\"facts\":{\"env.XLA_FLAGS\":\"--a\"},\"entries\":[\"jax/cpu/jit_f-11-cache\"]}]",
         COMPILE_FLAGS, "XLA_FLAGS is not set, was --a"},
	{"where it is, which is in JAX's keys", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache",
         "{\"place\":\"/a\"}",
         "[{\"facts\":{\"place\":\"/b\"},\"entries\":[\"jax/cpu/jit_f-11-cache\"]}]", COMPILE_PATH,
         "/a|/b"},
	{"the nearest of several", "jax/cpu/jit_f-00-cache",
         "jax/cpu/jit_f-11-cache\njax/cpu/jit_f-12-cache\njax/cpu/jit_g-13-cache",
         "{\"jaxlib\":\"2\",\"python\":\"3.12\"}",
         "[{\"facts\":{\"jaxlib\":\"1\",\"python\":\"3.11\"},\"entries\":[\"jax/cpu/"
         "jit_f-11-cache\"]},"
         "{\"facts\":{\"jaxlib\":\"2\",\"python\":\"3.11\"},\"entries\":[\"jax/cpu/"
         "jit_f-12-cache\"]},"
         "{\"facts\":{\"jaxlib\":\"2\",\"python\":\"3.12\"},\"entries\":[\"jax/cpu/"
         "jit_g-13-cache\"]}]",
         COMPILE_COMPILER, "python is 3.12, was 3.11"},
	{"the same facts", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache", "{\"jaxlib\":\"1\"}",
         "[{\"facts\":{\"jaxlib\":\"1\"},\"entries\":[\"jax/cpu/jit_f-11-cache\"]}]", COMPILE_CODE,
         "same"},
	{"what does not matter to it", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache",
         "{\"torch\":\"2\",\"image\":\"a\"}",
         "[{\"facts\":{\"torch\":\"1\",\"image\":\"b\"},\"entries\":[\"jax/cpu/jit_f-11-cache\"]}]",
         COMPILE_CODE, "same"},
	{"nobody knows", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_f-11-cache", "{\"jaxlib\":\"1\"}",
         "[null,{},{\"facts\":7},{\"facts\":{},\"entries\":[7,\"x\"]}]", COMPILE_CODE, "not known"},
	{"another module", "jax/cpu/jit_f-00-cache", "jax/cpu/jit_ff-11-cache",
         "{\"jaxlib\":\"1\"}", NULL, COMPILE_CODE, "no module of this name"},
	/* the others */
	{"torch", "inductor/cpu/fxgraph/ab/fa/x", "inductor/cpu/fxgraph/ab/fb/x",
         "{\"torch\":\"2.10\",\"triton\":\"3.5\"}",
         "[{\"facts\":{\"torch\":\"2.9\",\"triton\":\"3.4\"},"
         "\"entries\":[\"inductor/cpu/fxgraph/ab/fb/x\"]}]",
         COMPILE_COMPILER, "torch is 2.10, was 2.9"},
	{"another harvest's facts are of another device", "inductor/cpu/fxgraph/ab/fa/x",
         "inductor/cpu/fxgraph/ab/fb/x", "{\"torch\":\"2.10\"}",
         "[{\"facts\":{\"torch\":\"2.9\"},\"entries\":[\"inductor/gpu/fxgraph/ab/fb/x\"]}]",
         COMPILE_CODE, "no entry with this hash"},
	{"a variable of Inductor", "inductor/cpu/fxgraph/ab/fa/x", "inductor/cpu/fxgraph/ab/fb/x",
         "{\"env.TORCHINDUCTOR_MAX_AUTOTUNE\":\"1\"}",
         "[{\"facts\":{},\"entries\":[\"inductor/cpu/fxgraph/ab/fb/x\"]}]", COMPILE_FLAGS,
         "TORCHINDUCTOR_MAX_AUTOTUNE is 1"},
	{"vLLM", "vllm/gpu/torch_compile_cache/0a/x", "vllm/gpu/torch_compile_cache/0b/x",
         "{\"env.VLLM_X\":\"1\"}",
         "[{\"facts\":{\"env.VLLM_X\":\"2\"},\"entries\":[\"vllm/gpu/torch_compile_cache/0b/x\"]}]",
         COMPILE_FLAGS, "VLLM_X is 1, was 2"},
	{"ccache", "ccache/3/aR", "ccache/3/bR", "{}", NULL, COMPILE_CODE, "no entry"},
};

/* ---- a scene's two sides ------------------------------------------------------------------- */

struct side {
	const char *path[PATHS_MAX];
	struct str text[PATHS_MAX];
	size_t n;
};

struct sides {
	struct side made, stored;
};

static void read_side(struct arena *a, const char *text, struct side *out)
{
	struct str rest = str_of(text), line, path;

	while (str_cut(&rest, '\n', &line)) {
		if (!str_cut(&line, ' ', &path))
			continue;
		assert_true(out->n < PATHS_MAX);
		out->path[out->n] = arena_strz(a, path);
		out->text[out->n++] = line;
	}
}

static struct str read_text(void *arg, const char *path, bool stored)
{
	const struct sides *s = arg;
	const struct side *side = stored ? &s->stored : &s->made;

	for (size_t i = 0; i < side->n; i++)
		if (strcmp(side->path[i], path) == 0)
			return side->text[i];
	return (struct str){0};
}

static const struct doc *json(struct arena *a, const char *text)
{
	const struct doc *d = NULL;
	struct err err = {0};

	if (text != NULL)
		assert_ok(js_parse(a, str_of(text), &d, &err), &err);
	return d;
}

static size_t ask(struct arena *a, const struct scene *s, struct compile_miss **out)
{
	struct sides sides = {0};
	const struct doc *earlier[PATHS_MAX];
	struct compile_why w = {.arena = a, .read = read_text, .arg = &sides, .earlier = earlier};

	read_side(a, s->made, &sides.made);
	read_side(a, s->stored, &sides.stored);
	w.facts = json(a, s->facts);
	DOC_EACH (d, json(a, s->earlier)) {
		assert_true(w.n_earlier < PATHS_MAX);
		earlier[w.n_earlier++] = d;
	}
	w.made = sides.made.path;
	w.n_made = sides.made.n;
	w.stored = sides.stored.path;
	w.n_stored = sides.stored.n;
	return compile_cache_why(&w, out);
}

static void reasons(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(scenes); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct str words = str_of(scenes[i].words), word;
		struct compile_miss *m = NULL;

		assert_row(ask(a, &scenes[i], &m) == 1, scenes[i].name);
		if (m->reason != scenes[i].reason)
			fail_msg("%s: %s (%s)", scenes[i].name, compile_reason_word[m->reason],
			         m->detail);
		while (str_cut(&words, '|', &word))
			if (strstr(m->detail, arena_strz(a, word)) == NULL)
				fail_msg("%s: \"%s\" lacks %.*s", scenes[i].name, m->detail,
				         STR_ARG(word));
	}
}

/* Files of one entry are one miss; what is no entry is none. */
static void entries_are_counted(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_miss *m = NULL;
	const struct scene s = {
		.made = "jax/cpu/jit_f-00-cache\ntriton/cpu/K/a.json\njax/cpu/jit_f-00-atime\n"
			"triton/cpu/K/a.ptx\ninductor/cpu/ab/cab.py\nREADME.md\n"
			"triton/gpu/K/a.json",
		.stored = ""};

	assert_int_equal(ask(a, &s, &m), 3);
	assert_string_equal(m[0].entry, "jit_f-00-cache");
	assert_int_equal(m[0].files, 1);
	assert_string_equal(m[1].entry, "K");
	assert_string_equal(m[1].device, "cpu");
	assert_int_equal(m[1].files, 2);
	assert_string_equal(m[2].device, "gpu");
	assert_int_equal(ask(a, &(struct scene){.made = "", .stored = "x"}, &m), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reasons),
	cmocka_unit_test(entries_are_counted),
};
UNIT_MAIN(tests)
