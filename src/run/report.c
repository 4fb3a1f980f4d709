/* report.c - opens and closes it; the threads of heartbeats and orders; see report.h. */
#include "run/report_inner.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/seal.h"
#include "base/thread.h"

#include <sys/eventfd.h>

int report_open(struct report **out, const struct wire_start *start, const char *dir,
                struct err *err)
{
	struct report *r = xcalloc(1, sizeof(*r));

	r->magic = REPORT_MAGIC;
	r->dir_fd = fs_open_dir(dir, err);
	if (r->dir_fd < 0) {
		free(r);
		return -1;
	}
	r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->event_fd < 0) {
		(void)close(r->dir_fd);
		free(r);
		return err_errno(err, errno, "eventfd");
	}
	r->by_socket = start->socket != NULL;
	r->token = xstrdup(start->token);
	if (report_ways(r, start, err) < 0) {
		report_ways_done(r);
		(void)close(r->event_fd);
		(void)close(r->dir_fd);
		free(r->token);
		free(r);
		return -1;
	}
	r->auth = xasprintf("Bearer %s", start->token);
	r->dir = xstrdup(dir);
	r->execs_arena = arena_new();
	TAILQ_INIT(&r->outbox);
	lock_init(&r->lock, LOCK_REPORT);
	lock_init(&r->sample_lock, LOCK_REPORT_SAMPLE);
	cond_init(&r->changed);
	cond_init(&r->asked);
	TAILQ_INIT(&r->asks);
	*out = r;
	return 0;
}

static void wake(struct report *r)
{
	event_set(r->event_fd);
}

static void fence(struct report *r, const char *why)
{
	if (r->fenced)
		return;
	log_error("abandoning this attempt: %s", why);
	r->fenced = true;
	r->cancel = true;
	lock_take(&r->lock);
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
	wake(r);
}

void report_check(const struct report *r)
{
	assert(r->magic == REPORT_MAGIC && lock_is_mine(&r->lock));
	assert(r->stage < STAGE_COUNT);
	assert(r->n_ways > 0 && r->n_ways <= REPORT_WAYS_MAX);
	assert(r->at < r->n_ways && r->reached < r->n_ways);
	assert((r->n_outbox == 0) == TAILQ_EMPTY(&r->outbox));
	assert(r->n_exec <= REPORT_EXECS_MAX);
	assert(!r->log_kept || r->flush_ms > 0); /* nobody asks before the end */
	assert(!r->desired.stop || r->cancel);   /* a stop ends staging */
}

static bool seen_exec(struct report *r, const char *id)
{
	for (size_t i = 0; i < r->n_seen && i < REPORT_EXECS_MAX; i++) {
		if (strcmp(r->seen[i], id) == 0)
			return true;
	}
	return false;
}

static void take_exec(struct report *r, const struct wire_exec *x)
{
	if (strlen(x->id) >= REPORT_EXEC_ID_MAX || (x->n_argv == 0 && !x->input) ||
	    seen_exec(r, x->id) || r->n_exec == REPORT_EXECS_MAX)
		return; /* the server repeats what was not answered */
	copy_cut(r->seen[r->n_seen % REPORT_EXECS_MAX], REPORT_EXEC_ID_MAX, x->id);
	r->n_seen++;
	wire_exec_copy(&r->exec[r->n_exec++], r->execs_arena, x);
}

/* Orders only ever grow: a late answer takes nothing back. */
static void take_desired(struct report *r, struct str json)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_desired o;
	struct err err = {0};

	if (wire_desired_parse(&o, a, json, &err) < 0) {
		log_warn("orders: %s", err.msg);
		return;
	}
	lock_take(&r->lock);
	report_check(r);
	r->desired.go = r->desired.go || o.go;
	r->desired.stop = r->desired.stop || o.stop;
	r->desired.now = r->desired.now || o.now;
	r->desired.idle = o.idle;
	r->desired_seq = o.seq; /* a fingerprint of the orders, not a count */
	for (size_t i = 0; i < o.n_exec; i++)
		take_exec(r, &o.exec[i]);
	if (r->desired.stop)
		r->cancel = true;
	report_check(r);
	lock_give(&r->lock);
	wake(r);
}

void report_fill_heartbeat(struct report *r, struct wire_heartbeat *hb, char note[REPORT_NOTE_MAX])
{
	memset(hb, 0, sizeof(*hb));
	lock_take(&r->lock);
	hb->seq = ++r->seq;
	hb->stage = r->stage;
	copy_cut(note, REPORT_NOTE_MAX, r->note);
	hb->note = note[0] == '\0' ? NULL : note;
	hb->done_bytes = r->done_bytes;
	hb->total_bytes = r->total_bytes;
	hb->rate_bytes_s = r->rate;
	hb->idle = r->idle;
	hb->serve_port = r->serve_port;
	hb->serves = r->serves;
	r->heartbeat_now = false;
	lock_give(&r->lock);
}

static void fill_sample(struct report *r, struct wire_heartbeat *hb)
{
	lock_take(&r->sample_lock);
	hb->has_sample = r->sample != NULL && r->sample(r->arg, &hb->sample);
	lock_give(&r->sample_lock);
}

bool report_is_orphan(const struct report *r)
{
	struct stat st;

	return fstat(r->dir_fd, &st) == 0 && st.st_nlink == 0;
}

/* How long a runner waits for its server once its job has ended; tests wait for less. */
static int64_t away_limit_ms(void)
{
	const char *text = getenv("STOKER_AWAY_MS");
	struct err no = {0};
	uint64_t ms = 0;

	return text != NULL && str_u64(str_of(text), 1, REPORT_AWAY_MS, &ms, &no) == 0
	               ? (int64_t)ms
	               : REPORT_AWAY_MS;
}

/* No server is needed to see these. */
static void look_around(struct report *r)
{
	int64_t since = r->reached_ms;

	if (report_is_orphan(r)) {
		fence(r, "its folder was removed");
	} else if (since > 0 && clock_mono_ms() - since > away_limit_ms()) {
		r->away = true;
		fence(r, "its job has ended, and the server has been unreachable for a day");
	}
}

static void *heartbeat_main(void *arg)
{
	struct report *r = FROM_VOID(struct report, arg, REPORT_MAGIC);
	int tries = 0, refusals = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
		struct wire_heartbeat hb;
		char note[REPORT_NOTE_MAX];
		struct err err = {0};

		report_fill_heartbeat(r, &hb, note);
		fill_sample(r, &hb);
		wire_heartbeat_write(&hb, &body);
		if (report_post(r, "/runner/v1/heartbeat", buf_view(&body), &reply, &err) == 0) {
			tries = refusals = 0;
			if (r->reached_ms > 0)
				r->reached_ms = clock_mono_ms();
			take_desired(r, buf_view(&reply.body));
		} else if (!r->halt) {
			log_warn("heartbeat: %s", err.msg);
			refusals = report_is_refusal(&reply) ? refusals + 1 : 0;
			if (refusals >= REPORT_REFUSALS)
				fence(r, err.msg);
			report_pause_after(r, &tries);
		}
		look_around(r);
		lock_take(&r->lock);
		for (int64_t until = clock_mono_ms() + REPORT_HEARTBEAT_MS,
		             left = REPORT_HEARTBEAT_MS;
		     left > 0 && !r->done && !r->heartbeat_now; left = until - clock_mono_ms())
			report_wait_locked(r, left);
		lock_give(&r->lock);
	}
	return NULL;
}

static void *poll_main(void *arg)
{
	struct report *r = FROM_VOID(struct report, arg, REPORT_MAGIC);
	int tries = 0;

	while (!r->done && !r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		char path[128];
		struct err err = {0};
		uint64_t seq = 0;

		lock_take(&r->lock);
		seq = r->desired_seq;
		lock_give(&r->lock);
		FMT(path, "/runner/v1/orders?seq=%" PRIu64 "&wait_ms=%d", seq, REPORT_DESIRED_MS);
		if (report_exchange(r, HTTP_GET, path, "", (struct str){0},
		                    REPORT_DESIRED_MS + REPORT_SMALL_MS, &reply, &err) == 0) {
			if (tries > 0)
				report_doubt_log(r);
			tries = 0;
			take_desired(r, buf_view(&reply.body));
		} else if (!r->halt) {
			report_pause_after(r, &tries);
		}
	}
	return NULL;
}

void report_logs_changed(void *report)
{
	struct report *r = FROM_VOID(struct report, report, REPORT_MAGIC);

	lock_take(&r->lock);
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

void report_samples(struct report *r, bool (*sample)(void *arg, struct wire_sample *out), void *arg)
{
	lock_take(&r->sample_lock);
	r->sample = sample;
	r->arg = arg;
	lock_give(&r->sample_lock);
}

int report_start(struct report *r, struct logs *logs, struct err *err)
{
	struct {
		pthread_t *thread;
		void *(*fn)(void *arg);
	} all[] = {{&r->heartbeat, heartbeat_main},
	           {&r->poll, poll_main},
	           {&r->ship, report_log_main},
	           {&r->outbox_thread, report_outbox_main}};

	r->logs = logs;
	logs_on_write(logs, report_logs_changed, r);
	for (size_t i = 0; i < COUNT(all); i++) {
		int rc = pthread_create(all[i].thread, NULL, all[i].fn, r);

		/* the threads that run would be joined without the others: give up at once */
		if (rc != 0) {
			(void)err_errno(err, rc, "start the reporting thread");
			log_error("%s", err->msg);
			_exit(1);
		}
	}
	r->started = true;
	return 0;
}

void report_stage(struct report *r, enum wire_stage stage)
{
	lock_take(&r->lock);
	report_check(r);
	assert(wire_stage_follows(r->stage, stage));
	r->stage = stage;
	r->note[0] = '\0';
	r->done_bytes = r->total_bytes = r->rate_bytes = 0;
	r->rate = 0;
	r->rate_ms = clock_mono_ms();
	r->heartbeat_now = true;
	cond_broadcast(&r->changed);
	report_check(r);
	lock_give(&r->lock);
}

void report_idle(struct report *r, bool idle)
{
	lock_take(&r->lock);
	r->idle = idle;
	r->heartbeat_now = true;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

void report_serve(struct report *r, uint32_t port, bool serves)
{
	assert(port > 0 && port <= UINT16_MAX);
	lock_take(&r->lock);
	r->serve_port = port;
	r->serves = serves;
	r->heartbeat_now = true;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

void report_progress(struct report *r, const char *note, uint64_t done, uint64_t total)
{
	int64_t now = clock_mono_ms();

	lock_take(&r->lock);
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
	lock_give(&r->lock);
}

const char *report_token(const struct report *r)
{
	return r->token;
}

int report_fd(const struct report *r)
{
	return r->event_fd;
}

void report_desired(struct report *r, struct report_desired *out)
{
	uint64_t n = 0;

	(void)!read(r->event_fd, &n, sizeof(n)); /* nothing in it is fine */
	lock_take(&r->lock);
	*out = r->desired;
	lock_give(&r->lock);
}

bool report_fenced(struct report *r)
{
	return r->fenced;
}

const atomic_bool *report_given_up(struct report *r)
{
	return &r->fenced;
}

void report_job_ended(struct report *r)
{
	r->reached_ms = clock_mono_ms();
}

bool report_away(const struct report *r)
{
	return r->away;
}

const atomic_bool *report_cancel(struct report *r)
{
	return &r->cancel;
}

bool report_exec(struct report *r, struct arena *a, struct wire_exec *out)
{
	bool found = false;

	lock_take(&r->lock);
	if (r->n_exec > 0) {
		struct wire_exec *x = &r->exec[0];

		wire_exec_copy(out, a, x);
		memmove(x, x + 1, (r->n_exec - 1) * sizeof(*x));
		r->n_exec--;
		if (r->n_exec == 0)
			arena_reset(r->execs_arena);
		found = true;
	}
	lock_give(&r->lock);
	return found;
}

bool report_flush(struct report *r)
{
	bool all = false;

	lock_take(&r->lock);
	r->flush_ms = clock_mono_ms();
	r->log_kept = false;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
	while (!all && !r->fenced) {
		lock_take(&r->lock);
		all = r->log_kept && r->log_sent >= logs_size(r->logs) && TAILQ_EMPTY(&r->outbox);
		if (!all)
			report_wait_locked(r, 1000);
		lock_give(&r->lock);
	}
	return all;
}

void report_halt(struct report *r)
{
	if (r == NULL)
		return;
	r->halt = true;
	lock_take(&r->lock);
	r->done = true;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

void report_close(struct report *r)
{
	if (r == NULL)
		return;
	report_halt(r);
	if (r->started) {
		logs_on_write(r->logs, NULL, NULL);
		(void)pthread_join(r->heartbeat, NULL);
		(void)pthread_join(r->poll, NULL);
		(void)pthread_join(r->ship, NULL);
		(void)pthread_join(r->outbox_thread, NULL);
	}
	assert(!r->asking && TAILQ_EMPTY(&r->asks)); /* who asked has ended */
	report_outbox_done(r);
	report_ways_done(r);
	(void)close(r->event_fd);
	(void)close(r->dir_fd);
	arena_free(r->execs_arena);
	seal_wipe(r->auth, strlen(r->auth));
	seal_wipe(r->token, strlen(r->token));
	free(r->token);
	free(r->auth);
	free(r->dir);
	cond_done(&r->asked);
	cond_done(&r->changed);
	lock_done(&r->lock);
	lock_done(&r->sample_lock);
	free(r);
}
