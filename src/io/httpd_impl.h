/*
 * httpd_impl.h - what httpd.c, httpd_upgrade.c, accept.c, conns.c, exchange.c, head.c, listen.c,
 * park.c, request.c and route.c share, stream.c, relay.c and relay_client.c; nobody else includes
 * it.
 *
 * An exchange is one request and its reply. Two sides hold it: libmicrohttpd (`conn` is set) and a
 * worker (`held`: queued, running or parked). Either may leave first: the client hangs up while a
 * handler runs, or a handler has replied while the bytes are still being sent. Who leaves last
 * frees it. While `suspended` is set libmicrohttpd does not look at the connection, so it cannot
 * leave.
 *
 * The body's way, which exchange_body_to() asserts: NONE is a request without one. In WAITING no
 * byte was taken and "100 Continue" was not sent: a refusal costs the sender nothing. COLLECT is a
 * route with a body_max: kept whole, then the handler runs. In STREAM the handler has asked for its
 * first byte. In DISCARD nobody wants it (any more), for the reply is ready or soon will be.
 *
 * Locks, in this order: park.lock, exchange.lock. httpd.lock and conns.lock are leaves, as are
 * those of others.
 */
#ifndef HTTPD_IMPL_H
#define HTTPD_IMPL_H

#include "base/sync.h"
#include "io/httpd.h"
#include "io/listen.h"
#include "io/workers.h"

#include <sys/queue.h>

#define HEADER_COUNT_MAX 100
#define RING_BYTES ((size_t)512 << 10) /* of a body between socket and handler */
#define KEPT_MAX ((size_t)512 << 20)   /* of all bodies that are kept in memory */
#define BODY_RATE_MIN 1024             /* bytes a second: who is slower is cut off */
#define LINGER_MAX 64                  /* refused senders whose bytes are still swallowed */
#define CHANNEL_SLOTS 4096             /* channels share a sequence when they share a slot */
#define CONNS_SPARE                                                                                \
	8 /* the last eighth of the places: for it, those that owe bytes are cut off               \
	   */

enum body_state { BODY_NONE, BODY_WAITING, BODY_COLLECT, BODY_STREAM, BODY_DISCARD };
#define BODY_STATE_COUNT (BODY_DISCARD + 1)

struct MHD_Connection;
struct MHD_Daemon;
struct sockaddr;

struct header {
	struct str name, value;
	struct header *next;
};

struct reply {
	int status; /* 0 = none yet */
	const char *type;
	struct header *headers; /* newest first */
	struct str body;        /* in the arena */
	int fd;                 /* or `count` bytes of this from `first`, when not -1 */
	uint64_t first, count;
	bool streamed; /* or `count` bytes of exchange.stream */
	bool relayed;  /* or of exchange.relayed; count UINT64_MAX: until it ends */
};

/* Where the pieces of a head lie in the bytes that came; see head.c. */
struct head {
	const char *start, *uri, *uri_end;
	const char *next; /* where the next line must begin */
	bool torn;
};

struct conn; /* of conns.c */

struct exchange {
	struct request rq;
	unsigned magic;
#define EXCHANGE_MAGIC 0x48545831U
	struct httpd *h;
	struct header *headers, **headers_end;
	struct head head;
	struct conn *of; /* the connection; lives as long as `conn` is set */
	struct reply reply;
	char *failure; /* the words of the error that was replied, or NULL */
	int64_t start_ms;
	bool seen;     /* the head was looked at; only libmicrohttpd's thread reads it */
	bool sending;  /* this call of on_access queues the reply; only libmicrohttpd's thread */
	bool starting; /* or hands it to a worker */
	bool expects;  /* the sender waits for "100 Continue" */
	bool refused;  /* answered before its body: the connection ends */
	bool hang_up;  /* where the next request would begin is not clear: the connection ends */
	bool authorized;
	bool is_1_1; /* HTTP/1.1 */
	bool chunks; /* a reply whose length is not known is sent so, over a plain socket */
	int fd;      /* the socket, for what libmicrohttpd does not watch */
	struct gnutls_session_int *tls; /* its session; NULL: none */
	uint64_t discarded;
	struct stream *stream;   /* of a streamed reply; stream.c */
	struct relayed *relayed; /* whose reply comes from another server; relay.c */
	atomic_bool left;        /* nobody wants its bytes any more */
	atomic_bool starved;     /* suspended until its source has sent some */

	/* of the worker that holds it */
	bool stalled; /* its sender is silent: cut it off */
	bool parking; /* the handler asked to be parked, see park.c */
	void (*take)(struct request *rq, struct upgraded *u); /* who gets it when it leaves HTTP, */
	const char *protocol;                                 /* for this */
	bool placed;   /* its thread is that of who sends the body, */
	bool queueing; /* or shall be: it runs again when they may have one more */
	uint64_t channel, seen_seq;
	int64_t deadline_ms;

	struct lock lock;  /* everything below */
	struct cond moved; /* the ring, the body's state or the connection changed */
	struct MHD_Connection *conn;
	bool held, suspended, done /* reply is ready */, gone /* cut it off */;
	enum body_state body;
	bool body_started, body_ended;
	uint64_t body_got;
	int64_t waited_ms; /* by request_read, for bytes */
	struct buf kept;   /* BODY_COLLECT */
	char *ring;        /* BODY_STREAM: RING_BYTES, made with the first byte */
	size_t ring_head, ring_n;

	struct exchange *prev, *next;               /* httpd.live, under httpd.lock */
	struct upgraded *upgraded;                  /* under httpd.lock; httpd_upgrade.c */
	struct exchange *parked_prev, *parked_next; /* park.list, under park.lock */
	bool woken;                                 /* under park.lock: waits for a free worker */
};

/* The requests that wait for news, and the thread that looks after them; park.c. */
struct park {
	unsigned magic;
#define PARK_MAGIC 0x49504152U
	struct httpd *h;
	struct lock lock;
	struct exchange *list; /* circular would save nothing: order does not matter */
	unsigned n;
	uint64_t seq[CHANNEL_SLOTS];
	bool closed; /* draining: nobody may wait any more */
	bool stop;
	int wake_fd; /* eventfd: deadlines changed, or stop */
	pthread_t thread;
	bool running;
	struct {
		int fd;
		int64_t until_ms;
		uint64_t left; /* bytes that are still swallowed */
	} linger[LINGER_MAX];
	unsigned n_linger;
};

/* Each has a daemon of libmicrohttpd, and places of its own. */
enum listener { LISTENER_TCP, LISTENER_LOCAL };
#define LISTENER_COUNT (LISTENER_LOCAL + 1)

struct conns {
	struct lock lock;
	LIST_HEAD(, conn) list;
	unsigned taken[LISTENER_COUNT], begun[LISTENER_COUNT];
};

/* The thread that accepts; accept.c. */
struct accept {
	int fd[LISTENER_COUNT]; /* that listen; -1: none */
	int wake_fd;            /* eventfd: there is room again, or stop */
	atomic_bool stop;
	int64_t said_ms; /* of why connections wait */
	pthread_t thread;
	bool running;
};

struct httpd {
	unsigned magic;
#define HTTPD_MAGIC 0x48545453U
	struct httpd_options o; /* strings are not kept */
	const struct face **faces;
	struct MHD_Daemon *daemon[LISTENER_COUNT]; /* NULL: not listening there */
	struct accept accept;
	struct workers *workers;
	char *tls_cert, *tls_key; /* PEM texts */
	uint16_t port;
	atomic_bool draining, aborting;
	struct park park;
	struct conns conns;
	struct lock lock; /* live */
	struct cond none; /* live became empty, or n_held 0 */
	struct exchange *live;
	unsigned n_live, n_held;
	atomic_size_t kept;      /* bytes of all exchanges' kept bodies */
	struct workers *streams; /* under lock; NULL until the first streamed reply */
	struct workers *waits;   /* the same, of replies that wait for their bytes */
	atomic_uint n_streams;
};

static inline struct exchange *exchange_at(void *p)
{
	return FROM_VOID(struct exchange, p, EXCHANGE_MAGIC);
}

static inline struct exchange *exchange_of(const struct request *rq)
{
	return exchange_at((struct exchange *)(uintptr_t)rq);
}

static inline struct httpd *httpd_at(void *p)
{
	return FROM_VOID(struct httpd, p, HTTPD_MAGIC);
}

/* httpd.c */
/* Lets libmicrohttpd look at a suspended connection again. With x->lock held. */
void exchange_resume(struct exchange *x);
/* The same for who has cleared x->suspended, and given x->lock back. */
void connection_resume(struct MHD_Connection *conn);
/* Gives libmicrohttpd a connection. Takes fd: false when it is closed already. */
bool connection_begin(struct httpd *h, enum listener via, int fd, const struct sockaddr *sa,
                      unsigned sa_bytes);

/* exchange.c */
struct exchange *exchange_new(struct httpd *h, struct MHD_Connection *conn, const char *uri);
void exchange_free(struct exchange *x); /* when neither side holds it */
/* Asserts, with x->lock held, what is true of it whenever that lock is free. */
void exchange_check(const struct exchange *x);
/* The only way from one state of the body to the next, with x->lock held. */
void exchange_body_to(struct exchange *x, enum body_state to);
/* Begins to hold it for a worker; false when the server goes down. */
bool exchange_hold(struct exchange *x);
/* Ends it: after the last use of the exchange, because the server is freed once nothing is held. */
void exchange_let_go(struct httpd *h);
/* The end of a worker's turn: resumes the connection, unlocks x->lock, which the caller holds, and
 * lets go. The exchange may be gone on return. */
void exchange_leave_locked(struct exchange *x);
/* A worker's turn: authorize, then the handler. */
void exchange_work(void *arg);
/* Its thread becomes one of who sends the body; false: that has to wait. */
bool exchange_place(struct exchange *x) MUST_CHECK;
/* The holder is through: the reply is sent, or the connection cut off when `cut`. */
void exchange_finish(struct exchange *x, bool cut);
/* Into the ring and out of it, with x->lock held; returns how many bytes went. */
size_t exchange_put(struct exchange *x, const char *p, size_t n);
size_t exchange_take(struct exchange *x, char *p, size_t cap);
/* The body is to be kept, for a handler that has all of it; with x->lock held. */
void exchange_collect(struct exchange *x);
/* The body that was kept is of no more use: its memory is for others. */
void exchange_forget(struct exchange *x);
/* Adds to x->kept. ERR_TOO_BIG over the route's limit, ERR_UNAVAILABLE when all bodies together
 * are. */
int exchange_keep(struct exchange *x, const char *p, size_t n, struct err *err) MUST_CHECK;

/* stream.c */
/* The next bytes of a streamed reply, with x->lock held. 0: there are none yet, and the exchange is
 * resumed when there are, or *failed: there will be none. */
size_t stream_take(struct exchange *x, char *to, size_t max, bool *failed);
void stream_free(struct exchange *x);
void streams_drop_dead(struct httpd *h); /* leaves the sources of clients that hung up */

/* relay.c, relay_client.c */
void relay_begin(struct exchange *x); /* after a handler that called reply_relay(): takes it */
/* The next bytes of the reply, with x->lock held. 0: there are none yet, or *over; *cut: and it
 * is not whole. */
size_t relay_take(struct exchange *x, char *to, size_t max, bool *over, bool *cut);
void relay_done(struct exchange *x);

/* httpd_upgrade.c */
void upgrade_begin(struct exchange *x); /* after a handler that called reply_upgrade(): takes it */
void upgrades_cut(struct httpd *h);     /* their owners see the end, and close them */

/* route.c */
/* Cuts scheme and authority off and splits at '?'. ERR_INVALID: no path, dot segments, bad escapes.
 */
int route_target(struct request *rq, struct str sent, struct err *err) MUST_CHECK;
/* Sets route, face and args. ERR_NOT_FOUND; `allow` is filled when only the method is wrong. */
int route_find(struct request *rq, const char *method, const struct face *const *faces, size_t n,
               struct buf *allow, struct err *err) MUST_CHECK;
bool route_method(const char *text, enum http_method *out);

/* conns.c */
/* May another connection of this address begin? Loopback and Unix sockets are not counted. */
bool conns_admit(struct httpd *h, const struct sockaddr *sa);
bool conns_full(struct httpd *h, enum listener via); /* are all its places taken? */
/* Takes a place for what was accepted, before libmicrohttpd gets it. */
struct conn *conns_take(struct httpd *h, enum listener via, int fd, const struct sockaddr *sa);
struct conn *conns_begin(struct httpd *h, int fd);  /* libmicrohttpd serves it now */
void conns_remove(struct httpd *h, struct conn *c); /* before its descriptor is closed */
void conns_free(struct httpd *h);                   /* once libmicrohttpd has closed all */
/* The head of a request has come; else its reply is sent, and the next head is waited for. */
void conns_head(struct httpd *h, struct conn *c, bool has_come);
/* A body that libmicrohttpd's thread takes by itself begins, or is whole; bytes of it have come. */
void conns_body(struct httpd *h, struct conn *c, bool begins);
void conns_paid(struct httpd *h, struct conn *c, size_t n);
void conns_upgraded(struct httpd *h, struct conn *c); /* it speaks HTTP no more */
void conns_tend(struct httpd *h, int64_t now_ms);     /* cuts off those that took too long */

/* accept.c */
/* Begins to accept from h->accept.fd for the daemons, which are started. */
int accept_start(struct httpd *h, struct err *err) MUST_CHECK;
/* No new connections, from the return on: joins the thread and closes what listens. May be called
 * again. */
void accept_stop(struct httpd *h);
void accept_prod(struct httpd *h); /* a place is free again */

/* head.c */
void head_begin(struct head *h, const char *uri); /* before anything of the line is changed */
void head_line(struct head *h, const char *method, const char *version);
void head_field(struct head *h, const char *name, const char *value); /* in order */
bool head_is_whole(const struct head *h, size_t bytes);
bool head_is_token(struct str s); /* as names of headers are */
/* Is the word, in any case, one of a list with commas? */
bool head_lists(struct str list, struct str word);
/* Why the headers are refused, or NULL. */
const char *head_fault(const struct exchange *x, bool needs_host);
/* How long the body is; false when that is not clear. */
bool head_framing(struct exchange *x);

/* request.c */
void request_add_header(struct exchange *x, const char *name, const char *value);
void reply_set_status(struct exchange *x, int status, const char *type);
void reply_fail(struct request *rq, int status, const struct err *err); /* 0 = the error's status */

/* park.c */
int park_start(struct httpd *h, struct err *err) MUST_CHECK;
void park_stop(struct httpd *h);  /* joins the thread; nobody is parked any more */
void park_close(struct httpd *h); /* wakes all as timed out, and lets nobody in */
void park_cut(struct httpd *h);   /* drops all that are still parked */
/* After a handler that called reply_wait: parks x, or runs it again when the channel has moved. */
void park_enter(struct exchange *x);
void park_linger(struct httpd *h, int fd); /* takes the fd */

#endif
