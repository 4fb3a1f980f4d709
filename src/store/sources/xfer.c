/*
 * xfer.c - one file over several streams.
 *
 * Files that xfer_plain.c does not take are cut into parts: stream threads take the lowest part
 * that is wanted and write at its offset; the hasher reads back behind the contiguous front, so
 * hashing overlaps fetching and covers what an earlier try had written; the syncer makes finished
 * parts durable now and then; the caller's thread waits, reports progress and decides how many
 * streams there shall be.
 *
 * One lock (struct xfer.lock) guards the part table; it is never held across I/O, except for the
 * 20 bytes that note a part in the journal, or how far one is. Another one (writing) lets one
 * stream at a time write.
 */
#include "store/sources/xfer_impl.h"

#include "base/clock.h"
#include "base/fs.h"

#include <linux/magic.h>
#include "base/sync.h"
#include <sys/mman.h>
#include <sys/vfs.h>

#define STREAMS_DEFAULT 2
#define PARTS_WANTED 96 /* so many parts, if their limits allow: a short tail for the hasher */
#define PLAIN_MAX (2 * XFER_PART_MIN)
#define HASH_CHUNK ((size_t)1 << 20)
#define MAP_ALIGN ((uint64_t)65536) /* at least a page, on every machine */
#define WRITE_CHUNK ((size_t)256 << 10)
#define SYNC_BYTES ((uint64_t)512 << 20)
#define TICK_MS 100
#define FLUSH_MS 500    /* that a piece waits for the rest of its chunk */
#define FRONT_MS 5      /* the front moves without a word */
#define START_MS 250    /* between two looks at the rate, while the streams double */
#define WINDOW_MS 1000  /* ... and from then on */
#define HOLD_WINDOWS 10 /* after more streams did not help */

/* --- many streams ---------------------------------------------------------------------------- */

/* WANTED -> TAKEN -> DONE; one that an earlier try had written is DONE from the start, or begins
 * where that one was. A stream that fails keeps its part: then all fails. */
enum part_state { PART_WANTED, PART_TAKEN, PART_DONE };

struct part {
	_Atomic uint64_t written; /* from its start */
	enum part_state state;
};

struct xfer {
	unsigned magic;
#define XFER_MAGIC 0x58464552U
	const struct xfer_job *job;
	uint64_t part_bytes;
	struct part *part;
	size_t parts;
	_Atomic uint64_t fetched;
	atomic_bool stop; /* somebody failed, or the caller gave up */

	/* One writer at a time: the kernel lets no two write one file, and those that wait for its
	 * lock spin. Held across a write and nothing else; never together with `lock`. */
	struct lock writing;

	struct lock lock;
	struct cond moved;   /* any of what follows has changed */
	size_t first_wanted; /* none below is PART_WANTED */
	size_t n_done;
	unsigned target; /* streams with a lower number work, the others wait */
	bool hashed, failed, backed_off;
	uint64_t unsynced;
	struct xfer_journal journal;
	struct err err;
	struct digest sha256;
};

struct stream {
	unsigned magic;
#define STREAM_MAGIC 0x58535452U
	struct xfer *x;
	unsigned number;
};

static uint64_t part_size(const struct xfer *x, size_t part)
{
	uint64_t first = part * x->part_bytes;

	assert(first < x->job->size);
	return MIN(x->part_bytes, x->job->size - first);
}

/* What is true whenever the lock is free. */
static void xfer_check(const struct xfer *x)
{
	assert(x->magic == XFER_MAGIC && lock_is_mine(&x->lock));
	assert(x->n_done <= x->parts && x->first_wanted <= x->parts);
	assert(x->target > 0 && x->target <= XFER_STREAMS_MAX);
	assert(x->failed == (x->err.code != ERR_NONE));
	assert(!x->failed || atomic_load(&x->stop));
}

/* The only way from one state of a part to the next; with the lock. */
static void part_to(struct xfer *x, size_t part, enum part_state to)
{
	struct part *p = &x->part[part];

	assert(part < x->parts);
	switch (to) {
	case PART_WANTED:
		assert(false); /* nobody gives one back */
		break;
	case PART_TAKEN:
		assert(p->state == PART_WANTED && atomic_load(&p->written) < part_size(x, part));
		break;
	case PART_DONE:
		assert(p->state == PART_TAKEN && atomic_load(&p->written) == part_size(x, part));
		assert(x->n_done < x->parts);
		x->n_done++;
		break;
	}
	p->state = to;
}

static void fail(struct xfer *x, const struct err *err)
{
	assert(err->code != ERR_NONE);
	lock_take(&x->lock);
	xfer_check(x);
	if (!x->failed)
		x->err = *err;
	x->failed = true;
	atomic_store(&x->stop, true);
	cond_broadcast(&x->moved);
	xfer_check(x);
	lock_give(&x->lock);
}

/* The lowest part that is wanted; waits while this stream is one too many. */
static bool take_part(struct stream *s, size_t *part)
{
	struct xfer *x = s->x;
	bool found = false;

	lock_take(&x->lock);
	xfer_check(x);
	while (!x->failed && s->number >= x->target && x->n_done < x->parts)
		cond_wait(&x->moved, &x->lock);
	while (x->first_wanted < x->parts && x->part[x->first_wanted].state != PART_WANTED)
		x->first_wanted++;
	if (!x->failed && x->first_wanted < x->parts) {
		*part = x->first_wanted;
		part_to(x, *part, PART_TAKEN);
		found = true;
	}
	lock_give(&x->lock);
	return found;
}

static int finish_part(struct xfer *x, size_t part, struct err *err)
{
	int r;

	lock_take(&x->lock);
	xfer_check(x);
	r = xfer_journal_part(&x->journal, part, err);
	part_to(x, part, PART_DONE);
	x->unsynced += part_size(x, part);
	cond_broadcast(&x->moved);
	xfer_check(x);
	lock_give(&x->lock);
	return r;
}

/* Gathers what arrives in small pieces, so that the file is written in few large ones. */
struct part_sink {
	unsigned magic;
#define PART_SINK_MAGIC 0x53504154U
	struct xfer *x;
	struct part *part;
	uint64_t first, size;
	uint8_t *chunk; /* WRITE_CHUNK */
	size_t held;
	int64_t flushed_ms, noted_ms; /* when it was last noted how far it is */
	uint64_t noted;
};

/* With a slow source the next kill comes before the end of the part: what is written is noted once
 * in a while. */
static int part_note(struct part_sink *s, int64_t now_ms, struct err *err)
{
	struct xfer *x = s->x;
	uint64_t grain = x->part_bytes / XFER_GRAINS;
	unsigned grains = (unsigned)(atomic_load(&s->part->written) / grain);
	int r = 0;

	if (now_ms - s->noted_ms < XFER_NOTE_MS || grains == 0 || grains == XFER_GRAINS ||
	    grains * grain <= s->noted)
		return 0;
	lock_take(&x->lock);
	xfer_check(x);
	r = xfer_journal_grains(&x->journal, (size_t)(s->part - x->part), grains, err);
	lock_give(&x->lock);
	s->noted_ms = now_ms;
	s->noted = grains * grain;
	return r;
}

static int part_flush(struct part_sink *s, struct err *err)
{
	uint64_t at = atomic_load_explicit(&s->part->written, memory_order_relaxed);
	int r;

	if (s->held == 0)
		return 0;
	lock_take(&s->x->writing);
	r = fs_pwrite_all(s->x->job->fd, s->chunk, s->held, s->first + at, err);
	lock_give(&s->x->writing);
	if (r < 0)
		return -1;
	atomic_store_explicit(&s->part->written, at + s->held, memory_order_release);
	atomic_fetch_add_explicit(&s->x->fetched, s->held, memory_order_relaxed);
	s->held = 0;
	s->flushed_ms = clock_mono_ms();
	return part_note(s, s->flushed_ms, err);
}

static int part_write(void *arg, const void *p, size_t n, struct err *err)
{
	struct part_sink *s = FROM_VOID(struct part_sink, arg, PART_SINK_MAGIC);
	const uint8_t *from = p;

	if (n > s->size - atomic_load(&s->part->written) - s->held)
		return err_set(err, ERR_CORRUPT, "the source sent more than the requested range");
	while (n > 0) {
		size_t k = MIN(n, WRITE_CHUNK - s->held);

		memcpy(s->chunk + s->held, from, k);
		s->held += k;
		from += k;
		n -= k;
		if (s->held == WRITE_CHUNK && part_flush(s, err) < 0)
			return -1;
	}
	/* What trickles in is not held back for long. */
	if (s->held > 0 && clock_mono_ms() - s->flushed_ms >= FLUSH_MS)
		return part_flush(s, err);
	return 0;
}

/* A file system that takes nothing from a pipe. */
static int part_copy(struct part_sink *s, int from, size_t n, struct err *err)
{
	while (n > 0) {
		ssize_t k = read(from, s->chunk + s->held, MIN(n, WRITE_CHUNK - s->held));

		if (k <= 0)
			return err_errno(err, k < 0 ? errno : EPIPE, "create a pipe for a fetch");
		s->held += (size_t)k;
		n -= (size_t)k;
		if (s->held == WRITE_CHUNK && part_flush(s, err) < 0)
			return -1;
	}
	return 0;
}

/* Splices from a plain connection to the file, without a copy through this process. */
static int part_drain(void *arg, int from, size_t n, struct err *err)
{
	struct part_sink *s = FROM_VOID(struct part_sink, arg, PART_SINK_MAGIC);
	uint64_t at = atomic_load_explicit(&s->part->written, memory_order_relaxed);
	size_t left = n;
	ssize_t k = 0;
	int e = 0;

	if (n > s->size - at - s->held)
		return err_set(err, ERR_CORRUPT, "the source sent more than the requested range");
	if (part_flush(s, err) < 0)
		return -1;
	at = atomic_load_explicit(&s->part->written, memory_order_relaxed);
	lock_take(&s->x->writing);
	while (left > 0) {
		off_t to = (off_t)(s->first + at);

		k = splice(from, NULL, s->x->job->fd, &to, left, SPLICE_F_MOVE);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0) {
			e = k < 0 ? errno : 0;
			break;
		}
		at += (uint64_t)k;
		left -= (size_t)k;
	}
	lock_give(&s->x->writing);
	atomic_store_explicit(&s->part->written, at, memory_order_release);
	atomic_fetch_add_explicit(&s->x->fetched, n - left, memory_order_relaxed);
	if (e != 0 && e != EINVAL)
		return err_errno(err, e, "write a fetched file");
	if (part_note(s, clock_mono_ms(), err) < 0)
		return -1;
	return part_copy(s, from, left, err);
}

static int fetch_part(struct xfer *x, size_t part, uint8_t *chunk, struct err *err)
{
	const struct xfer_job *job = x->job;
	struct part *p = &x->part[part];
	struct part_sink s = {.magic = PART_SINK_MAGIC,
	                      .x = x,
	                      .part = p,
	                      .first = part * x->part_bytes,
	                      .size = part_size(x, part),
	                      .chunk = chunk,
	                      .flushed_ms = clock_mono_ms(),
	                      .noted_ms = clock_mono_ms()};
	const struct http_sink sink = {.put = part_write, .drain = part_drain, .arg = &s};
	struct retry r = RETRY_INIT(XFER_TRIES);
	uint64_t at = atomic_load(&p->written);

	s.noted = at;
	while (at < s.size) {
		uint64_t before = at;
		int got = job->read(job->of, s.first + at, s.size - at, &sink, &x->stop, err);
		struct err own = {0};

		/* The bytes before a failure are kept, too. */
		if (part_flush(&s, &own) < 0) {
			*err = own;
			return -1;
		}
		at = atomic_load(&p->written);
		if (at == s.size && got == 0)
			break;
		if (got == 0)
			(void)err_set(err, ERR_UNAVAILABLE,
			              "the source ended %" PRIu64 " bytes early", s.size - at);
		if (err->code == ERR_BUSY || err->code == ERR_UNAVAILABLE) {
			lock_take(&x->lock);
			x->target = MAX(1U, x->target / 2);
			x->backed_off = true;
			lock_give(&x->lock);
		}
		if (!xfer_read_again(&r, at - before, &x->stop, err))
			return -1;
	}
	return finish_part(x, part, err);
}

static void *stream_main(void *arg)
{
	struct stream *s = FROM_VOID(struct stream, arg, STREAM_MAGIC);
	AUTO_FREE uint8_t *chunk = xmalloc(WRITE_CHUNK);
	struct err err = {0};
	size_t part;

	assert(s->x->magic == XFER_MAGIC);
	while (take_part(s, &part)) {
		if (fetch_part(s->x, part, chunk, &err) < 0) {
			fail(s->x, &err);
			break;
		}
	}
	return NULL;
}

/* How far the file is there without a hole, when it is known to be there up to `from`. */
static uint64_t front_after(struct xfer *x, uint64_t from)
{
	uint64_t front = from;

	while (front < x->job->size) {
		size_t part = (size_t)(front / x->part_bytes);
		uint64_t first = part * x->part_bytes;
		uint64_t written =
			atomic_load_explicit(&x->part[part].written, memory_order_acquire);

		front = first + written;
		if (written < part_size(x, part))
			break;
	}
	return front;
}

/* Waits until a chunk can be hashed. The end of what can be, or `at` when all is over. */
static uint64_t wait_front(struct xfer *x, uint64_t at)
{
	uint64_t front = front_after(x, at);

	while (front - at < HASH_CHUNK && front < x->job->size && !atomic_load(&x->stop)) {
		lock_take(&x->lock);
		(void)cond_wait_until(&x->moved, &x->lock, sync_deadline(FRONT_MS));
		lock_give(&x->lock);
		front = front_after(x, at);
	}
	return atomic_load(&x->stop) ? at : front;
}

/* From the page cache itself: copying it out first costs a tenth of a fetch. What cannot be mapped
 * (or not be read: asked here, so that it is no SIGBUS) is false. */
static bool hash_mapped(struct xfer *x, struct xfer_content *content, uint64_t at, size_t n)
{
	size_t before = (size_t)(at % MAP_ALIGN);
	uint8_t *p =
		mmap(NULL, before + n, PROT_READ, MAP_SHARED, x->job->fd, (off_t)(at - before));
	bool there;

	if (p == MAP_FAILED)
		return false;
	there = madvise(p, before + n, MADV_POPULATE_READ) == 0;
	if (there)
		xfer_content_add(content, p + before, n);
	(void)munmap(p, before + n);
	return there;
}

/* *chunk is HASH_CHUNK bytes of the caller's, made when they are needed. */
static int hash_piece(struct xfer *x, struct xfer_content *content, uint64_t at, size_t n,
                      uint8_t **chunk, struct err *err)
{
	if (hash_mapped(x, content, at, n))
		return 0;
	if (*chunk == NULL)
		*chunk = xmalloc(HASH_CHUNK);
	if (fs_pread_all(x->job->fd, *chunk, n, at, err) < 0)
		return -1;
	xfer_content_add(content, *chunk, n);
	return 0;
}

static void *hasher_main(void *arg)
{
	struct xfer *x = FROM_VOID(struct xfer, arg, XFER_MAGIC);
	AUTO_FREE uint8_t *chunk = NULL;
	struct xfer_content content = {0};
	struct err err = {0};
	uint64_t at = 0;
	int r = 0;

	xfer_content_begin(&content, x->job);
	while (r == 0 && at < x->job->size) {
		uint64_t front = wait_front(x, at);

		if (front == at)
			break;
		while (r == 0 && at < front && !atomic_load(&x->stop)) {
			size_t n = (size_t)MIN(front - at, (uint64_t)HASH_CHUNK);

			r = hash_piece(x, &content, at, n, &chunk, &err);
			at += n;
			if (r == 0 && x->job->front != NULL)
				x->job->front(x->job->arg, at);
		}
	}
	if (r == 0 && at == x->job->size)
		r = xfer_content_end(&content, x->job, &x->sha256, &err);
	xfer_content_done(&content);
	if (r < 0) {
		fail(x, &err);
		return NULL;
	}
	lock_take(&x->lock);
	x->hashed = at == x->job->size;
	cond_broadcast(&x->moved);
	xfer_check(x);
	lock_give(&x->lock);
	return NULL;
}

/* Now and then the parts that are there go to the disk, so that a lost machine loses few of them
 * and the sync at the end is short. After a failed sync the kernel may have dropped the pages: the
 * whole fetch fails, and its journal is not believed again. */
static void *syncer_main(void *arg)
{
	struct xfer *x = FROM_VOID(struct xfer, arg, XFER_MAGIC);
	struct err err = {0};

	lock_take(&x->lock);
	while (!x->failed && x->n_done < x->parts) {
		uint32_t noted = x->journal.noted;
		int r;

		if (x->unsynced < SYNC_BYTES) {
			cond_wait(&x->moved, &x->lock);
			continue;
		}
		x->unsynced = 0;
		lock_give(&x->lock);
		r = fdatasync(x->job->fd) < 0 ? err_errno(&err, errno, "sync a fetched file") : 0;
		if (r < 0)
			(void)unlink(x->job->journal);
		lock_take(&x->lock);
		if (r == 0)
			r = xfer_journal_synced(&x->journal, noted, &err);
		if (r < 0) {
			lock_give(&x->lock);
			fail(x, &err);
			lock_take(&x->lock);
		}
	}
	lock_give(&x->lock);
	return NULL;
}

/* --- the caller's thread --------------------------------------------------------------------- */

/* How many streams: as TCP does, twice as many each time while that brings more, so that a far
 * source has its sixteen within a second, and a near one, whose wire two streams fill, is soon left
 * alone by threads that only take the CPUs from the hash. From then on half as many more, now and
 * then. */
struct pace {
	int64_t since_ms;
	uint64_t since_bytes;
	double rate_before; /* of the last window */
	unsigned before;    /* streams before the last raise, 0 = not raised */
	int hold;
	bool started; /* they double no more */
};

static unsigned pace_next(struct pace *p, double rate, unsigned now, unsigned most)
{
	double worth = p->started ? 1.1 : 1.25; /* what a raise has to bring */
	unsigned next = now;

	if (p->before != 0 && rate < p->rate_before * worth) {
		next = p->before;
		p->hold = HOLD_WINDOWS;
		p->started = true;
	} else if (p->hold > 0) {
		p->hold--;
	} else {
		next = MIN(most, now + MAX(1U, p->started ? now / 2 : now));
	}
	p->before = next > now ? now : 0;
	p->rate_before = rate;
	return next;
}

struct crew {
	struct stream stream[XFER_STREAMS_MAX];
	pthread_t thread[XFER_STREAMS_MAX + 2];
	unsigned streams, threads;
};

static int crew_add(struct crew *c, void *(*fn)(void *), void *arg, struct err *err)
{
	int e;

	assert(c->threads < COUNT(c->thread));
	e = pthread_create(&c->thread[c->threads], NULL, fn, arg);
	if (e != 0)
		return err_errno(err, e, "start a fetch thread");
	c->threads++;
	return 0;
}

static int crew_grow(struct crew *c, struct xfer *x, unsigned target, struct err *err)
{
	while (c->streams < MIN(target, (unsigned)XFER_STREAMS_MAX)) {
		struct stream *s = &c->stream[c->streams];

		*s = (struct stream){STREAM_MAGIC, x, c->streams};
		if (crew_add(c, stream_main, s, err) < 0)
			return -1;
		c->streams++;
	}
	return 0;
}

/* Called about once a window: how many streams from now on. */
static void look_at_rate(struct xfer *x, struct pace *p, struct crew *c, unsigned most)
{
	int64_t now = clock_mono_ms(), took = now - p->since_ms;
	uint64_t bytes = atomic_load(&x->fetched);
	struct err ignored = {0};
	unsigned target;

	if (took < (p->started ? WINDOW_MS : START_MS))
		return;
	lock_take(&x->lock);
	if (x->backed_off) {
		p->hold = HOLD_WINDOWS;
		p->before = 0;
		p->started = true;
	}
	x->backed_off = false;
	target = x->target;
	if (x->parts - x->n_done > target)
		target =
			pace_next(p, (double)(bytes - p->since_bytes) / (double)took, target, most);
	x->target = target;
	cond_broadcast(&x->moved);
	xfer_check(x);
	lock_give(&x->lock);
	p->since_ms = now;
	p->since_bytes = bytes;
	(void)crew_grow(c, x, target, &ignored); /* goes on with those that there are */
}

static uint64_t bytes_there(struct xfer *x)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < x->parts; i++)
		sum += atomic_load_explicit(&x->part[i].written, memory_order_relaxed);
	return sum;
}

/* Until everything is fetched and hashed, or somebody failed. */
static void oversee(struct xfer *x, struct crew *c, unsigned most)
{
	struct pace pace = {.since_ms = clock_mono_ms()};
	struct err err = {0};
	bool over = false;

	while (!over) {

		if (x->job->cancel != NULL && atomic_load(x->job->cancel)) {
			(void)err_set(&err, ERR_CANCELED, "canceled");
			fail(x, &err);
			break;
		}
		lock_take(&x->lock);
		if (!x->hashed && !x->failed)
			(void)cond_wait_until(&x->moved, &x->lock, sync_deadline(TICK_MS));
		over = x->hashed || x->failed;
		lock_give(&x->lock);
		if (over)
			break;
		look_at_rate(x, &pace, c, most);
		if (x->job->progress != NULL)
			x->job->progress(x->job->arg, bytes_there(x));
	}
}

static int run_crew(struct xfer *x, struct err *err)
{
	unsigned most = x->job->streams_max != 0 ? x->job->streams_max : XFER_STREAMS_MAX;
	struct crew crew = {0};
	struct err own = {0};

	most = MIN(most, (unsigned)XFER_STREAMS_MAX);
	x->target = MIN(x->job->streams != 0 ? x->job->streams : STREAMS_DEFAULT, most);
	if (crew_add(&crew, hasher_main, x, &own) < 0 ||
	    (x->journal.fd >= 0 && crew_add(&crew, syncer_main, x, &own) < 0) ||
	    crew_grow(&crew, x, x->target, &own) < 0)
		fail(x, &own);
	oversee(x, &crew, most);
	for (unsigned i = 0; i < crew.threads; i++)
		(void)pthread_join(crew.thread[i], NULL);
	if (x->failed) {
		*err = x->err;
		return -1;
	}
	assert(x->n_done == x->parts);
	return 0;
}

/* --- entry ----------------------------------------------------------------------------------- */

static int reserve(int fd, uint64_t size, struct err *err)
{
	struct statfs fs;

	/* On tmpfs it would allocate all pages in this thread before the first byte is asked for.
	 */
	if (fstatfs(fd, &fs) == 0 && fs.f_type != TMPFS_MAGIC &&
	    fallocate(fd, 0, 0, (off_t)size) < 0 && errno != EOPNOTSUPP && errno != EINTR)
		return err_errno(err, errno, "%" PRIu64 " bytes for a fetched file", size);
	if (ftruncate(fd, (off_t)size) < 0)
		return err_errno(err, errno, "%" PRIu64 " bytes for a fetched file", size);
	return 0;
}

static uint64_t choose_part_bytes(uint64_t size)
{
	uint64_t part = size / PARTS_WANTED & ~(XFER_PART_MIN / 8 - 1);

	return MIN(MAX(part, XFER_PART_MIN), XFER_PART_MAX);
}

static int fetch_ranged(const struct xfer_job *job, struct xfer_result *out, bool *resumed,
                        struct err *err)
{
	struct xfer x = {
		.magic = XFER_MAGIC, .job = job, .part_bytes = choose_part_bytes(job->size)};
	AUTO_FREE uint16_t *grains = NULL;
	int r;

	x.parts = (size_t)((job->size + x.part_bytes - 1) / x.part_bytes);
	if (x.parts > XFER_PARTS_MAX)
		return err_set(err, ERR_TOO_BIG, "a file of %" PRIu64 " bytes", job->size);
	grains = xcalloc(x.parts, sizeof(*grains));
	if (xfer_journal_open(&x.journal, job, x.part_bytes, grains, x.parts, err) < 0)
		return -1;
	if (reserve(job->fd, job->size, err) < 0) {
		xfer_journal_close(&x.journal);
		return -1;
	}
	x.part = xcalloc(x.parts, sizeof(*x.part));
	for (size_t i = 0; i < x.parts; i++) {
		uint64_t size = part_size(&x, i);
		uint64_t there = MIN(grains[i] * (x.part_bytes / XFER_GRAINS), size);
		bool done = grains[i] == XFER_GRAINS;

		/* The last one may be short: its end is what its `p` line says. */
		if (!done && there == size)
			there = 0;
		x.n_done += done;
		*resumed = *resumed || there > 0;
		x.part[i].state = done ? PART_DONE : PART_WANTED;
		atomic_init(&x.part[i].written, there);
	}
	lock_init(&x.lock, LOCK_XFER);
	lock_init(&x.writing, LOCK_XFER_WRITE);
	cond_init(&x.moved);
	r = run_crew(&x, err);
	if (r == 0)
		*out = (struct xfer_result){.sha256 = x.sha256, .fetched = atomic_load(&x.fetched)};
	if (r == 0 && job->progress != NULL)
		job->progress(job->arg, job->size);

	cond_done(&x.moved);
	lock_done(&x.writing);
	lock_done(&x.lock);
	free(x.part);
	xfer_journal_close(&x.journal);
	return r;
}

int xfer_fetch(const struct xfer_job *job, struct xfer_result *out, struct err *err)
{
	bool resumed = false, again = false;

	assert(job->mem != NULL || job->fd >= 0);
	assert(err->code == ERR_NONE);
	if (job->mem != NULL || job->size < PLAIN_MAX)
		return xfer_plain(job, out, err);
	if (fetch_ranged(job, out, &resumed, err) == 0)
		return 0;
	if (job->journal != NULL && (err->code == ERR_CORRUPT || err->code == ERR_UNSUPPORTED))
		(void)unlink(job->journal);
	/* Bytes that an earlier try left on this disk may be the corrupt ones. */
	if (err->code == ERR_CORRUPT && resumed) {
		err_clear(err);
		if (fetch_ranged(job, out, &again, err) == 0)
			return 0;
		if (err->code == ERR_CORRUPT && job->journal != NULL)
			(void)unlink(job->journal);
	}
	/* A source without ranges: what it answered to them is worth nothing. */
	if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	return xfer_plain(job, out, err);
}
