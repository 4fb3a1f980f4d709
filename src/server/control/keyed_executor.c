/* keyed_executor.c - a pool and the set of keys that are in it. */
#include "server/control/keyed_executor.h"

struct keyed_executor {
	struct app *app;
	struct lock lock;
	struct map *busy; /* keys that have a task */
	struct workers *pool;
};

struct task {
	unsigned magic;
#define TASK_MAGIC 0x53544153U
	struct keyed_executor *all;
	char *key;
	bool (*fn)(struct app *app, const char *key);
};

static void task_free(struct task *t)
{
	free(t->key);
	free(t);
}

static void task_run(void *arg)
{
	struct task *t = FROM_VOID(struct task, arg, TASK_MAGIC);
	struct keyed_executor *all = t->all;
	bool news = !atomic_load(&all->app->stopping) && t->fn(all->app, t->key);
	const void *was;

	lock_take(&all->lock);
	was = map_del(all->busy, str_of(t->key));
	assert(was == all); /* nobody else has removed it, or run it meanwhile */
	lock_give(&all->lock);
	if (news)
		loop_kick(all->app->reconcile);
	task_free(t);
}

void keyed_executor_submit(struct keyed_executor *all, const char *key,
                           bool (*fn)(struct app *app, const char *key))
{
	struct task *t = xcalloc(1, sizeof(*t));
	struct err err = {0};

	*t = (struct task){.magic = TASK_MAGIC, .all = all, .key = xstrdup(key), .fn = fn};
	lock_take(&all->lock);
	/* The task removes itself from the set under the lock that is held here. */
	if (atomic_load(&all->app->stopping) || map_get(all->busy, str_of(key)) != NULL ||
	    workers_submit(all->pool, task_run, t, &err) < 0)
		task_free(t);
	else
		(void)map_set(all->busy, str_of(key), all);
	lock_give(&all->lock);
}

bool keyed_executor_busy(struct keyed_executor *all, const char *key)
{
	bool busy;

	lock_take(&all->lock);
	busy = key != NULL ? map_get(all->busy, str_of(key)) != NULL : map_count(all->busy) > 0;
	lock_give(&all->lock);
	return busy;
}

struct keyed_executor *keyed_executor_new(struct app *app, unsigned threads, unsigned queue_max,
                                          const char *name)
{
	struct keyed_executor *all = xcalloc(1, sizeof(*all));

	all->app = app;
	lock_init(&all->lock, LOCK_KEYED);
	all->busy = map_new();
	all->pool = workers_new(threads, queue_max, name);
	return all;
}

void keyed_executor_stop(struct keyed_executor *all)
{
	assert(atomic_load(&all->app->stopping)); /* nobody submits another one */
	workers_stop(all->pool);
	all->pool = NULL;
}

void keyed_executor_free(struct keyed_executor *all)
{
	if (all == NULL)
		return;
	workers_stop(all->pool);
	assert(map_count(all->busy) == 0); /* what was queued was run */
	map_free(all->busy);
	lock_done(&all->lock);
	free(all);
}
