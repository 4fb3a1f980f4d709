/*
 * test_httpd_bodies.c - bodies up and down: streamed, in ranges, refused; and senders that are
 * slow, silent or cut.
 */
#include "httpd_fixture.h"

static int give_pattern(void *arg, void *p, size_t cap, size_t *n, struct err *err UNUSED)
{
	uint64_t *at = arg;

	*n = (size_t)MIN((uint64_t)cap, BIG - *at);
	pattern(*at, p, *n);
	*at += *n;
	return 0;
}

/* What the product does all day: a large body up, sized or chunked. */
static void httpd_streams_up(void **state UNUSED)
{
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	for (int chunked = 0; chunked < 2; chunked++) {
		AUTO_FREE char *url = url_of(&w, "/count");
		AUTO_HTTP_REPLY struct http_reply r = {0};
		uint64_t at = 0;
		struct http_call call = {.method = HTTP_PUT,
		                         .url = url,
		                         .read = give_pattern,
		                         .arg = &at,
		                         .body_len = chunked ? UINT64_MAX : BIG};

		assert_ok(http_do(w.c, &call, &r, &err), &err);
		assert_true(str_eq(buf_view(&r.body), "52428800"));
	}
	stop(&w);
}

struct check {
	uint64_t at;
	bool bad;
};

static int check_pattern(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	struct check *c = arg;
	AUTO_FREE uint8_t *want = xmalloc(n);

	pattern(c->at, want, n);
	c->bad = c->bad || memcmp(p, want, n) != 0;
	c->at += n;
	return 0;
}

static void httpd_streams_down(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	AUTO_FREE char *url = NULL;
	struct http_call call = {.sink = check_pattern};
	struct check c = {0};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	url = url_of(&w, "/file?size=52428800");
	call.url = url;
	call.arg = &c;
	assert_ok(http_do(w.c, &call, &r, &err), &err);
	assert_int_equal(r.status, 200);
	assert_int_equal(c.at, BIG);
	assert_false(c.bad);
	stop(&w);
}

static void httpd_ranges(void **state UNUSED)
{
	static const struct {
		const char *name, *header, *value, *content_range;
		int status;
		uint64_t first, count;
	} cases[] = {
		{"whole", "X-None", "", "", 200, 0, 1000},
		{"first", "Range", "bytes=0-9", "bytes 0-9/1000", 206, 0, 10},
		{"middle", "Range", "bytes=500-599", "bytes 500-599/1000", 206, 500, 100},
		{"open", "Range", "bytes=990-", "bytes 990-999/1000", 206, 990, 10},
		{"last", "Range", "bytes=-7", "bytes 993-999/1000", 206, 993, 7},
		{"over", "Range", "bytes=990-5000", "bytes 990-999/1000", 206, 990, 10},
		{"behind", "Range", "bytes=1000-", "bytes */1000", 416, 0, 0},
		{"several", "Range", "bytes=0-1,5-6", "", 200, 0, 1000},
		{"other unit", "Range", "lines=0-1", "", 200, 0, 1000},
		{"same version", "If-None-Match", "\"v0\", W/\"v1\"", "", 304, 0, 0},
		{"any version", "If-None-Match", "*", "", 304, 0, 0},
		{"other version", "If-None-Match", "\"v2\"", "", 200, 0, 1000},
	};
	AUTO_FREE char *url = NULL;
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	url = url_of(&w, "/file?size=1000");
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_header h = {cases[i].header, cases[i].value};
		struct http_call call = {.url = url, .headers = &h, .n_headers = 1};
		uint8_t want[1000];

		assert_ok(http_do(w.c, &call, &r, &err), &err);
		assert_row(r.status == cases[i].status, cases[i].name);
		assert_row(str_eq(http_header_of(&r, "content-range"), cases[i].content_range),
		           cases[i].name);
		if (r.status >= 300)
			continue;
		pattern(cases[i].first, want, cases[i].count);
		assert_row(r.body.n == cases[i].count, cases[i].name);
		assert_row(memcmp(r.body.p, want, r.body.n) == 0, cases[i].name);
	}
	stop(&w);
}

static void httpd_if_range(void **state UNUSED)
{
	struct http_header h[2] = {{"Range", "bytes=0-9"}, {"If-Range", "\"v1\""}};
	AUTO_FREE char *url = NULL;
	struct http_call call = {.headers = h, .n_headers = 2};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	url = url_of(&w, "/file?size=1000");
	call.url = url;
	for (int i = 0; i < 2; i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};

		assert_ok(http_do(w.c, &call, &r, &err), &err);
		assert_int_equal(r.status, i == 0 ? 206 : 200);
		h[1].value = "\"v2\"";
	}
	stop(&w);
}

/* "100 Continue" is said only when the handler wants the body. */
static void httpd_expect(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_FD int fd = -1;
	struct world w = {0};
	uint8_t four[4];

	start(&w, NULL);
	fd = dial(&w);
	send_text(fd, "PUT /count" HOST "Content-Length: 4\r\nExpect: 100-continue\r\n" END);
	read_until(fd, "100 Continue\r\n\r\n", &out);
	assert_non_null(strstr(buf_cstr(&out), " 100 Continue"));
	pattern(0, four, 4);
	assert_int_equal(send(fd, four, 4, 0), 4);
	read_until(fd, NULL, &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	stop(&w);
}

/* A refused sender hears why, although it is in the middle of a large body. */
static void httpd_refused_uploads(void **state UNUSED)
{
	static const struct {
		const char *path, *words;
		int status;
	} cases[] = {
		{"/unread", "not now", 409},
		{"/full", "the disk is full", 507},
		{"/secret", "no such token", 401},
		{"/nowhere", "no such route", 404},
	};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	for (size_t i = 0; i < 2 * COUNT(cases); i++) {
		AUTO_FREE char *url = url_of(&w, cases[i / 2].path);
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_header h = {"Expect", ""}; /* every second one just sends */
		uint64_t at = 0;
		struct http_call call = {.method = HTTP_PUT,
		                         .url = url,
		                         .headers = &h,
		                         .n_headers = i % 2,
		                         .read = give_pattern,
		                         .arg = &at,
		                         .body_len = BIG};

		assert_ok(http_do(w.c, &call, &r, &err), &err);
		assert_row(r.status == cases[i / 2].status, cases[i / 2].path);
		assert_row(strstr(buf_cstr(&r.body), cases[i / 2].words) != NULL,
		           cases[i / 2].path);
	}
	stop(&w);
}

/* One that sends all before it listens: a reset would take the reply from it. */
static void httpd_refused_deaf_sender(void **state UNUSED)
{
	static char piece[65536];
	struct world w = {0};

	start(&w, NULL);
	for (int i = 0; i < 5; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 16);
		AUTO_FD int fd = dial(&w);

		send_text(fd, "PUT /unread" HOST "Content-Length: 16777216\r\n\r\n");
		for (int k = 0; k < 256; k++)
			assert_int_equal(send(fd, piece, sizeof(piece), MSG_NOSIGNAL),
			                 sizeof(piece));
		read_until(fd, NULL, &out);
		assert_non_null(strstr(buf_cstr(&out), " 409 "));
		assert_non_null(strstr(buf_cstr(&out), "not now"));
	}
	stop(&w);
}

static void httpd_cut_short(void **state UNUSED)
{
	struct world w = {0};
	int fd;

	start(&w, NULL);
	fd = dial(&w);
	send_text(fd, "PUT /count" HOST "Content-Length: 1000\r\n\r\n");
	assert_int_equal(send(fd, "", 1, 0), 1);
	clock_sleep_ms(20);
	(void)close(fd);
	fd = dial(&w); /* and one whose body is kept in memory: its handler never runs */
	send_text(fd, "POST /echo" HOST "Content-Length: 1000\r\n\r\nabc");
	(void)close(fd);
	for (int64_t until = clock_mono_ms() + WAIT_MS; atomic_load(&w.read_failed) == ERR_NONE;) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(2);
	}
	assert_int_equal(w.read_failed, ERR_INVALID);
	httpd_drain(w.h, 30000); /* both are over when this returns */
	assert_int_equal(w.body_calls, 0);
	stop(&w);
}

/* A short body is there before anybody asks who sends it; a long one, and one whose sender asks for
 * leave, is not begun before. */
static void httpd_short_bodies_come_first(void **state UNUSED)
{
	static const struct {
		const char *more;
		size_t n;
		bool first;
	} rows[] = {
		{"", 4, true},
		{"", 900, true},
		{"Expect: 100-continue\r\n", 4, false},
	};
	struct world w = {0};
	char body[900];

	memset(body, 'x', sizeof(body));
	start(&w, NULL);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 16);
		AUTO_FD int fd = dial(&w);
		char head[200];

		FMT(head,
		    "POST /secret" HOST
		    "Authorization: Bearer good\r\n%sContent-Length: %zu\r\n" END,
		    rows[i].more, rows[i].n);
		atomic_store(&w.authorized, 0);
		send_text(fd, head);
		if (rows[i].first) {
			assert_int_equal(send(fd, body, 2, MSG_NOSIGNAL), 2);
			clock_sleep_ms(50);
			assert_int_equal(atomic_load(&w.authorized), 0);
		} else {
			read_until(fd, " 100 Continue\r\n\r\n", &out);
			assert_int_equal(atomic_load(&w.authorized), 1);
			assert_int_equal(send(fd, body, 2, MSG_NOSIGNAL), 2);
		}
		assert_int_equal(send(fd, body, rows[i].n - 2, MSG_NOSIGNAL), rows[i].n - 2);
		read_until(fd, NULL, &out);
		assert_non_null(strstr(buf_cstr(&out), " 200 "));
		assert_int_equal(atomic_load(&w.authorized), 1);
	}
	stop(&w);
}

static void httpd_silent_sender(void **state UNUSED)
{
	struct httpd_options o = {.stall_s = 1};
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_FD int fd = -1;
	struct world w = {0};

	start(&w, &o);
	fd = dial(&w);
	send_text(fd, "PUT /count" HOST "Content-Length: 1000\r\n\r\n");
	read_until(fd, NULL, &out); /* until it is cut off */
	assert_int_equal(out.n, 0);
	assert_int_equal(w.read_failed, ERR_TIMEOUT);
	stop(&w);
}

/* Always a byte before the other deadline: a worker is not kept by that for ever. */
static void httpd_trickling_sender(void **state UNUSED)
{
	struct httpd_options o = {.stall_s = 1};
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_FD int fd = -1;
	struct world w = {0};
	uint8_t p[1000];
	int sent = 0;

	pattern(0, p, sizeof(p));
	start(&w, &o);
	fd = dial(&w);
	send_text(fd, "PUT /count" HOST "Content-Length: 1000\r\n\r\n");
	for (; sent < 900 && atomic_load(&w.read_failed) == 0; sent++) {
		if (send(fd, p + sent, 1, MSG_NOSIGNAL) != 1)
			break;
		clock_sleep_ms(20);
	}
	assert_true(sent < 900);
	read_until(fd, NULL, &out);
	assert_int_equal(out.n, 0);
	assert_int_equal(w.read_failed, ERR_TIMEOUT);
	stop(&w);
}

/* Bodies that need no worker: kept in memory, or read because nobody wants them. They hold their
 * places no longer than others, whether they are silent or send a byte now and then. */
static void httpd_kept_bodies_have_a_deadline(void **state UNUSED)
{
	static const char *const begins[] = {
		"POST /echo" HOST "Content-Length: 100000\r\n\r\n",
		"POST /echo" HOST "Transfer-Encoding: chunked\r\n\r\n186a0\r\n",
		"POST /nowhere" HOST "Content-Length: 100000\r\n\r\n",
		"PUT /full" HOST "Content-Length: 100000\r\n\r\n", /* a handler has begun it */
	};
	struct httpd_options o = {.stall_s = 1};
	struct world w = {0};

	start(&w, &o);
	for (size_t i = 0; i < 2 * COUNT(begins); i++) {
		AUTO_FD int fd = dial(&w);
		char first[1000] = {0};
		ssize_t n = -1;

		send_text(fd, begins[i / 2]);
		(void)!send(fd, first, sizeof(first), MSG_NOSIGNAL);
		for (int64_t until = clock_mono_ms() + 20000; n != 0;) {
			assert_row(clock_mono_ms() < until, begins[i / 2]);
			clock_sleep_ms(20);
			if (i % 2 == 0 && send(fd, "x", 1, MSG_NOSIGNAL) != 1)
				break;
			n = recv(fd, first, 1, MSG_DONTWAIT);
			assert_row(n <= 0, "it has no reply");
			if (n < 0 && errno != EAGAIN)
				break;
		}
	}
	assert_int_equal(w.body_calls, 0);
	stop(&w);
}

/* Slow for its whole length, and longer on its way than anybody may be silent: it is taken. */
static void httpd_slow_kept_body(void **state UNUSED)
{
	struct httpd_options o = {.stall_s = 2};
	AUTO_BUF struct buf out = BUF_INIT(1 << 20);
	AUTO_FD int fd = -1;
	struct world w = {0};
	char piece[4000];

	memset(piece, 'x', sizeof(piece));
	start(&w, &o);
	fd = dial(&w);
	send_text(fd, "POST /echo" HOST "Content-Length: 64000\r\n" END);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(send(fd, piece, sizeof(piece), MSG_NOSIGNAL), sizeof(piece));
		clock_sleep_ms(200);
	}
	read_until(fd, NULL, &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	stop(&w);
}

static void httpd_slow_sender(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_FD int fd = -1;
	struct world w = {0};
	uint8_t p[20];

	start(&w, NULL);
	fd = dial(&w);
	pattern(0, p, sizeof(p));
	send_text(fd, "PUT /count" HOST "Content-Length: 20\r\n" END);
	for (size_t i = 0; i < sizeof(p); i++) {
		assert_int_equal(send(fd, p + i, 1, 0), 1);
		clock_sleep_ms(10);
	}
	read_until(fd, NULL, &out);
	assert_true(str_ends(buf_view(&out), "\r\n\r\n20"));
	stop(&w);
}

/* However many send slowly, others are answered; and all of theirs arrive in the end. */
static void httpd_slow_senders_leave_threads(void **state UNUSED)
{
	enum { SENDERS = 6 };
	struct httpd_options o = {.workers = 4};
	struct world w = {0};
	int fd[SENDERS];
	uint8_t p[20];

	pattern(0, p, sizeof(p));
	start(&w, &o);
	for (size_t i = 0; i < SENDERS; i++) {
		fd[i] = dial(&w);
		send_text(fd[i], "PUT /count" HOST "Content-Length: 20\r\n" END);
		assert_int_equal(send(fd[i], p, 1, 0), 1);
	}
	for (int i = 0; i < 8; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 16);
		AUTO_FD int quick = dial(&w);

		send_text(quick, "POST /echo" HOST "Content-Length: 2\r\n" END "hi");
		read_until(quick, NULL, &out);
		assert_true(str_ends(buf_view(&out), "hi"));
	}
	for (size_t i = 0; i < SENDERS; i++) /* which of them are read first is not known */
		assert_int_equal(send(fd[i], p + 1, sizeof(p) - 1, 0), sizeof(p) - 1);
	for (size_t i = 0; i < SENDERS; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 16);

		read_until(fd[i], NULL, &out);
		assert_row(str_ends(buf_view(&out), "\r\n\r\n20"), buf_cstr(&out));
		assert_int_equal(close(fd[i]), 0);
	}
	stop(&w);
}

#define SECRET "PUT /secret" HOST "Authorization: Bearer good\r\nContent-Length: 20\r\n"

/* Those of one sender leave threads to others, and to other teams, all behind one address. */
static void httpd_slow_senders_of_one_address(void **state UNUSED)
{
	enum { SENDERS = 6 };
	static const struct {
		const char *slow, *quick[2];
	} rows[] = {
		{"X-Owner: red\r\nX-Sender: one\r\n",
	         {"X-Owner: red\r\nX-Sender: two\r\n", "X-Owner: blue\r\nX-Sender: three\r\n"}},
		{"X-Sender: one\r\n", {"X-Sender: two\r\n", "X-Owner: red\r\n"}},
	};

	for (size_t k = 0; k < COUNT(rows); k++) {
		struct httpd_options o = {.workers = 8};
		struct world w = {0};
		int fd[SENDERS];

		start(&w, &o);
		for (size_t i = 0; i < SENDERS; i++) {
			AUTO_FREE char *head = xasprintf(SECRET "%s" END, rows[k].slow);

			fd[i] = dial(&w);
			send_text(fd[i], head);
		}
		wait_for(&w.entered, 3);
		for (size_t i = 0; i < COUNT(rows[k].quick); i++) {
			AUTO_BUF struct buf out = BUF_INIT(1 << 16);
			AUTO_FREE char *head = xasprintf(SECRET "%s" END, rows[k].quick[i]);
			AUTO_FD int to = dial(&w);
			uint8_t p[20];

			pattern(0, p, sizeof(p));
			send_text(to, head);
			assert_int_equal(send(to, p, sizeof(p), 0), sizeof(p));
			read_until(to, NULL, &out);
			assert_row(str_ends(buf_view(&out), "\r\n\r\n20"), rows[k].quick[i]);
			assert_int_equal(w.entered, 3 + i + 1);
		}
		for (size_t i = 0; i < SENDERS; i++)
			assert_int_equal(close(fd[i]), 0);
		stop(&w);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(httpd_streams_up),
	cmocka_unit_test(httpd_streams_down),
	cmocka_unit_test(httpd_ranges),
	cmocka_unit_test(httpd_if_range),
	cmocka_unit_test(httpd_expect),
	cmocka_unit_test(httpd_refused_uploads),
	cmocka_unit_test(httpd_refused_deaf_sender),
	cmocka_unit_test(httpd_cut_short),
	cmocka_unit_test(httpd_short_bodies_come_first),
	cmocka_unit_test(httpd_silent_sender),
	cmocka_unit_test(httpd_trickling_sender),
	cmocka_unit_test(httpd_kept_bodies_have_a_deadline),
	cmocka_unit_test(httpd_slow_kept_body),
	cmocka_unit_test(httpd_slow_sender),
	cmocka_unit_test(httpd_slow_senders_leave_threads),
	cmocka_unit_test(httpd_slow_senders_of_one_address),
};
UNIT_MAIN(tests)
