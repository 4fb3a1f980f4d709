/*
 * report_outbox.c - messages: what the server must hear once, in order, whenever it is there. The
 * queue is bounded; a newer checkpoint's message replaces its older one.
 */
#include "run/report_inner.h"

#include "base/json.h"
#include "base/log.h"

/* The server is there and will never take this: sending it again is of no use. */
static bool is_rejected(const struct http_reply *reply)
{
	return reply->status >= 400 && reply->status < 500 && reply->status != 408 &&
	       reply->status != 429;
}

static void item_free(struct outbox_item *m)
{
	free(m->path);
	free(m->key);
	free(m->body);
	free(m);
}

static void drop_item(struct report *r, struct outbox_item *m)
{
	TAILQ_REMOVE(&r->outbox, m, link);
	r->n_outbox--;
	item_free(m);
}

static void queue_item(struct report *r, const char *path, const char *key, struct str body)
{
	struct outbox_item *m = xcalloc(1, sizeof(*m)), *old = NULL;

	m->path = xstrdup(path);
	m->key = key == NULL ? NULL : xstrdup(key);
	m->body = xmalloc(body.n + 1);
	m->n = body.n;
	if (body.n > 0)
		memcpy(m->body, body.p, body.n);
	lock_take(&r->lock);
	TAILQ_FOREACH(old, &r->outbox, link)
	{
		if (key != NULL && old->key != NULL && !old->sending && strcmp(old->key, key) == 0)
			break;
	}
	if (old == NULL && r->n_outbox >= REPORT_OUTBOX_MAX) {
		TAILQ_FOREACH(old, &r->outbox, link)
		{
			if (old->key == NULL && !old->sending)
				break;
		}
	}
	if (old != NULL)
		drop_item(r, old);
	TAILQ_INSERT_TAIL(&r->outbox, m, link);
	r->n_outbox++;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

/* Without threads (the sweeper): a few tries, then never mind. */
static void send_now(struct report *r, const char *path, struct str body)
{
	for (struct retry again = RETRY_INIT(3);;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};

		if (report_post(r, path, body, &reply, &err) == 0 || !retry_again(&again, &err))
			return;
	}
}

static void send_item(struct report *r, const char *path, const char *key, struct str body)
{
	if (!r->started) {
		send_now(r, path, body);
		return;
	}
	queue_item(r, path, key, body);
}

void *report_outbox_main(void *arg)
{
	struct report *r = arg;
	int tries = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct outbox_item *m = NULL;
		struct err err = {0};
		bool sent = false;

		lock_take(&r->lock);
		m = TAILQ_FIRST(&r->outbox);
		if (m == NULL)
			report_wait_locked(r, 1000);
		else
			m->sending = true;
		lock_give(&r->lock);
		if (m == NULL)
			continue;
		sent = report_post(r, m->path, str_n(m->body, m->n), &reply, &err) == 0;
		if (!sent && !r->halt)
			log_warn("%s: %s", m->path, err.msg);
		lock_take(&r->lock);
		m->sending = false;
		if (sent || is_rejected(&reply)) {
			drop_item(r, m);
			tries = 0;
			cond_broadcast(&r->changed);
			sent = true;
		}
		lock_give(&r->lock);
		if (!sent)
			report_pause_after(r, &tries);
	}
	return NULL;
}

void report_outbox_done(struct report *r)
{
	while (!TAILQ_EMPTY(&r->outbox))
		drop_item(r, TAILQ_FIRST(&r->outbox));
}

void report_ready(struct report *r)
{
	send_item(r, "/runner/v1/ready", NULL, STR_LIT("{}"));
}

void report_sample(struct report *r, const struct wire_sample *sample)
{
	AUTO_BUF struct buf out = BUF_INIT(REPORT_BODY_MAX);
	struct wire_heartbeat hb;
	char note[REPORT_NOTE_MAX];

	report_fill_heartbeat(r, &hb, note);
	hb.has_sample = true;
	hb.sample = *sample;
	wire_heartbeat_write(&hb, &out);
	send_item(r, "/runner/v1/heartbeat", NULL, buf_view(&out));
}

void report_event(struct report *r, const char *kind, const char *fmt, ...)
{
	AUTO_BUF struct buf out = BUF_INIT(REPORT_BODY_MAX), text = BUF_INIT(REPORT_BODY_MAX);
	struct js js;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "kind", kind);
	js_kv_str(&js, "message", buf_view(&text));
	js_close(&js);
	send_item(r, "/runner/v1/event", NULL, buf_view(&out));
}

void report_checkpoint(struct report *r, const struct model_checkpoint *row)
{
	AUTO_BUF struct buf out = BUF_INIT(REPORT_BODY_MAX);
	AUTO_FREE char *key = xasprintf("checkpoint %s", row->name);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "name", row->name);
	js_kv(&js, "state", ckpt_state_word(row->state));
	js_kv(&js, "kind", row->kind);
	js_kv(&js, "base_model", row->base_model);
	js_kv_int(&js, "lora_r", row->lora_r);
	js_kv_int(&js, "created_ms", row->created_ms);
	js_kv_u64(&js, "bytes", row->bytes);
	js_kv_u64(&js, "bytes_sent", row->bytes_sent);
	js_kv_u64(&js, "files", row->files);
	js_kv(&js, "manifest_key", row->manifest_key);
	js_kv_int(&js, "rule", row->rule);
	js_kv(&js, "reason", row->reason);
	js_kv(&js, "trainer", row->trainer);
	js_kv(&js, "updating", row->updating);
	js_kv_u64(&js, "revision", row->revision);
	js_kv(&js, "shown", row->shown);
	js_close(&js);
	send_item(r, "/runner/v1/checkpoint", key, buf_view(&out));
}
