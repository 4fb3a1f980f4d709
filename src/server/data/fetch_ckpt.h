/*
 * fetch_ckpt.h - bt:// sources of jobs: checkpoints of this server, as weights of another job.
 *
 *   bt://project                the newest complete checkpoint of the project's newest job that has
 * one bt://project@job            the newest of that job; "latest" is the project's newest job
 *   bt://project@job/name       that one; without a job, of the project's newest job that has it
 *
 * Which one is meant is decided when the job's weights are prepared, and kept as its revision:
 * "<job>/<name>@<12 hex digits of the set of its files>". A checkpoint of one node is mounted as it
 * is; of one of several nodes each part is in a folder rank-<n>.
 */
#ifndef FETCH_CKPT_H
#define FETCH_CKPT_H

#include "server/app.h"
#include "store/sources/source.h"

bool fetch_is_ckpt(const char *source);
/* Can it lead anywhere, for a job of this team? See loads_check(). */
int fetch_ckpt_check(struct app *app, const char *team_id, const char *source,
                     struct err *err) MUST_CHECK;
/* revision: NULL, or the one that was frozen. ERR_CHECKPOINT_NOT_FOUND, ERR_CHECKPOINT_INCOMPLETE,
 * ERR_JOB_NOT_FOUND, ERR_PROJECT_NOT_FOUND, ERR_SOURCE_CHANGED. */
int fetch_ckpt_open(struct app *app, const char *team_id, const char *source, const char *revision,
                    const struct source_options *o, struct source **out,
                    struct err *err) MUST_CHECK;

#endif
