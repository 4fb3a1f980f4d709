/*
 * blake3.h - BLAKE3 of bytes in memory, plain or keyed, as its paper defines it
 * (https://github.com/BLAKE3-team/BLAKE3-specs). The Xet protocol names what it stores by it; we
 * name nothing of our own by it.
 */
#ifndef BLAKE3_H
#define BLAKE3_H

#include "base/base.h"

#define BLAKE3_LEN 32
#define BLAKE3_KEY_LEN 32

/* key: BLAKE3_KEY_LEN bytes; NULL = plain. One thread, no heap. */
void blake3_hash(const uint8_t *key, const void *p, size_t n, uint8_t out[BLAKE3_LEN]);

/*
 * The ways to compute it, which only differ in speed. blake3_hash() takes the last one that this
 * machine can do; tests and measurements take each.
 */
#define BLAKE3_WAYS 4
const char *blake3_way_name(unsigned way);
bool blake3_way_works(unsigned way); /* here */
void blake3_hash_by(unsigned way, const uint8_t *key, const void *p, size_t n,
                    uint8_t out[BLAKE3_LEN]);

#endif
