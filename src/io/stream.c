/*
 * stream.c - replies whose bytes come from elsewhere while they are sent: see reply_stream().
 *
 * A reply has two pieces of memory: libmicrohttpd sends from one while a thread of a small pool
 * fills the other. When the client is slower, the full one waits and nobody works; when the source
 * is slower, the connection is suspended until the piece is there. Everything but `left`, which
 * says that nobody wants the bytes any more, is under exchange.lock.
 */
#include "base/log.h"
#include "io/httpd_impl.h"

#include <poll.h>

/* Read before the reply begins, so that an early failure is an answer with a status. */
#define STREAM_FIRST ((size_t)1 << 20)
#define STREAM_TRICKLE ((uint64_t)64 << 10) /* is waited for and sent on */
#define STREAM_THREADS 8                    /* sources that are read at once */
#define WAIT_THREADS STREAMS_MAX /* the same of those that wait: none waits for another one */

struct stream {
	struct reply_source from;
	uint64_t at, left; /* of the source: what is read next, and how much */
	char *piece[2];
	size_t n[2]; /* bytes in it */
	size_t sent; /* of piece[now] */
	unsigned now;
	bool filling, failed;
};

/* What is true of an exchange's stream whenever x->lock is free, once its reply has begun. */
static void stream_check(const struct exchange *x)
{
	const struct stream *s = x->stream;

	assert(s != NULL && lock_is_mine(&x->lock) && x->reply.streamed);
	assert(s->now < COUNT(s->piece) && s->sent <= s->n[s->now]);
	for (unsigned i = 0; i < COUNT(s->piece); i++)
		assert(s->n[i] <= STREAM_PIECE && (s->n[i] == 0 || s->piece[i] != NULL));
	/* Who fills the other piece holds the exchange, and stops at the first failure. */
	assert(!s->filling || (x->held && !s->failed && s->left > 0 && s->n[1 - s->now] == 0));
}

static size_t next_size(const struct stream *s, size_t most)
{
	uint64_t n = MIN(s->left, (uint64_t)most);

	if (s->from.ready != NULL)
		n = MIN(n, MAX(s->from.ready(s->from.arg, s->at), STREAM_TRICKLE));
	return (size_t)n;
}

/* Into a piece that nobody else looks at. */
static int fill(struct exchange *x, unsigned i, size_t n, struct err *err)
{
	struct stream *s = x->stream;

	assert(i < COUNT(s->piece) && n > 0 && n <= STREAM_PIECE && n <= s->left);
	if (s->piece[i] == NULL)
		s->piece[i] = xmalloc(STREAM_PIECE);
	return s->from.read(s->from.arg, s->at, s->piece[i], n, &x->left, err);
}

static void filled(struct stream *s, unsigned i, size_t n)
{
	assert(s->n[i] == 0 && n <= s->left);
	s->n[i] = n;
	s->at += n;
	s->left -= n;
}

static void fill_next(void *arg)
{
	struct exchange *x = exchange_at(arg);
	struct stream *s = x->stream;
	struct err err = {0};
	unsigned i = 1 - s->now;
	size_t n = next_size(s, STREAM_PIECE);
	int r = fill(x, i, n, &err);

	lock_take(&x->lock);
	assert(s->filling && x->done); /* the reply is on its way, and nobody else fills */
	stream_check(x);
	s->filling = false;
	if (r == 0)
		filled(s, i, n);
	else
		s->failed = true;
	stream_check(x);
	if (r < 0 && !atomic_load(&x->left))
		log_warn("http: request=%s cut short: %s", x->rq.id, err.msg);
	atomic_store(&x->starved, false);
	exchange_leave_locked(x);
}

/* With x->lock held. */
static void begin_fill(struct exchange *x)
{
	struct stream *s = x->stream;
	struct err err = {0};

	if (s->filling || s->failed || s->left == 0 || s->n[1 - s->now] > 0)
		return;
	if (!exchange_hold(x)) {
		s->failed = true; /* the server goes down */
		return;
	}
	s->filling = true;
	if (workers_submit(s->from.ready != NULL ? x->h->waits : x->h->streams, fill_next, x,
	                   &err) == 0)
		return;
	s->filling = false;
	s->failed = true; /* cannot be: the queue has a place for every stream */
	x->held = false;
	exchange_let_go(x->h);
}

size_t stream_take(struct exchange *x, char *to, size_t max, bool *failed)
{
	struct stream *s = x->stream;
	size_t n;

	assert(s != NULL); /* nobody asks for the body of a HEAD */
	stream_check(x);
	if (s->sent == s->n[s->now] && s->n[1 - s->now] > 0) {
		s->n[s->now] = s->sent = 0;
		s->now = 1 - s->now;
	}
	begin_fill(x);
	n = MIN(max, s->n[s->now] - s->sent);
	if (n > 0)
		memcpy(to, s->piece[s->now] + s->sent, n);
	s->sent += n;
	stream_check(x);
	*failed = n == 0 && !s->filling;
	return n;
}

/* libmicrohttpd does not watch a suspended socket, and a source may send nothing for long. The
 * socket is the exchange's as long as it is starved; it still was when it was looked at. */
void streams_drop_dead(struct httpd *h)
{
	lock_take(&h->lock);
	for (struct exchange *x = h->live; x != NULL; x = x->next) {
		struct pollfd fd = {.events = POLLRDHUP};

		if (!atomic_load(&x->starved))
			continue; /* its descriptor may not be known yet */
		fd.fd = x->fd;
		if (poll(&fd, 1, 0) > 0 && atomic_load(&x->starved) &&
		    (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
			atomic_store(&x->left, true);
	}
	lock_give(&h->lock);
}

void stream_free(struct exchange *x)
{
	struct stream *s = x->stream;

	if (s == NULL)
		return;
	assert(!s->filling);
	if (s->from.done != NULL)
		s->from.done(s->from.arg);
	free(s->piece[0]);
	free(s->piece[1]);
	free(s);
	(void)atomic_fetch_sub(&x->h->n_streams, 1);
	x->stream = NULL;
}

static int admit(struct httpd *h, bool waits, struct err *err)
{
	if (atomic_fetch_add(&h->n_streams, 1) >= STREAMS_MAX) {
		(void)atomic_fetch_sub(&h->n_streams, 1);
		err->retry_after_s = 1;
		return err_set(err, ERR_UNAVAILABLE,
		               "SlowDown: %d objects are being sent from another store already",
		               STREAMS_MAX);
	}
	lock_take(&h->lock);
	if (h->streams == NULL)
		h->streams = workers_new(STREAM_THREADS, STREAMS_MAX, "stream");
	if (waits && h->waits == NULL)
		h->waits = workers_new(WAIT_THREADS, STREAMS_MAX, "follow");
	lock_give(&h->lock);
	return 0;
}

int reply_stream(struct request *rq, int status, const char *type, const struct reply_source *from,
                 uint64_t first, uint64_t count, struct err *err)
{
	struct exchange *x = exchange_of(rq);
	struct stream *s;
	size_t n;

	assert(x->stream == NULL);
	if (rq->method == HTTP_HEAD || count == 0) { /* no byte is sent: it waits for no place */
		if (from->done != NULL)
			from->done(from->arg);
		reply_set_status(x, status, type);
		x->reply.streamed = true;
		x->reply.count = count;
		return 0;
	}
	if (admit(x->h, from->ready != NULL, err) < 0) {
		if (from->done != NULL)
			from->done(from->arg);
		return -1;
	}
	s = x->stream = xcalloc(1, sizeof(*s));
	s->from = *from;
	s->at = first;
	s->left = count;
	n = from->ready != NULL ? 0 : next_size(s, STREAM_FIRST);
	if (n > 0 && fill(x, 0, n, err) < 0) {
		stream_free(x);
		return -1;
	}
	filled(s, 0, n);
	reply_set_status(x, status, type);
	x->reply.streamed = true;
	x->reply.count = count;
	return 0;
}
