/* joblog_due.c - which logs wait to be stored, and which lines for their log. */
#include "store/logs/joblog_store.h"

#include "base/clock.h"

/* What is true whenever the lock is free. */
static void store_check(const struct joblog_store *st)
{
	assert(lock_is_mine(&st->lock) && st->epoch > 0);
	assert(st->n_held <= JOBLOG_HELD_MAX && (st->n_held == 0) == TAILQ_EMPTY(&st->held));
	assert(st->pause_ms >= 0 && st->pause_ms <= JOBLOG_PAUSE_MS);
}

/* And of a file that is to be stored: somebody has it, or will. */
static void due_check(const struct joblog_due *d)
{
	assert(d->magic == JOBLOG_DUE_MAGIC && d->kind < JOBLOG_KINDS);
	assert(d->busy || d->at_ms != JOBLOG_NEVER || d->ended_ms != JOBLOG_NEVER);
}

/* With the lock. */
static struct joblog_due *due_of(struct joblog_store *st, const char *job_id, enum joblog_kind kind,
                                 uint32_t rank, bool make)
{
	char file[JOBLOG_NAME_CAP], name[JOBLOG_NAME_CAP];
	struct joblog_due *d;

	joblog_file_name(file, kind, rank);
	FMT(name, "%s/%s", job_id, file);
	d = map_get(st->files, str_of(name));
	if (d != NULL || !make)
		return d;
	d = xcalloc(1, sizeof(*d));
	d->magic = JOBLOG_DUE_MAGIC;
	copy_cut(d->job_id, sizeof(d->job_id), job_id);
	d->kind = kind;
	d->rank = rank;
	d->at_ms = d->ended_ms = JOBLOG_NEVER;
	(void)map_set(st->files, str_of(name), d);
	return d;
}

static void drop_due(struct joblog_store *st, struct joblog_due *d)
{
	char file[JOBLOG_NAME_CAP], name[JOBLOG_NAME_CAP];
	const void *was;

	assert(lock_is_mine(&st->lock) && !d->busy);
	joblog_file_name(file, d->kind, d->rank);
	FMT(name, "%s/%s", d->job_id, file);
	was = map_del(st->files, str_of(name));
	assert(was == d);
	d->magic = 0;
	free(d);
}

void joblog_mark_at(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                    uint64_t bytes, int64_t at_ms, int64_t ended_ms)
{
	struct joblog_store *st = l->store;
	struct joblog_due *d;

	lock_take(&st->lock);
	store_check(st);
	d = due_of(st, job_id, kind, rank, true);
	d->bytes += bytes;
	d->at_ms = d->bytes >= JOBLOG_SEGMENT_BYTES ? 0 : MIN(d->at_ms, at_ms);
	d->ended_ms = MIN(d->ended_ms, ended_ms);
	due_check(d);
	cond_signal(&st->changed);
	lock_give(&st->lock);
}

void joblog_mark(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                 size_t bytes, int64_t delay_ms)
{
	if (l->store != NULL)
		joblog_mark_at(l, job_id, kind, rank, bytes, clock_mono_ms() + delay_ms,
		               JOBLOG_NEVER);
}

void joblogs_ended(struct joblogs *l, const char *job_id)
{
	int64_t at_ms = clock_mono_ms() + JOBLOG_SETTLE_MS;

	if (l->store == NULL)
		return;
	for (uint32_t rank = 0; rank < JOBLOG_RANKS_MAX; rank++) {
		char file[JOBLOG_NAME_CAP], path[JOBLOG_NAME_CAP];
		bool any = false;

		for (enum joblog_kind kind = 0; kind < JOBLOG_KINDS; kind++) {
			joblog_file_name(file, kind, rank);
			FMT(path, "%s/%s", job_id, file);
			if (faccessat(l->dirfd, path, F_OK, 0) < 0)
				continue;
			any = true;
			joblog_mark_at(l, job_id, kind, rank, 0, JOBLOG_NEVER, at_ms);
		}
		if (!any)
			return;
	}
}

bool joblog_hold(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text)
{
	struct joblog_store *st = l->store;
	bool room;

	if (st == NULL)
		return false;
	lock_take(&st->lock);
	store_check(st);
	room = st->n_held < JOBLOG_HELD_MAX;
	if (room) {
		struct joblog_held *h = xcalloc(1, sizeof(*h));

		copy_cut(h->job_id, sizeof(h->job_id), job_id);
		h->ns = now_ns;
		h->text = xstrdup(text);
		TAILQ_INSERT_TAIL(&st->held, h, link);
		st->n_held++;
		cond_signal(&st->changed);
	}
	store_check(st);
	lock_give(&st->lock);
	return room;
}

bool joblog_holds(struct joblogs *l)
{
	bool any;

	if (l->store == NULL)
		return false;
	lock_take(&l->store->lock);
	any = l->store->n_held > 0;
	lock_give(&l->store->lock);
	return any;
}

/* With the lock. */
static void drop_held(struct joblog_store *st, struct joblog_held *h)
{
	assert(st->n_held > 0);
	TAILQ_REMOVE(&st->held, h, link);
	st->n_held--;
	free(h->text);
	free(h);
}

/* With the lock, which it gives up meanwhile. The first line stays in its place until it is
 * written: what comes later waits behind it. */
static int tell_held(struct joblogs *l, struct err *err)
{
	struct joblog_store *st = l->store;
	struct joblog_held *h = TAILQ_FIRST(&st->held);
	AUTO_FREE char *text = xstrdup(h->text);
	char job_id[sizeof(h->job_id)];
	int64_t ns = h->ns;
	int r;

	assert(lock_is_mine(&st->lock) && !st->telling);
	copy_cut(job_id, sizeof(job_id), h->job_id);
	st->telling = true;
	lock_give(&st->lock);
	r = joblog_say(l, job_id, ns, text, err);
	lock_take(&st->lock);
	assert(st->telling);
	st->telling = false;
	h = TAILQ_FIRST(&st->held); /* only a deletion can have taken it away */
	if ((r == 0 || !err_info(err)->retry) && h != NULL && h->ns == ns &&
	    strcmp(h->job_id, job_id) == 0)
		drop_held(st, h);
	return r;
}

void joblog_note_answer(struct joblog_store *st, bool ok)
{
	lock_take(&st->lock);
	store_check(st);
	if (ok) {
		st->slow = false;
		st->pause_ms = 0;
		st->paused_until_ms = 0;
	} else {
		st->pause_ms = MIN(MAX(st->pause_least_ms, 2 * st->pause_ms), JOBLOG_PAUSE_MS);
		st->paused_until_ms = clock_mono_ms() + st->pause_ms;
	}
	store_check(st);
	lock_give(&st->lock);
}

bool joblog_is_paused(struct joblog_store *st)
{
	bool is;

	lock_take(&st->lock);
	is = st->paused_until_ms > clock_mono_ms();
	lock_give(&st->lock);
	return is;
}

/* ---- storing ------------------------------------------------------------------------- */

struct choice {
	unsigned magic;
#define CHOICE_MAGIC 0x5343484fU
	struct joblog_due *best;
	int64_t at_ms; /* of the next one that is not busy */
};

static void choose(struct str key UNUSED, void *value, void *arg)
{
	struct choice *c = FROM_VOID(struct choice, arg, CHOICE_MAGIC);
	struct joblog_due *d = FROM_VOID(struct joblog_due, value, JOBLOG_DUE_MAGIC);
	int64_t at_ms = MIN(d->at_ms, d->ended_ms);

	due_check(d);
	if (!d->busy && at_ms < c->at_ms) {
		c->best = d;
		c->at_ms = at_ms;
	}
}

/* With the lock, which it gives up meanwhile. */
static int store_due(struct joblogs *l, struct joblog_due *d, struct err *err)
{
	struct joblog_store *st = l->store;
	int64_t now = clock_mono_ms();
	bool all = d->ended_ms <= now, again;
	int r;

	assert(lock_is_mine(&st->lock) && !d->busy);
	due_check(d);
	d->busy = true;
	d->at_ms = JOBLOG_NEVER;
	d->bytes = 0;
	if (all)
		d->ended_ms = JOBLOG_NEVER;
	lock_give(&st->lock);
	r = joblog_store_file(l, d->job_id, d->kind, d->rank, all, err);
	again = r == 0 || err_info(err)->retry;
	if (again)
		joblog_note_answer(st, r == 0);
	lock_take(&st->lock);
	assert(d->magic == JOBLOG_DUE_MAGIC && d->busy); /* only who has it gives it up */
	d->busy = false;
	if (r < 0) {
		now = clock_mono_ms();
		d->at_ms = MIN(d->at_ms, now + (again ? st->pause_ms : JOBLOG_PAUSE_MS));
		if (all)
			d->ended_ms = MIN(d->ended_ms, d->at_ms);
	}
	if (d->at_ms == JOBLOG_NEVER && d->ended_ms == JOBLOG_NEVER)
		drop_due(st, d);
	cond_broadcast(&st->stored);
	return r;
}

int joblogs_store_next(struct joblogs *l, int64_t max_ms, bool *did, struct err *err)
{
	struct joblog_store *st = l->store;
	int64_t until = sync_deadline(max_ms);
	int r = 0;

	assert(st != NULL);
	lock_take(&st->lock);
	for (*did = false; !*did;) {
		struct choice c = {.magic = CHOICE_MAGIC, .at_ms = JOBLOG_NEVER};
		int64_t now = clock_mono_ms(), next;

		store_check(st);
		map_each(st->files, choose, &c);
		next = st->n_held > 0 && !st->telling ? 0 : c.at_ms;
		next = MAX(next, st->paused_until_ms);
		if (next <= now) {
			*did = true;
			r = st->n_held > 0 && !st->telling ? tell_held(l, err)
			                                   : store_due(l, c.best, err);
		} else if (!cond_wait_until(&st->changed, &st->lock, MIN(next, until)) &&
		           clock_mono_ms() >= until) {
			break;
		}
	}
	lock_give(&st->lock);
	return r;
}

struct flush {
	unsigned magic;
#define FLUSH_MAGIC 0x53464c55U
	const char *job_id;
	bool waits;
};

static void hurry(struct str key UNUSED, void *value, void *arg)
{
	struct joblog_due *d = FROM_VOID(struct joblog_due, value, JOBLOG_DUE_MAGIC);
	struct flush *f = FROM_VOID(struct flush, arg, FLUSH_MAGIC);

	if (d->kind != JOBLOG_LINES || strcmp(d->job_id, f->job_id) != 0)
		return;
	if (d->at_ms != JOBLOG_NEVER)
		d->at_ms = 0;
	f->waits = f->waits || d->busy || d->at_ms == 0;
}

bool joblogs_flush(struct joblogs *l, const char *job_id, int64_t max_ms)
{
	struct joblog_store *st = l->store;
	int64_t until = sync_deadline(max_ms);
	struct flush f = {.magic = FLUSH_MAGIC, .job_id = job_id};

	if (st == NULL)
		return true;
	lock_take(&st->lock);
	for (;;) {
		f.waits = st->n_held > 0;
		map_each(st->files, hurry, &f);
		cond_broadcast(&st->changed);
		if (!f.waits || st->slow || st->paused_until_ms > clock_mono_ms())
			break;
		if (!cond_wait_until(&st->stored, &st->lock, until))
			st->slow = true; /* one look is left: it may be stored by now */
	}
	lock_give(&st->lock);
	return !f.waits;
}

static void make_due(struct str key UNUSED, void *value, void *arg UNUSED)
{
	struct joblog_due *d = FROM_VOID(struct joblog_due, value, JOBLOG_DUE_MAGIC);

	d->at_ms = 0;
	if (d->ended_ms != JOBLOG_NEVER)
		d->ended_ms = 0;
}

struct left {
	unsigned magic;
#define LEFT_MAGIC 0x534c4546U
	struct joblogs *l;
	const char *job_id;
};

static int mark_file(void *arg, int dirfd, const char *name, struct err *err)
{
	struct left *left = FROM_VOID(struct left, arg, LEFT_MAGIC);
	struct joblog_sent sent;
	enum joblog_kind kind;
	struct stat st;
	uint32_t rank;

	if (!joblog_file_parse(name, &kind, &rank) ||
	    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (joblog_sent_load(left->l, left->job_id, name, &sent, err) < 0)
		return -1;
	if ((uint64_t)st.st_size != sent.bytes)
		joblog_mark_at(left->l, left->job_id, kind, rank, 0, 0, JOBLOG_NEVER);
	return 0;
}

static int mark_left(void *arg, int dirfd, const char *job_id, struct err *err)
{
	struct left left = {LEFT_MAGIC, arg, job_id};
	int fd = openat(dirfd, job_id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return 0; /* it went meanwhile, or is no job's */
	return fs_each_name(fd, job_id, mark_file, &left, err);
}

int joblogs_store_all(struct joblogs *l, bool left, struct err *err)
{
	struct joblog_store *st = l->store;
	int fd;

	assert(st != NULL);
	lock_take(&st->lock);
	map_each(st->files, make_due, NULL);
	cond_broadcast(&st->changed);
	lock_give(&st->lock);
	if (!left)
		return 0;
	fd = openat(l->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "the folder of logs");
	return fs_each_name(fd, "the folder of logs", mark_left, l, err);
}

size_t joblogs_waiting(struct joblogs *l)
{
	size_t n;

	if (l->store == NULL)
		return 0;
	lock_take(&l->store->lock);
	n = map_count(l->store->files) + l->store->n_held;
	lock_give(&l->store->lock);
	return n;
}

/* ---- beginning and end --------------------------------------------------------------- */

void joblogs_keep(struct joblogs *l, struct objstore *os, uint32_t epoch, int64_t pause_ms)
{
	struct joblog_store *st = xcalloc(1, sizeof(*st));

	assert(l->store == NULL && epoch > 0 && map_count(l->files) == 0);
	st->os = os;
	st->epoch = epoch;
	st->pause_least_ms = pause_ms;
	for (size_t i = 0; i < JOBLOG_STRIPES; i++)
		lock_init(&st->stripe[i], LOCK_JOBLOGS_STORE);
	lock_init(&st->lock, LOCK_JOBLOGS_DUE);
	cond_init(&st->changed);
	cond_init(&st->stored);
	st->files = map_new();
	TAILQ_INIT(&st->held);
	l->store = st;
}

static void free_due(struct str key UNUSED, void *value, void *arg UNUSED)
{
	free(FROM_VOID(struct joblog_due, value, JOBLOG_DUE_MAGIC));
}

void joblog_store_free(struct joblogs *l)
{
	struct joblog_store *st = l->store;

	if (st == NULL)
		return;
	while (!TAILQ_EMPTY(&st->held))
		drop_held(st, TAILQ_FIRST(&st->held));
	map_each(st->files, free_due, NULL);
	map_free(st->files);
	for (size_t i = 0; i < JOBLOG_STRIPES; i++)
		lock_done(&st->stripe[i]);
	lock_done(&st->lock);
	cond_done(&st->changed);
	cond_done(&st->stored);
	free(st);
	l->store = NULL;
}

struct forgetting {
	unsigned magic;
#define FORGETTING_MAGIC 0x53464f52U
	struct joblog_store *st;
	const char *job_id;
};

static void forget_due(struct str key UNUSED, void *value, void *arg)
{
	struct forgetting *f = FROM_VOID(struct forgetting, arg, FORGETTING_MAGIC);
	struct joblog_due *d = FROM_VOID(struct joblog_due, value, JOBLOG_DUE_MAGIC);

	if (strcmp(d->job_id, f->job_id) != 0)
		return;
	d->at_ms = d->ended_ms = JOBLOG_NEVER;
	if (!d->busy) /* else whoever has it finds no file */
		drop_due(f->st, d);
}

int joblog_forget(struct joblogs *l, const char *job_id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct joblog_store *st = l->store;
	struct forgetting f = {FORGETTING_MAGIC, st, job_id};
	struct lock *stripe = joblog_stripe(l, job_id);
	struct joblog_held *h, *next;
	int r;

	lock_take(stripe);
	lock_take(&st->lock);
	store_check(st);
	map_each(st->files, forget_due, &f);
	for (h = TAILQ_FIRST(&st->held); h != NULL; h = next) {
		next = TAILQ_NEXT(h, link);
		if (strcmp(h->job_id, job_id) == 0)
			drop_held(st, h);
	}
	store_check(st);
	lock_give(&st->lock);
	r = objstore_del_below(st->os, segment_prefix(a, job_id, NULL), NULL, NULL, err);
	if (r == 0)
		r = joblog_remove(l, job_id, err);
	lock_give(stripe);
	return r;
}
