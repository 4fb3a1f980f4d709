/* queue.c - facts to core/sched.c, its answers to rows. */
#include "server/control/queue.h"
#include "server/control/inputs.h"
#include "server/control/jobs.h"
#include "server/control/live.h"
#include "server/control/node_room.h"
#include "server/control/prepare.h"
#include "server/control/specs.h"

#define SERVE_AGAIN_MAX_MS 300000

struct queue {
	struct loop *loop;
	struct lock pass;   /* one at a time: facts must not change under a decision */
	atomic_int waiting; /* callers of queue_kick_wait */
};

void queue_node_empty(struct app *app, struct sched_node *out)
{
	const struct inventory *inv = &app->inv;
	bool alike = true;

	for (size_t i = 1; i < inv->n_gpus; i++)
		alike = alike && strcmp(inv->gpu[i].type, inv->gpu[0].type) == 0;

	*out = (struct sched_node){
		.name = app->node_name,
		.cluster = APP_CLUSTER,
		.cpu_milli = inv->cpu_milli,
		.memory_bytes = inv->memory_bytes,
		.gpu_type = inv->n_gpus > 0 ? inv->gpu[0].type : NULL,
		.gpu_types = alike ? NULL : app->gpu_types,
		.gpus = (uint32_t)inv->n_gpus,
	};
}

int queue_node(struct app *app, struct arena *a, struct sched_node *out, struct err *err)
{
	struct meta_held *held = NULL;
	size_t n = 0;

	queue_node_empty(app, out);
	if (meta_held(app->meta, a, &held, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (!app_is_here(app, held[i].node_id, held[i].node))
			continue;
		out->cpu_milli_used += held[i].cpu_milli;
		out->memory_used += held[i].memory_bytes;
		out->gpus_used |= held[i].gpus;
	}
	return 0;
}

void queue_ask(const struct model_job *j, const char *pinned, struct sched_job *out)
{
	*out = (struct sched_job){
		.id = j->id != NULL ? j->id : "new",
		.team = j->team_id,
		.user = j->user,
		.priority = j->priority,
		.created_ms = j->created_ms,
		.since_ms = j->core.changed_ms,
		.duration_ms = (int64_t)MIN(j->max_duration_s, QUEUE_DURATION_MAX_S) * 1000,
		.nodes = j->node_count,
		.cpu_milli = j->cpu_milli,
		.gpus = j->gpu_count,
		.memory_bytes = j->memory_bytes,
		.gpu_type = j->gpu_count > 0 ? j->gpu_type : NULL,
		.project = j->project_name,
		.pinned_cluster = j->cache ? pinned : NULL,
		.cache = j->cache,
		.require_affinity = j->cache_affinity,
		.many_per_node = true,
	};
}

/* Limits of teams, by GPU type: what is used, and what would be with the jobs let through. */
struct limits {
	struct meta_capacity *row;
	size_t n;
	int64_t *used;
};

static int limits_read(struct app *app, struct arena *a, const struct meta_held *held, size_t n,
                       struct limits *l, struct err *err)
{
	if (meta_capacity(app->meta, a, &l->row, &l->n, err) < 0)
		return -1;
	l->used = ARENA_ARRAY(a, int64_t, l->n + 1);
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < l->n; k++) {
			if (app_same(held[i].team_id, l->row[k].team_id) &&
			    app_same(held[i].gpu_type, l->row[k].gpu_type))
				l->used[k] += held[i].gpu_count;
		}
	}
	return 0;
}

/* True: may be considered, and counts from now on. False: reason says which limit holds it. */
static bool limits_let(struct limits *l, const struct model_job *j, char reason[SCHED_REASON])
{
	int64_t asks = (int64_t)j->gpu_count * j->node_count;

	for (size_t k = 0; k < l->n; k++) {
		const struct meta_capacity *c = &l->row[k];

		if (asks == 0 || !app_same(j->team_id, c->team_id) ||
		    !app_same(j->gpu_type, c->gpu_type))
			continue;
		if (l->used[k] + asks > c->max_gpus) {
			(void)snprintf(reason, SCHED_REASON,
			               "waits for the GPU limit of team %.60s: %lld of %lld %.20s "
			               "in use, job asks for %lld",
			               c->team_name, (long long)l->used[k], (long long)c->max_gpus,
			               c->gpu_type, (long long)asks);
			return false;
		}
		l->used[k] += asks;
	}
	return true;
}

/* It waits for something else: others may use what is left of the limit. */
static void limits_return(struct limits *l, const struct model_job *j)
{
	int64_t asks = (int64_t)j->gpu_count * j->node_count;

	for (size_t k = 0; k < l->n && asks > 0; k++) {
		if (app_same(j->team_id, l->row[k].team_id) &&
		    app_same(j->gpu_type, l->row[k].gpu_type))
			l->used[k] -= asks;
	}
}

/* A server that ends again and again is started again at once, then after a while, which doubles.
 */
static bool is_too_early(struct app *app, const struct model_job *j, char reason[SCHED_REASON])
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err err = {0};
	int64_t wait_ms = QUEUE_PERIOD_MS, left_ms;

	if (j->core.attempt < 2 || j->id == NULL || specs_get(app, j->id, &hold, &err) < 0 ||
	    hold.spec->serve.name == NULL)
		return false;
	for (uint32_t i = 2; i < j->core.attempt && wait_ms < SERVE_AGAIN_MAX_MS; i++)
		wait_ms *= 2;
	wait_ms = MIN(wait_ms, (int64_t)SERVE_AGAIN_MAX_MS);
	left_ms = MIN(j->core.changed_ms + wait_ms - clock_wall_ms(), wait_ms);
	if (left_ms <= 0)
		return false;
	(void)snprintf(reason, SCHED_REASON,
	               "its server has ended %u times: it is started again in %" PRId64 " s",
	               j->core.attempt, (left_ms + 999) / 1000);
	return true;
}

/* May it start, when there is room? One that is only asked about has no id. */
static bool is_let(struct app *app, struct limits *l, struct node_room *room,
                   const struct model_job *j, char reason[SCHED_REASON])
{
	const char *lacks;

	if (j->inputs_missing && j->id != NULL) {
		inputs_want(app, j->id, reason);
		return false;
	}
	if (is_too_early(app, j, reason))
		return false;
	lacks = app_lacks(app);
	if (lacks != NULL) {
		(void)snprintf(reason, SCHED_REASON,
		               "waiting for %s: the disk of the data folder has hardly any left",
		               lacks);
		return false;
	}
	if (!limits_let(l, j, reason))
		return false;
	if (j->id == NULL || node_room_let(room, j->id, reason))
		return true;
	limits_return(l, j);
	return false;
}

/* The attempts of a placement and the words about it. */
static void place(struct app *app, struct arena *a, const struct model_job *row,
                  const struct sched_answer *answer)
{
	struct model_attempt *t = ARENA_ARRAY(a, struct model_attempt, row->node_count);
	const char *id = app_id(a, MODEL_ID_LEN + 3);
	struct meta_step s = {
		.job_id = row->id,
		.event = JOB_EV_PLACE,
		.now_ms = clock_wall_ms(),
		.actor = "server",
		.attempts = t,
		.n_attempts = row->node_count,
		.pin_cluster = row->cache ? APP_CLUSTER : NULL,
	};
	struct err err = {0};

	for (uint32_t i = 0; i < row->node_count; i++) {
		t[i] = (struct model_attempt){
			.id = id,
			.node_rank = i,
			.node = app->node_name,
			.node_id = app->node_id,
			.cluster = APP_CLUSTER,
			.gpus = answer->shares[i].gpus,
			.dir = engine_dir(a, id, i),
		};
	}
	s.message = row->core.attempt > 0
	                    ? arena_printf(a, "placed on %s (attempt %u of %u)", app->node_name,
	                                   row->core.attempt + 1, row->core.attempt_max)
	                    : arena_printf(a, "placed on %s", app->node_name);
	app_crash_at("place:before");
	if (jobs_step(app, &s, NULL, NULL, &err) < 0) {
		log_info("place: job=%s %s", row->id, err.msg); /* stopped meanwhile */
		return;
	}
	app_crash_at("place:after");
	prepare_submit(app, row->id);
}

static void never(struct app *app, const struct model_job *row, const char *reason)
{
	struct err cause = {0};

	err_set(&cause, ERR_JOB_NEVER_FITS, "%s", reason);
	jobs_deploy_failed(app, row, "placement", &cause);
}

/* Shows the current reason for waiting, and logs it once. */
static void wait(struct app *app, const struct model_job *row, const char *reason, size_t place,
                 int64_t start_ms)
{
	struct live_wait w = {reason, place, start_ms};
	bool first = false;

	if (!live_wait(app, row->id, &w, &first))
		return;
	if (first && row->reason == NULL)
		app_log(app, row->id, "%s", reason);
	app_notify(app, CHANNEL_JOB, row->id);
}

/* The resources of this node that placed jobs have, with the ends that they declared. */
static struct sched_held *held_of(const struct app *app, struct arena *a, const struct meta_held *h,
                                  size_t *n, int64_t now_ms)
{
	struct sched_held *out = ARENA_ARRAY(a, struct sched_held, *n);
	size_t all = *n;

	*n = 0;
	for (size_t i = 0; i < all; i++) {
		int64_t lasts = (int64_t)MIN(h[i].max_duration_s, QUEUE_DURATION_MAX_S) * 1000;
		struct sched_held *to;

		if (!app_is_here(app, h[i].node_id, h[i].node))
			continue;
		to = &out[(*n)++];
		*to = (struct sched_held){
			.cpu_milli = h[i].cpu_milli,
			.memory_bytes = h[i].memory_bytes,
			.gpus = h[i].gpus,
			.placed_ms = h[i].placed_ms > 0 ? h[i].placed_ms : now_ms,
			.team = h[i].team_id,
			.user = h[i].user,
		};
		if (lasts > 0) /* it counts from the first command */
			to->end_ms = (h[i].started_ms > 0 ? h[i].started_ms : now_ms) + lasts;
	}
	return out;
}

static void answer_all(struct app *app, struct arena *a, const struct meta_waiting *w,
                       const size_t *line, size_t n, const struct sched_answer *answer)
{
	for (size_t i = 0; i < n; i++) {
		const struct model_job *row = &w[line[i]].job;
		const struct sched_answer *x = &answer[line[i]];

		switch (x->verdict) {
		case SCHED_PLACED:
			place(app, a, row, x);
			break;
		case SCHED_WAITS:
			wait(app, row, x->reason, x->place, x->start_ms);
			break;
		case SCHED_NEVER:
			never(app, row, x->reason);
			break;
		}
	}
}

/* The scheduler's verdict on each waiting job, in the order of the queue. */
struct verdicts {
	size_t *line, let; /* those that wait for nothing but the machine come first */
	struct sched_answer
		*answer; /* by index of the waiting job; a held one has its reason alone */
};

static int judge(struct app *app, struct arena *a, const struct meta_waiting *w, size_t n,
                 struct verdicts *out, struct err *err)
{
	struct sched_job *ask = ARENA_ARRAY(a, struct sched_job, n);
	size_t *line = ARENA_ARRAY(a, size_t, n), *held_up = ARENA_ARRAY(a, size_t, n), n_up = 0;
	struct meta_held *held = NULL;
	struct limits limits = {0};
	struct node_room *room = NULL;
	struct sched_node node;
	struct sched_facts facts = {
		.nodes = &node,
		.n_nodes = 1,
		.now_ms = clock_wall_ms(),
		.backfill = app->set.backfill,
		.backfill_wait_ms = (int64_t)app->set.backfill_wait * 1000,
	};

	*out = (struct verdicts){.line = line, .answer = ARENA_ARRAY(a, struct sched_answer, n)};
	queue_node_empty(app, &node);
	if (meta_held(app->meta, a, &held, &facts.n_held, err) < 0 ||
	    limits_read(app, a, held, facts.n_held, &limits, err) < 0 ||
	    node_room_read(app, a, &room, err) < 0)
		return -1;
	facts.held = held_of(app, a, held, &facts.n_held, facts.now_ms);
	for (size_t i = 0; i < n; i++)
		queue_ask(&w[i].job, w[i].pinned_cluster, &ask[i]);
	sched_line(a, &facts, ask, n, line);
	for (size_t i = 0; i < n; i++) {
		struct sched_answer *x = &out->answer[line[i]];

		x->verdict = SCHED_WAITS;
		if (is_let(app, &limits, room, &w[line[i]].job, x->reason))
			line[out->let++] = line[i];
		else
			held_up[n_up++] = line[i];
	}
	memcpy(line + out->let, held_up, n_up * sizeof(*line));
	sched_run(a, &facts, ask, line, out->let, out->answer);
	return 0;
}

static int decide(struct app *app, struct arena *a, const struct meta_waiting *w, size_t n,
                  struct err *err)
{
	struct verdicts v;

	if (judge(app, a, w, n, &v, err) < 0)
		return -1;
	for (size_t i = v.let; i < n; i++)
		wait(app, &w[v.line[i]].job, v.answer[v.line[i]].reason, 0, 0);
	answer_all(app, a, w, v.line, v.let, v.answer);
	return 0;
}

int queue_forecast(struct app *app, struct arena *a, const struct model_job *job,
                   const char *pinned, const char **reason, struct err *err)
{
	struct meta_waiting *w = NULL, *all;
	struct verdicts v;
	size_t n = 0;

	if (meta_waiting(app->meta, a, &w, &n, err) < 0)
		return -1;
	all = ARENA_ARRAY(a, struct meta_waiting, n + 1);
	if (n > 0)
		memcpy(all, w, n * sizeof(*w));
	all[n] = (struct meta_waiting){.job = *job, .pinned_cluster = pinned};
	if (judge(app, a, all, n + 1, &v, err) < 0)
		return -1;
	*reason = v.answer[n].verdict == SCHED_PLACED ? NULL : arena_cstr(a, v.answer[n].reason);
	return 0;
}

void queue_pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_waiting *rows = NULL;
	struct err err = {0};
	size_t n = 0;

	if (atomic_load(&app->stopping))
		return;
	lock_take(&app->queue->pass);
	if (meta_waiting(app->meta, a, &rows, &n, &err) < 0 ||
	    (n > 0 && decide(app, a, rows, n, &err) < 0))
		log_error("queue: %s", err.msg);
	lock_give(&app->queue->pass);
}

void queue_start(struct app *app)
{
	app->queue = xcalloc(1, sizeof(*app->queue));
	lock_init(&app->queue->pass, LOCK_QUEUE_PASS);
	app->queue->loop = loop_new(app, queue_pass, QUEUE_PERIOD_MS);
}

void queue_run(struct app *app)
{
	loop_run(app->queue->loop);
}

void queue_stop(struct app *app)
{
	loop_stop(app->queue->loop);
}

void queue_free(struct app *app)
{
	if (app->queue == NULL)
		return;
	loop_free(app->queue->loop);
	lock_done(&app->queue->pass);
	free(app->queue);
	app->queue = NULL;
}

void queue_kick(struct app *app)
{
	loop_kick(app->queue->loop);
}

void queue_kick_wait(struct app *app)
{
	struct queue *q = app->queue;

	if (atomic_fetch_add(&q->waiting, 1) < MAX(app->set.workers / 2, 1))
		(void)loop_kick_wait(q->loop, QUEUE_WAIT_MS);
	else
		loop_kick(q->loop);
	(void)atomic_fetch_sub(&q->waiting, 1);
}
