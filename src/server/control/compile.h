/*
 * compile.h - the caches of compilers that a job begins with: what its repository has that is of
 * use on the machine that it runs on (core/compile_cache.h). The job adds what is new by itself, as
 * any client of the Hub, with its own token (run/harvest.h).
 */
#ifndef COMPILE_H
#define COMPILE_H

#include "server/control/resolved.h"
#include "store/blobs/blob_pins.h"

#define COMPILE_FILL_MAX ((uint64_t)32 << 30) /* bytes: more than that is not copied into a job */

/* The repository: OWNER/NAME. user, team: of the job. */
const char *compile_repo(struct arena *a, const struct job_spec *spec, const char *user,
                         const char *team);
/* May jobs of theirs add to it? To what is the user's or the team's own. */
bool compile_is_own(const char *repo, const char *user, const char *team);
/* May the caller's job use it? ERR_HUB_REPO_NOT_FOUND, ERR_ROLE_REQUIRED. */
int compile_check(const struct ask *ask, const struct model_project *p, const struct job_spec *spec,
                  struct err *err) MUST_CHECK;
/* Fills out->compile for this attempt; nothing, when the job asks for none. A repository that
 * cannot be read is told in the job's log, and ends no job. What it names is pinned. */
int compile_choose(struct app *app, struct arena *a, const struct model_job *job,
                   const struct job_spec *spec, struct blob_pins *pins, struct resolved *out,
                   struct err *err) MUST_CHECK;

#endif
