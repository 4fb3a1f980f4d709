/*
 * relay.c - see relay.h.
 *
 * From reply_relay() on, the relay holds the exchange, as a worker does. What libcurl says runs in
 * the relay's thread; libmicrohttpd's takes the bytes of the reply from the ring. The ring and what
 * is said beside it are under exchange.lock, the list of what is new under relay.lock; the rest is
 * the thread's own.
 */
#include "io/relay.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/client_impl.h"
#include "io/httpd_impl.h"

#include <curl/curl.h>
#include <poll.h>

#define TICK_MS 500        /* looks at clients, deadlines and the end of the server */
#define CONNECT_MS 5000    /* on this machine */
#define PATIENCE_MS 600000 /* a long prompt, or many that wait their turn */
#define IDLE_CONNECTIONS 256L
/* Requests that have waited for one server come all at once, and it may take only a few connections
 * before it has accepted them (5 in llama.cpp, and in Python's http.server). What is beyond is lost
 * without a word, and tried again by the kernel after 1, 3, 7, 15 s. */
#define GENTLY_MS 10
#define GENTLY_N 4
#define HEADERS_MAX ((size_t)64 << 10) /* of the reply */
#define STATUS_MIN 200
#define STATUS_MAX 599

struct relayed {
	unsigned magic;
#define RELAYED_MAGIC 0x52454c41U
	struct relay *r;
	struct exchange *x;
	CURL *easy;
	struct curl_slist *headers;
	const char *url, *token;
	struct str body;
	bool waited;
	int64_t head_ms, silence_ms, started_ms, moved_ms, first_ms;
	void (*ended)(void *arg, const struct relay_end *end);
	void *arg;
	struct buf head; /* lines of the reply's */
	int status;
	int64_t length; /* of the reply's body, -1: not said */
	bool headed;    /* the reply's head is whole, and is being sent */
	bool refused;   /* it is no reply that can be passed on */
	uint64_t bytes;
	char words[CURL_ERROR_SIZE];
	struct relayed *next_new;
	LIST_ENTRY(relayed) link;

	/* under exchange.lock */
	char *ring;
	size_t at, n;
	bool paused; /* libcurl waits for room in the ring */
	bool over;   /* no more comes */
	bool cut;    /* and that was not all */
};

struct relay {
	unsigned magic;
#define RELAY_MAGIC 0x52454c59U
	CURLM *multi;
	pthread_t thread;
	struct lock lock;
	struct relayed *fresh; /* newest first */
	atomic_uint n;
	atomic_bool stop;
	atomic_bool room;         /* a ring that was full has some */
	LIST_HEAD(, relayed) all; /* the thread's */
	size_t held;              /* of these are not begun yet: they have no `easy` */
	int64_t let_ms;           /* when some of them were begun last */
};

static void relayed_check(const struct relayed *t)
{
	assert(t->magic == RELAYED_MAGIC && lock_is_mine(&t->x->lock));
	assert(t->at < RELAY_RING && t->n <= RELAY_RING && (t->n == 0 || t->ring != NULL));
	assert(!t->cut || t->over);
	assert(!t->over || !t->paused);
}

/* libmicrohttpd's side */

size_t relay_take(struct exchange *x, char *to, size_t max, bool *over, bool *cut)
{
	struct relayed *t = x->relayed;
	size_t n = MIN(max, t->n), to_end = MIN(n, RELAY_RING - t->at);
	bool was_full = t->paused;

	relayed_check(t);
	if (n > 0) {
		memcpy(to, t->ring + t->at, to_end);
		memcpy(to + to_end, t->ring, n - to_end);
		t->at = (t->at + n) % RELAY_RING;
		t->n -= n;
	}
	*over = n == 0 && t->over;
	*cut = *over && t->cut;
	if (was_full && t->n <= RELAY_RING / 2) {
		atomic_store(&t->r->room, true);
		(void)curl_multi_wakeup(t->r->multi);
	}
	return n;
}

void relay_done(struct exchange *x)
{
	struct relayed *t = x->relayed;

	if (t == NULL)
		return;
	assert(t->magic == RELAYED_MAGIC && t->over && t->easy == NULL);
	x->relayed = NULL;
	free(t->ring);
	buf_done(&t->head);
	t->magic = 0;
	free(t);
}

/* What goes there */

static bool is_one_of(struct str name, const char *const *list)
{
	for (size_t i = 0; list[i] != NULL; i++) {
		if (str_ieq(name, list[i]))
			return true;
	}
	return false;
}

/* About one connection, and those that a connection names are refused with it: see `Connection`. */
static const char *const hop[] = {"Connection",
                                  "Keep-Alive",
                                  "Proxy-Connection",
                                  "TE",
                                  "Proxy-Authorization",
                                  "Trailer",
                                  "Transfer-Encoding",
                                  "Upgrade",
                                  "Proxy-Authenticate",
                                  "Content-Length",
                                  NULL};
static const char *const ours[] = {"Authorization",   "Cookie",    "Host",
                                   "Expect",          "X-Api-Key", "Forwarded",
                                   "X-Forwarded-For", NULL};
static const char *const theirs[] = {"Set-Cookie", "Content-Type", "Content-Security-Policy",
                                     "Date",       "Server",       "X-Request-Id",
                                     NULL};

static void add_line(struct relayed *t, struct arena *a, struct str name, struct str value)
{
	/* "Name;" is how libcurl sends a header without a value */
	const char *line = value.n > 0
	                           ? arena_printf(a, "%.*s: %.*s", STR_ARG(name), STR_ARG(value))
	                           : arena_printf(a, "%.*s;", STR_ARG(name));
	struct curl_slist *more = curl_slist_append(t->headers, line);

	if (more == NULL)
		abort();
	t->headers = more;
}

static void pass_header(struct str name, struct str value, void *arg)
{
	struct relayed *t = FROM_VOID(struct relayed, arg, RELAYED_MAGIC);

	if (!is_one_of(name, hop) && !is_one_of(name, ours))
		add_line(t, t->x->rq.arena, name, value);
}

static void make_headers(struct relayed *t)
{
	struct arena *a = t->x->rq.arena;

	request_each_header(&t->x->rq, pass_header, t);
	if (t->token != NULL)
		add_line(t, a, STR_LIT("Authorization"),
		         str_of(arena_printf(a, "Bearer %s", t->token)));
	add_line(t, a, STR_LIT("X-Request-Id"), str_of(t->x->rq.id));
	t->headers = curl_slist_append(t->headers, "Expect:"); /* the body is here already */
	if (request_header(&t->x->rq, "Accept").n == 0)
		t->headers = curl_slist_append(t->headers, "Accept:");
	if (t->headers == NULL)
		abort();
}

/* What comes back */

/* "Name: value" of the reply. */
static void pass_back(struct relayed *t, struct str line)
{
	struct request *rq = &t->x->rq;
	struct str name, value = line;
	struct err err = {0};
	uint64_t n = 0;

	if (!str_cut(&value, ':', &name))
		return;
	value = str_trim(value);
	if (str_ieq(name, "Content-Length") && str_u64(value, 0, INT64_MAX, &n, &err) == 0)
		t->length = (int64_t)n;
	if (str_ieq(name, "Content-Type"))
		t->x->reply.type = arena_strz(rq->arena, value);
	if (!is_one_of(name, hop) && !is_one_of(name, theirs))
		reply_header(rq, arena_strz(rq->arena, name), arena_strz(rq->arena, value));
}

static void begin_reply(struct relayed *t)
{
	struct exchange *x = t->x;
	struct str rest = buf_view(&t->head), line;
	curl_off_t sent = 0;
	bool bodyless = x->rq.method == HTTP_HEAD || t->status == 204 || t->status == 304;

	/* a reply may take long, and the prompt is there */
	if (curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &sent) == CURLE_OK &&
	    sent == (curl_off_t)t->body.n)
		exchange_forget(x);
	t->length = -1;
	while (str_cut(&rest, '\n', &line))
		pass_back(t, str_trim(line));
	reply_header(&x->rq, "Content-Security-Policy", "sandbox");
	t->first_ms = clock_mono_ms() - t->started_ms;
	t->headed = true;
	lock_take(&x->lock);
	exchange_check(x);
	relayed_check(t);
	assert(x->held && !x->done && !x->gone);
	reply_set_status(x, t->status, x->reply.type);
	x->reply.relayed = !bodyless;
	x->reply.count = t->length >= 0 ? (uint64_t)t->length : UINT64_MAX;
	x->done = true;
	exchange_resume(x);
	exchange_check(x);
	lock_give(&x->lock);
}

/* A line of the head; the last one is empty. What is said between two heads (100, trailers) is
 * nothing to the client. */
static size_t on_head(char *p, size_t size, size_t n, void *arg)
{
	struct relayed *t = FROM_VOID(struct relayed, arg, RELAYED_MAGIC);
	struct str line = str_n(p, size * n);
	long status = 0;

	if (t->headed)
		return size * n;
	if (str_trim(line).n > 0) {
		if (str_starts(line, "HTTP/"))
			buf_clear(&t->head);
		else
			buf_str(&t->head, line);
		t->refused = t->head.full;
		return t->refused ? 0 : size * n;
	}
	(void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status < STATUS_MIN && status != 101)
		return size * n; /* 100, 103: the real one follows */
	t->status = (int)status;
	t->refused = status < STATUS_MIN || status > STATUS_MAX;
	if (t->refused)
		return 0;
	t->moved_ms = clock_mono_ms();
	begin_reply(t);
	return size * n;
}

static size_t on_bytes(char *p, size_t size, size_t many, void *arg)
{
	struct relayed *t = FROM_VOID(struct relayed, arg, RELAYED_MAGIC);
	struct exchange *x = t->x;
	size_t n = size * many, at, to_end, r = n;

	lock_take(&x->lock);
	relayed_check(t);
	if (x->conn == NULL || !t->headed) {
		r = 0; /* nobody wants it */
	} else if (n > RELAY_RING - t->n) {
		t->paused = true;
		r = CURL_WRITEFUNC_PAUSE;
	} else {
		if (t->ring == NULL)
			t->ring = xmalloc(RELAY_RING);
		at = (t->at + t->n) % RELAY_RING;
		to_end = MIN(n, RELAY_RING - at);
		memcpy(t->ring + at, p, to_end);
		memcpy(t->ring, p + to_end, n - to_end);
		t->n += n;
		t->bytes += n;
		atomic_store(&x->starved, false);
		exchange_resume(x);
	}
	relayed_check(t);
	lock_give(&x->lock);
	if (r == n)
		t->moved_ms = clock_mono_ms();
	return r;
}

/* Ends */

static void tell(const struct relayed *t, bool left, const char *why)
{
	struct relay_end end = {.status = t->headed ? t->status : 0,
	                        .left = left,
	                        .cut = t->headed && why != NULL && !left,
	                        .why = why,
	                        .bytes = t->bytes,
	                        .first_ms = t->headed ? t->first_ms : -1,
	                        .all_ms = clock_mono_ms() - t->started_ms};

	if (t->ended != NULL)
		t->ended(t->arg, &end);
}

/* The thread has nothing more to do with it; libmicrohttpd may have to send what is in the ring. */
static void let_go(struct relayed *t, bool left, enum err_code code, const char *why)
{
	struct relay *r = t->r;
	struct exchange *x = t->x;
	struct err err = {0};
	bool headed = t->headed;

	tell(t, left, why);
	LIST_REMOVE(t, link);
	if (t->easy == NULL) {
		r->held--;
	} else {
		(void)curl_multi_remove_handle(r->multi, t->easy);
		curl_easy_cleanup(t->easy);
		t->easy = NULL;
	}
	curl_slist_free_all(t->headers);
	t->headers = NULL;
	(void)atomic_fetch_sub(&r->n, 1);
	lock_take(&x->lock);
	t->over = true;
	t->paused = false;
	t->cut = why != NULL || left;
	relayed_check(t);
	atomic_store(&x->starved, false);
	if (headed) {
		exchange_leave_locked(x); /* it may be gone, and `t` with it */
		return;
	}
	lock_give(&x->lock);
	if (!left) {
		x->reply.headers = NULL;
		(void)err_set(&err, code, "%s", why);
		reply_error(&x->rq, &err);
	}
	exchange_finish(x, left);
}

/* In words: libcurl's speak of a host and a port that nobody knows. */
static const char *why_not(const struct relayed *t, CURLcode code)
{
	if (t->refused || code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY)
		return "the server of the job sent something that is no HTTP reply";
	if (code == CURLE_COULDNT_CONNECT)
		return "the server of the job does not answer at its port";
	if (code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
	    code == CURLE_PARTIAL_FILE)
		return "the server of the job closed the connection before its reply was whole; "
		       "it may have ended";
	return arena_printf(t->x->rq.arena, "the server of the job: %s",
	                    t->words[0] != '\0' ? t->words : curl_easy_strerror(code));
}

static void hear(struct relay *r)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(r->multi, &left)) != NULL) {
		struct relayed *t = NULL;
		union {
			char *as_text;
			void *it;
		} of = {NULL};

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &of.as_text);
		t = FROM_VOID(struct relayed, of.it, RELAYED_MAGIC);
		if (m->data.result == CURLE_OK && t->headed)
			let_go(t, false, ERR_NONE, NULL);
		else if (m->data.result == CURLE_WRITE_ERROR && t->headed)
			let_go(t, true, ERR_NONE, NULL);
		else
			let_go(t, false, ERR_UPSTREAM, why_not(t, m->data.result));
	}
}

/* libmicrohttpd does not watch a connection that is suspended. */
static bool has_left(struct relayed *t)
{
	struct exchange *x = t->x;
	struct pollfd fd = {.events = POLLRDHUP};
	bool left;

	lock_take(&x->lock);
	left = x->conn == NULL;
	if (!left && x->suspended) {
		fd.fd = x->fd;
		left = poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
	}
	lock_give(&x->lock);
	return left;
}

static void look_after(struct relay *r)
{
	int64_t now = clock_mono_ms();
	struct relayed *t, *next;

	for (t = LIST_FIRST(&r->all); t != NULL; t = next) {
		bool paused;

		next = LIST_NEXT(t, link);
		lock_take(&t->x->lock);
		paused = t->paused;
		lock_give(&t->x->lock);
		if (atomic_load(&t->x->h->aborting))
			let_go(t, false, ERR_UNAVAILABLE, "the server is shutting down");
		else if (has_left(t))
			let_go(t, true, ERR_NONE, NULL);
		else if (!t->headed && now - t->moved_ms > t->head_ms)
			let_go(t, false, ERR_TIMEOUT,
			       "the server of the job took too long to answer");
		else if (t->headed && !paused && now - t->moved_ms > t->silence_ms)
			let_go(t, false, ERR_TIMEOUT,
			       "the server of the job went silent in the middle of its reply");
	}
}

/* Those that waited for room go on. */
static void go_on(struct relay *r)
{
	struct relayed *t, *next;

	if (!atomic_exchange(&r->room, false))
		return;
	for (t = LIST_FIRST(&r->all); t != NULL; t = next) {
		bool may;

		next = LIST_NEXT(t, link);
		lock_take(&t->x->lock);
		may = t->paused && t->n <= RELAY_RING / 2;
		if (may)
			t->paused = false;
		lock_give(&t->x->lock);
		if (may)
			(void)curl_easy_pause(t->easy, CURLPAUSE_CONT);
	}
}

/* Begins */

#define SET(option, value) ok = ok && curl_easy_setopt(t->easy, option, value) == CURLE_OK

static void begin(struct relayed *t)
{
	enum http_method method = t->x->rq.method;
	bool ok = true;

	t->easy = curl_easy_init();
	if (t->easy == NULL)
		abort();
	make_headers(t);
	SET(CURLOPT_PRIVATE, t);
	SET(CURLOPT_URL, t->url);
	SET(CURLOPT_HTTPHEADER, t->headers);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_PROTOCOLS_STR, "http");
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	SET(CURLOPT_ERRORBUFFER, t->words);
	SET(CURLOPT_HEADERFUNCTION, on_head);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEFUNCTION, on_bytes);
	SET(CURLOPT_WRITEDATA, t);
	if (method == HTTP_HEAD) {
		SET(CURLOPT_NOBODY, 1L);
	} else if (method == HTTP_POST || t->body.n > 0) {
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDS, t->body.n > 0 ? t->body.p : "");
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.n);
	}
	if (method != HTTP_HEAD)
		SET(CURLOPT_CUSTOMREQUEST, http_method_name[method]);
	assert(ok); /* each of these is known to the library that it is built with */
	(void)ok;
	if (curl_multi_add_handle(t->r->multi, t->easy) != CURLM_OK)
		abort();
}

static void take_fresh(struct relay *r)
{
	struct relayed *t, *next;

	lock_take(&r->lock);
	t = r->fresh;
	r->fresh = NULL;
	lock_give(&r->lock);
	for (; t != NULL; t = next) {
		next = t->next_new;
		LIST_INSERT_HEAD(&r->all, t, link);
		if (t->waited)
			r->held++;
		else
			begin(t);
	}
}

static void let_some(struct relay *r, int64_t now)
{
	struct relayed *t;
	size_t n = 0;

	if (r->held == 0 || now - r->let_ms < GENTLY_MS)
		return;
	r->let_ms = now;
	LIST_FOREACH(t, &r->all, link)
	{
		if (t->easy != NULL)
			continue;
		begin(t);
		r->held--;
		if (++n == GENTLY_N)
			break;
	}
}

static void *relay_main(void *arg)
{
	struct relay *r = FROM_VOID(struct relay, arg, RELAY_MAGIC);
	int64_t looked = 0;
	int running;

	while (!atomic_load(&r->stop)) {
		int64_t now = clock_mono_ms();

		take_fresh(r);
		let_some(r, now);
		go_on(r);
		(void)curl_multi_perform(r->multi, &running);
		hear(r);
		if (now - looked >= TICK_MS) {
			looked = now;
			look_after(r);
		}
		(void)curl_multi_poll(r->multi, NULL, 0, r->held > 0 ? GENTLY_MS : TICK_MS, NULL);
	}
	return NULL;
}

struct relay *relay_new(void)
{
	struct relay *r = xcalloc(1, sizeof(*r));

	http_client_init();
	r->magic = RELAY_MAGIC;
	lock_init(&r->lock, LOCK_RELAY);
	LIST_INIT(&r->all);
	r->multi = curl_multi_init();
	if (r->multi == NULL)
		abort();
	(void)curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, IDLE_CONNECTIONS);
	if (thread_start(&r->thread, "relay", relay_main, r) != 0)
		abort();
	return r;
}

void relay_free(struct relay *r)
{
	if (r == NULL)
		return;
	atomic_store(&r->stop, true);
	(void)curl_multi_wakeup(r->multi);
	(void)pthread_join(r->thread, NULL);
	assert(LIST_EMPTY(&r->all) && r->fresh == NULL); /* whose exchanges are all gone */
	(void)curl_multi_cleanup(r->multi);
	lock_done(&r->lock);
	r->magic = 0;
	free(r);
}

int reply_relay(struct request *rq, struct relay *r, const struct relay_call *call, struct err *err)
{
	struct exchange *x = exchange_of(rq);
	struct relayed *t;

	assert(x->relayed == NULL && x->held && call->url != NULL);
	if (atomic_fetch_add(&r->n, 1) >= RELAYS_MAX) {
		(void)atomic_fetch_sub(&r->n, 1);
		err->retry_after_s = 1;
		return err_set(err, ERR_BUSY, "%d requests are being answered already", RELAYS_MAX);
	}
	t = xcalloc(1, sizeof(*t));
	*t = (struct relayed){.magic = RELAYED_MAGIC,
	                      .r = r,
	                      .x = x,
	                      .url = arena_cstr(rq->arena, call->url),
	                      .token = call->token == NULL ? NULL
	                                                   : arena_cstr(rq->arena, call->token),
	                      .body = call->body,
	                      .waited = call->waited,
	                      .head_ms = call->head_ms > 0 ? call->head_ms : PATIENCE_MS,
	                      .silence_ms = call->silence_ms > 0 ? call->silence_ms : PATIENCE_MS,
	                      .ended = call->ended,
	                      .arg = call->arg,
	                      .head = BUF_INIT(HEADERS_MAX)};
	t->started_ms = t->moved_ms = clock_mono_ms();
	x->relayed = t;
	return 0;
}

void relay_begin(struct exchange *x)
{
	struct relayed *t = x->relayed;
	struct relay *r = t->r;

	lock_take(&r->lock);
	t->next_new = r->fresh;
	r->fresh = t;
	lock_give(&r->lock);
	(void)curl_multi_wakeup(r->multi);
}
