/*
 * keeper.c - the process that keeps the listening socket; see listener.h. It reads nothing of what
 * callers send: what they are told is the same for all.
 */
#include "server/start/listener.h"
#include "io/local.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define TICK_MS 1000
#define FIRST_FD 3
#define TOLD_MAX 64 /* callers that were told, and may not have read it yet */
#define TOLD_MS 2000
#define SWALLOW 65536 /* bytes of a request that are read before it is closed */

#define BODY                                                                                       \
	"{\"message\":\"the server is not running\",\"error\":{\"id\":\"unavailable\","            \
	"\"message\":\"the server is not running\"}}"

struct keeper {
	int listen_fd, server_fd, port_fd;
	bool tls, draining;
	const char *runners;
	int64_t away_ms; /* since when nobody takes connections; 0 = somebody does */
	struct {
		int fd;
		int64_t until_ms;
	} told[TOLD_MAX];
	size_t n_told;
};

static void drop(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void server_left(struct keeper *k)
{
	drop(&k->server_fd);
	if (k->away_ms == 0)
		k->away_ms = clock_mono_ms();
}

/* Another server than the one before: there is one at a time, so that one is gone. */
static void server_came(struct keeper *k, int fd)
{
	struct err ignored = {0};
	uid_t uid;

	if (local_peer(fd, &uid, &ignored) < 0 || uid != geteuid()) {
		(void)close(fd);
		return;
	}
	drop(&k->server_fd);
	k->server_fd = fd;
	k->away_ms = 0;
	k->draining = false;
}

/* False: the keeper's end. */
static bool server_says(struct keeper *k)
{
	struct err err = {0};
	char word = 0;
	int fd = -1, r = 0;

	if (local_receive(k->server_fd, 0, &word, &fd, &err) < 0) {
		server_left(k);
		return true;
	}
	switch (word) {
	case 'T':
		r = local_send(k->server_fd, k->port_fd >= 0 ? 'F' : 'N', k->port_fd, &err);
		break;
	case 'K':
	case 'S':
		if (fd >= 0) {
			drop(&k->port_fd);
			k->port_fd = fd;
			fd = -1;
			k->tls = word == 'S';
		}
		r = local_send(k->server_fd, 'O', -1, &err);
		break;
	case 'D':
		k->draining = true;
		k->away_ms = clock_mono_ms();
		break;
	case 'Q':
		return false;
	default:
		break;
	}
	drop(&fd);
	if (r < 0)
		server_left(k);
	return true;
}

/* Closing on bytes that were not read sends a reset, which can overtake the answer. */
static void close_told(struct keeper *k, size_t i)
{
	char scratch[4096];

	for (size_t n = 0; n < SWALLOW; n += sizeof(scratch)) {
		if (recv(k->told[i].fd, scratch, sizeof(scratch), MSG_DONTWAIT) <= 0)
			break;
	}
	(void)close(k->told[i].fd);
	k->told[i] = k->told[--k->n_told];
}

static void tell(struct keeper *k)
{
	static const char text[] =
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
		"Retry-After: 2\r\nConnection: close\r\nContent-Length: ";
	int fd = accept4(k->port_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	char reply[600];

	if (fd < 0)
		return;
	if (k->tls) { /* it would not understand it */
		(void)close(fd);
		return;
	}
	if (k->n_told == TOLD_MAX)
		close_told(k, 0);
	FMT(reply, "%s%zu\r\n\r\n%s", text, sizeof(BODY) - 1, BODY);
	(void)!send(fd, reply, strlen(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)shutdown(fd, SHUT_WR);
	k->told[k->n_told].fd = fd;
	k->told[k->n_told++].until_ms = clock_mono_ms() + TOLD_MS;
}

static bool is_wanted(const struct keeper *k)
{
	return k->server_fd >= 0 || listener_runners(k->runners);
}

static void run(struct keeper *k)
{
	int64_t looked = 0;

	for (;;) {
		int64_t now = clock_mono_ms();
		bool answers =
			k->port_fd >= 0 && k->away_ms != 0 && now - k->away_ms >= KEEPER_QUIET_MS;
		struct pollfd p[] = {{.fd = k->listen_fd, .events = POLLIN},
		                     {.fd = k->server_fd, .events = POLLIN},
		                     {.fd = answers ? k->port_fd : -1, .events = POLLIN}};

		if (k->server_fd < 0 && now - looked >= TICK_MS) {
			looked = now;
			if (!is_wanted(k))
				return;
		}
		for (size_t i = k->n_told; i-- > 0;) {
			if (now >= k->told[i].until_ms)
				close_told(k, i);
		}
		if (poll(p, COUNT(p), TICK_MS) <= 0)
			continue;
		if (p[1].revents != 0 && !server_says(k))
			return;
		if (p[0].revents != 0) {
			int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0)
				server_came(k, fd);
		}
		if (p[2].revents != 0)
			tell(k);
	}
}

int keeper_main(int argc, char **argv, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct keeper k = {.listen_fd = -1, .server_fd = FIRST_FD, .port_fd = -1};
	const char *path;

	if (argc != 1 || argv[0][0] != '/' || !local_is(FIRST_FD))
		return err_set(err, ERR_USAGE, "`stoker server` starts this by itself");
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	path = arena_printf(a, "%s/keeper.sock", argv[0]);
	k.runners = arena_printf(a, "%s/" APP_RUNNERS, argv[0]);
	if (local_listen(path, SOCK_SEQPACKET, &k.listen_fd, err) < 0)
		return -1;
	run(&k);
	/* A server that finds nobody here, or is hung up on, opens the port: free by then. */
	drop(&k.port_fd);
	(void)unlink(path);
	drop(&k.listen_fd);
	return 0;
}
