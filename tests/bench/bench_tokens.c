/*
 * bench_tokens.c - both ends of a stream of tokens, so that what lies between them can be measured:
 * an engine that does nothing but send, and clients that all ask at once.
 *
 *   bench_tokens serve PORT TOKENS GAP_MS
 *       answers GET with 200, and POST with server-sent events: the first token at once, the others
 *       GAP_MS apart
 *   bench_tokens ask PORT PATH STREAMS REQUESTS
 *       STREAMS connections, REQUESTS on each, one after the other; $BENCH_TOKEN is the bearer
 *       token. Prints how long first tokens took, from the request: seconds at the median and the
 *       99th percentile, and how many there were
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define CONNECTIONS_MAX 4096
#define REQUEST_MAX 4096
#define SEEN_MAX 65536
#define EVENTS_MAX 256
#define DEADLINE_S 120

static const char first_head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
				 "Transfer-Encoding: chunked\r\n\r\n";
static const char token[] =
	"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" be\"}}]}\n\n";
static const char last[] = "data: [DONE]\n\n";
static const char end[] = "0\r\n\r\n";

struct connection {
	int fd;
	size_t n;    /* bytes of what is read */
	size_t sent; /* tokens */
	double at;   /* serve: when the next one is due, 0 = none; ask: when the request was sent */
	bool answered; /* ask: its first token is there */
	size_t asked;
	char seen[REQUEST_MAX];
};

static struct connection connection[CONNECTIONS_MAX];

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *what)
{
	fprintf(stderr, "bench_tokens: %s: %s\n", what, strerror(errno));
	return 1;
}

static struct sockaddr_in address(const char *port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void send_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = send(fd, p, n, MSG_NOSIGNAL);

		if (done <= 0)
			return; /* who leaves is seen to have left when it is read from */
		p += done;
		n -= (size_t)done;
	}
}

static void send_chunk(int fd, const char *head, const char *body, const char *tail)
{
	char text[1024];
	int n = snprintf(text, sizeof(text), "%s%zx\r\n%s\r\n%s", head, strlen(body), body, tail);

	send_all(fd, text, (size_t)n);
}

static void no_delay(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* ---- the engine --------------------------------------------------------------------------------
 */

static void engine_tick(size_t tokens, double gap, double at)
{
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *c = &connection[i];

		if (c->at == 0 || c->at > at)
			continue;
		if (c->sent < tokens) {
			send_chunk(c->fd, "", token, "");
			c->sent++;
			c->at += gap;
		} else {
			send_chunk(c->fd, "", last, end);
			c->at = 0;
		}
	}
}

static void engine_answer(struct connection *c, double gap)
{
	static const char fine[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

	if (strncmp(c->seen, "POST ", 5) != 0) {
		send_all(c->fd, fine, sizeof(fine) - 1);
		return;
	}
	send_chunk(c->fd, first_head, token, "");
	c->sent = 1;
	c->at = now() + gap;
}

/* Bodies are short and come with their headers, or right behind them: '}' ends each. */
static void engine_read(struct connection *c, double gap)
{
	ssize_t n = recv(c->fd, c->seen + c->n, sizeof(c->seen) - 1 - c->n, 0);
	const char *body;

	if (n <= 0) {
		(void)close(c->fd);
		c->fd = 0;
		c->n = 0;
		c->at = 0;
		return;
	}
	c->n += (size_t)n;
	c->seen[c->n] = '\0';
	body = strstr(c->seen, "\r\n\r\n");
	if (body == NULL || (c->seen[0] == 'P' && c->seen[c->n - 1] != '}'))
		return;
	engine_answer(c, gap);
	c->n = 0;
}

static int serve(const char *port, size_t tokens, double gap)
{
	const struct sockaddr_in here = address(port);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, found[EVENTS_MAX];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), loop = epoll_create1(0);
	const int on = 1;

	(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (const struct sockaddr *)&here, sizeof(here)) < 0 ||
	    listen(listener, CONNECTIONS_MAX) < 0 ||
	    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event) < 0)
		return fail("listen");
	for (;;) {
		int n = epoll_wait(loop, found, EVENTS_MAX, 1);

		for (int i = 0; i < n; i++) {
			struct connection *c = found[i].data.ptr;
			int fd;

			if (c != NULL) {
				engine_read(c, gap);
				continue;
			}
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			for (c = connection; c < connection + CONNECTIONS_MAX && c->fd != 0;)
				c++;
			if (fd < 0 || c == connection + CONNECTIONS_MAX)
				return fail("accept");
			no_delay(fd);
			c->fd = fd;
			event.data.ptr = c;
			if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) < 0)
				return fail("epoll");
		}
		engine_tick(tokens, gap, now());
	}
}

/* ---- its clients -------------------------------------------------------------------------------
 */

struct clients {
	const char *path, *bearer;
	size_t requests, left;
	double *took;
	size_t n_took;
};

static void ask_once(struct clients *all, struct connection *c)
{
	static const char body[] = "{\"model\":\"m\",\"stream\":true,\"messages\":"
				   "[{\"role\":\"user\",\"content\":\"Hello\"}]}";
	char text[2048];
	int n = snprintf(text, sizeof(text),
	                 "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
	                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
	                 all->path, all->bearer, sizeof(body) - 1, body);

	c->asked++;
	c->answered = false;
	c->n = 0;
	c->at = now();
	send_all(c->fd, text, (size_t)n);
}

/* What was seen of the stream's end is kept: an end may come in two pieces. */
static bool client_read(struct clients *all, struct connection *c)
{
	static char text[SEEN_MAX];
	ssize_t got;
	size_t n = c->n;

	memcpy(text, c->seen, n);
	got = recv(c->fd, text + n, sizeof(text) - 1 - n, 0);
	if (got <= 0) {
		fprintf(stderr, "bench_tokens: %s after: %.*s\n",
		        got < 0 ? strerror(errno) : "closed", (int)n, text);
		return false;
	}
	n += (size_t)got;
	text[n] = '\0';
	if (!c->answered && n >= 12 && strncmp(text, "HTTP/1.1 200", 12) != 0) {
		fprintf(stderr, "bench_tokens: %.600s\n", text);
		return false;
	}
	if (!c->answered && strstr(text, "data: ") != NULL) {
		if (strncmp(text, "HTTP/1.1 200", 12) != 0)
			return false;
		c->answered = true;
		all->took[all->n_took++] = now() - c->at;
	}
	if (c->answered && n >= sizeof(end) - 1 && strstr(text, "[DONE]") != NULL &&
	    memcmp(text + n - (sizeof(end) - 1), end, sizeof(end) - 1) == 0) {
		if (c->asked < all->requests)
			ask_once(all, c);
		else
			all->left--;
		return true;
	}
	c->n = MIN(n, c->answered ? (size_t)64 : sizeof(c->seen) - 1);
	memcpy(c->seen, text + n - c->n, c->n);
	return true;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int ask(const char *port, struct clients *all, size_t streams)
{
	const struct sockaddr_in there = address(port);
	struct epoll_event event = {.events = EPOLLIN}, found[EVENTS_MAX];
	double until = now() + DEADLINE_S;
	int loop = epoll_create1(0);

	all->left = streams;
	all->took = calloc(streams * all->requests, sizeof(double));
	for (size_t i = 0; i < streams; i++) {
		struct connection *c = &connection[i];

		c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		event.data.ptr = c;
		if (connect(c->fd, (const struct sockaddr *)&there, sizeof(there)) < 0 ||
		    epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &event) < 0)
			return fail("connect");
		no_delay(c->fd);
	}
	for (size_t i = 0; i < streams; i++)
		ask_once(all, &connection[i]);
	while (all->left > 0) {
		int n = epoll_wait(loop, found, EVENTS_MAX, 1000);

		if (now() > until)
			return fail("no end of the streams");
		for (int i = 0; i < n; i++) {
			if (!client_read(all, found[i].data.ptr))
				return fail("a stream broke off, or was refused");
		}
	}
	qsort(all->took, all->n_took, sizeof(double), by_value);
	printf("{\"p50\":%.6f,\"p99\":%.6f,\"n\":%zu}\n", all->took[all->n_took / 2],
	       all->took[all->n_took * 99 / 100], all->n_took);
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	const char *bearer = getenv("BENCH_TOKEN");

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (argc == 5 && strcmp(argv[1], "serve") == 0)
		return serve(argv[2], strtoul(argv[3], NULL, 10), strtod(argv[4], NULL) / 1000);
	if (argc == 6 && strcmp(argv[1], "ask") == 0) {
		size_t streams = strtoul(argv[4], NULL, 10);
		struct clients all = {.path = argv[3],
		                      .bearer = bearer != NULL ? bearer : "none",
		                      .requests = strtoul(argv[5], NULL, 10)};

		if (streams > 0 && streams <= CONNECTIONS_MAX && all.requests > 0)
			return ask(argv[2], &all, streams);
	}
	fprintf(stderr, "usage: bench_tokens serve PORT TOKENS GAP_MS | "
	                "ask PORT PATH STREAMS REQUESTS\n");
	return 125;
}
