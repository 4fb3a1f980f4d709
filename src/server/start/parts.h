/* parts.h - what works behind the operations: lists in memory, pools and loops, in their order. */
#ifndef PARTS_H
#define PARTS_H

#include "server/app.h"

void parts_start(struct app *app); /* pools work; no loop runs yet */
void parts_stop(struct app *app);  /* joins all of them; app->stopping is set */
void parts_free(struct app *app);  /* also what a start that failed has left */

#endif
