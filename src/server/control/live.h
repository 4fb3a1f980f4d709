/*
 * live.h - what changes too often to be stored each time: heartbeats and progress of jobs, what
 * each waiting job waits for and its place in line. It is kept in memory, shown over the rows that
 * are read, and stored together: when a stage changes, and else every LIVE_STORE_MS. What is lost
 * by a kill is said again by the next heartbeat and the next pass of the queue.
 */
#ifndef LIVE_H
#define LIVE_H

#include "server/app.h"

#define LIVE_PERIOD_MS 5000                   /* looks for something to store */
#define LIVE_STORE_MS 30000                   /* progress without a change of stage */
#define LIVE_SILENT_MS ((int64_t)3600 * 1000) /* what was not heard of for so long is forgotten */

void live_start(struct app *app);
void live_run(struct app *app);
void live_stop(struct app *app);
void live_free(struct app *app); /* stores what there is; the database is still open */

struct live_progress {
	const char *stage, *words; /* words NULL: none */
	uint64_t done, total;
	double rate;
	int64_t now_ms;
	bool heartbeat; /* it came from the runner */
};
/* True when stage or words are others than before. */
bool live_progress(struct app *app, const char *job_id, const struct live_progress *p);
/* A sign of life of one node; true when `idle` is another than before. */
bool live_beat(struct app *app, const char *attempt_id, uint32_t rank, bool idle, int64_t now_ms);

struct live_wait {
	const char *reason;
	size_t place;     /* in line, from 1; 0: not in line */
	int64_t start_ms; /* it starts not later than this; 0: unknown */
};
/* True when it says something else than before; *first: it did not wait before. */
bool live_wait(struct app *app, const char *job_id, const struct live_wait *w, bool *first);

/* A job has left a state: what it waited for is over. `all`: its progress, too. */
void live_moved(struct app *app, const char *job_id, bool all);
void live_ended(struct app *app, const char *attempt_id, uint32_t rank);

/* Rows as they were read, with what is known beyond them. Texts are put into the arena. */
void live_show(struct app *app, struct arena *a, struct model_job *jobs, size_t n);
/* When it was last heard of, monotonic; 0: not by this server. */
int64_t live_heard_ms(struct app *app, const char *attempt_id, uint32_t rank);
void live_show_nodes(struct app *app, struct model_attempt *t, size_t n);

/* Stores what is due. */
void live_pass(struct app *app);

#endif
