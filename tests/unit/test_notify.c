/* test_notify.c - webhooks: what a secret must look like, how a message is signed, what a step puts
 * into the outbox, and what becomes of it when nobody answers. */
#include "server_fixture.h"

#include "server/control/webhook.h"

#define KEY "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define HOOK "https://127.0.0.1:9/hooks/t0ken-of-0ps"
#define NOTIFY "\"notify\":[{\"webhook\":\"ops\",\"on\":[\"running\",\"failed\",\"retrying\"]}]"

static const struct {
	const char *name, *value, *words;
} bad[] = {
	{"no URL", "s3cr3t-token", "https://"},
	{"another scheme", "ftp://h/x", "https://"},
	{"plain http", "http://h/x", "--allow-source-network"},
	{"a short key", "https://h/x\n123456789012345", "from 16 to"},
	{"no base64", "https://h/x\nwhsec_!!!!!!!!!!!!!!!!!!!!!!", "not base64"},
	{"short base64", "https://h/x\nwhsec_AAAA", "from 16 to"},
	{"three lines", "https://h/x\n0123456789abcdef\nmore", "two lines"},
};

static void what_is_no_webhook(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(bad); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct webhook w;
		struct err err = {0};

		assert_row(webhook_parse(a, str_of(bad[i].value), false, &w, &err) < 0,
		           bad[i].name);
		if (strstr(err.msg, bad[i].words) == NULL || strstr(err.msg, "s3cr3t") != NULL)
			fail_msg("row \"%s\": %s", bad[i].name, err.msg);
	}
}

/* The example that https://www.standardwebhooks.com publishes. */
static void signs_as_others_do(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(1000);
	struct webhook w;
	struct err err = {0};

	assert_ok(webhook_parse(a, STR_LIT(" https://h/x \r\n" KEY "\r\n"), false, &w, &err), &err);
	assert_string_equal(w.url, "https://h/x");
	webhook_sign(&w, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
	             STR_LIT("{\"test\": 2432232314}"), &out);
	assert_string_equal(buf_cstr(&out), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	webhook_done(&w);
	buf_clear(&out);
	assert_ok(webhook_parse(a, STR_LIT("http://h/x"), true, &w, &err), &err);
	webhook_sign(&w, "msg_x", 1, STR_LIT("{}"), &out);
	assert_int_equal(out.n, 0); /* no key, no signature */
}

static void set_secret(struct fixture *f, const char *name, const char *value)
{
	struct model_secret s = {0};

	assert_ok(secret_ops.set(ADMIN(f), NULL, name, str_of(value), &s, &f->err), &f->err);
}

static size_t due(struct fixture *f, int64_t now_ms, struct model_delivery **out)
{
	struct meta_webhook w = {f->project.team_id, "ops"};
	size_t n = 0;

	assert_ok(meta_deliveries(f->app->meta, f->a, &w, now_ms, 100, out, &n, &f->err), &f->err);
	return n;
}

/* A pass, and all that it began. */
static void pass(struct fixture *f)
{
	int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;

	notify_pass(f->app);
	while (keyed_executor_busy(f->app->deliveries, NULL) && clock_mono_ms() < until)
		clock_sleep_ms(5);
}

static const char *last_event(struct fixture *f, const char *job, size_t *count)
{
	struct model_event *e = NULL;
	const char *last = "";
	size_t n = 0;

	*count = 0;
	assert_ok(meta_events(f->app->meta, f->a, job, 0, &e, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(e[i].kind, "notify") != 0)
			continue;
		last = e[i].message;
		(*count)++;
	}
	return last;
}

static void a_push_needs_its_webhooks(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};

	assert_err(fixture_push(f, "", NOTIFY, &j), &f->err, ERR_SECRET_NOT_SET, "ops");
	set_secret(f, "ops", "nonsense-s3cr3t");
	assert_err(fixture_push(f, "", NOTIFY, &j), &f->err, ERR_INVALID,
	           "notify[0].webhook: secret \"ops\"");
	set_secret(f, "ops", HOOK);
	assert_ok(fixture_push(f, "", NOTIFY, &j), &f->err);
}

static void the_outbox_is_written_with_the_step(void **state)
{
	struct fixture *f = *state;
	struct model_delivery *t = NULL;
	struct model_job j = {0};
	const struct doc *d = NULL;
	struct principal *w;
	char iso[CLOCK_ISO_CAP];

	set_secret(f, "ops", HOOK "\n" KEY);
	set_secret(f, "hf", "hf_0123456789abcdef");
	w = fixture_running(f, ",\"environment_variables\":{\"HF_TOKEN\":{\"secret\":\"hf\"}}",
	                    NOTIFY ",\"name\":\"uses hf_0123456789abcdef\"", &j);
	assert_int_equal(due(f, INT64_MAX, &t), 1);
	assert_string_equal(t[0].event, "running");
	fixture_exit(f, w, JOB_END_EXIT, 3);
	fixture_restart(f);
	assert_int_equal(due(f, INT64_MAX, &t), 2);
	assert_string_equal(t[1].event, "failed");
	assert_string_not_equal(t[0].id, t[1].id);
	assert_ok(js_parse(f->a, str_of(t[1].body), &d, &f->err), &f->err);
	assert_string_equal(doc_cstr(doc_get(d, "type"), ""), "job.failed");
	assert_non_null(strstr(doc_cstr(doc_get(d, "text"), ""), "job failed: exit code 3"));
	assert_string_equal(doc_cstr(doc_path(d, "data", "current_status", NULL), ""),
	                    "TRAINING_JOB_FAILED");
	assert_string_equal(doc_cstr(doc_path(d, "data", "end", "kind", NULL), ""), "exit");
	assert_int_equal(doc_int(doc_path(d, "data", "end", "code", NULL), 0), 3);
	j = fixture_job(f, j.id);
	assert_int_equal(j.ended_ms - j.started_ms, 2000);
	clock_iso(j.started_ms, iso);
	assert_string_equal(doc_cstr(doc_path(d, "data", "started_at", NULL), ""), iso);
	clock_iso(j.ended_ms, iso);
	assert_string_equal(doc_cstr(doc_path(d, "data", "ended_at", NULL), ""), iso);
	assert_string_equal(doc_cstr(doc_path(d, "data", "name", NULL), ""), "uses [redacted]");
	assert_null(strstr(t[1].body, "hf_0123"));
}

/* A completed job is none of the words: nothing is stored, nothing is told. */
static void what_was_not_asked_for_is_not_told(void **state)
{
	struct fixture *f = *state;
	struct model_delivery *t = NULL;
	struct model_job j = {0};
	struct principal *w;

	set_secret(f, "ops", HOOK);
	w = fixture_running(f, "", "\"notify\":[{\"webhook\":\"ops\",\"on\":[\"failed\"]}]", &j);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	fixture_await(f, j.id, JOB_COMPLETED);
	assert_int_equal(due(f, INT64_MAX, &t), 0);
}

static void a_try_that_fails_is_due_again_and_given_up(void **state)
{
	struct fixture *f = *state;
	struct model_delivery *t = NULL;
	struct model_job j = {0};
	int64_t now;
	size_t events = 0;
	const char *said;

	set_secret(f, "ops", HOOK); /* loopback: the guard refuses it */
	(void)fixture_running(f, "", NOTIFY, &j);
	now = clock_wall_ms();
	pass(f);
	said = last_event(f, j.id, &events);
	assert_int_equal(events, 1);
	assert_non_null(strstr(said, "webhook ops failed: running: "));
	assert_non_null(strstr(said, "internal network"));
	assert_null(strstr(said, "t0ken"));
	assert_int_equal(due(f, now, &t), 0);
	assert_int_equal(due(f, INT64_MAX, &t), 1);
	assert_int_equal(t[0].tries, 1);
	assert_true(t[0].due_ms >= now + NOTIFY_PAUSE_MS / 2);
	for (uint32_t i = 1; i + 1 < NOTIFY_TRIES_MAX; i++) /* as if they had failed, too */
		assert_ok(meta_delivery_tried(f->app->meta, &t[0], 1, NULL, &f->err), &f->err);
	pass(f);
	said = last_event(f, j.id, &events);
	assert_int_equal(events, 2);
	assert_non_null(strstr(said, "after 12 attempts: running: "));
	assert_int_equal(due(f, INT64_MAX, &t), 0);
}

/* Whoever removes the secret is heard of, and the notice waits for another one. */
static void a_secret_that_is_gone(void **state)
{
	struct fixture *f = *state;
	struct model_delivery *t = NULL;
	struct model_job j = {0};
	size_t events = 0;

	set_secret(f, "ops", HOOK);
	(void)fixture_running(f, "", NOTIFY, &j);
	assert_ok(secret_ops.remove(ADMIN(f), NULL, "ops", &f->err), &f->err);
	pass(f);
	assert_non_null(strstr(last_event(f, j.id, &events), "secret \"ops\" is not set"));
	assert_int_equal(due(f, INT64_MAX, &t), 1);
}

static void a_removed_job_is_told_of_all_the_same(void **state)
{
	struct fixture *f = *state;
	struct model_delivery *t = NULL;
	struct model_job j = {0};
	struct principal *w;

	set_secret(f, "ops", HOOK);
	w = fixture_running(f, "", "\"notify\":[{\"webhook\":\"ops\"}]", &j);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	fixture_await(f, j.id, JOB_COMPLETED);
	assert_ok(meta_job_del(f->app->meta, j.id, &f->err), &f->err);
	pass(f);
	assert_int_equal(due(f, INT64_MAX, &t), 1);
	assert_int_equal(t[0].tries, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_webhook),
		cmocka_unit_test(signs_as_others_do),
		FIXTURE_TEST(a_push_needs_its_webhooks),
		FIXTURE_TEST(the_outbox_is_written_with_the_step),
		FIXTURE_TEST(what_was_not_asked_for_is_not_told),
		FIXTURE_TEST(a_try_that_fails_is_due_again_and_given_up),
		FIXTURE_TEST(a_secret_that_is_gone),
		FIXTURE_TEST(a_removed_job_is_told_of_all_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
