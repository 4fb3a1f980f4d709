/* copy.c - see copy.h: clone, copy_file_range, or a ring of buffers between a reader and a hasher.
 */
#include "store/common/copy.h"

#include <linux/fs.h>
#include "base/sync.h"
#include <sys/ioctl.h>

#define COPY_CHUNK ((size_t)1 << 20)
#define COPY_RING 8                   /* chunks that the hasher may lag behind: bounds memory */
#define COPY_STEP ((uint64_t)8 << 20) /* between write-back hints, progress and looks at cancel */
#define COPY_ODD_MAX 64               /* interrupted or short calls in a row before we give up */

struct ring {
	unsigned magic;
#define RING_MAGIC 0x5352494eU
	struct lock lock;
	struct cond moved;
	uint64_t filled, hashed; /* chunks, ever; filled - hashed <= COPY_RING */
	bool done;
	struct hash *hash;
	size_t n[COPY_RING];
	char *chunk[COPY_RING];
};

/* What is true whenever the lock is free. */
static void ring_check(const struct ring *r)
{
	assert(r->magic == RING_MAGIC && lock_is_mine(&r->lock) && r->hash != NULL);
	assert(r->hashed <= r->filled && r->filled - r->hashed <= COPY_RING);
}

static void *hasher(void *arg)
{
	struct ring *r = FROM_VOID(struct ring, arg, RING_MAGIC);

	lock_take(&r->lock);
	for (;;) {
		size_t i;

		while (r->filled == r->hashed && !r->done)
			cond_wait(&r->moved, &r->lock);
		if (r->filled == r->hashed)
			break;
		ring_check(r);
		i = r->hashed % COPY_RING;
		assert(r->chunk[i] != NULL && r->n[i] <= COPY_CHUNK);
		lock_give(&r->lock);
		hash_add(r->hash, r->chunk[i], r->n[i]);
		lock_take(&r->lock);
		r->hashed++;
		ring_check(r);
		cond_signal(&r->moved);
	}
	lock_give(&r->lock);
	return NULL;
}

static bool canceled(const struct copy_job *job)
{
	return job->cancel != NULL && atomic_load(job->cancel);
}

/* Every few MiB: start write-back, so that the fsync at the end is short; let pages go; tell. */
static int step(const struct copy_job *job, uint64_t *last, uint64_t done, struct err *err)
{
	if (done - *last < COPY_STEP && done < job->size)
		return 0;
	/* hints: a file system that cannot take them loses nothing */
	(void)sync_file_range(job->to, (off_t)(job->to_at + *last), (off_t)(done - *last),
	                      SYNC_FILE_RANGE_WRITE);
	if (job->drop_from)
		(void)posix_fadvise(job->from, (off_t)(job->from_at + *last), (off_t)(done - *last),
		                    POSIX_FADV_DONTNEED);
	*last = done;
	if (job->progress != NULL)
		job->progress(job->arg, done);
	if (canceled(job))
		return err_set(err, ERR_CANCELED, "canceled");
	return 0;
}

static int read_chunk(const struct copy_job *job, char *p, size_t n, uint64_t at, struct err *err)
{
	size_t got = 0;

	for (unsigned odd = 0; got < n && odd < COPY_ODD_MAX;) {
		ssize_t r = pread(job->from, p + got, n - got, (off_t)(job->from_at + at + got));

		if (r == 0)
			return err_set(err, ERR_CONFLICT,
			               "the file shrank while it was being read");
		if (r < 0 && errno != EINTR)
			return err_errno(err, errno, "read");
		if (r < 0)
			odd++;
		else
			got += (size_t)r;
	}
	return got == n ? 0 : err_set(err, ERR_IO, "read: interrupted too often");
}

static char *ring_take(struct ring *r, size_t *i)
{
	lock_take(&r->lock);
	while (r->filled - r->hashed == COPY_RING)
		cond_wait(&r->moved, &r->lock);
	ring_check(r);
	*i = r->filled % COPY_RING;
	lock_give(&r->lock);
	if (r->chunk[*i] == NULL)
		r->chunk[*i] = xmalloc(COPY_CHUNK);
	return r->chunk[*i];
}

static void ring_give(struct ring *r, size_t i, size_t n)
{
	lock_take(&r->lock);
	assert(!r->done && i == r->filled % COPY_RING && n > 0 && n <= COPY_CHUNK);
	r->n[i] = n;
	r->filled++;
	ring_check(r);
	cond_signal(&r->moved);
	lock_give(&r->lock);
}

/* Where data begins again, from `at` on; where the source does not tell, everything is data. */
static uint64_t next_data(const struct copy_job *job, uint64_t at)
{
	off_t next;

	if (!job->holes)
		return at;
	next = lseek(job->from, (off_t)(job->from_at + at), SEEK_DATA);
	if (next < 0)
		return errno == ENXIO ? job->size : at;
	return MIN((uint64_t)next - job->from_at, job->size);
}

/* ... and where it ends. */
static uint64_t data_end(const struct copy_job *job, uint64_t at)
{
	off_t next = job->holes ? lseek(job->from, (off_t)(job->from_at + at), SEEK_HOLE) : -1;

	if (next < 0 || (uint64_t)next <= job->from_at + at)
		return job->size;
	return MIN((uint64_t)next - job->from_at, job->size);
}

/* The length, when it ends in a hole. */
static int finish(const struct copy_job *job, struct err *err)
{
	return job->holes && ftruncate(job->to, (off_t)(job->to_at + job->size)) < 0
	               ? err_errno(err, errno, "write")
	               : 0;
}

static int hash_and_write(const struct copy_job *job, struct ring *r, struct err *err)
{
	uint64_t last = 0, data = 0, end = 0;

	for (uint64_t done = 0; done < job->size;) {
		size_t n = (size_t)MIN((uint64_t)COPY_CHUNK, job->size - done);
		size_t i;
		char *p = ring_take(r, &i);
		bool hole;

		if (done >= end) { /* of the last piece of data */
			data = next_data(job, done);
			end = data_end(job, data);
		}
		hole = data > done;
		n = (size_t)MIN((uint64_t)n, (hole ? data : end) - done);
		if (hole) {
			memset(p, 0, n);
		} else if (read_chunk(job, p, n, done, err) < 0) {
			return -1;
		}
		ring_give(r, i, n); /* it is hashed while it is written; both only read it */
		if (!hole && fs_pwrite_all(job->to, p, n, job->to_at + done, err) < 0)
			return -1;
		done += n;
		if (step(job, &last, done, err) < 0)
			return -1;
	}
	return finish(job, err);
}

static int copy_hashed(const struct copy_job *job, struct err *err)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	struct ring r = {.magic = RING_MAGIC, .lock = LOCK_INIT(LOCK_COPY), .moved = COND_INIT};
	pthread_t thread;
	int rc;

	if (job->size <= COPY_CHUNK) { /* a thread would cost more than it saves */
		AUTO_FREE char *p = xmalloc(COPY_CHUNK);

		if (read_chunk(job, p, (size_t)job->size, 0, err) < 0)
			return -1;
		hash_add(h, p, (size_t)job->size);
		if (fs_pwrite_all(job->to, p, (size_t)job->size, job->to_at, err) < 0)
			return -1;
		(void)hash_end(h, job->sha256->b);
		return step(job, &(uint64_t){0}, job->size, err);
	}
	r.hash = h;
	rc = pthread_create(&thread, NULL, hasher, &r);
	if (rc != 0)
		return err_errno(err, rc, "cannot start the hashing thread");
	rc = hash_and_write(job, &r, err);
	lock_take(&r.lock);
	r.done = true;
	cond_signal(&r.moved);
	lock_give(&r.lock);
	(void)pthread_join(thread, NULL);
	assert(r.hashed == r.filled);
	for (size_t i = 0; i < COPY_RING; i++)
		free(r.chunk[i]);
	if (rc == 0)
		(void)hash_end(h, job->sha256->b);
	return rc;
}

/* True when the whole file now shares its extents. */
static bool cloned(const struct copy_job *job)
{
	struct stat st;

	if (job->from_at != 0 || job->to_at != 0 || fstat(job->from, &st) < 0 ||
	    (uint64_t)st.st_size != job->size)
		return false;
	return ioctl(job->to, FICLONE, job->from) == 0;
}

/* For files between which the kernel cannot copy: other file systems, old kernels. */
static int copy_by_hand(const struct copy_job *job, uint64_t done, struct err *err)
{
	AUTO_FREE char *p = xmalloc(COPY_CHUNK);
	uint64_t last = done;

	for (done = next_data(job, done); done < job->size; done = next_data(job, done)) {
		size_t n = (size_t)MIN((uint64_t)COPY_CHUNK, data_end(job, done) - done);

		if (read_chunk(job, p, n, done, err) < 0 ||
		    fs_pwrite_all(job->to, p, n, job->to_at + done, err) < 0)
			return -1;
		done += n;
		if (step(job, &last, done, err) < 0)
			return -1;
	}
	return finish(job, err);
}

static int copy_plain(const struct copy_job *job, struct err *err)
{
	uint64_t done = 0, last = 0;

	if (cloned(job)) {
		if (job->progress != NULL)
			job->progress(job->arg, job->size);
		return 0;
	}
	for (unsigned odd = 0; (done = next_data(job, done)) < job->size && odd < COPY_ODD_MAX;) {
		loff_t in = (loff_t)(job->from_at + done), out = (loff_t)(job->to_at + done);
		size_t want = (size_t)MIN(COPY_STEP, data_end(job, done) - done);
		ssize_t n = copy_file_range(job->from, &in, job->to, &out, want, 0);

		if (n < 0 && errno == EINTR) {
			odd++;
			continue;
		}
		if (n < 0 && errno == ENOSPC)
			return err_errno(err, errno, "write");
		if (n <= 0) /* not here, or the end came early: reading tells which */
			return copy_by_hand(job, done, err);
		done += (uint64_t)n;
		if (step(job, &last, done, err) < 0)
			return -1;
	}
	return done == job->size ? finish(job, err)
	                         : err_set(err, ERR_IO, "copy: interrupted too often");
}

int copy_run(const struct copy_job *job, struct err *err)
{
	assert(job->from >= 0 && job->to >= 0 && job->from != job->to);

	if (canceled(job))
		return err_set(err, ERR_CANCELED, "canceled");
	if (job->sha256 != NULL)
		return copy_hashed(job, err);
	return copy_plain(job, err);
}

void copy_drop(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* a hint */
}
