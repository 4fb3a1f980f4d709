/* test_runner.c - whole jobs, by the real runner, against a server that only remembers. */
#include "runner_fixture.h"

static void refused_claim_runs_nothing(void **state)
{
	struct place *p = *state;

	spec(p, "\"echo ran\"", "", "");
	p->refuse_claim = true;
	launch(p, NULL);
	assert_int_equal(join(p), RUNNER_EXIT_NOT_OURS);
	assert_false(p->ended);
	assert_true(access(below(p, "runs/att1-0/log"), F_OK) < 0);
}

static void stops_at_the_first_failure(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"echo one\",\"(exit 3)\",\"echo three\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 3);
	assert_string_equal(x.detail, "start_commands[1] \"(exit 3)\"");
	assert_log(p, "o one\n", true);
	assert_log(p, "three\n", false);
}

static void broken_command_is_a_failure(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"if then fi\",\"echo after\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_true(x.code != 0);
	assert_log(p, "o after\n", false);
}

static void runs_in_one_shell(void **state)
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
	assert_log(p, "o /\no X=1\n", true);
	assert_log(p, "s sandbox: bwrap overlay", true);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 0);
	assert_true(x.user_code_ran && x.synced && x.started_ms > 0 && x.ended_ms >= x.started_ms);
}

/* Each row of a table gets a place that is new. */
static struct place *place_of_row(void **state, size_t row)
{
	if (row > 0) {
		assert_int_equal(place_tear_down(state), 0);
		assert_int_equal(place_set_up(state), 0);
	}
	return *state;
}

/* Their shell may be gone before its last line, or change its mind at its exit. */
static void ends_as_its_commands_say(void **state)
{
	static const struct {
		const char *commands;
		enum job_end end;
		int code;
	} rows[] = {
		{"\"exec sh -c 'exit 6'\",\"echo never\"", JOB_END_EXIT, 6},
		{"\"exit 0\",\"echo never\"", JOB_END_EXIT, 0},
		{"\"exec sh -c 'kill -9 $$'\",\"echo never\"", JOB_END_SIGNAL, 9},
		{"\"kill -9 $$\",\"echo never\"", JOB_END_SIGNAL, 9},
		{"\"trap 'echo bye; exit 0' EXIT; (exit 3)\",\"echo never\"", JOB_END_EXIT, 3},
		{"\"trap 'exit 5' EXIT\",\"true\"", JOB_END_EXIT, 0},
		{"\"trap 'n=4' USR1; kill -USR1 0; sleep 0.1\",\"exit $n\"", JOB_END_EXIT, 4},
		{"\"export p=$$; exec sh -c '[ $p = $$ ]'\"", JOB_END_EXIT, 0},
		{"\"exec no-such-program\"", JOB_END_EXIT, 127},
		/* it stops what waits for it */
		{"\"kill -STOP $PPID; exit 2\"", JOB_END_EXIT, 2},
		{"\"kill -STOP $PPID\",\"exec sh -c 'kill -9 $$'\"", JOB_END_SIGNAL, 9},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct place *p = place_of_row(state, i);
		struct wire_exit x;

		spec(p, rows[i].commands, "", "");
		x = run_whole(p);
		if (x.end != rows[i].end || x.code != rows[i].code)
			fail_msg("%s: %d, %d", rows[i].commands, x.end, x.code);
		assert_log(p, "o never\n", false);
		assert_log(p, "Killed", false);
	}
}

/* What is written to the host's places vanishes; what must not be seen is not there. */
static void hides_the_host(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_env(p, "DATA", p->dir, false);
	spec(p,
	     "\"id -u; echo made >/usr/stoker-was-here && cat /usr/stoker-was-here\","
	     "\"mkdir -p /new/place /opt/x && echo top-ok\","
	     "\"echo data: $(ls -A $DATA 2>/dev/null | wc -l)\",\"echo home: $HOME $(ls -A /root "
	     "/home | wc "
	     "-w)\","
	     "\"echo shadow: $(cat /etc/shadow 2>/dev/null | wc -c)\","
	     "\"ls /proc | grep -c '^[0-9]*$' | sed 's/^/processes: /'\","
	     "\"umount $DATA 2>/dev/null; echo data: $(ls -A $DATA 2>/dev/null | wc -l)\","
	     "\"(cat /proc/sys/vm/swappiness >/proc/sys/vm/swappiness) 2>/dev/null || echo "
	     "sysctl-ro\","
	     "\"(echo h >/proc/sysrq-trigger) 2>/dev/null || echo sysrq-ro\"",
	     "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o 0\no made\no top-ok\no data: 0\no home: /root 2\no shadow: 0\n", true);
	assert_log(p, "o sysctl-ro\no sysrq-ro\n", true);
	assert_true(access("/usr/stoker-was-here", F_OK) < 0 && access("/new", F_OK) < 0 &&
	            access("/opt/x", F_OK) < 0);
}

/* A TLS key below /tmp, which is fresh in the sandbox: its place is a file, not a folder. */
static void hides_a_key_below_tmp(void **state)
{
	struct place *p = *state;
	char dir[] = "/tmp/test_key.XXXXXX", key[64];
	struct wire_exit x;
	struct err err = {0};

	assert_non_null(mkdtemp(dir));
	FMT(key, "%s/k.pem", dir);
	assert_ok(fs_write_atomic(AT_FDCWD, key, STR_LIT("private\n"), 0600, &err), &err);
	p->launch.hide = ARENA_ARRAY(p->a, const char *, 2);
	p->launch.hide[0] = p->dir;
	p->launch.hide[1] = key;
	p->launch.n_hide = 2;
	put_env(p, "KEY", key, false);
	spec(p, "\"echo key: $(cat $KEY 2>/dev/null | wc -c); touch /tmp/x && echo tmp\"", "", "");
	x = run_whole(p);
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
	assert_int_equal(x.code, 0);
	assert_log(p, "o key: 0\no tmp\n", true);
	assert_log(p, "Can't create", false);
}

static void shows_shared_folders(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	struct err err = {0};

	p->launch.share = ARENA_ARRAY(p->a, const char *, 1);
	p->launch.share[0] = below(p, "shared");
	p->launch.n_share = 1;
	assert_ok(fs_mkdirs(AT_FDCWD, p->launch.share[0], 0755, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, below(p, "shared/f"), STR_LIT("in it\n"), 0644, &err),
	          &err);
	put_env(p, "SHARED", p->launch.share[0], false);
	spec(p, "\"cat $SHARED/f; ls $SHARED/..; touch $SHARED/g || echo ro\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o in it\no shared\n", true);
	assert_log(p, "o ro\n", true);
}

static void secrets_stay_secret(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	AUTO_BUF struct buf file = BUF_INIT((size_t)1 << 20);
	struct err err = {0};

	put_env(p, "TOKEN", SECRET, true);
	put_env(p, "QUOTED", "it's \"$HOME\" \\ `x`\nsecond line", false);
	spec(p,
	     "\"echo value=$TOKEN; echo length ${#TOKEN}\",\"printf '%s\\\\n' \\\"$QUOTED\\\"\","
	     "\"printf %s $TOKEN | base64\",\"printf s3cr; sleep 0.4; echo et-value-0123 end\"",
	     "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o value=[redacted]\no length 17\n", true);
	assert_log(p, "o it's \"$HOME\" \\ `x`\no second line\n", true);
	assert_log(p, "et-value-0123", false);
	assert_log(p, SECRET, false);
	for (size_t i = 0; i < 3; i++) {
		static const char *const names[] = {"log", "runner.log", "exit.json"};

		buf_clear(&file);
		assert_ok(fs_read(AT_FDCWD,
		                  below(p, arena_printf(p->a, "runs/att1-0/%s", names[i])), &file,
		                  &err),
		          &err);
		assert_null(strstr(buf_cstr(&file), SECRET));
	}
}

static void secrets_are_in_no_argv(void **state)
{
	struct place *p = *state;

	put_env(p, "TOKEN", SECRET, true);
	spec(p, "\"echo up; sleep 100\"", "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	assert_false(process_with(SECRET));
	stop_job(p, true);
	(void)join(p);
	assert_int_equal(exit_of(p).end, JOB_END_STOPPED);
}

static void cache_survives(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf body = BUF_INIT(1000);
	struct wire_exit x;
	struct err err = {0};

	p->launch.cache_project_dir = below(p, "cache/projects/proj1");
	p->launch.cache_team_dir = below(p, "cache/teams/team1");
	p->launch.cache_quota_bytes = 1 << 30;
	spec(p,
	     "\"echo kept >$BT_PROJECT_CACHE_DIR/f; echo team >$BT_TEAM_CACHE_DIR/f\","
	     "\"echo hub >/root/.cache/huggingface/h; cat $BT_PROJECT_CACHE_DIR/huggingface/h\","
	     "\"echo $BT_PROJECT_CACHE_DIR $BT_TEAM_CACHE_DIR $BT_RW_CACHE_DIR\"",
	     "\"cache_config\":{\"enabled\":true,\"enable_legacy_hf_mount\":true}", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p,
	           "o hub\no /root/.cache/user_artifacts /root/.cache/team_artifacts "
	           "/root/.cache/user_artifacts\n",
	           true);
	assert_ok(fs_read(AT_FDCWD, below(p, "cache/projects/proj1/f"), &body, &err), &err);
	assert_string_equal(buf_cstr(&body), "kept\n");
}

#define SAVES_AND_ENDS                                                                             \
	"sh -c 'trap \\\"echo saving; exit 5\\\" TERM; echo up; while :; do sleep 0.05; done'\""

static void ends_by_itself(struct place *p, const char *commands)
{
	struct wire_exit x;

	spec(p, commands, "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	stop_job(p, false);
	assert_int_equal(join(p), 0);
	x = exit_of(p);
	assert_int_equal(x.end, JOB_END_STOPPED);
	assert_int_equal(x.code, 5);
	assert_log(p, "o saving\n", true);
	assert_log(p, "o next\n", false);
}

static void stops_with_grace(void **state)
{
	ends_by_itself(*state, "\"" SAVES_AND_ENDS ",\"echo next\"");
}

/* The same, of a command that took the shell's place. */
static void stops_what_was_executed(void **state)
{
	ends_by_itself(*state, "\"exec " SAVES_AND_ENDS ",\"echo next\"");
}

/* A machine that shuts down ends all its processes: that is no fault of the job. */
static void is_lost_with_its_machine(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"echo up; sleep 776.1\"", "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	assert_int_equal(kill(p->runner.pid, SIGTERM), 0);
	assert_int_equal(join(p), 0);
	x = exit_of(p);
	assert_int_equal(x.end, JOB_END_LOST);
	assert_non_null(strstr(x.detail, "shutting down"));
	assert_true(x.user_code_ran);
	wait_gone("776.1");
}

static void kills_after_the_grace(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"trap '' TERM; echo up; sleep 777.1\"", "", "\"limits\":{\"stop_grace\":\"1s\"}");
	launch(p, NULL);
	wait_log(p, "o up");
	stop_job(p, false);
	assert_int_equal(join(p), 0);
	x = exit_of(p);
	assert_int_equal(x.end, JOB_END_STOPPED);
	assert_log(p, "grace period over", true);
	wait_gone("777.1");
}

static void ends_what_lasts_too_long(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"sleep 778\"", "", "\"limits\":{\"stop_grace\":\"1s\",\"max_duration\":\"1s\"}");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_TIMEOUT);
}

static void leaves_no_process(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"setsid sh -c 'sleep 881.5' & sleep 881.5 & sleep 0.2; echo done\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o done\n", true);
	wait_gone("881.5");
}

static bool memory_is_limited(struct place *p)
{
	return strstr(log_text(p), " mem=") != NULL;
}

static void tells_out_of_memory(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"head -c 900M /dev/zero | tail -c 850M >/dev/null; exit ${PIPESTATUS[1]}\"", "",
	     "");
	p->launch.spec_json = arena_printf(
		p->a,
		"{\"image\":{},\"compute\":{\"cpu_count\":1,\"memory\":\"64Mi\"},\"runtime\":{"
		"\"start_commands\":[\"head -c 300M /dev/zero | tail -c 250M >/dev/null; exit "
		"${PIPESTATUS[1]}\"]},\"enable_baseten_workdir\":true}");
	x = run_whole(p);
	if (!memory_is_limited(p))
		return; /* this machine lets us limit nothing: the log says so */
	assert_int_equal(x.end, JOB_END_OOM);
	assert_non_null(strstr(x.detail, " of 64Mi"));
	assert_true(x.peak_memory_bytes > 0);
}

static void tells_cuda_out_of_memory(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p, "\"echo 'torch.cuda.OutOfMemoryError: CUDA out of memory.' >&2; exit 1\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_OOM_CUDA);
}

/* Its exit code; *said is what it printed. */
static int sweep(struct place *p, const char *how, const char **said)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 16);
	AUTO_FREE char *self = realpath("/proc/self/exe", NULL);
	const char *argv[] = {self, "runner", "--sweep", p->attempt, how, NULL};
	struct err err = {0};
	int code = 0;

	assert_ok(proc_run(argv, (struct str){0}, WAIT_MS, &out, &code, &err), &err);
	*said = arena_cstr(p->a, buf_cstr(&out));
	meet(p);
	return code;
}

static void sweep_whole(struct place *p, const char *how)
{
	const char *said = NULL;

	if (sweep(p, how, &said) != 0)
		fail_msg("sweep: %s", said);
}

static void kill_9_takes_the_tree(void **state)
{
	struct place *p = *state;

	spec(p,
	     "\"cd $BT_CHECKPOINT_DIR; mkdir checkpoint-1; echo w "
	     ">checkpoint-1/model.safetensors\","
	     "\"setsid sleep 882.5 & echo up; sleep 882.5\"",
	     "\"checkpointing_config\":{\"enabled\":true}", "");
	launch(p, NULL);
	wait_log(p, "o up");
	WAIT_UNTIL(p, strstr(p->checkpoints, "checkpoint-1 SYNCING") != NULL);
	assert_int_equal(kill(p->runner.pid, SIGKILL), 0);
	assert_int_equal(join(p), 128 + SIGKILL);
	wait_gone("882.5");
	assert_false(p->ended);
	/* what it left is swept, its checkpoint is not lost */
	p->checkpoints[0] = '\0';
	p->away = 1; /* it is told again */
	sweep_whole(p, NULL);
	assert_non_null(strstr(p->checkpoints, "checkpoint-1 INCOMPLETE full 1\n"));
	assert_false(p->ended);
}

static void survives_the_server(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	spec(p,
	     "\"echo before\",\"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; sleep 0.1; "
	     "done\",\"echo after\"",
	     "", "");
	launch(p, NULL);
	wait_log(p, "o before");
	server_stop(p);
	clock_sleep_ms(1500);
	server_start(p);
	assert_int_equal(join(p), 0);
	x = exit_of(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o line 1\no line 2\no line 3\no line 4\no line 5\no line 6\no line 7\n",
	           true);
	assert_log(p, "o line 12\no after\n", true);
}

static void ends_when_given_up(void **state)
{
	struct place *p = *state;

	spec(p, "\"echo up; sleep 883.5\"", "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	p->token_gone = true;
	(void)join(p);
	wait_gone("883.5");
}

/* Somebody removes the data folder: nobody will ever hear of this job. */
static void ends_when_its_folder_is_gone(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	spec(p, "\"echo up; sleep 887.25\"", "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	server_stop(p);
	assert_ok(fs_remove_tree(AT_FDCWD, below(p, "runs"), &err), &err);
	(void)join(p);
	wait_gone("887.25");
}

/* A dead runner's folder: all of it is there, and no server has heard how it ended. */
static void end_unheard(struct place *p)
{
	spec(p,
	     "\"echo up; while [ ! -e $BT_SCRATCH_DIR/end ]; do sleep 0.05; done; "
	     "echo value=$TOKEN; exit 7\"",
	     "", "");
	put_env(p, "TOKEN", SECRET, true);
	assert_int_equal(setenv("STOKER_AWAY_MS", "500", 1), 0);
	launch(p, NULL);
	assert_int_equal(unsetenv("STOKER_AWAY_MS"), 0);
	wait_log(p, "o up");
	server_stop(p);
	assert_int_equal(creat(below(p, "runs/att1-0/scratch/end"), 0644) < 0, false);
	(void)join(p);
	assert_false(p->ended);
}

/* The job has ended, and its server never comes back: what it would be told stays on disk. */
static void does_not_wait_for_ever(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf record = BUF_INIT(10000);
	struct wire_exit x;
	struct err err = {0};

	end_unheard(p);
	assert_ok(fs_read(AT_FDCWD, below(p, "runs/att1-0/exit.json"), &record, &err), &err);
	assert_ok(wire_exit_parse(&x, p->a, buf_view(&record), &err), &err);
	assert_int_equal(x.code, 7);
}

#define MORE 40000

/* Megabytes that nobody has yet, and a record that the death cut. */
static void add_to_log(struct place *p)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)16 << 20);
	AUTO_FD int fd = open(below(p, "runs/att1-0/log"), O_WRONLY | O_APPEND | O_CLOEXEC);
	int64_t ns = clock_wall_ms() * 1000000;
	struct err err = {0};

	for (int i = 0; i < MORE; i++)
		logline_write(&out, ns, &ns, 'o',
		              str_of(arena_printf(p->a, "%05d %s", i,
		                                  "some forty characters of what it printed")),
		              false);
	buf_printf(&out, "%019" PRId64 " o cut of", ns + 1);
	assert_true(out.n > 4 * ((size_t)512 << 10));
	assert_ok(fs_write_all(fd, out.p, out.n, &err), &err);
}

static void a_sweep_tells_what_was_not_heard(void **state)
{
	struct place *p = *state;
	struct joblog_line *line = NULL;
	struct err err = {0};
	const char *said;
	size_t n = 0;

	end_unheard(p);
	add_to_log(p);
	/* nobody is there to hear it: it gives up after a while, and loses nothing */
	assert_int_equal(sweep(p, NULL, &said), WIRE_SWEEP_AGAIN);
	server_start(p);
	/* of an attempt that is over neither is news */
	sweep_whole(p, WIRE_SWEEP_PAST);
	assert_false(p->ended);
	assert_log(p, "value=", false);
	p->away = 2;
	sweep_whole(p, NULL);
	assert_true(p->ended);
	assert_int_equal(exit_of(p).end, JOB_END_EXIT);
	assert_int_equal(exit_of(p).code, 7);
	for (int i = 0; i < 2; i++) { /* the second time changes nothing */
		assert_ok(joblogs_range(p->logs, p->a, "job1", -1, 0, 0, 0, false, &line, &n, &err),
		          &err);
		assert_true(n > MORE + 2);
		for (size_t k = 0; k < MORE; k++) {
			char number[8];

			FMT(number, "%05zu ", k);
			assert_memory_equal(line[n - MORE + k].text, number, 6);
		}
		sweep_whole(p, NULL);
	}
	n -= MORE;
	assert_string_equal(line[n - 1].text, "value=[redacted]");
	/* and one whom nobody knows any more is swept all the same */
	p->token_gone = true;
	assert_int_equal(sweep(p, NULL, &said), WIRE_SWEEP_REFUSED);
	sweep_whole(p, WIRE_SWEEP_PAST);
}

/* A runner does not ask for ever, nor does its sweep: it says why, in its last line. */
static void a_refused_record_is_kept(void **state)
{
	struct place *p = *state;
	const char *said, *at;

	spec(p, "\"exit 7\"", "", "");
	p->refuses_exit = true;
	launch(p, NULL);
	assert_int_equal(join(p), 0);
	assert_false(p->ended);
	assert_int_equal(sweep(p, NULL, &said), WIRE_SWEEP_REFUSED);
	at = strstr(said, "\nPOST ");
	assert_non_null(at);
	assert_non_null(strstr(at + 1, "413 words of a refusal\n"));
	assert_ptr_equal(strchr(at + 1, '\n')[1], '\0');
	assert_int_equal(sweep(p, WIRE_SWEEP_LAST, &said), WIRE_SWEEP_REFUSED);
	p->refuses_exit = false;
	sweep_whole(p, WIRE_SWEEP_LAST);
	assert_int_equal(exit_of(p).code, 7);
}

/* What cannot be sent for good is given up in the end, and the end is told. */
static void a_last_sweep_tells_the_end(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	AUTO_FD int fd = -1;
	struct err err = {0};
	const char *said;
	int64_t ns = 0;

	end_unheard(p);
	fd = open(below(p, "runs/att1-0/log"), O_WRONLY | O_APPEND | O_CLOEXEC);
	logline_write(&out, clock_wall_ms() * 1000000, &ns, 'o', (struct str){0}, false);
	out.n--; /* a record that is too long to be one */
	for (size_t i = 0; i <= LOGLINE_TEXT_MAX; i++)
		buf_putc(&out, 'x');
	buf_putc(&out, '\n');
	assert_ok(fs_write_all(fd, out.p, out.n, &err), &err);
	server_start(p);
	assert_int_equal(sweep(p, NULL, &said), 1);
	assert_false(p->ended);
	assert_int_equal(sweep(p, WIRE_SWEEP_LAST, &said), 1);
	assert_non_null(strstr(said, "the rest of the log"));
	assert_true(p->ended);
	assert_int_equal(exit_of(p).code, 7);
}

/* As an editor shows them, in each command anew; also where nothing of the sandbox's is between. */
static void errors_name_the_line_of_the_command(void **state)
{
	static const char *const kinds[] = {"bwrap-overlay", "plain"};

	for (size_t i = 0; i < COUNT(kinds); i++) {
		struct place *p = place_of_row(state, i);
		struct wire_exit x;

		p->launch.sandbox = kinds[i];
		put_env(p, "LINES_OF_IT", "a\nb\nc", false);
		spec(p,
		     "\"no-such-1\\n\\necho it\\\\'s\\nno-such-4; "
		     "echo LINENO=$LINENO\","
		     "\"f() {\\n  no-such-2\\n}\\nf\\ncat <<E\\n'\\nE\\nno-such-8\\n:\\n\","
		     "\": \\nif then\"",
		     "", "");
		x = run_whole(p);
		assert_int_equal(x.code, 2);
		assert_log(p, "e bash: line 1: no-such-1: ", true);
		assert_log(p, "o it's\n", true);
		assert_log(p, "o LINENO=4\n", true);
		assert_log(p, "e bash: line 4: no-such-4: ", true);
		assert_log(p, "line 2: no-such-2: ", true);
		assert_log(p, "e bash: line 8: no-such-8: ", true);
		assert_log(p, "line 2: syntax error", true);
	}
}

/* A debugger of the job's holds the sandbox's first process: the commands have ended all the same.
 */
static void a_held_init_holds_nothing_up(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	if (access("/usr/bin/python3", X_OK) < 0)
		return;
	spec(p,
	     "\"python3 -c 'import ctypes, os, time; c = ctypes.CDLL(None); print(c.ptrace(16, 1, "
	     "None, None), flush=True); open(os.environ[\\\"BT_SCRATCH_DIR\\\"] + "
	     "\\\"/up\\\", \\\"w\\\"); time.sleep(888)' & while [ ! -e $BT_SCRATCH_DIR/up ]; do "
	     "sleep 0.05; done; exit 6\"",
	     "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 6);
}

/* At each of its steps a killed runner leaves nothing that a sweep does not remove, and a record on
 * disk is told. */
static void crashes_leave_nothing(void **state)
{
	static const char *const labels[] = {"claimed", "staged",   "ready",  "started",
	                                     "exited",  "recorded", "synced", "reported"};
	struct place *p = *state;

	for (size_t i = 0; i < COUNT(labels); i++) {
		struct err err = {0};
		bool recorded = i >= 5;

		p->nonce[0] = '\0';
		p->principal.attempt_id = arena_printf(p->a, "att%zu", i);
		p->go = p->ended = false;
		spec(p, "\"sleep 0.3; echo ran; sleep 0.2 && : 884.5\"", CKPT, "");
		launch(p, labels[i]);
		assert_int_equal(join(p), 86);
		wait_gone("884.5");
		sweep_whole(p, NULL);
		assert_row((access(below(p, "runs/att1-0/exit.json"), F_OK) == 0) == recorded,
		           labels[i]);
		assert_row(p->ended == recorded, labels[i]);
		assert_ok(fs_remove_tree(AT_FDCWD, p->attempt, &err), &err);
		assert_ok(fs_mkdirs(AT_FDCWD, p->attempt, 0700, &err), &err);
	}
}

static void runs_commands_inside(void **state)
{
	struct place *p = *state;
	static const char script[] = "echo in $PWD as $(id -u); tr '\\0' ' ' </proc/1/cmdline | "
				     "cut -c1-5; echo $TOKEN; exit 7";
	static const char *argv[] = {"sh", "-c", script};

	put_env(p, "TOKEN", SECRET, true);
	spec(p, "\"echo up; sleep 885.5\"", "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	(void)pthread_mutex_lock(&p->lock);
	p->exec = (struct wire_exec){.id = "e1", .argv = argv, .n_argv = COUNT(argv)};
	p->n_exec = 1;
	change_desired(p);
	WAIT_UNTIL(p, p->exec_code >= 0);
	assert_int_equal(p->exec_code, 7);
	assert_string_equal(p->exec_output, "in /b10/workspace as 0\nbwrap\n[redacted]\n");
	stop_job(p, true);
	(void)join(p);
	assert_int_equal(exit_of(p).end, JOB_END_STOPPED);
}

/* Told what it said, or all that it said when that never comes. */
static void wait_output(struct place *p, const char *words)
{
	WAIT_UNTIL(p, strstr(p->exec_output, words) != NULL || p->exec_code >= 0);
	if (strstr(p->exec_output, words) == NULL)
		fail_msg("no \"%s\": %s", words, p->exec_output);
}

static void runs_a_terminal_inside(void **state)
{
	struct place *p = *state;
	static const char script[] = "stty size; tty; echo $TERM; read x; echo got-$x; "
				     "trap '>/b10/workspace/hung; exit 3' HUP; sleep 886.5 & wait";
	static const char *argv[] = {"sh", "-c", script};

	spec(p,
	     "\"echo up; while [ ! -e /b10/workspace/hung ]; do sleep 0.05; done; echo saw it; "
	     "sleep "
	     "886.5\"",
	     "", "");
	launch(p, NULL);
	wait_log(p, "o up");
	(void)pthread_mutex_lock(&p->lock);
	p->exec = (struct wire_exec){.id = "e1",
	                             .argv = argv,
	                             .n_argv = COUNT(argv),
	                             .input = true,
	                             .tty = true,
	                             .rows = 24,
	                             .columns = 81,
	                             .term = "vt100"};
	p->n_exec = 1;
	change_desired(p);
	wait_output(p, "24 81\r\n/dev/pts/");
	wait_output(p, "vt100");
	(void)pthread_mutex_lock(&p->lock);
	p->exec_input = STR_LIT("hello\r");
	(void)pthread_mutex_unlock(&p->lock);
	wait_output(p, "hello\r\ngot-hello");
	(void)pthread_mutex_lock(&p->lock);
	p->exec_hang_up = true;
	(void)pthread_mutex_unlock(&p->lock);
	WAIT_UNTIL(p, p->exec_done);
	wait_log(p, "o saw it");
	stop_job(p, true);
	(void)join(p);
	assert_int_equal(exit_of(p).end, JOB_END_STOPPED);
}

static void stop_while_waiting(void **state)
{
	struct place *p = *state;

	p->hold_go = true;
	spec(p, "\"echo ran\"", "", "");
	launch(p, NULL);
	WAIT_UNTIL(p, p->ready);
	stop_job(p, false);
	assert_int_equal(join(p), 0);
	assert_int_equal(exit_of(p).end, JOB_END_STOPPED);
	assert_false(exit_of(p).user_code_ran);
	assert_log(p, "o ran", false);
}

/* Where the kernel gives no overlay: the root read-only, the job's places in it all the same. */
static void without_an_overlay(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_weights(p, false);
	put_env(p, "DATA", p->dir, false);
	spec(p,
	     "\"ls -A /tmp | grep -v test_run; cat /models/b/sub/model.bin; pwd; echo c "
	     ">$BT_CHECKPOINT_DIR/f; echo s "
	     ">$BT_SCRATCH_DIR/f && echo places\",\"(touch /usr/x) 2>/dev/null || echo "
	     "root-ro\",\"touch /tmp/x $HOME/x && echo tmp; echo data: $(ls -A $DATA 2>/dev/null | "
	     "wc -l)\"",
	     CKPT, "");
	p->launch.sandbox = "bwrap-ro-root";
	x = run_whole(p);
	assert_log(p, "o root\n", false);
	assert_log(p, "o weights!\no /b10/workspace\no places\no root-ro\no tmp\no data: 0\n",
	           true);
	assert_log(p, "goes to memory", false);
	assert_log(p, "s sandbox: bwrap ro-root", true);
	assert_int_equal(x.code, 0);
	assert_true(x.synced);
}

/* Where mounts cannot translate, the jobs of a team have one id, whose files are on disk. */
static void without_idmapped_mounts(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	struct stat mine, first;
	struct err err = {0};

	if (geteuid() != 0)
		return;
	p->launch.ids_mode = WIRE_IDS_TEAM;
	p->launch.ids_dir = below(p, "ids");
	p->launch.cache_project_dir = below(p, "cache/projects/proj1");
	p->launch.cache_quota_bytes = 1 << 30;
	put_weights(p, false);
	/* a file of somebody else's, such as a server before this one */
	assert_ok(fs_mkdirs(AT_FDCWD, below(p, "cache/projects/proj1/old"), 0755, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, below(p, "cache/projects/proj1/old/f"),
	                          STR_LIT("old\n"), 0600, &err),
	          &err);
	spec(p,
	     "\"cat $BT_PROJECT_CACHE_DIR/old/f; echo new >>$BT_PROJECT_CACHE_DIR/old/f\","
	     "\"cat /models/b/sub/model.bin; echo x >$BT_CHECKPOINT_DIR/f\",\"echo r >/etc/x; id "
	     "-u\"",
	     "\"cache_config\":{\"enabled\":true}," CKPT, "");
	x = run_whole(p);
	assert_log(p, "o old\n", true); /* the platform may say something in between */
	assert_log(p, "o weights!\n", true);
	assert_log(p, "o 0\n", true);
	assert_int_equal(x.code, 0);
	assert_true(x.synced);
	assert_int_equal(stat(below(p, "cache/projects/proj1/old/f"), &mine), 0);
	assert_true(mine.st_uid >= 60000 && mine.st_gid == mine.st_uid);
	assert_int_equal(stat(below(p, "cache/projects/proj1"), &first), 0);
	assert_int_equal(first.st_uid, mine.st_uid);
}

static void plain_is_the_last_resort(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	p->launch.sandbox = "plain";
	spec(p, "\"echo $BT_SCRATCH_DIR; echo x >$BT_CHECKPOINT_DIR/f; sleep 886.5 & echo done\"",
	     CKPT, "");
	x = run_whole(p);
	assert_log(p, geteuid() == 0 ? "o " IDS_STAGE "/" : arena_printf(p->a, "o %s/", p->attempt),
	           true);
	assert_int_equal(x.code, 0);
	assert_true(x.synced);
	assert_log(p, "s sandbox: plain", true);
	wait_gone("886.5");
}

static void plain_cannot_mount_weights(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	p->launch.sandbox = "plain";
	put_weights(p, false);
	spec(p, "\"echo ran\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_non_null(strstr(x.detail, "bubblewrap"));
}

static void says_that_the_image_was_not_used(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	p->launch.images = "host";
	p->launch.spec_json =
		"{\"image\":{\"base_image\":\"some/image:1\"},\"compute\":{\"cpu_count\":1,"
		"\"memory\":\"512Mi\"},\"runtime\":{\"start_commands\":[\"echo ran\"]}}";
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "image some/image:1 is ignored", true);
}

/* As the server's: a field of a newer version, a limit that has moved. Only what cannot be read
 * ends the job. */
static void a_stored_specification_is_not_judged(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	p->launch.spec_json =
		"{\"gone\":1,\"image\":{},\"compute\":{\"cpu_count\":1,\"memory\":\"512Mi\","
		"\"newfield\":{\"x\":1}},\"runtime\":{\"start_commands\":[\"echo ran\"]},"
		"\"limits\":{\"stop_grace\":999999999}}";
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o ran\n", true);
}

static void an_unreadable_specification_ends_the_job(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	p->launch.spec_json = "{\"runtime\":7}";
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.error_id, "stored_spec_unreadable");
}

static void many_lines_in_order(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	char *text = NULL, want[64];

	spec(p, "\"seq 1 20000\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	text = log_text(p);
	text = strstr(text, "o 1\n");
	assert_non_null(text);
	for (int i = 1; i <= 20000; i++) {
		FMT(want, "o %d\n", i);
		assert_int_equal(strncmp(text, want, strlen(want)), 0);
		text += strlen(want);
	}
}

static void as_an_ordinary_user(void **state UNUSED)
{
	static const char *const names[] = {"hides_the_host",        "secrets_stay_secret",
	                                    "stops_with_grace",      "leaves_no_process",
	                                    "runs_commands_inside",  "runs_a_terminal_inside",
	                                    "kill_9_takes_the_tree", "without_an_overlay"};

	again_as_user(names, COUNT(names));
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
static const struct CMUnitTest tests[] = {
	T(refused_claim_runs_nothing),
	T(stops_at_the_first_failure),
	T(broken_command_is_a_failure),
	T(runs_in_one_shell),
	T(ends_as_its_commands_say),
	T(errors_name_the_line_of_the_command),
	T(hides_the_host),
	T(hides_a_key_below_tmp),
	T(shows_shared_folders),
	T(secrets_stay_secret),
	T(secrets_are_in_no_argv),
	T(cache_survives),
	T(stops_with_grace),
	T(stops_what_was_executed),
	T(is_lost_with_its_machine),
	T(kills_after_the_grace),
	T(ends_what_lasts_too_long),
	T(leaves_no_process),
	T(tells_out_of_memory),
	T(tells_cuda_out_of_memory),
	T(kill_9_takes_the_tree),
	T(survives_the_server),
	T(ends_when_given_up),
	T(ends_when_its_folder_is_gone),
	T(does_not_wait_for_ever),
	T(a_sweep_tells_what_was_not_heard),
	T(a_last_sweep_tells_the_end),
	T(a_refused_record_is_kept),
	T(a_held_init_holds_nothing_up),
	T(crashes_leave_nothing),
	T(runs_commands_inside),
	T(runs_a_terminal_inside),
	T(stop_while_waiting),
	T(without_an_overlay),
	T(without_idmapped_mounts),
	T(plain_is_the_last_resort),
	T(plain_cannot_mount_weights),
	T(says_that_the_image_was_not_used),
	T(a_stored_specification_is_not_judged),
	T(an_unreadable_specification_ends_the_job),
	T(many_lines_in_order),
	cmocka_unit_test(as_an_ordinary_user),
};
RUNNER_MAIN(tests)
