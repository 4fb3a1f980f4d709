/* test_moments.c - core/notify.h: which steps of a job are moments that somebody may be told of. */
#include "unit.h"

#include "core/notify.h"

static const struct {
	enum job_state from, to;
	const char *word; /* NULL: nobody is told */
} steps[] = {
	{JOB_PENDING, JOB_CREATED, NULL},
	{JOB_CREATED, JOB_DEPLOYING, NULL},
	{JOB_DEPLOYING, JOB_STOPPING_DEPLOYING, NULL},
	{JOB_RUNNING, JOB_STOPPING, NULL},
	{JOB_STOPPING, JOB_STOPPING, NULL},
	{JOB_STOPPING_DEPLOYING, JOB_STOPPING_DEPLOYING, NULL},
	{JOB_DEPLOYING, JOB_RUNNING, "running"},
	{JOB_CREATED, JOB_PENDING, "retrying"},
	{JOB_RUNNING, JOB_PENDING, "retrying"},
	{JOB_RUNNING, JOB_COMPLETED, "completed"},
	{JOB_RUNNING, JOB_FAILED, "failed"},
	{JOB_PENDING, JOB_DEPLOY_FAILED, "deploy_failed"},
	{JOB_PENDING, JOB_STOPPED, "stopped"},
	{JOB_STOPPING, JOB_STOPPED, "stopped"},
};

static void steps_are_moments(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(steps); i++) {
		enum notify_on on = notify_of_step(steps[i].from, steps[i].to);
		const char *word = on < NOTIFY_COUNT ? notify_words[on] : NULL;

		if (word != steps[i].word &&
		    (word == NULL || steps[i].word == NULL || strcmp(word, steps[i].word) != 0))
			fail_msg("row %zu: %s", i, word != NULL ? word : "nothing");
	}
}

/* Every final state is a moment, and one that is told when no words are given. */
static void every_end_is_told(void **state UNUSED)
{
	for (enum job_state s = 0; s < JOB_STATE_COUNT; s++) {
		enum notify_on on = notify_of_step(JOB_RUNNING, s);

		assert_int_equal(notify_asks(NOTIFY_DEFAULT, on), job_state_is_final(s));
	}
	assert_false(notify_asks(UINT32_MAX, NOTIFY_COUNT));
}

static void a_failure_before_user_code_is_one(void **state UNUSED)
{
	assert_true(notify_asks(1U << NOTIFY_FAILED, NOTIFY_DEPLOY_FAILED));
	assert_false(notify_asks(1U << NOTIFY_DEPLOY_FAILED, NOTIFY_FAILED));
	assert_false(notify_asks(1U << NOTIFY_RUNNING, NOTIFY_COMPLETED));
}

static void words(void **state UNUSED)
{
	for (enum notify_on on = 0; on < NOTIFY_COUNT; on++)
		assert_int_equal(notify_parse(str_of(notify_words[on])), on);
	assert_int_equal(notify_parse(STR_LIT("")), NOTIFY_COUNT);
	assert_int_equal(notify_parse(STR_LIT("Failed")), NOTIFY_COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_moments),
		cmocka_unit_test(every_end_is_told),
		cmocka_unit_test(a_failure_before_user_code_is_one),
		cmocka_unit_test(words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
