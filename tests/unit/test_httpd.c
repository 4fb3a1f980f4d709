/* test_httpd.c - requests and routes: what is answered, refused and noted. */
#include "httpd_fixture.h"

static void httpd_bad_requests(void **state UNUSED)
{
	/* clang-format off */
	static const struct {
		const char *name, *request, *want;
	} cases[] = {
		{"unknown path", "GET /nowhere" HOST, " 404 "},
		{"unknown path, JSON", "GET /nowhere" HOST, "{\"message\":"},
		{"other method", "PUT /v1/jobs/7" HOST, " 405 "},
		{"other method, allowed", "PUT /v1/jobs/7" HOST, "Allow: GET, HEAD, POST, DELETE"},
		{"unknown method", "BREW /v1/jobs/7" HOST, " 405 "},
		{"unknown method and path", "BREW /pot" HOST, " 404 "},
		{"dot segment", "GET /v1/jobs/../jobs/7" HOST, " 400 "},
		{"encoded dots", "GET /v1/jobs/%2e%2E/7" HOST, " 400 "},
		{"encoded dots and slashes", "GET /s3/b/a%2f..%2fc" HOST, " 400 "},
		{"single dot", "GET /s3/b/./c" HOST, " 400 "},
		{"dots at the end", "GET /s3/b/.." HOST, " 400 "},
		{"encoded NUL", "GET /s3/b/a%00" HOST, " 400 "},
		{"broken escape", "GET /s3/b/a%2" HOST, " 400 "},
		{"no path", "GET nowhere" HOST, " 400 "},
		{"length twice", "POST /echo" HOST "Content-Length: 0\r\nContent-Length: 5\r\n", " 400 "},
		{"length and chunked",
		 "POST /echo" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", " 400 "},
		{"unknown coding", "POST /echo" HOST "Transfer-Encoding: gzip, chunked\r\n", " 400 "},
		{"negative length", "POST /echo" HOST "Content-Length: -5\r\n", " 400 "},
		{"too large at once",
		 "POST /echo" HOST "Content-Length: 100001\r\nExpect: 100-continue\r\n", " 413 "},
		{"no token", "POST /secret" HOST "Content-Length: 5\r\nExpect: 100-continue\r\n", " 401 "},
		{"how to sign in", "POST /secret" HOST "Content-Length: 0\r\n", "WWW-Authenticate: "},
		{"the face's own words", "GET /other" HOST, "text/x-plain"},
		{"the face's own words for a method", "PUT /other" HOST, "text/x-plain"},
		{"request id", "GET /nowhere" HOST, "X-Request-Id: "},
	};
	/* clang-format on */
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);
		AUTO_FREE char *text = xasprintf("%s" END, cases[i].request);

		raw(&w, text, &out);
		if (strstr(buf_cstr(&out), cases[i].want) == NULL)
			fail_msg("row \"%s\": %s", cases[i].name, buf_cstr(&out));
		assert_row(strstr(buf_cstr(&out), "100 Continue") == NULL, cases[i].name);
	}
	stop(&w);
}

/* Heads that two readers could understand in different ways, which is how requests are smuggled
 * past a proxy: one reply, 400, and the connection ends before what follows is taken for a request.
 */
static void httpd_ambiguous_heads(void **state UNUSED)
{
#define AFTER "\r\nGET / HTTP/1.1\r\nHost: smuggled\r\n\r\n"
#define ROW(name, text)                                                                            \
	{                                                                                          \
		name, text AFTER, sizeof(text AFTER) - 1                                           \
	}
	/* clang-format off */
	static const struct {
		const char *name, *bytes;
		size_t n;
	} cases[] = {
		ROW("blank before the colon", "POST /echo" HOST "Content-Length: 4\r\nTransfer-Encoding : chunked\r\n"),
		ROW("tab before the colon", "POST /echo" HOST "Content-Length: 4\r\nTransfer-Encoding\t: chunked\r\n"),
		ROW("blank before the colon of any", "GET /" HOST "X-Any : y\r\n"),
		ROW("no name", "GET /" HOST ": y\r\n"),
		ROW("a name that is no token", "GET /" HOST "X(Any): y\r\n"),
		ROW("bare LF behind the request line", "GET / HTTP/1.1\nHost: x\r\n"),
		ROW("bare LF behind a header", "GET /" HOST "X-Any: y\nX-More: z\r\n"),
		ROW("bare LF behind the last header", "GET /" HOST "X-Any: y\n"),
		{"bare LF at the end", "GET /" HOST "\nGET / HTTP/1.1\r\nHost: s\r\n\r\n",
		 sizeof("GET /" HOST "\nGET / HTTP/1.1\r\nHost: s\r\n\r\n") - 1},
		ROW("bare LF hides a header", "GET /" HOST "X-Any: y\nTransfer-Encoding: chunked\r\n"),
		ROW("bare CR in a value", "GET /" HOST "X-Any: y\rX-More: z\r\n"),
		ROW("NUL in a value", "GET /" HOST "X-Any: y\0z\r\n"),
		ROW("NUL in a name", "GET /" HOST "X-A\0ny: y\r\n"),
		ROW("NUL at the start of a line", "GET /" HOST "\0X-Any: y\r\n"),
		ROW("NUL in the path", "GET /v1/jobs/7\0/x" HOST "X-Any: y\r\n"),
		ROW("NUL in a token", "GET /other" HOST "Authorization: Bearer good\0bad\r\n"),
		ROW("control character in a value", "GET /" HOST "X-Any: y\x1b[31m\r\n"),
		ROW("a folded line", "GET /" HOST "X-Any: y\r\n z\r\n"),
		ROW("a folded first line", "GET / HTTP/1.1\r\n Host: x\r\nHost: x\r\n"),
		ROW("two hosts", "GET /" HOST "Host: y\r\n"),
		ROW("the same host twice", "GET /" HOST "Host: x\r\n"),
		ROW("no host", "GET / HTTP/1.1\r\n"),
		ROW("two tokens", "GET /other" HOST "Authorization: Bearer good\r\nAuthorization: Bearer bad\r\n"),
		ROW("two ranges", "GET /file" HOST "Range: bytes=0-1\r\nrange: bytes=2-3\r\n"),
		ROW("two dates of a signature", "GET /" HOST "X-Amz-Date: 1\r\nx-amz-date: 2\r\n"),
		ROW("a length with a sign", "POST /echo" HOST "Content-Length: +4\r\n"),
		ROW("a list of lengths", "POST /echo" HOST "Content-Length: 4, 4\r\n"),
		ROW("chunked twice", "POST /echo" HOST "Transfer-Encoding: chunked, chunked\r\n"),
		ROW("chunked behind a control character", "POST /echo" HOST "Content-Length: 4\r\nTransfer-Encoding: \vchunked\r\n"),
		ROW("blanks in the request line", "GET  /" HOST),
		ROW("a blank in the path", "GET /v1/jobs/7 8" HOST),
		ROW("a blank behind the version", "GET / HTTP/1.1 \r\nHost: x\r\n"),
		ROW("a tab in the request line", "GET\t/ HTTP/1.1\r\nHost: x\r\n"),
	};
	/* clang-format on */
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);
		AUTO_FD int fd = dial(&w);
		const char *reply;

		assert_int_equal(send(fd, cases[i].bytes, cases[i].n, MSG_NOSIGNAL),
		                 (ssize_t)cases[i].n);
		read_until(fd, NULL, &out);
		reply = buf_cstr(&out);
		/* a request line that nobody can read gets no reply at all */
		if ((out.n > 0 && strncmp(reply, "HTTP/1.1 400 ", 13) != 0) ||
		    strstr(reply, " 200 ") != NULL)
			fail_msg("row \"%s\": %s", cases[i].name, reply);
	}
	stop(&w);
#undef ROW
#undef AFTER
}

/* What is unusual, and clear. */
static void httpd_unusual_heads(void **state UNUSED)
{
	/* clang-format off */
	static const struct {
		const char *name, *request, *want;
	} cases[] = {
		{"no blank behind the colon", "GET / HTTP/1.1\r\nHost:x\r\n", " 200 "},
		{"blanks around values", "GET /other" HOST "Authorization:\t Bearer good\r\n", " 200 "},
		{"empty value", "GET /" HOST "X-Any:\r\n", " 200 "},
		{"a value beyond ASCII", "GET /" HOST "X-Any: \xc3\xa4\r\n", " 200 "},
		{"a tab in a value", "GET /" HOST "X-Any: a\tb\r\n", " 200 "},
		{"a name of all letters", "GET /" HOST "!#$%&'*+-.^_`|~09azAZ: y\r\n", " 200 "},
		{"headers that may repeat", "GET /" HOST "Accept: a\r\nAccept: b\r\nX-Any: y\r\nX-Any: z\r\n", " 200 "},
		{"HTTP/1.0 without a host", "GET / HTTP/1.0\r\n", " 200 "},
		{"a query", "GET /file?size=77&x=%20+y" HOST, " 200 "},
		{"absolute form", "GET http://elsewhere/file?size=77" HOST, " 200 "},
		{"an empty line first", "\r\nGET /" HOST, " 200 "},
		{"cookies", "GET /" HOST "Cookie: a=b; c=\"d\"; e\r\nX-Any: y\r\n", " 200 "},
		{"chunked", "POST /echo" HOST "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n", "ab"},
	};
	/* clang-format on */
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);
		AUTO_FREE char *text = xasprintf("%s" END, cases[i].request);

		raw(&w, text, &out);
		if (strstr(buf_cstr(&out), cases[i].want) == NULL)
			fail_msg("row \"%s\": %s", cases[i].name, buf_cstr(&out));
	}
	stop(&w);
}

/* A head byte by byte, one that makes every buffer grow, and several on one connection. */
static void httpd_heads_in_pieces(void **state UNUSED)
{
	AUTO_BUF struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);
	struct world w = {0};
	int fd;

	start(&w, NULL);
	for (int k = 0; k < 3; k++) {
		buf_printf(&text, "GET /file?size=%d" HOST, 70 + k);
		for (int i = 0; i < 90; i++)
			buf_printf(&text, "X-Header-%d:%*s%d\r\n", i, i + 1, " ", i * k);
		buf_puts(&text, k < 2 ? "\r\n" : END);
	}
	fd = dial(&w);
	for (size_t i = 0; i < text.n; i += 7)
		assert_true(send(fd, text.p + i, MIN(text.n - i, (size_t)7), MSG_NOSIGNAL) > 0);
	read_until(fd, NULL, &out);
	(void)close(fd);
	for (int k = 0; k < 3; k++) {
		char want[40];

		FMT(want, "Content-Length: %d\r\n", 70 + k);
		if (memmem(out.p, out.n, want, strlen(want)) == NULL)
			fail_msg("%s in %.2000s", want, buf_cstr(&out));
	}
	assert_null(strstr(buf_cstr(&out), " 400 "));
	stop(&w);
}

/* More parameters or cookies than libmicrohttpd has memory for. Each is answered, and nothing of it
 * is left: stop() counts. */
static void httpd_many_parameters(void **state UNUSED)
{
	static const struct {
		const char *begin, *again, *end, *want;
	} cases[] = {
		{"GET /file?", "a=1&", "size=77" HOST, "HTTP/1.1 200 "},
		{"GET /file?", "a&", "size=77" HOST, "HTTP/1.1 200 "},
		{"GET /file?size=77", "&", HOST, "HTTP/1.1 200 "},
		{"GET /file?size=77&", "?", HOST, "HTTP/1.1 200 "},
		{"GET /" HOST "Cookie: ", "a=1; ", "b=2\r\n", "HTTP/1.1 431 "},
	};
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

		buf_puts(&text, cases[i].begin);
		while (text.n < 20000)
			buf_puts(&text, cases[i].again);
		buf_printf(&text, "%s" END, cases[i].end);
		raw(&w, buf_cstr(&text), &out);
		if (strncmp(buf_cstr(&out), cases[i].want, strlen(cases[i].want)) != 0)
			fail_msg("row %zu: %s", i, buf_cstr(&out));
	}
	stop(&w);
}

static void httpd_large_head(void **state UNUSED)
{
	AUTO_BUF struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);
	struct world w = {0};

	start(&w, NULL);
	buf_puts(&text, "GET /" HOST);
	for (int i = 0; i < 101; i++)
		buf_printf(&text, "X-%d: y\r\n", i);
	buf_puts(&text, "\r\n");
	raw(&w, buf_cstr(&text), &out);
	assert_non_null(strstr(buf_cstr(&out), " 431 "));

	for (int size = 40000; size <= 80000; size += 40000) {
		buf_clear(&text);
		buf_clear(&out);
		buf_puts(&text, "GET /" HOST "X-Long: ");
		for (int i = 0; i < size; i++)
			buf_putc(&text, 'y');
		buf_puts(&text, "\r\n\r\n");
		raw(&w, buf_cstr(&text), &out);
		assert_non_null(strstr(buf_cstr(&out), " 431 "));
	}
	stop(&w);
}

static void httpd_bad_addresses(void **state UNUSED)
{
	struct httpd_options o = {.faces = faces, .n_faces = COUNT(faces)};
	struct httpd *second = NULL;
	struct world w = {0};
	struct err err = {0};
	char at[40];

	start(&w, NULL);
	FMT(at, "127.0.0.1:%u", httpd_port(w.h));
	o.address = at;
	assert_err(httpd_start(&o, &second, &err), &err, ERR_ADDRESS_IN_USE, "");
	o.address = "nonsense";
	assert_err(httpd_start(&o, &second, &err), &err, ERR_INVALID, "HOST:PORT");
	o.address = "127.0.0.1:70000";
	assert_err(httpd_start(&o, &second, &err), &err, ERR_INVALID, "HOST:PORT");
	o.address = "127.0.0.1:0";
	o.tls_cert = o.tls_key = "/nonexistent.pem";
	assert_err(httpd_start(&o, &second, &err), &err, ERR_NOT_FOUND, "nonexistent.pem");
	o.tls_cert = o.tls_key = "/etc/hostname";
	assert_err(httpd_start(&o, &second, &err), &err, ERR_INVALID, "PEM");
	assert_null(second);
	stop(&w);
}

/* Routing */

static void httpd_routes(void **state UNUSED)
{
	static const struct {
		const char *target, *key, *want;
	} cases[] = {
		{"/v1/jobs/search", "pattern", "/v1/jobs/search"},
		{"/v1/jobs/7", "arg0", "7"},
		{"/v1/jobs/7/", "arg0", "7"},
		{"/v1/jobs/a%20b+c", "arg0", "a b+c"},
		{"/v1/jobs/a%2Fb", "arg0", "a/b"},
		{"/v1/jobs/a%2Fb", "path", "/v1/jobs/a%2Fb"},
		{"/v1/jobs/...", "arg0", "..."},
		{"/v1/jobs/7?x=%41&y=../..", "query", "x=%41&y=../.."},
		{"//graphql/", "pattern", "/graphql/"},
		{"/graphql", "pattern", "/graphql/"},
		{"//graphql/", "path", "//graphql/"},
		{"/s3/b", "pattern", "/s3/{bucket}"},
		{"/s3/b/", "pattern", "/s3/{bucket}"},
		{"/s3/b/k", "arg1", "k"},
		{"/s3/b/k/l//m%20n/", "arg1", "k/l//m n/"},
		{"http://api.localhost:8000/v1/jobs/9?q=1", "target", "/v1/jobs/9?q=1"},
		{"HTTPS://any.host/v1/jobs/9", "arg0", "9"},
		{"http://any.host", "pattern", "/"},
		{"http://any.host?q=1", "query", "q=1"},
		{"/", "peer", "127.0.0.1"},
	};
	struct world w = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf out = BUF_INIT(1 << 20);
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_FREE char *text = xasprintf("GET %s" HOST END, cases[i].target);
		const struct doc *d = NULL;
		struct err err = {0};
		const char *body;

		raw(&w, text, &out);
		body = strstr(buf_cstr(&out), "\r\n\r\n");
		assert_non_null(body);
		assert_ok(js_parse(a, str_of(body + 4), &d, &err), &err);
		if (!str_eq(doc_text(doc_get(d, cases[i].key)), cases[i].want))
			fail_msg("target %s: %s", cases[i].target, body);
	}
	stop(&w);
}

static void note_route(const struct face *f, const struct route *r, void *arg)
{
	assert_true(f == &face || f == &other);
	assert_non_null(r->help);
	++*(unsigned *)arg;
}

static void httpd_lists_its_routes(void **state UNUSED)
{
	unsigned n = 0;

	httpd_each_route(faces, COUNT(faces), note_route, &n);
	assert_int_equal(n, COUNT(routes) + COUNT(other_routes));
}

static void httpd_head(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(1 << 16);
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	raw(&w, "HEAD /file?size=77" HOST END, &out);
	assert_non_null(strstr(buf_cstr(&out), " 200 "));
	assert_non_null(strstr(buf_cstr(&out), "Content-Length: 77"));
	assert_true(str_ends(buf_view(&out), "\r\n\r\n"));
	assert_ok(fetch(&w, HTTP_HEAD, "/file?size=77", (struct str){0}, &r, &err), &err);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.length, 77);
	assert_int_equal(r.body.n, 0);
	stop(&w);
}

static void httpd_notes_every_reply(void **state UNUSED)
{
	static const char *const paths[] = {"/", "/missing", "/v1/jobs/7", "/other", "/v1/../x"};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	for (size_t i = 0; i < COUNT(paths); i++) {
		AUTO_HTTP_REPLY struct http_reply r = {0};

		assert_ok(get(&w, paths[i], &r, &err), &err);
	}
	assert_int_equal(w.notes, COUNT(paths));
	assert_int_equal(w.failures, 3);
	stop(&w);
}

static void httpd_other_addresses(void **state UNUSED)
{
	static const struct {
		const char *address, *host;
	} cases[] = {{"[::1]:0", "[::1]"}, {"localhost:0", "127.0.0.1"}, {":0", "127.0.0.1"}};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_HTTP_CLIENT struct http_client *c = http_client_new(&(struct http_policy){0});
		struct httpd_options o = {
			.address = cases[i].address, .faces = faces, .n_faces = COUNT(faces)};
		AUTO_HTTP_REPLY struct http_reply r = {0};
		AUTO_FREE char *url = NULL;
		struct http_call call = {0};
		struct httpd *h = NULL;
		struct err err = {0};

		if (httpd_start(&o, &h, &err) < 0) { /* a machine without IPv6 */
			assert_true(i == 0 && strstr(err.msg, "::1") != NULL);
			continue;
		}
		url = xasprintf("http://%s:%u/", cases[i].host, httpd_port(h));
		call.url = url;
		assert_ok(http_do(c, &call, &r, &err), &err);
		assert_int_equal(r.status, 200);
		httpd_stop(h);
	}
}

static void httpd_no_header_injection(void **state UNUSED)
{
	AUTO_HTTP_REPLY struct http_reply r = {0};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	assert_ok(get(&w, "/split", &r, &err), &err);
	assert_int_equal(http_header_of(&r, "x-injected").n, 0);
	assert_int_equal(r.status, 200);
	stop(&w);
}

/* Bodies */

static void httpd_small_bodies(void **state UNUSED)
{
	static const struct {
		const char *path, *body, *want;
		int status;
	} cases[] = {
		{"/echo", "hello", "hello", 200},     {"/echo", "", "", 200},
		{"/json", "{\"a\":\"b\"}", "b", 200}, {"/json", "{\"a\":", "message", 400},
		{"/json", " ", "empty", 400},         {"/json", "", "empty", 400},
	};
	struct world w = {0};
	struct err err = {0};

	start(&w, NULL);
	for (size_t i = 0; i < 60; i++) { /* on one connection */
		size_t k = i % COUNT(cases);
		AUTO_HTTP_REPLY struct http_reply r = {0};

		assert_ok(fetch(&w, HTTP_POST, cases[k].path, str_of(cases[k].body), &r, &err),
		          &err);
		assert_int_equal(r.status, cases[k].status);
		assert_non_null(strstr(buf_cstr(&r.body), cases[k].want));
	}
	stop(&w);
}

static void httpd_too_large_chunked(void **state UNUSED)
{
	AUTO_BUF struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 16);
	struct world w = {0};

	start(&w, NULL);
	buf_puts(&text, "POST /echo" HOST "Transfer-Encoding: chunked\r\n" END);
	for (int i = 0; i < 200; i++) {
		buf_puts(&text, "400\r\n");
		for (int k = 0; k < 1024; k++)
			buf_putc(&text, 'x');
		buf_puts(&text, "\r\n");
	}
	buf_puts(&text, "0\r\n\r\n");
	raw(&w, buf_cstr(&text), &out);
	assert_non_null(strstr(buf_cstr(&out), " 413 "));
	assert_int_equal(w.body_calls, 0);
	stop(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(httpd_bad_requests),        cmocka_unit_test(httpd_ambiguous_heads),
	cmocka_unit_test(httpd_unusual_heads),       cmocka_unit_test(httpd_heads_in_pieces),
	cmocka_unit_test(httpd_many_parameters),     cmocka_unit_test(httpd_large_head),
	cmocka_unit_test(httpd_bad_addresses),       cmocka_unit_test(httpd_routes),
	cmocka_unit_test(httpd_lists_its_routes),    cmocka_unit_test(httpd_head),
	cmocka_unit_test(httpd_notes_every_reply),   cmocka_unit_test(httpd_other_addresses),
	cmocka_unit_test(httpd_no_header_injection), cmocka_unit_test(httpd_small_bodies),
	cmocka_unit_test(httpd_too_large_chunked),
};
UNIT_MAIN(tests)
