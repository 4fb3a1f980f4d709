/* outage.c - see outage.h. */
#include "server/control/outage.h"

#include "base/units.h"

static uint32_t running_states(void)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++)
		if (job_state_is_placed((enum job_state)s))
			set |= UINT32_C(1) << s;
	return set;
}

/* False: the database is away again. */
static bool tell(struct app *app, const struct outage *o, const char *kind, const char *name,
                 const char *words)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_query q = {.states = running_states()};
	struct model_job *job = NULL;
	char took[UNITS_CAP];
	struct err err = {0};
	size_t n = 0;

	if (o->last_ms < OUTAGE_TOLD_MS)
		return true;
	if (meta_jobs(app->meta, a, &q, &job, &n, &err) < 0) {
		log_warn("outage: %s", err.msg);
		return false;
	}
	(void)units_show_seconds((uint64_t)(o->last_ms + 500) / 1000, took);
	for (size_t i = 0; i < n; i++)
		app_event(app, job[i].id, kind, "server", "the %s did not answer for %s; %s", name,
		          took, words);
	return true;
}

void outage_pass(struct app *app)
{
	static const struct {
		const char *kind, *name, *words;
	} rows[COUNT(app->outages_told)] = {
		{"database", "database", "the job went on running"},
		{"objects", "object store", "the job went on running, and its checkpoints waited"},
	};
	struct outage now[COUNT(rows)];
	char why[OBJSTORE_WHY_MAX];

	meta_outage(app->meta, true, &now[0]);
	objstore_outage(app->objects, &now[1], why);
	for (size_t i = 0; i < COUNT(rows) && now[0].since_ms == 0; i++)
		if (now[i].since_ms == 0 && now[i].n != app->outages_told[i] &&
		    tell(app, &now[i], rows[i].kind, rows[i].name, rows[i].words))
			app->outages_told[i] = now[i].n;
}
