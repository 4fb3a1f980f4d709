/*
 * ship_walk.c - looks at the checkpoint folder: facts, links into the spool, what vanished.
 *
 * A folder is read in batches: names and facts without the lock, then the tables with it, then the
 * links without it again. The job may exchange anything for anything meanwhile: what was linked is
 * looked at afterwards, and counts only when it is the plain file that was seen.
 */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#include <dirent.h>

#define DEPTH_MAX 32

struct status {
	size_t name; /* in names */
	struct ship_fact fact;
	uint64_t links;
	uint64_t id; /* the link to make, 0 = none */
};

struct walk {
	struct ship *s;
	struct buf path;  /* of the folder that is read, then of a file in it */
	struct buf names; /* of the batch, each with its NUL */
	struct status status[SHIP_BATCH];
	size_t n;
	bool changed;
};

/* A name of its own in the walk's path; give back what this returns. */
static size_t push(struct walk *w, const char *name)
{
	size_t keep = w->path.n;

	buf_printf(&w->path, "%s%s", keep > 0 ? "/" : "", name);
	return keep;
}

static void pop(struct walk *w, size_t keep)
{
	w->path.n = keep;
	w->path.full = false;
}

/* The group that a path which cannot be kept belongs to, when it is one with a name that can. */
static struct ship_group *group_at(struct ship *s, const struct buf *path, bool folder)
{
	AUTO_FREE char *whole = xasprintf("%s%s", buf_cstr(path), folder ? "/x" : "");
	char name[CKPT_NAME_MAX];

	ckpt_name_of(str_of(whole), name);
	return ckpt_path_fault(str_of(name)) == NULL || strcmp(name, ".") == 0
	               ? ship_group_of(s, name)
	               : NULL;
}

/* Cannot be kept, and is missed: its checkpoint is not whole. */
static void fault(struct walk *w, bool folder, const char *why)
{
	struct ship *s = w->s;
	struct str path = buf_view(&w->path);
	struct ship_group *g = NULL;

	lock_take(&s->lock);
	ship_note_odd(s, path, why);
	g = group_at(s, &w->path, folder);
	if (g != NULL)
		ship_group_fault(s, g, path, why);
	else
		s->lost = true;
	lock_give(&s->lock);
}

/* Holds nothing that could be kept: left out, with a word. */
static void leave_out(struct walk *w, const char *why)
{
	lock_take(&w->s->lock);
	ship_note_odd(w->s, buf_view(&w->path), why);
	lock_give(&w->s->lock);
}

/* The longest pause within a checkpoint that is not whole yet. */
static void learn_pause(struct ship *s, const struct ship_group *g, int64_t now)
{
	if (g->changed_ms > 0 && !g->written && !g->base.there)
		s->pause_ms = MAX(s->pause_ms, now - g->changed_ms);
}

/* Another file under its name, or its bytes once more. One that is copied in only grows, and may
 * get an older time at its end. */
static bool is_written_again(const struct ship_fact *was, const struct ship_fact *is)
{
	return is->ino != was->ino || is->size < was->size ||
	       (is->size == was->size && is->mtime_ns > was->mtime_ns);
}

/* The ones before it need not wait for quiet any more. */
static void wake_siblings(struct ship *s, const struct ship_group *g)
{
	struct ship_group *o = NULL;

	TAILQ_FOREACH(o, &s->list, link)
	o->news = o->news || strcmp(o->lineage, g->lineage) == 0;
}

/* A writer who had closed the file and comes back begins anew; a file that gets its name when it is
 * written began under another one. */
static void note_began(struct ship *s, struct ship_entry *e, const struct ship_fact *now)
{
	const struct ship_entry *was = map_get(s->inodes, ship_inode(now));

	if (was != NULL && was != e && was->began_ms != 0)
		e->began_ms = was->began_ms;
	else if (e->began_ms == 0 || e->closed)
		e->began_ms = clock_wall_ms();
}

/* New or changed content of an entry: what was queued or sent of it is void. */
static void touch(struct ship *s, struct ship_entry *e, const struct ship_fact *now)
{
	struct ship_group *g = e->group;
	int64_t mono = clock_mono_ms(), changed = mono;

	/* Files that were there before our first walk need not wait once more. Only ctime cannot
	 * lie; our own link of before may have set it, which makes it younger. */
	if (e->walk == 0 && s->walk == 1)
		changed = mono - MIN(MAX(clock_wall_ms() - now->ctime_ns / 1000000, 0), mono);
	if (e->walk > 0 && is_written_again(&e->fact, now))
		e->again_walk = s->walk;
	note_began(s, e, now);
	ship_entry_seen(s, e, now);
	if (e->walk == 0 && ship_same(&e->was_closed, now))
		e->fact.ctime_ns = e->was_closed.ctime_ns;
	e->changed_ms = changed;
	e->changed_walk = s->walk;
	e->closed = e->walk == 0 && ship_same(&e->was_closed, now);
	e->retry_ms = 0;
	if (!e->refused || e->walk > 0) {
		free(e->fault);
		e->fault = NULL;
		e->refused = false;
	}
	if (e->state == SHIP_SENDING)
		e->dirty = true;
	else
		ship_entry_to(s, e, SHIP_WAIT);
	if (!ship_counts(e)) {
		g->stale = g->news = true;
		return;
	}
	g->version++;
	g->stale = true;
	learn_pause(s, g, changed);
	g->changed_ms = MAX(g->changed_ms, changed);
	if (g->grown_walk == 0)
		wake_siblings(s, g);
	g->grown_walk = s->walk;
	g->gone_walk = 0;
	g->written = false;
	g->news = true;
	if (g->moved_walk != s->walk)
		g->moved_walk = 0; /* its folder came whole, and something was added since */
}

/* Has the content changed since the last look, or may it have? Another ctime alone, with as many
 * links as before, is a time that was set back or a mode: looked at again. */
static bool is_other(const struct ship_entry *e, const struct status *now)
{
	if (e->walk == 0)
		return e->state != SHIP_SENT || !ship_same(&e->sent, &now->fact);
	return !ship_same(&e->fact, &now->fact) ||
	       (e->base_ctime_ns != now->fact.ctime_ns && e->links == now->links);
}

/* It has no link, and the next try may succeed: not so where the spool is on another file system or
 * in another project, or where links to such a file are not ours to make. */
static bool links_later(const struct ship_entry *e)
{
	int why = e->link_fault;

	return why != 0 && why != EXDEV && why != EPERM && why != EMLINK && why != EOPNOTSUPP &&
	       e->id == 0 && e->state != SHIP_SENT;
}

/* One file of the batch, with the lock; *id: the link that is wanted. */
static bool see(struct ship *s, struct str path, const struct status *now, uint64_t *id)
{
	struct ship_entry *e = map_get(s->entries, path);
	bool changed = false, other;

	if (e == NULL && s->n_entries >= CKPT_FILES_MAX) {
		s->too_many = true;
		return false;
	}
	if (e == NULL) {
		e = ship_entry_of(s, path);
		e->first_walk = s->walk;
	}
	if (e->gone) { /* it is back: also what the journal told, seen for the first time */
		e->gone = false;
		changed = true;
	}
	other = is_other(e, now);
	if (other) {
		e->relink = e->relink || e->id == 0 || e->own || e->fact.ino != now->fact.ino;
		touch(s, e, &now->fact);
		changed = true;
	}
	/* a temporary one will be renamed; the file that is being sent stays as it is */
	if ((e->relink || links_later(e)) && e->state != SHIP_SENDING &&
	    (e->kind != FORMAT_NAME_TEMPORARY || s->final)) {
		e->relink = false;
		*id = s->next_id++;
	}
	e->base_ctime_ns = now->fact.ctime_ns;
	e->links = now->links;
	e->walk = s->walk;
	(void)map_set(s->inodes, ship_inode(&e->fact), e);
	return changed;
}

/* Takes note of a link that was made, or was not: `why` is what ship_spool_link() said. */
static void attach(struct ship *s, struct str path, const struct status *now, bool made, int why,
                   const struct stat *after)
{
	struct ship_entry *e = map_get(s->entries, path);
	struct ship_fact f = made ? ship_fact_of(after) : (struct ship_fact){0};

	if (e != NULL)
		e->link_fault = why;
	if (!made)
		return;
	/* who sends it from its place needs no link, but may fail */
	if (e == NULL || !ship_same(&e->fact, &now->fact) ||
	    (e->state == SHIP_SENDING && e->id > 0)) {
		ship_spool_doom(s, now->id);
		if (e != NULL && e->state != SHIP_SENT)
			e->relink = true;
		return;
	}
	ship_spool_doom(s, e->id);
	e->id = now->id;
	e->own = e->forgotten = false;
	e->base_ctime_ns = f.ctime_ns; /* ours */
	e->links = after->st_nlink;
	ship_journal_link(s, e);
}

/* The batch: into the tables, and what they ask for into the spool. */
static void flush(struct walk *w, int dirfd)
{
	struct ship *s = w->s;
	bool linked = false;

	lock_take(&s->lock);
	for (size_t i = 0; i < w->n; i++) {
		size_t keep = push(w, w->names.p + w->status[i].name);

		w->changed =
			see(s, buf_view(&w->path), &w->status[i], &w->status[i].id) || w->changed;
		linked = linked || w->status[i].id > 0;
		pop(w, keep);
	}
	lock_give(&s->lock);
	for (size_t i = 0; linked && i < w->n; i++) {
		const char *name = w->names.p + w->status[i].name;
		struct stat after;
		size_t keep;
		bool made;
		int why = 0;

		if (w->status[i].id == 0)
			continue;
		made = ship_spool_link(s, dirfd, name, w->status[i].id, &w->status[i].fact, &after,
		                       &why);
		keep = push(w, name);
		lock_take(&s->lock);
		attach(s, buf_view(&w->path), &w->status[i], made, why, &after);
		lock_give(&s->lock);
		pop(w, keep);
	}
	w->n = 0;
	buf_clear(&w->names);
}

/* A folder that has another name than at the last look was renamed: its checkpoint is published by
 * that. */
static void know_folder(struct walk *w, const struct stat *st)
{
	struct ship *s = w->s;
	struct ship_fact f = ship_fact_of(st);
	char *old = NULL;

	lock_take(&s->lock);
	if (map_get(s->folders, ship_inode(&f)) != NULL || map_count(s->folders) < SHIP_FOLDERS_MAX)
		old = map_set(s->folders, ship_inode(&f), str_dup(buf_view(&w->path)));
	if (old != NULL && strcmp(old, buf_cstr(&w->path)) != 0)
		ship_note_moved(s, buf_view(&w->path));
	lock_give(&s->lock);
	free(old);
}

/* mode 0000, owner 1000: what keeps us from reading it */
static void unreadable(struct walk *w, const struct stat *st, int why)
{
	char text[160];

	FMT(text, "cannot be read: %s (mode %04o, owner %u)", strerror(why),
	    (unsigned)(st->st_mode & 07777), (unsigned)st->st_uid);
	fault(w, true, text);
}

/* Files go into the batch; folders into `below`, for later. */
static void look_at(struct walk *w, int dirfd, const char *name, struct buf *below)
{
	size_t keep = push(w, name);
	const char *why =
		w->path.full ? "its path is too long" : ckpt_path_fault(buf_view(&w->path));
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		; /* gone meanwhile */
	} else if (S_ISLNK(st.st_mode)) {
		leave_out(w, "a symbolic link");
	} else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
		leave_out(w, "it is a pipe, a socket or a device");
	} else if (why != NULL && str_eq(buf_view(&w->path), ".stoker")) {
		leave_out(w, why);
	} else if (why != NULL) {
		fault(w, S_ISDIR(st.st_mode), why);
	} else if (S_ISDIR(st.st_mode)) {
		buf_add(below, name, strlen(name) + 1);
	} else {
		w->status[w->n++] = (struct status){
			.name = w->names.n, .fact = ship_fact_of(&st), .links = st.st_nlink};
		buf_add(&w->names, name, strlen(name) + 1);
	}
	pop(w, keep);
	if (w->n == SHIP_BATCH)
		flush(w, dirfd);
}

static void walk_dir(struct walk *w, int dirfd, int depth);

static void enter(struct walk *w, int dirfd, const char *name, int depth)
{
	size_t keep = push(w, name);
	struct stat st;
	int fd = -1;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			unreadable(w, &st, errno); /* neither gone nor exchanged */
		else if (fd >= 0 && depth >= DEPTH_MAX)
			fault(w, true, "its folder is too deep");
	}
	if (fd >= 0 && depth < DEPTH_MAX) {
		know_folder(w, &st);
		walk_dir(w, TAKE_FD(fd), depth + 1);
	}
	close_fd_p(&fd);
	pop(w, keep);
}

/* Takes dirfd over. */
static void walk_dir(struct walk *w, int dirfd, int depth)
{
	AUTO_BUF struct buf below = BUF_INIT((size_t)SHIP_FOLDERS_MAX * (NAME_MAX + 1));
	DIR *d = NULL;

	ship_watch_folder(w->s, dirfd, buf_cstr(&w->path));
	d = fdopendir(dirfd);
	if (d == NULL) {
		(void)close(dirfd);
		return;
	}
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strncmp(e->d_name, ".nfs", 4) == 0)
			continue;
		look_at(w, dirfd, e->d_name, &below);
	}
	flush(w, dirfd);
	for (size_t at = 0; at < below.n; at += strlen(below.p + at) + 1)
		enter(w, dirfd, below.p + at, depth);
	(void)closedir(d);
}

/* ---- what is not there any more ------------------------------------------------------------ */

/* Under its new name it is there: the old one was a rename's source. A file that is a checkpoint
 * by itself is published by that. */
static bool was_renamed(struct ship *s, const struct ship_entry *gone)
{
	struct ship_entry *e = map_get(s->inodes, ship_inode(&gone->fact));

	if (e == NULL || e == gone || e->gone || e->walk != s->walk)
		return false;
	if (strcmp(e->group->name, e->path) == 0 && e->first_walk == s->walk)
		e->group->moved_walk = s->walk;
	return true;
}

/* lives_on: under a new name, and nothing of it was stored under the old one. */
static void note_gone(struct ship *s, struct ship_entry *e, bool lives_on)
{
	struct ship_group *g = e->group;

	e->gone = true;
	g->news = g->stale = true;
	if (!ship_counts(e))
		return;
	g->changed_ms = MAX(g->changed_ms, clock_mono_ms());
	if (g->gone_walk == 0 && !lives_on)
		g->gone_walk = s->walk;
}

/* A file that is only in the spool: it may have been written until it went, and may still be,
 * through a descriptor. */
struct spooled {
	uint64_t id;
	char *path;
};

static bool settle_gone(struct ship *s, struct buf *spooled)
{
	struct ship_entry *e = NULL, *next = NULL;
	bool changed = false;

	for (e = TAILQ_FIRST(&s->all); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->walk == s->walk || e->state == SHIP_SENDING)
			continue;
		if (!e->gone) {
			bool lives_on = was_renamed(s, e) && !e->stored;

			note_gone(s, e, lives_on);
			changed = true;
			if (lives_on) {
				(void)ship_entry_drop(s, e);
				continue;
			}
		}
		/* Never linked, a temporary one. What could not be linked is missed: the sender
		 * says so. */
		if (e->id == 0 && e->state != SHIP_SENT &&
		    (e->link_fault == 0 || !ship_counts(e))) {
			(void)ship_entry_drop(s, e);
		} else if (e->id > 0 && !e->own) {
			struct spooled x = {e->id, xstrdup(e->path)};

			buf_add(spooled, &x, sizeof(x));
		}
	}
	return changed;
}

static void restat(struct ship *s, const struct spooled *x)
{
	struct ship_entry *e = NULL;
	struct ship_fact now;
	struct stat st;
	char name[32];

	FMT(name, "%" PRIu64, x->id);
	if (fstatat(s->spool_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	now = ship_fact_of(&st);
	lock_take(&s->lock);
	e = map_get(s->entries, str_of(x->path));
	if (e != NULL && e->id == x->id && e->gone && !ship_same(&e->fact, &now)) {
		touch(s, e, &now);
		if (ship_counts(e))
			e->group->gone_walk = s->walk; /* it was not at rest when it went */
	}
	lock_give(&s->lock);
}

/* Its checkpoints came with the rename, whole. False: this walk has seen none of them. */
static bool came_with(struct ship *s, struct str path)
{
	struct ship_group *g = NULL;
	bool seen = false;

	TAILQ_FOREACH(g, &s->list, link)
	{
		struct ship_entry *e = NULL;
		struct str name = str_of(g->name);
		bool below = name.n >= path.n && memcmp(name.p, path.p, path.n) == 0 &&
		             (name.n == path.n || name.p[path.n] == '/');
		bool fresh = below && g->grown_walk == s->walk;

		seen = seen || fresh;
		TAILQ_FOREACH(e, &g->entries, peer)
		fresh = fresh && (e->first_walk == s->walk || e->gone);
		if (fresh)
			g->moved_walk = s->walk;
	}
	return seen;
}

/* One that got its name behind the walker's back is seen by the next walk. */
static void settle_moved(struct ship *s)
{
	AUTO_BUF struct buf late = BUF_INIT(s->moved.max);
	struct str rest, path;

	(void)ship_watch_take(s); /* what happened before this walk looked is known by now */
	rest = buf_view(&s->moved);
	while (str_cut(&rest, '\0', &path) && path.n > 0) {
		bool was_late = s->moved.n - rest.n <= s->moved_late;

		if (!came_with(s, path) && !was_late) {
			buf_add(&late, path.p, path.n);
			buf_putc(&late, '\0');
		}
	}
	buf_clear(&s->moved);
	buf_str(&s->moved, buf_view(&late));
	s->moved_late = s->moved.n;
}

/* A fault that this walk did not meet again has been mended. */
static void settle_faults(struct ship *s)
{
	struct ship_group *g = NULL;

	TAILQ_FOREACH(g, &s->list, link)
	{
		if (g->fault == NULL || g->fault_walk == s->walk)
			continue;
		free(g->fault);
		free(g->fault_path);
		g->fault = g->fault_path = NULL;
		g->news = true;
		g->written = false;
	}
}

/* What waits in the spool alone, also while it is sent. */
static void forget_gone(struct ship *s)
{
	AUTO_BUF struct buf left = BUF_INIT((size_t)CKPT_FILES_MAX * sizeof(struct spooled));
	struct ship_entry *e = NULL;

	lock_take(&s->lock);
	TAILQ_FOREACH(e, &s->all, link)
	{
		struct spooled x = {.id = e->id};

		if (e->walk == s->walk || e->id == 0 || e->own || e->forgotten)
			continue;
		x.path = xstrdup(e->path);
		buf_add(&left, &x, sizeof(x));
	}
	lock_give(&s->lock);
	for (size_t at = 0; at + sizeof(struct spooled) <= left.n; at += sizeof(struct spooled)) {
		struct spooled x;
		bool forgotten;

		memcpy(&x, left.p + at, sizeof(x));
		forgotten = ship_spool_forget(s, x.id);
		lock_take(&s->lock);
		e = map_get(s->entries, str_of(x.path));
		if (e != NULL && e->id == x.id)
			e->forgotten = forgotten;
		lock_give(&s->lock);
		free(x.path);
	}
}

bool ship_walk(struct ship *s)
{
	AUTO_FREE struct walk *w = xcalloc(1, sizeof(*w));
	AUTO_BUF struct buf spooled = BUF_INIT((size_t)CKPT_FILES_MAX * sizeof(struct spooled));
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	w->s = s;
	w->path.max = FS_PATH_MAX;
	w->names.max = (size_t)SHIP_BATCH * (NAME_MAX + 1);
	lock_take(&s->lock);
	s->walk++;
	lock_give(&s->lock);
	if (fd < 0)
		return false;
	walk_dir(w, fd, 0);
	lock_take(&s->lock);
	w->changed = settle_gone(s, &spooled) || w->changed;
	settle_moved(s);
	settle_faults(s);
	lock_give(&s->lock);
	if (s->o.forget != NULL)
		forget_gone(s);
	for (size_t at = 0; at + sizeof(struct spooled) <= spooled.n;
	     at += sizeof(struct spooled)) {
		struct spooled x;

		memcpy(&x, spooled.p + at, sizeof(x));
		restat(s, &x);
		free(x.path);
	}
	buf_done(&w->path);
	buf_done(&w->names);
	return w->changed;
}
