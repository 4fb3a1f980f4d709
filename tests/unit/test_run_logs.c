/* test_run_logs.c - real pipes: redaction across borders, lines without an end, a pipe that stays
 * open.
 */
#include "run/logs.h"

#include "base/clock.h"
#include "base/fs.h"
#include "unit.h"

#define WAIT_MS 120000

struct place {
	char dir[64];
	char path[96];
	struct redact *redact;
	struct logs *logs;
	int out, err; /* the job's ends */
};

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};
	int out[2], errs[2];

	FMT(p->dir, "/tmp/test_logs.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	FMT(p->path, "%s/log", p->dir);
	p->redact = redact_new();
	assert_ok(redact_add(p->redact, STR_LIT("hunter2hunter2"), &err), &err);
	redact_build(p->redact);
	assert_ok(logs_open(&p->logs, p->path, p->redact, &err), &err);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(errs, O_CLOEXEC), 0);
	p->out = out[1];
	p->err = errs[1];
	assert_ok(logs_pump(p->logs, out[0], errs[0], &err), &err);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	if (p->out >= 0)
		(void)close(p->out);
	if (p->err >= 0)
		(void)close(p->err);
	logs_close(p->logs);
	redact_free(p->redact);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	free(p);
	return 0;
}

static void say(int fd, const char *text)
{
	struct err err = {0};

	assert_ok(fs_write_all(fd, text, strlen(text), &err), &err);
}

/* Once the pump has ended. */
static void nothing_else(const struct place *p)
{
	struct stat st;

	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_size, logs_size(p->logs));
}

static void finish(struct place *p)
{
	(void)close(p->out);
	(void)close(p->err);
	p->out = p->err = -1;
	logs_finish(p->logs, WAIT_MS);
	nothing_else(p);
}

/* The records as "o text|", a continuing one in upper case; only whole ones, in rising order. The
 * pump may write meanwhile: what was said to be there before is looked at. */
static void read_back(struct place *p, struct buf *out)
{
	uint64_t size = logs_size(p->logs);
	AUTO_BUF struct buf body = BUF_INIT((size_t)64 << 20);
	struct str rest;
	struct logline line;
	struct err err = {0};
	int64_t last = 0;

	assert_ok(fs_read(AT_FDCWD, p->path, &body, &err), &err);
	assert_true(body.n >= size);
	rest = str_n(body.p, size);
	while (logline_next(&rest, &line)) {
		assert_true(line.ns > last);
		last = line.ns;
		buf_printf(out, "%c %.*s|", line.continues ? line.stream - 32 : line.stream,
		           STR_ARG(line.text));
	}
	assert_int_equal(rest.n, 0);
}

static void assert_text(struct place *p, const char *want)
{
	AUTO_BUF struct buf got = BUF_INIT((size_t)64 << 20);

	read_back(p, &got);
	assert_string_equal(buf_cstr(&got), want);
	nothing_else(p);
}

static void wait_for(struct place *p, const char *words)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS;;) {
		AUTO_BUF struct buf got = BUF_INIT((size_t)64 << 20);

		if (logs_size(p->logs) > 0) {
			read_back(p, &got);
			if (strstr(buf_cstr(&got), words) != NULL)
				return;
		}
		if (clock_mono_ms() > until)
			fail_msg("no \"%s\" in: %s", words, buf_cstr(&got));
		clock_sleep_ms(10);
	}
}

static void keeps_lines(void **state)
{
	struct place *p = *state;

	say(p->out, "one\n\ntwo\r\n");
	wait_for(p, "two");
	say(p->err, "bad\n");
	wait_for(p, "bad");
	say(p->out, "no end");
	finish(p);
	assert_text(p, "o one|o |o two\r|e bad|o no end|");
}

/* A prompt shows although its line has no end; the rest joins it later. */
static void shows_partial_lines(void **state)
{
	struct place *p = *state;

	say(p->out, "50%");
	wait_for(p, "O 50%|");
	say(p->out, " done\nnext\n");
	finish(p);
	assert_text(p, "O 50%|o  done|o next|");
}

/* The job's bytes, with or without a newline; not what the platform says. */
static void knows_when_the_job_spoke(void **state)
{
	struct place *p = *state;
	int64_t begun = clock_mono_ms();

	logs_message(p->logs, "the platform");
	assert_int_equal(logs_heard_ms(p->logs), 0);
	say(p->out, ".");
	wait_for(p, "O .|");
	assert_true(logs_heard_ms(p->logs) >= begun);
	finish(p);
}

static void redacts_across_writes(void **state)
{
	struct place *p = *state;

	say(p->out, "key=hunter2");
	clock_sleep_ms(3 * LOGS_PARTIAL_MS); /* the first half is due, but may be a secret's */
	say(p->out, "hunter2 ok\n");
	say(p->err, "aHVudGVyMmh1bnRlcjI=\n"); /* base64 of it */
	finish(p);
	{
		AUTO_BUF struct buf got = BUF_INIT(10000);

		read_back(p, &got);
		assert_null(strstr(buf_cstr(&got), "hunter2"));
		assert_null(strstr(buf_cstr(&got), "aHVudGVyMmh1bnRlcjI"));
		assert_non_null(strstr(buf_cstr(&got), "[redacted] ok|"));
	}
}

static void half_a_secret_is_no_secret(void **state)
{
	struct place *p = *state;

	say(p->out, "hunter2");
	finish(p);
	assert_text(p, "o hunter2|");
}

static void cuts_long_lines(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20), got = BUF_INIT((size_t)64 << 20);
	size_t outbox = 0;

	for (int i = 0; i < 100000; i++)
		buf_putc(&text, 'x');
	buf_puts(&text, "\nend\n");
	say(p->out, buf_cstr(&text));
	finish(p);
	read_back(p, &got);
	for (size_t i = 0; i < got.n; i++)
		outbox += got.p[i] == 'x';
	assert_int_equal(outbox, 100000);
	assert_non_null(strstr(buf_cstr(&got), "|o end|"));
}

/* A grandchild holds the pipe: the end comes all the same, and nothing that was in it is lost. */
static void drain_is_bounded(void **state)
{
	struct place *p = *state;
	int held = dup(p->out);

	say(p->out, "last words\n");
	(void)close(p->out);
	(void)close(p->err);
	p->out = p->err = -1;
	logs_finish(p->logs, 100);
	assert_text(p, "o last words|");
	(void)close(held);
}

static void platform_speaks_too(void **state)
{
	struct place *p = *state;

	logs_message(p->logs, "weights %s", "hunter2hunter2");
	say(p->out, "torch.cuda.OutOfMemoryError: x\n");
	finish(p);
	assert_true(logs_tail_has(p->logs, "OutOfMemoryError"));
	assert_false(logs_tail_has(p->logs, "Segmentation"));
	assert_text(p, "s weights [redacted]|o torch.cuda.OutOfMemoryError: x|");
}

static void goes_on_in_an_old_file(void **state)
{
	struct place *p = *state;
	struct logs *again = NULL;
	struct err err = {0};

	say(p->out, "one\n");
	finish(p);
	assert_ok(logs_open(&again, p->path, p->redact, &err), &err);
	assert_int_equal(logs_size(again), logs_size(p->logs));
	logs_close(again);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	T(keeps_lines),
	T(shows_partial_lines),
	T(redacts_across_writes),
	T(half_a_secret_is_no_secret),
	T(cuts_long_lines),
	T(drain_is_bounded),
	T(platform_speaks_too),
	T(goes_on_in_an_old_file),
	T(knows_when_the_job_spoke),
};
UNIT_MAIN(tests)
