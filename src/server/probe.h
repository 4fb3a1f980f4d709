/* probe.h - what this machine can do for jobs, asked of the runner itself. */
#ifndef PROBE_H
#define PROBE_H

#include "server/app.h"

/* Fills app->sandbox and app->podman; a probe that fails is shown as such. */
void probe_sandbox(struct app *app);

#endif
