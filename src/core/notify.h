/*
 * notify.h - the moments of a job that its `notify` may name: their words, which change of state is
 * which moment, and whether a list of words asks for one. Pure; server/control/notify.h delivers.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#include "core/job.h"

enum notify_on {
	NOTIFY_RUNNING,  /* user code starts, of each attempt */
	NOTIFY_RETRYING, /* an attempt has ended and another one follows */
	NOTIFY_COMPLETED,
	NOTIFY_FAILED,
	NOTIFY_DEPLOY_FAILED,
	NOTIFY_STOPPED,
	NOTIFY_COUNT, /* no moment that anybody is told of */
};

/* When a webhook names none: every end. */
#define NOTIFY_DEFAULT                                                                             \
	(1U << NOTIFY_COMPLETED | 1U << NOTIFY_FAILED | 1U << NOTIFY_DEPLOY_FAILED |               \
	 1U << NOTIFY_STOPPED)

extern const char *const notify_words[NOTIFY_COUNT]; /* "running", ... */
enum notify_on notify_parse(struct str word);        /* NOTIFY_COUNT: there is no such word */
enum notify_on notify_of_step(enum job_state from, enum job_state to);
/* Does the bit set of words ask for it? Who wants to know of a failure is told of any. */
bool notify_asks(uint32_t on, enum notify_on event);

#endif
