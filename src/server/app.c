/* app.c - the few words that all parts of the server use. */
#include "server/app.h"
#include "base/crash.h"
#include "base/reserve.h"
#include "core/id_range.h"

void app_log(struct app *app, const char *job_id, const char *fmt, ...)
{
	AUTO_BUF struct buf line = BUF_INIT(APP_LINE_MAX * 4);
	struct err err = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&line, fmt, ap);
	va_end(ap);
	if (joblogs_message(app->logs, job_id, clock_wall_ns(), buf_cstr(&line), &err) < 0)
		log_error("job log: job=%s %s", job_id, err.msg);
	app_notify(app, CHANNEL_JOB, job_id);
}

struct lock *app_stripe(struct lock locks[APP_STRIPES], const char *job_id)
{
	return &locks[hash_crc32(0, job_id, strlen(job_id)) % APP_STRIPES];
}

void app_notify(struct app *app, const char *kind, const char *id)
{
	struct httpd *h = atomic_load(&app->httpd);

	if (h != NULL)
		httpd_notify(h, httpd_channel(kind, str_of(id)));
}

void app_event(struct app *app, const char *job_id, const char *kind, const char *actor,
               const char *fmt, ...)
{
	AUTO_BUF struct buf text = BUF_INIT(APP_LINE_MAX * 4);
	struct model_event e = {.ms = clock_wall_ms(), .kind = kind, .actor = actor};
	struct err err = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	e.message = buf_cstr(&text);
	if (meta_event_add(app->meta, job_id, &e, &err) < 0)
		log_error("event: job=%s %s", job_id, err.msg);
	app_notify(app, CHANNEL_JOB, job_id);
}

void app_crash_at(const char *label)
{
	crash_at(label, 9);
}

/* A socket has no other way to be in two folders than two names. */
int app_show_socket(struct app *app, const char *name, struct err *err)
{
	AUTO_FREE char *from = xasprintf("%s/%s", app->data, name),
		       *to = xasprintf("%s/" APP_SOCKETS "/%s", app->data, name);

	if (unlink(to) < 0 && errno != ENOENT)
		return err_errno(err, errno, "%s", to);
	return link(from, to) < 0 ? err_errno(err, errno, "%s", to) : 0;
}

bool app_runners_give_up_root(const struct app *app)
{
	return app->ids_mode != NULL && strcmp(app->ids_mode, WIRE_IDS_OWN) == 0;
}

uid_t app_store_owner(const struct app *app)
{
	return app_runners_give_up_root(app) ? id_range_store(app->ids_first, app->ids_span) : 0;
}

bool app_is_runner(const struct app *app, uid_t uid)
{
	uid_t range;

	if (app->ids_span <= 1 || uid < app->ids_first || uid > app->ids_last)
		return false;
	range = uid - (uid - app->ids_first) % app->ids_span;
	return uid == id_range_runner(range, app->ids_span) ||
	       uid == id_range_keeper(app->ids_first, app->ids_span);
}

char *app_path(struct app *app, struct arena *a, const char *below)
{
	return arena_printf(a, "%s/%s", app->data, below);
}

int app_may_remove(const struct app *app, struct err *err)
{
	return meta_unheard(app->meta)
	               ? err_set(err, ERR_DATABASE_UNAVAILABLE,
	                         "the database does not answer: nothing is removed until it does")
	               : 0;
}

#define MAKE_ROOM "with `stoker stop`, `checkpoints rm`, `cache rm` or `weights rm`"

static bool lacks_inodes(const struct app *app)
{
	uint64_t total, left;

	return fs_inodes(app->data, &total, &left) && left < APP_INODES;
}

const char *app_lacks(const struct app *app)
{
	uint64_t total = 0, left = 0;
	struct err ignored = {0};

	if (lacks_inodes(app))
		return "inodes";
	if (fs_free_bytes(app->data, &left, &total, &ignored) == 0 && total > 0 && left < APP_BYTES)
		return "space";
	return NULL;
}

int app_has_room(struct app *app, struct err *err)
{
	uint64_t avail = 0, total = 0;

	if (lacks_inodes(app))
		return err_set(err, ERR_NO_SPACE,
		               "the disk of the data folder has fewer than %d inodes left; make "
		               "room " MAKE_ROOM,
		               APP_INODES);
	if (reserve_whole())
		return 0;
	if (fs_free_bytes(app->data, &avail, &total, err) < 0)
		return -1;
	return err_set(err, ERR_NO_SPACE,
	               "the disk of the data folder is full: %" PRIu64 " MiB are free, and %" PRIu64
	               " are required before new work starts; make room " MAKE_ROOM,
	               avail >> 20, (RESERVE_BYTES + RESERVE_MARGIN) >> 20);
}

int app_pwrite(int fd, const void *p, size_t n, uint64_t at, struct err *err)
{
	if (fs_pwrite_all(fd, p, n, at, err) == 0)
		return 0;
	if (err->code != ERR_NO_SPACE)
		return -1;
	err_clear(err);
	return err_set(err, ERR_NO_SPACE,
	               "the disk of the server's data folder is full: an administrator can make "
	               "room " MAKE_ROOM);
}

char *app_id(struct arena *a, size_t n)
{
	char *id = arena_alloc(a, n + 1);

	seal_id(id, n);
	return id;
}

bool app_same(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return strcmp(a, b) == 0;
}

bool app_is_here(const struct app *app, const char *node_id, const char *node)
{
	return node_id != NULL ? app_same(node_id, app->node_id) : app_same(node, app->node_name);
}

struct app *app_new(struct arena *a)
{
	struct app *app = ARENA_NEW(a, struct app);

	app->magic = APP_MAGIC;
	app->arena = a;
	app->listen_fd = -1;
	return app;
}

struct loop {
	unsigned magic;
#define LOOP_MAGIC 0x534c4f4fU
	struct app *app;
	void (*fn)(struct app *app);
	int64_t period_ms;
	pthread_t thread;
	struct lock lock;
	struct cond wake, over;
	uint64_t begun, ended; /* runs of fn; they differ while one is under way */
	bool kicked, stop, runs;
};

static void *loop_thread(void *arg)
{
	struct loop *l = FROM_VOID(struct loop, arg, LOOP_MAGIC);

	lock_take(&l->lock);
	while (!l->stop) {
		int64_t until;

		l->kicked = false;
		l->begun++;
		lock_give(&l->lock);
		l->fn(l->app);
		until = sync_deadline(l->period_ms);
		lock_take(&l->lock);
		l->ended = l->begun;
		cond_broadcast(&l->over);
		while (!l->kicked && !l->stop) {
			if (!cond_wait_until(&l->wake, &l->lock, until))
				break;
		}
	}
	lock_give(&l->lock);
	return NULL;
}

struct loop *loop_new(struct app *app, void (*fn)(struct app *app), int64_t period_ms)
{
	struct loop *l = xcalloc(1, sizeof(*l));

	l->magic = LOOP_MAGIC;
	l->app = app;
	l->fn = fn;
	l->period_ms = period_ms;
	lock_init(&l->lock, LOCK_LOOP);
	cond_init(&l->wake);
	cond_init(&l->over);
	return l;
}

void loop_run(struct loop *l)
{
	if (l == NULL)
		return;
	lock_take(&l->lock);
	assert(!l->runs);
	l->runs = true;
	lock_give(&l->lock);
	if (pthread_create(&l->thread, NULL, loop_thread, l) != 0)
		abort(); /* at start, and out of threads: there is no server without its loops */
}

void loop_kick(struct loop *l)
{
	if (l == NULL)
		return;
	lock_take(&l->lock);
	l->kicked = true;
	cond_signal(&l->wake);
	lock_give(&l->lock);
}

bool loop_kick_wait(struct loop *l, int64_t max_ms)
{
	int64_t until = sync_deadline(max_ms);
	uint64_t mine;
	bool seen;

	if (l == NULL)
		return false;
	lock_take(&l->lock);
	mine = l->begun + 1; /* one that is under way may have read its facts before the change */
	l->kicked = true;
	cond_signal(&l->wake);
	while (l->runs && !l->stop && l->ended < mine) {
		if (!cond_wait_until(&l->over, &l->lock, until))
			break;
	}
	seen = l->ended >= mine;
	lock_give(&l->lock);
	return seen;
}

void loop_stop(struct loop *l)
{
	if (l == NULL || !l->runs)
		return;
	lock_take(&l->lock);
	l->stop = true;
	cond_signal(&l->wake);
	cond_broadcast(&l->over);
	lock_give(&l->lock);
	(void)pthread_join(l->thread, NULL);
	l->runs = false;
}

void loop_free(struct loop *l)
{
	if (l == NULL)
		return;
	loop_stop(l);
	lock_done(&l->lock);
	cond_done(&l->wake);
	cond_done(&l->over);
	free(l);
}
