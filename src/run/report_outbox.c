/*
 * report_outbox.c - messages: what the server must hear once, in order, whenever it is there. The
 * queue is bounded; a newer checkpoint's message replaces its older one.
 */
#include "run/report_inner.h"

#include "base/log.h"

static void item_free(struct outbox_item *m)
{
	free(m->path);
	free(m->key);
	free(m->body);
	free(m);
}

static void drop_item(struct report *r, struct outbox_item *m)
{
	assert(r->n_outbox > 0 && !m->sending);
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
	report_check(r);
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
	report_check(r);
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

/* Without threads (the sweeper): a few tries, then report_untold says so. */
static void send_now(struct report *r, const char *path, struct str body)
{
	for (struct retry again = RETRY_INIT(3);;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};

		if (report_post(r, path, body, &reply, &err) == 0 || report_is_rejected(&reply))
			return;
		if (!retry_again(&again, &err)) {
			log_warn("%s: %s", path, err.msg);
			r->untold = true;
			return;
		}
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
	struct report *r = FROM_VOID(struct report, arg, REPORT_MAGIC);
	int tries = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct outbox_item *m = NULL;
		struct err err = {0};
		bool sent = false;

		lock_take(&r->lock);
		report_check(r);
		m = TAILQ_FIRST(&r->outbox);
		assert(m == NULL || !m->sending); /* by nobody but this thread */
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
		report_check(r);
		assert(m == TAILQ_FIRST(&r->outbox) && m->sending); /* nobody takes it away */
		m->sending = false;
		if (sent || report_is_rejected(&reply)) {
			drop_item(r, m);
			tries = 0;
			cond_broadcast(&r->changed);
			sent = true;
		}
		report_check(r);
		lock_give(&r->lock);
		if (!sent)
			report_pause_after(r, &tries);
	}
	return NULL;
}

bool report_untold(const struct report *r)
{
	return r->untold;
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
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	wire_event_write(&(struct wire_event){kind, buf_cstr(&text)}, &out);
	send_item(r, "/runner/v1/event", NULL, buf_view(&out));
}

void report_checkpoint(struct report *r, const struct model_checkpoint *row)
{
	AUTO_BUF struct buf out = BUF_INIT(REPORT_BODY_MAX);
	AUTO_FREE char *key = xasprintf("checkpoint %s", row->name);

	wire_checkpoint_write(row, &out);
	send_item(r, "/runner/v1/checkpoint", key, buf_view(&out));
}
