/*
 * test_sigv4.c - signatures against the examples of AWS's S3 documentation
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html and
 * sigv4-query-string-auth.html), and the freedoms that clients take.
 */
#include "sigv4_trip.h"

#include "base/hash.h"

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

	assert_ok(sigv4_presign(a, &aws, HTTP_GET, "https://" HOST "/test.txt", NULL, 0, 86400,
	                        WHEN, &url, &err),
	          &err);
	assert_string_equal(url, "https://" HOST "/test.txt?" PRESIGNED_QUERY);
	assert_true(str_eq(sigv4_access_key(a, &rq), ACCESS));
	assert_ok(sigv4_verify(a, &aws, &rq, WHEN, &err), &err);
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
				                        "http://h:8000/s3/b/k", NULL, 0, 60, WHEN,
				                        &url, &err),
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

/* https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html, and -trailers.html: 65536
 * and 1024 times "a", then the empty chunk. */
static void sigv4_chunks_like_aws(void **state)
{
	static const struct {
		const char *seed, *chunk[3], *trailer;
	} rows[] = {
		{"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
	         {"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
	          "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
	          "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"},
	         NULL},
		{"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
	         {"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
	          "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
	          "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"},
	         "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"},
	};
	static const char trailer[] = "x-amz-checksum-crc32c:sOO8/Q==\n";
	static const size_t sizes[] = {65536, 1024, 0};
	AUTO_ARENA struct arena *a = arena_new();
	const struct sigv4_key key = {"AKIAIOSFODNN7EXAMPLE",
	                              "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL, NULL, "s3"};
	char *text = arena_alloc(a, sizes[0]);

	(void)state;
	memset(text, 'a', sizes[0]);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct http_header h[] = {
			{"Authorization",
		         arena_printf(a,
		                      "AWS4-HMAC-SHA256 Credential=%s/20130524/us-east-1/s3/"
		                      "aws4_request, SignedHeaders=host, Signature=%s",
		                      key.access_key, rows[i].seed)},
			{"x-amz-date", "20130524T000000Z"},
			{"x-amz-content-sha256", SIGV4_STREAM},
		};
		struct sigv4_request rq = {.method = HTTP_PUT, .headers = h, .n_headers = 3};
		struct sigv4_chunks c = {0}, wrong;
		struct err err = {0};
		struct digest d;

		assert_ok(sigv4_chunks_begin(a, &key, &rq, &c, &err), &err);
		for (size_t n = 0; n < COUNT(sizes); n++) {
			d = hash_sha256(text, sizes[n]);
			wrong = c;
			assert_false(sigv4_chunk_ok(&wrong, &d, str_of(rows[i].seed)));
			assert_false(sigv4_chunk_ok(&wrong, &d, str_of("")));
			assert_true(sigv4_chunk_ok(&c, &d, str_of(rows[i].chunk[n])));
			/* each covers the one before it: the same once more is wrong */
			assert_false(sigv4_chunk_ok(&c, &d, str_of(rows[i].chunk[n])));
		}
		if (rows[i].trailer == NULL)
			continue;
		d = hash_sha256(trailer, strlen(trailer));
		assert_true(sigv4_trailer_ok(&c, &d, str_of(rows[i].trailer)));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sigv4_signs_like_aws),
	cmocka_unit_test(sigv4_verifies_aws_examples),
	cmocka_unit_test(sigv4_presigns_like_aws),
	cmocka_unit_test(sigv4_wrong_secret),
	cmocka_unit_test(sigv4_clock_skew),
	cmocka_unit_test(sigv4_allows_what_means_the_same),
	cmocka_unit_test(sigv4_joins_equal_headers),
	cmocka_unit_test(sigv4_queries),
	cmocka_unit_test(sigv4_paths),
	cmocka_unit_test(sigv4_session_tokens),
	cmocka_unit_test(sigv4_server_without_region_takes_any),
	cmocka_unit_test(sigv4_date_header_alone),
	cmocka_unit_test(sigv4_chunks_like_aws),
};
UNIT_MAIN(tests)
