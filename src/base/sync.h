/*
 * sync.h - mutexes and conditions, the only ones. A lock has a name and a place in the order of
 * lock_ids.h: taking one out of order, giving or waiting with one that another thread has, and
 * destroying one that is held are assertions. Deadlines are absolute, on the monotonic clock, so a
 * wait that is woken early goes on to the same end and no step of the wall clock moves it.
 */
#ifndef SYNC_H
#define SYNC_H

#include "base/base.h"
#include "base/lock_ids.h"

#include <pthread.h>
#include <stdatomic.h>

enum lock_id {
#define X(constant, name, where, what) LOCK_##constant,
	LOCK_IDS(X)
#undef X
		LOCK_COUNT,
};

#define LOCK_NEST_MAX 8 /* that one thread holds at once */

struct lock {
	pthread_mutex_t mutex;
	enum lock_id id;
	_Atomic uintptr_t owner; /* 0: nobody */
};
#define LOCK_INIT(i)                                                                               \
	{                                                                                          \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .id = (i)                                      \
	}

void lock_init(struct lock *l, enum lock_id id);
void lock_done(struct lock *l);
void lock_take(struct lock *l);
void lock_give(struct lock *l);
bool lock_is_mine(const struct lock *l); /* for assertions */

struct cond {
	pthread_cond_t cond;
	bool timed; /* by cond_init: it waits by the monotonic clock */
};
#define COND_INIT                                                                                  \
	{                                                                                          \
		.cond = PTHREAD_COND_INITIALIZER                                                   \
	} /* of one without deadlines */
void cond_init(struct cond *c);
void cond_done(struct cond *c);
void cond_wait(struct cond *c, struct lock *l);
/* False once the deadline has passed. Both may return early: look at what was waited for. */
bool cond_wait_until(struct cond *c, struct lock *l, int64_t deadline_ms);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

/* So long from now, as a deadline. */
int64_t sync_deadline(int64_t wait_ms);

struct lock_row {
	const char *name, *where, *what;
};
const struct lock_row *lock_row(enum lock_id id); /* for docs/locks.md */

#endif
