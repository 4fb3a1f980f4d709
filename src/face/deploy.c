/*
 * deploy.c - checkpoints as the configuration of a vLLM server, in the form that the stock client
 * writes to a file; without a dry run the checkpoint is deployed, too. What it must know beyond the
 * request (the kind of a checkpoint, its base model, its LoRA rank, whether it brings a chat
 * template) comes from the checkpoints themselves.
 */
#include "face/deploy.h"

#include "core/inference.h"
#include "face/answer.h"
#include "face/handlers.h"
#include "face/instances.h"

#define ENV_MAX 100
#define SECRET_WORD_MAX                                                                            \
	255 /* of a variable's or a secret's name: ENV_MAX such pairs fit CONFIG_MAX */
#define CONFIG_MAX ((size_t)256 << 10)
#define FOLDER "/tmp/training_checkpoints"
#define IMAGE "vllm/vllm-openai:latest"

struct plan {
	const char *name;
	struct instance size;
	const struct doc *env; /* list of {name, value, is_secret_reference} */
	struct deploy_part part[DEPLOYMENT_PARTS_MAX];
	size_t n;
	bool chat_template; /* of the one full checkpoint */
};

/* Words that go into a shell's command line: nothing that a shell would read as more than a word.
 */
static int check_word(const char *what, const char *word, struct err *err)
{
	if (word == NULL || word[0] == '\0' || word[0] == '-' ||
	    strspn(word,
	           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@+:=-") !=
	            strlen(word))
		return err_set(err, ERR_INVALID, "%s \"%.200s\" cannot be used in a command line",
		               what, word != NULL ? word : "");
	return 0;
}

static int read_sources(struct request *rq, const struct doc *list, struct plan *p, struct err *err)
{
	DOC_EACH (source, list) {
		const struct doc *d = doc_path(source, "b10_training_checkpoint_weights_source",
		                               "checkpoint", NULL);
		const char *job_id = NULL, *name = NULL;

		if (p->n == DEPLOYMENT_PARTS_MAX)
			return err_set(err, ERR_INVALID, "weights_sources: at most %d",
			               DEPLOYMENT_PARTS_MAX);
		if (!doc_is(d, DOC_MAP))
			return err_set(err, ERR_UNSUPPORTED,
			               "weights_sources: only checkpoints of training jobs");
		if (body_text(d, "training_job_id", true, &job_id, err) < 0 ||
		    body_text(d, "checkpoint_name", true, &name, err) < 0 ||
		    deploy_find(rq, job_id, name, &p->part[p->n], err) < 0 ||
		    check_word("checkpoint", name, err) < 0)
			return -1;
		p->n++;
	}
	if (p->n == 0)
		return err_set(err, ERR_INVALID, "weights_sources: expected a checkpoint");
	return 0;
}

static bool is_kind(const struct model_checkpoint *c, const char *word)
{
	return c->kind != NULL && strcmp(c->kind, word) == 0;
}

static int check_kinds(const struct plan *p, struct err *err)
{
	const struct model_checkpoint *first = &p->part[0].c;

	if (deploy_check_together(p->part, p->n, NULL, err) < 0)
		return -1;
	if (is_kind(first, "lora") && check_word("base model", first->base_model, err) < 0)
		return err_wrap(err, "checkpoint %s", first->name);
	if (!is_kind(first, "lora") && !is_kind(first, "full") && !is_kind(first, "whisper"))
		return err_set(err, ERR_UNSUPPORTED,
		               "checkpoint %s is of kind %s: vLLM serves full, lora and whisper "
		               "ones",
		               first->name, first->kind != NULL ? first->kind : "other");
	return 0;
}

static int find_size(struct request *rq, const char *id, struct plan *p, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct instance list[INSTANCES_MAX];
	struct server_status st = {0};
	size_t n;

	if (ctx->ops->server->status(face_ask(rq), &st, err) < 0)
		return -1;
	n = instances_of(st.nodes, st.n_nodes, list);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(show_instance_id(rq->arena, &list[i]), id) == 0) {
			p->size = list[i];
			return 0;
		}
	}
	return err_set(err, ERR_NOT_FOUND, "instance_type_id: unknown type \"%.100s\"", id);
}

static int find_template(struct request *rq, struct plan *p, struct err *err)
{
	const char *path = arena_printf(rq->arena, "%s/chat_template.jinja", p->part[0].c.name);
	struct ckpt c = {0};

	if (!is_kind(&p->part[0].c, "full") || p->part[0].c.manifest_key == NULL)
		return 0;
	if (handler_manifest(rq, &p->part[0].c, &c, err) < 0)
		return err_wrap(err, "checkpoint %s", p->part[0].c.name);
	p->chat_template = manifest_find(&c.files, str_of(path)) != NULL;
	return 0;
}

/* A secret is read from its file by the shell that starts the server: both names stand there. */
static int check_secret(const char *name, const char *secret, struct err *err)
{
	static const char outbox[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

	if (name[0] == '\0' || (name[0] >= '0' && name[0] <= '9') ||
	    strspn(name, outbox) != strlen(name) || strlen(name) > SECRET_WORD_MAX)
		return err_set(err, ERR_INVALID, "\"%.200s\" is not a valid variable name", name);
	if (strlen(secret) > SECRET_WORD_MAX)
		return err_set(err, ERR_INVALID, "secret \"%.200s...\": the name is too long",
		               secret);
	return check_word("secret", secret, err);
}

static int read_env(const struct doc *list, struct plan *p, struct err *err)
{
	if (list != NULL && list->count > ENV_MAX)
		return err_set(err, ERR_INVALID, "environment_variables: at most %d", ENV_MAX);
	p->env = list;
	DOC_EACH (var, list) {
		const char *name = NULL, *value = NULL;
		bool secret = false;

		if (body_text(var, "name", true, &name, err) < 0 ||
		    body_text(var, "value", true, &value, err) < 0 ||
		    body_bool(var, "is_secret_reference", &secret, err) < 0)
			return err_wrap(err, "environment_variables");
		if (secret && check_secret(name, value, err) < 0)
			return err_wrap(err, "environment_variables");
	}
	return 0;
}

static const char *folder_of(struct arena *a, const struct model_checkpoint *c)
{
	return arena_printf(a, FOLDER "/%s/rank-0/%s", c->job_id, c->name);
}

static const char *start_command(struct arena *a, const struct plan *p)
{
	AUTO_BUF struct buf b = BUF_INIT(CONFIG_MAX);
	bool lora = is_kind(&p->part[0].c, "lora");
	const char *path = folder_of(a, &p->part[0].c);

	buf_puts(&b, "sh -c \"");
	DOC_EACH (var, p->env) {
		if (doc_bool(doc_get(var, "is_secret_reference"), false))
			buf_printf(&b, "%s=$(cat /secrets/%s) ", doc_cstr(doc_get(var, "name"), ""),
			           doc_cstr(doc_get(var, "value"), ""));
	}
	buf_printf(&b, "vllm serve %s --port 8000 --tensor-parallel-size %u --dtype bfloat16",
	           lora ? p->part[0].c.base_model : path, MAX(p->size.gpu_count, 1U));
	if (lora) {
		if (p->n > 1) /* all of them in one batch */
			buf_printf(&b, " --max-loras %zu", p->n);
		buf_printf(&b, " --enable-lora --max-lora-rank %" PRId64 " --lora-modules",
		           deploy_lora_rank(p->part, p->n));
		for (size_t i = 0; i < p->n; i++)
			buf_printf(&b, " %s=%s", p->part[i].c.name, folder_of(a, &p->part[i].c));
	} else {
		buf_printf(&b, " --served-model-name %s", p->part[0].c.name);
		if (p->chat_template)
			buf_printf(&b, " --chat-template %s/chat_template.jinja", path);
	}
	buf_putc(&b, '"');
	return arena_strz(a, buf_view(&b));
}

static void show_env(struct js *js, struct arena *a, const struct plan *p)
{
	js_key(js, "environment_variables");
	js_open(js);
	js_kv(js, "VLLM_LOGGING_LEVEL", "WARNING");
	js_kv(js, "HF_HUB_ENABLE_HF_TRANSFER", "1");
	js_kv(js, "BT_DOCKER_SERVER_START_CMD", start_command(a, p));
	DOC_EACH (var, p->env) {
		if (!doc_bool(doc_get(var, "is_secret_reference"), false))
			js_kv_str(js, doc_cstr(doc_get(var, "name"), ""),
			          doc_text(doc_get(var, "value")));
	}
	js_close(js);
	js_key(js, "secrets");
	js_open(js);
	DOC_EACH (var, p->env) {
		if (doc_bool(doc_get(var, "is_secret_reference"), false))
			js_kv_null(js, doc_cstr(doc_get(var, "value"), ""));
	}
	js_close(js);
}

static void show_config(struct js *js, struct arena *a, const struct plan *p)
{
	bool whisper = is_kind(&p->part[0].c, "whisper");

	js_open(js);
	js_kv(js, "model_name", p->name);
	js_key(js, "base_image");
	js_open(js);
	js_kv(js, "image", IMAGE);
	js_close(js);
	js_key(js, "docker_server");
	js_open(js);
	js_kv(js, "start_command", "%(ENV_BT_DOCKER_SERVER_START_CMD)s");
	js_kv(js, "readiness_endpoint", "/health");
	js_kv(js, "liveness_endpoint", "/health");
	js_kv(js, "predict_endpoint",
	      whisper ? "/v1/audio/transcriptions" : "/v1/chat/completions");
	js_kv_int(js, "server_port", 8000);
	js_close(js);
	if (whisper) {
		js_key(js, "requirements");
		js_list(js);
		js_cstr(js, "vllm[audio]");
		js_end(js);
	}
	js_key(js, "resources");
	js_open(js);
	js_kv(js, "cpu", arena_printf(a, "%um", p->size.cpu_milli));
	js_kv(js, "memory", arena_printf(a, "%" PRIu64 "Mi", p->size.memory_bytes >> 20));
	if (p->size.gpu_type != NULL)
		js_kv(js, "accelerator",
		      arena_printf(a, "%s:%u", p->size.gpu_type, p->size.gpu_count));
	js_kv_bool(js, "use_gpu", p->size.gpu_type != NULL);
	js_close(js);
	js_key(js, "runtime");
	js_open(js);
	js_kv_int(js, "predict_concurrency", 256);
	js_close(js);
	show_env(js, a, p);
	js_key(js, "training_checkpoints");
	js_open(js);
	js_kv(js, "download_folder", FOLDER);
	js_key(js, "artifact_references");
	js_list(js);
	for (size_t i = 0; i < p->n; i++) {
		js_open(js);
		js_kv(js, "training_job_id", p->part[i].c.job_id);
		js_key(js, "paths");
		js_list(js);
		js_fmt(js, "rank-0/%s/", p->part[i].c.name);
		js_end(js);
		js_close(js);
	}
	js_end(js);
	js_close(js);
	js_close(js);
}

/* As a job's specification has them. */
static int job_env(struct request *rq, const struct plan *p, const struct doc **out,
                   struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(CONFIG_MAX);
	struct js js;

	js_init(&js, &json);
	js_open(&js);
	DOC_EACH (var, p->env) {
		js_key(&js, doc_cstr(doc_get(var, "name"), ""));
		if (doc_bool(doc_get(var, "is_secret_reference"), false)) {
			js_open(&js);
			js_kv(&js, "name", doc_cstr(doc_get(var, "value"), ""));
			js_close(&js);
		} else {
			js_cstr(&js, doc_cstr(doc_get(var, "value"), ""));
		}
	}
	js_close(&js);
	if (buf_check(&json, "environment_variables", err) < 0)
		return -1;
	return js_parse(rq->arena, buf_view(&json), out, err);
}

static int deploy(struct request *rq, const struct plan *p, struct deployment_view *out,
                  struct err *err)
{
	struct deploy_order o = {
		.part = p->part, .n = p->n, .name = p->name, .image = IMAGE, .size = &p->size};

	if (job_env(rq, p, &o.env, err) < 0)
		return -1;
	return deploy_order(rq, &o, out, err);
}

/* The ids are those that people type: `stoker logs` takes the first, `stoker deployments view` the
 * other. */
static void show_version(struct js *js, const struct deployment_view *v)
{
	js_key(js, "model_version");
	js_open(js);
	js_kv(js, "id", v->job_id != NULL ? v->job_id : v->d.id);
	js_kv(js, "name", v->d.name);
	js_kv(js, "model_id", v->d.name);
	js_close(js);
}

int deploy_checkpoints(struct request *rq, const struct doc *variables, struct js *js,
                       struct err *err)
{
	const struct doc *asked = doc_get(variables, "request");
	AUTO_BUF struct buf config = BUF_INIT(CONFIG_MAX);
	struct plan *p = ARENA_NEW(rq->arena, struct plan);
	const char *stack = NULL, *size = NULL;
	struct deployment_view made = {0};
	struct js out;
	bool dry = false;

	if (!doc_is(asked, DOC_MAP))
		return err_set(err, ERR_INVALID, "request: expected an object");
	if (body_bool(asked, "dry_run", &dry, err) < 0 ||
	    body_text(asked, "instance_type_id", true, &size, err) < 0 ||
	    body_text(doc_get(asked, "inference_stack"), "stack_type", true, &stack, err) < 0 ||
	    body_text(doc_get(asked, "metadata"), "oracle_name", true, &p->name, err) < 0)
		return -1;
	if (strcmp(stack, "VLLM") != 0)
		return err_set(err, ERR_UNSUPPORTED, "inference stack \"%.50s\": only VLLM", stack);
	if (read_env(doc_path(asked, "inference_stack", "environment_variables", NULL), p, err) <
	            0 ||
	    read_sources(rq, doc_get(asked, "weights_sources"), p, err) < 0 ||
	    check_kinds(p, err) < 0 || deploy_look(rq, p->part, p->n, err) < 0 ||
	    deploy_check_adapters(p->part, p->n, err) < 0 || find_size(rq, size, p, err) < 0 ||
	    find_template(rq, p, err) < 0)
		return -1;
	js_init(&out, &config);
	show_config(&out, rq->arena, p);
	if (buf_check(&config, "the configuration", err) < 0 ||
	    (!dry && deploy(rq, p, &made, err) < 0))
		return -1;
	js_key(js, "create_model_version_from_inference_template");
	js_open(js);
	if (dry)
		js_kv_null(js, "model_version");
	else
		show_version(js, &made);
	js_kv_str(js, "truss_config", buf_view(&config));
	js_close(js);
	return 0;
}
