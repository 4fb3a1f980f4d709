/*
 * relay_impl.h - what relay.c, which speaks to the other server, and relay_client.c, which sends
 * its replies on, share.
 *
 * From reply_relay() on, the relay holds the exchange, as a worker does. What libcurl says runs in
 * the relay's thread, which waits for its sockets by epoll: what an event costs does not grow with
 * the number of streams.
 *
 * The bytes of a reply have two ways. Those that come with its head, or faster than the client
 * reads, go into a ring, from which libmicrohttpd's thread takes them. When it finds the ring empty
 * it suspends the connection ("starved"), and has nothing left to send: from then on the socket is
 * the relay's, which sends each piece itself as the chunk that libmicrohttpd would have made of it,
 * without another thread. Whose turn it is changes only at the border of a chunk: what the socket
 * does not take of one is the tail, which goes before all else. A reply of a known length has no
 * chunks, and one over TLS is libmicrohttpd's alone: these have the ring.
 *
 * The ring and what is said beside it are under exchange.lock, the list of what is new under
 * relay.lock; the rest is the thread's own.
 */
#ifndef RELAY_IMPL_H
#define RELAY_IMPL_H

#include "io/httpd_impl.h"
#include "io/relay.h"

#define RELAY_WORDS 256 /* as libcurl wants it */
#define SPARE_MAX 64    /* handles that are kept for what comes next */

struct curl_slist;

struct relayed {
	unsigned magic;
#define RELAYED_MAGIC 0x52454c41U
	struct relay *r;
	struct exchange *x;
	void *easy; /* of libcurl; NULL: not begun yet, or over */
	struct curl_slist *headers;
	const char *url, *token;
	struct str body;
	bool waited;
	unsigned tries; /* to ask */
	int64_t head_ms, silence_ms, started_ms, moved_ms, first_ms;
	void (*ended)(void *arg, const struct relay_end *end);
	void *arg;
	struct buf head;  /* lines of the reply's */
	struct buf named; /* by Connection, with commas between them: first there, then here */
	int status;
	int64_t length; /* of the reply's body, -1: not said */
	bool headed;    /* the reply's head is whole, and is being sent */
	bool refused;   /* it is no reply that can be passed on */
	uint64_t bytes;
	char words[RELAY_WORDS]; /* libcurl's, about what failed */
	struct relayed *next_new;
	TAILQ_ENTRY(relayed) link;
	bool ready; /* in relay.ready: libmicrohttpd is to be told of the head */
	SLIST_ENTRY(relayed) next_ready;
	char *tail; /* of a chunk: what its socket did not take; NULL: in relay.stuck it is not */
	size_t tail_at, tail_n;
	LIST_ENTRY(relayed) next_stuck, next_full;
	bool ending;         /* with the tail; its transfer is over */
	const char *end_why; /* NULL: it was whole */

	/* under exchange.lock */
	char *ring;
	size_t size, at, n; /* of `size` bytes those that are in it begin at `at` */
	bool paused;        /* libcurl waits for room in the ring */
	bool over;          /* no more comes */
	bool cut;           /* and that was not all */
};

struct relay {
	unsigned magic;
#define RELAY_MAGIC 0x52454c59U
	void *multi; /* of libcurl */
	pthread_t thread;
	struct lock lock;
	struct relayed *fresh, **fresh_end; /* in the order in which they came */
	atomic_uint n;
	atomic_bool stop;
	atomic_bool room; /* a ring that was full has some */
	int wake_fd;      /* eventfd */
	atomic_bool woken;
	/* the thread's */
	int epoll_fd;
	void *spare[SPARE_MAX]; /* of libcurl, for what comes next */
	size_t n_spare;
	int64_t timer_ms; /* when libcurl wants a turn without an event, -1: never */
	TAILQ_HEAD(relayed_list, relayed) all; /* in the order in which they came */
	SLIST_HEAD(, relayed) ready;
	LIST_HEAD(, relayed) stuck; /* have a tail */
	LIST_HEAD(, relayed) full;  /* are paused */
	size_t held;                /* of these are not begun yet: they have no `easy` */
	int64_t let_ms;             /* when some of them were begun last */
};

/* relay.c */
void relay_wake(struct relay *r); /* its thread looks again */

/* relay_client.c; with no lock held but relayed_check() */
void relayed_check(const struct relayed *t); /* what is true whenever exchange.lock is free */
enum relay_passed { RELAY_PASSED, RELAY_FULL, RELAY_GONE };
/* The next bytes of a reply. RELAY_FULL: none was taken, and the relay is woken when there is room
 * again. RELAY_GONE: nobody wants any. */
enum relay_passed relay_pass(struct relayed *t, char *p, size_t n);
/* The client of a tail may take some of it. RELAY_PASSED: all of it is gone. */
enum relay_passed relay_send_tail(struct relayed *t);
void relay_drop_tail(struct relayed *t);
/* What an event is of, beside the descriptor: a client's socket that takes bytes again. */
#define TAIL_EVENT ((uint64_t)1 << 32)

#endif
