/* test_proof.c - a server proves that it knows a token; whoever cannot is sent nothing. */
#include "base/clock.h"
#include "base/json.h"
#include "io/httpd.h"
#include "io/proof.h"
#include "unit.h"

#include <pthread.h>
#include <sys/socket.h>

#define TOKEN "stoker_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

/* Vectors of Python's hashlib and hmac. */
static void proof_is_as_documented(void **state UNUSED)
{
	struct digest key = hash_sha256(TOKEN, strlen(TOKEN));
	char id[PROOF_ID_LEN + 1], mac[HASH_HEX_CAP];

	proof_id(STR_LIT(TOKEN), id);
	assert_string_equal(id, "eb9417cc6fb92980");
	proof_make(&key, STR_LIT("challenge"), STR_LIT("[::1]:8000"), mac);
	assert_string_equal(mac,
	                    "aff215ea3d3a759e685242e34979d16f1247eb09b1a07f9082f420b12a0cc962");
}

/* --- against a real listener --- */

struct world {
	struct httpd *h;
	char url[64];
	atomic_uint asked, greeted, requests;
	unsigned port; /* that the client insists on */
	const char *token;
	struct httpd_options o;
};

static int prove(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(4096);
	struct digest key = hash_sha256(TOKEN, strlen(TOKEN));
	struct world *w = rq->ctx;
	char id[PROOF_ID_LEN + 1], address[REQUEST_ADDRESS_CAP], mac[HASH_HEX_CAP];
	const struct doc *d;
	struct js js;

	atomic_fetch_add(&w->asked, 1);
	proof_id(STR_LIT(TOKEN), id);
	if (request_json(rq, &d, err) < 0)
		return -1;
	if (!str_eq(doc_text(doc_get(d, "token")), id))
		return err_set(err, ERR_TOKEN_INVALID, "no such token");
	request_address(rq, address);
	proof_make(&key, doc_text(doc_get(d, "challenge")), str_of(address), mac);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "address", address);
	js_kv(&js, "proof", mac);
	js_close(&js);
	return reply_json(rq, 200, &out);
}

static int count(struct request *rq, struct err *err UNUSED)
{
	struct world *w = rq->ctx;

	atomic_fetch_add(&w->requests, 1);
	return reply_bytes(rq, 200, NULL, STR_LIT("ok"));
}

static const struct route routes[] = {
	{HTTP_POST, SCOPE_OPEN, 1000, "/below" PROOF_PATH, prove, ""},
	{HTTP_GET, SCOPE_OPEN, 0, "/below/x", count, ""},
	{HTTP_PUT, SCOPE_OPEN, 1000, "/below/x", count, ""},
};
static const struct face face = {"test", routes, COUNT(routes), NULL};
static const struct face *const faces[] = {&face};

static int greet(void *arg, int fd, struct err *err)
{
	struct world *w = arg;
	struct proof p = {.host = "x",
	                  .target = "/below" PROOF_PATH,
	                  .token = str_of(w->token),
	                  .port = w->port};

	atomic_fetch_add(&w->greeted, 1);
	return proof_ask(&p, fd, err);
}

static void start(struct world *w)
{
	struct httpd_options o = {.address = "127.0.0.1:0", .faces = faces, .n_faces = 1, .ctx = w};
	struct err err = {0};

	o.idle_s = w->o.idle_s;
	w->token = TOKEN;
	assert_ok(httpd_start(&o, &w->h, &err), &err);
	FMT(w->url, "http://localhost:%u/below/x", httpd_port(w->h));
}

static struct http_client *client_of(struct world *w)
{
	return http_client_new(
		&(struct http_policy){.greet = greet, .greet_origin = w->url, .greet_arg = w});
}

static int get(struct http_client *c, const char *url, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct http_header auth = {"Authorization", "Bearer " TOKEN};
	struct http_call call = {.url = url, .headers = &auth, .n_headers = 1};

	return http_do(c, &call, &r, err) < 0 ? -1 : http_expect(&call, &r, err);
}

/* Once for a connection, however many requests go over it; for each that is new. */
static void proof_is_asked_once_for_a_connection(void **state UNUSED)
{
	struct world w = {.o.idle_s = 1};
	AUTO_HTTP_CLIENT struct http_client *c = NULL;
	struct err err = {0};

	start(&w);
	c = client_of(&w);
	for (int i = 0; i < 5; i++)
		assert_ok(get(c, w.url, &err), &err);
	assert_int_equal(atomic_load(&w.asked), 1);
	assert_int_equal(atomic_load(&w.requests), 5);
	/* what carries no secret: asked by nobody, and its connection is used for nothing else */
	{
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_call call = {.url = w.url, .anonymous = true};
		AUTO_HTTP_CLIENT struct http_client *fresh = client_of(&w);

		assert_ok(http_do(fresh, &call, &r, &err), &err);
		assert_int_equal(atomic_load(&w.asked), 1);
		assert_ok(get(fresh, w.url, &err), &err);
		assert_int_equal(atomic_load(&w.asked), 2);
	}
	/* another origin is not greeted: nothing of ours is sent there */
	{
		AUTO_FREE char *other = xasprintf("http://127.0.0.1:%u/below/x", httpd_port(w.h));

		assert_ok(get(c, other, &err), &err);
		assert_int_equal(atomic_load(&w.asked), 2);
	}
	/* the server closes what is idle; the next request makes a new connection */
	for (int64_t until = clock_mono_ms() + 120000; atomic_load(&w.asked) < 3;) {
		assert_ok(get(c, w.url, &err), &err);
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(1500);
	}
	httpd_stop(w.h);
}

static void proof_fails_and_nothing_is_sent(void **state UNUSED)
{
	static const struct {
		const char *token;
		bool other_port;
		enum err_code id;
	} rows[] = {
		{"stoker_another", false, ERR_TOKEN_INVALID},
		{TOKEN, true, ERR_SERVER_UNPROVEN},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct world w = {0};
		AUTO_HTTP_CLIENT struct http_client *c = NULL;
		struct err err = {0};

		start(&w);
		w.token = rows[i].token;
		w.port = rows[i].other_port ? httpd_port(w.h) ^ 1U : httpd_port(w.h);
		c = client_of(&w);
		for (int k = 0; k < 3; k++) /* a connection that failed is not used again */
			assert_err(get(c, w.url, &err), &err, rows[i].id, "");
		assert_int_equal(atomic_load(&w.greeted), 3);
		assert_int_equal(atomic_load(&w.requests), 0);
		httpd_stop(w.h);
	}
}

/* --- against whoever answers there --- */

struct liar {
	int fd;
	const char *says;
	bool keeps; /* the connection open */
};

static void *lie(void *arg)
{
	struct liar *l = arg;
	struct str s = str_of(l->says);
	char request[4096];

	(void)recv(l->fd, request, sizeof(request), 0);
	while (s.n > 0) {
		ssize_t n = send(l->fd, s.p, s.n, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		s = str_skip(s, (size_t)n);
	}
	if (!l->keeps)
		(void)shutdown(l->fd, SHUT_WR);
	return NULL;
}

static void proof_refuses_liars(void **state UNUSED)
{
#define OK "HTTP/1.1 200 OK\r\n"
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	static const struct {
		const char *name, *says;
		enum err_code id;
	} rows[] = {
		{"nothing", "", ERR_UNAVAILABLE},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", ERR_UNAVAILABLE},
		{"half a head", OK "Content-Le", ERR_UNAVAILABLE},
		{"half a body", OK "Content-Length: 10\r\n\r\n{", ERR_UNAVAILABLE},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n", ERR_SERVER_UNPROVEN},
		{"no length", OK "\r\n{}", ERR_SERVER_UNPROVEN},
		{"a negative length", OK "Content-Length: -2\r\n\r\n{}", ERR_SERVER_UNPROVEN},
		{"a huge length", OK "Content-Length: 9999999\r\n\r\n{}", ERR_SERVER_UNPROVEN},
		{"chunks", OK "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	         ERR_SERVER_UNPROVEN},
		{"no JSON", OK "Content-Length: 2\r\n\r\nhi", ERR_SERVER_UNPROVEN},
		{"an empty object", OK "Content-Length: 2\r\n\r\n{}", ERR_SERVER_UNPROVEN},
		{"a short proof",
	         OK "Content-Length: 29\r\n\r\n{\"address\":\"x\",\"proof\":\"00\"}\n",
	         ERR_SERVER_UNPROVEN},
		{"a wrong proof",
	         OK "Content-Length: 100\r\n\r\n{\"address\":\"127.0.0.1:1\",\"proof\":\"" HEX
	            "\"}",
	         ERR_SERVER_UNPROVEN},
		{"unauthorized", "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", ERR_TOKEN_INVALID},
		{"not found", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", ERR_SERVER_UNPROVEN},
		{"moved", "HTTP/1.1 302 No\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n",
	         ERR_SERVER_UNPROVEN},
		{"continue", "HTTP/1.1 100 Continue\r\n\r\n", ERR_SERVER_UNPROVEN},
		{"shutting down", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", ERR_UNAVAILABLE},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct proof p = {.host = "x", .target = PROOF_PATH, .token = STR_LIT(TOKEN)};
		struct err err = {0};
		struct liar l;
		pthread_t t;
		int pair[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		l = (struct liar){pair[1], rows[i].says, false};
		assert_int_equal(pthread_create(&t, NULL, lie, &l), 0);
		assert_row(proof_ask(&p, pair[0], &err) < 0, rows[i].name);
		if (err.id != rows[i].id)
			fail_msg("row \"%s\": %s: %s", rows[i].name, err_id(&err), err.msg);
		(void)close(pair[0]);
		(void)pthread_join(t, NULL);
		(void)close(pair[1]);
	}
}

/* Silence can be ended by somebody else, such as a signal's handler. */
static void proof_is_canceled(void **state UNUSED)
{
	atomic_bool cancel = true;
	struct proof p = {
		.host = "x", .target = PROOF_PATH, .token = STR_LIT(TOKEN), .cancel = &cancel};
	struct err err = {0};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_err(proof_ask(&p, pair[0], &err), &err, ERR_CANCELED, "");
	(void)close(pair[0]);
	(void)close(pair[1]);
}

/* A head without end ends. */
static void proof_refuses_endless_heads(void **state UNUSED)
{
	AUTO_BUF struct buf text = BUF_INIT(1 << 20);
	struct proof p = {.host = "x", .target = PROOF_PATH, .token = STR_LIT(TOKEN)};
	struct err err = {0};
	struct liar l;
	pthread_t t;
	int pair[2];

	buf_puts(&text, OK);
	while (text.n < 100000)
		buf_puts(&text, "X-Any: y\r\n");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	l = (struct liar){pair[1], buf_cstr(&text), true};
	assert_int_equal(pthread_create(&t, NULL, lie, &l), 0);
	assert_err(proof_ask(&p, pair[0], &err), &err, ERR_SERVER_UNPROVEN, "");
	(void)close(pair[0]);
	(void)pthread_join(t, NULL);
	(void)close(pair[1]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(proof_is_as_documented),
	cmocka_unit_test(proof_is_asked_once_for_a_connection),
	cmocka_unit_test(proof_fails_and_nothing_is_sent),
	cmocka_unit_test(proof_refuses_liars),
	cmocka_unit_test(proof_is_canceled),
	cmocka_unit_test(proof_refuses_endless_heads),
};
UNIT_MAIN(tests)
