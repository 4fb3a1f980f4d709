/*
 * standby.h - `stoker server --standby`: waits beside the server that leads, and leads when that is
 * gone. It reads who leads (meta/lead.h) and whether its key and its objects are those of the
 * database, writes no row, and answers /healthz.
 *
 * The leader is gone when it has left in order, or when its count stands still for STANDBY_STILL_MS
 * while the database answers each time at once: an outage of the database is nobody's death, and
 * what a slow answer or a pause of our own hid is not counted. No clocks of two machines are
 * compared. Then the session that the leader wrote by is ended, and with it all that it could still
 * write; see db_pg.c. Several standbys try at once: one gets the lock, the others go on waiting.
 */
#ifndef STANDBY_H
#define STANDBY_H

#include "server/app.h"

#include <signal.h>

#define STANDBY_PERIOD_MS 500
#define STANDBY_STILL_MS 5000 /* a leader counts every second */
#define STANDBY_QUICK_MS 1000 /* an answer that took longer, and what it says, is not counted */

/* Returns with *leads true and the database open, or false: it was told to end. */
int standby_wait(struct app *app, const sigset_t *signals, bool *leads, struct err *err) MUST_CHECK;

#endif
