/* serving.c - see serving.h, and serving_ops of face.h. */
#include "server/control/serving.h"

#include "io/relay.h"
#include "server/api/auth.h"
#include "server/api/ctx.h"
#include "server/api/deployments.h"
#include "server/control/deployments.h"
#include "server/control/specs.h"

#include <sys/queue.h>

#define KEY_USE "serve/"
#define PORT_MIN 1024 /* below it is nothing of a job's */
#define JOBS_PAGE 200 /* of those that may serve, looked at together */

/* What the jobs of a deployment have done, those that are over too. */
struct sum {
	char *deployment_id;
	uint64_t requests, failures;
	LIST_ENTRY(sum) link;
};

/* One job that serves. It stays as long as a request is on its way, though its attempt is over. */
struct replica {
	unsigned magic;
#define REPLICA_MAGIC 0x53525650U
	char *attempt_id, *job_id, *team_id, *team_name, *name;
	uint32_t port;
	bool serves, over;
	bool deployed;      /* its job is one of a deployment, */
	bool removed;       /* which was removed */
	bool served;        /* at any time */
	bool retired;       /* see serving_retire */
	int64_t retired_ms; /* since when; monotonic */
	unsigned in_flight;
	uint64_t requests, failures;
	struct sum *sum; /* of its deployment; NULL: it has none any more, or never had */
	int64_t used_ms; /* when it last had one on its way, or began to serve; monotonic */
	LIST_ENTRY(replica) link;
};

struct serving {
	struct lock lock;
	LIST_HEAD(, replica) all;
	LIST_HEAD(, sum) sums;
};

static void replica_check(const struct serving *s, const struct replica *r)
{
	assert(r->magic == REPLICA_MAGIC && lock_is_mine(&s->lock));
	assert(r->name != NULL && r->team_id != NULL && r->port >= PORT_MIN);
	assert(!(r->over && r->serves) && r->failures <= r->requests);
	assert(!r->over || r->in_flight > 0); /* else it is gone */
	assert(r->sum == NULL || r->requests <= r->sum->requests);
}

void serving_start(struct app *app)
{
	app->serving = xcalloc(1, sizeof(*app->serving));
	lock_init(&app->serving->lock, LOCK_SERVING);
	LIST_INIT(&app->serving->all);
	LIST_INIT(&app->serving->sums);
	app->relay = relay_new();
}

static void drop(struct replica *r)
{
	LIST_REMOVE(r, link);
	free(r->attempt_id);
	free(r->job_id);
	free(r->team_id);
	free(r->team_name);
	free(r->name);
	r->magic = 0;
	free(r);
}

/* With the lock. */
static struct sum *find_sum(struct serving *s, const char *deployment_id)
{
	struct sum *sum;

	LIST_FOREACH(sum, &s->sums, link)
	if (strcmp(sum->deployment_id, deployment_id) == 0)
		return sum;
	return NULL;
}

static struct sum *sum_of(struct serving *s, const char *deployment_id)
{
	struct sum *sum = deployment_id == NULL ? NULL : find_sum(s, deployment_id);

	if (sum != NULL || deployment_id == NULL)
		return sum;
	sum = xcalloc(1, sizeof(*sum));
	sum->deployment_id = xstrdup(deployment_id);
	LIST_INSERT_HEAD(&s->sums, sum, link);
	return sum;
}

static void drop_sum(struct sum *sum)
{
	LIST_REMOVE(sum, link);
	free(sum->deployment_id);
	free(sum);
}

void serving_stop(struct app *app)
{
	struct serving *s = app->serving;

	if (s == NULL)
		return;
	relay_free(app->relay);
	app->relay = NULL;
	while (!LIST_EMPTY(&s->all))
		drop(LIST_FIRST(&s->all));
	while (!LIST_EMPTY(&s->sums))
		drop_sum(LIST_FIRST(&s->sums));
	lock_done(&s->lock);
	free(s);
	app->serving = NULL;
}

const char *serving_key(const struct app *app, struct arena *a, const char *attempt_id)
{
	char mac[HASH_HEX_CAP];

	auth_attempt_mac(app, KEY_USE, str_of(attempt_id), mac);
	return arena_cstr(a, mac);
}

/* With the lock. */
static struct replica *find(struct serving *s, const char *attempt_id)
{
	struct replica *r;

	LIST_FOREACH(r, &s->all, link)
	{
		replica_check(s, r);
		if (strcmp(r->attempt_id, attempt_id) == 0)
			return r;
	}
	return NULL;
}

/* Who waits for one of this name looks again. */
static void changed(struct app *app, const char *name)
{
	app_notify(app, CHANNEL_SERVING, name);
	deployments_kick(app);
}

/* What it serves as is in its specification, which no runner writes. */
static void meet(struct app *app, const struct model_job *job, const char *attempt_id,
                 uint32_t port, bool serves)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct serving *s = app->serving;
	struct err err = {0};
	struct replica *r;

	if (specs_get(app, job->id, &hold, &err) < 0 || hold.spec->serve.name == NULL)
		return; /* it is heard again */
	lock_take(&s->lock);
	if (find(s, attempt_id) == NULL) {
		r = xcalloc(1, sizeof(*r));
		*r = (struct replica){.magic = REPLICA_MAGIC,
		                      .attempt_id = xstrdup(attempt_id),
		                      .job_id = xstrdup(job->id),
		                      .team_id = xstrdup(job->team_id),
		                      .team_name = xstrdup(job->team_name),
		                      .name = xstrdup(hold.spec->serve.name),
		                      .deployed = job->deployment_id != NULL,
		                      .sum = sum_of(s, job->deployment_id),
		                      .port = port,
		                      .serves = serves,
		                      .served = serves,
		                      .used_ms = clock_mono_ms()};
		LIST_INSERT_HEAD(&s->all, r, link);
		replica_check(s, r);
	}
	lock_give(&s->lock);
	changed(app, hold.spec->serve.name);
}

bool serving_heard(struct app *app, const struct model_job *job, const char *attempt_id,
                   uint32_t port, bool serves)
{
	AUTO_FREE char *begun = NULL;
	struct serving *s = app->serving;
	struct replica *r;

	if (port < PORT_MIN || port > UINT16_MAX)
		return false;
	lock_take(&s->lock);
	r = find(s, attempt_id);
	if (r != NULL && !r->over) {
		if (serves && !r->serves) {
			r->used_ms = clock_mono_ms();
			begun = xstrdup(r->name);
		}
		r->port = port;
		r->serves = serves;
		r->served = r->served || serves;
		replica_check(s, r);
	}
	lock_give(&s->lock);
	if (r == NULL)
		meet(app, job, attempt_id, port, serves);
	else if (begun != NULL)
		changed(app, begun);
	return r == NULL;
}

void serving_show(struct app *app, struct model_replica *r, size_t n)
{
	AUTO_MAP struct map *by_job = map_new();
	struct serving *s = app->serving;
	int64_t now = clock_mono_ms();
	struct replica *x;

	for (size_t i = 0; i < n; i++) {
		r[i].here = r[i].node == NULL || app_is_here(app, r[i].node_id, r[i].node);
		r[i].heard = r[i].serves = r[i].served = false;
		r[i].in_flight = 0;
		r[i].requests = r[i].failures = 0;
		(void)map_set(by_job, str_of(r[i].job_id), &r[i]);
	}
	lock_take(&s->lock);
	LIST_FOREACH(x, &s->all, link)
	{
		struct model_replica *of = map_get(by_job, str_of(x->job_id));

		replica_check(s, x);
		if (of == NULL || of->heard || x->over)
			continue;
		of->heard = true;
		of->serves = x->serves && !x->retired && of->state == JOB_RUNNING;
		of->served = x->served;
		of->in_flight = x->in_flight;
		of->requests = x->requests;
		of->failures = x->failures;
		of->idle_ms = x->in_flight > 0 ? 0 : now - x->used_ms;
	}
	lock_give(&s->lock);
}

unsigned serving_in_flight(struct app *app, const char *job_id, int64_t *retired_ms)
{
	struct serving *s = app->serving;
	unsigned in_flight = 0;
	struct replica *r;

	*retired_ms = 0;
	lock_take(&s->lock);
	LIST_FOREACH(r, &s->all, link)
	{
		replica_check(s, r);
		if (r->over || strcmp(r->job_id, job_id) != 0)
			continue;
		in_flight = r->in_flight;
		*retired_ms = r->retired ? clock_mono_ms() - r->retired_ms : 0;
		break;
	}
	lock_give(&s->lock);
	return in_flight;
}

static bool retire(struct app *app, const char *job_id, bool retired, bool if_idle)
{
	struct serving *s = app->serving;
	struct replica *r;
	bool done = true;

	lock_take(&s->lock);
	LIST_FOREACH(r, &s->all, link)
	{
		replica_check(s, r);
		if (r->over || strcmp(r->job_id, job_id) != 0)
			continue;
		done = !if_idle || r->in_flight == 0;
		if (done && !r->retired)
			r->retired_ms = clock_mono_ms();
		if (done)
			r->retired = retired;
		break;
	}
	lock_give(&s->lock);
	return done;
}

bool serving_retire(struct app *app, const char *job_id, bool if_idle)
{
	return retire(app, job_id, true, if_idle);
}

void serving_back(struct app *app, const char *job_id)
{
	(void)retire(app, job_id, false, false);
}

void serving_sum(struct app *app, const char *deployment_id, uint64_t *requests, uint64_t *failures)
{
	struct serving *s = app->serving;
	const struct sum *sum;

	lock_take(&s->lock);
	sum = find_sum(s, deployment_id);
	*requests = sum != NULL ? sum->requests : 0;
	*failures = sum != NULL ? sum->failures : 0;
	lock_give(&s->lock);
}

void serving_forget(struct app *app, const char *deployment_id)
{
	struct serving *s = app->serving;
	struct replica *r;
	struct sum *sum;

	lock_take(&s->lock);
	sum = find_sum(s, deployment_id);
	LIST_FOREACH(r, &s->all, link)
	{
		if (sum == NULL || r->sum != sum)
			continue;
		r->sum = NULL;
		r->removed = true;
	}
	if (sum != NULL)
		drop_sum(sum);
	lock_give(&s->lock);
}

void serving_ended(struct app *app, const char *attempt_id)
{
	struct serving *s = app->serving;
	struct replica *r;

	lock_take(&s->lock);
	r = find(s, attempt_id);
	if (r != NULL && r->in_flight == 0) {
		drop(r);
	} else if (r != NULL) {
		r->serves = false;
		r->over = true;
	}
	lock_give(&s->lock);
	if (r != NULL)
		deployments_kick(app);
}

void serving_left(struct app *app, const char *job_id)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err err = {0};

	if (specs_get(app, job_id, &hold, &err) == 0 && hold.spec->serve.name != NULL)
		changed(app, hold.spec->serve.name);
}

int serving_refuse(struct app *app, const char *name, const char *job_id, enum job_state state,
                   struct err *err)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err unread = {0};

	err->retry_after_s = 2;
	if (state != JOB_RUNNING || specs_get(app, job_id, &hold, &unread) < 0)
		return err_set(err, ERR_UNAVAILABLE,
		               "%s: job %s cannot take requests yet: it is %s", name, job_id,
		               job_state_word(state));
	return err_set(err, ERR_UNAVAILABLE,
	               "%s: job %s cannot take requests now: its server does not answer at %s",
	               name, job_id, hold.spec->serve.health);
}

/* ---- for the face --------------------------------------------------------------------------- */

static bool sees(const struct ask *ask, const struct replica *r)
{
	return ask->principal->team_id == NULL || strcmp(ask->principal->team_id, r->team_id) == 0;
}

/* Will it take requests as soon as its runner is heard, or has it begun to a moment ago? */
static int comes(const struct ask *ask, const struct model_job *job, bool *out, struct err *err)
{
	struct model_replica r = {.job_id = job->id, .state = job->core.state};
	struct model_attempt *part;
	size_t n = 0;

	*out = false;
	if (r.state != JOB_RUNNING)
		return 0;
	if (meta_attempt(ask->app->meta, ask->a, job->attempt_id, &part, &n, err) < 0)
		return -1;
	if (n == 0)
		return 0;
	r.node = part[0].node;
	r.node_id = part[0].node_id;
	serving_show(ask->app, &r, 1);
	*out = r.serves || (r.here && !r.heard);
	return 0;
}

/* The team's jobs that would serve as this, and what becomes of who asks for it. */
struct search {
	const char *name;
	bool waits;                     /* one is about to */
	const struct model_job *newest; /* that does not serve now */
	bool removed;                   /* one is of a deployment that is gone */
};

static int look_at(const struct ask *ask, const struct model_job *job, struct search *out,
                   struct err *err)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err unreadable = {0};

	if (specs_get(ask->app, job->id, &hold, &unreadable) < 0 || hold.spec->serve.name == NULL ||
	    strcmp(hold.spec->serve.name, out->name) != 0)
		return 0;
	if (job->deployment_id != NULL) { /* else deployments_asked() had found it */
		out->removed = true;
		return 0;
	}
	out->newest = out->newest == NULL ? job : out->newest;
	return comes(ask, job, &out->waits, err);
}

/* Nothing of this name serves: by the team's jobs that would, *waits: one is about to, or why. */
static int by_hand(const struct ask *ask, const char *name, bool *waits, struct err *err)
{
	struct meta_query q = {.team_id = ask->principal->team_id,
	                       .states = job_states_active(),
	                       .says = name,
	                       .limit = JOBS_PAGE};
	struct search found = {.name = name};
	struct model_job *jobs;
	size_t n = JOBS_PAGE;

	while (n == JOBS_PAGE && !found.waits) {
		if (meta_jobs(ask->app->meta, ask->a, &q, &jobs, &n, err) < 0)
			return -1;
		for (size_t i = 0; i < n && !found.waits; i++)
			if (look_at(ask, &jobs[i], &found, err) < 0)
				return -1;
		if (n > 0) {
			q.after_ms = jobs[n - 1].created_ms;
			q.after_row = jobs[n - 1].row;
		}
	}
	*waits = found.waits;
	if (*waits)
		return 0;
	if (found.newest != NULL)
		return serving_refuse(ask->app, name, found.newest->id, found.newest->core.state,
		                      err);
	if (found.removed)
		return err_set(err, ERR_DEPLOYMENT_NOT_FOUND,
		               "deployment \"%.63s\" was removed: its jobs take no more requests",
		               name);
	return err_set(err, ERR_NOT_FOUND,
	               "no job that you can see serves \"%.63s\"; `stoker deployments ls` lists "
	               "those that do",
	               name);
}

static int take(const struct ask *ask, const char *name, struct serving_target *out,
                struct err *err)
{
	struct serving *s = ask->app->serving;
	struct replica *r, *best = NULL;
	bool several = false;

	lock_take(&s->lock);
	LIST_FOREACH(r, &s->all, link)
	{
		replica_check(s, r);
		if (!r->serves || r->retired || r->removed || strcmp(r->name, name) != 0 ||
		    !sees(ask, r))
			continue;
		several = several || (best != NULL && strcmp(best->team_id, r->team_id) != 0);
		if (best == NULL || r->in_flight < best->in_flight)
			best = r;
	}
	if (best != NULL && !several) {
		best->in_flight++;
		best->requests++;
		if (best->sum != NULL)
			best->sum->requests++;
		*out = (struct serving_target){.attempt_id = arena_cstr(ask->a, best->attempt_id),
		                               .port = best->port};
	}
	lock_give(&s->lock);
	if (several)
		return err_set(
			err, ERR_CONFLICT,
			"%s: jobs of several teams serve under this name; use a token of one "
			"team",
			name);
	if (best == NULL)
		return deployments_asked(ask, name, &out->waits, err) < 0 ? -1
		       : out->waits                                       ? 0
		                    : by_hand(ask, name, &out->waits, err);
	out->key = serving_key(ask->app, ask->a, out->attempt_id);
	return 0;
}

static void give(struct app *app, const char *attempt_id, bool failed)
{
	struct serving *s = app->serving;
	struct replica *r;
	bool told;

	lock_take(&s->lock);
	r = find(s, attempt_id);
	assert(r != NULL && r->in_flight > 0); /* taken, and not given back */
	r->in_flight--;
	r->failures += failed ? 1 : 0;
	if (r->sum != NULL)
		r->sum->failures += failed ? 1 : 0;
	r->used_ms = clock_mono_ms();
	told = r->retired && r->in_flight == 0; /* now its runner hears that it is to stop */
	if (r->over && r->in_flight == 0)
		drop(r);
	lock_give(&s->lock);
	if (told)
		app_notify(app, CHANNEL_DESIRED, attempt_id);
}

static int list(const struct ask *ask, struct serving_row **out, size_t *n, struct err *err UNUSED)
{
	struct serving *s = ask->app->serving;
	struct replica *r;
	size_t most = 0;

	*n = 0;
	lock_take(&s->lock);
	LIST_FOREACH(r, &s->all, link)
	most++;
	*out = ARENA_ARRAY(ask->a, struct serving_row, most + 1);
	LIST_FOREACH(r, &s->all, link)
	{
		replica_check(s, r);
		if (!sees(ask, r) || r->over)
			continue;
		(*out)[(*n)++] = (struct serving_row){.name = arena_cstr(ask->a, r->name),
		                                      .job_id = arena_cstr(ask->a, r->job_id),
		                                      .team_name = arena_cstr(ask->a, r->team_name),
		                                      .deployed = r->deployed,
		                                      .serves = r->serves && !r->retired,
		                                      .in_flight = r->in_flight,
		                                      .requests = r->requests,
		                                      .failures = r->failures};
	}
	lock_give(&s->lock);
	return 0;
}

const struct serving_ops serving_ops = {.take = take, .give = give, .list = list};
