/*
 * test_s3.c - the S3 face over a real listener, with our own client and signatures: what each kind
 * of caller may do, bodies that are not what they claim, uploads in parts, listings, S3's own
 * errors.
 */
#include "unit.h"

#include "base/clock.h"
#include "base/seal.h"
#include "face/face.h"
#include "io/sigv4.h"

#define KEY "uploads/archive-1.tgz"
#define SEEN "training_projects/abc1234/jobs/j/rank-0/ckpt/f.bin"
#define TOKEN "stoker_member"
#define PART ((size_t)5 << 20)
#define EXPIRED "AKEXPIRED"

static char folder[64];
static struct httpd *server;
static struct http_client *client;
static struct objstore *objects;
static char base[64];

/* ---- the product, as far as the face asks it ------------------------------------------ */

static int upload_find(struct app *app UNUSED, struct arena *a UNUSED, struct str access_key,
                       struct model_upload *out, struct err *err)
{
	if (!str_eq(access_key, "AKUP") && !str_eq(access_key, EXPIRED))
		return err_set(err, ERR_NOT_FOUND, "no such upload");
	*out = (struct model_upload){
		.access_key = str_eq(access_key, "AKUP") ? "AKUP" : EXPIRED,
		.secret_key = "upload-secret",
		.session_token = "session",
		.key = KEY,
		.expires_ms = str_eq(access_key, "AKUP") ? INT64_MAX : 1,
	};
	return 0;
}

static char last_stored[128]; /* "key digest" of what was written last */

static int upload_stored(struct app *app UNUSED, const char *key, const char *sha256,
                         struct err *err UNUSED)
{
	FMT(last_stored, "%s %s", key, sha256 != NULL ? sha256 : "-");
	return 0;
}

static int authenticate(struct app *app UNUSED, struct arena *a, struct str token,
                        bool local UNUSED, struct principal **out, struct err *err)
{
	if (!str_eq(token, TOKEN) && !str_eq(token, "stoker_viewer"))
		return err_set(err, ERR_AUTH, "this token is not known");
	*out = ARENA_NEW(a, struct principal);
	(*out)->magic = PRINCIPAL_MAGIC;
	(*out)->role = str_eq(token, TOKEN) ? ROLE_MEMBER : ROLE_VIEWER;
	return 0;
}

static int project_get(const struct ask *ask UNUSED, const char *id,
                       struct model_project *out UNUSED, struct err *err)
{
	return strcmp(id, "abc1234") == 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no such project");
}

static const struct token_ops token_ops = {.authenticate = authenticate};
static const struct project_ops project_ops = {.get = project_get};
static const struct upload_ops upload_ops = {.find = upload_find, .stored = upload_stored};
static const struct face_ops ops = {
	.tokens = &token_ops,
	.uploads = &upload_ops,
	.projects = &project_ops,
};
static struct face_ctx ctx = {.magic = FACE_CTX_MAGIC,
                              .ops = &ops,
                              .url_access_key = "AKURL",
                              .url_secret_key = "url-secret",
                              .bucket = "stoker"};

/* ---- calls ---------------------------------------------------------------------------- */

struct
try {
	enum http_method method;
	const char *target; /* "/s3/stoker/key?query" */
	struct str body;
	const char *payload;                   /* x-amz-content-sha256; NULL = that of the body */
	const char *access, *secret, *session; /* NULL: AKUP's */
	struct http_header header[4];
	size_t n_header;
	bool unsigned_;
	int64_t skew_ms;
};

static void exchange(struct try *t, struct http_reply *reply)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct sigv4_key key = {
		.access_key = t->access == NULL ? "AKUP" : t->access,
		.secret_key = t->secret == NULL ? "upload-secret" : t->secret,
		.session_token = t->session == NULL ? "session" : t->session,
		.region = "us-east-1",
		.service = "s3",
	};
	struct http_header all[8];
	struct http_call call = {.method = t->method, .body = t->body, .headers = all};
	char hex[HASH_HEX_CAP];
	struct digest d = hash_sha256(t->body.p, t->body.n);
	struct err err = {0};

	digest_hex(&d, hex);
	call.url = arena_printf(a, "%s%s", base, t->target);
	if (!t->unsigned_)
		assert_ok(sigv4_sign(a, &key, t->method, call.url, t->header, t->n_header,
		                     t->payload == NULL ? hex : t->payload,
		                     clock_wall_ms() + t->skew_ms, all, &call.n_headers, &err),
		          &err);
	for (size_t i = 0; i < t->n_header; i++)
		all[call.n_headers++] = t->header[i];
	assert_ok(http_do(client, &call, reply, &err), &err);
}

/* The status, and a code of S3 when it is not 2xx. */
static void expect(struct try t, int status, const char *code)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	char want[80];

	exchange(&t, &reply);
	if (reply.status != status)
		fail_msg("%s %s: %d %s", http_method_name[t.method], t.target, reply.status,
		         buf_cstr(&reply.body));
	if (code == NULL)
		return;
	FMT(want, "<Code>%s</Code>", code);
	if (strstr(buf_cstr(&reply.body), want) == NULL)
		fail_msg("%s %s: %s", http_method_name[t.method], t.target, buf_cstr(&reply.body));
}

static bool stored(const char *key)
{
	struct objstore_info info;
	struct err err = {0};

	return objstore_stat(objects, key, &info, &err) == 0;
}

static void forget(const char *key)
{
	struct err err = {0};

	assert_ok(objstore_del(objects, key, &err), &err);
}

/* ---- tests ---------------------------------------------------------------------------- */

static void s3_who_may_write(void **state UNUSED)
{
	struct try put = {
		.method = HTTP_PUT, .target = "/s3/stoker/" KEY, .body = STR_LIT("hello")};
	struct try t = put;

	t.unsigned_ = true;
	expect(t, 403, "AccessDenied");
	t = put;
	t.secret = "wrong";
	expect(t, 403, "SignatureDoesNotMatch");
	t = put;
	t.access = "AKNOBODY";
	expect(t, 403, "InvalidAccessKeyId");
	t = put;
	t.session = "other";
	expect(t, 400, "InvalidToken");
	t = put;
	t.access = EXPIRED;
	expect(t, 400, "ExpiredToken");
	t = put;
	t.skew_ms = 3600 * 1000;
	expect(t, 403, "RequestTimeTooSkewed");
	t = put;
	t.target = "/s3/stoker/" KEY "2";
	expect(t, 403, "AccessDenied");
	t = put;
	t.target = "/s3/other/" KEY;
	expect(t, 404, "NoSuchBucket");
	t.secret = "wrong"; /* what is here is told to those who are known */
	expect(t, 403, "SignatureDoesNotMatch");
	t.unsigned_ = true;
	expect(t, 403, "AccessDenied");
	t = put;
	t.unsigned_ = true;
	t.header[0] = (struct http_header){"Authorization", "Bearer " TOKEN};
	t.n_header = 1;
	expect(t, 403, "AccessDenied");
	t = put;
	t.method = HTTP_GET;
	t.body = (struct str){0};
	expect(t, 403, "AccessDenied"); /* upload credentials read nothing */
	t.target = "/s3/stoker";
	t.method = HTTP_HEAD;
	expect(t, 200, NULL); /* but that the bucket is there is no secret to them */
	t.secret = "wrong";
	expect(t, 403, NULL);
	t.unsigned_ = true;
	expect(t, 403, NULL);
	t = put;
	t.method = HTTP_PATCH;
	expect(t, 405, "MethodNotAllowed");
	assert_false(stored(KEY));

	t = put;
	t.skew_ms = 60 * 1000; /* a clock that is a minute off is fine */
	expect(t, 200, NULL);
	assert_true(stored(KEY));
	t = put;
	t.method = HTTP_DELETE;
	t.body = (struct str){0};
	expect(t, 403, "AccessDenied"); /* it is the job's now */
	assert_true(stored(KEY));
	forget(KEY);
}

static void s3_keys_and_features_that_are_refused(void **state UNUSED)
{
	static const struct {
		const char *target;
		int status;
		const char *code;
	} rows[] = {
		{"/s3/stoker/uploads//x", 400, "InvalidArgument"},
		{"/s3/stoker/uploads/x/", 400, "InvalidArgument"},
		{"/s3/stoker/uploads/%01", 400, "InvalidArgument"},
		{"/s3/stoker/" KEY "?acl", 501, "NotImplemented"},
		{"/s3/stoker/" KEY "?tagging", 501, "NotImplemented"},
		{"/s3/stoker/" KEY "?uploadId=x&partNumber=0", 400, "InvalidArgument"},
		{"/s3/stoker/" KEY "?uploadId=x&partNumber=10001", 400, "InvalidArgument"},
		{"/s3/stoker/" KEY "?uploadId=x&partNumber=1", 404, "NoSuchUpload"},
		{"/s3/stoker/" KEY "?uploadId=x", 400, "InvalidArgument"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		expect((struct try){.method = HTTP_PUT,
		                    .target = rows[i].target,
		                    .body = STR_LIT("x")},
		       rows[i].status, rows[i].code);
	assert_false(stored(KEY));
}

#define CHUNKED(h)                                                                                 \
	.payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER",                                           \
	.header = {{"content-encoding", "aws-chunked"},                                            \
	           {"x-amz-decoded-content-length", "5"},                                          \
	           {"x-amz-trailer", h}},                                                          \
	.n_header = 3

static void s3_bodies_are_checked(void **state UNUSED)
{
	static const struct {
		const char *name;
		struct try t;
		int status;
		const char *code;
	} rows[] = {
		{"wrong sha256",
	         {.body = STR_LIT("hello"),
	          .payload = "0000000000000000000000000000000000000000000000000000000000000000"},
	         400,
	         "XAmzContentSHA256Mismatch"},
		{"no sha256", {.body = STR_LIT("hello"), .payload = "abc"}, 400, "InvalidArgument"},
		{"other chunks",
	         {.body = STR_LIT("hello"), .payload = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"},
	         501,
	         "NotImplemented"},
		{"signed chunks without signatures",
	         {.body = STR_LIT("5\r\nhello\r\n0\r\n\r\n"),
	          .payload = SIGV4_STREAM,
	          .header = {{"x-amz-decoded-content-length", "5"}},
	          .n_header = 1},
	         403,
	         "SignatureDoesNotMatch"},
		{"wrong md5",
	         {.body = STR_LIT("hello"),
	          .header = {{"content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="}},
	          .n_header = 1},
	         400,
	         "BadDigest"},
		{"no md5",
	         {.body = STR_LIT("hello"), .header = {{"content-md5", "hello"}}, .n_header = 1},
	         400,
	         "InvalidDigest"},
		{"wrong crc32",
	         {.body = STR_LIT("hello"),
	          .header = {{"x-amz-checksum-crc32", "AAAAAA=="}},
	          .n_header = 1},
	         400,
	         "BadDigest"},
		{"all that is right",
	         {.body = STR_LIT("hello"),
	          .header = {{"content-md5", "XUFAKrxLKna5cZ2REBfFkg=="},
	                     {"x-amz-checksum-crc32", "NhCmhg=="},
	                     {"x-amz-checksum-crc32c", "mnG7TA=="},
	                     {"x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="}},
	          .n_header = 4},
	         200,
	         NULL},
		{"sha256 and crc64",
	         {.body = STR_LIT("123456789"),
	          .header = {{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="},
	                     {"x-amz-checksum-sha256",
	                      "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="}},
	          .n_header = 2},
	         200,
	         NULL},
		{"chunks",
	         {.body = STR_LIT(
			  "3\r\nhel\r\n2\r\nlo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"),
	          CHUNKED("x-amz-checksum-crc32")},
	         200,
	         NULL},
		{"wrong trailer",
	         {.body = STR_LIT("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"),
	          CHUNKED("x-amz-checksum-crc32")},
	         400,
	         "BadDigest"},
		{"trailer that did not come",
	         {.body = STR_LIT("5\r\nhello\r\n0\r\n\r\n"), CHUNKED("x-amz-checksum-crc32")},
	         400,
	         "IncompleteBody"},
		{"last chunk that did not come",
	         {.body = STR_LIT("5\r\nhello\r\n"), CHUNKED("x-amz-checksum-crc32")},
	         400,
	         "IncompleteBody"},
		{"longer than declared",
	         {.body = STR_LIT("6\r\nhello!\r\n0\r\n\r\n"), CHUNKED("")},
	         400,
	         "IncompleteBody"},
		{"shorter than declared",
	         {.body = STR_LIT("4\r\nhell\r\n0\r\n\r\n"), CHUNKED("")},
	         400,
	         "IncompleteBody"},
		{"not chunks", {.body = STR_LIT("hello"), CHUNKED("")}, 400, "IncompleteBody"},
		{"no length",
	         {.body = STR_LIT("0\r\n\r\n"), .payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
	         411,
	         "MissingContentLength"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct try t = rows[i].t;

		t.method = HTTP_PUT;
		t.target = "/s3/stoker/" KEY;
		print_message("# %s\n", rows[i].name);
		expect(t, rows[i].status, rows[i].code);
		assert_row(stored(KEY) == (rows[i].status == 200), rows[i].name);
		forget(KEY);
	}
}

static char *pattern(size_t n)
{
	char *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7 + i / 4096);
	return p;
}

static char *begin_upload(struct arena *a)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct try t = {.method = HTTP_POST, .target = "/s3/stoker/" KEY "?uploads"};
	const char *id, *end;

	exchange(&t, &reply);
	assert_int_equal(reply.status, 200);
	id = strstr(buf_cstr(&reply.body), "<UploadId>");
	assert_non_null(id);
	end = strstr(id, "</UploadId>");
	return arena_printf(a, "%.*s", (int)(end - id - 10), id + 10);
}

static char *put_part(struct arena *a, const char *id, int number, struct str body)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct try t = {.method = HTTP_PUT, .body = body, .payload = SIGV4_UNSIGNED};

	t.target = arena_printf(a, "/s3/stoker/" KEY "?partNumber=%d&uploadId=%s", number, id);
	exchange(&t, &reply);
	assert_int_equal(reply.status, 200);
	return arena_strz(a, http_header_of(&reply, "etag"));
}

static void s3_upload_in_parts(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf got = BUF_INIT(64 << 20);
	AUTO_FREE char *body = pattern(2 * PART + 99);
	char *id = begin_upload(a), *last, *first, *middle;
	const char *complete = arena_printf(a, "/s3/stoker/" KEY "?uploadId=%s", id);
	struct try t = {.method = HTTP_POST, .target = complete};
	struct err err = {0};

	last = put_part(a, id, 3, str_n(body + 2 * PART, 99));
	first = put_part(a, id, 1, str_n(body, PART));
	middle = put_part(a, id, 2, str_n(body, PART));
	middle = put_part(a, id, 2, str_n(body + PART, PART)); /* sent again: replaced */
#define ROW(n) "<Part><PartNumber>" n "</PartNumber><ETag>%s</ETag></Part>"
	t.body = str_of("<CompleteMultipartUpload></CompleteMultipartUpload>");
	expect(t, 400, "MalformedXML");
	t.body = str_of("hello");
	expect(t, 400, "MalformedXML");
	t.body = str_of(arena_printf(
		a, "<CompleteMultipartUpload>" ROW("2") ROW("1") "</CompleteMultipartUpload>",
		middle, first));
	expect(t, 400, "InvalidPartOrder");
	t.body = str_of(arena_printf(
		a, "<CompleteMultipartUpload>" ROW("1") ROW("1") "</CompleteMultipartUpload>",
		first, first));
	expect(t, 400, "InvalidPartOrder");
	t.body = str_of(arena_printf(
		a, "<CompleteMultipartUpload>" ROW("1") ROW("4") "</CompleteMultipartUpload>",
		first, middle));
	expect(t, 400, "InvalidPart");
	assert_false(stored(KEY));
	t.body = str_of(arena_printf(a,
	                             "<CompleteMultipartUpload>" ROW("1") ROW("2")
	                                     ROW("3") "</CompleteMultipartUpload>",
	                             first, middle, last));
	expect(t, 200, NULL);
	assert_ok(objstore_get(objects, KEY, &got, &err), &err);
	assert_int_equal(got.n, 2 * PART + 99);
	assert_memory_equal(got.p, body, got.n);
	expect(t, 404, "NoSuchUpload");
	forget(KEY);

	id = begin_upload(a);
	(void)put_part(a, id, 1, STR_LIT("x"));
	t = (struct try){.method = HTTP_DELETE,
	                 .target = arena_printf(a, "/s3/stoker/" KEY "?uploadId=%s", id)};
	expect(t, 204, NULL);
	expect(t, 404, "NoSuchUpload");
	assert_false(stored(KEY));
}

static void get(const char *url, const struct http_header *headers, size_t n, int status,
                const char *body)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_call call = {.url = url, .headers = headers, .n_headers = n};
	struct err err = {0};

	assert_ok(http_do(client, &call, &reply, &err), &err);
	if (reply.status != status || (body != NULL && strstr(buf_cstr(&reply.body), body) == NULL))
		fail_msg("%s: %d %s", url, reply.status, buf_cstr(&reply.body));
}

static void s3_signed_urls(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct sigv4_key key = {.access_key = "AKURL",
	                        .secret_key = "url-secret",
	                        .region = "us-east-1",
	                        .service = "s3"};
	const char *plain = arena_printf(a, "%s/s3/stoker/" SEEN, base);
	struct http_header range = {"Range", "bytes=1-3"}, far = {"Range", "bytes=50-"};
	struct http_call head = {.method = HTTP_HEAD};
	char *url = NULL, *other;
	struct err err = {0};

	assert_ok(objstore_put(objects, SEEN, STR_LIT("hello"), &err), &err);
	assert_ok(
		sigv4_presign(a, &key, HTTP_GET, plain, NULL, 0, 600, clock_wall_ms(), &url, &err),
		&err);
	get(url, NULL, 0, 200, "hello");
	get(url, &range, 1, 206, "ell");
	get(url, &far, 1, 416, "InvalidRange");
	get(plain, NULL, 0, 403, "AccessDenied");
	head.url = url;
	assert_ok(http_do(client, &head, &reply, &err), &err);
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.length, 5);
	assert_true(http_header_of(&reply, "last-modified").n > 0);

	other = arena_cstr(a, url); /* another file with this signature */
	memcpy(strstr(other, "f.bin"), "g.bin", 5);
	get(other, NULL, 0, 403, "SignatureDoesNotMatch");
	assert_ok(sigv4_presign(a, &key, HTTP_GET, plain, NULL, 0, 600,
	                        clock_wall_ms() - 700 * 1000, &url, &err),
	          &err);
	get(url, NULL, 0, 403, "Request has expired");
	assert_ok(sigv4_presign(a, &key, HTTP_GET, arena_printf(a, "%s-none", plain), NULL, 0, 600,
	                        clock_wall_ms(), &url, &err),
	          &err);
	get(url, NULL, 0, 404, "NoSuchKey");
	assert_ok(
		sigv4_presign(a, &key, HTTP_PUT, plain, NULL, 0, 600, clock_wall_ms(), &url, &err),
		&err);
	expect((struct try){.method = HTTP_PUT,
	                    .target = url + strlen(base),
	                    .body = STR_LIT("x"),
	                    .unsigned_ = true},
	       403, "AccessDenied");
	forget(SEEN);
}

/* A store that has no files to be sent from: the same answers. */
static void s3_reads_from_a_store_elsewhere(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_OBJSTORE struct objstore *mem = NULL;
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header member[] = {{"Authorization", "Bearer " TOKEN}, {"Range", "bytes=1-3"}};
	const char *url = arena_printf(a, "%s/s3/stoker/" SEEN, base);
	struct http_call head = {
		.method = HTTP_HEAD, .url = url, .headers = member, .n_headers = 1};
	struct err err = {0};

	assert_ok(objstore_open(&mem, "mem:", NULL, &err), &err);
	assert_ok(objstore_put(mem, SEEN, STR_LIT("hello"), &err), &err);
	ctx.objects = mem;
	get(url, member, 1, 200, "hello");
	get(url, member, 2, 206, "ell");
	member[1].value = "bytes=9-";
	get(url, member, 2, 416, "InvalidRange");
	assert_ok(http_do(client, &head, &reply, &err), &err);
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.length, 5);
	get(arena_printf(a, "%s-none", url), member, 1, 404, "NoSuchKey");
	ctx.objects = objects;
}

static void s3_tokens_and_listings(void **state UNUSED)
{
	static const char *const keys[] = {
		"training_projects/abc1234/a b",
		"training_projects/abc1234/d/1",
		"training_projects/abc1234/d/2",
		"training_projects/abc1234/e",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header member = {"Authorization", "Bearer " TOKEN};
	struct http_header viewer = {"Authorization", "Api-Key stoker_viewer"};
	struct http_header nobody = {"Authorization", "Bearer x"};
	const char *b = arena_printf(a, "%s/s3/stoker", base), *list;
	struct err err = {0};

	for (size_t i = 0; i < COUNT(keys); i++)
		assert_ok(objstore_put(objects, keys[i], STR_LIT("1"), &err), &err);
	list = arena_printf(a, "%s?list-type=2&prefix=training_projects/abc1234/", b);
	get(list, NULL, 0, 403, "AccessDenied");
	get(list, &viewer, 1, 403, "AccessDenied");
	get(list, &nobody, 1, 403, "AccessDenied");
	get(list, &member, 1, 200, "<KeyCount>4</KeyCount><IsTruncated>false</IsTruncated>");
	get(arena_printf(a, "%s&max-keys=3", list), &member, 1, 200,
	    "<IsTruncated>true</IsTruncated>");
	get(arena_printf(a, "%s&max-keys=4", list), &member, 1, 200,
	    "<IsTruncated>false</IsTruncated>");
	get(arena_printf(a, "%s&max-keys=0", list), &member, 1, 200, "<KeyCount>0</KeyCount>");
	get(arena_printf(a, "%s&max-keys=x", list), &member, 1, 400, "InvalidArgument");
	get(arena_printf(a, "%s&continuation-token=%%21", list), &member, 1, 400,
	    "InvalidArgument");
	get(arena_printf(a, "%s&encoding-type=url", list), &member, 1, 200, "abc1234/a%20b</Key>");
	get(arena_printf(a, "%s&start-after=training_projects/abc1234/d/1", list), &member, 1, 200,
	    "<KeyCount>2</KeyCount>");
	get(arena_printf(a, "%s&delimiter=/", list), &member, 1, 200,
	    "<CommonPrefixes><Prefix>training_projects/abc1234/d/</Prefix></CommonPrefixes>");
	get(arena_printf(a, "%s&delimiter=/&max-keys=2", list), &member, 1, 200,
	    "<KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>");
	get(arena_printf(a, "%s&delimiter=/&max-keys=3", list), &member, 1, 200,
	    "<KeyCount>3</KeyCount><IsTruncated>false</IsTruncated>");
	get(arena_printf(a, "%s?list-type=2&prefix=training_projects/zzz9999/", b), &member, 1, 404,
	    "NoSuchKey");
	get(arena_printf(a, "%s?list-type=2&prefix=uploads/", b), &member, 1, 403, "AccessDenied");
	get(arena_printf(a, "%s?list-type=2&prefix=training_projects/abc1234", b), &member, 1, 403,
	    "name the project");
	get(arena_printf(a, "%s?list-type=2", b), &member, 1, 403, "AccessDenied");
	list = arena_printf(a, "%s?prefix=training_projects/abc1234/", b); /* the first version */
	get(list, &member, 1, 200, "<IsTruncated>false</IsTruncated>");
	get(arena_printf(a, "%s&delimiter=/&max-keys=2", list), &member, 1, 200,
	    "<NextMarker>training_projects/abc1234/d/</NextMarker>");
	get(arena_printf(a, "%s&delimiter=/&marker=training_projects/abc1234/d/", list), &member, 1,
	    200, "<Key>training_projects/abc1234/e</Key>");
	get(arena_printf(a, "%s&list-type=1", list), &member, 1, 400, "InvalidArgument");
	get(arena_printf(a, "%s?location", b), NULL, 0, 403, "AccessDenied");
	get(arena_printf(a, "%s?location", b), &viewer, 1, 403, "AccessDenied");
	get(arena_printf(a, "%s?location", b), &member, 1, 200, "LocationConstraint");
	get(arena_printf(a, "%s/training_projects/abc1234/e", b), &member, 1, 200, "1");
	get(arena_printf(a, "%s/training_projects/abc1234/%%2e%%2e/x", b), &member, 1, 400, NULL);
	get(arena_printf(a, "%s/uploads/x", b), &member, 1, 403, "AccessDenied");
	for (size_t i = 0; i < COUNT(keys); i++)
		forget(keys[i]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(s3_who_may_write),
	cmocka_unit_test(s3_keys_and_features_that_are_refused),
	cmocka_unit_test(s3_bodies_are_checked),
	cmocka_unit_test(s3_upload_in_parts),
	cmocka_unit_test(s3_signed_urls),
	cmocka_unit_test(s3_reads_from_a_store_elsewhere),
	cmocka_unit_test(s3_tokens_and_listings),
};

static int set_up(void **state UNUSED)
{
	static const struct face *const faces[] = {&face_s3};
	struct http_policy policy = {0};
	struct httpd_options o = {
		.address = "127.0.0.1:0", .faces = faces, .n_faces = 1, .ctx = &ctx};
	char url[96];
	struct err err = {0};

	FMT(folder, "/tmp/stoker-s3-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	FMT(url, "dir:%s", folder);
	assert_ok(objstore_open(&objects, url, NULL, &err), &err);
	ctx.objects = objects;
	assert_ok(httpd_start(&o, &server, &err), &err);
	client = http_client_new(&policy);
	FMT(base, "http://127.0.0.1:%u", httpd_port(server));
	return 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	http_client_free(client);
	httpd_stop(server);
	objstore_close(objects);
	return fs_remove_tree(AT_FDCWD, folder, &err);
}

UNIT_MAIN_IN(tests, set_up, tear_down)
