/*
 * accept.c - the thread that takes new connections, of the port and of the Unix socket, and gives
 * them to libmicrohttpd.
 *
 * libmicrohttpd can accept by itself, but not stop: MHD_quiesce_daemon() and the threads of the
 * daemon take the socket out of the same epoll set, both abort the process when the other was
 * first, and neither knows when the other has done with the descriptor (0.9.75). Here the socket
 * has one owner. It is closed and not shut down, which would end it for others that hold it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "io/httpd_impl.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define BURST 64      /* connections of one listener before it is the other's turn */
#define PAUSE_MS 100  /* when there are no descriptors or no memory for another */
#define SAY_MS 10000  /* between two lines about it */
#define WAIT_MS 60000 /* a bound, nothing more */

/* What is sent is meant to go: heads and pieces of a reply come one by one. */
static void no_delay(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Takes fd. */
static void hand_over(struct httpd *h, enum listener via, int fd, const struct sockaddr *sa,
                      socklen_t n)
{
	struct conn *c;

	assert(fd >= 0 && via < LISTENER_COUNT);
	if (!conns_admit(h, sa)) {
		(void)close(fd);
		return;
	}
	if (via == LISTENER_TCP)
		no_delay(fd);
	c = conns_take(h, via, fd, sa);
	if (!connection_begin(h, via, fd, sa, n))
		conns_remove(h, c);
}

/* Without descriptors or memory, or shut down by somebody else who has the socket. */
static bool is_lasting(int e)
{
	return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM || e == EINVAL;
}

static void say_why(struct httpd *h, int e)
{
	int64_t now = clock_mono_ms();

	if (h->accept.said_ms != 0 && now - h->accept.said_ms < SAY_MS)
		return;
	h->accept.said_ms = now;
	log_warn("connections have to wait: %s", strerror(e));
}

/* False when the next ones have to wait for something that only time brings. */
static bool take_some(struct httpd *h, enum listener via)
{
	for (int k = 0; k < BURST && !conns_full(h, via); k++) {
		struct sockaddr_storage at = {0};
		socklen_t n = sizeof(at);
		int fd = accept4(h->accept.fd[via], (struct sockaddr *)&at, &n,
		                 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			hand_over(h, via, fd, (const struct sockaddr *)&at, n);
			continue;
		}
		if (errno == EAGAIN)
			return true;
		if (is_lasting(errno)) {
			say_why(h, errno);
			return false;
		}
		/* else it ended before we took it: accept(2) passes its errors on */
	}
	return true;
}

static void *take_connections(void *arg)
{
	struct httpd *h = httpd_at(arg);
	struct accept *a = &h->accept;

	while (!atomic_load(&a->stop)) {
		struct pollfd fds[LISTENER_COUNT + 1] = {{.fd = a->wake_fd, .events = POLLIN}};
		bool may_go_on = true;
		uint64_t count;

		for (int i = 0; i < LISTENER_COUNT; i++) /* poll(2) leaves those below 0 out */
			fds[1 + i] = (struct pollfd){
				.fd = conns_full(h, (enum listener)i) ? -1 : a->fd[i],
				.events = POLLIN,
			};
		(void)poll(fds, COUNT(fds), WAIT_MS);
		(void)!read(a->wake_fd, &count, sizeof(count));
		for (int i = 0; i < LISTENER_COUNT; i++)
			may_go_on = (fds[1 + i].revents == 0 || take_some(h, (enum listener)i)) &&
			            may_go_on;
		if (!may_go_on)
			(void)poll(fds, 1, PAUSE_MS);
	}
	return NULL;
}

void accept_prod(struct httpd *h)
{
	event_set(h->accept.wake_fd);
}

int accept_start(struct httpd *h, struct err *err)
{
	struct accept *a = &h->accept;
	int r;

	assert(!a->running && a->wake_fd < 0 && !atomic_load(&a->stop));
	for (int i = 0; i < LISTENER_COUNT; i++) {
		int flags = a->fd[i] < 0 ? 0 : fcntl(a->fd[i], F_GETFL);

		if (a->fd[i] >= 0 &&
		    (flags < 0 || fcntl(a->fd[i], F_SETFL, flags | O_NONBLOCK) < 0))
			return err_errno(err, errno, "make the listener one that does not block");
	}
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (a->wake_fd < 0)
		return err_errno(err, errno, "create an eventfd for new connections");
	r = thread_start(&a->thread, "http-accept", take_connections, h);
	if (r != 0)
		return err_errno(err, r, "start the thread for new connections");
	a->running = true;
	return 0;
}

void accept_stop(struct httpd *h)
{
	struct accept *a = &h->accept;

	if (a->running) {
		atomic_store(&a->stop, true);
		assert(a->wake_fd >= 0);
		accept_prod(h);
		(void)pthread_join(a->thread, NULL);
		a->running = false;
	}
	for (int i = 0; i < LISTENER_COUNT; i++) {
		if (a->fd[i] >= 0)
			(void)close(a->fd[i]);
		a->fd[i] = -1;
	}
}
