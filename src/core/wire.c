/*
 * wire.c - the messages as tables of base/record.h.
 */
#include "core/wire.h"

#include "base/record.h"
#include "core/model.h"

/* clang-format off */
static const char *const stages[STAGE_COUNT] = {
	[STAGE_CLAIM] = "claim",
	[STAGE_CODE] = "code",
	[STAGE_PYTHON] = "python",
	[STAGE_WEIGHTS] = "weights",
	[STAGE_CHECKPOINTS] = "checkpoints",
	[STAGE_SANDBOX] = "sandbox",
	[STAGE_READY] = "ready",
	[STAGE_RUNNING] = "running",
	[STAGE_SYNC] = "sync",
	[STAGE_DONE] = "done",
};
/* clang-format on */

static const struct words wire_stages = WORDS("a stage", stages[0], stages);

static int check_image(const void *message, struct err *err)
{
	static const char mark[] = "@sha256:";
	const struct wire_image *m = message;
	struct digest d;
	const char *at;

	if (digest_parse(str_of(m->id), &d, err) < 0)
		return -1;
	if (m->reference == NULL)
		return 0;
	at = strstr(m->reference, mark);
	if (at == NULL || at == m->reference || strlen(m->reference) > WIRE_REFERENCE_MAX)
		return err_set(err, ERR_INVALID,
		               "wire_image: reference: REPOSITORY@sha256:DIGEST is expected");
	return digest_parse(str_of(at + strlen(mark)), &d, err);
}

static int check_sign_all(const void *message, struct err *err)
{
	const struct wire_sign_all *m = message;

	if (m->n_request <= WIRE_SIGN_MAX)
		return 0;
	return err_set(err, ERR_INVALID, "request: %zu entries; at most %d are signed at once",
	               m->n_request, WIRE_SIGN_MAX);
}

static int check_signed(const void *message, struct err *err)
{
	const struct wire_signed *m = message;

	if ((m->status == 0 ? m->url : m->message) != NULL)
		return 0;
	return err_set(err, ERR_INVALID, "neither URL nor error");
}

static int check_signed_all(const void *message, struct err *err)
{
	const struct wire_signed_all *m = message;

	for (size_t i = 0; i < m->n_answer; i++) {
		if (check_signed(&m->answer[i], err) < 0)
			return err_wrap(err, "answer: entry %zu", i);
	}
	return 0;
}

static int check_passed(const void *message, struct err *err)
{
	const struct wire_passed *m = message;

	if (m->status != 0 && m->message == NULL)
		return err_set(err, ERR_INVALID, "an error without a message");
	return 0;
}

/* clang-format off */
static RECORD(wire_start, NULL,
	ROW(wire_start, R_TEXT, server),
	ROW(wire_start, R_TEXT | R_MAY, ca_file),
	ROW(wire_start, R_TEXT | R_MAY, socket),
	ROW(wire_start, R_BOOL | R_MAY, inherits_lock),
	ROW(wire_start, R_TEXT, token),
	ROW(wire_start, R_TEXT, attempt_id),
	ROW(wire_start, R_U32, node_rank),
	ROW_N(wire_start, R_TEXTS | R_MAY, others, n_others),
	ROW(wire_start, R_TEXT | R_MAY, ids_pool));

static RECORD(wire_env, NULL,
	ROW(wire_env, R_TEXT, name),
	ROW(wire_env, R_TEXT, value),
	ROW(wire_env, R_BOOL, secret));

RECORD(wire_weights, NULL,
	ROW(wire_weights, R_TEXT, source),
	ROW(wire_weights, R_TEXT, revision),
	ROW(wire_weights, R_TEXT, mount_location),
	ROW(wire_weights, R_TEXT, manifest),
	ROW(wire_weights, R_U64, bytes),
	ROW(wire_weights, R_U64, files),
	ROW(wire_weights, R_BOOL | R_MAY, hub));

RECORD(wire_compile, NULL,
	ROW(wire_compile, R_TEXT, repo),
	ROW(wire_compile, R_TEXT, device),
	ROW(wire_compile, R_BOOL, push),
	ROW(wire_compile, R_TEXT | R_MAY, commit),
	ROW(wire_compile, R_TEXT | R_MAY, manifest),
	ROW(wire_compile, R_U64, bytes),
	ROW(wire_compile, R_U64, files),
	ROW(wire_compile, R_TEXT | R_MAY, gpu),
	ROW(wire_compile, R_TEXT | R_MAY, cpu));

static RECORD(wire_load, NULL,
	ROW(wire_load, R_TEXT, name),
	ROW(wire_load, R_TEXT, job_id),
	ROW(wire_load, R_TEXT, prefix),
	ROW(wire_load, R_U32, rank_from),
	ROW(wire_load, R_TEXT | R_MAY, files_sha256),
	ROW(wire_load, R_TEXT, dir),
	ROW(wire_load, R_BOOL | R_MAY, resume));

RECORD(wire_code, NULL,
	ROW(wire_code, R_TEXT, key),
	ROW(wire_code, R_U64, bytes),
	ROW(wire_code, R_TEXT | R_MAY, sha256));

static RECORD(wire_gpu, NULL,
	ROW(wire_gpu, R_U32, index),
	ROW(wire_gpu, R_TEXT, uuid));

RECORD(wire_image, check_image,
	ROW(wire_image, R_TEXT, id),
	ROW(wire_image, R_TEXT | R_MAY, reference));

static RECORD(wire_sign, NULL,
	ROW(wire_sign, R_TEXT, method),
	ROW(wire_sign, R_TEXT, key),
	ROW(wire_sign, R_TEXT | R_MAY, query),
	ROW(wire_sign, R_TEXT | R_MAY, copy_from));

static RECORD(wire_sign_all, check_sign_all,
	ROW_OF(wire_sign_all, R_LIST, request, n_request, wire_sign));

static RECORD(wire_signed, check_signed,
	ROW(wire_signed, R_TEXT | R_MAY, url),
	ROW(wire_signed, R_TEXT | R_MAY, copy_source),
	ROW(wire_signed, R_TEXT | R_MAY, no_copy),
	ROW(wire_signed, R_INT | R_MAY, status),
	ROW(wire_signed, R_TEXT | R_MAY, error),
	ROW(wire_signed, R_TEXT | R_MAY, message));

static RECORD(wire_signed_all, check_signed_all,
	ROW_OF(wire_signed_all, R_LIST, answer, n_answer, wire_signed));

static RECORD(wire_pass, NULL,
	ROW(wire_pass, R_TEXT, token),
	ROW(wire_pass, R_TEXT, verb),
	ROW(wire_pass, R_TEXT, key),
	ROW(wire_pass, R_TEXT | R_MAY, to),
	ROW(wire_pass, R_TEXT | R_MAY, etag));

static RECORD(wire_passed, check_passed,
	ROW(wire_passed, R_INT, status),
	ROW(wire_passed, R_TEXT | R_MAY, error),
	ROW(wire_passed, R_TEXT | R_MAY, message),
	ROW(wire_passed, R_U64, size),
	ROW(wire_passed, R_I64, modified_ms),
	ROW(wire_passed, R_TEXT | R_MAY, etag));

static RECORD(wire_node, NULL,
	ROW(wire_node, R_TEXT, verb),
	ROW(wire_node, R_TEXT | R_MAY, key),
	ROW(wire_node, R_TEXT | R_MAY, text),
	ROW(wire_node, R_TEXT | R_MAY, error),
	ROW(wire_node, R_U64 | R_MAY, done),
	ROW(wire_node, R_U64 | R_MAY, total),
	ROW(wire_node, R_U64 | R_MAY, bytes),
	ROW(wire_node, R_U64 | R_MAY, files),
	ROW(wire_node, R_U64 | R_MAY, fetched),
	ROW(wire_node, R_BOOL | R_MAY, hit));

static RECORD(wire_kept_image, NULL,
	ROW(wire_kept_image, R_TEXT, verb),
	ROW(wire_kept_image, R_TEXT | R_MAY, id),
	ROW(wire_kept_image, R_TEXT | R_MAY, reference),
	ROW(wire_kept_image, R_TEXT | R_MAY, workdir),
	ROW(wire_kept_image, R_TEXT | R_MAY, path),
	ROW(wire_kept_image, R_TEXT | R_MAY, env),
	ROW(wire_kept_image, R_TEXT | R_MAY, unasked),
	ROW(wire_kept_image, R_TEXT | R_MAY, text),
	ROW(wire_kept_image, R_TEXT | R_MAY, error));

static RECORD(wire_launch, NULL,
	ROW(wire_launch, R_TEXT, attempt_id),
	ROW(wire_launch, R_TEXT, job_id),
	ROW(wire_launch, R_TEXT, job_name),
	ROW(wire_launch, R_TEXT, project_id),
	ROW(wire_launch, R_TEXT, project_name),
	ROW(wire_launch, R_TEXT, team_id),
	ROW(wire_launch, R_U32, node_rank),
	ROW(wire_launch, R_U32, node_count),
	ROW(wire_launch, R_U32, retry_count),
	ROW(wire_launch, R_TEXT, leader_addr),
	ROW(wire_launch, R_TEXT, spec_json),
	ROW_OF(wire_launch, R_LIST, code, n_code, wire_code),
	ROW_OF(wire_launch, R_LIST, weights, n_weights, wire_weights),
	ROW_OF(wire_launch, R_LIST, load, n_load, wire_load),
	ROW_OF(wire_launch, R_LIST, env, n_env, wire_env),
	ROW(wire_launch, R_TEXT | R_MAY, registry_secret),
	ROW(wire_launch, R_TEXT | R_MAY, registry_secret2),
	ROW(wire_launch, R_TEXT | R_MAY, hub_url),
	ROW(wire_launch, R_TEXT | R_MAY, hub_token),
	ROW(wire_launch, R_TEXT | R_MAY, serve_key),
	ROW(wire_launch, R_TEXT | R_MAY, hub_ca),
	ROW_OF(wire_launch, R_ONE, compile, has_compile, wire_compile),
	ROW_OF(wire_launch, R_LIST, gpus, n_gpus, wire_gpu),
	ROW_OF(wire_launch, R_ONE, image, has_image, wire_image),
	ROW(wire_launch, R_TEXT | R_MAY, mirror),
	ROW(wire_launch, R_TEXT, node_dir),
	ROW(wire_launch, R_U64, node_budget_bytes),
	ROW(wire_launch, R_TEXT, objstore),
	ROW(wire_launch, R_TEXT | R_MAY, cache_project_dir),
	ROW(wire_launch, R_TEXT | R_MAY, cache_team_dir),
	ROW(wire_launch, R_U64, cache_quota_bytes),
	ROW(wire_launch, R_U64, scratch_bytes),
	ROW(wire_launch, R_U64, scratch_files),
	ROW(wire_launch, R_TEXT | R_MAY, ckpt_prefix),
	ROW(wire_launch, R_TEXT, images),
	ROW(wire_launch, R_TEXT, sandbox),
	ROW(wire_launch, R_TEXT | R_MAY, ids_mode),
	ROW(wire_launch, R_TEXT | R_MAY, ids_pool),
	ROW(wire_launch, R_TEXT | R_MAY, ids_dir),
	ROW_N(wire_launch, R_TEXTS, share, n_share),
	ROW_N(wire_launch, R_TEXTS, hide, n_hide));

static RECORD(wire_gpu_sample, NULL,
	ROW(wire_gpu_sample, R_U32, index),
	ROW(wire_gpu_sample, R_REAL, utilization),
	ROW(wire_gpu_sample, R_U64, memory_bytes));

static RECORD(wire_sample, NULL,
	ROW(wire_sample, R_I64, wall_ms),
	ROW(wire_sample, R_REAL, cpu_cores),
	ROW(wire_sample, R_U64, memory_bytes),
	ROW(wire_sample, R_U64, memory_limit),
	ROW(wire_sample, R_U64, scratch_bytes),
	ROW(wire_sample, R_U64, scratch_total),
	ROW(wire_sample, R_U64, cache_bytes),
	ROW(wire_sample, R_U64, cache_quota),
	ROW(wire_sample, R_U64, ckpt_bytes),
	ROW_OF(wire_sample, R_FIXED, gpu, n_gpus, wire_gpu_sample));

static RECORD(wire_heartbeat, NULL,
	ROW(wire_heartbeat, R_U64, seq),
	ROW_WORD(wire_heartbeat, R_WORD, stage, wire_stages),
	ROW(wire_heartbeat, R_TEXT | R_MAY, note),
	ROW(wire_heartbeat, R_U64, done_bytes),
	ROW(wire_heartbeat, R_U64, total_bytes),
	ROW(wire_heartbeat, R_REAL, rate_bytes_s),
	ROW(wire_heartbeat, R_BOOL | R_MAY, idle),
	ROW(wire_heartbeat, R_U32 | R_MAY, serve_port),
	ROW(wire_heartbeat, R_BOOL | R_MAY, serves),
	ROW_OF(wire_heartbeat, R_ONE, sample, has_sample, wire_sample));

static RECORD(wire_exec, NULL,
	ROW(wire_exec, R_TEXT, id),
	ROW_N(wire_exec, R_TEXTS, argv, n_argv),
	ROW(wire_exec, R_BOOL, input),
	ROW(wire_exec, R_BOOL, tty),
	ROW(wire_exec, R_U32, rows),
	ROW(wire_exec, R_U32, columns),
	ROW(wire_exec, R_TEXT | R_MAY, term));

static RECORD(wire_desired, NULL,
	ROW(wire_desired, R_BOOL, go),
	ROW(wire_desired, R_BOOL, stop),
	ROW(wire_desired, R_BOOL, now),
	ROW(wire_desired, R_BOOL | R_MAY, idle),
	ROW(wire_desired, R_U64, seq),
	ROW_OF(wire_desired, R_LIST, exec, n_exec, wire_exec));

static RECORD(wire_logged, NULL,
	ROW(wire_logged, R_U64, next),
	ROW(wire_logged, R_TEXT | R_MAY, message));

static RECORD(wire_event, NULL,
	ROW(wire_event, R_TEXT, kind),
	ROW(wire_event, R_TEXT, message));

static RECORD(model_checkpoint, NULL,
	ROW(model_checkpoint, R_TEXT, name),
	ROW_WORD(model_checkpoint, R_WORD, state, ckpt_states),
	ROW(model_checkpoint, R_TEXT | R_MAY, kind),
	ROW(model_checkpoint, R_TEXT | R_MAY, base_model),
	ROW(model_checkpoint, R_I64 | R_MAY, lora_r),
	ROW(model_checkpoint, R_I64 | R_MAY, created_ms),
	ROW(model_checkpoint, R_U64 | R_MAY, bytes),
	ROW(model_checkpoint, R_U64 | R_MAY, bytes_sent),
	ROW(model_checkpoint, R_U64 | R_MAY, files),
	ROW(model_checkpoint, R_TEXT | R_MAY, manifest_key),
	ROW(model_checkpoint, R_INT | R_MAY, rule),
	ROW(model_checkpoint, R_TEXT | R_MAY, reason),
	ROW(model_checkpoint, R_TEXT | R_MAY, trainer),
	ROW(model_checkpoint, R_TEXT | R_MAY, updating),
	ROW(model_checkpoint, R_U32 | R_MAY, revision),
	ROW(model_checkpoint, R_TEXT | R_MAY, shown));

static RECORD(wire_process, NULL,
	ROW(wire_process, R_INT, pid),
	ROW(wire_process, R_U64 | R_MAY, start),
	ROW(wire_process, R_TEXT, boot),
	ROW(wire_process, R_TEXT | R_MAY, program));

static RECORD(wire_ship, NULL,
	ROW(wire_ship, R_TEXT, objstore),
	ROW(wire_ship, R_TEXT, prefix),
	ROW(wire_ship, R_TEXT, job_id),
	ROW(wire_ship, R_U32 | R_MAY, rank),
	ROW(wire_ship, R_U32 | R_MAY, nodes),
	ROW(wire_ship, R_U32 | R_MAY, settle_s),
	ROW(wire_ship, R_TEXT | R_MAY, marker),
	ROW(wire_ship, R_U64 | R_MAY, volume_bytes));

static RECORD(wire_exit, NULL,
	ROW_WORD(wire_exit, R_WORD, end, job_ends),
	ROW(wire_exit, R_INT, code),
	ROW(wire_exit, R_TEXT | R_MAY, detail),
	ROW(wire_exit, R_TEXT | R_MAY, stage),
	ROW(wire_exit, R_TEXT | R_MAY, error_id),
	ROW(wire_exit, R_BOOL, user_code_ran),
	ROW(wire_exit, R_BOOL, synced),
	ROW(wire_exit, R_BOOL | R_MAY, served),
	ROW(wire_exit, R_I64, started_ms),
	ROW(wire_exit, R_I64, ended_ms),
	ROW(wire_exit, R_U64, peak_memory_bytes));
/* clang-format on */

const char *wire_stage_word(enum wire_stage s)
{
	return words_at(&wire_stages, s);
}

/* The image is got at STAGE_SANDBOX, before what is made for it; the sandbox is started there. */
#define TO(s) (1U << (s))
static const unsigned stage_next[STAGE_COUNT] = {
	[STAGE_CLAIM] = TO(STAGE_CODE) | TO(STAGE_DONE),
	[STAGE_CODE] = TO(STAGE_CODE) | TO(STAGE_SANDBOX) | TO(STAGE_DONE),
	[STAGE_SANDBOX] = TO(STAGE_PYTHON) | TO(STAGE_READY) | TO(STAGE_DONE),
	[STAGE_PYTHON] = TO(STAGE_WEIGHTS) | TO(STAGE_DONE),
	[STAGE_WEIGHTS] = TO(STAGE_CHECKPOINTS) | TO(STAGE_DONE),
	[STAGE_CHECKPOINTS] = TO(STAGE_SANDBOX) | TO(STAGE_DONE),
	[STAGE_READY] = TO(STAGE_RUNNING) | TO(STAGE_SYNC) | TO(STAGE_DONE),
	[STAGE_RUNNING] = TO(STAGE_SYNC) | TO(STAGE_DONE),
	[STAGE_SYNC] = TO(STAGE_DONE),
};

bool wire_stage_follows(enum wire_stage from, enum wire_stage to)
{
	assert(from < STAGE_COUNT && to < STAGE_COUNT);
	return (stage_next[from] & TO(to)) != 0;
}

int wire_told_error(int status, const char *id, const char *message, struct err *err)
{
	(void)err_set(err, err_from_http(status), "%s", message != NULL ? message : "");
	if (id != NULL)
		err_id_from(err, id);
	return -1;
}

void wire_exec_copy(struct wire_exec *to, struct arena *a, const struct wire_exec *from)
{
	*to = *from;
	to->id = arena_cstr(a, from->id);
	to->term = arena_cstr(a, from->term);
	to->argv = ARENA_ARRAY(a, const char *, from->n_argv + 1);
	for (size_t i = 0; i < from->n_argv; i++)
		to->argv[i] = arena_cstr(a, from->argv[i]);
}

#define MESSAGE(m)                                                                                 \
	void wire_##m##_write(const struct wire_##m *from, struct buf *out)                        \
	{                                                                                          \
		record_write(&wire_##m##_record, from, out);                                       \
	}                                                                                          \
	int wire_##m##_parse(struct wire_##m *to, struct arena *a, struct str json,                \
	                     struct err *err)                                                      \
	{                                                                                          \
		return record_read(&wire_##m##_record, a, json, to, err);                          \
	}
WIRE_MESSAGES(MESSAGE)

void wire_checkpoint_write(const struct model_checkpoint *from, struct buf *out)
{
	record_write(&model_checkpoint_record, from, out);
}

int wire_checkpoint_parse(struct model_checkpoint *to, struct arena *a, struct str json,
                          struct err *err)
{
	return record_read(&model_checkpoint_record, a, json, to, err);
}

void wire_sample_write(const struct wire_sample *m, struct js *js)
{
	record_write_js(&wire_sample_record, m, js);
}

int wire_sample_parse(struct wire_sample *m, const struct doc *d, struct err *err)
{
	return record_read_doc(&wire_sample_record, NULL, d, m, err); /* without text: no arena */
}
