/* show.c - rows as JSON objects. */
#include "face/show.h"

#include "face/face.h"

#define MIB ((uint64_t)1 << 20)

static const char *const roles[] = {
	[ROLE_VIEWER] = "viewer", [ROLE_MEMBER] = "member", [ROLE_ADMIN] = "admin"};
const struct words show_roles = WORDS("viewer, member or admin", roles[0], roles);

/* clang-format off */
static const struct { const char *type; int64_t mib; } gpu_memory[] = {
	{ "A100",         81920 }, { "A100_40GB",  40960 }, { "A10G",      24576 }, { "B200",  184320 },
	{ "B300",        294912 }, { "GB300",     294912 }, { "H100",      81920 }, { "H100_40GB", 40960 },
	{ "H200",        144384 }, { "L4",         24576 }, { "L40S",      49152 },
	{ "RTX_PRO_6000", 98304 }, { "T4",         16384 }, { "V100",      16384 },
};
/* clang-format on */

int64_t show_gpu_memory_mib(const char *gpu_type)
{
	for (size_t i = 0; gpu_type != NULL && i < COUNT(gpu_memory); i++)
		if (strcmp(gpu_memory[i].type, gpu_type) == 0)
			return gpu_memory[i].mib;
	return 0;
}

/* "4x16" as clouds name it: cores and GiB, with a fraction only where there is one. */
static const char *size_of(struct arena *a, const struct instance *in)
{
	double cores = in->cpu_milli / 1000.0, gib = (double)in->memory_bytes / (1024.0 * MIB);

	return arena_printf(a, "%.4gx%.4g", cores, gib);
}

const char *show_instance_name(struct arena *a, const struct instance *in)
{
	if (in->gpu_type == NULL || in->gpu_count == 0)
		return arena_printf(a, "CPU %s", size_of(a, in));
	return arena_printf(a, "%s:%u %s", in->gpu_type, in->gpu_count, size_of(a, in));
}

const char *show_instance_id(struct arena *a, const struct instance *in)
{
	if (in->gpu_type == NULL || in->gpu_count == 0)
		return arena_printf(a, "cpu-%s", size_of(a, in));
	return arena_printf(a, "%s-%u-%s", in->gpu_type, in->gpu_count, size_of(a, in));
}

void show_time(struct js *js, const char *key, int64_t ms)
{
	char text[CLOCK_ISO_CAP];

	if (ms == 0) {
		js_kv_null(js, key);
		return;
	}
	clock_iso(ms, text);
	js_kv(js, key, text);
}

SHOWN(team, "Team", model_team, ROW(model_team, R_TEXT, id), ROW(model_team, R_TEXT, name),
      ROW_AS(model_team, R_BOOL, "default", is_default),
      ROW_AS(model_team, R_TIME | R_NULL, "created_at", created_ms));

SHOWN(token, "ApiKey", model_token, ROW(model_token, R_TEXT, id), ROW(model_token, R_TEXT, name),
      ROW_WORD(model_token, R_WORD, role, show_roles), ROW(model_token, R_TEXT | R_NULL, team_id),
      ROW(model_token, R_TEXT | R_NULL, team_name),
      ROW_AS(model_token, R_TIME | R_NULL, "created_at", created_ms),
      ROW_AS(model_token, R_TIME | R_NULL, "last_used_at", used_ms),
      ROW_AS(model_token, R_TIME | R_NULL, "expires_at", expires_ms));

#define SECRET(k, n, f) ROW_AS(shown_secret, k, n, s.f)
SHOWN(secret, "Secret", shown_secret, SECRET(R_TEXT, "id", id), SECRET(R_TEXT, "name", name),
      SECRET(R_TIME | R_NULL, "created_at", created_ms),
      SECRET(R_TIME | R_NULL, "updated_at", updated_ms),
      SECRET(R_TIME | R_NULL, "last_used_at", used_ms), SECRET(R_TEXT | R_NULL, "team_id", team_id),
      ROW(shown_secret, R_TEXT | R_NULL, team_name));

SHOWN(event, "Event", model_event, ROW(model_event, R_I64, seq),
      ROW_AS(model_event, R_TIME | R_NULL, "timestamp", ms), ROW(model_event, R_TEXT, kind),
      ROW(model_event, R_TEXT | R_NULL, from), ROW(model_event, R_TEXT | R_NULL, to),
      ROW(model_event, R_TEXT | R_NULL, actor), ROW(model_event, R_TEXT | R_NULL, message));

SHOWN(attempt, "Attempt", model_attempt, ROW(model_attempt, R_TEXT, id),
      ROW(model_attempt, R_U32, number), ROW(model_attempt, R_U32, node_rank),
      ROW(model_attempt, R_TEXT | R_NULL, node), ROW(model_attempt, R_TEXT | R_NULL, cluster),
      ROW(model_attempt, R_BITS, gpus),
      ROW_AS(model_attempt, R_TIME | R_NULL, "launched_at", launched_ms),
      ROW_AS(model_attempt, R_TIME | R_NULL, "claimed_at", claimed_ms),
      ROW_AS(model_attempt, R_TIME | R_NULL, "ended_at", ended_ms),
      ROW_AS(model_attempt, R_TIME | R_NULL, "heartbeat_at", heartbeat_ms),
      ROW(model_attempt, R_BOOL, ready));

/* --- jobs and projects --- */

static const char *const availabilities[] = {"dedicated", "spot"};
static const struct words availability_words = WORDS("a model", availabilities[0], availabilities);

struct shown_job {
	struct model_job j;
	const char *instance_id, *instance_name, *end_detail;
	uint64_t memory_mib, gpu_mib;
	unsigned availability;
	bool in_progress;
};

#define JOB(k, n, f) ROW_AS(shown_job, k, n, j.f)
SHOWN(instance, "Instance", shown_job, ROW_AS(shown_job, R_TEXT, "id", instance_id),
      ROW_AS(shown_job, R_TEXT, "name", instance_name),
      ROW_AS(shown_job, R_U64, "memory_limit_mib", memory_mib),
      JOB(R_U32, "millicpu_limit", cpu_milli), JOB(R_U32, "gpu_count", gpu_count),
      JOB(R_TEXT | R_NULL, "gpu_type", gpu_type),
      ROW_AS(shown_job, R_U64 | R_NULL, "gpu_memory_limit_mib", gpu_mib));
/* A dry run has no ids. */
static SHOWN(job_project, NULL, shown_job, JOB(R_TEXT | R_NULL, "id", project_id),
             JOB(R_TEXT, "name", project_name));
static SHOWN(job_team, NULL, shown_job, JOB(R_TEXT | R_NULL, "id", team_id),
             JOB(R_TEXT | R_NULL, "name", team_name));
static SHOWN(job_user, NULL, shown_job, JOB(R_TEXT, "email", user));
static SHOWN(job_progress, NULL, shown_job, JOB(R_TEXT | R_NULL, "note", progress),
             JOB(R_U64, "done_bytes", progress_done), JOB(R_U64, "total_bytes", progress_total),
             JOB(R_REAL, "rate_bytes_per_second", progress_rate));
static SHOWN(job_end, NULL, shown_job, ROW_WORD_AS(shown_job, 0, "kind", j.end, job_ends),
             JOB(R_INT | R_SIGNED, "code", end_code),
             ROW_AS(shown_job, R_TEXT, "detail", end_detail));

SHOWN(job, "TrainingJob", shown_job, JOB(R_TEXT | R_NULL, "id", id),
      JOB(R_TEXT | R_NULL, "name", name), JOB(R_TIME | R_NULL, "created_at", created_ms),
      JOB(R_TIME | R_NULL, "updated_at", updated_ms),
      ROW_WORD_AS(shown_job, 0, "current_status", j.core.state, job_statuses),
      ROW_PART(0, "instance_type", instance), ROW_PART(0, "training_project", job_project),
      JOB(R_TEXT | R_NULL, "training_project_id", project_id),
      JOB(R_TEXT | R_NULL, "error_message", error_message),
      JOB(R_TEXT | R_NULL, "error_id", error_id),
      JOB(R_TEXT | R_NULL, "checkpoint_sync_status", sync_status),
      JOB(R_I64 | R_SIGNED, "priority", priority),
      ROW_WORD_AS(shown_job, 0, "availability_model", availability, availability_words),
      JOB(R_U32, "node_count", node_count), ROW_PART(0, "user", job_user),
      JOB(R_TEXT | R_NULL, "reason", reason), JOB(R_U64 | R_NULL, "place_in_line", place),
      JOB(R_TIME | R_NULL, "starts_by", start_by_ms), JOB(R_TEXT | R_NULL, "stage", stage),
      ROW_PART_IF(shown_job, "progress", in_progress, job_progress),
      ROW_PART(R_NULL, "end", job_end), JOB(R_U32, "attempt", core.attempt),
      JOB(R_TIME | R_NULL, "started_at", started_ms), JOB(R_TIME | R_NULL, "ended_at", ended_ms),
      ROW_PART(0, "team", job_team), JOB(R_TEXT | R_NULL, "recreated_from", recreated_from),
      JOB(R_TEXT | R_NULL, "kept_by_deployment", kept_by));

/* What is known of its inputs once they were resolved: of one job, not of lists. */
struct shown_weights {
	const char *source, *revision, *mount_location, *manifest;
	uint64_t bytes;
};
static SHOWN(resolved_weights, NULL, shown_weights, ROW(shown_weights, R_TEXT, source),
             ROW(shown_weights, R_TEXT, revision), ROW(shown_weights, R_TEXT, mount_location),
             ROW(shown_weights, R_TEXT, manifest), ROW(shown_weights, R_U64, bytes));

struct shown_inputs {
	struct shown_weights *weights;
	size_t n_weights;
	bool has_image;
	const char *reference, *digest, *id; /* of the image, when the job first started */
	const struct doc *spec;
};
static SHOWN(image, NULL, shown_inputs, ROW(shown_inputs, R_TEXT | R_NULL, reference),
             ROW(shown_inputs, R_TEXT | R_NULL, digest), ROW(shown_inputs, R_TEXT, id));
SHOWN(job_inputs, NULL, shown_inputs,
      ROW_OF_AS(shown_inputs, R_LIST, "weights", weights, n_weights, resolved_weights),
      ROW_PART_IF(shown_inputs, "image", has_image, image), ROW(shown_inputs, R_DOC, spec));

struct shown_project {
	struct model_project p;
	struct shown_job latest;
	bool has_latest;
};
#define PROJECT(k, n, f) ROW_AS(shown_project, k, n, p.f)
SHOWN(project, "TrainingProject", shown_project, PROJECT(R_TEXT, "id", id),
      PROJECT(R_TEXT, "name", name), PROJECT(R_TIME | R_NULL, "created_at", created_ms),
      PROJECT(R_TIME | R_NULL, "updated_at", updated_ms),
      PROJECT(R_TEXT | R_NULL, "team_id", team_id),
      PROJECT(R_TEXT | R_NULL, "team_name", team_name),
      PROJECT(R_TEXT | R_NULL, "cluster", pinned_cluster),
      PROJECT(R_U64, "cache_quota_bytes", cache_quota_bytes),
      ROW_OF_AS(shown_project, R_ONE | R_NULL, "latest_job", latest, has_latest, job));

/* --- checkpoints and weights --- */

static const char *const syncs[] = {"SYNCING", "COMPLETE"};
static const struct words sync_words = WORDS("a state", syncs[0], syncs);

struct shown_checkpoint {
	struct model_checkpoint c;
	const char *id;
	unsigned sync;
	bool complete;
};
#define CKPT(k, n, f) ROW_AS(shown_checkpoint, k, n, c.f)
static SHOWN(lora, NULL, shown_checkpoint, CKPT(R_I64, "r", lora_r));
SHOWN(checkpoint, "Checkpoint", shown_checkpoint, ROW(shown_checkpoint, R_TEXT, id),
      CKPT(R_TEXT, "checkpoint_id", name), CKPT(R_TIME, "created_at", created_ms),
      CKPT(R_TEXT, "checkpoint_type", kind), CKPT(R_TEXT | R_NULL, "base_model", base_model),
      CKPT(R_U64, "size_bytes", bytes), ROW_PART(R_NULL, "lora_adapter_config", lora),
      CKPT(R_TEXT, "training_job_id", job_id),
      ROW_WORD_AS(shown_checkpoint, 0, "sync_status", sync, sync_words),
      CKPT(R_U32, "node_rank", rank),
      ROW_WORD_AS(shown_checkpoint, 0, "state", c.state, ckpt_states),
      CKPT(R_TEXT | R_NULL, "reason", reason), CKPT(R_INT, "rule", rule),
      CKPT(R_TEXT | R_NULL, "trainer", trainer), CKPT(R_TEXT | R_NULL, "updating", updating),
      CKPT(R_TEXT | R_NULL, "marked_by", marked_by), CKPT(R_U32, "revision", revision),
      ROW_WORD_IF(shown_checkpoint, "part_state", c.part_state, ckpt_states, c.is_part),
      CKPT(R_TEXT | R_NULL, "part_reason", part_reason), ROW(shown_checkpoint, R_BOOL, complete),
      CKPT(R_BOOL, "pinned", pinned), CKPT(R_U64, "files", files),
      CKPT(R_U64, "bytes_sent", bytes_sent), CKPT(R_TIME | R_NULL, "synced_at", synced_ms));

static const char *const mirror_states[] = {
	[MIRROR_FETCHING] = "FETCHING", [MIRROR_READY] = "READY", [MIRROR_FAILED] = "FAILED"};
static const struct words mirror_words = WORDS("a state", mirror_states[0], mirror_states);

struct shown_mirror {
	struct model_mirror m;
	const char *endpoint;
	const struct doc *allow, *ignore;
};
#define MIRROR(k, n, f) ROW_AS(shown_mirror, k, n, m.f)
SHOWN(mirror, "Weights", shown_mirror, MIRROR(R_TEXT, "id", id),
      MIRROR(R_TEXT | R_NULL, "team_id", team_id), MIRROR(R_TEXT, "source", source),
      ROW(shown_mirror, R_TEXT | R_NULL, endpoint), MIRROR(R_TEXT | R_NULL, "revision", revision),
      ROW_WORD_AS(shown_mirror, 0, "state", m.state, mirror_words),
      MIRROR(R_TEXT | R_NULL, "manifest", manifest), MIRROR(R_U64, "bytes", bytes_total),
      MIRROR(R_U64, "bytes_done", bytes_done), MIRROR(R_U64, "files", files_total),
      MIRROR(R_U64, "files_done", files_done),
      MIRROR(R_REAL, "rate_bytes_per_second", rate_bytes_s),
      MIRROR(R_TEXT | R_NULL, "error", error), MIRROR(R_TIME | R_NULL, "created_at", created_ms),
      MIRROR(R_TIME | R_NULL, "last_used_at", used_ms),
      ROW_AS(shown_mirror, R_DOC, "allow_patterns", allow),
      ROW_AS(shown_mirror, R_DOC, "ignore_patterns", ignore));

SHOWN(artifact, "Artifact", model_artifact, ROW(model_artifact, R_TEXT, name),
      ROW_AS(model_artifact, R_TEXT, "sha256", digest), ROW(model_artifact, R_U64, bytes),
      ROW_AS(model_artifact, R_TIME, "stored_at", created_ms),
      ROW(model_artifact, R_TEXT, stored_by), ROW(model_artifact, R_TEXT | R_NULL, job_id),
      ROW_AS(model_artifact, R_TIME, "last_used_at", used_ms));

struct shown_repo {
	struct model_repo r;
	const char *id;   /* OWNER/NAME */
	const char *path; /* the same as tools and paths have it: datasets/OWNER/NAME */
};
#define REPO(k, n, f) ROW_AS(shown_repo, k, n, r.f)
SHOWN(repo, "Repository", shown_repo, ROW(shown_repo, R_TEXT, id), ROW(shown_repo, R_TEXT, path),
      REPO(R_TEXT, "type", type), REPO(R_TEXT, "owner", owner), REPO(R_TEXT, "name", name),
      REPO(R_TEXT, "team_id", team_id), REPO(R_BOOL, "of_user", of_user),
      REPO(R_BOOL, "private", is_private), REPO(R_U64, "bytes", bytes),
      REPO(R_TIME, "created_at", created_ms), REPO(R_TIME, "updated_at", updated_ms));

SHOWN(repo_ref, "RepositoryRef", hub_branch, ROW(hub_branch, R_TEXT, name),
      ROW(hub_branch, R_TEXT, commit));
SHOWN(repo_commit, "RepositoryCommit", model_repo_commit, ROW(model_repo_commit, R_TEXT, commit),
      ROW(model_repo_commit, R_TEXT, title), ROW(model_repo_commit, R_TEXT, author),
      ROW_AS(model_repo_commit, R_TIME, "created_at", ms));

static const struct doc *parse(struct arena *a, const char *json)
{
	const struct doc *d = NULL;
	struct err err = {0};

	if (json == NULL || js_parse(a, str_of(json), &d, &err) < 0)
		return NULL; /* we wrote it: what it would say is simply not shown */
	return d;
}

static struct shown_job job_of(struct arena *a, const struct model_job *j)
{
	struct instance in = {j->gpu_type, j->gpu_count, j->cpu_milli, j->memory_bytes};
	struct shown_job v = {
		.j = *j,
		.instance_id = show_instance_id(a, &in),
		.instance_name = show_instance_name(a, &in),
		.memory_mib = j->memory_bytes / MIB,
		.gpu_mib = (uint64_t)show_gpu_memory_mib(j->gpu_type) * j->gpu_count,
		.availability = j->spot,
		.in_progress = j->progress != NULL || j->progress_total > 0,
	};
	char words[300];

	/* of a job that waits the stock client prints it as advice, which is what the reason is */
	if (j->core.state == JOB_PENDING && j->error_message == NULL)
		v.j.error_message = j->reason;
	if (j->user == NULL)
		v.j.user = "";
	if (j->end != JOB_END_NONE) {
		job_end_describe(j->end, j->end_code, NULL, words, sizeof(words));
		v.end_detail = arena_cstr(a, words);
	}
	return v;
}

static struct shown_inputs inputs_of(struct arena *a, const struct model_job *j)
{
	const struct doc *resolved = parse(a, j->resolved_json),
			 *list = doc_get(resolved, "weights");
	const struct doc *image = doc_get(resolved, "image");
	struct shown_inputs v = {
		.weights = ARENA_ARRAY(a, struct shown_weights,
	                               doc_is(list, DOC_LIST) ? list->count : 0),
		.has_image = doc_is(image, DOC_MAP),
		.reference = doc_cstr(doc_get(image, "reference"), NULL),
		.id = doc_cstr(doc_get(image, "id"), NULL),
		.spec = parse(a, j->spec_json),
	};

	if (v.reference != NULL && strchr(v.reference, '@') != NULL)
		v.digest = strchr(v.reference, '@') + 1;
	DOC_EACH (w, list) {
		v.weights[v.n_weights++] = (struct shown_weights){
			.source = doc_cstr(doc_get(w, "source"), NULL),
			.revision = doc_cstr(doc_get(w, "revision"), NULL),
			.mount_location = doc_cstr(doc_get(w, "mount_location"), NULL),
			.manifest = doc_cstr(doc_get(w, "manifest"), NULL),
			.bytes = (uint64_t)doc_int(doc_get(w, "bytes"), 0),
		};
	}
	return v;
}

void show_job(struct js *js, struct arena *a, const struct model_job *j, bool whole)
{
	struct shown_job v = job_of(a, j);
	struct shown_inputs in = {0};

	js_open(js);
	record_write_members(&job_record, &v, js);
	if (whole) {
		in = inputs_of(a, j);
		record_write_members(&job_inputs_record, &in, js);
	}
	js_close(js);
}

void show_project(struct js *js, struct arena *a, const struct model_project *p,
                  const struct model_job *latest)
{
	struct shown_project v = {.p = *p, .has_latest = latest != NULL};

	if (latest != NULL)
		v.latest = job_of(a, latest);
	record_write_js(&project_record, &v, js);
}

void show_checkpoint(struct js *js, struct arena *a, const struct model_checkpoint *c)
{
	struct shown_checkpoint v = {
		.c = *c,
		.id = arena_printf(a, "%s/rank-%u/%s", c->job_id, c->rank, c->name),
		.sync = c->state == CKPT_COMPLETE,
		.complete = c->state == CKPT_COMPLETE,
	};

	if (c->created_ms == 0)
		v.c.created_ms = 1; /* the client cannot read null */
	if (c->kind == NULL)
		v.c.kind = "other";
	if (c->base_model != NULL && c->base_model[0] == '\0')
		v.c.base_model = NULL;
	record_write_js(&checkpoint_record, &v, js);
}

void show_mirror(struct js *js, struct arena *a, const struct model_mirror *m)
{
	const struct doc *filter = parse(a, m->filter_json);
	struct shown_mirror v = {
		.m = *m,
		.endpoint = doc_cstr(doc_get(filter, "endpoint"), NULL),
		.allow = doc_get(filter, "allow"),
		.ignore = doc_get(filter, "ignore"),
	};

	record_write_js(&mirror_record, &v, js);
}

void show_repo(struct js *js, struct arena *a, const struct model_repo *r)
{
	struct shown_repo v = {.r = *r, .id = arena_printf(a, "%s/%s", r->owner, r->name)};
	enum hub_type type = HUB_MODELS;

	(void)hub_type_parse(str_of(r->type), &type);
	v.path = arena_printf(a, "%s%s", hub_type_prefix(type), v.id);
	record_write_js(&repo_record, &v, js);
}
