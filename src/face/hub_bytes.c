/*
 * hub_bytes.c - files of a repository, whole or in ranges. Bytes go out as they are, never packed:
 * clients count them, and that is all they check. What a HEAD says makes the names in their caches,
 * so it is said with every reply, also with one that sends them elsewhere.
 */
#include "base/fs.h"
#include "face/hub_impl.h"

#include <sys/mman.h>

#define TYPE "application/octet-stream"

static void describe(struct request *rq, const struct hub_file *f, const char *etag)
{
	reply_header(rq, "X-Linked-Etag", arena_printf(rq->arena, "\"%s\"", etag));
	reply_header(rq, "X-Linked-Size", arena_printf(rq->arena, "%" PRIu64, f->size));
}

static void etag_header(struct request *rq, const char *etag)
{
	reply_header(rq, "ETag", arena_printf(rq->arena, "\"%s\"", etag));
}

/* 200 whatever the client has already: one that reads 304 takes the commit that it knew. */
static int send_head(struct request *rq, const struct hub_file *f, const char *etag,
                     struct err *err)
{
	const struct reply_source none = {0};

	reply_header(rq, "Accept-Ranges", "bytes");
	etag_header(rq, etag);
	return reply_stream(rq, 200, TYPE, &none, 0, f->size, err);
}

/* Until one of the replies that follow a file has ended. */
static int wait_for_place(struct request *rq, uint64_t seq, struct err *err)
{
	if (!rq->timed_out)
		return hub_wait(rq, hub_places_channel(), seq, err);
	err->retry_after_s = HUB_RETRY_S;
	return err_set(err, ERR_UNAVAILABLE,
	               "your team, or all together, are being sent as many files that are still "
	               "arriving as this server follows at once");
}

static int send_bytes(struct request *rq, const struct hub_listing *l, const struct hub_file *f,
                      const char *etag, struct err *err)
{
	const struct reply_source none = {0};
	uint64_t channel = hub_bytes_channel(f), first = 0, count = 0;
	uint64_t seq = httpd_channel_seq(request_httpd(rq), channel); /* before the look */
	uint64_t place_seq = httpd_channel_seq(request_httpd(rq), hub_places_channel());
	const struct hub_ops *ops = NULL;
	struct hub_bytes b = {.fd = -1};

	if (!request_range(rq, f->size, etag, &first, &count)) /* empty, 304 or 416 */
		return reply_file_from(rq, TYPE, &none, f->size, etag, err);
	if (hub_ops_of(rq, &ops, err) < 0)
		return -1;
	if (ops->bytes(face_ask(rq), l, f, first, count, rq->wakes > 0, &b, err) < 0)
		return hub_failed(err);
	switch (b.how) {
	case HUB_NOT_YET:
		return hub_wait(rq, channel, seq, err);
	case HUB_NO_PLACE:
		return wait_for_place(rq, place_seq, err);
	case HUB_FILE:
		return reply_file(rq, TYPE, b.fd, f->size, etag);
	case HUB_STREAM:
		return reply_file_from(rq, TYPE, &b.from, f->size, etag, err);
	case HUB_ELSEWHERE:
		break;
	}
	if (!f->lfs) /* what clients read of a redirect is these */
		describe(rq, f, etag);
	etag_header(rq, etag);
	reply_header(rq, "Location", b.location);
	return reply_bytes(rq, 302, NULL, (struct str){0});
}

static int send_file(struct request *rq, const struct hub_listing *l, struct err *err)
{
	const struct hub_file *f = hub_listing_file(l, hub_arg(rq, "path"));
	char etag[HUB_ETAG_CAP];

	if (f == NULL)
		return hub_no_entry(l, hub_arg(rq, "path"), err);
	hub_etag(f, etag);
	if (f->lfs)
		describe(rq, f, etag);
	return rq->method == HTTP_HEAD ? send_head(rq, f, etag, err)
	                               : send_bytes(rq, l, f, etag, err);
}

int hub_get_file(struct request *rq, struct err *err)
{
	return hub_with(rq, send_file, err);
}

/* As git has it: of a large file the pointer. */
static int send_raw(struct request *rq, const struct hub_listing *l, struct err *err)
{
	const struct hub_file *f = hub_listing_file(l, hub_arg(rq, "path"));
	char text[HUB_POINTER_CAP], etag[HUB_OID_LEN * 2 + 1];
	AUTO_FD int fd = -1;
	size_t n;

	if (f == NULL || !f->lfs)
		return send_file(rq, l, err);
	n = hub_pointer(f, text);
	hex_encode(f->oid, HUB_OID_LEN, etag);
	fd = memfd_create("pointer", MFD_CLOEXEC); /* clients ask for ranges of it */
	if (fd < 0)
		return err_errno(err, errno, "the pointer of %s", f->path);
	if (fs_pwrite_all(fd, text, n, 0, err) < 0)
		return -1;
	return reply_file(rq, "text/plain; charset=utf-8", TAKE_FD(fd), n, etag);
}

int hub_get_raw(struct request *rq, struct err *err)
{
	return hub_with(rq, send_raw, err);
}
