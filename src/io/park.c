/*
 * park.c - requests that wait for news without a thread, and the one thread that looks after them
 * and after the connections: deadlines, clients that have left, wake-ups that found the workers
 * busy, and the last bytes of senders that were refused.
 *
 * No wake-up is lost: a channel's sequence goes up under park.lock before the parked are looked
 * for, and a request enters only while the sequence is what its handler saw before it looked at the
 * data. The sequences are a fixed table, so channels that share a slot wake one another: the
 * handler then finds nothing new and parks again.
 */
#include "base/clock.h"
#include "base/thread.h"
#include "io/httpd_impl.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define TICK_MAX_MS 1000 /* also how often the sockets of the parked are looked at */
#define RETRY_MS 20      /* for the woken that found no room in the queue */
#define LINGER_MS 5000
#define LINGER_BYTES ((uint64_t)256 << 20)
#define LINGER_READS 64 /* for one sender before it is the next one's turn */

static size_t slot_of(uint64_t channel)
{
	return (size_t)(channel % CHANNEL_SLOTS);
}

uint64_t httpd_channel(const char *kind, struct str id)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a: names are ours, speed is all */

	for (const char *c = kind; *c != '\0'; c++)
		h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
	h = (h ^ '/') * UINT64_C(0x100000001b3);
	for (size_t i = 0; i < id.n; i++)
		h = (h ^ (unsigned char)id.p[i]) * UINT64_C(0x100000001b3);
	return h;
}

static void park_check(const struct park *p)
{
	assert(lock_is_mine(&p->lock) && p->h->magic == HTTPD_MAGIC);
	assert((p->n == 0) == (p->list == NULL));
	assert(p->list == NULL || (p->list->parked_prev == NULL && p->list->held));
	assert(p->n_linger <= LINGER_MAX);
}

static void link_in(struct park *p, struct exchange *x)
{
	assert(x->held && x->magic == EXCHANGE_MAGIC && x != p->list);
	x->parked_prev = NULL;
	x->parked_next = p->list;
	if (p->list != NULL)
		p->list->parked_prev = x;
	p->list = x;
	p->n++;
}

static void unlink_it(struct park *p, struct exchange *x)
{
	assert(p->n > 0 && (x->parked_prev != NULL || p->list == x));
	if (x->parked_prev != NULL)
		x->parked_prev->parked_next = x->parked_next;
	else
		p->list = x->parked_next;
	if (x->parked_next != NULL)
		x->parked_next->parked_prev = x->parked_prev;
	p->n--;
	park_check(p);
}

/* Half of the queue is left to new requests, however many followers one line of a log wakes. */
static bool launch(struct park *p, struct exchange *x)
{
	struct workers *w = p->h->workers;
	struct err err = {0};

	if (workers_queued(w) > p->h->o.queue_max / 2)
		return false;
	unlink_it(p, x); /* first: the worker may park it again at once */
	if (workers_submit(w, exchange_work, x, &err) == 0)
		return true;
	link_in(p, x);
	return false;
}

static void wake(struct exchange *x, bool timed_out)
{
	if (x->woken)
		return;
	x->woken = true;
	x->rq.wakes++;
	x->rq.timed_out = timed_out;
}

void park_enter(struct exchange *x)
{
	struct park *p = &x->h->park;
	bool again;

	lock_take(&p->lock);
	park_check(p);
	assert(x->held && x->parking && !x->done);
	if (p->closed && x->rq.timed_out) {
		struct err err = {.retry_after_s = 1};

		lock_give(&p->lock);
		(void)err_set(&err, ERR_UNAVAILABLE, "the server is shutting down");
		reply_error(&x->rq, &err);
		exchange_finish(x, false);
		return;
	}
	x->woken = false;
	link_in(p, x);
	again = p->seq[slot_of(x->channel)] != x->seen_seq;
	if (again || p->closed || x->deadline_ms <= clock_mono_ms()) {
		wake(x, !again);
		(void)launch(p, x);
	}
	event_set(p->wake_fd); /* it may have the nearest deadline now */
	park_check(p);
	lock_give(&p->lock);
}

uint64_t httpd_channel_seq(struct httpd *h, uint64_t channel)
{
	uint64_t seq;

	lock_take(&h->park.lock);
	seq = h->park.seq[slot_of(channel)];
	lock_give(&h->park.lock);
	return seq;
}

void httpd_notify(struct httpd *h, uint64_t channel)
{
	struct park *p = &h->park;
	bool late = false;

	lock_take(&p->lock);
	park_check(p);
	p->seq[slot_of(channel)]++;
	for (struct exchange *x = p->list, *next; x != NULL; x = next) {
		next = x->parked_next;
		if (x->woken || slot_of(x->channel) != slot_of(channel))
			continue;
		wake(x, false);
		late = !launch(p, x) || late;
	}
	if (late)
		event_set(p->wake_fd);
	park_check(p);
	lock_give(&p->lock);
}

/* The thread */

/* Returns when it wants to look again. */
static int64_t run_due(struct park *p, int64_t now)
{
	int64_t next = now + TICK_MAX_MS;

	for (struct exchange *x = p->list, *following; x != NULL; x = following) {
		following = x->parked_next;
		if (!x->woken && x->deadline_ms <= now)
			wake(x, true);
		if (!x->woken)
			next = MIN(next, x->deadline_ms);
		else if (!launch(p, x))
			next = MIN(next, now + RETRY_MS);
	}
	return next;
}

/* libmicrohttpd does not watch suspended sockets: a follower that hung up would hold its place
 * until its deadline. */
static void drop_dead(struct park *p, struct pollfd *fds, size_t cap)
{
	size_t n = 0;
	struct exchange *x, *next;

	for (x = p->list; x != NULL && n < cap; x = x->parked_next)
		fds[n++] = (struct pollfd){.fd = x->fd, .events = POLLRDHUP};
	if (n == 0 || poll(fds, n, 0) <= 0)
		return;
	n = 0;
	for (x = p->list; x != NULL && n < cap; x = next) {
		next = x->parked_next;
		if ((fds[n++].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0)
			continue;
		unlink_it(p, x);
		exchange_finish(x, true);
	}
}

static bool swallow(struct park *p, size_t i)
{
	char scratch[8192];

	for (int k = 0; k < LINGER_READS; k++) {
		ssize_t n = recv(p->linger[i].fd, scratch, sizeof(scratch), MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (n == 0 || (uint64_t)n > p->linger[i].left)
			return false;
		p->linger[i].left -= (uint64_t)n;
	}
	return true;
}

/* Closing a socket with unread bytes sends a reset, which can overtake our reply. So the refused
 * sender is read to its end, for a while. Only this thread takes entries out. */
static void tend_lingering(struct park *p, int64_t now)
{
	for (size_t i = p->n_linger; i-- > 0;) {
		if (now < p->linger[i].until_ms && swallow(p, i))
			continue;
		(void)close(p->linger[i].fd);
		p->linger[i] = p->linger[--p->n_linger];
	}
}

void park_linger(struct httpd *h, int fd)
{
	struct park *p = &h->park;

	assert(fd >= 0);
	lock_take(&p->lock);
	park_check(p);
	if (p->n_linger < LINGER_MAX && !p->stop) {
		p->linger[p->n_linger].fd = fd;
		p->linger[p->n_linger].until_ms = clock_mono_ms() + LINGER_MS;
		p->linger[p->n_linger].left = LINGER_BYTES;
		p->n_linger++;
		fd = -1;
		event_set(p->wake_fd);
	}
	park_check(p);
	lock_give(&p->lock);
	if (fd >= 0)
		(void)close(fd);
}

static void sleep_until(struct park *p, struct pollfd fds[LINGER_MAX + 1], int64_t ms)
{
	nfds_t n = 0;
	uint64_t count;

	fds[n++] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
	for (size_t i = 0; i < p->n_linger; i++)
		fds[n++] = (struct pollfd){.fd = p->linger[i].fd, .events = POLLIN};
	lock_give(&p->lock);
	(void)poll(fds, n, (int)MIN(MAX(ms, 0), TICK_MAX_MS));
	(void)!read(p->wake_fd, &count, sizeof(count));
	lock_take(&p->lock);
}

static void *look_after(void *arg)
{
	struct park *p = FROM_VOID(struct park, arg, PARK_MAGIC);
	size_t cap = p->h->o.connections_max;
	struct pollfd *fds = xcalloc(cap + LINGER_MAX + 1, sizeof(*fds));
	int64_t looked = 0;

	lock_take(&p->lock);
	while (!p->stop) {
		int64_t now = clock_mono_ms(), next;

		park_check(p);
		tend_lingering(p, now);
		if (now - looked >= TICK_MAX_MS) {
			streams_drop_dead(p->h);
			looked = now;
			drop_dead(p, fds, cap);
			conns_tend(p->h, now);
		}
		next = run_due(p, now);
		sleep_until(p, fds, next - now);
	}
	while (p->n_linger > 0)
		(void)close(p->linger[--p->n_linger].fd);
	lock_give(&p->lock);
	free(fds);
	return NULL;
}

int park_start(struct httpd *h, struct err *err)
{
	struct park *p = &h->park;
	int r;

	p->h = h;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake_fd < 0)
		return err_errno(err, errno, "create an eventfd for parked requests");
	r = thread_start(&p->thread, "http-park", look_after, p);
	if (r != 0)
		return err_errno(err, r, "start the thread for parked requests");
	p->running = true;
	return 0;
}

void park_close(struct httpd *h)
{
	struct park *p = &h->park;

	lock_take(&p->lock);
	park_check(p);
	p->closed = true;
	for (struct exchange *x = p->list; x != NULL; x = x->parked_next)
		wake(x, true);
	event_set(p->wake_fd);
	lock_give(&p->lock);
}

void park_cut(struct httpd *h)
{
	struct park *p = &h->park;

	lock_take(&p->lock);
	park_check(p);
	while (p->list != NULL) {
		struct exchange *x = p->list;

		unlink_it(p, x);
		exchange_finish(x, true);
	}
	lock_give(&p->lock);
}

void park_stop(struct httpd *h)
{
	struct park *p = &h->park;

	if (p->running) {
		lock_take(&p->lock);
		p->stop = true;
		event_set(p->wake_fd);
		lock_give(&p->lock);
		(void)pthread_join(p->thread, NULL);
		p->running = false;
	}
	assert(p->n == 0);
	if (p->wake_fd >= 0)
		(void)close(p->wake_fd);
	p->wake_fd = -1;
}
