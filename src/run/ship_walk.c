/* ship_walk.c - looks at the checkpoint folder: facts, links into the spool, what vanished, space.
 */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#include <dirent.h>
#include <sys/statvfs.h>

#define DEPTH_MAX 32
#define SPACE_MS 1000
#define ODD_MAX 20 /* said of one attempt */
#define ODD_TEXT_MAX ((size_t)2000)

struct ship_group *ship_group_of(struct ship *s, const char *name)
{
	struct ship_group *g = map_get(s->groups, str_of(name));

	if (g != NULL)
		return g;
	g = xcalloc(1, sizeof(*g));
	g->name = xstrdup(name);
	TAILQ_INIT(&g->entries);
	(void)map_set(s->groups, str_of(name), g);
	TAILQ_INSERT_TAIL(&s->list, g, link);
	return g;
}

struct ship_entry *ship_entry_of(struct ship *s, struct str path)
{
	struct ship_entry *e = map_get(s->entries, path);
	char name[CKPT_NAME_MAX];

	if (e != NULL)
		return e;
	e = xcalloc(1, sizeof(*e));
	e->path = str_dup(path);
	e->temporary = ckpt_is_temporary(path);
	ckpt_name_of(path, name);
	e->group = ship_group_of(s, name);
	(void)map_set(s->entries, path, e);
	TAILQ_INSERT_TAIL(&s->all, e, link);
	TAILQ_INSERT_TAIL(&e->group->entries, e, peer);
	s->n_entries++;
	return e;
}

void ship_entry_drop(struct ship *s, struct ship_entry *e)
{
	char name[32];

	assert(e->state != SHIP_SENDING);
	if (e->state == SHIP_QUEUED)
		TAILQ_REMOVE(&s->queued, e, queue);
	if (e->id > 0) {
		FMT(name, "%" PRIu64, e->id);
		(void)unlinkat(s->spool_fd, name, 0);
	}
	TAILQ_REMOVE(&s->all, e, link);
	TAILQ_REMOVE(&e->group->entries, e, peer);
	(void)map_del(s->entries, str_of(e->path));
	s->n_entries--;
	free(e->path);
	free(e);
}

static struct ckpt_fact fact_of(const struct stat *st)
{
	return (struct ckpt_fact){.size = (uint64_t)st->st_size,
	                          .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 +
	                                      st->st_mtim.tv_nsec,
	                          .ino = st->st_ino};
}

static bool same(const struct ckpt_fact *a, const struct ckpt_fact *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ino == b->ino;
}

static void link_to_spool(struct ship *s, struct ship_entry *e, int dirfd, const char *name)
{
	char spool[32];

	if (e->id > 0) { /* another file has taken its place */
		FMT(spool, "%" PRIu64, e->id);
		(void)unlinkat(s->spool_fd, spool, 0);
		e->id = 0;
	}
	if (e->temporary && !s->final)
		return; /* it will be renamed */
	FMT(spool, "%" PRIu64, s->next_id);
	if (linkat(dirfd, name, s->spool_fd, spool, 0) < 0)
		return; /* another file system, or not ours: sent from its place */
	e->id = s->next_id++;
	ship_journal_link(s, e);
}

/* New or changed content of an entry: what was queued or sent of it is void. */
static void touch(struct ship *s, struct ship_entry *e, const struct ckpt_fact *now)
{
	struct ship_group *g = e->group;
	int64_t mono = clock_mono_ms();
	/* a file that was already old when we first saw it (a resumed shipper, a rename) need not
	 * settle once more */
	int64_t age = MAX(clock_wall_ms() - now->mtime_ns / 1000000, 0);

	e->fact = *now;
	e->fact.changed_mono_ms = e->walk == 0 ? mono - MIN(age, mono) : mono;
	if (e->state == SHIP_QUEUED)
		TAILQ_REMOVE(&s->queued, e, queue);
	if (e->state == SHIP_SENDING)
		e->dirty = true;
	else
		e->state = SHIP_WAIT;
	g->changed_ms = MAX(g->changed_ms, e->fact.changed_mono_ms);
	g->grown_walk = s->walk;
	g->gone_walk = 0;
}

static bool see(struct ship *s, int dirfd, const char *name, struct str path, const struct stat *st)
{
	struct ckpt_fact now = fact_of(st);
	struct ship_entry *e = NULL;
	bool changed = false;

	if (map_get(s->entries, path) == NULL && s->n_entries >= CKPT_FILES_MAX) {
		s->too_many = true;
		return false;
	}
	e = ship_entry_of(s, path);
	if (e->gone) { /* it is back: also what the journal told, seen for the first time */
		e->gone = false;
		changed = true;
	}
	if (e->walk == 0 && e->state == SHIP_SENT && same(&e->sent, &now)) {
		e->fact = e->sent; /* sent by a shipper before us */
	} else if (e->walk == 0 || !same(&e->fact, &now)) {
		bool other = e->id == 0 || e->fact.ino != now.ino;

		touch(s, e, &now);
		if (other)
			link_to_spool(s, e, dirfd, name);
		changed = true;
	}
	e->walk = s->walk;
	return changed;
}

/* Why this is not kept, NULL = it is, or holds nothing. */
static const char *why_odd(const struct stat *st, struct str path, bool cut, int depth)
{
	if (S_ISLNK(st->st_mode))
		return "a symbolic link";
	if (S_ISDIR(st->st_mode))
		return depth < DEPTH_MAX ? NULL : "too deep a folder";
	if (!S_ISREG(st->st_mode))
		return "a pipe, a socket or a device";
	if (cut)
		return "too long a path";
	if (!fs_path_is_plain(path) || memchr(path.p, '\n', path.n) != NULL ||
	    memchr(path.p, '\r', path.n) != NULL)
		return "control characters in its name";
	return NULL;
}

static void note_odd(struct ship *s, struct str path, const char *why)
{
	if (map_get(s->odd, path) == NULL && map_count(s->odd) < ODD_MAX)
		(void)map_set(s->odd, path, (void *)(uintptr_t)why);
}

struct odd_news {
	struct buf *text;
	size_t skip; /* said before */
};

static void add_odd(struct str path, void *why, void *arg)
{
	struct odd_news *news = arg;

	if (news->skip > 0) {
		news->skip--;
		return;
	}
	buf_puts(news->text, news->text->n > 0 ? ", " : "");
	for (size_t i = 0; i < path.n; i++)
		buf_putc(news->text, (unsigned char)path.p[i] < 0x20 ? '?' : path.p[i]);
	buf_printf(news->text, " (%s)", (const char *)why);
}

/* What is left out is said, once: without it the checkpoint may be of no use. */
void ship_say_odd(struct ship *s)
{
	AUTO_BUF struct buf text = BUF_INIT(ODD_TEXT_MAX);
	AUTO_BUF struct buf odd = BUF_INIT(ODD_TEXT_MAX);
	struct odd_news news = {.text = &odd};

	(void)pthread_mutex_lock(&s->lock);
	news.skip = s->odd_said;
	map_each(s->odd, add_odd, &news);
	s->odd_said = map_count(s->odd);
	(void)pthread_mutex_unlock(&s->lock);
	if (odd.n > 0) {
		buf_printf(&text, "only plain files of the checkpoint folder are kept, not %s",
		           buf_cstr(&odd));
		s->o.event(s->o.arg, "warning", buf_cstr(&text));
	}
}

/* A folder's entries, with the lock held: opening, reading and linking are local and quick. */
static bool walk_dir(struct ship *s, int dirfd, struct buf *path, int depth)
{
	DIR *d = fdopendir(dirfd);
	bool changed = false;

	if (d == NULL) {
		(void)close(dirfd);
		return false;
	}
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		size_t keep = path->n;
		const char *why = NULL;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strncmp(e->d_name, ".nfs", 4) == 0 ||
		    (depth == 0 && strcmp(e->d_name, ".stoker") == 0)) /* manifests' place */
			continue;
		if (fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* gone meanwhile */
		buf_printf(path, "%s%s", keep > 0 ? "/" : "", e->d_name);
		why = why_odd(&st, buf_view(path), path->full, depth);
		if (why != NULL) {
			note_odd(s, buf_view(path), why);
		} else if (S_ISREG(st.st_mode)) {
			changed = see(s, dirfd, e->d_name, buf_view(path), &st) || changed;
		} else {
			int fd = openat(dirfd, e->d_name,
			                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (fd >= 0)
				changed = walk_dir(s, fd, path, depth + 1) || changed;
		}
		path->n = keep;
		path->full = false;
	}
	(void)closedir(d);
	return changed;
}

/* Under its new name it is there: the old one was a rename's source. */
static bool was_renamed(struct ship *s, const struct ship_entry *gone)
{
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &s->all, link)
	{
		if (e != gone && !e->gone && e->walk == s->walk && e->fact.ino == gone->fact.ino)
			return true;
	}
	return false;
}

/* Content of what is only in the spool may still be written through an open descriptor. */
static void restat_spooled(struct ship *s, struct ship_entry *e)
{
	struct stat st;
	struct ckpt_fact now;
	char name[32];

	FMT(name, "%" PRIu64, e->id);
	if (fstatat(s->spool_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	now = fact_of(&st);
	if (!same(&e->fact, &now))
		touch(s, e, &now);
}

static bool settle_gone(struct ship *s)
{
	struct ship_entry *e = NULL, *next = NULL;
	bool changed = false;

	for (e = TAILQ_FIRST(&s->all); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->walk == s->walk || e->state == SHIP_SENDING)
			continue;
		if (!e->gone) {
			e->gone = true;
			changed = true;
			e->group->changed_ms = MAX(e->group->changed_ms, clock_mono_ms());
			if (e->group->gone_walk == 0)
				e->group->gone_walk = s->walk;
			if (was_renamed(s, e)) {
				ship_entry_drop(s, e);
				continue;
			}
		}
		if (e->id > 0 && e->state != SHIP_SENT)
			restat_spooled(s, e);
		else if (e->id == 0 && e->state != SHIP_SENT)
			ship_entry_drop(s, e); /* never linked: a temporary one */
	}
	return changed;
}

bool ship_walk(struct ship *s)
{
	AUTO_BUF struct buf path = BUF_INIT(FS_PATH_MAX);
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool changed = false;

	s->walk++;
	if (s->alive_fd >= 0) /* only says when the trainer was last alive: lost, it costs little */
		(void)futimens(s->alive_fd, NULL);
	if (fd < 0)
		return false;
	changed = walk_dir(s, fd, &path, 0);
	return settle_gone(s) || changed;
}

/* The largest checkpoint so far: the next one will ask for as much. */
static uint64_t largest(struct ship *s)
{
	struct ship_group *g = NULL;
	uint64_t most = 0;

	(void)pthread_mutex_lock(&s->lock);
	TAILQ_FOREACH(g, &s->list, link)
	{
		struct ship_entry *e = NULL;
		uint64_t sum = 0;

		TAILQ_FOREACH(e, &g->entries, peer)
		sum += e->fact.size;
		most = MAX(most, sum);
	}
	s->most_bytes = MAX(s->most_bytes, most);
	most = s->most_bytes;
	(void)pthread_mutex_unlock(&s->lock);
	return most;
}

/* Before it happens: at 80 and at 90 percent, and when another checkpoint like the largest would
 * not fit, which counts as 90. On the store's own disk it is there twice until it is shipped.
 * Called without the lock. */
void ship_check_space(struct ship *s)
{
	struct ship_totals t;
	struct statvfs fs;
	uint64_t used = 0, total = 0, need;
	int percent = 0;
	bool tight;
	char text[300];

	if (clock_mono_ms() - s->space_ms < SPACE_MS)
		return;
	s->space_ms = clock_mono_ms();
	ship_totals(s, &t);
	if (s->o.volume_bytes > 0) {
		used = t.bytes;
		total = s->o.volume_bytes;
	} else if (fstatvfs(s->dir_fd, &fs) == 0 && fs.f_blocks > 0) {
		total = (uint64_t)fs.f_blocks * fs.f_frsize;
		used = total - MIN(total, (uint64_t)fs.f_bavail * fs.f_frsize);
	}
	percent = total == 0 ? 0 : (int)((double)used * 100 / (double)total);
	need = largest(s) * (s->o.volume_bytes > 0 ? 1 : 2);
	tight = total > 0 && (percent >= 90 || total - MIN(total, used) < need);
	if (percent < 75 && !tight)
		s->warned = 0;
	if ((percent < 80 && !tight) || (!tight && s->warned >= 80) || s->warned >= 90)
		return;
	s->warned = tight ? 90 : 80;
	FMT(text, "the checkpoint folder's %s is %d%% full: %" PRIu64 " of %" PRIu64 " MB%s",
	    s->o.volume_bytes > 0 ? "volume" : "disk", percent, used / 1000000, total / 1000000,
	    tight ? "; the next checkpoint may fail" : "");
	s->o.event(s->o.arg, "warning", text);
}
