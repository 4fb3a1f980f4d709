/*
 * joblog_segment.h - one file of joblog.h as objects, for servers that come and go:
 *
 *   logs/<job>/<file>/<epoch>-<era>-<from>-<to>
 *
 * An object is a segment: bytes [from, to) of the file, behind their digest and what the file's
 * state was at `to`. It is never written twice with other bytes. Each server has an epoch of its
 * own, higher than those before it, and begins where the segments that it found end; what an
 * earlier one stores behind that point, late, is nobody's any more. A file that is rewritten (see
 * joblog_samples.c) begins a new era at byte 0. So the file is told from the names alone, whatever
 * was lost, doubled or late: at each byte the highest epoch and era that begins at or before it.
 *
 * Small segments are merged into larger ones by the same means: a segment that begins further back
 * and replaces others, which are deleted once it is stored.
 */
#ifndef JOBLOG_SEGMENT_H
#define JOBLOG_SEGMENT_H

#include "store/objects/objstore.h"

#define SEGMENT_ROOT "logs/"
#define SEGMENT_STATE_MAX ((size_t)8 << 10)
#define SEGMENT_NAME_CAP 64
#define SEGMENT_WHOLE ((uint64_t)64 << 20) /* a larger one is not merged any more */

struct segment {
	char file[SEGMENT_NAME_CAP]; /* "node-0.log" */
	uint32_t epoch, era;
	uint64_t from, to;
	uint64_t bytes; /* of the object */
};

/* The part of segment `i` that is a part of the file. */
struct segment_piece {
	size_t i;
	uint64_t from, to;
};

char *segment_prefix(struct arena *a, const char *job_id, const char *file); /* NULL: of all */
char *segment_key(struct arena *a, const char *job_id, const struct segment *s);
/* Those of one file, or of all files (NULL) of a job, ordered by file, epoch, era and place. */
int segment_list(struct objstore *os, struct arena *a, const char *job_id, const char *file,
                 struct segment **out, size_t *n, struct err *err) MUST_CHECK;
/* How many of the first ones are of one file. */
size_t segment_run(const struct segment *s, size_t n);
/* From the segments of one file, in their order: what the file is, from byte 0 on without a gap.
 * out has room for n. */
size_t segment_pieces(const struct segment *s, size_t n, struct segment_piece *out);
/* Where the next segment, which ends at `to`, should begin, so that it replaces small pieces: at
 * `from` or before it. `all`: the file is finished. */
uint64_t segment_reach(const struct segment_piece *p, size_t n, uint64_t from, uint64_t to,
                       bool all);

/* fd: the file. */
int segment_put(struct objstore *os, const char *key, int fd, uint64_t from, uint64_t to,
                struct str state, struct err *err) MUST_CHECK;
/* Verifies it and writes the piece into fd at its place. *state: as it was put. ERR_CORRUPT when
 * the object is not what it says. */
int segment_get(struct objstore *os, const char *key, const struct segment *s,
                const struct segment_piece *p, int fd, struct buf *state,
                struct err *err) MUST_CHECK;
/* Reads all segments of a job that count. ERR_CORRUPT: one of them is damaged, or one is missing
 * between others. *n: how many there are. */
int segment_check(struct objstore *os, const char *job_id, size_t *n, struct err *err) MUST_CHECK;

#endif
