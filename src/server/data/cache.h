/*
 * cache.h - training caches: a folder per project and per team on this cluster, their quota, and
 * snapshots of what is in them.
 */
#ifndef CACHE_H
#define CACHE_H

#include "server/app.h"

#define CACHE_LIST_MAX 200000 /* files that a snapshot names; beyond that it only counts */

void cache_start(struct app *app);
void cache_stop(struct app *app);
void cache_free(struct app *app);
char *cache_dir(struct app *app, struct arena *a, const char *scope, const char *id);
/* Before a job starts: the folders are there, and the project's cache is below its quota. */
int cache_ready(struct app *app, const struct model_job *job, const struct job_spec *spec,
                struct err *err) MUST_CHECK;
/* A heartbeat's figures: events and log lines at 80, 90 and 100 % of the quota, once each a job. */
void cache_watch(struct app *app, const char *job_id, uint64_t bytes, uint64_t quota);
/* The job is over. In the background: summarizes what it may have written, watches its project's
 * cache a last time, and forgets its marks. */
void cache_job_over(struct app *app, const struct model_job *job);
int cache_snapshot_now(struct app *app, struct arena *a, const char *scope, const char *id,
                       struct model_cache_snapshot *out, struct err *err) MUST_CHECK;

#endif
