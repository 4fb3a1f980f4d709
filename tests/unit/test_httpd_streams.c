/*
 * test_httpd_streams.c - replies whose bytes come from elsewhere: all of them or a short end, a
 * bound on what is read ahead, no thread for a client that takes nothing.
 */
#include "httpd_fixture.h"

#define MIB ((uint64_t)1 << 20)
#define SIZE (30 * MIB + 7)
#define KERNEL (24 * MIB) /* what the buffers of two sockets may hold, and more */

/* Sends it, and reads to the end of the head. */
static int ask(const struct world *w, const char *what, struct buf *head)
{
	int fd = dial(w), small = 16384;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	send_text(fd, what);
	while (head->n < 4 || strstr(buf_cstr(head), "\r\n\r\n") == NULL) {
		char c;

		assert_int_equal(recv(fd, &c, 1, 0), 1);
		buf_putc(head, c);
	}
	return fd;
}

/* Takes up to `most` bytes and compares them with those at `at`; how many there were. */
static uint64_t take(struct world *w, int fd, uint64_t at, uint64_t most)
{
	AUTO_FREE uint8_t *got = xmalloc(65536), *want = xmalloc(65536);
	uint64_t n = 0;

	while (n < most) {
		ssize_t r = recv(fd, got, (size_t)MIN(most - n, (uint64_t)65536), 0);

		if (r <= 0)
			break;
		pattern(at + n, want, (size_t)r);
		assert_memory_equal(got, want, (size_t)r);
		n += (uint64_t)r;
		atomic_store(&w->client_got, at + n);
	}
	return n;
}

static void start_world(struct world *w, unsigned workers)
{
	struct httpd_options o = {.workers = workers, .connections_max = 200};

	w->source_ends = UINT64_MAX;
	start(w, &o);
}

static void streams_are_whole(void **state UNUSED)
{
	static const struct {
		const char *head;
		uint64_t first, count;
		const char *want;
	} rows[] = {
		{"", 0, SIZE, "HTTP/1.1 200"},
		{"Range: bytes=5-24000000\r\n", 5, 24000000 - 4,
	         "Content-Range: bytes 5-24000000/"},
		{"Range: bytes=31457285-\r\n", SIZE - 2, 2, "HTTP/1.1 206"},
		{"Range: bytes=31457287-\r\n", 0, 0, "HTTP/1.1 416"},
		{"If-None-Match: \"v1\"\r\n", 0, 0, "HTTP/1.1 304"},
	};
	struct world w = {0};

	start_world(&w, 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_FREE char *what =
			xasprintf("GET /stream?size=%" PRIu64 HOST "%s" END, SIZE, rows[i].head);
		AUTO_BUF struct buf head = BUF_INIT(65536);
		AUTO_FD int fd = ask(&w, what, &head);

		assert_non_null(strstr(buf_cstr(&head), rows[i].want));
		if (rows[i].count > 0)
			assert_int_equal(take(&w, fd, rows[i].first, UINT64_MAX), rows[i].count);
	}
	{
		AUTO_FREE char *what = xasprintf("HEAD /stream?size=%" PRIu64 HOST END, SIZE);
		AUTO_BUF struct buf head = BUF_INIT(65536);
		uint64_t before = atomic_load(&w.source_read);
		AUTO_FD int fd = ask(&w, what, &head);

		assert_non_null(strstr(buf_cstr(&head), "Content-Length: 31457287\r\n"));
		assert_int_equal(take(&w, fd, 0, UINT64_MAX), 0);
		assert_int_equal(atomic_load(&w.source_read), before);
	}
	wait_for(&w.sources_done, COUNT(rows) + 1);
	stop(&w);
}

/* A client that is slow, and more clients that take nothing than there are threads. */
static void streams_read_ahead_by_little(void **state UNUSED)
{
	enum { IDLE = 20 };
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct world w = {0};
	struct err err = {0};
	int idle[IDLE];
	uint64_t at = 0;

	start_world(&w, 1);
	for (size_t i = 0; i < COUNT(idle); i++) {
		AUTO_BUF struct buf head = BUF_INIT(65536);

		idle[i] = ask(&w, "GET /stream?size=200000000" HOST END, &head);
		assert_non_null(strstr(buf_cstr(&head), "HTTP/1.1 200"));
	}
	assert_ok(get(&w, "/", &r, &err), &err); /* the one worker is free */
	assert_int_equal(r.status, 200);
	{
		AUTO_BUF struct buf head = BUF_INIT(65536);
		AUTO_FD int fd = ask(&w, "GET /stream?size=100000000" HOST END, &head);

		while (at < 100000000) {
			uint64_t n = take(&w, fd, at, 3 * MIB);

			assert_true(n > 0);
			at += n;
		}
		assert_int_equal(at, 100000000);
	}
	assert_true(atomic_load(&w.lead) <= 2 * STREAM_PIECE + KERNEL);
	assert_true(atomic_load(&w.source_read) <= 100000000 + IDLE * (2 * STREAM_PIECE + KERNEL));
	for (size_t i = 0; i < COUNT(idle); i++)
		(void)close(idle[i]);
	wait_for(&w.sources_done, IDLE + 1);
	stop(&w);
}

/* Its first bytes: an error. Later ones: the connection ends early, and nothing is made up. */
static void streams_end_short(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	AUTO_BUF struct buf head = BUF_INIT(65536);
	struct world w = {0};
	struct err err = {0};
	uint64_t n;
	int fd;

	start_world(&w, 0);
	w.source_ends = 10;
	assert_ok(get(&w, "/stream?size=1000", &r, &err), &err);
	assert_int_equal(r.status, 500);
	w.source_ends = 9 * MIB + 1; /* the third piece is not whole */
	fd = ask(&w, "GET /stream?size=31457287" HOST END, &head);
	assert_non_null(strstr(buf_cstr(&head), "Content-Length: 31457287\r\n"));
	n = take(&w, fd, 0, UINT64_MAX);
	assert_int_equal(n, 9 * MIB);
	(void)close(fd);
	wait_for(&w.sources_done, 2);
	stop(&w);
}

/* The source sends nothing: it is left when the client goes, or the server. */
static void streams_leave_a_source_that_hangs(void **state UNUSED)
{
	AUTO_BUF struct buf head = BUF_INIT(65536);
	struct world w = {.source_hangs = true};
	int fd;

	start_world(&w, 0);
	w.source_ends = 5 * MIB;
	fd = ask(&w, "GET /stream?size=31457287" HOST END, &head);
	wait_for(&w.sources_hang, 1); /* it reads ahead while the client takes nothing */
	assert_int_equal(atomic_load(&w.sources_done), 0);
	(void)shutdown(fd, SHUT_RDWR);
	(void)close(fd);
	wait_for(&w.sources_done, 1);
	buf_clear(&head);
	fd = ask(&w, "GET /stream?size=31457287" HOST END, &head);
	assert_int_equal(take(&w, fd, 0, 5 * MIB), 5 * MIB); /* all that there is: now it waits */
	wait_for(&w.sources_hang, 2);
	stop(&w);
	assert_int_equal(atomic_load(&w.sources_done), 2);
	(void)close(fd);
}

/* Each has memory of its own, so there is a limit. */
static void streams_are_counted(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct err err = {0};
	struct world w = {0};
	int fd[STREAMS_MAX + 1];
	unsigned refused = 0;

	start_world(&w, 0);
	w.source_ends = MIB; /* the rest would only take memory */
	w.source_hangs = true;
	for (size_t i = 0; i < COUNT(fd); i++) {
		AUTO_BUF struct buf head = BUF_INIT(65536);

		fd[i] = ask(&w, "GET /stream?size=31457287" HOST END, &head);
		refused += strstr(buf_cstr(&head), "HTTP/1.1 503") != NULL;
		assert_true((refused == 1) == (i == STREAMS_MAX));
		if (refused == 1)
			assert_non_null(strstr(buf_cstr(&head), "Retry-After: 1\r\n"));
	}
	assert_ok(fetch(&w, HTTP_HEAD, "/stream?size=31457287", (struct str){0}, &r, &err), &err);
	assert_int_equal(r.status, 200); /* nothing is sent, so no place is needed */
	assert_int_equal(r.length, 31457287);
	for (size_t i = 0; i < COUNT(fd); i++)
		(void)close(fd[i]);
	wait_for(&w.sources_done, COUNT(fd) + 1);
	stop(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(streams_are_whole),   cmocka_unit_test(streams_read_ahead_by_little),
	cmocka_unit_test(streams_end_short),   cmocka_unit_test(streams_leave_a_source_that_hangs),
	cmocka_unit_test(streams_are_counted),
};
UNIT_MAIN(tests)
