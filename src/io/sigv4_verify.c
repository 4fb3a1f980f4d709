/*
 * sigv4_verify.c - AWS Signature Version 4, the server's side: what a request claims, and whether
 * it is true. Everything here comes from strangers.
 */
#include "io/sigv4_impl.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/seal.h"

static bool time_parse(struct str text, int64_t *s)
{
	struct tm tm = {0};
	char copy[SIGV4_TIME_CAP], again[SIGV4_TIME_CAP];

	if (text.n != SIGV4_TIME_CAP - 1)
		return false;
	memcpy(copy, text.p, text.n);
	copy[text.n] = '\0';
	if (sscanf(copy, "%4d%2d%2dT%2d%2d%2dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
	           &tm.tm_min, &tm.tm_sec) != 6)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	*s = timegm(&tm);
	sigv4_time(*s * 1000, again);
	return strcmp(again, copy) == 0; /* no 31st of February, no signs, no blanks */
}

/* The signature that a request claims. */
struct claim {
	bool presigned;
	struct str access;
	struct sigv4_scope scope;
	struct str signed_headers, signature;
	char time[SIGV4_TIME_CAP];
	int64_t time_s, expires_s;
	struct str token; /* empty = none */
	struct str payload;
};

static int malformed(const struct claim *c, const char *why, struct err *err)
{
	return err_set(err, ERR_DENIED, "%s: %s",
	               c->presigned ? "AuthorizationQueryParametersError"
	                            : "AuthorizationHeaderMalformed",
	               why);
}

/* The value of a header that may be there once at most; empty when it is not. */
static int one_header(const struct sigv4_request *rq, const char *name, struct str *out,
                      struct err *err)
{
	struct str value = {0};
	size_t n = 0;

	for (size_t i = 0; i < rq->n_headers; i++) {
		if (strcasecmp(rq->headers[i].name, name) != 0)
			continue;
		value = str_trim(str_of(rq->headers[i].value));
		n++;
	}
	if (n > 1)
		return err_set(err, ERR_DENIED, "InvalidRequest: the header %s is there %zu times",
		               name, n);
	*out = value;
	return 0;
}

/* The same for a parameter of the query, decoded. */
static int one_param(struct arena *a, struct str query, const char *name, struct str *out,
                     struct err *err)
{
	struct str raw_name, raw_value, plain, value = {0};
	size_t n = 0;

	while (url_query_next(&query, &raw_name, &raw_value)) {
		if (!sigv4_decode(a, raw_name, &plain) || !str_eq(plain, name))
			continue;
		n++;
		if (n > 1 || !sigv4_decode(a, raw_value, &value))
			return err_set(err, ERR_DENIED,
			               "AuthorizationQueryParametersError: %s is %s", name,
			               n > 1 ? "given more than once" : "badly encoded");
	}
	*out = value;
	return 0;
}

/* "AKID/20130524/us-east-1/s3/aws4_request", read from its end: a key may have slashes. */
static int parse_credential(struct claim *c, struct str text, struct err *err)
{
	struct str part[4];

	for (size_t i = COUNT(part); i-- > 0;) {
		const char *slash = text.n > 0 ? memrchr(text.p, '/', text.n) : NULL;

		if (slash == NULL)
			return malformed(
				c,
				"the credential is not KEY/DATE/REGION/SERVICE/" SIGV4_TERMINATOR,
				err);
		part[i] = str_skip(text, (size_t)(slash - text.p) + 1);
		text.n = (size_t)(slash - text.p);
	}
	if (text.n == 0 || !str_eq(part[3], SIGV4_TERMINATOR))
		return malformed(
			c, "the credential is not KEY/DATE/REGION/SERVICE/" SIGV4_TERMINATOR, err);
	c->access = text;
	c->scope = (struct sigv4_scope){part[0], part[1], part[2]};
	return 0;
}

/* "AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=..." */
static int parse_header(struct claim *c, struct str text, struct err *err)
{
	struct str credential = {0}, pair, name;
	const struct {
		const char *name;
		struct str *to;
	} fields[] = {
		{"Credential", &credential},
		{"SignedHeaders", &c->signed_headers},
		{"Signature", &c->signature},
	};

	if (!str_starts(text, SIGV4_ALGORITHM " "))
		return err_set(err, ERR_DENIED,
		               "InvalidRequest: sign requests with " SIGV4_ALGORITHM
		               ", other schemes are not supported");
	text = str_skip(text, sizeof(SIGV4_ALGORITHM));
	while (str_cut(&text, ',', &pair)) {
		pair = str_trim(pair);
		if (!str_cut(&pair, '=', &name))
			continue;
		for (size_t i = 0; i < COUNT(fields); i++) {
			if (!str_eq(name, fields[i].name))
				continue;
			if (fields[i].to->n > 0)
				return malformed(c, "a field is given twice", err);
			*fields[i].to = pair;
		}
	}
	for (size_t i = 0; i < COUNT(fields); i++) {
		if (fields[i].to->n == 0)
			return malformed(c, "Credential, SignedHeaders or Signature is missing",
			                 err);
	}
	return parse_credential(c, credential, err);
}

static int parse_query(struct arena *a, struct claim *c, struct str query, struct err *err)
{
	struct str algorithm, credential, expires, time;
	struct err ignored = {0};
	const struct {
		const char *name;
		struct str *to;
	} fields[] = {
		{"X-Amz-Algorithm", &algorithm},
		{"X-Amz-Credential", &credential},
		{"X-Amz-Date", &time},
		{"X-Amz-Expires", &expires},
		{"X-Amz-SignedHeaders", &c->signed_headers},
		{"X-Amz-Signature", &c->signature},
	};

	for (size_t i = 0; i < COUNT(fields); i++) {
		if (one_param(a, query, fields[i].name, fields[i].to, err) < 0)
			return -1;
		if (fields[i].to->n == 0)
			return err_set(err, ERR_DENIED,
			               "AuthorizationQueryParametersError: %s is missing",
			               fields[i].name);
	}
	if (!str_eq(algorithm, SIGV4_ALGORITHM))
		return malformed(c, "X-Amz-Algorithm is not " SIGV4_ALGORITHM, err);
	if (str_i64(expires, 1, SIGV4_PRESIGN_MAX_S, &c->expires_s, &ignored) < 0)
		return malformed(c, "X-Amz-Expires must be 1 to 604800 seconds", err);
	if (!time_parse(time, &c->time_s))
		return malformed(c, "X-Amz-Date is not like 20130524T000000Z", err);
	sigv4_time(c->time_s * 1000, c->time);
	if (one_param(a, query, "X-Amz-Security-Token", &c->token, err) < 0 ||
	    one_param(a, query, "X-Amz-Content-Sha256", &c->payload, err) < 0)
		return -1;
	return parse_credential(c, credential, err);
}

/* x-amz-date, or Date when that is all there is. */
static int header_time(struct claim *c, const struct sigv4_request *rq, struct err *err)
{
	struct err ignored = {0};
	struct str text;
	int64_t ms;

	if (one_header(rq, "x-amz-date", &text, err) < 0)
		return -1;
	if (text.n == 0 && one_header(rq, "date", &text, err) < 0)
		return -1;
	if (text.n == 0)
		return err_set(err, ERR_DENIED, "AccessDenied: no x-amz-date or Date header");
	if (!time_parse(text, &c->time_s)) {
		if (clock_parse(text, &ms, &ignored) < 0 || ms < 0)
			return err_set(err, ERR_DENIED,
			               "AccessDenied: the date is not like 20130524T000000Z");
		c->time_s = ms / 1000;
	}
	sigv4_time(c->time_s * 1000, c->time);
	return 0;
}

static bool is_presigned(struct arena *a, struct str query)
{
	struct str ignored;

	return url_query(a, query, "X-Amz-Signature", &ignored) ||
	       url_query(a, query, "X-Amz-Credential", &ignored);
}

static int read_claim(struct arena *a, const struct sigv4_request *rq, struct claim *c,
                      struct err *err)
{
	struct str header, token;

	c->presigned = is_presigned(a, rq->query);
	if (one_header(rq, "authorization", &header, err) < 0)
		return -1;
	if (c->presigned && str_starts(header, "AWS"))
		return err_set(err, ERR_DENIED,
		               "InvalidArgument: signed in the header and in the query: only one");
	if (!c->presigned && header.n == 0)
		return err_set(err, ERR_DENIED, "AccessDenied: the request is not signed");
	if (c->presigned)
		return parse_query(a, c, rq->query, err);
	if (parse_header(c, header, err) < 0 || header_time(c, rq, err) < 0 ||
	    one_header(rq, "x-amz-content-sha256", &c->payload, err) < 0 ||
	    one_header(rq, "x-amz-security-token", &token, err) < 0)
		return -1;
	c->token = token;
	if (c->payload.n == 0)
		return err_set(err, ERR_DENIED,
		               "InvalidRequest: Missing required header for this request: "
		               "x-amz-content-sha256");
	return 0;
}

static bool names_have(struct str names, struct str name)
{
	struct str one;

	while (str_cut(&names, ';', &one)) {
		if (one.n == name.n && strncasecmp(one.p, name.p, name.n) == 0)
			return true;
	}
	return false;
}

/* Host is what binds a signature to a server; an x-amz- header changes what a request means. Date
 * and payload hash are signed by their own lines. */
static int check_signed_headers(const struct claim *c, const struct sigv4_request *rq,
                                struct err *err)
{
	if (!names_have(c->signed_headers, STR_LIT("host")))
		return malformed(c, "SignedHeaders must include host", err);
	for (size_t i = 0; i < rq->n_headers; i++) {
		const char *name = rq->headers[i].name;

		if (strncasecmp(name, "x-amz-", 6) != 0 || strcasecmp(name, "x-amz-date") == 0 ||
		    strcasecmp(name, "x-amz-content-sha256") == 0)
			continue;
		if (!names_have(c->signed_headers, str_of(name)))
			return err_set(err, ERR_DENIED,
			               "AccessDenied: There were headers present in the request "
			               "which were not signed: %.100s",
			               name);
	}
	return 0;
}

static int check_time(const struct claim *c, int64_t now_s, struct err *err)
{
	if (c->scope.date.n != 8 || memcmp(c->scope.date.p, c->time, 8) != 0)
		return malformed(c, "the date of the credential is not that of the request", err);
	if (!c->presigned) {
		if (c->time_s < now_s - SIGV4_SKEW_S || c->time_s > now_s + SIGV4_SKEW_S)
			return err_set(
				err, ERR_DENIED,
				"RequestTimeTooSkewed: the request's clock and ours are more "
				"than %d minutes apart: set the clock that is wrong",
				SIGV4_SKEW_S / 60);
		return 0;
	}
	if (c->time_s > now_s + SIGV4_SKEW_S)
		return err_set(err, ERR_DENIED, "AccessDenied: Request is not valid yet");
	if (now_s > c->time_s + c->expires_s)
		return err_set(err, ERR_DENIED, "AccessDenied: Request has expired");
	return 0;
}

static int check_key(const struct claim *c, const struct sigv4_key *key, struct err *err)
{
	struct str token = str_of(key->session_token);

	if (!str_eq(c->access, key->access_key))
		return err_set(err, ERR_DENIED,
		               "InvalidAccessKeyId: this server does not know the access key");
	if (key->region != NULL && !str_eq(c->scope.region, key->region))
		return malformed(c, "the region is not this server's", err);
	if (key->service != NULL && !str_eq(c->scope.service, key->service))
		return malformed(c, "the service is not this server's", err);
	if (c->token.n != token.n || (token.n > 0 && !seal_same(c->token.p, token.p, token.n)))
		return err_set(err, ERR_DENIED,
		               "InvalidToken: the session token is missing or does not belong to "
		               "the access key");
	return 0;
}

/* -1 with an error, 0 = does not match, 1 = matches. */
static int matches(const struct sigv4_key *key, const struct claim *c, const struct sigv4_parts *p,
                   struct err *err)
{
	char sig[SIGV4_HEX_LEN + 1];

	if (sigv4_signature(key->secret_key, p, sig, err) < 0)
		return -1;
	return c->signature.n == SIGV4_HEX_LEN && seal_same(sig, c->signature.p, SIGV4_HEX_LEN) ? 1
	                                                                                        : 0;
}

struct str sigv4_access_key(struct arena *a, const struct sigv4_request *rq)
{
	struct err ignored = {0};
	struct claim c = {.presigned = is_presigned(a, rq->query)};
	struct str text;
	int r;

	if (c.presigned)
		r = one_param(a, rq->query, "X-Amz-Credential", &text, &ignored) < 0
		            ? -1
		            : parse_credential(&c, text, &ignored);
	else
		r = one_header(rq, "authorization", &text, &ignored) < 0
		            ? -1
		            : parse_header(&c, text, &ignored);
	return r < 0 ? str_of(NULL) : arena_str(a, c.access);
}

int sigv4_verify(struct arena *a, const struct sigv4_key *key, const struct sigv4_request *rq,
                 int64_t now_ms, struct err *err)
{
	struct claim c = {0};
	struct sigv4_parts p = {.headers = rq->headers, .n_headers = rq->n_headers, .time = c.time};
	struct str path = rq->path, query, header;
	bool recode = false;
	int r = 0;

	assert(rq->method < HTTP_METHODS);
	p.method = http_method_name[rq->method];
	if (read_claim(a, rq, &c, err) < 0 || check_key(&c, key, err) < 0 ||
	    check_time(&c, now_ms / 1000, err) < 0 || check_signed_headers(&c, rq, err) < 0)
		return -1;
	if (c.presigned && c.payload.n == 0) {
		if (one_header(rq, "x-amz-content-sha256", &header, err) < 0)
			return -1;
		c.payload = header.n > 0 && names_have(c.signed_headers,
		                                       STR_LIT("x-amz-content-sha256"))
		                    ? header
		                    : STR_LIT(SIGV4_UNSIGNED);
	}
	p.signed_headers = c.signed_headers;
	p.payload = c.payload;
	p.scope = c.scope;
	/* Most clients sign the path and query they send. Some send "$" and sign "%24", as AWS's
	 * own examples do. Both texts mean the same object. */
	for (int i = 0; r == 0 && i < 2; i++, recode = true) {
		if (!sigv4_query(a, rq->query, recode, &query) ||
		    (recode && !sigv4_path(a, rq->path, &path)))
			continue;
		p.path = path;
		p.query = query;
		r = matches(key, &c, &p, err);
	}
	if (r == 0)
		return err_set(err, ERR_DENIED,
		               "SignatureDoesNotMatch: the signature is not the one this server "
		               "calculates: check the secret key, and that nothing on the way "
		               "changes path, query or signed headers");
	return r < 0 ? -1 : 0;
}

/* ---- chunks ---- */

int sigv4_chunks_begin(struct arena *a, const struct sigv4_key *key, const struct sigv4_request *rq,
                       struct sigv4_chunks *out, struct err *err)
{
	struct claim c = {0};

	if (read_claim(a, rq, &c, err) < 0)
		return -1;
	if (c.scope.region.n + c.scope.service.n > SIGV4_SCOPE_MAX)
		return malformed(&c, "the region and service are too long", err);
	if (c.presigned ||
	    str_copy(c.signature, out->last, sizeof(out->last), "signature", err) < 0)
		return err_set(err, ERR_DENIED,
		               "InvalidRequest: signed chunks need a signature in the header");
	sigv4_signing_key(key->secret_key, &c.scope, out->key);
	out->time = arena_cstr(a, c.time);
	out->scope = arena_printf(a, "%.*s/%.*s/%.*s/" SIGV4_TERMINATOR, STR_ARG(c.scope.date),
	                          STR_ARG(c.scope.region), STR_ARG(c.scope.service));
	return 0;
}

static bool next_ok(struct sigv4_chunks *c, const char *text, struct str signature)
{
	uint8_t mac[HASH_SHA256_LEN];
	char hex[SIGV4_HEX_LEN + 1];

	hash_hmac_sha256(c->key, sizeof(c->key), text, strlen(text), mac);
	hex_encode(mac, sizeof(mac), hex);
	if (signature.n != SIGV4_HEX_LEN || !seal_same(hex, signature.p, SIGV4_HEX_LEN))
		return false;
	memcpy(c->last, hex, sizeof(hex));
	return true;
}

bool sigv4_chunk_ok(struct sigv4_chunks *c, const struct digest *d, struct str signature)
{
	struct digest none = hash_sha256("", 0);
	char hex[HASH_HEX_CAP], empty[HASH_HEX_CAP], text[1024];

	digest_hex(d, hex);
	digest_hex(&none, empty);
	FMT(text, SIGV4_ALGORITHM "-PAYLOAD\n%s\n%s\n%s\n%s\n%s", c->time, c->scope, c->last, empty,
	    hex);
	return next_ok(c, text, signature);
}

bool sigv4_trailer_ok(struct sigv4_chunks *c, const struct digest *d, struct str signature)
{
	char hex[HASH_HEX_CAP], text[1024];

	digest_hex(d, hex);
	FMT(text, SIGV4_ALGORITHM "-TRAILER\n%s\n%s\n%s\n%s", c->time, c->scope, c->last, hex);
	return next_ok(c, text, signature);
}
