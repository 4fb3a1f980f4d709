/* prepare.c - resolve, mirror, freeze, launch. */
#include "server/control/prepare.h"
#include "server/control/compile.h"
#include "server/data/cache.h"
#include "server/control/inputs.h"
#include "server/control/jobs.h"
#include "server/control/keyed_executor.h"
#include "server/control/launch.h"
#include "server/control/loads.h"
#include "server/api/secrets.h"
#include "server/control/specs.h"

/* The state of one preparation. */
struct prep {
	struct app *app;
	struct arena *a;
	struct model_job job;
	const struct job_spec *spec;
	struct resolved before, now;
	struct fetch *fetch[SPEC_WEIGHTS_MAX];
	struct inputs_said said;
	bool said_full;
	struct blob_pins *pins; /* of the compile cache, until the job's row names it */
	bool over;              /* stopped, or the server is: leave without a word */
};

static bool still_created(struct prep *p, struct err *err)
{
	struct model_job now = {0};

	if (atomic_load(&p->app->stopping))
		return false;
	if (meta_job(p->app->meta, p->a, p->job.id, &now, err) < 0)
		return false;
	return now.core.state == JOB_CREATED && app_same(now.attempt_id, p->job.attempt_id);
}

static int resolve_code(struct prep *p, struct err *err)
{
	p->now.code = ARENA_ARRAY(p->a, struct wire_code, p->spec->n_artifacts + 1);
	for (size_t i = 0; i < p->spec->n_artifacts; i++) {
		struct objstore_info info = {0};
		struct model_upload u = {0};
		const char *key = p->spec->artifacts[i].key;

		if (objstore_stat(p->app->objects, key, &info, err) < 0 ||
		    meta_upload_by_key(p->app->meta, p->a, key, &u, err) < 0)
			return -1;
		p->now.code[p->now.n_code++] = (struct wire_code){key, info.size, u.sha256};
	}
	return 0;
}

static int begin_fetch(struct prep *p, size_t i, struct err *err)
{
	const struct fetch_want want = inputs_fetch(&p->job, &p->spec->weights[i], &p->before);

	return fetch_begin(p->app, &want, &p->fetch[i], err);
}

/* Others use the mirror: again, until there is room or the job is stopped. */
static int fetch_again(struct prep *p, size_t i, const struct err *full, struct err *err)
{
	if (!p->said_full)
		app_log(p->app, p->job.id, "waiting for room in the mirror: %s", full->msg);
	p->said_full = true;
	fetch_leave(p->app, p->fetch[i]);
	p->fetch[i] = NULL;
	clock_sleep_ms(PREPARE_ROOM_MS);
	return begin_fetch(p, i, err);
}

static int keep_weights(struct prep *p, size_t i, const struct fetch_view *v, struct err *err)
{
	const struct spec_weights *w = &p->spec->weights[i];

	if (v->result < 0) {
		*err = v->err;
		return -1;
	}
	p->now.weights[i] = inputs_weights(p->a, w, v);
	/* A fetch while the job waited was already logged. */
	if (!v->warm || resolved_find(&p->before, w) == NULL)
		inputs_say(p->app, p->job.id, &p->now.weights[i], v);
	return 0;
}

/* Waits for all of them; the first failure ends it. */
static int wait_weights(struct prep *p, struct err *err)
{
	struct fetch_view *v = ARENA_ARRAY(p->a, struct fetch_view, p->spec->n_weights);
	bool kept[SPEC_WEIGHTS_MAX] = {0};
	size_t left = p->spec->n_weights;
	char words[200];

	while (left > 0) {
		for (size_t i = 0; i < p->spec->n_weights; i++) {
			if (kept[i])
				continue;
			fetch_look(p->app, p->fetch[i], 500 / (int64_t)left, false, &v[i]);
			if (!v[i].done)
				continue;
			if (v[i].result < 0 && !still_created(p, err)) {
				p->over = err->code == ERR_NONE;
				return -1;
			}
			if (v[i].result < 0 && v[i].err.id == ERR_MIRROR_FULL) {
				if (fetch_again(p, i, &v[i].err, err) < 0)
					return -1;
				continue;
			}
			if (keep_weights(p, i, &v[i], err) < 0)
				return -1;
			kept[i] = true;
			left--;
		}
		if (left > 0 && !still_created(p, err)) {
			p->over = err->code == ERR_NONE;
			return -1;
		}
		inputs_show(p->app, p->job.id, p->spec, v, &p->said, words, sizeof(words));
	}
	return 0;
}

static int weights(struct prep *p, struct err *err)
{
	int r = 0;

	p->now.weights = ARENA_ARRAY(p->a, struct wire_weights, p->spec->n_weights + 1);
	p->now.n_weights = p->spec->n_weights;
	for (size_t i = 0; r == 0 && i < p->spec->n_weights; i++)
		r = begin_fetch(p, i, err);
	return r == 0 ? wait_weights(p, err) : -1;
}

/* Once the job's row names what they brought, or it is over. */
static void leave_fetches(struct prep *p)
{
	for (size_t i = 0; i < SPEC_WEIGHTS_MAX; i++)
		if (p->fetch[i] != NULL)
			fetch_leave(p->app, p->fetch[i]);
}

static int resolve(struct prep *p, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	struct meta_step s = {
		.job_id = p->job.id,
		.event = JOB_EV_RESOLVE,
		.now_ms = clock_wall_ms(),
		.attempt_id = p->job.attempt_id,
		.actor = "server",
		.message = "inputs are ready: launching",
	};
	const char **manifests;

	p->now.own = p->before.own;
	p->now.n_own = p->before.n_own;
	p->now.has_image = p->before.has_image;
	p->now.image = p->before.image;
	resolved_write(&p->now, &json);
	if (buf_check(&json, "frozen record", err) < 0)
		return -1;
	s.resolved_json = buf_cstr(&json);
	resolved_manifests(p->a, &p->now, &manifests, &s.n_manifests);
	s.manifests = manifests;
	app_crash_at("freeze:before");
	if (jobs_step(p->app, &s, NULL, NULL, err) < 0)
		return -1;
	app_crash_at("freeze:after");
	return 0;
}

static int check_secrets(struct prep *p, struct err *err)
{
	return secrets_check(p->app, p->job.team_id, p->spec, err);
}

static int check_cache(struct prep *p, struct err *err)
{
	return cache_ready(p->app, &p->job, p->spec, err);
}

static int choose_loads(struct prep *p, struct err *err)
{
	return loads_choose(p->app, p->a, &p->job, p->spec, &p->before, &p->now, err);
}

static int choose_compile(struct prep *p, struct err *err)
{
	p->pins = blob_pins_new(p->app->blobs);
	return compile_choose(p->app, p->a, &p->job, p->spec, p->pins, &p->now, err);
}

/* A database or a store that is away ends no job. A source that is away was tried long enough. */
static bool may_pass(const struct err *err, bool sources)
{
	return sources ? jobs_database_failed(err) : jobs_may_pass(err);
}

static void created(struct prep *p)
{
	/* clang-format off */
	static const struct {
		const char *stage; /* what an error message begins with */
		int (*run)(struct prep *p, struct err *err);
		bool sources; /* it asks others than our own database and store */
	} steps[] = {
		{"secrets",     check_secrets, false},
		{"code",        resolve_code,  false},
		{"cache",       check_cache,   false},
		{"checkpoints", choose_loads,  false},
		{"weights",     weights,       true},
		{"compile cache", choose_compile, false},
		{"freeze",      resolve,       false},
	};
	/* clang-format on */
	struct err err = {0};

	for (size_t i = 0; i < COUNT(steps); i++) {
		if (steps[i].run(p, &err) == 0)
			continue;
		if (p->over || atomic_load(&p->app->stopping))
			return;
		if (may_pass(&err, steps[i].sources))
			jobs_held_up(p->app, &p->job, steps[i].stage, &err);
		else
			jobs_deploy_failed(p->app, &p->job, steps[i].stage, &err);
		return;
	}
}

static int prepare_job(struct app *app, const char *job_id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct specs_hold hold AUTO_SPEC = {0};
	struct prep p = {.app = app, .a = a};

	if (meta_job(app->meta, a, job_id, &p.job, err) < 0)
		return -1;
	if (p.job.core.state == JOB_CREATED) {
		if (specs_get(app, job_id, &hold, err) < 0 ||
		    resolved_read(a, p.job.resolved_json, &p.before, err) < 0) {
			if (jobs_may_pass(err))
				return -1;
			jobs_deploy_failed(app, &p.job, "specification", err);
			err_clear(err);
			return 0;
		}
		p.spec = hold.spec;
		created(&p);
		leave_fetches(&p);
		blob_pins_free(p.pins);
		if (meta_job(app->meta, a, job_id, &p.job, err) < 0)
			return -1;
	}
	if (p.job.core.state == JOB_DEPLOYING && !atomic_load(&app->stopping))
		launch_job(app, &p.job);
	return 0;
}

static bool prepare(struct app *app, const char *job_id)
{
	struct err err = {0};

	if (prepare_job(app, job_id, &err) < 0)
		log_error("prepare: job=%s %s", job_id, err.msg);
	return false; /* what has changed was kicked where it did */
}

void prepare_start(struct app *app)
{
	app->prepare = keyed_executor_new(app, PREPARE_THREADS, PREPARE_QUEUE_MAX, "prepare");
}

void prepare_submit(struct app *app, const char *job_id)
{
	keyed_executor_submit(app->prepare, job_id, prepare);
}
