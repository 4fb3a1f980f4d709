/*
 * exchange.c - a request and its reply between the two that hold it, and a worker's turn with it;
 * see httpd_impl.h for the rules.
 */
#include "base/clock.h"
#include "base/seal.h"
#include "io/httpd_impl.h"

#include <sys/socket.h>

/* Where a body can go from here. A head that is refused waits, whatever was read of it before; a
 * body that its handler has left is unwanted once more when its connection ends early. */
#define TO(s) (1U << (s))
static const unsigned body_next[BODY_STATE_COUNT] = {
	[BODY_NONE] = TO(BODY_WAITING),
	[BODY_WAITING] = TO(BODY_WAITING) | TO(BODY_COLLECT) | TO(BODY_STREAM) | TO(BODY_DISCARD),
	[BODY_COLLECT] = TO(BODY_DISCARD),
	[BODY_STREAM] = TO(BODY_DISCARD),
	[BODY_DISCARD] = TO(BODY_DISCARD),
};

void exchange_check(const struct exchange *x)
{
	assert(x->magic == EXCHANGE_MAGIC && x->h->magic == HTTPD_MAGIC);
	assert(lock_is_mine(&x->lock));
	assert(x->held || x->conn != NULL); /* else it is freed */
	assert(!x->suspended || (x->held && x->conn != NULL));
	assert(!x->done || !x->gone);
	assert(x->body < BODY_STATE_COUNT);
	assert(x->body != BODY_STREAM || x->ring != NULL);
	assert(!x->body_ended || x->body_started);
	assert(x->ring_head < RING_BYTES && x->ring_n <= RING_BYTES && x->ring_n <= x->body_got);
}

void exchange_body_to(struct exchange *x, enum body_state to)
{
	assert(to < BODY_STATE_COUNT && (body_next[x->body] & TO(to)) != 0);
	x->body = to;
}

void exchange_free(struct exchange *x)
{
	struct httpd *h = x->h;

	assert(x->magic == EXCHANGE_MAGIC);
	assert(!x->held && x->conn == NULL && !x->suspended && x->upgraded == NULL);
	(void)atomic_fetch_sub(&h->kept, x->kept.n);
	lock_take(&h->lock);
	if (x->prev != NULL)
		x->prev->next = x->next;
	else
		h->live = x->next;
	if (x->next != NULL)
		x->next->prev = x->prev;
	if (--h->n_live == 0)
		cond_broadcast(&h->none);
	lock_give(&h->lock);

	if (x->reply.fd >= 0)
		(void)close(x->reply.fd);
	stream_free(x);
	relay_done(x);
	cond_done(&x->moved);
	lock_done(&x->lock);
	buf_done(&x->kept);
	free(x->ring);
	arena_free(x->rq.arena);
	x->magic = 0;
	free(x);
}

struct exchange *exchange_new(struct httpd *h, struct MHD_Connection *conn, const char *uri)
{
	struct exchange *x = xcalloc(1, sizeof(*x));

	x->magic = EXCHANGE_MAGIC;
	x->h = h;
	x->conn = conn;
	x->headers_end = &x->headers;
	x->reply.fd = -1;
	x->fd = -1;
	x->start_ms = clock_mono_ms();
	x->rq.arena = arena_new();
	x->rq.ctx = h->o.ctx;
	x->rq.target = str_of(arena_cstr(x->rq.arena, uri));
	seal_id(x->rq.id, 12);
	lock_init(&x->lock, LOCK_EXCHANGE);
	cond_init(&x->moved);

	lock_take(&h->lock);
	x->next = h->live;
	if (h->live != NULL)
		h->live->prev = x;
	h->live = x;
	h->n_live++;
	lock_give(&h->lock);
	return x;
}

/* The ring */

size_t exchange_put(struct exchange *x, const char *p, size_t n)
{
	size_t at = (x->ring_head + x->ring_n) % RING_BYTES, to_end;

	assert(x->body == BODY_STREAM && x->ring != NULL);
	n = MIN(n, RING_BYTES - x->ring_n);
	to_end = MIN(n, RING_BYTES - at);
	memcpy(x->ring + at, p, to_end);
	memcpy(x->ring, p + to_end, n - to_end);
	x->ring_n += n;
	cond_broadcast(&x->moved);
	return n;
}

size_t exchange_take(struct exchange *x, char *p, size_t cap)
{
	size_t n = MIN(cap, x->ring_n), to_end = MIN(n, RING_BYTES - x->ring_head);

	memcpy(p, x->ring + x->ring_head, to_end);
	memcpy(p + to_end, x->ring, n - to_end);
	x->ring_head = (x->ring_head + n) % RING_BYTES;
	x->ring_n -= n;
	/* A sender that was held back goes on when there is room for a good piece. */
	if (x->suspended && !x->body_ended && x->ring_n <= RING_BYTES / 2)
		exchange_resume(x);
	return n;
}

int exchange_keep(struct exchange *x, const char *p, size_t n, struct err *err)
{
	size_t max = x->rq.route->body_max;

	if (n > max - MIN(x->kept.n, max))
		return err_set(err, ERR_TOO_BIG,
		               "the body has more than the %zu bytes that are taken", max);
	if (atomic_fetch_add(&x->h->kept, n) > KEPT_MAX - n) {
		(void)atomic_fetch_sub(&x->h->kept, n);
		err->retry_after_s = 1;
		return err_set(err, ERR_UNAVAILABLE,
		               "the server is busy: too many uploads at once");
	}
	buf_add(&x->kept, p, n);
	return buf_check(&x->kept, "body", err);
}

void exchange_forget(struct exchange *x)
{
	assert(x->held && x->body != BODY_STREAM);
	(void)atomic_fetch_sub(&x->h->kept, x->kept.n);
	buf_done(&x->kept);
}

/* A worker's side */

/* False when the server goes down: nobody may begin to hold an exchange any more. */
bool exchange_hold(struct exchange *x)
{
	struct httpd *h = x->h;
	bool may;

	lock_take(&h->lock);
	may = !atomic_load(&h->aborting);
	if (may)
		h->n_held++;
	lock_give(&h->lock);
	x->held = may;
	return may;
}

/* After the last use of what was held: the server may be freed once nothing is. */
void exchange_let_go(struct httpd *h)
{
	lock_take(&h->lock);
	assert(h->n_held > 0);
	if (--h->n_held == 0)
		cond_broadcast(&h->none);
	lock_give(&h->lock);
}

void exchange_leave_locked(struct exchange *x)
{
	struct MHD_Connection *waits = x->suspended ? x->conn : NULL;
	struct httpd *h = x->h;
	bool last = x->conn == NULL;

	exchange_check(x);
	assert(x->held);
	x->suspended = x->held = false;
	lock_give(&x->lock); /* libmicrohttpd may free it from here on */
	if (waits != NULL)
		connection_resume(waits); /* not before: it would wait for the lock */
	if (last)
		exchange_free(x);
	exchange_let_go(h);
}

void exchange_finish(struct exchange *x, bool cut)
{
	lock_take(&x->lock);
	exchange_check(x);
	assert(x->held && !x->done && !x->gone); /* it ends once */
	x->done = !cut;
	x->gone = cut;
	if (x->body == BODY_STREAM && !x->body_ended) {
		exchange_body_to(x, BODY_DISCARD);
		if (x->conn != NULL) /* no worker looks at its sender any more */
			conns_body(x->h, x->of, true);
	}
	/* libmicrohttpd waits for a silent sender: it shall see the end of the connection */
	if (cut && x->conn != NULL && !x->suspended)
		(void)shutdown(x->fd, SHUT_RDWR);
	exchange_leave_locked(x);
}

void exchange_collect(struct exchange *x)
{
	exchange_body_to(x, BODY_COLLECT);
	x->kept.max = MAX(x->rq.route->body_max, 1);
}

/* The caller may be here; now libmicrohttpd collects the body, and needs no worker for that. */
static void collect_body(struct exchange *x)
{
	lock_take(&x->lock);
	exchange_check(x);
	assert(x->suspended);
	exchange_collect(x);
	exchange_leave_locked(x);
}

static int authorize(struct exchange *x, struct err *err)
{
	enum scope scope = x->rq.route->scope;

	x->authorized = true;
	if (scope == SCOPE_OPEN)
		return 0;
	if (x->h->o.authorize == NULL)
		return err_set(err, ERR_DENIED, "not allowed: the server has no authentication");
	return x->h->o.authorize(&x->rq, scope, err);
}

static uint64_t number_of(const char *kind, const char *name)
{
	return httpd_channel(kind, str_of(name)) | 1; /* 0 is nobody */
}

/* Whose threads it takes while it reads its body. One sender is a token at an address, so that
 * nobody waits for another machine; who is not known is the address. */
static struct workers_owner owner_of(const struct exchange *x)
{
	const struct request *rq = &x->rq;
	struct workers_owner owner = {.id = rq->owner != NULL ? number_of("owner", rq->owner)
	                                                      : number_of("address", rq->peer)};
	char sender[sizeof(rq->peer) + 64];

	FMT(sender, "%s %.60s", rq->peer, rq->sender != NULL ? rq->sender : "");
	if (rq->owner != NULL || rq->sender != NULL)
		owner.part = number_of("sender", sender);
	return owner;
}

bool exchange_place(struct exchange *x)
{
	if (!x->placed && x->body == BODY_WAITING)
		x->queueing = !workers_own(x->h->workers, owner_of(x));
	x->placed = true; /* at the latest when it runs again */
	return !x->queueing;
}

/* With a thread of their own, when there is one. x is no longer ours then. */
static int queue_again(struct exchange *x, struct err *err)
{
	struct workers *w = x->h->workers;

	if (workers_submit_for(w, owner_of(x), exchange_work, x, err) == 0)
		return 0;
	err_clear(err);
	err->retry_after_s = 1;
	return err_set(err, ERR_UNAVAILABLE, "the server is busy: too many requests are waiting");
}

/* 1: collecting the body, x is no longer ours */
static int handle(struct exchange *x, struct err *err)
{
	struct request *rq = &x->rq;
	int r;

	if (atomic_load(&x->h->aborting) && !x->h->o.handles_to_the_end)
		return err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
	if (!x->authorized) {
		if (authorize(x, err) < 0)
			return -1;
		if (x->body == BODY_WAITING && rq->route->body_max != ROUTE_BODY_STREAM) {
			collect_body(x);
			return 1;
		}
		if (rq->route->scope != SCOPE_OPEN && !exchange_place(x))
			return 0;
	}
	r = rq->route->handler(rq, err);
	assert((r == 0) == (err->code == ERR_NONE));
	/* a handler that succeeds replies */
	assert(r < 0 || x->parking || x->queueing || x->relayed != NULL || x->take != NULL ||
	       x->reply.status != 0);
	return r;
}

void exchange_work(void *arg)
{
	struct exchange *x = exchange_at(arg);
	struct err err = {0};
	int r;

	assert(x->held);
	x->parking = x->queueing = false;
	x->reply.headers = NULL;
	r = handle(x, &err);
	if (r == 0 && x->queueing)
		r = queue_again(x, &err) == 0 ? 1 : -1;
	if (r > 0)
		return;
	if (r < 0)
		reply_error(&x->rq, &err);
	if (x->relayed != NULL && r == 0)
		relay_begin(x);
	else if (x->take != NULL && r == 0)
		upgrade_begin(x);
	else if (x->parking)
		park_enter(x);
	else
		exchange_finish(x, x->stalled);
}
