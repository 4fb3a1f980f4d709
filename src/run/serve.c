/* serve.c - see serve.h. */
#include "run/serve.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/units.h"
#include "io/client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define ASK_MS 5000      /* one answer */
#define COMES_MS 200     /* between two looks at one that has not answered yet, ... */
#define COMES_SOON_MS 10 /* ... but less at first, as some are there at once */
#define COMES_PART 8     /* of the time since the start */
#define IS_THERE_MS 2000 /* at one that did */
#define MISSES 3         /* in a row, until it takes no more requests */
#define BODY_MAX ((size_t)64 << 10)

struct serve {
	unsigned magic;
#define SERVE_MAGIC 0x53455256U
	struct serve_options o;
	struct http_client *http;
	pthread_t thread;
	struct lock lock;
	struct cond changed;
	atomic_bool stop, drains;
	int64_t started_ms;
	bool was_there; /* at any time */
	bool serves;
	unsigned misses;
};

int serve_free_port(uint32_t *out, struct err *err)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(at);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &n) < 0)
		return err_errno(err, errno, "a port for the job's server");
	*out = ntohs(at.sin_port);
	return 0;
}

/* Does it answer as a server that takes requests? */
static bool is_well(struct serve *s, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header header = {"Authorization", arena_printf(a, "Bearer %s", s->o.key)};
	struct http_call call = {
		.method = HTTP_GET,
		.url = arena_printf(a, "http://127.0.0.1:%" PRIu32 "%s", s->o.port, s->o.health),
		.headers = &header,
		.n_headers = 1,
		.connect_ms = ASK_MS,
		.total_ms = ASK_MS,
		.body_max = BODY_MAX,
		.cancel = &s->stop};

	return http_do(s->http, &call, &reply, err) == 0 && http_expect(&call, &reply, err) == 0;
}

static void is_there(struct serve *s)
{
	char took[UNITS_CAP];

	s->misses = 0;
	if (s->serves || s->drains)
		return;
	s->serves = true;
	if (s->was_there)
		logs_message(s->o.logs, "%s: %s answers again", s->o.name, s->o.health);
	else
		logs_message(s->o.logs, "serving as %s, %s after the start: /deployments/%s/",
		             s->o.name,
		             units_show_seconds((uint64_t)(clock_mono_ms() - s->started_ms) / 1000,
		                                took),
		             s->o.name);
	s->was_there = true;
	report_serve(s->o.report, s->o.port, true);
	if (s->drains) /* meanwhile */
		report_serve(s->o.report, s->o.port, false);
}

static void is_missing(struct serve *s, const struct err *err)
{
	if (!s->serves || ++s->misses < MISSES)
		return;
	s->serves = false;
	logs_message(s->o.logs, "%s: no requests for now: %s", s->o.name, err->msg);
	report_serve(s->o.report, s->o.port, false);
}

static int64_t pause_ms(const struct serve *s)
{
	int64_t since = clock_mono_ms() - s->started_ms;

	return s->serves ? IS_THERE_MS : MIN(COMES_MS, MAX(COMES_SOON_MS, since / COMES_PART));
}

static void *watch(void *arg)
{
	struct serve *s = FROM_VOID(struct serve, arg, SERVE_MAGIC);

	report_serve(s->o.report, s->o.port, false);
	while (!s->stop) {
		struct err err = {0};
		int64_t until;

		if (is_well(s, &err))
			is_there(s);
		else if (!s->stop)
			is_missing(s, &err);
		until = sync_deadline(pause_ms(s));
		lock_take(&s->lock);
		while (!s->stop && cond_wait_until(&s->changed, &s->lock, until))
			;
		lock_give(&s->lock);
	}
	return NULL;
}

void serve_start(struct serve **out, const struct serve_options *o)
{
	struct serve *s = *out = xcalloc(1, sizeof(*s));

	assert(o->key != NULL && o->port > 0);
	s->magic = SERVE_MAGIC;
	s->o = *o;
	s->http = http_client_new(&(struct http_policy){0});
	s->started_ms = clock_mono_ms();
	lock_init(&s->lock, LOCK_SERVE);
	cond_init(&s->changed);
	if (thread_start(&s->thread, "serve", watch, s) != 0)
		abort();
}

void serve_drain(struct serve *s)
{
	if (s == NULL || atomic_exchange(&s->drains, true))
		return;
	report_serve(s->o.report, s->o.port, false);
}

bool serve_stop(struct serve *s)
{
	bool was_there;

	if (s == NULL)
		return false;
	serve_drain(s);
	lock_take(&s->lock);
	s->stop = true;
	cond_broadcast(&s->changed);
	lock_give(&s->lock);
	(void)pthread_join(s->thread, NULL);
	was_there = s->was_there;
	http_client_free(s->http);
	cond_done(&s->changed);
	lock_done(&s->lock);
	s->magic = 0;
	free(s);
	return was_there;
}
