/* crew.c - see crew.h. */
#include "store/common/crew.h"

#include "base/sync.h"

struct crew {
	unsigned magic;
#define CREW_MAGIC 0x53435245U
	const struct crew_job *job;
	atomic_size_t next;
	atomic_bool stop;

	struct lock lock;
	struct cond ended; /* a thread */
	unsigned running;
	bool failed;
	struct err err; /* the first */
};

/* What is true whenever the lock is free. */
static void crew_check(const struct crew *c)
{
	assert(c->magic == CREW_MAGIC && lock_is_mine(&c->lock));
	assert(c->running <= CREW_THREADS_MAX);
	assert(c->failed == (c->err.code != ERR_NONE));
	assert(!c->failed || atomic_load(&c->stop));
}

static void fail(struct crew *c, const struct err *err)
{
	lock_take(&c->lock);
	crew_check(c);
	if (!c->failed)
		c->err = *err;
	c->failed = true;
	atomic_store(&c->stop, true);
	crew_check(c);
	lock_give(&c->lock);
}

static void *thread_main(void *arg)
{
	struct crew *c = FROM_VOID(struct crew, arg, CREW_MAGIC);
	size_t i;

	while (!atomic_load(&c->stop) && (i = atomic_fetch_add(&c->next, 1)) < c->job->n) {
		struct err err = {0};

		if (c->job->run(c->job->arg, i, &c->stop, &err) < 0)
			fail(c, &err);
	}
	lock_take(&c->lock);
	crew_check(c);
	assert(c->running > 0);
	c->running--;
	cond_signal(&c->ended);
	lock_give(&c->lock);
	return NULL;
}

static void oversee(struct crew *c)
{
	const struct crew_job *job = c->job;
	struct err err = {0};

	for (bool over = false; !over;) {
		lock_take(&c->lock);
		if (c->running > 0)
			(void)cond_wait_until(&c->ended, &c->lock, sync_deadline(CREW_TICK_MS));
		over = c->running == 0;
		lock_give(&c->lock);
		if (job->cancel != NULL && atomic_load(job->cancel) && !atomic_load(&c->stop)) {
			(void)err_set(&err, ERR_CANCELED, "canceled");
			fail(c, &err);
		}
		if (job->tick != NULL)
			job->tick(job->arg);
	}
}

static int run_threads(struct crew *c, struct err *err)
{
	unsigned most = MIN(MAX(c->job->threads, 1U), CREW_THREADS_MAX), n = 0;
	unsigned wanted = (unsigned)MIN((size_t)most, c->job->n);
	pthread_t thread[CREW_THREADS_MAX];
	int e = 0;

	lock_take(&c->lock);
	for (; n < wanted; n++) {
		e = pthread_create(&thread[n], NULL, thread_main, c);
		if (e != 0)
			break; /* goes on with those that there are */
		c->running++;
	}
	lock_give(&c->lock);
	if (n == 0 && wanted > 0)
		return err_errno(err, e, "start a thread");
	oversee(c);
	for (unsigned i = 0; i < n; i++)
		(void)pthread_join(thread[i], NULL);
	if (!c->failed)
		return 0;
	*err = c->err;
	return -1;
}

void crew_share_at(void *share, uint64_t done)
{
	struct crew_share *s = FROM_VOID(struct crew_share, share, CREW_SHARE_MAGIC);

	/* What is taken back makes the sum wrap around, and right again. */
	atomic_fetch_add(s->all, done - s->told);
	s->told = done;
}

int crew_run(const struct crew_job *job, struct err *err)
{
	struct crew c = {.magic = CREW_MAGIC, .job = job};
	int r;

	lock_init(&c.lock, LOCK_CREW);
	cond_init(&c.ended);
	r = run_threads(&c, err);
	cond_done(&c.ended);
	lock_done(&c.lock);
	return r;
}
