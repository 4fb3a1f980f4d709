/*
 * runner.c - what runners speak: claim, heartbeat, orders, log, checkpoints, the end. The token
 * names the attempt and node; nothing here takes an id of a job from the caller.
 */
#include "base/clock.h"
#include "base/log.h"
#include "face/answer.h"
#include "face/face.h"

#define BODY_SMALL ((size_t)256 << 10)
#define BODY_LOG ((size_t)4 << 20)
#define SIGNED_MAX ((size_t)1 << 20) /* WIRE_SIGN_MAX URLs of the longest keys */
#define DESIRED_MAX_MS 30000
#define LOG_DONE_MS 10000
#define NONCE_MIN 8
#define WIRE_FIRST 1 /* which said no version yet */

static int empty(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	return answer_send(rq, &an, 200, err);
}

static void notify_job(struct request *rq, const char *job_id)
{
	httpd_notify(request_httpd(rq), httpd_channel(CHANNEL_JOB, str_of(job_id)));
}

static int own_job(struct request *rq, struct model_job *out, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	return ctx->ops->runners->job(face_ask(rq), out, err);
}

static int claim(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	const struct doc *d = NULL;
	const char *nonce = NULL;
	struct wire_launch launch = {0};

	if (request_json(rq, &d, err) < 0)
		return -1;
	nonce = doc_cstr(doc_get(d, "nonce"), "");
	if (strlen(nonce) < NONCE_MIN)
		return err_set(err, ERR_INVALID, "nonce: a text of at least %d characters",
		               NONCE_MIN);
	if (ctx->ops->runners->speaks(face_ask(rq), doc_int(doc_get(d, "wire"), WIRE_FIRST), err) <
	            0 ||
	    ctx->ops->runners->claim(face_ask(rq), nonce, &launch, err) < 0)
		return -1;
	wire_launch_write(&launch, &out);
	if (buf_check(&out, "the launch", err) < 0)
		return -1;
	return reply_json(rq, 200, &out);
}

static int send_desired(struct request *rq, const struct wire_desired *o, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);

	wire_desired_write(o, &out);
	if (buf_check(&out, "the orders", err) < 0)
		return -1;
	return reply_json(rq, 200, &out);
}

/* A disk without space for a sample, or a store that does not say what it has of the log, is no
 * reason to refuse a sign of life. */
static int keep_sample(struct request *rq, const struct wire_sample *sample, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf line = BUF_INIT(BODY_SMALL);
	struct model_job job;
	struct js js;

	if (own_job(rq, &job, err) < 0)
		return -1;
	js_init(&js, &line);
	wire_sample_write(sample, &js);
	if (joblogs_add_sample(ctx->logs, job.id, face_principal(rq)->node_rank, buf_view(&line),
	                       err) < 0) {
		if (err->code != ERR_NO_SPACE && !err_is_away(err))
			return -1;
		log_debug("sample lost: %s", err->msg);
		err_clear(err);
	}
	return 0;
}

static int heartbeat(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct wire_heartbeat hb;
	struct wire_desired desired = {0};
	struct str body;

	if (request_body(rq, &body, err) < 0 || wire_heartbeat_parse(&hb, rq->arena, body, err) < 0)
		return -1;
	if (ctx->ops->runners->heartbeat(face_ask(rq), &hb, err) < 0)
		return -1;
	if (hb.has_sample && keep_sample(rq, &hb.sample, err) < 0)
		return -1;
	if (ctx->ops->runners->desired(face_ask(rq), &desired, err) < 0)
		return -1;
	return send_desired(rq, &desired, err);
}

/* Answers at once when the orders are not those of `seq`; else when they change. */
static int desired(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	uint64_t channel = httpd_channel(CHANNEL_DESIRED, str_of(face_principal(rq)->attempt_id));
	uint64_t seen = httpd_channel_seq(request_httpd(rq), channel);
	struct wire_desired o = {0};
	int64_t seq = request_query_int(rq, "seq", -1, err);
	int64_t wait_ms = request_query_int(rq, "wait_ms", 0, err);

	if (err->code != ERR_NONE)
		return -1;
	if (ctx->ops->runners->desired(face_ask(rq), &o, err) < 0)
		return -1;
	wait_ms = MIN(MAX(wait_ms, 0), DESIRED_MAX_MS);
	if (seq >= 0 && (uint64_t)seq == o.seq && wait_ms > 0 && !rq->timed_out)
		return reply_wait(rq, channel, seen,
		                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + wait_ms);
	return send_desired(rq, &o, err);
}

static int image(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf out = BUF_INIT(BODY_SMALL);
	struct wire_image said, kept = {0};
	struct str body;

	if (request_body(rq, &body, err) < 0 || wire_image_parse(&said, rq->arena, body, err) < 0 ||
	    ctx->ops->runners->image(face_ask(rq), &said, &kept, err) < 0)
		return -1;
	wire_image_write(&kept, &out);
	return reply_json(rq, 200, &out);
}

static int sign(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf out = BUF_INIT(BODY_SMALL);
	struct sign_answer answer = {0};
	struct wire_sign said;
	struct str body;

	if (request_body(rq, &body, err) < 0 || wire_sign_parse(&said, rq->arena, body, err) < 0 ||
	    ctx->ops->objects->sign(face_ask(rq), &said, 1, &answer, err) < 0)
		return -1;
	if (answer.err != NULL) {
		*err = *answer.err;
		return -1;
	}
	wire_signed_write(&answer.signed_, &out);
	return reply_json(rq, 200, &out);
}

static int sign_all(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct sign_answer *answer = ARENA_ARRAY(rq->arena, struct sign_answer, WIRE_SIGN_MAX);
	struct wire_signed *signed_ = ARENA_ARRAY(rq->arena, struct wire_signed, WIRE_SIGN_MAX);
	AUTO_BUF struct buf out = BUF_INIT(SIGNED_MAX);
	struct wire_sign_all said;
	struct str body;

	if (request_body(rq, &body, err) < 0 ||
	    wire_sign_all_parse(&said, rq->arena, body, err) < 0 ||
	    ctx->ops->objects->sign(face_ask(rq), said.request, said.n_request, answer, err) < 0)
		return -1;
	for (size_t i = 0; i < said.n_request; i++) {
		const struct err *e = answer[i].err;

		signed_[i] = e == NULL ? answer[i].signed_
		                       : (struct wire_signed){.status = err_info(e)->http,
		                                              .error = err_id(e),
		                                              .message = e->msg};
	}
	wire_signed_all_write(&(struct wire_signed_all){signed_, said.n_request}, &out);
	return reply_json(rq, 200, &out);
}

static int ready(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->runners->ready(face_ask(rq), err) < 0)
		return -1;
	return empty(rq, err);
}

/* The runner exits only when all of the log is stored, and the job is being stopped, or has ended
 * and its runner says that it has waited for room long enough. */
static bool last_words(const struct model_job *job, bool said)
{
	return said || job_state_is_stopping(job->core.state);
}

/* A runner that is done has nothing more, and forgets what it had: so it is answered when its log
 * is where another server would find it, or cannot be for now. A gap is 409 with what to go on
 * from; so is a repetition that was taken already a plain 200. */
static int log_append(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const struct principal *principal = face_principal(rq);
	AUTO_BUF struct buf out = BUF_INIT(BODY_SMALL);
	struct wire_logged said = {0};
	int64_t seq = request_query_int(rq, "seq", -1, err);
	bool last = err->code == ERR_NONE && request_query_int(rq, "last", 0, err) != 0;
	bool done = err->code == ERR_NONE && request_query_int(rq, "done", 0, err) != 0;
	struct model_job job;
	struct str body;
	int r = 0;

	if (err->code != ERR_NONE)
		return -1;
	if (seq < 0)
		return err_set(err, ERR_INVALID,
		               "seq: missing; expected the number of bytes sent before");
	if (request_body(rq, &body, err) < 0 || own_job(rq, &job, err) < 0)
		return -1;
	r = joblogs_append(ctx->logs, job.id, principal->attempt_id, principal->node_rank,
	                   (uint64_t)seq, body, last_words(&job, last), &said.next, err);
	if (r < 0 && err->code != ERR_CONFLICT)
		return -1;
	if (r == 0 && done)
		(void)joblogs_flush(ctx->logs, job.id, LOG_DONE_MS);
	said.message = r < 0 ? err->msg : NULL;
	wire_logged_write(&said, &out);
	if (r == 0)
		notify_job(rq, job.id);
	else
		err_clear(err);
	return reply_json(rq, r == 0 ? 200 : 409, &out);
}

static int event(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct wire_event said;
	struct model_job job;
	struct str body;

	if (request_body(rq, &body, err) < 0 || wire_event_parse(&said, rq->arena, body, err) < 0)
		return -1;
	if (said.kind[0] == '\0')
		return err_set(err, ERR_INVALID, "kind: missing");
	if (ctx->ops->runners->event(face_ask(rq), said.kind, said.message, err) < 0 ||
	    own_job(rq, &job, err) < 0)
		return -1;
	notify_job(rq, job.id);
	return empty(rq, err);
}

static int checkpoint(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_checkpoint row;
	struct model_job job;
	struct str body;

	if (request_body(rq, &body, err) < 0 ||
	    wire_checkpoint_parse(&row, rq->arena, body, err) < 0 || own_job(rq, &job, err) < 0)
		return -1;
	if (row.name[0] == '\0' || strlen(row.name) >= CKPT_NAME_MAX)
		return err_set(err, ERR_INVALID, "name: missing or over %d characters",
		               CKPT_NAME_MAX - 1);
	row.rank = face_principal(rq)->node_rank;
	row.job_id = job.id;
	row.project_id = job.project_id;
	if (row.kind == NULL)
		row.kind = ckpt_kind_word(CKPT_OTHER);
	if (row.shown == NULL)
		row.shown = row.name;
	if (ctx->ops->runners->checkpoint(face_ask(rq), &row, err) < 0)
		return -1;
	notify_job(rq, job.id);
	return empty(rq, err);
}

static void take_runner(struct request *rq, struct upgraded *u)
{
	const struct face_ctx *ctx = face_ctx(rq);

	ctx->ops->execs->join(ctx->app, arg_text(rq, 0), EXEC_RUNNER, u);
}

static int exec_join(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->execs->may_join(face_ask(rq), NULL, arg_text(rq, 0), err) < 0)
		return -1;
	return reply_upgrade(rq, EXEC_PROTOCOL, take_runner);
}

static int exec_done(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->execs->done(face_ask(rq), arg_text(rq, 0), err) < 0)
		return -1;
	return answer_deleted(rq, "exec_id", arg_text(rq, 0), err);
}

static int exit_record(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct wire_exit x;
	struct str body;

	if (request_body(rq, &body, err) < 0 || wire_exit_parse(&x, rq->arena, body, err) < 0)
		return -1;
	if (ctx->ops->runners->exit(face_ask(rq), &x, err) < 0)
		return -1;
	return empty(rq, err);
}

#define R "/runner/v1/"
/* clang-format off */
static const struct route routes[] = {
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "claim",       claim,       "Claim the attempt; returns what to run"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "heartbeat",   heartbeat,   "Report stage, progress and a sample; returns the desired state"},
	{HTTP_GET,  SCOPE_RUNNER, 0,          R "orders",      desired,      "Get the desired state (start, stop, commands); long-polls for a change"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "image",       image,       "Report which image the job's image name was resolved to; returns the one that stays with the job"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "sign",        sign,        "Sign a request to the object store for an object that is the attempt's to read or write"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "sign_all",    sign_all,    "The same of up to 32 requests at once, each answered on its own"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "ready",       ready,       "Report that staging is done"},
	{HTTP_POST, SCOPE_RUNNER, BODY_LOG,   R "log",         log_append,  "Append log records from byte seq on"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "event",       event,       "Add an event to the job"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "checkpoint",  checkpoint,  "Report the state of a checkpoint"},
	{HTTP_GET,  SCOPE_RUNNER, 0,          R "exec/{exec_id}", exec_join, "Connect to an exec command: Upgrade to stoker-exec"},
	{HTTP_DELETE, SCOPE_RUNNER, 0,        R "exec/{exec_id}", exec_done, "Say that an exec command needs no connection any more"},
	{HTTP_POST, SCOPE_RUNNER, BODY_SMALL, R "exit",        exit_record, "Send the exit record"},
};
/* clang-format on */

const struct face face_runner = {.name = "runner", .routes = routes, .n_routes = COUNT(routes)};
