/*
 * lives.h - the world of lives.c: what outlives a server. It lies in memory that all lives of the
 * server share: what was pushed and acknowledged, the runners that the fake engine started, and
 * what the server has said of each job so far.
 */
#ifndef LIVES_H
#define LIVES_H

#include "core/job.h"
#include "server/app.h"

#define TEAMS 3
#define USERS 4
#define RANKS_MAX 4
#define APART __attribute__((noinline)) /* each with a frame of its own: they are large */
#define ATTEMPTS_MAX 3
#define DIR_CAP 64
#define SAMPLES_MAX (1 << 20) /* of which only what is used takes memory */
#define GIB (UINT64_C(1) << 30)
#define NODE_CPUS 64 /* of one node */
#define NODE_GIB 256
/* Must hold always: false ends the simulation. */
#define CHECK(c, ...) ((c) ? (void)0 : world_fail(w, #c, __LINE__, __VA_ARGS__))

enum life { /* of a runner; in the order in which it goes through them */
	    LIFE_NEW,
	    LIFE_STARTED, /* it has read its start record */
	    LIFE_CLAIMED,
	    LIFE_READY,
	    LIFE_RUNS,  /* user code */
	    LIFE_ENDED, /* its exit record is written */
	    LIFE_GONE,
};

struct runner {
	_Atomic int life;
	char dir[DIR_CAP]; /* "runs/<attempt>-<rank>" */
	char attempt[DIR_CAP];
	uint32_t rank, job, number; /* number: of the attempt; job and number since the claim */
	uint64_t gpus;
	char token[100], nonce[24];
	enum job_end end;
	int code;
	bool ran, shipped;
	bool died; /* without a word, by chance */
	int64_t started_ms;
};

struct sim_job {
	char id[MODEL_ID_CAP];
	uint8_t shape, team, user;
	bool acked, stop; /* stop: somebody asked */
	enum job_state state,
		end; /* as last seen; end: the first final one, else JOB_STATE_COUNT */
	uint32_t attempt;
	int64_t priority, created_ms;
	uint8_t started[RANKS_MAX]; /* bit: user code of this attempt began */
	uint8_t well[ATTEMPTS_MAX]; /* bit: this rank ended with 0 */
	uint8_t bad;                /* bit: a rank of this attempt did not */
	/* before the last pass of the queue */
	bool waited;
	uint32_t attempt_then;
	int64_t priority_then;
};

/* What one call cost, in microseconds; the line was so long then, and so many jobs were over. */
struct sample {
	float us;
	uint32_t waiting, over;
};

enum cost { COST_PASS, COST_BEAT, COST_RECONCILE, COST_PUSH, COST_START, COST_COUNT };

struct world {
	uint64_t seed, random;
	uint32_t n_jobs, n_nodes, steps;
	const char *dir, *database; /* database: URL or NULL */
	unsigned step;
	uint32_t step_us; /* what the last one took */
	int64_t now_ms;
	uint32_t pushed, over, waiting, placed;
	uint32_t first_alive;
	char code[TEAMS][80]; /* key of an archive that jobs of the team name */
	_Atomic uint32_t n_runners;
	uint32_t runners_max;
	bool faults, store_faults; /* of this life: of the database, of the store */
	bool pass_whole; /* a pass of the queue was made whole since jobs were looked at */
	unsigned lives, killed, crashed, closed, refused, db_outages, store_outages;
	unsigned died, swept, overlong, retried;
	atomic_uint told; /* exit records, by a sweep */
	uint32_t most_placed, most_waiting;
	atomic_uint launched;
	uint32_t n_samples[COST_COUNT];
	struct sample sample[COST_COUNT][SAMPLES_MAX];
	struct sim_job *job;
	struct runner *runner;
};

struct shape {
	uint32_t cpus, gib, nodes, gpus;
	const char *lasts; /* NULL: not declared */
	unsigned weight;
};
#define KEEPS_CHECKPOINTS(n) ((n) % 8 == 7) /* the n-th job, if it has one node */
#define SHAPES 8
extern const struct shape shapes[SHAPES];

NORETURN void world_fail(const struct world *w, const char *what, int line, const char *fmt, ...)
	PRINTF(4, 5);
uint32_t below(struct world *w, uint32_t n); /* splitmix64 */
bool one_in(struct world *w, uint32_t n);
int64_t real_us(void);
void world_sample(struct world *w, enum cost what, int64_t since_us);

/* lives_runners.c */
/* In place of the app's own, which it takes over. */
struct engine *fake_engine(struct world *w, struct app *app);
/* Each runner goes on a bit: some die, some end. calm: none dies any more. */
void runners_act(struct world *w, struct app *app, bool calm);
/* lives_checks.c */
/* Reads all jobs, and holds them against what is known. False: the database did not answer. */
bool jobs_look(struct world *w, struct app *app);
bool places_look(struct world *w, struct app *app);
/* All is over: nothing is missing, nothing is left. */
void all_look(struct world *w, struct app *app);
/* lives_place.c */
void place_nodes(uint64_t seed, uint32_t nodes, uint32_t jobs);

#endif
