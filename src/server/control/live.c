/* live.c - see live.h. */
#include "server/control/live.h"

#include "base/units.h"

struct job {
	unsigned magic;
#define JOB_MAGIC 0x564a4f42U
	char *id, *stage, *words, *reason;
	uint64_t done, total;
	double rate;
	int64_t updated_ms, heartbeat_ms;
	size_t place;
	int64_t start_ms;
	int64_t heard_ms, stored_ms; /* monotonic */
	bool dirty;                  /* progress or heartbeat that is not stored yet */
	bool urgent;                 /* the stage has changed: now */
	bool reason_is_new; /* the first reason of this wait is stored, later ones are only shown */
};

struct node {
	unsigned magic;
#define NODE_MAGIC 0x564e4f44U
	char *attempt_id;
	uint32_t rank;
	int64_t heartbeat_ms;
	int64_t heard_ms, stored_ms;
	bool idle, dirty, urgent;
};

struct live {
	struct lock lock;
	struct map *jobs, *nodes; /* by id; by "attempt/rank" */
	struct loop *loop;
};

/* What is true of a row whenever the lock is free. */
static void live_job_check(const struct live *l, const struct job *j)
{
	assert(j->magic == JOB_MAGIC && lock_is_mine(&l->lock) && j->id != NULL);
	assert(!j->urgent || j->dirty);
	assert(!j->reason_is_new || j->reason != NULL);
	assert(j->done <= INT64_MAX && j->total <= INT64_MAX); /* as the database has them */
}

static void live_node_check(const struct live *l, const struct node *n)
{
	assert(n->magic == NODE_MAGIC && lock_is_mine(&l->lock) && n->attempt_id != NULL);
	assert(!n->urgent || n->dirty);
}

static void job_free(struct job *j)
{
	if (j == NULL)
		return;
	free(j->id);
	free(j->stage);
	free(j->words);
	free(j->reason);
	free(j);
}

static void node_free(struct node *n)
{
	if (n == NULL)
		return;
	free(n->attempt_id);
	free(n);
}

static struct job *job_of(struct live *l, const char *id)
{
	struct job *j = map_get(l->jobs, str_of(id));

	if (j == NULL) {
		j = xcalloc(1, sizeof(*j));
		j->magic = JOB_MAGIC;
		j->id = xstrdup(id);
		j->stored_ms = clock_mono_ms();
		(void)map_set(l->jobs, str_of(id), j);
	}
	j->heard_ms = clock_mono_ms();
	live_job_check(l, j);
	return j;
}

#define NODE_KEY_CAP 80
static void node_key(const char *attempt_id, uint32_t rank, char out[NODE_KEY_CAP])
{
	fmt_fixed(out, NODE_KEY_CAP, "%.60s/%u", attempt_id, rank);
}

static bool set_text(char **to, const char *text)
{
	if (app_same(*to, text))
		return false;
	free(*to);
	*to = text != NULL ? xstrdup(text) : NULL;
	return true;
}

bool live_progress(struct app *app, const char *job_id, const struct live_progress *p)
{
	struct live *l = app->live;
	bool stage, words;
	struct job *j;

	lock_take(&l->lock);
	j = job_of(l, job_id);
	stage = set_text(&j->stage, p->stage);
	words = set_text(&j->words, p->words);
	j->done = MIN(p->done, (uint64_t)INT64_MAX);
	j->total = MIN(p->total, (uint64_t)INT64_MAX);
	j->rate = p->rate;
	j->updated_ms = p->now_ms;
	if (p->heartbeat)
		j->heartbeat_ms = p->now_ms;
	j->dirty = true;
	j->urgent = j->urgent || stage;
	live_job_check(l, j);
	lock_give(&l->lock);
	if (stage)
		loop_kick(l->loop);
	return stage || words;
}

bool live_beat(struct app *app, const char *attempt_id, uint32_t rank, bool idle, int64_t now_ms)
{
	struct live *l = app->live;
	char key[NODE_KEY_CAP];
	struct node *n;
	bool changed;

	node_key(attempt_id, rank, key);
	lock_take(&l->lock);
	n = map_get(l->nodes, str_of(key));
	if (n == NULL) {
		n = xcalloc(1, sizeof(*n));
		n->magic = NODE_MAGIC;
		n->attempt_id = xstrdup(attempt_id);
		n->rank = rank;
		n->stored_ms = clock_mono_ms();
		(void)map_set(l->nodes, str_of(key), n);
	}
	changed = n->idle != idle;
	n->idle = idle;
	n->heartbeat_ms = now_ms;
	n->heard_ms = clock_mono_ms();
	n->dirty = true;
	n->urgent = n->urgent || changed;
	live_node_check(l, n);
	lock_give(&l->lock);
	if (changed)
		loop_kick(l->loop);
	return changed;
}

bool live_wait(struct app *app, const char *job_id, const struct live_wait *w, bool *first)
{
	struct live *l = app->live;
	struct job *j;
	bool changed;

	assert(w->reason != NULL);
	lock_take(&l->lock);
	j = job_of(l, job_id);
	*first = j->reason == NULL;
	changed = set_text(&j->reason, w->reason);
	j->reason_is_new = j->reason_is_new || *first;
	j->place = w->place;
	j->start_ms = w->start_ms;
	live_job_check(l, j);
	lock_give(&l->lock);
	return changed;
}

void live_moved(struct app *app, const char *job_id, bool all)
{
	struct live *l = app->live;
	struct job *j;

	lock_take(&l->lock);
	j = map_get(l->jobs, str_of(job_id));
	if (j != NULL && all) {
		(void)map_del(l->jobs, str_of(job_id));
		job_free(j);
	} else if (j != NULL) {
		(void)set_text(&j->reason, NULL);
		j->reason_is_new = false;
		j->place = 0;
		j->start_ms = 0;
		live_job_check(l, j);
	}
	lock_give(&l->lock);
}

void live_ended(struct app *app, const char *attempt_id, uint32_t rank)
{
	struct live *l = app->live;
	char key[NODE_KEY_CAP];

	node_key(attempt_id, rank, key);
	lock_take(&l->lock);
	node_free(map_del(l->nodes, str_of(key)));
	lock_give(&l->lock);
}

/* --- shown --- */

static void show_job(struct arena *a, const struct job *live, struct model_job *j)
{
	if (live->stage != NULL) {
		j->stage = arena_cstr(a, live->stage);
		j->progress = arena_cstr(a, live->words);
		j->progress_done = live->done;
		j->progress_total = live->total;
		j->progress_rate = live->rate;
		j->updated_ms = MAX(j->updated_ms, live->updated_ms);
		j->heartbeat_ms = MAX(j->heartbeat_ms, live->heartbeat_ms);
	}
	if (live->reason != NULL && !job_state_is_placed(j->core.state)) {
		j->reason = arena_cstr(a, live->reason);
		j->place = live->place;
		j->start_by_ms = live->start_ms;
	}
}

/* What keeps a job that runs from getting on; NULL: nothing that the server knows of. */
static const char *stalled_by(struct app *app, struct arena *a)
{
	const char *state = objstore_state(app->objects);
	struct outage objects;
	char why[OBJSTORE_WHY_MAX], took[UNITS_CAP];

	objstore_outage(app->objects, &objects, why);
	if (state == NULL || objects.since_ms == 0)
		return NULL;
	return arena_printf(
		a, "the object store %s, for %s now; the job goes on, its checkpoints wait", state,
		units_show_seconds((uint64_t)outage_away_ms(&objects, clock_wall_ms()) / 1000,
	                           took));
}

void live_show(struct app *app, struct arena *a, struct model_job *jobs, size_t n)
{
	struct live *l = app->live;
	const char *stalled = stalled_by(app, a);

	for (size_t i = 0; i < n && stalled != NULL; i++) {
		/* one that is not there yet says itself what it waits for */
		if (jobs[i].core.state == JOB_RUNNING && jobs[i].reason == NULL)
			jobs[i].reason = stalled;
	}
	lock_take(&l->lock);
	for (size_t i = 0; i < n; i++) {
		const struct job *live =
			jobs[i].id != NULL && !job_state_is_final(jobs[i].core.state)
				? map_get(l->jobs, str_of(jobs[i].id))
				: NULL;

		if (live != NULL)
			show_job(a, live, &jobs[i]);
	}
	lock_give(&l->lock);
}

int64_t live_heard_ms(struct app *app, const char *attempt_id, uint32_t rank)
{
	struct live *l = app->live;
	const struct node *n;
	char key[NODE_KEY_CAP];
	int64_t heard_ms;

	node_key(attempt_id, rank, key);
	lock_take(&l->lock);
	n = map_get(l->nodes, str_of(key));
	heard_ms = n != NULL ? n->heard_ms : 0;
	lock_give(&l->lock);
	return heard_ms;
}

void live_show_nodes(struct app *app, struct model_attempt *t, size_t n)
{
	struct live *l = app->live;
	char key[NODE_KEY_CAP];

	lock_take(&l->lock);
	for (size_t i = 0; i < n; i++) {
		const struct node *live;

		node_key(t[i].id, t[i].node_rank, key);
		live = map_get(l->nodes, str_of(key));
		if (live == NULL)
			continue;
		t[i].heartbeat_ms = MAX(t[i].heartbeat_ms, live->heartbeat_ms);
		t[i].idle = live->idle;
	}
	lock_give(&l->lock);
}

/* --- stored --- */

struct due {
	unsigned magic;
#define DUE_MAGIC 0x56445545U
	struct live *l;
	struct arena *a;
	bool all;
	int64_t now_ms;
	struct meta_live_job *job;
	struct meta_live_node *node;
	size_t n_jobs, n_nodes, jobs_max, nodes_max;
};

static bool is_due(const struct due *d, bool dirty, bool urgent, int64_t stored_ms)
{
	return urgent || (dirty && (d->all || d->now_ms - stored_ms >= LIVE_STORE_MS));
}

static void take_job(struct str key, void *value, void *arg)
{
	struct due *d = FROM_VOID(struct due, arg, DUE_MAGIC);
	struct job *j = FROM_VOID(struct job, value, JOB_MAGIC);
	bool progress = is_due(d, j->dirty, j->urgent, j->stored_ms);

	live_job_check(d->l, j);
	if (progress || j->reason_is_new) {
		assert(d->n_jobs < d->jobs_max);
		d->job[d->n_jobs++] = (struct meta_live_job){
			.id = arena_cstr(d->a, j->id),
			.reason = j->reason_is_new ? arena_cstr(d->a, j->reason) : NULL,
			.stage = progress ? arena_cstr(d->a, j->stage) : NULL,
			.words = arena_cstr(d->a, j->words),
			.done = j->done,
			.total = j->total,
			.rate = j->rate,
			.updated_ms = j->updated_ms,
			.heartbeat_ms = j->heartbeat_ms,
		};
		j->reason_is_new = false;
		if (progress) {
			j->dirty = j->urgent = false;
			j->stored_ms = d->now_ms;
		}
	}
	/* Waiting jobs are spoken of by each pass of the queue. */
	if (d->now_ms - j->heard_ms > LIVE_SILENT_MS) {
		(void)map_del(d->l->jobs, key);
		job_free(j);
	}
}

static void take_node(struct str key, void *value, void *arg)
{
	struct due *d = FROM_VOID(struct due, arg, DUE_MAGIC);
	struct node *n = FROM_VOID(struct node, value, NODE_MAGIC);

	live_node_check(d->l, n);
	if (is_due(d, n->dirty, n->urgent, n->stored_ms)) {
		assert(d->n_nodes < d->nodes_max);
		d->node[d->n_nodes++] = (struct meta_live_node){
			.attempt_id = arena_cstr(d->a, n->attempt_id),
			.rank = n->rank,
			.heartbeat_ms = n->heartbeat_ms,
			.idle = n->idle,
		};
		n->dirty = n->urgent = false;
		n->stored_ms = d->now_ms;
	}
	if (d->now_ms - n->heard_ms > LIVE_SILENT_MS) {
		(void)map_del(d->l->nodes, key);
		node_free(n);
	}
}

static void store(struct app *app, bool all)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct live *l = app->live;
	struct due d = {.magic = DUE_MAGIC, .l = l, .a = a, .all = all, .now_ms = clock_mono_ms()};
	struct err err = {0};

	lock_take(&l->lock);
	d.jobs_max = map_count(l->jobs);
	d.nodes_max = map_count(l->nodes);
	d.job = ARENA_ARRAY(a, struct meta_live_job, d.jobs_max);
	d.node = ARENA_ARRAY(a, struct meta_live_node, d.nodes_max);
	map_each(l->jobs, take_job, &d);
	map_each(l->nodes, take_node, &d);
	lock_give(&l->lock);
	if (d.n_jobs + d.n_nodes > 0 &&
	    meta_live_put(app->meta, d.job, d.n_jobs, d.node, d.n_nodes, &err) < 0)
		log_warn("liveness: %s", err.msg); /* the next time has newer ones */
}

void live_pass(struct app *app)
{
	store(app, false);
}

void live_start(struct app *app)
{
	app->live = xcalloc(1, sizeof(*app->live));
	lock_init(&app->live->lock, LOCK_LIVE);
	app->live->jobs = map_new();
	app->live->nodes = map_new();
	app->live->loop = loop_new(app, live_pass, LIVE_PERIOD_MS);
}

void live_run(struct app *app)
{
	loop_run(app->live->loop);
}

void live_stop(struct app *app)
{
	loop_stop(app->live->loop);
}

static void drop_job(struct str key UNUSED, void *value, void *arg UNUSED)
{
	job_free(FROM_VOID(struct job, value, JOB_MAGIC));
}

static void drop_node(struct str key UNUSED, void *value, void *arg UNUSED)
{
	node_free(FROM_VOID(struct node, value, NODE_MAGIC));
}

void live_free(struct app *app)
{
	struct live *l = app->live;

	if (l == NULL)
		return;
	loop_free(l->loop);
	store(app, true);
	map_each(l->jobs, drop_job, NULL);
	map_each(l->nodes, drop_node, NULL);
	map_free(l->jobs);
	map_free(l->nodes);
	lock_done(&l->lock);
	free(l);
	app->live = NULL;
}
