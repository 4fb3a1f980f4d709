/*
 * exec.c - commands inside a job: their start, what they are given and what they print. Both
 * directions are resumed by offsets: what was cut off is sent, or asked for, again.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "core/resumable.h"
#include "face/handlers.h"

#define EXEC_ARGS_MAX 256
#define SIDE_MAX 65535 /* rows or columns of a terminal */
#define TERM_MAX 64
#define WAIT_MS_MAX 30000

/* It becomes a variable of the command. */
static bool is_term(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+._-");

	return n > 0 && n <= TERM_MAX && s[n] == '\0';
}

static int read_size(const struct doc *d, uint32_t *rows, uint32_t *columns, struct err *err)
{
	int64_t r = 0, c = 0;

	if (body_int(d, "rows", 1, SIDE_MAX, &r, err) < 0 ||
	    body_int(d, "columns", 1, SIDE_MAX, &c, err) < 0)
		return -1;
	if ((r == 0) != (c == 0))
		return err_set(err, ERR_INVALID, "rows and columns must be given together");
	*rows = (uint32_t)r;
	*columns = (uint32_t)c;
	return 0;
}

static int read_command(struct request *rq, struct wire_exec *x, int64_t *rank, struct err *err)
{
	const struct doc *body, *tty;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_texts(rq->arena, body, "command", EXEC_ARGS_MAX, &x->argv, &x->n_argv, err) < 0 ||
	    body_int(body, "node_rank", 0, SPEC_NODES_MAX - 1, rank, err) < 0 ||
	    body_bool(body, "input", &x->input, err) < 0)
		return -1;
	tty = doc_get(body, "tty");
	if (tty != NULL && tty->kind != DOC_NULL) {
		if (tty->kind != DOC_MAP)
			return err_set(err, ERR_INVALID, "tty: expected rows and columns");
		if (read_size(tty, &x->rows, &x->columns, err) < 0 ||
		    body_text(tty, "term", false, &x->term, err) < 0)
			return err_wrap(err, "tty");
		if (x->rows == 0)
			return err_set(err, ERR_INVALID, "tty.rows: missing");
		if (x->term != NULL && !is_term(x->term))
			return err_set(err, ERR_INVALID, "tty.term: not the name of a terminal");
		x->tty = true;
	}
	if (x->n_argv == 0 ? !x->input : x->argv[0][0] == '\0')
		return err_set(
			err, ERR_INVALID,
			"command: expected a program and its arguments, or input for a shell");
	return 0;
}

int job_exec(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct wire_exec x = {0};
	struct model_job j = {0};
	int64_t rank = 0;
	char *id = NULL;

	if (read_command(rq, &x, &rank, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->execs->start(face_ask(rq), j.id, (uint32_t)rank, &x, &id, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(&an.js, "exec_id", id);
	return answer_send(rq, &an, 200, err);
}

static void write_output(struct js *js, struct str frames)
{
	AUTO_BUF struct buf coded = BUF_INIT(ANSWER_MAX);
	enum frame_kind kind;
	struct str bytes;

	js_list(js);
	while (frame_next(&frames, &kind, &bytes)) {
		buf_clear(&coded);
		base64_encode(bytes.p, bytes.n, false, &coded);
		js_open(js);
		js_kv(js, "stream", kind == FRAME_ERR ? "stderr" : "stdout");
		js_kv_str(js, "base64", buf_view(&coded));
		js_close(js);
	}
	js_end(js);
}

int job_exec_poll(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct httpd *h = request_httpd(rq);
	uint64_t channel = httpd_channel(CHANNEL_EXEC, rq->arg[2]);
	uint64_t seq = httpd_channel_seq(h, channel); /* before the look: no wake-up is lost */
	AUTO_ANSWER struct answer an = {0};
	struct exec_state x = {0};
	struct model_job j = {0};
	int64_t offset = 0, wait_ms = 0;

	if (query_int(rq, "offset", 0, INT64_MAX, &offset, err) < 0 ||
	    query_int(rq, "wait_ms", 0, WAIT_MS_MAX, &wait_ms, err) < 0 ||
	    handler_job(rq, &j, err) < 0 ||
	    ctx->ops->execs->poll(face_ask(rq), j.id, arg_text(rq, 2), (uint64_t)offset, &x, err) <
	            0)
		return -1;
	if (!x.done && x.frames.n == 0 && wait_ms > 0 && !rq->timed_out)
		return reply_wait(rq, channel, seq,
		                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + wait_ms);
	answer_open(&an);
	js_kv_bool(&an.js, "done", x.done);
	js_key(&an.js, "exit_code");
	if (x.done)
		js_int(&an.js, x.exit_code);
	else
		js_null(&an.js);
	js_key(&an.js, "output");
	write_output(&an.js, x.frames);
	js_kv_u64(&an.js, "next_offset", x.next_offset);
	return answer_send(rq, &an, 200, err);
}

static int read_input(struct request *rq, struct buf *bytes, struct exec_input *in, struct err *err)
{
	const struct doc *body;
	const char *coded = NULL;
	int64_t offset = 0;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_int(body, "offset", 0, INT64_MAX, &offset, err) < 0 ||
	    body_text(body, "input_base64", false, &coded, err) < 0 ||
	    body_bool(body, "end", &in->end, err) < 0 ||
	    read_size(body, &in->rows, &in->columns, err) < 0)
		return -1;
	if (base64_decode(str_of(coded), false, bytes, err) < 0)
		return err_wrap(err, "input_base64");
	in->offset = (uint64_t)offset;
	in->bytes = buf_view(bytes);
	return 0;
}

int job_exec_input(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct httpd *h = request_httpd(rq);
	uint64_t channel = httpd_channel(CHANNEL_EXEC_ROOM, rq->arg[2]), next = 0;
	uint64_t seq = httpd_channel_seq(h, channel);
	AUTO_BUF struct buf bytes = BUF_INIT(RESUMABLE_CHUNK_MAX);
	AUTO_ANSWER struct answer an = {0};
	struct exec_input in = {0};
	struct model_job j = {0};
	int64_t wait_ms = 0;

	if (query_int(rq, "wait_ms", 0, WAIT_MS_MAX, &wait_ms, err) < 0 ||
	    read_input(rq, &bytes, &in, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->execs->input(face_ask(rq), j.id, arg_text(rq, 2), &in, &next, err) < 0)
		return -1;
	if (next < in.offset + in.bytes.n && wait_ms > 0 && !rq->timed_out)
		return reply_wait(rq, channel, seq,
		                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + wait_ms);
	answer_open(&an);
	js_kv_u64(&an.js, "next_offset", next);
	return answer_send(rq, &an, 200, err);
}

int job_exec_end(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *id = arg_text(rq, 2);
	struct model_job j = {0};
	bool leave = false;

	if (query_bool(rq, "leave_running", &leave, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->execs->leave(face_ask(rq), j.id, id, leave ? EXEC_LEFT : EXEC_HUNG, err) < 0)
		return -1;
	return answer_deleted(rq, "exec_id", id, err);
}
