/* weights.c - mirrored weights: listed, fetched ahead of a job, removed. */
#include "face/handlers.h"
#include "face/show.h"

int weights_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_mirror *m;
	size_t n;

	if (ctx->ops->mirrors->list(face_ask(rq), &m, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "weights");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_mirror(&an.js, rq->arena, &m[i]);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int weights_prefetch(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct spec_weights w = {.mount_location = "/"}; /* fetched, not mounted */
	struct model_mirror m = {0};
	const char *team_id = NULL;
	const struct doc *body;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "source", true, &w.source, err) < 0 ||
	    body_text(body, "endpoint", false, &w.endpoint, err) < 0 ||
	    body_text(body, "auth_secret_name", false, &w.secret, err) < 0 ||
	    body_text(body, "team_id", false, &team_id, err) < 0 ||
	    body_texts(rq->arena, body, "allow_patterns", SPEC_PATTERNS_MAX, &w.allow, &w.n_allow,
	               err) < 0 ||
	    body_texts(rq->arena, body, "ignore_patterns", SPEC_PATTERNS_MAX, &w.ignore,
	               &w.n_ignore, err) < 0)
		return -1;
	if (spec_source_check(str_of(w.source), err) < 0)
		return err_wrap(err, "source");
	if (w.endpoint != NULL &&
	    spec_endpoint_check(str_of(w.source), str_of(w.endpoint), err) < 0)
		return err_wrap(err, "endpoint");
	if (ctx->ops->mirrors->prefetch(face_ask(rq), team_id, &w, &m, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "weights");
	show_mirror(&an.js, rq->arena, &m);
	return answer_send(rq, &an, 200, err);
}

int weights_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *id = arg_text(rq, 0);
	AUTO_ANSWER struct answer an = {0};
	uint64_t freed = 0;

	if (ctx->ops->mirrors->remove(face_ask(rq), id, &freed, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(&an.js, "id", id);
	js_kv_bool(&an.js, "deleted", true);
	js_kv_u64(&an.js, "bytes_freed", freed);
	return answer_send(rq, &an, 200, err);
}
