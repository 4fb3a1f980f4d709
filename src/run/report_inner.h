/*
 * report_inner.h - what the files of the report share: its struct, the exchange with the server,
 * and the messages.
 */
#ifndef REPORT_INNER_H
#define REPORT_INNER_H

#include "base/sync.h"
#include "io/client.h"
#include "run/report.h"

#include <sys/queue.h>

#define REPORT_SMALL_MS 15000 /* for an answer that is not waited for on purpose */
#define REPORT_BODY_MAX ((size_t)4 << 20)
#define REPORT_NOTE_MAX 300
#define REPORT_EXECS_MAX 64
#define REPORT_EXEC_ID_MAX 128

struct outbox_item {
	TAILQ_ENTRY(outbox_item) link;
	char *path, *key; /* key: a newer message with it replaces this one; NULL = never */
	char *body;
	size_t n;
	bool sending;
};
TAILQ_HEAD(outbox, outbox_item);

/* A way to a server that may lead. */
struct report_way {
	unsigned magic;
#define REPORT_WAY_MAGIC 0x52524550U
	struct http_client *http;
	char *url; /* without a slash at its end; under `lock` where it may change: see by_socket */
	char *host;   /* of the proof that is asked for over plain HTTP */
	char *target; /* the same */
	struct report *r;
};
#define REPORT_WAYS_MAX 10

struct report {
	unsigned magic;
#define REPORT_MAGIC 0x52455054U
	/* The server that launched us, then --node-url. Filled when it is opened. */
	struct report_way way[REPORT_WAYS_MAX];
	size_t n_ways;
	char *token, *auth, *dir;
	bool by_socket; /* way[0], the server's on this machine; its URL only fills the Host header
	                 */
	int dir_fd;     /* the attempt's folder, to see when it is gone */
	struct logs *logs;
	struct lock
		sample_lock; /* of the next two; a sample takes locks of others, so not `lock` */
	bool (*sample)(void *arg, struct wire_sample *out);
	void *arg;
	pthread_t heartbeat, poll, ship, outbox_thread;
	bool started;
	atomic_bool done;   /* the threads end */
	atomic_bool halt;   /* their requests too, at once */
	atomic_bool cancel; /* of staging */
	atomic_bool fenced;
	atomic_bool untold; /* without threads: a message that nobody took */
	atomic_bool away;   /* fenced, for the server was not reached for too long */
	_Atomic int64_t
		reached_ms; /* when it last answered, or the job ended; 0: it has not ended */
	int event_fd;

	int64_t full_ms; /* of the ship thread: since when the server has no room; 0: it has */
	bool last;       /* the same: it has waited long enough, see REPORT_FULL_MS */

	struct lock lock; /* of all below */
	struct cond changed;
	size_t at, reached; /* the way that is tried, and the last one that led to a leader */
	enum wire_stage stage;
	char note[REPORT_NOTE_MAX];
	uint64_t done_bytes, total_bytes, seq;
	double rate;
	int64_t rate_ms; /* when rate_bytes was seen */
	uint64_t rate_bytes;
	bool heartbeat_now, idle, serves;
	uint32_t serve_port;
	struct report_desired desired;
	uint64_t desired_seq;
	struct outbox outbox;
	size_t n_outbox;
	uint64_t log_sent;
	bool log_doubt;   /* who took it may have died with it, before it was stored */
	bool log_kept;    /* all of it, where it lasts: what is waited for at the end */
	int64_t flush_ms; /* since when nothing but the rest of the log is waited for; 0: not yet */
	TAILQ_HEAD(, report_ask) asks; /* for signatures; report_sign.c */
	struct cond asked;
	bool asking;
	struct arena *execs_arena;
	struct wire_exec exec[REPORT_EXECS_MAX];
	char seen[REPORT_EXECS_MAX][REPORT_EXEC_ID_MAX]; /* the last ones: orders are repeated */
	size_t n_exec, n_seen;
};

/* report.c: the attempt's folder was removed: there is nobody to tell anything. */
bool report_is_orphan(const struct report *r);

/* Asserts, with r->lock held, what is true of it whenever that lock is free. */
void report_check(const struct report *r);

/* report_http.c */
int report_ways(struct report *r, const struct wire_start *start, struct err *err) MUST_CHECK;
void report_ways_done(struct report *r);
void report_wait_locked(struct report *r,
                        int64_t ms); /* a change or the time; with the lock held */
/* Growing pause between tries, jittered so that a hundred runners do not return as one. */
void report_pause_after(struct report *r, int *tries);
/* One exchange. 0 = a 2xx; reply->status is set whenever there was an answer. */
int report_exchange(struct report *r, enum http_method method, const char *path, const char *type,
                    struct str body, int64_t total_ms, struct http_reply *reply,
                    struct err *err) MUST_CHECK;
/* JSON, by POST. */
int report_post(struct report *r, const char *path, struct str body, struct http_reply *reply,
                struct err *err) MUST_CHECK;
/* The server is there and does not want us. */
bool report_is_refusal(const struct http_reply *reply);
bool report_is_rejected(const struct http_reply *reply); /* ... or not this */

/* report.c: all but the sample; `note` keeps the words. */
void report_fill_heartbeat(struct report *r, struct wire_heartbeat *hb, char note[REPORT_NOTE_MAX]);

/* report_log.c */
void *report_log_main(void *report); /* the thread that sends the log */
/* A server answers again after one did not: it may lack lines that were taken. */
void report_doubt_log(struct report *r);

/* report_outbox.c */
void *report_outbox_main(void *report); /* the thread that sends messages, in order */
void report_outbox_done(struct report *r);

#endif
