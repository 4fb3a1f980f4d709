/* test_logs.c - log pages as the stock client asks for them, raw followers, metrics. */
#include "fake_ops.h"

#include <pthread.h>

static const struct face_ops ops = {FAKE_OPS};

#define J "/v1/training_projects/proj001/jobs/job0001"
#define MS ((int64_t)1000000)
#define DAY ((int64_t)86400 * 1000)

static uint64_t seq;
static int64_t last_ns;

static void say(struct app *f, uint32_t rank, int64_t ms, const char *text)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);
	uint64_t next, from = rank == 0 ? seq : 0;

	logline_write(&b, ms * MS, &last_ns, 'o', str_of(text), false);
	assert_ok(joblogs_append(f->ctx.logs, "job0001", "at1", rank, from, buf_view(&b), false,
	                         &next, &f->err),
	          &f->err);
	if (rank == 0)
		seq = next;
}

static void start(struct app *f)
{
	seq = 0;
	last_ns = 0;
	fake_start(f, &ops);
}

static void test_refuses(void **state)
{
	static const struct {
		enum http_method method;
		const char *path, *body, *words;
	} rows[] = {
		{HTTP_POST, J "/logs", "{\"limit\":0}", "not between"},
		{HTTP_POST, J "/logs", "{\"limit\":\"5\"}", "limit: expected a whole number"},
		{HTTP_POST, J "/logs", "{\"direction\":\"up\"}", "neither asc nor desc"},
		{HTTP_POST, J "/logs", "{\"min_level\":\"LOUD\"}", "min_level"},
		{HTTP_POST, J "/logs", "{\"start_epoch_millis\":-1}", "not between"},
		{HTTP_POST, J "/logs", "{\"end_epoch_millis\":9223372036854775807}", "not between"},
		{HTTP_GET, J "/logs?limit=x", "", "parameter limit"},
		{HTTP_GET, J "/logs?limit=", "", "parameter limit"},
		{HTTP_GET, J "/logs/raw?rank=-1", "", "parameter rank"},
		{HTTP_GET, J "/logs/raw?wait_ms=99999999", "", "parameter wait_ms"},
		{HTTP_POST, J "/metrics", "{\"step_seconds\":0}", "not between"},
		{HTTP_GET, J "/metrics?from=x", "", "parameter from"},
	};
	struct app f;

	(void)state;
	start(&f);
	for (size_t i = 0; i < COUNT(rows); i++)
		fake_refused(&f, rows[i].method, rows[i].path, rows[i].body, 400, rows[i].words);
	fake_refused(&f, HTTP_POST, "/v1/training_projects/x/jobs/job0001/logs", "{}", 404,
	             "no job");
	fake_stop(&f);
}

static void test_item(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	start(&f);
	say(&f, 0, T0, "10%\r20%\x1b[2K\a done");
	last_ns = 0;
	say(&f, 1, T0 + 1, "other");
	d = fake_ok(&f, HTTP_POST, J "/logs", "{\"direction\":\"asc\"}");
	assert_int_equal(at(d, "logs")->count, 2);
	assert_text(d, "logs.0.timestamp", arena_printf(f.a, "%" PRId64, T0 * MS));
	assert_text(d, "logs.0.message", "20% done");
	assert_text(d, "logs.0.replica", "0");
	assert_text(d, "logs.1.replica", "1");
	assert_true(doc_is(at(d, "logs.0.level"), DOC_NULL));
	d = fake_ok(&f, HTTP_GET, J "/logs?min_level=INFO", "");
	assert_int_equal(at(d, "logs")->count, 0); /* what has no level is below every one */
	fake_stop(&f);
}

/* Tail: the first call has only an end, and wants everything, the newest first. */
static void test_tail(void **state)
{
	struct app f;
	const struct doc *d;
	int64_t now = clock_wall_ms();

	(void)state;
	start(&f);
	say(&f, 0, T0, "old");
	say(&f, 0, now - 1000, "fresh");
	say(&f, 0, now + 240000, "by a clock ahead");
	d = fake_ok(&f, HTTP_POST, J "/logs",
	            arena_printf(f.a, "{\"end_epoch_millis\":%" PRId64 "}", now + 60000));
	assert_int_equal(at(d, "logs")->count,
	                 3); /* an end near now is now: the client's clock may be behind */
	assert_text(d, "logs.0.message", "by a clock ahead");
	assert_text(d, "logs.2.message", "old");
	d = fake_ok(&f, HTTP_POST, J "/logs",
	            arena_printf(f.a,
	                         "{\"start_epoch_millis\":%" PRId64 ",\"end_epoch_millis\":%" PRId64
	                         "}",
	                         now - 60000, now + 60000));
	assert_int_equal(at(d, "logs")->count, 2);
	d = fake_ok(&f, HTTP_POST, J "/logs",
	            arena_printf(f.a, "{\"end_epoch_millis\":%" PRId64 "}", T0 + DAY));
	assert_int_equal(at(d, "logs")->count, 1);
	d = fake_ok(&f, HTTP_POST, J "/logs", "");
	assert_int_equal(at(d, "logs")->count, 3);
	fake_stop(&f);
}

/* What `truss train logs` does: windows of two hours upwards, until one is empty. */
static void test_walk_upwards(void **state)
{
	struct app f;
	int64_t from = T0, total = 0;

	(void)state;
	start(&f);
	say(&f, 0, T0, "created");
	for (int i = 0; i < 2500;
	     i++) /* after a silence of a day, 1250 lines in each of two milliseconds */
		say(&f, 0, T0 + DAY + i / 1250, "line");
	for (int pages = 0; pages < 20; pages++) {
		const struct doc *d = fake_ok(&f, HTTP_POST, J "/logs",
		                              arena_printf(f.a,
		                                           "{\"start_epoch_millis\":%" PRId64
		                                           ",\"end_epoch_millis\":%" PRId64
		                                           ",\"limit\":1000,\"direction\":\"asc\"}",
		                                           from, from + 7200000));
		const struct doc *list = at(d, "logs"), *last = NULL;
		int64_t ns = 0;

		if (list->count == 0)
			break;
		DOC_EACH (item, list) {
			last = item;
		}
		assert_ok(str_i64(doc_text(doc_get(last, "timestamp")), 0, INT64_MAX, &ns, &f.err),
		          &f.err);
		total += (int64_t)list->count;
		from = ns / MS + 1;
	}
	assert_int_equal(total, 2501);
	fake_stop(&f);
}

static const char *header(const struct got *g, const char *name)
{
	for (size_t i = 0; i < g->reply.n_headers; i++)
		if (str_ieq(str_of(g->reply.headers[i].name), name))
			return g->reply.headers[i].value;
	return "";
}

static void *speak_later(void *arg)
{
	struct app *f = arg;

	clock_sleep_ms(100);
	/* news of the job that are no line: the follower goes on waiting */
	httpd_notify(f->httpd, httpd_channel(CHANNEL_JOB, STR_LIT("job0001")));
	clock_sleep_ms(100);
	say(f, 0, T0 + 5, "woken");
	httpd_notify(f->httpd, httpd_channel(CHANNEL_JOB, STR_LIT("job0001")));
	return NULL;
}

static void test_raw(void **state)
{
	struct app f;
	struct got g;
	pthread_t t;
	char path[200];

	(void)state;
	start(&f);
	g = fake_call(&f, HTTP_GET, J "/logs/raw", "");
	assert_int_equal(g.status, 200);
	assert_int_equal(g.text.n, 0);
	assert_string_equal(header(&g, "X-Stoker-Next-Offset"), "0");
	assert_string_equal(header(&g, "X-Stoker-Final"), "false");
	assert_string_equal(header(&g, "X-Stoker-Ranks"), "1");
	assert_string_equal(header(&g, "X-Stoker-Job-Status"), "TRAINING_JOB_RUNNING");
	say(&f, 0, T0, "one\rtwo");
	say(&f, 0, T0 + 1, "three");
	g = fake_call(&f, HTTP_GET, J "/logs/raw?tail=1", "");
	assert_true(str_ends(g.text, " o three\n") && memmem(g.text.p, g.text.n, "one", 3) == NULL);
	g = fake_call(&f, HTTP_GET, J "/logs/raw?offset=0&wait_ms=30000", "");
	assert_non_null(memmem(g.text.p, g.text.n, "one\rtwo\n", 8));
	FMT(path, J "/logs/raw?offset=%s&wait_ms=30000", header(&g, "X-Stoker-Next-Offset"));
	assert_int_equal(pthread_create(&t, NULL, speak_later, &f), 0);
	g = fake_call(&f, HTTP_GET, path, "");
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(str_ends(g.text, " o woken\n"));
	FMT(path, J "/logs/raw?offset=%s&wait_ms=50", header(&g, "X-Stoker-Next-Offset"));
	g = fake_call(&f, HTTP_GET, path, "");
	assert_int_equal(g.text.n, 0);
	assert_string_equal(header(&g, "X-Stoker-Final"), "false");
	f.job[0].core.state = JOB_FAILED;
	g = fake_call(&f, HTTP_GET, J "/logs/raw?offset=0&max=1", "");
	assert_string_equal(header(&g, "X-Stoker-Final"), g.text.n == seq ? "true" : "false");
	FMT(path, J "/logs/raw?offset=%" PRIu64 "&wait_ms=30000", seq);
	g = fake_call(&f, HTTP_GET, path, ""); /* nothing more comes: does not wait */
	assert_string_equal(header(&g, "X-Stoker-Final"), "true");
	fake_stop(&f);
}

static void sample(struct app *f, uint32_t rank, int64_t ms, double cores, bool gpu)
{
	AUTO_BUF struct buf b = BUF_INIT(10000);
	struct wire_sample s = {.wall_ms = ms,
	                        .cpu_cores = cores,
	                        .memory_bytes = 5,
	                        .memory_limit = 10,
	                        .scratch_bytes = 1,
	                        .scratch_total = 4,
	                        .cache_bytes = 3,
	                        .cache_quota = rank == 0 ? 6 : 0};
	struct js js;

	if (gpu) {
		s.gpu[0].index = 2;
		s.gpu[0].utilization = 0.5;
		s.gpu[0].memory_bytes = 7;
		s.n_gpus = 1;
	}
	js_init(&js, &b);
	wire_sample_write(&s, &js);
	assert_ok(joblogs_add_sample(f->ctx.logs, "job0001", rank, buf_view(&b), &f->err), &f->err);
}

static void test_metrics(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	start(&f);
	d = fake_ok(&f, HTTP_POST, J "/metrics", "{}");
	assert_int_equal(at(d, "per_node_metrics")->count, 0); /* "waiting" */
	assert_true(doc_is(at(d, "cache"), DOC_NULL));
	assert_text(d, "training_job.id", "job0001");
	f.job[0].node_count = 2;
	for (int i = 0; i < 20; i++) {
		sample(&f, 0, T0 + i * 1000, i, true);
		sample(&f, 1, T0 + i * 1000, 1.5, false);
	}
	d = fake_ok(&f, HTTP_POST, J "/metrics", "{}");
	assert_int_equal(at(d, "per_node_metrics")->count, 2);
	assert_int_equal(at(d, "per_node_metrics.0.metrics.cpu_usage")->count, 20);
	assert_true(doc_real(at(d, "per_node_metrics.0.metrics.cpu_usage.19.value"), 0) > 18.9);
	assert_text(d, "per_node_metrics.0.metrics.cpu_usage.0.timestamp",
	            "2026-09-21T14:13:20.000Z");
	assert_true(doc_real(at(d, "per_node_metrics.0.metrics.gpu_utilization.2.0.value"), 0) <
	            0.6);
	assert_int_equal(
		doc_int(at(d, "per_node_metrics.0.metrics.gpu_memory_usage_bytes.2.0.value"), 0),
		7);
	assert_int_equal(at(d, "per_node_metrics.1.metrics.gpu_utilization")->count, 0);
	assert_true(
		doc_real(at(d, "per_node_metrics.1.metrics.ephemeral_storage.utilization.0.value"),
	                 0) < 0.26);
	assert_int_equal(at(d, "cpu_memory_usage_bytes")->count, 20); /* the leader's on top */
	assert_true(doc_real(at(d, "cache.utilization.19.value"), 0) > 0.49);
	d = fake_ok(&f, HTTP_GET, J "/metrics?from=1790000005000&to=1790000009000", "");
	assert_int_equal(at(d, "cpu_usage")->count, 5);
	d = fake_ok(&f, HTTP_POST, J "/metrics", "{\"step_seconds\":5}");
	assert_int_equal(at(d, "cpu_usage")->count, 4);
	assert_true(doc_real(at(d, "cpu_usage.3.value"), 0) > 18.9); /* the newest one is there */
	fake_stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses), cmocka_unit_test(test_item),
	cmocka_unit_test(test_tail),    cmocka_unit_test(test_walk_upwards),
	cmocka_unit_test(test_raw),     cmocka_unit_test(test_metrics),
};

UNIT_MAIN(tests)
