/* test_runner_idle.c - limits.idle_gpu, by the real runner and an NVML of two GPUs: the first one
 * is used to 37 %, the second one not at all. */
#include "runner_fixture.h"

#define BUSY "GPU-11111111-aaaa"
#define IDLE "GPU-22222222-bbbb"

/* A job with these GPUs; `measured`: the runner finds the library. */
static void gpu_job(struct place *p, const char *command, const char *limits, bool measured,
                    const char *first, const char *second)
{
	const char *library = getenv("NVML_FAKE");
	const char *dir = below(p, "nvml");

	assert_non_null(library);
	(void)unsetenv("LD_LIBRARY_PATH");
	if (measured) {
		assert_int_equal(mkdir(dir, 0700), 0);
		assert_int_equal(symlink(library, below(p, "nvml/libnvidia-ml.so.1")), 0);
		assert_int_equal(setenv("LD_LIBRARY_PATH", dir, 1), 0);
	}
	p->launch.gpus = ARENA_ARRAY(p->a, struct wire_gpu, 2);
	p->launch.gpus[0] = (struct wire_gpu){0, first};
	p->launch.gpus[1] = (struct wire_gpu){1, second};
	p->launch.n_gpus = second != NULL ? 2 : 1;
	p->launch.spec_json = arena_printf(
		p->a,
		"{\"image\":{},\"compute\":{\"cpu_count\":1,\"memory\":\"512Mi\",\"accelerator\":"
		"\"H100:%zu\"},\"runtime\":{\"start_commands\":[\"%s\"]},"
		"\"enable_baseten_workdir\":true,\"limits\":{%s}}",
		p->launch.n_gpus, command, limits);
}

static void nothing_is_done(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	gpu_job(p, "echo begun; sleep 7791", "\"idle_gpu\":\"2s\",\"stop_grace\":\"1s\"", true,
	        IDLE, NULL);
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_IDLE);
	assert_int_equal(x.code, 2);
	assert_string_equal(x.detail, "start_commands[0] \"echo begun; sleep 7791\"");
	assert_true(x.user_code_ran);
	assert_non_null(strstr(p->events, "warning: GPUs idle for 1s: all below 5%"));
	assert_log(
		p,
		"s GPUs idle for 1s: all below 5%, and no output; the job will be stopped after 2s",
		true);
	assert_log(p, "s idle_gpu reached: SIGTERM", true);
	wait_gone("sleep 7791");
}

/* One that works is enough. */
static void a_gpu_that_works_is_no_hang(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	gpu_job(p, "sleep 3", "\"idle_gpu\":\"1s\"", true, IDLE, BUSY);
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 0);
	assert_null(strstr(p->events, "idle"));
}

static void what_is_not_known_is_work(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	gpu_job(p, "sleep 3", "\"idle_gpu\":\"1s\"", false, IDLE, NULL);
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 0);
	assert_non_null(strstr(p->events, "warning: limits.idle_gpu:"));
	assert_null(strstr(p->events, "GPUs idle"));
}

/* A node that waits for the others is no hang: the server says when all of them do nothing. */
static void the_other_nodes_work(void **state)
{
	struct place *p = *state;
	bool idle = false;

	gpu_job(p, "sleep 7792", "\"idle_gpu\":\"1s\",\"stop_grace\":\"1s\"", true, IDLE, NULL);
	p->others_work = true;
	launch(p, NULL);
	for (int64_t until = clock_mono_ms() + WAIT_MS; !idle && clock_mono_ms() < until;) {
		clock_sleep_ms(30);
		(void)pthread_mutex_lock(&p->lock);
		idle = p->idle && p->heartbeats > 3;
		assert_false(p->ended);
		(void)pthread_mutex_unlock(&p->lock);
	}
	assert_true(idle);
	assert_log(p, "idle_gpu reached", false);
	p->others_work = false;
	(void)pthread_mutex_lock(&p->lock);
	change_desired(p);
	assert_int_equal(join(p), 0);
	assert_int_equal(exit_of(p).end, JOB_END_IDLE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
static const struct CMUnitTest tests[] = {
	T(nothing_is_done),
	T(a_gpu_that_works_is_no_hang),
	T(what_is_not_known_is_work),
	T(the_other_nodes_work),
};
RUNNER_MAIN(tests)
