/* test_deployment.c - how many jobs a deployment should have, which of them go, and its state. */
#include "core/model.h"
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

/* Jobs, the newest first: what is counted of them, what follows, and which of them go. */
#define CURRENT .revision = 2
#define OLD .revision = 1
#define SERVES .state = JOB_RUNNING, .here = true, .heard = true, .serves = true, .served = true
#define STARTS .state = JOB_DEPLOYING, .here = true
#define LOADS .state = JOB_RUNNING, .here = true, .heard = true
#define FALLEN                                                                                     \
	.state = JOB_RUNNING, .here = true, .heard = true, .served = true /* does not answer now   \
	                                                                   */
#define UNHEARD .state = JOB_RUNNING, .here = true
#define WAITS .state = JOB_PENDING
#define ENDS .state = JOB_STOPPING, .here = true, .heard = true, .served = true
#define REMOTELY .state = JOB_RUNNING /* on another machine */
#define MANY 4

#define STAYS DEPLOYMENT_STAYS
#define UNDONE DEPLOYMENT_UNDONE
#define ROLLED DEPLOYMENT_ROLLED
#define REMOTE DEPLOYMENT_REMOTE

static const struct {
	const char *what;
	struct deployment_facts wants;
	struct model_replica r[MANY];
	size_t n;
	struct deployment_step step;
	enum deployment_state state;
	enum deployment_fate fate[MANY];
} fates[] = {
	{"none", {RUNS(2)}, {{0}}, 0, {.start = 2}, DEPLOYMENT_CREATED, {STAYS}},
	{"one waits, one ends",
         {RUNS(2)},
         {{CURRENT, WAITS}, {CURRENT, ENDS}},
         2,
         {.start = 1},
         DEPLOYMENT_CREATED,
         {STAYS, STAYS}},
	{"too many: the newest of those that do not serve",
         {RUNS(2)},
         {{CURRENT, SERVES}, {CURRENT, LOADS}, {CURRENT, WAITS}, {CURRENT, SERVES}},
         4,
         {.stop = 2},
         DEPLOYMENT_READY,
         {STAYS, UNDONE, UNDONE, STAYS}},
	{"too many: all serve",
         {RUNS(1)},
         {{CURRENT, SERVES}, {CURRENT, SERVES}},
         2,
         {.stop = 1},
         DEPLOYMENT_READY,
         {UNDONE, STAYS}},
	{"a roll, half done: what is not in place goes",
         {RUNS(2)},
         {{CURRENT, SERVES}, {CURRENT, LOADS}, {OLD, STARTS}, {OLD, SERVES}},
         4,
         {.stop_old_absent = true},
         DEPLOYMENT_READY,
         {STAYS, STAYS, ROLLED, STAYS}},
	{"a roll: one that fell silent has its place",
         {RUNS(1)},
         {{CURRENT, STARTS}, {OLD, FALLEN}},
         2,
         {0},
         DEPLOYMENT_STARTING,
         {STAYS, STAYS}},
	{"a roll is done",
         {RUNS(1)},
         {{CURRENT, SERVES}, {OLD, SERVES}, {OLD, FALLEN}, {OLD, ENDS}},
         4,
         {.stop_old = true, .stop_old_absent = false},
         DEPLOYMENT_READY,
         {STAYS, ROLLED, ROLLED, STAYS}},
	{"the server has just started",
         {RUNS(1)},
         {{CURRENT, UNHEARD}, {OLD, UNHEARD}},
         2,
         {0},
         DEPLOYMENT_STARTING,
         {STAYS, STAYS}},
	{"after a takeover those elsewhere go, and count for nothing",
         {RUNS(2)},
         {{CURRENT, SERVES}, {CURRENT, REMOTELY}, {OLD, REMOTELY}, {CURRENT, WAITS}},
         4,
         {0},
         DEPLOYMENT_READY,
         {STAYS, REMOTE, REMOTE, STAYS}},
	{"stopped: all go but those that do",
         {.wanted = DEPLOYMENT_STOP, .replicas = 1},
         {{CURRENT, SERVES}, {CURRENT, ENDS}, {OLD, WAITS}, {CURRENT, REMOTELY}},
         4,
         {.stop = 1, .stop_old = true},
         DEPLOYMENT_STOPPED,
         {UNDONE, STAYS, ROLLED, REMOTE}},
	{"the one asked last says how long it is idle",
         {RUNS(2), .idle_most_ms = 100},
         {{CURRENT, SERVES, .idle_ms = 100}, {CURRENT, SERVES, .idle_ms = 99}},
         2,
         {0},
         DEPLOYMENT_READY,
         {STAYS, STAYS}},
	{"idle; one that ends is not asked",
         {RUNS(2), .idle_most_ms = 100},
         {{CURRENT, SERVES, .idle_ms = 100}, {CURRENT, LOADS}, {CURRENT, ENDS, .in_flight = 1}},
         3,
         {.sleep = true},
         DEPLOYMENT_READY,
         {STAYS, STAYS, STAYS}},
};

static void jobs(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(fates); i++) {
		struct deployment_facts f = fates[i].wants;
		enum deployment_fate fate[MANY] = {0};
		struct deployment_step s;

		deployment_count(&f, 2, fates[i].r, fates[i].n);
		s = deployment_step(&f);
		assert_row(s.start == fates[i].step.start, fates[i].what);
		assert_row(s.stop == fates[i].step.stop, fates[i].what);
		assert_row(s.stop_old == fates[i].step.stop_old, fates[i].what);
		assert_row(s.stop_old || s.stop_old_absent == fates[i].step.stop_old_absent,
		           fates[i].what);
		assert_row(s.sleep == fates[i].step.sleep, fates[i].what);
		assert_row(deployment_state(&f) == fates[i].state, fates[i].what);
		deployment_choose(&s, 2, fates[i].r, fates[i].n, fate);
		for (size_t k = 0; k < fates[i].n; k++)
			assert_row(fate[k] == fates[i].fate[k], fates[i].what);
	}
}

/* Of every state of three jobs: those that stay are as many as there should be once, and nothing
 * that is asked for is undone at the same moment. */
static void any_three(void **state UNUSED)
{
	static const struct model_replica kinds[] = {
		{CURRENT, SERVES}, {CURRENT, STARTS}, {CURRENT, LOADS},   {CURRENT, FALLEN},
		{CURRENT, WAITS},  {CURRENT, ENDS},   {CURRENT, UNHEARD}, {CURRENT, REMOTELY},
		{OLD, SERVES},     {OLD, STARTS},     {OLD, LOADS},       {OLD, FALLEN},
		{OLD, WAITS},      {OLD, ENDS},       {OLD, UNHEARD},     {OLD, REMOTELY}};
	const size_t n = COUNT(kinds);

	for (size_t i = 0; i < n * n * n * 2 * 2; i++) {
		const struct model_replica r[] = {kinds[i % n], kinds[i / n % n],
		                                  kinds[i / n / n % n]};
		struct deployment_facts f = {.wanted = DEPLOYMENT_RUN,
		                             .replicas = 1 + (uint32_t)(i / n / n / n % 2),
		                             .replace = i / n / n / n / 2 == 1};
		size_t current = 0, ready = 0, was_ready = 0;
		enum deployment_fate fate[3];
		struct deployment_step s;

		deployment_count(&f, 2, r, 3);
		s = deployment_step(&f);
		deployment_choose(&s, 2, r, 3, fate);
		for (size_t k = 0; k < 3; k++) {
			bool goes_on = fate[k] == STAYS && r[k].state != JOB_STOPPING;

			current += goes_on && r[k].revision == 2;
			ready += goes_on && r[k].serves;
			was_ready += r[k].serves;
		}
		assert_int_equal(current + s.start, f.replicas);
		/* who takes requests is there for as long as it is needed */
		if (was_ready > 0 && !f.replace)
			assert_true(ready > 0);
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

static const struct CMUnitTest tests[] = {cmocka_unit_test(steps), cmocka_unit_test(jobs),
                                          cmocka_unit_test(any_three), cmocka_unit_test(words)};
UNIT_MAIN(tests)
