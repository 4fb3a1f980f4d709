/*
 * weights.h - where mirrored weights are. What was fetched is in the folder store/. With --objects
 * all of it is in the object store, too, before a row names it (blob_objects.h), and the folder is
 * a cache of that: what it has lost is lost to nobody.
 */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "server/app.h"
#include "server/control/resolved.h"

struct weights; /* of the app: whose digests runners ask for */

void weights_open(struct app *app);
void weights_close(struct app *app);

/* Does the object store have them? */
bool weights_in_objects(const struct app *app);

/* Where the files of a tree come from. */
struct tree_from weights_from(const struct app *app);

enum weights_at {
	WEIGHTS_NOWHERE, /* or not all of them */
	WEIGHTS_FOLDER,  /* all in the folder; with --objects they have to be put first */
	WEIGHTS_KEPT,    /* where they belong */
};
/* Where all is that this manifest (hex; NULL: nowhere) names, and, with pins, stays. *total: of its
 * files. Fails only when the object store cannot be asked. */
int weights_find(struct app *app, struct blob_pins *pins, const char *manifest,
                 struct mirror_progress *total, enum weights_at *at, struct err *err) MUST_CHECK;
/* The list of files: the folder's, else the object store's. */
int weights_manifest(struct app *app, struct arena *a, const struct digest *name,
                     struct manifest *m, struct err *err) MUST_CHECK;
/* Is the manifest's object there, and with it all that it names? Without --objects: no. */
int weights_are_kept(struct app *app, const struct digest *name, bool *kept,
                     struct err *err) MUST_CHECK;
/* May a runner whose job has these inputs read this object? It may, if one of its manifests it is,
 * or is named there. */
int weights_may_read(struct app *app, const struct resolved *f, const char *key, bool *yes,
                     struct err *err) MUST_CHECK;

#endif
