/* outage.c - see outage.h. */
#include "server/outage.h"

#include "base/units.h"

static uint32_t running_states(void)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++)
		if (job_state_is_placed((enum job_state)s))
			set |= UINT32_C(1) << s;
	return set;
}

void outage_pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_query q = {.states = running_states()};
	struct meta_outage outage;
	struct model_job *job = NULL;
	char took[UNITS_CAP];
	struct err err = {0};
	size_t n = 0;

	meta_outage(app->meta, true, &outage);
	if (outage.since_ms != 0 || outage.n == app->outages_told)
		return;
	if (outage.last_ms >= OUTAGE_TOLD_MS) {
		if (meta_jobs(app->meta, a, &q, &job, &n, &err) < 0) {
			log_warn("outage: %s", err.msg);
			return; /* it is away again: the next pass says both */
		}
		(void)units_show_seconds((uint64_t)(outage.last_ms + 500) / 1000, took);
	}
	for (size_t i = 0; i < n; i++)
		app_event(app, job[i].id, "database", "server",
		          "the database did not answer for %s; the job went on running", took);
	app->outages_told = outage.n;
}
