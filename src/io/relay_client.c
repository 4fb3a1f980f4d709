/* relay_client.c - replies of another server, on their way to who asked; see relay_impl.h. */
#include "base/clock.h"
#include "io/relay_impl.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#define RING_FIRST ((size_t)16 << 10) /* most replies need no more */

void relayed_check(const struct relayed *t)
{
	assert(t->magic == RELAYED_MAGIC && lock_is_mine(&t->x->lock));
	assert(t->size <= RELAY_RING && t->n <= t->size && t->at <= t->size);
	assert((t->size == 0) == (t->ring == NULL));
	assert(!t->cut || t->over);
	assert(!t->over || !t->paused);
}

/* libmicrohttpd's side */

size_t relay_take(struct exchange *x, char *to, size_t max, bool *over, bool *cut)
{
	struct relayed *t = x->relayed;
	size_t n = MIN(max, t->n), to_end = MIN(n, t->size - t->at);
	bool was_full = t->paused;

	relayed_check(t);
	if (n > 0) {
		memcpy(to, t->ring + t->at, to_end);
		memcpy(to + to_end, t->ring, n - to_end);
		t->at = (t->at + n) % t->size;
		t->n -= n;
	}
	*over = n == 0 && t->over;
	*cut = *over && t->cut;
	if (was_full && t->n <= RELAY_RING / 2) {
		atomic_store(&t->r->room, true);
		relay_wake(t->r);
	}
	return n;
}

void relay_done(struct exchange *x)
{
	struct relayed *t = x->relayed;

	if (t == NULL)
		return;
	assert(t->magic == RELAYED_MAGIC && t->over && t->easy == NULL && t->tail == NULL);
	x->relayed = NULL;
	free(t->ring);
	buf_done(&t->head);
	buf_done(&t->named);
	t->magic = 0;
	free(t);
}

/* The relay's side */

/* With the lock: room for n bytes more. */
static bool make_room(struct relayed *t, size_t n)
{
	size_t size, to_end = MIN(t->n, t->size - t->at);
	char *ring;

	if (n <= t->size - t->n)
		return true;
	if (n > RELAY_RING - t->n)
		return false;
	size = t->size == 0 && n <= RING_FIRST ? RING_FIRST : RELAY_RING;
	ring = xmalloc(size);
	if (t->n > 0) {
		memcpy(ring, t->ring + t->at, to_end);
		memcpy(ring + to_end, t->ring, t->n - to_end);
	}
	free(t->ring);
	t->ring = ring;
	t->size = size;
	t->at = 0;
	return true;
}

/* The same: for libmicrohttpd. */
static enum relay_passed keep(struct relayed *t, const char *p, size_t n)
{
	struct exchange *x = t->x;
	size_t at, to_end;

	if (!make_room(t, n)) {
		t->paused = true;
		LIST_INSERT_HEAD(&t->r->full, t, next_full);
		return RELAY_FULL;
	}
	at = (t->at + t->n) % t->size;
	to_end = MIN(n, t->size - at);
	memcpy(t->ring + at, p, to_end);
	memcpy(t->ring, p + to_end, n - to_end);
	t->n += n;
	t->bytes += n;
	if (x->done && t->tail == NULL) {
		atomic_store(&x->starved, false);
		exchange_resume(x);
	}
	return RELAY_PASSED;
}

/* Is the socket ours? See above. */
static bool is_ours(const struct relayed *t)
{
	const struct exchange *x = t->x;

	return x->suspended && atomic_load(&x->starved) && x->chunks && t->n == 0 &&
	       t->tail == NULL && x->reply.count == UINT64_MAX;
}

static void watch_tail(struct relayed *t, int what)
{
	struct epoll_event event = {.events = EPOLLOUT,
	                            .data.u64 = TAIL_EVENT | (uint32_t)t->x->fd};

	(void)epoll_ctl(t->r->epoll_fd, what, t->x->fd, &event);
}

/* libmicrohttpd does not close a socket while its connection is suspended. */
void relay_drop_tail(struct relayed *t)
{
	if (t->tail == NULL)
		return;
	watch_tail(t, EPOLL_CTL_DEL);
	LIST_REMOVE(t, next_stuck);
	free(t->tail);
	t->tail = NULL;
}

static void keep_tail(struct relayed *t, const struct iovec *v, size_t count, size_t sent)
{
	char *tail = xmalloc(v[0].iov_len + v[1].iov_len + v[2].iov_len);

	t->tail = tail;
	t->tail_at = 0;
	t->tail_n = 0;
	for (size_t i = 0; i < count; i++) {
		size_t skip = MIN(sent, v[i].iov_len);

		memcpy(tail + t->tail_n, (const char *)v[i].iov_base + skip, v[i].iov_len - skip);
		t->tail_n += v[i].iov_len - skip;
		sent -= skip;
	}
	LIST_INSERT_HEAD(&t->r->stuck, t, next_stuck);
	watch_tail(t, EPOLL_CTL_ADD);
}

static bool for_now(int e)
{
	return e == EAGAIN || e == EINTR || e == ENOBUFS || e == ENOMEM;
}

/* As a chunk. False: its client takes nothing now. *gone: nor ever. */
static bool send_chunk(struct relayed *t, char *p, size_t n, bool *gone)
{
	char size[24], end[] = "\r\n";
	int size_n = snprintf(size, sizeof(size), "%zx\r\n", n);
	struct iovec v[] = {{size, (size_t)size_n}, {p, n}, {end, 2}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = COUNT(v)};
	ssize_t sent;

	assert(n > 0); /* which would be the last one */
	do
		sent = sendmsg(t->x->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	*gone = sent < 0 && !for_now(errno);
	if (sent <= 0)
		return false;
	t->bytes += n;
	if ((size_t)sent < (size_t)size_n + n + 2)
		keep_tail(t, v, COUNT(v), (size_t)sent);
	return true;
}

enum relay_passed relay_pass(struct relayed *t, char *p, size_t n)
{
	struct exchange *x = t->x;
	enum relay_passed r = RELAY_PASSED;
	bool gone;

	assert(n > 0);
	lock_take(&x->lock);
	relayed_check(t);
	gone = x->conn == NULL || !t->headed;
	/* with the lock, so that libmicrohttpd does not close the socket, whose number the next
	 * client would have */
	if (!gone && (!is_ours(t) || !send_chunk(t, p, n, &gone)) && !gone)
		r = keep(t, p, n);
	if (gone)
		r = RELAY_GONE;
	relayed_check(t);
	lock_give(&x->lock);
	if (r == RELAY_PASSED)
		t->moved_ms = clock_mono_ms();
	return r;
}

enum relay_passed relay_send_tail(struct relayed *t)
{
	struct exchange *x = t->x;
	ssize_t sent = 0;
	bool gone;

	lock_take(&x->lock); /* as above */
	gone = x->conn == NULL;
	if (!gone && x->suspended)
		sent = send(x->fd, t->tail + t->tail_at, t->tail_n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0 && !for_now(errno))
		gone = true;
	lock_give(&x->lock);
	if (gone)
		return RELAY_GONE;
	if (sent <= 0)
		return RELAY_FULL;
	t->tail_at += (size_t)sent;
	t->tail_n -= (size_t)sent;
	if (t->tail_n > 0)
		return RELAY_FULL;
	relay_drop_tail(t);
	lock_take(&x->lock);
	relayed_check(t);
	if (t->n > 0) { /* came meanwhile */
		atomic_store(&x->starved, false);
		exchange_resume(x);
	}
	lock_give(&x->lock);
	return RELAY_PASSED;
}
