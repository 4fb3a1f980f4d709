/* runner.c - the roles of `stoker runner`, and an attempt from its claim to its exit record. */
#include "run/runner.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/seal.h"
#include "core/attempt.h"
#include "run/gpu.h"
#include "run/image_keeper.h"
#include "run/prjquota.h"
#include "run/prjquota_keeper.h"
#include "run/sandbox_exec.h"
#include "run/run.h"

#include <libgen.h>
#include <signal.h>
#include <sys/signalfd.h>

#define START_MAX ((size_t)64 << 10)
#define SPEC_MAX ((size_t)4 << 20)

void run_crash_at(const char *label)
{
	crash_at(label, 86);
}

/* Before the claim: whoever finds this file knows the process that may own the attempt. */
static int write_identity(const char *dir, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(START_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct proc_id id;

	if (proc_identify(getpid(), &id, err) < 0)
		return -1;
	wire_process_write(&(struct wire_process){id.pid, id.start_ticks, id.boot, NULL}, &out);
	return fs_write_atomic(AT_FDCWD, arena_printf(a, "%s/" ATTEMPT_RUNNER, dir), buf_view(&out),
	                       0600, err);
}

/* As long as it is open, the server's port is kept for the server. Never closed: our end does. */
static void hold_lock(const struct run *r)
{
	struct stat st;

	if (!r->start.inherits_lock)
		return;
	if (fstat(WIRE_LOCK_FD, &st) < 0 || !S_ISREG(st.st_mode) ||
	    fcntl(WIRE_LOCK_FD, F_SETFD, FD_CLOEXEC) < 0)
		log_warn("no lock was inherited: when the server stops, its port is not kept");
}

static int read_start(struct run *r, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(START_MAX);
	int rc = fs_read(AT_FDCWD, arena_printf(r->a, "%s/" ATTEMPT_START, r->dir), &body, err);

	if (rc == 0)
		rc = wire_start_parse(&r->start, r->a, buf_view(&body), err);
	seal_wipe_buf(&body);
	if (rc == 0)
		hold_lock(r);
	return rc;
}

/* For "name:password", also redact the password alone. */
static int redact_registry(struct run *r, const char *value, struct err *err)
{
	struct str password = str_trim(str_of(value)), name = {0};

	if (value == NULL)
		return 0;
	if (redact_add(r->redact, password, err) < 0)
		return -1;
	if (str_cut(&password, ':', &name) && password.n > 0)
		return redact_add(r->redact, password, err);
	return 0;
}

/* All secrets, and the token of the attempt: nothing that we write may hold them. */
static int make_redactor(struct run *r, struct err *err)
{
	r->redact = redact_new();
	for (size_t i = 0; i < r->launch.n_env; i++) {
		if (r->launch.env[i].secret &&
		    redact_add(r->redact, str_of(r->launch.env[i].value), err) < 0)
			return -1;
	}
	if (redact_registry(r, r->launch.registry_secret, err) < 0 ||
	    redact_registry(r, r->launch.registry_secret2, err) < 0 ||
	    (r->launch.hub_token != NULL &&
	     redact_add(r->redact, str_of(r->launch.hub_token), err) < 0) ||
	    (r->launch.serve_key != NULL &&
	     redact_add(r->redact, str_of(r->launch.serve_key), err) < 0) ||
	    redact_add(r->redact, str_of(r->start.token), err) < 0)
		return -1;
	redact_build(r->redact);
	return 0;
}

static int open_signals(struct run *r, struct err *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->signal_fd < 0)
		return err_errno(err, errno, "signalfd");
	(void)signal(SIGPIPE, SIG_IGN);
	return 0;
}

static int start_sampler(struct run *r, struct err *err)
{
	struct sampler_options o = {
		.written = {arena_printf(r->a, "%s/" ATTEMPT_SCRATCH, r->dir),
	                    arena_printf(r->a, "%s/" ATTEMPT_UPPER, r->dir),
	                    arena_printf(r->a, "%s/" ATTEMPT_VARTMP, r->dir)},
		.cache_dir = r->spec.cache.enabled ? r->launch.cache_project_dir : NULL,
		.cache_quota = r->launch.cache_quota_bytes,
		.memory_limit = r->spec.memory_bytes,
		.gpus = r->launch.gpus,
		.n_gpus = r->launch.n_gpus,
	};

	if (o.cache_dir != NULL && fs_mkdirs(AT_FDCWD, o.cache_dir, 0755, err) < 0)
		return -1;
	if (sampler_start(&r->sampler, &o, err) < 0)
		return -1;
	report_samples(r->report, sampler_read, r->sampler);
	return 0;
}

/* The preparations that every attempt needs before its first stage. */
static int begin(struct run *r, struct err *err)
{
	if (make_redactor(r, err) < 0 ||
	    logs_open(&r->logs, arena_printf(r->a, "%s/" ATTEMPT_LOG, r->dir), r->redact, err) < 0)
		return -1;
	return report_start(r->report, r->logs, err);
}

/* On disk, before the server is told of the end. */
static void record(struct run *r)
{
	struct err err = {0};

	if (run_write_exit(r, &err) < 0)
		log_error("exit record: %s", err.msg);
}

/* A record that says "synced" ends a sweep before it begins: with checkpoints it is written when
 * the server has heard of them all. There is one already, which does not say so. */
static void finish(struct run *r)
{
	struct err err = {0};

	if (r->ship == NULL)
		record(r);
	report_stage(r->report, STAGE_DONE);
	report_job_ended(r->report);
	(void)report_flush(r->report);
	if (r->ship != NULL && !report_away(r->report)) /* a sweep tells the server */
		record(r);
	run_crash_at("synced");
	if (report_exit(r->report, &r->end, &err) < 0)
		log_error("exit: %s", err.msg); /* a sweep tells the server, or why it cannot */
	run_crash_at("reported");
}

/* No command of a job ever has the rights of root. */
static int take_ids(struct run *r, struct err *err)
{
	const struct wire_launch *l = &r->launch;
	bool own = l->ids_mode != NULL && strcmp(l->ids_mode, WIRE_IDS_OWN) == 0;
	bool idmap = own || (l->ids_mode != NULL && strcmp(l->ids_mode, WIRE_IDS_IDMAP) == 0);
	bool team = l->ids_mode != NULL && strcmp(l->ids_mode, WIRE_IDS_TEAM) == 0;
	bool none = l->ids_mode != NULL && strcmp(l->ids_mode, WIRE_IDS_NONE) == 0;
	struct ids_pool pool;

	if (geteuid() != 0)
		return 0;
	if (ids_pool_read(l->ids_pool, &pool, err) < 0)
		return -1;
	if (none && pool.span == 0)
		return 0;
	if (!idmap && (!team || l->ids_dir == NULL))
		return err_set(
			err, ERR_SANDBOX_UNAVAILABLE,
			"this runner is root, but the server assigned no user ids to its job");
	if (team && fs_mkdirs(AT_FDCWD, l->ids_dir, 0700, err) < 0)
		return -1;
	return ids_take(&r->ids, &pool, idmap, r->dir,
	                idmap ? NULL : arena_printf(r->a, "%s/%s", l->ids_dir, l->team_id), err);
}

static bool runs_image(const struct run *r)
{
	return r->spec.base_image != NULL && strcmp(r->launch.images, "host") != 0;
}

/* The file tells the sweep of what the keeper makes. */
static int start_images(struct run *r, struct err *err)
{
	const struct image_keeper_options o = {
		.a = r->a, .name = r->name, .spec = &r->spec, .launch = &r->launch, .ids = r->ids};

	if (fs_write_atomic(AT_FDCWD, arena_printf(r->a, "%s/" SANDBOX_CONTAINER, r->dir),
	                    str_of(r->name), 0600, err) < 0)
		return -1;
	return image_keeper_start(&r->images, &o, err);
}

/* Where the file system can limit the checkpoint folder, it does; else, or when that fails, the
 * watcher alone does. Only root can, so it is done first. */
static void take_project(struct run *r)
{
	const char *dir = arena_printf(r->a, "%s/" ATTEMPT_CKPT, r->dir);
	struct err err = {0};

	if (geteuid() != 0 || !r->spec.ckpt.enabled || r->spec.ckpt.volume_bytes == 0)
		return;
	if (fs_mkdirs(AT_FDCWD, dir, 0755, &err) < 0 ||
	    prjquota_take(dir, r->spec.ckpt.volume_bytes, &r->project, &err) < 0)
		log_warn("the file system does not limit the checkpoint folder: %s", err.msg);
	err_clear(&err);
}

static int start_limit(struct run *r, struct err *err)
{
	return r->project == 0
	               ? 0
	               : prjquota_keeper_start(&r->limit,
	                                       arena_printf(r->a, "%s/" ATTEMPT_CKPT, r->dir),
	                                       r->project, &r->ids, err);
}

/* What root alone can do for this job, then root is given up. */
static bool fills_compile(const struct wire_launch *l)
{
	return l->has_compile && l->compile.manifest != NULL;
}

static int confine(struct run *r, struct err *err)
{
	const struct cgroup_limits limits = {.memory_bytes = r->spec.memory_bytes,
	                                     .cpu_milli = (uint32_t)(r->spec.cpu_count * 1000)};
	char uv[4096];
	struct confine c = {
		.a = r->a, .dir = r->dir, .start = &r->start, .launch = &r->launch, .ids = r->ids};

	if (r->spec.python.wanted)
		c.program = proc_find("uv", uv);
	run_take_cores(r);
	if (confine_group(&r->confined, r->name, r->name,
	                  arena_printf(r->a, "%s/" SANDBOX_CGROUPS, r->dir), &limits, &r->ids,
	                  err) < 0)
		return -1;
	if (r->spec.python.wanted &&
	    confine_group(&r->confined, r->name, arena_printf(r->a, "%s" PYTHON_GROUP, r->name),
	                  arena_printf(r->a, "%s/" PYTHON_CGROUPS, r->dir), &limits, &r->ids,
	                  err) < 0)
		return -1;
	if ((r->spec.python.wanted || r->launch.n_weights > 0 || fills_compile(&r->launch)) &&
	    node_start_keeper(&r->node, &c, err) < 0)
		return -1;
	if ((runs_image(r) && start_images(r, err) < 0) || start_limit(r, err) < 0)
		return -1;
	if (confine_enter(&c, &r->confined, &r->ids, err) < 0)
		return -1;
	report_close(TAKE(r->report)); /* what it had open, it had open as root */
	return report_open(&r->report, &r->start, r->dir, err);
}

/* While this process has one thread, and is what it was started as. An error is the job's: it is
 * told when somebody can be told. */
static void prepare(struct run *r)
{
	const char *mode = r->launch.ids_mode, *why = NULL;
	struct err *err = &r->early;

	cgroup_sweep_old(CGROUP_OLD_S);
	if (spec_read_stored(r->a, r->launch.spec_json, &r->spec, err) < 0 || take_ids(r, err) < 0)
		return;
	take_project(r);
	if (r->launch.n_gpus > 0)
		gpu_wake();
	if (geteuid() != 0 || mode == NULL || strcmp(mode, WIRE_IDS_OWN) != 0)
		return;
	if (confine_may(&r->ids, &why) && runs_image(r) && image_keeper_may(r->a, &why, err) < 0)
		return;
	r->stays_root = why;
	if (why == NULL && confine(r, err) < 0)
		log_error("%s", err->msg); /* there may be no folder to tell it in */
}

static void attempt(struct run *r)
{
	struct err err = {0};

	r->stage = (struct stage){.magic = STAGE_MAGIC,
	                          .a = r->a,
	                          .dir = r->dir,
	                          .name = r->name,
	                          .program = r->program,
	                          .launch = &r->launch,
	                          .spec = &r->spec,
	                          .report = r->report,
	                          .logs = r->logs,
	                          .ids = &r->ids,
	                          .confined = &r->confined,
	                          .images = TAKE(r->images),
	                          .node = TAKE(r->node)};
	if (r->stays_root != NULL) {
		log_info("the runner stays root: %s", r->stays_root);
		logs_message(r->logs, "the runner stays root: %s", r->stays_root);
	}
	if (r->early.code != ERR_NONE)
		run_deploy_failed(r, STAGE_CLAIM, &r->early);
	else if (start_sampler(r, &err) < 0)
		run_deploy_failed(r, STAGE_CLAIM, &err);
	else if (stage_run(&r->stage, &err) < 0)
		run_deploy_failed(r, r->stage.at, &err);
	else {
		run_crash_at("staged");
		run_job(r);
	}
	finish(r);
}

static void run_close(struct run *r)
{
	execs_free(r->execs);
	quota_stop(r->quota); /* before the groups go that it freezes */
	report_halt(r->report);
	ship_close(r->ship); /* until then it reports, has requests signed, and tells the harvest */
	harvest_close(r->harvest);
	report_close(r->report);
	sampler_stop(r->sampler);
	if (r->sandbox != NULL && !sandbox_kill(r->sandbox))
		r->left = true;
	sandbox_close(r->sandbox);
	if (!r->left)
		cores_release(r->dir);
	if (r->ids.on && !r->left)
		ids_release(r->dir);
	if (r->project != 0 && !r->confined.on && !r->left)
		prjquota_lift(arena_printf(r->a, "%s/" ATTEMPT_CKPT, r->dir));
	stage_done(&r->stage);
	node_close(r->node);
	image_keeper_close(r->images);
	prjquota_keeper_close(r->limit);
	logs_close(r->logs);
	redact_free(r->redact);
	if (r->signal_fd >= 0)
		(void)close(r->signal_fd);
}

static int run_dir(const char *dir, struct err *err)
{
	AUTO_FREE char *copy = xstrdup(dir);
	AUTO_ARENA struct arena *a = arena_new();
	struct run *r = arena_alloc(a, sizeof(*r));
	AUTO_FREE char *program = realpath("/proc/self/exe", NULL);
	int code = 0;

	r->magic = RUN_MAGIC;
	r->a = a;
	r->dir = arena_cstr(a, dir);
	r->program = program != NULL ? program : "/proc/self/exe";
	r->signal_fd = -1;
	r->mounts = arena_alloc(a, sizeof(*r->mounts));
	r->mounts->a = a;
	proc_guard();
	(void)umask(077);
	if (open_signals(r, err) < 0 || read_start(r, err) < 0 || write_identity(dir, err) < 0 ||
	    report_open(&r->report, &r->start, r->dir, err) < 0) {
		code = -1;
	} else if (report_claim(r->report, a, &r->launch, err) < 0) {
		log_error("claim: %s", err->msg);
		err_clear(err);
		code = RUNNER_EXIT_NOT_OURS;
	} else {
		run_crash_at("claimed");
		cgroup_name(dirname(copy), r->start.attempt_id, r->start.node_rank, r->name);
		prepare(r);
		if (r->report == NULL)
			*err = r->early;
		code = r->report == NULL ? -1 : begin(r, err);
		if (code == 0)
			attempt(r);
	}
	run_close(r);
	return code;
}

static int probe(const char *data, const char *want, const char *pool)
{
	AUTO_BUF struct buf out = BUF_INIT(START_MAX);
	AUTO_FREE char *program = realpath("/proc/self/exe", NULL);

	sandbox_probe(program != NULL ? program : "/proc/self/exe", data, want, pool, &out);
	return printf("%s\n", buf_cstr(&out)) < 0 ? 1 : 0;
}

int runner_main(int argc, char **argv, struct err *err)
{
	log_init(LOG_INFO, false);
	if (argc > 0 && strcmp(argv[0], "runner") == 0) {
		argc--;
		argv++;
	}
	if (argc > 0 && strcmp(argv[0], "--sandbox-exec") == 0)
		return sandbox_exec_run(argc - 1, argv + 1, err);
	if (argc == 4 && strcmp(argv[0], "--probe") == 0) {
		log_init(LOG_ERROR, false); /* the server reads both outputs as one */
		return probe(argv[1], argv[2], argv[3]);
	}
	if ((argc == 2 || argc == 3) && strcmp(argv[0], "--sweep") == 0)
		return run_sweep(argv[1], argc == 3 ? argv[2] : "", err);
	if (argc != 1 || argv[0][0] != '/')
		return err_set(err, ERR_INVALID, "usage: stoker runner DIR (an absolute path)");
	return run_dir(argv[0], err);
}
