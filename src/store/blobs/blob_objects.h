/*
 * blob_objects.h - blobs and manifests in an object store, under the names that they have in a
 * blob store: blobs/sha256/ab/<64 hex>, manifests/<64 hex>.
 *
 * Order: all blobs of a manifest, then the manifest; deletes go the other way. So a manifest that
 * is there names only blobs that are there. A row that names it comes after it.
 */
#ifndef BLOB_OBJECTS_H
#define BLOB_OBJECTS_H

#include "store/blobs/blob_pins.h"
#include "store/objects/objstore.h"

#define BLOB_KEY_CAP 128

void blob_object_key(const struct digest *d, char out[BLOB_KEY_CAP]);
void blob_objects_manifest_key(const struct digest *name, char out[BLOB_KEY_CAP]);

/* Verified by its name. ERR_NOT_FOUND; ERR_CORRUPT. */
int blob_objects_manifest(struct objstore *os, struct arena *a, const struct digest *name,
                          struct manifest *m, struct err *err) MUST_CHECK;
/* Is an object of that size there? */
int blob_objects_has(struct objstore *os, const char *key, uint64_t size, bool *has,
                     struct err *err) MUST_CHECK;

struct blob_objects_put {
	struct blobs *from;
	struct objstore *to;
	struct blob_pins *pins; /* as of mirror.h: gets all that is relied on */
	const struct digest *manifest;
	/* NULL, or those of its blobs that may not be there yet: the others a manifest names that
	 * is there, and the caller sees to it that it stays. */
	const struct manifest *fresh;
	void (*progress)(void *arg, uint64_t done, uint64_t total, uint64_t sent);
	void *arg;                 /* progress (may be NULL): from the caller's thread */
	const atomic_bool *cancel; /* may be NULL */
};

/* Those blobs of the manifest that the object store lacks, several at once, then the manifest. What
 * is there with the right size is not sent again, so a put that was killed goes on. */
int blob_objects_put(const struct blob_objects_put *put, struct err *err) MUST_CHECK;

/* One blob that is in the folder, unless it is there already. */
int blob_objects_put_blob(struct objstore *os, struct blobs *from, struct blob_pins *pins,
                          const struct digest *d, uint64_t size, const atomic_bool *cancel,
                          struct err *err) MUST_CHECK;

/* A blob or a manifest that is whole in the folder, under the same key, takes the place of what is
 * in the object store. *mended: there was one. */
int blob_objects_mend(struct objstore *os, struct blobs *from, const char *key,
                      const struct digest *d, const atomic_bool *cancel, bool *mended,
                      struct err *err) MUST_CHECK;

/* Calls fn with every blob or manifest of the object store, in order; -1 of fn ends it. */
int blob_objects_each(struct objstore *os, enum blobs_kind kind,
                      int (*fn)(void *arg, const struct blob_entry *x, struct err *err), void *arg,
                      struct err *err) MUST_CHECK;

#endif
