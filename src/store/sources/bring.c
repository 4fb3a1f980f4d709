/* bring.c - see bring.h. */
#include "store/sources/bring.h"

#include "base/clock.h"
#include "store/blobs/blob_git.h"
#include "store/common/digest_cache.h"
#include "store/sources/xfer.h"

#define WAIT_STEP_MS 200
#define WAIT_MAX_MS (INT64_C(6) * 3600 * 1000) /* for another fetch of the same blob */
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
	const struct bring_job *job;
	const struct http_sink *to;
};

static int counting_put(void *arg, const void *p, size_t n, struct err *err)
{
	struct passing *c = arg;

	c->job->travelled(c->job->arg, n);
	return c->to->put(c->to->arg, p, n, err);
}

static int counting_drain(void *arg, int from, size_t n, struct err *err)
{
	struct passing *c = arg;

	c->job->travelled(c->job->arg, n);
	return c->to->drain(c->to->arg, from, n, err);
}

static int read_source(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
                       const atomic_bool *cancel, struct err *err)
{
	const struct bring_job *job = ((const struct passing *)of)->job;
	struct passing c = {job, to};
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

static int bring_small(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	size_t n = (size_t)job->file->size;
	AUTO_FREE uint8_t *mem = xmalloc(n + 1);
	struct passing of = {job, NULL};
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
	int64_t until = clock_mono_ms() + WAIT_MAX_MS;
	struct blobs *b = job->blobs;

	*fd = -1;
	while (blobs_tmp(b, name, fd, journal, err) < 0) {
		if (err->code != ERR_BUSY || clock_mono_ms() > until)
			return -1;
		err_clear(err);
		if (job->cancel != NULL && atomic_load(job->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		clock_sleep_ms(WAIT_STEP_MS);
	}
	if (!here(job, sha256))
		return 0;
	(void)close(*fd);
	*fd = -1;
	return blobs_drop_tmp(b, name, err);
}

static int bring_large(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	AUTO_FD int fd = -1;
	AUTO_FREE char *journal = xmalloc(FS_PATH_MAX);
	struct passing of = {job, NULL};
	struct xfer_result res;
	char prefix[PREFIX_CAP], name[BRING_NAME_CAP];
	struct xfer_job x = xfer_of(&of, prefix);

	bring_tmp_name(job->source, job->file, name);
	if (lock_tmp(job, name, &fd, journal, sha256, err) < 0)
		return name_it(job, err);
	if (fd < 0)
		return 0;
	if (job->opened != NULL)
		job->opened(job->arg, fd);
	x.fd = fd;
	x.front = job->front;
	x.journal = digest_cache_applies(job->file) ? journal : NULL;
	if (xfer_fetch(&x, &res, err) < 0)
		return name_it(job, err);
	blob_pins_add(job->pins, &res.sha256);
	if (blobs_commit(job->blobs, name, fd, &res.sha256, err) < 0)
		return -1;
	*sha256 = res.sha256;
	return 0;
}

int bring_file(const struct bring_job *job, struct digest *sha256, struct err *err)
{
	const struct source_file *f = job->file;
	bool small = f->size <= BRING_SMALL_MAX;

	if (small ? bring_small(job, sha256, err) < 0 : bring_large(job, sha256, err) < 0)
		return -1;
	if (f->has_id && f->kind == HASH_SHA1 && !(small && job->batch != NULL))
		blob_git_note(job->blobs, f->id, sha256);
	return 0;
}
