/* test_idle.c - core/idle.h: what is work, when it is said, and when it is over. */
#include "unit.h"

#include "core/idle.h"

/* A limit of 100; each row is one look. */
static const struct {
	int64_t now_ms, worked_ms;
	bool busy;
	enum idle_news news;
} looks[] = {
	{1010, 0, false, IDLE_NOTHING},    {1049, 0, false, IDLE_NOTHING},
	{1050, 0, false, IDLE_HALF},       {1060, 0, false, IDLE_NOTHING}, /* said once */
	{1070, 1065, false, IDLE_NOTHING}, /* a byte was printed: from the start */
	{1114, 1065, false, IDLE_NOTHING}, {1115, 1065, false, IDLE_HALF},
	{1130, 1065, true, IDLE_NOTHING}, /* a GPU works */
	{1180, 1065, false, IDLE_HALF},    {1229, 1065, false, IDLE_NOTHING},
	{1230, 1065, false, IDLE_WHOLE},   {1300, 1065, false, IDLE_NOTHING},
	{1310, 1305, false, IDLE_WORKS},   {1320, 1305, false, IDLE_NOTHING},
	{1500, 1305, false, IDLE_HALF}, /* the machine slept: people are warned all the same */
	{1501, 1305, false, IDLE_WHOLE},   {1510, 1305, false, IDLE_NOTHING},
	{1520, 1305, true, IDLE_WORKS},
};

static void looks_one_by_one(void **state UNUSED)
{
	struct idle i;

	idle_begin(&i, 100, 1000);
	for (size_t k = 0; k < COUNT(looks); k++) {
		enum idle_news news =
			idle_look(&i, looks[k].busy, looks[k].worked_ms, looks[k].now_ms);

		if (news != looks[k].news)
			fail_msg("look %zu: %d", k, (int)news);
		assert_int_equal(i.whole,
		                 news == IDLE_WHOLE || (news == IDLE_NOTHING &&
		                                        i.since_ms + 100 <= looks[k].now_ms));
	}
}

static void nobody_asks(void **state UNUSED)
{
	struct idle i;

	idle_begin(&i, 0, 1000);
	assert_int_equal(idle_look(&i, false, 0, INT64_MAX), IDLE_NOTHING);
	assert_false(i.whole);
}

/* Work from before the job counts no more than its start. */
static void the_clock_starts_with_the_job(void **state UNUSED)
{
	struct idle i;

	idle_begin(&i, 100, 1000);
	assert_int_equal(idle_look(&i, false, 5, 1049), IDLE_NOTHING);
	assert_int_equal(idle_look(&i, false, 5, 1050), IDLE_HALF);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(looks_one_by_one),
	cmocka_unit_test(nobody_asks),
	cmocka_unit_test(the_clock_starts_with_the_job),
};
UNIT_MAIN(tests)
