/*
 * serving.c - the HTTP servers that jobs run, for whoever has a token of their team: what comes to
 * /deployments/NAME/PATH goes to PATH of one of them, and its reply comes back while it arrives.
 */
#include "face/answer.h"
#include "face/face.h"
#include "face/handlers.h"
#include "face/show.h"
#include "io/relay.h"

#define BODY_MAX ((size_t)64 << 20) /* of a request: kept until all is here */
#define PREFIX "/deployments/"
#define WAKE_MS 600000 /* a request waits so long for a job that is about to take it */
#define RETRY_S 10
#define WAIT_BODY_MAX ((size_t)1 << 20) /* of one that waits: it is in memory meanwhile */

struct taken {
	unsigned magic;
#define TAKEN_MAGIC 0x46544b4eU
	const struct face_ctx *ctx;
	const char *attempt_id;
};

/* In the relay's thread; the request still lives. */
static void ended(void *arg, const struct relay_end *end)
{
	const struct taken *t = FROM_VOID(struct taken, arg, TAKEN_MAGIC);
	bool failed = !end->left && (end->status == 0 || end->cut || end->status >= 500);

	t->ctx->ops->serving->give(t->ctx->app, t->attempt_id, failed);
}

/* As it was sent: what follows the name, and the query. */
static struct str rest_of(const struct request *rq)
{
	struct str rest = rq->target;

	while (rest.n > 0 && rest.p[0] == '/')
		rest = str_skip(rest, 1);
	for (int part = 0; part < 2; part++) {
		const char *slash = memchr(rest.p, '/', rest.n);

		assert(slash != NULL); /* the route has three parts */
		rest = str_skip(rest, (size_t)(slash - rest.p));
		while (rest.n > 0 && rest.p[0] == '/')
			rest = str_skip(rest, 1);
	}
	return rest;
}

static int forward(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct taken *t = ARENA_NEW(rq->arena, struct taken);
	uint64_t channel = httpd_channel(CHANNEL_SERVING, rq->arg[0]);
	uint64_t seq = httpd_channel_seq(request_httpd(rq), channel);
	struct serving_target to = {0};
	struct str rest = rest_of(rq);
	struct relay_call call = {.ended = ended, .arg = t};

	if (request_body(rq, &call.body, err) < 0 ||
	    ctx->ops->serving->take(face_ask(rq), arg_text(rq, 0), &to, err) < 0)
		return -1;
	if (to.waits && call.body.n > WAIT_BODY_MAX) {
		err->retry_after_s = RETRY_S;
		return err_set(
			err, ERR_UNAVAILABLE,
			"%s is not ready yet; requests of more than %zu bytes do not wait for it",
			arg_text(rq, 0), WAIT_BODY_MAX);
	}
	if (to.waits && !rq->timed_out)
		return reply_wait(rq, channel, seq,
		                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + WAKE_MS);
	if (to.waits) {
		err->retry_after_s = RETRY_S;
		return err_set(err, ERR_UNAVAILABLE, "%s is not ready yet", arg_text(rq, 0));
	}
	*t = (struct taken){TAKEN_MAGIC, ctx, to.attempt_id};
	call.token = to.key;
	call.waited = rq->wakes > 0;
	call.url = arena_printf(rq->arena, "http://127.0.0.1:%" PRIu32 "/%.*s", to.port,
	                        STR_ARG(rest));
	if (reply_relay(rq, ctx->relay, &call, err) == 0)
		return 0;
	ctx->ops->serving->give(ctx->app, to.attempt_id, true);
	return -1;
}

#define AT PREFIX "{name}/{rest...}"
#define HELP "pass the request on to a job that serves NAME (`runtime.serve`), as is"
/* clang-format off */
static const struct route routes[] = {
	{HTTP_GET,    SCOPE_READ, BODY_MAX, AT, forward, HELP},
	{HTTP_POST,   SCOPE_READ, BODY_MAX, AT, forward, HELP},
	{HTTP_PUT,    SCOPE_READ, BODY_MAX, AT, forward, HELP},
	{HTTP_PATCH,  SCOPE_READ, BODY_MAX, AT, forward, HELP},
	{HTTP_DELETE, SCOPE_READ, BODY_MAX, AT, forward, HELP},
};
/* clang-format on */
const struct face face_serving = {"deployments", routes, COUNT(routes), NULL};
