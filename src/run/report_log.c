/* report_log.c - the log to the server, by offset: of a runner that lives, by a thread of its own,
 * and the rest of a dead one's. */
#include "run/report_inner.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "core/attempt.h"

/* Reads the records after `sent` from the log file, whole records only. */
static int read_log(int fd, uint64_t size, uint64_t sent, struct buf *out, struct err *err)
{
	size_t want = (size_t)MIN(size - sent, (uint64_t)REPORT_LOG_CHUNK);
	char *room = buf_room(out, want);
	const char *last = NULL;

	if (want == 0)
		return 0;
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
	struct wire_logged said;
	struct err err = {0};

	if (wire_logged_parse(&said, a, json, &err) < 0)
		return false;
	*next = said.next;
	return true;
}

/* A disk that is full now may have room soon: an ended job's log waits for that, but not for ever.
 * Then the server keeps of it what its reserve holds. */
static bool is_last(struct report *r)
{
	int64_t flush_ms;

	lock_take(&r->lock);
	flush_ms = r->flush_ms;
	lock_give(&r->lock);
	if (flush_ms > 0 && r->full_ms > 0 &&
	    clock_mono_ms() - MAX(flush_ms, r->full_ms) >= REPORT_FULL_MS)
		r->last = true;
	return r->last;
}

static void note_room(struct report *r, int status)
{
	if (status != 507)
		r->full_ms = 0;
	else if (r->full_ms == 0)
		r->full_ms = clock_mono_ms();
}

/* True: the server has taken it, and *next says what it wants to hear from there. `more` are words
 * of the query. *status: of its answer, 0 = there was none. */
static bool post_log(struct report *r, uint64_t seq, const char *more, struct str body,
                     uint64_t *next, int *status, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	char path[64];
	bool taken;

	FMT(path, "/runner/v1/log?seq=%" PRIu64 "%s", seq, more);
	taken = report_exchange(r, HTTP_POST, path, "text/plain", body, REPORT_SMALL_MS, &reply,
	                        err) == 0;
	*status = reply.status;
	if ((taken || reply.status == 409) && next_of(buf_view(&reply.body), next))
		return true;
	if (!r->halt && err->code != ERR_NONE)
		log_warn("log: %s", err->msg);
	return false;
}

static bool send_log(struct report *r, int fd, uint64_t size, uint64_t sent, uint64_t *next)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_LOG_CHUNK + 1);
	struct err err = {0};
	int status = 0;
	bool taken;

	if (read_log(fd, size, sent, &body, &err) < 0) {
		log_warn("log: %s", err.msg);
		return false;
	}
	taken = post_log(r, sent, is_last(r) ? "&last=1" : "", buf_view(&body), next, &status,
	                 &err);
	note_room(r, status);
	return taken && *next <= size;
}

/* All is sent: the server, which may be another one by now, is asked how much of it is there.
 * `done`: where it lasts, for it is soon forgotten. */
static bool ask_log(struct report *r, uint64_t size, bool done, uint64_t *next)
{
	struct err err = {0};
	int status = 0;

	return post_log(r, size, done ? "&done=1" : "", (struct str){0}, next, &status, &err) &&
	       *next <= size;
}

void report_doubt_log(struct report *r)
{
	lock_take(&r->lock);
	report_check(r);
	r->log_doubt = true;
	cond_broadcast(&r->changed);
	lock_give(&r->lock);
}

void *report_log_main(void *arg)
{
	struct report *r = FROM_VOID(struct report, arg, REPORT_MAGIC);
	AUTO_FREE char *path = xasprintf("%s/" ATTEMPT_LOG, r->dir);
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	int tries = 0;

	while (fd >= 0 && !r->done && !r->fenced) {
		uint64_t size = 0, sent = 0, next = 0;
		bool done, ask;

		lock_take(&r->lock);
		report_check(r);
		size = logs_size(r->logs); /* with the lock: no change is missed before the wait */
		sent = r->log_sent;
		done = size <= sent && r->flush_ms > 0 && !r->log_kept;
		ask = done || (size <= sent && r->log_doubt);
		r->log_doubt = false; /* whoever hears of it says how much there is */
		if (size <= sent && !ask)
			report_wait_locked(r, 1000);
		lock_give(&r->lock);
		if (size <= sent && !ask)
			continue;
		if (!(ask ? ask_log(r, size, done, &next) : send_log(r, fd, size, sent, &next))) {
			report_doubt_log(r);
			report_pause_after(r, &tries);
			continue;
		}
		tries = 0;
		lock_take(&r->lock);
		r->log_sent = next;
		r->log_kept = done && next == size;
		report_check(r);
		cond_broadcast(&r->changed);
		lock_give(&r->lock);
	}
	return NULL;
}

/* It may be taken later: the server, its database or its store is away, or its disk is full. */
static bool may_pass(int status, bool last)
{
	return status == 0 || status == 408 || status == 429 || (status >= 502 && status <= 504) ||
	       (status == 507 && !last);
}

int report_log_rest(struct report *r, bool last, void (*moved)(void *arg), void *arg,
                    struct err *err)
{
	AUTO_FREE char *path = xasprintf("%s/" ATTEMPT_LOG, r->dir);
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint64_t sent = 0;
	int tries = 0;

	assert(!r->started);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s", path);
	for (;;) {
		AUTO_BUF struct buf body = BUF_INIT(REPORT_LOG_CHUNK + 1);
		uint64_t next = 0;
		struct err one = {0};
		struct stat st;
		int status = 0;

		if (fstat(fd, &st) < 0)
			return err_errno(err, errno, "%s", path);
		sent = MIN(sent, (uint64_t)st.st_size);
		if (read_log(fd, (uint64_t)st.st_size, sent, &body, err) < 0)
			return -1;
		/* nothing more: the end, or a record that was cut by the death */
		if (post_log(r, sent,
		             body.n == 0 ? "&done=1"
		             : last      ? "&last=1"
		                         : "",
		             buf_view(&body), &next, &status, &one)) {
			if (body.n == 0 && next >= sent)
				return 0;
			sent = next; /* it may have more than this, or be another server by now */
			tries = 0;
			moved(arg);
		} else if (report_status_refuses(status)) {
			return 0; /* the attempt is over: nobody waits for it */
		} else if (may_pass(status, last)) {
			report_pause_after(r, &tries);
		} else {
			return err_set(err, one.code, "the rest of the log: %s", one.msg);
		}
	}
}
