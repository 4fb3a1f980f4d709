/* deployments.c - operations on deployments: control/deployments.c does what they write down. */
#include "server/api/deployments.h"

#include "server/api/ctx.h"
#include "server/api/push.h"
#include "server/control/deployments.h"
#include "server/control/serving.h"

#define TEAM_MAX 1000 /* deployments of a team: all of them are looked at in each pass */

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
	return found ? 0
	             : err_set(err, ERR_DEPLOYMENT_NOT_FOUND,
	                       "no deployment \"%.63s\"; `stoker deployments ls` lists "
	                       "those that there are",
	                       name);
}

/* As far as the job knows. */
static const char *why_failed(struct app *app, struct arena *a, const char *job_id)
{
	struct model_job job = {0};
	struct err unread = {0};

	if (meta_job_brief(app->meta, a, job_id, &job, &unread) < 0 || job.error_message == NULL)
		return "";
	return arena_printf(a, " (%s)", job.error_message);
}

static const char *reason_of(struct app *app, struct arena *a, const struct deployment_look *l)
{
	const struct deployment_facts *f = &l->facts;
	const char *why;
	bool early;

	if (f->wanted == DEPLOYMENT_SLEEP)
		return "the next request starts it";
	if (f->wanted == DEPLOYMENT_STOP)
		return NULL;
	why = deployments_trouble(app, a, l->d->id, &early);
	if (why != NULL)
		return arena_printf(a, "its next job cannot be pushed: %s", why);
	if (l->failed_job != NULL)
		return arena_printf(a,
		                    "job %s of revision %u has ended by itself and is not started "
		                    "again: `stoker logs %s` says why%s",
		                    l->failed_job, l->d->revision, l->failed_job,
		                    why_failed(app, a, l->failed_job));
	if (f->old_ready > 0 && f->current_ready == 0)
		return arena_printf(a, "revision %u is not ready; an older one answers",
		                    l->d->revision);
	return NULL;
}

static void view(struct app *app, struct arena *a, const struct deployment_look *l,
                 struct deployment_view *out)
{
	*out = (struct deployment_view){
		.d = *l->d,
		.state = deployment_state(&l->facts),
		.ready = (uint32_t)(l->facts.current_ready + l->facts.old_ready),
		.job_id = l->n > 0 ? l->r[0].job_id : l->failed_job,
		.reason = reason_of(app, a, l),
		.jobs = l->r,
		.n_jobs = l->n};
	for (size_t i = 0; i < l->n; i++)
		out->in_flight += l->r[i].in_flight;
	serving_sum(app, l->d->id, &out->requests, &out->failures);
}

static int view_of(const struct ask *ask, struct model_deployment *d, struct deployment_view *out,
                   struct err *err)
{
	struct deployment_look l = {.d = d};

	if (deployments_look_at(ask->app, ask->a, &l, err) < 0)
		return -1;
	view(ask->app, ask->a, &l, out);
	return 0;
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
	deployments_forgive(app, d.id);
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
	deployments_forgive(app, d.id);
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

static void view_by_hand(const struct serving_row *s, struct deployment_view *out)
{
	*out = (struct deployment_view){
		.d = {.name = s->name, .team_name = s->team_name, .replicas = 1},
		.state = s->serves ? DEPLOYMENT_READY : DEPLOYMENT_STARTING,
		.ready = s->serves ? 1 : 0,
		.in_flight = s->in_flight,
		.requests = s->requests,
		.failures = s->failures,
		.job_id = s->job_id};
}

static int list(const struct ask *ask, struct deployment_view **out, size_t *n, struct err *err)
{
	struct app *app = ask->app;
	struct deployment_look *l;
	struct serving_row *s;
	size_t n_s = 0;
	bool strays;

	if (deployments_look(app, ask->a, ask->principal->team_id, &l, n, &strays, err) < 0 ||
	    serving_ops.list(ask, &s, &n_s, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct deployment_view, *n + n_s + 1);
	for (size_t i = 0; i < *n; i++) {
		if (deployments_judge(app, ask->a, &l[i], err) < 0)
			return -1;
		view(app, ask->a, &l[i], &(*out)[i]);
	}
	for (size_t i = 0; i < n_s; i++)
		if (!s[i].deployed)
			view_by_hand(&s[i], &(*out)[(*n)++]);
	return 0;
}

/* In a state to run, and no job takes requests. */
static int wait_for(const struct ask *ask, struct model_deployment *d, bool *waits, struct err *err)
{
	struct deployment_look l = {.d = d};
	const struct deployment_facts *f = &l.facts;
	const char *why;

	if (deployments_look_at(ask->app, ask->a, &l, err) < 0)
		return -1;
	why = reason_of(ask->app, ask->a, &l);
	if (deployment_state(f) == DEPLOYMENT_FAILED || (l.n == 0 && why != NULL))
		return err_set(err, ERR_UNAVAILABLE, "%s has failed: %s", d->name,
		               why != NULL ? why : "its jobs have ended by themselves");
	/* ready: one has begun to serve a moment ago */
	*waits = f->idle_most_ms > 0 || f->current_ready + f->old_ready + f->unheard > 0;
	if (*waits)
		return 0;
	if (l.n > 0)
		return serving_refuse(ask->app, d->name, l.r[0].job_id, l.r[0].state, err);
	err->retry_after_s = 2;
	return err_set(err, ERR_UNAVAILABLE, "%s: its next job is about to be pushed", d->name);
}

int deployments_asked(const struct ask *ask, const char *name, bool *waits, struct err *err)
{
	struct app *app = ask->app;
	struct model_deployment d = {0};
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
	if (d.wanted == DEPLOYMENT_RUN)
		return wait_for(ask, &d, waits, err);
	if (meta_deployment_want(app->meta, &d, DEPLOYMENT_RUN, clock_wall_ms(), err) < 0) {
		if (err->code != ERR_CONFLICT)
			return -1;
		err_clear(err); /* another request has woken it */
	}
	deployments_forgive(app, d.id);
	log_info("deployment wakes: name=%s team=%s", d.name, d.team_name);
	deployments_kick(app);
	*waits = true;
	return 0;
}

const struct deployment_ops deployment_ops = {
	.deploy = deploy,
	.list = list,
	.get = get,
	.want = want,
	.scale = scale,
	.remove = remove_it,
};
