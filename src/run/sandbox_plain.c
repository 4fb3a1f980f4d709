/*
 * sandbox_plain.c - a process group on the host as it is, for machines where neither bubblewrap nor
 * podman works. The job runs as the runner's user and sees what that user sees; places that it
 * wants elsewhere are where they are. What it started is found by its cgroup, else by its process
 * group.
 */
#include "run/sandbox.h"

#include <signal.h>

#define FRONT_MAX (8 + 2 * (size_t)CGROUP_PARTS)

static size_t box_front(struct sandbox *s, const char **front, const char *tty)
{
	const struct cgroup *g = &s->cgroup;
	size_t n = 0;

	front[n++] = s->spec->program;
	front[n++] = "runner";
	front[n++] = "--box";
	for (int p = 0; p < CGROUP_PARTS; p++) {
		if (g->dir[p][0] == '\0')
			continue;
		front[n++] = "--cgroup";
		front[n++] = g->dir[p];
	}
	if (tty != NULL) {
		front[n++] = "--tty";
		front[n++] = tty;
	}
	front[n++] = "--";
	return n;
}

static int plain_start(struct sandbox *s, int level UNUSED, int in, int out, int err_fd, int status,
                       struct err *err)
{
	struct proc_fd fds[] = {{in, 0}, {out, 1}, {err_fd, 2}, {status, 3}};
	const char *front[FRONT_MAX];
	const struct cgroup *g = &s->cgroup;
	size_t n = box_front(s, front, NULL);

	if (sandbox_spawn(s, sandbox_init_argv(s->a, front, n), fds, COUNT(fds), err) < 0)
		return -1;
	(void)snprintf(s->says, sizeof(s->says),
	               "sandbox: plain process group%s%s gpus=%zu; not enforced: files, other "
	               "processes, network%s%s%s; places are where BT_* variables say",
	               g->memory ? " mem" : "", g->cpu ? " cpu" : "", s->spec->n_gpus,
	               g->memory ? "" : ", memory", g->cpu ? "" : ", cpu",
	               cgroup_tracks(g) ? "" : ", processes that leave their session");
	return 0;
}

static const char **plain_enter(struct sandbox *s, struct arena *a, const char *tty)
{
	const char **front = ARENA_ARRAY(a, const char *, FRONT_MAX);

	(void)box_front(s, front, tty);
	return front;
}

const struct sandbox_ops sandbox_plain = {
	.name = "plain",
	.host = true,
	.start = plain_start,
	.enter = plain_enter,
};
