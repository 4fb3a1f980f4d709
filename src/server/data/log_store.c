/* log_store.c - see log_store.h. */
#include "server/data/log_store.h"

#define TICK_MS 500 /* how soon a thread sees that it should end */

struct log_store {
	pthread_t thread[LOG_STORE_THREADS];
	size_t n;
	atomic_bool away, stop;
};

/* Of an outage only the begin and the end are said. */
static void say(struct log_store *s, int r, const struct err *err)
{
	if (r == 0) {
		if (atomic_exchange(&s->away, false))
			log_info("job logs are stored again");
	} else if (err->code == ERR_CANCELED) {
		log_debug("the server ends: %s", err->msg); /* the next one stores it */
	} else if (!err_info(err)->retry) {
		log_warn("a job log is not stored: %s", err->msg);
	} else if (!atomic_exchange(&s->away, true)) {
		log_warn("job logs wait in the data folder: %s", err->msg);
	}
}

static void *store_main(void *arg)
{
	struct app *app = FROM_VOID(struct app, arg, APP_MAGIC);
	struct log_store *s = app->log_store;

	while (!atomic_load(&s->stop)) {
		struct err err = {0};
		bool did = false;
		int r = joblogs_store_next(app->logs, TICK_MS, &did, &err);

		if (did)
			say(s, r, &err);
	}
	return NULL;
}

int log_store_start(struct app *app, struct err *err)
{
	struct log_store *s;
	uint32_t epoch;

	if (app->set.objects == NULL)
		return 0;
	if (meta_epoch_next(app->meta, clock_wall_ms() / 1000, &epoch, err) < 0)
		return err_wrap(err, "the logs of jobs");
	joblogs_keep(app->logs, app->objects, epoch, LOG_STORE_PAUSE_MS);
	if (joblogs_store_all(app->logs, true, err) < 0) { /* they are stored when they grow */
		log_warn("job logs of the last server: %s", err->msg);
		err_clear(err);
	}
	s = app->log_store = xcalloc(1, sizeof(*s));
	for (; s->n < LOG_STORE_THREADS; s->n++)
		if (pthread_create(&s->thread[s->n], NULL, store_main, app) != 0)
			abort(); /* at start, and out of threads */
	return 0;
}

static void end_threads(struct log_store *s)
{
	atomic_store(&s->stop, true);
	for (size_t i = 0; i < s->n; i++)
		(void)pthread_join(s->thread[i], NULL);
	s->n = 0;
}

void log_store_drain(struct app *app)
{
	struct log_store *s = app->log_store;
	int64_t until = clock_mono_ms() + LOG_STORE_LAST_MS;
	struct err err = {0};

	if (s == NULL)
		return;
	if (joblogs_store_all(app->logs, false, &err) < 0)
		log_warn("job logs: %s", err.msg);
	while (joblogs_waiting(app->logs) > 0 && !atomic_load(&s->away) && clock_mono_ms() < until)
		clock_sleep_ms(20);
}

void log_store_stop(struct app *app)
{
	if (app->log_store != NULL)
		end_threads(app->log_store);
}

void log_store_free(struct app *app)
{
	struct log_store *s = app->log_store;

	if (s == NULL)
		return;
	end_threads(s);
	free(s);
	app->log_store = NULL;
}
