/* thread.c - see thread.h. */
#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	int e;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old); /* it is born with what we have */
	e = pthread_create(out, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e == 0)
		(void)pthread_setname_np(*out, name);
	return e;
}

void event_set(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one));
}
