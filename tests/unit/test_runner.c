/* test_runner.c - whole jobs, by the real runner, against a server that only remembers. */
#include "runner_fixture.h"

#include <sys/wait.h>

static void runs_a_job(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p,
	     "\"echo hello from $BT_TRAINING_JOB_NAME; pwd\",\"echo oops >&2\",\"cd /; "
	     "X=1\",\"pwd; "
	     "echo X=$X\"",
	     "", "");
	x = run_whole(p);
	assert_log(p, "o hello from job-1\n", true);
	assert_log(p, "o /b10/workspace\n", true);
	assert_log(p, "e oops\n", true);
	assert_log(p, "o /\no X=1\n", true); /* one shell */
	assert_log(p, "s sandbox: bwrap overlay", true);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 0);
	assert_true(x.user_code_ran && x.synced && x.started_ms > 0 && x.ended_ms >= x.started_ms);
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
static const struct CMUnitTest tests[] = {
	T(runs_a_job),
};
RUNNER_MAIN(tests)
