/* thread.h - threads beside the main one, and what wakes them. */
#ifndef THREAD_H
#define THREAD_H

#include "base/base.h"

#include <pthread.h>

/* A thread that takes no signals: those are the main one's. `name`: at most 15 characters, for ps
 * and debuggers. 0 or an errno. */
int thread_start(pthread_t *out, const char *name, void *(*fn)(void *arg), void *arg) MUST_CHECK;
/* Makes an eventfd readable. One that is full is so already. */
void event_set(int fd);

#endif
