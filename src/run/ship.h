/*
 * ship.h - checkpoints to the object store while the trainer runs: a walker that looks at the
 * checkpoint folder and asks who writes, a publisher that judges (core/ckpt_rule.h) and publishes,
 * and a few senders, who look at each file's format on the way.
 *
 * A file is hard-linked into the spool when it is first seen, so the trainer's rotation cannot take
 * it away; it is sent when nobody writes it and it has come to rest, from a copy where the file
 * system shares extents or where it was written over while it was sent before. What was linked and
 * sent is journalled in the spool, so that a shipper that was killed goes on where it was. Errors
 * of the store are tried again for ever: an outage pauses, it loses nothing.
 *
 * A folder that vanishes before it is shipped (rotation) is shipped from the spool. A file that
 * vanishes while the rest of its checkpoint stays was the trainer's own temporary one: it is left
 * out. What can never be stored is refused once, by name, and makes its checkpoint incomplete.
 */
#ifndef SHIP_H
#define SHIP_H

#include "core/model.h"
#include "run/ids.h"
#include "store/objects/objstore.h"

#define SHIP_SENDERS 16    /* files at once: a store that is far away takes its time for each */
#define SHIP_SENDERS_ANY 2 /* of these take large files, too, of which each is sent in parts */
#define SHIP_LARGE ((uint64_t)1 << 20) /* a file of more is a large one */
#define SHIP_WALK_MS 250               /* between two looks, at least ... */
#define SHIP_WALK_MAX_MS 5000 /* ... and at most; in between, looking may take of one CPU: */
#define SHIP_BUSY_SHARE 20    /* the 20th part while something changes */
#define SHIP_IDLE_SHARE 100   /* the 100th part while nothing does */
#define SHIP_WATCHED_MS 2000  /* between two looks while nothing changes and inotify watches */
#define SHIP_RETRY_MS 5000
#define SHIP_CONFIG_MAX ((size_t)1 << 20)
#define SHIP_JOURNAL_MAX ((size_t)256 << 20)

struct ship;

struct ship_options {
	const char *dir;   /* checkpoint folder, on this host */
	const char *spool; /* on the same file system, else files are sent from their place */
	struct objstore *objects;
	const char *prefix; /* training_projects/<p>/jobs/<j> */
	const char *job_id;
	uint32_t rank, nodes;  /* nodes of the job, 0 = 1: with more this is a part of each */
	int64_t settle_ms;     /* that the job asks for, 0 = as the rules say (ckpt_rule.h) */
	const struct ids *ids; /* whose the files are; NULL: ours */
	const char *marker;    /* the name of the last file of its checkpoints; NULL */
	bool dead;             /* the trainer died with the shipper before us */
	uint64_t volume_bytes; /* what the job may write there, 0 = what the disk has */
	/* NULL, or the file system limits the folder (prjquota.h), and takes a file out of that:
	 * one that is left in the spool alone. */
	bool (*forget)(void *arg, int fd);
	const atomic_bool *cancel; /* gives up; may be NULL */
	/* Asked while ship_finish waits, with how much has been done: true gives up. May be NULL.
	 */
	bool (*give_up)(void *arg, uint64_t done);
	uint32_t (*world)(void *arg); /* ranks of the job, 0 = not known (yet); may be NULL */
	void (*checkpoint)(void *arg, const struct model_checkpoint *row); /* news of one */
	void (*event)(void *arg, const char *kind, const char *text); /* "checkpoint", "warning" */
	void *arg;
};

struct ship_totals {
	uint64_t files, bytes, bytes_sent; /* in the folder and spool; verified in the store */
	uint64_t complete, incomplete;     /* checkpoints */
};

int ship_start(struct ship **out, const struct ship_options *o, struct err *err) MUST_CHECK;
void ship_totals(struct ship *s, struct ship_totals *out);
/* The commands have ended, and processes that they left behind have not been killed yet: finds the
 * files that those have open for writing. A checkpoint with such a file does not become complete,
 * however well the commands ended. Waits for the look, at most limit_ms. NULL is fine. */
void ship_last_look(struct ship *s, int64_t limit_ms);
/* The trainer has ended (ok: with exit code 0): sends all the rest, however long the store is away.
 * True: everything is in the store. False: cancelled, or a file could not be read. */
bool ship_finish(struct ship *s, bool ok);
void ship_close(
	struct ship *s); /* without finishing: as if killed, the journal stays; NULL is fine */

#endif
