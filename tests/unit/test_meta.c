/* test_meta.c - the rows over a real database: every noun, the guards that keep jobs honest, and
 * one life of a job with every statement made to fail in turn. STOKER_TEST_DATABASE is the URL of a
 * PostgreSQL; without it, a SQLite file. */
#include "unit.h"

#include "base/fs.h"
#include "meta/db.h"
#include "meta/meta.h"
#include "meta/move.h"
#include "meta/schema.h"

#include <libpq-fe.h>
#include <sqlite3.h>

#define URL_CAP 300

struct place {
	char dir[64], url[URL_CAP];
	struct arena *a;
	struct meta *m;
	struct err err;
};

static const char *postgres(void)
{
	return getenv("STOKER_TEST_DATABASE");
}

/* As an administrator does, beside the server. */
static void alter(const char *url, const char *sql)
{
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};
	struct err err = {0};

	assert_ok(db_open(&db, url, &err), &err);
	assert_ok(db_begin(db, DB_WRITE, &tx, &err), &err);
	assert_ok(db_script(&tx, sql, &err), &err);
	assert_ok(db_commit(&tx, &err), &err);
}

/* A database that is new: a file, or a schema. */
static void fresh(struct place *p, int number, char out[URL_CAP])
{
	char sql[100];

	if (postgres() == NULL) {
		(void)snprintf(out, URL_CAP, "sqlite:%s/%d.db", p->dir, number);
		return;
	}
	FMT(sql, "DROP SCHEMA IF EXISTS t%d CASCADE; CREATE SCHEMA t%d", number, number);
	alter(postgres(), sql);
	(void)snprintf(out, URL_CAP, "%s&options=-csearch_path%%3Dt%d", postgres(), number);
}

static int setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));

	FMT(p->dir, "/tmp/test_meta.XXXXXX");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	fresh(p, 0, p->url);
	p->a = arena_new();
	*state = p;
	assert_ok(meta_open(&p->m, p->url, &p->err), &p->err);
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	meta_close(p->m);
	arena_free(p->a);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	free(p);
	return 0;
}

static int add_team(struct meta *m, struct err *err)
{
	struct model_team t = {.id = "team001", .name = "Default", .is_default = true};

	return meta_team_add(m, &t, err);
}

static int add_project(struct meta *m, struct arena *a, struct model_project *out, struct err *err)
{
	struct model_project p = {.id = "proj001",
	                          .name = "demo",
	                          .team_id = "team001",
	                          .cache_quota_bytes = 1000,
	                          .created_ms = 5,
	                          .updated_ms = 5};

	return meta_project_upsert(m, a, &p, out, err);
}

static struct model_job a_job(const char *id)
{
	return (struct model_job){
		.id = id,
		.project_id = "proj001",
		.team_id = "team001",
		.core = {.state = JOB_PENDING, .attempt_max = 1},
		.spec_json = "{}",
		.document_json = "{\"as\":\"received\"}",
		.user = "tester",
		.created_ms = 100,
		.node_count = 1,
		.cpu_milli = 1000,
		.memory_bytes = 1 << 20,
	};
}

static int add_job(struct meta *m, struct arena *a, const char *id, const char *key,
                   struct model_job *out, struct err *err)
{
	struct model_job row = a_job(id);
	const char *code = "uploads/x.tgz";
	struct meta_new_job n = {.row = &row,
	                         .idempotency_key = key,
	                         .code_keys = &code,
	                         .n_code_keys = 1,
	                         .message = "pushed"};
	bool existing = false;

	return meta_job_add(m, a, &n, out, &existing, err);
}

static int step(struct meta *m, const char *job, enum job_event ev, struct err *err)
{
	struct model_attempt t = {.id = "att0001",
	                          .node = "n",
	                          .cluster = "local",
	                          .gpus = 1,
	                          .dir = "runs/att0001-0"};
	struct meta_step s = {
		.job_id = job, .event = ev, .now_ms = 200, .actor = "server", .message = "step"};
	enum job_state from, to;

	if (ev == JOB_EV_PLACE) {
		s.attempts = &t;
		s.n_attempts = 1;
		s.pin_cluster = "local";
	}
	if (ev == JOB_EV_RESOLVE)
		s.resolved_json = "{\"weights\":[]}";
	return meta_job_step(m, &s, &from, &to, err);
}

static void teams_and_tokens(void **state)
{
	struct place *p = *state;
	struct model_team t = {0}, *ts = NULL;
	struct model_token k = {.id = "tok0001",
	                        .name = "ci",
	                        .hash = "aa",
	                        .role = ROLE_MEMBER,
	                        .team_id = "team001",
	                        .created_ms = 1},
			   back = {0}, *ks = NULL;
	size_t n = 0;

	assert_err(meta_team(p->m, p->a, NULL, &t, &p->err), &p->err, ERR_TEAM_NOT_FOUND, "");
	assert_err(meta_token_add(p->m, &k, &p->err), &p->err, ERR_CONFLICT, "database: ");
	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_err(add_team(p->m, &p->err), &p->err, ERR_CONFLICT, "already");
	assert_ok(meta_team(p->m, p->a, NULL, &t, &p->err), &p->err);
	assert_string_equal(t.name, "Default");
	assert_ok(meta_token_add(p->m, &k, &p->err), &p->err);
	assert_ok(meta_token_used(p->m, "tok0001", 77, &p->err), &p->err);
	assert_ok(meta_token_by_hash(p->m, p->a, "aa", &back, &p->err), &p->err);
	assert_true(back.used_ms == 77 && back.role == ROLE_MEMBER);
	assert_err(meta_token_by_hash(p->m, p->a, "ab", &back, &p->err), &p->err, ERR_NOT_FOUND,
	           "");
	assert_ok(meta_tokens(p->m, p->a, "team001", &ks, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_ok(meta_tokens(p->m, p->a, "other", &ks, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_token_del(p->m, "tok0001", &p->err), &p->err);
	assert_err(meta_token_del(p->m, "tok0001", &p->err), &p->err, ERR_NOT_FOUND, "token");
	assert_err(meta_team_del(p->m, "team001", &p->err), &p->err, ERR_CONFLICT, "default");
	t = (struct model_team){.id = "team002", .name = "vision"};
	assert_ok(meta_team_add(p->m, &t, &p->err), &p->err);
	assert_ok(meta_teams(p->m, p->a, &ts, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_true(ts[0].is_default);
	assert_ok(meta_capacity_put(p->m, "team002", "H100", 4, &p->err), &p->err);
	assert_ok(meta_team_del(p->m, "team002", &p->err), &p->err);
}

static void secrets_keep_their_id(void **state)
{
	struct place *p = *state;
	struct meta_secret s = {.row = {.id = "sec0001",
	                                .name = "hf_token",
	                                .team_id = "team001",
	                                .created_ms = 1,
	                                .updated_ms = 1},
	                        .key = "hf-token",
	                        .version = "v1",
	                        .sealed = STR_LIT("\0sealed")};
	struct meta_secret got = {0};
	struct model_secret row = {0}, *rows = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_secret_put(p->m, p->a, &s, &row, &p->err), &p->err);
	s.row.id = "sec0002";
	s.row.name = "hf-token";
	s.row.updated_ms = 9;
	s.version = "v2";
	assert_ok(meta_secret_put(p->m, p->a, &s, &row, &p->err), &p->err);
	assert_string_equal(row.id, "sec0001");
	assert_string_equal(row.name, "hf-token");
	assert_int_equal(row.updated_ms, 9);
	assert_ok(meta_secret(p->m, p->a, "team001", "hf-token", &got, &p->err), &p->err);
	assert_string_equal(got.version, "v2");
	assert_int_equal(got.sealed.n, 7);
	assert_err(meta_secret(p->m, p->a, "team002", "hf-token", &got, &p->err), &p->err,
	           ERR_NOT_FOUND, "secret");
	assert_ok(meta_secrets(p->m, p->a, "team001", &rows, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_ok(meta_secret_del(p->m, "team001", "hf-token", &p->err), &p->err);
	assert_err(meta_secret_del(p->m, "team001", "hf-token", &p->err), &p->err, ERR_NOT_FOUND,
	           "secret");
}

static void jobs_are_named_and_keyed(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0}, *list = NULL;
	struct meta_query q = {.project_id = "proj001", .states = 1U << JOB_PENDING};
	struct model_event *ev = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_err(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err, ERR_NOT_FOUND,
	           "project");
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_null(pr.latest_job_id);
	assert_ok(add_job(p->m, p->a, "job0001", "k1", &j, &p->err), &p->err);
	assert_string_equal(j.name, "job-1");
	assert_string_equal(j.project_name, "demo");
	/* the same key again is the same job, and counts no name */
	assert_ok(add_job(p->m, p->a, "job0002", "k1", &j, &p->err), &p->err);
	assert_string_equal(j.id, "job0001");
	assert_ok(add_job(p->m, p->a, "job0003", "k2", &j, &p->err), &p->err);
	assert_string_equal(j.name, "job-2");
	assert_ok(meta_jobs(p->m, p->a, &q, &list, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(list[0].id, "job0003");
	q = (struct meta_query){.states = 1U << JOB_RUNNING};
	assert_ok(meta_jobs(p->m, p->a, &q, &list, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_events(p->m, p->a, "job0001", 0, &ev, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_string_equal(ev[0].to, "pending");
	assert_ok(meta_project(p->m, p->a, "proj001", &pr, &p->err), &p->err);
	assert_string_equal(pr.latest_job_id, "job0003");
}

#define MANY 40

static bool asked_for(const struct meta_query *q, const struct model_job *j)
{
	return (q->user == NULL || strcmp(q->user, j->user) == 0) &&
	       (q->project_id == NULL || strcmp(q->project_id, j->project_id) == 0) &&
	       (q->team_id == NULL || strcmp(q->team_id, j->team_id) == 0) &&
	       (q->name == NULL || strcmp(q->name, j->name) == 0) &&
	       (q->prefix == NULL || str_starts(str_of(j->id), q->prefix)) &&
	       (q->states == 0 || (q->states >> j->core.state & 1) != 0);
}

/* Page by page, against a plain look at all jobs, oldest first. */
static void assert_lists(struct place *p, struct meta_query q, const struct model_job *all)
{
	struct model_job *page = NULL;
	uint64_t total = 0;
	size_t n = 1, found = 0;

	q.limit = 3;
	for (size_t i = 0; i < MANY; i++) {
		const struct model_job *j = &all[q.ascending ? i : MANY - 1 - i];

		if (!asked_for(&q, j))
			continue;
		if (found++ % q.limit == 0)
			assert_ok(meta_jobs(p->m, p->a, &q, &page, &n, &p->err), &p->err);
		assert_true((found - 1) % q.limit < n);
		assert_string_equal(page[(found - 1) % q.limit].id, j->id);
		q.after_ms = page[n - 1].created_ms;
		q.after_row = page[n - 1].row;
	}
	assert_ok(meta_jobs(p->m, p->a, &q, &page, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_jobs_count(p->m, &q, &total, &p->err), &p->err);
	assert_int_equal(total, found);
}

/* Each question has an index of its own; all of them say the same. */
static void jobs_are_listed_by_whatever_is_asked(void **state)
{
	struct place *p = *state;
	struct model_team other = {.id = "team002", .name = "Other"};
	struct model_project pr = {0},
			     second = {.id = "proj002", .name = "x", .team_id = "team002"};
	struct model_job all[MANY] = {0};
	uint32_t active = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++)
		active |= job_state_is_final((enum job_state)s) ? 0 : UINT32_C(1) << s;
	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_team_add(p->m, &other, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(meta_project_upsert(p->m, p->a, &second, &pr, &p->err), &p->err);
	for (size_t i = 0; i < MANY; i++) {
		struct model_job row = a_job(arena_printf(p->a, "job%04zu", (i * 7) % MANY));
		struct meta_new_job n = {.row = &row, .message = "pushed"};
		bool existing = false;

		row.created_ms = 100 + (int64_t)i / 4; /* four at the same time */
		row.user = i % 3 == 0 ? "ann" : "bob";
		row.project_id = i % 5 < 2 ? "proj001" : "proj002";
		row.team_id = i % 5 < 2 ? "team001" : "team002";
		row.name = i % 2 == 0 ? "even" : NULL;
		assert_ok(meta_job_add(p->m, p->a, &n, &all[i], &existing, &p->err), &p->err);
		if (i % 4 != 1)
			continue;
		assert_ok(step(p->m, all[i].id, JOB_EV_STOP, &p->err), &p->err);
		assert_ok(meta_job(p->m, p->a, all[i].id, &all[i], &p->err), &p->err);
		assert_int_equal(all[i].core.state, JOB_STOPPED);
	}
	for (unsigned shape = 0; shape < 256; shape++) {
		const uint32_t states[] = {0, active, UINT32_C(1) << JOB_PENDING,
		                           active | UINT32_C(1) << JOB_STOPPED};
		struct meta_query q = {
			.user = (shape & 1) != 0 ? "ann" : NULL,
			.project_id = (shape & 2) != 0 ? "proj002" : NULL,
			.team_id = (shape & 4) != 0 ? "team002" : NULL,
			.ascending = (shape & 8) != 0,
			.name = (shape & 64) != 0 ? "even" : NULL,
			.prefix = (shape & 128) != 0 ? "job001" : NULL,
			.states = states[shape / 16 % 4],
		};

		assert_lists(p, q, all);
	}
	assert_ok(meta_check(p->m, &p->err), &p->err);
}

static uint64_t jobs_in(struct place *p, enum job_state state)
{
	const struct meta_query q = {.team_id = "team001", .states = UINT32_C(1) << state};
	struct meta_counts counts;
	int64_t waiting = -1;
	uint64_t n = 0;

	assert_ok(meta_jobs_count(p->m, &q, &n, &p->err), &p->err);
	assert_ok(meta_counts(p->m, &counts, &p->err), &p->err);
	assert_int_equal(counts.by_state[state], n);
	assert_ok(meta_waiting_of_team(p->m, "team001", &waiting, &p->err), &p->err);
	assert_true(state != JOB_PENDING || (uint64_t)waiting == n);
	assert_ok(meta_check(p->m, &p->err), &p->err);
	return n;
}

static void jobs_are_counted_as_they_change(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_int_equal(jobs_in(p, JOB_PENDING), 0);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0002", NULL, &j, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0003", NULL, &j, &p->err), &p->err);
	assert_int_equal(jobs_in(p, JOB_PENDING), 3);
	assert_ok(step(p->m, "job0001", JOB_EV_STOP, &p->err), &p->err);
	assert_ok(step(p->m, "job0002", JOB_EV_STOP, &p->err), &p->err);
	assert_err(step(p->m, "job0002", JOB_EV_STOP, &p->err), &p->err, ERR_CONFLICT, "stopped");
	assert_int_equal(jobs_in(p, JOB_PENDING), 1);
	assert_int_equal(jobs_in(p, JOB_STOPPED), 2);
	assert_err(meta_job_del(p->m, "job0003", &p->err), &p->err, ERR_CONFLICT, "active");
	assert_ok(meta_job_del(p->m, "job0001", &p->err), &p->err);
	assert_int_equal(jobs_in(p, JOB_PENDING), 1);
	assert_int_equal(jobs_in(p, JOB_STOPPED), 1);
	meta_close(TAKE(p->m));
	alter(p->url, "UPDATE job_counts SET n = n + 1 WHERE state = 'stopped'");
	assert_ok(meta_open(&p->m, p->url, &p->err), &p->err);
	assert_err(meta_check(p->m, &p->err), &p->err, ERR_CORRUPT, "job_counts");
	assert_ok(step(p->m, "job0003", JOB_EV_STOP, &p->err), &p->err);
	assert_ok(meta_project_del(p->m, "proj001", &p->err), &p->err);
	assert_int_equal(jobs_in(p, JOB_STOPPED), 0);
}

static void a_job_is_stepped_once(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	struct model_attempt *t = NULL;
	size_t n = 0;
	bool all = false, first = false;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	assert_err(step(p->m, "job0001", JOB_EV_READY, &p->err), &p->err, ERR_CONFLICT, "pending");
	assert_err(step(p->m, "nothere", JOB_EV_STOP, &p->err), &p->err, ERR_NOT_FOUND, "job");
	assert_ok(step(p->m, "job0001", JOB_EV_PLACE, &p->err), &p->err);
	assert_err(step(p->m, "job0001", JOB_EV_PLACE, &p->err), &p->err, ERR_CONFLICT, "created");
	assert_ok(meta_project(p->m, p->a, "proj001", &pr, &p->err), &p->err);
	assert_string_equal(pr.pinned_cluster, "local");

	assert_ok(meta_attempt_launching(p->m, "att0001", 0, "hash1", 210, &p->err), &p->err);
	assert_err(meta_attempt_claim(p->m, "att0001", 0, "n1", 220, &p->err), &p->err,
	           ERR_CONFLICT, "over"); /* not deploying yet */
	assert_ok(step(p->m, "job0001", JOB_EV_RESOLVE, &p->err), &p->err);
	assert_ok(meta_attempt_claim(p->m, "att0001", 0, "n1", 220, &p->err), &p->err);
	assert_ok(meta_attempt_claim(p->m, "att0001", 0, "n1", 230, &p->err), &p->err);
	assert_err(meta_attempt_claim(p->m, "att0001", 0, "n2", 230, &p->err), &p->err,
	           ERR_CONFLICT, "another");
	assert_err(meta_attempt_launching(p->m, "att0001", 0, "hash2", 231, &p->err), &p->err,
	           ERR_CONFLICT, "claimed");
	assert_ok(meta_attempt_ready(p->m, "att0001", 0, &all, &p->err), &p->err);
	assert_true(all);
	assert_ok(step(p->m, "job0001", JOB_EV_READY, &p->err), &p->err);
	assert_ok(meta_attempt_claim(p->m, "att0001", 0, "n1", 240, &p->err), &p->err);
	assert_ok(meta_attempt_exit(p->m, "att0001", 0, "{}", 250, &first, &p->err), &p->err);
	assert_true(first);
	assert_ok(meta_attempt_exit(p->m, "att0001", 0, "{\"late\":1}", 260, &first, &p->err),
	          &p->err);
	assert_false(first);
	assert_err(meta_attempt_claim(p->m, "att0001", 0, "n1", 270, &p->err), &p->err,
	           ERR_CONFLICT, "over");
	assert_err(meta_job_del(p->m, "job0001", &p->err), &p->err, ERR_CONFLICT, "active");
	assert_ok(step(p->m, "job0001", JOB_EV_EXIT_OK, &p->err), &p->err);
	assert_err(step(p->m, "job0001", JOB_EV_STOP, &p->err), &p->err, ERR_CONFLICT, "completed");

	assert_ok(meta_attempts(p->m, p->a, NULL, &t, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_string_equal(t[0].exit_json, "{}");
	assert_int_equal(t[0].claimed_ms, 220);
	assert_ok(meta_attempt_done(p->m, "att0001", 0, 300, &p->err), &p->err);
	assert_ok(meta_attempts(p->m, p->a, NULL, &t, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_attempts(p->m, p->a, "job0001", &t, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_ok(meta_check(p->m, &p->err), &p->err);
}

static void a_late_attempt_changes_nothing(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	struct meta_step s = {.job_id = "job0001",
	                      .event = JOB_EV_EXIT_BAD,
	                      .now_ms = 300,
	                      .attempt_id = "older",
	                      .actor = "runner",
	                      .message = "late"};
	enum job_state from, to;
	bool has = false;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	assert_ok(step(p->m, "job0001", JOB_EV_PLACE, &p->err), &p->err);
	assert_err(meta_job_step(p->m, &s, &from, &to, &p->err), &p->err, ERR_CONFLICT, "current");
	s.attempt_id = "att0001";
	s.end = JOB_END_DEPLOY_FAILED;
	s.error_message = "no such repository";
	assert_ok(meta_job_step(p->m, &s, &from, &to, &p->err), &p->err);
	assert_int_equal(to, JOB_DEPLOY_FAILED);
	assert_ok(meta_job_has(p->m, "job0001", &has, &p->err), &p->err);
	assert_true(has);
	assert_ok(meta_job_has(p->m, "job0000", &has, &p->err), &p->err);
	assert_false(has);
	assert_ok(meta_job(p->m, p->a, "job0001", &j, &p->err), &p->err);
	assert_string_equal(j.error_message, "no such repository");
	assert_int_equal(j.end, JOB_END_DEPLOY_FAILED);
}

static void deleting_leaves_trash(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	struct model_checkpoint c = {.job_id = "job0001",
	                             .name = "checkpoint-1",
	                             .kind = "full",
	                             .state = CKPT_COMPLETE,
	                             .bytes = 5},
				*cs = NULL;
	struct meta_trash *t = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	assert_ok(meta_checkpoint_put(p->m, &c, &p->err), &p->err);
	c.bytes = 6;
	assert_ok(meta_checkpoint_put(p->m, &c, &p->err), &p->err);
	assert_ok(meta_checkpoints(p->m, p->a, "job0001", &cs, &n, &p->err), &p->err);
	assert_true(n == 1 && cs[0].bytes == 6 && cs[0].state == CKPT_COMPLETE);
	assert_err(meta_project_del(p->m, "proj001", &p->err), &p->err, ERR_CONFLICT, "active");
	assert_ok(step(p->m, "job0001", JOB_EV_STOP, &p->err), &p->err);
	assert_ok(meta_project_del(p->m, "proj001", &p->err), &p->err);
	assert_err(meta_job(p->m, p->a, "job0001", &j, &p->err), &p->err, ERR_NOT_FOUND, "job");
	assert_ok(meta_trash(p->m, p->a, &t, &n, &p->err), &p->err);
	assert_int_equal(n, 4);
	assert_string_equal(t[0].what, "training_projects/proj001/jobs/job0001/");
	assert_ok(meta_trash_done(p->m, t[0].id, &p->err), &p->err);
	assert_ok(meta_trash(p->m, p->a, &t, &n, &p->err), &p->err);
	assert_int_equal(n, 3);
}

/* Of one moment, by the numbers in their names; ranks together. */
static void checkpoints_have_one_order(void **state)
{
	static const char *const names[] = {"checkpoint-10", "checkpoint-9", "checkpoint-100"};
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	struct model_checkpoint *cs = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	for (uint32_t i = 0; i < 2 * COUNT(names); i++) {
		struct model_checkpoint c = {.job_id = "job0001",
		                             .name = names[i / 2],
		                             .rank = 1 - i % 2,
		                             .kind = "full",
		                             .created_ms = 5};

		assert_ok(meta_checkpoint_put(p->m, &c, &p->err), &p->err);
	}
	assert_ok(meta_checkpoints(p->m, p->a, "job0001", &cs, &n, &p->err), &p->err);
	assert_int_equal(n, 6);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(cs[i].rank, i % 2);
	assert_string_equal(cs[0].name, "checkpoint-9");
	assert_string_equal(cs[2].name, "checkpoint-10");
	assert_string_equal(cs[4].name, "checkpoint-100");
}

/* A runner that was taken over is bounded by what it has told. */
static void what_a_runner_told_is_counted(void **state)
{
	struct model_event e = {.ms = 1, .kind = "k", .actor = "runner", .message = "m"};
	struct model_checkpoint c = {
		.job_id = "job0001", .name = "a", .kind = "full", .created_ms = 5};
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	uint64_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	for (int i = 0; i < 3; i++)
		assert_ok(meta_event_add(p->m, "job0001", &e, &p->err), &p->err);
	assert_ok(meta_events_count(p->m, "job0001", "runner", &n, &p->err), &p->err);
	assert_int_equal(n, 3); /* and not the one of its push */
	assert_ok(meta_checkpoint_put(p->m, &c, &p->err), &p->err);
	c.name = "b";
	assert_ok(meta_checkpoints_beside(p->m, &c, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	c.rank = 1;
	assert_ok(meta_checkpoints_beside(p->m, &c, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	c.rank = 0;
	assert_ok(meta_checkpoint_put(p->m, &c, &p->err), &p->err);
	assert_ok(meta_checkpoints_beside(p->m, &c, &n, &p->err), &p->err);
	assert_int_equal(n, 0); /* it has its place */
}

/* A job that has ended: nothing is on its way any more, to a complete one neither. */
static void abandoned_with_the_job(void **state)
{
	struct place *p = *state;
	struct model_project pr = {0};
	struct model_job j = {0};
	struct model_checkpoint c[2] = {{.job_id = "job0001",
	                                 .name = "checkpoint-1",
	                                 .kind = "full",
	                                 .state = CKPT_COMPLETE,
	                                 .reason = "complete: x",
	                                 .updating = "syncing: waiting for node 1"},
	                                {.job_id = "job0001",
	                                 .name = "checkpoint-2",
	                                 .kind = "full",
	                                 .reason = "syncing: y"}},
				*cs = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	assert_ok(meta_checkpoints_put(p->m, c, 2, &p->err), &p->err);
	assert_ok(meta_checkpoints_abandon(p->m, "job0001", &p->err), &p->err);
	assert_ok(meta_checkpoints(p->m, p->a, "job0001", &cs, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_int_equal(cs[0].state, CKPT_COMPLETE);
	assert_string_equal(cs[0].reason, "complete: x");
	assert_string_equal(cs[0].updating, "incomplete: waiting for node 1");
	assert_int_equal(cs[1].state, CKPT_INCOMPLETE);
	assert_string_equal(cs[1].reason, "incomplete: y");
	/* all of them or none */
	c[0].revision = 2;
	c[1].job_id = "job0002";
	assert_err(meta_checkpoints_put(p->m, c, 2, &p->err), &p->err, ERR_CONFLICT, "");
	assert_ok(meta_checkpoints(p->m, p->a, "job0001", &cs, &n, &p->err), &p->err);
	assert_int_equal(cs[0].revision, 0);
}

static void mirrors_uploads_snapshots(void **state)
{
	struct place *p = *state;
	struct model_mirror x = {.id = "mir0001",
	                         .team_id = "team001",
	                         .source = "hf://a/b",
	                         .revision = "abc",
	                         .filter_json = "{}",
	                         .created_ms = 1},
			    y = {0};
	struct model_upload u = {.access_key = "AK",
	                         .key = "uploads/y.tgz",
	                         .team_id = "team001",
	                         .created_ms = 10,
	                         .expires_ms = 20},
			    v = {0};
	struct model_cache_snapshot s = {.scope = "project",
	                                 .scope_id = "proj001",
	                                 .ms = 3,
	                                 .bytes = 4,
	                                 .files = 1,
	                                 .summary_file = "f"},
				    w = {0};
	struct model_upload *unused = NULL;
	size_t n_unused = 0;
	struct str sealed = {0};
	uint64_t swept = 0;
	bool used = true;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	assert_err(meta_mirror_del(p->m, "mir0001", &p->err), &p->err, ERR_CONFLICT, "fetched");
	x.id = "mir0002";
	x.state = MIRROR_READY;
	x.manifest = "ff";
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	assert_string_equal(y.id, "mir0001");
	assert_ok(meta_manifest_used(p->m, "ff", &used, &p->err), &p->err);
	assert_true(used);
	assert_ok(meta_mirror_del(p->m, "mir0001", &p->err), &p->err);
	assert_ok(meta_manifest_used(p->m, "ff", &used, &p->err), &p->err);
	assert_false(used);
	assert_ok(meta_upload_add(p->m, &u, STR_LIT("x"), &p->err), &p->err);
	assert_ok(meta_upload(p->m, p->a, "AK", &v, &sealed, &p->err), &p->err);
	assert_string_equal(v.key, "uploads/y.tgz");
	assert_int_equal(sealed.n, 1);
	assert_ok(meta_uploads_unused(p->m, p->a, 15, &unused, &n_unused, &p->err), &p->err);
	assert_int_equal(n_unused, 0);
	assert_ok(meta_uploads_unused(p->m, p->a, 25, &unused, &n_unused, &p->err), &p->err);
	assert_int_equal(n_unused, 1);
	assert_string_equal(unused[0].key, "uploads/y.tgz");
	assert_null(unused[0].secret_key);
	assert_ok(meta_uploads_sweep(p->m, 15, &swept, &p->err), &p->err);
	assert_int_equal(swept, 0);
	assert_ok(meta_upload_reused(p->m, "uploads/y.tgz", 30, &p->err), &p->err);
	assert_ok(meta_uploads_sweep(p->m, 25, &swept, &p->err), &p->err);
	assert_int_equal(swept, 0); /* a push is about to name it again */
	assert_ok(meta_uploads_sweep(p->m, 31, &swept, &p->err), &p->err);
	assert_int_equal(swept, 1);
	assert_err(meta_upload_reused(p->m, "uploads/y.tgz", 40, &p->err), &p->err,
	           ERR_UPLOAD_NOT_FOUND, "");
	assert_err(meta_snapshot(p->m, p->a, "project", "proj001", &w, &p->err), &p->err,
	           ERR_SUMMARY_NOT_FOUND, "");
	assert_ok(meta_snapshot_put(p->m, &s, &p->err), &p->err);
	s.bytes = 8;
	assert_ok(meta_snapshot_put(p->m, &s, &p->err), &p->err);
	assert_ok(meta_snapshot(p->m, p->a, "project", "proj001", &w, &p->err), &p->err);
	assert_int_equal(w.bytes, 8);
}

static bool is_used(struct place *p, const char *manifest)
{
	bool used = false;

	assert_ok(meta_manifest_used(p->m, manifest, &used, &p->err), &p->err);
	return used;
}

/* Two names of one manifest: it goes with both of them, and with nothing less. */
static void refs_name_what_is_kept(void **state)
{
	struct place *p = *state;
	struct model_ref hub = {.team_id = "",
	                        .kind = META_REF_HUB,
	                        .name = "models/a/b@0123",
	                        .manifest = "aa",
	                        .bytes = 7,
	                        .files = 1,
	                        .created_ms = 5,
	                        .used_ms = 50},
			 back = {0}, *all = NULL;
	struct model_mirror x = {.id = "mir0001",
	                         .team_id = "team001",
	                         .source = "hf://a/b",
	                         .revision = "0123",
	                         .filter_json = "{}",
	                         .manifest = "aa",
	                         .state = MIRROR_READY,
	                         .bytes_total = 7,
	                         .created_ms = 6,
	                         .used_ms = 60},
			    y = {0};
	struct model_hub_rev rev = {"", "models/a/b", "main", "0123", 9}, seen = {0}, *revs = NULL;
	struct meta_idle *idle = NULL;
	bool evicted = false;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_ref_put(p->m, &hub, &p->err), &p->err);
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	assert_string_equal(y.manifest, "aa");
	assert_ok(meta_refs_idle(p->m, p->a, &idle, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_int_equal(idle[0].used_ms, 60);
	assert_string_equal(idle[0].source, "models/a/b@0123");
	assert_ok(meta_mirror_del(p->m, "mir0001", &p->err), &p->err);
	assert_true(is_used(p, "aa"));
	/* more of the repository was fetched: the ref moves, the old manifest is nobody's */
	hub.manifest = "bb";
	hub.used_ms = 40;
	assert_ok(meta_ref_put(p->m, &hub, &p->err), &p->err);
	assert_false(is_used(p, "aa"));
	assert_ok(meta_ref(p->m, p->a, "", META_REF_HUB, hub.name, &back, &p->err), &p->err);
	assert_string_equal(back.manifest, "bb");
	assert_int_equal(back.used_ms, 50);
	assert_ok(meta_manifest_touch(p->m, "bb", 70, &p->err), &p->err);
	assert_ok(meta_refs(p->m, p->a, NULL, META_REF_HUB, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_int_equal(all[0].used_ms, 70);
	/* the last name goes, and with it what it named; one that is being fetched does not */
	x.manifest = "bb";
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	x.manifest = NULL;
	x.state = MIRROR_FETCHING;
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	assert_ok(meta_manifest_evict(p->m, "bb", &evicted, &p->err), &p->err);
	assert_false(evicted);
	x.state = MIRROR_READY;
	assert_ok(meta_mirror_put(p->m, p->a, &x, &y, &p->err), &p->err);
	assert_ok(meta_manifest_evict(p->m, "bb", &evicted, &p->err), &p->err);
	assert_true(evicted && !is_used(p, "bb"));
	assert_err(meta_mirror(p->m, p->a, y.id, &y, &p->err), &p->err, ERR_WEIGHTS_NOT_FOUND, "");
	assert_err(meta_ref_del(p->m, "", META_REF_HUB, hub.name, &p->err), &p->err, ERR_NOT_FOUND,
	           "");
	assert_ok(meta_hub_rev_put(p->m, &rev, &p->err), &p->err);
	rev.commit = "4567";
	assert_ok(meta_hub_rev_put(p->m, &rev, &p->err), &p->err);
	assert_ok(meta_hub_rev(p->m, p->a, "", "models/a/b", "main", &seen, &p->err), &p->err);
	assert_string_equal(seen.commit, "4567");
	assert_ok(meta_hub_revs(p->m, p->a, "", "models/a/b", &revs, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_ok(meta_hub_rev_del(p->m, "", "models/a/b", "main", &p->err), &p->err);
	assert_err(meta_hub_rev(p->m, p->a, "", "models/a/b", "main", &seen, &p->err), &p->err,
	           ERR_NOT_FOUND, "");
}

static struct model_ref repo_file(const char *kind, const char *name, const char *manifest,
                                  uint64_t bytes)
{
	return (struct model_ref){.team_id = "team001",
	                          .kind = kind,
	                          .name = name,
	                          .manifest = manifest,
	                          .bytes = bytes,
	                          .files = 1,
	                          .created_ms = 5,
	                          .used_ms = 5};
}

static uint64_t repos_hold(struct place *p)
{
	uint64_t bytes = 0;

	assert_ok(meta_repos_bytes(p->m, "team001", &bytes, &p->err), &p->err);
	return bytes;
}

static const char *const commits[] = {"1111111111111111111111111111111111111111",
                                      "2222222222222222222222222222222222222222"};

/* A repository of one commit. */
static void repo_made(struct place *p, const char *id, const char *key, const char *owner,
                      const char *name)
{
	struct model_repo r = {.id = id,
	                       .team_id = "team001",
	                       .type = "models",
	                       .owner = owner,
	                       .name = name,
	                       .bytes = 10,
	                       .created_ms = 5,
	                       .updated_ms = 5};
	struct model_repo_commit c = {.repo_id = id,
	                              .commit = commits[0],
	                              .title = "first",
	                              .message = "",
	                              .author = "a",
	                              .ms = 5};
	struct model_ref files =
		repo_file(META_REF_REPO, arena_printf(p->a, "%s@%s", id, commits[0]), "m1", 10);

	assert_ok(meta_repo_add(p->m, &r, key, &c, &files, &p->err), &p->err);
}

static void repositories_are_committed_to(void **state)
{
	struct place *p = *state;
	struct model_repo_commit c = {.repo_id = "repo001",
	                              .commit = commits[1],
	                              .parent = commits[0],
	                              .title = "second",
	                              .message = "",
	                              .author = "a",
	                              .ms = 9},
				 *log = NULL;
	const char *uploads[] = {"repo001/aa"};
	struct model_ref files = repo_file(META_REF_REPO, "repo001@two", "m2", 30);
	struct model_ref kept = repo_file(META_REF_LFS, "repo001/aa", "u1", 100);
	struct model_ref left = repo_file(META_REF_LFS, "repo001/bb", "u2", 1000);
	struct meta_repo_change change = {.commit = &c,
	                                  .files = &files,
	                                  .branch = "main",
	                                  .head = commits[1],
	                                  .bytes = 20,
	                                  .quota = 2000,
	                                  .team_id = "team001",
	                                  .uploads = uploads,
	                                  .n_uploads = 1};
	struct model_repo_ref ref = {"repo001", REPO_TAG, "v1", commits[1]};
	struct model_repo r = {0};
	uint64_t swept = 0, length = 0;
	bool moved = false, evicted = true;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	repo_made(p, "repo001", "models/vision/cat", "Vision", "Cat");
	assert_ok(meta_repo_upload(p->m, "repo001", &kept, 2000, &p->err), &p->err);
	assert_ok(meta_repo_upload(p->m, "repo001", &kept, 2000, &p->err), &p->err);
	assert_ok(meta_repo_upload(p->m, "repo001", &left, 2000, &p->err), &p->err);
	left.created_ms = left.used_ms = 50; /* a second time it is new again, and counts no more */
	assert_ok(meta_repo_upload(p->m, "repo001", &left, 2000, &p->err), &p->err);
	assert_int_equal(repos_hold(p), 10 + 100 + 1000);
	assert_err(meta_repo_commit(p->m, &change, &p->err), &p->err, ERR_HUB_STALE, "main");
	assert_int_equal(repos_hold(p), 1110);
	change.head = commits[0];
	change.quota = 1129;
	assert_err(meta_repo_commit(p->m, &change, &p->err), &p->err, ERR_REPO_QUOTA_EXCEEDED,
	           "over its quota");
	change.quota = 1130;
	assert_ok(meta_repo_commit(p->m, &change, &p->err), &p->err);
	assert_int_equal(repos_hold(p), 1130);
	assert_ok(meta_repo_log(p->m, p->a, "repo001", commits[1], 0, 10, &log, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(log[1].title, "first");
	assert_ok(meta_repo_commit_begins(p->m, p->a, "repo001", "2222", log, &p->err), &p->err);
	assert_string_equal(log[0].title, "second");
	assert_err(meta_repo_commit_begins(p->m, p->a, "repo001", "", log, &p->err), &p->err,
	           ERR_HUB_REVISION_NOT_FOUND, "");
	assert_err(meta_repo_commit_begins(p->m, p->a, "repo001", "3", log, &p->err), &p->err,
	           ERR_HUB_REVISION_NOT_FOUND, "");
	assert_ok(meta_repo_log(p->m, p->a, "repo001", commits[1], 1, 10, &log, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 1);
	for (size_t i = 0; i < 2; i++) {
		assert_ok(meta_repo_log_length(p->m, "repo001", commits[i], &length, &p->err),
		          &p->err);
		assert_int_equal(length, i + 1);
	}
	/* what a commit names stays, what none names is forgotten, and nothing is evicted */
	assert_ok(meta_repo_uploads_sweep(p->m, 50, &swept, &p->err), &p->err);
	assert_int_equal(swept, 0);
	assert_ok(meta_repo_uploads_sweep(p->m, 100, &swept, &p->err), &p->err);
	assert_int_equal(swept, 1);
	assert_int_equal(repos_hold(p), 130);
	assert_true(is_used(p, "u1") && !is_used(p, "u2"));
	assert_ok(meta_manifest_evict(p->m, "m2", &evicted, &p->err), &p->err);
	assert_false(evicted);
	/* a tag */
	assert_ok(meta_repo_ref_add(p->m, &ref, &p->err), &p->err);
	assert_err(meta_repo_ref_add(p->m, &ref, &p->err), &p->err, ERR_HUB_REF_EXISTS,
	           "refs/tags/v1");
	ref.name = "v2";
	ref.commit = "none";
	assert_err(meta_repo_ref_add(p->m, &ref, &p->err), &p->err, ERR_HUB_REVISION_NOT_FOUND, "");
	assert_err(meta_repo_ref_del(p->m, &ref, &p->err), &p->err, ERR_HUB_REVISION_NOT_FOUND, "");
	/* all of it goes, and with it what it named */
	assert_ok(meta_repo_by_key(p->m, p->a, "models/vision/cat", &r, &moved, &p->err), &p->err);
	assert_string_equal(r.owner, "Vision");
	assert_ok(meta_repo_del(p->m, r.id, &p->err), &p->err);
	assert_false(is_used(p, "m1") || is_used(p, "m2") || is_used(p, "u1"));
	assert_err(meta_repo_del(p->m, r.id, &p->err), &p->err, ERR_HUB_REPO_NOT_FOUND, "");
}

/* With all but uploads that no commit has named, and from then on for itself. */
static void repositories_are_copied(void **state)
{
	struct place *p = *state;
	struct model_repo_commit c = {.repo_id = "repo001",
	                              .commit = commits[1],
	                              .parent = commits[0],
	                              .title = "second",
	                              .message = "",
	                              .author = "a",
	                              .ms = 9},
				 *log = NULL;
	const char *uploads[] = {"repo001/aa"};
	struct model_ref files = repo_file(META_REF_REPO, "repo001@two", "m2", 30);
	struct model_ref named = repo_file(META_REF_LFS, "repo001/aa", "u1", 100);
	struct model_ref left = repo_file(META_REF_LFS, "repo001/bb", "u2", 1000);
	struct meta_repo_change change = {.commit = &c,
	                                  .files = &files,
	                                  .branch = "main",
	                                  .head = commits[0],
	                                  .bytes = 20,
	                                  .team_id = "team001",
	                                  .uploads = uploads,
	                                  .n_uploads = 1};
	struct model_repo_ref tag = {"repo001", REPO_TAG, "v1", commits[0]}, *refs = NULL;
	struct model_repo from = {0}, to;
	struct model_ref *held = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	repo_made(p, "repo001", "models/ann/cat", "ann", "cat");
	assert_ok(meta_repo_upload(p->m, "repo001", &named, 0, &p->err), &p->err);
	assert_ok(meta_repo_upload(p->m, "repo001", &left, 0, &p->err), &p->err);
	assert_ok(meta_repo_commit(p->m, &change, &p->err), &p->err);
	assert_ok(meta_repo_ref_add(p->m, &tag, &p->err), &p->err);
	assert_ok(meta_repo(p->m, p->a, "repo001", &from, &p->err), &p->err);
	to = from;
	to.id = "repo002";
	assert_err(meta_repo_copy(p->m, &from, &to, "models/ann/cat", 0, &p->err), &p->err,
	           ERR_HUB_REPO_EXISTS, "ann/cat");
	assert_err(meta_repo_copy(p->m, &from, &to, "models/ann/dog", 1130 + 129, &p->err), &p->err,
	           ERR_REPO_QUOTA_EXCEEDED, "with 130 B more");
	assert_int_equal(repos_hold(p), 1130);
	assert_ok(meta_repo_copy(p->m, &from, &to, "models/ann/dog", 1130 + 130, &p->err), &p->err);
	assert_int_equal(to.bytes, 130);
	assert_int_equal(repos_hold(p), 1130 + 130);
	assert_ok(meta_repo_log(p->m, p->a, "repo002", commits[1], 0, 10, &log, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(log[1].title, "first");
	assert_ok(meta_repo_refs(p->m, p->a, "repo002", &refs, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(refs[1].name, "v1");
	assert_ok(meta_repo_uploads(p->m, p->a, &to, 0, 10, &held, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_string_equal(held[0].name, "repo002/aa");
	assert_ok(meta_repo_del(p->m, "repo001", &p->err), &p->err);
	assert_true(is_used(p, "m1") && is_used(p, "m2") && is_used(p, "u1"));
	assert_false(is_used(p, "u2"));
	assert_err(meta_repo_copy(p->m, &from, &to, "models/ann/owl", 0, &p->err), &p->err,
	           ERR_HUB_REPO_NOT_FOUND, "");
	assert_ok(meta_repo_del(p->m, "repo002", &p->err), &p->err);
	assert_false(is_used(p, "m1") || is_used(p, "m2") || is_used(p, "u1"));
}

static void repositories_are_moved(void **state)
{
	struct place *p = *state;
	struct meta_repo_query q = {.team_id = "team001", .search = "dog", .limit = 10};
	struct model_repo r = {0}, *all = NULL;
	bool moved = false;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	repo_made(p, "repo001", "models/vision/cat", "vision", "cat");
	assert_err(meta_team_add(p->m, &(struct model_team){.id = "team002", .name = "Vision"},
	                         &p->err),
	           &p->err, ERR_CONFLICT, "is the name of a user who has 1 repositories");
	repo_made(p, "repo002", "models/vision/dog", "vision", "dog");
	assert_ok(meta_repo(p->m, p->a, "repo001", &r, &p->err), &p->err);
	r.name = "Dog";
	assert_err(meta_repo_move(p->m, &r, "models/vision/cat", "models/vision/dog", &p->err),
	           &p->err, ERR_HUB_REPO_EXISTS, "vision/dog");
	r.name = "lion";
	assert_ok(meta_repo_move(p->m, &r, "models/vision/cat", "models/vision/lion", &p->err),
	          &p->err);
	assert_ok(meta_repo_by_key(p->m, p->a, "models/vision/cat", &r, &moved, &p->err), &p->err);
	assert_true(moved);
	assert_string_equal(r.name, "lion");
	/* a new one takes the old name over */
	repo_made(p, "repo003", "models/vision/cat", "vision", "cat");
	assert_ok(meta_repo_by_key(p->m, p->a, "models/vision/cat", &r, &moved, &p->err), &p->err);
	assert_false(moved);
	assert_string_equal(r.id, "repo003");
	assert_ok(meta_repos(p->m, p->a, &q, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_string_equal(all[0].name, "dog");
	assert_ok(meta_repo_set_private(p->m, "repo002", true, 50, &p->err), &p->err);
	q.team_id = "another";
	assert_ok(meta_repos(p->m, p->a, &q, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
}

static void revisions_of_a_hub_go_with_what_was_kept(void **state)
{
	struct model_ref kept = {
		.team_id = "", .kind = META_REF_HUB, .name = "models/a/b@0123", .manifest = "aa"};
	const struct model_hub_rev rev[] = {{"", "models/a/b", "main", "0123", 9},
	                                    {"", "models/a/b", "old", "4567", 9},
	                                    {"", "models/a/b", "new", "4567", 10},
	                                    {"team001", "models/a/b", "main", "0123", 9}};
	struct place *p = *state;
	struct model_hub_rev *left = NULL;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_ref_put(p->m, &kept, &p->err), &p->err);
	for (size_t i = 0; i < COUNT(rev); i++)
		assert_ok(meta_hub_rev_put(p->m, &rev[i], &p->err), &p->err);
	assert_ok(meta_hub_revs_collect(p->m, 10, &p->err), &p->err);
	assert_ok(meta_hub_revs(p->m, p->a, "", "models/a/b", &left, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(left[0].rev, "main");
	assert_string_equal(left[1].rev, "new");
	assert_ok(meta_hub_revs(p->m, p->a, "team001", "models/a/b", &left, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_ref_del(p->m, "", META_REF_HUB, kept.name, &p->err), &p->err);
	assert_ok(meta_hub_revs_collect(p->m, 11, &p->err), &p->err);
	assert_ok(meta_hub_revs(p->m, p->a, "", "models/a/b", &left, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
}

#define COMMIT_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define COMMIT_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define COMMIT_C "cccccccccccccccccccccccccccccccccccccccc"
#define COMMIT_D "dddddddddddddddddddddddddddddddddddddddd"

static struct model_ref files_of(const char *name, const char *kind, uint64_t bytes)
{
	return (struct model_ref){.team_id = "team001",
	                          .kind = kind,
	                          .name = name,
	                          .manifest = "ab",
	                          .bytes = bytes,
	                          .files = 1,
	                          .created_ms = 5,
	                          .used_ms = 5};
}

static struct model_repo_commit commit_of(const char *id, const char *parent)
{
	return (struct model_repo_commit){"repo001", id, parent, "title", "", "ann", 7};
}

static const char *branch_is(struct place *p, enum model_repo_ref_kind kind, const char *name)
{
	struct model_repo_ref ref = {0};

	assert_ok(meta_repo_ref(p->m, p->a, "repo001", kind, name, &ref, &p->err), &p->err);
	return ref.commit;
}

static bool has_ref(struct place *p, const char *kind, const char *name)
{
	struct model_ref ref;
	bool has = meta_ref(p->m, p->a, "team001", kind, name, &ref, &p->err) == 0;

	err_clear(&p->err);
	return has;
}

/* A repository of one commit, A on main, and a pull request with B. */
static struct model_repo repo_with_pull(struct place *p, struct model_repo_pull *pull)
{
	const struct model_repo r = {.id = "repo001",
	                             .team_id = "team001",
	                             .type = "models",
	                             .owner = "ann",
	                             .name = "m",
	                             .bytes = 10,
	                             .created_ms = 5,
	                             .updated_ms = 5};
	const struct model_repo_commit a = commit_of(COMMIT_A, NULL),
				       b = commit_of(COMMIT_B, COMMIT_A);
	const struct model_ref of_a = files_of("repo001@" COMMIT_A, META_REF_REPO, 10);
	const struct model_ref of_b = files_of("repo001@" COMMIT_B, META_REF_REPO, 30);
	struct meta_repo_change change = {.commit = &b,
	                                  .files = &of_b,
	                                  .branch = "main",
	                                  .head = COMMIT_A,
	                                  .pull = pull,
	                                  .bytes = 20,
	                                  .team_id = "team001"};

	*pull = (struct model_repo_pull){.repo_id = "repo001",
	                                 .status = PULL_OPEN,
	                                 .title = "t",
	                                 .author = "ann",
	                                 .target = "main",
	                                 .base = COMMIT_A,
	                                 .created_ms = 8};
	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(meta_repo_add(p->m, &r, "models/ann/m", &a, &of_a, &p->err), &p->err);
	assert_ok(meta_repo_commit(p->m, &change, &p->err), &p->err);
	return r;
}

/* What is said in them counts; that one is closed can always be noted. */
static void pull_requests_count(void **state)
{
	struct place *p = *state;
	struct model_repo_pull pull;
	struct model_repo_event say = {
		.kind = EVENT_COMMENT, .author = "bob", .before = "", .text = "four", .ms = 9};
	const struct model_repo_event *said[] = {&say};
	const struct model_repo_commit merged = commit_of(COMMIT_C, COMMIT_B);
	const struct model_ref files = files_of("repo001@" COMMIT_C, META_REF_REPO, 1);
	struct meta_pull_change change = {.was = &pull, .status = PULL_OPEN, .say = said, .n = 1};
	struct model_repo now;
	int64_t seq;

	(void)repo_with_pull(p, &pull);
	assert_ok(meta_repo(p->m, p->a, "repo001", &now, &p->err), &p->err);
	change.quota = now.bytes + 3;
	assert_err(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err, ERR_QUOTA,
	           "over its quota");
	say.text = "two";
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	say.kind = EVENT_STATUS;
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	/* nor is a merge for nothing */
	change.status = PULL_MERGED;
	change.head = COMMIT_A;
	change.merged = COMMIT_C;
	change.commit = &merged;
	change.files = &files;
	change.bytes = 1;
	assert_err(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err, ERR_QUOTA, "");
	change.quota++;
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	assert_ok(meta_repo(p->m, p->a, "repo001", &now, &p->err), &p->err);
	assert_int_equal(now.bytes, change.quota);
}

/* Who reads a pull request, or a history, has not chosen how much others have written there. */
static void pull_requests_are_bounded(void **state)
{
	struct place *p = *state;
	static char text[META_REPO_TEXT_MAX / 4 + 1];
	struct model_repo_pull pull;
	struct model_repo_event say = {
		.kind = EVENT_COMMENT, .author = "bob", .before = "", .ms = 9};
	const struct model_repo_event *said[] = {&say};
	struct meta_pull_change change = {.was = &pull, .status = PULL_OPEN, .say = said, .n = 1};
	struct model_repo_ref tag = {"repo001", REPO_TAG, "last", COMMIT_A};
	struct model_repo_commit *log = NULL;
	size_t n = 0;
	int64_t seq;

	(void)repo_with_pull(p, &pull);
	memset(text, 'a', sizeof(text) - 1);
	say.text = text;
	for (int i = 0; i < 4; i++)
		assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	say.text = "b";
	assert_err(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err, ERR_TOO_BIG,
	           "pull request 1 is full");
	say.kind = EVENT_STATUS;
	say.text = "closed";
	change.status = PULL_CLOSED;
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	meta_close(TAKE(p->m));
	{
		AUTO_DB struct db *db = NULL;
		AUTO_DB_TX struct db_tx tx = {0};

		assert_ok(db_open(&db, p->url, &p->err), &p->err);
		assert_ok(db_begin(db, DB_WRITE, &tx, &p->err), &p->err);
		assert_ok(
			db_script(&tx,
		                  "INSERT INTO repo_refs (repo_id, kind, name, \"commit\")"
		                  " WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t"
		                  " WHERE n < 9997) SELECT 'repo001', 'tag', 't' || n, '" COMMIT_A
		                  "' FROM t;"
		                  "UPDATE repo_commits SET message = (SELECT body || body || body "
		                  "|| body"
		                  " FROM repo_events ORDER BY seq LIMIT 1) WHERE \"commit\" = "
		                  "'" COMMIT_B "'",
		                  &p->err),
			&p->err);
		assert_ok(db_commit(&tx, &p->err), &p->err);
	}
	assert_ok(meta_open(&p->m, p->url, &p->err), &p->err);
	assert_ok(meta_repo_ref_add(p->m, &tag, &p->err), &p->err);
	tag.name = "more";
	assert_err(meta_repo_ref_add(p->m, &tag, &p->err), &p->err, ERR_TOO_BIG, "at most 10000");
	assert_ok(meta_repo_log(p->m, p->a, "repo001", COMMIT_B, 0, 10, &log, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 1);
	assert_non_null(log[0].parent);
	assert_ok(meta_repo_log(p->m, p->a, "repo001", COMMIT_B, 1, 10, &log, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 1);
}

static void pull_requests(void **state)
{
	struct place *p = *state;
	struct model_repo_pull pull, other, back = {0}, *all = NULL;
	struct model_repo_event say = {
		.kind = EVENT_TITLE, .author = "bob", .before = "t", .text = "u", .ms = 9};
	const struct model_repo_event *said[] = {&say};
	struct meta_pull_change change = {
		.was = &pull, .status = PULL_OPEN, .title = "u", .say = said, .n = 1};
	struct meta_pull_query q = {.repo_id = "repo001", .limit = 1};
	struct model_repo_event *event = NULL;
	size_t n = 0, total = 0;
	int64_t seq = 0;

	(void)repo_with_pull(p, &pull);
	assert_int_equal(pull.num, 1);
	assert_string_equal(branch_is(p, REPO_BRANCH, "main"), COMMIT_A);
	assert_string_equal(branch_is(p, REPO_PULL, "1"), COMMIT_B);
	other = pull;
	other.author = "bob";
	assert_err(meta_repo_pull_add(p->m, &other, COMMIT_C, "", 0, &p->err), &p->err,
	           ERR_NOT_FOUND, "");
	assert_ok(meta_repo_pull_add(p->m, &other, COMMIT_A, "hello", 0, &p->err), &p->err);
	assert_int_equal(other.num, 2);
	assert_ok(meta_repo_pulls(p->m, p->a, &q, &all, &n, &total, &p->err), &p->err);
	assert_true(n == 1 && total == 2 && all[0].num == 2 && all[0].comments == 1);
	q.author = "ann";
	assert_ok(meta_repo_pulls(p->m, p->a, &q, &all, &n, &total, &p->err), &p->err);
	assert_true(n == 1 && total == 1 && all[0].num == 1 && all[0].comments == 0);
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	assert_ok(meta_repo_events(p->m, p->a, "repo001", 1, &event, &n, &p->err), &p->err);
	assert_true(n == 1 && event[0].seq == seq && event[0].kind == EVENT_TITLE);
	/* merged, it is what it was no more */
	change.status = PULL_MERGED;
	change.head = COMMIT_C;
	change.merged = COMMIT_B;
	assert_err(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err, ERR_CONFLICT,
	           "main");
	change.head = COMMIT_A;
	assert_ok(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err);
	assert_string_equal(branch_is(p, REPO_BRANCH, "main"), COMMIT_B);
	assert_err(meta_repo_pull_change(p->m, &change, &seq, &p->err), &p->err, ERR_CONFLICT, "");
	assert_ok(meta_repo_pull(p->m, p->a, "repo001", 1, &back, &p->err), &p->err);
	assert_true(back.status == PULL_MERGED && strcmp(back.merged, COMMIT_B) == 0);
	assert_string_equal(back.title, "u");
	q = (struct meta_pull_query){.repo_id = "repo001", .no_open = true, .limit = 9};
	assert_ok(meta_repo_pulls(p->m, p->a, &q, &all, &n, &total, &p->err), &p->err);
	assert_true(n == 1 && all[0].num == 1);
	assert_ok(meta_repo_del(p->m, "repo001", &p->err), &p->err);
	assert_err(meta_repo_pull(p->m, p->a, "repo001", 1, &back, &p->err), &p->err, ERR_NOT_FOUND,
	           "");
}

static void histories_are_rewritten(void **state)
{
	struct place *p = *state;
	struct model_repo_pull pull, back = {0};
	struct model_repo r = repo_with_pull(p, &pull), now = {0};
	const struct model_ref w = files_of("repo001/aa", META_REF_LFS, 100),
			       x = files_of("repo001/bb", META_REF_LFS, 1000);
	const struct model_repo_commit made[] = {
		{"repo001", COMMIT_C, NULL, "t\u00eftle", "", "ann", 7},
		{"repo001", COMMIT_D, COMMIT_C, NULL, NULL, NULL, 0}};
	const struct model_ref files[] = {files_of("repo001@" COMMIT_C, META_REF_REPO, 1),
	                                  files_of("repo001@" COMMIT_D, META_REF_REPO, 2)};
	const struct model_repo_ref to[] = {{"repo001", REPO_BRANCH, "main", COMMIT_C},
	                                    {"repo001", REPO_PULL, "1", COMMIT_D}};
	const char *head[] = {COMMIT_B, COMMIT_B}, *drop[] = {COMMIT_A, COMMIT_B},
		   *upload[] = {w.name};
	const struct meta_repo_moved moved[] = {{COMMIT_A, COMMIT_C}, {COMMIT_B, COMMIT_D}};
	const char *text_of[] = {NULL, COMMIT_B};
	const struct meta_repo_rewrite rewrite = {&r, made, text_of, files,  2, to, head, 2, moved,
	                                          2,  drop, 2,       upload, 1, 7,  99};
	struct model_repo_commit like;
	struct model_repo_commit *all = NULL;
	struct model_ref *uploads = NULL;
	size_t n = 0;

	assert_ok(meta_repo_upload(p->m, r.id, &w, 0, &p->err), &p->err);
	assert_ok(meta_repo_upload(p->m, r.id, &x, 0, &p->err), &p->err);
	assert_ok(meta_repo_uploads(p->m, p->a, &r, 1, 9, &uploads, &n, &p->err), &p->err);
	assert_true(n == 1 && uploads[0].bytes == 1000);
	assert_err(meta_repo_rewrite(p->m, &rewrite, &p->err), &p->err, ERR_CONFLICT, "main");
	assert_true(has_ref(p, META_REF_REPO, "repo001@" COMMIT_A) &&
	            !has_ref(p, META_REF_REPO, files[0].name));
	head[0] = COMMIT_A;
	assert_ok(meta_repo_rewrite(p->m, &rewrite, &p->err), &p->err);
	assert_string_equal(branch_is(p, REPO_BRANCH, "main"), COMMIT_C);
	assert_string_equal(branch_is(p, REPO_PULL, "1"), COMMIT_D);
	assert_ok(meta_repo_commits(p->m, p->a, r.id, 1, &all, &n, &p->err), &p->err);
	assert_true(n == 1 && strcmp(all[0].commit, COMMIT_C) == 0);
	assert_ok(meta_repo_commits(p->m, p->a, r.id, 9, &all, &n, &p->err), &p->err);
	assert_true(n == 2 && strcmp(all[1].commit, COMMIT_D) == 0 &&
	            strcmp(all[1].parent, COMMIT_C) == 0);
	assert_string_equal(all[1].title, ""); /* texts are not read with all of them, */
	assert_ok(meta_repo_commit_find(p->m, p->a, r.id, COMMIT_D, &like, &p->err), &p->err);
	assert_string_equal(like.title, "title"); /* and what is made anew has those of before */
	assert_string_equal(like.author, "ann");
	assert_int_equal(like.ms, 7);
	assert_false(has_ref(p, META_REF_REPO, "repo001@" COMMIT_A) ||
	             has_ref(p, META_REF_LFS, w.name));
	assert_true(has_ref(p, META_REF_REPO, files[1].name) && has_ref(p, META_REF_LFS, x.name));
	assert_ok(meta_repo_pull(p->m, p->a, r.id, 1, &back, &p->err), &p->err);
	assert_string_equal(back.base, COMMIT_C);
	assert_ok(meta_repo(p->m, p->a, r.id, &now, &p->err), &p->err);
	assert_int_equal(now.bytes, 7 + 1000 + strlen("t\u00eftle") + strlen("title"));
}

static void put_artifact(struct place *p, const char *owner, const char *name, const char *digest,
                         uint64_t bytes, int64_t ms, struct model_artifact *was)
{
	const struct meta_artifact_at at = {"team001", owner, name};
	static char body[META_ARTIFACT_BODY_MAX];
	const bool small = bytes <= sizeof(body);
	const struct model_artifact x = {.digest = digest,
	                                 .bytes = bytes,
	                                 .created_ms = ms,
	                                 .used_ms = ms,
	                                 .stored_by = ms % 2 != 0 ? "odd" : "even",
	                                 .job_id = ms % 3 == 0 ? "job0001" : NULL,
	                                 .has_body = small,
	                                 .body = str_n(body, small ? bytes : 0)};

	assert_ok(meta_artifact_put(p->m, p->a, &at, &x, was, &p->err), &p->err);
}

#define LARGE (META_ARTIFACT_BODY_MAX + 1)

static void artifacts_are_kept_by_name(void **state)
{
	static const char *const names[] = {"one", "large", "nothing", "large"};
	/* 11 empty, 12 large, 14 one; ann's: 13 one */
	static const struct {
		struct meta_artifact_query q;
		size_t n;
		const char *first;
	} stored[] = {
		{{"team001", "", NULL, NULL, 10, 0, 0}, 3, "one"},
		{{"team001", "", NULL, NULL, 1, 0, 0}, 1, "one"},
		{{"team001", "", NULL, NULL, 10, 14, 1}, 2, "large"},
		{{"team001", "", NULL, NULL, 10, 12, 1}, 1, "empty"},
		{{"team001", "", NULL, NULL, 10, 12, 100}, 2, "large"},
		{{"team001", "", "odd", NULL, 10, 0, 0}, 1, "empty"},
		{{"team001", "", "even", NULL, 10, 0, 0}, 2, "one"},
		{{"team001", "", NULL, "job0001", 10, 0, 0}, 1, "large"},
		{{"team001", "", "even", "job0001", 10, 0, 0}, 1, "large"},
		{{"team001", "", "odd", "job0001", 10, 0, 0}, 0, NULL},
		{{"team001", "ann", NULL, NULL, 10, 0, 0}, 1, "one"},
		{{"team002", "", NULL, NULL, 10, 0, 0}, 0, NULL},
	};
	struct place *p = *state;
	struct meta_artifact_at at = {"team001", "", "one"};
	struct model_artifact x, was, *all = NULL;
	struct meta_artifact_space *space = NULL;
	const char **blob = NULL;
	bool gone = false;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_err(meta_artifact(p->m, p->a, &at, &x, &p->err), &p->err, ERR_ARTIFACT_NOT_FOUND,
	           "");
	put_artifact(p, "", "one", "11", 3, 10, &was);
	assert_null(was.digest);
	put_artifact(p, "", "empty", "00", 0, 11, &was);
	put_artifact(p, "", "large", "22", LARGE, 12, &was);
	put_artifact(p, "ann", "one", "22", LARGE, 13, &was);
	put_artifact(p, "", "one", "33", LARGE + 1, 14, &was);
	assert_string_equal(was.digest, "11");
	assert_true(was.has_body && was.bytes == 3);

	assert_ok(meta_artifact(p->m, p->a, &at, &x, &p->err), &p->err);
	assert_true(!x.has_body && x.bytes == LARGE + 1 && x.used_ms == 14 && x.body.n == 0);
	at.name = "empty";
	assert_ok(meta_artifact(p->m, p->a, &at, &x, &p->err), &p->err);
	assert_true(x.has_body && x.body.n == 0);

	assert_ok(meta_artifacts_of(p->m, p->a, &at, names, COUNT(names), &all, &n, &p->err),
	          &p->err);
	assert_int_equal(n, 2);
	assert_ok(meta_artifact_blobs(p->m, p->a, "", 10, &blob, &n, &p->err), &p->err);
	assert_int_equal(n, 2); /* two rows name one of them */
	assert_string_equal(blob[0], "22");
	assert_ok(meta_artifact_blobs(p->m, p->a, "22", 10, &blob, &n, &p->err), &p->err);
	assert_true(n == 1 && strcmp(blob[0], "33") == 0);
	assert_ok(meta_artifact_spaces(p->m, p->a, &space, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_true(space[0].files == 3 && space[0].bytes == 2 * LARGE + 1);
	assert_true(strcmp(space[1].owner, "ann") == 0 && space[1].bytes == LARGE);

	/* who has stored them, the last first: what is stored anew is of who did that */
	for (size_t i = 0; i < COUNT(stored); i++) {
		assert_ok(meta_artifacts_stored(p->m, p->a, &stored[i].q, &all, &n, &p->err),
		          &p->err);
		assert_int_equal(n, stored[i].n);
		if (n > 0)
			assert_string_equal(all[0].name, stored[i].first);
	}
	assert_string_equal(x.stored_by, "odd");
	assert_null(x.job_id);

	/* the least recently used first; an earlier use than what is known says nothing */
	assert_ok(meta_artifacts_used(
			  p->m,
			  (const struct meta_artifact_used[]){{x.seq, 90}, {x.seq, 20}, {-1, 1}}, 3,
			  &p->err),
	          &p->err);
	assert_ok(meta_artifacts_oldest(p->m, p->a, "team001", "", 10, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 3);
	assert_string_equal(all[0].digest, "22");
	assert_string_equal(all[1].digest, "33");
	assert_int_equal(all[2].used_ms, 90);

	/* one that has been replaced meanwhile is not what was to go */
	x = all[0];
	put_artifact(p, "", "large", "44", 1, 15, &was);
	assert_ok(meta_artifact_del(p->m, &x, &gone, &p->err), &p->err);
	assert_false(gone);
	assert_ok(meta_artifacts_del(p->m, &all[1], 2, &p->err), &p->err);
	assert_ok(meta_artifacts_oldest(p->m, p->a, "team001", "", 10, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_ok(meta_artifact_del(p->m, &all[0], &gone, &p->err), &p->err);
	assert_true(gone);
}

static int join(struct place *p, const char *job_id, const struct model_deployment *d, bool begins)
{
	struct model_job row = a_job(job_id), out;
	struct meta_new_job n = {.row = &row,
	                         .message = "deployed",
	                         .deployment_id = d->id,
	                         .deployment_revision = d->revision,
	                         .deploys = begins ? d : NULL};
	bool existing = false;

	err_clear(&p->err);
	return meta_job_add(p->m, p->a, &n, &out, &existing, &p->err);
}

/* One row for each name of a team; a revision begins with its first job, and jobs of another one
 * do not join it. */
static void deployments_are_kept(void **state)
{
	struct place *p = *state;
	struct model_project project;
	struct model_deployment d = {.id = "dep0001",
	                             .name = "mine",
	                             .team_id = "team001",
	                             .project_id = "proj001",
	                             .revision = 1,
	                             .replicas = 2,
	                             .checkpoint = "job0001/last",
	                             .document_json = "{}",
	                             .user = "anna",
	                             .created_ms = 5,
	                             .updated_ms = 5,
	                             .started_ms = 0},
				*all, other, old;
	struct model_replica *r;
	const char *job_id;
	int64_t failed = 0;
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &project, &p->err), &p->err);
	d.project_id = project.id;
	assert_ok(join(p, "job0001", &d, true), &p->err);
	assert_ok(join(p, "job0002", &d, false), &p->err);
	other = d;
	other.id = "dep0002"; /* made by another call at the same moment */
	assert_err(join(p, "job0003", &other, true), &p->err, ERR_CONFLICT, "same moment");
	assert_err(join(p, "job0003", &d, true), &p->err, ERR_CONFLICT, "same moment");
	err_clear(&p->err);
	assert_err(meta_job(p->m, p->a, "job0003", &(struct model_job){0}, &p->err), &p->err,
	           ERR_NOT_FOUND, "");
	err_clear(&p->err);
	old = d;
	d.revision = 2;
	d.idle_s = 60;
	d.replaces = true;
	assert_ok(join(p, "job0004", &d, true), &p->err);
	assert_err(join(p, "job0005", &old, false), &p->err, ERR_CONFLICT, "changed");
	err_clear(&p->err);
	assert_ok(meta_deployments(p->m, p->a, "team001", "mine", &all, &n, &p->err), &p->err);
	assert_int_equal(n, 1);
	assert_int_equal(all[0].revision, 2);
	assert_int_equal(all[0].replicas, 2);
	assert_int_equal(all[0].idle_s, 60);
	assert_true(all[0].replaces);
	assert_string_equal(all[0].checkpoint, "job0001/last");
	assert_string_equal(all[0].project_name, project.name);
	assert_ok(meta_deployments(p->m, p->a, "team999", NULL, &all, &n, &p->err), &p->err);
	assert_int_equal(n, 0);
	assert_ok(meta_replicas(p->m, p->a, "dep0001", &r, &n, &p->err), &p->err);
	assert_int_equal(n, 3);
	assert_string_equal(r[0].job_id, "job0004");
	assert_int_equal(r[0].revision, 2);

	/* the newest of the revision, and those that have ended by themselves since it began */
	assert_ok(step(p->m, "job0004", JOB_EV_PLACE, &p->err), &p->err);
	assert_ok(step(p->m, "job0004", JOB_EV_RESOLVE, &p->err), &p->err);
	assert_ok(step(p->m, "job0004", JOB_EV_EXIT_BAD, &p->err), &p->err);
	assert_ok(meta_deployment_failed(p->m, p->a, &d, &failed, &job_id, &p->err), &p->err);
	assert_int_equal(failed, 1);
	assert_string_equal(job_id, "job0004");
	d.started_ms = INT64_MAX;
	assert_ok(meta_deployment_failed(p->m, p->a, &d, &failed, &job_id, &p->err), &p->err);
	assert_int_equal(failed, 0);
	assert_ok(meta_deployment_job(p->m, p->a, &d, &job_id, &p->err), &p->err);
	assert_string_equal(job_id, "job0004");
	assert_ok(meta_replicas(p->m, p->a, NULL, &r, &n, &p->err), &p->err);
	assert_int_equal(n, 2);

	/* what people want is compared and set */
	assert_ok(meta_deployment_want(p->m, &d, DEPLOYMENT_SLEEP, 70, &p->err), &p->err);
	assert_err(meta_deployment_want(p->m, &d, DEPLOYMENT_STOP, 71, &p->err), &p->err,
	           ERR_CONFLICT, "same moment");
	err_clear(&p->err);
	assert_err(join(p, "job0006", &d, false), &p->err, ERR_CONFLICT, "changed");
	err_clear(&p->err);
	d.wanted = DEPLOYMENT_SLEEP;
	assert_ok(meta_deployment_want(p->m, &d, DEPLOYMENT_RUN, 800, &p->err), &p->err);
	assert_ok(meta_deployment_scale(p->m, "dep0001", 3, 0, 81, &p->err), &p->err);
	assert_ok(meta_deployments(p->m, p->a, NULL, NULL, &all, &n, &p->err), &p->err);
	assert_int_equal(all[0].started_ms, 800);
	assert_int_equal(all[0].replicas, 3);
	assert_int_equal(all[0].wanted, DEPLOYMENT_RUN);

	/* it has failed, and is started while the clock is behind that of its jobs */
	d.wanted = DEPLOYMENT_RUN;
	assert_ok(meta_deployment_want(p->m, &d, DEPLOYMENT_RUN, 50, &p->err), &p->err);
	assert_ok(meta_deployments(p->m, p->a, NULL, NULL, &all, &n, &p->err), &p->err);
	assert_ok(meta_deployment_failed(p->m, p->a, &all[0], &failed, &job_id, &p->err), &p->err);
	assert_int_equal(failed, 0);

	/* a project is not deleted beneath it */
	assert_err(meta_project_del(p->m, project.id, &p->err), &p->err, ERR_CONFLICT,
	           "stoker deployments rm mine");
	err_clear(&p->err);
	assert_ok(meta_deployment_del(p->m, "dep0001", &p->err), &p->err);
	assert_err(meta_deployment_del(p->m, "dep0001", &p->err), &p->err, ERR_NOT_FOUND, "");
	err_clear(&p->err);
}

/* A database of the version before refs: what its mirrors named is named by refs. */
static void weights_move_onto_refs(void **state)
{
	static const char before[] =
		"DROP TABLE refs; DROP TABLE hub_revs; DROP TABLE repo_refs;"
		"DROP TABLE repo_commits; DROP TABLE repo_moves; DROP TABLE repo_pulls;"
		"DROP TABLE repo_events; DROP TABLE repos; DROP TABLE artifacts;"
		"DROP TABLE job_counts; DROP TABLE deployments; DROP INDEX jobs_deployment;"
		"ALTER TABLE jobs DROP COLUMN deployment_id;"
		"ALTER TABLE jobs DROP COLUMN deployment_revision;"
		"ALTER TABLE mirrors ADD COLUMN manifest TEXT;"
		"ALTER TABLE mirrors ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0;"
		"CREATE INDEX mirrors_manifest ON mirrors(manifest);"
		"INSERT INTO mirrors (id, team_id, source, revision, filter_json, manifest, state,"
		" bytes_total, bytes_done, files_total, files_done, rate, created_ms, updated_ms,"
		" used_ms) VALUES ('m1', 'team001', 'hf://a/b', 'r', '{}', 'aa', 'ready', 7, 7, 1,"
		" 1, 0.0, 5, 6, 60), ('m2', 'team001', 'hf://a/c', 'r', '{}', NULL, 'failed', 7, 0,"
		" 1, 0, 0.0, 5, 6, 5);";
	struct place *p = *state;
	struct model_mirror *all = NULL;
	struct model_project pr = {0};
	struct model_job j = {0};
	size_t n = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &pr, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &j, &p->err), &p->err);
	meta_close(TAKE(p->m));
	{
		AUTO_DB struct db *db = NULL;
		AUTO_DB_TX struct db_tx tx = {0};

		assert_ok(db_open(&db, p->url, &p->err), &p->err);
		assert_ok(db_begin(db, DB_WRITE, &tx, &p->err), &p->err);
		assert_ok(db_script(&tx, before, &p->err), &p->err);
		assert_ok(db_set_version(&tx, 17, &p->err), &p->err);
		assert_ok(db_commit(&tx, &p->err), &p->err);
	}
	assert_ok(meta_open(&p->m, p->url, &p->err), &p->err);
	assert_ok(meta_mirrors(p->m, p->a, "team001", &all, &n, &p->err), &p->err);
	assert_int_equal(n, 2);
	assert_string_equal(all[0].manifest, "aa");
	assert_int_equal(all[0].used_ms, 60);
	assert_null(all[1].manifest);
	assert_true(is_used(p, "aa"));
	assert_int_equal(jobs_in(p, JOB_PENDING), 1); /* and its jobs are counted */
}

/* What every failing statement must leave: the state before, or the state after. */
static int life(struct meta *m, struct arena *a, struct err *err)
{
	struct model_project pr = {0};
	struct model_job j = {0};
	struct model_attempt *t = NULL;
	bool flag = false;
	size_t n = 0;

	if (add_team(m, err) < 0 || add_project(m, a, &pr, err) < 0 ||
	    add_job(m, a, "job0001", "key", &j, err) < 0 ||
	    step(m, "job0001", JOB_EV_PLACE, err) < 0 ||
	    meta_attempt_launching(m, "att0001", 0, "hash", 1, err) < 0 ||
	    step(m, "job0001", JOB_EV_RESOLVE, err) < 0 ||
	    meta_attempt_launched(m, "att0001", 0, "ref", err) < 0 ||
	    meta_attempt_claim(m, "att0001", 0, "n", 2, err) < 0 ||
	    meta_attempt_ready(m, "att0001", 0, &flag, err) < 0 ||
	    step(m, "job0001", JOB_EV_READY, err) < 0 ||
	    meta_attempt_exit(m, "att0001", 0, "{}", 3, &flag, err) < 0 ||
	    step(m, "job0001", JOB_EV_EXIT_OK, err) < 0 ||
	    meta_attempt_done(m, "att0001", 0, 4, err) < 0 || meta_job_del(m, "job0001", err) < 0 ||
	    meta_project_del(m, "proj001", err) < 0)
		return -1;
	return meta_attempts(m, a, NULL, &t, &n, err);
}

static void every_statement_can_fail(void **state)
{
	struct place *p = *state;

	for (int n = 1; n < 500; n++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_META struct meta *m = NULL;
		struct err err = {0};
		char url[URL_CAP], plain[URL_CAP];

		fresh(p, n, plain);
		FMT(url, "fault:%d:%.200s", n, plain);
		if (meta_open(&m, url, &err) == 0 && life(m, a, &err) == 0) {
			assert_true(n > 30);
			return;
		}
		assert_non_null(strstr(err.msg, "injected fault"));
		meta_close(TAKE(m));
		err_clear(&err);
		assert_ok(meta_open(&m, plain, &err), &err);
		assert_ok(meta_check(m, &err), &err);
	}
	fail_msg("it never succeeded");
}

/* What a migration adds is moved, too. */
static void every_table_is_moved(void **state)
{
	static const char *const own[] = {"moves", "stoker_beat", "stoker_schema"};
	struct place *p = *state;
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_DB_ROWS struct db_rows r = {0};
	bool row = true, is_own;
	size_t n = 0;

	meta_close(p->m);
	p->m = NULL;
	assert_ok(db_open(&db, p->url, &p->err), &p->err);
	assert_ok(db_begin(db, DB_READ, &tx, &p->err), &p->err);
	assert_ok(db_query(&tx, p->a,
	                   db_is_sqlite(db) ? "SELECT name FROM sqlite_master WHERE type = 'table'"
	                                      " AND name NOT LIKE 'sqlite_%'"
	                                    : "SELECT tablename::text FROM pg_tables WHERE"
	                                      " schemaname = current_schema()",
	                   DB_NONE, &r, &p->err),
	          &p->err);
	for (;;) {
		const char *name;

		assert_ok(db_next(&r, &row, &p->err), &p->err);
		if (!row)
			break;
		name = db_get_text(&r);
		n++;
		is_own = false;
		for (size_t i = 0; i < COUNT(own); i++)
			is_own = is_own || strcmp(name, own[i]) == 0;
		if (!move_knows(name) && !is_own)
			fail_msg("move.c does not know table %s", name);
	}
	assert_true(n > 15);
}

static void rows_are_moved_once(void **state)
{
	struct place *p = *state;
	struct model_project project;
	struct model_job job = {0};
	struct move_options o = {.from = p->url};
	struct meta *m = NULL;
	char to[URL_CAP];
	uint64_t rows = 0;

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &project, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &job, &p->err), &p->err);
	meta_close(p->m);
	p->m = NULL;
	fresh(p, 1, to);
	o.to = to;
	assert_ok(move_database(&o, &rows, &p->err), &p->err);
	assert_true(rows >= 3);
	assert_err(meta_open(&m, p->url, &p->err), &p->err, ERR_DATABASE_MOVED, "moved");
	assert_ok(meta_open(&m, to, &p->err), &p->err);
	assert_ok(meta_job(m, p->a, "job0001", &job, &p->err), &p->err);
	assert_string_equal(job.user, "tester");
	meta_close(m);
	assert_err(move_database(&o, &rows, &p->err), &p->err, ERR_DATABASE_MOVED, "before");
}

static bool has_left(struct place *p)
{
	AUTO_DB struct db *db = NULL;
	AUTO_DB_TX struct db_tx tx = {0};
	int64_t n = 0;

	assert_ok(db_open(&db, p->url, &p->err), &p->err);
	assert_ok(db_begin(db, DB_READ, &tx, &p->err), &p->err);
	assert_ok(db_number(&tx, "SELECT count(*) FROM moves WHERE role = 'moved'", DB_NONE, 0, &n,
	                    &p->err),
	          &p->err);
	return n > 0;
}

static void rows_to_move(struct place *p, char to[URL_CAP])
{
	struct model_project project;
	struct model_job job = {0};

	assert_ok(add_team(p->m, &p->err), &p->err);
	assert_ok(add_project(p->m, p->a, &project, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0001", NULL, &job, &p->err), &p->err);
	assert_ok(add_job(p->m, p->a, "job0002", NULL, &job, &p->err), &p->err);
	meta_close(TAKE(p->m));
	fresh(p, 1, to);
}

static void take_total(void *arg, enum move_phase phase UNUSED, uint64_t rows UNUSED,
                       uint64_t total)
{
	*(uint64_t *)arg = total;
}

/* What was changed since in a row that had arrived stops the last step, too. */
static void a_move_goes_on_from_anywhere(void **state)
{
	struct place *p = *state;
	char to[URL_CAP], faulty[URL_CAP];
	struct move_options whole = {.from = p->url, .to = to};
	uint64_t rows = 0, total = 0;
	struct move_options o = {
		.from = p->url, .to = faulty, .progress = take_total, .arg = &total};
	struct meta *m = NULL;
	bool left = false;

	rows_to_move(p, to);
	for (int n = 1;; n += 3) { /* the last step has three */
		struct err err = {0};

		FMT(faulty, "fault:%d:%.200s", n, to);
		if (move_database(&o, &rows, &err) == 0)
			break;
		assert_non_null(strstr(err.msg, "injected fault"));
		if (left || !has_left(p))
			continue;
		left = true;
		assert_err(meta_open(&m, p->url, &p->err), &p->err, ERR_DATABASE_MOVED, "moved");
		alter(to, "UPDATE jobs SET name = 'another' WHERE id = 'job0002'");
		assert_err(move_database(&whole, &rows, &p->err), &p->err, ERR_DATABASE_DIFFERS,
		           "job0002");
		assert_false(has_left(p));
		assert_err(meta_open(&m, to, &p->err), &p->err, ERR_DATABASE_INCOMPLETE, "again");
		alter(to, "UPDATE jobs SET name = 'job-2' WHERE id = 'job0002'");
	}
	assert_true(left);
	assert_true(rows > 6); /* a team, a project, two jobs, their number, an event of each */
	assert_int_equal(rows, total);
	assert_err(meta_open(&m, p->url, &p->err), &p->err, ERR_DATABASE_MOVED, "moved");
	assert_ok(meta_open(&p->m, to, &p->err), &p->err);
	assert_int_equal(jobs_in(p, JOB_PENDING), 2);
}

struct writer {
	const char *url;
	bool tried, wrote;
};

/* Without a wait for whoever holds the rows. */
static bool writes(const char *url, const char *sql)
{
	bool done;

	if (postgres() == NULL) {
		sqlite3 *db = NULL;

		assert_int_equal(sqlite3_open(url + strlen("sqlite:"), &db), SQLITE_OK);
		done = sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
		(void)sqlite3_close(db);
	} else {
		PGconn *db = PQconnectdb(url);
		PGresult *r;

		assert_int_equal(PQstatus(db), CONNECTION_OK);
		PQclear(PQexec(db, "SET lock_timeout = '10ms'"));
		r = PQexec(db, sql);
		done = PQresultStatus(r) == PGRES_COMMAND_OK;
		PQclear(r);
		PQfinish(db);
	}
	return done;
}

static void write_beside(void *arg, enum move_phase phase, uint64_t rows, uint64_t total)
{
	struct writer *w = arg;

	if (phase == MOVE_COPY || rows < total) /* each row was compared */
		return;
	w->tried = true;
	w->wrote |= writes(w->url, "UPDATE jobs SET name = 'another' WHERE id = 'job0002'");
}

static void nobody_writes_to_what_was_compared(void **state)
{
	struct place *p = *state;
	struct writer w = {.url = p->url};
	char to[URL_CAP];
	struct move_options o = {.from = p->url, .to = to, .progress = write_beside, .arg = &w};
	uint64_t rows = 0;

	rows_to_move(p, to);
	assert_true(writes(p->url, "UPDATE jobs SET name = 'mine' WHERE id = 'job0001'"));
	assert_ok(move_database(&o, &rows, &p->err), &p->err);
	assert_true(w.tried);
	assert_false(w.wrote);
}

static void a_newer_database_is_refused(void **state)
{
	struct place *p = *state;
	AUTO_META struct meta *again = NULL;

	meta_close(TAKE(p->m));
	assert_ok(meta_open(&again, p->url, &p->err), &p->err); /* migrating twice is fine */
	meta_close(TAKE(again));
	{
		AUTO_DB struct db *db = NULL;
		AUTO_DB_TX struct db_tx tx = {0};

		assert_ok(db_open(&db, p->url, &p->err), &p->err);
		assert_ok(db_begin(db, DB_WRITE, &tx, &p->err), &p->err);
		assert_ok(db_set_version(&tx, 9999, &p->err), &p->err);
		assert_ok(db_commit(&tx, &p->err), &p->err);
	}
	assert_err(meta_open(&again, p->url, &p->err), &p->err, ERR_CONFLICT, "newer");
	assert_err(meta_open(&again, "oracle:x", &p->err), &p->err, ERR_INVALID, "driver");
	assert_err(meta_open(&again, "sqlite:/nowhere/x.db", &p->err), &p->err, ERR_IO, "open");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(teams_and_tokens, setup, teardown),
	cmocka_unit_test_setup_teardown(secrets_keep_their_id, setup, teardown),
	cmocka_unit_test_setup_teardown(jobs_are_named_and_keyed, setup, teardown),
	cmocka_unit_test_setup_teardown(jobs_are_listed_by_whatever_is_asked, setup, teardown),
	cmocka_unit_test_setup_teardown(jobs_are_counted_as_they_change, setup, teardown),
	cmocka_unit_test_setup_teardown(a_job_is_stepped_once, setup, teardown),
	cmocka_unit_test_setup_teardown(a_late_attempt_changes_nothing, setup, teardown),
	cmocka_unit_test_setup_teardown(deleting_leaves_trash, setup, teardown),
	cmocka_unit_test_setup_teardown(checkpoints_have_one_order, setup, teardown),
	cmocka_unit_test_setup_teardown(what_a_runner_told_is_counted, setup, teardown),
	cmocka_unit_test_setup_teardown(abandoned_with_the_job, setup, teardown),
	cmocka_unit_test_setup_teardown(mirrors_uploads_snapshots, setup, teardown),
	cmocka_unit_test_setup_teardown(refs_name_what_is_kept, setup, teardown),
	cmocka_unit_test_setup_teardown(repositories_are_committed_to, setup, teardown),
	cmocka_unit_test_setup_teardown(repositories_are_copied, setup, teardown),
	cmocka_unit_test_setup_teardown(repositories_are_moved, setup, teardown),
	cmocka_unit_test_setup_teardown(revisions_of_a_hub_go_with_what_was_kept, setup, teardown),
	cmocka_unit_test_setup_teardown(pull_requests, setup, teardown),
	cmocka_unit_test_setup_teardown(pull_requests_count, setup, teardown),
	cmocka_unit_test_setup_teardown(pull_requests_are_bounded, setup, teardown),
	cmocka_unit_test_setup_teardown(histories_are_rewritten, setup, teardown),
	cmocka_unit_test_setup_teardown(artifacts_are_kept_by_name, setup, teardown),
	cmocka_unit_test_setup_teardown(weights_move_onto_refs, setup, teardown),
	cmocka_unit_test_setup_teardown(every_statement_can_fail, setup, teardown),
	cmocka_unit_test_setup_teardown(deployments_are_kept, setup, teardown),
	cmocka_unit_test_setup_teardown(every_table_is_moved, setup, teardown),
	cmocka_unit_test_setup_teardown(rows_are_moved_once, setup, teardown),
	cmocka_unit_test_setup_teardown(a_move_goes_on_from_anywhere, setup, teardown),
	cmocka_unit_test_setup_teardown(nobody_writes_to_what_was_compared, setup, teardown),
	cmocka_unit_test_setup_teardown(a_newer_database_is_refused, setup, teardown),
};
UNIT_MAIN(tests)
