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

#include "store/joblog.h"
#include "base/map.h"

#include "base/sync.h"

#define JOBLOG_OPEN_MAX 256    /* logs kept open; the least recently used one goes */
#define JOBLOG_ATTEMPTS_MAX 16 /* of one job and rank that may still send; the oldest one goes */
#define JOBLOG_ATTEMPT_CAP 64
#define JOBLOG_RANKS_MAX 1024 /* of one job */

struct logfile {
	char name[160]; /* "<job>/node-<rank>" */
	unsigned users; /* under joblogs.lock */
	bool dead;      /* deleted while in use: its last user frees it */
	uint64_t used;  /* joblogs.clock when last taken */
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
};

/* The log of one node, to be given back. *out is NULL, without error, when there is none and
 * `create` is not set. */
int joblog_take(struct joblogs *l, const char *job_id, uint32_t rank, bool create,
                struct logfile **out, struct err *err) MUST_CHECK;
void joblog_give(struct joblogs *l, struct logfile *f);
/* How much may be read. */
uint64_t joblog_size(struct logfile *f);
/* A job's id becomes a folder's name: one plain part. */
int joblog_check_id(const char *job_id, struct err *err) MUST_CHECK;

#endif
