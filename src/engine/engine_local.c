/*
 * engine_local.c - runners on this machine: a detached process a job and node, found again by pid,
 * start time and boot id. A pid alone proves nothing: it is reused.
 *
 * The reference is JSON {"pid","start","boot","program"}. Should the server die between starting a
 * runner and storing its reference, `<dir>/runner.json` says the same: the runner writes it before
 * it claims the attempt, so without that file no user code can have run.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "core/wire.h"
#include "engine/scope.h"

#include <signal.h>
#include <sys/pidfd.h>

#define REF_MAX ((size_t)16 << 10)
#define YOUNG_MS 10000 /* a runner that is not there yet may still be on its way */
#define SWEEP_SILENT_MS 60000
#define WORDS_MAX 400
#define KILL_WAIT_MS 10000
#define KILL_POLL_MS 10

/* The variables that a runner inherits: none that could hold a secret or change how its libraries
 * behave, only those that its helpers (bwrap, podman) and the sanitizers of a test build need. */
static const char *const passed[] = {
	"PATH",
	"HOME",
	"USER",
	"LOGNAME",
	"LANG",
	"LC_ALL",
	"TZ",
	"TMPDIR",
	"XDG_RUNTIME_DIR",
	"XDG_DATA_HOME",
	"XDG_CONFIG_HOME",
	"DBUS_SESSION_BUS_ADDRESS",
	"LD_LIBRARY_PATH",
	"ASAN_OPTIONS",
	"UBSAN_OPTIONS",
	"LSAN_OPTIONS",
	"TSAN_OPTIONS",
	"STOKER_CRASH_AT",
	"HTTP_PROXY",
	"HTTPS_PROXY",
	"NO_PROXY",
	"http_proxy",
	"https_proxy",
	"no_proxy",
	"CONTAINERS_CONF",
	"CONTAINERS_REGISTRIES_CONF",
	"CONTAINERS_STORAGE_CONF",
	"AWS_ENDPOINT_URL_ECR",
};

extern const struct engine_ops engine_local;

struct runner_ref {
	struct proc_id id;
	const char *program; /* NULL: not known */
};

static int local_open(struct engine **out, const char *options UNUSED, struct err *err UNUSED)
{
	struct engine *e = xcalloc(1, sizeof(*e));

	e->ops = &engine_local;
	*out = e;
	return 0;
}

static void local_close(struct engine *e)
{
	free(e);
}

static char *write_ref(struct arena *a, const struct proc_id *id, const char *program)
{
	AUTO_BUF struct buf out = BUF_INIT(REF_MAX);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv_int(&js, "pid", id->pid);
	js_kv_u64(&js, "start", id->start_ticks);
	js_kv(&js, "boot", id->boot);
	js_kv(&js, "program", program);
	js_close(&js);
	return arena_cstr(a, buf_cstr(&out));
}

static int read_ref(struct arena *a, struct str text, struct runner_ref *out, struct err *err)
{
	const struct doc *d = NULL;
	int64_t pid = 0;

	memset(out, 0, sizeof(*out));
	if (js_parse(a, text, &d, err) < 0)
		return err_wrap(err, "read the reference of a runner");
	pid = doc_int(doc_get(d, "pid"), 0);
	if (pid <= 0 || pid > INT_MAX)
		return err_set(err, ERR_CORRUPT, "reference of a runner: no pid in it");
	out->id.pid = (pid_t)pid;
	out->id.start_ticks = (uint64_t)MAX(doc_int(doc_get(d, "start"), 0), 0);
	copy_cut(out->id.boot, sizeof(out->id.boot), doc_cstr(doc_get(d, "boot"), ""));
	out->program = doc_cstr(doc_get(d, "program"), NULL);
	return 0;
}

/* From the stored reference, else from what the runner wrote. *known false: there is neither. */
static int find_ref(struct arena *a, const char *ref, const char *dir, struct runner_ref *out,
                    bool *known, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(REF_MAX);
	char *path = arena_printf(a, "%s/runner.json", dir);

	*known = true;
	memset(out, 0, sizeof(*out));
	if (ref != NULL && ref[0] != '\0')
		return read_ref(a, str_of(ref), out, err);
	if (fs_read(AT_FDCWD, path, &body, err) == 0)
		return read_ref(a, buf_view(&body), out, err);
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	*known = false;
	return 0;
}

static int local_launch(struct engine *e UNUSED, const struct engine_launch *l, struct arena *a,
                        char **ref, struct err *err)
{
	const char *const argv[] = {l->program, "runner", l->dir, NULL};
	const char *envp[COUNT(passed) + 1];
	char *path = arena_printf(a, "%s/runner.log", l->dir);
	AUTO_FD int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct proc_fd fds[] = {{log_fd, 1}, {log_fd, 2}};
	struct proc_spec spec = {.argv = argv,
	                         .envp = envp,
	                         .cwd = "/",
	                         .fds = fds,
	                         .n_fds = COUNT(fds),
	                         .new_session = true,
	                         .detach = true,
	                         .umask_bits = 077};
	struct proc proc = {.pidfd = -1};
	struct proc_id id = {0};
	struct err gone = {0};
	size_t n = 0;

	if (log_fd < 0)
		return err_errno(err, errno, "%s", path);
	if (access(l->program, X_OK) < 0) /* who is to become it could not tell us */
		return err_errno(err, errno, "%s", l->program);
	spec.argv = scope_wrap(a, argv);
	for (size_t i = 0; i < COUNT(passed); i++) {
		const char *value = getenv(passed[i]);

		if (value != NULL)
			envp[n++] = arena_printf(a, "%s=%s", passed[i], value);
	}
	envp[n] = NULL;
	if (proc_spawn(&spec, &proc, err) < 0)
		return -1;
	if (proc_identify(proc.pid, &id, &gone) < 0)
		id.pid = proc.pid; /* it has ended already: an identity that nobody has any more */
	if (proc.pidfd >= 0)
		(void)close(proc.pidfd);
	*ref = write_ref(a, &id, l->program);
	return 0;
}

static int local_probe(struct engine *e UNUSED, const char *ref, const char *dir,
                       enum engine_status *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	char *launch = arena_printf(a, "%s/launch.json", dir);
	struct runner_ref found;
	bool known = false;
	struct stat st;

	*out = ENGINE_UNKNOWN;
	if (find_ref(a, ref, dir, &found, &known, err) < 0)
		return -1;
	if (known) {
		*out = proc_alive(&found.id) ? ENGINE_RUNS : ENGINE_GONE;
		return 0;
	}
	/* Never launched, or so freshly that it has not written its name yet. */
	if (stat(launch, &st) == 0 &&
	    clock_wall_ms() - (int64_t)st.st_mtim.tv_sec * 1000 < YOUNG_MS)
		return 0;
	*out = ENGINE_GONE;
	return 0;
}

/* By pidfd, and asked once more whether it is the one: between the two the pid cannot be reused. */
static void kill_runner(const struct proc_id *id, const atomic_bool *cancel)
{
	AUTO_FD int fd = pidfd_open(id->pid, 0);

	if (fd < 0 || !proc_alive(id))
		return;
	(void)pidfd_send_signal(fd, SIGKILL, NULL, 0); /* gone meanwhile is as good */
	for (int64_t until = clock_mono_ms() + KILL_WAIT_MS; clock_mono_ms() < until;) {
		if (!proc_alive(id) || atomic_load(cancel))
			return;
		clock_sleep_ms(KILL_POLL_MS);
	}
}

struct until {
	const atomic_bool *cancel;
	size_t seen; /* of its output */
	int64_t seen_ms;
	bool silent;
};

/* A sweeper ends itself when nothing moves. One that uploads a large checkpoint tells of it now and
 * then, and has all the time that it takes. */
static bool goes_on(void *arg, const struct buf *out)
{
	struct until *u = arg;
	int64_t now = clock_mono_ms();

	if (out->n != u->seen || out->full) {
		u->seen = out->n;
		u->seen_ms = now;
	}
	u->silent = now - u->seen_ms > SWEEP_SILENT_MS;
	return !u->silent && !atomic_load(u->cancel);
}

/* What it said beside its signs of life. */
static struct str words_of(const struct buf *out)
{
	struct str s = buf_view(out);

	while (s.n > 0 && s.p[0] == '.')
		s = str_skip(s, 1);
	return str_skip(s, s.n > WORDS_MAX ? s.n - WORDS_MAX : 0);
}

static int local_kill(struct engine *e UNUSED, const char *ref, const char *dir,
                      const atomic_bool *cancel, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 10);
	const char *argv[] = {NULL, "runner", "--sweep", dir, NULL};
	struct until until = {.cancel = cancel};
	struct runner_ref found;
	struct str words;
	bool known = false;
	int code = 0;

	if (find_ref(a, ref, dir, &found, &known, err) < 0)
		return -1;
	if (known && proc_alive(&found.id)) {
		kill_runner(&found.id, cancel);
		if (atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (proc_alive(&found.id))
			return err_set(err, ERR_TIMEOUT,
			               "runner %d cannot be killed: does its disk hang?",
			               (int)found.id.pid);
	}
	if (access(dir, F_OK) < 0)
		return 0; /* nothing left to sweep by */
	argv[0] = found.program != NULL ? found.program : "/proc/self/exe";
	until.seen_ms = clock_mono_ms(); /* the kill has taken its time */
	if (proc_run_look(argv, -1, &(struct proc_look){goes_on, &until}, &out, &code, err) < 0) {
		if (!until.silent || err->code != ERR_CANCELED)
			return err_wrap(err, "sweeping %s", dir);
		err_clear(err);
		return err_set(err, ERR_TIMEOUT, "sweeping %s: no progress for %d s", dir,
		               SWEEP_SILENT_MS / 1000);
	}
	if (code == WIRE_SWEEP_AGAIN)
		return err_set(err, ERR_BUSY,
		               "%s: checkpoints of a dead runner are still being uploaded", dir);
	words = words_of(&out);
	if (code != 0)
		return err_set(err, ERR_IO, "cleaning up %s: exit code %d: %.*s", dir, code,
		               STR_ARG(words));
	return 0;
}

const struct engine_ops engine_local = {
	.name = "local",
	.open = local_open,
	.close = local_close,
	.launch = local_launch,
	.probe = local_probe,
	.kill = local_kill,
};
