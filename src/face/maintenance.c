/* maintenance.c - collecting what nothing uses and reading again what is stored: begun, watched,
 * stopped. */
#include "face/handlers.h"
#include "face/show.h"

#define AGE_S ((int64_t)24 * 3600) /* unless the caller says another one */
#define AGE_MAX_S ((int64_t)10 * 365 * 24 * 3600)

static const char *const kinds[] = {"gc", "verify"};
static const char *const states[] = {
	[MAINTENANCE_RUNNING] = "RUNNING",
	[MAINTENANCE_DONE] = "DONE",
	[MAINTENANCE_STOPPED] = "STOPPED",
	[MAINTENANCE_FAILED] = "FAILED",
};
static const struct words kind_words = WORDS("a kind", kinds[0], kinds);
static const struct words state_words = WORDS("a state", states[0], states);

struct shown_maintenance {
	struct maintenance_view v;
	unsigned kind;
};
static SHOWN(item, NULL, maintenance_item, ROW(maintenance_item, R_TEXT, kind),
             ROW(maintenance_item, R_TEXT, name), ROW(maintenance_item, R_TEXT | R_NULL, path),
             ROW(maintenance_item, R_TEXT | R_NULL, words), ROW(maintenance_item, R_U64, bytes),
             ROW_AS(maintenance_item, R_TIME | R_NULL, "last_used_at", used_ms));
#define VIEW(k, n, f) ROW_AS(shown_maintenance, k, n, v.f)
SHOWN(maintenance, "Maintenance", shown_maintenance, VIEW(R_TEXT, "id", id),
      ROW_WORD(shown_maintenance, R_WORD, kind, kind_words), VIEW(R_BOOL, "dry_run", want.dry_run),
      VIEW(R_I64, "min_age_seconds", want.min_age_s), VIEW(R_TEXT, "by", by),
      ROW_WORD_AS(shown_maintenance, 0, "state", v.state, state_words),
      VIEW(R_TIME, "started_at", started_ms), VIEW(R_TIME | R_NULL, "ended_at", ended_ms),
      VIEW(R_TEXT | R_NULL, "doing", doing), VIEW(R_U64, "bytes_done", bytes_done),
      VIEW(R_U64, "bytes_total", bytes_total), VIEW(R_REAL, "rate_bytes_per_second", rate_bytes_s),
      VIEW(R_U64, "found", found), VIEW(R_U64, "found_bytes", found_bytes),
      ROW_OF_AS(shown_maintenance, R_LIST, "items", v.item, v.n_items, item),
      VIEW(R_TEXT | R_NULL, "note", note), VIEW(R_TEXT | R_NULL, "error", error));

static int send(struct request *rq, const struct maintenance_view *v, struct err *err)
{
	struct shown_maintenance shown = {*v, v->want.verify};

	return answer_one(rq, "maintenance", &maintenance_record, &shown, err);
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
