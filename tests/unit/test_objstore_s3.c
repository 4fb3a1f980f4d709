/*
 * test_objstore_s3.c - the suite over a real S3 when STOKER_TEST_S3 names one: with keys, and with
 * signatures of somebody else, of which some have expired.
 */
#include "objstore_suite.h"

#include "base/clock.h"

/* One signature in 64 has expired when it is used. */
static int sign_by(void *arg, struct arena *a, const struct objstore_request *rq,
                   struct objstore_signed *out, struct err *err)
{
	static atomic_uint calls;
	struct objstore_request soon = *rq;

	if (atomic_fetch_add(&calls, 1) % 64 != 0)
		return objstore_presign(arg, a, rq, out, err);
	soon.expires_s = 1;
	if (objstore_presign(arg, a, &soon, out, err) < 0)
		return -1;
	clock_sleep_ms(2100);
	return 0;
}

static int put_signed(struct http_client *client, const struct objstore_put *put, const char *body,
                      const char *copy_from)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header header[COUNT(put->header) + 1];
	struct http_call call = {.method = HTTP_PUT,
	                         .url = put->url,
	                         .headers = header,
	                         .n_headers = put->n_header,
	                         .body = str_of(body)};
	struct err err = {0};

	memcpy(header, put->header, sizeof(put->header));
	if (copy_from != NULL)
		header[call.n_headers++] = (struct http_header){"x-amz-copy-source", copy_from};
	assert_ok(http_do(client, &call, &reply, &err), &err);
	return reply.status;
}

/* What comes from a reader is sent while it comes: there is no room to keep it. */
static void suite_of_large_streams(struct objstore *os)
{
	const size_t n = (32 << 20) + 1;
	AUTO_FREE char *body = pattern(n, 5);
	struct objstore_part part[2];
	struct objstore_info info;
	struct source s = {.left = str_n(body, n), .step = 1 << 20};
	char id[OBJSTORE_UPLOAD_CAP], etag[80];
	struct err err = {0};

	assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
	for (int sized = 0; sized < 2; sized++) {
		s = (struct source){.left = str_n(body, n), .step = 1 << 20};
		assert_ok(objstore_put_stream(os, "s/l", sized ? n : UINT64_MAX, pull, &s, &info,
		                              &err),
		          &err);
		assert_int_equal(info.size, n);
		same_object(os, "s/l", body, n);
		assert_ok(objstore_del(os, "s/l", &err), &err);
	}
	s = (struct source){.left = str_n(body, n), .step = 1 << 20, .fail_at_end = true};
	assert_err(objstore_put_stream(os, "s/l", n, pull, &s, &info, &err), &err, ERR_INVALID,
	           "BadDigest");
	assert_err(objstore_stat(os, "s/l", &info, &err), &err, ERR_NOT_FOUND, "");

	assert_ok(objstore_parts_begin(os, "s/p", id, &err), &err);
	put_part(os, "s/p", id, 1, str_n(body, 17 << 20), true, &part[0]);
	put_part(os, "s/p", id, 2, str_n(body + (17 << 20), n - (17 << 20)), true, &part[1]);
	s = (struct source){.left = str_n(body + 1, 17 << 20), .step = 70001, .fail_at_end = true};
	assert_err(objstore_parts_put(os, "s/p", id, 1, 17 << 20, pull, &s, etag, &err), &err,
	           ERR_INVALID, "BadDigest");
	s = (struct source){.left = str_n(body + 1, 17 << 20), .step = 70001};
	assert_err(objstore_parts_put(os, "s/p", id, 1, 18 << 20, pull, &s, etag, &err), &err,
	           ERR_INVALID, "IncompleteBody");
	/* some stores keep what was cut: it has another ETag, and counts no more than a lost one */
	put_part(os, "s/p", id, 1, str_n(body, 17 << 20), true, &part[0]);
	assert_ok(objstore_parts_end(os, "s/p", id, part, 2, &info, &err), &err);
	same_object(os, "s/p", body, n);
	assert_ok(objstore_del(os, "s/p", &err), &err);
	assert_int_equal(unsetenv("TMPDIR"), 0);
}

/* Whoever has such a signature can store these bytes, and nothing else. */
static void suite_of_signed_puts(struct objstore *os, struct http_client *client)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(1000);
	struct digest digest = hash_sha256("mine", 4);
	struct objstore_put put = {0}, other = {0};
	struct objstore_info info;
	struct url url;
	struct err err = {0};
	char hex[HASH_HEX_CAP];
	int status;

	digest_hex(&digest, hex);
	assert_ok(objstore_put(os, "somebody's", STR_LIT("theirs"), &err), &err);
	assert_ok(objstore_sign_put(os, a, "put/a b", hex, &put, &err), &err);
	assert_ok(objstore_sign_put(os, a, "somebody's", hex, &other, &err), &err);
	assert_ok(url_parse(a, str_of(other.url), &url, &err), &err);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(put_signed(client, &put, "else", NULL), 400);
		status = put_signed(client, &put, "", url.path);
		assert_true(status == 412 || status == 403 || status == 400);
		status = put_signed(client, &put, "mine", url.path);
		assert_true(status == 412 || status == 403 || status == 400);
		if (i == 0) {
			assert_err(objstore_stat(os, "put/a b", &info, &err), &err, ERR_NOT_FOUND,
			           "");
			assert_int_equal(put_signed(client, &put, "mine", NULL), 200);
		}
		buf_clear(&body);
		assert_ok(objstore_get(os, "put/a b", &body, &err), &err);
		assert_string_equal(buf_cstr(&body), "mine");
	}
	put.url = other.url;
	assert_int_equal(put_signed(client, &put, "mine", NULL), 403);
	assert_ok(objstore_del(os, "put/a b", &err), &err);
	assert_ok(objstore_del(os, "somebody's", &err), &err);
}

/* STOKER_TEST_S3=s3:http://host:port/bucket with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: an
 * empty bucket of a real store. */
static void objstore_s3_conforms(void **state UNUSED)
{
	const char *url = getenv("STOKER_TEST_S3");
	struct http_policy policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&policy);
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_OBJSTORE struct objstore *other = NULL;
	struct objstore_env env = {
		.client = client,
		.key = {.access_key = getenv("AWS_ACCESS_KEY_ID"),
	                .secret_key = getenv("AWS_SECRET_ACCESS_KEY"),
	                .session_token = getenv("AWS_SESSION_TOKEN"),
	                .region = getenv("AWS_REGION")},
	};
	char id[OBJSTORE_UPLOAD_CAP];
	struct err err = {0};
	struct objstore_swept swept = {0};
	AUTO_ARENA struct arena *a = arena_new();
	const struct digest none = {0};
	struct objstore_put put;
	char hex[HASH_HEX_CAP];
	bool more = false;

	digest_hex(&none, hex);
	if (url == NULL) {
		print_message("# STOKER_TEST_S3 names no bucket: S3 is not tested\n");
		return;
	}
	assert_ok(objstore_open(&os, url, &env, &err), &err);
	suite(os);
	suite_of_signed_puts(os, client);
	suite_of_large_streams(os);
	env.signer = sign_by;
	env.signer_arg = os;
	assert_ok(objstore_open(&other, "signed:", &env, &err), &err);
	lister = os;
	suite(other);
	assert_err(objstore_list(other, "", NULL, 10, NULL, NULL, &more, &err), &err,
	           ERR_UNSUPPORTED, "");
	assert_err(objstore_sign_put(other, a, "k", hex, &put, &err), &err, ERR_UNSUPPORTED, "");
	assert_ok(objstore_parts_begin(os, "swept", id, &err), &err);
	clock_sleep_ms(1100);
	assert_ok(objstore_sweep(os, 3600, false, &swept, &err), &err);
	assert_int_equal(swept.uploads, 0);
	assert_ok(objstore_sweep(os, 0, false, &swept, &err), &err);
	print_message("# %d swept\n", (int)swept.uploads);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(objstore_s3_conforms),
};
UNIT_MAIN(tests)
