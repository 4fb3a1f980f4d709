/* upkeep.c - the one task: begun, looked at, stopped. */
#include "server/upkeep.h"
#include "server/ctx.h"

#include <sys/syscall.h>

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)
#define UPKEEP_WORDS_MAX 1000

struct upkeep_task {
	struct app *app;
	struct arena *a; /* under the lock, as is all that changes */
	const char *id, *by;
	struct upkeep_want want;
	atomic_bool cancel;
	atomic_uint_least64_t bytes_done, bytes_total;
	int64_t begun_mono_ms;
	struct upkeep_view view; /* what is not above */
	char doing[300], note[UPKEEP_WORDS_MAX];
};

struct upkeep {
	struct lock lock;
	struct upkeep_task *task; /* that runs or ran last; NULL: none */
	struct workers *pool;     /* NULL: stopping */
};

const struct upkeep_want *upkeep_want_of(const struct upkeep_task *t)
{
	return &t->want;
}

bool upkeep_is_over(struct upkeep_task *t)
{
	return atomic_load(&t->cancel) || atomic_load(&t->app->stopping);
}

int upkeep_go_on(struct upkeep_task *t, struct err *err)
{
	return upkeep_is_over(t) ? err_set(err, ERR_CANCELED, "stopped") : 0;
}

int upkeep_step(void *arg, size_t bytes, struct err *err)
{
	struct upkeep_task *t = arg;

	atomic_fetch_add(&t->bytes_done, bytes);
	return upkeep_go_on(t, err);
}

void upkeep_add_total(struct upkeep_task *t, uint64_t bytes)
{
	atomic_fetch_add(&t->bytes_total, bytes);
}

PRINTF(4, 0)
static void say(struct upkeep_task *t, char *to, size_t cap, const char *fmt, va_list ap)
{
	char words[UPKEEP_WORDS_MAX];

	(void)vsnprintf(words, sizeof(words), fmt, ap);
	lock_take(&t->app->upkeep->lock);
	copy_cut(to, cap, words);
	lock_give(&t->app->upkeep->lock);
}

void upkeep_doing(struct upkeep_task *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(t, t->doing, sizeof(t->doing), fmt, ap);
	va_end(ap);
}

void upkeep_note(struct upkeep_task *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(t, t->note, sizeof(t->note), fmt, ap);
	va_end(ap);
}

static const char *kind_of(const struct upkeep_want *w)
{
	return w->verify ? "verify" : w->dry_run ? "gc --dry-run" : "gc";
}

static struct upkeep_item copy_item(struct arena *a, const struct upkeep_item *x)
{
	return (struct upkeep_item){
		.kind = arena_cstr(a, x->kind),
		.name = arena_cstr(a, x->name),
		.path = arena_cstr(a, x->path),
		.words = arena_cstr(a, x->words),
		.bytes = x->bytes,
		.used_ms = x->used_ms,
	};
}

void upkeep_found(struct upkeep_task *t, const struct upkeep_item *x)
{
	struct upkeep_view *v = &t->view;

	lock_take(&t->app->upkeep->lock);
	if (!t->want.dry_run)
		log_info("upkeep: %s: %s %s%s%s bytes=%" PRIu64 ": %s", kind_of(&t->want), x->kind,
		         x->name, x->path != NULL ? " " : "", x->path != NULL ? x->path : "",
		         x->bytes, x->words != NULL ? x->words : "removed");
	v->found++;
	v->found_bytes += x->bytes;
	if (v->n_items < UPKEEP_ITEMS_MAX)
		v->item[v->n_items++] = copy_item(t->a, x);
	lock_give(&t->app->upkeep->lock);
}

static void finish(struct upkeep_task *t, int r, const struct err *err)
{
	struct upkeep_view *v = &t->view;

	lock_take(&t->app->upkeep->lock);
	v->state = r == 0                      ? UPKEEP_DONE
	           : err->code == ERR_CANCELED ? UPKEEP_STOPPED
	                                       : UPKEEP_FAILED;
	v->error = v->state == UPKEEP_FAILED ? arena_cstr(t->a, err->msg) : NULL;
	v->ended_ms = clock_wall_ms();
	v->rate_bytes_s = 0;
	log_info("upkeep: over: kind=%s by=%s found=%" PRIu64 " bytes=%" PRIu64 "%s%s",
	         kind_of(&t->want), t->by, v->found, v->found_bytes, r < 0 ? " " : "",
	         r < 0 ? err->msg : "");
	lock_give(&t->app->upkeep->lock);
}

static void task_run(void *arg)
{
	struct upkeep_task *t = arg;
	struct err err = {0};
	int r;

	/* of this thread alone; not everywhere supported */
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
	r = t->want.verify ? upkeep_verify(t->app, t, &err) : upkeep_gc(t->app, t, &err);
	finish(t, r, &err);
}

static void task_free(struct upkeep_task *t)
{
	if (t != NULL)
		arena_free(t->a);
}

static struct upkeep_task *task_new(struct app *app, const char *by, const struct upkeep_want *want)
{
	struct arena *a = arena_new();
	struct upkeep_task *t = ARENA_NEW(a, struct upkeep_task);

	*t = (struct upkeep_task){
		.app = app,
		.a = a,
		.id = app_id(a, MODEL_ID_LEN),
		.by = arena_cstr(a, by),
		.want = *want,
		.begun_mono_ms = clock_mono_ms(),
		.view = {.started_ms = clock_wall_ms()},
	};
	t->view.item = ARENA_ARRAY(a, struct upkeep_item, UPKEEP_ITEMS_MAX);
	return t;
}

/* Under the lock. */
static void show(const struct upkeep_task *t, struct arena *a, struct upkeep_view *out)
{
	double seconds = (double)(clock_mono_ms() - t->begun_mono_ms) / 1000;

	*out = t->view;
	out->id = arena_cstr(a, t->id);
	out->by = arena_cstr(a, t->by);
	out->want = t->want;
	out->bytes_done = atomic_load(&t->bytes_done);
	out->bytes_total = atomic_load(&t->bytes_total);
	out->note = t->note[0] != '\0' ? arena_cstr(a, t->note) : NULL;
	out->error = arena_cstr(a, t->view.error);
	out->doing = NULL;
	if (out->state == UPKEEP_RUNNING) {
		out->doing = arena_cstr(a, t->doing);
		out->rate_bytes_s = seconds > 0 ? (double)out->bytes_done / seconds : 0;
		out->n_items = 0;
		return;
	}
	out->item = ARENA_ARRAY(a, struct upkeep_item, out->n_items + 1);
	for (size_t i = 0; i < out->n_items; i++)
		out->item[i] = copy_item(a, &t->view.item[i]);
}

/* Under the lock. */
static int begin(struct app *app, const struct principal *principal, const struct upkeep_want *want,
                 struct err *err)
{
	struct upkeep *u = app->upkeep;
	struct upkeep_task *t;

	if (u->pool == NULL)
		return err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
	if (u->task != NULL && u->task->view.state == UPKEEP_RUNNING)
		return err_set(err, ERR_CONFLICT,
		               "`stoker cache %s` of %s is running; only one can run at a time, "
		               "wait for it to end",
		               kind_of(&u->task->want), u->task->by);
	t = task_new(app, principal->name, want);
	if (workers_submit(u->pool, task_run, t, err) < 0) {
		task_free(t);
		return -1;
	}
	task_free(u->task);
	u->task = t;
	log_info("upkeep: begins: kind=%s by=%s", kind_of(want), principal->name);
	return 0;
}

int ctx_upkeep_begin(void *of, const struct principal *principal, struct arena *a,
                     const struct upkeep_want *want, struct upkeep_view *out, struct err *err)
{
	struct app *app = of;
	int r;

	if (ctx_need_all(principal, err) < 0)
		return -1;
	if (want->min_age_s < 0 || want->min_age_s > UPKEEP_AGE_MAX_S)
		return err_set(err, ERR_INVALID, "min_age_seconds: 0 to %lld", UPKEEP_AGE_MAX_S);
	lock_take(&app->upkeep->lock);
	r = begin(app, principal, want, err);
	if (r == 0)
		show(app->upkeep->task, a, out);
	lock_give(&app->upkeep->lock);
	return r;
}

/* id NULL: whichever it is. */
static int look(struct app *app, struct arena *a, const char *id, bool stop,
                struct upkeep_view *out, struct err *err)
{
	struct upkeep_task *t;
	int r = 0;

	lock_take(&app->upkeep->lock);
	t = app->upkeep->task;
	if (t == NULL || (id != NULL && strcmp(t->id, id) != 0)) {
		r = err_set(err, ERR_NOT_FOUND,
		            "no such upkeep: the server remembers only the last one, until it "
		            "restarts");
	} else {
		if (stop)
			atomic_store(&t->cancel, true);
		show(t, a, out);
	}
	lock_give(&app->upkeep->lock);
	return r;
}

int ctx_upkeep_show(void *of, const struct principal *principal, struct arena *a,
                    struct upkeep_view *out, struct err *err)
{
	return ctx_need_all(principal, err) < 0 ? -1 : look(of, a, NULL, false, out, err);
}

int ctx_upkeep_stop(void *of, const struct principal *principal, struct arena *a, const char *id,
                    struct upkeep_view *out, struct err *err)
{
	return ctx_need_all(principal, err) < 0 ? -1 : look(of, a, id, true, out, err);
}

void upkeep_start(struct app *app)
{
	app->upkeep = xcalloc(1, sizeof(*app->upkeep));
	lock_init(&app->upkeep->lock, LOCK_UPKEEP);
	app->upkeep->pool = workers_new(1, 1, "upkeep");
}

void upkeep_stop(struct app *app)
{
	struct workers *pool;

	assert(atomic_load(&app->stopping));
	lock_take(&app->upkeep->lock);
	pool = app->upkeep->pool;
	app->upkeep->pool = NULL;
	lock_give(&app->upkeep->lock);
	workers_stop(pool);
}

void upkeep_free(struct app *app)
{
	if (app->upkeep == NULL)
		return;
	workers_stop(app->upkeep->pool);
	task_free(app->upkeep->task);
	lock_done(&app->upkeep->lock);
	free(app->upkeep);
	app->upkeep = NULL;
}
