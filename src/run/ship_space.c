/* ship_space.c - says before it happens that the checkpoint folder's disk or volume is full. */
#include "base/clock.h"
#include "run/ship_table.h"

#include <libgen.h>

#include <sys/statvfs.h>

#define SPACE_MS 1000

/* The largest checkpoint so far: the next one will ask for as much. */
static uint64_t largest(struct ship *s)
{
	struct ship_group *g = NULL;
	uint64_t most = 0;

	lock_take(&s->lock);
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
	lock_give(&s->lock);
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

/* Its name, beneath the folder: the trainer may have left links on the way. */
static bool remove_beneath(struct ship *s, const char *path)
{
	AUTO_FREE char *dir = xstrdup(path), *base = xstrdup(path);
	struct err err = {0};
	AUTO_FD int fd = fs_open_beneath(s->dir_fd, dirname(dir),
	                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, &err);

	return fd >= 0 && unlinkat(fd, basename(base), 0) == 0;
}

bool ship_make_room(struct ship *s)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ship_entry *e = NULL;
	const char **path = NULL;
	size_t n = 0;
	bool made = false;

	lock_take(&s->lock);
	if (s->walked_final) {
		path = ARENA_ARRAY(a, const char *, s->n_entries + 1);
		TAILQ_FOREACH(e, &s->all, link)
		{
			if (e->state != SHIP_SENT || e->gone || !e->group->written)
				continue;
			path[n++] = arena_cstr(a, e->path);
			ship_spool_doom(s, e->id);
			e->id = 0;
			e->gone = true;
		}
	}
	lock_give(&s->lock);
	ship_spool_sweep(s);
	for (size_t i = 0; i < n; i++)
		made = remove_beneath(s, path[i]) || made;
	return made;
}
