/*
 * hash.h - streaming digests over OpenSSL EVP. SHA-256 is the one content id of the product; the
 * others are what protocols ask for (MD5 and CRC32 by S3, SHA-1 by git objects).
 */
#ifndef HASH_H
#define HASH_H

#include "base/buf.h"

#define HASH_SHA256_LEN 32
#define HASH_HEX_CAP 65 /* 64 hex digits and NUL */

struct digest {
	uint8_t b[HASH_SHA256_LEN];
};

/* Its bytes, as the key of a map. */
static inline struct str digest_key(const struct digest *d)
{
	return str_n((const char *)d->b, sizeof(d->b));
}

enum hash_kind { HASH_SHA256, HASH_SHA1, HASH_MD5 };

struct hash; /* one running digest */

struct hash *hash_new(enum hash_kind kind) MUST_CHECK;
void hash_free(struct hash *h);
DEFINE_CLEANUP(struct hash, hash_free)
#define AUTO_HASH CLEANUP(hash_free_p)
void hash_add(struct hash *h, const void *p, size_t n);
/* Writes 32, 20 or 16 bytes; the hash is ready for a new text afterwards. Returns the length. */
size_t hash_end(struct hash *h, uint8_t out[HASH_SHA256_LEN]);

struct digest hash_sha256(const void *p, size_t n);
void hash_md5(const void *p, size_t n, uint8_t out[16]);
/* SHA-256 of what is left to read in fd. */
int hash_fd(int fd, struct digest *out, uint64_t *bytes, struct err *err) MUST_CHECK;
/* The same; `step` is told of each piece, and what it fails with ends the reading. */
int hash_fd_steps(int fd, int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                  struct digest *out, uint64_t *bytes, struct err *err) MUST_CHECK;
void hash_hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, uint8_t out[32]);
uint32_t hash_crc32(uint32_t crc, const void *p, size_t n);  /* IEEE, start with 0 */
uint32_t hash_crc32c(uint32_t crc, const void *p, size_t n); /* Castagnoli, start with 0 */

int hex_digit(char c);                                  /* 0 to 15, -1 = none */
void hex_encode(const uint8_t *p, size_t n, char *out); /* 2n digits, lower case, and NUL */
int hex_decode(struct str hex, uint8_t *out, size_t n, struct err *err) MUST_CHECK; /* exactly n */
void digest_hex(const struct digest *d, char out[HASH_HEX_CAP]);
int digest_parse(struct str hex, struct digest *out, struct err *err) MUST_CHECK;
bool digest_same(const struct digest *a, const struct digest *b);

void base64_encode(const void *p, size_t n, bool url, struct buf *out); /* url: no padding */
int base64_decode(struct str text, bool url, struct buf *out, struct err *err) MUST_CHECK;

#endif
