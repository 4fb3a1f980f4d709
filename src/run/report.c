/* report.c - the four threads that talk to the server; see report.h. */
#include "run/report.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/seal.h"
#include "io/client.h"
#include "io/proc.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/queue.h>

#define NONCE_LEN 24
#define SMALL_MS 15000
#define BODY_MAX ((size_t)4 << 20)
#define CLAIM_MAX ((size_t)64 << 20)
#define EXECS_MAX 64
#define EXEC_ID_MAX 128

struct letter {
	TAILQ_ENTRY(letter) link;
	char *path, *key; /* key: a newer letter with it replaces this one; NULL = never */
	char *body;
	size_t n;
	bool sending, bytes; /* bytes: not JSON */
};
TAILQ_HEAD(letters, letter);

struct report {
	struct http_client *http;
	char *server, *auth, *dir;
	struct logs *logs;
	pthread_mutex_t
		sample_lock; /* of the next two; a sample takes locks of others, so not `lock` */
	bool (*sample)(void *arg, struct wire_sample *out);
	void *arg;
	pthread_t beat, poll, ship, mail;
	bool started;
	atomic_bool done;   /* the threads end */
	atomic_bool halt;   /* their requests too, at once */
	atomic_bool cancel; /* of staging */
	atomic_bool fenced;
	int event_fd;

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	enum wire_stage stage;
	char note[300];
	uint64_t done_bytes, total_bytes, seq;
	double rate;
	int64_t rate_ms; /* when rate_bytes was seen */
	uint64_t rate_bytes;
	bool beat_now;
	struct report_orders orders;
	uint64_t orders_seq;
	struct letters letters;
	size_t n_letters;
	uint64_t log_sent;
	struct arena *execs_arena;
	struct wire_exec exec[EXECS_MAX];
	char seen[EXECS_MAX][EXEC_ID_MAX]; /* the last ones: orders are repeated */
	size_t n_exec, n_seen;
};

int report_open(struct report **out, const struct wire_start *start, const char *dir,
                struct err *err)
{
	struct http_policy policy = {.ca_file = start->ca_file};
	struct report *r = xcalloc(1, sizeof(*r));
	pthread_condattr_t attr;

	r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->event_fd < 0) {
		free(r);
		return err_errno(err, errno, "eventfd");
	}
	r->http = http_client_new(&policy);
	r->server = xstrdup(start->server);
	r->auth = xasprintf("Bearer %s", start->token);
	r->dir = xstrdup(dir);
	r->execs_arena = arena_new();
	TAILQ_INIT(&r->letters);
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_mutex_init(&r->sample_lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&r->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	*out = r;
	return 0;
}

/* Waits for a change or the time; with the lock held. */
static void wait_locked(struct report *r, int64_t ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	(void)pthread_cond_timedwait(&r->changed, &r->lock, &t);
}

static void pause_ms(struct report *r, int64_t ms)
{
	int64_t until = clock_mono_ms() + ms;

	(void)pthread_mutex_lock(&r->lock);
	for (int64_t left = ms; left > 0 && !r->done; left = until - clock_mono_ms())
		wait_locked(r, left);
	(void)pthread_mutex_unlock(&r->lock);
}

/* Growing pause between tries, jittered so that a hundred runners do not return as one. */
static void pause_after(struct report *r, int *tries)
{
	uint16_t dice = 0;
	int64_t ms = MIN(200LL << MIN(*tries, 6), REPORT_PAUSE_MS);

	seal_random(&dice, sizeof(dice));
	(*tries)++;
	pause_ms(r, ms / 2 + dice % (ms / 2 + 1));
}

static char *url_of(struct report *r, const char *path)
{
	char *url = NULL;

	(void)pthread_mutex_lock(&r->lock);
	url = xasprintf("%s%s", r->server, path);
	(void)pthread_mutex_unlock(&r->lock);
	return url;
}

/* A server that was started again may be on another port: it writes that into our launch.json. */
static void look_for_server(struct report *r)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	struct wire_start start;
	struct err err = {0};

	if (fs_read(AT_FDCWD, arena_printf(a, "%s/launch.json", r->dir), &body, &err) == 0 &&
	    wire_start_parse(&start, a, buf_view(&body), &err) == 0) {
		(void)pthread_mutex_lock(&r->lock);
		if (strcmp(start.server, r->server) != 0) {
			log_info("the server is at %s now", start.server);
			free(r->server);
			r->server = xstrdup(start.server);
		}
		(void)pthread_mutex_unlock(&r->lock);
	}
	seal_wipe_buf(&body);
}

/* One exchange. 0 = a 2xx; *status is set whenever there was an answer, else 0. */
static int exchange(struct report *r, enum http_method method, const char *path, const char *type,
                    struct str body, int64_t total_ms, struct http_reply *reply, struct err *err)
{
	AUTO_FREE char *url = url_of(r, path);
	struct http_header headers[] = {{"Authorization", r->auth}, {"Content-Type", type}};
	struct http_call call = {.method = method,
	                         .url = url,
	                         .headers = headers,
	                         .n_headers = method == HTTP_GET ? 1 : 2,
	                         .body = body,
	                         .connect_ms = 5000,
	                         .total_ms = total_ms,
	                         .stall_ms = total_ms,
	                         .body_max = CLAIM_MAX,
	                         .cancel = &r->halt};

	if (http_do(r->http, &call, reply, err) < 0) {
		look_for_server(r);
		return -1;
	}
	return http_expect(&call, reply, err);
}

static int post(struct report *r, const char *path, struct str body, struct http_reply *reply,
                struct err *err)
{
	return exchange(r, HTTP_POST, path, "application/json", body, SMALL_MS, reply, err);
}

/* The server is there and does not want us. */
static bool is_refusal(const struct http_reply *reply)
{
	int s = reply->status;

	return s == 401 || s == 403 || s == 404 || s == 409 || s == 410;
}

/* The server is there and will never take this: sending it again is of no use. */
static bool is_rejected(const struct http_reply *reply)
{
	return reply->status >= 400 && reply->status < 500 && reply->status != 408 &&
	       reply->status != 429;
}

int report_claim(struct report *r, struct arena *a, struct wire_launch *out, struct err *err)
{
	char nonce[NONCE_LEN + 1];
	AUTO_FREE char *body = NULL;
	int tries = 0;

	seal_id(nonce, NONCE_LEN);
	body = xasprintf("{\"nonce\":\"%s\"}", nonce);
	for (;;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err one = {0};
		int r2 = post(r, "/runner/v1/claim", str_of(body), &reply, &one);

		if (r2 == 0)
			return wire_launch_parse(out, a, buf_view(&reply.body), err);
		if (is_refusal(&reply) || reply.status == 400)
			return err_set(err, one.code, "%s", one.msg);
		log_warn("claim: %s", one.msg);
		pause_after(r, &tries);
	}
}

static void wake(struct report *r)
{
	uint64_t one = 1;

	(void)!write(r->event_fd, &one, sizeof(one)); /* full is as good: it is readable */
}

static void fence(struct report *r, const char *why)
{
	if (r->fenced)
		return;
	log_error("the server does not know this attempt any more: %s", why);
	r->fenced = true;
	r->cancel = true;
	(void)pthread_mutex_lock(&r->lock);
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
}

static bool seen_exec(struct report *r, const char *id)
{
	for (size_t i = 0; i < r->n_seen && i < EXECS_MAX; i++) {
		if (strcmp(r->seen[i], id) == 0)
			return true;
	}
	return false;
}

static void take_exec(struct report *r, const struct wire_exec *x)
{
	struct wire_exec *mine = NULL;

	if (strlen(x->id) >= EXEC_ID_MAX || x->n_argv == 0 || seen_exec(r, x->id) ||
	    r->n_exec == EXECS_MAX)
		return; /* the server repeats what was not answered */
	copy_cut(r->seen[r->n_seen % EXECS_MAX], EXEC_ID_MAX, x->id);
	r->n_seen++;
	mine = &r->exec[r->n_exec++];
	mine->id = arena_cstr(r->execs_arena, x->id);
	mine->argv = ARENA_ARRAY(r->execs_arena, const char *, x->n_argv);
	mine->n_argv = x->n_argv;
	for (size_t i = 0; i < x->n_argv; i++)
		mine->argv[i] = arena_cstr(r->execs_arena, x->argv[i]);
}

/* Orders only ever grow: a late answer takes nothing back. */
static void take_orders(struct report *r, struct str json)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_orders o;
	struct err err = {0};

	if (wire_orders_parse(&o, a, json, &err) < 0) {
		log_warn("orders: %s", err.msg);
		return;
	}
	(void)pthread_mutex_lock(&r->lock);
	r->orders.go = r->orders.go || o.go;
	r->orders.stop = r->orders.stop || o.stop;
	r->orders.now = r->orders.now || o.now;
	r->orders_seq = o.seq; /* a fingerprint of the orders, not a count */
	for (size_t i = 0; i < o.n_exec; i++)
		take_exec(r, &o.exec[i]);
	if (r->orders.stop)
		r->cancel = true;
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
}

static void fill_beat(struct report *r, struct wire_heartbeat *hb, char note[300])
{
	memset(hb, 0, sizeof(*hb));
	(void)pthread_mutex_lock(&r->lock);
	hb->seq = ++r->seq;
	hb->stage = r->stage;
	copy_cut(note, 300, r->note);
	hb->note = note[0] == '\0' ? NULL : note;
	hb->done_bytes = r->done_bytes;
	hb->total_bytes = r->total_bytes;
	hb->rate_bytes_s = r->rate;
	r->beat_now = false;
	(void)pthread_mutex_unlock(&r->lock);
	(void)pthread_mutex_lock(&r->sample_lock);
	hb->has_sample = r->sample != NULL && r->sample(r->arg, &hb->sample);
	(void)pthread_mutex_unlock(&r->sample_lock);
}

static void *beat_main(void *arg)
{
	struct report *r = arg;
	int tries = 0, refusals = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
		struct wire_heartbeat hb;
		char note[300];
		struct err err = {0};

		fill_beat(r, &hb, note);
		wire_heartbeat_write(&hb, &body);
		if (post(r, "/runner/v1/heartbeat", buf_view(&body), &reply, &err) == 0) {
			tries = refusals = 0;
			take_orders(r, buf_view(&reply.body));
		} else if (!r->halt) {
			log_warn("heartbeat: %s", err.msg);
			refusals = is_refusal(&reply) ? refusals + 1 : 0;
			if (refusals >= REPORT_REFUSALS)
				fence(r, err.msg);
			pause_after(r, &tries);
		}
		(void)pthread_mutex_lock(&r->lock);
		for (int64_t until = clock_mono_ms() + REPORT_BEAT_MS, left = REPORT_BEAT_MS;
		     left > 0 && !r->done && !r->beat_now; left = until - clock_mono_ms())
			wait_locked(r, left);
		(void)pthread_mutex_unlock(&r->lock);
	}
	return NULL;
}

static void *poll_main(void *arg)
{
	struct report *r = arg;
	int tries = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		char path[128];
		struct err err = {0};
		uint64_t seq = 0;

		(void)pthread_mutex_lock(&r->lock);
		seq = r->orders_seq;
		(void)pthread_mutex_unlock(&r->lock);
		FMT(path, "/runner/v1/orders?seq=%" PRIu64 "&wait_ms=%d", seq, REPORT_ORDERS_MS);
		if (exchange(r, HTTP_GET, path, "", (struct str){0}, REPORT_ORDERS_MS + SMALL_MS,
		             &reply, &err) == 0) {
			tries = 0;
			take_orders(r, buf_view(&reply.body));
		} else if (!r->halt) {
			pause_after(r, &tries);
		}
	}
	return NULL;
}

/* What follows `sent` in the log file, in whole records. */
static int read_log(struct report *r, int fd, uint64_t size, uint64_t sent, struct buf *out,
                    struct err *err)
{
	size_t want = (size_t)MIN(size - sent, (uint64_t)REPORT_LOG_CHUNK);
	char *room = buf_room(out, want);
	const char *last = NULL;

	(void)r;
	if (room == NULL || fs_pread_all(fd, room, want, sent, err) < 0)
		return -1;
	last = memrchr(room, '\n', want);
	out->n = last == NULL ? 0 : (size_t)(last - room) + 1;
	return 0;
}

/* {"next": N} of the answer, also of a refusal for a gap. */
static bool next_of(struct str json, uint64_t *next)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err err = {0};
	int64_t n = -1;

	if (js_parse(a, json, &d, &err) == 0)
		n = doc_int(doc_get(d, "next"), -1);
	if (n < 0)
		return false;
	*next = (uint64_t)n;
	return true;
}

static bool send_log(struct report *r, int fd, uint64_t size, uint64_t sent, uint64_t *next)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_BUF struct buf body = BUF_INIT(REPORT_LOG_CHUNK + 1);
	char path[64];
	struct err err = {0};

	if (read_log(r, fd, size, sent, &body, &err) < 0) {
		log_warn("log: %s", err.msg);
		return false;
	}
	FMT(path, "/runner/v1/log?seq=%" PRIu64, sent);
	if (exchange(r, HTTP_POST, path, "text/plain", buf_view(&body), SMALL_MS, &reply, &err) ==
	            0 ||
	    reply.status == 409) {
		if (next_of(buf_view(&reply.body), next) && *next <= size)
			return true;
	}
	if (!r->halt && err.code != ERR_NONE)
		log_warn("log: %s", err.msg);
	return false;
}

static void *ship_main(void *arg)
{
	struct report *r = arg;
	AUTO_FREE char *path = xasprintf("%s/log", r->dir);
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	int tries = 0;

	while (fd >= 0 && !r->done && !r->fenced) {
		uint64_t size = 0, sent = 0, next = 0;

		(void)pthread_mutex_lock(&r->lock);
		size = logs_size(r->logs); /* with the lock: no change is missed before the wait */
		sent = r->log_sent;
		if (size <= sent)
			wait_locked(r, 1000);
		(void)pthread_mutex_unlock(&r->lock);
		if (size <= sent)
			continue;
		if (!send_log(r, fd, size, sent, &next)) {
			pause_after(r, &tries);
			continue;
		}
		tries = 0;
		(void)pthread_mutex_lock(&r->lock);
		r->log_sent = next;
		(void)pthread_cond_broadcast(&r->changed);
		(void)pthread_mutex_unlock(&r->lock);
	}
	return NULL;
}

void report_logs_changed(void *report)
{
	struct report *r = report;

	(void)pthread_mutex_lock(&r->lock);
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
}

static void letter_free(struct letter *m)
{
	free(m->path);
	free(m->key);
	free(m->body);
	free(m);
}

static void drop_letter(struct report *r, struct letter *m)
{
	TAILQ_REMOVE(&r->letters, m, link);
	r->n_letters--;
	letter_free(m);
}

static void queue_letter(struct report *r, const char *path, const char *key, bool bytes,
                         struct str body)
{
	struct letter *m = xcalloc(1, sizeof(*m)), *old = NULL;

	m->path = xstrdup(path);
	m->bytes = bytes;
	m->key = key == NULL ? NULL : xstrdup(key);
	m->body = xmalloc(body.n + 1);
	m->n = body.n;
	if (body.n > 0)
		memcpy(m->body, body.p, body.n);
	(void)pthread_mutex_lock(&r->lock);
	TAILQ_FOREACH(old, &r->letters, link)
	{
		if (key != NULL && old->key != NULL && !old->sending && strcmp(old->key, key) == 0)
			break;
	}
	if (old == NULL && r->n_letters >= REPORT_LETTERS_MAX) {
		TAILQ_FOREACH(old, &r->letters, link)
		{
			if (old->key == NULL && !old->sending)
				break;
		}
	}
	if (old != NULL)
		drop_letter(r, old);
	TAILQ_INSERT_TAIL(&r->letters, m, link);
	r->n_letters++;
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
}

/* Without threads (the sweeper): a few tries, then never mind. */
static void send_now(struct report *r, const char *path, struct str body)
{
	for (struct retry again = RETRY_INIT(3);;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};

		if (post(r, path, body, &reply, &err) == 0 || !retry_again(&again, &err))
			return;
	}
}

static void send_letter(struct report *r, const char *path, const char *key, bool bytes,
                        struct str body)
{
	if (!r->started) {
		send_now(r, path, body);
		return;
	}
	queue_letter(r, path, key, bytes, body);
}

static void *mail_main(void *arg)
{
	struct report *r = arg;
	int tries = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct letter *m = NULL;
		struct err err = {0};
		bool sent = false;

		(void)pthread_mutex_lock(&r->lock);
		m = TAILQ_FIRST(&r->letters);
		if (m == NULL)
			wait_locked(r, 1000);
		else
			m->sending = true;
		(void)pthread_mutex_unlock(&r->lock);
		if (m == NULL)
			continue;
		sent = exchange(r, HTTP_POST, m->path,
		                m->bytes ? "application/octet-stream" : "application/json",
		                str_n(m->body, m->n), SMALL_MS, &reply, &err) == 0;
		if (!sent && !r->halt)
			log_warn("%s: %s", m->path, err.msg);
		(void)pthread_mutex_lock(&r->lock);
		m->sending = false;
		if (sent || is_rejected(&reply)) {
			drop_letter(r, m);
			tries = 0;
			(void)pthread_cond_broadcast(&r->changed);
			sent = true;
		}
		(void)pthread_mutex_unlock(&r->lock);
		if (!sent)
			pause_after(r, &tries);
	}
	return NULL;
}

void report_samples(struct report *r, bool (*sample)(void *arg, struct wire_sample *out), void *arg)
{
	(void)pthread_mutex_lock(&r->sample_lock);
	r->sample = sample;
	r->arg = arg;
	(void)pthread_mutex_unlock(&r->sample_lock);
}

int report_start(struct report *r, struct logs *logs, struct err *err)
{
	struct {
		pthread_t *thread;
		void *(*fn)(void *arg);
	} all[] = {{&r->beat, beat_main},
	           {&r->poll, poll_main},
	           {&r->ship, ship_main},
	           {&r->mail, mail_main}};

	r->logs = logs;
	logs_on_write(logs, report_logs_changed, r);
	for (size_t i = 0; i < COUNT(all); i++) {
		int rc = pthread_create(all[i].thread, NULL, all[i].fn, r);

		/* the threads that run would be joined without the others: give up at once */
		if (rc != 0) {
			(void)err_errno(err, rc, "thread for the server");
			log_error("%s", err->msg);
			_exit(1);
		}
	}
	r->started = true;
	return 0;
}

void report_stage(struct report *r, enum wire_stage stage)
{
	(void)pthread_mutex_lock(&r->lock);
	r->stage = stage;
	r->note[0] = '\0';
	r->done_bytes = r->total_bytes = r->rate_bytes = 0;
	r->rate = 0;
	r->rate_ms = clock_mono_ms();
	r->beat_now = true;
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
}

void report_progress(struct report *r, const char *note, uint64_t done, uint64_t total)
{
	int64_t now = clock_mono_ms();

	(void)pthread_mutex_lock(&r->lock);
	copy_cut(r->note, sizeof(r->note), note == NULL ? "" : note);
	if (done < r->rate_bytes) {
		r->rate_bytes = done;
		r->rate_ms = now;
	} else if (now - r->rate_ms >= 500) {
		r->rate = (double)(done - r->rate_bytes) * 1000 / (double)(now - r->rate_ms);
		r->rate_bytes = done;
		r->rate_ms = now;
	}
	r->done_bytes = done;
	r->total_bytes = total;
	(void)pthread_mutex_unlock(&r->lock);
}

void report_ready(struct report *r)
{
	send_letter(r, "/runner/v1/ready", NULL, false, STR_LIT("{}"));
}

void report_event(struct report *r, const char *kind, const char *fmt, ...)
{
	AUTO_BUF struct buf out = BUF_INIT(BODY_MAX), text = BUF_INIT(BODY_MAX);
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
	send_letter(r, "/runner/v1/event", NULL, false, buf_view(&out));
}

void report_checkpoint(struct report *r, const struct model_checkpoint *row)
{
	AUTO_BUF struct buf out = BUF_INIT(BODY_MAX);
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
	js_close(&js);
	send_letter(r, "/runner/v1/checkpoint", key, false, buf_view(&out));
}

void report_exec_output(struct report *r, const char *id, struct str bytes, bool done, int code)
{
	AUTO_FREE char *path = xasprintf("/runner/v1/exec_output?id=%s&done=%d&exit_code=%d", id,
	                                 done ? 1 : 0, code);

	send_letter(r, path, NULL, true, bytes);
}

int report_fd(const struct report *r)
{
	return r->event_fd;
}

void report_orders(struct report *r, struct report_orders *out)
{
	uint64_t n = 0;

	(void)!read(r->event_fd, &n, sizeof(n)); /* nothing in it is fine */
	(void)pthread_mutex_lock(&r->lock);
	*out = r->orders;
	(void)pthread_mutex_unlock(&r->lock);
}

bool report_fenced(struct report *r)
{
	return r->fenced;
}

const atomic_bool *report_cancel(struct report *r)
{
	return &r->cancel;
}

bool report_exec(struct report *r, struct arena *a, struct wire_exec *out)
{
	bool found = false;

	(void)pthread_mutex_lock(&r->lock);
	if (r->n_exec > 0) {
		struct wire_exec *x = &r->exec[0];

		out->id = arena_cstr(a, x->id);
		out->n_argv = x->n_argv;
		out->argv = ARENA_ARRAY(a, const char *, x->n_argv);
		for (size_t i = 0; i < x->n_argv; i++)
			out->argv[i] = arena_cstr(a, x->argv[i]);
		memmove(x, x + 1, (r->n_exec - 1) * sizeof(*x));
		r->n_exec--;
		if (r->n_exec == 0)
			arena_reset(r->execs_arena);
		found = true;
	}
	(void)pthread_mutex_unlock(&r->lock);
	return found;
}

bool report_flush(struct report *r)
{
	bool all = false;

	while (!all && !r->fenced) {
		(void)pthread_mutex_lock(&r->lock);
		all = r->log_sent >= logs_size(r->logs) && TAILQ_EMPTY(&r->letters);
		if (!all)
			wait_locked(r, 1000);
		(void)pthread_mutex_unlock(&r->lock);
	}
	return all;
}

void report_exit(struct report *r, const struct wire_exit *x)
{
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	int tries = 0;

	wire_exit_write(x, &body);
	while (!r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};

		if (post(r, "/runner/v1/exit", buf_view(&body), &reply, &err) == 0)
			return;
		log_warn("exit: %s", err.msg);
		if (is_refusal(&reply)) /* it has ended otherwise: nobody waits for this record */
			return;
		pause_after(r, &tries);
	}
}

void report_close(struct report *r)
{
	if (r == NULL)
		return;
	r->halt = true;
	(void)pthread_mutex_lock(&r->lock);
	r->done = true;
	(void)pthread_cond_broadcast(&r->changed);
	(void)pthread_mutex_unlock(&r->lock);
	if (r->started) {
		logs_on_write(r->logs, NULL, NULL);
		(void)pthread_join(r->beat, NULL);
		(void)pthread_join(r->poll, NULL);
		(void)pthread_join(r->ship, NULL);
		(void)pthread_join(r->mail, NULL);
	}
	while (!TAILQ_EMPTY(&r->letters))
		drop_letter(r, TAILQ_FIRST(&r->letters));
	http_client_free(r->http);
	(void)close(r->event_fd);
	arena_free(r->execs_arena);
	seal_wipe(r->auth, strlen(r->auth));
	free(r->server);
	free(r->auth);
	free(r->dir);
	(void)pthread_cond_destroy(&r->changed);
	(void)pthread_mutex_destroy(&r->lock);
	(void)pthread_mutex_destroy(&r->sample_lock);
	free(r);
}
