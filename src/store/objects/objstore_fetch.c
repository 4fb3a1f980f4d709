/*
 * objstore_fetch.c - see objstore_fetch.h: a file of the store's own is copied and hashed at once,
 * other large objects come in parallel ranges, small ones in memory.
 */
#include "store/objects/objstore_fetch.h"

#include "store/common/copy.h"
#include "store/sources/xfer.h"

#define SMALL_MAX ((uint64_t)1 << 20)

static int differs(const struct objstore_fetch *f, struct err *err)
{
	return err_set(err, ERR_CORRUPT, "%s does not match its manifest", f->key);
}

static int into_buf(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	buf_add(arg, p, n);
	return 0;
}

static int fetch_small(struct objstore *os, const struct objstore_fetch *f, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(SMALL_MAX);
	struct digest got;

	if (f->size > 0 &&
	    objstore_read(os, f->key, 0, f->size, into_buf, &body, f->cancel, err) < 0) {
		if (err->code != ERR_RANGE)
			return -1;
		err_clear(err); /* it is shorter */
		return differs(f, err);
	}
	got = hash_sha256(body.p, body.n);
	if (body.n != f->size || !digest_same(&got, f->sha256))
		return differs(f, err);
	if (fs_write_all(f->fd, body.p, body.n, err) < 0)
		return -1;
	if (f->progress != NULL)
		f->progress(f->arg, f->size);
	return 0;
}

static int copy_file(const struct objstore_fetch *f, int from, const struct objstore_info *info,
                     struct err *err)
{
	struct digest got;
	const struct copy_job job = {.from = from,
	                             .to = f->fd,
	                             .size = f->size,
	                             .sha256 = &got,
	                             .progress = f->progress,
	                             .arg = f->arg,
	                             .cancel = f->cancel};

	if (info->size != f->size)
		return differs(f, err);
	if (copy_run(&job, err) < 0)
		return err_wrap(err, "%s", f->key);
	return digest_same(&got, f->sha256) ? 0 : differs(f, err);
}

struct elsewhere {
	unsigned magic;
#define ELSEWHERE_MAGIC 0x53454c53U
	struct objstore *os;
	const struct objstore_fetch *f;
	struct objstore_info info;
};

static int read_range(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
                      const atomic_bool *cancel, struct err *err)
{
	const struct elsewhere *e = FROM_VOID(struct elsewhere, of, ELSEWHERE_MAGIC);

	return objstore_read_same(e->os, e->f->key, e->info.etag, first, count, to->put, to->arg,
	                          cancel, err);
}

static int fetch_ranges(struct objstore *os, const struct objstore_fetch *f, struct err *err)
{
	struct elsewhere e = {.magic = ELSEWHERE_MAGIC, .os = os, .f = f};
	struct xfer_result got;
	const struct xfer_job job = {.read = read_range,
	                             .of = &e,
	                             .size = f->size,
	                             .identity = e.info.etag,
	                             .fd = f->fd,
	                             .kind = HASH_SHA256,
	                             .expect = f->sha256->b,
	                             .streams_max = f->streams_max,
	                             .progress = f->progress,
	                             .arg = f->arg,
	                             .cancel = f->cancel};

	if (objstore_stat(os, f->key, &e.info, err) < 0)
		return -1;
	if (e.info.size != f->size)
		return differs(f, err);
	return xfer_fetch(&job, &got, err) < 0 ? err_wrap(err, "%s", f->key) : 0;
}

int objstore_fetch(struct objstore *os, const struct objstore_fetch *f, struct err *err)
{
	struct objstore_info info;
	AUTO_FD int from = -1;

	if (f->size <= SMALL_MAX)
		return fetch_small(os, f, err);
	if (objstore_fd(os, f->key, &from, &info, err) == 0)
		return copy_file(f, from, &info, err);
	if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	return fetch_ranges(os, f, err);
}
