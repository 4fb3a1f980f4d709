/* launch.h - runners of a frozen job: the attempt's folder, its token, the engine. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "server/app.h"

/* Launches every part of the job's attempt that nobody has claimed and that was not launched. A
 * part that cannot be launched ends the attempt (DEPLOY_FAILED). */
void launch_job(struct app *app, const struct model_job *job);
/* One part again: its runner is proven gone and nobody claimed it. */
int launch_node(struct app *app, const struct model_attempt *t, struct err *err) MUST_CHECK;

#endif
