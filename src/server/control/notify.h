/*
 * notify.h - a job's webhooks are told of its states: at least once each, by an outbox.
 *
 * A delivery is a row that the step itself writes (meta_step.notices), complete and without
 * secrets. The notify thread hands webhooks that have something due to a pool, in which each has
 * one task: a dead one holds one thread for as long as a call may take, and nobody else. A notice
 * that does not arrive is due again after a pause that grows, until it has been tried often or long
 * enough; how it ended is an event of the job. A server that is killed between the answer and the
 * row tells again: receivers know a notice by its webhook-id.
 */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include "server/app.h"

#define NOTIFY_THREADS 8
#define NOTIFY_WEBHOOKS_MAX 256 /* with something due at once; the others come next */
#define NOTIFY_PERIOD_MS 1000
#define NOTIFY_BATCH 16     /* notices of one webhook in a row */
#define NOTIFY_TRIES_MAX 12 /* about two hours and a half by the pauses below ... */
#define NOTIFY_AGE_MAX_MS                                                                          \
	((int64_t)24 * 3600 * 1000) /* ... and a day, whatever answers ask for                     \
	                             */
#define NOTIFY_PAUSE_MS 5000        /* after the first try; doubles, and half of it is chance */
#define NOTIFY_PAUSE_MAX_MS ((int64_t)3600 * 1000)

/* Adds to the step what it means to the job's webhooks. `job` is the row before it, `core` what the
 * step will make of it; what is added lives in `a`. Failing to make a notice is no reason not to
 * take a step: it is logged. */
void notify_of(struct app *app, struct arena *a, const struct model_job *job,
               const struct job_core *core, struct meta_step *s);
/* Hands out what is due. The loop of app->notify. */
void notify_pass(struct app *app);

#endif
