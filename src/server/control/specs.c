/* specs.c - see specs.h. */
#include "server/control/specs.h"

#include <sys/queue.h>

struct specs_entry {
	char *id;
	struct arena *a;
	struct job_spec spec;
	unsigned holds;
	bool gone; /* forgotten while somebody held it */
	TAILQ_ENTRY(specs_entry) in;
};

struct specs {
	struct lock lock;
	struct map *by_id;
	TAILQ_HEAD(, specs_entry) used; /* longest ago first */
};

static void entry_free(struct specs_entry *e)
{
	assert(e->holds == 0);
	arena_free(e->a);
	free(e->id);
	free(e);
}

/* Under the lock: it is not found any more. */
static void unlist(struct specs *s, struct specs_entry *e)
{
	(void)map_del(s->by_id, str_of(e->id));
	TAILQ_REMOVE(&s->used, e, in);
	e->gone = true;
	if (e->holds == 0)
		entry_free(e);
}

static void make_room(struct specs *s)
{
	struct specs_entry *e, *next;

	for (e = TAILQ_FIRST(&s->used); e != NULL && map_count(s->by_id) > SPECS_MAX; e = next) {
		next = TAILQ_NEXT(e, in);
		if (e->holds == 0)
			unlist(s, e);
	}
}

static bool find(struct specs *s, const char *job_id, struct specs_hold *hold)
{
	struct specs_entry *e = map_get(s->by_id, str_of(job_id));

	if (e == NULL)
		return false;
	TAILQ_REMOVE(&s->used, e, in);
	TAILQ_INSERT_TAIL(&s->used, e, in);
	e->holds++;
	*hold = (struct specs_hold){s, e, &e->spec};
	return true;
}

static struct specs_entry *read_entry(struct app *app, const char *job_id, struct err *err)
{
	struct specs_entry *e = xcalloc(1, sizeof(*e));
	const char *json = NULL;

	e->id = xstrdup(job_id);
	e->a = arena_new();
	if (meta_job_spec(app->meta, e->a, job_id, &json, err) < 0 ||
	    spec_read_stored(e->a, json, &e->spec, err) < 0) {
		entry_free(e);
		return NULL;
	}
	return e;
}

int specs_get(struct app *app, const char *job_id, struct specs_hold *hold, struct err *err)
{
	struct specs *s = app->specs;
	struct specs_entry *e;
	bool there;

	assert(hold->entry == NULL);
	lock_take(&s->lock);
	there = find(s, job_id, hold);
	lock_give(&s->lock);
	if (there)
		return 0;
	e = read_entry(app, job_id, err); /* beside another one perhaps: the first is kept */
	if (e == NULL)
		return -1;
	lock_take(&s->lock);
	if (find(s, job_id, hold)) {
		entry_free(e);
	} else {
		(void)map_set(s->by_id, str_of(job_id), e);
		TAILQ_INSERT_TAIL(&s->used, e, in);
		(void)find(s, job_id, hold);
		make_room(s);
	}
	lock_give(&s->lock);
	return 0;
}

void specs_drop(struct specs_hold *hold)
{
	struct specs_entry *e = hold->entry;

	if (e == NULL)
		return;
	lock_take(&hold->from->lock);
	assert(e->holds > 0);
	if (--e->holds == 0 && e->gone)
		entry_free(e);
	lock_give(&hold->from->lock);
	*hold = (struct specs_hold){0};
}

void specs_forget(struct app *app, const char *job_id)
{
	struct specs *s = app->specs;
	struct specs_entry *e;

	lock_take(&s->lock);
	e = map_get(s->by_id, str_of(job_id));
	if (e != NULL)
		unlist(s, e);
	lock_give(&s->lock);
}

void specs_start(struct app *app)
{
	app->specs = xcalloc(1, sizeof(*app->specs));
	lock_init(&app->specs->lock, LOCK_SPECS);
	app->specs->by_id = map_new();
	TAILQ_INIT(&app->specs->used);
}

void specs_free(struct app *app)
{
	struct specs_entry *e;

	if (app->specs == NULL)
		return;
	while ((e = TAILQ_FIRST(&app->specs->used)) != NULL)
		unlist(app->specs, e);
	map_free(app->specs->by_id);
	lock_done(&app->specs->lock);
	free(app->specs);
	app->specs = NULL;
}
