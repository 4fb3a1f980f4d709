/*
 * test_client_served.c - the client against our own listener: redirects, bodies and TLS, seen from
 * the other side.
 */
#include "base/clock.h"
#include "io/httpd.h"
#include "tls_fixture.h"

#include <pthread.h>
#include <sys/mman.h>

/* Says what arrived: "METHOD authorization cookie other body". */
static int mirror(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct str body;

	if (request_body(rq, &body, err) < 0)
		return -1;
	buf_printf(&out, "%s [%.*s] [%.*s] [%.*s] [%.*s]", http_method_name[rq->method],
	           STR_ARG(request_header(rq, "authorization")),
	           STR_ARG(request_header(rq, "cookie")), STR_ARG(request_header(rq, "x-other")),
	           STR_ARG(body));
	return reply_bytes(rq, 200, "text/plain", buf_view(&out));
}

static int redirect(struct request *rq, struct err *err)
{
	int64_t status = request_query_int(rq, "status", 302, err);
	struct str to;

	if (!request_query(rq, "to", &to))
		return err_set(err, ERR_INVALID, "to");
	reply_header(rq, "Location", to.p);
	return reply_bytes(rq, (int)status, NULL, STR_LIT("moved"));
}

static int file(struct request *rq, struct err *err UNUSED)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	ssize_t n = write(fd, "0123456789", 10);

	assert(fd >= 0 && n == 10);
	return reply_file(rq, "text/plain", fd, 10, NULL);
}

static const struct route routes[] = {
	{HTTP_GET, SCOPE_OPEN, 0, "/file", file, ""},
	{HTTP_GET, SCOPE_OPEN, 0, "/mirror", mirror, ""},
	{HTTP_PUT, SCOPE_OPEN, 100, "/mirror", mirror, ""},
	{HTTP_POST, SCOPE_OPEN, 100, "/mirror", mirror, ""},
	{HTTP_PATCH, SCOPE_OPEN, 100, "/mirror", mirror, ""},
	{HTTP_DELETE, SCOPE_OPEN, 100, "/mirror", mirror, ""},
	{HTTP_GET, SCOPE_OPEN, 0, "/redirect", redirect, ""},
	{HTTP_POST, SCOPE_OPEN, 100, "/redirect", redirect, ""},
	{HTTP_PUT, SCOPE_OPEN, 100, "/redirect", redirect, ""},
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

	assert_ok(httpd_start(&o, &h, &err), &err);
	return h;
}

static void client_redirects(void **state UNUSED)
{
	static const struct {
		const char *name;
		enum http_method method;
		int status;
		bool away; /* to another origin */
		const char *want;
	} cases[] = {
		{"leaves the host", HTTP_GET, 302, true, "GET [] [] [o] []"},
		{"leaves the host with a body", HTTP_PUT, 307, true, "PUT [] [] [o] [body]"},
		{"stays", HTTP_GET, 302, false, "GET [Bearer t] [c=1] [o] []"},
		{"permanent", HTTP_GET, 308, false, "GET [Bearer t] [c=1] [o] []"},
		{"see other", HTTP_POST, 303, false, "GET [Bearer t] [c=1] [o] []"},
		{"found after POST", HTTP_POST, 302, false, "GET [Bearer t] [c=1] [o] []"},
		{"temporary after POST", HTTP_POST, 307, false, "POST [Bearer t] [c=1] [o] [body]"},
		{"found after PUT", HTTP_PUT, 302, false, "PUT [Bearer t] [c=1] [o] [body]"},
	};
	static const struct http_header headers[] = {
		{"Authorization", "Bearer t"}, {"cookie", "c=1"}, {"X-Other", "o"}};
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct httpd *here = serve(NULL, NULL), *there = serve(NULL, NULL);

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0}, first = {0};
		AUTO_FREE char *to = xasprintf("http://127.0.0.1:%u/mirror", httpd_port(there)),
			       *url;
		struct http_call call = {.method = cases[i].method,
		                         .headers = headers,
		                         .n_headers = COUNT(headers),
		                         .redirects_max = 5};
		struct err err = {0};

		if (cases[i].method != HTTP_GET)
			call.body = STR_LIT("body");
		url = xasprintf("http://127.0.0.1:%u/redirect?status=%d&to=%s", httpd_port(here),
		                cases[i].status, cases[i].away ? to : "/mirror");
		call.url = url;
		assert_ok(http_do(c, &call, &r, &err), &err);
		if (!str_eq(buf_view(&r.body), cases[i].want))
			fail_msg("row \"%s\": %s", cases[i].name, buf_cstr(&r.body));
		assert_row(str_ends(str_of(r.url), "/mirror"), cases[i].name);
		call.redirects_max = 0;
		assert_ok(http_do(c, &call, &first, &err), &err);
		assert_row(first.status == cases[i].status, cases[i].name);
	}
	httpd_stop(here);
	httpd_stop(there);
}

static void client_user_in_url(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	AUTO_HTTP_REPLY struct http_reply r = {0}, s = {0};
	struct httpd *here = serve(NULL, NULL), *there = serve(NULL, NULL);
	AUTO_FREE char *url = xasprintf("http://u:p%%40@127.0.0.1:%u/mirror", httpd_port(here));
	AUTO_FREE char *away =
		xasprintf("http://u:p@127.0.0.1:%u/redirect?to=http://v:w@127.0.0.1:%u/mirror",
	                  httpd_port(here), httpd_port(there));
	struct http_call call = {.url = url, .redirects_max = 1};
	struct err err = {0};

	assert_ok(http_do(c, &call, &r, &err), &err);
	assert_true(str_eq(buf_view(&r.body), "GET [Basic dTpwQA==] [] [] []"));
	call.url = away; /* neither ours nor one that the redirect names */
	assert_ok(http_do(c, &call, &s, &err), &err);
	assert_true(str_eq(buf_view(&s.body), "GET [] [] [] []"));
	httpd_stop(here);
	httpd_stop(there);
}

/* Bodies */

struct give {
	size_t left, piece;
};

static int give(void *arg, void *p, size_t cap, size_t *n, struct err *err UNUSED)
{
	struct give *g = arg;

	*n = MIN(MIN(g->left, g->piece), cap);
	memset(p, 'r', *n);
	g->left -= *n;
	return 0;
}

static int give_up(void *arg UNUSED, void *p UNUSED, size_t cap UNUSED, size_t *n UNUSED,
                   struct err *err)
{
	return err_set(err, ERR_IO, "the tape is torn");
}

static void client_bodies(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
	struct httpd *h = serve(NULL, NULL);
	AUTO_FREE char *url = xasprintf("http://127.0.0.1:%u/mirror", httpd_port(h));
	AUTO_FD int fd = memfd_create("body", MFD_CLOEXEC);
	struct give g = {5, 2}, short_one = {5, 2};
	struct http_reply none;
	struct err err = {0};
	const struct {
		struct http_call call;
		const char *want;
	} cases[] = {
		{{.method = HTTP_POST, .body = STR_LIT("bytes")}, "POST [] [] [] [bytes]"},
		{{.method = HTTP_PATCH, .body = STR_LIT("bytes")}, "PATCH [] [] [] [bytes]"},
		{{.method = HTTP_DELETE, .body = STR_LIT("bytes")}, "DELETE [] [] [] [bytes]"},
		{{.method = HTTP_POST}, "POST [] [] [] []"},
		{{.method = HTTP_PUT}, "PUT [] [] [] []"},
		{{.method = HTTP_DELETE}, "DELETE [] [] [] []"},
		{{.method = HTTP_PUT,
	          .body_fd = fd,
	          .has_body_fd = true,
	          .body_at = 3,
	          .body_len = 4},
	         "PUT [] [] [] [3456]"},
		{{.method = HTTP_PUT, .read = give, .arg = &g, .body_len = UINT64_MAX},
	         "PUT [] [] [] [rrrrr]"},
	};
	struct http_call torn = {.method = HTTP_PUT, .url = url, .read = give_up, .body_len = 9};
	struct http_call shorter = {
		.method = HTTP_PUT, .url = url, .read = give, .arg = &short_one, .body_len = 9};
	struct http_call beyond = {.method = HTTP_PUT,
	                           .url = url,
	                           .body_fd = fd,
	                           .has_body_fd = true,
	                           .body_at = 8,
	                           .body_len = 9};

	assert_int_equal(pwrite(fd, "0123456789", 10, 0), 10);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_call call = cases[i].call;

		call.url = url;
		assert_ok(http_do(c, &call, &r, &err), &err);
		assert_string_equal(buf_cstr(&r.body), cases[i].want);
	}
	assert_err(http_do(c, &torn, &none, &err), &err, ERR_IO, "the tape is torn");
	assert_err(http_do(c, &shorter, &none, &err), &err, ERR_IO, "5 of 9");
	if (http_do(c, &beyond, &none, &err) == 0)
		fail_msg("a file that is too short was sent");
	httpd_stop(h);
}

/* TLS: a server nobody vouches for is refused, with its certificate as the CA it is believed. */
static void client_tls(void **state UNUSED)
{
	struct tls_files tls;
	AUTO_HTTP_CLIENT struct http_client *wary = http_client_new(&(struct http_policy){0});
	AUTO_HTTP_CLIENT struct http_client *sure = NULL;
	AUTO_HTTP_REPLY struct http_reply r = {0};
	AUTO_FREE char *url = NULL, *down = NULL, *other = NULL, *whole = NULL;
	struct httpd *h, *plain;
	struct err err = {0};

	tls_make(&tls);
	h = serve(tls.cert, tls.key);
	plain = serve(NULL, NULL);
	sure = http_client_new(&(struct http_policy){.ca_file = tls.cert});
	url = xasprintf("https://127.0.0.1:%u/mirror", httpd_port(h));
	whole = xasprintf("https://127.0.0.1:%u/file", httpd_port(h));
	other = xasprintf("https://localhost:%u/mirror", httpd_port(h));
	down = xasprintf("https://127.0.0.1:%u/redirect?to=http://127.0.0.1:%u/mirror",
	                 httpd_port(h), httpd_port(plain));
	assert_err(http_do(wary, &(struct http_call){.url = url}, &r, &err), &err, ERR_UNAVAILABLE,
	           "ertificate");
	assert_err(http_do(sure, &(struct http_call){.url = other}, &r, &err), &err,
	           ERR_UNAVAILABLE, "GET");
	assert_ok(http_do(sure, &(struct http_call){.url = url}, &r, &err), &err);
	assert_true(str_eq(buf_view(&r.body), "GET [] [] [] []"));
	http_reply_done(&r);
	assert_ok(http_do(sure, &(struct http_call){.url = whole}, &r, &err), &err);
	assert_true(str_eq(buf_view(&r.body), "0123456789"));
	http_reply_done(&r);
	assert_err(http_do(sure, &(struct http_call){.url = down, .redirects_max = 1}, &r, &err),
	           &err, ERR_DENIED, "https to http");
	httpd_stop(h);
	httpd_stop(plain);
	tls_remove(&tls);
}

struct crowd {
	struct http_client *c;
	const char *url;
	unsigned bad;
};

static void *crowd_thread(void *arg)
{
	struct crowd *w = arg;

	for (int i = 0; i < 50; i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};
		struct http_call call = {.url = w->url};
		struct err err = {0};

		w->bad += http_do(w->c, &call, &r, &err) < 0 || r.status != 200;
	}
	return NULL;
}

static void client_shared(void **state UNUSED)
{
	AUTO_HTTP_CLIENT struct http_client *c =
		http_client_new(&(struct http_policy){.guard = false});
	struct httpd *h = serve(NULL, NULL);
	AUTO_FREE char *url = xasprintf("http://127.0.0.1:%u/mirror", httpd_port(h));
	struct crowd crowd[8];
	pthread_t threads[8];

	for (size_t i = 0; i < COUNT(threads); i++) {
		crowd[i] = (struct crowd){c, url, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, crowd_thread, &crowd[i]), 0);
	}
	for (size_t i = 0; i < COUNT(threads); i++) {
		(void)pthread_join(threads[i], NULL);
		assert_int_equal(crowd[i].bad, 0);
	}
	httpd_stop(h);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(client_bodies),      cmocka_unit_test(client_redirects),
	cmocka_unit_test(client_user_in_url), cmocka_unit_test(client_tls),
	cmocka_unit_test(client_shared),
};
UNIT_MAIN(tests)
