/*
 * xfer_plain.c - one stream that hashes what it writes: small files, files in memory, and sources
 * without ranges. Also what a stream of either kind needs: digests of the content, and trying
 * again.
 */
#include "store/sources/xfer_impl.h"

#include "base/fs.h"

#define GAIN_BYTES ((uint64_t)1 << 20) /* a try that brought so much does not count */
#define RESTARTS_MAX 3                 /* from the beginning, where there are no ranges */
#define RETRY_AFTER_MAX 600            /* seconds; a source that wants more is given up */

/* --- content digests ------------------------------------------------------------------------- */

void xfer_content_begin(struct xfer_content *c, const struct xfer_job *job)
{
	bool own = job->expect != NULL && (job->kind != HASH_SHA256 || job->prefix.n > 0);

	hash_free(c->promised);
	hash_free(c->sha256);
	c->sha256 = hash_new(HASH_SHA256);
	c->promised = own ? hash_new(job->kind) : NULL;
	if (own)
		hash_add(c->promised, job->prefix.p, job->prefix.n);
}

void xfer_content_done(struct xfer_content *c)
{
	hash_free(c->sha256);
	hash_free(c->promised);
}

void xfer_content_add(struct xfer_content *c, const void *p, size_t n)
{
	hash_add(c->sha256, p, n);
	if (c->promised != NULL)
		hash_add(c->promised, p, n);
}

int xfer_content_end(struct xfer_content *c, const struct xfer_job *job, struct digest *sha256,
                     struct err *err)
{
	static const char *const kind[] = {
		[HASH_SHA256] = "sha256", [HASH_SHA1] = "sha1", [HASH_MD5] = "md5"};
	char want[HASH_HEX_CAP], have[HASH_HEX_CAP];
	uint8_t other[HASH_SHA256_LEN];
	size_t n = HASH_SHA256_LEN;
	struct digest d = {0};

	(void)hash_end(c->sha256, d.b);
	memcpy(other, d.b, sizeof(other));
	if (c->promised != NULL)
		n = hash_end(c->promised, other);
	if (job->expect != NULL && memcmp(other, job->expect, n) != 0) {
		hex_encode(job->expect, n, want);
		hex_encode(other, n, have);
		return err_set(err, ERR_DIGEST_MISMATCH,
		               "wrong digest: the source announced %s %s but sent %s",
		               kind[job->kind], want, have);
	}
	*sha256 = d;
	return 0;
}

/* --- one stream ------------------------------------------------------------------------------ */

/* True after a pause when the read may be tried again. gained: bytes that this try brought. */
bool xfer_read_again(struct retry *r, uint64_t gained, const atomic_bool *cancel, struct err *err)
{
	if (err->retry_after_s > RETRY_AFTER_MAX)
		return false;
	if (gained >= GAIN_BYTES)
		*r = (struct retry)RETRY_INIT(XFER_TRIES);
	r->cancel = cancel;
	if (retry_again(r, err))
		return true;
	if (cancel != NULL && atomic_load(cancel) && err->code != ERR_CANCELED) {
		err_clear(err);
		(void)err_set(err, ERR_CANCELED, "canceled");
	}
	return false;
}

struct plain {
	unsigned magic;
#define PLAIN_MAGIC 0x53504c41U
	const struct xfer_job *job;
	struct xfer_content content;
	uint64_t at, told, fetched;
};

static int plain_sink(void *arg, const void *p, size_t n, struct err *err)
{
	struct plain *pl = FROM_VOID(struct plain, arg, PLAIN_MAGIC);
	const struct xfer_job *job = pl->job;

	if (n > job->size - pl->at)
		return err_set(err, ERR_CORRUPT,
		               "the source sent more than the %" PRIu64 " bytes that it had listed",
		               job->size);
	if (job->mem != NULL)
		memcpy(job->mem + pl->at, p, n);
	else if (fs_pwrite_all(job->fd, p, n, pl->at, err) < 0)
		return -1;
	xfer_content_add(&pl->content, p, n);
	pl->at += n;
	pl->fetched += n;
	if (job->front != NULL)
		job->front(job->arg, pl->at);
	if (job->progress != NULL && pl->at - pl->told >= GAIN_BYTES) {
		pl->told = pl->at;
		job->progress(job->arg, pl->at);
	}
	return 0;
}

static int plain_read_all(struct plain *pl, struct err *err)
{
	const struct xfer_job *job = pl->job;
	const struct http_sink sink = {.put = plain_sink, .arg = pl};
	struct retry r = RETRY_INIT(XFER_TRIES);
	struct err cause = {0}; /* why it has to begin anew */
	int restarts = 0;

	while (pl->at < job->size) {
		uint64_t before = pl->at;

		if (job->read(job->of, pl->at, job->size - pl->at, &sink, job->cancel, err) == 0) {
			if (pl->at == job->size)
				return 0;
			(void)err_set(err, ERR_UNAVAILABLE,
			              "the source sent %" PRIu64 " of %" PRIu64 " bytes", pl->at,
			              job->size);
		}
		if (err->code == ERR_UNSUPPORTED && before > 0) {
			if (restarts++ == RESTARTS_MAX) {
				*err = cause;
				return -1;
			}
			err_clear(err);
			xfer_content_begin(&pl->content, job);
			pl->at = pl->told = 0;
			continue;
		}
		cause = *err;
		if (!xfer_read_again(&r, pl->at - before, job->cancel, err))
			return -1;
	}
	return 0;
}

int xfer_plain(const struct xfer_job *job, struct xfer_result *out, struct err *err)
{
	struct plain pl = {.magic = PLAIN_MAGIC, .job = job};
	struct digest sha256;
	int r = -1;

	xfer_content_begin(&pl.content, job);
	if (job->mem == NULL && ftruncate(job->fd, 0) < 0)
		(void)err_errno(err, errno, "create the temporary file of a fetch");
	else if (plain_read_all(&pl, err) == 0)
		r = xfer_content_end(&pl.content, job, &sha256, err);
	xfer_content_done(&pl.content);
	if (r < 0)
		return -1;
	if (job->progress != NULL)
		job->progress(job->arg, job->size);
	*out = (struct xfer_result){.sha256 = sha256, .fetched = pl.fetched};
	return 0;
}
