/* nameless.c - see nameless.h. */
#include "run/nameless.h"

#include "base/fs.h"

#include <dirent.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define LOOKS_MAX 2000000 /* descriptors and mappings, of all processes */
#define FOUND_MAX ((size_t)LOOKS_MAX * sizeof(struct found))

struct found {
	dev_t dev;
	uint64_t ino, disk_bytes;
	int kind;
};

struct search {
	int (*kind_of)(void *arg, const struct nameless *);
	void *arg;
	const atomic_bool *cancel;
	struct buf found;
	uint64_t looks;
};

static bool is_enough(const struct search *s)
{
	return s->looks >= LOOKS_MAX || s->found.full || atomic_load(s->cancel);
}

/* `name` is a link of a folder like /proc/PID/fd. */
static void look_at(struct search *s, int dir_fd, const char *name)
{
	char path[FS_PATH_MAX];
	struct nameless f = {.path = path};
	struct found one;
	struct statx st;
	ssize_t n;

	/* no question to a server: it may not answer */
	if (statx(dir_fd, name, AT_STATX_DONT_SYNC,
	          STATX_TYPE | STATX_NLINK | STATX_INO | STATX_BLOCKS, &st) < 0 ||
	    !S_ISREG(st.stx_mode) || st.stx_nlink > 0)
		return;
	n = readlinkat(dir_fd, name, path, sizeof(path) - 1);
	if (n < 0)
		return;
	path[n] = '\0';
	f.dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	if (st.stx_dev_major == 0) { /* of no device */
		AUTO_FREE char *link = xasprintf("/proc/self/fd/%d/%s", dir_fd, name);
		struct statfs fs;

		f.overlay = statfs(link, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
	}
	one = (struct found){.dev = f.dev,
	                     .ino = st.stx_ino,
	                     .disk_bytes = st.stx_blocks * 512,
	                     .kind = s->kind_of(s->arg, &f)};
	if (one.kind >= 0)
		buf_add(&s->found, &one, sizeof(one));
}

static void look_in(struct search *s, pid_t tid, const char *folder)
{
	char path[64];
	DIR *d;

	FMT(path, "/proc/%d/%s", (int)tid, folder);
	d = opendir(path);
	if (d == NULL)
		return;
	for (struct dirent *e = readdir(d); e != NULL && !is_enough(s); e = readdir(d)) {
		s->looks++;
		if (e->d_name[0] != '.')
			look_at(s, dirfd(d), e->d_name);
	}
	(void)closedir(d);
}

/* Threads may have descriptors of their own, and outlive the first one, which then has none. */
static void look_at_process(struct search *s, pid_t pid)
{
	char path[64];
	pid_t last = 0;
	DIR *d;

	FMT(path, "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (d == NULL)
		return;
	for (struct dirent *e = readdir(d); e != NULL && !is_enough(s); e = readdir(d)) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		if (tid <= 0 ||
		    (last > 0 && syscall(SYS_kcmp, last, tid, KCMP_FILES, 0UL, 0UL) == 0))
			continue;
		s->looks++;
		look_in(s, tid, "fd");
		look_in(s, tid, "map_files");
		last = tid;
	}
	(void)closedir(d);
}

static int by_file(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev > y->dev ? 1 : -1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

bool nameless_count(const pid_t *pids, size_t n, int (*kind_of)(void *arg, const struct nameless *),
                    void *arg, const atomic_bool *cancel, struct nameless_total sum[NAMELESS_KINDS])
{
	struct search s = {
		.kind_of = kind_of, .arg = arg, .cancel = cancel, .found = BUF_INIT(FOUND_MAX)};
	struct found *all;
	size_t n_all;
	bool whole;

	for (size_t i = 0; i < n && !is_enough(&s); i++)
		look_at_process(&s, pids[i]);
	all = (struct found *)(void *)s.found.p;
	n_all = s.found.n / sizeof(*all);
	if (n_all > 0)
		qsort(all, n_all, sizeof(*all), by_file);
	for (size_t i = 0; i < n_all; i++) {
		if (i > 0 && by_file(&all[i - 1], &all[i]) == 0)
			continue;
		sum[all[i].kind].files++;
		sum[all[i].kind].disk_bytes += all[i].disk_bytes;
	}
	whole = !is_enough(&s);
	buf_done(&s.found);
	return whole;
}
