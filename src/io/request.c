/* request.c - what a handler asks of its request and says as its reply; see httpd.h. */
#include "base/clock.h"
#include "base/json.h"
#include "io/httpd_impl.h"

#include <sys/socket.h>

#define WAIT_SLICE_MS 250 /* how soon a waiting handler sees that the server goes down */

/* The request */

struct httpd *request_httpd(struct request *rq)
{
	return exchange_of(rq)->h;
}

void request_add_header(struct exchange *x, const char *name, const char *value)
{
	struct header *h = ARENA_NEW(x->rq.arena, struct header);

	h->name = str_of(arena_cstr(x->rq.arena, name));
	h->value = str_of(arena_cstr(x->rq.arena, value));
	*x->headers_end = h;
	x->headers_end = &h->next;
}

struct str request_header(const struct request *rq, const char *name)
{
	for (const struct header *h = exchange_of(rq)->headers; h != NULL; h = h->next) {
		if (str_ieq(h->name, name))
			return h->value;
	}
	return (struct str){0};
}

void request_each_header(const struct request *rq,
                         void (*fn)(struct str name, struct str value, void *arg), void *arg)
{
	for (const struct header *h = exchange_of(rq)->headers; h != NULL; h = h->next)
		fn(h->name, h->value, arg);
}

bool request_query(struct request *rq, const char *name, struct str *out)
{
	return url_query(rq->arena, rq->query, name, out);
}

int64_t request_query_int(struct request *rq, const char *name, int64_t dflt, struct err *err)
{
	struct str text;
	int64_t n = dflt;

	if (!request_query(rq, name, &text) || text.n == 0)
		return dflt;
	if (str_i64(text, INT64_MIN, INT64_MAX, &n, err) < 0) {
		(void)err_wrap(err, "parameter %s", name);
		return dflt;
	}
	return n;
}

int request_body(struct request *rq, struct str *out, struct err *err UNUSED)
{
	const struct exchange *x = exchange_of(rq);

	/* A handler of such a route runs when the body is whole, within its limit: see httpd.c. */
	assert(rq->route->body_max != ROUTE_BODY_STREAM);
	*out = buf_view(&x->kept);
	return 0;
}

int request_json(struct request *rq, const struct doc **out, struct err *err)
{
	struct str body;

	if (request_body(rq, &body, err) < 0)
		return -1;
	if (str_trim(body).n == 0)
		return err_set(err, ERR_INVALID, "the body is empty; JSON is expected");
	if (js_parse(rq->arena, body, out, err) < 0)
		return err_wrap(err, "body");
	return 0;
}

static int lost(const struct exchange *x, struct err *err)
{
	if (atomic_load(&x->h->aborting))
		return err_set(err, ERR_CANCELED, "the server is shutting down");
	if (x->rq.body_len < 0)
		return err_set(err, ERR_INVALID,
		               "the body was cut short after %" PRIu64
		               " bytes: the client disconnected",
		               x->body_got);
	return err_set(err, ERR_INVALID,
	               "the body was cut short: %" PRIu64 " of %" PRId64 " bytes came", x->body_got,
	               x->rq.body_len);
}

/* It said that no more comes. libmicrohttpd (0.9.75) misses that when it comes with the last bytes
 * that are here: it reads them, and waits for an edge that was. */
static bool hung_up(const struct exchange *x)
{
	char byte;

	return x->fd >= 0 && recv(x->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A worker waits so long in all: as if nothing came, and a second more for what a slow line brings
 * in one. */
static int check_rate(const struct exchange *x, int64_t stall_ms, struct err *err)
{
	if (x->waited_ms <= stall_ms + (int64_t)(x->body_got / BODY_RATE_MIN) * 1000)
		return 0;
	return err_set(err, ERR_TIMEOUT,
	               "%" PRIu64 " bytes of the body came in %" PRId64
	               " s of waiting: slower than %d a second is not waited for",
	               x->body_got, x->waited_ms / 1000, BODY_RATE_MIN);
}

/* With x->lock held. 0: there are bytes, or the end was reached. */
static int await_bytes(struct exchange *x, struct err *err)
{
	int64_t stall_ms = x->h->o.stall_s * 1000;
	int64_t left_ms = stall_ms;

	while (x->ring_n == 0 && !x->body_ended && x->body == BODY_STREAM) {
		/* not clock.h: a test that stops those clocks still wants its bytes */
		int64_t begun_ms = sync_deadline(0);
		bool woken;

		if (x->conn == NULL || atomic_load(&x->h->aborting))
			return lost(x, err);
		if (left_ms <= 0) {
			x->stalled = true;
			return err_set(err, ERR_TIMEOUT,
			               "no byte of the body came for %" PRId64 " s, %" PRIu64
			               " bytes after its start",
			               x->h->o.stall_s, x->body_got);
		}
		if (check_rate(x, stall_ms, err) < 0) {
			x->stalled = true;
			return -1;
		}
		woken = cond_wait_until(&x->moved, &x->lock, sync_deadline(WAIT_SLICE_MS));
		x->waited_ms += sync_deadline(0) - begun_ms;
		if (woken)
			continue;
		left_ms -= WAIT_SLICE_MS;
		if (x->ring_n == 0 && !x->body_ended && x->conn != NULL && hung_up(x)) {
			x->stalled = true;
			return lost(x, err);
		}
	}
	return 0;
}

bool request_place(struct request *rq)
{
	assert(rq->route->scope == SCOPE_OPEN && rq->route->body_max == ROUTE_BODY_STREAM);
	return exchange_place(exchange_of(rq));
}

int request_read(struct request *rq, void *p, size_t cap, size_t *n, struct err *err)
{
	struct exchange *x = exchange_of(rq);
	int r;

	assert(rq->route->body_max == ROUTE_BODY_STREAM && cap > 0);
	lock_take(&x->lock);
	exchange_check(x);
	assert(x->held);
	if (x->body == BODY_WAITING) {
		assert(x->placed);
		x->ring = xmalloc(RING_BYTES);
		exchange_body_to(x, BODY_STREAM);
		exchange_resume(x);
	}
	r = await_bytes(x, err);
	if (r == 0)
		*n = x->ring_n == 0 ? 0 : exchange_take(x, p, cap);
	exchange_check(x);
	lock_give(&x->lock);
	return r;
}

/* The reply */

void reply_header(struct request *rq, const char *name, const char *value)
{
	struct exchange *x = exchange_of(rq);
	struct header *h = ARENA_NEW(rq->arena, struct header);
	char *text = arena_cstr(rq->arena, value);

	for (char *c = text; *c != '\0'; c++) { /* a line break would start another header */
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	}
	h->name = str_of(arena_cstr(rq->arena, name));
	h->value = str_of(text);
	h->next = x->reply.headers;
	x->reply.headers = h;
}

void reply_set_status(struct exchange *x, int status, const char *type)
{
	assert(x->reply.status == 0 && !x->parking); /* exactly one reply */
	assert(status >= 200 && status <= 999);
	x->reply.status = status;
	x->reply.type = type == NULL ? NULL : arena_cstr(x->rq.arena, type);
}

int reply_bytes(struct request *rq, int status, const char *type, struct str body)
{
	struct exchange *x = exchange_of(rq);

	reply_set_status(x, status, type);
	x->reply.body = arena_str(rq->arena, body);
	return 0;
}

int reply_json(struct request *rq, int status, const struct buf *json)
{
	assert(!json->full);
	return reply_bytes(rq, status, "application/json", buf_view(json));
}

int reply_fd(struct request *rq, int status, const char *type, int fd, uint64_t first,
             uint64_t count)
{
	struct exchange *x = exchange_of(rq);

	assert(fd >= 0);
	reply_set_status(x, status, type);
	x->reply.fd = fd;
	x->reply.first = first;
	x->reply.count = count;
	return 0;
}

/* Is `etag` one of the entity tags of this header? Weak and strong ones are alike here. */
static bool names_etag(struct str header, const char *etag)
{
	struct str tag;

	while (str_cut(&header, ',', &tag)) {
		tag = str_trim(tag);
		if (str_eq(tag, "*"))
			return true;
		if (str_starts(tag, "W/"))
			tag = str_skip(tag, 2);
		if (tag.n >= 2 && tag.p[0] == '"' && str_eq(str_n(tag.p + 1, tag.n - 2), etag))
			return true;
	}
	return false;
}

/* If-Range: a range of another version would be mixed with the caller's: give it the whole. */
static struct str range_asked(const struct request *rq, const char *etag)
{
	struct str only_if = request_header(rq, "if-range");

	if (rq->method == HTTP_HEAD)
		return (struct str){0};
	if (only_if.n > 0 && (etag == NULL || !names_etag(only_if, etag)))
		return (struct str){0};
	return request_header(rq, "range");
}

/* What a request for a file of `size` bytes is answered with: 200 or 206 and these bytes, 304, or
 * 416 with *err. */
static int file_status(const struct request *rq, uint64_t size, const char *etag, uint64_t *first,
                       uint64_t *count, struct err *err)
{
	bool whole;

	if (etag != NULL && names_etag(request_header(rq, "if-none-match"), etag))
		return 304;
	if (url_range(range_asked(rq, etag), size, first, count, &whole, err) < 0)
		return 416;
	return whole ? 200 : 206;
}

bool request_range(const struct request *rq, uint64_t size, const char *etag, uint64_t *first,
                   uint64_t *count)
{
	struct err ignored = {0};

	return rq->method != HTTP_HEAD &&
	       file_status(rq, size, etag, first, count, &ignored) / 100 == 2 && *count > 0;
}

/* False if the reply is made already: not modified, or no such bytes. */
static bool file_range(struct request *rq, uint64_t size, const char *etag, int *status,
                       uint64_t *first, uint64_t *count)
{
	struct err err = {0};

	reply_header(rq, "Accept-Ranges", "bytes");
	if (etag != NULL)
		reply_header(rq, "ETag", arena_printf(rq->arena, "\"%s\"", etag));
	*status = file_status(rq, size, etag, first, count, &err);
	if (*status == 304) {
		(void)reply_bytes(rq, 304, NULL, (struct str){0});
		return false;
	}
	if (*status == 416) {
		reply_header(rq, "Content-Range",
		             arena_printf(rq->arena, "bytes */%" PRIu64, size));
		reply_error(rq, &err);
		return false;
	}
	if (*status == 206)
		reply_header(rq, "Content-Range",
		             arena_printf(rq->arena, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
		                          *first, *first + *count - 1, size));
	return true;
}

int reply_file(struct request *rq, const char *type, int fd, uint64_t size, const char *etag)
{
	uint64_t first, count;
	int status;

	if (file_range(rq, size, etag, &status, &first, &count))
		return reply_fd(rq, status, type, fd, first, count);
	(void)close(fd);
	return 0;
}

int reply_file_from(struct request *rq, const char *type, const struct reply_source *from,
                    uint64_t size, const char *etag, struct err *err)
{
	uint64_t first, count;
	int status;

	if (file_range(rq, size, etag, &status, &first, &count))
		return reply_stream(rq, status, type, from, first, count, err);
	if (from->done != NULL)
		from->done(from->arg);
	return 0;
}

int reply_wait(struct request *rq, uint64_t channel, uint64_t seen_seq, int64_t deadline_mono_ms)
{
	struct exchange *x = exchange_of(rq);

	assert(x->reply.status == 0 && !x->parking);
	x->parking = true;
	x->channel = channel;
	x->seen_seq = seen_seq;
	x->deadline_ms = deadline_mono_ms;
	rq->wait_until_ms = deadline_mono_ms;
	return 0;
}

static void error_as_json(struct request *rq, const struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(ERR_MSG_MAX * 16);
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "message", err->msg);
	js_kv_err(&js, "error", err);
	js_close(&js);
	(void)reply_json(rq, err_info(err)->http, &body);
}

void reply_error(struct request *rq, const struct err *err)
{
	struct exchange *x = exchange_of(rq);
	char after[16];

	if (x->reply.fd >= 0)
		(void)close(x->reply.fd);
	x->reply.fd = -1;
	x->reply.streamed = x->reply.relayed = false;
	x->reply.status = 0;
	x->parking = false;
	x->failure = arena_cstr(rq->arena, err->msg);
	if (err->code == ERR_AUTH)
		reply_header(rq, "WWW-Authenticate", "Bearer");
	if (err->retry_after_s > 0) {
		FMT(after, "%d", err->retry_after_s);
		reply_header(rq, "Retry-After", after);
	}
	if (rq->face != NULL && rq->face->error != NULL)
		rq->face->error(rq, err);
	else
		error_as_json(rq, err);
	assert(x->reply.status != 0);
}

void reply_fail(struct request *rq, int status, const struct err *err)
{
	reply_error(rq, err);
	if (status != 0)
		exchange_of(rq)->reply.status = status;
}
