/*
 * sandbox_plain.c - a process group on the host as it is, for machines where neither bubblewrap nor
 * podman works, or that want it so. The job sees the host's files. What it started is found by its
 * cgroup, else by its process group.
 *
 * Of a runner that is root it has an id of its own and sees its folders below IDS_STAGE, in a mount
 * namespace of its own; else it runs as the runner's user, and its folders are where they are.
 */
#include "run/sandbox.h"

#include <signal.h>

static int plain_start(struct sandbox *s, int level UNUSED, int in, int out, int err_fd, int status,
                       struct err *err)
{
	struct proc_fd fds[] = {{in, 0}, {out, 1}, {err_fd, 2}, {status, 3}};
	const struct cgroup *g = &s->cgroup;
	bool ids = s->spec->ids.on;
	const char **front = NULL;
	struct box_args a;
	size_t n = 0;

	sandbox_box_begin(s, s->a, &a);
	sandbox_box_put2(&a, "--clear-env", "--filter");
	if (ids) {
		sandbox_box_put3(&a, "--become", "--stage", IDS_STAGE);
		sandbox_box_mounts(&a, s->spec->mounts);
	}
	sandbox_box_put(&a, "--");
	front = sandbox_box_end(&a, &n);
	if (sandbox_spawn(s, sandbox_init_argv(s->a, front, n), fds, COUNT(fds), err) < 0)
		return -1;
	(void)snprintf(
		s->says, sizeof(s->says),
		"sandbox: plain process group seccomp%s%s%s gpus=%zu disk=watched; not enforced: "
	        "access to "
		"world-readable files%s, other processes, network%s%s%s; folders are where the "
		"BT_* variables point",
		ids ? " own-id" : "", g->memory ? " mem" : "", g->cpu ? " cpu" : "",
		s->spec->n_gpus, ids ? "" : ", and those of the server's user",
		g->memory ? "" : ", memory", g->cpu ? "" : ", cpu",
		cgroup_tracks(g) ? "" : ", processes that leave their session");
	return 0;
}

const struct sandbox_ops sandbox_plain = {
	.name = "plain",
	.host = true,
	.start = plain_start,
	.enter = sandbox_box_enter,
};
