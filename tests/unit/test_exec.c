/*
 * test_exec.c - commands inside a job, as the server brings their two ends together: real
 * connections to a listener, the test is who started them and the runner.
 */
#include "server_fixture.h"

#include "io/line.h"

#define ARGV(...)                                                                                  \
	.argv = (const char *[]){__VA_ARGS__}, .n_argv = COUNT(((const char *[]){__VA_ARGS__}))

/* The listener of the ends: who may come is asked of the operations by the test. */

static void take_client(struct request *rq, struct upgraded *u)
{
	exec_ops.join(rq->ctx, arena_strz(rq->arena, rq->arg[0]), EXEC_CLIENT, u);
}

static void take_runner(struct request *rq, struct upgraded *u)
{
	exec_ops.join(rq->ctx, arena_strz(rq->arena, rq->arg[0]), EXEC_RUNNER, u);
}

static int client(struct request *rq, struct err *err UNUSED)
{
	return reply_upgrade(rq, EXEC_PROTOCOL, take_client);
}

static int runner(struct request *rq, struct err *err UNUSED)
{
	return reply_upgrade(rq, EXEC_PROTOCOL, take_runner);
}

static const struct route routes[] = {
	{HTTP_GET, SCOPE_OPEN, 0, "/client/{id}", client, ""},
	{HTTP_GET, SCOPE_OPEN, 0, "/runner/{id}", runner, ""},
};
static const struct face face = {"test", routes, COUNT(routes), NULL};
static const struct face *const faces[] = {&face};

struct world {
	struct fixture *f;
	struct model_job j;
	struct principal *w; /* the runner */
	const struct principal *client;
	struct httpd *h;
	struct http_client *c;
	const char *id; /* of the command */
	struct line end[2];
};

static void up(struct world *w, struct fixture *f)
{
	struct httpd_options o = {
		.address = "127.0.0.1:0", .faces = faces, .n_faces = 1, .ctx = f->app};
	char *id = NULL;

	*w = (struct world){.f = f, .end = {LINE_INIT, LINE_INIT}};
	w->w = fixture_running(f, "", "", &w->j);
	w->client = f->admin;
	assert_ok(httpd_start(&o, &w->h, &f->err), &f->err);
	w->c = http_client_new(&(struct http_policy){0});
	assert_ok(exec_ops.start(ADMIN(f), w->j.id, 0,
	                         &(struct wire_exec){ARGV("cat"), .input = true}, &id, &f->err),
	          &f->err);
	w->id = id;
}

static void down(struct world *w)
{
	line_done(&w->end[EXEC_CLIENT]);
	line_done(&w->end[EXEC_RUNNER]);
	http_client_free(w->c);
	httpd_stop(w->h);
	clock_fake(-1, -1);
}

static void come(struct world *w, enum exec_end which)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	bool is_client = which == EXEC_CLIENT;
	struct http_call call = {.url = arena_printf(w->f->a, "http://127.0.0.1:%u/%s/%s",
	                                             httpd_port(w->h),
	                                             is_client ? "client" : "runner", w->id)};
	struct upgrade *u = NULL;
	const struct ask *ask = AS(w->f, is_client ? w->client : w->w);

	assert_ok(exec_ops.may_join(ask, is_client ? w->j.id : NULL, w->id, &w->f->err),
	          &w->f->err);
	assert_ok(upgrade_open(w->c, &call, EXEC_PROTOCOL, &u, &reply, &w->f->err), &w->f->err);
	line_begin(&w->end[which], u);
}

/* Until it holds, while both ends do what they do. */
#define UNTIL(w, condition)                                                                        \
	do {                                                                                       \
		for (int tries_ = 0; !(condition); tries_++) {                                     \
			assert_true(tries_ < FIXTURE_WAIT_MS / 5);                                 \
			line_tend(&(w)->end[EXEC_CLIENT]);                                         \
			line_tend(&(w)->end[EXEC_RUNNER]);                                         \
			clock_sleep_ms(5);                                                         \
		}                                                                                  \
	} while (0)

static bool has(struct line *l, enum frame_kind kind, const char *words)
{
	enum frame_kind is;
	struct str bytes;

	return resumable_next(&l->r, &is, &bytes) && is == kind && str_eq(bytes, words);
}

static void both_ends_meet(void **state)
{
	struct fixture *f = *state;
	struct wire_desired before = {0}, o = {0};
	struct upgrade *old;
	struct world w;
	struct line *client_end = &w.end[EXEC_CLIENT], *runner_end = &w.end[EXEC_RUNNER];

	up(&w, f);
	assert_ok(runner_ops.desired(AS(f, w.w), &o, &f->err), &f->err);
	assert_int_equal(o.n_exec, 1);
	assert_string_equal(o.exec[0].id, w.id);
	assert_string_equal(o.exec[0].argv[0], "cat");
	come(&w, EXEC_CLIENT); /* whichever is first waits */
	resumable_put(&client_end->r, FRAME_IN, STR_LIT("to it"));
	come(&w, EXEC_RUNNER);
	before = o;
	assert_ok(runner_ops.desired(AS(f, w.w), &o, &f->err), &f->err);
	assert_true(o.n_exec == 0 && before.n_exec == 1); /* it is taken */
	UNTIL(&w, has(runner_end, FRAME_IN, "to it"));

	/* one that is cut comes again, and what was not used is there */
	line_cut(client_end);
	UNTIL(&w, runner_end->u == NULL);
	resumable_put(&runner_end->r, FRAME_OUT, STR_LIT("from it"));
	come(&w, EXEC_RUNNER);
	come(&w, EXEC_CLIENT);
	UNTIL(&w, has(client_end, FRAME_OUT, "from it"));
	assert_true(has(runner_end, FRAME_IN, "to it"));
	resumable_use(&runner_end->r, 5);
	resumable_use(&client_end->r, 7);
	UNTIL(&w, resumable_all_used(&runner_end->r) && resumable_all_used(&client_end->r));

	/* one that comes again before the server knows that it was cut takes the old one's place */
	old = client_end->u;
	client_end->u = NULL;
	come(&w, EXEC_CLIENT);
	UNTIL(&w, runner_end->u == NULL);
	upgrade_close(old);
	come(&w, EXEC_RUNNER);
	resumable_put(&runner_end->r, FRAME_EXIT, STR_LIT("\3"));
	UNTIL(&w, has(client_end, FRAME_EXIT, "\3"));
	resumable_use(&client_end->r, 1);
	UNTIL(&w, resumable_all_used(&runner_end->r));

	assert_ok(exec_ops.done(AS(f, w.w), w.id, &f->err), &f->err);
	UNTIL(&w, client_end->u == NULL);
	assert_err(exec_ops.may_join(ADMIN(f), w.j.id, w.id, &f->err), &f->err, ERR_CONFLICT,
	           "the command has ended");
	down(&w);
}

static void who_may_not_come(void **state)
{
	struct fixture *f = *state;
	struct principal other;
	struct world w;
	char *id = NULL;

	up(&w, f);
	assert_err(
		exec_ops.start(ADMIN(f), w.j.id, 3, &(struct wire_exec){ARGV("ls")}, &id, &f->err),
		&f->err, ERR_INVALID, "no node");
	assert_err(exec_ops.may_join(ADMIN(f), w.j.id, "none", &f->err), &f->err, ERR_NOT_FOUND,
	           "no such command");
	other = *w.w;
	other.attempt_id = "another";
	assert_err(exec_ops.may_join(AS(f, &other), NULL, w.id, &f->err), &f->err, ERR_NOT_FOUND,
	           "no such command");
	other = *w.w;
	other.node_rank++;
	assert_err(exec_ops.may_join(AS(f, &other), NULL, w.id, &f->err), &f->err, ERR_NOT_FOUND,
	           "");
	assert_err(exec_ops.done(AS(f, &other), w.id, &f->err), &f->err, ERR_NOT_FOUND, "");
	for (int i = 1; i < EXEC_NODE_MAX; i++)
		assert_ok(exec_ops.start(ADMIN(f), w.j.id, 0, &(struct wire_exec){ARGV("ls")}, &id,
		                         &f->err),
		          &f->err);
	assert_err(
		exec_ops.start(ADMIN(f), w.j.id, 0, &(struct wire_exec){ARGV("ls")}, &id, &f->err),
		&f->err, ERR_BUSY, "20 commands of this job already run on node 0");
	come(&w, EXEC_RUNNER);
	fixture_exit(f, w.w, JOB_END_EXIT, 0);
	UNTIL(&w, w.end[EXEC_RUNNER].u == NULL);
	assert_err(exec_ops.may_join(AS(f, w.w), NULL, w.id, &f->err), &f->err, ERR_CONFLICT,
	           "the job has ended");
	assert_err(
		exec_ops.start(ADMIN(f), w.j.id, 0, &(struct wire_exec){ARGV("ls")}, &id, &f->err),
		&f->err, ERR_JOB_NOT_RUNNING, "");
	down(&w);
}

static void who_is_silent_has_gone(void **state)
{
	struct fixture *f = *state;
	struct world w;
	char *id = NULL;

	up(&w, f);
	come(&w, EXEC_CLIENT);
	come(&w, EXEC_RUNNER);
	resumable_put(&w.end[EXEC_CLIENT].r, FRAME_IN, STR_LIT("x"));
	UNTIL(&w, has(&w.end[EXEC_RUNNER], FRAME_IN, "x")); /* they have met */
	clock_fake(clock_wall_ms(), clock_mono_ms() + EXEC_AWAY_MS + 1);
	for (int i = 0; w.end[EXEC_RUNNER].u != NULL; i++) { /* the other one says nothing */
		assert_true(i < FIXTURE_WAIT_MS / 5);
		line_tend(&w.end[EXEC_RUNNER]);
		clock_sleep_ms(5);
	}
	UNTIL(&w, w.end[EXEC_CLIENT].u == NULL);
	for (int i = 0; i < 2; i++) {
		const struct ask *ask = i == 0 ? ADMIN(f) : AS(f, w.w);

		assert_err(exec_ops.may_join(ask, i == 0 ? w.j.id : NULL, w.id, &f->err), &f->err,
		           ERR_CONFLICT, "silent for 20 s");
	}
	assert_ok(exec_ops.done(AS(f, w.w), w.id, &f->err), &f->err);
	assert_err(exec_ops.may_join(ADMIN(f), w.j.id, w.id, &f->err), &f->err, ERR_CONFLICT,
	           "silent for 20 s"); /* the reason stays */
	/* and a runner that never comes */
	assert_ok(
		exec_ops.start(ADMIN(f), w.j.id, 0, &(struct wire_exec){ARGV("ls")}, &id, &f->err),
		&f->err);
	w.id = id;
	resumable_done(&w.end[EXEC_CLIENT].r);
	w.end[EXEC_CLIENT] = (struct line)LINE_INIT;
	come(&w, EXEC_CLIENT);
	clock_fake(clock_wall_ms(), clock_mono_ms() + EXEC_TAKE_MS + 1);
	UNTIL(&w, w.end[EXEC_CLIENT].u == NULL);
	assert_err(exec_ops.may_join(ADMIN(f), w.j.id, w.id, &f->err), &f->err, ERR_CONFLICT,
	           "did not accept the command");
	down(&w);
}

/* A connection is good for as long as the token that its client came with. */
static void a_token_that_is_good_no_more(void **state)
{
	struct fixture *f = *state;
	struct model_token t = {0};
	struct principal who;
	struct world w;
	char *plain = NULL;

	up(&w, f);
	for (int i = 0; i < 2; i++) {
		char *id = NULL;

		assert_ok(token_ops.create(ADMIN(f), "of one", NULL, ROLE_MEMBER,
		                           clock_wall_ms() + 60000, &t, &plain, &f->err),
		          &f->err);
		who = *f->admin;
		who.token_id = t.id;
		who.expires_ms = t.expires_ms;
		w.client = &who;
		assert_ok(exec_ops.start(AS(f, &who), w.j.id, 0, &(struct wire_exec){ARGV("ls")},
		                         &id, &f->err),
		          &f->err);
		w.id = id;
		assert_err(exec_ops.may_join(ADMIN(f), w.j.id, id, &f->err), &f->err, ERR_NOT_FOUND,
		           "no such command"); /* it is another one's session */
		come(&w, EXEC_CLIENT);
		come(&w, EXEC_RUNNER);
		resumable_put(&w.end[EXEC_CLIENT].r, FRAME_IN, STR_LIT("x"));
		UNTIL(&w, has(&w.end[EXEC_RUNNER], FRAME_IN, "x")); /* they have met */
		if (i == 0)
			assert_ok(token_ops.remove(ADMIN(f), t.id, &f->err), &f->err);
		else
			clock_fake(t.expires_ms, clock_mono_ms());
		UNTIL(&w, w.end[EXEC_RUNNER].u == NULL && w.end[EXEC_CLIENT].u == NULL);
		assert_err(exec_ops.may_join(AS(f, w.w), NULL, w.id, &f->err), &f->err,
		           ERR_CONFLICT, "token");
		for (int end = 0; end < 2; end++) {
			line_done(&w.end[end]);
			w.end[end] = (struct line)LINE_INIT;
		}
	}
	down(&w);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(both_ends_meet),
	FIXTURE_TEST(who_may_not_come),
	FIXTURE_TEST(who_is_silent_has_gone),
	FIXTURE_TEST(a_token_that_is_good_no_more),
};

UNIT_MAIN(tests)
