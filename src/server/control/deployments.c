/* deployments.c - see deployments.h, and deployment_ops of face.h. */
#include "server/control/deployments.h"

#include "server/api/ctx.h"
#include "server/api/push.h"
#include "server/control/jobs.h"
#include "server/control/serving.h"

#include <sys/queue.h>

#define PERIOD_MS 2000 /* how exactly "without a request for so long" is kept */
#define TRY_FIRST_MS 5000
#define TRY_MOST_MS 60000
#define TEAM_MAX 1000 /* deployments of a team: all of them are looked at in each pass */

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

static void forget_trouble(struct deployments *all, const char *id)
{
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

/* NULL: there is none. *early: it is not yet time to try again. */
static const char *trouble_of(struct app *app, struct arena *a, const char *id, bool *early)
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

struct gathered {
	struct model_deployment *d;
	struct model_replica *all; /* of every deployment, or of this one */
	size_t n_all;
	struct deployment_facts facts;
	const char *failed_job; /* the newest; NULL: none has failed */
};

static bool is_of(const struct model_replica *r, const struct model_deployment *d)
{
	return strcmp(r->deployment_id, d->id) == 0;
}

static bool ends(const struct model_replica *r)
{
	return job_state_is_stopping(r->state);
}

/* Does it answer requests, or may it be expected to? After a start of the server nothing is known
 * of a job until its runner is heard. */
static bool is_in_place(struct app *app, const struct model_replica *r)
{
	struct serving_facts f;

	return r->state == JOB_RUNNING && (!serving_of_job(app, r->job_id, &f) || f.served);
}

static int gather(struct app *app, struct arena *a, struct gathered *g, struct err *err)
{
	const struct model_deployment *d = g->d;
	int64_t failed = 0;

	g->facts = (struct deployment_facts){.wanted = d->wanted,
	                                     .replicas = d->replicas,
	                                     .replace = d->replaces,
	                                     .idle_ms = INT64_MAX,
	                                     .idle_most_ms = (int64_t)d->idle_s * 1000};
	for (size_t i = 0; i < g->n_all; i++) {
		const struct model_replica *r = &g->all[i];
		bool current = r->revision == d->revision;
		struct serving_facts f;

		if (!is_of(r, d) || ends(r))
			continue;
		(void)serving_of_job(app, r->job_id, &f);
		f.serves = f.serves && job_state_is_placed(r->state);
		g->facts.in_flight += f.in_flight;
		if (f.serves)
			g->facts.idle_ms = MIN(g->facts.idle_ms, f.idle_ms);
		*(current ? &g->facts.current : &g->facts.old) += 1;
		if (current && job_state_is_placed(r->state))
			g->facts.current_placed++;
		*(current ? &g->facts.current_ready : &g->facts.old_ready) += f.serves ? 1 : 0;
		if (!current && is_in_place(app, r))
			g->facts.old_in_place++;
	}
	if (d->wanted == DEPLOYMENT_RUN && g->facts.current < d->replicas &&
	    meta_deployment_failed(app->meta, a, d, &failed, &g->failed_job, err) < 0)
		return -1;
	g->facts.failed = (size_t)failed;
	return 0;
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

/* Newest first, as they are listed; those that serve last. */
static void stop_some(struct app *app, struct arena *a, const struct gathered *g, size_t n)
{
	const char *why = arena_printf(a, "deployment %s has fewer jobs from now on", g->d->name);

	if (g->d->wanted != DEPLOYMENT_RUN)
		why = arena_printf(a, "deployment %s %s", g->d->name,
		                   g->d->wanted == DEPLOYMENT_STOP
		                           ? "was stopped"
		                           : "had no request for so long that it sleeps");
	for (int serving = 0; serving < 2; serving++) {
		for (size_t i = 0; i < g->n_all && n > 0; i++) {
			const struct model_replica *r = &g->all[i];
			struct serving_facts f;

			if (!is_of(r, g->d) || ends(r) || r->revision != g->d->revision)
				continue;
			(void)serving_of_job(app, r->job_id, &f);
			if (f.serves != (serving == 1))
				continue;
			stop(app, a, r, why);
			n--;
		}
	}
}

static void stop_old(struct app *app, struct arena *a, const struct gathered *g, bool all)
{
	for (size_t i = 0; i < g->n_all; i++) {
		const struct model_replica *r = &g->all[i];

		if (!is_of(r, g->d) || ends(r) || r->revision == g->d->revision)
			continue;
		if (all || !is_in_place(app, r))
			stop(app, a, r,
			     arena_printf(a, "revision %u of deployment %s takes its place",
			                  g->d->revision, g->d->name));
	}
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
		forget_trouble(app->deployments, d->id);
		return;
	}
	if (err.code == ERR_CONFLICT || err.code == ERR_CANCELED || err.code == ERR_NOT_FOUND)
		return; /* it has changed: the next pass looks again */
	log_warn("deployment %s: team=%s %s", d->name, d->team_name, err.msg);
	note_trouble(app->deployments, d->id, err.msg);
	app_notify(app, CHANNEL_SERVING, d->name);
}

static void stay_awake(struct app *app, const struct gathered *g)
{
	for (size_t i = 0; i < g->n_all; i++)
		if (is_of(&g->all[i], g->d) && !ends(&g->all[i]))
			serving_back(app, g->all[i].job_id);
	app_notify(app, CHANNEL_SERVING, g->d->name);
}

/* From here on its jobs get no more requests: who asks wakes it. */
static bool may_sleep(struct app *app, const struct gathered *g)
{
	for (size_t i = 0; i < g->n_all; i++) {
		if (!is_of(&g->all[i], g->d) || serving_retire(app, g->all[i].job_id, true))
			continue;
		stay_awake(app, g);
		return false;
	}
	return true;
}

/* After a takeover: requests go to jobs of this machine only, so another one takes its place. */
static void stop_elsewhere(struct app *app, struct arena *a, const struct gathered *g)
{
	for (size_t i = 0; i < g->n_all; i++) {
		struct model_replica *r = &g->all[i];

		if (!is_of(r, g->d) || ends(r) || !job_state_is_placed(r->state) ||
		    r->node == NULL || app_is_here(app, r->node_id, r->node))
			continue;
		stop(app, a, r,
		     arena_printf(a,
		                  "it runs on %s, to which this server passes no requests; "
		                  "deployment %s starts another one here",
		                  r->node, g->d->name));
		r->state = JOB_STOPPING;
	}
}

/* One that was deployed between the two lists. */
static bool is_behind(const struct gathered *g)
{
	for (size_t i = 0; i < g->n_all; i++)
		if (is_of(&g->all[i], g->d) && g->all[i].revision > g->d->revision)
			return true;
	return false;
}

static void pass_one(struct app *app, struct arena *a, struct gathered *g, struct err *err)
{
	struct model_deployment *d = g->d;
	struct deployment_step step;
	bool early;

	if (is_behind(g)) {
		deployments_kick(app);
		return;
	}
	stop_elsewhere(app, a, g);
	if (gather(app, a, g, err) < 0)
		return;
	step = deployment_step(&g->facts);
	if (step.sleep) {
		if (!may_sleep(app, g))
			return; /* a request has just come */
		if (meta_deployment_want(app->meta, d, DEPLOYMENT_SLEEP, clock_wall_ms(), err) <
		    0) {
			stay_awake(app, g);
			return;
		}
		log_info("deployment sleeps: name=%s team=%s", d->name, d->team_name);
		/* who asked in between waits for jobs that get no more requests: it wakes them */
		app_notify(app, CHANNEL_SERVING, d->name);
		d->wanted = DEPLOYMENT_SLEEP;
		g->facts.wanted = DEPLOYMENT_SLEEP;
		step = deployment_step(&g->facts);
	}
	if (step.stop > 0)
		stop_some(app, a, g, step.stop);
	if (step.stop_old || step.stop_old_absent)
		stop_old(app, a, g, step.stop_old);
	(void)trouble_of(app, a, d->id, &early);
	for (size_t i = 0; i < step.start && !early; i++) {
		begin(app, a, d);
		(void)trouble_of(app, a, d->id, &early);
	}
	if (deployment_state(&g->facts) == DEPLOYMENT_FAILED)
		app_notify(app, CHANNEL_SERVING, d->name);
}

static bool is_known(const struct model_deployment *d, size_t n, const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(d[i].id, id) == 0)
			return true;
	return false;
}

static void forget_gone(struct deployments *all, const struct model_deployment *d, size_t n)
{
	struct trouble *t, *next;

	lock_take(&all->lock);
	for (t = LIST_FIRST(&all->troubles); t != NULL; t = next) {
		next = LIST_NEXT(t, link);
		if (!is_known(d, n, t->id))
			drop_trouble(t);
	}
	lock_give(&all->lock);
}

/* Jobs of deployments that were removed. What is unknown may have been deployed a moment ago. */
static int stop_unknown(struct app *app, struct arena *a, const struct model_replica *r, size_t n_r,
                        struct err *err)
{
	struct model_deployment *d = NULL;
	size_t n = 0;

	if (meta_deployments(app->meta, a, NULL, NULL, &d, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n_r; i++)
		if (!ends(&r[i]) && !is_known(d, n, r[i].deployment_id))
			stop(app, a, &r[i], "its deployment was removed");
	return 0;
}

static void pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_deployment *d;
	struct model_replica *r;
	struct err err = {0};
	size_t n = 0, n_r = 0;
	bool unknown = false;

	if (meta_deployments(app->meta, a, NULL, NULL, &d, &n, &err) < 0 ||
	    meta_replicas(app->meta, a, NULL, &r, &n_r, &err) < 0) {
		if (err.code != ERR_CANCELED && err.code != ERR_UNAVAILABLE)
			log_warn("deployments: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++) {
		struct gathered g = {.d = &d[i], .all = r, .n_all = n_r};

		err_clear(&err);
		pass_one(app, a, &g, &err);
		if (err.code != ERR_NONE && err.code != ERR_CONFLICT && err.code != ERR_CANCELED)
			log_warn("deployment %s: %s", d[i].name, err.msg);
	}
	for (size_t i = 0; i < n_r; i++)
		unknown = unknown || (!ends(&r[i]) && !is_known(d, n, r[i].deployment_id));
	err_clear(&err);
	if (unknown && stop_unknown(app, a, r, n_r, &err) < 0)
		log_warn("deployments: %s", err.msg);
	forget_gone(app->deployments, d, n);
}

void deployments_start(struct app *app)
{
	app->deployments = xcalloc(1, sizeof(*app->deployments));
	lock_init(&app->deployments->lock, LOCK_DEPLOYMENTS);
	LIST_INIT(&app->deployments->troubles);
	app->deployments->loop = loop_new(app, pass, PERIOD_MS);
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

/* ---- for the face --------------------------------------------------------------------------- */

static int find(const struct ask *ask, const char *name, struct model_deployment *out, bool *found,
                struct err *err)
{
	struct model_deployment *d;
	size_t n = 0;

	*found = false;
	if (meta_deployments(ask->app->meta, ask->a, ask->principal->team_id, name, &d, &n, err) <
	    0)
		return -1;
	if (n > 1)
		return err_set(err, ERR_CONFLICT,
		               "%s: several teams have a deployment of this name; use a token of "
		               "one team",
		               name);
	*found = n == 1;
	if (*found)
		*out = d[0];
	return 0;
}

static int find_one(const struct ask *ask, const char *name, struct model_deployment *out,
                    struct err *err)
{
	bool found;

	if (find(ask, name, out, &found, err) < 0)
		return -1;
	return found ? 0 : err_set(err, ERR_DEPLOYMENT_NOT_FOUND, "no deployment \"%.63s\"", name);
}

static const char *reason_of(struct app *app, struct arena *a, const struct gathered *g,
                             const struct deployment_view *v)
{
	const char *why;
	bool early;

	if (g->d->wanted == DEPLOYMENT_SLEEP)
		return "the next request starts it";
	if (g->d->wanted == DEPLOYMENT_STOP)
		return NULL;
	why = trouble_of(app, a, g->d->id, &early);
	if (why != NULL)
		return arena_printf(a, "its next job cannot be pushed: %s", why);
	if (g->failed_job != NULL)
		return arena_printf(a,
		                    "job %s of revision %u has ended by itself and is not started "
		                    "again: `stoker logs %s` says why",
		                    g->failed_job, g->d->revision, g->failed_job);
	if (v->ready > 0 && g->facts.current_ready == 0)
		return arena_printf(a, "revision %u is not ready; an older one answers",
		                    g->d->revision);
	return NULL;
}

static int view(struct app *app, struct arena *a, struct gathered *g, struct deployment_view *out,
                struct err *err)
{
	if (gather(app, a, g, err) < 0)
		return -1;
	*out = (struct deployment_view){
		.d = *g->d,
		.state = deployment_state(&g->facts),
		.ready = (uint32_t)(g->facts.current_ready + g->facts.old_ready),
		.jobs = ARENA_ARRAY(a, struct deployment_job, g->n_all + 1)};
	for (size_t i = 0; i < g->n_all; i++) {
		const struct model_replica *r = &g->all[i];
		struct serving_facts f;

		if (!is_of(r, g->d))
			continue;
		(void)serving_of_job(app, r->job_id, &f);
		out->jobs[out->n_jobs++] = (struct deployment_job){.job_id = r->job_id,
		                                                   .revision = r->revision,
		                                                   .state = r->state,
		                                                   .serves = f.serves && !ends(r),
		                                                   .in_flight = f.in_flight,
		                                                   .requests = f.requests,
		                                                   .failures = f.failures};
		out->in_flight += f.in_flight;
	}
	serving_sum(app, g->d->id, &out->requests, &out->failures);
	out->job_id = out->n_jobs > 0 ? out->jobs[0].job_id : g->failed_job;
	out->reason = reason_of(app, a, g, out);
	return 0;
}

static int view_of(const struct ask *ask, struct model_deployment *d, struct deployment_view *out,
                   struct err *err)
{
	struct gathered g = {.d = d};

	if (meta_replicas(ask->app->meta, ask->a, d->id, &g.all, &g.n_all, err) < 0)
		return -1;
	return view(ask->app, ask->a, &g, out, err);
}

static int get(const struct ask *ask, const char *name, struct deployment_view *out,
               struct err *err)
{
	struct model_deployment d = {0};

	return find_one(ask, name, &d, err) < 0 ? -1 : view_of(ask, &d, out, err);
}

static int deploy(const struct ask *ask, const struct deployment_want *want,
                  struct deployment_view *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_project p = {0};
	struct model_deployment *old, d;
	struct model_job made = {0};
	int64_t has = 0;
	size_t n = 0;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 ||
	    ctx_project(ask, want->project_id, &p, err) < 0 ||
	    meta_deployments(app->meta, ask->a, p.team_id, want->name, &old, &n, err) < 0 ||
	    meta_deployments_count(app->meta, p.team_id, &has, err) < 0)
		return -1;
	if (n == 0 && has >= TEAM_MAX)
		return err_set(err, ERR_CONFLICT,
		               "team %s has %d deployments already, the most that it may have: "
		               "`stoker deployments rm NAME` deletes one",
		               p.team_name, TEAM_MAX);
	d = (struct model_deployment){
		.id = app_id(ask->a, MODEL_ID_LEN), .created_ms = clock_wall_ms(), .replicas = 1};
	if (n > 0)
		d = old[0];
	d.name = want->name;
	d.team_id = p.team_id;
	d.team_name = p.team_name;
	d.project_id = p.id;
	d.project_name = p.name;
	d.wanted = DEPLOYMENT_RUN;
	d.revision++;
	d.replicas = want->replicas >= 0 ? (uint32_t)want->replicas : d.replicas;
	d.idle_s = want->idle_s >= 0 ? (uint32_t)want->idle_s : d.idle_s;
	d.replaces = want->replaces;
	d.checkpoint = want->checkpoint;
	d.document_json = want->document_json;
	d.user = ask->principal->name;
	d.updated_ms = d.started_ms = clock_wall_ms();
	if (push_replica(ask, &d, NULL, true, &made, err) < 0)
		return -1;
	forget_trouble(app->deployments, d.id);
	log_info("deployed: name=%s revision=%u team=%s job=%s by=%s", d.name, d.revision,
	         d.team_name, made.id, d.user);
	deployments_kick(app);
	return view_of(ask, &d, out, err);
}

static int want(const struct ask *ask, const char *name, enum deployment_wanted wanted,
                struct deployment_view *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_deployment d = {0};

	/* who starts what runs wants those that have failed to be tried again */
	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || find_one(ask, name, &d, err) < 0 ||
	    meta_deployment_want(app->meta, &d, wanted, clock_wall_ms(), err) < 0)
		return -1;
	forget_trouble(app->deployments, d.id);
	log_info("deployment: name=%s team=%s wanted=%s by=%s", d.name, d.team_name,
	         deployment_wanted_word[wanted], ask->principal->name);
	deployments_kick(app);
	app_notify(app, CHANNEL_SERVING, d.name);
	return get(ask, name, out, err);
}

static int scale(const struct ask *ask, const char *name, int64_t replicas, int64_t idle_s,
                 struct deployment_view *out, struct err *err)
{
	struct model_deployment d = {0};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || find_one(ask, name, &d, err) < 0 ||
	    meta_deployment_scale(
		    ask->app->meta, d.id, replicas >= 0 ? (uint32_t)replicas : d.replicas,
		    idle_s >= 0 ? (uint32_t)idle_s : d.idle_s, clock_wall_ms(), err) < 0)
		return -1;
	deployments_kick(ask->app);
	return get(ask, name, out, err);
}

static int remove_it(const struct ask *ask, const char *name, struct err *err)
{
	struct model_deployment d = {0};

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || find_one(ask, name, &d, err) < 0 ||
	    meta_deployment_del(ask->app->meta, d.id, err) < 0)
		return -1;
	log_info("deployment removed: name=%s team=%s by=%s", d.name, d.team_name,
	         ask->principal->name);
	serving_forget(ask->app, d.id);
	deployments_kick(ask->app); /* it stops the jobs */
	app_notify(ask->app, CHANNEL_SERVING, d.name);
	return 0;
}

static bool is_replica(const struct model_replica *r, size_t n, const char *job_id)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(r[i].job_id, job_id) == 0)
			return true;
	return false;
}

static int list(const struct ask *ask, struct deployment_view **out, size_t *n, struct err *err)
{
	struct app *app = ask->app;
	struct model_deployment *d;
	struct model_replica *r;
	struct serving_row *s;
	size_t n_d = 0, n_r = 0, n_s = 0;

	*n = 0;
	if (meta_deployments(app->meta, ask->a, ask->principal->team_id, NULL, &d, &n_d, err) < 0 ||
	    meta_replicas(app->meta, ask->a, NULL, &r, &n_r, err) < 0 ||
	    serving_ops.list(ask, &s, &n_s, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct deployment_view, n_d + n_s + 1);
	for (size_t i = 0; i < n_d; i++) {
		struct gathered g = {.d = &d[i], .all = r, .n_all = n_r};

		if (view(app, ask->a, &g, &(*out)[(*n)++], err) < 0)
			return -1;
	}
	for (size_t i = 0; i < n_s; i++) {
		if (is_replica(r, n_r, s[i].job_id))
			continue;
		(*out)[(*n)++] = (struct deployment_view){
			.d = {.name = s[i].name, .team_name = s[i].team_name, .replicas = 1},
			.state = s[i].serves ? DEPLOYMENT_READY : DEPLOYMENT_STARTING,
			.ready = s[i].serves ? 1 : 0,
			.in_flight = s[i].in_flight,
			.requests = s[i].requests,
			.failures = s[i].failures,
			.job_id = s[i].job_id};
	}
	return 0;
}

int deployments_asked(const struct ask *ask, const char *name, bool *waits, struct err *err)
{
	struct app *app = ask->app;
	struct model_deployment d = {0};
	struct gathered g = {.d = &d};
	struct deployment_view v;
	bool found;

	*waits = false;
	if (find(ask, name, &d, &found, err) < 0)
		return -1;
	if (!found)
		return 0;
	if (d.wanted == DEPLOYMENT_STOP)
		return err_set(err, ERR_UNAVAILABLE,
		               "%s is stopped: `stoker deployments start %s` starts it", name,
		               name);
	if (d.wanted == DEPLOYMENT_SLEEP) {
		if (meta_deployment_want(app->meta, &d, DEPLOYMENT_RUN, clock_wall_ms(), err) < 0) {
			if (err->code != ERR_CONFLICT)
				return -1;
			err_clear(err); /* another request has woken it */
		}
		forget_trouble(app->deployments, d.id);
		log_info("deployment wakes: name=%s team=%s", d.name, d.team_name);
		deployments_kick(app);
		*waits = true;
		return 0;
	}
	if (meta_replicas(app->meta, ask->a, d.id, &g.all, &g.n_all, err) < 0 ||
	    view(app, ask->a, &g, &v, err) < 0)
		return -1;
	if (v.state == DEPLOYMENT_FAILED || (v.n_jobs == 0 && v.reason != NULL))
		return err_set(err, ERR_UNAVAILABLE, "%s has failed: %s", name,
		               v.reason != NULL ? v.reason : "its jobs have ended by themselves");
	*waits = d.idle_s > 0 || v.ready > 0; /* that one has begun to a moment ago */
	for (size_t i = 0; i < g.n_all && !*waits; i++)
		*waits = serving_is_unheard(app, &g.all[i]);
	if (*waits)
		return 0;
	if (v.n_jobs > 0)
		return serving_refuse(app, name, v.jobs[0].job_id, v.jobs[0].state, err);
	err->retry_after_s = 2;
	return err_set(err, ERR_UNAVAILABLE, "%s: its next job is about to be pushed", name);
}

const struct deployment_ops deployment_ops = {
	.deploy = deploy,
	.list = list,
	.get = get,
	.want = want,
	.scale = scale,
	.remove = remove_it,
};
