/*
 * sandbox_podman.c - containers for jobs that name an image, by the podman command (root or
 * rootless). The container is named after the attempt, so that a sweeper finds it again.
 *
 * A killed runner takes `podman run` with it but not the container: the init's watcher in it sees
 * its stdin close and kills everything inside (sandbox_script), and the sweeper removes the rest.
 */
#include "run/sandbox.h"

#include "base/fs.h"
#include "base/units.h"
#include "run/gpu.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define PODMAN_MS 120000
#define PODMAN_OUT ((size_t)256 << 10)
#define PODMAN_ARGS (200 + 2 * (size_t)(MOUNTS_MAX + GPU_NODES_MAX))

/* crun 1.8 refuses machines whose controllers are on version 1 while version 2 is mounted too. */
void sandbox_podman_runtime(struct sandbox_args *a)
{
	char found[4096];

	if (access("/sys/fs/cgroup/unified", F_OK) == 0 && proc_find("runc", found) != NULL)
		sandbox_args_put2(a, "--runtime", "runc");
}

/* Limits that podman would raise for the container, but may not without CAP_SYS_RESOURCE. */
static void add_ulimits(struct sandbox_args *a)
{
	if (geteuid() != 0 || prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1)
		return;
	sandbox_args_put2(a, "--ulimit", "nofile=1000:1000");
	sandbox_args_put2(a, "--ulimit", "nproc=1000:1000");
}

/* Rootless podman gets it from nobody: systemd does not delegate it. */
static bool has_cpuset(bool v1)
{
	AUTO_BUF struct buf words = BUF_INIT((size_t)4096);
	struct err no = {0};

	if (geteuid() != 0)
		return false;
	if (v1)
		return access("/sys/fs/cgroup/cpuset/cpuset.cpus", F_OK) == 0;
	return fs_read(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", &words, &no) == 0 &&
	       strstr(buf_cstr(&words), "cpuset") != NULL;
}

static void add_limits(struct sandbox *s, struct sandbox_args *a)
{
	const struct cgroup_limits *l = &s->spec->limits;
	bool v1 = !s->cgroup.v2;

	if (geteuid() != 0 && v1)
		return; /* rootless podman cannot, and says so on every start */
	if (l->memory_bytes > 0)
		sandbox_args_put2(a, "--memory", arena_printf(s->a, "%" PRIu64, l->memory_bytes));
	if (s->spec->n_cores > 0 && has_cpuset(v1))
		sandbox_args_put2(a, "--cpuset-cpus", s->spec->cores);
	if (l->cpu_milli > 0)
		sandbox_args_put2(a, "--cpus", arena_printf(s->a, "%g", l->cpu_milli / 1000.0));
	sandbox_args_put2(a, "--pids-limit", arena_printf(s->a, "%d", CGROUP_PIDS_MAX));
}

/* As in the other sandboxes: memory that a card may reach. */
static void add_memlock(struct sandbox_args *a)
{
	struct rlimit lock;
	bool may = geteuid() == 0 ? prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1
	                          : getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
	                                    lock.rlim_max == RLIM_INFINITY;

	if (may)
		sandbox_args_put2(a, "--ulimit", "memlock=-1:-1");
}

/* ... room for data loaders, and the cards. */
static void add_fabric(struct sandbox *s, struct sandbox_args *a)
{
	sandbox_args_put2(a, "--shm-size", arena_printf(s->a, "%" PRIu64, sandbox_shm_bytes()));
	if (access(SANDBOX_FABRIC, F_OK) == 0)
		sandbox_args_put2(a, "--device", SANDBOX_FABRIC);
}

static bool is_shown(const struct mount *m)
{
	return m->kind == MOUNT_RO ||
	       m->kind == MOUNT_RW; /* there is nothing of the host to hide */
}

/* For a root runner, sandbox-exec shows podman the mounts, opened through no link and mapped to the
 * job's ids, in a mount namespace that podman and the container share. */
static const char *staged(struct sandbox *s, size_t i)
{
	return arena_printf(s->a, IDS_STAGE "/%zu", i);
}

static void add_box(struct sandbox *s, struct sandbox_args *a)
{
	const struct mounts *m = s->spec->mounts;

	sandbox_args_begin(s, s->a, a);
	sandbox_args_put2(a, "--stage", IDS_STAGE);
	for (size_t i = 0; i < m->n; i++) {
		if (is_shown(&m->item[i]))
			sandbox_args_put3(a, sandbox_args_kind(&m->item[i]), m->item[i].from,
			                  staged(s, i));
	}
	sandbox_args_put(a, "--");
}

static void add_ids(struct sandbox *s, struct sandbox_args *a)
{
	const struct ids *ids = &s->spec->ids;
	char *map = arena_printf(s->a, "0:%" PRIu32 ":%" PRIu32, ids->job, ids->span);

	sandbox_args_put2(a, "--uidmap", map);
	sandbox_args_put2(a, "--gidmap", map);
}

static int add_mounts(struct sandbox *s, struct sandbox_args *a, struct err *err)
{
	const struct mounts *m = s->spec->mounts;

	for (size_t i = 0; i < m->n; i++) {
		const struct mount *one = &m->item[i];
		const char *from = s->spec->ids.on ? staged(s, i) : one->from;

		if (!is_shown(one))
			continue;
		if (strpbrk(from, ",\"") != NULL || strpbrk(one->at, ",\"") != NULL)
			return err_set(
				err, ERR_UNSUPPORTED,
				"podman cannot mount %s: its name contains a comma or a quote",
				one->at);
		sandbox_args_put2(a, "--mount",
		                  arena_printf(s->a, "type=bind,source=%s,destination=%s%s", from,
		                               one->at, one->kind == MOUNT_RO ? ",ro" : ""));
	}
	return 0;
}

static void add_gpus(struct sandbox *s, struct sandbox_args *a)
{
	const char *node[GPU_NODES_MAX];
	size_t n = gpu_nodes(s->a, "", s->spec->gpus, s->spec->n_gpus, node);

	for (size_t i = 0; i < n; i++)
		sandbox_args_put2(a, "--device", node[i]);
}

void sandbox_podman_devices(struct sandbox *s, struct sandbox_args *a)
{
	add_gpus(s, a);
	add_fabric(s, a);
}

static void say(struct sandbox *s)
{
	bool limits = geteuid() == 0 || s->cgroup.v2;
	char mem[64] = "", cpu[64] = "", cores[32] = "", memory[UNITS_CAP], shm[UNITS_CAP];

	if (limits && s->spec->limits.memory_bytes > 0)
		FMT(mem, " mem=%s", units_show_memory(s->spec->limits.memory_bytes, memory));
	if (limits && s->spec->limits.cpu_milli > 0)
		FMT(cpu, " cpu=%.4g", s->spec->limits.cpu_milli / 1000.0);
	if (s->spec->n_cores > 0)
		FMT(cores, " cores=%u", s->spec->n_cores);
	(void)snprintf(s->says, sizeof(s->says),
	               "sandbox: podman image %s pidns ipcns ro-weights net=host%s%s%s gpus=%zu "
	               "shm=%s memlock=%s %s; not enforced:%s network",
	               s->spec->image_name, mem, cpu, cores, s->spec->n_gpus,
	               units_show_memory(sandbox_shm_bytes(), shm), sandbox_memlock(s, s->a),
	               sandbox_disk_words(s), limits ? "" : " memory cpu pids");
}

void sandbox_podman_fixed(struct sandbox_args *a)
{
	static const char *const fixed[] = {"--replace",
	                                    "--interactive",
	                                    "--network=host",
	                                    "--http-proxy=true", /* the default; env.c says so */
	                                    "--log-driver=none",
	                                    "--preserve-fds=3",
	                                    "--pull=never",
	                                    "--user=0:0",
	                                    "--security-opt=no-new-privileges",
	                                    "--cap-drop=MKNOD,NET_RAW,AUDIT_WRITE,SYS_CHROOT",
	                                    "--entrypoint="};

	for (size_t i = 0; i < COUNT(fixed); i++)
		sandbox_args_put(a, fixed[i]);
}

static int podman_start(struct sandbox *s, int level UNUSED, int in, int out, int err_fd,
                        int status, struct err *err)
{
	struct proc_fd fds[] = {{in, 0},     {out, 1}, {err_fd, 2},
	                        {status, 3}, {out, 4}, {err_fd, 5}}; /* see script_watcher */
	struct sandbox_args a = {.v = NULL};

	if (s->spec->ids.on)
		add_box(s, &a);
	sandbox_args_more(s->a, &a, PODMAN_ARGS);
	sandbox_args_put(&a, "podman");
	sandbox_podman_runtime(&a);
	sandbox_args_put2(&a, "run", "--name");
	sandbox_args_put(&a, s->spec->name);
	sandbox_podman_fixed(&a);
	if (s->spec->ids.on)
		add_ids(s, &a);
	add_ulimits(&a);
	add_memlock(&a);
	add_limits(s, &a);
	sandbox_podman_devices(s, &a);
	if (add_mounts(s, &a, err) < 0)
		return -1;
	sandbox_args_put(&a, s->spec->image);
	if (fs_write_atomic(AT_FDCWD, arena_printf(s->a, "%s/" SANDBOX_CONTAINER, s->spec->dir),
	                    str_of(s->spec->name), 0600, err) < 0)
		return -1;
	say(s);
	return sandbox_spawn(s, sandbox_init_argv(s->a, a.v, a.n), fds, COUNT(fds), err);
}

static int podman_within(const char *const *argv, int64_t ms, struct buf *out, struct err *err)
{
	int code = 0;

	if (proc_run(argv, (struct str){0}, ms, out, &code, err) < 0)
		return -1;
	if (code != 0)
		return err_set(err, ERR_IO, "podman %s: exit code %d: %.*s", argv[1], code,
		               (int)MIN(out->n, 300U), buf_cstr(out));
	return 0;
}

int sandbox_podman_ask(const char *const *argv, struct buf *out, struct err *err)
{
	return podman_within(argv, PODMAN_MS, out, err);
}

static int podman_find(struct sandbox *s, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(PODMAN_OUT);
	const char *argv[] = {
		"podman",      "inspect",
		"--format",    "{{.State.Pid}} {{index .GraphDriver.Data \"UpperDir\"}}",
		s->spec->name, NULL};
	struct str upper, word = {0};
	uint64_t pid = 0;

	if (sandbox_podman_ask(argv, &out, err) < 0)
		return err_wrap(err, "the container's process");
	upper = str_trim(buf_view(&out));
	(void)str_cut(&upper, ' ', &word);
	if (str_u64(word, 1, INT_MAX, &pid, err) < 0)
		return err_wrap(err, "the container's process");
	if (str_starts(upper, "/")) /* vfs has none */
		s->upper = arena_strz(s->a, upper);
	s->init = s->shell = (pid_t)pid;
	cgroup_remove(&s->cgroup); /* the container has groups of its own: those are read */
	cgroup_of(&s->cgroup, s->init);
	return 0;
}

static const char **podman_enter(struct sandbox *s, struct arena *a, const char *tty)
{
	const char **v = ARENA_ARRAY(a, const char *, 8);
	size_t n = 0;

	v[n++] = "podman";
	v[n++] = "exec";
	v[n++] = "--interactive";
	if (tty != NULL)
		v[n++] = "--tty";
	v[n++] = "--preserve-fds=1";
	v[n++] = s->spec->name;
	return v;
}

/* Before the container goes: did the kernel kill something for its memory limit? */
static void podman_clean(struct sandbox *s)
{
	AUTO_BUF struct buf out = BUF_INIT(PODMAN_OUT);
	const char *ask[] = {"podman",      "inspect", "--format", "{{.State.OOMKilled}}",
	                     s->spec->name, NULL};
	struct err err = {0};

	if (sandbox_podman_ask(ask, &out, &err) == 0 && str_starts(buf_view(&out), "true"))
		s->oom = true;
	err_clear(&err);
	if (sandbox_sweep_podman(s->spec->name, PODMAN_MS, &err) < 0)
		s->clean_failed = true;
}

int sandbox_sweep_podman(const char *name, int64_t ms, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(PODMAN_OUT);
	const char *exists[] = {"podman", "container", "exists", name, NULL};
	const char *rm[] = {"podman", "rm", "--force", "--volumes", "--time=0", name, NULL};
	char found[4096];
	int code = 0;

	if (proc_find("podman", found) == NULL)
		return 0;
	if (proc_run(exists, (struct str){0}, ms, &out, &code, err) < 0)
		return -1;
	if (code != 0)
		return 0;
	buf_clear(&out);
	return podman_within(rm, ms, &out, err);
}

const struct sandbox_ops sandbox_podman = {
	.name = "podman",
	.images = true,
	.has_mount_points = true,
	.start = podman_start,
	.find = podman_find,
	.enter = podman_enter,
	.remote = true,
	.clean = podman_clean,
};
