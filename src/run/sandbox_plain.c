/*
 * sandbox_plain.c - a process group on the host as it is, for machines where neither bubblewrap nor
 * podman works, or that want it so. The job sees the host's files. What it started is found by its
 * cgroup, else by its process group.
 *
 * If the runner is root, the job has a user id and a mount namespace of its own, and sees its
 * folders below IDS_STAGE; else it runs as the runner's user, and sees them at their own paths.
 */
#include "run/sandbox.h"

#include <signal.h>

static void say(struct sandbox *s)
{
	AUTO_BUF struct buf b = BUF_INIT(sizeof(s->says) - 1), not = BUF_INIT(500);
	bool ids = s->spec->ids.on;

	buf_printf(&b, "sandbox: plain process group seccomp%s", ids ? " own-id" : "");
	sandbox_say_limits(s, &b, &not );
	buf_printf(&b,
	           " gpus=%zu disk=watched; not enforced:%s network processes files(world-readable"
	           "%s)%s; folders are where the BT_* variables point",
	           s->spec->n_gpus, buf_cstr(&not ), ids ? "" : ", the server's user's",
	           cgroup_tracks(&s->cgroup) ? "" : " ending(processes that leave their session)");
	copy_cut(s->says, sizeof(s->says), buf_cstr(&b));
}

static int plain_start(struct sandbox *s, int level UNUSED, int in, int out, int err_fd, int status,
                       struct err *err)
{
	struct proc_fd fds[] = {{in, 0}, {out, 1}, {err_fd, 2}, {status, 3}};
	bool ids = s->spec->ids.on;
	const char **front = NULL;
	struct sandbox_args a;
	size_t n = 0;

	sandbox_args_begin(s, s->a, &a);
	sandbox_args_put2(&a, "--clear-env", "--filter");
	if (ids) {
		sandbox_args_put3(&a, "--become", "--stage", IDS_STAGE);
		sandbox_args_mounts(&a, s->spec->mounts);
	}
	sandbox_args_put(&a, "--");
	front = sandbox_args_end(&a, &n);
	if (sandbox_spawn(s, sandbox_init_argv(s->a, front, n), fds, COUNT(fds), err) < 0)
		return -1;
	say(s);
	return 0;
}

const struct sandbox_ops sandbox_plain = {
	.name = "plain",
	.host = true,
	.start = plain_start,
	.enter = sandbox_args_enter,
};
