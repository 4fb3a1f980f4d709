/* limits.c - bounds on what members ask of the queue. */
#include "server/api/limits.h"
#include "server/app.h"

#include <inttypes.h>

int limits_priority(const struct ask *ask, int64_t priority, struct err *err)
{
	if (ask->principal->role >= ROLE_ADMIN || priority <= ask->app->set.max_priority)
		return 0;
	return err_set(err, ERR_PRIORITY_TOO_HIGH,
	               "priority %" PRId64 " is above %" PRId64 ", the maximum for members",
	               priority, ask->app->set.max_priority);
}

int limits_waiting(const struct ask *ask, const char *team_id, struct err *err)
{
	struct app *app = ask->app;
	int64_t n = 0;

	if (ask->principal->role >= ROLE_ADMIN || app->set.max_waiting_jobs == 0)
		return 0;
	if (meta_waiting_of_team(app->meta, team_id, &n, err) < 0)
		return -1;
	if (n < app->set.max_waiting_jobs)
		return 0;
	return err_set(err, ERR_TOO_MANY_WAITING,
	               "%" PRId64 " jobs of this team are waiting already, the limit is %" PRId64
	               ". Push again when some have started, or stop some with `stoker stop`",
	               n, app->set.max_waiting_jobs);
}
