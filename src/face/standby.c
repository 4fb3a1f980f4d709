/* standby.c - see standby.h. */
#include "face/standby.h"

#include "face/answer.h"

static void view(const struct request *rq, struct standby_view *out)
{
	const struct standby_ctx *ctx = FROM_VOID(struct standby_ctx, rq->ctx, STANDBY_CTX_MAGIC);

	ctx->view(ctx->of, out);
}

static int health(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct standby_view v;

	view(rq, &v);
	answer_open(&an);
	js_kv(&an.js, "status", "ok");
	js_kv(&an.js, "role", "standby");
	js_kv(&an.js, "database", v.database_away ? "away" : "ok");
	return answer_send(rq, &an, 200, err);
}

static int elsewhere(struct request *rq, struct err *err)
{
	struct standby_view v;

	view(rq, &v);
	err_set(err, ERR_STANDBY, "this server is a standby%s%s",
	        v.leader[0] != '\0' ? "; the leader is " : ": another one leads", v.leader);
	err->retry_after_s = STANDBY_RETRY_S;
	return -1;
}

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_OPEN, 0,                 "/healthz",   health,    "Health check" },
	{ HTTP_GET,    SCOPE_OPEN, ROUTE_BODY_STREAM, "/",          elsewhere, "Refused" },
	{ HTTP_POST,   SCOPE_OPEN, ROUTE_BODY_STREAM, "/",          elsewhere, "Refused" },
	{ HTTP_GET,    SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_PUT,    SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_POST,   SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_PATCH,  SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_DELETE, SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_OPTIONS, SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_PROPFIND, SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
	{ HTTP_MKCOL,  SCOPE_OPEN, ROUTE_BODY_STREAM, "/{rest...}", elsewhere, "Refused" },
};
/* clang-format on */

const struct face face_standby = {"standby", routes, COUNT(routes), NULL};
