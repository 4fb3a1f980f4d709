/*
 * upkeep.h - what an administrator asks for by hand: collecting what nothing uses any more, and
 * reading again what is stored. One task at a time, on one thread whose reads and writes wait
 * behind everybody else's (idle I/O class); it is remembered until the next one begins. Killed in
 * the middle, nothing is lost: each thing is removed or set aside by itself, and the next task
 * finds the rest.
 */
#ifndef UPKEEP_H
#define UPKEEP_H

#include "server/app.h"

#define UPKEEP_ITEMS_MAX 10000 /* that are named; further ones are counted */
#define UPKEEP_AGE_MAX_S (10LL * 365 * 24 * 3600)

struct upkeep_task;

void upkeep_start(struct app *app);
void upkeep_stop(struct app *app); /* ends what runs, joins */
void upkeep_free(struct app *app);

/* For the two below: how far a task is, and what it found. */
const struct upkeep_want *upkeep_want_of(const struct upkeep_task *t);
/* Somebody asked it to stop, or the server is being stopped. */
bool upkeep_is_over(struct upkeep_task *t);
int upkeep_go_on(struct upkeep_task *t, struct err *err) MUST_CHECK; /* ERR_CANCELED when it is */
/* A step of readers (blobs_verify, ...): counts, and fails as upkeep_go_on. arg: the task. */
int upkeep_step(void *arg, size_t bytes, struct err *err) MUST_CHECK;
void upkeep_add_total(struct upkeep_task *t, uint64_t bytes);
void upkeep_doing(struct upkeep_task *t, const char *fmt, ...) PRINTF(2, 3);
void upkeep_note(struct upkeep_task *t, const char *fmt, ...) PRINTF(2, 3);
void upkeep_found(struct upkeep_task *t, const struct upkeep_item *x); /* is copied */

/* upkeep_gc.c: never what a running or waiting job needs, nor what lies in a project's cache. */
int upkeep_gc(struct app *app, struct upkeep_task *t, struct err *err) MUST_CHECK;
/* upkeep_verify.c: mirrored weights, copies of them on the node, complete checkpoints. */
int upkeep_verify(struct app *app, struct upkeep_task *t, struct err *err) MUST_CHECK;

/* upkeep_ckpt.c: its share of the above. */
int upkeep_count_checkpoints(struct app *app, struct upkeep_task *t, struct err *err) MUST_CHECK;
int upkeep_verify_checkpoints(struct app *app, struct upkeep_task *t, struct err *err) MUST_CHECK;

#endif
