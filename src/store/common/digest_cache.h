/*
 * digest_cache.h - what earlier fetches have learned about a source that promises no SHA-256: which
 * blob a file of this path, size and ETag turned out to be. So only changed files travel again, and
 * a fetch of thousands of small files that was cut short goes on where it was.
 *
 *   <blobs>/known/<sha256 of the source's URL>   "stoker-known 1\n\n", then 64 bytes a file
 *
 * A file that the source knows by git's id is not in there, but where all sources find it
 * (blob_git.h). It saves work and nothing else: losing it is harmless, and what it says is believed
 * only when the blob is there with the right size.
 */
#ifndef DIGEST_CACHE_H
#define DIGEST_CACHE_H

#include "store/blobs/blob.h"
#include "store/sources/source.h"

struct digest_cache;

/* The digests known for this source; empty when there are none, or none can be read. */
struct digest_cache *digest_cache_load(struct blobs *b, const char *source_name) MUST_CHECK;
void digest_cache_free(struct digest_cache *k); /* NULL is fine */
DEFINE_CLEANUP(struct digest_cache, digest_cache_free)
#define AUTO_DIGEST_CACHE CLEANUP(digest_cache_free_p)

/* Can this file be told from another one at its place: by a strong ETag, or a digest of any kind?
 */
bool digest_cache_applies(const struct source_file *f);
bool digest_cache_find(const struct digest_cache *k, const struct source_file *f,
                       struct digest *sha256);
/* Replaces what was there for this file; each file once. Ignored when digest_cache_applies() says
 * no. */
void digest_cache_add(struct digest_cache *k, const struct source_file *f,
                      const struct digest *sha256);
/* Writes it back when something was added. The blobs must be on the disk before. */
int digest_cache_save(struct digest_cache *k, struct blobs *b, struct err *err) MUST_CHECK;

#endif
