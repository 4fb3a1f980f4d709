/* test_client.c - the client against a server that misbehaves by script. */
#include "base/clock.h"
#include "io/httpd.h"
#include "unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/un.h>

/* A server that says what it was told to whoever comes, and keeps what it heard. */
struct script {
	const char *say; /* NULL: accept and say nothing */
	size_t zeros;    /* bytes of '0' after it */
	bool hold;       /* keep the connection until the other side ends it */
	int fd;
	uint16_t port;
	pthread_t thread;
	atomic_uint calls;
	char heard[4096];
};

static void hear(struct script *s, int fd)
{
	size_t n = 0;

	while (n < sizeof(s->heard) - 1 && strstr(s->heard, "\r\n\r\n") == NULL) {
		ssize_t got = recv(fd, s->heard + n, sizeof(s->heard) - 1 - n, 0);

		if (got <= 0)
			return;
		n += (size_t)got;
		s->heard[n] = '\0';
	}
}

static void answer(struct script *s, int fd)
{
	char zeros[4096];

	memset(zeros, '0', sizeof(zeros));
	if (s->say != NULL)
		(void)send(fd, s->say, strlen(s->say), MSG_NOSIGNAL);
	for (size_t left = s->zeros; left > 0;) {
		ssize_t n = send(fd, zeros, MIN(left, sizeof(zeros)), MSG_NOSIGNAL);

		if (n <= 0)
			return;
		left -= (size_t)n;
	}
	while (s->hold && recv(fd, zeros, sizeof(zeros), 0) > 0)
		continue;
}

static void *run_script(void *arg)
{
	struct script *s = arg;

	for (;;) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return NULL;
		memset(s->heard, 0, sizeof(s->heard));
		hear(s, fd);
		atomic_fetch_add(&s->calls, 1);
		answer(s, fd);
		(void)shutdown(fd, SHUT_WR);
		(void)close(fd);
	}
}

static void script_listen(struct script *s, const struct sockaddr *at, socklen_t n)
{
	s->fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(s->fd >= 0);
	assert_int_equal(bind(s->fd, at, n), 0);
	assert_int_equal(listen(s->fd, 64), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, run_script, s), 0);
}

static void script_start(struct script *s, const char *host)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t n = sizeof(at);

	(void)inet_pton(AF_INET, host, &at.sin_addr);
	script_listen(s, (struct sockaddr *)&at, n);
	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &n), 0);
	s->port = ntohs(at.sin_port);
}

static void script_stop(struct script *s)
{
	(void)shutdown(s->fd, SHUT_RDWR);
	(void)pthread_join(s->thread, NULL);
	(void)close(s->fd);
}

static char *script_url(const struct script *s, const char *path)
{
	return xasprintf("http://127.0.0.1:%u%s", s->port, path);
}

/* Replies that break off, stall, grow or lie */

static int refuse_piece(void *arg UNUSED, const void *p UNUSED, size_t n UNUSED, struct err *err)
{
	return err_set(err, ERR_NO_SPACE, "the disk is full");
}

static int refuse_head(void *arg, const struct http_reply *r, struct err *err)
{
	*(int *)arg = r->status;
	return err_set(err, ERR_CORRUPT, "length %" PRId64, r->length);
}

#define OK "HTTP/1.1 200 OK\r\n"

static void client_failures(void **state UNUSED)
{
	/* clang-format off */
	static const struct {
		const char *name, *say;
		size_t zeros;
		bool hold;
		struct http_call call;
		enum err_code code;
		const char *words;
	} cases[] = {
		{"cut short", OK "Content-Length: 100\r\n\r\n", 10, false, {0},
		 ERR_UNAVAILABLE, "10 of 100 bytes"},
		{"cut in a chunk", OK "Transfer-Encoding: chunked\r\n\r\n64\r\nabc", 0, false, {0},
		 ERR_UNAVAILABLE, "GET"},
		{"cut between chunks", OK "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 0, false, {0},
		 ERR_UNAVAILABLE, "GET"},
		{"cut in the head", OK "Content-Le", 0, false, {0}, ERR_UNAVAILABLE, "GET"},
		{"nothing said", NULL, 0, false, {0}, ERR_UNAVAILABLE, "GET"},
		{"not HTTP", "SSH-2.0-x\r\n", 0, false, {0}, ERR_UNAVAILABLE, "GET"},
		{"stalls before the head", NULL, 0, true, {.stall_ms = 1000}, ERR_TIMEOUT, "GET"},
		{"stalls in the body", OK "Content-Length: 100\r\n\r\n", 10, true, {.stall_ms = 1000},
		 ERR_TIMEOUT, "GET"},
		{"too slow in all", OK "Content-Length: 100\r\n\r\n", 10, true, {.total_ms = 300},
		 ERR_TIMEOUT, "GET"},
		{"too large to keep", OK "\r\n", 200000, false, {.body_max = 100000}, ERR_TOO_BIG, "reply"},
		{"the sink says no", OK "\r\n", 10, false, {.sink = refuse_piece}, ERR_NO_SPACE,
		 "the disk is full"},
		{"the head says no", OK "Content-Length: 7\r\n\r\n", 7, false, {.head = refuse_head},
		 ERR_CORRUPT, "length 7"},
		{"the head says no, no body", OK "Content-Length: 0\r\n\r\n", 0, false,
		 {.head = refuse_head}, ERR_CORRUPT, "length 0"},
		{"redirected to a file", "HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n", 0, false,
		 {.redirects_max = 5}, ERR_INVALID, "redirected"},
		{"redirected to itself", "HTTP/1.1 302 F\r\nLocation: ?again\r\n\r\n", 0, false,
		 {.redirects_max = 3}, ERR_INVALID, "more than 3"},
	};
	/* clang-format on */
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct script s = {
			.say = cases[i].say, .zeros = cases[i].zeros, .hold = cases[i].hold};
		AUTO_FREE char *url = NULL;
		struct http_call call = cases[i].call;
		struct http_reply r = {.status = 77};
		struct err err = {0};
		int status = 0;

		script_start(&s, "127.0.0.1");
		url = script_url(&s, "/x?signature=secret");
		call.url = url;
		call.arg = &status;
		if (http_do(c, &call, &r, &err) == 0)
			fail_msg("row \"%s\" succeeded", cases[i].name);
		if (err.code != cases[i].code || strstr(err.msg, cases[i].words) == NULL)
			fail_msg("row \"%s\": %d %s", cases[i].name, (int)err.code, err.msg);
		assert_row(r.status == 77, cases[i].name); /* untouched */
		assert_row(strstr(err.msg, "secret") == NULL, cases[i].name);
		assert_row(cases[i].call.head == NULL || status == 200, cases[i].name);
		script_stop(&s);
	}
}

static void client_bad_calls(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct http_header split = {"X-A", "b\r\nX-Injected: c"}, split2 = {"X-A: b\r\nC", "d"};
	struct http_call call = {.url = "ftp://example.org/"};
	struct http_reply r;
	struct err err = {0};

	assert_err(http_do(c, &call, &r, &err), &err, ERR_INVALID, "http://");
	call.url = "http://user:password@127.0.0.1:1/x";
	assert_err(http_do(c, &call, &r, &err), &err, ERR_UNAVAILABLE, "GET http://127.0.0.1:1/x");
	call.headers = &split;
	call.n_headers = 1;
	assert_err(http_do(c, &call, &r, &err), &err, ERR_INVALID, "line break");
	call.headers = &split2;
	assert_err(http_do(c, &call, &r, &err), &err, ERR_INVALID, "line break");
}

static void *cancel_soon(void *arg)
{
	clock_sleep_ms(100);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void client_cancel(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct script s = {.say = OK "Content-Length: 100\r\n\r\n", .hold = true};
	AUTO_FREE char *url = NULL;
	struct http_call call = {0};
	atomic_bool cancel = false;
	struct http_reply r;
	struct err err = {0};
	pthread_t t;

	script_start(&s, "127.0.0.1");
	url = script_url(&s, "/");
	call.url = url;
	call.cancel = &cancel;
	assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
	assert_err(http_do(c, &call, &r, &err), &err, ERR_CANCELED, "canceled");
	(void)pthread_join(t, NULL);
	assert_err(http_do(c, &call, &r, &err), &err, ERR_CANCELED,
	           "canceled"); /* from the start */
	assert_int_equal(s.calls, 1);
	script_stop(&s);
}

static void client_error_bodies(void **state UNUSED)
{
	static const struct {
		const char *say;
		size_t zeros;
		enum err_code code;
		int retry_after_s;
		const char *words;
	} cases[] = {
		{"HTTP/1.1 404 N\r\n\r\n{\"message\":\"no such job\"}", 0, ERR_NOT_FOUND, 0,
	         "404 no such job"},
		{"HTTP/1.1 400 N\r\n\r\n{\"error\":\"bad name\"}", 0, ERR_INVALID, 0,
	         "400 bad name"},
		{"HTTP/1.1 401 N\r\n\r\n{\"error\":{\"message\":\"who?\"}}", 0, ERR_AUTH, 0,
	         "who?"},
		{"HTTP/1.1 403 N\r\n\r\n<?xml?><Error><Code>AccessDenied</Code>"
	         "<Message>go away</Message></Error>",
	         0, ERR_DENIED, 0, "AccessDenied: go away"},
		{"HTTP/1.1 403 N\r\n\r\n<Error><Code>AuthorizationFailure</Code>"
	         "<Message>go away\nRequestId:1\nTime:2</Message></Error>",
	         0, ERR_DENIED, 0, "AuthorizationFailure: go away RequestId:1 Time:2"},
		{"HTTP/1.1 404 N\r\nX-Error-Message: Repository not found\r\n\r\n", 0,
	         ERR_NOT_FOUND, 0, "Repository not found"},
		{"HTTP/1.1 429 N\r\nRetry-After: 17\r\n\r\nslow down", 0, ERR_BUSY, 17,
	         "slow down"},
		{"HTTP/1.1 429 N\r\nRateLimit: \"api\";r=0;t=55\r\n\r\n", 0, ERR_BUSY, 55, "429"},
		{"HTTP/1.1 503 N\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n", 0,
	         ERR_UNAVAILABLE, 0, "503"},
		{"HTTP/1.1 500 N\r\n\r\n{\"broken", 0, ERR_UNAVAILABLE, 0, "500"},
		{"HTTP/1.1 503 N\r\n\r\n", 3000000, ERR_UNAVAILABLE, 0, "503"},
	};
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct script s = {.say = cases[i].say, .zeros = cases[i].zeros};
		AUTO_HTTP_REPLY struct http_reply r = {0};
		AUTO_FREE char *url = NULL;
		struct http_call call = {.sink = refuse_piece}; /* sees no error's body */
		struct err err = {0};

		script_start(&s, "127.0.0.1");
		url = script_url(&s, "/jobs/7?token=secret");
		call.url = url;
		assert_ok(http_do(c, &call, &r, &err), &err);
		assert_true(r.body.n <= 65536);
		assert_err(http_expect(&call, &r, &err), &err, cases[i].code, cases[i].words);
		assert_int_equal(http_expect(&call, &r, &err), -1);
		assert_int_equal(err.retry_after_s, cases[i].retry_after_s);
		assert_non_null(strstr(err.msg, "/jobs/7: "));
		assert_null(strstr(err.msg, "secret"));
		script_stop(&s);
	}
}

/* The guard */

static void client_guard(void **state UNUSED)
{
	static const struct {
		const char *name, *allow, *host;
		enum err_code code; /* ERR_NONE: let through */
	} cases[] = {
		{"nothing allowed", NULL, "127.0.0.1", ERR_DENIED},
		{"another one allowed", "127.0.0.2/32", "127.0.0.1", ERR_DENIED},
		{"by name", NULL, "localhost", ERR_DENIED},
		{"in disguise", NULL, "[::ffff:127.0.0.1]", ERR_DENIED},
		{"allowed", "127.0.0.1/32", "127.0.0.1", ERR_NONE},
		{"its network allowed", "127.0.0.0/8", "127.0.0.1", ERR_NONE},
	};
	struct script s = {.say = OK "Content-Length: 0\r\n\r\n"};
	unsigned through = 0;

	script_start(&s, "127.0.0.1");
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};
		AUTO_HTTP_CLIENT struct http_client *c = NULL;
		AUTO_FREE char *url = xasprintf("http://%s:%u/", cases[i].host, s.port);
		struct http_call call = {.url = url};
		struct http_policy p = {.guard = true};
		struct url_net net;
		struct err err = {0};

		if (cases[i].allow != NULL) {
			assert_ok(url_net_parse(str_of(cases[i].allow), &net, &err), &err);
			p.allow = &net;
			p.n_allow = 1;
		}
		c = http_client_new(&p);
		if (cases[i].code == ERR_NONE) {
			assert_ok(http_do(c, &call, &r, &err), &err);
			through++;
		} else {
			assert_err(http_do(c, &call, &r, &err), &err, cases[i].code, "internal");
		}
		assert_row(s.calls == through, cases[i].name);
	}
	script_stop(&s);
}

/* Refused before a packet leaves. */
static void client_that_stays_inside(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	AUTO_HTTP_CLIENT struct http_client *c = NULL;
	struct http_call call = {.url = "http://8.8.8.8:1/"};
	struct http_policy p = {.guard = true, .only_allowed = true, .n_allow = 1};
	struct url_net net;
	struct err err = {0};

	assert_ok(url_net_parse(STR_LIT("127.0.0.0/8"), &net, &err), &err);
	p.allow = &net;
	c = http_client_new(&p);
	assert_err(http_do(c, &call, &r, &err), &err, ERR_DENIED, "allowed explicitly");
}

/* A public server that redirects inwards gets nowhere. */
static void client_guard_behind_redirect(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = NULL;
	AUTO_FREE char *url = NULL, *say = NULL;
	struct script outside = {0}, inside = {.say = OK "Content-Length: 0\r\n\r\n"};
	struct http_call call = {.redirects_max = 5};
	struct http_reply r;
	struct url_net net;
	struct err err = {0};

	script_start(&inside, "127.0.0.2");
	say = xasprintf(
		"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: http://127.0.0.2:%u/\r\n\r\n",
		inside.port);
	outside.say = say;
	script_start(&outside, "127.0.0.1");
	assert_ok(url_net_parse(STR_LIT("127.0.0.1"), &net, &err), &err);
	c = http_client_new(&(struct http_policy){.guard = true, .allow = &net, .n_allow = 1});
	url = script_url(&outside, "/");
	call.url = url;
	assert_err(http_do(c, &call, &r, &err), &err, ERR_DENIED, "internal");
	assert_int_equal(outside.calls, 1);
	assert_int_equal(inside.calls, 0);
	script_stop(&outside);
	script_stop(&inside);
}

static void count_progress(void *arg, uint64_t sent UNUSED, uint64_t received UNUSED)
{
	++*(unsigned *)arg;
}

static void client_reply(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c =
		http_client_new(&(struct http_policy){.user_agent = "tester/1"});
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct script s = {.say = "HTTP/1.1 100 Continue\r\nX-Old: 1\r\n\r\n" OK
	                          "X-Two:  spaced \r\nContent-Length: 5\r\n\r\nhello"};
	AUTO_FREE char *url = NULL;
	struct http_call call = {0};
	struct err err = {0};
	unsigned calls = 0;

	script_start(&s, "127.0.0.1");
	url = script_url(&s, "/a%2fb//./c?x=%20");
	call.url = url;
	call.progress = count_progress;
	call.arg = &calls;
	assert_ok(http_do(c, &call, &r, &err), &err);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.length, 5);
	assert_int_equal(r.received, 5);
	assert_true(str_eq(buf_view(&r.body), "hello"));
	assert_true(str_eq(http_header_of(&r, "x-two"), "spaced"));
	assert_int_equal(http_header_of(&r, "x-old").n, 0);
	assert_ok(http_expect(&call, &r, &err), &err);
	script_stop(&s);
	/* what went out: the path as it stands, no compression, our name, no proxy form */
	assert_true(str_starts(str_of(s.heard), "GET /a%2fb//./c?x=%20 HTTP/1.1\r\n"));
	assert_non_null(strstr(s.heard, "Accept-Encoding: identity\r\n"));
	assert_non_null(strstr(s.heard, "User-Agent: tester/1\r\n"));
}

static void client_ignores_proxies(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct script s = {.say = OK "Content-Length: 0\r\n\r\n"};
	AUTO_FREE char *url = NULL;
	struct http_call call = {0};
	struct err err = {0};

	(void)setenv("http_proxy", "http://127.0.0.1:1", 1);
	(void)setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
	script_start(&s, "127.0.0.1");
	url = script_url(&s, "/");
	call.url = url;
	assert_ok(http_do(c, &call, &r, &err), &err);
	(void)unsetenv("http_proxy");
	(void)unsetenv("ALL_PROXY");
	script_stop(&s);
}

static void client_unix_socket(void **state UNUSED)
{
	char dir[] = "/tmp/stoker-client-XXXXXX";
	AUTO_HTTP_CLIENT struct http_client *c = NULL;
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct script s = {.say = OK "Content-Length: 2\r\n\r\nok"};
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct err err = {0};

	assert_non_null(mkdtemp(dir));
	FMT(at.sun_path, "%s/s", dir);
	script_listen(&s, (struct sockaddr *)&at, sizeof(at));
	/* the guard is about networks: who names a socket means it */
	c = http_client_new(&(struct http_policy){.unix_socket = at.sun_path, .guard = true});
	assert_ok(http_do(c, &(struct http_call){.url = "http://whatever/x"}, &r, &err), &err);
	assert_true(str_eq(buf_view(&r.body), "ok"));
	script_stop(&s);
	(void)unlink(at.sun_path);
	(void)rmdir(dir);
}

static void client_retry(void **state UNUSED)
{
	struct retry r = {.left = 3, .wait_ms = 1};
	atomic_bool cancel = true;
	struct retry canceled = {.left = 3, .wait_ms = 1000000, .cancel = &cancel};
	struct err err = {0};
	int tries = 0;

	(void)err_set(&err, ERR_NOT_FOUND, "gone");
	assert_false(retry_again(&r, &err)); /* would be gone again */
	assert_int_equal(err.code, ERR_NOT_FOUND);
	err_clear(&err);
	(void)err_set(&err, ERR_UNAVAILABLE, "down");
	err.retry_after_s = 100;
	assert_false(retry_again(&canceled, &err));
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	err_clear(&err);
	do {
		tries++;
		(void)err_set(&err, ERR_TIMEOUT, "late");
	} while (retry_again(&r, &err));
	assert_int_equal(tries, 3);
	assert_int_equal(err.code, ERR_TIMEOUT);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(client_failures),
	cmocka_unit_test(client_bad_calls),
	cmocka_unit_test(client_cancel),
	cmocka_unit_test(client_error_bodies),
	cmocka_unit_test(client_guard),
	cmocka_unit_test(client_that_stays_inside),
	cmocka_unit_test(client_guard_behind_redirect),
	cmocka_unit_test(client_reply),
	cmocka_unit_test(client_ignores_proxies),
	cmocka_unit_test(client_unix_socket),
	cmocka_unit_test(client_retry),
};
UNIT_MAIN(tests)
