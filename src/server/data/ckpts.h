/* ckpts.h - checkpoints as rows and objects. */
#ifndef CKPTS_H
#define CKPTS_H

#include "server/app.h"

/* Of the files of a checkpoint in a store that is elsewhere: each takes a round trip, and the
 * runner waits for all. */
#define CKPTS_AT_ONCE 32

/* What a manifest says of its files, into the row; key: where the manifest is. */
void ckpts_show(struct model_checkpoint *row, const struct ckpt *c, const char *key);
/* Stores what a runner says of one. Complete is only what the store holds whole: else it becomes
 * CKPT_INCOMPLETE. c->state becomes the checkpoint's, which of several nodes all parts decide;
 * *news: it is complete, and of several nodes was not before. Sets c->synced_ms. */
int ckpts_put(struct app *app, struct arena *a, const struct model_job *job,
              struct model_checkpoint *c, bool *news, struct err *err) MUST_CHECK;
/* Does the store hold what the manifest promises? By names and sizes. */
int ckpts_is_stored(struct app *app, struct arena *a, const struct model_checkpoint *c,
                    bool *stored, struct err *err) MUST_CHECK;
/* A node of the job has ended: checkpoints that wait for it are judged again. */
int ckpts_settle(struct app *app, const struct model_job *job, struct err *err) MUST_CHECK;
/* A file of it is not what its manifest says: it is incomplete from now on, so that nothing loads
 * it by itself; its bytes stay. *done is false when it is not there or not complete any more. */
int ckpts_set_damaged(struct app *app, const struct model_checkpoint *c, const char *path,
                      bool *done, struct err *err) MUST_CHECK;
/* ckpt_mark.c: the operation of this name. */
int ckpt_complete(const struct ask *ask, const char *job_id, const char *name,
                  struct err *err) MUST_CHECK;
/* Deletes complete checkpoints of the job beyond its newest `keep`; 0 keeps all. */
int ckpts_keep_last(struct app *app, struct arena *a, const struct model_job *job, uint32_t keep,
                    struct err *err) MUST_CHECK;
/* Rows for what a dead runner of the job put into the store and could not tell any more. */
int ckpts_adopt(struct app *app, struct arena *a, const struct model_job *job, uint32_t rank,
                struct err *err) MUST_CHECK;

#endif
