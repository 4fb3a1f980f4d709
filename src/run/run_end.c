/* run_end.c - why an attempt ended, its exit record, and what a sweeper does after a killed runner.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/seal.h"
#include "base/units.h"
#include "core/attempt.h"
#include "run/prjquota.h"
#include "run/run.h"

#include <ctype.h>
#include <libgen.h>
#include <signal.h>

#define TOLD_TO_END "the runner received SIGTERM: is the machine shutting down?"
#define RECORD_MAX ((size_t)1 << 20)
#define DETAIL_MAX 600
#define COMMAND_MAX 120
#define SWEEP_STILL_S 20   /* of a sweep without progress; the next one goes on with its files */
#define SWEEP_TELL_MS 5000 /* between two signs of life to the server (engine_local.c) */

/* Frameworks print these when a GPU runs out of memory; a cgroup does not notice. */
static const char *const cuda_oom[] = {
	"torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "CUDA out of memory",
	"CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"};

static bool says_cuda_oom(struct run *r)
{
	for (size_t i = 0; i < COUNT(cuda_oom); i++) {
		if (logs_tail_has(r->logs, cuda_oom[i]))
			return true;
	}
	return false;
}

/* start_commands[1] "python train.py": its beginning, on one line, for it goes into logs and
 * tables. */
static const char *command_words(struct run *r)
{
	int i = r->sandbox->command;
	char *words;
	size_t n;

	if (i < 0 || (size_t)i >= r->spec.n_commands)
		return "";
	words = arena_cstr(r->a, r->spec.commands[i]);
	n = strlen(words);
	while (n > 0 &&
	       isspace((unsigned char)words[n - 1])) /* a script of several lines ends so */
		n--;
	if (n > COMMAND_MAX) {
		for (n = COMMAND_MAX; n > 0 && ((unsigned char)words[n] & 0xc0) == 0x80; n--)
			; /* not within a character */
		words = arena_printf(r->a, "%.*s...", (int)n, words);
	} else {
		words[n] = '\0';
	}
	for (char *p = words; *p != '\0'; p++)
		if (iscntrl((unsigned char)*p))
			*p = ' ';
	return arena_printf(r->a, "start_commands[%d] \"%s\"", i, words);
}

static const char *memory_words(struct run *r)
{
	char peak[UNITS_CAP], limit[UNITS_CAP];

	return arena_printf(r->a, "%s of %s, %s", units_show_memory(r->end.peak_memory_bytes, peak),
	                    units_show_memory(r->spec.memory_bytes, limit), command_words(r));
}

/* Debian has no `python`, only `python3`: as sh, dash and bash report it. */
static const char *python_hint(struct run *r)
{
	if (!logs_tail_has(r->logs, "python: command not found") &&
	    !logs_tail_has(r->logs, "python: not found"))
		return "";
	return r->spec.base_image != NULL
	               ? "; the image has no `python`: try python3, or set runtime.python"
	               : "; this machine has no `python`: use python3, or set runtime.python";
}

/* A write failed at the limit of the volume, by all that can be seen from here: it was full, or the
 * last words are the error of such a write. xfs says of a project what it says of a whole disk, as
 * does any tmpfs: that counts when the volume was near its limit. */
static bool met_full_volume(struct run *r)
{
	return r->told_full || (r->project != 0 && logs_tail_has(r->logs, strerror(EDQUOT))) ||
	       (r->near_full && logs_tail_has(r->logs, strerror(ENOSPC)));
}

static void volume_full(struct run *r)
{
	char may[UNITS_CAP];

	r->end.end = JOB_END_DISK;
	(void)err_set(&r->over, ERR_VOLUME_FULL,
	              "the checkpoint folder's volume is full, and has %s: raise volume_size_gib, "
	              "or keep fewer checkpoints",
	              units_show_bytes(r->spec.ckpt.volume_bytes, may));
	r->end.detail = arena_cstr(r->a, r->over.msg);
	r->end.error_id = err_id(&r->over);
}

void run_verdict(struct run *r)
{
	struct sandbox *s = r->sandbox;
	struct wire_exit *x = &r->end;
	uint64_t oom = s->oom_kills + s->oom;
	int code = s->ended ? s->code : r->code;

	*x = (struct wire_exit){.end = JOB_END_EXIT,
	                        .code = code,
	                        .user_code_ran = r->ran,
	                        .synced = r->ship == NULL,
	                        .served = r->served,
	                        .started_ms = r->started_ms,
	                        .ended_ms = r->ended_ms,
	                        .peak_memory_bytes = s->peak};
	r->code = code;
	x->detail = command_words(r);
	if (r->stopping) {
		x->end = JOB_END_STOPPED;
	} else if (r->over.code != ERR_NONE) {
		x->end = JOB_END_DISK;
		x->detail = arena_cstr(r->a, r->over.msg);
		x->error_id = err_id(&r->over);
	} else if (r->timed_out) {
		x->end = JOB_END_TIMEOUT;
	} else if (r->idled) {
		x->end = JOB_END_IDLE;
		x->code = (int)r->spec.idle_gpu_s;
	} else if (r->terminated && code != 0) {
		x->end = JOB_END_LOST; /* the machine's doing: retry: { on: [node_fail] } */
		x->detail = TOLD_TO_END;
	} else if (code != 0 && oom > 0) {
		x->end = JOB_END_OOM;
		x->detail = memory_words(r);
	} else if (code != 0 && says_cuda_oom(r)) {
		x->end = JOB_END_OOM_CUDA;
	} else if (code != 0 && met_full_volume(r)) {
		volume_full(r);
	} else if (code > 128 && code <= 128 + SIGRTMAX) {
		x->end = JOB_END_SIGNAL;
		x->code = code - 128;
	} else if (code == 0) {
		x->detail = NULL;
	} else if (code == 127) { /* the shell's: command not found */
		x->detail = arena_printf(r->a, "%s%s", x->detail, python_hint(r));
	}
	if (code == 0 && oom > 0)
		logs_message(r->logs,
		             "%" PRIu64 " process(es) of the job were killed at its memory limit",
		             oom);
}

/* Its name is all that changes: the file and its blocks are there. */
static int write_spare(struct run *r, const char *path, struct str body, struct err *err)
{
	const char *spare = arena_printf(r->a, "%s/" ATTEMPT_SPARE, r->dir);
	AUTO_FD int fd = open(spare, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "%s", spare);
	if (fs_pwrite_all(fd, body.p, body.n, 0, err) < 0)
		return -1;
	if (ftruncate(fd, (off_t)body.n) < 0 || fsync(fd) < 0)
		return err_errno(err, errno, "%s", spare);
	return fs_rename(AT_FDCWD, spare, AT_FDCWD, path, err);
}

int run_write_exit(struct run *r, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(RECORD_MAX);
	const char *path = arena_printf(r->a, "%s/" ATTEMPT_EXIT, r->dir);
	struct err full = {0}, no = {0};

	wire_exit_write(&r->end, &out);
	if (fs_write_atomic(AT_FDCWD, path, buf_view(&out), 0600, &full) == 0)
		return 0;
	if (full.code != ERR_NO_SPACE || write_spare(r, path, buf_view(&out), &no) < 0) {
		*err = full;
		return -1;
	}
	return 0;
}

void run_told_to_end(struct run *r)
{
	r->end = (struct wire_exit){.end = JOB_END_LOST, .detail = TOLD_TO_END, .synced = true};
}

void run_deploy_failed(struct run *r, enum wire_stage stage, const struct err *why)
{
	AUTO_BUF struct buf clean = BUF_INIT(RECORD_MAX);
	bool stopped = why->code == ERR_CANCELED;
	bool lost = why->id == ERR_KEEPER_LOST; /* as we might have been */

	redact_text(r->redact, str_of(why->msg), &clean);
	r->end = (struct wire_exit){
		.end = stopped ? JOB_END_STOPPED
	               : lost  ? JOB_END_LOST
	                       : JOB_END_DEPLOY_FAILED,
		.detail = arena_cstr(r->a, buf_cstr(&clean)),
		.stage = wire_stage_word(stage),
		.error_id = err_id(why),
		.user_code_ran = false,
		.synced = true,
	};
	logs_message(r->logs, "%s: %s", wire_stage_word(stage), why->msg);
}

/* All that shipping needs, and no secret: should we be killed, a sweeper goes on with it. */
int run_ship_file(struct run *r, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(RECORD_MAX);
	struct wire_ship said = {
		.objstore = r->launch.objstore,
		.prefix = r->launch.ckpt_prefix,
		.job_id = r->launch.job_id,
		.rank = r->launch.node_rank,
		.nodes = r->launch.node_count,
		.settle_s = r->spec.ckpt.settle_s,
		.marker = r->spec.ckpt.marker,
		.volume_bytes = r->spec.ckpt.volume_bytes,
	};

	wire_ship_write(&said, &out);
	return fs_write_atomic(AT_FDCWD, arena_printf(r->a, "%s/" ATTEMPT_SHIP, r->dir),
	                       buf_view(&out), 0600, err);
}

static int read_ship(struct arena *a, const char *path, struct wire_ship *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(RECORD_MAX);

	if (fs_read_strange(AT_FDCWD, path, &body, err) < 0)
		return -1;
	return wire_ship_parse(out, a, buf_view(&body), err);
}

struct sweep {
	unsigned magic;
#define SWEEP_MAGIC 0x52535745U
	struct arena *a;
	const char *dir;
	bool past, last, told; /* see WIRE_SWEEP_PAST */
	struct wire_start start;
	struct wire_exit exit; /* as it is on disk */
	bool recorded;         /* there is one */
	struct report *report; /* NULL: there is nothing to tell */
	struct err first;      /* of what was given up */
	atomic_bool cancel;
	uint64_t done; /* the most that was ever reached */
	int64_t told_ms;
};

static void on_swept(void *arg, const struct model_checkpoint *row)
{
	struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);

	log_info("checkpoint %s: %s", row->name, ckpt_state_word(row->state));
	report_checkpoint(s->report, row);
}

static void on_sweep_event(void *arg UNUSED, const char *kind, const char *text)
{
	log_warn("%s: %s", kind, text);
}

/* A sweep ends when nothing moves. */
static void moved(void *arg)
{
	struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);
	int64_t now = clock_mono_ms();

	(void)alarm(SWEEP_STILL_S);
	if (now - s->told_ms < SWEEP_TELL_MS)
		return;
	s->told_ms = now;
	(void)!write(STDOUT_FILENO, ".", 1);
}

/* A file larger than a sweep is long has to come to its end: it is sent from its start each time.
 * What is tried again and again, on a full disk, makes no progress. */
static bool on_sweep_progress(void *arg, uint64_t done)
{
	struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);

	if (done <= s->done)
		return false;
	s->done = done;
	moved(s);
	return false;
}

static int ship_rest(struct sweep *sweep, const struct wire_ship *said, bool ok, bool *all,
                     struct err *err)
{
	AUTO_HTTP_CLIENT struct http_client *http = NULL; /* freed behind the store */
	AUTO_OBJSTORE struct objstore *objects = NULL;
	struct ship_options o = {
		.dir = arena_printf(sweep->a, "%s/" ATTEMPT_CKPT, sweep->dir),
		.spool = arena_printf(sweep->a, "%s/" ATTEMPT_SPOOL, sweep->dir),
		.prefix = said->prefix,
		.job_id = said->job_id,
		.rank = said->rank,
		.nodes = MAX(said->nodes, 1U),
		.settle_ms = said->settle_s * INT64_C(1000),
		.marker = said->marker,
		.volume_bytes = said->volume_bytes,
		.dead = true,
		.cancel = &sweep->cancel,
		.give_up = on_sweep_progress,
		.checkpoint = on_swept,
		.event = on_sweep_event,
		.arg = sweep,
	};
	struct ship *ship = NULL;

	/* the folder is its runner's: no store is named by it that root could open by itself */
	if (!str_starts(str_of(said->objstore), "signed:") &&
	    !str_starts(str_of(said->objstore), "passed:"))
		return err_set(err, ERR_CORRUPT, ATTEMPT_SHIP " names a store of another kind");
	if (stage_objects(&objects, &http, said->objstore, sweep->report, err) < 0)
		return -1;
	o.objects = objects;
	if (ship_start(&ship, &o, err) < 0)
		return -1;
	*all = ship_finish(ship, ok);
	ship_close(ship);
	return 0;
}

static void on_alarm(int sig UNUSED)
{
	_exit(WIRE_SWEEP_AGAIN); /* journal and server know how far it is; the server asks again */
}

static const char *in_folder(const struct sweep *s, const char *name)
{
	return arena_printf(s->a, "%s/%s", s->dir, name);
}

/* The checkpoints of a killed runner. Its exit record, if it wrote one, learns of it. */
static int sweep_checkpoints(struct sweep *s, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(RECORD_MAX);
	const struct wire_exit *x = &s->exit;
	struct wire_ship said;
	bool all = false;

	if (s->recorded && x->synced)
		return 0;
	if (read_ship(s->a, in_folder(s, ATTEMPT_SHIP), &said, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0; /* it had none */
	}
	if (ship_rest(s, &said, s->recorded && x->end == JOB_END_EXIT && x->code == 0, &all, err) <
	    0)
		return -1;
	if (!s->recorded || !all || report_untold(s->report))
		return 0;
	s->exit.synced = true;
	wire_exit_write(x, &out);
	return fs_write_atomic(AT_FDCWD, in_folder(s, ATTEMPT_EXIT), buf_view(&out), 0600, err);
}

static int sweep_log(struct sweep *s, struct err *err)
{
	return s->past ? 0 : report_log_rest(s->report, s->last, moved, s, err);
}

/* What it started, and what it held. */
static int sweep_machine(struct sweep *s, struct err *err)
{
	AUTO_FREE char *copy = xstrdup(s->dir);
	char name[128];

	cgroup_name(dirname(copy), s->start.attempt_id, s->start.node_rank, name);
	if (sandbox_sweep(name, s->dir, err) < 0 || python_sweep(name, s->dir, err) < 0)
		return -1;
	ids_release(s->dir);
	prjquota_lift(in_folder(s, ATTEMPT_CKPT));
	return 0;
}

static int read_launch(struct sweep *s, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(RECORD_MAX);
	AUTO_FREE char *copy = xstrdup(s->dir), *name = xstrdup(s->dir);
	const char *runs = dirname(copy);
	int r = fs_read(AT_FDCWD,
	                arena_printf(s->a, "%s/../" ATTEMPT_STARTS "/%s", runs, basename(name)),
	                &body, err);

	if (r < 0 && err->code == ERR_NOT_FOUND) { /* it was started before there were two */
		err_clear(err);
		buf_clear(&body);
		r = fs_read_strange(AT_FDCWD, in_folder(s, ATTEMPT_START), &body, err);
	}
	if (r == 0)
		r = wire_start_parse(&s->start, s->a, buf_view(&body), err);
	seal_wipe_buf(&body);
	return r;
}

/* What a runner left is read with no more rights than it had. The ids are new ones: what is on disk
 * belongs to none of them. The next sweep gives them back. */
static int give_up_root(struct sweep *s, struct err *err)
{
	struct confine c = {.a = s->a, .dir = s->dir, .start = &s->start};
	struct ids_pool pool;
	struct ids ids;

	if (s->start.ids_pool == NULL || geteuid() != 0)
		return 0;
	if (ids_pool_read(s->start.ids_pool, &pool, err) < 0 ||
	    ids_take(&c.ids, &pool, true, s->dir, NULL, err) < 0)
		return -1;
	return confine_enter(&c, ARENA_NEW(s->a, struct confined), &ids, err);
}

static void read_record(struct sweep *s)
{
	AUTO_BUF struct buf body = BUF_INIT(RECORD_MAX);
	struct err no = {0};

	s->recorded = fs_read_strange(AT_FDCWD, in_folder(s, ATTEMPT_EXIT), &body, &no) == 0 &&
	              wire_exit_parse(&s->exit, s->a, buf_view(&body), &no) == 0;
}

static bool is_there(const struct sweep *s, const char *name)
{
	return access(in_folder(s, name), F_OK) == 0;
}

/* One that never came so far as to have a log has nothing to tell, to no server. */
static int reach_server(struct sweep *s, struct err *err)
{
	if (!is_there(s, ATTEMPT_LOG) && !is_there(s, ATTEMPT_SHIP) && !s->recorded)
		return 0;
	return report_open(&s->report, &s->start, s->dir, err);
}

/* True: it is given up, for the end of the attempt must be told. */
static bool is_given_up(struct sweep *s, struct err *err)
{
	if (!s->last)
		return false;
	log_error("%s", err->msg);
	if (s->first.code == ERR_NONE)
		s->first = *err;
	err_clear(err);
	return true;
}

/* The words are the last line: the engine passes them on. */
static int say_refused(struct err *err)
{
	for (char *c = err->msg; *c != '\0'; c++)
		if (iscntrl((unsigned char)*c))
			*c = ' ';
	(void)fflush(stderr);
	(void)printf("\n%s\n", err->msg);
	(void)fflush(stdout);
	err_clear(err);
	return WIRE_SWEEP_REFUSED;
}

/* The log is whole before the end is known, and so are the checkpoints. */
static int tell(struct sweep *s, struct err *err)
{
	(void)signal(SIGALRM, on_alarm);
	moved(s);
	if (sweep_log(s, err) < 0 && !is_given_up(s, err))
		return -1;
	moved(s);
	if (sweep_checkpoints(s, err) < 0 && !is_given_up(s, err))
		return -1;
	if (report_untold(s->report) && !s->last)
		return WIRE_SWEEP_AGAIN;
	moved(s);
	if (s->recorded && !s->past && report_exit(s->report, &s->exit, err) < 0)
		return say_refused(err);
	return 0;
}

int run_sweep(const char *dir, const char *how, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sweep s = {.magic = SWEEP_MAGIC,
	                  .a = a,
	                  .dir = dir,
	                  .past = strcmp(how, WIRE_SWEEP_PAST) == 0,
	                  .told = strcmp(how, WIRE_SWEEP_TOLD) == 0,
	                  .last = strcmp(how, WIRE_SWEEP_LAST) == 0};
	int r = 0;

	if (read_launch(&s, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0; /* nothing was ever started from here */
	}
	if (sweep_machine(&s, err) < 0 && !is_given_up(&s, err))
		return -1;
	if (s.told || access(dir, F_OK) < 0)
		return 0;
	if (s.start.socket != NULL) { /* it is the server of this machine that waits for us */
		s.start.n_others = 0;
		s.start.ca_file = NULL;
	}
	if (give_up_root(&s, err) < 0) {
		/* a full disk, or no range of ids left: nothing is given up for that */
		(void)fprintf(stderr, "%s\n", err->msg);
		err_clear(err);
		return WIRE_SWEEP_AGAIN;
	}
	read_record(&s);
	if (reach_server(&s, err) < 0)
		return -1;
	if (s.report != NULL)
		r = tell(&s, err);
	report_close(s.report);
	if (r == 0 && s.first.code != ERR_NONE) {
		*err = s.first;
		return -1;
	}
	return r;
}
