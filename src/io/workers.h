/* workers.h - a bounded queue and a few threads; refuses (ERR_BUSY) instead of growing. */
#ifndef WORKERS_H
#define WORKERS_H

#include "base/err.h"

struct workers;

struct workers *workers_new(unsigned threads, unsigned queue_max, const char *name) MUST_CHECK;
/* Runs fn(arg) on some thread. ERR_BUSY when the queue is full. */
int workers_submit(struct workers *w, void (*fn)(void *arg), void *arg, struct err *err) MUST_CHECK;
/* Whose a task is. */
struct workers_owner {
	uint64_t id;   /* 0: nobody's */
	uint64_t part; /* of the owner, who wants it; 0: they are not told apart */
};

/* The same of an owner, of whom at most as many tasks run as threads are idle: half of them, while
 * there is no other one. So whoever holds threads for long, the next owner finds some; and in the
 * same way one part of an owner leaves some of the owner's to the others. What may not run yet lets
 * others pass. */
int workers_submit_for(struct workers *w, struct workers_owner owner, void (*fn)(void *arg),
                       void *arg, struct err *err) MUST_CHECK;
/* By a task of nobody: from now on it is the owner's. False: it may not run now as one of those. */
bool workers_own(struct workers *w, struct workers_owner owner) MUST_CHECK;
/* From now on so many threads are left to tasks of no owner, however many owners there are; and
 * half as many beside them to owners that have none. Before the first task. */
void workers_spare(struct workers *w, unsigned threads);
unsigned workers_queued(struct workers *w);
void workers_stop(struct workers *w); /* finishes what is queued, joins, frees; NULL is fine */

#endif
