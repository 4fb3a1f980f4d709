/* maintenance.c - collecting what nothing uses and reading again what is stored: begun, watched,
 * stopped. */
#include "face/handlers.h"
#include "face/show.h"

#define AGE_S ((int64_t)24 * 3600) /* unless the caller says another one */
#define AGE_MAX_S ((int64_t)10 * 365 * 24 * 3600)

static void show_item(struct js *js, const struct maintenance_item *x)
{
	js_open(js);
	js_kv(js, "kind", x->kind);
	js_kv(js, "name", x->name);
	js_kv(js, "path", x->path);
	js_kv(js, "words", x->words);
	js_kv_u64(js, "bytes", x->bytes);
	show_time(js, "last_used_at", x->used_ms);
	js_close(js);
}

static int send(struct request *rq, const struct maintenance_view *v, struct err *err)
{
	static const char *const states[] = {
		[MAINTENANCE_RUNNING] = "RUNNING",
		[MAINTENANCE_DONE] = "DONE",
		[MAINTENANCE_STOPPED] = "STOPPED",
		[MAINTENANCE_FAILED] = "FAILED",
	};
	AUTO_ANSWER struct answer an = {0};
	struct js *js = &an.js;

	answer_open(&an);
	js_key(js, "maintenance");
	js_open(js);
	js_kv(js, "id", v->id);
	js_kv(js, "kind", v->want.verify ? "verify" : "gc");
	js_kv_bool(js, "dry_run", v->want.dry_run);
	js_kv_int(js, "min_age_seconds", v->want.min_age_s);
	js_kv(js, "by", v->by);
	js_kv(js, "state", states[v->state]);
	show_time(js, "started_at", v->started_ms);
	show_time(js, "ended_at", v->ended_ms);
	js_kv(js, "doing", v->doing);
	js_kv_u64(js, "bytes_done", v->bytes_done);
	js_kv_u64(js, "bytes_total", v->bytes_total);
	js_kv_real(js, "rate_bytes_per_second", v->rate_bytes_s);
	js_kv_u64(js, "found", v->found);
	js_kv_u64(js, "found_bytes", v->found_bytes);
	js_key(js, "items");
	js_list(js);
	for (size_t i = 0; i < v->n_items; i++)
		show_item(js, &v->item[i]);
	js_end(js);
	js_kv(js, "note", v->note);
	js_kv(js, "error", v->error);
	js_close(js);
	return answer_send(rq, &an, 200, err);
}

int maintenance_post(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct maintenance_want want = {.min_age_s = AGE_S};
	struct maintenance_view v = {0};
	const struct doc *body;
	const char *kind;

	if (body_read(rq, false, &body, err) < 0 || body_text(body, "kind", true, &kind, err) < 0 ||
	    body_bool(body, "dry_run", &want.dry_run, err) < 0 ||
	    body_int(body, "min_age_seconds", 0, AGE_MAX_S, &want.min_age_s, err) < 0)
		return -1;
	want.verify = strcmp(kind, "verify") == 0;
	if (!want.verify && strcmp(kind, "gc") != 0)
		return err_set(err, ERR_INVALID, "kind: \"%.40s\" is neither gc nor verify", kind);
	if (ctx->ops->maintenance->begin(face_ask(rq), &want, &v, err) < 0)
		return -1;
	return send(rq, &v, err);
}

int maintenance_get(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct maintenance_view v = {0};

	if (ctx->ops->maintenance->show(face_ask(rq), &v, err) < 0)
		return -1;
	return send(rq, &v, err);
}

int maintenance_delete(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct maintenance_view v = {0};

	if (ctx->ops->maintenance->stop(face_ask(rq), arg_text(rq, 0), &v, err) < 0)
		return -1;
	return send(rq, &v, err);
}
