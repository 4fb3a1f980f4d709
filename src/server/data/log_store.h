/*
 * log_store.h - the logs of jobs in the object store, where that is elsewhere: threads that store
 * what was appended (store/logs/joblog.h says how). With a directory of our own the logs are in the
 * data folder, and nowhere else.
 */
#ifndef LOG_STORE_H
#define LOG_STORE_H

#include "server/app.h"

#define LOG_STORE_THREADS 4
#define LOG_STORE_PAUSE_MS 1000 /* while the store does not answer, at first */
#define LOG_STORE_END_MS 3000   /* that a job's last line may hold up its last step */
#define LOG_STORE_LAST_MS 5000  /* at the end of the server: then the next one stores the rest */

/* Before anything is read or written. */
int log_store_start(struct app *app, struct err *err) MUST_CHECK;
/* Stores what waits, if that can be done soon. */
void log_store_drain(struct app *app);
void log_store_stop(struct app *app);
void log_store_free(struct app *app);

#endif
