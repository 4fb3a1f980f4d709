/* local.c - see local.h. */
#include "io/local.h"

#include "base/clock.h"
#include "base/fs.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define SEND_STEP_MS 5    /* between two tries to send */
#define OVERFLOW_ID 65534 /* kernel.overflowuid, which nobody changes */
#define BACKLOG 128
#define CONNECT_S 5

int local_name(const char *path, int *dir, char name[LOCAL_NAME_CAP], struct err *err)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *folder =
		slash == NULL ? xstrdup(".") : xstrndup(path, (size_t)(slash - path));
	const char *base = slash == NULL ? path : slash + 1;
	int fd = open(folder[0] != '\0' ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "open the folder of socket %s", path);
	if (strlen(base) > 60) {
		(void)close(fd);
		return err_set(err, ERR_INVALID, "socket %s: the path is too long", path);
	}
	fmt_fixed(name, LOCAL_NAME_CAP, "/proc/self/fd/%d/%s", fd, base);
	*dir = fd;
	return 0;
}

static int open_one(const char *path, int type, int *fd, int *dir, struct sockaddr_un *at,
                    struct err *err)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (local_name(path, dir, at->sun_path, err) < 0)
		return -1;
	*fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return err_errno(err, errno, "socket %s", path);
	return 0;
}

int local_listen(const char *path, int type, int *out, struct err *err)
{
	AUTO_FD int fd = -1, dir = -1;
	struct sockaddr_un at;
	const char *base;

	if (open_one(path, type, &fd, &dir, &at, err) < 0)
		return -1;
	base = strrchr(at.sun_path, '/') + 1;
	if (unlinkat(dir, base, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "socket %s", path);
	/* The mode comes after the name: the folder keeps others out in between. */
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    fchmodat(dir, base, 0600, 0) < 0 || listen(fd, BACKLOG) < 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(err, errno, "listen at %s", path);
	*out = TAKE_FD(fd);
	return 0;
}

int local_connect(const char *path, int type, int *out, struct err *err)
{
	const struct timeval patience = {.tv_sec = CONNECT_S};
	AUTO_FD int fd = -1, dir = -1;
	struct sockaddr_un at;

	if (open_one(path, type, &fd, &dir, &at, err) < 0)
		return -1;
	/* One that is frozen takes nobody from its queue. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)&at, sizeof(at)) < 0) {
		if (errno == EAGAIN)
			return err_set(err, ERR_UNAVAILABLE, "connect to %s: nobody answers there",
			               path);
		return err_errno(err, errno, "connect to %s", path);
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0}, sizeof(patience));
	*out = TAKE_FD(fd);
	return 0;
}

bool local_is(int fd)
{
	socklen_t n = sizeof(int);
	int domain = 0;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX;
}

int local_peer(int fd, uid_t *uid, struct err *err)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return err_errno(err, errno, "identify the other end of a socket");
	*uid = peer.uid;
	return 0;
}

static atomic_bool root_is_unmapped;

void local_root_is_unmapped(void)
{
	atomic_store(&root_is_unmapped, true);
}

int local_check_listener(int fd, struct err *err)
{
	uid_t uid;

	if (local_peer(fd, &uid, err) < 0)
		return -1;
	if (uid == geteuid() || uid == 0 || (atomic_load(&root_is_unmapped) && uid == OVERFLOW_ID))
		return 0;
	return err_set(err, ERR_SERVER_UNPROVEN, "user %u owns the listening socket",
	               (unsigned)uid);
}

/* Bytes that carry a descriptor. */
struct fd_message {
	struct msghdr m;
	struct iovec part;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
};

static void message_init(struct fd_message *f, void *p, size_t n)
{
	*f = (struct fd_message){.part = {.iov_base = p, .iov_len = n}};
	f->m = (struct msghdr){.msg_iov = &f->part, .msg_iovlen = 1};
}

static int send_one(int sock, const void *p, size_t n, int fd, int flags, struct err *err)
{
	struct fd_message f;
	ssize_t sent;

	message_init(&f, (void *)(uintptr_t)p, n);
	if (fd >= 0) {
		struct cmsghdr *c = &f.control.align;

		f.m.msg_control = f.control.room;
		f.m.msg_controllen = sizeof(f.control.room);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do
		sent = sendmsg(sock, &f.m, MSG_NOSIGNAL | flags);
	while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)n)
		return 0;
	if (sent < 0 && errno == EAGAIN)
		return err_set(err, ERR_BUSY, "the other process does not read its messages");
	if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
		return err_set(err, ERR_UNAVAILABLE, "the other process has exited");
	return err_errno(err, sent < 0 ? errno : EMSGSIZE, "send a message to another process");
}

/* *fd: the one that came, -1: none. Room for one is room for two where its size is rounded up: with
 * several, all are closed. */
static int take_fd(struct fd_message *f, int *fd, struct err *err)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(&f->m);
	size_t n = 0;

	*fd = -1;
	if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	while (CMSG_LEN((n + 1) * sizeof(int)) <= c->cmsg_len)
		n++;
	for (size_t i = 0; i < n; i++) {
		int one;

		memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof(one));
		if (n == 1)
			*fd = one;
		else
			(void)close(one);
	}
	if (n > 1 || (f->m.msg_flags & MSG_CTRUNC) != 0) {
		close_fd_p(fd);
		*fd = -1;
		return err_set(err, ERR_INVALID, "more than one descriptor came with a message");
	}
	return 0;
}

static int receive_one(int sock, int64_t wait_ms, void *p, size_t *n, int *fd, struct err *err)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	struct fd_message f;
	ssize_t got;

	*fd = -1;
	if (poll(&ready, 1, (int)MIN(wait_ms, (int64_t)INT_MAX)) == 0)
		return err_set(err, ERR_TIMEOUT, "no message within %d ms", (int)wait_ms);
	message_init(&f, p, *n);
	f.m.msg_control = f.control.room;
	f.m.msg_controllen = sizeof(f.control.room);
	do
		got = recvmsg(sock, &f.m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != ECONNRESET)
		return err_errno(err, errno, "receive a message from another process");
	if (got >= 0 && take_fd(&f, fd, err) < 0)
		return -1;
	if (got <= 0) { /* an empty message is none of ours, whatever came with it */
		close_fd_p(fd);
		*fd = -1;
		return err_set(err, ERR_UNAVAILABLE, "the other process has exited");
	}
	if ((f.m.msg_flags & MSG_TRUNC) != 0) {
		close_fd_p(fd);
		*fd = -1;
		return err_set(err, ERR_INVALID, "a message of more than %zu bytes", *n);
	}
	*n = (size_t)got;
	return 0;
}

int local_send_message(int sock, struct str body, int fd, struct err *err)
{
	assert(body.n > 0 && body.n <= LOCAL_MESSAGE_MAX);
	return send_one(sock, body.p, body.n, fd, MSG_DONTWAIT, err);
}

int local_send_within(int sock, int64_t ms, struct str body, int fd, struct err *err)
{
	int64_t until = clock_mono_ms() + ms;

	while (local_send_message(sock, body, fd, err) < 0) {
		if (err->code != ERR_BUSY || clock_mono_ms() > until)
			return -1;
		err_clear(err);
		clock_sleep_ms(SEND_STEP_MS);
	}
	return 0;
}

int local_receive_message(int sock, int64_t wait_ms, struct buf *out, int *fd, struct err *err)
{
	size_t n = LOCAL_MESSAGE_MAX;

	if (out->max - out->n < n)
		return err_set(err, ERR_TOO_BIG, "no room for a message of %zu bytes", n);
	if (receive_one(sock, wait_ms, buf_room(out, n), &n, fd, err) < 0)
		return -1;
	out->n += n;
	return 0;
}

int local_send(int sock, char word, int fd, struct err *err)
{
	return send_one(sock, &word, 1, fd, 0, err);
}

int local_receive(int sock, int64_t wait_ms, char *word, int *fd, struct err *err)
{
	size_t n = 1;

	return receive_one(sock, wait_ms, word, &n, fd, err);
}
