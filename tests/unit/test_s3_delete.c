/*
 * test_s3_delete.c - many objects deleted with one request: what the S3 driver makes of answers
 * that a healthy store does not give. Real stores are test_objstore_s3's.
 */
#include "io/httpd.h"
#include "store/objects/objstore_impl.h"
#include "unit.h"

#define DELETED_OPEN                                                                               \
	"<?xml version=\"1.0\"?><DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define DELETED(errors) DELETED_OPEN errors "</DeleteResult>"
#define FAILED(key, code)                                                                          \
	"<Error><Key>" key "</Key><Code>" code "</Code><Message>words</Message></Error>"
#define REFUSED(code) "<Error><Code>" code "</Code><Message>words</Message></Error>"
#define ASKED_MAX 8
#define MANY 2001

struct answer {
	int status; /* 0: the last one is given from here on */
	const char *body;
};

static struct mock {
	const struct answer *answer; /* of each request for many */
	unsigned asked, singly;
	size_t keys[ASKED_MAX];      /* in each of them */
	struct buf bodies;           /* of all of them */
	char last[OBJSTORE_KEY_MAX]; /* deleted by itself */
} mock;

static size_t count_of(struct str text, const char *word)
{
	size_t n = 0;

	for (const char *p = text.p;
	     (p = memmem(p, text.n - (size_t)(p - text.p), word, strlen(word))) != NULL; p++)
		n++;
	return n;
}

static int on_post(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf sum = BUF_INIT(64);
	struct str body, query;
	uint8_t md5[16];

	if (request_body(rq, &body, err) < 0)
		return -1;
	assert_true(request_query(rq, "delete", &query) && mock.asked < ASKED_MAX);
	hash_md5(body.p, body.n, md5);
	base64_encode(md5, sizeof(md5), false, &sum);
	assert_true(str_eq(request_header(rq, "Content-MD5"), buf_cstr(&sum)));
	assert_int_equal(count_of(body, "<Quiet>true</Quiet>"), 1);
	mock.keys[mock.asked++] = count_of(body, "<Key>");
	buf_str(&mock.bodies, body);
	if (mock.asked > 1 && mock.answer[1].status != 0)
		mock.answer++;
	return reply_bytes(rq, mock.answer->status, "application/xml", str_of(mock.answer->body));
}

static int on_delete(struct request *rq, struct err *err)
{
	mock.singly++;
	if (str_copy(rq->arg[0], mock.last, sizeof(mock.last), "key", err) < 0)
		return -1;
	return reply_bytes(rq, 204, NULL, (struct str){0});
}

static const struct route routes[] = {
	{HTTP_POST, SCOPE_OPEN, 4 << 20, "/data", on_post, ""},
	{HTTP_DELETE, SCOPE_OPEN, 0, "/data/p/{key...}", on_delete, ""},
};
static const struct face face = {"store", routes, COUNT(routes), NULL};
static const struct face *const faces[] = {&face};
static struct httpd *server;
static struct http_client *client;

static struct objstore *open_mock(const struct answer *answer)
{
	const struct objstore_env env = {.client = client,
	                                 .key = {"access", "secret", NULL, "us-east-1", "s3"}};
	AUTO_FREE char *url = xasprintf("s3:http://127.0.0.1:%u/data/p", httpd_port(server));
	struct objstore *os = NULL;
	struct err err = {0};

	buf_done(&mock.bodies);
	mock = (struct mock){.answer = answer, .bodies = BUF_INIT((size_t)16 << 20)};
	assert_ok(objstore_open(&os, url, &env, &err), &err);
	return os;
}

static const char *const abc[] = {"a", "b", "c"};

static void s3_delete_maps_answers(void **state UNUSED)
{
	static const struct {
		const char *name;
		struct answer answer[4];
		enum err_code want;
		size_t at;
		unsigned asked;
		const char *words;
	} rows[] = {
		{"all", {{200, DELETED("")}}, ERR_NONE, 3, 1, ""},
		{"told of each",
	         {{200, DELETED("<Deleted><Key>p/a</Key></Deleted>")}},
	         ERR_NONE,
	         3,
	         1,
	         ""},
		{"not there", {{200, DELETED(FAILED("p/b", "NoSuchKey"))}}, ERR_NONE, 3, 1, ""},
		{"denied",
	         {{200, DELETED(FAILED("p/b", "AccessDenied"))}},
	         ERR_DENIED,
	         1,
	         1,
	         "delete b in "},
		{"the first one counts",
	         {{200, DELETED(FAILED("p/c", "AccessDenied") FAILED("p/b", "KeyTooLongError")
	                                FAILED("p/a", "NoSuchKey"))}},
	         ERR_INVALID,
	         1,
	         1,
	         "KeyTooLongError: words"},
		{"what nobody knows",
	         {{200, DELETED(FAILED("p/c", "Odd"))}},
	         ERR_IO,
	         2,
	         1,
	         "delete c in "},
		{"of another key",
	         {{200, DELETED(FAILED("x", "AccessDenied"))}},
	         ERR_IO,
	         0,
	         1,
	         "not asked"},
		{"slow down, and then not",
	         {{200, DELETED(FAILED("p/b", "SlowDown"))},
	          {200, DELETED(FAILED("p/b", "InternalError"))},
	          {200, DELETED("")}},
	         ERR_NONE,
	         3,
	         3,
	         ""},
		{"slow down for all",
	         {{200, REFUSED("SlowDown")}, {503, REFUSED("SlowDown")}, {200, DELETED("")}},
	         ERR_NONE,
	         3,
	         3,
	         ""},
		{"no answer", {{200, "hello"}}, ERR_INVALID, 0, 1, ""},
		{"an empty one", {{200, ""}}, ERR_INVALID, 0, 1, ""},
		{"a page", {{200, "<html/>"}}, ERR_INVALID, 0, 1, "DeleteResult"},
		{"no right at all",
	         {{403, REFUSED("AccessDenied")}},
	         ERR_DENIED,
	         0,
	         1,
	         "delete a in "},
		{"no bucket",
	         {{404, REFUSED("NoSuchBucket")}},
	         ERR_UNAVAILABLE,
	         0,
	         1,
	         "NoSuchBucket"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_OBJSTORE struct objstore *os = open_mock(rows[i].answer);
		struct err err = {0};
		size_t at = 99;
		int rc = objstore_del_all(os, abc, COUNT(abc), &at, &err);

		assert_row((rc == 0) == (rows[i].want == ERR_NONE), rows[i].name);
		assert_row(err.code == rows[i].want, rows[i].name);
		assert_row(strstr(err.msg, rows[i].words) != NULL, rows[i].name);
		assert_row(at == rows[i].at && mock.asked == rows[i].asked && mock.singly == 0,
		           rows[i].name);
	}
}

/* Only what stayed is asked for again. */
static void s3_delete_asks_again_for_what_stayed(void **state UNUSED)
{
	static const struct answer answer[] = {
		{200, DELETED(FAILED("p/c", "SlowDown") FAILED("p/a", "SlowDown"))},
		{200, DELETED("")},
		{0, NULL}};
	AUTO_OBJSTORE struct objstore *os = open_mock(answer);
	struct err err = {0};

	assert_ok(objstore_del_all(os, abc, COUNT(abc), NULL, &err), &err);
	assert_int_equal(mock.asked, 2);
	assert_int_equal(mock.keys[0], 3);
	assert_int_equal(mock.keys[1], 2);
}

static void s3_delete_gives_up_when_it_never_passes(void **state UNUSED)
{
	static const struct answer answer[] = {{200, DELETED(FAILED("p/c", "SlowDown"))},
	                                       {0, NULL}};
	AUTO_OBJSTORE struct objstore *os = open_mock(answer);
	struct err err = {0};
	size_t at = 0;

	assert_err(objstore_del_all(os, abc, COUNT(abc), &at, &err), &err, ERR_UNAVAILABLE,
	           "SlowDown");
	assert_int_equal(at, 2);
	assert_int_equal(mock.asked, 6);
}

/* Stores that do not know the request: it is made once. */
static void s3_delete_goes_one_by_one(void **state UNUSED)
{
	static const struct answer rows[][2] = {
		{{501, REFUSED("NotImplemented")}},
		{{501, REFUSED("Odd")}},
		{{400, REFUSED("NotImplemented")}},
		{{405, REFUSED("MethodNotAllowed")}},
		{{400, REFUSED("InvalidArgument")}},
		{{405, ""}},
		{{501, ""}},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_OBJSTORE struct objstore *os = open_mock(rows[i]);
		struct err err = {0};
		size_t at = 0;

		for (int k = 0; k < 2; k++)
			assert_ok(objstore_del_all(os, abc, COUNT(abc), &at, &err), &err);
		assert_int_equal(at, 3);
		assert_int_equal(mock.asked, 1);
		assert_int_equal(mock.singly, 6);
	}
}

static void s3_delete_escapes(void **state UNUSED)
{
	static const struct answer answer[] = {
		{200, DELETED(FAILED("p/ &lt;&amp;&gt; ", "AccessDenied"))}, {0, NULL}};
	static const char *const keys[] = {"\xc3\xa9\"'", " <&> "};
	static const char *const unsaid[] = {"x", "y", "\xff", "z", "\xef\xbf\xbe", "v", "w"};
	static const struct answer fine[] = {{200, DELETED("")}, {0, NULL}};
	AUTO_OBJSTORE struct objstore *os = open_mock(answer);
	AUTO_OBJSTORE struct objstore *other = NULL;
	struct err err = {0};
	size_t at = 0;

	assert_err(objstore_del_all(os, keys, COUNT(keys), &at, &err), &err, ERR_DENIED, " <&> ");
	assert_int_equal(at, 1);
	assert_non_null(strstr(
		buf_cstr(&mock.bodies),
		"<Key>p/\xc3\xa9&quot;'</Key></Object><Object><Key>p/ &lt;&amp;&gt; </Key>"));
	/* what XML has no words for goes by its URL */
	other = open_mock(fine);
	assert_ok(objstore_del_all(other, unsaid, COUNT(unsaid), &at, &err), &err);
	assert_int_equal(mock.asked, 2);
	assert_int_equal(mock.keys[0] + mock.keys[1], 4);
	assert_int_equal(mock.singly, 3); /* and one that is left between two of them */
	assert_null(strstr(buf_cstr(&mock.bodies), "\xef\xbf\xbd"));
}

/* A thousand for each request, fewer when they are long. */
static void s3_delete_in_pages(void **state UNUSED)
{
	static const struct answer fine[] = {{200, DELETED("")}, {0, NULL}};
	AUTO_OBJSTORE struct objstore *os = open_mock(fine);
	AUTO_OBJSTORE struct objstore *other = NULL;
	AUTO_ARENA struct arena *a = arena_new();
	const char **key = ARENA_ARRAY(a, const char *, MANY);
	struct err err = {0};

	for (size_t i = 0; i < MANY; i++)
		key[i] = arena_printf(a, "k%zu", i);
	assert_ok(objstore_del_all(os, key, MANY, NULL, &err), &err);
	assert_int_equal(mock.asked, 2);
	assert_int_equal(mock.keys[0], 1000);
	assert_int_equal(mock.keys[1], 1000);
	assert_string_equal(mock.last, "k2000");

	other = open_mock(fine);
	for (size_t i = 0; i < 400; i++) {
		char *long_one = arena_printf(a, "%01000zu", i);

		memset(long_one, '"', 990);
		for (size_t k = 100; k < 990; k += 100)
			long_one[k] = '/';
		key[i] = long_one;
	}
	assert_ok(objstore_del_all(other, key, 400, NULL, &err), &err);
	assert_true(mock.asked > 2 && mock.keys[0] > 100);
	assert_int_equal(count_of(buf_view(&mock.bodies), "<Key>"), 400);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(s3_delete_maps_answers),
	cmocka_unit_test(s3_delete_asks_again_for_what_stayed),
	cmocka_unit_test(s3_delete_gives_up_when_it_never_passes),
	cmocka_unit_test(s3_delete_goes_one_by_one),
	cmocka_unit_test(s3_delete_escapes),
	cmocka_unit_test(s3_delete_in_pages),
};

static int set_up(void **state UNUSED)
{
	const struct httpd_options o = {.address = "127.0.0.1:0", .faces = faces, .n_faces = 1};
	struct http_policy policy = {0};
	struct err err = {0};

	client = http_client_new(&policy);
	return httpd_start(&o, &server, &err);
}

static int tear_down(void **state UNUSED)
{
	http_client_free(client);
	httpd_stop(server);
	buf_done(&mock.bodies);
	return 0;
}

UNIT_MAIN_IN(tests, set_up, tear_down)
