/* test_harvest.c - the end of a harvest, of which other threads hear later than we. */
#include "run/harvest.h"
#include "run/report.h"
#include "unit.h"

#include "base/fs.h"

static bool no_hurry(void *arg UNUSED)
{
	return false;
}

/* What ships checkpoints goes on while the last harvest is made, and after it. */
static void soon_after_the_end(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	char dir[] = "/tmp/test_harvest.XXXXXX";
	const struct wire_start start = {
		.server = "http://127.0.0.1:9", .token = "t", .attempt_id = "att1"};
	const struct wire_launch launch = {.job_id = "job1", .compile = {.repo = "team1/kernels"}};
	struct harvest_options o = {.launch = &launch, .hurries = no_hurry};
	struct harvest *h = NULL;
	struct err err = {0};

	assert_non_null(mkdtemp(dir));
	o.dir = o.spool = dir;
	assert_ok(report_open(&o.report, &start, dir, &err), &err);
	assert_ok(logs_open(&o.logs, arena_printf(a, "%s/log", dir), NULL, &err), &err);
	assert_ok(harvest_start(&h, &o, &err), &err);
	harvest_soon(h);
	harvest_finish(h, true);
	harvest_soon(h);
	harvest_close(h);
	logs_close(o.logs);
	report_close(o.report);
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(soon_after_the_end),
};
UNIT_MAIN(tests)
