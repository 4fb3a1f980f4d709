/*
 * sweep.h - the part of reconciling that waits: a dead runner's processes and checkpoints are
 * swept, a late runner is ended, a folder is removed. That takes seconds each, and a store that is
 * away makes it tens of seconds; so it is done by threads of its own, one task a folder at a time,
 * and neither the next look at everybody nor the end of the server waits for it.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "server/app.h"

#define SWEEP_THREADS 8
#define SWEEP_QUEUE_MAX 1000

void sweep_start(struct app *app);
void sweep_stop(struct app *app); /* what is being swept is given up; the next start sweeps it */
void sweep_free(struct app *app);
/* fn(app, dir) on some thread, once for each folder ("runs/...") that is being swept. Nothing
 * happens when it is, or the pool is full: reconcile asks again. fn says whether there is something
 * new to look at. */
void sweep_submit(struct app *app, const char *dir, bool (*fn)(struct app *app, const char *dir));
/* Is this folder being swept? NULL: any. */
bool sweep_busy(struct app *app, const char *dir);

#endif
