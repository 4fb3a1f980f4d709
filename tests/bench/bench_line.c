/*
 * bench_line.c - a line between this machine and a network namespace of its own: what is sent is
 * late by a delay, each way, and some of it is lost. For bench.py where the kernel has no netem.
 *
 *   bench_line NAME OURS THEIRS DELAY_MS LOSS_PER_MILLION
 *
 * makes the device NAME here with the address OURS, and one in the namespace with THEIRS, of the
 * same /24; says "ready" and forwards until its input ends. Who is to be at the other end runs by
 * nsenter with this process's namespace. All is gone with the process.
 */
#include "base/base.h"

#include <arpa/inet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define MTU 1500
#define QUEUE (1 << 15) /* packets on their way, in one direction: 48 MiB */

struct packet {
	int64_t due_ns;
	uint32_t n;
	char bytes[MTU];
};

struct way {
	int from, to;
	int64_t delay_ns;
	uint32_t loss; /* of a million */
	uint64_t seed;
	struct packet *queue; /* a ring */
	size_t head, n;
};

static int64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void set_up(const char *name, const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET}, mask = {.sin_family = AF_INET};
	AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = {0};

	copy_cut(r.ifr_name, sizeof(r.ifr_name), name);
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
		die(address);
	mask.sin_addr.s_addr = htonl(0xffffff00U);
	memcpy(&r.ifr_addr, &at, sizeof(at));
	if (ioctl(fd, SIOCSIFADDR, &r) < 0)
		die("SIOCSIFADDR");
	memcpy(&r.ifr_netmask, &mask, sizeof(mask));
	if (ioctl(fd, SIOCSIFNETMASK, &r) < 0)
		die("SIOCSIFNETMASK");
	r.ifr_qlen = 10000; /* what waits for us is not to be lost, but by chance */
	(void)ioctl(fd, SIOCSIFTXQLEN, &r);
	r.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		die("SIOCSIFFLAGS");
}

static int make_device(const char *name, const char *address)
{
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};

	copy_cut(r.ifr_name, sizeof(r.ifr_name), name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
		die("/dev/net/tun");
	set_up(name, address);
	return fd;
}

/* xorshift: the same packets are lost in each run. */
static bool is_lost(struct way *w)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed % 1000000 < w->loss;
}

static void take(struct way *w)
{
	int64_t now = now_ns();

	while (w->n < QUEUE) {
		struct packet *p = &w->queue[(w->head + w->n) % QUEUE];
		ssize_t n = read(w->from, p->bytes, sizeof(p->bytes));

		if (n <= 0)
			return;
		p->n = (uint32_t)n;
		p->due_ns = now + w->delay_ns;
		w->n += !is_lost(w);
	}
}

static void give(struct way *w)
{
	int64_t now = now_ns();

	while (w->n > 0 && w->queue[w->head].due_ns <= now) {
		const struct packet *p = &w->queue[w->head];

		(void)!write(w->to, p->bytes, p->n);
		w->head = (w->head + 1) % QUEUE;
		w->n--;
	}
}

static void *forward(void *arg)
{
	struct way *w = arg;

	for (;;) {
		struct pollfd fd = {.fd = w->from, .events = w->n < QUEUE ? POLLIN : 0};
		int64_t wait = w->n > 0 ? MAX(w->queue[w->head].due_ns - now_ns(), 0) : 1000000000;
		struct timespec t = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};

		(void)ppoll(&fd, 1, &t, NULL);
		take(w);
		give(w);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct way ways[2] = {{.seed = 88172645463325252U}, {.seed = 362436069362436069U}};
	int here, there;
	pthread_t thread;
	char c;

	if (argc != 6)
		return 2;
	here = make_device(argv[1], argv[2]);
	if (unshare(CLONE_NEWNET) < 0)
		die("unshare");
	set_up("lo", "127.0.0.1");
	there = make_device(argv[1], argv[3]);
	for (int i = 0; i < 2; i++) {
		ways[i].from = i == 0 ? here : there;
		ways[i].to = i == 0 ? there : here;
		ways[i].delay_ns = (int64_t)(strtod(argv[4], NULL) * 1e6);
		ways[i].loss = (uint32_t)strtoul(argv[5], NULL, 10);
		ways[i].queue = xcalloc(QUEUE, sizeof(*ways[i].queue));
		if (pthread_create(&thread, NULL, forward, &ways[i]) != 0)
			die("pthread_create");
	}
	printf("ready\n");
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		continue;
	return 0;
}
