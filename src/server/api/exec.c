/* exec.c - the table of commands inside sandboxes. */
#include "server/api/exec.h"

#include "core/resumable.h"
#include "server/api/ctx.h"

#include <sys/queue.h>

struct exec {
	struct arena *a;
	const char *id, *job_id, *attempt_id;
	struct wire_exec what;
	uint32_t rank;
	uint64_t generation;
	enum wire_exec_state state;
	bool taken; /* its runner has spoken of it */
	bool away;  /* hung up because nothing was heard of who started it */
	int exit_code;
	struct resumable out, in; /* frames */
	uint64_t input;           /* bytes of input that were taken: `in` holds them as frames */
	bool input_ended;
	int64_t started_ms, client_ms, touched_ms;
	TAILQ_ENTRY(exec) link;
};

struct execs {
	struct lock lock;
	TAILQ_HEAD(exec_list, exec) all;
	size_t n;
	uint64_t generation;
};

/* Where a command can go from here. Who has left it may still hang it up. */
#define TO(s) (1U << (s))
static const unsigned exec_next[EXEC_STATE_COUNT] = {
	[EXEC_LIVE] = TO(EXEC_HUNG) | TO(EXEC_LEFT) | TO(EXEC_OVER),
	[EXEC_HUNG] = TO(EXEC_OVER),
	[EXEC_LEFT] = TO(EXEC_LEFT) | TO(EXEC_HUNG) | TO(EXEC_OVER),
};

/* The only way from one state to the next, with the lock. */
static void exec_to(struct exec *e, enum wire_exec_state to)
{
	assert(to < EXEC_STATE_COUNT && (exec_next[e->state] & TO(to)) != 0);
	e->state = to;
}

/* What is true whenever the lock is free. */
static void execs_check(const struct execs *all)
{
	assert(lock_is_mine(&all->lock) && all->n <= EXEC_MAX);
	assert((all->n == 0) == TAILQ_EMPTY(&all->all));
}

/* And of a command in the table. */
static void exec_check(const struct execs *all, const struct exec *e)
{
	execs_check(all);
	assert(e->state < EXEC_STATE_COUNT && e->generation <= all->generation);
	assert(!e->away || e->state == EXEC_HUNG || e->state == EXEC_OVER);
	assert(!e->in.b.full && !e->out.b.full); /* nothing of a stream is ever dropped */
	assert(!e->input_ended || e->what.input);
}

void exec_start(struct app *app)
{
	app->execs = xcalloc(1, sizeof(*app->execs));
	lock_init(&app->execs->lock, LOCK_EXEC);
	TAILQ_INIT(&app->execs->all);
	/* Higher than any of an earlier life of the server, so that runners see a change. */
	app->execs->generation = (uint64_t)clock_wall_ms();
}

static void drop(struct execs *all, struct exec *e)
{
	assert(all->n > 0);
	TAILQ_REMOVE(&all->all, e, link);
	all->n--;
	resumable_done(&e->out);
	resumable_done(&e->in);
	arena_free(e->a);
	free(e);
}

void exec_stop(struct app *app)
{
	struct execs *all = app->execs;

	if (all == NULL)
		return;
	while (!TAILQ_EMPTY(&all->all))
		drop(all, TAILQ_FIRST(&all->all));
	lock_done(&all->lock);
	free(all);
	app->execs = NULL;
}

void exec_sweep(struct app *app)
{
	struct execs *all = app->execs;
	struct exec *e, *next;
	int64_t now = clock_mono_ms();

	lock_take(&all->lock);
	execs_check(all);
	for (e = TAILQ_FIRST(&all->all); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->state == EXEC_OVER && now - e->touched_ms > EXEC_KEEP_MS)
			drop(all, e);
	}
	execs_check(all);
	lock_give(&all->lock);
}

static struct exec *find(struct execs *all, const char *id)
{
	struct exec *e;

	TAILQ_FOREACH(e, &all->all, link)
	{
		if (strcmp(e->id, id) == 0)
			return e;
	}
	return NULL;
}

/* Records the end, with a message if there is one. */
static void finish(struct exec *e, int exit_code, const char *words)
{
	if (words != NULL)
		frame_put(&e->out.b, FRAME_ERR, str_of(words));
	resumable_skip(&e->in, 0);
	exec_to(e, EXEC_OVER);
	e->exit_code = exit_code;
	e->touched_ms = clock_mono_ms();
}

static void notify_all(struct app *app, const char *id)
{
	app_notify(app, CHANNEL_EXEC, id);
	app_notify(app, CHANNEL_EXEC_IN, id);
	app_notify(app, CHANNEL_EXEC_ROOM, id);
}

/* Nobody reads what it prints any more. */
static void abandon(struct exec *e, enum wire_exec_state how)
{
	exec_to(e, how);
	resumable_skip(&e->out, 0);
}

static const struct wire_exec *copy_of(const struct wire_exec *x, const char *id, struct arena *a)
{
	struct wire_exec *c = arena_alloc(a, sizeof(*c));

	*c = *x;
	c->id = arena_cstr(a, id);
	c->term = x->term == NULL ? NULL : arena_cstr(a, x->term);
	c->argv = ARENA_ARRAY(a, const char *, x->n_argv + 1);
	for (size_t i = 0; i < x->n_argv; i++)
		c->argv[i] = arena_cstr(a, x->argv[i]);
	return c;
}

void exec_desired(struct app *app, struct arena *a, const char *attempt_id, uint32_t rank,
                  struct wire_desired *out, uint64_t *generation)
{
	struct execs *all = app->execs;
	struct exec *e;

	*generation = 0;
	out->exec = ARENA_ARRAY(a, struct wire_exec, EXEC_MAX);
	lock_take(&all->lock);
	TAILQ_FOREACH(e, &all->all, link)
	{
		if (e->rank != rank || strcmp(e->attempt_id, attempt_id) != 0)
			continue;
		*generation = MAX(*generation, e->generation);
		if (!e->taken && e->state != EXEC_OVER && out->n_exec < EXEC_MAX)
			out->exec[out->n_exec++] = *copy_of(&e->what, e->id, a);
	}
	lock_give(&all->lock);
}

void exec_attempt_over(struct app *app, const char *attempt_id)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct execs *all = app->execs;
	const char *ids[EXEC_MAX];
	size_t n = 0;
	struct exec *e;

	lock_take(&all->lock);
	TAILQ_FOREACH(e, &all->all, link)
	{
		if (e->state == EXEC_OVER || strcmp(e->attempt_id, attempt_id) != 0)
			continue;
		finish(e, EXEC_LOST_CODE, "stoker: the job has ended\n");
		assert(n < EXEC_MAX);
		ids[n++] = arena_cstr(a, e->id);
	}
	lock_give(&all->lock);
	for (size_t i = 0; i < n; i++)
		notify_all(app, ids[i]);
}

/* True when it is in: without room, the one that ended first makes it. */
static bool insert(struct execs *all, struct exec *e)
{
	struct exec *old;

	if (all->n >= EXEC_MAX) {
		TAILQ_FOREACH(old, &all->all, link)
		{
			if (old->state == EXEC_OVER)
				break;
		}
		if (old == NULL)
			return false;
		drop(all, old);
	}
	e->generation = ++all->generation;
	TAILQ_INSERT_TAIL(&all->all, e, link);
	all->n++;
	return true;
}

static int start_command(const struct ask *ask, const char *job_id, uint32_t rank,
                         const struct wire_exec *what, char **exec_id, struct err *err)
{
	struct app *app = ask->app;
	struct execs *all = app->execs;
	struct model_job job = {0};
	struct exec *e;
	bool in;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0)
		return -1;
	if (job.core.state != JOB_RUNNING)
		return err_set(err, ERR_JOB_NOT_RUNNING, "job %s is not running", job_id);
	if (rank >= job.node_count)
		return err_set(err, ERR_INVALID, "job %s has no node %u", job_id, rank);
	if (what->n_argv > EXEC_ARGS_MAX || (what->n_argv == 0 && !what->input))
		return err_set(err, ERR_INVALID, "a command has 1 to %d words", EXEC_ARGS_MAX);
	e = xcalloc(1, sizeof(*e));
	e->a = arena_new();
	e->id = app_id(e->a, 12);
	e->job_id = arena_cstr(e->a, job_id);
	e->attempt_id = arena_cstr(e->a, job.attempt_id);
	e->what = *copy_of(what, e->id, e->a);
	e->rank = rank;
	e->out = e->in = (struct resumable)RESUMABLE_INIT;
	e->out.b.max = e->in.b.max = 2 * RESUMABLE_MAX; /* the heads of frames, and last words */
	e->started_ms = e->client_ms = e->touched_ms = clock_mono_ms();
	*exec_id = arena_cstr(ask->a, e->id);
	lock_take(&all->lock);
	in = insert(all, e);
	if (in)
		exec_check(all, e);
	lock_give(&all->lock);
	if (!in) {
		arena_free(e->a);
		free(e);
		return err_set(err, ERR_BUSY, "%d commands are already running", EXEC_MAX);
	}
	app_event(app, job_id, "exec", ask->principal->name, "exec on node %u: %s", rank,
	          what->n_argv > 0 ? what->argv[0] : "a shell");
	app_notify(app, CHANNEL_DESIRED, job.attempt_id);
	return 0;
}

/* The command, if the caller may run commands in its job. On success the lock is held. */
static struct exec *take(const struct ask *ask, const char *job_id, const char *exec_id,
                         struct err *err)
{
	struct app *app = ask->app;
	struct model_job job = {0};
	struct exec *e;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0)
		return NULL;
	lock_take(&app->execs->lock);
	e = find(app->execs, exec_id);
	if (e == NULL || strcmp(e->job_id, job_id) != 0) {
		lock_give(&app->execs->lock);
		(void)err_set(err, ERR_NOT_FOUND,
		              "no such command in this job; if the server restarted, the command "
		              "was ended");
		return NULL;
	}
	exec_check(app->execs, e);
	e->client_ms = clock_mono_ms();
	if (!e->away)
		return e;
	lock_give(&app->execs->lock);
	(void)err_set(err, ERR_CONFLICT, "the client was silent for %d s, so the command was ended",
	              EXEC_AWAY_MS / 1000);
	return NULL;
}

static int poll_command(const struct ask *ask, const char *job_id, const char *exec_id,
                        uint64_t offset, struct exec_state *out, struct err *err)
{
	struct app *app = ask->app;
	struct exec *e = take(ask, job_id, exec_id, err);
	uint64_t before;
	struct str frames;
	bool room;
	int r;

	if (e == NULL)
		return -1;
	if (!e->taken && e->state != EXEC_OVER && e->client_ms - e->started_ms > EXEC_TAKE_MS)
		finish(e, EXEC_LOST_CODE,
		       "stoker: the job's runner did not accept the command; is its node up?\n");
	before = e->out.at;
	r = resumable_read(&e->out, offset, &frames, err);
	room = e->out.at > before;
	if (r == 0) {
		out->done = e->state == EXEC_OVER;
		out->exit_code = e->exit_code;
		out->frames = arena_str(ask->a, frames);
		out->next_offset = resumable_end(&e->out);
	}
	exec_check(app->execs, e);
	lock_give(&app->execs->lock);
	if (room)
		app_notify(app, CHANNEL_EXEC_ROOM, exec_id);
	return r;
}

/* As frames, what is new of it. */
static int add_input(struct exec *e, const struct exec_input *in, struct err *err)
{
	struct resumable *f = &e->in;
	struct str fresh;

	if (in->bytes.n > 0 && !e->what.input)
		return err_set(err, ERR_CONFLICT, "this command was started without input");
	if (in->offset > e->input)
		return err_set(err, ERR_CONFLICT,
		               "offset: %" PRIu64 " is too far, go on from %" PRIu64, in->offset,
		               e->input);
	fresh = str_skip(in->bytes, (size_t)MIN(e->input - in->offset, (uint64_t)in->bytes.n));
	if (f->b.n + fresh.n > RESUMABLE_MAX)
		return 0;
	if (in->rows > 0 && e->what.tty)
		frame_put_size(&f->b, in->rows, in->columns);
	if (fresh.n > 0 && !e->input_ended)
		frame_put(&f->b, FRAME_IN, fresh);
	e->input += fresh.n;
	if (in->end && e->what.input && !e->input_ended) {
		frame_put(&f->b, FRAME_END, (struct str){0});
		e->input_ended = true;
	}
	return 0;
}

static int give_input(const struct ask *ask, const char *job_id, const char *exec_id,
                      const struct exec_input *in, uint64_t *next, struct err *err)
{
	struct app *app = ask->app;
	struct exec *e = take(ask, job_id, exec_id, err);
	size_t before;
	bool more;
	int r = 0;

	if (e == NULL)
		return -1;
	before = e->in.b.n;
	*next = in->offset + in->bytes.n; /* when it is over: nobody reads it */
	if (e->state == EXEC_LIVE) {
		r = add_input(e, in, err);
		*next = MAX(e->input, in->offset);
	}
	more = e->in.b.n > before;
	exec_check(app->execs, e);
	lock_give(&app->execs->lock);
	if (more)
		app_notify(app, CHANNEL_EXEC_IN, exec_id);
	return r;
}

static int leave_command(const struct ask *ask, const char *job_id, const char *exec_id,
                         enum wire_exec_state how, struct err *err)
{
	struct app *app = ask->app;
	struct exec *e = take(ask, job_id, exec_id, err);

	if (e == NULL)
		return -1;
	if (e->state != EXEC_OVER && e->state != EXEC_HUNG)
		abandon(e, how);
	exec_check(app->execs, e);
	lock_give(&app->execs->lock);
	notify_all(app, exec_id);
	return 0;
}

/* The command, if it belongs to the attempt and node that asks. On success the lock is held. */
static struct exec *take_own(const struct ask *ask, const char *exec_id, struct err *err)
{
	struct execs *all = ask->app->execs;
	int64_t now = clock_mono_ms();
	struct exec *e;

	lock_take(&all->lock);
	e = find(all, exec_id);
	if (e == NULL || strcmp(e->attempt_id, ask->principal->attempt_id) != 0 ||
	    e->rank != ask->principal->node_rank) {
		lock_give(&all->lock);
		(void)err_set(err, ERR_NOT_FOUND, "no such command");
		return NULL;
	}
	exec_check(all, e);
	e->taken = true;
	e->touched_ms = now;
	if (e->state == EXEC_LIVE && now - e->client_ms > EXEC_AWAY_MS) {
		abandon(e, EXEC_HUNG);
		e->away = true;
	}
	return e;
}

/* Only output frames are accepted: they are shown on a terminal. */
static bool is_output(struct str frames)
{
	enum frame_kind kind;
	struct str bytes;

	while (frame_next(&frames, &kind, &bytes)) {
		if (kind != FRAME_OUT && kind != FRAME_ERR)
			return false;
	}
	return frames.n == 0;
}

static int take_output(const struct ask *ask, const char *exec_id, uint64_t offset,
                       struct str frames, int exit_code, uint64_t *next,
                       enum wire_exec_state *state, struct err *err)
{
	struct app *app = ask->app;
	struct exec *e;
	int r = 0;

	if (!is_output(frames))
		return err_set(err, ERR_INVALID, "invalid output frames");
	e = take_own(ask, exec_id, err);
	if (e == NULL)
		return -1;
	*next = offset + frames.n;
	if (e->state == EXEC_LIVE)
		r = resumable_put(&e->out, offset, frames, next, err);
	else if (e->state != EXEC_OVER)
		resumable_skip(&e->out, *next);
	if (r == 0 && exit_code >= 0 && *next == offset + frames.n && e->state != EXEC_OVER)
		finish(e, exit_code, NULL);
	*state = e->state;
	exec_check(app->execs, e);
	lock_give(&app->execs->lock);
	if (r == 0)
		app_notify(app, CHANNEL_EXEC, exec_id);
	if (*state == EXEC_OVER)
		notify_all(app, exec_id);
	return r;
}

static int hand_input(const struct ask *ask, const char *exec_id, uint64_t offset,
                      struct str *frames, enum wire_exec_state *state, struct err *err)
{
	struct app *app = ask->app;
	struct exec *e = take_own(ask, exec_id, err);
	uint64_t before;
	struct str there = {0};
	int r = 0;
	bool room;

	if (e == NULL)
		return -1;
	before = e->in.at;
	if (e->state == EXEC_LIVE)
		r = resumable_read(&e->in, offset, &there, err);
	*frames = arena_str(ask->a, there);
	*state = e->state;
	room = e->in.at > before;
	lock_give(&app->execs->lock);
	if (room)
		app_notify(app, CHANNEL_EXEC_ROOM, exec_id);
	return r;
}

const struct exec_ops exec_ops = {
	.start = start_command,
	.poll = poll_command,
	.input = give_input,
	.leave = leave_command,
	.runner_output = take_output,
	.runner_input = hand_input,
};
