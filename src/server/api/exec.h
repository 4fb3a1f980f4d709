/*
 * exec.h - commands that people run inside a job's sandbox: kept in memory only, a bounded number.
 * The runner gets them with its orders. What they are given and what they print passes through here
 * in two bounded flows (core/resumable.h), so a side that is slow holds up the other, and both may
 * repeat what was cut off.
 *
 * A client that is silent for EXEC_AWAY_MS has gone: the command is hung up, and the runner sees
 * it within EXEC_PARK_MS. A client that detaches says so before. All ends with the server's
 * life: the runner then hangs up what was not left, the caller is told.
 */
#ifndef EXEC_H
#define EXEC_H

#include "server/app.h"

#define EXEC_MAX 256
#define EXEC_ARGS_MAX 256
#define EXEC_KEEP_MS (10 * 60 * 1000) /* after its end; the oldest sooner, when there are many */
#define EXEC_AWAY_MS 20000            /* of who started it */
#define EXEC_LOST_CODE 255            /* exit code where there is none */
#define EXEC_TAKE_MS 30000            /* for its runner's first word of it */

void exec_start(struct app *app);
void exec_stop(struct app *app);
void exec_sweep(struct app *app);
/* Orders for one (attempt, node): the commands that its runner has not spoken of yet. *generation
 * changes whenever the list has grown. */
void exec_desired(struct app *app, struct arena *a, const char *attempt_id, uint32_t rank,
                  struct wire_desired *out, uint64_t *generation);
/* The attempt is over: so are its commands. */
void exec_attempt_over(struct app *app, const char *attempt_id);

#endif
