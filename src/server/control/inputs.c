/* inputs.c - see inputs.h. Records are made by the queue and freed by the loop alone, so the loop
 * works on them without the lock; `gone` and `words` are the two fields that both sides touch. */
#include "server/control/inputs.h"
#include "base/units.h"
#include "server/control/jobs.h"
#include "server/control/live.h"
#include "server/data/mirror_room.h"
#include "server/control/prepare.h"
#include "server/control/queue.h"
#include "server/control/specs.h"

#include <sys/queue.h>

struct input {
	char *job_id;
	struct arena *a;
	struct model_job job;
	struct specs_hold hold;
	struct resolved resolved;
	struct fetch *fetch[SPEC_WEIGHTS_MAX];
	size_t n; /* that were begun */
	struct inputs_said said;
	char words[SCHED_REASON];
	bool begun, gone;
	bool waits,
		said_full; /* for room in the mirror, holding nothing of it; and its log says so */
	uint64_t changes;  /* mirror_room_changes() before it was looked for */
	int64_t again_mono_ms;
	TAILQ_ENTRY(input) in;
};

struct inputs {
	struct lock lock;
	TAILQ_HEAD(, input) all;
	size_t n;
	struct loop *loop;
};

/* Between two looks a job either waits for room and holds nothing, or follows a fetch for each of
 * its sources. */
static void input_check(const struct input *x)
{
	assert(x->job_id != NULL && x->n <= COUNT(x->fetch));
	assert(x->begun || (x->a == NULL && x->n == 0));
	assert(!x->waits || x->n == 0);
	assert(!x->begun || x->waits || x->n == x->hold.spec->n_weights);
	assert(!x->said_full || x->begun);
}

void inputs_show(struct app *app, const char *job_id, const struct job_spec *spec,
                 const struct fetch_view *v, struct inputs_said *said, char *words, size_t cap)
{
	struct live_progress row = {.stage = "weights", .now_ms = clock_wall_ms()};
	bool log = row.now_ms - said->ms >= PREPARE_SAY_MS;
	struct mirror_progress sum = {0};

	for (size_t i = 0; i < spec->n_weights; i++) {
		sum.bytes_total += v[i].progress.bytes_total;
		sum.bytes_done += v[i].progress.bytes_done;
		sum.rate_bytes_s += v[i].done ? 0 : v[i].progress.rate_bytes_s;
		sum.storing = sum.storing || (!v[i].done && v[i].progress.storing);
		if (!log || v[i].done || !v[i].listed || sum.bytes_done == said->bytes)
			continue;
		fetch_words(&v[i].progress, words, cap);
		app_log(app, job_id, "weights %s: %s", spec->weights[i].source, words);
	}
	if (log)
		*said = (struct inputs_said){row.now_ms, sum.bytes_done};
	fetch_words(&sum, words, cap);
	row.words = words;
	row.done = sum.bytes_done;
	row.total = sum.bytes_total;
	row.rate = sum.rate_bytes_s;
	(void)live_progress(app, job_id, &row);
	app_notify(app, CHANNEL_JOB, job_id);
}

struct wire_weights inputs_weights(struct arena *a, const struct spec_weights *w,
                                   const struct fetch_view *v)
{
	return (struct wire_weights){
		.source = arena_cstr(a, w->source),
		.revision = arena_cstr(a, v->revision),
		.mount_location = arena_cstr(a, w->mount_location),
		.manifest = arena_cstr(a, v->manifest),
		.bytes = v->progress.bytes_total,
		.files = v->progress.files_total,
		.hub = w->hub,
	};
}

struct fetch_want inputs_fetch(const struct model_job *job, const struct spec_weights *w,
                               const struct resolved *f)
{
	const struct wire_weights *old = resolved_find(f, w);
	const struct resolved_own *own = resolved_own(f, w->source);
	struct fetch_want want = {.team_id = job->team_id,
	                          .project_id = job->project_id,
	                          .job_id = job->id,
	                          .weights = w};

	if (old != NULL) {
		want.revision = old->revision;
		want.manifest = old->manifest;
	}
	if (own != NULL && w->endpoint == NULL)
		want.own = (struct fetch_own){own->repo_id, own->last};
	return want;
}

void inputs_say(struct app *app, const char *job_id, const struct wire_weights *w,
                const struct fetch_view *v)
{
	const char *how = v->own ? ", of this server's Hub" : ", mirrored and verified";
	const char *s = w->files == 1 ? "" : "s";
	char bytes[UNITS_CAP], revision[20];

	copy_cut(revision, 13, w->revision != NULL ? w->revision : "");
	units_show_bytes(w->bytes, bytes);
	if (v->warm && !v->own)
		how = ", mirrored before";
	app_event(app, job_id, "weights", "server", "%s at %s: %" PRIu64 " file%s, %s%s", w->source,
	          revision, w->files, s, bytes, v->own || v->warm ? how : "");
	app_log(app, job_id, "weights %s at %s: %" PRIu64 " file%s, %s%s -> %s", w->source,
	        revision, w->files, s, bytes, how, w->mount_location);
}

/* --- what the queue asks --- */

void inputs_want(struct app *app, const char *job_id, char reason[SCHED_REASON])
{
	struct inputs *all = app->inputs;
	struct input *x;

	lock_take(&all->lock);
	TAILQ_FOREACH(x, &all->all, in)
	{
		if (!x->gone && strcmp(x->job_id, job_id) == 0)
			break;
	}
	if (x == NULL && all->n < INPUTS_MAX) {
		x = xcalloc(1, sizeof(*x));
		x->job_id = xstrdup(job_id);
		copy_cut(x->words, sizeof(x->words), "fetching its weights");
		TAILQ_INSERT_TAIL(&all->all, x, in);
		all->n++;
		loop_kick(all->loop);
	}
	copy_cut(reason, SCHED_REASON,
	         x != NULL ? x->words : "waiting for the weights of jobs ahead of it");
	lock_give(&all->lock);
}

void inputs_forget(struct app *app, const char *job_id)
{
	struct inputs *all = app->inputs;
	struct input *x;

	lock_take(&all->lock);
	TAILQ_FOREACH(x, &all->all, in)
	{
		if (strcmp(x->job_id, job_id) == 0)
			x->gone = true;
	}
	lock_give(&all->lock);
	loop_kick(all->loop);
}

void inputs_kick(struct app *app)
{
	if (app->inputs != NULL)
		loop_kick(app->inputs->loop);
}

/* --- what the loop does --- */

static int begin_fetches(struct app *app, struct input *x, struct err *err)
{
	const struct job_spec *spec = x->hold.spec;

	for (; x->n < spec->n_weights; x->n++) {
		const struct fetch_want want =
			inputs_fetch(&x->job, &spec->weights[x->n], &x->resolved);

		if (fetch_begin(app, &want, &x->fetch[x->n], err) < 0)
			return -1;
	}
	return 0;
}

/* All of them have come: the job is ready to be placed. False when that could not be stored. */
static bool keep(struct app *app, struct input *x, const struct fetch_view *v)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	struct wire_weights *w = ARENA_ARRAY(x->a, struct wire_weights, x->n);
	const char **manifest;
	struct err err = {0};
	size_t n = 0;

	for (size_t i = 0; i < x->n; i++)
		w[i] = inputs_weights(x->a, &x->hold.spec->weights[i], &v[i]);
	x->resolved.weights = w;
	x->resolved.n_weights = x->n;
	resolved_write(&x->resolved, &json);
	resolved_manifests(x->a, &x->resolved, &manifest, &n);
	if (buf_check(&json, "frozen record", &err) < 0 ||
	    meta_job_inputs(app->meta, x->job_id, buf_cstr(&json), manifest, n, &err) < 0) {
		log_info("inputs: job=%s %s", x->job_id, err.msg);
		return err.code == ERR_CONFLICT; /* it does not wait any more */
	}
	for (size_t i = 0; i < x->n; i++)
		inputs_say(app, x->job_id, &w[i], &v[i]);
	return true;
}

static void show_wait(struct app *app, struct input *x, const char *what, const char *words)
{
	struct inputs *all = app->inputs;
	struct live_wait w = {0};
	bool first;

	lock_take(&all->lock);
	FMT(x->words, "%s%.*s", what, SCHED_REASON / 2, words);
	lock_give(&all->lock);
	w.reason = x->words;
	(void)live_wait(app, x->job_id, &w, &first);
}

static void show(struct app *app, struct input *x, const struct fetch_view *v)
{
	char words[SCHED_REASON / 2] = "";

	inputs_show(app, x->job_id, x->hold.spec, v, &x->said, words, sizeof(words));
	if (words[0] != '\0')
		show_wait(app, x, "fetching its weights: ", words);
}

static void leave_fetches(struct app *app, struct input *x)
{
	for (size_t i = 0; i < x->n; i++)
		fetch_leave(app, x->fetch[i]);
	x->n = 0;
}

/* An outage of the database ends no job: the queue wants this one again when it answers. */
static bool failed(struct app *app, struct input *x, const struct err *err)
{
	if (jobs_database_failed(err))
		log_info("inputs: job=%s %s", x->job_id, err->msg);
	else if (!atomic_load(&app->stopping))
		jobs_deploy_failed(app, &x->job, "weights", err);
	return false;
}

/* The sources of this job alone are more than the mirror may hold: no other job's end helps. */
static bool never_fits(struct app *app, const struct input *x, const struct fetch_view *v,
                       struct err *err)
{
	char need[UNITS_CAP], most[UNITS_CAP];
	struct mirror_room_view room;
	uint64_t sum = 0;

	for (size_t i = 0; i < x->n; i++) {
		bool again = false;

		for (size_t k = 0; k < i; k++)
			again = again || x->fetch[k] == x->fetch[i];
		sum += again ? 0 : v[i].progress.bytes_total;
	}
	if (mirror_room_view(app, &room, err) < 0)
		return true;
	if (sum <= room.limit)
		return false;
	(void)err_set(err, ERR_MIRROR_TOO_SMALL,
	              "the weights of this job have %s, and the mirror may hold %s: give the "
	              "server a larger --mirror-bytes",
	              units_show_bytes(sum, need), units_show_bytes(room.limit, most));
	return true;
}

/* Release what the job has in the meantime: another job may wait for it. Waiting jobs try again one
 * after another; otherwise two jobs that each have half of what they need would block each other
 * for ever. */
static bool wait_for_room(struct app *app, struct input *x, const struct fetch_view *v,
                          const struct err *full)
{
	struct inputs *all = app->inputs;
	struct err err = {0};
	const struct input *other;
	int64_t turn = 1;

	if (never_fits(app, x, v, &err))
		return failed(app, x, &err);
	if (!x->said_full)
		app_log(app, x->job_id, "waiting for room in the mirror: %s", full->msg);
	x->waits = x->said_full = true;
	show_wait(app, x, "waits for room in the mirror: ", full->msg);
	leave_fetches(app, x);
	lock_take(&all->lock);
	TAILQ_FOREACH(other, &all->all, in)
	{
		if (other == x)
			break;
		turn += other->waits;
	}
	lock_give(&all->lock);
	x->again_mono_ms = clock_mono_ms() + turn * INPUTS_ROOM_MS;
	return true;
}

/* False when it is over. */
static bool look(struct app *app, struct input *x)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct fetch_view *v = ARENA_ARRAY(a, struct fetch_view, x->n + 1);
	size_t done = 0;

	for (size_t i = 0; i < x->n; i++)
		fetch_look(app, x->fetch[i], 0, false, &v[i]);
	for (size_t i = 0; i < x->n; i++) {
		done += v[i].done;
		if (!v[i].done || v[i].result == 0)
			continue;
		if (v[i].err.id == ERR_MIRROR_FULL && !atomic_load(&app->stopping))
			return wait_for_room(app, x, v, &v[i].err);
		return failed(app, x, &v[i].err);
	}
	if (done == x->n)
		return !keep(app, x, v);
	show(app, x, v);
	return true;
}

static bool goes_on(struct app *app, struct input *x)
{
	struct err err = {0};

	if (!x->begun) {
		x->begun = true;
		x->a = arena_new();
		if (meta_job(app->meta, x->a, x->job_id, &x->job, &err) < 0) {
			log_info("inputs: job=%s %s", x->job_id, err.msg);
			return false;
		}
		if (x->job.core.state != JOB_PENDING)
			return false;
		x->waits = true; /* until the fetches below */
		if (specs_get(app, x->job_id, &x->hold, &err) < 0 ||
		    resolved_read(x->a, x->job.resolved_json, &x->resolved, &err) < 0)
			return failed(app, x, &err);
	}
	if (x->waits) {
		uint64_t changes = mirror_room_changes(app);

		if (changes == x->changes && clock_mono_ms() < x->again_mono_ms)
			return true;
		x->changes = changes;
		if (begin_fetches(app, x, &err) < 0)
			return failed(app, x, &err);
		x->waits = false;
	}
	return look(app, x);
}

static void drop(struct app *app, struct input *x)
{
	struct inputs *all = app->inputs;

	lock_take(&all->lock);
	TAILQ_REMOVE(&all->all, x, in);
	all->n--;
	lock_give(&all->lock);
	leave_fetches(app, x);
	specs_drop(&x->hold);
	arena_free(x->a);
	free(x->job_id);
	free(x);
}

void inputs_pass(struct app *app)
{
	struct inputs *all = app->inputs;
	struct input *x[INPUTS_MAX], *each;
	bool gone[INPUTS_MAX], dropped = false;
	size_t n = 0;

	lock_take(&all->lock);
	TAILQ_FOREACH(each, &all->all, in)
	{
		assert(n < INPUTS_MAX);
		gone[n] = each->gone;
		x[n++] = each;
	}
	lock_give(&all->lock);
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++) {
		if (!gone[i] && goes_on(app, x[i])) {
			input_check(x[i]);
			continue;
		}
		drop(app, x[i]);
		dropped = true;
	}
	if (dropped)
		queue_kick(app); /* a job is ready, and there is room for the next one */
}

void inputs_start(struct app *app)
{
	app->inputs = xcalloc(1, sizeof(*app->inputs));
	lock_init(&app->inputs->lock, LOCK_INPUTS);
	TAILQ_INIT(&app->inputs->all);
	app->inputs->loop = loop_new(app, inputs_pass, INPUTS_PERIOD_MS);
}

void inputs_run(struct app *app)
{
	loop_run(app->inputs->loop);
}

void inputs_stop(struct app *app)
{
	loop_stop(app->inputs->loop);
}

void inputs_free(struct app *app)
{
	struct inputs *all = app->inputs;
	struct input *x;

	if (all == NULL)
		return;
	loop_free(all->loop);
	while ((x = TAILQ_FIRST(&all->all)) != NULL)
		drop(app, x);
	lock_done(&all->lock);
	free(all);
	app->inputs = NULL;
}
