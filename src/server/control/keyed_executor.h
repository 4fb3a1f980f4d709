/*
 * keyed_executor.h - a pool of threads in which a key (a job, a folder) has one task at a time.
 * Callers ask again later when the task is there already, so a full pool refuses in silence, too.
 */
#ifndef KEYED_EXECUTOR_H
#define KEYED_EXECUTOR_H

#include "server/app.h"

struct keyed_executor *keyed_executor_new(struct app *app, unsigned threads, unsigned queue_max,
                                          const char *name) MUST_CHECK;
/* Joins; what is queued ends without having begun. Only while app->stopping. */
void keyed_executor_stop(struct keyed_executor *all);
void keyed_executor_free(struct keyed_executor *all); /* NULL is fine */
/* fn(app, key) on some thread. Nothing happens when the key has a task, the pool is full or the
 * server stops. fn says whether there is something new for reconcile to look at. */
void keyed_executor_submit(struct keyed_executor *all, const char *key,
                           bool (*fn)(struct app *app, const char *key));
/* Has this key a task? NULL: any. */
bool keyed_executor_busy(struct keyed_executor *all, const char *key);

#endif
