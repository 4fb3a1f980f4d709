/*
 * limits.h - what one member may ask of the queue that all teams share: how far up a priority goes,
 * and how many jobs of a team may wait (--max-priority, --max-waiting-jobs). Administrators are
 * exempt.
 */
#ifndef LIMITS_H
#define LIMITS_H

#include "server/api/ctx.h"

/* ERR_PRIORITY_TOO_HIGH when a member asks for more than --max-priority. */
int limits_priority(const struct ask *ask, int64_t priority, struct err *err) MUST_CHECK;
/* ERR_TOO_MANY_WAITING when the team has --max-waiting-jobs pending jobs. Pushes that arrive
 * together may exceed it by as many as there are workers. */
int limits_waiting(const struct ask *ask, const char *team_id, struct err *err) MUST_CHECK;

#endif
