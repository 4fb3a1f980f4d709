/*
 * joblog_store_fixture.h - a runner with all its lines, servers over one store that start, die and
 * burn with their folder, and a look at what can be read.
 */
#ifndef JOBLOG_STORE_FIXTURE_H
#define JOBLOG_STORE_FIXTURE_H

#include "store/logs/joblog.h"
#include "store/logs/joblog_segment.h"
#include "unit.h"

#define MS ((int64_t)1000000)
#define JOB "abc1234"

/* The runner has all its lines, and sends from where the server says. */
struct runner {
	struct buf log;
	uint64_t sent;
	int64_t last_ns;
	unsigned lines;
};

struct server {
	char dir[64];
	struct joblogs *logs;
};

struct world {
	struct objstore *os;
	struct arena *a;
	struct err err;
	struct runner runner;
	uint32_t epoch;
	struct server now;
};

static inline void start(struct world *w, struct server *s, bool new_machine)
{
	if (new_machine) {
		FMT(s->dir, "/tmp/test-joblog-XXXXXX");
		assert_non_null(mkdtemp(s->dir));
	}
	assert_ok(joblogs_open(&s->logs, s->dir, &w->err), &w->err);
	joblogs_keep(s->logs, w->os, ++w->epoch, 0);
}

static inline void die(struct server *s)
{
	joblogs_close(s->logs);
	s->logs = NULL;
}

static inline void burn(struct world *w, struct server *s)
{
	if (s->logs != NULL)
		die(s);
	assert_ok(fs_remove_tree(AT_FDCWD, s->dir, &w->err), &w->err);
}

static inline void setup(struct world *w, const char *url)
{
	struct objstore_env env = {0};

	memset(w, 0, sizeof(*w));
	assert_ok(objstore_open(&w->os, url, &env, &w->err), &w->err);
	w->a = arena_new();
	w->runner.log = (struct buf)BUF_INIT((size_t)64 << 20);
	start(w, &w->now, true);
}

static inline void done(struct world *w)
{
	burn(w, &w->now);
	objstore_close(w->os);
	buf_done(&w->runner.log);
	arena_free(w->a);
}

static inline void print(struct world *w, unsigned n)
{
	struct runner *r = &w->runner;
	char text[40];

	for (unsigned i = 0; i < n; i++) {
		FMT(text, "line %u", r->lines);
		logline_write(&r->log, (int64_t)++r->lines * MS, &r->last_ns, 'o', str_of(text),
		              false);
	}
}

/* As run/report.c does it. False: the server could not. */
static inline bool deliver(struct world *w, struct server *s)
{
	struct runner *r = &w->runner;

	for (int tries = 0; tries < 5; tries++) {
		struct str rest = str_skip(buf_view(&r->log), (size_t)r->sent);

		if (joblogs_append(s->logs, JOB, "at0", 0, r->sent, rest, false, &r->sent,
		                   &w->err) == 0)
			return true;
		if (w->err.code != ERR_CONFLICT)
			break;
		err_clear(&w->err);
	}
	assert_true(err_info(&w->err)->retry);
	err_clear(&w->err);
	return false;
}

static inline bool say(struct world *w, struct server *s, const char *text)
{
	return joblogs_message(s->logs, JOB, (int64_t)w->runner.lines * MS, text, &w->err) == 0;
}

/* Stores what there is. False when the store failed. */
static inline bool store_once(struct world *w, struct server *s)
{
	bool did = true;

	assert_ok(joblogs_store_all(s->logs, false, &w->err), &w->err);
	while (did) {
		if (joblogs_store_next(s->logs, 0, &did, &w->err) < 0) {
			err_clear(&w->err);
			return false;
		}
	}
	return true;
}

static inline void store(struct world *w, struct server *s)
{
	do {
		(void)store_once(w, s);
	} while (joblogs_waiting(s->logs) > 0);
}

/* Lines of the job itself: each once, in order. Those of the platform are counted. */
static inline unsigned check_lines(struct world *w, struct server *s)
{
	struct joblog_line *line = NULL;
	unsigned seen = 0, others = 0;
	size_t n = 0;

	for (int tries = 0;; tries++) {
		if (joblogs_range(s->logs, w->a, JOB, -1, 0, 0, 0, false, &line, &n, &w->err) == 0)
			break;
		assert_true(tries < 3 && err_info(&w->err)->retry);
		err_clear(&w->err);
	}
	for (size_t i = 0; i < n; i++) {
		char want[40];

		assert_true(i == 0 || line[i - 1].ns < line[i].ns);
		if (line[i].stream == 's') {
			others++;
			continue;
		}
		FMT(want, "line %u", seen++);
		assert_string_equal(line[i].text, want);
	}
	assert_int_equal(seen, w->runner.lines);
	return others;
}

static inline size_t count_objects(struct world *w)
{
	struct segment *s;
	size_t n;

	assert_ok(segment_list(w->os, w->a, JOB, NULL, &s, &n, &w->err), &w->err);
	return n;
}

#endif
