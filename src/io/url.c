/* url.c - URLs, percent-encoding, query strings, Range and networks; see the header. */
#include "io/url.h"

#include "base/hash.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The first of these characters in s, or s.n. */
static size_t find_any(struct str s, const char *set)
{
	size_t i = 0;

	while (i < s.n && strchr(set, s.p[i]) == NULL)
		i++;
	return i;
}

static int parse_port(struct str text, uint16_t dflt, uint16_t *out, struct err *err)
{
	uint64_t n;

	*out = dflt;
	if (text.n == 0)
		return 0; /* "host:" is allowed and means the default */
	if (str_u64(text, 1, UINT16_MAX, &n, err) < 0)
		return err_wrap(err, "port");
	*out = (uint16_t)n;
	return 0;
}

/* An address in brackets: the brackets stay, as every Host header wants them. */
static int parse_literal(struct str *rest, struct str *host, struct err *err)
{
	size_t end = find_any(*rest, "]");
	char text[INET6_ADDRSTRLEN];
	uint8_t addr[16];

	if (end == rest->n || end - 1 >= sizeof(text))
		return err_set(err, ERR_INVALID, "the address has no closing ]");
	memcpy(text, rest->p + 1, end - 1);
	text[end - 1] = '\0';
	if (inet_pton(AF_INET6, text, addr) != 1)
		return err_set(err, ERR_INVALID, "[%s] is not an IPv6 address", text);
	*host = str_n(rest->p, end + 1);
	*rest = str_skip(*rest, end + 1);
	return 0;
}

static int parse_host(struct arena *a, struct str text, struct url *out, struct err *err)
{
	struct str host;
	uint16_t dflt = out->scheme[4] == 's' ? 443 : 80;

	if (text.n > 0 && text.p[0] == '[') {
		if (parse_literal(&text, &host, err) < 0)
			return -1;
	} else {
		host = str_n(text.p, find_any(text, ":"));
		text = str_skip(text, host.n);
		for (size_t i = 0; i < host.n; i++) {
			if (!is_alnum(host.p[i]) && strchr("-._", host.p[i]) == NULL)
				return err_set(err, ERR_INVALID,
				               "the host contains an invalid character");
		}
	}
	if (host.n == 0)
		return err_set(err, ERR_INVALID, "the host is missing");
	if (text.n > 0 && text.p[0] != ':')
		return err_set(err, ERR_INVALID,
		               "the host is followed by something other than a port");
	if (parse_port(str_skip(text, 1), dflt, &out->port, err) < 0)
		return -1;
	out->host = arena_strz(a, host);
	str_lower(out->host);
	return 0;
}

static int parse_authority(struct arena *a, struct str text, struct url *out, struct err *err)
{
	size_t at = text.n;
	struct str user, part;

	while (at > 0 && text.p[at - 1] != '@')
		at--;
	if (at > 0) {
		struct str info = str_n(text.p, at - 1);

		user = str_n(info.p, find_any(info, ":"));
		if (url_decode(a, user, &part, err) < 0)
			return err_wrap(err, "user name");
		out->user = arena_strz(a, part);
		if (user.n < info.n) {
			if (url_decode(a, str_skip(info, user.n + 1), &part, err) < 0)
				return err_wrap(err, "password");
			out->password = arena_strz(a, part);
		}
	}
	return parse_host(a, str_skip(text, at), out, err);
}

static int parse_parts(struct arena *a, struct str text, struct url *out, struct err *err)
{
	size_t n;

	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if (c <= ' ' || c >= 0x7f)
			return err_set(err, ERR_INVALID,
			               "a space, control or non-ASCII character must be encoded");
	}
	n = find_any(text, ":");
	if (!str_starts(str_skip(text, n), "://"))
		return err_set(err, ERR_INVALID, "it does not start with http:// or https://");
	out->scheme = arena_strz(a, str_n(text.p, n));
	str_lower(out->scheme);
	if (strcmp(out->scheme, "http") != 0 && strcmp(out->scheme, "https") != 0)
		return err_set(err, ERR_INVALID, "it does not start with http:// or https://");
	text = str_skip(text, n + 3);
	text.n = find_any(text, "#"); /* a fragment is the reader's business */
	n = find_any(text, "/?");
	if (parse_authority(a, str_n(text.p, n), out, err) < 0)
		return -1;
	text = str_skip(text, n);
	n = find_any(text, "?");
	out->path = n > 0 ? arena_strz(a, str_n(text.p, n)) : arena_cstr(a, "/");
	out->query = n < text.n ? arena_strz(a, str_skip(text, n + 1)) : NULL;
	return 0;
}

int url_parse(struct arena *a, struct str text, struct url *out, struct err *err)
{
	struct url u = {0};

	if (text.n > URL_MAX)
		return err_set(err, ERR_INVALID, "URL of %zu bytes: at most %d are taken", text.n,
		               URL_MAX);
	/* The text is not repeated in the message: it may hold a password. */
	if (parse_parts(a, text, &u, err) < 0)
		return err_wrap(err, "URL");
	*out = u;
	return 0;
}

char *url_origin(struct arena *a, const char *scheme, const char *host, uint16_t port)
{
	return arena_printf(a, strchr(host, ':') != NULL ? "%s://[%s]:%u" : "%s://%s:%u", scheme,
	                    host, port);
}

bool url_same_origin(const struct url *a, const struct url *b)
{
	return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->host, b->host) == 0 &&
	       a->port == b->port;
}

void url_encode(struct str s, bool keep_slash, struct buf *out)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (is_alnum(s.p[i]) || (c != '\0' && strchr("-._~", c) != NULL) ||
		    (keep_slash && c == '/')) {
			buf_putc(out, s.p[i]);
			continue;
		}
		buf_putc(out, '%');
		buf_putc(out, digits[c >> 4]);
		buf_putc(out, digits[c & 15]);
	}
}

static int decode(struct arena *a, struct str s, bool plus, struct str *out, struct err *err)
{
	char *p = arena_alloc(a, s.n + 1);
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		int hi, lo;

		if (s.p[i] != '%') {
			p[n++] = plus && s.p[i] == '+' ? ' ' : s.p[i];
			continue;
		}
		hi = s.n - i > 2 ? hex_digit(s.p[i + 1]) : -1;
		lo = s.n - i > 2 ? hex_digit(s.p[i + 2]) : -1;
		if (hi < 0 || lo < 0)
			return err_set(err, ERR_INVALID, "%% is not followed by two hex digits");
		if (hi == 0 && lo == 0)
			return err_set(err, ERR_INVALID, "%%00 is not allowed");
		p[n++] = (char)(hi * 16 + lo);
		i += 2;
	}
	p[n] = '\0';
	*out = str_n(p, n);
	return 0;
}

int url_decode(struct arena *a, struct str s, struct str *out, struct err *err)
{
	return decode(a, s, false, out, err);
}

bool url_query_next(struct str *query, struct str *name, struct str *value)
{
	struct str pair;

	while (str_cut(query, '&', &pair)) {
		if (pair.n == 0)
			continue; /* "a=1&&b=2" */
		*name = str_n(pair.p, find_any(pair, "="));
		*value = str_skip(pair, name->n + 1);
		return true;
	}
	return false;
}

bool url_query(struct arena *a, struct str query, const char *name, struct str *out)
{
	struct str raw_name, raw_value, text;
	struct err err = {0};

	while (url_query_next(&query, &raw_name, &raw_value)) {
		if (decode(a, raw_name, true, &text, &err) < 0) {
			err_clear(&err); /* no parameter of ours has a broken name */
			continue;
		}
		if (!str_eq(text, name))
			continue;
		if (decode(a, raw_value, true, &text, &err) == 0) {
			*out = text;
			return true;
		}
		err_clear(&err); /* a value that cannot be read counts as not given */
	}
	return false;
}

/* Digits at the start of *s; too many of them are UINT64_MAX. False when there is none. */
static bool cut_number(struct str *s, uint64_t *out)
{
	size_t i = 0;

	for (*out = 0; i < s->n && is_digit(s->p[i]); i++) {
		if (__builtin_mul_overflow(*out, (uint64_t)10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(s->p[i] - '0'), out))
			*out = UINT64_MAX;
	}
	*s = str_skip(*s, i);
	return i > 0;
}

/* False: not a single byte range as RFC 9110 14.1.2 writes it. */
static bool parse_range(struct str s, bool *has_from, uint64_t *from, bool *has_to, uint64_t *to)
{
	if (s.n < 6 || !str_ieq(str_n(s.p, 6), "bytes="))
		return false;
	s = str_trim(str_skip(s, 6));
	*has_from = cut_number(&s, from);
	if (s.n == 0 || s.p[0] != '-')
		return false;
	s = str_skip(s, 1);
	*has_to = cut_number(&s, to);
	if (s.n != 0 || (!*has_from && !*has_to))
		return false;
	return !*has_from || !*has_to || *from <= *to;
}

int url_range(struct str header, uint64_t size, uint64_t *first, uint64_t *count, bool *whole,
              struct err *err)
{
	uint64_t from = 0, to = 0;
	bool has_from = false, has_to = false;

	if (!parse_range(str_trim(header), &has_from, &from, &has_to, &to)) {
		*whole = true;
		*first = 0;
		*count = size;
		return 0;
	}
	if (!has_from) { /* the last `to` bytes */
		if (to == 0 || size == 0)
			return err_set(err, ERR_RANGE, "no byte of %" PRIu64 " is in that range",
			               size);
		from = size - MIN(to, size);
		to = size - 1;
	} else if (!has_to) {
		to = size == 0 ? 0 : size - 1;
	}
	if (from >= size)
		return err_set(err, ERR_RANGE,
		               "byte %" PRIu64 " is behind the end: there are %" PRIu64, from,
		               size);
	*whole = false;
	*first = from;
	*count = MIN(to, size - 1) - from + 1;
	return 0;
}

int url_net_parse(struct str text, struct url_net *out, struct err *err)
{
	struct url_net net = {0};
	struct str addr = str_n(text.p, find_any(text, "/"));
	char name[INET6_ADDRSTRLEN];
	uint64_t bits;

	if (str_copy(addr, name, sizeof(name), "address", err) < 0)
		return -1;
	net.family = find_any(addr, ":") < addr.n ? AF_INET6 : AF_INET;
	if (strlen(name) != addr.n || inet_pton(net.family, name, net.addr) != 1)
		return err_set(err, ERR_INVALID,
		               "%s is not a network; write it as 10.0.0.0/8 or fd00::/8", name);
	bits = net.family == AF_INET ? 32 : 128;
	if (addr.n < text.n && str_u64(str_skip(text, addr.n + 1), 0, bits, &bits, err) < 0)
		return err_wrap(err, "network %s", name);
	net.bits = (unsigned)bits;
	*out = net;
	return 0;
}

static bool bits_match(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned rest = bits % 8;

	if (memcmp(a, b, bits / 8) != 0)
		return false;
	return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

/* The bytes of an address; v4-mapped v6 becomes v4. False for other families. */
static bool addr_bytes(const struct sockaddr *sa, int *family, uint8_t out[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	*family = sa->sa_family;
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, sa, sizeof(in));
		memcpy(out, &in.sin_addr, 4);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, sa, sizeof(in6));
		memcpy(out, &in6.sin6_addr, 16);
		if (memcmp(out, mapped, sizeof(mapped)) == 0) {
			*family = AF_INET;
			memmove(out, out + 12, 4);
		}
		return true;
	}
	return false;
}

bool url_net_has(const struct url_net *net, const struct sockaddr *sa)
{
	uint8_t addr[16];
	int family;

	return addr_bytes(sa, &family, addr) && family == net->family &&
	       bits_match(addr, net->addr, net->bits);
}

/* Not of the public Internet: the special-purpose registries of IANA (RFC 6890 and its heirs). */
/* clang-format off */
static const struct {
	uint8_t addr[4];
	unsigned bits;
} internal4[] = {
	{{0}, 8},                  /* this network */
	{{10}, 8},                 /* private */
	{{100, 64}, 10},           /* shared by carriers; one cloud's metadata */
	{{127}, 8},                /* loopback */
	{{168, 63, 129, 16}, 32},  /* a cloud's wire server: public number, inside only */
	{{169, 254}, 16},          /* link-local; most clouds' metadata */
	{{172, 16}, 12},           /* private */
	{{192, 0, 0}, 24},         /* protocol assignments; a cloud's metadata */
	{{192, 0, 2}, 24},         /* documentation */
	{{192, 88, 99}, 24},       /* 6to4 relays */
	{{192, 168}, 16},          /* private */
	{{198, 18}, 15},           /* benchmarks */
	{{198, 51, 100}, 24},      /* documentation */
	{{203, 0, 113}, 24},       /* documentation */
	{{224}, 4},                /* multicast */
	{{240}, 4},                /* reserved, broadcast */
};
static const struct {
	uint8_t addr[16];
	unsigned bits;
	unsigned v4_at; /* where a v4 address is embedded that decides; 0 = internal as it is */
} internal6[] = {
	{{0}, 96, 0},                                     /* unspecified, loopback, v4-compatible */
	{{0, 0x64, 0xff, 0x9b}, 96, 12},                  /* NAT64 */
	{{0, 0x64, 0xff, 0x9b, 0, 1}, 48, 0},             /* local NAT64 */
	{{1}, 64, 0},                                     /* discard */
	{{0x20, 0x01}, 32, 0},                            /* Teredo */
	{{0x20, 0x01, 0x0d, 0xb8}, 32, 0},                /* documentation */
	{{0x20, 0x02}, 16, 2},                            /* 6to4 */
	{{0x3f, 0xff}, 20, 0},                            /* documentation */
	{{0xfc}, 7, 0},                                   /* unique local */
	{{0xfe, 0x80}, 10, 0},                            /* link-local */
	{{0xfe, 0xc0}, 10, 0},                            /* site-local */
	{{0xff}, 8, 0},                                   /* multicast */
};
/* clang-format on */

static bool internal_v4(const uint8_t addr[4])
{
	for (size_t i = 0; i < COUNT(internal4); i++) {
		if (bits_match(addr, internal4[i].addr, internal4[i].bits))
			return true;
	}
	return false;
}

bool url_addr_is_internal(const struct sockaddr *sa)
{
	uint8_t addr[16];
	int family;

	if (!addr_bytes(sa, &family, addr))
		return true; /* not of the Internet at all */
	if (family == AF_INET)
		return internal_v4(addr);
	for (size_t i = 0; i < COUNT(internal6); i++) {
		if (!bits_match(addr, internal6[i].addr, internal6[i].bits))
			continue;
		return internal6[i].v4_at == 0 || internal_v4(addr + internal6[i].v4_at);
	}
	return false;
}
