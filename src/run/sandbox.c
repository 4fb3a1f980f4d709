/* sandbox.c - starting one, the init's script and reports; see sandbox.h. */
#include "run/sandbox.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"
#include "run/sandbox_exec.h"
#include "run/env.h"

#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PIPE_BYTES (1 << 20) /* fewer switches when a job prints a lot */
#define KILL_MS 10000
#define SWEEP_PODMAN_MS 20000 /* a sweep has 60 s (engine_local.c), and more to do */
#define LINGER_MS 5000
#define STAT_MAX ((size_t)4096)
#define NOTE_MAX ((size_t)4096)

const struct sandbox_kind sandbox_kinds[SANDBOX_KINDS] = {
	{"bwrap-overlay", "bwrap", &sandbox_bwrap, 0},
	{"bwrap-ro-root", "bwrap", &sandbox_bwrap, 1},
	{"podman", "podman", &sandbox_podman, 0},
	{"plain", "plain", &sandbox_plain, 0},
};

/* bash where there is one, under its own name: what it says of the job's commands must not look
 * like what the platform says. */
#define SHELL                                                                                      \
	"if command -v bash >/dev/null 2>&1; then exec bash -c \"$1\" bash; fi; exec sh -c "       \
	"\"$1\" sh"
/* The init waits for the shell of the commands, whichever way that ends: an `exec` in a command, or
 * an `exit`, leaves nothing of it that could say so. Signals to the whole process group are for
 * that one alone. Then it waits to be let go, or for the end of the runner. What it would say of a
 * shell that was killed is not the job's output. */
#define INIT                                                                                       \
	"trap : HUP INT QUIT PIPE ALRM TERM USR1 USR2; exec 6>&2 2>/dev/null; "                    \
	"(exec 2>&6 6>&-; " SHELL "); stoker_code=$?; "                                            \
	"printf 'end %d\\n' $stoker_code >&3; read -r stoker_end; exit $stoker_code"
/* Reads the script's length, then the script: stdin stays open behind it. The script's last word is
 * what to do next, see script_commands(). */
#define INIT_BODY                                                                                  \
	"printf 'ready\\n' >&3; read -r n && s=$(head -c \"$n\") && eval \"$s\" && eval \"$s\""

static const char **shell_argv(struct arena *a, const char **front, size_t n_front,
                               const char *text, const char *body)
{
	const char *const init[] = {"/bin/sh", "-c", text, "sh", body};
	const char **argv = ARENA_ARRAY(a, const char *, n_front + COUNT(init) + 1);

	memcpy(argv, front, n_front * sizeof(*argv));
	memcpy(argv + n_front, init, sizeof(init));
	return argv;
}

const char **sandbox_shell_argv(struct arena *a, const char **front, size_t n_front,
                                const char *body)
{
	return shell_argv(a, front, n_front, SHELL, body);
}

const char **sandbox_init_argv(struct arena *a, const char **front, size_t n_front)
{
	return shell_argv(a, front, n_front, INIT, INIT_BODY);
}

int sandbox_own(const struct sandbox *s, int fd, struct err *err)
{
	const struct ids *ids = &s->spec->ids;

	if (ids->on && fchown(fd, ids->job, ids->job) < 0)
		return err_errno(err, errno, "create a pipe to the job");
	return 0;
}

size_t sandbox_fds(const struct sandbox *s, const struct proc_fd *fds, size_t n,
                   struct proc_fd out[PROC_FDS_MAX])
{
	memcpy(out, fds, n * sizeof(fds[0]));
	for (size_t i = 0; s->made != NULL && i < s->made->n_procs; i++) {
		assert(n < PROC_FDS_MAX);
		out[n++] = (struct proc_fd){s->made->procs[i], SANDBOX_EXEC_CGROUP_FD - (int)i};
	}
	return n;
}

int sandbox_spawn(struct sandbox *s, const char *const *argv, const struct proc_fd *fds, size_t n,
                  struct err *err)
{
	struct proc_fd all[PROC_FDS_MAX];
	struct proc_spec spec = {.argv = argv,
	                         .envp = env_of_sandbox(s->a),
	                         .cwd = "/",
	                         .fds = all,
	                         .n_fds = sandbox_fds(s, fds, n, all),
	                         .new_session = true,
	                         .die_with_parent = true,
	                         .umask_bits = 022};

	return proc_spawn(&spec, &s->proc, err);
}

static void close_fd(int *fd)
{
	close_fd_p(fd);
	*fd = -1;
}

static void forget(struct sandbox *s)
{
	int *all[] = {&s->in_fd,   &s->status_fd, &s->out_fd,   &s->err_fd,
	              &s->info_fd, &s->init_fd,   &s->shell_fd, &s->proc.pidfd};

	for (size_t i = 0; i < COUNT(all); i++)
		close_fd(all[i]);
	s->init = s->shell = s->group = 0;
	s->proc.pid = 0;
	buf_clear(&s->status);
}

static void take_line(struct sandbox *s, struct str line, bool *ready)
{
	struct str word;
	uint64_t n = 0;
	struct err err = {0};

	(void)str_cut(&line, ' ', &word);
	if (str_eq(word, "ready"))
		*ready = true;
	else if (str_eq(word, "run") && str_u64(line, 0, INT_MAX, &n, &err) == 0)
		s->command = (int)n;
	else if (str_eq(word, "code") && str_u64(line, 0, 255, &n, &err) == 0)
		s->said = (int)n;
	else if (str_eq(word, "end") && str_u64(line, 0, 255, &n, &err) == 0) {
		s->ended = true;
		s->code = s->said >= 0 ? s->said : (int)n;
	}
}

/* One read of the status pipe; false at its end. */
static bool read_status(struct sandbox *s, bool *ready)
{
	char *room = buf_room(&s->status, 256);
	ssize_t n = room == NULL ? 0 : read(s->status_fd, room, 256);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	s->status.n += (size_t)n;
	for (const char *nl;
	     s->status.n > 0 && (nl = memchr(s->status.p, '\n', s->status.n)) != NULL;) {
		take_line(s, str_n(s->status.p, (size_t)(nl - s->status.p)), ready);
		buf_drop(&s->status, (size_t)(nl - s->status.p) + 1);
	}
	return true;
}

void sandbox_poll(struct sandbox *s)
{
	struct pollfd p = {.fd = s->status_fd, .events = POLLIN};
	bool ready = false;

	while (s->status_fd >= 0 && poll(&p, 1, 0) > 0) {
		if (!read_status(s, &ready))
			close_fd(&s->status_fd);
	}
}

/* stderr of a start that failed; later it is the job's own. */
static void read_note(struct sandbox *s, struct buf *note)
{
	char chunk[512];
	ssize_t n = read(s->err_fd, chunk, sizeof(chunk));

	if (n > 0)
		buf_add(note, chunk, (size_t)n);
}

static int wait_ready(struct sandbox *s, struct buf *note, struct err *err)
{
	int64_t until = clock_mono_ms() + SANDBOX_READY_MS;
	bool ready = false;

	for (;;) {
		struct pollfd p[] = {{.fd = s->status_fd, .events = POLLIN},
		                     {.fd = s->err_fd, .events = POLLIN},
		                     {.fd = s->proc.pidfd, .events = POLLIN}};
		int64_t left = until - clock_mono_ms();

		if (left <= 0)
			return err_set(err, ERR_TIMEOUT, "not ready within %d s",
			               SANDBOX_READY_MS / 1000);
		if (poll(p, COUNT(p), s->ended ? 0 : (int)left) < 0 && errno != EINTR)
			return err_errno(err, errno, "poll");
		if (p[1].revents & POLLIN)
			read_note(s, note);
		if (p[0].revents != 0 && !read_status(s, &ready) && p[2].revents == 0)
			continue; /* it closed the pipe: it is about to end */
		if (ready)
			return 0;
		if ((s->ended || p[2].revents != 0) && (p[1].revents & POLLIN) == 0)
			return err_set(err, ERR_UNAVAILABLE, "ended before it was ready");
	}
}

struct ends {
	int in[2], out[2], err[2], status[2];
};

static void ends_done(struct ends *e)
{
	int *all[] = {e->in, e->out, e->err, e->status};

	for (size_t i = 0; i < COUNT(all); i++) {
		close_fd_p(&all[i][0]);
		close_fd_p(&all[i][1]);
	}
}

static int make_ends(struct ends *e, struct err *err)
{
	int *all[] = {e->in, e->out, e->err, e->status};

	for (size_t i = 0; i < COUNT(all); i++) {
		if (pipe2(all[i], O_CLOEXEC) < 0)
			return err_errno(err, errno, "pipe");
	}
	(void)fcntl(e->out[1], F_SETPIPE_SZ, PIPE_BYTES); /* over the user's quota: stays small */
	(void)fcntl(e->err[1], F_SETPIPE_SZ, PIPE_BYTES);
	return 0;
}

/* Programs open /dev/stdout and its like by their names, which asks for the owner. */
static int own_ends(const struct sandbox *s, struct ends *e, struct err *err)
{
	int all[] = {e->in[0], e->out[0], e->err[0], e->status[0]};

	for (size_t i = 0; i < COUNT(all); i++) {
		if (sandbox_own(s, all[i], err) < 0)
			return -1;
	}
	return 0;
}

uint64_t sandbox_shm_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

const char *sandbox_memlock(const struct sandbox *s, struct arena *a)
{
	struct rlimit own = {0, 0};
	char size[UNITS_CAP];

	(void)getrlimit(RLIMIT_MEMLOCK, &own);
	if (own.rlim_max == RLIM_INFINITY ||
	    (geteuid() == 0 && (s->spec->confined == NULL || !s->spec->confined->on) &&
	     prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1))
		return "unlimited";
	return arena_cstr(a, units_show_memory(own.rlim_max, size));
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *sandbox_disk_words(const struct sandbox *s)
{
	return s->spec->volume_limited ? "disk=quota(volume),watched" : "disk=watched";
}

void sandbox_say_limits(const struct sandbox *s, struct buf *has, struct buf *lacks)
{
	const struct cgroup *g = &s->cgroup;
	uint64_t data = sandbox_data_limit(s);
	char memory[UNITS_CAP];

	if (g->memory)
		buf_printf(has, " mem=%s(cgroup v%d)",
		           units_show_memory(s->spec->limits.memory_bytes, memory), g->v2 ? 2 : 1);
	else if (data > 0)
		buf_printf(has, " mem=%s/process(rlimit)", units_show_memory(data, memory));
	if (!g->memory)
		buf_puts(lacks, data > 0 ? " memory(of all processes)" : " memory");
	if (g->cpu)
		buf_printf(has, " cpu=%.4g", s->spec->limits.cpu_milli / 1000.0);
	else
		buf_puts(lacks, " cpu");
	if (s->spec->n_cores > 0)
		buf_printf(has, " cores=%u", s->spec->n_cores);
	if (!g->pids && sandbox_process_limit(s) > 0)
		buf_printf(has, " pids=%" PRIu64 "(rlimit)", sandbox_process_limit(s));
	else if (!g->pids)
		buf_puts(lacks, " pids");
}

void sandbox_say(struct sandbox *s, const char *what)
{
	AUTO_BUF struct buf b = BUF_INIT(sizeof(s->says) - 1), not = BUF_INIT(500);
	char shm[UNITS_CAP];

	buf_printf(&b, "sandbox: %s ro-weights net=host", what);
	sandbox_say_limits(s, &b, &not );
	buf_printf(&b, " gpus=%zu shm=%s memlock=%s %s", s->spec->n_gpus,
	           units_show_memory(sandbox_shm_bytes(), shm), sandbox_memlock(s, s->a),
	           sandbox_disk_words(s));
	buf_puts(&not, " network");
	buf_printf(&b, "; not enforced:%s", buf_cstr(&not ));
	copy_cut(s->says, sizeof(s->says), buf_cstr(&b));
}

/* True: it is gone. */
static bool kill_proc(struct proc *p, int *code)
{
	int status = 0;
	struct err err = {0};

	(void)pidfd_send_signal(p->pidfd, SIGKILL, NULL, 0);
	if (proc_wait(p, KILL_MS, &status, &err) != 0)
		return false;
	*code = code_of(status);
	return true;
}

static bool end_child(struct sandbox *s)
{
	bool gone = s->proc.pid <= 0 || kill_proc(&s->proc, &s->raw);

	s->proc.pid = 0;
	return gone;
}

static void first_line(struct buf *note, const struct err *why, char out[200])
{
	struct str text = str_trim(buf_view(note)), line = {0};

	/* the last line says it best: helpers warn first */
	while (str_cut(&text, '\n', &line))
		;
	if (line.n > 0)
		fmt_fixed(out, 200, "%.*s", (int)MIN(line.n, 199U), line.p);
	else
		copy_cut(out, 200, why->msg);
}

/* It is up: finds the process to end, and reads the messages of sandbox-exec. */
static int found(struct sandbox *s, struct buf *note)
{
	const char *why = NULL;

	s->init_fd = pidfd_open(s->init, 0);
	s->shell_fd = pidfd_open(s->shell, 0);
	s->group = getpgid(s->shell);
	if (s->group == getpgrp())
		s->group = s->shell; /* never our own */
	why = note->n > 0 ? strstr(buf_cstr(note), SANDBOX_EXEC_MEMORY) : NULL;
	if (why != NULL) {
		why += strlen(SANDBOX_EXEC_MEMORY);
		(void)snprintf(s->notes, sizeof(s->notes),
		               "what the job writes outside its folders goes to memory, because "
		               "the data folder's file system takes no overlay: %.*s",
		               (int)strcspn(why, "\n"), why);
	}
	return 0;
}

/* Whatever it fails for, the job does not run: there is no second try with another kind. */
static int start_once(struct sandbox *s, const struct sandbox_kind *kind, struct err *err)
{
	const struct sandbox_ops *ops = s->spec->image_root > 0 ? &sandbox_container : kind->ops;
	struct ends e CLEANUP(ends_done) = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	AUTO_BUF struct buf note = BUF_INIT(NOTE_MAX);
	struct err first = {0};
	char why[200];

	s->ops = ops;
	if (make_ends(&e, err) < 0 || own_ends(s, &e, err) < 0)
		return -1;
	s->in_fd = TAKE_FD(e.in[1]);
	s->out_fd = TAKE_FD(e.out[0]);
	s->err_fd = TAKE_FD(e.err[0]);
	s->status_fd = TAKE_FD(e.status[0]);
	(void)fcntl(s->status_fd, F_SETFL, O_NONBLOCK);
	if (ops->start(s, kind->level, e.in[0], e.out[1], e.err[1], e.status[1], &first) == 0) {
		ends_done(&e);
		e = (struct ends){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
		s->init = s->shell = s->proc.pid;
		if (wait_ready(s, &note, &first) == 0 &&
		    (ops->find == NULL || ops->find(s, &first) == 0))
			return found(s, &note);
		(void)end_child(s); /* what is left of it is in the cgroup */
		if (ops->clean != NULL)
			ops->clean(s);
	}
	first_line(&note, &first, why);
	return err_set(err, ERR_SANDBOX_FAILED, "the %s sandbox cannot start: %s", kind->name, why);
}

/* The one kind for this job, or none. */
static const struct sandbox_kind *kind_of(const struct sandbox_spec *spec, struct err *err)
{
	const char *name = spec->image != NULL ? sandbox_podman.name : spec->kind;
	const struct sandbox_kind *k = NULL;

	for (size_t i = 0; i < SANDBOX_KINDS && k == NULL; i++)
		k = strcmp(sandbox_kinds[i].name, name) == 0 ? &sandbox_kinds[i] : NULL;
	if (k == NULL || (spec->image == NULL && !k->ops->host)) {
		(void)err_set(err, ERR_SANDBOX_UNAVAILABLE,
		              "the sandbox \"%s\" cannot run a job without an image", name);
		return NULL;
	}
	if (spec->need_mount_points && !k->ops->has_mount_points) {
		(void)err_set(err, ERR_SANDBOX_CANNOT_MOUNT,
		              "the %s sandbox cannot mount weights at their mount_location: "
		              "install bubblewrap (apt install bubblewrap), allow user namespaces, "
		              "and start the server again",
		              k->name);
		return NULL;
	}
	return k;
}

int sandbox_start(struct sandbox **out, const struct sandbox_spec *spec, struct err *err)
{
	const struct sandbox_kind *kind = kind_of(spec, err);
	struct sandbox *s = NULL;

	if (kind == NULL)
		return -1;
	s = xcalloc(1, sizeof(*s));
	s->spec = spec;
	s->a = arena_new();
	s->in_fd = s->status_fd = s->out_fd = s->err_fd = s->info_fd = -1;
	s->init_fd = s->shell_fd = -1;
	s->proc.pidfd = -1;
	s->command = s->said = -1;
	s->status = (struct buf)BUF_INIT(4096);
	s->made = confined_group(spec->confined, spec->name);
	if (s->made != NULL)
		s->cgroup = s->made->group;
	else
		cgroup_make(&s->cgroup, spec->name, &spec->limits);
	if (cgroup_save(&s->cgroup, arena_printf(s->a, "%s/" SANDBOX_CGROUPS, spec->dir), err) <
	            0 ||
	    start_once(s, kind, err) < 0) {
		sandbox_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

/* A killed runner closes stdin, and nothing else would end a container then: a watcher waits for
 * that. It is nobody's child in there, so that a `wait` of the job does not wait for it. A
 * container that ended by itself would take its memory counters along, so its init waits to be
 * killed.
 *
 * The job writes straight into our pipes, which are passed as 4 and 5: output that goes through
 * podman's own may still be under way at the end, and would be lost with the container. */
static void script_watcher(struct buf *out)
{
	buf_puts(out, "exec >&4 2>&5 4<&0 5>&-\n( (trap '' TERM INT HUP; cat <&4 >/dev/null; kill "
	              "-KILL -1) "
	              ">/dev/null 2>&1 3>&- & )\n");
}

/* The content of an image's own working directory comes along into the workspace, where the code
 * wins. The cp of busybox leaves a folder that is there alone when it is told -n, whatever it
 * lacks: so what is not there at all is copied by name. */
static void script_content(const char *workdir, struct buf *out)
{
	buf_puts(out, "if [ \"$PWD\" != / ] && [ \"$PWD\" != ");
	buf_shell(out, workdir);
	buf_puts(out, " ]; then s=");
	buf_shell(out, workdir);
	buf_puts(out,
	         "; for n in \"$PWD\"/* \"$PWD\"/.[!.]*; do if [ ! -e \"$s/${n##*/}\" ]; then cp "
	         "-R \"$n\" \"$s/\"; fi; done 2>/dev/null; cp -R -n \"$PWD/.\" \"$s/\" "
	         "2>/dev/null; fi\n");
}

/* podman starts in it where it knows the image, and makes it. */
static void script_image_workdir(const struct sandbox_spec *spec, struct buf *out)
{
	if (spec->image_root == 0 || spec->image_workdir == NULL)
		return;
	buf_puts(out, "s=");
	buf_shell(out, spec->image_workdir);
	buf_puts(out, "; cd \"$s\" 2>/dev/null || { mkdir -p \"$s\" && cd \"$s\"; } 2>/dev/null\n");
}

/* The folder of old Hugging Face clients is a link, made by the job itself: what lies at its end,
 * other jobs may have put there. */
static void script_link(const struct sandbox_link *link, struct buf *out)
{
	buf_puts(out, "(umask 022; l=");
	buf_shell(out, link->at);
	buf_puts(out, "; t=");
	buf_shell(out, link->to);
	buf_puts(out, "; mkdir -p \"${l%/*}\" \"${l%/*}/$t\"; [ -L \"$l\" ] || { rm -rf \"$l\"; "
	              "ln -s \"$t\" \"$l\"; }) 2>/dev/null || :\n");
}

/* The commands, as words; what runs them is one line, and bash counts the lines of what is run by
 * eval from that one's: so what it says of a command names the line in that command. */
static void script_commands(const struct sandbox_script *what, const char *hidden, struct buf *out)
{
	AUTO_BUF struct buf line = BUF_INIT(SANDBOX_SCRIPT_MAX);

	for (size_t i = 0; i < what->n_commands; i++) {
		buf_printf(out, "stoker_%zu=", i);
		buf_shell(out, what->commands[i]);
		buf_putc(out, '\n');
	}
	/* The command that runs gets the signal itself and may clean up; what would follow it does
	 * not start. Its exit code is kept, unless it is 0: it did not come to its end. */
	buf_puts(&line, "unset n s; trap 'stoker_code=$?; [ $stoker_code -ne 0 ] || "
	                "stoker_code=143; exit $stoker_code' TERM INT; ");
	/* A trap of the job's at EXIT changes nothing about the code of its commands. When nobody
	 * reads what the shell reports, the runner is gone, and no further command starts. */
	for (size_t i = 0; i < what->n_commands; i++)
		buf_printf(&line,
		           "printf 'run %zu\\n' >&3 || exit 1; eval \"$stoker_%zu\"%s; "
		           "stoker_code=$?; if [ $stoker_code -ne 0 ]; then "
		           "printf 'code %%d\\n' $stoker_code >&3; exit $stoker_code; fi; ",
		           i, i, hidden);
	buf_puts(&line, "printf 'code 0\\n' >&3; exit 0");
	buf_puts(out, "s=");
	buf_shell(out, buf_cstr(&line));
	/* busybox's sh counts from 0; dash counts from the innermost eval */
	buf_puts(out, "\n[ -n \"$BASH_VERSION\" ] || s='\n'$s\n");
	out->full = out->full || line.full;
}

void sandbox_script(struct sandbox *s, const struct sandbox_script *what, struct buf *out)
{
	bool image = s->ops->images;

	if (image)
		script_watcher(out);
	buf_puts(out, "exec </dev/null\n");
	script_image_workdir(s->spec, out);
	if (image && what->workdir != NULL)
		script_content(what->workdir, out);
	if (!image)
		env_forget(out);
	env_script(what->env, what->n_env, out);
	if (what->link.at != NULL)
		script_link(&what->link, out);
	if (what->workdir != NULL) {
		buf_puts(out, "cd ");
		buf_shell(out, what->workdir);
		buf_puts(out, " || exit 1\n");
	}
	script_commands(what, image ? " 3>&- 4<&-" : " 3>&-", out);
}

int sandbox_go(struct sandbox *s, struct str script, struct err *err)
{
	char head[32];

	FMT(head, "%zu\n", script.n);
	if (fs_write_all(s->in_fd, head, strlen(head), err) < 0 ||
	    fs_write_all(s->in_fd, script.p, script.n, err) < 0)
		return err_wrap(err, "starting the commands");
	return 0;
}

void sandbox_let_go(struct sandbox *s)
{
	struct err gone = {0};

	if (!s->ended || s->let_go || s->ops->images)
		return;
	s->let_go = true;
	if (fs_write_all(s->in_fd, "\n", 1, &gone) < 0)
		log_debug("sandbox: its shell is gone already: %s", gone.msg);
}

/* proc(5): the state of a process, 0 = it is gone; by the last field of its stat, how it ended. */
static char state_of(pid_t pid, int *status)
{
	AUTO_BUF struct buf text = BUF_INIT(STAT_MAX);
	struct err no = {0};
	struct str rest, word = {0};
	const char *after = NULL;
	char path[40], state = 0;
	uint64_t n = 0;

	FMT(path, "/proc/%d/stat", (int)pid);
	if (fs_read(AT_FDCWD, path, &text, &no) == 0 && text.n > 0)
		after = memrchr(text.p, ')', text.n); /* its name may hold anything */
	if (after == NULL)
		return 0;
	rest = str_trim(str_skip(buf_view(&text), (size_t)(after - text.p) + 1));
	for (int field = 3; field <= 52 && str_cut(&rest, ' ', &word); field++) {
		if (field == 3)
			state = *word.p;
	}
	*status = str_u64(word, 0, INT_MAX, &n, &no) < 0 ? SIGKILL : (int)n;
	return state;
}

/* How a process ended that nobody has waited for yet. */
static int zombie_code(pid_t pid)
{
	int status = 0;

	/* else it was waited for, and this is another one */
	return state_of(pid, &status) == 'Z' ? code_of(status) : 128 + SIGKILL;
}

/* The init is no process of the job, but within its reach: stopped, it would not see the end of the
 * commands. */
static void wake_init(struct sandbox *s)
{
	int status = 0;

	if (s->shell_fd >= 0 && state_of(s->shell, &status) == 'T')
		(void)pidfd_send_signal(s->shell_fd, SIGCONT, NULL, 0);
}

/* The commands' shell has ended, and so should all that was made for it. What keeps it up can only
 * be the job itself, say with a debugger. */
static bool shell_left(struct sandbox *s)
{
	struct pollfd p = {.fd = s->shell_fd, .events = POLLIN};

	if (s->shell_fd < 0 || s->shell == s->proc.pid || poll(&p, 1, 0) <= 0)
		return false;
	if (s->gone_ms == 0)
		s->gone_ms = clock_mono_ms();
	return clock_mono_ms() - s->gone_ms > LINGER_MS;
}

bool sandbox_ended(struct sandbox *s, int *code)
{
	int status = 0;
	struct err err = {0};

	if (s->ops->images && s->ended) { /* it lingers, see script_watcher */
		*code = s->code;
		return true;
	}
	if (s->proc.pid > 0) {
		if (proc_wait(&s->proc, 0, &status, &err) == 0) {
			s->proc.pid = 0;
			s->raw = code_of(status);
		} else if (shell_left(s)) {
			*code = s->ended ? s->code : zombie_code(s->shell);
			return true;
		} else {
			wake_init(s);
			return false;
		}
	}
	*code = s->raw;
	return true;
}

void sandbox_signal(struct sandbox *s, int sig)
{
	if (s->group > 0)
		(void)kill(-s->group, sig); /* gone meanwhile is fine */
}

static bool wait_fd(int fd, int64_t limit_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return fd < 0 || poll(&p, 1, (int)limit_ms) > 0;
}

bool sandbox_kill(struct sandbox *s)
{
	bool empty = true;

	if (!s->killed) {
		s->oom_kills = cgroup_oom_kills(&s->cgroup);
		s->peak = cgroup_peak(&s->cgroup);
	}
	if (s->init_fd >= 0) /* init of a pid namespace: the kernel kills all in it */
		(void)pidfd_send_signal(s->init_fd, SIGKILL, NULL, 0);
	if (s->group > 0)
		(void)kill(-s->group, SIGKILL); /* plain: at least its group */
	if (s->init_fd >= 0 && !wait_fd(s->init_fd, KILL_MS))
		empty = false;
	empty = end_child(s) && empty;
	if (s->ops != NULL && s->ops->clean != NULL)
		s->ops->clean(s);
	if (cgroup_tracks(&s->cgroup))
		empty = cgroup_kill(&s->cgroup, KILL_MS) && empty;
	s->killed = true;
	return empty && !s->clean_failed;
}

void sandbox_close(struct sandbox *s)
{
	if (s == NULL)
		return;
	if (!s->killed)
		(void)sandbox_kill(s);
	if (s->made == NULL) /* else root made them, and the sweep removes them */
		cgroup_remove(&s->cgroup);
	forget(s);
	buf_done(&s->status);
	arena_free(s->a);
	free(s);
}

int sandbox_sweep_groups(const char *name, const char *file, struct err *err)
{
	struct cgroup g;

	cgroup_adopt(&g, name, file);
	if (!cgroup_tracks(&g))
		return 0;
	if (!cgroup_kill(&g, KILL_MS))
		return err_set(err, ERR_TIMEOUT, "processes of %s cannot be killed", name);
	cgroup_remove(&g);
	return 0;
}

int sandbox_sweep(const char *name, const char *dir, struct err *err)
{
	AUTO_FREE char *container = xasprintf("%s/" SANDBOX_CONTAINER, dir);
	AUTO_FREE char *groups = xasprintf("%s/" SANDBOX_CGROUPS, dir);

	if (sandbox_sweep_groups(name, groups, err) < 0)
		return -1;
	return access(container, F_OK) == 0 ? sandbox_sweep_podman(name, SWEEP_PODMAN_MS, err) : 0;
}
