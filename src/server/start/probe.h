/* probe.h - what this machine can do for jobs, asked of the runner itself. */
#ifndef PROBE_H
#define PROBE_H

#include "server/app.h"

/* Chooses the sandbox of all jobs: fills app->sandbox_kind, app->sandbox and app->podman.
 * ERR_SANDBOX_UNAVAILABLE: what --sandbox asks for does not work here. */
int probe_sandbox(struct app *app, struct err *err) MUST_CHECK;

#endif
