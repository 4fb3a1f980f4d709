/*
 * lives.c - lives of a server: the real queue, placement, preparation, reconciliation and rows,
 * with an engine that launches nothing and a clock that is set. A process for each life of the
 * server; it is killed at any moment, at a labelled one, or closed. Runners die, the database and
 * the object store go away for a while. After each step all promises are checked.
 *
 *   lives [--place] [--seed N] [--jobs N] [--nodes N] [--steps N] [--dir FOLDER]
 *
 * STOKER_TEST_DATABASE or SIM_DATABASE names a PostgreSQL; else it is SQLite in FOLDER. A failure
 * prints the seed: it repeats the plan, not the moment of a kill or the order of threads.
 *
 * The server knows one node today, the machine that it runs on. Its queue gets one node as large as
 * --nodes nodes together (64 GPUs, the most a node may have); placement alone (core/sched.h) gets
 * all of them one by one, with --place (lives_place.c).
 */
#include "lives.h"

#include "base/crash.h"
#include "server/api/ctx.h"
#include "server/control/inputs.h"
#include "server/control/keyed_executor.h"
#include "server/control/live.h"
#include "server/control/prepare.h"
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/start/parts.h"
#include "server/start/start.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define LIFE_STEPS 12   /* at most */
#define DRAIN_STEPS 600 /* in which all that is left must end */
#define SETTLE_STEPS 20
#define POOL_WAIT_US (INT64_C(300) * 1000000)
#define REFUSED_MAX 40 /* starts in a row that fail while the database is away */
#define PUSH_STEPS 32
/* How a life ended, to the parent. 9: app_crash_at */
enum { EXIT_CLOSED = 0, EXIT_CRASHED = 9, EXIT_FAILED = 10, EXIT_REFUSED = 11, EXIT_OVER = 12 };

/* clang-format off */
const struct shape shapes[SHAPES] = {
	{4,  16,  1, 0, NULL,  20},
	{16, 64,  1, 0, "2h",  20},
	{16, 64,  2, 0, "1h",  10},
	{2,  4,   1, 0, "10m", 20},
	{32, 128, 1, 0, NULL,  10},
	{16, 64,  4, 0, "4h",  6},
	{8,  32,  1, 1, "1h",  1},
	{16, 64,  1, 4, NULL,  1},
};
static const char *const labels[] = {
	"push:before", "push:after", "place:before", "place:after", "freeze:before", "freeze:after",
	"claim:before", "claim:after", "launch:intent", "launch:before", "launch:after",
	"ready:before", "exit:before-record", "exit:after-record", "exit:before-step",
	"exit:after-step",
};
/* clang-format on */

static int said_fd = STDERR_FILENO; /* stderr is the server's log */

NORETURN void world_fail(const struct world *w, const char *what, int line, const char *fmt, ...)
{
	char words[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	(void)dprintf(said_fd,
	              "lives: seed %" PRIu64 ", step %u, life %u: line %d: %s: %s\n"
	              "lives: the server's log is %s/server.log\n",
	              w->seed, w->step, w->lives, line, what, words, w->dir);
	_exit(EXIT_FAILED);
}

uint32_t below(struct world *w, uint32_t n)
{
	uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ (z >> 31)) % n);
}

bool one_in(struct world *w, uint32_t n)
{
	return below(w, n) == 0;
}

int64_t real_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void world_sample(struct world *w, enum cost what, int64_t since_us)
{
	uint32_t n = w->n_samples[what]++;

	w->sample[what][n % SAMPLES_MAX] =
		(struct sample){(float)(real_us() - since_us), w->waiting, w->over};
}

/* --- one life of the server --- */

struct server {
	struct world *w;
	struct app *app;
	struct arena *a;
	struct principal who[TEAMS][USERS];
	const char *project[TEAMS];
};

/* The statement or call from which it is away, and until when. */
static const char *away(struct server *s, uint32_t most, const char *url)
{
	uint32_t first = 100 + below(s->w, most);

	return arena_printf(s->a, "fault:%u-%u:%s", first, first + below(s->w, 200), url);
}

static void choose_faults(struct server *s, const char **database, const char **objects)
{
	struct world *w = s->w;
	bool calm = w->step >= w->steps;

	*database = w->database != NULL ? w->database
	                                : arena_printf(s->a, "sqlite:%s/data/stoker.db", w->dir);
	*objects = NULL;
	w->faults = w->store_faults = false;
	if (!calm && one_in(w, 4)) {
		*database = away(s, s->w->n_jobs * 4, *database);
		w->db_outages++;
		w->faults = true;
	} else if (!calm && one_in(w, 4)) {
		*objects = away(s, s->w->n_jobs, arena_printf(s->a, "dir:%s/data/objects", w->dir));
		w->store_outages++;
		w->store_faults = true;
	}
}

static int parts_open(struct server *s, struct err *err)
{
	struct app *app = s->app;
	const char *database, *objects;

	choose_faults(s, &database, &objects);
	app->set.database = database;
	if (start_open(app, err) < 0)
		return -1;
	if (objects != NULL) {
		struct objstore_env env = {0};

		objstore_close(app->objects);
		app->objects = NULL;
		if (objstore_open(&app->objects, objects, &env, err) < 0)
			return -1;
	}
	app->engine = fake_engine(s->w, app);
	start_urls(app, "127.0.0.1", 9);
	app->program = "/bin/false";
	app->sandbox = app->sandbox_kind = "none";
	return 0;
}

static int team_of(const struct ask *ask, const char *name, const char **id, struct err *err)
{
	struct model_team *all = NULL, made = {0};
	size_t n = 0;

	if (team_ops.list(ask, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(all[i].name, name) == 0) {
			*id = all[i].id;
			return 0;
		}
	}
	if (team_ops.create(ask, name, &made, err) < 0)
		return -1;
	*id = made.id;
	return 0;
}

/* The archive that half of its jobs name. */
static int send_code(struct server *s, const struct ask *ask, uint32_t t, const char *team,
                     struct err *err)
{
	struct model_upload u = {0};

	if (s->w->code[t][0] != '\0')
		return 0;
	if (upload_ops.create(ask, team, NULL, &u, err) < 0 ||
	    objstore_put(s->app->objects, u.key, STR_LIT("code"), err) < 0 ||
	    upload_ops.stored(s->app, u.key, NULL, err) < 0)
		return -1;
	FMT(s->w->code[t], "%s", u.key);
	return 0;
}

/* A project for each team, and people who push into it. */
static APART int people(struct server *s, struct err *err)
{
	AUTO_BUF struct buf token = BUF_INIT(1000);
	struct ask ask = {s->app, NULL, s->a};
	struct principal *admin = NULL;

	if (fs_read(AT_FDCWD, app_path(s->app, s->a, "admin-token"), &token, err) < 0 ||
	    token_ops.authenticate(s->app, s->a, str_trim(buf_view(&token)), false, &admin, err) <
	            0)
		return -1;
	ask.principal = admin;
	for (uint32_t t = 0; t < TEAMS; t++) {
		struct model_project p = {0};
		const char *team = NULL;

		if (team_of(&ask, arena_printf(s->a, "t%u", t), &team, err) < 0 ||
		    project_ops.upsert(&ask, team, "p", &p, err) < 0 ||
		    send_code(s, &ask, t, team, err) < 0)
			return -1;
		s->project[t] = p.id;
		for (uint32_t u = 0; u < USERS; u++) {
			s->who[t][u] = *admin;
			s->who[t][u].name = arena_printf(s->a, "u%u", u);
		}
	}
	return 0;
}

static APART int server_open(struct server *s, struct err *err)
{
	struct world *w = s->w;
	int64_t since = real_us();
	char *argv[] = {
		arena_cstr(s->a, "--data"),
		arena_printf(s->a, "%s/data", w->dir),
		arena_cstr(s->a, "--cpus"),
		arena_printf(s->a, "%u", w->n_nodes * NODE_CPUS),
		arena_cstr(s->a, "--memory"),
		arena_printf(s->a, "%uGiB", w->n_nodes * NODE_GIB),
		arena_cstr(s->a, "--gpus"),
		arena_printf(s->a, "H100:%u", MIN(w->n_nodes * 8, (uint32_t)SCHED_GPUS_MAX)),
		NULL,
	};

	s->app = app_new(s->a);
	if (settings_load(s->a, (int)COUNT(argv) - 1, argv, &s->app->set, err) < 0)
		world_fail(w, "settings", __LINE__, "%s", err->msg);
	if (parts_open(s, err) < 0 || people(s, err) < 0)
		return -1;
	parts_start(s->app);
	reconcile_start(s->app);
	world_sample(w, COST_START, since);
	return 0;
}

/* --- steps --- */

static uint8_t some_shape(struct world *w)
{
	uint32_t sum = 0, at;

	for (size_t i = 0; i < SHAPES; i++)
		sum += shapes[i].weight;
	at = below(w, sum);
	for (uint8_t i = 0; i < SHAPES; i++) {
		if (at < shapes[i].weight)
			return i;
		at -= shapes[i].weight;
	}
	return 0;
}

static const struct doc *document(struct server *s, struct arena *a, uint32_t n)
{
	const struct sim_job *j = &s->w->job[n];
	const struct shape *x = &shapes[j->shape];
	AUTO_BUF struct buf json = BUF_INIT(10000);
	const struct doc *d = NULL;
	struct err err = {0};

	buf_printf(&json,
	           "{\"name\":\"s%06u\",\"priority\":%d,\"compute\":{\"cpu_count\":%u,"
	           "\"memory\":\"%uGi\",\"node_count\":%u",
	           n, (int)j->priority, x->cpus, x->gib, x->nodes);
	if (x->gpus > 0)
		buf_printf(&json, ",\"accelerator\":{\"accelerator\":\"H100\",\"count\":%u}",
		           x->gpus);
	buf_printf(&json, "},\"runtime\":{\"start_commands\":[\"true\"]");
	if (n % 2 == 1)
		buf_printf(&json,
		           ",\"artifacts\":[{\"s3_bucket\":\"" APP_BUCKET "\",\"s3_key\":\"%s\"}]",
		           s->w->code[j->team]);
	if (KEEPS_CHECKPOINTS(n))
		buf_puts(&json, ",\"checkpointing_config\":{\"enabled\":true}");
	buf_puts(&json, "}");
	if (x->lasts != NULL)
		buf_printf(&json, ",\"limits\":{\"max_duration\":\"%s\"}", x->lasts);
	if (n % 2 == 0)
		buf_printf(&json, ",\"retry\":{\"max_attempts\":%d,\"on\":[\"node_fail\"]}",
		           ATTEMPTS_MAX);
	buf_puts(&json, "}");
	if (js_parse(a, buf_view(&json), &d, &err) < 0)
		world_fail(s->w, "document", __LINE__, "%s", err.msg);
	return d;
}

/* A push that was not answered is pushed again, with its key. */
static APART void push(struct server *s, uint32_t most)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct world *w = s->w;

	for (uint32_t i = 0; i < most && w->pushed < w->n_jobs; i++) {
		uint32_t n = w->pushed;
		struct sim_job *j = &w->job[n];
		const struct ask ask = {s->app, &s->who[j->team][j->user], a};
		struct model_job out = {0};
		struct err err = {0};
		int64_t since = real_us();
		char key[20];

		arena_reset(a);
		FMT(key, "key-%u", n);
		if (push_ops.push(&ask, s->project[j->team], document(s, a, n), key, &out, &err) <
		    0) {
			CHECK(w->faults || w->store_faults, "push: %s", err.msg);
			return;
		}
		world_sample(w, COST_PUSH, since);
		CHECK(j->id[0] == '\0' || strcmp(j->id, out.id) == 0,
		      "two jobs of one push: %s, %s", j->id, out.id);
		FMT(j->id, "%s", out.id);
		j->acked = true;
		w->pushed++;
	}
}

static APART void disturb(struct server *s)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct world *w = s->w;

	for (uint32_t i = below(w, 4); i > 0 && w->pushed > 0; i--) {
		struct sim_job *j = &w->job[below(w, w->pushed)];
		const struct ask ask = {s->app, &s->who[j->team][j->user], a};
		const int64_t priority = below(w, 4);
		struct model_change c = {.priority = &priority};
		struct model_job out = {0};
		struct err err = {0};
		int r;

		if (one_in(w, 2)) {
			j->stop = true; /* it may have been heard even if it is not answered */
			r = job_ops.stop(&ask, j->id, one_in(w, 2), &out, &err);
		} else {
			r = job_ops.change(&ask, j->id, &c, &out, &err);
		}
		CHECK(r == 0 || err.code == ERR_CONFLICT || w->faults, "%s", err.msg);
	}
}

static void pool_wait(struct server *s, struct keyed_executor *pool, const char *name)
{
	const struct world *w = s->w;
	int64_t since = real_us();

	while (keyed_executor_busy(pool, NULL)) {
		struct timespec ts = {.tv_nsec = 200000};

		CHECK(real_us() - since < POOL_WAIT_US, "the %s pool does not come to an end",
		      name);
		(void)nanosleep(&ts, NULL);
	}
}

static void queue_step(struct server *s)
{
	int64_t since = real_us();

	queue_pass(s->app);
	world_sample(s->w, COST_PASS, since);
	s->w->pass_whole = true;
	pool_wait(s, s->app->prepare, "prepare");
}

static void reconcile_step(struct server *s)
{
	int64_t since = real_us();

	reconcile_pass(s->app);
	world_sample(s->w, COST_RECONCILE, since);
	pool_wait(s, s->app->sweeps, "sweep");
	pool_wait(s, s->app->prepare, "prepare");
}

/* True: all is over. */
static bool one_step(struct server *s)
{
	struct world *w = s->w;
	bool calm = w->step >= w->steps;

	w->step++;
	w->now_ms += 5000 + below(w, 55000);
	if (one_in(w, 20))
		w->now_ms += 3600 * 1000;
	clock_fake(w->now_ms, -1);
	/* a long line at once, and a few at a time behind it */
	push(s, w->pushed == 0 ? w->n_jobs / 4 * 3 : w->n_jobs / PUSH_STEPS + 1);
	if (!calm)
		disturb(s);
	if (!jobs_look(w, s->app))
		return false;
	if (w->over == w->n_jobs && atomic_load(&w->n_runners) == w->first_alive)
		return true;
	queue_step(s);
	runners_act(w, s->app, calm);
	reconcile_step(s);
	live_pass(s->app);
	(void)places_look(w, s->app);
	CHECK(w->step < w->steps + DRAIN_STEPS, "%u of %u jobs are over, %u wait, %u are placed",
	      w->over, w->n_jobs, w->waiting, w->placed);
	return false;
}

static bool step(struct server *s)
{
	int64_t since = real_us();
	bool over = one_step(s);

	s->w->step_us = (uint32_t)MIN(real_us() - since + 1, INT64_C(100000000));
	return over;
}

/* Jobs are over before their folders are gone, and rows of attempts wait for that. */
static void settle(struct server *s)
{
	struct world *w = s->w;

	for (int i = 0; i < SETTLE_STEPS; i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct model_attempt *t = NULL;
		struct err err = {0};
		size_t n = 0;

		CHECK(meta_attempts(s->app->meta, a, NULL, &t, &n, &err) == 0, "%s", err.msg);
		if (n == 0)
			return;
		w->now_ms += 60000;
		clock_fake(w->now_ms, -1);
		reconcile_step(s);
	}
}

enum death { DEATH_KILL, DEATH_LABEL, DEATH_NONE };

/* Before its last step. SIGALRM is not handled: the process is gone, as by kill -9. */
static void prepare_death(struct world *w, enum death how)
{
	uint32_t us = 1 + below(w, w->step_us);
	struct itimerval at = {.it_value = {us / 1000000, us % 1000000}};

	if (how == DEATH_KILL && setitimer(ITIMER_REAL, &at, NULL) < 0)
		abort();
	if (how == DEATH_LABEL)
		crash_set(labels[below(w, (uint32_t)COUNT(labels))]);
}

static NORETURN void live(struct world *w)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct server s = {.w = w, .a = a};
	bool calm = w->step >= w->steps;
	unsigned left = calm ? LIFE_STEPS * 4 : 1 + below(w, LIFE_STEPS);
	uint32_t chance = below(w, 100);
	enum death how = calm          ? DEATH_NONE
	                 : chance < 50 ? DEATH_KILL
	                 : chance < 80 ? DEATH_LABEL
	                               : DEATH_NONE;
	struct err err = {0};
	bool over = false;

	clock_fake(w->now_ms, -1);
	if (server_open(&s, &err) < 0) {
		CHECK(w->faults || w->store_faults || w->database != NULL, "start: %s", err.msg);
		log_error("start: %s", err.msg);
		_exit(EXIT_REFUSED);
	}
	for (; left > 0 && !over; left--) {
		if (left == 1)
			prepare_death(w, how);
		over = step(&s);
	}
	if (over && !calm) { /* who judges the end is disturbed by nothing */
		w->steps = MIN(w->steps, w->step);
		over = false;
	}
	if (over) {
		settle(&s);
		all_look(w, s.app);
	}
	atomic_store(&s.app->stopping, true);
	parts_stop(s.app);
	parts_free(s.app);
	start_close(s.app);
	(void)fflush(stdout);
	arena_free(TAKE(a));
	exit(over ? EXIT_OVER : EXIT_CLOSED);
}

/* --- the parent --- */

static int life_of(struct world *w)
{
	pid_t pid;
	int status = 0;

	(void)fflush(stdout);
	w->lives++;
	w->pass_whole = false;
	pid = fork();
	if (pid < 0)
		abort();
	if (pid == 0) {
		char path[200];
		int log;

		FMT(path, "%s/server.log", w->dir);
		log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		said_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
		if (log < 0 || said_fd < 0 || dup2(log, STDERR_FILENO) < 0)
			abort();
		log_init(LOG_WARN, false);
		live(w);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			abort();
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		return SIGALRM + 128;
	if (WIFSIGNALED(status))
		world_fail(w, "a life", __LINE__, "ended by %s", strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}

static APART void lives(struct world *w)
{
	unsigned refused = 0;
	int how;

	do {
		how = life_of(w);
		refused = how == EXIT_REFUSED ? refused + 1 : 0;
		w->refused += how == EXIT_REFUSED;
		w->killed += how == SIGALRM + 128;
		w->crashed += how == EXIT_CRASHED;
		w->closed += how == EXIT_CLOSED;
		if (refused > REFUSED_MAX)
			world_fail(w, "start", __LINE__, "%u starts in a row failed", refused);
		if (how == EXIT_REFUSED)
			(void)usleep(20000); /* a lost connection of PostgreSQL ends by itself */
		if (how != EXIT_REFUSED && how != SIGALRM + 128 && how != EXIT_CRASHED &&
		    how != EXIT_CLOSED && how != EXIT_OVER)
			exit(how == EXIT_FAILED ? 1 : how);
	} while (how != EXIT_OVER);
}

static int by_us(const void *a, const void *b)
{
	float x = ((const struct sample *)a)->us, y = ((const struct sample *)b)->us;

	return x < y ? -1 : x > y;
}

/* Of those samples where the line was long, or where most jobs were over. */
static void print_cost(struct world *w, enum cost what, const char *name, bool over, uint32_t least)
{
	uint32_t n = MIN(w->n_samples[what], (uint32_t)SAMPLES_MAX), kept = 0;
	struct sample *s = xcalloc(n + 1, sizeof(*s));

	for (uint32_t i = 0; i < n; i++) {
		const struct sample *x = &w->sample[what][i];

		if ((over ? x->over : x->waiting) >= least)
			s[kept++] = *x;
	}
	qsort(s, kept, sizeof(*s), by_us);
	if (kept > 0)
		(void)printf("  %-10s %8u %s: median %9.3f ms, p99 %9.3f ms, max %9.3f ms (%u)\n",
		             name, least, over ? "over    " : "waiting ",
		             (double)s[kept / 2].us / 1000, (double)s[kept * 99 / 100].us / 1000,
		             (double)s[kept - 1].us / 1000, kept);
	free(s);
}

static APART void print(struct world *w, int64_t since)
{
	static const struct {
		enum cost what;
		const char *name;
	} rows[] = {{COST_PASS, "pass"},
	            {COST_BEAT, "heartbeat"},
	            {COST_RECONCILE, "reconcile"},
	            {COST_PUSH, "push"},
	            {COST_START, "start"}};

	(void)printf("seed %" PRIu64 ": %u jobs, %u nodes as one (%u CPUs, %u GPUs), %s: %u steps, "
	             "%.1f s\n",
	             w->seed, w->n_jobs, w->n_nodes, w->n_nodes * NODE_CPUS,
	             MIN(w->n_nodes * 8, (uint32_t)SCHED_GPUS_MAX),
	             w->database != NULL ? "PostgreSQL" : "SQLite", w->step,
	             (double)(real_us() - since) / 1e6);
	(void)printf(
		"  %u lives: %u killed at any moment, %u at a label, %u closed, %u not started; "
		"%u with an outage of the database, %u of the store\n",
		w->lives, w->killed, w->crashed, w->closed, w->refused, w->db_outages,
		w->store_outages);
	(void)printf(
		"  %u runners launched, %u died, %u of whose ends a sweep told; %u attempts were "
		"tried again; at most %u ranks placed, %u jobs waiting\n",
		atomic_load(&w->launched), w->died, atomic_load(&w->told), w->retried,
		w->most_placed, w->most_waiting);
	for (size_t i = 0; i < COUNT(rows); i++) {
		print_cost(w, rows[i].what, rows[i].name, false, w->n_jobs / 2);
		print_cost(w, rows[i].what, rows[i].name, true, w->n_jobs / 2);
	}
	(void)fflush(stdout);
}

static void *shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static APART void fill(struct world *w)
{
	w->random = w->seed;
	w->now_ms = 1700000000000;
	w->runners_max = w->n_jobs * 8 + 1000;
	w->job = shared(sizeof(*w->job) * w->n_jobs);
	w->runner = shared(sizeof(*w->runner) * w->runners_max);
	for (uint32_t i = 0; i < w->n_jobs; i++)
		w->job[i] = (struct sim_job){
			.shape = some_shape(w),
			.team = (uint8_t)below(w, TEAMS),
			.user = (uint8_t)below(w, USERS),
			.priority = below(w, 4),
			.end = JOB_STATE_COUNT,
		};
}

static APART bool option(struct world *w, const char *name, const char *value)
{
	const struct {
		const char *name;
		uint32_t *to;
	} numbers[] = {{"--jobs", &w->n_jobs}, {"--nodes", &w->n_nodes}, {"--steps", &w->steps}};
	struct err err = {0};
	uint64_t n = 0;

	if (strcmp(name, "--dir") == 0) {
		w->dir = value;
		return true;
	}
	if (str_u64(str_of(value), 1, 1000000, &n, &err) < 0)
		return false;
	if (strcmp(name, "--seed") == 0)
		w->seed = n;
	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (strcmp(name, numbers[i].name) == 0) {
			*numbers[i].to = (uint32_t)n;
			return true;
		}
	}
	return strcmp(name, "--seed") == 0;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/stoker-lives.XXXXXX", fast[] = "/dev/shm/stoker-lives.XXXXXX";
	struct world *w = shared(sizeof(*w));
	int64_t since = real_us();
	bool place = false;
	struct err err = {0};

	w->seed = 1;
	w->n_jobs = 500;
	w->step_us = 1000;
	w->n_nodes = 8;
	w->database = getenv("SIM_DATABASE") != NULL ? getenv("SIM_DATABASE")
	                                             : getenv("STOKER_TEST_DATABASE");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--place") == 0)
			place = true;
		else if (i + 1 >= argc || !option(w, argv[i], argv[i + 1]))
			return fprintf(stderr, "usage: lives [--place] [--seed N] [--jobs N] "
			                       "[--nodes N] [--steps N] [--dir FOLDER]\n"),
			       2;
		else
			i++;
	}
	if (place) {
		place_nodes(w->seed, w->n_nodes, w->n_jobs);
		return 0;
	}
	if (w->steps == 0)
		w->steps = 60 + w->n_jobs / 500;
	if (w->dir == NULL) /* in memory: what is measured is not the disk */
		w->dir = mkdtemp(fast) != NULL ? fast : mkdtemp(dir);
	if (w->dir == NULL)
		abort();
	(void)setenv("XDG_CONFIG_HOME", w->dir, 1);
	fill(w);
	lives(w);
	print(w, since);
	if (fs_remove_tree(AT_FDCWD, w->dir, &err) < 0)
		(void)fprintf(stderr, "lives: %s\n", err.msg);
	return 0;
}
