/* crash.c - see crash.h. */
#include "base/crash.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_once_t crash_once = PTHREAD_ONCE_INIT;
static _Atomic(const char *) crash_label;

static void read_environment(void)
{
	atomic_store(&crash_label, getenv("STOKER_CRASH_AT"));
}

void crash_at(const char *label, int status)
{
	const char *at;

	(void)pthread_once(&crash_once, read_environment);
	at = atomic_load(&crash_label);
	if (at != NULL && strcmp(at, label) == 0)
		_exit(status);
}

void crash_set(const char *label)
{
	(void)pthread_once(&crash_once, read_environment);
	atomic_store(&crash_label, label);
}
