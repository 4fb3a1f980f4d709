/*
 * httpd_upgrade.c - connections that leave HTTP: the server's side; see httpd.h.
 *
 * Not by libmicrohttpd's own upgrade: under TLS that moves 4 bytes at a time (0.9.75). The exchange
 * stays as its handler had it, suspended and held, so libmicrohttpd does not look at the socket,
 * and the bytes go over it from here, through the same TLS session. The end of it is that of an
 * exchange which is cut off.
 */
#include "base/clock.h"
#include "io/httpd_impl.h"

#include <gnutls/gnutls.h>
#include <sys/socket.h>

#define UPGRADE_REQUIRED 426

struct upgraded {
	unsigned magic;
#define UPGRADED_MAGIC 0x48545550U
	struct exchange *x;
};

int reply_upgrade(struct request *rq, const char *protocol,
                  void (*take)(struct request *rq, struct upgraded *u))
{
	struct exchange *x = exchange_of(rq);
	struct err err = {0};

	if (x->is_1_1 && rq->method == HTTP_GET &&
	    head_lists(request_header(rq, "Connection"), STR_LIT("upgrade")) &&
	    head_lists(request_header(rq, "Upgrade"), str_of(protocol))) {
		x->take = take;
		x->protocol = protocol;
		return 0;
	}
	(void)err_set(
		&err, ERR_INVALID,
		"this takes a GET with \"Connection: Upgrade\" and \"Upgrade: %s\", which did not "
		"arrive: does a proxy on the way pass them on?",
		protocol);
	reply_header(rq, "Upgrade", protocol);
	reply_fail(rq, UPGRADE_REQUIRED, &err);
	return 0;
}

static ssize_t of_tls(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : ECONNRESET;
	return -1;
}

static ssize_t read_some(struct exchange *x, void *p, size_t cap)
{
	return x->tls != NULL ? of_tls(gnutls_record_recv(x->tls, p, cap))
	                      : recv(x->fd, p, cap, MSG_DONTWAIT);
}

static ssize_t write_some(struct exchange *x, const void *p, size_t n)
{
	return x->tls != NULL ? of_tls(gnutls_record_send(x->tls, p, n))
	                      : send(x->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void upgrade_begin(struct exchange *x)
{
	AUTO_BUF struct buf head = BUF_INIT(1024);
	struct upgraded *u = xcalloc(1, sizeof(*u));
	struct httpd *h = x->h;
	bool late;

	assert(x->held && x->suspended && x->conn != NULL);
	*u = (struct upgraded){.magic = UPGRADED_MAGIC, .x = x};
	buf_printf(&head,
	           "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
	           "X-Request-Id: %s\r\n\r\n",
	           x->protocol, x->rq.id);
	conns_upgraded(h, x->of);
	lock_take(&h->lock);
	x->upgraded = u;
	late = atomic_load(&h->draining);
	lock_give(&h->lock);
	if (h->o.note != NULL)
		h->o.note(&x->rq, 101, NULL, clock_mono_ms() - x->start_ms);
	/* nothing else is on its way: there is room for it, or nobody there */
	if (late || write_some(x, head.p, head.n) != (ssize_t)head.n)
		(void)shutdown(x->fd, SHUT_RDWR);
	x->take(&x->rq, u);
}

void upgrades_cut(struct httpd *h)
{
	lock_take(&h->lock);
	for (struct exchange *x = h->live; x != NULL; x = x->next) {
		if (x->upgraded != NULL)
			(void)shutdown(x->fd, SHUT_RDWR);
	}
	lock_give(&h->lock);
}

int upgraded_fd(const struct upgraded *u)
{
	return u->x->fd;
}

ssize_t upgraded_read(struct upgraded *u, void *p, size_t cap)
{
	assert(u->magic == UPGRADED_MAGIC && cap >= UPGRADED_READ_MIN);
	return read_some(u->x, p, cap);
}

ssize_t upgraded_write(struct upgraded *u, const void *p, size_t n)
{
	assert(u->magic == UPGRADED_MAGIC);
	return write_some(u->x, p, n);
}

void upgraded_close(struct upgraded *u)
{
	struct exchange *x = u->x;

	assert(u->magic == UPGRADED_MAGIC);
	lock_take(&x->h->lock);
	assert(x->upgraded == u);
	x->upgraded = NULL;
	lock_give(&x->h->lock);
	free(u);
	(void)shutdown(x->fd, SHUT_WR);
	exchange_finish(x, true);
}
