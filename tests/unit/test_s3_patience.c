/* test_s3_patience.c - a store that answers a large body long after libcurl has sent it. */
#include "store/objects/objstore_s3.h"

#include "base/buf.h"
#include "base/thread.h"
#include "unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define BODY ((size_t)2 << 20)

struct store {
	int listener;
	atomic_bool answers;
};

/* Reads a request whole. False: the other end has gone. */
static bool take(int fd)
{
	AUTO_BUF struct buf in = BUF_INIT(2 * BODY);
	char piece[8192];
	ssize_t n;

	while (in.n < BODY && (n = read(fd, piece, sizeof(piece))) > 0)
		buf_add(&in, piece, (size_t)n);
	return in.n >= BODY;
}

static void *serve(void *arg)
{
	static const char ok[] = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n"
				 "Connection: close\r\n\r\n";
	struct store *st = arg;
	char byte;
	int fd;

	while ((fd = accept(st->listener, NULL, NULL)) >= 0) {
		if (take(fd) && atomic_load(&st->answers))
			(void)!write(fd, ok, sizeof(ok) - 1);
		while (read(fd, &byte, 1) > 0)
			; /* until who asked has given up */
		(void)close(fd);
	}
	return NULL;
}

/* It gets more time at the next try, also when it counts as away; and no more than others when it
 * is fast again. */
static void waits_longer(void **state UNUSED)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	struct http_policy policy = {0};
	struct objstore_env env = {.client = http_client_new(&policy)};
	struct store st = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_FREE char *body = xcalloc(1, BODY), *url = NULL;
	struct s3store *s;
	struct err err = {0};
	pthread_t t;

	assert_int_equal(bind(st.listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(st.listener, 8), 0);
	assert_int_equal(getsockname(st.listener, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(pthread_create(&t, NULL, serve, &st), 0);
	url = xasprintf("s3:http://127.0.0.1:%u/bucket", ntohs(at.sin_port));
	assert_ok(objstore_open(&os, url, &env, &err), &err);
	s = (struct s3store *)os;
	assert_int_equal(atomic_load(&s->patience_ms), S3_PATIENCE_MS);
	atomic_store(&s->patience_ms, 1000);
	atomic_store(&os->away, true);
	assert_err(objstore_put(os, "a", str_n(body, BODY), &err), &err, ERR_OBJECTS_UNAVAILABLE,
	           "");
	assert_int_equal(atomic_load(&s->patience_ms), 2000);
	atomic_store(&st.answers, true);
	assert_ok(objstore_put(os, "a", str_n(body, BODY), &err), &err);
	assert_int_equal(atomic_load(&s->patience_ms), S3_PATIENCE_MS);
	(void)shutdown(st.listener, SHUT_RDWR);
	(void)pthread_join(t, NULL);
	(void)close(st.listener);
	http_client_free(env.client);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(waits_longer),
};

UNIT_MAIN(tests)
