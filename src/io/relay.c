/* relay.c - the thread of relays, and what it has with the other servers; see relay_impl.h. */
#include "io/relay.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/client_impl.h"
#include "io/relay_impl.h"

#include <curl/curl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define TICK_MS 500        /* looks at clients, deadlines and the end of the server */
#define CONNECT_MS 5000    /* on this machine */
#define PATIENCE_MS 600000 /* a long prompt, or many that wait their turn */
#define EVENTS_MAX 128     /* of one wait */
/* Requests that have waited for one server come all at once, and it may take only a few connections
 * before it has accepted them (5 in llama.cpp, and in Python's http.server). What is beyond is lost
 * without a word, and tried again by the kernel after 1, 3, 7, 15 s. */
#define GENTLY_MS 10
#define GENTLY_N 4
#define HEADERS_MAX ((size_t)16 << 10) /* of the reply: libmicrohttpd has room for it */
#define NAMED_MAX ((size_t)1 << 10)    /* by the Connection lines of one head: words */
#define STATUS_MIN 200
#define STATUS_MAX 599

_Static_assert(RELAY_WORDS >= CURL_ERROR_SIZE, "libcurl writes so many");

void relay_wake(struct relay *r)
{
	const uint64_t one = 1;

	if (!atomic_exchange(&r->woken, true))
		(void)!write(r->wake_fd, &one, sizeof(one));
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
static const char *const hop[] = {"Connection",          "Keep-Alive",
                                  "Proxy-Connection",    "TE",
                                  "Proxy-Authorization", "Trailer",
                                  "Transfer-Encoding",   "Upgrade",
                                  "Proxy-Authenticate",  "Proxy-Authentication-Info",
                                  "Content-Length",      NULL};
static const char *const ours[] = {"Authorization",   "Cookie",    "Host",
                                   "Expect",          "X-Api-Key", "Forwarded",
                                   "X-Forwarded-For", NULL};
/* Some are about all of an origin, which is ours, and some are for the proxy before us. */
static const char *const theirs[] = {"Set-Cookie",
                                     "Set-Cookie2",
                                     "Content-Type",
                                     "Content-Security-Policy",
                                     "Date",
                                     "Server",
                                     "X-Request-Id",
                                     "Accept-CH",
                                     "Alt-Svc",
                                     "Clear-Site-Data",
                                     "Critical-CH",
                                     "Expect-CT",
                                     "NEL",
                                     "Origin-Agent-Cluster",
                                     "Public-Key-Pins",
                                     "Report-To",
                                     "Reporting-Endpoints",
                                     "Service-Worker-Allowed",
                                     "Strict-Transport-Security",
                                     "X-Accel-Redirect",
                                     "X-Sendfile",
                                     NULL};

/* What a Connection line names is for its reader alone. */
static void note_named(struct relayed *t, struct str name, struct str value)
{
	if (!str_ieq(name, "Connection"))
		return;
	buf_str(&t->named, value);
	buf_putc(&t->named, ',');
}

static bool is_named(const struct relayed *t, struct str name)
{
	return head_lists(buf_view(&t->named), name);
}

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

	if (!is_one_of(name, hop) && !is_one_of(name, ours) && !is_named(t, name))
		add_line(t, t->x->rq.arena, name, value);
}

static void note_header(struct str name, struct str value, void *arg)
{
	note_named(FROM_VOID(struct relayed, arg, RELAYED_MAGIC), name, value);
}

static void make_headers(struct relayed *t)
{
	struct arena *a = t->x->rq.arena;

	request_each_header(&t->x->rq, note_header, t);
	request_each_header(&t->x->rq, pass_header, t);
	if (t->token != NULL)
		add_line(t, a, STR_LIT("Authorization"),
		         str_of(arena_printf(a, "Bearer %s", t->token)));
	add_line(t, a, STR_LIT("X-Request-Id"), str_of(t->x->rq.id));
	t->headers = curl_slist_append(t->headers, "Expect:"); /* the body is here already */
	/* libcurl has words of its own where there are none */
	if (request_header(&t->x->rq, "Accept").n == 0)
		t->headers = curl_slist_append(t->headers, "Accept:");
	if (request_header(&t->x->rq, "Content-Type").n == 0)
		t->headers = curl_slist_append(t->headers, "Content-Type:");
	if (t->headers == NULL)
		abort();
}

/* What comes back */

/* False: more than an honest server would. */
static bool note_reply(struct relayed *t)
{
	struct str rest = buf_view(&t->head), line, name;

	buf_clear(&t->named);
	while (str_cut(&rest, '\n', &line)) {
		if (str_cut(&line, ':', &name))
			note_named(t, name, line);
	}
	return !t->named.full;
}

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
	/* "Set-Cookie : a" is a cookie to some */
	if (head_is_token(name) && !is_one_of(name, hop) && !is_one_of(name, theirs) &&
	    !is_named(t, name))
		reply_header(rq, arena_strz(rq->arena, name), arena_strz(rq->arena, value));
}

static void begin_reply(struct relayed *t)
{
	struct exchange *x = t->x;
	struct str rest = buf_view(&t->head), line;
	curl_off_t sent = 0;
	bool bodyless;

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
	/* HEAD is told the length, and asks for no byte; of what has none, libmicrohttpd would send
	 * the last chunk */
	bodyless = t->status == 204 || t->status == 304 ||
	           (x->rq.method == HTTP_HEAD && t->length < 0);
	reply_set_status(x, t->status, x->reply.type);
	x->reply.relayed =
		!bodyless; /* HEAD is answered with the length, and no byte is asked for */
	x->reply.count = t->length >= 0 ? (uint64_t)t->length : UINT64_MAX;
	t->ready = true;
	SLIST_INSERT_HEAD(&t->r->ready, t, next_ready);
}

/* What came with a head is in the ring by now, and all of it is sent in one turn. */
static void announce(struct relay *r)
{
	struct relayed *t;

	while ((t = SLIST_FIRST(&r->ready)) != NULL) {
		struct exchange *x = t->x;

		SLIST_REMOVE_HEAD(&r->ready, next_ready);
		t->ready = false;
		lock_take(&x->lock);
		exchange_check(x);
		relayed_check(t);
		assert(x->held && !x->done && !x->gone);
		x->done = true;
		exchange_resume(x);
		exchange_check(x);
		lock_give(&x->lock);
	}
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
	t->refused = status < STATUS_MIN || status > STATUS_MAX || !note_reply(t);
	if (t->refused)
		return 0;
	t->moved_ms = clock_mono_ms();
	begin_reply(t);
	return size * n;
}

static size_t on_bytes(char *p, size_t size, size_t many, void *arg)
{
	struct relayed *t = FROM_VOID(struct relayed, arg, RELAYED_MAGIC);
	size_t n = size * many;

	switch (n == 0 ? RELAY_PASSED : relay_pass(t, p, n)) {
	case RELAY_PASSED:
		return n;
	case RELAY_FULL:
		return CURL_WRITEFUNC_PAUSE;
	case RELAY_GONE:
		break;
	}
	return 0; /* libcurl's word for it is CURLE_WRITE_ERROR */
}

/* Before each time that it asks: it does so again when a connection that was kept has ended. */
static int on_try(void *arg, char *to UNUSED, char *from UNUSED, int to_port UNUSED,
                  int from_port UNUSED)
{
	struct relayed *t = FROM_VOID(struct relayed, arg, RELAYED_MAGIC);

	t->tries++;
	return CURL_PREREQFUNC_OK;
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

static void end_transfer(struct relayed *t)
{
	struct relay *r = t->r;

	(void)curl_multi_remove_handle(r->multi, t->easy);
	(void)curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, NULL); /* which ends with `t` */
	/* libcurl allows five more tries to all the requests of a handle together */
	if (r->n_spare < SPARE_MAX && t->headed && t->tries == 1)
		r->spare[r->n_spare++] = t->easy;
	else
		curl_easy_cleanup(t->easy);
	t->easy = NULL;
}

/* The thread has nothing more to do with it; libmicrohttpd may have to send what is in the ring. */
static void let_go(struct relayed *t, bool left, enum err_code code, const char *why)
{
	struct relay *r = t->r;
	struct exchange *x = t->x;
	struct err err = {0};
	bool headed = t->headed;

	tell(t, left, why);
	TAILQ_REMOVE(&r->all, t, link);
	if (t->ready)
		SLIST_REMOVE(&r->ready, t, relayed, next_ready);
	relay_drop_tail(t);
	if (t->easy != NULL)
		end_transfer(t);
	else if (!t->ending)
		r->held--;
	curl_slist_free_all(t->headers);
	t->headers = NULL;
	(void)atomic_fetch_sub(&r->n, 1);
	lock_take(&x->lock);
	if (t->paused)
		LIST_REMOVE(t, next_full);
	x->done = x->done || headed; /* ready or not */
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
	/* a line that is too long for libcurl is no memory to it */
	if (t->head.full || (code == CURLE_OUT_OF_MEMORY && !t->headed))
		return "the server of the job sent a reply whose head is too large";
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

/* It has ended, but for what its client has still to take. */
static void end_with_tail(struct relayed *t, const char *why)
{
	if (t->tail == NULL) {
		let_go(t, false, ERR_NONE, why);
		return;
	}
	end_transfer(t);
	t->ending = true;
	t->end_why = why;
}

static void on_tail(struct relay *r, int fd)
{
	struct relayed *t;

	LIST_FOREACH(t, &r->stuck, next_stuck)
	{
		if (t->x->fd != fd)
			continue;
		switch (relay_send_tail(t)) {
		case RELAY_PASSED:
			if (t->ending)
				let_go(t, false, ERR_NONE, t->end_why);
			break;
		case RELAY_FULL:
			break;
		case RELAY_GONE:
			let_go(t, true, ERR_NONE, NULL);
			break;
		}
		return;
	}
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
			end_with_tail(t, NULL);
		else if (m->data.result == CURLE_WRITE_ERROR && t->headed)
			let_go(t, true, ERR_NONE, NULL);
		else if (t->headed)
			end_with_tail(t, why_not(t, m->data.result));
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

	for (t = TAILQ_FIRST(&r->all); t != NULL; t = next) {
		bool paused;

		next = TAILQ_NEXT(t, link);
		lock_take(&t->x->lock);
		paused = t->paused;
		lock_give(&t->x->lock);
		if (atomic_load(&t->x->h->aborting))
			let_go(t, false, ERR_UNAVAILABLE, "the server is shutting down");
		else if (has_left(t))
			let_go(t, true, ERR_NONE, NULL);
		else if (t->ending)
			continue; /* with the tail, however long that takes */
		else if (!t->headed && now - t->moved_ms > t->head_ms)
			let_go(t, false, ERR_TIMEOUT,
			       "the server of the job took too long to answer");
		else if (t->headed && !paused && t->tail == NULL &&
		         now - t->moved_ms > t->silence_ms)
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
	for (t = LIST_FIRST(&r->full); t != NULL; t = next) {
		bool may;

		next = LIST_NEXT(t, next_full);
		lock_take(&t->x->lock);
		may = t->n <= RELAY_RING / 2;
		if (may)
			t->paused = false;
		lock_give(&t->x->lock);
		if (!may)
			continue;
		LIST_REMOVE(t, next_full);
		(void)curl_easy_pause(t->easy, CURLPAUSE_CONT);
		r->timer_ms = clock_mono_ms(); /* what it has read meanwhile wakes nobody */
	}
}

/* Begins */

#define SET(option, value) ok = ok && curl_easy_setopt(easy, option, value) == CURLE_OK

/* What is the same for all. */
static CURL *new_easy(void)
{
	CURL *easy = curl_easy_init();
	bool ok = easy != NULL;

	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_PROTOCOLS_STR, "http");
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	SET(CURLOPT_HEADERFUNCTION, on_head);
	SET(CURLOPT_WRITEFUNCTION, on_bytes);
	SET(CURLOPT_PREREQFUNCTION, on_try);
	assert(ok); /* each of these is known to the library that it is built with */
	return easy;
}

/* All that one request sets, whatever the one before it was. */
static void begin(struct relayed *t)
{
	struct relay *r = t->r;
	CURL *easy = r->n_spare > 0 ? r->spare[--r->n_spare] : new_easy();
	enum http_method method = t->x->rq.method;
	bool ok = true, has_body = method != HTTP_HEAD && (method == HTTP_POST || t->body.n > 0);

	t->easy = easy;
	make_headers(t);
	SET(CURLOPT_PRIVATE, t);
	SET(CURLOPT_URL, t->url);
	SET(CURLOPT_HTTPHEADER, t->headers);
	SET(CURLOPT_ERRORBUFFER, t->words);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_PREREQDATA, t);
	SET(CURLOPT_POSTFIELDS, NULL); /* which makes it a POST */
	SET(CURLOPT_HTTPGET, 1L);
	if (method == HTTP_HEAD) {
		SET(CURLOPT_NOBODY, 1L);
	} else if (has_body) {
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDS, t->body.n > 0 ? t->body.p : "");
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.n);
	}
	SET(CURLOPT_CUSTOMREQUEST, method != HTTP_HEAD ? http_method_name[method] : NULL);
	assert(ok);
	(void)ok;
	if (curl_multi_add_handle(r->multi, easy) != CURLM_OK)
		abort();
}

static void take_fresh(struct relay *r)
{
	struct relayed *t, *next;

	lock_take(&r->lock);
	t = r->fresh;
	r->fresh = NULL;
	r->fresh_end = &r->fresh;
	lock_give(&r->lock);
	for (; t != NULL; t = next) {
		next = t->next_new;
		TAILQ_INSERT_TAIL(&r->all, t, link);
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
	TAILQ_FOREACH(t, &r->all, link)
	{
		if (t->easy != NULL || t->ending)
			continue; /* it has begun, or is over but for its tail */
		begin(t);
		r->held--;
		if (++n == GENTLY_N)
			break;
	}
}

/* libcurl's sockets */

static int on_socket(CURL *easy UNUSED, curl_socket_t fd, int what, void *arg, void *known)
{
	struct relay *r = FROM_VOID(struct relay, arg, RELAY_MAGIC);
	struct epoll_event event = {.data.u64 = (uint32_t)fd};

	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	event.events = ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0U) |
	               ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0U);
	/* one that cannot be watched ends by its deadline; to say so here would end all of them */
	(void)epoll_ctl(r->epoll_fd, known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
	if (known == NULL)
		(void)curl_multi_assign(r->multi, fd, r);
	return 0;
}

static int on_timer(CURLM *multi UNUSED, long wait_ms, void *arg)
{
	struct relay *r = FROM_VOID(struct relay, arg, RELAY_MAGIC);

	r->timer_ms = wait_ms < 0 ? -1 : clock_mono_ms() + wait_ms;
	return 0;
}

/* Its turn of libcurl's, and what came of it. */
static void turn(struct relay *r, int fd, int what)
{
	int running;

	(void)curl_multi_socket_action(r->multi, fd, what, &running);
	hear(r);
	announce(r);
}

static int wait_ms(const struct relay *r)
{
	int64_t most = r->held > 0 ? GENTLY_MS : TICK_MS;

	if (r->timer_ms >= 0)
		most = MIN(most, MAX(r->timer_ms - clock_mono_ms(), 0));
	return (int)most;
}

static void take_events(struct relay *r, const struct epoll_event *event, int n)
{
	for (int i = 0; i < n; i++) {
		uint64_t of = event[i].data.u64;
		uint32_t e = event[i].events;
		int fd = (int)(uint32_t)of;

		if (fd == r->wake_fd)
			atomic_store(&r->woken, false); /* before what is new is looked at */
		else if ((of & TAIL_EVENT) != 0)
			on_tail(r, fd);
		else
			turn(r, fd,
			     ((e & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
			             ((e & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
			             ((e & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0));
	}
}

static void *relay_main(void *arg)
{
	struct relay *r = FROM_VOID(struct relay, arg, RELAY_MAGIC);
	struct epoll_event event[EVENTS_MAX];
	int64_t looked = 0, now;

	while (!atomic_load(&r->stop)) {
		int n = epoll_wait(r->epoll_fd, event, EVENTS_MAX, wait_ms(r));

		take_events(r, event, n);
		now = clock_mono_ms();
		take_fresh(r);
		let_some(r, now);
		go_on(r);
		if (r->timer_ms >= 0 && now >= r->timer_ms) {
			r->timer_ms = -1;
			turn(r, CURL_SOCKET_TIMEOUT, 0);
		}
		if (now - looked >= TICK_MS) {
			looked = now;
			look_after(r);
		}
	}
	return NULL;
}

struct relay *relay_new(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	struct relay *r = xcalloc(1, sizeof(*r));

	http_client_init();
	r->magic = RELAY_MAGIC;
	lock_init(&r->lock, LOCK_RELAY);
	TAILQ_INIT(&r->all);
	SLIST_INIT(&r->ready);
	LIST_INIT(&r->stuck);
	LIST_INIT(&r->full);
	r->fresh_end = &r->fresh;
	r->timer_ms = -1;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.u64 = (uint32_t)r->wake_fd;
	r->multi = curl_multi_init();
	if (r->multi == NULL || r->epoll_fd < 0 || r->wake_fd < 0 ||
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->wake_fd, &event) < 0)
		abort();
	(void)curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, (long)RELAYS_MAX);
	(void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	(void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETDATA, r);
	(void)curl_multi_setopt(r->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	(void)curl_multi_setopt(r->multi, CURLMOPT_TIMERDATA, r);
	if (thread_start(&r->thread, "relay", relay_main, r) != 0)
		abort();
	return r;
}

void relay_free(struct relay *r)
{
	if (r == NULL)
		return;
	atomic_store(&r->stop, true);
	relay_wake(r);
	(void)pthread_join(r->thread, NULL);
	assert(TAILQ_EMPTY(&r->all) && r->fresh == NULL); /* whose exchanges are all gone */
	assert(SLIST_EMPTY(&r->ready) && LIST_EMPTY(&r->stuck));
	while (r->n_spare > 0)
		curl_easy_cleanup(r->spare[--r->n_spare]);
	(void)curl_multi_cleanup(r->multi);
	(void)close(r->epoll_fd);
	(void)close(r->wake_fd);
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
	                      .head = BUF_INIT(HEADERS_MAX),
	                      .named = BUF_INIT(NAMED_MAX)};
	t->started_ms = t->moved_ms = clock_mono_ms();
	x->relayed = t;
	return 0;
}

void relay_begin(struct exchange *x)
{
	struct relayed *t = x->relayed;
	struct relay *r = t->r;

	lock_take(&r->lock);
	*r->fresh_end = t;
	r->fresh_end = &t->next_new;
	lock_give(&r->lock);
	relay_wake(r);
}
