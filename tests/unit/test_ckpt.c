/* test_ckpt.c - tables of paths, facts and file names; the manifest there and back. */
#include "core/ckpt.h"
#include "core/ckpt_whole.h"
#include "unit.h"

static const struct {
	const char *path, *name;
} names[] = {
	{"model.bin", "."},
	{"", "."},
	{"merged/model.safetensors", "merged"},
	{"checkpoint-12/model.safetensors", "checkpoint-12"},
	{"checkpoint-12/global_step12/mp_rank_00_model_states.pt", "checkpoint-12"},
	{"run/checkpoint-12/a", "run/checkpoint-12"},
	{"run/x/my-checkpoint-12-3/a/b", "run/x/my-checkpoint-12-3"},
	{"run/checkpoint-12", "run/checkpoint-12"},
	{"checkpoint-/a", "checkpoint-"},
	{"a/checkpoint-x/b", "a"},
	{"a/checkpoint-12-/b", "a"},
	{"a/checkpoint-12x/b", "a"},
	{"a/step-3/b", "a/step-3"},
	{"a/step_3/b", "a/step_3"},
	{"a/global_step10/b", "a/global_step10"},
	{"a/epoch=2-step=300/b", "a/epoch=2-step=300"},
	{"a/iter_0000100/b", "a/iter_0000100"},
	{"a/ckpt7/b", "a/ckpt7"},
	{"a/stepping/b", "a"},
	{"a/steps-3/b", "a"},
	{"logs/events.out", "logs"},
	{"epoch=1-step=300.ckpt", "epoch=1-step=300.ckpt"},
	{"lightning_logs/version_0/checkpoints/epoch=1-step=300-v1.ckpt",
         "lightning_logs/version_0/checkpoints/epoch=1-step=300-v1.ckpt"},
	{"a/epoch=3-val_loss=0.23.ckpt", "a/epoch=3-val_loss=0.23.ckpt"},
	{"a/epoch=3-step=7.ckpt/meta.pt", "a/epoch=3-step=7.ckpt"},
	{"checkpoint-5.pth.tar", "checkpoint-5.pth.tar"},
	{"checkpoint-5/epoch=1.ckpt", "checkpoint-5"},
	{"last.ckpt", "."},
	{"ckpt_1000.pt", "."},
	{"checkpoint_3_rank0.pt", "."},
	{".ckpt", "."},
	{"300/default/d/x", "300"},
	{"run/300/default/d/x", "run/300"},
	{"run/checkpoints/300/x", "run/checkpoints/300"},
	{"run/embed/c/0/0", "run"},
	{"run/300", "run"},
	{"checkpoint_7", "checkpoint_7"},
	{"a/checkpoint_7", "a/checkpoint_7"},
	{"model-3.keras", "model-3.keras"},
	{"a/llama-q4-300.gguf", "a/llama-q4-300.gguf"},
	{"llama-q4.gguf", "."},
	{"a/llama-00001-of-00003.gguf", "a"},
	{"a/model-3.pt", "a"},
};

static void names_by_path(void **state UNUSED)
{
	char out[CKPT_NAME_MAX];

	for (size_t i = 0; i < COUNT(names); i++) {
		ckpt_name_of(str_of(names[i].path), out);
		if (strcmp(out, names[i].name) != 0)
			fail_msg("%s: %s", names[i].path, out);
	}
}

static void long_paths_fall_back(void **state UNUSED)
{
	AUTO_BUF struct buf path = BUF_INIT(10000);
	char out[CKPT_NAME_MAX];

	for (int i = 0; i < 600; i++)
		buf_putc(&path, 'x');
	buf_puts(&path, "/checkpoint-1/a");
	ckpt_name_of(buf_view(&path), out);
	assert_string_equal(out, ".");
	buf_clear(&path);
	buf_puts(&path, "top/");
	for (int i = 0; i < 600; i++)
		buf_putc(&path, 'x');
	buf_puts(&path, "/checkpoint-1/a");
	ckpt_name_of(buf_view(&path), out);
	assert_string_equal(out, "top");
}

static void one_order(void **state UNUSED)
{
	static const char *const sorted[] = {".",
	                                     "checkpoint",
	                                     "checkpoint-2",
	                                     "checkpoint-9",
	                                     "checkpoint-10",
	                                     "checkpoint-10-1",
	                                     "checkpoint-099999999999999999999",
	                                     "checkpoint-100000000000000000000",
	                                     "epoch=1-step=300",
	                                     "epoch=2-step=9",
	                                     "step-07",
	                                     "step-7",
	                                     "step-8"};

	for (size_t i = 0; i < COUNT(sorted); i++) {
		for (size_t k = 0; k < COUNT(sorted); k++) {
			int c = ckpt_name_cmp(sorted[i], sorted[k]);

			if ((i < k) != (c < 0) || (i == k) != (c == 0))
				fail_msg("%s and %s: %d", sorted[i], sorted[k], c);
		}
	}
	assert_true(ckpt_order(1, "b", 2, "a") < 0);
	assert_true(ckpt_order(2, "checkpoint-9", 2, "checkpoint-10") < 0);
	assert_true(ckpt_order(2, "a", 2, "a") == 0);
}

static const struct {
	const char *files, *config, *kind, *model;
	int64_t r;
} kinds[] = {
	{"a/optimizer.pt", NULL, "other", NULL, 0},
	{"a/adapter_config.json a/adapter_model.safetensors a/optimizer.pt",
         "{\"base_model_name_or_path\":\"Qwen/Q\",\"r\":16}", "lora", "Qwen/Q", 16},
	{"a/model.safetensors a/adapter_model.safetensors", NULL, "lora", NULL, 0},
	{"a/model-00001-of-00002.safetensors", "{\"_name_or_path\":\"x/y\",\"r\":3}", "full", "x/y",
         0},
	{"a/pytorch_model.bin", "{\"model_type\":\"whisper\"}", "whisper", NULL, 0},
	{"a/q4.gguf", NULL, "gguf", NULL, 0},
	{"a/.metadata a/__0_0.distcp", NULL, "dcp", NULL, 0},
	{"a/global_step3/mp_rank_00_model_states.pt", NULL, "deepspeed", NULL, 0},
	{"a/global_step3/mp_rank_00_model_states.pt a/model.safetensors", NULL, "full", NULL, 0},
};

static void tells_kinds(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(kinds); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct str rest = str_of(kinds[i].files), one;
		const struct doc *config = NULL;
		struct digest d = {{0}};
		struct ckpt c = {.name = "a"};
		struct err err = {0};

		manifest_init(&c.files, a);
		while (str_cut(&rest, ' ', &one))
			assert_ok(manifest_add(&c.files, one, 1, &d, &err), &err);
		assert_ok(manifest_finish(&c.files, &err), &err);
		if (kinds[i].config != NULL)
			assert_ok(js_parse(a, str_of(kinds[i].config), &config, &err), &err);
		ckpt_classify(&c, a, config);
		assert_row(strcmp(ckpt_kind_word(c.kind), kinds[i].kind) == 0, kinds[i].files);
		assert_row(c.lora_r == kinds[i].r, kinds[i].files);
		assert_row((c.base_model == NULL) == (kinds[i].model == NULL), kinds[i].files);
		if (kinds[i].model != NULL)
			assert_string_equal(c.base_model, kinds[i].model);
	}
}

static void manifest_round_trip(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(100000);
	struct digest d = hash_sha256("x", 1);
	struct ckpt back, c = {.name = "run/checkpoint-1",
	                       .job_id = "j",
	                       .rank = 2,
	                       .state = CKPT_INCOMPLETE,
	                       .kind = CKPT_LORA,
	                       .base_model = "b",
	                       .lora_r = 8,
	                       .created_ms = 5};
	struct err err = {0};

	manifest_init(&c.files, a);
	assert_ok(manifest_add(&c.files, STR_LIT("run/checkpoint-1/z"), 3, &d, &err), &err);
	assert_ok(manifest_add(&c.files, STR_LIT("run/checkpoint-1/a \"b\""), 4, &d, &err), &err);
	assert_ok(manifest_finish(&c.files, &err), &err);
	ckpt_write(&c, &out);
	assert_ok(ckpt_parse(&back, a, buf_view(&out), &err), &err);
	assert_string_equal(back.name, c.name);
	assert_int_equal(back.rank, 2);
	assert_int_equal(back.state, CKPT_INCOMPLETE);
	assert_int_equal(back.kind, CKPT_LORA);
	assert_int_equal(back.files.n, 2);
	assert_int_equal(back.files.bytes, 7);
	assert_string_equal(back.files.file[0].path, "run/checkpoint-1/a \"b\"");
	assert_true(digest_same(&back.files.file[1].sha256, &d));
}

/* Why it has its state, and what is known of its files, by path and not by place in a list. */
static void decision_round_trip(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(100000);
	struct digest d = hash_sha256("x", 1);
	struct ckpt_file about[] = {
		{.format = "safetensors", .whole = true, .checked_ms = 7},
		{.note = "lacks 2 tensors", .format = "torch zip", .checked_ms = 8},
		{.at = ckpt_revision_path(a, "c", 3, "c/c")},
	};
	struct ckpt back,
		c = {.name = "c",
	             .job_id = "j",
	             .state = CKPT_COMPLETE,
	             .rule = 4,
	             .reason = "complete: all",
	             .trainer = "T",
	             .marked_by = "ada",
	             .revision = 3,
	             .saved = {.began_ms = 5, .ended_ms = 6, .before_ms = 3, .written_ms = 9},
	             .about = about};
	struct err err = {0};

	manifest_init(&c.files, a);
	for (const char *p = "abc"; *p != '\0'; p++)
		assert_ok(manifest_add(&c.files, str_of(arena_printf(a, "c/%c", *p)), 1, &d, &err),
		          &err);
	assert_ok(manifest_finish(&c.files, &err), &err);
	ckpt_write(&c, &out);
	assert_ok(ckpt_parse(&back, a, buf_view(&out), &err), &err);
	assert_int_equal(back.rule, 4);
	assert_string_equal(back.reason, c.reason);
	assert_string_equal(back.trainer, "T");
	assert_string_equal(back.marked_by, "ada");
	assert_int_equal(back.revision, 3);
	assert_memory_equal(&back.saved, &c.saved, sizeof(c.saved));
	assert_true(back.about[0].whole);
	assert_string_equal(back.about[0].format, "safetensors");
	assert_int_equal(back.about[0].checked_ms, 7);
	assert_null(back.about[0].at);
	assert_false(back.about[1].whole);
	assert_string_equal(back.about[1].note, "lacks 2 tensors");
	assert_int_equal(back.about[2].checked_ms, 0);
	assert_string_equal(ckpt_file_key(a, "p", &back, 0), "p/rank-0/c/a");
	assert_string_equal(ckpt_file_key(a, "p", &back, 2),
	                    arena_printf(a, "p/rank-0/%s", about[2].at));
}

static void paths_that_can_be_stored(void **state UNUSED)
{
	static const struct {
		const char *path;
		bool ok;
	} paths[] = {
		{"checkpoint-1/model.safetensors", true},
		{"a b/ü \"q\"", true},
		{"a/.stoker/b", true},
		{".stokers/b", true},
		{"ck\033[31m/model", false},
		{"a/new\nline", false},
		{"a/\x7f", false},
		{"a/\xc2\x9b", false}, /* CSI in one character */
		{"a/\xff", false},
		{"a/\xc3", false},
		{"a//b", false},
		{"a/../b", false},
		{"/a", false},
		{"", false},
		{".stoker/x.json", false},
		{".stoker", false},
	};
	char path[CKPT_PATH_MAX + 2];

	for (size_t i = 0; i < COUNT(paths); i++)
		assert_row((ckpt_path_fault(str_of(paths[i].path)) == NULL) == paths[i].ok,
		           paths[i].path);
	memset(path, 'x', sizeof(path));
	for (size_t i = 100; i < CKPT_PATH_MAX; i += 101)
		path[i] = '/';
	assert_null(ckpt_path_fault(str_n(path, CKPT_PATH_MAX)));
	assert_non_null(ckpt_path_fault(str_n(path, CKPT_PATH_MAX + 1)));
}

static const struct {
	const char *json, *words;
} bad[] = {
	{"[]", "version"},
	{"{\"version\":2}", "version"},
	{"{\"version\":1,\"rank\":0}", "name"},
	{"{\"version\":1,\"name\":\"a\",\"job_id\":\"j\",\"rank\":-1}", "rank"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"DONE\"}", "DONE"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"COMPLETE\",\"kind\":\"odd\"}",
         "odd"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"COMPLETE\",\"kind\":\"full\"}",
         "files"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"COMPLETE\",\"kind\":\"full\","
         "\"files\":[{\"path\":\"../x\",\"size\":1,\"sha256\":\"00\"}]}",
         "sha256"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"COMPLETE\",\"kind\":\"full\","
         "\"files\":[{\"path\":\"../x\",\"size\":1,\"sha256\":"
         "\"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"}]}",
         "files"},
	{"{\"version\":1,\"name\":\"a\",\"rank\":0,\"state\":\"COMPLETE\",\"kind\":\"full\","
         "\"files\":[{\"path\":\"x\",\"size\":1,\"at\":\"../../other/rank-0/x\",\"sha256\":"
         "\"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"}]}",
         "at:"},
};

static void refuses_manifests(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(bad); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct ckpt c;
		struct err err = {0};

		assert_row(ckpt_parse(&c, a, str_of(bad[i].json), &err) < 0, bad[i].json);
		assert_row(strstr(err.msg, bad[i].words) != NULL, bad[i].json);
	}
}

#define SUM "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
#define PART(rank, key, more)                                                                      \
	"{\"rank\":" rank ",\"manifest\":\"" key "\",\"files_sha256\":\"" SUM                      \
	"\",\"revision\":2,\"since\":1," more "\"files\":3,\"bytes\":9}"
#define WHOLE(parts)                                                                               \
	"{\"version\":1,\"name\":\"a\",\"job_id\":\"j\",\"state\":\"COMPLETE\",\"rule\":4,"        \
	"\"reason\":\"r\",\"marked_by\":null,\"created_ms\":5,\"parts\":[" parts "]}"

/* As they were written by hand; and what is wrong with one, by name. */
static void manifests_of_all_nodes(void **state UNUSED)
{
	static const struct {
		const char *json, *words; /* NULL: it is read */
	} rows[] = {
		{WHOLE(PART("0", "k0", "") "," PART("2", "k2", "\"ended_ms\":7,")), NULL},
		{WHOLE(PART("2", "k2", "") "," PART("0", "k0", "")), "order of ranks"},
		{WHOLE(PART("-1", "k", "")), "rank"},
		{WHOLE(PART("0", "", "")), "manifest: a key"},
		{WHOLE(""), "a list of 1 to"},
		{"{\"version\":2}", "version: 1 is expected"},
		{"{\"version\":1,\"name\":\"a\"}", "job_id"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_BUF struct buf out = BUF_INIT(10000);
		struct ckpt_whole w;
		struct err err = {0};
		int r = ckpt_whole_parse(&w, a, str_of(rows[i].json), &err);

		assert_row((r < 0) == (rows[i].words != NULL), rows[i].json);
		assert_row(r == 0 || strstr(err.msg, rows[i].words) != NULL, rows[i].json);
		if (r < 0)
			continue;
		ckpt_whole_write(&w, &out);
		assert_ok(ckpt_whole_parse(&w, a, buf_view(&out), &err), &err);
		assert_int_equal(w.n_parts, 2);
		assert_true(w.part[0].ended_ms == 0 && w.part[1].ended_ms == 7);
		assert_string_equal(ckpt_whole_part(&w, 2)->manifest, "k2");
		assert_int_equal(w.part[1].sha256.b[0], 0x2d);
	}
}

static void keys(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	char *p = ckpt_prefix(a, "p1", "j1"), *key, name[CKPT_NAME_MAX];
	struct digest set = {0};

	assert_string_equal(p, "training_projects/p1/jobs/j1");
	assert_string_equal(ckpt_object_key(a, p, 3, "checkpoint-1/a"),
	                    "training_projects/p1/jobs/j1/rank-3/checkpoint-1/a");
	assert_string_equal(
		ckpt_manifest_key(a, p, 0, "run%/checkpoint-1"),
		"training_projects/p1/jobs/j1/rank-0/.stoker/run%25%2Fcheckpoint-1.json");
	/* a name of any length is that of one file */
	memset(name, '/', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	key = strrchr(ckpt_manifest_key(a, p, 0, name), '/') + 1;
	assert_true(strlen(key) < 255);
	name[sizeof(name) - 2] = 'x';
	assert_string_not_equal(strrchr(ckpt_manifest_key(a, p, 0, name), '/') + 1, key);
	assert_true(str_starts(str_of(ckpt_revision_path(a, "n", 2, "n/x")),
	                       ckpt_revision_folder(a, "n")));
	assert_true(
		str_starts(str_of(ckpt_kept_path(a, "n", &set, "n/x")), ckpt_kept_folder(a, "n")));
	assert_string_not_equal(ckpt_kept_path(a, "n", &set, "n/x"),
	                        ckpt_kept_path(a, "n", &set, NULL));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(names_by_path),
	cmocka_unit_test(long_paths_fall_back),
	cmocka_unit_test(one_order),
	cmocka_unit_test(tells_kinds),
	cmocka_unit_test(manifest_round_trip),
	cmocka_unit_test(refuses_manifests),
	cmocka_unit_test(manifests_of_all_nodes),
	cmocka_unit_test(keys),
	cmocka_unit_test(decision_round_trip),
	cmocka_unit_test(paths_that_can_be_stored),
};
UNIT_MAIN(tests)
