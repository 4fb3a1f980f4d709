/*
 * engine_local.c - runners on this machine: a detached process a job and node, found again by pid,
 * start time and boot id. A pid alone proves nothing: it is reused.
 *
 * The reference is JSON {"pid","start","boot","program"}. Should the server die between starting a
 * runner and storing its reference, the runner's own file (ATTEMPT_RUNNER) says the same: it is
 * written before the claim, so without that file no user code can have run.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/seal.h"
#include "core/attempt.h"
#include "core/wire.h"
#include "engine/scope.h"

#include <dirent.h>
#include <signal.h>
#include <sys/pidfd.h>

#define REF_MAX ((size_t)16 << 10)
#define START_MAX ((size_t)1 << 20)
#define YOUNG_MS 10000 /* a runner that is not there yet may still be on its way */
#define SWEEP_SILENT_MS 60000
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

struct local {
	struct engine base;
	char *home;
};

struct runner_ref {
	struct proc_id id;
	const char *program; /* NULL: not known */
	bool claimed;        /* the runner says so itself, and nobody else */
};

static char *path_of(struct engine *e, struct arena *a, const char *dir)
{
	return arena_printf(a, "%s/%s", ((struct local *)e)->home, dir);
}

/* What the runner of a folder was started with: a runner may change its own copy. */
static char *kept_start(struct engine *e, struct arena *a, const char *dir)
{
	return arena_printf(a, "%s/" ATTEMPT_STARTS "/%s", ((struct local *)e)->home,
	                    strrchr(dir, '/') + 1);
}

static int local_open(struct engine **out, const char *home, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct local *l;

	if (fs_mkdirs(AT_FDCWD, arena_printf(a, "%s/" ENGINE_DIRS, home), 0700, err) < 0 ||
	    fs_mkdirs(AT_FDCWD, arena_printf(a, "%s/" ATTEMPT_STARTS, home), 0700, err) < 0)
		return -1;
	l = xcalloc(1, sizeof(*l));
	l->base.ops = &engine_local;
	l->home = xstrdup(home);
	*out = &l->base;
	return 0;
}

static void local_close(struct engine *e)
{
	free(((struct local *)e)->home);
	free(e);
}

static char *write_ref(struct arena *a, const struct proc_id *id, const char *program)
{
	AUTO_BUF struct buf out = BUF_INIT(REF_MAX);

	wire_process_write(&(struct wire_process){id->pid, id->start_ticks, id->boot, program},
	                   &out);
	return arena_cstr(a, buf_cstr(&out));
}

static int read_ref(struct arena *a, struct str text, struct runner_ref *out, struct err *err)
{
	struct wire_process said;

	memset(out, 0, sizeof(*out));
	if (wire_process_parse(&said, a, text, err) < 0) {
		err_become(err, ERR_CORRUPT);
		return err_wrap(err, "read the reference of a runner");
	}
	if (said.pid <= 0)
		return err_set(err, ERR_CORRUPT, "reference of a runner: no pid in it");
	out->id.pid = said.pid;
	out->id.start_ticks = said.start;
	copy_cut(out->id.boot, sizeof(out->id.boot), said.boot);
	out->program = said.program;
	return 0;
}

/* From the stored reference, else from what the runner wrote. *known false: there is neither. */
static int find_ref(struct arena *a, const char *ref, const char *dir, struct runner_ref *out,
                    bool *known, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(REF_MAX);
	char *path = arena_printf(a, "%s/" ATTEMPT_RUNNER, dir);

	*known = true;
	memset(out, 0, sizeof(*out));
	if (ref != NULL && ref[0] != '\0')
		return read_ref(a, str_of(ref), out, err);
	if (fs_read_strange(AT_FDCWD, path, &body, err) == 0) {
		if (read_ref(a, buf_view(&body), out, err) < 0)
			return -1;
		out->program = NULL; /* whom it names is not run */
		out->claimed = true;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND && err->code != ERR_INVALID)
		return -1;
	err_clear(err);
	*known = false;
	return 0;
}

static int make_folder(const char *dir, struct str start, struct err *err)
{
	AUTO_FD int fd = -1;

	if (fs_mkdirs(AT_FDCWD, dir, 0700, err) < 0)
		return -1;
	fd = fs_open_dir(dir, err);
	return fd < 0 ? -1 : fs_write_atomic(fd, ATTEMPT_START, start, 0600, err);
}

static int start_runner(const struct engine_launch *l, const char *dir, struct arena *a, char **ref,
                        struct err *err)
{
	const char *const argv[] = {l->program, "runner", dir, NULL};
	const char *envp[COUNT(passed) + 1];
	char *path = arena_printf(a, "%s/" ATTEMPT_WORDS, dir);
	AUTO_FD int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct proc_fd fds[] = {{log_fd, 1}, {log_fd, 2}, {l->lock_fd, WIRE_LOCK_FD}};
	struct proc_spec spec = {.argv = argv,
	                         .envp = envp,
	                         .cwd = "/",
	                         .fds = fds,
	                         .n_fds = COUNT(fds) - (l->lock_fd == 0),
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

static int local_launch(struct engine *e, const struct engine_launch *l, struct arena *a,
                        char **ref, struct err *err)
{
	const char *dir = path_of(e, a, l->dir);

	if (fs_write_atomic(AT_FDCWD, kept_start(e, a, l->dir), l->start, 0600, err) < 0 ||
	    make_folder(dir, l->start, err) < 0)
		return -1;
	return start_runner(l, dir, a, ref, err);
}

static int local_probe(struct engine *e, const char *ref, const char *name, enum engine_status *out,
                       struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *dir = path_of(e, a, name);
	char *launch = arena_printf(a, "%s/" ATTEMPT_START, dir);
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

/* Is it the runner of this folder? The folder's own file names a process, but a runner may have
 * written that file which is nobody's friend any more. */
static bool runs_for(pid_t pid, const char *dir)
{
	AUTO_BUF struct buf words = BUF_INIT(REF_MAX);
	struct err gone = {0};
	struct str rest, word;
	char path[40];

	FMT(path, "/proc/%d/cmdline", (int)pid);
	if (fs_read(AT_FDCWD, path, &words, &gone) < 0)
		return false;
	rest = buf_view(&words);
	while (str_cut(&rest, '\0', &word)) {
		if (str_eq(word, dir))
			return true;
	}
	return false;
}

struct until {
	unsigned magic;
#define UNTIL_MAGIC 0x45554e54U
	const atomic_bool *cancel;
	size_t seen; /* of its output */
	int64_t seen_ms;
	bool silent;
};

/* A sweeper ends itself when nothing moves. One that uploads a large checkpoint tells of it now and
 * then, and has all the time that it takes. */
static bool goes_on(void *arg, const struct buf *out)
{
	struct until *u = FROM_VOID(struct until, arg, UNTIL_MAGIC);
	int64_t now = clock_mono_ms();

	if (out->n != u->seen || out->full) {
		u->seen = out->n;
		u->seen_ms = now;
	}
	u->silent = now - u->seen_ms > SWEEP_SILENT_MS;
	return !u->silent && !atomic_load(u->cancel);
}

static struct str end_of(struct str s)
{
	s = str_trim(s);
	s = str_skip(s, s.n > ENGINE_WORDS_MAX ? s.n - ENGINE_WORDS_MAX : 0);
	while (s.n > 0 && ((unsigned char)s.p[0] & 0xc0) == 0x80) /* not within a character */
		s = str_skip(s, 1);
	return s;
}

/* What it said beside its signs of life. */
static struct str words_of(const struct buf *out)
{
	struct str s = buf_view(out);

	while (s.n > 0 && s.p[0] == '.')
		s = str_skip(s, 1);
	return end_of(s);
}

/* A runner's own, from the end of what may be long. */
static void last_words(const char *dir, struct engine_end *end)
{
	AUTO_FREE char *path = xasprintf("%s/" ATTEMPT_WORDS, dir);
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char text[2 * ENGINE_WORDS_MAX];
	struct str words;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	n = pread(fd, text, sizeof(text), MAX(st.st_size - (off_t)sizeof(text), 0));
	if (n <= 0)
		return;
	words = end_of(str_n(text, (size_t)n));
	memcpy(end->words, words.p, words.n);
	end->words[words.n] = '\0';
}

static struct str last_line(struct str s)
{
	const char *at;

	s = str_trim(s);
	at = s.n == 0 ? NULL : memrchr(s.p, '\n', s.n);
	return at == NULL ? s : str_skip(s, (size_t)(at - s.p) + 1);
}

static int sweep(const char *dir, const char *program, struct engine_end *end, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 10);
	const char *how = end->told   ? WIRE_SWEEP_TOLD
	                  : end->past ? WIRE_SWEEP_PAST
	                  : end->last ? WIRE_SWEEP_LAST
	                              : NULL;
	const char *argv[] = {program, "runner", "--sweep", dir, how, NULL};
	struct until until = {.magic = UNTIL_MAGIC, .cancel = end->cancel};
	struct str words;
	int code = 0;

	until.seen_ms = clock_mono_ms();
	if (proc_run_look(argv, -1, &(struct proc_look){goes_on, &until}, &out, &code, err) < 0) {
		if (!until.silent || err->code != ERR_CANCELED)
			return err_wrap(err, "sweeping %s", dir);
		err_clear(err);
		return err_set(err, ERR_TIMEOUT, "sweeping %s: no progress for %d s", dir,
		               SWEEP_SILENT_MS / 1000);
	}
	words = words_of(&out);
	if (code == WIRE_SWEEP_AGAIN)
		return err_set(err, ERR_BUSY,
		               "%s: what a dead runner had not sent is still being sent%s%.*s", dir,
		               words.n > 0 ? ": " : "", STR_ARG(words));
	if (code == WIRE_SWEEP_REFUSED) {
		words = last_line(words);
		memcpy(end->refused, words.p, words.n);
		end->refused[words.n] = '\0';
		if (words.n == 0)
			copy_cut(end->refused, sizeof(end->refused), "it did not say why");
		return 0;
	}
	if (code != 0)
		return err_set(err, ERR_IO, "cleaning up %s: exit code %d: %.*s", dir, code,
		               STR_ARG(words));
	return 0;
}

/* Our own, which says what this server understands; the runner's, where ours was replaced. */
static const char *sweeper_of(const struct engine_end *end, const struct runner_ref *r)
{
	return r->program == NULL || access(end->program, X_OK) == 0 ? end->program : r->program;
}

static int local_kill(struct engine *e, const char *ref, const char *name, struct engine_end *end,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *dir = path_of(e, a, name);
	struct runner_ref found;
	bool known = false;

	if (find_ref(a, ref, dir, &found, &known, err) < 0)
		return -1;
	if (known && proc_alive(&found.id) && (!found.claimed || runs_for(found.id.pid, dir))) {
		kill_runner(&found.id, end->cancel);
		if (atomic_load(end->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (proc_alive(&found.id))
			return err_set(err, ERR_TIMEOUT,
			               "runner %d cannot be killed: does its disk hang?",
			               (int)found.id.pid);
	}
	if (access(dir, F_OK) < 0)
		return 0; /* nothing left to sweep by */
	last_words(dir, end);
	return sweep(dir, sweeper_of(end, &found), end, err);
}

/* The runner looks into its start record when it cannot reach its server. */
static int local_address(struct engine *e, const char *name, const char *url, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(START_MAX), out = BUF_INIT(START_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	const char *kept = kept_start(e, a, name);
	const char *path = arena_printf(a, "%s/" ATTEMPT_START, path_of(e, a, name));
	struct wire_start start = {0};
	int r = fs_read(AT_FDCWD, kept, &text, err);

	if (r < 0 && err->code == ERR_NOT_FOUND) { /* it was started before there were two */
		err_clear(err);
		buf_clear(&text);
		kept = NULL;
		r = fs_read_strange(AT_FDCWD, path, &text, err);
	}
	if (r < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		return 0;
	}
	if (r == 0)
		r = wire_start_parse(&start, a, buf_view(&text), err);
	if (r == 0 && strcmp(start.server, url) != 0) {
		start.server = url;
		wire_start_write(&start, &out);
		r = fs_write_atomic(AT_FDCWD, path, buf_view(&out), 0600, err);
		if (r < 0 && err->code == ERR_NOT_FOUND) { /* its folder has gone */
			err_clear(err);
			r = 0;
		} else if (r == 0 && kept != NULL) {
			r = fs_write_atomic(AT_FDCWD, kept, buf_view(&out), 0600, err);
		}
	}
	seal_wipe_buf(&text);
	seal_wipe_buf(&out);
	return r;
}

static int local_release(struct engine *e, const char *name, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *kept = kept_start(e, a, name);

	if (fs_remove_tree(AT_FDCWD, path_of(e, a, name), err) < 0)
		return -1;
	return unlink(kept) < 0 && errno != ENOENT ? err_errno(err, errno, "%s", kept) : 0;
}

static int local_each(struct engine *e, void (*found)(void *arg, const char *dir), void *arg,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *path = path_of(e, a, ENGINE_DIRS);
	DIR *d = opendir(path);
	const struct dirent *entry;

	if (d == NULL)
		return err_errno(err, errno, "%s", path);
	for (size_t n = 0; n < ENGINE_EACH_MAX && (entry = readdir(d)) != NULL; n++) {
		if (entry->d_name[0] != '.')
			found(arg, arena_printf(a, ENGINE_DIRS "/%s", entry->d_name));
	}
	(void)closedir(d);
	return 0;
}

const struct engine_ops engine_local = {
	.name = "local",
	.open = local_open,
	.close = local_close,
	.launch = local_launch,
	.probe = local_probe,
	.kill = local_kill,
	.address = local_address,
	.release = local_release,
	.each = local_each,
};
