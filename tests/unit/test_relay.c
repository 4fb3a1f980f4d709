/*
 * test_relay.c - requests that another server answers: what is passed on and what is not, replies
 * while they arrive, slow and lost clients, servers that are away, silent or die.
 *
 * The other server is this test: a listening socket, and one connection at a time.
 */
#include "base/clock.h"
#include "io/relay.h"
#include "unit.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define WAIT_MS 120000 /* against a hang */
#define ASK(method, path) method " /at/" path " HTTP/1.1\r\nHost: front\r\n"

struct world {
	long idle_s;
	struct httpd *front;
	struct relay *relay;
	int listens;
	char url[64];
	int64_t head_ms, silence_ms;
	bool waited;
	atomic_uint asked, ends;
	struct relay_end end; /* the last one */
};

static void on_end(void *arg, const struct relay_end *end)
{
	struct world *w = arg;

	w->end = *end;
	atomic_fetch_add(&w->ends, 1);
}

static int pass_on(struct request *rq, struct err *err)
{
	struct world *w = rq->ctx;
	struct relay_call call = {.token = "engine",
	                          .head_ms = w->head_ms,
	                          .silence_ms = w->silence_ms,
	                          .waited = w->waited,
	                          .ended = on_end,
	                          .arg = w};

	if (rq->method == HTTP_POST && request_body(rq, &call.body, err) < 0)
		return -1;
	call.url = arena_printf(rq->arena, "%s/%.*s?%.*s", w->url, STR_ARG(rq->arg[0]),
	                        STR_ARG(rq->query));
	atomic_fetch_add(&w->asked, 1);
	return reply_relay(rq, w->relay, &call, err);
}

static const struct route routes[] = {
	{HTTP_GET, SCOPE_OPEN, 0, "/at/{rest...}", pass_on, "passed on"},
	{HTTP_POST, SCOPE_OPEN, 1 << 20, "/at/{rest...}", pass_on, "passed on"},
};
static const struct face face = {"test", routes, COUNT(routes), NULL};
static const struct face *const faces[] = {&face};

static void start(struct world *w)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct httpd_options o = {.address = "127.0.0.1:0",
	                          .faces = faces,
	                          .n_faces = 1,
	                          .ctx = w,
	                          .idle_s = w->idle_s};
	socklen_t n = sizeof(at);
	struct err err = {0};

	w->listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w->listens, (struct sockaddr *)&at, n), 0);
	assert_int_equal(listen(w->listens, 100), 0);
	assert_int_equal(getsockname(w->listens, (struct sockaddr *)&at, &n), 0);
	FMT(w->url, "http://127.0.0.1:%u", ntohs(at.sin_port));
	w->relay = relay_new();
	assert_ok(httpd_start(&o, &w->front, &err), &err);
}

static void stop(struct world *w)
{
	if (w->front != NULL)
		httpd_stop(w->front);
	relay_free(w->relay);
	(void)close(w->listens);
}

static void patience(int fd)
{
	struct timeval t = {.tv_sec = WAIT_MS / 1000};

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static int ask(const struct world *w, const char *text)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
	                         .sin_port = htons(httpd_port(w->front)),
	                         .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 16384;

	patience(fd);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	say(fd, text);
	return fd;
}

/* Reads on until `end` has come; fails when the other side ends before. */
static void read_to(int fd, const char *end, struct buf *out)
{
	size_t n = strlen(end);

	while (out->n < n || memcmp(out->p + out->n - n, end, n) != 0) {
		char c;

		assert_int_equal(recv(fd, &c, 1, 0), 1);
		buf_putc(out, c);
	}
}

static void read_all(int fd, struct buf *out)
{
	char part[4096];
	ssize_t n;

	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_add(out, part, (size_t)n);
}

static int taken(const struct world *w, struct buf *head)
{
	int fd = accept4(w->listens, NULL, NULL, SOCK_CLOEXEC);

	assert_true(fd >= 0);
	patience(fd);
	read_to(fd, "\r\n\r\n", head);
	return fd;
}

static void wait_ends(const struct world *w, unsigned n)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; atomic_load(&w->ends) < n;) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(2);
	}
}

static void has(const struct buf *b, const char *text)
{
	if (strstr(b->p, text) == NULL)
		print_error("no \"%s\" in:\n%s\n", text, b->p);
	assert_non_null(strstr(b->p, text));
}

static void lacks(struct buf *b, const char *text)
{
	assert_null(strcasestr(buf_cstr(b), text));
}

static void a_whole_reply(void **state UNUSED)
{
	struct world w = {0};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;

	start(&w);
	client = ask(
		&w, ASK("POST",
	                "v1/chat?a=b%20c") "Authorization: Bearer mine\r\nCookie: "
					   "c=1\r\nX-Api-Key: k\r\nX-Own: kept\r\n"
					   "Content-Type: application/json\r\nContent-Length: 7\r\n"
					   "Connection: close\r\n\r\n{\"a\":1}");
	engine = taken(&w, &asked);
	read_to(engine, "{\"a\":1}", &asked);
	(void)buf_cstr(&asked);
	has(&asked, "POST /v1/chat?a=b%20c HTTP/1.1\r\n");
	has(&asked, "Authorization: Bearer engine\r\n");
	has(&asked, "X-Own: kept\r\n");
	has(&asked, "Content-Type: application/json\r\n");
	has(&asked, "Content-Length: 7\r\n");
	has(&asked, "X-Request-Id: ");
	lacks(&asked, "mine");
	lacks(&asked, "cookie");
	lacks(&asked, "x-api-key");
	lacks(&asked, "expect");
	say(engine,
	    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 418 Teapot\r\nContent-Type: text/x-tea\r\n"
	    "Set-Cookie: s=1\r\nX-Engine: here\r\nKeep-Alive: timeout=5\r\n"
	    "Content-Length: 5\r\n\r\nhello");
	read_all(client, &got);
	(void)buf_cstr(&got);
	has(&got, "HTTP/1.1 418 ");
	has(&got, "Content-Type: text/x-tea\r\n");
	has(&got, "X-Engine: here\r\n");
	has(&got, "Content-Length: 5\r\n");
	has(&got, "Content-Security-Policy: sandbox\r\n");
	has(&got, "\r\n\r\nhello");
	lacks(&got, "set-cookie");
	lacks(&got, "keep-alive");
	wait_ends(&w, 1);
	assert_int_equal(w.end.status, 418);
	assert_int_equal(w.end.bytes, 5);
	assert_false(w.end.cut || w.end.left);
	stop(&w);
}

/* Neither side's connection is the other's, and no engine speaks for our origin. */
static void headers_that_are_not_passed_on(void **state UNUSED)
{
	struct world w = {0};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;

	start(&w);
	client = ask(&w, ASK("POST", "x") "Content-Length: 2\r\nX-Mine: 1\r\nX-Kept: 1\r\n"
	                                  "Connection: close, x-mine\r\n\r\nhi");
	engine = taken(&w, &asked);
	read_to(engine, "hi", &asked);
	(void)buf_cstr(&asked);
	has(&asked, "X-Kept: 1\r\n");
	lacks(&asked, "x-mine");
	lacks(&asked, "content-type"); /* which nobody said */
	say(engine,
	    "HTTP/1.1 200 OK\r\nX-First: 1\r\nConnection: x-first,\r\nX-Kept: 1\r\n"
	    "connection: close , X-SECOND\r\nX-Second: 1\r\n"
	    "Strict-Transport-Security: max-age=9\r\nClear-Site-Data: \"*\"\r\n"
	    "Alt-Svc: h2=\"evil:443\"\r\nNEL: {}\r\nReport-To: {}\r\n"
	    "Reporting-Endpoints: a=\"https://evil\"\r\nSet-Cookie2: a=1\r\n"
	    "Service-Worker-Allowed: /\r\nSet-Cookie : a=1\r\nProxy-Authentication-Info: a\r\n"
	    "Proxy-Authenticate: Basic\r\nPublic-Key-Pins: a\r\nAccept-CH: UA\r\n"
	    "X-Accel-Redirect: /secret\r\nX-Sendfile: /secret\r\n"
	    "Content-Length: 5\r\n\r\nhello");
	read_all(client, &got);
	(void)buf_cstr(&got);
	has(&got, "X-Kept: 1\r\n");
	has(&got, "\r\n\r\nhello");
	lacks(&got, "x-first");
	lacks(&got, "x-second");
	lacks(&got, "strict-transport");
	lacks(&got, "clear-site");
	lacks(&got, "alt-svc");
	lacks(&got, "nel:");
	lacks(&got, "report");
	lacks(&got, "set-cookie");
	lacks(&got, "service-worker");
	lacks(&got, "proxy-");
	lacks(&got, "pins");
	lacks(&got, "accept-ch");
	lacks(&got, "/secret");
	stop(&w);
}

/* What libmicrohttpd has room for is passed back beside the longest request, and more is refused
 * in words. */
static void long_heads(void **state UNUSED)
{
	static const struct {
		const char *piece;
		size_t n;
		bool passed;
	} rows[] = {
		{"a:b\r\n", 2500, true},      {"X-Long: 0123456789\r\n", 800, true},
		{"a:b\r\n", 5000, false},     {"X-Long: 0123456789\r\n", 3000, false},
		{"0123456789", 30000, false}, {"connection: a, b, c\r\n", 200, false},
	};
	struct world w = {0};

	start(&w);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf text = BUF_INIT(1 << 20), asked = BUF_INIT(65536),
				    got = BUF_INIT(1 << 20);
		AUTO_FD int client = -1, engine = -1;

		buf_puts(&text, ASK("GET", "x") "Connection: close\r\n");
		for (int k = 0; k < 60; k++)
			buf_printf(&text, "X-Own-%d: %0500d\r\n", k, 0);
		buf_puts(&text, "\r\n");
		client = ask(&w, buf_cstr(&text));
		engine = taken(&w, &asked);
		buf_clear(&text);
		buf_puts(&text, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
		if (strchr(rows[i].piece, '\n') == NULL)
			buf_puts(&text, "X-Long: ");
		for (size_t k = 0; k < rows[i].n; k++)
			buf_puts(&text, rows[i].piece);
		buf_puts(&text,
		         strchr(rows[i].piece, '\n') == NULL ? "\r\n\r\nhello" : "\r\nhello");
		(void)send(engine, buf_cstr(&text), text.n, MSG_NOSIGNAL);
		read_all(client, &got);
		(void)buf_cstr(&got);
		has(&got, rows[i].passed ? "HTTP/1.1 200 " : "HTTP/1.1 502 ");
		has(&got, rows[i].passed ? "hello" : "the server of the job");
		lacks(&got, "memory");
	}
	stop(&w);
}

static void without_a_body(void **state UNUSED)
{
	static const struct {
		const char *ask, *reply, *want;
	} rows[] = {
		{ASK("HEAD", "x") "Connection: close\r\n\r\n",
	         "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "\r\nContent-Length: 100\r\n"},
		{ASK("HEAD", "x") "Connection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
	         "HTTP/1.1 200 "},
		{ASK("GET", "x") "Connection: close\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
	         "HTTP/1.1 204 "},
		{ASK("GET", "x") "Connection: close\r\n\r\n",
	         "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 "},
		{ASK("GET", "x") "Connection: close\r\n\r\n",
	         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 200 "},
	};
	struct world w = {0};

	start(&w);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client = ask(&w, rows[i].ask), engine = taken(&w, &asked);

		say(engine, rows[i].reply);
		(void)close(TAKE_FD(engine));
		read_all(client, &got);
		(void)buf_cstr(&got);
		has(&got, rows[i].want);
		if (str_starts(str_of(rows[i].ask), "HEAD"))
			assert_string_equal(strstr(got.p, "\r\n\r\n"), "\r\n\r\n");
		wait_ends(&w, (unsigned)i + 1);
		assert_int_equal(w.end.bytes, 0);
		assert_false(w.end.cut);
	}
	stop(&w);
}

/* Nothing of a request is left for the next one that takes its place. */
static void a_request_after_another(void **state UNUSED)
{
	struct world w = {0};

	start(&w);
	for (int i = 0; i < 3; i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client =
			ask(&w, i == 0   ? ASK("POST", "x") "Content-Length: 2\r\n"
		                                            "Connection: close\r\n\r\nhi"
		                : i == 1 ? ASK("HEAD", "x") "Connection: close\r\n\r\n"
		                         : ASK("GET", "x") "Connection: close\r\n\r\n");
		AUTO_FD int engine = taken(&w, &asked);
		const char *word = i == 0 ? "POST" : i == 1 ? "HEAD" : "GET";

		assert_memory_equal(asked.p, word, strlen(word));
		if (i > 0) {
			lacks(&asked, "content-");
			lacks(&asked, "transfer-");
		}
		say(engine, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
		if (i != 1)
			say(engine, "hello");
		read_all(client, &got);
		assert_int_equal(strstr(buf_cstr(&got), "hello") != NULL, i != 1);
	}
	stop(&w);
}

/* Each piece is sent only when the client has the one before it. */
static void pieces_come(const char *version)
{
	struct world w = {0};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;
	char text[96];

	FMT(text, "GET /at/stream HTTP/1.%s\r\nHost: front\r\nConnection: close\r\n\r\n", version);
	start(&w);
	client = ask(&w, text);
	engine = taken(&w, &asked);
	say(engine, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	            "Transfer-Encoding: chunked\r\n\r\n");
	read_to(client, "\r\n\r\n", &got);
	for (int i = 0; i < 50; i++) {
		char event[32], chunk[64];

		FMT(event, "data: %d\n\n", i);
		FMT(chunk, "%zx\r\n%s\r\n", strlen(event), event);
		say(engine, chunk);
		read_to(client, event, &got);
	}
	say(engine, "0\r\n\r\n");
	read_all(client, &got);
	(void)buf_cstr(&got);
	if (version[0] == '1')
		has(&got, "data: 49\n\n\r\n0\r\n\r\n");
	else
		has(&got, "data: 48\n\ndata: 49\n\n"); /* its end is that of the connection */
	wait_ends(&w, 1);
	assert_false(w.end.cut);
	stop(&w);
}

#define IDLE_S 1

/* Pieces that libmicrohttpd does not see are no silence: the connection is kept for what comes
 * next. */
static void a_stream_that_is_longer_than_idle_connections_live(void **state UNUSED)
{
	struct world w = {.idle_s = IDLE_S};
	int64_t until = clock_mono_ms() + 2000LL * IDLE_S;
	AUTO_FD int client = -1;

	start(&w);
	client = ask(&w, ASK("GET", "stream") "\r\n");
	for (int i = 0; i < 2; i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(1 << 20);
		AUTO_FD int engine = taken(&w, &asked);

		say(engine, "HTTP/1.1 200 OK\r\nConnection: close\r\n"
		            "Transfer-Encoding: chunked\r\n\r\n");
		read_to(client, "\r\n\r\n", &got);
		while (i == 0 && clock_mono_ms() < until) {
			say(engine, "4\r\nsome\r\n");
			read_to(client, "some\r\n", &got);
			got.n = 0;
			clock_sleep_ms(50);
		}
		say(engine, "0\r\n\r\n");
		read_to(client, "0\r\n\r\n", &got);
		if (i == 0)
			say(client, ASK("GET", "next") "\r\n");
	}
	wait_ends(&w, 2);
	assert_false(w.end.cut || w.end.left);
	stop(&w);
}

static void pieces_as_they_come(void **state UNUSED)
{
	pieces_come("1");
}

static void pieces_to_an_old_client(void **state UNUSED)
{
	pieces_come("0");
}

static void expect_error(struct world *w, int client, const char *status, const char *why)
{
	AUTO_BUF struct buf got = BUF_INIT(65536);

	read_all(client, &got);
	(void)buf_cstr(&got);
	has(&got, status);
	has(&got, why);
	assert_int_equal(w->end.status, 0);
	assert_non_null(w->end.why);
}

static void no_reply(void **state UNUSED)
{
	static const char *const bad[] = {"", "HTTP/1.1 200", "gibberish\r\n\r\n",
	                                  "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"};
	struct world w = {.head_ms = 700};
	AUTO_BUF struct buf asked = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;

	start(&w);
	for (size_t i = 0; i < COUNT(bad); i++) {
		AUTO_BUF struct buf head = BUF_INIT(65536);
		AUTO_FD int c = ask(&w, ASK("GET", "x") "Connection: close\r\n\r\n");
		AUTO_FD int e = taken(&w, &head);

		if (bad[i][0] != '\0')
			say(e, bad[i]);
		(void)close(TAKE_FD(e));
		expect_error(&w, c, "HTTP/1.1 502 ", "the server of the job");
	}
	/* silent */
	client = ask(&w, ASK("GET", "x") "Connection: close\r\n\r\n");
	engine = taken(&w, &asked);
	expect_error(&w, client, "HTTP/1.1 504 ", "took too long");
	/* nobody is there */
	(void)close(TAKE_FD(w.listens));
	(void)close(TAKE_FD(client));
	client = ask(&w, ASK("GET", "x") "Connection: close\r\n\r\n");
	expect_error(&w, client, "HTTP/1.1 502 ", "does not answer at its port");
	stop(&w);
}

static void ends_in_the_middle(void **state UNUSED)
{
	static const char *const heads[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"};
	struct world w = {.silence_ms = 700};

	start(&w);
	for (unsigned i = 0; i < 2 * COUNT(heads); i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client = ask(&w, ASK("GET", "x") "\r\n"), engine = taken(&w, &asked);

		say(engine, heads[i / 2]);
		if (i % 2 == 0) /* else it goes silent */
			(void)close(TAKE_FD(engine));
		read_all(client, &got); /* the connection ends: the client sees that it is short */
		(void)buf_cstr(&got);
		has(&got, "some");
		lacks(&got, "\r\n0\r\n\r\n");
		wait_ends(&w, i + 1);
		assert_true(w.end.cut && w.end.why != NULL && !w.end.left);
	}
	stop(&w);
}

/* Who leaves, before the head or in the middle, takes the exchange along. */
static void clients_that_leave(void **state UNUSED)
{
	struct world w = {0};

	start(&w);
	for (unsigned i = 0; i < 3; i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client = ask(&w, ASK("GET", "x") "\r\n"), engine = taken(&w, &asked);
		char c;

		if (i > 0) {
			say(engine,
			    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
			read_to(client, "some", &got);
		}
		if (i < 2)
			(void)close(TAKE_FD(client));
		else
			(void)shutdown(client, SHUT_WR); /* looks the same from here */
		assert_true(recv(engine, &c, 1, 0) <= 0);
		wait_ends(&w, i + 1);
		assert_true(w.end.left && !w.end.cut);
	}
	stop(&w);
}

/* More than the buffers of three sockets may hold, whatever they grow to on this machine. */
static size_t sysctl_max(const char *path)
{
	size_t least = 0, usual = 0, most = 0;
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu %zu %zu", &least, &usual, &most), 3);
	(void)fclose(f);
	return most;
}

static size_t held_by_kernel(void)
{
	return 2 * sysctl_max("/proc/sys/net/ipv4/tcp_wmem") +
	       sysctl_max("/proc/sys/net/ipv4/tcp_rmem");
}

#define PERIOD 65521 /* prime: no piece that is moved, lost or doubled looks right */

struct sender {
	int fd;
	size_t total;
	const uint8_t *pattern; /* of 2 * PERIOD bytes */
	bool chunks;
	_Atomic size_t sent;
};

static bool send_whole(int fd, const void *p, size_t n)
{
	return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void *send_long(void *arg)
{
	struct sender *s = arg;
	char size[24];

	for (size_t at = 0; at < s->total;) {
		size_t n = MIN(s->chunks ? 1 + at % 9973 : PERIOD, s->total - at);

		FMT(size, "%zx\r\n", n);
		if ((s->chunks && !send_whole(s->fd, size, strlen(size))) ||
		    !send_whole(s->fd, s->pattern + at % PERIOD, n) ||
		    (s->chunks && !send_whole(s->fd, "\r\n", 2)))
			return NULL;
		at += n;
		atomic_store(&s->sent, at);
	}
	if (s->chunks)
		(void)send_whole(s->fd, "0\r\n\r\n", 5);
	return NULL;
}

static uint8_t *new_pattern(void)
{
	uint8_t *pattern = xmalloc(2 * PERIOD);

	for (size_t i = 0; i < 2 * PERIOD; i++)
		pattern[i] = (uint8_t)((i % PERIOD * 2654435761U) >> 13);
	return pattern;
}

/* Until nobody takes any more of it. */
static void comes_to_a_stop(const struct sender *s, size_t most)
{
	size_t before = SIZE_MAX;

	while (before != atomic_load(&s->sent)) {
		before = atomic_load(&s->sent);
		clock_sleep_ms(300);
	}
	assert_in_range(before, 0, most);
}

/* A stream goes to its client by another way than a reply of a known length: piece by piece, from
 * where the client stopped in the middle of one. */
static void a_stream_that_is_read_slowly(void **state UNUSED)
{
	struct world w = {0};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FREE uint8_t *pattern = new_pattern(), *part = xmalloc(2 * PERIOD);
	struct sender s = {.chunks = true, .pattern = pattern};
	size_t most = held_by_kernel() + RELAY_RING, at = 0, n;
	char size[24];
	pthread_t thread;
	FILE *from;
	int client;

	s.total = most + ((size_t)8 << 20);
	start(&w);
	client = ask(&w, ASK("GET", "x") "\r\n");
	s.fd = taken(&w, &asked);
	say(s.fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
	read_to(client, "some\r\n", &got);
	assert_int_equal(pthread_create(&thread, NULL, send_long, &s), 0);
	comes_to_a_stop(&s, most);
	from = fdopen(client, "r");
	assert_non_null(from);
	while (fgets(size, sizeof(size), from) != NULL && (n = strtoul(size, NULL, 16)) > 0) {
		assert_in_range(n, 1, 2 * PERIOD);
		assert_int_equal(fread(part, 1, n, from), n);
		for (size_t i = 0; i < n; i += PERIOD)
			assert_memory_equal(part + i, pattern + (at + i) % PERIOD,
			                    MIN(n - i, (size_t)PERIOD));
		at += n;
		assert_int_equal(fread(part, 1, 2, from), 2);
		assert_memory_equal(part, "\r\n", 2);
	}
	assert_int_equal(at, s.total);
	(void)pthread_join(thread, NULL);
	wait_ends(&w, 1);
	assert_int_equal(w.end.bytes, s.total + 4);
	assert_false(w.end.cut || w.end.left);
	(void)fclose(from);
	(void)close(s.fd);
	stop(&w);
}

/* Who leaves instead of reading on is noticed, with bytes on their way; so is an engine that ends.
 */
static void a_stream_that_is_not_read(void **state UNUSED)
{
	struct world w = {0};
	AUTO_FREE uint8_t *pattern = new_pattern();
	enum { ENGINE_ENDS, CLIENT_LEAVES, CLIENT_STAYS };

	start(&w);
	for (unsigned i = ENGINE_ENDS; i <= CLIENT_STAYS; i++) {
		struct sender s = {.chunks = true, .pattern = pattern, .total = SIZE_MAX};
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client = ask(&w, ASK("GET", "x") "\r\n");
		pthread_t thread;

		s.fd = taken(&w, &asked);
		say(s.fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
		read_to(client, "some\r\n", &got);
		assert_int_equal(pthread_create(&thread, NULL, send_long, &s), 0);
		comes_to_a_stop(&s, SIZE_MAX);
		if (i == CLIENT_LEAVES) {
			(void)close(TAKE_FD(client));
		} else if (i == ENGINE_ENDS) {
			(void)shutdown(s.fd, SHUT_RDWR);
			while (recv(client, got.p, got.n, 0) > 0)
				continue;
		}
		for (int64_t now = clock_mono_ms(); i == CLIENT_STAYS && atomic_load(&w.ends) <= i;
		     now += 60000) {
			clock_fake(now, now); /* its connection's time runs out */
			(void)poll(NULL, 0, 50);
		}
		clock_fake(-1, -1);
		wait_ends(&w, i + 1);
		assert_int_equal(w.end.left, i != ENGINE_ENDS);
		assert_int_equal(w.end.cut, i == ENGINE_ENDS);
		(void)pthread_join(thread, NULL);
		(void)close(s.fd);
	}
	stop(&w);
}

/* The front's end of a client's connection: it is in this process, too. */
static int front_of(int client)
{
	struct sockaddr_in mine, theirs;

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t n = sizeof(mine), m = sizeof(theirs);

		if (getsockname(client, (struct sockaddr *)&mine, &n) == 0 &&
		    getpeername(fd, (struct sockaddr *)&theirs, &m) == 0 &&
		    theirs.sin_port == mine.sin_port &&
		    theirs.sin_addr.s_addr == mine.sin_addr.s_addr)
			return fd;
	}
	fail_msg("the front has no such connection");
	return -1;
}

static int untaken(int fd)
{
	int n = -1;

	assert_int_equal(ioctl(fd, SIOCOUTQ, &n), 0);
	return n;
}

/* A piece that is n bytes to the client, with what makes a chunk of it. */
static void say_piece(int engine, int n)
{
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	int digits = snprintf(NULL, 0, "%x", (unsigned)(n - 8)), body = n - 4 - digits;

	buf_printf(&b, "%x\r\n", (unsigned)body);
	for (int i = 0; i < body; i++)
		buf_putc(&b, '.');
	buf_puts(&b, "\r\n");
	say(engine, buf_cstr(&b));
}

/* As many bytes as arrive are sent anew, as to a client that is far away: what is under way is the
 * same at each look, and yet it moves. */
static void a_stream_that_is_always_as_far_behind(void **state UNUSED)
{
	struct world w = {.idle_s = IDLE_S};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;
	int64_t until = clock_mono_ms() + 4000LL * IDLE_S;
	int front, behind, room = 1 << 20;
	char part[4096];

	start(&w);
	client = ask(&w, ASK("GET", "stream") "\r\n");
	engine = taken(&w, &asked);
	say(engine, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
	read_to(client, "some\r\n", &got);
	front = front_of(client);
	(void)setsockopt(front, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	for (int i = 0; i < 20; i++)
		say_piece(engine, 9000);
	for (behind = -1; behind != untaken(front) || behind <= 0; clock_sleep_ms(50))
		behind = untaken(front);
	while (clock_mono_ms() < until) {
		int n = behind - untaken(front);

		if (n < 32) { /* those of a look see the same number */
			clock_sleep_ms(n == 0 ? 200 : 0);
			while (untaken(front) > behind - 32 &&
			       recv(client, part, sizeof(part), 0) > 0)
				continue;
		} else { /* each fits into what libcurl reads at once, and so becomes one chunk */
			say_piece(engine, n > 9000 ? 4096 : n);
		}
		clock_sleep_ms(10);
	}
	assert_int_equal(atomic_load(&w.ends), 0);
	stop(&w);
}

static void a_client_that_is_slow(void **state UNUSED)
{
	struct world w = {0};
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = -1, engine = -1;
	size_t most = held_by_kernel() + RELAY_RING, total = most + ((size_t)8 << 20);
	AUTO_FREE uint8_t *part = xmalloc(PERIOD), *pattern = new_pattern();
	struct sender s = {.total = total, .pattern = pattern};
	size_t at = 0;
	char head[96];
	pthread_t thread;

	start(&w);
	client = ask(&w, ASK("GET", "x") "Connection: close\r\n\r\n");
	engine = taken(&w, &asked);
	FMT(head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", total);
	say(engine, head);
	s.fd = engine;
	assert_int_equal(pthread_create(&thread, NULL, send_long, &s), 0);
	read_to(client, "\r\n\r\n", &got);
	comes_to_a_stop(&s, most);
	for (ssize_t n; (n = recv(client, part, PERIOD, 0)) > 0; at += (size_t)n)
		assert_memory_equal(part, pattern + at % PERIOD, (size_t)n);
	assert_int_equal(at, total);
	(void)pthread_join(thread, NULL);
	stop(&w);
}

#define MANY 300
static void many_at_once(void **state UNUSED)
{
	struct world w = {0};
	int client[MANY], engine[MANY];

	start(&w);
	for (int i = 0; i < MANY; i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536);

		client[i] = ask(&w, ASK("GET", "x") "\r\n");
		engine[i] = taken(&w, &asked);
		say(engine[i], "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	}
	for (int i = MANY - 1; i >= 0; i--) {
		AUTO_BUF struct buf got = BUF_INIT(65536);

		say(engine[i], "4\r\nsome\r\n0\r\n\r\n");
		read_to(client[i], "some", &got);
		(void)close(client[i]);
		(void)close(engine[i]);
	}
	wait_ends(&w, MANY);
	stop(&w);
}

/* The server ends while replies are on their way, and others have not begun. */
static void the_server_ends(void **state UNUSED)
{
	struct world w = {0};
	AUTO_BUF struct buf a = BUF_INIT(65536), b = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int begun = -1, waits = -1, first = -1, second = -1;

	start(&w);
	begun = ask(&w, ASK("GET", "x") "\r\n");
	first = taken(&w, &a);
	say(first, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
	read_to(begun, "some", &got);
	waits = ask(&w, ASK("GET", "x") "\r\n");
	second = taken(&w, &b);
	httpd_drain(w.front, 100);
	httpd_stop(TAKE(w.front));
	assert_int_equal(atomic_load(&w.ends), 2);
	stop(&w);
}

/* Connections that the other server has not accepted yet. */
static size_t in_line(const struct world *w)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof(info);

	assert_int_equal(getsockopt(w->listens, IPPROTO_TCP, TCP_INFO, &info, &n), 0);
	return info.tcpi_unacked;
}

static void ask_for(struct world *w, int *fd, size_t n)
{
	unsigned asked = atomic_load(&w->asked) + (unsigned)n;

	for (size_t i = 0; i < n; i++)
		fd[i] = ask(w, ASK("GET", "x") "\r\n");
	for (int64_t until = clock_mono_ms() + WAIT_MS; atomic_load(&w->asked) < asked;) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(1);
	}
}

static void leave(const int *fd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)close(fd[i]);
}

/* Those that leave before their turn are told of, too. */
static void many_that_waited_come_a_few_at_a_time(void **state UNUSED)
{
	struct world w = {.waited = true};
	int64_t since, until = clock_mono_ms() + WAIT_MS;
	int fd[240];

	start(&w);
	assert_int_equal(listen(w.listens, 1000), 0);
	since = clock_mono_ms();
	ask_for(&w, fd, 100);
	while (in_line(&w) < 100) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(1);
	}
	assert_true(clock_mono_ms() - since >= 200); /* 4 in 10 ms */
	leave(fd, 100);
	wait_ends(&w, 100);
	ask_for(&w, fd, COUNT(fd));
	leave(fd, COUNT(fd));
	wait_ends(&w, 100 + COUNT(fd));
	stop(&w);
}

static void quick_one(const struct world *w)
{
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
	AUTO_FD int client = ask(w, ASK("GET", "quick") "Connection: close\r\n\r\n");
	AUTO_FD int engine = taken(w, &asked);

	assert_memory_equal(asked.p, "GET /quick", 10);
	say(engine, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
	read_all(client, &got);
	has(&got, "hello");
}

#define SLOW_BYTES 120000

/* True: its reply was over while a piece of it had been sent in part, as most are. */
static bool slow_one(struct world *w, int room)
{
	AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(1 << 20);
	AUTO_FD int client = ask(w, ASK("POST", "slow") "Content-Length: 2\r\n\r\nhi");
	AUTO_FD int engine = taken(w, &asked);
	AUTO_FREE char *part = xcalloc(1, SLOW_BYTES + 1);
	unsigned ends = atomic_load(&w->ends);
	bool in_part;
	char c;

	memset(part, 'x', SLOW_BYTES);
	read_to(engine, "hi", &asked);
	say(engine, "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	            "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
	read_to(client, "some\r\n", &got);
	assert_int_equal(setsockopt(front_of(client), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)),
	                 0);
	say(engine, "1d4c0\r\n");
	say(engine, part);
	say(engine, "\r\n0\r\n\r\n");
	assert_int_equal(recv(engine, &c, 1, 0), 0); /* the front has all of it */
	quick_one(w);                                /* and has looked at it */
	in_part = atomic_load(&w->ends) == ends + 1;
	w->waited = true;
	quick_one(w);
	w->waited = false;
	read_to(client, "\r\n0\r\n\r\n", &got);
	wait_ends(w, ends + 3);
	assert_false(w->end.cut || w->end.left);
	assert_true(!in_part || w->end.bytes == SLOW_BYTES + 4);
	return in_part;
}

/* A reply that is over, but for what its client has still to take, is not one that waits to begin:
 * its request is not sent again. */
static void a_request_that_waited_beside_a_slow_client(void **state UNUSED)
{
	struct world w = {0};
	int room = 4096;

	start(&w);
	while (!slow_one(&w, room)) {
		room += 1024;
		assert_in_range(room, 0, 65536);
	}
	stop(&w);
}

#define ROUNDS 8 /* more than libcurl tries one request again */

/* A server may close a connection just when the next request comes on it: that is sent once more,
 * however often it has happened before. */
static void connections_that_end_between_requests(void **state UNUSED)
{
	struct world w = {0};
	AUTO_FD int engine = -1;

	start(&w);
	for (int i = 0; i < ROUNDS; i++) {
		AUTO_BUF struct buf asked = BUF_INIT(65536), got = BUF_INIT(65536);
		AUTO_FD int client = ask(&w, ASK("GET", "x") "Connection: close\r\n\r\n");

		if (engine >= 0) { /* kept from the last round */
			read_to(engine, "\r\n\r\n", &asked);
			(void)close(TAKE_FD(engine));
			buf_clear(&asked);
		}
		engine = taken(&w, &asked);
		say(engine, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
		read_all(client, &got);
		has(&got, "HTTP/1.1 200 ");
		wait_ends(&w, (unsigned)i + 1);
	}
	stop(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_whole_reply),
	cmocka_unit_test(headers_that_are_not_passed_on),
	cmocka_unit_test(long_heads),
	cmocka_unit_test(without_a_body),
	cmocka_unit_test(a_request_after_another),
	cmocka_unit_test(pieces_as_they_come),
	cmocka_unit_test(a_stream_that_is_longer_than_idle_connections_live),
	cmocka_unit_test(pieces_to_an_old_client),
	cmocka_unit_test(no_reply),
	cmocka_unit_test(ends_in_the_middle),
	cmocka_unit_test(clients_that_leave),
	cmocka_unit_test(a_stream_that_is_always_as_far_behind),
	cmocka_unit_test(a_client_that_is_slow),
	cmocka_unit_test(a_stream_that_is_read_slowly),
	cmocka_unit_test(a_stream_that_is_not_read),
	cmocka_unit_test(many_at_once),
	cmocka_unit_test(the_server_ends),
	cmocka_unit_test(many_that_waited_come_a_few_at_a_time),
	cmocka_unit_test(a_request_that_waited_beside_a_slow_client),
	cmocka_unit_test(connections_that_end_between_requests),
};
UNIT_MAIN(tests)
