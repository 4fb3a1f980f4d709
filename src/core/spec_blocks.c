/* spec_blocks.c - the fields of a specification, block by block. */
#include "core/idle.h"
#include "core/spec_table.h"

#define AT(member) offsetof(struct job_spec, member)

/* clang-format off */
static const struct spec_field image_fields[] = {
	{.name = "base_image", .kind = SPEC_TEXT, .max = 500, .at = AT(base_image),
	 .help = "full tag of the image; leave it out to run on the host's own root, sandboxed"},
	{.name = "docker_auth", .kind = SPEC_CUSTOM, .read = spec_read_docker_auth,
	 .block = &spec_docker_auth_block, .type = "map",
	 .help = "credentials of a private registry"},
};
static const struct spec_block image_block =
	SPEC_MAP("job.image", "What the job runs in.", image_fields);

static const struct spec_field compute_fields[] = {
	{.name = "node_count", .kind = SPEC_U32, .min = 1, .max = SPEC_NODES_MAX, .dflt = "1",
	 .at = AT(node_count), .help = "identical nodes; all of them start together or none"},
	{.name = "cpu_count", .kind = SPEC_REAL, .min = 0, .max = 4096, .dflt = "1",
	 .at = AT(cpu_count), .help = "cores per node"},
	{.name = "memory", .kind = SPEC_BYTES, .min = 16 << 20, .max = INT64_C(1) << 50,
	 .dflt = "2Gi",
	 .at = AT(memory_bytes), .help = "memory per node, a hard limit: `64Gi`"},
	{.name = "accelerator", .kind = SPEC_CUSTOM, .read = spec_read_accelerator, .type = "text",
	 .help = "type and count per node: `H200:8`; leave it out for none"},
	{.name = "availability_model", .kind = SPEC_CUSTOM, .read = spec_read_availability,
	 .dflt = "dedicated", .type = "dedicated, spot",
	 .help = "both are treated alike: nothing is preempted here"},
};
static const struct spec_block compute_block =
	SPEC_MAP("job.compute", "What the job needs, per node.", compute_fields);

static const struct spec_field cache_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(cache.enabled), .dflt = "false",
	 .help = "mount the caches of project and team, read-write"},
	{.name = "enable_legacy_hf_mount", .kind = SPEC_BOOL, .at = AT(cache.legacy_hf_mount),
	 .dflt = "false", .help = "also mount /root/.cache/huggingface, for old projects"},
	{.name = "enable_legacy_hf_cache", .kind = SPEC_BOOL, .at = AT(cache.legacy_hf_mount),
	 .help = "older name of enable_legacy_hf_mount"},
	{.name = "require_cache_affinity", .kind = SPEC_BOOL, .at = AT(cache.require_affinity),
	 .dflt = "true", .help = "fail rather than run where the project's cache is not"},
	{.name = "mount_base_path", .kind = SPEC_PATH, .at = AT(cache.base_path),
	 .dflt = "/root/.cache", .help = "user_artifacts and team_artifacts are below it"},
};
static const struct spec_block cache_block =
	SPEC_MAP("job.runtime.cache_config", "Storage that outlives jobs.", cache_fields);

static const struct spec_field ckpt_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(ckpt.enabled), .dflt = "false",
	 .help = "whatever is written to the folder is kept and can be loaded, pulled, deployed"},
	{.name = "checkpoint_path", .kind = SPEC_PATH, .at = AT(ckpt.path), .dflt = "/mnt/ckpts",
	 .help = "the folder; BT_CHECKPOINT_DIR names it"},
	{.name = "volume_size_gib", .kind = SPEC_GIB, .min = 1, .max = 1 << 20,
	 .at = AT(ckpt.volume_bytes), .help = "limit of the folder in GiB; none when left out"},
	{.name = "keep_last", .kind = SPEC_U32, .min = 0, .max = 1000000, .dflt = "0",
	 .at = AT(ckpt.keep_last), .help = "checkpoints kept in the store, 0 for all; pinned ones are kept beside; ours"},
	{.name = "settle", .kind = SPEC_SECONDS32, .min = 1, .max = 3600, .dflt = "10s",
	 .at = AT(ckpt.settle_s),
	 .help = "a file that rests for so long is taken as written; ours"},
};
static const struct spec_block ckpt_block =
	SPEC_MAP("job.runtime.checkpointing_config", "Checkpoints leave the machine by themselves.",
	      ckpt_fields);

static const struct spec_field load_fields[] = {
	{.name = "enabled", .kind = SPEC_BOOL, .at = AT(load.enabled), .dflt = "false",
	 .help = "fetch checkpoints before user code starts"},
	{.name = "checkpoints", .kind = SPEC_CUSTOM, .read = spec_read_refs,
	 .block = &spec_ref_block,
	 .type = "list of maps",
	 .help = "which; when left out, the newest complete one of this project's jobs, those "
	         "of the same name first"},
	{.name = "required", .kind = SPEC_BOOL, .at = AT(load.required),
	 .help = "false: without such a checkpoint the job starts fresh, and says so in its log; "
	         "true when `checkpoints` names any, false when it is left out; ours"},
	{.name = "download_folder", .kind = SPEC_PATH, .at = AT(load.folder),
	 .dflt = "/tmp/loaded_checkpoints", .help = "BT_LOAD_CHECKPOINT_DIR names it"},
};
static const struct spec_block load_block =
	SPEC_MAP("job.runtime.load_checkpoint_config", "Start from an earlier checkpoint.",
	         load_fields);

static const struct spec_field runtime_fields[] = {
	{.name = "start_commands", .kind = SPEC_TEXTS, .flags = SPEC_REQUIRED_FILE,
	 .max = SPEC_COMMANDS_MAX, .at = AT(commands), .at_n = AT(n_commands),
	 .help = "shell commands, in order, until one fails"},
	{.name = "environment_variables", .kind = SPEC_CUSTOM, .read = spec_read_env,
	 .type = "map of text or { secret: NAME }", .help = "set before the first command"},
	{.name = "python", .kind = SPEC_CUSTOM, .read = spec_read_python, .block = &spec_python_block,
	 .type = "map, path, or list of text",
	 .help = "the Python packages of the job: `{ requirements: requirements.txt }`"},
	{.name = "cache_config", .kind = SPEC_BLOCK, .block = &cache_block,
	 .help = "the training cache"},
	{.name = "enable_cache", .kind = SPEC_CUSTOM, .read = spec_read_enable_cache,
	 .type = "true, false",
	 .help = "deprecated: use cache_config"},
	{.name = "checkpointing_config", .kind = SPEC_BLOCK, .block = &ckpt_block,
	 .help = "checkpoints"},
	{.name = "load_checkpoint_config", .kind = SPEC_BLOCK, .block = &load_block,
	 .help = "checkpoints to start from"},
	{.name = "artifacts", .kind = SPEC_CUSTOM, .flags = SPEC_CLIENT,
	 .read = spec_read_artifacts,
	 .block = &spec_artifact_block, .type = "list of maps",
	 .help = "the code, which `stoker push` sends from the folder of the file"},
	{.name = "compile_cache", .kind = SPEC_REFUSED,
	 .help = "point the framework's own cache below BT_PROJECT_CACHE_DIR"},
};
static const struct spec_block runtime_block =
	SPEC_MAP("job.runtime", "What runs, and with what.", runtime_fields);

static const struct spec_field retry_fields[] = {
	{.name = "on", .kind = SPEC_CUSTOM, .flags = SPEC_REQUIRED, .read = spec_read_retry_on,
	 .type = "list of text",
	 .help = "`node_fail`, `failure` (any exit code but 0, a signal, out of memory), "
	         "`exit:N`, `preempted`"},
	{.name = "max_attempts", .kind = SPEC_U32, .min = 1, .max = 100,
	 .at = AT(retry.max_attempts), .help = "attempts in all; 3 when left out"},
};
static const struct spec_block retry_block =
	SPEC_MAP("job.retry", "Ends after which the job is tried again (ours).", retry_fields);

static const struct spec_field limits_fields[] = {
	{.name = "max_duration", .kind = SPEC_SECONDS, .min = 0, .max = INT64_C(366) * 86400,
	 .at = AT(max_duration_s), .help = "user code is stopped after this; none when left out"},
	{.name = "stop_grace", .kind = SPEC_SECONDS, .min = 0, .max = 86400, .dflt = "30s",
	 .at = AT(grace_s), .help = "from SIGTERM to SIGKILL"},
	{.name = "idle_gpu", .kind = SPEC_SECONDS, .min = 0, .max = INT64_C(366) * 86400,
	 .at = AT(idle_gpu_s),
	 .help = "user code is stopped when every GPU of the job was below " IDLE_PERCENT " and not a "
	         "byte was printed for this long; a warning after half of it; none when left out"},
};
static const struct spec_block limits_block =
	SPEC_MAP("job.limits", "Limits (ours).", limits_fields);

/* What a client's workspace did, it did before it sent the code. */
static const struct spec_field workspace_fields[] = {
	{.name = "workspace_root", .kind = SPEC_IGNORED, .help = "root of the code"},
	{.name = "external_dirs", .kind = SPEC_IGNORED, .help = "folders copied in"},
	{.name = "exclude_dirs", .kind = SPEC_IGNORED, .help = "folders left out"},
};
static const struct spec_block workspace_block =
	SPEC_MAP("job.workspace", "How the client made the archive; nothing is left to do.",
	      workspace_fields);

static const struct spec_field job_fields[] = {
	{.name = "name", .kind = SPEC_NAME, .at = AT(name), .help = "job-N when left out"},
	{.name = "image", .kind = SPEC_BLOCK, .block = &image_block, .help = "what it runs in"},
	{.name = "compute", .kind = SPEC_BLOCK, .block = &compute_block, .help = "what it needs"},
	{.name = "runtime", .kind = SPEC_BLOCK, .flags = SPEC_REQUIRED_FILE,
	 .block = &runtime_block,
	 .help = "what it runs"},
	{.name = "weights", .kind = SPEC_CUSTOM, .read = spec_read_weights,
	 .block = &spec_weights_block,
	 .type = "list of maps", .help = "inputs, read-only"},
	{.name = "priority", .kind = SPEC_I64, .at = AT(priority), .dflt = "0",
	 .help = "higher goes first; any whole number"},
	{.name = "enable_baseten_workdir", .kind = SPEC_BOOL, .at = AT(workdir),
	 .help = "code goes to /b10/workspace; true in a file, false in a request without it"},
	{.name = "retry", .kind = SPEC_BLOCK, .block = &retry_block, .help = "when to try again"},
	{.name = "limits", .kind = SPEC_BLOCK, .block = &limits_block, .help = "limits"},
	{.name = "interactive_session", .kind = SPEC_CUSTOM, .read = spec_read_session,
	 .block = &spec_session_block, .type = "map",
	 .help = "on demand only, and by `stoker exec`: ssh and editors are not offered"},
	{.name = "notify", .kind = SPEC_CUSTOM, .read = spec_read_notify,
	 .block = &spec_notify_block, .type = "list of maps",
	 .help = "webhooks that are told of the job's states"},
	{.name = "workspace", .kind = SPEC_BLOCK, .flags = SPEC_CLIENT, .block = &workspace_block,
	 .help = "name what to leave out in .stokerignore"},
	{.name = "truss_user_env", .kind = SPEC_IGNORED, .flags = SPEC_CLIENT,
	 .help = "what the client says about itself"},
};
const struct spec_block spec_job_block = SPEC_MAP("job", "One unit of execution.", job_fields);

static const struct spec_field file_fields[] = {
	{.name = "project", .kind = SPEC_NAME, .flags = SPEC_REQUIRED, .at = AT(project),
	 .help = "the project; made when there is none of that name"},
	{.name = "team", .kind = SPEC_NAME, .at = AT(team),
	 .help = "the default team when left out"},
	{.name = "job", .kind = SPEC_BLOCK, .flags = SPEC_REQUIRED, .block = &spec_job_block,
	 .help = "the job"},
};
const struct spec_block spec_file_block =
	SPEC_MAP("train.yaml", "The file as a whole.", file_fields);
/* clang-format on */
