/*
 * hub_pull.h - what hub_pull.c (files on their way) and hub_follow.c (who is sent their bytes
 * meanwhile) share. All with the lock of the Hub, unless they say otherwise.
 */
#ifndef SERVER_HUB_PULL_H
#define SERVER_HUB_PULL_H

#include "server/data/hub_impl.h"

#define CONTENT_CAP (HASH_HEX_CAP + 8)
#define HELD_BACK 1 /* of the end, until the whole is verified */

struct hub_pull {
	unsigned magic;
#define HUB_PULL_MAGIC 0x4850554cU
	struct hub_repo *repo; /* held; by which the bytes come */
	const struct hub_file *f;
	char content[CONTENT_CAP];
	unsigned refs; /* its thread, followers; with the map's */
	int fd;        /* of what arrives; -1: not yet, or it is small */
	uint64_t front;
	unsigned began;  /* how often it has begun anew: what was sent before is not this file */
	uint64_t wanted; /* somebody waits for so much of it; UINT64_MAX: nobody */
	bool done;
	int64_t failed_ms; /* monotonic; 0: it has not */
	struct err err;
	struct hub_lump *lump;
	struct mirror_hold *hold; /* of its own */
	struct cond moved;
};

/* So much of it may be sent. Nobody gets all of a file that is not what it should be. */
uint64_t hub_pull_readable(const struct hub_pull *p);
/* The last one frees. */
void hub_pull_drop(struct hub *h, struct hub_pull *p);
/* Without the lock. */
struct source_file hub_source_file(const struct hub_file *f);
int hub_source_of(const struct hub_repo *r, struct source **out, struct err *err) MUST_CHECK;
void hub_notify_places(struct app *app); /* who waits for a place looks again */

/* hub_follow.c */
/* Without the lock: a piece of a file, from the other Hub. */
int hub_read_through(struct app *app, uint64_t owner, struct hub_repo *r, const struct hub_file *f,
                     struct hub_bytes *out, struct err *err) MUST_CHECK;
/* Of a pull that is under way. */
void hub_follow(struct app *app, uint64_t owner, struct hub_pull *p, uint64_t first, uint64_t count,
                struct hub_bytes *out);

#endif
