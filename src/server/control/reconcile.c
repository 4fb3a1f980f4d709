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

#include <dirent.h>

#define FOLDERS_MAX 100000
#define FIRST_LINES_MAX 2000 /* jobs whose log is looked at by a start */
#define TAIL_MAX 400         /* of a dead runner's own words, for people */
#define LOG_PIECE ((size_t)1 << 20)
#define LOG_FILE_MAX ((size_t)4 << 30)

/* One node's part with its job; job.id NULL: the job was deleted. */
struct part {
	struct app *app;
	struct arena *a;
	const struct model_attempt *t;
	struct model_job job;
	const char *dir;
	bool current; /* it is the attempt that its job holds now */
	bool waits;   /* on a thread of the sweep pool: what takes long may be done now */
};

static int probe(const struct part *p, enum engine_status *out, struct err *err)
{
	return engine_probe(p->app->engine, p->t->engine_ref != NULL ? p->t->engine_ref : "",
	                    p->dir, out, err);
}

/* A server that was frozen may believe what was true before another one took over. */
static int kill_all(const struct part *p, struct err *err)
{
	if (meta_leads(p->app->meta, err) < 0)
		return -1;
	return engine_kill(p->app->engine, p->t->engine_ref != NULL ? p->t->engine_ref : "", p->dir,
	                   &p->app->stopping, err);
}

static int end(const struct part *p, const struct wire_exit *x, struct err *err)
{
	if (jobs_node_ended(p->app, p->t->id, p->t->node_rank, x, err) < 0)
		return -1;
	exec_attempt_over(p->app, p->t->id);
	return 0;
}

/* Copies the rest of a dead runner's log that it had not sent. */
static void salvage_log(const struct part *p)
{
	AUTO_FD int fd =
		open(arena_printf(p->a, "%s/log", p->dir), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_FREE char *piece = xmalloc(LOG_PIECE);
	uint64_t at = 0, next = 0;

	if (fd < 0)
		return;
	while (at < LOG_FILE_MAX) {
		struct err err = {0};
		ssize_t got = pread(fd, piece, LOG_PIECE, (off_t)at);
		const char *last = got > 0 ? memrchr(piece, '\n', (size_t)got) : NULL;
		size_t n = last != NULL ? (size_t)(last - piece) + 1 : 0;

		if (n == 0) /* the end, or a record that was cut by the death */
			return;
		if (joblogs_append(p->app->logs, p->t->job_id, p->t->id, p->t->node_rank, at,
		                   str_n(piece, n), false, &next, &err) < 0) {
			log_warn("collect the log of a dead runner: job=%s %s", p->t->job_id,
			         err.msg);
			return;
		}
		at += n;
	}
}

/* The last words of the runner itself. */
static const char *last_words(const struct part *p)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)16 << 20);
	struct err ignored = {0};
	struct str s;

	if (fs_read(AT_FDCWD, arena_printf(p->a, "%s/runner.log", p->dir), &text, &ignored) < 0)
		return "";
	s = str_trim(buf_view(&text));
	s = str_skip(s, s.n > TAIL_MAX ? s.n - TAIL_MAX : 0);
	return s.n > 0 ? arena_printf(p->a, ": last output: %.*s", STR_ARG(s)) : "";
}

/* The exit record on disk, when the runner got as far as writing it. */
static bool exit_record(const struct part *p, struct wire_exit *x)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20);
	struct err ignored = {0};

	return fs_read(AT_FDCWD, arena_printf(p->a, "%s/exit.json", p->dir), &text, &ignored) ==
	               0 &&
	       wire_exit_parse(x, p->a, buf_view(&text), &ignored) == 0;
}

/* Cleans up after a dead runner: processes, and checkpoints that are still to be uploaded. While
 * the store is away this is tried again and again; a failure blocks nothing for ever. */
static int sweep(const struct part *p, int64_t silent_ms, struct err *err)
{
	if (kill_all(p, err) == 0 && ckpts_adopt(p->app, p->a, &p->job, p->t->node_rank, err) == 0)
		return 0;
	if (err->code == ERR_BUSY || err->code == ERR_CANCELED || silent_ms < RECONCILE_SWEEP_MS)
		return -1;
	log_error("not cleaned up: attempt=%s rank=%u %s", p->t->id, p->t->node_rank, err->msg);
	err_clear(err);
	return 0;
}

static bool probe_again(struct app *app, const char *dir);

/* False: the pool will come back to it, with all the time that it takes. */
static bool may_wait(const struct part *p)
{
	if (!p->waits)
		keyed_executor_submit(p->app->sweeps, p->t->dir, probe_again);
	return p->waits;
}

/* The runner is proven gone and has not told us its end. */
static int gone(const struct part *p, int64_t silent_ms, struct err *err)
{
	enum job_state s = p->job.core.state;
	struct wire_exit x = {0};

	if (!may_wait(p))
		return 0;
	if (sweep(p, silent_ms, err) < 0)
		return -1;
	if (exit_record(p, &x)) {
		salvage_log(p);
		return end(p, &x, err);
	}
	if (s == JOB_STOPPING_DEPLOYING && p->t->claim == NULL) {
		x = (struct wire_exit){.end = JOB_END_STOPPED, .synced = true};
		return end(p, &x, err);
	}
	if (p->t->claim == NULL && p->t->engine_ref == NULL) {
		/* The server died between intent and launch, or before it stored the launch. */
		log_info("relaunching: attempt=%s rank=%u", p->t->id, p->t->node_rank);
		return launch_node(p->app, p->t, err);
	}
	salvage_log(p);
	x = (struct wire_exit){.end = p->t->claim != NULL ? JOB_END_LOST : JOB_END_RUNNER};
	x.detail = arena_printf(p->a, "the runner on %s exited without a record of its job%s",
	                        p->t->node, last_words(p));
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

	if (s != JOB_STOPPING && s != JOB_STOPPING_DEPLOYING)
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
		return gone(p, now - heard, err);
	if (status != ENGINE_RUNS || !is_deaf(p, now, heard) || !may_wait(p))
		return 0;
	log_warn("killing a runner that does not stop: attempt=%s rank=%u", t->id, t->node_rank);
	return kill_all(p, err);
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

static int any_launched(const struct part *p, bool *any, struct err *err)
{
	struct model_attempt *all = NULL;
	size_t n = 0;

	if (meta_attempt(p->app->meta, p->a, p->t->id, &all, &n, err) < 0)
		return -1;
	*any = false;
	for (size_t i = 0; i < n; i++)
		*any = *any || all[i].launched_ms != 0 || all[i].ended_ms != 0;
	return 0;
}

/* Of a server on another machine. */
static int probe_elsewhere(const struct part *p, struct err *err)
{
	const struct model_attempt *t = p->t;
	enum job_state s = p->job.core.state;
	int64_t heard_ms =
		MAX(live_heard_ms(p->app, t->id, t->node_rank), atomic_load(&p->app->listening_ms));
	struct wire_exit x = {.end = JOB_END_LOST, .stage = "runner"};
	bool any = false;
	char span[UNITS_CAP];

	if (t->ended_ms != 0)
		return jobs_settle(p->app, t->id, err);
	if (any_launched(p, &any, err) < 0)
		return -1;
	if (!any && (s == JOB_CREATED || s == JOB_DEPLOYING))
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
	bool lacked = app_lacks_inodes(p->app);

	if (fs_remove_tree(AT_FDCWD, p->dir, err) < 0)
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

	if (p->job.id != NULL && keyed_executor_busy(p->app->prepare, p->job.id))
		return 0;
	if (p->t->launched_ms != 0 && probe(p, &status, err) < 0)
		return -1;
	switch (status) {
	case ENGINE_GONE:
		return may_wait(p) ? clean(p, err) : 0;
	case ENGINE_RUNS:
		if (now - over < RECONCILE_ORPHAN_MS || !may_wait(p))
			return 0;
		log_warn("killing a runner whose attempt is over: attempt=%s rank=%u", p->t->id,
		         p->t->node_rank);
		return kill_all(p, err);
	case ENGINE_UNKNOWN:
		break;
	}
	return 0;
}

static int probe_attempt(struct app *app, const struct model_attempt *t, bool waits,
                         struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct part p = {
		.app = app, .a = a, .t = t, .dir = app_path(app, a, t->dir), .waits = waits};

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

/* The attempt of a folder of ours, "runs/<attempt>-<rank>". */
static const char *attempt_in(struct arena *a, const char *dir)
{
	const char *name = strrchr(dir, '/'), *rank = strrchr(dir, '-');

	if (name == NULL || rank == NULL || rank < name)
		return dir;
	return arena_strz(a, str_n(name + 1, (size_t)(rank - name - 1)));
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
	                 : meta_attempt_left(app->meta, a, attempt_in(a, dir), &t, &n, &err)) < 0) {
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

/* A runner that outlived us looks here when it cannot reach us: the port may be another one. */
static void tell_address(struct app *app, struct arena *a, const struct model_attempt *t)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20), out = BUF_INIT((size_t)1 << 20);
	const char *path = arena_printf(a, "%s/launch.json", app_path(app, a, t->dir));
	struct wire_start start = {0};
	struct err err = {0};

	if (fs_read(AT_FDCWD, path, &text, &err) < 0 ||
	    wire_start_parse(&start, a, buf_view(&text), &err) < 0 ||
	    app_same(start.server, app->local_url))
		return;
	start.server = app->local_url;
	wire_start_write(&start, &out);
	if (fs_write_atomic(AT_FDCWD, path, buf_view(&out), 0600, &err) < 0)
		log_warn("launch.json: attempt=%s %s", t->id, err.msg);
	seal_wipe_buf(&out);
}

/* The first line of a job is written after its row: a crash between leaves it without one. Only the
 * newest are looked at: no more pushes than there are threads were under way. */
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

static bool remove_unknown(struct app *app, const char *name)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *dir = app_path(app, a, name);
	struct err err = {0};

	if (engine_kill(app->engine, "", dir, &app->stopping, &err) < 0 ||
	    fs_remove_tree(AT_FDCWD, dir, &err) < 0)
		log_warn("%s: %s", name, err.msg);
	return false;
}

/* Folders that no row knows: their runners are ended, then they go. */
static void unknown_folders(struct app *app, struct arena *a, const struct model_attempt *t,
                            size_t n)
{
	AUTO_MAP struct map *known = map_new();
	const char *runs = app_path(app, a, "runs");
	DIR *d = opendir(runs);
	const struct dirent *e;
	size_t seen = 0;

	for (size_t i = 0; i < n; i++)
		(void)map_set(known, str_of(t[i].dir), known);
	while (d != NULL && seen++ < FOLDERS_MAX && (e = readdir(d)) != NULL) {
		const char *name = arena_printf(a, "runs/%s", e->d_name);

		if (e->d_name[0] == '.' || map_get(known, str_of(name)) != NULL)
			continue;
		log_warn("removing a folder that belongs to no attempt: %s", name);
		keyed_executor_submit(app->sweeps, name, remove_unknown);
	}
	if (d != NULL)
		(void)closedir(d);
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
		tell_address(app, a, &t[i]);
	unknown_folders(app, a, t, n);
	first_lines(app, a); /* the loop's first pass looks at everybody, at once */
}
