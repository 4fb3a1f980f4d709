/*
 * usage.c - see usage.h. Threads share a stack of folders, newest first, which keeps it short and
 * the inodes near each other; a folder is read with few large getdents64 calls and its entries are
 * asked for with statx relative to its descriptor. User code may be changing the tree meanwhile, so
 * folders are entered beneath the root, through no link and over no mount.
 */
#include "store/common/usage.h"

#include <linux/openat2.h>
#include "base/clock.h"
#include "base/sync.h"
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define USAGE_DENTS ((size_t)256 << 10)
#define USAGE_PENDING_MAX ((size_t)4 << 20) /* folders that wait to be read */
#define USAGE_LINKS_MAX                                                                            \
	((size_t)16 << 20) /* names of inodes with several names; more count twice */
#define USAGE_PER_CORE 2
#define USAGE_OPEN_TRIES 16 /* EAGAIN: a rename raced with the look-up */
#define USAGE_PATH_MAX FS_PATH_MAX
#define USAGE_STATX                                                                                \
	(STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO | STATX_SIZE | STATX_BLOCKS |           \
	 STATX_MTIME)

struct dent { /* linux_dirent64 */
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct inodes { /* those seen with more than one name; 0 marks a free place */
	uint64_t *ino;
	size_t n, cap;
};

struct walk {
	int root;
	uint32_t dev_major, dev_minor;
	void (*each)(void *arg, unsigned slot, const struct usage_entry *e);
	void *arg;
	const atomic_bool *cancel;

	struct lock lock; /* of all below */
	struct cond moved;
	char **pending; /* paths relative to the root */
	size_t n_pending, cap_pending;
	unsigned busy; /* threads that read a folder */
	bool stop;
	struct err err; /* first cause */
	struct inodes seen;
};

/* Under the lock. A walk that has failed gives out no more folders. */
static void walk_check(const struct walk *w)
{
	assert(lock_is_mine(&w->lock));
	assert(w->n_pending <= w->cap_pending && w->busy <= USAGE_THREADS_MAX);
	assert(w->err.code == ERR_NONE || w->stop);
	assert(w->seen.n <= w->seen.cap);
}

struct walker {
	unsigned magic;
#define WALKER_MAGIC 0x5357414bU
	struct walk *w;
	unsigned slot;
	pthread_t thread;
	struct usage_total total;
	char *dents;
	char path[USAGE_PATH_MAX];
	char **found; /* folders of the one being read */
	size_t n_found, cap_found;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdU;
	return x ^ (x >> 29);
}

static bool inodes_insert(uint64_t *table, size_t cap, uint64_t ino)
{
	size_t i = (size_t)mix(ino) & (cap - 1);

	while (table[i] != 0) {
		if (table[i] == ino)
			return false;
		i = (i + 1) & (cap - 1);
	}
	table[i] = ino;
	return true;
}

/* True the first time. Under the lock. */
static bool inodes_add(struct inodes *s, uint64_t ino)
{
	if (s->n >= USAGE_LINKS_MAX)
		return true;
	if (s->n * 2 >= s->cap) {
		size_t cap = s->cap == 0 ? 1024 : s->cap * 2;
		uint64_t *table = xcalloc(cap, sizeof(*table));

		for (size_t i = 0; i < s->cap; i++)
			if (s->ino[i] != 0)
				(void)inodes_insert(table, cap, s->ino[i]); /* all are new here */
		free(s->ino);
		s->ino = table;
		s->cap = cap;
	}
	if (!inodes_insert(s->ino, s->cap, ino))
		return false;
	s->n++;
	return true;
}

static int open_folder(int root, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};

	for (int i = 0; i < USAGE_OPEN_TRIES; i++) {
		long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

		if (fd < 0 && errno == EPERM && (how.flags & O_NOATIME))
			how.flags &= ~(uint64_t)O_NOATIME; /* only the owner may ask for it */
		else if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			return (int)fd;
	}
	return -1;
}

static void tell(struct walker *me, const char *dir, const char *name, const struct statx *st,
                 bool again)
{
	struct usage_entry e = {
		.path = me->path,
		.size = st->stx_size,
		.mode = st->stx_mode,
		.again = again,
	};
	int n;

	if (me->w->each == NULL)
		return;
	if (dir[0] == '.' && dir[1] == '\0')
		n = snprintf(me->path, sizeof(me->path), "%s", name);
	else
		n = snprintf(me->path, sizeof(me->path), "%s/%s", dir, name);
	if (n < 0 || (size_t)n >= sizeof(me->path))
		return; /* no path that a call would take */
	e.mtime_ns = clock_ns_of(st->stx_mtime.tv_sec, st->stx_mtime.tv_nsec);
	me->w->each(me->w->arg, me->slot, &e);
}

static void found_folder(struct walker *me, const char *dir, const char *name)
{
	if (me->n_found == me->cap_found) {
		me->cap_found = me->cap_found == 0 ? 64 : me->cap_found * 2;
		me->found = xrealloc(me->found, me->cap_found * sizeof(*me->found));
	}
	me->found[me->n_found++] =
		dir[0] == '.' && dir[1] == '\0' ? xstrdup(name) : xasprintf("%s/%s", dir, name);
}

static void count(struct walker *me, int fd, const char *dir, const char *name)
{
	struct usage_total *t = &me->total;
	bool again = false;
	struct statx st;

	if (statx(fd, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, USAGE_STATX,
	          &st) < 0)
		return; /* removed meanwhile */
	if (S_ISDIR(st.stx_mode)) {
		if (st.stx_dev_major != me->w->dev_major || st.stx_dev_minor != me->w->dev_minor)
			return; /* another file system */
		t->folders++;
		found_folder(me, dir, name);
	} else if (S_ISREG(st.stx_mode)) {
		if (st.stx_nlink > 1) {
			lock_take(&me->w->lock);
			again = !inodes_add(&me->w->seen, st.stx_ino);
			lock_give(&me->w->lock);
		}
		t->files += !again;
		t->bytes += again ? 0 : st.stx_size;
	} else if (S_ISLNK(st.stx_mode)) {
		t->links++;
	} else {
		t->others++;
	}
	t->disk_bytes += again ? 0 : st.stx_blocks * 512;
	tell(me, dir, name, &st, again);
}

static void read_folder(struct walker *me, const char *dir)
{
	AUTO_FD int fd = open_folder(me->w->root, dir);

	if (fd < 0) {
		if (errno != ENOENT && errno != ENOTDIR && errno != EXDEV && errno != ELOOP)
			me->total.unreadable++;
		return;
	}
	for (;;) {
		long n = syscall(SYS_getdents64, fd, me->dents, USAGE_DENTS);

		if (n < 0)
			me->total.unreadable++;
		if (n <= 0)
			return;
		if (me->w->cancel != NULL && atomic_load(me->w->cancel))
			return;
		for (long at = 0; at < n;) {
			struct dent *e = (struct dent *)(void *)(me->dents + at);
			const char *name = e->name;

			at += e->reclen;
			if (name[0] == '.' &&
			    (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
				continue;
			count(me, fd, dir, name);
		}
	}
}

/* Under the lock: what this thread found becomes everybody's. */
static void hand_over(struct walk *w, struct walker *me)
{
	if (w->n_pending + me->n_found > USAGE_PENDING_MAX && !w->stop) {
		w->stop = true;
		(void)err_set(&w->err, ERR_TOO_BIG, "more than %zu folders wait to be read",
		              USAGE_PENDING_MAX);
	}
	if (w->n_pending + me->n_found > w->cap_pending) {
		w->cap_pending = MAX(w->cap_pending * 2, w->n_pending + me->n_found);
		w->pending = xrealloc(w->pending, w->cap_pending * sizeof(*w->pending));
	}
	if (me->n_found > 0)
		memcpy(w->pending + w->n_pending, me->found, me->n_found * sizeof(*me->found));
	w->n_pending += me->n_found;
	me->n_found = 0;
	if (w->cancel != NULL && atomic_load(w->cancel) && !w->stop) {
		w->stop = true;
		(void)err_set(&w->err, ERR_CANCELED, "canceled");
	}
}

static void *walker(void *arg)
{
	struct walker *me = FROM_VOID(struct walker, arg, WALKER_MAGIC);
	struct walk *w = me->w;

	lock_take(&w->lock);
	for (;;) {
		AUTO_FREE char *dir = NULL;

		while (w->n_pending == 0 && w->busy > 0 && !w->stop)
			cond_wait(&w->moved, &w->lock);
		if (w->n_pending == 0 || w->stop)
			break;
		dir = w->pending[--w->n_pending];
		w->busy++;
		lock_give(&w->lock);
		read_folder(me, dir);
		lock_take(&w->lock);
		w->busy--;
		hand_over(w, me);
		walk_check(w);
		if (w->n_pending > 0 || w->busy == 0)
			cond_broadcast(&w->moved);
	}
	cond_broadcast(&w->moved);
	lock_give(&w->lock);
	return NULL;
}

static void add(struct usage_total *sum, const struct usage_total *t)
{
	sum->files += t->files;
	sum->folders += t->folders;
	sum->links += t->links;
	sum->others += t->others;
	sum->bytes += t->bytes;
	sum->disk_bytes += t->disk_bytes;
	sum->unreadable += t->unreadable;
}

static unsigned thread_count(unsigned asked)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (asked == 0)
		asked = USAGE_PER_CORE * (unsigned)(cores < 1 ? 1 : MIN(cores, USAGE_THREADS_MAX));
	return MIN(asked, (unsigned)USAGE_THREADS_MAX);
}

static int run(struct walk *w, unsigned threads, struct usage_total *sum, struct err *err)
{
	struct walker *all = xcalloc(threads, sizeof(*all));
	unsigned started = 0;

	for (unsigned i = 0; i < threads; i++) {
		all[i].magic = WALKER_MAGIC;
		all[i].w = w;
		all[i].slot = i;
		all[i].dents = xmalloc(USAGE_DENTS);
	}
	for (unsigned i = 1; i < threads; i++) {
		if (pthread_create(&all[i].thread, NULL, walker, &all[i]) != 0)
			break; /* fewer will do */
		started = i;
	}
	(void)walker(&all[0]);
	for (unsigned i = 1; i <= started; i++)
		(void)pthread_join(all[i].thread, NULL);
	for (unsigned i = 0; i < threads; i++) {
		add(sum, &all[i].total);
		free(all[i].dents);
		free(all[i].found);
	}
	free(all);
	assert(w->busy == 0 && (w->stop || w->n_pending == 0));
	if (!w->stop)
		return 0;
	*err = w->err;
	return -1;
}

int usage_walk_at(int root, const char *dir, unsigned threads,
                  void (*each)(void *arg, unsigned slot, const struct usage_entry *e), void *arg,
                  const atomic_bool *cancel, struct usage_total *out, struct err *err)
{
	struct walk w = {.lock = LOCK_INIT(LOCK_USAGE), .moved = COND_INIT};
	struct usage_total sum = {0};
	struct statx st;
	int rc;

	if (statx(root, "", AT_EMPTY_PATH, USAGE_STATX, &st) < 0)
		return err_errno(err, errno, "%s", dir);
	w.root = root;
	w.dev_major = st.stx_dev_major;
	w.dev_minor = st.stx_dev_minor;
	w.each = each;
	w.arg = arg;
	w.cancel = cancel;
	w.pending = xmalloc(sizeof(*w.pending));
	w.pending[0] = xstrdup(".");
	w.n_pending = w.cap_pending = 1;
	sum.disk_bytes = st.stx_blocks * 512;
	rc = run(&w, thread_count(threads), &sum, err);
	for (size_t i = 0; i < w.n_pending; i++)
		free(w.pending[i]);
	free(w.pending);
	free(w.seen.ino);
	if (rc < 0)
		return err_wrap(err, "usage of %s", dir);
	*out = sum;
	return 0;
}

int usage_walk(const char *dir, unsigned threads,
               void (*each)(void *arg, unsigned slot, const struct usage_entry *e), void *arg,
               const atomic_bool *cancel, struct usage_total *out, struct err *err)
{
	AUTO_FD int root = fs_open_dir(dir, err);

	return root < 0 ? -1 : usage_walk_at(root, dir, threads, each, arg, cancel, out, err);
}
