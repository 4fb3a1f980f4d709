/*
 * sandbox_bwrap.c - bubblewrap: the host's root with everything written there thrown away, in
 * namespaces of its own. Level 0 shows overlays that `runner --sandbox-exec` makes
 * (sandbox_exec.h); level 1, where the kernel gives none, the root read-only with empty folders
 * where the job's places need one: made by sandbox-exec for a runner that is root, by bwrap itself
 * for others, as it may be allowed to make a user namespace where we are not.
 *
 * The user is root inside: of a root runner by the user namespace of the job's ids (ids.h), else by
 * one that maps the runner's own id. No capability over the host comes with it. bwrap's arguments
 * travel by pipe (--args), as they can be many.
 */
#include "run/sandbox.h"

#include "base/fs.h"
#include "base/json.h"
#include "run/gpu.h"
#include "run/sandbox_exec.h"

#include <dirent.h>
#include <sys/sysmacros.h>

#define ARGS_MAX ((size_t)4 << 20)
#define INFO_MAX ((size_t)4096)
#define RUNG1_TMP ATTEMPT_UPPER "/tmp" /* beside what a rung 0 that failed may have left */
#define ENTRIES_MAX 256                /* of one folder that is shown entry by entry */

/* NUL-terminated arguments, one after the other. */
static void arg(struct buf *b, const char *text)
{
	buf_add(b, text, strlen(text) + 1);
}

static void arg2(struct buf *b, const char *x, const char *y)
{
	arg(b, x);
	arg(b, y);
}

static void arg3(struct buf *b, const char *x, const char *y, const char *z)
{
	arg2(b, x, y);
	arg(b, z);
}

static void add_user(struct buf *b, const struct ids *ids)
{
	if (ids->on) {
		arg2(b, "--userns2", "7"); /* SANDBOX_EXEC_USERNS_FD */
		return;
	}
	arg(b, "--unshare-user");
	arg2(b, "--uid", "0");
	arg2(b, "--gid", "0");
}

static void add_namespaces(struct buf *b, const struct ids *ids)
{
	static const char *const flags[] = {"--unshare-pid", "--unshare-ipc", "--unshare-uts",
	                                    "--die-with-parent", "--new-session"};
	/* enough to be root in a home of one's own: owners, modes, users of the namespace. Nothing
	 * that could undo a mount. */
	static const char *const caps[] = {"CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",
	                                   "CAP_FSETID", "CAP_SETUID",       "CAP_SETGID",
	                                   "CAP_KILL"};

	for (size_t i = 0; i < COUNT(flags); i++)
		arg(b, flags[i]);
	add_user(b, ids);
	arg2(b, "--seccomp", "8"); /* SANDBOX_EXEC_FILTER_FD */
	arg2(b, "--cap-drop", "ALL");
	for (size_t i = 0; i < COUNT(caps); i++)
		arg2(b, "--cap-add", caps[i]);
}

/* A resolver's file that lies in /run (systemd-resolved) would be hidden with it; NULL = it does
 * not. */
static const char *resolver(struct arena *a)
{
	AUTO_FREE char *real = realpath("/etc/resolv.conf", NULL);

	return real != NULL && strncmp(real, "/run/", 5) == 0 ? arena_cstr(a, real) : NULL;
}

static void add_devices(struct sandbox *s, struct buf *b)
{
	const char *node[GPU_NODES_MAX];
	size_t n = gpu_nodes(s->a, "", s->spec->gpus, s->spec->n_gpus, node);

	arg3(b, "--dev-bind-try", SANDBOX_FABRIC, SANDBOX_FABRIC);
	for (size_t i = 0; i < n; i++)
		arg3(b, "--dev-bind-try", node[i], node[i]);
}

static void add_mounts(struct buf *b, const struct mounts *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct mount *one = &m->item[i];

		switch (one->kind) {
		case MOUNT_RO:
			arg3(b, "--ro-bind", one->from, one->at);
			break;
		case MOUNT_RW:
			arg3(b, "--bind", one->from, one->at);
			break;
		case MOUNT_EMPTY:
			arg2(b, "--tmpfs", one->at);
			break;
		case MOUNT_NULL:
			arg3(b, "--ro-bind", "/dev/null", one->at);
			break;
		}
	}
}

/* Owner's rights are all that these ask for, and a runner that is root makes the job their owner:
 * what container engines hide and write-protect too. */
static void add_proc_masks(struct buf *b)
{
	static const char *const write_protected[] = {"/proc/bus", "/proc/fs", "/proc/irq",
	                                              "/proc/sys", "/proc/sysrq-trigger"};
	static const char *const hidden[] = {"/proc/kcore", "/proc/keys", "/proc/latency_stats",
	                                     "/proc/timer_list", "/proc/sched_debug"};
	static const char *const emptied[] = {"/proc/acpi", "/proc/scsi"};

	for (size_t i = 0; i < COUNT(write_protected); i++)
		arg3(b, "--ro-bind-try", write_protected[i], write_protected[i]);
	for (size_t i = 0; i < COUNT(hidden); i++) {
		if (access(hidden[i], F_OK) == 0)
			arg3(b, "--ro-bind", "/dev/null", hidden[i]);
	}
	for (size_t i = 0; i < COUNT(emptied); i++) {
		if (access(emptied[i], F_OK) == 0)
			arg2(b, "--tmpfs", emptied[i]);
	}
}

static void add_fresh(struct buf *b)
{
	arg2(b, "--proc", "/proc");
	arg2(b, "--dev", "/dev");
	arg3(b, "--ro-bind", "/sys", "/sys");
	add_proc_masks(b);
}

/* Without sandbox-exec: one entry of a folder as it is, read-only. */
static void show_one(struct sandbox *s, struct buf *b, const char *path)
{
	char *target = arena_alloc(s->a, FS_PATH_MAX);
	ssize_t n = readlink(path, target, FS_PATH_MAX - 1);

	if (n >= 0)
		arg3(b, "--symlink", target, path);
	else
		arg3(b, "--ro-bind-try", path, path);
}

/* A folder shown entry by entry, so that mount points can be made in it. */
static void show_entries(struct sandbox *s, struct buf *b, const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	arg2(b, "--tmpfs", dir);
	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL && n < ENTRIES_MAX;
	     e = readdir(d)) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		show_one(s, b, arena_printf(s->a, "%s/%s", dir, e->d_name));
		n++;
	}
	if (d != NULL)
		(void)closedir(d);
}

static bool is_fresh(const char *path)
{
	static const char *const fresh[] = {"/proc", "/sys",  "/dev", "/run",
	                                    "/tmp",  "/home", "/root"};

	for (size_t i = 0; i < COUNT(fresh); i++) {
		if (strcmp(fresh[i], path) == 0)
			return true;
	}
	return false;
}

/* The nearest folder of the host that holds this place; "" = "/" or one that is fresh anyway. */
static const char *nearest(struct sandbox *s, const char *place)
{
	char *cut = arena_cstr(s->a, place);

	while (access(cut, F_OK) < 0) {
		char *slash = strrchr(cut, '/');

		if (slash == NULL || slash == cut)
			return "";
		*slash = '\0';
	}
	return is_fresh(cut) ? "" : cut;
}

static void show_root(struct sandbox *s, struct buf *b)
{
	const struct mounts *m = s->spec->mounts;
	const char *shown[ENTRIES_MAX];
	DIR *d = opendir("/");
	size_t n = 0;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char *path = arena_printf(s->a, "/%s", e->d_name);

		if (e->d_name[0] != '.' && !is_fresh(path))
			show_one(s, b, path);
	}
	if (d != NULL)
		(void)closedir(d);
	arg2(b, "--dir", "/root");
	arg2(b, "--dir", "/home");
	for (size_t i = 0; i < m->n && n < ENTRIES_MAX; i++) {
		const char *give =
			access(m->item[i].at, F_OK) == 0 ? "" : nearest(s, m->item[i].at);
		bool again = give[0] == '\0';

		for (size_t k = 0; k < n; k++)
			again = again || strcmp(shown[k], give) == 0;
		if (again)
			continue;
		shown[n++] = give;
		show_entries(s, b, give);
	}
}

/* Does sandbox-exec make the view? */
static bool has_view(const struct sandbox *s, int level)
{
	return level == 0 || s->spec->ids.on;
}

static void bwrap_args(struct sandbox *s, int level, struct buf *b)
{
	const struct sandbox_spec *spec = s->spec;
	const char *dir = spec->dir, *dns = resolver(s->a);

	add_namespaces(b, &spec->ids);
	if (has_view(s, level)) {
		arg3(b, "--bind",
		     spec->ids.on ? SANDBOX_EXEC_SCRATCH "/root"
		                  : arena_printf(s->a, "%s/" ATTEMPT_UPPER "/root", dir),
		     "/");
		add_fresh(b);
		add_devices(s, b);
	} else {
		show_root(s, b);
		arg3(b, "--bind", arena_printf(s->a, "%s/" RUNG1_TMP, dir), "/tmp");
		add_fresh(b);
		arg2(b, "--tmpfs", "/run");
		if (dns != NULL)
			arg3(b, "--ro-bind", dns, dns);
		arg3(b, "--bind", arena_printf(s->a, "%s/" ATTEMPT_VARTMP, dir), "/var/tmp");
		add_devices(s, b);
		add_mounts(b, spec->mounts);
	}
	arg2(b, "--chdir", "/");
}

/* "runner --sandbox-exec ...", up to bwrap's own arguments. */
static const char **sandbox_exec_argv(struct sandbox *s, int level, const char *bwrap, size_t *n)
{
	const struct sandbox_spec *spec = s->spec;
	const char *dns = resolver(s->a);
	struct sandbox_args a;

	sandbox_args_begin(s, s->a, &a);
	sandbox_args_put(&a, "--filter-fd");
	if (has_view(s, level)) {
		sandbox_args_put2(&a, "--scratch",
		                  arena_printf(s->a, "%s/" ATTEMPT_UPPER, spec->dir));
		if (level > 0)
			sandbox_args_put(&a, "--ro-root");
		sandbox_args_put3(&a, "--rw", arena_printf(s->a, "%s/" ATTEMPT_VARTMP, spec->dir),
		                  "/var/tmp");
		if (dns != NULL)
			sandbox_args_put3(&a, "--share", dns, dns);
		sandbox_args_mounts(&a, spec->mounts);
	}
	sandbox_args_put(&a, "--");
	sandbox_args_put3(&a, bwrap, "--args", "4");
	sandbox_args_put3(&a, "--info-fd", "5", "--");
	return sandbox_args_end(&a, n);
}

static int make_tmp(struct sandbox *s, struct err *err)
{
	char *path = arena_printf(s->a, "%s/" RUNG1_TMP, s->spec->dir);

	if (fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
		return -1;
	return chmod(path, 01777) < 0 ? err_errno(err, errno, "%s", path) : 0;
}

static int bwrap_start(struct sandbox *s, int level, int in, int out, int err_fd, int status,
                       struct err *err)
{
	AUTO_BUF struct buf args = BUF_INIT(ARGS_MAX);
	char found[4096];
	int args_pipe[2] = {-1, -1}, info_pipe[2] = {-1, -1};
	const char **front = NULL;
	size_t n = 0;
	int r = 0;

	if (proc_find("bwrap", found) == NULL)
		return err_set(err, ERR_NOT_FOUND,
		               "bwrap is not installed (apt install bubblewrap)");
	if (!has_view(s, level) && make_tmp(s, err) < 0)
		return -1;
	bwrap_args(s, level, &args);
	if (buf_check(&args, "bwrap's arguments", err) < 0)
		return -1;
	if (pipe2(args_pipe, O_CLOEXEC) < 0)
		return err_errno(err, errno, "pipe");
	if (pipe2(info_pipe, O_CLOEXEC) < 0) {
		r = err_errno(err, errno, "pipe");
	} else {
		struct proc_fd fds[] = {{in, 0},     {out, 1},          {err_fd, 2},
		                        {status, 3}, {args_pipe[0], 4}, {info_pipe[1], 5}};

		front = sandbox_exec_argv(s, level, found, &n);
		r = sandbox_spawn(s, sandbox_init_argv(s->a, front, n), fds, COUNT(fds), err);
		(void)close(info_pipe[1]);
		s->info_fd = info_pipe[0];
	}
	(void)close(args_pipe[0]);
	if (r == 0) {
		struct err gone = {0};

		/* should it fail, bwrap has ended: its stderr says why */
		if (fs_write_all(args_pipe[1], args.p, args.n, &gone) < 0)
			args.full = true;
		sandbox_say(s, level == 0 ? "bwrap overlay userns pidns ipcns seccomp"
		                          : "bwrap ro-root userns pidns ipcns seccomp");
	}
	(void)close(args_pipe[1]);
	return r;
}

/* The first child of a process; 0 = none. */
static pid_t child_of(pid_t pid)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	char path[64];
	struct str rest, word;
	uint64_t child = 0;
	struct err err = {0};

	FMT(path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (fs_read(AT_FDCWD, path, &body, &err) < 0)
		return 0;
	rest = str_trim(buf_view(&body));
	if (!str_cut(&rest, ' ', &word) || str_u64(word, 1, INT_MAX, &child, &err) < 0)
		return 0;
	return (pid_t)child;
}

/* bwrap's own init is its child-pid; the shell that leads the commands is that one's child. */
static int bwrap_find(struct sandbox *s, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf info = BUF_INIT(INFO_MAX);
	const struct doc *d = NULL;
	int64_t pid = 0;

	for (;;) {
		char *room = buf_room(&info, 512);
		ssize_t n = room == NULL ? 0 : read(s->info_fd, room, 512);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		info.n += (size_t)n;
	}
	if (js_parse(a, buf_view(&info), &d, err) < 0)
		return err_wrap(err, "bwrap's info message");
	pid = doc_int(doc_get(d, "child-pid"), 0);
	if (pid <= 0 || pid > INT_MAX)
		return err_set(err, ERR_UNSUPPORTED, "bwrap did not report its child's pid");
	s->init = (pid_t)pid;
	s->shell = child_of(s->init);
	if (s->shell == 0)
		return err_set(err, ERR_UNAVAILABLE, "the sandbox exited before its shell started");
	return 0;
}

const struct sandbox_ops sandbox_bwrap = {
	.name = "bwrap",
	.host = true,
	.has_mount_points = true,
	.start = bwrap_start,
	.find = bwrap_find,
	.enter = sandbox_args_enter,
};
