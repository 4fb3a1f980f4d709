/*
 * report_sign.c - has requests to the object store signed by the server. Each sender and fetcher
 * asks for its own, and what is asked for while another answer is on its way goes together with the
 * next question: one exchange for all of it, and one for each while nobody else asks.
 */
#include "run/report_inner.h"

#include "base/log.h"

struct report_ask { /* lives on the stack of the thread that asks */
	TAILQ_ENTRY(report_ask) link;
	struct wire_sign said;
	struct arena
		*a; /* of the thread that asks, and waits: whoever has the answer writes to it */
	struct wire_signed got;
	bool done;
	bool refused; /* no other try will change that */
	bool quiet;   /* another one of the same exchange says why it failed */
	struct err err;
};

static void take_url(struct report_ask *ask, const struct wire_signed *got)
{
	ask->got.url = arena_cstr(ask->a, got->url);
	ask->got.copy_source =
		got->copy_source != NULL ? arena_cstr(ask->a, got->copy_source) : NULL;
	ask->got.no_copy = got->no_copy != NULL ? arena_cstr(ask->a, got->no_copy) : NULL;
}

static bool is_final(int status)
{
	return status == 400 || report_status_refuses(status);
}

static void take_answer(struct report_ask *ask, const struct wire_signed *got)
{
	if (got->status == 0) {
		take_url(ask, got);
		return;
	}
	(void)wire_told_error(got->status, got->error, got->message, &ask->err);
	ask->refused = is_final(got->status);
}

static void ask_one(struct report *r, struct report_ask *ask)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct wire_signed got = {0};

	wire_sign_write(&ask->said, &body);
	if (report_post(r, "/runner/v1/sign", buf_view(&body), &reply, &ask->err) < 0) {
		ask->refused = is_final(reply.status);
		return;
	}
	if (wire_signed_parse(&got, ask->a, buf_view(&reply.body), &ask->err) < 0)
		ask->refused = true;
	else
		take_answer(ask, &got);
}

static int ask_together(struct report *r, struct report_ask *const *ask, size_t n, bool *alone,
                        struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct wire_sign request[WIRE_SIGN_MAX];
	struct wire_signed_all got = {0};

	*alone = true;
	for (size_t i = 0; i < n; i++)
		request[i] = ask[i]->said;
	wire_sign_all_write(&(struct wire_sign_all){request, n}, &body);
	if (report_post(r, "/runner/v1/sign_all", buf_view(&body), &reply, err) < 0) {
		*alone = is_final(reply.status);
		return -1;
	}
	if (wire_signed_all_parse(&got, a, buf_view(&reply.body), err) < 0)
		return -1;
	if (got.n_answer != n)
		return err_set(err, ERR_INVALID, "the server answered %zu of %zu requests",
		               got.n_answer, n);
	for (size_t i = 0; i < n; i++)
		take_answer(ask[i], &got.answer[i]);
	return 0;
}

/* A server that is older than the question refuses it as a whole: then each is asked for alone. */
static void ask_all(struct report *r, struct report_ask *const *ask, size_t n)
{
	struct err err = {0};
	bool alone = n == 1;

	if (n > 1 && ask_together(r, ask, n, &alone, &err) == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		if (alone)
			ask_one(r, ask[i]);
		else
			ask[i]->err = err;
		ask[i]->quiet = !alone && i > 0;
	}
}

/* The first who finds nobody asking asks for all that wait; the others wait for their answer, or
 * for their turn to ask. */
static void ask_in_turn(struct report *r, struct report_ask *mine)
{
	lock_take(&r->lock);
	report_check(r);
	TAILQ_INSERT_TAIL(&r->asks, mine, link);
	while (!mine->done) {
		struct report_ask *batch[WIRE_SIGN_MAX];
		size_t n = 0;

		if (r->asking) {
			cond_wait(&r->asked, &r->lock);
			continue;
		}
		while (n < WIRE_SIGN_MAX && !TAILQ_EMPTY(&r->asks)) {
			batch[n++] = TAILQ_FIRST(&r->asks);
			TAILQ_REMOVE(&r->asks, batch[n - 1], link);
		}
		assert(n > 0); /* mine at least: who had it would have ended it */
		r->asking = true;
		lock_give(&r->lock);
		ask_all(r, batch, n);
		lock_take(&r->lock);
		report_check(r);
		assert(r->asking);
		r->asking = false;
		for (size_t i = 0; i < n; i++) {
			assert(!batch[i]->done);
			batch[i]->done = true;
		}
		cond_broadcast(&r->asked);
	}
	lock_give(&r->lock);
}

/* Staging gives up when it must; what ships checkpoints, only when nobody wants them. */
static bool gives_up(struct report *r)
{
	bool staging;

	lock_take(&r->lock);
	staging = r->stage < STAGE_READY;
	lock_give(&r->lock);
	return r->fenced || atomic_load(&r->halt) || (staging && atomic_load(&r->cancel));
}

int report_sign(void *report, struct arena *a, const struct objstore_request *rq,
                struct objstore_signed *out, struct err *err)
{
	struct report *r = FROM_VOID(struct report, report, REPORT_MAGIC);
	int tries = 0;

	while (!gives_up(r)) {
		struct report_ask ask = {
			.said = {http_method_name[rq->method], rq->key, rq->query, rq->copy_from},
			.a = a,
		};

		ask_in_turn(r, &ask);
		if (ask.err.code == ERR_NONE) {
			*out = (struct objstore_signed){ask.got.url, ask.got.copy_source,
			                                ask.got.no_copy};
			return 0;
		}
		if (ask.refused) {
			*err = ask.err;
			return -1;
		}
		if (!ask.quiet)
			log_warn("sign: %s", ask.err.msg);
		report_pause_after(r, &tries);
	}
	return err_set(err, ERR_CANCELED, "stopped while the server was away");
}
