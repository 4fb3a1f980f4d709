/* deployments.c - see deployments.h: what there is of each deployment, and what is done about it.
 */
#include "server/control/deployments.h"

#include "server/api/push.h"
#include "server/control/jobs.h"
#include "server/control/serving.h"

#include <sys/queue.h>

#define PERIOD_MS 2000 /* how exactly "without a request for so long" is kept */
#define TRY_FIRST_MS 5000
#define TRY_MOST_MS 60000

/* A deployment whose next job could not be pushed. */
struct trouble {
	char *id, *why;
	int64_t next_ms, pause_ms; /* monotonic */
	LIST_ENTRY(trouble) link;
};

struct deployments {
	struct loop *loop;
	struct lock lock;
	LIST_HEAD(, trouble) troubles;
};

/* What cannot start now. */

static struct trouble *find_trouble(struct deployments *all, const char *id)
{
	struct trouble *t;

	assert(lock_is_mine(&all->lock));
	LIST_FOREACH(t, &all->troubles, link)
	if (strcmp(t->id, id) == 0)
		return t;
	return NULL;
}

static void drop_trouble(struct trouble *t)
{
	if (t == NULL)
		return;
	LIST_REMOVE(t, link);
	free(t->id);
	free(t->why);
	free(t);
}

void deployments_forgive(struct app *app, const char *id)
{
	struct deployments *all = app->deployments;

	lock_take(&all->lock);
	drop_trouble(find_trouble(all, id));
	lock_give(&all->lock);
}

static void note_trouble(struct deployments *all, const char *id, const char *why)
{
	struct trouble *t;

	lock_take(&all->lock);
	t = find_trouble(all, id);
	if (t == NULL) {
		t = xcalloc(1, sizeof(*t));
		t->id = xstrdup(id);
		LIST_INSERT_HEAD(&all->troubles, t, link);
	}
	free(t->why);
	t->why = xstrdup(why);
	t->pause_ms = MIN(MAX(2 * t->pause_ms, TRY_FIRST_MS), TRY_MOST_MS);
	t->next_ms = clock_mono_ms() + t->pause_ms;
	lock_give(&all->lock);
}

const char *deployments_trouble(struct app *app, struct arena *a, const char *id, bool *early)
{
	struct deployments *all = app->deployments;
	const struct trouble *t;
	const char *why = NULL;

	*early = false;
	lock_take(&all->lock);
	t = find_trouble(all, id);
	if (t != NULL) {
		why = arena_cstr(a, t->why);
		*early = clock_mono_ms() < t->next_ms;
	}
	lock_give(&all->lock);
	return why;
}

/* What there is. */

int deployments_look(struct app *app, struct arena *a, const char *team_id,
                     struct deployment_look **out, size_t *n, bool *strays, struct err *err)
{
	AUTO_MAP struct map *by_id = map_new();
	struct model_deployment *d;
	struct model_replica *r;
	size_t n_r = 0;

	if (meta_deployments(app->meta, a, team_id, NULL, &d, n, err) < 0 ||
	    meta_replicas(app->meta, a, NULL, &r, &n_r, err) < 0)
		return -1;
	*out = ARENA_ARRAY(a, struct deployment_look, *n + 1);
	*strays = false;
	for (size_t i = 0; i < *n; i++) {
		(*out)[i].d = &d[i];
		(void)map_set(by_id, str_of(d[i].id), &(*out)[i]);
	}
	for (size_t i = 0; i < n_r; i++) {
		struct deployment_look *l = map_get(by_id, str_of(r[i].deployment_id));

		*strays = *strays || (l == NULL && !job_state_is_stopping(r[i].state));
		if (l != NULL && l->n++ == 0)
			l->r = &r[i]; /* those of one deployment stand together */
	}
	return 0;
}

int deployments_judge(struct app *app, struct arena *a, struct deployment_look *l, struct err *err)
{
	const struct model_deployment *d = l->d;
	int64_t failed = 0;

	l->failed_job = NULL;
	l->facts = (struct deployment_facts){.wanted = d->wanted,
	                                     .replicas = d->replicas,
	                                     .replace = d->replaces,
	                                     .idle_most_ms = (int64_t)d->idle_s * 1000};
	serving_show(app, l->r, l->n);
	deployment_count(&l->facts, d->revision, l->r, l->n);
	if (d->wanted == DEPLOYMENT_RUN && l->facts.current < d->replicas &&
	    meta_deployment_failed(app->meta, a, d, &failed, &l->failed_job, err) < 0)
		return -1;
	l->facts.failed = (size_t)failed;
	return 0;
}

int deployments_look_at(struct app *app, struct arena *a, struct deployment_look *l,
                        struct err *err)
{
	if (meta_replicas(app->meta, a, l->d->id, &l->r, &l->n, err) < 0)
		return -1;
	return deployments_judge(app, a, l, err);
}

/* What is done. */

static void stop(struct app *app, struct arena *a, const struct model_replica *r, const char *why)
{
	struct model_job job = {0};
	struct err err = {0};

	app_crash_at("deployment:stop");
	if (meta_job_brief(app->meta, a, r->job_id, &job, &err) < 0 ||
	    jobs_stop(app, a, &job, "server", why, false, &err) < 0) {
		if (err.code != ERR_NOT_FOUND && err.code != ERR_CONFLICT)
			log_warn("stop a job of a deployment: job=%s %s", r->job_id, err.msg);
	}
}

static const char *why_it_goes(struct arena *a, const struct model_deployment *d,
                               const struct model_replica *r, enum deployment_fate fate)
{
	if (d->wanted == DEPLOYMENT_STOP)
		return arena_printf(a, "deployment %s was stopped", d->name);
	if (d->wanted == DEPLOYMENT_SLEEP)
		return arena_printf(a, "deployment %s had no request for so long that it sleeps",
		                    d->name);
	if (fate == DEPLOYMENT_ROLLED)
		return arena_printf(a, "revision %u of deployment %s takes its place", d->revision,
		                    d->name);
	if (fate == DEPLOYMENT_REMOTE)
		return arena_printf(a,
		                    "it runs on %s, to which this server passes no requests; "
		                    "deployment %s starts another one here",
		                    r->node, d->name);
	return arena_printf(a, "deployment %s has fewer jobs from now on", d->name);
}

/* Has it been changed since its row was read? */
static bool has_changed(struct app *app, struct arena *a, const struct model_deployment *was)
{
	struct model_deployment *is;
	struct err ignored = {0};
	size_t n = 0;

	if (meta_deployments(app->meta, a, was->team_id, was->name, &is, &n, &ignored) < 0)
		return false;
	return n == 0 || strcmp(is->id, was->id) != 0 || is->revision != was->revision ||
	       is->wanted != was->wanted;
}

static void begin(struct app *app, struct arena *a, struct model_deployment *d)
{
	struct principal who = {.magic = PRINCIPAL_MAGIC,
	                        .name = d->user,
	                        .role = ROLE_MEMBER,
	                        .team_id = d->team_id};
	struct ask ask = {.app = app, .principal = &who, .a = a};
	struct model_job made = {0};
	const char *like = NULL;
	struct err err = {0};

	if (meta_deployment_job(app->meta, a, d, &like, &err) == 0 &&
	    (like != NULL ||
	     meta_deployment_document(app->meta, a, d->id, &d->document_json, &err) == 0) &&
	    push_replica(&ask, d, like, false, &made, &err) == 0) {
		deployments_forgive(app, d->id);
		return;
	}
	if (err.code == ERR_CANCELED || has_changed(app, a, d))
		return; /* the next pass looks again */
	log_warn("deployment %s: team=%s %s", d->name, d->team_name, err.msg);
	note_trouble(app->deployments, d->id, err.msg);
	app_notify(app, CHANNEL_SERVING, d->name);
}

static void stay_awake(struct app *app, const struct deployment_look *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (!job_state_is_stopping(l->r[i].state))
			serving_back(app, l->r[i].job_id);
	app_notify(app, CHANNEL_SERVING, l->d->name);
}

/* First its jobs get no more requests; then the row says so, and who asks wakes it. False: one came
 * in between, or it was changed. */
static bool fall_asleep(struct app *app, struct deployment_look *l, struct err *err)
{
	struct model_deployment *d = l->d;

	for (size_t i = 0; i < l->n; i++) {
		if (serving_retire(app, l->r[i].job_id, true))
			continue;
		stay_awake(app, l);
		return false;
	}
	if (meta_deployment_want(app->meta, d, DEPLOYMENT_SLEEP, clock_wall_ms(), err) < 0) {
		stay_awake(app, l);
		return false;
	}
	log_info("deployment sleeps: name=%s team=%s", d->name, d->team_name);
	/* who asked in between waits for jobs that get no more requests: it wakes them */
	app_notify(app, CHANNEL_SERVING, d->name);
	d->wanted = l->facts.wanted = DEPLOYMENT_SLEEP;
	return true;
}

/* One that was deployed between the two lists. */
static bool is_behind(const struct deployment_look *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->r[i].revision > l->d->revision)
			return true;
	return false;
}

static void pass_one(struct app *app, struct arena *a, struct deployment_look *l, struct err *err)
{
	enum deployment_fate *fate = ARENA_ARRAY(a, enum deployment_fate, l->n + 1);
	struct model_deployment *d = l->d;
	struct deployment_step step;
	bool early;

	if (is_behind(l)) {
		deployments_kick(app);
		return;
	}
	if (deployments_judge(app, a, l, err) < 0)
		return;
	step = deployment_step(&l->facts);
	if (step.sleep) {
		if (!fall_asleep(app, l, err))
			return;
		step = deployment_step(&l->facts);
	}
	deployment_choose(&step, d->revision, l->r, l->n, fate);
	for (size_t i = 0; i < l->n; i++)
		if (fate[i] != DEPLOYMENT_STAYS)
			stop(app, a, &l->r[i], why_it_goes(a, d, &l->r[i], fate[i]));
	(void)deployments_trouble(app, a, d->id, &early);
	for (size_t i = 0; i < step.start && !early; i++) {
		begin(app, a, d);
		(void)deployments_trouble(app, a, d->id, &early);
	}
	if (deployment_state(&l->facts) == DEPLOYMENT_FAILED)
		app_notify(app, CHANNEL_SERVING, d->name);
}

/* Jobs whose deployment was removed: each was stored together with its row, which is read after
 * them. */
static int stop_strays(struct app *app, struct arena *a, struct err *err)
{
	AUTO_MAP struct map *known = map_new();
	struct model_deployment *d;
	struct model_replica *r;
	size_t n = 0, n_r = 0;

	if (meta_replicas(app->meta, a, NULL, &r, &n_r, err) < 0 ||
	    meta_deployments(app->meta, a, NULL, NULL, &d, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		(void)map_set(known, str_of(d[i].id), &d[i]);
	for (size_t i = 0; i < n_r; i++)
		if (!job_state_is_stopping(r[i].state) &&
		    map_get(known, str_of(r[i].deployment_id)) == NULL)
			stop(app, a, &r[i], "its deployment was removed");
	return 0;
}

static void forget_gone(struct deployments *all, const struct deployment_look *l, size_t n)
{
	struct trouble *t, *next;

	lock_take(&all->lock);
	for (t = LIST_FIRST(&all->troubles); t != NULL; t = next) {
		size_t i = 0;

		next = LIST_NEXT(t, link);
		while (i < n && strcmp(l[i].d->id, t->id) != 0)
			i++;
		if (i == n)
			drop_trouble(t);
	}
	lock_give(&all->lock);
}

void deployments_pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct deployment_look *l;
	struct err err = {0};
	bool strays;
	size_t n = 0;

	if (deployments_look(app, a, NULL, &l, &n, &strays, &err) < 0) {
		if (err.code != ERR_CANCELED && err.code != ERR_UNAVAILABLE)
			log_warn("deployments: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++) {
		err_clear(&err);
		pass_one(app, a, &l[i], &err);
		if (err.code != ERR_NONE && err.code != ERR_CONFLICT && err.code != ERR_CANCELED)
			log_warn("deployment %s: %s", l[i].d->name, err.msg);
	}
	err_clear(&err);
	if (strays && stop_strays(app, a, &err) < 0)
		log_warn("deployments: %s", err.msg);
	forget_gone(app->deployments, l, n);
}

void deployments_start(struct app *app)
{
	app->deployments = xcalloc(1, sizeof(*app->deployments));
	lock_init(&app->deployments->lock, LOCK_DEPLOYMENTS);
	LIST_INIT(&app->deployments->troubles);
	app->deployments->loop = loop_new(app, deployments_pass, PERIOD_MS);
}

void deployments_run(struct app *app)
{
	loop_run(app->deployments->loop);
}

void deployments_stop(struct app *app)
{
	loop_stop(app->deployments->loop);
}

void deployments_free(struct app *app)
{
	struct deployments *all = app->deployments;

	if (all == NULL)
		return;
	loop_free(all->loop);
	while (!LIST_EMPTY(&all->troubles))
		drop_trouble(LIST_FIRST(&all->troubles));
	lock_done(&all->lock);
	free(all);
	app->deployments = NULL;
}

void deployments_kick(struct app *app)
{
	if (app->deployments != NULL)
		loop_kick(app->deployments->loop);
}
