/*
 * exec.h - commands that people run inside a job's sandbox: kept in memory only, a bounded number.
 * The runner gets them with its orders. Then both ends come, each with a connection of its own that
 * leaves HTTP, and one thread passes the bytes on. It looks at none of them: what was cut, the ends
 * repeat (io/resumable.h), and who is slow holds up the other.
 *
 * Either end says something every few seconds. A client that is silent for EXEC_AWAY_MS has gone:
 * its command is hung up, as is that of one whose token is deleted or expires. All ends with the
 * server's life: the runner then hangs up what was not left to itself, the caller is told.
 */
#ifndef EXEC_H
#define EXEC_H

#include "server/app.h"

#define EXEC_MAX 256
#define EXEC_NODE_MAX 20 /* of one node of a job */
#define EXEC_ARGS_MAX 256
#define EXEC_KEEP_MS (10 * 60 * 1000) /* after its end; the oldest sooner, when there are many */
#define EXEC_AWAY_MS 20000            /* without a word from one of the ends */
#define EXEC_WORD_MS 5000             /* to one that waits for the other */
#define EXEC_TAKE_MS 30000            /* for its runner to come */
#define EXEC_AWAY_WORDS "the client was silent for 20 s, so the command was ended"
#define EXEC_TOKEN_WORDS "the token of who ran it is good no more, so the command was ended"
#define EXEC_JOB_OVER_WORDS "the job has ended"

void exec_start(struct app *app);
void exec_stop(struct app *app);
void exec_sweep(struct app *app);
/* Orders for one (attempt, node): the commands that its runner has not come for. *generation
 * changes whenever the list has grown. */
void exec_desired(struct app *app, struct arena *a, const char *attempt_id, uint32_t rank,
                  struct wire_desired *out, uint64_t *generation);
/* The attempt is over: so are its commands. */
void exec_attempt_over(struct app *app, const char *attempt_id);
/* It was deleted: the commands of who holds it are hung up. */
void exec_token_gone(struct app *app, const char *token_id);

#endif
