/*
 * bench_run.c - starts one program and writes what it cost to a file: wall seconds, CPU seconds and
 * peak KiB of it and its children, exit status. A small program of its own, because the peak memory
 * that the kernel reports for a child is never below that of the process which started it.
 *
 *   bench_run FILE DEADLINE_S PROGRAM [ARGUMENT...]
 */
#include "base/base.h"

#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static volatile sig_atomic_t running; /* pid */

static void on_alarm(int signal_number UNUSED)
{
	(void)kill((pid_t)running, SIGKILL);
}

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	struct rusage use;
	FILE *out;
	pid_t pid;
	int status, e;

	if (argc < 4 || (out = fopen(argv[1], "we")) == NULL) {
		fprintf(stderr, "usage: bench_run FILE DEADLINE_S PROGRAM [ARGUMENT...]\n");
		return 125;
	}
	(void)signal(SIGALRM, on_alarm);
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	e = posix_spawnp(&pid, argv[3], NULL, NULL, argv + 3, environ);
	if (e != 0) {
		fprintf(stderr, "bench_run: %s: %s\n", argv[3], strerror(e));
		return 127;
	}
	running = pid;
	(void)alarm((unsigned)strtoul(argv[2], NULL, 10));
	while (wait4(pid, &status, 0, &use) < 0 && errno == EINTR)
		continue;
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	fprintf(out, "{\"wall\":%.6f,\"cpu\":%.6f,\"rss_kib\":%ld,\"status\":%d}\n",
	        (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9,
	        seconds(&use.ru_utime) + seconds(&use.ru_stime), use.ru_maxrss,
	        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return fclose(out) == 0 ? 0 : 125;
}
