/* lives_checks.c - what must hold: the rows against the world. */
#include "lives.h"
#include "meta/meta_impl.h"
#include "server/data/ckpts.h"

static bool lost_a_runner(const struct world *w, const char *attempt)
{
	for (uint32_t i = 0; attempt != NULL && i < atomic_load(&w->n_runners); i++) {
		if (w->runner[i].died && strcmp(w->runner[i].attempt, attempt) == 0)
			return true;
	}
	return false;
}

static void look_at(struct world *w, struct sim_job *j, const char *word, uint32_t attempt,
                    const char *attempt_id)
{
	enum job_state s = JOB_PENDING;
	struct err err = {0};
	bool final;

	CHECK(job_state_parse(str_of(word), &s, &err) == 0, "%s", word);
	CHECK(j->end == JOB_STATE_COUNT || j->end == s, "%s was %s and is %s", j->id,
	      job_state_word(j->end), word);
	CHECK(attempt >= j->attempt && attempt <= ATTEMPTS_MAX, "attempt %u of %s, after %u",
	      attempt, j->id, j->attempt);
	final = job_state_is_final(s);
	if (final && j->end == JOB_STATE_COUNT) {
		unsigned all = (1U << shapes[j->shape].nodes) - 1;

		CHECK(s != JOB_COMPLETED || (attempt > 0 && j->well[attempt - 1] == all),
		      "%s completed, and its ranks did not", j->id);
		CHECK(s != JOB_FAILED || (j->bad & 1U << (attempt - 1)) != 0 ||
		              lost_a_runner(w, attempt_id),
		      "%s failed: it neither ended badly nor lost a runner", j->id);
		CHECK(s != JOB_DEPLOY_FAILED || lost_a_runner(w, attempt_id),
		      "%s could not be deployed: nothing happened to it", j->id);
		CHECK(s != JOB_STOPPED || j->stop, "%s was stopped: nobody asked for it", j->id);
		j->end = s;
		w->over++;
	}
	w->waiting += s == JOB_PENDING;
	w->retried += attempt > j->attempt && attempt > 1;
	j->state = s;
	j->attempt = attempt;
}

/* Jobs that ask for the same start in the order of their priority, of one user in that of their
 * age. (Turns between teams and users: sim.c, over the same code.) */
static void look_at_order(struct world *w)
{
	struct { /* of those that still wait */
		bool any;
		int64_t priority;
		uint32_t job;
	} best[SHAPES] = {0};

	for (uint32_t i = 0; i < w->pushed; i++) {
		const struct sim_job *j = &w->job[i];

		if (j->waited && j->state == JOB_PENDING && j->attempt == j->attempt_then &&
		    (!best[j->shape].any || best[j->shape].priority < j->priority_then)) {
			best[j->shape].any = true;
			best[j->shape].priority = j->priority_then;
			best[j->shape].job = i;
		}
	}
	for (uint32_t i = 0; i < w->pushed; i++) {
		const struct sim_job *j = &w->job[i];

		if (j->waited && j->attempt > j->attempt_then && best[j->shape].any)
			CHECK(best[j->shape].priority <= j->priority_then,
			      "%s (priority %" PRId64 ") was placed before %s (%" PRId64
			      "), which asks for the same",
			      j->id, j->priority_then, w->job[best[j->shape].job].id,
			      best[j->shape].priority);
	}
}

struct line_key {
	int64_t priority, oldest_ms;
	uint32_t job;
	bool any;
};

/* The same shape, team, user and priority: nobody who waits is older than one that was placed. */
static void look_at_age(struct world *w)
{
	enum { PRIORITIES = 4 };
	static struct line_key oldest[SHAPES][TEAMS][USERS][PRIORITIES];

	memset(oldest, 0, sizeof(oldest));
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < w->pushed; i++) {
			const struct sim_job *j = &w->job[i];
			struct line_key *k =
				&oldest[j->shape][j->team][j->user][j->priority_then % PRIORITIES];

			if (!j->waited)
				continue;
			if (round == 0 && j->state == JOB_PENDING &&
			    j->attempt == j->attempt_then &&
			    (!k->any || j->created_ms < k->oldest_ms))
				*k = (struct line_key){j->priority_then, j->created_ms, i, true};
			if (round == 1 && j->attempt > j->attempt_then && k->any)
				CHECK(k->oldest_ms >= j->created_ms,
				      "%s was placed before %s, which is older", j->id,
				      w->job[k->job].id);
		}
	}
}

static int read_jobs(struct world *w, struct app *app, struct arena *a, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	AUTO_DB_ROWS struct db_rows r = {0};
	uint32_t seen = 0, over = w->over;
	bool row = true;

	if (db_begin(app->meta->db, DB_READ, &tx, err) < 0 ||
	    db_query(&tx, a,
	             "SELECT id, name, state, attempt, attempt_id, priority, created_ms FROM jobs",
	             DB_NONE, &r, err) < 0)
		return -1;
	w->waiting = 0;
	for (;;) {
		const char *id, *name, *state, *attempt_id;
		struct sim_job *j;
		uint32_t attempt;
		unsigned n = 0;

		if (db_next(&r, &row, err) < 0)
			return -1;
		if (!row)
			break;
		id = db_get_text(&r);
		name = db_get_text(&r);
		state = db_get_text(&r);
		attempt = db_get_u32(&r);
		attempt_id = db_get_text(&r);
		CHECK(sscanf(name, "s%u", &n) == 1 && n < w->n_jobs, "a job named %s", name);
		j = &w->job[n];
		CHECK(j->id[0] == '\0' || strcmp(j->id, id) == 0,
		      "one push made two jobs: %s and %s", j->id, id);
		FMT(j->id, "%s", id);
		look_at(w, j, state, attempt, attempt_id);
		j->priority = db_get_int(&r);
		j->created_ms = db_get_int(&r);
		seen += j->acked;
		arena_reset(a);
	}
	CHECK(seen == w->pushed, "%u pushes were acknowledged, %u jobs are there", w->pushed, seen);
	CHECK(over <= w->over, "jobs that were over are not");
	return 0;
}

bool jobs_look(struct world *w, struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	if (read_jobs(w, app, a, &err) < 0) {
		CHECK(w->faults, "read jobs: %s", err.msg);
		w->pass_whole = false;
		return false;
	}
	if (w->pass_whole && !w->faults) {
		look_at_order(w);
		look_at_age(w);
	}
	w->pass_whole = false;
	for (uint32_t i = 0; i < w->pushed; i++) {
		w->job[i].waited = w->job[i].state == JOB_PENDING;
		w->job[i].attempt_then = w->job[i].attempt;
		w->job[i].priority_then = w->job[i].priority;
	}
	w->most_waiting = MAX(w->most_waiting, w->waiting);
	return true;
}

bool places_look(struct world *w, struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	uint64_t cpu = 0, memory = 0, gpus = 0;
	struct meta_held *h = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_held(app->meta, a, &h, &n, &err) < 0) {
		CHECK(w->faults, "read what jobs hold: %s", err.msg);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		cpu += h[i].cpu_milli;
		memory += h[i].memory_bytes;
		CHECK((gpus & h[i].gpus) == 0, "GPUs of %s are another job's, too", h[i].job_id);
		CHECK((uint32_t)__builtin_popcountll(h[i].gpus) == h[i].gpu_count, "GPUs of %s",
		      h[i].job_id);
		gpus |= h[i].gpus;
	}
	CHECK(cpu <= app->inv.cpu_milli && memory <= app->inv.memory_bytes,
	      "jobs hold %" PRIu64 " milli-CPUs of %u", cpu, app->inv.cpu_milli);
	w->placed = (uint32_t)n;
	w->most_placed = MAX(w->most_placed, w->placed);
	return true;
}

void all_look(struct world *w, struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_attempt *t = NULL;
	struct meta_held *h = NULL;
	uint32_t kept = 0;
	struct err err = {0};
	size_t n = 0;

	CHECK(meta_check(app->meta, &err) == 0, "%s", err.msg);
	CHECK(meta_held(app->meta, a, &h, &n, &err) == 0 && n == 0, "%zu places are held: %s", n,
	      err.msg);
	CHECK(meta_attempts(app->meta, a, NULL, &t, &n, &err) == 0 && n == 0,
	      "%zu attempts are not done with: %s", n, err.msg);
	for (uint32_t i = 0; i < w->n_jobs; i++) {
		struct model_checkpoint *c = NULL;

		CHECK(w->job[i].acked && w->job[i].end != JOB_STATE_COUNT, "job %u is not over", i);
		if (!KEEPS_CHECKPOINTS(i))
			continue;
		arena_reset(a);
		CHECK(meta_checkpoints(app->meta, a, w->job[i].id, &c, &n, &err) == 0, "%s",
		      err.msg);
		for (size_t k = 0; k < n; k++) {
			bool stored = false;

			if (c[k].state != CKPT_COMPLETE)
				continue;
			CHECK(ckpts_is_stored(app, a, &c[k], &stored, &err) == 0 && stored,
			      "checkpoint %s of %s is shown as complete: %s", c[k].name,
			      w->job[i].id, err.msg);
			kept++;
		}
	}
	(void)printf("  %u checkpoints are complete, and in the store\n", kept);
}
