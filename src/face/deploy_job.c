/*
 * deploy_job.c - a checkpoint becomes a job that serves it: POST /v1/deployments. What engine and
 * flags it needs is said by the checkpoint's own files (core/inference.h); weights, name, restarts
 * and logs are the job's.
 */
#include "face/deploy.h"

#include "face/answer.h"
#include "face/face.h"
#include "face/handlers.h"

#include "core/hub.h"
#include "core/inference.h"

#include <ctype.h>

#define JOB_MAX ((size_t)1 << 20) /* of the specification */
#define COMMAND_MAX ((size_t)64 << 10)
#define PLACE "/models/"
#define BASE_PLACE PLACE "base"
#define ADAPTER_CONFIG_MAX ((size_t)1 << 20) /* of a longer one the engine says what it takes */
#define ATTEMPTS 100                         /* an engine that dies is started again */

struct deploy {
	const char *name, *engine_word, *command, *image, *accelerator, *memory, *base_model,
		*secret;          /* for the base model, at its Hub */
	int64_t cpu_count;        /* 0: as the training job */
	int64_t replicas, idle_s; /* -1: as they were */
	bool replaces;
	const struct instance *size; /* in place of the four before; NULL: they say */
	const struct doc *env;
	const char **option; /* of the engine */
	size_t n_options;
	struct deploy_part part[DEPLOYMENT_PARTS_MAX];
	size_t n;
	struct inference_facts facts; /* of the first */
	enum inference_engine engine;
};

/* The checkpoint, and those beside it. */
static int read_parts(struct request *rq, const struct doc *body, struct deploy *d, struct err *err)
{
	const struct doc *list = doc_get(body, "adapters");
	const char *job = NULL, *checkpoint = NULL;

	if (body_text(body, "training_job_id", true, &job, err) < 0 ||
	    body_text(body, "checkpoint", false, &checkpoint, err) < 0 ||
	    deploy_find(rq, job, checkpoint, &d->part[0], err) < 0)
		return -1;
	d->n = 1;
	if (list != NULL && !doc_is(list, DOC_LIST))
		return err_set(err, ERR_INVALID, "adapters: expected a list");
	DOC_EACH (x, list) {
		job = checkpoint = NULL;
		if (d->n == DEPLOYMENT_PARTS_MAX)
			return err_set(err, ERR_INVALID, "adapters: at most %d beside the first",
			               DEPLOYMENT_PARTS_MAX - 1);
		if (!doc_is(x, DOC_MAP))
			return err_set(err, ERR_INVALID, "adapters[%zu]: expected an object",
			               d->n - 1);
		if (body_text(x, "training_job_id", true, &job, err) < 0 ||
		    body_text(x, "checkpoint", false, &checkpoint, err) < 0 ||
		    deploy_find(rq, job, checkpoint, &d->part[d->n], err) < 0)
			return err_wrap(err, "adapters[%zu]", d->n - 1);
		d->n++;
	}
	if (d->n > 1 && d->command != NULL)
		return err_set(err, ERR_INVALID,
		               "command: several checkpoints are served by vllm, not by a command "
		               "of yours");
	if (d->n > 1 && d->engine_word != NULL && d->engine != INFERENCE_VLLM)
		return err_set(err, ERR_INVALID,
		               "engine: several checkpoints are served by vllm, not by %s",
		               d->engine_word);
	return deploy_check_together(d->part, d->n, d->base_model, err);
}

static int read_body(struct request *rq, struct deploy *d, struct err *err)
{
	const struct doc *body;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "name", false, &d->name, err) < 0 ||
	    body_text(body, "engine", false, &d->engine_word, err) < 0 ||
	    body_text(body, "command", false, &d->command, err) < 0 ||
	    body_text(body, "image", false, &d->image, err) < 0 ||
	    body_text(body, "base_model", false, &d->base_model, err) < 0 ||
	    body_text(body, "auth_secret_name", false, &d->secret, err) < 0 ||
	    body_text(body, "accelerator", false, &d->accelerator, err) < 0 ||
	    body_text(body, "memory", false, &d->memory, err) < 0 ||
	    body_int(body, "cpu_count", 1, 4096, &d->cpu_count, err) < 0 ||
	    deployment_sizes(body, &d->replicas, &d->idle_s, err) < 0 ||
	    body_texts(rq->arena, body, "engine_options", INFERENCE_OPTIONS_MAX, &d->option,
	               &d->n_options, err) < 0 ||
	    body_bool(body, "replace", &d->replaces, err) < 0)
		return -1;
	d->env = doc_get(body, "environment_variables");
	if (d->env != NULL && !doc_is(d->env, DOC_MAP))
		return err_set(err, ERR_INVALID, "environment_variables: expected an object");
	if (d->command != NULL && d->engine_word != NULL)
		return err_set(err, ERR_INVALID, "engine and command: give one of them");
	if (d->command != NULL && d->n_options > 0)
		return err_set(err, ERR_INVALID,
		               "engine_options: a command of yours has its own words");
	for (size_t i = 0; i < d->n_options; i++) {
		if (inference_option_check(d->option[i], err) < 0)
			return err_wrap(err, "engine_options[%zu]", i);
	}
	if (d->engine_word != NULL && !inference_engine_of(str_of(d->engine_word), &d->engine))
		return err_set(err, ERR_INVALID,
		               "engine: \"%.50s\" is none of vllm, sglang, llama.cpp and "
		               "transformers; any other server is started by a command of "
		               "yours",
		               d->engine_word);
	return read_parts(rq, body, d, err);
}

/* What is missing of it, and what a person may do about it. */
static int not_complete(const struct model_checkpoint *c, struct err *err)
{
	const char *reason = c->reason != NULL ? c->reason : "";

	if (str_starts(str_of(reason), "incomplete: "))
		reason += sizeof("incomplete: ") - 1;
	return err_set(err, ERR_CONFLICT, "checkpoint %s of job %s is %s%s%.600s%s", c->name,
	               c->job_id, ckpt_state_word(c->state), reason[0] != '\0' ? ": " : "", reason,
	               c->state != CKPT_INCOMPLETE
	                       ? ""
	                       : "; save it again, or if it is whole, say so with `stoker "
	                         "checkpoints complete`");
}

static int no_complete(const struct deploy_part *of, const struct model_checkpoint *c, size_t n,
                       struct err *err)
{
	const struct model_checkpoint *newest = NULL;

	for (size_t i = 0; i < n; i++)
		if (newest == NULL || c[i].created_ms > newest->created_ms)
			newest = &c[i];
	if (newest == NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND, "job %s has no checkpoint",
		               of->job.id);
	(void)not_complete(newest, err);
	err_become(err, ERR_CHECKPOINT_NOT_FOUND);
	return err_wrap(err, "job %s has no complete checkpoint", of->job.id);
}

int deploy_find(struct request *rq, const char *job_id, const char *name, struct deploy_part *out,
                struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const struct model_checkpoint *found = NULL;
	struct model_checkpoint *c;
	size_t n = 0;

	*out = (struct deploy_part){0};
	if (ctx->ops->jobs->get(face_ask(rq), NULL, job_id, &out->job, err) < 0 ||
	    ctx->ops->checkpoints->list(face_ask(rq), out->job.id, true, &c, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (c[i].rank != 0 || (name != NULL && strcmp(c[i].name, name) != 0) ||
		    (name == NULL && c[i].state != CKPT_COMPLETE))
			continue;
		if (found == NULL || c[i].created_ms > found->created_ms)
			found = &c[i];
	}
	if (found == NULL && name != NULL)
		return err_set(err, ERR_CHECKPOINT_NOT_FOUND, "job %s has no checkpoint \"%.200s\"",
		               out->job.id, name);
	if (found == NULL)
		return no_complete(out, c, n, err);
	if (found->state != CKPT_COMPLETE)
		return not_complete(found, err);
	if (strcmp(found->name, ".") == 0)
		return err_set(err, ERR_UNSUPPORTED,
		               "job %s saves into the checkpoint folder itself, which cannot be "
		               "deployed: let it save into a folder of it",
		               out->job.id);
	out->c = *found;
	for (size_t i = 0; i < n; i++)
		out->n_parts += strcmp(c[i].name, found->name) == 0 ? 1 : 0;
	return 0;
}

static const char *text_of(const char *text)
{
	return text != NULL ? text : "";
}

/* vLLM takes NAME=FOLDER, and reads what has a comma as JSON. */
static int check_adapter(const struct deploy_part *p, const struct deploy_part *first,
                         const char *base, struct err *err)
{
	if (p->c.kind == NULL || strcmp(p->c.kind, "lora") != 0)
		return err_set(err, ERR_INVALID,
		               "checkpoint %s of job %s is no LoRA adapter: only these can be "
		               "served together",
		               p->c.name, p->job.id);
	if (strpbrk(p->c.name, "=,") != NULL)
		return err_set(err, ERR_INVALID,
		               "checkpoint %s of job %s has a \"%c\" in its name, by which clients "
		               "would ask for it: deploy it alone",
		               p->c.name, p->job.id, *strpbrk(p->c.name, "=,"));
	if (base == NULL && strcmp(text_of(p->c.base_model), text_of(first->c.base_model)) != 0)
		return err_set(err, ERR_INVALID,
		               "checkpoints %s and %s have different base models, %s and %s: one "
		               "server has one base model",
		               first->c.name, p->c.name, text_of(first->c.base_model),
		               text_of(p->c.base_model));
	return 0;
}

int deploy_check_together(const struct deploy_part *part, size_t n, const char *base,
                          struct err *err)
{
	for (size_t i = 0; n > 1 && i < n; i++) {
		if (check_adapter(&part[i], &part[0], base, err) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (strcmp(part[i].c.name, part[k].c.name) == 0)
				return err_set(
					err, ERR_INVALID,
					"checkpoint %s of job %s and that of job %s have the "
					"same name, by which clients ask for one of them: "
					"deploy each under a name of its own",
					part[i].c.name, part[k].job.id, part[i].job.id);
	}
	return 0;
}

int64_t deploy_lora_rank(const struct deploy_part *part, size_t n)
{
	int64_t rank = 0;

	for (size_t i = 0; i < n; i++)
		rank = MAX(rank, inference_lora_rank(inference_adapter_rank(part[i].adapter,
		                                                            part[i].c.lora_r)));
	return rank;
}

static bool is_tokenizer(struct str path)
{
	return str_eq(path, "tokenizer.json") || str_eq(path, "tokenizer.model") ||
	       str_eq(path, "vocab.json") || str_eq(path, "vocab.txt") ||
	       str_eq(path, "tekken.json") || str_eq(path, "spiece.model");
}

static int take(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	buf_add(arg, p, n);
	return 0;
}

/* File i of the checkpoint, which has this path in it. */
static int look_at_gguf(struct request *rq, struct deploy *d, const struct ckpt *c, size_t i,
                        const char *path, struct err *err)
{
	const struct model_job *job = &d->part[0].job;
	AUTO_BUF struct buf head = BUF_INIT(INFERENCE_GGUF_HEAD);

	if (d->facts.gguf_two[0] != NULL || inference_gguf_is_later(str_of(path)))
		return 0;
	if (objstore_read(face_ctx(rq)->objects,
	                  ckpt_file_key(rq->arena, ckpt_prefix(rq->arena, job->project_id, job->id),
	                                c, i),
	                  0, MIN(c->files.file[i].size, (uint64_t)INFERENCE_GGUF_HEAD), take, &head,
	                  NULL, err) < 0)
		return err_wrap(err, "%s", path);
	inference_gguf(&d->facts, path, buf_view(&head));
	return 0;
}

static bool is_adapter(const struct deploy_part *p)
{
	return p->c.kind != NULL && strcmp(p->c.kind, "lora") == 0;
}

static int look_at_adapter(struct request *rq, struct deploy_part *p, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(ADAPTER_CONFIG_MAX);
	const struct manifest_file *f;
	struct ckpt c = {0};

	if (p->c.manifest_key == NULL || handler_manifest(rq, &p->c, &c, err) < 0)
		return err->code == ERR_NONE ? 0 : err_wrap(err, "checkpoint %s", p->c.name);
	for (size_t i = 0; i < c.files.n; i++) {
		f = &c.files.file[i];
		if (strcmp(ckpt_inner(p->c.name, f->path), "adapter_config.json") != 0 ||
		    f->size > ADAPTER_CONFIG_MAX)
			continue;
		if (objstore_read(
			    face_ctx(rq)->objects,
			    ckpt_file_key(rq->arena,
		                          ckpt_prefix(rq->arena, p->job.project_id, p->job.id), &c,
		                          i),
			    0, f->size, take, &text, NULL, err) < 0 ||
		    js_parse(rq->arena, buf_view(&text), &p->adapter, err) < 0)
			return err_wrap(err, "checkpoint %s: adapter_config.json", p->c.name);
		return 0;
	}
	return 0;
}

int deploy_look(struct request *rq, struct deploy_part *part, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (is_adapter(&part[i]) && look_at_adapter(rq, &part[i], err) < 0)
			return -1;
	return 0;
}

int deploy_check_adapters(const struct deploy_part *part, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (part[i].adapter != NULL &&
		    inference_adapter_check(part[i].c.name, part[i].adapter, err) < 0)
			return -1;
	return 0;
}

/* Weights as torch.save() writes them. */
static bool is_pickle(struct str path)
{
	return (str_starts(path, "pytorch_model") || str_starts(path, "adapter_model")) &&
	       (str_ends(path, ".bin") || str_ends(path, ".pt"));
}

static int find_facts(struct request *rq, struct deploy *d, struct err *err)
{
	const struct model_checkpoint *first = &d->part[0].c;
	struct ckpt c = {0};

	if (deploy_look(rq, d->part, d->n, err) < 0)
		return -1;
	d->facts = (struct inference_facts){.name = first->name,
	                                    .kind = first->kind,
	                                    .base_model = d->base_model != NULL ? d->base_model
	                                                                        : first->base_model,
	                                    .lora_rank = deploy_lora_rank(d->part, d->n)};
	if (first->manifest_key == NULL)
		return err_set(err, ERR_CONFLICT, "checkpoint %s has no list of its files",
		               first->name);
	if (handler_manifest(rq, first, &c, err) < 0)
		return err_wrap(err, "checkpoint %s", first->name);
	for (size_t i = 0; i < c.files.n; i++) {
		const char *inner = ckpt_inner(first->name, c.files.file[i].path);
		struct str path = str_of(inner);

		d->facts.config = d->facts.config || str_eq(path, "config.json");
		d->facts.tokenizer = d->facts.tokenizer || is_tokenizer(path);
		d->facts.preprocessor = d->facts.preprocessor ||
		                        str_eq(path, "preprocessor_config.json") ||
		                        str_eq(path, "processor_config.json");
		d->facts.safetensors = d->facts.safetensors || str_ends(path, ".safetensors");
		if (is_pickle(path))
			d->facts.pickle = inner;
		d->facts.chat_template =
			d->facts.chat_template || str_eq(path, "chat_template.jinja");
		if (str_ends(path, ".gguf") && look_at_gguf(rq, d, &c, i, inner, err) < 0)
			return -1;
	}
	return 0;
}

/* "My Run_2" -> "my-run-2". */
static const char *name_of(struct arena *a, const char *text)
{
	char *name = arena_cstr(a, text);
	size_t n = 0;

	for (const char *p = text; *p != '\0' && n < SPEC_SERVE_NAME_MAX; p++) {
		char c = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
		bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

		if (good || (n > 0 && name[n - 1] != '-'))
			name[n++] = good ? c : '-';
	}
	while (n > 0 && name[n - 1] == '-')
		n--;
	name[n] = '\0';
	return n > 0 ? name : "model";
}

/* Where the job that serves has one of them. */
static const char *place_of(struct arena *a, const struct deploy *d, size_t i)
{
	const char *place;

	if (d->n > 1)
		return arena_printf(a, PLACE "adapter-%zu", i + 1);
	place = arena_printf(a, PLACE "%s", d->name);
	return strcmp(place, BASE_PLACE) == 0 ? PLACE "checkpoint" : place;
}

/* Of several nodes the first one's part. */
static const char *folder_of(struct arena *a, const struct deploy *d, size_t i)
{
	const char *place = place_of(a, d, i);

	return d->part[i].n_parts > 1 ? arena_printf(a, "%s/rank-0", place) : place;
}

/* Those beside the first. */
static const struct inference_adapter *adapters_of(struct arena *a, const struct deploy *d)
{
	struct inference_adapter *list = ARENA_ARRAY(a, struct inference_adapter, d->n);

	for (size_t i = 1; i < d->n; i++)
		list[i - 1] = (struct inference_adapter){d->part[i].c.name, folder_of(a, d, i)};
	return list;
}

static int find_command(struct request *rq, struct deploy *d, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(COMMAND_MAX);
	const struct inference_places at = {.served = d->n > 1 ? d->part[0].c.name : d->name,
	                                    .checkpoint = folder_of(rq->arena, d, 0),
	                                    .base = BASE_PLACE,
	                                    .more = adapters_of(rq->arena, d),
	                                    .n_more = d->n - 1,
	                                    .option = d->option,
	                                    .n_options = d->n_options};
	uint32_t gpus = d->part[0].job.gpu_count;
	const char *type = NULL;

	if (d->command != NULL)
		return 0;
	if (d->engine_word == NULL && inference_choose(&d->facts, &d->engine, err) < 0)
		return -1;
	if (d->accelerator != NULL &&
	    spec_accelerator(rq->arena, str_of(d->accelerator), &type, &gpus, err) < 0)
		return err_wrap(err, "accelerator");
	d->facts.gpus = gpus;
	if (inference_check(&d->facts, d->engine, err) < 0)
		return -1;
	inference_command(&d->facts, d->engine, &at, &out);
	d->command = arena_strz(rq->arena, buf_view(&out));
	return buf_check(&out, "the command", err);
}

static void write_compute(const struct request *rq, const struct deploy *d, struct js *js)
{
	const struct model_job *job = &d->part[0].job;
	const struct instance of_job = {.gpu_type = job->gpu_type,
	                                .gpu_count = job->gpu_count,
	                                .cpu_milli = job->cpu_milli,
	                                .memory_bytes = job->memory_bytes};
	const struct instance *size = d->size != NULL ? d->size : &of_job;

	js_key(js, "compute");
	js_open(js);
	js_kv_real(js, "cpu_count",
	           d->cpu_count > 0 ? (double)d->cpu_count : (double)size->cpu_milli / 1000);
	js_kv(js, "memory",
	      d->memory != NULL
	              ? d->memory
	              : arena_printf(rq->arena, "%" PRIu64 "Mi", size->memory_bytes >> 20));
	if (d->accelerator != NULL)
		js_kv(js, "accelerator", d->accelerator);
	else if (size->gpu_type != NULL)
		js_kv(js, "accelerator",
		      arena_printf(rq->arena, "%s:%u", size->gpu_type, size->gpu_count));
	js_close(js);
}

static void write_weights(const struct request *rq, const struct deploy *d, bool own, struct js *js)
{
	/* What a tokenizer is, without the weights beside it. */
	static const char *const tokenizer[] = {"tokenizer*",  "*.model",     "vocab.*",
	                                        "merges.txt",  "special*",    "added_tokens.json",
	                                        "config.json", "tekken.json", "chat_template*"};
	enum inference_base base = own ? INFERENCE_BASE_NONE : inference_base(&d->facts, d->engine);

	js_key(js, "weights");
	js_list(js);
	for (size_t i = 0; i < d->n; i++) {
		const struct deploy_part *p = &d->part[i];

		js_open(js);
		js_kv(js, "source",
		      arena_printf(rq->arena, "bt://%s@%s/%s", p->job.project_name, p->job.id,
		                   p->c.name));
		js_kv(js, "mount_location", place_of(rq->arena, d, i));
		js_close(js);
	}
	if (base != INFERENCE_BASE_NONE) {
		js_open(js);
		js_kv(js, "source", arena_printf(rq->arena, "hf://%s", d->facts.base_model));
		js_kv(js, "mount_location", BASE_PLACE);
		if (d->secret != NULL)
			js_kv(js, "auth_secret_name", d->secret);
		if (base == INFERENCE_BASE_TOKENIZER) {
			js_key(js, "allow_patterns");
			js_list(js);
			for (size_t i = 0; i < COUNT(tokenizer); i++)
				js_cstr(js, tokenizer[i]);
			js_end(js);
		}
		js_close(js);
	}
	js_end(js);
}

static void write_runtime(const struct deploy *d, struct js *js)
{
	js_key(js, "runtime");
	js_open(js);
	js_key(js, "start_commands");
	js_list(js);
	js_cstr(js, d->command);
	js_end(js);
	js_key(js, "serve");
	js_open(js);
	js_kv(js, "name", d->name);
	js_close(js);
	if (d->env != NULL) {
		js_key(js, "environment_variables");
		js_doc(js, d->env);
	}
	js_close(js);
	js_key(js, "retry");
	js_open(js);
	js_key(js, "on");
	js_list(js);
	js_cstr(js, "failure");
	js_cstr(js, "node_fail");
	js_end(js);
	js_kv_int(js, "max_attempts", ATTEMPTS);
	js_close(js);
}

/* Names of secrets differ by their letters and digits alone. */
static bool is_hub_secret(const char *name)
{
	static const char hub[] = HUB_SECRET;
	size_t i = 0;

	for (; i < sizeof(hub) - 1 && name[i] != '\0'; i++) {
		if (name[i] != hub[i] && (isalnum((unsigned char)name[i]) || hub[i] != '_'))
			return false;
	}
	return name[i] == '\0' && i == sizeof(hub) - 1;
}

/* What the base model is fetched with, which may be private or gated: the secret that is named, or
 * that the engine gets as HF_TOKEN, else the one that the team has for the Hub. */
static int find_secret(struct request *rq, struct deploy *d, struct err *err)
{
	const struct doc *token = doc_get(d->env, "HF_TOKEN");
	struct model_secret *all;
	size_t n = 0;

	if (d->secret != NULL || inference_base(&d->facts, d->engine) == INFERENCE_BASE_NONE)
		return 0;
	if (doc_is(token, DOC_MAP)) {
		d->secret =
			doc_cstr(doc_get(token, "name"), doc_cstr(doc_get(token, "secret"), NULL));
		return 0;
	}
	if (face_ctx(rq)->ops->secrets->list(face_ask(rq), d->part[0].job.team_id, &all, &n, err) <
	    0)
		return -1;
	for (size_t i = 0; i < n && d->secret == NULL; i++)
		d->secret = is_hub_secret(all[i].name) ? all[i].name : NULL;
	return 0;
}

/* "JOB/NAME, JOB/OTHER" */
static const char *checkpoints_of(struct arena *a, const struct deploy *d)
{
	const char *all = "";

	for (size_t i = 0; i < d->n; i++)
		all = arena_printf(a, "%s%s%s/%s", all, i > 0 ? ", " : "", d->part[i].job.id,
		                   d->part[i].c.name);
	return all;
}

static int make(struct request *rq, struct deploy *d, struct deployment_view *out, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf json = BUF_INIT(JOB_MAX);
	bool own = d->command != NULL;
	struct deployment_want want;
	struct js js;

	if (d->name == NULL)
		d->name = name_of(rq->arena, d->part[0].job.name);
	if ((!own && find_facts(rq, d, err) < 0) || find_command(rq, d, err) < 0 ||
	    (!own && d->engine == INFERENCE_VLLM &&
	     deploy_check_adapters(d->part, d->n, err) < 0) ||
	    (!own && find_secret(rq, d, err) < 0))
		return -1;
	js_init(&js, &json);
	js_open(&js);
	js_kv(&js, "name", d->name);
	js_kv_bool(&js, "enable_baseten_workdir", false);
	if (d->image != NULL) {
		js_key(&js, "image");
		js_open(&js);
		js_kv(&js, "base_image", d->image);
		js_close(&js);
	}
	write_compute(rq, d, &js);
	write_weights(rq, d, own, &js);
	write_runtime(d, &js);
	js_close(&js);
	if (buf_check(&json, "the job", err) < 0)
		return -1;
	want = (struct deployment_want){.name = d->name,
	                                .checkpoint = checkpoints_of(rq->arena, d),
	                                .project_id = d->part[0].job.project_id,
	                                .document_json = arena_strz(rq->arena, buf_view(&json)),
	                                .replicas = d->replicas,
	                                .idle_s = d->idle_s,
	                                .replaces = d->replaces};
	return ctx->ops->deployments->deploy(face_ask(rq), &want, out, err);
}

int deployments_create(struct request *rq, struct err *err)
{
	struct deploy *d = ARENA_NEW(rq->arena, struct deploy);
	struct deployment_view made = {0};

	if (read_body(rq, d, err) < 0 || make(rq, d, &made, err) < 0)
		return -1;
	return deployment_send(rq, &made, err);
}

int deploy_order(struct request *rq, const struct deploy_order *o, struct deployment_view *out,
                 struct err *err)
{
	struct deploy *d = ARENA_NEW(rq->arena, struct deploy);

	assert(o->n >= 1 && o->n <= DEPLOYMENT_PARTS_MAX);
	d->name = name_of(rq->arena, o->name);
	d->engine = INFERENCE_VLLM;
	d->engine_word = inference_engine_word[INFERENCE_VLLM];
	d->image = o->image;
	d->size = o->size;
	d->env = o->env;
	memcpy(d->part, o->part, o->n * sizeof(d->part[0]));
	d->n = o->n;
	d->replicas = d->idle_s = -1;
	return make(rq, d, out, err);
}
