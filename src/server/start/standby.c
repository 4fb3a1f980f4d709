/* standby.c - see standby.h. */
#include "server/start/standby.h"
#include "face/standby.h"
#include "server/start/listener.h"
#include "server/start/objects.h"
#include "server/start/probe.h"
#include "server/start/start.h"

_Static_assert(LEAD_UNHEARD_MS < STANDBY_STILL_MS, "a leader that is cut off says so in time");

struct standby {
	unsigned magic;
#define STANDBY_MAGIC 0x56535441U
	struct app *app;
	struct meta *watch; /* NULL: the database was not reached yet */
	bool fits;          /* the key and the objects were looked at */
	struct standby_ctx ctx;
	struct lock lock; /* of the view */
	struct standby_view view;
	struct lead seen;
	int64_t since_ms; /* when `seen` was seen first; 0: nothing was */
	int64_t asked_ms; /* the last time */
	/* Nobody leads, and this one cannot: why, as it was said. "": it has not been tried, or
	 * what was seen is another state by now. */
	char stuck[ERR_MSG_MAX];
};

static void show(void *of, struct standby_view *out)
{
	struct standby *s = FROM_VOID(struct standby, of, STANDBY_MAGIC);

	lock_take(&s->lock);
	*out = s->view;
	lock_give(&s->lock);
}

static void set_view(struct standby *s, bool away, const char *leader)
{
	bool other;

	lock_take(&s->lock);
	other = s->view.database_away != away;
	s->view.database_away = away;
	if (leader != NULL)
		copy_cut(s->view.leader, sizeof(s->view.leader), leader);
	lock_give(&s->lock);
	if (other && away)
		log_warn("standby: the database does not answer");
	else if (other)
		log_info("standby: the database answers");
}

/* The database is away: that says nothing about the leader. */
static int forgive(struct standby *s, struct err *err)
{
	if (err->id != ERR_DATABASE_UNAVAILABLE)
		return -1;
	err_clear(err);
	s->since_ms = 0;
	set_view(s, true, NULL);
	return 0;
}

static int ask(struct standby *s, struct lead *now, struct err *err)
{
	struct app *app = s->app;

	if (s->watch == NULL && meta_open_to_watch(&s->watch, app->set.database, err) < 0)
		return -1;
	if (meta_lead(s->watch, now, err) < 0)
		return -1;
	if (s->fits || !now->made || now->version == 0)
		return 0;
	return start_key_fits(app, s->watch, err) < 0 ? -1
	                                              : objects_fit(app, s->watch, &s->fits, err);
}

static bool is_still(const struct lead *a, const struct lead *b)
{
	return a->made == b->made && strcmp(a->name, b->name) == 0 && a->beat == b->beat;
}

/* Asks once. True: nobody leads. */
static bool look(struct standby *s, struct err *err)
{
	int64_t began_ms = clock_mono_ms(), now_ms, last_ms = s->asked_ms;
	struct lead now = {0};
	bool quick;

	if (ask(s, &now, err) < 0)
		return false;
	now_ms = clock_mono_ms();
	s->asked_ms = now_ms;
	quick = now_ms - began_ms < STANDBY_QUICK_MS &&
	        began_ms - last_ms < STANDBY_QUICK_MS + STANDBY_PERIOD_MS;
	if (!is_still(&now, &s->seen))
		s->stuck[0] = '\0';
	if (s->since_ms == 0 || !quick || !is_still(&now, &s->seen))
		s->since_ms = now_ms;
	s->seen = now;
	set_view(s, false, now.url);
	if (now.made && now.name[0] == '\0' && now.session == 0)
		return true; /* it has left in order */
	return now_ms - s->since_ms >= STANDBY_STILL_MS;
}

/* The database answers, but takes no writes, for one: it is tried again, and said once. */
static int cannot_lead(struct standby *s, struct err *err)
{
	if (err->id != ERR_DATABASE_UNAVAILABLE)
		return -1;
	if (strcmp(s->stuck, err->msg) != 0)
		log_warn("standby: nobody leads, and this server cannot: %s", err->msg);
	copy_cut(s->stuck, sizeof(s->stuck), err->msg);
	err_clear(err);
	s->since_ms = 0;
	return 0;
}

/* *leads false: another one was first, or lives after all, or nobody can. */
static int take_over(struct standby *s, bool *leads, struct err *err)
{
	struct app *app = s->app;

	if (s->stuck[0] == '\0')
		log_warn("standby: nobody leads: taking over");
	if (s->seen.session != 0 && meta_end_lead(s->watch, &s->seen, err) < 0) {
		if (err->code != ERR_DENIED)
			return cannot_lead(s, err);
		log_error("standby: the session of the dead leader cannot be ended, which takes "
		          "the same role of the database, or pg_signal_backend: %s",
		          err->msg);
		err_clear(err);
	}
	if (meta_open(&app->meta, app->set.database, err) == 0) {
		if (s->stuck[0] != '\0')
			log_warn("standby: nobody led until now: this server can, and does");
		*leads = true;
		return 0;
	}
	if (err->id != ERR_DATABASE_IN_USE)
		return cannot_lead(s, err);
	s->stuck[0] = '\0';
	log_info("standby: another server leads: %s", err->msg);
	err_clear(err);
	s->since_ms = 0;
	return 0;
}

static bool told_to_end(const sigset_t *signals)
{
	const struct timespec pause = {.tv_nsec = (long)STANDBY_PERIOD_MS * 1000000};

	return sigtimedwait(signals, NULL, &pause) > 0;
}

static int watch(struct standby *s, const sigset_t *signals, bool *leads, struct err *err)
{
	while (!*leads && !told_to_end(signals)) {
		bool alone = look(s, err);

		if (err->code == ERR_NONE && alone)
			(void)(take_over(s, leads, err) < 0);
		if (err->code != ERR_NONE && forgive(s, err) < 0)
			return -1;
	}
	return 0;
}

static int listen_here(struct standby *s, struct httpd **out, struct err *err)
{
	static const struct face *const faces[] = {&face_standby};
	struct app *app = s->app;
	struct httpd_options o = {
		.address = app->set.listen,
		.faces = faces,
		.n_faces = COUNT(faces),
		.ctx = &s->ctx,
		.per_address_max = (unsigned)app->set.connections_per_address,
		.tls_cert = app->set.tls_cert,
		.tls_key = app->set.tls_key,
		.handles_to_the_end = true, /* what takes over is not shutting down */
	};
	const char *host = NULL;
	bool loopback = false;
	uint16_t port = 0;
	int copy;

	if (listener_open(app, &app->listen_fd, err) < 0 ||
	    settings_address(app->arena, app->set.listen, &host, &port, &loopback, err) < 0)
		return -1;
	copy = fcntl(app->listen_fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return err_errno(err, errno, "the listening socket");
	o.listen_fd = &copy;
	if (httpd_start(&o, out, err) < 0)
		return -1;
	start_urls(app, host, httpd_port(*out));
	(void)printf("standing by on %s\n", app->local_url);
	(void)fflush(stdout);
	log_info("standing by: url=%s data=%s pid=%d", app->base_url, app->data, (int)getpid());
	return 0;
}

/* The socket itself stays open: who comes while the leader's listener starts waits for it. */
static void listen_no_more(struct standby *s, struct httpd *h, bool leads)
{
	struct app *app = s->app;

	httpd_drain(h, 0);
	httpd_stop(h);
	if (leads)
		return;
	listener_drain(app);
	listener_close(app);
	(void)close(app->listen_fd);
	app->listen_fd = -1;
}

int standby_wait(struct app *app, const sigset_t *signals, bool *leads, struct err *err)
{
	struct standby s = {.magic = STANDBY_MAGIC, .app = app};
	struct httpd *h = NULL;
	int r;

	*leads = false;
	s.ctx = (struct standby_ctx){STANDBY_CTX_MAGIC, show, &s};
	if (start_key(app, err) < 0)
		return -1;
	lock_init(&s.lock, LOCK_STANDBY);
	r = listen_here(&s, &h, err);
	if (r == 0)
		r = probe_sandbox(app, err); /* so that a takeover need not */
	if (r == 0)
		r = watch(&s, signals, leads, err);
	if (h != NULL)
		listen_no_more(&s, h, *leads);
	meta_close(s.watch);
	lock_done(&s.lock);
	return r;
}
