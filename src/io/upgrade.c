/* upgrade.c - the client's side of a connection that leaves HTTP; see upgrade.h. */
#include "io/upgrade.h"
#include "base/clock.h"
#include "io/client_impl.h"

#include <curl/curl.h>
#include <poll.h>

#define HEAD_MAX ((size_t)32 << 10)
#define WORDS_MAX ((size_t)64 << 10) /* of an error */
#define LOOK_MS 200 /* how often a caller that waits is asked whether it still does */
#define TOTAL_MS 30000

struct upgrade {
	CURL *handle;
	int fd;
	struct buf early; /* came with the reply's head */
};

/* 1: n bytes went, 0: none can now, -1: it is over. */
static int transfer(struct upgrade *u, bool out, void *p, size_t cap, size_t *n, struct err *err)
{
	struct sigpipe held;
	CURLcode code;

	*n = 0;
	sigpipe_hold(&held);
	code = out ? curl_easy_send(u->handle, p, cap, n) : curl_easy_recv(u->handle, p, cap, n);
	sigpipe_release(&held);
	if (code == CURLE_AGAIN)
		return 0;
	if (code == CURLE_OK && *n > 0)
		return 1;
	return err_set(err, ERR_UNAVAILABLE, "the connection was closed%s%s",
	               code == CURLE_OK ? "" : ": ",
	               code == CURLE_OK ? "" : curl_easy_strerror(code));
}

static int await(const struct upgrade *u, const struct http_call *call, short events,
                 int64_t until_ms, struct err *err)
{
	struct pollfd p = {.fd = u->fd, .events = events};

	if (call->progress != NULL)
		call->progress(call->arg, 0, 0);
	if (call->cancel != NULL && atomic_load(call->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	if (clock_mono_ms() > until_ms)
		return err_set(err, ERR_TIMEOUT, "no answer within the time");
	(void)poll(&p, 1, LOOK_MS); /* what it says is seen by trying */
	return 0;
}

static int send_request(struct upgrade *u, const struct http_call *call, struct buf *text,
                        int64_t until_ms, struct err *err)
{
	while (text->n > 0) {
		size_t n;
		int r = transfer(u, true, text->p, text->n, &n, err);

		if (r < 0 || (r == 0 && await(u, call, POLLOUT, until_ms, err) < 0))
			return -1;
		buf_drop(text, n);
	}
	return 0;
}

/* More of the reply into u->early. */
static int read_more(struct upgrade *u, const struct http_call *call, int64_t until_ms,
                     struct err *err)
{
	for (;;) {
		char piece[4096];
		size_t n;
		int r = transfer(u, false, piece, sizeof(piece), &n, err);

		buf_add(&u->early, piece, n);
		if (r != 0)
			return r < 0 ? -1 : 0;
		if (await(u, call, POLLIN, until_ms, err) < 0)
			return -1;
	}
}

/* The head of the reply leaves u->early. */
static int read_head(struct upgrade *u, const struct http_call *call, struct http_reply *reply,
                     int64_t until_ms, struct err *err)
{
	const char *end;
	struct str head, line;

	while ((end = u->early.n == 0 ? NULL : memmem(u->early.p, u->early.n, "\r\n\r\n", 4)) ==
	       NULL) {
		if (u->early.n > HEAD_MAX)
			return err_set(err, ERR_INVALID, "the reply's headers are too large");
		if (read_more(u, call, until_ms, err) < 0)
			return -1;
	}
	head = str_n(u->early.p, (size_t)(end - u->early.p) + 4);
	if (!str_starts(head, "HTTP/1."))
		return err_set(err, ERR_INVALID, "the reply is not HTTP");
	for (struct str rest = head; str_cut(&rest, '\n', &line);) {
		line = str_trim(line);
		if (line.n > 0)
			reply_take_line(reply, line);
	}
	buf_drop(&u->early, head.n);
	return 0;
}

/* The words of who does not switch. */
static void read_words(struct upgrade *u, const struct http_call *call, struct http_reply *reply,
                       int64_t until_ms)
{
	struct err none = {0};

	while (reply->length > 0 && u->early.n < MIN((uint64_t)reply->length, WORDS_MAX)) {
		if (read_more(u, call, until_ms, &none) < 0)
			break; /* its status says enough */
	}
	reply->body.max = WORDS_MAX;
	buf_str(&reply->body, str_n(u->early.p, MIN(u->early.n, WORDS_MAX)));
}

static void write_request(const struct http_call *call, const struct url *u, const char *protocol,
                          struct buf *out)
{
	buf_printf(out, "GET %s%s%s HTTP/1.1\r\nHost: %s:%u\r\n", u->path,
	           u->query == NULL ? "" : "?", u->query == NULL ? "" : u->query, u->host, u->port);
	buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\nUser-Agent: stoker/%s\r\n", protocol,
	           STOKER_VERSION);
	for (size_t i = 0; i < call->n_headers; i++)
		buf_printf(out, "%s: %s\r\n", call->headers[i].name, call->headers[i].value);
	buf_puts(out, "\r\n");
}

static int switch_over(struct upgrade *u, const struct http_call *call, const char *protocol,
                       struct http_reply *reply, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(2 * HEAD_MAX);
	int64_t until_ms = clock_mono_ms() + (call->total_ms > 0 ? call->total_ms : TOTAL_MS);
	struct url url;

	if (url_parse(reply->arena, str_of(call->url), &url, err) < 0)
		return -1;
	write_request(call, &url, protocol, &text);
	if (buf_check(&text, "request", err) < 0 ||
	    send_request(u, call, &text, until_ms, err) < 0 ||
	    read_head(u, call, reply, until_ms, err) < 0)
		return -1;
	if (reply->status == 101 && str_ieq(http_header_of(reply, "upgrade"), protocol))
		return 0;
	read_words(u, call, reply, until_ms);
	if (reply->status >= 400)
		return 0;
	return err_set(err, ERR_INVALID,
	               "the answer is %d and not 101: a proxy on the way does not pass Upgrade on, "
	               "or the server is of another version",
	               reply->status);
}

int upgrade_open(struct http_client *c, const struct http_call *call, const char *protocol,
                 struct upgrade **out, struct http_reply *reply, struct err *err)
{
	struct upgrade *u = xcalloc(1, sizeof(*u));
	curl_socket_t fd = CURL_SOCKET_BAD;
	char name[HTTP_NAME_CAP];

	assert(call->method == HTTP_GET);
	*out = NULL;
	u->early = (struct buf)BUF_INIT(HEAD_MAX + WORDS_MAX);
	if (client_connect(c, call, reply, &u->handle, err) < 0) {
		upgrade_close(u);
		return -1;
	}
	(void)curl_easy_getinfo(u->handle, CURLINFO_ACTIVESOCKET, &fd);
	u->fd = fd;
	if (switch_over(u, call, protocol, reply, err) < 0) {
		upgrade_close(u);
		http_call_name(call, name);
		return err_wrap(err, "%s", name);
	}
	if (reply->status == 101)
		*out = u;
	else
		upgrade_close(u);
	return 0;
}

int upgrade_fd(const struct upgrade *u)
{
	return u->fd;
}

int upgrade_read(struct upgrade *u, void *p, size_t cap, size_t *n, struct err *err)
{
	if (u->early.n == 0)
		return transfer(u, false, p, cap, n, err);
	*n = MIN(cap, u->early.n);
	memcpy(p, u->early.p, *n);
	buf_drop(&u->early, *n);
	return 1;
}

int upgrade_write(struct upgrade *u, struct str bytes, size_t *n, struct err *err)
{
	union {
		const char *in;
		void *out;
	} text = {.in = bytes.p}; /* it is only read */

	return transfer(u, true, text.out, bytes.n, n, err);
}

void upgrade_close(struct upgrade *u)
{
	if (u == NULL)
		return;
	if (u->handle != NULL)
		curl_easy_cleanup(u->handle);
	buf_done(&u->early);
	free(u);
}
