/* sweep.c - a pool and the set of folders that are in it. */
#include "server/sweep.h"

struct sweeps {
	pthread_mutex_t lock;
	struct map *busy; /* by folder */
	struct workers *pool;
};

struct task {
	struct app *app;
	char *dir;
	bool (*fn)(struct app *app, const char *dir);
};

static void task_free(struct task *t)
{
	free(t->dir);
	free(t);
}

static void task_run(void *arg)
{
	struct task *t = arg;
	struct app *app = t->app;
	struct sweeps *all = app->sweeps;
	bool news = !atomic_load(&app->stopping) && t->fn(app, t->dir);

	(void)pthread_mutex_lock(&all->lock);
	(void)map_del(all->busy, str_of(t->dir));
	(void)pthread_mutex_unlock(&all->lock);
	if (news)
		loop_kick(app->reconcile);
	task_free(t);
}

void sweep_submit(struct app *app, const char *dir, bool (*fn)(struct app *app, const char *dir))
{
	struct sweeps *all = app->sweeps;
	struct task *t = xcalloc(1, sizeof(*t));
	struct err err = {0};

	*t = (struct task){.app = app, .dir = xstrdup(dir), .fn = fn};
	(void)pthread_mutex_lock(&all->lock);
	/* The task removes itself from the set under the lock that is held here. */
	if (atomic_load(&app->stopping) || map_get(all->busy, str_of(dir)) != NULL ||
	    workers_submit(all->pool, task_run, t, &err) < 0)
		task_free(t);
	else
		(void)map_set(all->busy, str_of(dir), all);
	(void)pthread_mutex_unlock(&all->lock);
}

bool sweep_busy(struct app *app, const char *dir)
{
	struct sweeps *all = app->sweeps;
	bool busy;

	(void)pthread_mutex_lock(&all->lock);
	busy = dir != NULL ? map_get(all->busy, str_of(dir)) != NULL : map_count(all->busy) > 0;
	(void)pthread_mutex_unlock(&all->lock);
	return busy;
}

void sweep_start(struct app *app)
{
	struct sweeps *all = xcalloc(1, sizeof(*all));

	(void)pthread_mutex_init(&all->lock, NULL);
	all->busy = map_new();
	all->pool = workers_new(SWEEP_THREADS, SWEEP_QUEUE_MAX, "sweep");
	app->sweeps = all;
}

void sweep_stop(struct app *app)
{
	assert(atomic_load(&app->stopping)); /* nobody submits another one, and all give up */
	workers_stop(app->sweeps->pool);
	app->sweeps->pool = NULL;
}

void sweep_free(struct app *app)
{
	struct sweeps *all = app->sweeps;

	if (all == NULL)
		return;
	workers_stop(all->pool);
	map_free(all->busy);
	(void)pthread_mutex_destroy(&all->lock);
	free(all);
	app->sweeps = NULL;
}
