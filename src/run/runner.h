/*
 * runner.h - the runner: one process per (attempt, node), all that touches user code.
 *
 *   stoker runner DIR       claims, stages, runs, ships, reports; ends when the server has the end
 *   stoker runner --sweep DIR
 *                           after a runner was killed: its processes, groups and containers go, and
 *                           what it had not shipped yet is shipped
 *   stoker runner --probe DATA SANDBOX IDS
 *                           which sandbox jobs get here, as JSON, see sandbox_probe
 *   stoker runner --sandbox-exec ... sandbox_exec.h
 *
 * STOKER_CRASH_AT=<label> ends the process at that step, for tests: claimed, staged, ready,
 * started, exited, recorded, synced, reported.
 */
#ifndef RUNNER_H
#define RUNNER_H

#include "base/err.h"

/* Returns the exit code of the process, or -1 with *err set. */
int runner_main(int argc, char **argv, struct err *err);

#define RUNNER_EXIT_NOT_OURS 3 /* the claim was refused: nothing was run */

#endif
