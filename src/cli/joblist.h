/* joblist.h - lists of jobs, gathered page by page. */
#ifndef JOBLIST_H
#define JOBLIST_H

#include "cli/cli.h"

#define JOBLIST_SHOWN 1000 /* of a list, unless --limit says more */
#define JOBLIST_MAX 1000000

struct joblist_want {
	const char *project_id, *user; /* NULL: any */
	bool mine;                     /* only what the caller pushed */
	const char *const *statuses;   /* "TRAINING_JOB_..."; n 0: any */
	size_t n_statuses;
	size_t limit; /* 0: all of them */
};

struct joblist {
	const struct doc *list; /* the newest first */
	uint64_t total;         /* how many there are in all */
};

int joblist(struct cli *c, const struct joblist_want *want, struct joblist *out,
            struct err *err) MUST_CHECK;
/* The statuses of a job that has not ended. */
extern const char *const joblist_active[];
extern const size_t n_joblist_active;
/* "RUNNING" of a job. */
const char *job_status(const struct doc *job);

#endif
