/* cgroup.c - making, reading, emptying and removing a job's groups; see cgroup.h. */
#include "run/cgroup.h"

#include "base/clock.h"
#include "base/hash.h"

#include <dirent.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>

#define TEXT_MAX ((size_t)1 << 20) /* cgroup.procs of many processes */
#define DEPTH_MAX 8                /* groups that the job made below its own */
#define REMOVE_MS 2000
#define POLL_MS 5
#define LEAF "stoker-leaf" /* where we step aside to, see hand_down */
#define RUNNER "runner"    /* of a runner, beside its job's: see cgroup_make_for */
#define PERIOD_US 100000

static const char *const v1_names[CGROUP_PARTS] = {
	[CGROUP_MEMORY] = "memory",
	[CGROUP_CPU] = "cpu",
	[CGROUP_CPUACCT] = "cpuacct",
	[CGROUP_PIDS] = "pids",
};

/* A line of /proc/self/cgroup: "4:memory:/a/b", or "0::/a/b" of version 2. */
static bool own_path(struct str self, const char *controller, struct str *path)
{
	struct str line, id, names, name;

	while (str_cut(&self, '\n', &line)) {
		if (!str_cut(&line, ':', &id) || !str_cut(&line, ':', &names))
			continue;
		*path = line;
		if (controller == NULL && names.n == 0)
			return true;
		while (controller != NULL && str_cut(&names, ',', &name)) {
			if (str_eq(name, controller))
				return true;
		}
	}
	return false;
}

static bool has_option(struct str options, const char *word)
{
	struct str one;

	while (str_cut(&options, ',', &one)) {
		if (str_eq(one, word))
			return true;
	}
	return false;
}

/* "36 35 98:0 /root /mount/point opts optional... - fstype source superopts" */
static bool mount_of(struct str mountinfo, const char *controller, struct str *point)
{
	struct str line, word;

	while (str_cut(&mountinfo, '\n', &line)) {
		struct str at = {0}, type, source;

		for (int i = 0; i < 5 && str_cut(&line, ' ', &word); i++)
			at = word;
		while (str_cut(&line, ' ', &word) && !str_eq(word, "-"))
			;
		if (!str_cut(&line, ' ', &type) || !str_cut(&line, ' ', &source))
			continue;
		*point = at;
		if (controller == NULL ? str_eq(type, "cgroup2")
		                       : str_eq(type, "cgroup") && has_option(line, controller))
			return true;
	}
	return false;
}

static void place_of(struct str self, struct str mountinfo, const char *controller,
                     char out[CGROUP_PATH_MAX])
{
	struct str path, point;

	out[0] = '\0';
	if (!mount_of(mountinfo, controller, &point) || !own_path(self, controller, &path))
		return;
	if (point.n + path.n >= CGROUP_PATH_MAX)
		return;
	fmt_fixed(out, CGROUP_PATH_MAX, "%.*s%.*s", STR_ARG(point),
	          str_eq(path, "/") ? 0 : (int)path.n, path.p);
	if (access(out, F_OK) < 0)
		fmt_fixed(out, CGROUP_PATH_MAX, "%.*s", STR_ARG(point));
}

static bool ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), k = strlen(end);

	return n > k && strcmp(path + n - k, end) == 0;
}

void cgroup_find(struct str self, struct str mountinfo, struct cgroup_paths *out)
{
	char *at = out->dir[CGROUP_UNIFIED];

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < CGROUP_PARTS; i++)
		place_of(self, mountinfo, v1_names[i], out->dir[i]);
	/* who stepped aside is still at the same place: or each job would go a level deeper */
	if (ends_with(at, "/" LEAF))
		at[strlen(at) - strlen("/" LEAF)] = '\0';
	/* systemd starts a service in its group, which the kernel refuses once it hands down */
	out->service = ends_with(at, ".service");
}

static bool read_file(const char *dir, const char *name, struct buf *out)
{
	char path[CGROUP_PATH_MAX + 64];
	struct err err = {0};

	buf_clear(out);
	FMT(path, "%s/%s", dir, name);
	return fs_read(AT_FDCWD, path, out, &err) == 0;
}

static bool read_number(const char *dir, const char *name, uint64_t *out)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	return read_file(dir, name, &body) &&
	       str_u64(str_trim(buf_view(&body)), 0, UINT64_MAX, out, &err) == 0;
}

/* "word number" lines, as in memory.events and cpu.stat. */
static bool read_key(const char *dir, const char *name, const char *key, uint64_t *out)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	struct str rest, line, word;
	struct err err = {0};

	if (!read_file(dir, name, &body))
		return false;
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		if (str_cut(&line, ' ', &word) && str_eq(word, key))
			return str_u64(str_trim(line), 0, UINT64_MAX, out, &err) == 0;
	}
	return false;
}

static bool write_file(const char *dir, const char *name, const char *value)
{
	char path[CGROUP_PATH_MAX + 64];
	AUTO_FD int fd = -1;

	FMT(path, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
}

static bool write_u64(const char *dir, const char *name, uint64_t value)
{
	char text[32];

	FMT(text, "%" PRIu64, value);
	return write_file(dir, name, text);
}

static void read_paths(const char *proc, struct cgroup_paths *out)
{
	AUTO_BUF struct buf self = BUF_INIT(TEXT_MAX), mounts = BUF_INIT(TEXT_MAX);
	AUTO_BUF struct buf controllers = BUF_INIT(TEXT_MAX);

	memset(out, 0, sizeof(*out));
	if (!read_file(proc, "cgroup", &self) || !read_file("/proc/self", "mountinfo", &mounts))
		return;
	cgroup_find(buf_view(&self), buf_view(&mounts), out);
	if (out->dir[CGROUP_UNIFIED][0] != '\0' &&
	    read_file(out->dir[CGROUP_UNIFIED], "cgroup.controllers", &controllers)) {
		struct str rest = str_trim(buf_view(&controllers)), word;

		while (str_cut(&rest, ' ', &word))
			out->v2_memory = out->v2_memory || str_eq(word, "memory");
	}
}

void cgroup_name(const char *runs_dir, const char *attempt_id, uint32_t rank, char out[128])
{
	struct digest d = hash_sha256(runs_dir, strlen(runs_dir));

	fmt_fixed(out, 128, "stoker-%02x%02x%02x%02x-%.60s-%" PRIu32, d.b[0], d.b[1], d.b[2],
	          d.b[3], attempt_id, rank);
}

static bool make_dir(const char *place, const char *name, char out[CGROUP_PATH_MAX])
{
	if (place[0] == '\0' || strlen(place) + strlen(name) + 2 > CGROUP_PATH_MAX)
		return false;
	fmt_fixed(out, CGROUP_PATH_MAX, "%s/%s", place, name);
	if (mkdir(out, 0755) == 0 || errno == EEXIST)
		return true;
	out[0] = '\0';
	return false;
}

/* The leaf rule of version 2: a group with processes cannot hand controllers down. In a delegated
 * subtree we are alone, so we step aside into a leaf of our own. */
static bool hand_down(const char *place)
{
	AUTO_BUF struct buf procs = BUF_INIT(TEXT_MAX);
	char leaf[CGROUP_PATH_MAX];
	struct str rest, pid;

	if (write_file(place, "cgroup.subtree_control", "+memory +cpu +pids"))
		return true;
	if (errno != EBUSY || !make_dir(place, LEAF, leaf) ||
	    !read_file(place, "cgroup.procs", &procs))
		return false;
	rest = buf_view(&procs);
	while (str_cut(&rest, '\n', &pid)) {
		char text[32];

		FMT(text, "%.*s", (int)MIN(pid.n, 20U), pid.p == NULL ? "" : pid.p);
		(void)write_file(leaf, "cgroup.procs", text); /* gone meanwhile is fine */
	}
	return write_file(place, "cgroup.subtree_control", "+memory +cpu +pids");
}

static void limit_v2(struct cgroup *g, const struct cgroup_limits *l)
{
	const char *dir = g->dir[CGROUP_UNIFIED];
	char text[64];

	g->v2 = true;
	if (l->memory_bytes > 0) {
		g->memory = write_u64(dir, "memory.max", l->memory_bytes);
		(void)write_file(dir, "memory.swap.max", "0");  /* no swap: nothing to limit */
		(void)write_file(dir, "memory.oom.group", "1"); /* older kernels kill one by one */
	}
	if (l->cpu_milli > 0) {
		FMT(text, "%" PRIu64 " %d", (uint64_t)l->cpu_milli * PERIOD_US / 1000, PERIOD_US);
		g->cpu = write_file(dir, "cpu.max", text);
	}
	g->pids = write_u64(dir, "pids.max", CGROUP_PIDS_MAX);
}

/* Can groups with limits be made in the one of version 2? */
static bool hands_down(const struct cgroup_paths *p)
{
	return p->v2_memory && !p->service && hand_down(p->dir[CGROUP_UNIFIED]);
}

static bool make_v2(struct cgroup *g, const struct cgroup_paths *p, const char *name,
                    const struct cgroup_limits *l)
{
	if (!hands_down(p) || !make_dir(p->dir[CGROUP_UNIFIED], name, g->dir[CGROUP_UNIFIED]))
		return false;
	limit_v2(g, l);
	return true;
}

static void make_v1(struct cgroup *g, const struct cgroup_paths *p, const char *name,
                    const struct cgroup_limits *l)
{
	char *memory = g->dir[CGROUP_MEMORY], *cpu = g->dir[CGROUP_CPU];

	if (make_dir(p->dir[CGROUP_MEMORY], name, memory) && l->memory_bytes > 0) {
		g->memory = write_u64(memory, "memory.limit_in_bytes", l->memory_bytes);
		/* where swap is counted */
		(void)write_u64(memory, "memory.memsw.limit_in_bytes", l->memory_bytes);
	}
	if (make_dir(p->dir[CGROUP_CPU], name, cpu) && l->cpu_milli > 0) {
		(void)write_u64(cpu, "cpu.cfs_period_us", PERIOD_US); /* it is the default */
		g->cpu = write_u64(cpu, "cpu.cfs_quota_us",
		                   (uint64_t)l->cpu_milli * PERIOD_US / 1000);
	}
	(void)make_dir(p->dir[CGROUP_CPUACCT], name, g->dir[CGROUP_CPUACCT]);
	if (make_dir(p->dir[CGROUP_PIDS], name, g->dir[CGROUP_PIDS]))
		g->pids = write_u64(g->dir[CGROUP_PIDS], "pids.max", CGROUP_PIDS_MAX);
}

static uint64_t oom_counter(const struct cgroup *g)
{
	uint64_t n = 0;

	if (g->v2)
		(void)read_key(g->dir[CGROUP_UNIFIED], "memory.events", "oom_kill", &n);
	else if (g->dir[CGROUP_MEMORY][0] != '\0')
		(void)read_key(g->dir[CGROUP_MEMORY], "memory.oom_control", "oom_kill", &n);
	return n;
}

void cgroup_make(struct cgroup *g, const char *name, const struct cgroup_limits *limits)
{
	struct cgroup_paths paths;

	memset(g, 0, sizeof(*g));
	g->memory_limit = limits->memory_bytes;
	read_paths("/proc/self", &paths);
	if (!make_v2(g, &paths, name, limits)) {
		make_v1(g, &paths, name, limits);
		/* without controllers it still knows which processes are the job's, and kills them
		 * at once */
		(void)make_dir(paths.dir[CGROUP_UNIFIED], name, g->dir[CGROUP_UNIFIED]);
	}
	g->oom_before = oom_counter(g);
}

/* The folder, and those of its files that are there. */
static int hand_over(const char *dir, const char *const *files, size_t n, uint32_t owner,
                     struct err *err)
{
	if (chown(dir, owner, owner) < 0)
		return err_errno(err, errno, "%s", dir);
	for (size_t i = 0; i < n; i++) {
		AUTO_FREE char *path = xasprintf("%s/%s", dir, files[i]);

		if (chown(path, owner, owner) < 0 && errno != ENOENT)
			return err_errno(err, errno, "%s", path);
	}
	return 0;
}

/* In the hierarchy of version 2: a level that is the owner's, in which it may move what is its own
 * from group to group. */
static int make_level(struct cgroup *g, const struct cgroup_paths *p, const char *top,
                      const char *name, bool *v2, uint32_t owner, struct err *err)
{
	static const char *const files[] = {"cgroup.procs"};
	char level[CGROUP_PATH_MAX], runner[CGROUP_PATH_MAX];

	*v2 = hands_down(p);
	if (p->dir[CGROUP_UNIFIED][0] == '\0')
		return 0;
	if (!make_dir(p->dir[CGROUP_UNIFIED], top, level))
		return err_errno(err, errno, "%s/%s", p->dir[CGROUP_UNIFIED], top);
	if (*v2 && !write_file(level, "cgroup.subtree_control", "+memory +cpu +pids"))
		return err_errno(err, errno, "%s/cgroup.subtree_control", level);
	if (!make_dir(level, RUNNER, runner) || !make_dir(level, name, g->dir[CGROUP_UNIFIED]))
		return err_errno(err, errno, "%s", level);
	if (!write_file(runner, "cgroup.procs", "0"))
		return err_errno(err, errno, "%s/cgroup.procs", runner);
	return hand_over(level, files, COUNT(files), owner, err) < 0 ||
	                       hand_over(runner, files, COUNT(files), owner, err) < 0
	               ? -1
	               : 0;
}

/* The second group is made when the caller is in the first one's level already. */
static void under_level(struct cgroup_paths *p, const char *top)
{
	AUTO_FREE char *own = xasprintf("/%s/" RUNNER, top);
	char *at = p->dir[CGROUP_UNIFIED];

	if (ends_with(at, own))
		at[strlen(at) - strlen(own)] = '\0';
}

int cgroup_make_for(struct cgroup *g, const char *top, const char *name,
                    const struct cgroup_limits *limits, uint32_t owner, struct err *err)
{
	static const char *const files[] = {"cgroup.procs", "cgroup.freeze", "cgroup.kill"};
	AUTO_FREE struct cgroup_paths *paths = xcalloc(1, sizeof(*paths));
	bool v2 = false;

	memset(g, 0, sizeof(*g));
	g->memory_limit = limits->memory_bytes;
	read_paths("/proc/self", paths);
	under_level(paths, top);
	if (make_level(g, paths, top, name, &v2, owner, err) < 0)
		return -1;
	if (v2)
		limit_v2(g, limits);
	else
		make_v1(g, paths, name, limits);
	for (int i = 0; i < CGROUP_PARTS; i++) {
		if (g->dir[i][0] != '\0' &&
		    hand_over(g->dir[i], files, COUNT(files), owner, err) < 0)
			return -1;
	}
	g->oom_before = oom_counter(g);
	return 0;
}

int cgroup_save(const struct cgroup *g, const char *path, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);

	for (int i = 0; i < CGROUP_PARTS; i++)
		buf_printf(&out, "%s\n", g->dir[i]);
	return fs_write_atomic(AT_FDCWD, path, buf_view(&out), 0600, err);
}

/* Whoever wrote the path may have meant a folder that only looks like one. */
static bool is_group(const char *dir)
{
	struct statfs st;

	return statfs(dir, &st) == 0 &&
	       (st.f_type == CGROUP_SUPER_MAGIC || st.f_type == CGROUP2_SUPER_MAGIC);
}

/* With the level that was made for its runner, and the runner's own group in it. */
static void with_level(char *dir, const char *end)
{
	size_t n = strlen(dir), k = strlen(end);

	if (n > 2 * k && strncmp(dir + n - 2 * k, end, k) == 0)
		dir[n - k] = '\0';
}

void cgroup_adopt(struct cgroup *g, const char *name, const char *path)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	AUTO_FREE char *end = xasprintf("/%s", name); /* nothing else is ever killed */
	struct str rest, dir;
	struct err err = {0};

	memset(g, 0, sizeof(*g));
	if (fs_read_strange(AT_FDCWD, path, &body, &err) < 0)
		return; /* it was never made */
	rest = buf_view(&body);
	for (int i = 0; i < CGROUP_PARTS && str_cut(&rest, '\n', &dir); i++) {
		if (dir.n >= CGROUP_PATH_MAX)
			continue;
		FMT(g->dir[i], "%.*s", STR_ARG(dir));
		if (!ends_with(g->dir[i], end) || !is_group(g->dir[i]))
			g->dir[i][0] = '\0';
		else
			with_level(g->dir[i], end);
	}
}

void cgroup_of(struct cgroup *g, pid_t pid)
{
	AUTO_FREE struct cgroup_paths *paths = xcalloc(1, sizeof(*paths));
	uint64_t limit = g->memory_limit;
	char proc[32];

	FMT(proc, "/proc/%d", (int)pid);
	memset(g, 0, sizeof(*g));
	g->memory_limit = limit;
	read_paths(proc, paths);
	g->v2 = paths->v2_memory;
	for (int i = 0; i < CGROUP_PARTS; i++) {
		/* its own, not the whole machine's: a container's path is not the root */
		if (strstr(paths->dir[i], "libpod") != NULL)
			FMT(g->dir[i], "%s", paths->dir[i]);
	}
	g->oom_before = 0;
}

bool cgroup_tracks(const struct cgroup *g)
{
	for (int i = 0; i < CGROUP_PARTS; i++) {
		if (g->dir[i][0] != '\0')
			return true;
	}
	return false;
}

uint64_t cgroup_oom_kills(const struct cgroup *g)
{
	uint64_t n = oom_counter(g);

	return n > g->oom_before ? n - g->oom_before : 0;
}

uint64_t cgroup_peak(const struct cgroup *g)
{
	uint64_t n = 0;

	if (g->v2)
		(void)read_number(g->dir[CGROUP_UNIFIED], "memory.peak", &n); /* from 5.19 on */
	else if (g->dir[CGROUP_MEMORY][0] != '\0')
		(void)read_number(g->dir[CGROUP_MEMORY], "memory.max_usage_in_bytes", &n);
	return n;
}

/* Memory that can be reclaimed at once (clean file pages) is not counted, as in `docker stats`. */
bool cgroup_usage(const struct cgroup *g, uint64_t *memory_bytes, uint64_t *cpu_ns)
{
	uint64_t idle = 0, usec = 0;

	*memory_bytes = *cpu_ns = 0;
	if (g->v2) {
		const char *dir = g->dir[CGROUP_UNIFIED];

		if (!read_number(dir, "memory.current", memory_bytes) ||
		    !read_key(dir, "cpu.stat", "usage_usec", &usec))
			return false;
		(void)read_key(dir, "memory.stat", "inactive_file", &idle);
		*cpu_ns = usec * 1000;
	} else {
		if (g->dir[CGROUP_MEMORY][0] == '\0' || g->dir[CGROUP_CPUACCT][0] == '\0' ||
		    !read_number(g->dir[CGROUP_MEMORY], "memory.usage_in_bytes", memory_bytes) ||
		    !read_number(g->dir[CGROUP_CPUACCT], "cpuacct.usage", cpu_ns))
			return false;
		(void)read_key(g->dir[CGROUP_MEMORY], "memory.stat", "total_inactive_file", &idle);
	}
	*memory_bytes -= MIN(*memory_bytes, idle);
	return true;
}

/* Calls fn for all in a group and those below; returns how many there were, -1 = cannot tell. */
static int each(const char *dir, int depth, void (*fn)(void *arg, pid_t pid), void *arg)
{
	AUTO_BUF struct buf procs = BUF_INIT(TEXT_MAX);
	struct str rest, line;
	int n = 0;
	DIR *d = NULL;

	if (!read_file(dir, "cgroup.procs", &procs))
		return access(dir, F_OK) < 0 ? 0 : -1;
	rest = buf_view(&procs);
	while (str_cut(&rest, '\n', &line)) {
		uint64_t pid = 0;
		struct err err = {0};

		if (str_u64(line, 1, INT_MAX, &pid, &err) == 0) {
			fn(arg, (pid_t)pid);
			n++;
		}
	}
	d = depth < DEPTH_MAX ? opendir(dir) : NULL;
	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char sub[CGROUP_PATH_MAX + 260];

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		FMT(sub, "%s/%s", dir, e->d_name);
		n += MAX(each(sub, depth + 1, fn, arg), 0);
	}
	if (d != NULL)
		(void)closedir(d);
	return n;
}

static void kill_one(void *arg UNUSED, pid_t pid)
{
	(void)kill(pid, SIGKILL); /* gone meanwhile is fine */
}

static void add_one(void *arg, pid_t pid)
{
	buf_add(arg, &pid, sizeof(pid));
}

void cgroup_pids(const struct cgroup *g, struct buf *out)
{
	int i = CGROUP_UNIFIED;

	for (int k = 0; k < CGROUP_PARTS && g->dir[i][0] == '\0'; k++)
		i = k;
	if (g->dir[i][0] != '\0')
		(void)each(g->dir[i], 0, add_one, out);
}

void cgroup_freeze(const struct cgroup *g, int64_t limit_ms)
{
	const char *dir = g->dir[CGROUP_UNIFIED];
	uint64_t frozen = 0;

	if (dir[0] == '\0' || !write_file(dir, "cgroup.freeze", "1"))
		return; /* before Linux 5.2 */
	for (int64_t until = clock_mono_ms() + limit_ms; clock_mono_ms() < until;
	     clock_sleep_ms(POLL_MS)) {
		if (!read_key(dir, "cgroup.events", "frozen", &frozen) || frozen == 1)
			return;
	}
}

void cgroup_thaw(const struct cgroup *g)
{
	if (g->dir[CGROUP_UNIFIED][0] != '\0')
		(void)write_file(g->dir[CGROUP_UNIFIED], "cgroup.freeze", "0");
}

bool cgroup_kill(const struct cgroup *g, int64_t limit_ms)
{
	for (int64_t until = clock_mono_ms() + limit_ms;; clock_sleep_ms(POLL_MS)) {
		bool empty = true;

		if (g->dir[CGROUP_UNIFIED][0] != '\0') /* from 5.14 on: all at once, no race */
			(void)write_file(g->dir[CGROUP_UNIFIED], "cgroup.kill", "1");
		for (int i = 0; i < CGROUP_PARTS; i++) {
			if (g->dir[i][0] != '\0' && each(g->dir[i], 0, kill_one, NULL) != 0)
				empty = false;
		}
		if (empty)
			return cgroup_tracks(g);
		if (clock_mono_ms() >= until)
			return false;
	}
}

static bool remove_group(const char *dir, int depth)
{
	DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char sub[CGROUP_PATH_MAX + 260];

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		FMT(sub, "%s/%s", dir, e->d_name);
		(void)remove_group(sub, depth + 1); /* the parent's rmdir says so */
	}
	if (d != NULL)
		(void)closedir(d);
	return rmdir(dir) == 0 || errno == ENOENT;
}

void cgroup_remove(struct cgroup *g)
{
	/* the last exit is seen a moment before the group counts as empty */
	for (int64_t until = clock_mono_ms() + REMOVE_MS;; clock_sleep_ms(POLL_MS)) {
		bool all = true;

		for (int i = 0; i < CGROUP_PARTS; i++) {
			if (g->dir[i][0] != '\0' && remove_group(g->dir[i], 0))
				g->dir[i][0] = '\0';
			all = all && g->dir[i][0] == '\0';
		}
		if (all || clock_mono_ms() >= until)
			return;
	}
}

static void sweep_place(const char *place, int64_t max_age_s)
{
	DIR *d = place[0] == '\0' ? NULL : opendir(place);

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char dir[CGROUP_PATH_MAX + 260];
		struct stat st;

		if (strncmp(e->d_name, "stoker-", 7) != 0 || strcmp(e->d_name, LEAF) == 0)
			continue;
		FMT(dir, "%s/%s", place, e->d_name);
		if (stat(dir, &st) == 0 &&
		    clock_wall_ms() / 1000 - (int64_t)st.st_mtim.tv_sec >= max_age_s)
			(void)remove_group(dir, 0); /* refused by the kernel unless it is empty */
	}
	if (d != NULL)
		(void)closedir(d);
}

void cgroup_sweep_old(int64_t max_age_s)
{
	AUTO_FREE struct cgroup_paths *paths = xcalloc(1, sizeof(*paths));

	read_paths("/proc/self", paths);
	for (int i = 0; i < CGROUP_PARTS; i++)
		sweep_place(paths->dir[i], max_age_s);
}
