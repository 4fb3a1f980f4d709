/* test_inference.c - which engine serves a checkpoint, its command, and why there is none. */
#include "base/arena.h"
#include "base/json.h"
#include "core/inference.h"
#include "unit.h"

static const struct inference_places at = {
	.served = "mine", .checkpoint = "/models/mine", .base = "/models/base"};

/* The lines of Python in a command are one word here. */
static void without_program(const char *command, size_t n, struct buf *out)
{
	const char *from = memmem(command, n, "import ", strlen("import ")), *end;

	if (from == NULL) {
		buf_add(out, command, n);
		return;
	}
	end = strchr(from, '\'');
	assert_non_null(end);
	assert_true(end[-1] == '\n' && end[1] == ' ');
	buf_add(out, command, (size_t)(from - command));
	buf_puts(out, "PROGRAM");
	buf_add(out, end, n - (size_t)(end - command));
}

static void commands(void **state UNUSED)
{
	static const struct {
		const char *row;
		struct inference_facts f;
		enum inference_engine engine;
		const char *command; /* what stands behind the look for the engine */
	} rows[] = {
		{"whole model",
	         {.name = "c", .kind = "full", .config = true, .tokenizer = true},
	         INFERENCE_VLLM,
	         "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve '/models/mine' "
	         "--served-model-name 'mine' --host 127.0.0.1 --port \"$STOKER_SERVE_PORT\""},
		{"pickles",
	         {.name = "c",
	          .kind = "full",
	          .config = true,
	          .tokenizer = true,
	          .pickle = "pytorch_model.bin"},
	         INFERENCE_VLLM,
	         "echo 'pytorch_model.bin'' is a pickle, which can run code where it is loaded: "
	         "save the "
	         "model as safetensors' >&2; VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve "
	         "'/models/mine' --served-model-name 'mine' --host 127.0.0.1 --port "
	         "\"$STOKER_SERVE_PORT\""},
		{"pickles beside what is none",
	         {.name = "c",
	          .kind = "full",
	          .config = true,
	          .tokenizer = true,
	          .safetensors = true,
	          .pickle = "pytorch_model.bin"},
	         INFERENCE_VLLM,
	         "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve '/models/mine' "
	         "--served-model-name 'mine' --host 127.0.0.1 --port \"$STOKER_SERVE_PORT\""},
		{"without a tokenizer, on two GPUs",
	         {.name = "c",
	          .kind = "full",
	          .config = true,
	          .base_model = "Qwen/Qwen3-0.6B",
	          .chat_template = true,
	          .gpus = 2},
	         INFERENCE_VLLM,
	         "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve '/models/mine' "
	         "--served-model-name 'mine' --tokenizer '/models/base' --chat-template "
	         "'/models/mine'/chat_template.jinja --tensor-parallel-size 2 --host 127.0.0.1 "
	         "--port "
	         "\"$STOKER_SERVE_PORT\""},
		{"adapter",
	         {.name = "c", .kind = "lora", .base_model = "Qwen/Qwen3-0.6B", .lora_rank = 24},
	         INFERENCE_VLLM,
	         "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve '/models/base' "
	         "--served-model-name 'Qwen/Qwen3-0.6B' --enable-lora --max-lora-rank 32 "
	         "--lora-modules 'mine'='/models/mine' --host 127.0.0.1 --port "
	         "\"$STOKER_SERVE_PORT\""},
		{"adapter that is called as its base model",
	         {.name = "c", .kind = "lora", .base_model = "mine"},
	         INFERENCE_VLLM,
	         "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" exec vllm serve '/models/base' --enable-lora "
	         "--max-lora-rank 16 --lora-modules 'mine'='/models/mine' --host 127.0.0.1 --port "
	         "\"$STOKER_SERVE_PORT\""},
		{"by sglang",
	         {.name = "c", .kind = "full", .config = true, .tokenizer = true, .gpus = 4},
	         INFERENCE_SGLANG,
	         "exec python3 -c 'PROGRAM' --model-path '/models/mine' --served-model-name "
	         "'mine' --tp-size 4 --host 127.0.0.1 --port \"$STOKER_SERVE_PORT\""},
		{"gguf",
	         {.name = "c", .kind = "gguf", .gguf = "it's q4.gguf", .gpus = 1},
	         INFERENCE_LLAMA,
	         "LLAMA_API_KEY=\"$STOKER_SERVE_KEY\" exec llama-server --model "
	         "'/models/mine'/'it'\\''s q4.gguf' --alias 'mine' --n-gpu-layers 999 --host "
	         "127.0.0.1 "
	         "--port \"$STOKER_SERVE_PORT\""},
		{"gguf in parts, with a projector and an adapter, beside what they are made of",
	         {.name = "c",
	          .kind = "full",
	          .gguf = "m-00001-of-00003.gguf",
	          .gguf_lora = "lora.gguf",
	          .mmproj = "mmproj.gguf"},
	         INFERENCE_LLAMA,
	         "LLAMA_API_KEY=\"$STOKER_SERVE_KEY\" exec llama-server --model "
	         "'/models/mine'/'m-00001-of-00003.gguf' --mmproj '/models/mine'/'mmproj.gguf' "
	         "--lora '/models/mine'/'lora.gguf' --alias 'mine' --host 127.0.0.1 --port "
	         "\"$STOKER_SERVE_PORT\""},
		{"by transformers",
	         {.name = "c", .kind = "full", .config = true, .tokenizer = true, .gpus = 2},
	         INFERENCE_TRANSFORMERS,
	         "cd \"$BT_SCRATCH_DIR\" && ln -sfn '/models/mine' 'mine' && HF_HUB_OFFLINE=1 exec "
	         "python3 -c 'PROGRAM' serve 'mine' --host 127.0.0.1 --port "
	         "\"$STOKER_SERVE_PORT\""},
		{"by transformers, without a tokenizer",
	         {.name = "c", .kind = "full", .config = true, .base_model = "Qwen/Qwen3-0.6B"},
	         INFERENCE_TRANSFORMERS,
	         "cd \"$BT_SCRATCH_DIR\" && mkdir -p 'mine' && ln -sf '/models/base'/* 'mine'/ && "
	         "ln -sf '/models/mine'/* 'mine'/ && HF_HUB_OFFLINE=1 exec python3 -c 'PROGRAM' "
	         "serve 'mine' --host 127.0.0.1 --port \"$STOKER_SERVE_PORT\""},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(65536);
		AUTO_BUF struct buf command = BUF_INIT(65536);
		struct err err = {0};
		const char *from, *to;

		assert_ok(inference_check(&rows[i].f, rows[i].engine, &err), &err);
		inference_command(&rows[i].f, rows[i].engine, &at, &out);
		from = strstr(buf_cstr(&out), "; then ");
		to = strstr(buf_cstr(&out), "; exit; fi; echo '");
		assert_row(from != NULL && to != NULL && strstr(to, "exit 127") != NULL,
		           rows[i].row);
		from += strlen("; then ");
		without_program(from, (size_t)(to - from), &command);
		assert_string_equal(buf_cstr(&command), rows[i].command);
	}
}

static void several_adapters(void **state UNUSED)
{
	static const struct inference_adapter more[] = {{"b", "/models/adapter-2"},
	                                                {"c'd", "/models/adapter-3/rank-0"}};
	const struct inference_places all = {.served = "a",
	                                     .checkpoint = "/models/adapter-1",
	                                     .base = "/models/base",
	                                     .more = more,
	                                     .n_more = COUNT(more)};
	const struct inference_facts f = {
		.name = "a", .kind = "lora", .base_model = "a/b", .lora_rank = 24};
	AUTO_BUF struct buf out = BUF_INIT(65536);

	inference_command(&f, INFERENCE_VLLM, &all, &out);
	assert_non_null(strstr(buf_cstr(&out),
	                       "--max-loras 3 --enable-lora --max-lora-rank 32 --lora-modules "
	                       "'a'='/models/adapter-1' "
	                       "'b'='/models/adapter-2' 'c'\\''d'='/models/adapter-3/rank-0' "
	                       "--host"));
}

static void more_options(void **state UNUSED)
{
	static const char *const words[] = {"--max-model-len", "8192", "--x=it's"};
	struct inference_places with = at;
	const struct inference_facts f = {.name = "c", .kind = "full", .config = true};
	static const struct {
		const char *word;
		bool may;
	} rows[] = {{"--max-model-len", true},
	            {"--ports", true},
	            {"--hos", true},
	            {"host", true},
	            {"8192", true},
	            {"--", true},
	            {"", true},
	            {"--host", false},
	            {"--host=::", false},
	            {"--api_key", false},
	            {"--port", false}};
	AUTO_BUF struct buf out = BUF_INIT(65536);
	AUTO_FREE char *longest = xcalloc(INFERENCE_OPTION_MAX + 2, 1);
	struct err err = {0};

	with.option = words;
	with.n_options = COUNT(words);
	inference_command(&f, INFERENCE_VLLM, &with, &out);
	assert_non_null(strstr(buf_cstr(&out), " '--max-model-len' '8192' '--x=it'\\''s' --host "
	                                       "127.0.0.1 --port")); /* ours have the last word */
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (rows[i].may)
			assert_ok(inference_option_check(rows[i].word, &err), &err);
		else
			assert_err(inference_option_check(rows[i].word, &err), &err, ERR_INVALID,
			           "Stoker says where it listens");
		err_clear(&err);
	}
	memset(longest, 'x', INFERENCE_OPTION_MAX + 1);
	assert_err(inference_option_check(longest, &err), &err, ERR_INVALID, "bytes");
}

static void add_text(struct buf *b, const char *key, const char *value)
{
	const uint64_t n_key = strlen(key), n = strlen(value);

	buf_add(b, &n_key, 8);
	buf_puts(b, key);
	buf_add(b, "\10\0\0\0", 4);
	buf_add(b, &n, 8);
	buf_puts(b, value);
}

/* A file whose header is as llama.cpp's converters write it. type NULL: as old ones do. */
static void gguf(struct inference_facts *f, const char *path, const char *architecture,
                 const char *type)
{
	AUTO_BUF struct buf b = BUF_INIT(65536);

	buf_add(&b, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24);
	add_text(&b, "general.architecture", architecture);
	if (type != NULL)
		add_text(&b, "general.type", type);
	add_text(&b, "general.name", "general.type");
	inference_gguf(f, path, buf_view(&b));
}

static void what_gguf_files_are_for(void **state UNUSED)
{
	struct inference_facts f = {0}, cut = {0};

	gguf(&f, "imatrix.gguf", "llama", "imatrix");
	gguf(&f, "it's/lora.gguf", "llama", "adapter");
	gguf(&f, "mmproj-bf16.gguf", "clip", "mmproj");
	gguf(&f, "mmproj-f16.gguf", "clip", "mmproj");
	gguf(&f, "model.gguf", "llama", "model");
	assert_string_equal(f.gguf, "model.gguf");
	assert_string_equal(f.gguf_lora, "it's/lora.gguf");
	assert_string_equal(f.mmproj, "mmproj-bf16.gguf");
	assert_null(f.gguf_two[0]);
	gguf(&f, "z.gguf", "llama", NULL);
	assert_string_equal(f.gguf_two[0], "model.gguf");
	assert_string_equal(f.gguf_two[1], "z.gguf");
	f = (struct inference_facts){0};
	gguf(&f, "a.gguf", "clip", NULL);
	gguf(&f, "b.gguf", "llama", "adapter");
	gguf(&f, "c.gguf", "llama", "adapter");
	assert_string_equal(f.mmproj, "a.gguf");
	assert_null(f.gguf);
	assert_string_equal(f.gguf_two[1], "c.gguf");
	/* it ends within the value, within its length, at the key */
	inference_gguf(&cut, "a", str_n("general.type\10\0\0\0\7\0\0\0\0\0\0\0adapt", 29));
	inference_gguf(&cut, "b", str_n("general.type\10\0\0\0\7", 17));
	inference_gguf(&cut, "c", str_of("general.type"));
	assert_string_equal(cut.gguf, "a");
	assert_null(cut.gguf_lora);

	assert_false(inference_gguf_is_later(str_of("m-00001-of-00003.gguf")));
	assert_true(inference_gguf_is_later(str_of("x/m-00002-of-00003.gguf")));
	assert_true(inference_gguf_is_later(str_of("m-10001-of-12345.gguf")));
	assert_false(inference_gguf_is_later(str_of("m-2-of-3.gguf")));
	assert_false(inference_gguf_is_later(str_of("m.gguf")));
}

static void what_serves_it(void **state UNUSED)
{
	const struct inference_facts gguf = {.name = "c", .kind = "gguf", .gguf = "m.gguf"},
				     lora = {.name = "c", .kind = "lora", .base_model = "a/b"};
	enum inference_engine e = INFERENCE_SGLANG;
	struct err err = {0};

	assert_ok(inference_choose(&gguf, &e, &err), &err);
	assert_int_equal(e, INFERENCE_LLAMA);
	assert_ok(inference_choose(&lora, &e, &err), &err);
	assert_int_equal(e, INFERENCE_VLLM);
	assert_int_equal(inference_base(&lora, INFERENCE_VLLM), INFERENCE_BASE_WHOLE);
	assert_int_equal(inference_base(&gguf, INFERENCE_LLAMA), INFERENCE_BASE_NONE);
	for (int i = 0; i < INFERENCE_ENGINES; i++) {
		assert_true(inference_engine_of(str_of(inference_engine_word[i]), &e));
		assert_int_equal(e, i);
	}
	assert_false(inference_engine_of(str_of("tgi"), &e));
}

static void what_cannot_be_served(void **state UNUSED)
{
	static const struct {
		struct inference_facts f;
		enum inference_engine engine;
		const char *words;
	} rows[] = {
		{{.name = "c", .kind = "dcp"}, INFERENCE_VLLM, "dcp_to_torch"},
		{{.name = "c", .kind = "deepspeed"}, INFERENCE_VLLM, "zero_to_fp32.py"},
		{{.name = "c", .kind = "other"}, INFERENCE_VLLM, "save_pretrained()"},
		{{.name = "c", .kind = "logs"}, INFERENCE_VLLM, "has logs"},
		{{.name = "c", .kind = "full", .tokenizer = true},
	         INFERENCE_VLLM,
	         "no config.json"},
		{{.name = "c", .kind = "full", .config = true}, INFERENCE_VLLM, "no tokenizer"},
		{{.name = "c", .kind = "full", .config = true, .tokenizer = true},
	         INFERENCE_LLAMA,
	         "convert_hf_to_gguf.py"},
		{{.name = "c", .kind = "gguf", .gguf = "m.gguf"}, INFERENCE_VLLM, "llama.cpp"},
		{{.name = "c", .kind = "gguf"}, INFERENCE_LLAMA, "no model among its *.gguf"},
		{{.name = "c", .kind = "gguf", .gguf_lora = "l.gguf"},
	         INFERENCE_LLAMA,
	         "l.gguf, an adapter, and not the model"},
		{{.name = "c",
	          .kind = "gguf",
	          .gguf = "f16.gguf",
	          .gguf_two = {"f16.gguf", "q4.gguf"}},
	         INFERENCE_LLAMA,
	         "has f16.gguf and q4.gguf"},
		{{.name = "c", .kind = "whisper", .config = true, .tokenizer = true},
	         INFERENCE_SGLANG,
	         "only vllm"},
		{{.name = "c", .kind = "whisper", .config = true, .tokenizer = true},
	         INFERENCE_VLLM,
	         "no preprocessor_config.json"},
		{{.name = "c", .kind = "lora"}, INFERENCE_VLLM, "--base-model"},
		{{.name = "c", .kind = "lora", .base_model = "a/b", .lora_rank = 513},
	         INFERENCE_VLLM,
	         "rank 513"},
		{{.name = "c", .kind = "lora", .base_model = "/models/qwen"},
	         INFERENCE_VLLM,
	         "a folder of the job"},
		{{.name = "c", .kind = "lora", .base_model = "../qwen"},
	         INFERENCE_VLLM,
	         "a folder"},
		{{.name = "c", .kind = "lora", .base_model = "a/b/c"}, INFERENCE_VLLM, "a folder"},
		{{.name = "c", .kind = "lora", .base_model = "a'b/c"}, INFERENCE_VLLM, "a folder"},
		{{.name = "c", .kind = "lora", .base_model = "a/b"},
	         INFERENCE_SGLANG,
	         "MODEL:ADAPTER"},
		{{.name = "c", .kind = "lora", .base_model = "a/b"},
	         INFERENCE_TRANSFORMERS,
	         "merge_and_unload()"},
		{{.name = "c", .kind = "gguf", .gguf = "m.gguf"},
	         INFERENCE_TRANSFORMERS,
	         "use --engine llama.cpp"},
		{{.name = "c", .kind = "whisper", .config = true, .tokenizer = true},
	         INFERENCE_TRANSFORMERS,
	         "only vllm"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct err err = {0};

		assert_int_equal(inference_check(&rows[i].f, rows[i].engine, &err), -1);
		assert_int_equal(err.code, ERR_UNSUPPORTED);
		assert_row(strstr(err.msg, rows[i].words) != NULL, err.msg);
	}
}

static void adapters_that_vllm_refuses(void **state UNUSED)
{
	static const struct {
		const char *config, *words; /* NULL: it takes that */
	} rows[] = {
		{"{\"r\":8}", NULL},
		{"{\"use_dora\":false,\"modules_to_save\":null}", NULL},
		{"{\"modules_to_save\":[]}", NULL},
		{"{\"modules_to_save\":[\"score\"]}", NULL},
		{"{\"bias\":\"none\",\"lora_bias\":false,\"layer_replication\":null}", NULL},
		{"{\"init_lora_weights\":true}", NULL},
		{"{\"init_lora_weights\":\"gaussian\"}", NULL},
		{"{\"use_bdlora\":null,\"use_qalora\":false,\"alora_invocation_tokens\":null}",
	         NULL},
		{"{\"peft_type\":\"LORA\"}", NULL},
		{"{\"peft_type\":\"IA3\"}", "\"peft_type\" is not LORA"},
		{"{\"bias\":\"lora_only\"}", "\"bias\" is not \"none\""},
		{"{\"lora_bias\":true}", "\"lora_bias\" is true"},
		{"{\"layer_replication\":[[0,2]]}", "\"layer_replication\" is not empty"},
		{"{\"use_bdlora\":{\"nblocks\":2}}", "\"use_bdlora\" is not empty"},
		{"{\"use_qalora\":true}", "\"use_qalora\" is true"},
		{"{\"init_lora_weights\":\"pissa_niter_4\"}",
	         "\"init_lora_weights\" changes the base model"},
		{"{\"use_dora\":true}", "\"use_dora\" is true in adapter_config.json"},
		{"{\"modules_to_save\":[\"lm_head\"]}",
	         "\"modules_to_save\" is not empty in adapter_config.json"},
	};
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct doc *d = NULL;
		struct err err = {0};

		assert_ok(js_parse(a, str_of(rows[i].config), &d, &err), &err);
		assert_row((inference_adapter_check("c", d, &err) == 0) == (rows[i].words == NULL),
		           rows[i].config);
		if (rows[i].words == NULL)
			continue;
		assert_int_equal(err.code, ERR_UNSUPPORTED);
		assert_non_null(strstr(err.msg, rows[i].words));
		assert_non_null(strstr(err.msg, "merge_and_unload()"));
	}
}

static void activated_adapters(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err err = {0};

	assert_ok(js_parse(a, str_of("{\"alora_invocation_tokens\":[1]}"), &d, &err), &err);
	assert_int_equal(inference_adapter_check("c", d, &err), -1);
	assert_null(strstr(err.msg, "merge"));
	err_clear(&err);
	assert_ok(js_parse(a, str_of("{\"peft_type\":\"P_TUNING\"}"), &d, &err), &err);
	assert_int_equal(inference_adapter_check("c", d, &err), -1);
	assert_null(strstr(err.msg, "merge"));
}

static void ranks_of_modules(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err err = {0};

	assert_int_equal(inference_adapter_rank(NULL, 8), 8);
	assert_ok(js_parse(a, str_of("{\"rank_pattern\":{\"q_proj\":64,\"v_proj\":4}}"), &d, &err),
	          &err);
	assert_int_equal(inference_adapter_rank(d, 8), 64);
}

static void ranks(void **state UNUSED)
{
	static const struct {
		int64_t said, rank;
	} rows[] = {{0, 16}, {1, 8}, {8, 8}, {9, 16}, {20, 32}, {512, 512}, {513, 513}};

	for (size_t i = 0; i < COUNT(rows); i++)
		assert_int_equal(inference_lora_rank(rows[i].said), rows[i].rank);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(commands),
	cmocka_unit_test(several_adapters),
	cmocka_unit_test(more_options),
	cmocka_unit_test(what_gguf_files_are_for),
	cmocka_unit_test(what_serves_it),
	cmocka_unit_test(what_cannot_be_served),
	cmocka_unit_test(activated_adapters),
	cmocka_unit_test(ranks_of_modules),
	cmocka_unit_test(ranks),
	cmocka_unit_test(adapters_that_vllm_refuses),
};
UNIT_MAIN(tests)
