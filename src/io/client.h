/*
 * client.h - HTTP requests over libcurl, one blocking call each; its only user. A client is a pool
 * of connections with one policy, shared by threads.
 *
 * Guard: with `guard` on, a connection to an internal address (url_addr_is_internal) is refused
 * unless one of `allow` has it. The address is checked when the socket is made, so neither DNS nor
 * a redirect gets around it. Authorization and cookies are dropped when a redirect leaves the host.
 * Proxy variables of the environment are ignored.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include "io/url.h"

#include <stdatomic.h>

#define HTTP_HEADERS_MAX 32
#define HTTP_BODY_MAX ((size_t)64 << 20) /* a reply kept in memory */
#define HTTP_REDIRECTS_MAX 5

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	HTTP_PUT,
	HTTP_POST,
	HTTP_PATCH,
	HTTP_DELETE,
	HTTP_OPTIONS,
	HTTP_PROPFIND, /* of WebDAV */
	HTTP_MKCOL,    /* the same */
	HTTP_METHODS
};
extern const char *const http_method_name[HTTP_METHODS];

struct http_policy {
	bool guard;
	bool only_allowed; /* with guard: no address but those of `allow`, public ones neither */
	const struct url_net *allow;
	size_t n_allow;
	const char *ca_file;    /* NULL: the system's */
	const char *user_agent; /* NULL: stoker/<version> */
	/* NULL, or connect there whatever the host says; who listens must be this user, or root */
	const char *unix_socket;
	/* Called with the socket of each new connection to this origin over plain HTTP, before the
	 * first request goes over it. An error ends the call. NULL: nothing is. */
	int (*greet)(void *arg, int fd, struct err *err);
	const char *greet_origin; /* URL */
	void *greet_arg;
};

struct http_client;
/* Does the policy rule out every connection to this host? Only where it is an address: in any form
 * that a resolver reads (127.1, 0x7f000001, 017700000001). A name is judged when it has become one.
 */
bool http_host_denied(const struct http_client *c, const char *host);
struct http_client *http_client_new(const struct http_policy *policy) MUST_CHECK; /* copies it */
void http_client_free(struct http_client *c);
DEFINE_CLEANUP(struct http_client, http_client_free)
#define AUTO_HTTP_CLIENT CLEANUP(http_client_free_p)

struct http_header {
	const char *name, *value;
};

/* Where a body goes as it arrives; an error ends the call. */
struct http_sink {
	int (*put)(void *arg, const void *p, size_t n, struct err *err);
	/* Takes exactly n bytes out of a pipe, for a sink that need not see them: a long body that
	 * comes over a plain connection is then moved by the kernel alone. NULL: put takes all. */
	int (*drain)(void *arg, int from, size_t n, struct err *err);
	void *arg;
};

struct http_reply;

struct http_call {
	enum http_method method;
	const char *url;
	const struct http_header *headers;
	size_t n_headers;
	/* the body: bytes, or body_len bytes of body_fd from body_at (pread), or a reader */
	struct str body;
	int body_fd; /* used when has_body_fd */
	bool has_body_fd;
	uint64_t body_at, body_len;
	/* Fills up to cap bytes, *n = 0 at the end; used when not NULL. body_len UINT64_MAX =
	 * chunked. */
	int (*read)(void *arg, void *p, size_t cap, size_t *n, struct err *err);
	/* Called once, before the first byte of a 2xx body: the reply's status, headers and length
	 * are there (a reader of ranges must know 200 from 206). An error ends the call. May be
	 * NULL. */
	int (*head)(void *arg, const struct http_reply *reply, struct err *err);
	/* Where a 2xx body goes as it arrives; NULL keeps it in reply->body. An error ends the
	 * call. */
	int (*sink)(void *arg, const void *p, size_t n, struct err *err);
	/* Beside sink, see struct http_sink: what does not pass through sink passes here. */
	int (*drain)(void *arg, int from, size_t n, struct err *err);
	void *arg; /* of read, head, sink, drain and progress */
	/* Called at most twice a second with bytes moved so far. */
	void (*progress)(void *arg, uint64_t sent, uint64_t received);
	int64_t connect_ms; /* 0 = 10 s */
	int64_t total_ms;   /* 0 = no limit but stall_ms */
	int64_t stall_ms;   /* less than 1 KiB/s for this long ends the call; 0 = 30 s */
	/* It carries no secret: it gets a connection of its own, which is not greeted, see struct
	 * http_policy, and not used again. */
	bool anonymous;
	int redirects_max;         /* 0 = none followed: a 3xx is handed to the caller */
	size_t body_max;           /* of reply->body; 0 = HTTP_BODY_MAX */
	const atomic_bool *cancel; /* set by another thread: ERR_CANCELED within a second */
};

struct http_reply {
	int status;
	struct buf body;
	struct arena *arena; /* owns the headers */
	struct http_header *headers;
	size_t n_headers;
	char *url;         /* after redirects */
	int64_t length;    /* Content-Length, -1 when not given */
	uint64_t received; /* body bytes */
	int retry_after_s; /* from Retry-After or RateLimit, 0 = none */
};

void http_reply_done(struct http_reply *r);
#define AUTO_HTTP_REPLY CLEANUP(http_reply_done)

/* One exchange. An HTTP error status is not a failure of the call: see reply->status (its body is
 * in reply->body, cut at 64 KiB). Failures: ERR_UNAVAILABLE (connect, reset, short body, TLS),
 * ERR_TIMEOUT, ERR_ADDRESS_DENIED (guard), ERR_CERTIFICATE_UNTRUSTED, ERR_CANCELED, what sink and
 * read say. */
int http_do(struct http_client *c, const struct http_call *call, struct http_reply *reply,
            struct err *err) MUST_CHECK;
#define HTTP_NAME_CAP 640
/* "GET https://host/path": without user, query and fragment, which may be secret. */
void http_call_name(const struct http_call *call, char out[HTTP_NAME_CAP]);
/* Error unless 2xx: code from the status, words from a JSON "message"/"error" or an S3 <Message>,
 * "GET https://host/path: 404 ...": the query is left out, it may hold a signature. */
int http_expect(const struct http_call *call, const struct http_reply *reply,
                struct err *err) MUST_CHECK;
struct str http_header_of(const struct http_reply *reply, const char *name); /* empty if absent */

/* Retry with full jitter:
 * for (struct retry r = RETRY_INIT(6);;) { ...; if (!retry_again(&r, &err)) break; } */
struct retry {
	int left;
	int64_t wait_ms;
	const atomic_bool *cancel;
};
/* clang-format off */
#define RETRY_INIT(tries) {.left = (tries), .wait_ms = 200}
/* clang-format on */
/* True after a pause (err's retry_after_s, else jitter up to 200 ms doubling to 20 s), with *err
 * cleared, when the kind of error may be retried and tries are left. False leaves *err. */
bool retry_again(struct retry *r, struct err *err);

#endif
