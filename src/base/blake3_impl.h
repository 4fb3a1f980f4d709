/* blake3_impl.h - what blake3.c and its lanes share: constants, the round, a batch of inputs. */
#ifndef BLAKE3_IMPL_H
#define BLAKE3_IMPL_H

#include "base/blake3.h"

#define BLAKE3_BLOCK 64
#define BLAKE3_CHUNK 1024
#define BLAKE3_LANES 8

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8, KEYED = 16 };

/* Inputs of whole blocks, all of one length, back to back. */
struct blake3_batch {
	const uint32_t *key;
	const uint8_t *in;
	size_t n, blocks;
	uint64_t counter; /* of the first one */
	bool counts;      /* else all have the same */
	uint32_t flags, first, last;
};

/* Eight inputs of a batch from `at` on, or as many as are left, in the lanes of vectors. */
typedef void blake3_lanes(const struct blake3_batch *b, size_t at, uint8_t *out);

#define IV0 0x6a09e667U
#define IV1 0xbb67ae85U
#define IV2 0x3c6ef372U
#define IV3 0xa54ff53aU

/* On words and on vectors of words alike. */
#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))

#define MIX(v, a, b, c, d, x, y)                                                                   \
	do {                                                                                       \
		v[a] += v[b] + (x);                                                                \
		v[d] ^= v[a];                                                                      \
		v[d] = ROR(v[d], 16);                                                              \
		v[c] += v[d];                                                                      \
		v[b] ^= v[c];                                                                      \
		v[b] = ROR(v[b], 12);                                                              \
		v[a] += v[b] + (y);                                                                \
		v[d] ^= v[a];                                                                      \
		v[d] = ROR(v[d], 8);                                                               \
		v[c] += v[d];                                                                      \
		v[b] ^= v[c];                                                                      \
		v[b] = ROR(v[b], 7);                                                               \
	} while (0)

#define ROUND(v, m, a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q)                                \
	do {                                                                                       \
		MIX(v, 0, 4, 8, 12, m[a], m[b]);                                                   \
		MIX(v, 1, 5, 9, 13, m[c], m[d]);                                                   \
		MIX(v, 2, 6, 10, 14, m[e], m[f]);                                                  \
		MIX(v, 3, 7, 11, 15, m[g], m[h]);                                                  \
		MIX(v, 0, 5, 10, 15, m[i], m[j]);                                                  \
		MIX(v, 1, 6, 11, 12, m[k], m[l]);                                                  \
		MIX(v, 2, 7, 8, 13, m[n], m[o]);                                                   \
		MIX(v, 3, 4, 9, 14, m[p], m[q]);                                                   \
	} while (0)

/* Each row is the permutation of the paper applied to the row above it. */
#define ROUNDS(v, m)                                                                               \
	do {                                                                                       \
		ROUND(v, m, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                 \
		ROUND(v, m, 2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8);                 \
		ROUND(v, m, 3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1);                 \
		ROUND(v, m, 10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6);                 \
		ROUND(v, m, 12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4);                 \
		ROUND(v, m, 9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7);                 \
		ROUND(v, m, 11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13);                 \
	} while (0)

#endif
