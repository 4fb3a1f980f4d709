/* test_httpd.c - a real listener on loopback, driven by our client and by raw sockets. */
#include "base/clock.h"
#include "base/json.h"
#include "io/httpd.h"
#include "unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

#define BIG ((uint64_t)50 << 20)
#define WAIT_MS 120000 /* against a hang */
#define END "Connection: close\r\n\r\n"

/* Deterministic bytes, so that a hole or a swap anywhere shows. */
static void pattern(uint64_t at, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(((at + i) * 2654435761U) >> 13);
}

struct world {
	struct httpd *h;
	struct http_client *c;
	atomic_uint entered, left; /* handlers of /slow */
	atomic_bool go;
	atomic_uint parked, news;
	atomic_uint body_calls;
	_Atomic(enum err_code) read_failed;
	atomic_uint notes, failures;
};

/* Handlers */

static int say(struct request *rq, struct err *err UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(65536);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "method", http_method_name[rq->method]);
	js_kv_str(&js, "path", rq->path);
	js_kv_str(&js, "query", rq->query);
	js_kv_str(&js, "target", rq->target);
	js_kv(&js, "pattern", rq->route->pattern);
	js_kv(&js, "peer", rq->peer);
	for (size_t i = 0; i < rq->n_arg; i++) {
		char key[8];

		FMT(key, "arg%zu", i);
		js_kv_str(&js, key, rq->arg[i]);
	}
	js_close(&js);
	return reply_json(rq, 200, &out);
}

static int echo(struct request *rq, struct err *err)
{
	struct world *w = rq->ctx;
	struct str body;

	atomic_fetch_add(&w->body_calls, 1);
	if (request_body(rq, &body, err) < 0)
		return -1;
	return reply_bytes(rq, 200, "text/plain", body);
}

static int count(struct request *rq, struct err *err)
{
	AUTO_FREE uint8_t *got = xmalloc(65536), *want = xmalloc(65536);
	struct world *w = rq->ctx;
	char text[32];
	uint64_t at = 0;
	size_t n;

	do {
		if (request_read(rq, got, 65536, &n, err) < 0) {
			atomic_store(&w->read_failed, err->code);
			return -1;
		}
		pattern(at, want, n);
		if (memcmp(got, want, n) != 0)
			return err_set(err, ERR_CORRUPT, "different bytes after %" PRIu64, at);
		at += n;
	} while (n > 0);
	FMT(text, "%" PRIu64, at);
	return reply_bytes(rq, 200, "text/plain", str_of(text));
}

static int refuse_midway(struct request *rq, struct err *err)
{
	uint8_t p[1000];
	size_t n;

	if (request_read(rq, p, sizeof(p), &n, err) < 0)
		return -1;
	return err_set(err, ERR_NO_SPACE, "the disk is full");
}

static int unread(struct request *rq UNUSED, struct err *err)
{
	return err_set(err, ERR_CONFLICT, "not now");
}

static int slow(struct request *rq, struct err *err UNUSED)
{
	struct world *w = rq->ctx;

	atomic_fetch_add(&w->entered, 1);
	while (!atomic_load(&w->go))
		clock_sleep_ms(5);
	atomic_fetch_add(&w->left, 1);
	return reply_bytes(rq, 200, "text/plain", STR_LIT("done"));
}

static int follow(struct request *rq, struct err *err UNUSED)
{
	struct world *w = rq->ctx;
	struct httpd *h = request_httpd(rq);
	uint64_t channel = httpd_channel("news", rq->arg[0]), seq = httpd_channel_seq(h, channel);
	int64_t wait = request_query_int(rq, "ms", 60000, err);
	char text[64];

	if (atomic_load(&w->news) == 0 && !rq->timed_out) {
		if (rq->wakes == 0)
			atomic_fetch_add(&w->parked, 1);
		return reply_wait(rq, channel, seq, clock_mono_ms() + wait);
	}
	FMT(text, "news %u timed_out %d", atomic_load(&w->news), rq->timed_out);
	return reply_bytes(rq, 200, "text/plain", str_of(text));
}

/* Parks with a sequence read before a notification that comes in between. */
static int race(struct request *rq, struct err *err UNUSED)
{
	struct httpd *h = request_httpd(rq);
	uint64_t channel = httpd_channel("race", (struct str){0}),
		 seq = httpd_channel_seq(h, channel);

	if (rq->wakes > 0)
		return reply_bytes(rq, 200, NULL,
		                   rq->timed_out ? STR_LIT("late") : STR_LIT("woken"));
	httpd_notify(h, channel);
	return reply_wait(rq, channel, seq, clock_mono_ms() + 60000);
}

static int temp_file(uint64_t size)
{
	AUTO_FREE uint8_t *p = xmalloc(1 << 20);
	char name[] = "/tmp/stoker-httpd-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	assert(fd >= 0);
	(void)unlink(name);
	for (uint64_t at = 0; at < size; at += 1 << 20) {
		size_t n = (size_t)MIN(size - at, (uint64_t)1 << 20);
		ssize_t wrote;

		pattern(at, p, n);
		wrote = pwrite(fd, p, n, (off_t)at);
		assert(wrote == (ssize_t)n);
	}
	return fd;
}

static int file(struct request *rq, struct err *err)
{
	int64_t size = request_query_int(rq, "size", 1000, err);

	if (err->code != ERR_NONE)
		return -1;
	return reply_file(rq, "application/octet-stream", temp_file((uint64_t)size), (uint64_t)size,
	                  "v1");
}

static int splitter(struct request *rq, struct err *err UNUSED)
{
	reply_header(rq, "X-Evil", "a\r\nX-Injected: yes");
	return reply_bytes(rq, 200, NULL, STR_LIT("ok"));
}

static int parsed(struct request *rq, struct err *err)
{
	const struct doc *d;

	if (request_json(rq, &d, err) < 0)
		return -1;
	return reply_bytes(rq, 200, "text/plain", doc_text(doc_get(d, "a")));
}

/* clang-format off */
static const struct route routes[] = {
	{HTTP_GET, SCOPE_OPEN, 0, "/", say, "root"},
	{HTTP_GET, SCOPE_OPEN, 0, "/v1/jobs/search", say, "before the capture"},
	{HTTP_GET, SCOPE_OPEN, 0, "/v1/jobs/{job}", say, "one capture"},
	{HTTP_POST, SCOPE_OPEN, 64, "/v1/jobs/{job}", echo, "same path, other method"},
	{HTTP_DELETE, SCOPE_OPEN, 64, "/v1/jobs/{job}", echo, "and another"},
	{HTTP_GET, SCOPE_OPEN, 0, "/graphql/", say, "with a slash at the end"},
	{HTTP_GET, SCOPE_OPEN, 0, "/s3/{bucket}", say, "a bucket"},
	{HTTP_GET, SCOPE_OPEN, 0, "/s3/{bucket}/{key...}", say, "an object"},
	{HTTP_POST, SCOPE_OPEN, 100000, "/echo", echo, "body in memory"},
	{HTTP_PUT, SCOPE_OPEN, ROUTE_BODY_STREAM, "/count", count, "body as a stream"},
	{HTTP_PUT, SCOPE_OPEN, ROUTE_BODY_STREAM, "/full", refuse_midway, "fails after a piece"},
	{HTTP_PUT, SCOPE_OPEN, ROUTE_BODY_STREAM, "/unread", unread, "fails before a byte"},
	{HTTP_PUT, SCOPE_MEMBER, ROUTE_BODY_STREAM, "/secret", count, "needs a caller"},
	{HTTP_POST, SCOPE_MEMBER, 1000, "/secret", echo, "needs a caller"},
	{HTTP_GET, SCOPE_OPEN, 0, "/slow", slow, "until it may go"},
	{HTTP_GET, SCOPE_OPEN, 0, "/follow/{id}", follow, "parks"},
	{HTTP_GET, SCOPE_OPEN, 0, "/race", race, "parks late"},
	{HTTP_GET, SCOPE_OPEN, 0, "/file", file, "a file"},
	{HTTP_GET, SCOPE_OPEN, 0, "/split", splitter, "a header with a line break"},
	{HTTP_POST, SCOPE_OPEN, 1000, "/json", parsed, "a document"},
};
/* clang-format on */
static const struct face face = {"test", routes, COUNT(routes), NULL};

static void plain_error(struct request *rq, const struct err *err)
{
	(void)reply_bytes(rq, err_info(err)->http, "text/x-plain", str_of(err->msg));
}

static const struct route other_routes[] = {
	{HTTP_GET, SCOPE_VIEWER, 0, "/other", say, "another protocol"},
};
static const struct face other = {"other", other_routes, COUNT(other_routes), plain_error};
static const struct face *const faces[] = {&face, &other};

static int authorize(struct request *rq, enum scope scope UNUSED, struct err *err)
{
	if (!str_eq(request_header(rq, "authorization"), "Bearer good"))
		return err_set(err, ERR_AUTH, "no such token");
	rq->who = rq->ctx;
	return 0;
}

static void note(const struct request *rq, int status, const char *failure, int64_t took_ms)
{
	struct world *w = rq->ctx;

	assert((status >= 400) == (failure != NULL) && took_ms >= 0);
	atomic_fetch_add(&w->notes, 1);
	atomic_fetch_add(&w->failures, failure != NULL);
}

/* The world around a test */

static void start(struct world *w, struct httpd_options *o)
{
	struct httpd_options none = {0};
	struct err err = {0};

	if (o == NULL)
		o = &none;
	o->address = "127.0.0.1:0";
	o->faces = faces;
	o->n_faces = COUNT(faces);
	o->ctx = w;
	o->authorize = authorize;
	o->note = note;
	assert_ok(httpd_start(o, &w->h, &err), &err);
	w->c = http_client_new(&(struct http_policy){0});
}

static void stop(struct world *w)
{
	atomic_store(&w->go, true);
	http_client_free(w->c);
	httpd_stop(w->h);
}

static char *url_of(const struct world *w, const char *path)
{
	return xasprintf("http://127.0.0.1:%u%s", httpd_port(w->h), path);
}

static int fetch(struct world *w, enum http_method m, const char *path, struct str body,
                 struct http_reply *r, struct err *err)
{
	AUTO_FREE char *url = url_of(w, path);
	struct http_call call = {.method = m, .url = url, .body = body};

	return http_do(w->c, &call, r, err);
}

static int get(struct world *w, const char *path, struct http_reply *r, struct err *err)
{
	return fetch(w, HTTP_GET, path, (struct str){0}, r, err);
}

/* Reads until the text is there or the connection ends, into out. */
static void read_until(int fd, const char *text, struct buf *out)
{
	char p[4096];

	while (text == NULL || strstr(buf_cstr(out), text) == NULL) {
		ssize_t n = recv(fd, p, sizeof(p), 0);

		if (n <= 0)
			break;
		buf_add(out, p, (size_t)n);
	}
}

static int dial(const struct world *w)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(httpd_port(w->h))};
	struct timeval patience = {.tv_sec = 60};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Sends a request as it stands and returns all that comes until the connection ends. */
static void raw(const struct world *w, const char *text, struct buf *out)
{
	AUTO_FD int fd = dial(w);

	send_text(fd, text);
	read_until(fd, NULL, out);
}

static void wait_for(const atomic_uint *n, unsigned want)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; atomic_load(n) < want;) {
		if (clock_mono_ms() > until)
			fail_msg("%u of %u", atomic_load(n), want);
		clock_sleep_ms(2);
	}
}

/* Refusals first */

#define HOST " HTTP/1.1\r\nHost: x\r\n"

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
	assert_err(httpd_start(&o, &second, &err), &err, ERR_CONFLICT, "is taken");
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
		{"/nowhere", "nothing at", 404},
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

/* Parking */

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
		struct timeval moment = {.tv_usec = 20000};

		if (fds[i] < 0)
			continue;
		(void)setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment));
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(httpd_bad_requests),
	cmocka_unit_test(httpd_large_head),
	cmocka_unit_test(httpd_bad_addresses),
	cmocka_unit_test(httpd_routes),
	cmocka_unit_test(httpd_lists_its_routes),
	cmocka_unit_test(httpd_head),
	cmocka_unit_test(httpd_notes_every_reply),
	cmocka_unit_test(httpd_other_addresses),
	cmocka_unit_test(httpd_no_header_injection),
	cmocka_unit_test(httpd_small_bodies),
	cmocka_unit_test(httpd_too_large_chunked),
	cmocka_unit_test(httpd_streams_up),
	cmocka_unit_test(httpd_streams_down),
	cmocka_unit_test(httpd_ranges),
	cmocka_unit_test(httpd_if_range),
	cmocka_unit_test(httpd_expect),
	cmocka_unit_test(httpd_refused_uploads),
	cmocka_unit_test(httpd_refused_deaf_sender),
	cmocka_unit_test(httpd_cut_short),
	cmocka_unit_test(httpd_silent_sender),
	cmocka_unit_test(httpd_trickling_sender),
	cmocka_unit_test(httpd_slow_sender),
	cmocka_unit_test(httpd_parks_many),
	cmocka_unit_test(httpd_park_ends),
	cmocka_unit_test(httpd_dead_followers_leave),
	cmocka_unit_test(httpd_queue_full),
	cmocka_unit_test(httpd_in_parallel),
	cmocka_unit_test(httpd_drains),
	cmocka_unit_test(httpd_stops_at_once),
};
UNIT_MAIN(tests)
