/* test_deployment.c - how many jobs a deployment should have, which of them go, and its state. */
#include "core/deployment.h"
#include "unit.h"

#define RUNS(n) .wanted = DEPLOYMENT_RUN, .replicas = (n)

static const struct {
	const char *what;
	struct deployment_facts f;
	struct deployment_step step;
	enum deployment_state state;
} rows[] = {
	{"new", {RUNS(2)}, {.start = 2}, DEPLOYMENT_CREATED},
	{"one waits", {RUNS(2), .current = 1}, {.start = 1}, DEPLOYMENT_CREATED},
	{"one starts", {RUNS(1), .current = 1, .current_placed = 1}, {0}, DEPLOYMENT_STARTING},
	{"serves",
         {RUNS(1), .current = 1, .current_placed = 1, .current_ready = 1},
         {0},
         DEPLOYMENT_READY},
	{"too many",
         {RUNS(1), .current = 3, .current_placed = 3, .current_ready = 3},
         {.stop = 2},
         DEPLOYMENT_READY},
	{"a failed one is not replaced",
         {RUNS(2), .current = 1, .current_placed = 1, .current_ready = 1, .failed = 1},
         {0},
         DEPLOYMENT_READY},
	{"all have failed", {RUNS(1), .failed = 1}, {0}, DEPLOYMENT_FAILED},
	{"more have failed than there should be", {RUNS(1), .failed = 3}, {0}, DEPLOYMENT_FAILED},
	/* the next revision */
	{"is not ready: the old one stays",
         {RUNS(1), .current = 1, .current_placed = 1, .old = 1, .old_ready = 1, .old_in_place = 1},
         {0},
         DEPLOYMENT_READY},
	{"is ready: the old one goes",
         {RUNS(1), .current = 1, .current_placed = 1, .current_ready = 1, .old = 1, .old_ready = 1,
          .old_in_place = 1},
         {.stop_old = true},
         DEPLOYMENT_READY},
	{"is ready by half: the old ones stay",
         {RUNS(2), .current = 2, .current_placed = 2, .current_ready = 1, .old = 2, .old_ready = 2,
          .old_in_place = 2},
         {0},
         DEPLOYMENT_READY},
	{"is ready but for those that failed",
         {RUNS(2), .current = 1, .current_placed = 1, .current_ready = 1, .failed = 1, .old = 2,
          .old_ready = 2, .old_in_place = 2},
         {.stop_old = true},
         DEPLOYMENT_READY},
	{"has failed: the old one answers",
         {RUNS(1), .failed = 1, .old = 1, .old_ready = 1, .old_in_place = 1},
         {0},
         DEPLOYMENT_READY},
	{"an old one that is not ready goes",
         {RUNS(1), .current = 1, .old = 2, .old_ready = 1, .old_in_place = 1},
         {.stop_old_absent = true},
         DEPLOYMENT_READY},
	{"old ones of which the server, just started, has not heard stay",
         {RUNS(1), .current = 1, .current_placed = 1, .old = 1, .old_in_place = 1},
         {0},
         DEPLOYMENT_STARTING},
	{"has failed: an old one that starts again stays",
         {RUNS(1), .failed = 1, .old = 1},
         {0},
         DEPLOYMENT_CREATED},
	{"has failed, and the old one is not heard of yet",
         {RUNS(1), .failed = 1, .old = 1, .old_in_place = 1},
         {0},
         DEPLOYMENT_STARTING},
	{"there is no room for both",
         {RUNS(1), .replace = true, .current = 1, .old = 1, .old_ready = 1, .old_in_place = 1},
         {.stop_old = true},
         DEPLOYMENT_READY},
	/* people, and nobody */
	{"stopped",
         {.wanted = DEPLOYMENT_STOP, .replicas = 2, .current = 2, .old = 1},
         {.stop = 2, .stop_old = true},
         DEPLOYMENT_STOPPED},
	{"idle",
         {RUNS(1), .current = 1, .current_placed = 1, .current_ready = 1, .idle_ms = 1000,
          .idle_most_ms = 1000},
         {.sleep = true},
         DEPLOYMENT_READY},
	{"not long enough",
         {RUNS(1), .current = 1, .current_placed = 1, .current_ready = 1, .idle_ms = 999,
          .idle_most_ms = 1000},
         {0},
         DEPLOYMENT_READY},
	{"a request is on its way",
         {RUNS(1), .current = 1, .current_placed = 1, .current_ready = 1, .in_flight = 1,
          .idle_ms = 1000, .idle_most_ms = 1000},
         {0},
         DEPLOYMENT_READY},
	{"one that starts is not idle",
         {RUNS(1), .current = 1, .current_placed = 1, .idle_ms = INT64_MAX, .idle_most_ms = 1},
         {0},
         DEPLOYMENT_STARTING},
	{"asleep",
         {.wanted = DEPLOYMENT_SLEEP, .replicas = 1, .current = 1},
         {.stop = 1},
         DEPLOYMENT_SCALED_TO_ZERO},
};

static void steps(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct deployment_step s = deployment_step(&rows[i].f), w = rows[i].step;

		if (s.start != w.start || s.stop != w.stop || s.stop_old != w.stop_old ||
		    s.stop_old_absent != w.stop_old_absent || s.sleep != w.sleep)
			fail_msg("%s: start %zu, stop %zu, old %d, old absent %d, sleep %d",
			         rows[i].what, s.start, s.stop, s.stop_old, s.stop_old_absent,
			         s.sleep);
		if (deployment_state(&rows[i].f) != rows[i].state)
			fail_msg("%s: %s", rows[i].what,
			         deployment_state_word[deployment_state(&rows[i].f)]);
	}
}

static void words(void **state UNUSED)
{
	enum deployment_wanted wanted = DEPLOYMENT_RUN;

	for (int i = 0; i < DEPLOYMENT_WANTED_COUNT; i++) {
		assert_true(deployment_wanted_parse(str_of(deployment_wanted_word[i]), &wanted));
		assert_int_equal(wanted, i);
	}
	assert_false(deployment_wanted_parse(STR_LIT("runs"), &wanted));
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(steps), cmocka_unit_test(words)};
UNIT_MAIN(tests)
