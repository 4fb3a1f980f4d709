/*
 * joblog_store.h - what the files of joblog share where there is a store. joblog_fetch.c brings
 * what another server wrote, joblog_store.c stores one file, joblog_due.c knows which is next.
 *
 * Beside a job's files lie "epoch", the server that last had them, and for each file "<file>.sent",
 * how much of it is stored. Neither is fsynced: what a power cut takes of these is found out by
 * comparing with the store. What is fetched is, as "<file>.new", before it takes the file's place.
 */
#ifndef JOBLOG_STORE_H
#define JOBLOG_STORE_H

#include "store/logs/joblog_impl.h"
#include "store/logs/joblog_segment.h"

#include <sys/queue.h>

#define JOBLOG_NEVER INT64_MAX

struct joblog_due {
	unsigned magic;
#define JOBLOG_DUE_MAGIC 0x534a4f42U
	char job_id[104];
	enum joblog_kind kind;
	uint32_t rank;
	int64_t at_ms, ended_ms; /* JOBLOG_NEVER: not waiting */
	uint64_t bytes;          /* since it was last taken */
	bool busy;
};

struct joblog_held {
	TAILQ_ENTRY(joblog_held) link;
	char job_id[104];
	int64_t ns;
	char *text;
};

struct joblog_store {
	struct objstore *os;
	uint32_t epoch;
	struct lock stripe[JOBLOG_STRIPES]; /* by job: see joblog_stripe */
	struct lock lock;                   /* of what follows */
	struct cond changed;                /* something is due, or sooner than it was */
	struct cond stored;                 /* or could not be */
	struct map *files;                  /* "<job>/<file>" -> struct joblog_due */
	TAILQ_HEAD(, joblog_held) held;
	size_t n_held;
	bool slow;    /* somebody waited for it in vain, and it has stored nothing since */
	bool telling; /* somebody writes held lines */
	int64_t pause_least_ms, pause_ms, paused_until_ms;
};

/* A job's files as objects: held across their I/O. */
struct lock *joblog_stripe(struct joblogs *l, const char *job_id);
bool joblog_file_parse(const char *file, enum joblog_kind *kind, uint32_t *rank);
/* The epoch of the server that last had this job's files; 0: none that had a store. An error says
 * nothing of the kind: who took it for 0 would fetch over what is here. */
int joblog_epoch(struct joblogs *l, const char *job_id, uint32_t *out, struct err *err) MUST_CHECK;
/* joblog_attach() with the job's stripe. */
int joblog_fetch(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;
/* Stores what was appended to one file. `all`: the job has ended, and few segments should be left.
 */
int joblog_store_file(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                      bool all, struct err *err) MUST_CHECK;
/* As joblog_mark, with times; JOBLOG_NEVER: not for this reason. */
void joblog_mark_at(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                    uint64_t bytes, int64_t at_ms, int64_t ended_ms);
/* After a failure nobody asks the store for a while: the threads that would wait are few. */
void joblog_note_answer(struct joblog_store *st, bool ok);
bool joblog_is_paused(struct joblog_store *st);

#endif
