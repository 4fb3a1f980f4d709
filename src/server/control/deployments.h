/*
 * deployments.h - jobs that serve a checkpoint under a name, as many as people want: started,
 * replaced by the next revision, put to sleep and woken. What people want is a row
 * (meta_deployment.c), what should be done is core/deployment.h's; one thread does it.
 */
#ifndef DEPLOYMENTS_H
#define DEPLOYMENTS_H

#include "server/app.h"

void deployments_start(struct app *app);
void deployments_run(struct app *app);
void deployments_stop(struct app *app);
void deployments_free(struct app *app);
void deployments_kick(struct app *app);

/* A request came for a name under which no job takes any. *waits: one will; else there is no
 * deployment of this name, or -1 says why it takes none. A sleeping one is woken. */
int deployments_asked(const struct ask *ask, const char *name, bool *waits,
                      struct err *err) MUST_CHECK;

#endif
