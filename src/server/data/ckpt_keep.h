/*
 * ckpt_keep.h - the parts with which a checkpoint of several nodes is complete, kept by the server:
 * a node that saves its part over replaces its own objects and manifest when its part is whole,
 * which may be long before the other nodes are. A kept object is a copy of the node's, so in a
 * directory store another name of the same file.
 *
 * With the lock of the job's checkpoints (app->ckpts).
 */
#ifndef CKPT_KEEP_H
#define CKPT_KEEP_H

#include "core/ckpt.h"
#include "server/app.h"

enum ckpt_keep {
	KEEP_DONE,
	KEEP_MOVED, /* its node has stored another manifest meanwhile */
	KEEP_GONE,  /* the store lacks a file that the manifest names */
};

/* The key of the manifest of a part that is kept. */
char *ckpt_keep_key(struct arena *a, const char *prefix, const struct ckpt *c);
/* Keeps a part: c, as its node's manifest (of these bytes) describes it. have: its files are kept
 * already. */
int ckpt_keep(struct app *app, struct arena *a, const char *prefix, const struct ckpt *c,
              struct str manifest, bool have, enum ckpt_keep *out, struct err *err) MUST_CHECK;
/* Deletes what is kept of a node's part of a checkpoint, but for one set of files (NULL: all). */
int ckpt_keep_drop(struct app *app, struct arena *a, const char *prefix, uint32_t rank,
                   const char *name, const struct digest *but, struct err *err) MUST_CHECK;

#endif
