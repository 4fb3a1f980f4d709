/*
 * mirror_room.h - the size limit of the mirror. A fetch reserves room for what it will bring before
 * its first byte travels; where there is too little, what was not used for longest goes: leftovers
 * of other fetches, then sources that no job which waits or runs has resolved, then artifacts of
 * builds. What cannot go is waited for (ERR_MIRROR_FULL), or refused when it could never fit
 * (ERR_MIRROR_TOO_SMALL).
 *
 * With --objects the folder is a cache of the object store (weights.h): what goes from it are blobs
 * and manifests, in use or not, and their rows stay.
 *
 * Each blob counts once, however many sources and trees of the node cache have a name of it.
 * Eviction goes row, tree, manifest, blobs: killed anywhere, nothing names what is gone, and the
 * next collector takes the rest.
 */
#ifndef MIRROR_ROOM_H
#define MIRROR_ROOM_H

#include "server/app.h"

#define MIRROR_ROOM_PERCENT 80 /* of the disk, when --mirror-bytes is unset */
#define MIRROR_ROOM_TICK_MS 200
#define MIRROR_LEFTOVER_S 3600 /* bytes of failed fetches: older ones go before any source */

struct mirror_room;

void mirror_room_start(struct app *app); /* before fetches */
void mirror_room_free(struct app *app);

struct mirror_hold; /* what one fetch has reserved and not stored yet */

/* For a source of `all` bytes, of which `want` says what is missing. `out` is given back with
 * mirror_room_give. An object store that is away ends it (err_is_away): nothing says what may go.
 */
int mirror_room_take(struct app *app, const char *source, uint64_t all,
                     const struct mirror_want *want, const atomic_bool *cancel,
                     struct mirror_hold **out, struct err *err) MUST_CHECK;
void mirror_room_stored(struct app *app, struct mirror_hold *h, uint64_t bytes);
void mirror_room_give(struct app *app, struct mirror_hold *h); /* NULL is fine */

/* Evicts until the mirror is within its limit, as far as jobs allow. `spare`: bytes that would be
 * freed before (of a dry run). */
int mirror_room_trim(struct app *app, uint64_t spare, const struct blobs_way *way,
                     struct blobs_collected *out, struct err *err) MUST_CHECK;
/* Goes up when something may have become free: a job has ended, a mirror was deleted. */
uint64_t mirror_room_changes(struct app *app);
void mirror_room_changed(struct app *app);

struct mirror_room_view {
	uint64_t limit, reserved;        /* bytes */
	uint64_t evicted, evicted_bytes; /* sources, since the server was started */
};
int mirror_room_view(struct app *app, struct mirror_room_view *out, struct err *err) MUST_CHECK;

/* How old what nothing names must be to go. Fetches may run: what they rely on stays. */
struct mirror_ages {
	int64_t manifest_s; /* manifests, and with them the blobs that only they name */
	int64_t loose_s;    /* blobs that no manifest names, and temporary files */
};
#define MIRROR_NOT_LOOSE (-1) /* these are not looked for */

/* Removes what no mirror and no active job names. `only`: no manifest but this one. */
int mirror_collect(struct app *app, const struct digest *only, const struct mirror_ages *age,
                   const struct blobs_way *way, struct blobs_collected *out,
                   struct err *err) MUST_CHECK;
/* The same in the object store, where --objects has one. */
int mirror_collect_objects(struct app *app, const struct digest *only,
                           const struct mirror_ages *age, const struct blobs_way *way,
                           struct blobs_collected *out, struct err *err) MUST_CHECK;
/* Blobs that were roots of themselves, and of which a row has just gone: those that nothing else
 * names go at once, also from the object store. */
int mirror_collect_dropped(struct app *app, const struct digest *d, size_t n,
                           struct blobs_collected *out, struct err *err) MUST_CHECK;

#endif
