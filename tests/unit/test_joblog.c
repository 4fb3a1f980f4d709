/* test_joblog.c - logs and metrics at rest: order, offsets, pages by time, what a crash leaves. */
#include "store/logs/joblog.h"

#include "unit.h"

#include <dirent.h>
#include <pthread.h>

#define MS ((int64_t)1000000)
#define JOB "abc1234"

struct world {
	char dir[64];
	struct joblogs *logs;
	struct arena *a;
	struct err err;
	int64_t last_ns; /* of the runner's own records */
	uint64_t seq;
};

static void setup(struct world *w)
{
	memset(w, 0, sizeof(*w));
	FMT(w->dir, "/tmp/test-joblog-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	assert_ok(joblogs_open(&w->logs, w->dir, &w->err), &w->err);
	w->a = arena_new();
}

static void done(struct world *w)
{
	joblogs_close(w->logs);
	arena_free(w->a);
	assert_ok(fs_remove_tree(AT_FDCWD, w->dir, &w->err), &w->err);
}

static void again(struct world *w)
{
	joblogs_close(w->logs);
	assert_ok(joblogs_open(&w->logs, w->dir, &w->err), &w->err);
}

static void send(struct world *w, uint32_t rank, int64_t ns, char stream, const char *text,
                 bool continues)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);

	logline_write(&b, ns, &w->last_ns, stream, str_of(text), continues);
	assert_ok(joblogs_append(w->logs, JOB, "at0", rank, rank == 0 ? w->seq : 0, buf_view(&b),
	                         false, rank == 0 ? &w->seq : &(uint64_t){0}, &w->err),
	          &w->err);
}

/* The page as "rank:stream:text|..." */
static const char *page(struct world *w, int rank, int64_t from, int64_t to, size_t limit,
                        bool newest)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);
	struct joblog_line *line;
	size_t n;

	assert_ok(joblogs_range(w->logs, w->a, JOB, rank, from, to, limit, newest, &line, &n,
	                        &w->err),
	          &w->err);
	for (size_t i = 0; i < n; i++) {
		assert_true(i == 0 || line[i - 1].ns <= line[i].ns);
		buf_printf(&b, "%u:%c:%s|", line[i].rank, line[i].stream, line[i].text);
	}
	return arena_strz(w->a, buf_view(&b));
}

static void test_refuses(void **state)
{
	struct world w;
	uint64_t next = 7;

	(void)state;
	setup(&w);
	assert_err(joblogs_message(w.logs, "../x", 1, "no", &w.err), &w.err, ERR_INVALID, "job id");
	assert_err(joblogs_message(w.logs, "", 1, "no", &w.err), &w.err, ERR_INVALID, "job id");
	assert_err(joblogs_append(w.logs, JOB, "at0", 0, 0, STR_LIT("no newline"), false, &next,
	                          &w.err),
	           &w.err, ERR_INVALID, "newline");
	assert_err(joblogs_append(w.logs, JOB, "a b", 0, 0, STR_LIT(""), false, &next, &w.err),
	           &w.err, ERR_INVALID, "attempt");
	assert_err(joblogs_append(w.logs, JOB, "at0", 5000, 0, STR_LIT(""), false, &next, &w.err),
	           &w.err, ERR_INVALID, "node 5000");
	assert_int_equal(next, 7);
	assert_err(joblogs_append(w.logs, JOB, "at0", 0, 100, STR_LIT(""), false, &next, &w.err),
	           &w.err, ERR_CONFLICT, "from 0 on");
	assert_int_equal(next, 0);
	done(&w);
}

static void test_empty(void **state)
{
	struct world w;
	uint64_t next = 1, size = 1, off = 1;
	AUTO_BUF struct buf b = BUF_INIT(100000);
	uint32_t ranks = 9;

	(void)state;
	setup(&w);
	assert_string_equal(page(&w, -1, 0, 0, 10, false), "");
	assert_string_equal(page(&w, -1, 0, 0, 10, true), "");
	assert_ok(joblogs_read(w.logs, JOB, 0, 5, 100, &b, &next, &size, &w.err), &w.err);
	assert_int_equal(next, 5);
	assert_int_equal(size, 0);
	assert_ok(joblogs_tail_offset(w.logs, JOB, 0, 5, &off, &w.err), &w.err);
	assert_int_equal(off, 0);
	assert_ok(joblogs_ranks(w.logs, JOB, &ranks, &w.err), &w.err);
	assert_int_equal(ranks, 0);
	assert_ok(joblogs_delete(w.logs, JOB, &w.err), &w.err);
	done(&w);
}

static void test_order_and_merge(void **state)
{
	struct world w;
	uint32_t ranks;

	(void)state;
	setup(&w);
	assert_ok(joblogs_message(w.logs, JOB, 10 * MS, "created", &w.err), &w.err);
	send(&w, 0, 20 * MS, 'o', "one\ntwo", false);
	w.last_ns = 0;
	send(&w, 1, 15 * MS, 'e', "other node", false);
	/* a clock that is behind: raised, so the file's order holds */
	assert_ok(joblogs_message(w.logs, JOB, 5 * MS, "late", &w.err), &w.err);
	assert_string_equal(page(&w, -1, 0, 0, 10, false),
	                    "0:s:created|1:e:other node|0:o:one|0:o:two|0:s:late|");
	assert_string_equal(page(&w, 0, 0, 0, 10, true), "0:s:created|0:o:one|0:o:two|0:s:late|");
	assert_string_equal(page(&w, 1, 0, 0, 10, false), "1:e:other node|");
	assert_string_equal(page(&w, -1, 11 * MS, 16 * MS, 10, false), "1:e:other node|");
	assert_string_equal(page(&w, -1, 100 * MS, 0, 10, false), "");
	assert_ok(joblogs_ranks(w.logs, JOB, &ranks, &w.err), &w.err);
	assert_int_equal(ranks, 2);
	again(&w);
	assert_string_equal(page(&w, 1, 0, 0, 10, false), "1:e:other node|");
	done(&w);
}

/* Sending again what was taken doubles nothing, also over a restart; a gap is refused. */
/* Of a clock that is wrong by centuries: behind the last time that there is, no other one rises. */
static void test_the_last_time(void **state)
{
	static const char last[] = "9223372036854775807 o one\n9223372036854775807 o two\n";
	struct world w;
	uint64_t next;

	(void)state;
	setup(&w);
	assert_ok(joblogs_append(w.logs, JOB, "at0", 0, 0, str_of(last), false, &next, &w.err),
	          &w.err);
	assert_ok(joblogs_message(w.logs, JOB, 5 * MS, "three", &w.err), &w.err);
	again(&w);
	assert_ok(joblogs_message(w.logs, JOB, 6 * MS, "four", &w.err), &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 10, false), "0:o:one|0:o:two|0:s:three|0:s:four|");
	done(&w);
}

static void test_resend(void **state)
{
	struct world w;
	AUTO_BUF struct buf b = BUF_INIT(100000);
	int64_t last = 0;
	size_t first;
	uint64_t next = 0;

	(void)state;
	setup(&w);
	logline_write(&b, MS, &last, 'o', str_of("a"), false);
	first = b.n;
	logline_write(&b, 2 * MS, &last, 'o', str_of("b"), false);
	assert_ok(joblogs_append(w.logs, JOB, "at0", 0, 0, str_n(b.p, first), false, &next, &w.err),
	          &w.err);
	assert_int_equal(next, first);
	assert_ok(joblogs_message(w.logs, JOB, 3 * MS, "server", &w.err), &w.err);
	again(&w);
	assert_ok(joblogs_append(w.logs, JOB, "at0", 0, 0, buf_view(&b), false, &next, &w.err),
	          &w.err);
	assert_int_equal(next, b.n);
	assert_ok(joblogs_append(w.logs, JOB, "at0", 0, 0, buf_view(&b), false, &next, &w.err),
	          &w.err);
	assert_int_equal(next, b.n);
	assert_err(joblogs_append(w.logs, JOB, "at0", 0, first - 3, buf_view(&b), false, &next,
	                          &w.err),
	           &w.err, ERR_INVALID, "inside a record");
	assert_err(joblogs_append(w.logs, JOB, "at0", 0, b.n + 1, STR_LIT("x\n"), false, &next,
	                          &w.err),
	           &w.err, ERR_CONFLICT, "are expected");
	assert_int_equal(next, b.n);
	/* the next attempt counts for itself, and so does the old one still */
	assert_ok(joblogs_append(w.logs, JOB, "at1", 0, 0, str_n(b.p, first), false, &next, &w.err),
	          &w.err);
	assert_ok(joblogs_append(w.logs, JOB, "at0", 0, 0, buf_view(&b), false, &next, &w.err),
	          &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 0, false), "0:o:a|0:s:server|0:o:b|0:o:a|");
	done(&w);
}

/* A page ends where a millisecond ends, and the next one goes on there: nothing twice or lost. */
static void test_pages_keep_milliseconds_whole(void **state)
{
	struct world w;
	size_t total = 0;
	int64_t from = 0;

	(void)state;
	setup(&w);
	for (int i = 0; i < 3000; i++) { /* up to 100 lines a millisecond on two nodes */
		struct world *x = &w;

		send(x, 0, (1000 + i / 100) * MS + i % 100, 'o', "line", false);
	}
	w.last_ns = 0;
	for (int pages = 0; pages < 100; pages++) {
		struct joblog_line *line;
		size_t n;

		assert_ok(
			joblogs_range(w.logs, w.a, JOB, -1, from, 0, 150, false, &line, &n, &w.err),
			&w.err);
		if (n == 0)
			break;
		assert_int_equal(n, 200); /* two whole milliseconds */
		total += n;
		from = (line[n - 1].ns / MS + 1) * MS;
	}
	assert_int_equal(total, 3000);
	/* the newest ones likewise */
	{
		struct joblog_line *line;
		size_t n;

		assert_ok(joblogs_range(w.logs, w.a, JOB, -1, 0, 0, 150, true, &line, &n, &w.err),
		          &w.err);
		assert_int_equal(n, 200);
		assert_int_equal(line[0].ns, 1028 * MS);
		assert_ok(joblogs_range(w.logs, w.a, JOB, -1, 0, 1010 * MS, 1, true, &line, &n,
		                        &w.err),
		          &w.err);
		assert_int_equal(n, 100);
		assert_int_equal(line[n - 1].ns / MS, 1009);
	}
	done(&w);
}

static void test_long_lines(void **state)
{
	struct world w;
	AUTO_FREE char *text = xmalloc(LOGLINE_TEXT_MAX * 2 + 100);
	struct joblog_line *line;
	size_t n;

	(void)state;
	setup(&w);
	memset(text, 'x', LOGLINE_TEXT_MAX * 2 + 99);
	text[LOGLINE_TEXT_MAX * 2 + 99] = '\0';
	send(&w, 0, MS, 'o', text, false);
	send(&w, 0, 2 * MS, 'o', "half", true);
	send(&w, 0, 3 * MS, 'e', "between", false);
	send(&w, 0, 4 * MS, 'o', " done", false);
	send(&w, 0, 5 * MS, 'o', "\r10%", true);
	assert_ok(joblogs_range(w.logs, w.a, JOB, -1, 0, 0, 10, false, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 4);
	assert_int_equal(strlen(line[0].text), LOGLINE_TEXT_MAX * 2 + 99);
	assert_string_equal(page(&w, 0, 2 * MS, 0, 10, false),
	                    "0:e:between|0:o:half done|0:o:\r10%|");
	/* cut inside the line: both parts come, once */
	assert_string_equal(page(&w, 0, 2 * MS, 4 * MS, 10, false), "0:o:half|0:e:between|");
	assert_string_equal(page(&w, 0, 4 * MS, 0, 10, false), "0:o: done|0:o:\r10%|");
	done(&w);
}

static void test_read_and_tail(void **state)
{
	struct world w;
	AUTO_BUF struct buf all = BUF_INIT((size_t)1 << 20);
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);
	uint64_t next = 0, size = 0, off;
	struct str rest, record;

	(void)state;
	setup(&w);
	for (int i = 0; i < 5000; i++) {
		char text[40];

		FMT(text, "line number %d of many", i);
		send(&w, 0, (1000 + i) * MS, 'o', text, false);
	}
	while (next == 0 || next < size) {
		size_t before = all.n;

		assert_ok(joblogs_read(w.logs, JOB, 0, next, 1, &all, &next, &size, &w.err),
		          &w.err);
		assert_true(all.n > before);
		assert_int_equal(all.n, next);
		assert_int_equal(all.p[all.n - 1], '\n');
	}
	assert_int_equal(all.n, w.seq);
	for (off = 0; off < 200; off++) { /* the next record, wherever one asks from */
		const char *from =
			off == 0 ? all.p : (char *)memchr(all.p + off - 1, '\n', all.n - off) + 1;

		buf_clear(&b);
		assert_ok(joblogs_read(w.logs, JOB, 0, off, 1, &b, &next, &size, &w.err), &w.err);
		assert_true(b.n > 0 && memcmp(b.p, from, b.n) == 0);
		assert_int_equal(next, (uint64_t)(from - all.p) + b.n);
	}
	buf_clear(&b);
	assert_ok(joblogs_read(w.logs, JOB, 0, size - 1, 1, &b, &next, &size, &w.err), &w.err);
	assert_int_equal(b.n, 0);
	assert_int_equal(next, size);
	for (uint64_t lines = 0; lines <= 5001; lines += lines < 4 ? 1 : 833) {
		assert_ok(joblogs_tail_offset(w.logs, JOB, 0, lines, &off, &w.err), &w.err);
		buf_clear(&b);
		buf_add(&b, all.p + off, all.n - off);
		rest = buf_view(&b);
		size = 0;
		while (str_cut(&rest, '\n', &record))
			size++;
		assert_int_equal(size, MIN(lines, (uint64_t)5000));
	}
	send(&w, 0, 10000 * MS, 'o', "in the making", true);
	assert_ok(joblogs_tail_offset(w.logs, JOB, 0, 1, &off, &w.err), &w.err);
	assert_int_equal(off, all.n);
	done(&w);
}

/* Bytes behind what was acknowledged are cut off; without its state a log is what it holds. */
static void test_crash(void **state)
{
	struct world w;
	char path[100];
	AUTO_FD int fd = -1;

	(void)state;
	setup(&w);
	send(&w, 0, MS, 'o', "kept", false);
	joblogs_close(w.logs);
	FMT(path, "%s/" JOB "/node-0.log", w.dir);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "0000000000000000009 o never acknowledged\n00000", 46), 46);
	assert_ok(joblogs_open(&w.logs, w.dir, &w.err), &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 10, false), "0:o:kept|");
	send(&w, 0, 2 * MS, 'o', "more", false);
	joblogs_close(w.logs);
	FMT(path, "%s/" JOB "/node-0.state", w.dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(write(fd, "torn", 4), 4);
	assert_ok(joblogs_open(&w.logs, w.dir, &w.err), &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 10, false), "0:o:kept|0:o:more|");
	/* the log lost its end, the state did not */
	joblogs_close(w.logs);
	FMT(path, "%s/" JOB "/node-0.log", w.dir);
	assert_int_equal(truncate(path, 30), 0);
	assert_ok(joblogs_open(&w.logs, w.dir, &w.err), &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 10, false), "0:o:kept|");
	done(&w);
}

/* For want of room on the disk, when an attempt ended: the next one's log is kept. */
static void test_a_log_that_was_full(void **state)
{
	const size_t word = strlen("stoker-joblog 1 ") + 20 + 1;
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);
	AUTO_FD int fd = -1;
	struct world w;
	char path[100];
	uint64_t next;

	(void)state;
	setup(&w);
	send(&w, 0, MS, 'o', "kept", false);
	joblogs_close(w.logs);
	FMT(path, "%s/" JOB "/node-0.state", w.dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "full", 4, (off_t)word), 4);
	assert_ok(joblogs_open(&w.logs, w.dir, &w.err), &w.err);
	send(&w, 0, 2 * MS, 'o', "lost", false);
	logline_write(&b, 3 * MS, &w.last_ns, 'o', STR_LIT("again"), false);
	assert_ok(joblogs_append(w.logs, JOB, "at1", 0, 0, buf_view(&b), false, &next, &w.err),
	          &w.err);
	assert_string_equal(page(&w, 0, 0, 0, 10, false), "0:o:kept|0:o:again|");
	done(&w);
}

static void test_many_jobs(void **state)
{
	struct world w;

	(void)state;
	setup(&w);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 300; i++) { /* more than are kept open */
			char id[16];

			FMT(id, "job%d", i);
			assert_ok(joblogs_message(w.logs, id, 1, "hello", &w.err), &w.err);
		}
	}
	for (int i = 0; i < 300; i++) {
		struct joblog_line *line;
		char id[16];
		size_t n;

		FMT(id, "job%d", i);
		assert_ok(joblogs_range(w.logs, w.a, id, -1, 0, 0, 0, false, &line, &n, &w.err),
		          &w.err);
		assert_int_equal(n, 2);
		assert_ok(joblogs_delete(w.logs, id, &w.err), &w.err);
		assert_ok(joblogs_range(w.logs, w.a, id, -1, 0, 0, 0, false, &line, &n, &w.err),
		          &w.err);
		assert_int_equal(n, 0);
	}
	done(&w);
}

struct writer {
	struct joblogs *logs;
	pthread_t thread;
	uint32_t rank;
	bool failed;
};

#define ROUNDS 300

static void *write_many(void *arg)
{
	struct writer *w = arg;
	struct err err = {0};
	int64_t last = 0;
	uint64_t seq = 0;

	for (int i = 0; i < ROUNDS && !w->failed; i++) {
		AUTO_BUF struct buf b = BUF_INIT(1000);

		logline_write(&b, i * MS, &last, 'o', str_of("line"), false);
		w->failed = joblogs_append(w->logs, JOB, "at0", w->rank, seq, buf_view(&b), false,
		                           &seq, &err) < 0 ||
		            joblogs_message(w->logs, JOB, i * MS, "said", &err) < 0;
	}
	return NULL;
}

/* Nodes send, the server speaks and followers read at the same time; nothing is lost or torn. */
static void test_threads(void **state)
{
	struct world w;
	struct writer writer[4];
	struct joblog_line *line;
	size_t n = 0;

	(void)state;
	setup(&w);
	for (uint32_t i = 0; i < COUNT(writer); i++) {
		writer[i] = (struct writer){.logs = w.logs, .rank = i};
		assert_int_equal(pthread_create(&writer[i].thread, NULL, write_many, &writer[i]),
		                 0);
	}
	while (n < COUNT(writer) * ROUNDS) {
		arena_reset(w.a);
		assert_ok(
			joblogs_range(w.logs, w.a, JOB, -1, 0, 0, 0, n % 2 == 0, &line, &n, &w.err),
			&w.err);
		for (size_t i = 0; i < n; i++)
			assert_true(strcmp(line[i].text, line[i].stream == 'o' ? "line" : "said") ==
			            0);
	}
	for (size_t i = 0; i < COUNT(writer); i++) {
		assert_int_equal(pthread_join(writer[i].thread, NULL), 0);
		assert_false(writer[i].failed);
	}
	assert_ok(joblogs_range(w.logs, w.a, JOB, -1, 0, 0, 0, false, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 2 * COUNT(writer) * ROUNDS);
	done(&w);
}

static void test_samples(void **state)
{
	struct world w;
	struct str *line;
	size_t n;
	char text[64];
	char path[100];
	AUTO_FD int fd = -1;

	(void)state;
	setup(&w);
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 0, 0, 10, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 0);
	assert_err(joblogs_add_sample(w.logs, JOB, 0, STR_LIT("{\"a\":1}\n{}"), &w.err), &w.err,
	           ERR_INVALID, "one line");
	for (int i = 0; i < 1000; i++) {
		FMT(text, "{\"wall_ms\":%d,\"cpu_cores\":%d}", 1000 + i, i);
		assert_ok(joblogs_add_sample(w.logs, JOB, 0, str_of(text), &w.err), &w.err);
		if (i == 500) { /* a torn line is stepped over */
			FMT(path, "%s/" JOB "/metrics-0.jsonl", w.dir);
			fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
			assert_int_equal(write(fd, "{\"wall", 6), 6);
		}
	}
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 0, 0, 5000, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 1000);
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 1100, 1110, 5000, &line, &n, &w.err),
	          &w.err);
	assert_int_equal(n, 10);
	assert_true(str_starts(line[0], "{\"wall_ms\":1100,"));
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 0, 0, 10, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 10);
	assert_true(str_starts(line[0], "{\"wall_ms\":1000,"));
	assert_true(str_starts(line[9], "{\"wall_ms\":1999,"));
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 0, 0, 1, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 1);
	assert_ok(joblogs_samples(w.logs, w.a, JOB, 0, 9999, 0, 10, &line, &n, &w.err), &w.err);
	assert_int_equal(n, 0);
	done(&w);
}

static size_t count_files(const char *dir)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		n += e->d_type == DT_REG;
	(void)closedir(d);
	return n;
}

/* A disk may run out of inodes while a job runs. */
static void test_needs_no_new_files(void **state)
{
	struct world w;
	char dir[96];
	size_t n;

	(void)state;
	setup(&w);
	FMT(dir, "%s/" JOB, w.dir);
	assert_ok(joblogs_create(w.logs, JOB, 0, &w.err), &w.err);
	n = count_files(dir);
	assert_true(n > 0);
	send(&w, 0, 5 * MS, 'o', "a line", false);
	assert_ok(joblogs_message(w.logs, JOB, 6 * MS, "of the platform", &w.err), &w.err);
	assert_ok(joblogs_add_sample(w.logs, JOB, 0, STR_LIT("{}"), &w.err), &w.err);
	assert_ok(joblogs_create(w.logs, JOB, 0, &w.err), &w.err);
	assert_int_equal(count_files(dir), n);
	assert_string_equal(page(&w, -1, 0, 0, 0, false), "0:o:a line|0:s:of the platform|");
	done(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_empty),
	cmocka_unit_test(test_order_and_merge),
	cmocka_unit_test(test_the_last_time),
	cmocka_unit_test(test_resend),
	cmocka_unit_test(test_pages_keep_milliseconds_whole),
	cmocka_unit_test(test_long_lines),
	cmocka_unit_test(test_read_and_tail),
	cmocka_unit_test(test_crash),
	cmocka_unit_test(test_a_log_that_was_full),
	cmocka_unit_test(test_many_jobs),
	cmocka_unit_test(test_samples),
	cmocka_unit_test(test_needs_no_new_files),
	cmocka_unit_test(test_threads),
};

UNIT_MAIN(tests)
