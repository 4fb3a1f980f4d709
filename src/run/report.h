/*
 * report.h - what a runner says to the server and hears from it, in threads of its own: heartbeats,
 * the long poll for orders, the log by offset, and everything else as messages that are sent in
 * order. The server may be away as long as it likes: all of it waits and goes on.
 *
 * Only when the server is there and says, several times over, that it does not know this attempt
 * any more (it was given up, or its token is gone), the runner is fenced: it must end its job. So
 * is one whose folder was removed, and one whose job has ended and that has not reached a server
 * for a day: what it has to tell is in its folder.
 */
#ifndef REPORT_H
#define REPORT_H

#include "core/model.h"
#include "core/wire.h"
#include "io/upgrade.h"
#include "run/logs.h"
#include "store/objects/objstore.h"

#include <stdatomic.h>

#define REPORT_HEARTBEAT_MS 2000
#define REPORT_DESIRED_MS 20000 /* how long the server may hold the long poll */
#define REPORT_PAUSE_MS 5000    /* the longest between two tries */
#define REPORT_OUTBOX_MAX                                                                          \
	4096 /* checkpoints replace their older message; of others the oldest go */
#define REPORT_LOG_CHUNK ((size_t)512 << 10)
#define REPORT_AWAY_MS 86400000 /* without an answer after the job's end: the runner goes */
#define REPORT_FULL_MS 30000    /* an ended job's log waits for room on the server's disk */
#define REPORT_REFUSALS 5       /* in a row, at heartbeats: fenced */

struct report;

struct report_desired {
	bool go, stop, now;
	bool idle; /* all nodes have said so by report_idle; this one may be taken back */
};

int report_open(struct report **out, const struct wire_start *start, const char *dir,
                struct err *err) MUST_CHECK;
/* Tries until the server answers. ERR_CONFLICT, ERR_AUTH, ...: this attempt is not ours. */
int report_claim(struct report *r, struct arena *a, struct wire_launch *out,
                 struct err *err) MUST_CHECK;
/* Reports the digest that this node resolved the job's image to; *out is the one that the job
 * keeps, which another node may have reported before. Retries until the server answers.
 * ERR_CANCELED when staging must stop. */
int report_image(struct report *r, struct arena *a, const struct wire_image *mine,
                 struct wire_image *out, struct err *err) MUST_CHECK;
/* Has a request to the object store signed: for objstore_env.signer, `report` is one. Tries until
 * the server answers; ERR_CANCELED when staging must stop, or it is fenced. */
int report_sign(void *report, struct arena *a, const struct objstore_request *rq,
                struct objstore_signed *out, struct err *err) MUST_CHECK;
/* Starts the threads. */
int report_start(struct report *r, struct logs *logs, struct err *err) MUST_CHECK;
/* From now on `sample` fills what a heartbeat carries; false = none now. It is called by the
 * heartbeat's thread until report_close. */
void report_samples(struct report *r, bool (*sample)(void *arg, struct wire_sample *out),
                    void *arg);
void report_logs_changed(void *report); /* for logs_on_write */

void report_stage(struct report *r, enum wire_stage stage);
/* Reports progress of the stage; the rate is computed here. note NULL = none. */
void report_progress(struct report *r, const char *note, uint64_t done, uint64_t total);
void report_ready(struct report *r);
/* A sample that must arrive before the exit does: a heartbeat among the messages. */
void report_sample(struct report *r, const struct wire_sample *sample);
void report_event(struct report *r, const char *kind, const char *fmt, ...) PRINTF(3, 4);
void report_checkpoint(struct report *r, const struct model_checkpoint *row);

/* Is limits.idle_gpu over on this node? A heartbeat says so at once. */
void report_idle(struct report *r, bool idle);
/* Where the job's own server listens, and can it take requests? A heartbeat says so at once. */
void report_serve(struct report *r, uint32_t port, bool serves);
/* A request to the server's Hub, by the token of the job's commands. */
struct report_hub {
	const char *token, *path, *type;
	struct str body;
	bool has_fd; /* the body is `length` bytes of this file */
	int fd;
	uint64_t length;
	int64_t total_ms;
	const atomic_bool *cancel; /* set by another thread: ERR_CANCELED at once */
};
/* Once; an error of the server's is one here, and the reply has its status. */
int report_hub(struct report *r, const struct report_hub *x, struct http_reply *reply,
               struct err *err) MUST_CHECK;
const char *report_token(const struct report *r); /* of the attempt; the report's */
int report_fd(
	const struct report *r); /* readable when orders have changed; read with report_desired */
void report_desired(struct report *r, struct report_desired *out);
bool report_fenced(struct report *r);
const atomic_bool *report_given_up(struct report *r); /* the same, set later */
void report_job_ended(struct report *r);  /* all is done: from now on it may be away for a day */
bool report_away(const struct report *r); /* fenced, for it was */
const atomic_bool *report_cancel(struct report *r); /* set by a stop or fencing: staging gives up */
/* The next command to run inside, in `a`; false = none. */
bool report_exec(struct report *r, struct arena *a, struct wire_exec *out);
/* A connection for that command, by the server to who started it. Tried once, until *stop; *status
 * is the server's answer, 0: none. */
int report_exec_open(struct report *r, const char *id, const atomic_bool *stop,
                     struct upgrade **out, int *status, struct err *err) MUST_CHECK;
void report_exec_done(struct report *r, const char *id); /* it needs none any more */
bool report_status_refuses(int status); /* the server is there and does not want us */

/* Without threads, of a runner that is dead: the rest of its log, from where the server's ends, a
 * record that its death cut left out. While the server, its database or its store is away it tries
 * again, as long as it takes; moved() is called whenever some of it was taken. `last`: no room on
 * the server's disk is waited for. 0 when the server has all, or the attempt is over. */
int report_log_rest(struct report *r, bool last, void (*moved)(void *arg), void *arg,
                    struct err *err) MUST_CHECK;
/* Without threads: was there a message that could not be brought? */
bool report_untold(const struct report *r);
/* Until the log and all messages have arrived; false when fenced. */
bool report_flush(struct report *r);
/* Until the server has it. ERR_CANCELED: fenced, or away for too long; else the words with which
 * the server refuses it for good: its attempt is over, or, as far as is known, never. */
int report_exit(struct report *r, const struct wire_exit *x, struct err *err) MUST_CHECK;
/* Requests end at once, also those of others through it; report_close() is next. NULL is fine. */
void report_halt(struct report *r);
/* Stops the threads. Nobody else uses it any more. NULL is fine. */
void report_close(struct report *r);

#endif
