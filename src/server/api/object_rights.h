/* object_rights.h - files of this server's folders for the runners of this machine: passing.h. */
#ifndef OBJECT_RIGHTS_H
#define OBJECT_RIGHTS_H

#include "server/app.h"

int object_passing_start(struct app *app, struct err *err) MUST_CHECK;
void object_passing_stop(struct app *app); /* what was not started is fine */

#endif
