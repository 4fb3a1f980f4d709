/*
 * xfer_impl.h - what the files of xfer.h share: digests of a content, one stream, and the journal:
 *
 *   stoker-xfer 1 <size> <part bytes> <boot id> <sha256 of the identity>\n
 *   p <part, 8 hex> <crc32 of what is before>\n       its bytes have all been written to the file
 *   w <part, 6 hex><grains, 2 hex> <crc32 of what is before>\n    its first <grains> of 256 have
 *   s <count, 8 hex> <crc32 of what is before>\n      the first <count> such parts are on the disk
 *
 * A killed process leaves its pages behind, a lost machine does not: under the same boot id every
 * line counts, under another one only what an `s` line covers. A torn last line is cut off. `w`
 * lines are for slow sources: a part that comes within XFER_NOTE_MS has none.
 */
#ifndef XFER_IMPL_H
#define XFER_IMPL_H

#include "store/sources/xfer.h"

#define XFER_PARTS_MAX ((size_t)1 << 20) /* 64 TiB in the largest parts */

#define XFER_TRIES 6
#define XFER_NOTE_MS 1000 /* between two notes of how far a part is */
#define XFER_GRAINS 256   /* of a part, the smallest that is noted */

struct xfer_content {                   /* a running digest, or two */
	struct hash *sha256, *promised; /* promised: of another kind or with a prefix, else NULL */
};
void xfer_content_begin(struct xfer_content *c, const struct xfer_job *job); /* also anew */
void xfer_content_add(struct xfer_content *c, const void *p, size_t n);
/* ERR_CORRUPT when it is not what job expects. */
int xfer_content_end(struct xfer_content *c, const struct xfer_job *job, struct digest *sha256,
                     struct err *err) MUST_CHECK;
void xfer_content_done(struct xfer_content *c);

/* True after a pause when the read may be tried again. gained: bytes that this try brought. */
bool xfer_read_again(struct retry *r, uint64_t gained, const atomic_bool *cancel, struct err *err);
/* All of job over one stream. */
int xfer_plain(const struct xfer_job *job, struct xfer_result *out, struct err *err) MUST_CHECK;

struct xfer_journal {
	int fd; /* -1: this fetch cannot be resumed */
	uint32_t noted;
};

/* Opens or begins the journal of job. grains[parts], zeroed, is set for what need not be fetched
 * again: XFER_GRAINS of a whole part. */
int xfer_journal_open(struct xfer_journal *j, const struct xfer_job *job, uint64_t part_bytes,
                      uint16_t *grains, size_t parts, struct err *err) MUST_CHECK;
void xfer_journal_close(struct xfer_journal *j);
/* One writer at a time. */
int xfer_journal_part(struct xfer_journal *j, size_t part, struct err *err) MUST_CHECK;
/* So many of its grains, more than were noted before and not all. */
int xfer_journal_grains(struct xfer_journal *j, size_t part, unsigned grains,
                        struct err *err) MUST_CHECK;
/* The caller has synced the file after the first `count` parts had been noted. */
int xfer_journal_synced(struct xfer_journal *j, uint32_t count, struct err *err) MUST_CHECK;

#endif
