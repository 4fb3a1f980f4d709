/*
 * blob.h - the mirror's content-addressed store: blobs by SHA-256 and manifests by their own
 * digest, in one directory.
 *
 *   blobs/sha256/ab/<64 hex>      0444, complete and verified, or not there
 *   manifests/<64 hex>            manifest.h
 *   tmp/<name>, tmp/<name>.journal partial fetches: survive a kill, swept by age
 *
 * Order of writes: blob, fsync, rename, fsync of the folder; then the manifest; then the row.
 */
#ifndef BLOB_H
#define BLOB_H

#include "core/manifest.h"
#include "base/fs.h"

#include <stdatomic.h>

struct blobs;
struct objstore;  /* objstore.h */
struct blob_pins; /* blob_pins.h */

int blobs_open(struct blobs **out, const char *dir, struct err *err) MUST_CHECK; /* makes it */
void blobs_close(struct blobs *b);
DEFINE_CLEANUP(struct blobs, blobs_close)
#define AUTO_BLOBS CLEANUP(blobs_close_p)

bool blobs_has(struct blobs *b, const struct digest *d, uint64_t size); /* stat only */
int blobs_fd(struct blobs *b, const struct digest *d, int *fd, uint64_t *size,
             struct err *err) MUST_CHECK;
char *blobs_path(struct blobs *b, const struct digest *d, struct arena *a); /* absolute */
int blobs_dirfd(const struct blobs *b); /* of the store's folder; it stays the store's */
/* A temporary file for `name` ([a-z0-9-]), opened read-write, kept from earlier tries; and the path
 * of its journal. One user at a time: it is locked (ERR_BUSY). */
int blobs_tmp(struct blobs *b, const char *name, int *fd, char journal[FS_PATH_MAX],
              struct err *err) MUST_CHECK;
/* fsync, chmod 0444, rename to its digest (the caller has verified it), journal removed. */
int blobs_commit(struct blobs *b, const char *name, int fd, const struct digest *d,
                 struct err *err) MUST_CHECK;
/* A file of somebody else's becomes a blob by one more name, once it is read and verified: `link`
 * gives it that name, in the folder of that descriptor, and nobody may write to it any more.
 * ERR_CORRUPT: it has other content; what link and step (may be NULL) fail with. */
struct blob_adopt {
	struct digest d;
	uint64_t size;
	int (*link)(void *arg, int dirfd, const char *name, struct err *err);
	int (*step)(void *arg, size_t bytes, struct err *err);
	void *arg;
};
int blobs_adopt(struct blobs *b, struct blob_pins *pins, const struct blob_adopt *x,
                struct err *err) MUST_CHECK;
int blobs_drop_tmp(struct blobs *b, const char *name, struct err *err) MUST_CHECK;
/* Writes small content at once. */
int blobs_put(struct blobs *b, struct str body, struct digest *out, struct err *err) MUST_CHECK;
/* Reads the whole blob from its disk and compares: ERR_CORRUPT when it differs. `step` (may be
 * NULL) is told of each piece; what it fails with ends the reading. */
int blobs_verify(struct blobs *b, const struct digest *d,
                 int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                 struct err *err) MUST_CHECK;
/* A blob that differs leaves the store: tmp/corrupt-<hex>, swept by age. Who needs it fetches it
 * again; trees that link to it are the node cache's matter. One that is gone is fine. */
int blobs_quarantine(struct blobs *b, const struct digest *d, struct err *err) MUST_CHECK;
/* The same for a manifest: tmp/corrupt-m-<hex>. */
int blobs_quarantine_manifest(struct blobs *b, const struct digest *name,
                              struct err *err) MUST_CHECK;
enum blobs_kind { BLOBS_MANIFEST, BLOBS_BLOB, BLOBS_PARTIAL, BLOBS_DAMAGED };
struct blob_entry {
	struct digest d;
	uint64_t size, taken; /* taken: of the disk */
	int64_t ms;           /* when it was published */
};
/* Calls fn with every blob or manifest, in the order of the folders. -1 of fn ends it. */
int blobs_each(struct blobs *b, enum blobs_kind kind,
               int (*fn)(void *arg, const struct blob_entry *x, struct err *err), void *arg,
               struct err *err) MUST_CHECK;

/* ERR_CONFLICT when a blob is missing. The manifest and its blobs are pinned in `pins` (may be
 * NULL) from before it is looked at. */
int blobs_put_manifest(struct blobs *b, struct blob_pins *pins, const struct manifest *m,
                       struct digest *name, struct err *err) MUST_CHECK;
/* The same of one whose blobs are those of `fresh` and some of `base`, another manifest: as long as
 * that is there, and then it stays with all that it names, only the fresh ones are looked for. */
int blobs_put_manifest_on(struct blobs *b, struct blob_pins *pins, const struct digest *base,
                          const struct manifest *fresh, const struct manifest *m,
                          struct digest *name, struct err *err) MUST_CHECK;
/* The same of one whose blobs are in an object store, all of them or those that are not here. */
int blobs_put_list(struct blobs *b, struct blob_pins *pins, const struct manifest *m,
                   struct digest *name, struct err *err) MUST_CHECK;
/* Somebody relies on this blob or manifest, or did when a collection that runs had begun. */
bool blobs_pinned(struct blobs *b, const struct digest *d);
int blobs_get_manifest(struct blobs *b, struct arena *a, const struct digest *name,
                       struct manifest *m, struct err *err) MUST_CHECK; /* digest checked */

struct blobs_item {
	enum blobs_kind kind;
	const char *name;      /* 64 hex, or that of a temporary file */
	const char *largest;   /* path of a manifest's largest file; NULL: it has none */
	uint64_t files, bytes; /* of a manifest: of the blobs that go with it */
	int64_t ms;            /* when it was written */
};
/* How a collector works: it only looks, or removes; and whom it tells of each item (may be NULL).
 */
struct blobs_way {
	bool dry_run;
	void (*each)(void *arg, const struct blobs_item *x);
	void *arg;
};
struct blobs_choice {
	int (*keep)(void *arg, const struct digest *manifest, bool *keep, struct err *err);
	/* May be NULL. One that is not kept is about to go: what was made from it goes first. */
	int (*drop)(void *arg, const struct digest *manifest, struct err *err);
	void *arg;
	/* May be NULL. Blobs that something else than a manifest names: `add` is called with each,
	 * once the collection has begun. */
	int (*roots)(void *arg, void (*add)(void *to, const struct digest *d), void *to,
	             struct err *err);
	/* May be NULL; from any thread. Just before each request that removes objects: an error
	 * ends it, for another server may have begun to rely on what this one was about to
	 * remove. */
	int (*may)(void *arg, struct err *err);
};
struct blobs_collected {
	uint64_t manifests, files, bytes; /* files, bytes: of blobs and temporary files */
};
struct blobs_collect {
	struct objstore *os; /* NULL: in the folder; else there, under the pins of the folder */
	int64_t min_age_s;   /* of a manifest that is not kept, to go */
	int64_t loose_age_s; /* of what no manifest names; < 0: it is not looked for */
	const struct blobs_choice *by; /* NULL: all manifests are kept */
	const struct digest *drop;     /* blobs that were roots; those that are named no more go, */
	size_t n_drop;                 /* of any age */
	const struct blobs_way *way;
	const atomic_bool *cancel; /* may be NULL */
};
/* Removes manifests that are not kept, and the blobs that only they named, of any age; then blobs
 * that no manifest names and that are no roots (an earlier try has left them) and temporary files.
 * Fetches and puts may run meanwhile: what they have pinned stays. */
int blobs_collect(struct blobs *b, const struct blobs_collect *job, struct blobs_collected *out,
                  struct err *err) MUST_CHECK;
/* Disk use of the store. Each blob counts once, however many names it has elsewhere.
 * `partial`: temporary files, but those whose bytes are reserved (blob_pins.h). */
struct blobs_held {
	uint64_t files, bytes, partial;
};
#define BLOBS_HELD_NOW 0         /* measured now */
#define BLOBS_HELD_ANY INT64_MAX /* as long as it was measured once */
/* Every blob is looked at when that was last done `age_ms` ago or earlier, but not much of the time
 * unless BLOBS_HELD_NOW asks for it. In between, what comes and goes is counted: only what another
 * program does in the folder is not seen. */
int blobs_held(struct blobs *b, int64_t age_ms, struct blobs_held *out, struct err *err) MUST_CHECK;

#endif
