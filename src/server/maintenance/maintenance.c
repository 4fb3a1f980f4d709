/* maintenance.c - the one task: begun, looked at, stopped. */
#include "server/maintenance/maintenance.h"
#include "server/api/ctx.h"

#include <sys/syscall.h>

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)
#define MAINTENANCE_WORDS_MAX 1000
#define WAIT_MS 2000 /* for a store that is away */
#define WAIT_STEP_MS 100

struct maintenance_task {
	unsigned magic;
#define MAINTENANCE_TASK_MAGIC 0x534d4154U
	struct app *app;
	struct arena *a; /* under the lock, as is all that changes */
	const char *id, *by;
	struct maintenance_want want;
	atomic_bool cancel;
	atomic_uint_least64_t bytes_done, bytes_total;
	int64_t begun_mono_ms;
	struct maintenance_view view; /* what is not above */
	char doing[300], note[MAINTENANCE_WORDS_MAX];
};

struct maintenance {
	struct lock lock;
	struct maintenance_task *task; /* that runs or ran last; NULL: none */
	struct workers *pool;          /* NULL: stopping */
};

/* What is true of one whenever the lock is free. */
static void task_check(const struct maintenance_task *t)
{
	const struct maintenance_view *v = &t->view;

	assert(t->magic == MAINTENANCE_TASK_MAGIC && lock_is_mine(&t->app->maintenance->lock));
	assert((v->state == MAINTENANCE_RUNNING) == (v->ended_ms == 0));
	assert((v->state == MAINTENANCE_FAILED) == (v->error != NULL));
	assert(v->n_items <= MAINTENANCE_ITEMS_MAX && v->n_items <= v->found);
}

static const char *kind_of(const struct maintenance_want *w)
{
	return w->verify ? "verify" : w->dry_run ? "gc --dry-run" : "gc";
}

const struct maintenance_want *maintenance_want_of(const struct maintenance_task *t)
{
	return &t->want;
}

bool maintenance_is_over(struct maintenance_task *t)
{
	return atomic_load(&t->cancel) || atomic_load(&t->app->stopping);
}

int maintenance_go_on(struct maintenance_task *t, struct err *err)
{
	return maintenance_is_over(t) ? err_set(err, ERR_CANCELED, "stopped") : 0;
}

int maintenance_wait(struct maintenance_task *t, const atomic_bool *stop, struct err *err)
{
	if (!err_info(err)->retry)
		return -1;
	log_info("maintenance: %s waits: %s", kind_of(&t->want), err->msg);
	err_clear(err);
	for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until;) {
		if (stop != NULL && atomic_load(stop))
			return err_set(err, ERR_CANCELED, "stopped");
		if (maintenance_go_on(t, err) < 0)
			return -1;
		clock_sleep_ms(WAIT_STEP_MS);
	}
	return 0;
}

int maintenance_step(void *arg, size_t bytes, struct err *err)
{
	struct maintenance_task *t =
		FROM_VOID(struct maintenance_task, arg, MAINTENANCE_TASK_MAGIC);

	atomic_fetch_add(&t->bytes_done, bytes);
	return maintenance_go_on(t, err);
}

void maintenance_add_total(struct maintenance_task *t, uint64_t bytes)
{
	atomic_fetch_add(&t->bytes_total, bytes);
}

PRINTF(4, 0)
static void say(struct maintenance_task *t, char *to, size_t cap, const char *fmt, va_list ap)
{
	char words[MAINTENANCE_WORDS_MAX];

	(void)vsnprintf(words, sizeof(words), fmt, ap);
	lock_take(&t->app->maintenance->lock);
	copy_cut(to, cap, words);
	lock_give(&t->app->maintenance->lock);
}

void maintenance_doing(struct maintenance_task *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(t, t->doing, sizeof(t->doing), fmt, ap);
	va_end(ap);
}

void maintenance_note(struct maintenance_task *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(t, t->note, sizeof(t->note), fmt, ap);
	va_end(ap);
}

static struct maintenance_item copy_item(struct arena *a, const struct maintenance_item *x)
{
	return (struct maintenance_item){
		.kind = arena_cstr(a, x->kind),
		.name = arena_cstr(a, x->name),
		.path = arena_cstr(a, x->path),
		.words = arena_cstr(a, x->words),
		.bytes = x->bytes,
		.used_ms = x->used_ms,
	};
}

void maintenance_found(struct maintenance_task *t, const struct maintenance_item *x)
{
	struct maintenance_view *v = &t->view;

	lock_take(&t->app->maintenance->lock);
	task_check(t);
	assert(v->state == MAINTENANCE_RUNNING);
	if (!t->want.dry_run)
		log_info("maintenance: %s: %s %s%s%s bytes=%" PRIu64 ": %s", kind_of(&t->want),
		         x->kind, x->name, x->path != NULL ? " " : "",
		         x->path != NULL ? x->path : "", x->bytes,
		         x->words != NULL ? x->words : "removed");
	v->found++;
	v->found_bytes += x->bytes;
	if (v->n_items < MAINTENANCE_ITEMS_MAX)
		v->item[v->n_items++] = copy_item(t->a, x);
	task_check(t);
	lock_give(&t->app->maintenance->lock);
}

static void finish(struct maintenance_task *t, int r, const struct err *err)
{
	struct maintenance_view *v = &t->view;

	lock_take(&t->app->maintenance->lock);
	task_check(t);
	assert(v->state == MAINTENANCE_RUNNING); /* it ends once */
	v->state = r == 0                      ? MAINTENANCE_DONE
	           : err->code == ERR_CANCELED ? MAINTENANCE_STOPPED
	                                       : MAINTENANCE_FAILED;
	v->error = v->state == MAINTENANCE_FAILED ? arena_cstr(t->a, err->msg) : NULL;
	v->ended_ms = clock_wall_ms();
	v->rate_bytes_s = 0;
	task_check(t);
	log_info("maintenance: finished: kind=%s by=%s found=%" PRIu64 " bytes=%" PRIu64 "%s%s",
	         kind_of(&t->want), t->by, v->found, v->found_bytes, r < 0 ? " " : "",
	         r < 0 ? err->msg : "");
	lock_give(&t->app->maintenance->lock);
}

static void task_run(void *arg)
{
	struct maintenance_task *t =
		FROM_VOID(struct maintenance_task, arg, MAINTENANCE_TASK_MAGIC);
	struct err err = {0};
	int r;

	/* of this thread alone; not everywhere supported */
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
	r = t->want.verify ? maintenance_verify(t->app, t, &err) : maintenance_gc(t->app, t, &err);
	finish(t, r, &err);
}

static void task_free(struct maintenance_task *t)
{
	if (t != NULL)
		arena_free(t->a);
}

static struct maintenance_task *task_new(struct app *app, const char *by,
                                         const struct maintenance_want *want)
{
	struct arena *a = arena_new();
	struct maintenance_task *t = ARENA_NEW(a, struct maintenance_task);

	*t = (struct maintenance_task){
		.magic = MAINTENANCE_TASK_MAGIC,
		.app = app,
		.a = a,
		.id = app_id(a, MODEL_ID_LEN),
		.by = arena_cstr(a, by),
		.want = *want,
		.begun_mono_ms = clock_mono_ms(),
		.view = {.started_ms = clock_wall_ms()},
	};
	t->view.item = ARENA_ARRAY(a, struct maintenance_item, MAINTENANCE_ITEMS_MAX);
	return t;
}

/* Under the lock. */
static void show(const struct maintenance_task *t, struct arena *a, struct maintenance_view *out)
{
	double seconds = (double)(clock_mono_ms() - t->begun_mono_ms) / 1000;

	task_check(t);
	*out = t->view;
	out->id = arena_cstr(a, t->id);
	out->by = arena_cstr(a, t->by);
	out->want = t->want;
	out->bytes_done = atomic_load(&t->bytes_done);
	out->bytes_total = atomic_load(&t->bytes_total);
	out->note = t->note[0] != '\0' ? arena_cstr(a, t->note) : NULL;
	out->error = arena_cstr(a, t->view.error);
	out->doing = NULL;
	if (out->state == MAINTENANCE_RUNNING) {
		out->doing = arena_cstr(a, t->doing);
		out->rate_bytes_s = seconds > 0 ? (double)out->bytes_done / seconds : 0;
		out->n_items = 0;
		return;
	}
	out->item = ARENA_ARRAY(a, struct maintenance_item, out->n_items + 1);
	for (size_t i = 0; i < out->n_items; i++)
		out->item[i] = copy_item(a, &t->view.item[i]);
}

/* Under the lock. */
static int begin(const struct ask *ask, const struct maintenance_want *want, struct err *err)
{
	struct app *app = ask->app;
	struct maintenance *u = app->maintenance;
	struct maintenance_task *t;

	if (u->pool == NULL)
		return err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
	if (u->task != NULL && u->task->view.state == MAINTENANCE_RUNNING)
		return err_set(err, ERR_CONFLICT,
		               "`stoker cache %s` of %s is running; only one can run at a time, "
		               "wait for it to end",
		               kind_of(&u->task->want), u->task->by);
	t = task_new(app, ask->principal->name, want);
	if (workers_submit(u->pool, task_run, t, err) < 0) {
		task_free(t);
		return -1;
	}
	task_free(u->task);
	u->task = t;
	log_info("maintenance: started: kind=%s by=%s", kind_of(want), ask->principal->name);
	return 0;
}

static int begin_task(const struct ask *ask, const struct maintenance_want *want,
                      struct maintenance_view *out, struct err *err)
{
	struct app *app = ask->app;
	int r;

	if (ctx_need_all(ask, err) < 0)
		return -1;
	if (want->min_age_s < 0 || want->min_age_s > MAINTENANCE_AGE_MAX_S)
		return err_set(err, ERR_INVALID, "min_age_seconds: 0 to %lld",
		               MAINTENANCE_AGE_MAX_S);
	lock_take(&app->maintenance->lock);
	r = begin(ask, want, err);
	if (r == 0)
		show(app->maintenance->task, ask->a, out);
	lock_give(&app->maintenance->lock);
	return r;
}

/* id NULL: whichever it is. */
static int look(struct app *app, struct arena *a, const char *id, bool stop,
                struct maintenance_view *out, struct err *err)
{
	struct maintenance_task *t;
	int r = 0;

	lock_take(&app->maintenance->lock);
	t = app->maintenance->task;
	if (t == NULL || (id != NULL && strcmp(t->id, id) != 0)) {
		r = err_set(err, ERR_NOT_FOUND,
		            "no such maintenance task: the server remembers only the last one, "
		            "until it "
		            "restarts");
	} else {
		if (stop)
			atomic_store(&t->cancel, true);
		show(t, a, out);
	}
	lock_give(&app->maintenance->lock);
	return r;
}

static int show_task(const struct ask *ask, struct maintenance_view *out, struct err *err)
{
	return ctx_need_all(ask, err) < 0 ? -1 : look(ask->app, ask->a, NULL, false, out, err);
}

static int stop_task(const struct ask *ask, const char *id, struct maintenance_view *out,
                     struct err *err)
{
	return ctx_need_all(ask, err) < 0 ? -1 : look(ask->app, ask->a, id, true, out, err);
}

void maintenance_start(struct app *app)
{
	app->maintenance = xcalloc(1, sizeof(*app->maintenance));
	lock_init(&app->maintenance->lock, LOCK_MAINTENANCE);
	app->maintenance->pool = workers_new(1, 1, "maintenance");
}

void maintenance_stop(struct app *app)
{
	struct workers *pool;

	assert(atomic_load(&app->stopping));
	lock_take(&app->maintenance->lock);
	pool = app->maintenance->pool;
	app->maintenance->pool = NULL;
	lock_give(&app->maintenance->lock);
	workers_stop(pool);
}

void maintenance_free(struct app *app)
{
	if (app->maintenance == NULL)
		return;
	workers_stop(app->maintenance->pool);
	task_free(app->maintenance->task);
	lock_done(&app->maintenance->lock);
	free(app->maintenance);
	app->maintenance = NULL;
}

const struct maintenance_ops maintenance_ops = {
	.begin = begin_task,
	.show = show_task,
	.stop = stop_task,
};
