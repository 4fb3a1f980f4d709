/* test_job.c - paths through the states, then every state with every event. */
#include "unit.h"

#include "core/job.h"

/* clang-format off */
static const struct {
	const char *name;
	enum job_event ev[8];
	size_t n;
	enum job_state want;
} paths[] = {
	{"could never be placed", {JOB_EV_EXIT_BAD}, 1, JOB_DEPLOY_FAILED},
	{"stop while pending", {JOB_EV_STOP}, 1, JOB_STOPPED},
	{"stop while mirroring", {JOB_EV_PLACE, JOB_EV_STOP}, 2, JOB_STOPPED},
	{"source is gone", {JOB_EV_PLACE, JOB_EV_EXIT_BAD}, 2, JOB_DEPLOY_FAILED},
	{"its place goes while mirroring",
	 {JOB_EV_PLACE, JOB_EV_UNPLACE, JOB_EV_PLACE, JOB_EV_UNPLACE, JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_UNPLACE},
	 7, JOB_PENDING},
	{"node goes while mirroring", {JOB_EV_PLACE, JOB_EV_LOST}, 2, JOB_PENDING},
	{"bad image", {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_EXIT_BAD}, 3, JOB_DEPLOY_FAILED},
	{"bad exit", {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_EXIT_BAD}, 4, JOB_FAILED},
	{"stop waits for the runners",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_STOP}, 4, JOB_STOPPING},
	{"stop while deploying", {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_STOP}, 3, JOB_STOPPING_DEPLOYING},
	{"stopped, ready late, exits well",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_STOP, JOB_EV_READY, JOB_EV_EXIT_OK}, 5, JOB_STOPPED},
	{"stopped, then lost",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_STOP, JOB_EV_LOST}, 5, JOB_STOPPED},
	{"a stop beats the retry rule",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_STOP, JOB_EV_RETRY}, 5, JOB_STOPPED},
	{"a lost attempt waits again", {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_LOST}, 3, JOB_PENDING},
	{"lost twice",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_LOST, JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_LOST}, 6,
	 JOB_DEPLOY_FAILED},
	{"retried, then out of attempts",
	 {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_RETRY, JOB_EV_PLACE, JOB_EV_RESOLVE,
	  JOB_EV_READY, JOB_EV_RETRY}, 8, JOB_FAILED},
	{"runs to the end", {JOB_EV_PLACE, JOB_EV_RESOLVE, JOB_EV_READY, JOB_EV_EXIT_OK}, 4, JOB_COMPLETED},
};
/* clang-format on */

static void job_paths(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(paths); i++) {
		struct job_core j = {.attempt_max = 2};
		struct err err = {0};

		for (size_t k = 0; k < paths[i].n; k++)
			assert_ok(job_step(&j, paths[i].ev[k], (int64_t)k, &err), &err);
		assert_row(j.state == paths[i].want, paths[i].name);
	}
}

/* A final state is never left, a refused event changes nothing, and its words name both. */
static void job_every_state_and_event(void **state UNUSED)
{
	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		for (unsigned e = 0; e < JOB_EVENT_COUNT; e++) {
			bool placed = job_state_is_placed((enum job_state)s);
			struct job_core j = {
				.state = (enum job_state)s, .attempt = placed, .attempt_max = 2};
			struct job_core old = j;
			struct err err = {0};

			if (job_step(&j, (enum job_event)e, 100, &err) == 0) {
				assert_false(job_state_is_final(old.state));
				assert_true(j.changed_ms == (j.state != old.state ? 100 : 0));
			} else {
				assert_int_equal(err.code, ERR_CONFLICT);
				assert_non_null(strstr(err.msg, job_state_word(old.state)));
				assert_memory_equal(&j, &old, sizeof(j));
			}
		}
	}
}

static void job_words_are_unique_and_come_back(void **state UNUSED)
{
	struct err err = {0};
	enum job_state st;
	enum job_end end;

	assert_err(job_state_parse(STR_LIT("TRAINING_JOB_RUNNING"), &st, &err), &err, ERR_CORRUPT,
	           "RUNNING");
	assert_err(job_end_parse(STR_LIT(""), &end, &err), &err, ERR_CORRUPT, "not an end");
	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		assert_ok(job_state_parse(str_of(job_state_word((enum job_state)s)), &st, &err),
		          &err);
		assert_int_equal(st, s);
	}
	for (unsigned e = 0; e < JOB_END_COUNT; e++) {
		assert_ok(job_end_parse(str_of(job_end_word((enum job_end)e)), &end, &err), &err);
		assert_int_equal(end, e);
	}
}

static void job_statuses_of_clients(void **state UNUSED)
{
	bool known;

	assert_int_equal(job_states_of_status(STR_LIT("TRAINING_JOB_SLEEPING"), &known), 0);
	assert_false(known);
	assert_int_equal(job_states_of_status(STR_LIT(""), &known), 0);
	assert_false(known);
	assert_int_equal(job_states_of_status(STR_LIT("TRAINING_JOB_QUEUED"), &known), 0);
	assert_true(known);
	assert_int_equal(job_states_of_status(STR_LIT("TRAINING_JOB_RUNNING"), &known),
	                 1U << JOB_RUNNING | 1U << JOB_STOPPING);
	assert_true(known);
	assert_int_equal(job_states_of_status(STR_LIT("deploying"), &known),
	                 1U << JOB_DEPLOYING | 1U << JOB_STOPPING_DEPLOYING);
}

static void job_ends_in_words(void **state UNUSED)
{
	char out[60];

	job_end_describe(JOB_END_EXIT, 3, NULL, out, sizeof(out));
	assert_string_equal(out, "exit code 3");
	job_end_describe(JOB_END_EXIT, 3, "start_commands[1]", out, sizeof(out));
	assert_string_equal(out, "exit code 3: start_commands[1]");
	job_end_describe(JOB_END_SIGNAL, 11, NULL, out, sizeof(out));
	assert_string_equal(out, "killed by SIGSEGV");
	job_end_describe(JOB_END_SIGNAL, 99, NULL, out, sizeof(out));
	assert_string_equal(out, "killed by signal 99");
	job_end_describe(JOB_END_OOM, 0, "64.0 of 64.0 GiB", out, sizeof(out));
	assert_string_equal(out, "out of memory: 64.0 of 64.0 GiB");
	job_end_describe(JOB_END_IDLE, 1800, "start_commands[0] \"x\"", out, sizeof(out));
	assert_string_equal(out, "idle GPUs for 30m 0s: start_commands[0] \"x\"");
	job_end_describe(JOB_END_OOM, 0, "64.0 of 64.0 GiB", out, 8);
	assert_string_equal(out, "out of ");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(job_paths),
	cmocka_unit_test(job_every_state_and_event),
	cmocka_unit_test(job_words_are_unique_and_come_back),
	cmocka_unit_test(job_statuses_of_clients),
	cmocka_unit_test(job_ends_in_words),
};
UNIT_MAIN(tests)
