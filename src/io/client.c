/*
 * client.c - HTTP requests over libcurl's easy interface; see the header.
 *
 * An easy handle keeps the connections it has made, so the pool is a stack: the handle used last is
 * the warmest. Redirects are followed here and not by libcurl, because headers of ours (a token, a
 * signature) must stay behind when the origin changes, and libcurl passes custom ones on.
 */
#include "io/client.h"
#include "base/clock.h"
#include "base/fs.h"
#include "io/client_impl.h"
#include "io/local.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include "base/sync.h"
#include <signal.h>
#include <sys/socket.h>

#define IDLE_MAX 64                         /* handles kept; each holds up to 4 connections */
#define REPLY_HEADERS_MAX 128               /* more are not kept */
#define ERROR_BODY_MAX ((size_t)64 << 10)   /* kept of the body of an error */
#define ERROR_BODY_READ ((uint64_t)1 << 20) /* read of it, so that the connection can be kept */
#define EXPECT_FROM ((uint64_t)1 << 20)     /* bodies from here on ask before they are sent */
#define WIRE_BUFFER (512L << 10)            /* per read and write: libcurl's most for reads */
/* Where the body may be taken over: no more than libcurl hands out at once, so that behind what it
 * has handed out there is nothing left in its buffer. */
#define HEAD_BUFFER ((long)CURL_MAX_WRITE_SIZE)
#define CONNECT_MS 10000
#define SOCKETS_MAX 8 /* of one exchange: addresses of the host that are tried at once */

struct http_client {
	bool guard, only_allowed;
	struct url_net *allow;
	size_t n_allow;
	char *ca_file, *user_agent, *unix_socket;
	int (*greet)(void *arg, int fd, struct err *err);
	void *greet_arg;
	struct arena *arena;
	struct url greet_url; /* in the arena */
	struct lock lock;     /* the idle handles */
	CURL *idle[IDLE_MAX];
	size_t n_idle;
};

/* One exchange with one server: a call is several of them when it is redirected. */
struct transfer {
	unsigned magic;
#define TRANSFER_MAGIC 0x49545241U
	struct http_client *c;
	const struct http_call *call;
	struct http_reply *reply;
	enum http_method method; /* a redirect may turn it into GET */
	bool has_body;           /* and then drops the body */
	uint64_t body_len;       /* UINT64_MAX = chunked */
	uint64_t sent;           /* body bytes handed to libcurl */
	bool refused;            /* by the guard */
	bool head_ended; /* its empty line came: libcurl takes a head that was cut for whole */
	bool headed;     /* call->head has run */
	CURL *plain;     /* the handle, when the body may be taken over; else NULL */
	int sock;        /* that was opened last for it; -1 = none */
	int opened[SOCKETS_MAX]; /* all that were opened; none: a kept connection is used again */
	size_t n_opened;
	bool greets;      /* new connections */
	bool connects;    /* and that is all: no request is sent */
	CURL *kept;       /* the handle of such a connection */
	bool taken;       /* it was, and has come whole unless there is a cause */
	int64_t until_ms; /* end of the call; 0 = none */
	bool enough;      /* of an error's body: the rest is not wanted */
	int64_t shown_ms; /* when progress was last told */
	struct err cause; /* of a callback that ended the transfer */
	char words[CURL_ERROR_SIZE];
};

static void init_curl(void)
{
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_client_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, init_curl);
}

struct http_client *http_client_new(const struct http_policy *policy)
{
	struct http_client *c = xcalloc(1, sizeof(*c));

	http_client_init();
	lock_init(&c->lock, LOCK_CLIENT);
	c->guard = policy->guard;
	c->only_allowed = policy->only_allowed;
	c->n_allow = policy->n_allow;
	c->allow = xcalloc(policy->n_allow + 1, sizeof(*c->allow));
	if (policy->n_allow > 0)
		memcpy(c->allow, policy->allow, policy->n_allow * sizeof(*c->allow));
	c->ca_file = policy->ca_file == NULL ? NULL : xstrdup(policy->ca_file);
	c->unix_socket = policy->unix_socket == NULL ? NULL : xstrdup(policy->unix_socket);
	c->arena = arena_new();
	c->greet = policy->greet;
	c->greet_arg = policy->greet_arg;
	if (c->greet != NULL) {
		struct err err = {0};
		int r = url_parse(c->arena, str_of(policy->greet_origin), &c->greet_url, &err);

		assert(r == 0); /* the caller has parsed it */
	}
	c->user_agent =
		xstrdup(policy->user_agent == NULL ? "stoker/" STOKER_VERSION : policy->user_agent);
	return c;
}

void http_client_free(struct http_client *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < c->n_idle; i++)
		curl_easy_cleanup(c->idle[i]);
	lock_done(&c->lock);
	free(c->allow);
	free(c->ca_file);
	free(c->unix_socket);
	free(c->user_agent);
	arena_free(c->arena);
	free(c);
}

static CURL *take_handle(struct http_client *c)
{
	CURL *h = NULL;

	lock_take(&c->lock);
	if (c->n_idle > 0)
		h = c->idle[--c->n_idle];
	lock_give(&c->lock);
	return h == NULL ? curl_easy_init() : h;
}

static void give_handle(struct http_client *c, CURL *h)
{
	curl_easy_reset(h); /* options go, connections stay */
	lock_take(&c->lock);
	if (c->n_idle < IDLE_MAX) {
		c->idle[c->n_idle++] = h;
		h = NULL;
	}
	lock_give(&c->lock);
	if (h != NULL)
		curl_easy_cleanup(h);
}

static bool may_connect(const struct http_client *c, const struct sockaddr *to)
{
	bool allowed = !c->guard || (!c->only_allowed && !url_addr_is_internal(to));

	for (size_t i = 0; !allowed && i < c->n_allow; i++)
		allowed = url_net_has(&c->allow[i], to);
	return allowed;
}

bool http_host_denied(const struct http_client *c, const char *host)
{
	const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char bare[INET6_ADDRSTRLEN + 2];
	size_t n = strlen(host);
	bool denied;

	if (host[0] == '[') { /* url.h leaves the brackets of IPv6 */
		if (n < 2 || n - 2 >= sizeof(bare))
			return false;
		memcpy(bare, host + 1, n - 2);
		bare[n - 2] = '\0';
		host = bare;
	}
	if (getaddrinfo(host, NULL, &numeric, &found) != 0)
		return false;
	denied = !may_connect(c, found->ai_addr);
	freeaddrinfo(found);
	return denied;
}

/* Callbacks of libcurl */

static curl_socket_t on_socket(void *arg, curlsocktype purpose UNUSED, struct curl_sockaddr *to)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);

	if (to->family != AF_UNIX && !may_connect(t->c, &to->addr)) {
		t->refused = true;
		return CURL_SOCKET_BAD;
	}
	if (t->n_opened == SOCKETS_MAX)
		return CURL_SOCKET_BAD;
	t->sock = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
	if (t->sock >= 0)
		t->opened[t->n_opened++] = t->sock;
	return t->sock;
}

/* The opened socket that became the connection: it has this local port; -1 = none. */
static int connected(const struct transfer *t, int own_port)
{
	for (size_t i = 0; i < t->n_opened; i++) {
		struct sockaddr_storage own;
		socklen_t n = sizeof(own);

		if (local_is(t->opened[i]))
			return t->opened[i];
		if (getsockname(t->opened[i], (struct sockaddr *)&own, &n) == 0 &&
		    ntohs(own.ss_family == AF_INET6
		                  ? ((const struct sockaddr_in6 *)&own)->sin6_port
		                  : ((const struct sockaddr_in *)&own)->sin_port) == own_port)
			return t->opened[i];
	}
	return -1;
}

/* Before each request. What answers is looked at once, when the connection is new. */
static int on_connected(void *arg, char *peer UNUSED, char *own UNUSED, int peer_port UNUSED,
                        int own_port)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);
	int fd, r = 0;

	if (t->n_opened == 0)
		return CURL_PREREQFUNC_OK;
	fd = connected(t, own_port);
	if (fd >= 0 && local_is(fd))
		r = local_check_listener(fd, &t->cause);
	else if (fd >= 0 && t->greets)
		r = t->c->greet(t->c->greet_arg, fd, &t->cause);
	else if (t->greets)
		r = err_set(&t->cause, ERR_IO, "the connection is unknown");
	t->n_opened = 0;
	if (r == 0)
		return CURL_PREREQFUNC_OK;
	(void)shutdown(fd, SHUT_RDWR); /* libcurl shall not keep it */
	return CURL_PREREQFUNC_ABORT;
}

static void parse_status(struct http_reply *r, struct str line)
{
	struct str word;
	struct err err = {0};
	uint64_t n = 0;

	(void)str_cut(&line, ' ', &word);
	if (str_u64(str_n(line.p, MIN(line.n, 3)), 100, 999, &n, &err) < 0)
		n = 0; /* libcurl has refused the line already */
	r->status = (int)n;
	r->n_headers = 0; /* of an interim reply (100) or the hop before */
	r->length = -1;
	r->retry_after_s = 0;
}

void reply_take_line(struct http_reply *r, struct str line)
{
	struct err err = {0};
	struct str name;

	if (str_starts(line, "HTTP/")) {
		parse_status(r, line);
	} else if (str_cut(&line, ':', &name) && r->n_headers < REPLY_HEADERS_MAX) {
		struct str value = str_trim(line);

		r->headers[r->n_headers++] = (struct http_header){
			.name = arena_strz(r->arena, str_trim(name)),
			.value = arena_strz(r->arena, value),
		};
		if (str_ieq(name, "content-length") &&
		    str_i64(value, 0, INT64_MAX, &r->length, &err) < 0)
			r->length = -1;
	}
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);
	struct str line = str_trim(str_n(p, size * n));

	t->head_ended = line.n == 0;
	if (line.n > 0)
		reply_take_line(t->reply, line);
	return size * n;
}

static int take_2xx(struct transfer *t, const char *p, size_t n)
{
	struct http_reply *r = t->reply;

	if (!t->headed && t->call->head != NULL && t->call->head(t->call->arg, r, &t->cause) < 0)
		return -1;
	t->headed = true;
	if (n == 0)
		return 0;
	if (t->call->sink != NULL)
		return t->call->sink(t->call->arg, p, n, &t->cause);
	buf_add(&r->body, p, n);
	return buf_check(&r->body, "reply", &t->cause);
}

/* The connection's own: that it was the last to be opened does not say that it is the one. */
static bool is_ours(const struct transfer *t)
{
	struct sockaddr_storage own;
	socklen_t n = sizeof(own);
	long port = 0;

	if (t->sock < 0 || getsockname(t->sock, (struct sockaddr *)&own, &n) < 0 ||
	    curl_easy_getinfo(t->plain, CURLINFO_LOCAL_PORT, &port) != CURLE_OK)
		return false;
	if (own.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)&own)->sin_port) == port;
	return own.ss_family == AF_INET6 &&
	       ntohs(((const struct sockaddr_in6 *)&own)->sin6_port) == port;
}

/* A long body of known length need not pass through this process. It ends libcurl's part. */
static bool take_over(struct transfer *t)
{
	struct http_reply *r = t->reply;
	uint64_t left;

	if (t->plain == NULL || r->length < 0 || r->received > (uint64_t)r->length ||
	    http_header_of(r, "transfer-encoding").n > 0)
		return false;
	left = (uint64_t)r->length - r->received;
	if (left < WIRE_MIN || !is_ours(t))
		return false;
	t->taken = true;
	(void)!wire_drain(t->call, t->sock, left, t->until_ms, &r->received, &t->cause);
	return true;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);
	struct http_reply *r = t->reply;

	n *= size;
	r->received += n;
	if (r->status / 100 == 2)
		return take_2xx(t, p, n) < 0 || take_over(t) ? 0 : n;
	buf_add(&r->body, p, MIN(n, ERROR_BODY_MAX - MIN(r->body.n, ERROR_BODY_MAX)));
	if (r->received > ERROR_BODY_READ) {
		t->enough = true;
		return 0;
	}
	return n;
}

static int read_body(struct transfer *t, char *p, size_t cap, size_t *n)
{
	const struct http_call *call = t->call;

	if (call->read != NULL)
		return call->read(call->arg, p, cap, n, &t->cause);
	if (call->has_body_fd) {
		*n = cap;
		return fs_pread_all(call->body_fd, p, cap, call->body_at + t->sent, &t->cause);
	}
	*n = cap;
	memcpy(p, call->body.p + t->sent, cap);
	return 0;
}

static size_t on_read(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);
	size_t cap = (size_t)MIN((uint64_t)(size * n), t->body_len - t->sent), got = 0;

	if (cap == 0)
		return 0;
	if (read_body(t, p, cap, &got) < 0)
		return CURL_READFUNC_ABORT;
	assert(got <= cap);
	if (got == 0 && t->body_len != UINT64_MAX) {
		(void)err_set(&t->cause, ERR_IO,
		              "the body ended after %" PRIu64 " of %" PRIu64 " bytes", t->sent,
		              t->body_len);
		return CURL_READFUNC_ABORT;
	}
	t->sent += got;
	return got;
}

/* libcurl sends again when a kept connection turns out to be dead. */
static int on_seek(void *arg, curl_off_t at, int origin)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);

	if (origin != SEEK_SET || (t->call->read != NULL && t->sent != (uint64_t)at))
		return CURL_SEEKFUNC_CANTSEEK;
	t->sent = (uint64_t)at;
	return CURL_SEEKFUNC_OK;
}

static int on_progress(void *arg, curl_off_t dl_total UNUSED, curl_off_t dl,
                       curl_off_t ul_total UNUSED, curl_off_t ul)
{
	struct transfer *t = FROM_VOID(struct transfer, arg, TRANSFER_MAGIC);
	int64_t now = clock_mono_ms();

	if (t->call->cancel != NULL && atomic_load(t->call->cancel))
		return 1;
	if (t->call->progress != NULL && now - t->shown_ms >= PROGRESS_MS) {
		t->shown_ms = now;
		t->call->progress(t->call->arg, (uint64_t)ul, (uint64_t)dl);
	}
	return 0;
}

/* The request */

static const char *hop_headers[] = {"authorization", "cookie", "proxy-authorization",
                                    "x-amz-security-token"};

static bool is_credential(const char *name)
{
	for (size_t i = 0; i < COUNT(hop_headers); i++) {
		if (str_ieq(str_of(name), hop_headers[i]))
			return true;
	}
	return false;
}

static struct curl_slist *add_line(struct curl_slist *list, const char *name, const char *value)
{
	/* "Name;" is libcurl's way to write a header without a value */
	AUTO_FREE char *line =
		*value == '\0' ? xasprintf("%s;", name) : xasprintf("%s: %s", name, value);
	struct curl_slist *longer = curl_slist_append(list, line);

	assert(longer != NULL);
	return longer;
}

static struct curl_slist *headers_of(const struct transfer *t, bool with_credentials)
{
	const struct http_call *call = t->call;
	struct curl_slist *list = NULL;
	bool has_encoding = false;

	for (size_t i = 0; i < call->n_headers; i++) {
		const struct http_header *h = &call->headers[i];

		if (!with_credentials && is_credential(h->name))
			continue;
		if (!t->has_body && str_starts(str_of(h->name), "Content-"))
			continue; /* a redirect dropped the body */
		has_encoding = has_encoding || str_ieq(str_of(h->name), "accept-encoding");
		list = add_line(list, h->name, h->value);
	}
	if (!has_encoding)
		list = add_line(list, "Accept-Encoding", "identity");
	if (t->has_body && t->body_len < EXPECT_FROM)
		list = curl_slist_append(list, "Expect:"); /* not worth a round trip */
	return list;
}

static void set_body(CURL *h, struct transfer *t)
{
	if (t->method == HTTP_HEAD) {
		(void)curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
	} else if (t->has_body) {
		(void)curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
		(void)curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE,
		                       t->body_len == UINT64_MAX ? (curl_off_t)-1
		                                                 : (curl_off_t)t->body_len);
		(void)curl_easy_setopt(h, CURLOPT_READFUNCTION, on_read);
		(void)curl_easy_setopt(h, CURLOPT_READDATA, t);
		(void)curl_easy_setopt(h, CURLOPT_SEEKFUNCTION, on_seek);
		(void)curl_easy_setopt(h, CURLOPT_SEEKDATA, t);
		(void)curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, WIRE_BUFFER);
		(void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, http_method_name[t->method]);
	} else if (t->method != HTTP_GET) {
		(void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, http_method_name[t->method]);
	}
}

static void set_policy(CURL *h, const struct transfer *t)
{
	const struct http_client *c = t->c;

	(void)curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(h, CURLOPT_PROXY, ""); /* those of the environment are ignored */
	(void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
	(void)curl_easy_setopt(h, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	(void)curl_easy_setopt(h, CURLOPT_MAXCONNECTS, 4L);
	(void)curl_easy_setopt(h, CURLOPT_BUFFERSIZE, t->plain != NULL ? HEAD_BUFFER : WIRE_BUFFER);
	/* A connection whose body is taken over will be spent: one of its own, so that its socket
	 * is known. */
	(void)curl_easy_setopt(h, CURLOPT_FRESH_CONNECT,
	                       t->plain != NULL || t->call->anonymous ? 1L : 0L);
	(void)curl_easy_setopt(h, CURLOPT_FORBID_REUSE, t->call->anonymous ? 1L : 0L);
	(void)curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	(void)curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, 30L);
	(void)curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, 15L);
	(void)curl_easy_setopt(h, CURLOPT_USERAGENT, c->user_agent);
	if (c->ca_file != NULL)
		(void)curl_easy_setopt(h, CURLOPT_CAINFO, c->ca_file);
}

static void set_callbacks(CURL *h, struct transfer *t)
{
	(void)curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	(void)curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, t);
	(void)curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, on_connected);
	(void)curl_easy_setopt(h, CURLOPT_PREREQDATA, t);
	(void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
	(void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
	(void)curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
	(void)curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
	(void)curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->words);
}

static void set_deadlines(CURL *h, const struct http_call *call, int64_t left_ms)
{
	int64_t connect_ms = call->connect_ms > 0 ? call->connect_ms : CONNECT_MS;
	int64_t stall_ms = call->stall_ms > 0 ? call->stall_ms : STALL_MS;

	(void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
	(void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_S);
	(void)curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)((stall_ms + 999) / 1000));
	if (left_ms > 0)
		(void)curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)left_ms);
}

/* libcurl is given our reading of the URL, so that what we checked is what it connects to. */
static char *url_text(struct arena *a, const struct url *u)
{
	bool usual = u->port == (strcmp(u->scheme, "https") == 0 ? 443 : 80);
	char port[8] = "";

	if (!usual)
		FMT(port, ":%u", u->port);
	return arena_printf(a, "%s://%s%s%s%s%s", u->scheme, u->host, port, u->path,
	                    u->query == NULL ? "" : "?", u->query == NULL ? "" : u->query);
}

static void set_target(CURL *h, struct arena *a, const struct url *u, bool with_credentials)
{
	(void)curl_easy_setopt(h, CURLOPT_URL, url_text(a, u));
	if (!with_credentials || u->user == NULL)
		return;
	(void)curl_easy_setopt(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
	(void)curl_easy_setopt(h, CURLOPT_USERNAME, u->user);
	(void)curl_easy_setopt(h, CURLOPT_PASSWORD, u->password == NULL ? "" : u->password);
}

/* OpenSSL writes without MSG_NOSIGNAL, and the signal's disposition is the program's, not ours. */
void sigpipe_hold(struct sigpipe *s)
{
	sigset_t pipe, pending;

	(void)sigemptyset(&pipe);
	(void)sigaddset(&pipe, SIGPIPE);
	(void)sigpending(&pending);
	s->was_pending = sigismember(&pending, SIGPIPE) == 1;
	(void)pthread_sigmask(SIG_BLOCK, &pipe, &s->old);
}

void sigpipe_release(const struct sigpipe *s)
{
	const struct timespec at_once = {0};
	sigset_t pipe;

	(void)sigemptyset(&pipe);
	(void)sigaddset(&pipe, SIGPIPE);
	if (!s->was_pending)
		(void)sigtimedwait(&pipe, NULL, &at_once);
	(void)pthread_sigmask(SIG_SETMASK, &s->old, NULL);
}

static CURLcode perform(CURL *h)
{
	struct sigpipe held;
	CURLcode code;

	sigpipe_hold(&held);
	code = curl_easy_perform(h);
	sigpipe_release(&held);
	return code;
}

static enum err_code code_of(CURLcode code)
{
	static const struct {
		CURLcode theirs;
		enum err_code ours;
	} table[] = {
		{CURLE_OPERATION_TIMEDOUT, ERR_TIMEOUT},
		{CURLE_PEER_FAILED_VERIFICATION, ERR_CERTIFICATE_UNTRUSTED},
		{CURLE_COULDNT_RESOLVE_HOST, ERR_HOST_UNKNOWN},
		{CURLE_COULDNT_RESOLVE_PROXY, ERR_HOST_UNKNOWN},
		{CURLE_COULDNT_CONNECT, ERR_HOST_UNREACHABLE},
		{CURLE_SSL_CONNECT_ERROR, ERR_TLS_EXPECTED},
		{CURLE_ABORTED_BY_CALLBACK, ERR_CANCELED},
		{CURLE_SSL_CACERT_BADFILE, ERR_CA_FILE_UNREADABLE},
		{CURLE_OUT_OF_MEMORY, ERR_IO},
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		if (table[i].theirs == code)
			return table[i].ours;
	}
	return ERR_UNAVAILABLE;
}

static int explain(const struct transfer *t, CURL *h, CURLcode code, struct err *err)
{
	const struct http_reply *r = t->reply;
	long os = 0;

	if (t->cause.code != ERR_NONE) {
		*err = t->cause;
		return -1;
	}
	if (t->taken)
		return 0;
	if (code == CURLE_OK && !t->head_ended && !t->connects)
		return err_set(err, ERR_UNAVAILABLE, "the reply ended in its headers");
	if (code == CURLE_OK || t->enough)
		return 0;
	if (t->refused && code == CURLE_COULDNT_CONNECT)
		return err_set(err, ERR_ADDRESS_DENIED,
		               t->c->only_allowed
		                       ? "plain http is only allowed to networks that are allowed "
		                         "explicitly"
		                       : "the address is of an internal network, which this server "
		                         "does not connect to unless it is allowed");
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return err_set(err, ERR_CANCELED, "canceled");
	if (code == CURLE_PARTIAL_FILE && r->length >= 0)
		return err_set(err, ERR_UNAVAILABLE,
		               "the body was cut short: %" PRIu64 " of %" PRId64 " bytes came",
		               r->received, r->length);
	if (code == CURLE_COULDNT_CONNECT &&
	    curl_easy_getinfo(h, CURLINFO_OS_ERRNO, &os) == CURLE_OK && os != 0)
		return err_set(err, code_of(code), "%s", strerrordesc_np((int)os));
	return err_set(err, code_of(code), "%s",
	               t->words[0] != '\0' ? t->words : curl_easy_strerror(code));
}

static int exchange(struct transfer *t, const struct url *u, bool with_credentials, int64_t left_ms,
                    struct err *err)
{
	char name[LOCAL_NAME_CAP];
	AUTO_FD int folder = -1;
	struct curl_slist *headers;
	CURLcode code;
	CURL *h;
	int r;

	if (t->c->unix_socket != NULL && local_name(t->c->unix_socket, &folder, name, err) < 0)
		return -1;
	h = t->connects ? curl_easy_init() : take_handle(t->c);
	if (h == NULL)
		return err_set(err, ERR_IO, "libcurl gave no handle: out of memory");
	t->n_opened = 0;
	t->greets = t->c->greet != NULL && !t->call->anonymous && strcmp(u->scheme, "http") == 0 &&
	            url_same_origin(u, &t->c->greet_url);
	t->plain = t->call->drain != NULL && strcmp(u->scheme, "http") == 0 ? h : NULL;
	t->sock = -1;
	t->until_ms = left_ms > 0 ? clock_mono_ms() + left_ms : 0;
	headers = headers_of(t, with_credentials);
	set_policy(h, t);
	if (folder >= 0)
		(void)curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, name);
	set_callbacks(h, t);
	set_deadlines(h, t->call, left_ms);
	set_target(h, t->reply->arena, u, with_credentials);
	set_body(h, t);
	(void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(h, CURLOPT_CONNECT_ONLY, t->connects ? 1L : 0L);
	code = perform(h);
	r = explain(t, h, code, err);
	if (t->connects && r == 0)
		t->kept = h;
	else if (t->connects)
		curl_easy_cleanup(h);
	else
		give_handle(t->c, h);
	curl_slist_free_all(headers);
	if (r == 0 && t->reply->status / 100 == 2 && !t->headed && take_2xx(t, NULL, 0) < 0) {
		*err = t->cause; /* an empty body has a head, too */
		return -1;
	}
	return r;
}

/* Redirects */

static int resolve(struct arena *a, const char *base, const char *location, struct url *out,
                   struct err *err)
{
	CURLU *cu = curl_url();
	char *text = NULL;
	int r = -1;

	/* libcurl knows how a relative reference is resolved; url_parse() then judges the result.
	 */
	if (cu == NULL || curl_url_set(cu, CURLUPART_URL, base, CURLU_PATH_AS_IS) != CURLUE_OK ||
	    curl_url_set(cu, CURLUPART_URL, location, CURLU_PATH_AS_IS | CURLU_URLENCODE) !=
	            CURLUE_OK ||
	    curl_url_get(cu, CURLUPART_URL, &text, 0) != CURLUE_OK)
		(void)err_set(err, ERR_INVALID, "redirected to an invalid URL");
	else if (url_parse(a, str_of(text), out, err) < 0)
		(void)err_wrap(err, "redirected");
	else
		r = 0;
	curl_free(text);
	curl_url_cleanup(cu);
	return r;
}

static bool is_redirect(const struct http_reply *r)
{
	return (r->status == 301 || r->status == 302 || r->status == 303 || r->status == 307 ||
	        r->status == 308) &&
	       http_header_of(r, "location").n > 0;
}

/* Prepares the next request: URL, method and body as the status requires. */
static int follow(struct transfer *t, struct url *u, bool *with_credentials, struct err *err)
{
	struct http_reply *r = t->reply;
	struct str location = http_header_of(r, "location");
	struct url next;

	if (resolve(r->arena, r->url, location.p, &next, err) < 0)
		return -1;
	if (strcmp(u->scheme, "https") == 0 && strcmp(next.scheme, "https") != 0)
		return err_set(err, ERR_DENIED, "redirected from https to http://%s: refused",
		               next.host);
	if (r->status == 303 || (r->status <= 302 && t->method == HTTP_POST)) {
		if (t->method != HTTP_HEAD)
			t->method = HTTP_GET;
		t->has_body = false;
	}
	if (t->has_body && t->call->read != NULL && t->sent > 0)
		return err_set(err, ERR_UNAVAILABLE,
		               "redirected to %s after part of the body was sent", next.host);
	*with_credentials = *with_credentials && url_same_origin(u, &next);
	if (!*with_credentials)
		next.user = next.password = NULL;
	else if (next.user == NULL)
		next.user = u->user, next.password = u->password;
	*u = next;
	return 0;
}

static int run(struct transfer *t, struct url *u, struct err *err)
{
	const struct http_call *call = t->call;
	struct http_reply *r = t->reply;
	int64_t start = clock_mono_ms();
	bool with_credentials = true;

	for (int hops = 0;; hops++) {
		int64_t left = call->total_ms == 0 ? 0 : call->total_ms - (clock_mono_ms() - start);

		if (call->cancel != NULL && atomic_load(call->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (left < 0 || (left == 0 && call->total_ms > 0))
			return err_set(err, ERR_TIMEOUT, "no answer within %" PRId64 " ms",
			               call->total_ms);
		r->url = url_text(r->arena, u);
		r->received = 0;
		buf_clear(&r->body);
		if (exchange(t, u, with_credentials, left, err) < 0)
			return -1;
		if (call->redirects_max == 0 || !is_redirect(r))
			break;
		if (hops == MIN(call->redirects_max, HTTP_REDIRECTS_MAX))
			return err_set(err, ERR_INVALID, "redirected more than %d times", hops);
		if (follow(t, u, &with_credentials, err) < 0)
			return -1;
		t->sent = 0;
		t->refused = t->enough = t->head_ended = false;
		t->words[0] = '\0';
	}
	r->retry_after_s = reply_retry_after(r);
	return 0;
}

static bool headers_are_sane(const struct http_call *call)
{
	for (size_t i = 0; i < call->n_headers; i++) {
		if (strpbrk(call->headers[i].name, "\r\n:") != NULL ||
		    strpbrk(call->headers[i].value, "\r\n") != NULL)
			return false;
	}
	return true;
}

static int carry_out(struct transfer *t, struct err *err)
{
	const struct http_call *call = t->call;
	struct http_reply *r = t->reply;
	char name[HTTP_NAME_CAP];
	struct url u;
	int rc;

	assert(call->method < HTTP_METHODS && call->n_headers <= HTTP_HEADERS_MAX);
	r->body.max = call->body_max == 0 ? HTTP_BODY_MAX : MAX(call->body_max, ERROR_BODY_MAX);
	t->has_body = call->read != NULL || call->has_body_fd || call->body.n > 0 ||
	              call->method == HTTP_PUT || call->method == HTTP_POST ||
	              call->method == HTTP_PATCH;
	t->body_len = call->read != NULL || call->has_body_fd ? call->body_len : call->body.n;
	t->shown_ms = clock_mono_ms();
	r->arena = arena_new();
	r->headers = ARENA_ARRAY(r->arena, struct http_header, REPLY_HEADERS_MAX);
	if (!headers_are_sane(call))
		rc = err_set(err, ERR_INVALID, "a header contains a line break");
	else if (url_parse(r->arena, str_of(call->url), &u, err) < 0)
		rc = -1;
	else
		rc = run(t, &u, err);
	if (rc == 0)
		return 0;
	http_call_name(call, name);
	http_reply_done(r);
	return err_wrap(err, "%s", name);
}

int http_do(struct http_client *c, const struct http_call *call, struct http_reply *reply,
            struct err *err)
{
	struct http_reply r = {.length = -1};
	struct transfer t = {
		.magic = TRANSFER_MAGIC, .c = c, .call = call, .reply = &r, .method = call->method};

	if (carry_out(&t, err) < 0)
		return -1;
	*reply = r;
	return 0;
}

int client_connect(struct http_client *c, const struct http_call *call, struct http_reply *reply,
                   void **handle, struct err *err)
{
	struct http_reply r = {.length = -1};
	struct transfer t = {.magic = TRANSFER_MAGIC,
	                     .c = c,
	                     .call = call,
	                     .reply = &r,
	                     .method = call->method,
	                     .connects = true};

	assert(call->redirects_max == 0);
	if (carry_out(&t, err) < 0)
		return -1;
	(void)curl_easy_setopt(t.kept, CURLOPT_ERRORBUFFER, NULL); /* it is t's */
	*handle = t.kept;
	*reply = r;
	return 0;
}

void http_reply_done(struct http_reply *r)
{
	buf_done(&r->body);
	arena_free(r->arena);
	*r = (struct http_reply){.length = -1};
}
