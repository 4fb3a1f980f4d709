/* outage.h - tells running jobs of outages of the database and the object store. */
#ifndef SERVER_OUTAGE_H
#define SERVER_OUTAGE_H

#include "server/app.h"

#define OUTAGE_TOLD_MS 1000    /* a shorter one nobody has noticed */
#define OUTAGE_JOBS_MAX 100000 /* that are told of one */

/* Asks a database that did not answer whether it does now. After an outage: an event of each job
 * that ran through it. One thread at a time. */
void outage_pass(struct app *app);
void outage_free(struct app *app);

#endif
