/* test_engine_local.c - runners that live, die, were never there, or whose pid is somebody else's.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "core/wire.h"
#include "engine/engine.h"
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>

#define WAIT_MS 120000

static const atomic_bool go_on = false;

/* Stands in for our binary: `runner DIR` waits for a file `end`; `runner --sweep DIR` says so. */
static const char script[] = "#!/bin/sh\n"
			     "if [ \"$2\" = --sweep ]; then echo swept $4 >\"$3/swept\"\n"
			     "[ ! -e \"$3/exit\" ] || { printf '....no\\n'; exit $(cat "
			     "\"$3/exit\"); }; exit 0; fi\n"
			     "echo \"$STOKER_TOKEN\" >\"$2/token\"\n"
			     "i=0; while [ $i -lt 99 ]; do echo line $i of é; i=$((i+1)); done\n"
			     "while [ ! -e \"$2/end\" ]; do sleep 0.05; done\n";

#define DIR "runs/a1-0"

struct place {
	char home[64];
	char seen[200];
	char *dir, *program; /* dir: the runner's folder, as only this test may know it */
	struct arena *a;
	struct engine *e;
	struct engine_end end;
};

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};

	FMT(p->home, "/tmp/test_engine.XXXXXX");
	assert_non_null(mkdtemp(p->home));
	p->a = arena_new();
	p->dir = arena_printf(p->a, "%s/" DIR, p->home);
	assert_string_equal(engine_dir(p->a, "a1", 0), DIR);
	p->program = arena_printf(p->a, "%s/program", p->home);
	assert_ok(fs_write_atomic(AT_FDCWD, p->program, str_of(script), 0700, &err), &err);
	assert_ok(engine_open(&p->e, "local", p->home, &err), &err);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	engine_close(p->e);
	assert_ok(fs_remove_tree(AT_FDCWD, p->home, &err), &err);
	arena_free(p->a);
	free(p);
	return 0;
}

static struct str start_record(struct place *p, const char *url)
{
	AUTO_BUF struct buf out = BUF_INIT(1000);
	struct wire_start start = {.server = url, .token = "t", .attempt_id = "a1"};

	wire_start_write(&start, &out);
	return arena_str(p->a, buf_view(&out));
}

static char *launch(struct place *p)
{
	struct engine_launch l = {.attempt_id = "a1",
	                          .node = "n1",
	                          .dir = DIR,
	                          .program = p->program,
	                          .start = start_record(p, "http://old:1")};
	struct err err = {0};
	char *ref = NULL;

	assert_ok(engine_launch(p->e, &l, p->a, &ref, &err), &err);
	return ref;
}

static enum engine_status look(struct place *p, const char *ref)
{
	enum engine_status status = ENGINE_UNKNOWN;
	struct err err = {0};

	assert_ok(engine_probe(p->e, ref, DIR, &status, &err), &err);
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

static int end_it(struct place *p, const char *ref, bool last, struct err *err)
{
	p->end = (struct engine_end){.program = p->program, .cancel = &go_on, .last = last};
	return engine_kill(p->e, ref, DIR, &p->end, err);
}

static bool there(struct place *p, const char *name)
{
	return access(arena_printf(p->a, "%s/%s", p->dir, name), F_OK) == 0;
}

static void refuses(void **state)
{
	struct place *p = *state;
	struct engine *e = NULL;
	struct engine_launch l = {
		.attempt_id = "a1", .dir = DIR, .program = "/not/there", .start = STR_LIT("{}")};
	static const char *const no_folders[] = {"",        "runs",        "runs/", "runs/..",
	                                         "runs/.x", "runs/a1-0/x", "/runs", "runs/../x"};
	enum engine_status status;
	struct err err = {0};
	char *ref = NULL;

	assert_err(engine_open(&e, "cloud", "/tmp", &err), &err, ERR_INVALID, "cloud");
	assert_err(engine_launch(p->e, &l, p->a, &ref, &err), &err, ERR_NOT_FOUND, "/not/there");
	assert_err(engine_probe(p->e, "{\"pid\":\"x\"}", DIR, &status, &err), &err, ERR_CORRUPT,
	           "pid");
	assert_int_equal(status, ENGINE_UNKNOWN);
	for (size_t i = 0; i < COUNT(no_folders); i++) {
		err_clear(&err);
		assert_row(engine_release(p->e, no_folders[i], &err) < 0 && err.code == ERR_CORRUPT,
		           no_folders[i]);
	}
	assert_int_equal(access(p->program, F_OK), 0);
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
	assert_ok(end_it(p, ref, false, &err), &err);
	assert_ok(fs_read(AT_FDCWD, arena_printf(p->a, "%s/token", p->dir), &body, &err), &err);
	assert_null(strstr(buf_cstr(&body), "very-secret"));
}

static void kills_and_sweeps(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	char *ref = launch(p);

	assert_ok(end_it(p, ref, false, &err), &err);
	assert_int_equal(look(p, ref), ENGINE_GONE);
	assert_true(there(p, "swept"));
	assert_ok(end_it(p, ref, false, &err), &err); /* not there is success */
}

static void put(struct place *p, const char *name, const char *text)
{
	struct err err = {0};

	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(p->a, "%s/%s", p->dir, name), str_of(text),
	                          0600, &err),
	          &err);
}

static const char *get(struct place *p, const char *name)
{
	AUTO_BUF struct buf text = BUF_INIT(10000);
	struct err err = {0};

	assert_ok(fs_read(AT_FDCWD, arena_printf(p->a, "%s/%s", p->dir, name), &text, &err), &err);
	return arena_cstr(p->a, buf_cstr(&text));
}

static void tells_of_an_end(void **state)
{
	static const struct {
		const char *exit;
		enum err_code code;
		const char *words;
	} rows[] = {{"1", ERR_IO, "exit code 1: no"}, {"75", ERR_BUSY, "still being sent"}};
	struct place *p = *state;
	struct err err = {0};
	char *ref = launch(p);

	while (strstr(get(p, "runner.log"), "line 98 of") == NULL)
		clock_sleep_ms(10);
	assert_ok(end_it(p, ref, false, &err), &err);
	assert_string_equal(get(p, "swept"), "swept\n");
	for (size_t i = 0; i < COUNT(rows); i++) {
		put(p, "exit", rows[i].exit);
		err_clear(&err);
		assert_err(end_it(p, ref, true, &err), &err, rows[i].code, rows[i].words);
		assert_string_equal(get(p, "swept"), "swept last\n");
		/* whatever came of it */
		assert_true(strlen(p->end.words) > ENGINE_WORDS_MAX - 3);
		assert_true(str_ends(str_of(p->end.words), "line 97 of é\nline 98 of é"));
	}
	put(p, "exit", "76"); /* WIRE_SWEEP_REFUSED: swept, and why there is no record of its end */
	assert_ok(end_it(p, ref, true, &err), &err);
	assert_string_equal(p->end.refused, "no");
	p->end = (struct engine_end){.program = "/not/there", .cancel = &go_on, .past = true};
	assert_int_equal(unlink(arena_printf(p->a, "%s/exit", p->dir)), 0);
	assert_ok(engine_kill(p->e, ref, DIR, &p->end, &err), &err); /* by the runner's own */
	assert_string_equal(p->end.refused, "");
	assert_string_equal(get(p, "swept"), "swept past\n");
}

static void on_folder(void *arg, const char *dir)
{
	struct place *p = arg;

	FMT(p->seen, "%s%s ", arena_cstr(p->a, p->seen), dir);
}

static void keeps_folders(void **state)
{
	struct place *p = *state;
	struct wire_start start;
	struct err err = {0};
	char *ref = launch(p);

	for (int i = 0; i < 2; i++) { /* said again: nothing happens */
		assert_ok(engine_address(p->e, DIR, "http://new:2", &err), &err);
		assert_ok(wire_start_parse(&start, p->a, str_of(get(p, "launch.json")), &err),
		          &err);
		assert_string_equal(start.server, "http://new:2");
		assert_string_equal(start.token, "t");
	}
	assert_ok(end_it(p, ref, false, &err), &err);
	assert_int_equal(mkdir(arena_printf(p->a, "%s/runs/.probe", p->home), 0700), 0);
	assert_ok(engine_each(p->e, on_folder, p, &err), &err);
	assert_string_equal(p->seen, DIR " ");
	for (int i = 0; i < 2; i++) { /* not there is success */
		assert_ok(engine_release(p->e, DIR, &err), &err);
		assert_int_equal(access(p->dir, F_OK), -1);
		assert_ok(engine_address(p->e, DIR, "http://new:3", &err), &err);
	}
	assert_ok(end_it(p, ref, false, &err), &err);
	assert_string_equal(p->end.words, "");
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

/* A runner's own file names another process: that one lives. */
static void kills_no_stranger(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	struct proc_id id;
	pid_t stranger;
	char *ref = launch(p);

	assert_ok(end_it(p, ref, false, &err), &err);
	stranger = fork();
	assert_true(stranger >= 0);
	if (stranger == 0) {
		(void)pause();
		_exit(0);
	}
	assert_ok(proc_identify(stranger, &id, &err), &err);
	put(p, "runner.json",
	    arena_printf(p->a, "{\"pid\":%d,\"start\":%" PRIu64 ",\"boot\":\"%s\"}", (int)id.pid,
	                 id.start_ticks, id.boot));
	assert_ok(end_it(p, NULL, false, &err), &err);
	assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
	assert_int_equal(kill(stranger, SIGKILL), 0);
	assert_int_equal(waitpid(stranger, NULL, 0), stranger);
}

/* The server died before it could store the reference. */
static void finds_without_reference(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	char *ref = NULL;

	assert_int_equal(look(p, NULL), ENGINE_GONE); /* nobody asked for it */
	ref = launch(p);
	assert_int_equal(look(p, NULL), ENGINE_UNKNOWN); /* it is on its way */
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(p->a, "%s/runner.json", p->dir),
	                          str_of(ref), 0600, &err),
	          &err);
	assert_int_equal(look(p, NULL), ENGINE_RUNS);
	assert_ok(end_it(p, NULL, false, &err), &err);
	assert_int_equal(look(p, NULL), ENGINE_GONE);
	assert_int_equal(unlink(arena_printf(p->a, "%s/runner.json", p->dir)), 0);
	assert_int_equal(unlink(arena_printf(p->a, "%s/launch.json", p->dir)), 0);
	assert_int_equal(look(p, NULL), ENGINE_GONE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	T(refuses),           T(lives_and_ends),     T(passes_no_secrets),
	T(kills_and_sweeps),  T(tells_of_an_end),    T(keeps_folders),
	T(sees_kill_9),       T(reused_pid_is_gone), T(finds_without_reference),
	T(kills_no_stranger),
};
UNIT_MAIN(tests)
