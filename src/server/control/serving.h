/*
 * serving.h - the HTTP servers that jobs run (runtime.serve), by team and name, as their runners
 * say them in each heartbeat. Nothing is stored: who starts hears of all of them within seconds.
 */
#ifndef SERVING_H
#define SERVING_H

#include "server/app.h"

void serving_start(struct app *app);
void serving_stop(struct app *app); /* after the listener */

/* What a heartbeat of the attempt says. port 0: nothing. */
void serving_heard(struct app *app, const struct model_job *job, const char *attempt_id,
                   uint32_t port, bool serves);
void serving_ended(struct app *app, const char *attempt_id);

/* The key that requests to the job's server come with. */
const char *serving_key(const struct app *app, struct arena *a, const char *attempt_id);

#endif
