/*
 * httpd_fixture.h - a real listener on loopback with routes of every kind, driven by our client and
 * by raw sockets.
 */
#ifndef HTTPD_FIXTURE_H
#define HTTPD_FIXTURE_H

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
#define HOST " HTTP/1.1\r\nHost: x\r\n"
#define END "Connection: close\r\n\r\n"

/* Deterministic bytes, so that a hole or a swap anywhere shows. */
static inline void pattern(uint64_t at, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(((at + i) * 2654435761U) >> 13);
}

struct world {
	struct httpd *h;
	struct http_client *c;
	atomic_uint entered, left; /* handlers of /slow; entered: of /count, too */
	atomic_bool go;
	atomic_uint parked, news;
	atomic_uint body_calls;
	_Atomic(enum err_code) read_failed;
	atomic_uint notes, failures;
	atomic_uint authorized; /* or not: callers that were asked for */
	/* of /stream: where its source fails, or hangs until nobody waits for it */
	uint64_t source_ends;
	bool source_hangs;
	_Atomic uint64_t source_read, client_got; /* bytes; the latter as the test counts them */
	_Atomic uint64_t lead;                    /* the most that was read ahead of the client */
	atomic_uint sources_done, sources_hang;
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

	if (rq->route->scope == SCOPE_OPEN && !request_place(rq))
		return 0;
	atomic_fetch_add(&w->entered, 1);
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

	if (!request_place(rq))
		return 0;
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

static inline int temp_file(uint64_t size)
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

static int source_read(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
                       struct err *err)
{
	struct world *w = arg;
	uint64_t lead;

	if (at + n > w->source_ends) {
		atomic_fetch_add(&w->sources_hang, 1);
		while (w->source_hangs && !atomic_load(left))
			clock_sleep_ms(2);
		return err_set(err, ERR_IO, "the source is gone");
	}
	pattern(at, to, n);
	lead = at + n - MIN(at + n, atomic_load(&w->client_got));
	if (lead > atomic_load(&w->lead))
		atomic_store(&w->lead, lead);
	atomic_fetch_add(&w->source_read, n);
	return 0;
}

static void source_done(void *arg)
{
	struct world *w = arg;

	atomic_fetch_add(&w->sources_done, 1);
}

static int stream(struct request *rq, struct err *err)
{
	const struct reply_source from = {.read = source_read, .done = source_done, .arg = rq->ctx};
	int64_t size = request_query_int(rq, "size", 1000, err);

	if (err->code != ERR_NONE)
		return -1;
	return reply_file_from(rq, "application/octet-stream", &from, (uint64_t)size, "v1", err);
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
	{HTTP_GET, SCOPE_OPEN, 0, "/stream", stream, "from elsewhere"},
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
	struct world *w = rq->ctx;

	atomic_fetch_add(&w->authorized, 1);
	if (!str_eq(request_header(rq, "authorization"), "Bearer good"))
		return err_set(err, ERR_AUTH, "no such token");
	rq->principal = rq->ctx;
	if (request_header(rq, "x-owner").n > 0)
		rq->owner = arena_strz(rq->arena, request_header(rq, "x-owner"));
	if (request_header(rq, "x-sender").n > 0)
		rq->sender = arena_strz(rq->arena, request_header(rq, "x-sender"));
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

static inline char *url_of(const struct world *w, const char *path)
{
	return xasprintf("http://127.0.0.1:%u%s", httpd_port(w->h), path);
}

static inline int fetch(struct world *w, enum http_method m, const char *path, struct str body,
                        struct http_reply *r, struct err *err)
{
	AUTO_FREE char *url = url_of(w, path);
	struct http_call call = {.method = m, .url = url, .body = body};

	return http_do(w->c, &call, r, err);
}

static inline int get(struct world *w, const char *path, struct http_reply *r, struct err *err)
{
	return fetch(w, HTTP_GET, path, (struct str){0}, r, err);
}

/* Reads until the text is there or the connection ends, into out. */
static inline void read_until(int fd, const char *text, struct buf *out)
{
	char p[4096];

	while (text == NULL || strstr(buf_cstr(out), text) == NULL) {
		ssize_t n = recv(fd, p, sizeof(p), 0);

		if (n <= 0)
			break;
		buf_add(out, p, (size_t)n);
	}
}

static inline int dial(const struct world *w)
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

static inline void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Sends a request as it stands and returns all that comes until the connection ends. */
static inline void raw(const struct world *w, const char *text, struct buf *out)
{
	AUTO_FD int fd = dial(w);

	send_text(fd, text);
	read_until(fd, NULL, out);
}

static inline void wait_for(const atomic_uint *n, unsigned want)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; atomic_load(n) < want;) {
		if (clock_mono_ms() > until)
			fail_msg("%u of %u", atomic_load(n), want);
		clock_sleep_ms(2);
	}
}

/* Refusals first */

#endif
