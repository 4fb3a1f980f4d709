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
#define SPOOLED_MAX ((size_t)LOOKS_MAX * sizeof(struct file))

struct file {
	dev_t dev;
	uint64_t ino, links;
};

struct found {
	struct file file; /* first: by_file() compares both */
	uint64_t disk_bytes;
	int kind;
};

struct search {
	const struct nameless_search *what;
	struct buf found;   /* struct found */
	struct buf spooled; /* struct file, sorted: those with no name elsewhere */
	uint64_t looks;
};

static bool is_enough(const struct search *s)
{
	return s->looks >= LOOKS_MAX || s->found.full || s->spooled.full ||
	       atomic_load(s->what->cancel);
}

static int by_file(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev > y->dev ? 1 : -1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

static struct file file_of(const struct statx *st)
{
	return (struct file){.dev = makedev(st->stx_dev_major, st->stx_dev_minor),
	                     .ino = st->stx_ino,
	                     .links = st->stx_nlink};
}

/* Each file of the spool that has as many names there as it has at all. The shipper adds and
 * removes some meanwhile: the most links that a file was seen with are right, for one more name
 * elsewhere is then never overlooked. */
static void keep_spooled(struct search *s)
{
	struct file *all = (struct file *)(void *)s->spooled.p;
	size_t n = s->spooled.n / sizeof(*all), kept = 0;

	if (n > 0)
		qsort(all, n, sizeof(*all), by_file);
	for (size_t i = 0, same; i < n; i += same) {
		struct file one = all[i];

		for (same = 1; i + same < n && by_file(&all[i], &all[i + same]) == 0; same++)
			one.links = MAX(one.links, all[i + same].links);
		if (one.links <= same)
			all[kept++] = one;
	}
	s->spooled.n = kept * sizeof(*all);
}

static void read_spool(struct search *s)
{
	DIR *d = s->what->spool == NULL ? NULL : opendir(s->what->spool);

	if (d == NULL)
		return;
	for (struct dirent *e = readdir(d); e != NULL && !is_enough(s); e = readdir(d)) {
		struct statx st;
		struct file one;

		s->looks++;
		if (statx(dirfd(d), e->d_name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
		          STATX_TYPE | STATX_NLINK | STATX_INO, &st) < 0 ||
		    !S_ISREG(st.stx_mode))
			continue;
		one = file_of(&st);
		buf_add(&s->spooled, &one, sizeof(one));
	}
	(void)closedir(d);
	keep_spooled(s);
}

static bool is_spooled(const struct search *s, const struct file *f)
{
	return s->spooled.n > 0 &&
	       bsearch(f, s->spooled.p, s->spooled.n / sizeof(*f), sizeof(*f), by_file) != NULL;
}

/* `name` is a link of a folder like /proc/PID/fd. */
static void look_at(struct search *s, int dir_fd, const char *name)
{
	char path[FS_PATH_MAX];
	struct nameless f = {.path = path};
	struct found one;
	struct statx st;
	struct file file;
	ssize_t n;

	/* no question to a server: it may not answer */
	if (statx(dir_fd, name, AT_STATX_DONT_SYNC,
	          STATX_TYPE | STATX_NLINK | STATX_INO | STATX_BLOCKS, &st) < 0 ||
	    !S_ISREG(st.stx_mode))
		return;
	file = file_of(&st);
	f.spooled = is_spooled(s, &file);
	if (st.stx_nlink > 0 && !f.spooled)
		return;
	n = readlinkat(dir_fd, name, path, sizeof(path) - 1);
	if (n < 0)
		return;
	path[n] = '\0';
	f.dev = file.dev;
	if (st.stx_dev_major == 0) { /* of no device */
		AUTO_FREE char *link = xasprintf("/proc/self/fd/%d/%s", dir_fd, name);
		struct statfs fs;

		f.overlay = statfs(link, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
	}
	one = (struct found){.file = file,
	                     .disk_bytes = st.stx_blocks * 512,
	                     .kind = s->what->kind_of(s->what->arg, &f)};
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

bool nameless_count(const struct nameless_search *what, struct nameless_total sum[NAMELESS_KINDS])
{
	struct search s = {
		.what = what, .found = BUF_INIT(FOUND_MAX), .spooled = BUF_INIT(SPOOLED_MAX)};
	struct found *all;
	size_t n_all;
	bool whole;

	read_spool(&s);
	for (size_t i = 0; i < what->n && !is_enough(&s); i++)
		look_at_process(&s, what->pids[i]);
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
	buf_done(&s.spooled);
	return whole;
}
