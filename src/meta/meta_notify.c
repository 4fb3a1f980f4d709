/* meta_notify.c - what webhooks are still to be told: rows that are written with the step they tell
 * of, and go when they have arrived or were given up. */
#include "meta/meta_impl.h"

int meta_deliveries_add(struct db_tx *tx, const struct model_delivery *t, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (db_exec(tx,
		            "INSERT INTO notices (id, job_id, team_id, webhook, moment, body,"
		            " created_ms, due_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		            DB_ARGS(db_text(t[i].id), db_text(t[i].job_id), db_text(t[i].team_id),
		                    db_text(t[i].webhook), db_text(t[i].event), db_text(t[i].body),
		                    db_int(t[i].created_ms), db_int(t[i].created_ms)),
		            NULL, err) < 0)
			return -1;
	}
	return 0;
}

static void webhook_row(struct db_rows *r, void *item)
{
	struct meta_webhook *w = item;

	w->team_id = db_get_text(r);
	w->name = db_get_text(r);
}

int meta_webhooks_due(struct meta *m, struct arena *a, int64_t now_ms, size_t limit,
                      struct meta_webhook **out, size_t *n, struct err *err)
{
	return meta_list(
		m, a, "SELECT DISTINCT team_id, webhook FROM notices WHERE due_ms <= ? LIMIT ?",
		DB_ARGS(db_int(now_ms), db_u64(limit)), sizeof(**out), webhook_row, out, n, err);
}

static void delivery_row(struct db_rows *r, void *item)
{
	struct model_delivery *t = item;

	t->seq = db_get_int(r);
	t->id = db_get_text(r);
	t->job_id = db_get_text(r);
	t->team_id = db_get_text(r);
	t->webhook = db_get_text(r);
	t->event = db_get_text(r);
	t->body = db_get_text(r);
	t->created_ms = db_get_int(r);
	t->due_ms = db_get_int(r);
	t->tries = db_get_u32(r);
}

int meta_deliveries(struct meta *m, struct arena *a, const struct meta_webhook *w, int64_t now_ms,
                    size_t limit, struct model_delivery **out, size_t *n, struct err *err)
{
	return meta_list(
		m, a,
		"SELECT seq, id, job_id, team_id, webhook, moment, body, created_ms, due_ms, tries"
		" FROM notices WHERE team_id = ? AND webhook = ? AND due_ms <= ?"
		" ORDER BY seq LIMIT ?",
		DB_ARGS(db_text(w->team_id), db_text(w->name), db_int(now_ms), db_u64(limit)),
		sizeof(**out), delivery_row, out, n, err);
}

static int delivery_tried_once(struct meta *m, const struct model_delivery *t, int64_t due_ms,
                               const struct model_event *e, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0)
		return -1;
	if (due_ms == 0
	            ? db_exec(&tx, "DELETE FROM notices WHERE seq = ?", DB_ARGS(db_int(t->seq)),
	                      NULL, err) < 0
	            : db_exec(&tx, "UPDATE notices SET tries = tries + 1, due_ms = ? WHERE seq = ?",
	                      DB_ARGS(db_int(due_ms), db_int(t->seq)), NULL, err) < 0)
		return -1;
	if (e != NULL && db_exec(&tx,
	                         "INSERT INTO events (job_id, ms, kind, actor, message)"
	                         " SELECT id, ?, ?, ?, ? FROM jobs WHERE id = ?",
	                         DB_ARGS(db_int(e->ms), db_text(e->kind), db_text(e->actor),
	                                 db_text(e->message), db_text(t->job_id)),
	                         NULL, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_delivery_tried(struct meta *m, const struct model_delivery *t, int64_t due_ms,
                        const struct model_event *e, struct err *err)
{
	return DB_AGAIN(delivery_tried_once(m, t, due_ms, e, err), err);
}
