/* keeper.c - see keeper.h. */
#include "run/keeper.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define GIVE_UP_MS 5000 /* for what is being done when the runner hangs up */
#define END_MS 10000    /* a keeper that was hung up on ends sooner */
#define END_STEP_MS 5
#define FDS_MAX 8

int keeper_start(struct keeper_end *out, const char *what,
                 void (*life)(void *arg, int sock, pid_t runner), void *arg, struct err *err)
{
	const pid_t runner = getpid();
	int pair[2];

	*out = (struct keeper_end){.sock = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, errno, "a socket to the keeper of %s", what);
	out->pid = fork();
	if (out->pid == 0) {
		(void)close(pair[0]);
		life(arg, pair[1], runner);
		_exit(1);
	}
	(void)close(pair[1]);
	out->sock = pair[0];
	return out->pid > 0 ? 0 : err_errno(err, errno, "start the keeper of %s", what);
}

void keeper_hang_up(struct keeper_end *k)
{
	close_fd_p(&k->sock);
	k->sock = -1;
}

void keeper_close(struct keeper_end *k)
{
	int64_t until = clock_mono_ms() + END_MS;

	keeper_hang_up(k);
	while (k->pid > 0 && waitpid(k->pid, NULL, WNOHANG) == 0 && clock_mono_ms() < until)
		clock_sleep_ms(END_STEP_MS);
	k->pid = 0;
}

int keeper_lost(const char *does, struct err *err)
{
	if (err->code != ERR_UNAVAILABLE)
		return -1;
	err_clear(err);
	return err_set(err, ERR_KEEPER_LOST, "the process that %s has ended", does);
}

int keeper_keep_fds(int *fds[], size_t n, pid_t runner, int *pidfd, struct err *err)
{
	const int first = STDERR_FILENO + 1, end = first + (int)n + 1;
	int away[FDS_MAX + 1], theirs = pidfd_open(runner, 0);
	bool ok = theirs >= 0;

	assert(n <= FDS_MAX);
	if (getppid() != runner) /* it may be another one's number by now */
		return err_set(err, ERR_CANCELED, "the runner has ended");
	for (size_t i = 0; i <= n && ok; i++) { /* none is in another's place */
		away[i] = fcntl(i < n ? *fds[i] : theirs, F_DUPFD_CLOEXEC, end);
		ok = away[i] >= 0;
	}
	for (size_t i = 0; i <= n && ok; i++)
		ok = dup3(away[i], first + (int)i, O_CLOEXEC) >= 0;
	if (!ok || close_range((unsigned)end, ~0U, 0) < 0)
		return err_errno(err, errno, "close what the runner has open");
	for (size_t i = 0; i < n; i++)
		*fds[i] = first + (int)i;
	*pidfd = first + (int)n;
	return 0;
}

struct watch {
	unsigned magic;
#define WATCH_MAGIC 0x52574154U
	int sock, pidfd;
	atomic_bool *over;
};

/* No signal tells of it: a parent that is somebody else by then may not send us any. */
static void *wait_for_the_end(void *arg)
{
	struct watch *w = FROM_VOID(struct watch, arg, WATCH_MAGIC);
	struct pollfd p[] = {{.fd = w->sock, .events = POLLRDHUP},
	                     {.fd = w->pidfd, .events = POLLIN}};

	while (poll(p, COUNT(p), -1) <= 0)
		;
	atomic_store(w->over, true);
	clock_sleep_ms(GIVE_UP_MS);
	_exit(1);
}

int keeper_watch(int sock, int pidfd, atomic_bool *over, struct err *err)
{
	struct watch *w = xcalloc(1, sizeof(*w)); /* as long as the process */
	pthread_t thread;
	int r;

	*w = (struct watch){WATCH_MAGIC, sock, pidfd, over};
	r = pthread_create(&thread, NULL, wait_for_the_end, w);
	if (r != 0)
		return err_errno(err, r, "start a thread of a keeper");
	(void)pthread_detach(thread);
	return 0;
}
