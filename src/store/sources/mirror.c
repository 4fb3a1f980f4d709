/*
 * mirror.c - a listing becomes blobs: what is there is skipped, the rest fetched by a few workers,
 * largest files first; large ones over several streams, small ones in memory and synced in groups.
 *
 * All share TICKETS: a stream costs some, and a small file one, as most of its time goes by until
 * its server has answered. Locks: struct mirror.lock guards tickets, order and the first error, and
 * is never held across I/O.
 */
#include "store/sources/mirror.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "store/blobs/blob_batch.h"
#include "store/blobs/blob_objects.h"
#include "store/common/digest_cache.h"
#include "store/sources/bring.h"
#include "store/sources/xfer.h"

#include "base/sync.h"

#define AT_ONCE 16     /* streams */
#define STREAM_COST 3U /* in tickets; SMALL_COST for small files from afar */
#define SMALL_COST 1U
#define TICKETS (AT_ONCE * STREAM_COST)
#define FAR_MS 40 /* that a small file takes, AT_ONCE at once: a near server needs less */
#define RANGED_MIN (2 * XFER_PART_MIN)    /* larger ones come over several streams */
#define SPACE_MARGIN ((uint64_t)64 << 20) /* left free for the rest of the server */
#define TICK_MS 100
#define PROGRESS_MS 250
#define RATE_SAMPLES 20

struct item {
	const struct source_file *f;
	struct digest sha256; /* promised, later learned */
	size_t same_as;       /* another item with the same promise is fetched for this one */
	_Atomic uint64_t told;
	bool done;
};
#define ALONE SIZE_MAX

struct wanted {
	uint64_t size;
	size_t i;
};

struct mirror {
	unsigned magic;
#define MIRROR_MAGIC 0x534d4952U
	const struct mirror_job *job;
	struct item *item;
	struct wanted *order; /* items to fetch, largest first */
	size_t n_order;
	struct blob_batch *batch;
	struct digest_cache *known;
	atomic_bool stop;
	_Atomic uint64_t bytes_done, files_done, fetched;
	atomic_bool elsewhere; /* some are in the object store only */

	struct lock lock;
	struct cond freed; /* tickets, or it is over */
	struct cond ended; /* a worker, or all is over */
	size_t next;
	unsigned tickets, share, running, waiting, large_waiting;
	unsigned n_small;
	double small_ms; /* that one of the last small files took */
	bool is_far, failed;
	struct err err;
};

/* What is true whenever the lock is free while the workers run. */
static void mirror_check(const struct mirror *m)
{
	assert(m->magic == MIRROR_MAGIC && lock_is_mine(&m->lock));
	assert(m->tickets <= TICKETS && m->share > 0 && m->share <= AT_ONCE);
	assert(m->next <= m->n_order && m->n_order <= m->job->listing->n);
	assert(m->large_waiting <= m->waiting && m->waiting <= m->running);
	assert(m->running <= TICKETS);
	assert(m->failed == (m->err.code != ERR_NONE));
	assert(!m->failed || atomic_load(&m->stop));
}

/* --- what is to be done ---------------------------------------------------------------------- */

static bool promised(const struct source_file *f)
{
	return f->has_id && f->kind == HASH_SHA256;
}

struct by_id {
	struct digest d;
	size_t i;
};

static int compare_id(const void *a, const void *b)
{
	const struct by_id *x = a, *y = b;
	int c = memcmp(x->d.b, y->d.b, sizeof(x->d.b));

	return c != 0 ? c : (x->i > y->i) - (x->i < y->i);
}

/* Files with the same promise are fetched once. */
static void find_duplicates(struct mirror *m)
{
	size_t n = 0;
	AUTO_FREE struct by_id *ids = xcalloc(m->job->listing->n + 1, sizeof(*ids));

	for (size_t i = 0; i < m->job->listing->n; i++) {
		m->item[i].same_as = ALONE;
		if (promised(m->item[i].f))
			ids[n++] = (struct by_id){m->item[i].sha256, i};
	}
	qsort(ids, n, sizeof(*ids), compare_id);
	for (size_t i = 1, first = 0; i < n; i++) {
		if (digest_same(&ids[i].d, &ids[first].d))
			m->item[ids[i].i].same_as = ids[first].i;
		else
			first = i;
	}
}

static int compare_size(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
	                          : (x->i > y->i) - (x->i < y->i);
}

/* Is the blob here? Once this says so it stays. */
static bool here(struct mirror *m, const struct item *it)
{
	blob_pins_add(m->job->pins, &it->sha256);
	return blobs_has(m->job->blobs, &it->sha256, it->f->size);
}

static void add_done(struct mirror *m, struct item *it)
{
	uint64_t told = atomic_exchange(&it->told, it->f->size);

	assert(!it->done);
	it->done = true;
	atomic_fetch_add(&m->bytes_done, it->f->size - told);
	atomic_fetch_add(&m->files_done, 1);
}

static void plan(struct mirror *m)
{
	const struct source_listing *l = m->job->listing;
	unsigned large = 0;

	m->item = xcalloc(l->n + 1, sizeof(*m->item));
	m->order = xcalloc(l->n + 1, sizeof(*m->order));
	for (size_t i = 0; i < l->n; i++) {
		m->item[i].f = &l->file[i];
		if (promised(&l->file[i]))
			memcpy(m->item[i].sha256.b, l->file[i].id, HASH_SHA256_LEN);
	}
	find_duplicates(m);
	for (size_t i = 0; i < l->n; i++) {
		struct item *it = &m->item[i];

		if ((promised(it->f) || digest_cache_find(m->known, it->f, &it->sha256)) &&
		    here(m, it)) {
			add_done(m, it);
		} else if (it->same_as == ALONE) {
			m->order[m->n_order++] = (struct wanted){it->f->size, i};
			large += it->f->size >= RANGED_MIN;
		}
	}
	qsort(m->order, m->n_order, sizeof(*m->order), compare_size);
	m->tickets = TICKETS;
	m->share = MAX(1U, AT_ONCE / MAX(1U, MIN(large, 4U)));
}

/* --- space ----------------------------------------------------------------------------------- */

/* Bytes that an earlier try has allocated already. */
static uint64_t held_by_tmp(const struct mirror *m, const struct source_file *f)
{
	char name[BRING_NAME_CAP], path[BRING_NAME_CAP + 8];
	struct stat st;

	bring_tmp_name(m->job->source, f, name);
	FMT(path, "tmp/%s", name);
	if (fstatat(blobs_dirfd(m->job->blobs), path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return MIN(f->size, (uint64_t)st.st_blocks * 512);
}

/* Pinned before they are counted: nobody takes them for leftovers any more. */
static struct mirror_want count_missing(const struct mirror *m)
{
	struct mirror_want w = {0};
	char name[BRING_NAME_CAP];

	for (size_t i = 0; i < m->n_order; i++) {
		const struct source_file *f = m->item[m->order[i].i].f;

		w.bytes += f->size;
		if (f->size <= BRING_SMALL_MAX)
			continue;
		bring_tmp_name(m->job->source, f, name);
		blob_pins_add_reserved(m->job->pins, name);
		w.held += held_by_tmp(m, f);
	}
	return w;
}

static int check_space(const struct mirror *m, struct err *err)
{
	struct mirror_want w = count_missing(m);
	char path[40], want[UNITS_CAP], have[UNITS_CAP];
	uint64_t need = w.bytes - w.held, avail = 0, total;

	if (m->n_order > 0 && m->job->room != NULL && m->job->room(m->job->arg, &w, err) < 0)
		return -1;
	if (need == 0)
		return 0;
	FMT(path, "/proc/self/fd/%d", blobs_dirfd(m->job->blobs));
	if (fs_free_bytes(path, &avail, &total, err) < 0)
		return -1;
	if (avail >= SPACE_MARGIN && avail - SPACE_MARGIN >= need)
		return 0;
	return err_set(err, ERR_NO_SPACE,
	               "%s: %s are not in the mirror yet, and its disk has %s free. Free some "
	               "space, or select fewer files with allow_patterns",
	               source_name(m->job->source), units_show_bytes(need, want),
	               units_show_bytes(avail, have));
}

/* --- one file -------------------------------------------------------------------------------- */

struct one {
	unsigned magic;
#define ONE_MAGIC 0x534f4e45U
	struct mirror *m;
	struct item *it;
};

static void on_travelled(void *arg, size_t n)
{
	const struct one *o = FROM_VOID(struct one, arg, ONE_MAGIC);

	atomic_fetch_add_explicit(&o->m->fetched, n, memory_order_relaxed);
}

static void on_progress(void *arg, uint64_t done)
{
	struct one *o = FROM_VOID(struct one, arg, ONE_MAGIC);
	uint64_t told = atomic_exchange(&o->it->told, done);

	/* A fetch that begins anew takes back what it had told; the sum wraps around and is right.
	 */
	atomic_fetch_add(&o->m->bytes_done, done - told);
}

/* In the object store, and once this says so it stays. One that is away has nothing: then it
 * travels. */
static bool elsewhere(struct mirror *m, const struct item *it)
{
	char key[BLOB_KEY_CAP];
	struct err err = {0};
	bool has = false;

	if (m->job->objects == NULL || !promised(it->f))
		return false;
	blob_object_key(&it->sha256, key);
	blob_pins_settle(m->job->blobs, &it->sha256); /* plan() has pinned it */
	if (blob_objects_has(m->job->objects, key, it->f->size, &has, &err) < 0)
		log_info("%s: asked for in vain: %s", key, err.msg);
	if (has)
		atomic_store(&m->elsewhere, true);
	return has;
}

static int bring(struct one *o, unsigned streams, struct err *err)
{
	const struct bring_job job = {.blobs = o->m->job->blobs,
	                              .pins = o->m->job->pins,
	                              .source = o->m->job->source,
	                              .file = o->it->f,
	                              .batch = o->m->batch,
	                              .streams_max = streams,
	                              .travelled = on_travelled,
	                              .progress = on_progress,
	                              .arg = o,
	                              .cancel = &o->m->stop};

	if (elsewhere(o->m, o->it))
		return 0;
	return bring_file(&job, &o->it->sha256, err);
}

/* --- workers --------------------------------------------------------------------------------- */

static unsigned cost_of(const struct mirror *m, size_t i, unsigned *streams)
{
	uint64_t size = m->item[i].f->size;

	*streams = size >= RANGED_MIN ? m->share : 1;
	return m->is_far && size <= BRING_SMALL_MAX ? SMALL_COST : *streams * STREAM_COST;
}

/* The next item, as many streams as it may use, and what these cost; large files that wait go
 * first. */
static bool take(struct mirror *m, size_t *i, unsigned *streams, unsigned *cost)
{
	bool large, got = false;
	unsigned want;

	lock_take(&m->lock);
	mirror_check(m);
	if (!m->failed && m->next < m->n_order) {
		*i = m->order[m->next++].i;
		large = m->item[*i].f->size >= RANGED_MIN;
		want = cost_of(m, *i, streams);
		m->large_waiting += large;
		m->waiting++;
		while (!m->failed && (m->tickets < want || (!large && m->large_waiting > 0)))
			cond_wait(&m->freed, &m->lock);
		m->waiting--;
		m->large_waiting -= large;
		if (!m->failed) {
			m->tickets -= want;
			*cost = want;
			got = true;
		}
		if (large && m->waiting > 0)
			cond_broadcast(&m->freed);
	}
	mirror_check(m);
	lock_give(&m->lock);
	return got;
}

static void give_back(struct mirror *m, unsigned cost)
{
	lock_take(&m->lock);
	assert(cost > 0);
	m->tickets += cost;
	mirror_check(m);
	if (m->waiting > 0)
		cond_broadcast(&m->freed);
	lock_give(&m->lock);
}

/* The first ones of each worker are slower: their connections are made with them. */
static void look_at_small(struct mirror *m, int64_t took_ms)
{
	lock_take(&m->lock);
	m->n_small++;
	if (m->n_small > AT_ONCE)
		m->small_ms += ((double)took_ms - m->small_ms) /
		               MIN(m->n_small - AT_ONCE, (unsigned)AT_ONCE);
	if (!m->is_far && m->n_small >= 2 * AT_ONCE && m->small_ms >= FAR_MS) {
		m->is_far = true;
		cond_broadcast(&m->freed);
		cond_signal(&m->ended); /* more workers are started */
	}
	lock_give(&m->lock);
}

static void fail(struct mirror *m, const struct err *err)
{
	lock_take(&m->lock);
	if (!m->failed)
		m->err = *err;
	m->failed = true;
	atomic_store(&m->stop, true);
	mirror_check(m);
	cond_broadcast(&m->freed);
	cond_signal(&m->ended);
	lock_give(&m->lock);
}

static void *worker_main(void *arg)
{
	struct mirror *m = FROM_VOID(struct mirror, arg, MIRROR_MAGIC);
	unsigned streams, cost;
	size_t i;

	while (take(m, &i, &streams, &cost)) {
		struct one o = {ONE_MAGIC, m, &m->item[i]};
		struct err err = {0};
		int64_t since_ms = clock_mono_ms();
		int r = bring(&o, streams, &err);

		if (o.it->f->size <= BRING_SMALL_MAX)
			look_at_small(m, clock_mono_ms() - since_ms);
		give_back(m, cost);
		if (r < 0) {
			fail(m, &err);
			continue;
		}
		add_done(m, o.it);
		if (m->job->stored != NULL)
			m->job->stored(m->job->arg, o.it->f->size);
	}
	lock_take(&m->lock);
	mirror_check(m);
	assert(m->running > 0);
	m->running--;
	cond_signal(&m->ended);
	lock_give(&m->lock);
	return NULL;
}

/* --- progress -------------------------------------------------------------------------------- */

struct rate {
	uint64_t bytes[RATE_SAMPLES];
	int64_t at_ms[RATE_SAMPLES];
	unsigned n;
};

static double rate_now(struct rate *r, uint64_t fetched)
{
	int64_t now = clock_mono_ms();
	unsigned oldest = r->n >= RATE_SAMPLES ? r->n % RATE_SAMPLES : 0;
	int64_t took;
	uint64_t moved;

	if (r->n == 0) {
		r->bytes[0] = fetched;
		r->at_ms[0] = now;
		r->n = 1;
		return 0;
	}
	took = now - r->at_ms[oldest];
	moved = fetched - r->bytes[oldest];
	r->bytes[r->n % RATE_SAMPLES] = fetched;
	r->at_ms[r->n % RATE_SAMPLES] = now;
	r->n++;
	return took > 0 ? (double)moved * 1000.0 / (double)took : 0;
}

static struct mirror_progress snapshot(struct mirror *m, struct rate *rate)
{
	struct mirror_progress p = {.bytes_total = m->job->listing->bytes,
	                            .files_total = m->job->listing->n,
	                            .bytes_done = atomic_load(&m->bytes_done),
	                            .files_done = atomic_load(&m->files_done),
	                            .fetched = atomic_load(&m->fetched)};

	p.rate_bytes_s = rate_now(rate, p.fetched);
	return p;
}

struct crew {
	pthread_t thread[TICKETS];
	unsigned n;
};

/* With the lock. */
static int start_workers(struct mirror *m, struct crew *c, size_t wanted, struct err *err)
{
	for (wanted = MIN(wanted, COUNT(c->thread)); c->n < wanted; c->n++) {
		int e = pthread_create(&c->thread[c->n], NULL, worker_main, m);

		if (e != 0)
			return err_errno(err, e, "start a fetch thread");
		m->running++;
	}
	return 0;
}

/* Waits for the workers; tells about progress, and passes a cancel on. */
static void oversee(struct mirror *m, struct crew *c, struct rate *rate)
{
	int64_t told = clock_mono_ms();
	struct err err = {0}, ignored = {0};
	bool canceled = false;

	lock_take(&m->lock);
	while (m->running > 0) {
		(void)cond_wait_until(&m->ended, &m->lock, sync_deadline(TICK_MS));
		if (m->is_far && m->running > 0 && c->n < TICKETS) /* or with those there are */
			(void)start_workers(m, c, c->n + (m->n_order - m->next), &ignored);
		err_clear(&ignored);
		lock_give(&m->lock);
		if (!canceled && m->job->cancel != NULL && atomic_load(m->job->cancel)) {
			canceled = true;
			(void)err_set(&err, ERR_CANCELED, "%s: canceled",
			              source_name(m->job->source));
			fail(m, &err);
		}
		if (m->job->progress != NULL && clock_mono_ms() - told >= PROGRESS_MS) {
			struct mirror_progress p = snapshot(m, rate);

			told = clock_mono_ms();
			m->job->progress(m->job->arg, &p);
		}
		lock_take(&m->lock);
	}
	lock_give(&m->lock);
}

static void remember(struct mirror *m)
{
	struct err ignored = {0};

	for (size_t i = 0; i < m->n_order; i++) {
		const struct item *it = &m->item[m->order[i].i];

		if (it->done && !promised(it->f))
			digest_cache_add(m->known, it->f, &it->sha256);
	}
	if (digest_cache_save(m->known, m->job->blobs, &ignored) < 0)
		log_debug("source=%s not recorded: %s", source_name(m->job->source), ignored.msg);
}

static int run_workers(struct mirror *m, struct rate *rate, struct err *err)
{
	struct crew crew = {.n = 0};
	struct err own = {0};
	int r;

	lock_take(&m->lock);
	r = start_workers(m, &crew, MIN((size_t)AT_ONCE, m->n_order), &own);
	lock_give(&m->lock);
	if (r < 0 && crew.n == 0) {
		*err = own;
		return -1;
	}
	err_clear(&own); /* goes on with those that there are */
	oversee(m, &crew, rate);
	for (unsigned i = 0; i < crew.n; i++)
		(void)pthread_join(crew.thread[i], NULL);
	assert(m->running == 0 && m->waiting == 0 && m->tickets == TICKETS);
	/* Keep the fetched blobs even if the job failed: the next one finds them. */
	if (blob_batch_publish(m->batch, &own) < 0)
		fail(m, &own);
	else
		remember(m);
	if (m->failed) {
		*err = m->err;
		return -1;
	}
	return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

static int publish(struct mirror *m, struct digest *name, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest mf;

	manifest_init(&mf, a);
	for (size_t i = 0; i < m->job->listing->n; i++) {
		struct item *it = &m->item[i];

		if (!it->done) {
			assert(it->same_as != ALONE && m->item[it->same_as].done);
			add_done(m, it);
		}
		if (manifest_add(&mf, str_of(it->f->path), it->f->size, &it->sha256, err) < 0)
			return -1;
	}
	if (manifest_finish(&mf, err) < 0)
		return err_wrap(err, "%s", source_name(m->job->source));
	if (atomic_load(&m->elsewhere))
		return blobs_put_list(m->job->blobs, m->job->pins, &mf, name, err);
	return blobs_put_manifest(m->job->blobs, m->job->pins, &mf, name, err);
}

int mirror_fetch(const struct mirror_job *job, struct digest *manifest,
                 struct mirror_progress *done, struct err *err)
{
	struct mirror m = {.magic = MIRROR_MAGIC, .job = job};
	struct rate rate = {0};
	struct digest name;
	int r;

	assert(job->blobs != NULL && job->pins != NULL && job->source != NULL &&
	       job->listing != NULL);
	m.known = digest_cache_load(job->blobs, source_name(job->source));
	plan(&m);
	m.batch = blob_batch_new(job->blobs);
	lock_init(&m.lock, LOCK_MIRROR);
	cond_init(&m.freed);
	cond_init(&m.ended);
	(void)rate_now(&rate, 0);
	r = check_space(&m, err);
	if (r == 0 && m.n_order > 0)
		r = run_workers(&m, &rate, err);
	if (r == 0)
		r = publish(&m, &name, err);
	if (r == 0) {
		*done = snapshot(&m, &rate);
		*manifest = name;
		if (job->progress != NULL)
			job->progress(job->arg, done);
	}
	cond_done(&m.ended);
	cond_done(&m.freed);
	lock_done(&m.lock);
	blob_batch_free(m.batch);
	digest_cache_free(m.known);
	free(m.item);
	free(m.order);
	return r;
}
