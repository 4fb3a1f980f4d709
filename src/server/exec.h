/*
 * exec.h - commands that people run inside a job's sandbox: kept in memory only, a bounded number,
 * each with a bounded buffer of output. The runner gets them with its orders and sends back what
 * they print.
 */
#ifndef EXEC_H
#define EXEC_H

#include "server/app.h"

#define EXEC_MAX 256
#define EXEC_ARGS_MAX 256
#define EXEC_OUTPUT_MAX ((size_t)4 << 20) /* the newest are kept */
#define EXEC_KEEP_MS (10 * 60 * 1000)     /* after its end, or without a word from its runner */

void exec_start(struct app *app);
void exec_stop(struct app *app);
void exec_sweep(struct app *app);
/* Orders for one (attempt, node): the commands that its runner has not spoken of yet. *generation
 * changes whenever the list has grown. */
void exec_orders(struct app *app, struct arena *a, const char *attempt_id, uint32_t rank,
                 struct wire_orders *out, uint64_t *generation);
/* The attempt is over: so are its commands. */
void exec_attempt_over(struct app *app, const char *attempt_id);

#endif
