/* url.h - URLs, percent-encoding, query strings, Range and the few header values that we read. */
#ifndef URL_H
#define URL_H

#include "base/arena.h"

#define URL_MAX 8192

struct url {
	char *scheme, *host,
		*path;         /* path starts with '/', still encoded; scheme and host lower case */
	char *query;           /* after '?', NULL when there is none */
	char *user, *password; /* decoded, NULL when there are none */
	uint16_t port;         /* the scheme's default when not given */
};

/* http and https only. ERR_INVALID names what is wrong. Everything lives in `a`.
 *
 * RFC 3986, and of it only what is plainly written: libcurl's CURLU also takes "http:/host",
 * "http:///host", "ho%73t" and "us%er@host", and cannot tell "/?" from "/". So this reads, and
 * libcurl is handed what it has read (client.c): no two readers of one URL can differ. */
int url_parse(struct arena *a, struct str text, struct url *out, struct err *err) MUST_CHECK;
bool url_same_origin(const struct url *a, const struct url *b);
/* "scheme://host:port", an IPv6 host in brackets. */
char *url_origin(struct arena *a, const char *scheme, const char *host, uint16_t port);
/* Encodes all but unreserved characters; keep_slash leaves '/' as it is (S3 keys, Hub paths). */
void url_encode(struct str s, bool keep_slash, struct buf *out);
/* Percent-decoding; '+' stays. ERR_INVALID on a bad escape or an encoded NUL. */
int url_decode(struct arena *a, struct str s, struct str *out, struct err *err) MUST_CHECK;
/* The decoded value of the first `name` in a raw query ('+' is a space there); false if absent. */
bool url_query(struct arena *a, struct str query, const char *name, struct str *out);
/* Cuts "name=value" pairs off a raw query, undecoded. */
bool url_query_next(struct str *query, struct str *name, struct str *value);

/* "bytes=a-b", "a-", "-n" against `size`. 0: *first, *count set; ERR_RANGE when unsatisfiable;
 * *whole is set, and no error, for a header that RFC 9110 says to ignore (other units, several). */
int url_range(struct str header, uint64_t size, uint64_t *first, uint64_t *count, bool *whole,
              struct err *err) MUST_CHECK;

/* A network, for the guard of client.h: "10.0.0.0/8", "::1/128", "192.168.1.7". */
struct url_net {
	int family; /* AF_INET or AF_INET6 */
	uint8_t addr[16];
	unsigned bits;
};
struct sockaddr;
int url_net_parse(struct str text, struct url_net *out, struct err *err) MUST_CHECK;
bool url_net_has(const struct url_net *net,
                 const struct sockaddr *sa); /* v4-mapped v6 counts as v4 */
/* Loopback, private, link-local, shared, multicast, unspecified, documentation, metadata... */
bool url_addr_is_internal(const struct sockaddr *sa);

#endif
