/*
 * inputs.h - weights of jobs that wait are fetched before the jobs are placed: no CPU and no GPU is
 * held meanwhile, and a job whose inputs are ready starts before one whose inputs are not. The
 * queue names the jobs in the order of the line; the first INPUTS_MAX of them are fetched for. What
 * was fetched is written into the job's frozen record, so preparing it later finds it in the
 * mirror.
 */
#ifndef INPUTS_H
#define INPUTS_H

#include "core/sched.h"
#include "server/data/fetch.h"
#include "server/control/resolved.h"

#define INPUTS_MAX 16        /* jobs that are fetched for at once: twice FETCH_THREADS */
#define INPUTS_PERIOD_MS 500 /* with that of mirror.c, progress is less than a second old */
#define INPUTS_ROOM_MS 10000 /* those that wait for room try again after so long, unless woken */

void inputs_start(struct app *app); /* before the queue */
void inputs_run(struct app *app);
void inputs_stop(struct app *app); /* joins */
void inputs_free(struct app *app); /* before fetch_free */
/* A fetch has ended. */
void inputs_kick(struct app *app);
/* This job waits for its inputs. Fetching begins when there is room; `reason` says how far it is.
 */
void inputs_want(struct app *app, const char *job_id, char reason[SCHED_REASON]);
/* It does not wait any more. */
void inputs_forget(struct app *app, const char *job_id);
/* Looks at what is fetched: what the loop does. */
void inputs_pass(struct app *app);

/* --- shared with prepare.c, which fetches again what was lost meanwhile --- */

struct inputs_said {
	int64_t ms; /* when the log last said so */
	uint64_t bytes;
};
/* Shows how far the fetches of a job are: in its progress, and now and then in its log. `words`
 * gets the sum. */
void inputs_show(struct app *app, const char *job_id, const struct job_spec *spec,
                 const struct fetch_view *v, struct inputs_said *said, char *words, size_t cap);
/* The result of a finished fetch; its strings are copied into the arena. */
struct wire_weights inputs_weights(struct arena *a, const struct spec_weights *w,
                                   const struct fetch_view *v);
/* Says so in the job's log and events. */
void inputs_say(struct app *app, const char *job_id, const struct wire_weights *w,
                const struct fetch_view *v);
/* What to fetch for a job: what was frozen before, and which repository of ours it is. */
struct fetch_want inputs_fetch(const struct model_job *job, const struct spec_weights *w,
                               const struct resolved *f);

#endif
