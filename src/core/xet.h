/*
 * xet.h - the hashes of the Xet protocol, by which clients of a Hub store large files, without I/O.
 *
 * A client cuts a file into chunks, at places that its content chooses, and packs chunks of one or
 * more files into xorbs (xet_xorb.h). A file is a list of ranges of chunks in xorbs, its terms; a
 * shard tells of files and xorbs (xet_shard.h). All names are keyed BLAKE3: a chunk's of its bytes;
 * a xorb's of the tree over its chunks; a file's of the tree over its chunks, in whichever xorbs
 * they are; a term's of its chunks' hashes, which only who has the chunks can know.
 *
 * The protocol: https://huggingface.co/docs/xet; what it leaves open, as xet-core does it
 * (https://github.com/huggingface/xet-core).
 */
#ifndef XET_H
#define XET_H

#include "base/hash.h"

#define XET_HASH_LEN 32
#define XET_HASH_TEXT 64
#define XET_HASH_CAP (XET_HASH_TEXT + 1)
#define XET_CHUNK_MAX ((size_t)128 << 10)        /* bytes of a chunk */
#define XET_XORB_CHUNKS_MAX 8192                 /* of a xorb */
#define XET_XORB_UNPACKED_MAX ((size_t)64 << 20) /* bytes of a xorb's chunks */

struct xet_hash {
	uint8_t b[XET_HASH_LEN];
};

/* As text, each eight bytes are a number, the lowest byte first: 00 01 ... is "0706050403020100..".
 * Read back, 64 digits in lower case and nothing else: text is a name. */
void xet_hash_text(const struct xet_hash *h, char out[XET_HASH_CAP]);
int xet_hash_parse(struct str text, struct xet_hash *out, struct err *err) MUST_CHECK;
bool xet_hash_same(const struct xet_hash *a, const struct xet_hash *b);
/* A SHA-256 is stored so that as text it reads as usual. */
struct digest xet_hash_sha256(const struct xet_hash *h);

struct xet_hash xet_chunk_hash(const void *p, size_t n);

/*
 * The tree over chunks, in order. Nodes are merged in groups of up to nine, and where a group ends
 * depends on the hashes in it; at every level a few nodes wait for the rest of their group, so a
 * tree of any size takes 10 KiB.
 */
struct xet_tree;
struct xet_tree *xet_tree_new(void) MUST_CHECK;
void xet_tree_free(struct xet_tree *t);
DEFINE_CLEANUP(struct xet_tree, xet_tree_free)
#define AUTO_XET_TREE CLEANUP(xet_tree_free_p)

void xet_tree_add(struct xet_tree *t, const struct xet_hash *chunk, uint64_t bytes);
/* The root, which is a xorb's name; all zero without a chunk. The tree is empty afterwards. */
struct xet_hash xet_tree_end(struct xet_tree *t);
/* The same, as a file's name. */
struct xet_hash xet_tree_end_file(struct xet_tree *t);

struct xet_chunks { /* of a xorb */
	const struct xet_hash *hash;
	const uint32_t *bytes; /* unpacked */
	size_t n;
};

struct xet_hash xet_xorb_hash(const struct xet_chunks *c);

struct xet_term {
	struct xet_hash xorb;
	uint32_t bytes;      /* unpacked */
	uint32_t start, end; /* chunks of the xorb: [start, end) */
};

struct xet_hash xet_term_hash(const struct xet_hash *chunk, size_t n);
/* Is the term what the chunks of its xorb say? `proof`: its xet_term_hash(); NULL = none was sent.
 * ERR_INVALID: a chunk that is not there, other bytes, another hash. */
int xet_term_check(const struct xet_term *t, const struct xet_hash *proof,
                   const struct xet_chunks *of, struct err *err) MUST_CHECK;
/* Adds its chunks to the tree of a file; the term was checked. */
void xet_term_add(const struct xet_term *t, const struct xet_chunks *of, struct xet_tree *file);

#endif
