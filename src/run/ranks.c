/* ranks.c - see ranks.h. */
#include "run/ranks.h"

#include "base/fs.h"

#include <dirent.h>

#define PROCESSES_MAX 65536
#define ENVIRON_MAX ((size_t)4 << 20)
#define STAT_MAX ((size_t)4096)
#define DEPTH_MAX 64 /* of the tree of processes */
#define NAME "WORLD_SIZE="

struct one {
	pid_t pid, parent;
};

/* The fourth field; the second is a name in parentheses, which may hold anything. */
static pid_t parent_of(int proc_fd, const char *pid)
{
	AUTO_BUF struct buf text = BUF_INIT(STAT_MAX);
	char path[64];
	const char *end;
	int parent = 0;
	struct err err = {0};

	(void)snprintf(path, sizeof(path), "%.20s/stat", pid);
	if (fs_read(proc_fd, path, &text, &err) < 0)
		return 0;
	end = strrchr(buf_cstr(&text), ')');
	return end != NULL && sscanf(end + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static uint32_t world_of(int proc_fd, pid_t pid)
{
	AUTO_BUF struct buf text = BUF_INIT(ENVIRON_MAX);
	struct str rest, one;
	uint64_t n = 0;
	char path[64];
	struct err err = {0};

	FMT(path, "%d/environ", (int)pid);
	if (fs_read(proc_fd, path, &text, &err) < 0)
		return 0;
	rest = buf_view(&text);
	while (str_cut(&rest, '\0', &one)) {
		if (str_starts(one, NAME) &&
		    str_u64(str_skip(one, strlen(NAME)), 1, 1000000, &n, &err) == 0)
			return (uint32_t)n;
		err_clear(&err);
	}
	return 0;
}

static int by_pid(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static pid_t parent_in(const struct one *all, size_t n, pid_t pid)
{
	const struct one key = {.pid = pid};
	const struct one *found = bsearch(&key, all, n, sizeof(key), by_pid);

	return found != NULL ? found->parent : 0;
}

static bool is_below(const struct one *all, size_t n, pid_t pid, pid_t init)
{
	for (int depth = 0; pid > 0 && depth < DEPTH_MAX; depth++) {
		if (pid == init)
			return true;
		pid = parent_in(all, n, pid);
	}
	return false;
}

void ranks_pids(pid_t init, struct buf *out)
{
	AUTO_BUF struct buf list = BUF_INIT(PROCESSES_MAX * sizeof(struct one));
	struct one *all;
	DIR *d = init > 0 ? opendir("/proc") : NULL;
	size_t n;

	if (d == NULL)
		return;
	for (struct dirent *e = readdir(d); e != NULL && !list.full; e = readdir(d)) {
		struct one x = {.pid = (pid_t)strtol(e->d_name, NULL, 10)};

		if (x.pid <= 0)
			continue;
		x.parent = parent_of(dirfd(d), e->d_name);
		buf_add(&list, &x, sizeof(x));
	}
	(void)closedir(d);
	all = (struct one *)(void *)list.p;
	n = list.n / sizeof(struct one);
	if (n > 0)
		qsort(all, n, sizeof(all[0]), by_pid);
	for (size_t i = 0; i < n; i++)
		if (is_below(all, n, all[i].pid, init))
			buf_add(out, &all[i].pid, sizeof(pid_t));
}

uint32_t ranks_of(pid_t init)
{
	AUTO_BUF struct buf list = BUF_INIT(PROCESSES_MAX * sizeof(pid_t));
	AUTO_FD int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t world = 0;

	if (proc_fd < 0)
		return 0;
	ranks_pids(init, &list);
	for (size_t i = 0; i < list.n / sizeof(pid_t) && world == 0; i++)
		world = world_of(proc_fd, ((const pid_t *)(const void *)list.p)[i]);
	return world;
}
