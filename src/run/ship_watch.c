/*
 * ship_watch.c - inotify over the folders of a checkpoint folder: what happens wakes the walker,
 * which looks itself. Events decide nothing by themselves, for some never come (mapped writes,
 * remote file systems, an overflow); but a folder that is made and renamed between two looks is
 * known by its event alone.
 */
#include "base/map.h"
#include "run/ship_table.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

#define EVENTS (IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE)
#define PIECE ((size_t)65536)

struct ship_watch {
	int fd, stop_fd;
	char *piece; /* PIECE bytes; under the ship's lock, as is all reading */
	pthread_t thread;
	struct map *paths; /* descriptor of a watch -> path of its folder; under the ship's lock */
};

static struct str key_of(const int *wd)
{
	return str_n((const char *)wd, sizeof(*wd));
}

/* A folder got a name. */
static void moved(struct ship *s, const struct inotify_event *e)
{
	const char *parent = map_get(s->watch->paths, key_of(&e->wd));
	AUTO_BUF struct buf path = BUF_INIT(FS_PATH_MAX);

	if (parent == NULL || e->len == 0)
		return;
	buf_printf(&path, "%s%s%s", parent, parent[0] != '\0' ? "/" : "", e->name);
	if (!path.full)
		ship_note_moved(s, buf_view(&path));
}

static void forget(struct ship *s, int wd)
{
	free(map_del(s->watch->paths, key_of(&wd)));
}

static void take(struct ship *s, const char *piece, size_t n)
{
	for (size_t at = 0; at + sizeof(struct inotify_event) <= n;) {
		struct inotify_event e;

		memcpy(&e, piece + at, sizeof(e));
		if ((e.mask & IN_IGNORED) != 0)
			forget(s, e.wd);
		s->probe_now = s->probe_now || (e.mask & IN_CLOSE_WRITE) != 0;
		if ((e.mask & IN_MOVED_TO) != 0 && (e.mask & IN_ISDIR) != 0)
			moved(s, (const struct inotify_event *)(const void *)(piece + at));
		at += sizeof(e) + e.len;
	}
	s->woken = true;
	cond_broadcast(&s->changed);
}

bool ship_watch_take(struct ship *s)
{
	ssize_t n = 1;

	assert(lock_is_mine(&s->lock));
	while (s->watch != NULL && n > 0) {
		n = read(s->watch->fd, s->watch->piece, PIECE);
		if (n > 0)
			take(s, s->watch->piece, (size_t)n);
	}
	return n >= 0 || errno == EAGAIN || errno == EINTR;
}

static void *watcher(void *ship)
{
	struct ship *s = ship_at(ship);
	bool goes_on = true; /* else walks go on without it */

	while (goes_on) {
		struct pollfd p[] = {{.fd = s->watch->fd, .events = POLLIN},
		                     {.fd = s->watch->stop_fd, .events = POLLIN}};

		(void)poll(p, COUNT(p), -1);
		if (p[1].revents != 0)
			break;
		lock_take(&s->lock);
		goes_on = ship_watch_take(s);
		lock_give(&s->lock);
	}
	return NULL;
}

void ship_watch_start(struct ship *s)
{
	struct ship_watch *w = xcalloc(1, sizeof(*w));

	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->paths = map_new();
	w->piece = xmalloc(PIECE);
	s->watch = w;
	if (w->fd >= 0 && w->stop_fd >= 0 && pthread_create(&w->thread, NULL, watcher, s) == 0)
		return;
	s->watch = NULL;
	s->blind = true;
	close_fd_p(&w->fd);
	close_fd_p(&w->stop_fd);
	map_free(w->paths);
	free(w->piece);
	free(w);
}

void ship_watch_folder(struct ship *s, int dirfd, const char *path)
{
	char place[64];
	int wd;

	if (s->watch == NULL || s->walked_final)
		return;
	FMT(place, "/proc/self/fd/%d", dirfd);
	lock_take(&s->lock);
	if (map_count(s->watch->paths) >= SHIP_WATCHES_MAX) {
		s->blind = true;
	} else {
		wd = inotify_add_watch(s->watch->fd, place, EVENTS | IN_ONLYDIR | IN_EXCL_UNLINK);
		if (wd >= 0)
			free(map_set(s->watch->paths, key_of(&wd), xstrdup(path)));
		else if (errno == ENOSPC || errno == ENOMEM)
			s->blind = true; /* the user's limit of watches */
	}
	lock_give(&s->lock);
}

static void free_path(struct str key UNUSED, void *path, void *arg UNUSED)
{
	free(path);
}

void ship_watch_stop(struct ship *s)
{
	struct ship_watch *w = s->watch;
	uint64_t one = 1;

	if (w == NULL)
		return;
	if (write(w->stop_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		abort(); /* an eventfd that is not full takes it */
	(void)pthread_join(w->thread, NULL);
	(void)close(w->fd);
	(void)close(w->stop_fd);
	map_each(w->paths, free_path, NULL);
	map_free(w->paths);
	free(w->piece);
	free(w);
	s->watch = NULL;
}
