/* test_credential.c - when one is fetched, and when it is not; what is said of a token that was
 * refused. */
#include "store/sources/credential.h"
#include "base/clock.h"

#include "unit.h"

#define NOW_MS INT64_C(1800000000000)
#define MINUTE_MS INT64_C(60000)

struct giver {
	unsigned magic;
#define GIVER_MAGIC 0x52564947U
	int64_t life_ms;
	enum err_code fails; /* what the next call says; ERR_NONE: it works */
	unsigned asked;
};

static int ask(void *of, const atomic_bool *cancel UNUSED, struct buf *text, int64_t *life_ms,
               struct err *err)
{
	struct giver *g = FROM_VOID(struct giver, of, GIVER_MAGIC);
	enum err_code fails = g->fails;

	g->asked++;
	buf_printf(text, "number %u", g->asked);
	*life_ms = g->life_ms;
	g->fails = ERR_NONE;
	return fails == ERR_NONE ? 0 : err_set(err, fails, "no");
}

static void has(struct credential *c, struct giver *g, int64_t at_ms, const char *want)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *text = NULL;
	struct err err = {0};

	clock_fake(NOW_MS + at_ms, at_ms);
	assert_ok(credential_text(c, ask, g, a, NULL, &text, &err), &err);
	assert_string_equal(text, want);
	clock_fake(-1, -1);
}

/* Each life, and when another one is had. */
static void credential_is_renewed(void **state UNUSED)
{
	static const struct {
		int64_t life_ms, until_ms;
	} rows[] = {
		{60 * MINUTE_MS, 55 * MINUTE_MS},
		{8 * MINUTE_MS, 4 * MINUTE_MS},
		{600 * MINUTE_MS, 55 * MINUTE_MS}, /* more than was asked for is not believed */
		{0, 0},
		{-MINUTE_MS, 0},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct giver g = {.magic = GIVER_MAGIC, .life_ms = rows[i].life_ms};
		struct credential c;

		credential_init(&c);
		has(&c, &g, MINUTE_MS, "number 1");
		if (rows[i].until_ms > 0)
			has(&c, &g, MINUTE_MS + rows[i].until_ms - 1, "number 1");
		has(&c, &g, MINUTE_MS + rows[i].until_ms, "number 2");
		credential_done(&c);
	}
}

static void credential_fails(void **state UNUSED)
{
	struct giver g = {.magic = GIVER_MAGIC, .life_ms = MINUTE_MS, .fails = ERR_SOURCE_DENIED};
	AUTO_ARENA struct arena *a = arena_new();
	const char *text = NULL;
	struct credential c;
	struct err err = {0};

	credential_init(&c);
	assert_err(credential_text(&c, ask, &g, a, NULL, &text, &err), &err, ERR_SOURCE_DENIED,
	           "no");
	assert_int_equal(g.asked, 1); /* a refusal stays one */
	assert_null(text);
	err_clear(&err);
	g.fails = ERR_UNAVAILABLE; /* an outage does not, and nothing of its reply is left */
	assert_ok(credential_text(&c, ask, &g, a, NULL, &text, &err), &err);
	assert_string_equal(text, "number 3");
	credential_done(&c);
}

static void identity_is_not_said_back(void **state UNUSED)
{
	static const char token[] =
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ2PTEifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ";
	const struct identity_token t = {.issuer = "https://s.example",
	                                 .subject = "v=1:org=stoker"};
	AUTO_FREE char *said = xasprintf("bad token %s, signed c2lnbmF0dXJlLXNpZ25hdHVyZQ", token);
	struct err err = {0};

	assert_int_equal(identity_refused(&t, "a.example", "the role r", str_of(said), &err), -1);
	identity_scrub(str_of(token), &err);
	assert_int_equal(err.id, ERR_SOURCE_DENIED);
	assert_null(strstr(err.msg, "c2lnbmF0"));
	assert_null(strstr(err.msg, "eyJ"));
	assert_non_null(strstr(err.msg, "the role r: bad token [redacted], signed [redacted]"));
	assert_non_null(strstr(err.msg, "issuer https://s.example, audience a.example, subject "
	                                "v=1:org=stoker:"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(credential_is_renewed),
	cmocka_unit_test(credential_fails),
	cmocka_unit_test(identity_is_not_said_back),
};
UNIT_MAIN(tests)
