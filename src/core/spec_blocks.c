/* spec_blocks.c - the fields of a specification, block by block. */
#include "core/idle.h"
#include "core/spec_table.h"

#define AT(member) offsetof(struct job_spec, member)
#define LIST(k, member) .kind = (k), .at = AT(member), .at_n = AT(n_##member)

/* It is null, or left out, unless this member has a value. */
#define IF(member, k) .there = AT(member), .there_kind = (k)

/* clang-format off */
static const struct spec_field image_fields[] = {
	{.name = "base_image", .kind = SPEC_TEXT, .max = 500, .at = AT(base_image),
	 .help = "full tag of the image, resolved to a digest when the job first starts: its retries "
	         "and recreations run the same image, a new push resolves the tag again; without "
	         "base_image, the job runs on the host's root file system, sandboxed"},
	{.name = "docker_auth", SPEC_BY(docker_auth), IF(registry_auth, R_WORD),
	 .block = &spec_docker_auth_block, .type = "map",
	 .help = "credentials of a private registry"},
};
static const struct spec_block image_block =
	SPEC_MAP("job.image", "The container image.", image_fields);

static const struct spec_field compute_fields[] = {
	{.name = "node_count", .kind = SPEC_U32, .min = 1, .max = SPEC_NODES_MAX, .dflt = "1",
	 .at = AT(node_count),
	 .help = "number of identical nodes; they all start together, or none does"},
	{.name = "cpu_count", .kind = SPEC_REAL, .min = 0, .max = 4096, .dflt = "1",
	 .at = AT(cpu_count), .help = "cores per node"},
	{.name = "memory", .kind = SPEC_BYTES, .min = 16 << 20, .max = INT64_C(1) << 50,
	 .dflt = "2Gi",
	 .at = AT(memory_bytes), .help = "memory per node, a hard limit: `64Gi`"},
	{.name = "accelerator", SPEC_BY(accelerator), IF(gpu_type, R_TEXT), .type = "text",
	 .help = "type and count per node: `H200:8`; none if omitted"},
	{.name = "availability_model", SPEC_BY(availability),
	 .dflt = "dedicated", .type = "dedicated, spot",
	 .help = "accepted for compatibility: Stoker never preempts a job"},
};
static const struct spec_block compute_block =
	SPEC_MAP("job.compute", "Resources of each node.", compute_fields);

static const struct spec_field cache_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(cache.enabled), .dflt = "false",
	 .help = "mount the project's and the team's cache, read-write"},
	{.name = "enable_legacy_hf_mount", .kind = SPEC_BOOL, .at = AT(cache.legacy_hf_mount),
	 .dflt = "false", .help = "also mount /root/.cache/huggingface, for older projects"},
	{.name = "enable_legacy_hf_cache", .kind = SPEC_BOOL, .flags = SPEC_INPUT,
	 .at = AT(cache.legacy_hf_mount),
	 .help = "older name of enable_legacy_hf_mount"},
	{.name = "require_cache_affinity", .kind = SPEC_BOOL, .at = AT(cache.require_affinity),
	 .dflt = "true",
	 .help = "fail instead of running on a cluster that does not hold the project's cache"},
	{.name = "mount_base_path", .kind = SPEC_PATH, .at = AT(cache.base_path),
	 .dflt = "/root/.cache", .help = "parent folder of user_artifacts and team_artifacts"},
};
static const struct spec_block cache_block =
	SPEC_MAP("job.runtime.cache_config", "Storage that outlives jobs.", cache_fields);

static const struct spec_field ckpt_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(ckpt.enabled), .dflt = "false",
	 .help = "upload what the job writes to the folder while it runs; checkpoints can then be "
	         "loaded and pulled"},
	{.name = "checkpoint_path", .kind = SPEC_PATH, .at = AT(ckpt.path), .dflt = "/mnt/ckpts",
	 .help = "the checkpoint folder; BT_CHECKPOINT_DIR holds its path"},
	{.name = "volume_size_gib", .kind = SPEC_GIB, .min = 1, .max = 1 << 20,
	 .at = AT(ckpt.volume_bytes), IF(ckpt.volume_bytes, R_U64),
	 .help = "size limit of the folder in GiB; a job that exceeds it is ended, or, where the file system enforces the limit, its writes fail; none if omitted"},
	{.name = "keep_last", .kind = SPEC_U32, .min = 0, .max = 1000000, .dflt = "0",
	 .at = AT(ckpt.keep_last),
	 .help = "number of checkpoints to keep in the store, 0 for all; pinned ones do not count "
	         "(Stoker only)"},
	{.name = "marker", .kind = SPEC_TEXT, .flags = SPEC_SPARSE, .max = 255,
	 .at = AT(ckpt.marker),
	 .help = "the file that the trainer writes last, such as DONE: a checkpoint without it is "
	         "not complete. By default the one of the trainer, if Stoker knows it (Stoker only)"},
	{.name = "settle", .kind = SPEC_SECONDS32, .flags = SPEC_SPARSE, .min = 1, .max = 3600,
	 .at = AT(ckpt.settle_s),
	 .help = "how long a checkpoint must stay unchanged if nothing else shows that it is "
	         "complete; 30s by default (Stoker only)"},
};
static const struct spec_block ckpt_block =
	SPEC_MAP("job.runtime.checkpointing_config",
	         "Checkpoints are uploaded to the object store while training goes on.",
	      ckpt_fields);

static const struct spec_field load_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(load.enabled), .dflt = "false",
	 .help = "fetch checkpoints before user code starts"},
	{.name = "checkpoints", .kind = SPEC_MAPS, .max = SPEC_REFS_MAX, .at = AT(load.refs),
	 .at_n = AT(load.n_refs), .block = &spec_ref_block,
	 .help = "which ones; if omitted, the newest complete one of this project, preferring jobs "
	         "of the same name"},
	{.name = "required", .kind = SPEC_BOOL, .at = AT(load.required),
	 .help = "whether a missing checkpoint is an error. false: the job starts fresh and its "
	         "log says so. Default: true if `checkpoints` names any, else false (Stoker only)"},
	{.name = "download_folder", .kind = SPEC_PATH, .at = AT(load.folder),
	 .dflt = "/tmp/loaded_checkpoints",
	 .help = "where they go; BT_LOAD_CHECKPOINT_DIR holds the path"},
};
static const struct spec_block load_block =
	SPEC_MAP("job.runtime.load_checkpoint_config", "Start from an earlier checkpoint.",
	         load_fields);

static const struct spec_field hub_fields[] = {
	{.name = "push", LIST(SPEC_TEXTS, hub_push), .max = SPEC_HUB_PUSH_MAX,
	 .help = "repositories of this server that the job may push to, and create: "
	         "`OWNER/NAME`, `datasets/OWNER/NAME`, or `NAME` for one of your own. You need "
	         "the right to write to them"},
};
static const struct spec_block hub_block =
	SPEC_MAP("job.runtime.hub",
	         "What the job may do at the server's Hub beside reading; see docs/hub.md (Stoker "
	         "only).",
	         hub_fields);

static const struct spec_field compile_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(compile.enabled), .dflt = "false",
	 .help = "fill the caches of compilers before the commands run, and keep what is new"},
	{.name = "repo", .kind = SPEC_TEXT, .flags = SPEC_SPARSE, .max = 200, .at = AT(compile.repo),
	 .help = "the repository on this server that holds them: `OWNER/NAME`, or `NAME` for one of "
	         "your own; by default `TEAM/" SPEC_COMPILE_REPO "`. It is made if it is not there"},
};
static const struct spec_block compile_block =
	SPEC_MAP("job.runtime.compile_cache",
	         "What torch.compile, Triton, JAX, vLLM, AWS Neuron, ccache and others compile, kept "
	         "for the next job; see docs/compile-cache.md (Stoker only).",
	         compile_fields);

static const struct spec_field serve_fields[] = {
	{.name = "name", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = SPEC_SERVE_NAME_MAX,
	 .at = AT(serve.name),
	 .help = "what it is served as: `/deployments/NAME/`. Lower-case letters, digits and "
	         "hyphens. Jobs of a team with the same name share the requests"},
	{.name = "health", .kind = SPEC_TEXT, .max = 200, .dflt = "/health", .at = AT(serve.health),
	 .help = "path that answers 2xx once the job's server can take requests"},
};
static const struct spec_block serve_block =
	SPEC_MAP("job.runtime.serve",
	         "An HTTP server that the job runs, reached through Stoker; see docs/serving.md "
	         "(Stoker only).",
	         serve_fields);

static const struct spec_field runtime_fields[] = {
	{.name = "start_commands", LIST(SPEC_TEXTS, commands), .flags = SPEC_REQUIRED_FILE,
	 .max = SPEC_COMMANDS_MAX,
	 .help = "shell commands, run in order by one shell, so `cd` and `export` carry over; the first failure ends the job"},
	{.name = "environment_variables", SPEC_BY(env),
	 .type = "map of text or { secret: NAME }", .help = "set before the first command"},
	{.name = "python", SPEC_BY(python), .flags = SPEC_SPARSE, IF(python.wanted, R_BOOL),
	 .block = &spec_python_block, .type = "map, path, or list of text",
	 .help = "the job's Python packages: `{ requirements: requirements.txt }`"},
	{.name = "cache_config", .kind = SPEC_BLOCK, .block = &cache_block,
	 .help = "the training cache"},
	{.name = "enable_cache", .kind = SPEC_CUSTOM, .read = spec_read_enable_cache,
	 .type = "true, false",
	 .help = "deprecated: use cache_config"},
	{.name = "checkpointing_config", .kind = SPEC_BLOCK, .block = &ckpt_block,
	 .help = "checkpoints"},
	{.name = "load_checkpoint_config", .kind = SPEC_BLOCK, .block = &load_block,
	 .help = "checkpoints to start from"},
	{.name = "hub", .kind = SPEC_BLOCK, .flags = SPEC_SPARSE, IF(n_hub_push, R_U64),
	 .block = &hub_block, .help = "repositories to push to"},
	{.name = "artifacts", LIST(SPEC_MAPS, artifacts), .flags = SPEC_CLIENT,
	 .max = SPEC_ARTIFACT_MAX, .block = &spec_artifact_block,
	 .help = "the uploaded code; `stoker push` fills it in"},
	{.name = "compile_cache", .kind = SPEC_BLOCK, .flags = SPEC_SPARSE,
	 IF(compile.enabled, R_BOOL), .block = &compile_block,
	 .help = "what compilers made, from the jobs before: `{ enabled: true }`"},
	{.name = "serve", .kind = SPEC_BLOCK, .flags = SPEC_SPARSE, IF(serve.name, R_TEXT),
	 .block = &serve_block, .help = "an HTTP server of the job's: `{ name: NAME }`"},
};
static const struct spec_block runtime_block =
	SPEC_MAP("job.runtime", "Commands and their environment.", runtime_fields);

static const struct spec_field retry_fields[] = {
	{.name = "on", SPEC_BY(retry_on), .flags = SPEC_REQUIRED, .type = "list of text",
	 .help = "`node_fail`, `failure` (nonzero exit code but 126 and 127, as a command that is not there is not there the next time; signal, out of memory, or over a disk limit), "
	         "`exit:N`, `preempted`"},
	{.name = "max_attempts", .kind = SPEC_U32, .min = 1, .max = 100,
	 .at = AT(retry.max_attempts), .help = "total number of attempts; 3 if omitted"},
};
static const struct spec_block retry_block =
	SPEC_MAP("job.retry", "When to retry the job (Stoker only).", retry_fields);

static const struct spec_field limits_fields[] = {
	{.name = "max_duration", .kind = SPEC_SECONDS, .min = 0, .max = INT64_C(366) * 86400,
	 .at = AT(max_duration_s),
	 .help = "the job is stopped after this time; no limit if omitted"},
	{.name = "stop_grace", .kind = SPEC_SECONDS, .min = 0, .max = 86400, .dflt = "30s",
	 .at = AT(grace_s), .help = "time between SIGTERM and SIGKILL"},
	{.name = "idle_gpu", .kind = SPEC_SECONDS, .min = 0, .max = INT64_C(366) * 86400,
	 .at = AT(idle_gpu_s),
	 .help = "stop the job when all its GPUs have been below " IDLE_PERCENT " and it has "
	         "printed nothing for this long; a warning comes at half the time; no limit if "
	         "omitted"},
};
static const struct spec_block limits_block =
	SPEC_MAP("job.limits", "Limits (Stoker only).", limits_fields);

static const struct spec_field git_fields[] = {
	{.name = "commit", .kind = SPEC_TEXT, .max = 100, .at = AT(git.commit),
	 .help = "commit id"},
	{.name = "branch", .kind = SPEC_TEXT, .flags = SPEC_SPARSE, .max = 1000,
	 .at = AT(git.branch),
	 .help = "branch; empty if none is checked out"},
	{.name = "remote", .kind = SPEC_TEXT, .flags = SPEC_SPARSE, .max = 4000,
	 .at = AT(git.remote),
	 .help = "URL of origin, without credentials"},
	{.name = "dirty", .kind = SPEC_BOOL, .at = AT(git.dirty),
	 .help = "true if the code has uncommitted changes"},
};
static const struct spec_block git_block =
	SPEC_MAP("job.git", "The commit that the code comes from (Stoker only).", git_fields);

/* The client has applied its workspace already, before it sent the code. */
static const struct spec_field workspace_fields[] = {
	{.name = "workspace_root", .kind = SPEC_IGNORED, .help = "root folder of the code"},
	{.name = "external_dirs", .kind = SPEC_IGNORED, .help = "folders added to the archive"},
	{.name = "exclude_dirs", .kind = SPEC_IGNORED, .help = "folders excluded from the archive"},
};
static const struct spec_block workspace_block =
	SPEC_MAP("job.workspace", "How the client built the archive; the server does not need it.",
	      workspace_fields);

static const struct spec_field job_fields[] = {
	{.name = "name", .kind = SPEC_NAME, .at = AT(name),
	 .help = "name of the job; job-N if omitted"},
	{.name = "image", .kind = SPEC_BLOCK, .block = &image_block, .help = "container image"},
	{.name = "compute", .kind = SPEC_BLOCK, .block = &compute_block,
	 .help = "CPUs, memory, accelerators, nodes"},
	{.name = "runtime", .kind = SPEC_BLOCK, .flags = SPEC_REQUIRED_FILE,
	 .block = &runtime_block,
	 .help = "commands and environment"},
	{.name = "weights", LIST(SPEC_MAPS, weights), .max = SPEC_WEIGHTS_MAX,
	 .block = &spec_weights_block, .help = "models and data, mounted read-only"},
	{.name = "priority", .kind = SPEC_I64, .at = AT(priority), .dflt = "0",
	 .help = "jobs with a higher priority start first"},
	{.name = "enable_baseten_workdir", .kind = SPEC_BOOL, .at = AT(workdir),
	 .help = "unpack the code in /b10/workspace; default true in a file, false in an API "
	         "request"},
	{.name = "retry", .kind = SPEC_BLOCK, .block = &retry_block, IF(retry.wanted, R_BOOL),
	 .help = "when to retry"},
	{.name = "limits", .kind = SPEC_BLOCK, .block = &limits_block, .help = "time limits"},
	{.name = "interactive_session", SPEC_BY(session), .flags = SPEC_SPARSE,
	 IF(session_on_demand, R_BOOL), .block = &spec_session_block, .type = "map",
	 .help = "only on demand, through `stoker exec`; ssh and editors are not supported"},
	{.name = "notify", LIST(SPEC_MAPS, notify), .flags = SPEC_SPARSE, .max = SPEC_NOTIFY_MAX,
	 .block = &spec_notify_block,
	 .help = "webhooks to call when the job changes state"},
	{.name = "workspace", .kind = SPEC_BLOCK, .flags = SPEC_CLIENT | SPEC_INPUT,
	 .block = &workspace_block,
	 .help = "use .stokerignore to exclude files"},
	{.name = "git", .kind = SPEC_BLOCK, .flags = SPEC_CLIENT | SPEC_SPARSE,
	 IF(git.commit, R_TEXT), .block = &git_block,
	 .help = "commit that was checked out"},
	{.name = "truss_user_env", .kind = SPEC_CUSTOM, .flags = SPEC_CLIENT,
	 .read = spec_read_user_env, .type = "map",
	 .help = "information about the client; its `git_info` is kept as `git`"},
};
const struct spec_block spec_job_block = 
	SPEC_MAP("job", "The job: what to run, and where.", job_fields);

static const struct spec_field file_fields[] = {
	{.name = "project", .kind = SPEC_NAME, .flags = SPEC_REQUIRED, .at = AT(project),
	 .help = "name of the project, or `TEAM/PROJECT`; the project is created if it does not exist"},
	{.name = "team", .kind = SPEC_NAME, .at = AT(team),
	 .help = "team that owns the project; your default team if neither this nor `project` names one"},
	{.name = "job", .kind = SPEC_BLOCK, .flags = SPEC_REQUIRED, .block = &spec_job_block,
	 .help = "the job itself"},
};
const struct spec_block spec_file_block =
	SPEC_MAP("train.yaml", "Top level of the file.", file_fields);
/* clang-format on */
