/* bring.c - see bring.h. */
#include "store/sources/bring.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "store/blobs/blob_git.h"
#include "store/common/digest_cache.h"
#include "store/sources/xfer.h"

#include <sys/file.h>
#include <sys/queue.h>

#define WAIT_STEP_MS 200
#define WAIT_UNSEEN_MS 600000 /* for one of another process, of which nothing is known */
#define PREFIX_CAP 32

void bring_tmp_name(const struct source *s, const struct source_file *f, char out[BRING_NAME_CAP])
{
	static const char *const kind[] = {
		[HASH_SHA256] = "sha256", [HASH_SHA1] = "git", [HASH_MD5] = "md5"};
	static const size_t bytes[] = {[HASH_SHA256] = 32, [HASH_SHA1] = 20, [HASH_MD5] = 16};
	char hex[HASH_HEX_CAP], size[24];
	struct digest d;

	if (f->has_id) {
		hex_encode(f->id, bytes[f->kind], hex);
		fmt_fixed(out, BRING_NAME_CAP, "%s-%s", kind[f->kind], hex);
		return;
	}
	{
		AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
		const char *name = source_name(s);

		FMT(size, "%" PRIu64, f->size);
		hash_add(h, name, strlen(name) + 1);
		hash_add(h, f->path, strlen(f->path) + 1);
		hash_add(h, size, strlen(size));
		(void)hash_end(h, d.b);
	}
	digest_hex(&d, hex);
	fmt_fixed(out, BRING_NAME_CAP, "file-%s", hex);
}

struct passing {
	unsigned magic;
#define PASSING_MAGIC 0x53504149U
	const struct bring_job *job;
	const struct http_sink *to;
};

static int counting_put(void *arg, const void *p, size_t n, struct err *err)
{
	struct passing *c = FROM_VOID(struct passing, arg, PASSING_MAGIC);

	c->job->travelled(c->job->arg, n);
	return c->to->put(c->to->arg, p, n, err);
}

static int counting_drain(void *arg, int from, size_t n, struct err *err)
{
	struct passing *c = FROM_VOID(struct passing, arg, PASSING_MAGIC);

	c->job->travelled(c->job->arg, n);
	return c->to->drain(c->to->arg, from, n, err);
}

static int read_source(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
                       const atomic_bool *cancel, struct err *err)
{
	const struct bring_job *job = FROM_VOID(struct passing, of, PASSING_MAGIC)->job;
	struct passing c = {PASSING_MAGIC, job, to};
	struct http_sink counting = {
		.put = counting_put, .drain = to->drain != NULL ? counting_drain : NULL, .arg = &c};

	return source_read(job->source, job->file, first, count,
	                   job->travelled != NULL ? &counting : to, cancel, err);
}

/* A failure of the fetch itself does not name the source yet. */
static int name_it(const struct bring_job *job, struct err *err)
{
	const char *name = source_name(job->source);

	if (!str_starts(str_of(err->msg), name))
		(void)err_wrap(err, "%s: %s", name, job->file->path);
	return -1;
}

static struct xfer_job xfer_of(struct passing *of, char prefix[PREFIX_CAP])
{
	const struct bring_job *job = of->job;
	const struct source_file *f = job->file;
	struct xfer_job x = {.read = read_source,
	                     .of = of,
	                     .size = f->size,
	                     .identity = f->etag,
	                     .fd = -1,
	                     .kind = f->kind,
	                     .expect = f->has_id ? f->id : NULL,
	                     .streams_max = job->streams_max,
	                     .progress = job->progress,
	                     .arg = job->arg,
	                     .cancel = job->cancel};

	if (f->has_id && f->kind == HASH_SHA1) { /* git's blob id: the NUL belongs to it */
		fmt_fixed(prefix, PREFIX_CAP, "blob %" PRIu64, f->size);
		x.prefix = str_n(prefix, strlen(prefix) + 1);
	}
	return x;
}

static bool promised(const struct source_file *f)
{
	return f->has_id && f->kind == HASH_SHA256;
}

/* Is the blob here? Once this says so it stays. */
static bool here(const struct bring_job *job, struct digest *d)
{
	const struct source_file *f = job->file;

	if (promised(f))
		memcpy(d->b, f->id, HASH_SHA256_LEN);
	else if (!f->has_id || f->kind != HASH_SHA1 ||
	         !blob_git_find(job->blobs, f->id, f->size, d))
		return false;
	blob_pins_add(job->pins, d);
	return blobs_has(job->blobs, d, f->size);
}

/* --- large ones that are under way, for who wants the same ------------------------------------ */

struct under_way {
	unsigned magic;
#define UNDER_WAY_MAGIC 0x53554e44U
	const struct blobs *blobs;
	const char *name; /* of its temporary file */
	const struct bring_job *job;
	unsigned refs;
	int fd;         /* a copy: it is read while it is written */
	uint64_t front; /* as of xfer.h */
	unsigned began; /* how often that went back */
	bool done, failed;
	struct cond moved;
	LIST_ENTRY(under_way) in;
};

/* Of the list, and of all in it. */
static struct lock under_way_lock = LOCK_INIT(LOCK_UNDER_WAY);
static LIST_HEAD(, under_way) all_under_way = LIST_HEAD_INITIALIZER(all_under_way);

/* With the lock. The last one frees. */
static void under_way_drop(struct under_way *u)
{
	assert(lock_is_mine(&under_way_lock) && u->refs > 0);
	if (--u->refs > 0)
		return;
	if (u->fd >= 0)
		(void)close(u->fd);
	cond_done(&u->moved);
	free(u);
}

static struct under_way *under_way_begin(const struct bring_job *job, const char *name, int fd)
{
	struct under_way *u = xcalloc(1, sizeof(*u));

	u->magic = UNDER_WAY_MAGIC;
	u->blobs = job->blobs;
	u->name = name;
	u->job = job;
	u->refs = 1;
	u->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* -1: nobody follows */
	cond_init(&u->moved);
	lock_take(&under_way_lock);
	LIST_INSERT_HEAD(&all_under_way, u, in);
	lock_give(&under_way_lock);
	return u;
}

static void under_way_end(struct under_way *u, bool failed)
{
	lock_take(&under_way_lock);
	LIST_REMOVE(u, in);
	u->done = true;
	u->failed = failed;
	cond_broadcast(&u->moved);
	under_way_drop(u);
	lock_give(&under_way_lock);
}

static void on_front(void *arg, uint64_t bytes)
{
	struct under_way *u = FROM_VOID(struct under_way, arg, UNDER_WAY_MAGIC);

	lock_take(&under_way_lock);
	u->began += bytes < u->front;
	u->front = bytes;
	cond_broadcast(&u->moved);
	lock_give(&under_way_lock);
	if (u->job->front != NULL)
		u->job->front(u->job->arg, bytes);
}

static void on_progress(void *arg, uint64_t done)
{
	const struct under_way *u = FROM_VOID(struct under_way, arg, UNDER_WAY_MAGIC);

	u->job->progress(u->job->arg, done);
}

static struct under_way *under_way_find(const struct bring_job *job, const char *name)
{
	struct under_way *u;

	lock_take(&under_way_lock);
	LIST_FOREACH(u, &all_under_way, in)
	if (u->blobs == job->blobs && u->fd >= 0 && strcmp(u->name, name) == 0) {
		u->refs++;
		break;
	}
	lock_give(&under_way_lock);
	return u;
}

static bool is_canceled(const struct bring_job *job)
{
	return job->cancel != NULL && atomic_load(job->cancel);
}

static void tell(const struct bring_job *job, uint64_t bytes)
{
	if (job->front != NULL)
		job->front(job->arg, bytes);
	if (job->progress != NULL)
		job->progress(job->arg, bytes);
}

/* Tells of it as of a fetch of its own, until it has ended, well or not. */
static void follow(const struct bring_job *job, struct under_way *u)
{
	uint64_t told = 0, front;
	unsigned began;
	bool done = false, anew;

	log_info("%s: %s: follows another fetch of the same file", source_name(job->source),
	         job->file->path);
	if (job->opened != NULL)
		job->opened(job->arg, u->fd);
	lock_take(&under_way_lock);
	began = u->began;
	while (!done && !is_canceled(job)) {
		anew = began != u->began || u->failed; /* what comes next may be other bytes */
		front = u->failed ? 0 : u->front;
		done = u->done;
		began = u->began;
		if (!done && !anew && front == told) {
			(void)cond_wait_until(&u->moved, &under_way_lock,
			                      sync_deadline(WAIT_STEP_MS));
			continue;
		}
		lock_give(&under_way_lock);
		if (anew)
			tell(job, 0);
		if (front != 0 && (anew || front != told))
			tell(job, front);
		told = front;
		lock_take(&under_way_lock);
	}
	under_way_drop(u);
	lock_give(&under_way_lock);
}

static int bring_small(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	size_t n = (size_t)job->file->size;
	AUTO_FREE uint8_t *mem = xmalloc(n + 1);
	struct passing of = {PASSING_MAGIC, job, NULL};
	struct xfer_result res;
	char prefix[PREFIX_CAP];
	struct xfer_job x = xfer_of(&of, prefix);
	struct digest put;

	/* A batch is of one who has looked. */
	if (job->batch == NULL && here(job, sha256))
		return 0;
	x.mem = mem;
	if (xfer_fetch(&x, &res, err) < 0)
		return name_it(job, err);
	blob_pins_add(job->pins, &res.sha256);
	if (job->batch != NULL ? blob_batch_add(job->batch, mem, n, &res.sha256, err) < 0
	                       : blobs_put(job->blobs, str_n((const char *)mem, n), &put, err) < 0)
		return -1;
	*sha256 = res.sha256;
	return 0;
}

/* The temporary file, as soon as nobody else fetches the same. fd -1: it has become a blob. */
static int lock_tmp(const struct bring_job *job, const char *name, int *fd,
                    char journal[FS_PATH_MAX], struct digest *sha256, struct err *err)
{
	int64_t unseen_ms = clock_mono_ms();
	struct blobs *b = job->blobs;

	*fd = -1;
	while (blobs_tmp(b, name, fd, journal, err) < 0) {
		struct under_way *u;

		if (err->code != ERR_BUSY || clock_mono_ms() - unseen_ms > WAIT_UNSEEN_MS)
			return -1;
		err_clear(err);
		if (is_canceled(job))
			return err_set(err, ERR_CANCELED, "canceled");
		u = under_way_find(job, name);
		if (u == NULL) {
			clock_sleep_ms(WAIT_STEP_MS);
			continue;
		}
		follow(job, u);
		unseen_ms = clock_mono_ms();
	}
	if (!here(job, sha256))
		return 0;
	(void)close(*fd);
	*fd = -1;
	return blobs_drop_tmp(b, name, err);
}

static bool is_gits(const struct source_file *f)
{
	return f->has_id && f->kind == HASH_SHA1;
}

static int fetch_large(struct passing *of, const char *name, int fd, const char *journal,
                       struct digest *sha256, struct err *err)
{
	const struct bring_job *job = of->job;
	struct under_way *u = under_way_begin(job, name, fd);
	struct xfer_result res;
	char prefix[PREFIX_CAP];
	struct xfer_job x = xfer_of(of, prefix);
	int rc;

	x.fd = fd;
	x.front = on_front;
	x.progress = job->progress != NULL ? on_progress : NULL;
	x.arg = u;
	x.journal = journal;
	rc = xfer_fetch(&x, &res, err);
	if (rc == 0) {
		blob_pins_add(job->pins, &res.sha256);
		rc = blobs_commit(job->blobs, name, fd, &res.sha256, err);
	} else {
		(void)name_it(job, err);
	}
	if (rc == 0) {
		*sha256 = res.sha256;
		if (is_gits(job->file)) /* before others look for it */
			blob_git_note(job->blobs, job->file->id, sha256);
	}
	(void)flock(fd, LOCK_UN); /* copies of the descriptor would go on to hold it */
	under_way_end(u, rc < 0);
	return rc;
}

struct linking {
	unsigned magic;
#define LINKING_MAGIC 0x534c4e4bU
	const struct bring_job *job;
	uint64_t done;
};

static int link_source(void *arg, int dirfd, const char *name, struct err *err)
{
	const struct bring_job *job = FROM_VOID(struct linking, arg, LINKING_MAGIC)->job;

	return source_link(job->source, job->file, dirfd, name, err);
}

static int link_step(void *arg, size_t bytes, struct err *err)
{
	struct linking *l = FROM_VOID(struct linking, arg, LINKING_MAGIC);

	if (is_canceled(l->job))
		return err_set(err, ERR_CANCELED, "canceled");
	l->done += bytes;
	if (l->job->progress != NULL)
		l->job->progress(l->job->arg, l->done);
	return 0;
}

/* A file of our own needs no copy. *linked: it is a blob now. */
static int link_large(const struct bring_job *job, struct digest *sha256, bool *linked,
                      struct err *err)
{
	struct linking l = {LINKING_MAGIC, job, 0};
	struct blob_adopt x = {
		.size = job->file->size, .link = link_source, .step = link_step, .arg = &l};

	*linked = false;
	if (!source_links(job->source) || !promised(job->file))
		return 0;
	*linked = here(job, sha256);
	if (*linked)
		return 0;
	memcpy(x.d.b, job->file->id, HASH_SHA256_LEN);
	*linked = blobs_adopt(job->blobs, job->pins, &x, err) == 0;
	if (*linked)
		*sha256 = x.d;
	else if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	return 0;
}

static int bring_large(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	AUTO_FD int fd = -1;
	AUTO_FREE char *journal = xmalloc(FS_PATH_MAX);
	struct passing of = {PASSING_MAGIC, job, NULL};
	char name[BRING_NAME_CAP];
	bool linked;

	if (link_large(job, sha256, &linked, err) < 0)
		return name_it(job, err);
	if (linked)
		return 0;
	bring_tmp_name(job->source, job->file, name);
	if (lock_tmp(job, name, &fd, journal, sha256, err) < 0)
		return name_it(job, err);
	if (fd < 0)
		return 0;
	if (job->opened != NULL)
		job->opened(job->arg, fd);
	return fetch_large(&of, name, fd, digest_cache_applies(job->file) ? journal : NULL, sha256,
	                   err);
}

int bring_file(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	if (job->file->size > BRING_SMALL_MAX)
		return bring_large(job, sha256, err);
	if (bring_small(job, sha256, err) < 0)
		return -1;
	if (is_gits(job->file) && job->batch == NULL)
		blob_git_note(job->blobs, job->file->id, sha256);
	return 0;
}
