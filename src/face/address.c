/*
 * address.c - the address that a client used, for URLs that it is told to come back to. A tunnel, a
 * reverse proxy or a name in front of the server are not known to it otherwise.
 */
#include "face/face.h"

#include "io/url.h"

#include <arpa/inet.h>

#define HOST_MAX 255

static bool is_trusted(const struct face_ctx *ctx, const char *peer)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	const struct sockaddr *sa = NULL;

	if (inet_pton(AF_INET, peer, &v4.sin_addr) == 1)
		sa = (const struct sockaddr *)&v4;
	else if (inet_pton(AF_INET6, peer, &v6.sin6_addr) == 1)
		sa = (const struct sockaddr *)&v6;
	for (size_t i = 0; sa != NULL && i < ctx->n_proxies; i++) {
		if (url_net_has(&ctx->proxies[i], sa))
			return true;
	}
	return false;
}

/* The first of a list, which the proxy next to the client wrote. */
static struct str forwarded(const struct request *rq, const char *name)
{
	struct str list = request_header(rq, name), first = {0};

	if (list.n == 0 || !is_trusted(face_ctx(rq), rq->peer))
		return (struct str){0};
	(void)str_cut(&list, ',', &first);
	return str_trim(first);
}

struct str face_host(const struct request *rq)
{
	struct str host = forwarded(rq, "X-Forwarded-Host");

	return host.n > 0 ? host : request_header(rq, "Host");
}

/* A name or an address, with or without a port, and nothing else. */
static bool host_ok(struct arena *a, struct str host)
{
	struct err ignored = {0};
	struct url u;

	if (host.n == 0 || host.n > HOST_MAX)
		return false;
	for (size_t i = 0; i < host.n; i++) {
		char c = host.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		      strchr(".-_:[]", c) != NULL) ||
		    c == '\0')
			return false;
	}
	return url_parse(a, str_of(arena_printf(a, "http://%.*s/", STR_ARG(host))), &u, &ignored) ==
	       0;
}

const char *face_url(const struct request *rq)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str proto = forwarded(rq, "X-Forwarded-Proto"), host = face_host(rq);
	const char *scheme = ctx->tls ? "https" : "http";

	/* A client that uses the server as a plain proxy may name a host that does not exist. */
	if (ctx->base_url_is_set || rq->by_proxy || !host_ok(rq->arena, host))
		return ctx->base_url;
	if (proto.n > 0 && !str_ieq(proto, "http") && !str_ieq(proto, "https"))
		return ctx->base_url;
	if (proto.n > 0)
		scheme = str_ieq(proto, "https") ? "https" : "http";
	return arena_printf(rq->arena, "%s://%.*s", scheme, STR_ARG(host));
}
