/* workers.h - a bounded queue and a few threads; refuses (ERR_BUSY) instead of growing. */
#ifndef WORKERS_H
#define WORKERS_H

#include "base/err.h"

struct workers;

struct workers *workers_new(unsigned threads, unsigned queue_max, const char *name) MUST_CHECK;
/* Runs fn(arg) on some thread. ERR_BUSY when the queue is full. */
int workers_submit(struct workers *w, void (*fn)(void *arg), void *arg, struct err *err) MUST_CHECK;
unsigned workers_queued(struct workers *w);
void workers_stop(struct workers *w); /* finishes what is queued, joins, frees; NULL is fine */

#endif
