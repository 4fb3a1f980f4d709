/*
 * test_client_wire.c - long bodies over a plain connection, which the kernel moves past libcurl:
 * every byte arrives once and in order, what breaks off says so, and what cannot be moved comes the
 * usual way.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "io/client_impl.h"
#include "unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#define BODY ((uint64_t)3 * WIRE_MIN + 12345)

/* A server with one answer: a head, and `bytes` of a body that is all pattern. */
struct origin {
	const char *head;
	uint64_t bytes;
	bool hold; /* the connection, until the other side ends it */
	int fd;
	uint16_t port;
	pthread_t thread;
	atomic_uint calls;
};

static uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 31 + at / 251);
}

static void send_all(int fd, const void *p, size_t n)
{
	const char *from = p;

	while (n > 0) {
		ssize_t k = send(fd, from, n, MSG_NOSIGNAL);

		if (k <= 0)
			return;
		from += k;
		n -= (size_t)k;
	}
}

static void answer(struct origin *o, int fd)
{
	char heard[4096 + 1];
	size_t n = 0;
	uint8_t piece[7919];

	do {
		ssize_t k = recv(fd, heard + n, sizeof(heard) - 1 - n, 0);

		if (k <= 0)
			return;
		n += (size_t)k;
		heard[n] = '\0';
	} while (strstr(heard, "\r\n\r\n") == NULL);
	send_all(fd, o->head, strlen(o->head));
	for (uint64_t at = 0; at < o->bytes;) {
		size_t k = (size_t)MIN(o->bytes - at, (uint64_t)sizeof(piece));

		for (size_t i = 0; i < k; i++)
			piece[i] = pattern(at + i);
		send_all(fd, piece, k);
		at += k;
	}
	while (o->hold && recv(fd, heard, sizeof(heard), 0) > 0)
		continue;
}

static void *serve(void *arg)
{
	struct origin *o = arg;
	int fd;

	while ((fd = accept4(o->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		atomic_fetch_add(&o->calls, 1);
		answer(o, fd);
		(void)shutdown(fd, SHUT_WR);
		(void)close(fd);
	}
	return NULL;
}

static void origin_start(struct origin *o)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(at);

	o->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(o->fd, (struct sockaddr *)&at, n), 0);
	assert_int_equal(listen(o->fd, 8), 0);
	assert_int_equal(getsockname(o->fd, (struct sockaddr *)&at, &n), 0);
	o->port = ntohs(at.sin_port);
	assert_int_equal(pthread_create(&o->thread, NULL, serve, o), 0);
}

static void origin_stop(struct origin *o)
{
	(void)shutdown(o->fd, SHUT_RDWR);
	(void)pthread_join(o->thread, NULL);
	(void)close(o->fd);
}

/* Compares as it arrives; counts what came which way. */
struct taken {
	uint64_t at, piped;
	uint64_t refuse_from; /* 0 = never: this many bytes and the pipe is refused */
	atomic_bool *cancel;  /* set when the first bytes have come through the pipe */
};

static int take(void *arg, const void *p, size_t n, struct err *err)
{
	struct taken *t = arg;
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		if (b[i] != pattern(t->at + i))
			return err_set(err, ERR_CORRUPT, "byte %" PRIu64, t->at + i);
	t->at += n;
	return 0;
}

static int take_pipe(void *arg, int from, size_t n, struct err *err)
{
	struct taken *t = arg;
	uint8_t b[4096];

	if (t->refuse_from > 0 && t->at >= t->refuse_from)
		return err_set(err, ERR_NO_SPACE, "the disk is full");
	if (t->cancel != NULL)
		atomic_store(t->cancel, true);
	t->piped += n;
	while (n > 0) {
		ssize_t k = read(from, b, MIN(n, sizeof(b)));

		if (k <= 0)
			return err_set(err, ERR_IO, "the pipe holds less than was said");
		if (take(arg, b, (size_t)k, err) < 0)
			return -1;
		n -= (size_t)k;
	}
	return 0;
}

static int fetch(struct origin *o, struct http_call *call, struct taken *t, struct http_reply *r,
                 struct err *err)
{
	struct http_client *c = http_client_new(&(struct http_policy){0});
	AUTO_FREE char *url = NULL;
	int rc;

	origin_start(o);
	url = xasprintf("http://127.0.0.1:%u/x?signature=secret", o->port);
	call->url = url;
	call->sink = take;
	call->drain = take_pipe;
	call->arg = t;
	rc = http_do(c, call, r, err);
	call->url = NULL;
	http_client_free(c); /* hangs up, which a held connection waits for */
	origin_stop(o);
	return rc;
}

#define LENGTH_OF_BODY "HTTP/1.1 200 OK\r\nContent-Length: 3158073\r\n\r\n"

static void wire_whole_bodies(void **state UNUSED)
{
	static const struct {
		const char *name, *head;
		uint64_t bytes;
		bool piped;
	} rows[] = {
		{"long", LENGTH_OF_BODY, BODY, true},
		{"a range", "HTTP/1.1 206 P\r\nContent-Length: 3158073\r\n\r\n", BODY, true},
		{"short", "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", 70000, false},
		{"of no known length", "HTTP/1.1 200 OK\r\n\r\n", BODY, false},
		{"after an interim reply", "HTTP/1.1 100 Continue\r\n\r\n" LENGTH_OF_BODY, BODY,
	         true},
	};

	assert_int_equal(BODY, 3158073);
	for (size_t i = 0; i < COUNT(rows); i++) {
		/* held: whoever waits for a byte too many waits for ever */
		struct origin o = {.head = rows[i].head,
		                   .bytes = rows[i].bytes,
		                   .hold = strstr(rows[i].head, "Length") != NULL};
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_call call = {0};
		struct taken t = {0};
		struct err err = {0};

		if (fetch(&o, &call, &t, &r, &err) < 0)
			fail_msg("row \"%s\": %s", rows[i].name, err.msg);
		assert_row(t.at == rows[i].bytes && r.received == t.at, rows[i].name);
		assert_row((t.piped > 0) == rows[i].piped, rows[i].name);
		assert_row(o.calls == 1, rows[i].name);
	}
}

static void wire_failures(void **state UNUSED)
{
	static const struct {
		const char *name, *head;
		uint64_t bytes;
		bool hold;
		uint64_t refuse_from;
		struct http_call call;
		enum err_code code;
		const char *words;
	} rows[] = {
		{"cut short",
	         LENGTH_OF_BODY,
	         BODY - 1,
	         false,
	         0,
	         {0},
	         ERR_UNAVAILABLE,
	         "3158072 of 3158073 bytes"},
		{"stalls",
	         LENGTH_OF_BODY,
	         BODY - 1,
	         true,
	         0,
	         {.stall_ms = 1000},
	         ERR_TIMEOUT,
	         "bytes a second"},
		{"too slow in all",
	         LENGTH_OF_BODY,
	         BODY - 1,
	         true,
	         0,
	         {.total_ms = 2000},
	         ERR_TIMEOUT,
	         "2000 ms"},
		{"the pipe is refused",
	         LENGTH_OF_BODY,
	         BODY,
	         true,
	         WIRE_MIN,
	         {0},
	         ERR_NO_SPACE,
	         "the disk is full"},
		{"an error's body is not taken",
	         "HTTP/1.1 503 Busy\r\nContent-Length: 3158073\r\n\r\n",
	         BODY,
	         false,
	         0,
	         {0},
	         ERR_NONE,
	         ""},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct origin o = {
			.head = rows[i].head, .bytes = rows[i].bytes, .hold = rows[i].hold};
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_call call = rows[i].call;
		struct taken t = {.refuse_from = rows[i].refuse_from};
		struct err err = {0};
		int rc = fetch(&o, &call, &t, &r, &err);

		assert_row((rc == 0) == (rows[i].code == ERR_NONE), rows[i].name);
		if (err.code != rows[i].code || strstr(err.msg, rows[i].words) == NULL)
			fail_msg("row \"%s\": %d %s", rows[i].name, (int)err.code, err.msg);
		assert_row(strstr(err.msg, "secret") == NULL, rows[i].name);
		assert_row(rc < 0 || t.at == 0, rows[i].name);
	}
}

static void wire_cancel(void **state UNUSED)
{
	struct origin o = {.head = LENGTH_OF_BODY, .bytes = BODY - 1, .hold = true};
	atomic_bool cancel = false;
	struct http_call call = {.cancel = &cancel};
	struct taken t = {.cancel = &cancel};
	struct http_reply r = {0};
	struct err err = {0};

	assert_err(fetch(&o, &call, &t, &r, &err), &err, ERR_CANCELED, "canceled");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(wire_whole_bodies),
	cmocka_unit_test(wire_failures),
	cmocka_unit_test(wire_cancel),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
