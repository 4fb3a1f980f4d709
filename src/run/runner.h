/* runner.h - the runner: one process per (attempt, node), all that touches user code. */
#ifndef RUNNER_H
#define RUNNER_H

#include "base/err.h"

/* `stoker runner DIR`: claims, stages, runs, ships, reports. Returns the exit code of the process. */
int runner_main(int argc, char **argv, struct err *err);

/* Which sandboxes work on this machine, in words ("bwrap 0.8.0, overlay, memory cgroup v1"). Used by
 * the server through `stoker runner --probe`, which prints it as JSON. */

#endif
