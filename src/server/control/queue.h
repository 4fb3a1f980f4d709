/*
 * queue.h - who is placed when: one pass reads the pending jobs and what the placed ones hold, lets
 * core/sched.c decide, and stores each placement by compare-and-set. It runs when something changed
 * (a push, an end, a limit), and every QUEUE_PERIOD_MS for what the clock alone changes.
 */
#ifndef QUEUE_H
#define QUEUE_H

#include "core/sched.h"
#include "server/app.h"

#define QUEUE_PERIOD_MS 15000
#define QUEUE_WAIT_MS 100 /* that a push waits for the pass it asked for */
#define QUEUE_DURATION_MAX_S (UINT64_C(366) * 86400) /* as long as limits.max_duration may be */

void queue_start(struct app *app); /* passes can be asked for from now on */
void queue_run(struct app *app);   /* and are made by themselves */
void queue_stop(struct app *app);
void queue_free(struct app *app);
void queue_kick(struct app *app);
/* The same, and waits for the pass, at most QUEUE_WAIT_MS: the caller's row is then what the queue
 * made of it. It does not wait while half of the threads that answer requests do: a pass that
 * stalls must not hold up everybody. Call it without a lock or a transaction. */
void queue_kick_wait(struct app *app);
/* One pass now, in the caller's thread. Errors are logged: the next pass tries again. */
void queue_pass(struct app *app);
/* The reason why a job that is not stored would wait if it were pushed now; *reason NULL: it would
 * not. */
int queue_forecast(struct app *app, struct arena *a, const struct model_job *job,
                   const char *pinned, const char **reason, struct err *err) MUST_CHECK;
/* This machine as the scheduler sees it, empty or with what placed jobs hold. */
void queue_node_empty(struct app *app, struct sched_node *out);
int queue_node(struct app *app, struct arena *a, struct sched_node *out,
               struct err *err) MUST_CHECK;
void queue_ask(const struct model_job *j, const char *pinned, struct sched_job *out);

#endif
