/*
 * prepare.h - from CREATED to a launched runner: secrets are there, caches have room, checkpoints
 * to load are chosen, weights are mirrored, all of it is frozen; then the runners are launched. One
 * task a job; it can be submitted again at any time and goes on where the row says.
 */
#ifndef PREPARE_H
#define PREPARE_H

#include "server/app.h"

#define PREPARE_THREADS 8
#define PREPARE_QUEUE_MAX 1000
#define PREPARE_SAY_MS 2000  /* progress in the job's log */
#define PREPARE_ROOM_MS 1000 /* between two tries to find room in the mirror */

/* app->prepare. When it is stopped, jobs stay CREATED and go on after the next start. */
void prepare_start(struct app *app);
/* Nothing happens when the job is being prepared already, or the pool is full: reconcile asks
 * again. */
void prepare_submit(struct app *app, const char *job_id);

#endif
