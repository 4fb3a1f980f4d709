/*
 * ship_send.c - the senders: a file is opened, looked at by its format, copied where that is
 * needed, sent, and looked at again. What was sent counts only when it was one thing from the first
 * byte to the last: the same size, times and inode before and after, and nobody with a descriptor
 * or a mapping to write through.
 */
#include "base/clock.h"
#include "base/map.h"
#include "base/units.h"
#include "run/ship_table.h"

#include <sys/statvfs.h>
#include <sys/syscall.h>

#define TROUBLE_MS 60000 /* between two events about a store that is away */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)
#define IOPRIO_NORMAL ((2 << 13) | 4)

enum outcome {
	SENT,
	LOOKED,     /* only its format was wanted */
	HELD,       /* torn: not sent while it may still be mended */
	MOVED,      /* it is not what was seen, or changed while it was sent */
	WRITTEN,    /* somebody writes */
	VANISHED,   /* neither in the spool nor at its place */
	UNREADABLE, /* not ours to read */
	REFUSED,    /* no try will change that */
	TROUBLE,    /* the store is away */
	GIVEN_UP,
};

struct sending {
	unsigned magic;
#define SENDING_MAGIC 0x5253454eU
	struct ship *s;
	struct ship_entry *e;
	/* as it was when it was taken from the queue */
	struct arena *a;
	const char *path, *name, *inner; /* name: of its checkpoint; inner: path in that */
	uint64_t id;
	struct ship_fact want;
	enum format_name kind;
	uint32_t revision; /* 0 = to its path */
	bool last;         /* the trainer is gone: what is there is what there is */
	bool force;        /* also what is torn */
	bool look_only, copy;
	bool own; /* the spool's file is a copy; or becomes one */
	/* what came of it */
	struct stat st;
	struct ship_check *check;
	bool hole;
	struct digest sha256;
	char why[FORMAT_REASON_MAX * 2];
	struct err err;
};

/* Reading a checkpoint must not slow the trainer's own disk down. Not everywhere supported. */
static void set_priority(bool idle)
{
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle ? IOPRIO_IDLE : IOPRIO_NORMAL);
}

void ship_trouble(struct ship *s, const char *what, const struct err *why)
{
	AUTO_BUF struct buf text = BUF_INIT(3000);
	int64_t now = clock_mono_ms();

	if (why->code == ERR_NO_SPACE && ship_make_room(s))
		return;
	lock_take(&s->lock);
	if (s->trouble_ms != 0 && now - s->trouble_ms < TROUBLE_MS) {
		lock_give(&s->lock);
		return;
	}
	s->trouble_ms = now;
	lock_give(&s->lock);
	buf_printf(&text, "checkpoint %s: %s; it is tried again", what, why->msg);
	s->o.event(s->o.arg, "warning", buf_cstr(&text));
}

static void wait_retry(struct ship *s)
{
	int64_t until = clock_mono_ms() + SHIP_RETRY_MS;

	lock_take(&s->lock);
	while (!s->done && !s->halt && clock_mono_ms() < until) {
		lock_give(&s->lock);
		clock_sleep_ms(50);
		lock_take(&s->lock);
	}
	lock_give(&s->lock);
}

static void on_progress(void *arg, uint64_t bytes)
{
	struct sending *x = FROM_VOID(struct sending, arg, SENDING_MAGIC);

	lock_take(&x->s->lock);
	assert(x->e->state == SHIP_SENDING);
	x->e->progress = bytes;
	lock_give(&x->s->lock);
}

static const char *key_of(struct sending *x, const char *path, uint32_t revision)
{
	const char *at = revision == 0 ? path : ckpt_revision_path(x->a, x->name, revision, path);

	return ckpt_object_key(x->a, x->s->o.prefix, x->s->o.rank, at);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

/* Reports the owner and the mode of a file that cannot be opened. */
static void say_owner(struct sending *x, int why)
{
	struct err err = {0};
	struct stat st;
	AUTO_FD int fd =
		fs_open_beneath(x->s->dir_fd, x->path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, &err);

	if (fd >= 0 && fstat(fd, &st) == 0)
		FMT(x->why, "cannot be read: %s (mode %04o, owner %u)", strerror(why),
		    (unsigned)(st.st_mode & 07777), (unsigned)st.st_uid);
	else
		FMT(x->why, "cannot be read: %s", strerror(why));
}

static enum outcome open_it(struct sending *x, int *fd)
{
	struct ship_fact is;

	*fd = ship_open(x->s, x->id, x->path);
	if (*fd < 0 && (errno == EACCES || errno == EPERM || errno == EIO)) {
		say_owner(x, errno);
		return UNREADABLE;
	}
	if (*fd < 0)
		return errno == ENOENT || errno == 0 ? VANISHED : MOVED;
	if (fstat(*fd, &x->st) < 0)
		return MOVED;
	is = ship_fact_of(&x->st);
	if (x->own || ship_same(&x->want, &is))
		return SENT;
	x->want = is;
	return x->last ? SENT : MOVED; /* nobody writes any more: it is what it is */
}

/* A file that says it is larger than its disk is a hole; so is one that the volume cannot hold. */
static bool is_too_large(struct sending *x, int fd)
{
	uint64_t limit = x->s->o.volume_bytes;
	struct statvfs fs;
	char has[UNITS_CAP], may[UNITS_CAP];

	if (limit == 0 && fstatvfs(fd, &fs) == 0)
		limit = (uint64_t)fs.f_blocks * fs.f_frsize;
	if (limit == 0 || (uint64_t)x->st.st_size <= limit)
		return false;
	FMT(x->why, "cannot be uploaded: its size is %s, but its %s holds only %s",
	    units_show_bytes((uint64_t)x->st.st_size, has),
	    x->s->o.volume_bytes > 0 ? "volume" : "disk", units_show_bytes(limit, may));
	return true;
}

/* ---- looking -----------------------------------------------------------------------------------
 */

static int read_at(void *arg, uint64_t at, void *p, size_t n, struct err *err)
{
	return fs_pread_all(*(int *)arg, p, n, at, err);
}

/* -1: it could not be read to its end. */
static int look(struct sending *x, int fd)
{
	struct ship_check *c = xcalloc(1, sizeof(*c));
	struct format_source src = {
		.name = x->inner, .size = (uint64_t)x->st.st_size, .read = read_at, .arg = &fd};
	struct err err = {0};

	c->refs = 1;
	c->ms = clock_wall_ms();
	if (format_check(&src, &c->r, &err) < 0) {
		free(c);
		return -1;
	}
	x->check = c;
	/* a hint: file systems that compress leave zeros out */
	x->hole = lseek(fd, 0, SEEK_HOLE) < (off_t)x->st.st_size;
	return 0;
}

/* ---- sending -----------------------------------------------------------------------------------
 */

/* No try will change that: the name is none for the store, or is a folder there already. */
static bool is_refused(const struct err *err)
{
	return err->code == ERR_INVALID || err->code == ERR_CONFLICT || err->code == ERR_TOO_BIG ||
	       err->code == ERR_UNSUPPORTED;
}

/* The same file under another name, sent already: its object is copied, no byte moves twice.
 * Meanwhile nobody may have sent another content to that object. */
static bool copy_twin(struct sending *x, const char *key)
{
	struct ship *s = x->s;
	struct ship_entry *t = NULL;
	struct ship_fact was = {0};
	const char *from = NULL;
	char *path = NULL;
	uint32_t revision = 0;
	struct err err = {0};
	bool done = false;

	if (x->st.st_nlink < 2 || x->st.st_size == 0)
		return false;
	lock_take(&s->lock);
	t = map_get(s->stored, ship_inode(&x->want));
	if (t != NULL && t != x->e && t->state == SHIP_SENT && ship_same(&t->sent, &x->want)) {
		path = arena_cstr(x->a, t->path);
		was = t->sent;
		revision = t->revision;
		x->sha256 = t->sha256;
		from = ckpt_object_key(
			x->a, s->o.prefix, s->o.rank,
			revision == 0 ? path
				      : ckpt_revision_path(x->a, t->group->name, revision, path));
	}
	lock_give(&s->lock);
	if (from == NULL || objstore_copy(s->o.objects, from, key, &err) < 0)
		return false;
	lock_take(&s->lock);
	t = map_get(s->entries, str_of(path));
	done = t != NULL && t->state == SHIP_SENT && t->revision == revision &&
	       ship_same(&t->sent, &was);
	lock_give(&s->lock);
	return done;
}

/* Is it no longer what it was before? */
static bool has_moved(struct sending *x, int fd)
{
	struct stat now;

	return fstat(fd, &now) < 0 || now.st_size != x->st.st_size ||
	       now.st_mtim.tv_sec != x->st.st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != x->st.st_mtim.tv_nsec;
}

static enum outcome put(struct sending *x, int fd)
{
	const char *key = key_of(x, x->path, x->revision);

	if (copy_twin(x, key))
		return SENT;
	if (objstore_put_file(x->s->o.objects, key, fd, (uint64_t)x->st.st_size, NULL, &x->sha256,
	                      on_progress, x, &x->s->halt, &x->err) == 0)
		return SENT;
	if (x->err.code == ERR_CANCELED)
		return GIVEN_UP;
	if (!is_refused(&x->err))
		return TROUBLE;
	if (has_moved(x, fd)) /* it became shorter while it was read */
		return MOVED;
	(void)snprintf(x->why, sizeof(x->why), "cannot be uploaded: %.200s", x->err.msg);
	return REFUSED;
}

static enum outcome look_back(struct sending *x, int fd)
{
	if (x->own || x->last || x->kind == FORMAT_NAME_LOG)
		return SENT;
	if (has_moved(x, fd))
		return MOVED;
	return ship_probe_fd(x->s, fd) == SHIP_WRITER ? WRITTEN : SENT;
}

static enum outcome send_it(struct sending *x)
{
	AUTO_FD int fd = -1;
	enum outcome o = open_it(x, &fd);
	bool plain = x->kind != FORMAT_NAME_LOG;

	if (o != SENT)
		return o;
	if (is_too_large(x, fd))
		return REFUSED;
	if (!x->last && plain && !x->own && ship_probe_fd(x->s, fd) == SHIP_WRITER)
		return WRITTEN;
	if (!x->last && plain && !x->own && x->id > 0)
		x->own = ship_spool_own(x->s, x->id, x->copy, &fd);
	if (plain && look(x, fd) < 0)
		return MOVED;
	if (x->look_only)
		return LOOKED;
	if (plain && x->check->r.verdict == FORMAT_TORN && !x->force)
		return HELD;
	o = put(x, fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* leave no footprint */
	return o == SENT ? look_back(x, fd) : o;
}

/* ---- what came of it, with the lock ------------------------------------------------------------
 */

/* A checkpoint of one file may be sent as it was, though it is written over already. */
static bool is_alone(const struct ship_entry *e)
{
	const struct ship_entry *o = NULL;

	TAILQ_FOREACH(o, &e->group->entries, peer)
	{
		if (o != e && ship_counts(o) && !o->gone)
			return false;
	}
	return true;
}

static void keep_check(struct sending *x)
{
	struct ship_entry *e = x->e;

	if (x->check == NULL)
		return;
	ship_check_done(e->check);
	e->check = TAKE(x->check);
	e->checked = x->want;
	e->hole = x->hole;
	e->group->stale = true;
}

/* The store has what was sent. */
static void take_sent(struct sending *x)
{
	struct ship *s = x->s;
	struct ship_entry *e = x->e;

	if (e->stored && e->revision > 0 && e->revision != x->revision)
		ship_litter(e->group,
		            ckpt_revision_path(x->a, e->group->name, e->revision, e->path));
	e->stored = true;
	ship_entry_sent(s, e, &x->want);
	e->sha256 = x->sha256;
	e->revision = x->revision;
	e->sent_ms = clock_mono_ms();
	e->own = x->own;
	e->quarantine = e->dirty;
	if (!e->dirty) {
		ship_entry_seen(s, e, &x->want);
		(void)map_set(s->stored, ship_inode(&e->sent), e);
	}
	e->group->written = false;
	e->group->version++;
	ship_journal_sent(s, e);
}

static void say_vanished(struct ship_entry *e)
{
	if (e->link_fault != 0)
		ship_entry_fault(
			e, false,
			"was removed before it was uploaded, and could not be kept for the "
			"upload: %s",
			strerror(e->link_fault));
	else
		ship_entry_fault(e, false, "was removed before it was uploaded");
}

static void settle_one(struct sending *x, enum outcome o)
{
	struct ship *s = x->s;
	struct ship_entry *e = x->e;
	int64_t now = clock_mono_ms();
	bool over = s->final || e->gone;
	enum ship_state to = SHIP_WAIT;

	assert(e->state == SHIP_SENDING);
	e->progress = 0;
	e->group->news = true;
	keep_check(x);
	switch (o) {
	case SENT:
		/* what was linked only has changed under our hands when it is dirty */
		if (e->dirty && x->kind != FORMAT_NAME_LOG && !(x->own && is_alone(e)))
			break;
		take_sent(x);
		to = e->dirty ? SHIP_WAIT : SHIP_SENT;
		break;
	case LOOKED:
		to = e->dirty ? SHIP_WAIT : SHIP_SENT;
		break;
	case HELD:
		break;
	case MOVED:
		e->rewritten = true;
		e->retry_ms = now + SHIP_REST_MS;
		break;
	case WRITTEN:
		e->rewritten = true;
		e->writer = true;
		e->writer_ms = now;
		e->writer_size = e->fact.size;
		e->closed = false;
		break;
	case VANISHED: /* the walk drops it, unless it is the last */
		if (e->id > 0 && e->id != x->id)
			break; /* linked meanwhile: it is sent from there */
		to = e->id == 0 && !over ? SHIP_WAIT : SHIP_LOST;
		e->retry_ms = now + SHIP_REST_MS;
		say_vanished(e);
		break;
	case UNREADABLE:
		to = over ? SHIP_LOST : SHIP_WAIT;
		e->retry_ms = now + SHIP_RETRY_MS;
		ship_entry_fault(e, false, "%s", x->why);
		break;
	case REFUSED:
		to = SHIP_LOST;
		ship_entry_fault(e, true, "%s", x->why);
		break;
	case TROUBLE:
	case GIVEN_UP:
		break;
	}
	e->dirty = false;
	ship_entry_to(s, e, to);
}

static void say_refused(struct sending *x)
{
	AUTO_BUF struct buf text = BUF_INIT(3000);

	buf_printf(&text, "checkpoint file %s %s", x->path, x->why);
	x->s->o.event(x->s->o.arg, "warning", buf_cstr(&text));
}

/* A revision's file that is what the old one was needs no place of its own. */
static void drop_same(struct sending *x)
{
	struct ship *s = x->s;
	const struct manifest_file *old = NULL;
	struct err err = {0};
	bool same;

	lock_take(&s->lock);
	old = ship_in_base(x->e->group, x->path);
	same = old != NULL && digest_same(&old->sha256, &x->sha256);
	lock_give(&s->lock);
	if (!same)
		return;
	if (objstore_del(s->o.objects, key_of(x, x->path, x->revision), &err) < 0)
		return; /* it stays a revision's */
	x->revision = 0;
}

/* Sends one entry; with the lock held at both ends. */
static void send_one(struct ship *s, struct ship_entry *e)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ship_group *g = e->group;
	struct sending x = {
		.magic = SENDING_MAGIC,
		.s = s,
		.e = e,
		.a = a,
		.path = arena_cstr(a, e->path),
		.name = arena_cstr(a, g->name),
		.inner = arena_cstr(a, ship_inner(g, e->path)),
		.id = e->id,
		.want = e->fact,
		.kind = e->kind,
		.revision = ship_in_base(g, e->path) != NULL ? ++g->stage : 0,
		.last = s->walked_final,
		.force = s->walked_final || (g->judged && g->verdict.state == CKPT_INCOMPLETE),
		.look_only = e->look_only,
		.copy = e->rewritten,
		.own = e->own,
	};
	enum outcome o;

	e->look_only = false;
	lock_give(&s->lock);
	set_priority(!x.last);
	o = send_it(&x);
	if (o == SENT && x.revision > 0)
		drop_same(&x);
	if (o == REFUSED)
		say_refused(&x);
	if (o == TROUBLE) {
		ship_trouble(s, x.path, &x.err);
		wait_retry(s);
	}
	lock_take(&s->lock);
	settle_one(&x, o);
	ship_check_done(x.check);
}

/* The large ones first: they take the longest. */
static struct ship_entry *next_to_send(struct ship *s, bool large)
{
	struct ship_entry *e = large ? TAILQ_FIRST(&s->queued_large) : NULL;

	return e != NULL ? e : TAILQ_FIRST(&s->queued_small);
}

static void send_all(struct ship *s, bool large)
{
	lock_take(&s->lock);
	while (!s->done) {
		struct ship_entry *e = next_to_send(s, large);

		if (e == NULL || s->halt) {
			cond_wait(&s->changed, &s->lock);
			continue;
		}
		ship_entry_to(s, e, SHIP_SENDING);
		send_one(s, e);
		ship_check(s);
		cond_broadcast(&s->changed);
	}
	lock_give(&s->lock);
}

void *ship_sender(void *ship)
{
	send_all(ship_at(ship), true);
	return NULL;
}

void *ship_small_sender(void *ship)
{
	send_all(ship_at(ship), false);
	return NULL;
}
