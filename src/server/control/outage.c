/* outage.c - see outage.h. */
#include "server/control/outage.h"

#include "base/map.h"
#include "base/units.h"

/* Adds the jobs that run now. False: the database is away (again). */
static bool note_jobs(struct app *app, struct map **through)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_query q = {.states = job_states_placed()};
	struct model_job *job = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_jobs(app->meta, a, &q, &job, &n, &err) < 0) {
		log_warn("outage: %s", err.msg);
		return false;
	}
	if (*through == NULL)
		*through = map_new();
	for (size_t i = 0; i < n && map_count(*through) < OUTAGE_JOBS_MAX; i++)
		(void)map_set(*through, str_of(job[i].id), app);
	return true;
}

struct telling {
	unsigned magic;
#define TELLING_MAGIC 0x5654454cU
	struct app *app;
	const char *kind, *name, *words;
	char took[UNITS_CAP];
};

static void tell_job(struct str id, void *value UNUSED, void *arg)
{
	const struct telling *t = FROM_VOID(struct telling, arg, TELLING_MAGIC);
	AUTO_ARENA struct arena *a = arena_new();

	app_event(t->app, arena_strz(a, id), t->kind, "server", "the %s was away for %s; %s",
	          t->name, t->took, t->words);
}

static void tell(struct telling *t, uint64_t took_ms, struct map *through)
{
	if (took_ms < OUTAGE_TOLD_MS)
		return;
	(void)units_show_seconds((took_ms + 500) / 1000, t->took);
	map_each(through, tell_job, t);
}

void outage_pass(struct app *app)
{
	static const struct {
		const char *kind, *name, *words;
	} rows[COUNT(app->outages_told_ms)] = {
		{"database", "database", "the job went on running"},
		{"objects", "object store", "the job went on running, and its checkpoints waited"},
	};
	struct outage now[COUNT(rows)];
	char why[OBJSTORE_WHY_MAX];

	meta_outage(app->meta, true, &now[0]);
	objstore_outage(app->objects, &now[1], why);
	for (size_t i = 0; i < COUNT(rows) && now[0].since_ms == 0; i++) {
		struct map **through = &app->outage_jobs[i];
		struct telling t = {.magic = TELLING_MAGIC,
		                    .app = app,
		                    .kind = rows[i].kind,
		                    .name = rows[i].name,
		                    .words = rows[i].words};
		/* of several since the last pass (the sessions of a database come back one by one),
		 * what they took together */
		uint64_t took_ms = now[i].total_ms - app->outages_told_ms[i];
		bool over = now[i].since_ms == 0 && took_ms > 0;

		/* who ends with the outage, before the pass that sees it, ran through it, too */
		if ((!over && now[i].since_ms == 0) || !note_jobs(app, through) || !over)
			continue;
		app->outages_told_ms[i] = now[i].total_ms;
		tell(&t, took_ms, *through);
		map_free(*through);
		*through = NULL;
	}
}

void outage_free(struct app *app)
{
	for (size_t i = 0; i < COUNT(app->outage_jobs); i++)
		map_free(app->outage_jobs[i]);
}
