/* test_spec_bad.c - mistakes in specifications: each with its path, its place and what would be
 * right, all of them at once. */
#include "spec_fixture.h"

/* A file, and the one problem that it should have. */
static const struct {
	const char *name, *yaml, *path, *words;
	unsigned line, col;
} bad_files[] = {
	{"nothing", "", "", "is empty", 0, 0},
	{"a list", "[1]", "", "should be a map, not a list", 1, 1},
	{"no job", "project: p\n", "job", "is missing", 1, 1},
	{"no runtime", "project: p\njob: { name: x }\n", "job.runtime", "is missing", 2, 6},
	{"no commands", "project: p\njob: { runtime: {} }\n", "job.runtime.start_commands",
         "is missing", 2, 17},
	{"no command", "project: p\njob: { runtime: { start_commands: [] } }\n",
         "job.runtime.start_commands", "at least one command", 2, 35},
	{"stray key", JOB("  wieghts: []\n"), "job.wieghts", "did you mean \"weights\"", 4, 3},
	{"stray, far from all", JOB("  zzzzzzzz: []\n"), "job.zzzzzzzz", "is unknown", 4, 3},
	{"stray, at home elsewhere", JOB("  node_count: 2\n"), "job.node_count",
         "did you mean job.compute.node_count?", 4, 3},
	{"key of clients", JOB("  truss_user_env: {a: 1}\n"), "job.truss_user_env",
         "cannot be set in a job file", 4, 19},
	{"workspace in a file", JOB("  workspace: {exclude_dirs: [x]}\n"), "job.workspace",
         ".stokerignore", 4, 14},
	{"name with a newline", JOB("  name: \"a\\nb\"\n"), "job.name", "is not a name", 4, 9},
	{"number as a name", JOB("  name: 12\n"), "job.name", "put it in quotes", 4, 9},
	{"memory", JOB("  compute: { memory: lots }\n"), "job.compute.memory", "lots", 4, 22},
	{"memory without a unit", JOB("  compute: { memory: 512 }\n"), "job.compute.memory",
         "512Mi", 4, 22},
	{"memory without a unit, in quotes", JOB("  compute: { memory: \"8\" }\n"),
         "job.compute.memory", "8Gi", 4, 22},
	{"image as text", JOB("  image: python:3.11\n"), "job.image", "base_image", 4, 10},
	{"memory too small", JOB("  compute: { memory: 1Ki }\n"), "job.compute.memory",
         "should be from", 4, 22},
	{"no node", JOB("  compute: { node_count: 0 }\n"), "job.compute.node_count",
         "from 1 to 1024", 4, 26},
	{"text for a number", JOB("  compute: { node_count: two }\n"), "job.compute.node_count",
         "should be a whole number", 4, 26},
	{"no core", JOB("  compute: { cpu_count: 0 }\n"), "job.compute.cpu_count", "greater than 0",
         4, 25},
	{"GPU type", JOB("  compute: { accelerator: H300 }\n"), "job.compute.accelerator", "H300",
         4, 27},
	{"no GPU", JOB("  compute: { accelerator: \"H200:0\" }\n"), "job.compute.accelerator",
         "from 1 to 64", 4, 27},
	{"GPU map", JOB("  compute: { accelerator: {accelerator: T4, cuont: 2} }\n"),
         "job.compute.accelerator", "not \"cuont\"", 4, 52},
	{"availability", JOB("  compute: { availability_model: cheap }\n"),
         "job.compute.availability_model", "dedicated", 4, 34},
	{"session", JOB("  interactive_session: { trigger: on_startup }\n"),
         "job.interactive_session", "stoker exec", 4, 24},
	{"notify, a stray word", JOB("  notify: [{ webhook: ops, on: [complete] }]\n"),
         "job.notify[0].on[0]", "did you mean \"completed\"", 4, 33},
	{"notify, a word far from all", JOB("  notify: [{ webhook: ops, on: [christmas] }]\n"),
         "job.notify[0].on[0]", "running, retrying, completed, failed, deploy_failed or stopped", 4,
         33},
	{"notify of nothing", JOB("  notify: [{ webhook: ops, on: [] }]\n"), "job.notify[0].on",
         "is empty", 4, 32},
	{"notify nobody", JOB("  notify: [{ on: [failed] }]\n"), "job.notify[0].webhook",
         "is missing", 4, 12},
	{"notify a URL", JOB("  notify: [{ webhook: \"https://h/token\" }]\n"),
         "job.notify[0].webhook", "the name of a secret, not the URL", 4, 23},
	{"notify twice", JOB("  notify: [{ webhook: ops }, { webhook: ops, on: [running] }]\n"),
         "job.notify[1].webhook", "is given twice", 4, 41},
	{"notify, a stray key", JOB("  notify: [{ webhook: ops, url: x }]\n"), "job.notify[0].url",
         "is unknown", 4, 28},
	{"one command, no list", "project: p\njob:\n  runtime: { start_commands: sh run.sh }\n",
         "job.runtime.start_commands", "write [\"sh run.sh\"]", 3, 30},
	{"a command with a colon", "project: p\njob:\n  runtime: { start_commands: [{echo: x}] }\n",
         "job.runtime.start_commands[0]", "needs quotes", 3, 31},
	{"a package, no file",
         "project: p\njob:\n  runtime: { start_commands: [x], python: numpy>=1 }\n",
         "job.runtime.python", "[\"numpy>=1\"]", 3, 43},
	{"notify, no list", JOB("  notify: { webhook: ops }\n"), "job.notify", "should be a list",
         4, 11},
	{"idle_gpu without a GPU", JOB("  limits: { idle_gpu: 30m }\n"), "job.limits.idle_gpu",
         "use limits.max_duration", 4, 23},
	{"idle_gpu of a mistake", JOB("  limits: { idle_gpu: soon }\n"), "job.limits.idle_gpu",
         "soon", 4, 23},
	{"compile cache of data", RUN("    compile_cache: { enabled: true, repo: datasets/a/b }\n"),
         "job.runtime.compile_cache.repo", "no repository of models", 5, 43},
	{"compile cache too deep", RUN("    compile_cache: { enabled: true, repo: a/b/c }\n"),
         "job.runtime.compile_cache.repo", "no repository of models", 5, 43},
	{"checkpoints in the compile caches",
         RUN("    compile_cache: { enabled: true }\n"
             "    checkpointing_config: { enabled: true, checkpoint_path: "
             "/opt/stoker/compile/x }\n"),
         "job.runtime.checkpointing_config.checkpoint_path", "compile caches", 6, 61},
	{"a push to nowhere", RUN("    hub: { push: [a/b, a/b/c] }\n"), "job.runtime.hub.push[1]",
         "is no repository", 5, 24},
	{"layout",
         JOB("  weights: [{ source: \"hf://a/b\", layout: x, "
             "mount_location: /a }]\n"),
         "job.weights[0].layout", "\"hub\"", 4, 43},
	{"layout of a bucket", JOB("  weights: [{ source: \"s3://bucket/p\", layout: hub }]\n"),
         "job.weights[0].layout", "hf://", 4, 48},
	{"two caches",
         JOB("  weights: [{ source: \"hf://a/b\", layout: hub }, { source: "
             "\"hf://a/c\", layout: hub, mount_location: /x }]\n"),
         "job.weights[1].mount_location", "share one folder", 4, 50},
	{"the same twice",
         JOB("  weights: [{ source: \"hf://a/b\", layout: hub }, { source: "
             "\"hf://a/b\", layout: hub }]\n"),
         "job.weights[1].source", "is also weights[0]", 4, 60},
	{"no mount", JOB("  weights: [{ source: \"hf://a/b\" }]\n"),
         "job.weights[0].mount_location", "is missing", 4, 13},
	{"empty command", "project: p\njob: { runtime: { start_commands: [\"\"] } }\n",
         "job.runtime.start_commands[0]", "is empty", 2, 36},
	{"variable that is a number", RUN("    environment_variables: { LR: 2e-5 }\n"),
         "job.runtime.environment_variables.LR", "put it in quotes", 5, 34},
	{"variable's name", RUN("    environment_variables: { \"A=B\": x }\n"),
         "job.runtime.environment_variables.A=B", "is not a valid variable name", 5, 30},
	{"secret of two keys", RUN("    environment_variables: { A: { name: x, secret: y } }\n"),
         "job.runtime.environment_variables.A", "{ secret: NAME }", 5, 33},
	{"artifacts in a file", RUN("    artifacts: [{ s3_bucket: a, s3_key: b }]\n"),
         "job.runtime.artifacts", "cannot be set in a job file", 5, 16},
	{"both caches", RUN("    enable_cache: true\n    cache_config: { enabled: true }\n"),
         "job.runtime.enable_cache", "is deprecated", 5, 19},
	{"relative path", RUN("    checkpointing_config: { checkpoint_path: out }\n"),
         "job.runtime.checkpointing_config.checkpoint_path", "absolute path", 5, 46},
	{"dots in a path", RUN("    cache_config: { mount_base_path: /a/../b }\n"),
         "job.runtime.cache_config.mount_base_path", "absolute path", 5, 38},
	{"unknown reference",
         RUN("    load_checkpoint_config: { checkpoints: [{ newest: {} }] }\n"),
         "job.runtime.load_checkpoint_config.checkpoints[0]", "{ latest: { project: NAME } }", 5,
         45},
	{"named without a name",
         RUN("    load_checkpoint_config: { checkpoints: [{ named: { job: j } }] }\n"),
         "job.runtime.load_checkpoint_config.checkpoints[0].named.name", "is missing", 5, 54},
	{"loops",
         RUN("    load_checkpoint_config: { checkpoints: [{ typ: loops_checkpoint, run_id: r }] "
             "}\n"),
         "job.runtime.load_checkpoint_config.checkpoints[0]", "loops_checkpoint is not offered", 5,
         45},
	{"nothing to load", RUN("    load_checkpoint_config: { enabled: true, checkpoints: [] }\n"),
         "job.runtime.load_checkpoint_config.checkpoints", "is empty", 5, 59},
	{"no source", JOB("  weights: [{ mount_location: /a }]\n"), "job.weights[0].source",
         "is missing", 4, 13},
	{"bucket", JOB("  weights: [{ source: \"gs://b/p\", mount_location: /a }]\n"),
         "job.weights[0].source", "should have the form gs://bucket/path", 4, 23},
	{"endpoint of a file",
         JOB("  weights: [{ source: \"https://a/b\", mount_location: /a, endpoint: "
             "\"https://c\" }]\n"),
         "job.weights[0].endpoint", "not for https://", 4, 68},
	{"no scheme", JOB("  weights: [{ source: Qwen/Qwen3, mount_location: /a }]\n"),
         "job.weights[0].source", "does not start with one of", 4, 23},
	{"pattern",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /a, allow_patterns: [\"[a\"] "
             "}]\n"),
         "job.weights[0].allow_patterns[0]", "never closed", 4, 72},
	{"mount of the system",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /etc/x }]\n"),
         "job.weights[0].mount_location", "belongs to the system", 4, 51},
	{"mount of the root", JOB("  weights: [{ source: \"hf://a/b\", mount_location: / }]\n"),
         "job.weights[0].mount_location", "root folder", 4, 51},
	{"mount on the code",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /b10/workspace/m }]\n"),
         "job.weights[0].mount_location", "the folder of the code", 4, 51},
	{"mount on the scratch",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /mnt }]\n"),
         "job.weights[0].mount_location", "scratch", 4, 51},
	{"mounted twice",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /m },\n"
             "            { source: \"hf://a/c\", mount_location: /m }]\n"),
         "job.weights[0].mount_location", "is also job.weights[1].mount_location", 4, 51},
	{"one in another",
         JOB("  weights: [{ source: \"hf://a/b\", mount_location: /m/n },\n"
             "            { source: \"hf://a/c\", mount_location: /m }]\n"),
         "job.weights[0].mount_location", "clashes with", 4, 51},
	{"mount on the checkpoints",
         RUN("    checkpointing_config: { enabled: true }\n"
             "  weights: [{ source: \"hf://a/b\", mount_location: /mnt/ckpts }]\n"),
         "job.weights[0].mount_location", "checkpoint_path", 6, 51},
	{"auth by OIDC",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { auth_method: "
             "AWS_OIDC, aws_oidc_region: eu-west-1 } }]\n"),
         "job.weights[0].auth.aws_oidc_role_arn", "must be provided when auth_method is AWS_OIDC",
         4, 63},
	{"OIDC without a region",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { auth_method: "
             "aws_oidc, aws_oidc_role_arn: \"arn:aws:iam::1:role/r\" } }]\n"),
         "job.weights[0].auth.aws_oidc_region", "must be provided when auth_method is AWS_OIDC", 4,
         63},
	{"OIDC, no role",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { aws_oidc_role_arn: "
             "reader, auth_method: AWS_OIDC, aws_oidc_region: a } }]\n"),
         "job.weights[0].auth.aws_oidc_role_arn", "should be a role", 4, 84},
	{"OIDC, a role of no account",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { aws_oidc_role_arn: "
             "\"arn:aws:iam:::role/r\", auth_method: AWS_OIDC, aws_oidc_region: a } }]\n"),
         "job.weights[0].auth.aws_oidc_role_arn", "should be a role", 4, 84},
	{"OIDC with a secret",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { auth_secret_name: "
             "x, auth_method: AWS_OIDC, aws_oidc_region: a, aws_oidc_role_arn: "
             "\"arn:minio:iam:::role/r\" } }]\n"),
         "job.weights[0].auth.auth_secret_name", "cannot be specified when auth_method is AWS_OIDC",
         4, 63},
	{"OIDC of the other cloud",
         JOB("  weights: [{ source: \"gs://abc/b\", mount_location: /m, auth: { auth_method: "
             "AWS_OIDC, aws_oidc_region: a, aws_oidc_role_arn: \"arn:aws:iam::1:role/r\" } }]\n"),
         "job.weights[0].auth", "AWS_OIDC is for s3:// sources", 4, 63},
	{"OIDC of the other cloud, too",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { auth_method: "
             "GCP_OIDC, gcp_oidc_service_account: \"a@p.iam.gserviceaccount.com\", "
             "gcp_oidc_workload_id_provider: "
             "projects/1/locations/global/workloadIdentityPools/p/providers/q } }]\n"),
         "job.weights[0].auth", "GCP_OIDC is for gs:// sources", 4, 63},
	{"OIDC, no provider",
         JOB("  weights: [{ source: \"gs://abc/b\", mount_location: /m, auth: { "
             "gcp_oidc_workload_id_provider: projects/1/providers/q, auth_method: GCP_OIDC, "
             "gcp_oidc_service_account: \"a@p.iam.gserviceaccount.com\" } }]\n"),
         "job.weights[0].auth.gcp_oidc_workload_id_provider", "should be projects/NUMBER/", 4, 96},
	{"OIDC, no service account",
         JOB("  weights: [{ source: \"gs://abc/b\", mount_location: /m, auth: { "
             "gcp_oidc_service_account: \"a/b@p\", auth_method: GCP_OIDC, "
             "gcp_oidc_workload_id_provider: "
             "projects/1/locations/global/workloadIdentityPools/p/providers/q } }]\n"),
         "job.weights[0].auth.gcp_oidc_service_account", "should be a service account", 4, 91},
	{"fields of another method",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { aws_oidc_region: "
             "a, auth_method: CUSTOM_SECRET, auth_secret_name: x } }]\n"),
         "job.weights[0].auth.aws_oidc_region", "is for auth_method: AWS_OIDC", 4, 82},
	{"no such method",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth: { auth_method: OIDC "
             "} }]\n"),
         "job.weights[0].auth.auth_method", "CUSTOM_SECRET, AWS_ASSUME_ROLE, AWS_OIDC or GCP_OIDC",
         4, 78},
	{"two secrets",
         JOB("  weights: [{ source: \"s3://abc/b\", mount_location: /m, auth_secret_name: a,\n"
             "    auth: { auth_secret_name: b } }]\n"),
         "job.weights[0].auth.auth_secret_name", "remove one", 5, 11},
	{"docker method", JOB("  image: { docker_auth: { auth_method: GCP_OIDC, registry: r } }\n"),
         "job.image.docker_auth.auth_method", "GCP_OIDC is not offered", 4, 40},
	{"credentials for no image",
         JOB("  image: { docker_auth: { auth_method: REGISTRY_SECRET, registry: r,\n"
             "    registry_secret_docker_auth: { secret_ref: { secret: s } } } }\n"),
         "job.image.docker_auth", "base_image is not", 4, 25},
	{"mount in the old cache",
         RUN("    cache_config: { enabled: true, enable_legacy_hf_mount: true, mount_base_path: /c "
             "}\n"
             "  weights: [{ source: \"hf://a/b\", mount_location: /root/.cache/huggingface/m },\n"
             "            { source: \"hf://a/b\", mount_location: /m }]\n"),
         "job.weights[0].mount_location", "enable_legacy_hf_mount", 6, 51},
	{"docker part missing",
         JOB("  image: { docker_auth: { auth_method: AWS_IAM, registry: r }, base_image: i }\n"),
         "job.image.docker_auth.aws_iam_docker_auth", "is missing", 4, 25},
	{"docker part of another",
         JOB("  image: { docker_auth: { auth_method: REGISTRY_SECRET, registry: r,\n"
             "    registry_secret_docker_auth: { secret_ref: { secret: s } },\n"
             "    gcp_service_account_json_docker_auth: { service_account_json_secret_ref: { "
             "secret: s } } }, base_image: i }\n"),
         "job.image.docker_auth.gcp_service_account_json_docker_auth", "cannot be used with", 6,
         43},
	{"python, a stray key", RUN("    python: { requirement: r.txt }\n"),
         "job.runtime.python.requirement", "did you mean \"requirements\"", 5, 15},
	{"python, a number", RUN("    python: 3.11\n"), "job.runtime.python",
         "should be a file's path or a list", 5, 13},
	{"python, a version for a file", RUN("    python: \"3.11\"\n"), "job.runtime.python",
         "{ version: \"3.11\" }", 5, 13},
	{"python's version is a number", RUN("    python: { version: 3.10 }\n"),
         "job.runtime.python.version", "in quotes", 5, 24},
	{"python 2", RUN("    python: { version: \"2.7\" }\n"), "job.runtime.python.version",
         "\"3.11\"", 5, 24},
	{"python, a file outside", RUN("    python: { requirements: ../r.txt }\n"),
         "job.runtime.python.requirements", "below the job's folder", 5, 29},
	{"python, an absolute file", RUN("    python: /r.txt\n"), "job.runtime.python",
         "below the job's folder", 5, 13},
	{"python, another tool's file", RUN("    python: pyproject.toml\n"), "job.runtime.python",
         "uv export", 5, 13},
	{"python, an editable", RUN("    python: [numpy, \"-e .\"]\n"), "job.runtime.python[1]",
         "--editable", 5, 21},
	{"python, a local path", RUN("    python: { requirements: [./x.whl] }\n"),
         "job.runtime.python.requirements[0]", "./x.whl", 5, 30},
	{"python, no requirement", RUN("    python: { requirements: [\"numpy torch\"] }\n"),
         "job.runtime.python.requirements[0]", "numpy torch", 5, 30},
	{"python, a map for a file", RUN("    python: { requirements: {} }\n"),
         "job.runtime.python.requirements", "not a map", 5, 29},
	{"python's flag", RUN("    python: { system_site_packages: \"yes\" }\n"),
         "job.runtime.python.system_site_packages", "true or false", 5, 37},
	{"mount on python",
         RUN("    python: r.txt\n"
             "  weights: [{ source: \"hf://a/b\", mount_location: /opt/stoker }]\n"),
         "job.weights[0].mount_location", "Python environment", 6, 51},
	{"checkpoints below python",
         RUN("    python: r.txt\n    checkpointing_config: { enabled: true, checkpoint_path: "
             "/opt/stoker/python/x }\n"),
         "job.runtime.checkpointing_config.checkpoint_path", "Python environment", 6, 61},
	{"retry on", JOB("  retry: { on: [sunday] }\n"), "job.retry.on[0]", "exit:N", 4, 17},
	{"retry without on", JOB("  retry: { max_attempts: 2 }\n"), "job.retry.on", "is missing", 4,
         10},
};

static void spec_says_what_is_wrong(void **state UNUSED)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < COUNT(bad_files); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		const struct spec_problem *one = &p->item[0];
		struct job_spec s;

		assert_row(spec_read(a, yaml(a, bad_files[i].yaml), SPEC_FILE, &s, p) == -1,
		           bad_files[i].name);
		if (p->n != 1 || strcmp(one->path, bad_files[i].path) != 0 ||
		    strstr(one->text, bad_files[i].words) == NULL ||
		    one->line != bad_files[i].line || one->col != bad_files[i].col) {
			wrong++;
			print_error("row \"%s\": %zu problems, first %u:%u: %s: %s\n",
			            bad_files[i].name, p->n, one->line, one->col, one->path,
			            one->text);
		}
	}
	assert_int_equal(wrong, 0);
}

/* Where a mount may not be; each place alone, of a job that uses the caches. */
static void spec_places(void **state UNUSED)
{
	static const struct {
		const char *path;
		enum err_code id;
	} rows[] = {
		{"/", ERR_PLACE_SYSTEM},
		{"/usr", ERR_PLACE_SYSTEM},
		{"/usr/lib/python3/x", ERR_PLACE_SYSTEM},
		{"/lib64", ERR_PLACE_SYSTEM},
		{"/lib64/x", ERR_PLACE_SYSTEM},
		{"/bin/x", ERR_PLACE_SYSTEM},
		{"/etc/x", ERR_PLACE_SYSTEM},
		{"/proc/1/root", ERR_PLACE_SYSTEM},
		{"/dev/shm/x", ERR_PLACE_SYSTEM},
		{"/var", ERR_PLACE_SYSTEM},
		{"/var/run/x", ERR_PLACE_SYSTEM},
		{"/root", ERR_PLACE_SYSTEM},
		{"/tmp", ERR_PLACE_SYSTEM},
		{"/root/.cache/user_artifacts", ERR_PLACE_SHARED},
		{"/root/.cache/user_artifacts/x/y", ERR_PLACE_SHARED},
		{"/root/.cache/team_artifacts/x", ERR_PLACE_SHARED},
		{"/root/.cache/huggingface/x", ERR_PLACE_SHARED},
		{"/root/.cache/user_artifactsx", ERR_NONE},
		{"/root/out", ERR_NONE},
		{"/tmp/out", ERR_NONE},
		{"/usr/src/app/out", ERR_NONE},
		{"/usrx", ERR_NONE},
		{"/b10/workspace/out", ERR_NONE},
		{"/mnt/bt-scratch/out", ERR_NONE},
		{"/var/lib/x", ERR_NONE},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		char *text = arena_printf(a,
		                          RUN("    cache_config: { enabled: true }\n"
		                              "    checkpointing_config: { enabled: true, "
		                              "checkpoint_path: \"%s\" }\n"),
		                          rows[i].path);
		struct err err = {0};
		struct job_spec s;

		if (spec_read(a, yaml(a, text), SPEC_FILE, &s, p) == 0) {
			assert_row(rows[i].id == ERR_NONE, rows[i].path);
			continue;
		}
		spec_problems_text(p, "train.yaml", &err);
		assert_row(err.id == rows[i].id, rows[i].path);
	}
}

/* A word of another tool, where people put it, and the field here that means it. */
static void spec_knows_words_of_other_tools(void **state UNUSED)
{
	static const struct {
		const char *yaml, *path, *home;
	} rows[] = {
		{JOB("  cpus: 4\n"), "job.cpus", "job.compute.cpu_count"},
		{JOB("  compute: { gpus: 2 }\n"), "job.compute.gpus", "job.compute.accelerator"},
		{JOB("  compute: { mem: 4Gi }\n"), "job.compute.mem", "job.compute.memory"},
		{JOB("  nodes: 2\n"), "job.nodes", "job.compute.node_count"},
		{JOB("  resources: {}\n"), "job.resources", "job.compute"},
		{JOB("  env: {}\n"), "job.env", "job.runtime.environment_variables"},
		{JOB("  command: x\n"), "job.command", "job.runtime.start_commands"},
		{JOB("  setup: x\n"), "job.setup", "job.runtime.python"},
		{JOB("  docker: x\n"), "job.docker", "job.image.base_image"},
		{JOB("  volumes: []\n"), "job.volumes", "job.weights"},
		{JOB("  checkpoints: {}\n"), "job.checkpoints", "job.runtime.checkpointing_config"},
		{JOB("  resume: true\n"), "job.resume", "job.runtime.load_checkpoint_config"},
		{JOB("  cache: true\n"), "job.cache", "job.runtime.cache_config"},
		{JOB("  timeout: 1h\n"), "job.timeout", "job.limits.max_duration"},
		{JOB("  retries: 1\n"), "job.retries", "job.retry"},
		{JOB("  webhooks: []\n"), "job.webhooks", "job.notify"},
		{JOB("  job_name: x\n"), "job.job_name", "job.name"},
		{"project: p\nenv: {}\njob: { runtime: { start_commands: [x] } }\n", "env",
	         "job.runtime.environment_variables"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
		AUTO_FREE struct spec_problems *again = xcalloc(1, sizeof(*again));
		const struct doc *good = yaml(a, JOB(""));
		struct err err = {0};
		struct job_spec s;

		assert_row(spec_read(a, yaml(a, rows[i].yaml), SPEC_FILE, &s, p) == -1 &&
		                   p->n == 1 && strcmp(p->item[0].path, rows[i].path) == 0 &&
		                   strstr(p->item[0].text, rows[i].home) != NULL,
		           rows[i].path);
		/* the field that it leads to is there: null is what was not given */
		assert_ok(spec_set(a, &good, str_of(rows[i].home), STR_LIT("null"), &err), &err);
		(void)!spec_read(a, good, SPEC_FILE, &s, again);
		for (size_t k = 0; k < again->n; k++)
			assert_row(strncmp(again->item[k].text, "is unknown", 10) != 0,
			           rows[i].home);
	}
}

static void spec_reports_all_at_once(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	AUTO_BUF struct buf text = BUF_INIT(100000);
	AUTO_BUF struct buf json = BUF_INIT(100000);
	struct err err = {0};
	struct job_spec s;
	struct js js;

	buf_puts(&text, "project: p\nstray: 1\njob:\n  runtime:\n    start_commands: [x]\n"
	                "    environment_variables:\n");
	for (int i = 0; i < SPEC_PROBLEMS_MAX + 20; i++)
		buf_printf(&text, "      A%d: %d\n", i, i);
	assert_int_equal(spec_read(a, yaml(a, buf_cstr(&text)), SPEC_FILE, &s, p), -1);
	assert_int_equal(p->n, SPEC_PROBLEMS_MAX);
	assert_int_equal(p->dropped, 21);
	spec_problems_text(p, "train.yaml", &err);
	assert_true(strlen(err.msg) <= 1900);
	assert_true(str_starts(str_of(err.msg),
	                       "train.yaml:2:1: stray: is unknown; fields: project, team, job\n"));
	assert_non_null(strstr(err.msg, "\n... and "));
	err_clear(&err);
	js_init(&js, &json);
	spec_problems_json(p, &js);
	assert_true(str_starts(buf_view(&json), "[{\"path\":\"stray\",\"message\":"));
	assert_non_null(strstr(buf_cstr(&json), ",\"line\":2,\"column\":1}"));
}

static void spec_problems_of_the_api(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	struct job_spec s;

	assert_int_equal(read_json(a,
	                           "{\"compute\":{\"memroy\":\"2Gi\"},\"interactive_session\":"
	                           "{\"trigger\":\"on_failure\",\"timeout_minutes\":480}}",
	                           &s, p),
	                 -1);
	assert_int_equal(p->n, 2);
	assert_string_equal(p->item[0].path, "training_job.compute.memroy");
	assert_non_null(strstr(p->item[0].text, "did you mean \"memory\""));
	assert_string_equal(p->item[1].path, "training_job.interactive_session");
	assert_int_equal(p->item[0].line, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(spec_says_what_is_wrong),
	cmocka_unit_test(spec_places),
	cmocka_unit_test(spec_knows_words_of_other_tools),
	cmocka_unit_test(spec_reports_all_at_once),
	cmocka_unit_test(spec_problems_of_the_api),
};
UNIT_MAIN(tests)
