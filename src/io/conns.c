/*
 * conns.c - the connections of a listener: how many one address holds, which of them owe a head or
 * a body, and which take nothing of their reply.
 *
 * libmicrohttpd's timeout begins anew with every byte that comes, so a sender of a byte now and
 * then would keep its place for ever; and it ends with the last byte that the kernel has taken,
 * when megabytes may lie between that and the client. So it is not used. Here a head has a deadline
 * for all of it: head_s for the first one of a connection (with its TLS handshake), idle_s from one
 * request to the next. That begins when the client has taken the reply: as long as the kernel has
 * bytes for it, and some arrive, it is not idle. One that takes none of them for idle_s is
 * cut off, be its reply all sent or not. A body that costs no
 * worker has one as well: its sender may be behind BODY_RATE_MIN by stall_s, and is not credited
 * for bytes that come sooner. And when almost all places are taken, the connection that has owed
 * its bytes longest makes room: a body that moves owes nothing. That holds for loopback, too, where
 * addresses are not counted: behind a proxy on this machine all clients have the same one.
 *
 * A connection takes its place when it is accepted, so that no burst gets past a limit, and is
 * found by its descriptor when libmicrohttpd begins with it. From then on it may be cut off: before
 * that, libmicrohttpd may have closed the descriptor without a word.
 */
#include "base/clock.h"
#include "io/httpd_impl.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct conn {
	unsigned magic;
#define CONN_MAGIC 0x49434f4eU
	int fd;
	enum listener via;
	bool begun;
	enum { OWES_NOTHING, OWES_HEAD, OWES_BODY } owes;
	int64_t since_ms; /* of a body: moved up by each byte, to now at most */
	uint64_t paid;    /* what since_ms has not counted yet: less than a ms, in parts */
	int untaken;      /* bytes that were sent, and did not arrive yet */
	uint64_t arrived; /* those that did; 0 where the kernel does not count them */
	int64_t taken_ms; /* when one of these changed last, or nothing was untaken */
	bool served, cut;
	bool upgraded; /* it has left HTTP: whoever has it decides how long it may stand still */
	bool counted;
	uint8_t peer[9]; /* family and address: of IPv6 the network of 64 bits, which one client has
	                  */
	LIST_ENTRY(conn) in;
};

/* What is true of a listener's connections whenever the lock is free. */
static void conns_check(const struct httpd *h, enum listener via)
{
	const struct conns *all = &h->conns;

	assert(via < LISTENER_COUNT && lock_is_mine(&all->lock));
	assert(all->begun[via] <= all->taken[via] && all->taken[via] <= h->o.connections_max);
	assert(all->taken[via] == 0 || !LIST_EMPTY(&all->list));
}

/* And of one of them. */
static void conn_check(const struct httpd *h, const struct conn *c)
{
	assert(c->magic == CONN_MAGIC && c->fd >= 0);
	conns_check(h, c->via);
	assert(h->conns.taken[c->via] > 0);
	assert(c->begun || (c->owes == OWES_NOTHING && !c->served && !c->cut));
	assert(!c->begun || h->conns.begun[c->via] > 0);
	assert(c->paid < BODY_RATE_MIN && c->untaken >= 0);
}

/* False for those that are not counted. */
static bool peer_of(const struct sockaddr *sa, uint8_t peer[9])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	memset(peer, 0, 9);
	if (sa == NULL)
		return false;
	if (sa->sa_family == AF_INET) {
		memcpy(&in, sa, sizeof(in));
		peer[0] = 4;
		memcpy(peer + 1, &in.sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		memcpy(&in6, sa, sizeof(in6));
		if (IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr))
			return false;
		peer[0] = 6;
		memcpy(peer + 1, &in6.sin6_addr, 8);
		if (memcmp(&in6.sin6_addr, mapped, sizeof(mapped)) == 0) {
			peer[0] = 4;
			memset(peer + 1, 0, 8);
			memcpy(peer + 1, in6.sin6_addr.s6_addr + 12, 4);
		}
	} else {
		return false;
	}
	return peer[0] == 6 || peer[1] != 127;
}

bool conns_admit(struct httpd *h, const struct sockaddr *sa)
{
	struct conns *all = &h->conns;
	unsigned n = 0;
	uint8_t peer[9];
	struct conn *c;

	if (h->o.per_address_max == 0 || !peer_of(sa, peer))
		return true;
	lock_take(&all->lock);
	LIST_FOREACH(c, &all->list, in)
	n += c->counted && memcmp(c->peer, peer, sizeof(peer)) == 0;
	lock_give(&all->lock);
	return n < h->o.per_address_max;
}

/* Its thread of libmicrohttpd sees the end of the connection, and closes it. */
static void cut(struct conn *c)
{
	assert(c->begun && !c->cut); /* else its descriptor may be another one's */
	c->cut = true;
	(void)shutdown(c->fd, SHUT_RDWR);
}

static void make_room(struct conns *all, enum listener via)
{
	struct conn *oldest = NULL, *c;

	LIST_FOREACH(c, &all->list, in)
	{
		if (c->begun && c->via == via && c->owes != OWES_NOTHING && !c->cut &&
		    (oldest == NULL || c->since_ms < oldest->since_ms))
			oldest = c;
	}
	if (oldest != NULL)
		cut(oldest);
}

static struct conn *find(struct conns *all, int fd)
{
	struct conn *c;

	LIST_FOREACH(c, &all->list, in)
	{
		if (c->fd == fd)
			return c;
	}
	return NULL;
}

/* With conns.lock held. */
static void drop(struct httpd *h, struct conn *c)
{
	struct conns *all = &h->conns;
	bool was_full = all->taken[c->via] >= h->o.connections_max;

	conn_check(h, c);
	LIST_REMOVE(c, in);
	all->taken[c->via]--;
	all->begun[c->via] -= c->begun ? 1 : 0;
	conns_check(h, c->via);
	c->magic = 0;
	free(c);
	if (was_full)
		accept_prod(h);
}

bool conns_full(struct httpd *h, enum listener via)
{
	bool full;

	lock_take(&h->conns.lock);
	full = h->conns.taken[via] >= h->o.connections_max;
	lock_give(&h->conns.lock);
	return full;
}

struct conn *conns_take(struct httpd *h, enum listener via, int fd, const struct sockaddr *sa)
{
	struct conns *all = &h->conns;
	struct conn *c = xcalloc(1, sizeof(*c)), *stale;

	c->magic = CONN_MAGIC;
	c->fd = fd;
	c->via = via;
	c->counted = peer_of(sa, c->peer);
	lock_take(&all->lock);
	stale = find(all, fd); /* libmicrohttpd had no memory to begin with it */
	if (stale != NULL)
		drop(h, stale);
	LIST_INSERT_HEAD(&all->list, c, in);
	all->taken[via]++;
	conn_check(h, c);
	lock_give(&all->lock);
	return c;
}

struct conn *conns_begin(struct httpd *h, int fd)
{
	struct conns *all = &h->conns;
	struct conn *c;

	lock_take(&all->lock);
	c = find(all, fd);
	assert(c != NULL && !c->begun);
	conn_check(h, c);
	if (all->begun[c->via] >= h->o.connections_max - h->o.connections_max / CONNS_SPARE)
		make_room(all, c->via);
	c->begun = true;
	c->since_ms = c->taken_ms = clock_mono_ms();
	c->owes = OWES_HEAD;
	all->begun[c->via]++;
	conn_check(h, c);
	lock_give(&all->lock);
	return c;
}

void conns_remove(struct httpd *h, struct conn *c)
{
	lock_take(&h->conns.lock);
	drop(h, c);
	lock_give(&h->conns.lock);
}

void conns_free(struct httpd *h)
{
	lock_take(&h->conns.lock);
	while (!LIST_EMPTY(&h->conns.list))
		drop(h, LIST_FIRST(&h->conns.list));
	lock_give(&h->conns.lock);
}

void conns_head(struct httpd *h, struct conn *c, bool has_come)
{
	lock_take(&h->conns.lock);
	conn_check(h, c);
	c->owes = has_come ? OWES_NOTHING : OWES_HEAD;
	c->served = c->served || has_come;
	c->since_ms = clock_mono_ms();
	conn_check(h, c);
	lock_give(&h->conns.lock);
}

void conns_body(struct httpd *h, struct conn *c, bool begins)
{
	lock_take(&h->conns.lock);
	conn_check(h, c);
	c->owes = begins ? OWES_BODY : OWES_NOTHING;
	c->since_ms = clock_mono_ms();
	c->paid = 0;
	conn_check(h, c);
	lock_give(&h->conns.lock);
}

void conns_paid(struct httpd *h, struct conn *c, size_t n)
{
	int64_t now = clock_mono_ms();

	lock_take(&h->conns.lock);
	conn_check(h, c);
	c->paid += (uint64_t)n * 1000;
	c->since_ms = MIN(now, c->since_ms + (int64_t)(c->paid / BODY_RATE_MIN));
	c->paid %= BODY_RATE_MIN;
	conn_check(h, c);
	lock_give(&h->conns.lock);
}

void conns_upgraded(struct httpd *h, struct conn *c)
{
	lock_take(&h->conns.lock);
	conn_check(h, c);
	assert(c->owes == OWES_NOTHING);
	c->upgraded = true;
	lock_give(&h->conns.lock);
}

static int64_t most_ms(const struct httpd *h, const struct conn *c)
{
	switch (c->owes) {
	case OWES_HEAD:
		return (c->served ? h->o.idle_s : h->o.head_s) * 1000;
	case OWES_BODY:
		return h->o.stall_s * 1000;
	case OWES_NOTHING:
		break;
	}
	return INT64_MAX;
}

static uint64_t bytes_arrived(int fd)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 ? info.tcpi_bytes_acked : 0;
}

/* What it takes of its reply now is no time in which it owes the next head. */
static void look_at_reply(struct conn *c, int64_t now)
{
	uint64_t arrived = bytes_arrived(c->fd);
	int untaken = 0;
	bool moves;

	if (ioctl(c->fd, SIOCOUTQ, &untaken) < 0 || untaken < 0)
		untaken = 0;
	/* an event each second to a client far away: as many are always under way */
	moves = untaken != c->untaken || arrived != c->arrived;
	if (moves && c->owes == OWES_HEAD && c->served) /* not its TLS handshake */
		c->since_ms = now;
	if (moves || untaken == 0)
		c->taken_ms = now;
	c->untaken = untaken;
	c->arrived = arrived;
}

static bool is_late(const struct httpd *h, const struct conn *c, int64_t now)
{
	return now - c->since_ms >= most_ms(h, c) ||
	       (!c->upgraded && now - c->taken_ms >= h->o.idle_s * 1000);
}

void conns_tend(struct httpd *h, int64_t now)
{
	struct conns *all = &h->conns;
	struct conn *c;

	lock_take(&all->lock);
	LIST_FOREACH(c, &all->list, in)
	{
		if (!c->begun || c->cut)
			continue;
		look_at_reply(c, now);
		if (is_late(h, c, now))
			cut(c);
	}
	lock_give(&all->lock);
}
