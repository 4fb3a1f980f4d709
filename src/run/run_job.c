/* run_job.c - from staged to ended: sandbox, go, one poll loop, the last sync. */
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "run/env.h"
#include "run/facts.h"
#include "run/gpu.h"
#include "run/hub_cache.h"
#include "run/prjquota.h"
#include "run/prjquota_keeper.h"
#include "run/ranks.h"
#include "run/run.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#define SYNC_STUCK_MS 10000         /* without progress after `stop --now`, or without inodes */
#define SAID_MAX ((size_t)64 << 10) /* of one message, redacted */
#define DRAIN_MS 2000               /* of the log, after the end: a grandchild may hold the pipe */
#define SHUTDOWN_MS 10000           /* grace when it is the runner itself that is told to end */
#define POLL_MAX_MS 1000
#define LAST_LOOK_MS 10000 /* at files that are open when the commands have ended */
/* When less is free, an ended job's scratch goes at once: for the last sync, the rest of the log,
 * and what the server keeps back (base/reserve.h). */
#define CRAMPED ((uint64_t)128 << 20)
#define WARN_MAX 400

static bool is_plain(const struct run *r)
{
	return r->stage.image == NULL && strcmp(r->launch.sandbox, sandbox_plain.name) == 0;
}

static int add_python(struct run *r, struct err *err)
{
	return r->stage.python.place ? mounts_add(r->mounts, MOUNT_RO, r->stage.python.lease.path,
	                                          SPEC_PYTHON_PLACE, err)
	                             : 0;
}

/* Without a root of its own the job's folders are below one that is there for it. */
static int make_plain_mounts(struct run *r, struct err *err)
{
	struct job_spec spec = r->spec;

	if (!r->ids.on)
		return 0; /* they are where they are */
	spec.workdir = true;
	if (mounts_job(r->mounts, &r->launch, &spec, r->dir, r->stage.tree, "/", false, err) < 0 ||
	    add_python(r, err) < 0)
		return -1;
	mounts_move(r->mounts, 0, IDS_STAGE);
	return 0;
}

/* An image has no driver. Where this machine has none, as of declared GPUs, it is as it is. */
static int add_driver(struct run *r, struct err *err)
{
	if (r->launch.n_gpus == 0)
		return 0;
	if (gpu_driver(r->mounts, err) == 0) {
		r->driver = true;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	logs_message(r->logs, "the image gets no GPU driver: %s", err->msg);
	err_clear(err);
	return 0;
}

static int make_mounts(struct run *r, struct err *err)
{
	struct mounts_machine machine;
	bool host = r->stage.image == NULL;

	r->mounts->ids = &r->ids;
	r->mounts->confined = &r->confined;
	if (is_plain(r))
		return make_plain_mounts(r, err);
	mounts_machine(r->a, &machine);
	if (host && mounts_host(r->mounts, &r->launch, &machine, err) < 0)
		return -1;
	if (mounts_job(r->mounts, &r->launch, &r->spec, r->dir, r->stage.tree,
	               r->stage.image_workdir, host, err) < 0)
		return -1;
	if (!host && add_driver(r, err) < 0)
		return -1;
	return add_python(r, err);
}

void run_take_cores(struct run *r)
{
	const char **uuid = ARENA_ARRAY(r->a, const char *, r->launch.n_gpus + 1);

	for (size_t i = 0; i < r->launch.n_gpus; i++)
		uuid[i] = r->launch.gpus[i].uuid;
	cores_take(&r->cores, r->dir, (uint32_t)(r->spec.cpu_count * 1000), uuid, r->launch.n_gpus);
}

static int make_sandbox(struct run *r, struct err *err)
{
	const char *closed;

	if (make_mounts(r, err) < 0)
		return -1;
	if (!r->confined.on)
		run_take_cores(r);
	r->sandbox_spec = (struct sandbox_spec){
		.dir = r->dir,
		.volume_limited = r->project != 0,
		.name = r->name,
		.kind = r->launch.sandbox,
		.image = r->stage.image,
		.image_name = r->spec.base_image,
		.image_path = r->stage.image_path,
		.image_workdir = r->stage.image_workdir,
		.image_root = r->stage.image_root[0],
		.program = r->program,
		.ids = r->ids,
		.confined = &r->confined,
		.mounts = r->mounts,
		.gpus = r->launch.gpus,
		.n_gpus = r->launch.n_gpus,
		.limits = {.memory_bytes = r->spec.memory_bytes,
	                   .cpu_milli = (uint32_t)(r->spec.cpu_count * 1000)},
		.cores = r->cores.list,
		.n_cores = r->cores.n,
		.need_mount_points =
			r->launch.n_weights > 0 || (r->stage.python.place && !is_plain(r)),
	};
	closed = gpu_closed(r->a, "", r->launch.gpus, r->launch.n_gpus, r->ids.on);
	if (closed != NULL)
		logs_message(r->logs,
		             "%s is not for every user of this machine, so the job may not find "
		             "its GPUs: the driver's option NVreg_DeviceFileMode=0666 makes it so",
		             closed);
	if (sandbox_start(&r->sandbox, &r->sandbox_spec, err) < 0)
		return -1;
	if (r->sandbox->notes[0] != '\0')
		logs_message(r->logs, "sandbox: %s", r->sandbox->notes);
	logs_message(r->logs, "%s", r->sandbox->says);
	return 0;
}

/* Where something is for the job: at its place, or, where there are no places, where it really is:
 * below a root that is there for it, or in the data folder. */
static const char *place_of(const struct run *r, const char *place, const char *real)
{
	if (place == NULL || r->sandbox->ops->has_mount_points)
		return place;
	return r->ids.on ? arena_printf(r->a, IDS_STAGE "%s", place) : real;
}

static const char *below(const struct run *r, const char *name)
{
	return arena_printf(r->a, "%s/%s", r->dir, name);
}

static void make_env(struct run *r)
{
	const struct job_spec *s = &r->spec;
	const struct wire_launch *l = &r->launch;
	bool real = !r->sandbox->ops->has_mount_points;
	const char *cache = s->cache.enabled ? s->cache.base_path : "";
	const char *scratch = place_of(r, MOUNT_BT_SCRATCH, below(r, ATTEMPT_SCRATCH));
	struct env_paths at = {
		.workspace = place_of(r, MOUNT_WORKSPACE, below(r, ATTEMPT_CODE)),
		.scratch = scratch,
		.ckpt = place_of(r, s->ckpt.path, below(r, ATTEMPT_CKPT)),
		.load = place_of(r, s->load.folder, below(r, ATTEMPT_LOAD)),
		.project_cache = place_of(r, arena_printf(r->a, "%s/user_artifacts", cache),
	                                  l->cache_project_dir),
		.team_cache = place_of(r, arena_printf(r->a, "%s/team_artifacts", cache),
	                               l->cache_team_dir),
		.hub = place_of(r, hub_cache_of(l), below(r, ATTEMPT_HUB)),
		.compile = l->has_compile
	                           ? place_of(r, SPEC_COMPILE_PLACE, below(r, ATTEMPT_COMPILE))
	                           : NULL,
		.home = real ? scratch : "/root",
		.cores = r->cores.n,
		.python = r->stage.python.at,
		.image = r->stage.image != NULL,
		.image_path = r->stage.image_path,
		.image_env = r->stage.image_env,
		.podman_sets = r->stage.podman_sets,
		.driver = r->driver ? GPU_LIBRARIES : NULL,
	};

	if (r->serve_port > 0)
		at.serve_port = arena_printf(r->a, "%" PRIu32, r->serve_port);
	if (access(below(r, ATTEMPT_CA), F_OK) == 0)
		at.ca = place_of(r, MOUNT_CA, below(r, ATTEMPT_CA));
	env_make(r->a, &r->launch, s, &at, &r->env, &r->n_env);
	if (s->workdir || real)
		r->workdir = at.workspace;
	else
		r->workdir = r->stage.image_workdir;
}

static int start_ship(struct run *r, struct err *err);

static void on_checkpoint(void *arg, const struct model_checkpoint *row)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);
	struct model_checkpoint clean = *row;
	AUTO_BUF struct buf name = BUF_INIT(SAID_MAX);
	char bytes[UNITS_CAP];
	static const char said[] = "incomplete: "; /* the line says it already */
	const char *why = row->reason;

	if (why != NULL && str_starts(str_of(why), said))
		why += sizeof(said) - 1;
	redact_text(r->redact, str_of(row->name), &name);
	clean.shown = buf_cstr(&name);
	report_checkpoint(r->report, &clean);
	if (row->state == CKPT_COMPLETE)
		harvest_soon(r->harvest);
	if (row->state == CKPT_COMPLETE)
		logs_message(r->logs, "%s is in the store: %" PRIu64 " file%s, %s",
		             strcmp(row->name, ".") == 0 ? "the checkpoint folder itself"
		                                         : row->name,
		             row->files, row->files == 1 ? "" : "s",
		             units_show_bytes(row->bytes, bytes));
	else if (row->state == CKPT_INCOMPLETE)
		logs_message(r->logs, "checkpoint %s is kept, marked INCOMPLETE%s%s", row->name,
		             why != NULL ? ": " : "", why != NULL ? why : "");
}

static void note_signals(struct run *r)
{
	struct signalfd_siginfo si;

	while (read(r->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		log_warn("received signal %u: stopping the job", si.ssi_signo);
		r->terminated = true;
	}
}

/* `stop --now`, or a machine that shuts down: checkpoints come first then. */
static bool hurries(void *arg)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);
	struct report_desired o;

	note_signals(r);
	report_desired(r->report, &o);
	return o.now || r->terminated;
}

static void start_harvest(struct run *r)
{
	const struct wire_launch *l = &r->launch;
	struct harvest_fact *fact = NULL;
	struct harvest *h = NULL;
	struct err err = {0};
	size_t n = 0;
	struct facts_of of = {
		.launch = l,
		.spec = &r->spec,
		.env = r->env,
		.n_env = r->n_env,
		.place = place_of(r, SPEC_COMPILE_PLACE, below(r, ATTEMPT_COMPILE)),
		.image = r->stage.image,
		.confined = &r->confined,
	};

	if (!l->has_compile || !l->compile.push || l->hub_token == NULL)
		return;
	if (r->stage.python.at != NULL)
		of.python = confined_path(&r->confined, r->a, r->stage.python.lease.path);
	facts_read(r->a, &of, &fact, &n);
	if (harvest_start(&h,
	                  &(struct harvest_options){.dir = below(r, ATTEMPT_COMPILE),
	                                            .spool = r->dir,
	                                            .launch = l,
	                                            .report = r->report,
	                                            .logs = r->logs,
	                                            .fact = fact,
	                                            .n_facts = n,
	                                            .hurries = hurries,
	                                            .arg = r},
	                  &err) < 0)
		logs_message(r->logs, "compile cache %s: nothing is kept: %s", l->compile.repo,
		             err.msg);
	r->harvest = h;
	err_clear(&err);
}

static void on_ship_event(void *arg, const char *kind, const char *text)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);
	AUTO_BUF struct buf clean = BUF_INIT(SAID_MAX);

	redact_text(r->redact, str_of(text), &clean);
	report_event(r->report, kind, "%s", buf_cstr(&clean));
	logs_message(r->logs, "%s", text);
}

/* The checkpoint folder itself holds the inodes that are missing: what is shipped from it takes as
 * many in the store, and the job would not end. */
static bool sync_lacks_inodes(struct run *r, int64_t now)
{
	if (r->over.id != ERR_INODES_EXHAUSTED || !quota_inodes_low(r->dir))
		r->low_ms = 0;
	else if (r->low_ms == 0)
		r->low_ms = now;
	return r->low_ms != 0 && now - r->low_ms >= SYNC_STUCK_MS;
}

/* The last sync waits for a store that is away, however long; `stop --now` does not. What goes on
 * is left to go on, for a checkpoint that is whole is not to be lost to haste. */
static bool on_sync(void *arg, uint64_t done)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);
	struct report_desired o;
	int64_t now = clock_mono_ms();

	report_desired(r->report, &o);
	if (done > r->sync_done || r->sync_ms == 0) {
		r->sync_done = done;
		r->sync_ms = now;
	}
	return report_fenced(r->report) || sync_lacks_inodes(r, now) ||
	       (o.now && now - r->sync_ms >= SYNC_STUCK_MS);
}

static uint32_t on_world(void *arg)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);

	return ranks_of(r->sandbox->init);
}

static bool on_forget(void *arg, int fd)
{
	struct run *r = FROM_VOID(struct run, arg, RUN_MAGIC);

	return r->limit != NULL ? prjquota_keeper_forget(r->limit, fd)
	                        : prjquota_forget(fd, r->project);
}

static int start_ship(struct run *r, struct err *err)
{
	struct ship_options o = {
		.dir = arena_printf(r->a, "%s/" ATTEMPT_CKPT, r->dir),
		.spool = arena_printf(r->a, "%s/" ATTEMPT_SPOOL, r->dir),
		.objects = r->stage.objects,
		.prefix = r->launch.ckpt_prefix,
		.job_id = r->launch.job_id,
		.rank = r->launch.node_rank,
		.nodes = r->launch.node_count,
		.settle_ms = (int64_t)r->spec.ckpt.settle_s * 1000,
		.marker = r->spec.ckpt.marker,
		.world = on_world,
		.ids = &r->ids,
		.volume_bytes = r->spec.ckpt.volume_bytes,
		.forget = r->project != 0 ? on_forget : NULL,
		.cancel = report_given_up(r->report),
		.give_up = on_sync,
		.checkpoint = on_checkpoint,
		.event = on_ship_event,
		.arg = r,
	};

	if (!r->spec.ckpt.enabled || r->launch.ckpt_prefix == NULL)
		return 0;
	if (run_ship_file(r, err) < 0)
		return -1;
	return ship_start(&r->ship, &o, err);
}

/* Waits for a go; false: stopped, fenced or told to end before user code. */
static bool wait_go(struct run *r)
{
	report_stage(r->report, STAGE_READY);
	report_ready(r->report);
	for (;;) {
		struct pollfd p[] = {{.fd = report_fd(r->report), .events = POLLIN},
		                     {.fd = r->signal_fd, .events = POLLIN},
		                     {.fd = r->sandbox->proc.pidfd, .events = POLLIN},
		                     {.fd = r->sandbox->status_fd, .events = POLLIN}};
		struct report_desired o;

		(void)poll(p, COUNT(p), POLL_MAX_MS);
		note_signals(r);
		sandbox_poll(r->sandbox);
		report_desired(r->report, &o);
		r->stopping = o.stop;
		if (o.stop || r->terminated || report_fenced(r->report) || p[2].revents != 0 ||
		    r->sandbox->ended)
			return false;
		if (o.go)
			return true;
	}
}

static void make_script(struct run *r, struct buf *out)
{
	const struct job_spec *s = &r->spec;
	struct sandbox_script script = {.env = r->env,
	                                .n_env = r->n_env,
	                                .workdir = r->workdir,
	                                .commands = s->commands,
	                                .n_commands = s->n_commands};

	if (s->cache.enabled && s->cache.legacy_hf_mount && r->sandbox->ops->has_mount_points)
		script.link = (struct sandbox_link){
			arena_printf(r->a, "%s/huggingface", s->cache.base_path),
			"user_artifacts/huggingface"};
	sandbox_script(r->sandbox, &script, out);
}

/* Folders on this node that the job writes to and that are deleted with its attempt. */
static const char *const scratch_dirs[] = {ATTEMPT_SCRATCH, ATTEMPT_UPPER, ATTEMPT_VARTMP,
                                           ATTEMPT_CODE,    ATTEMPT_HUB,   ATTEMPT_COMPILE};

static int start_quota(struct run *r, struct err *err)
{
	const struct wire_launch *l = &r->launch;
	const struct job_spec *s = &r->spec;
	const struct cgroup *g = &r->sandbox->cgroup;
	struct quota_options o = {
		.dir = r->dir,
		.volume = r->spec.ckpt.enabled ? below(r, ATTEMPT_CKPT) : NULL,
		.spool = r->spec.ckpt.enabled ? below(r, ATTEMPT_SPOOL) : NULL,
		.cache = {l->cache_project_dir, l->cache_team_dir},
		.scratch_bytes = l->scratch_bytes,
		.scratch_files = l->scratch_files,
		.volume_bytes = r->spec.ckpt.volume_bytes,
		.project = r->project,
		.code = below(r, ATTEMPT_CODE),
		.volume_at =
			place_of(r, s->ckpt.enabled ? s->ckpt.path : NULL, below(r, ATTEMPT_CKPT)),
		.cache_at = place_of(r, s->cache.enabled ? s->cache.base_path : NULL, NULL),
		.group = cgroup_tracks(g) ? g : NULL,
		.init = r->sandbox->init,
	};

	for (size_t i = 0; i < COUNT(scratch_dirs); i++)
		o.scratch[i] = below(r, scratch_dirs[i]);
	o.root = o.scratch[COUNT(scratch_dirs)] = r->sandbox->upper;
	return quota_start(&r->quota, &o, err);
}

/* The commands are over and nobody looks at these any more: what comes, the record and the last
 * sync, may need the room. What cannot be removed here goes with the attempt's folder. */
static void make_room(struct run *r)
{
	struct err err = {0};

	logs_message(r->logs, "removing what the job left in its scratch");
	for (size_t i = 0; i < COUNT(scratch_dirs); i++) {
		if (fs_remove_tree(AT_FDCWD, below(r, scratch_dirs[i]), &err) < 0)
			log_warn("scratch of an ended job: %s", err.msg);
		err_clear(&err);
	}
}

static void start_serve(struct run *r)
{
	if (r->spec.serve.name == NULL)
		return;
	serve_start(&r->serve, &(struct serve_options){.name = r->spec.serve.name,
	                                               .health = r->spec.serve.health,
	                                               .key = r->launch.serve_key,
	                                               .port = r->serve_port,
	                                               .report = r->report,
	                                               .logs = r->logs});
}

static int go(struct run *r, struct err *err)
{
	AUTO_BUF struct buf script = BUF_INIT(SANDBOX_SCRIPT_MAX);
	struct sandbox *s = r->sandbox;
	struct exec_options x = {.sandbox = s, .report = r->report, .redact = r->redact};
	int out = TAKE_FD(s->out_fd), err_fd = TAKE_FD(s->err_fd);
	int rc = 0;

	if (r->spec.serve.name != NULL && serve_free_port(&r->serve_port, err) < 0)
		return -1;
	make_env(r);
	x.env = r->env;
	x.n_env = r->n_env;
	x.workdir = r->workdir;
	make_script(r, &script);
	if (buf_check(&script, "commands and environment", err) < 0 ||
	    logs_pump(r->logs, out, err_fd, err) < 0 || start_ship(r, err) < 0)
		return -1;
	start_harvest(r);
	r->execs = execs_new(&x);
	r->started_ms = clock_wall_ms();
	if (r->spec.max_duration_s > 0)
		r->deadline_ms = clock_mono_ms() + (int64_t)r->spec.max_duration_s * 1000;
	idle_begin(&r->idle, (int64_t)r->spec.idle_gpu_s * 1000, clock_mono_ms());
	report_stage(r->report, STAGE_RUNNING);
	start_serve(r);
	sampler_watch(r->sampler, cgroup_tracks(&s->cgroup) ? &s->cgroup : NULL, s->init, r->ship);
	r->ran = true;
	rc = sandbox_go(s, buf_view(&script), err);
	run_crash_at("started");
	node_close(TAKE(r->stage.node)); /* a keeper has ended meanwhile */
	return rc;
}

/* An event, and a line of the log. */
PRINTF(2, 3) static void warn(struct run *r, const char *fmt, ...)
{
	char text[WARN_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* our own words: they fit */
	va_end(ap);
	report_event(r->report, "warning", "%s", text);
	logs_message(r->logs, "%s", text);
}

/* Once, and not when it is over: the next writes may be fine, when older files are removed. */
static void tell_full(struct run *r)
{
	char may[UNITS_CAP];

	if (r->told_full || !quota_volume_full(r->quota))
		return;
	r->told_full = true;
	warn(r,
	     "the checkpoint folder's volume is full: it has %s (volume_size_gib); what is written "
	     "beyond that fails",
	     units_show_bytes(r->spec.ckpt.volume_bytes, may));
}

static void ask_to_end(struct run *r, int64_t grace_ms, const char *why)
{
	int64_t at = clock_mono_ms() + grace_ms;

	serve_drain(r->serve);
	if (r->kill_at_ms == 0) {
		logs_message(r->logs, "%s: SIGTERM sent, SIGKILL in %" PRId64 " s", why,
		             grace_ms / 1000);
		sandbox_signal(r->sandbox, SIGTERM);
		r->kill_at_ms = MAX(at, 1);
	} else {
		r->kill_at_ms = MIN(r->kill_at_ms, at);
	}
}

/* GPUs that cannot be measured count as busy, which is reported once. */
static bool gpus_work(struct run *r)
{
	double most = 0;

	if (sampler_gpu_use(r->sampler, &most))
		return most >= IDLE_SHARE;
	if (!r->idle_unknown)
		warn(r, "limits.idle_gpu: GPU use cannot be measured on this node, so the GPUs "
		        "count as busy");
	r->idle_unknown = true;
	return true;
}

static void watch_idle(struct run *r)
{
	int64_t now = clock_mono_ms();
	char half[UNITS_CAP], whole[UNITS_CAP];

	if (r->idle.limit_ms == 0 || r->kill_at_ms != 0 || now < r->idle_look_ms)
		return;
	r->idle_look_ms = now + IDLE_LOOK_MS;
	switch (idle_look(&r->idle, gpus_work(r), logs_heard_ms(r->logs), now)) {
	case IDLE_HALF:
		warn(r,
		     "GPUs idle for %s: all below %s, and no output; the job will be stopped after "
		     "%s (limits.idle_gpu)",
		     units_show_seconds(r->spec.idle_gpu_s / 2, half), IDLE_PERCENT,
		     units_show_seconds(r->spec.idle_gpu_s, whole));
		break;
	case IDLE_WHOLE:
		report_idle(r->report, true);
		break;
	case IDLE_WORKS:
		report_idle(r->report, false);
		break;
	case IDLE_NOTHING:
		break;
	}
}

static void obey(struct run *r)
{
	struct report_desired o;
	struct wire_exec x;
	int64_t grace_ms = (int64_t)r->spec.grace_s * 1000;

	report_desired(r->report, &o);
	if (o.stop && !r->stopping) {
		r->stopping = true;
		ask_to_end(r, o.now ? 0 : grace_ms, "stop requested");
	}
	if (o.now && r->kill_at_ms != 0)
		r->kill_at_ms = MIN(r->kill_at_ms, clock_mono_ms());
	if (report_fenced(r->report))
		ask_to_end(r, 0, "this attempt is abandoned");
	if (r->terminated)
		ask_to_end(r, MIN(grace_ms, (int64_t)SHUTDOWN_MS), "the runner received a signal");
	if (r->deadline_ms > 0 && !r->timed_out && clock_mono_ms() >= r->deadline_ms) {
		r->timed_out = true;
		ask_to_end(r, grace_ms, "max_duration reached");
	}
	if (r->over.code == ERR_NONE && quota_crossed(r->quota, &r->over))
		ask_to_end(r, 0, r->over.msg);
	tell_full(r);
	watch_idle(r);
	if (o.idle && r->idle.whole && r->kill_at_ms == 0) {
		r->idled = true;
		ask_to_end(r, grace_ms, "idle_gpu reached");
	}
	while (report_exec(r->report, r->a, &x))
		execs_run(r->execs, &x);
}

static int next_ms(const struct run *r)
{
	int64_t now = clock_mono_ms(), next = POLL_MAX_MS;

	if (r->kill_at_ms > 0)
		next = MIN(next, r->kill_at_ms - now);
	if (r->deadline_ms > 0 && !r->timed_out)
		next = MIN(next, r->deadline_ms - now);
	return (int)MAX(next, 0);
}

/* The commands have ended; processes that they started may still write. */
static void commands_ended(struct run *r)
{
	if (r->sandbox->code == 0)
		ship_last_look(r->ship, LAST_LOOK_MS);
	sandbox_let_go(r->sandbox);
}

static void wait_end(struct run *r)
{
	struct sandbox *s = r->sandbox;
	int disk = r->quota != NULL ? quota_fd(r->quota) : -1;
	bool killed = false, told = false;

	while (!sandbox_ended(s, &r->code)) {
		struct pollfd p[] = {{.fd = s->proc.pidfd, .events = POLLIN},
		                     {.fd = report_fd(r->report), .events = POLLIN},
		                     {.fd = r->signal_fd, .events = POLLIN},
		                     {.fd = s->status_fd, .events = POLLIN},
		                     {.fd = disk, .events = POLLIN}};

		(void)poll(p, COUNT(p), next_ms(r));
		note_signals(r);
		sandbox_poll(s);
		if (s->ended && !told) {
			told = true;
			commands_ended(r);
		}
		obey(r);
		if (r->over.code != ERR_NONE)
			disk = -1; /* it stays readable */
		if (!killed && r->kill_at_ms > 0 && clock_mono_ms() >= r->kill_at_ms) {
			logs_message(r->logs, "grace period over: killing the remaining processes");
			(void)sandbox_kill(s);
			r->kill_at_ms = INT64_MAX;
			killed = true;
		}
	}
	r->ended_ms = clock_wall_ms();
	sandbox_poll(s);
}

static void sync_checkpoints(struct run *r)
{
	bool ok = r->code == 0 && r->end.end == JOB_END_EXIT;

	if (r->ship == NULL)
		return;
	logs_message(r->logs, "Job has exited. Syncing checkpoints...");
	r->end.synced = ship_finish(r->ship, ok);
	if (!r->end.synced)
		logs_message(r->logs, "some checkpoint files were not uploaded");
}

static bool is_cramped(const struct run *r)
{
	uint64_t avail = 0, total = 0;
	struct err unknown = {0};

	return fs_free_bytes(r->dir, &avail, &total, &unknown) == 0 && avail < CRAMPED;
}

/* Before the sync: it may take long. */
static void write_record(struct run *r)
{
	struct err err = {0};
	bool written = run_write_exit(r, &err) == 0;

	if (!r->left && (!written || r->over.code != ERR_NONE || is_cramped(r)))
		make_room(r);
	if (written)
		return;
	err_clear(&err);
	if (run_write_exit(r, &err) < 0)
		log_error("exit record: %s", err.msg);
}

static void run_commands(struct run *r)
{
	struct wire_sample last;
	struct err err = {0};

	if (go(r, &err) < 0) {
		logs_message(r->logs, "cannot start the commands: %s", err.msg);
		log_error("%s", err.msg);
		(void)sandbox_kill(r->sandbox); /* it would wait for them for ever */
	}
	wait_end(r);
	r->served = serve_stop(TAKE(r->serve));
	if (sampler_last(r->sampler, &last))
		report_sample(r->report, &last);
	sampler_watch(r->sampler, NULL, 0, NULL);
	note_signals(r); /* a machine that shuts down tells the job and us in any order */
	quota_finish(r->quota, &r->over);
	tell_full(r);
	r->near_full = quota_volume_near(r->quota);
	quota_stop(TAKE(r->quota));
	r->left = !sandbox_kill(r->sandbox);
	if (!r->left)
		cores_release(r->dir);
	if (r->left)
		report_event(r->report, "warning", "some of the job's processes cannot be killed");
	logs_finish(r->logs, DRAIN_MS);
	run_crash_at("exited");
	run_verdict(r);
	if (err.code != ERR_NONE)
		run_deploy_failed(r, STAGE_SANDBOX, &err);
	err_clear(&err);
	write_record(r);
	run_crash_at("recorded");
	if (r->harvest != NULL || r->ship != NULL)
		report_stage(r->report, STAGE_SYNC);
	harvest_finish(r->harvest, r->code == 0 && r->end.end == JOB_END_EXIT);
	sync_checkpoints(r);
}

void run_job(struct run *r)
{
	struct err err = {0};

	report_stage(r->report, STAGE_SANDBOX);
	/* before the job is ready: its code alone may be too much */
	if (make_sandbox(r, &err) < 0 || start_quota(r, &err) < 0) {
		run_deploy_failed(r, STAGE_SANDBOX, &err);
		return;
	}
	run_crash_at("ready");
	if (wait_go(r)) {
		run_commands(r);
		return;
	}
	if (r->terminated && !r->stopping) {
		run_told_to_end(r);
		return;
	}
	if (!r->stopping && !report_fenced(r->report)) {
		(void)err_set(&err, ERR_UNAVAILABLE, "the sandbox exited before the job started");
		run_deploy_failed(r, STAGE_READY, &err);
		return;
	}
	(void)err_set(&err, ERR_CANCELED, "stopped before its first command");
	run_deploy_failed(r, STAGE_READY, &err);
}
