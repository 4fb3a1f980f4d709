/*
 * fetch.h - sources into the mirror, each at most once at a time: who asks for the same (team,
 * source, revision, filter, secret) joins the fetch that runs; by web identity, who asks for the
 * same project. A fetch that nobody waits for any more is canceled, unless it was asked for by name
 * (a prefetch); what it got is kept.
 */
#ifndef FETCH_H
#define FETCH_H

#include "server/data/fetch_own.h"

#define FETCH_THREADS 8 /* sources at once */
#define FETCH_QUEUE_MAX 1000
#define FETCH_TRIES 4       /* of an outage of the source, with growing pauses */
#define FETCH_LIST_MS 60000 /* a prefetch waits this long for the listing */

struct fetch;

struct fetch_want {
	const char *team_id;
	/* Of web identity, which a prefetch has none of; NULL then. */
	const char *project_id, *job_id;
	const struct spec_weights *weights;
	const char *revision, *manifest; /* frozen before; NULL: resolve */
	struct fetch_own own;            /* the repository of ours that it is */
};

struct fetch_view {
	bool listed, done;
	const char *revision; /* once listed */
	struct mirror_progress progress;
	/* once done */
	int result; /* 0, or -1 with err */
	struct err err;
	char manifest[HASH_HEX_CAP];
	bool warm; /* nothing had to travel */
	bool own;  /* it is a repository of ours: then there is no row of it */
	char mirror_id[MODEL_ID_CAP];
};

void fetch_start(struct app *app);
void fetch_stop(struct app *app); /* after app->stopping: cancels what runs, joins */
void fetch_free(struct app *app);
/* May a job of this server name that endpoint? ERR_SOURCE_ENDPOINT_DENIED, ERR_SOURCE_INVALID. */
int fetch_may(struct app *app, const struct spec_weights *w, struct err *err) MUST_CHECK;
/* Is there a Hub for a source that is none of this server's repositories? Other sources need none.
 * ERR_SOURCE_ENDPOINT_DENIED. */
int fetch_may_ask(struct app *app, const char *source, const char *endpoint,
                  struct err *err) MUST_CHECK;
/* What can be said of a source before it is fetched for that team: one that is none, a file that is
 * not there or not in an allowed folder, an internal address, a checkpoint that nobody will write.
 */
int fetch_check(struct app *app, const char *team_id, const struct spec_weights *w,
                struct err *err) MUST_CHECK;
/* Is everything here that this manifest names? Then its source is not asked. */
bool fetch_has(struct app *app, const char *manifest);
/* Is a fetch of this source under way that has not asked for room? It may be about to find all that
 * it needs here. */
bool fetch_wants(struct app *app, const char *source);
/* Joins or begins; leave it with fetch_leave. */
int fetch_begin(struct app *app, const struct fetch_want *want, struct fetch **out,
                struct err *err) MUST_CHECK;
/* How it is now; waits up to wait_ms for its end (or, `listing`, for the listing). Texts of the
 * view live as long as the fetch is held. */
void fetch_look(struct app *app, struct fetch *f, int64_t wait_ms, bool listing,
                struct fetch_view *out);
void fetch_keep(struct app *app, struct fetch *f); /* goes on without waiters */
/* The fetched files are pinned until then: leave when a row refers to them. */
void fetch_leave(struct app *app, struct fetch *f);
/* "1.1 GB of 1.5 GB, 412 MB/s, 1s left" */
void fetch_words(const struct mirror_progress *p, char *out, size_t cap);

#endif
