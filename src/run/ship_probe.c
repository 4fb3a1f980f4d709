/*
 * ship_probe.c - who writes into a file? Asked of the kernel by a lease for reading, which is
 * refused while anybody has the file open for writing, by whatever name, or mapped writable though
 * closed; it is given back at once, for who opens the file meanwhile has to wait. Where leases are
 * not ours to have, descriptors and mappings of the processes that we may look at.
 */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#include <dirent.h>
#include <signal.h>
#include <sys/sysmacros.h>

#define PROCESSES_MAX 65536
#define DESCRIPTORS_MAX 65536 /* of one process */
#define PROBES_MAX 8192       /* in one pass: the rest is asked in the next */
#define FDINFO_MAX ((size_t)4096)
#define MAPS_MAX ((size_t)16 << 20)

/* A lease that is broken while we hold it sends a signal; this one is ignored unless somebody
 * wants it. */
#define LEASE_SIGNAL SIGURG

static int try_lease(int fd)
{
	int r = fcntl(fd, F_SETLEASE, F_RDLCK);

	if (r == 0)
		(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return r;
}

/* A lease is for the owner of a file, or for root of the machine, which a confined runner is not:
 * for it, files are the job's. */
static int lease(const struct ship *s, int fd)
{
	int r = try_lease(fd), error;

	if (r == 0 || errno != EACCES || s->o.ids == NULL || !s->o.ids->on)
		return r;
	ids_begin(s->o.ids);
	r = try_lease(fd);
	error = errno;
	ids_end(s->o.ids);
	errno = error;
	return r;
}

enum ship_writer ship_probe_fd(struct ship *s, int fd)
{
	(void)fcntl(fd, F_SETSIG, LEASE_SIGNAL);
	if (lease(s, fd) == 0)
		return SHIP_WRITER_NONE;
	if (errno == EAGAIN || errno == EBUSY)
		return SHIP_WRITER;
	s->no_lease = true;
	return SHIP_WRITER_UNKNOWN;
}

/* ---- without leases: what processes have open --------------------------------------------------
 */

/* Device and inode -> itself, of files that somebody writes. */
struct writers {
	struct map *files;
	bool blind; /* there are processes that we may not look at */
};

static void add_writer(struct writers *w, uint64_t dev, uint64_t ino)
{
	struct ship_fact f = {.dev = dev, .ino = ino};

	(void)map_set(w->files, ship_inode(&f), w);
}

/* "flags:	0100002": octal, the lowest two bits say how it was opened. */
static bool is_for_writing(int proc_fd, const char *pid, const char *fd)
{
	AUTO_BUF struct buf text = BUF_INIT(FDINFO_MAX);
	char path[600];
	const char *at;
	struct err err = {0};

	(void)snprintf(path, sizeof(path), "%s/fdinfo/%s", pid, fd);
	if (fs_read(proc_fd, path, &text, &err) < 0)
		return false;
	at = strstr(buf_cstr(&text), "flags:");
	return at != NULL && (strtoul(at + strlen("flags:"), NULL, 8) & O_ACCMODE) != O_RDONLY;
}

static void descriptors_of(int proc_fd, const char *pid, struct writers *w)
{
	char path[320];
	int fd;
	DIR *d = NULL;
	size_t n = 0;

	(void)snprintf(path, sizeof(path), "%s/fd", pid);
	fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		w->blind = w->blind || errno == EACCES || errno == EPERM;
		return;
	}
	d = fdopendir(fd);
	if (d == NULL) {
		(void)close(fd);
		return;
	}
	for (struct dirent *e = readdir(d); e != NULL && n++ < DESCRIPTORS_MAX; e = readdir(d)) {
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(fd, e->d_name, &st, 0) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (is_for_writing(proc_fd, pid, e->d_name))
			add_writer(w, st.st_dev, st.st_ino);
	}
	(void)closedir(d);
}

/* "7f..-7f.. rw-s 00000000 fd:01 1234 /path": shared, and may be written. */
static void mappings_of(int proc_fd, const char *pid, struct writers *w)
{
	AUTO_BUF struct buf text = BUF_INIT(MAPS_MAX);
	struct str rest, line;
	struct err err = {0};
	char path[320];

	(void)snprintf(path, sizeof(path), "%s/maps", pid);
	if (fs_read(proc_fd, path, &text, &err) < 0)
		return;
	rest = buf_view(&text);
	while (str_cut(&rest, '\n', &line)) {
		unsigned major_no, minor_no;
		uint64_t ino;
		char mode[8], one[200];

		(void)snprintf(one, sizeof(one), "%.*s", (int)MIN(line.n, sizeof(one) - 1), line.p);
		if (sscanf(one, "%*s %7s %*s %x:%x %" SCNu64, mode, &major_no, &minor_no, &ino) ==
		            4 &&
		    mode[1] == 'w' && mode[3] == 's' && ino != 0)
			add_writer(w, makedev(major_no, minor_no), ino);
	}
}

static bool is_number(const char *name)
{
	return name[0] != '\0' && strspn(name, "0123456789") == strlen(name);
}

static void find_writers(struct writers *w)
{
	DIR *d = opendir("/proc");
	size_t n = 0;

	w->blind = d == NULL;
	if (d == NULL)
		return;
	for (struct dirent *e = readdir(d); e != NULL && n < PROCESSES_MAX; e = readdir(d)) {
		if (!is_number(e->d_name))
			continue;
		n++;
		descriptors_of(dirfd(d), e->d_name, w);
		mappings_of(dirfd(d), e->d_name, w);
	}
	(void)closedir(d);
}

/* ---- a pass over what changes ------------------------------------------------------------------
 */

struct asked {
	char *path;
	uint64_t id;
	struct ship_fact fact;
	enum ship_writer is;
};

static bool is_due(const struct ship *s, const struct ship_entry *e, int64_t now)
{
	if (e->closed || e->state == SHIP_SENT || e->kind == FORMAT_NAME_LOG ||
	    e->kind == FORMAT_NAME_TEMPORARY)
		return false;
	return e->probe_ms == 0 || s->probe_now || now - e->probe_ms >= SHIP_PROBE_MS;
}

static size_t collect(struct ship *s, struct buf *out)
{
	struct ship_entry *e = NULL;
	int64_t now = clock_mono_ms();
	size_t n = 0;

	lock_take(&s->lock);
	TAILQ_FOREACH(e, &s->all, link)
	{
		struct asked a = {.id = e->id, .fact = e->fact};

		if (n == PROBES_MAX || !is_due(s, e, now))
			continue;
		a.path = xstrdup(e->path);
		e->probe_ms = now;
		buf_add(out, &a, sizeof(a));
		n++;
	}
	s->probe_now = false;
	lock_give(&s->lock);
	return n;
}

static enum ship_writer ask(struct ship *s, const struct asked *a)
{
	AUTO_FD int fd = ship_open(s, a->id, a->path);

	return fd >= 0 ? ship_probe_fd(s, fd) : SHIP_WRITER_UNKNOWN;
}

/* With the lock. A writer counts as a change. */
static void answer(struct ship *s, const struct asked *a)
{
	struct ship_entry *e = map_get(s->entries, str_of(a->path));
	int64_t now = clock_mono_ms();

	if (e == NULL || !ship_same(&e->fact, &a->fact))
		return;
	e->group->news = e->group->news || e->writer != (a->is == SHIP_WRITER);
	e->writer = a->is == SHIP_WRITER;
	if (a->is == SHIP_WRITER) {
		e->writer_ms = now;
		e->writer_size = a->fact.size;
		e->group->changed_ms = MAX(e->group->changed_ms, now);
	} else if (a->is == SHIP_WRITER_NONE) {
		e->closed = true;
		e->group->news = true;
		ship_journal_closed(s, e);
	}
}

void ship_probe(struct ship *s)
{
	AUTO_BUF struct buf asked = BUF_INIT(PROBES_MAX * sizeof(struct asked));
	AUTO_MAP struct map *files = map_new();
	struct writers w = {.files = files};
	struct asked *a = NULL;
	size_t n = collect(s, &asked);
	bool slow = false;

	a = (struct asked *)(void *)asked.p;
	for (size_t i = 0; i < n; i++) {
		if (!s->no_lease)
			a[i].is = ask(s, &a[i]);
		else
			a[i].is = SHIP_WRITER_UNKNOWN;
		slow = slow || (s->no_lease && a[i].is == SHIP_WRITER_UNKNOWN);
	}
	if (slow)
		find_writers(&w);
	lock_take(&s->lock);
	s->remote = s->network || (s->no_lease && w.blind) || s->blind;
	for (size_t i = 0; i < n; i++) {
		if (slow && a[i].is == SHIP_WRITER_UNKNOWN)
			a[i].is = map_get(files, ship_inode(&a[i].fact)) != NULL ? SHIP_WRITER
			          : w.blind ? SHIP_WRITER_UNKNOWN
			                    : SHIP_WRITER_NONE;
		answer(s, &a[i]);
		free(a[i].path);
	}
	lock_give(&s->lock);
}
