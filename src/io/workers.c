/* workers.c - a bounded queue and a few threads; see the header. */
#include "io/workers.h"

#include "base/sync.h"
#include "base/thread.h"

#include <semaphore.h>

struct task {
	void (*fn)(void *arg);
	void *arg;
	struct workers_owner owner;
};

/* Of the thread that asks: its place in workers.owners. */
static _Thread_local struct {
	const struct workers *of;
	unsigned i;
} my_place;

struct workers {
	unsigned magic;
#define WORKERS_MAGIC 0x49574f52U
	struct lock lock; /* everything below; never held while a task runs */
	/* Has n_woken: a task was queued or may run now, or stop was set. Not a condition, of which
	 * glibc loses a signal now and then (its bug 25847, mended in 2.41): nobody else is woken
	 * while one is, so all would sleep from then on. What this one counts stays. */
	sem_t some;
	struct task *queue; /* a ring of `cap` */
	unsigned cap, head, n;
	unsigned n_owned; /* of the queue: these may have to wait for a thread that is idle */
	struct workers_owner *owners;     /* of what runs, by thread */
	unsigned n_busy, n_begun, n_idle; /* idle: wait for `some` */
	unsigned n_woken;                 /* of these have been woken, and do not run yet */
	bool stop;
	char name[16];             /* what the kernel shows for a thread */
	unsigned n_threads, spare; /* spare: see workers_spare() */
	pthread_t threads[];
};

static void workers_check(const struct workers *w)
{
	assert(w->magic == WORKERS_MAGIC && lock_is_mine(&w->lock));
	assert(w->n <= w->cap);
	assert(w->head < w->cap);
	assert(w->n_begun <= w->n_threads && w->spare < w->n_threads);
	assert(w->n_owned <= w->n && w->n_busy <= w->n_threads);
	assert(w->n_woken <= w->n_idle && w->n_idle <= w->n_begun);
}

static struct task *task_at(const struct workers *w, unsigned i)
{
	assert(i < w->cap);
	return &w->queue[(w->head + i) % w->cap];
}

/* An owner has at most as many threads as are idle, and a part of it at most as many as the owner
 * would still get: who comes next always finds one. */
static bool may_run(const struct workers *w, struct workers_owner owner, unsigned idle)
{
	unsigned has = 0, part = 0;

	if (owner.id == 0)
		return true;
	if (idle <= w->spare)
		return false;
	for (unsigned i = 0; i < w->n_threads; i++) {
		bool same = w->owners[i].id == owner.id;

		has += same;
		part += same && owner.part != 0 && w->owners[i].part == owner.part;
	}
	if (has > 0 && idle <= w->spare + w->spare / 2)
		return false;
	return has < idle && (part == 0 || part < idle - has);
}

static bool same_owner(struct workers_owner a, struct workers_owner b)
{
	return a.id == b.id && a.part == b.part;
}

/* The first one that may run. */
static bool take(struct workers *w, struct task *out)
{
	struct workers_owner waits = {0}; /* of those just passed: they are many, of few owners */
	unsigned at = 0;

	for (; at < w->n; at++) {
		const struct task *t = task_at(w, at);

		if (t->owner.id != 0 && same_owner(t->owner, waits))
			continue;
		if (may_run(w, t->owner, w->n_threads - w->n_busy))
			break;
		waits = t->owner;
	}
	if (at == w->n)
		return false;
	*out = *task_at(w, at);
	for (; at > 0; at--)
		*task_at(w, at) = *task_at(w, at - 1);
	w->head = (w->head + 1) % w->cap;
	w->n--;
	w->n_owned -= out->owner.id != 0;
	assert(out->fn != NULL);
	return true;
}

/* One at a time: who wakes up takes a task, and wakes the next one if there is more. Many short
 * tasks at once are done by few threads that way, without a switch for each. True: post `some`,
 * after the lock. */
static bool wakes_one(struct workers *w)
{
	bool may = w->n > 0 && w->n_idle > 0 && w->n_woken == 0;

	w->n_woken += may;
	return may;
}

static void wake_all(struct workers *w)
{
	for (; w->n_woken < w->n_idle; w->n_woken++)
		(void)sem_post(&w->some);
}

/* With the lock, which it gives meanwhile. */
static void idle(struct workers *w)
{
	w->n_idle++;
	lock_give(&w->lock);
	while (sem_wait(&w->some) < 0)
		assert(errno == EINTR);
	lock_take(&w->lock);
	w->n_idle--;
	w->n_woken--;
}

static void *work(void *arg)
{
	struct workers *w = FROM_VOID(struct workers, arg, WORKERS_MAGIC);
	unsigned me;

	lock_take(&w->lock);
	me = w->n_begun++;
	my_place.of = w;
	my_place.i = me;
	for (;;) {
		struct task t;
		bool more;

		while (!take(w, &t)) {
			if (w->n == 0 && w->stop) {
				lock_give(&w->lock);
				return NULL; /* all that was queued is done */
			}
			idle(w);
		}
		w->owners[me] = t.owner;
		w->n_busy++;
		more = wakes_one(w);
		workers_check(w);
		lock_give(&w->lock);
		if (more)
			(void)sem_post(&w->some);
		t.fn(t.arg);
		lock_take(&w->lock);
		workers_check(w);
		assert(w->n_busy > 0); /* whose it is may have changed: workers_own() */
		w->owners[me] = (struct workers_owner){0};
		w->n_busy--;
		if (w->n_owned > 0 || w->stop)
			wake_all(w); /* another one's may run now */
	}
}

struct workers *workers_new(unsigned threads, unsigned queue_max, const char *name)
{
	struct workers *w = xcalloc(1, sizeof(*w) + threads * sizeof(w->threads[0]));

	assert(threads > 0 && queue_max > 0);
	lock_init(&w->lock, LOCK_WORKERS);
	if (sem_init(&w->some, 0, 0) < 0)
		abort();
	w->magic = WORKERS_MAGIC;
	w->cap = queue_max;
	w->queue = xcalloc(queue_max, sizeof(*w->queue));
	w->owners = xcalloc(threads, sizeof(*w->owners));
	copy_cut(w->name, sizeof(w->name), name);

	while (w->n_threads < threads &&
	       thread_start(&w->threads[w->n_threads], w->name, work, w) == 0)
		w->n_threads++;
	assert(w->n_threads > 0); /* fewer than asked for still work; none is like no memory */
	return w;
}

void workers_spare(struct workers *w, unsigned threads)
{
	lock_take(&w->lock);
	workers_check(w);
	assert(w->n == 0);
	w->spare = MIN(threads, w->n_threads - 1); /* else those of owners would never run */
	lock_give(&w->lock);
}

bool workers_own(struct workers *w, struct workers_owner owner)
{
	bool may;

	lock_take(&w->lock);
	workers_check(w);
	assert(my_place.of == w && w->owners[my_place.i].id == 0);
	may = may_run(w, owner, w->n_threads - w->n_busy + 1); /* as if this one were idle */
	if (may)
		w->owners[my_place.i] = owner;
	lock_give(&w->lock);
	return may;
}

int workers_submit_for(struct workers *w, struct workers_owner owner, void (*fn)(void *arg),
                       void *arg, struct err *err)
{
	bool full, wakes;

	lock_take(&w->lock);
	workers_check(w);
	assert(!w->stop && fn != NULL);
	full = w->n == w->cap;
	if (!full) {
		*task_at(w, w->n) = (struct task){fn, arg, owner};
		w->n++;
		w->n_owned += owner.id != 0;
	}
	wakes = wakes_one(w);
	workers_check(w);
	lock_give(&w->lock);
	if (wakes)
		(void)sem_post(&w->some); /* now: who wakes up finds the lock free */
	if (full)
		return err_set(err, ERR_BUSY,
		               "all %u %s threads are busy and %u more requests are waiting",
		               w->n_threads, w->name, w->cap);
	return 0;
}

int workers_submit(struct workers *w, void (*fn)(void *arg), void *arg, struct err *err)
{
	return workers_submit_for(w, (struct workers_owner){0}, fn, arg, err);
}

unsigned workers_queued(struct workers *w)
{
	unsigned n;

	lock_take(&w->lock);
	n = w->n;
	lock_give(&w->lock);
	return n;
}

void workers_stop(struct workers *w)
{
	if (w == NULL)
		return;
	lock_take(&w->lock);
	workers_check(w);
	w->stop = true;
	wake_all(w);
	lock_give(&w->lock);
	for (unsigned i = 0; i < w->n_threads; i++)
		(void)pthread_join(w->threads[i], NULL);
	assert(w->n == 0 && w->n_owned == 0 && w->n_busy == 0);
	(void)sem_destroy(&w->some);
	lock_done(&w->lock);
	free(w->owners);
	free(w->queue);
	free(w);
}
