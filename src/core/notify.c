/* notify.c - words and moments; see notify.h. */
#include "core/notify.h"

const char *const notify_words[NOTIFY_COUNT] = {
	[NOTIFY_RUNNING] = "running",     [NOTIFY_RETRYING] = "retrying",
	[NOTIFY_COMPLETED] = "completed", [NOTIFY_FAILED] = "failed",
	[NOTIFY_STOPPED] = "stopped",     [NOTIFY_DEPLOY_FAILED] = "deploy_failed",
};

enum notify_on notify_parse(struct str word)
{
	enum notify_on on = 0;

	while (on < NOTIFY_COUNT && !str_eq(word, notify_words[on]))
		on++;
	return on;
}

enum notify_on notify_of_step(enum job_state from, enum job_state to)
{
	if (from == to)
		return NOTIFY_COUNT;
	switch (to) {
	case JOB_PENDING: /* nothing leads there but the end of an attempt */
		return NOTIFY_RETRYING;
	case JOB_RUNNING:
		return NOTIFY_RUNNING;
	case JOB_COMPLETED:
		return NOTIFY_COMPLETED;
	case JOB_DEPLOY_FAILED:
		return NOTIFY_DEPLOY_FAILED;
	case JOB_FAILED:
		return NOTIFY_FAILED;
	case JOB_STOPPED:
		return NOTIFY_STOPPED;
	case JOB_CREATED:
	case JOB_DEPLOYING:
	case JOB_STOPPING_DEPLOYING:
	case JOB_STOPPING:
	case JOB_STATE_COUNT:
		break;
	}
	return NOTIFY_COUNT;
}

bool notify_asks(uint32_t on, enum notify_on event)
{
	if (event == NOTIFY_DEPLOY_FAILED && (on & 1U << NOTIFY_FAILED) != 0)
		return true;
	return event < NOTIFY_COUNT && (on & 1U << event) != 0;
}
