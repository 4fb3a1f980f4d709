/* loads.h - which checkpoints a job starts from: the newest complete one, or the one it names. */
#ifndef LOADS_H
#define LOADS_H

#include "server/frozen.h"

/* Fills now->load; what was frozen before is taken over. Incomplete checkpoints are passed over
 * with a line in the job's log. ERR_NOT_FOUND for a named one that is not there, and when there is
 * none at all. */
int loads_choose(struct app *app, struct arena *a, const struct model_job *job,
                 const struct job_spec *spec, const struct frozen *before, struct frozen *now,
                 struct err *err) MUST_CHECK;

#endif
