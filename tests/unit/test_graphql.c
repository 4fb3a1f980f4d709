/* test_graphql.c - the stock client's documents, refusals as 200 with errors, and deployments. */
#include "fake_ops.h"

static const struct face_ops ops = {FAKE_OPS};

static const struct doc *ask(struct app *f, const char *query, const char *variables)
{
	AUTO_BUF struct buf body = BUF_INIT(100000);
	struct got g;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "query", query);
	if (variables != NULL) {
		js_key(&js, "variables");
		js_raw(&js, str_of(variables));
	}
	js_close(&js);
	g = fake_call(f, HTTP_POST, "//graphql/", buf_cstr(&body));
	assert_int_equal(g.status, 200); /* whatever happened */
	assert_non_null(g.d);
	return g.d;
}

static void refused(struct app *f, const char *query, const char *variables, const char *words)
{
	const struct doc *d = ask(f, query, variables);

	assert_null(at(d, "data"));
	if (strstr(doc_cstr(at(d, "errors.0.extensions.description"), ""), words) == NULL)
		fail_msg("%s: %s", query, doc_cstr(at(d, "errors.0.message"), "no error"));
}

static void test_documents(void **state)
{
	static const char *const keys[] = {"id",          "name",     "millicpuLimit",
	                                   "memoryLimit", "gpuCount", "gpuType",
	                                   "gpuMemory",   "default",  "displayName",
	                                   "nodeCount",   "price",    "limitedCapacity"};
	struct app f;
	const struct doc *d;
	size_t with_gpu = 0;

	(void)state;
	fake_start(&f, &ops);
	d = ask(&f, "\n query Teams {\n  teams {\n id\n name\n default\n }\n }", NULL);
	assert_text(d, "data.teams.0.name", "Default");
	assert_true(doc_bool(at(d, "data.teams.0.default"), false));
	d = ask(&f, "query{organization{workspace_name}user{email}}", NULL);
	assert_text(d, "data.user.email", "ada");
	assert_text(d, "data.organization.workspace_name", "stoker");
	d = ask(&f, "query {\n organization {\n id\n }\n}", NULL);
	assert_text(d, "data.organization.id", "stoker");
	d = ask(&f, "query{organization{aws_customer_access_role_arn aws_external_id}}", NULL);
	assert_true(doc_is(at(d, "data.organization.aws_external_id"), DOC_NULL));
	d = ask(&f, "query Instances{listedInstances: listed_instances{id name}}", NULL);
	assert_true(at(d, "data.listedInstances")->count > 5);
	DOC_EACH (one, at(d, "data.listedInstances")) {
		for (size_t i = 0; i < COUNT(keys); i++)
			assert_row(doc_get(one, keys[i]) != NULL, keys[i]);
		with_gpu += doc_int(doc_get(one, "gpuCount"), 0) > 0;
	}
	assert_int_equal(with_gpu, 4); /* 1, 2, 4, 8 */
	fake_stop(&f);
}

static void test_refuses(void **state)
{
	struct app f;
	struct got g;

	(void)state;
	fake_start(&f, &ops);
	refused(&f, "query { models { id } }", NULL, "not supported");
	f.token = "wrong";
	refused(&f, "query{organization{id}}", NULL, "unknown token");
	f.token = "runner";
	refused(&f, "query{organization{id}}", NULL, "runners may not use this route");
	f.token = "admin";
	g = fake_call(&f, HTTP_POST, "/graphql/", "{oops");
	assert_int_equal(g.status, 200);
	assert_text(g.d, "errors.0.extensions.code", "invalid");
	g = fake_call(&f, HTTP_POST, "/graphql/", "{\"query\":5}");
	assert_text(g.d, "errors.0.message", "query: expected text, not a whole number");
	fake_stop(&f);
}

#define MUTATION                                                                                   \
	"mutation($request: "                                                                      \
	"CreateModelVersionFromInferenceTemplateRequest!){create_model_version_from_inference_"    \
	"template(request:$request){truss_config}}"

static const char *request(struct app *f, const char *name, const char *size, const char *dry,
                           const char *env)
{
	return arena_printf(
		f->a,
		"{\"request\":{\"metadata\":{\"oracle_name\":\"mm\"},\"weights_sources\":[{"
		"\"weight_source_type\":"
		"\"B10_CHECKPOINTING\",\"b10_training_checkpoint_weights_source\":{\"checkpoint\":{"
		"\"training_job_id\":"
		"\"job0001\",\"checkpoint_name\":\"%s\"}}}],\"inference_stack\":{\"stack_type\":"
		"\"VLLM\","
		"\"environment_variables\":[%s]},\"instance_type_id\":\"%s\",\"dry_run\":%s}}",
		name, env, size, dry);
}

#define AND                                                                                        \
	"\"}}},{\"b10_training_checkpoint_weights_source\":{\"checkpoint\":{\"training_job_id\":"  \
	"\"job0001\",\"checkpoint_name\":\""

static void test_deploy(void **state)
{
	static const char env[] = "{\"name\":\"HF_TOKEN\",\"value\":\"hf_access_token\",\"is_"
				  "secret_reference\":true},"
				  "{\"name\":\"X\",\"value\":\"1\",\"is_secret_reference\":false}";
	struct app f;
	const struct doc *d, *config = NULL;
	const char *cmd;

	(void)state;
	fake_start(&f, &ops);
	f.ckpt[0] = (struct model_checkpoint){.job_id = "job0001",
	                                      .project_id = "proj001",
	                                      .name = "checkpoint-24",
	                                      .state = CKPT_COMPLETE,
	                                      .kind = "lora",
	                                      .base_model = "Qwen/Qwen3-0.6B",
	                                      .lora_r = 20};
	f.ckpt[1] = (struct model_checkpoint){.job_id = "job0001",
	                                      .project_id = "proj001",
	                                      .name = "half",
	                                      .state = CKPT_SYNCING,
	                                      .kind = "full"};
	f.ckpt[2] = (struct model_checkpoint){.job_id = "job0001",
	                                      .project_id = "proj001",
	                                      .name = "odd",
	                                      .state = CKPT_COMPLETE,
	                                      .kind = "dcp"};
	f.ckpt[3] = (struct model_checkpoint){.job_id = "job0001",
	                                      .project_id = "proj001",
	                                      .name = "evil",
	                                      .state = CKPT_COMPLETE,
	                                      .kind = "lora",
	                                      .base_model = "x; rm -rf /"};
	f.n_ckpts = 4;
	refused(&f, MUTATION, "{}", "request: expected an object");
	refused(&f, MUTATION, request(&f, "checkpoint-24", "H100-2-16x128", "false", ""),
	        "no list of its files");
	refused(&f, MUTATION, request(&f, "none", "H100-2-16x128", "true", ""),
	        "no checkpoint \"none\"");
	refused(&f, MUTATION, request(&f, "half", "H100-2-16x128", "true", ""), "is SYNCING");
	refused(&f, MUTATION, request(&f, "odd", "H100-2-16x128", "true", ""), "of kind dcp");
	refused(&f, MUTATION, request(&f, "evil", "H100-2-16x128", "true", ""),
	        "cannot be used in a command line");
	refused(&f, MUTATION, request(&f, "checkpoint-24", "tiny", "true", ""), "instance_type_id");
	d = ask(&f, MUTATION, request(&f, "checkpoint-24", "H100-2-16x128", "true", env));
	d = at(d, "data.create_model_version_from_inference_template");
	assert_non_null(d);
	assert_true(doc_is(at(d, "model_version"), DOC_NULL));
	assert_ok(js_parse(f.a, doc_text(at(d, "truss_config")), &config, &f.err), &f.err);
	assert_text(config, "model_name", "mm");
	assert_text(config, "resources.accelerator", "H100:2");
	assert_text(config, "environment_variables.X", "1");
	assert_null(at(config, "environment_variables.HF_TOKEN"));
	assert_true(doc_is(at(config, "secrets.hf_access_token"), DOC_NULL));
	assert_text(config, "training_checkpoints.artifact_references.0.paths.0",
	            "rank-0/checkpoint-24/");
	cmd = doc_cstr(at(config, "environment_variables.BT_DOCKER_SERVER_START_CMD"), "");
	assert_string_equal(
		cmd, "sh -c \"HF_TOKEN=$(cat /secrets/hf_access_token) vllm serve Qwen/Qwen3-0.6B "
		     "--port 8000"
		     " --tensor-parallel-size 2 --dtype bfloat16 --enable-lora --max-lora-rank 32 "
		     "--lora-modules"
		     " checkpoint-24=/tmp/training_checkpoints/job0001/rank-0/checkpoint-24\"");
	f.ckpt[0].lora_r = 8; /* as a deployment has it */
	d = ask(&f, MUTATION, request(&f, "checkpoint-24", "H100-2-16x128", "true", env));
	assert_non_null(strstr(doc_cstr(at(d, "data.create_model_version_from_inference_template."
	                                      "truss_config"),
	                                ""),
	                       "--max-lora-rank 8 "));
	f.ckpt[1].state = CKPT_COMPLETE;
	f.ckpt[1].kind = "lora";
	f.ckpt[1].base_model = f.ckpt[0].base_model;
	d = ask(&f, MUTATION, request(&f, "checkpoint-24" AND "half", "H100-2-16x128", "true", ""));
	assert_non_null(strstr(doc_cstr(at(d, "data.create_model_version_from_inference_template."
	                                      "truss_config"),
	                                ""),
	                       "--max-loras 2 --enable-lora "));
	f.ckpt[1].base_model = "Qwen/Qwen3-8B";
	refused(&f, MUTATION, request(&f, "checkpoint-24" AND "half", "cpu-1x2", "true", ""),
	        "different base models, Qwen/Qwen3-0.6B and Qwen/Qwen3-8B");
	refused(&f, MUTATION,
	        request(&f, "checkpoint-24" AND "checkpoint-24", "cpu-1x2", "true", ""),
	        "the same name");
	f.ckpt[2].kind = "whisper";
	d = ask(&f, MUTATION, request(&f, "odd", "cpu-1x2", "true", ""));
	assert_ok(
		js_parse(f.a,
	                 doc_text(at(
				 d,
				 "data.create_model_version_from_inference_template.truss_config")),
	                 &config, &f.err),
		&f.err);
	assert_text(config, "docker_server.predict_endpoint", "/v1/audio/transcriptions");
	assert_text(config, "requirements.0", "vllm[audio]");
	fake_stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_documents),
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_deploy),
};

UNIT_MAIN(tests)
