/* exec.c - the table of commands inside sandboxes. */
#include "server/exec.h"
#include "server/ctx.h"

#include <sys/queue.h>

struct exec {
	struct arena *a;
	const char *id, *job_id, *attempt_id;
	const char **argv;
	size_t n_argv;
	uint32_t rank;
	uint64_t generation;
	bool taken; /* its runner has spoken of it */
	bool done;
	int exit_code;
	struct buf out;
	uint64_t out_at; /* offset of out's first byte */
	int64_t touched_ms;
	TAILQ_ENTRY(exec) in;
};

struct execs {
	pthread_mutex_t lock;
	TAILQ_HEAD(exec_list, exec) all;
	size_t n;
	uint64_t generation;
};

void exec_start(struct app *app)
{
	app->execs = xcalloc(1, sizeof(*app->execs));
	(void)pthread_mutex_init(&app->execs->lock, NULL);
	TAILQ_INIT(&app->execs->all);
	/* Higher than any of an earlier life of the server, so that runners see a change. */
	app->execs->generation = (uint64_t)clock_wall_ms();
}

static void drop(struct execs *all, struct exec *e)
{
	TAILQ_REMOVE(&all->all, e, in);
	all->n--;
	buf_done(&e->out);
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
	(void)pthread_mutex_destroy(&all->lock);
	free(all);
	app->execs = NULL;
}

void exec_sweep(struct app *app)
{
	struct execs *all = app->execs;
	struct exec *e, *next;
	int64_t now = clock_mono_ms();

	(void)pthread_mutex_lock(&all->lock);
	for (e = TAILQ_FIRST(&all->all); e != NULL; e = next) {
		next = TAILQ_NEXT(e, in);
		if ((e->done || !e->taken) && now - e->touched_ms > EXEC_KEEP_MS)
			drop(all, e);
	}
	(void)pthread_mutex_unlock(&all->lock);
}

static struct exec *find(struct execs *all, const char *id)
{
	struct exec *e;

	TAILQ_FOREACH(e, &all->all, in)
	{
		if (strcmp(e->id, id) == 0)
			return e;
	}
	return NULL;
}

void exec_orders(struct app *app, struct arena *a, const char *attempt_id, uint32_t rank,
                 struct wire_orders *out, uint64_t *generation)
{
	struct execs *all = app->execs;
	struct exec *e;

	*generation = 0;
	out->exec = ARENA_ARRAY(a, struct wire_exec, EXEC_MAX);
	(void)pthread_mutex_lock(&all->lock);
	TAILQ_FOREACH(e, &all->all, in)
	{
		const char **argv;

		if (e->rank != rank || strcmp(e->attempt_id, attempt_id) != 0)
			continue;
		*generation = MAX(*generation, e->generation);
		if (e->taken || e->done || out->n_exec == EXEC_MAX)
			continue;
		argv = ARENA_ARRAY(a, const char *, e->n_argv + 1);
		for (size_t i = 0; i < e->n_argv; i++)
			argv[i] = arena_cstr(a, e->argv[i]);
		out->exec[out->n_exec++] = (struct wire_exec){
			.id = arena_cstr(a, e->id), .argv = argv, .n_argv = e->n_argv};
	}
	(void)pthread_mutex_unlock(&all->lock);
}

/* Appends what fits: the oldest bytes make room for the newest. */
static void add_output(struct exec *e, struct str bytes)
{
	if (bytes.n > EXEC_OUTPUT_MAX) {
		e->out_at += e->out.n + bytes.n - EXEC_OUTPUT_MAX;
		buf_clear(&e->out);
		bytes = str_skip(bytes, bytes.n - EXEC_OUTPUT_MAX);
	} else if (e->out.n + bytes.n > EXEC_OUTPUT_MAX) {
		size_t old = e->out.n + bytes.n - EXEC_OUTPUT_MAX;

		buf_drop(&e->out, old);
		e->out_at += old;
	}
	buf_str(&e->out, bytes);
}

static void finish(struct exec *e, int exit_code)
{
	e->done = true;
	e->exit_code = exit_code;
	e->touched_ms = clock_mono_ms();
}

void exec_attempt_over(struct app *app, const char *attempt_id)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct execs *all = app->execs;
	const char *ids[EXEC_MAX];
	size_t n = 0;
	struct exec *e;

	(void)pthread_mutex_lock(&all->lock);
	TAILQ_FOREACH(e, &all->all, in)
	{
		if (e->done || strcmp(e->attempt_id, attempt_id) != 0 || n == EXEC_MAX)
			continue;
		add_output(e, STR_LIT("stoker: the job has ended\n"));
		finish(e, 255);
		ids[n++] = arena_cstr(a, e->id);
	}
	(void)pthread_mutex_unlock(&all->lock);
	for (size_t i = 0; i < n; i++)
		app_notify(app, CHANNEL_EXEC, ids[i]);
}

int ctx_exec_start(void *of, const struct who *who, struct arena *a, const char *job_id,
                   uint32_t rank, const char *const *argv, size_t n_argv, char **exec_id,
                   struct err *err)
{
	struct app *app = of;
	struct execs *all = app->execs;
	struct model_job job = {0};
	struct exec *e;
	int r = 0;

	if (ctx_need(who, ROLE_MEMBER, err) < 0 || ctx_job(app, who, a, job_id, &job, err) < 0)
		return -1;
	if (job.core.state != JOB_RUNNING)
		return err_set(err, ERR_CONFLICT, "job %s is not running", job_id);
	if (rank >= job.node_count)
		return err_set(err, ERR_INVALID, "job %s has no node %u", job_id, rank);
	if (n_argv == 0 || n_argv > EXEC_ARGS_MAX)
		return err_set(err, ERR_INVALID, "a command has 1 to %d words", EXEC_ARGS_MAX);
	e = xcalloc(1, sizeof(*e));
	e->a = arena_new();
	e->id = app_id(e->a, 12);
	e->job_id = arena_cstr(e->a, job_id);
	e->attempt_id = arena_cstr(e->a, job.attempt_id);
	e->argv = ARENA_ARRAY(e->a, const char *, n_argv);
	for (size_t i = 0; i < n_argv; i++)
		e->argv[i] = arena_cstr(e->a, argv[i]);
	e->n_argv = n_argv;
	e->rank = rank;
	e->out = (struct buf)BUF_INIT(EXEC_OUTPUT_MAX);
	e->touched_ms = clock_mono_ms();
	*exec_id = arena_cstr(a, e->id);
	(void)pthread_mutex_lock(&all->lock);
	if (all->n >= EXEC_MAX) {
		r = err_set(err, ERR_BUSY, "%d commands run already", EXEC_MAX);
		arena_free(e->a);
		free(e);
	} else {
		e->generation = ++all->generation;
		TAILQ_INSERT_TAIL(&all->all, e, in);
		all->n++;
	}
	(void)pthread_mutex_unlock(&all->lock);
	if (r < 0)
		return -1;
	app_event(app, job_id, "exec", who->name, "exec on node %u: %s", rank, argv[0]);
	app_notify(app, CHANNEL_ORDERS, job.attempt_id);
	return 0;
}

int ctx_exec_poll(void *of, const struct who *who, struct arena *a, const char *job_id,
                  const char *exec_id, uint64_t offset, struct exec_state *out, struct err *err)
{
	struct app *app = of;
	struct execs *all = app->execs;
	struct model_job job = {0};
	struct exec *e;
	int r = 0;

	if (ctx_need(who, ROLE_MEMBER, err) < 0 || ctx_job(app, who, a, job_id, &job, err) < 0)
		return -1;
	(void)pthread_mutex_lock(&all->lock);
	e = find(all, exec_id);
	if (e == NULL || strcmp(e->job_id, job_id) != 0) {
		r = err_set(err, ERR_NOT_FOUND, "no such command, or the server was started again");
	} else {
		uint64_t end = e->out_at + e->out.n;

		offset = MIN(MAX(offset, e->out_at), end);
		out->done = e->done;
		out->exit_code = e->exit_code;
		out->output =
			arena_str(a, str_skip(buf_view(&e->out), (size_t)(offset - e->out_at)));
		out->next_offset = end;
	}
	(void)pthread_mutex_unlock(&all->lock);
	return r;
}

int ctx_runner_exec_output(void *of, const struct who *who, const char *exec_id, struct str bytes,
                           bool done, int exit_code, struct err *err)
{
	struct app *app = of;
	struct execs *all = app->execs;
	struct exec *e;
	int r = 0;

	(void)pthread_mutex_lock(&all->lock);
	e = find(all, exec_id);
	if (e == NULL || strcmp(e->attempt_id, who->attempt_id) != 0 || e->rank != who->node_rank) {
		r = err_set(err, ERR_NOT_FOUND, "no such command");
	} else if (!e->done) {
		e->taken = true;
		e->touched_ms = clock_mono_ms();
		add_output(e, bytes);
		if (done)
			finish(e, exit_code);
	}
	(void)pthread_mutex_unlock(&all->lock);
	if (r == 0)
		app_notify(app, CHANNEL_EXEC, exec_id);
	return r;
}
