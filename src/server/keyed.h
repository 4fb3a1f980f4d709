/*
 * keyed.h - a pool of threads in which a key (a job, a folder) has one task at a time. Whoever asks
 * for a task that is there already asks again later, so a full pool refuses without a word, too.
 */
#ifndef KEYED_H
#define KEYED_H

#include "server/app.h"

struct keyed *keyed_new(struct app *app, unsigned threads, unsigned queue_max,
                        const char *name) MUST_CHECK;
/* Joins; what is queued ends without having begun. Only while app->stopping. */
void keyed_stop(struct keyed *all);
void keyed_free(struct keyed *all); /* NULL is fine */
/* fn(app, key) on some thread. Nothing happens when the key has a task, the pool is full or the
 * server stops. fn says whether there is something new for reconcile to look at. */
void keyed_submit(struct keyed *all, const char *key, bool (*fn)(struct app *app, const char *key));
/* Has this key a task? NULL: any. */
bool keyed_busy(struct keyed *all, const char *key);

#endif
