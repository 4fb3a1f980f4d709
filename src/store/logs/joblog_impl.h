/*
 * joblog_impl.h - what the files of joblog share: one open log and its bookkeeping.
 *
 * Beside node-<rank>.log stands node-<rank>.state: how much of the log is good, and how many bytes
 * each attempt's runner has sent. It is written after the log, so after a crash the log is cut back
 * to what the state says: the bytes behind it were never acknowledged and come again. Neither file
 * is fsynced: a log that a power cut shortens is no broken promise, a job slowed by its log is.
 */
#ifndef JOBLOG_IMPL_H
#define JOBLOG_IMPL_H

#include "store/logs/joblog.h"
#include "base/map.h"

#include "base/sync.h"

#define JOBLOG_OPEN_MAX 256    /* logs kept open; the least recently used one goes */
#define JOBLOG_ATTEMPTS_MAX 16 /* of one job and rank that may still send; the oldest one goes */
#define JOBLOG_ATTEMPT_CAP 64
#define JOBLOG_RANKS_MAX 1024 /* of one job */
#define JOBLOG_NAME_CAP 160
#define JOBLOG_STATE_MAX ((size_t)(JOBLOG_ATTEMPTS_MAX + 1) * (JOBLOG_ATTEMPT_CAP + 64))
#define JOBLOG_STRIPES 64

struct logfile {
	unsigned magic;
#define LOGFILE_MAGIC 0x534c4f47U
	char name[JOBLOG_NAME_CAP]; /* "<job>/node-<rank>" */
	unsigned users;             /* under joblogs.lock */
	bool dead;                  /* deleted while in use: its last user frees it */
	uint64_t used;              /* joblogs.clock when last taken */
	int fd, state_fd;
	struct lock lock; /* of what follows; taken after joblogs.lock, never before it */
	uint64_t size;    /* bytes of whole, acknowledged records */
	int64_t last_ns;
	bool full; /* said that the log is full */
	struct joblog_attempt {
		char id[JOBLOG_ATTEMPT_CAP];
		uint64_t next; /* bytes taken from its runner */
	} attempt[JOBLOG_ATTEMPTS_MAX];
	size_t n_attempts;
};

struct joblogs {
	int dirfd;
	struct lock lock;    /* of files, clock and logfile.users */
	struct lock samples; /* of all metrics files */
	struct map *files;
	uint64_t clock;
	struct joblog_store *store; /* see joblog_store.h; NULL: these files are all there is */
};

/* The log of one node, to be given back. *out is NULL, without error, when there is none and
 * `create` is not set. */
int joblog_take(struct joblogs *l, const char *job_id, uint32_t rank, bool create,
                struct logfile **out, struct err *err) MUST_CHECK;
/* The same for whoever has the job's stripe, and its files here: asks no store. */
int joblog_take_here(struct joblogs *l, const char *job_id, uint32_t rank, bool create,
                     struct logfile **out, struct err *err) MUST_CHECK;
/* name: "<job>/node-<rank>". What is open is this server's own. */
bool joblog_is_open(struct joblogs *l, const char *name);
/* To read: while the store is away also what an earlier server left here, which nobody may append
 * to before the store has said whether another one went on with it. */
int joblog_look(struct joblogs *l, const char *job_id, uint32_t rank, struct logfile **out,
                struct err *err) MUST_CHECK;
void joblog_give(struct joblogs *l, struct logfile *f);
/* How much may be read. */
uint64_t joblog_size(struct logfile *f);
/* The same of one that nobody has open, as it was left; *there: is there any. */
int joblog_left(struct joblogs *l, const char *job_id, const char *name, uint64_t *size,
                bool *there, struct err *err) MUST_CHECK;
/* As in its state file: for a store. Called with its lock. */
void joblog_state_text(const struct logfile *f, struct buf *out);
int joblog_say(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text,
               struct err *err) MUST_CHECK;
/* "<job>/metrics-<rank>.jsonl", to read from: stays as it is while it is read. -1 without an error:
 * there is none. */
int joblog_samples_fd(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t *size,
                      struct err *err) MUST_CHECK;
/* A job's id becomes a folder's name: one plain part. */
int joblog_check_id(const char *job_id, struct err *err) MUST_CHECK;

/* Where the objects are. A file of a job is "node-<rank>.log" or "metrics-<rank>.jsonl". */
enum joblog_kind { JOBLOG_LINES, JOBLOG_SAMPLES, JOBLOG_KINDS };

/* How much of a file is stored: "<file>.sent" beside it. */
struct joblog_sent {
	uint32_t era;   /* of samples: thinned so often */
	uint32_t puts;  /* segments since they were last merged */
	uint64_t bytes; /* of this era */
};
int joblog_sent_load(struct joblogs *l, const char *job_id, const char *file,
                     struct joblog_sent *out, struct err *err) MUST_CHECK;
int joblog_sent_save(struct joblogs *l, const char *job_id, const char *file,
                     const struct joblog_sent *s, struct err *err) MUST_CHECK;
void joblog_file_name(char out[JOBLOG_NAME_CAP], enum joblog_kind kind, uint32_t rank);
/* The job's files are here, fetched where another server wrote them. At once without a store. */
int joblog_attach(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;
/* After that has failed: it is the store that is away, and the job's files are here as a server
 * left them. Clears err. */
bool joblog_may_look(struct joblogs *l, const char *job_id, struct err *err);
/* `bytes` more of this file are to be stored, at the latest in delay_ms. */
void joblog_mark(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                 size_t bytes, int64_t delay_ms);
/* A line that cannot be written because its log cannot be fetched: kept for later. */
bool joblog_hold(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text);
bool joblog_holds(struct joblogs *l);
/* A job that is deleted: what is stored of it, then what is here. */
int joblog_forget(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;
int joblog_remove(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;
void joblog_store_free(struct joblogs *l);

#endif
