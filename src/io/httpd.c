/*
 * httpd.c - the listener, over libmicrohttpd; see httpd.h for what it promises and httpd_impl.h for
 * how an exchange lives.
 *
 * libmicrohttpd calls on_access() several times for one request: when the head is complete, for
 * each piece of the body, when all of it came, and again after each resume. Which call it is
 * follows from the exchange's own state. A reply can be queued when the body is complete, or before
 * its first byte (which ends the connection); in between it has to be read and thrown away.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/seal.h"
#include "io/httpd_impl.h"

#include "io/local.h"

#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>

#define WORKERS 16
#define QUEUE_MAX 1024
#define CONNECTIONS_MAX 4096
#define IDLE_S 120
#define HEAD_S 30
#define STALL_S 60
#define LOOPS 2 /* threads that own sockets */
#define CONNECTION_BYTES                                                                           \
	((size_t)64 << 10) /* of libmicrohttpd: the head, and pieces of the body                   \
	                    */
#define HEAD_MAX ((size_t)32 << 10)
#define STREAM_BLOCK ((size_t)64 << 10) /* of a streamed reply, for one send */
#define BODY_SHORT ((int64_t)16 << 10)  /* see comes_along() */
#define PEM_MAX ((size_t)1 << 20)
/* An unwanted body up to here is read, so that the connection can be kept... */
#define DISCARD_SMALL ((int64_t)256 << 10)
/* ...and one whose reading has begun up to here, so that its sender hears the reason. */
#define DISCARD_MAX ((uint64_t)1 << 30)

/* Since 1.0 libmicrohttpd refuses by itself what head.c finds in the pieces of older ones. */
#if MHD_VERSION >= 0x00097701
#define HEADS_ARE_OURS false
#define STRICT MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1
#else
#define HEADS_ARE_OURS true
#define STRICT MHD_OPTION_STRICT_FOR_CLIENT, 0 /* its own refusals go out twice (0.9.75) */
#endif

void connection_resume(struct MHD_Connection *conn)
{
	MHD_resume_connection(conn);
}

void exchange_resume(struct exchange *x)
{
	if (!x->suspended || x->conn == NULL)
		return;
	x->suspended = false;
	connection_resume(x->conn);
}

/* libmicrohttpd's side: on_access() and what it calls run in its threads, with x->lock held */

static void refuse(struct exchange *x, int status, enum err_code code, const char *why)
{
	struct err err = {0};

	(void)err_set(&err, code, "%s", why);
	err.retry_after_s = status == 503 ? 1 : 0;
	reply_fail(&x->rq, status, &err);
	x->done = true;
}

static enum MHD_Result add_header(void *arg, enum MHD_ValueKind kind UNUSED, const char *name,
                                  const char *value)
{
	struct exchange *x = exchange_at(arg);

	request_add_header(x, name, value == NULL ? "" : value);
	if (value != NULL)
		head_field(&x->head, name, value);
	return MHD_YES;
}

static void read_peer(struct exchange *x)
{
	const union MHD_ConnectionInfo *info;
	char host[INET6_ADDRSTRLEN + 16] = "";

	info = MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info != NULL)
		x->fd = info->connect_fd;
	info = MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	if (info != NULL)
		x->tls = info->tls_session;
	x->rq.local = local_is(x->fd);
	copy_cut(x->rq.peer, sizeof(x->rq.peer), x->rq.local ? "local" : "");
	info = MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	if (info == NULL || info->client_addr == NULL || x->rq.local)
		return;
	if (getnameinfo(info->client_addr,
	                info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
	                                                         : sizeof(struct sockaddr_in),
	                host, sizeof(host), NULL, 0, NI_NUMERICHOST) == 0)
		copy_cut(x->rq.peer, sizeof(x->rq.peer), host);
}

static bool is_too_large(const struct exchange *x)
{
	size_t max = x->rq.route->body_max;

	return max != ROUTE_BODY_STREAM && x->rq.body_len >= 0 && (uint64_t)x->rq.body_len > max;
}

static void find_route(struct exchange *x, const char *method)
{
	AUTO_BUF struct buf allow = BUF_INIT(256);
	struct request *rq = &x->rq;
	struct httpd *h = x->h;
	struct err err = {0};

	if (route_target(rq, rq->target, &err) < 0 ||
	    route_find(rq, method, h->faces, h->o.n_faces, &allow, &err) < 0) {
		if (allow.n > 0)
			reply_header(rq, "Allow", buf_cstr(&allow));
		reply_fail(rq, allow.n > 0 ? 405 : 0, &err);
		x->done = true;
	} else if (is_too_large(x)) {
		(void)err_set(&err, ERR_TOO_BIG,
		              "the body has %" PRId64 " bytes, at most %zu are taken", rq->body_len,
		              rq->route->body_max);
		reply_fail(rq, 0, &err);
		x->done = true;
	}
}

/* The bytes that follow are ambiguous too, so the reply closes the connection. */
static void refuse_head(struct exchange *x, int status, const char *why)
{
	x->rq.body_len = -1;
	exchange_body_to(x, BODY_WAITING);
	x->hang_up = true;
	refuse(x, status, ERR_REQUEST_MALFORMED, why);
}

static void read_head(struct exchange *x, const char *method, const char *version)
{
	const union MHD_ConnectionInfo *info;
	int n = MHD_get_connection_values(x->conn, MHD_HEADER_KIND, NULL, NULL);
	bool needs_host = strcmp(version, "HTTP/1.0") != 0;
	const char *fault;

	x->seen = true;
	conns_head(x->h, x->of, true);
	read_peer(x);
	x->is_1_1 = strcmp(version, "HTTP/1.1") == 0;
	x->chunks = x->is_1_1 && (x->h->tls_key == NULL || x->rq.local);
	info = MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	if (n > HEADER_COUNT_MAX || (info != NULL && info->header_size > HEAD_MAX)) {
		refuse_head(x, 431, "the request's headers are too large");
		return;
	}
	head_line(&x->head, method, version);
	(void)MHD_get_connection_values(x->conn, MHD_HEADER_KIND, add_header, x);
	fault = head_fault(x, needs_host);
	if (HEADS_ARE_OURS && info != NULL && !head_is_whole(&x->head, info->header_size))
		fault = "the request's headers are malformed: lines must end with CRLF, a name "
			"must "
			"be followed by a colon, and NUL is not allowed";
	else if (fault == NULL && !head_framing(x))
		fault = "Content-Length or Transfer-Encoding is ambiguous";
	if (fault != NULL)
		refuse_head(x, 400, fault);
	else
		find_route(x, method);
}

/* Suspended under the lock that the worker needs to resume it, so it cannot be too early. */
static void suspend(struct exchange *x)
{
	assert(!x->suspended);
	x->suspended = true;
	MHD_suspend_connection(x->conn);
}

/* libmicrohttpd asks for bytes of a streamed reply. One that ends early is cut short, never padded.
 */
static ssize_t on_stream(void *arg, uint64_t pos UNUSED, char *to, size_t max)
{
	struct exchange *x = exchange_at(arg);
	bool failed = false;
	size_t n;

	lock_take(&x->lock);
	exchange_check(x);
	n = stream_take(x, to, max, &failed);
	if (n == 0 && !failed) {
		suspend(x);
		atomic_store(&x->starved, true);
	}
	lock_give(&x->lock);
	return failed ? MHD_CONTENT_READER_END_WITH_ERROR : (ssize_t)n;
}

/* The same of one that another server sends, whose end may only be known when it comes. */
static ssize_t on_relay(void *arg, uint64_t pos UNUSED, char *to, size_t max)
{
	struct exchange *x = exchange_at(arg);
	bool over = false, cut = false;
	size_t n;

	lock_take(&x->lock);
	exchange_check(x);
	n = relay_take(x, to, max, &over, &cut);
	if (n == 0 && !over) {
		suspend(x);
		atomic_store(&x->starved, true);
	}
	lock_give(&x->lock);
	if (cut)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	return over ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static struct MHD_Response *make_response(struct exchange *x)
{
	struct reply *r = &x->reply;
	union {
		const char *in;
		void *out;
	} text = {.in = r->body.n > 0 ? r->body.p : ""}; /* PERSISTENT is only read */

	if (r->relayed && r->count > 0)
		return MHD_create_response_from_callback(r->count, STREAM_BLOCK, on_relay, x, NULL);
	if (r->streamed && r->count > 0)
		return MHD_create_response_from_callback(r->count, STREAM_BLOCK, on_stream, x,
		                                         NULL);
	if (r->fd < 0)
		return MHD_create_response_from_buffer(r->body.n, text.out, MHD_RESPMEM_PERSISTENT);
	if (r->count == 0)
		return MHD_create_response_from_buffer(0, text.out, MHD_RESPMEM_PERSISTENT);
	return MHD_create_response_from_fd_at_offset64(r->count, TAKE_FD(r->fd), r->first);
}

/* Without x->lock: libmicrohttpd has a lock of its own for a response, and holds it in on_stream().
 * Nobody else looks at a reply that is done. */
static enum MHD_Result queue_reply(struct exchange *x)
{
	const struct reply *r = &x->reply;
	struct MHD_Response *m = make_response(x);
	enum MHD_Result sent;

	if (m == NULL)
		return MHD_NO;
	for (const struct header *h = r->headers; h != NULL; h = h->next)
		(void)MHD_add_response_header(m, h->name.p, h->value.p);
	if (r->type != NULL)
		(void)MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, r->type);
	(void)MHD_add_response_header(m, "X-Request-Id", x->rq.id);
	if (x->hang_up || atomic_load(&x->h->draining))
		(void)MHD_add_response_header(m, MHD_HTTP_HEADER_CONNECTION, "close");
	sent = MHD_queue_response(x->conn, (unsigned)r->status, m);
	MHD_destroy_response(m);
	if (x->h->o.note != NULL)
		x->h->o.note(&x->rq, r->status, x->failure, clock_mono_ms() - x->start_ms);
	return sent;
}

/* By on_access, when it has given the lock back. */
static enum MHD_Result send_reply(struct exchange *x)
{
	x->sending = true;
	return MHD_YES;
}

/* Nothing of the body was read yet: read it if that is cheap, else answer and hang up. */
static enum MHD_Result send_early(struct exchange *x)
{
	if (!x->expects && x->rq.body_len >= 0 && x->rq.body_len <= DISCARD_SMALL) {
		exchange_body_to(x, BODY_DISCARD);
		x->body_started = true;
		conns_body(x->h, x->of, true);
		return MHD_YES;
	}
	x->refused = true;
	return send_reply(x);
}

/* Bodies that handlers read by themselves hold their threads as long as their senders like: those
 * of one owner not all of them (see workers.h), and all together leave a quarter, so that others
 * are answered. */
#define OTHERS_SHARE 4

/* A short body that its sender has not asked leave for is taken before its caller is known: it
 * comes with its head, is read when it is refused, too, and has room where the head has; and a
 * worker has one turn instead of two. */
static bool comes_along(const struct exchange *x)
{
	return x->body == BODY_WAITING && !x->expects && x->rq.body_len >= 0 &&
	       x->rq.body_len <= BODY_SHORT && x->rq.route->body_max != ROUTE_BODY_STREAM;
}

/* libmicrohttpd reads on, and calls when all came. */
static enum MHD_Result begin_body(struct exchange *x)
{
	x->body_started = true;
	if (x->body == BODY_COLLECT)
		conns_body(x->h, x->of, true);
	return MHD_YES;
}

static enum MHD_Result start_work(struct exchange *x)
{
	if (atomic_load(&x->h->draining) && !x->h->o.handles_to_the_end) {
		refuse(x, 503, ERR_UNAVAILABLE, "the server is shutting down");
		return x->body_started ? send_reply(x) : send_early(x);
	}
	if (comes_along(x)) {
		exchange_collect(x);
		return begin_body(x);
	}
	if (!exchange_hold(x))
		return MHD_NO; /* being stopped, as on_turn() finds a moment later */
	suspend(x);
	x->starting = true;
	return MHD_YES;
}

/* By on_access, when it has given the lock back: a worker that starts at once does not wait for it.
 * x is the worker's from then on. */
static enum MHD_Result hand_over(struct exchange *x)
{
	struct err err = {0};

	if (workers_submit(x->h->workers, exchange_work, x, &err) == 0)
		return MHD_YES;
	lock_take(&x->lock);
	x->held = false;
	exchange_let_go(x->h);
	refuse(x, 503, ERR_UNAVAILABLE, "the server is busy: too many requests are waiting");
	exchange_resume(x); /* on_turn() sends it */
	lock_give(&x->lock);
	return MHD_YES;
}

/* A call without bytes of the body. */
static enum MHD_Result on_turn(struct exchange *x)
{
	bool wanted = x->body == BODY_COLLECT || x->body == BODY_STREAM;

	if (x->gone || (atomic_load(&x->h->aborting) && !x->done))
		return MHD_NO;
	if (!x->body_started && (x->body == BODY_NONE || wanted))
		return begin_body(x);
	if (x->body_started && !x->body_ended) {
		x->body_ended = true;
		conns_body(x->h, x->of, false);
		cond_broadcast(&x->moved);
	}
	if (x->done)
		return x->body_started ? send_reply(x) : send_early(x);
	if (!x->held)
		return start_work(x);
	suspend(x); /* until the handler has replied */
	return MHD_YES;
}

static void keep(struct exchange *x, const char *p, size_t n)
{
	struct err err = {0};

	if (exchange_keep(x, p, n, &err) == 0)
		return;
	reply_fail(&x->rq, 0, &err);
	exchange_body_to(x, BODY_DISCARD);
	x->done = true;
}

static enum MHD_Result on_body(struct exchange *x, const char *p, size_t *n)
{
	size_t used = *n;

	if (x->gone || (atomic_load(&x->h->aborting) && !x->done))
		return MHD_NO;
	switch (x->body) {
	case BODY_COLLECT:
		keep(x, p, *n);
		break;
	case BODY_STREAM:
		used = exchange_put(x, p, *n);
		if (used < *n)
			suspend(x); /* until the handler has made room */
		break;
	case BODY_NONE:
	case BODY_WAITING:
	case BODY_DISCARD:
		x->discarded += *n;
		if (x->discarded > DISCARD_MAX)
			return MHD_NO;
		break;
	}
	x->body_got += used;
	if (x->body != BODY_STREAM)
		conns_paid(x->h, x->of, used);
	*n -= used;
	return MHD_YES;
}

static enum MHD_Result on_access(void *cls UNUSED, struct MHD_Connection *conn UNUSED,
                                 const char *url UNUSED, const char *method, const char *version,
                                 const char *data, size_t *n, void **ctx)
{
	struct exchange *x = exchange_at(*ctx);
	enum MHD_Result r;

	lock_take(&x->lock);
	exchange_check(x);
	if (!x->seen)
		read_head(x, method, version);
	x->sending = x->starting = false;
	r = data != NULL ? on_body(x, data, n) : on_turn(x);
	exchange_check(x);
	lock_give(&x->lock);
	if (x->starting)
		return hand_over(x);
	return x->sending ? queue_reply(x) : r;
}

static struct conn *conn_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	assert(info != NULL && info->socket_context != NULL);
	return info->socket_context;
}

/* libmicrohttpd lists the parameters of a query, in memory that a thousand of them fill. Then 0.9
 * replies, forgets that it did, and waits for a head that it has thrown away. Nobody asks for its
 * list: request_query() reads the target as it came. So it finds nothing behind the question mark.
 * The text is its own buffer, which it cuts there itself in a moment. */
static void hide_query(const char *uri)
{
	union {
		const char *in;
		char *out;
	} mark = {.in = strchr(uri, '?')};

	if (mark.in != NULL)
		mark.out[1] = '\0';
}

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
	struct exchange *x = exchange_new(httpd_at(cls), conn, uri);

	x->of = conn_of(conn);
	head_begin(&x->head, uri);
	hide_query(uri);
	return x;
}

void request_address(const struct request *rq, char out[REQUEST_ADDRESS_CAP])
{
	char host[INET6_ADDRSTRLEN + 16] = "", port[8] = "";
	struct sockaddr_storage at;
	socklen_t n = sizeof(at);

	fmt_fixed(out, REQUEST_ADDRESS_CAP, "local");
	if (rq->local || getsockname(exchange_of(rq)->fd, (struct sockaddr *)&at, &n) < 0 ||
	    getnameinfo((const struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
	                NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	fmt_fixed(out, REQUEST_ADDRESS_CAP,
	          strchr(host, ':') == NULL ? "%.50s:%.5s" : "[%.50s]:%.5s", host, port);
}

/* The Unix socket is for processes of this user; its folder keeps the others out already. */
static bool is_own(const struct httpd *h, int fd)
{
	struct err ignored = {0};
	uid_t uid;

	if (!local_is(fd))
		return true;
	return local_peer(fd, &uid, &ignored) == 0 &&
	       (uid == geteuid() || uid == 0 ||
	        (h->o.knows_user != NULL && h->o.knows_user(h->o.ctx, uid)));
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *fd;
	struct httpd *h = httpd_at(cls);

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		conns_remove(h, *context);
		return;
	}
	fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	assert(fd != NULL);
	*context = conns_begin(h, fd->connect_fd);
	if (!is_own(h, fd->connect_fd))
		(void)shutdown(fd->connect_fd, SHUT_RDWR);
}

bool connection_begin(struct httpd *h, enum listener via, int fd, const struct sockaddr *sa,
                      unsigned sa_bytes)
{
	return MHD_add_connection(h->daemon[via], fd, sa, sa_bytes) == MHD_YES;
}

static void on_completed(void *cls UNUSED, struct MHD_Connection *conn UNUSED, void **ctx,
                         enum MHD_RequestTerminationCode why)
{
	struct exchange *x = *ctx;
	bool last;

	*ctx = NULL;
	if (x == NULL)
		return;
	(void)exchange_at(x);
	atomic_store(&x->left, true);
	if (x->refused && why == MHD_REQUEST_TERMINATED_COMPLETED_OK && x->h->tls_key == NULL) {
		int fd = fcntl(x->fd, F_DUPFD_CLOEXEC, 3);

		if (fd >= 0)
			park_linger(x->h, fd);
	}
	lock_take(&x->lock);
	exchange_check(x);
	assert(!x->suspended); /* libmicrohttpd would not have looked at it */
	conns_head(x->h, x->of, false);
	x->conn = NULL;
	last = !x->held;
	cond_broadcast(&x->moved);
	lock_give(&x->lock);
	if (last)
		exchange_free(x);
}

/* Paths are routed as they were sent: its own decoding would only hide what came. */
static size_t on_unescape(void *cls UNUSED, struct MHD_Connection *conn UNUSED, char *s)
{
	return strlen(s);
}

static void __attribute__((format(printf, 2, 0)))
on_log(void *cls UNUSED, const char *fmt, va_list ap)
{
	char line[512];

	(void)vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	log_debug("libmicrohttpd: %s", line);
}

/* Start and stop */

static int read_pem(const char *path, char **out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(PEM_MAX);

	if (fs_read(AT_FDCWD, path, &text, err) < 0)
		return err_wrap(err, "TLS");
	*out = str_dup(buf_view(&text));
	seal_wipe(text.p, text.n);
	return 0;
}

/* It accepts nothing by itself: accept.c says why. Its limit is ours for each of its threads, which
 * therefore never refuse. It has no timeouts: see conns.c. */
static struct MHD_Daemon *start_daemon(struct httpd *h, bool with_tls)
{
	const struct httpd_options *o = &h->o;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, h->tls_cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, h->tls_key},
		{MHD_OPTION_END, 0, NULL},
	};
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
	struct MHD_Daemon *d;
	sigset_t all, old;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old); /* its threads take no signals */
	d = MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET |
			MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
			(with_tls ? MHD_USE_TLS : 0U),
		0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_THREAD_POOL_SIZE, LOOPS, MHD_OPTION_CONNECTION_LIMIT,
		LOOPS * o->connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
		MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
		h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_UNESCAPE_CALLBACK,
		on_unescape, NULL, STRICT, MHD_OPTION_ARRAY, with_tls ? tls : none, MHD_OPTION_END);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return d;
}

static int start_daemons(struct httpd *h, struct err *err)
{
	h->daemon[LISTENER_TCP] = start_daemon(h, h->tls_cert != NULL);
	if (h->daemon[LISTENER_TCP] == NULL)
		return err_set(err, ERR_INVALID, "cannot start the HTTP listener%s",
		               h->tls_cert != NULL ? ": are these a PEM certificate and its key?"
		                                   : "");
	if (h->accept.fd[LISTENER_LOCAL] < 0)
		return 0;
	h->daemon[LISTENER_LOCAL] = start_daemon(h, false);
	return h->daemon[LISTENER_LOCAL] != NULL
	               ? 0
	               : err_set(err, ERR_IO, "cannot start the listener on the Unix socket");
}

static void stop_daemons(struct httpd *h)
{
	for (int i = 0; i < LISTENER_COUNT; i++) {
		if (h->daemon[i] != NULL)
			MHD_stop_daemon(h->daemon[i]);
	}
}

static void httpd_free(struct httpd *h)
{
	assert(h->n_live == 0 && h->n_held == 0);
	workers_stop(h->workers);
	workers_stop(h->streams);
	workers_stop(h->waits);
	park_stop(h);
	accept_stop(h);
	conns_free(h);
	if (h->accept.wake_fd >= 0)
		(void)close(h->accept.wake_fd);
	if (h->tls_key != NULL)
		seal_wipe(h->tls_key, strlen(h->tls_key));
	free(h->tls_key);
	free(h->tls_cert);
	free(h->faces);
	h->magic = 0;
	cond_done(&h->none);
	lock_done(&h->conns.lock);
	lock_done(&h->park.lock);
	lock_done(&h->lock);
	free(h);
}

static struct httpd *httpd_new(const struct httpd_options *o)
{
	struct httpd *h = xcalloc(1, sizeof(*h));

	h->magic = HTTPD_MAGIC;
	h->park.magic = PARK_MAGIC;
	h->o = *o;
	h->o.address = h->o.tls_cert = h->o.tls_key = NULL; /* read now, not kept */
	h->o.local_path = NULL;
	h->o.listen_fd = NULL;
	h->o.faces = NULL;
	h->o.workers = o->workers == 0 ? WORKERS : o->workers;
	h->o.queue_max = o->queue_max == 0 ? QUEUE_MAX : o->queue_max;
	h->o.connections_max = o->connections_max == 0 ? CONNECTIONS_MAX : o->connections_max;
	h->o.idle_s = o->idle_s == 0 ? IDLE_S : o->idle_s;
	h->o.head_s = o->head_s == 0 ? HEAD_S : o->head_s;
	h->o.stall_s = o->stall_s == 0 ? STALL_S : o->stall_s;
	h->faces = xcalloc(o->n_faces + 1, sizeof(struct face *));
	memcpy(h->faces, o->faces, o->n_faces * sizeof(struct face *));
	h->accept.fd[LISTENER_TCP] = h->accept.fd[LISTENER_LOCAL] = -1;
	h->accept.wake_fd = h->park.wake_fd = -1;
	lock_init(&h->lock, LOCK_HTTPD);
	lock_init(&h->park.lock, LOCK_HTTPD_PARK);
	lock_init(&h->conns.lock, LOCK_HTTPD_CONNS);
	LIST_INIT(&h->conns.list);
	cond_init(&h->none);
	return h;
}

static int open_sockets(struct httpd *h, const struct httpd_options *o, struct err *err)
{
	int *tcp = &h->accept.fd[LISTENER_TCP];

	if (o->listen_fd != NULL) {
		*tcp = *o->listen_fd;
		if (listen_port(*tcp, &h->port, err) < 0)
			return -1;
	} else if (listen_open(o->address, tcp, &h->port, err) < 0) {
		return -1;
	}
	return o->local_path == NULL ? 0
	                             : local_listen(o->local_path, SOCK_STREAM,
	                                            &h->accept.fd[LISTENER_LOCAL], err);
}

int httpd_start(const struct httpd_options *o, struct httpd **out, struct err *err)
{
	struct httpd *h = httpd_new(o);

	assert((o->tls_cert == NULL) == (o->tls_key == NULL));
	if (open_sockets(h, o, err) < 0 ||
	    (o->tls_cert != NULL && (read_pem(o->tls_cert, &h->tls_cert, err) < 0 ||
	                             read_pem(o->tls_key, &h->tls_key, err) < 0)) ||
	    park_start(h, err) < 0) {
		httpd_free(h);
		return -1;
	}
	h->workers = workers_new(h->o.workers, h->o.queue_max, "http");
	workers_spare(h->workers, MAX(h->o.workers / OTHERS_SHARE, 1U));
	if (start_daemons(h, err) < 0 || accept_start(h, err) < 0) {
		stop_daemons(h);
		httpd_free(h);
		return -1;
	}
	*out = h;
	return 0;
}

uint16_t httpd_port(const struct httpd *h)
{
	return h->port;
}

/* With h->lock held: until *n is 0, or the time is up. */
static void await_none(struct httpd *h, const unsigned *n, int64_t ms)
{
	int64_t until_ms = sync_deadline(ms);

	while (*n > 0) {
		if (!cond_wait_until(&h->none, &h->lock, until_ms))
			return;
	}
}

void httpd_drain(struct httpd *h, int64_t grace_ms)
{
	if (!atomic_exchange(&h->draining, true)) {
		accept_stop(h);
		park_close(h);
		upgrades_cut(h);
	}
	lock_take(&h->lock);
	await_none(h, &h->n_live, grace_ms);
	lock_give(&h->lock);
}

void httpd_stop(struct httpd *h)
{
	if (h == NULL)
		return;
	httpd_drain(h, 0);
	lock_take(&h->lock);
	atomic_store(&h->aborting, true);
	for (struct exchange *x = h->live; x != NULL; x = x->next)
		atomic_store(&x->left, true);
	lock_give(&h->lock);
	park_cut(h);
	/* Handlers have deadlines of their own, owners of connections see their end; libmicrohttpd
	 * may not be stopped before the last one has let its connection go on. */
	lock_take(&h->lock);
	while (h->n_held > 0)
		cond_wait(&h->none, &h->lock);
	lock_give(&h->lock);
	stop_daemons(h);
	httpd_free(h);
}
