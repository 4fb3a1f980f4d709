/*
 * objects.h - the object store of the server: a directory, or a bucket elsewhere (--objects).
 *
 * The object stoker.json at its root says whose it is: it has an id that the database has too. A
 * store with another id, or one without it when the database has one, is refused, so that neither
 * two servers share a bucket nor one starts without the objects that its rows name. A copy of all
 * objects by any S3 tool takes it along.
 */
#ifndef SERVER_OBJECTS_H
#define SERVER_OBJECTS_H

#include "server/app.h"

#define OBJECTS_MARK "stoker.json"
/* A request of a runner may begin until then: a write soon after it was signed, so that little time
 * is left for it once the attempt is over. */
#define OBJECTS_READ_S 3600
#define OBJECTS_WRITE_S 600

/* Opens what the settings name. ERR_OBJECTS_*; a store that is away stops no server whose objects
 * were in it before. */
int objects_open(struct app *app, struct err *err) MUST_CHECK;
/* Whose it is, as soon as the store can be asked: for one that was away at the start. ERR_OBJECTS_*
 * when it is not ours. */
int objects_confirm(struct app *app, struct err *err) MUST_CHECK;
/* For a standby, of a database that another server leads: the same without a change of its rows,
 * so that a takeover does not fail by the store. *known false: the database does not say yet. */
int objects_fit(struct app *app, struct meta *meta, bool *known, struct err *err) MUST_CHECK;
void objects_close(struct app *app);
/* Asks a store that is elsewhere whether it is there, and by a write when it was not: a loop's. A
 * store that turns out to be another Stoker's ends the server. */
void objects_pass(struct app *app);
#define OBJECTS_PERIOD_MS 5000

/* Does another machine have them? */
bool objects_elsewhere(const struct app *app);
/* Where they are on this one; NULL: elsewhere. */
const char *objects_folder(const struct app *app);
/* For a launch on this machine: how its runner gets at them, and at what the folder store/ has. */
#define OBJECTS_SOCKET "objects.sock"
const char *objects_of_runners(struct app *app, struct arena *a);
const char *objects_passed(struct app *app, struct arena *a);

#endif
