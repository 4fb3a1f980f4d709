/*
 * jobs.h - a job's steps as the server takes them: the words in its log, the row and its event by
 * compare-and-set, and everybody who waits for it told.
 *
 * The line that announces a final state is written before the state is stored: who sees the state
 * finds the whole log.
 */
#ifndef JOBS_H
#define JOBS_H

#include "server/app.h"

/* s->message is the event's text, and the job's log line unless `line` is given. ERR_CONFLICT where
 * the event is not legal: nothing is written then. to may be NULL. */
int jobs_step(struct app *app, const struct meta_step *s, const char *line, enum job_state *to,
              struct err *err) MUST_CHECK;
/* A person or the server wants it to end; now: without grace. ERR_CONFLICT: it has ended. `why` is
 * the event's text and, of a job that was not placed, the last line of its log. */
int jobs_stop(struct app *app, struct arena *a, const struct model_job *job, const char *actor,
              const char *why, bool now, struct err *err) MUST_CHECK;
/* Ends a placed job before any user code ran: DEPLOY_FAILED with "<stage>: <cause>". A job that
 * moved on meanwhile (stopped) is left as it is. */
void jobs_deploy_failed(struct app *app, const struct model_job *job, const char *stage,
                        const struct err *cause);

/* Is it no fault of what the job names, but of the moment: of a store or a database that is away?
 */
bool jobs_may_pass(const struct err *err);
/* Our own database did not answer, or gave up a transaction: the same may succeed later. */
bool jobs_database_failed(const struct err *err);
/* Shows what holds the placed job up, and says it once in its log: it is tried again by reconcile.
 */
void jobs_held_up(struct app *app, const struct model_job *job, const char *stage,
                  const struct err *cause);

/* One node's part of an attempt has ended, by the runner's word or by evidence. First writer wins.
 * When all parts have ended the attempt's end is combined and the job stepped. */
int jobs_node_ended(struct app *app, const char *attempt_id, uint32_t rank,
                    const struct wire_exit *x, struct err *err) MUST_CHECK;
/* Takes the step that the ends of an attempt call for, if it was not taken yet (a crash between).
 */
int jobs_settle(struct app *app, const char *attempt_id, struct err *err) MUST_CHECK;
/* Did this part end badly, so that the other parts must stop? */
bool jobs_bad_end(const char *exit_json);

#endif
