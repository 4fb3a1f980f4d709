/*
 * xet_shard.h - a shard, without I/O: files as lists of terms, and the chunks of xorbs. A client
 * sends it last, when the xorbs are there; with it the files exist.
 *
 * It is read strictly, and takes three times as much memory as it is long at most; a usual one
 * takes less than it is long. What it claims is not checked against anything: that is for who has
 * the xorbs (xet_term_check, xet_xorb_hash).
 */
#ifndef XET_SHARD_H
#define XET_SHARD_H

#include "base/arena.h"
#include "core/xet.h"

#define XET_SHARD_MAX ((size_t)64 << 20) /* bytes; clients begin a new one there */

struct xet_file {
	struct xet_hash hash;
	uint64_t bytes; /* of all terms */
	const struct xet_term *term;
	const struct xet_hash *proof; /* each term's xet_term_hash(); NULL = the client sent none */
	size_t n;                     /* 0: an empty file */
	bool has_sha256;              /* never of an empty file */
	struct digest sha256;         /* of the content, so the client says */
};

struct xet_xorb {
	struct xet_hash hash;
	struct xet_chunks chunks;
	uint64_t bytes; /* of all chunks, unpacked */
};

struct xet_shard {
	const struct xet_file *file;
	size_t n_files;
	const struct xet_xorb *xorb; /* new ones; files may name others */
	size_t n_xorbs;
};

/* In the arena; nothing of `bytes` is borrowed. ERR_INVALID: this is no shard, with where and why;
 * ERR_TOO_BIG: it is over a limit. */
int xet_shard_read(struct arena *a, struct str bytes, struct xet_shard *out,
                   struct err *err) MUST_CHECK;

#endif
