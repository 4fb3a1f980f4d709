/* reconcile.c - after a crash, a lost runner or a stop that overtook a launch: what is true now. */
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/control/outage.h"
#include "server/data/cache.h"
#include "server/data/ckpts.h"
#include "server/api/exec.h"
#include "server/control/jobs.h"
#include "server/control/keyed_executor.h"
#include "server/control/launch.h"
#include "server/control/live.h"
#include "server/control/prepare.h"
#include "server/control/specs.h"

#include "base/units.h"

#define FIRST_LINES_MAX 2000 /* jobs whose log is looked at by a start */

/* One node's part with its job; job.id NULL: the job was deleted. */
struct part {
	struct app *app;
	struct arena *a;
	const struct model_attempt *t;
	struct model_job job;
	bool current; /* it is the attempt that its job holds now */
	bool waits;   /* on a thread of the sweep pool: what takes long may be done now */
};

static const char *ref_of(const struct part *p)
{
	return p->t->engine_ref != NULL ? p->t->engine_ref : "";
}

static int probe(const struct part *p, enum engine_status *out, struct err *err)
{
	return engine_probe(p->app->engine, ref_of(p), p->t->dir, out, err);
}

static struct engine_end how_to_end(struct app *app)
{
	return (struct engine_end){.program = app->program, .cancel = &app->stopping};
}

/* A server that was frozen may believe what was true before another one took over. */
static int kill_all(const struct part *p, struct engine_end *how, struct err *err)
{
	if (meta_leads(p->app->meta, err) < 0)
		return -1;
	return engine_kill(p->app->engine, ref_of(p), p->t->dir, how, err);
}

static int end(const struct part *p, const struct wire_exit *x, struct err *err)
{
	if (jobs_node_ended(p->app, p->t->id, p->t->node_rank, x, err) < 0)
		return -1;
	exec_attempt_over(p->app, p->t->id);
	return 0;
}

/* Cleans up after a dead runner: processes, and what it had not told us yet is told by the sweep,
 * as by a runner: log, checkpoints, then its end. While we cannot take that it is tried again and
 * again; a failure blocks nothing for ever. *given_up: what was not brought, in words, or NULL. */
static int sweep(const struct part *p, struct engine_end *how, int64_t silent_ms,
                 const char **given_up, struct err *err)
{
	char span[UNITS_CAP];

	*given_up = NULL;
	how->last = silent_ms >= RECONCILE_SWEEP_MS;
	if (kill_all(p, how, err) == 0 &&
	    ckpts_adopt(p->app, p->a, &p->job, p->t->node_rank, err) == 0)
		return 0;
	if (err->code == ERR_CANCELED || !how->last ||
	    (err->code == ERR_BUSY && silent_ms < RECONCILE_GIVE_UP_MS))
		return -1;
	log_error("not cleaned up: attempt=%s rank=%u %s", p->t->id, p->t->node_rank, err->msg);
	if (err->code == ERR_BUSY) {
		*given_up = arena_printf(
			p->a, "given up after %s: %s",
			units_show_seconds((uint64_t)RECONCILE_GIVE_UP_MS / 1000, span), err->msg);
		app_log(p->app, p->job.id, "%s", *given_up);
	}
	err_clear(err);
	return 0;
}

/* Why nothing is known of how it ended. */
static const char *unknown_end(const struct part *p, const struct engine_end *how,
                               const char *given_up)
{
	if (how->refused[0] != '\0')
		return arena_printf(p->a,
		                    "the record that the runner on %s left of its job was "
		                    "refused: %s",
		                    p->t->node, how->refused);
	if (given_up != NULL)
		return arena_printf(p->a, "the runner on %s exited, and what it had to tell was %s",
		                    p->t->node, given_up);
	return arena_printf(p->a, "the runner on %s exited without a record of its job%s%s",
	                    p->t->node, how->words[0] != '\0' ? ": last output: " : "", how->words);
}

static bool probe_again(struct app *app, const char *dir);

/* False: the pool will come back to it, with all the time that it takes. */
static bool may_wait(const struct part *p)
{
	if (!p->waits)
		keyed_executor_submit(p->app->sweeps, p->t->dir, probe_again);
	return p->waits;
}

/* What is known of the parts of this attempt by now. */
struct parts {
	bool ended;    /* this one: its end has been told */
	bool launched; /* any of them, and be it that it has ended since */
};

static int read_parts(const struct part *p, struct parts *out, struct err *err)
{
	struct model_attempt *all = NULL;
	size_t n = 0;

	*out = (struct parts){0};
	if (meta_attempt(p->app->meta, p->a, p->t->id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		bool ended = all[i].ended_ms != 0;

		out->ended = out->ended || (ended && all[i].node_rank == p->t->node_rank);
		out->launched = out->launched || ended || all[i].launched_ms != 0;
	}
	return 0;
}

/* The runner is proven gone and has not told us its end. */
static int gone(const struct part *p, int64_t silent_ms, struct err *err)
{
	enum job_state s = p->job.core.state;
	struct engine_end how = how_to_end(p->app);
	struct wire_exit x = {0};
	const char *given_up = NULL;
	struct parts now;

	if (!may_wait(p))
		return 0;
	if (sweep(p, &how, silent_ms, &given_up, err) < 0 || read_parts(p, &now, err) < 0)
		return -1;
	if (now.ended)
		return jobs_settle(p->app, p->t->id, err);
	if (how.refused[0] != '\0' && !how.last) /* it may be taken yet */
		return err_set(err, ERR_BUSY, "the record of its end is refused: %s", how.refused);
	if (s == JOB_STOPPING_DEPLOYING && p->t->claim == NULL) {
		x = (struct wire_exit){.end = JOB_END_STOPPED, .synced = true};
		return end(p, &x, err);
	}
	if (p->t->claim == NULL &&
	    (p->t->engine_ref == NULL || p->t->launched_ms < p->app->started_ms)) {
		/* The server died between intent and launch, before it stored the launch, or before
		 * its runner could claim: that one asked whoever led meanwhile, and was refused.
		 * Once for each start of a server. */
		log_info("relaunching: attempt=%s rank=%u", p->t->id, p->t->node_rank);
		return launch_node(p->app, p->t, err);
	}
	x = (struct wire_exit){.end = p->t->claim != NULL ? JOB_END_LOST : JOB_END_RUNNER};
	x.detail = unknown_end(p, &how, given_up);
	x.stage = "runner";
	x.user_code_ran = s == JOB_RUNNING || s == JOB_STOPPING;
	return end(p, &x, err);
}

/* Told to stop, and neither done so nor heard of in all the time that it had: it hangs. */
static bool is_deaf(const struct part *p, int64_t now, int64_t heard)
{
	enum job_state s = p->job.core.state;
	struct specs_hold hold AUTO_SPEC = {0};
	uint64_t grace_s = RECONCILE_GRACE_S;
	struct err unread = {0};
	int64_t told = MAX(p->job.core.changed_ms, p->app->started_ms);

	if (!job_state_is_stopping(s))
		return false;
	if (specs_get(p->app, p->job.id, &hold, &unread) == 0)
		grace_s = hold.spec->grace_s;
	return now - MAX(told, heard) > RECONCILE_DEAF_MS + (int64_t)grace_s * 1000;
}

/* What is still to come was noted before the clock was set back: how long ago is not known. */
static bool is_recent(int64_t then_ms, int64_t now_ms, int64_t within_ms)
{
	return then_ms <= now_ms && now_ms - then_ms < within_ms;
}

static int probe_current(const struct part *p, struct err *err)
{
	enum job_state s = p->job.core.state;
	const struct model_attempt *t = p->t;
	int64_t now = clock_wall_ms();
	int64_t heard = MAX(t->heartbeat_ms, MAX(t->claimed_ms, t->launched_ms));
	enum engine_status status = ENGINE_UNKNOWN;
	struct engine_end how = how_to_end(p->app);

	if (t->ended_ms != 0)
		return jobs_settle(p->app, t->id, err);
	if (keyed_executor_busy(p->app->prepare, p->job.id))
		return 0;
	if (s == JOB_CREATED || (s == JOB_DEPLOYING && t->launched_ms == 0)) {
		prepare_submit(p->app, p->job.id);
		return 0;
	}
	if (t->launched_ms == 0) { /* stopped before it was launched: nothing ever will */
		struct wire_exit x = {.end = JOB_END_STOPPED, .synced = true};

		return end(p, &x, err);
	}
	if (t->launched_ms >= p->app->started_ms &&
	    is_recent(t->launched_ms, now, RECONCILE_YOUNG_MS) && s != JOB_STOPPING_DEPLOYING)
		return 0;
	if (t->claim != NULL && is_recent(heard, now, RECONCILE_SILENT_MS) &&
	    heard >= p->app->started_ms) /* at start everybody is looked at once */
		return 0;
	if (probe(p, &status, err) < 0)
		return -1;
	if (status == ENGINE_GONE)
		/* while we were down nobody could tell us anything */
		return gone(p, now - MAX(heard, p->app->started_ms), err);
	if (status != ENGINE_RUNS || !is_deaf(p, now, heard) || !may_wait(p))
		return 0;
	log_warn("killing a runner that does not stop: attempt=%s rank=%u", t->id, t->node_rank);
	return kill_all(p, &how, err);
}

/* Another server is to start it here or there: nothing of this attempt was launched. */
static int unplace(const struct part *p, struct err *err)
{
	struct meta_step s = {
		.job_id = p->job.id,
		.event = JOB_EV_UNPLACE,
		.now_ms = clock_wall_ms(),
		.attempt_id = p->t->id,
		.actor = "server",
		.message = arena_printf(p->a,
	                                "the server on %s is gone before it launched this "
	                                "job: it waits for another place",
	                                p->t->node),
	};

	s.reason = s.message;
	return jobs_step(p->app, &s, NULL, NULL, err);
}

/* Of a server on another machine. */
static int probe_elsewhere(const struct part *p, struct err *err)
{
	const struct model_attempt *t = p->t;
	enum job_state s = p->job.core.state;
	int64_t heard_ms =
		MAX(live_heard_ms(p->app, t->id, t->node_rank), atomic_load(&p->app->listening_ms));
	struct wire_exit x = {.end = JOB_END_LOST, .stage = "runner"};
	struct parts now;
	char span[UNITS_CAP];

	if (t->ended_ms != 0)
		return jobs_settle(p->app, t->id, err);
	if (read_parts(p, &now, err) < 0)
		return -1;
	if (!now.launched && (s == JOB_CREATED || s == JOB_DEPLOYING))
		return unplace(p, err);
	if (clock_mono_ms() - heard_ms < (int64_t)p->app->set.node_lost * 1000)
		return 0;
	x.detail = arena_printf(p->a, "the runner on %s was not heard of for %s", t->node,
	                        units_show_seconds(p->app->set.node_lost, span));
	x.user_code_ran = s == JOB_RUNNING || s == JOB_STOPPING;
	log_warn("lost: attempt=%s rank=%u: %s", t->id, t->node_rank, x.detail);
	return end(p, &x, err);
}

/* Once its runner had time to end by itself, its token is good for nothing any more. */
static int past_elsewhere(const struct part *p, struct err *err)
{
	int64_t over = MAX(MAX(p->t->ended_ms, p->job.core.changed_ms), p->app->started_ms);

	if (clock_wall_ms() - over < RECONCILE_ORPHAN_MS)
		return 0;
	return meta_attempt_done(p->app->meta, p->t->id, p->t->node_rank, clock_wall_ms(), err);
}

static int clean(const struct part *p, struct err *err)
{
	bool lacked = app_lacks(p->app) != NULL;

	if (engine_release(p->app->engine, p->t->dir, err) < 0)
		return -1;
	if (lacked)
		queue_kick(p->app); /* jobs wait for these */
	if (meta_attempt_done(p->app->meta, p->t->id, p->t->node_rank, clock_wall_ms(), err) < 0)
		return -1;
	if (p->job.id != NULL && p->t->node_rank == 0 && p->t->claim != NULL)
		cache_job_over(p->app, &p->job);
	return 0;
}

/* The attempt is over: its runner ends by itself, else it is ended; then its folder goes. */
static int probe_past(const struct part *p, struct err *err)
{
	int64_t now = clock_wall_ms(), over = MAX(p->t->ended_ms, p->job.core.changed_ms);
	enum engine_status status = ENGINE_GONE;
	struct engine_end how = how_to_end(p->app);

	how.past = true;
	if (p->job.id != NULL && keyed_executor_busy(p->app->prepare, p->job.id))
		return 0;
	if (p->t->launched_ms != 0 && probe(p, &status, err) < 0)
		return -1;
	switch (status) {
	case ENGINE_GONE:
		if (!may_wait(p))
			return 0;
		/* what it took as root, it could not give back: the sweep does */
		how.told = true;
		if (app_runners_give_up_root(p->app) && kill_all(p, &how, err) < 0)
			return -1;
		return clean(p, err);
	case ENGINE_RUNS:
		if (now - over < RECONCILE_ORPHAN_MS || !may_wait(p))
			return 0;
		log_warn("killing a runner whose attempt is over: attempt=%s rank=%u", p->t->id,
		         p->t->node_rank);
		return kill_all(p, &how, err);
	case ENGINE_UNKNOWN:
		break;
	}
	return 0;
}

static int probe_attempt(struct app *app, const struct model_attempt *t, bool waits,
                         struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct part p = {.app = app, .a = a, .t = t, .waits = waits};
	bool here = app_is_here(app, t->node_id, t->node);

	if (meta_job_brief(app->meta, a, t->job_id, &p.job, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		p.job = (struct model_job){0};
	}
	p.current = p.job.id != NULL && job_state_is_placed(p.job.core.state) &&
	            app_same(p.job.attempt_id, t->id);
	if (!here)
		return p.current ? probe_elsewhere(&p, err) : past_elsewhere(&p, err);
	return p.current ? probe_current(&p, err) : probe_past(&p, err);
}

/* Everybody, or the one of that folder with all the time that it takes. True: all went well. */
static bool probe_all(struct app *app, const char *dir)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_attempt *t = NULL;
	bool well = true;
	size_t n = 0;
	struct err err = {0};

	if ((dir == NULL ? meta_attempts(app->meta, a, NULL, &t, &n, &err)
	                 : meta_attempt_left(app->meta, a, engine_dir_attempt(a, dir), &t, &n,
	                                     &err)) < 0) {
		log_error("reconcile: %s", err.msg);
		return false;
	}
	live_show_nodes(app, t, n);
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++) {
		if (dir != NULL ? strcmp(t[i].dir, dir) != 0
		                : keyed_executor_busy(app->sweeps, t[i].dir))
			continue;
		err_clear(&err);
		if (probe_attempt(app, &t[i], dir != NULL, &err) == 0)
			continue;
		well = false;
		if (err.code != ERR_CANCELED)
			log_warn("reconcile: attempt=%s rank=%u %s", t[i].id, t[i].node_rank,
			         err.msg);
	}
	return well;
}

static bool probe_again(struct app *app, const char *dir)
{
	return probe_all(app, dir);
}

/* A runner that lives was not heard while the database was away, or we were. */
static void mind_silence(struct app *app)
{
	int64_t now = clock_mono_ms();
	struct outage outage;

	meta_outage(app->meta, false, &outage);
	if (outage.since_ms != 0 || outage.n != app->outages_heard ||
	    now - app->passed_ms > RECONCILE_PAUSE_MS)
		atomic_store(&app->listening_ms, now);
	app->outages_heard = outage.n;
	app->passed_ms = now;
}

void reconcile_pass(struct app *app)
{
	outage_pass(app);
	mind_silence(app);
	(void)probe_all(app, NULL); /* who failed is looked at again by the next one */
}

/* The first line of a job is written after its row: a crash between leaves it without one. Only the
 * newest are looked at: no more pushes than there are threads were under way. What is pushed to
 * this server while it looks gets its line from the push. */
static void first_lines(struct app *app, struct arena *a)
{
	struct meta_query q = {.states = 1U << JOB_PENDING | 1U << JOB_CREATED,
	                       .limit = FIRST_LINES_MAX};
	struct model_job *job = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_jobs(app->meta, a, &q, &job, &n, &err) < 0) {
		log_error("reconcile: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t next = 0, size = 0;
		AUTO_BUF struct buf none = BUF_INIT(1);

		if (job[i].created_ms >= app->started_ms)
			continue;
		err_clear(&err);
		/* From its end: only the size is wanted. */
		if (joblogs_read(app->logs, job[i].id, 0, UINT64_MAX, 0, &none, &next, &size,
		                 &err) < 0)
			log_warn("write the first log line: job=%s %s", job[i].id, err.msg);
		else if (size == 0)
			app_log(app, job[i].id, "job %s (%s) of project %s: pushed by %s",
			        job[i].name, job[i].id, job[i].project_name, job[i].user);
	}
}

static bool remove_unknown(struct app *app, const char *dir)
{
	struct engine_end how = how_to_end(app);
	struct err err = {0};

	how.past = true;
	if (engine_kill(app->engine, "", dir, &how, &err) < 0 ||
	    engine_release(app->engine, dir, &err) < 0)
		log_warn("%s: %s", dir, err.msg);
	return false;
}

struct folders {
	unsigned magic;
#define FOLDERS_MAGIC 0x56464f4cU
	struct app *app;
	struct map *known;
};

static void on_folder(void *arg, const char *dir)
{
	struct folders *f = FROM_VOID(struct folders, arg, FOLDERS_MAGIC);

	if (map_get(f->known, str_of(dir)) != NULL)
		return;
	log_warn("removing a folder that belongs to no attempt: %s", dir);
	keyed_executor_submit(f->app->sweeps, dir, remove_unknown);
}

/* Folders that no row knows: their runners are ended, then they go. */
static void unknown_folders(struct app *app, const struct model_attempt *t, size_t n)
{
	AUTO_MAP struct map *known = map_new();
	struct folders f = {FOLDERS_MAGIC, app, known};
	struct err err = {0};

	for (size_t i = 0; i < n; i++)
		(void)map_set(known, str_of(t[i].dir), known);
	if (engine_each(app->engine, on_folder, &f, &err) < 0)
		log_warn("reconcile: %s", err.msg);
}

/* A runner that outlived us may find us at another port. */
static void tell_address(struct app *app, const struct model_attempt *t)
{
	struct err err = {0};

	if (engine_address(app->engine, t->dir, app->local_url, &err) < 0)
		log_warn("tell a runner our address: attempt=%s %s", t->id, err.msg);
}

void reconcile_start(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_attempt *t = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_mirrors_interrupted(app->meta, clock_wall_ms(), &err) < 0 ||
	    meta_attempts(app->meta, a, NULL, &t, &n, &err) < 0) {
		log_error("reconcile: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n; i++)
		tell_address(app, &t[i]);
	unknown_folders(app, t, n);
	first_lines(app, a); /* the loop's first pass looks at everybody, at once */
}
