/* sandbox_exec_tty.c - a terminal of the sandbox's own, for a command that a person types to. */
#include "run/sandbox_exec.h"

#include "base/fs.h"
#include "io/local.h"

#include <sys/ioctl.h>

int sandbox_exec_tty_open(const char *size, int to, struct err *err)
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
		return err_errno(err, errno, "open the terminal");
	if (getsid(0) != getpid() && setsid() < 0)
		return err_errno(err, errno, "start a session");
	if (ioctl(slave, TIOCSCTTY, 0) < 0)
		return err_errno(err, errno, "make it the controlling terminal");
	if (local_send(to, 't', master, err) < 0)
		return err_wrap(err, "pass the terminal to the runner");
	for (int fd = 0; fd < 3; fd++) {
		if (dup2(slave, fd) < 0)
			return err_errno(err, errno,
			                 "connect stdin, stdout and stderr to the terminal");
	}
	return close(to) < 0 ? err_errno(err, errno, "close") : 0;
}

int sandbox_exec_tty_receive(int from, int64_t wait_ms, int *out, struct err *err)
{
	char word;

	if (local_receive(from, wait_ms, &word, out, err) < 0)
		return err_wrap(err, "create a terminal for the command");
	return *out >= 0 ? 0
	                 : err_set(err, ERR_UNAVAILABLE, "the sandbox did not pass on a terminal");
}
