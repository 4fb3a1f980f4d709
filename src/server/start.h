/* start.h - the data folder and all that the server opens in it; and the way back. */
#ifndef START_H
#define START_H

#include "server/app.h"

#define START_FREE_MIN ((uint64_t)256 << 20)

/* Everything but the listener and the threads. On failure the app can still be closed. */
int start_open(struct app *app, struct err *err) MUST_CHECK;
void start_close(struct app *app);
/* The address is known now: the lock file names it, the login of this user points to it. */
int start_announce(struct app *app, const char *host, uint16_t port, struct err *err) MUST_CHECK;

#endif
