/* loads.h - which checkpoints a job starts from: the newest complete one, or the one it names. */
#ifndef LOADS_H
#define LOADS_H

#include "server/control/resolved.h"

/* Fills now->load from the specification, or from what was frozen before, and of a retry
 * now->resume: the job's own newest complete checkpoint. Incomplete ones are skipped with a line in
 * the job's log. A reference without a checkpoint is ERR_CHECKPOINT_NOT_FOUND, or, when the job
 * does not require one, a line in its log. */
int loads_choose(struct app *app, struct arena *a, const struct model_job *job,
                 const struct job_spec *spec, const struct resolved *before, struct resolved *now,
                 struct err *err) MUST_CHECK;

/* Whether the references of a job that is being pushed can lead anywhere: ERR_JOB_NOT_FOUND,
 * ERR_PROJECT_NOT_FOUND, ERR_CHECKPOINT_NOT_FOUND or ERR_CHECKPOINT_INCOMPLETE when a required one
 * never will. A job that has not ended may still write the checkpoint. frozen: of the job that is
 * made again; what it started from is still to be there. */
int loads_check(struct app *app, struct arena *a, const struct model_job *job,
                const struct job_spec *spec, const struct resolved *frozen,
                struct err *err) MUST_CHECK;

/* The checkpoint that a reference of this team means, which names a project or a job.
 * ERR_PROJECT_NOT_FOUND, ERR_JOB_NOT_FOUND, ERR_CHECKPOINT_NOT_FOUND, ERR_CHECKPOINT_INCOMPLETE. */
int loads_find(struct app *app, struct arena *a, const char *team_id, const struct spec_load *ref,
               struct resolved_load *out, struct err *err) MUST_CHECK;
/* Can it ever lead to one? A job that has not ended may still write it. */
int loads_may_find(struct app *app, struct arena *a, const char *team_id,
                   const struct spec_load *ref, struct err *err) MUST_CHECK;

/* The newest complete checkpoint of this job, in `a`: for a recreated job that resumes.
 * ERR_CHECKPOINT_NOT_FOUND when it has none. */
int loads_newest(struct app *app, struct arena *a, const struct model_job *job,
                 struct resolved_load *out, struct err *err) MUST_CHECK;

#endif
