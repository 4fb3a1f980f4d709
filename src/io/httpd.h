/*
 * httpd.h - the listener: limits, deadlines, a bounded pool of workers, over libmicrohttpd; its
 * only user. libmicrohttpd's epoll thread owns the sockets. A request whose head is complete is
 * suspended and handed to a worker, which runs the route's handler to the end with blocking calls.
 * Bodies pass through a bounded ring, so a slow disk slows the sender. A handler that has nothing
 * to say yet parks its request on a channel (reply_wait) and is called again when the channel is
 * notified or the deadline passes: a log follower costs no thread.
 *
 * Paths are used as sent (percent-encoded, SigV4 needs them so); absolute-form targets lose scheme
 * and authority, double slashes are folded for routing, dot segments (also encoded) are refused.
 */
#ifndef HTTPD_H
#define HTTPD_H

#include "base/doc.h"
#include "io/client.h" /* enum http_method */

#define ROUTE_ARGS_MAX 6
#define ROUTE_BODY_STREAM ((size_t)-1) /* the handler reads the body itself with request_read */

/* The scope that a route requires. The authorize hook decides and fills request->who. */
enum scope {
	SCOPE_OPEN, /* the handler checks the caller itself (health, signed URLs, SigV4, GraphQL) */
	SCOPE_RUNNER, /* the token of one attempt */
	SCOPE_READ,   /* as SCOPE_VIEWER, and a job: the token that its commands have */
	SCOPE_PUSH,   /* as SCOPE_MEMBER, and a job, which the operation holds to what it may */
	SCOPE_VIEWER,
	SCOPE_MEMBER,
	SCOPE_ADMIN,
};

struct request;

struct route {
	enum http_method method; /* a GET route also answers HEAD */
	enum scope scope;
	size_t body_max;     /* bytes kept in memory, or ROUTE_BODY_STREAM */
	const char *pattern; /* "/v1/jobs/{job}/stop"; "{rest...}" at the end takes what follows */
	int (*handler)(struct request *rq, struct err *err);
	const char *help; /* one line for docs and OpenAPI */
};

struct face {
	const char *name;
	const struct route *routes;
	size_t n_routes;
	/* How this protocol says an error; NULL = JSON {"message": ...}. */
	void (*error)(struct request *rq, const struct err *err);
};

struct request {
	struct arena *arena; /* of this request */
	enum http_method method;
	struct str target;      /* path and query exactly as sent, without scheme and authority */
	struct str path, query; /* undecoded; query without '?' */
	struct str arg[ROUTE_ARGS_MAX]; /* decoded captures of the pattern, in order */
	size_t n_arg;
	bool by_proxy;             /* the target came with scheme and authority, as to a proxy */
	int64_t body_len;          /* -1: chunked */
	const struct route *route; /* NULL until matched */
	const struct face *face;
	void *ctx;       /* httpd_options.ctx */
	void *principal; /* set by authorize */
	/* Set with it: whose threads it takes while it reads a streamed body, and who of those it
	 * is. owner NULL: whoever has its address; sender NULL: they are not told apart. */
	const char *owner, *sender;
	unsigned wakes; /* how often this request was parked and woken */
	bool timed_out; /* the last park ended by its deadline */
	/* Deadline of the last park, 0 = never parked: who is woken for nothing parks until then.
	 */
	int64_t wait_until_ms;
	char id[16];   /* for logs and X-Request-Id */
	char peer[64]; /* address of the client */
	bool local;    /* it came by the Unix socket: from this user, or root */
};

struct httpd_options {
	const char *address; /* "127.0.0.1:8000"; port 0 = any free one */
	/* NULL, or a socket that listens already, in place of the address: it is taken over, and
	 * closed, but never shut down, as others may hold it too. */
	const int *listen_fd;
	/* NULL, or where a Unix socket is made, for processes of this user and root alone. Plain
	 * HTTP. */
	const char *local_path;
	const struct face *const *faces;
	size_t n_faces;
	void *ctx;
	/* Who is taken at local_path beside root and ourselves. May be NULL. */
	bool (*knows_user)(const void *ctx, uid_t uid);
	/* Before a handler of any scope but SCOPE_OPEN: sets rq->who, or fails (ERR_AUTH,
	 * ERR_DENIED). */
	int (*authorize)(struct request *rq, enum scope scope, struct err *err);
	/* Each reply as it goes out, for logs and counters; `failure` is NULL or the error's words.
	 * May be NULL; runs in a thread that serves all connections, so it must not block. */
	void (*note)(const struct request *rq, int status, const char *failure, int64_t took_ms);
	unsigned workers, queue_max, connections_max; /* 0 = 16, 1024, 4096 */
	unsigned per_address_max; /* connections of one address, but for loopback; 0 = no limit */
	const char *tls_cert, *tls_key; /* PEM files, or NULL */
	/* From when a client has taken a reply to its next request's head, and for one that takes
	 * nothing of its reply; 0 = 120 */
	int64_t idle_s;
	int64_t head_s; /* from the begin of a connection to its first whole head; 0 = 30 */
	/* request_read waits so long for a byte, and in all so long and a second more for each KiB
	 * that came. A sender whose body costs no worker may be so far behind a KiB a second. 0 =
	 * 60 */
	int64_t stall_s;
	/* Also a request that comes while the listener drains is handled, for each handler is
	 * quick; else it is refused, as the server ends. */
	bool handles_to_the_end;
};

struct httpd;
/* ERR_CONFLICT "port 8000 of 127.0.0.1 is taken ..." when it is. */
int httpd_start(const struct httpd_options *o, struct httpd **out, struct err *err) MUST_CHECK;
uint16_t httpd_port(const struct httpd *h);
void httpd_drain(struct httpd *h, int64_t grace_ms); /* no new connections; wakes the parked ones */
void httpd_stop(struct httpd *h);                    /* NULL is fine; joins all threads */
/* Wakes every request parked on this channel. Any thread. */
void httpd_notify(struct httpd *h, uint64_t channel);
struct httpd *request_httpd(struct request *rq);
/* Where the connection was taken: "127.0.0.1:8000", "[::1]:8000", "local". */
#define REQUEST_ADDRESS_CAP 64
void request_address(const struct request *rq, char out[REQUEST_ADDRESS_CAP]);
/* Every route of every face, in order. For docs, OpenAPI and tests. */
void httpd_each_route(const struct face *const *faces, size_t n,
                      void (*fn)(const struct face *f, const struct route *r, void *arg),
                      void *arg);

/* The request */
struct str request_header(const struct request *rq, const char *name); /* empty if absent */
void request_each_header(const struct request *rq,
                         void (*fn)(struct str name, struct str value, void *arg), void *arg);
bool request_query(struct request *rq, const char *name, struct str *out); /* decoded */
int64_t request_query_int(struct request *rq, const char *name, int64_t dflt, struct err *err);
/* The whole body: for routes with a body_max. ERR_TOO_BIG above it, ERR_INVALID when cut short. */
int request_body(struct request *rq, struct str *out, struct err *err) MUST_CHECK;
int request_json(struct request *rq, const struct doc **out, struct err *err) MUST_CHECK;
/* Of a SCOPE_OPEN route, before the first byte of a ROUTE_BODY_STREAM body, once owner and sender
 * are set, if that can be. False: they have threads enough now; return 0, and the handler runs
 * again from its start when they have fewer. */
bool request_place(struct request *rq) MUST_CHECK;
/* Next bytes of a ROUTE_BODY_STREAM body; *n = 0 at the end. Less than declared: ERR_INVALID. */
int request_read(struct request *rq, void *p, size_t cap, size_t *n, struct err *err) MUST_CHECK;

/* The reply: exactly one of these per handler call that returns 0. */
void reply_header(struct request *rq, const char *name, const char *value); /* before the body */
int reply_bytes(struct request *rq, int status, const char *type, struct str body); /* copied */
int reply_json(struct request *rq, int status, const struct buf *json);
/* `count` bytes of fd from `first`, by sendfile; fd is closed by httpd. */
int reply_fd(struct request *rq, int status, const char *type, int fd, uint64_t first,
             uint64_t count);
/* Range and If-None-Match handled, 200, 206, 304 or 416; etag without quotes, NULL = none. */
int reply_file(struct request *rq, const char *type, int fd, uint64_t size, const char *etag);
/* The bytes of such a file that reply_file() and reply_file_from() would send, for who has to get
 * them first. False: none, for a HEAD, 304 or 416, or an empty file. */
bool request_range(const struct request *rq, uint64_t size, const char *etag, uint64_t *first,
                   uint64_t *count);
/* Bytes that are not on this machine. */
struct reply_source {
	/* Exactly n bytes from `at` on, or -1. Ends soon once *left is set. */
	int (*read)(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
	            struct err *err);
	void (*done)(void *arg); /* may be NULL; called once, also when the reply fails */
	void *arg;               /* until then; the request's arena lives as long */
	/* NULL, or: reading may wait for what has not come yet. So the reply begins without its
	 * first bytes, and goes on by small reads, on threads that no other kind of reply needs;
	 * this says how many bytes from `at` on are to be had at once. */
	uint64_t (*ready)(void *arg, uint64_t at);
};
#define STREAM_PIECE ((size_t)4 << 20) /* two of these are in memory for each such reply */
#define STREAMS_MAX 64                 /* such replies at once; ERR_UNAVAILABLE for the next one */
/* Reads ahead by one piece and no further: a client that takes nothing holds its memory, but no
 * thread and no connection of the source. The first bytes are read here, so that their failure is
 * this call's; a failure later closes the connection short. Nothing is read for a HEAD. */
int reply_stream(struct request *rq, int status, const char *type, const struct reply_source *from,
                 uint64_t first, uint64_t count, struct err *err) MUST_CHECK;
/* As reply_file, from a source. */
int reply_file_from(struct request *rq, const char *type, const struct reply_source *from,
                    uint64_t size, const char *etag, struct err *err) MUST_CHECK;
/* Park until httpd_notify(channel) or deadline_mono_ms; then the handler runs again from its start,
 * with rq->wakes counted up. To lose no wake-up: read the channel's sequence first (notify_seq). */
int reply_wait(struct request *rq, uint64_t channel, uint64_t seen_seq, int64_t deadline_mono_ms);
uint64_t httpd_channel_seq(struct httpd *h, uint64_t channel);
uint64_t httpd_channel(const char *kind, struct str id); /* a channel's number from a name */
/* A connection that leaves HTTP for `protocol` (RFC 9110, 7.8), which is kept. `take` is called
 * once 101 was sent; `rq` lives until the connection is closed. It is its owner's from then on, one
 * thread at a time, and to be closed; when the listener drains it is shut down, and the owner, who
 * reads its end, closes it soon. Who did not ask for the protocol gets 426. */
struct upgraded;
int reply_upgrade(struct request *rq, const char *protocol,
                  void (*take)(struct request *rq, struct upgraded *u));
int upgraded_fd(const struct upgraded *u); /* to poll */
/* As recv() and send() that do not wait. With less room than this for what comes, poll() may not
 * tell of the rest; what had to wait is to be written again as it was. */
#define UPGRADED_READ_MIN ((size_t)16 << 10)
ssize_t upgraded_read(struct upgraded *u, void *p, size_t cap);
ssize_t upgraded_write(struct upgraded *u, const void *p, size_t n);
void upgraded_close(struct upgraded *u);
/* The error as this face says it. Used by httpd for handlers that fail. */
void reply_error(struct request *rq, const struct err *err);

#endif
