/* test_httpd_waits.c - many at once: parked, queued, loaded; and how a listener stops. */
#include "httpd_fixture.h"
#include "io/httpd_impl.h"

#define FOLLOWERS 500

static void httpd_parks_many(void **state UNUSED)
{
	struct httpd_options o = {.workers = 4, .queue_max = 64};
	AUTO_HTTP_REPLY struct http_reply r = {0};
	static int fds[FOLLOWERS];
	struct world w = {0};
	struct err err = {0};

	start(&w, &o);
	for (unsigned i = 0; i < FOLLOWERS; i++) {
		fds[i] = dial(&w);
		send_text(fds[i], "GET /follow/a" HOST END);
		if (i % 32 == 31)
			wait_for(&w.parked, i + 1); /* a queue of 64 refuses more at once */
	}
	wait_for(&w.parked, FOLLOWERS);
	/* four workers, five hundred followers: others are served */
	assert_ok(get(&w, "/", &r, &err), &err);
	assert_int_equal(r.status, 200);

	httpd_notify(w.h, httpd_channel("news", STR_LIT("a"))); /* nothing new: all park again */
	atomic_store(&w.news, 3);
	httpd_notify(w.h, httpd_channel("news", STR_LIT("b"))); /* not theirs */
	httpd_notify(w.h, httpd_channel("news", STR_LIT("a")));
	for (size_t i = 0; i < FOLLOWERS; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 12);

		read_until(fds[i], NULL, &out);
		assert_true(str_ends(buf_view(&out), "news 3 timed_out 0"));
		(void)close(fds[i]);
	}
	stop(&w);
}

static struct exchange *exchange_alone(struct httpd *h)
{
	static int conn; /* what it points to is libmicrohttpd's: never looked at */

	h->magic = HTTPD_MAGIC;
	lock_init(&h->lock, LOCK_HTTPD);
	cond_init(&h->none);
	return exchange_new(h, (struct MHD_Connection *)&conn, "/");
}

struct body_step {
	enum body_state from, to;
};

static void step_body(void *arg)
{
	const struct body_step *step = arg;
	static struct httpd h; /* of this child alone */
	struct exchange *x = exchange_alone(&h);

	x->body = step->from;
	exchange_body_to(x, step->to);
}

/* Every pair: a state of the body that is entered from elsewhere is a mistake of ours. */
static void httpd_bodies_take_their_way(void **state UNUSED)
{
	static const char legal[BODY_STATE_COUNT][BODY_STATE_COUNT + 1] = {
		/* to: NONE, WAITING, COLLECT, STREAM, DISCARD */
		[BODY_NONE] = ".x...",   [BODY_WAITING] = ".xxxx", [BODY_COLLECT] = "....x",
		[BODY_STREAM] = "....x", [BODY_DISCARD] = "....x",
	};

	for (unsigned i = 0; i < BODY_STATE_COUNT * BODY_STATE_COUNT; i++) {
		struct body_step s = {(enum body_state)(i / BODY_STATE_COUNT),
		                      (enum body_state)(i % BODY_STATE_COUNT)};

		if (asserts(step_body, &s) != (legal[s.from][s.to] == '.'))
			fail_msg("from %u to %u", s.from, s.to);
	}
}

enum broken { WHOLE, NOBODYS, SUSPENDED_ALONE, RINGLESS, ENDED_UNBEGUN, RING_OVER, TWICE_OVER };

static void check_broken(void *arg)
{
	static struct httpd h; /* of this child alone */
	struct exchange *x = exchange_alone(&h);

	switch (*(enum broken *)arg) {
	case WHOLE:
		break;
	case NOBODYS:
		x->conn = NULL;
		break;
	case SUSPENDED_ALONE:
		x->suspended = true;
		break;
	case RINGLESS:
		x->body = BODY_STREAM;
		break;
	case ENDED_UNBEGUN:
		x->body_ended = true;
		break;
	case RING_OVER:
		x->ring_n = 1; /* of no byte that came */
		break;
	case TWICE_OVER:
		x->done = x->gone = true;
		break;
	}
	lock_take(&x->lock);
	exchange_check(x);
	lock_give(&x->lock);
}

static void httpd_exchanges_are_checked(void **state UNUSED)
{
	for (enum broken b = WHOLE; b <= TWICE_OVER; b++) {
		if (asserts(check_broken, &b) != (b != WHOLE))
			fail_msg("broken in way %u", b);
	}
}

static void httpd_park_ends(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0}, s = {0};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	assert_ok(get(&w, "/follow/a?ms=50", &r, &err), &err);
	assert_true(str_eq(buf_view(&r.body), "news 0 timed_out 1"));
	assert_ok(get(&w, "/race", &s, &err), &err);
	assert_true(str_eq(buf_view(&s.body), "woken"));
	stop(&w);
}

/* A follower that hangs up is noticed long before its deadline: the server closes its side, too. */
static void httpd_dead_followers_leave(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(100);
	AUTO_FD int fd = -1;
	struct world w = {0};

	start(&w, NULL);
	for (unsigned i = 0; i < 20; i++) {
		int gone = dial(&w);

		send_text(gone, "GET /follow/a" HOST "\r\n");
		wait_for(&w.parked, i + 1);
		(void)close(gone);
	}
	fd = dial(&w);
	send_text(fd, "GET /follow/a?ms=3600000" HOST "\r\n");
	wait_for(&w.parked, 21);
	(void)shutdown(fd, SHUT_WR);
	read_until(fd, NULL, &out);
	assert_int_equal(out.n, 0);
	stop(&w);
}

/* Load */

static void httpd_queue_full(void **state UNUSED)
{
	struct httpd_options o = {.workers = 1, .queue_max = 2};
	AUTO_HTTP_REPLY struct http_reply r = {0};
	unsigned refused = 0, served = 0;
	struct world w = {0};
	struct err err = {0};
	int fds[6];

	start(&w, &o);
	for (size_t i = 0; i < COUNT(fds); i++) {
		fds[i] = dial(&w);
		send_text(fds[i], "GET /slow" HOST END);
		if (i == 0)
			wait_for(&w.entered, 1);
	}
	/* one runs, two wait, three are refused at once: none of them hangs on the worker */
	for (size_t i = 0; i < COUNT(fds) && refused < 3; i = (i + 1) % COUNT(fds)) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 12);
		struct timeval event = {.tv_usec = 20000};

		if (fds[i] < 0)
			continue;
		(void)setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &event, sizeof(event));
		read_until(fds[i], NULL, &out);
		if (out.n == 0)
			continue;
		assert_non_null(strstr(buf_cstr(&out), " 503 "));
		assert_non_null(strstr(buf_cstr(&out), "Retry-After: 1\r\n"));
		(void)close(fds[i]);
		fds[i] = -1;
		refused++;
	}
	assert_ok(get(&w, "/missing", &r, &err), &err);
	assert_int_equal(r.status, 404); /* needs no worker */
	atomic_store(&w.go, true);
	for (size_t i = 0; i < COUNT(fds); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 12);
		struct timeval patience = {.tv_sec = 60};

		if (fds[i] < 0)
			continue;
		(void)setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		read_until(fds[i], NULL, &out);
		assert_true(str_ends(buf_view(&out), "done"));
		(void)close(fds[i]);
		served++;
	}
	assert_int_equal(served, 3);
	stop(&w);
}

struct load {
	struct world *w;
	unsigned n, bad;
};

static void *load_thread(void *arg)
{
	static const char *const paths[] = {"/v1/jobs/1", "/file?size=5000", "/missing",
	                                    "/follow/x?ms=1"};
	struct load *l = arg;

	for (unsigned i = 0; i < l->n; i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct err err = {0};
		int rc = i % 3 == 2 ? fetch(l->w, HTTP_POST, "/echo", STR_LIT("body"), &r, &err)
		                    : get(l->w, paths[i % 4], &r, &err);

		l->bad += rc < 0 || r.status >= 500;
	}
	return NULL;
}

static void httpd_in_parallel(void **state UNUSED)
{
	struct load loads[8];
	pthread_t threads[8];
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(threads); i++) {
		loads[i] = (struct load){&w, 100, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, load_thread, &loads[i]), 0);
	}
	for (int i = 0; i < 50; i++) {
		httpd_notify(w.h, httpd_channel("news", STR_LIT("x")));
		clock_sleep_ms(2);
	}
	for (size_t i = 0; i < COUNT(threads); i++) {
		(void)pthread_join(threads[i], NULL);
		assert_int_equal(loads[i].bad, 0);
	}
	stop(&w);
}

/* The end */

static void *let_go_soon(void *arg)
{
	struct world *w = arg;

	clock_sleep_ms(100);
	atomic_store(&w->go, true);
	return NULL;
}

static void httpd_drains(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 12), news = BUF_INIT(1 << 12);
	AUTO_FD int fd = -1, follower = -1, idle = -1;
	struct world w = {0};
	pthread_t t;

	start(&w, NULL);
	fd = dial(&w);
	idle = dial(&w);
	follower = dial(&w);
	send_text(fd, "GET /slow" HOST "\r\n");
	send_text(follower, "GET /follow/a" HOST "\r\n");
	wait_for(&w.entered, 1);
	wait_for(&w.parked, 1);
	assert_int_equal(pthread_create(&t, NULL, let_go_soon, &w), 0);
	httpd_drain(w.h, 30000);
	assert_int_equal(w.left, 1); /* it was waited for */
	read_until(fd, NULL, &out);
	assert_true(str_ends(buf_view(&out), "done"));
	assert_non_null(strstr(buf_cstr(&out), "Connection: close"));
	read_until(follower, NULL, &news);
	assert_true(str_ends(buf_view(&news), "news 0 timed_out 1"));
	(void)pthread_join(t, NULL);
	stop(&w);
}

/* A request on a connection from before: refused, or handled where the listener says so. */
static void httpd_drains_and_hears(bool handles, const char *status)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 12);
	struct httpd_options o = {.handles_to_the_end = handles};
	AUTO_FD int fd = -1, slow_fd = -1;
	struct world w = {0};

	start(&w, &o);
	slow_fd = dial(&w); /* so that the daemon has taken both */
	fd = dial(&w);
	send_text(slow_fd, "GET /slow" HOST "\r\n");
	wait_for(&w.entered, 1);
	send_text(fd, "GET /v1/jobs");
	clock_sleep_ms(50);
	httpd_drain(w.h, 0);
	send_text(fd, "/a" HOST "\r\n");
	read_until(fd, NULL, &out);
	assert_non_null(strstr(buf_cstr(&out), status));
	assert_non_null(strstr(buf_cstr(&out), "Connection: close"));
	stop(&w);
}

static void httpd_handles_to_the_end(void **state UNUSED)
{
	httpd_drains_and_hears(false, "HTTP/1.1 503 ");
	httpd_drains_and_hears(true, "HTTP/1.1 200 ");
}

/* Stopped in the middle of everything: a handler, a follower, an upload, an idle connection. */
static void httpd_stops_at_once(void **state UNUSED)
{
	AUTO_FD int slow_fd = -1, follower = -1, upload = -1, idle = -1;
	struct world w = {0};
	pthread_t t;

	start(&w, NULL);
	slow_fd = dial(&w);
	follower = dial(&w);
	upload = dial(&w);
	idle = dial(&w);
	send_text(slow_fd, "GET /slow" HOST "\r\n");
	send_text(follower, "GET /follow/a" HOST "\r\n");
	send_text(upload, "PUT /count" HOST "Content-Length: 1000\r\n\r\n");
	wait_for(&w.entered, 1);
	wait_for(&w.parked, 1);
	assert_int_equal(pthread_create(&t, NULL, let_go_soon, &w), 0);
	http_client_free(w.c);
	httpd_stop(w.h);
	(void)pthread_join(t, NULL);
}

/* A byte now and then, and never a whole head: until the connection ends. */
static void trickle(int fd)
{
	char byte;

	for (int64_t until = clock_mono_ms() + WAIT_MS;; clock_sleep_ms(20)) {
		ssize_t n = send(fd, "x", 1, MSG_NOSIGNAL);

		if (n < 0 || recv(fd, &byte, 1, MSG_DONTWAIT) == 0)
			return;
		if (clock_mono_ms() > until)
			fail_msg("a head without end keeps its connection");
	}
}

static void httpd_heads_have_a_deadline(void **state UNUSED)
{
	static const char *const begins[] = {"", "GET / HT",
	                                     "GET / HTTP/1.1\r\nHost: x\r\nX-Any: "};
	struct httpd_options o = {.head_s = 1, .idle_s = 2};
	struct world w = {0};

	start(&w, &o);
	for (size_t i = 0; i < COUNT(begins); i++) {
		AUTO_FD int fd = dial(&w);

		send_text(fd, begins[i]);
		trickle(fd);
	}
	{ /* the next one on a connection that was served */
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);
		AUTO_FD int fd = dial(&w);

		send_text(fd, "GET /" HOST "\r\n");
		read_until(fd, "}", &out);
		trickle(fd);
	}
	stop(&w);
}

static unsigned live(struct httpd *h)
{
	unsigned n;

	lock_take(&h->lock);
	n = h->n_live;
	lock_give(&h->lock);
	return n;
}

static int dial_slowly(const struct world *w)
{
	const int small = 16 << 10;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(httpd_port(w->h)),
	                         .sin_addr = {htonl(INADDR_LOOPBACK)}};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void pass(struct world *w, int64_t *now, int64_t ms)
{
	*now += ms;
	clock_fake(*now, *now);
	conns_tend(w->h, *now);
}

#define REPLY ((size_t)1 << 20) /* more than a small client takes, and less than a kernel */
#define PART ((size_t)128 << 10)

/* As long as a client takes what the kernel has for it, its connection is not idle. */
static void httpd_slow_readers_keep_their_connection(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 20);
	AUTO_FREE char *part = xmalloc(PART);
	int64_t now = clock_mono_ms();
	struct world w = {0};
	int fd;

	clock_fake(now, now);
	start(&w, NULL);
	fd = dial_slowly(&w);
	send_text(fd, "GET /file?size=1048576" HOST "\r\n");
	while (atomic_load(&w.notes) == 0 || live(w.h) > 0) /* all is sent */
		clock_sleep_ms(2);
	for (size_t got = 0; got + PART <= REPLY; got += PART) {
		assert_int_equal(recv(fd, part, PART, MSG_WAITALL), PART);
		pass(&w, &now, 60 * 1000); /* idle_s is 120 */
	}
	assert_true(recv(fd, part, PART, 0) > 0); /* its head was first */
	send_text(fd, "GET /" HOST "\r\n");
	read_until(fd, "}", &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	(void)close(fd);

	fd = dial_slowly(&w);
	send_text(fd, "GET /file?size=67108864" HOST "\r\n");
	wait_for(&w.notes, 3);
	while (live(w.h) > 0) { /* who takes nothing is cut off */
		clock_sleep_ms(2);
		pass(&w, &now, 60 * 1000);
	}
	(void)close(fd);
	clock_fake(-1, -1);
	stop(&w);
}

/* Whoever holds connections without a request keeps nobody out. */
static void httpd_the_idle_make_room(void **state UNUSED)
{
	struct httpd_options o = {.connections_max = 16};
	struct world w = {0};
	int fds[64];

	start(&w, &o);
	for (size_t i = 0; i < COUNT(fds); i++) {
		fds[i] = dial(&w);
		send_text(fds[i], i % 2 == 0 ? "GET / HTTP/1.1\r\n" : "");
	}
	for (int i = 0; i < 8; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);

		raw(&w, "GET /" HOST END, &out);
		assert_non_null(strstr(buf_cstr(&out), " 200 "));
	}
	for (size_t i = 0; i < COUNT(fds); i++)
		(void)close(fds[i]);
	stop(&w);
}

/* Nor does who sends the bodies of its requests without end, be they wanted or refused. */
static void httpd_slow_bodies_make_room(void **state UNUSED)
{
	static const char *const begins[] = {
		"POST /echo" HOST "Content-Length: 100000\r\n\r\n{",
		"POST /echo" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"POST /nowhere" HOST "Content-Length: 100000\r\n\r\n{",
	};
	struct httpd_options o = {.connections_max = 16};
	struct world w = {0};
	int fds[48];

	start(&w, &o);
	for (size_t i = 0; i < COUNT(fds); i++) {
		fds[i] = dial(&w);
		send_text(fds[i], begins[i % COUNT(begins)]);
		clock_sleep_ms(5); /* so that its head is read before the next one comes */
	}
	for (int i = 0; i < 8; i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);

		raw(&w, "GET /" HOST END, &out);
		assert_non_null(strstr(buf_cstr(&out), " 200 "));
	}
	for (size_t i = 0; i < COUNT(fds); i++)
		(void)close(fds[i]);
	stop(&w);
}

static bool is_open(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n < 0 && errno == EAGAIN;
}

/* Who owes longest goes first. A body that moves owes nothing from before its last bytes. */
static void httpd_moving_bodies_stay(void **state UNUSED)
{
	static char kib[1024];
	struct httpd_options o = {.connections_max = 16};
	AUTO_BUF struct buf out = BUF_INIT(1 << 20);
	AUTO_FD int moving = -1, head = -1, body = -1;
	struct world w = {0};
	int fds[13];

	start(&w, &o);
	moving = dial(&w);
	send_text(moving, "POST /echo" HOST "Content-Length: 4096\r\n" END);
	body = dial(&w);
	send_text(body, "POST /echo" HOST "Content-Length: 4096\r\n" END);
	clock_sleep_ms(50);
	head = dial(&w);
	send_text(head, "POST /echo HTTP/1.1\r\n");
	for (int i = 0; i < 3; i++) {
		clock_sleep_ms(50);
		assert_int_equal(send(moving, kib, sizeof(kib), MSG_NOSIGNAL), sizeof(kib));
	}
	clock_sleep_ms(200);
	for (size_t i = 0; i < COUNT(fds); i++)
		fds[i] = dial(&w); /* the last two get the places of those that owe longest */
	for (int64_t until = clock_mono_ms() + WAIT_MS; is_open(body) || is_open(head);) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(5);
	}
	assert_true(is_open(moving));
	assert_int_equal(send(moving, kib, sizeof(kib), MSG_NOSIGNAL), sizeof(kib));
	read_until(moving, NULL, &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	for (size_t i = 0; i < COUNT(fds); i++)
		(void)close(fds[i]);
	stop(&w);
}

/* Places that are all in use are waited for: nobody is turned away. */
static void httpd_the_last_wait_for_a_place(void **state UNUSED)
{
	struct httpd_options o = {.connections_max = 16};
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_FD int late = -1;
	struct world w = {0};
	int fds[16];

	start(&w, &o);
	for (unsigned i = 0; i < COUNT(fds); i++) {
		fds[i] = dial(&w);
		send_text(fds[i], "GET /follow/a" HOST END);
		wait_for(&w.parked, i + 1);
	}
	late = dial(&w);
	send_text(late, "GET /" HOST END);
	clock_sleep_ms(100);
	assert_true(is_open(late)); /* without an answer */
	(void)close(fds[0]);
	read_until(late, NULL, &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	for (size_t i = 1; i < COUNT(fds); i++)
		(void)close(fds[i]);
	stop(&w);
}

/* The end of a listener and new connections do not get into each other's way. */
static void httpd_stops_while_they_connect(void **state UNUSED)
{
	for (int round = 0; round < 200; round++) {
		struct world w = {0};
		int fds[4];

		start(&w, NULL);
		for (size_t i = 0; i < COUNT(fds); i++) {
			fds[i] = dial(&w);
			send_text(fds[i], "GET /" HOST END);
		}
		clock_sleep_ms(round % 3);
		stop(&w);
		for (size_t i = 0; i < COUNT(fds); i++)
			(void)close(fds[i]);
	}
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		memcpy(&ss, &in, sizeof(in));
	else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
		memcpy(&ss, &in6, sizeof(in6));
	else
		ss.ss_family = AF_UNIX;
	return ss;
}

#define NO_FD 1000000 /* and above: descriptors that nobody has */

static void httpd_one_address_has_a_share(void **state UNUSED)
{
	static const struct {
		const char *holder, *asks;
		bool may;
	} rows[] = {
		{"192.0.2.1", "192.0.2.1", false},
		{"192.0.2.1", "192.0.2.2", true},
		{"192.0.2.1", "::ffff:192.0.2.1", false},
		{"::ffff:192.0.2.1", "192.0.2.1", false},
		{"2001:db8::1", "2001:db8::2", false}, /* of one network of 64 bits */
		{"2001:db8::1", "2001:db8:0:1::1", true},
		{"127.0.0.1", "127.0.0.1", true}, /* perhaps a proxy, for everybody */
		{"127.0.0.1", "127.3.2.1", true},
		{"::1", "::1", true},
		{"::ffff:127.0.0.1", "127.0.0.1", true},
		{"unix", "unix", true},
	};
	struct httpd_options o = {.per_address_max = 2};
	struct world w = {0};

	start(&w, &o);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sockaddr_storage holder = address(rows[i].holder),
					asks = address(rows[i].asks);
		const struct sockaddr *sa = (const struct sockaddr *)&asks;
		struct conn *c[2];

		for (int k = 0; k < 2; k++) {
			assert_row(conns_admit(w.h, sa), rows[i].holder);
			c[k] = conns_take(w.h, LISTENER_TCP, NO_FD + k,
			                  (const struct sockaddr *)&holder);
		}
		assert_row(conns_admit(w.h, sa) == rows[i].may, rows[i].holder);
		conns_remove(w.h, c[0]);
		assert_row(conns_admit(w.h, sa), rows[i].holder);
		conns_remove(w.h, c[1]);
	}
	stop(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(httpd_parks_many),
	cmocka_unit_test(httpd_bodies_take_their_way),
	cmocka_unit_test(httpd_exchanges_are_checked),
	cmocka_unit_test(httpd_park_ends),
	cmocka_unit_test(httpd_dead_followers_leave),
	cmocka_unit_test(httpd_queue_full),
	cmocka_unit_test(httpd_in_parallel),
	cmocka_unit_test(httpd_drains),
	cmocka_unit_test(httpd_handles_to_the_end),
	cmocka_unit_test(httpd_stops_at_once),
	cmocka_unit_test(httpd_heads_have_a_deadline),
	cmocka_unit_test(httpd_slow_readers_keep_their_connection),
	cmocka_unit_test(httpd_the_idle_make_room),
	cmocka_unit_test(httpd_slow_bodies_make_room),
	cmocka_unit_test(httpd_moving_bodies_stay),
	cmocka_unit_test(httpd_the_last_wait_for_a_place),
	cmocka_unit_test(httpd_stops_while_they_connect),
	cmocka_unit_test(httpd_one_address_has_a_share),
};
UNIT_MAIN(tests)
