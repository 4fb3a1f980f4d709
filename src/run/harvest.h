/*
 * harvest.h - what compilers have made in a job goes to its repository: at each checkpoint, and
 * when the commands have ended. Only whole entries (core/compile_cache.h), only what the repository
 * does not have, as one commit that adds and replaces nothing, by the job's own token like any
 * client of the Hub. A harvest that fails is told in the log and ends no job.
 *
 * Beside the files a harvest adds .stoker/harvests/JOB-RANK-N.json: which entries it brought, what
 * they were made with and for, and what the job had begun with. `stoker compile-cache why` reads
 * it.
 *
 * A commit is written to a file without a name before it is sent, so that it can be sent again.
 * That is the runner's, one at a time and gone when it is sent, and what it holds is in the job's
 * folder already: it does not count as the job's, which could not make it smaller. It has at most
 * HARVEST_BYTES_MAX in base64, 342 MiB, or one file of HARVEST_FILE_MAX, 2.7 GiB.
 */
#ifndef HARVEST_H
#define HARVEST_H

#include "core/wire.h"
#include "run/ids.h"
#include "run/logs.h"
#include "run/report.h"

#define HARVEST_PAUSE_MS 20000                  /* between two, while the job runs */
#define HARVEST_LAST_MS (5 * 60000)             /* the last one, at most */
#define HARVEST_HURRY_MS 10000                  /* ... of a job that is to end now */
#define HARVEST_BYTES_MAX ((uint64_t)256 << 20) /* of one commit, but for a single larger file */
#define HARVEST_FILES_MAX 5000                  /* of one commit */
#define HARVEST_FILE_MAX ((uint64_t)2 << 30)    /* a larger file is left out */

struct harvest_fact {
	const char *name, *value;
};

struct harvest_options {
	const char *dir;   /* the folders of all kinds */
	const char *spool; /* a folder for files that have no name */
	const struct wire_launch *launch;
	struct report *report;
	struct logs *logs;
	const struct harvest_fact *fact;
	size_t n_facts;
	bool (*hurries)(void *arg); /* does somebody wait for the end? Asked in harvest_finish() */
	void *arg;
};

struct harvest;

/* What is there now was there before the job. */
int harvest_start(struct harvest **out, const struct harvest_options *o,
                  struct err *err) MUST_CHECK;
void harvest_soon(struct harvest *h); /* a good moment; NULL, or one that is over, is fine */
/* The commands are over; `clean`: by themselves, so nothing was being written. NULL is fine. */
void harvest_finish(struct harvest *h, bool clean);
/* Once it is finished, and nobody says harvest_soon() any more. NULL is fine. */
void harvest_close(struct harvest *h);

#endif
