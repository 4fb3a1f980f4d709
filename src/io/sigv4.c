/*
 * sigv4.c - AWS Signature Version 4. Signing and verifying build the same text from method, path,
 * query and headers; verifying also has to get it out of what strangers send.
 */
#include "io/sigv4_impl.h"

#include "base/hash.h"
#include "base/seal.h"

struct pair {
	struct str name, value;
};

/* ---- the text that is signed ---- */

static int compare(struct str x, struct str y)
{
	size_t n = MIN(x.n, y.n);
	int r = n > 0 ? memcmp(x.p, y.p, n) : 0;

	if (r != 0 || x.n == y.n)
		return r;
	return x.n < y.n ? -1 : 1;
}

static int by_name_then_value(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	int r = compare(x->name, y->name);

	return r != 0 ? r : compare(x->value, y->value);
}

bool sigv4_decode(struct arena *a, struct str s, struct str *out)
{
	struct err ignored = {0};
	char *copy = arena_strz(a, s);

	for (size_t i = 0; i < s.n; i++) {
		if (copy[i] == '+')
			copy[i] = ' ';
	}
	return url_decode(a, str_n(copy, s.n), out, &ignored) == 0;
}

static struct str encode(struct arena *a, struct str s)
{
	AUTO_BUF struct buf b = BUF_INIT(3 * s.n + 1);

	url_encode(s, false, &b);
	return arena_str(a, buf_view(&b));
}

bool sigv4_query(struct arena *a, struct str query, bool recode, struct str *out)
{
	AUTO_BUF struct buf b = BUF_INIT(SIGV4_TEXT_MAX);
	struct pair *all;
	struct str name, value, plain, plain_value;
	size_t n = 0, max = 1;

	for (size_t i = 0; i < query.n; i++)
		max += query.p[i] == '&';
	if (max > SIGV4_PARAMS_MAX)
		return false;
	all = ARENA_ARRAY(a, struct pair, max);
	while (url_query_next(&query, &name, &value)) {
		bool read = sigv4_decode(a, name, &plain) && sigv4_decode(a, value, &plain_value);

		if (read && str_eq(plain, "X-Amz-Signature"))
			continue;
		if (recode && !read)
			return false;
		all[n++] = recode ? (struct pair){encode(a, plain), encode(a, plain_value)}
		                  : (struct pair){name, value};
	}
	qsort(all, n, sizeof(*all), by_name_then_value);
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			buf_putc(&b, '&');
		buf_str(&b, all[i].name);
		buf_putc(&b, '=');
		buf_str(&b, all[i].value);
	}
	*out = arena_str(a, buf_view(&b));
	return !b.full;
}

bool sigv4_path(struct arena *a, struct str path, struct str *out)
{
	AUTO_BUF struct buf b = BUF_INIT(SIGV4_TEXT_MAX);
	struct err ignored = {0};
	struct str plain;
	size_t n;

	for (; path.n > 0; path = str_skip(path, n)) {
		if (path.p[0] == '/') {
			buf_putc(&b, '/');
			n = 1;
			continue;
		}
		for (n = 0; n < path.n && path.p[n] != '/'; n++)
			;
		if (url_decode(a, str_n(path.p, n), &plain, &ignored) < 0)
			return false;
		buf_str(&b, encode(a, plain));
	}
	*out = arena_str(a, buf_view(&b));
	return !b.full;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Trimmed, and inner blanks folded into one space. */
static void add_folded(struct buf *b, struct str value)
{
	value = str_trim(value);
	for (size_t i = 0; i < value.n; i++) {
		if (!is_blank(value.p[i]))
			buf_putc(b, value.p[i]);
		else if (!is_blank(value.p[i + 1])) /* trimmed: a blank is never the last */
			buf_putc(b, ' ');
	}
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* "name:value,value\n"; false when there is no such header. */
static bool add_header(struct buf *b, const struct sigv4_parts *p, struct str name)
{
	size_t found = 0;

	for (size_t i = 0; i < name.n; i++)
		buf_putc(b, lower(name.p[i]));
	buf_putc(b, ':');
	for (size_t i = 0; i < p->n_headers; i++) {
		struct str other = str_of(p->headers[i].name);

		if (other.n != name.n || strncasecmp(other.p, name.p, name.n) != 0)
			continue;
		if (found++ > 0)
			buf_putc(b, ',');
		add_folded(b, str_of(p->headers[i].value));
	}
	buf_putc(b, '\n');
	return found > 0;
}

static int canonical_request(const struct sigv4_parts *p, struct buf *out, struct err *err)
{
	struct str names = p->signed_headers, name;
	size_t n = 0;

	buf_printf(out, "%s\n", p->method);
	buf_str(out, p->path.n > 0 ? p->path : STR_LIT("/"));
	buf_putc(out, '\n');
	buf_str(out, p->query);
	buf_putc(out, '\n');
	while (str_cut(&names, ';', &name)) {
		if (n++ == SIGV4_SIGNED_MAX)
			return err_set(err, ERR_DENIED, "AccessDenied: more than %d signed headers",
			               SIGV4_SIGNED_MAX);
		if (!add_header(out, p, name))
			return err_set(err, ERR_DENIED,
			               "AccessDenied: the signed header %.*s is not in the request",
			               (int)MIN(name.n, 100), name.p);
	}
	buf_putc(out, '\n');
	buf_str(out, p->signed_headers);
	buf_putc(out, '\n');
	buf_str(out, p->payload);
	return buf_check(out, "build the string to sign", err);
}

static void hmac(const uint8_t *key, size_t n, struct str text, uint8_t out[HASH_SHA256_LEN])
{
	hash_hmac_sha256(key, n, text.p, text.n, out);
}

void sigv4_signing_key(const char *secret, const struct sigv4_scope *s,
                       uint8_t out[HASH_SHA256_LEN])
{
	AUTO_FREE char *first = xasprintf("AWS4%s", secret);
	uint8_t k[HASH_SHA256_LEN];

	hmac((const uint8_t *)first, strlen(first), s->date, k);
	hmac(k, sizeof(k), s->region, out);
	hmac(out, HASH_SHA256_LEN, s->service, k);
	hmac(k, sizeof(k), STR_LIT(SIGV4_TERMINATOR), out);
	seal_wipe(first, strlen(first));
	seal_wipe(k, sizeof(k));
}

int sigv4_signature(const char *secret, const struct sigv4_parts *p, char out[SIGV4_HEX_LEN + 1],
                    struct err *err)
{
	AUTO_BUF struct buf request = BUF_INIT(SIGV4_TEXT_MAX), text = BUF_INIT(SIGV4_TEXT_MAX);
	uint8_t key[HASH_SHA256_LEN], mac[HASH_SHA256_LEN];
	char hex[HASH_HEX_CAP];
	struct digest d;

	if (canonical_request(p, &request, err) < 0)
		return -1;
	d = hash_sha256(request.p, request.n);
	digest_hex(&d, hex);
	buf_printf(&text, SIGV4_ALGORITHM "\n%s\n%.*s/%.*s/%.*s/" SIGV4_TERMINATOR "\n%s", p->time,
	           STR_ARG(p->scope.date), STR_ARG(p->scope.region), STR_ARG(p->scope.service),
	           hex);
	if (buf_check(&text, "build the string to sign", err) < 0)
		return -1;
	sigv4_signing_key(secret, &p->scope, key);
	hmac(key, sizeof(key), buf_view(&text), mac);
	hex_encode(mac, sizeof(mac), out);
	seal_wipe(key, sizeof(key));
	return 0;
}

/* ---- time ---- */

void sigv4_time(int64_t ms, char out[SIGV4_TIME_CAP])
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	(void)gmtime_r(&s, &tm);
	if (strftime(out, SIGV4_TIME_CAP, "%Y%m%dT%H%M%SZ", &tm) != SIGV4_TIME_CAP - 1)
		out[0] = '\0'; /* a year beyond 9999 */
}

/* ---- signing ---- */

static char *authority(struct arena *a, const struct url *u)
{
	uint16_t dflt = strcmp(u->scheme, "https") == 0 ? 443 : 80;

	return u->port == dflt ? u->host : arena_printf(a, "%s:%u", u->host, u->port);
}

/* As AWS will read it, or as it is where that cannot be read. */
static struct str query_to_sign(struct arena *a, const char *query)
{
	struct str out = str_of(query);

	if (!sigv4_query(a, str_of(query), true, &out))
		(void)sigv4_query(a, str_of(query), false, &out);
	return out;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "a;b;c": each name once, in order. */
static struct str names_of(struct arena *a, const struct http_header *h, size_t n)
{
	AUTO_BUF struct buf b = BUF_INIT(SIGV4_TEXT_MAX);
	char **names = ARENA_ARRAY(a, char *, n);

	for (size_t i = 0; i < n; i++) {
		names[i] = arena_cstr(a, h[i].name);
		for (char *c = names[i]; *c != '\0'; c++)
			*c = lower(*c);
	}
	qsort(names, n, sizeof(*names), by_text);
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
			continue;
		buf_printf(&b, "%s%s", i > 0 ? ";" : "", names[i]);
	}
	return arena_str(a, buf_view(&b));
}

static struct sigv4_scope scope_of(const struct sigv4_key *key, const char time[SIGV4_TIME_CAP])
{
	assert(key->region != NULL && key->service != NULL);
	return (struct sigv4_scope){str_n(time, 8), str_of(key->region), str_of(key->service)};
}

int sigv4_sign(struct arena *a, const struct sigv4_key *key, enum http_method method,
               const char *url, const struct http_header *headers, size_t n_headers,
               const char *payload_hash, int64_t now_ms, struct http_header out[4], size_t *n_out,
               struct err *err)
{
	char *time = arena_alloc(a, SIGV4_TIME_CAP), sig[SIGV4_HEX_LEN + 1];
	struct http_header *all = ARENA_ARRAY(a, struct http_header, n_headers + 4);
	struct sigv4_parts p = {.method = http_method_name[method], .headers = all, .time = time};
	size_t n = 0;
	struct url u;
	bool host = false;

	assert(method < HTTP_METHODS && payload_hash != NULL && n_headers <= HTTP_HEADERS_MAX);
	if (url_parse(a, str_of(url), &u, err) < 0)
		return -1;
	sigv4_time(now_ms, time);
	for (size_t i = 0; i < n_headers; i++) {
		host = host || strcasecmp(headers[i].name, "host") == 0;
		all[p.n_headers++] = headers[i];
	}
	if (!host)
		all[p.n_headers++] = (struct http_header){"host", authority(a, &u)};
	out[++n] = (struct http_header){"x-amz-date", time};
	out[++n] = (struct http_header){"x-amz-content-sha256", arena_cstr(a, payload_hash)};
	if (key->session_token != NULL)
		out[++n] = (struct http_header){"x-amz-security-token",
		                                arena_cstr(a, key->session_token)};
	for (size_t i = 1; i <= n; i++)
		all[p.n_headers++] = out[i];
	p.path = str_of(u.path);
	p.query = query_to_sign(a, u.query);
	p.signed_headers = names_of(a, all, p.n_headers);
	p.payload = str_of(payload_hash);
	p.scope = scope_of(key, time);
	if (sigv4_signature(key->secret_key, &p, sig, err) < 0)
		return -1;
	out[0] = (struct http_header){"Authorization",
	                              arena_printf(a,
	                                           SIGV4_ALGORITHM
	                                           " Credential=%s/%.8s/%s/%s/" SIGV4_TERMINATOR
	                                           ", SignedHeaders=%.*s, Signature=%s",
	                                           key->access_key, time, key->region, key->service,
	                                           STR_ARG(p.signed_headers), sig)};
	*n_out = n + 1;
	return 0;
}

int sigv4_presign(struct arena *a, const struct sigv4_key *key, enum http_method method,
                  const char *url, const struct http_header *headers, size_t n_headers,
                  int64_t expires_s, int64_t now_ms, char **out, struct err *err)
{
	AUTO_BUF struct buf q = BUF_INIT(SIGV4_TEXT_MAX);
	char time[SIGV4_TIME_CAP], sig[SIGV4_HEX_LEN + 1], *host;
	struct http_header *all = ARENA_ARRAY(a, struct http_header, n_headers + 1);
	struct sigv4_parts p = {.method = http_method_name[method],
	                        .headers = all,
	                        .n_headers = n_headers + 1,
	                        .payload = STR_LIT(SIGV4_UNSIGNED),
	                        .time = time};
	struct url u;

	assert(method < HTTP_METHODS && n_headers <= HTTP_HEADERS_MAX);
	assert(expires_s > 0 && expires_s <= SIGV4_PRESIGN_MAX_S);
	if (url_parse(a, str_of(url), &u, err) < 0)
		return -1;
	host = authority(a, &u);
	all[0] = (struct http_header){"host", host};
	for (size_t i = 0; i < n_headers; i++)
		all[i + 1] = headers[i];
	p.signed_headers = names_of(a, all, p.n_headers);
	sigv4_time(now_ms, time);
	p.scope = scope_of(key, time);
	buf_printf(&q, "X-Amz-Algorithm=" SIGV4_ALGORITHM "&X-Amz-Credential=");
	url_encode(str_of(arena_printf(a, "%s/%.8s/%s/%s/" SIGV4_TERMINATOR, key->access_key, time,
	                               key->region, key->service)),
	           false, &q);
	buf_printf(&q, "&X-Amz-Date=%s&X-Amz-Expires=%" PRId64 "&X-Amz-SignedHeaders=", time,
	           expires_s);
	url_encode(p.signed_headers, false, &q);
	if (key->session_token != NULL) {
		buf_puts(&q, "&X-Amz-Security-Token=");
		url_encode(str_of(key->session_token), false, &q);
	}
	if (u.query != NULL)
		buf_printf(&q, "&%s", u.query);
	if (buf_check(&q, "the query", err) < 0)
		return -1;
	p.path = str_of(u.path);
	p.query = query_to_sign(a, buf_cstr(&q));
	if (sigv4_signature(key->secret_key, &p, sig, err) < 0)
		return -1;
	*out = arena_printf(a, "%s://%s%s?%.*s&X-Amz-Signature=%s", u.scheme, host, u.path,
	                    STR_ARG(p.query), sig);
	return 0;
}
