/*
 * maintenance.h - what an administrator asks for by hand: collecting what nothing uses any more,
 * and reading again what is stored. One task at a time, on one thread whose reads and writes wait
 * behind everybody else's (idle I/O class); it is remembered until the next one begins. Killed in
 * the middle, nothing is lost: each thing is removed or set aside by itself, and the next task
 * finds the rest.
 */
#ifndef MAINTENANCE_H
#define MAINTENANCE_H

#include "server/app.h"

#define MAINTENANCE_ITEMS_MAX 10000 /* that are named; further ones are counted */
#define MAINTENANCE_AGE_MAX_S (10LL * 365 * 24 * 3600)

struct maintenance_task;

void maintenance_start(struct app *app);
void maintenance_stop(struct app *app); /* ends what runs, joins */
void maintenance_free(struct app *app);

/* For the two below: how far a task is, and what it found. */
const struct maintenance_want *maintenance_want_of(const struct maintenance_task *t);
/* Somebody asked it to stop, or the server is being stopped. */
bool maintenance_is_over(struct maintenance_task *t);
int maintenance_go_on(struct maintenance_task *t,
                      struct err *err) MUST_CHECK; /* ERR_CANCELED when it is */
/* A step of readers (blobs_verify, ...): counts, and fails as maintenance_go_on. arg: the task. */
int maintenance_step(void *arg, size_t bytes, struct err *err) MUST_CHECK;
void maintenance_add_total(struct maintenance_task *t, uint64_t bytes);
void maintenance_doing(struct maintenance_task *t, const char *fmt, ...) PRINTF(2, 3);
void maintenance_note(struct maintenance_task *t, const char *fmt, ...) PRINTF(2, 3);
void maintenance_found(struct maintenance_task *t,
                       const struct maintenance_item *x); /* is copied */

/* maintenance_gc.c: never what a running or waiting job needs, nor what lies in a project's cache.
 */
int maintenance_gc(struct app *app, struct maintenance_task *t, struct err *err) MUST_CHECK;
void maintenance_gc_due(struct app *app); /* what it is time for: the janitor's */
/* maintenance_verify.c: mirrored weights, copies of them on the node, complete checkpoints. */
int maintenance_verify(struct app *app, struct maintenance_task *t, struct err *err) MUST_CHECK;

/* maintenance_ckpt.c: its share of the above. */
int maintenance_count_checkpoints(struct app *app, struct maintenance_task *t,
                                  struct err *err) MUST_CHECK;
int maintenance_verify_checkpoints(struct app *app, struct maintenance_task *t,
                                   struct err *err) MUST_CHECK;

#endif
