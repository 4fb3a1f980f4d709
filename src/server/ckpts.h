/* ckpts.h - checkpoints as rows and objects. */
#ifndef CKPTS_H
#define CKPTS_H

#include "server/app.h"

/* Deletes complete checkpoints of the job beyond its newest `keep`; 0 keeps all. */
int ckpts_keep_last(struct app *app, struct arena *a, const struct model_job *job, uint32_t keep,
                    struct err *err) MUST_CHECK;

#endif
