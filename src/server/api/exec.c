/* exec.c - the table of commands inside sandboxes, and the thread that passes their bytes on. */
#include "server/api/exec.h"

#include "base/thread.h"
#include "io/resumable.h"
#include "server/api/ctx.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>

#define PIECE ((size_t)64 << 10) /* on its way in one direction */
#define LOOK_MS 1000
#define ENDS 2

/* One of the two connections of a command. */
struct end {
	struct upgraded *u; /* NULL: it is not here */
	char *bytes;        /* PIECE, that came from it */
	size_t at, n;       /* those that the other one has not got */
	bool ended;         /* no more will come */
	int64_t heard_ms, told_ms;
};

enum exec_state {
	EXEC_OPEN,
	EXEC_HUNG, /* who started it is gone: its runner hangs it up */
	EXEC_OVER, /* its runner needs us no more, or is gone */
	EXEC_STATES,
};

struct exec {
	struct arena *a;
	const char *id, *job_id, *attempt_id;
	struct wire_exec what;
	uint32_t rank;
	uint64_t generation;
	enum exec_state state;
	const char *why; /* it is not open: for who comes */
	bool taken;      /* its runner has come */
	struct end end[ENDS];
	struct upgraded *came[ENDS]; /* for those places; the thread takes them */
	bool joined;                 /* both are here */
	int64_t started_ms, touched_ms;
	int64_t client_ms; /* when the client was last here */
	/* Of who started it, and of nobody else: it is asked for when a connection is made, and
	 * that is good for as long as this is. expires_ms 0: for good. */
	char token_id[MODEL_ID_CAP];
	int64_t expires_ms;
	TAILQ_ENTRY(exec) link;
};

struct execs {
	struct lock lock;
	TAILQ_HEAD(exec_list, exec) all;
	size_t n;
	uint64_t generation;
	int wake_fd; /* eventfd: somebody came, or a state changed */
	atomic_bool stop;
	pthread_t thread;
};

/* Where a command can go from here. */
#define TO(s) (1U << (s))
static const unsigned exec_next[EXEC_STATES] = {
	[EXEC_OPEN] = TO(EXEC_HUNG) | TO(EXEC_OVER),
	[EXEC_HUNG] = TO(EXEC_OVER),
};

/* The only way from one state to the next, with the lock. */
static void exec_to(struct exec *e, enum exec_state to, const char *why)
{
	assert(to < EXEC_STATES && (exec_next[e->state] & TO(to)) != 0);
	e->state = to;
	e->why = why;
	e->touched_ms = clock_mono_ms();
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
	assert(e->state < EXEC_STATES && e->generation <= all->generation);
	assert((e->why == NULL) == (e->state == EXEC_OPEN));
	assert(!e->joined || (e->end[EXEC_CLIENT].u != NULL && e->end[EXEC_RUNNER].u != NULL));
	for (int i = 0; i < ENDS; i++)
		assert(e->end[i].at + e->end[i].n <= PIECE && (e->joined || e->end[i].n == 0));
}

static void *pass_on(void *arg);

void exec_start(struct app *app)
{
	struct execs *all = app->execs = xcalloc(1, sizeof(*app->execs));

	lock_init(&all->lock, LOCK_EXEC);
	TAILQ_INIT(&all->all);
	/* Higher than any of an earlier life of the server, so that runners see a change. */
	all->generation = (uint64_t)clock_wall_ms();
	all->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->wake_fd < 0 || pthread_create(&all->thread, NULL, pass_on, all) != 0)
		abort();
}

static void let_go(struct end *x)
{
	if (x->u != NULL)
		upgraded_close(x->u);
	free(x->bytes);
	*x = (struct end){0};
}

/* Both begin again: what one of them got may end in the middle of a frame. By the thread, which
 * looks at their descriptors. */
static void cut(struct exec *e)
{
	for (int i = 0; i < ENDS; i++)
		let_go(&e->end[i]);
	e->joined = false;
}

/* Who has come takes the place of the connection that was cut, though we have not heard of it. */
static void welcome(struct exec *e)
{
	for (int i = 0; i < ENDS; i++) {
		if (e->came[i] == NULL)
			continue;
		if (e->joined)
			cut(e);
		let_go(&e->end[i]);
		e->end[i].u = e->came[i];
		e->came[i] = NULL;
	}
}

static bool is_alone(const struct exec *e)
{
	for (int i = 0; i < ENDS; i++) {
		if (e->end[i].u != NULL || e->came[i] != NULL)
			return false;
	}
	return true;
}

static void drop(struct execs *all, struct exec *e)
{
	assert(all->n > 0 && is_alone(e));
	TAILQ_REMOVE(&all->all, e, link);
	all->n--;
	arena_free(e->a);
	free(e);
}

void exec_stop(struct app *app)
{
	struct execs *all = app->execs;

	if (all == NULL)
		return;
	atomic_store(&all->stop, true);
	event_set(all->wake_fd);
	(void)pthread_join(all->thread, NULL);
	while (!TAILQ_EMPTY(&all->all))
		drop(all, TAILQ_FIRST(&all->all));
	(void)close(all->wake_fd);
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
		if (e->state != EXEC_OPEN && is_alone(e) && now - e->touched_ms > EXEC_KEEP_MS)
			drop(all, e);
	}
	execs_check(all);
	lock_give(&all->lock);
}

/* The bytes between two that have met, with the lock. */

/* From `x`, and what came to `to`; false: it is over. */
static bool move(struct end *x, struct end *to, int64_t now)
{
	ssize_t n;

	if (x->n == 0 && !x->ended) {
		n = upgraded_read(x->u, x->bytes, PIECE);
		x->ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
		x->at = 0;
		x->n = n > 0 ? (size_t)n : 0;
		x->heard_ms = n > 0 ? now : x->heard_ms;
	}
	if (x->n > 0) {
		n = upgraded_write(to->u, x->bytes + x->at, x->n);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		x->at += n > 0 ? (size_t)n : 0;
		x->n -= n > 0 ? (size_t)n : 0;
	}
	return !x->ended || x->n > 0;
}

static void join_ends(struct exec *e, int64_t now)
{
	for (int i = 0; i < ENDS; i++) {
		e->end[i].bytes = xmalloc(PIECE);
		e->end[i].heard_ms = now;
	}
	e->joined = true;
}

/* One that waits for the other. */
static void tend_alone(struct end *x, int64_t now)
{
	AUTO_BUF struct buf word = BUF_INIT(FRAME_HEAD);
	struct pollfd p = {.fd = upgraded_fd(x->u), .events = POLLRDHUP};
	bool gone = poll(&p, 1, 0) > 0; /* what it has sent waits for the other one */

	if (!gone && now - x->told_ms >= EXEC_WORD_MS) {
		x->told_ms = now;
		frame_put(&word, FRAME_WAIT, (struct str){0});
		gone = upgraded_write(x->u, word.p, word.n) != (ssize_t)word.n;
	}
	if (gone)
		let_go(x);
}

static void tend_ends(struct exec *e, int64_t now)
{
	struct end *client = &e->end[EXEC_CLIENT], *runner = &e->end[EXEC_RUNNER];
	bool over;

	if (!e->joined && client->u != NULL && runner->u != NULL)
		join_ends(e, now);
	if (!e->joined) {
		if (client->u != NULL)
			tend_alone(client, now);
		if (runner->u != NULL)
			tend_alone(runner, now);
		e->client_ms = client->u != NULL ? now : e->client_ms;
		return;
	}
	over = !move(client, runner, now) || !move(runner, client, now);
	e->client_ms = client->heard_ms;
	if (over || now - client->heard_ms > EXEC_AWAY_MS || now - runner->heard_ms > EXEC_AWAY_MS)
		cut(e);
}

/* With the lock, by the thread. */
static void tend(struct exec *e, int64_t now)
{
	welcome(e);
	if (e->state == EXEC_OPEN)
		tend_ends(e, now);
	if (e->state == EXEC_OPEN && !e->taken && now - e->started_ms > EXEC_TAKE_MS)
		exec_to(e, EXEC_OVER,
		        "the job's runner did not accept the command; is its node up, and of this "
		        "version?");
	else if (e->state == EXEC_OPEN && now - e->client_ms > EXEC_AWAY_MS)
		exec_to(e, EXEC_HUNG, EXEC_AWAY_WORDS);
	else if (e->state == EXEC_OPEN && e->expires_ms != 0 && clock_wall_ms() >= e->expires_ms)
		exec_to(e, EXEC_HUNG, EXEC_TOKEN_WORDS);
	if (e->state != EXEC_OPEN)
		cut(e); /* who comes again is told */
}

static void watch(const struct exec *e, struct pollfd *p, size_t *n)
{
	for (int i = 0; i < ENDS; i++) {
		const struct end *x = &e->end[i], *to = &e->end[1 - i];
		short events = 0;

		if (x->u == NULL || (x->ended && to->n == 0))
			continue;
		if (!e->joined)
			events = POLLRDHUP;
		else
			events = (short)((x->n == 0 && !x->ended ? POLLIN : 0) |
			                 (to->n > 0 ? POLLOUT : 0));
		p[(*n)++] = (struct pollfd){.fd = upgraded_fd(x->u), .events = events};
	}
}

static void *pass_on(void *arg)
{
	struct execs *all = arg;
	struct pollfd *p = xcalloc(1 + ENDS * EXEC_MAX, sizeof(*p));
	struct exec *e;

	while (!atomic_load(&all->stop)) {
		int64_t now = clock_mono_ms();
		uint64_t ignored;
		size_t n = 0;

		p[n++] = (struct pollfd){.fd = all->wake_fd, .events = POLLIN};
		lock_take(&all->lock);
		TAILQ_FOREACH(e, &all->all, link)
		{
			tend(e, now);
			exec_check(all, e);
			watch(e, p, &n);
		}
		lock_give(&all->lock);
		if (poll(p, n, LOOK_MS) > 0 && p[0].revents != 0)
			(void)!read(all->wake_fd, &ignored, sizeof(ignored));
	}
	free(p);
	lock_take(&all->lock);
	TAILQ_FOREACH(e, &all->all, link)
	{
		welcome(e);
		cut(e);
	}
	lock_give(&all->lock);
	return NULL;
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
		if (!e->taken && e->state == EXEC_OPEN && out->n_exec < EXEC_MAX)
			wire_exec_copy(&out->exec[out->n_exec++], a, &e->what);
	}
	lock_give(&all->lock);
}

void exec_attempt_over(struct app *app, const char *attempt_id)
{
	struct execs *all = app->execs;
	struct exec *e;

	lock_take(&all->lock);
	TAILQ_FOREACH(e, &all->all, link)
	{
		if (e->state != EXEC_OVER && strcmp(e->attempt_id, attempt_id) == 0)
			exec_to(e, EXEC_OVER, EXEC_JOB_OVER_WORDS);
	}
	lock_give(&all->lock);
	event_set(all->wake_fd);
}

void exec_token_gone(struct app *app, const char *token_id)
{
	struct execs *all = app->execs;
	struct exec *e;

	lock_take(&all->lock);
	TAILQ_FOREACH(e, &all->all, link)
	{
		if (e->state == EXEC_OPEN && strcmp(e->token_id, token_id) == 0)
			exec_to(e, EXEC_HUNG, EXEC_TOKEN_WORDS);
	}
	lock_give(&all->lock);
	event_set(all->wake_fd);
}

/* Without room, the one that ended first makes it. A runner tells a few more than it runs that they
 * are too many; those beyond would wait for it in vain. */
static int insert(struct execs *all, struct exec *e, struct err *err)
{
	struct exec *x, *ended = NULL;
	size_t beside = 0;

	TAILQ_FOREACH(x, &all->all, link)
	{
		if (ended == NULL && x->state != EXEC_OPEN && is_alone(x))
			ended = x;
		beside += x->state == EXEC_OPEN && x->rank == e->rank &&
		          strcmp(x->attempt_id, e->attempt_id) == 0;
	}
	if (beside >= EXEC_NODE_MAX)
		return err_set(err, ERR_BUSY, "%zu commands of this job already run on node %u",
		               beside, e->rank);
	if (all->n >= EXEC_MAX && ended == NULL)
		return err_set(err, ERR_BUSY, "%d commands are already running", EXEC_MAX);
	if (all->n >= EXEC_MAX)
		drop(all, ended);
	e->generation = ++all->generation;
	TAILQ_INSERT_TAIL(&all->all, e, link);
	all->n++;
	exec_check(all, e);
	return 0;
}

static int start_command(const struct ask *ask, const char *job_id, uint32_t rank,
                         const struct wire_exec *what, char **exec_id, struct err *err)
{
	struct app *app = ask->app;
	struct execs *all = app->execs;
	struct model_job job = {0};
	struct exec *e;
	int r;

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
	wire_exec_copy(&e->what, e->a, what);
	e->what.id = e->id;
	e->rank = rank;
	FMT(e->token_id, "%s", ask->principal->token_id);
	e->expires_ms = ask->principal->expires_ms;
	e->started_ms = e->client_ms = e->touched_ms = clock_mono_ms();
	*exec_id = arena_cstr(ask->a, e->id);
	lock_take(&all->lock);
	r = insert(all, e, err);
	lock_give(&all->lock);
	if (r < 0) {
		arena_free(e->a);
		free(e);
		return -1;
	}
	app_event(app, job_id, "exec", ask->principal->name, "exec on node %u: %s", rank,
	          what->n_argv > 0 ? what->argv[0] : "a shell");
	app_notify(app, CHANNEL_DESIRED, job.attempt_id);
	return 0;
}

/* With the lock: the command, if it is its caller's. */
static struct exec *find_for(const struct ask *ask, const char *job_id, const char *exec_id,
                             struct err *err)
{
	const struct principal *who = ask->principal;
	struct exec *e = find(ask->app->execs, exec_id);
	bool its;

	if (job_id != NULL)
		its = e != NULL && strcmp(e->job_id, job_id) == 0 &&
		      strcmp(e->token_id, who->token_id) == 0;
	else
		its = e != NULL && strcmp(e->attempt_id, who->attempt_id) == 0 &&
		      e->rank == who->node_rank;
	if (its)
		return e;
	(void)err_set(
		err, ERR_NOT_FOUND,
		"no such command in this job; if the server restarted, the command was ended");
	return NULL;
}

static int may_join(const struct ask *ask, const char *job_id, const char *exec_id, struct err *err)
{
	struct execs *all = ask->app->execs;
	struct model_job job = {0};
	struct exec *e;
	int r = -1;

	if (job_id != NULL &&
	    (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_job(ask, job_id, &job, err) < 0))
		return -1;
	lock_take(&all->lock);
	e = find_for(ask, job_id, exec_id, err);
	if (e != NULL && e->state != EXEC_OPEN)
		(void)err_set(err, ERR_CONFLICT, "%s", e->why);
	else if (e != NULL)
		r = 0;
	if (r == 0 && job_id == NULL)
		e->taken = true;
	lock_give(&all->lock);
	return r;
}

static void join_command(struct app *app, const char *exec_id, enum exec_end which,
                         struct upgraded *u)
{
	struct execs *all = app->execs;
	struct exec *e;

	lock_take(&all->lock);
	e = find(all, exec_id);
	if (e != NULL) {
		struct upgraded *before = e->came[which];

		e->came[which] = u;
		u = before;
	}
	lock_give(&all->lock);
	if (u != NULL)
		upgraded_close(u);
	event_set(all->wake_fd);
}

static int end_command(const struct ask *ask, const char *exec_id, struct err *err)
{
	struct execs *all = ask->app->execs;
	struct exec *e;

	lock_take(&all->lock);
	e = find_for(ask, NULL, exec_id, err);
	if (e != NULL && e->state != EXEC_OVER)
		exec_to(e, EXEC_OVER, e->why != NULL ? e->why : "the command has ended");
	lock_give(&all->lock);
	event_set(all->wake_fd);
	return e == NULL ? -1 : 0;
}

const struct exec_ops exec_ops = {
	.start = start_command,
	.may_join = may_join,
	.join = join_command,
	.done = end_command,
};
