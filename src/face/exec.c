/* exec.c - commands inside a job: their start, and the connection that each end comes with. */
#include "face/handlers.h"

#define EXEC_ARGS_MAX 256
#define SIDE_MAX 65535 /* rows or columns of a terminal */
#define TERM_MAX 64

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

static void take_client(struct request *rq, struct upgraded *u)
{
	const struct face_ctx *ctx = face_ctx(rq);

	ctx->ops->execs->join(ctx->app, arg_text(rq, 2), EXEC_CLIENT, u);
}

int job_exec_join(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};

	if (handler_job(rq, &j, err) < 0 ||
	    ctx->ops->execs->may_join(face_ask(rq), j.id, arg_text(rq, 2), err) < 0)
		return -1;
	return reply_upgrade(rq, EXEC_PROTOCOL, take_client);
}
