/* ship_send.c - the senders, and the journal of what was linked and sent. */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#include <sys/syscall.h>

#define JOURNAL_LINE_MAX ((size_t)FS_PATH_MAX + 256)
#define TROUBLE_MS 60000 /* between two events about a store that is away */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)
#define IOPRIO_NORMAL ((2 << 13) | 4)

/* Reading a checkpoint must not slow the trainer's own disk down. Not everywhere supported. */
static void set_priority(bool idle)
{
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle ? IOPRIO_IDLE : IOPRIO_NORMAL);
}

int ship_open(struct ship *s, uint64_t id, const char *path)
{
	char name[32];
	struct err err = {0};

	if (id == 0)
		return fs_open_beneath(s->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0, &err);
	FMT(name, "%" PRIu64, id);
	return openat(s->spool_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static void journal(struct ship *s, const struct buf *line)
{
	struct err err = {0};

	/* a line that is lost costs a second sending, no more; a cut one would spoil the next */
	if (s->journal_fd >= 0 && fs_write_all(s->journal_fd, line->p, line->n, &err) < 0) {
		(void)close(s->journal_fd);
		s->journal_fd = -1;
	}
}

void ship_journal_link(struct ship *s, const struct ship_entry *e)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);

	buf_printf(&line, "L %" PRIu64 " %s\n", e->id, e->path);
	journal(s, &line);
}

void ship_journal_sent(struct ship *s, const struct ship_entry *e)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);
	char hex[HASH_HEX_CAP];

	digest_hex(&e->sha256, hex);
	buf_printf(&line, "S %" PRIu64 " %" PRIu64 " %" PRId64 " %s %s\n", e->sent.ino,
	           e->sent.size, e->sent.mtime_ns, hex, e->path);
	journal(s, &line);
}

void ship_journal_group(struct ship *s, const struct ship_group *g)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);

	buf_printf(&line, "M %s %s\n", ckpt_state_word(g->state), g->name);
	journal(s, &line);
}

static bool take_u64(struct str *line, uint64_t *out)
{
	struct str word;
	struct err err = {0};

	return str_cut(line, ' ', &word) && str_u64(word, 0, INT64_MAX, out, &err) == 0;
}

static void read_link(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	uint64_t id = 0;
	char name[32];

	if (!take_u64(&line, &id) || id == 0 || !fs_path_is_plain(line))
		return;
	s->next_id = MAX(s->next_id, id + 1);
	FMT(name, "%" PRIu64, id);
	if (faccessat(s->spool_fd, name, F_OK, 0) < 0 || s->n_entries >= CKPT_FILES_MAX)
		return;
	e = ship_entry_of(s, line);
	e->id = id;
}

static void read_sent(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	uint64_t ino = 0, size = 0, mtime = 0;
	struct str hex;
	struct digest d;
	struct err err = {0};

	if (!take_u64(&line, &ino) || !take_u64(&line, &size) || !take_u64(&line, &mtime) ||
	    !str_cut(&line, ' ', &hex) || digest_parse(hex, &d, &err) < 0 ||
	    !fs_path_is_plain(line) || s->n_entries >= CKPT_FILES_MAX)
		return;
	e = ship_entry_of(s, line);
	e->sha256 = d;
	e->sent = (struct ckpt_fact){.ino = ino, .size = size, .mtime_ns = (int64_t)mtime};
	e->state = SHIP_SENT;
}

/* The last word counts: SYNCING takes a manifest back. */
static void read_group(struct ship *s, struct str line)
{
	enum ckpt_state state = CKPT_SYNCING;
	struct str word;
	struct err err = {0};
	struct ship_group *g = NULL;
	char name[CKPT_NAME_MAX];

	if (!str_cut(&line, ' ', &word) || ckpt_state_parse(word, &state, &err) < 0 ||
	    str_copy(line, name, sizeof(name), "checkpoint", &err) < 0)
		return;
	g = ship_group_of(s, name);
	g->state = state;
	g->manifest = state != CKPT_SYNCING;
}

/* A line that was cut by a crash names nothing that exists. */
int ship_journal_read(struct ship *s, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(SHIP_JOURNAL_MAX);
	struct str rest, line;

	if (fs_read(s->spool_fd, "journal", &body, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, "L "))
			read_link(s, str_skip(line, 2));
		else if (str_starts(line, "S "))
			read_sent(s, str_skip(line, 2));
		else if (str_starts(line, "M "))
			read_group(s, str_skip(line, 2));
	}
	return 0;
}

struct sending {
	struct ship *s;
	struct ship_entry *e;
};

static void on_progress(void *arg, uint64_t bytes)
{
	struct sending *x = arg;

	(void)pthread_mutex_lock(&x->s->lock);
	x->e->progress = bytes;
	(void)pthread_mutex_unlock(&x->s->lock);
}

static bool same_file(const struct ckpt_fact *a, const struct stat *st)
{
	return a->size == (uint64_t)st->st_size && a->ino == st->st_ino &&
	       a->mtime_ns == (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void take_facts(struct ckpt_fact *f, const struct stat *st)
{
	f->size = (uint64_t)st->st_size;
	f->ino = st->st_ino;
	f->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* The same file under another name, sent already: its object is copied, no byte moves twice. */
static char *twin_of(struct ship *s, struct arena *a, const struct ship_entry *e,
                     struct digest *sha)
{
	struct ship_entry *t = NULL;
	char *key = NULL;

	TAILQ_FOREACH(t, &s->all, link)
	{
		if (t == e || t->state != SHIP_SENT || t->sent.ino != e->fact.ino ||
		    t->sent.size != e->fact.size || t->sent.mtime_ns != e->fact.mtime_ns)
			continue;
		*sha = t->sha256;
		key = ckpt_object_key(a, s->o.prefix, s->o.rank, t->path);
		break;
	}
	return key;
}

static int put_file(struct ship *s, struct sending *x, const char *key, int fd,
                    const struct stat *st, struct digest *sha, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err copy = {0};
	char *twin = NULL;

	if (st->st_nlink > 2 && st->st_size > 0) { /* more than its place and the spool */
		(void)pthread_mutex_lock(&s->lock);
		twin = twin_of(s, a, x->e, sha);
		(void)pthread_mutex_unlock(&s->lock);
		if (twin != NULL && objstore_copy(s->o.objects, twin, key, &copy) == 0)
			return 0;
	}
	return objstore_put_file(s->o.objects, key, fd, (uint64_t)st->st_size, NULL, sha,
	                         on_progress, x, &s->halt, err);
}

void ship_trouble(struct ship *s, const char *what, const struct err *why)
{
	AUTO_BUF struct buf text = BUF_INIT(3000);
	int64_t now = clock_mono_ms();

	(void)pthread_mutex_lock(&s->lock);
	if (s->trouble_ms != 0 && now - s->trouble_ms < TROUBLE_MS) {
		(void)pthread_mutex_unlock(&s->lock);
		return;
	}
	s->trouble_ms = now;
	(void)pthread_mutex_unlock(&s->lock);
	buf_printf(&text, "checkpoint %s: %s; it is tried again", what, why->msg);
	s->o.event(s->o.arg, "warning", buf_cstr(&text));
}

static void wait_retry(struct ship *s)
{
	int64_t until = clock_mono_ms() + SHIP_RETRY_MS;

	(void)pthread_mutex_lock(&s->lock);
	while (!s->done && !s->halt && clock_mono_ms() < until) {
		(void)pthread_mutex_unlock(&s->lock);
		clock_sleep_ms(50);
		(void)pthread_mutex_lock(&s->lock);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

/* What became of it, under the lock. */
static void settle_one(struct ship *s, struct ship_entry *e, int fd, bool sent,
                       const struct stat *st, const struct stat *after, const struct digest *sha)
{
	e->progress = 0;
	e->state = SHIP_WAIT;
	/* The last look passes over what is being sent, and nobody looks again: what it is then is
	 * what was sent. Else it would never be what is expected, and be sent for ever. */
	if (sent && s->walked_final && !e->dirty)
		take_facts(&e->fact, st);
	if (fd <
	    0) { /* not linked, and its place is empty: the walk drops it, unless it is the last */
		e->state = e->id == 0 && !e->gone && !s->final ? SHIP_WAIT : SHIP_LOST;
	} else if (sent && !e->dirty && same_file(&e->fact, st) && same_file(&e->fact, after)) {
		e->state = SHIP_SENT;
		e->sent = e->fact;
		e->sha256 = *sha;
		ship_journal_sent(s, e);
	}
	e->dirty = false;
}

/* No try will change that: the name is none for the store, or is a folder there already. */
static bool is_refused(const struct err *err)
{
	return err->code == ERR_INVALID || err->code == ERR_CONFLICT || err->code == ERR_TOO_BIG ||
	       err->code == ERR_UNSUPPORTED;
}

static void say_refused(struct ship *s, const char *path, const struct err *why)
{
	AUTO_BUF struct buf text = BUF_INIT(3000);

	buf_printf(&text, "checkpoint file %s cannot be stored: %s", path, why->msg);
	s->o.event(s->o.arg, "warning", buf_cstr(&text));
}

/* Sends one entry; with the lock held at both ends. */
static void send_one(struct ship *s, struct ship_entry *e)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sending x = {s, e};
	char *path = arena_cstr(a, e->path);
	char *key = ckpt_object_key(a, s->o.prefix, s->o.rank, path);
	uint64_t id = e->id;
	struct stat st = {0}, after = {0};
	struct digest sha = {{0}};
	struct err err = {0};
	bool idle = !s->final, sent = false, refused = false;
	AUTO_FD int fd = -1;

	(void)pthread_mutex_unlock(&s->lock);
	set_priority(idle);
	fd = ship_open(s, id, path);
	if (fd >= 0 && fstat(fd, &st) == 0) {
		sent = put_file(s, &x, key, fd, &st, &sha, &err) == 0 && fstat(fd, &after) == 0;
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* leave no footprint */
	}
	refused = fd >= 0 && !sent && is_refused(&err);
	if (refused)
		say_refused(s, path, &err);
	if (fd >= 0 && !sent && !refused && err.code != ERR_NONE && err.code != ERR_CANCELED) {
		ship_trouble(s, path, &err);
		wait_retry(s);
	}
	(void)pthread_mutex_lock(&s->lock);
	settle_one(s, e, refused ? -1 : fd, sent, &st, &after, &sha);
	if (refused)
		e->state = SHIP_LOST;
}

void *ship_sender(void *ship)
{
	struct ship *s = ship;

	(void)pthread_mutex_lock(&s->lock);
	while (!s->done) {
		struct ship_entry *e = TAILQ_FIRST(&s->queued);

		if (e == NULL || s->halt) {
			(void)pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		TAILQ_REMOVE(&s->queued, e, queue);
		e->state = SHIP_SENDING;
		send_one(s, e);
		(void)pthread_cond_broadcast(&s->changed);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return NULL;
}
