/*
 * test_upgrade.c - connections that leave HTTP, our client against our listener: bytes both ways,
 * over TLS too, who does not ask for it, and the end of the listener.
 */
#include "base/clock.h"
#include "io/httpd_impl.h"
#include "io/line.h"
#include "tls_fixture.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#define PROTOCOL "test-echo"
#define BYTES ((size_t)1 << 20)
#define WAIT_MS 60000

static struct {
	pthread_t thread;
	atomic_int taken, closed;
	bool closes_at_once;
} owner;

/* Says back what it hears, to the end. */
static void *echo(void *arg)
{
	struct upgraded *u = arg;
	struct pollfd p = {.fd = upgraded_fd(u), .events = POLLIN};
	AUTO_FREE char *bytes = xmalloc(UPGRADED_READ_MIN);
	ssize_t n = 1;

	while (n != 0 && poll(&p, 1, WAIT_MS) > 0) {
		n = upgraded_read(u, bytes, UPGRADED_READ_MIN);
		for (ssize_t at = 0, sent; at < n; at += sent) {
			struct pollfd q = {.fd = p.fd, .events = POLLOUT};

			(void)poll(&q, 1, WAIT_MS);
			sent = upgraded_write(u, bytes + at, (size_t)(n - at));
			if (sent < 0 && errno != EAGAIN)
				at = n;
			sent = MAX(sent, 0);
		}
		if (n < 0 && errno != EAGAIN)
			n = 0;
	}
	upgraded_close(u);
	atomic_fetch_add(&owner.closed, 1);
	return NULL;
}

static void take(struct request *rq, struct upgraded *u)
{
	assert_string_equal(rq->route->pattern, "/echo");
	if (owner.closes_at_once) {
		upgraded_close(u);
		atomic_fetch_add(&owner.closed, 1);
	} else {
		assert_int_equal(pthread_create(&owner.thread, NULL, echo, u), 0);
	}
	atomic_fetch_add(&owner.taken, 1);
}

static int upgrade(struct request *rq, struct err *err UNUSED)
{
	return reply_upgrade(rq, PROTOCOL, take);
}

static int plain(struct request *rq, struct err *err UNUSED)
{
	return reply_bytes(rq, 200, "text/plain", STR_LIT("a page"));
}

static const struct route routes[] = {
	{HTTP_GET, SCOPE_OPEN, 0, "/echo", upgrade, ""},
	{HTTP_GET, SCOPE_OPEN, 0, "/plain", plain, ""},
};
static const struct face face = {"test", routes, COUNT(routes), NULL};
static const struct face *const faces[] = {&face};

static struct httpd *serve(const char *cert, const char *key)
{
	struct httpd_options o = {.address = "127.0.0.1:0",
	                          .faces = faces,
	                          .n_faces = 1,
	                          .tls_cert = cert,
	                          .tls_key = key};
	struct httpd *h = NULL;
	struct err err = {0};

	owner.closes_at_once = false;
	atomic_store(&owner.taken, 0);
	atomic_store(&owner.closed, 0);
	assert_ok(httpd_start(&o, &h, &err), &err);
	return h;
}

static struct upgrade *open_echo(struct http_client *c, const struct httpd *h, const char *scheme)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_FREE char *url = xasprintf("%s://127.0.0.1:%u/echo?x=1", scheme, httpd_port(h));
	struct http_call call = {.url = url};
	struct upgrade *u = NULL;
	struct err err = {0};

	assert_ok(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err);
	assert_int_equal(reply.status, 101);
	assert_non_null(u);
	return u;
}

/* What is said back to a line is as if another end had said it: all of it comes, in order. */
static void trip(struct upgrade *u)
{
	struct line l = LINE_INIT;
	uint64_t sent = 0, got = 0;
	int64_t until_ms = clock_mono_ms() + WAIT_MS;

	line_begin(&l, u);
	while (got < BYTES) {
		struct pollfd p;
		enum frame_kind kind;
		struct str bytes;
		char piece[3001];
		size_t n = MIN(MIN(sizeof(piece), resumable_room(&l.r)), (size_t)(BYTES - sent));

		for (size_t i = 0; i < n; i++)
			piece[i] = (char)((sent + i) * 31 >> 3);
		if (n > 0)
			resumable_put(&l.r, FRAME_OUT, str_n(piece, n));
		sent += n;
		line_tend(&l);
		assert_non_null(l.u);
		while (resumable_next(&l.r, &kind, &bytes)) {
			for (size_t i = 0; i < bytes.n; i++)
				assert_int_equal(bytes.p[i], (char)((got + i) * 31 >> 3));
			got += bytes.n;
			resumable_use(&l.r, bytes.n);
		}
		p = line_poll(&l);
		(void)poll(&p, 1, 1000);
		assert_true(clock_mono_ms() < until_ms);
	}
	line_done(&l);
	(void)pthread_join(owner.thread, NULL);
	assert_int_equal(atomic_load(&owner.closed), 1);
}

static int greet(void *arg, int fd UNUSED, struct err *err)
{
	int *left = arg;

	return (*left)-- > 0 ? 0 : err_set(err, ERR_AUTH, "not the one it says it is");
}

static void bytes_go_both_ways(void **state UNUSED)
{
	struct httpd *h = serve(NULL, NULL);
	AUTO_FREE char *origin = xasprintf("http://127.0.0.1:%u", httpd_port(h));
	AUTO_FREE char *url = xasprintf("%s/echo", origin);
	int greetings = 1;
	struct http_policy policy = {
		.greet = greet, .greet_origin = origin, .greet_arg = &greetings};
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&policy);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_call call = {.url = url};
	struct upgrade *u = NULL;
	struct err err = {0};

	trip(open_echo(c, h, "http"));
	assert_int_equal(greetings, 0);
	/* the client's policy holds for it: whoever listens there now is sent nothing */
	assert_err(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err, ERR_AUTH,
	           "not the one");
	assert_int_equal(atomic_load(&owner.taken), 1);
	httpd_stop(h);
}

static void over_tls(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *sure = NULL;
	struct tls_files tls;
	struct upgrade *u;
	struct httpd *h;

	tls_make(&tls);
	h = serve(tls.cert, tls.key);
	sure = http_client_new(&(struct http_policy){.ca_file = tls.cert});
	trip(open_echo(sure, h, "https"));
	/* and as the listener ends */
	u = open_echo(sure, h, "https");
	httpd_stop(h);
	(void)pthread_join(owner.thread, NULL);
	upgrade_close(u);
	tls_remove(&tls);
}

/* Is a reply there, head and body? */
static bool is_whole(const struct buf *out, bool has_body)
{
	const char *end = strstr(buf_cstr(out), "\r\n\r\n");
	const char *n = strcasestr(buf_cstr(out), "\r\nContent-Length: ");

	return end != NULL &&
	       (!has_body || (n != NULL && strlen(end + 4) >= strtoul(n + 18, NULL, 10)));
}

/* A raw request, and its reply. */
static void ask(const struct httpd *h, const char *text, struct buf *out)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(httpd_port(h)),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char bytes[4096];
	ssize_t n;

	assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	buf_clear(out);
	while (!is_whole(out, !str_starts(str_of(text), "HEAD")) &&
	       (n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		buf_add(out, bytes, (size_t)n);
	(void)close(fd);
}

#define ASK_HEAD(line, more) line "\r\nHost: x\r\n" more "\r\n"
static const struct {
	const char *name, *request, *status, *words;
} refused[] = {
	{"no wish", ASK_HEAD("GET /echo HTTP/1.1", "Connection: close\r\n"), "HTTP/1.1 426",
         "\"Upgrade: test-echo\""},
	{"another protocol",
         ASK_HEAD("GET /echo HTTP/1.1",
                  "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"),
         "HTTP/1.1 426", "does a proxy on the way"},
	{"lost by a proxy",
         ASK_HEAD("GET /echo HTTP/1.1", "Connection: close\r\nUpgrade: test-echo\r\n"),
         "HTTP/1.1 426", "does a proxy on the way"},
	{"an old protocol",
         ASK_HEAD("GET /echo HTTP/1.0", "Connection: Upgrade\r\nUpgrade: test-echo\r\n"),
         "HTTP/1.1 426", "does a proxy on the way"},
	{"no GET",
         ASK_HEAD("HEAD /echo HTTP/1.1",
                  "Connection: keep-alive, Upgrade\r\nUpgrade: test-echo\r\n"),
         "HTTP/1.1 426", ""},
};

static void who_does_not_ask_for_it(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct httpd *h = serve(NULL, NULL);

	for (size_t i = 0; i < COUNT(refused); i++) {
		ask(h, refused[i].request, &out);
		assert_row(str_starts(buf_view(&out), refused[i].status), refused[i].name);
		assert_row(strstr(buf_cstr(&out), "\r\nUpgrade: test-echo\r\n") != NULL,
		           refused[i].name);
		assert_row(strstr(buf_cstr(&out), refused[i].words) != NULL ||
		                   strstr(buf_cstr(&out), "\\\"Upgrade: test-echo\\\"") != NULL,
		           refused[i].name);
	}
	assert_int_equal(atomic_load(&owner.taken), 0);
	httpd_stop(h);
}

static void what_is_no_such_server_is_told(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct httpd *h = serve(NULL, NULL);
	AUTO_FREE char *page = xasprintf("http://127.0.0.1:%u/plain", httpd_port(h));
	AUTO_FREE char *none = xasprintf("http://127.0.0.1:%u/none", httpd_port(h));
	struct upgrade *u = NULL;
	struct err err = {0};

	{
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct http_call call = {.url = page};

		assert_err(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err, ERR_INVALID,
		           "the answer is 200 and not 101");
		assert_null(u);
	}
	{
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct http_call call = {.url = none};

		assert_ok(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err);
		assert_null(u);
		assert_err(http_expect(&call, &reply, &err), &err, ERR_NOT_FOUND, "/none");
	}
	{
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		atomic_bool stop = true;
		struct http_call call = {.url = page, .cancel = &stop};

		assert_err(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err, ERR_CANCELED,
		           "");
	}
	httpd_stop(h);
	{
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct http_call call = {.url = page};

		assert_err(upgrade_open(c, &call, PROTOCOL, &u, &reply, &err), &err,
		           ERR_HOST_UNREACHABLE, "refused");
	}
}

static bool waits(const struct upgrade *u, short events, int ms)
{
	struct pollfd p = {.fd = upgrade_fd(u), .events = events};

	return poll(&p, 1, ms) == 0;
}

/* Who speaks another protocol may take nothing for as long as it likes: a terminal is held. */
static void one_that_stands_still(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	AUTO_FREE char *piece = xcalloc(1, BYTES);
	struct httpd *h = serve(NULL, NULL);
	struct upgrade *u = open_echo(c, h, "http");
	int64_t now = clock_mono_ms();
	struct err err = {0};
	size_t sent = 0, got = 0, n = 0;

	while (!waits(u, POLLOUT, 200)) { /* until both ways are full */
		assert_true(upgrade_write(u, str_n(piece, BYTES), &n, &err) >= 0);
		sent += n;
		n = 0;
	}
	for (int i = 0; i < 5; i++) {
		now += 60 * 1000;
		clock_fake(now, now);
		conns_tend(h, now);
	}
	clock_fake(-1, -1);
	for (; got < sent; got += n, n = 0) {
		assert_false(waits(u, POLLIN, WAIT_MS));
		assert_true(upgrade_read(u, piece, BYTES, &n, &err) >= 0);
	}
	upgrade_close(u);
	(void)pthread_join(owner.thread, NULL);
	httpd_stop(h);
}

static void the_listener_ends(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct httpd *h = serve(NULL, NULL);
	struct upgrade *u = open_echo(c, h, "http");
	struct err err = {0};
	char byte;
	size_t n;
	int r;

	httpd_drain(h, WAIT_MS);
	(void)pthread_join(owner.thread, NULL);
	assert_int_equal(atomic_load(&owner.closed), 1);
	do {
		struct pollfd p = {.fd = upgrade_fd(u), .events = POLLIN};

		(void)poll(&p, 1, WAIT_MS);
		r = upgrade_read(u, &byte, 1, &n, &err);
	} while (r == 0);
	assert_err(r, &err, ERR_UNAVAILABLE, "closed");
	upgrade_close(u);
	httpd_stop(h);
}

static void an_owner_may_close_it_at_once(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct httpd *h = serve(NULL, NULL);

	owner.closes_at_once = true;
	for (int i = 0; i < 20; i++)
		upgrade_close(open_echo(c, h, "http"));
	httpd_stop(h);
	assert_int_equal(atomic_load(&owner.closed), 20);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(bytes_go_both_ways),
	cmocka_unit_test(over_tls),
	cmocka_unit_test(who_does_not_ask_for_it),
	cmocka_unit_test(what_is_no_such_server_is_told),
	cmocka_unit_test(one_that_stands_still),
	cmocka_unit_test(the_listener_ends),
	cmocka_unit_test(an_owner_may_close_it_at_once),
};

UNIT_MAIN(tests)
