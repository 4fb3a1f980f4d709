/* listen.c - the listening socket, from HOST:PORT as people write it. */
#include "io/httpd_impl.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#define BACKLOG 1024

static int parse_address(const char *address, char host[256], char port[8], struct err *err)
{
	const char *colon = strrchr(address, ':');
	struct str name;
	uint64_t n;

	if (colon == NULL || str_u64(str_of(colon + 1), 0, UINT16_MAX, &n, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_INVALID,
		               "address %s: HOST:PORT is expected, such as 127.0.0.1:8000",
		               address);
	}
	fmt_fixed(port, 8, "%u", (unsigned)n);
	name = str_n(address, (size_t)(colon - address));
	if (str_starts(name, "[") && str_ends(name, "]"))
		name = str_n(name.p + 1, name.n - 2);
	return str_copy(name, host, 256, "split the host from the address", err);
}

int listen_port(int fd, uint16_t *port, struct err *err)
{
	struct sockaddr_storage at = {0};
	socklen_t n = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &n) < 0)
		return err_errno(err, errno, "address of the listener");
	*port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
	                                       : ((struct sockaddr_in *)&at)->sin_port);
	return 0;
}

static int bind_one(int fd, const struct addrinfo *ai, const char *host, const char *port,
                    uint16_t *bound, struct err *err)
{
	int one = 1;

	if (fd < 0)
		return err_errno(err, errno, "socket for %s", host);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		if (errno == EADDRINUSE)
			return err_set(
				err, ERR_ADDRESS_IN_USE,
				"port %s of %s is in use: another server runs there (see `ss "
				"-ltnp`); stop it, or listen on another port",
				port, host);
		return err_errno(err, errno, "listen on %s port %s", host, port);
	}
	return listen_port(fd, bound, err);
}

int listen_open(const char *address, int *out, uint16_t *port_bound, struct err *err)
{
	AUTO_FD int fd = -1;
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
	                         .ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	char host[256], port[8];
	int r;

	if (parse_address(address, host, port, err) < 0)
		return -1;
	if (strcmp(host, "localhost") == 0)
		hints.ai_family = AF_INET; /* where every client tries in the end */
	r = getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, &list);
	if (r != 0)
		return err_set(err, ERR_INVALID, "address %s: %s", address, gai_strerror(r));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	r = bind_one(fd, list, host[0] == '\0' ? "all addresses" : host, port, port_bound, err);
	freeaddrinfo(list);
	if (r == 0)
		*out = TAKE_FD(fd);
	return r;
}
