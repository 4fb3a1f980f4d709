/*
 * manifest.h - a set of files as sorted lines of digest, size and path; its own SHA-256 names it.
 *
 *   stoker-manifest 1\n
 *   <64 hex> <size> <path>\n        sorted by path (bytes), no duplicates, plain relative paths
 *
 * The same files give the same bytes, so the same name.
 */
#ifndef MANIFEST_H
#define MANIFEST_H

#include "base/hash.h"
#include "base/arena.h"

#define MANIFEST_FILES_MAX 1000000
#define MANIFEST_BYTES_MAX ((size_t)256 << 20)

struct manifest_file {
	const char *path;
	uint64_t size;
	struct digest sha256;
};

struct manifest {
	struct manifest_file *file; /* sorted */
	size_t n, cap;
	uint64_t bytes;      /* sum of sizes */
	struct arena *arena; /* of the paths and the array; the caller's */
};

void manifest_init(struct manifest *m, struct arena *a);
/* May a file of a manifest be called so? */
bool manifest_path_ok(struct str path);
/* ERR_INVALID for a path that is not plain (absolute, "..", newline...). */
int manifest_add(struct manifest *m, struct str path, uint64_t size, const struct digest *sha256,
                 struct err *err) MUST_CHECK;
/* Sorts; a path twice, or a file where another one needs a folder, is ERR_INVALID. */
int manifest_finish(struct manifest *m, struct err *err) MUST_CHECK;
void manifest_write(const struct manifest *m, struct buf *out, struct digest *name);
int manifest_parse(struct manifest *m, struct arena *a, struct str bytes,
                   struct err *err) MUST_CHECK;
const struct manifest_file *manifest_find(const struct manifest *m, struct str path);

#endif
