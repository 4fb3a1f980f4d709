/* check.h - `stoker server --check`: rows against manifests, manifests against blobs, checkpoints
 * against objects. Changes nothing. */
#ifndef CHECK_H
#define CHECK_H

#include "server/app.h"

/* Prints every fault; ERR_CORRUPT with their number when there are any. */
int check_all(struct app *app, struct err *err) MUST_CHECK;

#endif
