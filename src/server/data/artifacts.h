/*
 * artifacts.h - what compilers and build tools keep under keys of their own: a row for each, which
 * has the content itself when it is small, and else names a blob. Rows are what is collected from
 * (blobs_choice.roots); what is being stored is pinned.
 *
 * A cache: of what was not written yet when the server is killed, only recency is lost. Nothing is
 * refused because it is full: the namespace that has most loses first what it has not used for
 * longest, until all fit.
 */
#ifndef SERVER_ARTIFACTS_H
#define SERVER_ARTIFACTS_H

#include "server/app.h"

#define ARTIFACT_MAX ((uint64_t)4 << 30) /* bytes of one */
#define ARTIFACT_ROW 512                 /* bytes that each counts beside its content */

void artifacts_start(struct app *app);
void artifacts_run(struct app *app);
void artifacts_stop(struct app *app); /* writes what was noted of use */
void artifacts_free(struct app *app);

/* artifact_room.c */

/* It was used just now. Costs no I/O. */
void artifact_used(struct app *app, int64_t seq);
/* So much more than before is named by rows: evicts what is too much. */
int artifact_added(struct app *app, int64_t bytes, struct err *err) MUST_CHECK;
/* A row that named this blob is gone. */
void artifact_dropped(struct app *app, const char *sha256);
/* Room in the store's folder for a blob, before it is written. */
int artifact_room_take(struct app *app, uint64_t bytes, struct err *err) MUST_CHECK;
/* So much room in that folder for what others need more: jobs, and newer artifacts. *some: at least
 * a part of it; nothing goes when all of them are not enough. */
int artifacts_yield(struct app *app, uint64_t bytes, bool *some, struct err *err) MUST_CHECK;
/* The most that one artifact may have, to stay. */
uint64_t artifact_bytes_most(const struct app *app);

void artifact_count(struct app *app, enum artifact_kind kind, bool hit, uint64_t bytes);
void artifact_count_stored(struct app *app, enum artifact_kind kind, uint64_t bytes);
void artifact_counts(struct app *app, struct artifact_counts *out);

#endif
