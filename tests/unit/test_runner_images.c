/* test_runner_images.c - jobs that name an image, by podman. */
#include "runner_fixture.h"

#include "run/cgroup.h"
#include "run/image_keeper.h"

/* An image made of this machine's own shell and tools. */
static bool have_image(struct place *p)
{
	static const char script[] =
		"set -e; podman image exists stoker-unit:1 && exit 0; D=$(mktemp -d); cd $D; mkdir "
		"-p bin app tmp root usr; echo mark >app/mark; for t in dash cat head id ls sleep "
		"cp "
		"tail; do cp $(command -v $t) bin/; for l in $(ldd $(command -v $t) | grep -o "
		"'/[^ )]*'); do mkdir -p .$(dirname $l); cp -n $l .$l; done; done; ln -s dash "
		"bin/sh; "
		"tar -cf $D.tar .; podman import --change 'WORKDIR /app' --change 'ENV "
		"FROM_IMAGE=yes' "
		"$D.tar stoker-unit:1; rm -rf $D $D.tar";
	const char *argv[] = {"sh", "-c", script, NULL};
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	struct err err = {0};
	char found[4096];
	int code = 0;

	if (proc_find("podman", found) == NULL)
		return false; /* as on machines without it */
	assert_ok(proc_run(argv, (struct str){0}, 2 * WAIT_MS, &out, &code, &err), &err);
	if (code != 0)
		fail_msg("making an image: %s", buf_cstr(&out));
	p->launch.spec_json = NULL;
	return true;
}

static void image_spec(struct place *p, const char *image, const char *commands, const char *memory)
{
	p->launch.spec_json = arena_printf(
		p->a,
		"{\"image\":{\"base_image\":\"%s\"},\"compute\":{\"cpu_count\":1,\"memory\":"
		"\"%s\"},\"runtime\":{\"start_commands\":[%s]},\"enable_baseten_workdir\":true}",
		image, memory, commands);
}

static void no_container_is_left(struct place *p)
{
	char name[128];
	const char *argv[] = {"podman", "ps", "-a", "--format", "{{.Names}}", NULL};
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 16);
	struct err err = {0};
	int code = 0;

	cgroup_name(below(p, "runs"), "att1", 0, name);
	assert_ok(proc_run(argv, (struct str){0}, WAIT_MS, &out, &code, &err), &err);
	if (out.n > 0 && strstr(buf_cstr(&out), name) != NULL)
		fail_msg("left: %s", buf_cstr(&out));
}

static void unknown_image_is_refused_with_advice(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	if (!have_image(p))
		return;
	image_spec(p, "localhost/no-such-image:9", "\"echo ran\"", "512Mi");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "sandbox");
	assert_non_null(strstr(x.detail, "podman import"));
}

/* The job was resolved to an image of this machine that is gone: its name is no substitute. */
static void a_name_does_not_stand_in_for_an_image(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	if (!have_image(p))
		return;
	image_spec(p, "localhost/stoker-unit:1", "\"echo ran\"", "512Mi");
	p->launch.has_image = true;
	p->launch.image.id = "1111111111111111111111111111111111111111111111111111111111111111";
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.error_id, "image_not_found");
}

static void runs_an_image(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	if (!have_image(p))
		return;
	put_weights(p, false);
	put_env(p, "TOKEN", SECRET, true);
	image_spec(
		p, "localhost/stoker-unit:1",
		"\"pwd; cat mark; echo $FROM_IMAGE; ls -d /work /srv 2>/dev/null; echo $TOKEN; cat "
		"/models/b/sub/model.bin; { echo x >/models/b/f; } 2>/dev/null || echo read-only; "
		"echo s "
		">$BT_SCRATCH_DIR/x && echo scratch\",\"(exit 4)\"",
		"512Mi");
	x = run_whole(p);
	assert_log(p, "o /b10/workspace\no mark\no yes\no [redacted]\no weights!\n", true);
	assert_log(p, "o read-only\no scratch\n", true);
	assert_log(p, "s sandbox: podman", true);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 4);
	assert_string_equal(x.detail, "start_commands[1] \"(exit 4)\"");
	no_container_is_left(p);
}

/* The end of a job is told at once, and its container killed: all that it printed is with us. */
static void nothing_printed_is_lost(void **state)
{
	struct place *p = *state;

	if (!have_image(p))
		return;
	image_spec(p, "localhost/stoker-unit:1",
	           "\"i=0; while [ $i -lt 15000 ]; do i=$((i + 1)); echo line $i; done; "
	           "echo aside >&2; printf last\"",
	           "512Mi");
	assert_int_equal(run_whole(p).code, 0);
	assert_log(p, "o line 15000\n", true);
	assert_log(p, "e aside\n", true);
	assert_log(p, "o last\n", true);
}

static void stops_a_container(void **state)
{
	struct place *p = *state;

	if (!have_image(p))
		return;
	image_spec(p, "localhost/stoker-unit:1", "\"echo up; sleep 887.5; echo after\"", "512Mi");
	launch(p, NULL);
	wait_log(p, "o up");
	stop_job(p, false);
	assert_int_equal(join(p), 0);
	assert_int_equal(exit_of(p).end, JOB_END_STOPPED);
	assert_log(p, "after", false);
	no_container_is_left(p);
}

static void containers_know_out_of_memory(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	if (!have_image(p) || geteuid() != 0)
		return;
	image_spec(p, "localhost/stoker-unit:1",
	           "\"head -c 300000000 /dev/zero | tail -c 250000000\"", "64Mi");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_OOM);
}

static void a_killed_runner_takes_its_container(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 16);
	AUTO_FREE char *self = realpath("/proc/self/exe", NULL);
	const char *sweep[] = {self, "runner", "--sweep", p->attempt, NULL};
	struct err err = {0};
	int code = 0;

	if (!have_image(p))
		return;
	image_spec(p, "localhost/stoker-unit:1", "\"echo up; sleep 888.5\"", "512Mi");
	launch(p, NULL);
	wait_log(p, "o up");
	assert_int_equal(kill(p->runner.pid, SIGKILL), 0);
	(void)join(p);
	wait_gone("888.5");
	assert_ok(proc_run(sweep, (struct str){0}, WAIT_MS, &out, &code, &err), &err);
	if (code != 0)
		fail_msg("%s", buf_cstr(&out));
	no_container_is_left(p);
}

static void old_kernels_are_known(void **state UNUSED)
{
	static const struct {
		const char *release;
		bool may;
	} rows[] = {
		{"5.15.0-91-generic", false},
		{"5.18.19", false},
		{"4.19.0", false},
		{"unknown", false},
		{"5.19.0-50-generic", true},
		{"6.1.0-56-cloud-amd64", true},
		{"10.0", true},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *why = image_keeper_kernel(rows[i].release);

		if ((why == NULL) != rows[i].may)
			fail_msg("%s: %s", rows[i].release, why);
		if (why != NULL)
			assert_non_null(strstr(why, "from 5.19 on"));
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
static const struct CMUnitTest tests[] = {
	T(unknown_image_is_refused_with_advice),
	T(a_name_does_not_stand_in_for_an_image),
	T(runs_an_image),
	T(nothing_printed_is_lost),
	T(stops_a_container),
	T(containers_know_out_of_memory),
	T(a_killed_runner_takes_its_container),
	cmocka_unit_test(old_kernels_are_known),
};
RUNNER_MAIN(tests)
