/* sync.c - see sync.h. */
#include "base/sync.h"

static const struct lock_row rows[LOCK_COUNT] = {
#define X(constant, name, where, what) [LOCK_##constant] = {name, where, what},
	LOCK_IDS(X)
#undef X
};

/* The locks that this thread holds, in the order in which it took them. */
static _Thread_local struct {
	const struct lock *lock[LOCK_NEST_MAX];
	size_t n;
} held;

const struct lock_row *lock_row(enum lock_id id)
{
	assert(id < LOCK_COUNT);
	return &rows[id];
}

/* An id of this thread that no other live thread has. */
static uintptr_t self(void)
{
	return (uintptr_t)&held;
}

static void must(bool fine, const struct lock *l, const char *what)
{
	if (fine)
		return;
	(void)fprintf(stderr, "lock %s: %s\n", rows[l->id].name, what);
	abort();
}

bool lock_is_mine(const struct lock *l)
{
	return atomic_load_explicit(&l->owner, memory_order_relaxed) == self();
}

void lock_init(struct lock *l, enum lock_id id)
{
	assert(id < LOCK_COUNT);
	(void)pthread_mutex_init(&l->mutex, NULL);
	l->id = id;
	atomic_init(&l->owner, 0);
}

void lock_done(struct lock *l)
{
	must(atomic_load(&l->owner) == 0, l, "destroyed while it is held");
	(void)pthread_mutex_destroy(&l->mutex);
}

void lock_take(struct lock *l)
{
	const struct lock *last = held.n > 0 ? held.lock[held.n - 1] : NULL;

	if (last != NULL && last->id >= l->id) {
		(void)fprintf(stderr, "lock %s: taken after %s, against the order\n",
		              rows[l->id].name, rows[last->id].name);
		abort();
	}
	must(held.n < LOCK_NEST_MAX, l, "too many are held");
	must(pthread_mutex_lock(&l->mutex) == 0, l, "cannot be taken");
	atomic_store_explicit(&l->owner, self(), memory_order_relaxed);
	held.lock[held.n++] = l;
}

/* Mostly the one that was taken last. */
static void forget(const struct lock *l)
{
	size_t i = held.n;

	while (i > 0 && held.lock[i - 1] != l)
		i--;
	assert(i > 0);
	memmove(&held.lock[i - 1], &held.lock[i], (held.n - i) * sizeof(const struct lock *));
	held.n--;
}

void lock_give(struct lock *l)
{
	must(lock_is_mine(l), l, "released by a thread that does not hold it");
	forget(l);
	atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
	(void)pthread_mutex_unlock(&l->mutex);
}

void cond_init(struct cond *c)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	c->timed = true;
}

void cond_done(struct cond *c)
{
	(void)pthread_cond_destroy(&c->cond);
}

static void let_go(struct lock *l)
{
	must(lock_is_mine(l), l, "waited on by a thread that does not hold it");
	must(held.lock[held.n - 1] == l, l, "waited on while an inner lock is held");
	atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
}

void cond_wait(struct cond *c, struct lock *l)
{
	let_go(l);
	(void)pthread_cond_wait(&c->cond, &l->mutex);
	atomic_store_explicit(&l->owner, self(), memory_order_relaxed);
}

bool cond_wait_until(struct cond *c, struct lock *l, int64_t deadline_ms)
{
	struct timespec at = {.tv_sec = deadline_ms / 1000,
	                      .tv_nsec = deadline_ms % 1000 * 1000000};
	int r;

	assert(c->timed);
	let_go(l);
	r = pthread_cond_timedwait(&c->cond, &l->mutex, &at);
	atomic_store_explicit(&l->owner, self(), memory_order_relaxed);
	return r != ETIMEDOUT;
}

void cond_signal(struct cond *c)
{
	(void)pthread_cond_signal(&c->cond);
}

void cond_broadcast(struct cond *c)
{
	(void)pthread_cond_broadcast(&c->cond);
}

int64_t sync_deadline(int64_t wait_ms)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000 + wait_ms;
}
