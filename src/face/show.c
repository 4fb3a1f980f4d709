/* show.c - rows as JSON objects. */
#include "face/show.h"

#define MIB ((uint64_t)1 << 20)

static const char *const roles[] = {
	[ROLE_VIEWER] = "viewer", [ROLE_MEMBER] = "member", [ROLE_ADMIN] = "admin"};

/* clang-format off */
static const struct { const char *type; int64_t mib; } gpu_memory[] = {
	{ "A100",         81920 }, { "A100_40GB",  40960 }, { "A10G",      24576 }, { "B200",  184320 },
	{ "B300",        294912 }, { "GB300",     294912 }, { "H100",      81920 }, { "H100_40GB", 40960 },
	{ "H200",        144384 }, { "L4",         24576 }, { "L40S",      49152 },
	{ "RTX_PRO_6000", 98304 }, { "T4",         16384 }, { "V100",      16384 },
};
/* clang-format on */

const char *show_role(enum model_role role)
{
	assert(role >= ROLE_VIEWER && role <= ROLE_ADMIN);
	return roles[role];
}

bool show_role_parse(struct str word, enum model_role *out)
{
	for (enum model_role r = ROLE_VIEWER; r <= ROLE_ADMIN; r++) {
		if (str_eq(word, roles[r])) {
			*out = r;
			return true;
		}
	}
	return false;
}

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

void show_team(struct js *js, const struct model_team *t)
{
	js_open(js);
	js_kv(js, "id", t->id);
	js_kv(js, "name", t->name);
	js_kv_bool(js, "default", t->is_default);
	show_time(js, "created_at", t->created_ms);
	js_close(js);
}

void show_token(struct js *js, const struct model_token *t)
{
	js_open(js);
	js_kv(js, "id", t->id);
	js_kv(js, "name", t->name);
	js_kv(js, "role", show_role(t->role));
	js_kv(js, "team_id", t->team_id);
	js_kv(js, "team_name", t->team_name);
	show_time(js, "created_at", t->created_ms);
	show_time(js, "last_used_at", t->used_ms);
	show_time(js, "expires_at", t->expires_ms);
	js_close(js);
}

void show_secret(struct js *js, const struct model_secret *s, const char *team_name)
{
	js_kv(js, "id", s->id);
	js_kv(js, "name", s->name);
	show_time(js, "created_at", s->created_ms);
	show_time(js, "updated_at", s->updated_ms);
	show_time(js, "last_used_at", s->used_ms);
	js_kv(js, "team_id", s->team_id);
	js_kv(js, "team_name", team_name);
}

void show_project(struct js *js, struct arena *a, const struct model_project *p,
                  const struct model_job *latest)
{
	js_open(js);
	js_kv(js, "id", p->id);
	js_kv(js, "name", p->name);
	show_time(js, "created_at", p->created_ms);
	show_time(js, "updated_at", p->updated_ms);
	js_kv(js, "team_id", p->team_id);
	js_kv(js, "team_name", p->team_name);
	js_kv(js, "cluster", p->pinned_cluster);
	js_kv_u64(js, "cache_quota_bytes", p->cache_quota_bytes);
	js_key(js, "latest_job");
	if (latest != NULL)
		show_job(js, a, latest, false);
	else
		js_null(js);
	js_close(js);
}

static void show_progress(struct js *js, const struct model_job *j)
{
	js_kv(js, "stage", j->stage);
	js_key(js, "progress");
	if (j->progress == NULL && j->progress_total == 0) {
		js_null(js);
		return;
	}
	js_open(js);
	js_kv(js, "note", j->progress);
	js_kv_u64(js, "done_bytes", j->progress_done);
	js_kv_u64(js, "total_bytes", j->progress_total);
	js_kv_real(js, "rate_bytes_per_second", j->progress_rate);
	js_close(js);
}

static void show_end(struct js *js, const struct model_job *j)
{
	char words[300];

	js_key(js, "end");
	if (j->end == JOB_END_NONE) {
		js_null(js);
		return;
	}
	job_end_describe(j->end, j->end_code, NULL, words, sizeof(words));
	js_open(js);
	js_kv(js, "kind", job_end_word(j->end));
	js_kv_int(js, "code", j->end_code);
	js_kv(js, "detail", words);
	js_close(js);
}

static const struct doc *parse(struct arena *a, const char *json)
{
	const struct doc *d = NULL;
	struct err err = {0};

	if (json == NULL || js_parse(a, str_of(json), &d, &err) < 0)
		return NULL; /* we wrote it: what it would say is simply not shown */
	return d;
}

static void show_weights(struct js *js, const struct doc *resolved)
{
	js_key(js, "weights");
	js_list(js);
	DOC_EACH (w, doc_get(resolved, "weights")) {
		js_open(js);
		js_key(js, "source");
		js_doc(js, doc_get(w, "source"));
		js_key(js, "revision");
		js_doc(js, doc_get(w, "revision"));
		js_key(js, "mount_location");
		js_doc(js, doc_get(w, "mount_location"));
		js_key(js, "manifest");
		js_doc(js, doc_get(w, "manifest"));
		js_key(js, "bytes");
		js_doc(js, doc_get(w, "bytes"));
		js_close(js);
	}
	js_end(js);
}

/* The digest that the image's name resolved to when the job first started. */
static void show_image(struct js *js, const struct doc *resolved)
{
	const struct doc *image = doc_get(resolved, "image");
	const char *reference = doc_cstr(doc_get(image, "reference"), NULL);
	const char *digest = reference != NULL ? strchr(reference, '@') : NULL;

	js_key(js, "image");
	if (!doc_is(image, DOC_MAP)) {
		js_null(js);
		return;
	}
	js_open(js);
	js_kv(js, "reference", reference);
	js_kv(js, "digest", digest != NULL ? digest + 1 : NULL);
	js_kv(js, "id", doc_cstr(doc_get(image, "id"), NULL));
	js_close(js);
}

static void show_instance(struct js *js, struct arena *a, const struct model_job *j)
{
	struct instance in = {j->gpu_type, j->gpu_count, j->cpu_milli, j->memory_bytes};
	int64_t gpu_mib = show_gpu_memory_mib(j->gpu_type);

	js_key(js, "instance_type");
	js_open(js);
	js_kv(js, "id", show_instance_id(a, &in));
	js_kv(js, "name", show_instance_name(a, &in));
	js_kv_u64(js, "memory_limit_mib", j->memory_bytes / MIB);
	js_kv_u64(js, "millicpu_limit", j->cpu_milli);
	js_kv_u64(js, "gpu_count", j->gpu_count);
	js_kv(js, "gpu_type", j->gpu_type);
	js_key(js, "gpu_memory_limit_mib");
	if (gpu_mib > 0)
		js_int(js, gpu_mib * j->gpu_count);
	else
		js_null(js);
	js_close(js);
}

static void show_named(struct js *js, const char *key, const char *id, const char *name)
{
	js_key(js, key);
	js_open(js);
	js_kv(js, "id", id);
	js_kv(js, "name", name);
	js_close(js);
}

void show_job(struct js *js, struct arena *a, const struct model_job *j, bool whole)
{
	js_open(js);
	js_kv(js, "id", j->id);
	js_kv(js, "name", j->name);
	show_time(js, "created_at", j->created_ms);
	show_time(js, "updated_at", j->updated_ms);
	js_kv(js, "current_status", job_state_name(j->core.state));
	show_instance(js, a, j);
	show_named(js, "training_project", j->project_id, j->project_name);
	js_kv(js, "training_project_id", j->project_id);
	/* of a job that waits the stock client prints it as advice, which is what the reason is */
	js_kv(js, "error_message",
	      j->core.state == JOB_PENDING && j->error_message == NULL ? j->reason
	                                                               : j->error_message);
	js_kv(js, "error_id", j->error_id);
	js_kv(js, "checkpoint_sync_status", j->sync_status);
	js_kv_int(js, "priority", j->priority);
	js_kv(js, "availability_model", j->spot ? "spot" : "dedicated");
	js_kv_u64(js, "node_count", j->node_count);
	js_key(js, "user");
	js_open(js);
	js_kv(js, "email", j->user != NULL ? j->user : "");
	js_close(js);
	js_kv(js, "reason", j->reason);
	js_key(js, "place_in_line");
	if (j->place > 0)
		js_u64(js, j->place);
	else
		js_null(js);
	show_time(js, "starts_by", j->start_by_ms);
	show_progress(js, j);
	show_end(js, j);
	js_kv_u64(js, "attempt", j->core.attempt);
	show_time(js, "started_at", j->started_ms);
	show_time(js, "ended_at", j->ended_ms);
	show_named(js, "team", j->team_id, j->team_name);
	js_kv(js, "recreated_from", j->recreated_from);
	if (whole) {
		const struct doc *resolved = parse(a, j->resolved_json);

		show_weights(js, resolved);
		show_image(js, resolved);
		js_key(js, "spec");
		js_doc(js, parse(a, j->spec_json));
	}
	js_close(js);
}

void show_event(struct js *js, const struct model_event *e)
{
	js_open(js);
	js_kv_int(js, "seq", e->seq);
	show_time(js, "timestamp", e->ms);
	js_kv(js, "kind", e->kind);
	js_kv(js, "from", e->from);
	js_kv(js, "to", e->to);
	js_kv(js, "actor", e->actor);
	js_kv(js, "message", e->message);
	js_close(js);
}

void show_attempt(struct js *js, const struct model_attempt *at)
{
	js_open(js);
	js_kv(js, "id", at->id);
	js_kv_u64(js, "number", at->number);
	js_kv_u64(js, "node_rank", at->node_rank);
	js_kv(js, "node", at->node);
	js_kv(js, "cluster", at->cluster);
	js_key(js, "gpus");
	js_list(js);
	for (unsigned i = 0; i < 64; i++)
		if ((at->gpus >> i & 1) != 0)
			js_u64(js, i);
	js_end(js);
	show_time(js, "launched_at", at->launched_ms);
	show_time(js, "claimed_at", at->claimed_ms);
	show_time(js, "ended_at", at->ended_ms);
	show_time(js, "heartbeat_at", at->heartbeat_ms);
	js_kv_bool(js, "ready", at->ready);
	js_close(js);
}

void show_checkpoint(struct js *js, struct arena *a, const struct model_checkpoint *c)
{
	bool complete = c->state == CKPT_COMPLETE;

	js_open(js);
	js_kv(js, "id", arena_printf(a, "%s/rank-%u/%s", c->job_id, c->rank, c->name));
	js_kv(js, "checkpoint_id", c->name);
	show_time(js, "created_at", c->created_ms != 0 ? c->created_ms : 1);
	js_kv(js, "checkpoint_type", c->kind != NULL ? c->kind : "other");
	js_kv(js, "base_model",
	      c->base_model != NULL && c->base_model[0] != '\0' ? c->base_model : NULL);
	js_kv_u64(js, "size_bytes", c->bytes);
	js_key(js, "lora_adapter_config");
	if (c->lora_r > 0) {
		js_open(js);
		js_kv_int(js, "r", c->lora_r);
		js_close(js);
	} else {
		js_null(js);
	}
	js_kv(js, "training_job_id", c->job_id);
	js_kv(js, "sync_status", complete ? "COMPLETE" : "SYNCING");
	js_kv_u64(js, "node_rank", c->rank);
	js_kv(js, "state", ckpt_state_word(c->state));
	js_kv(js, "reason", c->reason);
	js_kv_int(js, "rule", c->rule);
	js_kv(js, "trainer", c->trainer);
	js_kv(js, "updating", c->updating);
	js_kv(js, "marked_by", c->marked_by);
	js_kv_u64(js, "revision", c->revision);
	js_kv(js, "part_state", c->is_part ? ckpt_state_word(c->part_state) : NULL);
	js_kv(js, "part_reason", c->part_reason);
	js_kv_bool(js, "complete", complete);
	js_kv_bool(js, "pinned", c->pinned);
	js_kv_u64(js, "files", c->files);
	js_kv_u64(js, "bytes_sent", c->bytes_sent);
	show_time(js, "synced_at", c->synced_ms);
	js_close(js);
}

void show_mirror(struct js *js, struct arena *a, const struct model_mirror *m)
{
	static const char *const states[] = {[MIRROR_FETCHING] = "FETCHING",
	                                     [MIRROR_READY] = "READY",
	                                     [MIRROR_FAILED] = "FAILED"};
	const struct doc *filter = parse(a, m->filter_json);

	js_open(js);
	js_kv(js, "id", m->id);
	js_kv(js, "team_id", m->team_id);
	js_kv(js, "source", m->source);
	js_kv(js, "endpoint", doc_cstr(doc_get(filter, "endpoint"), NULL));
	js_kv(js, "revision", m->revision);
	js_kv(js, "state", states[m->state]);
	js_kv(js, "manifest", m->manifest);
	js_kv_u64(js, "bytes", m->bytes_total);
	js_kv_u64(js, "bytes_done", m->bytes_done);
	js_kv_u64(js, "files", m->files_total);
	js_kv_u64(js, "files_done", m->files_done);
	js_kv_real(js, "rate_bytes_per_second", m->rate_bytes_s);
	js_kv(js, "error", m->error);
	show_time(js, "created_at", m->created_ms);
	show_time(js, "last_used_at", m->used_ms);
	js_key(js, "allow_patterns");
	js_doc(js, doc_get(filter, "allow"));
	js_key(js, "ignore_patterns");
	js_doc(js, doc_get(filter, "ignore"));
	js_close(js);
}
