/* ship.c - the loops of walker and publisher, and the life of a shipper; see ship.h. */
#include "run/ship.h"

#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#define NAP_MS 20  /* between two looks at the cancel flag */
#define WAKE_MS 20 /* between two looks that events ask for, at least */
#define MOVED_MAX ((size_t)1 << 20)

void ship_wait_ms(struct ship *s, int64_t ms)
{
	(void)cond_wait_until(&s->changed, &s->lock, sync_deadline(ms));
}

static bool unfinished(struct ship *s)
{
	struct ship_group *g = NULL;

	TAILQ_FOREACH(g, &s->list, link)
	{
		if (!g->written && !TAILQ_EMPTY(&g->entries))
			return true;
	}
	return false;
}

void ship_check(const struct ship *s)
{
	assert(s->magic == SHIP_MAGIC && lock_is_mine(&s->lock));
	assert(map_count(s->entries) == s->n_entries);
	assert(TAILQ_EMPTY(&s->all) == (s->n_entries == 0));
	/* the end, in its order: told, walked for the last time, all of it settled */
	assert(!s->walked_final || s->final);
	assert(!s->finished || s->walked_final);
	assert(s->n_doomed <= s->cap_doomed);
}

/* CPU time of this thread: on a busy machine much more time than that goes by. */
static int64_t worked_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* If the trainer is dead, nothing is judged before its exit is known. */
static void wait_for_the_end(struct ship *s)
{
	while (s->o.dead && !s->final && !s->done)
		cond_wait(&s->changed, &s->lock);
}

static int64_t clamp(int64_t v, int64_t least, int64_t most)
{
	return MIN(MAX(v, least), most);
}

/* Until the next look: in its time, or when something has happened, but never so often that looking
 * takes more than its share. */
static void pace(struct ship *s, int64_t begun, int64_t worked, bool busy)
{
	int64_t share = worked * (busy ? SHIP_BUSY_SHARE : SHIP_IDLE_SHARE);
	bool watched = s->watch != NULL && !s->blind;
	int64_t least = watched && !busy ? SHIP_WATCHED_MS : SHIP_WALK_MS;
	int64_t until = begun + clamp(share, least, SHIP_WALK_MAX_MS);
	int64_t soonest = begun + clamp(worked * SHIP_BUSY_SHARE, WAKE_MS, SHIP_WALK_MAX_MS);

	while (!s->done && !s->final && !s->last_look) {
		int64_t left = (s->woken ? soonest : until) - clock_mono_ms();

		if (left <= 0)
			return;
		ship_wait_ms(s, left);
	}
}

static void walked_for_good(struct ship *s)
{
	struct ship_group *g = NULL;

	s->walked_final = true;
	TAILQ_FOREACH(g, &s->list, link)
	g->news = true;
}

static void note_left_open(struct ship *s, int64_t begun)
{
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &s->all, link)
	e->left_open = e->writer && e->probe_ms >= begun;
	s->last_look = false;
}

/* Looks at the folder, and does nothing that could keep it from looking again soon: what comes and
 * goes between two looks is lost. */
static void *walker(void *ship)
{
	struct ship *s = ship_at(ship);

	lock_take(&s->lock);
	wait_for_the_end(s);
	while (!s->done && !s->walked_final) {
		int64_t begun = clock_mono_ms(), worked = worked_ms();
		bool final = s->final; /* nobody writes any more: one look is enough */
		bool last = s->last_look;
		bool changed;

		s->woken = false;
		s->probe_now = s->probe_now || last;
		lock_give(&s->lock);
		changed = ship_walk(s);
		if (!final)
			ship_probe(s);
		lock_take(&s->lock);
		if (last)
			note_left_open(s, begun);
		if (final)
			walked_for_good(s);
		ship_check(s);
		cond_broadcast(&s->changed);
		if (!final)
			pace(s, begun, worked_ms() - worked, changed || unfinished(s));
	}
	lock_give(&s->lock);
	return NULL;
}

/* Manifests and news: calls of the store and of the host, which take as long as they take. */
static void *publisher(void *ship)
{
	struct ship *s = ship_at(ship);

	lock_take(&s->lock);
	wait_for_the_end(s);
	while (!s->done && s->walk == 0) /* of what the journal names nothing is known before it */
		cond_wait(&s->changed, &s->lock);
	while (!s->done) {
		int64_t until = clock_mono_ms() + SHIP_WALK_MS;
		bool last = s->walked_final, over;

		ship_check(s);
		ship_groups_step(s);
		ship_check(s);
		over = last && ship_all_done(s);
		lock_give(&s->lock);
		ship_say_odd(s); /* before who waits for the end goes on, and perhaps away */
		lock_take(&s->lock);
		if (over) {
			s->finished = true;
			cond_broadcast(&s->changed);
		}
		lock_give(&s->lock);
		ship_spool_sweep(s);
		if (!last)
			ship_check_space(s);
		lock_take(&s->lock);
		ship_journal_tidy(s);
		for (int64_t left = until - clock_mono_ms(); left > 0 && !s->done && !s->finished;
		     left = until - clock_mono_ms()) {
			ship_wait_ms(s, left);
			if (s->walked_final && TAILQ_EMPTY(&s->queued_small) &&
			    TAILQ_EMPTY(&s->queued_large))
				break; /* the senders have news, or nothing to do */
		}
		while (s->finished && !s->done)
			cond_wait(&s->changed, &s->lock);
	}
	lock_give(&s->lock);
	return NULL;
}

static int open_folders(struct ship *s, struct err *err)
{
	s->dir_fd = fs_open_dir(s->o.dir, err);
	if (s->dir_fd < 0)
		return -1;
	s->network = fs_is_network(s->o.dir);
	s->spool_fd = fs_open_dir(s->o.spool, err);
	if (s->spool_fd < 0 || ship_journal_read(s, err) < 0 || ship_journal_open(s, err) < 0)
		return -1;
	return 0;
}

static void ship_free(struct ship *s)
{
	ship_watch_stop(s);
	ship_tables_free(s);
	close_fd_p(&s->dir_fd);
	close_fd_p(&s->spool_fd);
	close_fd_p(&s->journal_fd);
	cond_done(&s->changed);
	lock_done(&s->lock);
	s->magic = 0;
	free(s);
}

int ship_start(struct ship **out, const struct ship_options *o, struct err *err)
{
	struct ship *s = xcalloc(1, sizeof(*s));

	s->magic = SHIP_MAGIC;
	s->o = *o;
	s->dir_fd = s->spool_fd = s->journal_fd = -1;
	s->moved.max = MOVED_MAX;
	ship_tables_open(s);
	lock_init(&s->lock, LOCK_SHIP);
	cond_init(&s->changed);
	if (open_folders(s, err) < 0) {
		ship_free(s);
		return err_wrap(err, "checkpoint shipping");
	}
	if (!s->o.dead)
		ship_watch_start(s);
	/* threads that cannot be had: the process has no memory left, as xmalloc says */
	for (size_t i = 0; i < SHIP_SENDERS; i++) {
		if (pthread_create(&s->sender[i], NULL,
		                   i < SHIP_SENDERS_ANY ? ship_sender : ship_small_sender, s) != 0)
			abort();
	}
	if (pthread_create(&s->walker, NULL, walker, s) != 0 ||
	    pthread_create(&s->publisher, NULL, publisher, s) != 0)
		abort();
	*out = s;
	return 0;
}

void ship_totals(struct ship *s, struct ship_totals *out)
{
	struct ship_entry *e = NULL;
	struct ship_group *g = NULL;

	memset(out, 0, sizeof(*out));
	lock_take(&s->lock);
	ship_check(s);
	out->files = s->dropped_files;
	out->bytes_sent = s->dropped_bytes;
	TAILQ_FOREACH(e, &s->all, link)
	{
		out->files++;
		out->bytes += e->fact.size;
		out->bytes_sent += e->state == SHIP_SENT ? e->sent.size : e->progress;
	}
	TAILQ_FOREACH(g, &s->list, link)
	{
		out->complete += ship_is_complete(g);
		out->incomplete += g->base.there && g->base.c.state == CKPT_INCOMPLETE;
	}
	lock_give(&s->lock);
}

/* Called and returns with the lock; something grows with whatever is stored. */
static bool gives_up(struct ship *s)
{
	const struct ship_entry *e = NULL;
	const struct ship_group *g = NULL;
	uint64_t done = s->dropped_bytes;
	bool yes;

	if (s->o.cancel != NULL && *s->o.cancel)
		return true;
	if (s->o.give_up == NULL)
		return false;
	TAILQ_FOREACH(e, &s->all, link)
	done += e->state == SHIP_SENT ? e->sent.size + 1 : e->progress;
	TAILQ_FOREACH(g, &s->list, link)
	done += g->written;
	lock_give(&s->lock);
	yes = s->o.give_up(s->o.arg, done);
	lock_take(&s->lock);
	return yes;
}

void ship_last_look(struct ship *s, int64_t limit_ms)
{
	int64_t until = clock_mono_ms() + limit_ms;

	if (s == NULL)
		return;
	lock_take(&s->lock);
	ship_check(s);
	s->last_look = true;
	cond_broadcast(&s->changed);
	for (int64_t left = limit_ms; left > 0 && s->last_look && !s->done;
	     left = until - clock_mono_ms())
		ship_wait_ms(s, left);
	lock_give(&s->lock);
}

bool ship_finish(struct ship *s, bool ok)
{
	bool all = false;

	lock_take(&s->lock);
	ship_check(s);
	assert(!s->final); /* asked once */
	if (!s->o.dead)
		s->died_ms = clock_mono_ms();
	s->ok = ok;
	s->final = true;
	cond_broadcast(&s->changed);
	while (!s->finished) {
		if (gives_up(s))
			break;
		ship_wait_ms(s, NAP_MS);
	}
	all = s->finished && !s->lost && !s->too_many;
	ship_check(s);
	lock_give(&s->lock);
	return all;
}

void ship_close(struct ship *s)
{
	if (s == NULL)
		return;
	s->halt = true;
	lock_take(&s->lock);
	ship_check(s);
	s->done = true;
	cond_broadcast(&s->changed);
	lock_give(&s->lock);
	(void)pthread_join(s->walker, NULL);
	(void)pthread_join(s->publisher, NULL);
	for (size_t i = 0; i < SHIP_SENDERS; i++)
		(void)pthread_join(s->sender[i], NULL);
	ship_free(s);
}
