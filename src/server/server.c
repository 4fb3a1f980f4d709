/* server.c - `stoker server`: start, listen, wait for a signal, drain. */
#include "server/server.h"
#include "io/proc.h"
#include "server/api/auth.h"
#include "server/api/object_rights.h"
#include "server/maintenance/check.h"
#include "server/control/deployments.h"
#include "server/control/inputs.h"
#include "server/data/hub.h"
#include "server/start/listener.h"
#include "server/control/live.h"
#include "server/data/log_store.h"
#include "server/start/parts.h"
#include "server/start/probe.h"
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/data/artifacts.h"
#include "server/start/standby.h"
#include "server/start/start.h"
#include "server/maintenance/move.h"

#include <signal.h>

/* The first one that a path fits has it: /deployments/raw/v1/models is no file of a repository
 * "deployments". */
static const struct face *const faces[] = {
	&face_training, &face_admin,       &face_graphql, &face_runner, &face_s3,       &face_meta,
	&face_artifact, &face_artifact_s3, &face_serving, &face_hub,    &face_identity,
};

void server_settings_reference(struct buf *out)
{
	settings_reference(out);
}

static const char *const scope_words[] = {
	[SCOPE_OPEN] = "open",        [SCOPE_RUNNER] = "runner", [SCOPE_READ] = "viewer, job",
	[SCOPE_PUSH] = "member, job", [SCOPE_VIEWER] = "viewer", [SCOPE_MEMBER] = "member",
	[SCOPE_ADMIN] = "admin",
};

struct reference {
	unsigned magic;
#define REFERENCE_MAGIC 0x56524546U
	struct buf *out;
	const struct face *face; /* of the last row */
};

static void route_row(const struct face *f, const struct route *r, void *arg)
{
	struct reference *ref = FROM_VOID(struct reference, arg, REFERENCE_MAGIC);

	if (ref->face != f)
		buf_printf(ref->out,
		           "\n## %s\n\n| method | path | who | what |\n|---|---|---|---|\n",
		           f->name);
	ref->face = f;
	buf_printf(ref->out, "| %s | `%s` | %s | %s |\n", http_method_name[r->method], r->pattern,
	           scope_words[r->scope], r->help);
}

void server_api_reference(struct buf *out)
{
	struct reference ref = {REFERENCE_MAGIC, out, NULL};

	buf_puts(out, "# The HTTP API\n\nPrinted by `make docs` from the table of routes. \"who\" "
	              "is the lowest role that"
	              " may call a route. Every error is `{\"message\", \"error\": {\"id\", "
	              "\"message\"}}`;"
	              " errors.md lists the ids. GraphQL, S3 and the Hub say them in their own "
	              "words.\n");
	httpd_each_route(faces, COUNT(faces), route_row, &ref);
}

/* Blocked in every thread; the main one waits for them. */
static void block_signals(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGIO, SIG_IGN); /* who opens a file that we have a lease of breaks it */
}

static bool knows_user(const void *arg, uid_t uid)
{
	const struct face_ctx *ctx = FROM_VOID(const struct face_ctx, arg, FACE_CTX_MAGIC);

	return app_is_runner(ctx->app, uid);
}

static int listen_http(struct app *app, int fd, struct httpd **out, struct err *err)
{
	struct httpd_options o = {
		.address = app->set.listen,
		.listen_fd = &fd,
		.local_path = app_path(app, app->arena, APP_SOCKET),
		.faces = faces,
		.n_faces = COUNT(faces),
		.ctx = &app->face,
		.authorize = auth_request,
		.knows_user = knows_user,
		.workers = (unsigned)app->set.workers,
		.per_address_max = (unsigned)app->set.connections_per_address,
		.tls_cert = app->set.tls_cert,
		.tls_key = app->set.tls_key,
	};

	app->face = (struct face_ctx){
		.magic = FACE_CTX_MAGIC,
		.ops = &ctx_ops,
		.app = app,
		.hub_regular_bytes = app->set.hub_regular,
		.url_access_key = app->url_access_key,
		.url_secret_key = app->url_secret_key,
		.objects = app->objects,
		.blobs = app->blobs,
		.logs = app->logs,
		.relay = app->relay,
		.bucket = APP_BUCKET,
		.base_url = app->base_url,
		.base_url_is_set = app->set.base_url != NULL,
		.tls = app->set.tls_cert != NULL,
		.proxies = app->proxies,
		.n_proxies = app->n_proxies,
	};
	return httpd_start(&o, out, err);
}

/* The rows are another server's now, and whatever this one believes may be old. So it ends as by
 * kill -9, which all of its parts are made for: nothing more is answered, launched or ended. */
static void step_down(void *arg)
{
	struct app *app = FROM_VOID(struct app, arg, APP_MAGIC);
	struct err err = {0};

	err_set(&err, ERR_DATABASE_IN_USE,
	        "another Stoker server leads now: this one ends; jobs "
	        "go on");
	log_error("%s", err.msg);
	listener_abandon(app);
	_exit(err_info(&err)->exit);
}

/* From the listener to the last thread's end. */
static int serve(struct app *app, const sigset_t *signals, struct err *err)
{
	const char *host = NULL;
	struct httpd *h = NULL;
	bool loopback = false;
	uint16_t port = 0;
	int sig = 0, fd = -1;

	if (app->listen_fd < 0 && listener_open(app, &app->listen_fd, err) < 0)
		return -1;
	fd = app->listen_fd; /* the listener's from here on */
	app->listen_fd = -1;
	if (settings_address(app->arena, app->set.listen, &host, &port, &loopback, err) < 0)
		return -1;
	start_urls(app, host, port);
	if (listen_http(app, fd, &h, err) < 0) {
		listener_close(app);
		return -1;
	}
	listener_keep(app);
	if (app_show_socket(app, APP_SOCKET, err) < 0 || object_passing_start(app, err) < 0) {
		listener_drain(app);
		httpd_stop(h);
		return -1;
	}
	if (port == 0) { /* it is a number now; nobody can have asked yet */
		port = httpd_port(h);
		start_urls(app, host, port);
		app->face.base_url = app->base_url;
	}
	if (start_announce(app, host, port, err) < 0) {
		listener_drain(app);
		object_passing_stop(app);
		httpd_stop(h);
		return -1;
	}
	atomic_store(&app->httpd, h);
	meta_lead_url(app->meta, app->base_url);
	meta_on_deposed(app->meta, step_down, app);
	reconcile_start(app);
	inputs_run(app);
	hub_run(app);
	artifacts_run(app);
	queue_run(app);
	loop_run(app->reconcile);
	loop_run(app->janitor);
	loop_run(app->notify);
	loop_run(app->objects_watch);
	live_run(app);
	deployments_run(app);
	(void)printf("listening on %s\n", app->local_url);
	(void)fflush(stdout);
	log_info("listening: url=%s data=%s pid=%d", app->base_url, app->data, (int)getpid());
	while (sigwait(signals, &sig) != 0)
		;
	log_info("%s: draining; jobs go on without the server", strsignal(sig));
	listener_drain(app);
	httpd_drain(h, (int64_t)app->set.grace * 1000);
	log_store_drain(app); /* what stops ends its calls of the store, too */
	atomic_store(&app->stopping, true);
	object_passing_stop(app);
	parts_stop(app);
	atomic_store(&app->httpd, NULL);
	httpd_stop(h);
	listener_close(app);
	log_store_stop(app);
	log_info("stopped");
	return 0;
}

static int run(struct app *app, const sigset_t *signals, struct err *err)
{
	bool leads = true;

	if (app->set.standby &&
	    (start_folder(app, err) < 0 || standby_wait(app, signals, &leads, err) < 0))
		return -1;
	if (!leads) {
		log_info("stopped");
		return 0;
	}
	if (start_open(app, err) < 0)
		return -1;
	if (app->set.check)
		return check_all(app, err);
	if ((app->sandbox == NULL && probe_sandbox(app, err) < 0) || log_store_start(app, err) < 0)
		return -1;
	parts_start(app);
	return serve(app, signals, err);
}

static bool asks_help(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	}
	return false;
}

int server_main(int argc, char **argv, struct err *err)
{
	AUTO_BUF struct buf help = BUF_INIT((size_t)1 << 20);
	AUTO_ARENA struct arena *a = arena_new();
	enum log_level level = LOG_INFO;
	struct app *app;
	sigset_t signals;
	int r;

	if (asks_help(argc, argv)) {
		settings_help(&help);
		return fputs(buf_cstr(&help), stdout) < 0 ? 1 : 0;
	}
	app = app_new(a);
	if (settings_load(a, argc, argv, &app->set, err) < 0 ||
	    log_level_parse(str_of(app->set.log_level), &level, err) < 0)
		return -1;
	log_init(level, app->set.log_json);
	if (app->set.move_database.n > 0)
		return server_move(a, &app->set, err);
	proc_guard();
	(void)umask(077); /* what lies in the data folder is this user's alone */
	block_signals(&signals);
	r = run(app, &signals, err);
	parts_free(app);
	log_store_free(app);
	start_close(app);
	return r;
}
