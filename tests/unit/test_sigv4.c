/*
 * test_sigv4.c - signatures against the examples of AWS's S3 documentation
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html and
 * sigv4-query-string-auth.html), and what a server must not accept.
 */
#include "unit.h"

#include "base/hash.h"
#include "io/sigv4.h"

#define ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define HOST "examplebucket.s3.amazonaws.com"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define WHEN INT64_C(1369353600000) /* 2013-05-24T00:00:00Z */
#define MINUTE INT64_C(60000)
#define N_MAX 40

static const struct sigv4_key aws = {ACCESS, SECRET, NULL, "us-east-1", "s3"};

/* ---- AWS's own examples ---- */

static const struct {
	const char *name;
	enum http_method method;
	const char *url, *path, *query; /* path and query as a client sends them */
	struct http_header headers[3];
	const char *payload, *signed_headers, *signature;
} vectors[] = {
	{"GET object",
         HTTP_GET,
         "https://" HOST "/test.txt",
         "/test.txt",
         "",
         {{"Range", "bytes=0-9"}},
         EMPTY,
         "host;range;x-amz-content-sha256;x-amz-date",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT object", /* sent as "$", signed as "%24" */
         HTTP_PUT,
         "https://" HOST "/test%24file.text",
         "/test$file.text",
         "",
         {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
         "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
         "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET bucket lifecycle",
         HTTP_GET,
         "https://" HOST "/?lifecycle",
         "/",
         "lifecycle",
         {{NULL, NULL}},
         EMPTY,
         "host;x-amz-content-sha256;x-amz-date",
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"list objects",
         HTTP_GET,
         "https://" HOST "/?prefix=J&max-keys=2",
         "/",
         "max-keys=2&prefix=J",
         {{NULL, NULL}},
         EMPTY,
         "host;x-amz-content-sha256;x-amz-date",
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

#define PRESIGNED_QUERY                                                                            \
	"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" ACCESS                                \
	"%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"                  \
	"&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="                           \
	"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"

static size_t count_headers(const struct http_header *h, size_t max)
{
	size_t n = 0;

	while (n < max && h[n].name != NULL)
		n++;
	return n;
}

static void sigv4_signs_like_aws(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(vectors); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct http_header out[4];
		struct err err = {0};
		size_t n;

		assert_ok(sigv4_sign(a, &aws, vectors[i].method, vectors[i].url, vectors[i].headers,
		                     count_headers(vectors[i].headers, 3), vectors[i].payload, WHEN,
		                     out, &n, &err),
		          &err);
		assert_int_equal(n, 3);
		assert_string_equal(out[0].name, "Authorization");
		assert_string_equal(out[0].value,
		                    arena_printf(a,
		                                 "AWS4-HMAC-SHA256 Credential=" ACCESS
		                                 "/20130524/us-east-1/s3/aws4_request, "
		                                 "SignedHeaders=%s, Signature=%s",
		                                 vectors[i].signed_headers, vectors[i].signature));
		assert_string_equal(out[1].value, "20130524T000000Z");
		assert_string_equal(out[2].value, vectors[i].payload);
	}
}

static void sigv4_verifies_aws_examples(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(vectors); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct http_header h[8] = {{"Host", HOST},
		                           {"X-Amz-Date", "20130524T000000Z"},
		                           {"X-Amz-Content-Sha256", vectors[i].payload}};
		struct sigv4_request rq = {vectors[i].method, str_of(vectors[i].path),
		                           str_of(vectors[i].query), h, 4};
		struct err err = {0};

		/* no blanks between the fields, as the documentation has it */
		h[3] = (struct http_header){
			"authorization",
			arena_printf(a,
		                     "AWS4-HMAC-SHA256 Credential=" ACCESS
		                     "/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,"
		                     "Signature=%s",
		                     vectors[i].signed_headers, vectors[i].signature)};
		for (size_t k = 0; k < count_headers(vectors[i].headers, 3); k++)
			h[rq.n_headers++] = vectors[i].headers[k];
		assert_true(str_eq(sigv4_access_key(a, &rq), ACCESS));
		if (sigv4_verify(a, &aws, &rq, WHEN, &err) < 0)
			fail_msg("row \"%s\": %s", vectors[i].name, err.msg);
	}
}

static void sigv4_presigns_like_aws(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header h = {"Host", HOST};
	struct sigv4_request rq = {HTTP_GET, STR_LIT("/test.txt"), STR_LIT(PRESIGNED_QUERY), &h, 1};
	struct err err = {0};
	char *url;

	assert_ok(sigv4_presign(a, &aws, HTTP_GET, "https://" HOST "/test.txt", 86400, WHEN, &url,
	                        &err),
	          &err);
	assert_string_equal(url, "https://" HOST "/test.txt?" PRESIGNED_QUERY);
	assert_true(str_eq(sigv4_access_key(a, &rq), ACCESS));
	assert_ok(sigv4_verify(a, &aws, &rq, WHEN, &err), &err);
}

/* ---- what we sign, sent, changed on the way, and verified ---- */

/* A request as it travels. */
struct trip {
	struct arena *a;
	struct http_header h[N_MAX];
	struct sigv4_request rq;
};

static void send_url(struct trip *t, const char *url)
{
	struct err err = {0};
	struct url u;

	assert_ok(url_parse(t->a, str_of(url), &u, &err), &err);
	t->rq.path = str_of(u.path);
	t->rq.query = str_of(u.query);
}

static void add(struct trip *t, const char *name, const char *value)
{
	assert_true(t->rq.n_headers < N_MAX);
	t->h[t->rq.n_headers++] = (struct http_header){name, value};
}

static struct http_header *find(struct trip *t, const char *name)
{
	for (size_t i = 0; i < t->rq.n_headers; i++) {
		if (strcasecmp(t->h[i].name, name) == 0)
			return &t->h[i];
	}
	fail_msg("no header %s", name);
	return NULL;
}

static void drop(struct trip *t, const char *name)
{
	struct http_header *h = find(t, name);

	*h = t->h[--t->rq.n_headers];
}

/* http://h:8000/s3/b/k, signed at WHEN with two headers of the caller's. */
static void trip_make(struct trip *t, struct arena *a, const struct sigv4_key *key, const char *url)
{
	static const struct http_header own[] = {{"x-amz-meta-a", "  two   words "},
	                                         {"Content-Type", "text/plain"}};
	struct http_header out[4];
	struct err err = {0};
	size_t n;

	*t = (struct trip){.a = a, .rq = {.method = HTTP_PUT}};
	t->rq.headers = t->h;
	send_url(t, url);
	assert_ok(sigv4_sign(a, key, HTTP_PUT, url, own, COUNT(own), SIGV4_UNSIGNED, WHEN, out, &n,
	                     &err),
	          &err);
	add(t, "Host", "h:8000");
	add(t, own[0].name, own[0].value);
	add(t, own[1].name, own[1].value);
	for (size_t i = 0; i < n; i++)
		add(t, out[i].name, out[i].value);
}

static void rename_value(struct trip *t, const char *header, const char *from, const char *to)
{
	struct http_header *h = find(t, header);
	const char *at = strstr(h->value, from);

	assert_non_null(at);
	h->value = arena_printf(t->a, "%.*s%s%s", (int)(at - h->value), h->value, to,
	                        at + strlen(from));
}

static void to_get(struct trip *t)
{
	t->rq.method = HTTP_GET;
}
static void other_path(struct trip *t)
{
	t->rq.path = STR_LIT("/s3/b/other");
}
static void dotted_path(struct trip *t)
{
	t->rq.path = STR_LIT("/s3/b/./k");
}
static void more_query(struct trip *t)
{
	t->rq.query = STR_LIT("acl");
}
static void other_host(struct trip *t)
{
	find(t, "Host")->value = "h:8001";
}
static void no_host(struct trip *t)
{
	drop(t, "Host");
}
static void two_hosts(struct trip *t)
{
	add(t, "host", "h:8000");
}
static void other_type(struct trip *t)
{
	find(t, "Content-Type")->value = "text/html";
}
static void no_type(struct trip *t)
{
	drop(t, "Content-Type");
}
static void other_payload(struct trip *t)
{
	find(t, "x-amz-content-sha256")->value = EMPTY;
}
static void no_payload(struct trip *t)
{
	drop(t, "x-amz-content-sha256");
}
static void two_payloads(struct trip *t)
{
	add(t, "x-amz-content-sha256", EMPTY);
}
static void other_time(struct trip *t)
{
	find(t, "x-amz-date")->value = "20130524T000001Z";
}
static void other_day(struct trip *t)
{
	find(t, "x-amz-date")->value = "20130523T235959Z";
}
static void odd_time(struct trip *t)
{
	find(t, "x-amz-date")->value = "20130524T000060Z";
}
static void no_time(struct trip *t)
{
	drop(t, "x-amz-date");
}
static void two_times(struct trip *t)
{
	add(t, "X-Amz-Date", "20130524T000000Z");
}
static void unsigned_amz(struct trip *t)
{
	add(t, "X-Amz-Copy-Source", "/secret/object");
}
static void second_meta(struct trip *t)
{
	add(t, "x-amz-meta-a", "more");
}
static void a_token(struct trip *t)
{
	add(t, "x-amz-security-token", "made up");
}
static void no_auth(struct trip *t)
{
	drop(t, "Authorization");
}
static void two_auths(struct trip *t)
{
	add(t, "authorization", find(t, "Authorization")->value);
}
static void old_scheme(struct trip *t)
{
	find(t, "Authorization")->value = "AWS " ACCESS ":c2ln";
}
static void bearer(struct trip *t)
{
	find(t, "Authorization")->value = "Bearer x";
}
static void other_key(struct trip *t)
{
	rename_value(t, "Authorization", "AKIA", "AKIB");
}
static void other_region(struct trip *t)
{
	rename_value(t, "Authorization", "us-east-1", "eu-west-1");
}
static void other_service(struct trip *t)
{
	rename_value(t, "Authorization", "/s3/", "/iam/");
}
static void other_end(struct trip *t)
{
	rename_value(t, "Authorization", "aws4_request", "aws4_requesT");
}
static void short_credential(struct trip *t)
{
	rename_value(t, "Authorization", "/20130524/us-east-1/s3/aws4_request", "");
}
static void no_access(struct trip *t)
{
	rename_value(t, "Authorization", ACCESS, "");
}
static void unsigned_host(struct trip *t)
{
	rename_value(t, "Authorization", ";host;", ";");
}
static void no_signed_headers(struct trip *t)
{
	rename_value(t, "Authorization", "SignedHeaders=", "Signed=");
}
static void two_signatures(struct trip *t)
{
	rename_value(t, "Authorization", ", Signature=", ", Signature=00, Signature=");
}
static void long_signature(struct trip *t)
{
	rename_value(t, "Authorization", "Signature=", "Signature=0");
}
static void empty_signature(struct trip *t)
{
	struct http_header *h = find(t, "Authorization");
	const char *at = strstr(h->value, "Signature=");

	h->value = arena_printf(t->a, "%.*sSignature=", (int)(at - h->value), h->value);
}
static void upper_signature(struct trip *t)
{
	struct http_header *h = find(t, "Authorization");
	char *copy = arena_cstr(t->a, h->value);
	char *c = strstr(copy, "Signature=") + strlen("Signature=");

	for (; *c != '\0'; c++) {
		if (*c >= 'a' && *c <= 'f')
			*c = (char)(*c - 'a' + 'A');
	}
	h->value = copy;
}
static void both_ways(struct trip *t)
{
	t->rq.query = STR_LIT(PRESIGNED_QUERY);
}

static const struct {
	void (*change)(struct trip *t);
	const char *words;
} refusals[] = {
	{to_get, "SignatureDoesNotMatch: "},
	{other_path, "SignatureDoesNotMatch: "},
	{dotted_path, "SignatureDoesNotMatch: "},
	{more_query, "SignatureDoesNotMatch: "},
	{other_host, "SignatureDoesNotMatch: "},
	{no_host, "AccessDenied: the signed header host is not in the request"},
	{two_hosts, "SignatureDoesNotMatch: "},
	{other_type, "SignatureDoesNotMatch: "},
	{no_type, "AccessDenied: the signed header content-type is not in the request"},
	{other_payload, "SignatureDoesNotMatch: "},
	{no_payload, "InvalidRequest: Missing required header"},
	{two_payloads, "InvalidRequest: the header x-amz-content-sha256 is there 2 times"},
	{other_time, "SignatureDoesNotMatch: "},
	{other_day, "AuthorizationHeaderMalformed: the date of the credential"},
	{odd_time, "AccessDenied: the date is not like"},
	{no_time, "AccessDenied: no x-amz-date or Date header"},
	{two_times, "InvalidRequest: the header x-amz-date is there 2 times"},
	{unsigned_amz, "AccessDenied: There were headers present in the request which were not "
                       "signed: X-Amz-Copy-Source"},
	{second_meta, "SignatureDoesNotMatch: "},
	{a_token, "InvalidToken: "},
	{no_auth, "AccessDenied: the request is not signed"},
	{two_auths, "InvalidRequest: the header authorization is there 2 times"},
	{old_scheme, "InvalidRequest: sign requests with AWS4-HMAC-SHA256"},
	{bearer, "InvalidRequest: sign requests with AWS4-HMAC-SHA256"},
	{other_key, "InvalidAccessKeyId: "},
	{other_region, "AuthorizationHeaderMalformed: the region"},
	{other_service, "AuthorizationHeaderMalformed: the service"},
	{other_end, "AuthorizationHeaderMalformed: the credential"},
	{short_credential, "AuthorizationHeaderMalformed: the credential"},
	{no_access, "AuthorizationHeaderMalformed: the credential"},
	{unsigned_host, "AuthorizationHeaderMalformed: SignedHeaders must include host"},
	{no_signed_headers, "AuthorizationHeaderMalformed: Credential, SignedHeaders or Signature"},
	{two_signatures, "AuthorizationHeaderMalformed: a field is there twice"},
	{long_signature, "SignatureDoesNotMatch: "},
	{empty_signature, "AuthorizationHeaderMalformed: Credential, SignedHeaders or Signature"},
	{upper_signature, "SignatureDoesNotMatch: "},
	{both_ways, "InvalidArgument: signed in the header and in the query"},
};

static void sigv4_refuses_what_was_changed(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(refusals); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct trip t;

		trip_make(&t, a, &aws, "http://h:8000/s3/b/k");
		assert_ok(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err);
		refusals[i].change(&t);
		if (sigv4_verify(a, &aws, &t.rq, WHEN, &err) == 0)
			fail_msg("accepted, though: %s", refusals[i].words);
		if (err.code != ERR_DENIED ||
		    strncmp(err.msg, refusals[i].words, strlen(refusals[i].words)) != 0)
			fail_msg("wanted \"%s\", got \"%s\"", refusals[i].words, err.msg);
	}
}

static void sigv4_wrong_secret(void **state UNUSED)
{
	struct sigv4_key other = aws;
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct trip t;

	other.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEZ";
	trip_make(&t, a, &aws, "http://h:8000/s3/b/k");
	assert_err(sigv4_verify(a, &other, &t.rq, WHEN, &err), &err, ERR_DENIED,
	           "SignatureDoesNotMatch: ");
}

static void sigv4_clock_skew(void **state UNUSED)
{
	static const struct {
		int64_t ms;
		bool ok;
	} rows[] = {
		{0, true},
		{15 * MINUTE, true},
		{-15 * MINUTE, true},
		{15 * MINUTE + 1000, false},
		{-15 * MINUTE - 1000, false},
		{365 * 24 * 60 * MINUTE, false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct trip t;

		trip_make(&t, a, &aws, "http://h:8000/s3/b/k");
		if (rows[i].ok)
			assert_ok(sigv4_verify(a, &aws, &t.rq, WHEN + rows[i].ms, &err), &err);
		else
			assert_err(sigv4_verify(a, &aws, &t.rq, WHEN + rows[i].ms, &err), &err,
			           ERR_DENIED, "RequestTimeTooSkewed: ");
	}
}

/* Harmless changes that proxies and client libraries make. */
static void sigv4_allows_what_means_the_same(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct trip t;

	trip_make(&t, a, &aws, "http://h:8000/s3/b/k");
	find(&t, "x-amz-meta-a")->value = "two words";
	find(&t, "Content-Type")->name = "CONTENT-TYPE";
	find(&t, "Host")->value = " h:8000 ";
	add(&t, "User-Agent", "anything");
	add(&t, "Via", "1.1 proxy");
	assert_ok(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err);
	rename_value(&t, "Authorization", ", SignedHeaders", " ,   SignedHeaders");
	assert_ok(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err);
}

/* The same header twice is one line with a comma. */
static void sigv4_joins_equal_headers(void **state UNUSED)
{
	static const struct http_header own[] = {{"X-Amz-Meta-A", "1"}, {"x-amz-meta-a", " 2 "}};
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header out[4];
	struct trip t = {.a = a, .rq = {.method = HTTP_GET}};
	struct err err = {0};
	size_t n;

	assert_ok(sigv4_sign(a, &aws, HTTP_GET, "http://h/b", own, 2, EMPTY, WHEN, out, &n, &err),
	          &err);
	t.rq.headers = t.h;
	send_url(&t, "http://h/b");
	add(&t, "host", "h");
	add(&t, "x-amz-meta-a", "1,2");
	for (size_t i = 0; i < n; i++)
		add(&t, out[i].name, out[i].value);
	assert_ok(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err);
	assert_non_null(strstr(out[0].value, "SignedHeaders=host;x-amz-content-sha256;x-amz-date;"
	                                     "x-amz-meta-a,"));
}

/* Every query a client may send: signed by its own rules, arriving as sent. */
static void sigv4_queries(void **state UNUSED)
{
	static const struct {
		const char *name, *signed_as, *sent;
		bool ok;
	} rows[] = {
		{"as signed", "a=1&b=2", "a=1&b=2", true},
		{"another order", "b=2&a=1", "a=1&b=2", true},
		{"no value", "uploads", "uploads=", true},
		{"'=' in the value", "prefix=a=b", "prefix=a%3Db", true},
		{"'=' in the name", "a%3Db=c", "a%3Db=c", true},
		{"'=' in the name is not one of value", "a%3Db=c", "a=b%3Dc", false},
		{"slashes", "prefix=a/b", "prefix=a%2Fb", true},
		{"hex in small letters", "prefix=a%2fb", "prefix=a%2Fb", true},
		{"tilde", "prefix=%7Ea", "prefix=~a", true},
		{"a space", "prefix=a%20b", "prefix=a%20b", true},
		{"a space as plus", "prefix=a%20b", "prefix=a+b", true},
		{"a plus is no space", "prefix=a%2Bb", "prefix=a+b", false},
		{"one name twice", "k=1&k=2", "k=2&k=1", true},
		{"one of two is missing", "k=1&k=2", "k=1", false},
		{"one too many", "k=1", "k=1&k=1", false},
		{"name order, not text order", "a-b=1&a=2", "a=2&a-b=1", true},
		{"empty parts", "a=1&&b=2&", "a=1&b=2", true},
		{"another value", "a=1", "a=2", false},
		{"another name", "a=1", "A=1", false},
		{"a name added", "a=1", "a=1&versionId=3", false},
		{"a bad escape is signed as it is", "a=%zz", "a=%zz", true},
		{"a bad escape changed", "a=%zz", "a=%zy", false},
		{"UTF-8", "prefix=%C3%A9", "prefix=%c3%a9", true},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct trip t;
		int r;

		trip_make(&t, a, &aws, arena_printf(a, "http://h:8000/b?%s", rows[i].signed_as));
		t.rq.query = str_of(rows[i].sent);
		r = sigv4_verify(a, &aws, &t.rq, WHEN, &err);
		if ((r == 0) != rows[i].ok)
			fail_msg("row \"%s\": %s", rows[i].name, r == 0 ? "accepted" : err.msg);
	}
}

static void sigv4_paths(void **state UNUSED)
{
	static const struct {
		const char *name, *signed_as, *sent;
		bool ok;
	} rows[] = {
		{"as signed", "/b/a%20b", "/b/a%20b", true},
		{"raw where AWS encodes", "/b/a%24%28%29", "/b/a$()", true},
		{"plus stays plus", "/b/a%2Bb", "/b/a+b", true},
		{"plus is no space", "/b/a%20b", "/b/a+b", false},
		{"signed as sent, though odd", "/b/a$b%2f", "/b/a$b%2f", true},
		{"an encoded slash is not a slash", "/b/c%2Fd", "/b/c/d", false},
		{"nor the other way", "/b/c/d", "/b/c%2Fd", false},
		{"two slashes", "/b//c", "/b//c", true},
		{"two slashes are not one", "/b//c", "/b/c", false},
		{"a slash at the end", "/b/", "/b/", true},
		{"a slash less", "/b/", "/b", false},
		{"no double encoding", "/b/a%2520b", "/b/a%20b", false},
		{"small letters", "/b/A", "/b/a", false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct trip t;
		int r;

		trip_make(&t, a, &aws, arena_printf(a, "http://h:8000%s", rows[i].signed_as));
		t.rq.path = str_of(rows[i].sent);
		r = sigv4_verify(a, &aws, &t.rq, WHEN, &err);
		if ((r == 0) != rows[i].ok)
			fail_msg("row \"%s\": %s", rows[i].name, r == 0 ? "accepted" : err.msg);
	}
}

static void sigv4_session_tokens(void **state UNUSED)
{
	static const struct {
		const char *name, *signer, *server;
		bool ok;
	} rows[] = {
		{"both", "token/1+==", "token/1+==", true},
		{"another", "token/1+==", "token/1+=.", false},
		{"shorter", "token/1+==", "token/1+=", false},
		{"none sent", NULL, "token", false},
		{"none known", "token", NULL, false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct sigv4_key signer = aws, server = aws;
		struct err err = {0};
		struct trip t;
		char *url;

		signer.session_token = rows[i].signer;
		server.session_token = rows[i].server;
		for (int presigned = 0; presigned < 2; presigned++) {
			int r;

			trip_make(&t, a, &signer, "http://h:8000/s3/b/k");
			if (presigned == 1) {
				assert_ok(sigv4_presign(a, &signer, HTTP_GET,
				                        "http://h:8000/s3/b/k", 60, WHEN, &url,
				                        &err),
				          &err);
				t.rq.method = HTTP_GET;
				t.rq.n_headers = 1; /* Host */
				send_url(&t, url);
			}
			r = sigv4_verify(a, &server, &t.rq, WHEN, &err);
			assert_row((r == 0) == rows[i].ok, rows[i].name);
			assert_row(r == 0 || strncmp(err.msg, "InvalidToken: ", 14) == 0,
			           rows[i].name);
			err_clear(&err);
		}
	}
}

static void sigv4_server_without_region_takes_any(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sigv4_key signer = aws, server = aws;
	struct err err = {0};
	struct trip t;

	signer.region = "auto";
	server.region = server.service = NULL;
	trip_make(&t, a, &signer, "http://h:8000/s3/b/k");
	assert_ok(sigv4_verify(a, &server, &t.rq, WHEN, &err), &err);
}

/* An old client sends Date only. */
static void sigv4_date_header_alone(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct trip t;

	trip_make(&t, a, &aws, "http://h:8000/s3/b/k");
	find(&t, "x-amz-date")->name = "Date";
	rename_value(&t, "Authorization", "x-amz-date", "date");
	/* other headers are signed now, so the signature differs; but the date was read */
	assert_err(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err, ERR_DENIED,
	           "SignatureDoesNotMatch: ");
	find(&t, "Date")->value = "Fri, 24 May 2013 00:20:00 GMT";
	assert_err(sigv4_verify(a, &aws, &t.rq, WHEN, &err), &err, ERR_DENIED,
	           "RequestTimeTooSkewed: ");
}

/* ---- presigned ---- */

static const char *replaced(struct arena *a, const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);

	assert_non_null(at);
	return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void sigv4_presigned_refusals(void **state UNUSED)
{
	static const struct {
		const char *name, *from, *to;
		int64_t at_ms;
		const char *words; /* NULL: accepted */
	} rows[] = {
		{"as it is", "", "", 0, NULL},
		{"at its end", "", "", 86400 * 1000, NULL},
		{"expired", "", "", 86401 * 1000, "AccessDenied: Request has expired"},
		{"a clock somewhat behind", "", "", -15 * MINUTE, NULL},
		{"not yet", "", "", -16 * MINUTE, "AccessDenied: Request is not valid yet"},
		{"longer", "Expires=86400", "Expires=86401", 0, "SignatureDoesNotMatch: "},
		{"a week and a second", "Expires=86400", "Expires=604801", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires"},
		{"never", "Expires=86400", "Expires=0", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires"},
		{"negative", "Expires=86400", "Expires=-1", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires"},
		{"huge", "Expires=86400", "Expires=99999999999999999999", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires"},
		{"no expiry", "&X-Amz-Expires=86400", "", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires is missing"},
		{"two expiries", "&X-Amz-Expires=86400", "&X-Amz-Expires=86400&X-Amz-Expires=9", 0,
	         "AuthorizationQueryParametersError: X-Amz-Expires is there more than once"},
		{"two signatures, one hidden", "X-Amz-Signature",
	         "X-Amz-Signature=00&X%2DAmz-Signature", 0,
	         "AuthorizationQueryParametersError: X-Amz-Signature is there more than once"},
		{"no signature", "&X-Amz-Signature=aeeed9", "&x=", 0,
	         "AuthorizationQueryParametersError: X-Amz-Signature is missing"},
		{"another algorithm", "HMAC-SHA256", "HMAC-SHA1", 0,
	         "AuthorizationQueryParametersError: X-Amz-Algorithm"},
		{"no host", "SignedHeaders=host", "SignedHeaders=range", 0,
	         "AuthorizationQueryParametersError: SignedHeaders must include host"},
		{"another day", "Date=20130524T", "Date=20130523T", 0,
	         "AuthorizationQueryParametersError: the date of the credential"},
		{"no date", "Date=20130524T000000Z", "Date=yesterday", 0,
	         "AuthorizationQueryParametersError: X-Amz-Date"},
		{"credential unencoded", ACCESS "%2F20130524%2Fus-east-1%2Fs3%2F",
	         ACCESS "/20130524/us-east-1/s3/", 0, NULL},
		{"more parameters", "X-Amz-Algorithm", "versionId=1&X-Amz-Algorithm", 0,
	         "SignatureDoesNotMatch: "},
		{"parameters in another order", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential",
	         "X-Amz-Credential", 0,
	         "AuthorizationQueryParametersError: X-Amz-Algorithm is missing"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct http_header h = {"Host", HOST};
		struct sigv4_request rq = {HTTP_GET, STR_LIT("/test.txt"), {0}, &h, 1};
		struct err err = {0};
		int r;

		rq.query = str_of(replaced(a, PRESIGNED_QUERY, rows[i].from, rows[i].to));
		r = sigv4_verify(a, &aws, &rq, WHEN + rows[i].at_ms, &err);
		if (rows[i].words == NULL && r < 0)
			fail_msg("row \"%s\": %s", rows[i].name, err.msg);
		if (rows[i].words != NULL &&
		    (r == 0 || err.code != ERR_DENIED ||
		     strncmp(err.msg, rows[i].words, strlen(rows[i].words)) != 0))
			fail_msg("row \"%s\": %s", rows[i].name, r == 0 ? "accepted" : err.msg);
	}
}

static void sigv4_presigned_keeps_its_query(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header h[] = {
		{"Host", "[::1]:9000"}, {"Range", "bytes=0-1"}, {"x-amz-acl", "public-read"}};
	struct sigv4_request rq = {.method = HTTP_PUT, .headers = h, .n_headers = 2};
	struct err err = {0};
	struct url u;
	char *url;

	assert_ok(sigv4_presign(a, &aws, HTTP_PUT,
	                        "http://[::1]:9000/b/a%20b?uploadId=x+y%2F1&partNumber=2", 60, WHEN,
	                        &url, &err),
	          &err);
	assert_ok(url_parse(a, str_of(url), &u, &err), &err);
	assert_non_null(strstr(url, "http://[::1]:9000/b/a%20b?"));
	assert_non_null(strstr(u.query, "partNumber=2&uploadId=x%20y%2F1"));
	rq.path = str_of(u.path);
	rq.query = str_of(u.query);
	assert_ok(sigv4_verify(a, &aws, &rq, WHEN, &err), &err);
	rq.method = HTTP_GET; /* a link to upload is none to read */
	assert_err(sigv4_verify(a, &aws, &rq, WHEN, &err), &err, ERR_DENIED,
	           "SignatureDoesNotMatch: ");
	rq.method = HTTP_PUT;
	rq.n_headers = 3; /* nor to make what is written public */
	assert_err(sigv4_verify(a, &aws, &rq, WHEN, &err), &err, ERR_DENIED,
	           "AccessDenied: There were headers present");
}

static void sigv4_access_key_of_odd_requests(void **state UNUSED)
{
	static const struct {
		const char *authorization, *query, *access;
	} rows[] = {
		{NULL, "", ""},
		{"Bearer x", "", ""},
		{"AWS4-HMAC-SHA256", "", ""},
		{"AWS4-HMAC-SHA256 Credential=a", "", ""},
		{"AWS4-HMAC-SHA256 Credential=a/1/r/s/aws4_request", "", ""},
		{"AWS4-HMAC-SHA256 Credential=a/1/r/s/aws4_request,SignedHeaders=h,Signature=s", "",
	         "a"},
		{"AWS4-HMAC-SHA256 Signature=s,SignedHeaders=h,Credential=a/b/1/r/s/aws4_request",
	         "", "a/b"},
		{NULL, "X-Amz-Credential=a%2F1%2Fr%2Fs%2Faws4_request", "a"},
		{NULL, "X-Amz-Credential=a", ""},
		{NULL, "X-Amz-Credential=%zz", ""},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct http_header h = {"Authorization", rows[i].authorization};
		struct sigv4_request rq = {HTTP_GET, STR_LIT("/"), str_of(rows[i].query), &h,
		                           rows[i].authorization != NULL};

		assert_row(str_eq(sigv4_access_key(a, &rq), rows[i].access), rows[i].query);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sigv4_signs_like_aws),
	cmocka_unit_test(sigv4_verifies_aws_examples),
	cmocka_unit_test(sigv4_presigns_like_aws),
	cmocka_unit_test(sigv4_refuses_what_was_changed),
	cmocka_unit_test(sigv4_wrong_secret),
	cmocka_unit_test(sigv4_clock_skew),
	cmocka_unit_test(sigv4_allows_what_means_the_same),
	cmocka_unit_test(sigv4_joins_equal_headers),
	cmocka_unit_test(sigv4_queries),
	cmocka_unit_test(sigv4_paths),
	cmocka_unit_test(sigv4_session_tokens),
	cmocka_unit_test(sigv4_server_without_region_takes_any),
	cmocka_unit_test(sigv4_date_header_alone),
	cmocka_unit_test(sigv4_presigned_refusals),
	cmocka_unit_test(sigv4_presigned_keeps_its_query),
	cmocka_unit_test(sigv4_access_key_of_odd_requests),
};
UNIT_MAIN(tests)
