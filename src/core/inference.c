/* inference.c - see inference.h. */
#include "core/inference.h"

#include "core/ckpt.h"

#define LORA_RANK 16 /* of an adapter that does not say */

const char *const inference_engine_word[INFERENCE_ENGINES] = {
	[INFERENCE_VLLM] = "vllm",
	[INFERENCE_SGLANG] = "sglang",
	[INFERENCE_LLAMA] = "llama.cpp",
	[INFERENCE_TRANSFORMERS] = "transformers",
};

/* In single quotes below: without one. */
static const struct {
	const char *there;     /* succeeds where it is installed */
	const char *help;      /* where it is not */
	const char *variables; /* "NAME=VALUE " before the program */
	const char *program;
} engines[INFERENCE_ENGINES] = {
	[INFERENCE_VLLM] = {"command -v vllm >/dev/null",
                            "deploy with --image vllm/vllm-openai:latest, or install it on the "
                            "machine",
                            "VLLM_API_KEY=\"$STOKER_SERVE_KEY\" ", "vllm"},
	[INFERENCE_SGLANG] = {"python3 -c 'from importlib.util import find_spec as f; "
                              "assert f(\"sglang\")' 2>/dev/null",
                              "deploy with --image lmsysorg/sglang:latest, or install it for "
                              "python3 on the machine",
                              "", "python3"},
	/* Its own image has it outside of the PATH. */
	[INFERENCE_LLAMA] = {"PATH=\"$PATH:/app\" && command -v llama-server >/dev/null",
                             "deploy with --image ghcr.io/ggml-org/llama.cpp:server, or install "
                             "it on the machine",
                             "LLAMA_API_KEY=\"$STOKER_SERVE_KEY\" ", "llama-server"},
	/* 5.5 is the first that takes the model as an argument. Its metadata is read in no time,
         * itself in seconds. */
	[INFERENCE_TRANSFORMERS] =
		{"python3 -c 'from importlib.metadata import version as v; v(\"fastapi\"); "
                 "v(\"uvicorn\"); assert [int(n) for n in v(\"transformers\").split(\".\")[:2]] "
                 ">= [5, 5]' 2>/dev/null",
                 "deploy with --image IMAGE that has \"transformers[serving]>=5.5\", or install "
                 "that for python3 on the machine",
                 "HF_HUB_OFFLINE=1 ", "python3"},
};

/* SGLang takes its key as an argument alone, which other users of the machine can read: one is made
 * of the variable where nobody sees it. */
static const char sglang_with_key[] =
	"import os, runpy, sys\n"
	"sys.argv += [\"--api-key\", os.environ[\"STOKER_SERVE_KEY\"]]\n"
	"runpy.run_module(\"sglang.launch_server\", run_name=\"__main__\")\n";

/* `transformers serve` behind a look at the key. It hands its application to uvicorn. */
static const char transformers_with_key[] =
	"import hmac, os, uvicorn\n"
	"from importlib.metadata import entry_points\n"
	"key = b\"Bearer \" + os.environb[b\"STOKER_SERVE_KEY\"]\n"
	"class Config(uvicorn.Config):\n"
	"    def __init__(self, app, **options):\n"
	"        async def asked(scope, receive, send):\n"
	"            given = dict(scope.get(\"headers\", ())).get(b\"authorization\", b\"\")\n"
	"            if scope[\"type\"] == \"lifespan\" or hmac.compare_digest(given, key):\n"
	"                return await app(scope, receive, send)\n"
	"            await send({\"type\": \"http.response.start\", \"status\": 401})\n"
	"            await send({\"type\": \"http.response.body\"})\n"
	"        super().__init__(asked, **options)\n"
	"uvicorn.Config = Config\n"
	"[command] = entry_points(group=\"console_scripts\", name=\"transformers\")\n"
	"command.load()()\n";

/* Kinds that no engine loads, and what makes one of them that some do. */
static const struct {
	enum ckpt_kind kind;
	const char *what, *help;
} shards[] = {
	{CKPT_DCP, "shards of torch.distributed.checkpoint",
         "merge them with `python -m torch.distributed.checkpoint.format_utils dcp_to_torch "
         "CHECKPOINT out.pt` and save the model with save_pretrained()"},
	{CKPT_DEEPSPEED, "shards of DeepSpeed",
         "merge them with `python zero_to_fp32.py CHECKPOINT OUT --safe_serialization`; DeepSpeed "
         "has put that script beside them"},
	{CKPT_OTHER, "nothing that an engine can load",
         "save the model with save_pretrained(), an adapter with PEFT, or as *.gguf"},
	{CKPT_LOGS, "logs", "name a checkpoint that has weights"},
};

bool inference_engine_of(struct str word, enum inference_engine *out)
{
	for (int i = 0; i < INFERENCE_ENGINES; i++) {
		if (!str_eq(word, inference_engine_word[i]))
			continue;
		*out = (enum inference_engine)i;
		return true;
	}
	return false;
}

static bool is(const struct inference_facts *f, enum ckpt_kind kind)
{
	return f->kind != NULL && strcmp(f->kind, ckpt_kind_word(kind)) == 0;
}

/* The value of a key of a GGUF header, when it is a text and among the first ones. */
static struct str gguf_text(struct str head, const char *key)
{
	static const char is_text[4] = {8, 0, 0, 0};
	size_t n = strlen(key);
	const char *p = head.p, *end = head.p + head.n;

	while (p != NULL && (p = memmem(p, (size_t)(end - p), key, n)) != NULL) {
		uint64_t value = 0;

		p += n;
		if ((size_t)(end - p) < sizeof(is_text) + sizeof(value) ||
		    memcmp(p, is_text, sizeof(is_text)) != 0)
			continue;
		p += sizeof(is_text);
		for (size_t i = sizeof(value); i-- > 0;)
			value = value << 8 | (uint8_t)p[i];
		p += sizeof(value);
		if (value <= (size_t)(end - p))
			return str_n(p, (size_t)value);
	}
	return str_of(NULL);
}

bool inference_gguf_is_later(struct str path)
{
	static const char form[] = "-00000-of-00000.gguf";
	const size_t n = sizeof(form) - 1;
	struct str end = str_skip(path, path.n - MIN(path.n, n));

	if (end.n < n || str_starts(end, "-00001"))
		return false;
	for (size_t i = 0; i < n; i++)
		if (form[i] == '0' ? end.p[i] < '0' || end.p[i] > '9' : end.p[i] != form[i])
			return false;
	return true;
}

void inference_gguf(struct inference_facts *f, const char *path, struct str head)
{
	struct str type = gguf_text(head, "general.type");
	const char **place = &f->gguf;

	if (str_eq(type, "imatrix")) /* of a quantization that was made */
		return;
	if (str_eq(type, "adapter"))
		place = &f->gguf_lora;
	/* the second is how it was said before */
	else if (str_eq(type, "mmproj") || str_eq(gguf_text(head, "general.architecture"), "clip"))
		place = &f->mmproj;
	if (*place == NULL) {
		*place = path;
	} else if (place != &f->mmproj) {
		f->gguf_two[0] = *place;
		f->gguf_two[1] = path;
	}
}

static int check_kind(const struct inference_facts *f, struct err *err)
{
	for (size_t i = 0; i < COUNT(shards); i++) {
		if (is(f, shards[i].kind))
			return err_set(err, ERR_UNSUPPORTED,
			               "checkpoint %s has %s, so it cannot be served: %s", f->name,
			               shards[i].what, shards[i].help);
	}
	return 0;
}

int inference_choose(const struct inference_facts *f, enum inference_engine *out, struct err *err)
{
	*out = is(f, CKPT_GGUF) ? INFERENCE_LLAMA : INFERENCE_VLLM;
	return check_kind(f, err);
}

bool inference_is_repo(const char *base_model)
{
	const char *slash = base_model == NULL ? NULL : strchr(base_model, '/');

	return base_model != NULL && base_model[0] != '\0' && base_model[0] != '/' &&
	       base_model[0] != '.' && base_model[0] != '~' &&
	       (slash == NULL || (slash[1] != '\0' && strchr(slash + 1, '/') == NULL)) &&
	       strspn(base_model, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	                          "-_./") == strlen(base_model);
}

enum inference_base inference_base(const struct inference_facts *f, enum inference_engine engine)
{
	if (engine == INFERENCE_LLAMA)
		return INFERENCE_BASE_NONE;
	if (is(f, CKPT_LORA))
		return INFERENCE_BASE_WHOLE;
	return f->tokenizer ? INFERENCE_BASE_NONE : INFERENCE_BASE_TOKENIZER;
}

static int check_gguf(const struct inference_facts *f, struct err *err)
{
	if (f->gguf_two[0] != NULL)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s has %.200s and %.200s, and llama.cpp serves one of them: "
			"save each into a checkpoint of its own, or name one with --command",
			f->name, f->gguf_two[0], f->gguf_two[1]);
	if (f->gguf != NULL)
		return 0;
	if (f->gguf_lora != NULL)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s has %.200s, an adapter, and not the model that it adapts: "
			"save that as *.gguf beside it, or merge them with llama-export-lora",
			f->name, f->gguf_lora);
	return err_set(err, ERR_UNSUPPORTED,
	               is(f, CKPT_GGUF)
	                       ? "checkpoint %s has no model among its *.gguf files, which %s "
	                         "needs: save that beside them"
	                       : "checkpoint %s has no *.gguf file, which %s needs: convert it "
	                         "with llama.cpp's convert_hf_to_gguf.py, or use --engine vllm",
	               f->name, inference_engine_word[INFERENCE_LLAMA]);
}

static const struct doc *listed(const struct doc *d)
{
	return doc_is(d, DOC_LIST) || doc_is(d, DOC_MAP) ? doc_first(d) : NULL;
}

/* By vLLM's look at an adapter, vllm/lora/peft_helper.py. Initializations that change the base
 * model are refused, too; a list of those that do not. */
static const char *refused_by_vllm(const struct doc *config)
{
	static const char *const inits[] = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"};
	const struct doc *init = doc_get(config, "init_lora_weights");
	bool plain = !doc_is(init, DOC_TEXT);

	for (size_t i = 0; i < COUNT(inits) && !plain; i++)
		plain = str_ieq(doc_text(init), inits[i]);
	DOC_EACH (m, doc_get(config, "modules_to_save")) {
		if (!str_eq(doc_text(m), "classifier") && !str_eq(doc_text(m), "score"))
			return "\"modules_to_save\" is not empty";
	}
	if (doc_bool(doc_get(config, "use_dora"), false))
		return "\"use_dora\" is true";
	if (doc_is(doc_get(config, "bias"), DOC_TEXT) &&
	    !str_eq(doc_text(doc_get(config, "bias")), "none"))
		return "\"bias\" is not \"none\"";
	if (doc_bool(doc_get(config, "lora_bias"), false))
		return "\"lora_bias\" is true";
	if (listed(doc_get(config, "layer_replication")) != NULL)
		return "\"layer_replication\" is not empty";
	if (listed(doc_get(config, "use_bdlora")) != NULL)
		return "\"use_bdlora\" is not empty";
	if (doc_bool(doc_get(config, "use_qalora"), false))
		return "\"use_qalora\" is true";
	return plain ? NULL : "\"init_lora_weights\" changes the base model";
}

/* PEFT's kinds of adapters that are no weights to be added. */
static bool is_prompt(struct str type)
{
	static const char *const types[] = {"PROMPT_TUNING",    "MULTITASK_PROMPT_TUNING",
	                                    "P_TUNING",         "PREFIX_TUNING",
	                                    "ADAPTION_PROMPT",  "CPT",
	                                    "TRAINABLE_TOKENS", "CARTRIDGE"};

	for (size_t i = 0; i < COUNT(types); i++)
		if (str_ieq(type, types[i]))
			return true;
	return false;
}

int inference_adapter_check(const char *name, const struct doc *config, struct err *err)
{
	struct str type = doc_text(doc_get(config, "peft_type"));
	const char *why = refused_by_vllm(config);

	if (is_prompt(type))
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s: \"peft_type\" is %.40s in adapter_config.json, and "
		               "vllm takes LoRA adapters alone: start a server that loads it with "
		               "--command",
		               name, type.p);
	if (type.n > 0 && !str_ieq(type, "LORA"))
		why = "\"peft_type\" is not LORA";
	if (listed(doc_get(config, "alora_invocation_tokens")) != NULL)
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s: \"alora_invocation_tokens\" is not empty in "
		               "adapter_config.json, and vllm takes no activated adapter: start a "
		               "server that does with --command",
		               name);
	if (why == NULL)
		return 0;
	return err_set(
		err, ERR_UNSUPPORTED,
		"checkpoint %s: %s in adapter_config.json, and vllm takes no such adapter: merge "
		"it into its base model and deploy that, with `python3 -c \"from peft import "
		"AutoPeftModelForCausalLM as M; "
		"M.from_pretrained('CHECKPOINT').merge_and_unload()."
		"save_pretrained('OUT')\"`, and save the tokenizer beside it",
		name, why);
}

int64_t inference_adapter_rank(const struct doc *config, int64_t said)
{
	int64_t rank = said;

	DOC_EACH (r, doc_get(config, "rank_pattern"))
		rank = MAX(rank, doc_int(r, 0));
	return rank;
}

int inference_check(const struct inference_facts *f, enum inference_engine engine, struct err *err)
{
	enum inference_base base = inference_base(f, engine);

	if (check_kind(f, err) < 0)
		return -1;
	if (engine == INFERENCE_LLAMA)
		return check_gguf(f, err);
	if (is(f, CKPT_GGUF))
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s is a GGUF file, which %s does not load: use "
		               "--engine llama.cpp",
		               f->name, inference_engine_word[engine]);
	if (is(f, CKPT_WHISPER) && engine != INFERENCE_VLLM)
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s is a Whisper model: only vllm serves it", f->name);
	if (is(f, CKPT_WHISPER) && f->config && !f->preprocessor)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s has no preprocessor_config.json, which says what becomes "
			"of sound: save it with processor.save_pretrained()",
			f->name);
	if (is(f, CKPT_LORA) && engine == INFERENCE_SGLANG)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s is an adapter, and sglang answers from the base model "
			"alone unless clients ask for MODEL:ADAPTER: use --engine vllm",
			f->name);
	if (is(f, CKPT_LORA) && engine == INFERENCE_TRANSFORMERS)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s is an adapter, and transformers serves whole models: use "
			"--engine vllm, or save what merge_and_unload() returns",
			f->name);
	if (is(f, CKPT_LORA) && f->lora_rank > INFERENCE_LORA_RANK_MAX)
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s is an adapter of rank %" PRId64 ", and vllm takes "
		               "up to %d: save what merge_and_unload() returns",
		               f->name, f->lora_rank, INFERENCE_LORA_RANK_MAX);
	if (base != INFERENCE_BASE_WHOLE && !f->config)
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s has no config.json, so no engine knows what its weights "
			"are: save the model with save_pretrained()",
			f->name);
	if (base == INFERENCE_BASE_NONE || inference_is_repo(f->base_model))
		return 0;
	if (f->base_model != NULL && f->base_model[0] != '\0')
		return err_set(
			err, ERR_UNSUPPORTED,
			"checkpoint %s names %.200s as its base model, a folder of the job that "
			"wrote it: name its repository with --base-model OWNER/NAME",
			f->name, f->base_model);
	return err_set(
		err, ERR_UNSUPPORTED,
		base == INFERENCE_BASE_WHOLE
			? "checkpoint %s is an adapter that names no base model: name its "
			  "repository with --base-model OWNER/NAME"
			: "checkpoint %s has no tokenizer: save it with "
			  "tokenizer.save_pretrained(), or name a repository that has it with "
			  "--base-model OWNER/NAME",
		f->name);
}

static void flag(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, " %s ", name);
	buf_shell(out, value);
}

int64_t inference_lora_rank(int64_t said)
{
	static const int64_t allowed[] = {8, 16, 32, 64, 128, 256, 320, INFERENCE_LORA_RANK_MAX};
	int64_t least = said > 0 ? said : LORA_RANK;

	for (size_t i = 0; i < COUNT(allowed); i++)
		if (allowed[i] >= least)
			return allowed[i];
	return least;
}

static void chat_template(const struct inference_facts *f, const struct inference_places *at,
                          struct buf *out)
{
	if (!f->chat_template)
		return;
	buf_puts(out, " --chat-template ");
	buf_shell(out, at->checkpoint);
	buf_puts(out, "/chat_template.jinja");
}

static bool is_served(const struct inference_places *at, const char *name)
{
	for (size_t i = 0; i < at->n_more; i++)
		if (strcmp(at->more[i].served, name) == 0)
			return true;
	return strcmp(at->served, name) == 0;
}

static void vllm(const struct inference_facts *f, const struct inference_places *at,
                 struct buf *out)
{
	bool lora = is(f, CKPT_LORA);

	buf_puts(out, " serve ");
	buf_shell(out, lora ? at->base : at->checkpoint);
	if (lora) {
		/* the base model is in the list of models, too: not by its folder here */
		if (!is_served(at, f->base_model))
			flag(out, "--served-model-name", f->base_model);
		/* in one batch, or those of one adapter would wait for those of another */
		if (at->n_more > 0)
			buf_printf(out, " --max-loras %zu", at->n_more + 1);
		buf_printf(out, " --enable-lora --max-lora-rank %" PRId64 " --lora-modules ",
		           inference_lora_rank(f->lora_rank));
		buf_shell(out, at->served);
		buf_putc(out, '=');
		buf_shell(out, at->checkpoint);
		for (size_t i = 0; i < at->n_more; i++) {
			buf_putc(out, ' ');
			buf_shell(out, at->more[i].served);
			buf_putc(out, '=');
			buf_shell(out, at->more[i].folder);
		}
	} else {
		flag(out, "--served-model-name", at->served);
	}
	if (inference_base(f, INFERENCE_VLLM) == INFERENCE_BASE_TOKENIZER)
		flag(out, "--tokenizer", at->base);
	chat_template(f, at, out);
	if (f->gpus > 1)
		buf_printf(out, " --tensor-parallel-size %" PRIu32, f->gpus);
}

static void sglang(const struct inference_facts *f, const struct inference_places *at,
                   struct buf *out)
{
	flag(out, "--model-path", at->checkpoint);
	flag(out, "--served-model-name", at->served);
	if (inference_base(f, INFERENCE_SGLANG) == INFERENCE_BASE_TOKENIZER)
		flag(out, "--tokenizer-path", at->base);
	chat_template(f, at, out);
	if (f->gpus > 1)
		buf_printf(out, " --tp-size %" PRIu32, f->gpus);
}

static void gguf(const char *name, const char *path, const struct inference_places *at,
                 struct buf *out)
{
	if (path == NULL)
		return;
	flag(out, name, at->checkpoint);
	buf_putc(out, '/');
	buf_shell(out, path);
}

static void llama(const struct inference_facts *f, const struct inference_places *at,
                  struct buf *out)
{
	gguf("--model", f->gguf, at, out);
	gguf("--mmproj", f->mmproj, at, out);
	gguf("--lora", f->gguf_lora, at, out);
	flag(out, "--alias", at->served);
	if (f->gpus > 0)
		buf_puts(out, " --n-gpu-layers 999");
}

/*
 * It serves under the name that it loads from, so the checkpoint is linked into a folder of the job
 * by that name, with the base model's files where it has none of its own.
 */
static void transformers_folder(const struct inference_facts *f, const struct inference_places *at,
                                struct buf *out)
{
	buf_puts(out, "cd \"$BT_SCRATCH_DIR\" && ");
	if (inference_base(f, INFERENCE_TRANSFORMERS) == INFERENCE_BASE_NONE) {
		buf_puts(out, "ln -sfn ");
		buf_shell(out, at->checkpoint);
		buf_putc(out, ' ');
		buf_shell(out, at->served);
		buf_puts(out, " && ");
		return;
	}
	buf_puts(out, "mkdir -p ");
	buf_shell(out, at->served);
	for (int own = 0; own < 2; own++) {
		buf_puts(out, " && ln -sf ");
		buf_shell(out, own ? at->checkpoint : at->base);
		buf_puts(out, "/* ");
		buf_shell(out, at->served);
		buf_putc(out, '/');
	}
	buf_puts(out, " && ");
}

/* Words of all engines. Each parser takes '_' for '-', or knows no such option. */
int inference_option_check(const char *word, struct err *err)
{
	static const char *const ours[] = {"--host",         "--port",         "--api-key",
	                                   "--api-key-file", "--uds",          "--ssl-keyfile",
	                                   "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file"};
	char name[32];

	if (strlen(word) > INFERENCE_OPTION_MAX)
		return err_set(err, ERR_INVALID, "an option of the engine has more than %d bytes",
		               INFERENCE_OPTION_MAX);
	copy_cut(name, sizeof(name), word);
	name[strcspn(name, "=")] = '\0';
	for (char *p = name; *p != '\0'; p++)
		*p = *p == '_' ? '-' : *p;
	for (size_t i = 0; i < COUNT(ours) && strncmp(word, "--", 2) == 0; i++) {
		if (strcmp(name, ours[i]) == 0)
			return err_set(err, ERR_INVALID,
			               "%s is not for the engine: Stoker says where it listens, "
			               "and with which key. A command of yours has "
			               "$STOKER_SERVE_PORT and $STOKER_SERVE_KEY",
			               ours[i]);
	}
	return 0;
}

void inference_command(const struct inference_facts *f, enum inference_engine engine,
                       const struct inference_places *at, struct buf *out)
{
	assert(engine != INFERENCE_LLAMA || f->gguf != NULL);
	assert(at->n_more == 0 || (engine == INFERENCE_VLLM && is(f, CKPT_LORA)));
	/* what the engine gets is at the start, where messages about the job show it */
	buf_printf(out, "if %s; then ", engines[engine].there);
	if (f->pickle != NULL && !f->safetensors) {
		buf_puts(out, "echo ");
		buf_shell(out, f->pickle);
		buf_puts(out,
		         "' is a pickle, which can run code where it is loaded: save the model as "
		         "safetensors' >&2; ");
	}
	if (engine == INFERENCE_TRANSFORMERS)
		transformers_folder(f, at, out);
	buf_printf(out, "%sexec %s", engines[engine].variables, engines[engine].program);
	switch (engine) {
	case INFERENCE_VLLM:
		vllm(f, at, out);
		break;
	case INFERENCE_SGLANG:
		flag(out, "-c", sglang_with_key);
		sglang(f, at, out);
		break;
	case INFERENCE_LLAMA:
		llama(f, at, out);
		break;
	case INFERENCE_TRANSFORMERS:
		flag(out, "-c", transformers_with_key);
		flag(out, "serve", at->served);
		break;
	case INFERENCE_ENGINES:
		abort();
	}
	for (size_t i = 0; i < at->n_options; i++) {
		buf_putc(out, ' ');
		buf_shell(out, at->option[i]);
	}
	buf_printf(out,
	           " --host 127.0.0.1 --port \"$STOKER_SERVE_PORT\"; exit; fi; "
	           "echo '%s is not installed where this job runs: %s' >&2; exit 127",
	           inference_engine_word[engine], engines[engine].help);
}
