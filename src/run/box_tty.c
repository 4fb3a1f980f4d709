/* box_tty.c - a terminal of the sandbox's own, for a command that a person types to. */
#include "run/box.h"

#include "base/fs.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* One byte with one descriptor beside it. */
struct fd_message {
	char byte;
	struct iovec one;
	struct msghdr m;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control; /* last: clang takes a cmsghdr to be as long as it likes */
};

static void fd_message_init(struct fd_message *p)
{
	*p = (struct fd_message){.byte = 't'};
	p->one = (struct iovec){.iov_base = &p->byte, .iov_len = 1};
	p->m = (struct msghdr){.msg_iov = &p->one,
	                       .msg_iovlen = 1,
	                       .msg_control = p->control.room,
	                       .msg_controllen = sizeof(p->control.room)};
}

static int send_fd(int to, int fd, struct err *err)
{
	struct fd_message fd_message;
	struct cmsghdr *c;

	fd_message_init(&fd_message);
	c = CMSG_FIRSTHDR(&fd_message.m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(to, &fd_message.m, MSG_NOSIGNAL) != 1)
		return err_errno(err, errno, "handing over the terminal");
	return 0;
}

int box_tty_open(const char *size, int to, struct err *err)
{
	AUTO_FD int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	AUTO_FD int slave = -1;
	struct winsize w = {0};
	char *end = NULL;
	int unlock = 0;

	w.ws_row = (unsigned short)strtoul(size, &end, 10);
	w.ws_col = *end == 'x' ? (unsigned short)strtoul(end + 1, NULL, 10) : 80;
	if (master < 0)
		return err_errno(err, errno, "/dev/ptmx");
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCSWINSZ, &w) < 0)
		return err_errno(err, errno, "a terminal");
	/* by its other end: no path that means something else in here */
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return err_errno(err, errno, "the terminal's other end");
	if (getsid(0) != getpid() && setsid() < 0)
		return err_errno(err, errno, "a session of its own");
	if (ioctl(slave, TIOCSCTTY, 0) < 0)
		return err_errno(err, errno, "becoming the terminal's session");
	if (send_fd(to, master, err) < 0)
		return -1;
	for (int fd = 0; fd < 3; fd++) {
		if (dup2(slave, fd) < 0)
			return err_errno(err, errno, "the terminal as stdin, stdout and stderr");
	}
	return close(to) < 0 ? err_errno(err, errno, "close") : 0;
}

int box_tty_receive(int from, int64_t wait_ms, int *out, struct err *err)
{
	struct pollfd p = {.fd = from, .events = POLLIN};
	struct fd_message fd_message;
	struct cmsghdr *c = NULL;

	if (poll(&p, 1, (int)wait_ms) <= 0)
		return err_set(err, ERR_TIMEOUT, "no terminal within %d s", (int)(wait_ms / 1000));
	fd_message_init(&fd_message);
	if (recvmsg(from, &fd_message.m, MSG_CMSG_CLOEXEC) == 1)
		c = CMSG_FIRSTHDR(&fd_message.m);
	if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
		return err_set(err, ERR_UNAVAILABLE, "no terminal came");
	memcpy(out, CMSG_DATA(c), sizeof(*out));
	return 0;
}
