/*
 * ckpt_union.h - checkpoints of jobs with several nodes. Each node's runner judges its own part and
 * reports it; here they meet: by the files of all of them (format/set.h) and by how each node's
 * processes ended, core/ckpt_rule.h says what the checkpoint is. When it is complete, its parts are
 * kept (ckpt_keep.h), a manifest that names all of them is stored (core/ckpt_whole.h), and then the
 * rows of all nodes say so. While it is saved over, they name what is kept, until the new parts of
 * all nodes are complete together.
 *
 * Parts of two saves are never complete together, whatever their files look like. Each part's
 * manifest says when its files were written, and when the files were that they replace (struct
 * ckpt_times); ckpt_judge_union compares these times, and `updating` or the reason names the node
 * that is behind. Clocks of nodes differ: the time at which the store got a manifest is the same
 * clock for all. Without such times (a runner of before) the parts of a complete checkpoint that is
 * saved over are accepted when all nodes have saved over theirs, however often each did.
 *
 * With the lock of the job's checkpoints (app->ckpts).
 */
#ifndef CKPT_UNION_H
#define CKPT_UNION_H

#include "core/ckpt_rule.h"
#include "core/ckpt_whole.h"
#include "server/app.h"

/* Judges one again after one of its rows has changed; *state is what it is now; *news: it is
 * complete, and was not before, or with what has been saved over. */
int ckpt_union_judge(struct app *app, const struct model_job *job, const char *name,
                     enum ckpt_state *state, bool *news, struct err *err) MUST_CHECK;
/* A person says that it is complete: as it is stored. */
int ckpt_union_mark(struct app *app, const struct model_job *job, const char *name,
                    const struct ckpt_verdict *verdict, const char *marked_by,
                    struct err *err) MUST_CHECK;
/* The manifest of all nodes of a checkpoint: *found is false for a checkpoint of a single node,
 * which has none. */
int ckpt_union_read(struct app *app, struct arena *a, const char *prefix, const char *name,
                    struct ckpt_whole *out, bool *found, struct err *err) MUST_CHECK;

#endif
