/* test_engine_local.c - runners that live, die, were never there, or whose pid is somebody else's.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "engine/engine.h"
#include "unit.h"

#include <signal.h>

#define WAIT_MS 120000

static const atomic_bool go_on = false;

/* Stands in for our binary: `runner DIR` waits for a file `end`; `runner --sweep DIR` says so. */
static const char script[] = "#!/bin/sh\n"
			     "if [ \"$2\" = --sweep ]; then echo swept >\"$3/swept\"; exit 0; fi\n"
			     "echo \"$STOKER_TOKEN\" >\"$2/token\"\n"
			     "while [ ! -e \"$2/end\" ]; do sleep 0.05; done\n";

struct place {
	char dir[64];
	char *program;
	struct arena *a;
	struct engine *e;
};

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};

	FMT(p->dir, "/tmp/test_engine.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->a = arena_new();
	p->program = arena_printf(p->a, "%s/program", p->dir);
	assert_ok(fs_write_atomic(AT_FDCWD, p->program, str_of(script), 0700, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(p->a, "%s/launch.json", p->dir),
	                          STR_LIT("{}"), 0600, &err),
	          &err);
	assert_ok(engine_open(&p->e, "local", "", &err), &err);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	engine_close(p->e);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	arena_free(p->a);
	free(p);
	return 0;
}

static char *launch(struct place *p)
{
	struct engine_launch l = {
		.attempt_id = "a1", .node = "n1", .dir = p->dir, .program = p->program};
	struct err err = {0};
	char *ref = NULL;

	assert_ok(engine_launch(p->e, &l, p->a, &ref, &err), &err);
	return ref;
}

static enum engine_status look(struct place *p, const char *ref)
{
	enum engine_status status = ENGINE_UNKNOWN;
	struct err err = {0};

	assert_ok(engine_probe(p->e, ref, p->dir, &status, &err), &err);
	return status;
}

static void wait_for_end(struct place *p, const char *ref)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; look(p, ref) == ENGINE_RUNS;) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(20);
	}
	assert_int_equal(look(p, ref), ENGINE_GONE);
}

static bool there(struct place *p, const char *name)
{
	return access(arena_printf(p->a, "%s/%s", p->dir, name), F_OK) == 0;
}

static void refuses(void **state)
{
	struct place *p = *state;
	struct engine *e = NULL;
	struct engine_launch l = {.attempt_id = "a1", .dir = p->dir, .program = "/not/there"};
	enum engine_status status;
	struct err err = {0};
	char *ref = NULL;

	assert_err(engine_open(&e, "cloud", "", &err), &err, ERR_INVALID, "cloud");
	assert_err(engine_launch(p->e, &l, p->a, &ref, &err), &err, ERR_NOT_FOUND, "/not/there");
	assert_err(engine_probe(p->e, "{\"pid\":\"x\"}", p->dir, &status, &err), &err, ERR_CORRUPT,
	           "pid");
	assert_int_equal(status, ENGINE_UNKNOWN);
}

static void lives_and_ends(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	char *ref = launch(p);

	assert_int_equal(look(p, ref), ENGINE_RUNS);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(p->a, "%s/end", p->dir), STR_LIT(""), 0600,
	                          &err),
	          &err);
	wait_for_end(p, ref);
}

static void passes_no_secrets(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf body = BUF_INIT(100);
	struct err err = {0};
	char *ref = NULL;

	assert_int_equal(setenv("STOKER_TOKEN", "very-secret", 1), 0);
	ref = launch(p);
	for (int64_t until = clock_mono_ms() + WAIT_MS; !there(p, "token");) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(20);
	}
	assert_ok(engine_kill(p->e, ref, p->dir, &go_on, &err), &err);
	assert_ok(fs_read(AT_FDCWD, arena_printf(p->a, "%s/token", p->dir), &body, &err), &err);
	assert_null(strstr(buf_cstr(&body), "very-secret"));
}

static void kills_and_sweeps(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	char *ref = launch(p);

	assert_ok(engine_kill(p->e, ref, p->dir, &go_on, &err), &err);
	assert_int_equal(look(p, ref), ENGINE_GONE);
	assert_true(there(p, "swept"));
	assert_ok(engine_kill(p->e, ref, p->dir, &go_on, &err), &err); /* not there is success */
}

static void sees_kill_9(void **state)
{
	struct place *p = *state;
	char *ref = launch(p);
	const struct doc *d = NULL;
	struct err err = {0};

	assert_ok(js_parse(p->a, str_of(ref), &d, &err), &err);
	assert_int_equal(kill((pid_t)doc_int(doc_get(d, "pid"), 0), SIGKILL), 0);
	wait_for_end(p, ref);
}

/* The pid lives, but started at another time or before the last boot: it is somebody else. */
static void reused_pid_is_gone(void **state)
{
	struct place *p = *state;
	struct proc_id me;
	struct err err = {0};

	assert_ok(proc_identify(getpid(), &me, &err), &err);
	assert_int_equal(
		look(p, arena_printf(p->a, "{\"pid\":%d,\"start\":%" PRIu64 ",\"boot\":\"%s\"}",
	                             (int)me.pid, me.start_ticks, me.boot)),
		ENGINE_RUNS);
	assert_int_equal(
		look(p, arena_printf(p->a, "{\"pid\":%d,\"start\":%" PRIu64 ",\"boot\":\"%s\"}",
	                             (int)me.pid, me.start_ticks + 1, me.boot)),
		ENGINE_GONE);
	assert_int_equal(
		look(p,
	             arena_printf(p->a, "{\"pid\":%d,\"start\":%" PRIu64 ",\"boot\":\"another\"}",
	                          (int)me.pid, me.start_ticks)),
		ENGINE_GONE);
}

/* The server died before it could store the reference. */
static void finds_without_reference(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	char *ref = NULL;

	assert_int_equal(look(p, NULL), ENGINE_UNKNOWN); /* launch.json is fresh: on its way? */
	ref = launch(p);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(p->a, "%s/runner.json", p->dir),
	                          str_of(ref), 0600, &err),
	          &err);
	assert_int_equal(look(p, NULL), ENGINE_RUNS);
	assert_ok(engine_kill(p->e, NULL, p->dir, &go_on, &err), &err);
	assert_int_equal(look(p, NULL), ENGINE_GONE);
	assert_int_equal(unlink(arena_printf(p->a, "%s/runner.json", p->dir)), 0);
	assert_int_equal(unlink(arena_printf(p->a, "%s/launch.json", p->dir)), 0);
	assert_int_equal(look(p, NULL), ENGINE_GONE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	T(refuses),     T(lives_and_ends),     T(passes_no_secrets),       T(kills_and_sweeps),
	T(sees_kill_9), T(reused_pid_is_gone), T(finds_without_reference),
};
UNIT_MAIN(tests)
