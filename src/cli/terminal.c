/* terminal.c - raw mode, and the way out of it; see terminal.h. */
#include "cli/terminal.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <termios.h>

static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static struct termios before;
static atomic_bool is_raw;
static struct sigaction old[COUNT(deadly)];

void terminal_restore(void)
{
	if (atomic_exchange(&is_raw, false))
		(void)tcsetattr(0, TCSADRAIN, &before); /* it may be gone */
}

/* The default action follows: the signal is raised again. */
static void on_death(int sig)
{
	int keep = errno;

	if (is_raw)
		(void)tcsetattr(0, TCSANOW, &before);
	is_raw = false;
	for (size_t i = 0; i < COUNT(deadly); i++) {
		if (deadly[i] == sig)
			(void)sigaction(sig, &old[i], NULL);
	}
	errno = keep;
}

void terminal_raw_again(void)
{
	struct termios raw = before;

	if (!is_raw)
		return;
	cfmakeraw(&raw);
	(void)tcsetattr(0, TCSADRAIN, &raw);
}

int terminal_raw(struct err *err)
{
	struct sigaction sa = {.sa_handler = on_death};

	if (tcgetattr(0, &before) < 0)
		return err_errno(err, errno, "the terminal");
	if (atexit(terminal_restore) != 0)
		return err_set(err, ERR_IO, "could not restore the terminal");
	for (size_t i = 0; i < COUNT(deadly); i++)
		(void)sigaction(deadly[i], &sa, &old[i]);
	is_raw = true;
	terminal_raw_again();
	return 0;
}

struct terminal_size terminal_size(void)
{
	struct winsize w = {0};

	if (ioctl(0, TIOCGWINSZ, &w) < 0 || w.ws_row == 0 || w.ws_col == 0)
		return (struct terminal_size){24, 80};
	return (struct terminal_size){w.ws_row, w.ws_col};
}
