/*
 * serving.h - the HTTP servers that jobs run (runtime.serve), by team and name, as their runners
 * say them in each heartbeat. Nothing is stored: who starts hears of all of them within seconds,
 * and requests wait so long.
 */
#ifndef SERVING_H
#define SERVING_H

#include "server/app.h"

void serving_start(struct app *app);
void serving_stop(struct app *app); /* after the listener */

/* What a heartbeat of the attempt says. port 0: nothing. True: it is the first of the attempt that
 * this server hears; whoever read beforehand that the attempt goes on should look once more. */
bool serving_heard(struct app *app, const struct model_job *job, const char *attempt_id,
                   uint32_t port, bool serves);
void serving_ended(struct app *app, const char *attempt_id);
/* The job runs no more: who waits for it looks again. */
void serving_left(struct app *app, const char *job_id);

/* What is known of each, and whether it is here. Of one that runs and was not heard yet, as this
 * server has started since: within seconds its runner says whether it takes requests, or it turns
 * out that it does not run. */
void serving_show(struct app *app, struct model_replica *r, size_t n);
/* ERR_UNAVAILABLE: the job serves under this name, and takes no requests now. */
int serving_refuse(struct app *app, const char *name, const char *job_id, enum job_state state,
                   struct err *err) MUST_CHECK;

/* Of all jobs that the deployment has had since this server started: these numbers never fall. */
void serving_sum(struct app *app, const char *deployment_id, uint64_t *requests,
                 uint64_t *failures);
void serving_forget(struct app *app, const char *deployment_id); /* it was removed */
/* How many requests the job still answers, and since when it gets no more: 0, it does. */
unsigned serving_in_flight(struct app *app, const char *job_id, int64_t *retired_ms);

/* It gets no more requests, as it is to end. if_idle: only if none is on its way. True: so it is,
 * or nothing is known of it. */
bool serving_retire(struct app *app, const char *job_id, bool if_idle);
void serving_back(struct app *app, const char *job_id); /* it stays after all */

/* The key that requests to the job's server come with. */
const char *serving_key(const struct app *app, struct arena *a, const char *attempt_id);

#endif
