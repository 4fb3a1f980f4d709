/* local.c - see local.h. */
#include "io/local.h"

#include "base/fs.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 128

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
	AUTO_FD int fd = -1, dir = -1;
	struct sockaddr_un at;

	if (open_one(path, type, &fd, &dir, &at, err) < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
		return err_errno(err, errno, "connect to %s", path);
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

/* A byte that carries a descriptor. */
struct fd_message {
	struct msghdr m;
	struct iovec one;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
};

static void message_init(struct fd_message *f, char *word)
{
	*f = (struct fd_message){.one = {.iov_base = word, .iov_len = 1}};
	f->m = (struct msghdr){.msg_iov = &f->one, .msg_iovlen = 1};
}

int local_send(int sock, char word, int fd, struct err *err)
{
	struct fd_message f;
	ssize_t n;

	message_init(&f, &word);
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
		n = sendmsg(sock, &f.m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : err_errno(err, errno, "send a message to another process");
}

int local_receive(int sock, int64_t wait_ms, char *word, int *fd, struct err *err)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	struct fd_message f;
	struct cmsghdr *c;
	ssize_t n;

	*fd = -1;
	if (poll(&p, 1, (int)MIN(wait_ms, (int64_t)INT_MAX)) == 0)
		return err_set(err, ERR_TIMEOUT, "no message within %d ms", (int)wait_ms);
	message_init(&f, word);
	f.m.msg_control = f.control.room;
	f.m.msg_controllen = sizeof(f.control.room);
	do
		n = recvmsg(sock, &f.m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(err, errno, "receive a message from another process");
	if (n == 0)
		return err_set(err, ERR_UNAVAILABLE, "the other process has exited");
	c = CMSG_FIRSTHDR(&f.m);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return 0;
}
