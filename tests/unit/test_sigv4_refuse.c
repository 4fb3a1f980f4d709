/* test_sigv4_refuse.c - what a server must not accept: every part of a request, changed. */
#include "sigv4_trip.h"

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
	{two_signatures, "AuthorizationHeaderMalformed: a field is given twice"},
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
	         "AuthorizationQueryParametersError: X-Amz-Expires is given more than once"},
		{"two signatures, one hidden", "X-Amz-Signature",
	         "X-Amz-Signature=00&X%2DAmz-Signature", 0,
	         "AuthorizationQueryParametersError: X-Amz-Signature is given more than once"},
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
	                        "http://[::1]:9000/b/a%20b?uploadId=x+y%2F1&partNumber=2", NULL, 0,
	                        60, WHEN, &url, &err),
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

	assert_ok(sigv4_presign(a, &aws, HTTP_PUT, "http://[::1]:9000/b/k", &h[2], 1, 60, WHEN,
	                        &url, &err),
	          &err);
	assert_ok(url_parse(a, str_of(url), &u, &err), &err);
	assert_non_null(strstr(u.query, "X-Amz-SignedHeaders=host%3Bx-amz-acl"));
	rq.path = str_of(u.path);
	rq.query = str_of(u.query);
	assert_ok(sigv4_verify(a, &aws, &rq, WHEN, &err), &err);
	h[2].value = "private";
	assert_err(sigv4_verify(a, &aws, &rq, WHEN, &err), &err, ERR_DENIED,
	           "SignatureDoesNotMatch: ");
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
	cmocka_unit_test(sigv4_refuses_what_was_changed),
	cmocka_unit_test(sigv4_presigned_refusals),
	cmocka_unit_test(sigv4_presigned_keeps_its_query),
	cmocka_unit_test(sigv4_access_key_of_odd_requests),
};
UNIT_MAIN(tests)
