/* start.h - the data folder and all that the server opens in it; and the way back. */
#ifndef START_H
#define START_H

#include "server/app.h"

#define START_FREE_MIN ((uint64_t)256 << 20)

/* The data folder and its lock, and what takes neither the database nor the objects: a standby that
 * could not lead is told at its start. start_open() does it if nobody has. On failure of either the
 * app can still be closed. */
int start_folder(struct app *app, struct err *err) MUST_CHECK;
/* Everything else but the listener and the threads. What is open stays. */
int start_open(struct app *app, struct err *err) MUST_CHECK;
/* For a standby. The key is here; and it belongs to the database, or that is new. */
int start_key(struct app *app, struct err *err) MUST_CHECK;
int start_key_fits(struct app *app, struct meta *meta, struct err *err) MUST_CHECK;
void start_close(struct app *app);
/* One server at a time uses a SQLite file, whatever its data folder is: as long as the descriptor
 * of its lock, which is the file itself, is open. Close it last: closing any descriptor of a file
 * ends SQLite's own locks. ERR_DATABASE_IN_USE. */
int start_hold(const char *lock, const char *database, int *fd, struct err *err) MUST_CHECK;
/* base_url and local_url. */
void start_urls(struct app *app, const char *host, uint16_t port);
/* It listens there: the lock file names the address, the login of this user points to it. */
int start_announce(struct app *app, const char *host, uint16_t port, struct err *err) MUST_CHECK;

#endif
