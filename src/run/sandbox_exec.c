/* sandbox_exec.c - arguments, order of the steps, and the last step; see sandbox_exec.h. */
#include "run/sandbox_exec.h"

#include "base/fs.h"
#include "run/sandbox_exec_inner.h"
#include "run/seccomp.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int join_cgroups(const struct sandbox_exec *b, struct err *err)
{
	for (size_t i = 0; i < b->cgroups.n; i++) {
		char *path = arena_printf(b->a, "%s/cgroup.procs", b->cgroups.item[i]);
		AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, "0", 1) != 1)
			return err_errno(err, errno, "cannot join the job's cgroup: %s", path);
	}
	for (int fd = SANDBOX_EXEC_CGROUP_FD; fd > SANDBOX_EXEC_CGROUP_FD - (int)b->cgroup_fds;
	     fd--) {
		if (write(fd, "0", 1) != 1)
			return err_errno(err, errno, "cannot join the job's cgroup");
		(void)close(fd);
	}
	return 0;
}

/* "JOB:SPAN:NOBODY" */
static int parse_ids(struct sandbox_exec *b, const char *text, struct err *err)
{
	struct str rest = str_of(text), part;
	uint32_t *to[] = {&b->job, &b->span, &b->nobody};

	for (size_t i = 0; i < COUNT(to); i++) {
		uint64_t n = 0;

		(void)str_cut(&rest, ':', &part);
		if (str_u64(part, to[i] == &b->nobody ? 0 : 1, UINT32_MAX - 1, &n, err) < 0)
			return err_wrap(err, "--ids");
		*to[i] = (uint32_t)n;
	}
	return 0;
}

static const struct {
	const char *flag;
	enum mount_kind kind;
	bool from, share;
} mount_flags[] = {
	{"--ro", MOUNT_RO, true, false},      {"--share", MOUNT_RO, true, true},
	{"--rw", MOUNT_RW, true, false},      {"--empty", MOUNT_EMPTY, false, false},
	{"--null", MOUNT_NULL, false, false},
};

/* How many arguments it took, 0 = it is none. */
static int parse_mount(struct sandbox_exec *b, int argc, char **argv, struct err *err)
{
	for (size_t i = 0; i < COUNT(mount_flags); i++) {
		int n = mount_flags[i].from ? 3 : 2;
		struct sandbox_exec_mount *m = &b->mount[b->n_mounts];

		if (strcmp(argv[0], mount_flags[i].flag) != 0)
			continue;
		if (argc < n || argv[n - 1][0] != '/' || argv[n - 1][1] == '\0')
			return err_set(err, ERR_INVALID, "%s: the path inside the job is missing",
			               argv[0]);
		*m = (struct sandbox_exec_mount){.kind = mount_flags[i].kind,
		                                 .is_file = mount_flags[i].kind == MOUNT_NULL,
		                                 .share = mount_flags[i].share,
		                                 .from = n == 3 ? argv[1] : NULL,
		                                 .at = argv[n - 1],
		                                 .tree = -1};
		b->n_mounts++;
		return n;
	}
	return 0;
}

static int parse_word(struct sandbox_exec *b, const char *word)
{
	const struct {
		const char *flag;
		bool *to;
	} words[] = {{"--idmap", &b->idmap},         {"--ro-root", &b->ro_root},
	             {"--become", &b->become},       {"--enter", &b->enter},
	             {"--clear-env", &b->clear_env}, {"--filter", &b->filter},
	             {"--filter-fd", &b->filter_fd}, {"--image", &b->image}};

	for (size_t i = 0; i < COUNT(words); i++) {
		if (strcmp(word, words[i].flag) == 0) {
			*words[i].to = true;
			return 1;
		}
	}
	return 0;
}

static int add_env(struct sandbox_exec *b, const char *entry, struct err *err)
{
	if (b->env.n == SANDBOX_EXEC_LIST_MAX || strchr(entry, '=') == NULL)
		return err_set(err, ERR_INVALID, "--env %s", entry);
	b->env.item[b->env.n++] = entry;
	return 0;
}

static int parse_value(struct sandbox_exec *b, const char *flag, const char *value, struct err *err)
{
	const struct {
		const char *flag, **to;
	} values[] = {{"--scratch", &b->scratch},
	              {"--stage", &b->stage},
	              {"--tty", &b->tty},
	              {"--cores", &b->cores}};
	const struct {
		const char *flag;
		uint64_t *to;
	} numbers[] = {{"--data-limit", &b->data_limit},
	               {"--process-limit", &b->process_limit},
	               {"--cgroup-fds", &b->cgroup_fds}};

	if (value == NULL)
		return err_set(err, ERR_INVALID, "%s needs a value", flag);
	for (size_t i = 0; i < COUNT(values); i++) {
		if (strcmp(flag, values[i].flag) == 0) {
			*values[i].to = value;
			return 2;
		}
	}
	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (strcmp(flag, numbers[i].flag) == 0)
			return str_u64(str_of(value), 1, INT64_MAX, numbers[i].to, err) < 0 ? -1
			                                                                    : 2;
	}
	if (strcmp(flag, "--env") == 0)
		return add_env(b, value, err) < 0 ? -1 : 2;
	if (strcmp(flag, "--ids") == 0)
		return parse_ids(b, value, err) < 0 ? -1 : 2;
	if (strcmp(flag, "--cgroup") != 0 || b->cgroups.n == SANDBOX_EXEC_LIST_MAX)
		return err_set(err, ERR_INVALID, "%s", flag);
	b->cgroups.item[b->cgroups.n++] = value;
	return 2;
}

static int parse(struct sandbox_exec *b, int argc, char **argv, int *rest, struct err *err)
{
	int i = 0;

	b->mount = ARENA_ARRAY(b->a, struct sandbox_exec_mount, (size_t)argc + 1);
	while (i < argc && strcmp(argv[i], "--") != 0) {
		int n = parse_mount(b, argc - i, argv + i, err);

		if (n == 0)
			n = parse_word(b, argv[i]);
		if (n == 0)
			n = parse_value(b, argv[i], i + 1 < argc ? argv[i + 1] : NULL, err);
		if (n < 0)
			return -1;
		i += n;
	}
	*rest = i + 1;
	if (i + 1 >= argc)
		return err_set(err, ERR_INVALID, "no program after --");
	return 0;
}

/* Keeps what programs need to be found, to use the right locale and to reach a network behind a
 * proxy. Options of a test build's sanitizers end here. */
static void clear_environment(struct arena *a)
{
	static const char *const kept[] = {"PATH",        "LANG",        "LC_ALL",   "TZ",
	                                   "HTTP_PROXY",  "HTTPS_PROXY", "NO_PROXY", "http_proxy",
	                                   "https_proxy", "no_proxy"};
	char *value[COUNT(kept)] = {NULL};

	for (size_t i = 0; i < COUNT(kept); i++) {
		if (getenv(kept[i]) != NULL)
			value[i] = arena_cstr(a, getenv(kept[i]));
	}
	(void)clearenv();
	for (size_t i = 0; i < COUNT(kept); i++) {
		if (value[i] != NULL)
			(void)setenv(kept[i], value[i], 1); /* else it is not set: as if unset */
	}
}

static int run_on_cores(const struct sandbox_exec *b, struct err *err)
{
	struct str rest = str_of(b->cores), one;
	cpu_set_t set;

	if (b->cores == NULL)
		return 0;
	CPU_ZERO(&set);
	while (str_cut(&rest, ',', &one)) {
		uint64_t core = 0;

		if (str_u64(one, 0, CPU_SETSIZE - 1, &core, err) < 0)
			return err_wrap(err, "--cores");
		CPU_SET(core, &set);
	}
	(void)sched_setaffinity(0, sizeof(set), &set); /* gone since: it runs on all then */
	return 0;
}

/* As late as can be: this program is not the job, and reserves a lot where it has sanitizers. */
static int limit_resources(const struct sandbox_exec *b, struct err *err)
{
	struct rlimit data = {b->data_limit, b->data_limit},
		      processes = {b->process_limit, b->process_limit};

	if ((b->data_limit > 0 && setrlimit(RLIMIT_DATA, &data) < 0) ||
	    (b->process_limit > 0 && setrlimit(RLIMIT_NPROC, &processes) < 0))
		return err_errno(err, errno, "limits of the job's processes");
	return 0;
}

void sandbox_exec_raise_memlock(void)
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, own;

	if (setrlimit(RLIMIT_MEMLOCK, &all) == 0 || getrlimit(RLIMIT_MEMLOCK, &own) < 0)
		return;
	own.rlim_cur = own.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &own); /* an ordinary user has what it has */
}

/* While we may reach it, and out of the way of the descriptors that have their numbers. */
static int open_program(struct sandbox_exec *b, const char *program, struct err *err)
{
	AUTO_FD int fd = open(program, O_PATH | O_CLOEXEC);

	if (fd >= 0)
		b->program = fcntl(fd, F_DUPFD_CLOEXEC, SANDBOX_EXEC_FDS);
	return b->program < 0 ? err_errno(err, errno, "%s", program) : 0;
}

/* For the program itself, or for it to read and to put on what it starts. */
static int filter(const struct sandbox_exec *b, struct err *err)
{
	AUTO_FD int fd = -1;

	if (b->filter)
		return seccomp_apply(SECCOMP_JOB, err);
	if (!b->filter_fd)
		return 0;
	fd = seccomp_file(err);
	if (fd < 0)
		return -1;
	if (fd != SANDBOX_EXEC_FILTER_FD)
		return dup2(fd, SANDBOX_EXEC_FILTER_FD) < 0 ? err_errno(err, errno, "filter") : 0;
	return fcntl(TAKE_FD(fd), F_SETFD, 0) < 0 ? err_errno(err, errno, "filter") : 0;
}

static int make(struct sandbox_exec *b, const char *program, struct err *err)
{
	if (join_cgroups(b, err) < 0)
		return -1;
	if (run_on_cores(b, err) < 0)
		return -1;
	sandbox_exec_new_keyring();
	sandbox_exec_raise_memlock();
	if (b->enter)
		return sandbox_exec_enter(b, err);
	if (b->scratch != NULL) {
		if (open_program(b, program, err) < 0)
			return -1;
		if (sandbox_exec_become_root_of_job(b, err) < 0 ||
		    sandbox_exec_build_view(b, err) < 0)
			return -1;
		return b->span > 0 && !b->image ? sandbox_exec_nested_userns(b, err) : 0;
	}
	if (b->stage != NULL && sandbox_exec_stage(b, err) < 0)
		return -1;
	return b->become ? sandbox_exec_become_job(b, err) : 0;
}

static void become(struct sandbox_exec *b, char **argv, struct err *err)
{
	const char *name = argv[0], *slash = strrchr(name, '/');

	if (b->on_tmpfs)
		(void)fprintf(stderr, SANDBOX_EXEC_MEMORY "%s\n", b->first.msg);
	if (b->clear_env)
		clear_environment(b->a);
	for (size_t i = 0; i < b->env.n; i++)
		(void)putenv(
			arena_cstr(b->a, b->env.item[i])); /* without room the exec fails too */
	if (limit_resources(b, err) < 0)
		return;
	if (b->program >= 0) {
		if (slash != NULL)
			argv[0] += slash - name + 1; /* its path is the host's */
		(void)execveat(b->program, "", argv, environ, AT_EMPTY_PATH);
	} else {
		(void)execvp(name, argv);
	}
	(void)err_errno(err, errno, "%s", name);
}

int sandbox_exec_run(int argc, char **argv, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sandbox_exec *b = arena_alloc(a, sizeof(*b));
	pid_t parent = getppid();
	int rest = 0;
	int r = 0;

	b->a = a;
	b->scratch_tree = b->job_ns = b->program = -1;
	r = parse(b, argc, argv, &rest, err);
	if (r == 0)
		r = make(b, argv[rest], err);
	if (r == 0 && b->tty != NULL)
		r = sandbox_exec_tty_open(b->tty, SANDBOX_EXEC_TTY_FD, err);
	/* a change of ids or a new user namespace may have taken this back; our parent may be gone
	 * since */
	if (r == 0 && !b->enter) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(SANDBOX_EXEC_EXIT);
	}
	if (r == 0)
		r = filter(b, err);
	if (r == 0)
		become(b, argv + rest, err);
	(void)fprintf(stderr, "sandbox-exec: %s\n", err->msg);
	return SANDBOX_EXEC_EXIT;
}
