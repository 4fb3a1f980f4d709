/*
 * test_set.c - sets of files: layouts, last files, what is missing, what is proven. The files are
 * names with made verdicts; what real savers write is in tests/e2e/test_savers.py.
 */
#include "base/arena.h"
#include "format/set.h"

#include "unit.h"

#define FILES_MAX 40

/*
 * A set in words: paths with a blank between, each with what is known of it behind it:
 *   path      whole         path!  torn         path?  not known
 *   path=60   60 bytes      path@1  on node 1
 * Files that name others get their facts from `needs`: "a b" or "a=60 b=20".
 */
struct built {
	struct arena *a;
	struct set_file file[FILES_MAX];
	struct format_result check[FILES_MAX];
	struct format_facts facts[FILES_MAX];
	size_t n;
};

static void read_needs(struct built *b, struct format_facts *f, const char *needs)
{
	struct format_need *need = ARENA_ARRAY(b->a, struct format_need, FILES_MAX);
	struct str rest = str_of(needs), one;

	while (str_cut(&rest, ' ', &one)) {
		const char *eq = memchr(one.p, '=', one.n);
		struct format_need *n = &need[f->n_need++];

		n->path = arena_strz(b->a, str_n(one.p, eq == NULL ? one.n : (size_t)(eq - one.p)));
		n->sized = eq != NULL;
		n->size = eq == NULL ? 0 : strtoull(eq + 1, NULL, 10);
	}
	f->need = need;
}

static void add(struct built *b, struct str word, const char *needs)
{
	struct set_file *f = &b->file[b->n];
	struct format_result *r = &b->check[b->n];
	struct format_facts *facts = &b->facts[b->n];
	size_t n = 0;

	while (n < word.n && strchr("!?=@", word.p[n]) == NULL)
		n++;
	*r = (struct format_result){.verdict = FORMAT_WHOLE, .format = "x"};
	*facts = (struct format_facts){.step = -1};
	*f = (struct set_file){.path = arena_strz(b->a, str_n(word.p, n)), .size = 1, .check = r};
	for (; n < word.n; n++) {
		if (word.p[n] == '!') {
			r->verdict = FORMAT_TORN;
			(void)snprintf(r->reason, sizeof(r->reason), "is torn");
		} else if (word.p[n] == '?') {
			r->verdict = FORMAT_UNKNOWN;
			r->format = "";
		} else if (word.p[n] == '=') {
			f->size = strtoull(word.p + n + 1, NULL, 10);
		} else if (word.p[n] == '@') {
			f->node = (uint32_t)strtoul(word.p + n + 1, NULL, 10);
		}
	}
	if (str_ends(str_of(f->path), ".index.json"))
		facts->role = FORMAT_INDEX;
	else if (str_ends(str_of(f->path), ".metadata"))
		facts->role = FORMAT_DCP;
	else if (str_ends(str_of(f->path), "integrity.json"))
		facts->role = FORMAT_INTEGRITY;
	else if (str_ends(str_of(f->path), "model_index.json"))
		facts->role = FORMAT_PIPELINE;
	if (facts->role != FORMAT_PLAIN && needs != NULL) {
		read_needs(b, facts, needs);
		r->facts = facts;
	}
	b->n++;
}

static void build(struct built *b, struct arena *a, const char *files, const char *needs)
{
	struct str rest = str_of(files), word;

	b->a = a;
	b->n = 0;
	while (str_cut(&rest, ' ', &word))
		if (word.n > 0)
			add(b, word, needs);
}

#define TRAINER                                                                                    \
	"config.json model.safetensors optimizer.pt scheduler.pt rng_state.pth training_args.bin "
#define MOE "mp_rank_00_model_states.pt zero_pp_rank_0_mp_rank_00_optim_states.pt "

static const struct {
	const char *what, *name, *files, *needs, *beside;
	uint32_t world;
	const char *layout;
	enum set_state state;
	const char *path; /* of the first problem, of the sign, or of the last file */
} cases[] = {
	/* transformers */
	{"Trainer", "checkpoint-5", TRAINER "trainer_state.json", NULL, NULL, 0, "hf_trainer",
         SET_PLAUSIBLE, "trainer_state.json"},
	{"no state yet", "checkpoint-5", TRAINER, NULL, NULL, 0, "hf_trainer", SET_WAITING,
         "trainer_state.json"},
	{"torn optimizer", "checkpoint-5", "model.safetensors optimizer.pt! trainer_state.json",
         NULL, NULL, 0, "hf_trainer", SET_TORN, "optimizer.pt"},
	{"half a copy", "checkpoint-5", "trainer_state.json config.json", NULL, NULL, 0,
         "hf_trainer", SET_HOLE, "model.safetensors"},
	{"no optimizer", "checkpoint-5", "trainer_state.json model.safetensors scheduler.pt", NULL,
         NULL, 0, "hf_trainer", SET_HOLE, "optimizer.pt"},
	{"state is no JSON", "checkpoint-5", TRAINER "trainer_state.json?", NULL, NULL, 0,
         "hf_trainer", SET_WAITING, "trainer_state.json"},
	{"index, all there", "checkpoint-5",
         "trainer_state.json model.safetensors.index.json a.safetensors b.safetensors optimizer.pt "
         "scheduler.pt rng_state.pth",
         "a.safetensors b.safetensors", NULL, 0, "hf_trainer", SET_PROVEN, "trainer_state.json"},
	{"index, one missing", "checkpoint-5",
         TRAINER "trainer_state.json model.safetensors.index.json a.safetensors",
         "a.safetensors b.safetensors", NULL, 0, "hf_trainer", SET_HOLE, "b.safetensors"},
	{"an older save's shards", "checkpoint-5",
         "trainer_state.json model.safetensors.index.json model-00001-of-00002.safetensors "
         "model-00002-of-00002.safetensors model-00003-of-00003.safetensors! optimizer.pt "
         "scheduler.pt rng_state.pth",
         "model-00001-of-00002.safetensors model-00002-of-00002.safetensors", NULL, 0, "hf_trainer",
         SET_PROVEN, "trainer_state.json"},
	{"two ranks", "checkpoint-5",
         "config.json model.safetensors optimizer.pt scheduler.pt rng_state_0.pth rng_state_1.pth "
         "trainer_state.json",
         NULL, NULL, 2, "hf_trainer", SET_PROVEN, "trainer_state.json"},
	{"a rank late", "checkpoint-5",
         "model.safetensors optimizer.pt scheduler.pt rng_state_0.pth trainer_state.json", NULL,
         NULL, 2, "hf_trainer", SET_HOLE, "rng_state_1.pth"},
	{"unfinished sign", "checkpoint-5", "checkpoint-is-incomplete.txt? model.safetensors", NULL,
         NULL, 0, "hf_trainer", SET_UNFINISHED, "checkpoint-is-incomplete.txt"},
	{"temporary name", "tmp-checkpoint-5", TRAINER "trainer_state.json", NULL, NULL, 0,
         "hf_trainer", SET_UNFINISHED, "tmp-checkpoint-5"},
	{"FSDP sharded", "checkpoint-5",
         "pytorch_model_fsdp_0/.metadata pytorch_model_fsdp_0/__0_0.distcp=60 "
         "pytorch_model_fsdp_0/__1_0.distcp=20 optimizer_0/__0_0.distcp scheduler.pt "
         "rng_state_0.pth trainer_state.json",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 0, "hf_trainer", SET_HOLE,
         "optimizer_0/.metadata"},
	{"flash, older pointer", "checkpoint-5", TRAINER "trainer_state.json", NULL,
         "dlrover_latest.txt:4", 0, "hf_trainer", SET_WAITING, "../dlrover_latest.txt"},
	{"flash, newer pointer", "checkpoint-5", TRAINER "trainer_state.json", NULL,
         "dlrover_latest.txt:7", 0, "hf_trainer", SET_PLAUSIBLE, "../dlrover_latest.txt"},
	{"rsync's temporary", "checkpoint-5",
         "config.json .model.safetensors.Ab3dEf trainer_state.json optimizer.pt", NULL, NULL, 0,
         "hf_trainer", SET_UNFINISHED, ".model.safetensors.Ab3dEf"},
	{"an old temporary", "checkpoint-5", TRAINER "trainer_state.json .tmpAb3dEf", NULL, NULL, 0,
         "hf_trainer", SET_PLAUSIBLE, "trainer_state.json"},
	{"final model", "out", "config.json model.safetensors training_args.bin", NULL, NULL, 0,
         "hf_final", SET_PLAUSIBLE, "training_args.bin"},
	{"adapter", "adapter", "README.md? adapter_model.safetensors adapter_config.json", NULL,
         NULL, 0, "peft", SET_PLAUSIBLE, NULL},
	{"adapter without config", "adapter", "README.md? adapter_model.safetensors", NULL, NULL, 0,
         "peft", SET_HOLE, "adapter_config.json"},
	/* -of-N and GGUF */
	{"one of two", "m", "config.json model-00001-of-00002.safetensors", NULL, NULL, 0, "model",
         SET_HOLE, "model-00002-of-00002.safetensors"},
	{"two of two", "m", "model-00001-of-00002.safetensors model-00002-of-00002.safetensors",
         NULL, NULL, 0, "model", SET_PROVEN, NULL},
	{"gguf", "x.gguf", "x.gguf", NULL, NULL, 0, "file", SET_PROVEN, NULL},
	{"gguf splits", "q", "x-00001-of-00003.gguf x-00003-of-00003.gguf", NULL, NULL, 0,
         "unknown", SET_HOLE, "x-00002-of-00003.gguf"},
	{"counted from 0", "d", "data-00000-of-00002.arrow? data-00001-of-00002.arrow?", NULL, NULL,
         0, "unknown", SET_PLAUSIBLE, NULL},
	{"counted from 0, all whole", "d", "data-00000-of-00002.npy data-00001-of-00002.npy", NULL,
         NULL, 0, "unknown", SET_PROVEN, NULL},
	{"counted from 0, one missing", "d",
         "data-00000-of-00003.arrow? data-00002-of-00003.arrow?", NULL, NULL, 0, "unknown",
         SET_HOLE, "data-00001-of-00003.arrow"},
	{"steps, no series", "d", "model_500.safetensors optimizer_500.bin", NULL, NULL, 0, "model",
         SET_PLAUSIBLE, NULL},
	{"optimizers of accelerate", "c",
         "model.safetensors model_2.safetensors random_states_0.pkl", NULL, NULL, 0, "accelerate",
         SET_HOLE, "model_1.safetensors"},
	/* DCP */
	{"dcp", "ck", ".metadata __0_0.distcp=60 __1_0.distcp=20",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 0, "dcp", SET_PROVEN, ".metadata"},
	{"dcp waits", "ck", "__0_0.distcp=60 __1_0.distcp=20", NULL, NULL, 0, "dcp", SET_WAITING,
         ".metadata"},
	{"dcp lacks one", "ck", ".metadata __0_0.distcp=60", "__0_0.distcp=60 __1_0.distcp=20",
         NULL, 0, "dcp", SET_HOLE, "__1_0.distcp"},
	{"dcp short one", "ck", ".metadata __0_0.distcp=60 __1_0.distcp=19",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 0, "dcp", SET_HOLE, "__1_0.distcp"},
	{"dcp long one", "ck", ".metadata __0_0.distcp=60 __1_0.distcp=21",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 0, "dcp", SET_HOLE, "__1_0.distcp"},
	{"dcp left over", "ck", ".metadata __0_0.distcp=60 __1_0.distcp=20 __2_0.distcp!",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 0, "dcp", SET_PROVEN, ".metadata"},
	{"dcp gap", "ck", "__0_0.distcp __0_2.distcp", NULL, NULL, 0, "dcp", SET_HOLE,
         "__0_1.distcp"},
	{"dcp on two nodes", "ck", ".metadata@0 __0_0.distcp=60@0 __1_0.distcp=20@1",
         "__0_0.distcp=60 __1_0.distcp=20", NULL, 2, "dcp", SET_PROVEN, ".metadata"},
	{"dcp temporary", "ck", ".metadata.tmp __0_0.distcp", NULL, NULL, 0, "dcp", SET_UNFINISHED,
         ".metadata.tmp"},
	{"the same file twice", "ck", "config.json=5@0 config.json=6@1 model.safetensors", NULL,
         NULL, 0, "model", SET_HOLE, "config.json"},
	{"torchtitan", "step-100", ".metadata __0_0.distcp=60", "__0_0.distcp=60", NULL, 0,
         "torchtitan", SET_PROVEN, ".metadata"},
	/* Megatron, NeMo */
	{"megatron", "iter_0000100", "__0_0.distcp=60 .metadata metadata.json", "__0_0.distcp=60",
         NULL, 0, "megatron", SET_PROVEN, "metadata.json"},
	{"megatron waits", "iter_0000100", "__0_0.distcp=60 .metadata", "__0_0.distcp=60", NULL, 0,
         "megatron", SET_WAITING, "metadata.json"},
	{"megatron async", "iter_0000100", "__0_0.distcp=60 common.pt", NULL, NULL, 0, "megatron",
         SET_HOLE, ".metadata"},
	{"bridge", "iter_0000100", "__0_0.distcp=60 .metadata metadata.json train_state.pt",
         "__0_0.distcp=60", NULL, 0, "megatron_bridge", SET_WAITING, "run_config.yaml"},
	{"nemo 2", "m-5",
         "weights/__0_0.distcp=60 weights/.metadata weights/metadata.json context/io.json",
         "__0_0.distcp=60", NULL, 0, "nemo2", SET_PROVEN, "weights/metadata.json"},
	{"nemo 2, unfinished", "m-5",
         "weights/__0_0.distcp=60 weights/.metadata weights/metadata.json context/io.json",
         "__0_0.distcp=60", "m-5-unfinished", 0, "nemo2", SET_UNFINISHED, "m-5-unfinished"},
	{"automodel", "epoch_0_step_5", ".incomplete model/x.safetensors", NULL, NULL, 0,
         "automodel", SET_UNFINISHED, ".incomplete"},
	{"olmo", "step100",
         "train/rank0.pt model_and_optim/.metadata model_and_optim/__0_0.distcp=60",
         "__0_0.distcp=60", NULL, 0, "olmo_core", SET_WAITING, ".metadata.json"},
	{"megatron torch", "iter_0000100",
         "mp_rank_00_000/model_optim_rng.pt mp_rank_00_001/model_optim_rng.pt "
         "mp_rank_01_000/model_optim_rng.pt",
         NULL, NULL, 0, "megatron_torch", SET_HOLE, "model_optim_rng.pt"},
	/* DeepSpeed */
	{"deepspeed", "global_step5", MOE "zero_pp_rank_1_mp_rank_00_optim_states.pt", NULL, NULL,
         2, "deepspeed", SET_PROVEN, NULL},
	{"highest rank missing, W known", "global_step5",
         MOE "zero_pp_rank_1_mp_rank_00_optim_states.pt", NULL, NULL, 4, "deepspeed", SET_HOLE,
         "zero_pp_rank_2_mp_rank_00_optim_states.pt"},
	{"highest rank missing, W not known", "global_step5",
         MOE "zero_pp_rank_1_mp_rank_00_optim_states.pt", NULL, NULL, 0, "deepspeed", SET_PLAUSIBLE,
         NULL},
	{"a rank in the middle", "global_step5", MOE "zero_pp_rank_2_mp_rank_00_optim_states.pt",
         NULL, NULL, 0, "deepspeed", SET_HOLE, "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
	{"no model states", "global_step5", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", NULL,
         NULL, 1, "deepspeed", SET_HOLE, "mp_rank_00_model_states.pt"},
	{"stage 3", "global_step5",
         "zero_pp_rank_0_mp_rank_00_model_states.pt zero_pp_rank_1_mp_rank_00_model_states.pt "
         "zero_pp_rank_0_mp_rank_00_optim_states.pt",
         NULL, NULL, 0, "deepspeed", SET_HOLE, "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
	{"Trainer with DeepSpeed", "checkpoint-5",
         "global_step5/mp_rank_00_model_states.pt "
         "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt latest zero_to_fp32.py? "
         "model.safetensors rng_state.pth scheduler.pt trainer_state.json",
         NULL, NULL, 1, "hf_trainer", SET_PROVEN, "trainer_state.json"},
	/* verl */
	{"verl", "global_step_5",
         "actor/model_world_size_2_rank_0.pt actor/model_world_size_2_rank_1.pt data.pt", NULL,
         NULL, 0, "verl", SET_PROVEN, "data.pt"},
	{"verl lacks a rank", "global_step_5",
         "actor/model_world_size_4_rank_0.pt actor/model_world_size_4_rank_3.pt data.pt", NULL,
         NULL, 0, "verl", SET_HOLE, "actor/model_world_size_4_rank_1.pt"},
	/* accelerate, files, pipelines, Orbax */
	{"accelerate", "checkpoint_0",
         "model.safetensors optimizer.bin scheduler.bin random_states_0.pkl", NULL, NULL, 1,
         "accelerate", SET_PROVEN, NULL},
	{"accelerate, a rank missing", "checkpoint_0",
         "model.safetensors optimizer.bin scheduler.bin random_states_1.pkl", NULL, NULL, 0,
         "accelerate", SET_HOLE, "random_states_0.pkl"},
	{"a pipeline", "p", "model_index.json unet/config.json", "unet/ vae/", NULL, 0, "diffusers",
         SET_HOLE, "vae/"},
	{"orbax", "100", "_CHECKPOINT_METADATA default/manifest.ocdbt default/d/abc?", NULL, NULL,
         0, "orbax", SET_PLAUSIBLE, NULL},
	{"orbax without data", "100", "_CHECKPOINT_METADATA default/manifest.ocdbt", NULL, NULL, 0,
         "orbax", SET_HOLE, "default/d/"},
	{"orbax temporary", "100.orbax-checkpoint-tmp-17", "_CHECKPOINT_METADATA", NULL, NULL, 0,
         "orbax", SET_UNFINISHED, "100.orbax-checkpoint-tmp-17"},
	{"sharded Lightning", "epoch=1.ckpt", "__0_0.distcp=60 .metadata", "__0_0.distcp=60", NULL,
         0, "lightning_sharded", SET_WAITING, "meta.pt"},
	{"nothing known", "stuff", "a.raw? b.raw?", NULL, NULL, 0, "unknown", SET_PLAUSIBLE, NULL},
	{"only logs", "logs", "events.out.tfevents.1 train.log", NULL, NULL, 0, "unknown",
         SET_PLAUSIBLE, NULL},
};

/* "name" or "name:7", a pointer that says 7. */
static void build_beside(struct built *b, struct arena *a, const char *beside)
{
	struct str rest = str_of(beside), name = {0};

	build(b, a, "", NULL);
	if (!str_cut(&rest, ':', &name))
		return;
	add(b, name, NULL);
	b->facts[0].role = FORMAT_POINTER;
	b->facts[0].step = rest.n > 0 ? (int64_t)strtoull(rest.p, NULL, 10) : -1;
	b->check[0].facts = &b->facts[0];
}

static void set_cases(void **state UNUSED)
{
	static struct built b, beside;

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct set_result r;
		struct set_query q = {.name = cases[i].name, .world = cases[i].world};

		build(&b, a, cases[i].files, cases[i].needs);
		build_beside(&beside, a, cases[i].beside);
		q.file = b.file;
		q.n = b.n;
		q.beside = beside.file;
		q.n_beside = beside.n;
		set_check(a, &q, &r);
		if (r.state != cases[i].state || strcmp(r.layout->id, cases[i].layout) != 0)
			fail_msg("%s: %s %s: %s", cases[i].what, r.layout->id,
			         set_state_word(r.state), r.words);
		assert_true(r.words[0] != '\0');
		if (r.state == SET_UNFINISHED)
			assert_string_equal(r.unfinished, cases[i].path);
		else if (r.n_problems > 0)
			assert_string_equal(r.problem[0].path, cases[i].path);
		else if (r.last != NULL)
			assert_string_equal(r.last, cases[i].path);
		else
			assert_null(cases[i].path);
	}
}

/* What one node has is no hole of the checkpoint. */
static void set_part_of_several_nodes(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	static struct built b;
	struct set_query q = {.name = "checkpoint-5", .world = 16, .part = true};
	struct set_result r;

	build(&b, a, "rng_state_8.pth rng_state_9.pth rng_state_10.pth", NULL);
	q.file = b.file;
	q.n = b.n;
	set_check(a, &q, &r);
	assert_string_equal(r.layout->id, "hf_trainer");
	assert_int_equal(r.n_problems, 0);
	assert_true(r.state >= SET_PLAUSIBLE && !r.last_there);
}

static void set_sibling_names(void **state UNUSED)
{
	static const char *const old[] = {"global_step100/mp_rank_00_model_states.pt",
	                                  "model.safetensors", "train.log", "opt.pt"};
	static const struct {
		const char *files;
		bool same, fewer;
		enum set_state state;
	} tries[] = {
		{"global_step200/mp_rank_00_model_states.pt model.safetensors opt.pt", true, false,
	         SET_PROVEN},
		{"global_step200/mp_rank_00_model_states.pt model.safetensors", false, true,
	         SET_PLAUSIBLE},
		{"global_step200/mp_rank_00_model_states.pt model.safetensors opt.pt more.pt",
	         false, false, SET_PLAUSIBLE},
		{"global_step100/mp_rank_00_model_states.pt model.safetensors opt.pt", false, true,
	         SET_PLAUSIBLE},
	};

	for (size_t i = 0; i < COUNT(tries); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		static struct built b;
		struct set_query q = {.name = "run-200",
		                      .sibling = "run-100",
		                      .sibling_file = old,
		                      .n_sibling = COUNT(old)};
		struct set_result r;

		build(&b, a, tries[i].files, NULL);
		q.file = b.file;
		q.n = b.n;
		set_check(a, &q, &r);
		assert_row(r.same_names == tries[i].same && r.fewer_names == tries[i].fewer,
		           tries[i].files);
		assert_row(r.state == tries[i].state, tries[i].files);
	}
}

static void set_integrity(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	static struct built b;
	struct set_query q = {.name = "iter_0000100"};
	struct digest one = hash_sha256("1", 1), other = hash_sha256("2", 1);
	struct format_need *need;
	struct set_result r;

	build(&b, a, "common.pt integrity.json metadata.json", "common.pt");
	need = ARENA_ARRAY(a, struct format_need, 1);
	*need = (struct format_need){.path = "common.pt", .hashed = true, .sha256 = one};
	b.facts[1].need = need;
	q.file = b.file;
	q.n = b.n;
	set_check(a, &q, &r);
	assert_int_equal(r.state, SET_PLAUSIBLE); /* the file was not hashed yet */
	b.file[0].sha256 = &one;
	set_check(a, &q, &r);
	assert_int_equal(r.state, SET_PROVEN);
	b.file[0].sha256 = &other;
	set_check(a, &q, &r);
	assert_int_equal(r.state, SET_HOLE);
	assert_int_equal(r.problem[0].fault, SET_FAULT_CONTENT);
}

static void set_follow(void **state UNUSED)
{
	const struct set_layout *l = set_layout_by_id("hf_trainer");

	assert_non_null(l);
	assert_false(set_may_follow(l, "model.safetensors"));
	assert_null(set_layout_by_id("nothing"));
	for (size_t i = 0; (l = set_layout_row(i)) != NULL; i++)
		assert_true(l->id[0] != '\0' && l->title[0] != '\0');
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(set_cases),         cmocka_unit_test(set_part_of_several_nodes),
	cmocka_unit_test(set_sibling_names), cmocka_unit_test(set_integrity),
	cmocka_unit_test(set_follow),
};

UNIT_MAIN(tests)
