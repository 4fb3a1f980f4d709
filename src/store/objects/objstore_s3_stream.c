/*
 * objstore_s3_stream.c - what comes from a reader, and only once: it is sent while it comes, and
 * never kept whole, neither in memory nor in a file. What the reader refuses with its last call is
 * not stored all the same: an object is completed after that call, and of a part a piece is held
 * back until then.
 */
#include "store/objects/objstore_s3.h"

#include "base/clock.h"

#define STREAM_STEP ((size_t)256 << 10)

/* Less than cap: the reader is at its end. */
static int fill(struct objstore_counted *in, char *p, size_t cap, size_t *n, struct err *err)
{
	size_t got = 1;

	for (*n = 0; *n < cap && got > 0; *n += got)
		if (objstore_counted_read(in, p + *n, cap - *n, &got, err) < 0)
			return -1;
	return 0;
}

/* ---- an object --------------------------------------------------------------------------- */

/* p holds n bytes, one more than a part: so it is known when the last one is there. */
static int send_parts(struct s3store *s, const char *key, const char *id,
                      struct objstore_counted *in, char *p, size_t n, struct objstore_part *part,
                      size_t *n_parts, struct err *err)
{
	for (*n_parts = 0; n > 0; ++*n_parts) {
		struct objstore_part *one = &part[*n_parts];
		size_t send = MIN(n, (size_t)S3_PART), got = 0;
		struct s3_call c = {.body = str_n(p, send)};

		if (*n_parts == OBJSTORE_PARTS_MAX)
			return err_set(err, ERR_TOO_BIG, "more than %d parts of %" PRIu64 " bytes",
			               OBJSTORE_PARTS_MAX, S3_PART);
		one->number = (uint32_t)*n_parts + 1;
		if (s3_put_part(s, key, id, one->number, &c, one->etag, err) < 0)
			return -1;
		if (n > send) {
			p[0] = p[send];
			if (fill(in, p + 1, (size_t)S3_PART, &got, err) < 0)
				return -1;
			got++;
		}
		n = got;
	}
	return 0;
}

static int put_in_parts(struct objstore *os, const char *key, struct objstore_counted *in, char *p,
                        struct objstore_info *info, struct err *err)
{
	AUTO_FREE struct objstore_part *part = xcalloc(OBJSTORE_PARTS_MAX, sizeof(*part));
	char id[OBJSTORE_UPLOAD_CAP];
	struct err later = {0};
	size_t n = 0;

	if (s3_parts_begin(os, key, id, err) < 0)
		return -1;
	if (send_parts((struct s3store *)os, key, id, in, p, (size_t)S3_PART + 1, part, &n, err) ==
	            0 &&
	    s3_parts_end(os, key, id, part, n, info, err) == 0)
		return 0;
	if (s3_parts_abort(os, key, id, &later) < 0)
		err_clear(&later); /* swept by age */
	return -1;
}

int s3_put_stream(struct objstore *os, const char *key, uint64_t size, objstore_read_fn *read,
                  void *arg, struct objstore_info *info, struct err *err)
{
	struct objstore_counted in = {.read = read, .arg = arg, .size = size};
	size_t cap = (size_t)MIN(size, S3_PART) + 1, n;
	AUTO_FREE char *p = xmalloc(cap);

	if (fill(&in, p, cap, &n, err) < 0)
		return -1;
	if (n > S3_PART)
		return put_in_parts(os, key, &in, p, info, err);
	if (s3_put_body((struct s3store *)os, key, str_n(p, n), info->etag, NULL, err) < 0)
		return -1;
	info->size = n;
	info->modified_ms = clock_wall_ms();
	return 0;
}

/* ---- a part ------------------------------------------------------------------------------ */

/* Gives what the reader gave once the reader was asked for more. */
struct held {
	unsigned magic;
#define HELD_MAGIC 0x5348454cU
	struct objstore_counted in;
	char *given, *next;
	size_t n, at, n_next;
};

static int next_step(struct held *h, struct err *err)
{
	char *p = h->given;

	h->given = h->next;
	h->next = p;
	h->n = h->n_next;
	h->at = 0;
	return h->n == 0 ? 0 : objstore_counted_read(&h->in, h->next, STREAM_STEP, &h->n_next, err);
}

static int read_held(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	struct held *h = FROM_VOID(struct held, arg, HELD_MAGIC);

	if (h->at == h->n && next_step(h, err) < 0)
		return -1;
	*n = MIN(cap, h->n - h->at);
	memcpy(p, h->given + h->at, *n);
	h->at += *n;
	return 0;
}

static int put_held(struct s3store *s, const char *key, const char *id, uint32_t number,
                    struct objstore_counted *in, char etag[80], struct err *err)
{
	AUTO_FREE char *room = xmalloc(2 * STREAM_STEP);
	struct held h = {.magic = HELD_MAGIC, .in = *in, .given = room, .next = room + STREAM_STEP};
	struct s3_call c = {
		.read = read_held, .arg = &h, .body_len = in->size, .stall_ms = S3_PASSED_MS};

	if (objstore_counted_read(&h.in, h.next, STREAM_STEP, &h.n_next, err) < 0)
		return -1;
	return s3_put_part(s, key, id, number, &c, etag, err);
}

int s3_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                 uint64_t size, objstore_read_fn *read, void *arg, char etag[80], struct err *err)
{
	struct objstore_counted in = {.read = read, .arg = arg, .size = size};
	size_t cap = (size_t)MIN(size, S3_SMALL) + 1, n;
	AUTO_FREE char *p = NULL;
	struct s3_call c = {0};

	if (size != UINT64_MAX && size > S3_SMALL)
		return put_held((struct s3store *)os, key, id, number, &in, etag, err);
	p = xmalloc(cap);
	if (fill(&in, p, cap, &n, err) < 0)
		return -1;
	if (n > S3_SMALL)
		return err_set(err, ERR_TOO_BIG, "a part of more than %zu bytes has to be declared",
		               S3_SMALL);
	c.body = str_n(p, n);
	return s3_put_part((struct s3store *)os, key, id, number, &c, etag, err);
}
