/*
 * sandbox_container.c - a container of a runner that gave up root: podman runs it as the job, in
 * the job's user namespace, and so do conmon and the runtime. Its root is a view of the image's
 * files (image_keeper.h) that sandbox-exec makes, with the job's mounts in it; podman's own files
 * are in the attempt's folder. What is true of bwrap's sandbox is true of it: its processes are in
 * the groups that root made for them, and are within the runner's reach.
 */
#include "run/sandbox.h"

#include "base/fs.h"
#include "run/gpu.h"
#include "run/sandbox_exec.h"

#define AT SANDBOX_EXEC_SCRATCH "/" SANDBOX_EXEC_PODMAN
#define PID_MAX ((size_t)64)
#define ARGS_MAX 96

/* podman, as an ordinary user of its own: nothing of the machine's podman is read or changed. */
static void add_podman(struct sandbox *s, struct sandbox_args *a, const char *podman)
{
	static const char *const fixed[] = {
		"--root",           AT "/root", "--runroot",        AT "/run",
		"--tmpdir",         AT "/tmp",  "--volumepath",     AT "/volumes",
		"--storage-driver", "vfs", /* it stores nothing */
		"--events-backend", "none",     "--cgroup-manager", "cgroupfs",
	};

	const char *conf = getenv("CONTAINERS_CONF");

	sandbox_args_put(a, "--clear-env");
	if (conf != NULL)
		sandbox_args_put2(a, "--env", arena_printf(s->a, "CONTAINERS_CONF=%s", conf));
	sandbox_args_put2(a, "--env", "HOME=" AT);
	sandbox_args_put2(a, "--env", "TMPDIR=" AT);
	sandbox_args_put2(a, "--env", "XDG_RUNTIME_DIR=" AT "/run");
	sandbox_args_put2(a, "--env", "_CONTAINERS_USERNS_CONFIGURED=done");
	sandbox_args_put2(a, "--", podman);
	for (size_t i = 0; i < COUNT(fixed); i++)
		sandbox_args_put(a, fixed[i]);
	sandbox_podman_runtime(a);
	sandbox_args_put2(a, "run", "--name");
	sandbox_args_put(a, s->spec->name);
}

static void add_run(struct sandbox *s, struct sandbox_args *a)
{
	sandbox_args_put2(a, "--pidfile", AT "/pid");
	sandbox_podman_fixed(a);
	sandbox_podman_devices(s, a);
	if (s->spec->image_path != NULL)
		sandbox_args_put2(a, "--env", arena_printf(s->a, "PATH=%s", s->spec->image_path));
	sandbox_args_put2(a, "--rootfs", SANDBOX_EXEC_SCRATCH "/root");
}

static const char *pid_file(const struct sandbox *s)
{
	return arena_printf(s->a, "%s/" ATTEMPT_UPPER "/" SANDBOX_EXEC_PODMAN "/pid", s->spec->dir);
}

static int container_start(struct sandbox *s, int level UNUSED, int in, int out, int err_fd,
                           int status, struct err *err)
{
	struct proc_fd fds[] = {{in, 0},
	                        {out, 1},
	                        {err_fd, 2},
	                        {status, 3},
	                        {out, 4},
	                        {err_fd, 5}, /* see script_watcher */
	                        {s->spec->image_root, SANDBOX_EXEC_IMAGE_FD}};
	char podman[4096];
	struct sandbox_args a;
	const char **front;
	size_t n = 0;

	if (proc_find("podman", podman) == NULL)
		return err_set(err, ERR_PODMAN_MISSING, "podman is not installed");
	if (unlink(pid_file(s)) < 0 && errno != ENOENT)
		return err_errno(err, errno, "the container's pid file");
	sandbox_args_begin(s, s->a, &a);
	sandbox_args_more(s->a, &a, ARGS_MAX + 2 * (size_t)GPU_NODES_MAX + 3 * s->spec->mounts->n);
	sandbox_args_put(&a, "--image");
	sandbox_args_put2(&a, "--scratch", arena_printf(s->a, "%s/" ATTEMPT_UPPER, s->spec->dir));
	for (size_t i = 0; i < s->spec->mounts->n; i++) {
		const struct mount *m = &s->spec->mounts->item[i];

		if (m->kind == MOUNT_RO || m->kind == MOUNT_RW) /* nothing of the host to hide */
			sandbox_args_put3(&a, sandbox_args_kind(m), m->from, m->at);
	}
	add_podman(s, &a, podman);
	add_run(s, &a);
	front = sandbox_args_end(&a, &n);
	if (sandbox_spawn(s, sandbox_init_argv(s->a, front, n), fds, COUNT(fds), err) < 0)
		return -1;
	sandbox_say(s,
	            arena_printf(s->a, "podman image %s userns pidns ipcns", s->spec->image_name));
	return 0;
}

/* The number is of our own pid namespace, in which conmon is too. */
static int container_find(struct sandbox *s, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(PID_MAX);
	uint64_t pid = 0;

	if (fs_read(AT_FDCWD, pid_file(s), &text, err) < 0 ||
	    str_u64(str_trim(buf_view(&text)), 2, INT_MAX, &pid, err) < 0)
		return err_wrap(err, "the container's process");
	s->init = s->shell = (pid_t)pid;
	return 0;
}

const struct sandbox_ops sandbox_container = {
	.name = "podman",
	.images = true,
	.has_mount_points = true,
	.start = container_start,
	.find = container_find,
	.enter = sandbox_args_enter,
};
