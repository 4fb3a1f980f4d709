/*
 * inference.h - a checkpoint as a served model: which inference engine can load it, and how that is
 * started. Its flags are in the manuals: docs.vllm.ai ("vllm serve"), docs.sglang.io ("Server
 * Arguments"), tools/server/README.md of llama.cpp, and `transformers serve --help`. What was run
 * with these command lines, or whose parser took them: vLLM 0.32 (its build for CPUs: a model, and
 * two adapters) and 0.33 (parser), SGLang 0.5.23 (up to its search for a GPU), llama-server of
 * build 10434, and transformers 5.24; the last two by tests. An engine listens at
 * 127.0.0.1:$STOKER_SERVE_PORT and takes $STOKER_SERVE_KEY as its API key, by a variable where it
 * reads one: an argument can be read by others. SGLang reads none, and `transformers serve` knows
 * no key: a few lines of Python before them do it.
 */
#ifndef INFERENCE_H
#define INFERENCE_H

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

enum inference_engine {
	INFERENCE_VLLM,
	INFERENCE_SGLANG,
	INFERENCE_LLAMA,
	INFERENCE_TRANSFORMERS, /* only where it is asked for */
	INFERENCE_ENGINES,
};
extern const char *const inference_engine_word[INFERENCE_ENGINES]; /* "vllm", "llama.cpp" */
bool inference_engine_of(struct str word, enum inference_engine *out);

struct inference_facts {
	const char *name; /* of the checkpoint, for messages */
	const char *kind; /* ckpt_kind_word() */
	bool config, tokenizer, chat_template;
	bool preprocessor; /* what makes numbers of sound and pictures */
	bool safetensors;
	const char *pickle; /* weights of which nothing is safetensors: "pytorch_model.bin" */
	/* Paths below the checkpoint, by inference_gguf(); NULL: none. */
	const char *gguf;        /* the model; of a split one its first file */
	const char *gguf_lora;   /* an adapter for it */
	const char *mmproj;      /* what makes tokens of pictures for it */
	const char *gguf_two[2]; /* models, or adapters: which is meant nobody knows */
	const char *base_model;  /* NULL: not known. Of a full model: where its tokenizer is */
	int64_t lora_rank;       /* 0 = not known */
	uint32_t gpus;
};

/* "x-00002-of-00003.gguf": the first file of a split model names the others. */
bool inference_gguf_is_later(struct str path);
/* Any other *.gguf of the checkpoint. What it is for is said by its header; path must live as long
 * as the facts. */
#define INFERENCE_GGUF_HEAD ((size_t)64 << 10) /* bytes of it that are looked at */
void inference_gguf(struct inference_facts *f, const char *path, struct str head);

/* What serves such a checkpoint by default. ERR_UNSUPPORTED: nothing does, and what would help. */
int inference_choose(const struct inference_facts *f, enum inference_engine *out,
                     struct err *err) MUST_CHECK;
/* Can this one? ERR_UNSUPPORTED names what is missing and how to get it. */
int inference_check(const struct inference_facts *f, enum inference_engine engine,
                    struct err *err) MUST_CHECK;
/* What this one needs of the base model beside the checkpoint. */
enum inference_base { INFERENCE_BASE_NONE, INFERENCE_BASE_TOKENIZER, INFERENCE_BASE_WHOLE };
enum inference_base inference_base(const struct inference_facts *f, enum inference_engine engine);
/* Is it the name of a repository, and no folder of the job that wrote it? */
bool inference_is_repo(const char *base_model);

struct inference_places {
	const char *served;                   /* what clients name as `model` */
	const char *checkpoint;               /* the folder that has it */
	const char *base;                     /* that of inference_base() */
	const struct inference_adapter *more; /* of the same base, for vLLM alone */
	size_t n_more;
	const char *const *option; /* more words for the engine, behind ours */
	size_t n_options;
};
struct inference_adapter {
	const char *served, *folder;
};
/* What adapter_config.json asks of vLLM that it refuses. ERR_UNSUPPORTED names the key, and what to
 * do instead. */
struct doc;
int inference_adapter_check(const char *name, const struct doc *config, struct err *err) MUST_CHECK;
/* The highest rank of its modules. said: that of those that "rank_pattern" does not name. */
int64_t inference_adapter_rank(const struct doc *config, int64_t said);
#define INFERENCE_LORA_RANK_MAX 512
/* The next one that vLLM takes; 0: the adapter does not say. */
int64_t inference_lora_rank(int64_t said);
#define INFERENCE_OPTIONS_MAX 100
#define INFERENCE_OPTION_MAX 4096 /* bytes of one */
/* May it be one of them? ERR_INVALID: it is Stoker's to say where the engine listens, and to whom.
 */
int inference_option_check(const char *word, struct err *err) MUST_CHECK;
/* One command for a POSIX shell, which says what to do when the engine is not there. */
void inference_command(const struct inference_facts *f, enum inference_engine engine,
                       const struct inference_places *at, struct buf *out);

#endif
