/*
 * blob_git.h - which blob is the content that git knows by another id: a file that a Hub promises
 * by its git id alone is found again, whoever had fetched it, from whichever repository.
 *
 *   git/ab/<40 hex>   a symbolic link that is never followed; its text is the blob's digest in
 *                     base64url, for ext4 keeps 59 bytes of text beside the link's own data: one
 *                     of 64 hex digits, as older ones have it, takes a block of the disk
 *
 * A link appears whole or not at all, and needs no sync: it saves work and nothing else. What it
 * says is believed when the blob is there with the right size.
 */
#ifndef BLOB_GIT_H
#define BLOB_GIT_H

#include "store/blobs/blob.h"

#define BLOB_GIT_LEN 20 /* bytes of git's id of a file */

/* The caller has seen to it that both are of one content. What cannot be noted is not. */
void blob_git_note(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], const struct digest *d);
/* Is it known, and the blob here? */
bool blob_git_find(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], uint64_t size,
                   struct digest *out);
/* Is it known? The blob may be gone, or elsewhere. */
bool blob_git_look(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], struct digest *out);
/* Removes links of blobs that are gone, if they are older than that. */
int blob_git_sweep(struct blobs *b, int64_t min_age_s, struct err *err) MUST_CHECK;

#endif
